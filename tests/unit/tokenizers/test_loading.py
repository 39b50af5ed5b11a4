"""Files of ours and of others: what is whole loads, what is not says so."""

from __future__ import annotations

import json
import shutil

import pytest
from tokenizers import Tokenizer as Library

from nextword.core.errors import NextwordError
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


def test_a_file_cut_short_is_named(file):
    whole = file.read_text(encoding="utf-8")
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        file.write_text(whole[:length], encoding="utf-8")
        with pytest.raises(NextwordError, match="not a whole JSON file"):
            load_tokenizer(file)


def test_a_newer_version_is_refused(file):
    file.write_text(file.read_text(encoding="utf-8").replace('"version": 1', '"version": 99'), encoding="utf-8")
    with pytest.raises(NextwordError, match="newer nextword"):
        load_tokenizer(file)


def test_a_file_with_parts_missing_is_refused(file):
    content = json.loads(file.read_text(encoding="utf-8"))
    for key in content.keys() & {"words", "model", "pre_tokenizer"}:
        broken = {name: value for name, value in content.items() if name != key}
        file.write_text(json.dumps(broken), encoding="utf-8")
        with pytest.raises(NextwordError, match="tokenizer"):
            load_tokenizer(file)


def test_saving_leaves_one_file(file):
    load_tokenizer(file).save(file)
    assert [path.name for path in file.parent.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("kind", ["bpe", "classic-bpe", "wordpiece", "unigram"])
def test_the_library_reads_our_file(kind, tmp_path):
    tokenizer = train_tokenizer(SPECS[kind], TEXTS)
    tokenizer.save(tmp_path / "tokenizer.json")
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    assert library.encode("the cat sat").ids == tokenizer.encode("the cat sat").ids.tolist()
    assert library.get_vocab_size() == len(tokenizer)
    for name, id in tokenizer.special.items():
        assert library.token_to_id(name) == id


def test_json_of_something_else(tmp_path):
    for content in ("[1, 2]", '{"a": "b"}', "{}"):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(NextwordError, match=r"tokenizer\.json"):
            load_tokenizer(tmp_path)


def test_a_folder_without_one_says_what_was_looked_for(tmp_path):
    with pytest.raises(NextwordError, match=r"tokenizer\.json, encoder\.json with vocab\.bpe"):
        load_tokenizer(tmp_path)


def test_a_folder_with_several_asks_for_one(tmp_path):
    for name in ("a-vocab.txt", "b-vocab.txt"):
        (tmp_path / name).write_text("[PAD]\n")
    with pytest.raises(NextwordError, match=r"a-vocab\.txt, b-vocab\.txt"):
        load_tokenizer(tmp_path)


def test_a_vocabulary_needs_its_merges(tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(NextwordError, match=r"vocab\.bpe and merges\.txt"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b c\n")
    with pytest.raises(NextwordError, match="two pieces a line"):
        load_tokenizer(tmp_path)


def test_a_text_that_is_no_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("the cat sat\n")
    with pytest.raises(NextwordError, match="not a BERT vocabulary"):
        load_tokenizer(tmp_path)


def test_a_model_that_is_none(tmp_path):
    for content in (b"", b"\x00\x01", b"\x0a\xff\xff", b"some text that is no protobuf"):
        (tmp_path / "spiece.model").write_bytes(content)
        with pytest.raises(NextwordError, match="SentencePiece"):
            load_tokenizer(tmp_path)


def test_a_model_cut_short(shared, tmp_path):
    data = (shared / "tokenizers" / "torchtext_t5_tokenizer_base.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(data[: len(data) // 2])
    with pytest.raises(NextwordError, match="cut short"):
        load_tokenizer(tmp_path)


def test_sentencepiece_bpe_is_refused_by_name(shared):
    with pytest.raises(NextwordError, match="not a unigram one"):
        load_tokenizer(shared / "tokenizers" / "glm-cog-pretrain.model")


@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
def test_gpt2_by_either_name(shared, tmp_path, names):
    for source, name in zip(("encoder.json", "vocab.bpe"), names, strict=True):
        shutil.copyfile(shared / "tokenizers" / "gpt2" / source, tmp_path / name)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("Hello world").ids.tolist() == [15496, 995]
    assert tokenizer.begin == tokenizer.end == 50256


def test_gpt1_writes_its_line_end(shared):
    tokenizer = load_tokenizer(shared / "tokenizers" / "gpt1_encoder_bpe_40000.json")
    assert tokenizer.piece(tokenizer.begin).strip(b" ") == b"\n"
    ids = [*tokenizer.encode("the cat").ids, tokenizer.begin, *tokenizer.encode("sat down").ids]
    assert tokenizer.decode(ids) == "the cat\nsat down"
