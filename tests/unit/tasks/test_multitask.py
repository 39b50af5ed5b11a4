"""Multitask training of one network with a head per task: sampling by size, saving, resuming, predicting."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import nextword
from nextword import tasks as transfer
from nextword.core.errors import InvalidSetting, UnknownName
from nextword.tasks.finetune import Outcome
from nextword.tasks.heads import TextHead
from nextword.tasks.mixtures import MixedExamples, draw_tasks, probabilities
from nextword.tasks.multitask import MultitaskHead, MultitaskObjective
from nextword.tasks.plan import make_plan
from nextword.tasks.text_data import MixedTextDataset, read_text_data
from nextword.training.device import to_device
from tests.support.task_models import build_model
from tests.support.tiny_transfer import draw_color_counts, draw_color_pairs, draw_color_texts, make_run, write_table

QUICK = ("phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "task.dropout=0.0")
NAMES = ("color", "pair", "count")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    for slug in ("bert", "roberta", "gpt1", "lstm"):
        make_run(folder / slug, slug)
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(300))
    write_table(folder / "pair.csv", ["text", "second", "label"], draw_color_pairs(200))
    write_table(folder / "count.csv", ["text", "label"], draw_color_counts(100))
    return folder


def join_data(place: Path, *names: str) -> str:
    return " + ".join(str(place / f"{name}.csv") for name in names or NAMES)


def finetune(place: Path, name: str, slug: str = "bert", recipe: str = "bert/finetune", **options: Any) -> Outcome:
    changes = [*QUICK, *options.pop("changes", ())]
    return transfer.run(recipe, place / slug, join_data(place), place / name, changes=changes, device="cpu", **options)


@pytest.fixture(scope="module")
def full_outcome(place: Path) -> Outcome:
    return finetune(place, "whole", changes=["phase.0.epochs=6"])


def test_task_probabilities_are_proportional_to_size_to_the_power_mix() -> None:
    np.testing.assert_allclose(probabilities([100, 400, 1500], 1), [0.05, 0.2, 0.75])
    np.testing.assert_allclose(probabilities([100, 400, 1500], 0), [1 / 3] * 3)
    np.testing.assert_allclose(probabilities([100, 400, 2500], 0.5), [10 / 80, 20 / 80, 50 / 80])
    with pytest.raises(InvalidSetting) as error:
        MultitaskObjective({}, mixing_power=2)
    assert error.value.key == "objective.mixing_power"


def test_batch_depends_only_on_seed_and_step(place: Path) -> None:
    plan = make_plan("bert/finetune", place / "bert", join_data(place), changes=QUICK, device="cpu")
    train = plan.examples["train"]
    assert isinstance(train, MixedExamples)
    assert [len(part) for part in train.parts] == [270, 180, 90]
    objective = MultitaskObjective(plan.recipe.phases[0].batches, mixing_power=0.5)
    assert objective.batches_per_epoch(train) == 17 + 12 + 6
    results = list(islice(objective.batches(train, 3, 0), 60))
    assert [batch.task_index for batch in results] == list(islice(draw_tasks(train, 3, 0.5), 60))
    assert set(Counter(batch.task_index for batch in results)) == {0, 1, 2}
    for batch in results:
        assert batch.targets.is_floating_point() == (batch.task_index == 2)
    for step in (1, 17, 40):
        later = next(iter(objective.batches(train, 3, step)))
        assert later.task_index == results[step].task_index
        assert torch.equal(later.inputs.ids, results[step].inputs.ids)
    sizes = [
        sum(len(batch.targets) for batch in objective.validation_batches(plan.examples["dev"]) if batch.task_index == i)
        for i in range(3)
    ]
    assert sizes == [len(part) for part in plan.examples["dev"].parts] == [30, 20, 10]


@pytest.mark.parametrize("slug", ["bert", "roberta"])
def test_each_head_predicts_and_trains_as_if_alone(place: Path, slug: str) -> None:
    """Each head of RoBERTa has its own dense layer; heads of BERT share its pooler."""
    plan = make_plan("bert/finetune", place / slug, join_data(place), changes=QUICK, device="cpu")
    network = build_model(plan.recipe, plan.tokenizer)
    assert isinstance(network, MultitaskHead)
    objective = MultitaskObjective(plan.recipe.phases[0].batches)
    for part, batch in {b.task_index: b for b in objective.validation_batches(plan.examples["dev"])}.items():
        batch = to_device(batch, torch.device("cpu"))
        head = network.heads[part]
        alone = TextHead(network.encoder, head.config, head.out.out_features)
        alone.out.load_state_dict(network.out[part].state_dict())
        if alone.dense is not None:
            alone.dense.load_state_dict(network.dense[part].state_dict())
        network.eval()
        alone.eval()
        torch.testing.assert_close(network(batch), alone(batch), rtol=0, atol=0)
        loss = objective.loss(network, batch, None)
        assert loss.outputs is not None
        assert loss.outputs.shape[1] == 2  # the regression output is padded to two columns
        assert torch.isneginf(loss.outputs[:, 1:]).all() == (part == 2)
        network.train()
        network.zero_grad()
        objective.loss(network, batch, None).value.backward()
        touched = [out.weight.grad is not None for out in network.out]
        assert touched == [i == part for i in range(3)]
        assert any(p.grad is not None for p in network.encoder.parameters())
    own = {name.split(".")[0] for name in network.head_tensors()}
    assert own == ({"out", "dense"} if slug == "roberta" else {"out"})


def test_report_has_the_balance_of_each_task(place: Path, full_outcome: Outcome) -> None:
    page = (place / "whole/report.html").read_text().split('id="classes"')[1].split("<section")[0]
    assert page.count("Share of training") == 2  # regression has no classes
    shares = [read_text_data(str(place / f"{name}.csv")).balance for name in NAMES[:2]]
    percentages = re.findall(r"(\d+\.\d)\u00a0%", page)
    assert percentages == [f"{100 * share:.1f}" for item in shares for share in item.values()]


def test_balance_of_fraction_counts_the_drawn_rows(place: Path) -> None:
    plan = make_plan("bert/finetune", place / "bert", join_data(place), changes=QUICK, device="cpu")
    learnt = plan.task.sample(plan.examples["train"], 0.1, 7)
    balances = plan.data.balances(0.1, 7)
    for name, part in list(zip(plan.data.names, learnt.parts, strict=True))[:2]:
        assert list(balances[name].values()) == pytest.approx(np.bincount(part.labels, minlength=2) / len(part))
    assert balances[plan.data.names[2]] == {}


def test_multitask_run_saves_loads_and_predicts_every_task(place: Path, full_outcome: Outcome) -> None:
    result = full_outcome.results[0]
    files = [str(place / f"{name}.csv") for name in NAMES]
    assert result["metric"] == "mean"
    assert list(result["dev"]) == ["mean", *files]
    assert result["dev"]["mean"] == pytest.approx(np.mean([result["dev"][file] for file in files]))
    assert min(result["dev"][file] for file in files[:2]) > 0.8
    assert result["dev"][files[2]] > 0.6
    for file, metric in zip(files, ("accuracy", "accuracy", "spearman"), strict=True):  # again with the saved weights
        assert result["tasks"][file]["dev"][metric] == pytest.approx(result["dev"][file], abs=1e-6)
    model = nextword.load(place / "whole", device="cpu")
    assert model.can == {"predict", "embed"}
    assert model.predict(["the red house", "an old blue king"], task="color")[0].label == "red"
    assert model.predict([("a red", "the blue")], task="pair.csv")[0].label == "blue"
    first = model.of(files[2]).predict(["red red red red the", "the old king"])
    assert first[0].value > first[1].value + 1
    dev = read_text_data(files[0]).splits["dev"]
    predictions = [p.label for p in model.predict(dev.texts, task=files[0])]
    assert np.mean([a == b for a, b in zip(predictions, dev.labels, strict=True)]) == result["dev"][files[0]]
    assert model.embed(["red"]).shape == (1, 32)
    for name in ("taste", ""):
        with pytest.raises(UnknownName) as error:
            model.predict(["x"], task=name)
        assert (error.value.name, error.value.known) == (name, tuple(files))


@pytest.mark.parametrize(("slug", "recipe"), [("bert", "bert/finetune"), ("gpt1", "gpt1/finetune")])
def test_interrupted_run_resumes_bit_identically(place: Path, slug: str, recipe: str) -> None:
    """Including GPT-1 with its auxiliary language-model loss."""
    options: dict[str, Any] = {"slug": slug, "recipe": recipe, "seed": 7}
    options["changes"] = [
        "phase.0.steps=8",
        "model.dropout=0.1",
        "task.dropout=0.1",
        "phase.0.objective.mixing_power=0.5",
    ]
    finetune(place, f"{slug}-through", **options)
    calls = iter([False] * 4 + [True])
    assert finetune(place, f"{slug}-cut", stop=lambda: next(calls), **options).interrupted
    plan, events = transfer.resume(place / f"{slug}-cut", "cpu")
    assert isinstance(plan.data, MixedTextDataset)
    assert list(events)[-1].kind == "end"
    for file in ("model.safetensors", "head.safetensors"):
        a, b = (load_file(place / f"{slug}-{name}" / file) for name in ("through", "cut"))
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a), file


def test_multitask_run_with_seeds_and_fraction_trains(place: Path) -> None:
    outcome = finetune(place, "seeds", slug="lstm", seeds=2, changes=["phase.0.steps=2", "task.train_fraction=0.5"])
    assert len(outcome.values()) == 2
    assert outcome.interval is not None
    assert outcome.results[0]["examples"]["train"] == 270
    assert (place / "seeds/results.json").is_file()


def test_multitask_with_invalid_input_raises(place: Path) -> None:
    twice = join_data(place, "color", "color")
    with pytest.raises(InvalidSetting) as error:
        read_text_data(twice)
    assert error.value.value == twice
    with pytest.raises(InvalidSetting) as error:
        read_text_data(join_data(place), transfer.Columns("text"))
    assert error.value.key == "columns"
    with pytest.raises(UnknownName, match=r"nothing.csv"):
        read_text_data(f"{place / 'color.csv'} + {place / 'nothing.csv'}")
