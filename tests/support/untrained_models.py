"""A small model with random weights for every slug, from the sizes of its tiny recipe."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from nextword.batching.token_stream import Stream
from nextword.core.protocols import Counting
from nextword.lm.base import TextModel
from nextword.lm.loading import wrap_network
from nextword.models import MODELS, model_class
from nextword.recipe import load_recipe
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.model_kinds import is_conditional, is_language_model

TEXT = ["the cat sat on the mat and the dog lay by the door .", "a king of old went to see his house, and slept."] * 30
SCORING = [slug for slug in MODELS if is_language_model(slug) or is_conditional(slug)]


@cache
def make_model(slug: str, **changes: Any) -> TextModel:
    """A model of the recipe `slug`/tiny; n-grams are counted, and weights scaled up so that predictions differ."""
    recipe, cls = load_recipe(f"{slug}/tiny"), model_class(slug)
    size = {"size": 300} if "size" in recipe.tokenizer else {}
    tokenizer = train_tokenizer({**recipe.tokenizer, **size}, TEXT)
    torch.manual_seed(0)
    network: Any = cls(cls.Config(**{**recipe.model, **changes}), vocabulary(tokenizer, spellings=True)).eval()
    if isinstance(network, Counting):
        ids = np.concatenate([tokenizer.encode(text).ids for text in TEXT])
        for _ in network.count(Stream.from_ids(ids), Stream.from_ids(ids[:60]), {}):
            pass
    else:
        with torch.no_grad():
            for weight in network.parameters():
                if weight.dim() > 1:
                    weight.mul_(3)
    return wrap_network(network, tokenizer, slug)
