"""Text files of word vectors made into runs, and runs that know words by vectors made into such files.

    .vec    word2vec's: a first line with how many words there are and how wide their vectors; gensim, fastText
    .txt    GloVe's: no such line

Both also packed (.gz, .bz2, .xz, .zst). Nine digits a number give every float32 back to the bit; --set vectors.digits=4
makes a file of half the size. A run made of a file has the tokenizer `lexicon` with the file's words; what the vectors
were learnt from is not known, and neither is what they were learnt with: they are there to be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.convert.base import NAME as RUN
from nextword.convert.base import Made, Progress, create_run, open_run, refuse_changes, shapes, size_of
from nextword.core.errors import NextwordError
from nextword.core.io import written
from nextword.data.word_vectors import Vectors, has_vectors, read_vectors
from nextword.models import model_class
from nextword.models.base import word_table
from nextword.recipe import from_tables
from nextword.run_folder import RunFolder, checksum
from nextword.tokenizers import vocabulary
from nextword.tokenizers.ptb_words import EOS, UNKNOWN, Lexicon

NAMES = {True: "a word2vec text file", False: "a GloVe text file"}
ENDINGS = {True: ".vec", False: ".txt"}  # with a first line of counts, without
SLUGS = {True: "word2vec", False: "glove"}  # whose a file is taken for: both give a word one vector, and here the same
PACKED = ("", ".gz", ".bz2", ".xz", ".zst")
DIGITS = 9
AT_ONCE = 4096  # words written between two reports


def is_target(path: Path, header: bool) -> bool:
    return path.name.lower().endswith(tuple(ENDINGS[header] + packed for packed in PACKED))


def is_source(path: Path, header: bool) -> bool:
    return path.is_file() and has_vectors(path) == header


def read(source: Path, target: Path, changes: Sequence[str], progress: Progress, header: bool) -> Made:
    refuse_changes(changes, ("tokenizer.lower",))
    progress(f"reading {source.name}", 0, None)
    found = read_vectors(source)
    kept = [i for i, word in enumerate(found.words) if word.split() == [word] and word not in (UNKNOWN, EOS)]
    words, notes = [found.words[i] for i in kept], []
    if not words:
        raise NextwordError(f"{source} has no vector of a word without spaces: there is nothing to make a run of.")
    if len(kept) < len(found):
        notes.append(f"{len(found) - len(kept):,} names with a space inside, {UNKNOWN} or {EOS} are left out.")
    if found.repeated:
        notes.append(f"{found.repeated:,} lines repeat a word: the first of each counts.")
    tables = {
        "paper": {"slug": SLUGS[header], "title": f"learnt elsewhere and read from {source.name}"},
        "tokenizer": {"kind": "lexicon", "lower": all(word == word.lower() for word in words)},
        "model": {"width": found.width},
        "phase": [{"epochs": 1}],
    }
    recipe = from_tables(tables, source.name, changes)
    if not isinstance(recipe.tokenizer["lower"], bool):
        raise NextwordError(f"--set tokenizer.lower={recipe.tokenizer['lower']}: expected true or false.")
    tokenizer = Lexicon(words, recipe.tokenizer["lower"])
    matrix = np.zeros((len(tokenizer), found.width), np.float32)
    matrix[len(tokenizer) - len(words) :] = found.matrix[kept]
    cls = model_class(recipe.slug)
    network = cls.of_vectors(cls.Config(**recipe.model), vocabulary(tokenizer), torch.from_numpy(matrix))
    progress(f"writing {target.name}", 0, None)
    data = {phase.name: f"not known; the vectors were read from {source.name}" for phase in recipe.phases}
    origin = {"from": source.name, "format": NAMES[header], "checksum": checksum(source)}
    parameters = create_run(target, recipe, tokenizer, lambda place: network, data=data, converted=origin)
    facts = shapes(parameters, recipe, tokenizer)
    return Made(target, RUN, size_of(target), facts, f"nextword embed {target} --nearest {_example(words)}", notes)


def write(source: Path, target: Path, changes: Sequence[str], progress: Progress, header: bool) -> Made:
    refuse_changes(changes, ("vectors.digits",))
    said = [str(DIGITS), *(change.partition("=")[2].strip() for change in changes)][-1]
    if not said.isdigit() or not 1 <= int(said) <= DIGITS:
        raise NextwordError(f"--set vectors.digits={said}: expected 1 to {DIGITS}; with {DIGITS} no bit is lost.")
    found = open_run(source, _has_words)
    vectors = word_table(found.network, found.tokenizer, str(source))
    write_vectors(target, vectors, header, int(said), progress)
    facts = {"words": len(vectors), "width": vectors.width}
    use = f"nextword embed {target} --nearest {_example(vectors.words)}"
    return Made(target, NAMES[header], target.stat().st_size, facts, use)


def _example(words: Sequence[str]) -> str:
    """A word that can be typed."""
    return next((word for word in words if len(word) > 2 and word.isalpha()), "WORD")


def _has_words(run: RunFolder, cls: Any) -> None:
    """Whether there is a table of words shows when it is asked for: any network may have one."""


def write_vectors(
    path: Path,
    vectors: Vectors,
    header: bool,
    digits: int = DIGITS,
    progress: Progress = lambda label, done, total: None,
) -> None:
    """One line a word; the file appears when it is whole."""
    form = " ".join([f"%.{digits}g"] * vectors.width)
    with written(path) as file:
        if header:
            file.write(f"{len(vectors)} {vectors.width}\n".encode())
        for i, (word, row) in enumerate(zip(vectors.words, vectors.matrix, strict=True)):
            file.write(f"{word} {form % tuple(row.tolist())}\n".encode())
            if i % AT_ONCE == 0:
                progress(f"writing {path.name}", i, len(vectors))
