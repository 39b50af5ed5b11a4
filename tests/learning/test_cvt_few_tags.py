"""Cross-view training: unlabeled sentences help if few sentences have tags.

The artificial language has two kinds of nouns. The preceding word shows the kind if it is `ka` or `po`, and does not
if it is `mu`; then one has to know the noun. Thirty sentences have tags, and most nouns occur in none of them. In the
unlabeled text all nouns follow `ka` or `po`, where the primary head, which sees the entire sentence, predicts their
kind. The views that do not see the preceding word learn it from that head, and so the encoder learns it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nextword import tasks as transfer

NOUNS = 400
CUES = {"ka": "X", "po": "Y"}


def language(draw: random.Random) -> dict[str, str]:
    """Noun → its kind; letters say nothing of it."""
    found: dict[str, str] = {}
    while len(found) < NOUNS:
        found["".join(draw.choice("bdfglmnrstvz") + draw.choice("aeiou") for _ in range(3))] = draw.choice("XY")
    return found


def sentence(kinds: dict[str, str], draw: random.Random, told: float) -> list[tuple[str, str]]:
    """Nouns, each after a word that tells its kind, or, for the rest of a share, after one that does not."""
    found = []
    for noun in draw.choices(list(kinds), k=4):
        cue = next(word for word, kind in CUES.items() if kind == kinds[noun])
        found += [(cue if draw.random() < told else "mu", "O"), (noun, kinds[noun])]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cvt") / "nouns"
    folder.mkdir()
    draw = random.Random(0)
    kinds = language(draw)
    for split, count, told in (("train", 3000, 0.5), ("dev", 100, 0.0), ("test", 100, 0.0)):
        rows = [sentence(kinds, draw, told) for _ in range(count)]
        (folder / f"{split}.conll").write_text("\n".join("".join(f"{w} {t}\n" for w, t in row) for row in rows))
    plain = [" ".join(word for word, _ in sentence(kinds, draw, 0.9)) for _ in range(3000)]
    (folder.parent / "plain.txt").write_text("\n\n".join(plain))
    return folder


def accuracy(folder: Path, out: Path, unlabeled: str) -> float:
    """On sentences in which nothing but the noun says what it is."""
    changes = [
        "task.train_fraction=0.01",
        f"phase.0.objective={{kind='cross_view', unlabeled='{unlabeled}', max_sentences=3000, dropout=0.1}}",
        "model.vector_width=24",
        "model.filters=[[2, 8]]",
        "model.width=24",
        "model.projection=24",
        "model.second_width=16",
        "tokenizer.size=1000",
        f"phase.0.steps={700 if unlabeled else 350}",
        "phase.0.validate_every=1000",
        "phase.0.keep=last",
    ]
    outcome = transfer.run("cvt/tiny", "", str(folder), out, changes=changes, device="cpu")
    return outcome.results[0]["test"]["token_accuracy"]


def test_cvt_with_unlabeled_text_beats_few_labels_alone(folder: Path, tmp_path: Path) -> None:
    plain = str(folder.parent / "plain.txt")
    alone, taught = accuracy(folder, tmp_path / "alone", ""), accuracy(folder, tmp_path / "taught", plain)
    assert alone < 0.86  # half of the words are not nouns: 0.75 is chance
    assert taught > 0.88
