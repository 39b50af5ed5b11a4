"""The masked objective with all its layouts: batches, loss, and learning."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.batching.token_stream import Stream
from nextword.core.errors import InvalidSetting, NextwordError, UnknownName, Unsupported
from nextword.core.types import IGNORE, Batch, Inputs, Vocabulary
from nextword.layers.output.softmax import FullSoftmax
from nextword.models.albert import ALBERT, ALBERTConfig
from nextword.models.bert import BERT, BERTConfig
from nextword.models.roberta import RoBERTa, RoBERTaConfig
from nextword.objectives import make_objective
from nextword.objectives.masked import MaskedObjective
from tests.unit.batching.test_masked_pairs import END, make_documents, stream

SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}


def make_text(documents: int = 60, seed: int = 0) -> Stream:
    rng = np.random.default_rng(seed)
    return stream(make_documents([rng.integers(1, 15, int(rng.integers(1, 9))).tolist() for _ in range(documents)]))


TEXT = make_text()
VOCABULARY = Vocabulary(int(TEXT.ids.max()) + 1, 2, SPECIAL, END)
LAYOUTS: dict[str, dict[str, Any]] = {
    "next": {"kind": "pairs", "rows": 4, "length": 40},
    "order": {"kind": "pairs", "rows": 4, "length": 40, "pair": "order"},
    "none": {"kind": "pairs", "rows": 4, "length": 40, "pair": "none"},
    "sentences": {"kind": "sentences", "rows": 4, "length": 48},
    "separate_documents": {"kind": "sentences", "rows": 4, "length": 48, "separate_documents": True},
    "packed": {"kind": "packed", "tokens": 256, "length": 32},
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def masked_objective(layout: str, **options: Any) -> MaskedObjective:
    return make_objective({"kind": "masked", **options}, LAYOUTS[layout], VOCABULARY)


def take_batches(objective: MaskedObjective, n: int, step: int = 0, seed: int = 5, text: Stream = TEXT) -> list[Batch]:
    return list(islice(objective.batches(text, seed, step), n))


def original_ids(batch: Batch) -> Tensor:
    """The ids before masking."""
    return torch.where(batch.targets == IGNORE, batch.inputs.ids, batch.targets)


def are_equal(first: Batch, second: Batch) -> bool:
    fields = [(vars(b.inputs) | vars(b)).items() for b in (first, second)]
    for (_, a), (_, b) in zip(*fields, strict=True):
        if isinstance(a, Tensor) != isinstance(b, Tensor):
            return False
        if not isinstance(a, Inputs) and not (torch.equal(a, b) if isinstance(a, Tensor) else a == b):
            return False
    return True


# ------------------------------------------------------------------------------------------------ batches


@each_layout
def test_batch_depends_on_seed_and_step_alone(layout: str) -> None:
    objective = masked_objective(layout)
    n = 2 * objective.batches_per_epoch(TEXT) + 3
    batches = take_batches(objective, n)
    for k in (0, 1, n // 2, n - 1):
        assert are_equal(take_batches(masked_objective(layout), 1, step=k)[0], batches[k])
    assert not are_equal(take_batches(objective, 1, seed=6)[0], batches[0])
    assert all(b.reset_state for b in batches)
    assert {b.epoch for b in batches} >= {0, 1}


@each_layout
def test_shapes_are_fixed_and_positions_point_at_the_targets(layout: str) -> None:
    objective = masked_objective(layout, whole_words=True)
    shapes = set()
    for batch in take_batches(objective, 3 * objective.batches_per_epoch(TEXT)):
        assert batch.target_positions is not None
        assert batch.targets.shape == batch.inputs.ids.shape
        targets = batch.targets.flatten()
        used, unused = batch.target_positions[: batch.num_targets], batch.target_positions[batch.num_targets :]
        assert sorted(used.tolist()) == (targets != IGNORE).nonzero().flatten().tolist()
        assert (targets[unused] == IGNORE).all()
        candidates = (original_ids(batch) >= 5).sum()
        assert 0.08 < batch.num_targets / candidates < 0.35  # at least one per text, and some texts are short
        tensors = (
            batch.targets,
            batch.target_positions,
            batch.inputs.starts,
            batch.pair_labels,
            batch.inputs.token_mask,
        )
        shapes.add(tuple(None if t is None else t.shape for t in tensors))
    assert len(shapes) == 1


@each_layout
def test_texts_start_and_end_with_special_tokens(layout: str) -> None:
    """Each text has [CLS] before it and [SEP] at its end; padding only follows texts."""
    for batch in take_batches(masked_objective(layout), 20):
        inputs, ids = batch.inputs, original_ids(batch)
        if inputs.starts is None:
            assert inputs.token_mask is not None
            assert torch.equal(inputs.token_mask, ids != 0)
            rows = [row[mask].tolist() for row, mask in zip(ids, inputs.token_mask, strict=True)]
        else:
            starts = inputs.starts.tolist()
            assert starts == sorted(starts)
            assert (starts[0], starts[-1]) == (0, 256)
            assert max(np.diff(starts)) <= 32  # padding too: the network has no more positions
            rows = [ids[0, a:b].tolist() for a, b in pairwise(starts) if b > a]
            rows = [row for row in rows if any(row)]
            assert all(0 not in row for row in rows)
        for row in rows:
            assert row[0] == 2
            assert row[-1] == 3
            assert 2 not in row[1:]


def test_only_pairs_have_segments_and_labels() -> None:
    for layout in LAYOUTS:
        batch = take_batches(masked_objective(layout), 1)[0]
        assert (batch.pair_labels is not None) is (layout in ("next", "order"))
        assert (batch.inputs.segments is not None) is (layout in ("next", "order", "none"))
    batch = take_batches(masked_objective("order"), 1)[0]
    assert batch.inputs.segments is not None
    assert batch.pair_labels is not None
    for row, segments, label in zip(
        original_ids(batch), batch.inputs.segments, batch.pair_labels.tolist(), strict=True
    ):
        first, second = (row[(segments == k) & (row >= 5)] for k in (0, 1))
        assert (int(first[0]) < int(second[0])) is (label == 0)
        a, b = (row == 3).nonzero().flatten().tolist()
        assert segments.tolist() == [0] * (a + 1) + [1] * (b - a) + [0] * (39 - b)


def masks_by_text(batches: list[Batch]) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """Map every original row to its masked versions."""
    masked_rows: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for batch in batches:
        for original, masked in zip(original_ids(batch).tolist(), batch.inputs.ids.tolist(), strict=True):
            masked_rows.setdefault(tuple(original), set()).add(tuple(masked))
    return masked_rows


def test_masks_differ_in_every_epoch_or_repeat_if_static() -> None:
    sentences = {"kind": "sentences", "rows": 1, "length": 48}
    for static, expected in ((0, 6), (3, 3), (1, 1)):
        objective = MaskedObjective(sentences, VOCABULARY, static_masks=static)
        rows = masks_by_text(take_batches(objective, 6 * objective.batches_per_epoch(TEXT)))
        assert len(rows) == objective.batches_per_epoch(TEXT)  # the texts are the same
        masks = [len(masks) for masks in rows.values()]
        assert max(masks) == expected
        assert np.mean(masks) > 0.9 * expected


@each_layout
def test_order_changes_from_epoch_to_epoch(layout: str) -> None:
    objective = masked_objective(layout, static_masks=1)
    n = objective.batches_per_epoch(TEXT)
    first, second = (torch.cat([original_ids(b) for b in take_batches(objective, n, step=k * n)]) for k in (0, 1))
    assert not torch.equal(first, second)
    validation = torch.cat([original_ids(b) for b in objective.validation_batches(TEXT)])[: len(first)]
    assert not torch.equal(first, validation)  # validation is in order


def test_static_pairs_repeat_with_their_masks() -> None:
    objective = masked_objective("next", static_masks=2)
    n = objective.batches_per_epoch(TEXT)
    epochs = [masks_by_text(take_batches(objective, 2 * n, step=k * n)) for k in (0, 2)]
    both = set(epochs[0]) & set(epochs[1])
    assert len(both) > 0.9 * len(epochs[0])  # a few differ in the remainder of the last batch
    assert all(epochs[0][original] == epochs[1][original] for original in both)
    dynamic = masked_objective("next")
    assert len(
        set(masks_by_text(take_batches(dynamic, n))) & set(masks_by_text(take_batches(dynamic, n, step=n)))
    ) < 0.5 * len(epochs[0])


@each_layout
def test_validation_reads_the_text_once_and_repeats_exactly(layout: str) -> None:
    held_out = make_text(23, seed=9)
    first, second = (list(masked_objective(layout).validation_batches(held_out)) for _ in range(2))
    assert all(are_equal(a, b) for a, b in zip(first, second, strict=True))
    ids = torch.cat([original_ids(batch).flatten() for batch in first])
    content = ids[ids >= 5].tolist()
    if layout in ("sentences", "separate_documents", "packed"):
        assert sorted(content) == list(range(10, int(held_out.ids.max()) + 1))


def test_text_smaller_than_a_batch_is_repeated() -> None:
    small = stream(make_documents([[4, 4], [4, 4]]))
    batch = take_batches(masked_objective("sentences"), 1, text=small)[0]
    assert batch.inputs.ids.shape == (4, 48)
    assert take_batches(masked_objective("packed"), 1, text=small)[0].inputs.ids.shape == (1, 256)


# ------------------------------------------------------------------------------------------------ loss


class SmallNetwork(nn.Module):
    """An embedding, averaged with that of the text's first token."""

    def __init__(self, size: int = VOCABULARY.size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 8)
        self.readout: Any = FullSoftmax(8, size)
        self.pool = nn.Linear(8, 8)
        self.next_sentence = nn.Linear(8, 2)

    def hidden(self, inputs: Inputs, state: object) -> tuple[list[Tensor], None]:
        x = self.embedding(inputs.ids)
        return [x, (x + x[:, :1]) / 2], None

    def hidden_at(self, inputs: Inputs, positions: Tensor) -> Tensor:
        return self.hidden(inputs, None)[0][-1].flatten(0, 1)[positions]

    def pooled(self, first: Tensor) -> Tensor:
        return torch.tanh(self.pool(first))


class PlainReadout(nn.Module):
    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(h @ self.weight.t(), targets, ignore_index=IGNORE, reduction="sum")


@each_layout
def test_loss_is_the_mean_over_masked_tokens_plus_the_pair_loss(layout: str) -> None:
    torch.manual_seed(0)
    network = SmallNetwork()
    objective = masked_objective(layout, pair_weight=0.5)
    batch = take_batches(objective, 1)[0]
    loss = objective.loss(network, batch, None)
    loss.value.backward()
    gradients = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    network.zero_grad()

    h = network.hidden(batch.inputs, None)[0][-1]
    logits = network.readout.logits(h)  # at every position
    nats = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum")
    count = int((batch.targets != IGNORE).sum())
    value = nats / count
    torch.testing.assert_close(loss.terms["masked"], value.detach())
    if batch.pair_labels is not None:
        pair_logits = network.next_sentence(torch.tanh(network.pool(h[:, 0])))
        value = value + 0.5 * F.cross_entropy(pair_logits, batch.pair_labels)
        torch.testing.assert_close(loss.terms["pair"], F.cross_entropy(pair_logits, batch.pair_labels).detach())
        assert float(loss.terms["pair_accuracy"]) == float((pair_logits.argmax(-1) == batch.pair_labels).float().mean())
    else:
        assert set(loss.terms) == {"masked"}
    torch.testing.assert_close(loss.value, value)
    torch.testing.assert_close(loss.nats, nats.detach())
    assert not loss.nats.requires_grad
    assert loss.count == count
    value.backward()
    for a, b in zip(gradients, [p.grad for p in network.parameters() if p.grad is not None], strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("sharing", ["none", "all"])
@each_layout
def test_hidden_at_positions_matches_the_full_last_layer(layout: str, sharing: str, checkpointing: bool) -> None:
    """Computing the last block only at the masked positions gives the loss and gradients of the full block."""

    class FullALBERT(ALBERT):
        def hidden_at(self, inputs: Inputs, positions: Tensor) -> Tensor:
            h = self.hidden(inputs, None)[0][-1]
            return h.reshape(-1, h.shape[-1])[positions]

    torch.manual_seed(0)
    config = ALBERTConfig(width=16, embedding=8, layers=2, heads=2, window=64, dropout=0.0, sharing=sharing)
    partial, full = ALBERT(config, VOCABULARY), FullALBERT(config, VOCABULARY)
    full.load_state_dict(partial.state_dict())
    partial.checkpointing = checkpointing
    objective = masked_objective(layout)
    batch = take_batches(objective, 1)[0]
    for network in (partial, full):
        objective.loss(network, batch, None).value.backward()
    for (name, parameter), other in zip(partial.named_parameters(), full.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, msg=lambda m, name=name: f"{name}: {m}")
    positions = torch.tensor([3, 0, 3])
    torch.testing.assert_close(partial.hidden_at(batch.inputs, positions), full.hidden_at(batch.inputs, positions))


def test_pair_weight_of_zero_skips_the_pair_loss() -> None:
    objective = masked_objective("next", pair_weight=0)
    assert set(objective.loss(SmallNetwork(), take_batches(objective, 1)[0], None).terms) == {"masked"}


def test_loss_runs_on_meta_tensors_without_synchronizing() -> None:
    """Meta tensors have no values, so any synchronization would fail."""
    objective = masked_objective("next")
    batch = take_batches(objective, 1)[0]
    moved: dict[str, Any] = {k: None if v is None else v.to("meta") for k, v in vars(batch.inputs).items()}
    assert batch.target_positions is not None
    assert batch.pair_labels is not None
    meta_batch = Batch(
        Inputs(**moved),
        batch.targets.to("meta"),
        target_positions=batch.target_positions.to("meta"),
        num_targets=batch.num_targets,
        pair_labels=batch.pair_labels.to("meta"),
    )
    network = SmallNetwork().to("meta")
    network.readout = PlainReadout(network.readout.weight)
    loss = objective.loss(network, meta_batch, None)
    loss.value.backward()
    assert loss.count == batch.num_targets


def test_batch_without_target_positions_has_the_same_loss() -> None:
    objective = masked_objective("sentences")
    batch, network = take_batches(objective, 1)[0], SmallNetwork()
    without = objective.loss(network, Batch(batch.inputs, batch.targets), None)
    torch.testing.assert_close(without.value, objective.loss(network, batch, None).value)
    assert without.count == batch.num_targets


@pytest.mark.parametrize("layout", ["next", "packed"])
def test_network_learns_masked_words(layout: str) -> None:
    """Each document repeats one word, so every masked word equals its neighbors."""
    documents = [[[5 + d % 20] * 6] * 5 for d in range(100)]
    text, vocabulary = stream(documents), Vocabulary(25, 2, SPECIAL, END)
    torch.manual_seed(0)
    network = BERT(BERTConfig(width=32, layers=2, heads=2, window=40, dropout=0.0), vocabulary)
    objective = MaskedObjective(LAYOUTS[layout], vocabulary)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)

    def validate() -> float:
        losses = [objective.loss(network, batch, None) for batch in objective.validation_batches(text)]
        return float(sum(loss.nats for loss in losses)) / sum(loss.count for loss in losses)

    before = validate()
    for batch in take_batches(objective, 150, text=text):
        optimizer.zero_grad()
        objective.loss(network, batch, None).value.backward()
        optimizer.step()
    assert validate() < 0.5 * before


# ------------------------------------------------------------------------------------------------ bad input


def test_network_without_a_pair_head_is_unsupported() -> None:
    network = RoBERTa(RoBERTaConfig(width=16, layers=1, heads=2, window=48), VOCABULARY)
    objective = masked_objective("next")
    with pytest.raises(Unsupported, match="RoBERTa"):
        objective.loss(network, take_batches(objective, 1)[0], None)
    without_pairs = masked_objective("none")
    without_pairs.loss(network, take_batches(without_pairs, 1)[0], None).value.backward()


@pytest.mark.parametrize(
    ("batches", "options", "key"),
    [
        ({"kind": "rows"}, {}, "batches.kind"),
        ({"kind": "pairs", "order": True}, {}, "batches.order"),
        ({"kind": "packed", "rows": 8}, {}, "batches.rows"),
        ({}, {"static_masks": -1}, "objective.static_masks"),
        ({}, {"static_masks": True}, "objective.static_masks"),
        ({}, {"pair_weight": -1}, "objective.pair_weight"),
        ({}, {"mask_fraction": 2}, "objective.mask_fraction"),
        ({}, {"mask": 0.5}, "objective.mask"),
    ],
)
def test_invalid_settings_are_rejected(batches: dict[str, Any], options: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        make_objective({"kind": "masked", **options}, batches, VOCABULARY)
    assert error.value.key == key


def test_unknown_objective_is_rejected_with_the_known_names() -> None:
    with pytest.raises(UnknownName) as error:
        make_objective({"kind": "maskd"}, {}, VOCABULARY)
    assert error.value.name == "maskd"
    assert "masked" in error.value.known


def test_tokenizer_without_special_tokens_is_rejected() -> None:
    with pytest.raises(NextwordError, match=r"\[CLS\]"):
        make_objective({"kind": "masked"}, {}, Vocabulary(257, 256, {"<|endoftext|>": 256}, 256))
