"""`nextword papers`: the canon, with what was reported and what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from nextword.cli.console import console, emit_json
from nextword.cli.options import Json
from nextword.infinity import NAME, finite

SHOWN = (
    "test_perplexity",
    "valid_perplexity",
    "bits_per_byte",
    "word_perplexity",
    "token_perplexity",
    "pseudo_token_perplexity",
    "accuracy",
    "error",
)


def papers(
    slug: Annotated[str, typer.Argument(metavar="[SLUG]", help="One paper in detail.", show_default=False)] = "",
    record: Annotated[
        str, typer.Option("--record", metavar="RUN", help="Write a run's result into its recipe's \\[measured].")
    ] = "",
    json: Json = False,
) -> None:
    """The models that are here: paper, what each can do, its recipes, reported and measured numbers.

    [dim]Examples[/]
      nextword papers
      nextword papers lstm
      nextword papers --record runs/lstm-wikitext2
    """
    from nextword.contract import NextwordError
    from nextword.recipe import short_authors, suggestion

    if record:
        _record(record, json)
        return
    rows = _canon()
    if slug:
        found = next((row for row in rows if row["slug"] == slug), None)
        if found is None:
            known = [row["slug"] for row in rows]
            raise NextwordError(
                f"No paper has the slug '{slug}'.{suggestion(slug, known)} There are {', '.join(known)}."
            )
        if json:
            emit_json(found)
        else:
            _detail(found)
        return
    if json:
        emit_json(rows)
        return
    wide = max(len(recipe["name"]) for row in rows for recipe in row["recipes"])
    for row in rows:
        console.print(f"[bold]{row['slug']}[/]  {row['title']} · {short_authors(row['authors'])} {row['year']}")
        console.print(f"[dim]can {', '.join(row['can'])}[/]")
        for recipe in row["recipes"]:
            data = recipe["data"] or "your text"
            console.print(
                f"  {recipe['name']:<{wide}} {data:<12} reported {_headline(recipe['reported']):<20} "
                f"measured [bold]{_headline(recipe['measured'])}[/]",
                soft_wrap=True,
            )
        console.print()
    console.print("[dim]Train one: nextword train SLUG/RECIPE · more on one: nextword papers SLUG[/]")


def _canon() -> list[dict[str, Any]]:
    """One row a slug, from the recipes and from what each class can do."""
    from nextword.contract import Autoregressive, Encoder, Infilling
    from nextword.models import MODELS, model_class
    from nextword.recipe import load_recipe, names

    rows = []
    for slug in MODELS:
        recipes = [load_recipe(name) for name in names() if name.startswith(slug + "/")]
        cls = model_class(slug)
        can = []
        if all(hasattr(cls, name) for name in ("start", "step", "score")) or _has(cls, Autoregressive):
            can += ["score", "next", "generate"]
        elif _has(cls, Infilling):
            can += ["score (pseudo)", "next"]
        if _has(cls, Encoder):
            can.append("embed")
        first = next((r for r in recipes if r.name.endswith("/tiny")), recipes[0])
        rows.append(
            {
                "slug": slug,
                "title": first.paper["title"],
                "authors": first.paper["authors"],
                "year": first.paper["year"],
                "can": can,
                "recipes": [
                    {
                        "name": r.name,
                        "paper": f"{r.paper['title']} ({r.paper['authors']}, {r.paper['year']})",
                        "data": r.phases[0].data,
                        "model": dict(r.model),
                        "sources": dict(r.paper.get("sources", {})),
                        "reported": dict(r.reported),
                        "measured": dict(r.measured),
                    }
                    for r in recipes
                ],
            }
        )
    return rows


def _has(cls: Any, protocol: Any) -> bool:
    methods = [name for name in vars(protocol) if not name.startswith("_") and callable(getattr(protocol, name, None))]
    return all(callable(getattr(cls, name, None)) for name in methods)


def _headline(numbers: Mapping[str, Any]) -> str:
    for key in SHOWN:
        if isinstance(numbers.get(key), (int, float)):
            return f"{key.replace('_', ' ').replace('perplexity', 'ppl')} {_short(numbers[key])}"
    return "–"


def _short(value: Any) -> str:
    return NAME if value == math.inf else f"{value:,.4g}"


def _detail(row: Mapping[str, Any]) -> None:
    from rich.markup import escape

    console.print(f"[bold]{row['slug']}[/] · {row['title']} · {row['authors']} ({row['year']})")
    console.print(f"can {', '.join(row['can'])}")
    for recipe in row["recipes"]:
        console.print(f"\n[bold]{recipe['name']}[/] on {recipe['data'] or 'your text'}  [dim]{recipe['paper']}[/]")
        console.print(f"  model     {', '.join(f'{k} {v}' for k, v in recipe['model'].items())}")
        for title in ("sources", "reported", "measured"):
            for key, value in recipe[title].items():
                console.print(
                    f"  {title:<9} {key}: {NAME if value == math.inf else escape(str(value))}", soft_wrap=True
                )
    at_once = [recipe["name"] for recipe in row["recipes"] if recipe["data"]]
    console.print(f"\nTrain it:  nextword train {next((n for n in at_once if n.endswith('/tiny')), at_once[0])}")
    if len(at_once) < len(row["recipes"]):
        console.print("[dim]· recipes on your text have no data of their own: add --data FILE[/]")


def _record(run: str, json: bool) -> None:
    """What was measured, on what, with which code, and the validations that led there."""
    from nextword import __version__
    from nextword.card import last_evaluation
    from nextword.checkpoint import RunFolder
    from nextword.contract import PSEUDO, NextwordError
    from nextword.recipe import RECIPES, record

    folder = RunFolder.open(run)
    result = last_evaluation(folder)
    if result is None:
        raise NextwordError(f"{run} has not been evaluated: run `nextword evaluate {run}` first.")
    name = folder.manifest["recipe"]
    path = RECIPES / f"{name}.toml"
    if not path.is_file():
        raise NextwordError(f"{run} was trained from {name}, which is none of the recipes that come along.")
    log = folder.read_log()
    spent: dict[int, float] = {}  # phase by phase, also of one that was cut short
    for line in log:
        if line.get("event") in ("evaluation", "adapted"):  # its seconds are not training
            continue
        spent[line.get("index", 0)] = max(spent.get(line.get("index", 0), 0.0), line.get("seconds", 0.0))
    begins = [line for line in log if line.get("event") == "begin"]
    label = "pseudo_" if result.get("kind") == PSEUDO else ""
    measured = {
        "data": f"{result['data']} {result['split']}",
        "parameters": result["parameters"],
        label + _named(result): round(result["token_perplexity"], 3),
        f"{label}word_perplexity": result["word_perplexity"] and round(result["word_perplexity"], 3),
        f"{label}bits_per_byte": result["bits_per_byte"] and round(result["bits_per_byte"], 4),
        **_adapted(log, result),
        "impossible": result.get("impossible") or None,  # tokens with probability zero
        "seconds": round(sum(spent.values()), 1),
        "device": begins[-1].get("device", "cpu") if begins else "cpu",
        "nextword": __version__,
        "commit": folder.manifest.get("commit", "unknown"),  # of the code that trained it
        "command": f"nextword train {name}",
        "log": f"{path.stem}.log.jsonl",
    }
    measured = {key: value for key, value in measured.items() if value is not None}
    record(path, measured)
    kept = [line for line in log if line.get("event") in ("begin", "valid", "end", "evaluation", "adapted")]
    path.with_name(measured["log"]).write_text("".join(map(_line, kept)))
    if json:
        emit_json({"recipe": name, "measured": measured})
    else:
        console.print(f"[green]✓[/] {name}: {_headline(measured)} → {path.name}, {measured['log']}")


def _adapted(log: Sequence[Mapping[str, Any]], plain: Mapping[str, Any]) -> dict[str, float]:
    """The last result of each method that adapts to the text it reads, on the same text as the plain one."""
    same = [
        line
        for line in log
        if line.get("event") == "adapted" and all(line[key] == plain[key] for key in ("data", "split"))
    ]
    return {f"with_{line['method'].replace(' + ', '_')}": round(line["token_perplexity"], 3) for line in same}


def _line(event: Mapping[str, Any]) -> str:
    import json as library

    return library.dumps(finite(event), ensure_ascii=False, allow_nan=False) + "\n"


def _named(result: Mapping[str, Any]) -> str:
    """A perplexity per token is the literature's number only where tokens are the corpus's own words."""
    return "token_perplexity" if result["bits_per_byte"] is not None else f"{result['split']}_perplexity"
