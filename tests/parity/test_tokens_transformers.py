"""Tokenizers give the ids of transformers and sentencepiece with the same files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nextword.tokenizers.loading import load_tokenizer, parse_model

sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

TEXTS = [
    "",
    " ",
    "The cat sat on the mat.",
    "  Leading, trailing  and   inner spaces  ",
    "Lines\nand\n\nempty\r\nones\n",
    "don't we'll I'd you've 'tis",
    "naïve café Ångström e\u0301 İstanbul ß ﬁ ½ ² ①",
    "戦場のヴァルキュリア3 は 日本語",
    "שלום עולם مرحبا",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪",
    "tabs\tand\u00a0no-break\u2003em\u3000ideographic\u200bzero",
    "control\x00 \x01\x7f characters \ufeff",
    "x = {'a': 1, \"b\": [2.5e-3, ~3]}  # comment",
    "http://www.example.com/?q=1&r=%20 me@example.com $1,234.56",
    "supercalifragilisticexpialidocious " + "a" * 300,
    "MiXeD CaSe WORDS",
]


def pairs(merges: Path) -> list[tuple[str, str]]:
    lines = merges.read_text(encoding="utf-8").split("\n")
    return [(line.split(" ")[0], line.split(" ")[1]) for line in lines if line and not line.startswith("#version")]


def same_ids(ours, theirs, texts=TEXTS) -> None:
    for text in texts:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text).ids.tolist() == expected, repr(text)


def test_gpt2_ids_equal_transformers(shared):
    folder = shared / "tokenizers" / "gpt2"
    vocabulary = json.loads((folder / "encoder.json").read_text())
    theirs = transformers.GPT2TokenizerFast(vocab=vocabulary, merges=pairs(folder / "vocab.bpe"))
    ours = load_tokenizer(folder)
    same_ids(ours, theirs)
    assert ours.lossless
    assert len(ours) == len(theirs) == 50257
    for text in TEXTS:
        assert ours.decode(ours.encode(text).ids) == text


def test_roberta_ids_equal_transformers(shared):
    folder = shared / "tokenizers"
    vocabulary = json.loads((folder / "roberta-vocab.json").read_text())
    theirs = transformers.RobertaTokenizerFast(vocab=vocabulary, merges=pairs(folder / "roberta-merges.txt"))
    ours = load_tokenizer(folder / "roberta-vocab.json")
    same_ids(ours, theirs)
    assert ours.special == {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 50264}
    assert (ours.begin, ours.end) == (0, 2)


def test_gpt1_ids_equal_transformers(shared):
    folder = shared / "tokenizers"
    vocabulary = json.loads((folder / "gpt1_encoder_bpe_40000.json").read_text())
    theirs = transformers.OpenAIGPTTokenizerFast(vocab=vocabulary, merges=pairs(folder / "gpt1_vocab_40000.bpe"))
    ours = load_tokenizer(folder / "gpt1_encoder_bpe_40000.json")
    same_ids(ours, theirs)
    assert len(ours) == 40478


@pytest.mark.parametrize(
    ("file", "lower"), [("bert-base-uncased-vocab.txt", True), ("torchtext_bert_base_cased_vocab.txt", False)]
)
def test_bert_ids_equal_transformers(shared, file, lower):
    lines = (shared / "tokenizers" / file).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    vocabulary = {piece: id for id, piece in enumerate(lines)}
    theirs = transformers.BertTokenizerFast(vocab=vocabulary, do_lower_case=lower)
    ours = load_tokenizer(shared / "tokenizers" / file)
    same_ids(ours, theirs)
    assert ours.encode("[MASK] [CLS]").ids.tolist() != theirs("[MASK] [CLS]", add_special_tokens=False)["input_ids"]
    spans = theirs("The naïve café, 戦場!", add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    text = "The naïve café, 戦場!"
    expected = [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]
    assert ours.encode(text).spans.tolist() == expected


def test_t5_ids_equal_transformers(shared, tmp_path):
    file = shared / "tokenizers" / "torchtext_t5_tokenizer_base.model"
    (tmp_path / "spiece.model").write_bytes(file.read_bytes())
    theirs = transformers.T5TokenizerFast.from_pretrained(tmp_path)
    ours = load_tokenizer(file, sentinels=100)
    same_ids(ours, theirs)
    assert len(ours) == len(theirs) == 32100
    assert ours.special["<extra_id_0>"] == theirs.convert_tokens_to_ids("<extra_id_0>") == 32099


def test_t5_ids_equal_sentencepiece(shared):
    file = shared / "tokenizers" / "torchtext_t5_tokenizer_base.model"
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(file))
    ours = load_tokenizer(file)
    names = ["</s> <unk> <pad>", "a </s> b"]  # plain text to sentencepiece, as to us
    for text in TEXTS + names:
        assert ours.encode(text).ids.tolist() == theirs.encode(text), repr(text)


@pytest.mark.parametrize("file", ["torchtext_t5_tokenizer_base.model", "glm-cog-pretrain.model"])
def test_parse_model_equals_protobuf(shared, file):
    protobuf = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    data = (shared / "tokenizers" / file).read_bytes()
    model = protobuf.ModelProto()
    model.ParseFromString(data)
    pieces, trainer, normalizer = parse_model(data)
    assert [(p.piece, p.score, p.type) for p in model.pieces] == pieces
    assert trainer[3] == model.trainer_spec.model_type
    assert normalizer[2] == model.normalizer_spec.precompiled_charsmap


def test_saved_file_loads_in_transformers(shared, tmp_path):
    ours = load_tokenizer(shared / "tokenizers" / "gpt2")
    ours.save(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    same_ids(ours, theirs)
    assert theirs.convert_tokens_to_ids("<|endoftext|>") == ours.end


def test_hugging_face_folder_loads_with_same_ids(shared, tmp_path):
    """A folder that transformers saved, with its habits of truncating and of adding special tokens."""
    file = shared / "tokenizers" / "bert-base-uncased-vocab.txt"
    lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    theirs = transformers.BertTokenizerFast(vocab={piece: id for id, piece in enumerate(lines)})
    theirs("set by a call", truncation=True, max_length=4, padding="max_length")
    theirs.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    ours, own = load_tokenizer(tmp_path), load_tokenizer(file)
    for text in TEXTS:
        np.testing.assert_array_equal(ours.encode(text).ids, own.encode(text).ids)
    assert ours.special == own.special
    assert (ours.begin, ours.end, ours.kind) == (own.begin, own.end, "wordpiece")
