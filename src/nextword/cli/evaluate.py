"""`nextword evaluate`: how well a run predicts a text, translates, or solves tasks posed as text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import (
    Device,
    Json,
    ProgressDisplay,
    Quiet,
    emit_json,
    parse_settings,
    print_columns,
    print_line,
    print_table,
    read_lines,
    refuse_options,
)
from nextword.cli.generate import parse_beam
from nextword.cli.results import (
    print_likelihood,
    print_line_scores,
    print_overlap,
    print_prompt_task,
    print_translations,
)

if TYPE_CHECKING:
    from nextword.evaluation.dynamic import DynamicSettings
    from nextword.evaluation.neural_cache import CacheSettings

TASK_SETTINGS = {"rule": str, "drawn": str, "overflow": str}  # of --task: --set task.KEY=VALUE


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
    _check_options(text_mode, shots, limit, overlap_with)
    if lines:
        rows = _score_lines(run, data, device)
        emit_json(rows) if json else print_line_scores(rows)
        return
    cache_settings, dynamic_settings = _parse_adaptive(changes or [], cache, dynamic, beam)
    decoding = parse_beam(beam, changes or []) if beam is not None else None
    _print_columns_of(run, data, quiet)
    with ProgressDisplay(quiet) as display:
        evaluation = nextword.evaluate(
            run,
            data,
            split=split,
            context=context,
            stride=stride,
            limit=limit,
            decoding=decoding,
            cache=cache_settings,
            dynamic=dynamic_settings,
            overlap_with=overlap_with,
            device=device,
            on_progress=display.update,
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


def _print_columns_of(run: str, data: str, quiet: bool) -> None:
    """Print which column of a table is the text, unless the run reads pairs or labeled examples."""
    from nextword.models import model_class
    from nextword.run_folder import RunFolder

    recipe = RunFolder.open(run).recipe
    name = data or recipe.phases[-1].data
    if name and recipe.task is None and not model_class(recipe.slug).is_conditional:
        print_columns([name], quiet)


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
