"""The models of `compare` while they train: a live table, or a line per change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from rich.live import Live
from rich.markup import escape

from nextword.comparison.terminal import LiveTable
from nextword.core.io import format_number
from nextword.progress.display import Lines, Notebook, error_console, in_notebook

if TYPE_CHECKING:
    from nextword.comparison.compare import Plan, Update


class ComparisonDisplay:
    """What each model is doing now."""

    def __init__(self, plan: Plan, is_quiet: bool) -> None:
        names = [entry["name"] for entry in plan.entries]
        self.is_quiet = is_quiet
        self._table = LiveTable(names, f"{plan.data}: {len(names)} models in {plan.minutes:g} minutes")
        self._live: Live | None = None
        self._notebook: Notebook | None = None

    def __enter__(self) -> Self:
        if self.is_quiet:
            return self
        if in_notebook():
            self._notebook = Notebook()
        elif error_console.is_terminal:
            self._live = Live(self._table, console=error_console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        if self._notebook:
            self._notebook.close()

    def __call__(self, update: Update) -> None:
        self._table(update)
        if update.status == "warning":
            self.warn(update.values["warnings"])
        elif self._notebook:
            self._notebook.show(self._table)
        elif not self._live and not self.is_quiet and update.event is None:
            bits = update.values.get("bits_per_byte")
            score = f", {format_number(bits, 3)} bits/byte" if bits else ""
            error_console.print(f"{escape(update.name)}: {update.status}{score}")

    def warn(self, notes: Sequence[str]) -> None:
        """A line per note about the whole comparison."""
        screen = self._notebook or Lines()
        for note in () if self.is_quiet else notes:
            screen.print(f"[yellow]·[/] {escape(note)}")

    def preparing(self, label: str, done: float, total: float | None) -> None:
        self._table.preparing(label, done, total)
        if self._notebook:
            self._notebook.show(self._table)
