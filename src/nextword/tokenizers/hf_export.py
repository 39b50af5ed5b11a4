"""Export a tokenizer for transformers: `AutoTokenizer.from_pretrained(folder)` gives the same ids.

| kind                              | class in transformers, and files                                              |
| --------------------------------- | ----------------------------------------------------------------------------- |
| `bpe` with GPT-2's rule           | GPT2Tokenizer: vocab.json, merges.txt, tokenizer.json                         |
| `classic-bpe`, lowercase          | OpenAIGPTTokenizer: the same files                                            |
| other subwords                    | PreTrainedTokenizerFast: tokenizer.json                                       |
| `bytes`                           | GPT2Tokenizer without merges                                                  |
| `characters`                      | PreTrainedTokenizerFast: BPE without merges, with byte fallback               |
| `words`, `lexicon`                | none: these files cannot express `<eos>` at line ends                         |

With a `Frame`, `tokenizer(text)` in transformers also puts the special tokens of the network around the text:

| `wordpiece` like BERT's            | BertTokenizer: vocab.txt, tokenizer.json                                      |
| `bpe` with RoBERTa's five tokens  | RobertaTokenizer: vocab.json, merges.txt, tokenizer.json                      |
| other subwords                    | PreTrainedTokenizerFast: tokenizer.json                                       |

tokenizer.json keeps our header where other programs ignore it, so that `restore` returns exactly the same tokenizer. In
transformers the name of a special token in a text is that token; in nextword it is plain text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextword.core.errors import DataError, Unsupported
from nextword.tokenizers.base import VERSION, Tokenizer, header_of
from nextword.tokenizers.characters import END, Bytes, Characters
from nextword.tokenizers.special_tokens import MARKS
from nextword.tokenizers.subwords import Subwords, added_token, byte_symbols, names_of, with_added

GPT2, GPT1, ANY = "GPT2Tokenizer", "OpenAIGPTTokenizer", "PreTrainedTokenizerFast"
BERT, ROBERTA = "BertTokenizer", "RobertaTokenizer"
MERGED = (GPT2, GPT1, ROBERTA)  # classes that also want vocab.json and merges.txt
ROBERTA_SPECIAL = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}  # RobertaTokenizer adds those that are missing
BERT_SPECIAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
ROLES = {  # role in transformers → our names
    "unk_token": ("<unk>", "[UNK]"),
    "pad_token": ("<pad>", "[PAD]"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("<mask>", "[MASK]"),
}
NORMALIZER_SETTINGS = {  # key in tokenizer.json → key in tokenizer_config.json
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@dataclass(frozen=True)
class Frame:
    """The special tokens around one text (A) and around two (A, B), each with its segment (0 if left out).

    Frame("cls A sep", "cls A sep B:1 sep:1")
    """

    single: str
    pair: str
    segments: bool = True  # whether the network reads segments


def export_tokenizer(tokenizer: Tokenizer, folder: Path, window: int | None, frame: Frame | None = None) -> list[str]:
    """Write the files into the folder and return their names; none if transformers cannot express this tokenizer."""
    content = library_json(tokenizer)
    if content is None:
        return []
    roles = _roles(tokenizer, frame is not None)
    if frame is not None:
        content = _add_frame(content, roles, frame, tokenizer.special)
    kind = _class(content, tokenizer) if frame is None else _framed_class(content, tokenizer, frame)
    settings: dict[str, Any] = {"tokenizer_class": kind, "clean_up_tokenization_spaces": False, **roles}
    if window is not None:
        settings["model_max_length"] = window
    if kind in (GPT2, ROBERTA):
        settings["add_prefix_space"] = False
    if kind == BERT:
        settings |= {theirs: content["normalizer"].get(ours) for ours, theirs in NORMALIZER_SETTINGS.items()}
    if kind == ANY and frame is not None:
        settings["model_input_names"] = [*INPUTS[: 3 if frame.segments else 2]]
    files = {"tokenizer.json": content, "tokenizer_config.json": settings, "special_tokens_map.json": roles}
    if kind == BERT:
        pieces = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
        (folder / "vocab.txt").write_bytes("".join([f"{piece}\n" for piece in pieces]).encode())
        return [*_write_json(folder, files), "vocab.txt"]
    if kind in MERGED:
        files["vocab.json"] = content["model"]["vocab"]
        lines = ["#version: 0.2", *(f"{a} {b}" for a, b in map(_pair, content["model"]["merges"])), ""]
        (folder / "merges.txt").write_bytes("\n".join(lines).encode())
    return [*_write_json(folder, files), *(["merges.txt"] if kind in MERGED else [])]


def _write_json(folder: Path, files: Mapping[str, Any]) -> list[str]:
    for name, value in files.items():
        indent = None if name in ("vocab.json", "tokenizer.json") else 2
        (folder / name).write_bytes((json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode())
    return list(files)


def library_json(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Return the JSON of the `tokenizers` library, with our header; None if the library has no such tokenizer."""
    if isinstance(tokenizer, Subwords):
        return tokenizer.content()
    if isinstance(tokenizer, Bytes):
        return _bpe_without_merges(tokenizer, byte_symbols(), {"pre_tokenizer": _BYTE_LEVEL, "decoder": _BYTE_LEVEL})
    if isinstance(tokenizer, Characters):
        # Any other character falls back to its bytes, none of which is ASCII.
        vocab = {chr(byte) if byte < 128 else f"<0x{byte:02X}>": byte for byte in range(256)}
        vocab |= {character: 256 + i for i, character in enumerate(tokenizer.characters)}
        decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
        return _bpe_without_merges(tokenizer, vocab, {"pre_tokenizer": None, "decoder": decoder}, fallback=True)
    return None


def restore(content: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer that `export` wrote this tokenizer.json of; None where it did not."""
    header = header_of(content)
    if header is None:
        return None
    if header["kind"] == Bytes.kind:
        return Bytes()
    if header["kind"] == Characters.kind:
        vocab = content["model"]["vocab"]
        return Characters(sorted((name for name, id in vocab.items() if 256 <= id < header["end"]), key=vocab.get))
    if "unframed" in header:
        content = {**content, "post_processor": header["unframed"]}
    return Subwords(content, header["special"], header["begin"], header["end"])


def pad_vocabulary(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """Add unused names up to `size`, for a network whose embedding was padded to a round number."""
    if not isinstance(tokenizer, Subwords):
        counts = f"The network has {size:,} tokens and the tokenizer {len(tokenizer):,}"
        remedy = "Use the tokenizer that the network was trained with."
        message = f"{counts}, and a tokenizer of kind {tokenizer.kind} cannot be padded. {remedy}"
        raise Unsupported(message, ability="pad_vocabulary")
    unused = {f"<|unused-{id}|>": id for id in range(len(tokenizer), size)}
    if taken := unused.keys() & names_of(tokenizer.library):
        raise DataError(f"The tokenizer already has a token {sorted(taken)[0]}, a name reserved for padding.")
    return Subwords(
        with_added(tokenizer.library, unused), {**tokenizer.special, **unused}, tokenizer.begin, tokenizer.end
    )


def _bpe_without_merges(
    tokenizer: Bytes | Characters, vocab: dict[str, int], stages: Mapping[str, Any], fallback: bool = False
) -> dict[str, Any]:
    header = {"version": VERSION, "kind": tokenizer.kind, "end": tokenizer.end}
    model: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": fallback, "ignore_merges": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(END, tokenizer.begin)],
        "normalizer": None,
        "post_processor": None,
        **stages,
        "model": {**model, "vocab": {**vocab, END: tokenizer.end}, "merges": [], "nextword": header},
    }


def _class(content: Mapping[str, Any], tokenizer: Tokenizer) -> str:
    """Return the class in transformers. GPT-2's and GPT-1's have built-in stages, which must equal ours."""
    model, vocabulary = content["model"], content["model"]["vocab"]
    special = {token["content"] for token in content.get("added_tokens") or []}
    odd = model.get("byte_fallback") or model.get("ignore_merges") or model.get("continuing_subword_prefix")
    after = content.get("post_processor") or {"type": "ByteLevel"}  # which only changes offsets
    if model["type"] != "BPE" or odd or after["type"] != "ByteLevel" or len(vocabulary) != len(tokenizer):
        return ANY
    before, normal = content["pre_tokenizer"] or {}, content["normalizer"] or {}
    if _is_gpt2_rule(content) and special == {END}:
        return GPT2
    steps = ("lowercase", "clean_text", "handle_chinese_chars")
    is_lowercase = normal.get("type") == "BertNormalizer" and all(normal.get(step) for step in steps)
    is_lowercase = is_lowercase and normal.get("strip_accents") in (None, True)  # None: like lowercase
    is_gpt1_rule = before == {"type": "BertPreTokenizer"} and model.get("end_of_word_suffix") == "</w>"
    return GPT1 if is_lowercase and is_gpt1_rule and "<unk>" in special <= {"<unk>", END} else ANY


def _is_gpt2_rule(content: Mapping[str, Any]) -> bool:
    before = {**_BYTE_LEVEL, **(content["pre_tokenizer"] or {}), "trim_offsets": True}
    return before == _BYTE_LEVEL and not content["normalizer"]


def _add_frame(
    content: Mapping[str, Any], roles: Mapping[str, str], frame: Frame, special: Mapping[str, int]
) -> dict[str, Any]:
    """Add the post-processor that puts special tokens around texts, unless there is one already."""
    before = content["post_processor"]
    words = {word.partition(":")[0] for word in f"{frame.single} {frame.pair}".split()}
    names: dict[str, str | None] = {mark: roles.get(f"{mark}_token") for mark in ("cls", "sep") if mark in words}
    if None in names.values() or (before is not None and before["type"] != "ByteLevel"):
        return dict(content)

    def piece(word: str) -> dict[str, Any]:
        name, _, segment = word.partition(":")
        place = {"id": names.get(name) or name, "type_id": int(segment or 0)}
        return {"SpecialToken" if name in names else "Sequence": place}

    marks = {name: {"id": name, "ids": [special[name]], "tokens": [name]} for name in names.values() if name}
    template = {
        "type": "TemplateProcessing",
        "single": [piece(word) for word in frame.single.split()],
        "pair": [piece(word) for word in frame.pair.split()],
        "special_tokens": marks,
    }
    model = {**content["model"], "nextword": {**content["model"]["nextword"], "unframed": before}}
    return {**content, "post_processor": template, "model": model}


def _framed_class(content: Mapping[str, Any], tokenizer: Tokenizer, frame: Frame) -> str:
    """Return BertTokenizer or RobertaTokenizer, if its built-in stages and special tokens equal ours."""
    model, normal = content["model"], content["normalizer"] or {}
    special = {token["content"] for token in content.get("added_tokens") or []}
    has_no_gaps = sorted(names_of(content).values()) == list(range(len(tokenizer)))
    if not has_no_gaps or len(model["vocab"]) != len(tokenizer) or not isinstance(tokenizer, Subwords):
        return _class(content, tokenizer)
    if tokenizer.kind == "wordpiece" and frame.segments:
        same_model = model.get("unk_token") == "[UNK]" and model.get("continuing_subword_prefix", "##") == "##"
        same_model = (
            same_model and model.get("max_input_chars_per_word", 100) == 100 and normal.get("clean_text", False)
        )
        same_rule = normal.get("type") == "BertNormalizer" and content["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        return BERT if same_model and same_rule and special == BERT_SPECIAL else ANY
    if tokenizer.kind == "bpe" and special == ROBERTA_SPECIAL and _is_gpt2_rule(content) and not frame.segments:
        return ROBERTA
    return _class(content, tokenizer)


def _roles(tokenizer: Tokenizer, framed: bool = False) -> dict[str, str]:
    """Return role in transformers → name of the special token."""
    name_of = {id: name for name, id in tokenizer.special.items()}
    end = None if tokenizer.end is None else name_of.get(tokenizer.end)
    roles = {"bos_token": name_of.get(tokenizer.begin), "eos_token": end}
    marks = {f"{mark}_token": names for mark, names in MARKS.items()} if framed else {}
    for role, known in {**ROLES, **marks}.items():
        roles[role] = next((name for name in known if name in tokenizer.special), None)
    if roles["unk_token"] is None:
        roles["unk_token"] = roles["eos_token"]  # as in GPT-2, which knows all bytes and needs none
    return {role: name for role, name in roles.items() if name is not None}


def _pair(merge: str | list[str]) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else merge
