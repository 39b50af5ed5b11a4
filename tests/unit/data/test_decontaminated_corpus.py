"""Training text without evaluation text: removed while reading, held-out splits unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextword.core.errors import DataError
from nextword.data.filters.decontaminate import DecontaminatedCorpus
from nextword.data.opening import open_corpus
from nextword.recipe import load_recipe
from nextword.training.train import train_events
from tests.support.errors import raises

SECRET = "thirteen grams in a row are what the judges of this little contest look for today"


def folder(path: Path, **texts: list[str]) -> str:
    path.mkdir()
    for split, documents in texts.items():
        (path / f"{split}.txt").write_text("\n".join(documents) + "\n")
    return str(path)


def filler(n: int, word: str = "plain") -> str:
    return " ".join(f"{word}{i}" for i in range(n))


@pytest.fixture
def corpora(tmp_path: Path) -> tuple[str, str]:
    mine = folder(
        tmp_path / "mine",
        train=[f"{filler(90, 'before')} {SECRET} {filler(90, 'after')}", filler(300)],
        valid=[f"{filler(40, 'valid')} {SECRET}"],
        test=[filler(40, "last")],
    )
    test = [f"{filler(30, 'test')} {SECRET} indeed"]
    theirs = folder(tmp_path / "theirs", train=[filler(20, "other")], valid=[filler(30, "held")], test=test)
    return mine, theirs


def text(corpus: object, split: str) -> str:
    return " ".join(document.text for document in corpus.documents(split))  # type: ignore[attr-defined]


def test_corpus_cuts_contamination_out_of_train_only(corpora: tuple[str, str]) -> None:
    mine, theirs = (open_corpus(path) for path in corpora)
    assert SECRET in text(mine, "train")
    left = DecontaminatedCorpus(mine, [theirs])
    cleaned = text(left, "train")
    assert "judges" not in cleaned
    assert "before0 before1" in cleaned
    assert "after89" in cleaned
    assert "plain0" in cleaned
    assert SECRET in text(left, "valid")
    assert left.splits == mine.splits
    assert text(left, "train") == cleaned  # a second pass gives the same
    assert "theirs" in left.source


def test_fingerprint_differs_from_the_original(corpora: tuple[str, str]) -> None:
    mine, theirs = (open_corpus(path) for path in corpora)
    prints = {
        mine.fingerprint,
        DecontaminatedCorpus(mine, [theirs]).fingerprint,
        DecontaminatedCorpus(mine, [mine]).fingerprint,
    }
    assert len(prints) == 3
    assert DecontaminatedCorpus(mine, [theirs]).fingerprint == DecontaminatedCorpus(mine, [theirs]).fingerprint
    corpus = DecontaminatedCorpus(mine, [theirs])
    assert corpus.compute_fingerprint() == corpus.fingerprint  # or preparing it would take it for a text that changes


def test_corpus_that_is_all_contaminated_raises(tmp_path: Path) -> None:
    path = folder(tmp_path / "same", train=[SECRET], valid=[SECRET], test=[SECRET])
    with raises(DataError, path="same"):
        list(DecontaminatedCorpus(open_corpus(path), [open_corpus(path)]).documents("train"))


def test_recipe_with_without_trains_on_clean_text(corpora: tuple[str, str], tmp_path: Path) -> None:
    mine, theirs = corpora
    changes = ["tokenizer.kind=words", f"phase.0.data={mine}", "phase.0.steps=2"]
    for name, more in (("whole", []), ("without", [f'phase.0.decontaminate=["{theirs}"]'])):
        list(train_events(load_recipe("lstm/tiny", [*changes, *more]), tmp_path / name, device="cpu"))
    vocabulary = {name: (tmp_path / name / "tokenizer.json").read_text() for name in ("whole", "without")}
    assert "judges" in vocabulary["whole"]
    assert "judges" not in vocabulary["without"]
    assert "theirs" in (tmp_path / "without" / "manifest.json").read_text()
