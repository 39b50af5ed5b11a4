"""ARPA files, the common language of n-gram tools, in the conventions of KenLM and of SRILM.

    \\data\\
    ngram 1=37                               how many n-grams of each order
    ngram 2=47

    \\1-grams:
    -99         <s>        -0.4149733        log10 p, words, log10 of the back-off; <s> is never predicted
    -1.029493   </s>                         a missing back-off is 1

    \\2-grams:
    -0.4846522  <s> looking

    \\end\\

nextword has one boundary where the file has two words: first in an n-gram it is <s>, last it is </s>. Its unigram has
the probability of </s> and the back-off of <s>.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from nextword.contract_errors import NextwordError
from nextword.ngrams import arpa_text
from nextword.ngrams.arpa_text import BEGIN, BOUNDARY, END, NONE, WordTable
from nextword.ngrams.assembly import Section, assemble, section
from nextword.ngrams.compressed import Bytes, written
from nextword.ngrams.trie import NODE, Trie

UNKNOWN, EOS = "<unk>", "<eos>"
UNKNOWN_MISSING = -100.0  # log10 p of <unk> where the file has none, as in KenLM
CONVENTIONS = ("kenlm", "srilm")
Progress = Callable[[float, float | None], None]

_BLOCK = 1 << 22  # bytes read, or rows written, at a time
_LONGEST = 1 << 26  # no line of a text is longer
_ROOM = 1 << 20  # n-grams to make room for before they are seen: the header may lie
_COUNT = re.compile(rb"ngram\s+(\d+)\s*=\s*(\d+)")
_EDGES = b" \t\r\n"


def read_arpa(path: Path, progress: Progress | None = None) -> tuple[Trie, list[str]]:
    """The model, and its words by id: <unk> 0, the boundary 1 (as `<eos>`), then the others in the file's order."""
    reader = _Reader(Path(path), progress)
    try:
        return reader.read()
    finally:
        reader.file.close()


class _Reader:
    """The text in blocks; lines that are no n-grams one by one."""

    def __init__(self, path: Path, progress: Progress | None) -> None:
        self.file = Bytes(path)
        self.path, self.progress = path, progress
        self.buffer = bytearray(_BLOCK)
        self.at = self.end = 0  # what of the buffer is text not yet read
        self.line = 1
        self.ended = False

    def read(self) -> tuple[Trie, list[str]]:
        counts = self._header()
        sections: list[Section] = []
        names: list[str] = []
        table = WordTable([], np.zeros(0, np.uint32))
        for n, count in enumerate(counts, 1):
            if not self._opens(n, count):
                empty = np.zeros(0, np.float32)
                sections.append(section(np.zeros((0, n), NODE), empty, empty)[0])
                continue
            words, rows, log_probs, log_backoffs, lines = self._ngrams(n, count, table)
            if n == 1:
                unigrams, names, table = self._vocabulary(words, log_probs, log_backoffs, lines)
                sections.append(unigrams)
                continue
            made, twice = section(rows, log_probs, log_backoffs)
            if twice >= 0:
                edges = {(BOUNDARY, 0): "<s>", (BOUNDARY, n - 1): "</s>"}
                spelled = " ".join(edges.get((w, j), names[w]) for j, w in enumerate(rows[twice].tolist()))
                raise self._fault(f"the {n}-gram {spelled!r} for the second time", "each n-gram once", lines[twice])
            sections.append(made)
        found = self._next("\\end\\ after the last section")
        if found != b"\\end\\":
            raise self._fault(_shown(found), f"\\end\\, for \\data\\ names no order above {len(counts)}", self.line - 1)
        while self._fill(drop=True):  # so that a packed file is checked to its end
            pass
        return assemble(sections, BOUNDARY, {"arpa": self.path.name}), names

    def _header(self) -> list[int]:
        where = "a line \\data\\, with which the n-grams of an ARPA file begin"
        while (found := self._next(where)) not in (b"\\data\\", b"\xef\xbb\xbf\\data\\"):
            if found.startswith(b"mmap lm http://kheafield.com/code"):
                raise self._fault("a binary of KenLM", "the ARPA file that it was built from", self.line - 1)
        counts: list[int] = []
        while (found := self._next("the counts of n-grams, such as 'ngram 1=100'", peek=True)).startswith(b"ngram"):
            match = _COUNT.fullmatch(found)
            if not match or int(match[1]) != len(counts) + 1:
                raise self._fault(_shown(found), f"'ngram {len(counts) + 1}=' and a count", self.line)
            counts.append(int(match[2]))
            self._next("")
        if not counts or not counts[0]:
            raise self._fault(_shown(found), "'ngram 1=' and the number of words", self.line)
        return counts

    def _opens(self, n: int, count: int) -> bool:
        """Steps into the section of order n. It may be left out where it has no n-grams."""
        wanted = f"\\{n}-grams:"
        found = self._next(f"the section {wanted}", peek=True)
        if found == wanted.encode():
            self._next("")
            return True
        if count == 0 and found.startswith(b"\\"):
            return False
        raise self._fault(_shown(found), f"the section {wanted}", self.line)

    def _ngrams(
        self, n: int, count: int, table: WordTable
    ) -> tuple[list[bytes], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        room = min(count, _ROOM)
        rows = np.empty((room, max(n, 2)), NODE)
        log_probs, log_backoffs, lines = (
            np.empty(room, np.float32),
            np.empty(room, np.float32),
            np.empty(room, np.int64),
        )
        words: list[bytes] = []
        filled = 0
        while True:
            text = np.frombuffer(self.buffer, np.uint8)
            whole = self.end if self.ended else self.buffer.rfind(b"\n", self.at, self.end) + 1
            started = filled
            stopped, self.at, filled, self.line, begin, end = arpa_text.parse(
                text, self.at, max(whole, self.at), n, *table.arrays,
                rows, log_probs, log_backoffs, lines, filled, count, self.line,
            )  # fmt: skip
            if n == 1:
                words += [bytes(self.buffer[a:b]) for a, b in rows[started:filled].tolist()]
            if stopped == arpa_text.FULL:
                grown = min(count, 2 * len(rows))
                rows = np.concatenate([rows, np.empty((grown - len(rows), rows.shape[1]), NODE)])
                log_probs, log_backoffs, lines = (
                    np.concatenate([a, np.empty(grown - len(a), a.dtype)]) for a in (log_probs, log_backoffs, lines)
                )
            elif stopped == arpa_text.SECTION:
                break
            elif stopped != arpa_text.DRY:
                raise self._bad_line(stopped, n, count, begin, end)
            elif not self._fill():
                raise self._cut(f"{count - filled:,} more {n}-grams" if filled < count else "\\end\\")
        if filled != count:
            found = self._next("")
            raise self._fault(
                f"{_shown(found)} after {filled:,} {n}-grams", f"{count:,} of them, as \\data\\ says", self.line - 1
            )
        return words, rows[:filled], log_probs[:filled], log_backoffs[:filled], lines[:filled]

    def _bad_line(self, stopped: int, n: int, count: int, begin: int, end: int) -> NextwordError:
        newline = self.buffer.find(b"\n", self.at, self.end)
        if newline < 0 and self.ended:
            return self._cut(f"the rest of this {n}-gram")
        spelled = f"a line of a {n}-gram is log10 p, {n} word{'s' * (n > 1)} and perhaps a back-off"
        if stopped == arpa_text.COLUMNS:
            shown = _shown(self.buffer[self.at : newline])
            return self._fault(f"{begin} columns ({shown})", f"{n + 1} or {n + 2}: {spelled}")
        shown = _shown(self.buffer[begin:end])
        if stopped == arpa_text.SURPLUS:
            return self._fault(f"one more {n}-gram ({shown})", f"{count:,} of them, as \\data\\ says")
        return self._fault(
            shown,
            {
                arpa_text.BAD_PROB: f"a number: {spelled}",
                arpa_text.BAD_BACKOFF: f"a finite number as the back-off: {spelled}",
                arpa_text.POSITIVE: "a log10 probability, which is never positive",
                arpa_text.UNKNOWN_BYTES: "a word that is among the unigrams, which name the whole vocabulary",
                arpa_text.BEGIN_LATE: "<s> as the first word of an n-gram only",
                arpa_text.END_EARLY: "</s> as the last word of an n-gram only",
            }[stopped],
        )

    def _vocabulary(
        self, words: list[bytes], log_probs: np.ndarray, log_backoffs: np.ndarray, lines: np.ndarray
    ) -> tuple[Section, list[str], WordTable]:
        """Unigrams by id, the names of the words, and the table that finds them."""
        unknown = UNKNOWN.encode()
        if unknown not in words:
            unknown = unknown.upper()  # beside <unk>, <UNK> is a word like others
        special = {unknown: 0, b"<s>": BEGIN, b"</s>": END}
        names, ids = [UNKNOWN, EOS], np.empty(len(words), np.uint32)
        seen: set[bytes] = set()
        for i, word in enumerate(words):
            if word in seen:
                raise self._fault(f"the word {_shown(word)} for the second time", "each word once", lines[i])
            seen.add(word)
            if word in special:
                ids[i] = special[word]
                continue
            ids[i] = len(names)
            try:
                names.append(word.decode())
            except UnicodeDecodeError:
                raise self._fault(f"the word {word!r}, which is not UTF-8", "words in UTF-8", lines[i]) from None
        probs, backoffs = np.full(len(names), -np.inf, np.float32), np.zeros(len(names), np.float32)
        probs[0] = UNKNOWN_MISSING * math.log(10)
        plain = ids < END
        probs[ids[plain]], backoffs[ids[plain]] = log_probs[plain], log_backoffs[plain]
        probs[[BOUNDARY]] = log_probs[ids == END] if END in ids else -np.inf
        backoffs[[BOUNDARY]] = log_backoffs[ids == BEGIN] if BEGIN in ids else 0
        return Section(np.zeros((0, 1), NODE), probs, backoffs, np.zeros(0, NODE)), names, WordTable(words, ids)

    def _next(self, wanted: str, peek: bool = False) -> bytes:
        """The next line that is not blank, without its edges."""
        while True:
            newline = self.buffer.find(b"\n", self.at, self.end)
            if newline < 0 and not self.ended and self._fill():
                continue
            stop = self.end if newline < 0 else newline
            found = bytes(self.buffer[self.at : stop]).strip(_EDGES)
            if found and peek:
                return found
            if newline < 0 and not found:
                raise self._cut(wanted)
            self.at, self.line = min(stop + 1, self.end), self.line + 1
            if found:
                return found

    def _fill(self, drop: bool = False) -> bool:
        """Reads on, behind what has not been used; False at the end of the file."""
        if self.ended:
            return False
        if drop:
            self.at = self.end
        kept = self.end - self.at
        if kept > _LONGEST:
            raise self._fault(f"more than {_LONGEST:,} bytes without a line end", "lines of text")
        buffer = bytearray(max(_BLOCK, 2 * kept)) if 2 * kept > len(self.buffer) else self.buffer
        buffer[:kept] = self.buffer[self.at : self.end]
        self.buffer, self.at, self.end = buffer, 0, kept
        read = self.file.read_into(memoryview(buffer)[kept:])
        self.end += read
        self.ended = read == 0
        if self.progress:
            self.progress(self.file.place(), self.file.size)
        return True

    def _fault(self, found: str, expected: str, line: int | None = None) -> NextwordError:
        return NextwordError(
            f"{self.path}, line {self.line if line is None else line}: found {found}; expected {expected}. "
            "Mend the file, or write it anew with the tool that it came from."
        )

    def _cut(self, expected: str) -> NextwordError:
        return NextwordError(
            f"{self.path}, line {self.line}: found the end of the file; expected {expected}. "
            "The file is cut short: copy it again, or write it anew with the tool that it came from."
        )


def _shown(text: bytes | bytearray) -> str:
    line = text.decode("utf-8", "replace").strip()
    return repr(line if len(line) <= 80 else f"{line[:77]}...")


def write_arpa(
    trie: Trie, names: Sequence[str], path: Path, convention: str = "kenlm", progress: Progress | None = None
) -> None:
    """The model as ARPA, compressed as the suffix says. `names` are the words by id; the boundary's is not used."""
    if convention not in CONVENTIONS:
        raise NextwordError(f"The ARPA convention is {convention!r}; expected one of {', '.join(CONVENTIONS)}.")
    spelled = _spellings(trie, names)
    text = np.frombuffer(bytearray(b"".join(spelled)), np.uint8)
    starts = np.zeros(len(spelled) + 1, np.int64)
    np.cumsum([len(word) for word in spelled], out=starts[1:])
    bare = trie.boundary if convention == "srilm" else NONE
    never = -np.inf if convention == "srilm" else 0.0
    out = np.empty(_BLOCK + arpa_text.LINE + trie.order * (max(map(len, spelled)) + 1), np.uint8)
    counts = [len(level) + (k == 0) for k, level in enumerate(trie.levels)]
    done = 0
    with written(Path(path)) as file:
        file.write(b"\\data\\\n")
        for n, count in enumerate(counts, 1):
            file.write(b"ngram %d=%d\n" % (n, count))
        for k, count in enumerate(counts):
            file.write(b"\n\\%d-grams:\n" % (k + 1))
            for begin in range(0, count, _BLOCK // 16):
                rows, log_probs, log_backoffs = _rows(trie, k, begin, min(begin + _BLOCK // 16, count), never)
                if not ((log_probs < 1e-6).all() and (log_backoffs < 1e9).all()):  # "not", for NaN is in no order
                    raise NextwordError(
                        f"The model has {k + 1}-grams whose log probability is positive, or not a number, or whose "
                        f"back-off is not finite: ARPA cannot hold them, and {path} was not written. Estimate it again."
                    )
                log_probs, row = np.minimum(log_probs, 0), 0  # what rounding left above 0, KenLM refuses
                while row < len(rows):
                    row, size = arpa_text.format_lines(rows, log_probs, log_backoffs, bare, text, starts, out, row)
                    file.write(out[:size].data)
                done += len(rows)
                if progress:
                    progress(done, sum(counts))
        file.write(b"\n\\end\\\n")


def _rows(trie: Trie, k: int, begin: int, end: int, never: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The lines begin … end of a section. As a word, `trie.size` is <s>, and the boundary is </s>."""
    level, boundary = trie.levels[k], trie.boundary
    backoffs = np.zeros(0, np.float32) if level.log_backoffs is None else level.log_backoffs
    if k == 0:  # one unigram is two lines
        words = np.insert(level.words, boundary, trie.size)[begin:end]
        log_probs = np.insert(level.log_probs, boundary, never)[begin:end]
        if len(backoffs):
            backoffs = np.insert(backoffs, boundary + 1, 0)[begin:end]
        return np.ascontiguousarray(words[:, None]), log_probs, backoffs
    rows = np.empty((end - begin, k + 1), NODE)
    rows[:, k] = level.words[begin:end]
    nodes = np.arange(begin, end, dtype=NODE)
    for j in range(k - 1, -1, -1):
        first = trie.levels[j].first
        assert first is not None
        nodes = (np.searchsorted(first, nodes, side="right") - 1).astype(NODE)
        rows[:, j] = trie.levels[j].words[nodes]
    rows[rows[:, 0] == boundary, 0] = trie.size
    return rows, np.ascontiguousarray(level.log_probs[begin:end]), np.ascontiguousarray(backoffs[begin:end])


def _spellings(trie: Trie, names: Sequence[str]) -> list[bytes]:
    """The words as bytes by id, with </s> for the boundary and <s> after the last."""
    if len(names) != trie.size:
        raise NextwordError(
            f"The model has {trie.size:,} words, but {len(names):,} names were given. Give the names of its tokenizer."
        )
    spelled: list[bytes] = []
    seen = {b"<s>", b"</s>"}
    for i, name in enumerate(names):
        word = b"</s>" if i == trie.boundary else name.encode("utf-8", "surrogatepass")
        if i != trie.boundary:
            if not word or any(space in word for space in (b" ", b"\t", b"\n", b"\r")):
                raise NextwordError(
                    f"Word {i} is {name!r}; a word of an ARPA file is not empty and has no spaces in it."
                )
            if word in seen:
                raise NextwordError(
                    f"Word {i} is {name!r}, which an ARPA file cannot hold "
                    + ("beside its own marker." if word in (b"<s>", b"</s>") else "twice.")
                    + " Rename it in the vocabulary."
                )
            seen.add(word)
        spelled.append(word)
    return [*spelled, b"<s>"]
