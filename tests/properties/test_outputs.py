"""Invariants of every readout: a distribution, exact evaluation, correct gradients, and files without the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting, UnknownName
from nextword.core.types import IGNORE, Vocabulary
from nextword.layers.output import READOUTS, make_readout
from nextword.layers.output.base import Readout
from tests.support.errors import raises

WIDTH = 6
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "classes": {"kind": "classes"},
    "classes by root": {"kind": "classes", "by": "root", "classes": 3},
    "classes by brown": {"kind": "classes", "by": "brown", "classes": 4},
    "huffman": {"kind": "tree"},
    "balanced": {"kind": "tree", "tree": "balanced"},
    "adaptive": {"kind": "adaptive", "cutoffs": [3, 9], "div_value": 2.0},
    "sampled": {"kind": "sampled", "samples": 5},
    "log-uniform": {"kind": "sampled", "samples": 5, "proposal": "log-uniform"},
    "nce": {"kind": "nce", "samples": 5},
    "mixture": {"kind": "mixture", "experts": 3},
    "spelled": {"kind": "spelled", "filters": [[1, 4], [2, 5]], "character_width": 4, "correction": 2},
}
TRAINED_ON_SAMPLES = ("sampled", "log-uniform", "nce")


def words(size: int) -> Vocabulary:
    return Vocabulary(size, size - 1, {"<end>": size - 1}, pieces=[b" w" + str(i).encode() for i in range(size)])


def text(size: int, length: int = 400, seed: int = 0) -> np.ndarray:
    """Frequent ids are not the low ones, and the last id never occurs."""
    rng = np.random.default_rng(seed)
    return rng.permutation(size - 1)[(rng.pareto(1.0, length) * 2).astype(np.int64) % (size - 1)].astype(np.uint16)


def readout(kind: str, size: int, seed: int = 0, prepared: bool = True) -> Any:
    torch.manual_seed(seed)
    made = make_readout(WIDTH, words(size), KINDS[kind])
    if prepared:
        made.fit_vocabulary(text(size))
    return made.double()


def rows(number: int, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(number, WIDTH, generator=g).double(), torch.randint(size, (number,), generator=g)


def test_readout_table_is_covered() -> None:
    silent = "none"  # it has no distribution to have properties
    assert {options.get("kind", "full") for options in KINDS.values()} == set(READOUTS) - {silent}
    assert all(isinstance(readout(kind, 17), Readout) for kind in KINDS)


@settings(max_examples=6, deadline=None)
@given(size=st.integers(10, 40), number=st.integers(1, 9), seed=st.integers(0, 99))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prepared", [True, False])
def test_readout_log_probs_sum_to_one_and_match_nll(
    kind: str, prepared: bool, size: int, number: int, seed: int
) -> None:
    layer = readout(kind, size, seed, prepared).eval()
    h, targets = rows(number, size, seed)
    log_p = layer.log_probs(h)
    assert log_p.shape == (number, size)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(number).double())
    expected = -log_p.gather(1, targets[:, None]).squeeze(1)
    torch.testing.assert_close(layer.nll(h, targets), expected)
    torch.testing.assert_close(layer.total(h, targets), expected.sum())


def gradients(layer: nn.Module, h: Tensor, loss: Any) -> dict[str, Tensor]:
    layer.zero_grad()
    x = h.clone().requires_grad_()
    loss(x).backward()
    found = {name: p.grad if p.grad is not None else torch.zeros_like(p) for name, p in layer.named_parameters()}
    assert x.grad is not None
    return {**{name: grad.clone() for name, grad in found.items()}, "h": x.grad}


@pytest.mark.parametrize("kind", KINDS)
def test_readout_gradients_equal_gradients_of_log_probs(kind: str) -> None:
    """Of the total, and of each row with a weight of its own. Sampled kinds are exact when they do not learn."""
    layer = readout(kind, 23).train(kind not in TRAINED_ON_SAMPLES)
    h, targets = rows(12, 23)
    targets[3] = IGNORE
    kept = targets != IGNORE
    weights = torch.linspace(0.5, 2.0, 12).double()

    def of(log_p: Tensor, factor: Tensor) -> Tensor:
        return -(log_p.gather(1, targets.clamp(min=0)[:, None]).squeeze(1) * factor * kept).sum()

    for ours, factor in (
        (layer.total, torch.ones(12).double()),
        (lambda x, t: (layer.nll(x, t) * weights).sum(), weights),
    ):
        expected = gradients(layer, h, lambda x, f=factor: of(layer.log_probs(x), f))
        found = gradients(layer, h, lambda x, f=ours: f(x, targets))
        for name, grad in expected.items():
            torch.testing.assert_close(found[name], grad, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("kind", KINDS)
def test_ignored_targets_have_zero_loss(kind: str) -> None:
    layer = readout(kind, 23)
    h, targets = rows(5, 23)
    targets[[0, 3]] = IGNORE
    nll = layer.nll(h, targets)
    assert nll[[0, 3]].tolist() == [0.0, 0.0]
    assert (nll[[1, 2, 4]] > 0).all()
    torch.manual_seed(3)
    some = layer.total(h, targets)
    torch.manual_seed(3)
    torch.testing.assert_close(some, layer.total(h[[1, 2, 4]], targets[[1, 2, 4]]))
    none = layer.total(h, torch.full((5,), IGNORE))
    assert none.item() == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_saved_readout_loads_without_the_training_text(kind: str) -> None:
    """Loaded into a layer that never saw the text, the weights give the same distribution; it is not prepared again."""
    layer = readout(kind, 31)
    other = readout(kind, 31, seed=1, prepared=False)
    before = {name: t.shape for name, t in other.state_dict().items()}
    other.load_state_dict(layer.state_dict())
    assert before == {name: t.shape for name, t in layer.state_dict().items()}
    h, targets = rows(9, 31)
    for made in (layer, other):
        made.eval()
    torch.testing.assert_close(other.log_probs(h), layer.log_probs(h), rtol=0, atol=0)
    torch.testing.assert_close(other.nll(h, targets), layer.nll(h, targets), rtol=0, atol=0)
    other.fit_vocabulary(text(31, seed=5))
    torch.testing.assert_close(other.log_probs(h), layer.log_probs(h), rtol=0, atol=0)
    layer.train(), other.train()
    torch.manual_seed(4)
    expected = layer.total(h, targets)
    torch.manual_seed(4)
    torch.testing.assert_close(other.total(h, targets), expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["full", "sampled", "nce", "mixture"])
def test_tied_readout_has_no_own_weight_and_trains_the_embedding(kind: str) -> None:
    embedding = nn.Embedding(17, WIDTH)
    layer = make_readout(WIDTH, words(17), KINDS[kind], embedding)
    assert not any(p is embedding.weight or p.shape == (17, WIDTH) for p in layer.parameters())
    h, targets = rows(4, 17)
    layer.total(h.float(), targets).backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", ["classes", "huffman", "adaptive", "spelled"])
def test_untieable_readout_with_tied_embedding_raises(kind: str) -> None:
    with raises(InvalidSetting, key="model.tied", value=True):
        make_readout(WIDTH, words(17), KINDS[kind], nn.Embedding(17, WIDTH))


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"kind": "classes", "classes": 18}, "model.readout.classes"),
        ({"kind": "classes", "classes": "many"}, "model.readout"),
        ({"kind": "classes", "by": "color"}, "model.readout.by"),
        ({"kind": "tree", "tree": "oak"}, "model.readout.tree"),
        ({"kind": "adaptive", "cutoffs": [3, 17]}, "model.readout.cutoffs"),
        ({"kind": "adaptive", "cutoffs": [9, 3]}, "model.readout.cutoffs"),
        ({"kind": "adaptive", "div_value": 0.5}, "model.readout.div_value"),
        ({"kind": "sampled", "samples": 0}, "model.readout.samples"),
        ({"kind": "nce", "proposal": "guess"}, "model.readout.proposal"),
        ({"kind": "mixture", "experts": 0}, "model.readout.experts"),
        ({"kind": "mixture", "dropout": 1.0}, "model.readout.dropout"),
        ({"kind": "spelled", "filters": [[0, 4]]}, "characters.filters"),
    ],
)
def test_invalid_setting_names_its_key(options: dict[str, Any], key: str) -> None:
    with raises(InvalidSetting, key=key):
        make_readout(WIDTH, words(17), options)


@pytest.mark.parametrize(
    ("options", "name", "known"),
    [
        ({"kind": "clases"}, "clases", "classes"),
        ({"kind": "classes", "number": 3}, "number", "classes"),
    ],
)
def test_unknown_name_lists_the_known_ones(options: dict[str, Any], name: str, known: str) -> None:
    with raises(UnknownName, name=name) as error:
        make_readout(WIDTH, words(17), options)
    assert known in error.value.known  # type: ignore[attr-defined]
