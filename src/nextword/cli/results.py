"""Numbers of a run: measured, kept in its folder, shown in one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from nextword.cli.console import console, progress_bar
from nextword.infinity import number


def finish(run: Any, device: str = "auto", quiet: bool = False) -> dict[str, Any]:
    """Score a freshly trained run on its held-out text, write its card, and say what came out."""
    from nextword.card import write_card
    from nextword.corpora import open_corpus, open_parallel
    from nextword.loading_lm import load
    from nextword.objectives import of_pairs

    recipe = run.recipe
    lm = load(run.path, device)
    if "score" not in lm.can:  # it gives words vectors, and no text a probability
        write_card(run)
        known = {"slug": recipe.slug, "run": str(run.path), "parameters": run.manifest.get("parameters")}
        return {**known, "can": sorted(lm.can)}
    pairs = of_pairs(recipe.phases[-1].objective)
    corpus = (open_parallel if pairs else open_corpus)(recipe.phases[-1].data)
    split = "test" if "test" in corpus.splits else "valid"
    can = {"can": sorted(lm.can)}
    modelled = pairs or getattr(lm, "goes_on", True)  # what was trained to mend texts models none
    if split not in corpus.splits or not modelled:
        write_card(run)
        return {"slug": recipe.slug, "run": str(run.path), "parameters": run.manifest.get("parameters"), **can}
    if pairs:
        from nextword.cli import translations
        from nextword.contract import Greedy

        result = translations.measure_translations(lm, run, corpus, split, Greedy(), quiet) | can
    else:
        result = measure_likelihood(lm, run, corpus, split, quiet=quiet, scored=recipe.phases[-1].scored) | can
    write_card(run)
    return result


def about(lm: Any, run: Any, corpus: Any, split: str) -> dict[str, Any]:
    """What every result begins with: which run, on what."""
    return {
        "slug": run.recipe.slug,
        "run": str(run.path),
        "data": corpus.name,
        "split": split,
        "parameters": lm.parameters,
    }


def measure_likelihood(
    lm: Any,
    run: Any,
    corpus: Any,
    split: str,
    context: int | None = None,
    stride: int | None = None,
    quiet: bool = False,
    method: Any = None,
    limit: int | None = None,
    scored: int = 0,
) -> dict[str, Any]:
    """Evaluate on a split, or on the first documents of it with so many tokens, and keep the result in the run's log.

    With a method it is another event, "adapted", so that nothing takes it for what the model is by itself.
    """
    from nextword.batching.prepare import prepare
    from nextword.evaluation.likelihood import evaluate_stream

    with progress_bar(f"scoring {corpus.name} {split}", quiet=quiet) as update:
        whole = prepare(corpus, split, lm.tokenizer)
        stream = whole.beginning(scored)
        evaluation = evaluate_stream(lm, stream, context, stride, update, method, limit)
    result = {
        **about(lm, run, corpus, split),
        **evaluation.as_dict(),
    }
    if len(stream) < len(whole):
        result["scored"] = len(stream)
        result["notes"] = [*result["notes"], f"of the first {len(stream):,} of {len(whole):,} tokens of {split}"]
    event = "evaluation" if method is None else "adapted"
    run.log({"event": event, **{k: v for k, v in result.items() if k != "run"}})
    return result


def show_likelihood(result: dict[str, Any]) -> None:
    if "nats" not in result:
        return
    counts = f"{result['split']}: {result['words']:,} words, {result['bytes']:,} bytes"
    how = f", [bold]with {escape(result['method'])}[/]" if result.get("method") else ""
    console.print(f"\non [bold]{escape(result['data'])}[/] ({counts}){how}")
    label = "pseudo " if result["kind"] == "pseudo" else ""
    heads = [label + name for name in ("bits/byte", "word ppl", "token ppl")]
    table([*heads, "context", "parameters"], [_cells(result)])
    if result["conventions"]:
        table(("counted", "tokens", "token ppl"), _conventions(result["conventions"]))
    for note in result["notes"]:
        console.print(f"[dim]· {escape(note)}[/]")


def _cells(result: dict[str, Any]) -> list[str]:
    bits = number(result["bits_per_byte"], 4)
    if result.get("bits_per_byte_low") not in (None, math.inf):
        bits += f" [dim]({result['bits_per_byte_low']:.3f}–{result['bits_per_byte_high']:.3f})[/]"
    return [
        bits,
        number(result["word_perplexity"], 2),
        number(result["token_perplexity"], 2),
        "all before" if result["context"] is None else f"{result['context']} (stride {result['stride']})",
        f"{result['parameters']:,}",
    ]


def _conventions(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    names = [escape(row["name"]) for row in rows]
    names[0] += " [dim](as above)[/]"
    return [[name, f"{row['tokens']:,}", number(row["perplexity"], 2)] for name, row in zip(names, rows, strict=True)]


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None, words: Sequence[str] = ()
) -> None:
    """Columns of numbers stand at the right; the first, and those of `words`, at the left."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for i, column in enumerate(columns):
        # the first column is what one copies from: a name
        shown.add_column(
            column, justify="left" if i == 0 or column in words else "right", overflow="fold", no_wrap=i == 0
        )
    for row in rows:
        shown.add_row(*row)
    if console.is_terminal:
        console.print(shown)
    else:  # a pipe has no width: nothing that a person greps for may be cut
        wide = console.measure(shown, options=console.options.update(max_width=1000)).maximum
        Console(file=console.file, width=wide, highlight=False).print(shown)
