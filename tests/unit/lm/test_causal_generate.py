"""Many prompts at once, of unequal length: each is written as if it were alone, by every kind of model."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.types import Beam, Contrastive, Greedy, Inputs, Piece, Sample, Stop, Vocabulary
from nextword.lm import causal as writing
from nextword.lm.causal import CausalLM
from nextword.lm.loading import wrap_network
from nextword.models.base import Network
from nextword.models.gpt1 import GPT1, GPT1Config
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.gpt3 import GPT3, GPT3Config
from nextword.models.ngram import NGram, NGramConfig
from nextword.models.nplm import NPLM, NPLMConfig
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.tokenizers import vocabulary
from nextword.tokenizers.characters import Bytes
from tests.support.toy_bigram import Bigram, Config

TOKENIZER = Bytes()
END = TOKENIZER.end
VOCABULARY = Vocabulary(len(TOKENIZER), TOKENIZER.begin, end=TOKENIZER.end)
SHAPE = {"width": 24, "layers": 2, "heads": 2, "window": 48, "dropout": 0.0}
PROMPTS = ["the king", "", "a", "the king of the land went", "Ångström, naïve", "the queen", "a"]


def lively(network: Any, seed: int = 0) -> Any:
    """Random weights of some size, so that every text is another, and ends now and then."""
    torch.manual_seed(seed)
    for p in network.parameters():
        nn.init.normal_(p, std=0.25)
    return network.eval()


def ngram(**config: Any) -> NGram:
    network = NGram(NGramConfig(order=3, **config), vocabulary(TOKENIZER))
    texts = ["the king of the land. ", "a queen went to the land of a king.", "Ångström and the king", "a b a c"]
    ids = np.concatenate([[*TOKENIZER.encode(text).ids, END] for text in texts])
    list(network.count(SimpleNamespace(ids=ids, folder=None, tokenizer_hash=""), None, {}))
    return network


MODELS = {
    "gpt1": lambda: lively(GPT1(GPT1Config(**SHAPE), VOCABULARY)),
    "gpt2": lambda: lively(GPT2(GPT2Config(**SHAPE), VOCABULARY)),
    "gpt3": lambda: lively(GPT3(GPT3Config(**SHAPE, local_window=8), VOCABULARY)),
    "lstm": lambda: lively(LSTM(RecurrentConfig(width=16, layers=2), VOCABULARY)),
    "lstm with words beside": lambda: lively(
        LSTM(RecurrentConfig(width=16, direct={"order": 3, "size": 600}), VOCABULARY)
    ),
    "nplm": lambda: lively(NPLM(NPLMConfig(context=3, embedding=8, width=16), VOCABULARY)),
    "ngram": ngram,
    "ngram with a cache": lambda: ngram(cache=20),
    "bigram": lambda: Bigram(Config(), VOCABULARY),
}


@pytest.fixture(scope="module", params=MODELS)
def lm(request: pytest.FixtureRequest) -> CausalLM:
    return wrap_network(MODELS[request.param](), TOKENIZER)


@pytest.fixture(scope="module")
def gpt() -> CausalLM:
    return wrap_network(MODELS["gpt2"](), TOKENIZER)


def alone(lm: CausalLM, prompts: list[str], how: Any, stop: Stop) -> list[list[Piece]]:
    seeds = [replace(how, seed=how.seed + i) if isinstance(how, Sample) else how for i in range(len(prompts))]
    return [list(lm.generate(prompt, one, stop)) for prompt, one in zip(prompts, seeds, strict=True)]


def same(many: list[list[Piece]], single: list[list[Piece]]) -> None:
    assert [[(p.text, p.ids, p.reason) for p in row] for row in many] == [
        [(p.text, p.ids, p.reason) for p in row] for row in single
    ]
    for row, other in zip(many, single, strict=True):
        assert [p.log_prob for p in row] == pytest.approx([p.log_prob for p in other], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    "how",
    [
        Greedy(),
        Greedy(repetition=1.3, no_repeat=3, bias={"e": 1.0, "t": -torch.inf}),
        Sample(0.9, seed=4),
        Sample(0.9, top_k=40, top_p=0.95, min_p=0.01, typical=0.9, seed=7),
        Beam(3, 0.6),
    ],
    ids=["greedy", "greedy, ruled", "drawn", "drawn, narrowed", "beam"],
)
def test_generate_many_equals_each_prompt_alone(lm: CausalLM, how: Any) -> None:
    stop = Stop(16, min_tokens=2)
    same(lm.generate_many(PROMPTS, how, stop), alone(lm, PROMPTS, how, stop))


def test_generate_many_does_not_depend_on_neighbors(lm: CausalLM) -> None:
    how, stop = Sample(seed=3), Stop(12)
    some = lm.generate_many(PROMPTS, how, stop)
    others = lm.generate_many([*PROMPTS[:3], "quite another prompt", "b", *PROMPTS[5:]], how, stop)
    same([some[i] for i in (0, 1, 2, 5, 6)], [others[i] for i in (0, 1, 2, 5, 6)])
    assert [p.ids for p in some[2]] != [p.ids for p in some[6]]  # the same prompt, with another seed


@pytest.mark.parametrize("length", [10, 40])
@pytest.mark.parametrize("slug", ["gpt1", "gpt2", "gpt3"])
def test_generate_many_beyond_the_window_equals_each_alone(slug: str, length: int) -> None:
    """Prompts that fit with all that is written, that outgrow the window meanwhile, and that never fitted."""
    lm = wrap_network(MODELS[slug](), TOKENIZER)
    prompts = ["ab" * n for n in (1, 4, 12, 20, 23, 24, 40, 60)] + ["ba" * 23, ""]
    stop = Stop(length, at_end=False)
    same(lm.generate_many(prompts, Greedy(), stop), alone(lm, prompts, Greedy(), stop))


def test_stop_strings_end_each_row_separately(lm: CausalLM) -> None:
    how, stop = Sample(seed=1), Stop(25, at_end=False)
    free = ["".join(p.text for p in row) for row in lm.generate_many(PROMPTS, how, stop)]
    marks = tuple(text[3:5] for text in free[:2] if len(text) > 4)
    assert marks
    stopped = lm.generate_many(PROMPTS, how, replace(stop, strings=marks))
    for text, row in zip(free, stopped, strict=True):
        found = [(text.find(mark) + 2, text.find(mark)) for mark in marks if mark in text]
        assert "".join(p.text for p in row) == (text[: min(found)[1]] if found else text)
        assert row[-1].reason == ("stop" if found else "length")
    assert {row[-1].reason for row in stopped} >= {"stop"}


def test_ended_rows_are_not_computed() -> None:
    network = MODELS["lstm"]()
    rows: list[int] = []
    step = network.step

    def counted(last: Any, state: Any) -> Any:
        rows.append(len(last))
        return step(last, state)

    network.step = counted
    written = wrap_network(network, TOKENIZER).generate_many(["a"] * 12, Sample(seed=0, bias={END: 5.0}), Stop(40))
    assert len(rows) == max(map(len, written))
    assert sum(rows) == sum(map(len, written)) < 12 * len(rows)


def test_generate_many_splits_large_batches(gpt: CausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gpt.generate_many(PROMPTS, Greedy(), Stop(6))
    monkeypatch.setattr(writing, "BATCH_TOKENS", 40)
    same(gpt.generate_many(PROMPTS, Greedy(), Stop(6)), whole)


def test_generate_many_without_prompts_or_length_is_empty(lm: CausalLM) -> None:
    assert lm.generate_many([]) == []
    assert lm.generate_many(["a", "b"], Greedy(), Stop(0)) == [[], []]
    assert list(lm.generate("a", Greedy(), Stop(0))) == []


def test_min_tokens_forbids_the_end(lm: CausalLM) -> None:
    how = Sample(seed=0, bias={END: 20.0})
    early = lm.generate_many(PROMPTS, how, Stop(20))
    late = lm.generate_many(PROMPTS, how, Stop(20, min_tokens=5))
    assert any(len(row) < 6 for row in early)
    for row in late:
        assert END not in [id for p in row[:5] for id in p.ids]
    assert {len(row) for row in late} >= {6}
    for how in (Beam(3, bias={END: 20.0}), Greedy(bias={END: 20.0})):
        assert [len(row) for row in lm.generate_many(PROMPTS, how, Stop(20, min_tokens=5))] == [6] * len(PROMPTS)


def test_bias_equals_hand_computation(gpt: CausalLM) -> None:
    """Greedy with a bias, against the model's own log p with the bias added to it, read anew for every token."""
    bias = {ord("e"): 3.0, ord("a"): -1.5, END: -torch.inf}
    ids = TOKENIZER.encode("the king").ids.tolist()
    expected = []
    for _ in range(12):
        row = torch.tensor([[TOKENIZER.begin, *ids, *expected]])
        with torch.no_grad():
            layers, _ = gpt.network.hidden(Inputs(row), None)
            scores = gpt.network.readout.log_probs(layers[-1][:, -1])[0]
        for id, value in bias.items():
            scores[id] += value
        expected.append(int(scores.argmax()))
    for given in (bias, {"e": 3.0, "a": -1.5, "<|endoftext|>": -torch.inf}):
        written = gpt.generate("the king", Greedy(bias=given), Stop(12))
        assert [id for p in written for id in p.ids] == expected
    free = [id for p in gpt.generate("the king", Greedy(), Stop(12)) for id in p.ids]
    assert free != expected


@pytest.mark.parametrize(
    ("how", "word"),
    [
        (Greedy(bias={"the": 1.0}), "3 tokens"),
        (Greedy(bias={"": 1.0}), "0 tokens"),
        (Greedy(bias={999: 1.0}), "999"),
        (Greedy(bias={"a": 1.0, 97: 1.0}), "97"),
        (Greedy(bias={"a": torch.inf}), "-inf"),
        (Sample(typical=0.0), "typical"),
        (Contrastive(alpha=2.0), "alpha"),
    ],
)
def test_invalid_decoding_is_rejected_before_the_first_piece(gpt: CausalLM, how: Any, word: str) -> None:
    with pytest.raises(NextwordError, match=word):
        gpt.generate("a", how)
    with pytest.raises(NextwordError, match=word):
        gpt.generate_many(["a"], how)


def test_min_tokens_above_the_length_is_rejected(gpt: CausalLM) -> None:
    with pytest.raises(NextwordError, match="min_tokens"):
        gpt.generate("a", stop=Stop(4, min_tokens=5))


# ------------------------------------------------------------------------------------------------ overflow


def test_long_prompt_slides_or_is_rejected(gpt: CausalLM) -> None:
    """The window holds 48 tokens, the first of them the beginning's; when it is full it moves on by 24."""
    for length, gone in [(0, 0), (47, 0), (48, 23), (71, 23), (72, 47), (95, 47), (96, 71)]:
        assert gpt.num_overflowing("a" * length) == gone
    assert len(list(gpt.generate("a" * 48, stop=Stop(3, at_end=False)))) == 3
    assert len(list(gpt.generate("a" * 47, stop=Stop(3, at_end=False), overflow="error"))) == 3
    for call in (
        lambda: gpt.generate("a" * 48, overflow="error"),
        lambda: gpt.generate_many(["a", "a" * 48], overflow="error"),
    ):
        with pytest.raises(InvalidSetting) as invalid:
            call()
        assert (invalid.value.key, invalid.value.value) == ("prompt", "a" * 30)
    with pytest.raises(InvalidSetting, match="slide or error"):
        gpt.generate("a", overflow="cut")


def test_tokens_beyond_the_window_do_not_matter(gpt: CausalLM) -> None:
    prompt = "the king of the land went to see his house and all of it"
    gone = gpt.num_overflowing(prompt)
    assert gone > 0
    other = "X" * gone + prompt[gone:]
    stop = Stop(5, at_end=False)
    assert [p.ids for p in gpt.generate(prompt, stop=stop)] == [p.ids for p in gpt.generate(other, stop=stop)]
    nearer = prompt[:gone] + "X" + prompt[gone + 1 :]
    with torch.no_grad():
        rows = [TOKENIZER.encode(text).ids.tolist() for text in (prompt, other, nearer)]
        first = [gpt.network.step(*gpt._read_prompts([ids]))[0] for ids in rows]
    torch.testing.assert_close(first[0], first[1])
    assert not torch.allclose(first[0], first[2], atol=1e-4)


def test_num_overflowing_of_an_unlimited_model_is_zero() -> None:
    for name in ("lstm", "nplm", "ngram"):
        lm = wrap_network(MODELS[name](), TOKENIZER)
        assert lm.num_overflowing("a" * 500) == 0
        assert len(list(lm.generate("a" * 500, stop=Stop(2, at_end=False), overflow="error"))) == 2


# ------------------------------------------------------------------------------------------------ whole characters


def test_pieces_hold_complete_characters() -> None:
    """Bytes as tokens, and a model that writes "é✓東" over and over: a piece may be empty, and is never half."""
    text = "é✓東"
    ids = TOKENIZER.encode(text).ids.tolist()

    class Loop(Network):
        """The next of the bytes, always; state: how many were written."""

        window = None

        def start(self, batch: int, source: Any = None) -> Any:
            return torch.full((batch,), END), torch.zeros(batch, dtype=torch.long)

        def step(self, last: Any, state: Any) -> Any:
            log_p = torch.full((len(last), len(TOKENIZER)), -50.0)
            log_p[torch.arange(len(last)), torch.tensor(ids)[state % len(ids)]] = 0.0
            return log_p, state + 1

        def score(self, rows: Any, lengths: Any, state: Any) -> Any:
            return torch.zeros(len(rows), rows.shape[1] - 1), state  # the prompt does not matter

    lm = wrap_network(Loop(None, vocabulary(TOKENIZER)), TOKENIZER)
    whole = text * 3
    for length in range(1, 3 * len(ids) + 1):
        expected = (text.encode() * 3)[:length].decode("utf-8", "ignore")
        for pieces in (list(lm.generate("x", stop=Stop(length))), lm.generate_many(["x", "yz"], stop=Stop(length))[1]):
            assert len(pieces) == length
            assert "".join(p.text for p in pieces) == expected
            assert whole.startswith(expected)
            assert "\ufffd" not in expected
    pieces = list(lm.generate("x", stop=Stop(20, strings=("✓東é",))))
    assert "".join(p.text for p in pieces) == "é"
    assert pieces[-1].reason == "stop"


# ------------------------------------------------------------------------------------------------ contrastive


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "gpt3", "lstm", "lstm with words beside", "nplm"])
def test_contrastive_search_without_penalty_is_greedy(name: str) -> None:
    lm, stop = wrap_network(MODELS[name](), TOKENIZER), Stop(14)
    greedy = alone(lm, PROMPTS, Greedy(), stop)
    same(lm.generate_many(PROMPTS, Contrastive(5, 0.0), stop), greedy)
    same(lm.generate_many(PROMPTS, Contrastive(1, 0.9), stop), greedy)
    other = lm.generate_many(PROMPTS, Contrastive(5, 0.9), stop)
    assert [[p.ids for p in row] for row in other] != [[p.ids for p in row] for row in greedy]
    same(other, alone(lm, PROMPTS, Contrastive(5, 0.9), stop))


@pytest.mark.parametrize("name", ["gpt2", "lstm"])
@pytest.mark.parametrize("alpha", [0.3, 0.6, 1.0])
def test_contrastive_search_equals_reading_everything_again(name: str, alpha: float) -> None:
    lm = wrap_network(MODELS[name](), TOKENIZER)
    network, k = lm.network, 6
    for prompt in ("the king", ""):
        row = [TOKENIZER.begin, *TOKENIZER.encode(prompt).ids.tolist()]
        expected = []
        for _ in range(10):
            with torch.no_grad():
                before = network.hidden(Inputs(torch.tensor([row])), network.initial(1))[0][-1][0]
                log_p = network.readout.log_probs(before[-1:])[0]
                best = (-np.inf, -1)
                for id in log_p.topk(k).indices.tolist():
                    after = network.hidden(Inputs(torch.tensor([[*row, id]])), network.initial(1))[0][-1][0]
                    likeness = max(float(torch.cosine_similarity(after[-1], h, dim=0)) for h in before)
                    best = max(best, ((1 - alpha) * float(log_p[id].exp()) - alpha * likeness, id))
            expected.append((best[1], float(log_p[best[1]])))
            row.append(best[1])
        pieces = list(lm.generate(prompt, Contrastive(k, alpha), Stop(10, at_end=False)))
        assert [p.ids[0] for p in pieces] == [id for id, _ in expected]
        assert [p.log_prob for p in pieces] == pytest.approx([p for _, p in expected], abs=1e-4)


def test_contrastive_search_applies_the_decoding_rules(gpt: CausalLM) -> None:
    how = Contrastive(8, 0.6, no_repeat=1, bias={END: 20.0})
    pieces = list(gpt.generate("ab", how, Stop(30, min_tokens=9)))
    ids = [97, 98, *(p.ids[0] for p in pieces)]
    assert len(set(ids)) == len(ids) == 12
    assert pieces[-1].reason == "end"
    assert list(gpt.generate("ab", Contrastive(4, bias={id: -torch.inf for id in range(257)})))[-1].reason == "end"


@pytest.mark.parametrize("name", ["ngram", "bigram"])
def test_contrastive_search_needs_vectors(name: str) -> None:
    lm = wrap_network(MODELS[name](), TOKENIZER)
    with pytest.raises(Unsupported):
        lm.generate("a", Contrastive())
    with pytest.raises(Unsupported):
        lm.generate_many(["a"], Contrastive())
