"""ARPA files: read them into runs, write n-gram runs as ARPA files.

A run read from a file has the tokenizer `words` with the file's vocabulary: every line of a text is a sentence, with
<s> before it and </s> at its end. What the model was estimated on is unknown; the manifest records the file's checksum.

Files are written so that both KenLM and SRILM read them (`--set arpa.convention=kenlm`: exactly as lmplz writes them).
ARPA files know only words, so every token needs a visible name of its own:

    words         the word itself
    other kinds   the bytes of the token in GPT-2's letters: " the" is Ġthe, a line end Ċ, "é" Ã©
    special       its name; but the unknown token is always <unk>, and the boundary </s>
    taken         a token whose name is empty, reserved or already used gets # and its id: a word <s> with id 7 is <s>#7

To spell a text for another program: " ".join(names[id] for id in tokenizer.encode(text).ids).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from nextword.conversion.base import (
    LAYOUT_KEYS,
    Conversion,
    Progress,
    check_changes,
    check_model_settings,
    create_ngram_run,
    describe_origin,
    last_value,
    ngram_facts,
    open_ngrams,
    require_bool,
)
from nextword.core.io import DecompressedFile
from nextword.ngrams.arpa import BOUNDARY, CONVENTIONS, UNKNOWN_MISSING, read_arpa, write_arpa
from nextword.ngrams.trie import Trie
from nextword.recipe import Recipe, parse_recipe
from nextword.run_folder import checksum
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.subwords import byte_symbols
from nextword.tokenizers.words import Words

NAME, KNOWN_BY = "an ARPA file", ".arpa or .lm, also compressed"
SUFFIXES = (".arpa", ".lm")
COMPRESSED = ("", ".gz", ".bz2", ".xz", ".zst")
DEFAULT_CONVENTION = "srilm"  # <s> has log10 p -99, which KenLM, SRILM and simpler programs all accept
HEADER_BYTES = 1 << 16  # that may precede \data\
MAX_KENLM_ORDER = 6
MAX_SHOWN = 3  # names in a note
BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
RESERVED = (BEGIN, END, UNKNOWN, "<UNK>", "<eos>")  # KenLM reads <UNK> as <unk>; <eos> is our name for </s>


def is_target(path: Path) -> bool:
    return path.name.lower().endswith(tuple(suffix + packed for suffix in SUFFIXES for packed in COMPRESSED))


def is_source(path: Path) -> bool:
    if not path.is_file():
        return False
    if is_target(path):
        return True
    file, buffer = DecompressedFile(path), memoryview(bytearray(HEADER_BYTES))
    try:
        size = 0
        while size < HEADER_BYTES and (read := file.read_into(buffer[size:])):
            size += read
    finally:
        file.close()
    lines = bytes(buffer[:size]).removeprefix(b"\xef\xbb\xbf").splitlines()
    return b"\\data\\" in [line.strip() for line in lines]


# ------------------------------------------------------------------------------------------------ reading


def read(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Conversion:
    check_changes(changes, (*LAYOUT_KEYS, "tokenizer.lower"))
    _make_recipe(source.name, 1, changes)  # reports wrong changes before a long read
    trie, names = read_arpa(source, partial(progress, f"reading {source.name}"))
    recipe = _make_recipe(source.name, trie.order, changes)
    progress(f"writing {target.name}", 0, None)
    tokenizer = Words(names[2:], lower=recipe.tokenizer.get("lower", False))
    origin = describe_origin(source, NAME, recipe, checksum=checksum(source))
    return create_ngram_run(target, recipe, tokenizer, trie, _read_notes(trie, names), **origin)


def _make_recipe(name: str, order: int, changes: Sequence[str]) -> Recipe:
    """A recipe for a model that was estimated elsewhere. It names no data: there is nothing to train again."""
    tables = {
        "paper": {"slug": "ngram", "title": f"estimated elsewhere and read from {name}"},
        "tokenizer": {"kind": "words"},
        "model": {"order": order},
        "phase": [{"kind": "count"}],
    }
    recipe = parse_recipe(tables, name, changes)
    check_model_settings(recipe)
    require_bool(recipe, "lower")
    return recipe


def _read_notes(trie: Trie, names: Sequence[str]) -> list[str]:
    unigrams, notes = trie.levels[0].log_probs, []
    if np.isclose(unigrams[0], UNKNOWN_MISSING * math.log(10)):
        notes.append(f"The file has no <unk>: an unknown word gets log10 p = {UNKNOWN_MISSING:.0f}, as in KenLM.")
    if unigrams[BOUNDARY] == -np.inf:
        notes.append("The file has no </s>: the end of a line has probability 0.")
    if inserted := trie.facts.get("inserted"):
        notes.append(f"{inserted:,} missing n-grams that others depend on were inserted; no probability changes.")
    if spaced := [name for name in names if name.split() != [name]]:
        notes.append(f"{_describe_names(spaced)} contain a space, so no text can match them.")
    return notes


# ------------------------------------------------------------------------------------------------ writing


def write(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Conversion:
    check_changes(changes, ("arpa.convention",))
    convention = last_value(changes, DEFAULT_CONVENTION, CONVENTIONS)
    run, trie = open_ngrams(source)
    names, renamed = spell_tokens(run.tokenizer, trie.boundary)
    has_words = run.tokenizer.kind == "words"
    write_arpa(trie, names, target, convention, partial(progress, f"writing {target.name}"))
    notes = []
    if renamed:
        notes.append(f"{_describe_names([names[id] for id in renamed])} got # and their id: the plain name was taken.")
    if not has_words:
        notes.append(
            f"The file's words are {run.tokenizer.kind} tokens in GPT-2's letters (' the' is Ġthe): spell a text that "
            "way before another program reads it."
        )
    if not 2 <= trie.order <= MAX_KENLM_ORDER:
        notes.append(f"KenLM, as usually built, reads orders 2 to {MAX_KENLM_ORDER}; this file has {trie.order}.")
    use = f"""python -c "import kenlm; print(kenlm.Model('{target}').score('{"the" if has_words else "Ġthe"}'))\""""
    if target.suffix.lower() == ".zst":
        use = f"zstd -d {target}  (KenLM cannot read .zst)"
    return Conversion(target, NAME, target.stat().st_size, ngram_facts(trie), use, notes)


def spell_tokens(tokenizer: Tokenizer, boundary: int) -> tuple[list[str], list[int]]:
    """A visible name for every id, and the ids that had to get # and their id."""
    letters = {byte: letter for letter, byte in byte_symbols().items()}
    special = {id: name for name, id in tokenizer.special.items()}
    unknown = next((id for id, name in special.items() if "unk" in name.lower() and id != boundary), None)
    taken, names, renamed = set(RESERVED), [], []
    for id in range(len(tokenizer)):
        if id in (boundary, unknown):
            names.append(END if id == boundary else UNKNOWN)
            continue
        piece = special[id].encode() if id in special else tokenizer.piece(id)
        if tokenizer.kind == "words":
            name = piece.decode().strip(" ")
        else:
            name = "".join([letters[byte] for byte in piece])
        if not name or name in taken:
            renamed.append(id)
            while not name or name in taken:
                name += f"#{id}"
        taken.add(name)
        names.append(name)
    return names, renamed


def _describe_names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:MAX_SHOWN]) + (", …" if len(names) > MAX_SHOWN else "")
    return f"{len(names):,} word{'s' if len(names) > 1 else ''} ({shown})"
