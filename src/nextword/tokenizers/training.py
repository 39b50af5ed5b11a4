"""Train a tokenizer, as a recipe's `[tokenizer]` table describes it. Same texts, same tokenizer.

The trainers of the `tokenizers` library are not deterministic for three of the four subword kinds, so parts of them are
replaced here:

- `classic-bpe` and `wordpiece`: the library numbers marked characters (`e</w>`, `##e`) in the order of a randomly
  seeded hash table, and merges equally frequent pairs in the order of those numbers. So words are counted here, and the
  marked characters are given to the trainer in sorted order, as if they were special tokens.
- `unigram`: the library sums floats in the order of a hash table. So the algorithm (Kudo 2018, "Subword
  Regularization", section 3.2) is implemented here.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

from nextword.core.errors import DataError, InvalidSetting, invalid, unknown
from nextword.tokenizers.alignment import utf8
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.characters import END, Bytes, train_characters
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.ptb_words import OPTIONS as LEXICON_OPTIONS
from nextword.tokenizers.ptb_words import train_lexicon
from nextword.tokenizers.subwords import Subwords, sentinel_names, set_stages, with_sentinels
from nextword.tokenizers.words import train_words

# The options of each kind and their defaults. A size of None: as many as the text has.
_REQUIRED = object()
_OPTIONS: dict[str, dict[str, Any]] = {
    "bytes": {},
    "characters": {"size": None, "min_count": 1},
    "words": {"size": None, "min_count": 1, "lower": False, "lines": True},
    "lexicon": {"size": _REQUIRED, "min_count": 1, "lower": True, "most": 0} | dict.fromkeys(LEXICON_OPTIONS, False),
    "bpe": {"size": _REQUIRED, "min_count": 2, "marks": False},
    "classic-bpe": {"size": _REQUIRED, "min_count": 2, "lower": True},
    "wordpiece": {"size": _REQUIRED, "min_count": 2, "lower": True, "strip_accents": None},
    "unigram": {"size": _REQUIRED, "sentinels": 0, "marks": False},
}
_BOOLEANS = ("lower", "strip_accents", "marks", *LEXICON_OPTIONS)
# The special tokens that `marks = true` adds, in the order of the papers. WordPiece always has its own.
_BPE_MARKS = ["<s>", "<pad>", "</s>", "<mask>"]  # RoBERTa, without its <unk>: bytes spell everything
_UNIGRAM_MARKS = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]  # ALBERT


def train_tokenizer(spec: Mapping[str, Any], texts: Iterable[str], words: Sequence[str] = ()) -> Tokenizer:
    """Train or load the tokenizer of a recipe's `[tokenizer]` table.

        train_tokenizer({"kind": "bpe", "size": 8000}, texts)
        train_tokenizer({"kind": "bpe", "size": 8000, "marks": True}, texts)  # with <mask> and others: RoBERTa
        train_tokenizer({"load": "tokenizers/gpt2"}, ())

    The texts are read once and not kept, so they may be far larger than memory. `words` are the words that have
    pretrained vectors, for kind `lexicon`, which keeps the first `most` of them.
    """
    if "load" in spec:
        _check_keys(spec, {"load", "sentinels"}, "with load")
        return load_tokenizer(spec["load"], sentinels=spec.get("sentinels", 0))
    kind = spec.get("kind")
    if kind not in _OPTIONS:
        hint = f'Use one of {", ".join(_OPTIONS)}, or set load = "PATH" to use an existing tokenizer.'
        raise unknown("kind", kind, _OPTIONS, where="[tokenizer]", hint=hint)
    options = _options(spec, kind)
    if kind == "bytes":
        return Bytes()
    texts = _require_text(texts)
    if kind == "characters":
        return train_characters(texts, **options)
    if kind == "words":
        return train_words(texts, **options)
    if kind == "lexicon":
        return train_lexicon(texts, words=words[: options.pop("most") or None], **options)
    return _SUBWORDS[kind](texts, **options)


def _options(spec: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return all options of this kind: those of the spec, validated, and defaults."""
    known = _OPTIONS[kind]
    _check_keys(spec, {"kind", *known}, f"of kind {kind!r}")
    options = known | {key: value for key, value in spec.items() if key != "kind"}
    for key, value in options.items():
        if value is _REQUIRED:
            raise InvalidSetting(f"[tokenizer] of kind {kind!r} needs {key}, for example {key} = 8000.", key=key)
        expected = bool if key in _BOOLEANS else int
        if value is not None and (type(value) is not expected or value < 0):
            wanted = "true or false" if expected is bool else "a whole number, 0 or more"
            raise invalid(key, value, f"must be {wanted}.", "[tokenizer]")
    return options


def _check_keys(spec: Mapping[str, Any], known: set[str], which: str) -> None:
    for key in spec:
        if key not in known:
            raise unknown("key", key, sorted(known), where=f"[tokenizer] {which}")


def _require_text(texts: Iterable[str]) -> Iterator[str]:
    """Pass on the texts that are not empty; raise if there are none."""
    is_empty = True
    for text in texts:
        if text:
            utf8(text)  # raises for a lone surrogate, which would be an obscure error inside the library
            is_empty = False
            yield text
    if is_empty:
        raise DataError("Cannot train a tokenizer: all texts are empty. Check the data.")


# ------------------------------------------------------------------------------------------------ subword kinds


def _bpe(texts: Iterator[str], size: int, min_count: int, marks: bool) -> Subwords:
    special, begin, end = (_BPE_MARKS, "<s>", "</s>") if marks else ([END], END, END)
    _check_size(size, 256 + len(special), f"256 bytes and {', '.join(special)}")
    library = set_stages(Library(models.BPE()), "bpe")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = partial(trainers.BpeTrainer, vocab_size=size, min_frequency=min_count, show_progress=False)
    library.train_from_iterator(texts, trainer(special_tokens=special, initial_alphabet=alphabet))
    return Subwords.of(library, special, begin, end)


def _classic_bpe(texts: Iterator[str], size: int, min_count: int, lower: bool) -> Subwords:
    special = ["<unk>", END]
    _check_size(size, 20, "special tokens and an alphabet")
    library = Library(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    set_stages(library, "classic-bpe", lower, strip_accents=lower)
    trainer = partial(trainers.BpeTrainer, min_frequency=min_count, end_of_word_suffix="</w>")
    words = count_words(library, texts)
    content = train_marked(library, words, lambda word: [f"{word[-1]}</w>"], trainer, special, size)
    return Subwords.from_json(content, special, begin=END, end=END)


def _wordpiece(texts: Iterator[str], size: int, min_count: int, lower: bool, strip_accents: bool | None) -> Subwords:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    _check_size(size, 20, "special tokens and an alphabet")
    library = Library(models.WordPiece(unk_token="[UNK]"))
    set_stages(library, "wordpiece", lower, lower if strip_accents is None else strip_accents)
    trainer = partial(trainers.WordPieceTrainer, min_frequency=min_count, continuing_subword_prefix="##")
    words = count_words(library, texts)
    content = train_marked(library, words, lambda word: [f"##{c}" for c in word[1:]], trainer, special, size)
    return Subwords.from_json(content, special, begin="[CLS]", end="[SEP]")


def _unigram(texts: Iterator[str], size: int, sentinels: int, marks: bool) -> Subwords:
    special, begin, end = ["<pad>", "</s>", "<unk>"], "</s>", "</s>"
    if marks:
        special, begin, end = _UNIGRAM_MARKS, "[CLS]", "[SEP]"
    sentinel = sentinel_names(sentinels)
    _check_size(size, 20 + sentinels, "special tokens, sentinels and an alphabet")
    library = set_stages(Library(models.Unigram()), "unigram")
    library.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    pieces = train_unigram(count_words(library, texts), size - len(special) - sentinels)
    pieces = [entry for entry in pieces if entry[0] not in (*special, *sentinel)]  # the text may contain "</s>"
    library.model = models.Unigram([*((name, 0.0) for name in special), *pieces], special.index("<unk>"))
    library.add_special_tokens(special)
    content = with_sentinels(json.loads(library.to_str()), sentinels)
    return Subwords.from_json(content, special + sentinel, begin, end)


_SUBWORDS: dict[str, Callable[..., Subwords]] = {
    "bpe": _bpe,
    "classic-bpe": _classic_bpe,
    "wordpiece": _wordpiece,
    "unigram": _unigram,
}


def _check_size(size: int, least: int, content: str) -> None:
    if size < least:
        raise invalid("size", size, f"is too small: {content} need at least {least}.", "[tokenizer]")


# ------------------------------------------------------------------------------------------------ BPE and WordPiece

_MAX_RUNS = 1_000_000  # distinct runs to hold in memory: scripts without spaces never stop producing new ones
_LINES = 1 << 12


def count_words(library: Library, texts: Iterable[str]) -> Counter[str]:
    """Count words, as the library's normalizer and pre-tokenizer split them."""
    words: Counter[str] = Counter()
    runs: Counter[str] = Counter()  # of non-space characters, so that each distinct one is split only once

    def split_runs() -> None:
        for run, count in runs.items():
            for word, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(run)):
                words[word] += count
        runs.clear()

    for text in texts:
        runs.update(text.split())
        if len(runs) > _MAX_RUNS:
            split_runs()
    split_runs()
    return words


def train_marked(
    library: Library,
    words: Counter[str],
    marked: Callable[[str], Iterable[str]],
    trainer: Callable[..., Any],
    special: list[str],
    size: int,
) -> dict[str, Any]:
    """Train BPE or WordPiece and return the library's JSON. `marked` gives a word's marked characters ("e</w>").

    At most a quarter of the vocabulary are characters, each of which counts twice, with the mark and without. If there
    is nothing left to merge, as in Chinese, where characters are words, more characters fill the vocabulary.
    """
    alphabet = most_frequent_characters(words, (size - len(special)) // 4)
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


def most_frequent_characters(words: Counter[str], most: int) -> list[str]:
    """Return at most this many characters, but at least one; ties are ordered by code point."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return sorted(counts, key=lambda c: (-counts[c], c))[: max(1, most)]


def _fill(
    vocabulary: dict[str, int],
    words: Counter[str],
    known: set[str],
    marked: Callable[[str], Iterable[str]],
    size: int,
) -> None:
    """Add characters beyond the alphabet, in the forms that occur in words, most frequent first."""
    if len(vocabulary) >= size:
        return
    forms: Counter[str] = Counter()
    for word, count in words.items():
        ends = list(marked(word))
        for character, form in zip(word, [*word[: len(word) - len(ends)], *ends], strict=True):
            forms[form] += count * (character not in known)
    rest = sorted((form for form, count in forms.items() if count), key=lambda form: (-forms[form], form))
    for form in rest[: size - len(vocabulary)]:
        vocabulary[form] = len(vocabulary)


def _repeated(words: Counter[str]) -> Iterator[str]:
    """Yield every word as often as it was counted, one per line: the trainer does its own counting."""
    for word, count in words.items():
        for start in range(0, count, _LINES):
            yield "\n".join([word] * min(_LINES, count - start))


# ------------------------------------------------------------------------------------------------ unigram

# The likelihood of a word sums over its segmentations, p(word) = Σ Π p(piece) (eq. 6), and EM estimates p(piece).
# Training starts from too many pieces, and repeatedly drops the quarter whose loss lowers the likelihood least. Words
# of equal length are processed together as arrays: n words, L characters, M the length of the longest piece.

_MAX_PIECE = 16  # characters, as in SentencePiece
_MAX_WORDS = 200_000  # the most frequent words; the rest changes little and would take most of the time
_SEEDS = 10  # initial pieces per piece of the final vocabulary
_KEEP = 0.75  # fraction of pieces that survive each pruning
_ROUNDS = 2  # of EM between prunings


@dataclass
class _Lattice:
    """All segmentations of n words of length L."""

    counts: np.ndarray  # (n,)
    ids: np.ndarray  # (n, L, M) the piece of m + 1 characters that starts at each character; −1: none

    def forward(self, scores: np.ndarray, reduce: Callable[..., np.ndarray]) -> np.ndarray:
        """Return (n, L + 1): the log-sum or maximum over all segmentations to the left of each character."""
        n, length, longest = self.ids.shape
        paths = np.full((n, length + 1), -np.inf)
        paths[:, 0] = 0
        for end in range(1, length + 1):
            starts = end - 1 - np.arange(min(longest, end))
            paths[:, end] = reduce(paths[:, starts] + scores[self.ids[:, starts, end - 1 - starts]], axis=1)
        return paths

    def expected(self, scores: np.ndarray) -> np.ndarray:
        """Return the expected count of each piece over all segmentations (E step)."""
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
    """Return up to `size` pieces with their log-probabilities, most probable first. Characters are never dropped."""
    characters = set(most_frequent_characters(words, size // 2))  # others become <unk>
    frequent = sorted((word for word in words if characters.issuperset(word)), key=lambda word: (-words[word], word))
    frequent = frequent[:_MAX_WORDS]
    pieces = sorted(characters) + _seeds(frequent, words, characters, size)
    lattices = _lattices(frequent, pieces, [words[word] for word in frequent])
    scores = _log(_expected(lattices, _log(np.ones(len(pieces)))))
    while True:
        for _ in range(_ROUNDS):
            used = _expected(lattices, scores)
            scores = _log(used)
        if len(pieces) <= size:
            break
        keep = _most_useful(pieces, used, scores, len(characters), max(size, int(_KEEP * len(pieces))))
        pieces = [pieces[id] for id in keep]
        scores = _log(used[keep])
        renumber = np.full(len(used) + 1, -1, dtype=np.int32)  # the last entry is for id −1
        renumber[keep] = np.arange(len(keep))
        for lattice in lattices:
            lattice.ids = renumber[lattice.ids]
    ranked = sorted(zip(pieces, scores[:-1], strict=True), key=lambda entry: (-round(entry[1], 6), entry[0]))
    return [(piece, round(float(score), 6)) for piece, score in ranked]


def _seeds(frequent: Sequence[str], words: Counter[str], characters: set[str], size: int) -> list[str]:
    """Return the substrings that cover the most text (count · length)."""
    counts: Counter[str] = Counter()
    for word in frequent:
        for start in range(len(word)):
            for end in range(start + 2, min(start + _MAX_PIECE, len(word)) + 1):
                counts[word[start:end]] += words[word]
    repeated = [piece for piece, count in counts.items() if count > 1]
    repeated.sort(key=lambda piece: (-counts[piece] * len(piece), piece))
    return repeated[: max(0, _SEEDS * size - len(characters))]


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
                ends = range(start + 1, min(start + longest, length) + 1)
                ids[row, start, : len(ends)] = [id_of.get(text[start:end], -1) for end in ends]
        lattices.append(_Lattice(np.array([count for _, count in group], dtype=float), ids))
    return lattices


def _expected(lattices: Sequence[_Lattice], scores: np.ndarray) -> np.ndarray:
    used = np.zeros(len(scores))
    for lattice in lattices:
        used += lattice.expected(scores)
    return used[:-1]


def _log(used: np.ndarray) -> np.ndarray:
    """Return log-probabilities of counts (M step), and −∞ at the end, for id −1. No piece has probability 0."""
    used = np.maximum(used, 1e-3)
    return np.append(np.log(used / used.sum()), -np.inf)


def _most_useful(
    pieces: Sequence[str], used: np.ndarray, scores: np.ndarray, characters: int, count: int
) -> np.ndarray:
    """Return the ids to keep. Without a piece, the log-likelihood drops by its count × the drop in score."""
    loss = np.full(len(pieces), np.inf)  # the first ids are characters, which always stay
    longer = np.arange(characters, len(pieces))
    lengths = np.array([len(piece) for piece in pieces[characters:]])
    order = longer[np.argsort(lengths, kind="stable")]  # the order in which `_lattices` groups them
    others = _lattices([pieces[id] for id in order.tolist()], pieces, used[order].tolist())
    for lattice in others:
        lattice.ids[:, 0, -1] = -1  # the piece itself
    best = np.concatenate([lattice.forward(scores, np.maximum.reduce)[:, -1] for lattice in others])
    loss[order] = used[order] * (scores[order] - best)
    return np.sort(np.argsort(-loss, kind="stable")[:count])
