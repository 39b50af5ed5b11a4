"""What a transferred run gets wrong, in the terminal: what is taken for what, each class, and the surest mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from nextword.cli.console import console
from nextword.cli.results import table

SMALL = 10  # classes whose whole matrix fits
ROWS = 8  # of a table of the worst
SHOWN = 3  # mistakes
LETTERS = 110  # of a text
SHARES = ("precision", "recall", "f1")


def show_errors(errors: Mapping[str, Any]) -> None:
    for task in errors.get("tasks") or [errors]:
        if task.get("task"):
            console.print(f"\n[bold]{escape(task['task'])}[/]")
        kind = task.get("kind", errors["kind"])
        {"tag": _tags, "regress": _error_numbers, "span": _answers, "choice": _answers}.get(kind, _classes)(task)


def _classes(found: Mapping[str, Any]) -> None:
    labels = found["labels"]
    if len(labels) <= SMALL:
        heads = ["right ↓ said →", *(escape(_short(label, 12)) for label in labels), *SHARES]
        rows = [
            [escape(_short(one["label"], 24)), *_counts(row, i), *_shares(one)]
            for i, (one, row) in enumerate(zip(found["classes"], found["confusion"], strict=True))
        ]
        table(heads, rows, f"of {found['examples']:,} examples of dev, what is taken for what")
    else:
        least = sorted((one for one in found["classes"] if one["examples"]), key=_least)[:ROWS]
        heads = ["class", "examples", *SHARES]
        rows = [[escape(_short(one["label"], 24)), f"{one['examples']:,}", *_shares(one)] for one in least]
        table(heads, rows, f"the {len(least)} of {len(labels)} classes that are found least")
        _worst(found["worst"])
    _surest(found)


def _answers(found: Mapping[str, Any]) -> None:
    console.print(f"of {found['examples']:,} examples of dev {found['wrong']:,} are not right")
    _surest(found)


def _surest(found: Mapping[str, Any]) -> None:
    error = found["calibration"]["error"]
    console.print(f"[dim]· calibration: probabilities are off by {100 * error:.1f} points on average[/]")
    if found["mistakes"]:
        console.print("[bold]the most confident mistakes[/]")
    for one in found["mistakes"][:SHOWN]:
        said = (
            f"said [bold]{escape(one['predicted'])}[/] ({one['probability']:.0%}), is [bold]{escape(one['label'])}[/]"
        )
        console.print(f"  {said}: {_text(one)}", soft_wrap=True)


def _least(one: Mapping[str, Any]) -> tuple[float, int]:
    return one["f1"], -one["examples"]


def _counts(row: Sequence[int], own: int) -> list[str]:
    return [f"[bold]{n:,}[/]" if i == own else f"{n:,}" if n else "[dim]·[/]" for i, n in enumerate(row)]


def _shares(one: Mapping[str, Any], prefix: str = "") -> list[str]:
    return [f"{100 * one[prefix + name]:.1f}" for name in SHARES]


def _worst(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        shown = [
            [*(escape(_short(one[key], 24)) for key in ("label", "said")), f"{one['count']:,}", f"{one['share']:.1%}"]
            for one in rows[:ROWS]
        ]
        table(("right", "said", "times", "of its class"), shown, "the commonest mistakes")


def _error_numbers(found: Mapping[str, Any]) -> None:
    off = f"off by {found['mean_absolute_error']:.3g} on average"
    console.print(
        f"[bold]the largest errors[/] [dim]({off}, root mean square {found['root_mean_square_error']:.3g})[/]"
    )
    for one in found["mistakes"][:SHOWN]:
        said = f"said [bold]{one['predicted']:.4g}[/], is [bold]{one['label']:g}[/]"
        console.print(f"  {said}: {_text(one)}", soft_wrap=True)


def _tags(found: Mapping[str, Any]) -> None:
    spans = "types" in found
    each = sorted(found["types" if spans else "classes"], key=lambda one: -one["spans" if spans else "examples"])
    prefix, count = ("span_", "spans") if spans else ("", "examples")
    rows = [[escape(one["label"]), f"{one[count]:,}", *_shares(one, prefix)] for one in each[: 2 * ROWS]]
    more = f", the commonest of {len(each)}" if len(each) > 2 * ROWS else ""
    table(("type" if spans else "tag", "in dev", *SHARES), rows, f"{'types' if spans else 'tags'}{more}")
    if found["mistakes"]:
        console.print(
            f"[bold]sentences with most wrong[/] [dim]({found['wrong']:,} of {found['examples']:,} have any)[/]"
        )
    for one in found["mistakes"][:SHOWN]:
        wrong = [
            f"{escape(word)} [dim]said[/] {escape(said)} [dim]is[/] {escape(tag)}"
            for word, tag, said in zip(one["words"], one["tags"], one["said"], strict=True)
            if tag != said
        ]
        console.print(f"  {escape(_short(' '.join(one['words']), LETTERS))}", soft_wrap=True)
        console.print(f"    {' · '.join(wrong[:ROWS])}", soft_wrap=True)


def _text(one: Mapping[str, Any]) -> str:
    texts = [one[key] for key in ("text", "second") if key in one]
    return " [dim]│[/] ".join(escape(_short(" ".join(text.split()), LETTERS // len(texts))) for text in texts)


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"
