"""`nextword train`: train a recipe into a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import (
    Changes,
    Device,
    Header,
    Json,
    Out,
    Quiet,
    Resume,
    Seed,
    SourceColumns,
    emit_json,
    exit_interrupted,
    print_line,
    refuse_options,
    save_stdin,
)
from nextword.progress.display import error_console

RESUMED = "--resume without a recipe keeps the run's own settings."  # with a recipe, they are compared


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="slug/name (`nextword papers` lists them) or a TOML file.", show_default=False
        ),
    ] = "",
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="Text: path, FILE:COLUMN of a table, or data set; PHASE=TEXT for one phase."),
    ] = None,
    columns: SourceColumns = "",
    header: Header = None,
    out: Out = "",
    changes: Changes = None,
    seed: Seed = None,
    resume: Resume = False,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a recipe into a run folder.

    [dim]Examples[/]
      nextword train lstm/tiny
      nextword train lstm/wikitext2 --data path/to/wikitext-2
      nextword train gru/small --data my.txt --set phase.0.minutes=10 --out runs/mine
      nextword train lstm/small --data reviews.csv --columns review
      nextword train seq2seq/small --data pairs.tsv --columns 1,2 --no-header
      nextword train --resume --out runs/mine
    """
    import nextword
    from nextword.core.errors import InvalidSetting
    from nextword.progress.display import Interrupted
    from nextword.recipe import load_recipe
    from nextword.run_folder import RunFolder

    is_silent = quiet or json
    loaded = None
    if recipe:
        loaded = load_recipe(recipe, changes or []).with_data([save_stdin(item) for item in data or []])
    elif not resume:
        raise InvalidSetting(
            "Name a recipe, for example `nextword train lstm/tiny`. `nextword papers` lists them.", key="recipe"
        )
    else:
        table = {"--columns": columns, "--header": header is not None}
        refuse_options({"--set": changes, "--data": data, "--seed": seed is not None, **table}, RESUMED)
        if not out:
            raise InvalidSetting("Name the run to resume with --out RUN. `nextword runs` lists all runs.", key="out")
    if resume and out and not is_silent and RunFolder.open(out).is_finished:
        error_console.print(f"[dim]{escape(out)} is finished: there is nothing left to train.[/]")
    try:
        run = nextword.train(
            loaded,
            columns=columns,
            header=header,
            out=out or None,
            seed=seed,
            resume=resume,
            device=device,
            progress=not is_silent,
        )
    except Interrupted as interrupted:
        exit_interrupted(f"nextword train --resume --out {interrupted.result.path}")
    assert run.evaluation is not None, "only Ctrl-C ends training early"
    if json:
        emit_json(run.evaluation.values)
    else:
        _print_result(run.evaluation.values, str(run.path), 60 * run.minutes)


def _print_result(evaluation: Mapping[str, Any], folder: str, seconds: float) -> None:
    from nextword.cli.evaluate import print_likelihood, print_translations
    from nextword.model_card import example_commands, first_words
    from nextword.run_folder import RunFolder

    print_line(f"[green]✓[/] trained [bold]{escape(folder)}[/] in {seconds:,.0f} s")
    if "decoding" in evaluation:
        print_translations(evaluation)
        command = f'nextword generate {folder} "{first_words(evaluation["sample"][0]["source"])}" --beam 5'
    else:
        if "nats" in evaluation:
            print_likelihood(evaluation)
        if "generate" in evaluation["can"] and "next" not in evaluation["can"]:
            print_line("· it fills blanks in a text; train it on pairs or tasks next (docs/text-to-text.md)")
            command = f'nextword generate {folder} "The ___ of the ___ is" --beam 4'
        else:
            command = example_commands(RunFolder.open(folder))[0]
    print_line(f"\nTry it:  {escape(command)}")
