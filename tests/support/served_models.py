"""Small models of every kind that generates, with random weights in double precision.

Double precision, because a batch of another size may round sums differently. In float32 such a difference in the last
bits can, once in many thousand tokens, change which token is chosen.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

import nextword
from nextword.lm.generation_mixin import GenerationMixin
from nextword.lm.loading import wrap_network
from nextword.models import MODELS, model_class
from nextword.recipe import load_recipe
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.model_kinds import is_tagger
from tests.support.ngram_runs import make_ngram_run

TEXT = "The value of an expression is an object; the types of operands differ. If they do, öne is converted.\n"
SMALL = {"window": 24, "memory": 8, "dropout": 0.0, "width": 16, "heads": 2, "layers": 2, "embedding": 16}


@cache
def make_served_model(slug: str) -> GenerationMixin:
    """The model of a tiny recipe, smaller still and untrained; n-grams are counted."""
    if slug == "ngram":
        lm = nextword.load(make_ngram_run(Path(mkdtemp()) / "run"), device="cpu")
        assert isinstance(lm, GenerationMixin)
        return lm
    recipe, cls = load_recipe(f"{slug}/tiny"), model_class(slug)
    tokenizer = train_tokenizer(
        {**recipe.tokenizer, **({"size": 300} if "size" in recipe.tokenizer else {})}, [TEXT] * 9
    )
    sizes = {name: SMALL.get(name, value) for name, value in recipe.model.items()}
    torch.manual_seed(5)
    network = cls(cls.Config(**sizes), vocabulary(tokenizer, spellings=True)).eval()
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.3)
    made = wrap_network(network.double(), tokenizer)
    assert isinstance(made, GenerationMixin)
    return made


def list_generating_slugs() -> list[str]:
    """The slugs whose models generate, judged by their class."""
    return [slug for slug in MODELS if not is_tagger(slug) and hasattr(model_class(slug), "start")]
