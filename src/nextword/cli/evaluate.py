"""`nextword evaluate`: how well a run predicts a text, translates, or solves tasks posed as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import (
    Device,
    Json,
    Quiet,
    console,
    emit_json,
    parse_settings,
    print_line,
    print_notes,
    print_table,
    read_lines,
    refuse_options,
    shorten,
)
from nextword.cli.generate import parse_beam
from nextword.cli.views import HtmlFile, show_view
from nextword.core.io import format_number
from nextword.progress.display import ProgressDisplay

if TYPE_CHECKING:
    from nextword.evaluation.dynamic import DynamicSettings
    from nextword.evaluation.neural_cache import CacheSettings
    from nextword.lens import TextExplanation

TASK_SETTINGS = {"rule": str, "drawn": str, "overflow": str}  # of --task: --set task.KEY=VALUE
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
MAX_EXPLAINED = 20_000  # characters of a text with --explain
SAMPLE_LENGTH = 400  # characters of a text
NO_METRICS = "BLEU needs sacrebleu and ROUGE needs rouge-score: pip install 'nextword[tasks]'."

Result = Mapping[str, Any]


def evaluate(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder (`nextword runs` lists yours).", show_default=False)
    ] = "",
    data: Annotated[
        str, typer.Option("--data", help="Text to score: path or data set. Default: the run's own; - is stdin.")
    ] = "",
    split: Annotated[
        str, typer.Option("--split", help="train, valid or test. Default: test, or all of a text without splits.")
    ] = "",
    context: Annotated[
        int | None, typer.Option("--context", help="Maximum context in tokens. Default: the model's.", min=1)
    ] = None,
    stride: Annotated[
        int | None, typer.Option("--stride", help="Stride of the context window. Default: half of --context.", min=1)
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Score each line of --data, to rank sentences.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show surprisal, rank and alternatives of every token of a short --data.")
    ] = False,
    html: HtmlFile = None,
    cache: Annotated[bool, typer.Option("--cache", help="Add a neural cache of recent words.")] = False,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Dynamic evaluation: train on the text while scoring it.")
    ] = False,
    overlap_with: Annotated[
        str,
        typer.Option("--overlap-with", metavar="DATA", help="Training text: score documents that overlap separately."),
    ] = "",
    beam: Annotated[
        int | None,
        typer.Option("--beam", metavar="WIDTH", help="Beam search, for translations. Default: greedy.", min=1),
    ] = None,
    task: Annotated[
        str, typer.Option("--task", help="Zero- or few-shot task: a name (--list-tasks) or a .toml file.")
    ] = "",
    shots: Annotated[int, typer.Option("--shots", help="Solved examples before each question of --task.", min=0)] = 0,
    list_tasks: Annotated[bool, typer.Option("--list-tasks", help="List the tasks for --task.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Evaluate a sample of this many questions, tokens or pairs.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed for the examples and the sample of --task.")] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set cache.*, dynamic.*, beam.* or task.*. Repeatable."),
    ] = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a run: perplexity and bits per byte of a text, BLEU and ROUGE, or accuracy on few-shot tasks.

    Settings of --cache and --dynamic that you leave out are tuned on validation text. A masked model gets
    pseudo-likelihoods of a sample of the tokens (--limit). With --task, the model answers questions posed as text;
    nothing is trained. A sequence-to-sequence run is scored by what it generates: translations by BLEU and chrF,
    summaries by ROUGE, each task of tasks:sst2+cola by its own metric.

    [dim]Examples[/]
      nextword evaluate runs/lstm-tiny
      nextword evaluate runs/lstm-tiny --data my.txt
      nextword evaluate runs/lstm-tiny --data sentences.txt --lines
      nextword evaluate runs/lstm-tiny --data short.txt --explain --html surprisal.html
      nextword evaluate runs/lstm-tiny --cache --set cache.window=500 --set cache.theta=1
      nextword evaluate runs/lstm-tiny --dynamic --set dynamic.rate=1e-4
      nextword evaluate runs/gpt2-small --data held-out.txt --overlap-with wikipedia
      nextword evaluate --list-tasks
      nextword evaluate runs/gpt2-small --task rte --shots 4 --limit 200
      nextword evaluate runs/seq2seq-multi30k --beam 5 --set beam.length_penalty=1
      nextword evaluate runs/t5-tasks --data tasks:sst2 --limit 200
      echo "the cat sat on the mat" | nextword evaluate runs/lstm-tiny --data - --lines
    """
    import nextword
    from nextword.core.errors import InvalidSetting
    from nextword.evaluation.evaluate_run import evaluate_prompt_task
    from nextword.evaluation.prompt_tasks import load_task

    if list_tasks:
        _list_tasks(json)
        return
    if not run:
        raise InvalidSetting("Name a run folder: nextword evaluate RUN. `nextword runs` lists yours.", key="run")
    quiet = quiet or json
    text_mode = {"--context": context, "--stride": stride, "--lines": lines, "--cache": cache, "--dynamic": dynamic}
    if task:
        options = text_mode | {"--overlap-with": overlap_with, "--beam": beam}
        refuse_options(options, "--task scores answers, not a text.")
        settings = parse_settings(changes or (), "task", TASK_SETTINGS)
        overrides = {"split": split, "rule": settings.pop("rule", "")}
        prompt_task = load_task(task, **{key: value for key, value in overrides.items() if value})
        settings |= {"seed": seed, "limit": limit, "folder": data or None}
        with ProgressDisplay(quiet) as display:
            result = evaluate_prompt_task(
                run, prompt_task, shots, device=device, on_progress=display.update, **settings
            )
        emit_json(result) if json else print_prompt_task(result)
        return
    if explain or html is not None:
        _check_explain(explain, text_mode | {"--beam": beam, "--shots": shots, "--overlap-with": overlap_with}, data)
        show_view(_explain_file(run, data, device), json, html)
        return
    _check_options(text_mode, shots, limit, overlap_with)
    if lines:
        rows = _score_lines(run, data, device)
        emit_json(rows) if json else print_line_scores(rows)
        return
    cache_settings, dynamic_settings = _parse_adaptive(changes or [], cache, dynamic, beam)
    decoding = parse_beam(beam, changes or []) if beam is not None else None
    evaluation = nextword.evaluate(
        run,
        data or None,
        split=split,
        context=context,
        stride=stride,
        limit=limit,
        decoding=decoding,
        cache=cache_settings,
        dynamic=dynamic_settings,
        overlap_with=overlap_with,
        device=device,
        progress=not quiet,
    )
    values = evaluation.values
    if json:
        emit_json(values)
    elif "decoding" in values:
        print_translations(values)
    else:
        print_likelihood(values)
        if overlap_with:
            print_overlap(values["overlap"])


def _check_options(text_mode: Mapping[str, object], shots: int, limit: int | None, overlap_with: str) -> None:
    """Refuse options that do not go together."""
    from nextword.core.errors import InvalidSetting

    if shots:
        raise InvalidSetting("--shots needs --task NAME; `nextword evaluate --list-tasks` lists them.", key="shots")
    if text_mode["--stride"] and not text_mode["--context"]:
        raise InvalidSetting("--stride needs --context.", key="stride")
    if text_mode["--lines"]:
        refuse_options({"--limit": limit}, "--lines scores every line.")
    if text_mode["--cache"] or text_mode["--dynamic"]:
        windowed = {name: text_mode[name] for name in ("--lines", "--context")}
        refuse_options(windowed, "--cache and --dynamic read a text as one stream.")
    if overlap_with:
        refuse_options(text_mode, "--overlap-with scores whole documents.")


def _check_explain(explain: bool, others: Mapping[str, object], data: str) -> None:
    from nextword.core.errors import InvalidSetting

    if not explain:
        raise InvalidSetting("--html needs --explain.", key="html")
    refuse_options(others, "--explain shows the tokens of a text.")
    if not data:
        raise InvalidSetting("--explain needs --data: a short text file, or - for stdin.", key="data")


def _explain_file(run: str, data: str, device: str) -> TextExplanation:
    from nextword.core.errors import InvalidSetting, MissingFile
    from nextword.lens import explain_text
    from nextword.lm.loading import load

    if data != "-" and not Path(data).is_file():
        raise MissingFile(f"There is no file {data}. --explain needs a text file, not a name of a data set.", path=data)
    text = "\n".join(read_lines(data, keep_blank=True)).rstrip("\n")
    if len(text) > MAX_EXPLAINED:
        problem = f"{data} has {len(text):,} characters; --explain shows at most {MAX_EXPLAINED:,}. Cut it."
        raise InvalidSetting(problem, key="data", value=data)
    lm = load(run, device)
    lm.require("score")
    return explain_text(lm, text)


def _parse_adaptive(
    changes: list[str], cache: bool, dynamic: bool, beam: int | None
) -> tuple[CacheSettings | None, DynamicSettings | None]:
    from nextword.core.errors import InvalidSetting

    if not (cache or dynamic):
        if changes and beam is None:
            raise InvalidSetting(f"--set {changes[0]} needs --cache, --dynamic, --beam or --task.", key="set")
        return None, None
    from nextword.evaluation.adaptive import parse_settings

    return parse_settings(changes, cache, dynamic)


def _score_lines(run: str, data: str, device: str) -> list[dict[str, Any]]:
    from nextword.core.errors import DataError, InvalidSetting, MissingFile
    from nextword.evaluation.evaluate_run import score_lines

    if not data:
        raise InvalidSetting("--lines needs --data: a file with one sentence per line, or - for stdin.", key="data")
    if data != "-" and not Path(data).is_file():
        raise MissingFile(f"There is no file {data}. --lines needs a text file, not the name of a data set.", path=data)
    sentences = read_lines(data)
    if not sentences:
        raise DataError(f"{data} has no lines to score. Give a file with one sentence per line.", path=data)
    return score_lines(run, sentences, device)


def _list_tasks(json: bool) -> None:
    from nextword.evaluation.prompt_tasks import load_task, task_names

    tasks = [load_task(name) for name in task_names()]
    if json:
        keys = ("name", "title", "data", "split", "shots_from", "rule", "metric", "note", "published")
        emit_json([{key: getattr(task, key) for key in keys} | {"installed": task.has_data()} for task in tasks])
        return
    rows = [
        [
            *(escape(cell) for cell in (task.name, task.data, task.split, task.rule, task.metric)),
            "✓" if task.has_data() else "",
            escape(task.title),
        ]
        for task in tasks
    ]
    print_table(("task", "data", "split", "rule", "metric", "installed", "title"), rows, text_columns=("title",))
    print_line("[dim]Run one: nextword evaluate RUN --task NAME --shots 5 · install its data: nextword data NAME[/]")


# ------------------------------------------------------------------------------------------------ likelihoods


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
        [[*cells, format_number(result["token_perplexity"], 2), f"{result['parameters']:,}"]],
    )
    _print_samples(result["sample"])
    print_notes(f"{METRIC_NAMES[name]}: {score['signature']}" for name, score in scores.items())
    if not scores:
        print_notes([NO_METRICS])
    print_notes([*_long_source_notes(result), *result["notes"]])


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
        rows.append(
            [task["task"], split, " · ".join(scores) or "–", unread, format_number(task["token_perplexity"], 2)]
        )
    print_table(["task", "split", "score", "no answer", "target token ppl"], rows)
    _print_samples(result["sample"])
    if any(task["unread"] for task in tasks):
        print_notes(["no answer: the output is none of the task's answers and counts as wrong"])
    if any(not task["scores"] for task in tasks):
        print_notes([NO_METRICS])
    for task in tasks:
        print_notes(f"{task['task']}: {note}" for note in _long_source_notes(task))
    print_notes(result["notes"])


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
