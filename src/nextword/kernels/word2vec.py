"""SGD steps that change a few rows of two tables: one window of words, or one pair of words, at a time.

Reference: `Word2Vec.scores` and `GloVe.scores` with autograd (tests/parity/test_word_vectors.py). Selected in `learn`
of models/word2vec.py and glove.py.

A batch of gradients would be worse, not only slower: a common word is in hundreds of windows of a batch, and all of
them would push it from where it was before. Here each window sees what the previous one did.

    skip-gram     each word x around a position, against its word and the noise y:  x · y, the sigmoid, both rows move
    CBOW          the same with the mean of the surrounding words for x
    GloVe         one cell of the co-occurrence table, with AdaGrad

A window is one step: all its products are computed before any x moves. Rows of noise move one after the other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nextword.core.jit import OPTIONS, numba_jit

EVERY = 16  # the loss is computed for one window in so many: a logarithm takes longer than the step

jit_reordering: Any = numba_jit(
    **OPTIONS, fastmath={"reassoc", "contract", "nsz"}
)  # sums in any order, but always the same one


@jit_reordering
def train_windows(words, contexts, around, targets, rate, mean, cost):
    """One SGD step per window; `cost` gets nats and predictions of every 16th window, and the predictions of all.

    words, contexts (V, D): the two tables. around (N, C): ids around each position, then −1. targets (N, 1 + K): its
    word, then the noise; below 0: none.
    """
    width, most = words.shape[1], around.shape[1]
    x, moved = np.empty((most, width), np.float32), np.empty((most, width), np.float32)
    y, pull = np.empty(width, np.float32), np.empty(most, np.float32)
    for n in range(len(targets)):
        found = 0
        while found < most and around[n, found] >= 0:
            found += 1
        if not found:
            continue
        rows = 1 if mean else found
        share = np.float32(1.0 / found if mean else 1.0)
        cost[2] += rows
        x[:rows] = 0
        moved[:rows] = 0
        for c in range(found):
            row, id = (
                0 if mean else c,
                np.uintp(around[n, c]),
            )  # unsigned, so that Numba skips the check for negative indices
            for d in range(width):
                x[row, d] += share * words[id, d]
        for t in range(targets.shape[1]):
            if targets[n, t] < 0:
                continue
            id = np.uintp(targets[n, t])
            for d in range(width):
                y[d] = contexts[id, d]
            for c in range(rows):
                dot = np.float32(0.0)
                for d in range(width):
                    dot += x[c, d] * y[d]
                right = np.float32(1.0 if t == 0 else 0.0)
                pull[c] = rate * (right - np.float32(1.0) / (np.float32(1.0) + math.exp(-dot)))
                if n % EVERY == 0:
                    cost[0] += math.log1p(math.exp(-abs(dot))) + max(-dot if t == 0 else dot, np.float32(0.0))
                    cost[1] += 1 if t == 0 else 0
                for d in range(width):
                    moved[c, d] += pull[c] * y[d]
            for c in range(rows):
                for d in range(width):
                    y[d] += pull[c] * x[c, d]
            for d in range(width):
                contexts[id, d] = y[d]
        for c in range(found):
            row, id = 0 if mean else c, np.uintp(around[n, c])
            for d in range(width):
                words[id, d] += share * moved[row, d]


@jit_reordering
def train_cells(words, contexts, biases, others, sums, cells, wanted, rate, eps):
    """AdaGrad over cells (N, 2), with log X and f(X) in `wanted` (N, 2); returns the summed loss.

    words, contexts (V, D); biases, others (V, 1); sums: of squared gradients, for each of these four.
    """
    of_words, of_contexts, of_biases, of_others = sums
    width, total = words.shape[1], 0.0
    for n in range(len(cells)):
        i, j = np.uintp(cells[n, 0]), np.uintp(cells[n, 1])
        dot = np.float32(0.0)
        for d in range(width):
            dot += words[i, d] * contexts[j, d]
        off = dot + biases[i, 0] + others[j, 0] - wanted[n, 0]
        pull = wanted[n, 1] * off
        total += 0.5 * pull * off
        for d in range(width):
            a, b = pull * contexts[j, d], pull * words[i, d]
            of_words[i, d] += a * a
            of_contexts[j, d] += b * b
            words[i, d] -= rate * a / (np.sqrt(of_words[i, d]) + eps)
            contexts[j, d] -= rate * b / (np.sqrt(of_contexts[j, d]) + eps)
        of_biases[i, 0] += pull * pull
        of_others[j, 0] += pull * pull
        biases[i, 0] -= rate * pull / (np.sqrt(of_biases[i, 0]) + eps)
        others[j, 0] -= rate * pull / (np.sqrt(of_others[j, 0]) + eps)
    return total
