"""`nextword transfer`: fine-tune a run on a task, and show its results and its errors in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import (
    Changes,
    Device,
    Header,
    Json,
    Out,
    PairColumn,
    Quiet,
    Resume,
    Seed,
    TableColumns,
    TextColumn,
    console,
    emit_json,
    exit_interrupted,
    print_line,
    print_table,
    refuse_options,
    shorten,
)
from nextword.cli.train import RESUMED
from nextword.progress.display import error_console

if TYPE_CHECKING:
    from nextword.tasks.finetune import Outcome


def transfer(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="Fine-tuning recipe, such as bert/finetune, or a TOML file.", show_default=False
        ),
    ] = "",
    source: Annotated[str, typer.Option("--from", metavar="RUN", help="Pretrained run to fine-tune.")] = "",
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="csv, tsv, jsonl, CoNLL or SQuAD file, folder of files, or benchmark (`nextword data tasks`); glue "
            "for a suite of five; 'A + B' for multi-task.",
        ),
    ] = "",
    columns: TableColumns = "",
    header: Header = None,
    text: TextColumn = "",
    text_pair: PairColumn = "",
    label: Annotated[str, typer.Option("--label", metavar="COLUMN", help="Label column. Default: guessed.")] = "",
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="classification, pair_classification, regression or multiple_choice. Default: guessed from the data.",
        ),
    ] = "",
    out: Out = "",
    seed: Seed = None,
    num_seeds: Annotated[
        int, typer.Option("--num-seeds", help="Train this many seeds; report the mean and a 95 % interval.", min=0)
    ] = 0,
    changes: Changes = None,
    features: Annotated[
        str, typer.Option("--features", metavar="RUN", help="Run whose contextual embeddings a tagger also reads.")
    ] = "",
    train_fraction: Annotated[
        float, typer.Option("--train-fraction", help="Fraction of the training examples to use.")
    ] = 1.0,
    merge_dev: Annotated[
        bool, typer.Option("--merge-dev", help="Also train on dev, and keep the last weights. For the final run.")
    ] = False,
    scratch: Annotated[
        bool, typer.Option("--scratch", help="Train the same network from random weights (baseline).")
    ] = False,
    compare_scratch: Annotated[
        bool, typer.Option("--compare-scratch", help="Also train from scratch, and report the difference.")
    ] = False,
    resume: Resume = False,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune a pretrained run on a task: classification, regression, tagging, question answering and others.

    The result is a run folder for `nextword predict`. Without a dev split, a tenth of the rows is held out.
    docs/transfer.md lists the settings for --set.

    [dim]Recipes[/]
      bert/finetune     classification and regression, for a run of any network
      gpt1/finetune     the same, with an auxiliary language-model loss
      ulmfit/classify   gradual unfreezing, for long texts; ulmfit/few for few labels
      t5/finetune       labels or numbers generated as text
      gpt3/in-context   few-shot prompts; nothing is trained
      cove/classify     frozen contextual vectors
      bert/span         extractive question answering
      bert/choice       multiple choice; also gpt1/choice
      bert/tag          tagging; also tagger/conll2003, tagger/ud-pos, cvt/conll2000 …

    [dim]Examples[/]
      nextword transfer bert/finetune --from runs/bert --data reviews.csv
      nextword transfer ulmfit/classify --from runs/lm --data r.csv --columns body,stars
      nextword transfer bert/finetune --from runs/bert --data r.tsv --columns 3,1 --no-header
      nextword transfer bert/finetune --from runs/bert --data RTE --set phase.0.epochs=10
      nextword transfer gpt1/finetune --from runs/gpt1 --data SST-2 --num-seeds 3
      nextword transfer bert/finetune --from runs/bert --data glue --compare-scratch
      nextword transfer bert/finetune --from runs/bert --data "SST-2 + RTE + MRPC"
      nextword transfer t5/finetune --from runs/t5 --data reviews.csv
      nextword transfer gpt3/in-context --from runs/gpt2 --data r.csv --set task.shots=16
      nextword transfer bert/span --from runs/bert --data squad
      nextword transfer bert/choice --from runs/bert --data endings.csv
      nextword transfer tagger/conll2003 --features runs/elmo --train-fraction 0.1
      nextword transfer cvt/conll2000 --set phase.0.objective.unlabeled=plain.txt
      nextword transfer --resume --out runs/bert-reviews
    """
    import nextword
    from nextword.core.errors import InvalidSetting
    from nextword.progress.display import Interrupted
    from nextword.run_folder import RunFolder

    is_silent = quiet or json
    if not recipe and not resume:
        raise InvalidSetting("Name a recipe, such as bert/finetune. See `nextword transfer --help`.", key="RECIPE")
    if resume and not recipe:
        options: dict[str, object] = {"--from": source, "--data": data, "--text": text, "--text-pair": text_pair}
        options |= {"--columns": columns, "--header": header is not None}
        options |= {
            "--label": label,
            "--kind": kind,
            "--seed": seed is not None,
            "--num-seeds": num_seeds,
            "--set": changes,
        }
        options |= {"--features": features, "--train-fraction": train_fraction != 1, "--merge-dev": merge_dev}
        options |= {"--scratch": scratch, "--compare-scratch": compare_scratch}
        refuse_options(options, RESUMED)
        if out and not is_silent and RunFolder.open(out).is_finished:
            error_console.print(f"[dim]{escape(out)} is already finished.[/]")
    try:
        tuned = nextword.transfer(
            recipe or None,
            source,
            data or None,
            out=out or None,
            columns=columns,
            header=header,
            text=text,
            text_pair=text_pair,
            label=label,
            kind=kind,
            seed=seed,
            num_seeds=num_seeds,
            features=features,
            train_fraction=train_fraction,
            merge_dev=merge_dev,
            scratch=scratch,
            compare_scratch=compare_scratch,
            changes=changes or (),
            device=device,
            resume=resume,
            progress=not is_silent,
        )
    except Interrupted as interrupted:
        command = f"nextword transfer --resume --out {interrupted.result.path}"
        exit_interrupted(command if interrupted.result.is_single else "the same command and --resume")
    folder = str(tuned.path)
    if json:
        emit_json(tuned.table or _as_json(tuned.outcomes[0], bool(num_seeds)))
    elif tuned.table:
        _print_suite(tuned.table, folder)
    else:
        _print_outcome(tuned.outcomes[0], folder)


def _as_json(outcome: Outcome, has_seeds: bool) -> dict[str, Any]:
    from nextword.tasks.finetune import read_errors

    if has_seeds:
        return {**outcome.as_dict(), "errors": [read_errors(run) for run in outcome.runs]}
    return {"run": outcome.runs[0], **outcome.results[0], "errors": read_errors(outcome.runs[0])}


# ------------------------------------------------------------------------------------------------ results


def _percent(value: float, half: float | None = None) -> str:
    return f"{100 * value:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")


def _scores(values: Mapping[str, float]) -> str:
    return " · ".join(f"{name} [bold]{_percent(value)}[/]" for name, value in values.items())


def _print_outcome(outcome: Outcome, folder: str) -> None:
    result, run = outcome.results[0], outcome.runs[0]
    print_line(f"{_mark(outcome.results)} [bold]{escape(folder)}[/] on {escape(outcome.name)}")
    if len(outcome.results) > 1:
        _print_seeds(outcome)
    else:
        _print_result(result, run)
    console.print()
    if (Path(run) / "report.html").is_file():
        print_line(f"Report:  {escape(run)}/report.html")
    option = " --task NAME" if "tasks" in result else ""
    print_line(f"Try it:  nextword predict {escape(run)} FILE{option}")


def _mark(results: Sequence[Mapping[str, Any]]) -> str:
    """A tick if every run is better than every baseline; an exclamation mark if not."""
    from nextword.tasks.baselines import BETTER

    verdicts = [comparison["verdict"] for result in results for comparison in result.get("baselines", ())]
    if not verdicts:
        return "[dim]·[/]"
    return "[green]✓[/]" if all(verdict == BETTER for verdict in verdicts) else "[yellow]![/]"


def _print_baselines(result: Mapping[str, Any]) -> None:
    """The scores of the baselines, whether the model is better, and if not, what may help."""
    from nextword.tasks.baselines import BETTER, describe_only_prediction, describe_verdict, table

    for comparison in result.get("baselines", ()):
        header, rows = table(comparison)
        title = f"baselines of {comparison['task']}" if "task" in comparison else "baselines"
        print_table(header, [[escape(cell) for cell in row] for row in rows], title)
        color = "green" if comparison["verdict"] == BETTER else "yellow"
        for sentence in filter(None, (describe_only_prediction(comparison), describe_verdict(comparison))):
            print_line(f"[{color}]{escape(sentence)}[/]")
        if comparison["advice"]:
            print_line("What may help:")
        for advice in comparison["advice"]:
            print_line(f"  · {escape(advice)}")


def _splits(result: Mapping[str, Any]) -> list[str]:
    return ["dev", *(split for split in result["examples"] if split not in ("train", "dev"))]


def _print_seeds(outcome: Outcome) -> None:
    from nextword.metrics.intervals import confidence_interval
    from nextword.tasks.baselines import BETTER

    columns = [(split, name) for split in _splits(outcome.results[0]) for name in outcome.results[0]["dev"]]
    rows = [
        [escape(run), *(_percent(result[split][name]) for split, name in columns)]
        for run, result in zip(outcome.runs, outcome.results, strict=True)
    ]
    means = [_percent(*confidence_interval(outcome.values(name, split))) for split, name in columns]
    rows.append(["[bold]mean, 95 % interval[/]", *(f"[bold]{mean}[/]" for mean in means)])
    comparisons = [result.get("baselines", ()) for result in outcome.results]
    if len(comparisons[0]) == 1:
        for method in comparisons[0][0]["methods"]:
            scores = [_percent(method[split][name]) if split in method else "" for split, name in columns]
            rows.append([escape(method["name"]), *scores])
    print_table(["run", *(f"{split} {name}" for split, name in columns)], rows)
    if comparisons[0]:
        better = sum(all(own["verdict"] == BETTER for own in run) for run in comparisons)
        print_line(f"better than every baseline: {better} of {len(comparisons)} runs (95 % interval of each)")


def _print_result(result: Mapping[str, Any], run: str) -> None:
    from nextword.tasks.finetune import read_errors
    from nextword.tasks.report import count_examples

    for split in _splits(result):
        console.print(f"  {split} ({count_examples(result, split)}): {_scores(result[split])}")
    for task, splits in result.get("tasks", {}).items():
        for split, scores in splits.items():
            console.print(f"  {escape(task)}, {split}: {_scores(scores)}")
    if "best" in result:
        scores = {name: value for name, value in result["best"].items() if name != "threshold"}
        threshold = f"{result['best']['threshold']:.3g}"
        console.print(f"  dev, with the best no-answer threshold there ({threshold}): {_scores(scores)}")
    _print_baselines(result)
    errors = read_errors(run)
    if errors is not None:
        print_errors(errors)


def _print_suite(results: Mapping[str, Any], folder: str) -> None:
    from nextword.tasks.suite import table_header, table_rows

    rows = [[escape(cell) for cell in row] for row in table_rows(results)]
    if len(rows) > 1:
        rows[-1] = [f"[bold]{cell}[/]" if cell else "" for cell in rows[-1]]
    own = [result for task in results["tasks"] for result in task["results"]]
    print_line(f"{_mark(own)} [bold]{escape(folder)}[/]{', from scratch' if results['scratch'] else ''}")
    print_table(table_header(results), rows)
    files = f"{escape(folder)}/results.json and results.md"
    print_line(f"[dim]· dev sets; ± is half a 95 % interval over seeds; see {files}[/]")


# ------------------------------------------------------------------------------------------------ errors

MAX_MATRIX = 10  # classes in a full confusion matrix
MAX_ROWS = 8  # of a table
MAX_EXAMPLES = 3  # mistakes
MAX_TEXT_LENGTH = 110  # characters of an example
MAX_LABEL_LENGTH = 24
SCORES = ("precision", "recall", "f1")


def print_errors(errors: Mapping[str, Any]) -> None:
    from nextword.tasks.error_analysis import tasks_of

    layouts = {"classes": _print_classes, "numbers": _print_numbers, "tags": _print_tags, "answers": _print_answers}
    for task in tasks_of(errors):
        if task.get("task"):
            console.print(f"\n[bold]{escape(task['task'])}[/]")
        layouts[task["layout"]](task)


def _print_classes(analysis: Mapping[str, Any]) -> None:
    labels = analysis["labels"]
    if len(labels) <= MAX_MATRIX:
        header = ["gold ↓ predicted →", *(escape(shorten(label, 12)) for label in labels), *SCORES]
        rows = [
            [_label(scores["label"]), *_matrix_row(row, i), *_class_scores(scores)]
            for i, (scores, row) in enumerate(zip(analysis["classes"], analysis["confusion"], strict=True))
        ]
        print_table(header, rows, f"confusion matrix of {analysis['examples']:,} dev examples")
    else:
        seen = [scores for scores in analysis["classes"] if scores["examples"]]
        worst = sorted(seen, key=lambda scores: (scores["f1"], -scores["examples"]))[:MAX_ROWS]
        rows = [[_label(scores["label"]), f"{scores['examples']:,}", *_class_scores(scores)] for scores in worst]
        print_table(
            ["class", "examples", *SCORES], rows, f"the {len(worst)} of {len(labels)} classes with the lowest F1"
        )
        _print_confusions(analysis["most_confused"])
    _print_mistakes(analysis)


def _matrix_row(row: Sequence[int], own: int) -> list[str]:
    return [f"[bold]{n:,}[/]" if i == own else f"{n:,}" if n else "[dim]·[/]" for i, n in enumerate(row)]


def _class_scores(scores: Mapping[str, Any], prefix: str = "") -> list[str]:
    return [f"{100 * scores[prefix + name]:.1f}" for name in SCORES]


def _print_confusions(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        cells = [
            [_label(row["label"]), _label(row["predicted"]), f"{row['count']:,}", f"{row['share']:.1%}"]
            for row in rows[:MAX_ROWS]
        ]
        print_table(("gold", "predicted", "count", "of its class"), cells, "most frequent confusions")


def _print_answers(analysis: Mapping[str, Any]) -> None:
    console.print(f"{analysis['wrong']:,} of {analysis['examples']:,} dev examples are wrong")
    _print_mistakes(analysis)


def _print_mistakes(analysis: Mapping[str, Any]) -> None:
    error = analysis["calibration"]["error"]
    console.print(f"[dim]· expected calibration error {100 * error:.1f} %[/]")
    if analysis["mistakes"]:
        console.print("[bold]most confident mistakes[/]")
    for example in analysis["mistakes"][:MAX_EXAMPLES]:
        predicted = f"predicted [bold]{escape(example['predicted'])}[/] ({example['probability']:.0%})"
        print_line(f"  {predicted}, gold [bold]{escape(example['label'])}[/]: {_texts(example)}")


def _print_numbers(analysis: Mapping[str, Any]) -> None:
    errors = f"mean absolute error {analysis['mean_absolute_error']:.3g}, RMSE {analysis['root_mean_square_error']:.3g}"
    console.print(f"[bold]largest errors[/] [dim]({errors})[/]")
    for example in analysis["mistakes"][:MAX_EXAMPLES]:
        verdict = f"predicted [bold]{example['predicted']:.4g}[/], gold [bold]{example['label']:g}[/]"
        print_line(f"  {verdict}: {_texts(example)}")


def _print_tags(analysis: Mapping[str, Any]) -> None:
    has_spans = "types" in analysis
    what, prefix, count = ("type", "span_", "spans") if has_spans else ("tag", "", "examples")
    by_count = sorted(analysis["types" if has_spans else "classes"], key=lambda scores: -scores[count])
    rows = [
        [escape(scores["label"]), f"{scores[count]:,}", *_class_scores(scores, prefix)]
        for scores in by_count[: 2 * MAX_ROWS]
    ]
    more = f", the most frequent of {len(by_count)}" if len(by_count) > 2 * MAX_ROWS else ""
    print_table((what, "in dev", *SCORES), rows, f"scores by {what}{more}")
    if analysis["mistakes"]:
        count_wrong = f"{analysis['wrong']:,} of {analysis['examples']:,} have errors"
        console.print(f"[bold]sentences with the most errors[/] [dim]({count_wrong})[/]")
    for example in analysis["mistakes"][:MAX_EXAMPLES]:
        wrong = [
            f"{escape(word)} [dim]predicted[/] {escape(predicted)} [dim]gold[/] {escape(tag)}"
            for word, tag, predicted in zip(example["words"], example["tags"], example["predicted"], strict=True)
            if tag != predicted
        ]
        print_line(f"  {escape(shorten(' '.join(example['words']), MAX_TEXT_LENGTH))}")
        print_line(f"    {' · '.join(wrong[:MAX_ROWS])}")


def _texts(example: Mapping[str, Any]) -> str:
    texts = [example[key] for key in ("text", "second") if key in example]
    length = MAX_TEXT_LENGTH // len(texts)
    return " [dim]│[/] ".join(escape(shorten(text, length)) for text in texts)


def _label(text: str) -> str:
    return escape(shorten(text, MAX_LABEL_LENGTH))
