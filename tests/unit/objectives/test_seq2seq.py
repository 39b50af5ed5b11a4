"""Training on pairs: what the user is told about the data."""

from __future__ import annotations

from pathlib import Path

from nextword.recipe import load_recipe
from nextword.training.train import train_events
from tests.support.small_pairs import write_pairs


def begin_event(folder: Path, length: int) -> dict[str, object]:
    changes = [f"phase.0.data={write_pairs(folder)}", "tokenizer.kind='words'", "tokenizer.size=40", "phase.0.steps=1"]
    recipe = load_recipe("seq2seq/tiny", [*changes, f"phase.0.batches.length={length}"])
    return dict(next(train_events(recipe, folder / f"run-{length}", device="cpu")).values)


def test_begin_event_counts_the_pairs_that_are_too_long_to_train_on(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    sources = (tmp_path / "train.xx").read_text().splitlines()
    longer = sum(len(line.split()) + 1 > 7 for line in sources)
    assert 0 < longer < len(sources) / 2
    assert begin_event(tmp_path, 7)["notes"] == [
        f"{longer} of 400 pairs are not trained on, because they have more than 7 tokens on a side (batches.length)"
    ]
    assert "notes" not in begin_event(tmp_path, 60)
