"""Hierarchical softmax: trees compared with hand computations, and the product along a path."""

from __future__ import annotations

import heapq
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nextword.layers.output.hierarchical import HierarchicalSoftmax, balanced, depths, huffman, paths
from nextword.layers.output.softmax import FullSoftmax


def list_codes(parent: np.ndarray, right: np.ndarray) -> list[str]:
    starts, _, signs = paths(parent, right, depths(parent))
    return ["".join("LR"[int(s < 0)] for s in signs[a:b]) for a, b in pairwise(starts)]


def test_huffman_tree_equals_hand_computation() -> None:
    """Of 5 2 1 1 the two ones are merged first, then with 2, then with 5."""
    parent, right = huffman(np.array([5, 2, 1, 1]))
    assert parent.tolist() == [6, 5, 4, 4, 5, 6, 6]
    results = list_codes(parent, right)
    assert [len(code) for code in results] == [1, 2, 3, 3]
    assert len(set(results)) == 4


@pytest.mark.parametrize("seed", range(5))
def test_huffman_paths_have_minimal_expected_length(seed: int) -> None:
    counts = np.random.default_rng(seed).integers(1, 50, size=20 + seed)
    heap = counts.tolist()
    heapq.heapify(heap)
    least = 0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        least += both
        heapq.heappush(heap, both)
    depth = depths(huffman(counts)[0])[: len(counts)]
    assert (depth * counts).sum() == least


@pytest.mark.parametrize("size", [2, 3, 7, 8, 9, 100])
def test_balanced_tree_has_minimal_depth_and_prefix_free_codes(size: int) -> None:
    result = list_codes(*balanced(size))
    assert max(map(len, result)) == int(np.ceil(np.log2(size)))
    for a, b in pairwise(sorted(result)):
        assert not b.startswith(a)


def test_hierarchical_softmax_of_two_words_equals_full_softmax() -> None:
    layer, full = HierarchicalSoftmax(5, 2), FullSoftmax(5, 2)
    with torch.no_grad():  # p(left) = σ(z₀ − z₁)
        left = 0 if list_codes(layer.parent.numpy(), layer.right.numpy())[0] == "L" else 1
        full.weight[1 - left].zero_()
        full.bias[1 - left] = 0.0  # type: ignore[index]
        full.weight[left] = layer.weight[0]
        full.bias[left] = layer.node_bias[0]  # type: ignore[index]
    h = torch.randn(6, 5)
    torch.testing.assert_close(layer.log_probs(h), full.log_probs(h))


@pytest.mark.parametrize("tree", ["huffman", "balanced"])
def test_hierarchical_softmax_equals_product_along_the_path(tree: str) -> None:
    layer = HierarchicalSoftmax(5, 11, tree)
    layer.fit_vocabulary(np.array([3] * 20 + [1] * 9 + list(range(10))))
    h = torch.randn(1, 5)
    log_p = layer.log_probs(h)[0]
    for word in range(11):
        node, p = word, torch.ones(())
        while node != 20:  # up to the root
            above = int(layer.parent[node])
            z = F.linear(h[0], layer.weight[above - 11], layer.node_bias[above - 11])
            p = p * torch.sigmoid(-z if layer.right[node] else z)
            node = above
        torch.testing.assert_close(log_p[word].exp(), p)


def test_huffman_tree_puts_frequent_words_near_the_root() -> None:
    layer = HierarchicalSoftmax(5, 50)
    layer.fit_vocabulary(np.array([40] * 100 + list(range(50))))
    lengths = layer.starts.diff()
    assert lengths[40] == 1
    assert lengths.min() == 1
    assert (lengths[:40] >= 5).all()
