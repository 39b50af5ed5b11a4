"""The published sizes have the published numbers of parameters, counted without making the weights."""

from __future__ import annotations

import pytest
import torch

from nextword.core.types import Vocabulary
from nextword.models import model_class
from nextword.recipe import Recipe, load_recipe, recipe_names

RELEASED = [n for n in recipe_names() if n.startswith(("gpt1/", "gpt2/")) and load_recipe(n).reported.get("parameters")]
TABLE = [n for n in recipe_names() if n.startswith("gpt3/") and load_recipe(n).reported.get("parameters")]


def counted(recipe: Recipe) -> int:
    cls = model_class(recipe.slug)
    size = int(recipe.tokenizer["size"])
    with torch.device("meta"):
        return cls(cls.Config(**recipe.model), Vocabulary(size, 0)).num_parameters()


def test_all_are_here() -> None:
    assert len(RELEASED) == 5
    assert len(TABLE) == 8


@pytest.mark.parametrize("name", RELEASED)
def test_as_many_as_in_the_released_weights(name: str) -> None:
    recipe = load_recipe(name)
    assert counted(recipe) == recipe.reported["parameters"]


@pytest.mark.parametrize("name", TABLE)
def test_about_as_many_as_in_the_papers_table(name: str) -> None:
    recipe = load_recipe(name)
    assert counted(recipe) == pytest.approx(recipe.reported["parameters"], rel=0.03)
