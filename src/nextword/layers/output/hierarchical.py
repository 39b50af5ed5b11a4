"""Hierarchical softmax: a word is a leaf of a binary tree, and its probability the product of the turns on its path.

    p(w | h) = Π_{n on the path to w} σ(± (v_n · h + b_n))        + where the path goes left at n, − where right

Morin & Bengio, "Hierarchical probabilistic neural network language model" (2005); Mnih & Hinton, "A scalable
hierarchical distributed language model" (2009). A prediction costs as many products as the path is long: log₂ V in a
`balanced` tree, about the unigram entropy (in bits) in a `huffman` tree, where frequent words are near the root.

A tree is two arrays: each node's parent, and its side. Leaves are nodes 0 … V−1, inner nodes V … 2V−2; the root is the
last and its own parent, and a parent comes after its children. So one pass from the last node to the first meets every
parent before its children:

    counts 5 2 1 1      node 4 = (2, 3), of 2     node 5 = (1, 4), of 4     node 6 = (5, 0), of 9: the root
    parent 6 5 4 4 5 6 6       paths: word 0 is one turn from the root, word 1 two, words 2 and 3 three
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.core.jit import jit
from nextword.layers.output.base import (
    CountedReadout,
    at_least_float32,
    count_ids,
    init_like_linear,
    nll_without_ignored,
    refuse_graph_capture,
)

TREES = ("huffman", "balanced")


class HierarchicalSoftmax(CountedReadout):
    parent: Tensor  # (2V−1,) the root's is itself
    right: Tensor  # (2V−1,) whether a node is its parent's right child
    starts: Tensor  # (V+1,) where each word's path begins in `nodes` and `signs`
    nodes: Tensor  # inner nodes from the root down, counted from 0
    signs: Tensor  # +1 where the path goes left, −1 where right
    above: Tensor  # of nodes below the root, level by level: the parent's index in the level above,
    turned_at: Tensor  # the parent as an inner node,
    turned: Tensor  # and the sign of the turn there
    leaves: Tensor  # (V,) word → its index among all nodes, level by level

    def __init__(self, width: int, size: int, tree: str = "huffman") -> None:
        super().__init__(size)
        if tree not in TREES:
            raise InvalidSetting(
                f"readout: tree = {tree!r} is unknown. Use {' or '.join(TREES)}.", key="model.readout.tree", value=tree
            )
        if size < 2:
            raise InvalidSetting(
                f"A tree needs at least two words, but there is {size}.", key="model.readout", value=size
            )
        self.tree = tree
        self.weight = nn.Parameter(torch.empty(size - 1, width))
        self.node_bias = nn.Parameter(torch.empty(size - 1))
        init_like_linear(self.weight, self.node_bias)
        parent, right = balanced(size)
        self.register_buffer("parent", torch.from_numpy(parent))
        self.register_buffer("right", torch.from_numpy(right))
        self.build_tables()

    def count(self, ids: np.ndarray) -> None:
        if self.tree == "balanced":
            return
        parent, right = huffman(count_ids(ids, self.size) + 1)  # unseen words have leaves too
        self.parent.copy_(torch.from_numpy(parent))
        self.right.copy_(torch.from_numpy(right))

    def build_tables(self) -> None:
        parent, right = self.parent.cpu().numpy(), self.right.cpu().numpy()
        depth = depths(parent)
        starts, nodes, signs = paths(parent, right, depth)
        by_level = np.argsort(depth, kind="stable")  # the root, its children, theirs
        place = np.empty(len(parent), np.int64)
        place[by_level] = np.arange(len(parent))
        sizes = np.bincount(depth)
        begins = np.cumsum(sizes) - sizes
        below = by_level[1:]
        tables = {
            "starts": starts,
            "nodes": nodes,
            "signs": signs,
            "above": place[parent[below]] - begins[depth[below] - 1],
            "turned_at": parent[below] - self.size,
            "turned": np.where(right[below], -1.0, 1.0).astype(np.float32)[:, None],
            "leaves": place[: self.size],
        }
        for name, values in tables.items():
            self.set_table(name, values)
        self.level_sizes = sizes[1:].tolist()

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return nll_without_ignored(self._nll, h, targets)

    def _nll(self, h: Tensor, targets: Tensor) -> Tensor:
        refuse_graph_capture("tree", h.device)
        first, lengths = self.starts[targets], self.starts[targets + 1] - self.starts[targets]
        rows = torch.repeat_interleave(torch.arange(len(h), device=h.device), lengths)
        ends = lengths.cumsum(0)
        at = torch.arange(len(rows), device=h.device) + (first - (ends - lengths))[rows]  # along each path
        nodes = self.nodes[at]
        z = (F.embedding(nodes, self.weight) * h[rows]).sum(-1) + self.node_bias[nodes]
        turns = F.logsigmoid(self.signs[at] * z)  # at least float32, as the signs are
        return -turns.new_zeros(len(h)).index_add(0, rows, turns)

    def log_probs(self, h: Tensor) -> Tensor:
        """Level by level from the root, for all rows of h at once: (nodes of the level, N)."""
        z = F.linear(h, self.weight, self.node_bias)
        z = at_least_float32(z).t().contiguous()
        here = z.new_zeros(1, z.shape[1])
        levels = [here]
        sides = (self.above.split(self.level_sizes), self.turned_at.split(self.level_sizes))
        for above, node, side in zip(*sides, self.turned.split(self.level_sizes), strict=True):
            here = here[above] + F.logsigmoid(side * z[node])
            levels.append(here)
        return torch.cat(levels)[self.leaves].t()


def balanced(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Join neighbors, then their parents, and so on; a node left over waits for the next round."""
    parent, right = np.zeros(2 * size - 1, np.int64), np.zeros(2 * size - 1, bool)
    here, new = np.arange(size), size
    while len(here) > 1:
        pairs = len(here) // 2
        made = np.arange(new, new + pairs)
        parent[here[: 2 * pairs]] = np.repeat(made, 2)
        right[here[1 : 2 * pairs : 2]] = True
        here = np.concatenate([made, here[2 * pairs :]])
        new += pairs
    parent[-1] = 2 * size - 2
    return parent, right


def huffman(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tree with the shortest paths on average: join the two rarest nodes, again and again (Huffman 1952)."""
    return _huffman(counts.astype(np.int64), np.argsort(counts, kind="stable"))


@jit
def _huffman(counts: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leaves wait in one queue, the rarest first; joined nodes in another, which is sorted by itself."""
    size = len(counts)
    parent, right = np.zeros(2 * size - 1, np.int64), np.zeros(2 * size - 1, np.bool_)
    weight = np.zeros(2 * size - 1, np.int64)
    weight[:size] = counts
    leaf, joined = 0, size
    for new in range(size, 2 * size - 1):
        for side in range(2):
            if leaf < size and (joined >= new or weight[order[leaf]] <= weight[joined]):
                child = order[leaf]
                leaf += 1
            else:
                child = joined
                joined += 1
            parent[child] = new
            right[child] = side == 1
            weight[new] += weight[child]
    parent[2 * size - 2] = 2 * size - 2
    return parent, right


@jit
def depths(parent: np.ndarray) -> np.ndarray:
    depth = np.zeros(len(parent), np.int64)
    for node in range(len(parent) - 2, -1, -1):  # parents come after their children
        depth[node] = depth[parent[node]] + 1
    return depth


@jit
def paths(parent: np.ndarray, right: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per leaf, concatenated: the inner nodes from the root down, and +1 or −1 for the turn at each."""
    size = (len(parent) + 1) // 2
    starts = np.zeros(size + 1, np.int64)
    starts[1:] = np.cumsum(depth[:size])
    nodes, signs = np.empty(starts[size], np.int64), np.empty(starts[size], np.float32)
    for leaf in range(size):
        node = leaf
        for i in range(starts[leaf + 1] - 1, starts[leaf] - 1, -1):
            signs[i] = -1.0 if right[node] else 1.0
            node = parent[node]
            nodes[i] = node - size
    return starts, nodes, signs
