"""Texts that are packed, padded or read in parts give the same values as single texts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword.core.types import Inputs
from nextword.layers import attention as full_attention
from nextword.models.encoder import positions_in_packed
from tests.support.small_encoders import (
    LENGTHS,
    PAD,
    SLUGS,
    WINDOW,
    assert_close,
    draw_ids,
    draw_texts,
    make_encoder,
    make_inputs,
    pack_texts,
)


@pytest.fixture(autouse=True)
def several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_attention, "CALL_COST", 24 * 40)  # some padding, and several groups


def test_packed_texts_of_similar_length_form_groups() -> None:
    layout: Any = full_attention.choose_layout(pack_texts(draw_texts()), 24, 4, WINDOW)
    assert layout.blocks == ((1, 16), (1, 12), (2, 7), (3, 5), (1, 1))
    assert any(mask is not None for mask in layout.masks)
    assert len(layout.take) > len(layout.back) == sum(LENGTHS)


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("slug", SLUGS)
def test_packed_rows_equal_single_and_padded_texts(slug: str, empty: bool) -> None:
    """Every layer, and the gradient of every parameter."""
    network = make_encoder(slug)
    inputs = pack_texts(draw_texts(), empty)
    targets = inputs.ids.roll(3, 1)
    segments = inputs.segments
    assert segments is not None
    steps = max(LENGTHS)
    cuts = np.cumsum([0, *LENGTHS]).tolist()

    def learnt(parts: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        loss = sum(network.readout.total(h.flatten(0, -2), goal.flatten()) for h, goal in parts)
        for p in network.parameters():
            p.grad = None
        torch.as_tensor(loss).backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters()]

    whole = network.hidden(inputs, None)[0]
    alone = []
    for a, b in itertools.pairwise(cuts):
        one = Inputs(inputs.ids[:, a:b], segments=segments[:, a:b])
        alone.append(network.hidden(one, None)[0])
        for packed_layer, layer in zip(whole, alone[-1], strict=True):
            assert_close(packed_layer[:, a:b], layer)
    at = torch.arange(steps)
    padding = at < torch.tensor(LENGTHS).unsqueeze(1)
    rows = torch.full(padding.shape, PAD)
    kinds = torch.zeros_like(rows)
    rows[padding], kinds[padding] = inputs.ids[0], segments[0]
    padded = network.hidden(Inputs(rows, token_mask=padding, segments=kinds), None)[0]
    for packed_layer, layer in zip(whole, padded, strict=True):
        assert_close(packed_layer[0], layer[padding])

    want = learnt([(whole[-1], targets)])
    by_itself = learnt([(h[-1], targets[:, a:b]) for h, a, b in zip(alone, cuts, cuts[1:], strict=False)])
    in_rows = learnt([(padded[-1][padding], targets[0])])
    for p, q, r in zip(want, by_itself, in_rows, strict=True):
        assert_close(p, q)
        assert_close(p, r)


@pytest.mark.parametrize("slug", SLUGS)
@torch.no_grad()
def test_packed_texts_do_not_attend_to_each_other(slug: str) -> None:
    network = make_encoder(slug)
    each = draw_texts()
    inputs = pack_texts(each)
    before = network.hidden(inputs, None)[0]
    changed = pack_texts(each)
    changed.ids[:, 6:22] = draw_ids(1, 16).roll(5, 1)  # the third text, whole
    after = network.hidden(changed, None)[0]
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a[:, :6], b[:, :6])
        assert torch.equal(a[:, 22:], b[:, 22:])
    assert (before[-1][:, 6:22] - after[-1][:, 6:22]).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("slug", SLUGS)
@torch.no_grad()
def test_tokens_attend_to_whole_text_without_padding(slug: str) -> None:
    network = make_encoder(slug)
    inputs = make_inputs(slug, "padded")
    before = network.hidden(inputs, None)[0][-1]
    assert inputs.token_mask is not None
    inputs.ids = inputs.ids.masked_fill(~inputs.token_mask, 50)
    assert torch.equal(network.hidden(inputs, None)[0][-1][inputs.token_mask], before[inputs.token_mask])
    for i in (0, 5, 8):  # a token at the end changes the vector at the beginning, and the other way round
        inputs.ids[0, i] += 1
        after = network.hidden(inputs, None)[0][-1]
        assert ((after[0] - before[0]).abs().amax(-1) > 1e-6).all()
        assert torch.equal(after[2:][inputs.token_mask[2:]], before[2:][inputs.token_mask[2:]])
        before = after


def test_positions_in_packed_row_restart_at_each_text() -> None:
    starts = torch.tensor([0, 0, 3, 3, 3, 4, 6, 6], dtype=torch.int32)
    assert positions_in_packed(starts, 6).tolist() == [[0, 1, 2, 0, 0, 1]]


@torch.no_grad()
def test_explicit_positions_are_used() -> None:
    network = make_encoder("bert")
    ids = draw_ids(2, 5)
    plain = network.hidden(Inputs(ids), None)[0][-1]
    same = network.hidden(Inputs(ids, positions=torch.arange(5).expand(2, -1)), None)[0][-1]
    other = network.hidden(Inputs(ids, positions=torch.arange(5).expand(2, -1) + 1), None)[0][-1]
    assert_close(same, plain)
    assert (other - plain).abs().max() > 1e-3


@torch.no_grad()
def test_empty_row_gives_no_nan_and_changes_no_other_row() -> None:
    """Nothing but padding, or no token at all: no NaN, and nobody else is disturbed."""
    network = make_encoder("bert")
    ids = draw_ids(2, 4)
    padding = torch.tensor([[True] * 4, [False] * 4])
    h = network.hidden(Inputs(ids, token_mask=padding), None)[0][-1]
    assert h.isfinite().all()
    assert_close(h[:1], network.hidden(Inputs(ids[:1]), None)[0][-1])
    none = network.hidden(Inputs(ids[:1, :0], starts=torch.zeros(3, dtype=torch.long)), None)[0][-1]
    assert none.shape == (1, 0, 24)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_ragged_kernel_on_gpu_equals_single_texts(dropout: float) -> None:
    if not torch.cuda.is_available():
        pytest.skip("NO GPU HERE: this test proves nothing of the ragged kernel")
    network = make_encoder("bert", width=64, dropout=dropout).cuda().float()
    inputs = pack_texts(draw_texts(), empty=True)
    assert inputs.starts is not None
    assert inputs.segments is not None
    inputs = Inputs(inputs.ids.cuda(), starts=inputs.starts.cuda(), segments=inputs.segments.cuda())
    with torch.autocast("cuda", torch.bfloat16):
        layout = full_attention.choose_layout(inputs, 64, 4, WINDOW)
        assert isinstance(layout, full_attention.Ragged)
        got = network.hidden(inputs, None)[0][-1]
    want = network.hidden(inputs, None)[0][-1]  # in 32 bits, piece by piece
    assert (got - want).norm() < 0.05 * want.norm()
    network.train()
    with torch.autocast("cuda", torch.bfloat16):
        first, second = (network.hidden(inputs, None)[0][-1] for _ in range(2))
    assert torch.equal(first, second) == (dropout == 0)
    first.float().pow(2).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
    assert network.attending[0].attention.join.weight.grad.abs().max() > 0


@pytest.mark.parametrize("norms", ["after", "before"])
@pytest.mark.parametrize("compiled", [False, True])
def test_ragged_kernel_gradients_on_gpu_equal_reference(compiled: bool, norms: str) -> None:
    """As training asks for them: in 16 bits, compiled, of the last block at some places alone."""
    if not torch.cuda.is_available():
        pytest.skip("NO GPU HERE: this test proves nothing of the ragged kernel")
    network = make_encoder("bert", width=64, norm_position=norms).cuda().float().train()
    with torch.no_grad():
        for p in network.parameters():
            p.mul_(0.3)  # or 16 bits would lose too much of such large numbers
    inputs = pack_texts(draw_texts(), empty=True)
    assert inputs.starts is not None
    inputs = Inputs(inputs.ids.cuda(), starts=inputs.starts.cuda())
    at = torch.arange(0, inputs.ids.shape[1], 3, device="cuda")
    goal = torch.randn(len(at), 64, generator=torch.Generator().manual_seed(0)).cuda()

    def learnt(narrow: bool) -> dict[str, torch.Tensor]:
        network.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
            h = network.hidden_at(inputs, at)
        (h.float() * goal).sum().backward()
        return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}

    want = learnt(False)  # in 32 bits, piece by piece
    if compiled:
        network.compile_training()
    got = learnt(True)
    assert got.keys() == want.keys()
    for name, grad in want.items():
        assert (got[name] - grad).norm() <= 0.1 * grad.norm() + 1e-4, name
    assert want["positions.weight"].norm() > 0


def test_ragged_kernels_accept_shapes_and_differentiate() -> None:
    """Shapes alone, where no GPU is: that the functions take what they are given."""
    if full_attention.varlen_attn is None:
        pytest.skip("this torch has no attention over ragged rows")
    for drop in (0.0, 0.1):
        joined = torch.empty(1, 40, 192, dtype=torch.bfloat16, device="meta", requires_grad=True)
        starts = torch.empty(5, dtype=torch.int32, device="meta")
        y = full_attention.Ragged(starts, 16).attend(joined, 4, drop)
        assert y.shape == (1, 40, 64)
        y.sum().backward()
        assert joined.grad is not None
        assert joined.grad.shape == joined.shape


# ------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize("slug", SLUGS)
def test_dropout_is_active_only_in_training(slug: str) -> None:
    network = make_encoder(slug, dropout=0.3)
    still = make_encoder(slug)
    for inputs in (pack_texts(draw_texts()), make_inputs(slug, "padded")):
        for a, b in zip(network.eval().hidden(inputs, None)[0], still.hidden(inputs, None)[0], strict=True):
            assert torch.equal(a, b)
        network.train()
        first, second = (network.hidden(inputs, None)[0] for _ in range(2))
        assert not torch.equal(first[0], second[0])
        assert not torch.equal(first[-1], second[-1])
        assert first[-1].isfinite().all()


@pytest.mark.parametrize("slug", SLUGS)
def test_activation_checkpointing_keeps_gradients(slug: str) -> None:
    network = make_encoder(slug).train()
    inputs = pack_texts(draw_texts())
    found = []
    for network.checkpointing in (False, True):
        network.zero_grad()
        h = network.hidden(inputs, None)[0][-1]
        network.readout.total(h.flatten(0, 1), inputs.ids.roll(1, 1).flatten()).backward()
        found.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
    for a, b in zip(*found, strict=True):
        assert_close(a, b)
