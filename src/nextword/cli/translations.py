"""Numbers of a run that makes texts from sources: measured, kept in its folder, shown in one table."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from nextword.cli.console import console, progress_bar
from nextword.cli.results import table

HEADS = {"bleu": "BLEU", "bleu_lowercase": "BLEU, lower case", "chrf": "chrF"}
SHOWN = 3  # pairs, as a sample
WITHOUT = "Without sacrebleu there is no BLEU: pip install 'nextword[tasks]'."


def measure(
    lm: Any, run: Any, corpus: Any, split: str, how: Any, quiet: bool = False, limit: int = 0
) -> dict[str, Any]:
    """Translate a split and keep the result in the run's log."""
    from itertools import islice

    from nextword.evaluation.translation import translate

    pairs = list(islice(corpus.documents(split), limit or None))
    with progress_bar(f"translating {corpus.name} {split}", quiet=quiet) as update:
        found = translate(lm, pairs, how, update)
    result = {
        "slug": run.recipe.slug,
        "run": str(run.path),
        "data": corpus.name,
        "split": split,
        "parameters": lm.parameters,
        "decoding": told(how),
        **found.as_dict(),
    }
    run.log({"event": "translated", **{k: v for k, v in result.items() if k != "run"}})
    chosen = sorted({round(i * (len(pairs) - 1) / max(SHOWN - 1, 1)) for i in range(SHOWN)})
    sample = [{"source": pairs[i].source, "target": pairs[i].text, "written": found.written[i]} for i in chosen]
    return {**result, "sample": sample}


def told(how: Any) -> str:
    """A decoding in words: what is not as usual."""
    from dataclasses import fields

    name = type(how).__name__.lower()
    rest = [
        f"{f.name.replace('_', ' ')} {getattr(how, f.name)}"
        for f in fields(how)
        if f.name != "width" and getattr(how, f.name) != _usual(f)
    ]
    return ", ".join([f"{name} {how.width}" if hasattr(how, "width") else name, *rest])


def _usual(field: Any) -> Any:
    from dataclasses import MISSING

    return field.default if field.default is not MISSING else field.default_factory()


def show(result: dict[str, Any]) -> None:
    count = f"{result['split']}: {result['pairs']:,} pairs"
    console.print(f"\non [bold]{escape(result['data'])}[/] ({count}), {escape(result['decoding'])}")
    heads = [HEADS[name] for name in result["scores"]]
    cells = [_cell(one) for one in result["scores"].values()]
    table(
        [*heads, "target token ppl", "parameters"],
        [[*cells, f"{result['token_perplexity']:,.2f}", f"{result['parameters']:,}"]],
    )
    for one in result["sample"]:
        console.print(f"[dim]source [/] {escape(one['source'])}", soft_wrap=True, highlight=False)
        console.print(f"[dim]target [/] {escape(one['target'])}", soft_wrap=True, highlight=False)
        console.print(f"[dim]written[/] [bold]{escape(one['written'])}[/]\n", soft_wrap=True, highlight=False)
    for name, one in result["scores"].items():
        console.print(f"[dim]· {HEADS[name]}: {escape(one['signature'])}[/]", soft_wrap=True)
    if not result["scores"]:
        console.print(f"[dim]· {escape(WITHOUT)}[/]")


def _cell(one: dict[str, Any]) -> str:
    bounds = "" if one["low"] is None else f" [dim]({one['low']:.1f}–{one['high']:.1f})[/]"
    return f"{one['score']:.2f}{bounds}"
