"""Clients of OpenAI's API work unmodified: the real packages against the real server, offline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when datasets is imported

from nextword.core.types import Greedy, Sample, Stop
from nextword.lm.base import TextModel
from tests.support.running_server import Running, run_server

Models = Callable[[str], TextModel]
TEXT = "the king of a land"
KEY = "none"  # the clients insist on one


# ------------------------------------------------------------------------------------------------ openai


def test_openai_client(server: Running, models: Models) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key=KEY)
    lm = models("gpt2")
    expected = lm.generate(TEXT, Greedy(), Stop(6)).text
    settings: Any = {"model": "gpt2", "prompt": TEXT, "max_tokens": 6, "temperature": 0}
    assert client.completions.create(**settings).choices[0].text == expected
    chunks = list(client.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == expected
    assert chunks[-1].usage.completion_tokens == 6
    echo = client.completions.create(**{**settings, "max_tokens": 0, "echo": True, "logprobs": 1}).choices[0].logprobs
    nats = -lm.token_nats([lm.tokenizer.encode(TEXT).ids])[0]
    assert echo.token_logprobs[0] is None
    assert echo.token_logprobs[1:] == pytest.approx(nats[1:], abs=1e-5)
    vectors = client.embeddings.create(model="gpt2", input=[TEXT, "bread"]).data  # base64 on the wire
    assert vectors[1].embedding == pytest.approx(lm.embed(["bread"])[0].tolist(), abs=1e-6)
    chat = client.chat.completions.create(
        model="gpt2", messages=[{"role": "user", "content": TEXT}], max_tokens=4, seed=1
    )
    prompt = f"User: {TEXT}\nAssistant:"
    assert chat.choices[0].message.content == lm.generate(prompt, Sample(seed=1), Stop(4)).text
    assert [model.id for model in client.models.list()] == list(server.folders)
    assert client.models.retrieve("lstm").owned_by == "nextword"
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(**{**settings, "temperature": -1})
    assert (error.value.param, error.value.code) == ("temperature", "invalid_value")
    with pytest.raises(openai.NotFoundError):
        client.completions.create(**{**settings, "model": "nope"})


@pytest.mark.timeout(120)
def test_openai_client_retries_when_the_queue_is_full(server: Running) -> None:
    import openai

    with run_server({"lstm": server.folders["lstm"]}, queue=1) as small:
        engine = small.service.pool.get("lstm")
        client = openai.OpenAI(base_url=f"{small.address}/v1", api_key=KEY, max_retries=3)
        released = engine.call(lambda _: None)
        released.result(30)
        from concurrent.futures import ThreadPoolExecutor

        def ask(i: int) -> str:
            answer = client.completions.create(model="lstm", prompt=TEXT, max_tokens=4, temperature=0)
            return answer.choices[0].text

        with ThreadPoolExecutor(4) as threads:
            assert len(set(threads.map(ask, range(8)))) == 1


# ------------------------------------------------------------------------------------------------ lm-eval

PAIRS = [
    ("the king of a", " land"),
    ("the king of a", " bread and"),
    ("all people that were", " in"),
    ("", " the king"),
    ("the king", " was unheard"),
]


def ask_harness(api: Any, own: Any, kind: str, rows: list[tuple[Any, ...]]) -> tuple[list[Any], list[Any]]:
    """What lm-eval gets from the server, and from the adapter in this process."""
    from lm_eval.api.instance import Instance

    results = []
    for model in (api, own):
        requests = [Instance(request_type=kind, doc={}, arguments=row, idx=i) for i, row in enumerate(rows)]
        results.append(getattr(model, kind)(requests))
    return results[0], results[1]


@pytest.mark.parametrize("name", ["gpt2", "lstm", "ngram", "glm"])
def test_lm_eval_scores_equal_those_in_process(server: Running, models: Models, name: str) -> None:
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    from nextword.evaluation.lm_eval_adapter import NextwordLM

    url = f"{server.address}/m/{name}/v1/completions"
    api, own = LocalCompletionsAPI(model=name, base_url=url, batch_size=2), NextwordLM(lm=models(name))
    assert api.tokenizer_backend == "remote"
    theirs, ours = ask_harness(api, own, "loglikelihood", PAIRS)
    assert [score for score, _ in theirs] == pytest.approx([score for score, _ in ours], abs=1e-5)
    assert [is_greedy for _, is_greedy in theirs] == [is_greedy for _, is_greedy in ours]
    theirs, ours = ask_harness(api, own, "loglikelihood_rolling", [(TEXT,), ("we have no bread .",)])
    assert theirs == pytest.approx(ours, abs=1e-5)
    until = {"until": ["."], "max_gen_toks": 8}
    theirs, ours = ask_harness(api, own, "generate_until", [(TEXT, until), ("all people", until)])
    assert theirs == ours


def test_lm_eval_sends_requests_side_by_side(server: Running, models: Models) -> None:
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    from nextword.evaluation.lm_eval_adapter import NextwordLM

    url = f"{server.address}/m/lstm/v1/completions"
    api, own = LocalCompletionsAPI(model="lstm", base_url=url, num_concurrent=4), NextwordLM(lm=models("lstm"))
    theirs, ours = ask_harness(api, own, "loglikelihood", PAIRS * 3)
    assert [score for score, _ in theirs] == pytest.approx([score for score, _ in ours], abs=1e-5)


# ------------------------------------------------------------------------------------------------ frameworks


def test_langchain(server: Running, models: Models) -> None:
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

    base: Any = {"base_url": f"{server.address}/m/gpt2/v1", "api_key": KEY, "model": "gpt2"}
    llm = OpenAI(**base, max_tokens=6, temperature=0)
    expected = models("gpt2").generate(TEXT, Greedy(), Stop(6)).text
    assert llm.invoke(TEXT) == expected
    assert "".join(llm.stream(TEXT)) == expected
    result = llm.generate([TEXT, "bread"])
    assert result.generations[0][0].text == expected
    assert result.llm_output is not None
    assert result.llm_output["token_usage"]["completion_tokens"] == 12
    # Without check_embedding_ctx_length=False it would cut texts with tiktoken, which downloads OpenAI's vocabularies.
    embeddings = OpenAIEmbeddings(**base, check_embedding_ctx_length=False)
    expected_vector = models("gpt2").embed([TEXT])[0].tolist()
    assert embeddings.embed_query(TEXT) == pytest.approx(expected_vector, abs=1e-6)
    assert ChatOpenAI(**base, max_tokens=4).invoke(TEXT).response_metadata["finish_reason"] == "length"


def test_llama_index(server: Running, models: Models) -> None:
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    base: Any = {"model": "gpt2", "api_base": f"{server.address}/m/gpt2/v1", "api_key": KEY, "context_window": 64}
    llm = OpenAILike(**base, is_chat_model=False, max_tokens=6, temperature=0)
    expected = models("gpt2").generate(TEXT, Greedy(), Stop(6)).text
    assert llm.complete(TEXT).text == expected
    assert "".join(part.delta or "" for part in llm.stream_complete(TEXT)) == expected
    chat = OpenAILike(**base, is_chat_model=True, max_tokens=4, temperature=0)
    answer = chat.chat([ChatMessage(role="user", content=TEXT)]).message.content
    assert answer == models("gpt2").generate(f"User: {TEXT}\nAssistant:", Greedy(), Stop(4)).text


@pytest.mark.skipif(shutil.which("curl") is None, reason="CURL ABSENT: the server is not tested with it")
def test_curl(server: Running, models: Models) -> None:
    body = json.dumps({"prompt": TEXT, "max_tokens": 6, "temperature": 0})
    command = ["curl", "-sS", f"{server.address}/m/lstm/v1/completions", "-H", "Content-Type: application/json"]
    done = subprocess.run([*command, "-d", body], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["choices"][0]["text"] == models("lstm").generate(TEXT, Greedy(), Stop(6)).text
    done = subprocess.run([*command, "-d", '{"nope": 1}'], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["error"]["param"] == "nope"
