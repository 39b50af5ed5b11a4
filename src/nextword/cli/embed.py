"""`nextword embed`: texts as vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Precision, console, emit_json, err, read_lines
from nextword.cli.predict import refuse_taken

NAMED = 5  # rows without a text, by their numbers
LETTERS = 160  # of a text that is shown


def embed(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run folder, or a file of word vectors with --nearest and --analogy."),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            help="One text a line (- for standard input); or a csv, tsv or jsonl, FILE:COLUMN to say which.",
            show_default=False,
        ),
    ] = None,
    layer: Annotated[
        str, typer.Option("--layer", help="0: the embedding; -1: the last; mean; -4: (the last four); 1=0.3,5=0.7.")
    ] = "-1",
    pool: Annotated[
        str,
        typer.Option("--pool", help="mean (as usual), text (no frame), first (\\[CLS]), last or max of the vectors."),
    ] = "",
    words: Annotated[
        bool, typer.Option("--words", help="Vectors of each word in its line, not of the line; --layer may be all.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help=".npy or .safetensors. Default: FILE.npy; of words FILE.safetensors.")
    ] = None,
    query: Annotated[str, typer.Option("--query", help="Show the lines nearest to this text.")] = "",
    groups: Annotated[
        int, typer.Option("--groups", help="Put like lines into so many groups, and show those.", min=0)
    ] = 0,
    nearest: Annotated[str, typer.Option("--nearest", help="Show the words nearest to this word instead.")] = "",
    analogy: Annotated[str, typer.Option("--analogy", help="The words nearest to a sum: king - man + woman.")] = "",
    k: Annotated[int, typer.Option("-k", help="How many lines or words to show.", min=1)] = 10,
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """The vector of every line, or of every word in it; the lines nearest to a query, or the words nearest to a word.

    Of a csv, tsv or jsonl every row has a vector, zeros where it has no text; of plain lines those that are not blank.
    With --query and --groups vectors are written only where --out says so.

    With --words the file has a tensor for each line, named 0, 1, 2 …: (words, width), or with --layer all (layers,
    words, width); its metadata names the words. A network that reads letters knows any word, seen before or not.

    [dim]Examples[/]
      nextword embed runs/lstm-tiny lines.txt --out vectors.npy
      nextword embed runs/lstm-tiny lines.txt --query "the king of Israel"
      cat notes/*.txt | nextword embed runs/lstm-tiny - --out vectors.npy
      nextword embed runs/bert-tiny reviews.csv:review --query "a waste of time"
      nextword embed runs/bert-tiny lines.txt --groups 8 -k 3
      nextword embed runs/bert-tiny lines.txt --layer -4: --pool first --out vectors.npy
      nextword embed runs/elmo-wiki lines.txt --words --layer all --out vectors.safetensors
      nextword embed runs/word2vec-tiny --nearest function -k 5
      nextword embed glove.6B.100d.txt --analogy "king - man + woman"

    Words have vectors in runs of word2vec and GloVe, in files of them, and in any network that reads words.
    """
    from nextword.core.errors import NextwordError
    from nextword.lm.loading import load
    from nextword.tasks.missing_words import unknown_in

    if nearest or analogy:
        if out or query or groups or words:
            raise NextwordError(
                "--nearest and --analogy show words. --out, --words, --query, --groups are for texts: leave them out."
            )
        _words(run, file, nearest, analogy, k, device, json)
        return
    if file is None:
        raise NextwordError(
            "Embed what? Give a file with one text a line: embed RUN FILE. Or ask for words: embed RUN --nearest WORD."
        )
    given = _read(file)
    if layer == "all" and not words:
        raise NextwordError("--layer all puts the layers of each word side by side: it goes with --words.")
    if words and pool:
        raise NextwordError("--pool makes one vector of a line, and --words gives one for each word. Leave one out.")
    if words and (query or groups):
        raise NextwordError(
            "--query and --groups compare lines, and --words gives vectors of words. Leave one of them out."
        )
    if query and groups:
        raise NextwordError("--query asks for lines near a text, --groups for lines near each other. Leave one out.")
    target = None if out is None and (query or groups) else _target(out, given.file, words)
    notes = [*given.notes, *(given.without if not words else ())]
    _note(notes)
    lm = load(run, device, precision)
    pool = pool or "mean"
    if words and target:
        _write_words(lm, given, layer, target, json)
        return
    lines = [given.texts[i] for i in given.filled]
    lacking = [*unknown_in(lm, lines), *(unknown_in(lm, [query], " of the query") if query else ())]
    _note(lacking)
    notes += lacking
    found = lm.embed([*lines, query] if query else lines, layer, pool)
    vectors = found[: len(lines)]
    notes += _long(lm, lines)
    facts: dict[str, Any] = {}
    shown: list[str] = []
    if query:
        facts = {"query": query, "layer": layer, "pool": pool}
        facts["lines"], shown = _nearest(vectors, found[-1], given, k)
    elif groups:
        facts["groups"], shown = _groups(vectors, given, groups, k)
    if target:
        kept = given.placed(vectors)
        _write(kept, target)
        facts |= {"file": str(target), "texts": len(kept), "width": kept.shape[1], "layer": layer, "pool": pool}
        shown.append(escape(f"{len(kept):,} vectors of width {kept.shape[1]} → {target}"))
    _say(facts, shown, given, notes, json)


@dataclass(frozen=True)
class _Given:
    """Texts as they stand in a file; of a table every row has a vector, of lines those that are not blank."""

    file: Path
    texts: list[str]
    table: bool
    notes: list[str]

    @cached_property
    def filled(self) -> list[int]:
        return [i for i, text in enumerate(self.texts) if text.strip()]

    @cached_property
    def empty(self) -> list[int]:
        """The rows or lines without a text, counted from 1."""
        return [i for i, text in enumerate(self.texts, 1) if not text.strip()]

    @property
    def without(self) -> list[str]:
        """What is to be said of those."""
        n = len(self.empty)
        if not n:
            return []
        if not self.table:
            return [f"{n:,} blank {'line has' if n == 1 else 'lines have'} no vector"]
        which = ", ".join(f"{i:,}" for i in self.empty[:NAMED]) + (" …" if n > NAMED else "")
        one = n == 1
        return [
            f"{n:,} of {len(self.texts):,} rows {'has' if one else 'have'} no text (row{'' if one else 's'} {which}): "
            f"{'its vector is' if one else 'their vectors are'} zeros, near to nothing"
        ]

    def placed(self, vectors: Any) -> Any:
        """Of a table a vector a row, zeros where there is no text: whose cosine with anything is 0."""
        if not self.table:
            return vectors
        kept = vectors.new_zeros(len(self.texts), vectors.shape[1])
        kept[self.filled] = vectors
        return kept


def _read(file: Path) -> _Given:
    """The lines of a file or of standard input; of a table its texts, row by row."""
    from nextword.core.errors import NextwordError
    from nextword.data.files import FROM_STDIN, STDIN, plain_name
    from nextword.data.tables import DELIMITERS, MAX_COLUMNS_NAMED, TABLE_JSON_SUFFIXES, Columns, guess, read_table

    column = ""
    if str(file) != STDIN and not file.is_file():
        name, _, column = str(file).rpartition(":")
        if not name or not Path(name).is_file():
            raise NextwordError(f"There is no file {file}.")
        file = Path(name)
    if Path(plain_name(file)).suffix.lower() not in (*DELIMITERS, *TABLE_JSON_SUFFIXES):
        if column:
            raise NextwordError(f"{file} has one text a line, and no column {column!r}. Leave :{column} out.")
        given = _Given(file, read_lines(file, blank=True), False, [])
    else:
        table = read_table(file)
        if column and column not in table.header:
            there = ", ".join(table.header[:MAX_COLUMNS_NAMED])
            raise NextwordError(f"{file} has no column '{column}'; it has {there}. Name one of them: {file}:COLUMN")
        found = guess(table, Columns(column), labelled=False).text
        how = [] if column else [f"texts are read from '{found}': {file}:COLUMN names another"]
        given = _Given(file, table.column(found), True, [*how, *table.notes])
    if not given.filled:
        name = FROM_STDIN if str(file) == STDIN else str(file)
        raise NextwordError(f"{name} has no {'row with a text' if given.table else 'line'} to embed.")
    return given


def _target(out: Path | None, file: Path, words: bool) -> Path:
    """Where vectors are written to: a file that is not there yet."""
    from nextword.core.errors import NextwordError
    from nextword.data.files import STDIN

    if out is None and str(file) == STDIN:
        raise NextwordError("What comes by standard input has no name to write beside: say where, with --out FILE.")
    target = out or file.with_suffix(".safetensors" if words else ".npy")
    if words and target.suffix != ".safetensors":
        raise NextwordError(f"--out {target}: with --words each line has a tensor of its own, in a .safetensors file.")
    if target.suffix not in (".npy", ".safetensors"):
        raise NextwordError(f"--out {target}: vectors are written as .npy or .safetensors.")
    if not target.parent.is_dir():
        raise NextwordError(f"--out {target}: there is no folder {target.parent}.")
    refuse_taken("--out", target)
    return target


def _write(vectors: Any, target: Path) -> None:
    if target.suffix == ".npy":
        import numpy as np

        np.save(target, vectors.numpy())
    else:
        from safetensors.torch import save_file

        save_file({"vectors": vectors}, str(target))


def _note(notes: Sequence[str]) -> None:
    for note in notes:
        err.print(f"[yellow]·[/] {escape(note)}", soft_wrap=True)


def _say(facts: dict[str, Any], shown: Sequence[str], given: _Given, notes: Sequence[str], json: bool) -> None:
    if json:
        emit_json({**facts, "empty": given.empty, "notes": notes})
        return
    for line in shown:
        console.print(line, soft_wrap=True, emoji=False)


def _nearest(vectors: Any, query: Any, given: _Given, k: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The texts nearest to a query, and how they are shown."""
    import torch

    unit = torch.nn.functional.normalize(vectors, dim=1)
    near = (unit @ torch.nn.functional.normalize(query, dim=0)).topk(min(k, len(unit)))
    rows = [_row(given, i, value) for value, i in zip(near.values.tolist(), near.indices.tolist(), strict=True)]
    return rows, [_shown(row) for row in rows]


def _groups(vectors: Any, given: _Given, groups: int, k: int) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """Each group with its texts, those nearest to its centre first; k of them are shown."""
    from nextword.metrics.clustering import grouped

    belongs, cosines = grouped(vectors, groups)
    found, shown = [], []
    for group in range(groups):
        inside = (belongs == group).nonzero().flatten()
        order = inside[cosines[inside].argsort(descending=True)].tolist()
        found.append([_row(given, i, cosines[i].item()) for i in order])
        shown.append(f"[bold]group {group}[/] · {len(order):,} {'line' if len(order) == 1 else 'lines'}")
        shown += map(_shown, found[-1][:k])
    return found, shown


def _row(given: _Given, at: int, similarity: float) -> dict[str, Any]:
    return {"similarity": similarity, "line": given.filled[at] + 1, "text": given.texts[given.filled[at]]}


def _shown(row: dict[str, Any]) -> str:
    text = " ".join(row["text"].split())  # of a table it may go over lines
    short = text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
    return escape(f"{row['similarity']:6.3f}  {row['line']:>6}  {short}")


def _write_words(lm: Any, given: _Given, layer: str, target: Path, json: bool) -> None:
    """A tensor a line, also of those that are blank; the words, as JSON, in the metadata."""
    from json import dumps

    from safetensors.torch import save_file

    found = lm.embed_words(given.texts, layer)
    tensors = {str(i): one.vectors.contiguous() for i, one in enumerate(found)}
    save_file(tensors, str(target), metadata={"words": dumps([one.words for one in found], ensure_ascii=False)})
    texts, count, width = len(found), sum(len(one.words) for one in found), found[0].vectors.shape[-1]
    facts = {"file": str(target), "texts": texts, "words": count, "width": width, "layer": layer}
    some = "line" if texts == 1 else "lines"
    shown = escape(f"{count:,} words of {texts:,} {some}, vectors of width {width} → {target}")
    _say(facts, [shown], given, [*given.notes, *_long(lm, given.texts)], json)


def _words(run: str, file: Path | None, nearest: str, analogy: str, k: int, device: str, json: bool) -> None:
    """The words nearest to a word, or to a sum of words."""
    from nextword.core.errors import NextwordError
    from nextword.data.word_vectors import parse_sum, read_vectors
    from nextword.lm.loading import load
    from nextword.models.base import word_table

    if file is not None or (nearest and analogy):
        raise NextwordError(
            "--nearest WORD and --analogy SUM each ask for words: give one of them, and no file of texts."
        )
    weights = {nearest: 1.0} if nearest else parse_sum(analogy)
    if (Path(run) / "manifest.json").is_file():
        lm = load(run, device)
        vectors = word_table(lm.network, lm.tokenizer, run)
    elif Path(run).is_dir():
        raise NextwordError(
            f"{run} is a folder without manifest.json, so it is no run. `nextword runs` lists those here."
        )
    else:
        vectors = read_vectors(run)
    found = vectors.nearest(weights, k)
    if json:
        rows = [{"word": word, "similarity": cosine} for word, cosine in found]
        emit_json({"query": nearest or analogy, "vectors": run, "words": rows})
        return
    for word, cosine in found:
        console.print(f"{cosine:6.3f}  {word}", markup=False)


def _long(lm: Any, lines: Sequence[str]) -> list[str]:
    """Says so where lines have not fitted into the window."""
    long = sum(len(one) > lm.room for one in lm.tokenizer.encode_batch(list(lines))) if lm.is_bidirectional else 0
    some = f"{long:,} of {len(lines):,} lines are longer than the window of {lm.room:,} tokens" if long else ""
    how = "each was read in equal parts that do not see each other, and pooled over all of them"
    notes = [f"{some}: {how}"] if some else []
    _note(notes)
    return notes
