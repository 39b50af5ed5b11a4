"""`nextword train`: train a recipe into a run folder."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import (
    Changes,
    Device,
    Json,
    Out,
    ProgressDisplay,
    Quiet,
    Resume,
    Seed,
    emit_json,
    error_console,
    exit_interrupted,
    print_columns,
    print_line,
    print_warnings,
    refuse_options,
    save_stdin,
)
from nextword.core.io import format_number

if TYPE_CHECKING:
    from types import FrameType

    from nextword.training.events import Event

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
      nextword train --resume --out runs/mine
    """
    import nextword
    from nextword.core.errors import InvalidSetting
    from nextword.objectives import trains_on_pairs
    from nextword.recipe import load_recipe
    from nextword.run_folder import RunFolder

    quiet = quiet or json
    loaded = None
    if recipe:
        loaded = load_recipe(recipe, changes or []).with_data([save_stdin(item) for item in data or []])
        texts = [phase.data for phase in loaded.phases if phase.data and not trains_on_pairs(phase.objective)]
        print_columns(texts, quiet)
    elif not resume:
        raise InvalidSetting(
            "Name a recipe, for example `nextword train lstm/tiny`. `nextword papers` lists them.", key="recipe"
        )
    else:
        refuse_options({"--set": changes, "--data": data, "--seed": seed is not None}, RESUMED)
    folder = out or (nextword.default_run_folder(loaded) if loaded else "")
    if not folder:
        raise InvalidSetting("Name the run to resume with --out RUN. `nextword runs` lists all runs.", key="out")
    if resume and not quiet and RunFolder.open(folder).is_finished:
        error_console.print(f"[dim]{escape(folder)} is finished: there is nothing left to train.[/]")
    with interruptible() as interrupt, _TrainingDisplay(quiet, interrupt) as display:
        result = nextword.train(
            loaded,
            folder,
            seed=seed,
            resume=resume,
            device=device,
            on_event=display,
            on_progress=display.update,
            stop=interrupt,
        )
    if result.evaluation is None:
        exit_interrupted(f"nextword train --resume --out {folder}")
    if json:
        emit_json(result.evaluation.values)
    else:
        _print_result(result.evaluation.values, folder, result.seconds)


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


# ------------------------------------------------------------------------------------------------ interrupting


class Interrupt:
    """Whether Ctrl-C was pressed. The first one asks training to stop after this step; the second one stops at once."""

    def __init__(self) -> None:
        self.is_requested = False
        self.stops_at_once = False  # nothing is running that could stop gracefully

    def __call__(self) -> bool:
        return self.is_requested

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested or self.stops_at_once:
            raise KeyboardInterrupt
        self.is_requested = True
        error_console.print("[yellow]stopping after this step; Ctrl-C again to stop at once[/]")


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within this context, Ctrl-C sets the yielded flag, which training checks between steps."""
    interrupt = Interrupt()
    before = signal.signal(signal.SIGINT, interrupt.on_signal)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


# ------------------------------------------------------------------------------------------------ progress


class _TrainingDisplay(ProgressDisplay):
    """One progress bar with the latest numbers, and a line per validation."""

    def __init__(self, quiet: bool, interrupt: Interrupt) -> None:
        super().__init__(quiet)
        self.interrupt = interrupt

    def __call__(self, event: Event) -> None:
        if event.kind == "evaluate":
            self.interrupt.stops_at_once = True
        if self.quiet:
            return
        values = event.values
        show: dict[str, Callable[[Event], None]] = {
            "begin": self._show_begin,
            "step": self.show_step,
            "valid": self._show_validation,
        }
        if "ngrams" in values:
            self._show_ngrams(event)
        elif "doing" in values:
            self.update(values["doing"], values["fraction"], 1.0, "")
        elif event.kind in show:
            show[event.kind](event)

    def _show_begin(self, event: Event) -> None:
        values = event.values
        self.total = values.get("steps") or None
        facts = [f"{values['tokens']:,} tokens"]
        if "parameters" in values:
            epochs = values["steps"] / values["per_epoch"]
            facts = [f"{values['parameters']:,} parameters", *facts]
            facts += [f"{values['steps']:,} steps ({epochs:.1f} epochs)", values["device"]]
        error_console.print(f"[bold]{event.phase}[/]: {' · '.join(facts)}")
        print_warnings(values.get("notes", ()), indent="  ")

    def _show_validation(self, event: Event) -> None:
        values = event.values
        is_perplexity = "perplexity" in values
        loss = (
            f"perplexity {format_number(values['perplexity'], 2)}" if is_perplexity else f"loss {values['valid']:.4f}"
        )
        bits = f" · {values['valid_bits_per_byte']:.3f} bits/byte" if "valid_bits_per_byte" in values else ""
        mark = " [green]best[/]" if values["best"] else ""
        error_console.print(
            f"  step {event.step:,} · epoch {event.epoch:.1f} · valid {loss}{bits} · {event.seconds:,.0f} s{mark}"
        )

    def _show_ngrams(self, event: Event) -> None:
        """The number of n-grams by order, interpolation weights, and notes of the estimator."""
        values = event.values
        error_console.print("  " + " · ".join(f"{n:,} {k}-grams" for k, n in enumerate(values["ngrams"], 1)))
        if "weights" in values:
            weights = ", ".join(f"{weight:.3f}" for weight in values["weights"])
            error_console.print(f"  weights on the validation text: {weights}")
        print_warnings(values.get("notes", ()), indent="  ")
