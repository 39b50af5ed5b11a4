"""report.html of a transferred run: one page that carries everything it needs, for people who want to look.

    result · curves of training and dev · classes and their balance · what is taken for what · calibration
    the most confident mistakes and some right examples, coloured by what each word says · what to know of the data

`render` takes plain values (`Looked`), so that a page can be made again from a run's files and tested without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nextword import __version__
from nextword.heads.settings import SEVERAL
from nextword.page import charts, diagrams
from nextword.page.charts import Axis, Point, Series, duration, escape, number, whole
from nextword.page.heat_map import matrix
from nextword.page.pieces import Column, Model, table
from nextword.page.shell import document
from nextword.transfer.cases import mistaken, right, sentences
from nextword.transfer.whole import counted

FILE = "report.html"
LARGE = 30  # classes whose whole matrix is drawn
MOST = 20  # of more classes, those that are mistaken most
COMMON = 8  # mistakes of a class for another
CALIBRATED = """<p class="note">Examples are put into ten bins by the probability of what was said. A bar is the share
of them that is right, the line across it the mean probability, the number at its foot how many there are. Where bars
end below their lines, the run is surer than it should be.</p>"""


@dataclass(frozen=True)
class Looked:
    """What a page is made of."""

    run: str
    result: Mapping[str, Any]  # as in the manifest
    errors: Mapping[str, Any]  # as in errors.json
    log: Sequence[Mapping[str, Any]]
    balance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # task, or "" → class → share of training
    notes: Sequence[str] = ()
    prompt: tuple[str, str, Sequence[str]] | None = None  # examples, the question after them, and what may follow it


def render(looked: Looked) -> str:
    page = _Page(looked)
    sections = [
        ("curves", "How it learnt", page.curves()),
        ("prompt", "What it reads", page.prompt()),
        ("classes", page.classes_title, page.classes()),
        ("confusion", "What is taken for what", page.confusion()),
        ("numbers", "Said against right", page.numbers()),
        ("calibration", "How sure, and how often right", page.calibration()),
        ("mistakes", page.mistakes_title, page.mistakes()),
        ("right", "Some that are right", page.right_ones()),
        ("data", "What to know of the data", page.notes()),
        ("use", "Use it", page.use()),
    ]
    return document(f"{looked.result['data']}: nextword transfer", page.headline(), sections, __version__)


class _Page:
    def __init__(self, looked: Looked) -> None:
        self.looked, self.result, self.errors = looked, looked.result, looked.errors
        self.metric, self.kind = str(looked.result["metric"]), looked.errors["kind"]
        self.tasks: Sequence[Mapping[str, Any]] = looked.errors.get("tasks") or [looked.errors]

    # ------------------------------------------------------------------------------------------------ the top

    def headline(self) -> str:
        result, dev = self.result, self.result["dev"]
        tested = result["test"] if result.get("final") and "test" in result else dev
        value = f"{100 * tested[self.metric]:.1f}"
        began = "without what the network had learnt before" if result.get("scratch") else "from what it had learnt"
        source = f" of <em>{escape(result['source'])}</em>" if result.get("source") else ""
        n = result["examples"]
        others = [split for split in n if split in result and split != "dev"]
        numbers = [self._said("dev", dev), *(self._said(split, result[split]) for split in others)]
        seconds = f", {duration(result['seconds'])}" if number(result.get("seconds")) else ""
        stopped = " It was stopped early." if result.get("stopped") == "patience" else ""
        how = f"Trained on {n['train']:,} examples, {began}{source}; seed {result['seed']}{seconds}."
        if "shots" in result:
            shots = f"{sum(result['shots'].values())} of {n['train']:,} examples, drawn by seed {result['seed']}"
            how = (
                f"Nothing was trained: {shots}, stand before every text that <em>{escape(result['source'])}</em> reads."
            )
        return (
            '<p class="over">nextword transfer</p>'
            f"<h1>On <em>{escape(result['data'])}</em>: <strong>{value}</strong> {escape(_named(self.metric))}.</h1>"
            f'<p class="lede">{" ".join(numbers)}</p>'
            f'<p class="setting">{how}{stopped}</p>'
        )

    def _said(self, split: str, values: Mapping[str, float]) -> str:
        named = ", ".join(f"{escape(_named(name))} {100 * value:.1f}" for name, value in values.items())
        return f"<strong>{escape(split)}</strong> ({counted(self.result, split)}): {named}."

    # ------------------------------------------------------------------------------------------------ curves

    def curves(self) -> str:
        if self.looked.prompt is not None:  # nothing was learnt
            return ""
        out = []
        lines = _of_task(self.looked.log, self.metric)
        step, valid = ([line for line in lines if line["event"] == kind] for kind in ("step", "valid"))
        units = {"regress": "squared error", "tag": "nats a word", "span": "nats a passage"}
        written = "numbers" in self.looked.errors  # heads/numbered.py
        unit = "nats an example" if written else units.get(self.kind, "nats an example")
        losses = [Series("training", _points(step, "loss"), 0), Series("dev", _points(valid, "valid"), 1)]
        metrics = [Series(_named(name), _points(valid, name, 100), i + 1) for i, name in enumerate(self.result["dev"])]
        for series, label, title in (
            (losses, f"loss, {unit}", "Loss against epochs"),
            (metrics[:4], "on dev, per cent", "Metrics against epochs"),
        ):
            if any(len(one.points) for one in series):
                draw = partial(charts.lines, series, Axis("epoch →"), Axis(label), title)
                out.append(charts.twice(draw, (500, 340), (344, 300)))
        return f'<div class="pair">{"".join(out)}</div>' if out else ""

    def prompt(self) -> str:
        if self.looked.prompt is None:
            return ""
        ahead, question, labels = self.looked.prompt
        said = (
            f"The text takes the place of {{text}}, and what is likeliest there that of {{label}}: {', '.join(labels)}."
        )
        shown = escape(ahead + question)
        return f'<p>{escape(said)}</p><pre style="white-space:pre-wrap"><code>{shown}</code></pre>'

    # ------------------------------------------------------------------------------------------------ classes

    @property
    def classes_title(self) -> str:
        return "Types and tags" if self.kind == "tag" else "Classes and their balance"

    def classes(self) -> str:
        out = []
        for task in self.tasks:
            rows = task.get("classes") or task.get("types")
            if rows:
                name = escape(str(task.get("task") or ""))
                balance = {} if self.kind == "tag" else self.looked.balance.get(task.get("task") or "", {})
                columns = self._columns(rows, balance)
                out.append(_heading(task) + table(f"How well each is found {name}", columns, rows))
        return "".join(out)

    def _columns(self, rows: Sequence[Model], balance: Mapping[str, float]) -> list[Column]:
        spans = "span_f1" in rows[0]
        prefix = "span_" if spans else ""
        columns: list[Column] = [("Class" if self.kind != "tag" else "Tag", "model", lambda row: _class(row["label"]))]
        if balance:
            columns.append(("Share of training", "", lambda row: _bar(balance.get(row["label"], 0.0))))
        columns.append(("In dev", "n", lambda row: whole(row["spans" if spans else "examples"])))
        if not spans:
            columns.append(("Said", "n", lambda row: whole(row["said"])))
        for name in ("precision", "recall", "f1"):
            columns.append((name.capitalize(), "n", partial(_percent, key=prefix + name)))
        return columns

    def confusion(self) -> str:
        out = []
        for task in self.tasks:
            counts, labels = task.get("confusion"), task.get("labels") or []
            if counts:
                out.append(_heading(task) + self._matrix(labels, counts))
            if task.get("worst") and (len(labels) > 2 or not counts):
                out.append(_worst(task["worst"][:COMMON]))
        return "".join(out)

    def _matrix(self, labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
        said, chosen = (
            "Rows: the right class. Columns: what was said. Colour: the share of the row.",
            range(len(labels)),
        )
        if len(labels) > LARGE:
            wrong = [sum(row) + sum(other[i] for other in counts) - 2 * row[i] for i, row in enumerate(counts)]
            chosen = sorted(sorted(chosen, key=lambda i: -wrong[i])[:MOST])  # type: ignore[assignment]
            said += f" Of {len(labels)} classes, the {MOST} that are mistaken most."
        picked = [[counts[i][j] for j in chosen] for i in chosen]
        totals = [sum(counts[i]) for i in chosen]
        drawn = matrix([str(labels[i]) for i in chosen], picked, totals, "What is taken for what")
        return f'<p>{said}</p><div class="maps">{drawn}</div>'

    def numbers(self) -> str:
        out = []
        for e in self.tasks:
            if "mean_absolute_error" in e:
                off = (
                    f"<p>It is off by {e['mean_absolute_error']:.3g} on average (the root of the mean square is "
                    f"{e['root_mean_square_error']:.3g}).</p>"
                )
                drawn = charts.twice(partial(diagrams.dots, e["pairs"]), (560, 400), (344, 320))
                out.append(f'{_heading(e)}{off}<div class="alone">{drawn}</div>')
        return "".join(out)

    def calibration(self) -> str:
        out = []
        for task in self.tasks:
            if found := task.get("calibration"):
                drawn = charts.twice(partial(diagrams.reliability, found["bins"]), (560, 400), (344, 320))
                error = f"<strong>{100 * found['error']:.1f}\u00a0%</strong>"
                out.append(
                    f"{_heading(task)}<p>Expected calibration error: {error}, the mean distance between how sure it "
                    f'was and how often it was right.</p><div class="alone">{drawn}</div>'
                )
        return "".join([*out, CALIBRATED]) if out else ""

    # ------------------------------------------------------------------------------------------------ examples

    @property
    def mistakes_title(self) -> str:
        return {"regress": "The largest errors", "tag": "Sentences with most wrong"}.get(
            self.kind, "The most confident mistakes"
        )

    def mistakes(self) -> str:
        shown = sentences if self.kind == "tag" else mistaken
        return "".join(_heading(task) + shown(task) for task in self.tasks)

    def right_ones(self) -> str:
        return "".join(_heading(task) + right(task) for task in self.tasks if task.get("right_ones"))

    # ------------------------------------------------------------------------------------------------ the rest

    def notes(self) -> str:
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.looked.notes)
        return f"<ul>{notes}</ul>" if notes else ""

    def use(self) -> str:
        usual = f"my.csv --output labelled.csv{' --task NAME' if self.kind == SEVERAL else ''}"
        files = {"tag": "my.txt --output my.conll", "span": "my.json --output predictions.json"}
        file = files.get(self.kind, usual)
        return f"<pre><code>{escape(f'nextword predict {self.looked.run} {file}')}</code></pre>"


# ------------------------------------------------------------------------------------------------ pieces


def _of_task(log: Sequence[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Lines of the phases that learnt the task, with epochs counted on from one to the next."""
    phases: dict[int, list[Mapping[str, Any]]] = {}
    for line in log:
        if line.get("event") in ("step", "valid"):
            phases.setdefault(line.get("index", 0), []).append(line)
    found: list[dict[str, Any]] = []
    before = 0.0
    for _, lines in sorted(phases.items()):
        if any(metric in line for line in lines):
            found += [{**line, "epoch": before + (number(line.get("epoch")) or 0.0)} for line in lines]
            before = found[-1]["epoch"]
    return found


def _points(lines: Sequence[Mapping[str, Any]], key: str, scale: float = 1.0) -> list[Point]:
    found = []
    for line in lines:
        x, y = number(line.get("epoch")), number(line.get(key))
        if x is not None and y is not None:
            found.append(Point(x, scale * y, note=f"{scale * y:.3g} at epoch {x:.3g}"))
    return found


def _named(metric: str) -> str:
    return metric.replace("_", " ")


def _percent(row: Model, key: str) -> str:
    return f"{100 * row[key]:.1f}"


def _bar(share: float) -> str:
    return f'<span class="amount"><i style="width:{100 * share:.1f}%"></i></span>{100 * share:.1f}\u00a0%'


def _class(label: Any) -> str:
    """Its name, which may be long: it goes over lines, so that the numbers beside it are seen."""
    return f'<span class="class">{escape(label)}</span>'


def _worst(rows: Sequence[Model]) -> str:
    columns: list[Column] = [
        ("Right", "model", lambda row: _class(row["label"])),
        ("Said", "", lambda row: _class(row["said"])),
        ("Times", "n", lambda row: whole(row["count"])),
        ("Of its class", "n", lambda row: f"{100 * row['share']:.1f}\u00a0%"),
    ]
    return table("The commonest mistakes", columns, rows)


def _heading(task: Mapping[str, Any]) -> str:
    """Of one of several tasks its name."""
    return f"<h3>{escape(task['task'])}</h3>" if task.get("task") else ""
