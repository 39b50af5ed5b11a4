from __future__ import annotations

from typing import Any

import pytest
import torch

from nextword.core.types import Inputs
from nextword.data.opening import open_corpus
from nextword.models.bert import BERTConfig
from nextword.studies import layer_sharing as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from nextword.studies._transformers import Size, encode_corpus
from tests.support.study_tables import ONE_SEED, verdicts


def test_all_variants_start_from_the_same_function() -> None:
    text = encode_corpus(open_corpus("python"), 400)[0]
    torch.manual_seed(0)
    config = BERTConfig(**Size(width=16, layers=1, heads=2, length=16).shape)
    encoder = study.SharedEncoder(config, text.vocabulary, study.ALL)
    inputs = Inputs(torch.randint(5, 300, (2, 9)))
    networks = {share: study.stack_layers(encoder, share, 3).eval() for share in study.SHARE}
    outputs = [network.hidden(inputs, None)[0][-1] for network in networks.values()]
    assert all(torch.allclose(outputs[0], other) for other in outputs)
    assert not torch.allclose(outputs[0], encoder.eval().hidden(inputs, None)[0][-1])
    parts = {share: (len(network.attending), len(network.feeding)) for share, network in networks.items()}
    assert parts == {"none": (3, 3), "attention": (1, 3), "feed-forward": (3, 1), "all": (1, 1)}


def make_tables(cell: Any, none: float = 4.0, blocks: int = 100) -> dict[str, Table]:
    rows: list[tuple[Any, ...]] = [(s, 1000, 300, [none] * 3, [20.0] * 3) for s in study.SHARE[:-1]]
    rows += [(study.ALL, 800, blocks, [none] * 3, [20.0] * 3), (study.FREQUENCIES, None, None, [5.0] * 3, None)]
    columns = ("shared", study.PARAMETERS, study.BLOCKS, study.NATS, study.ACCURACY)
    differences = tuple((share, cell, cell) for share in study.SHARE[1:])
    return {
        "shared": Table("", columns, tuple(rows)),
        "differences": Table("", ("shared", study.NATS, study.ACCURACY), differences),
    }


@pytest.mark.parametrize(
    ("cell", "expected"),
    [([0.01, 0.0, 0.02], HOLDS), ([0.3, 0.2, 0.4], FAILS), ([0.05, 0.0, 0.1], UNDECIDED), (ONE_SEED, UNDECIDED)],
)
def test_cost_is_judged_against_the_value_of_context(cell: Any, expected: str) -> None:
    parts = study.judge(make_tables(cell))  # context is worth 1 nat, so 0.05 is little
    assert verdicts(parts) == [HOLDS, expected, expected, expected]
    assert overall_verdict(parts) == expected


def test_network_that_ignores_its_context_leaves_the_cost_undecided() -> None:
    assert overall_verdict(study.judge(make_tables([0.0, -0.01, 0.01], none=4.95))) == UNDECIDED


def test_more_than_half_of_the_block_parameters_fails() -> None:
    assert study.judge(make_tables([0.0, 0.0, 0.0], blocks=200))[0].verdict == FAILS
