"""Abilities declared by a model class equal the abilities of the loaded model."""

from __future__ import annotations

import copy
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import MissingAbility, Unsupported
from nextword.lm.base import ABILITIES, METHODS, TextModel
from nextword.lm.loading import wrap_network
from nextword.model_card import example_commands
from nextword.models import MODELS, abilities, model_class
from nextword.recipe import load_recipe
from nextword.run_folder import RunFolder
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.model_kinds import is_tagger

SLUGS = [slug for slug in MODELS if not is_tagger(slug)]  # the others have a task head and model no text
TEXT = ["The value of an expression is an object; the types of operands differ.", "If they do, one is converted."] * 30
VARIANTS = [("lstm", {"backward": True}), ("elmo", {"readout": {"kind": "none"}})]


def declared_abilities_and_model(slug: str, changes: dict[str, Any]) -> tuple[frozenset[str], TextModel]:
    """Abilities declared by the class, and an instance."""
    recipe, cls = load_recipe(f"{slug}/tiny"), model_class(slug)
    tokenizer = train_tokenizer({**recipe.tokenizer, **({"size": 300} if "size" in recipe.tokenizer else {})}, TEXT)
    settings = {**recipe.model, **changes}
    network = cls(cls.Config(**settings), vocabulary(tokenizer, spellings=True))
    return abilities(cls, settings), wrap_network(network, tokenizer)


@pytest.mark.parametrize(("slug", "changes"), [*((slug, {}) for slug in SLUGS), *VARIANTS])
def test_declared_abilities_equal_those_of_the_loaded_model(slug: str, changes: dict[str, Any]) -> None:
    declared, lm = declared_abilities_and_model(slug, changes)
    assert declared == lm.can
    for method, ability in METHODS.items():
        has_method = lm.has_method(method)
        if has_method:
            assert callable(getattr(lm, method))
        else:
            with pytest.raises(MissingAbility, match=re.escape(lm.why_not(ability))):
                getattr(lm, method)
        assert hasattr(lm, method) == (method in dir(lm)) == has_method, method
    assert lm.can == {ability for ability, method in ABILITIES.items() if hasattr(lm, method)}
    for same in (copy.copy(lm), copy.deepcopy(lm)):
        assert (same.can, dir(same)) == (lm.can, dir(lm))
    assert set(METHODS) & dict(inspect.getmembers(lm)).keys() == {name for name in METHODS if lm.has_method(name)}
    bare = type(lm).__new__(type(lm))  # as copy and mocks make one
    assert {hasattr(bare, method) for method in METHODS} <= {True, False}  # and no other error
    assert type(lm.network).__name__ in lm._repr_html_()
    assert f"{len(lm.tokenizer):,} tokens" in repr(lm.tokenizer)
    assert lm.tokenizer.kind in lm.tokenizer._repr_html_()


def test_a_missing_ability_is_a_missing_attribute() -> None:
    _, lm = declared_abilities_and_model("gru", {})
    assert not hasattr(lm, "predict")
    assert getattr(lm, "fill", None) is None
    with pytest.raises(AttributeError, match="Fine-tune it first"):
        lm.predict(["a text"])
    with pytest.raises(Unsupported):
        lm.infill("a ___")


@pytest.mark.parametrize(
    ("slug", "changes", "command"),
    [
        ("gru", [], "generate {} --max-tokens 60 --temperature 0.8"),
        ("xlnet", [], "generate {} --max-tokens 60 --temperature 0.8"),
        ("ulmfit", ["model.backward=true"], "embed {} lines.txt --out vectors.npy"),
        ("bert", [], 'next {} "The ___ is"'),
        ("elmo", [], "embed {} lines.txt --words --layer all"),
        ("glove", [], "embed {} --nearest WORD"),
    ],
)
def test_example_commands_start_with_the_expected_command(
    slug: str, changes: list[str], command: str, tmp_path: Path
) -> None:
    recipe = load_recipe(f"{slug}/tiny", changes)
    run = RunFolder.create(tmp_path / "run", recipe, train_tokenizer({"kind": "bytes"}, ()))
    assert example_commands(run)[0] == "nextword " + command.format(tmp_path / "run")
    assert any(" generate " in example for example in example_commands(run)) == command.startswith("generate")
