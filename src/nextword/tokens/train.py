"""Learning a tokenizer from text, as a recipe's `[tokenizer]` table asks for it. Same texts, same tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Tokenizer
from nextword.tokens.letters import END, Bytes, train_characters
from nextword.tokens.lexicon import CHOICES, train_lexicon
from nextword.tokens.loading import load_tokenizer
from nextword.tokens.marked import count_words, train_marked
from nextword.tokens.spans import utf8
from nextword.tokens.subwords import Subwords, names_of, sentinel_names, with_sentinels
from nextword.tokens.unigram import train_unigram
from nextword.tokens.words import train_words

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
