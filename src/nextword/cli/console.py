"""What every command shares: options, consoles, tables, JSON, progress bars, errors and exit codes."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.markup import escape

from nextword.core.errors import (
    SMALLER,
    InvalidSetting,
    NextwordError,
    UnknownName,
    describe_os_error,
    explain_memory_errors,
    explain_write_errors,
    in_command_line,
    show_controls,
    unknown,
)
from nextword.core.io import to_json
from nextword.progress.display import SafeConsole, error_console

console = SafeConsole(highlight=False)

P = ParamSpec("P")
Row = TypeVar("Row")

# ------------------------------------------------------------------------------------------------ options

Run = Annotated[str, typer.Argument(metavar="RUN", help="Run folder (`nextword runs` lists yours).")]
Data = Annotated[str, typer.Option("--data", help="Text: path or data set. Default: the built-in text.")]
Out = Annotated[str, typer.Option("--out", "-o", help="Run folder. Default: named after recipe or data, under runs/.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe setting. Repeatable.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in --out, bit-exactly.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Random seed. Default: the recipe's.", min=0)]
TextColumn = Annotated[str, typer.Option("--text", metavar="COLUMN", help="Text column. Default: guessed.")]
PairColumn = Annotated[str, typer.Option("--text-pair", metavar="COLUMN", help="Column of the second text of a pair.")]
TableColumns = Annotated[
    str, typer.Option("--columns", metavar="A,B", help="Columns by name or number: text[,second text],label.")
]
SourceColumns = Annotated[
    str,
    typer.Option("--columns", metavar="A[,B]", help="Columns by name or number: the text, or source,target of pairs."),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first row names the columns. Default: detected."),
]
Top = Annotated[int, typer.Option("--top", "-k", help="Number of results to show.", min=1)]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1 or auto.")]
Precision = Annotated[str, typer.Option("--precision", help="Weight precision: fp32, bf16 or int8.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only results and errors.")]
Search = Annotated[str, typer.Option("--search", metavar="WORDS", help="List only what matches all of these words.")]


def refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Raise if any of these options is given. `reason` says why not, as a sentence."""
    if given := [name for name, value in options.items() if value]:
        key = given[0].lstrip("-").replace("-", "_")
        raise InvalidSetting(f"{reason} Leave {', '.join(given)} out.", key=key, value=options[given[0]])


def parse_settings(changes: Iterable[str], group: str, types: Mapping[str, type]) -> dict[str, Any]:
    """The values of `--set GROUP.KEY=VALUE`, converted to their types."""
    settings: dict[str, Any] = {}
    for change in changes:
        key, _, text = (part.strip() for part in change.partition("="))
        name = key.removeprefix(f"{group}.")
        if not key.startswith(f"{group}.") or name not in types:
            raise unknown("setting", key, [f"{group}.{known}" for known in types], where=f"--set {change}")
        try:
            settings[name] = types[name](text.strip("\"'"))
        except ValueError:
            expected = "a whole number" if types[name] is int else "a number"
            raise InvalidSetting(f"--set {change}: expected {expected}.", key=key, value=text) from None
    return settings


# ------------------------------------------------------------------------------------------------ errors


def handle_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Print errors that the user can fix as one message, with exit code 1. Anything else is a bug: a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        token = in_command_line.set(True)
        try:
            with explain_memory_errors(SMALLER):
                command(*args, **kwargs)
        except KeyboardInterrupt:
            error_console.print("[yellow]interrupted[/]")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # `nextword generate … | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout once more at exit
            raise typer.Exit(0) from None
        except NextwordError as error:
            _exit_with_error(str(error))
        except OSError as error:  # disk full, no permission, a file in place of a folder
            what, remedy = describe_os_error(error)
            _exit_with_error(f"{error.filename or 'Reading or writing failed'}: {what}. {remedy}.")
        finally:
            in_command_line.reset(token)

    return run


def _exit_with_error(message: str) -> NoReturn:
    error_console.print(f"[bold red]error[/]: {escape(message)}", soft_wrap=True)
    raise typer.Exit(1) from None


def exit_interrupted(command: str, done: str = "progress is saved") -> NoReturn:
    """End an interrupted command with the command that resumes it."""
    error_console.print(f"[yellow]interrupted[/]: {done}. Resume with [bold]{escape(command)}[/]", soft_wrap=True)
    raise typer.Exit(130)


# ------------------------------------------------------------------------------------------------ input


def read_lines(path: str | Path, keep_blank: bool = False) -> list[str]:
    """The lines of a UTF-8 file, or of standard input (`-`)."""
    from nextword.data.files import read_lines

    return [line.rstrip("\n") for line in read_lines(path) if keep_blank or line.strip()]


def search_rows(what: str, words: str, rows: Mapping[str, tuple[str, Row]]) -> list[Row]:
    """Return the rows in whose text each of the words occurs, ignoring case. Raise if there are none.

    `rows`: name → its searchable text and the row.
    """
    from difflib import get_close_matches

    wanted = words.lower().split()
    texts = {name: f"{name} {text}".lower() for name, (text, _) in rows.items()}
    matches = [rows[name][1] for name, text in texts.items() if all(word in text for word in wanted)]
    if matches:
        return matches
    counts = {name: sum(word in text for word in wanted) for name, text in texts.items()}
    unmatched = [word for word in wanted if not any(word in text for text in texts.values())]
    if not unmatched:
        names = [name for name, count in counts.items() if count == max(counts.values())]
        hint = f"The closest, with {max(counts.values())} of {len(wanted)} words: {', '.join(names[:5])}."
    else:
        vocabulary = {part for text in texts.values() for part in re.split(r"[^\w-]+", text)}
        near = [match for word in unmatched for match in get_close_matches(word, vocabulary, 1, 0.7)]
        names = [name for name, text in texts.items() if any(word in text for word in near)]
        hint = f"Did you mean {' '.join(near)!r} ({', '.join(names[:5])})?" if near else ""
    hint = hint or f"Leave --search out to list all {len(rows)}."
    raise UnknownName(f"No {what} matches {words!r}. {hint}", name=words, known=rows)


def save_stdin(data: str) -> str:
    """Replace `-` (standard input) by a file in the cache, named by its checksum, so that it can be read repeatedly."""
    name, equals, path = data.rpartition("=")
    if path != "-":
        return data
    from hashlib import blake2b

    from nextword.core.io import cache_folder, open_stdin, write_atomically

    content = open_stdin().read()
    file = cache_folder("stdin") / f"stdin-{blake2b(content, digest_size=6).hexdigest()}.txt"
    with explain_write_errors(file.parent), write_atomically(file) as stream:
        stream.write(content)
    return f"{name}{equals}{file}"


# ------------------------------------------------------------------------------------------------ output


def emit_json(value: object) -> None:
    """One JSON value on standard output; infinities become null, since JSON has none."""
    write_text(to_json(value, indent=2) + "\n")


def write_text(text: str) -> None:
    """Write to standard output: as it is, except that a terminal gets no control characters."""
    sys.stdout.write(show_controls(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()  # here a closed pipe can still be caught


def print_line(text: str) -> None:
    """One line of rich markup, never wrapped, so that paths and commands can be copied."""
    console.print(text, soft_wrap=True)


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
        table.add_row(*map(show_controls, row))  # here, so that their width is known
    if console.is_terminal:
        console.print(table)
    else:  # a pipe has no width: cut nothing that somebody may grep for
        width = console.measure(table, options=console.options.update(max_width=1000)).maximum
        SafeConsole(file=console.file, width=width, highlight=False).print(table)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes under a result."""
    for note in notes:
        print_line(f"[dim]· {escape(note)}[/]")


def print_warnings(notes: Iterable[str], quiet: bool = False, indent: str = "") -> None:
    """Print notes on standard error."""
    for note in () if quiet else notes:
        error_console.print(f"{indent}[yellow]·[/] {escape(note)}", soft_wrap=True)


def print_columns(names: Iterable[str], quiet: bool) -> None:
    """Print which column of each table is read as its text, and how many rows are skipped."""
    from nextword.data.opening import describe_reading

    for name in () if quiet else dict.fromkeys(names):
        print_warnings(describe_reading(name))


def shorten(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit].rstrip() + " …"
