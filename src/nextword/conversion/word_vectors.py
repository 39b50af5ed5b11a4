"""Text files of word vectors: read them into runs, write the word vectors of a run.

    .vec    word2vec's format (gensim, fastText): the first line has the number of words and the vector size
    .txt    GloVe's format: no such line

Both may be compressed (.gz, .bz2, .xz, .zst). Nine digits restore every float32 exactly; --set vectors.digits=4 halves
the file. A run read from a file has the tokenizer `lexicon` with the file's words. What the vectors were trained on,
and with what method, is unknown: they can be used, not trained further.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.conversion.base import (
    RUN_FORMAT,
    Conversion,
    Progress,
    check_changes,
    create_run,
    describe_origin,
    folder_size,
    last_value,
    network_facts,
    open_run,
    require_bool,
)
from nextword.core.errors import DataError
from nextword.core.io import write_atomically
from nextword.data.word_vectors import Vectors, has_vectors, read_vectors
from nextword.models import model_class
from nextword.models.base import WORD_TOKENIZERS, Network, word_vectors
from nextword.models.elmo import ELMo
from nextword.models.ngram import NGram
from nextword.recipe import network_config, parse_recipe
from nextword.run_folder import RunFolder, checksum
from nextword.tokenizers import vocabulary
from nextword.tokenizers.ptb_words import EOS, UNKNOWN, Lexicon

# By whether a file has a header line
NAMES = {True: "a word2vec text file", False: "a GloVe text file"}
SUFFIXES = {True: ".vec", False: ".txt"}
SLUGS = {True: "word2vec", False: "glove"}  # the model that a file is read as
COMPRESSED = ("", ".gz", ".bz2", ".xz", ".zst")
MAX_DIGITS = 9
REPORT_INTERVAL = 4096  # words between two progress reports


def is_target(path: Path, has_header: bool) -> bool:
    return path.name.lower().endswith(tuple(SUFFIXES[has_header] + packed for packed in COMPRESSED))


def is_source(path: Path, has_header: bool) -> bool:
    return path.is_file() and has_vectors(path) == has_header


def read(source: Path, target: Path, changes: Sequence[str], progress: Progress, has_header: bool) -> Conversion:
    check_changes(changes, ("tokenizer.lower",))
    progress(f"reading {source.name}", 0, None)
    vectors = read_vectors(source)
    usable = [i for i, word in enumerate(vectors.words) if word.split() == [word] and word not in (UNKNOWN, EOS)]
    words, notes = [vectors.words[i] for i in usable], []
    if not words:
        raise DataError(f"{source} has no vector for a word without spaces.", path=source)
    if len(usable) < len(vectors):
        notes.append(
            f"{len(vectors) - len(usable):,} names that contain a space or are {UNKNOWN} or {EOS} are left out."
        )
    if vectors.repeated:
        notes.append(f"{vectors.repeated:,} lines repeat a word: the first one counts.")
    tables = {
        "paper": {"slug": SLUGS[has_header], "title": f"trained elsewhere and read from {source.name}"},
        "tokenizer": {"kind": "lexicon", "lower": all(word == word.lower() for word in words)},
        "model": {"width": vectors.width},
        "phase": [{"epochs": 1}],
    }
    recipe = parse_recipe(tables, source.name, changes)
    require_bool(recipe, "lower")
    tokenizer = Lexicon(words, recipe.tokenizer["lower"])
    matrix = np.zeros((len(tokenizer), vectors.width), np.float32)
    matrix[len(tokenizer) - len(words) :] = vectors.matrix[usable]
    cls: Any = model_class(recipe.slug)
    network = cls.from_vectors(network_config(recipe), vocabulary(tokenizer), torch.from_numpy(matrix))
    progress(f"writing {target.name}", 0, None)
    origin = describe_origin(source, NAMES[has_header], recipe, checksum=checksum(source))
    num_parameters = create_run(target, recipe, tokenizer, lambda scratch: network, **origin)
    facts = network_facts(num_parameters, recipe, tokenizer)
    use = f"nextword embed {target} --nearest {_example_word(words)}"
    return Conversion(target, RUN_FORMAT, folder_size(target), facts, use, notes)


def can_write(run: RunFolder, cls: type[Network]) -> bool:
    """Whether the run has a vector per word, as far as its recipe says; `word_vectors` looks at the network."""
    has_words = run.recipe.tokenizer.get("kind") in WORD_TOKENIZERS
    return has_words and not issubclass(cls, (NGram, ELMo))


def write(source: Path, target: Path, changes: Sequence[str], progress: Progress, has_header: bool) -> Conversion:
    check_changes(changes, ("vectors.digits",))
    digits = last_value(changes, str(MAX_DIGITS), list(map(str, range(1, MAX_DIGITS + 1))))
    opened = open_run(source, lambda run, cls: None)  # any network may have a table of words: `word_vectors` checks
    vectors = word_vectors(opened.network, opened.tokenizer, str(source))
    write_vectors(target, vectors, has_header, int(digits), progress)
    facts = {"words": len(vectors), "width": vectors.width}
    use = f"nextword embed {target} --nearest {_example_word(vectors.words)}"
    return Conversion(target, NAMES[has_header], target.stat().st_size, facts, use)


def write_vectors(
    path: Path,
    vectors: Vectors,
    has_header: bool,
    digits: int = MAX_DIGITS,
    progress: Progress = lambda label, done, total: None,
) -> None:
    """Write one line per word; the file appears when it is complete."""
    line_format = " ".join([f"%.{digits}g"] * vectors.width)
    with write_atomically(path) as file:
        if has_header:
            file.write(f"{len(vectors)} {vectors.width}\n".encode())
        for i, (word, row) in enumerate(zip(vectors.words, vectors.matrix, strict=True)):
            file.write(f"{word} {line_format % tuple(row.tolist())}\n".encode())
            if i % REPORT_INTERVAL == 0:
                progress(f"writing {path.name}", i, len(vectors))


def _example_word(words: Sequence[str]) -> str:
    """A word that is easy to type."""
    return next((word for word in words if len(word) > 2 and word.isalpha()), "WORD")
