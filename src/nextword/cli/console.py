"""What every command shares: two consoles, JSON, progress bars that are silent when nobody watches, and exit codes."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer
from rich.console import Console

from nextword.contract import NextwordError

console = Console(highlight=False)
err = Console(stderr=True, highlight=False)

F = TypeVar("F", bound=Callable[..., Any])


def emit_json(value: Any) -> None:
    """One JSON value on standard output; infinities become null, since JSON has none."""
    sys.stdout.write(json.dumps(_finite(value), ensure_ascii=False, indent=2) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value


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


def guarded(command: F) -> F:
    """Turn what the user can mend into two lines on standard error and exit code 1; anything else stays a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except NextwordError as problem:
            from rich.markup import escape

            err.print(f"[bold red]error[/]: {escape(str(problem))}", soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            err.print("[yellow]interrupted[/]")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # `nextword generate … | head`
            sys.stderr.close()
            raise typer.Exit(0) from None

    return run  # type: ignore[return-value]
