"""What every command shares: consoles, tables, JSON, progress bars, exit codes, and the options that all of them
have."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from nextword.core.errors import NextwordError
from nextword.core.io import replace_nonfinite

console = Console(highlight=False)
error_console = Console(stderr=True, highlight=False)

F = TypeVar("F", bound=Callable[..., Any])
OnProgress = Callable[[str, float, float | None], None]  # label, done, total

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only results and errors.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto.", show_default=True)]
Precision = Annotated[str, typer.Option("--precision", help="Weight precision: fp32, bf16 or int8.", show_default=True)]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Run folder (see `nextword runs`).", show_default=False)]


# ------------------------------------------------------------------------------------------------ errors


def handle_errors(command: F) -> F:
    """Print errors that the user can fix as one message, with exit code 1. Anything else is a bug: a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except NextwordError as error:
            error_console.print(f"[bold red]error[/]: {escape(str(error))}", soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            error_console.print("[yellow]interrupted[/]")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # `nextword generate … | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout once more at exit
            raise typer.Exit(0) from None
        except OSError as error:  # disk full, no permission, a file in place of a folder
            error_console.print(f"[bold red]error[/]: {escape(str(error))}", soft_wrap=True, highlight=False)
            raise typer.Exit(1) from None

    return run  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------ input


def read_lines(path: str | Path, keep_blank: bool = False) -> list[str]:
    """The lines of a UTF-8 file, or of standard input (`-`)."""
    from nextword.data.files import read_lines

    return [line.rstrip("\n") for line in read_lines(path) if keep_blank or line.strip()]


def save_stdin(data: str) -> str:
    """Replace `-` (standard input) by a file in the cache, named by its checksum, so that it can be read repeatedly."""
    name, equals, path = data.rpartition("=")
    if path != "-":
        return data
    from hashlib import blake2b

    from nextword.batching.token_stream import cache_folder

    content = sys.stdin.buffer.read()
    file = cache_folder().parent / "stdin" / f"stdin-{blake2b(content, digest_size=6).hexdigest()}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return f"{name}{equals}{file}"


# ------------------------------------------------------------------------------------------------ output


def emit_json(value: Any) -> None:
    """One JSON value on standard output; infinities become null, since JSON has none."""
    sys.stdout.write(json.dumps(replace_nonfinite(value), ensure_ascii=False, indent=2) + "\n")
    sys.stdout.flush()  # here a closed pipe can still be caught


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None, text_columns: Sequence[str] = ()
) -> None:
    """Print a table. The first column and `text_columns` are left-aligned, the others, numbers, right-aligned."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for i, column in enumerate(columns):
        is_text = i == 0 or column in text_columns
        # The first column has names to copy, so it is never wrapped.
        table.add_column(column, justify="left" if is_text else "right", overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*row)
    if console.is_terminal:
        console.print(table)
    else:  # a pipe has no width: cut nothing that somebody may grep for
        width = console.measure(table, options=console.options.update(max_width=1000)).maximum
        Console(file=console.file, width=width, highlight=False).print(table)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes under a result."""
    for note in notes:
        console.print(f"[dim]· {escape(note)}[/]", soft_wrap=True)


def print_warnings(notes: Iterable[str], quiet: bool = False) -> None:
    """Print notes on standard error."""
    for note in () if quiet else notes:
        error_console.print(f"[yellow]·[/] {escape(note)}", soft_wrap=True)


def print_columns(names: Iterable[str], quiet: bool) -> None:
    """Say which column of each table is read as its text, and how many rows are skipped."""
    from nextword.data.opening import describe_reading

    for name in () if quiet else dict.fromkeys(names):
        print_warnings(describe_reading(name))


def shorten(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit].rstrip() + " …"


# ------------------------------------------------------------------------------------------------ progress


@contextmanager
def progress_bar(label: str, total: float | None = None, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """A progress bar on standard error, if that is a terminal; yields `update(done, total=None)`."""
    if quiet or not error_console.is_terminal:
        yield lambda done, total=None: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=error_console, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done, total=None: progress.update(task, completed=done, **({"total": total} if total else {}))


@contextmanager
def progress_bars(quiet: bool = False) -> Iterator[OnProgress]:
    """One bar after the other: yields `on_progress(label, done, total)`, where a new label starts a new bar."""
    with ExitStack() as stack:
        current = ""
        update: Callable[..., None] = lambda done, total=None: None  # noqa: E731

        def on_progress(label: str, done: float, total: float | None) -> None:
            nonlocal current, update
            if label != current:
                stack.close()
                current, update = label, stack.enter_context(progress_bar(label, total, quiet))
            update(done, total)

        yield on_progress


class ProgressDisplay:
    """A progress bar with the latest numbers, if standard error is a terminal. Subclasses show the events of a
    command."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.progress: Any = None
        self.task: Any = None
        self.label = ""
        self.total: float | None = None

    def __enter__(self) -> Self:
        if not self.quiet and error_console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[note]}"))
            self.progress = Progress(*columns, TimeRemainingColumn(), console=error_console, transient=True)
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
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
