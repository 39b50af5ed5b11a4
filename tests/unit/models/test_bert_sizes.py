"""Parameter counts of the published sizes, computed on the meta device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nextword.core.types import Vocabulary
from nextword.models import model_class
from nextword.recipe import Recipe, load_recipe, recipe_names

FAMILY = ("bert/", "roberta/", "albert/", "xlnet/")
RELEASED = [n for n in recipe_names() if n.startswith(FAMILY) and load_recipe(n).reported.get("parameters")]


def count_parameters(recipe: Recipe, **more: Any) -> int:
    cls = model_class(recipe.slug)
    with torch.device("meta"):
        return cls(cls.Config(**{**recipe.model, **more}), Vocabulary(recipe.tokenizer["size"], 0)).num_parameters()


def count_transformers_parameters(recipe: Recipe) -> int:
    """Count the parameters of the same model in transformers."""
    transformers = pytest.importorskip("transformers")
    model = recipe.model
    if recipe.slug == "xlnet":
        shape = {"d_model": "width", "n_layer": "layers", "n_head": "heads", "d_inner": "ffn_width"}
        config = transformers.XLNetConfig(vocab_size=32000, **{key: model[ours] for key, ours in shape.items()})
        with torch.device("meta"):
            return sum(p.numel() for p in transformers.XLNetLMHeadModel(config).parameters())
    sizes = {
        "vocab_size": recipe.tokenizer["size"],
        "hidden_size": model["width"],
        "num_hidden_layers": model["layers"],
        "num_attention_heads": model["heads"],
        "intermediate_size": 4 * model["width"],
    }
    with torch.device("meta"):
        if recipe.slug == "bert":
            network = transformers.BertForPreTraining(transformers.BertConfig(**sizes))
        elif recipe.slug == "roberta":
            config = transformers.RobertaConfig(**sizes, max_position_embeddings=514, type_vocab_size=1)
            network = transformers.RobertaForMaskedLM(config)
        else:
            network = transformers.AlbertForPreTraining(transformers.AlbertConfig(**sizes, embedding_size=128))
        return sum(p.numel() for p in network.parameters())


def test_all_published_sizes_have_a_recipe() -> None:
    assert len(RELEASED) == 10


@pytest.mark.parametrize("name", RELEASED)
def test_parameter_count_equals_released_weights(name: str) -> None:
    recipe = load_recipe(name)
    unused = 2 * recipe.model["width"] if recipe.slug == "roberta" else 0  # positions there start at 2
    assert count_parameters(recipe) == recipe.reported["parameters"] == count_transformers_parameters(recipe) - unused


@pytest.mark.parametrize(
    ("share", "narrow", "wide"),
    [("all", 12, 31), ("attention", 64, 83), ("feed-forward", 38, 57), ("none", 89, 108)],
)
def test_parameter_count_of_shared_layers_equals_table_4_of_albert(share: str, narrow: int, wide: int) -> None:
    recipe = load_recipe("albert/base")
    assert count_parameters(recipe, sharing=share) / 1e6 == pytest.approx(narrow, abs=1.0)
    assert count_parameters(recipe, sharing=share, embedding=768) / 1e6 == pytest.approx(
        wide, abs=2.5
    )  # the paper does not count heads
