"""Learning a tokenizer from text, as a recipe's `[tokenizer]` table asks for it. Same texts, same tokenizer.

Merges over marked characters (`e</w>`, `##e`), learnt the same way every time.

The library numbers marked characters in the order of a randomly seeded hash table, and pairs that are equally common
are merged in the order of those numbers: two runs give two vocabularies. So words are counted here, and the marked
characters are given to the trainer beforehand, sorted, as if they were special tokens.

Learning a unigram vocabulary (Kudo 2018, "Subword Regularization", section 3.2), the same way every time.

    p(x) = Σ over segmentations Π p(piece)       eq. 6: EM finds p, given the pieces
    start from too many pieces; again and again drop the quarter that the likelihood would miss least

The library's own trainer sums in the order of a randomly seeded hash table, so its pieces differ from run to run. Words
of equal length are worked on together here, as arrays: n words, L characters, M the longest piece.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.tokenizers.base import utf8
from nextword.tokenizers.characters import END, Bytes, train_characters
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.ptb_words import CHOICES, train_lexicon
from nextword.tokenizers.subwords import Subwords, names_of, sentinel_names, with_sentinels
from nextword.tokenizers.words import train_words

_ENOUGH = 1_000_000  # distinct strings to hold before they are taken apart: scripts without spaces have no end of them
_LINES = 1 << 12


def count_words(library: Library, texts: Iterable[str]) -> Counter[str]:
    """How often the library's own normaliser and pre-tokeniser find each word."""
    words: Counter[str] = Counter()
    runs: Counter[str] = Counter()  # of non-space characters, so that each distinct one is taken apart once

    def take_apart() -> None:
        for run, count in runs.items():
            for word, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(run)):
                words[word] += count
        runs.clear()

    for text in texts:
        runs.update(text.split())
        if len(runs) > _ENOUGH:
            take_apart()
    take_apart()
    return words


def train_marked(
    library: Library,
    words: Counter[str],
    marked: Callable[[str], Iterable[str]],
    trainer: Callable[..., Any],
    special: list[str],
    size: int,
) -> dict[str, Any]:
    """The library's JSON after training; `marked` are a word's characters that carry a mark, as the mark makes them.

    A quarter of the vocabulary at most is characters, each of which counts twice, with the mark and without it. Where
    that leaves room because nothing is left to merge, as in Chinese, whose characters are words, more of them fill it.
    """
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    alphabet = sorted(characters, key=lambda c: (-characters[c], c))[: max(1, (size - len(special)) // 4)]
    known = set(alphabet)
    forms = sorted({form for word in words if known.issuperset(word) for form in marked(word)})
    pre_tokenizer, normalizer = library.pre_tokenizer, library.normalizer
    library.pre_tokenizer, library.normalizer = pre_tokenizers.Split("\n", "removed"), None
    library.train_from_iterator(
        _repeated(words),
        trainer(
            vocab_size=size,
            special_tokens=special + forms,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        ),
    )
    library.pre_tokenizer, library.normalizer = pre_tokenizer, normalizer
    content: dict[str, Any] = json.loads(library.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in special]
    _fill(content["model"]["vocab"], words, known, marked, size)
    return content


def _fill(
    vocabulary: dict[str, int],
    words: Counter[str],
    known: set[str],
    marked: Callable[[str], Iterable[str]],
    size: int,
) -> None:
    """Characters beyond the alphabet, in the forms in which words have them, commonest first."""
    if len(vocabulary) >= size:
        return
    forms: Counter[str] = Counter()
    for word, count in words.items():
        ends = list(marked(word))
        for character, form in zip(word, [*word[: len(word) - len(ends)], *ends], strict=True):
            forms[form] += count * (character not in known)
    left = sorted((form for form, count in forms.items() if count), key=lambda form: (-forms[form], form))
    for form in left[: size - len(vocabulary)]:
        vocabulary[form] = len(vocabulary)


def _repeated(words: Counter[str]) -> Iterator[str]:
    """Every word as often as it was counted, a line each: the trainer counts for itself."""
    for word, count in words.items():
        for start in range(0, count, _LINES):
            yield "\n".join([word] * min(_LINES, count - start))


_LONGEST = 16  # characters in a piece, as in SentencePiece
_VOTERS = 200_000  # the commonest words decide: the rare rest changes little and would cost most
_SEEDS = 10  # pieces to start from, for each one wanted
_KEPT = 0.75  # of the pieces, each time
_ROUNDS = 2  # of EM between prunings


@dataclass
class _Lattice:
    """All segmentations of n words of length L."""

    counts: np.ndarray  # (n,)
    ids: np.ndarray  # (n, L, M) the piece of m + 1 characters that starts at each character; -1: there is none

    def forward(self, scores: np.ndarray, reduce: Callable[..., np.ndarray]) -> np.ndarray:
        """(n, L + 1): over all ways to the left of each character, their sum or their best."""
        n, length, longest = self.ids.shape
        paths = np.full((n, length + 1), -np.inf)
        paths[:, 0] = 0
        for end in range(1, length + 1):
            starts = end - 1 - np.arange(min(longest, end))
            paths[:, end] = reduce(paths[:, starts] + scores[self.ids[:, starts, end - 1 - starts]], axis=1)
        return paths

    def expected(self, scores: np.ndarray) -> np.ndarray:
        """How often each piece is used, in expectation over the segmentations."""
        n, length, longest = self.ids.shape
        left = self.forward(scores, np.logaddexp.reduce)
        right = np.full((n, length + 1), -np.inf)
        right[:, length] = 0
        used = np.zeros(len(scores))
        for start in reversed(range(length)):
            m = min(longest, length - start)
            ids = self.ids[:, start, :m]
            ways = scores[ids] + right[:, start + 1 : start + m + 1]
            right[:, start] = np.logaddexp.reduce(ways, axis=1)
            posterior = np.exp(ways + (left[:, start] - left[:, length])[:, None]) * self.counts[:, None]
            used += np.bincount((ids % len(scores)).ravel(), posterior.ravel(), minlength=len(scores))
        return used


def train_unigram(words: Counter[str], size: int) -> list[tuple[str, float]]:
    """Up to `size` pieces with their log-probabilities, likeliest first; single characters are never dropped."""
    characters = _characters(words, size)
    voters = sorted((word for word in words if characters.issuperset(word)), key=lambda word: (-words[word], word))
    voters = voters[:_VOTERS]
    pieces = sorted(characters) + _seeds(voters, words, characters, size)
    lattices = _lattices(voters, pieces, [words[word] for word in voters])
    scores = _log(_expected(lattices, _log(np.ones(len(pieces)))))
    while True:
        for _ in range(_ROUNDS):
            used = _expected(lattices, scores)
            scores = _log(used)
        if len(pieces) <= size:
            break
        kept = _worth_most(pieces, used, scores, len(characters), max(size, int(_KEPT * len(pieces))))
        pieces = [pieces[id] for id in kept]
        scores = _log(used[kept])
        renumber = np.full(len(used) + 1, -1, dtype=np.int32)  # the last entry serves -1
        renumber[kept] = np.arange(len(kept))
        for lattice in lattices:
            lattice.ids = renumber[lattice.ids]
    ranked = sorted(zip(pieces, scores[:-1], strict=True), key=lambda entry: (-round(entry[1], 6), entry[0]))
    return [(piece, round(float(score), 6)) for piece, score in ranked]


def _characters(words: Counter[str], size: int) -> set[str]:
    """The commonest characters, at most half of the vocabulary; a word with another one is unknown in part."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return set(sorted(counts, key=lambda c: (-counts[c], c))[: max(1, size // 2)])


def _seeds(voters: Sequence[str], words: Counter[str], characters: set[str], size: int) -> list[str]:
    """The substrings that cover most text (count · length)."""
    counts: Counter[str] = Counter()
    for word in voters:
        for start in range(len(word)):
            for end in range(start + 2, min(start + _LONGEST, len(word)) + 1):
                counts[word[start:end]] += words[word]
    often = [piece for piece, count in counts.items() if count > 1]
    often.sort(key=lambda piece: (-counts[piece] * len(piece), piece))
    return often[: max(0, _SEEDS * size - len(characters))]


def _lattices(texts: Iterable[str], pieces: Sequence[str], counts: Sequence[float]) -> list[_Lattice]:
    id_of = {piece: id for id, piece in enumerate(pieces)}
    longest = max(map(len, pieces))
    by_length: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for text, count in zip(texts, counts, strict=True):
        by_length[len(text)].append((text, count))
    lattices = []
    for length, group in sorted(by_length.items()):
        ids = np.full((len(group), length, min(longest, length)), -1, dtype=np.int32)
        for row, (text, _) in enumerate(group):
            for start in range(length):
                found = [id_of.get(text[start:end], -1) for end in range(start + 1, min(start + longest, length) + 1)]
                ids[row, start, : len(found)] = found
        lattices.append(_Lattice(np.array([count for _, count in group], dtype=float), ids))
    return lattices


def _expected(lattices: Sequence[_Lattice], scores: np.ndarray) -> np.ndarray:
    used = np.zeros(len(scores))
    for lattice in lattices:
        used += lattice.expected(scores)
    return used[:-1]


def _log(used: np.ndarray) -> np.ndarray:
    """Log-probabilities from counts, and -∞ behind them for id -1. A character never quite dies out."""
    used = np.maximum(used, 1e-3)
    return np.append(np.log(used / used.sum()), -np.inf)


def _worth_most(pieces: Sequence[str], used: np.ndarray, scores: np.ndarray, characters: int, count: int) -> np.ndarray:
    """The ids to keep: what would be lost if a piece were written with the others is its use × the drop in score."""
    loss = np.full(len(pieces), np.inf)  # the first ids are the characters, which stay
    longer = np.arange(characters, len(pieces))
    lengths = np.array([len(piece) for piece in pieces[characters:]])
    order = longer[np.argsort(lengths, kind="stable")]  # as `_lattices` groups them
    others = _lattices([pieces[id] for id in order.tolist()], pieces, used[order].tolist())
    for lattice in others:
        lattice.ids[:, 0, -1] = -1  # the piece itself
    best = np.concatenate([lattice.forward(scores, np.maximum.reduce)[:, -1] for lattice in others])
    loss[order] = used[order] * (scores[order] - best)
    return np.sort(np.argsort(-loss, kind="stable")[:count])


# What each kind can be told, and what holds when it is not. None for a size: as many as the text has.
_REQUIRED = object()
_OPTIONS: dict[str, dict[str, Any]] = {
    "bytes": {},
    "characters": {"size": None, "min_count": 1},
    "words": {"size": None, "min_count": 1, "lower": False, "lines": True},
    "lexicon": {"size": _REQUIRED, "min_count": 1, "lower": True, "most": 0} | dict.fromkeys(CHOICES, False),
    "bpe": {"size": _REQUIRED, "min_count": 2, "marks": False},
    "classic-bpe": {"size": _REQUIRED, "min_count": 2, "lower": True},
    "wordpiece": {"size": _REQUIRED, "min_count": 2, "lower": True, "strip_accents": None},
    "unigram": {"size": _REQUIRED, "sentinels": 0, "marks": False},
}
# Special tokens of the kinds that have them for the asking (`marks = true`), under the names and in the order of the
# papers that read texts from both sides. WordPiece always has its own.
_BPE_MARKS = ["<s>", "<pad>", "</s>", "<mask>"]  # RoBERTa; its <unk> is left out, for bytes spell everything
_UNIGRAM_MARKS = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]  # ALBERT


def train_tokenizer(spec: Mapping[str, Any], texts: Iterable[str], words: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a recipe's `[tokenizer]` table, learnt from the texts in one pass, or loaded.

        train_tokenizer({"kind": "bpe", "size": 8000}, texts)
        train_tokenizer({"kind": "bpe", "size": 8000, "marks": True}, texts)  # with <mask> and the like: RoBERTa
        train_tokenizer({"load": "tokenizers/gpt2"}, ())

    The texts are read once and not kept, so they may be far larger than memory. `words` are known beforehand, for the
    kind that takes some: those that have vectors (lexicon), the first `most` of them.
    """
    if "load" in spec:
        _check_keys(spec, {"load", "sentinels"}, "that loads")
        return load_tokenizer(Path(spec["load"]), sentinels=spec.get("sentinels", 0))
    kind = spec.get("kind")
    if kind not in _OPTIONS:
        raise NextwordError(
            f"[tokenizer] kind is {kind!r}; expected one of {', '.join(_OPTIONS)}{_nearest(kind, _OPTIONS)}. "
            'To use a tokenizer there is already, give load = "PATH" instead.'
        )
    options = _options(spec, kind)
    if kind == "bytes":
        return Bytes()
    texts = _not_empty(texts)
    if kind == "characters":
        return train_characters(texts, **options)
    if kind == "words":
        return train_words(texts, **options)
    if kind == "lexicon":
        return train_lexicon(texts, words=words[: options.pop("most") or None], **options)
    return _SUBWORDS[kind](texts, **options)


def _options(spec: Mapping[str, Any], kind: str) -> dict[str, Any]:
    known = _OPTIONS[kind]
    _check_keys(spec, {"kind", *known}, f"of kind {kind!r}")
    options = known | {key: value for key, value in spec.items() if key != "kind"}
    for key, value in options.items():
        if value is _REQUIRED:
            raise NextwordError(f"[tokenizer] of kind {kind!r} has no {key}. Give one, for example {key} = 8000.")
        expected = bool if key in ("lower", "strip_accents", "marks", *CHOICES) else int
        if value is not None and (type(value) is not expected or value < 0):
            raise NextwordError(f"[tokenizer] {key} is {value!r}; expected {_EXPECTED[expected]}.")
    return options


_EXPECTED = {bool: "true or false", int: "a whole number, not negative"}


def _check_keys(spec: Mapping[str, Any], known: Iterable[str], which: str) -> None:
    for key in spec:
        if key not in known:
            raise NextwordError(
                f"[tokenizer] {which} has the unknown key {key!r}{_nearest(key, known)}. "
                f"It takes: {', '.join(sorted(known))}."
            )


def _nearest(word: Any, known: Iterable[str]) -> str:
    close = get_close_matches(str(word), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _not_empty(texts: Iterable[str]) -> Iterator[str]:
    empty = True
    for text in texts:
        if text:
            utf8(text)  # a lone surrogate is an error here, where it can be named, and not inside the library
            empty = False
            yield text
    if empty:
        raise NextwordError("There is no text to learn a tokenizer from: the texts are empty. Look at the data.")


# ------------------------------------------------------------------------------------------- the library's kinds


def _bpe(texts: Iterator[str], size: int, min_count: int, marks: bool) -> Subwords:
    special, begin, end = (_BPE_MARKS, "<s>", "</s>") if marks else ([END], END, END)
    _check_size(size, 256 + len(special), f"256 bytes and {', '.join(special)}")
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    return _named(json.loads(library.to_str()), special, begin, end)


def _classic_bpe(texts: Iterator[str], size: int, min_count: int, lower: bool) -> Subwords:
    special = ["<unk>", END]
    _check_size(size, 20, "special tokens and an alphabet")
    library = Library(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    library.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=lower)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = partial(trainers.BpeTrainer, min_frequency=min_count, end_of_word_suffix="</w>")
    words = count_words(library, texts)
    content = train_marked(library, words, lambda word: [f"{word[-1]}</w>"], trainer, special, size)
    return _named(content, special, begin=END, end=END)


def _wordpiece(texts: Iterator[str], size: int, min_count: int, lower: bool, strip_accents: bool | None) -> Subwords:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    _check_size(size, 20, "special tokens and an alphabet")
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(
        lowercase=lower, strip_accents=lower if strip_accents is None else strip_accents
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##")
    trainer = partial(trainers.WordPieceTrainer, min_frequency=min_count, continuing_subword_prefix="##")
    words = count_words(library, texts)
    content = train_marked(library, words, lambda word: [f"##{c}" for c in word[1:]], trainer, special, size)
    return _named(content, special, begin="[CLS]", end="[SEP]")


def _unigram(texts: Iterator[str], size: int, sentinels: int, marks: bool) -> Subwords:
    special, begin, end = ["<pad>", "</s>", "<unk>"], "</s>", "</s>"
    if marks:
        special, begin, end = _UNIGRAM_MARKS, "[CLS]", "[SEP]"
    blanks = sentinel_names(sentinels)
    _check_size(size, 20 + sentinels, "special tokens, sentinels and an alphabet")
    library = Library(models.Unigram())
    library.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    library.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    pieces = train_unigram(count_words(library, texts), size - len(special) - sentinels)
    pieces = [entry for entry in pieces if entry[0] not in (*special, *blanks)]  # the text may well hold "</s>"
    library.model = models.Unigram([*((name, 0.0) for name in special), *pieces], special.index("<unk>"))
    library.add_special_tokens(special)
    content = with_sentinels(json.loads(library.to_str()), sentinels)
    return _named(content, special + blanks, begin, end)


_SUBWORDS: dict[str, Callable[..., Subwords]] = {
    "bpe": _bpe,
    "classic-bpe": _classic_bpe,
    "wordpiece": _wordpiece,
    "unigram": _unigram,
}


def _named(content: dict[str, Any], special: list[str], begin: str, end: str) -> Subwords:
    names = names_of(content)
    return Subwords(content, {name: names[name] for name in special}, names[begin], names[end])


def _check_size(size: int, least: int, room: str) -> None:
    if size < least:
        raise NextwordError(f"[tokenizer] size is {size}, which has no room for {room}: give {least} or more.")
