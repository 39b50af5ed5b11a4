"""A corpus whose documents are pairs of a source and a target; `open_parallel` (parallel.py) opens one.

Pairs out of two files that go side by side, line by line; and which files of a folder do.

    train.en + train.de                      line 7 of the one is line 7 of the other
    train.tags.en-de.en + ….de               IWSLT's training text: lines in tags (<url>, <title>) are no part of it
    newstest2014-deen-src.en.sgm + -ref.de   WMT's and IWSLT's (.xml) sets: what stands between <seg> and </seg>

Each may be compressed (.gz .xz .zst .bz2), or both lie in a .tgz. Of a line only its end is taken off.
"""

from __future__ import annotations

import html
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from lzma import LZMAError
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.corpus import Corpus, side
from nextword.data.files import COMPRESSED, lines, plain_name

SUMMARIES = frozenset({"summary", "summaries", "highlights", "abstract", "tldr", "headline", "title"})


@dataclass
class Parallel(Corpus):
    """A corpus of pairs. Where splits are held out of train, the source decides."""

    pair: tuple[str, str] = ("source", "target")  # what the sides are called

    def __post_init__(self) -> None:
        self.unit = None  # a pair is never cut
        if self.held_out:
            self._check_size()

    @property
    def parallel(self) -> bool:
        return True

    @property
    def summaries(self) -> bool:
        """Whether targets are called summaries, which are judged otherwise than translations."""
        return self.pair[1].lower() in SUMMARIES

    def documents(self, split: str) -> Iterator[Document]:
        self._check(split)
        if split != "train" and split not in self.held_out:
            return self.texts[split].documents()
        pairs = self.texts["train"].documents()
        if not self.held_out:
            return pairs
        return (pair for pair in pairs if side(pair.source or "", self.held_out) == split)

    def _check_size(self) -> None:
        """Every split gets some pair; a long corpus is not read to its end for this."""
        wanted = {"train", *self.held_out}
        count = 0
        for pair in self.texts["train"].documents():
            count += 1
            wanted.discard(side(pair.source or "", self.held_out))
            if not wanted:
                return
        raise NextwordError(
            f"{self.name} is too short to split: of its {count:,} pairs none falls into {' or '.join(sorted(wanted))}; "
            "about 100 are needed. Give more, or a folder with files for train, valid and test."
        )


ARCHIVES = (".tgz", ".tar", ".tar.gz", ".tar.xz", ".tar.bz2")
FORMAT = b"parallel 1;"  # raise it when the same files would read as other pairs than before
USUAL = (("source", "target"), ("src", "tgt"))  # names that say themselves which is which

_SEGMENTS = re.compile(r"\.(?:sgml?|xml)$", re.I)
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.I | re.S)
_OPEN = re.compile(r"<seg\b", re.I)
_TAGGED = re.compile(r"^train\.tags\.", re.I)
_TAG = re.compile(r"\s*</?(?:url|keywords|speaker|talkid|title|description|reviewer|translator|doc)\b", re.I)

# train.en   train.en.txt   train.source   newstest2014-deen-src.en.sgm
SIDE = re.compile(
    r"(?P<stem>.+?)(?:-(?P<role>src|ref))?"
    r"\.(?P<language>[A-Za-z]{2,3}(?:[-_][A-Za-z]{2,8})?|source|target)(?:\.(?:txt|sgml?|xml))?",
    re.I,
)
_NO_LANGUAGE = frozenset(
    {"bin", "bpe", "csv", "dev", "idx", "log", "md", "npy", "npz", "pdf", "pos", "py", "raw", "sgm", "tar"}
    | {"tgz", "tok", "tsv", "tst", "txt", "val", "xml", "zip", "zst"}
)
_SPLIT = {
    "train": re.compile(r"train(ing)?"),
    "valid": re.compile(r"(news)?(valid|validation|val|dev)\d*"),
    "test": re.compile(r"(news)?(test|tst)\d*"),
}


@dataclass(frozen=True)
class Place:
    """A file, or a file inside a tar archive."""

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path} ({self.member})" if self.member else str(self.path)

    @property
    def name(self) -> str:
        return Path(self.member).name if self.member else plain_name(self.path)

    def lines(self) -> Iterator[str]:
        return self._unpacked() if self.member else lines(self.path)

    def _unpacked(self) -> Iterator[str]:
        try:
            with tarfile.open(self.path) as tar:
                stream = cast(IO[bytes], tar.extractfile(self.member))
                for line in io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n"):
                    if "\0" in line:
                        raise NextwordError(f"{self} is not text: it has a zero byte. Expected UTF-8 text.")
                    yield line[:-2] + "\n" if line.endswith("\r\n") else line
        except UnicodeDecodeError as error:
            raise NextwordError(f"{self} is not UTF-8: {error}. Unpack it and convert it with iconv.") from None
        except (tarfile.TarError, OSError, EOFError, zlib.error, LZMAError) as error:
            raise damaged(self.path, error) from None


def members(archive: Path) -> list[Place]:
    """The files in a tar archive."""
    try:
        with tarfile.open(archive) as tar:
            return [Place(archive, item.name) for item in tar if item.isfile()]
    except (tarfile.TarError, OSError, EOFError, zlib.error, LZMAError) as error:
        raise damaged(archive, error) from None


def damaged(path: Path, error: Exception) -> NextwordError:
    return NextwordError(f"{path} is damaged or cut short: {error}. Fetch it again.")


# ------------------------------------------------------------------------------------------------ two files


@dataclass(frozen=True)
class Sides:
    """Pairs out of files that come in twos: (source, target)."""

    files: tuple[tuple[Place, Place], ...]

    def documents(self) -> Iterator[Document]:
        for source, target in self.files:
            some = False
            for pair in side_by_side(source, target):
                some = True
                yield pair
            if not some:
                raise NextwordError(f"{source} and {target} are empty. Expected pairs; give files with some in them.")

    def size(self) -> int | None:
        targets = [target for _, target in self.files]
        if any(place.member or place.path.suffix.lower() in COMPRESSED for place in targets):
            return None
        return sum(place.path.stat().st_size for place in targets)

    def update(self, hasher: Any) -> None:
        hasher.update(FORMAT)
        for place in (place for both in self.files for place in both):
            form = "segments" if _SEGMENTS.search(place.name) else "tagged" if _TAGGED.search(place.name) else "lines"
            hasher.update(f"{form};{place.path.suffix.lower()};{place.member};".encode())
            feed(hasher, place.path)


def feed(hasher: Any, path: Path) -> None:
    """The bytes of a file, as many as there are of them."""
    hasher.update(f"{path.stat().st_size};".encode())
    with open(path, "rb") as raw:
        while block := raw.read(1 << 22):
            hasher.update(block)


def side_by_side(source: Place, target: Place) -> Iterator[Document]:
    """The pairs of two files; where both are empty there is none."""
    ours, theirs = one_side(source), one_side(target)
    for number, (here, there) in enumerate(zip_longest(ours, theirs), 1):
        if here is None or there is None:
            more = sum(1 for _ in (theirs if here is None else ours))
            _unequal(source, target, number - 1, more, here, there)
        (line, text), (other, translation) = here, there
        if text.strip() and translation.strip():
            yield Document(translation, f"{source.name}:{line}", source=text)
        elif text.strip():
            _empty(f"{target}, line {other}", f"{source}, line {line}")
        elif translation.strip():
            _empty(f"{source}, line {line}", f"{target}, line {other}")


def _empty(empty: str, full: str) -> NoReturn:
    raise NextwordError(
        f"{empty} is empty, but its partner ({full}) is not. "
        "A pair needs both sides: remove that line from both files, or fill it."
    )


def _unequal(
    source: Place, target: Place, common: int, more: int, here: tuple[int, str] | None, there: tuple[int, str] | None
) -> NoReturn:
    counts = [common + (1 + more if line else 0) for line in (here, there)]
    longer, first = (source, here) if here else (target, there)
    assert first is not None
    raise NextwordError(
        f"{source} has {counts[0]:,} {_unit(source)} and {target} {counts[1]:,}, but line by line they should go "
        f"together. The first without a partner is line {first[0]:,} of {longer}: {first[1].strip()[:60]!r}. "
        "Look where they part (a line broken in two, a line left out) and mend it."
    )


def _unit(place: Place) -> str:
    return "segments" if _SEGMENTS.search(place.name) else "lines"


def one_side(place: Place) -> Iterator[tuple[int, str]]:
    """The sentences of one file, each with the number of the line that it begins on."""
    if _SEGMENTS.search(place.name):
        return _segments(place)
    plain = ((number, line.removesuffix("\n")) for number, line in enumerate(place.lines(), 1))
    if _TAGGED.search(place.name):
        return ((number, line.strip()) for number, line in plain if not _TAG.match(line))
    return plain


def _segments(place: Place) -> Iterator[tuple[int, str]]:
    """What stands between <seg> and </seg>, entities resolved; a segment may run over lines."""
    held, begun = "", 0
    for number, line in enumerate(place.lines(), 1):
        begun = begun if held else number
        held += line
        while found := _SEGMENT.search(held):
            yield begun, " ".join(html.unescape(found.group(1)).split())
            held, begun = held[found.end() :], number
        if not _OPEN.search(held):
            held = ""
    if held:
        raise NextwordError(f"{place} ends inside a segment (line {begun}): no </seg>. It was cut short: get it again.")


# ------------------------------------------------------------------------------------------------ which go together

Found = dict[str, dict[str, dict[str, Place]]]  # stem → language → "src", "ref" or "" → file


def beside(folder: Path) -> list[Place]:
    return [Place(path) for path in sorted(folder.iterdir()) if path.is_file()]


def survey(places: Iterable[Place]) -> Found:
    """Files by what they are a side of: `train.en` and `train.de.gz` are two languages of the stem `train`."""
    found: Found = {}
    for place in places:
        named = SIDE.fullmatch(place.name)
        if named and named["language"].lower() not in _NO_LANGUAGE and not place.name.startswith("."):
            languages = found.setdefault(named["stem"], {})
            languages.setdefault(named["language"], {}).setdefault((named["role"] or "").lower(), place)
    return found


def languages_of(found: Found) -> list[str]:
    """Those that some stem has together with another."""
    return sorted({language for sides in found.values() if len(sides) > 1 for language in sides})


def partners(found: Found, source: str, target: str) -> tuple[dict[str, tuple[Place, Place]], list[str]]:
    """Stem → its two files; and what is to be said of stems that have only one of the two languages."""
    pairs, alone = {}, []
    for stem, sides in found.items():
        if source in sides and target in sides:
            pairs[stem] = _role(sides[source], "src"), _role(sides[target], "ref")
        elif source in sides or target in sides:
            alone.append(f"{stem} has no {target if source in sides else source}")
    return pairs, alone


def _role(files: Mapping[str, Place], role: str) -> Place:
    """WMT says which file was translated (src) and which is the translation (ref); either will do for either."""
    return files.get(role) or files.get("") or next(iter(files.values()))


def named_split(stem: str) -> str | None:
    """The split that a name says: `val`, `dev2010`, `newstest2014-deen`, `IWSLT15.TED.tst2013.en-vi`."""
    words = re.split(r"[._-]", stem.lower())
    named = [split for split, form in _SPLIT.items() if any(form.fullmatch(word) for word in words)]
    return named[0] if len(named) == 1 else None


# ------------------------------------------------------------------------------------------------ SOURCE-TARGET


def cuts(pair: str) -> list[tuple[str, str]]:
    """Every way to read SOURCE-TARGET, since a name may have hyphens of its own."""
    return [(pair[: at.start()], pair[at.end() :]) for at in re.finditer("-", pair)]


def choose(pair: str, names: Iterable[str], place: str, default: tuple[str, str] | None = None) -> tuple[str, str]:
    """The two names that a pair means. Without a pair: the default, or names that say it themselves."""
    names = list(dict.fromkeys(names))
    if len(names) < 2:
        raise not_parallel(place)
    if not pair:
        usual = [default] if default else [both for both in USUAL if set(both) <= set(names)]
        if usual:
            return usual[0]
        advice = f"{place}:{names[0]}-{names[1]} or {place}:{names[1]}-{names[0]}"
        raise NextwordError(
            f"{place} has {', '.join(names)}, and which is source and which target is not said. Write "
            f"{advice if len(names) == 2 else f'{place}:SOURCE-TARGET with two of these'}."
        )
    source, target = next((both for both in cuts(pair) if set(both) <= set(names)), cuts(pair)[0])
    if missing := [name for name in (source, target) if name not in names]:
        raise NextwordError(
            f"{place}:{pair}: there is no {' and no '.join(map(repr, missing))}; {place} has {', '.join(names)}. "
            "Write two of these as SOURCE-TARGET."
        )
    if source == target:
        raise NextwordError(f"{place}:{pair} has {source} on both sides; write two of {', '.join(names)}.")
    return source, target


def not_parallel(where: str) -> NextwordError:
    return NextwordError(
        f"{where} is not parallel: it has no pairs of a source and a target. Expected a folder with files such as "
        "train.en and train.de, or one file with both sides (.tsv, .csv, .jsonl); docs/parallel.md shows every form."
    )
