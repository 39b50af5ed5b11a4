"""`nextword runs`: what is trained here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Json, console, emit_json


def runs(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="One run in detail.", show_default=False)] = "",
    where: Annotated[Path, typer.Option("--in", help="Where to look for run folders.")] = Path("runs"),
    json: Json = False,
) -> None:
    """What is trained here: model, data, numbers, size, and how to use each.

    [dim]Examples[/]
      nextword runs
      nextword runs runs/lstm-tiny
    """
    from nextword.cli.evaluate import table
    from nextword.core.io import number
    from nextword.html.charts import count, size

    if run:
        facts = _facts(Path(run))
        if json:
            emit_json(facts)
        else:
            card = Path(run) / "card.md"
            from rich.markdown import Markdown

            console.print(
                Markdown(card.read_text() if card.is_file() else f"# {run}\n\nNot finished: {facts['status']}")
            )
        return
    found = [_facts_or_trouble(path.parent) for path in sorted(where.glob("**/manifest.json"))]
    if json:
        emit_json(found)
        return
    if not found:
        console.print(
            f"No runs under {where}. Train one: [bold]nextword train lstm/tiny[/], or [bold]nextword compare[/]."
        )
        return
    rows = [
        [
            escape(f["run"]),
            f["slug"] or "–",
            escape(f["data"] or "–"),
            number(f["bits_per_byte"], 3),
            number(f["word_perplexity"], 1),
            count(f["parameters"]) if f["parameters"] else "–",
            size(f["size"]),
            escape(f["status"]) + "".join(f" · {name} {100 * v:.1f}" for name, v in f.get("task", {}).items()),
        ]
        for f in found
    ]
    table(("run", "model", "data", "bits/byte", "word ppl", "params", "size", "status"), rows)
    console.print("[dim]Use one: nextword generate RUN · next RUN TEXT · evaluate RUN · predict RUN · runs RUN[/]")


def _facts_or_trouble(path: Path) -> dict[str, Any]:
    """One folder that cannot be read is no reason not to list the others."""
    from nextword.core.errors import NextwordError

    try:
        return _facts(path)
    except NextwordError as problem:
        unknown = ("slug", "recipe", "data", "split", "bits_per_byte", "word_perplexity", "token_perplexity")
        trouble = {"size": 0, "parameters": None, "status": f"unreadable: {problem}"}
        return {"run": str(path), **dict.fromkeys(unknown), **trouble}


def _facts(path: Path) -> dict[str, Any]:
    from nextword.model_card import last_evaluation
    from nextword.run_folder import RunFolder

    run = RunFolder.open(path)
    manifest, result = run.manifest, last_evaluation(run) or {}
    task = manifest.get("result", {})  # of a run that was transferred
    files = set(manifest.get("files", {})) - {"recipe.toml", "tokenizer.json"}
    return {
        "run": str(path),
        "slug": manifest.get("slug"),
        "recipe": manifest.get("recipe"),
        "data": result.get("data") or task.get("data"),
        "split": result.get("split"),
        **({"task": task["dev"]} if task else {}),
        "bits_per_byte": result.get("bits_per_byte"),
        "word_perplexity": result.get("word_perplexity"),
        "token_perplexity": result.get("token_perplexity"),
        "parameters": manifest.get("parameters"),
        "size": sum((path / name).stat().st_size for name in files if (path / name).is_file()),
        "status": "finished" if manifest.get("finished") else "unfinished",
    }
