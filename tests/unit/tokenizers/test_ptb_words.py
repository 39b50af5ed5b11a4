"""Words as in files of word vectors: splitting, spans, and the order of ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nextword.core.errors import InvalidSetting
from nextword.tokenizers import fingerprint
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.ptb_words import Lexicon, split
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
def test_split_run_returns_its_parts(run: str, parts: list[str]) -> None:
    assert split(run, KNOWN) == parts


@pytest.mark.parametrize("text", ["The dogs don't, İx's 東京 naïve light-footed…", "", "  a \n b  ", "—'s n't'"])
def test_encode_spans_locate_the_parts(text: str) -> None:
    tokenizer = Lexicon(["the", "dogs", "naïve", "a"])
    encoding, raw = tokenizer.encode(text), text.encode()
    pieces = [raw[a:b].decode() for a, b in encoding.spans]
    assert "".join(pieces) == "".join(text.split())
    for piece, id, word in zip(pieces, encoding.ids.tolist(), encoding.words.tolist(), strict=True):
        assert id == tokenizer._ids.get(piece.lower(), 0)
        assert piece in text.split()[word]
    assert (np.diff(encoding.spans.reshape(-1)) >= 0).all()


def test_train_puts_frequent_words_first_and_given_words_after() -> None:
    texts = ["The dogs bark. The dogs run.", "dogs don't"]
    tokenizer = train_tokenizer({"kind": "lexicon", "size": 6}, texts, ["run", "dogs", "never", "<unk>", "never"])
    assert isinstance(tokenizer, Lexicon)
    assert tokenizer.words[:4] == ("dogs", ".", "the", "bark")  # counts 3, 2, 2, 1; ties in alphabetical order
    assert tokenizer.words[4:] == ("run", "never")
    assert tokenizer.encode("Never bark , cats!").ids.tolist() == [7, 5, 0, 0, 0]
    few = train_tokenizer({"kind": "lexicon", "size": 6, "most": 1}, texts, ["never", "ever"])
    assert "ever" not in few.words
    with pytest.raises(InvalidSetting) as error:
        train_tokenizer({"kind": "lexicon", "size": 2}, texts)
    assert (error.value.key, error.value.value) == ("size", 2)


def test_save_and_load_lexicon_round_trips(tmp_path: Path) -> None:
    tokenizer = train_tokenizer({"kind": "lexicon", "size": 20}, ["The dogs don't bark, at all."])
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert fingerprint(loaded) == fingerprint(tokenizer)
    text = "The dogs don't bark, at all."
    assert loaded.decode(loaded.encode(text).ids) == text.lower()
    assert loaded.end == 1
