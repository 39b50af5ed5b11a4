"""Fine-tuning recipes have the settings of their papers."""

from __future__ import annotations

import pytest

from nextword.recipe import load_recipe
from nextword.training.schedules import Progress, Schedule

SIZES = ("tiny", "small")


@pytest.mark.parametrize("name", ["gpt1/finetune", "gpt1/choice"])
def test_gpt1_recipe_equals_paper_settings(name: str) -> None:
    """Section 4.1: batches of 32, rate 6.25e-5, 3 epochs, warmup over 0.2 %, λ = 0.5, dropout 0.1."""
    recipe = load_recipe(name)
    (phase,) = recipe.phases
    assert phase.objective["lm_weight"] == 0.5
    assert (phase.batches["rows"], phase.optimizer["rate"], phase.epochs) == (32, 6.25e-5, 3)
    assert phase.schedule == {"kind": "linear", "warmup": 0.002}
    assert (recipe.model["dropout"], (recipe.task or {})["dropout"]) == (0.1, 0.1)


@pytest.mark.parametrize("name", ["bert/finetune", "bert/span", "bert/choice", "bert/tag"])
def test_bert_recipe_equals_paper_settings(name: str) -> None:
    """Appendix A.3: batches of 16 or 32, rate 5e-5, 3e-5, or 2e-5, 2 to 4 epochs, warmup, dropout 0.1."""
    recipe = load_recipe(name)
    (phase,) = recipe.phases
    assert phase.batches["rows"] in (16, 32)
    assert phase.optimizer["kind"] == "adamw"
    # bert/finetune is for small encoders too: its rate is one of Turc et al. 2019
    assert phase.optimizer["rate"] in ((3e-4, 1e-4) if name == "bert/finetune" else (5e-5, 3e-5, 2e-5))
    assert 2 <= phase.epochs <= 4
    assert recipe.model.get("dropout", 0.1) == (recipe.task or {})["dropout"] == 0.1
    schedule = Schedule(1.0, phase.schedule)
    assert schedule(Progress(5, 0, 0.05, (), 100)) == pytest.approx(0.5)
    assert schedule(Progress(55, 0, 0.55, (), 100)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "name",
    ["ulmfit/lm", "ulmfit/classify", "ulmfit/few", *(f"ulmfit/{s}-{n}" for s in SIZES for n in ("lm", "classify"))],
)
def test_ulmfit_recipe_equals_paper_settings(name: str) -> None:
    """Sections 3.2 and 3.3: discount 2.6 per layer, cut 0.1, ratio 32, and one more layer group in each phase."""
    recipe = load_recipe(name)
    for phase in recipe.phases:
        assert phase.optimizer["layer_discount"] == 2.6
        assert phase.optimizer["betas"] == [0.7, 0.99]
        peak, end = (Schedule(1.0, phase.schedule)(Progress(step, 0, 0.0, (), 100)) for step in (10, 100))
        assert (peak, end) == (1.0, pytest.approx(1 / 32))
    if recipe.task is not None:
        assert [phase.trainable_groups for phase in recipe.phases] == [*range(1, len(recipe.phases)), 0]
        assert (recipe.task["pooling"], recipe.task["classifier"], recipe.task["hidden_sizes"]) == (
            "concat",
            "mlp",
            [50],
        )
    if name in ("ulmfit/classify", "ulmfit/few"):
        assert recipe.task is not None
        assert (recipe.task["chunk"], recipe.task["bptt_window"], recipe.task["dropouts"]) == (70, 1400, [0.4, 0.1])
        assert len(recipe.phases) == 5  # the head, three layers, the embedding
