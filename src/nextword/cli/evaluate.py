"""`nextword evaluate`: how well a run predicts a text, translates, or solves tasks posed as text."""

from __future__ import annotations

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
    print_columns,
    print_table,
    progress_bars,
    read_lines,
)
from nextword.cli.generate import parse_beam
from nextword.cli.results import (
    print_contamination,
    print_likelihood,
    print_lines,
    print_prompt_task,
    print_translations,
)

if TYPE_CHECKING:
    from nextword.evaluation.dynamic import DynamicSettings
    from nextword.evaluation.neural_cache import CacheSettings

TASK_SETTINGS = ("rule", "drawn", "overflow")  # of --task, with --set task.KEY=VALUE


def evaluate(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder (see `nextword runs`).", show_default=False)
    ] = "",
    data: Annotated[str, typer.Option("--data", help="Text to score: a path or a name. Default: the run's own.")] = "",
    split: Annotated[
        str, typer.Option("--split", help="train, valid or test. Default: test; a text without splits is scored whole.")
    ] = "",
    context: Annotated[int, typer.Option("--context", help="Maximum context in tokens.")] = 0,
    stride: Annotated[int, typer.Option("--stride", help="Stride of the context window. Default: half of it.")] = 0,
    lines: Annotated[bool, typer.Option("--lines", help="Score each line of --data, to rank sentences.")] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Add a neural cache of recent words.")] = False,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Dynamic evaluation: learn from the text as it goes.")
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="A.B=C", help="Settings: cache.lambda, cache.theta, dynamic.rate, task.rule, beam.…"
        ),
    ] = None,
    task: Annotated[
        str, typer.Option("--task", help="Task posed as text: a name (--list-tasks) or a .toml file.")
    ] = "",
    shots: Annotated[int, typer.Option("--shots", help="Solved examples before each question of --task.")] = 0,
    limit: Annotated[
        int, typer.Option("--limit", help="Evaluate a sample of this many questions, tokens or pairs.")
    ] = 0,
    tasks: Annotated[bool, typer.Option("--list-tasks", help="List the tasks for --task.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Random seed for shots and samples of --task.")] = 0,
    beam: Annotated[
        int | None, typer.Option("--beam", help="Beam width for sequence-to-sequence runs. Default: greedy.")
    ] = None,
    overlap_with: Annotated[
        str,
        typer.Option(
            "--overlap-with", metavar="DATA", help="Training text: score documents that overlap with it separately."
        ),
    ] = "",
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a run: bits per byte, word and token perplexity, BLEU, ROUGE, or accuracy on tasks posed as text.

    Over a closed vocabulary the token perplexity is given with and without line ends and unknown words. Settings of
    --cache and --dynamic that you leave out are found on validation text; all are printed. The run's weights and its
    plain results stay unchanged. A masked model has pseudo-likelihoods, of a sample of the tokens (--limit).

    With --task, the model answers questions posed as text, with --shots solved examples before each; nothing is
    trained.

    A sequence-to-sequence run is scored by what it generates: translations by BLEU and chrF, summaries by ROUGE, tasks
    (tasks:sst2+cola) each by its own metric.

    [dim]Examples[/]
      nextword evaluate runs/lstm-tiny
      nextword evaluate runs/lstm-tiny --data my.txt
      nextword evaluate runs/lstm-tiny --data sentences.txt --lines
      nextword evaluate runs/lstm-tiny --cache
      nextword evaluate runs/lstm-tiny --cache --set cache.window=500 --set cache.theta=1 --set cache.lambda=0.1
      nextword evaluate runs/lstm-tiny --dynamic --set dynamic.rate=1e-4
      nextword evaluate runs/gpt2-small --data held-out.txt --overlap-with wikipedia
      nextword evaluate --list-tasks
      nextword evaluate runs/gpt2-small --task lambada
      nextword evaluate runs/gpt2-small --task rte --shots 4 --limit 200
      nextword evaluate runs/seq2seq-multi30k --beam 5 --set beam.length_penalty=1
      nextword evaluate runs/t5-tasks --data tasks:sst2 --limit 200
      echo "the cat sat on the mat" | nextword evaluate runs/lstm-tiny --data - --lines
    """
    from nextword.core.errors import InvalidSetting

    if tasks:
        _list_tasks(json)
        return
    if not run:
        raise InvalidSetting("Name a run folder: nextword evaluate RUN. `nextword runs` lists yours.", key="run")
    is_text_mode = {"--context": context, "--stride": stride, "--lines": lines, "--cache": cache, "--dynamic": dynamic}
    _check_options(is_text_mode, task, shots, limit, overlap_with)
    quiet = quiet or json
    if task:
        result = _evaluate_task(run, task, shots, limit, seed, split, data, changes or [], device, quiet)
        emit_json(result) if json else print_prompt_task(result)
        return
    if lines:
        rows = _score_lines(run, data, device)
        emit_json(rows) if json else print_lines(rows)
        return
    from nextword.evaluation.evaluate_run import evaluate_run

    cache_settings, dynamic_settings = _parse_adaptive(changes or [], cache, dynamic, beam)
    decoding = parse_beam(beam, changes or []) if beam is not None else None
    _print_columns_of(run, data, quiet)
    with progress_bars(quiet) as on_progress:
        result = evaluate_run(
            run,
            data,
            split=split,
            context=context or None,
            stride=stride or None,
            limit=limit or None,
            decoding=decoding,
            cache=cache_settings,
            dynamic=dynamic_settings,
            overlap_with=overlap_with,
            device=device,
            on_progress=on_progress,
        )
    if json:
        emit_json(result)
    elif "decoding" in result:
        print_translations(result)
    else:
        print_likelihood(result)
        if overlap_with:
            print_contamination(result["overlap"])


def _check_options(text_mode: dict[str, Any], task: str, shots: int, limit: int, overlap_with: str) -> None:
    """Refuse options that do not go together."""
    from nextword.core.errors import InvalidSetting

    used = [name for name, value in text_mode.items() if value]
    if task and used:
        raise InvalidSetting(f"--task cannot be combined with {', '.join(used)}.", key=used[0])
    if shots and not task:
        raise InvalidSetting(
            "--shots needs --task NAME; `nextword evaluate --list-tasks` lists the names.", key="shots"
        )
    if text_mode["--lines"] and limit:
        raise InvalidSetting("--lines scores every line. Leave --limit out.", key="limit")
    if text_mode["--stride"] and not text_mode["--context"]:
        raise InvalidSetting("--stride needs --context.", key="stride")
    is_adaptive = text_mode["--cache"] or text_mode["--dynamic"]
    windowed = [name for name in ("--lines", "--context") if text_mode[name]]
    if is_adaptive and windowed:
        raise InvalidSetting(
            f"--cache and --dynamic read a text as one stream. Leave {windowed[0]} out.", key=windowed[0].strip("-")
        )
    if overlap_with and used:
        raise InvalidSetting(f"--overlap-with scores whole documents. Leave {', '.join(used)} out.", key="overlap_with")


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
    """Say which column of a table is the text; not for sequence-to-sequence runs, which read pairs, nor for "
    "fine-tuned ones."""
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
        raise MissingFile(f"There is no file {data}.", path=data)
    sentences = read_lines(data)
    if not sentences:
        raise DataError(f"{data} has no lines to score.", path=data)
    return score_lines(run, sentences, device)


# ------------------------------------------------------------------------------------------------ tasks posed as text


def _list_tasks(json: bool) -> None:
    from nextword.evaluation.prompt_tasks import load_task, task_names

    tasks = [load_task(name) for name in task_names()]
    if json:
        emit_json(
            [
                {
                    "name": task.name,
                    "title": task.title,
                    "data": task.data,
                    "split": task.split,
                    "shots_from": task.shots_from,
                    "rule": task.rule,
                    "metric": task.metric,
                    "note": task.note,
                    "installed": task.has_data(),
                    "published": list(task.published),
                }
                for task in tasks
            ]
        )
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
    console.print("[dim]Run one: nextword evaluate RUN --task NAME --shots 5 · install its data: nextword data NAME[/]")


def _evaluate_task(
    run: str,
    name: str,
    shots: int,
    limit: int,
    seed: int,
    split: str,
    data: str,
    changes: list[str],
    device: str,
    quiet: bool,
) -> dict[str, Any]:
    from nextword.evaluation.evaluate_run import evaluate_prompt_task
    from nextword.evaluation.prompt_tasks import load_task

    settings = _parse_task_settings(changes)
    overrides = {"split": split, "rule": settings.pop("rule", "")}
    task = load_task(name, **{key: value for key, value in overrides.items() if value})
    with progress_bars(quiet) as on_progress:
        return evaluate_prompt_task(
            run,
            task,
            shots,
            seed=seed,
            limit=limit or None,
            folder=data or None,
            device=device,
            on_progress=on_progress,
            **settings,
        )


def _parse_task_settings(changes: list[str]) -> dict[str, str]:
    from nextword.core.errors import UnknownName, did_you_mean

    settings = {}
    for change in changes:
        key, equals, value = change.partition("=")
        group, _, setting = key.strip().partition(".")
        if not equals or group != "task" or setting not in TASK_SETTINGS:
            raise UnknownName(
                f"--set {change}: --task has task.rule, task.drawn (item, once) and task.overflow (slide, error)."
                f"{did_you_mean(setting or group, TASK_SETTINGS)}",
                name=key.strip(),
                known=[f"task.{name}" for name in TASK_SETTINGS],
            )
        settings[setting] = value.strip().strip('"')
    return settings
