r"""ARPA files, the common format of n-gram tools, in the conventions of KenLM and of SRILM.

    \data\
    ngram 1=37                               the number of n-grams of each order
    ngram 2=47

    \1-grams:
    -99         <s>        -0.4149733        log10 p, words, log10 of the back-off; <s> is never predicted
    -1.029493   </s>                         a missing back-off is 1

    \2-grams:
    -0.4846522  <s> looking

    \end\

nextword has one boundary where the file has two words: first in an n-gram it is <s>, last it is </s>. Its unigram has
the probability of </s> and the back-off of <s>.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from nextword.core.errors import DataError, Unsupported, invalid
from nextword.core.io import DecompressedFile, write_atomically
from nextword.core.jit import jit, mix_bits
from nextword.core.types import Progress, ignore_progress
from nextword.ngrams.trie import (
    MAX_LOG_BACKOFF,
    MAX_ORDER,
    NODE,
    NONE,
    Section,
    Trie,
    build_section,
    build_trie,
    make_slots,
)

UNKNOWN, EOS = "<unk>", "<eos>"
UNKNOWN_MISSING = -100.0  # log10 p of <unk> if the file has none, as in KenLM
CONVENTIONS = ("kenlm", "srilm")

_BLOCK = 1 << 22  # bytes read, or rows written, at a time
_LONGEST = 1 << 26  # bytes in a line, at most
_ROOM = 1 << 20  # n-grams to allocate before they are read, because the header may be wrong
_MAX_COUNT = NONE - 2  # n-grams of an order; ids and nodes have 32 bits
_COUNT = re.compile(rb"ngram\s+(\d+)\s*=\s*(\d+)")
_EDGES = b" \t\r\n"

BEGIN, END = 0xFFFFFFFE, 0xFFFFFFFD  # in the word table: <s> and </s>, which are allowed at one end of an n-gram only
BOUNDARY = 1

# Why parsing stopped
NEED_TEXT, SECTION, FULL, SURPLUS = 0, 1, 2, 3
COLUMNS, BAD_PROB, BAD_BACKOFF, POSITIVE, UNKNOWN_BYTES, BEGIN_LATE, END_EARLY = 10, 11, 12, 13, 14, 15, 16

DIGITS = 8  # after the decimal point: 1e-8, finer than float32 for all but the most certain words
LINE = 64  # the most bytes that two numbers, the tabs and the line end take

_TEN = 10.0 ** np.arange(23)  # all exact
_LN10 = math.log(10)
_TAB, _NEWLINE, _RETURN, _SPACE, _MINUS, _PLUS, _POINT, _ZERO, _SLASH = 9, 10, 13, 32, 45, 43, 46, 48, 92


# ------------------------------------------------------------------------------------------------ reading


# Maps the words of a file, by id, to the ids of another vocabulary, and says how many ids that one has. NONE is for an
# <unk> that it lacks.
Renumber = Callable[[Sequence[str]], tuple[np.ndarray, int]]


def read_arpa(
    path: Path, progress: Progress = ignore_progress, renumber: Renumber | None = None
) -> tuple[Trie, list[str]]:
    """Read a model and its words by id: <unk> 0, the boundary 1 (as `<eos>`), then the others in the file's order.

    `renumber` gives the model the ids of another vocabulary; an id without a word in the file gets the probability of
    <unk>, as KenLM gives it to a word outside the vocabulary.
    """
    reader = _ArpaReader(Path(path), progress, renumber)
    try:
        return reader.read()
    finally:
        reader.file.close()


class _ArpaReader:
    """Read the text in blocks, and lines that are not n-grams one by one."""

    def __init__(self, path: Path, progress: Progress, renumber: Renumber | None) -> None:
        self.file = DecompressedFile(path)
        self.path, self.progress, self.renumber = path, progress, renumber
        self.new_ids = np.zeros(0, NODE)  # by the file's ids, if they are renumbered
        self.buffer = bytearray(_BLOCK)
        self.at = self.end = 0  # the part of the buffer that is not parsed yet
        self.line = 1
        self.ended = False

    def read(self) -> tuple[Trie, list[str]]:
        counts = self._read_header()
        sections: list[Section] = []
        names: list[str] = []
        table = WordTable([], np.zeros(0, np.uint32))
        for n, count in enumerate(counts, 1):
            if not self._open_section(n, count):
                empty = np.zeros(0, np.float32)
                sections.append(build_section(np.zeros((0, n), NODE), empty, empty)[0])
                continue
            words, rows, log_probs, log_backoffs, lines = self._read_section(n, count, table)
            if n == 1:
                unigrams, names, table = self._build_vocabulary(words, log_probs, log_backoffs, lines)
                sections.append(self._renumber_unigrams(unigrams, names))
                continue
            n_grams, duplicate = build_section(self._renumber_rows(rows, lines), log_probs, log_backoffs)
            if duplicate >= 0:
                edges = {(BOUNDARY, 0): "<s>", (BOUNDARY, n - 1): "</s>"}
                spelled = " ".join(edges.get((w, j), names[w]) for j, w in enumerate(rows[duplicate].tolist()))
                raise self._error(f"the {n}-gram {spelled!r} for the second time", "each n-gram once", lines[duplicate])
            sections.append(n_grams)
        line = self._next_line("\\end\\ after the last section")
        if line != b"\\end\\":
            raise self._error(_quote(line), f"\\end\\, for \\data\\ names no order above {len(counts)}", self.line - 1)
        while self._fill(drop=True):  # so that a compressed file is verified to its end
            pass
        boundary = BOUNDARY if self.renumber is None else int(self.new_ids[BOUNDARY])
        return build_trie(sections, boundary, {"arpa": self.path.name}), names

    def _read_header(self) -> list[int]:
        where = "a line \\data\\, with which an ARPA file begins"
        while (line := self._next_line(where)) not in (b"\\data\\", b"\xef\xbb\xbf\\data\\"):
            if line.startswith(b"mmap lm http://kheafield.com/code"):
                raise self._error("a KenLM binary file", "the ARPA file from which it was built", self.line - 1)
        counts: list[int] = []
        is_plain = self.file.stream is self.file.raw
        left = self.file.size if is_plain else _MAX_COUNT << 10  # bytes of text that may follow
        wanted = "the counts of n-grams, such as 'ngram 1=100'"
        while (line := self._next_line(wanted, peek=True)).startswith(b"ngram"):
            match = _COUNT.fullmatch(line)
            if not match or match[1].lstrip(b"0") != b"%d" % (len(counts) + 1):
                raise self._error(_quote(line), f"'ngram {len(counts) + 1}=' and a count", self.line)
            if len(counts) == MAX_ORDER:
                raise self._error(_quote(line), f"orders up to {MAX_ORDER}", self.line)
            # The shortest n-gram is "0", its words of one byte, each after a space or a tab, and a line end.
            shortest = 2 * len(counts) + 4
            room = min(_MAX_COUNT, left // shortest)
            count = int(match[2].lstrip(b"0")[:20] or b"0")
            if count > room:
                raise self._error(_quote(line), f"at most {room:,}, for the file has no room for more", self.line)
            left -= count * shortest
            counts.append(count)
            self._next_line("")
        if not counts or not counts[0]:
            raise self._error(_quote(line), "'ngram 1=' and the number of words", self.line)
        return counts

    def _open_section(self, n: int, count: int) -> bool:
        """Enter the section of order n. It may be missing if it has no n-grams."""
        wanted = f"\\{n}-grams:"
        line = self._next_line(f"the section {wanted}", peek=True)
        if line == wanted.encode():
            self._next_line("")
            return True
        if count == 0 and line.startswith(b"\\"):
            return False
        raise self._error(_quote(line), f"the section {wanted}", self.line)

    def _read_section(
        self, n: int, count: int, table: WordTable
    ) -> tuple[list[bytes], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        room = min(count, _ROOM)
        rows = np.empty((room, max(n, 2)), NODE)
        log_probs, log_backoffs = np.empty(room, np.float32), np.empty(room, np.float32)
        lines = np.empty(room, np.int64)
        words: list[bytes] = []
        filled = 0
        while True:
            text = np.frombuffer(self.buffer, np.uint8)
            complete = self.end if self.ended else self.buffer.rfind(b"\n", self.at, self.end) + 1
            started = filled
            stopped, self.at, filled, self.line, begin, end = parse_lines(
                text, self.at, max(complete, self.at), n, *table.arrays,
                rows, log_probs, log_backoffs, lines, filled, count, self.line,
            )  # fmt: skip
            if n == 1:
                words += [bytes(self.buffer[a:b]) for a, b in rows[started:filled].tolist()]
            if stopped == FULL:
                grown = min(count, 2 * len(rows))
                rows = np.concatenate([rows, np.empty((grown - len(rows), rows.shape[1]), NODE)])
                log_probs, log_backoffs, lines = (
                    np.concatenate([a, np.empty(grown - len(a), a.dtype)]) for a in (log_probs, log_backoffs, lines)
                )
            elif stopped == SECTION:
                break
            elif stopped != NEED_TEXT:
                raise self._bad_line(stopped, n, count, begin, end)
            elif not self._fill():
                raise self._truncated(f"{count - filled:,} more {n}-grams" if filled < count else "\\end\\")
        if filled != count:
            line = self._next_line("")
            raise self._error(
                f"{_quote(line)} after {filled:,} {n}-grams", f"{count:,} of them, as \\data\\ says", self.line - 1
            )
        return words, rows[:filled], log_probs[:filled], log_backoffs[:filled], lines[:filled]

    def _bad_line(self, stopped: int, n: int, count: int, begin: int, end: int) -> DataError:
        newline = self.buffer.find(b"\n", self.at, self.end)
        if newline < 0 and self.ended:
            return self._truncated(f"the rest of this {n}-gram")
        spelled = f"a line of a {n}-gram is log10 p, {n} word{'s' * (n > 1)} and perhaps a back-off"
        if stopped == COLUMNS:
            shown = _quote(self.buffer[self.at : newline])
            return self._error(f"{begin} columns ({shown})", f"{n + 1} or {n + 2}: {spelled}")
        shown = _quote(self.buffer[begin:end])
        if stopped == SURPLUS:
            return self._error(f"one more {n}-gram ({shown})", f"{count:,} of them, as \\data\\ says")
        return self._error(
            shown,
            {
                BAD_PROB: f"a number: {spelled}",
                BAD_BACKOFF: f"a finite number below {MAX_LOG_BACKOFF / _LN10:.1g} as the back-off: {spelled}",
                POSITIVE: "a log10 probability, which is never positive",
                UNKNOWN_BYTES: "a word that is among the unigrams, which name the whole vocabulary",
                BEGIN_LATE: "<s> as the first word of an n-gram only",
                END_EARLY: "</s> as the last word of an n-gram only",
            }[stopped],
        )

    def _build_vocabulary(
        self, words: list[bytes], log_probs: np.ndarray, log_backoffs: np.ndarray, lines: np.ndarray
    ) -> tuple[Section, list[str], WordTable]:
        """The unigrams by id, the names of the words, and their hash table."""
        unknown = UNKNOWN.encode()
        if unknown not in words:
            unknown = unknown.upper()  # if there is an <unk>, <UNK> is an ordinary word
        special = {unknown: 0, b"<s>": BEGIN, b"</s>": END}
        names, ids = [UNKNOWN, EOS], np.empty(len(words), np.uint32)
        seen: set[bytes] = set()
        for i, word in enumerate(words):
            if word in seen:
                raise self._error(f"the word {_quote(word)} for the second time", "each word once", lines[i])
            seen.add(word)
            if word in special:
                ids[i] = special[word]
                continue
            ids[i] = len(names)
            try:
                names.append(word.decode())
            except UnicodeDecodeError:
                raise self._error(f"the word {word!r}, which is not UTF-8", "words in UTF-8", lines[i]) from None
        probs, backoffs = np.full(len(names), -np.inf, np.float32), np.zeros(len(names), np.float32)
        probs[0] = UNKNOWN_MISSING * math.log(10)
        plain = ids < END
        probs[ids[plain]], backoffs[ids[plain]] = log_probs[plain], log_backoffs[plain]
        probs[[BOUNDARY]] = log_probs[ids == END] if END in ids else -np.inf
        backoffs[[BOUNDARY]] = log_backoffs[ids == BEGIN] if BEGIN in ids else 0
        return Section(np.zeros((0, 1), NODE), probs, backoffs, np.zeros(0, NODE)), names, WordTable(words, ids)

    def _renumber_unigrams(self, unigrams: Section, names: Sequence[str]) -> Section:
        if self.renumber is None:
            return unigrams
        ids, size = self.renumber(names)
        self.new_ids = ids.astype(NODE)
        has_id = self.new_ids != NONE
        log_probs, log_backoffs = (
            np.full(size, values[0], np.float32) for values in (unigrams.log_probs, unigrams.log_backoffs)
        )
        log_probs[self.new_ids[has_id]] = unigrams.log_probs[has_id]
        log_backoffs[self.new_ids[has_id]] = unigrams.log_backoffs[has_id]
        return Section(unigrams.rows, log_probs, log_backoffs, unigrams.slots)

    def _renumber_rows(self, rows: np.ndarray, lines: np.ndarray) -> np.ndarray:
        if self.renumber is None:
            return rows
        rows = self.new_ids[rows]
        if (without_id := (rows == NONE).any(1)).any():
            line = lines[np.flatnonzero(without_id)[0]]
            raise self._error("an n-gram with <unk>", "none, since the tokenizer has no unknown token", line)
        return rows

    def _next_line(self, wanted: str, peek: bool = False) -> bytes:
        """The next line that is not blank, stripped."""
        while True:
            newline = self.buffer.find(b"\n", self.at, self.end)
            if newline < 0 and not self.ended and self._fill():
                continue
            stop = self.end if newline < 0 else newline
            line = bytes(self.buffer[self.at : stop]).strip(_EDGES)
            if line and peek:
                return line
            if newline < 0 and not line:
                raise self._truncated(wanted)
            self.at, self.line = min(stop + 1, self.end), self.line + 1
            if line:
                return line

    def _fill(self, drop: bool = False) -> bool:
        """Read more text behind what is not parsed yet; False at the end of the file."""
        if self.ended:
            return False
        if drop:
            self.at = self.end
        rest = self.end - self.at
        if rest > _LONGEST:
            raise self._error(f"more than {_LONGEST:,} bytes without a line end", "lines of text")
        buffer = bytearray(max(_BLOCK, 2 * rest)) if 2 * rest > len(self.buffer) else self.buffer
        buffer[:rest] = self.buffer[self.at : self.end]
        self.buffer, self.at, self.end = buffer, 0, rest
        read = self.file.read_into(memoryview(buffer)[rest:])
        self.end += read
        self.ended = read == 0
        self.progress(self.file.position(), self.file.size)
        return True

    def _error(self, found: str, expected: str, line: int | None = None) -> DataError:
        line = self.line if line is None else int(line)
        return DataError(
            f"{self.path}, line {line}: found {found}; expected {expected}. Correct the file, or write it again.",
            path=self.path,
            line=line,
        )

    def _truncated(self, expected: str) -> DataError:
        return DataError(
            f"{self.path}, line {self.line}: the file is truncated; expected {expected}. Copy or write it again.",
            path=self.path,
            line=self.line,
        )


def _quote(text: bytes | bytearray) -> str:
    """A line for an error message, shortened."""
    line = text.decode("utf-8", "replace").strip()
    return repr(line if len(line) <= 80 else f"{line[:77]}...")


# ------------------------------------------------------------------------------------------------ writing


def write_arpa(
    trie: Trie, names: Sequence[str], path: Path, convention: str = "kenlm", progress: Progress = ignore_progress
) -> None:
    """Write the model as ARPA, compressed by its suffix. `names` are the words by id; the boundary's is not used."""
    if convention not in CONVENTIONS:
        raise invalid("convention", convention, f"must be one of {', '.join(CONVENTIONS)}.")
    spelled = _words_as_bytes(trie, names)
    text = np.frombuffer(bytearray(b"".join(spelled)), np.uint8)
    starts = np.zeros(len(spelled) + 1, np.int64)
    np.cumsum([len(word) for word in spelled], out=starts[1:])
    bare = trie.boundary if convention == "srilm" else NONE
    never = -np.inf if convention == "srilm" else 0.0
    out = np.empty(_BLOCK + LINE + trie.order * (max(map(len, spelled)) + 1), np.uint8)
    counts = [len(level) + (k == 0) for k, level in enumerate(trie.levels)]
    done = 0
    with write_atomically(Path(path)) as file:
        file.write(b"\\data\\\n")
        for n, count in enumerate(counts, 1):
            file.write(b"ngram %d=%d\n" % (n, count))
        for k, count in enumerate(counts):
            file.write(b"\n\\%d-grams:\n" % (k + 1))
            for begin in range(0, count, _BLOCK // 16):
                rows, log_probs, log_backoffs = _section_rows(trie, k, begin, min(begin + _BLOCK // 16, count), never)
                # NaN fails every comparison, hence the "not".
                if not ((log_probs < 1e-6).all() and (log_backoffs < MAX_LOG_BACKOFF).all()):
                    raise DataError(
                        f"The model has {k + 1}-grams with an invalid log probability or back-off, so {path} was not "
                        "written. Estimate the model again.",
                        path=path,
                    )
                log_probs, row = np.minimum(log_probs, 0), 0  # KenLM rejects values that rounding left above 0
                while row < len(rows):
                    row, size = format_lines(rows, log_probs, log_backoffs, bare, text, starts, out, row)
                    file.write(out[:size].data)
                done += len(rows)
                progress(done, sum(counts))
        file.write(b"\n\\end\\\n")


def _section_rows(trie: Trie, k: int, begin: int, end: int, never: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n-grams begin … end of a section. As a word, `trie.size` is <s>, and the boundary is </s>."""
    level, boundary = trie.levels[k], trie.boundary
    backoffs = np.zeros(0, np.float32) if level.log_backoffs is None else level.log_backoffs
    if k == 0:  # the boundary's unigram becomes two lines
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


def _words_as_bytes(trie: Trie, names: Sequence[str]) -> list[bytes]:
    """The words as bytes by id, with </s> for the boundary and <s> after the last."""
    spelled = [name.encode("utf-8", "surrogatepass") for name in names]
    spelled[trie.boundary] = b"</s>"
    spelled.append(b"<s>")
    seen: dict[bytes, int] = {b"<s>": trie.size, b"</s>": trie.boundary}
    for i, word in enumerate(spelled):
        problem = ""
        if not word or any(space in word for space in (b" ", b"\t", b"\n", b"\r")):
            problem = "is empty or has spaces"
        elif seen.setdefault(word, i) != i:
            problem = "is reserved" if word in (b"<s>", b"</s>") else "occurs twice"
        if problem:
            raise Unsupported(
                f"Word {i} of the vocabulary, {names[i]!r}, {problem}, which an ARPA file does not allow. Rename it.",
                ability="arpa",
            )
    return spelled


# ------------------------------------------------------------------------------------------------ lines, compiled


class WordTable:
    """A hash table of words by their bytes, for the compiled functions."""

    def __init__(self, words: Sequence[bytes], ids: np.ndarray) -> None:
        self.text = np.frombuffer(bytearray(b"".join(words) or b"\0"), np.uint8)
        self.starts = np.zeros(len(words) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, words), np.int64, len(words)), out=self.starts[1:])
        self.ids = ids
        self.slots = make_slots(len(words))
        fill_table(self.text, self.starts, self.slots)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self.text, self.starts, self.ids, self.slots


@jit
def slot_of(text, begin, end, known, starts, slots):
    """The slot of the bytes text[begin:end] in the table, or the empty slot to insert them into."""
    mask = len(slots) - 2
    h = np.uint64(0xCBF29CE484222325) ^ mix_bits(np.uint64(slots[mask + 1]))
    for i in range(begin, end):
        h = (h ^ np.uint64(text[i])) * np.uint64(0x100000001B3)
    h ^= h >> np.uint64(29)
    at = np.int64(h & np.uint64(mask))
    while slots[at] != NONE:
        start = starts[slots[at]]
        same = starts[slots[at] + 1] - start == end - begin
        i = 0
        while same and i < end - begin:
            same = known[start + i] == text[begin + i]
            i += 1
        if same:
            break
        at = (at + 1) & mask
    return at


@jit
def fill_table(text, starts, slots):
    """Insert all words."""
    for i in range(len(starts) - 1):
        slots[slot_of(text, starts[i], starts[i + 1], text, starts, slots)] = i


@jit
def parse_number(text, begin, end):
    """The decimal number text[begin:end], to the last bits of a double; NaN if it is not a number."""
    at = begin
    negative = at < end and text[at] == _MINUS
    if at < end and (text[at] == _MINUS or text[at] == _PLUS):
        at += 1
    if (end - at == 3 or end - at == 8) and text[at] | 32 == 105:  # inf, Infinity
        name = b"infinity"
        for i in range(end - at):
            if text[at + i] | 32 != name[i]:
                return np.nan
        return -np.inf if negative else np.inf
    digits, seen, scale, pointed = np.int64(0), 0, np.int64(0), False
    while at < end:
        c = text[at]
        if _ZERO <= c < _ZERO + 10:
            seen += 1
            if digits < 100_000_000_000_000_000:
                digits = digits * 10 + (np.int64(c) - _ZERO)
                scale -= pointed
            else:
                scale += not pointed
        elif c == _POINT and not pointed:
            pointed = True
        else:
            break
        at += 1
    if not seen:
        return np.nan
    if at < end and text[at] | 32 == 101:  # e
        at += 1
        down = at < end and text[at] == _MINUS
        if at < end and (text[at] == _MINUS or text[at] == _PLUS):
            at += 1
        power, seen = np.int64(0), 0
        while at < end and _ZERO <= text[at] < _ZERO + 10:
            if power < 100_000:
                power = power * 10 + (np.int64(text[at]) - _ZERO)
            seen += 1
            at += 1
        if not seen:
            return np.nan
        scale += -power if down else power
    if at != end:
        return np.nan
    if digits == 0:
        value = 0.0
    elif -23 < scale < 0:
        value = digits / _TEN[-scale]
    elif 0 <= scale < 23:
        value = digits * _TEN[scale]
    elif scale < -300:
        value = digits * 1e-300 * 10.0 ** (scale + 300)
    else:
        value = digits * 10.0**scale
    return -value if negative else value


@jit
def parse_lines(text, at, end, n, known, starts, ids, slots, rows, log_probs, log_backoffs, lines, filled, total, line):
    """Parse complete lines of text[at:end] into the arrays, from entry `filled` and line number `line` on.

        -0.4638903 <tab> looking on <tab> -0.4771212        log10 p, the words, log10 of the back-off (optional)

    Columns are separated by ASCII tabs and spaces only, so that any other character may be part of a word. Returns
    (why it stopped, at, filled, line, begin, end); the last two delimit the column at which it stopped. A row holds ids
    of words; for unigrams, whose words are not known yet, the position of the word in the text.
    """
    columns = np.empty((n + 2, 2), np.int64)
    while at < end:
        stop = at
        while stop < end and text[stop] != _NEWLINE:
            stop += 1
        count, i = 0, at
        while True:
            while i < stop and (text[i] == _TAB or text[i] == _SPACE or text[i] == _RETURN):
                i += 1
            if i == stop:
                break
            begin = i
            while i < stop and text[i] != _TAB and text[i] != _SPACE and text[i] != _RETURN:
                i += 1
            if count < n + 2:
                columns[count, 0], columns[count, 1] = begin, i
            count += 1
        if count == 0:
            at, line = stop + 1, line + 1
            continue
        if text[columns[0, 0]] == _SLASH:
            return SECTION, at, filled, line, columns[0, 0], stop
        if filled == total:
            return SURPLUS, at, filled, line, at, stop
        if filled == len(log_probs):
            return FULL, at, filled, line, at, stop
        value = parse_number(text, columns[0, 0], columns[0, 1])
        if np.isnan(value):
            return BAD_PROB, at, filled, line, columns[0, 0], columns[0, 1]
        if count != n + 1 and count != n + 2:
            return COLUMNS, at, filled, line, np.int64(count), stop
        begin, i = columns[1, 0], columns[1, 1]
        never = n == 1 and i - begin == 3 and text[begin] == 60 and text[begin + 1] == 115 and text[begin + 2] == 62
        if value > 0 and not never:  # <s> is never predicted, so its value has no meaning
            return POSITIVE, at, filled, line, columns[0, 0], columns[0, 1]
        log_probs[filled] = value * _LN10
        value = 0.0
        if count == n + 2:
            value = parse_number(text, columns[n + 1, 0], columns[n + 1, 1])
            if not value * _LN10 < MAX_LOG_BACKOFF:  # also if it is NaN
                return BAD_BACKOFF, at, filled, line, columns[n + 1, 0], columns[n + 1, 1]
        log_backoffs[filled] = value * _LN10
        lines[filled] = line
        if n == 1:
            rows[filled, 0], rows[filled, 1] = begin, i
        else:
            for j in range(n):
                begin, i = columns[j + 1, 0], columns[j + 1, 1]
                slot = slots[slot_of(text, begin, i, known, starts, slots)]
                if slot == NONE:
                    return UNKNOWN_BYTES, at, filled, line, begin, i
                word = ids[slot]
                if word == BEGIN:
                    if j > 0:
                        return BEGIN_LATE, at, filled, line, begin, i
                    word = BOUNDARY
                elif word == END:
                    if j < n - 1:
                        return END_EARLY, at, filled, line, begin, i
                    word = BOUNDARY
                rows[filled, j] = word
        filled += 1
        at, line = stop + 1, line + 1
    return NEED_TEXT, min(at, end), filled, line, np.int64(0), np.int64(0)


@jit
def write_number(value, out, at):
    """Write a natural logarithm as log10, without trailing zeros; log 0 is -99, as in SRILM."""
    value /= _LN10
    if value < -1e9:
        value = -99.0
    units = np.uint64(abs(value) * 10.0**DIGITS + 0.5)
    if units == 0:
        out[at] = _ZERO
        return at + 1
    if value < 0:
        out[at] = _MINUS
        at += 1
    fraction = units % np.uint64(10**DIGITS)
    units //= np.uint64(10**DIGITS)
    length, rest = 1, units
    while rest >= np.uint64(10):
        rest //= np.uint64(10)
        length += 1
    for i in range(length):
        out[at + length - 1 - i] = _ZERO + units % np.uint64(10)
        units //= np.uint64(10)
    at += length
    if fraction == 0:
        return at
    out[at] = _POINT
    for i in range(DIGITS):
        out[at + DIGITS - i] = _ZERO + fraction % np.uint64(10)
        fraction //= np.uint64(10)
    at += DIGITS
    while out[at] == _ZERO:
        at -= 1
    return at + 1


@jit
def format_lines(rows, log_probs, log_backoffs, bare, known, starts, out, row):
    """Write the lines of the n-grams from `row` on while there is room: (the next row, bytes written).

    N-grams that end in the word `bare` have no back-off; if no n-gram has one, `log_backoffs` is empty.
    """
    n = rows.shape[1]
    at = 0
    while row < len(rows):
        length = LINE
        for j in range(n):
            length += starts[rows[row, j] + 1] - starts[rows[row, j]] + 1
        if at + length > len(out):
            break
        at = write_number(np.float64(log_probs[row]), out, at)
        for j in range(n):
            out[at] = _SPACE if j else _TAB
            at += 1
            for i in range(starts[rows[row, j]], starts[rows[row, j] + 1]):
                out[at] = known[i]
                at += 1
        if len(log_backoffs) and rows[row, n - 1] != bare:
            out[at] = _TAB
            at = write_number(np.float64(log_backoffs[row]), out, at + 1)
        out[at] = _NEWLINE
        at += 1
        row += 1
    return row, at
