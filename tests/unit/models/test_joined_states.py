"""Rows that join, leave and continue side by side, each after a text of its own, as if each were alone."""

from __future__ import annotations

import random

import pytest
import torch

from nextword.core import pytree
from nextword.core.types import Inputs, State, Vocabulary
from nextword.models.awd_lstm import AWDLSTM, AWDConfig
from nextword.models.base import CausalNetwork
from nextword.models.gpt1 import GPT1, GPT1Config
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.gpt3 import GPT3, GPT3Config
from nextword.models.nplm import NPLM, NPLMConfig
from nextword.models.rnn import GRU, LSTM, RNN, ElmanConfig, RecurrentConfig
from nextword.models.xlnet import XLNet, XLNetConfig

WORDS = Vocabulary(23, 0, {}, 1)
SMALL = {"width": 8, "layers": 2, "heads": 2, "dropout": 0.0}
NETWORKS = {
    "gpt1": lambda: GPT1(GPT1Config(**SMALL, window=12), WORDS),
    "gpt2": lambda: GPT2(GPT2Config(**SMALL, window=12), WORDS),
    "gpt2, window of 1": lambda: GPT2(GPT2Config(**SMALL, window=1), WORDS),
    "gpt3": lambda: GPT3(GPT3Config(**SMALL, window=12, local_window=4), WORDS),
    "xlnet": lambda: XLNet(XLNetConfig(**SMALL, ffn_width=16, memory=5, init_std=0.3), WORDS),
    "nplm": lambda: NPLM(NPLMConfig(context=3, embedding=4, width=8), WORDS),
    "rnn": lambda: RNN(ElmanConfig(width=8), WORDS),
    "gru": lambda: GRU(RecurrentConfig(width=8), WORDS),
    "lstm": lambda: LSTM(RecurrentConfig(width=8, layers=2), WORDS),
    "awd-lstm": lambda: AWDLSTM(AWDConfig(embedding=6, width=8, layers=2), WORDS),
    "awd-lstm, qrnn": lambda: AWDLSTM(AWDConfig(embedding=6, width=8, layers=2, cell="qrnn"), WORDS),
}


def build(kind: str) -> CausalNetwork:
    torch.manual_seed(1)
    network = NETWORKS[kind]().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    return network


def read(network: CausalNetwork, ids: list[int]) -> State:
    """The state after reading these tokens, as generation reads a prompt."""
    state = network.start(1)[1]
    return network.encode(Inputs(torch.tensor([ids])), state)[1] if ids else state


@torch.no_grad()
@pytest.mark.parametrize("kind", NETWORKS)
def test_rows_that_come_and_go_equal_rows_alone(kind: str) -> None:
    network, rng = build(kind), random.Random(2)
    texts: list[list[int]] = []  # of each row of the batch
    alone: list[State] = []
    state: State = None
    for _ in range(60):
        while len(texts) < 2 or (len(texts) < 7 and rng.random() < 0.3):
            text = [rng.randrange(23) for _ in range(rng.choice([0, 1, 3, 11, 12, 13, 30]))]
            joined = read(network, text)
            state = network.join([joined] if state is None else [state, joined])
            texts.append(text)
            alone.append(read(network, text))
        last = torch.tensor([rng.randrange(23) for _ in texts])
        log_probs, state = network.step(last, state)
        for row in range(len(texts)):
            expected, alone[row] = network.step(last[row : row + 1], alone[row])
            torch.testing.assert_close(log_probs[row], expected[0], atol=1e-5, rtol=0)
        if len(texts) > 2 and rng.random() < 0.3:
            order = list(range(len(texts)))
            rng.shuffle(order)
            order = order[: rng.randrange(2, len(order))]
            state = network.take(state, torch.tensor(order))
            texts, alone = [texts[i] for i in order], [alone[i] for i in order]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt1", "gpt2", "gpt3"])
def test_state_truncated_equals_state_of_the_shorter_text(kind: str) -> None:
    network, ids = build(kind), torch.arange(60) % 23
    last = torch.tensor([5])
    known = []
    for read_tokens in (5, 12, 13, 18, 19, 40):
        for count in range(1, read_tokens + 1):
            state = network.encode(Inputs(ids[None, :read_tokens]), network.start(1)[1])[1]
            shorter = network.truncate(state, read_tokens, count)
            if shorter is None:
                continue
            known.append((read_tokens, count))
            expected = network.encode(Inputs(ids[None, :count]), network.start(1)[1])[1]
            log_probs, _ = network.step(last, pytree.clone(shorter))
            torch.testing.assert_close(log_probs, network.step(last, expected)[0], atol=1e-5, rtol=0)
    assert {(5, 1), (12, 1), (18, 13), (40, 37)} <= set(known)
    assert not {(13, 12), (19, 18), (40, 36)} & set(known)


@torch.no_grad()
def test_state_of_a_recurrent_network_cannot_be_truncated() -> None:
    network = build("lstm")
    state = read(network, [3, 4, 5])
    assert network.truncate(state, 3, 3) is state
    assert network.truncate(state, 3, 2) is None


@torch.no_grad()
def test_row_that_joins_where_there_is_room_moves_no_other() -> None:
    network = build("gpt2")
    state = network.join([read(network, [1, 2]), read(network, [3]), read(network, [4])])
    place = state["layers"][0][0].data_ptr()
    state = network.join([state, read(network, [5, 6, 7])])
    state = network.take(state, torch.tensor([0, 3, 2]))
    state = network.join([state, read(network, [8])])
    assert state["layers"][0][0].data_ptr() == place
    assert state["length"].tolist() == [2, 3, 1, 1]


@torch.no_grad()
def test_memory_of_rows_that_left_is_given_back() -> None:
    network = build("gpt2")
    state = network.join([read(network, [i, 1, 2]) for i in range(20)])
    assert len(state["ids"]) == 32
    state = network.take(state, torch.tensor([7, 3, 9, 1, 2]))
    assert len(state["ids"]) == 32
    state = network.take(state, torch.tensor([1, 0, 4]))
    assert len(state["ids"]) == len(state["layers"][0][0]) == 4
    log_probs, _ = network.step(torch.tensor([5, 5, 5]), state)
    for row, i in enumerate((3, 7, 2)):
        expected, _ = network.step(torch.tensor([5]), read(network, [i, 1, 2]))
        torch.testing.assert_close(log_probs[row], expected[0], atol=1e-5, rtol=0)
