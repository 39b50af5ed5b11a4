"""Counting conventions: four perplexities of a text, with and without <eos> and <unk>."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.token_stream import Stream
from nextword.core.types import Vocabulary
from nextword.evaluation.likelihood import bootstrap, count_conventions, counting_notes, evaluate_stream
from nextword.lm.causal import CausalLM
from nextword.models.rnn import GRU
from nextword.tokenizers.training import train_tokenizer
from nextword.tokenizers.words import Words
from tests.support.small_job import BYTES

WORDS = Words(["the", "cat"])  # <unk> 0, <eos> 1, the 2, cat 3
BIT = math.log(2)


def bits(*costs: float) -> np.ndarray:
    return np.array(costs) * BIT


def rows(tokenizer: Any, ids: list[int], nats: np.ndarray) -> list[tuple[str, int, float | None]]:
    conventions = count_conventions(tokenizer, np.array(ids, np.uint8), nats)
    return [(row.name, row.tokens, row.perplexity()) for row in conventions]


def test_count_conventions_counts_in_four_ways() -> None:
    """the cat <eos> the <unk> <eos>, at 1, 2, 3, 4, 8, and 6 bits: 24/6, 15/4, 16/5, and 7/3 bits per token."""
    ids, nats = [2, 3, 1, 2, 0, 1], bits(1, 2, 3, 4, 8, 6)
    assert rows(WORDS, ids, nats) == [
        ("with <eos>, with <unk>", 6, pytest.approx(2**4)),
        ("without <eos>, with <unk>", 4, pytest.approx(2 ** (15 / 4))),
        ("with <eos>, without <unk>", 5, pytest.approx(2 ** (16 / 5))),
        ("without <eos>, without <unk>", 3, pytest.approx(2 ** (7 / 3))),
    ]
    conventions = count_conventions(WORDS, np.array(ids), nats)
    assert [(row.line_ends, row.unknown) for row in conventions] == [
        (True, True),
        (False, True),
        (True, False),
        (False, False),
    ]
    assert conventions[1].as_dict() == {
        "name": "without <eos>, with <unk>",
        "line_ends": False,
        "unknown": True,
        "tokens": 4,
        "nats": pytest.approx(15 * BIT),
        "impossible": 0,
        "perplexity": pytest.approx(2 ** (15 / 4)),
    }


def test_count_conventions_lists_only_differing_rows() -> None:
    assert rows(WORDS, [2, 3, 1], bits(1, 2, 6)) == [
        ("with <eos>", 3, pytest.approx(2**3)),
        ("without <eos>", 2, pytest.approx(2**1.5)),
    ]
    assert rows(WORDS, [2, 0], bits(1, 5)) == [
        ("with <unk>", 2, pytest.approx(2**3)),
        ("without <unk>", 1, pytest.approx(2)),
    ]
    assert rows(WORDS, [2, 3], bits(1, 2)) == []


def test_count_conventions_omits_empty_counts() -> None:
    assert rows(WORDS, [0, 0], bits(1, 2)) == []
    assert [name for name, *_ in rows(WORDS, [0, 1], bits(1, 2))] == [
        "with <eos>, with <unk>",
        "without <eos>, with <unk>",
        "with <eos>, without <unk>",
    ]


def test_count_conventions_ignores_document_ends() -> None:
    words = Words(["the", "cat"], lines=False)
    assert [name for name, *_ in rows(words, [2, 0, 1], bits(1, 2, 3))] == ["with <unk>", "without <unk>"]


def test_count_conventions_of_a_lossless_tokenizer_is_empty() -> None:
    assert count_conventions(BYTES, np.array([97, BYTES.begin]), bits(1, 2)) == ()


def test_count_conventions_of_subwords_has_unknown() -> None:
    pieces = train_tokenizer({"kind": "wordpiece", "size": 60}, ["the cat sat on the mat"])
    ids = pieces.encode("the cat 文 sat").ids
    conventions = count_conventions(pieces, ids, np.ones(len(ids)))
    assert [row.name for row in conventions] == ["with [UNK]", "without [UNK]"]
    assert conventions[1].tokens == len(ids) - 1
    assert any("scored as [UNK]" in note for note in counting_notes(pieces, ids, np.ones(len(ids))))


def test_counting_notes_count_impossible_tokens() -> None:
    """Without unknown words an impossible <unk> is not counted, so half of the perplexities are finite."""
    nats = bits(1, 2, 3, 4, math.inf, 6)
    ids = [2, 3, 1, 2, 0, 1]
    assert [perplexity for *_, perplexity in rows(WORDS, ids, nats)] == [
        math.inf,
        math.inf,
        pytest.approx(2 ** (16 / 5)),
        pytest.approx(2 ** (7 / 3)),
    ]
    assert [row.impossible for row in count_conventions(WORDS, np.array(ids), nats)] == [1, 1, 0, 0]
    *_, note = counting_notes(WORDS, np.array(ids), nats)
    assert note == "1 token has probability 0; without it, token perplexity is 9.19"  # 2 ** (16 / 5)
    *_, note = counting_notes(WORDS, np.array([2, 3, 2]), np.array([math.inf, BIT, math.inf]))
    assert note == "2 tokens have probability 0; without them, token perplexity is 2.00"
    *_, note = counting_notes(WORDS, np.array([2]), np.array([math.inf]))
    assert note == "1 token has probability 0"
    assert not any("probability 0" in note for note in counting_notes(WORDS, np.array(ids), np.ones(6)))


def test_evaluate_stream_reports_conventions() -> None:
    torch.manual_seed(0)
    lm = CausalLM(GRU(GRU.Config(width=4), Vocabulary(len(WORDS), WORDS.begin)).eval(), WORDS)
    ids = [2, 3, 1, 2, 0, 1]
    result = evaluate_stream(lm, Stream.from_ids(ids, words=4, lines=2)).as_dict()
    assert [row["tokens"] for row in result["conventions"]] == [6, 4, 5, 3]
    assert result["conventions"][0]["perplexity"] == result["token_perplexity"] == result["word_perplexity"]
    nats = lm.stream_nats(np.array(ids))
    assert result["conventions"][3]["nats"] == pytest.approx(nats[[0, 1, 3]].sum())
    assert result["impossible"] == 0


class FixedCosts:
    """A model with given costs."""

    network = SimpleNamespace(output_size=len(BYTES), backward_model=lambda: None)

    kind, context, stride, tokenizer = "exact", None, None, BYTES

    def __init__(self, nats: np.ndarray) -> None:
        self.nats = nats

    def stream_nats(self, ids: np.ndarray, progress: Any = None) -> np.ndarray:
        return self.nats


def test_evaluate_stream_with_an_impossible_byte_is_infinite() -> None:
    nats = np.full(500, BIT)
    nats[7] = math.inf
    result = evaluate_stream(FixedCosts(nats), Stream.from_ids(np.full(500, 97), words=100))
    assert (result.score.bits_per_byte(), result.impossible) == (math.inf, 1)
    assert (result.low, result.high) == (math.inf, math.inf)
    assert result.conventions == ()
    assert result.notes[-1].endswith("without it, token perplexity is 2.00")


@pytest.mark.parametrize("impossible", [1, 2, 50, 400])
def test_bootstrap_of_an_infinite_cost_is_infinite(impossible: int) -> None:
    """A RuntimeWarning fails the test: inf − inf must not be computed."""
    nats = np.full(400, BIT)
    nats[:: 400 // impossible] = math.inf
    assert bootstrap(nats, np.ones(400), total=400) == (math.inf, math.inf)


def test_count_conventions_of_penn_treebank(shared: Path) -> None:
    """Published perplexities count 82,430 tokens, including 3,761 line ends and 4,794 unknown words."""
    train, test = ((shared / "ptb" / f"ptb.{split}.txt").read_text(encoding="utf-8") for split in ("train", "test"))
    words = train_tokenizer({"kind": "words"}, [train])
    ids = words.encode(test).ids
    conventions = count_conventions(words, ids, np.ones(len(ids)))
    assert [row.tokens for row in conventions] == [82_430, 82_430 - 3_761, 82_430 - 4_794, 82_430 - 3_761 - 4_794]
