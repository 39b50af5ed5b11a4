"""What a class says that its runs can do, and what a model of it can do once it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nextword.lm.loading import wrap_network
from nextword.model_card import example_commands
from nextword.models import MODELS, abilities, model_class
from nextword.recipe import load_recipe
from nextword.run_folder import RunFolder
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.model_kinds import tags

SLUGS = [slug for slug in MODELS if not tags(slug)]  # the others carry a task's head, which is no matter of plain text
TEXT = ["The value of an expression is an object; the types of operands differ.", "If they do, one is converted."] * 30
TURNED = [("lstm", {"backward": True}), ("elmo", {"readout": {"kind": "none"}})]


def model_of(slug: str, more: dict[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """What is said before, and what is so."""
    recipe, cls = load_recipe(f"{slug}/tiny"), model_class(slug)
    tokenizer = train_tokenizer({**recipe.tokenizer, **({"size": 300} if "size" in recipe.tokenizer else {})}, TEXT)
    settings = {**recipe.model, **more}
    network = cls(cls.Config(**settings), vocabulary(tokenizer, spellings=True))
    return abilities(cls, settings), wrap_network(network, tokenizer).can


@pytest.mark.parametrize(("slug", "more"), [*((slug, {}) for slug in SLUGS), *TURNED])
def test_what_is_said_is_so(slug: str, more: dict[str, Any]) -> None:
    said, true = model_of(slug, more)
    assert said == true


@pytest.mark.parametrize(
    ("slug", "more", "first"),
    [
        ("gru", [], "generate {} --max-tokens 60 --temperature 0.8"),
        ("xlnet", [], "generate {} --max-tokens 60 --temperature 0.8"),
        ("ulmfit", ["model.backward=true"], "embed {} lines.txt --out vectors.npy"),
        ("bert", [], 'next {} "The ___ is"'),
        ("elmo", [], "embed {} lines.txt --words --layer all"),
        ("glove", [], "embed {} --nearest WORD"),
    ],
)
def test_what_to_try_first(slug: str, more: list[str], first: str, tmp_path: Path) -> None:
    recipe = load_recipe(f"{slug}/tiny", more)
    run = RunFolder.create(tmp_path / "run", recipe, train_tokenizer({"kind": "bytes"}, ()))
    assert example_commands(run)[0] == "nextword " + first.format(tmp_path / "run")
    assert any(" generate " in use for use in example_commands(run)) == first.startswith("generate")
