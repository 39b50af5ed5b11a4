"""`nextword compare`: train several models on one text under one budget, and rank them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import (
    Device,
    Json,
    Quiet,
    console,
    emit_json,
    error_console,
    print_columns,
    save_stdin,
)
from nextword.core.io import format_number

if TYPE_CHECKING:
    from nextword.comparison.compare import Plan


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN or RECIPE]…",
            help="Models to compare. Default: one recipe for each step of the history.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[str, typer.Option("--data", help="Text: a path or a name. Default: the built-in corpus.")] = "",
    minutes: Annotated[float, typer.Option("--minutes", help="Training time for all models together.")] = 4.0,
    out: Annotated[
        str, typer.Option("--out", "-o", help="Folder for runs and report. Default: runs/compare-<data>.")
    ] = "",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a setting of every recipe.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the comparison in --out.")] = False,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train several models on one text under one time budget, and see which predicts it best.

    [dim]Examples[/]
      nextword compare
      nextword compare --data my.txt --minutes 20
      nextword compare lstm/small gru/small --data my.txt --set tokenizer.size=8000
      nextword compare runs/a runs/b --data my.txt
    """
    from nextword.comparison.compare import Plan, make_plan
    from nextword.comparison.report import render
    from nextword.comparison.translation import are_translators, default_pairs
    from nextword.core.errors import InvalidSetting
    from nextword.data.builtin import default_name
    from nextword.training.device import choose_device

    if resume and (names or changes):
        raise InvalidSetting(
            "--resume continues the comparison as planned. Name no models and leave --set out.", key="resume"
        )
    text = save_stdin(data or default_pairs(names or []) or default_name())
    folder = Path(out or f"runs/compare-{Path(text).stem.replace(':', '-')}")
    plan = Plan.open(folder) if resume else make_plan(folder, names or [], text, minutes, changes or [])
    if not are_translators(plan.entries):
        print_columns([plan.data], quiet or json)
    is_interrupted = _run(plan, device, quiet or json)
    comparison = plan.result(str(choose_device(device)))
    done = [model for model in comparison["models"] if model["status"] == "done"]
    report = folder / "report.html"
    if done:
        report.write_text(render(comparison), encoding="utf-8")
    if json:
        emit_json(comparison)
    elif done:
        from nextword.comparison.terminal import leaderboard

        console.print(leaderboard(comparison, console.width))
        console.print(f"report: [bold]{escape(str(report))}[/]", soft_wrap=True)
    if is_interrupted:
        error_console.print(
            f"[yellow]interrupted[/]: {len(done)} of {len(plan.entries)} models are done. "
            f"Resume with [bold]nextword compare --resume --out {escape(str(folder))}[/]",
            soft_wrap=True,
        )
        raise typer.Exit(130)
    if not done:
        for model in comparison["models"]:
            error = f"{escape(model['name'])}: {escape(model['error'])}"
            error_console.print(f"[bold red]error[/]: {error}", soft_wrap=True)
        raise typer.Exit(1)
    if not json and not quiet:
        _print_example_commands(done[0], comparison)


def _run(plan: Plan, device: str, quiet: bool) -> bool:
    """Run the comparison with a live table in a terminal, or with lines of text; return whether it was interrupted."""
    from rich.live import Live

    from nextword.cli.train import interruptible
    from nextword.comparison.compare import compare as run_comparison
    from nextword.comparison.terminal import LiveTable

    names = [entry["name"] for entry in plan.entries]
    table = LiveTable(names, f"{plan.data}: {len(names)} models in {plan.minutes:g} minutes")
    is_live = error_console.is_terminal and not quiet
    screen: Any = Live(table, console=error_console, refresh_per_second=4, transient=True) if is_live else nullcontext()
    ended = set()
    with interruptible() as stop, screen:
        for update in run_comparison(plan, device, stop, table.preparing):
            table(update)
            if update.status in ("done", "failed"):
                ended.add(update.name)
            if not is_live and not quiet and update.event is None:
                bits = update.values.get("bits_per_byte")
                score = f", {format_number(bits, 3)} bits/byte" if bits else ""
                error_console.print(f"{update.name}: {update.status}{score}")
    return len(ended) < len(names)


def _print_example_commands(best: Mapping[str, Any], comparison: Mapping[str, Any]) -> None:
    """Commands to use the best model."""
    run, can = best["run"], best.get("can", ())
    commands: Sequence[str]
    if "examples" in comparison:  # sequence-to-sequence models
        source = comparison["examples"][0]["source"].replace('"', "") if comparison["examples"] else "…"
        commands = [f'generate {run} "{source}" --beam 5']
    else:
        passage = (comparison["passage"] or {}).get("text") or "the"
        prompt = " ".join(passage.split()[:4]).replace('"', "")
        if "generate" in can:
            commands = [f'generate {run} "{prompt}" --max-tokens 80', f'next {run} "{prompt}"']
        else:
            fill = [f'next {run} "{prompt} ___"'] if "fill" in can else []
            commands = fill + ([f"embed {run} my.txt --out vectors.npy"] if "embed" in can else [])
        commands = [*commands, f"evaluate {run} --data my.txt"]
    lines = ["\nTry the best model:", *(f"  nextword {command}" for command in commands)]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)  # unwrapped, to be copied
