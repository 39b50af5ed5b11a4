"""Split text into sentences, words and passages, by fast rules.

A word is a run of non-space characters. A sentence ends at . ! ? … (and closing quotes or brackets) before a space and
something that can begin a sentence; at 。！？; and at a blank line. The space after a sentence belongs to it, so
sentences partition the text. The rules are good enough for next-sentence prediction and sentence order. Passages are
pieces of a long text whose concatenation is exactly the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

_CLOSING = "\"'”’»›)\\]"
# One set of characters, which `re` finds fast, then what must follow each of them.
_STOP = re.compile(
    rf"[\n.!?…。！？](?:"
    rf"(?<=\n)[^\S\n]*\n\s*"  # a blank line
    rf"|(?<=[。！？])[。！？」』”’）]*\s*"
    rf"|(?<=[.!?…])[.!?…]*[{_CLOSING}]*\s+(?=(\S))"
    rf")"
)

# A period after these never ends a sentence.
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        "mr mrs ms messrs mme dr prof st mt ft gen col maj sgt capt cpt lt cmdr adm rev hon sen rep gov pres supt "
        "vs v no nos art fig figs eq eqs sec secs ch vol vols p pp ed eds trans cf viz al approx ca e.g i.e a.k.a "
        "jan feb mar apr jun jul aug sep sept oct nov dec",
    )
)
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # J   J.R.R   U.S   p.m


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of the sentences in characters. They partition the text."""
    starts = sentence_starts(text)
    return list(zip(starts, [*starts[1:], len(text)], strict=False))


def sentence_starts(text: str) -> list[int]:
    """Return where each sentence begins; the first at 0. Empty for an empty text."""
    starts = [0] if text else []
    for stop in _STOP.finditer(text):
        end = stop.end()
        if end < len(text) and (stop.group(1) is None or _ends_sentence(text, starts[-1], stop)):
            starts.append(end)
    return starts


def _ends_sentence(text: str, start: int, stop: re.Match[str]) -> bool:
    """Whether this stop, followed by space and more text, ends the sentence begun at `start`."""
    following = stop.group(1)
    if following.islower() or following in ",;:-–—":  # "Go!" he said.   etc., and
        return False
    period = stop.start()
    if text[period] != "." or text[period + 1] in ".!?…\"'”’»›)]":
        return True
    word = text[max(start, period - 12) : period].rpartition(" ")[2].rpartition("\n")[2].lstrip("([\"'“‘«")
    if word.lower() in _ABBREVIATIONS:
        return False
    if _INITIALS.fullmatch(word) and ("." in word or (word.isupper() and word != "I")):
        return False
    return not (word.isdecimal() and text[start:period].strip() == word)  # "3. Results" is a numbered heading


_SPACE = np.array([chr(code).isspace() for code in range(0x3001)] + [False])  # there are no spaces beyond U+3000


def word_starts(text: str, seams: np.ndarray | None = None) -> np.ndarray:
    """Return the character offsets at which words begin. No word continues across `seams`, where texts were joined."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    space = _SPACE[np.minimum(codes, len(_SPACE) - 1)]
    is_start = np.concatenate(([True], space[:-1]))
    if seams is not None:
        is_start[seams[seams < len(is_start)]] = True
    return np.flatnonzero(is_start & ~space)


# Scripts written without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han
UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF))
_UNSPACED = re.compile(f"[{''.join(f'{chr(low)}-{chr(high)}' for low, high in UNSPACED)}]")


def is_unspaced(text: str) -> bool:
    """Whether most letters of a text belong to a script that is written without spaces between words."""
    return 2 * len(_UNSPACED.findall(text)) > sum(map(str.isalpha, text))


def opening_words(text: str, count: int = 4) -> str:
    """Return the first words of a text; its first characters in a script without spaces."""
    if not is_unspaced(text[:200]):
        return " ".join(text.split()[:count])
    return " ".join(text[: 2 * count].split())


PASSAGE_SIZE = 32 << 10  # characters: long enough for few seams, short enough for even batches

# From the best place to cut to the worst, which is after the match.
_CUTS = tuple(re.compile(p) for p in (r"\n[^\S\n]*\n\s*", r"\n\s*", r"[.!?。！？]['\"”’)\]]*\s+|[。！？]", r"\s+"))


def find_cut(text: str, size: int = PASSAGE_SIZE) -> int:
    """Return where to end a passage of about `size` characters: after a blank line, a line, a sentence or a word."""
    if len(text) <= size + size // 2:
        return len(text)
    low, high = size // 2, size + size // 2
    for pattern in _CUTS:
        ends = [m.end() for m in pattern.finditer(text, low, high) if m.end() < high]
        if ends:
            return min(ends, key=lambda end: abs(end - size))
    return size


def split_passages(chunks: Iterable[str], size: int = PASSAGE_SIZE) -> Iterator[str]:
    """Cut chunked text into passages of about `size` characters. Where it is cut does not depend on the chunks."""
    rest, enough = "", 2 * size  # look this far ahead before cutting
    for chunk in chunks:
        rest += chunk
        start = 0
        while len(rest) - start > enough:
            end = start + find_cut(rest[start : start + enough], size)
            yield rest[start:end]
            start = end
        rest = rest[start:]
    while rest:
        end = find_cut(rest[:enough], size)
        yield rest[:end]
        rest = rest[end:]


_WHITESPACE = re.compile(r"\s")


def join_words(words: Sequence[str]) -> str:
    """Join the words of a sentence with spaces, so that splitting the text at spaces returns the same words."""
    return " ".join(map(replace_spaces, words))


def replace_spaces(word: str) -> str:
    """Replace whitespace within a word by underscores: "10 000" becomes "10_000"."""
    return _WHITESPACE.sub("_", word)
