"""The front door: from a path, a name or `-` to a corpus."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from nextword.core.errors import NextwordError
from nextword.data.builtin import BUILT_IN, open_built_in
from nextword.data.catalog import ALL, Entry, absent, catalog, find
from nextword.data.corpus import HELD_OUT, Between, Corpus, Files, from_path, from_stdin, keep_stdin, with_given
from nextword.data.files import STDIN, plain_name
from nextword.data.mixture import is_mixture, open_mixture
from nextword.data.readers import files
from nextword.data.tables import JSON_LINES, readings


def open_corpus(spec: str | Path, *, text_column: str | None = None) -> Corpus:
    """The corpus at a path, of a built-in or catalog name, or on standard input (`-`); a .toml file is a mixture.

    A name wins over a file of the same name: write `./web` for the file. `reviews.csv:review` names the column that
    holds the text, or the key of lines of JSON.
    """
    if str(spec) == STDIN:
        return from_stdin(text_column=text_column)
    spec, text_column = _divided(spec, text_column)
    if isinstance(spec, str):
        if spec in BUILT_IN:
            return open_built_in(spec)
        if entry := find(spec):
            return open_entry(entry)
        path = Path(spec).expanduser()
        if not path.exists() and os.sep not in spec and not path.suffix:
            raise unknown(spec)
    else:
        path = spec
    if is_mixture(path):
        return open_mixture(path, open_corpus)
    return from_path(path, text_column=text_column)


def open_whole(spec: str | Path, *, text_column: str | None = None) -> Corpus:
    """The corpus as `open_corpus` gives it if its splits are given; else all of the text, as the one split `test`.

    For scoring a text that was not trained on: there is nothing to hold out of it, and it may be short.
    """
    spec, text_column = _divided(spec, text_column)
    path = Path(spec).expanduser()
    known = (isinstance(spec, str) and (spec in BUILT_IN or find(spec) is not None)) or is_mixture(path)
    if str(spec) != STDIN and not known and path.is_file():
        return Corpus(path.name, f"{path}, all of it", {"test": Files((path,), text_column)})
    if str(spec) == STDIN:
        scratch, text = keep_stdin(text_column)
        return Corpus("stdin", "standard input, all of it", {"test": text}, scratch=scratch)
    corpus = open_corpus(spec, text_column=text_column)
    if set(corpus.held_out) == set(HELD_OUT):  # no split was given
        return Corpus(corpus.name, f"{corpus.name}, all of it", {"test": corpus.texts["train"]})
    return corpus


def how_read(spec: str) -> list[str]:
    """Which column of a table, or key of JSON lines, is the text, and how many texts are empty and left out, in words.

    Nothing of what is neither, and of data known by name. To count, the first million rows are read once.
    """
    base, column = _divided(spec, None)
    path = Path(base).expanduser()
    if str(base) in BUILT_IN or find(str(base)) or not path.exists() or is_mixture(path):
        return []
    found = list(readings(files(path), column))
    alike = {(one.column, *one.names): (file, one) for file, one in reversed(found)}  # the first file of each kind
    said = []
    for file, one in reversed(alike.values()):
        what = "key" if Path(plain_name(file)).suffix.lower() in JSON_LINES else "column"
        another = f" (others: {', '.join(one.others)}; {path}:{what.upper()} names one)" if one.others else ""
        said.append(f"{file}: the text is the {what} '{one.column}'{another}")
    for file, one in found:
        if one.empty:
            are = "has no text and is" if one.empty == 1 else "have no text and are"
            said.append(f"{file}: {one.empty:,} of the {'' if one.whole else 'first '}{one.rows:,} rows {are} left out")
    return said


def _divided(spec: str | Path, text_column: str | None) -> tuple[str | Path, str | None]:
    """What is to be opened, and the column that stands after a colon, unless all of it is a path."""
    base, _, column = str(spec).rpartition(":")
    if text_column is not None or not (base and column) or Path(spec).expanduser().exists():
        return spec, text_column
    return (base, column) if Path(base).expanduser().exists() else (spec, None)


def open_entry(entry: Entry, folder: Path | None = None) -> Corpus:
    """A data set of the catalog, from where it lies."""
    if not entry.is_text:
        use = "train a model that reads a source" if entry.kind == "translation" else "use it with `nextword transfer`"
        raise NextwordError(
            f"{entry.name} ({entry.title}) is a set for a task ({entry.kind}), not a text to model. "
            f"Give a text, or {use}."
        )
    folder = folder or entry.place()
    if folder is None:
        raise absent(entry)
    found = entry.locate(folder)
    if ALL not in found:
        return with_given(entry.name, str(folder), found, entry.column, entry.reader)
    text = Files(tuple(found[ALL]), entry.column, entry.reader)
    if not entry.contiguous:
        return Corpus(entry.name, f"{folder}, split by hash", {"train": text}, HELD_OUT)
    texts, at = {}, 0.0
    for split, share in entry.contiguous.items():
        texts[split] = Between(text, at, round(at + share, 9))
        at = round(at + share, 9)
    shares = ", ".join(f"{split} {share:.0%}" for split, share in entry.contiguous.items())
    return Corpus(entry.name, f"{folder}, split by position ({shares})", texts)


def unknown(name: str) -> NextwordError:
    """The error for a name that is neither a file nor a data set; suggests the nearest."""
    near = get_close_matches(name.lower(), [*BUILT_IN, *catalog()], 3)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`nextword data` lists the names."
    return NextwordError(f"There is no file and no data set {name!r}. {hint}")
