"""Scheduled sampling: the tokens read, their probability, and unchanged teacher forcing without it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.objectives.causal import CausalObjective
from nextword.objectives.scheduled_sampling import ScheduledSampling
from nextword.objectives.seq2seq import Seq2SeqObjective

SIZE = 11
VOCABULARY = Vocabulary(SIZE, 0, {}, end=1)


class SuccessorNetwork(nn.Module):
    """Always predicts the next number and records its inputs."""

    window = None

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[Tensor] = []
        self.readout: Any = self

    def hidden(self, inputs: Inputs, state: Any) -> tuple[list[Tensor], Any]:
        self.inputs.append(inputs.ids.clone())
        return [nn.functional.one_hot((inputs.ids + 1) % SIZE, SIZE).float()], (state or 0) + 1

    def log_probs(self, h: Tensor) -> Tensor:
        return h.clamp(min=1e-30).log()


def inputs_read(probability: float, ids: Tensor) -> Tensor:
    """The inputs that the network reads, token by token."""
    network = SuccessorNetwork()
    layers, state = ScheduledSampling(probability).hidden(network, Batch(Inputs(ids), ids), None)
    assert layers[0].shape == (*ids.shape, SIZE)
    assert state == ids.shape[1]
    return torch.cat(network.inputs, 1)


def test_inputs_are_sampled_with_the_given_probability() -> None:
    ids = torch.tensor([[5, 5, 5, 5], [2, 9, 9, 9]])
    assert inputs_read(1e-12, ids).tolist() == ids.tolist()
    assert inputs_read(1.0, ids).tolist() == [[5, 6, 7, 8], [2, 3, 4, 5]]  # reads its own predictions
    torch.manual_seed(0)
    second = inputs_read(0.3, torch.full((4000, 2), 5))[:, 1]
    assert set(second.tolist()) == {5, 6}
    assert float((second == 6).float().mean()) == pytest.approx(0.3, abs=0.03)


def test_probability_grows_linearly_over_the_ramp() -> None:
    ramp = [ScheduledSampling(0.4, 4).probability(epoch) for epoch in range(6)]
    assert ramp == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.4])
    assert ScheduledSampling(0.4, 0).probability(0) == 0.4


def test_objective_without_sampling_uses_plain_teacher_forcing() -> None:
    assert CausalObjective({}).scheduled_sampling is None
    assert Seq2SeqObjective({}).scheduled_sampling is None


def test_loss_changes_only_in_training_and_after_the_ramp_starts() -> None:
    torch.manual_seed(0)
    network = LSTM(RecurrentConfig(width=8), VOCABULARY)
    ids = torch.randint(0, SIZE, (3, 6))
    batch = Batch(Inputs(ids), ids.roll(-1, 1))
    plain = CausalObjective({}).loss(network, batch, None)
    ramped = CausalObjective({}, scheduled_sampling=0.9, sampling_ramp=3).loss(network, batch, None)  # epoch 0: p = 0
    assert torch.equal(plain.value, ramped.value)
    torch.manual_seed(1)
    assert not torch.equal(plain.value, CausalObjective({}, scheduled_sampling=1.0).loss(network, batch, None).value)
    network.eval()
    assert torch.equal(plain.value, CausalObjective({}, scheduled_sampling=1.0).loss(network, batch, None).value)


def test_seq2seq_token_by_token_matches_teacher_forcing() -> None:
    """A probability of almost 0 gives the same loss and gradients, computed token by token."""
    torch.manual_seed(0)
    network = Seq2Seq(Seq2SeqConfig(width=8, attention="luong"), VOCABULARY).double()
    source, ids = torch.randint(2, SIZE, (3, 5)), torch.randint(2, SIZE, (3, 4))
    batch = Batch(Inputs(ids, source=Inputs(source)), ids.roll(-1, 1), num_targets=12)
    plain, stepwise = (
        Seq2SeqObjective({}, scheduled_sampling=p).loss(network, batch, None).value for p in (0.0, 1e-12)
    )
    torch.testing.assert_close(plain, stepwise)
    grads = [torch.autograd.grad(value, list(network.parameters()), retain_graph=True) for value in (plain, stepwise)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_settings_out_of_range_are_rejected() -> None:
    with pytest.raises(InvalidSetting) as error:
        CausalObjective({}, scheduled_sampling=1.5)
    assert (error.value.key, error.value.value) == ("objective.scheduled_sampling", 1.5)
    with pytest.raises(InvalidSetting) as error:
        Seq2SeqObjective({}, scheduled_sampling=0.5, sampling_ramp=-1)
    assert (error.value.key, error.value.value) == ("objective.sampling_ramp", -1)


def test_network_with_a_window_is_unsupported() -> None:
    network = GPT2(GPT2Config(width=8, layers=1, heads=2, window=8), VOCABULARY)
    batch = Batch(Inputs(torch.zeros(1, 4, dtype=torch.long)), torch.zeros(1, 4, dtype=torch.long))
    with pytest.raises(Unsupported, match="GPT2"):
        CausalObjective({"kind": "blocks"}, scheduled_sampling=0.5).loss(network, batch, None)
