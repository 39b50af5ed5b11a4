"""The command line: one module per command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer

from nextword import __version__
from nextword.cli.compare import compare
from nextword.cli.console import guarded
from nextword.cli.convert import convert
from nextword.cli.data import data
from nextword.cli.embed import embed
from nextword.cli.evaluate import evaluate
from nextword.cli.generate import generate
from nextword.cli.look import look
from nextword.cli.next import next_command
from nextword.cli.papers import papers
from nextword.cli.predict import predict
from nextword.cli.runs import runs
from nextword.cli.train import train
from nextword.cli.transfer import transfer

app = typer.Typer(
    name="nextword",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    help="Every language model of the canon, trained, compared and used the same way, offline.",
    epilog="Start with [bold]nextword compare[/], or with a text of yours: [bold]nextword compare --data my.txt[/].",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"nextword {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    pass


COMMANDS: dict[str, Callable[..., Any]] = {
    "compare": compare,
    "train": train,
    "runs": runs,
    "evaluate": evaluate,
    "next": next_command,
    "generate": generate,
    "embed": embed,
    "transfer": transfer,
    "predict": predict,
    "convert": convert,
    "papers": papers,
    "data": data,
    "look": look,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(guarded(_command))


def main() -> None:
    """The console script. Output stays UTF-8 whatever the locale says: texts are."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    app()
