"""`nextword compare`: train several models on one text under one budget, and rank them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import (
    Changes,
    Data,
    Device,
    Header,
    Json,
    Out,
    Quiet,
    Resume,
    SourceColumns,
    console,
    emit_json,
    exit_interrupted,
    print_line,
    refuse_options,
    save_stdin,
)
from nextword.progress.display import error_console


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN or RECIPE]…",
            help="Models to compare. Default: a ladder from n-grams to Transformers.",
            show_default=False,
        ),
    ] = None,
    data: Data = "",
    columns: SourceColumns = "",
    header: Header = None,
    minutes: Annotated[float, typer.Option("--minutes", help="Training time for all models together.")] = 4.0,
    out: Out = "",
    changes: Changes = None,
    resume: Resume = False,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train several models on one text under one time budget, and rank them on held-out text.

    [dim]Examples[/]
      nextword compare
      nextword compare --data my.txt --minutes 20
      nextword compare lstm/small gru/small --data my.txt --set tokenizer.size=8000
      nextword compare runs/a runs/b --data my.txt
    """
    import nextword
    from nextword.progress.display import Interrupted

    if resume:
        table = {"--columns": columns, "--header": header is not None}
        refuse_options({"names": names, "--set": changes, **table}, "--resume continues the comparison as planned.")
    is_silent = quiet or json
    try:
        result = nextword.compare(
            names or (),
            save_stdin(data) or None,
            minutes,
            columns=columns,
            header=header,
            out=out or None,
            changes=changes or (),
            resume=resume,
            device=device,
            progress=not is_silent,
        )
        is_interrupted = False
    except Interrupted as interrupted:
        result, is_interrupted = interrupted.result, True
    done = [model for model in result.models if model["status"] == "done"]
    if json:
        emit_json(result.comparison)
    elif done:
        from nextword.comparison.terminal import leaderboard

        console.print(leaderboard(result.comparison, console.width))
        print_line(f"report: [bold]{escape(str(result.report))}[/]")
    if is_interrupted:
        count = f"{len(done)} of {len(result.names)} models are done"
        exit_interrupted(f"nextword compare --resume --out {result.path}", count)
    if not done:
        for model in result.models:
            error = f"{escape(model['name'])}: {escape(model['error'])}"
            error_console.print(f"[bold red]error[/]: {error}", soft_wrap=True)
        raise typer.Exit(1)
    if not json and not quiet:
        _print_example_commands(done[0], result.comparison, str(result.path))


def _print_example_commands(best: Mapping[str, Any], comparison: Mapping[str, Any], folder: str) -> None:
    """Commands to use the best model, and to see all of them."""
    from nextword.data.segmentation import opening_words

    run, can = best["run"], best.get("can", ())
    if "examples" in comparison:  # sequence-to-sequence models
        source = comparison["examples"][0]["source"].replace('"', "") if comparison["examples"] else "…"
        commands = [f'generate {run} "{source}" --beam 5']
    else:
        passage = (comparison["passage"] or {}).get("text") or "the"
        prompt = opening_words(passage).replace('"', "")
        if "generate" in can:
            commands = [f'generate {run} "{prompt}" --max-tokens 80', f'next {run} "{prompt}"']
        else:
            fill = [f'next {run} "{prompt} ___"'] if "fill" in can else []
            commands = fill + ([f"embed {run} my.txt --out vectors.npy"] if "embed" in can else [])
        commands = [*commands, f"evaluate {run} --data my.txt"]
    lines = [f"\nTry {best['name']}:", *(f"  nextword {command}" for command in commands)]
    lines += ["See all of them think, side by side in a browser:", f"  nextword serve {folder}"]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)  # unwrapped, to be copied
