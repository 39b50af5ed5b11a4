"""BERT, RoBERTa and ALBERT beside transformers, weights carried over by hand; and texts packed end to end."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract import Encoder, Encoding, Infilling, Inputs, NextwordError, Unsupported, Vocabulary
from nextword.layers import full_attention
from nextword.models import bidirectional, model_class
from nextword.models.bidirectional import counted
from nextword.tokens.marks import Marks

transformers = pytest.importorskip("transformers")

SIZE, WINDOW, LAYERS = 61, 16, 3
PAD = 1  # an id that no test's text holds
SPECIAL = {"[PAD]": PAD, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
VOCABULARY = Vocabulary(SIZE, 2, SPECIAL, end=3)
SHAPE: dict[str, Any] = {"width": 24, "layers": LAYERS, "heads": 4, "window": WINDOW, "inner": 40, "dropout": 0.0}
THEIRS: dict[str, Any] = {
    "vocab_size": SIZE,
    "hidden_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": WINDOW,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": PAD,
}
PRENORM = "roberta_prelayernorm"  # roberta with norms = "before"
ROBERTAS = ("roberta", PRENORM)
SLUGS = ["bert", "roberta", "albert", PRENORM]
LENGTHS = [5, 1, 16, 3, 3, 7, 5, 12]


def lively(network: nn.Module) -> None:
    """Every parameter random and of some size, norms and biases too, so that none can hide."""
    torch.manual_seed(3)
    for p in network.parameters():
        nn.init.normal_(p, std=0.3)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.add_(1.0)  # or signals would fade from norm to norm, and mistakes with them


def made(slug: str, **more: Any) -> Any:
    cls = model_class("roberta" if slug == PRENORM else slug)
    extra = {"embedding": 10} if slug == "albert" else {"norms": "before"} if slug == PRENORM else {}
    network = cls(cls.Config(**{**SHAPE, **extra, **more}), VOCABULARY).double()
    lively(network)
    return network.eval()


def foreign(slug: str) -> Any:
    if slug == "bert":
        network = transformers.BertForPreTraining(transformers.BertConfig(**THEIRS))
    elif slug in ROBERTAS:
        kwargs = {**THEIRS, "max_position_embeddings": WINDOW + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
        name = "Roberta" if slug == "roberta" else "RobertaPreLayerNorm"
        config = getattr(transformers, f"{name}Config")(**kwargs)
        network = getattr(transformers, f"{name}ForMaskedLM")(config)
    else:
        network = transformers.AlbertForPreTraining(transformers.AlbertConfig(**THEIRS, embedding_size=10))
    lively(network)
    return network.eval().double()


def carried(slug: str, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, weights or gradients, under our names."""
    base = f"{slug}.embeddings."
    names = {
        "embedding.weight": base + "word_embeddings.weight",
        "segments.weight": base + "token_type_embeddings.weight",
    }
    pairs = {"norm": base + "LayerNorm"}
    block = f"{slug}.encoder.layer."
    if slug == "albert":
        block = "albert.encoder.albert_layer_groups.0.albert_layers."
        halves = {"attention.out": "attention.dense", "norm": "attention.LayerNorm"}
        feeding = {"wide": "ffn", "narrow": "ffn_output", "norm": "full_layer_layer_norm"}
        queries, layers = "attention.{}", 1
        pairs |= {"lift": "albert.encoder.embedding_hidden_mapping_in", "pooler": "albert.pooler"}
        pairs |= {"next_sentence": "sop_classifier.classifier", "readout.dense": "predictions.dense"}
        pairs |= {"readout.norm": "predictions.LayerNorm"}
        names["readout.bias"] = "predictions.bias"
    else:
        halves = {"attention.out": "attention.output.dense", "norm": "attention.output.LayerNorm"}
        feeding = {"wide": "intermediate.dense", "narrow": "output.dense", "norm": "output.LayerNorm"}
        queries, layers = "attention.self.{}", LAYERS
    if slug == PRENORM:
        halves["norm"], feeding["norm"] = "attention.LayerNorm", "intermediate.LayerNorm"
        pairs["last"] = f"{slug}.LayerNorm"
    if slug == "bert":
        pairs |= {"pooler": "bert.pooler.dense", "next_sentence": "cls.seq_relationship"}
        pairs |= {"readout.dense": "cls.predictions.transform.dense"}
        pairs |= {"readout.norm": "cls.predictions.transform.LayerNorm"}
        names["readout.bias"] = "cls.predictions.bias"
    if slug in ROBERTAS:
        pairs |= {"readout.dense": "lm_head.dense", "readout.norm": "lm_head.layer_norm"}
        names["readout.bias"] = "lm_head.bias"
    positions = given[base + "position_embeddings.weight"]
    found = {"positions.weight": positions[2:] if slug in ROBERTAS else positions}
    for i in range(layers):
        pairs |= {f"attending.{i}.{a}": f"{block}{i}.{b}" for a, b in halves.items()}
        pairs |= {f"feeding.{i}.{a}": f"{block}{i}.{b}" for a, b in feeding.items()}
    for end in ("weight", "bias"):
        names |= {f"{a}.{end}": f"{b}.{end}" for a, b in pairs.items()}
        for i in range(layers):
            three = [given[f"{block}{i}.{queries.format(n)}.{end}"] for n in ("query", "key", "value")]
            found[f"attending.{i}.attention.join.{end}"] = torch.cat(three)
    return found | {ours: given[theirs] for ours, theirs in names.items()}


def pair(slug: str) -> tuple[Any, Any]:
    """A network of ours and one of theirs, the one's weights copied from the other's."""
    ours, theirs = made(slug), foreign(slug)
    ours.load_state_dict(carried(slug, theirs.state_dict()))
    return ours, theirs


def some(rows: int, steps: int) -> Tensor:
    torch.manual_seed(rows * 100 + steps)
    return torch.randint(5, SIZE, (rows, steps))


def batch(slug: str, kind: str) -> Inputs:
    rows, steps = {"one": (1, 1), "odd": (3, 7), "window": (2, WINDOW), "padded": (4, 9), "segments": (3, 11)}[kind]
    ids = some(rows, steps)
    inputs = Inputs(ids)
    if kind == "padded":
        inputs.padding = torch.arange(steps) < torch.tensor([9, 1, 4, 7]).unsqueeze(1)
        inputs.ids = ids.masked_fill(~inputs.padding, PAD)
    if kind in ("segments", "padded") and slug not in ROBERTAS:
        inputs.segments = (torch.arange(steps) >= torch.tensor([3, 6, 9, 2][:rows]).unsqueeze(1)).long()
    return inputs


def answered(slug: str, theirs: Any, inputs: Inputs) -> tuple[Any, Tensor, Any, Any]:
    """Their layers, logits, pooled vector and two logits of pairs."""
    kwargs: dict[str, Any] = {"attention_mask": None if inputs.padding is None else inputs.padding.long()}
    if slug not in ROBERTAS:
        kwargs["token_type_ids"] = inputs.segments
    body = getattr(theirs, slug)
    out = body(inputs.ids, output_hidden_states=True, **kwargs)
    whole = theirs(inputs.ids, **kwargs)
    if slug in ROBERTAS:
        return out.hidden_states, whole.logits, None, None
    two = whole.seq_relationship_logits if slug == "bert" else whole.sop_logits
    return out.hidden_states, whole.prediction_logits, out.pooler_output, two


def close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


KINDS = ["one", "odd", "window", "padded", "segments"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slug", SLUGS)
@torch.no_grad()
def test_values_are_those_of_transformers(slug: str, kind: str) -> None:
    ours, theirs = pair(slug)
    inputs = batch(slug, kind)
    layers, logits, pooled, two = answered(slug, theirs, inputs)
    there = inputs.padding if inputs.padding is not None else torch.ones_like(inputs.ids, dtype=torch.bool)
    got, state = ours.hidden(inputs, None)
    assert state is None
    assert len(got) == len(ours.widths) == LAYERS + 1
    for a, b in zip(got[-len(layers) :], layers, strict=True):
        close(a[there], b[there])
    close(ours.readout.logits(got[-1])[there], logits[there])
    at = there.flatten().nonzero().squeeze(1)[::2]
    close(ours.fill(inputs, at), F.log_softmax(logits, -1).flatten(0, 1)[at])
    if pooled is not None:
        vector = ours.pooled(got[-1][:, 0])
        close(vector, pooled)
        close(ours.next_sentence(vector), two)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("slug", SLUGS)
def test_gradients_are_those_of_transformers(slug: str, kind: str) -> None:
    """Of the loss of both heads, for every parameter that there is."""
    ours, theirs = pair(slug)
    inputs = batch(slug, kind)
    targets = some(*inputs.ids.shape).roll(1, 0)
    if inputs.padding is not None:
        targets = targets.masked_fill(~inputs.padding, -100)
    follows = torch.arange(len(targets)) % 2
    _, logits, _, two = answered(slug, theirs, inputs)
    want = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    h = ours.hidden(inputs, None)[0][-1]
    got = ours.readout.total(h.flatten(0, 1), targets.flatten())
    if two is not None:
        want = want + F.cross_entropy(two, follows)
        got = got + F.cross_entropy(ours.next_sentence(ours.pooled(h[:, 0])), follows)
    close(got, want)
    want.backward()
    got.backward()
    grads = carried(slug, {name: p.grad for name, p in theirs.named_parameters()})
    mine = dict(ours.named_parameters())
    assert set(grads) == set(mine)
    for name, p in mine.items():
        close(p.grad, grads[name])


def test_in_32_bits_too() -> None:
    ours, theirs = pair("bert")
    ours, theirs = ours.float(), theirs.float()
    inputs = batch("bert", "padded")
    layers, _, _, _ = answered("bert", theirs, inputs)
    torch.testing.assert_close(
        ours.hidden(inputs, None)[0][-1][inputs.padding], layers[-1][inputs.padding], rtol=1e-4, atol=1e-4
    )


# ------------------------------------------------------------------------------------------------ packed


def texts() -> list[Tensor]:
    return [some(1, n) + i for i, n in enumerate(LENGTHS) if n < 60]


def packed(each: list[Tensor], empty: bool = False) -> Inputs:
    lengths = [0, *[t.shape[1] for t in each]]
    starts = torch.tensor(lengths).cumsum(0)
    if empty:  # texts of no length: at the beginning, between and after
        starts = torch.cat([starts[:1], starts[:4], starts[3:], starts[-1:], starts[-1:]])
    ids = torch.cat(each, 1).clamp(max=SIZE - 1)
    return Inputs(ids, starts=starts, segments=(ids % 2))


WAYS = {"runs": 0, "groups": 10**12}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways over packed texts, whichever would be chosen."""
    monkeypatch.setattr(full_attention, "COPIED", WAYS[request.param])
    monkeypatch.setattr(full_attention, "COMPUTED", 24 * 40)  # some padding, and several groups
    return str(request.param)


def test_both_ways_are_taken(way: str) -> None:
    inputs = packed(texts())
    layout: Any = full_attention.layout_of(inputs, 24, 4, WINDOW)
    assert type(layout).__name__.lower() == way
    if way == "runs":
        assert layout.blocks == ((1, 5), (1, 1), (1, 16), (2, 3), (1, 7), (1, 5), (1, 12))
    else:
        assert layout.blocks == ((1, 16), (1, 12), (2, 7), (3, 5), (1, 1))
        assert any(mask is not None for mask in layout.masks)
        assert len(layout.take) > len(layout.back) == sum(LENGTHS)


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("slug", SLUGS)
def test_packed_is_as_each_text_alone_and_as_padded(slug: str, empty: bool, way: str) -> None:
    """Every layer, and the gradient of every parameter."""
    network = made(slug)
    inputs = packed(texts(), empty)
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
            close(packed_layer[:, a:b], layer)
    at = torch.arange(steps)
    padding = at < torch.tensor(LENGTHS).unsqueeze(1)
    rows = torch.full(padding.shape, PAD)
    kinds = torch.zeros_like(rows)
    rows[padding], kinds[padding] = inputs.ids[0], segments[0]
    padded = network.hidden(Inputs(rows, padding=padding, segments=kinds), None)[0]
    for packed_layer, layer in zip(whole, padded, strict=True):
        close(packed_layer[0], layer[padding])

    want = learnt([(whole[-1], targets)])
    by_itself = learnt([(h[-1], targets[:, a:b]) for h, a, b in zip(alone, cuts, cuts[1:], strict=False)])
    in_rows = learnt([(padded[-1][padding], targets[0])])
    for p, q, r in zip(want, by_itself, in_rows, strict=True):
        close(p, q)
        close(p, r)


@pytest.mark.parametrize("slug", SLUGS)
@torch.no_grad()
def test_no_text_sees_another(slug: str, way: str) -> None:
    network = made(slug)
    each = texts()
    inputs = packed(each)
    before = network.hidden(inputs, None)[0]
    changed = packed(each)
    changed.ids[:, 6:22] = some(1, 16).roll(5, 1)  # the third text, whole
    after = network.hidden(changed, None)[0]
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a[:, :6], b[:, :6])
        assert torch.equal(a[:, 22:], b[:, 22:])
    assert (before[-1][:, 6:22] - after[-1][:, 6:22]).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("slug", SLUGS)
@torch.no_grad()
def test_every_token_sees_its_whole_text_and_no_padding(slug: str) -> None:
    network = made(slug)
    inputs = batch(slug, "padded")
    before = network.hidden(inputs, None)[0][-1]
    assert inputs.padding is not None
    inputs.ids = inputs.ids.masked_fill(~inputs.padding, 50)
    assert torch.equal(network.hidden(inputs, None)[0][-1][inputs.padding], before[inputs.padding])
    for i in (0, 5, 8):  # a token at the end changes the vector at the beginning, and the other way round
        inputs.ids[0, i] += 1
        after = network.hidden(inputs, None)[0][-1]
        assert ((after[0] - before[0]).abs().amax(-1) > 1e-6).all()
        assert torch.equal(after[2:][inputs.padding[2:]], before[2:][inputs.padding[2:]])
        before = after


def test_positions_count_from_0_in_each_text() -> None:
    starts = torch.tensor([0, 0, 3, 3, 3, 4, 6, 6], dtype=torch.int32)
    assert counted(starts, 6).tolist() == [[0, 1, 2, 0, 0, 1]]


@torch.no_grad()
def test_positions_given_are_the_positions() -> None:
    network = made("bert")
    ids = some(2, 5)
    plain = network.hidden(Inputs(ids), None)[0][-1]
    same = network.hidden(Inputs(ids, positions=torch.arange(5).expand(2, -1)), None)[0][-1]
    other = network.hidden(Inputs(ids, positions=torch.arange(5).expand(2, -1) + 1), None)[0][-1]
    close(same, plain)
    assert (other - plain).abs().max() > 1e-3


@torch.no_grad()
def test_a_row_without_a_text() -> None:
    """Nothing but padding, or no token at all: no NaN, and nobody else is disturbed."""
    network = made("bert")
    ids = some(2, 4)
    padding = torch.tensor([[True] * 4, [False] * 4])
    h = network.hidden(Inputs(ids, padding=padding), None)[0][-1]
    assert h.isfinite().all()
    close(h[:1], network.hidden(Inputs(ids[:1]), None)[0][-1])
    none = network.hidden(Inputs(ids[:1, :0], starts=torch.zeros(3, dtype=torch.long)), None)[0][-1]
    assert none.shape == (1, 0, 24)


@pytest.mark.parametrize("room", [1, 10, 20, 50])
@pytest.mark.parametrize("slug", SLUGS)
def test_a_large_batch_is_read_part_by_part(slug: str, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network = made(slug)
    for inputs in (batch(slug, "padded"), batch(slug, "segments"), packed(texts()), packed(texts(), empty=True)):
        total = inputs.ids.numel()
        at = torch.tensor([total - 1, 0, 5, 0])
        want, filled = network.hidden(inputs, None)[0], network.fill(inputs, at)
        with torch.no_grad(), monkeypatch.context() as patched:
            patched.setattr(bidirectional, "PART", room)
            for a, b in zip(network.hidden(inputs, None)[0], want, strict=True):
                assert a.shape == b.shape
                there = slice(None) if inputs.padding is None else inputs.padding
                close(a[there], b[there])
            close(network.fill(inputs, at), filled)
            assert network.fill(inputs, at[:0]).shape == (0, SIZE)
            sizes = [of.stop - of.start for of, _ in bidirectional.parted(inputs, room)]
            assert sum(sizes) == total
            assert max(sizes) <= max(room, WINDOW)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_ragged_rows_on_a_gpu_are_as_each_text_alone(dropout: float) -> None:
    if not torch.cuda.is_available():
        pytest.skip("NO GPU HERE: this test proves nothing of the ragged kernel")
    network = made("bert", width=64, dropout=dropout).cuda().float()
    inputs = packed(texts(), empty=True)
    assert inputs.starts is not None
    assert inputs.segments is not None
    inputs = Inputs(inputs.ids.cuda(), starts=inputs.starts.cuda(), segments=inputs.segments.cuda())
    with torch.autocast("cuda", torch.bfloat16):
        layout = full_attention.layout_of(inputs, 64, 4, WINDOW)
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


def test_the_ragged_kernels_can_be_called_and_differentiated() -> None:
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


# ------------------------------------------------------------------------------------------------ the rest


@pytest.mark.parametrize("slug", SLUGS)
def test_dropout_is_of_training_alone(slug: str, way: str) -> None:
    network = made(slug, dropout=0.3)
    still = made(slug)
    for inputs in (packed(texts()), batch(slug, "padded")):
        for a, b in zip(network.eval().hidden(inputs, None)[0], still.hidden(inputs, None)[0], strict=True):
            assert torch.equal(a, b)
        network.train()
        first, second = (network.hidden(inputs, None)[0] for _ in range(2))
        assert not torch.equal(first[0], second[0])
        assert not torch.equal(first[-1], second[-1])
        assert first[-1].isfinite().all()


@pytest.mark.parametrize("slug", SLUGS)
def test_computing_activations_again_changes_nothing(slug: str) -> None:
    network = made(slug).train()
    inputs = packed(texts())
    found = []
    for network.checkpointing in (False, True):
        network.zero_grad()
        h = network.hidden(inputs, None)[0][-1]
        network.readout.total(h.flatten(0, 1), inputs.ids.roll(1, 1).flatten()).backward()
        found.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
    for a, b in zip(*found, strict=True):
        close(a, b)


def test_what_layers_share() -> None:
    """As many weights as they must be, and unshared layers with the same weights are the shared one."""
    networks = {share: made("albert", share=share) for share in ("none", "attention", "feed-forward", "all")}
    counts = {share: sum(p.numel() for p in n.parameters()) for share, n in networks.items()}
    attend = 4 * (24 * 24 + 24) + 2 * 24
    feed = 24 * 40 + 40 + 40 * 24 + 24 + 2 * 24
    assert counts["attention"] == counts["all"] + 2 * feed
    assert counts["feed-forward"] == counts["all"] + 2 * attend
    assert counts["none"] == counts["all"] + 2 * (attend + feed)
    state = networks["all"].state_dict()
    inputs = batch("albert", "segments")
    want = networks["all"].hidden(inputs, None)[0]
    for share in ("none", "attention", "feed-forward"):
        named = networks[share].state_dict()
        for name in named:
            where, _, rest = name.partition(".")
            i, _, end = rest.partition(".")
            source = f"{where}.0.{end}" if where in ("attending", "feeding") and i.isdigit() else name
            named[name] = state[source]
        networks[share].load_state_dict(named)
        for a, b in zip(networks[share].hidden(inputs, None)[0], want, strict=True):
            close(a, b)
    with torch.no_grad():  # and the layers are indeed apart
        networks["none"].attending[1].attention.out.weight.mul_(2.0)
    assert (networks["none"].hidden(inputs, None)[0][1] - want[1]).abs().max() == 0
    assert (networks["none"].hidden(inputs, None)[0][2] - want[2]).abs().max() > 1e-3


@pytest.mark.parametrize("slug", SLUGS)
def test_saved_and_loaded_it_is_the_same(slug: str, tmp_path: Path) -> None:
    network = made(slug).float()
    assert network.save(tmp_path) == ["model.safetensors"]
    again = type(network).load(tmp_path, network.config, VOCABULARY)
    inputs = batch(slug, "padded")
    assert torch.equal(again.hidden(inputs, None)[0][-1], network.hidden(inputs, None)[0][-1])
    assert isinstance(again, Encoder)
    assert isinstance(again, Infilling)


def encoding(*ids: int) -> Encoding:
    n = len(ids)
    return Encoding(np.array(ids, np.int64), np.zeros((n, 2), np.int64), np.zeros(n, np.int64))


def test_frames_written_out() -> None:
    a, b = encoding(10, 11, 12), encoding(20, 21)
    for slug in ("bert", "albert"):
        framed = made(slug).frame(a, b)
        assert framed.ids.tolist() == [2, 10, 11, 12, 3, 20, 21, 3]
        assert framed.segments is not None
        assert framed.segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
        assert (framed.speaks, framed.parts) == (0, ((1, 4), (5, 7)))
    framed = made("roberta").frame(a, b)
    assert framed.ids.tolist() == [2, 10, 11, 12, 3, 3, 20, 21, 3]
    assert framed.segments is None
    single = made("bert").frame(encoding(*range(10, 40)))
    assert single.ids.tolist() == [2, *range(10, 24), 3]
    assert made("bert").frames("choose", [a, b, a])[1].ids.tolist() == [2, 10, 11, 12, 3, 10, 11, 12, 3]


def test_marks_by_either_familys_names() -> None:
    assert Marks.of(VOCABULARY) == Marks(cls=2, sep=3, mask=4, pad=1)
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 50264}
    assert Marks.of(Vocabulary(50265, 0, special)) == Marks(cls=0, sep=2, mask=50264, pad=1)
    special = {"<pad>": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "<s>": 7}  # ALBERT's file
    assert Marks.of(Vocabulary(30000, 2, special)) == Marks(cls=2, sep=3, mask=4, pad=0)
    with pytest.raises(NextwordError, match=r"no \[MASK\] or <mask>.*its special tokens are: <\|endoftext\|>"):
        Marks.of(Vocabulary(50257, 0, {"<|endoftext|>": 0}))


def test_too_long_a_text_is_refused() -> None:
    network = made("bert")
    with pytest.raises(NextwordError, match="A text of 17 tokens, but the window is 16"):
        network.hidden(Inputs(torch.zeros(1, 17, dtype=torch.long)), None)
    ids = torch.zeros(1, 40, dtype=torch.long)
    network.hidden(Inputs(ids, starts=torch.tensor([0, 16, 24, 40])), None)
    with pytest.raises(NextwordError, match="A text of 17 tokens, but the window is 16"):
        network.hidden(Inputs(ids, starts=torch.tensor([0, 16, 33, 40])), None)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(NextwordError, match="share = 'half'"):
        made("albert", share="half")
    with pytest.raises(NextwordError, match="width = 10 cannot be cut into heads = 4"):
        made("bert", width=10)
    roberta = made("roberta")
    assert roberta.next_sentence is None
    with pytest.raises(Unsupported, match="RoBERTa was not trained on pairs"):
        roberta.pooled(torch.zeros(1, 24, dtype=torch.float64))
