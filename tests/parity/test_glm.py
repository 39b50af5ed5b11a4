"""GLM compared with the figure of the paper and with formulas in torch primitives, gradients included.

Also checks that no token sees the future, and that reading at once equals reading token by token.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nextword.batching.blank_infilling import TOKENS, arrange_pieces
from nextword.core import pytree
from nextword.core.types import IGNORE, Inputs, Vocabulary
from nextword.models.glm import GLM, GLMConfig, blank_mask
from nextword.tokenizers.special_tokens import PieceMarks

SIZE, WIDTH, HEADS, LAYERS, WINDOW = 29, 24, 3, 2, 16
BEGIN, END = 0, 1
VOCABULARY = Vocabulary(SIZE, BEGIN, {"<s>": BEGIN, "</s>": END}, END)
MASK, SMASK, GMASK = SIZE, SIZE + 1, SIZE + 2
X = [11, 12, 13, 14, 15, 16]  # x1 … x6


def network(**more: Any) -> GLM:
    """Weights of some size, so that whatever is seen shows."""
    sizes = {"width": WIDTH, "layers": LAYERS, "heads": HEADS, "window": WINDOW, "dropout": 0.0}
    made = GLM(GLMConfig(**{**sizes, **more}), VOCABULARY).double()
    torch.manual_seed(4)
    for name, p in made.named_parameters():
        nn.init.normal_(p, float("norm" in name and name.endswith("weight")), 0.3)
    return made.eval()


# ------------------------------------------------------------------------------------------------ the paper's figure

# Figure 2 of Du et al.: x3 and x5 x6 are taken out of x1 … x6, and the second is written first.
FIGURE = {
    "read": [BEGIN, 11, 12, MASK, 14, MASK, BEGIN, 15, 16, BEGIN, 13],  # begin │ x1 x2 M x4 M │ S x5 x6 │ S x3
    "position 1": [0, 1, 2, 3, 4, 5, 5, 5, 5, 3, 3],
    "position 2": [0, 0, 0, 0, 0, 0, 1, 2, 3, 1, 2],
    "target": [*[IGNORE] * 6, 15, 16, END, 13, END],  # x5 x6 E x3 E
}
SEES = """
    # # # # # # . . . . .      begin
    # # # # # # . . . . .      x1
    # # # # # # . . . . .      x2
    # # # # # # . . . . .      M
    # # # # # # . . . . .      x4
    # # # # # # . . . . .      M
    # # # # # # # . . . .      S
    # # # # # # # # . . .      x5
    # # # # # # # # # . .      x6
    # # # # # # # # # # .      S
    # # # # # # # # # # #      x3
"""


def figure() -> tuple[Tensor, Tensor, Tensor]:
    gone = np.array([[0, 0, 1, 0, 1, 1]], bool)
    begins = np.array([[0, 0, 1, 0, 1, 0]], bool)
    found = arrange_pieces(
        np.array([X]), gone, begins, np.array([6]), np.array([TOKENS]), [[1, 0]], PieceMarks.of(VOCABULARY)
    )
    read, positions, targets = (torch.from_numpy(t) for t in found)
    return read, positions, targets


def test_positions_and_targets_equal_paper_figure() -> None:
    read, positions, targets = (t[0, :11] for t in figure())
    assert read.tolist() == FIGURE["read"]
    assert positions.T.tolist() == [FIGURE["position 1"], FIGURE["position 2"]]
    assert targets.tolist() == FIGURE["target"]


def test_attention_mask_equals_paper_figure() -> None:
    lines = [line.split()[:11] for line in SEES.strip().splitlines()]
    wanted = torch.tensor([[mark == "#" for mark in line] for line in lines])
    assert blank_mask(figure()[1])[0, :11, :11].equal(wanted)


# ------------------------------------------------------------------------------------------------ plain formulas


def plain(weights: dict[str, Tensor], ids: list[int], first: list[int], second: list[int], sees: Any) -> Tensor:
    """log p (T, V) of one row, from the paper's formulas, position by position and head by head."""

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        spread = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    table = torch.cat([weights["embedding.weight"], weights["masks.weight"]])
    x = torch.stack(
        [
            table[i] + weights["positions.weight"][a] + weights["inside.weight"][b]
            for i, a, b in zip(ids, first, second, strict=True)
        ]
    )
    for layer in range(LAYERS):
        name = f"blocks.{layer}"
        q, k, v = linear(norm(x, f"{name}.norm1"), f"{name}.attention.join").chunk(3, -1)
        rows = []
        for i in range(len(ids)):
            seen, parts = [j for j in range(len(ids)) if sees(i, j)], []
            for head in range(HEADS):
                at = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
                scores = torch.stack([q[i, at] @ k[j, at] for j in seen]) / math.sqrt(WIDTH // HEADS)
                shares = scores.exp() / scores.exp().sum()
                parts.append(sum(share * v[j, at] for share, j in zip(shares, seen, strict=True)))
            rows.append(torch.cat(parts))
        x = x + linear(torch.stack(rows), f"{name}.attention.out")
        y = linear(norm(x, f"{name}.norm2"), f"{name}.wide")
        y = y / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + linear(y, f"{name}.narrow")
    z = norm(x, "norm") @ weights["embedding.weight"].T
    return z - z.exp().sum(-1, keepdim=True).log()


def test_forward_and_gradients_equal_plain_formulas() -> None:
    ours = network()
    read, positions, targets = figure()
    h = ours.hidden(Inputs(read, positions=positions), None)[0][-1][0]
    weights = {name: p.detach().clone().requires_grad_() for name, p in ours.named_parameters()}
    ids, first, second = (FIGURE[name] for name in ("read", "position 1", "position 2"))
    want = plain(weights, ids, first, second, lambda i, j: second[j] == 0 or (second[i] > 0 and j <= i))
    torch.testing.assert_close(ours.readout.log_probs(h)[:11], want)
    asked = [t for t in range(11) if FIGURE["target"][t] != IGNORE]
    loss = -sum(want[t, FIGURE["target"][t]] for t in asked)
    loss.backward()
    total = ours.readout.total(h, targets[0])
    torch.testing.assert_close(total, loss)
    total.backward()
    for name, p in ours.named_parameters():
        assert p.grad is not None, name
        assert p.grad.any(), name
        torch.testing.assert_close(p.grad, weights[name].grad, msg=name)


# ------------------------------------------------------------------------------------------------ what is seen


@torch.no_grad()
def test_changed_token_affects_only_later_spans() -> None:
    """Another token of B changes nothing before it, and nothing of A; another of A changes everything."""
    ours = network()
    read, positions, _ = figure()
    whole = ours.hidden(Inputs(read, positions=positions), None)[0]
    for t in range(11):
        other = read.clone()
        other[0, t] = 20
        for layer, (a, b) in enumerate(
            zip(whole, ours.hidden(Inputs(other, positions=positions), None)[0], strict=True)
        ):
            changed = (a != b).any(-1)[0, :11].tolist()
            if layer == 0:
                assert changed == [i == t for i in range(11)]
            else:
                assert changed == [t < 6 or i >= t for i in range(11)]


@torch.no_grad()
def test_padding_changes_no_output() -> None:
    ours = network()
    read, positions, _ = figure()
    bare = ours.hidden(Inputs(read[:, :11], positions=positions[:, :11]), None)[0][-1]
    torch.testing.assert_close(ours.hidden(Inputs(read, positions=positions), None)[0][-1][:, :11], bare)


# ------------------------------------------------------------------------------------------------ step by step


@torch.no_grad()
def test_stepwise_spans_equal_parallel_spans() -> None:
    ours = network()
    read, positions, _ = figure()
    at_once = ours.readout.log_probs(ours.hidden(Inputs(read, positions=positions), None)[0][-1][0])
    state = ours.begin_blanks(read[:, :6], torch.tensor([6]))
    for t in range(6, 11):
        first = torch.tensor([FIGURE["position 2"][t] == 1])
        state = ours.begin_span(state, first, torch.tensor([FIGURE["position 1"][t]]))
        log_p, state = ours.step(read[:, t], state)
        torch.testing.assert_close(log_p[0], at_once[t])


@torch.no_grad()
def test_steps_of_texts_with_different_lengths_equal_single_texts() -> None:
    """Each as it does alone, whatever rows change places."""
    ours = network()
    texts = [[BEGIN, 5, MASK, 6], [BEGIN, MASK], [BEGIN, 7, 8, 9, 10, SMASK, 11]]
    places = torch.tensor([2, 1, 5])
    written = torch.tensor([[BEGIN, 4, 5, 6], [BEGIN, 6, 7, 8], [BEGIN, 9, 9, 3]])
    ids = torch.tensor([[*text, *[3] * (7 - len(text))] for text in texts])
    state = ours.begin_span(ours.begin_blanks(ids, torch.tensor([4, 2, 7])), torch.ones(3).bool(), places)
    alone = []
    for i, text in enumerate(texts):
        own = ours.begin_blanks(torch.tensor([text]), torch.tensor([len(text)]))
        own = ours.begin_span(own, torch.ones(1).bool(), places[i : i + 1])
        layers, _ = ours.hidden(Inputs(written[i : i + 1]), own)
        alone.append(ours.readout.log_probs(layers[-1][0]))
    order = torch.arange(3)
    for t in range(4):
        log_p, state = ours.step(written[order, t], state)
        for row, i in enumerate(order.tolist()):
            torch.testing.assert_close(log_p[row], alone[i][t])
        order = order[[2, 0, 1]]
        state = pytree.take(state, torch.tensor([2, 0, 1]))


@torch.no_grad()
def test_left_to_right_reading_equals_filling_an_empty_document() -> None:
    ours = network()
    ids = torch.tensor([[BEGIN, 5, 9, 3, 17]])
    read = torch.cat([torch.tensor([[BEGIN, GMASK]]), ids], 1)
    positions = torch.tensor([[[0, 0], [1, 0], *([1, i] for i in range(1, 6))]])
    want = ours.hidden(Inputs(read, positions=positions), None)[0][-1][:, 2:]
    torch.testing.assert_close(ours.hidden(Inputs(ids), None)[0][-1], want)
    log_p, _ = ours.score(ids, torch.tensor([5]), ours.start(1)[1])
    own = ours.readout.log_probs(want[0, :-1]).gather(1, ids[0, 1:, None]).T
    torch.testing.assert_close(log_p, own)


@torch.no_grad()
@pytest.mark.parametrize("cuts", [[1] * 40, [40], [7, 20, 13], [16, 16, 8]])
def test_long_text_reads_alike_for_any_chunks(cuts: list[int]) -> None:
    ours = network()
    ids = torch.randint(2, SIZE, (2, 40), generator=torch.Generator().manual_seed(1))
    whole, _ = ours.hidden(Inputs(ids), ours.initial(2))
    state, parts = ours.initial(2), []
    for part in ids.split(cuts, 1):
        layers, state = ours.hidden(Inputs(part), state)
        parts.append(layers[-1])
    torch.testing.assert_close(torch.cat(parts, 1), whole[-1])
    window = ours.hidden(Inputs(ids[:, 8:24]), None)[0][-1]  # the second window: half of the first, and on
    torch.testing.assert_close(window[:, 8:], whole[-1][:, 16:24])


@torch.no_grad()
def test_prompts_of_different_lengths_equal_single_prompts() -> None:
    ours = network()
    ids = torch.randint(2, SIZE, (3, 6), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([6, 2, 4])
    state, last = ours.prompt(ids, lengths), torch.tensor([4, 5, 6])
    log_p, state = ours.step(last, state)
    further, _ = ours.step(last, state)
    for i, length in enumerate(lengths.tolist()):
        row = torch.cat([ids[i, :length], last[i : i + 1], last[i : i + 1]])[None]
        want = ours.readout.log_probs(ours.hidden(Inputs(row), None)[0][-1][0])
        torch.testing.assert_close(torch.stack([log_p[i], further[i]]), want[-2:])


@torch.no_grad()
def test_probabilities_of_all_texts_sum_to_one() -> None:
    """Every text of up to two tokens that ends, and those of two that do not."""
    small = GLM(GLMConfig(8, 1, 2, 8, 0.0), Vocabulary(4, 0, {}, 1)).eval()
    total = 0.0
    for length in range(3):
        for text in itertools.product((0, 2, 3), repeat=length):
            ids = torch.tensor([[0, *text, *([1] if length < 2 else [])]])
            if ids.shape[1] > 1:
                total += float(small.score(ids, torch.tensor([ids.shape[1]]), small.start(1)[1])[0].sum().exp())
    assert total == pytest.approx(1, abs=1e-5)


# ------------------------------------------------------------------------------------------------ both sides


@torch.no_grad()
def test_encoder_part_attends_to_both_sides_without_padding() -> None:
    ours = network()
    ids = torch.tensor([[BEGIN, 5, 6, 7, 8], [BEGIN, 9, 4, 0, 0]])
    there = torch.tensor([[1] * 5, [1] * 3 + [0] * 2]).bool()
    layers, state = ours.encode(Inputs(ids, there))
    assert state is None
    for row, size in ((0, 5), (1, 3)):
        alone = ours.encode(Inputs(ids[row : row + 1, :size]))[0]
        for a, b in zip(layers, alone, strict=True):
            torch.testing.assert_close(a[row : row + 1, :size], b)
    other = ids.clone()
    other[0, 4] = 10
    assert (ours.encode(Inputs(other, there))[0][-1] != layers[-1]).any(-1)[0].all()
    packed = ours.encode(Inputs(torch.cat([ids[:1], ids[1:, :3]], 1), starts=torch.tensor([0, 5, 8])))[0][-1]
    torch.testing.assert_close(packed[0], torch.cat([layers[-1][0], layers[-1][1, :3]]))


@torch.no_grad()
def test_fill_equals_first_step_of_span() -> None:
    ours = network()
    ids = torch.tensor([[BEGIN, 5, 6, 7, 8], [BEGIN, 9, 4, 3, 2]])
    found = ours.fill(Inputs(ids), torch.tensor([8, 1, 3]))  # the fourth of row 1; two of row 0
    for (row, place, hidden), log_p in zip(((1, 3, [3]), (0, 1, [1, 3]), (0, 3, [1, 3])), found, strict=True):
        text = ids[row : row + 1].clone()
        text[0, hidden] = MASK
        state = ours.begin_span(ours.begin_blanks(text, torch.tensor([5])), torch.ones(1).bool(), torch.tensor([place]))
        torch.testing.assert_close(ours.step(torch.tensor([BEGIN]), state)[0][0], log_p)
