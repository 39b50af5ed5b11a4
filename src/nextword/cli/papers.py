"""`nextword papers`: the models that come with nextword, with reported and measured results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Json, console, emit_json
from nextword.core.io import INFINITY

YOUR_TEXT = "your text"  # the data of a recipe that names none
HEADLINES = (  # the first of these that a table has is its headline
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
    slug: Annotated[str, typer.Argument(metavar="[SLUG]", help="Show one model in detail.", show_default=False)] = "",
    record: Annotated[
        list[str] | None,
        typer.Option(
            "--record",
            metavar="RUN",
            help="Write a run's result into its recipe's \\[measured] table. A folder of transfers: their means. "
            "Several runs of one task: also the score of their averaged predictions.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the models: paper, abilities, recipes, reported and measured results.

    [dim]Examples[/]
      nextword papers
      nextword papers lstm
      nextword papers --record runs/lstm-wikitext2
      nextword papers --record runs/stars --record runs/back-stars
    """
    from nextword.core.errors import UnknownName, did_you_mean

    if record:
        from nextword.evaluation.record import record_result

        name, measured = record_result(*map(Path, record))
        if json:
            emit_json({"recipe": name, "measured": measured})
        else:
            console.print(f"[green]✓[/] {name}: {_headline(measured)} → {name}.toml, {measured['log']}")
        return
    rows = _list_models()
    if not slug:
        emit_json(rows) if json else _print_models(rows)
        return
    row = next((row for row in rows if row["slug"] == slug), None)
    if row is None:
        known = [row["slug"] for row in rows]
        raise UnknownName(
            f"There is no model '{slug}'.{did_you_mean(slug, known)} Models: {', '.join(known)}.",
            name=slug,
            known=known,
        )
    emit_json(row) if json else _print_model(row)


def _list_models() -> list[dict[str, Any]]:
    """One row per model, from its recipes and its class."""
    from nextword.models import MODELS
    from nextword.recipe import load_recipe, recipe_names

    rows = []
    for slug in MODELS:
        recipes = [load_recipe(name) for name in recipe_names() if name.startswith(slug + "/")]
        first = next((recipe for recipe in recipes if recipe.name.endswith("/tiny")), recipes[0])
        rows.append(
            {
                "slug": slug,
                "title": first.paper["title"],
                "authors": first.paper["authors"],
                "year": first.paper["year"],
                "can": _abilities(slug),
                "recipes": [
                    {
                        "name": recipe.name,
                        "paper": f"{recipe.paper['title']} ({recipe.paper['authors']}, {recipe.paper['year']})",
                        "data": recipe.phases[0].data,
                        "model": dict(recipe.model),
                        "sources": dict(recipe.paper.get("sources", {})),
                        "reported": dict(recipe.reported),
                        "measured": dict(recipe.measured),
                    }
                    for recipe in recipes
                ],
            }
        )
    return rows


def _abilities(slug: str) -> list[str]:
    """What runs of this model can do; a model that does not generate from left to right has pseudo-likelihoods."""
    from nextword.models import abilities, model_class

    cls = model_class(slug)
    if cls.is_tagger:
        return ["predict"]
    can = abilities(cls, {})
    score = "score" if "generate" in can else "score (pseudo)"
    return [score if name == "score" else name for name in ("score", "next", "generate", "embed") if name in can]


def _print_models(rows: list[dict[str, Any]]) -> None:
    from nextword.recipe import short_authors

    recipes = [recipe for row in rows for recipe in row["recipes"]]
    name_width = max(len(recipe["name"]) for recipe in recipes)
    data_width = max(len(_short_data(recipe["data"])) for recipe in recipes)
    for row in rows:
        console.print(f"[bold]{row['slug']}[/]  {row['title']} · {short_authors(row['authors'])} {row['year']}")
        console.print(f"[dim]can {', '.join(row['can'])}[/]")
        for recipe in row["recipes"]:
            console.print(
                f"  {recipe['name']:<{name_width}} {_short_data(recipe['data']):<{data_width}} "
                f"reported {_headline(recipe['reported']):<20} measured [bold]{_headline(recipe['measured'])}[/]",
                soft_wrap=True,
            )
        console.print()
    console.print("[dim]Train one: nextword train SLUG/RECIPE · show one: nextword papers SLUG[/]")


def _print_model(row: Mapping[str, Any]) -> None:
    console.print(f"[bold]{row['slug']}[/] · {row['title']} · {row['authors']} ({row['year']})")
    console.print(f"can {', '.join(row['can'])}")
    for recipe in row["recipes"]:
        console.print(f"\n[bold]{recipe['name']}[/] on {recipe['data'] or YOUR_TEXT}  [dim]{recipe['paper']}[/]")
        console.print(f"  model     {', '.join(f'{k} {v}' for k, v in recipe['model'].items())}")
        for table in ("sources", "reported", "measured"):
            for key, value in recipe[table].items():
                text = INFINITY if value == math.inf else escape(str(value))
                console.print(f"  {table:<9} {key}: {text}", soft_wrap=True)
    with_data = [recipe["name"] for recipe in row["recipes"] if recipe["data"]]
    command = "transfer" if row["can"] == ["predict"] else "train"
    example = next((name for name in with_data if name.endswith("/tiny")), with_data[0])
    console.print(f"\nTrain it:  nextword {command} {example}")
    if len(with_data) < len(row["recipes"]):
        console.print(f"[dim]· recipes on {YOUR_TEXT} need --data FILE[/]")


def _short_data(data: str) -> str:
    """The data of a recipe; of a mixture, the first and how many more."""
    first, *others = data.split(" + ")
    return (f"{first} + {len(others)}" if others else first) or YOUR_TEXT


def _headline(results: Mapping[str, Any]) -> str:
    for key in HEADLINES:
        value = results.get(key)
        if isinstance(value, (int, float)):
            label = key.replace("_", " ").replace("perplexity", "ppl")
            return f"{label} {INFINITY if value == math.inf else f'{value:,.4g}'}"
    return "–"
