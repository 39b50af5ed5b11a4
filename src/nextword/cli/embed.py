"""`nextword embed`: vectors of texts and words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextword.cli.console import (
    Device,
    Json,
    Precision,
    Top,
    console,
    emit_json,
    print_warnings,
    refuse_options,
    shorten,
)

if TYPE_CHECKING:
    from nextword.lm.base import TextModel
    from nextword.lm.text_files import TextFile

SHOWN_LENGTH = 160  # characters of a text


def embed(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder; for --nearest and --analogy also a file of word vectors.")
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="One text per line (-: stdin), or csv, tsv or jsonl; FILE:COLUMN names the text column.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="New .npy or .safetensors file. Default: FILE with another suffix."),
    ] = None,
    layer: Annotated[
        str,
        typer.Option("--layer", help="0: embedding; -1: last; mean; -4: (last four); 1=0.3,5=0.7 (weighted); all."),
    ] = "-1",
    pool: Annotated[
        str, typer.Option("--pool", help="mean (default), text (no special tokens), first (\\[CLS]), last or max.")
    ] = "",
    words: Annotated[bool, typer.Option("--words", help="One vector per word instead of one per line.")] = False,
    query: Annotated[str, typer.Option("--query", help="Show the lines nearest to this text.")] = "",
    clusters: Annotated[int, typer.Option("--clusters", help="Cluster the lines into this many groups.", min=0)] = 0,
    nearest: Annotated[str, typer.Option("--nearest", help="Show the words nearest to this word.")] = "",
    analogy: Annotated[str, typer.Option("--analogy", help="Solve a word analogy, such as 'king - man + woman'.")] = "",
    k: Top = 10,
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Write a vector for every line or word of a file; find the nearest lines or words.

    A row of a table without a text gets a vector of zeros; a blank line of a text file gets none. With --query and
    --clusters, vectors are written only if you give --out.

    With --words, the file has one tensor per line, named 0, 1, 2 …: (words, width), or with --layer all (layers, words,
    width). Its metadata has the words.

    Word vectors for --nearest and --analogy come from any network with a word-level vocabulary, such as word2vec and
    GloVe, and from files of word vectors.

    [dim]Examples[/]
      nextword embed runs/lstm-tiny lines.txt --out vectors.npy
      nextword embed runs/lstm-tiny lines.txt --query "the king of Israel"
      cat notes/*.txt | nextword embed runs/lstm-tiny - --out vectors.npy
      nextword embed runs/bert-tiny reviews.csv:review --query "a waste of time"
      nextword embed runs/bert-tiny lines.txt --clusters 8 -k 3
      nextword embed runs/bert-tiny lines.txt --layer -4: --pool first --out vectors.npy
      nextword embed runs/elmo-wiki lines.txt --words --layer all --out vectors.safetensors
      nextword embed runs/word2vec-tiny --nearest function -k 5
      nextword embed glove.6B.100d.txt --analogy "king - man + woman"
    """
    from nextword.lm.loading import load
    from nextword.lm.text_files import read_text_file

    text_options = {"--out": out, "--query": query, "--clusters": clusters, "--words": words}
    if nearest or analogy:
        one = "--nearest WORD" if nearest else "--analogy SUM"
        refuse_options({"FILE": file, **text_options, "--analogy": nearest and analogy}, f"{one} needs a run only.")
        _print_nearest_words(run, nearest, analogy, k, device, json)
        return
    _check_options(file, layer, pool, query, clusters, words)
    assert file is not None
    texts = read_text_file(file)
    target = None if out is None and (query or clusters) else _check_target(out, texts.path, words)
    notes = [*texts.notes, *([] if words else texts.describe_empty())]
    print_warnings(notes)
    lm = load(run, device, precision)
    if words and target:
        _embed_words(lm, texts, layer, target, json)
    else:
        _embed_lines(lm, texts, layer, pool or "mean", query, clusters, k, target, notes, json)


def _check_options(file: Path | None, layer: str, pool: str, query: str, clusters: int, words: bool) -> None:
    """Refuse options that do not go together."""
    from nextword.core.errors import InvalidSetting

    if file is None:
        raise InvalidSetting(
            "Give a file with one text per line: nextword embed RUN FILE. Or ask for words: --nearest WORD.", key="file"
        )
    if words:
        options = {"--pool": pool, "--query": query, "--clusters": clusters}
        refuse_options(options, "--words makes one vector per word, not per line.")
    elif layer == "all":
        raise InvalidSetting("--layer all needs --words.", key="layer", value=layer)
    if query:
        refuse_options({"--clusters": clusters}, "--query ranks the lines.")


def _check_target(out: Path | None, file: Path, words: bool) -> Path:
    """Where to write the vectors: a new file."""
    from nextword.core.errors import InvalidSetting, MissingFile, RunError
    from nextword.data.files import STDIN

    if out is None and str(file) == STDIN:
        raise InvalidSetting("Texts from standard input need --out FILE.", key="out")
    target = out or file.with_suffix(".safetensors" if words else ".npy")
    if words and target.suffix != ".safetensors":
        raise InvalidSetting(f"--out {target}: --words writes .safetensors.", key="out", value=str(target))
    if target.suffix not in (".npy", ".safetensors"):
        raise InvalidSetting(f"--out {target}: use .npy or .safetensors.", key="out", value=str(target))
    if not target.parent.is_dir():
        raise MissingFile(f"--out {target}: there is no folder {target.parent}.", path=target.parent)
    if target.exists():
        raise RunError(f"--out {target} exists already. Choose another name, or remove it.", path=target)
    return target


def _embed_lines(
    lm: TextModel,
    texts: TextFile,
    layer: str,
    pool: str,
    query: str,
    clusters: int,
    k: int,
    target: Path | None,
    notes: list[str],
    json: bool,
) -> None:
    from nextword.lm.embedding import EmbeddingMixin
    from nextword.lm.text_files import cluster_texts, describe_long_texts, nearest_texts, write_vectors
    from nextword.tasks.unknown_words import unknown_word_notes

    lines = texts.filled_texts
    unknown = [*unknown_word_notes(lm, lines), *(unknown_word_notes(lm, [query], " of the query") if query else ())]
    print_warnings(unknown)
    vectors = lm.embed([*lines, query] if query else lines, layer, pool)
    long_notes = describe_long_texts(lm, lines) if isinstance(lm, EmbeddingMixin) else []
    print_warnings(long_notes)
    result: dict[str, Any] = {}
    if query:
        rows = nearest_texts(texts, vectors[:-1], vectors[-1], k)
        result = {"query": query, "layer": layer, "pool": pool, "lines": rows}
        if not json:
            _print_rows(rows)
    elif clusters:
        result["clusters"] = cluster_texts(texts, vectors, clusters)
        if not json:
            for i, members in enumerate(result["clusters"]):
                console.print(f"[bold]cluster {i}[/] · {len(members):,} {'line' if len(members) == 1 else 'lines'}")
                _print_rows(members[:k])
    if target:
        aligned = texts.align(vectors[: len(lines)])
        write_vectors(aligned, target)
        size = {"texts": len(aligned), "width": aligned.shape[1]}
        result |= {"file": str(target), **size, "layer": layer, "pool": pool}
        if not json:
            _print_text(f"wrote {size['texts']:,} vectors of size {size['width']} → {target}")
    if json:
        emit_json({**result, "empty": texts.empty, "notes": [*notes, *unknown, *long_notes]})


def _embed_words(lm: TextModel, texts: TextFile, layer: str, target: Path, json: bool) -> None:
    from nextword.lm.embedding import EmbeddingMixin
    from nextword.lm.text_files import describe_long_texts, write_word_vectors

    lines = lm.embed_words(texts.texts, layer)
    write_word_vectors(lines, target)
    num_lines, num_words, width = len(lines), sum(len(line.words) for line in lines), lines[0].vectors.shape[-1]
    notes = describe_long_texts(lm, texts.texts) if isinstance(lm, EmbeddingMixin) else []
    print_warnings(notes)
    if json:
        facts = {"file": str(target), "texts": num_lines, "words": num_words, "width": width, "layer": layer}
        emit_json({**facts, "empty": texts.empty, "notes": [*texts.notes, *notes]})
    else:
        noun = "line" if num_lines == 1 else "lines"
        _print_text(f"wrote {num_words:,} word vectors of size {width}, of {num_lines:,} {noun} → {target}")


def _print_nearest_words(run: str, nearest: str, analogy: str, k: int, device: str, json: bool) -> None:
    from nextword.core.errors import RunError
    from nextword.data.word_vectors import parse_sum, read_vectors
    from nextword.lm.loading import load
    from nextword.models.base import word_vectors
    from nextword.run_folder import is_run

    weights = {nearest: 1.0} if nearest else parse_sum(analogy)
    if is_run(run):
        lm: TextModel = load(run, device)
        vectors = word_vectors(lm.network, lm.tokenizer, run)
    elif Path(run).is_dir():
        raise RunError(f"{run} is not a run folder: it has no manifest.json. `nextword runs` lists yours.", path=run)
    else:
        vectors = read_vectors(run)
    words = vectors.nearest(weights, k)
    if json:
        rows = [{"word": word, "similarity": cosine} for word, cosine in words]
        emit_json({"query": nearest or analogy, "vectors": run, "words": rows})
        return
    for word, cosine in words:
        console.print(f"{cosine:6.3f}  {word}", markup=False)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        _print_text(f"{row['similarity']:6.3f}  {row['line']:>6}  {shorten(row['text'], SHOWN_LENGTH)}")


def _print_text(text: str) -> None:
    console.print(text, soft_wrap=True, emoji=False, markup=False)
