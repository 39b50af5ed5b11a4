from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.types import Inputs
from nextword.data.opening import open_corpus
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.studies import masked_vs_causal as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from nextword.studies._transformers import Size, Text, encode_corpus, scale_weights
from tests.support.study_tables import ABOVE, BELOW, ONE_SEED, UNSURE, verdicts

TINY = Size(width=16, layers=1, heads=2, rows=4, length=16, steps=4)


@pytest.fixture(scope="module")
def text() -> Text:
    return encode_corpus(open_corpus("python"), 400)[0]


@pytest.fixture(scope="module")
def holes(text: Text) -> study.Holes:
    return study.make_holes(text.test, TINY, text.vocabulary)


def test_masked_position_of_each_row_is_a_word(text: Text, holes: study.Holes) -> None:
    assert not set(text.vocabulary.special.values()) & set(holes.targets.tolist())
    assert (holes.positions >= 1).all()
    assert holes.is_token[np.arange(len(holes.positions)), holes.positions].all()


def test_rescoring_all_tokens_is_exact(text: Text, holes: study.Holes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with p(x) p(rest | x) for every token of the vocabulary."""
    torch.manual_seed(0)
    network = scale_weights(GPT2(GPT2Config(**TINY.shape), text.vocabulary)).eval()
    two = study.Holes(holes.ids[3:5], holes.is_token[3:5], holes.positions[3:5])
    size = text.vocabulary.size
    monkeypatch.setattr(study, "CANDIDATES", size)
    with torch.no_grad():
        log_p = study.predict_from_left(network, two, slice(0, 2))
        rescored = study.rescore(network, log_p, two)
        for i in range(2):
            end, at = int(two.is_token[i].sum()), int(two.positions[i])
            rows = torch.from_numpy(two.ids[i, :end]).repeat(size, 1)
            rows[:, at] = torch.arange(size)
            h = network.hidden(Inputs(rows), None)[0][-1][:, :-1]
            joint = -network.readout.nll(h.reshape(-1, 16), rows[:, 1:].reshape(-1)).view(size, -1).sum(1)
            assert torch.allclose(rescored[i], joint.log_softmax(0), atol=1e-4)
        monkeypatch.setattr(study, "CANDIDATES", 5)
        few = study.rescore(network, log_p, two)
    assert few.logsumexp(1).tolist() == pytest.approx([0, 0], abs=1e-4)
    best = log_p.topk(5, 1)[1]
    assert torch.equal(few.scatter(1, best, 0.0), log_p.scatter(1, best, 0.0))


def make_tables(
    accuracy: Any = ABOVE, nats: Any = ABOVE, rescored: Any = ABOVE, fewer: Any = ABOVE
) -> dict[str, Table]:
    columns = (study.ACCURACY, study.NATS)
    levels = tuple((name, [20.0] * 3, [4.0] * 3) for name in study.NETWORKS)
    differences = ((study.GPT, accuracy, nats), (study.RESCORED, ABOVE, rescored), (study.FEWER, ABOVE, fewer))
    return {
        "networks": Table("", ("network", *columns), levels),
        "differences": Table("", ("compared with", *columns), differences),
    }


@pytest.mark.parametrize(
    ("cell", "expected"), [(ABOVE, HOLDS), (BELOW, FAILS), (UNSURE, UNDECIDED), (ONE_SEED, UNDECIDED)]
)
def test_verdict_needs_accuracy_and_nats(cell: Any, expected: str) -> None:
    for tables, at in ((make_tables(accuracy=cell), 0), (make_tables(nats=cell), 1)):
        parts = study.judge(tables)
        assert parts[at].verdict == overall_verdict(parts) == expected
    parts = study.judge(make_tables(rescored=cell, fewer=cell))
    assert verdicts(parts[2:]) == [expected] * 2
    assert overall_verdict(parts) == HOLDS
