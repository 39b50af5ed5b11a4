"""ARPA files made into runs, and runs of n-grams made into ARPA files.

A run made of a file has the tokenizer `words` with the file's words, so every line of a text is a sentence: <s> before
it, </s> at its end. What it was estimated on is not known; the manifest has the file's name and checksum.

A file is written so that KenLM and SRILM both read it (`--set arpa.convention=kenlm` for one as lmplz writes it). What
tokens are called in it is said in `spelling`.

What tokens are called in files that know nothing but words: something visible for each id, all of them different.

    words        the word itself
    other kinds  the bytes that the token writes, in GPT-2's letters: " the" is Ġthe, a line end Ċ, "é" Ã©
    special      its name; but the unknown token is <unk> and the boundary </s>, whatever they are called
    taken        what the text has under a name that is kept (`KEPT`), or that an earlier token has, and what writes
                 nothing, get # and their id: a word <s> with the id 7 is <s>#7

So a text is spelled for another program: " ".join(names[id] for id in tokenizer.encode(text).ids).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from nextword.convert.base import (
    LAYOUT,
    Made,
    Progress,
    counted,
    create_backoff,
    model_settings,
    open_backoff,
    refuse_changes,
)
from nextword.core.errors import NextwordError
from nextword.core.io import Bytes
from nextword.core.protocols import Tokenizer
from nextword.ngrams.arpa import BOUNDARY, CONVENTIONS, UNKNOWN_MISSING, read_arpa, write_arpa
from nextword.ngrams.trie import Trie
from nextword.recipe import Recipe, from_tables
from nextword.run_folder import checksum
from nextword.tokenizers.subwords import byte_symbols
from nextword.tokenizers.words import Words

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
KEPT = (BEGIN, END, UNKNOWN, "<UNK>", "<eos>")  # KenLM takes <UNK> for <unk>; <eos> is what nextword calls </s>


def spellings(tokenizer: Tokenizer, boundary: int) -> tuple[list[str], list[int]]:
    """The names by id, and the ids of those that had to get # and their id."""
    letters = {byte: letter for letter, byte in byte_symbols().items()}
    special = {id: name for name, id in tokenizer.special.items()}
    unknown = next((id for id, name in special.items() if "unk" in name.lower() and id != boundary), None)
    taken, names, changed = set(KEPT), [], []
    for id in range(len(tokenizer)):
        if id in (boundary, unknown):
            names.append(END if id == boundary else UNKNOWN)
            continue
        written = special[id].encode() if id in special else tokenizer.piece(id)
        if tokenizer.kind == "words":
            name = written.decode().strip(" ")
        else:
            name = "".join([letters[byte] for byte in written])
        if not name or name in taken:
            changed.append(id)
            while not name or name in taken:
                name += f"#{id}"
        taken.add(name)
        names.append(name)
    return names, changed


NAME, ENDINGS = "an ARPA file", ".arpa or .lm, also with .gz, .bz2, .xz or .zst"
SUFFIXES = (".arpa", ".lm")
PACKED = ("", ".gz", ".bz2", ".xz", ".zst")
CONVENTION = "srilm"  # <s> has log10 p -99: both know that it is never predicted, and so does a program that does not
OPENING = 1 << 16  # bytes of a file that may stand before \data\
KENLM_ORDERS = 6
SHOWN = 3  # names in a note


def is_target(path: Path) -> bool:
    return path.name.lower().endswith(tuple(suffix + packed for suffix in SUFFIXES for packed in PACKED))


def is_source(path: Path) -> bool:
    if not path.is_file():
        return False
    if is_target(path):
        return True
    file, room = Bytes(path), memoryview(bytearray(OPENING))
    try:
        size = 0
        while size < OPENING and (read := file.read_into(room[size:])):
            size += read
    finally:
        file.close()
    lines = bytes(room[:size]).removeprefix(b"\xef\xbb\xbf").splitlines()
    return b"\\data\\" in [line.strip() for line in lines]


def read(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Made:
    refuse_changes(changes, (*LAYOUT, "tokenizer.lower"))
    _recipe(source.name, 1, changes)  # what is wrong with the changes shows before a long read
    trie, names = read_arpa(source, partial(progress, f"reading {source.name}"))
    recipe = _recipe(source.name, trie.order, changes)
    progress(f"writing {target.name}", 0, None)
    tokenizer = Words(names[2:], lower=recipe.tokenizer.get("lower", False))
    data = {phase.name: f"not known; the model was read from {source.name}" for phase in recipe.phases}
    origin = {"from": source.name, "format": NAME, "checksum": checksum(source)}
    return create_backoff(target, recipe, tokenizer, trie, _notes(trie, names), data=data, converted=origin)


def _recipe(name: str, order: int, changes: Sequence[str]) -> Recipe:
    """What can be said of a model that others estimated. No data: there is nothing to train again."""
    tables = {
        "paper": {"slug": "ngram", "title": f"estimated elsewhere and read from {name}"},
        "tokenizer": {"kind": "words"},
        "model": {"order": order},
        "phase": [{"kind": "count"}],
    }
    recipe = from_tables(tables, name, changes)
    model_settings(recipe)
    if not isinstance(recipe.tokenizer.get("lower", False), bool):
        raise NextwordError(f"--set tokenizer.lower={recipe.tokenizer['lower']}: expected true or false.")
    return recipe


def _notes(trie: Trie, names: Sequence[str]) -> list[str]:
    unigrams, notes = trie.levels[0].log_probs, []
    if np.isclose(unigrams[0], UNKNOWN_MISSING * math.log(10)):
        notes.append(f"It has no <unk>: an unknown word gets log10 p = {UNKNOWN_MISSING:.0f}, as in KenLM.")
    if unigrams[BOUNDARY] == -np.inf:
        notes.append("It has no </s>: the end of a line has probability 0.")
    if inserted := trie.facts.get("inserted"):
        notes.append(f"{inserted:,} n-grams that others need were missing and are put in; no probability changes.")
    if spaced := [name for name in names if name.split() != [name]]:
        notes.append(f"{_some(spaced)} with a space inside: words of a text have none, so these are never read.")
    return notes


def write(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Made:
    refuse_changes(changes, ("arpa.convention",))
    convention = [CONVENTION, *(change.partition("=")[2].strip() for change in changes)][-1]
    if convention not in CONVENTIONS:
        raise NextwordError(f"--set arpa.convention={convention}: expected one of {', '.join(CONVENTIONS)}.")
    found = open_backoff(source)
    names, changed = spellings(found.tokenizer, found.trie.boundary)
    whole = found.tokenizer.kind == "words"
    write_arpa(found.trie, names, target, convention, partial(progress, f"writing {target.name}"))
    notes = []
    if changed:
        notes.append(f"{_some([names[id] for id in changed])} with # and the id, for the name itself is taken.")
    if not whole:
        notes.append(
            f"Its words are {found.tokenizer.kind} tokens in GPT-2's letters (' the' is Ġthe): spell a text so before "
            "another program reads it."
        )
    if not 2 <= found.trie.order <= KENLM_ORDERS:
        notes.append(f"KenLM, as it is usually built, reads orders 2 to {KENLM_ORDERS}; this is {found.trie.order}.")
    use = f"""python -c "import kenlm; print(kenlm.Model('{target}').score('{"the" if whole else "Ġthe"}'))\""""
    if target.suffix.lower() == ".zst":
        use = f"zstd -d {target}, for KenLM unpacks all but .zst itself"
    return Made(target, NAME, target.stat().st_size, counted(found.trie), use, notes)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    return f"{len(names):,} word{'s' if len(names) > 1 else ''} ({shown})"
