r"""Sub-words of every sort, applied by the `tokenizers` library; this keeps byte spans, words and what each id writes.

    bpe           byte-level (GPT-2): pieces are bytes, so nothing is lost
    classic-bpe   characters, a word's last piece marked </w> (Sennrich 2016, GPT-1)
    wordpiece     characters, a word's later pieces marked ## (BERT)
    unigram       characters, a word's first piece marked ▁ (SentencePiece, T5)

A special token's name in the text is plain text: nobody can end a document by writing "<|endoftext|>" in it.

GPT-2's rule for cutting a text into words, and the ids of each word looked up instead of computed again.

    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

The library applies the rule and the merges to every word of the text. But a text has few different words, so most of
that work is repeated: cutting with Python's `re` and remembering each word's ids is some ten times faster. `re` has no
\p{L}; the classes are spelled out from `unicodedata`, for the characters whose class has been the same since Unicode
3.2 and so is the same in the library. A portion of text with any other character goes to the library whole.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Library

from nextword.core.errors import NextwordError
from nextword.core.types import Encoding
from nextword.tokenizers import base as storage
from nextword.tokenizers.base import character_bytes, in_order, join, partition, utf8, words_at

# The rule always cuts between a letter and " letter", so cutting there first changes no id.
_SEAM = re.compile(r"[A-Za-z](?= [A-Za-z])")
_PORTION = 1 << 12  # characters
_MEMORY = 1 << 18  # words to remember before beginning anew
# Unicode's White_Space, which is what \s means to the library; Python's \s has four more
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


@cache
def rule() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The rule, and a pattern that finds the characters it may not be applied to."""
    letters: list[int] = []
    numbers: list[int] = []
    others: list[int] = []
    for point in range(0x10000):
        now, then = (_class(source.category(chr(point))) for source in (unicodedata, unicodedata.ucd_3_2_0))
        if now == then != "C":
            {"L": letters, "N": numbers}.get(now, others).append(point)
    known = _ranges([*letters, *numbers, *others, *range(0xA0)])
    letter, number = _ranges(letters), _ranges(numbers)
    pattern = (
        rf"'(?:[stmd]|re|ve|ll)| ?[{letter}]+| ?[{number}]+| ?[^{_SPACE}{letter}{number}]+"
        rf"|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
    )
    return re.compile(pattern), re.compile(f"[^{known}]")


def _class(category: str) -> str:
    """L letter, N number, Z separator, C control or unassigned; S is all the rest, which the rule treats alike."""
    return category[0] if category[0] in "LNZC" else "S"


def _ranges(points: Sequence[int]) -> str:
    """The inside of a character class."""
    ordered = np.unique(points)
    breaks = np.flatnonzero(np.diff(ordered) > 1)
    starts, ends = ordered[np.append(0, breaks + 1)], ordered[np.append(breaks, len(ordered) - 1)]
    return "".join(f"\\u{start:04x}-\\u{end:04x}" for start, end in zip(starts, ends, strict=True))


def portions(text: str) -> list[str]:
    """The text cut at seams every few thousand characters."""
    found, start = [], 0
    while len(text) - start > _PORTION:
        seam = _SEAM.search(text, start + _PORTION)
        if seam is None:
            break
        found.append(text[start : seam.end()])
        start = seam.end()
    return [*found, text[start:]]


class Memory:
    """Ids of many portions at once, through the ids of their words. `compute` is the library, for a list of texts."""

    def __init__(self, compute: Callable[[list[str]], list[list[int]]]) -> None:
        self._compute = compute
        self._ids: dict[str, list[int]] = {}  # entries never change, so that threads may share it

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        cut, strange = rule()
        plain = [text.isascii() or strange.search(text) is None for text in texts]
        words = [cut.findall(text) if ours else [] for text, ours in zip(texts, plain, strict=True)]
        by_word = self._by_word(words)
        rest = iter(self._compute(list(compress(texts, [not ours for ours in plain]))))
        return [
            found if ours else np.array(next(rest), dtype=np.int64) for found, ours in zip(by_word, plain, strict=True)
        ]

    def _by_word(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        row_of = {word: row for row, word in enumerate(dict.fromkeys(chain.from_iterable(texts)))}
        rows = self._rows(list(row_of))
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=lengths.sum())
        first = np.cumsum(lengths) - lengths
        found = []
        for words in texts:
            row = np.fromiter(map(row_of.__getitem__, words), dtype=np.int64, count=len(words))
            length = lengths[row]
            before = np.cumsum(length) - length
            found.append(flat[np.repeat(first[row] - before, length) + np.arange(length.sum())])
        return found

    def _rows(self, words: list[str]) -> list[list[int]]:
        """The ids of each word, remembered or computed."""
        found = [self._ids.get(word) for word in words]
        missing = [word for word, ids in zip(words, found, strict=True) if ids is None]
        computed = dict(zip(missing, self._compute(missing), strict=True))
        if len(self._ids) > _MEMORY:
            self._ids.clear()
        self._ids.update(computed)
        return [computed[word] if ids is None else ids for word, ids in zip(words, found, strict=True)]


_GROUP = 1 << 20  # characters to work on at a time, so that a long text needs little memory besides itself

_METASPACE = "▁"


class Subwords:
    """A tokenizer over the library's own JSON (`content`), which also says what kind it is."""

    def __init__(self, content: Mapping[str, Any], special: Mapping[str, int], begin: int, end: int | None) -> None:
        self.library = {**content, "model": {k: v for k, v in content["model"].items() if k != "nextword"}}
        self.kind = kind_of(content)
        self.lossless = self.kind == "bpe" and _keeps_everything(content)
        self.special: Mapping[str, int] = dict(special)
        self.begin, self.end = begin, end
        self.pieces = _pieces(content, self.kind, self.special)
        self._lengths = np.array([len(piece) for piece in self.pieces], dtype=np.int64)
        self._encoder = Library.from_str(json.dumps(_without_special(self.library, self.special)))
        by_rule = content["pre_tokenizer"] == {"type": "ByteLevel", **_GPT2_RULE} and self.lossless
        self._memory = Memory(self._compute) if by_rule and not self._added(content) else None

    def _added(self, content: Mapping[str, Any]) -> bool:
        """Whether the library looks for tokens in the text before any rule cuts it."""
        return any(token["content"] not in self.special for token in content.get("added_tokens") or [])

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        raws = [utf8(text) for text in texts]
        if not self.lossless:
            found = self._encoder.encode_batch(list(texts), add_special_tokens=False)
            return [_with_offsets(raw, encoding) for raw, encoding in zip(raws, found, strict=True)]
        return [self._by_lengths(raw, ids) for raw, ids in zip(raws, self._ids(texts), strict=True)]

    def _ids(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        cut = [portions(text) if self._memory else [text] for text in texts]
        found = chain.from_iterable(map(self._memory.ids if self._memory else self._plain, _groups(chain(*cut))))
        for own in cut:
            parts = [next(found) for _ in own]
            yield parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _plain(self, texts: list[str]) -> list[np.ndarray]:
        return [np.array(ids, dtype=np.int64) for ids in self._compute(texts)]

    def _compute(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._encoder.encode_batch_fast(texts, add_special_tokens=False)]

    def _by_lengths(self, raw: bytes, ids: np.ndarray) -> Encoding:
        spans = partition(self._lengths[ids])
        return Encoding(ids, spans, words_at(raw, spans[:, 0]))

    def decode(self, ids: Iterable[int]) -> str:
        if self.lossless:
            return b"".join([self.pieces[id] for id in ids]).decode(errors="replace")
        return join(self, ids)

    def piece(self, id: int) -> bytes:
        return self.pieces[id]

    def content(self) -> dict[str, Any]:
        header = {"version": storage.VERSION, "kind": self.kind, "lossless": self.lossless}
        header |= {"special": self.special, "begin": self.begin, "end": self.end}
        return {**self.library, "model": {**self.library["model"], "nextword": header}}

    def save(self, path: Path) -> None:
        storage.write(path, self.content())


def _with_offsets(raw: bytes, encoding: Any) -> Encoding:
    """From the library's character offsets; several ids may share a character that normalisation took apart."""
    spans = in_order(character_bytes(raw)[np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)])
    return Encoding(np.array(encoding.ids, dtype=np.int64), spans, words_at(raw, spans[:, 0]))


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    group, size = [], 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


# ------------------------------------------------------------------------------------- reading the library's JSON


def names_of(content: Mapping[str, Any]) -> dict[str, int]:
    """Every name with its id: the model's vocabulary and the tokens added to it."""
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        names = dict(vocabulary)
    else:
        names = {entry[0]: id for id, entry in enumerate(vocabulary)}
    return names | {added["content"]: added["id"] for added in content.get("added_tokens") or []}


def unknown_of(content: Mapping[str, Any]) -> str | None:
    model = content["model"]
    if model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def sentinel_names(count: int) -> list[str]:
    return [f"<extra_id_{i}>" for i in range(count)]


def with_sentinels(content: Mapping[str, Any], count: int) -> dict[str, Any]:
    """T5's blanks behind the vocabulary, the first one last (`<extra_id_0>` is 32099 of 32100)."""
    first = max(names_of(content).values()) + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    blanks = [
        {"id": first + i, "content": name, **flags, "special": True}
        for i, name in enumerate(reversed(sentinel_names(count)))
    ]
    return {**content, "added_tokens": [*(content.get("added_tokens") or []), *blanks]}


def kind_of(content: Mapping[str, Any]) -> str:
    model = content["model"]
    if model["type"] in ("WordPiece", "Unigram"):
        return str(model["type"]).lower()
    if model["type"] == "BPE" and any(step["type"] == "ByteLevel" for step in _steps(content["pre_tokenizer"])):
        return "bpe"
    if model["type"] == "BPE" and model.get("end_of_word_suffix"):
        return "classic-bpe"
    raise NextwordError(
        f"The tokenizer is a {model['type']} model of a sort nextword does not know. It reads byte-level BPE (GPT-2), "
        "BPE with an end-of-word mark (GPT-1), WordPiece (BERT) and Unigram (T5)."
    )


_GPT2_RULE = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _steps(stage: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if stage is None:
        return []
    if stage["type"] != "Sequence":
        return [stage]
    return [step for key in ("pretokenizers", "normalizers") for step in stage.get(key, ())]


def _keeps_everything(content: Mapping[str, Any]) -> bool:
    """Whether no stage drops, adds or rewrites a byte."""
    names = names_of(content)
    return (
        not _steps(content["normalizer"])
        and all(symbol in names for symbol in byte_symbols())
        and not any(step.get("add_prefix_space") for step in _steps(content["pre_tokenizer"]))
        and not any(step.get("behavior") == "Removed" for step in _steps(content["pre_tokenizer"]))
        and not any(t["lstrip"] or t["rstrip"] for t in content.get("added_tokens") or [] if not t["special"])
    )


def byte_symbols() -> dict[str, int]:
    """GPT-2's printable stand-in for every byte: itself where it is printable, else the next free one from U+0100."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _pieces(content: Mapping[str, Any], kind: str, special: Mapping[str, int]) -> list[bytes]:
    """What each id writes inside a text. Special tokens write nothing, but the unknown one writes its name."""
    names = names_of(content)
    pieces = [b""] * (max(names.values()) + 1)
    added = {token["content"] for token in content.get("added_tokens") or []}
    symbols = byte_symbols()
    suffix = content["model"].get("end_of_word_suffix") or ""
    prefix = content["model"].get("continuing_subword_prefix") or ""
    for name, id in names.items():
        if name in special:
            continue
        if name in added:
            pieces[id] = utf8(name)
        elif kind == "bpe":
            pieces[id] = bytes([symbols[symbol] for symbol in name]) if symbols.keys() >= set(name) else utf8(name)
        elif kind == "classic-bpe":
            pieces[id] = utf8(name.removesuffix(suffix)) + (b" " if name.endswith(suffix) else b"")
        elif kind == "wordpiece":
            pieces[id] = utf8(name.removeprefix(prefix)) if name.startswith(prefix) else b" " + utf8(name)
        else:
            pieces[id] = _spelled_byte(name) or utf8(name.replace(_METASPACE, " "))
    unknown = unknown_of(content)
    if unknown is not None and kind != "bpe":
        pieces[names[unknown]] = utf8(unknown) if kind == "unigram" else utf8(f" {unknown} ")
    return pieces


def _spelled_byte(name: str) -> bytes | None:
    """SentencePiece writes a byte of an unknown character as <0x0A>."""
    found = re.fullmatch(r"<0x([0-9A-F]{2})>", name)
    return bytes.fromhex(found[1]) if found else None


def _without_special(content: Mapping[str, Any], special: Mapping[str, int]) -> dict[str, Any]:
    """The library's JSON with special names that no text can spell, so that their ids only come from the program."""
    model = dict(content["model"])

    def rename(name: str) -> str:
        return f"{name} \0" if name in special else name

    if isinstance(model["vocab"], dict):
        model["vocab"] = {rename(name): id for name, id in model["vocab"].items()}
    else:
        model["vocab"] = [[rename(name), score] for name, score in model["vocab"]]
    if model.get("unk_token") is not None:
        model["unk_token"] = rename(model["unk_token"])
    if "dropout" in model:
        model["dropout"] = None  # a regulariser of someone's training: the same text must give the same ids
    added = [token for token in content.get("added_tokens") or [] if token["content"] not in special]
    return {**content, "model": model, "added_tokens": added, "post_processor": None}
