"""Open a corpus by path, by name, or from standard input."""

from __future__ import annotations

import os
from pathlib import Path

from nextword.core.errors import UnknownName, Unsupported, did_you_mean
from nextword.data.builtin import BUILT_IN, open_built_in
from nextword.data.catalog import ALL, Entry, catalog, find_entry, not_installed_error
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
from nextword.data.files import STDIN, plain_name
from nextword.data.mixture import is_mixture, open_mixture
from nextword.data.readers import list_files
from nextword.data.tables import JSON_LINES, summarize_tables


def open_corpus(spec: str | Path, *, text_column: str | None = None) -> Corpus:
    """Open a path, a built-in or catalog name, or standard input (`-`). A .toml file is a mixture.

    A name takes precedence over a file of the same name: write `./web` for the file. `reviews.csv:review` names the
    text column of a table, or the key of JSON lines.
    """
    if str(spec) == STDIN:
        return from_stdin(text_column=text_column)
    spec, text_column = _split_column(spec, text_column)
    if isinstance(spec, str):
        if spec in BUILT_IN:
            return open_built_in(spec)
        if entry := find_entry(spec):
            return open_entry(entry)
        path = Path(spec).expanduser()
        if not path.exists() and os.sep not in spec and not path.suffix:
            raise unknown_name_error(spec)
    else:
        path = spec
    if is_mixture(path):
        return open_mixture(path, open_corpus)
    return from_path(path, text_column=text_column)


def open_unsplit(spec: str | Path, *, text_column: str | None = None) -> Corpus:
    """Open a corpus without splitting it: if it has no splits of its own, all of the text is the split `test`.

    For evaluation on a text that was not trained on: nothing has to be held out, and the text may be short.
    """
    spec, text_column = _split_column(spec, text_column)
    path = Path(spec).expanduser()
    is_name = (isinstance(spec, str) and (spec in BUILT_IN or find_entry(spec) is not None)) or is_mixture(path)
    if str(spec) != STDIN and not is_name and path.is_file():
        return Corpus(path.name, f"{path}, all of it", {"test": TextFiles((path,), text_column)})
    if str(spec) == STDIN:
        scratch, text = buffer_stdin(text_column)
        return Corpus("stdin", "standard input, all of it", {"test": text}, scratch=scratch)
    corpus = open_corpus(spec, text_column=text_column)
    if set(corpus.held_out) == set(HELD_OUT):  # it has no splits of its own
        return Corpus(corpus.name, f"{corpus.name}, all of it", {"test": corpus.texts["train"]})
    return corpus


def describe_reading(spec: str) -> list[str]:
    """Say which column or key holds the text, and how many empty texts are skipped, in sentences for people.

    Empty for plain text and for data known by name. Reads up to a million rows to count.
    """
    base, column = _split_column(spec, None)
    path = Path(base).expanduser()
    if str(base) in BUILT_IN or find_entry(str(base)) or not path.exists() or is_mixture(path):
        return []
    tables = list(summarize_tables(list_files(path), column))
    by_columns = {(table.column, *table.names): (file, table) for file, table in reversed(tables)}  # the first of each
    sentences = []
    for file, table in reversed(by_columns.values()):
        what = "key" if Path(plain_name(file)).suffix.lower() in JSON_LINES else "column"
        others = f" (others: {', '.join(table.others)}; choose with {path}:{what.upper()})" if table.others else ""
        sentences.append(f"{file}: the text is in the {what} '{table.column}'{others}")
    for file, table in tables:
        if table.empty:
            rows = f"{'' if table.whole else 'first '}{table.rows:,} rows"
            sentences.append(f"{file}: skips {table.empty:,} of the {rows}, whose text is empty")
    return sentences


def _split_column(spec: str | Path, text_column: str | None) -> tuple[str | Path, str | None]:
    """Split PATH:COLUMN, unless all of it is a path or the column is already given."""
    base, _, column = str(spec).rpartition(":")
    if text_column is not None or not (base and column) or Path(spec).expanduser().exists():
        return spec, text_column
    return (base, column) if Path(base).expanduser().exists() else (spec, None)


def open_entry(entry: Entry, folder: Path | None = None) -> Corpus:
    """Open a data set of the catalog."""
    if not entry.is_text:
        use = "train a seq2seq model on it" if entry.kind == "translation" else "use it with `nextword transfer`"
        raise Unsupported(
            f"{entry.name} ({entry.title}) is a data set for {entry.kind}, not plain text. Give a text, or {use}.",
            ability="text",
        )
    folder = folder or entry.find_folder()
    if folder is None:
        raise not_installed_error(entry)
    files = entry.locate(folder)
    if ALL not in files:
        return from_splits(entry.name, str(folder), files, entry.column, entry.reader)
    text = TextFiles(tuple(files[ALL]), entry.column, entry.reader)
    if not entry.contiguous:
        return Corpus(entry.name, f"{folder}, split by hash", {"train": text}, HELD_OUT)
    texts, at = {}, 0.0
    for split, fraction in entry.contiguous.items():
        texts[split] = ByteRange(text, at, round(at + fraction, 9))
        at = round(at + fraction, 9)
    fractions = ", ".join(f"{split} {fraction:.0%}" for split, fraction in entry.contiguous.items())
    return Corpus(entry.name, f"{folder}, split by position ({fractions})", texts)


def unknown_name_error(name: str) -> UnknownName:
    """Return the error for a name that is neither a file nor a data set."""
    known = [*BUILT_IN, *catalog()]
    hint = did_you_mean(name.lower(), known) or " `nextword data` lists the data sets."
    return UnknownName(f"No file and no data set is named {name!r}.{hint}", name=name, known=known)
