"""`nextword evaluate`: how well a run predicts a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nextword.cli.console import console, emit_json, read_lines
from nextword.cli.options import Device, Json, Quiet, Run
from nextword.infinity import number


def evaluate(
    run: Run,
    data: Annotated[str, typer.Option("--data", help="Another text: a path or a name. Default: the run's own.")] = "",
    split: Annotated[
        str, typer.Option("--split", help="train, valid or test. Default: test; a text without splits is scored whole.")
    ] = "",
    context: Annotated[int, typer.Option("--context", help="Look back at most this many tokens.")] = 0,
    stride: Annotated[int, typer.Option("--stride", help="Move on by this many. Default: half the context.")] = 0,
    lines: Annotated[bool, typer.Option("--lines", help="One score a line, to rank sentences.")] = False,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Bits per byte, word and token perplexity on a text, with the context stated.

    Over a closed vocabulary the token perplexity is given with and without line ends and unknown words, side by side.

    [dim]Examples[/]
      nextword evaluate runs/lstm-tiny
      nextword evaluate runs/lstm-tiny --data my.txt
      nextword evaluate runs/lstm-tiny --data sentences.txt --lines
      echo "the cat sat on the mat" | nextword evaluate runs/lstm-tiny --data - --lines
    """
    from nextword.checkpoint import RunFolder
    from nextword.cli.results import measure, show
    from nextword.contract import NextwordError
    from nextword.corpora import open_corpus, open_whole
    from nextword.language_model import load

    if stride and not context:
        raise NextwordError("--stride goes with --context: say how far back to look, too.")
    folder = RunFolder.open(run)
    if lines:
        _rank(run, data, device, json)
        return
    lm = load(run, device)
    own = folder.recipe.phases[-1].data
    if not data and not own:
        raise NextwordError(f"{run} names no text of its own, for it was not trained here. Give one with --data.")
    corpus = open_corpus(own) if not data or data == own else open_whole(data)
    if not split:
        split = next(name for name in ("test", "valid", "train") if name in corpus.splits)
    if split not in corpus.splits:
        raise NextwordError(f"{corpus.name} has no split '{split}'; it has {', '.join(corpus.splits)}.")
    result = measure(lm, folder, corpus, split, context or None, stride or None, quiet=quiet or json)
    if json:
        emit_json(result)
    else:
        show(result)


def _rank(run: str, data: str, device: str, json: bool) -> None:
    from nextword.contract import NextwordError
    from nextword.language_model import load

    if not data:
        raise NextwordError("--lines needs --data: a file with one sentence a line, or - for standard input.")
    if data != "-" and not Path(data).is_file():
        raise NextwordError(f"There is no file {data}.")
    sentences = read_lines(data)
    if not sentences:
        raise NextwordError(f"{data} has no line to score.")
    scores = load(run, device).score_many(sentences)
    rows: list[dict[str, Any]] = [
        {
            "text": sentence,
            "nats": score.nats,
            "tokens": score.tokens,
            "bits_per_byte": score.bits_per_byte(),
            "token_perplexity": score.token_perplexity(),
        }
        for sentence, score in zip(sentences, scores, strict=True)
    ]
    if json:
        emit_json(rows)
        return
    console.print("[dim]    nats  bits/byte  token ppl  text[/]")
    for row in rows:
        bits, perplexity = number(row["bits_per_byte"], 3), number(row["token_perplexity"], 2)
        console.print(f"{number(row['nats'], 2):>8}  {bits:>9}  {perplexity:>9}  {row['text']}", markup=False)
