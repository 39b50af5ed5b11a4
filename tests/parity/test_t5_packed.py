"""T5 on packed rows of several pairs equals T5 on each single pair, values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.seq2seq import build_packed_batch, pad_rows
from nextword.batching.span_corruption import Spans, remove_spans
from nextword.core.errors import Unsupported
from nextword.core.types import IGNORE, Batch, Inputs, Vocabulary
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.models.t5 import T5, T5Config
from nextword.objectives.seq2seq import Seq2SeqObjective
from tests.support.errors import raises

SIZE, END = 61, 1
VOCABULARY = Vocabulary(SIZE, 0, {"<pad>": 0}, end=END)
FORMS = {"1.0": {"gated": False, "tied": True}, "1.1": {"gated": True, "tied": False}}
SHAPE: dict[str, Any] = {
    "width": 24, "layers": 2, "heads": 3, "head_width": 5, "ffn_width": 40, "distance_buckets": 8,
    "max_distance": 12, "dropout": 0.0,
}  # fmt: skip

Pair = tuple[np.ndarray, np.ndarray]


def made(form: str) -> T5:
    torch.manual_seed(3)
    network = T5(T5Config(**SHAPE, **FORMS[form]), VOCABULARY).double()
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return network.eval()


def some(seed: int = 0) -> list[Pair]:
    """Pairs of many lengths, of one token too, and two out of which spans were taken."""
    draw = np.random.default_rng(seed)
    lengths = [(5, 3), (1, 1), (14, 2), (2, 9), (7, 7), (3, 1), (20, 4)]
    pairs = [tuple(np.append(draw.integers(2, 50, n - 1), END) for n in both) for both in lengths]
    spans = Spans(1, 16)
    for _ in range(2):
        text = draw.integers(2, 50, spans.sizes[0])
        pairs.append(remove_spans(text, spans.mask(draw), END, [60, 59, 58, 57]))
    return pairs  # type: ignore[return-value]


def in_rows(pairs: list[Pair]) -> Batch:
    """Rows that are full on one side, on none, and one with a single pair."""
    return build_packed_batch([pairs[:4], pairs[4:6], pairs[6:7], pairs[7:]], VOCABULARY.begin)


def alone(pairs: list[Pair]) -> Batch:
    ids, there = pad_rows([source for source, _ in pairs])
    targets, known = pad_rows([target for _, target in pairs], IGNORE)
    read = torch.cat([torch.zeros(len(pairs), 1, dtype=torch.long), targets[:, :-1].clamp(min=0)], 1)
    predicted = sum(len(target) for _, target in pairs)
    return Batch(Inputs(read, known, source=Inputs(ids, there)), targets, num_targets=predicted)


def loss_of(network: Any, batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
    network.zero_grad()
    value = Seq2SeqObjective({}).loss(network, batch, None).value
    value.backward()
    return value.detach(), [p.grad.clone() for p in network.parameters()]


@pytest.mark.parametrize("form", FORMS)
def test_packed_loss_and_gradients_equal_single_pairs(form: str) -> None:
    network, pairs = made(form), some()
    value, gradients = loss_of(network, in_rows(pairs))
    want, expected = loss_of(network, alone(pairs))
    torch.testing.assert_close(value, want, rtol=1e-12, atol=0)
    for name, a, b in zip(dict(network.named_parameters()), gradients, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=name)
        assert a.abs().max() > 1e-6, name  # something was there to compare


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_packed_pairs_do_not_attend_to_each_other(form: str) -> None:
    network, pairs = made(form), some(1)
    batch = in_rows(pairs)
    h = network.hidden(batch.inputs, None)[0][-1]
    memory = network.encode(batch.inputs.source)[0][-1]  # type: ignore[arg-type]
    assert h.isfinite().all()
    assert memory.isfinite().all()
    row = [0, 0, 0, 0, 1, 1, 2, 3, 3]
    for i, (source, target) in enumerate(pairs):
        number = sum(r == row[i] for r in row[: i + 1])
        assert batch.inputs.source is not None
        assert batch.inputs.source.segments is not None
        single = alone([(source, target)])
        mine = batch.inputs.source.segments[row[i]] == number
        torch.testing.assert_close(memory[row[i]][mine], network.encode(single.inputs.source)[0][-1][0])
        first = sum(len(t) for (_, t), r in zip(pairs[:i], row, strict=False) if r == row[i])
        theirs = network.hidden(single.inputs, None)[0][-1][0]
        torch.testing.assert_close(h[row[i], first : first + len(target)], theirs)


@pytest.mark.parametrize("side", ["source", "target", "both"])
def test_packing_without_segments_mixes_pairs(side: str) -> None:
    """So the test above would notice a mask that is missing on any side."""
    network, pairs = made("1.0"), some()
    batch = in_rows(pairs)
    want, _ = loss_of(network, batch)
    assert batch.inputs.source is not None
    if side in ("source", "both"):
        batch.inputs.source.segments = torch.where(batch.inputs.source.segments > 0, 1, 0)  # type: ignore[operator]
    if side in ("target", "both"):
        batch.inputs.segments = torch.ones_like(batch.inputs.segments)  # type: ignore[arg-type]
    value, _ = loss_of(network, batch)
    assert not torch.isclose(value, want, rtol=1e-3) or not value.isfinite()


def test_packing_for_network_without_segments_raises() -> None:
    network = Seq2Seq(Seq2SeqConfig(width=8, embedding=8, encoder_width=4), VOCABULARY)
    with raises(Unsupported, ability="packing"):
        Seq2SeqObjective({"pack": True}).check(network)
    Seq2SeqObjective({}).check(network)
