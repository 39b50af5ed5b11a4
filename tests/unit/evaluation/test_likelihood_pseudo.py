"""Pseudo-likelihoods: every token is masked in turn, in texts, windows, streams, and samples."""

from __future__ import annotations

import numpy as np
import pytest

from nextword.batching.token_stream import Stream
from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.types import PSEUDO
from nextword.evaluation.likelihood import evaluate_stream
from nextword.generation.infilling import HIDDEN
from nextword.lm.completion import score_completions
from nextword.lm.masked import MaskedLM
from tests.support.masked_models import PAIRS, TEXTS, compute_token_nats, make_model


@pytest.fixture(params=PAIRS, ids=lambda pair: pair[0].__name__)
def lm(request: pytest.FixtureRequest) -> MaskedLM:
    return make_model(*request.param)


def test_score_hides_every_token_in_turn(lm: MaskedLM) -> None:
    for text, score in zip(TEXTS, lm.score_many(TEXTS), strict=True):
        ids = lm.tokenizer.encode(text).ids
        assert score.nats == pytest.approx(sum(compute_token_nats(lm, ids, t) for t in range(len(ids))), rel=1e-4)
        assert (score.tokens, score.words, score.bytes) == (len(ids), len(text.split()), len(text))
        assert (score.kind, score.context, score.stride) == (PSEUDO, lm.room, 1)


def test_score_reads_the_given_text_without_hiding_it(lm: MaskedLM) -> None:
    ids = lm.tokenizer.encode("the cat sat").ids
    score = lm.score(" sat", given="the cat")
    first = len(lm.tokenizer.encode("the cat").ids)
    assert score.tokens == len(ids) - first
    assert score.nats == pytest.approx(sum(compute_token_nats(lm, ids, t) for t in range(first, len(ids))), rel=1e-4)


@pytest.mark.parametrize(("context", "stride"), [(5, 1), (5, 3), (8, 8), (4, 2)])
def test_windows_have_the_hidden_token_near_the_middle(context: int, stride: int) -> None:
    lm = make_model()
    ids = np.concatenate([lm.tokenizer.encode(text).ids for text in TEXTS])
    nats = lm.windowed_nats(ids, context, stride)
    for t in range(len(ids)):
        begin = (t - (context - stride) // 2) // stride * stride
        begin = min(max(begin, 0), len(ids) - context)
        assert begin <= t < begin + context
        assert nats[t] == pytest.approx(compute_token_nats(lm, ids[begin : begin + context], t - begin), rel=1e-4)


def test_stream_nats_separates_documents_and_skips_their_ends(lm: MaskedLM) -> None:
    texts = [lm.tokenizer.encode(text).ids for text in TEXTS]
    end = lm.tokenizer.end
    ids = np.concatenate([[*text, end] for text in texts]).astype(np.uint16)
    nats = lm.stream_nats(ids)
    assert (nats[ids == end] == 0).all()
    np.testing.assert_allclose(nats[ids != end], np.concatenate(lm.token_nats(texts)), rtol=1e-4)


def test_window_size_is_limited_by_the_training_length() -> None:
    assert make_model(window=24).room == 22
    assert make_model(window=24, longest=12).room == 10
    assert make_model(window=24, longest=99).room == 22
    with pytest.raises(NextwordError):
        make_model(window=5)


def test_evaluate_stream_of_a_masked_model_scores_a_sample(lm: MaskedLM) -> None:
    ids = np.concatenate([[*lm.tokenizer.encode(text).ids, lm.tokenizer.end] for text in TEXTS * 10])
    stream = Stream.from_ids(ids, bytes=900, words=180)
    full = evaluate_stream(lm, stream, limit=10_000)
    num_tokens = int((ids != lm.tokenizer.end).sum())
    assert (full.score.kind, full.score.tokens, full.score.words, full.score.bytes) == (PSEUDO, num_tokens, 180, 900)
    assert full.score.nats == pytest.approx(lm.stream_nats(ids).sum(), rel=1e-4)
    part = evaluate_stream(lm, stream, limit=num_tokens // 4).as_dict()
    assert part["tokens"] == part["sample"] == num_tokens // 4
    assert part["of"] == num_tokens
    assert part["words"] == round(180 * (num_tokens // 4) / num_tokens)
    assert any(f"sample of {num_tokens // 4}" in note for note in part["notes"])
    assert any("pseudo" in note for note in part["notes"])
    costs = np.concatenate(lm.token_nats([lm.tokenizer.encode(text).ids for text in TEXTS]))
    assert costs.min() < part["nats"] / part["tokens"] < costs.max()
    with pytest.raises(InvalidSetting, match="22") as error:
        evaluate_stream(lm, stream, context=23)
    assert (error.value.key, error.value.value) == ("context", 23)


def test_hide_in_stream_counts_correct_predictions() -> None:
    lm = make_model()
    ids = np.concatenate([lm.tokenizer.encode(text).ids for text in TEXTS])
    result = lm.hide_in_stream(ids, np.arange(len(ids)))
    for t in (0, 3, len(ids) - 1):
        context = np.where(np.arange(len(ids)) == t, HIDDEN, ids)
        window = context if len(ids) <= lm.room else context[max(0, min(t - 10, len(ids) - 22)) :][:22]
        assert result.right[t] == (int(lm._hidden_log_probs(window[None])[0, 0].argmax()) == ids[t])


def test_score_completions_needs_likelihoods() -> None:
    with pytest.raises(Unsupported):
        score_completions(make_model(), [" sat"], ["the cat"])
