"""The conditional random field compared with an enumeration of all tag sequences."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from nextword.data.tag_schemes import SCHEMES, allowed_transitions, find_violation
from nextword.layers.crf import CRF, FORBIDDEN

ROWS, LENGTH, TAGS = 4, 5, 3
LENGTHS = (5, 3, 1, 4)


def make_inputs(tags: int = TAGS, seed: int = 0, **options: object) -> tuple[CRF, Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    crf = CRF(tags, **options).double()  # type: ignore[arg-type]
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    emissions = torch.randn(ROWS, LENGTH, tags, dtype=torch.float64, requires_grad=True)
    gold = torch.randint(tags, (ROWS, LENGTH))
    mask = torch.arange(LENGTH) < torch.tensor(LENGTHS).unsqueeze(1)
    return crf, emissions, gold, mask


def compute_score(crf: CRF, emissions: Tensor, path: tuple[int, ...], constrained: bool = False) -> Tensor:
    """Score a single row term by term, following the formula."""
    transitions, begin, end = crf.steps(constrained)
    total = begin[path[0]] + end[path[-1]]
    for t, tag in enumerate(path):
        total = total + emissions[t, tag]
    for a, b in itertools.pairwise(path):
        total = total + transitions[a, b]
    return total


def list_paths(length: int, tags: int = TAGS) -> list[tuple[int, ...]]:
    return list(itertools.product(range(tags), repeat=length))


def compute_log_likelihood(crf: CRF, emissions: Tensor, gold: Tensor, length: int) -> Tensor:
    scores = torch.stack([compute_score(crf, emissions, path, crf.strict) for path in list_paths(length)])
    right = compute_score(crf, emissions, tuple(gold[:length].tolist()), crf.strict)
    return right - scores.logsumexp(0)


def test_log_likelihood_and_gradients_equal_enumeration() -> None:
    crf, emissions, gold, mask = make_inputs()
    inputs = (emissions, *crf.parameters())
    result = crf.log_likelihood(emissions, gold, mask)
    wanted = torch.stack([compute_log_likelihood(crf, emissions[i], gold[i], n) for i, n in enumerate(LENGTHS)])
    torch.testing.assert_close(result, wanted)
    weights = torch.randn(ROWS, dtype=torch.float64)
    ours = torch.autograd.grad((result * weights).sum(), inputs)
    theirs = torch.autograd.grad((wanted * weights).sum(), inputs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_probabilities_of_all_sequences_sum_to_one() -> None:
    crf, emissions, _, _ = make_inputs()
    for n in (1, 3):
        every = torch.tensor(list_paths(n))
        rows = emissions[:1, :n].expand(len(every), -1, -1)
        total = crf.log_likelihood(rows, every, torch.ones(every.shape, dtype=torch.bool)).exp().sum()
        assert total.item() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(5))
def test_viterbi_equals_best_of_all_sequences(seed: int) -> None:
    crf, emissions, _, mask = make_inputs(seed=seed)
    result = crf.viterbi(emissions, mask)
    for i, n in enumerate(LENGTHS):
        best = max(list_paths(n), key=lambda path: compute_score(crf, emissions[i], path).item())
        assert tuple(result[i, :n].tolist()) == best
        assert not result[i, n:].any()


def test_masked_positions_change_no_result() -> None:
    crf, emissions, gold, mask = make_inputs()
    other = torch.where(mask.unsqueeze(2), emissions, torch.tensor(77.0, dtype=torch.float64))
    strange = torch.where(mask, gold, torch.tensor(-100))
    torch.testing.assert_close(crf.log_likelihood(other, strange, mask), crf.log_likelihood(emissions, gold, mask))
    assert torch.equal(crf.viterbi(other, mask), crf.viterbi(emissions, mask))
    alone = crf.log_likelihood(emissions[1:2, :3], gold[1:2, :3], mask[1:2, :3])
    torch.testing.assert_close(alone, crf.log_likelihood(emissions, gold, mask)[1:2])


def test_empty_row_has_zero_log_likelihood() -> None:
    crf, emissions, gold, mask = make_inputs()
    mask = mask.clone()
    mask[2] = False
    result = crf.log_likelihood(emissions, gold, mask)
    assert float(result.detach()[2]) == 0.0
    assert torch.isfinite(torch.autograd.grad(result.sum(), emissions)[0]).all()
    nothing = emissions[:, :0], torch.zeros(ROWS, 0, dtype=torch.bool)
    assert crf.viterbi(*nothing).shape == (ROWS, 0)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("strict", [False, True])
def test_viterbi_returns_only_sequences_valid_in_the_scheme(scheme: str, strict: bool) -> None:
    letters = {"IOB1": "BI", "IOB2": "BI", "BIOES": "BIES", "BILOU": "BILU"}[scheme]
    names = ["O", *(f"{letter}-X" for letter in letters)]
    steps = [torch.from_numpy(part) for part in allowed_transitions(names, scheme)]
    crf, emissions, _, mask = make_inputs(len(names), allowed=steps, strict=strict)
    fits = {
        n: [path for path in list_paths(n, len(names)) if find_violation([names[i] for i in path], scheme) is None]
        for n in set(LENGTHS)
    }
    result = crf.viterbi(3 * emissions, mask)
    for i, n in enumerate(LENGTHS):
        best = max(fits[n], key=lambda path: compute_score(crf, 3 * emissions[i], path).item())
        assert tuple(result[i, :n].tolist()) == best
    # with constraints in training, all probability is on valid sequences; otherwise only a part
    rows = torch.tensor(fits[3])
    total = crf.log_likelihood(emissions[:1, :3].expand(len(rows), -1, -1), rows, rows >= 0).exp().sum()
    assert total.item() == pytest.approx(1.0) if strict else total.item() < 0.99


def test_viterbi_with_all_transitions_forbidden_still_returns_tags() -> None:
    nothing = [torch.zeros(TAGS, TAGS, dtype=torch.bool), *[torch.zeros(TAGS, dtype=torch.bool)] * 2]
    crf, emissions, _, mask = make_inputs(allowed=nothing)
    assert crf.viterbi(emissions, mask).shape == (ROWS, LENGTH)
    assert math.isfinite(FORBIDDEN)


def test_log_likelihood_of_bf16_emissions_is_summed_in_float32() -> None:
    crf, emissions, gold, mask = make_inputs()
    crf = crf.float()
    narrow = emissions.detach().to(torch.bfloat16)
    result = crf.log_likelihood(narrow, gold, mask)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, crf.log_likelihood(narrow.float(), gold, mask))
