"""`nextword compare`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Quiet, console, emit_json, err, keep_stdin, say_columns
from nextword.core.io import number


def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN or RECIPE]…", help="What to compare. Default: a ladder of models.", show_default=False
        ),
    ] = None,
    data: Annotated[str, typer.Option("--data", help="Text: a path or a name. Default: the built-in corpus.")] = "",
    minutes: Annotated[float, typer.Option("--minutes", help="Time to train all models in.")] = 4.0,
    out: Annotated[str, typer.Option("--out", help="Folder for models and report. Default: runs/compare-<data>.")] = "",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a number of every recipe.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a comparison that was interrupted.")] = False,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a ladder of models on one text under one budget, and see which predicts it best.

    [dim]Examples[/]
      nextword compare
      nextword compare --data my.txt --minutes 20
      nextword compare lstm/small gru/small --data my.txt --set tokenizer.size=8000
      nextword compare runs/a runs/b --data my.txt
    """
    from nextword.compare.compare import Plan, make_plan
    from nextword.compare.compare import compare as run_comparison
    from nextword.compare.report import render
    from nextword.compare.translation import own_data, translates
    from nextword.core.errors import NextwordError
    from nextword.data.builtin import default_name
    from nextword.training.device import choose_device

    if resume and (what or changes):
        raise NextwordError("--resume goes on with a comparison as planned: name no models, change no numbers.")
    text = keep_stdin(data or own_data(what or []) or default_name())
    folder = Path(out or f"runs/compare-{Path(text).stem.replace(':', '-')}")
    plan = Plan.open(folder) if resume else make_plan(folder, what or [], text, minutes, changes or [])
    if not translates(plan.entries):
        say_columns([plan.data], quiet or json)
    interrupted = _watch(plan, run_comparison, device, quiet or json)
    comparison = plan.result(str(choose_device(device)))
    done = [m for m in comparison["models"] if m["status"] == "done"]
    report = folder / "report.html"
    if done:
        report.write_text(render(comparison), encoding="utf-8")
    if json:
        emit_json(comparison)
    elif done:
        from nextword.compare.terminal import leaderboard

        console.print(leaderboard(comparison, console.width))
        console.print(f"report: [bold]{escape(str(report))}[/]", soft_wrap=True)
    if interrupted:
        err.print(
            f"[yellow]interrupted[/]: {len(done)} of {len(plan.entries)} models are done and kept. "
            f"Go on with [bold]nextword compare --resume --out {escape(str(folder))}[/]",
            soft_wrap=True,
        )
        raise typer.Exit(130)
    if not done:
        for model in comparison["models"]:
            err.print(f"[bold red]error[/]: {escape(model['name'])}: {escape(model['error'])}", soft_wrap=True)
        raise typer.Exit(1)
    if not json and not quiet:
        _try_them(done, comparison)


def _watch(plan: Any, run_comparison: Any, device: str, quiet: bool) -> bool:
    """Run it with a live table for people, plain lines for pipes, or nothing; true when it was interrupted."""
    from contextlib import nullcontext

    from rich.live import Live as Screen

    from nextword.cli.train import interruptible
    from nextword.compare.terminal import Live

    names = [entry["name"] for entry in plan.entries]
    table = Live(names, f"{plan.data}: {len(names)} models in {plan.minutes:g} minutes")
    alive = err.is_terminal and not quiet
    screen: Any = Screen(table, console=err, refresh_per_second=4, transient=True) if alive else nullcontext()
    done = set()
    with interruptible() as stopped, screen:
        for update in run_comparison(plan, device, stopped, table.preparing):
            table(update)
            if update.status in ("done", "failed"):
                done.add(update.name)
            if not alive and not quiet and update.event is None:
                bits = update.values.get("bits_per_byte")
                err.print(f"{update.name}: {update.status}" + (f", {number(bits, 3)} bits/byte" if bits else ""))
    return len(done) < len(names)


def _try_them(done: list[dict[str, Any]], comparison: dict[str, Any]) -> None:
    best = done[0]["run"]
    if "examples" in comparison:  # they make a text from a source
        source = comparison["examples"][0]["source"].replace('"', "") if comparison["examples"] else "…"
        told = f'\nThe models are yours to use:\n  nextword generate {best} "{source}" --beam 5'
        console.print(told, highlight=False, markup=False, soft_wrap=True)
        return
    prompt = " ".join(((comparison["passage"] or {}).get("text") or "the").split()[:4]).replace('"', "")
    can = done[0]["can"]
    uses = {
        f'generate {best} "{prompt}" --length 80': "generate" in can,
        f'next {best} "{prompt}"': "generate" in can,
        f'next {best} "{prompt} ___"': "fill" in can and "generate" not in can,
        f"embed {best} my.txt --out vectors.npy": "embed" in can and "generate" not in can,
        f"evaluate {best} --data my.txt": True,
    }
    console.print(
        "\n".join(["\nThe models are yours to use:", *(f"  nextword {use}" for use, fits in uses.items() if fits)]),
        highlight=False,
        markup=False,
        soft_wrap=True,  # each is to be copied whole
    )
