"""`nextword embed`: texts as vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import console, emit_json, err, read_lines
from nextword.cli.delivery import refuse_taken
from nextword.cli.options import Device, Json, Precision


def embed(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run folder, or a file of word vectors with --nearest and --analogy."),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(help="One text a line; or a csv, tsv or jsonl, FILE:COLUMN to say which.", show_default=False),
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
    query: Annotated[str, typer.Option("--query", help="Show the lines nearest to this text instead.")] = "",
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

    With --words the file has a tensor for each line, named 0, 1, 2 …: (words, width), or with --layer all (layers,
    words, width); its metadata names the words. A network that reads letters knows any word, seen before or not.

    [dim]Examples[/]
      nextword embed runs/lstm-tiny lines.txt --out vectors.npy
      nextword embed runs/lstm-tiny lines.txt --query "the king of Israel"
      nextword embed runs/bert-tiny reviews.csv:review --query "a waste of time"
      nextword embed runs/bert-tiny lines.txt --groups 8 -k 3
      nextword embed runs/bert-tiny lines.txt --layer -4: --pool first --out vectors.npy
      nextword embed runs/elmo-wiki lines.txt --words --layer all --out vectors.safetensors
      nextword embed runs/word2vec-tiny --nearest function -k 5
      nextword embed glove.6B.100d.txt --analogy "king - man + woman"

    Words have vectors in runs of word2vec and GloVe, in files of them, and in any network that reads words.
    """
    import numpy as np
    import torch

    from nextword.contract import NextwordError
    from nextword.language_model import load

    if nearest or analogy:
        _words(run, file, nearest, analogy, k, device, json)
        return
    if file is None:
        raise NextwordError(
            "Embed what? Give a file with one text a line: embed RUN FILE. Or ask for words: embed RUN --nearest WORD."
        )
    column = ""
    if not file.is_file():
        name, _, column = str(file).rpartition(":")
        if not name or not Path(name).is_file():
            raise NextwordError(f"There is no file {file}.")
        file = Path(name)
    numbered = [(i, line) for i, line in enumerate(_texts(file, column), 1) if words or line.strip()]
    numbers, lines = [i for i, _ in numbered], [line for _, line in numbered]  # of words blank ones have a tensor, too
    if not any(line.strip() for line in lines):
        raise NextwordError(f"{file} has no line to embed.")
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
    target = out or file.with_suffix(".safetensors" if words else ".npy")
    if words and target.suffix != ".safetensors":
        raise NextwordError(f"--out {target}: with --words each line has a tensor of its own, in a .safetensors file.")
    if not query and not groups and target.suffix not in (".npy", ".safetensors"):
        raise NextwordError(f"--out {target}: vectors are written as .npy or .safetensors.")
    if not query and not groups and not target.parent.is_dir():
        raise NextwordError(f"--out {target}: there is no folder {target.parent}.")
    if not query and not groups:
        refuse_taken("--out", target)
    lm = load(run, device, precision)
    pool = pool or "mean"
    if words:
        _write_words(lm, lines, layer, target, json)
        return
    vectors = lm.embed([*lines, query] if query else lines, layer, pool)
    _note(lm, lines)
    if query:
        unit = torch.nn.functional.normalize(vectors, dim=1)
        near = (unit[:-1] @ unit[-1]).topk(min(k, len(lines)))
        found = list(zip(near.values.tolist(), near.indices.tolist(), strict=True))
        if json:
            rows = [{"similarity": s, "line": numbers[i], "text": lines[i]} for s, i in found]
            emit_json({"query": query, "layer": layer, "pool": pool, "lines": rows})
            return
        for similarity, i in found:
            console.print(f"{similarity:6.3f}  {numbers[i]:>6}  {lines[i]}", markup=False)
        return
    if groups:
        _show_groups(vectors, lines, numbers, groups, k, json)
        return
    if target.suffix == ".npy":
        np.save(target, vectors.numpy())
    else:
        from safetensors.torch import save_file

        save_file({"vectors": vectors}, str(target))
    facts = {"file": str(target), "texts": len(lines), "width": vectors.shape[1], "layer": layer, "pool": pool}
    if json:
        emit_json(facts)
    else:
        blank = numbers[-1] - len(lines)
        left = f"; {blank:,} blank {'line has' if blank == 1 else 'lines have'} none" if blank else ""
        console.print(f"{len(lines):,} vectors of width {vectors.shape[1]} → {target}{left}")


def _texts(file: Path, column: str) -> list[str]:
    """The lines of a file; of a table its texts, row by row."""
    from nextword.contract import NextwordError
    from nextword.corpora.decoding import plain_name
    from nextword.transfer.tables import DELIMITERS, JSON_LINES, Columns, guess, read_table

    if Path(plain_name(file)).suffix.lower() not in (*DELIMITERS, *JSON_LINES):
        if column:
            raise NextwordError(f"{file} has one text a line, and no column {column!r}. Leave :{column} out.")
        return read_lines(file, blank=True)
    table = read_table(file)
    found = guess(table, Columns(column), labelled=False).text
    if not column:
        err.print(f"[yellow]·[/] texts are read from '{escape(found)}': {file}:COLUMN names another", soft_wrap=True)
    for note in table.notes:
        err.print(f"[yellow]·[/] {escape(note)}", soft_wrap=True)
    return table.column(found)


def _show_groups(vectors: Any, lines: Sequence[str], numbers: Sequence[int], groups: int, k: int, json: bool) -> None:
    """Each group with its lines, those nearest to its centre first; k of them, or as JSON all."""
    from nextword.metrics.groups import grouped

    belongs, cosines = grouped(vectors, groups)
    orders = []
    for group in range(groups):
        inside = (belongs == group).nonzero().flatten()
        orders.append(inside[cosines[inside].argsort(descending=True)].tolist())
    if json:
        row = lambda i: {"line": numbers[i], "similarity": cosines[i].item(), "text": lines[i]}  # noqa: E731
        emit_json({"groups": [[row(i) for i in order] for order in orders]})
        return
    for group, order in enumerate(orders):
        console.print(f"[bold]group {group}[/] · {len(order):,} {'line' if len(order) == 1 else 'lines'}")
        for i in order[:k]:
            console.print(f"{cosines[i].item():6.3f}  {numbers[i]:>6}  {lines[i]}", markup=False)


def _write_words(lm: Any, lines: Sequence[str], layer: str, target: Path, json: bool) -> None:
    """A tensor a line; the words, as JSON, in the metadata."""
    from json import dumps

    from safetensors.torch import save_file

    found = lm.embed_words(lines, layer)
    _note(lm, lines)
    tensors = {str(i): one.vectors.contiguous() for i, one in enumerate(found)}
    save_file(tensors, str(target), metadata={"words": dumps([one.words for one in found], ensure_ascii=False)})
    count, width = sum(len(one.words) for one in found), found[0].vectors.shape[-1]
    if json:
        emit_json({"file": str(target), "texts": len(lines), "words": count, "width": width, "layer": layer})
    else:
        some = "line" if len(lines) == 1 else "lines"
        console.print(f"{count:,} words of {len(lines):,} {some}, vectors of width {width} → {target}")


def _words(run: str, file: Path | None, nearest: str, analogy: str, k: int, device: str, json: bool) -> None:
    """The words nearest to a word, or to a sum of words."""
    from nextword.contract import NextwordError
    from nextword.corpora.vectors import parse_sum, read_vectors
    from nextword.language_model import load
    from nextword.models.static import word_table

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


def _note(lm: Any, lines: Sequence[str]) -> None:
    """Says so where lines have not fitted into the window."""
    if not lm.two_sided:
        return
    long = sum(len(encoding) > lm.room for encoding in lm.tokenizer.encode_batch(list(lines)))
    if long:
        err.print(
            f"note: {long:,} of {len(lines):,} lines are longer than the window of {lm.room:,} tokens: each was read "
            "in equal parts that do not see each other, and pooled over all of them",
            soft_wrap=True,
        )
