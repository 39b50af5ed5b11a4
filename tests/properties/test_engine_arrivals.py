"""Whatever else the engine does, a request gets the text that `lm.generate` returns for it alone.

Requests of random lengths and settings arrive while others run, and some are cancelled. The models compute in double
precision (tests/support/served_models.py), so that the rounding of a batch does not change which token is chosen.
"""

from __future__ import annotations

import math
import random

import pytest

from nextword.core.types import Beam, Contrastive, Decoding, Greedy, Sample, Stop
from nextword.lm.generation_mixin import GenerationMixin
from nextword.server.engine import Engine, Handle
from nextword.server.requests import Event, Finished, GenerationRequest, TokenEvent
from tests.support.served_models import TEXT, list_generating_slugs, make_served_model


def draw_decoding(rng: random.Random, lm: GenerationMixin) -> Decoding:
    rules = {"repetition": rng.choice([1.0, 1.3]), "no_repeat": rng.choice([0, 0, 1, 3])}
    penalties = {"frequency": rng.choice([0.0, 0.5]), "presence": rng.choice([0.0, -0.5])}
    bias = rng.choice([{}, {7: 2.0, 9: -math.inf}])
    kind = rng.random()
    if kind < 0.25:
        return rng.choice([Greedy(), Greedy(**rules, **penalties, bias=bias)])
    if kind < 0.9:
        settings = rng.choice([{}, {"top_k": 5}, {"top_p": 0.8, "temperature": 0.7}, {"min_p": 0.1}, {"typical": 0.9}])
        seed = rng.randrange(1000)
        return rng.choice(
            [Sample(seed=seed, **settings), Sample(seed=seed, **settings, **rules, **penalties, bias=bias)]
        )
    if kind < 0.96 or not lm.network.has_hidden_states or lm.is_seq2seq:
        return Beam(width=rng.choice([2, 3]))
    return Contrastive(k=3)


def draw_request(rng: random.Random, lm: GenerationMixin) -> tuple[str, GenerationRequest]:
    words = TEXT.split()
    prompt = " ".join(rng.choices(words, k=rng.choice([1, 2, 5, 12] if lm.is_seq2seq else [0, 1, 2, 5, 12])))
    strings = rng.choice([(), (), ("e",), ("\n", "an")])
    most = rng.choice([0, 1, 5, 20, 40])
    stop = Stop(
        most, strings, at_end=rng.random() < 0.7, min_tokens=rng.randrange(most + 1) if rng.random() < 0.3 else 0
    )
    decoding = draw_decoding(rng, lm)
    if lm.is_seq2seq:
        return prompt, GenerationRequest(decoding=decoding, stop=stop, source=prompt)
    ids = tuple(lm.tokenizer.encode(prompt).ids.tolist())
    scores = {"prompt_top": rng.choice([None, None, 0, 2])}
    top = 0 if isinstance(decoding, (Beam, Contrastive)) else rng.choice([0, 0, 3])
    return prompt, GenerationRequest(ids, decoding, stop, top=top, **scores)


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TokenEvent))


@pytest.mark.parametrize("slug", list_generating_slugs())
def test_texts_equal_those_generated_alone_whatever_else_runs(slug: str) -> None:
    lm, rng = make_served_model(slug), random.Random(slug)
    engine = Engine(lm, rows=5, prefix_bytes=1 << 14)
    requests = [draw_request(rng, lm) for _ in range(40)]
    handles: list[Handle] = []
    events: list[list[Event]] = []
    cancelled = set()
    for i, (_, request) in enumerate(requests):
        handles.append(engine.submit(request))
        events.append([])
        if rng.random() < 0.2:
            cancelled.add(i)
        if rng.random() < 0.3:  # wait for another one's first events, so that requests arrive while others run
            other = rng.randrange(len(handles))
            for event in handles[other]:
                events[other].append(event)
                if rng.random() < 0.3:
                    break
        for j in cancelled:
            if rng.random() < 0.2:
                handles[j].cancel()
    for handle, own in zip(handles, events, strict=True):
        own.extend(handle)
    engine.close()
    for i, ((prompt, request), own) in enumerate(zip(requests, events, strict=True)):
        expected = lm.generate(prompt, request.decoding, request.stop)
        *_, end = own
        assert isinstance(end, Finished), request
        if end.reason == "cancelled":
            assert i in cancelled
            assert expected.text.startswith(text_of(own))
        else:
            assert end.error is None
            assert text_of(own) == expected.text, request
            assert end.tokens == sum(len(piece.ids) for piece in expected.pieces)
    assert engine.stats().requests == len(requests)
    assert engine.stats().failed == 0
