"""report.html of a fine-tuned run: one self-contained page about its results and its errors on dev.

    result and baselines · training curves · classes and their balance · confusion matrix · calibration
    the most confident mistakes and some correct examples, with words colored by attribution · notes on the data

`render` takes plain values (`ReportData`), so a page can be rebuilt from a run's files, and tested without a run.
Sections depend on the layout of the error analysis (error_analysis.py), not on the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nextword import __version__
from nextword.data.tag_schemes import find_spans
from nextword.html import charts
from nextword.html.charts import Axis, Point, Series, confusion_map
from nextword.html.formatting import as_number, escape, format_duration, format_integer
from nextword.html.page import Column, Model, document, html_table
from nextword.tasks.base import Wording
from nextword.tasks.baselines import describe_only_prediction, describe_verdict, format_difference, sort_methods
from nextword.tasks.error_analysis import tasks_of

FILE = "report.html"
WIDE, NARROW = (560, 400), (344, 320)  # of a figure on a screen and on a phone
MAX_MATRIX = 30  # classes in a full confusion matrix
MAX_CONFUSED = 20  # with more classes, those with the most errors
MAX_CONFUSIONS = 8  # rows in the table of confusions
MAX_CASES = 12  # examples in a section
MAX_METRICS = 4  # curves in one chart
COLOR_LEVELS = 5  # f1 … f5 and g1 … g5 in page.css


@dataclass(frozen=True)
class ReportData:
    run: str
    result: Mapping[str, Any]  # as in the manifest
    errors: Mapping[str, Any]  # as in errors.json
    log: Sequence[Mapping[str, Any]]
    balance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # task or "" → class → share of training
    wording: Wording = field(default_factory=lambda: Wording(""))


def render(data: ReportData) -> str:
    page = _Page(data)
    sections = [
        ("baselines", "Baselines", page.baselines()),
        ("curves", "Training", page.curves()),
        ("prompt", "Prompt", page.prompt()),
        ("classes", "Tags" if page.layout == "tags" else "Classes", page.classes()),
        ("confusion", "Confusion matrix", page.confusion()),
        ("numbers", "Predicted against gold", page.numbers()),
        ("calibration", "Calibration", page.calibration()),
        ("mistakes", MISTAKES.get(page.layout, "Most confident mistakes"), page.mistakes()),
        ("correct", "Correct examples", page.correct()),
        ("data", "Notes on the data", page.notes()),
        ("use", "Use it", page.use()),
    ]
    return document(f"{data.result['data']}: nextword transfer", page.headline(), sections, __version__)


MISTAKES = {"numbers": "Largest errors", "tags": "Sentences with the most errors"}
CALIBRATION = """<p class="note">Examples are binned by the probability of the predicted class. Each bar is the accuracy
in its bin, the line across it the mean probability, and the number below it the number of examples. If bars end below
their lines, the model is overconfident.</p>"""


class _Page:
    def __init__(self, data: ReportData) -> None:
        self.data, self.result, self.tasks = data, data.result, tasks_of(data.errors)
        self.metric = str(data.result["metric"])
        layouts = {str(task["layout"]) for task in self.tasks}
        self.layout = layouts.pop() if len(layouts) == 1 else ""

    def headline(self) -> str:
        result, examples = self.result, self.result["examples"]
        has_final_test = result.get("merge_dev_into_train") and "test" in result
        value = f"{100 * result['test' if has_final_test else 'dev'][self.metric]:.1f}"
        splits = ["dev", *(split for split in examples if split in result and split != "dev")]
        return (
            '<p class="over">nextword transfer</p>'
            f"<h1>On <em>{escape(result['data'])}</em>: <strong>{value}</strong> {escape(_readable(self.metric))}.</h1>"
            f'<p class="lede">{" ".join(map(self._scores, splits))}</p>'
            f"{''.join(self._verdicts())}"
            f'<p class="setting">{self._how()}</p>'
        )

    def _verdicts(self) -> list[str]:
        """Whether the model is better than the baselines, for each task."""
        return [
            f'<p class="lede">{escape(sentence)}</p>'
            for comparison in self.result.get("baselines", ())
            for sentence in (describe_only_prediction(comparison), describe_verdict(comparison))
            if sentence
        ]

    def _scores(self, split: str) -> str:
        scores = self.result[split].items()
        named = ", ".join(f"{escape(_readable(name))} {100 * value:.1f}" for name, value in scores)
        return f"<strong>{escape(split)}</strong> ({count_examples(self.result, split)}): {named}."

    def _how(self) -> str:
        result, train = self.result, self.result["examples"]["train"]
        source = f"<em>{escape(result['source'])}</em>" if result.get("source") else ""
        if "shots" in result:
            shots = f"{sum(result['shots'].values())} of {train:,} examples, drawn with seed {result['seed']}"
            return f"Nothing was trained: {source} reads a prompt with {shots}."
        start = "from scratch" if result.get("scratch") else f"from {source}" if source else "from pretrained weights"
        seconds = f", {format_duration(result['seconds'])}" if as_number(result.get("seconds")) else ""
        early = " Stopped early." if result.get("stopped") == "patience" else ""
        return f"Trained {start} on {train:,} examples; seed {result['seed']}{seconds}.{early}"

    # ------------------------------------------------------------------------------------------------ baselines

    def baselines(self) -> str:
        return "".join(map(_baselines, self.result.get("baselines", ())))

    # ------------------------------------------------------------------------------------------------ training

    def curves(self) -> str:
        if "prompt" in self.data.errors:
            return ""
        lines = _task_phases(self.data.log, self.metric)
        step, valid = ([line for line in lines if line["event"] == kind] for kind in ("step", "valid"))
        losses = [Series("training", _points(step, "loss"), 0), Series("dev", _points(valid, "valid"), 1)]
        metrics = [
            Series(_readable(name), _points(valid, name, 100), i + 1) for i, name in enumerate(self.result["dev"])
        ]
        figures = []
        for series, label, title in (
            (losses, f"loss, {self.data.wording.loss_unit}", "Loss by epoch"),
            (metrics[:MAX_METRICS], "dev, percent", "Metrics by epoch"),
        ):
            if any(len(line.points) for line in series):
                draw = partial(charts.line_chart, series, Axis("epoch →"), Axis(label), title)
                figures.append(charts.responsive_figure(draw, (500, 340), (344, 300)))
        return f'<div class="pair">{"".join(figures)}</div>' if figures else ""

    def prompt(self) -> str:
        prompt = self.data.errors.get("prompt")
        if prompt is None:
            return ""
        how = f"{{text}} is the text; the most likely {{label}} is predicted: {', '.join(prompt['labels'])}."
        shown = escape(prompt["text"])
        return f'<p>{escape(how)}</p><pre style="white-space:pre-wrap"><code>{shown}</code></pre>'

    # ------------------------------------------------------------------------------------------------ scores

    def classes(self) -> str:
        tables = []
        for task in self.tasks:
            rows = task.get("classes") or task.get("types")
            if rows:
                name = str(task.get("task") or "")
                balance = {} if task["layout"] == "tags" else self.data.balance.get(name, {})
                columns = _class_columns(rows, balance, "Tag" if task["layout"] == "tags" else "Class")
                tables.append(_heading(task) + html_table(f"Scores by class {escape(name)}", columns, rows))
        return "".join(tables)

    def confusion(self) -> str:
        parts = []
        for task in self.tasks:
            counts, labels = task.get("confusion"), task.get("labels") or []
            if counts:
                parts.append(_heading(task) + _matrix(labels, counts))
            if task.get("most_confused") and (len(labels) > 2 or not counts):
                parts.append(_confusions(task["most_confused"][:MAX_CONFUSIONS]))
        return "".join(parts)

    def numbers(self) -> str:
        parts = []
        for task in self.tasks:
            if task["layout"] == "numbers":
                errors = (
                    f"<p>Mean absolute error {task['mean_absolute_error']:.3g}, root mean square error "
                    f"{task['root_mean_square_error']:.3g}.</p>"
                )
                figure = charts.responsive_figure(partial(charts.regression_chart, task["pairs"]), WIDE, NARROW)
                parts.append(f'{_heading(task)}{errors}<div class="alone">{figure}</div>')
        return "".join(parts)

    def calibration(self) -> str:
        parts = []
        for task in self.tasks:
            if calibration := task.get("calibration"):
                draw = partial(charts.reliability_diagram, calibration["bins"])
                figure = charts.responsive_figure(draw, WIDE, NARROW)
                error = f"<strong>{100 * calibration['error']:.1f}\u00a0%</strong>"
                parts.append(
                    f"{_heading(task)}<p>Expected calibration error: {error}, the mean difference between confidence "
                    f'and accuracy.</p><div class="alone">{figure}</div>'
                )
        return "".join([*parts, CALIBRATION]) if parts else ""

    # ------------------------------------------------------------------------------------------------ examples

    def mistakes(self) -> str:
        return "".join(
            _heading(task) + (_sentences(task) if task["layout"] == "tags" else _mistakes(task)) for task in self.tasks
        )

    def correct(self) -> str:
        return "".join(_heading(task) + _correct(task) for task in self.tasks if task.get("correct"))

    def notes(self) -> str:
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.result.get("notes", ()))
        return f"<ul>{notes}</ul>" if notes else ""

    def use(self) -> str:
        return f"<pre><code>{escape(f'nextword predict {self.data.run} {self.data.wording.command}')}</code></pre>"


def count_examples(result: Mapping[str, Any], split: str) -> str:
    """Say how many examples a score is about, and whether the model was trained on them."""
    trained_on = ", also trained on" if split == "dev" and result.get("merge_dev_into_train") else ""
    return f"{result['examples'][split]:,} examples{trained_on}"


# ------------------------------------------------------------------------------------------------ baselines

BASELINES = """<p class="note">Cheap methods, trained on the same examples as the model. The bar is the 95 % interval of
the difference in {metric}: a paired bootstrap over {examples} examples of {split}. The line through all rows is a
difference of zero: a bar to its right means that the model is better.</p>"""


def _baselines(comparison: Mapping[str, Any]) -> str:
    """The scores of the model and of the baselines, and the differences with their intervals."""
    split, metric, methods = comparison["split"], comparison["metric"], sort_methods(comparison)
    ends = [0.0, *(method[key] for method in methods for key in ("low", "high"))]
    scale = min(ends), max(ends)
    rows = [{"name": "this model", **comparison["scores"]}, *({**method, **method[split]} for method in methods)]

    def bar(row: Model) -> str:
        if "difference" not in row:
            return ""
        drawn = charts.interval_bar(row["difference"], row["low"], row["high"], *scale, zero=True)
        return f"{drawn} {escape(format_difference(row))}"

    columns: list[Column] = [("Method", "model", lambda row: escape(row["name"]))]
    for name in comparison["scores"]:
        columns.append((escape(_readable(name)).capitalize(), "n", partial(_percent, key=name)))
    columns.append((f"Model − baseline, {escape(_readable(metric))}", "", bar))
    columns.append(("Seconds", "n", lambda row: f"{row['seconds']:.1f}" if "seconds" in row else ""))
    note = BASELINES.format(metric=_readable(metric), examples=f"{comparison['examples']:,}", split=escape(split))
    items = "".join(f"<li>{escape(advice)}</li>" for advice in comparison["advice"])
    advice = f"<p>What may help:</p><ul>{items}</ul>" if items else ""
    caption = f"Scores on {escape(split)} {escape(comparison.get('task', ''))}".strip()
    return _heading(comparison) + html_table(caption, columns, rows) + note + advice


# ------------------------------------------------------------------------------------------------ tables and curves


def _task_phases(log: Sequence[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Return the log of the phases that trained the task, with epochs counted across phases."""
    phases: dict[int, list[Mapping[str, Any]]] = {}
    for line in log:
        if line.get("event") in ("step", "valid"):
            phases.setdefault(line.get("index", 0), []).append(line)
    lines: list[dict[str, Any]] = []
    epochs_before = 0.0
    for _, phase in sorted(phases.items()):
        if any(metric in line for line in phase):
            lines += [{**line, "epoch": epochs_before + (as_number(line.get("epoch")) or 0.0)} for line in phase]
            epochs_before = lines[-1]["epoch"]
    return lines


def _points(lines: Sequence[Mapping[str, Any]], key: str, scale: float = 1.0) -> list[Point]:
    points = []
    for line in lines:
        x, y = as_number(line.get("epoch")), as_number(line.get(key))
        if x is not None and y is not None:
            points.append(Point(x, scale * y, note=f"{scale * y:.3g} at epoch {x:.3g}"))
    return points


def _readable(metric: str) -> str:
    return metric.replace("_", " ")


def _heading(task: Mapping[str, Any]) -> str:
    """The name of a task, if there are several."""
    return f"<h3>{escape(task['task'])}</h3>" if task.get("task") else ""


def _class_columns(rows: Sequence[Model], balance: Mapping[str, float], what: str) -> list[Column]:
    has_spans = "span_f1" in rows[0]
    prefix = "span_" if has_spans else ""
    columns: list[Column] = [(what, "model", lambda row: _label(row["label"]))]
    if balance:
        columns.append(("Share of training", "", lambda row: _bar(balance.get(row["label"], 0.0))))
    columns.append(("In dev", "n", lambda row: format_integer(row["spans" if has_spans else "examples"])))
    if not has_spans:
        columns.append(("Predicted", "n", lambda row: format_integer(row["predicted"])))
    for name in ("precision", "recall", "f1"):
        columns.append((name.capitalize(), "n", partial(_percent, key=prefix + name)))
    return columns


def _percent(row: Model, key: str) -> str:
    return f"{100 * row[key]:.1f}"


def _bar(share: float) -> str:
    return f'<span class="amount"><i style="width:{100 * share:.1f}%"></i></span>{100 * share:.1f}\u00a0%'


def _label(label: object) -> str:
    """A class name, which may be long: it wraps, so that a phone shows the numbers next to it."""
    return f'<span class="class">{escape(label)}</span>'


def _matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    caption = "Rows: gold class. Columns: predicted class. Color: share of the row."
    chosen: Sequence[int] = range(len(labels))
    if len(labels) > MAX_MATRIX:
        errors = [sum(row) + sum(other[i] for other in counts) - 2 * row[i] for i, row in enumerate(counts)]
        chosen = sorted(sorted(chosen, key=lambda i: -errors[i])[:MAX_CONFUSED])
        caption += f" Of {len(labels)} classes, the {MAX_CONFUSED} with the most errors."
    picked = [[counts[i][j] for j in chosen] for i in chosen]
    totals = [sum(counts[i]) for i in chosen]
    figure = confusion_map([str(labels[i]) for i in chosen], picked, totals, "Confusion matrix")
    return f'<p>{caption}</p><div class="maps">{figure}</div>'


def _confusions(rows: Sequence[Model]) -> str:
    columns: list[Column] = [
        ("Gold", "model", lambda row: _label(row["label"])),
        ("Predicted", "", lambda row: _label(row["predicted"])),
        ("Count", "n", lambda row: format_integer(row["count"])),
        ("Of its class", "n", lambda row: f"{100 * row['share']:.1f}\u00a0%"),
    ]
    return html_table("Most frequent confusions", columns, rows)


# ------------------------------------------------------------------------------------------------ examples

TOO_LONG = "Words are not colored: these texts are too long for attributions."
ATTRIBUTION = """<p>The color of a word shows {what}: integrated gradients over the embeddings of its tokens, with 16 or
64 nodes between a text of padding and the text itself. The weights of all words sum to {total}. The strongest color is
the largest weight within its text, so colors of different texts are not comparable. They show what the network used,
not what is true, nor what would happen if the word were another.</p>"""
CLASS_TOTAL = """the logit of the class above the mean of all classes, minus the same for padding. If padding alone is
assigned to a class, even words of that class may count against it"""
NUMBER_TOTAL = "the predicted number, minus the prediction for padding, in the units of the labels"
STRING_TOTAL = """the mean of all numbers that can be generated, weighted by probability, minus the same for padding, in
the units of the labels"""


def _mistakes(task: Mapping[str, Any]) -> str:
    shown = task["mistakes"][:MAX_CASES]
    if not shown:
        return f"<p>None: all {task['examples']:,} examples are correct.</p>"
    return _legend(task, shown) + "".join(map(_case, shown))


def _correct(task: Mapping[str, Any]) -> str:
    shown = task["correct"]
    return _legend(task, shown, earlier=task["mistakes"][:MAX_CASES]) + "".join(map(_case, shown))


def _legend(task: Mapping[str, Any], shown: Sequence[Any], earlier: Sequence[Any] = ()) -> str:
    """Explain the colors, at length unless an earlier section did; or say why there are none."""
    if not _has_colors(shown):
        how = task.get("attribution") or {}
        why = how.get("why") or (TOO_LONG if how.get("too_long") else "")
        return f'<p class="note">{escape(why)}</p>' if why and not earlier else ""
    is_number = task["layout"] == "numbers"
    text = ""
    if not _has_colors(earlier):
        total = CLASS_TOTAL if not is_number else STRING_TOTAL if "numbers" in task else NUMBER_TOTAL
        what = "how much it raises or lowers the number" if is_number else "how much it speaks for or against the class"
        text = ATTRIBUTION.format(what=what, total=total)
    down, up = ("lowers it", "raises it") if is_number else ("against", "for")
    levels = range(1, COLOR_LEVELS + 1)
    cell = "&nbsp;&nbsp;"
    negative = "".join(f'<span class="g{n}">{down if n == COLOR_LEVELS else cell}</span>' for n in levels[::-1])
    positive = "".join(f'<span class="f{n}">{up if n == COLOR_LEVELS else cell}</span>' for n in levels)
    unit = '<span class="unit">the prediction:</span>'
    return f'{text}<p class="legend">{unit}{negative}<span>&nbsp;0&nbsp;</span>{positive}</p>'


def _has_colors(examples: Sequence[Mapping[str, Any]]) -> bool:
    return any("weights" in example for example in examples)


def _case(example: Mapping[str, Any]) -> str:
    """One example: the prediction, the gold label, and the text word by word."""
    if "error" in example:
        verdict = f"predicted <strong>{example['predicted']:.4g}</strong>, gold <strong>{example['label']:g}</strong>"
    elif example["label"] == example["predicted"]:
        verdict = f"<strong>{escape(example['predicted'])}</strong> with {example['probability']:.1%}"
    else:
        gold = f" ({example['probability_of_label']:.1%})" if "probability_of_label" in example else ""
        verdict = (
            f"predicted <strong>{escape(example['predicted'])}</strong> with {example['probability']:.1%}, gold "
            f"<strong>{escape(example['label'])}</strong>{gold}"
        )
    body = "".join(f'<p class="text" dir="auto">{part}</p>' for part in _colored_texts(example))
    return f'<article class="case"><p class="verdict">{verdict}</p>{body}</article>'


def _colored_texts(example: Mapping[str, Any]) -> list[str]:
    if "weights" not in example:
        return [escape(example[key]) or "(empty)" for key in ("text", "second") if key in example]
    largest = max((abs(w) for weights in example["weights"] for w in weights if w is not None), default=0.0) or 1.0
    return [
        " ".join(_colored_word(word, weight, largest) for word, weight in zip(words, weights, strict=True)) or "(empty)"
        for words, weights in zip(example["words"], example["weights"], strict=True)
    ]


def _colored_word(word: str, weight: float | None, largest: float) -> str:
    if weight is None:
        return f'<span class="unread" title="not read: the text was truncated here">{escape(word)}</span>'
    level = round(COLOR_LEVELS * abs(weight) / largest)
    css = f' class="{"f" if weight > 0 else "g"}{level}"' if level else ""
    return f'<span{css} title="{weight:+.3f}">{escape(word)}</span>'


def _sentences(task: Mapping[str, Any]) -> str:
    """The sentences with the most errors, with gold and predicted tags."""
    if not task["mistakes"]:
        return f"<p>None: all {task['examples']:,} sentences are correct.</p>"
    cases = []
    for example in task["mistakes"][:MAX_CASES]:
        body = "".join(
            f'<p class="verdict">{name}</p><p class="text" dir="auto">'
            f"{_tagged_text(example['words'], example[key], 'types' in task)}</p>"
            for name, key in (("gold", "tags"), ("predicted", "predicted"))
        )
        cases.append(f'<article class="case">{body}</article>')
    return "".join(cases)


def _tagged_text(words: Sequence[str], tags: Sequence[str], has_spans: bool) -> str:
    escaped = [escape(word) for word in words]
    if not has_spans:
        return " ".join(f"{word}<sub>{escape(tag)}</sub>" for word, tag in zip(escaped, tags, strict=True))
    parts, end = [], 0
    for span in find_spans(tags):
        text = " ".join(escaped[span.start : span.end])
        parts += [*escaped[end : span.start], f"<mark>{text}<sub>{escape(span.type)}</sub></mark>"]
        end = span.end
    return " ".join([*parts, *escaped[end:]])
