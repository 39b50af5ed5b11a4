"""Orders of prediction: who sees whom, what memory gives, what is trained on, and that it is learnt."""

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
    """Weights of some size, so that whatever is seen shows."""
    made = XLNet(XLNetConfig(16, layers, 2, ffn_width=24, memory=memory, dropout=0.0), Vocabulary(size, 0))
    torch.manual_seed(2)
    for name, p in made.named_parameters():
        nn.init.normal_(p, float("norm" in name and name.endswith("weight")), 0.4)
    return made.eval()


def drawn(mask: Tensor) -> list[str]:
    return ["".join("#" if seen else "." for seen in row) for row in mask.tolist()]


# ------------------------------------------------------------------------------------------------ who sees whom


def test_mask_of_an_explicit_order() -> None:
    """The paper's own example (figure 4): x3 first, then x2, x4 and x1."""
    order = torch.tensor([2, 1, 3, 0])
    assert drawn(order_mask(order.argsort())) == [
        ".###",  # x1 comes last and sees all the others
        "..#.",  # x2 sees x3
        "....",  # x3 comes first and sees nothing
        ".##.",  # x4 sees x3 and x2
    ]


def test_visible_tokens_are_seen_by_all_and_see_no_targets() -> None:
    ranks = torch.tensor([-1, 1, -1, 0, -1])
    assert drawn(order_mask(ranks)) == [
        "#.#.#",
        "#.###",  # predicted second: sees the first
        "#.#.#",
        "#.#.#",  # predicted first
        "#.#.#",
    ]


def test_distances_are_sines_then_cosines() -> None:
    table = distance_encodings(torch.tensor([0, 3, -3]), 4)
    torch.testing.assert_close(table[0], torch.tensor([0.0, 0.0, 1.0, 1.0]))
    torch.testing.assert_close(table[1, :2], torch.tensor([3.0, 0.03]).sin())
    torch.testing.assert_close(table[1, 2:], torch.tensor([3.0, 0.03]).cos())
    torch.testing.assert_close(table[2], table[1] * torch.tensor([-1.0, -1.0, 1.0, 1.0]))


@pytest.mark.parametrize("order", [[2, 1, 3, 0, 4], [0, 1, 2, 3, 4], [4, 2, 0, 3, 1]])
def test_query_depends_only_on_tokens_before_it_in_the_order(order: list[int]) -> None:
    """By the gradient of its last layer for each token's embedding: zero for its own, and for those to come."""
    model = network(layers=3)
    ids = torch.tensor([[7, 3, 11, 5, 2]])
    layers, _ = model.hidden(Inputs(ids, mask=order_mask(torch.tensor([order]).argsort())), None)
    for place, turn in zip(order, range(5), strict=True):
        model.zero_grad()
        layers[-1][0, place].square().sum().backward(retain_graph=True)
        felt = model.embedding.weight.grad[ids[0]].abs().sum(1) if turn else torch.zeros(5)  # type: ignore[index]
        assert (felt > 0).tolist() == [other in order[:turn] for other in range(5)]


def test_query_that_sees_nothing_does_not_depend_on_the_token() -> None:
    model = network()
    first = order_mask(torch.tensor([[0, 1, 2]]))
    a, b = (model.hidden(Inputs(torch.tensor([ids]), mask=first), None)[0][-1][0, 0] for ids in ([1, 2, 3], [4, 5, 6]))
    assert torch.equal(a, b)
    assert torch.isfinite(a).all()


@torch.no_grad()
def test_probabilities_of_all_texts_sum_to_one_in_any_order() -> None:
    """Π p(x_{z_t} | x_{z_<t}) over all 3³ texts, which a single leak would spoil."""
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
    """…of which the first part does not see the second. Both streams, three segments, each in an order of its own."""
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
        own, asked, state = model.streams(Inputs(ids[:, cut], mask=order_mask(ranks[:, cut])), state)
        for layer in range(3):
            torch.testing.assert_close(own[layer], content[layer][:, cut], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(asked[layer], queries[layer][:, cut], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_explicit_positions_continue_from_implicit_ones_and_vice_versa() -> None:
    model = network()
    ids = torch.randint(0, SIZE, (2, 9))
    want, _ = model.hidden(Inputs(ids), None)
    for first, second in ((None, torch.arange(4, 9)), (torch.arange(70, 74), None), (torch.arange(4), None)):
        state, parts = None, []
        for part, places in ((ids[:, :4], first), (ids[:, 4:], second)):
            layers, state = model.hidden(
                Inputs(part, positions=None if places is None else places.expand(2, -1)), state
            )
            parts.append(layers[-1])
        torch.testing.assert_close(torch.cat(parts, 1), want[-1], rtol=1e-4, atol=1e-5)


def test_memory_has_its_size_and_no_gradient() -> None:
    model = network(memory=6)
    ids = torch.randint(0, SIZE, (2, 4))
    state, held = None, []
    for _ in range(3):
        layers, state = model.hidden(Inputs(ids), state)
        held.append(state["layers"][0].shape[1])
        assert not any(layer.requires_grad for layer in state["layers"])
    assert held == [4, 6, 6]
    assert layers[-1].requires_grad


# ------------------------------------------------------------------------------------------------ directions and frames


def test_attention_is_bidirectional_without_a_state_and_causal_after_reading() -> None:
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
    alone, two = model.frame(a), model.frame(a, b)
    assert (alone.ids.tolist(), alone.segments.tolist(), alone.pooled_position) == ([7, 8, 4, 3], [0, 0, 0, 2], 3)  # type: ignore[union-attr]
    assert two.ids.tolist() == [7, 8, 4, 9, 4, 3]
    assert two.segments.tolist() == [0, 0, 0, 1, 1, 2]  # type: ignore[union-attr]
    assert two.text_spans == ((0, 2), (3, 4))
    assert two.pooled_position == 5


# ------------------------------------------------------------------------------------------------ the objective


def text(tokens: int = 600, word: int = 3) -> Stream:
    """Words of so many tokens each."""
    marks = np.where(np.arange(tokens) % word == 0, WORD, 0).astype(np.uint8)
    return Stream.from_ids(np.random.default_rng(0).integers(0, SIZE, tokens), marks=marks)


def objective(rows: int = 4, length: int = 36, **options: Any) -> PermutationObjective:
    made = make_objective({"kind": "permutation", **options}, {"rows": rows, "length": length}, Vocabulary(SIZE, 0))
    assert isinstance(made, PermutationObjective)
    return made


def test_one_token_in_six_is_predicted_and_no_target_is_visible_before_its_turn() -> None:
    made = objective()
    for batch in itertools.islice(made.batches(text(), 3, 0), 9):
        targets, mask = batch.targets, batch.inputs.mask
        assert mask is not None
        steps = targets.shape[1]
        wanted = targets != IGNORE
        assert (wanted.sum(1) == max(1, steps // 6)).all()
        assert torch.equal(targets[wanted], batch.inputs.ids[wanted])
        for row in range(4):
            ours, given = wanted[row], ~wanted[row]
            assert not mask[row].diagonal()[ours].any()
            assert mask[row][:, given].all()  # what is given is seen by all
            assert not mask[row][given][:, ours].any()  # and sees nothing that is to be predicted
            among = mask[row][ours][:, ours]
            turns = among.sum(1).sort().values
            assert torch.equal(turns, torch.arange(len(turns)))  # an order: none, one, two, … come before


def test_segments_follow_each_other_in_rows_and_every_token_is_read_once() -> None:
    made, stream = objective(rows=3, length=40), text(500)
    batches = list(itertools.islice(made.batches(stream, 0, 0), made.batches_per_epoch(stream) + 1))
    assert [batch.reset_state for batch in batches] == [True, False, False, False, False, True]
    assert [batch.inputs.ids.shape[1] for batch in batches[:5]] == [40, 40, 40, 40, 6]
    read = torch.cat([batch.inputs.ids for batch in batches[:5]], 1)
    assert torch.equal(read.flatten(), torch.from_numpy(stream.ids[:498].astype(np.int64)))


def test_backward_rows_read_the_text_from_its_end_with_forward_positions() -> None:
    made, stream = objective(rows=4, length=40, both_directions=True), text(500)
    batches = list(itertools.islice(made.batches(stream, 0, 0), made.batches_per_epoch(stream)))
    ids = torch.cat([batch.inputs.ids for batch in batches], 1)
    places = torch.cat([batch.inputs.positions for batch in batches if batch.inputs.positions is not None], 1)
    rows = torch.from_numpy(stream.ids.astype(np.int64)).view(2, 250)
    assert torch.equal(ids, torch.cat([rows, rows.flip(1)]))
    assert torch.equal(places[0], torch.arange(250))
    assert torch.equal(places[3], torch.arange(249, -1, -1))
    alone = objective(
        rows=4, length=60, predict_every=10, max_span=1, both_directions=True
    )  # words begin at every third place of the text
    for batch in itertools.islice(alone.batches(text(480), 0, 0), 4):
        assert batch.inputs.positions is not None
        for row in range(4):
            begins = batch.inputs.positions[row][batch.targets[row] != IGNORE] % 3 == 0
            assert begins.float().mean() > 0.6


def test_batch_depends_on_seed_and_step_alone() -> None:
    made, stream = objective(), text()
    straight = list(itertools.islice(made.batches(stream, 5, 0), 9))
    for at in (1, 4, 7):
        batch = next(made.batches(stream, 5, at))
        assert torch.equal(batch.targets, straight[at].targets)
        assert torch.equal(batch.inputs.mask, straight[at].inputs.mask)  # type: ignore[arg-type]
    other = next(made.batches(stream, 6, 0))
    assert torch.equal(other.inputs.ids, straight[0].inputs.ids)
    assert not torch.equal(other.targets, straight[0].targets)
    again = straight[made.batches_per_epoch(stream)]  # the next epoch: other targets in the same text
    assert torch.equal(again.inputs.ids, straight[0].inputs.ids)
    assert not torch.equal(again.targets, straight[0].targets)


def test_validation_reads_the_text_once_and_always_alike() -> None:
    made, stream = objective(both_directions=True), text(1300)
    first, second = list(made.validation_batches(stream)), list(made.validation_batches(stream))
    assert sum(batch.targets.numel() for batch in first) == 1300
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.targets, b.targets)
        assert a.inputs.positions is None
    assert [batch.reset_state for batch in first] == [True] + [False] * (len(first) - 1)


def test_spans_begin_at_words_and_short_ones_are_more_frequent() -> None:
    draw = np.random.default_rng(4)
    begins = np.arange(600) % 2 == 0
    runs: list[int] = []
    for _ in range(60):
        chosen = choose_spans(begins, 100, 6, 5, draw)
        assert chosen.sum() == 100
        edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
        runs += (edges[1::2] - edges[::2]).tolist()
    assert len(runs) / 60 < 60  # of 100 tokens, far fewer runs than tokens
    counts = np.bincount(runs, minlength=6)
    assert counts[1] > counts[2] > counts[3] > counts[5] > 0
    alone = choose_spans(begins, 40, 6, 1, draw)
    assert alone.sum() == 40
    assert begins[np.flatnonzero(alone)].mean() > 0.9  # the rest fills up
    assert choose_spans(np.zeros(10, bool), 3, 3, 5, draw).sum() == 3  # no word begins here: single tokens
    assert choose_spans(np.ones(4, bool), 4, 1, 5, draw).all()


def test_nats_are_those_of_the_predicted_tokens_and_memory_is_carried() -> None:
    made, model, stream = objective(), network(), text()
    state = None
    for batch in itertools.islice(made.batches(stream, 0, 0), 2):
        loss = made.loss(model, batch, state)
        layers, _ = model.hidden(batch.inputs, state)
        log_p = model.readout.log_probs(layers[-1])
        wanted = batch.targets != IGNORE
        want = -log_p[wanted].gather(1, batch.targets[wanted].unsqueeze(1)).sum()
        torch.testing.assert_close(loss.nats, want.detach(), rtol=1e-4, atol=1e-4)
        assert loss.count == int(wanted.sum()) == 24
        torch.testing.assert_close(loss.value * 24, loss.nats)
        state = loss.state
    alone = made.loss(model, batch, None)
    assert abs(alone.nats - loss.nats) > 1e-3


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
        objective(**options)
    assert error.value.key == key


def test_text_too_short_for_its_rows_is_rejected() -> None:
    with pytest.raises(DataError, match="600 tokens"):
        objective(rows=400).batches_per_epoch(text())


def test_other_layouts_and_networks_are_rejected() -> None:
    with pytest.raises(InvalidSetting) as error:
        PermutationObjective({"kind": "blocks", "length": 4})
    assert error.value.key == "batches.kind"
    gpt = GPT2(GPT2Config(width=8, layers=1, heads=2, window=40), Vocabulary(SIZE, 0))
    made = objective()
    with pytest.raises(Unsupported, match="GPT2"):
        made.loss(gpt, next(made.batches(text(), 0, 0)), None)


# ------------------------------------------------------------------------------------------------ learning


def train(stream: Stream, made: PermutationObjective, steps: int, seed: int, layers: int) -> XLNet:
    torch.manual_seed(seed)
    model = XLNet(XLNetConfig(32, layers, 2, ffn_width=64, memory=4, dropout=0.0), Vocabulary(SIZE, 0))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    state = None
    for batch in itertools.islice(made.batches(stream, seed, 0), steps):
        loss = made.loss(model, batch, None if batch.reset_state else state)
        optimizer.zero_grad()
        loss.value.backward()
        optimizer.step()
        state = pytree.detach(loss.state)
    return model.eval()


@torch.no_grad()
def costs(model: XLNet, stream: Stream, made: PermutationObjective, carry: bool = True) -> list[float]:
    """Nats a predicted token in each segment of an epoch, its orders drawn anew."""
    state, found = None, []
    for batch in itertools.islice(made.batches(stream, 99, 0), made.batches_per_epoch(stream)):
        loss = made.loss(model, batch, None if batch.reset_state or not carry else state)
        state = loss.state
        found.append(loss.nats.item() / loss.count)
    return found


def test_pattern_learned_in_any_order_is_known_from_left_to_right() -> None:
    """A cycle of nine tokens: a neighbour on either side says which one is missing."""
    cycle = np.random.default_rng(1).permutation(SIZE)[:9]
    stream = Stream.from_ids(np.tile(cycle, 120))
    made = objective(rows=16, length=8, predict_every=1)
    found, exact = [], []
    for seed in range(3):
        model = train(stream, made, 150, seed, layers=2)
        found.append(statistics.mean(costs(model, stream, made)))
        ids = torch.from_numpy(np.tile(cycle, 4)).unsqueeze(0)
        with torch.no_grad():
            exact.append(-model.score(ids, torch.tensor([36]), None)[0].mean().item())
    assert statistics.median(found) < 0.8  # guessing among nine: 2.2
    assert statistics.median(exact) < 1.0


def test_memory_predicts_what_the_segment_cannot() -> None:
    """Segments of four random tokens, each written twice: the second time memory knows them, and nothing else does."""
    tokens = np.random.default_rng(1).integers(0, 8, (600, 4))
    stream = Stream.from_ids(np.repeat(tokens, 2, 0).reshape(-1))
    made = objective(rows=20, length=4, predict_every=1)
    found, without = [], []
    for seed in range(3):
        model = train(stream, made, 120, seed, layers=1)
        found.append(statistics.mean(costs(model, stream, made)[1::2]))
        without.append(statistics.mean(costs(model, stream, made, carry=False)[1::2]))
    assert statistics.median(found) < 0.6 * np.log(8)
    assert statistics.median(without) > 0.9 * np.log(8)
