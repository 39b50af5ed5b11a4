"""`nextword papers`: the canon, with what was reported and what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from nextword.cli.console import Json, console, emit_json
from nextword.core.io import NAME

OWN = "your text"  # what a recipe that names no data is trained on
SHOWN = (
    "test_perplexity",
    "valid_perplexity",
    "bits_per_byte",
    "word_perplexity",
    "token_perplexity",
    "pseudo_token_perplexity",
    "perplexity",
    *("test_f1", "bleu", "rouge1", "accuracy", "analogies", "test_mean", "mean", "valid_nats"),
    "error",
)


def papers(
    slug: Annotated[str, typer.Argument(metavar="[SLUG]", help="One paper in detail.", show_default=False)] = "",
    record: Annotated[
        list[str] | None,
        typer.Option(
            "--record",
            metavar="RUN",
            help="Write a run's result into its recipe's \\[measured]; of a folder of transfers, their means; of "
            "several runs of one task (--record A --record B) also of the average of what they say.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """The models that are here: paper, what each can do, its recipes, reported and measured numbers.

    [dim]Examples[/]
      nextword papers
      nextword papers lstm
      nextword papers --record runs/lstm-wikitext2
      nextword papers --record runs/stars --record runs/back-stars
    """
    from nextword.core.errors import NextwordError, did_you_mean
    from nextword.recipe import short_authors

    if record:
        from nextword.evaluation.record import recorded

        name, measured = recorded(*map(Path, record))
        if json:
            emit_json({"recipe": name, "measured": measured})
        else:
            console.print(f"[green]✓[/] {name}: {_headline(measured)} → {name}.toml, {measured['log']}")
        return
    rows = _canon()
    if slug:
        found = next((row for row in rows if row["slug"] == slug), None)
        if found is None:
            known = [row["slug"] for row in rows]
            raise NextwordError(
                f"No paper has the slug '{slug}'.{did_you_mean(slug, known)} There are {', '.join(known)}."
            )
        if json:
            emit_json(found)
        else:
            _detail(found)
        return
    if json:
        emit_json(rows)
        return
    recipes = [recipe for row in rows for recipe in row["recipes"]]
    wide = max(len(recipe["name"]) for recipe in recipes)
    room = max(len(_in_short(recipe["data"])) for recipe in recipes)
    for row in rows:
        console.print(f"[bold]{row['slug']}[/]  {row['title']} · {short_authors(row['authors'])} {row['year']}")
        console.print(f"[dim]can {', '.join(row['can'])}[/]")
        for recipe in row["recipes"]:
            console.print(
                f"  {recipe['name']:<{wide}} {_in_short(recipe['data']):<{room}} "
                f"reported {_headline(recipe['reported']):<20} measured [bold]{_headline(recipe['measured'])}[/]",
                soft_wrap=True,
            )
        console.print()
    console.print("[dim]Train one: nextword train SLUG/RECIPE · more on one: nextword papers SLUG[/]")


def _in_short(data: str) -> str:
    """What a recipe is trained on; of several sets together, the first."""
    first, *others = data.split(" + ")
    return (f"{first} + {len(others)}" if others else first) or OWN


def _canon() -> list[dict[str, Any]]:
    """One row a slug, from the recipes and from what each class can do."""
    from nextword.models import MODELS, model_class
    from nextword.recipe import load_recipe, names

    rows = []
    for slug in MODELS:
        recipes = [load_recipe(name) for name in names() if name.startswith(slug + "/")]
        cls = model_class(slug)
        can = _can(cls)
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


def _can(cls: Any) -> list[str]:
    """What a model of this class can do; where nothing is written on from left to right, its scores are pseudo."""
    from nextword.models import abilities

    if getattr(cls, "tags_words", False):
        return ["predict"]
    found = abilities(cls, {})
    score = "score" if "generate" in found else "score (pseudo)"
    return [score if name == "score" else name for name in ("score", "next", "generate", "embed") if name in found]


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
    command = "transfer" if row["can"] == ["predict"] else "train"
    console.print(f"\nTrain it:  nextword {command} {next((n for n in at_once if n.endswith('/tiny')), at_once[0])}")
    if len(at_once) < len(row["recipes"]):
        console.print("[dim]· recipes on your text have no data of their own: add --data FILE[/]")
