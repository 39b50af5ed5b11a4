from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.data.opening import open_corpus
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.studies import exposure_bias as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from nextword.studies._translators import TranslatorSize, load_pairs, train_translator
from tests.support.small_pairs import write_pairs
from tests.support.study_tables import ABOVE, BELOW, ONE_SEED, UNSURE


class OnDevice:
    """The true model with the device of a network."""

    def __init__(self, model: object) -> None:
        self.model, self.device = model, torch.device("cpu")

    def __getattr__(self, name: str) -> object:
        return getattr(self.model, name)


def test_true_model_has_no_error_after_any_words(tmp_path: Path) -> None:
    size = TranslatorSize(pieces=260, steps=4, rows=8, held=12)
    language = study.make_language(open_corpus("python"), size, 10, tmp_path)
    assert language.train.shape == (16, 10)
    assert language.test.shape == (12, 10)
    for own in (False, True):
        errors, nats = study.true_errors(OnDevice(language.truth), language, 4, own, seed=0)
        assert errors.shape == nats.shape == (12, 6)
        assert np.abs(errors).max() < 1e-6
        assert nats.min() >= 0
    network = LSTM(RecurrentConfig(width=8), language.vocabulary)
    assert study.true_errors(network, language, 4, own=False, seed=0)[0].mean() > 0.5  # untrained
    batch = next(language.batches(4, 0))
    assert batch.inputs.ids[:, 1:].tolist() == batch.targets[:, :-1].tolist()
    assert batch.inputs.ids[:, 0].tolist() == [language.vocabulary.begin] * 4


def test_predictions_given_the_truth_have_the_length_of_the_target(tmp_path: Path) -> None:
    size = TranslatorSize(pieces=280, width=16, rows=8, length=60, longest=60, steps=3, held=50)
    pairs = load_pairs(write_pairs(tmp_path), size)[1]
    network = train_translator(0, size, pairs, attention="bahdanau")
    with torch.no_grad():
        network.readout.bias.fill_(0).index_fill_(0, torch.tensor([pairs.tokenizer.encode("k").ids[0]]), 1e4)
    expected = ["k" * len(pairs.test.side(1, i)) for i in range(50)]
    assert study.predict_given_truth(network, pairs) == expected


def make_tables(cells: dict[str, Any]) -> dict[str, Table]:
    differences = {
        study.CONTINUATION: (study.WORSE, study.GROWS, study.MENDED, study.NARROWER, study.COSTS),
        study.TRANSLATION: (study.BLEU_LOSS, study.BETTER, study.COSTS),
    }
    rows = [(task, name, cells.get(name, ABOVE)) for task, names in differences.items() for name in names]
    continuation = [(n, fed, ABOVE, ABOVE, ABOVE) for n in study.NETWORKS for fed in (study.TRUTH, study.OWN)]
    translation = [(n, ABOVE, ABOVE, ABOVE) for n in study.NETWORKS]
    columns = ("training", study.BLEU_TRUTH, study.BLEU_OWN, "nats per token, fed the truth")
    return {
        "differences": Table("", ("task", "difference", "value"), tuple(rows)),
        study.CONTINUATION: Table("", ("training", "fed", "all", "1–10", "11–20"), tuple(continuation)),
        study.TRANSLATION: Table("", columns, tuple(translation)),
    }


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, HOLDS),
        ({study.WORSE: BELOW}, FAILS),
        ({study.GROWS: UNSURE}, UNDECIDED),
        ({study.BLEU_LOSS: BELOW}, FAILS),
        ({study.BETTER: BELOW}, FAILS),
        ({study.MENDED: ONE_SEED}, UNDECIDED),
        ({study.NARROWER: BELOW}, HOLDS),  # side results
        ({study.COSTS: BELOW}, HOLDS),
    ],
)
def test_verdict_follows_the_differences(cells: dict[str, Any], expected: str) -> None:
    assert overall_verdict(study.judge(make_tables(cells))) == expected
