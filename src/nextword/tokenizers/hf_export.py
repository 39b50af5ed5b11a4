"""A tokenizer as the files that transformers opens: `AutoTokenizer.from_pretrained(folder)` gives the same ids.

| kind                              | in transformers                                                               |
| --------------------------------- | ----------------------------------------------------------------------------- |
| `bpe` by GPT-2's rule             | GPT2Tokenizer: vocab.json, merges.txt, tokenizer.json                         |
| `classic-bpe`, lower case         | OpenAIGPTTokenizer: the same files                                            |
| other sub-words                   | PreTrainedTokenizerFast: tokenizer.json                                       |
| `bytes`                           | GPT2Tokenizer without merges                                                  |
| `characters`                      | PreTrainedTokenizerFast: BPE without merges, other characters by their bytes  |
| `words`                           | none: what a line end means there cannot be said in these files               |

Some networks read a text between marks; then `tokenizer(text)` in transformers puts these around it (`Frame`):

| `wordpiece` as BERT's             | BertTokenizer: vocab.txt, tokenizer.json                                      |
| `bpe` with RoBERTa's five tokens  | RobertaTokenizer: vocab.json, merges.txt, tokenizer.json                      |
| other sub-words                   | PreTrainedTokenizerFast: tokenizer.json                                       |

tokenizer.json keeps what nextword knows of the tokenizer, where other programs pass over it, so that `restored` gives
back the very same one. In transformers a special token's name in a text is that token; to nextword it is plain text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.tokenizers import base as storage
from nextword.tokenizers.base import MARKS
from nextword.tokenizers.characters import END, Bytes, Characters
from nextword.tokenizers.subwords import Subwords, byte_symbols, names_of

GPT2, GPT1, ANY = "GPT2Tokenizer", "OpenAIGPTTokenizer", "PreTrainedTokenizerFast"
BERT, ROBERTA = "BertTokenizer", "RobertaTokenizer"
MERGED = (GPT2, GPT1, ROBERTA)  # vocab.json and merges.txt beside tokenizer.json
FIVE = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}  # RobertaTokenizer adds those that are missing
ROLES = {  # what transformers calls tokens by what they do
    "unk_token": ("<unk>", "[UNK]"),
    "pad_token": ("<pad>", "[PAD]"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("<mask>", "[MASK]"),
}
NORMAL = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@dataclass(frozen=True)
class Frame:
    """What stands around one text (A) and two (A, B): marks, each with the segment it lies in, which is 0 if not said.

    Good: Frame("cls A sep", "cls A sep B:1 sep:1")
    """

    single: str
    pair: str
    segments: bool = True  # whether the network reads them


def export(tokenizer: Tokenizer, folder: Path, window: int | None, frame: Frame | None = None) -> list[str]:
    """Write the files into the folder and name them; none where transformers has nothing that gives these ids."""
    content = library_json(tokenizer)
    if content is None:
        return []
    roles = _roles(tokenizer, frame is not None)
    if frame is not None:
        content = _framed(content, roles, frame, tokenizer.special)
    kind = _class(content, tokenizer) if frame is None else _framed_class(content, tokenizer, frame)
    settings: dict[str, Any] = {"tokenizer_class": kind, "clean_up_tokenization_spaces": False, **roles}
    if window is not None:
        settings["model_max_length"] = window
    if kind in (GPT2, ROBERTA):
        settings["add_prefix_space"] = False
    if kind == BERT:
        settings |= {theirs: content["normalizer"].get(ours) for ours, theirs in NORMAL.items()}
    if kind == ANY and frame is not None:
        settings["model_input_names"] = [*INPUTS[: 3 if frame.segments else 2]]
    written = {"tokenizer.json": content, "tokenizer_config.json": settings, "special_tokens_map.json": roles}
    if kind == BERT:
        pieces = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
        (folder / "vocab.txt").write_bytes("".join([f"{piece}\n" for piece in pieces]).encode())
        return [*_written(folder, written), "vocab.txt"]
    if kind in MERGED:
        written["vocab.json"] = content["model"]["vocab"]
        lines = ["#version: 0.2", *(f"{a} {b}" for a, b in map(_pair, content["model"]["merges"])), ""]
        (folder / "merges.txt").write_bytes("\n".join(lines).encode())
    return [*_written(folder, written), *(["merges.txt"] if kind in MERGED else [])]


def _written(folder: Path, files: Mapping[str, Any]) -> list[str]:
    for name, value in files.items():
        indent = None if name in ("vocab.json", "tokenizer.json") else 2
        (folder / name).write_bytes((json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode())
    return list(files)


def library_json(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """The JSON of the `tokenizers` library, with our own header in it; None where the library has no such thing."""
    if isinstance(tokenizer, Subwords):
        return tokenizer.content()
    if isinstance(tokenizer, Bytes):
        vocab = {symbol: byte for symbol, byte in byte_symbols().items()}
        return _by_bytes(tokenizer, vocab, {"pre_tokenizer": _BYTE_LEVEL, "decoder": _BYTE_LEVEL})
    if isinstance(tokenizer, Characters):
        # ASCII and the characters are themselves; what is neither falls back to its bytes, none of which is ASCII
        vocab = {chr(byte) if byte < 128 else f"<0x{byte:02X}>": byte for byte in range(256)}
        vocab |= {character: 256 + i for i, character in enumerate(tokenizer.characters)}
        whole = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
        return _by_bytes(tokenizer, vocab, {"pre_tokenizer": None, "decoder": whole}, fallback=True)
    return None


def restored(content: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer that `export` wrote this tokenizer.json of; None where it did not."""
    header = storage.own(content)
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


def widened(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """With names for ids up to `size` that no text has, as where a network's table was padded to a round number."""
    if not isinstance(tokenizer, Subwords):
        raise NextwordError(
            f"The tokenizer has {len(tokenizer):,} tokens and the network {size:,}: a tokenizer of kind "
            f"{tokenizer.kind} cannot be given names for the rest. Give the tokenizer that the network was made with."
        )
    content, known = dict(tokenizer.library), names_of(tokenizer.library)
    unused = {f"<|unused-{id}|>": id for id in range(len(tokenizer), size)}
    if taken := unused.keys() & known:
        raise NextwordError(f"The tokenizer has a token {sorted(taken)[0]}, which is the name of an id without one.")
    added = [{"id": id, "content": name, **_FLAGS, "special": True} for name, id in unused.items()]
    content["added_tokens"] = [*(content.get("added_tokens") or []), *added]
    return Subwords(content, {**tokenizer.special, **unused}, tokenizer.begin, tokenizer.end)


def _by_bytes(
    tokenizer: Bytes | Characters, vocab: dict[str, int], stages: Mapping[str, Any], fallback: bool = False
) -> dict[str, Any]:
    """BPE that merges nothing."""
    header = {"version": storage.VERSION, "kind": tokenizer.kind, "end": tokenizer.end}
    model: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": fallback, "ignore_merges": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": tokenizer.end, "content": END, **_FLAGS, "special": True}],
        "normalizer": None,
        "post_processor": None,
        **stages,
        "model": {**model, "vocab": {**vocab, END: tokenizer.end}, "merges": [], "nextword": header},
    }


def _class(content: Mapping[str, Any], tokenizer: Tokenizer) -> str:
    """The class in transformers. The two of the papers bring their own stages, so these must be the very same."""
    model, vocabulary = content["model"], content["model"]["vocab"]
    special = {token["content"] for token in content.get("added_tokens") or []}
    odd = model.get("byte_fallback") or model.get("ignore_merges") or model.get("continuing_subword_prefix")
    after = content.get("post_processor") or {"type": "ByteLevel"}  # which moves offsets alone
    if model["type"] != "BPE" or odd or after["type"] != "ByteLevel" or len(vocabulary) != len(tokenizer):
        return ANY
    before, normal = content["pre_tokenizer"] or {}, content["normalizer"] or {}
    if _by_gpt2s_rule(content) and special == {END}:
        return GPT2
    steps = ("lowercase", "clean_text", "handle_chinese_chars")
    lower = normal.get("type") == "BertNormalizer" and all(normal.get(step) for step in steps)
    lower = lower and normal.get("strip_accents") in (None, True)  # None: as lower case does
    same = before == {"type": "BertPreTokenizer"} and model.get("end_of_word_suffix") == "</w>"
    return GPT1 if lower and same and "<unk>" in special <= {"<unk>", END} else ANY


def _by_gpt2s_rule(content: Mapping[str, Any]) -> bool:
    before = {**_BYTE_LEVEL, **(content["pre_tokenizer"] or {}), "trim_offsets": True}
    return before == _BYTE_LEVEL and not content["normalizer"]


def _framed(
    content: Mapping[str, Any], roles: Mapping[str, str], frame: Frame, special: Mapping[str, int]
) -> dict[str, Any]:
    """With the marks that the library puts around texts, where it has them and does not say yet where they stand."""
    before = content["post_processor"]
    words = {word.partition(":")[0] for word in f"{frame.single} {frame.pair}".split()}
    marked = [mark for mark in ("cls", "sep") if mark in words]
    names: dict[str, str | None] = {mark: roles.get(f"{mark}_token") for mark in marked}
    if None in names.values() or (before is not None and before["type"] != "ByteLevel"):
        return dict(content)

    def piece(word: str) -> dict[str, Any]:
        what, _, segment = word.partition(":")
        place = {"id": names.get(what) or what, "type_id": int(segment or 0)}
        return {"SpecialToken" if what in names else "Sequence": place}

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
    """The class of a paper's own, where its stages and tokens are the very same; it may have others in its place."""
    model, normal = content["model"], content["normalizer"] or {}
    special = {token["content"] for token in content.get("added_tokens") or []}
    whole = sorted(names_of(content).values()) == list(range(len(tokenizer))) and len(model["vocab"]) == len(tokenizer)
    if not whole or not isinstance(tokenizer, Subwords):
        return _class(content, tokenizer)
    if tokenizer.kind == "wordpiece" and frame.segments:
        known = model.get("unk_token") == "[UNK]" and model.get("continuing_subword_prefix", "##") == "##"
        known = known and model.get("max_input_chars_per_word", 100) == 100 and normal.get("clean_text", False)
        same = normal.get("type") == "BertNormalizer" and content["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        return BERT if known and same and special == {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} else ANY
    if tokenizer.kind == "bpe" and special == FIVE and _by_gpt2s_rule(content) and not frame.segments:
        return ROBERTA
    return _class(content, tokenizer)


def _roles(tokenizer: Tokenizer, framed: bool = False) -> dict[str, str]:
    names = {id: name for name, id in tokenizer.special.items()}
    end = None if tokenizer.end is None else names.get(tokenizer.end)
    roles = {"bos_token": names.get(tokenizer.begin), "eos_token": end}
    marks = {f"{mark}_token": called for mark, called in MARKS.items()} if framed else {}
    for role, known in {**ROLES, **marks}.items():
        roles[role] = next((name for name in known if name in tokenizer.special), None)
    if roles["unk_token"] is None:
        roles["unk_token"] = roles["eos_token"]  # as GPT-2's, which knows all bytes and needs none
    return {role: name for role, name in roles.items() if name is not None}


def _pair(merge: str | list[str]) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else merge
