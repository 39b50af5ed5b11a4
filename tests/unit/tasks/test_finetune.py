"""Fine-tuning with the trainer: saving, bit-exact resuming, seeds, and suites of tasks."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import nextword
from nextword import tasks as transfer
from nextword.core.errors import InvalidSetting, NextwordError, RunError, UnknownName, Unsupported
from nextword.core.scratch import PREFIX
from nextword.recipe import load_recipe, recipe_names
from nextword.run_folder import RunFolder
from nextword.tasks import parse_task
from nextword.tasks.classification import AveragedClassifier, Classifier
from nextword.tasks.finetune import Outcome, averages, continue_run
from nextword.tasks.heads import HEAD_FILE
from nextword.tasks.plan import _refuse_settings_from_data, make_plan
from nextword.tasks.text_data import read_one
from tests.support.tiny_transfer import draw_color_texts, make_transfer_folder, write_table

QUICK = ("phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "task.dropout=0.0")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_transfer_folder(tmp_path_factory.mktemp("transfer"))


def finetune(place: Path, name: str, slug: str = "bert", data: str = "color", **options: Any) -> Outcome:
    changes = [*QUICK, *options.pop("changes", ())]
    recipe = options.pop("recipe", "bert/finetune")
    return transfer.run(
        recipe, place / slug, str(place / f"{data}.csv"), place / name, changes=changes, device="cpu", **options
    )


# ------------------------------------------------------------------------------------------------ through the loop


def test_run_saves_loads_and_predicts(place: Path) -> None:
    """The loaded run predicts like the network in memory; the encoder has an ordinary model file."""
    outcome = finetune(place, "whole", changes=["phase.0.epochs=2"])
    folder = place / "whole"
    result = outcome.results[0]
    model = nextword.load(folder, device="cpu")
    assert isinstance(model, Classifier)
    assert model.can == {"predict", "embed"}
    data = read_one(str(place / "color.csv"))
    dev = data.splits["dev"]
    predictions = model.predict(dev.texts)
    assert (
        np.mean([p.label == gold for p, gold in zip(predictions, dev.labels, strict=True)]) == result["dev"]["accuracy"]
    )
    assert all(abs(sum(p.probabilities.values()) - 1) < 1e-9 for p in predictions)
    assert all(max(p.probabilities, key=lambda k: p.probabilities[k]) == p.label for p in predictions)
    assert model.embed(["red", "a king"]).shape == (2, 32)
    with pytest.raises(Unsupported) as unsupported:
        model.score("the king")
    assert unsupported.value.ability == "score"
    with pytest.raises(InvalidSetting) as error:
        model.predict([("a", "b")])
    assert error.value.value == ("a", "b")
    for odd in ("a red king", b"a red king", {"text": "a red king"}, None):  # characters of a string are not examples
        with pytest.raises(NextwordError):
            model.predict(odd)  # type: ignore[arg-type]
        with pytest.raises(NextwordError):
            AveragedClassifier([model, model]).predict(odd)  # type: ignore[arg-type]
    for lacking in (None, float("nan"), ("red", None)[1:]):
        with pytest.raises(InvalidSetting, match="Example 2"):
            model.predict(["a king", lacking])  # type: ignore[list-item]
    assert model.predict(text for text in ("red",)) == model.predict(["red"])  # type: ignore[arg-type]
    files = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", HEAD_FILE, "recipe.toml", "tokenizer.json", "log.jsonl", "card.md"} <= files
    assert "state" not in files  # a finished run keeps no training state
    assert (
        load_file(str(folder / "model.safetensors")).keys() == load_file(str(place / "bert/model.safetensors")).keys()
    )
    assert "accuracy" in (folder / "card.md").read_text()
    kinds = [line["event"] for line in RunFolder(folder).read_log()]
    assert kinds[0] == "begin"
    assert kinds.count("valid") == 2
    assert kinds[-1] == "task"


def test_training_starts_from_pretrained_weights_unless_from_scratch(place: Path) -> None:
    still = ["phase.0.optimizer={kind='sgd', rate=1e-30}", "phase.0.steps=1"]
    before = load_file(str(place / "bert/model.safetensors"))
    finetune(place, "still", changes=still)
    kept = load_file(str(place / "still/model.safetensors"))
    assert all(torch.allclose(before[name], kept[name], rtol=0, atol=1e-25) for name in before)
    finetune(place, "fresh", changes=still, scratch=True)
    fresh = load_file(str(place / "fresh/model.safetensors"))
    matrices = [name for name in before if name.endswith("weight") and "norm" not in name]
    assert all(not torch.equal(before[name], fresh[name]) for name in matrices)
    recipe = RunFolder(place / "fresh").recipe
    assert recipe.task is not None
    assert recipe.task["scratch"] is True
    assert recipe.phases[0].init_from == ""
    assert (place / "fresh/tokenizer.json").read_bytes() == (place / "bert/tokenizer.json").read_bytes()


def test_fine_tuned_run_can_be_fine_tuned_again(place: Path) -> None:
    finetune(place, "once", changes=["phase.0.steps=2"])
    finetune(place, "twice", "once", changes=["phase.0.steps=1", "phase.0.optimizer={kind='sgd', rate=1e-30}"])
    first, second = (load_file(str(place / name / "model.safetensors")) for name in ("once", "twice"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_several_seeds_give_a_mean_and_an_interval(place: Path) -> None:
    outcome = finetune(place, "seeds", data="count", seeds=3, changes=["phase.0.epochs=1"])
    assert [Path(run).name for run in outcome.runs] == ["seed-0", "seed-1", "seed-2"]
    assert [result["seed"] for result in outcome.results] == [0, 1, 2]
    heads = [load_file(str(Path(run) / HEAD_FILE))["out.weight"] for run in outcome.runs]
    assert not torch.equal(heads[0], heads[1])
    values = outcome.values()
    assert len(set(values)) == 3
    assert outcome.metric == "spearman"
    assert outcome.interval == pytest.approx(4.303 * np.std(values, ddof=1) / np.sqrt(3))
    kept = json.loads((place / "seeds/results.json").read_text())
    assert kept["mean"] == pytest.approx(np.mean(values))
    again = finetune(place, "seeds", data="count", seeds=3, changes=["phase.0.epochs=1"], resume=True)
    assert again.values() == values  # finished runs are reused
    single = finetune(place, "single", data="count", seed=1, changes=["phase.0.epochs=1"])
    assert single.values() == [values[1]]
    assert single.interval is None


@pytest.mark.parametrize(("slug", "recipe"), [("bert", "bert/finetune"), ("gpt1", "gpt1/finetune")])
def test_interrupted_run_resumes_bit_identically(place: Path, slug: str, recipe: str) -> None:
    changes = [*QUICK[:2], "phase.0.epochs=2", "task.dropout=0.1", "model.dropout=0.1"]
    options = {"changes": changes, "device": "cpu", "seed": 4}
    data = str(place / "pair.csv")
    uninterrupted = transfer.run(recipe, place / slug, data, place / f"{slug}-uncut", **options)
    calls = iter([False] * 20 + [True])
    cut = place / f"{slug}-cut"
    stopped = transfer.run(recipe, place / slug, data, cut, stop=lambda: next(calls), **options)
    assert stopped.interrupted
    assert RunFolder(cut).has_state
    plan, events = transfer.resume(cut, device="cpu")
    assert plan.task.config.text == "text"
    last = list(events)[-1]
    assert last.step == 34
    for name in ("model.safetensors", HEAD_FILE):
        a, b = (load_file(str(folder / name)) for folder in (place / f"{slug}-uncut", cut))
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert transfer.read_result(cut)["dev"] == uninterrupted.results[0]["dev"]  # type: ignore[index]


def test_run_killed_before_its_first_state_restarts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = transfer.transfer(
        make_plan("bert/finetune", place / "bert", str(place / "color.csv"), changes=[*QUICK, "phase.0.epochs=1"]),
        place / "killed",
    )
    next(events)
    events.close()
    assert transfer.read_result(place / "killed") is None
    list(transfer.resume(place / "killed", device="cpu")[1])
    full = finetune(place, "unkilled", changes=["phase.0.epochs=1"])
    assert transfer.read_result(place / "killed")["dev"] == full.results[0]["dev"]  # type: ignore[index]


def test_run_killed_after_its_last_validation_finishes(place: Path) -> None:
    """The state is that of the last step, so the process that resumes makes no validation of its own."""
    folder = place / "late"
    changes = [*QUICK, "phase.0.steps=4", "phase.0.validate_every=2", "phase.0.save_every=0", "phase.0.log_every=1"]
    plan = make_plan("bert/finetune", place / "bert", str(place / "color.csv"), changes=changes, device="cpu")
    for event in transfer.transfer(plan, folder):
        if event.kind == "end":
            break  # the generator is dropped here, before the run is evaluated
    list(transfer.resume(folder, device="cpu")[1])
    valid = [line for line in RunFolder(folder).read_log() if line["event"] == "valid"]
    assert [line["step"] for line in valid] == [2, 4]
    assert transfer.read_result(folder)["dev"]["accuracy"] == valid[-1]["accuracy"]  # type: ignore[index]


def test_run_killed_after_its_result_gets_its_card(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the kill left in the folder is removed."""

    class Killed(BaseException):
        pass

    def kill(run: RunFolder) -> None:
        (run.path / f"{PREFIX}left").mkdir()
        raise Killed

    folder = place / "without-card"
    monkeypatch.setattr("nextword.tasks.finetune.write_card", kill)
    with pytest.raises(Killed):
        finetune(place, folder.name, changes=["phase.0.steps=2"])
    monkeypatch.undo()
    before = (folder / "model.safetensors").read_bytes()
    continue_run(str(folder), device="cpu")
    names = {path.name for path in folder.iterdir()}
    assert "card.md" in names
    assert "state" not in names
    assert not any(name.startswith(PREFIX) for name in names)
    assert (folder / "model.safetensors").read_bytes() == before


def test_resume_refuses_other_data(place: Path, tmp_path: Path) -> None:
    rows = draw_color_texts(60)
    data = write_table(tmp_path / "mine.csv", ["text", "label"], rows)
    calls = iter([False, True])
    transfer.run("bert/finetune", place / "bert", str(data), tmp_path / "run", changes=QUICK, stop=lambda: next(calls))
    write_table(data, ["text", "label"], rows[1:])
    with pytest.raises(RunError) as error:
        list(transfer.resume(tmp_path / "run", device="cpu")[1])
    assert error.value.path == str(tmp_path / "run")


def test_keep_best_keeps_the_best_epoch(place: Path) -> None:
    """At a destructive learning rate; the metric, not the loss, decides."""
    changes = ["phase.0.epochs=6", "phase.0.keep=best", "phase.0.schedule={kind='constant'}"]
    outcome = finetune(place, "best", changes=[*changes, "phase.0.optimizer.rate=0.05", "phase.0.clip=0.0"])
    checks = [line for line in RunFolder(place / "best").read_log() if line["event"] == "valid"]
    best = max(line["accuracy"] for line in checks)
    assert outcome.mean == best
    assert checks[[line["accuracy"] for line in checks].index(best)]["best"]
    dev = read_one(str(place / "color.csv")).splits["dev"]
    predictions = nextword.load(place / "best", device="cpu").predict(dev.texts)
    assert np.mean([p.label == gold for p, gold in zip(predictions, dev.labels, strict=True)]) == best


def test_overrides_change_the_recipe_for_one_data_set(place: Path) -> None:
    name = str(place / "color.csv")
    own = f"task.overrides={{'{name}'=['phase.0.epochs=7', 'phase.0.optimizer.rate=1e-4']}}"
    plan = make_plan("bert/finetune", place / "bert", name, changes=[own])
    assert (plan.recipe.phases[0].epochs, plan.recipe.phases[0].optimizer["rate"]) == (7, 1e-4)
    plan = make_plan("bert/finetune", place / "bert", name, changes=[own, "phase.0.epochs=2"])
    assert plan.recipe.phases[0].epochs == 2  # the command takes precedence
    other = make_plan("bert/finetune", place / "bert", str(place / "pair.csv"), changes=[own])
    assert other.recipe.phases[0].epochs == 3


def test_texts_are_truncated_to_the_positions_that_were_trained(place: Path) -> None:
    """The run was trained on texts of 32 tokens, so later positions are untrained."""
    plan = make_plan("bert/finetune", place / "bert", str(place / "color.csv"))
    assert plan.recipe.phases[0].batches["length"] == 32
    assert plan.recipe.model["dropout"] == 0.1  # the length of the recipe
    assert plan.recipe.phases[0].precision == "fp32"  # on a CPU
    recurrent = make_plan("bert/finetune", place / "lstm", str(place / "color.csv"))
    assert recurrent.recipe.phases[0].batches["length"] == 128


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"changes": ["task.pooling=first"]}, "task.pooling"),
        ({"changes": ["task.metrics=['bleu']"]}, "task.metrics"),
        ({"changes": ["task.metrics=mcc"]}, "task.metrics"),
        ({"changes": ["task.metrics=['mcc', 'pearson']"]}, "task.metrics"),
        ({"changes": ["task.metrics=['span_f1']"]}, "task.metrics"),
        ({"changes": ["task.labels=['red', 'blue']"]}, "task.labels"),
        ({"changes": ["task.text=body"]}, "task.text"),
        ({"changes": ["task.overrides={RTE='phase.0.epochs=1'}"]}, "task.overrides"),
        ({"changes": ["phase.0.objective=causal"]}, "phase.task.objective.kind"),
        ({"kind": "rank"}, ""),
    ],
)
def test_invalid_setting_raises_before_the_folder_exists(place: Path, options: dict[str, Any], key: str) -> None:
    with pytest.raises((InvalidSetting, UnknownName)) as error:
        finetune(place, "refused", **options)
    assert key in getattr(error.value, "key", "")
    assert not (place / "refused").exists()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"recipe": "bert/tiny"}, "bert/tiny"),
        ({"changes": ["task.dropuot=0.2"]}, "dropuot"),
        ({"changes": ["task.std=2.0"]}, "std"),
        ({"changes": ["task.kind=sorting"]}, "sorting"),
    ],
)
def test_unknown_name_raises_before_the_folder_exists(place: Path, options: dict[str, Any], name: str) -> None:
    with pytest.raises(UnknownName) as error:
        finetune(place, "refused", **options)
    assert error.value.name == name
    assert not (place / "refused").exists()


@pytest.mark.parametrize(
    "options",
    [{"slug": "nowhere"}, {"data": "nothing"}, {"changes": ["model.dorpout=0.2"]}, {"changes": ["model.width=16"]}],
)
def test_unsuitable_source_raises_before_the_folder_exists(place: Path, options: dict[str, Any]) -> None:
    with pytest.raises(NextwordError):
        finetune(place, "refused", **options)
    assert not (place / "refused").exists()


def test_first_metric_of_the_recipe_decides(place: Path) -> None:
    outcome = finetune(place, "by-mcc", changes=["phase.0.steps=2", "task.metrics=['mcc', 'f1']"]).results[0]
    assert (outcome["metric"], list(outcome["dev"])) == ("mcc", ["mcc", "f1"])


def test_no_recipe_sets_what_the_data_decide() -> None:
    for recipe in map(load_recipe, recipe_names()):
        if recipe.task is not None:
            _refuse_settings_from_data(parse_task(recipe.task, recipe.name), recipe)


def test_recipe_of_a_run_is_not_accepted_as_a_recipe(place: Path) -> None:
    finetune(place, "learnt", changes=["phase.0.steps=1"])
    with pytest.raises(InvalidSetting):
        transfer.run(str(place / "learnt/recipe.toml"), "", str(place / "color.csv"), place / "refused")


def test_ngram_and_hugging_face_folders_raise(place: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "theirs/model.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match="nextword convert"):
        finetune(tmp_path, "x", "theirs")
    from nextword.training.train import train_events

    with pytest.raises(NextwordError, match="nextword transfer bert/finetune"):
        list(train_events(nextword.recipe.load_recipe("bert/finetune"), tmp_path / "y"))


# ------------------------------------------------------------------------------------------------ several tasks


def test_mean_over_tasks_has_an_interval_over_seeds() -> None:
    def outcome(name: str, *values: float) -> Outcome:
        return Outcome(name, (), tuple({"metric": "accuracy", "dev": {"accuracy": v}} for v in values))

    result = averages([outcome("a", 0.5, 0.7), outcome("b", 0.9, 0.9)])
    assert result["mean"] == pytest.approx(0.75)  # of 0.7 and 0.8
    assert result["interval"] == pytest.approx(12.706 * np.std([0.7, 0.8], ddof=1) / np.sqrt(2))


def test_suite_tabulates_several_tasks(place: Path, tmp_path: Path) -> None:
    options = {"changes": [*QUICK, "phase.0.steps=3"], "device": "cpu"}
    names = [str(place / "color.csv"), str(place / "count.csv")]
    events: list[Any] = []
    alone = transfer.run("bert/finetune", place / "bert", names[0], tmp_path / "a", **options)
    suite = transfer.run_suite(
        "bert/finetune", place / "bert", names, tmp_path / "all", on_event=events.append, **options
    )
    outcomes, table = suite.outcomes, suite.results
    assert (tmp_path / "all/color.csv/manifest.json").is_file()
    assert outcomes[0].values() == alone.values()
    assert table["mean"] == pytest.approx((outcomes[0].mean + outcomes[1].mean) / 2)
    assert [task["metric"] for task in table["tasks"]] == ["accuracy", "spearman"]
    assert json.loads((tmp_path / "all/results.json").read_text()) == table
    assert events


@pytest.mark.parametrize(("slug", "recipe"), [("lstm", "bert/finetune"), ("gpt1", "gpt1/finetune")])
def test_compare_scratch_trains_a_twin_of_every_run(place: Path, tmp_path: Path, slug: str, recipe: str) -> None:
    names = [str(place / "color.csv"), str(place / "count.csv")]
    options: dict[str, Any] = {"changes": [*QUICK, "phase.0.steps=2"], "device": "cpu", "seeds": 2}
    compare = partial(transfer.run_suite, recipe, place / slug, names, compare_scratch=True, **options)
    both = compare(tmp_path / "both")
    for outcome, twin, row in zip(
        both.outcomes[:2], both.outcomes[2:], both.results["difference"]["tasks"], strict=True
    ):
        folder = tmp_path / f"alone-{row['name'][-9:]}"
        alone = transfer.run(recipe, place / slug, outcome.name, folder, scratch=True, **options)
        assert twin.values() == alone.values()  # the same run as with --scratch
        assert row["values"] == [a - b for a, b in zip(outcome.values(), twin.values(), strict=True)]
    stops = iter([False] * 3 + [True] * 9)
    assert compare(tmp_path / "cut", stop=lambda: next(stops)).results == {}
    resumed = compare(tmp_path / "cut", resume=True).results
    assert resumed["difference"] == both.results["difference"]
