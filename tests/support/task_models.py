"""Untrained models of a task."""

from __future__ import annotations

from typing import Any

from nextword.recipe import Recipe
from nextword.tasks import parse_task
from nextword.tokenizers.base import Tokenizer


def build_model(recipe: Recipe, tokenizer: Tokenizer) -> Any:
    """The network of a resolved recipe with its task head."""
    return parse_task(recipe.task, recipe.name).build_model(recipe, tokenizer)
