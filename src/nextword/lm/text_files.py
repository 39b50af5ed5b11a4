"""Embed the texts of a file: read them, find those nearest to a query, cluster them, write the vectors.

A text file has one text per line; blank lines get no vector. In a csv, tsv or jsonl file every row gets a vector, zeros
if its text is empty, so that vectors and rows correspond.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from nextword.core.errors import DataError, MissingFile
from nextword.data.files import FROM_STDIN, STDIN, plain_name, read_lines
from nextword.data.tables import (
    DELIMITERS,
    TABLE_JSON_SUFFIXES,
    Columns,
    column_index,
    guess_columns,
    read_table,
    split_header,
)
from nextword.lm.embedding import EmbeddingMixin
from nextword.metrics.clustering import cluster

MAX_ROWS_NAMED = 5  # rows without a text, in a note


@dataclass(frozen=True)
class TextFile:
    """The texts of a file, in order."""

    path: Path
    texts: list[str]
    is_table: bool
    notes: list[str]

    @cached_property
    def filled(self) -> list[int]:
        """Indices of the texts that are not blank."""
        return [i for i, text in enumerate(self.texts) if text.strip()]

    @cached_property
    def empty(self) -> list[int]:
        """Numbers, from 1, of the rows or lines without a text."""
        return [i for i, text in enumerate(self.texts, 1) if not text.strip()]

    @property
    def filled_texts(self) -> list[str]:
        return [self.texts[i] for i in self.filled]

    def describe_empty(self) -> list[str]:
        """A note about rows or lines without a text."""
        n = len(self.empty)
        if not n:
            return []
        if not self.is_table:
            return [f"{n:,} blank {'line has' if n == 1 else 'lines have'} no vector"]
        numbers = ", ".join(f"{i:,}" for i in self.empty[:MAX_ROWS_NAMED]) + (" …" if n > MAX_ROWS_NAMED else "")
        if n == 1:
            return [f"1 of {len(self.texts):,} rows has no text (row {numbers}): its vector is zero"]
        return [f"{n:,} of {len(self.texts):,} rows have no text (rows {numbers}): their vectors are zero"]

    def align(self, vectors: Tensor) -> Tensor:
        """The vectors of the filled texts, with zeros for the empty rows of a table."""
        if not self.is_table:
            return vectors
        aligned = vectors.new_zeros(len(self.texts), vectors.shape[1])
        aligned[self.filled] = vectors
        return aligned

    def result(self, index: int, similarity: float) -> dict[str, Any]:
        """The filled text of this index with its similarity, as in the output of `--json`."""
        at = self.filled[index]
        return {"similarity": similarity, "line": at + 1, "text": self.texts[at]}


def read_text_file(spec: Path) -> TextFile:
    """Read FILE, FILE:COLUMN of a table, or standard input (`-`)."""
    path, column, header = spec, "", None
    if str(path) != STDIN and not path.is_file():
        place, header = split_header(str(path))
        name, _, column = (place, "", "") if Path(place).is_file() else place.rpartition(":")
        if not name or not Path(name).is_file():
            raise MissingFile(f"There is no file {spec}.", path=spec)
        path = Path(name)
    if Path(plain_name(path)).suffix.lower() not in (*DELIMITERS, *TABLE_JSON_SUFFIXES):
        if column:
            raise DataError(f"{path} has one text per line and no columns. Leave :{column} out.", path=path)
        file = TextFile(path, [line.rstrip("\n") for line in read_lines(path)], False, [])
    else:
        table = read_table(path, header=header, expected=(column,) if column else ())
        if column:
            column_index(column, table.header, str(path), f"Name one as {path}:COLUMN.")
        chosen = guess_columns(table, Columns(column), labeled=False).text
        note = [] if column else [f"texts are in column '{chosen}'; name another as {path}:COLUMN"]
        file = TextFile(path, table.column(chosen), True, [*note, *table.notes])
    if not file.filled:
        name = FROM_STDIN if str(path) == STDIN else str(path)
        raise DataError(f"{name} has no {'row with a text' if file.is_table else 'line'} to embed.", path=path)
    return file


# ------------------------------------------------------------------------------------------------ search


def nearest_texts(file: TextFile, vectors: Tensor, query: Tensor, k: int) -> list[dict[str, Any]]:
    """The k texts with the largest cosine similarity to the query's vector."""
    unit = F.normalize(vectors, dim=1)
    top = (unit @ F.normalize(query, dim=0)).topk(min(k, len(unit)))
    return [file.result(i, value) for value, i in zip(top.values.tolist(), top.indices.tolist(), strict=True)]


def cluster_texts(file: TextFile, vectors: Tensor, num_groups: int) -> list[list[dict[str, Any]]]:
    """Groups of similar texts, the largest first; in each, the texts nearest to its center first."""
    assignment, cosines = cluster(vectors, num_groups)
    groups = []
    for group in range(num_groups):
        members = (assignment == group).nonzero().flatten()
        order = members[cosines[members].argsort(descending=True)].tolist()
        groups.append([file.result(i, cosines[i].item()) for i in order])
    return groups


# ------------------------------------------------------------------------------------------------ files of vectors


def write_vectors(vectors: Tensor, target: Path) -> None:
    """Write (N, D) vectors as .npy, or as the tensor `vectors` of a .safetensors file."""
    if target.suffix == ".npy":
        np.save(target, vectors.numpy())
    else:
        save_file({"vectors": vectors}, str(target))


def write_word_vectors(words: Sequence[Any], target: Path) -> None:
    """Write one tensor per text, named 0, 1, …; the metadata `words` has the words as JSON."""
    tensors = {str(i): text.vectors.contiguous() for i, text in enumerate(words)}
    names = json.dumps([text.words for text in words], ensure_ascii=False)
    save_file(tensors, str(target), metadata={"words": names})


def describe_long_texts(lm: EmbeddingMixin, texts: Sequence[str]) -> list[str]:
    """A note if texts are longer than the window of a bidirectional model, which then reads them in parts."""
    if not lm.is_bidirectional:
        return []
    num_long = sum(len(encoding) > lm.room for encoding in lm.tokenizer.encode_batch(list(texts)))
    if not num_long:
        return []
    return [
        f"{num_long:,} of {len(texts):,} lines are longer than the window of {lm.room:,} tokens: each was read in "
        "equal parts, and the vectors of all parts were pooled"
    ]
