"""/v1/completions gives what the models give, in the form that OpenAI's clients read."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from nextword.core.types import Beam, Greedy, Sample, Stop
from nextword.lm.base import TextModel
from tests.support.running_server import Running

Models = Callable[[str], TextModel]
CAUSAL = ("gpt2", "lstm", "ngram", "glm")
PROMPT = "the king of a land"


def complete(server: Running, name: str, status: int = 200, **body: Any) -> Any:
    return server.post(f"/m/{name}/v1/completions", {"prompt": PROMPT, **body}, status)


def text_of(lm: TextModel, prompt: str, decoding: Any, **stop: Any) -> str:
    return lm.generate(prompt, decoding, Stop(**stop)).text


# ------------------------------------------------------------------------------------------------ texts


@pytest.mark.parametrize("name", [*CAUSAL, "seq2seq"])
def test_texts_equal_generate(server: Running, models: Models, name: str) -> None:
    for settings, decoding in (
        ({"temperature": 0}, Greedy()),
        ({"seed": 5, "temperature": 0.7, "top_p": 0.9, "top_k": 20}, Sample(0.7, 20, 0.9, 5)),
        ({"seed": 1, "min_p": 0.05, "repetition_penalty": 1.3}, Sample(seed=1, min_p=0.05, repetition=1.3)),
        ({"seed": 2, "frequency_penalty": 1.5, "presence_penalty": 0.5}, Sample(seed=2, frequency=1.5, presence=0.5)),
    ):
        answer = complete(server, name, max_tokens=12, **settings)
        assert answer["choices"][0]["text"] == text_of(models(name), PROMPT, decoding, max_tokens=12)
        assert answer["object"] == "text_completion"
        assert answer["model"] == name


def test_choices_have_seeds_of_their_own(server: Running, models: Models) -> None:
    prompts = [PROMPT, "all people"]
    answer = complete(server, "lstm", prompt=prompts, n=2, seed=3, max_tokens=10)
    expected = [
        text_of(models("lstm"), prompt, Sample(seed=3 + 2 * i + k), max_tokens=10)
        for i, prompt in enumerate(prompts)
        for k in range(2)
    ]
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]


def test_usage_counts_tokens(server: Running, models: Models) -> None:
    tokens = len(models("gpt2").tokenizer.encode(PROMPT))
    usage = complete(server, "gpt2", prompt=[PROMPT, PROMPT], n=2, max_tokens=3, ignore_eos=True)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2 * tokens, 4 * 3)
    assert usage["total_tokens"] == 2 * tokens + 12


def test_best_of_returns_the_likeliest_texts(server: Running) -> None:
    settings = {"seed": 7, "max_tokens": 8, "logprobs": 0, "temperature": 2.0}
    every = complete(server, "lstm", n=6, **settings)["choices"]
    best = complete(server, "lstm", n=2, best_of=6, **settings)["choices"]

    def mean(choice: Any) -> float:
        values = choice["logprobs"]["token_logprobs"]
        return sum(values) / len(values)

    assert [c["text"] for c in best] == [c["text"] for c in sorted(every, key=mean, reverse=True)[:2]]


def test_stop_strings_and_limits_end_texts(server: Running, models: Models) -> None:
    whole = text_of(models("ngram"), PROMPT, Greedy(), max_tokens=30)
    word = whole.split()[2]
    stopped = complete(server, "ngram", temperature=0, max_tokens=30, stop=[word])["choices"][0]
    assert stopped["text"] == whole[: whole.index(word)]
    assert stopped["finish_reason"] == "stop"
    assert complete(server, "ngram", temperature=0, max_tokens=2)["choices"][0]["finish_reason"] == "length"


def test_bias_and_min_tokens_are_obeyed(server: Running, models: Models) -> None:
    lm = models("gpt2")
    first = lm.tokenizer.encode(text_of(lm, PROMPT, Greedy(), max_tokens=1)).ids.tolist()
    other = complete(server, "gpt2", temperature=0, max_tokens=1, logit_bias={str(first[0]): -100})
    assert lm.tokenizer.encode(other["choices"][0]["text"]).ids.tolist() != first
    end = str(lm.tokenizer.end)
    forced = {"temperature": 0, "max_tokens": 5, "logit_bias": {end: 100}}
    assert complete(server, "gpt2", **forced)["usage"]["completion_tokens"] == 1
    assert complete(server, "gpt2", **forced, min_tokens=3)["usage"]["completion_tokens"] == 4
    assert complete(server, "gpt2", **forced, ignore_eos=True)["usage"]["completion_tokens"] == 5


def test_beam_search_equals_n_best(server: Running, models: Models) -> None:
    answer = complete(server, "gpt2", use_beam_search=True, best_of=4, n=2, length_penalty=0.6, max_tokens=6)
    best = models("gpt2").n_best(PROMPT, Beam(4, 0.6), Stop(6), 2)
    assert [choice["text"] for choice in answer["choices"]] == [candidate.text for candidate in best]


def test_suffix_inserts_text(server: Running, models: Models) -> None:
    filled = models("glm").infill("the king ___ of a land", Greedy(), Stop(6))[0]
    answer = complete(server, "glm", prompt="the king ", suffix=" of a land", max_tokens=6, temperature=0)
    assert answer["choices"][0]["text"] == filled.blanks[0]
    guesses = models("bert").fill("the ___ of a land", 2)[0]
    answer = complete(server, "bert", prompt="the ", suffix=" of a land", n=2)
    assert [choice["text"] for choice in answer["choices"]] == [guess.text for guess in guesses]
    complete(server, "lstm", 400, suffix="x")


def test_seq2seq_prompts_are_sources(server: Running, models: Models) -> None:
    ids = models("seq2seq").tokenizer.encode(PROMPT).ids.tolist()
    texts = [complete(server, "seq2seq", prompt=p, temperature=0)["choices"][0]["text"] for p in (PROMPT, ids)]
    assert texts[0] == texts[1] == text_of(models("seq2seq"), PROMPT, Greedy(), max_tokens=16)
    complete(server, "seq2seq", 400, echo=True, logprobs=1)


# ------------------------------------------------------------------------------------------------ log-probabilities


@pytest.mark.parametrize("name", CAUSAL)
def test_echo_gives_the_score_of_the_prompt(server: Running, models: Models, name: str) -> None:
    lm = models(name)
    ids = lm.tokenizer.encode(PROMPT).ids.tolist()
    nats = lm.token_nats([lm.tokenizer.encode(PROMPT).ids])[0]
    answer = complete(server, name, echo=True, logprobs=2, max_tokens=0)["choices"][0]
    arrays = answer["logprobs"]
    assert answer["text"] == PROMPT
    assert answer["finish_reason"] == "length"
    assert {len(array) for array in arrays.values()} == {len(ids)}
    assert arrays["token_logprobs"][0] is arrays["top_logprobs"][0] is None
    assert arrays["token_logprobs"][1:] == pytest.approx([-value for value in nats[1:]], abs=1e-5)
    starts = [*arrays["text_offset"], len(PROMPT)]
    if lm.tokenizer.lossless:
        assert [PROMPT[a:b] for a, b in pairwise(starts)] == arrays["tokens"]
    rows = zip(arrays["tokens"], arrays["token_logprobs"], arrays["top_logprobs"], strict=True)
    for token, own, top in list(rows)[1:]:
        assert top[token] == own  # the same number, so that clients can compare
        assert 2 <= len(top) <= 3
        assert max(top.values()) >= own


@pytest.mark.parametrize("name", CAUSAL)
def test_begin_token_is_read_once(server: Running, models: Models, name: str) -> None:
    lm = models(name)
    ids = lm.tokenizer.encode(PROMPT).ids.tolist()
    settings = {"echo": True, "logprobs": 1, "max_tokens": 3, "temperature": 0}
    bare = complete(server, name, prompt=ids, **settings)["choices"][0]["logprobs"]
    begun = complete(server, name, prompt=[lm.tokenizer.begin, *ids], **settings)["choices"][0]["logprobs"]
    assert begun["token_logprobs"][0] is None
    assert begun["token_logprobs"][2:] == pytest.approx(bare["token_logprobs"][1:])
    first = -float(lm.token_nats([lm.tokenizer.encode(PROMPT).ids])[0][0])
    assert begun["token_logprobs"][1] == pytest.approx(first, abs=1e-5)  # the first token has one after the begin token
    alone = complete(server, name, prompt=[lm.tokenizer.begin], **settings)["choices"][0]["logprobs"]
    assert alone["token_logprobs"][0] is None
    assert len(alone["tokens"]) == 4


def test_echo_covers_prompt_and_text_with_its_end(server: Running, models: Models) -> None:
    lm = models("gpt2")
    bias = {str(lm.tokenizer.end): 100}
    choice = complete(server, "gpt2", echo=True, logprobs=1, max_tokens=5, temperature=0, logit_bias=bias)["choices"][0]
    arrays = choice["logprobs"]
    assert arrays["tokens"][-1] == "<|endoftext|>"  # lm-eval leaves out the last of all tokens, so it must be there
    assert len(arrays["tokens"]) == len(lm.tokenizer.encode(PROMPT)) + 1
    assert choice["text"] == PROMPT
    assert arrays["text_offset"][-1] == len(PROMPT)


def test_impossible_tokens_have_a_finite_number(server: Running, models: Models) -> None:
    lm = models("ngram")
    begin = lm.tokenizer.begin
    ids = [*lm.tokenizer.encode("the king").ids.tolist(), begin, begin]
    arrays = complete(server, "ngram", prompt=ids, echo=True, logprobs=1, max_tokens=0)["choices"][0]["logprobs"]
    assert all(value >= -9999.0 and math.isfinite(value) for value in arrays["token_logprobs"][1:])


def test_bytes_that_are_no_text_have_distinct_names(server: Running) -> None:
    answer = complete(server, "lstm", prompt="é€", echo=True, logprobs=3, max_tokens=0)["choices"][0]
    assert answer["logprobs"]["tokens"] == [f"bytes:\\x{byte:02x}" for byte in "é€".encode()]
    assert answer["logprobs"]["text_offset"] == [0, 0, 1, 1, 1] or answer["logprobs"]["text_offset"] == [0, 1, 1, 2, 2]


def test_prompt_logprobs_have_vllms_form(server: Running, models: Models) -> None:
    lm = models("gpt2")
    ids = lm.tokenizer.encode(PROMPT).ids.tolist()
    entries = complete(server, "gpt2", prompt_logprobs=2, max_tokens=1)["choices"][0]["prompt_logprobs"]
    assert entries[0] is None
    nats = lm.token_nats([lm.tokenizer.encode(PROMPT).ids])[0]
    for id, cost, entry in zip(ids[1:], nats[1:], entries[1:], strict=True):
        assert entry[str(id)]["logprob"] == pytest.approx(-cost, abs=1e-5)
        assert len(entry) in (2, 3)


def test_sampled_tokens_have_the_models_own_log_probs(server: Running, models: Models) -> None:
    pieces = models("lstm").generate(PROMPT, Sample(0.5, seed=9), Stop(8)).pieces
    arrays = complete(server, "lstm", temperature=0.5, seed=9, max_tokens=8, logprobs=0)["choices"][0]["logprobs"]
    assert arrays["token_logprobs"] == pytest.approx([piece.log_prob for piece in pieces], abs=1e-5)
    assert [list(top) for top in arrays["top_logprobs"]] == [[token] for token in arrays["tokens"]]


# ------------------------------------------------------------------------------------------------ streams


@pytest.mark.parametrize("more", [{}, {"logprobs": 1}, {"echo": True}, {"echo": True, "logprobs": 2}, {"n": 3}])
def test_stream_has_the_same_content(server: Running, more: Any) -> None:
    body = {"prompt": PROMPT, "max_tokens": 9, "seed": 4, "stop": ["q"], **more}
    whole = server.post("/m/lstm/v1/completions", body)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = server.events("/m/lstm/v1/completions", body | options)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert len({chunk["id"] for chunk in [*chunks, last]}) == 1
    assert all(chunk["usage"] is None for chunk in chunks)
    for choice in whole["choices"]:
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert "".join(c["text"] for c in own) == choice["text"]
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == [choice["finish_reason"]]
        if "logprobs" in more:
            for key, values in choice["logprobs"].items():
                assert [value for c in own for value in c["logprobs"][key]] == values


def test_stream_without_usage_has_none(server: Running) -> None:
    chunks = server.events("/m/gpt2/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "stream": True})
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


def test_streams_side_by_side_are_not_mixed(server: Running, models: Models) -> None:
    cases = [(("lstm", "ngram")[i % 2], " ".join(PROMPT.split()[: 1 + i % 5]), i, 5 + 7 * i % 40) for i in range(100)]

    def ask(case: tuple[str, str, int, int]) -> str:
        name, prompt, seed, length = case
        body = {"prompt": prompt, "seed": seed, "max_tokens": length, "stream": True}
        return "".join(chunk["choices"][0]["text"] for chunk in server.events(f"/m/{name}/v1/completions", body))

    with ThreadPoolExecutor(32) as threads:
        texts = list(threads.map(ask, cases))
    for text, (name, prompt, seed, length) in zip(texts, cases, strict=True):
        assert text == text_of(models(name), prompt, Sample(seed=seed), max_tokens=length)


# ------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"nope": 1}, "nope"),
        ({"max_tokens": "7"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 100}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": [], "max_tokens": None, "nope": []}, "nope"),
        ({"prompt": [[1], "x"]}, "prompt"),
        ({"prompt": [10**6]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ["x"] * 129}, "prompt"),
        ({"prompt": ["x"] * 128, "n": 3}, "best_of"),
        ({"prompt": "x" * 400_001}, "prompt"),
        ({"logit_bias": {"the": 1}}, "logit_bias"),
        ({"logit_bias": {"99999999": 1}}, "bias"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x"] * 33}, "stop"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"stream_options": {"nope": True}}, "stream_options"),
        ({"use_beam_search": True, "echo": True}, "echo"),
        ({"use_beam_search": True, "suffix": "x"}, "suffix"),
        ({"model": "lstm"}, "model"),
    ],
)
def test_wrong_fields_are_named(server: Running, body: Any, param: str) -> None:
    error = complete(server, "gpt2", 400, **body)["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"]


def test_models_that_cannot_generate_say_so(server: Running) -> None:
    for name in ("bert", "word2vec", "topics", "tags"):
        assert complete(server, name, 400)["error"]["code"] == "unsupported"


def test_unknown_and_missing_models_are_errors(server: Running) -> None:
    assert server.post("/v1/completions", {"prompt": "x", "model": "nope"}, 404)["error"]["code"] == "model_not_found"
    assert server.post("/m/nope/v1/completions", {"prompt": "x"}, 404)["error"]["code"] == "model_not_found"
    assert server.post("/v1/completions", {"prompt": "x"}, 400)["error"]["param"] == "model"
    assert server.post("/v1/completions", {"prompt": "x", "model": "gpt2"})["model"] == "gpt2"
