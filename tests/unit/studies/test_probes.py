"""Words in pieces, and probes that find what is planted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword.core.types import Inputs, Vocabulary
from nextword.data.opening import open_corpus
from nextword.studies import _probes
from nextword.studies._probes import LabeledPieces, ProbeTask, cut_windows, fit_probe, layer_groups, probe_layers
from nextword.studies._transformers import encode_corpus


def test_windows_hold_whole_words_or_center_the_wanted_one() -> None:
    words = np.array([0, 0, 1, 2, 2, 2, 3, 4, 4, 5])
    assert cut_windows(words, range(6), 10) == [slice(0, 10)]
    assert cut_windows(words, range(6), 4) == [slice(0, 3), slice(3, 7), slice(7, 10)]
    expected = [slice(0, 2), slice(2, 3), slice(3, 5), slice(6, 7), slice(7, 9), slice(9, 10)]
    assert cut_windows(words, range(6), 2) == expected
    assert cut_windows(words, [3], 4) == [slice(4, 8)]
    assert (cut_windows(words, [0], 4), cut_windows(words, [5], 4)) == ([slice(0, 4)], [slice(6, 10)])
    assert cut_windows(words, [9], 4) == [slice(0, 4)]  # a word without pieces


def test_words_become_pieces_with_their_labels() -> None:
    tokenizer = encode_corpus(open_corpus("python"), 400)[1]
    labeled = [(["The", "statement", "Zzyzx"], ["a", None, "b"]), (["statement"], ["c"])]
    pieces = _probes.encode_labeled(labeled, {"a": 0, "b": 1}, tokenizer, 64)
    encoding = tokenizer.encode("The statement Zzyzx")
    assert pieces.labels.tolist() == [0, 1, -1]  # "c" is not in the training labels
    assert pieces.units.tolist() == [0, 0, 1]
    assert pieces.windows[0].tolist() == encoding.ids.tolist()
    expected = [{0: 0, 1: -1, 2: 1}[int(word)] for word in encoding.words]
    assert pieces.words[0].tolist() == expected
    assert expected.count(1) > 1  # several pieces


def test_long_sentences_are_cut_into_windows() -> None:
    tokenizer = encode_corpus(open_corpus("python"), 400)[1]
    pieces = _probes.encode_labeled([(["statement"] * 30, ["a"] * 30)], {"a": 0}, tokenizer, 16)
    assert len(pieces.windows) > 1
    assert pieces.labels.tolist() == [0] * 30
    assert sorted({int(word) for window in pieces.words for word in window}) == list(range(30))


class Layers:
    """Layer 0 is noise, layer 1 the one-hot token, layer 2 that of the token before it."""

    widths = (8, 8, 8)
    vocabulary = Vocabulary(8, 0)
    device = torch.device("cpu")
    is_bidirectional = False

    def __init__(self) -> None:
        self.noise = torch.Generator().manual_seed(0)

    def encode(self, inputs: Inputs) -> tuple[list[Tensor], None]:
        assert inputs.token_mask is not None
        h = torch.nn.functional.one_hot(inputs.ids, 8).float()
        return [torch.randn(h.shape, generator=self.noise), h, torch.roll(h, 1, 1)], None


def make_pieces(n: int, seed: int, label_is_previous: bool = False) -> LabeledPieces:
    """Random rows of 3 to 7 tokens; each token but the first is labeled by itself or by the previous one."""
    draw = np.random.default_rng(seed)
    windows = [draw.integers(1, 8, draw.integers(3, 8)) for _ in range(n)]
    labels = np.concatenate([w[:-1] if label_is_previous else w[1:] for w in windows])
    ends = np.cumsum([len(w) - 1 for w in windows])
    words = [np.concatenate([[-1], np.arange(e - len(w) + 1, e)]) for w, e in zip(windows, ends, strict=True)]
    return LabeledPieces(windows, words, labels, np.repeat(np.arange(n), [len(w) - 1 for w in windows]))


@pytest.mark.parametrize("label_is_previous", [False, True])
def test_probe_finds_the_layer_with_the_label(label_is_previous: bool) -> None:
    parts = [make_pieces(n, seed, label_is_previous) for seed, n in enumerate((150, 40, 40))]
    hits = probe_layers(Layers(), ProbeTask("task", "", 8, *parts))
    accuracy = hits.test.mean(1)
    right, wrong = (2, 1) if label_is_previous else (1, 2)
    assert accuracy[right] == 1
    for layer in (0, wrong):
        assert accuracy[layer] == pytest.approx(1 / 7, abs=0.1)
    assert hits.valid.shape == (3, len(parts[1]))


def test_word_vector_is_the_mean_of_its_pieces() -> None:
    windows, words = [np.array([3, 4, 5]), np.array([6])], [np.array([0, 1, 1]), np.array([2])]
    rows: list[int] = []
    pieces = LabeledPieces(windows, words, np.zeros(3), np.zeros(3))
    (vectors,) = _probes.word_vectors(Layers(), pieces, [1], rows.append)
    expected = torch.nn.functional.one_hot(torch.tensor([3, 4, 6]), 8).float()
    expected[1, 4] = expected[1, 5] = 0.5
    assert torch.equal(vectors, expected)
    assert rows == [2]


def test_layers_that_do_not_fit_into_memory_are_read_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ProbeTask("task", "", 8, *(make_pieces(30, seed) for seed in range(3)))
    words = len(task.train) + len(task.valid) + len(task.test)
    assert layer_groups(Layers(), task) == [[0, 1, 2]]
    together = probe_layers(Layers(), task)
    monkeypatch.setattr(_probes, "MEMORY", 2 * 8 * 4 * words)
    assert layer_groups(Layers(), task) == [[0, 1], [2]]
    monkeypatch.setattr(_probes, "MEMORY", 1)
    assert layer_groups(Layers(), task) == [[0], [1], [2]]
    separate = probe_layers(Layers(), task)
    assert (separate.test[1:] == together.test[1:]).all()  # layer 0 is new noise each time


def test_ridge_limits_a_probe() -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 40)
    y = (torch.arange(60) % 3 == 0).long()
    assert torch.equal(fit_probe(x, y, 2, 1e-5)(x), y)
    assert not fit_probe(x, y, 2, 1e4)(x).any()
