"""Models, tokens, vectors and chats in the form of OpenAI's API."""

from __future__ import annotations

import base64
from collections.abc import Callable

import numpy as np
import pytest

from nextword.core.types import Greedy, Sample, Stop
from nextword.evaluation.seq2seq import max_target_length
from nextword.lm.base import TextModel
from nextword.server.catalog import Catalog
from tests.support.running_server import Running, run_server

Models = Callable[[str], TextModel]
TEXT = "the king of a land"


def test_models_are_listed_with_their_facts(server: Running, models: Models) -> None:
    listed = {entry["id"]: entry for entry in server.client.get("/v1/models").json()["data"]}
    assert list(listed) == list(server.folders)
    for name, entry in listed.items():
        assert server.client.get(f"/v1/models/{name}").json()["id"] == name
        facts = entry["nextword"]
        assert facts["parameters"] == models(name).parameters
        assert entry["object"] == "model"
    assert listed["gpt2"]["max_model_len"] == 64
    assert listed["gpt2"]["nextword"]["bits_per_byte"] > 0
    assert server.client.get("/v1/models/nope").status_code == 404
    assert [entry["id"] for entry in server.client.get("/m/lstm/v1/models").json()["data"]] == ["lstm"]


def test_abilities_are_known_before_a_model_is_loaded(server: Running, models: Models) -> None:
    catalog = Catalog(server.folders)
    for name in server.folders:
        before = catalog.describe(name, None, "unloaded")["nextword"]
        after = catalog.describe(name, models(name), "loaded")["nextword"]
        if before["task"] is None:
            assert before["abilities"] == after["abilities"] == sorted(models(name).can)
            assert before["tokenizer"] == after["tokenizer"]
            assert before["infills"] == after["infills"]
        else:
            assert set(before["abilities"]) <= models(name).can


@pytest.mark.parametrize("name", ["gpt2", "lstm", "ngram", "bert", "seq2seq"])
def test_tokens_and_texts_convert_into_each_other(server: Running, models: Models, name: str) -> None:
    tokenizer = models(name).tokenizer
    encoding = tokenizer.encode(TEXT)
    answer = server.post(f"/m/{name}/tokenize", {"prompt": TEXT, "return_token_strs": True})
    assert answer["tokens"] == encoding.ids.tolist()
    assert answer["spans"] == encoding.spans.tolist()
    assert answer["count"] == len(answer["token_strs"]) == len(encoding)
    assert server.post(f"/m/{name}/detokenize", {"tokens": answer["tokens"]})["prompt"] == tokenizer.decode(
        encoding.ids
    )
    begun = server.post(f"/m/{name}/tokenize", {"prompt": TEXT, "add_special_tokens": True})["tokens"]
    assert begun == [tokenizer.begin, *answer["tokens"]]
    server.post(f"/m/{name}/detokenize", {"tokens": [len(tokenizer)]}, 400)


def test_long_texts_are_encoded_in_a_thread(server: Running, models: Models) -> None:
    text = "the king of a land " * 2000
    ids = models("lstm").tokenizer.encode(text).ids.tolist()
    assert server.post("/m/lstm/tokenize", {"prompt": text})["tokens"] == ids
    assert server.post("/m/lstm/detokenize", {"tokens": ids})["prompt"] == text


def test_tokenizer_info_names_special_tokens(server: Running, models: Models) -> None:
    for name in ("gpt2", "ngram", "bert"):
        info, tokenizer = server.client.get(f"/m/{name}/tokenizer_info").json(), models(name).tokenizer
        assert server.client.get("/tokenizer_info", params={"model": name}).json() == info
        assert info["vocab_size"] == len(tokenizer)
        for key, id in (("bos_token", tokenizer.begin), ("eos_token", tokenizer.end)):
            expected = None if id is None else [id]
            assert (info[key] is None) == (expected is None)
            if expected:
                assert server.post(f"/m/{name}/tokenize", {"prompt": info[key]})["tokens"] == expected
    assert server.client.get("/tokenizer_info").status_code == 400  # of which model?


# ------------------------------------------------------------------------------------------------ vectors


@pytest.mark.parametrize("name", ["gpt2", "bert", "word2vec", "topics"])
def test_embeddings_equal_embed(server: Running, models: Models, name: str) -> None:
    texts = [TEXT, "bread"]
    expected = models(name).embed(texts).float().numpy()
    plain = server.post(f"/m/{name}/v1/embeddings", {"input": texts})
    packed = server.post(f"/m/{name}/v1/embeddings", {"input": texts, "encoding_format": "base64"})
    for row, a, b in zip(expected, plain["data"], packed["data"], strict=True):
        np.testing.assert_allclose(a["embedding"], row, atol=1e-6)
        np.testing.assert_array_equal(
            np.frombuffer(base64.b64decode(b["embedding"]), "<f4"), np.float32(a["embedding"])
        )
    one = server.post(f"/m/{name}/v1/embeddings", {"input": TEXT, "layer": "0", "pooling": "max"})
    np.testing.assert_allclose(one["data"][0]["embedding"], models(name).embed([TEXT], "0", "max")[0], atol=1e-6)
    assert plain["usage"]["prompt_tokens"] == sum(len(models(name).tokenizer.encode(text)) for text in texts)


def test_embeddings_of_ids_are_those_of_their_text(server: Running, models: Models) -> None:
    ids = models("gpt2").tokenizer.encode(TEXT).ids.tolist()
    expected = server.post("/m/gpt2/v1/embeddings", {"input": [TEXT]})["data"]
    assert server.post("/m/gpt2/v1/embeddings", {"input": ids})["data"] == expected
    assert server.post("/m/gpt2/v1/embeddings", {"input": [ids]})["data"] == expected
    server.post("/m/bert/v1/embeddings", {"input": [5, 6]}, 400)  # its tokenizer forgets spaces
    server.post("/m/gpt2/v1/embeddings", {"input": []}, 400)
    server.post("/m/gpt2/v1/embeddings", {"input": [TEXT], "layer": "99"}, 400)
    server.post("/m/ngram/v1/embeddings", {"input": TEXT}, 400)


# ------------------------------------------------------------------------------------------------ chats


def test_chat_continues_the_template(server: Running, models: Models) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": TEXT}]},
    ]
    prompt = f"System: Be brief.\nUser: {TEXT}\nAssistant:"
    stop = Stop(8, ("\nUser:", "\nSystem:"))
    body = {"messages": messages, "max_tokens": 8, "seed": 3}
    answer = server.post("/m/gpt2/v1/chat/completions", body)
    expected = models("gpt2").generate(prompt, Sample(seed=3), stop).text
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": expected, "refusal": None}
    chunks = server.events("/m/gpt2/v1/chat/completions", body | {"stream": True})
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert all("role" not in delta for delta in deltas[1:])
    assert "".join(delta["content"] for delta in deltas) == expected
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    entries = server.post("/m/gpt2/v1/chat/completions", body | {"logprobs": True, "top_logprobs": 2})
    for entry in entries["choices"][0]["logprobs"]["content"]:
        assert {"token": entry["token"], "logprob": entry["logprob"], "bytes": entry["bytes"]} in entry["top_logprobs"]


def test_chat_with_seq2seq_takes_the_last_message_of_the_user(server: Running, models: Models) -> None:
    lm = models("seq2seq")
    messages = [{"role": "user", "content": "bread"}, {"role": "user", "content": TEXT}]
    answer = server.post("/m/seq2seq/v1/chat/completions", {"messages": messages, "temperature": 0})
    expected = lm.generate(TEXT, Greedy(), Stop(max_target_length(lm, [TEXT]))).text  # type: ignore[arg-type]
    assert answer["choices"][0]["message"]["content"] == expected
    server.post("/m/seq2seq/v1/chat/completions", {"messages": [{"role": "system", "content": "x"}]}, 400)


@pytest.mark.parametrize(
    "body", [{"messages": []}, {}, {"messages": [{"role": "tool", "content": "x"}]}, {"top_logprobs": 2}, {"tools": []}]
)
def test_wrong_chats_are_refused(server: Running, body: dict[str, object]) -> None:
    base = {"messages": [{"role": "user", "content": "x"}]} if "messages" not in body and body else {}
    server.post("/m/gpt2/v1/chat/completions", base | body, 400)


def test_chat_needs_a_template(server: Running) -> None:
    with run_server({"lstm": server.folders["lstm"]}) as plain:
        assert plain.client.post("/v1/chat/completions", json={}).status_code == 404
        assert "/v1/chat/completions" not in plain.client.get("/openapi.json").json()["paths"]
        assert plain.post("/v1/completions", {"prompt": "x", "max_tokens": 1})["model"] == "lstm"  # the only one
