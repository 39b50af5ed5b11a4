"""Parameter counts of the published sizes of T5, computed on the meta device."""

from __future__ import annotations

import pytest
import torch

from nextword.core.types import Vocabulary
from nextword.models import model_class
from nextword.recipe import load_recipe, recipe_names

RELEASED = [n for n in recipe_names() if n.startswith("t5/") and load_recipe(n).reported.get("parameters")]


def test_all_published_sizes_have_a_recipe() -> None:
    assert len(RELEASED) == 10


@pytest.mark.parametrize("name", RELEASED)
def test_parameter_count_equals_released_weights(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    recipe = load_recipe(name)
    model, cls = recipe.model, model_class(recipe.slug)
    with torch.device("meta"):
        ours = cls(cls.Config(**model), Vocabulary(recipe.tokenizer["size"], 0)).num_parameters()
        config = transformers.T5Config(
            vocab_size=32128,
            d_model=model["width"],
            d_kv=model["head_width"],
            d_ff=model["ffn_width"],
            num_layers=model["layers"],
            num_heads=model["heads"],
            feed_forward_proj="gated-gelu" if model.get("gated") else "relu",
        )
        network = transformers.T5ForConditionalGeneration(config)
        theirs = sum(p.numel() for p in network.parameters())
    own = 0 if model.get("tied", True) else 32128 * model["width"]  # transformers ties them until weights are loaded
    assert ours == recipe.reported["parameters"] == theirs + own
