"""Words as files of vectors have them: what is split, what stays whole, and which ids come first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nextword.core.errors import NextwordError
from nextword.tokenizers import fingerprint
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.ptb_words import CLITICS, Lexicon, split
from nextword.tokenizers.training import train_tokenizer

KNOWN = frozenset(("well-known", "etc.", "dogs", "do", "n't", ",", "the", "...", "light"))


@pytest.mark.parametrize(
    ("run", "parts"),
    [
        ("dogs,", ["dogs", ","]),
        ("Don't", ["Do", "n't"]),
        ("isn't.", ["is", "n't", "."]),
        ("n't", ["n't"]),
        ("Bob's", ["Bob", "'s"]),
        ("well-known", ["well-known"]),
        ("(Well-Known)", ["(", "Well-Known", ")"]),
        ("light-footed", ["light", "-", "footed"]),
        ("(etc.)", ["(", "etc.", ")"]),
        ("what...", ["what", "..."]),
        ("``x''", ["``", "x", "''"]),
        ("$5.50", ["$", "5.50"]),
        ("?!", ["?", "!"]),
        ("Büsche.", ["Büsche", "."]),
        ("<unk>", ["<unk>"]),
    ],
)
def test_a_run_and_its_parts(run: str, parts: list[str]) -> None:
    assert split(run, KNOWN) == parts


@pytest.mark.parametrize("text", ["The dogs don't, İx's 東京 naïve light-footed…", "", "  a \n b  ", "—'s n't'"])
def test_spans_are_where_the_parts_lie(text: str) -> None:
    tokenizer = Lexicon(["the", "dogs", "naïve", "a"])
    found, raw = tokenizer.encode(text), text.encode()
    pieces = [raw[a:b].decode() for a, b in found.spans]
    assert "".join(pieces) == "".join(text.split())
    for piece, id, word in zip(pieces, found.ids.tolist(), found.words.tolist(), strict=True):
        assert id == tokenizer._ids.get(piece.lower(), 0)
        assert piece in text.split()[word]
    assert (np.diff(found.spans.reshape(-1)) >= 0).all()


def test_words_of_the_text_come_first_and_all_others_that_are_known_after() -> None:
    texts = ["The dogs bark. The dogs run.", "dogs don't"]
    made = train_tokenizer({"kind": "lexicon", "size": 6}, texts, ["run", "dogs", "never", "<unk>", "never"])
    assert isinstance(made, Lexicon)
    assert made.words[:4] == ("dogs", ".", "the", "bark")  # three times, twice, twice, once: the first of the alphabet
    assert made.words[4:] == ("run", "never")
    assert made.encode("Never bark , cats!").ids.tolist() == [7, 5, 0, 0, 0]
    few = train_tokenizer({"kind": "lexicon", "size": 6, "most": 1}, texts, ["never", "ever"])
    assert "ever" not in few.words  # type: ignore[attr-defined]
    with pytest.raises(NextwordError, match="size is 2"):
        train_tokenizer({"kind": "lexicon", "size": 2}, texts)


def test_saved_loaded_and_written(tmp_path: Path) -> None:
    made = train_tokenizer({"kind": "lexicon", "size": 20}, ["The dogs don't bark, at all."])
    made.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert fingerprint(again) == fingerprint(made)
    text = "The dogs don't bark, at all."
    assert again.decode(again.encode(text).ids) == text.lower()
    assert again.end == 1
    assert set(CLITICS) & {"n't"}
