"""Progress bars and lines for whoever waits: a bar in a terminal, a bar in a notebook, plain lines elsewhere.

    with ProgressDisplay(is_quiet=False) as display:
        display.print("[bold]pretrain[/]: 1,000 steps")        # rich markup
        display.update("pretrain", 20, 1000, "loss 4.2")       # one bar at a time: a new label replaces the bar

Everything goes to standard error, so that standard output has results only. Lines stay, bars disappear.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape as escape_html
from typing import TYPE_CHECKING, Any, Protocol, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from nextword.core.errors import as_keywords, show_controls
from nextword.html.notebook import rich_html

if TYPE_CHECKING:
    from types import FrameType

    from rich.progress import Progress, TaskID

    from nextword.training.events import Event


class SafeConsole(Console):
    """A console that spells control characters in texts and names out instead of sending them to the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(show_controls(segment.text), segment.style)


error_console = SafeConsole(stderr=True, highlight=False)

UpdateBar = Callable[..., None]  # (done, total=None)
SECONDS_BETWEEN_UPDATES = 0.2  # of a notebook's output
BAR_STYLE = "display:inline-block;width:16em;height:.6em;background:#8884;border-radius:.3em;vertical-align:middle"


# ------------------------------------------------------------------------------------------------ where it is shown


class Screen(Protocol):
    """A place for lines that stay and for one bar that changes."""

    def print(self, markup: str) -> None: ...
    def update(self, label: str, done: float, total: float | None, note: str) -> None: ...
    def close(self) -> None: ...


class Lines:
    """Lines of plain text, for files and pipes: no bars."""

    def print(self, markup: str) -> None:
        error_console.print(markup, soft_wrap=True)

    def update(self, label: str, done: float, total: float | None, note: str) -> None:
        pass

    def close(self) -> None:
        pass


class Terminal(Lines):
    """A bar below the lines."""

    def __init__(self) -> None:
        from rich import progress as rich

        description, note = (rich.TextColumn(f"{{task.{name}}}") for name in ("description", "fields[note]"))
        columns = (description, rich.BarColumn(bar_width=24), note, rich.TimeRemainingColumn())
        self._progress: Progress = rich.Progress(*columns, console=error_console, transient=True)
        self._task: TaskID | None = None
        self._label = ""
        self._progress.start()

    def update(self, label: str, done: float, total: float | None, note: str) -> None:
        if self._task is None or label != self._label:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._label, self._task = label, self._progress.add_task(label, total=total, note=note)
        self._progress.update(self._task, completed=done, total=total, note=note)

    def close(self) -> None:
        self._progress.stop()


class Notebook:
    """One output of a cell, replaced by every update: the lines so far, and the bar below them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._bar = ""
        self._shown_at = 0.0
        self._handle: Any = None

    def print(self, markup: str) -> None:
        self._lines.append(escape_html(Text.from_markup(markup).plain))
        self._show()

    def update(self, label: str, done: float, total: float | None, note: str) -> None:
        percent = min(100.0, 100 * done / total) if total else 0.0
        filled = f'<span style="{BAR_STYLE};width:{percent:.0f}%;background:#1a7f9c"></span>'
        bar = f'<span style="{BAR_STYLE}">{filled}</span>'
        self._bar = f"{escape_html(label)} {bar} {escape_html(note)}"
        if time.monotonic() - self._shown_at >= SECONDS_BETWEEN_UPDATES:
            self._show()

    def show(self, renderable: RenderableType) -> None:
        """Show a table of rich below the lines."""
        self._bar = rich_html(renderable)
        if time.monotonic() - self._shown_at >= SECONDS_BETWEEN_UPDATES:
            self._show()

    def close(self) -> None:
        self._bar = ""
        self._show()

    def _show(self) -> None:
        from IPython.display import HTML, display

        html = HTML(f'<div style="white-space:pre-wrap">{"<br>".join([*self._lines, self._bar])}</div>')
        if self._handle is None:
            self._handle = display(html, display_id=True)
        else:
            self._handle.update(html)
        self._shown_at = time.monotonic()


def in_notebook() -> bool:
    """Whether this code runs in a Jupyter kernel."""
    if "IPython" not in sys.modules:
        return False
    return type(sys.modules["IPython"].get_ipython()).__name__ in ("ZMQInteractiveShell", "Shell")  # Jupyter, Colab


def open_screen() -> Screen:
    if in_notebook():
        return Notebook()
    return Terminal() if error_console.is_terminal else Lines()


# ------------------------------------------------------------------------------------------------ displays


class ProgressDisplay:
    """Lines and one progress bar at a time, wherever they can be seen. Subclasses show the events of a call."""

    def __init__(self, is_quiet: bool) -> None:
        self.is_quiet = is_quiet
        self.total: float | None = None  # steps of this phase
        self._screen: Screen | None = None

    def __enter__(self) -> Self:
        if not self.is_quiet:
            self._screen = open_screen()
        return self

    def __exit__(self, *_: object) -> None:
        if self._screen:
            self._screen.close()
            self._screen = None

    def print(self, markup: str) -> None:
        """A line that stays."""
        if self._screen:
            self._screen.print(markup)

    def warn(self, notes: Iterable[str], indent: str = "") -> None:
        """A line per note, marked as something to read."""
        for note in notes:
            self.print(f"{indent}[yellow]·[/] {escape(as_keywords(note))}")

    def update(self, label: str, done: float, total: float | None, note: str = "") -> None:
        if self._screen:
            self._screen.update(label, done, total, note)

    def show_step(self, event: Event) -> None:
        values = event.values
        note = f"loss {values['loss']:.3f} · {values['tokens_per_second']:,} tokens/s" if "loss" in values else ""
        self.update(event.phase, event.step, values.get("of") or self.total, note)


@contextmanager
def progress_bar(label: str, total: float | None = None, quiet: bool = False) -> Iterator[UpdateBar]:
    """A progress bar for one activity; yields `update(done, total=None)`."""
    with ProgressDisplay(quiet) as display:
        yield lambda done, new_total=None: display.update(label, done, new_total or total)


# ------------------------------------------------------------------------------------------------ Ctrl-C


class Interrupted(KeyboardInterrupt):
    """A call was stopped by Ctrl-C (or a notebook's stop button), with its state saved: what it has made so far."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result  # a Run, a TransferResult or a ComparisonResult


class Interrupt:
    """Whether Ctrl-C was pressed. The first one asks training to stop after this step; the second one stops at once."""

    def __init__(self) -> None:
        self.is_requested = False
        self.stops_at_once = False  # nothing is running that could stop gracefully

    def __call__(self) -> bool:
        return self.is_requested

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested or self.stops_at_once:
            raise KeyboardInterrupt
        self.is_requested = True
        error_console.print("[yellow]stopping after this step; Ctrl-C again to stop at once[/]")


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within this context, Ctrl-C sets the yielded flag, which training checks between steps.

    Only the main thread gets signals. In others, the flag stays unset.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt.on_signal)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
