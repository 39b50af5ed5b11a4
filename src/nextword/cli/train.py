"""`nextword train`: a recipe into a run folder."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Quiet, Watching, console, emit_json, err, keep_stdin, say_columns


def train(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="slug/name (see `nextword papers`) or a TOML file.", show_default=False),
    ] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="Text to train on: a path (of a table, FILE:COLUMN) or a name; NAME=X for the phase of that name.",
        ),
    ] = None,
    out: Annotated[str, typer.Option("--out", help="Run folder. Default: runs/<slug>-<name>.")] = "",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a number of the recipe.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, to the same bits.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of every phase.")] = None,
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
    from nextword.core.errors import NextwordError
    from nextword.objectives import of_pairs
    from nextword.recipe import load_recipe
    from nextword.run_folder import RunFolder
    from nextword.training import train as training

    wanted = list(changes or [])
    if not recipe and not resume:
        raise NextwordError(
            "Say which recipe to train, for example `nextword train lstm/tiny`; `nextword papers` lists them."
        )
    if not recipe:
        own = {"--set": bool(wanted), "--data": bool(data), "--seed": seed is not None}
        refuse_changes([name for name, given in own.items() if given])
    chosen = load_recipe(recipe, wanted) if recipe else None
    if chosen and seed is not None:
        wanted += [f"phase.{i}.seed={seed}" for i in range(len(chosen.phases))]
        chosen = load_recipe(recipe, wanted)
    if chosen:
        chosen = chosen.with_data([keep_stdin(item) for item in data or []])
        texts = [phase.data for phase in chosen.phases if phase.data and not of_pairs(phase.objective)]
        say_columns(texts, quiet or json)
    folder = out or (f"runs/{chosen.slug}-{chosen.name.rsplit('/', 1)[-1].removesuffix('.toml')}" if chosen else "")
    if not folder:
        raise NextwordError("Say which run to resume, with --out RUN; `nextword runs` lists them.")
    if resume and not quiet and not json and RunFolder.open(folder).manifest.get("finished"):
        err.print(f"[dim]{escape(folder)} is finished: there is nothing left to train.[/]")
    with interruptible() as stopped, _Watch(quiet or json) as watch:
        events = training.train(chosen, folder, resume, device=device, stop=stopped, progress=watch.preparing)
        last: Any = None
        for event in events:
            watch(event)
            last = event
    if last is not None and last.values.get("reason") == "interrupted":
        err.print(
            f"[yellow]interrupted[/]: all is saved. Go on with [bold]nextword train --resume --out {escape(folder)}[/]",
            soft_wrap=True,
        )
        raise typer.Exit(130)
    from nextword.cli.evaluate import finish

    result = finish(RunFolder.open(folder), device=device, quiet=quiet or json)
    if json:
        emit_json(result)
    else:
        console.print(f"[green]✓[/] trained [bold]{escape(folder)}[/] in {last.seconds:,.0f} s", soft_wrap=True)
        from nextword.cli.evaluate import show_likelihood, show_translations
        from nextword.model_card import quoted, uses

        pairs = "decoding" in result
        (show_translations if pairs else show_likelihood)(result)
        if pairs:
            use = f'nextword generate {folder} "{quoted(result["sample"][0]["source"])}" --beam 5'
        elif "generate" in result["can"] and "next" not in result["can"]:
            console.print("· it fills what is missing in a text; pairs or tasks teach it more (docs/text-to-text.md)")
            use = f'nextword generate {folder} "The ___ of the ___ is" --beam 4'
        else:
            use = uses(RunFolder.open(folder))[0]
        console.print(f"\nTry it:  {escape(use)}", soft_wrap=True)


def refuse_changes(given: Sequence[str]) -> None:
    """A run that is gone on with stays what it is: what would change it is no use beside --resume alone."""
    from nextword.core.errors import NextwordError

    if given:
        raise NextwordError(
            f"--resume goes on with a run as it was begun: leave {', '.join(given)} out. (With the recipe before them "
            "they are compared with the run's own.)"
        )


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks training to stop between two steps; the second one means it."""
    asked = False

    def on_signal(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        err.print("[yellow]stopping after this step; Ctrl-C again to stop at once[/]")

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


class _Watch(Watching):
    """Training as a person sees it: one bar with the latest numbers, and a line for every validation."""

    def __call__(self, event: Any) -> None:
        if self.quiet:
            return
        values = event.values
        if event.kind == "begin":
            self.total = values.get("steps") or None
            facts = [f"{values['tokens']:,} tokens"]
            if "parameters" in values:
                facts = [f"{values['parameters']:,} parameters", *facts]
                facts += [
                    f"{values['steps']:,} steps ({values['steps'] / values['per_epoch']:.1f} epochs)",
                    values["device"],
                ]
            err.print(f"[bold]{event.phase}[/]: {' · '.join(facts)}")
            for note in values.get("notes", ()):
                err.print(f"  [dim]·[/] {escape(note)}", soft_wrap=True)
        elif "ngrams" in values:
            self._counted(values)
        elif "doing" in values:
            self.update(values["doing"], values["fraction"], 1.0, "")
        elif event.kind == "step":
            note = ""
            if "loss" in values:
                note = f"loss {values['loss']:.3f} · {values['tokens_per_second']:,} tokens/s"
            self.update(event.phase, event.step, values.get("of") or self.total, note)
        elif event.kind == "valid":
            bits = f" · {values['valid_bits_per_byte']:.3f} bits/byte" if "valid_bits_per_byte" in values else ""
            mark = " [green]best[/]" if values["best"] else ""
            nats = (
                f"perplexity {values['perplexity']:,.2f}" if "perplexity" in values else f"loss {values['valid']:.4f}"
            )
            err.print(
                f"  step {event.step:,} · epoch {event.epoch:.1f} · valid {nats}{bits} · {event.seconds:,.0f} s{mark}"
            )

    def _counted(self, values: Any) -> None:
        """What counting found, by order; and what of the estimate had to be done otherwise, and why."""
        err.print("  " + " · ".join(f"{n:,} {k}-grams" for k, n in enumerate(values["ngrams"], 1)))
        if "weights" in values:
            err.print(f"  weights on the validation text: {', '.join(f'{w:.3f}' for w in values['weights'])}")
        for note in values.get("notes", ()):
            err.print(f"  [yellow]·[/] {escape(note)}")
