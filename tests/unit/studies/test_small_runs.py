"""Every study that trains networks, run with tiny sizes: complete tables, files, and a verdict that follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nextword.core.errors import DataError
from nextword.data.opening import open_corpus
from nextword.studies import _experiment, _word_vectors, find_study, run_study
from nextword.studies._report import write
from nextword.studies._study import Finding, Settings
from nextword.studies._transformers import Size
from nextword.studies._translators import TranslatorSize
from nextword.studies.blank_filling import BlankSettings
from nextword.studies.sgd_for_lms import Size as LSTMSize
from tests.support.small_pairs import write_pairs
from tests.support.study_tables import read_tables

TINY = Size(width=16, layers=1, heads=2, rows=4, length=16, steps=4)
PAIRS = TranslatorSize(pieces=280, width=12, rows=8, length=60, longest=60, steps=3, held=64)
AWD = {"HELD": (3_000, 3_000), "EPOCHS": (1, 1), "NETWORK": {"embedding": 6, "width": 8, "layers": 2}}
STUDIES: dict[str, dict[str, Any]] = {
    "awd-ablation": {**AWD, "CHARACTERS": (4_000, 4_000)},
    "bptt": {**AWD, "CHARACTERS": (9_000, 9_000)},
    "sgd-for-lms": {
        "QUICK": LSTMSize(width=8, rows=4, length=6, steps=10, train=600, valid=500, test=500),
        "CHECKS": 5,
    },
    "vanishing-gradients": {
        "QUICK_SPAN": 8,
        "QUICK_PASSAGES": 2,
        "QUICK_STEPS": 2,
        "QUICK_CLIP_STEPS": 3,
        "TRAIN_BYTES": 60_000,
        "WIDTH": 8,
    },
    "masked-vs-causal": {"QUICK": TINY, "PIECES": 300, "MIN_ROWS": 20, "CANDIDATES": 3},
    "nsp-vs-sop": {
        "QUICK": replace(TINY, length=64),
        "QUICK_MLM": TINY,
        "PIECES": 300,
        "MIN_PAIRS": 4,
        "CHECKS": 2,
    },
    "layer-sharing": {"QUICK": replace(TINY, layers=2), "QUICK_ONE": TINY, "PIECES": 300},
    "dynamic-masking": {"QUICK": TINY, "PIECES": 300, "QUICK_TRAINED": 2000},
    "mask-mismatch": {
        "QUICK": TINY,
        "PIECES": 300,
        "SENTENCES": ((40, 20), (40, 20)),
        "MIN_SENTENCES": 20,
        "CHECKS": 2,
    },
    "reversed-source": {"QUICK": PAIRS, "QUICK_COPYING": PAIRS},
    "attention-length": {"QUICK": PAIRS, "QUICK_COPYING": PAIRS},
    "beam-size": {"QUICK": TranslatorSize(280, 12, 8, 60, 20, 3, held=40), "WIDTHS": (1, 5, 10, 50)},
    "exposure-bias": {"QUICK": PAIRS, "QUICK_LM": PAIRS, "open_text": lambda data: open_corpus("python")},
    "span-corruption": {"QUICK": TranslatorSize(90, 12, 8, 24, 60, 3, held=50), "QUICK_FINE_TUNING": (20, 3)},
    "blank-filling": {
        "QUICK": Size(width=16, layers=1, heads=2, rows=8, length=24, steps=4),
        "QUICK_BLANKS": BlankSettings(words=(1, 2), each=6, max_pieces=4, beam=3),
        "PIECES": 400,
        "MIN_BLANKS": 5,
    },
    "word-senses": {
        "QUICK": Size(width=8, layers=2, rows=4, length=8, steps=3, rate=5e-3),
        "VOCABULARY": 300,
        "TRAIN_PLACES": 6,
        "TEST_PLACES": 4,
        "MIN_PLACES": 10,
        "REPEATED": 5,
    },
}
READS_PAIRS = ("reversed-source", "attention-length", "beam-size", "exposure-bias", "span-corruption")


@pytest.fixture(scope="module", params=STUDIES)
def finding(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finding:
    name = request.param
    data = write_pairs(tmp_path_factory.mktemp("pairs")) if name in READS_PAIRS else "python"
    calls: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setenv("NEXTWORD_HOME", str(tmp_path_factory.getbasetemp() / "no-home"))
        patch.setenv("NEXTWORD_DATA", str(tmp_path_factory.getbasetemp() / "no-data"))
        patch.setattr(_experiment, "num_cores", lambda: 1)
        patch.setattr(_word_vectors, "PASSES", 1)
        for key, value in STUDIES[name].items():
            patch.setattr(find_study(name), key, value)
        torch.manual_seed(7)
        threads = torch.get_num_threads()
        settings = Settings((0, 1), quick=True, data=data)
        result = run_study(name, settings, lambda done, total: calls.append(done / total))
        assert torch.equal(torch.rand(3), torch.manual_seed(7) and torch.rand(3)), "the caller's random state changed"
    assert torch.get_num_threads() == threads
    assert calls[-1] == 1
    return result


def test_small_run_has_complete_tables_and_parts(finding: Finding) -> None:
    assert {"data", "seeds", "command"} <= set(finding.conditions)
    assert all(part.statement and part.evidence and part.uncertainty for part in finding.parts)
    for table in finding.tables.values():
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_small_run_writes_files_that_reproduce_the_parts(finding: Finding, tmp_path: Path) -> None:
    study = find_study(finding.name)
    files = write(finding, study, tmp_path)
    assert all(file.stat().st_size for file in files)
    assert study.judge(read_tables(tmp_path)) == list(finding.parts)


def test_small_run_of_vanishing_gradients_never_breaks_the_bound(finding: Finding) -> None:
    if finding.name == "vanishing-gradients":
        assert finding.parts[0].holds  # a theorem, whatever the network


def test_chosen_learning_rate_has_the_lowest_validation_loss(finding: Finding) -> None:
    if finding.name != "sgd-for-lms":
        return
    for name, drop, rate, loss in finding.tables["rates"].rows:
        lowest = min(finding.tables["rates"].column("valid nats", optimizer=name, dropout=drop))
        chosen = finding.tables["optimizers"].cell("learning rate", optimizer=name, dropout=drop)
        assert (loss == lowest) == (rate == chosen)


@pytest.mark.parametrize(
    ("name", "limit", "what"),
    [
        ("masked-vs-causal", "MIN_ROWS", "held-out rows"),
        ("blank-filling", "MIN_BLANKS", "held-out blanks"),
        ("bptt", "TOKENS", "training tokens"),
    ],
)
def test_short_text_is_rejected(name: str, limit: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_study(name), limit, 10**6)
    with pytest.raises(DataError, match=rf"{what}.*--data"):
        find_study(name).measure(Settings(data="python", quick=True), lambda done, total: None)
