"""Permutation language modeling: attention masks, memory, batches, loss, and learning."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nextword.batching.token_stream import WORD, Stream
from nextword.core import pytree
from nextword.core.errors import DataError, InvalidSetting, Unsupported
from nextword.core.types import IGNORE, Encoding, Inputs, Vocabulary
from nextword.layers.attention import distance_encodings, order_mask
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.xlnet import XLNet, XLNetConfig
from nextword.objectives import make_objective
from nextword.objectives.permutation import PermutationObjective, choose_spans

SIZE = 29


def network(size: int = SIZE, memory: int = 6, layers: int = 2) -> XLNet:
    """A network with large weights, so that every visible token has an effect."""
    model = XLNet(XLNetConfig(16, layers, 2, ffn_width=24, memory=memory, dropout=0.0), Vocabulary(size, 0))
    torch.manual_seed(2)
    for name, p in model.named_parameters():
        nn.init.normal_(p, float("norm" in name and name.endswith("weight")), 0.4)
    return model.eval()


def draw_mask(mask: Tensor) -> list[str]:
    return ["".join("#" if visible else "." for visible in row) for row in mask.tolist()]


# ------------------------------------------------------------------------------------------------ attention masks


def test_order_mask_equals_the_example_of_the_paper() -> None:
    """Figure 4 of the paper: x3 first, then x2, x4, and x1."""
    order = torch.tensor([2, 1, 3, 0])
    assert draw_mask(order_mask(order.argsort())) == [
        ".###",  # x1 comes last and sees all the others
        "..#.",  # x2 sees x3
        "....",  # x3 comes first and sees nothing
        ".##.",  # x4 sees x3 and x2
    ]


def test_order_mask_shows_visible_tokens_to_all_and_no_targets_to_them() -> None:
    ranks = torch.tensor([-1, 1, -1, 0, -1])
    assert draw_mask(order_mask(ranks)) == [
        "#.#.#",
        "#.###",  # predicted second: sees the first
        "#.#.#",
        "#.#.#",  # predicted first
        "#.#.#",
    ]


def test_distance_encodings_are_sines_then_cosines() -> None:
    table = distance_encodings(torch.tensor([0, 3, -3]), 4)
    torch.testing.assert_close(table[0], torch.tensor([0.0, 0.0, 1.0, 1.0]))
    torch.testing.assert_close(table[1, :2], torch.tensor([3.0, 0.03]).sin())
    torch.testing.assert_close(table[1, 2:], torch.tensor([3.0, 0.03]).cos())
    torch.testing.assert_close(table[2], table[1] * torch.tensor([-1.0, -1.0, 1.0, 1.0]))


@pytest.mark.parametrize("order", [[2, 1, 3, 0, 4], [0, 1, 2, 3, 4], [4, 2, 0, 3, 1]])
def test_query_depends_only_on_tokens_earlier_in_the_order(order: list[int]) -> None:
    """The gradient of its last layer is zero for its own embedding and those of later tokens."""
    model = network(layers=3)
    ids = torch.tensor([[7, 3, 11, 5, 2]])
    layers, _ = model.hidden(Inputs(ids, mask=order_mask(torch.tensor([order]).argsort())), None)
    for position, turn in zip(order, range(5), strict=True):
        model.zero_grad()
        layers[-1][0, position].square().sum().backward(retain_graph=True)
        gradient = model.embedding.weight.grad[ids[0]].abs().sum(1) if turn else torch.zeros(5)  # type: ignore[index]
        assert (gradient > 0).tolist() == [other in order[:turn] for other in range(5)]


def test_first_query_is_independent_of_all_tokens() -> None:
    model = network()
    first = order_mask(torch.tensor([[0, 1, 2]]))
    a, b = (model.hidden(Inputs(torch.tensor([ids]), mask=first), None)[0][-1][0, 0] for ids in ([1, 2, 3], [4, 5, 6]))
    assert torch.equal(a, b)
    assert torch.isfinite(a).all()


@torch.no_grad()
def test_probabilities_of_all_texts_sum_to_one_in_any_order() -> None:
    """Σ Π p(x_{z_t} | x_{z_<t}) over all 3³ texts; any leak would change it."""
    model = network(size=3)
    texts = torch.tensor(list(itertools.product(range(3), repeat=3)))
    for order in itertools.permutations(range(3)):
        mask = order_mask(torch.tensor(order).argsort()).expand(27, -1, -1)
        layers, _ = model.hidden(Inputs(texts, mask=mask), None)
        log_p = model.readout.log_probs(layers[-1]).gather(2, texts.unsqueeze(2)).sum((1, 2))
        assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-5)
        assert log_p.std() > 0.1


# ------------------------------------------------------------------------------------------------ memory


@torch.no_grad()
def test_memory_matches_one_longer_segment() -> None:
    """Three segments with memory equal one long segment whose earlier parts do not see later ones, in both streams."""
    model = network(memory=12)
    torch.manual_seed(1)
    ids = torch.randint(0, SIZE, (2, 12))
    ranks = torch.stack([torch.cat([torch.randperm(4) - 1 for _ in range(3)]) for _ in range(2)])
    part = torch.arange(12) // 4
    inside = order_mask(ranks) & (part.unsqueeze(1) == part)
    content, queries, _ = model.streams(Inputs(ids, mask=inside | (part.unsqueeze(1) > part)), None)
    state = None
    for i in range(3):
        cut = slice(4 * i, 4 * i + 4)
        own_content, own_queries, state = model.streams(Inputs(ids[:, cut], mask=order_mask(ranks[:, cut])), state)
        for layer in range(3):
            torch.testing.assert_close(own_content[layer], content[layer][:, cut], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(own_queries[layer], queries[layer][:, cut], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_explicit_positions_continue_from_implicit_ones_and_vice_versa() -> None:
    model = network()
    ids = torch.randint(0, SIZE, (2, 9))
    expected, _ = model.hidden(Inputs(ids), None)
    for first, second in ((None, torch.arange(4, 9)), (torch.arange(70, 74), None), (torch.arange(4), None)):
        state, parts = None, []
        for part, positions in ((ids[:, :4], first), (ids[:, 4:], second)):
            layers, state = model.hidden(
                Inputs(part, positions=None if positions is None else positions.expand(2, -1)), state
            )
            parts.append(layers[-1])
        torch.testing.assert_close(torch.cat(parts, 1), expected[-1], rtol=1e-4, atol=1e-5)


def test_memory_has_the_configured_size_and_no_gradient() -> None:
    model = network(memory=6)
    ids = torch.randint(0, SIZE, (2, 4))
    state, sizes = None, []
    for _ in range(3):
        layers, state = model.hidden(Inputs(ids), state)
        sizes.append(state["layers"][0].shape[1])
        assert not any(layer.requires_grad for layer in state["layers"])
    assert sizes == [4, 6, 6]
    assert layers[-1].requires_grad


# ------------------------------------------------------------------------------------------------ directions and frames


def test_attention_is_bidirectional_without_state_and_causal_with_state() -> None:
    model = network()
    ids = torch.randint(1, SIZE, (1, 5))
    other = ids.clone()
    other[0, 4] = 0
    for state, changed in ((None, True), (model.initial(1), False)):
        a, b = (model.encode(Inputs(x), state)[0][-1][0, 0] for x in (ids, other))
        assert torch.equal(a, b) != changed


def test_frames_end_in_the_pooled_token() -> None:
    special = {"<sep>": 4, "<cls>": 3}
    model = XLNet(XLNetConfig(8, 1, 2, 8, 4), Vocabulary(SIZE, 3, special, 4))
    a, b = (Encoding(np.array(ids), np.zeros((len(ids), 2)), np.zeros(len(ids))) for ids in ([7, 8], [9]))
    single, pair = model.frame(a), model.frame(a, b)
    assert (single.ids.tolist(), single.segments.tolist(), single.pooled_position) == ([7, 8, 4, 3], [0, 0, 0, 2], 3)  # type: ignore[union-attr]
    assert pair.ids.tolist() == [7, 8, 4, 9, 4, 3]
    assert pair.segments.tolist() == [0, 0, 0, 1, 1, 2]  # type: ignore[union-attr]
    assert pair.text_spans == ((0, 2), (3, 4))
    assert pair.pooled_position == 5


# ------------------------------------------------------------------------------------------------ objective


def text(tokens: int = 600, word: int = 3) -> Stream:
    """Random tokens; every word has `word` tokens."""
    marks = np.where(np.arange(tokens) % word == 0, WORD, 0).astype(np.uint8)
    return Stream.from_ids(np.random.default_rng(0).integers(0, SIZE, tokens), marks=marks)


def permutation_objective(rows: int = 4, length: int = 36, **options: Any) -> PermutationObjective:
    objective = make_objective(
        {"kind": "permutation", **options}, {"rows": rows, "length": length}, Vocabulary(SIZE, 0)
    )
    assert isinstance(objective, PermutationObjective)
    return objective


def test_one_token_in_six_is_predicted_and_hidden_until_its_turn() -> None:
    objective = permutation_objective()
    for batch in itertools.islice(objective.batches(text(), 3, 0), 9):
        targets, mask = batch.targets, batch.inputs.mask
        assert mask is not None
        steps = targets.shape[1]
        predicted = targets != IGNORE
        assert (predicted.sum(1) == max(1, steps // 6)).all()
        assert torch.equal(targets[predicted], batch.inputs.ids[predicted])
        for row in range(4):
            hidden, visible = predicted[row], ~predicted[row]
            assert not mask[row].diagonal()[hidden].any()
            assert mask[row][:, visible].all()  # all tokens see visible ones
            assert not mask[row][visible][:, hidden].any()  # visible tokens see no targets
            among_targets = mask[row][hidden][:, hidden]
            turns = among_targets.sum(1).sort().values
            assert torch.equal(turns, torch.arange(len(turns)))  # a total order: 0, 1, 2, … targets are visible


def test_segments_are_consecutive_in_rows_and_read_every_token_once() -> None:
    objective, stream = permutation_objective(rows=3, length=40), text(500)
    batches = list(itertools.islice(objective.batches(stream, 0, 0), objective.batches_per_epoch(stream) + 1))
    assert [batch.reset_state for batch in batches] == [True, False, False, False, False, True]
    assert [batch.inputs.ids.shape[1] for batch in batches[:5]] == [40, 40, 40, 40, 6]
    ids = torch.cat([batch.inputs.ids for batch in batches[:5]], 1)
    assert torch.equal(ids.flatten(), torch.from_numpy(stream.ids[:498].astype(np.int64)))


def test_backward_rows_read_from_the_end_with_forward_positions() -> None:
    objective, stream = permutation_objective(rows=4, length=40, both_directions=True), text(500)
    batches = list(itertools.islice(objective.batches(stream, 0, 0), objective.batches_per_epoch(stream)))
    ids = torch.cat([batch.inputs.ids for batch in batches], 1)
    positions = torch.cat([batch.inputs.positions for batch in batches if batch.inputs.positions is not None], 1)
    rows = torch.from_numpy(stream.ids.astype(np.int64)).view(2, 250)
    assert torch.equal(ids, torch.cat([rows, rows.flip(1)]))
    assert torch.equal(positions[0], torch.arange(250))
    assert torch.equal(positions[3], torch.arange(249, -1, -1))
    # words start at every third position of the text
    single_tokens = permutation_objective(rows=4, length=60, predict_every=10, max_span=1, both_directions=True)
    for batch in itertools.islice(single_tokens.batches(text(480), 0, 0), 4):
        assert batch.inputs.positions is not None
        for row in range(4):
            begins = batch.inputs.positions[row][batch.targets[row] != IGNORE] % 3 == 0
            assert begins.float().mean() > 0.6


def test_batch_depends_on_seed_and_step_alone() -> None:
    objective, stream = permutation_objective(), text()
    straight = list(itertools.islice(objective.batches(stream, 5, 0), 9))
    for step in (1, 4, 7):
        batch = next(objective.batches(stream, 5, step))
        assert torch.equal(batch.targets, straight[step].targets)
        assert torch.equal(batch.inputs.mask, straight[step].inputs.mask)  # type: ignore[arg-type]
    other = next(objective.batches(stream, 6, 0))
    assert torch.equal(other.inputs.ids, straight[0].inputs.ids)
    assert not torch.equal(other.targets, straight[0].targets)
    next_epoch = straight[objective.batches_per_epoch(stream)]  # other targets in the same text
    assert torch.equal(next_epoch.inputs.ids, straight[0].inputs.ids)
    assert not torch.equal(next_epoch.targets, straight[0].targets)


def test_validation_reads_the_text_once_and_repeats_exactly() -> None:
    objective, stream = permutation_objective(both_directions=True), text(1300)
    first, second = list(objective.validation_batches(stream)), list(objective.validation_batches(stream))
    assert sum(batch.targets.numel() for batch in first) == 1300
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.targets, b.targets)
        assert a.inputs.positions is None
    assert [batch.reset_state for batch in first] == [True] + [False] * (len(first) - 1)


def test_choose_spans_starts_at_words_and_prefers_short_spans() -> None:
    draw = np.random.default_rng(4)
    begins = np.arange(600) % 2 == 0
    runs: list[int] = []
    for _ in range(60):
        chosen = choose_spans(begins, 100, 6, 5, draw)
        assert chosen.sum() == 100
        edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
        runs += (edges[1::2] - edges[::2]).tolist()
    assert len(runs) / 60 < 60  # far fewer runs than the 100 tokens
    counts = np.bincount(runs, minlength=6)
    assert counts[1] > counts[2] > counts[3] > counts[5] > 0
    single = choose_spans(begins, 40, 6, 1, draw)
    assert single.sum() == 40
    assert begins[np.flatnonzero(single)].mean() > 0.9  # the rest fills the count
    assert choose_spans(np.zeros(10, bool), 3, 3, 5, draw).sum() == 3  # no word starts here: single tokens
    assert choose_spans(np.ones(4, bool), 4, 1, 5, draw).all()


def test_nats_cover_the_predicted_tokens_and_memory_is_carried() -> None:
    objective, model, stream = permutation_objective(), network(), text()
    state = None
    for batch in itertools.islice(objective.batches(stream, 0, 0), 2):
        loss = objective.loss(model, batch, state)
        layers, _ = model.hidden(batch.inputs, state)
        log_p = model.readout.log_probs(layers[-1])
        predicted = batch.targets != IGNORE
        nats = -log_p[predicted].gather(1, batch.targets[predicted].unsqueeze(1)).sum()
        torch.testing.assert_close(loss.nats, nats.detach(), rtol=1e-4, atol=1e-4)
        assert loss.count == int(predicted.sum()) == 24
        torch.testing.assert_close(loss.value * 24, loss.nats)
        state = loss.state
    without_memory = objective.loss(model, batch, None)
    assert abs(without_memory.nats - loss.nats) > 1e-3


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"predict_every": 0}, "objective.predict_every"),
        ({"max_span": 1.5}, "objective.max_span"),
        ({"both_directions": True, "rows": 3}, "batches.rows"),
        ({"both_directions": "no"}, "objective.both_directions"),
        ({"rows": 0}, "batches.rows"),
    ],
)
def test_invalid_settings_are_rejected(options: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        permutation_objective(**options)
    assert error.value.key == key


def test_too_short_text_is_rejected() -> None:
    with pytest.raises(DataError, match="600 tokens"):
        permutation_objective(rows=400).batches_per_epoch(text())


def test_other_layouts_and_networks_are_rejected() -> None:
    with pytest.raises(InvalidSetting) as error:
        PermutationObjective({"kind": "blocks", "length": 4})
    assert error.value.key == "batches.kind"
    gpt = GPT2(GPT2Config(width=8, layers=1, heads=2, window=40), Vocabulary(SIZE, 0))
    objective = permutation_objective()
    with pytest.raises(Unsupported, match="GPT2"):
        objective.loss(gpt, next(objective.batches(text(), 0, 0)), None)


# ------------------------------------------------------------------------------------------------ learning


def train(stream: Stream, objective: PermutationObjective, steps: int, seed: int, layers: int) -> XLNet:
    torch.manual_seed(seed)
    model = XLNet(XLNetConfig(32, layers, 2, ffn_width=64, memory=4, dropout=0.0), Vocabulary(SIZE, 0))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    state = None
    for batch in itertools.islice(objective.batches(stream, seed, 0), steps):
        loss = objective.loss(model, batch, None if batch.reset_state else state)
        optimizer.zero_grad()
        loss.value.backward()
        optimizer.step()
        state = pytree.detach(loss.state)
    return model.eval()


@torch.no_grad()
def costs(model: XLNet, stream: Stream, objective: PermutationObjective, carry: bool = True) -> list[float]:
    """Nats per predicted token in each segment of an epoch, with newly drawn orders."""
    state, nats = None, []
    for batch in itertools.islice(objective.batches(stream, 99, 0), objective.batches_per_epoch(stream)):
        loss = objective.loss(model, batch, None if batch.reset_state or not carry else state)
        state = loss.state
        nats.append(loss.nats.item() / loss.count)
    return nats


def test_pattern_learned_in_any_order_is_predicted_from_left_to_right() -> None:
    """In a cycle of nine tokens, a neighbor on either side determines the missing token."""
    cycle = np.random.default_rng(1).permutation(SIZE)[:9]
    stream = Stream.from_ids(np.tile(cycle, 120))
    objective = permutation_objective(rows=16, length=8, predict_every=1)
    permuted, exact = [], []
    for seed in range(3):
        model = train(stream, objective, 150, seed, layers=2)
        permuted.append(statistics.mean(costs(model, stream, objective)))
        ids = torch.from_numpy(np.tile(cycle, 4)).unsqueeze(0)
        with torch.no_grad():
            exact.append(-model.score(ids, torch.tensor([36]), None)[0].mean().item())
    assert statistics.median(permuted) < 0.8  # chance level of nine tokens: 2.2
    assert statistics.median(exact) < 1.0


def test_memory_predicts_repeated_segments() -> None:
    """Segments of four random tokens occur twice; only memory can predict the second occurrence."""
    tokens = np.random.default_rng(1).integers(0, 8, (600, 4))
    stream = Stream.from_ids(np.repeat(tokens, 2, 0).reshape(-1))
    objective = permutation_objective(rows=20, length=4, predict_every=1)
    with_memory, without = [], []
    for seed in range(3):
        model = train(stream, objective, 120, seed, layers=1)
        with_memory.append(statistics.mean(costs(model, stream, objective)[1::2]))
        without.append(statistics.mean(costs(model, stream, objective, carry=False)[1::2]))
    assert statistics.median(with_memory) < 0.6 * np.log(8)
    assert statistics.median(without) > 0.9 * np.log(8)
