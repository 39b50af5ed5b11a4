"""Scheduled sampling: what is fed, how often, and that without it nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.objectives.causal import Causal, Sampled
from nextword.objectives.seq2seq import Seq2SeqObjective

SIZE = 11
VOCABULARY = Vocabulary(SIZE, 0, {}, end=1)


class Next(nn.Module):
    """Always says the next number, and remembers what it was fed."""

    window = None

    def __init__(self) -> None:
        super().__init__()
        self.fed: list[Tensor] = []
        self.readout: Any = self

    def hidden(self, inputs: Inputs, state: Any) -> tuple[list[Tensor], Any]:
        self.fed.append(inputs.ids.clone())
        return [nn.functional.one_hot((inputs.ids + 1) % SIZE, SIZE).float()], (state or 0) + 1

    def log_probs(self, h: Tensor) -> Tensor:
        return h.clamp(min=1e-30).log()


def fed(share: float, ids: Tensor) -> Tensor:
    network = Next()
    layers, state = Sampled(1.0, 0).hidden(network, Inputs(ids), None, share)
    assert layers[0].shape == (*ids.shape, SIZE)
    assert state == ids.shape[1]
    return torch.cat(network.fed, 1)


def test_what_is_fed() -> None:
    ids = torch.tensor([[5, 5, 5, 5], [2, 9, 9, 9]])
    assert fed(0.0, ids).tolist() == ids.tolist()
    assert fed(1.0, ids).tolist() == [[5, 6, 7, 8], [2, 3, 4, 5]]  # its own word, and what follows from that
    torch.manual_seed(0)
    many = fed(0.3, torch.full((4000, 2), 5))[:, 1]
    assert set(many.tolist()) == {5, 6}
    assert float((many == 6).float().mean()) == pytest.approx(0.3, abs=0.03)


def test_the_share_grows() -> None:
    assert [Sampled(0.4, 4).share(epoch) for epoch in range(6)] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.4])
    assert Sampled(0.4, 0).share(0) == 0.4


def test_without_it_nothing_changes_and_with_it_something_does() -> None:
    torch.manual_seed(0)
    network = LSTM(RecurrentConfig(width=8), VOCABULARY)
    ids = torch.randint(0, SIZE, (3, 6))
    batch = Batch(Inputs(ids), ids.roll(-1, 1))
    plain = Causal({}).loss(network, batch, None)
    ramped = Causal({}, sampled=0.9, ramp=3).loss(network, batch, None)  # in the first epoch nothing is drawn
    assert torch.equal(plain.value, ramped.value)
    torch.manual_seed(1)
    assert not torch.equal(plain.value, Causal({}, sampled=1.0).loss(network, batch, None).value)
    network.eval()
    assert torch.equal(plain.value, Causal({}, sampled=1.0).loss(network, batch, None).value)


def test_a_target_is_written_from_its_source_alike() -> None:
    """With a share that draws next to nothing: the same numbers, token by token."""
    torch.manual_seed(0)
    network = Seq2Seq(Seq2SeqConfig(width=8, attention="luong"), VOCABULARY).double()
    source, ids = torch.randint(2, SIZE, (3, 5)), torch.randint(2, SIZE, (3, 4))
    batch = Batch(Inputs(ids, source=Inputs(source)), ids.roll(-1, 1), num_targets=12)
    plain, drawn = (Seq2SeqObjective({}, sampled=share).loss(network, batch, None).value for share in (0.0, 1e-12))
    torch.testing.assert_close(plain, drawn)
    grads = [torch.autograd.grad(value, list(network.parameters()), retain_graph=True) for value in (plain, drawn)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(NextwordError, match=r"sampled = 1\.5"):
        Causal({}, sampled=1.5)
    with pytest.raises(NextwordError, match="ramp = -1"):
        Seq2SeqObjective({}, sampled=0.5, ramp=-1)
    network = GPT2(GPT2Config(width=8, layers=1, heads=2, window=8), VOCABULARY)
    batch = Batch(Inputs(torch.zeros(1, 4, dtype=torch.long)), torch.zeros(1, 4, dtype=torch.long))
    with pytest.raises(Unsupported, match="networks that carry a state"):
        Causal({"kind": "blocks"}, sampled=0.5).loss(network, batch, None)
