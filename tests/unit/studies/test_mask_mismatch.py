from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.types import Inputs, Vocabulary
from nextword.data.opening import open_corpus
from nextword.studies import mask_mismatch as study
from nextword.studies._labeled_words import CASE, TAGS
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from nextword.studies._transformers import Size, encode_corpus, masked_lm, original_ids
from tests.support.study_tables import ABOVE, BELOW, ONE_SEED, UNSURE, verdicts


def test_labels_are_at_the_first_piece_of_a_word() -> None:
    tokenizer = encode_corpus(open_corpus("python"), 400)[1]
    rows = study.label_rows([(["The", "statement", "Zzyzx"], ["a", None, "b"])], ("a", "b"), tokenizer, 16)
    encoding = tokenizer.encode("The statement Zzyzx")
    expected = np.full(16, -1)
    expected[1 + encoding.words.tolist().index(0)] = 0
    expected[1 + encoding.words.tolist().index(2)] = 1
    assert rows.labels[0].tolist() == expected.tolist()
    assert rows.is_token[0].sum() == len(encoding) + 2
    cut = study.label_rows([(["statement"] * 50, ["a"] * 50)], ("a",), tokenizer, 16)
    assert cut.is_token.all()


class TokenVectors:
    """A network whose vectors are one-hot tokens, or noise."""

    def __init__(self, is_noise: bool = False) -> None:
        self.is_noise = is_noise

    def encode(self, inputs: Inputs) -> tuple[list[torch.Tensor], None]:
        h = torch.nn.functional.one_hot(inputs.ids, 8).float()
        return [torch.randn(h.shape) if self.is_noise else h], None


def test_probe_finds_what_the_vectors_hold_and_no_more() -> None:
    ids = np.random.default_rng(0).integers(0, 8, (60, 10))
    rows = study.LabeledRows(ids, np.ones(ids.shape, bool), ids % 4)
    task = study.RowTask("rest", (0, 1, 2, 3), rows, rows)
    assert study.probe(TokenVectors(), task).all()
    assert study.probe(TokenVectors(is_noise=True), task).mean() < 0.5
    assert 0.2 < task.baseline < 0.35


def test_wrong_tokens_are_detected_by_a_readout_that_knows_the_text() -> None:
    text = encode_corpus(open_corpus("python"), 400)[0]

    class Network:
        vocabulary: Vocabulary = text.vocabulary
        targets: torch.Tensor | None = None

        def __init__(self, truth: Iterator[torch.Tensor] | None) -> None:
            self.truth, self.readout = truth, self

        def hidden(self, inputs: Inputs, state: None) -> tuple[list[torch.Tensor], None]:
            self.targets = next(self.truth) if self.truth else None
            return [torch.zeros(*inputs.ids.shape, 2)], None

        def nll(self, h: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(ids)) if self.targets is None else (ids != self.targets).float()

    size = Size(width=16, layers=1, heads=2, rows=4, length=16)
    objective = masked_lm(size, text.vocabulary, mask_token_fraction=0.0, random_token_fraction=1.0)
    truth = (original_ids(batch).reshape(-1) for batch in objective.validation_batches(text.test))
    assert study.detect_wrong(Network(None), objective, text.test).max() == 0
    assert study.detect_wrong(Network(truth), objective, text.test).min() == 1


def make_tables(cell: Any, stopped: Any = BELOW, with_tags: bool = True) -> dict[str, Table]:
    probes = (CASE, TAGS) if with_tags else (CASE,)
    measures = (*map(study.column_name, probes), study.HIDDEN, study.VISIBLE, study.DETECTED)
    levels = tuple((name, *([50.0] * 3 for _ in measures), [100.0] * 3) for name in study.ORDER)
    pairs = (
        (study.ONLY, study.MIXED, cell),
        (study.ONLY, study.STOPPED, stopped),
        (study.NEVER, study.MIXED, cell),
    )
    differences = tuple((a, b, *(c for _ in measures)) for a, b, c in pairs)
    return {
        "inputs": Table("", ("input", *measures, study.STEPS), levels),
        "differences": Table("", ("input", "minus", *measures), differences),
    }


@pytest.mark.parametrize(
    ("cell", "worse", "above"),
    [(BELOW, HOLDS, FAILS), (ABOVE, FAILS, HOLDS), (UNSURE, UNDECIDED, UNDECIDED), (ONE_SEED, UNDECIDED, UNDECIDED)],
)
def test_first_probe_decides_against_both_mixtures(cell: Any, worse: str, above: str) -> None:
    parts = study.judge(make_tables(cell))
    assert verdicts(parts) == [worse, HOLDS, worse, HOLDS, above, above, worse, worse]
    assert [part.decides for part in parts] == [True, True, *[False] * 6]
    assert overall_verdict(parts) == worse
    assert overall_verdict(study.judge(make_tables(BELOW, stopped=cell))) == worse
    parts = study.judge(make_tables(cell, with_tags=False))
    assert (len(parts), parts[0].decides, overall_verdict(parts)) == (6, True, worse)
