"""What every command shares: two consoles, JSON, progress bars that are silent when nobody watches, and exit codes.

Options that mean the same in every command, written once.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from nextword.core.errors import NextwordError
from nextword.core.io import finite

console = Console(highlight=False)
err = Console(stderr=True, highlight=False)

F = TypeVar("F", bound=Callable[..., Any])


def emit_json(value: Any) -> None:
    """One JSON value on standard output; infinities become null, since JSON has none."""
    sys.stdout.write(json.dumps(finite(value), ensure_ascii=False, indent=2) + "\n")
    sys.stdout.flush()  # here a closed pipe can still be caught


def read_lines(path: str | Path, blank: bool = False) -> list[str]:
    """The lines of a UTF-8 file, or of standard input (`-`), with or without blank ones; the error says where a bad
    byte is."""
    from nextword.data.files import lines

    return [line.rstrip("\n") for line in lines(path) if blank or line.strip()]


def keep_stdin(data: str) -> str:
    """A text that can be read more than once: what comes by standard input (`-`) is kept in the cache, by checksum."""
    name, equals, path = data.rpartition("=")
    if path != "-":
        return data
    from hashlib import blake2b

    from nextword.batching.token_stream import cache_folder

    given = sys.stdin.buffer.read()
    kept = cache_folder().parent / "stdin" / f"stdin-{blake2b(given, digest_size=6).hexdigest()}.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(given)
    return f"{name}{equals}{kept}"


def say_columns(names: Iterable[str], quiet: bool) -> None:
    """Which column is read of each text that is a table, and how many of its rows are left out."""
    from nextword.data.opening import how_read

    for name in dict.fromkeys(names) if not quiet else ():
        for said in how_read(name):
            err.print(f"[yellow]·[/] {escape(said)}", soft_wrap=True)


@contextmanager
def progress_bar(label: str, total: float | None = None, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """A bar on standard error that is not drawn when that is no terminal; yields `update(done, total=None)`."""
    if quiet or not err.is_terminal:
        yield lambda done, total=None: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done, total=None: progress.update(task, completed=done, **({"total": total} if total else {}))


class Watching:
    """One bar with the latest numbers, where somebody watches; what is said of an event is each command's own."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.progress: Any = None
        self.task: Any = None
        self.label = ""
        self.total: float | None = None

    def __enter__(self) -> Self:
        if not self.quiet and err.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[note]}"))
            self.progress = Progress(*columns, TimeRemainingColumn(), console=err, transient=True)
            self.progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.progress:
            self.progress.stop()

    def preparing(self, label: str, done: float, total: float | None) -> None:
        self.update(label, done, total, "")

    def update(self, label: str, done: float, total: float | None, note: str) -> None:
        if not self.progress:
            return
        if label != self.label:
            if self.task is not None:
                self.progress.remove_task(self.task)
            self.label, self.task = label, self.progress.add_task(label, total=total, note=note)
        self.progress.update(self.task, completed=done, total=total, note=note)


def guarded(command: F) -> F:
    """Turn what the user can mend into two lines on standard error and exit code 1; anything else stays a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except NextwordError as problem:
            err.print(f"[bold red]error[/]: {escape(str(problem))}", soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            err.print("[yellow]interrupted[/]")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # `nextword generate … | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
            raise typer.Exit(0) from None
        except OSError as problem:  # no room, no permission, a file where a folder should be
            err.print(f"[bold red]error[/]: {escape(str(problem))}", soft_wrap=True, highlight=False)
            raise typer.Exit(1) from None

    return run  # type: ignore[return-value]


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto.", show_default=True)]
Precision = Annotated[str, typer.Option("--precision", help="Of the weights: fp32, bf16 or int8.", show_default=True)]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run folder (see `nextword runs`).", show_default=False)]
