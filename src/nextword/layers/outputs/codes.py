"""Binary trees over the words, Huffman's and a balanced one, as two arrays: each node's parent, and its side.

Leaves are nodes 0 … V−1, inner nodes V … 2V−2; the root is the last and its own parent, and a parent comes after its
children. So one walk from the last node to the first meets every parent before its children.

    counts 5 2 1 1      node 4 = (2, 3), of 2     node 5 = (1, 4), of 4     node 6 = (5, 0), of 9: the root
    parent 6 5 4 4 5 6 6       paths: word 0 is one turn from the root, word 1 two, words 2 and 3 three
"""

from __future__ import annotations

import numpy as np

from nextword.compiled import compiled


def balanced(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours joined, then their parents, and so on; one that is left over waits for the next round."""
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
    """The tree with the shortest paths in the mean: the two rarest are joined, again and again (Huffman 1952)."""
    return _huffman(counts.astype(np.int64), np.argsort(counts, kind="stable"))


@compiled
def _huffman(counts: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leaves wait in one queue, rarest first, and what was joined in another, which is in order by itself."""
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


@compiled
def depths(parent: np.ndarray) -> np.ndarray:
    depth = np.zeros(len(parent), np.int64)
    for node in range(len(parent) - 2, -1, -1):  # parents come after their children
        depth[node] = depth[parent[node]] + 1
    return depth


@compiled
def paths(parent: np.ndarray, right: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each leaf, one after the other: the inner nodes from the root down, and +1 or −1 for the turn taken there."""
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
