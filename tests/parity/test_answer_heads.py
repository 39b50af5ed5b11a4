"""Span and choice heads compared with transformers: equal weights, frames and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.conversion import convert
from nextword.objectives import make_objective
from nextword.tasks.plan import Plan, make_plan
from tests.support.task_models import build_model
from tests.support.tiny_questions import draw_endings, make_squad, write_json, write_json_lines
from tests.support.tiny_transfer import make_run


def both(slug: str, recipe: str, data: Path, folder: Path, kind: str) -> tuple[Plan, Any, Any]:
    """The plan, our network with its head, and theirs with the weights of both."""
    transformers = pytest.importorskip("transformers", reason="TRANSFORMERS ABSENT: heads meet no outside reference")
    make_run(folder / "run", slug)
    plan = make_plan(recipe, folder / "run", str(data), device="cpu", changes=["phase.0.batches.pack=false"])
    network: Any = build_model(plan.recipe, plan.tokenizer).eval()
    network.encoder = type(network.encoder).load(folder / "run", network.encoder.config, network.encoder.vocabulary)
    torch.nn.init.normal_(network.out.weight)
    torch.nn.init.normal_(network.out.bias)
    convert(folder / "run", folder / "hf", to="huggingface")
    theirs = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(folder / "hf").eval()
    own = theirs.qa_outputs if kind == "QuestionAnswering" else theirs.classifier
    with torch.no_grad():
        own.weight.copy_(network.out.weight)
        own.bias.copy_(network.out.bias)
    return plan, network, theirs


def inputs_of(batch: Any, theirs: Any) -> dict[str, torch.Tensor]:
    ids = batch.inputs.ids.masked_fill(~batch.inputs.token_mask, theirs.config.pad_token_id)
    more = {} if batch.inputs.segments is None else {"token_type_ids": batch.inputs.segments}
    return {"input_ids": ids, "attention_mask": batch.inputs.token_mask.long(), **more}


@pytest.mark.parametrize("slug", ["bert", "roberta", "albert"])
def test_span_head_equals_transformers(slug: str, tmp_path: Path) -> None:
    data = write_json(tmp_path / "made.json", make_squad(40, length=(6, 40)))
    plan, network, theirs = both(slug, "bert/span", data, tmp_path, "QuestionAnswering")
    phase, text = plan.recipe.phases[0], plan.examples["train"]
    objective = make_objective(phase.objective, phase.batches, network.vocabulary)
    batch = objective.layout.batch(text, np.arange(12), 0)
    with torch.no_grad():
        ours = network(batch)
        found = theirs(**inputs_of(batch, theirs))
    loss = 0.0
    for i in range(12):
        begin, end = text.passage[i]
        places = torch.tensor([text.pooled_position[i], *range(begin, end)])  # [CLS], and the passage
        both_ends = torch.stack((found.start_logits[i], found.end_logits[i]), -1)[places]
        assert torch.allclose(ours[i, : len(places)], both_ends, atol=1e-5)
        for side in (0, 1):
            loss += float(-both_ends[:, side].log_softmax(0)[text.targets[i, side]]) / 2
    with torch.no_grad():
        assert float(objective.loss(network, batch, None).value) == pytest.approx(loss / 12, rel=1e-5)
    assert ours[0, :3].std() > 0


@pytest.mark.parametrize("slug", ["bert", "albert"])
def test_choice_head_equals_transformers(slug: str, tmp_path: Path) -> None:
    data = write_json_lines(tmp_path / "made.jsonl", draw_endings(40))
    plan, network, theirs = both(slug, "bert/choice", data, tmp_path, "MultipleChoice")
    phase, text = plan.recipe.phases[0], plan.examples["train"]
    objective = make_objective(phase.objective, phase.batches, network.vocabulary)
    batch = objective.layout.batch(text, np.arange(10), 0)
    given = {key: value.view(10, 3, -1) for key, value in inputs_of(batch, theirs).items()}
    found = theirs(**given, labels=batch.targets)
    ours = objective.loss(network, batch, None)
    assert torch.allclose(ours.outputs, found.logits, atol=1e-5)
    assert found.logits.std() > 0
    assert float(ours.value.detach()) == pytest.approx(float(found.loss.detach()), rel=1e-5)
    found.loss.backward()
    ours.value.backward()
    assert torch.allclose(network.out.weight.grad, theirs.classifier.weight.grad, atol=1e-6)
