from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from nextword import lens
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Beam, Decoding, Greedy, Sample, Stop
from tests.support.untrained_models import SCORING, make_model

WRITING = [slug for slug in SCORING if "generate" in make_model(slug).can]
PROMPT = "the cat sat"
SAMPLES = [
    Sample(),
    Sample(0.7),
    Sample(1.4, top_k=5),
    Sample(1.0, top_p=0.6),
    Sample(0.9, top_k=20, top_p=0.8, min_p=0.05),
    Sample(1.0, typical=0.7),
    Sample(0.9, top_k=12, repetition=1.5, no_repeat=2),
    Sample(0.0),
]


def show(model: Any, decoding: Decoding, **more: Any) -> lens.DecodingEffect:
    return lens.show_decoding(model, PROMPT, decoding, k=len(model.tokenizer), **more)


@pytest.mark.parametrize("decoding", [*SAMPLES, Greedy(), Greedy(repetition=1.3)], ids=str)
@pytest.mark.parametrize("slug", WRITING)
def test_both_distributions_sum_to_one_and_the_summary_is_theirs(slug: str, decoding: Decoding) -> None:
    effect = show(make_model(slug), decoding)
    assert len(effect.tokens) == effect.vocabulary
    assert sum(each.before for each in effect.tokens) == pytest.approx(1, abs=1e-4)
    assert sum(each.after for each in effect.tokens) == pytest.approx(1, abs=1e-4)
    assert effect.allowed == sum(each.after > 0 for each in effect.tokens) == effect.stages[-1].allowed
    for entropy, values in (
        (effect.entropy_before, [each.before for each in effect.tokens]),
        (effect.entropy_after, [each.after for each in effect.tokens]),
    ):
        assert entropy == pytest.approx(-sum(p * math.log(p) for p in values if p), abs=1e-4)
    assert [each.before for each in effect.tokens] == sorted((each.before for each in effect.tokens), reverse=True)
    allowed = [stage.allowed for stage in effect.stages]
    assert allowed == sorted(allowed, reverse=True)  # no setting allows a token again


@pytest.mark.parametrize("slug", ["ngram", "lstm", "gpt2", "seq2seq"])
@pytest.mark.parametrize("decoding", [Greedy(), Greedy(repetition=1.5), Sample(0.0)], ids=str)
def test_greedy_puts_everything_on_the_token_that_is_generated(slug: str, decoding: Decoding) -> None:
    model: Any = make_model(slug)
    (piece,) = model.generate(PROMPT, decoding, Stop(max_tokens=1)).pieces
    effect = show(model, decoding, chosen=piece.ids[0])
    assert effect.chosen is not None
    assert effect.chosen.after == 1
    assert (effect.allowed, effect.entropy_after) == (1, 0)
    assert math.log(effect.chosen.before) == pytest.approx(piece.log_prob, abs=1e-4)


@pytest.mark.parametrize("decoding", SAMPLES[1:7], ids=str)
@pytest.mark.parametrize("slug", ["lstm", "ngram"])
def test_samples_are_as_frequent_as_the_distribution_says(slug: str, decoding: Sample) -> None:
    """Pearson's χ² of the third token after a prompt against the probabilities; the threshold is far in the tail."""
    model: Any = make_model(slug)
    before = [id for piece in model.generate(PROMPT, Greedy(), Stop(max_tokens=2)).pieces for id in piece.ids]
    effect = show(model, decoding, ids=before)
    rows, counts = 3000, Counter[int]()
    text = model.begin(PROMPT, decoding)
    last, state = model.read([model.begin([*text.ids, *before], decoding)])
    log_p = model.network.step(last, state)[0]
    for seed in range(rows):
        chooser = model.begin([*text.ids, *before], Sample(**{**vars(decoding), "seed": seed})).make_chooser()
        counts[chooser.choose(log_p)[1][0][0]] += 1
    expected = {each.id: rows * each.after for each in effect.tokens if each.after}
    assert set(counts) <= set(expected)
    common = {id: count for id, count in expected.items() if count >= 5}
    chi = sum((counts[id] - count) ** 2 / count for id, count in common.items())
    assert chi < len(common) + 5 * math.sqrt(2 * len(common)) + 10


@pytest.mark.parametrize("slug", WRITING)
def test_tokens_generated_before_give_the_place_within_a_text(slug: str) -> None:
    """At every place of a generated text, the token has the probability that generation reported."""
    model: Any = make_model(slug)
    pieces = model.generate(PROMPT, Sample(seed=3), Stop(max_tokens=6)).pieces
    ids = [id for piece in pieces for id in piece.ids]
    for place, id in enumerate(ids):
        chosen = lens.show_decoding(model, PROMPT, Sample(0.8), 3, ids[:place], chosen=id).chosen
        assert chosen is not None
        assert math.log(chosen.before) == pytest.approx(pieces[place].log_prob, abs=1e-3)


def test_rules_count_what_was_generated_before() -> None:
    model: Any = make_model("lstm")
    decoding = Sample(1.0, presence=50.0)
    before = show(model, decoding, ids=[7]).stages
    assert [stage.setting for stage in before][:2] == ["model", "rules"]
    after = next(each for each in show(model, decoding, ids=[7, 9]).tokens if each.id == 7)
    assert after.after < 1e-6 < after.before


def test_tokens_are_the_likeliest_before_or_after() -> None:
    model: Any = make_model("ngram")
    whole = show(model, Sample(0.8, repetition=2.0))
    few = lens.show_decoding(model, PROMPT, Sample(0.8, repetition=2.0), 4)
    best = sorted(whole.tokens, key=lambda each: -max(each.before, each.after))[:4]
    assert set(few.tokens) == set(best)
    assert few.tokens[0].rank == 1
    assert lens.show_decoding(model, PROMPT, Greedy(), 0).tokens == ()


def test_impossible_settings_name_their_field() -> None:
    model = make_model("lstm")
    for key, settings in (
        ("decoding", (Beam(),)),
        ("k", (Sample(), -1)),
        ("chosen", (Sample(), 3, (), 10**6)),
        ("temperature", (Sample(-1.0),)),
        ("prompt", (Sample(), 3, (10**6,))),
    ):
        arguments: Any = settings
        with pytest.raises(InvalidSetting) as caught:
            lens.show_decoding(model, PROMPT, *arguments)
        assert caught.value.key == key
    with pytest.raises(Unsupported):
        lens.show_decoding(make_model("bert"), PROMPT)
