"""Training by a recipe's [tokenizer] table: validation, determinism, and the options of each kind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nextword.core.errors import DataError, InvalidSetting, MissingFile, UnknownName
from nextword.core.types import Vocabulary
from nextword.data.opening import open_corpus
from nextword.recipe import load_recipe
from nextword.tokenizers import fingerprint, vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.train import build_tokenizer

TEXTS = ["the cat sat on the mat and the dog sat on the log\n", "naïve cafés, 戦場! the end\n"] * 20
KINDS = ["bytes", "characters", "words", "bpe", "classic-bpe", "wordpiece", "unigram"]
SIZE = {"bpe": {"size": 280}, "classic-bpe": {"size": 100}, "wordpiece": {"size": 100}, "unigram": {"size": 100}}

UNKNOWN = {"classic-bpe": "<unk>", "wordpiece": "[UNK]"}


def spec(kind):
    return {"kind": kind, **SIZE.get(kind, {})}


@pytest.mark.parametrize(
    ("table", "name", "suggestion"),
    [
        ({"kind": "bpe", "siez": 300}, "siez", "'size'"),
        ({"kind": "wordpeice", "size": 300}, "wordpeice", "'wordpiece'"),
        ({"size": 300}, "None", "wordpiece"),
        ({"kind": "bytes", "size": 256}, "size", "kind"),
        ({"load": "nowhere", "size": 3}, "size", "load"),
    ],
)
def test_train_with_unknown_key_or_kind_names_it_and_suggests(table, name, suggestion):
    with pytest.raises(UnknownName, match=suggestion) as error:
        train_tokenizer(table, TEXTS)
    assert error.value.name == name


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        ({"kind": "bpe"}, "size", "8000"),
        ({"kind": "bpe", "size": 100}, "size", "257"),
        ({"kind": "bpe", "size": "300"}, "size", "number"),
        ({"kind": "words", "lower": 1}, "lower", "true or false"),
        ({"kind": "words", "size": 2}, "size", "3"),
        ({"kind": "characters", "size": 20}, "size", "257"),
        ({"kind": "unigram", "size": 100, "sentinels": 99}, "size", "119"),
    ],
)
def test_train_with_invalid_value_names_the_key(table, key, expected):
    with pytest.raises(InvalidSetting, match=expected) as error:
        train_tokenizer(table, TEXTS)
    assert (error.value.key, error.value.value) == (key, table.get(key))


def test_train_with_load_of_missing_file_raises():
    with pytest.raises(MissingFile) as error:
        train_tokenizer({"load": "nowhere/tokenizer.json"}, TEXTS)
    assert error.value.path == "nowhere/tokenizer.json"


@pytest.mark.parametrize("kind", KINDS[1:])
def test_train_on_empty_texts_raises(kind):
    with pytest.raises(DataError):
        train_tokenizer(spec(kind), ["", ""])


@pytest.mark.parametrize("kind", KINDS)
def test_lone_surrogate_raises_with_its_position(kind):
    tokenizer = train_tokenizer(spec(kind), TEXTS)
    with pytest.raises(DataError, match=r"4.*U\+D83D"):
        tokenizer.encode("the \ud83d")
    if kind != "bytes":
        with pytest.raises(DataError, match=r"U\+D83D"):
            train_tokenizer(spec(kind), ["the \ud83d"])


@pytest.mark.parametrize("kind", KINDS)
def test_train_never_exceeds_size(kind):
    tokenizer = train_tokenizer(spec(kind), iter(TEXTS))
    assert len(tokenizer) <= SIZE.get(kind, {"size": 10_000})["size"]
    assert vocabulary(tokenizer) == Vocabulary(len(tokenizer), tokenizer.begin, tokenizer.special, tokenizer.end)
    assert len(vocabulary(tokenizer, spellings=True).pieces) == len(tokenizer)


def test_train_on_many_characters_leaves_room_for_pieces():
    texts = [" ".join(chr(0x4E00 + i) + " the" for i in range(500))] * 3
    for kind in ("classic-bpe", "wordpiece", "unigram"):
        tokenizer = train_tokenizer({"kind": kind, "size": 120}, texts)
        assert len(tokenizer) <= 120
        assert len(tokenizer.encode("the the")) == 2


@pytest.mark.parametrize("kind", ["classic-bpe", "wordpiece"])
def test_train_on_chinese_fills_the_vocabulary_with_characters(kind):
    """Without merges, more than a quarter of the vocabulary is characters, most frequent first."""
    texts = ["".join(chr(0x4E00 + i) * (300 - i) for i in range(300))]
    tokenizer = train_tokenizer({"kind": kind, "size": 200}, texts)
    assert len(tokenizer) == 200
    is_known = [tokenizer.encode(chr(0x4E00 + i)).ids[0] != tokenizer.special[UNKNOWN[kind]] for i in range(300)]
    assert is_known == sorted(is_known, reverse=True)
    assert sum(is_known) > 130
    assert len(train_tokenizer({"kind": kind, "size": 2000}, texts)) < 1000  # no more pieces exist


@pytest.mark.slow
def test_train_in_another_process_gives_the_same_tokenizer():
    """Python and the library seed hash tables randomly in each process."""
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


def test_train_on_reordered_texts_gives_the_same_tokenizer():
    for kind in KINDS:
        assert fingerprint(train_tokenizer(spec(kind), TEXTS)) == fingerprint(train_tokenizer(spec(kind), TEXTS[::-1]))


def test_train_with_load_returns_the_saved_tokenizer(tmp_path):
    tokenizer = train_tokenizer(spec("bpe"), TEXTS)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert fingerprint(train_tokenizer({"load": str(tmp_path)}, ())) == fingerprint(tokenizer)
    assert fingerprint(load_tokenizer(str(tmp_path))) == fingerprint(tokenizer)


def test_characters_seen_in_training_have_one_id_each():
    tokenizer = train_tokenizer({"kind": "characters"}, ["naïve ï 戦"])
    assert len(tokenizer) == 256 + 2 + 1
    assert tokenizer.encode("ï戦x場").ids.tolist() == [256, 257, ord("x"), *"場".encode()]
    assert len(train_tokenizer({"kind": "characters", "min_count": 2}, ["naïve ï 戦"])) == 256 + 1 + 1


def test_wordpiece_options_control_case_and_accents():
    cased = train_tokenizer({"kind": "wordpiece", "size": 200, "lower": False}, ["Café Café Café"])
    lower = train_tokenizer({"kind": "wordpiece", "size": 200}, ["Café Café Café"])
    accents = train_tokenizer({"kind": "wordpiece", "size": 200, "strip_accents": False}, ["Café Café Café"])
    assert [t.decode(t.encode("Café").ids) for t in (cased, lower, accents)] == ["Café", "cafe", "café"]


def test_unigram_sentinels_follow_the_vocabulary_in_reverse():
    tokenizer = train_tokenizer({"kind": "unigram", "size": 60, "sentinels": 3}, TEXTS)
    size = len(tokenizer)
    assert [tokenizer.special[f"<extra_id_{i}>"] for i in range(3)] == [size - 1, size - 2, size - 3]
    assert tokenizer.decode([tokenizer.special["<extra_id_0>"]]) == ""


def test_unigram_prefers_the_more_probable_segmentation():
    """a and b never occur alone, so EM must give all probability to ab."""
    tokenizer = train_tokenizer({"kind": "unigram", "size": 20}, ["abab cdcd abcd"] * 50)
    assert [tokenizer.piece(id) for id in tokenizer.encode("abcd").ids] in ([b" abcd"], [b" ab", b"cd"])


def test_tokenizer_of_a_run_reads_one_in_so_many_documents(tmp_path):
    (tmp_path / "train.jsonl").write_text("".join(f'{{"text": "word{i} again"}}\n' for i in range(6)))
    for split in ("valid", "test"):
        (tmp_path / f"{split}.jsonl").write_text('{"text": "again"}\n')
    changes = ["tokenizer={kind='words', every=3}", f"phase.0.data={tmp_path}"]
    tokenizer = build_tokenizer(load_recipe("lstm/tiny", changes), open_corpus(tmp_path))
    assert [f"word{i}" in tokenizer.words for i in range(6)] == [True, False, False, True, False, False]
    with pytest.raises(InvalidSetting) as caught:
        build_tokenizer(load_recipe("lstm/tiny", ["tokenizer={kind='words', every=0}"]), open_corpus(tmp_path))
    assert caught.value.key == "tokenizer.every"
