"""Parameter counts of the published sizes, computed on the meta device."""

from __future__ import annotations

import pytest
import torch

from nextword.core.types import Vocabulary
from nextword.models import model_class
from nextword.recipe import Recipe, load_recipe, recipe_names

RELEASED = [n for n in recipe_names() if n.startswith(("gpt1/", "gpt2/")) and load_recipe(n).reported.get("parameters")]
TABLE = [n for n in recipe_names() if n.startswith("gpt3/") and load_recipe(n).reported.get("parameters")]


def count_parameters(recipe: Recipe) -> int:
    cls = model_class(recipe.slug)
    size = int(recipe.tokenizer["size"])
    with torch.device("meta"):
        return cls(cls.Config(**recipe.model), Vocabulary(size, 0)).num_parameters()


def test_all_published_sizes_have_a_recipe() -> None:
    assert len(RELEASED) == 5
    assert len(TABLE) == 8


@pytest.mark.parametrize("name", RELEASED)
def test_parameter_count_equals_released_weights(name: str) -> None:
    recipe = load_recipe(name)
    assert count_parameters(recipe) == recipe.reported["parameters"]


@pytest.mark.parametrize("name", TABLE)
def test_parameter_count_is_close_to_the_table_of_the_paper(name: str) -> None:
    recipe = load_recipe(name)
    assert count_parameters(recipe) == pytest.approx(recipe.reported["parameters"], rel=0.03)
