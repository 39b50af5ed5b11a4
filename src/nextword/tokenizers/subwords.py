r"""Subword tokenizers, applied by the `tokenizers` library. This module adds byte spans and the bytes of each id.

    bpe           byte-level BPE (GPT-2): pieces are bytes, so nothing is lost
    classic-bpe   BPE on characters, a word's last piece marked </w> (Sennrich et al. 2016; GPT-1)
    wordpiece     a word's later pieces marked ## (BERT)
    unigram       a word's first piece marked ▁ (SentencePiece; T5)

The name of a special token in a text is plain text: nobody can end a document by writing "<|endoftext|>" in it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, compress
from typing import Any

import numpy as np
from tokenizers import Encoding as LibraryEncoding
from tokenizers import Tokenizer as Library
from tokenizers import decoders, normalizers, pre_tokenizers

from nextword.core.errors import DataError, NextwordError
from nextword.core.types import Encoding
from nextword.tokenizers.alignment import character_bytes, partition, remove_overlaps, utf8, words_at
from nextword.tokenizers.base import VERSION, Tokenizer

GROUP_SIZE = 1 << 20  # characters to encode at a time, so that a long text needs little extra memory
MAX_UNUSED_IDS = 1 << 20
_METASPACE = "▁"


class Subwords(Tokenizer):
    """A tokenizer defined by the library's own JSON (`content`), which also determines the kind."""

    def __init__(self, content: Mapping[str, Any], special: Mapping[str, int], begin: int, end: int | None) -> None:
        self.library = {**content, "model": {k: v for k, v in content["model"].items() if k != "nextword"}}
        self.kind = kind_of(content)
        self.lossless = self.kind == "bpe" and _is_lossless(content)
        self.special = dict(special)
        self.begin, self.end = begin, end
        _check_ids(content, [*self.special.values(), begin, *([] if end is None else [end])])
        check_stages(content)
        self.pieces = _pieces(content, self.kind, self.special)
        self._lengths = np.array([len(piece) for piece in self.pieces], dtype=np.int64)
        with explain_library_errors():
            self._encoder = Library.from_str(json.dumps(_without_special(self.library, self.special)))
            self._check_encoder()
        # Tokens added to the vocabulary are matched before any rule cuts the text, so they rule out the cache.
        has_added = any(token["content"] not in self.special for token in content.get("added_tokens") or [])
        by_gpt2_rule = content["pre_tokenizer"] == {"type": "ByteLevel", **_GPT2_RULE} and self.lossless
        self._cache = WordCache(self._compute) if by_gpt2_rule and not has_added else None

    def _check_encoder(self) -> None:
        """Raise DataError unless the library gives only ids that have a piece: it numbers some tokens by itself."""
        unknown = self._encoder.encode("\U0010fffe a", add_special_tokens=False).ids
        names = [token["content"] for token in self.library.get("added_tokens") or []]
        added = [(name, self._encoder.token_to_id(name)) for name in names if name not in self.special]
        ids = names_of(self.library)
        if any(id >= len(self.pieces) for id in unknown) or any(ids[name] != id for name, id in added):
            raise DataError("The added tokens of this tokenizer do not follow its vocabulary. Copy its file again.")

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        raws = [utf8(text) for text in texts]
        if self.lossless:
            return [self._from_ids(raw, ids) for raw, ids in zip(raws, self._ids(texts), strict=True)]
        with explain_library_errors():
            encodings = self._encoder.encode_batch(list(texts), add_special_tokens=False)
        return [_from_offsets(raw, encoding) for raw, encoding in zip(raws, encodings, strict=True)]

    def _ids(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the ids of each text, computed in groups of portions of all texts."""
        portions = [cut_portions(text) if self._cache else [text] for text in texts]
        compute = self._cache.ids if self._cache else self._compute_arrays
        results = chain.from_iterable(map(compute, _groups(chain(*portions))))
        for own in portions:
            parts = [next(results) for _ in own]
            yield parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _compute_arrays(self, texts: list[str]) -> list[np.ndarray]:
        return [np.array(ids, dtype=np.int64) for ids in self._compute(texts)]

    def _compute(self, texts: list[str]) -> list[list[int]]:
        with explain_library_errors():
            return [encoding.ids for encoding in self._encoder.encode_batch_fast(texts, add_special_tokens=False)]

    def _from_ids(self, raw: bytes, ids: np.ndarray) -> Encoding:
        spans = partition(self._lengths[ids])
        return Encoding(ids, spans, words_at(raw, spans[:, 0]))

    @classmethod
    def of(cls, library: Library, special: Sequence[str], begin: str, end: str) -> Subwords:
        """Build a tokenizer from the library's, with special tokens by name."""
        return cls.from_json(json.loads(library.to_str()), special, begin, end)

    @classmethod
    def from_json(cls, content: Mapping[str, Any], special: Sequence[str], begin: str, end: str) -> Subwords:
        names = names_of(content)
        return cls(content, {name: names[name] for name in special}, names[begin], names[end])

    def content(self) -> dict[str, Any]:
        header = {"version": VERSION, "kind": self.kind, "lossless": self.lossless}
        header |= {"special": self.special, "begin": self.begin, "end": self.end}
        return {**self.library, "model": {**self.library["model"], "nextword": header}}


def _from_offsets(raw: bytes, encoding: LibraryEncoding) -> Encoding:
    """Use the library's character offsets. Several ids may share a character that normalization decomposed."""
    spans = remove_overlaps(character_bytes(raw)[np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)])
    return Encoding(np.array(encoding.ids, dtype=np.int64), spans, words_at(raw, spans[:, 0]))


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    group, size = [], 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= GROUP_SIZE:
            yield group
            group, size = [], 0
    if group:
        yield group


# ------------------------------------------------------------------------------------------------ caching words' ids

# GPT-2 first cuts a text into words:
#
#     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#
# The library applies this rule and the merges to every word of the text. But a text has few distinct words, so cutting
# with Python's `re` and caching the ids of each word is about ten times faster. `re` has no \p{L}, so the character
# classes are spelled out from `unicodedata`, for the characters whose class has not changed since Unicode 3.2, and
# which therefore have the same class in the library. A portion of text with any other character goes to the library
# whole.

# The rule always cuts between a letter and " letter", so cutting there first changes no id.
_SEAM = re.compile(r"[A-Za-z](?= [A-Za-z])")
PORTION = 1 << 12  # characters
CACHE_SIZE = 1 << 18  # words
# Unicode's White_Space, which is what \s means to the library; Python's \s has four more.
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


@cache
def gpt2_rule() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the rule, and a pattern for the characters that it must not be applied to."""
    letters: list[int] = []
    numbers: list[int] = []
    others: list[int] = []
    for point in range(0x10000):
        now, then = (_class(source.category(chr(point))) for source in (unicodedata, unicodedata.ucd_3_2_0))
        if now == then != "C":
            {"L": letters, "N": numbers}.get(now, others).append(point)
    covered = _ranges([*letters, *numbers, *others, *range(0xA0)])
    letter, number = _ranges(letters), _ranges(numbers)
    pattern = (
        rf"'(?:[stmd]|re|ve|ll)| ?[{letter}]+| ?[{number}]+| ?[^{_SPACE}{letter}{number}]+"
        rf"|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
    )
    return re.compile(pattern), re.compile(f"[^{covered}]")


def _class(category: str) -> str:
    """L letter, N number, Z separator, C control or unassigned; S for all the rest, which the rule treats alike."""
    return category[0] if category[0] in "LNZC" else "S"


def _ranges(points: Sequence[int]) -> str:
    """Write code points as the inside of a character class."""
    ordered = np.unique(points)
    breaks = np.flatnonzero(np.diff(ordered) > 1)
    starts, ends = ordered[np.append(0, breaks + 1)], ordered[np.append(breaks, len(ordered) - 1)]
    return "".join(f"\\u{start:04x}-\\u{end:04x}" for start, end in zip(starts, ends, strict=True))


def cut_portions(text: str) -> list[str]:
    """Cut a text at seams every few thousand characters."""
    portions, start = [], 0
    while len(text) - start > PORTION:
        seam = _SEAM.search(text, start + PORTION)
        if seam is None:
            break
        portions.append(text[start : seam.end()])
        start = seam.end()
    return [*portions, text[start:]]


class WordCache:
    """Ids of many portions at once, by way of the ids of their words. `compute` calls the library."""

    def __init__(self, compute: Callable[[list[str]], list[list[int]]]) -> None:
        self._compute = compute
        self._ids: dict[str, list[int]] = {}  # entries never change, so threads may share it

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        rule, uncovered = gpt2_rule()
        is_covered = [text.isascii() or uncovered.search(text) is None for text in texts]
        words = [rule.findall(text) if ours else [] for text, ours in zip(texts, is_covered, strict=True)]
        by_word = self._by_word(words)
        rest = iter(self._compute(list(compress(texts, [not ours for ours in is_covered]))))
        return [
            ids if ours else np.array(next(rest), dtype=np.int64) for ids, ours in zip(by_word, is_covered, strict=True)
        ]

    def _by_word(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        row_of = {word: row for row, word in enumerate(dict.fromkeys(chain.from_iterable(texts)))}
        rows = self._rows(list(row_of))
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=lengths.sum())
        first = np.cumsum(lengths) - lengths
        ids = []
        for words in texts:
            row = np.fromiter(map(row_of.__getitem__, words), dtype=np.int64, count=len(words))
            length = lengths[row]
            before = np.cumsum(length) - length
            ids.append(flat[np.repeat(first[row] - before, length) + np.arange(length.sum())])
        return ids

    def _rows(self, words: list[str]) -> list[list[int]]:
        """Return the ids of each word, cached or computed."""
        cached = [self._ids.get(word) for word in words]
        missing = [word for word, ids in zip(words, cached, strict=True) if ids is None]
        computed = dict(zip(missing, self._compute(missing), strict=True))
        if len(self._ids) > CACHE_SIZE:
            self._ids.clear()
        self._ids.update(computed)
        return [computed[word] if ids is None else ids for word, ids in zip(words, cached, strict=True)]


# ------------------------------------------------------------------------------------------------ the library


def set_stages(library: Library, kind: str, lower: bool = False, strip_accents: bool | None = None) -> Library:
    """Set the pre-tokenizer and the decoder of this kind, and the normalizer of BERT, which GPT-1's kind shares."""
    if kind == "bpe":
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
    elif kind == "unigram":
        metaspace = pre_tokenizers.Metaspace(replacement=_METASPACE, prepend_scheme="always")
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
        library.decoder = decoders.Metaspace(replacement=_METASPACE, prepend_scheme="always")
    else:
        library.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=strip_accents)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        is_wordpiece = kind == "wordpiece"
        library.decoder = decoders.WordPiece(prefix="##") if is_wordpiece else decoders.BPEDecoder(suffix="</w>")
    return library


# ------------------------------------------------------------------------------------------------ the library's JSON


def names_of(content: Mapping[str, Any]) -> dict[str, int]:
    """Return name → id: the model's vocabulary and the tokens added to it."""
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        names = dict(vocabulary)
    else:
        names = {entry[0]: id for id, entry in enumerate(vocabulary)}
    return names | {added["content"]: added["id"] for added in content.get("added_tokens") or []}


SAFE_PATTERNS = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",)  # of GPT-2
MAX_PATTERN, MAX_GROWTH = 64, 16


def check_stages(content: Mapping[str, Any]) -> None:
    """Raise DataError for normalizers and pre-tokenizers that could take forever, or fill the memory.

    Searching for a regular expression can take time exponential in the length of the text, so besides GPT-2's only
    those with one repetition and without groups are accepted: " {2,}" of ALBERT and T5. Replacements must not make a
    text more than MAX_GROWTH times as long.
    """
    growth = 1.0
    nodes: list[Any] = [content.get("normalizer"), content.get("pre_tokenizer"), content.get("decoder")]
    while nodes:
        node = nodes.pop()
        nodes += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        if not isinstance(node, dict):
            continue
        pattern = node.get("Regex")
        if isinstance(pattern, str) and pattern not in SAFE_PATTERNS and not _is_simple(pattern):
            problem = f"This tokenizer searches for {pattern[:100]!r}, which may take forever, so it is not used."
            raise DataError(f"{problem} Use a tokenizer without this regular expression.")
        replacement, old = node.get("content", node.get("prepend")), node.get("pattern")
        if isinstance(replacement, str):
            shortest = len(old["String"]) if isinstance(old, dict) and isinstance(old.get("String"), str) else 1
            growth *= max(1.0, len(replacement) / max(1, shortest))
    if growth > MAX_GROWTH:
        raise DataError("This tokenizer makes texts much longer than they are, so it is not used. Copy its file again.")


def _is_simple(pattern: str) -> bool:
    return len(pattern) <= MAX_PATTERN and "(" not in pattern and len(re.findall(r"[*+?{]", pattern)) <= 1


@contextmanager
def explain_library_errors() -> Iterator[None]:
    """Turn errors of the library, which are of type Exception or panics of Rust, into a DataError."""
    try:
        yield
    except NextwordError:
        raise
    except BaseException as error:
        if type(error) is not Exception and type(error).__module__ != "pyo3_runtime":
            raise
        raise DataError(f"This tokenizer fails ({str(error)[:200]}). Copy its file again.") from None


def unknown_of(content: Mapping[str, Any]) -> str | None:
    """Return the name of the unknown token."""
    model = content["model"]
    if model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def sentinel_names(count: int) -> list[str]:
    return [f"<extra_id_{i}>" for i in range(count)]


def with_sentinels(content: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Append T5's sentinel tokens to the vocabulary, in reverse order (`<extra_id_0>` is 32099 of 32100)."""
    first = max(names_of(content).values()) + 1
    return with_added(content, {name: first + i for i, name in enumerate(reversed(sentinel_names(count)))})


def with_added(content: Mapping[str, Any], special: Mapping[str, int]) -> dict[str, Any]:
    """Append special tokens to the vocabulary."""
    added = [added_token(name, id) for name, id in special.items()]
    return {**content, "added_tokens": [*(content.get("added_tokens") or []), *added]}


def added_token(name: str, id: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": name, **flags, "special": True}


def kind_of(content: Mapping[str, Any]) -> str:
    model = content["model"]
    if model["type"] in ("WordPiece", "Unigram"):
        return str(model["type"]).lower()
    if model["type"] == "BPE" and any(step["type"] == "ByteLevel" for step in _steps(content["pre_tokenizer"])):
        return "bpe"
    if model["type"] == "BPE" and model.get("end_of_word_suffix"):
        return "classic-bpe"
    supported = "byte-level BPE (GPT-2), BPE with an end-of-word suffix (GPT-1), WordPiece (BERT) and Unigram (T5)"
    raise DataError(f"nextword cannot use this {model['type']} tokenizer. It supports {supported}.")


_GPT2_RULE = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _steps(stage: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if stage is None:
        return []
    if stage["type"] != "Sequence":
        return [stage]
    return [step for key in ("pretokenizers", "normalizers") for step in stage.get(key, ())]


def _is_lossless(content: Mapping[str, Any]) -> bool:
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
    """Return GPT-2's printable character for every byte: itself if printable, else the next free one from U+0100."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _check_ids(content: Mapping[str, Any], used: Sequence[int]) -> None:
    """Raise DataError unless ids are numbers with few gaps, and those of special tokens are among them."""
    ids = names_of(content).values()
    if not ids or any(type(id) is not int or id < 0 for id in ids):
        raise DataError("The ids of this tokenizer are not numbers from 0. Copy its file again.")
    if max(ids) >= len(ids) + MAX_UNUSED_IDS:
        raise DataError(f"This tokenizer has {len(ids):,} tokens, but the id {max(ids):,}. Copy its file again.")
    if any(type(id) is not int or not 0 <= id <= max(ids) for id in used):
        raise DataError("A special token of this tokenizer has an id that no token has. Copy its file again.")


def _pieces(content: Mapping[str, Any], kind: str, special: Mapping[str, int]) -> list[bytes]:
    """Return the bytes of each id inside a text: none for a special token, its name for the unknown token."""
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
            pieces[id] = _parse_byte(name) or utf8(name.replace(_METASPACE, " "))
    unknown = unknown_of(content)
    if unknown is not None and kind != "bpe":
        pieces[names[unknown]] = utf8(unknown) if kind == "unigram" else utf8(f" {unknown} ")
    return pieces


def _parse_byte(name: str) -> bytes | None:
    """Parse <0x0A>, SentencePiece's name for a byte of an unknown character."""
    match = re.fullmatch(r"<0x([0-9A-F]{2})>", name)
    return bytes.fromhex(match[1]) if match else None


def _without_special(content: Mapping[str, Any], special: Mapping[str, int]) -> dict[str, Any]:
    """Rename the special tokens so that no text matches them."""
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
        model["dropout"] = None  # BPE-dropout is for training; the same text must always give the same ids
    added = [token for token in content.get("added_tokens") or [] if token["content"] not in special]
    return {**content, "model": model, "added_tokens": added, "post_processor": None}
