"""Word vectors from characters: spellings, the network compared with its formula, and a table that is never stale."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from nextword.core.errors import DataError, InvalidSetting, UnknownName
from nextword.core.types import Vocabulary
from nextword.layers.char_cnn import (
    BEGIN,
    END,
    OTHERS,
    PADDING,
    CharacterCNN,
    CharacterEmbedding,
    make_embedding,
    spell_vocabulary,
)
from nextword.layers.output import make_readout
from nextword.layers.output.char import CharSoftmax
from tests.support.errors import raises

PIECES = [b"", b"\n", b" a", b" cat", b" \xc3\xa9t\xc3\xa9"]
WORDS = Vocabulary(5, 1, {"<unk>": 0, "<eos>": 1}, pieces=PIECES)
SMALL = {"filters": [[1, 3], [2, 4]], "character_width": 5, "highway": 1}


def test_spell_vocabulary_adds_begin_and_end_characters() -> None:
    result = spell_vocabulary(WORDS, 50, 2)
    assert result.tolist() == [
        [BEGIN, OTHERS, END, *[PADDING] * 7],  # each special token has a character of its own
        [BEGIN, OTHERS + 1, END, *[PADDING] * 7],
        [BEGIN, 32, 97, END, *[PADDING] * 6],
        [BEGIN, 32, 99, 97, 116, END, *[PADDING] * 4],
        [BEGIN, 32, 0xC3, 0xA9, 116, 0xC3, 0xA9, END, *[PADDING] * 2],  # padding for the widest filter
    ]
    assert spell_vocabulary(WORDS, 4, 2)[3].tolist() == [BEGIN, 32, 99, END]  # the start of a long word
    assert spell_vocabulary(WORDS, 14, 12).shape == (5, 14)
    with pytest.raises(DataError):
        spell_vocabulary(Vocabulary(5, 1), 50, 2)


def test_char_cnn_equals_formula() -> None:
    cnn = CharacterCNN(6, WORDS, **SMALL)  # type: ignore[arg-type]
    letters = cnn.characters(cnn.spellings.long())  # (V, L, 5)
    features = []
    for layer in cnn.filters:
        size = layer.weight.shape[-1]  # type: ignore[union-attr]
        windows = letters.unfold(1, size, 1)  # (V, positions, 5, size)
        z = torch.einsum("vpcs,fcs->vpf", windows, layer.weight) + layer.bias  # type: ignore[arg-type]
        features.append(F.relu(z).amax(1))
    x = torch.cat(features, -1)
    z = F.linear(x, cnn.highway[0].weight, cnn.highway[0].bias)  # type: ignore[arg-type]
    gate = torch.sigmoid(z[:, 7:])
    x = gate * F.relu(z[:, :7]) + (1 - gate) * x
    torch.testing.assert_close(cnn(torch.arange(5)), cnn.projection(x))


def test_char_cnn_of_a_word_is_independent_of_other_words() -> None:
    cnn = CharacterCNN(6, WORDS, **SMALL)  # type: ignore[arg-type]
    torch.testing.assert_close(cnn(torch.tensor([2])), cnn.table()[[2]])
    embedding = CharacterEmbedding(6, WORDS, **SMALL)
    ids = torch.tensor([[3, 1, 3], [0, 2, 3]])
    learning = embedding(ids)
    with torch.no_grad():
        torch.testing.assert_close(embedding(ids), learning)
    assert learning.shape == (2, 3, 6)
    assert not torch.equal(learning[0, 0], learning[0, 1])


@pytest.fixture
def computed_words(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record how many word vectors each call computes."""
    calls: list[int] = []
    forward = CharacterCNN.forward
    monkeypatch.setattr(CharacterCNN, "forward", lambda self, ids: calls.append(len(ids)) or forward(self, ids))
    return calls


@torch.no_grad()
def test_char_softmax_computes_its_table_once_in_evaluation(computed_words: list[int]) -> None:
    layer = CharSoftmax(6, WORDS, **SMALL, correction=2).eval()  # type: ignore[arg-type]
    h, targets = torch.randn(3, 6), torch.tensor([0, 1, 2])
    for _ in range(3):
        layer.nll(h, targets)
        layer.log_probs(h)
    with torch.inference_mode():
        layer.log_probs(h)
    assert sum(computed_words) == 5


@pytest.mark.parametrize("way", ["step", "load", "swap", "copy", "mode"])
def test_char_softmax_recomputes_its_table_when_weights_change(way: str) -> None:
    layer = CharSoftmax(6, WORDS, **SMALL).eval()  # type: ignore[arg-type]
    other = CharSoftmax(6, WORDS, **SMALL).eval()  # type: ignore[arg-type]
    h = torch.randn(3, 6)
    with torch.no_grad():
        before = layer.log_probs(h)
    if way == "step":
        optimizer = torch.optim.SGD(layer.parameters(), 1.0)
        layer.total(h, torch.tensor([1, 2, 3])).backward()
        optimizer.step()
    elif way == "load":
        layer.load_state_dict(other.state_dict())
    elif way == "swap":
        for mine, its in zip(layer.parameters(), other.parameters(), strict=True):
            mine.data = its.data
    elif way == "copy":
        layer = copy.deepcopy(layer)
        with torch.no_grad():
            layer.vectors.projection.weight.mul_(2)  # type: ignore[union-attr, operator]
    else:
        layer.vectors.projection.weight.data.mul_(2)  # type: ignore[union-attr, operator]  # leaves no trace
        layer.train().eval()
    with torch.no_grad():
        after = layer.log_probs(h)
    assert not torch.equal(after, before)
    with torch.enable_grad():  # with gradients the table is always recomputed
        torch.testing.assert_close(after, layer.log_probs(h))


def test_sampled_char_softmax_computes_only_needed_words(computed_words: list[int]) -> None:
    words = Vocabulary(500, 0, {}, pieces=[b" " + str(i).encode() for i in range(500)])
    layer = make_readout(6, words, {"kind": "spelled", "samples": 10, **SMALL})
    layer.total(torch.randn(3, 6), torch.tensor([1, 2, 3])).backward()
    assert len(computed_words) == 1
    assert computed_words[0] <= 13


def test_char_cnn_with_invalid_setting_raises() -> None:
    with raises(UnknownName, name="filter"):
        make_embedding(6, WORDS, {"filter": 3})
    with raises(InvalidSetting, key="characters.filters"):
        make_embedding(6, WORDS, {"filters": [[1]]})
    with raises(InvalidSetting, key="characters.max_word_length"):
        make_embedding(6, WORDS, {"filters": [[9, 1]], "max_word_length": 8})
    with raises(InvalidSetting, key="model.characters"):
        make_embedding(6, WORDS, {"filters": 3})
    assert isinstance(make_embedding(6, WORDS, {}), torch.nn.Embedding)
