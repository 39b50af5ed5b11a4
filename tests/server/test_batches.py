"""Concurrent requests share batches, and each gets the answer that it would get alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from nextword.lm.base import TextModel
from nextword.server.engine import Engine
from nextword.server.native_routes import EmbedTexts
from tests.server.test_native_routes import close
from tests.server.test_safety import connect, raw_request
from tests.support.running_server import PATIENCE, Running, eventually, held

CLIENTS = 12
WORDS = ["the", "king", "of", "a", "land", "went", "to", "see", "his", "house"]
TEXTS = [" ".join(WORDS[: 2 + i % 8]) for i in range(CLIENTS)]


@contextmanager
def counted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The rows of ids that the engine's network reads, one number for each time."""
    calls: list[int] = []
    network = engine.model.network
    encode = network.encode

    def count(inputs: Any, *more: Any, **named: Any) -> Any:
        calls.append(len(inputs.ids))
        return encode(inputs, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(network, "encode", count)
        yield calls


def ask_together(server: Running, path: str, bodies: list[Any], status: int | None = 200) -> list[Any]:
    """The answers to requests that all wait before the first of them is computed."""
    engine = server.service.pool.get(path.split("/")[2])

    def ask(body: Any) -> Any:
        answer = server.client.post(path, json=body)
        assert status is None or answer.status_code == status, answer.text
        return answer.json()

    with ThreadPoolExecutor(len(bodies)) as clients:
        with held(engine):
            futures = [clients.submit(ask, body) for body in bodies]
            assert eventually(lambda: engine.stats().calls == len(bodies))
        return [future.result(PATIENCE) for future in futures]


def test_vectors_of_concurrent_clients_are_read_at_once(
    server: Running, models: Callable[[str], TextModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = server.service.pool.get("bert")
    with counted(engine, monkeypatch) as calls:
        answers = ask_together(server, "/m/bert/v1/embeddings", [{"input": text} for text in TEXTS])
    assert len(calls) == 1
    expected = models("bert").embed(TEXTS).numpy()
    vectors = np.array([answer["data"][0]["embedding"] for answer in answers])
    assert vectors == pytest.approx(expected, rel=1e-4, abs=1e-5)
    tokens = [answer["usage"]["prompt_tokens"] for answer in answers]
    assert tokens == [len(models("bert").tokenizer.encode(text)) for text in TEXTS]


def test_other_settings_make_other_batches(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = server.service.pool.get("bert")
    bodies = [{"texts": [text], "layer": ("-1", "0")[i % 2]} for i, text in enumerate(TEXTS)]
    with counted(engine, monkeypatch) as calls:
        answers = ask_together(server, "/m/bert/api/embed", bodies)
    assert len(calls) == 2
    for body, answer in zip(bodies, answers, strict=True):
        close(answer, server.post("/m/bert/api/embed", body))


@pytest.mark.parametrize(
    ("path", "bodies"),
    [
        ("/m/topics/api/predict", [{"examples": [text]} for text in TEXTS]),
        ("/m/tags/api/tag", [{"sentences": [text, text.split()]} for text in TEXTS]),
        ("/m/answers/api/answer", [{"questions": [{"question": "who went?", "context": text}]} for text in TEXTS]),
        (
            "/m/choices/api/choose",
            [{"examples": [{"context": text, "choices": ["to see", "a house"]}]} for text in TEXTS],
        ),
    ],
)
def test_heads_of_tasks_predict_for_concurrent_clients_at_once(
    server: Running, monkeypatch: pytest.MonkeyPatch, path: str, bodies: list[Any]
) -> None:
    alone = [server.post(path, body) for body in bodies]
    engine = server.service.pool.get(path.split("/")[2])
    model: Any = engine.model
    calls = []
    read = model.predict

    def predict(examples: Any, *more: Any) -> Any:
        calls.append(len(examples))
        return read(examples, *more)

    with monkeypatch.context() as patch:
        patch.setattr(model, "predict", predict)
        together = ask_together(server, path, bodies)
    assert len(calls) <= 2  # a slice holds about this many
    assert sum(calls) == sum(len(next(value for value in body.values())) for body in bodies)
    close(together, alone)


@pytest.mark.parametrize("name", ["gpt2", "lstm", "ngram", "seq2seq"])
def test_scores_of_concurrent_clients_are_those_of_each_alone(server: Running, name: str) -> None:
    bodies = [{"texts": [text], "given": ["bread "]} for text in TEXTS]
    alone = [server.post(f"/m/{name}/api/score", body) for body in bodies]
    close(ask_together(server, f"/m/{name}/api/score", bodies), alone)


@pytest.mark.parametrize("settings", [{}, {"beam": 2}, {"beam": 2, "n_best": 2}])
def test_translations_of_concurrent_clients_are_those_of_each_alone(server: Running, settings: Any) -> None:
    bodies = [{"source": text, "max_tokens": 8, **settings} for text in TEXTS[:6]]
    alone = [server.post("/m/seq2seq/api/translate", body) for body in bodies]
    engine = server.service.pool.get("seq2seq")
    with ThreadPoolExecutor(len(bodies)) as clients:
        with held(engine):
            futures = [clients.submit(server.post, "/m/seq2seq/api/translate", body) for body in bodies]
            assert eventually(lambda: engine.stats().calls + engine.stats().waiting == len(bodies))
        close([future.result(PATIENCE) for future in futures], alone)


def test_bad_input_fails_alone(server: Running) -> None:
    bodies: list[Any] = [{"examples": [text]} for text in TEXTS[:4]]
    bodies[1] = {"examples": [["a pair", "for a classifier of single texts"]]}
    answers = ask_together(server, "/m/topics/api/predict", bodies, status=None)
    assert [("error" in answer) for answer in answers] == [False, True, False, False]
    assert answers[1]["error"]["param"] == "examples"
    for i in (0, 2, 3):
        close(answers[i], server.post("/m/topics/api/predict", bodies[i]))


def test_client_that_leaves_does_not_harm_those_it_shares_a_batch_with(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = server.service.pool.get("bert")
    batches: list[list[str]] = []
    embed = EmbedTexts.__call__

    def watch(self: EmbedTexts, lm: TextModel, texts: list[str]) -> Any:
        batches.append(list(texts))
        return embed(self, lm, texts)

    monkeypatch.setattr(EmbedTexts, "__call__", watch)
    with ThreadPoolExecutor(1) as clients:
        with held(engine):
            with connect(server) as leaving:
                leaving.sendall(raw_request("/m/bert/api/embed", {"texts": ["the land"]}))
                assert eventually(lambda: engine.stats().calls == 1)
                staying = clients.submit(server.post, "/m/bert/api/embed", {"texts": ["the king"]})
                assert eventually(lambda: engine.stats().calls == 2)
            assert eventually(lambda: server.service.metrics.active._value.get() == 1)
        assert len(staying.result(PATIENCE)["vectors"]) == 1
    assert batches == [["the king"]]


def test_long_list_does_not_hold_up_a_single_text(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    embed = EmbedTexts.__call__

    def watch(self: EmbedTexts, lm: TextModel, texts: list[str]) -> Any:
        batches.append(sum("single" in text for text in texts))
        return embed(self, lm, texts)

    monkeypatch.setattr(EmbedTexts, "__call__", watch)
    path, bodies = "/m/bert/api/embed", [{"texts": TEXTS * 80}, {"texts": ["a single text"]}]
    many, single = ask_together(server, path, bodies)
    assert (len(many["vectors"]), len(single["vectors"])) == (80 * CLIENTS, 1)
    assert len(batches) > 5
    assert batches[0] == 1


def test_stream_goes_on_while_a_long_text_is_scored(server: Running) -> None:
    engine = server.service.pool.get("lstm")
    handle = server.client.stream(
        "POST", "/m/lstm/v1/completions", json={"prompt": "the", "max_tokens": 8192, "ignore_eos": True, "stream": True}
    )
    with handle as stream:
        lines = stream.iter_lines()
        next(lines)
        before = engine.stats().steps
        slices = 12
        server.post("/m/lstm/api/score", {"texts": ["the king of " * (slices * 512 // 12)]})
        assert engine.stats().steps - before >= slices
    assert eventually(lambda: engine.is_idle)
