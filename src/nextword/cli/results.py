"""Print results of evaluations: likelihoods, translations, prompt tasks, contamination."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from nextword.cli.console import console, print_line, print_notes, print_table, shorten
from nextword.core.io import format_number

METRIC_NAMES = {
    "bleu": "BLEU",
    "bleu_lowercase": "BLEU, lower case",
    "chrf": "chrF",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "rougeLsum": "ROUGE-Lsum",
    "mcc": "MCC",
    "f1": "F1",
    "answer_f1": "word F1",
    "exact": "exact match",
}
PERCENT_METRICS = ("accuracy", "f1", "mcc")  # shown times 100, as in papers
SAMPLE_LENGTH = 400  # characters of a text
NO_METRICS = "BLEU needs sacrebleu and ROUGE needs rouge-score: pip install 'nextword[tasks]'."

Result = Mapping[str, Any]


def print_likelihood(result: Result) -> None:
    """Bits per byte and perplexities of a text."""
    counts = f"{result['split']}: {result['words']:,} words, {result['bytes']:,} bytes"
    method = f", [bold]with {escape(result['method'])}[/]" if result.get("method") else ""
    console.print(f"\n[bold]{escape(result['data'])}[/] ({counts}){method}")
    label = "pseudo " if result["kind"] == "pseudo" else ""
    headings = [label + name for name in ("bits/byte", "word ppl", "token ppl")]
    context = "unlimited" if result["context"] is None else f"{result['context']} (stride {result['stride']})"
    print_table(
        [*headings, "context", "parameters"],
        [
            [
                _bits_with_interval(result),
                format_number(result["word_perplexity"], 2),
                format_number(result["token_perplexity"], 2),
                context,
                f"{result['parameters']:,}",
            ]
        ],
    )
    if rows := result["conventions"]:
        names = [escape(row["name"]) for row in rows]
        names[0] += " [dim](as above)[/]"
        cells = [[f"{row['tokens']:,}", format_number(row["perplexity"], 2)] for row in rows]
        print_table(
            ("counted tokens", "tokens", "token ppl"), [[name, *row] for name, row in zip(names, cells, strict=True)]
        )
    print_notes(result["notes"])


def _bits_with_interval(result: Result) -> str:
    bits = format_number(result["bits_per_byte"], 4)
    low, high = result.get("bits_per_byte_low"), result.get("bits_per_byte_high")
    return bits if low is None or low == math.inf else f"{bits} [dim]({low:.3f}–{high:.3f})[/]"


def print_line_scores(rows: Sequence[Result]) -> None:
    """One score per line of a text."""
    if any(row["kind"] == "pseudo" for row in rows):
        console.print("[dim]pseudo-likelihoods: each token is hidden in turn; do not compare with likelihoods[/]")
    console.print("[dim]    nats  bits/byte  token ppl  text[/]")
    for row in rows:
        nats, bits = format_number(row["nats"], 2), format_number(row["bits_per_byte"], 3)
        perplexity = format_number(row["token_perplexity"], 2)
        console.print(f"{nats:>8}  {bits:>9}  {perplexity:>9}  {row['text']}", markup=False)


# ------------------------------------------------------------------------------------------------ translations


def print_translations(result: Result) -> None:
    """BLEU, ROUGE and the like of generated texts, with some examples; or a table of text-to-text tasks."""
    if "tasks" in result:
        _print_text_tasks(result)
        return
    pairs = f"{result['split']}: {result['pairs']:,} pairs"
    console.print(f"\n[bold]{escape(result['data'])}[/] ({pairs}), {escape(result['decoding'])}")
    scores = result["scores"]
    headings = [METRIC_NAMES[name] for name in scores]
    cells = [_score_with_interval(score) for score in scores.values()]
    print_table(
        [*headings, "target token ppl", "parameters"],
        [[*cells, f"{result['token_perplexity']:,.2f}", f"{result['parameters']:,}"]],
    )
    _print_samples(result["sample"])
    print_notes(f"{METRIC_NAMES[name]}: {score['signature']}" for name, score in scores.items())
    if not scores:
        print_notes([NO_METRICS])
    print_notes(_long_source_notes(result))


def _print_text_tasks(result: Result) -> None:
    console.print(f"\n[bold]{escape(result['data'])}[/], {escape(result['decoding'])}")
    tasks = result["tasks"]
    rows = []
    for task in tasks:
        scores = [
            f"{METRIC_NAMES.get(name, name)} {_score_with_interval(score)}" for name, score in task["scores"].items()
        ]
        unread = "" if task["unread"] is None else f"{task['unread']:,}"
        split = f"{task['split']} {task['pairs']:,}"
        rows.append([task["task"], split, " · ".join(scores) or "–", unread, f"{task['token_perplexity']:,.2f}"])
    print_table(["task", "split", "score", "no answer", "target token ppl"], rows)
    _print_samples(result["sample"])
    if any(task["unread"] for task in tasks):
        print_notes(["no answer: the output is none of the task's answers and counts as wrong"])
    if any(not task["scores"] for task in tasks):
        print_notes([NO_METRICS])
    for task in tasks:
        print_notes(f"{task['task']}: {note}" for note in _long_source_notes(task))


def _long_source_notes(result: Result) -> list[str]:
    if not result["longer"]:
        return []
    return [f"{result['longer']:,} of {result['pairs']:,} sources are longer than any in training; all were read whole"]


def _print_samples(samples: Sequence[Mapping[str, str]]) -> None:
    for sample in samples:
        source, target, written = (
            escape(shorten(sample[key], SAMPLE_LENGTH)) for key in ("source", "target", "output")
        )
        print_line(f"[dim]source [/] {source}")
        print_line(f"[dim]target [/] {target}")
        print_line(f"[dim]written[/] [bold]{written}[/]\n")


def _score_with_interval(score: Mapping[str, Any]) -> str:
    interval = "" if score["low"] is None else f" [dim]({score['low']:.1f}–{score['high']:.1f})[/]"
    return f"{score['score']:.2f}{interval}"


# ------------------------------------------------------------------------------------------------ prompt tasks


def print_prompt_task(result: Result) -> None:
    """The score of a task posed as text."""
    total = f" of {result['of']:,}" if result["count"] < result["of"] else ""
    console.print(f"\n[bold]{escape(result['task'])}[/]  {escape(result['title'])}")
    factor = 100 if result["metric"] in PERCENT_METRICS else 1
    baselines = [f"{name} {value * factor:.2f}" for name, value in result["baselines"].items()]
    columns = {
        result["metric"] + (" %" if factor == 100 else ""): f"{result['value'] * factor:.2f}",
        "95 %": f"{result['low'] * factor:.2f}–{result['high'] * factor:.2f}",
        "baseline": " · ".join(baselines) or "–",
        "shots": f"{result['shots']}" + (f" ({result['drawn']})" if result["shots"] else ""),
        "questions": f"{result['split']}: {result['count']:,}{total}",
        "seconds": f"{result['seconds']:.1f}",
    }
    if result["perplexity"] is not None:
        columns["word ppl"] = format_number(result["perplexity"], 2)
    print_table(list(columns), [list(columns.values())])
    print_notes(_prompt_task_notes(result))


def _prompt_task_notes(result: Result) -> list[str]:
    notes = [f"rule {result['rule']}; seed {result['seed']}", *result["notes"]]
    if result["shots"]:
        notes.append(f"shots from the split {result['shots_from']}, never among the questions")
    if result["dropped"]:
        notes.append(
            f"{result['dropped']:,} shots in {result['shortened']:,} prompts did not fit the window of "
            f"{result['window']:,} tokens"
        )
    if result["slid"]:
        notes.append(
            f"{result['slid']:,} questions are longer than the window of {result['window']:,}: it slid over them"
        )
    if result["unknown"]:
        notes.append(f"{result['unknown']:,} questions have completions with out-of-vocabulary words")
    if result["ties"]:
        notes.append(f"{result['ties']:,} questions with equally likely choices were decided at random")
    for row in result["published"]:
        notes.append(f"{row['model']}, {row['shots']} shots: {row['value'] * 100:.1f} ({row['source']})")
    return notes


# ------------------------------------------------------------------------------------------------ contamination


def print_overlap(result: Result) -> None:
    """Scores of clean and dirty documents side by side."""
    contamination = result["contamination"]
    grams = f"{contamination['grams_seen']:,} of {contamination['grams']:,} {contamination['n']}-grams"
    documents = f"{contamination['dirty']:,} of {contamination['documents']:,} documents"
    print_line(f"overlap with [bold]{escape(result['data'])}[/]: {grams}, in {documents}")
    rows = []
    for name in ("all", "clean", "dirty"):
        row = result[name]
        perplexities = format_number(row["word_perplexity"], 2), format_number(row["token_perplexity"], 2)
        rows.append([name, f"{row['documents']:,}", f"{row['bytes']:,}", _bits_with_interval(row), *perplexities])
    print_table(("documents", "", "bytes", "bits/byte", "word ppl", "token ppl"), rows)
    print_notes(f"{example['document']}: “{example['gram']}” in {example['seen_in']}" for example in result["examples"])
    if contamination["too_short"]:
        print_notes([f"{contamination['too_short']:,} documents are too short to check, and count as clean"])
