"""`nextword look`: run a study and print its numbers, its verdict and where its figure is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nextword.cli.console import Data, Json, Quiet, console, emit_json
from nextword.progress.display import progress_bar

if TYPE_CHECKING:
    from nextword.studies._study import Finding

COLORS = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


def look(
    name: Annotated[str, typer.Argument(metavar="[STUDY]", help="Study to run.", show_default=False)] = "",
    data: Data = "",
    run: Annotated[
        str, typer.Option("--run", metavar="RUN", help="Examine this trained run, for studies that accept one.")
    ] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder, one subfolder per study.")] = Path("looks"),
    num_seeds: Annotated[
        int | None, typer.Option("--num-seeds", help="Number of seeds. Default: 5, or 3 with --quick.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="First seed.", min=0)] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes and fewer seeds: a few seconds.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Test a claim of the literature: numbers, a figure, and whether it holds. Without STUDY: list all studies.

    [dim]Examples[/]
      nextword look
      nextword look parameter-growth
      nextword look initialization --quick --num-seeds 3
      nextword look parameter-growth --data my.txt --out looks
      nextword look probing --run runs/bert
    """
    from nextword.studies import find_study

    if not name:
        _list_studies(json)
        return
    module = find_study(name)
    from nextword.studies import run_study
    from nextword.studies._report import check_writable, write
    from nextword.studies._study import Settings

    count = num_seeds or len(Settings(quick=quick, run=run).seeds)
    settings = Settings(tuple(range(seed, seed + count)), quick, data, run)
    check_writable(out / name)
    with progress_bar(f"running {name}", quiet=quiet or json) as update:
        finding = run_study(name, settings, update)
    files = write(finding, module, out / name)
    if json:
        emit_json({**finding.as_dict(), "files": [str(file) for file in files]})
    else:
        _print_finding(finding, files)


def _list_studies(json: bool) -> None:
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


def _print_finding(finding: Finding, files: list[Path]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from nextword.cli.console import print_table
    from nextword.studies._statistics import format_cell

    console.print(f"\n{finding.claim.sentence}", markup=False, style="bold")
    console.print(f"{finding.claim.source}\n", markup=False, style="dim")
    for table in finding.tables.values():
        if not table.detailed:
            rows = [[escape(format_cell(cell)) for cell in row] for row in table.rows]
            print_table([escape(column) for column in table.columns], rows, title=escape(table.title))
    is_undecided = "is " if finding.verdict == "undecided" else ""
    console.print(f"[bold]The claim {is_undecided}{_color(finding.verdict)}.[/]\n")
    grid = Table.grid(padding=(0, 2, 1, 0))
    grid.add_column(no_wrap=True)
    for part in finding.parts:
        side = "" if part.decides else "\n[dim]side result[/]"
        text = f"{escape(part.statement)}\n{escape(part.evidence)} [dim]({escape(part.uncertainty)})[/]"
        grid.add_row(_color(part.verdict) + side, text)
    console.print(grid)
    conditions = finding.conditions
    console.print(f"[dim]{escape(conditions['data'])}; {len(conditions['seeds'])} seeds; {conditions['seconds']} s[/]")
    for file in files:
        console.print(str(file), markup=False, soft_wrap=True)


def _color(verdict: str) -> str:
    return f"[{COLORS[verdict]}]{verdict}[/]"
