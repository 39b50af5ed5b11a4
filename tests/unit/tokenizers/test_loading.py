"""Load tokenizer files of this and other projects; reject damaged ones."""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library

from nextword.core.errors import DataError, MissingFile, NextwordError
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer

TEXTS = ["the cat sat on the mat and the dog sat on the log\n"] * 20
SPECS = {
    "bytes": {"kind": "bytes"},
    "words": {"kind": "words"},
    "bpe": {"kind": "bpe", "size": 280},
    "classic-bpe": {"kind": "classic-bpe", "size": 100},
    "wordpiece": {"kind": "wordpiece", "size": 100},
    "unigram": {"kind": "unigram", "size": 60},
}


@pytest.fixture(params=SPECS)
def file(request, tmp_path):
    train_tokenizer(SPECS[request.param], TEXTS).save(tmp_path / "tokenizer.json")
    return tmp_path / "tokenizer.json"


def test_load_truncated_file_raises(file):
    content = file.read_text(encoding="utf-8")
    for length in (0, 1, len(content) // 2, len(content) - 1):
        file.write_text(content[:length], encoding="utf-8")
        with pytest.raises(DataError) as error:
            load_tokenizer(file)
        assert error.value.path == str(file)


def test_load_file_of_newer_version_raises(file):
    file.write_text(file.read_text(encoding="utf-8").replace('"version": 1', '"version": 99'), encoding="utf-8")
    with pytest.raises(DataError, match="99"):
        load_tokenizer(file)


def test_load_file_with_missing_key_raises(file):
    content = json.loads(file.read_text(encoding="utf-8"))
    for key in content.keys() & {"words", "model", "pre_tokenizer"}:
        broken = {name: value for name, value in content.items() if name != key}
        file.write_text(json.dumps(broken), encoding="utf-8")
        with pytest.raises(DataError) as error:
            load_tokenizer(file)
        assert error.value.path == str(file)


def test_save_leaves_no_temporary_file(file):
    load_tokenizer(file).save(file)
    assert [path.name for path in file.parent.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("kind", ["bpe", "classic-bpe", "wordpiece", "unigram"])
def test_save_subwords_file_is_readable_by_tokenizers_library(kind, tmp_path):
    tokenizer = train_tokenizer(SPECS[kind], TEXTS)
    tokenizer.save(tmp_path / "tokenizer.json")
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    assert library.encode("the cat sat").ids == tokenizer.encode("the cat sat").ids.tolist()
    assert library.get_vocab_size() == len(tokenizer)
    for name, id in tokenizer.special.items():
        assert library.token_to_id(name) == id


def test_load_unrelated_json_raises(tmp_path):
    for content in ("[1, 2]", '{"a": "b"}', "{}"):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(DataError) as error:
            load_tokenizer(tmp_path)
        assert error.value.path == str(tmp_path / "tokenizer.json")


def test_load_empty_folder_raises(tmp_path):
    with pytest.raises(MissingFile) as error:
        load_tokenizer(tmp_path)
    assert error.value.path == str(tmp_path)


def test_load_folder_with_two_vocabularies_names_both(tmp_path):
    for name in ("a-vocab.txt", "b-vocab.txt"):
        (tmp_path / name).write_text("[PAD]\n")
    with pytest.raises(DataError, match=r"a-vocab\.txt.*b-vocab\.txt"):
        load_tokenizer(tmp_path)


def test_load_vocabulary_without_merges_or_with_bad_ones_raises(tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(MissingFile) as missing:
        load_tokenizer(tmp_path)
    assert missing.value.path == str(tmp_path / "merges.txt")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b c\n")
    with pytest.raises(DataError) as bad:
        load_tokenizer(tmp_path)
    assert bad.value.path == str(tmp_path / "merges.txt")


def test_load_text_without_bert_tokens_raises(tmp_path):
    (tmp_path / "vocab.txt").write_text("the cat sat\n")
    with pytest.raises(DataError, match=r"vocab\.txt.*\[PAD\]"):
        load_tokenizer(tmp_path)


def test_load_bytes_that_are_not_sentencepiece_raises(tmp_path):
    for content in (b"", b"\x00\x01", b"\x0a\xff\xff", b"some text, not protobuf"):
        (tmp_path / "spiece.model").write_bytes(content)
        with pytest.raises(DataError) as error:
            load_tokenizer(tmp_path)
        assert error.value.path == str(tmp_path / "spiece.model")


def test_load_truncated_sentencepiece_raises(shared, tmp_path):
    data = (shared / "tokenizers" / "torchtext_t5_tokenizer_base.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"spiece\.model"):
        load_tokenizer(tmp_path)


UNK, CONTROL = 2, 3  # types of pieces
PIECES = [("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNK)]
PIECES += [(f"▁{word}", -2.0 - i, 1) for i, word in enumerate(("the", "cat", "sat", "on", "a", "mat"))]


def encode_field(number: int, value: int | float | bytes) -> bytes:
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    kind, value, rest = (0, value, b"") if isinstance(value, int) else (2, len(value), value)
    encoded, remaining = [], (number << 3 | kind, value)
    for part in remaining:
        while part > 127:
            encoded.append(part & 127 | 128)
            part >>= 7
        encoded.append(part)
    return bytes(encoded) + rest


def write_sentencepiece(path: Path, pieces: list[tuple[str, float, int]], end: int = 1) -> None:
    parts = [encode_field(1, n.encode()) + encode_field(2, s) + encode_field(3, t) for n, s, t in pieces]
    trainer = encode_field(2, encode_field(3, 1) + encode_field(42, end))
    path.write_bytes(b"".join(encode_field(1, part) for part in parts) + trainer)


def test_load_small_sentencepiece(tmp_path):
    write_sentencepiece(tmp_path / "spiece.model", PIECES)
    tokenizer = load_tokenizer(tmp_path)
    assert len(tokenizer) == len(PIECES)
    assert tokenizer.encode("the cat").ids.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("pieces", "end"),
    [
        (PIECES, 0xFFFFFFFFFFFFFFFF),  # −1: none
        (PIECES, 10**9),
        (PIECES, 5),  # no control piece
        (PIECES[:2] + PIECES[3:], 1),  # no unknown piece
        ([*PIECES, ("▁x", float("nan"), 1)], 1),
        ([*PIECES, ("▁x", float("inf"), 1)], 1),
        ([], 1),
    ],
)
def test_load_sentencepiece_without_what_it_needs_raises(tmp_path, pieces, end):
    write_sentencepiece(tmp_path / "spiece.model", pieces, end)
    with pytest.raises(DataError) as error:
        load_tokenizer(tmp_path)
    assert error.value.path == str(tmp_path / "spiece.model")


def test_load_damaged_sentencepiece_raises_nothing_else(tmp_path):
    path = tmp_path / "spiece.model"
    write_sentencepiece(path, PIECES)
    whole, draw, refused = path.read_bytes(), random.Random(3), 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged)
        try:
            load_tokenizer(path).encode("the cat sat on a mat")
        except NextwordError:
            refused += 1
    assert 0 < refused < 300


def test_load_sentencepiece_with_an_endless_number_raises(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"\xff" * (1 << 22))  # minutes, if it were read as one number
    with pytest.raises(DataError):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("model", "vocab", "the"), 10**9),
        (("model", "vocab", "the"), -1),
        (("model", "vocab", "the"), 2.5),
        (("model", "vocab", "[UNK]"), 10**9),
        (("model", "nextword", "begin"), 10**9),
        (("model", "nextword", "end"), -1),
        (("model", "nextword", "special"), {"[PAD]": 10**9}),
        (("model", "nextword", "special"), 5),
        (("model", "nextword", "version"), "1"),
        (("model", "unk_token"), "[NONE]"),
    ],
)
def test_load_tokenizer_with_impossible_ids_raises(tmp_path, place, value):
    file = tmp_path / "tokenizer.json"
    content = train_tokenizer(SPECS["wordpiece"], TEXTS).content()
    table = content
    for key in place[:-1]:
        table = table[key]
    table[place[-1]] = value
    file.write_text(json.dumps(content))
    with pytest.raises(DataError):
        load_tokenizer(file)


@pytest.mark.parametrize("words", [5, "the", [5], [["the"]], {"the": 1}, None])
def test_load_words_that_are_no_words_raises(tmp_path, words):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({**train_tokenizer({"kind": "words"}, TEXTS).content(), "words": words}))
    with pytest.raises(DataError) as error:
        load_tokenizer(file)
    assert error.value.path == str(file)


def test_load_sentencepiece_bpe_raises(shared):
    with pytest.raises(DataError, match="unigram"):
        load_tokenizer(shared / "tokenizers" / "glm-cog-pretrain.model")


@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
def test_load_gpt2_under_either_file_name_gives_published_ids(shared, tmp_path, names):
    for source, name in zip(("encoder.json", "vocab.bpe"), names, strict=True):
        shutil.copyfile(shared / "tokenizers" / "gpt2" / source, tmp_path / name)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("Hello world").ids.tolist() == [15496, 995]
    assert tokenizer.begin == tokenizer.end == 50256


def test_load_gpt1_line_end_separates_texts(shared):
    tokenizer = load_tokenizer(shared / "tokenizers" / "gpt1_encoder_bpe_40000.json")
    assert tokenizer.piece(tokenizer.begin).strip(b" ") == b"\n"
    ids = [*tokenizer.encode("the cat").ids, tokenizer.begin, *tokenizer.encode("sat down").ids]
    assert tokenizer.decode(ids) == "the cat\nsat down"


@pytest.mark.parametrize(
    ("stage", "value"),
    [
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "^(a|a)*$"}, "behavior": "Isolated", "invert": False}),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "a*a*a*b"}, "behavior": "Isolated", "invert": False}),
        ("normalizer", {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}),
        ("normalizer", {"type": "Prepend", "prepend": "a" * 1000}),
        (
            "normalizer",
            {
                "type": "Sequence",
                "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 8}] * 4,
            },
        ),
    ],
)
def test_load_tokenizer_that_could_take_forever_raises(tmp_path, stage, value):
    tokenizer = train_tokenizer({"kind": "wordpiece", "size": 60}, ["abc " * 50])
    content = json.loads(tokenizer.to_bytes()) | {stage: value}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_load_tokenizer_with_a_simple_pattern_is_accepted(tmp_path):
    tokenizer = train_tokenizer({"kind": "wordpiece", "size": 60}, ["abc " * 50])
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    content = json.loads(tokenizer.to_bytes()) | {"normalizer": spaces}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert loaded.encode("abc  abc").ids.tolist() == tokenizer.encode("abc abc").ids.tolist()
