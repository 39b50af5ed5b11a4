"""Parameter counts of the published sizes of GLM, where the paper gives them."""

from __future__ import annotations

import pytest
import torch

from nextword.core.types import Vocabulary
from nextword.models import model_class
from nextword.recipe import load_recipe, recipe_names

PUBLISHED = [n for n in recipe_names() if n.startswith("glm/") and load_recipe(n).reported.get("parameters")]


def test_all_published_sizes_have_a_recipe() -> None:
    assert {n.removeprefix("glm/") for n in PUBLISHED} == {"base", "large", "410m", "515m", "2b", "10b", "10b-chinese"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_equals_published_count(name: str) -> None:
    recipe = load_recipe(name)
    model, cls = recipe.model, model_class(recipe.slug)
    with torch.device("meta"):
        ours = cls(cls.Config(**model), Vocabulary(recipe.tokenizer["size"], 0)).num_parameters()
    width, layers, size = model["width"], model["layers"], recipe.tokenizer["size"]
    block = 12 * width**2 + 13 * width  # attention (4 d²) and feed-forward (8 d²), plus biases and norms
    assert ours == layers * block + 2 * width + (size + 3) * width + 2 * (model["window"] + 1) * width
    rounded = 0.05 if ours > 1e9 else 0.01  # published as 2B and 10B
    assert ours == pytest.approx(recipe.reported["parameters"], rel=rounded)
