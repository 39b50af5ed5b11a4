"""Open a corpus by path, by name, or from standard input."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from nextword.core.errors import UnknownName, Unsupported, did_you_mean
from nextword.core.io import path_exists, user_path
from nextword.data.builtin import BUILT_IN, open_built_in
from nextword.data.catalog import ALL, Entry, catalog, find_entry
from nextword.data.corpus import (
    HELD_OUT,
    ByteRange,
    Corpus,
    TextFiles,
    buffer_stdin,
    from_path,
    from_splits,
    from_stdin,
)
from nextword.data.files import STDIN, format_suffix
from nextword.data.mixture import is_mixture, open_mixture
from nextword.data.readers import list_files
from nextword.data.tables import JSON_LINES, open_texts, split_header

MAX_COUNTED = 1_000_000  # rows to read to count the empty ones


def open_corpus(spec: str | Path, *, text_column: str | None = None) -> Corpus:
    """Open a path, a built-in or catalog name, or standard input (`-`). A .toml file is a mixture.

    A name takes precedence over a file of the same name: write `./web` for the file. `reviews.csv:review` names the
    text column of a table, or the key of JSON lines; `reviews.csv:3` is its third column, unless one is called 3.
    `reviews.csv:3:no-header` also says whether the table has a header, which is detected otherwise.
    """
    if str(spec) == STDIN:
        return from_stdin(text_column=text_column)
    spec, text_column, header = _split_column(spec, text_column)
    path = user_path(spec)
    if isinstance(spec, str):
        if spec in BUILT_IN:
            return open_built_in(spec)
        if entry := find_entry(spec):
            return open_entry(entry)
        if not path_exists(path) and os.sep not in spec and not path.suffix:
            raise unknown_name_error(spec)
    if is_mixture(path):
        return open_mixture(path, open_corpus)
    return from_path(path, text_column=text_column, header=header)


def open_unsplit(spec: str | Path, *, text_column: str | None = None) -> Corpus:
    """Open a corpus without splitting it: if it has no splits of its own, all of the text is the split `test`.

    For evaluation on a text that was not trained on: nothing has to be held out, and the text may be short.
    """
    if str(spec) == STDIN:
        scratch, text = buffer_stdin(text_column)
        return Corpus("stdin", "standard input, all of it", {"test": text}, scratch=scratch)
    whole, given = spec, text_column
    spec, text_column, header = _split_column(spec, text_column)
    path = user_path(spec)
    if _is_plain_path(spec) and path.is_file():
        return Corpus(path.name, f"{path}, all of it", {"test": TextFiles((path,), text_column, header=header)})
    corpus = open_corpus(whole, text_column=given)
    if set(corpus.held_out) == set(HELD_OUT):  # it has no splits of its own
        return Corpus(corpus.name, f"{corpus.name}, all of it", {"test": corpus.texts["train"]})
    return corpus


def describe_reading(spec: str) -> list[str]:
    """Say which column or key holds the text, and how many empty texts are skipped, in sentences for people.

    Empty for plain text and for data known by name. Counts the first `MAX_COUNTED` rows of all files together: a folder
    of shards may have a hundred gigabytes.
    """
    base, column, header = _split_column(spec, None)
    path = user_path(base)
    if not _is_plain_path(base) or not path_exists(path):
        return []
    choices: dict[tuple[str, ...], list[str]] = {}  # by columns; the first file of each kind is described
    skips = []
    rest = MAX_COUNTED
    for file in list_files(path):
        texts = open_texts(file, column, header)
        if texts is None:
            continue
        what = "key" if format_suffix(file) in JSON_LINES else "column"
        others = f" (others: {', '.join(texts.others)}; choose with {path}:{what.upper()})" if texts.others else ""
        chosen = f"{path}{f':{column}' if column else ''}"
        notes = [f"{file}: the text is in the {what} '{texts.column}'{others}"]
        notes += [f"{file}: {note}" for note in texts.table.header_note(f"{chosen}:header", f"{chosen}:no-header")]
        choices.setdefault((texts.column, *texts.names), notes)
        is_empty = [not document.text.strip() for document in islice(texts.documents, rest)]
        rest -= len(is_empty)
        skips += [f"{file}: {note}" for note in texts.table.encoding_note()]
        if any(is_empty):
            rows = f"{'' if next(texts.documents, None) is None else 'first '}{len(is_empty):,} rows"
            skips.append(f"{file}: skips {sum(is_empty):,} of the {rows}, whose text is empty")
    return [*(note for notes in choices.values() for note in notes), *skips]


def _is_plain_path(spec: str | Path) -> bool:
    """Whether a spec is no name and no mixture."""
    is_name = isinstance(spec, str) and (spec in BUILT_IN or find_entry(spec) is not None)
    return not is_name and not is_mixture(user_path(spec))


def _split_column(spec: str | Path, text_column: str | None) -> tuple[str | Path, str | None, bool | None]:
    """Split PATH:COLUMN:no-header, unless all of it is a path or the column is already given."""
    if text_column is not None:
        return spec, text_column, None
    place, header = split_header(str(spec))
    base, _, column = place.rpartition(":")
    if base and column and not path_exists(place) and path_exists(base):
        return base, column, header
    return (spec if header is None else place), None, header


def open_entry(entry: Entry, folder: Path | None = None) -> Corpus:
    """Open a data set of the catalog."""
    if not entry.is_text:
        use = "train a seq2seq model on it" if entry.kind == "translation" else "use it with `nextword transfer`"
        message = f"{entry.name} ({entry.title}) is a data set for {entry.kind}, not plain text. Give a text, or {use}."
        raise Unsupported(message, ability="text")
    folder = folder or entry.require_folder()
    files = entry.locate(folder)
    if ALL not in files:
        return from_splits(entry.name, str(folder), files, entry.column, entry.reader)
    text = TextFiles(tuple(files[ALL]), entry.column, entry.reader)
    if not entry.contiguous:
        return Corpus(entry.name, f"{folder}, split by hash", {"train": text}, HELD_OUT)
    texts, start = {}, 0.0
    for split, fraction in entry.contiguous.items():
        end = round(start + fraction, 9)
        texts[split] = ByteRange(text, start, end)
        start = end
    fractions = ", ".join(f"{split} {fraction:.0%}" for split, fraction in entry.contiguous.items())
    return Corpus(entry.name, f"{folder}, split by position ({fractions})", texts)


def unknown_name_error(name: str) -> UnknownName:
    """Return the error for a name that is neither a file nor a data set."""
    known = [*BUILT_IN, *catalog()]
    hint = did_you_mean(name.lower(), known) or " `nextword data` lists the data sets."
    return UnknownName(f"No file and no data set is named {name!r}.{hint}", name=name, known=known)
