"""The engine: events, scores, cancellation, bounds, errors, calls and its end. Texts: tests/properties."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pytest
import torch

from nextword.core.errors import InvalidSetting, MissingAbility, NextwordError
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import Beam, Contrastive, Greedy, Sample, Stop
from nextword.lm.base import TextModel
from nextword.lm.generation_mixin import GenerationMixin
from nextword.lm.loading import wrap_network
from nextword.server import engine as engine_module
from nextword.server.engine import CHUNK, Engine, Handle
from nextword.server.requests import (
    EngineClosed,
    Event,
    Finished,
    GenerationRequest,
    PromptScores,
    QueueFull,
    TokenEvent,
)
from tests.support.masked_models import make_model
from tests.support.served_models import make_served_model

PROMPT = "The value of an expression"
LONG = Stop(max_tokens=100_000, at_end=False)  # outlasts every test


@pytest.fixture
def lm() -> GenerationMixin:
    return make_served_model("gpt2")


@pytest.fixture
def engine(lm: GenerationMixin) -> Iterator[Engine]:
    engine = Engine(lm, rows=4, queue=3)
    yield engine
    engine.close()


def encode(lm: TextModel, text: str = PROMPT) -> tuple[int, ...]:
    return tuple(lm.tokenizer.encode(text).ids.tolist())


def end_of(events: Sequence[Event]) -> Finished:
    end = events[-1]
    assert isinstance(end, Finished)
    return end


def wait_for_token(handle: Handle) -> None:
    """Wait until a request runs with the others: the first token comes before it joins them."""
    for _ in range(2):
        assert isinstance(next(iter(handle)), TokenEvent)


def occupy(engine: Engine) -> threading.Event:
    """Keep the engine's thread busy until the event is set."""
    began, done = threading.Event(), threading.Event()

    def wait(model: TextModel) -> None:
        began.set()
        done.wait()

    engine.call(wait)
    began.wait()
    return done


# ------------------------------------------------------------------------------------------------ events


def test_tokens_carry_the_log_probs_of_generate_and_the_likeliest_ids(lm: GenerationMixin, engine: Engine) -> None:
    decoding, stop = Sample(seed=4), Stop(12, at_end=False)
    events = list(engine.submit(GenerationRequest(encode(lm), decoding, stop, top=5)))
    pieces = lm.generate(PROMPT, decoding, stop).pieces
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    assert [event.id for event in tokens] == [piece.ids[0] for piece in pieces]
    assert [event.log_prob for event in tokens] == pytest.approx([piece.log_prob for piece in pieces], abs=1e-9)
    for event in tokens:
        assert len(event.top) in (5, 6)
        assert dict(event.top)[event.id] == event.log_prob  # the identical number
        values = [log_prob for _, log_prob in event.top[:5]]
        assert values == sorted(values, reverse=True)
    assert any(len(event.top) == 6 for event in tokens)  # the token was not among the likeliest
    assert end_of(events) == Finished("length", None, 12)


@pytest.mark.parametrize("slug", ["gpt2", "ngram", "xlnet", "lstm", "glm"])
@pytest.mark.parametrize("top", [0, 3])
def test_prompt_scores_equal_token_nats(slug: str, top: int) -> None:
    lm = make_served_model(slug)
    engine = Engine(lm)
    ids = encode(lm, f"{PROMPT} is an object; the types of operands differ." * 2)
    scores, end = engine.submit(GenerationRequest(ids, stop=Stop(0), prompt_top=top))
    engine.close()
    assert end == Finished("length")
    assert isinstance(scores, PromptScores)
    assert [token.id for token in scores.tokens] == list(ids)
    expected = -lm.token_nats([torch.tensor(ids).numpy()])[0]
    assert [token.log_prob for token in scores.tokens] == pytest.approx(expected.tolist(), abs=1e-5)
    for token in scores.tokens:
        assert len(token.top) in ((top, top + 1) if top else (0,))
        assert not top or dict(token.top)[token.id] == token.log_prob


def test_request_without_scores_or_tokens_has_only_an_end(lm: GenerationMixin, engine: Engine) -> None:
    assert list(engine.submit(GenerationRequest(encode(lm), stop=Stop(0)))) == [Finished("length")]


def test_prompt_without_tokens_is_continued(lm: GenerationMixin, engine: Engine) -> None:
    events = list(engine.submit(GenerationRequest((), Greedy(), Stop(5, at_end=False))))
    text = "".join(event.text for event in events if isinstance(event, TokenEvent))
    assert text == lm.generate("", Greedy(), Stop(5, at_end=False)).text


def test_second_request_reads_the_prompt_from_the_prefix_cache(lm: GenerationMixin, engine: Engine) -> None:
    request = GenerationRequest(encode(lm), Sample(seed=1), Stop(3, at_end=False))
    first, second = list(engine.submit(request)), list(engine.submit(request))
    assert (end_of(first).cached, end_of(second).cached) == (0, len(encode(lm)) - 1)
    assert [e.id for e in first if isinstance(e, TokenEvent)] == [e.id for e in second if isinstance(e, TokenEvent)]
    stats = engine.stats()
    assert (stats.prefix_lookups, stats.prefix_hits, stats.prefix_entries) == (2, 1, 1)
    assert (stats.tokens, stats.cached_tokens) == (6, len(encode(lm)) - 1)


def test_handle_can_be_read_in_an_event_loop(lm: GenerationMixin, engine: Engine) -> None:
    request = GenerationRequest(encode(lm), Sample(seed=1), Stop(30, at_end=False))

    async def read() -> list[Event]:
        return [event async for event in engine.submit(request)]

    async def read_several() -> list[list[Event]]:
        return list(await asyncio.gather(read(), read(), read()))

    for events in asyncio.run(read_several()):
        assert len(events) == 31
        assert end_of(events).reason == "length"


def test_handle_that_has_ended_yields_nothing_more(lm: GenerationMixin, engine: Engine) -> None:
    handle = engine.submit(GenerationRequest(encode(lm), stop=Stop(2)))
    assert list(handle)
    assert list(handle) == []


# ------------------------------------------------------------------------------------------------ cancellation, bounds


@pytest.mark.parametrize("decoding", [Greedy(), Contrastive()])
def test_cancelled_request_ends_and_frees_its_row(lm: GenerationMixin, engine: Engine, decoding: Any) -> None:
    endless = []
    for _ in range(4):
        endless.append(engine.submit(GenerationRequest(encode(lm), decoding, LONG)))
        wait_for_token(endless[-1])
    waiting = engine.submit(GenerationRequest(encode(lm), stop=Stop(3, at_end=False)))
    assert engine.stats().running == 4
    endless[2].cancel()
    assert end_of(list(endless[2])).reason == "cancelled"
    assert end_of(list(waiting)).reason == "length"
    for handle in endless:
        handle.cancel()
        handle.cancel()
    assert [end_of(list(handle)).reason for handle in endless if handle is not endless[2]] == ["cancelled"] * 3
    assert engine.stats().cancelled == 4


def test_cancelled_beam_search_ends(lm: GenerationMixin, engine: Engine) -> None:
    handle = engine.submit(GenerationRequest(encode(lm), Beam(), LONG))
    handle.cancel()
    assert list(handle) == [Finished("cancelled")]


def test_cancelled_request_in_the_queue_ends(lm: GenerationMixin, engine: Engine) -> None:
    done = occupy(engine)
    handle = engine.submit(GenerationRequest(encode(lm), stop=LONG))
    handle.cancel()
    done.set()
    assert list(handle) == [Finished("cancelled")]


def test_queue_is_bounded(lm: GenerationMixin, engine: Engine) -> None:
    done = occupy(engine)
    request = GenerationRequest(encode(lm), stop=Stop(1))
    handles = [engine.submit(request), engine.submit(request)]
    future = engine.call(lambda model: 5)
    for submit in (lambda: engine.submit(request), lambda: engine.call(len), lambda: engine.next("a")):  # type: ignore
        with pytest.raises(QueueFull) as full:
            submit()
        assert (full.value.waiting, full.value.retry_after >= 1) == (3, True)
    done.set()
    assert future.result() == 5
    assert [end_of(list(handle)).reason for handle in handles] == ["length", "length"]
    assert list(engine.submit(request))


def test_rows_are_bounded(lm: GenerationMixin) -> None:
    engine = Engine(lm, rows=2, queue=20)
    handles = [engine.submit(GenerationRequest(encode(lm), stop=Stop(20, at_end=False))) for _ in range(9)]
    for handle in handles:
        for _ in handle:
            assert engine.stats().running <= 2
    engine.close()


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"decoding": Sample(temperature=-1)}, "temperature"),
        ({"decoding": Greedy(bias={"no such token at all": 1.0})}, "bias"),
        ({"prompt": (0, 10**6)}, "prompt"),
        ({"prompt": (3,) * 30, "overflow": "error"}, "prompt"),
        ({"overflow": "cut"}, "overflow"),
        ({"stop": Stop(-1)}, "max_tokens"),
        ({"top": -1}, "top"),
        ({"top": 2, "decoding": Beam()}, "top"),
        ({"prompt_top": -1}, "prompt_top"),
        ({"source": "a text"}, "source"),
    ],
)
def test_impossible_request_is_refused_at_once(engine: Engine, change: Any, key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        engine.submit(GenerationRequest(**{"prompt": (5,), **change}))
    assert error.value.key == key
    assert engine.is_idle


def test_source_is_needed_by_sequence_to_sequence_models_only() -> None:
    engine = Engine(make_served_model("seq2seq"))
    for request in (GenerationRequest((5,)), GenerationRequest(source="value", prompt_top=0)):
        with pytest.raises(InvalidSetting):
            engine.submit(request)
    engine.close()


def test_model_that_does_not_generate_is_called_only() -> None:
    model = make_model()
    engine = Engine(model)
    with pytest.raises(MissingAbility):
        engine.submit(GenerationRequest((5,)))
    text = "the ___ sat"
    assert engine.call(lambda model: model.fill(text)).result() == model.fill(text)
    engine.close()


def test_error_in_the_model_ends_its_requests_and_not_the_engine(
    lm: GenerationMixin, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [engine.submit(GenerationRequest(encode(lm), stop=LONG)) for _ in range(3)]
    for handle in handles:
        wait_for_token(handle)

    def fail(*arguments: Any) -> None:
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(lm.network, "step", fail)
        for handle in handles:
            end = end_of(list(handle))
            assert end.reason == "error"
            assert isinstance(end.error, MemoryError)
    with monkeypatch.context() as patch:
        patch.setattr(lm.network, "encode", fail)
        assert end_of(list(engine.submit(GenerationRequest((5, 6, 7))))).reason == "error"
        assert isinstance(engine.next("a b c").exception(), MemoryError)
    assert end_of(list(engine.submit(GenerationRequest(encode(lm), stop=Stop(2, at_end=False))))).reason == "length"
    assert engine.stats().failed == 4


def test_row_without_probabilities_ends_and_other_rows_continue(
    lm: GenerationMixin, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = lm.network.step

    def step_with_nan(last: torch.Tensor, state: Any) -> Any:
        log_probs, state = step(last, state)
        return log_probs.masked_fill((state["length"] == 9).unsqueeze(1), math.nan), state

    monkeypatch.setattr(lm.network, "step", step_with_nan)
    done = occupy(engine)
    good = engine.submit(GenerationRequest((5,) * 9, Sample(seed=1), Stop(8, at_end=False)))
    bad = engine.submit(GenerationRequest((5, 6), Greedy(), Stop(20, at_end=False)))
    done.set()
    assert end_of(list(good)).reason == "length"
    end = end_of(list(bad))
    assert end.reason == "error"
    assert isinstance(end.error, NextwordError)


# ------------------------------------------------------------------------------------------------ calls


def test_call_runs_between_the_steps_of_others(lm: GenerationMixin, engine: Engine) -> None:
    handle = engine.submit(GenerationRequest(encode(lm), stop=LONG))
    wait_for_token(handle)
    future = engine.call(lambda model: (model.score(PROMPT), threading.current_thread().name))
    score, name = future.result()
    assert score == lm.score(PROMPT)
    assert name.startswith("engine")
    handle.cancel()
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda model: 1 // 0).result()


def test_items_that_wait_for_the_same_function_are_computed_together(engine: Engine) -> None:
    batches = []

    def lengths(model: TextModel, texts: Sequence[str]) -> list[int]:
        batches.append(list(texts))
        return [len(text) for text in texts]

    done = occupy(engine)
    futures = [engine.map(lengths, texts) for texts in (["a", "aa", "aaa"], ["b"])]
    other = engine.map(lambda model, texts: [text.upper() for text in texts], ["c", "d"])
    done.set()
    assert [future.result() for future in futures] == [[1, 2, 3], [1]]
    assert other.result() == ["C", "D"]
    assert batches == [["a", "b", "aa", "aaa"]]  # one of each call in turn
    assert engine.map(lengths, []).result() == []
    assert engine.is_idle


def test_items_are_computed_slice_by_slice_and_other_functions_take_turns(engine: Engine) -> None:
    batches: list[str] = []

    def join(model: TextModel, texts: Sequence[str]) -> list[str]:
        batches.append("".join(texts))
        return list(texts)

    def other(model: TextModel) -> None:
        batches.append("other")

    done = occupy(engine)
    texts = engine.map(join, list("abcde"), [CHUNK // 2, CHUNK // 2, 1, CHUNK, CHUNK + 1])
    call = engine.call(other)
    done.set()
    assert texts.result() == list("abcde")
    assert call.done()
    assert batches == ["ab", "other", "c", "d", "e"]


def test_items_that_fail_do_so_alone(engine: Engine) -> None:
    def parse(model: TextModel, texts: Sequence[str]) -> list[int]:
        return [int(text) for text in texts]

    done = occupy(engine)
    good, bad, last = (engine.map(parse, texts) for texts in (["1", "2"], ["3", "x"], ["4"]))
    done.set()
    assert (good.result(), last.result()) == ([1, 2], [4])
    assert isinstance(bad.exception(), ValueError)
    assert engine.is_idle


def test_cancelled_calls_are_not_computed_and_do_not_harm_those_they_share_a_batch_with(engine: Engine) -> None:
    batches = []

    def lengths(model: TextModel, texts: Sequence[str]) -> list[int]:
        batches.append(list(texts))
        end_slice()
        return [len(text) for text in texts]

    done = occupy(engine)
    first, second, third = (engine.map(lengths, texts) for texts in (["a"], ["bb"], ["ccc"]))
    assert second.cancel()
    done.set()
    assert (first.result(), third.result()) == ([1], [3])
    assert batches == [["a", "ccc"]]
    assert engine.is_idle


# ------------------------------------------------------------------------------------------------ slices


def test_stream_receives_a_token_after_every_slice_of_a_long_call(lm: GenerationMixin, engine: Engine) -> None:
    handle = engine.submit(GenerationRequest(encode(lm), stop=LONG))
    wait_for_token(handle)
    steps: list[int] = []

    def compute(model: TextModel) -> None:
        for _ in range(20):
            steps.append(engine.stats().steps)
            end_slice()
        steps.append(engine.stats().steps)

    engine.call(compute, size=10**6).result()
    assert [after - before for before, after in pairwise(steps)] == [1] * 20
    handle.cancel()


def test_prompts_and_next_words_do_not_wait_for_a_long_call(lm: GenerationMixin, engine: Engine) -> None:
    begun, is_answered = threading.Event(), threading.Event()

    def compute(model: TextModel) -> None:
        begun.set()
        while not is_answered.is_set():
            end_slice()

    call = engine.call(compute, size=10**6)
    begun.wait()
    assert engine.next(PROMPT).result()
    assert list(engine.submit(GenerationRequest(encode(lm), stop=Stop(3, at_end=False))))
    assert not call.done()
    is_answered.set()
    call.result()


def test_short_calls_run_between_the_slices_of_a_long_one_and_long_ones_wait(engine: Engine) -> None:
    order: list[str] = []

    def long(model: TextModel) -> None:
        order.append("long begins")
        for _ in range(5):
            end_slice()
        order.append("long ends")

    def short(model: TextModel, items: Sequence[str]) -> list[str]:
        order.append(f"short {''.join(items)}")
        return list(items)

    done = occupy(engine)
    calls: list[Future[Any]] = [
        engine.call(long, size=10**6),
        engine.call(lambda model: order.append("other long"), size=10**6),
    ]
    calls += [engine.map(short, ["a"], [1])]
    done.set()
    for call in calls:
        call.result()
    assert order == ["long begins", "short a", "long ends", "other long"]


def test_long_call_ends_when_its_client_leaves_or_the_engine_closes(lm: GenerationMixin) -> None:
    engine = Engine(lm)
    slices: list[int] = []

    def endless(begun: threading.Event) -> Callable[[TextModel], None]:
        def compute(model: TextModel) -> None:
            while True:
                slices.append(1)
                begun.set()
                end_slice()

        return compute

    begun = threading.Event()
    call = engine.call(endless(begun), size=10**6)
    begun.wait()
    assert call.cancel()
    assert engine.call(lambda model: 7).result() == 7
    assert engine.is_idle
    begun = threading.Event()
    call = engine.call(endless(begun), size=10**6)
    begun.wait()
    engine.close()
    assert isinstance(call.exception(), EngineClosed)


def test_slices_are_smaller_while_a_large_network_generates(
    lm: GenerationMixin, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "SLICE_WEIGHTS", 64 * lm.parameters)

    def find_size(model: TextModel) -> int:
        return slice_tokens(CHUNK)

    assert engine.call(find_size).result() == CHUNK
    handle = engine.submit(GenerationRequest(encode(lm), stop=LONG))
    wait_for_token(handle)
    assert engine.call(find_size).result() == 64
    handle.cancel()


def test_gradients_of_a_long_call_do_not_change_the_steps_of_others(lm: GenerationMixin, engine: Engine) -> None:
    request = GenerationRequest(encode(lm), Sample(seed=4), Stop(12, at_end=False), top=3)
    expected = list(engine.submit(request))
    begun, is_answered = threading.Event(), threading.Event()

    @torch.no_grad()
    def compute(model: TextModel) -> None:
        begun.set()
        while not is_answered.is_set():
            end_slice()

    call = engine.call(compute, size=10**6)
    begun.wait()
    events = list(engine.submit(request))
    is_answered.set()
    call.result()
    assert [e for e in events if isinstance(e, TokenEvent)] == [e for e in expected if isinstance(e, TokenEvent)]


@pytest.mark.parametrize("slug", ["gpt2", "lstm", "ngram", "xlnet", "glm", "elmo"])
def test_next_equals_that_of_the_model_with_and_without_cached_prefixes(slug: str) -> None:
    lm = make_served_model(slug)
    engine = Engine(lm)
    text = f"{PROMPT} is an object; the types"
    for end in (3, 9, 14, 9, 30, 30):
        for tokens in (False, True):
            expected = lm.next(text[:end], k=5, tokens=tokens)
            guesses = engine.next(text[:end], k=5, tokens=tokens).result()
            assert [guess.text for guess in guesses] == [guess.text for guess in expected]
            probabilities = [guess.probability for guess in expected]
            assert [guess.probability for guess in guesses] == pytest.approx(probabilities, abs=1e-9)
    assert engine.stats().prefix_hits or not lm.network.can_join
    with pytest.raises(InvalidSetting):
        engine.next("a", k=0).result()
    engine.close()


# ------------------------------------------------------------------------------------------------ the end


def test_close_lets_requests_finish_and_refuses_new_ones(lm: GenerationMixin) -> None:
    engine = Engine(lm)
    handles = [engine.submit(GenerationRequest(encode(lm), stop=Stop(20, at_end=False))) for _ in range(5)]
    engine.close(drain_seconds=100)
    assert [end_of(list(handle)).reason for handle in handles] == ["length"] * 5
    for submit in (lambda: engine.submit(GenerationRequest((5,))), lambda: engine.call(len), lambda: engine.next("")):  # type: ignore
        with pytest.raises(EngineClosed):
            submit()
    engine.close()


def test_close_without_draining_cancels_everything(lm: GenerationMixin) -> None:
    engine = Engine(lm, rows=2)
    handles = [engine.submit(GenerationRequest(encode(lm), stop=LONG)) for _ in range(3)]
    handles.append(engine.submit(GenerationRequest(encode(lm), Beam(), stop=LONG)))
    wait_for_token(handles[0])
    done = occupy(engine)
    call = engine.call(lambda model: 1)
    threading.Timer(0.1, done.set).start()
    engine.close()
    assert [end_of(list(handle)).reason for handle in handles] == ["cancelled"] * 4
    assert isinstance(call.exception(), EngineClosed)
    assert engine.is_idle


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_quantized_models_are_served(precision: str) -> None:
    from nextword.training.device import quantize

    lm = make_served_model("gpt2")
    network = type(lm.network)(lm.network.config, lm.network.vocabulary).eval()
    model = wrap_network(quantize(network, precision), lm.tokenizer)
    engine = Engine(model)
    handles = [engine.submit(GenerationRequest(encode(lm), Sample(seed=i), Stop(9, at_end=False))) for i in range(3)]
    assert [end_of(list(handle)).tokens for handle in handles] == [9, 9, 9]
    assert 0 < engine.num_bytes() < 4 * lm.parameters
    engine.close()
