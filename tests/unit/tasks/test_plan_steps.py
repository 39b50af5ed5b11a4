"""The note that too few examples give too few training steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from nextword.batching.examples import Examples
from nextword.core.types import FramedText, Vocabulary
from nextword.recipe import load_recipe
from nextword.tasks import parse_task
from nextword.tasks.plan import choose_precision, note_few_steps

VOCABULARY = Vocabulary(30, 1)
THREE = ("phase.0.epochs=3",)


def make_examples(n: int) -> Examples:
    return Examples.from_frames([FramedText(np.array([1, 2, 3]), 2)] * n, labels=np.zeros(n, np.int64))


def list_notes(recipe: str, changes: Sequence[str], examples: int) -> list[str]:
    loaded = load_recipe(recipe, changes)
    return note_few_steps(parse_task(loaded.task, recipe), loaded, make_examples(examples), VOCABULARY)


@pytest.mark.parametrize(
    ("recipe", "changes", "examples", "said"),
    [
        ("ulmfit/classify", (), 360, "360 examples give only 48 steps"),  # 6 batches of 64, 8 epochs
        ("ulmfit/classify", (), 64 * 12, "768 examples give only 96 steps"),
        ("ulmfit/classify", (), 64 * 12 + 1, ""),  # 13 · 8 = 104
        ("ulmfit/classify", ("task.train_fraction=0.004",), 25_000, "100 examples give only 16 steps"),
        ("ulmfit/classify", ("phase.*.epochs=0", "phase.*.steps=3"), 360, ""),  # as configured
        ("ulmfit/few", (), 90, ""),  # 6 batches of 16, 40 epochs
        ("bert/finetune", (), 320, ""),  # at least 200 steps
        ("bert/finetune", THREE, 320, "320 examples give only 30 steps"),  # as configured
        ("bert/finetune", (*THREE, "phase.0.accumulate=4"), 320, "320 examples give only 6 steps"),  # 2 full batches
        ("bert/finetune", ("phase.0.epochs=0.1",), 20, "20 examples give only 1 step"),  # at least one
    ],
)
def test_few_steps_are_noted(recipe: str, changes: tuple[str, ...], examples: int, said: str) -> None:
    results = list_notes(recipe, changes, examples)
    assert [result.partition(" in all")[0] for result in results] == ([said] if said else [])


def test_note_advises_smaller_batches_or_more_epochs() -> None:
    (note,) = list_notes("ulmfit/classify", [], 360)
    assert note.endswith("ulmfit/few has smaller batches and more epochs")
    (note,) = list_notes("bert/finetune", THREE, 320)
    change = f"phase.{load_recipe('bert/finetune').phases[0].name}.epochs=10"
    assert f"(--set 'phase.*.batches.rows=16' --set {change})" in note
    assert list_notes("bert/finetune", ["phase.*.batches.rows=16", change], 320) == []
    (note,) = list_notes("bert/finetune", [*THREE, "phase.*.batches.rows=8"], 16)
    assert "phase.*.batches.rows" not in note


def test_sixteen_bits_are_for_wide_networks_on_a_cpu_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    phase, cpu = load_recipe("bert/finetune").phases[0], torch.device("cpu")
    for has_bf16, width, expected in ((True, 384, "bf16"), (True, 64, "fp32"), (False, 384, "fp32")):
        monkeypatch.setattr("nextword.tasks.plan.cpu_has_bf16", lambda has_bf16=has_bf16: has_bf16)
        assert choose_precision(phase, cpu, (), width) == expected
    assert choose_precision(phase, cpu, ("phase.0.precision=bf16",)) == "bf16"  # as configured
    assert choose_precision(phase, torch.device("cuda"), ()) == "bf16"
