"""`nextword runs`: the run folders on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Json, console, emit_json, print_line, print_table, print_warnings

DATA_WIDTH = 24  # characters of the table's data column
RESULT_KEYS = ("slug", "recipe", "data", "split", "bits_per_byte", "word_perplexity", "token_perplexity")


def runs(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Show one run in detail.", show_default=False)] = "",
    folder: Annotated[Path, typer.Option("--folder", help="Folder to search for runs.")] = Path("runs"),
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file to its end and compare it with its checksum.")
    ] = False,
    json: Json = False,
) -> None:
    """List runs: model, data, results, size and status; or show one run with its model card.

    [dim]Examples[/]
      nextword runs
      nextword runs runs/lstm-tiny
      nextword runs --verify
    """
    import nextword

    if run:
        _show_run(Path(run), verify, json)
        return
    rows = [_summarize_or_explain(run.path, verify) for run in nextword.runs(folder)]
    if json:
        emit_json(rows)
    elif rows:
        _print_runs(rows)
    else:
        print_line(f"No runs in {escape(str(folder))}. Train one: [bold]nextword train lstm/tiny[/]")
    if verify and any("error" in row for row in rows):
        raise typer.Exit(1)


def _show_run(path: Path, verify: bool, json: bool) -> None:
    from nextword.results import Run

    if verify:
        Run(path).verify()
    summary = Run(path).summary()
    if json:
        emit_json(summary)
        return
    from rich.markdown import Markdown

    card = path / "card.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    console.print(Markdown(text or f"# {path}\n\nNot finished: {summary['status']}", hyperlinks=False))


def _print_runs(rows: list[dict[str, Any]]) -> None:
    from nextword.core.io import format_number
    from nextword.html.formatting import format_count, format_size

    cells = [
        [
            escape(row["run"]),
            row["slug"] or "–",
            escape(_shorten_path(row["data"] or "–")),
            format_number(row["bits_per_byte"], 3),
            format_number(row["word_perplexity"], 1),
            format_count(row["parameters"]) if row["parameters"] else "–",
            format_size(row["size"]),
            row["status"] + _main_metric(row.get("task", {})),
        ]
        for row in rows
    ]
    headings = ("run", "model", "data", "bits/byte", "word ppl", "params", "size", "status")
    print_table(headings, cells, text_columns=("model", "data", "status"))
    print_warnings(f"{row['run']}: {row['error']}" for row in rows if row.get("error"))
    console.print("[dim]Use one: nextword generate RUN · next RUN TEXT · evaluate RUN · predict RUN · runs RUN[/]")


def _shorten_path(data: str) -> str:
    """The end of a long path or of a long list of texts; `--json` has it whole."""
    return data if len(data) <= DATA_WIDTH else f"…{data[1 - DATA_WIDTH :]}"


def _main_metric(metrics: Mapping[str, float]) -> str:
    """The first metric of a task; the model card has all."""
    return "".join(f" · {name} {100 * value:.1f}" for name, value in list(metrics.items())[:1])


def _summarize_or_explain(path: Path, verify: bool) -> dict[str, Any]:
    """An unreadable folder must not hide the others: it has a row, and its error."""
    from nextword.core.errors import NextwordError
    from nextword.results import Run

    try:
        if verify:
            Run(path).verify()
        return Run(path).summary()
    except NextwordError as error:
        unknown = {"size": 0, "parameters": None, "status": "unreadable", "error": str(error)}
        return {"run": str(path), **dict.fromkeys(RESULT_KEYS), **unknown}
