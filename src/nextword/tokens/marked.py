"""Merges over marked characters (`e</w>`, `##e`), learnt the same way every time.

The library numbers marked characters in the order of a randomly seeded hash table, and pairs that are equally common
are merged in the order of those numbers: two runs give two vocabularies. So words are counted here, and the marked
characters are given to the trainer beforehand, sorted, as if they were special tokens.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import pre_tokenizers

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
