"""The command line: one module per command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Callable

import typer

from nextword import __version__
from nextword.cli.compare import compare
from nextword.cli.console import handle_errors
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
from nextword.cli.serve import serve
from nextword.cli.train import train
from nextword.cli.transfer import transfer

app = typer.Typer(
    name="nextword",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    help="Train, compare and use the language models of the literature, offline.",
    epilog="Start with [bold]nextword compare[/], or with your own text: [bold]nextword compare --data my.txt[/].",
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"nextword {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    pass


COMMANDS: dict[str, Callable[..., None]] = {
    "compare": compare,
    "train": train,
    "runs": runs,
    "evaluate": evaluate,
    "next": next_command,
    "generate": generate,
    "embed": embed,
    "transfer": transfer,
    "predict": predict,
    "serve": serve,
    "convert": convert,
    "papers": papers,
    "data": data,
    "look": look,
}


def format_help(docstring: str) -> str:
    """Join the lines of each paragraph, so that the terminal wraps them; keep those of examples, which are indented."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(p.replace("\n  ", "\n") if "\n  " in p else p.replace("\n", " ") for p in paragraphs)


for _name, _command in COMMANDS.items():
    app.command(_name, help=format_help(_command.__doc__ or ""))(handle_errors(_command))


def main() -> None:
    """The console script. Texts are UTF-8, whatever the locale says, and so is the output."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (the shell closed it: >&-)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    app()
