"""Hierarchical softmax: a word is a leaf of a binary tree, and its probability the product of the turns towards it.

    p(w | h) = Π_{n on the path to w} σ(± (v_n · h + b_n))        + where the path goes left at n, − where right

Morin & Bengio, "Hierarchical probabilistic neural network language model" (2005); Mnih & Hinton, "A scalable
hierarchical distributed language model" (2009). A prediction costs as many products as the path is long: log₂ V in a
`balanced` tree, about the entropy of the unigrams (in bits) in `huffman`'s, where frequent words are near the root.

    Leaves are nodes 0 … V−1, inner nodes V … 2V−2; the root is the last, and a parent comes after its children.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract_errors import NextwordError
from nextword.layers.outputs.prepared import Prepared, fill, frequencies, ignoring, not_recorded, wide

TREES = ("huffman", "balanced")


class Tree(Prepared):
    parent: Tensor  # (2V−1,) the root's is itself
    right: Tensor  # (2V−1,) whether a node is its parent's right child
    starts: Tensor  # (V+1,) where each word's path lies in:
    nodes: Tensor  # inner nodes from the root down, counted from 0
    signs: Tensor  # +1 where the path goes left there, −1 where right
    above: Tensor  # nodes below the root, level by level: the parent's place in the level above
    turned_at: Tensor  # the same as an inner node,
    turned: Tensor  # and the turn taken there
    leaves: Tensor  # (V,) word → its place among all nodes, level by level

    def __init__(self, width: int, size: int, tree: str = "huffman") -> None:
        super().__init__(size)
        if tree not in TREES:
            raise NextwordError(f"The readout's tree is one of {', '.join(TREES)}; the recipe says {tree!r}.")
        if size < 2:
            raise NextwordError(f"A tree needs two words or more to choose between; there are {size}.")
        self.tree = tree
        self.weight = nn.Parameter(torch.empty(size - 1, width))
        self.node_bias = nn.Parameter(torch.empty(size - 1))
        fill(self.weight, self.node_bias)
        from nextword.layers.outputs.codes import balanced

        parent, right = balanced(size)
        self.register_buffer("parent", torch.from_numpy(parent))
        self.register_buffer("right", torch.from_numpy(right))
        self.arrange()

    def learn(self, ids: np.ndarray) -> None:
        if self.tree == "balanced":
            return
        from nextword.layers.outputs.codes import huffman

        parent, right = huffman(frequencies(ids, self.size) + 1)  # a word never seen has a leaf too
        self.parent.copy_(torch.from_numpy(parent))
        self.right.copy_(torch.from_numpy(right))

    def arrange(self) -> None:
        from nextword.layers.outputs.codes import depths, paths

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
            self.keep(name, values)
        self.level_sizes = sizes[1:].tolist()

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return ignoring(self._nll, h, targets)

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.nll(h, targets).sum()

    def _nll(self, h: Tensor, targets: Tensor) -> Tensor:
        not_recorded("tree", h.device)
        first, lengths = self.starts[targets], self.starts[targets + 1] - self.starts[targets]
        rows = torch.repeat_interleave(torch.arange(len(h), device=h.device), lengths)
        ends = lengths.cumsum(0)
        at = torch.arange(len(rows), device=h.device) + (first - (ends - lengths))[rows]  # along each path
        nodes = self.nodes[at]
        z = (F.embedding(nodes, self.weight) * h[rows]).sum(-1) + self.node_bias[nodes]
        turns = F.logsigmoid(self.signs[at] * z)  # in float32 at the least: so the signs are
        return -turns.new_zeros(len(h)).index_add(0, rows, turns)

    def log_probs(self, h: Tensor) -> Tensor:
        """Down the tree, level by level, all rows of h at once: (nodes of the level, N)."""
        z = F.linear(h, self.weight, self.node_bias)
        z = wide(z).t().contiguous()
        here = z.new_zeros(1, z.shape[1])
        levels = [here]
        sides = (self.above.split(self.level_sizes), self.turned_at.split(self.level_sizes))
        for above, node, side in zip(*sides, self.turned.split(self.level_sizes), strict=True):
            here = here[above] + F.logsigmoid(side * z[node])
            levels.append(here)
        return torch.cat(levels)[self.leaves].t()
