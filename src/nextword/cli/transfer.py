"""`nextword transfer`: a run to a task.

What a transferred run gets wrong, in the terminal: what is taken for what, each class, and the surest mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Quiet, Watching, console, emit_json, err
from nextword.cli.evaluate import table
from nextword.cli.train import interruptible, refuse_changes

CLASSES = 8  # shown of the balance


def transfer(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="How to learn, as bert/finetune; see above. Or a TOML file.",
            show_default=False,
        ),
    ] = "",
    source: Annotated[
        str, typer.Option("--from", metavar="RUN", help="The run to transfer, if the recipe has no network of its own.")
    ] = "",
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="A csv, tsv or jsonl file, a folder of them, a task (RTE; nextword data tasks lists them), or glue "
            "for five; of tags a file with a word a line, or conll2003; of questions a JSON as SQuAD's, or squad; "
            "several at once with ' + ' between them.",
        ),
    ] = "",
    text: Annotated[str, typer.Option("--text", metavar="COLUMN", help="Where the text is. Default: guessed.")] = "",
    second: Annotated[str, typer.Option("--second", metavar="COLUMN", help="The other text of a pair.")] = "",
    label: Annotated[
        str, typer.Option("--label", metavar="COLUMN", help="Where the label is. Default: guessed; of tags, the last.")
    ] = "",
    kind: Annotated[
        str,
        typer.Option(
            "--kind", help="classify, pair (of texts), regress (a number) or choice. Default: as the table looks."
        ),
    ] = "",
    out: Annotated[str, typer.Option("--out", help="Run folder. Default: runs/<slug>-<data>.")] = "",
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Of the head, the order and the dropout, or of the examples shown.", min=0),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="K", help="K runs, with mean and 95 % interval.", min=0)] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a number of the recipe: docs/transfer.md has them."),
    ] = None,
    features: Annotated[
        str, typer.Option("--features", metavar="RUN", help="A tagger reads this run's vectors of words besides.")
    ] = "",
    labels: Annotated[
        float, typer.Option("--labels", metavar="SHARE", help="Learn from a share of the labels, drawn by the seed.")
    ] = 1.0,
    final: Annotated[
        bool, typer.Option("--final", help="Learn from dev too, once all is chosen, and keep the last weights.")
    ] = False,
    scratch: Annotated[
        bool, typer.Option("--scratch", help="The same network without what it has learnt: the baseline.")
    ] = False,
    twin: Annotated[
        bool, typer.Option("--twin", help="Also from scratch, into OUT-scratch: both, and the difference by seeds.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with what was begun in --out; what is finished is taken, if it is the same."
        ),
    ] = False,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune a run for a task: a head over its network, and both are trained on labelled texts or tagged words.

    The result is a run folder that `nextword predict` applies. Without a dev split a tenth of the rows is held out.

    [dim]Recipes[/]
      bert/finetune     labels of texts, or a number; for a run of any network
      gpt1/finetune     the same with the language model's loss beside it
      ulmfit/classify   for long texts; layer after layer. ulmfit/few: with a few hundred labels
      t5/finetune       labels or a number in words, by a run that makes texts from sources
      gpt3/in-context   nothing is trained: some examples stand before every text
      cove/classify     over vectors that stay as they are
      bert/span         answers out of passages
      bert/choice       one of several candidates; also gpt1/choice
      bert/tag          tags of words. With networks of their own:
                        tagger/conll2003, tagger/ud-pos, cvt/conll2000 …

    [dim]Examples[/]
      nextword transfer bert/finetune --from runs/bert --data reviews.csv --text review --label stars
      nextword transfer ulmfit/classify --from runs/ulmfit-lm --data reviews.csv --text review --label stars
      nextword transfer bert/finetune --from runs/bert --data RTE --set phase.0.epochs=10
      nextword transfer gpt1/finetune --from runs/gpt1 --data SST-2 --seeds 3
      nextword transfer bert/finetune --from runs/bert --data glue --seeds 3 --twin --out runs/glue
      nextword transfer bert/finetune --from runs/bert --data "SST-2 + RTE + MRPC" --out runs/three
      nextword transfer t5/finetune --from runs/t5 --data reviews.csv
      nextword transfer gpt3/in-context --from runs/gpt2 --data reviews.csv --set task.shots=16 --seeds 3
      nextword transfer bert/span --from runs/bert --data squad
      nextword transfer bert/choice --from runs/bert --data endings.csv
      nextword transfer tagger/conll2003 --features runs/elmo --labels 0.1 --seeds 3 --out runs/ner
      nextword transfer cvt/conll2000 --labels 0.1 --set phase.0.objective.unlabelled=plain.txt --out runs/chunks
      nextword transfer --resume --out runs/bert-reviews
    """
    from nextword.core.errors import NextwordError

    if resume and not recipe:
        given: dict[str, Any] = {
            "--from": source,
            "--data": data,
            "--text": text,
            "--second": second,
            "--label": label,
            "--kind": kind,
        }
        given |= {"--seed": seed is not None, "--seeds": seeds, "--set": changes, "--features": features}
        given |= {"--labels": labels != 1, "--final": final, "--scratch": scratch, "--twin": twin}
        refuse_changes([name for name, value in given.items() if value])
        _resume(out, device, json, quiet)
        return
    if not recipe:
        raise NextwordError("Say how to fine-tune, for example bert/finetune. See `nextword transfer --help`.")
    from nextword.data.tables import Columns
    from nextword.tasks.datasets.glue import FIVE, SUITE
    from nextword.tasks.finetune import run
    from nextword.tasks.plan import fine_tuning, open_source
    from nextword.tasks.suite import run_suite, twins

    own = fine_tuning(recipe)
    data = data or own.phases[0].data
    for value, what in (
        (source or own.tokenizer, "which run to transfer, with --from RUN (`nextword runs` lists them)"),
        (data, "what to learn, with --data: a csv file, or a task as RTE"),
    ):
        if not value:
            raise NextwordError(f"Say {what}. See `nextword transfer --help`.")
    if features and not own.tokenizer:
        raise NextwordError(
            f"--features {features}: {recipe} fine-tunes the run that --from names, and reads no other besides. Only a "
            "recipe with a tagger of its own does."
        )
    if twin and (scratch or not source):
        raise NextwordError("--twin sets what --from RUN has learnt beside nothing: give --from, and not --scratch.")
    changes = [*([f"model.contextual={features}"] if features else []), *(changes or ())]
    changes += [f"task.share={labels}"] if labels != 1 else []
    changes += ["task.final=true"] if final else []
    folder = out or _folder(open_source(source).recipe.slug if source else own.slug, data, scratch)
    with interruptible() as stopped, Watch(quiet or json) as watch:
        options: dict[str, Any] = {
            "columns": Columns(text, second, label),
            "kind": kind,
            "seed": seed,
            "seeds": seeds,
            "scratch": scratch,
            "changes": changes,
            "device": device,
            "again": resume,
            "hear": watch,
            "told": watch.told,
            "stop": stopped,
            "progress": watch.preparing,
        }
        several = FIVE if data.lower() == SUITE and not Path(data).exists() else ()
        if twin:
            outcomes, beside, found = twins(recipe, source, several or (data,), folder, **options)
            outcomes = beside if beside and beside[-1].interrupted else outcomes
        elif several:
            outcomes, found = run_suite(recipe, source, several, folder, **options)
        else:
            outcomes, found = [run(recipe, source, data, folder, **options)], {}
    if outcomes[-1].interrupted:
        _interrupted(folder, bool(seeds or several or twin))
    if json:
        emit_json(found or (_several(outcomes[0]) if seeds else _single(outcomes[0])))
    elif found:
        _table(found, folder)
    else:
        _show(outcomes[0], folder)


def _folder(slug: str, data: str, scratch: bool) -> str:
    name = "-".join(Path(one).name.split(".")[0].replace(":", "-").lower() for one in data.split(" + "))
    return f"runs/{slug}-{name}{'-scratch' if scratch else ''}"


def _resume(out: str, device: str, json: bool, quiet: bool) -> None:
    from nextword.core.errors import NextwordError
    from nextword.tasks.finetune import Outcome, result_of, resume

    if not out:
        raise NextwordError("Say which run to go on with, with --out RUN; `nextword runs` lists them.")
    if result_of(out) is None:
        with interruptible() as stopped, Watch(quiet or json) as watch:
            plan, events = resume(out, device, stopped, watch.preparing)
            watch.told(plan)
            for event in events:
                watch(event)
    elif not quiet and not json:
        err.print(f"[dim]{escape(out)} is finished: there is nothing left to train.[/]")
    found = result_of(out)
    if found is None:
        _interrupted(out, False)
        return
    outcome = Outcome(found["data"], (out,), (found,))
    if json:
        emit_json(_single(outcome))
    else:
        _show(outcome, out)


def _interrupted(folder: str, several: bool) -> None:
    how = "the same command and --resume" if several else f"nextword transfer --resume --out {folder}"
    err.print(f"[yellow]interrupted[/]: all is saved. Go on with [bold]{escape(how)}[/]", soft_wrap=True)
    raise typer.Exit(130)


def _single(outcome: Any) -> dict[str, Any]:
    from nextword.tasks.finetune import errors_in

    return {"run": outcome.runs[0], **outcome.results[0], "errors": errors_in(outcome.runs[0])}


def _several(outcome: Any) -> dict[str, Any]:
    from nextword.tasks.finetune import errors_in

    return {**outcome.as_dict(), "errors": [errors_in(run) for run in outcome.runs]}


# ------------------------------------------------------------------------------------------------ what came of it


def _percent(value: float, spread: float | None = None) -> str:
    return f"{100 * value:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")


def _numbers(values: dict[str, float]) -> str:
    return " · ".join(f"{name} [bold]{_percent(value)}[/]" for name, value in values.items())


def _show(outcome: Any, folder: str) -> None:
    from nextword.tasks.finetune import errors_in
    from nextword.tasks.whole import counted

    first = outcome.results[0]
    others = [split for split in first["examples"] if split not in ("train", "dev")]
    console.print(f"[green]✓[/] [bold]{escape(folder)}[/] on {escape(outcome.name)}", soft_wrap=True)
    if len(outcome.results) > 1:
        from nextword.cli.evaluate import table
        from nextword.metrics.classification import interval

        places = [(split, name) for split in ("dev", *others) for name in first["dev"]]
        rows = [
            [escape(run), *(_percent(result[split][name]) for split, name in places)]
            for run, result in zip(outcome.runs, outcome.results, strict=True)
        ]
        rows.append(
            ["[bold]mean, 95 % interval[/]"]
            + [f"[bold]{_percent(*interval(outcome.values(name, split)))}[/]" for split, name in places]
        )
        table(["run", *(f"{split} {name}" for split, name in places)], rows)
    else:
        for split in ("dev", *others):
            console.print(f"  {split} ({counted(first, split)}): {_numbers(first[split])}")
        for task, splits in first.get("tasks", {}).items():
            for split, numbers in splits.items():
                console.print(f"  {escape(task)}, {split}: {_numbers(numbers)}")
        if "best" in first:
            numbers = {name: value for name, value in first["best"].items() if name != "threshold"}
            console.print(
                f"  dev, with the threshold that is best there ({first['best']['threshold']:.3g}): {_numbers(numbers)}"
            )
        found = errors_in(outcome.runs[0])
        if found is not None:
            show_errors(found)
    console.print()
    if (Path(outcome.runs[0]) / "report.html").is_file():
        console.print(f"Look:    {escape(outcome.runs[0])}/report.html", soft_wrap=True)
    which = " --task NAME" if "tasks" in first else ""
    console.print(f"Try it:  nextword predict {escape(outcome.runs[0])} FILE{which}", soft_wrap=True)


def _table(found: dict[str, Any], folder: str) -> None:
    from nextword.cli.evaluate import table
    from nextword.tasks.suite import heads_of, rows_of

    rows = [[escape(cell) for cell in row] for row in rows_of(found)]
    if len(rows) > 1:
        rows[-1] = [f"[bold]{cell}[/]" if cell else "" for cell in rows[-1]]
    console.print(f"[green]✓[/] [bold]{escape(folder)}[/]{', from scratch' if found['scratch'] else ''}")
    table(heads_of(found), rows)
    where = f"all numbers: {escape(folder)}/results.json, as markdown: results.md"
    console.print(f"[dim]· dev sets; ± is the half of a 95 % interval over seeds; {where}[/]", soft_wrap=True)


def _asked(settings: Any) -> str:
    """What is to be said of an example, in words."""
    if settings.tasks and settings.kind != "tag":
        return f"labels of {len(settings.tasks)} tasks for texts"
    if settings.tasks:
        return f"tags of {len(settings.tasks)} tasks for a word"
    if settings.kind == "tag":
        return f"one of {len(settings.labels)} tags for a word" + (f", {settings.scheme}" if settings.scheme else "")
    if settings.kind == "span":
        return "a span of a passage for a question" + (", or none" if settings.unanswered else "")
    if settings.kind == "choice":
        return "one of several candidates for a context"
    texts = "two texts" if settings.frame != "classify" else "a text"
    return (
        f"a number for {texts}" if settings.kind == "regress" else f"one of {len(settings.labels)} classes for {texts}"
    )


class Watch(Watching):
    """Transfer as a person sees it: the data, one bar with the latest numbers, and a line for every validation."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet)
        self.metrics: Sequence[str] = ()
        self.keeps, self.patience, self.learns = "last", 0, True

    def told(self, plan: Any) -> None:
        """What was read, before anything is learnt of it."""
        phase = plan.recipe.phases[-1]
        self.metrics, self.keeps, self.patience = plan.settings.metrics, phase.keep, phase.patience
        self.learns = not plan.settings.prompted
        if self.quiet:
            return
        from nextword.tasks.share import balance_learnt, number_of, size_of

        data, settings = plan.data, plan.settings
        what = _asked(settings)
        sizes = {split: f"{size_of(some):,}" for split, some in plan.examples.items()}
        if settings.share < 1:
            sizes["train"] = f"{number_of(size_of(plan.examples['train']), settings.share):,} of {sizes['train']}"
        counts = " · ".join(f"{size} {split}" for split, size in sizes.items())
        err.print(f"[bold]{escape(data.name)}[/]: {what} · {counts}", soft_wrap=True)
        seed = plan.recipe.phases[0].seed
        shares = list(balance_learnt(data, settings.share, seed).items())
        if shares:
            shown = [f"{escape(label)} {100 * share:.1f} %" for label, share in shares[:CLASSES]]
            more = [f"{len(shares) - CLASSES} more"] if len(shares) > CLASSES else []
            whose = f" (of those that are learnt from, as seed {seed} draws them)" if settings.share < 1 else ""
            err.print(f"  {' · '.join([*shown, *more])}{whose}", soft_wrap=True)
        early = self.patience and self.keeps == "last" and not settings.final
        last = "training may stop early, and the last weights are kept, not the best: --set phase.0.keep=best"
        for note in [*plan.notes, *([last] if early else [])]:
            err.print(f"  [yellow]·[/] {escape(note)}", soft_wrap=True)

    def __call__(self, event: Any) -> None:
        if self.quiet:
            return
        values = event.values
        if event.kind == "begin":
            self.total = values.get("steps") or None
            steps = "nothing is trained"
            if self.learns:
                steps = f"{values['steps']:,} steps ({values['steps'] / values['per_epoch']:.1f} epochs)"
            facts = f"{values['parameters']:,} parameters · {steps} · seed {values['seed']} · {values['device']}"
            err.print(f"[bold]{event.phase}[/]: {facts}")
            for note in values.get("notes", ()):
                err.print(f"  [yellow]·[/] {escape(note)}", soft_wrap=True)
        elif event.kind == "step":
            note = "labelling"
            if self.learns:
                note = f"loss {values['loss']:.3f} · {values['tokens_per_second']:,} tokens/s"
            self.update(event.phase, event.step, values.get("of") or self.total, note)
        elif event.kind == "valid":
            numbers = " · ".join(f"{name} {_percent(values[name])}" for name in self.metrics)
            mark = " [green]best[/]" if values["best"] and self.keeps == "best" else ""
            epoch = f"epoch {event.epoch:.1f} · " if self.learns else ""
            err.print(f"  {epoch}dev {numbers} · {event.seconds:,.0f} s{mark}")
        elif event.kind == "end" and values.get("reason") == "patience":
            kept = "its weights are kept" if self.keeps == "best" else "the last weights are kept"
            best = f"the best was at step {values['best_step']:,}, and {kept}"
            err.print(
                f"  stopped: more than {self.patience} validations in a row were no better ({best})", soft_wrap=True
            )


SMALL = 10  # classes whose whole matrix fits
ROWS = 8  # of a table of the worst
SHOWN = 3  # mistakes
LETTERS = 110  # of a text
SHARES = ("precision", "recall", "f1")


def show_errors(errors: Mapping[str, Any]) -> None:
    for task in errors.get("tasks") or [errors]:
        if task.get("task"):
            console.print(f"\n[bold]{escape(task['task'])}[/]")
        kind = task.get("kind", errors["kind"])
        {"tag": _tags, "regress": _error_numbers, "span": _answers, "choice": _answers}.get(kind, _classes)(task)


def _classes(found: Mapping[str, Any]) -> None:
    labels = found["labels"]
    if len(labels) <= SMALL:
        heads = ["right ↓ said →", *(escape(_short(label, 12)) for label in labels), *SHARES]
        rows = [
            [escape(_short(one["label"], 24)), *_counts(row, i), *_shares(one)]
            for i, (one, row) in enumerate(zip(found["classes"], found["confusion"], strict=True))
        ]
        table(heads, rows, f"of {found['examples']:,} examples of dev, what is taken for what")
    else:
        least = sorted((one for one in found["classes"] if one["examples"]), key=_least)[:ROWS]
        heads = ["class", "examples", *SHARES]
        rows = [[escape(_short(one["label"], 24)), f"{one['examples']:,}", *_shares(one)] for one in least]
        table(heads, rows, f"the {len(least)} of {len(labels)} classes that are found least")
        _worst(found["worst"])
    _surest(found)


def _answers(found: Mapping[str, Any]) -> None:
    console.print(f"of {found['examples']:,} examples of dev {found['wrong']:,} are not right")
    _surest(found)


def _surest(found: Mapping[str, Any]) -> None:
    error = found["calibration"]["error"]
    console.print(f"[dim]· calibration: probabilities are off by {100 * error:.1f} points on average[/]")
    if found["mistakes"]:
        console.print("[bold]the most confident mistakes[/]")
    for one in found["mistakes"][:SHOWN]:
        said = (
            f"said [bold]{escape(one['predicted'])}[/] ({one['probability']:.0%}), is [bold]{escape(one['label'])}[/]"
        )
        console.print(f"  {said}: {_text(one)}", soft_wrap=True)


def _least(one: Mapping[str, Any]) -> tuple[float, int]:
    return one["f1"], -one["examples"]


def _counts(row: Sequence[int], own: int) -> list[str]:
    return [f"[bold]{n:,}[/]" if i == own else f"{n:,}" if n else "[dim]·[/]" for i, n in enumerate(row)]


def _shares(one: Mapping[str, Any], prefix: str = "") -> list[str]:
    return [f"{100 * one[prefix + name]:.1f}" for name in SHARES]


def _worst(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        shown = [
            [*(escape(_short(one[key], 24)) for key in ("label", "said")), f"{one['count']:,}", f"{one['share']:.1%}"]
            for one in rows[:ROWS]
        ]
        table(("right", "said", "times", "of its class"), shown, "the commonest mistakes")


def _error_numbers(found: Mapping[str, Any]) -> None:
    off = f"off by {found['mean_absolute_error']:.3g} on average"
    console.print(
        f"[bold]the largest errors[/] [dim]({off}, root mean square {found['root_mean_square_error']:.3g})[/]"
    )
    for one in found["mistakes"][:SHOWN]:
        said = f"said [bold]{one['predicted']:.4g}[/], is [bold]{one['label']:g}[/]"
        console.print(f"  {said}: {_text(one)}", soft_wrap=True)


def _tags(found: Mapping[str, Any]) -> None:
    spans = "types" in found
    each = sorted(found["types" if spans else "classes"], key=lambda one: -one["spans" if spans else "examples"])
    prefix, count = ("span_", "spans") if spans else ("", "examples")
    rows = [[escape(one["label"]), f"{one[count]:,}", *_shares(one, prefix)] for one in each[: 2 * ROWS]]
    more = f", the commonest of {len(each)}" if len(each) > 2 * ROWS else ""
    table(("type" if spans else "tag", "in dev", *SHARES), rows, f"{'types' if spans else 'tags'}{more}")
    if found["mistakes"]:
        console.print(
            f"[bold]sentences with most wrong[/] [dim]({found['wrong']:,} of {found['examples']:,} have any)[/]"
        )
    for one in found["mistakes"][:SHOWN]:
        wrong = [
            f"{escape(word)} [dim]said[/] {escape(said)} [dim]is[/] {escape(tag)}"
            for word, tag, said in zip(one["words"], one["tags"], one["said"], strict=True)
            if tag != said
        ]
        console.print(f"  {escape(_short(' '.join(one['words']), LETTERS))}", soft_wrap=True)
        console.print(f"    {' · '.join(wrong[:ROWS])}", soft_wrap=True)


def _text(one: Mapping[str, Any]) -> str:
    texts = [one[key] for key in ("text", "second") if key in one]
    return " [dim]│[/] ".join(escape(_short(" ".join(text.split()), LETTERS // len(texts))) for text in texts)


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"
