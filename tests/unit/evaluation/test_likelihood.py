"""Likelihood of a text: every token counts once, intervals contain the estimate, undefined metrics are None."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.batching.token_stream import Stream, prepare
from nextword.core.types import Vocabulary
from nextword.data.opening import open_corpus
from nextword.evaluation.likelihood import bootstrap, evaluate_stream
from nextword.lm.causal import CausalLM
from nextword.models.nplm import NPLM
from nextword.models.rnn import GRU
from nextword.tokenizers.training import train_tokenizer
from tests.support.small_job import BYTES

TEXT = "It was the best of times, it was the worst of times.\n" * 30


def model(tokenizer: Any, cls: Any = GRU, **config: Any) -> CausalLM:
    torch.manual_seed(0)
    network = cls(cls.Config(width=8, **config), Vocabulary(len(tokenizer), tokenizer.begin)).eval()
    return CausalLM(network, tokenizer)


def stream(folder: Path, tokenizer: Any, text: str) -> Stream:
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(text, encoding="utf-8")
    return prepare(open_corpus(str(folder)), "test", tokenizer)


def test_evaluate_stream_interval_contains_the_estimate(tmp_path: Path) -> None:
    tokenizer = train_tokenizer({"kind": "bpe", "size": 300}, [TEXT])
    lm = model(tokenizer)
    result = evaluate_stream(lm, stream(tmp_path / "text", tokenizer, TEXT))
    bits = result.score.bits_per_byte()
    assert bits is not None
    assert result.low is not None
    assert result.high is not None
    assert result.low < bits < result.high
    assert (result.score.bytes, result.score.words) == (len(TEXT), 12 * 30)
    full = lm.score(TEXT)
    assert result.score.tokens == full.tokens + 1  # the end of the document
    assert result.score.nats > full.nats
    (nats,) = lm.token_nats([np.append(tokenizer.encode(TEXT).ids, tokenizer.end)])
    assert result.score.nats == pytest.approx(nats.sum(), rel=1e-5)


@given(seed=st.integers(0, 1000), n=st.integers(1, 3000), spread=st.floats(0, 3))
@settings(max_examples=30, deadline=None)
def test_bootstrap_contains_the_estimate_for_any_text(seed: int, n: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    nats, sizes = rng.gamma(1 + spread, 1, n), rng.integers(1, 6, n)
    low, high = bootstrap(nats, sizes, total=int(sizes.sum()))
    assert low * (1 - 1e-9) <= nats.sum() / sizes.sum() / math.log(2) <= high * (1 + 1e-9)
    assert bootstrap(nats, sizes, total=int(sizes.sum())) == (low, high)  # deterministic


def test_bootstrap_narrows_with_more_text() -> None:
    rng = np.random.default_rng(0)
    widths = []
    for n in (400, 4_000, 40_000):
        low, high = bootstrap(rng.gamma(2, 1, n), np.ones(n), total=n)
        widths.append(high - low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_bootstrap_widens_with_correlated_neighbors() -> None:
    """Runs of equal values carry less information than shuffled ones; the block bootstrap widens accordingly."""
    rng = np.random.default_rng(0)
    runs = np.repeat(rng.gamma(2, 1, 100), 100)
    shuffled = rng.permutation(runs)
    widths = [high - low for low, high in (bootstrap(x, np.ones(10_000), total=10_000) for x in (runs, shuffled))]
    assert widths[0] > 3 * widths[1]


def test_evaluate_stream_uses_and_reports_context_and_stride(tmp_path: Path) -> None:
    lm, text = model(BYTES), stream(tmp_path / "text", BYTES, TEXT[:200])
    windowed = evaluate_stream(lm, text, context=10, stride=5)
    assert (windowed.score.context, windowed.score.stride, windowed.score.tokens) == (10, 5, 201)
    assert windowed.score.nats == pytest.approx(lm.windowed_nats(text.ids, 10, 5).sum())
    assert evaluate_stream(lm, text, context=10).score.stride == 5  # half the context by default
    full = evaluate_stream(lm, text)
    assert (full.score.context, full.score.stride) == (None, None)
    assert full.score.nats != pytest.approx(windowed.score.nats, rel=1e-6)


def test_evaluate_stream_reports_the_window_of_the_model(tmp_path: Path) -> None:
    lm, text = model(BYTES, NPLM, context=3, embedding=4), stream(tmp_path / "text", BYTES, TEXT[:200])
    full = evaluate_stream(lm, text)
    assert (full.score.context, full.score.stride) == (3, 1)
    explicit = evaluate_stream(lm, text, context=3, stride=1)  # the window of the model
    assert explicit.score.nats == pytest.approx(full.score.nats, rel=1e-5)


def test_evaluate_stream_of_a_lossy_tokenizer_has_no_bits_per_byte(tmp_path: Path) -> None:
    words = train_tokenizer({"kind": "words", "size": 8}, [TEXT])
    result = evaluate_stream(model(words), stream(tmp_path / "text", words, TEXT))
    assert result.score.bits_per_byte() is None
    assert (result.low, result.high) == (None, None)
    assert result.score.words == 12 * 30 + 30  # line ends are predicted, so they count
    assert result.score.tokens == 12 * 30 + 30
    values = result.as_dict()
    assert values["bits_per_byte"] is None
    assert values["word_perplexity"] == pytest.approx(values["token_perplexity"])
    assert any("<unk>" in note for note in values["notes"])
    assert any("no bits per byte" in note for note in values["notes"])
    assert any("each line end is predicted" in note for note in values["notes"])


def test_evaluate_stream_without_spaces_has_no_word_perplexity(tmp_path: Path) -> None:
    chinese = "那是最美好的时代，那是最糟糕的时代；那是智慧的年头，那是愚昧的年头。\n" * 10
    result = evaluate_stream(model(BYTES), stream(tmp_path / "text", BYTES, chinese)).as_dict()
    assert result["word_perplexity"] is None
    assert result["bits_per_byte"] > 0
    english = evaluate_stream(model(BYTES), stream(tmp_path / "english", BYTES, TEXT)).as_dict()
    assert english["word_perplexity"] > 1


def test_evaluate_stream_reports_progress_to_the_end(tmp_path: Path) -> None:
    lm, text = model(BYTES), stream(tmp_path / "text", BYTES, TEXT)
    for options in ({}, {"context": 64, "stride": 7}):
        updates: list[tuple[float, float | None]] = []
        evaluate_stream(
            lm, text, progress=lambda done, total, updates=updates: updates.append((done, total)), **options
        )
        assert updates[-1] == (len(text), len(text))
        assert updates == sorted(updates)
