"""report.html of a transferred run: one page that carries everything it needs, for people who want to look.

    result · curves of training and dev · classes and their balance · what is taken for what · calibration
    the most confident mistakes and some right examples, coloured by what each word says · what to know of the data

`render` takes plain values (`Looked`), so that a page can be made again from a run's files and tested without one.

Examples on a transferred run's page: what was said and what is right, and the words, coloured by their weight.

    said 5 with 91.2%, right is 1
    the plot was dull but the music was great            blue: speaks for 5; orange: against it

Wherever words are coloured, a legend says what the colours are; what they add up to depends on what is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nextword import __version__
from nextword.data.tag_schemes import spans
from nextword.html import charts
from nextword.html import charts as diagrams
from nextword.html.charts import Axis, Point, Series
from nextword.html.heat_map import confusion_map
from nextword.html.formatting import as_number, escape, format_duration, format_integer
from nextword.html.page import Column, Model, document, html_table
from nextword.tasks.settings import SEVERAL
from nextword.tasks.subsets import counted

CASES = 12
LEVELS = 5  # of colour: f1 … f5 and g1 … g5 in page.css
LONG = "Words are not coloured: these texts are too long for them to be weighed."
WEIGHED = """<p>The colour of a word says {says}: integrated gradients over the embeddings of its tokens, in 16 steps or
64 from a text of blanks to the text itself. The weights of all words add up to {sum}. The strongest colour is the
greatest weight of its own text, so that colours of two texts do not compare. They tell what the network used, not what
is true, and not what would happen were the word another.</p>"""
OF_CLASSES = """how far the score of the class lies above the mean of all classes, less how far it does so with blanks
alone. Where a text of blanks is taken for a class already, even words of that class may speak against it"""
OF_NUMBERS = "the number that is said, less the one that is said of blanks alone, in the units of the labels"
OF_WRITTEN = """the mean of all numbers that may be written, by their probabilities, less the same of blanks alone, in
the units of the labels"""


def mistaken(task: Mapping[str, Any]) -> str:
    """The mistakes of a task, the worst first."""
    shown = task["mistakes"][:CASES]
    if not shown:
        return f"<p>None: all {task['examples']:,} examples are right.</p>"
    return _told(task, shown) + "".join(map(_case, shown))


def right(task: Mapping[str, Any]) -> str:
    """Some that are right."""
    shown = task["right_ones"]
    return _told(task, shown, before=task["mistakes"][:CASES]) + "".join(map(_case, shown))


def _told(task: Mapping[str, Any], shown: Sequence[Any], before: Sequence[Any] = ()) -> str:
    """What the colours of these examples mean, at length unless that was told `before`; or why they have none."""
    if _colours(shown):
        return ("" if _colours(before) else _weighed(task)) + _legend(task)
    how = task.get("attribution") or {}
    why = how.get("why") or (LONG if how.get("too_long") else "")
    return f'<p class="note">{escape(why)}</p>' if why and not before else ""


def _colours(shown: Sequence[Mapping[str, Any]]) -> bool:
    return any("weights" in one for one in shown)


def _weighed(task: Mapping[str, Any]) -> str:
    if not _of_numbers(task):
        return WEIGHED.format(says="how much it speaks for what was said, or against it", sum=OF_CLASSES)
    added = OF_WRITTEN if "numbers" in task else OF_NUMBERS
    return WEIGHED.format(says="by how much it raises the number that is said, or lowers it", sum=added)


def _of_numbers(task: Mapping[str, Any]) -> bool:
    return "mean_absolute_error" in task


def _case(one: Mapping[str, Any]) -> str:
    """One example: what was said and what is right, and its text, word by word."""
    if "error" in one:
        verdict = f"said <strong>{one['predicted']:.4g}</strong>, right is <strong>{one['label']:g}</strong>"
    elif one["label"] == one["predicted"]:
        verdict = f"<strong>{escape(one['predicted'])}</strong> with {one['probability']:.1%}"
    else:
        verdict = (
            f"said <strong>{escape(one['predicted'])}</strong> with {one['probability']:.1%}, right is "
            f"<strong>{escape(one['label'])}</strong>"
            + (f" ({one['probability_of_label']:.1%})" if "probability_of_label" in one else "")
        )
    texts = [one[key] for key in ("text", "second") if key in one]
    body = "".join(f'<p class="text" dir="auto">{part}</p>' for part in _coloured(one, texts))
    return f'<article class="case"><p class="verdict">{verdict}</p>{body}</article>'


def _coloured(one: Mapping[str, Any], texts: Sequence[str]) -> list[str]:
    if "weights" not in one:
        return [escape(text) or "(empty)" for text in texts]
    most = max((abs(w) for weights in one["weights"] for w in weights if w is not None), default=0.0) or 1.0
    return [
        " ".join(_word(word, weight, most) for word, weight in zip(words, weights, strict=True)) or "(empty)"
        for words, weights in zip(one["words"], one["weights"], strict=True)
    ]


def _word(word: str, weight: float | None, most: float) -> str:
    if weight is None:
        return f'<span class="unread" title="not read: the text was cut before it">{escape(word)}</span>'
    level = round(LEVELS * abs(weight) / most)
    css = f' class="{"f" if weight > 0 else "g"}{level}"' if level else ""
    return f'<span{css} title="{weight:+.3f}">{escape(word)}</span>'


def _legend(task: Mapping[str, Any]) -> str:
    down, up = ("lowers it", "raises it") if _of_numbers(task) else ("against", "for it")
    levels = range(1, LEVELS + 1)
    against = "".join(f'<span class="g{n}">{down if n == LEVELS else "&nbsp;&nbsp;"}</span>' for n in levels[::-1])
    towards = "".join(f'<span class="f{n}">{up if n == LEVELS else "&nbsp;&nbsp;"}</span>' for n in levels)
    return f'<p class="legend"><span class="unit">what was said:</span>{against}<span>&nbsp;0&nbsp;</span>{towards}</p>'


# ------------------------------------------------------------------------------------------------ tags


def sentences(task: Mapping[str, Any]) -> str:
    """Those with most wrong, each as it is tagged and as it was."""
    if not task["mistakes"]:
        return f"<p>None: all {task['examples']:,} sentences are right.</p>"
    of_spans = "types" in task
    cases = []
    for one in task["mistakes"][:CASES]:
        lines = [("right", one["tags"]), ("said", one["said"])]
        body = "".join(
            f'<p class="verdict">{name}</p><p class="text" dir="auto">{_marked(one["words"], tags, of_spans)}</p>'
            for name, tags in lines
        )
        cases.append(f'<article class="case">{body}</article>')
    return "".join(cases)


def _marked(words: Sequence[str], tags: Sequence[str], of_spans: bool) -> str:
    shown = [escape(word) for word in words]
    if not of_spans:
        return " ".join(f"{word}<sub>{escape(tag)}</sub>" for word, tag in zip(shown, tags, strict=True))
    out, at = [], 0
    for span in spans(tags):
        out += [
            *shown[at : span.start],
            f"<mark>{' '.join(shown[span.start : span.end])}<sub>{escape(span.type)}</sub></mark>",
        ]
        at = span.end
    return " ".join([*out, *shown[at:]])


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
        seconds = f", {format_duration(result['seconds'])}" if as_number(result.get("seconds")) else ""
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
                draw = partial(charts.line_chart, series, Axis("epoch →"), Axis(label), title)
                out.append(charts.responsive_figure(draw, (500, 340), (344, 300)))
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
                out.append(_heading(task) + html_table(f"How well each is found {name}", columns, rows))
        return "".join(out)

    def _columns(self, rows: Sequence[Model], balance: Mapping[str, float]) -> list[Column]:
        spans = "span_f1" in rows[0]
        prefix = "span_" if spans else ""
        columns: list[Column] = [("Class" if self.kind != "tag" else "Tag", "model", lambda row: _class(row["label"]))]
        if balance:
            columns.append(("Share of training", "", lambda row: _bar(balance.get(row["label"], 0.0))))
        columns.append(("In dev", "n", lambda row: format_integer(row["spans" if spans else "examples"])))
        if not spans:
            columns.append(("Said", "n", lambda row: format_integer(row["said"])))
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
        drawn = confusion_map([str(labels[i]) for i in chosen], picked, totals, "What is taken for what")
        return f'<p>{said}</p><div class="maps">{drawn}</div>'

    def numbers(self) -> str:
        out = []
        for e in self.tasks:
            if "mean_absolute_error" in e:
                off = (
                    f"<p>It is off by {e['mean_absolute_error']:.3g} on average (the root of the mean square is "
                    f"{e['root_mean_square_error']:.3g}).</p>"
                )
                drawn = charts.responsive_figure(partial(diagrams.regression_chart, e["pairs"]), (560, 400), (344, 320))
                out.append(f'{_heading(e)}{off}<div class="alone">{drawn}</div>')
        return "".join(out)

    def calibration(self) -> str:
        out = []
        for task in self.tasks:
            if found := task.get("calibration"):
                drawn = charts.responsive_figure(partial(diagrams.reliability_diagram, found["bins"]), (560, 400), (344, 320))
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
            found += [{**line, "epoch": before + (as_number(line.get("epoch")) or 0.0)} for line in lines]
            before = found[-1]["epoch"]
    return found


def _points(lines: Sequence[Mapping[str, Any]], key: str, scale: float = 1.0) -> list[Point]:
    found = []
    for line in lines:
        x, y = as_number(line.get("epoch")), as_number(line.get(key))
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
        ("Times", "n", lambda row: format_integer(row["count"])),
        ("Of its class", "n", lambda row: f"{100 * row['share']:.1f}\u00a0%"),
    ]
    return html_table("The commonest mistakes", columns, rows)


def _heading(task: Mapping[str, Any]) -> str:
    """Of one of several tasks its name."""
    return f"<h3>{escape(task['task'])}</h3>" if task.get("task") else ""
