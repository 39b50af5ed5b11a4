"""Likelihood scores that can be checked by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.token_stream import Stream
from nextword.core.errors import InvalidSetting
from nextword.core.types import PSEUDO, Score, Vocabulary
from nextword.evaluation.likelihood import bootstrap, bytes_per_id, evaluate_stream, token_surprisal
from nextword.lm.causal import CausalLM
from nextword.models.rnn import RNN
from tests.support.small_job import BYTES


def uniform_model(size: int = 256) -> CausalLM:
    """A network with all weights zero, which gives the first `size` tokens equal probability."""
    network = RNN(RNN.Config(width=2), Vocabulary(len(BYTES), BYTES.begin)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.readout.bias[size:] = -1e4  # type: ignore[index]
    return CausalLM(network, BYTES)


def test_score_of_uniform_byte_model_is_eight_bits_per_byte() -> None:
    score = uniform_model().score("any text: ä, 文")
    assert score.bytes == score.tokens == len("any text: ä, 文".encode())
    assert score.bits_per_byte() == pytest.approx(8, rel=1e-6)
    assert score.token_perplexity() == pytest.approx(256, rel=1e-6)
    assert score.words == 4
    assert score.word_perplexity() == pytest.approx(256 ** (score.bytes / 4), rel=1e-4)


def test_token_surprisal_of_uniform_byte_model_is_eight_bits() -> None:
    """The two bytes of ä are one character, which costs both; the three of 文 likewise."""
    surprisals = token_surprisal(uniform_model(), "aä文")
    assert [text for text, _ in surprisals] == ["a", "ä", "文"]
    assert [bits for _, bits in surprisals] == pytest.approx([8, 16, 24], rel=1e-6)


def test_evaluate_stream_of_uniform_model_has_zero_width_interval() -> None:
    ids = BYTES.encode("the cat sat on the mat\n" * 40).ids
    evaluation = evaluate_stream(uniform_model(), Stream.from_ids(ids, bytes=len(ids), words=240, lines=40))
    result = evaluation.as_dict()
    assert result["bits_per_byte"] == pytest.approx(8, rel=1e-6)
    assert (result["bits_per_byte_low"], result["bits_per_byte_high"]) == pytest.approx((8, 8), rel=1e-6)
    assert result["word_perplexity"] == pytest.approx(256 ** (23 / 6), rel=1e-4)
    assert (result["context"], result["stride"], result["kind"]) == (None, None, "exact")


def test_score_addition_sums_nats_and_counts() -> None:
    """Half a bit per byte over 8 bytes, and two bits per byte over 2: 8 bits over 10 bytes, not the mean of means."""
    bit = math.log(2)
    a, b = Score(4 * bit, tokens=4, words=2, bytes=8), Score(4 * bit, tokens=1, words=1, bytes=2)
    both = a + b
    assert (both.nats, both.tokens, both.words, both.bytes) == (8 * bit, 5, 3, 10)
    assert both.bits_per_byte() == pytest.approx(0.8)
    assert both.token_perplexity() == pytest.approx(2 ** (8 / 5))
    assert both.word_perplexity() == pytest.approx(2 ** (8 / 3))
    assert a + b == b + a


def test_score_addition_of_different_kinds_raises() -> None:
    for other in (Score(1, 1, 1, 1, kind=PSEUDO), Score(1, 1, 1, 1, lossless=False)):
        with pytest.raises(InvalidSetting):
            Score(1, 1, 1, 1) + other


def test_undefined_score_metrics_are_none() -> None:
    assert Score(1.0, 1, 1, 4, lossless=False).bits_per_byte() is None
    nothing = Score(0.0, 0, 0, 0)
    assert (nothing.bits_per_byte(), nothing.word_perplexity(), nothing.token_perplexity()) == (None, None, None)
    assert Score(1e6, 1, 1, 1).token_perplexity() == math.inf


def test_bootstrap_of_constant_data_has_zero_width() -> None:
    nats = np.full(400, math.log(4))
    assert bootstrap(nats, np.ones(400), total=400) == pytest.approx((2, 2))
    assert bootstrap(nats, np.full(400, 2), total=800) == pytest.approx((1, 1))


def test_bootstrap_of_two_block_types_equals_normal_interval() -> None:
    """Half the blocks cost 1 bit, half 3: the mean of n draws is 2 ± 1.96/√n."""
    nats = np.repeat([1.0, 3.0], 2000) * math.log(2)
    low, high = bootstrap(nats, np.ones(4000), total=4000, draws=4000)
    width = 1.96 / math.sqrt(200)
    assert (low, high) == pytest.approx((2 - width, 2 + width), abs=0.03)


def test_bytes_per_id_is_one_for_bytes_and_zero_for_special_tokens() -> None:
    lengths = bytes_per_id(BYTES)
    assert lengths[:256].tolist() == [1] * 256
    assert lengths[list(BYTES.special.values())].sum() == 0


def test_evaluate_stream_counts_end_of_document_tokens(tmp_path: Path) -> None:
    """Two documents, abc and de, are seven tokens: five bytes and two ends."""
    from nextword.batching.token_stream import prepare
    from nextword.data.opening import open_corpus

    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.jsonl").write_text('{"text": "abc"}\n{"text": "de"}\n')
    stream: Any = prepare(open_corpus(str(tmp_path)), "test", BYTES)
    evaluation = evaluate_stream(uniform_model(len(BYTES)), stream)
    assert (evaluation.score.tokens, evaluation.score.bytes) == (7, 5)
    assert evaluation.score.nats == pytest.approx(7 * math.log(len(BYTES)), rel=1e-6)
    assert evaluation.score.bits_per_byte() == pytest.approx(7 / 5 * math.log2(len(BYTES)), rel=1e-6)
    assert len(evaluation.notes) == 1
