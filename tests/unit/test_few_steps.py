"""A note where examples are so few that training is over before it has begun."""

from __future__ import annotations

import pytest

from nextword.recipe import load_recipe
from nextword.transfer.share import few_steps


@pytest.mark.parametrize(
    ("recipe", "changes", "examples", "said"),
    [
        ("ulmfit/classify", (), 360, "360 examples are 48 steps in all"),  # 6 batches of 64, 8 epochs
        ("ulmfit/classify", (), 64 * 12, "768 examples are 96 steps in all"),
        ("ulmfit/classify", (), 64 * 12 + 1, ""),  # 13 · 8 = 104
        ("ulmfit/classify", ("task.share=0.004",), 25_000, "100 examples are 16 steps in all"),
        ("ulmfit/classify", ("phase.*.epochs=0", "phase.*.steps=3"), 360, ""),  # as asked for
        ("ulmfit/few", (), 90, ""),  # 6 batches of 16, 40 epochs
        ("bert/finetune", (), 320, "320 examples are 30 steps in all"),
    ],
)
def test_few_steps_are_told(recipe: str, changes: tuple[str, ...], examples: int, said: str) -> None:
    found = few_steps(load_recipe(recipe, changes), [0] * examples)
    assert [one.partition(",")[0] for one in found] == ([said] if said else [])


def test_what_helps() -> None:
    (note,) = few_steps(load_recipe("ulmfit/classify"), [0] * 360)
    assert note.endswith("ulmfit/few has smaller batches and more epochs")
    recipe = load_recipe("bert/finetune")
    (note,) = few_steps(recipe, [0] * 320)
    change = f"phase.{recipe.phases[0].name}.epochs=10"
    assert f"(--set 'phase.*.batches.rows=16' --set {change})" in note
    assert few_steps(load_recipe("bert/finetune", ["phase.*.batches.rows=16", change]), [0] * 320) == []
    assert (
        "phase.*.batches.rows" not in few_steps(load_recipe("bert/finetune", ["phase.*.batches.rows=8"]), [0] * 16)[0]
    )
