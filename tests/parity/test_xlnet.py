"""XLNet compared with transformers with copied weights: both streams, memory, orders, segments, padding, gradients.

Also compares left-to-right reading of a text in any parts, and a sum over all possible texts.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core import pytree
from nextword.core.types import Inputs, Vocabulary
from nextword.layers.attention import order_mask
from nextword.models.xlnet import XLNet, XLNetConfig

transformers = pytest.importorskip("transformers")

SIZE, WIDTH, HEADS, LAYERS = 37, 24, 4, 3
VOCABULARY = Vocabulary(SIZE, 0)
ORDERS = {  # written out: which place comes first, second, …
    "drawn": [3, 0, 5, 1, 6, 2, 4],
    "forwards": [0, 1, 2, 3, 4, 5, 6],
    "backwards": [6, 5, 4, 3, 2, 1, 0],
}


def pair(memory: int = 5, **options: Any) -> tuple[XLNet, Any]:
    """A network of ours and one of theirs, the one's weights copied from the other's, all of some size."""
    clamp = options.get("clamp_len", 0)
    sizes = {"d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 40, "mem_len": memory}
    theirs = transformers.XLNetLMHeadModel(transformers.XLNetConfig(vocab_size=SIZE, dropout=0.0, **sizes, **options))
    torch.manual_seed(3)
    for name, p in theirs.named_parameters():
        nn.init.normal_(p, float(name.endswith("layer_norm.weight")), 0.3)
    config = XLNetConfig(WIDTH, LAYERS, HEADS, ffn_width=40, memory=memory, dropout=0.0, max_distance=clamp)
    ours = XLNet(config, VOCABULARY)
    ours.load_state_dict(named({name: p.detach() for name, p in theirs.named_parameters()}))
    return ours.eval(), theirs.eval()


def named(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, weights or gradients, under our names and in our shapes. None is left out."""
    names = {"word_embedding.weight": "embedding.weight", "mask_emb": "blank", "lm_loss.bias": "readout.bias"}
    inner = {"rel_attn.q": "attention.query.weight", "rel_attn.k": "attention.key.weight"}
    inner |= {"rel_attn.v": "attention.value.weight", "rel_attn.r": "attention.distance.weight"}
    inner |= {"rel_attn.o": "attention.out.weight", "rel_attn.r_w_bias": "attention.content_bias"}
    inner |= {"rel_attn.r_r_bias": "attention.distance_bias", "rel_attn.r_s_bias": "attention.segment_bias"}
    inner |= {"rel_attn.seg_embed": "attention.segments"}
    for end in ("weight", "bias"):
        inner |= {f"rel_attn.layer_norm.{end}": f"norm1.{end}", f"ff.layer_norm.{end}": f"norm2.{end}"}
        inner |= {f"ff.layer_1.{end}": f"wide.{end}", f"ff.layer_2.{end}": f"narrow.{end}"}
    for i in range(LAYERS):
        names |= {f"layer.{i}.{a}": f"blocks.{i}.{b}" for a, b in inner.items()}
    out = {}
    for name, tensor in given.items():
        ours = names[name.removeprefix("transformer.")]
        if ours.endswith(("query.weight", "key.weight", "value.weight", "distance.weight")):
            tensor = tensor.reshape(WIDTH, -1).t()
        elif ours.endswith("out.weight"):
            tensor = tensor.reshape(WIDTH, -1)
        elif ours.endswith(("content_bias", "distance_bias", "segment_bias")):
            tensor = tensor.unsqueeze(1)
        elif ours.endswith("segments"):
            tensor = tensor.transpose(0, 1)
        out[ours] = tensor.reshape(-1) if ours == "blank" else tensor
    return out


def same_gradients(ours: XLNet, theirs: Any, unused: str = "nothing") -> None:
    """Of every parameter; those that are named `unused` have none on either side."""
    want = named({name: p.grad for name, p in theirs.named_parameters() if p.grad is not None})
    for name, p in ours.named_parameters():
        if unused in name:
            assert name not in want or not want[name].any()
            assert p.grad is None or not p.grad.any()
        else:
            assert p.grad is not None, name
            assert p.grad.any(), name
            torch.testing.assert_close(p.grad, want[name], rtol=1e-3, atol=2e-5)


def ranks(order: list[int], batch: int = 3) -> Tensor:
    return torch.tensor(order).argsort().expand(batch, -1)


def mapping(at: Tensor, steps: int) -> Tensor:
    return F.one_hot(at, steps).float()


def asked(order: list[int], n: int) -> Tensor:
    """The last n of the order, in three rows."""
    return torch.tensor(sorted(order[-n:])).expand(3, -1)


def two_segments() -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return torch.randint(0, SIZE, (3, 8)), torch.randint(0, SIZE, (3, 7))


# ------------------------------------------------------------------------------------------------ both streams


@pytest.mark.parametrize("memory", [0, 5, 12])
@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_query_stream_under_permutation_equals_transformers(
    order: str, padded: bool, segmented: bool, memory: int
) -> None:
    """After a segment that is kept in memory: none, less than it, or all of it."""
    ours, theirs = pair(memory or 1)
    before, ids = two_segments()
    turns = ORDERS[order]
    at = asked(turns, 4)
    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 2], [0] * 7, [1, 1, 0, 0, 0, 1, 1]]) if segmented else None
    padding = torch.tensor([[1] * 7, [1] * 6 + [0], [1] * 5 + [0] * 2]).bool() if padded else None
    mask = order_mask(ranks(turns))
    state, mems = None, None
    if memory:
        _, state = ours.encode(Inputs(before))
        mems = theirs(before, use_mems=True).mems
        for a, b in zip(state["layers"], mems, strict=True):
            torch.testing.assert_close(a, b.transpose(0, 1), rtol=1e-4, atol=1e-5)
    want = theirs(
        ids,
        mems=mems,
        perm_mask=(~mask).float(),
        target_mapping=mapping(at, 7),
        token_type_ids=segments,
        attention_mask=None if padding is None else padding.float(),
        use_mems=True,
        output_hidden_states=True,
    )
    inputs = Inputs(ids, padding, segments, mask=mask)
    content, queries, state = ours.streams(inputs, state, at)
    torch.testing.assert_close(ours.readout.logits(queries[-1]), want.logits, rtol=1e-4, atol=1e-4)
    for layer in range(LAYERS + 1):  # theirs in turn: content, query, content, query, …
        torch.testing.assert_close(content[layer], want.hidden_states[2 * layer], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(queries[layer], want.hidden_states[2 * layer + 1], rtol=1e-4, atol=1e-4)
    for a, b in zip(state["layers"], want.mems, strict=True):
        torch.testing.assert_close(a, b.transpose(0, 1), rtol=1e-4, atol=1e-4)
    targets = ids.gather(1, at).flatten()
    F.cross_entropy(want.logits.flatten(0, 1), targets, reduction="sum").backward()
    ours.readout.total(queries[-1].flatten(0, 1), targets).backward()
    same_gradients(ours, theirs, "nothing" if segmented else "segment")


def test_skipping_unqueried_positions_changes_no_output() -> None:
    ours, _ = pair()
    before, ids = two_segments()
    _, state = ours.encode(Inputs(before))
    inputs, at = Inputs(ids, mask=order_mask(ranks(ORDERS["drawn"]))), asked(ORDERS["drawn"], 3)
    content, whole, _ = ours.streams(inputs, state)
    some, kept = ours.queries(inputs, at, state)
    alone, state = ours.encode(inputs, state)
    for a, b in zip(some, whole, strict=True):
        torch.testing.assert_close(a, b.gather(1, at.unsqueeze(2).expand(-1, -1, WIDTH)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kept["layers"], state["layers"])
    torch.testing.assert_close(alone, content, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("clamp", [2, 6])
def test_clamped_distances_equal_transformers(clamp: int) -> None:
    ours, theirs = pair(clamp_len=clamp)
    before, ids = two_segments()
    mems = theirs(before, use_mems=True).mems
    want = theirs(ids, mems=mems).logits
    content, _ = ours.encode(Inputs(ids), ours.encode(Inputs(before))[1])
    torch.testing.assert_close(ours.readout.logits(content[-1]), want, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(want, pair()[1](ids, mems=mems).logits, atol=0.03)  # it matters


def test_reversed_rows_negate_relative_distances() -> None:
    """Half of the batch runs backwards through its text, as theirs does with bi_data; and so does its memory."""
    ours, theirs = pair(bi_data=True)
    torch.manual_seed(9)
    before, ids = torch.randint(0, SIZE, (4, 8)), torch.randint(0, SIZE, (4, 7))
    mask, at = order_mask(ranks(ORDERS["drawn"], 4)), torch.tensor([[2, 4, 6]] * 4)
    away = torch.tensor([[1], [1], [-1], [-1]])
    _, state = ours.encode(Inputs(before, positions=away * torch.arange(8)))
    queries, _ = ours.queries(Inputs(ids, mask=mask, positions=away * torch.arange(8, 15)), at, state)
    mems = theirs(before, use_mems=True).mems
    want = theirs(ids, mems=mems, perm_mask=(~mask).float(), target_mapping=mapping(at, 7)).logits
    torch.testing.assert_close(ours.readout.logits(queries[-1]), want, rtol=1e-4, atol=1e-4)
    F.cross_entropy(want.flatten(0, 1), ids.gather(1, at).flatten(), reduction="sum").backward()
    ours.readout.total(queries[-1].flatten(0, 1), ids.gather(1, at).flatten()).backward()
    same_gradients(ours, theirs, "segment")
    turned, _ = ours.queries(Inputs(ids, mask=mask), at, ours.encode(Inputs(before))[1])
    torch.testing.assert_close(turned[-1][:2], queries[-1][:2], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(turned[-1][2:], queries[-1][2:], atol=1e-2)


# ------------------------------------------------------------------------------------------------ one stream


@pytest.mark.parametrize("padded", [False, True])
def test_encoder_without_permutation_equals_transformers(padded: bool) -> None:
    ours, theirs = pair()
    ids = two_segments()[0]
    padding = torch.arange(8) < torch.tensor([[8], [5], [1]]) if padded else None
    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]] * 3)
    want = theirs(
        ids,
        attention_mask=None if padding is None else padding.float(),
        token_type_ids=segments,
        output_hidden_states=True,
    )
    layers, _ = ours.encode(Inputs(ids, padding, segments))
    for a, b in zip(layers, want.hidden_states, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    there = torch.ones(3, 8, 1) if padding is None else padding.unsqueeze(2)
    (want.hidden_states[-1] * there).pow(2).sum().backward()
    (layers[-1] * there).pow(2).sum().backward()
    want_grads = named({name: p.grad for name, p in theirs.named_parameters() if p.grad is not None})
    for name, p in ours.named_parameters():
        if name not in ("blank", "readout.bias"):
            torch.testing.assert_close(p.grad, want_grads[name], rtol=2e-3, atol=1e-4)


@torch.no_grad()
def test_packed_texts_equal_single_texts() -> None:
    ours, _ = pair()
    ids = torch.randint(0, SIZE, (1, 11))
    layers, state = ours.encode(Inputs(ids, starts=torch.tensor([0, 4, 4, 9, 11])))
    assert state is None
    filled = ours.fill(Inputs(ids, starts=torch.tensor([0, 4, 4, 9, 11])), torch.tensor([1, 6, 8]))
    for first, last, at, rows in ((0, 4, [1], [0]), (4, 9, [2, 4], [1, 2]), (9, 11, [], [])):
        alone, _ = ours.encode(Inputs(ids[:, first:last]))
        for a, b in zip(layers, alone, strict=True):
            torch.testing.assert_close(a[:, first:last], b, rtol=1e-4, atol=1e-5)
        if at:
            want = ours.fill(Inputs(ids[:, first:last]), torch.tensor(at))
            torch.testing.assert_close(filled[rows], want, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_fill_conditions_on_known_tokens_alone() -> None:
    ours, theirs = pair()
    ids = two_segments()[1]
    at = torch.tensor([2, 5, 7 + 0, 14 + 1, 14 + 2, 14 + 6])
    got = ours.fill(Inputs(ids), at)
    torch.testing.assert_close(got.exp().sum(1), torch.ones(6))
    other = ids.clone().view(-1)
    other[at] = (other[at] + 1) % SIZE
    torch.testing.assert_close(ours.fill(Inputs(other.view(3, 7)), at), got)  # what stood there does not matter
    for row, places in enumerate(([2, 5], [0], [1, 2, 6])):
        hidden = torch.zeros(1, 7, 7)
        hidden[:, :, places] = 1.0
        to = mapping(torch.tensor([places]), 7)
        want = theirs(ids[row : row + 1], perm_mask=hidden, target_mapping=to).logits.log_softmax(-1)[0]
        torch.testing.assert_close(got[at // 7 == row], want, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------------ left to right


@pytest.mark.parametrize("memory", [0, 8])
def test_left_to_right_scores_equal_transformers(memory: int) -> None:
    """Theirs needs a token at the place that is asked for last; nobody sees which."""
    ours, theirs = pair(memory or 7)
    before, ids = two_segments()
    state, mems = None, None
    if memory:
        state = ours.hidden(Inputs(before), None)[1]
        later = torch.ones(8, 8).triu(0).expand(3, -1, -1)
        mems = theirs(before, perm_mask=later, use_mems=True).mems
    longer = torch.cat([ids, torch.zeros(3, 1, dtype=torch.long)], 1)
    later = torch.ones(8, 8).triu(0).expand(3, -1, -1)
    to = mapping(torch.arange(1, 8).expand(3, -1), 8)
    want = theirs(longer, mems=mems, perm_mask=later, target_mapping=to).logits
    ours.config = XLNetConfig(WIDTH, LAYERS, HEADS, ffn_width=40, memory=100, dropout=0.0)  # no text leaves its sight
    layers, _ = ours.hidden(Inputs(ids), state)
    torch.testing.assert_close(ours.readout.logits(layers[-1]), want, rtol=1e-4, atol=1e-4)
    targets = torch.randint(0, SIZE, (21,))
    F.cross_entropy(want.flatten(0, 1), targets, reduction="sum").backward()
    ours.readout.total(layers[-1].flatten(0, 1), targets).backward()
    same_gradients(ours, theirs, "segment")


def network(size: int = SIZE, memory: int = 6) -> XLNet:
    """Two layers with weights of some size, so that whatever is seen shows."""
    made = XLNet(XLNetConfig(16, 2, 2, ffn_width=24, memory=memory, dropout=0.0), Vocabulary(size, 0))
    torch.manual_seed(2)
    for name, p in made.named_parameters():
        nn.init.normal_(p, float("norm" in name and name.endswith("weight")), 0.4)
    return made.eval()


@torch.no_grad()
@pytest.mark.parametrize("memory", [1, 4, 50])
def test_text_reads_alike_for_any_chunks(memory: int) -> None:
    model = network(memory=memory)
    ids = torch.randint(0, SIZE, (3, 15))
    whole, _ = model.hidden(Inputs(ids), model.initial(3))
    content, _ = model.encode(Inputs(ids), model.initial(3))
    scored, _ = model.score(ids, torch.full((3,), 15), model.initial(3))
    for cuts in ([1] * 15, [5, 1, 9], [2, 2, 11], [15]):
        reading = embedding = model.initial(3)
        queries, vectors = [], []
        for part in ids.split(cuts, 1):
            layers, reading = model.hidden(Inputs(part), reading)
            queries.append(layers[-1])
            layers, embedding = model.encode(Inputs(part), embedding)
            vectors.append(layers[-1])
        torch.testing.assert_close(torch.cat(queries, 1), whole[-1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.cat(vectors, 1), content[-1], rtol=1e-4, atol=1e-5)
    state, steps = model.initial(3), []
    for t in range(14):
        log_p, state = model.step(ids[:, t], state)
        torch.testing.assert_close(log_p.exp().sum(1), torch.ones(3))
        steps.append(log_p.gather(1, ids[:, t + 1 : t + 2]))
    torch.testing.assert_close(torch.cat(steps, 1), scored, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_probabilities_of_all_continuations_sum_to_one() -> None:
    """Brute force over 3⁴ of them; and each is the product of what `step` says along the way."""
    model = network(size=3, memory=2)
    first, state = model.start(81)
    texts = torch.tensor(list(itertools.product(range(3), repeat=4)))
    scored, _ = model.score(torch.cat([first.unsqueeze(1), texts], 1), torch.full((81,), 5), pytree.clone(state))
    assert scored.sum(1).exp().sum().item() == pytest.approx(1, abs=1e-5)
    total, last = torch.zeros(81), first
    for t in range(4):
        log_p, state = model.step(last, state)
        last = texts[:, t]
        total += log_p.gather(1, last.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(total, scored.sum(1))


@torch.no_grad()
def test_window_equals_reach_of_memory() -> None:
    model = network(memory=2)  # two layers: 2 · 2 + 1 tokens
    assert model.window == 5
    ids = torch.randint(1, SIZE, (1, 9))
    last = model.hidden(Inputs(ids), None)[0][-1][0, -1]
    for back in range(9):
        other = ids.clone()
        other[0, 8 - back] = 0
        same = torch.equal(model.hidden(Inputs(other), None)[0][-1][0, -1], last)
        assert same == (back >= model.window)


@torch.no_grad()
def test_join_states_with_different_lengths() -> None:
    model = network(memory=4)
    texts = [torch.randint(0, SIZE, (n, length)) for n, length in ((1, 2), (2, 7), (1, 0))]
    states = [model.encode(Inputs(t), model.initial(len(t)))[1] for t in texts]
    joined = model.join([pytree.clone(state) for state in states])
    for _ in range(5):
        last = torch.randint(0, SIZE, (4,))
        got, joined = model.step(last, joined)
        want = []
        for i, rows in enumerate((last[:1], last[1:3], last[3:])):
            log_p, states[i] = model.step(rows, states[i])
            want.append(log_p)
        torch.testing.assert_close(got, torch.cat(want), rtol=1e-4, atol=1e-5)
    alike = model.join([model.encode(Inputs(t), model.initial(2))[1] for t in (texts[1], texts[1])])
    assert alike["there"] is None
