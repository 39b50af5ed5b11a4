"""`nextword look`: run a study and see numbers, a figure and a verdict on the claim."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nextword.cli.console import Json, Quiet, console, emit_json, progress_bar

COLOUR = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


def look(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Which claim to test.", show_default=False)] = "",
    data: Annotated[
        str, typer.Option("--data", help="Another text: a path or a name. Default: the built-in one.")
    ] = "",
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="Look at this trained run, where a study can.")] = "",
    out: Annotated[Path, typer.Option("--out", help="Where to write; each study gets a folder in it.")] = Path("looks"),
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="How many. [default: 5, or 3 with --quick]", min=1, show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The first of them.", min=0)] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, fewer seeds: a few seconds.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Test a claim of the literature here and now: numbers, a figure, a verdict. Without STUDY: which there are.

    [dim]Examples[/]
      nextword look
      nextword look parameter-growth
      nextword look initialisation --quick --seeds 3
      nextword look parameter-growth --data my.txt --out looks
      nextword look probing --run runs/bert
    """
    from nextword.studies import find_study

    if not study:
        _list(json)
        return
    module = find_study(study)
    from nextword.studies._study import Settings, ready, write
    from nextword.studies._study import run as look_at

    count = seeds or len(Settings(quick=quick, run=run).seeds)
    settings = Settings(tuple(range(seed, seed + count)), quick, data, run)
    ready(out / study)
    with progress_bar(f"looking at {study}", quiet=quiet or json) as update:
        finding = look_at(study, module, settings, update)
    files = write(finding, module, out / study)
    if json:
        emit_json({**finding.as_dict(), "files": [str(file) for file in files]})
    else:
        _show(finding, files)


def _list(json: bool) -> None:
    from nextword.studies import STUDIES, find_study

    claims = {name: find_study(name).CLAIM for name in STUDIES}
    if json:
        emit_json([{"study": name, "claim": c.sentence, "source": c.source} for name, c in claims.items()])
        return
    for name, claim in claims.items():
        console.print(f"[bold]{name}[/]")
        console.print(claim.sentence, markup=False, style="default")
        console.print(f"{claim.source}\n", markup=False, style="dim")
    console.print("[dim]Run one: nextword look STUDY[/]")


def _show(finding: Any, files: list[Path]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from nextword.cli.evaluate import table
    from nextword.studies._study import written

    console.print(f"\n{finding.claim.sentence}", markup=False, style="bold")
    console.print(f"{finding.claim.source}\n", markup=False, style="dim")
    for found in finding.tables.values():
        if not found.detailed:
            rows = [[escape(written(cell)) for cell in row] for row in found.rows]
            table([escape(column) for column in found.columns], rows, title=escape(found.title))
    console.print(f"[bold]The claim {_coloured(finding.verdict, 'is undecided')}.[/]\n")
    grid = Table.grid(padding=(0, 2, 1, 0))
    grid.add_column(no_wrap=True)
    for part in finding.parts:
        beside = "" if part.decides else "\n[dim]beside the claim[/]"
        text = f"{escape(part.says)}\n{escape(part.found)} [dim]({escape(part.uncertainty)})[/]"
        grid.add_row(_coloured(part.verdict) + beside, text)
    console.print(grid)
    given = finding.conditions
    console.print(f"[dim]{escape(given['data'])}; {len(given['seeds'])} seeds; {given['seconds']} s[/]")
    for file in files:
        console.print(str(file), markup=False, soft_wrap=True)


def _coloured(verdict: str, undecided: str = "undecided") -> str:
    return f"[{COLOUR[verdict]}]{undecided if verdict == 'undecided' else verdict}[/]"
