"""Pseudo-likelihoods: every token hidden in turn, alone, in windows, in streams, and of a sample."""

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
    whole = lm.tokenizer.encode("the cat sat").ids
    score = lm.score(" sat", given="the cat")
    first = len(lm.tokenizer.encode("the cat").ids)
    assert score.tokens == len(whole) - first
    assert score.nats == pytest.approx(
        sum(compute_token_nats(lm, whole, t) for t in range(first, len(whole))), rel=1e-4
    )


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
    ids = np.concatenate([[*one, end] for one in texts]).astype(np.uint16)
    nats = lm.stream_nats(ids)
    assert (nats[ids == end] == 0).all()
    np.testing.assert_allclose(nats[ids != end], np.concatenate(lm.token_nats(texts)), rtol=1e-4)


def test_windows_are_at_most_as_long_as_in_training() -> None:
    assert make_model(window=24).room == 22
    assert make_model(window=24, longest=12).room == 10
    assert make_model(window=24, longest=99).room == 22
    with pytest.raises(NextwordError):
        make_model(window=5)


def test_evaluate_stream_of_a_masked_model_scores_a_sample(lm: MaskedLM) -> None:
    ids = np.concatenate([[*lm.tokenizer.encode(text).ids, lm.tokenizer.end] for text in TEXTS * 10])
    stream = Stream.from_ids(ids, bytes=900, words=180)
    whole = evaluate_stream(lm, stream, limit=10_000)
    there = int((ids != lm.tokenizer.end).sum())
    assert (whole.score.kind, whole.score.tokens, whole.score.words, whole.score.bytes) == (PSEUDO, there, 180, 900)
    assert whole.score.nats == pytest.approx(lm.stream_nats(ids).sum(), rel=1e-4)
    part = evaluate_stream(lm, stream, limit=there // 4).as_dict()
    assert part["tokens"] == part["sample"] == there // 4
    assert part["of"] == there
    assert part["words"] == round(180 * (there // 4) / there)
    assert any(f"sample of {there // 4}" in note for note in part["notes"])
    assert any("pseudo" in note for note in part["notes"])
    costs = np.concatenate(lm.token_nats([lm.tokenizer.encode(text).ids for text in TEXTS]))
    assert costs.min() < part["nats"] / part["tokens"] < costs.max()
    with pytest.raises(InvalidSetting, match="22") as error:
        evaluate_stream(lm, stream, context=23)
    assert (error.value.key, error.value.value) == ("context", 23)


def test_hide_in_stream_counts_first_choices() -> None:
    lm = make_model()
    ids = np.concatenate([lm.tokenizer.encode(text).ids for text in TEXTS])
    found = lm.hide_in_stream(ids, np.arange(len(ids)))
    for t in (0, 3, len(ids) - 1):
        context = np.where(np.arange(len(ids)) == t, HIDDEN, ids)
        window = context if len(ids) <= lm.room else context[max(0, min(t - 10, len(ids) - 22)) :][:22]
        assert found.right[t] == (int(lm._hidden_log_probs(window[None])[0, 0].argmax()) == ids[t])


def test_score_completions_needs_likelihoods() -> None:
    with pytest.raises(Unsupported):
        score_completions(make_model(), [" sat"], ["the cat"])
