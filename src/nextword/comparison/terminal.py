"""The comparison in the terminal: a live table while it runs, and the leaderboard at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nextword.comparison.compare import Update
from nextword.comparison.limits import describe_limits, describe_no_winner, find_winner
from nextword.comparison.mixture import describe_mixture
from nextword.comparison.translation import TRANSLATOR
from nextword.core.io import format_number, restore_infinities
from nextword.html.formatting import format_count, format_duration, format_size
from nextword.html.page import describe_impossible, join_names
from nextword.training.events import Event

COLUMNS = ("bits/byte", "95 %", "word ppl", "token ppl", "params", "on disk", "training", "scoring")
NARROW_COLUMNS = ("bits/byte", "95 %", "word ppl", "params", "training")  # in a terminal of 80 columns
WIDE = 100  # columns of a terminal that has room for all
BAR_WIDTH = 14
STATUS = {"sizing": "choosing a size", "scoring": "scoring the test text", "failed": "[red]failed[/]"}


class LiveTable:
    """What each model is doing now, as one table that is redrawn with every update."""

    def __init__(self, names: list[str], title: str) -> None:
        self.rows: dict[str, dict[str, Any]] = {name: {"status": "[dim]waiting[/]"} for name in names}
        self.title = title
        self.note = ""

    def __call__(self, update: Update) -> None:
        if update.status == "warning":
            return
        row = self.rows[update.name]
        self.note = ""
        if update.event is not None:
            row.update(_training_row(update.event, row))
        elif update.status == "done":
            row.update(update.values, status="[green]done[/]")
        else:
            row["status"] = STATUS[update.status]

    def preparing(self, label: str, done: float, total: float | None) -> None:
        self.note = f"{label} … {100 * done / total:.0f} %" if total else f"{label} …"

    def __rich__(self) -> Group:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("model", style="bold")
        table.add_column("status", min_width=24)
        for name in ("parameters", "time", "valid bits/byte", "test bits/byte"):
            table.add_column(name, justify="right")
        for name, row in self.rows.items():
            test = row.get("bits_per_byte")
            table.add_row(
                escape(name),
                row["status"],
                format_count(row["parameters"]) if row.get("parameters") else "",
                format_duration(row["seconds"]) if row.get("seconds") else "",
                format_number(row["valid"], 3) if row.get("valid") else "",
                f"[bold]{format_number(test, 3)}[/]" if test else "",
            )
        return Group(Text(self.title, style="bold"), table, Text(self.note, style="dim"))


def _training_row(event: Event, row: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a model that is training, with a progress bar as its status."""
    values = event.values
    new: dict[str, Any] = {"seconds": event.seconds}
    if event.kind == "begin":
        new |= {"parameters": values.get("parameters"), "total": values.get("steps")}
    if event.kind == "valid" and "valid_bits_per_byte" in values:
        new["valid"] = values["valid_bits_per_byte"]
    total = new["total"] = values.get("of") or new.get("total") or row.get("total")
    share = min(event.step / total if total else event.epoch, 1.0)  # counting has no steps, but one epoch
    filled = round(BAR_WIDTH * share)
    new["status"] = f"[cyan]{'━' * filled}[/][dim]{'━' * (BAR_WIDTH - filled)}[/] {100 * share:3.0f} %"
    return new


# ------------------------------------------------------------------------------------------------ the leaderboard


def leaderboard(comparison: Mapping[str, Any], width: int = 120) -> Group:
    """Best first. Only exact likelihoods are ranked; a verdict says which models are not clearly different."""
    models = [restore_infinities(m) for m in comparison["models"] if m["status"] == "done"]
    failed = [
        Text(f"{m['name']} failed: {m['error']}", style="red") for m in comparison["models"] if m["status"] == "failed"
    ]
    limits = describe_limits(models, more_time=bool((comparison.get("budget") or {}).get("minutes")))
    caveat = [Text(limits, style="yellow")] if limits else []
    if translators := [m for m in models if m["kind"] == TRANSLATOR]:
        hasty = [] if find_winner(translators) else [Text(describe_no_winner(translators), style="yellow")]
        return Group(_translator_table(translators), *failed, *hasty, *caveat)
    exact = [m for m in models if m["kind"] == "exact"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("model", style="bold", no_wrap=True)
    columns = [name for name in COLUMNS if width >= WIDE or name in NARROW_COLUMNS]
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for rank, m in enumerate(exact, 1):
        cells = _cells(m)
        table.add_row(str(rank), escape(m["name"]), *(cells[name] for name in columns))
    parts: list[RenderableType] = [table]
    for m in models:
        if m["kind"] != "exact":
            parts.append(Text(f"{m['name']}: pseudo-likelihood, not ranked with the others", style="dim"))
    mixture = describe_mixture(comparison.get("mixture"))
    says = [Text(verdict(exact), style="green" if find_winner(exact) else "yellow"), *caveat]
    return Group(*parts, *failed, *says, *([Text(mixture)] if mixture else []))


def _translator_table(models: Sequence[Mapping[str, Any]]) -> Table:
    """Sequence-to-sequence models, best first by BLEU."""
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
            format_number(m["token_perplexity"], 2),
            format_count(m["parameters"]),
            format_duration(m["seconds"]) if m.get("seconds") else "–",
        )
    return table


def _cells(m: Mapping[str, Any]) -> dict[str, str]:
    low, high = m.get("bits_per_byte_low"), m.get("bits_per_byte_high")
    return {
        "bits/byte": "–" if m["bits_per_byte"] is None else f"[bold]{format_number(m['bits_per_byte'], 3)}[/]",
        "95 %": "" if low in (None, math.inf) else f"[dim]{low:.3f}–{high:.3f}[/]",
        "word ppl": format_number(m["word_perplexity"], 1),
        "token ppl": format_number(m["token_perplexity"], 1),
        "params": format_count(m["parameters"]),
        "on disk": format_size(m["size"]),
        "training": format_duration(m["seconds"]) if m.get("seconds") else "–",
        "scoring": f"{format_count(m['tokens_per_second'])}/s" if m.get("tokens_per_second") else "–",
    }


def verdict(exact: Sequence[Mapping[str, Any]]) -> str:
    """The result in a sentence or two: the best model, if the budget allows to name one, those not clearly different,
    and any that rule the text out."""
    ranked = [m for m in exact if m["bits_per_byte"] not in (None, math.inf)]
    best = find_winner(ranked)
    sentences = []
    if best is not None:
        name, bits, high = (best[key] for key in ("name", "bits_per_byte", "bits_per_byte_high"))
        sentences.append(f"{name} predicts this text best: {bits:.3f} bits per byte, {bits / 8:.0%} of its size.")
        lows = [(m["name"], m["bits_per_byte_low"]) for m in ranked if m is not best]  # a short text has no intervals
        close = [other for other, low in lows if None not in (low, high) and low <= high]
        sentences += [f"Not clearly different: {', '.join(close)}."] if close else []
    elif ranked:
        sentences.append(describe_no_winner(ranked))
    ruled_out = [f"{m['name']} ({describe_impossible(m)})" for m in exact if m.get("impossible")]
    if ruled_out:
        subject = "It" if ranked else "This text"
        sentences.append(f"{subject} is impossible under {join_names(ruled_out)}.")
    return " ".join(sentences)
