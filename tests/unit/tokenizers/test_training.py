"""What a recipe's [tokenizer] table may say, and that the same table and texts give the same tokenizer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary
from nextword.tokenizers import fingerprint, vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer

TEXTS = ["the cat sat on the mat and the dog sat on the log\n", "naïve cafés, 戦場! the end\n"] * 20
KINDS = ["bytes", "characters", "words", "bpe", "classic-bpe", "wordpiece", "unigram"]
SIZE = {"bpe": {"size": 280}, "classic-bpe": {"size": 100}, "wordpiece": {"size": 100}, "unigram": {"size": 100}}

UNKNOWN = {"classic-bpe": "<unk>", "wordpiece": "[UNK]"}


def spec(kind):
    return {"kind": kind, **SIZE.get(kind, {})}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "bpe", "siez": 300}, "did you mean 'size'"),
        ({"kind": "wordpeice", "size": 300}, "did you mean 'wordpiece'"),
        ({"size": 300}, "kind is None"),
        ({"kind": "bpe"}, "has no size"),
        ({"kind": "bpe", "size": 100}, "give 257 or more"),
        ({"kind": "bpe", "size": "300"}, "whole number"),
        ({"kind": "words", "lower": 1}, "true or false"),
        ({"kind": "bytes", "size": 256}, "unknown key 'size'"),
        ({"kind": "words", "size": 2}, "give 3 or more"),
        ({"kind": "characters", "size": 20}, "give 257 or more"),
        ({"kind": "unigram", "size": 100, "sentinels": 99}, "give 119 or more"),
        ({"load": "nowhere", "size": 3}, "unknown key 'size'"),
        ({"load": "nowhere/tokenizer.json"}, "There is no tokenizer at nowhere"),
    ],
)
def test_a_wrong_table_says_what_is_wrong(table, message):
    with pytest.raises(NextwordError, match=message):
        train_tokenizer(table, TEXTS)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_no_text_is_an_error(kind):
    with pytest.raises(NextwordError, match="no text"):
        train_tokenizer(spec(kind), ["", ""])


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_named(kind):
    tokenizer = train_tokenizer(spec(kind), TEXTS)
    with pytest.raises(NextwordError, match=r"Character 4 .* U\+D83D"):
        tokenizer.encode("the \ud83d")
    if kind != "bytes":
        with pytest.raises(NextwordError, match="lone surrogate"):
            train_tokenizer(spec(kind), ["the \ud83d"])


@pytest.mark.parametrize("kind", KINDS)
def test_size_is_kept_to(kind):
    tokenizer = train_tokenizer(spec(kind), iter(TEXTS))
    assert len(tokenizer) <= SIZE.get(kind, {"size": 10_000})["size"]
    assert vocabulary(tokenizer) == Vocabulary(len(tokenizer), tokenizer.begin, tokenizer.special, tokenizer.end)
    assert len(vocabulary(tokenizer, spellings=True).pieces) == len(tokenizer)


def test_many_characters_do_not_crowd_out_the_pieces():
    texts = [" ".join(chr(0x4E00 + i) + " the" for i in range(500))] * 3
    for kind in ("classic-bpe", "wordpiece", "unigram"):
        tokenizer = train_tokenizer({"kind": kind, "size": 120}, texts)
        assert len(tokenizer) <= 120
        assert len(tokenizer.encode("the the")) == 2


@pytest.mark.parametrize("kind", ["classic-bpe", "wordpiece"])
def test_a_script_whose_characters_are_words_fills_the_vocabulary(kind):
    """There is nothing to merge, so what a quarter of the size leaves free is for more characters, commonest first."""
    texts = ["".join(chr(0x4E00 + i) * (300 - i) for i in range(300))]
    tokenizer = train_tokenizer({"kind": kind, "size": 200}, texts)
    assert len(tokenizer) == 200
    known = [tokenizer.encode(chr(0x4E00 + i)).ids[0] != tokenizer.special[UNKNOWN[kind]] for i in range(300)]
    assert known == sorted(known, reverse=True)
    assert sum(known) > 130
    assert len(train_tokenizer({"kind": kind, "size": 2000}, texts)) < 1000  # and no more than there are


@pytest.mark.slow
def test_another_process_learns_the_same(tmp_path):
    """Hash tables are seeded anew in each process, in Python and in the library."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_training import *\n"
        "print([fingerprint(train_tokenizer(spec(kind), TEXTS)) for kind in KINDS])"
    )
    folder = __file__.rsplit("/", 1)[0]
    answers = {
        subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert answers == {f"{[fingerprint(train_tokenizer(spec(kind), TEXTS)) for kind in KINDS]}\n"}


def test_the_order_of_the_texts_is_no_matter():
    for kind in KINDS:
        assert fingerprint(train_tokenizer(spec(kind), TEXTS)) == fingerprint(train_tokenizer(spec(kind), TEXTS[::-1]))


def test_a_table_can_load(tmp_path):
    tokenizer = train_tokenizer(spec("bpe"), TEXTS)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert fingerprint(train_tokenizer({"load": str(tmp_path)}, ())) == fingerprint(tokenizer)
    assert fingerprint(load_tokenizer(str(tmp_path))) == fingerprint(tokenizer)


def test_characters_have_one_id_each_if_they_were_seen():
    tokenizer = train_tokenizer({"kind": "characters"}, ["naïve ï 戦"])
    assert len(tokenizer) == 256 + 2 + 1
    assert tokenizer.encode("ï戦x場").ids.tolist() == [256, 257, ord("x"), *"場".encode()]
    assert len(train_tokenizer({"kind": "characters", "min_count": 2}, ["naïve ï 戦"])) == 256 + 1 + 1


def test_accents_and_case_are_options():
    cased = train_tokenizer({"kind": "wordpiece", "size": 200, "lower": False}, ["Café Café Café"])
    lower = train_tokenizer({"kind": "wordpiece", "size": 200}, ["Café Café Café"])
    accents = train_tokenizer({"kind": "wordpiece", "size": 200, "strip_accents": False}, ["Café Café Café"])
    assert [t.decode(t.encode("Café").ids) for t in (cased, lower, accents)] == ["Café", "cafe", "café"]


def test_unigram_sentinels_stand_behind_the_vocabulary():
    tokenizer = train_tokenizer({"kind": "unigram", "size": 60, "sentinels": 3}, TEXTS)
    size = len(tokenizer)
    assert [tokenizer.special[f"<extra_id_{i}>"] for i in range(3)] == [size - 1, size - 2, size - 3]
    assert tokenizer.decode([tokenizer.special["<extra_id_0>"]]) == ""


def test_unigram_prefers_the_likelier_segmentation():
    """ab twice as a word and never a or b alone: EM must give all to ab."""
    tokenizer = train_tokenizer({"kind": "unigram", "size": 20}, ["abab cdcd abcd"] * 50)
    assert [tokenizer.piece(id) for id in tokenizer.encode("abcd").ids] in ([b" abcd"], [b" ab", b"cd"])
