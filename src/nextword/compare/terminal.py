"""The comparison in the terminal: a live table while it works, and the leaderboard at the end."""

from __future__ import annotations

import math
from typing import Any

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nextword.compare.compare import Update
from nextword.compare.translation import TRANSLATOR
from nextword.core.io import infinite, number
from nextword.html.charts import count, duration, size
from nextword.html.page import impossible, listed

WAITING = "[dim]waiting[/]"


class Live:
    """What each model is doing now, as one table that is drawn again with every update."""

    def __init__(self, names: list[str], title: str) -> None:
        self.rows: dict[str, dict[str, Any]] = {name: {"status": WAITING} for name in names}
        self.title = title
        self.note = ""

    def __call__(self, update: Update) -> None:
        row = self.rows[update.name]
        self.note = ""
        if update.status == "training":
            row.update(_training(update.event, row))
        elif update.status == "done":
            row.update(update.values, status="[green]done[/]")
        elif update.status == "failed":
            row.update(status="[red]failed[/]")
        else:
            row["status"] = {"sizing": "choosing a size", "scoring": "scoring the test text"}[update.status]

    def preparing(self, label: str, done: float, total: float | None) -> None:
        self.note = f"{label} … {100 * done / total:.0f} %" if total else f"{label} …"

    def __rich__(self) -> Group:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("model", style="bold")
        table.add_column("now", min_width=24)
        for name in ("parameters", "time", "valid bits/byte", "test bits/byte"):
            table.add_column(name, justify="right")
        for name, row in self.rows.items():
            seconds = row.get("seconds")
            test = row.get("bits_per_byte")
            table.add_row(
                escape(name),
                row["status"],
                count(row["parameters"]) if row.get("parameters") else "",
                duration(seconds) if seconds else "",
                number(row["valid"], 3) if row.get("valid") else "",
                f"[bold]{number(test, 3)}[/]" if test else "",
            )
        return Group(Text(self.title, style="bold"), table, Text(self.note, style="dim"))


def _training(event: Any, row: dict[str, Any]) -> dict[str, Any]:
    values = event.values
    new: dict[str, Any] = {"seconds": event.seconds}
    if event.kind == "begin":
        new |= {"parameters": values.get("parameters"), "total": values.get("steps")}
    if event.kind == "valid" and "valid_bits_per_byte" in values:
        new["valid"] = values["valid_bits_per_byte"]
    total = new["total"] = values.get("of") or new.get("total") or row.get("total")
    share = min(event.step / total if total else event.epoch, 1.0)  # counting has no steps to go, but one epoch
    filled = round(14 * share)
    new["status"] = f"[cyan]{'━' * filled}[/][dim]{'━' * (14 - filled)}[/] {100 * share:3.0f} %"
    return new


def leaderboard(comparison: dict[str, Any], width: int = 120) -> Group:
    """Best first; exact likelihoods only are ranked, and what is not clearly different is said."""
    models = [infinite(m) for m in comparison["models"] if m["status"] == "done"]
    exact = [m for m in models if m["kind"] == "exact"]
    if translators := [m for m in models if m["kind"] == TRANSLATOR]:
        return Group(_translators(translators), *_failed(comparison))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("model", style="bold", no_wrap=True)
    columns = [name for name in COLUMNS if width >= WIDE or name in NARROW]
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for rank, m in enumerate(exact, 1):
        cells = _cells(m)
        table.add_row(str(rank), escape(m["name"]), *(cells[name] for name in columns))
    parts: list[Any] = [table]
    for m in models:
        if m["kind"] != "exact":
            parts.append(Text(f"{m['name']}: pseudo-likelihood, not ranked with the others", style="dim"))
    parts += _failed(comparison)
    parts.append(Text(verdict(exact), style="green"))
    return Group(*parts)


def _failed(comparison: dict[str, Any]) -> list[Text]:
    failed = [m for m in comparison["models"] if m["status"] == "failed"]
    return [Text(f"{m['name']} failed: {m['error']}", style="red") for m in failed]


def _translators(models: list[dict[str, Any]]) -> Table:
    """Models that make a text from a source, best first by BLEU."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", style="bold", no_wrap=True)
    for name in ("BLEU", "95 %", "chrF", "target token ppl", "params", "training"):
        table.add_column(name, justify="right", no_wrap=True)
    for m in sorted(models, key=lambda m: (-(m.get("bleu") or 0.0), m["token_perplexity"])):
        low, high = m.get("bleu_low"), m.get("bleu_high")
        table.add_row(
            escape(m["name"]),
            "–" if m.get("bleu") is None else f"[bold]{m['bleu']:.1f}[/]",
            "" if low is None else f"[dim]{low:.1f}–{high:.1f}[/]",
            "–" if m.get("chrf") is None else f"{m['chrf']:.1f}",
            number(m["token_perplexity"], 2),
            count(m["parameters"]),
            duration(m["seconds"]) if m.get("seconds") else "–",
        )
    return table


COLUMNS = ("bits/byte", "95 %", "word ppl", "token ppl", "params", "on disk", "training", "scoring")
NARROW = ("bits/byte", "95 %", "word ppl", "params", "training", "scoring")  # what a terminal of 80 shows
WIDE = 100


def _cells(m: dict[str, Any]) -> dict[str, str]:
    low, high = m.get("bits_per_byte_low"), m.get("bits_per_byte_high")
    return {
        "bits/byte": "–" if m["bits_per_byte"] is None else f"[bold]{number(m['bits_per_byte'], 3)}[/]",
        "95 %": "" if low in (None, math.inf) else f"[dim]{low:.3f}–{high:.3f}[/]",
        "word ppl": number(m["word_perplexity"], 1),
        "token ppl": number(m["token_perplexity"], 1),
        "params": count(m["parameters"]),
        "on disk": size(m["size"]),
        "training": duration(m["seconds"]) if m.get("seconds") else "–",
        "scoring": f"{count(m['tokens_per_second'])}/s" if m.get("tokens_per_second") else "–",
    }


def verdict(exact: list[dict[str, Any]]) -> str:
    """The result in a sentence or two: which is best, which are as good, and under which the text is impossible."""
    ranked = [m for m in exact if m["bits_per_byte"] not in (None, math.inf)]
    says = []
    if ranked:
        name, bits, high = (ranked[0][key] for key in ("name", "bits_per_byte", "bits_per_byte_high"))
        says.append(f"{name} predicts this text best: {bits:.3f} bits a byte, {bits / 8:.0%} of its size.")
        lows = [(m["name"], m["bits_per_byte_low"]) for m in ranked[1:]]  # too short a text has no intervals
        close = [other for other, low in lows if None not in (low, high) and low <= high]
        says += [f"Not clearly different: {', '.join(close)}."] if close else []
    ruled_out = [f"{m['name']} ({impossible(m)})" for m in exact if m.get("impossible")]
    says += [f"It is impossible under {listed(ruled_out)}."] if ruled_out and ranked else []
    says += [f"This text is impossible under {listed(ruled_out)}."] if ruled_out and not ranked else []
    return " ".join(says)
