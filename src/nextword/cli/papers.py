"""`nextword papers`: the models that come with nextword, with reported and measured results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Json, Search, console, emit_json, print_line, search_rows
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
            help="Write the result of a run, the mean of a folder of runs, or the ensemble of several runs into the "
            "recipe's \\[measured] table. Repeatable.",
        ),
    ] = None,
    search: Search = "",
    json: Json = False,
) -> None:
    """List the models: paper, abilities, recipes, reported and measured results.

    [dim]Examples[/]
      nextword papers
      nextword papers lstm
      nextword papers --search "translation attention"
      nextword papers --record runs/lstm-wikitext2
      nextword papers --record runs/stars --record runs/back-stars
    """
    from nextword.core.errors import unknown

    if record:
        from nextword.evaluation.record import record_result

        name, measured = record_result(*map(Path, record))
        if json:
            emit_json({"recipe": name, "measured": measured})
        else:
            print_line(f"[green]✓[/] {name}: {_headline(measured)} → {name}.toml, {measured['log']}")
        return
    rows = _list_models()
    if not slug:
        if search:
            rows = search_rows("model", search, {row["slug"]: (_searchable(row), row) for row in rows})
        emit_json(rows) if json else _print_models(rows)
        return
    row = next((row for row in rows if row["slug"] == slug), None)
    if row is None:
        raise unknown("model", slug, [row["slug"] for row in rows])
    emit_json(row) if json else _print_model(row)


def _list_models() -> list[dict[str, Any]]:
    """One row per model, with the details of its recipes."""
    import nextword
    from nextword.recipe import load_recipe

    rows = []
    for paper in nextword.papers():
        recipes = [
            {
                "name": recipe.name,
                "paper": f"{recipe.paper['title']} ({recipe.paper['authors']}, {recipe.paper['year']})",
                "data": recipe.phases[0].data,
                "model": dict(recipe.model),
                "sources": dict(recipe.paper.get("sources", {})),
                "reported": dict(recipe.reported),
                "measured": dict(recipe.measured),
            }
            for recipe in map(load_recipe, paper.recipes)
        ]
        rows.append({**asdict(paper), "can": list(paper.can), "recipes": recipes})
    return rows


def _searchable(row: Mapping[str, Any]) -> str:
    facts = [row["title"], row["authors"], str(row["year"]), *row["can"]]
    return " ".join([*facts, *(f"{recipe['name']} {recipe['data']}" for recipe in row["recipes"])])


def _describe_abilities(can: Sequence[str]) -> str:
    """A model that does not generate from left to right has pseudo-likelihoods."""
    is_pseudo = "score" in can and "generate" not in can
    return ", ".join("score (pseudo)" if name == "score" and is_pseudo else name for name in can)


def _print_models(rows: list[dict[str, Any]]) -> None:
    from nextword.recipe import short_authors

    recipes = [recipe for row in rows for recipe in row["recipes"]]
    name_width = max(len(recipe["name"]) for recipe in recipes)
    data_width = max(len(_short_data(recipe["data"])) for recipe in recipes)
    for row in rows:
        console.print(f"[bold]{row['slug']}[/]  {row['title']} · {short_authors(row['authors'])} {row['year']}")
        console.print(f"[dim]can {_describe_abilities(row['can'])}[/]")
        for recipe in row["recipes"]:
            print_line(
                f"  {recipe['name']:<{name_width}} {_short_data(recipe['data']):<{data_width}} "
                f"reported {_headline(recipe['reported']):<20} measured [bold]{_headline(recipe['measured'])}[/]"
            )
        console.print()
    console.print("[dim]Train one: nextword train SLUG/RECIPE · show one: nextword papers SLUG[/]")
    console.print("[dim]Show fewer: nextword papers --search WORDS[/]")


def _print_model(row: Mapping[str, Any]) -> None:
    console.print(f"[bold]{row['slug']}[/] · {row['title']} · {row['authors']} ({row['year']})")
    console.print(f"can {_describe_abilities(row['can'])}")
    for recipe in row["recipes"]:
        console.print(f"\n[bold]{recipe['name']}[/] on {recipe['data'] or YOUR_TEXT}  [dim]{recipe['paper']}[/]")
        console.print(f"  model     {', '.join(f'{k} {v}' for k, v in recipe['model'].items())}")
        for table in ("sources", "reported", "measured"):
            for key, value in recipe[table].items():
                text = INFINITY if value == math.inf else escape(str(value))
                print_line(f"  {table:<9} {key}: {text}")
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
