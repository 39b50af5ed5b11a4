"""`nextword generate`: write on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nextword.cli.console import emit_json, read_lines
from nextword.cli.options import Device, Json, Run


def generate(
    run: Run,
    prompt: Annotated[str, typer.Argument(help="Text to go on from.", show_default=False)] = "",
    file: Annotated[Path | None, typer.Option("--file", help="One prompt a line, from this file.")] = None,
    length: Annotated[int, typer.Option("--length", help="Tokens at the most.")] = 100,
    temperature: Annotated[float, typer.Option("--temperature", help="0: always the likeliest token.")] = 0.8,
    top_k: Annotated[int, typer.Option("--top-k", help="Draw from the k likeliest; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", help="Draw from the likeliest that hold this share.")] = 1.0,
    beam: Annotated[int, typer.Option("--beam", help="Beam search of this width instead of drawing.")] = 0,
    repetition: Annotated[
        float, typer.Option("--repetition", help="Penalty on tokens already written; 1: none.")
    ] = 1.0,
    no_repeat: Annotated[int, typer.Option("--no-repeat", help="Never repeat an n-gram of this many tokens.")] = 0,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed writes the same text.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", help="Stop before this string; may be given often.")
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Write on from a prompt, shown as it is written.

    [dim]Examples[/]
      nextword generate runs/lstm-tiny "In the beginning" --length 60
      nextword generate runs/lstm-tiny --temperature 0 --stop "."
      nextword generate runs/lstm-tiny --file prompts.txt --beam 5 --json
    """
    from nextword.contract import Beam, Decoding, Greedy, NextwordError, Sample, Stop
    from nextword.language_model import load

    how: Decoding
    if beam:
        how = Beam(beam, repetition=repetition, no_repeat=no_repeat)
    elif temperature == 0:
        how = Greedy(repetition=repetition, no_repeat=no_repeat)
    else:
        how = Sample(temperature, top_k, top_p, seed, repetition, no_repeat)
    if file is not None and not file.is_file():
        raise NextwordError(f"There is no file of prompts {file}.")
    prompts = read_lines(file) if file else [prompt]
    if not prompts:
        raise NextwordError(f"{file} has no prompt in it.")
    ending = Stop(length, tuple(s.replace("\\n", "\n").replace("\\t", "\t") for s in stop or ()))
    lm = load(run, device)
    results = []
    for one in prompts:
        if not json:
            sys.stdout.write(one)
            sys.stdout.flush()
        pieces = []
        for piece in lm.generate(one, how, ending):
            pieces.append(piece)
            if not json:
                sys.stdout.write(piece.text)
                sys.stdout.flush()
        if not json:
            sys.stdout.write("\n")
        results.append(
            {
                "prompt": one,
                "text": "".join(piece.text for piece in pieces),
                "tokens": sum(len(piece.ids) for piece in pieces),
                "nats": -sum(piece.log_prob for piece in pieces),
                "reason": pieces[-1].reason if pieces else "length",
            }
        )
    if json:
        emit_json(results if file else results[0])
