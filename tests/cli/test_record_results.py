"""`papers --record`: results of runs, transfers, and translations written into a recipe."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from nextword import recipe
from nextword.core.errors import NextwordError, RunError
from nextword.evaluation.record import record_result
from tests.cli.conftest import Cli

RECIPE = '[paper]\nslug = "bert"\ntitle = "T"\nauthors = "A"\nyear = 2019\n\n[[phase]]\nname = "task"\n'
RAN = RECIPE.replace("[[phase]]", "[tokenizer]\n[model]\n[[phase]]\nsteps = 2")


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "recipes"
    (folder / "bert").mkdir(parents=True)
    for name in ("finetune", "other", "hidden"):
        (folder / "bert" / f"{name}.toml").write_text(RECIPE)
    monkeypatch.setattr(recipe, "RECIPES", folder)
    return folder


def transfer(
    folder: Path, task: str, values: list[float], scratch: bool = False, by: str = "bert/finetune", **others: float
) -> None:
    folder.mkdir(parents=True)
    given = {"data": task, "metric": "accuracy", "source": "/a/path"}
    tested = {split: {"accuracy": value} for split, value in others.items()}
    results = [{**given, "dev": {"accuracy": v}, **tested} for v in values]
    answer = {
        "recipe": by,
        "scratch": scratch,
        "name": task,
        "metric": "accuracy",
        "values": values,
        "results": results,
    }
    (folder / "results.json").write_text(json.dumps(answer))


def test_record_transfers_writes_their_means(recipes: Path, tmp_path: Path) -> None:
    """Seeds of separate commands count like seeds of one command."""
    runs = tmp_path / "runs"
    transfer(runs / "a", "SST-2", [0.8, 0.9])
    transfer(runs / "b" / "first", "RTE", [0.5])
    transfer(runs / "b" / "second", "RTE", [0.6])
    transfer(runs / "c", "SST-2", [0.7, 0.7], scratch=True)
    name, measured = record_result(runs)
    assert name == "bert/finetune"
    assert tomllib.loads((recipes / "bert" / "finetune.toml").read_text())["measured"] == measured
    assert (measured["sst_2_accuracy"], measured["rte_accuracy"], measured["mean"]) == (85.0, 55.0, 70.0)
    assert (measured["scratch_sst_2_accuracy"], measured["scratch_mean"], measured["seeds"]) == (70.0, 70.0, 2)
    lines = [json.loads(line) for line in (recipes / "bert" / measured["log"]).read_text().splitlines()]
    assert len(lines) == 6
    assert all("source" not in line for line in lines)  # a path of somebody's machine


def test_record_transfers_of_several_recipes_raises(recipes: Path, tmp_path: Path) -> None:
    transfer(tmp_path / "runs" / "a", "RTE", [0.5])
    transfer(tmp_path / "runs" / "b", "RTE", [0.5], by="bert/other")
    with pytest.raises(NextwordError, match=r"bert/finetune, bert/other"):
        record_result(tmp_path / "runs")


def test_record_transfers_with_other_settings_separately(recipes: Path, tmp_path: Path) -> None:
    """A baseline by the same recipe must not be averaged with the other runs."""
    path = recipes / "bert" / "finetune.toml"
    path.write_text(RECIPE + '\n[task]\nfeatures = "both"\nwidth = 300\n')
    runs = tmp_path / "runs"
    for name, task in {"usual": 'features = "both"', "other": 'features = "glove"', "wide": "width = 64"}.items():
        transfer(runs / name, "TREC-6", [0.9 if name == "usual" else 0.5], test=0.8)
        (runs / name / "seed-0").mkdir()
        (runs / name / "seed-0" / "recipe.toml").write_text(f'[task]\n{task}\nkind = "classification"\n')
    _, measured = record_result(runs)
    assert (measured["trec_6_accuracy"], measured["glove_trec_6_accuracy"]) == (90.0, 50.0)
    assert (measured["width_64_trec_6_accuracy"], measured["glove_test_trec_6_accuracy"]) == (50.0, 80.0)
    assert measured["split"] == "dev, and test where it says so"
    lines = [json.loads(line) for line in path.with_name(measured["log"]).read_text().splitlines()]
    assert [line.get("features") for line in lines] == ["glove", None, None]


def test_record_taggers_with_fraction_or_features_separately(recipes: Path, tmp_path: Path) -> None:
    """`--train-fraction` and `--features` are not in the recipe, so their results are not those of the recipe."""
    own = RECIPE.replace("[[phase]]", '[tokenizer]\nkind = "lexicon"\n[model]\nwords = 8\n[task]\nwidth = 4\n[[phase]]')
    (recipes / "bert" / "finetune.toml").write_text(own)
    context = 'contextual = "/a/path/runs/elmo"\ncontextual_layers = 3'
    runs = tmp_path / "runs"
    for name, (model, task) in {
        "usual": ("", "train_fraction = 1.0"),
        "few": ("", "train_fraction = 0.1"),
        "elmo": (context, ""),
    }.items():
        transfer(runs / name, "names", [{"usual": 0.9, "few": 0.5, "elmo": 0.95}[name]], test=0.8)
        (runs / name / "seed-0").mkdir()
        written = f'[model]\nwords = 8\n{model}\n[task]\n{task}\nwidth = 4\nscheme = ""\nkind = "tagging"\n'
        (runs / name / "seed-0" / "recipe.toml").write_text(written)
    _, measured = record_result(runs)
    answer = [measured[f"{kind}names_accuracy"] for kind in ("", "train_fraction_0_1_", "elmo_")]
    assert (answer, measured["test_mean"]) == ([90.0, 50.0, 95.0], 80.0)
    assert measured["command"] == "nextword transfer bert/finetune --num-seeds 1"  # it needs no run, and names its data
    assert "/a/path" not in (recipes / "bert" / measured["log"]).read_text()


def test_record_single_transfer_as_one_seed(recipes: Path, tmp_path: Path) -> None:
    """It is not recorded as a run without a text model, by its last validation."""
    (tmp_path / "run").mkdir()
    result = {"data": "RTE", "metric": "accuracy", "dev": {"accuracy": 0.6}, "scratch": True, "source": "runs/bert"}
    facts = {"format": 1, "recipe": "bert/finetune", "finished": True, "result": result}
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(facts))
    (tmp_path / "run" / "recipe.toml").write_text("[task]\nkind = 'classification'\ntrain_fraction = 0.5\n")
    _, measured = record_result(tmp_path / "run")
    assert (measured["scratch_train_fraction_0_5_rte_accuracy"], measured["seeds"]) == (60.0, 1)


TAGGER = (
    '[paper]\nslug = "tagger"\ntitle = "T"\nauthors = "A"\nyear = 2016\n\n[tokenizer]\nkind = "lexicon"\n\n[model]\n'
)


def tagged(runs: Path, name: str, tests: list[float], model: str = "", task: str = "") -> None:
    """A folder with one tagger per seed, as written by `transfer --num-seeds`."""
    scores = {"span_f1": 0.9}
    given = {"data": "conll2003", "metric": "span_f1", "source": "", "dev": scores}
    results = [{**given, "seed": i, "test": {"span_f1": value}} for i, value in enumerate(tests)]
    answer = {"recipe": "tagger/ner", "scratch": False, "name": "conll2003", "metric": "span_f1", "results": results}
    for i in range(len(tests)):
        run = runs / name / f"seed-{i}"
        run.mkdir(parents=True)
        (run / "recipe.toml").write_text(
            f"{TAGGER}width = 200\n{model}\n[task]\nkind = 'tagging'\nclassifier = 'crf'\n{task}\n"
        )
        (run / "log.jsonl").write_text(json.dumps({"event": "begin", "device": "H200"}) + "\n")
        (run / "manifest.json").write_text(json.dumps({"commit": "abc"}))
    (runs / name / "results.json").write_text(json.dumps({**answer, "values": [0.9] * len(tests)}))


def test_record_taggers_writes_test_f1_with_interval(recipes: Path, tmp_path: Path) -> None:
    (recipes / "tagger").mkdir()
    path = recipes / "tagger" / "ner.toml"
    path.write_text(f"{TAGGER}width = 200\n[task]\nclassifier = 'crf'\n")
    runs = tmp_path / "runs"
    elmo = 'contextual = "/somebody/runs/elmo"\ncontextual_layers = 3\ncontextual_width = 512'
    tagged(runs, "a", [0.90, 0.91, 0.92], task="train_fraction = 1.0")
    tagged(runs, "b", [0.93, 0.93, 0.93], elmo)
    tagged(runs, "c", [0.80, 0.80, 0.80], elmo, "train_fraction = 0.1")
    name, measured = record_result(runs)
    assert name == "tagger/ner"
    assert measured["test_conll2003_span_f1"] == 91.0
    assert measured["test_conll2003_span_f1_interval"] == pytest.approx(4.303 / 3**0.5, abs=0.01)  # Student's t of 2
    assert (measured["conll2003_span_f1"], measured["conll2003_span_f1_interval"]) == (90.0, 0.0)
    assert measured["elmo_test_conll2003_span_f1"] == 93.0
    assert measured["elmo_train_fraction_0_1_test_conll2003_span_f1"] == 80.0
    assert (measured["seeds"], measured["device"], measured["commit"]) == (3, "H200", "abc")
    assert measured["command"] == "nextword transfer tagger/ner --num-seeds 3"
    text = path.with_name(measured["log"]).read_text()
    assert len(text.splitlines()) == 9
    assert "/somebody" not in text + path.read_text()


def test_record_merged_dev_writes_test_scores_only(recipes: Path, tmp_path: Path) -> None:
    (recipes / "tagger").mkdir()
    path = recipes / "tagger" / "ner.toml"
    beside = "[[phase]]\nobjective = { unlabeled = 'wikipedia' }\n"
    path.write_text(f"{TAGGER}[task]\nclassifier = 'crf'\n{beside}")
    runs = tmp_path / "runs"
    given = "merge_dev_into_train = true\nhidden_sizes = [50]\nweights = []"
    tagged(runs, "a", [0.90, 0.91, 0.92], task=f"{given}\n{beside}")
    tagged(runs, "b", [0.80, 0.80, 0.80], task=f"{given}\n{beside.replace('wikipedia', '')}")
    _, measured = record_result(runs)
    assert (measured["test_conll2003_span_f1"], measured["split"]) == (91.0, "test")
    assert measured["labels_alone_test_conll2003_span_f1"] == 80.0
    assert "conll2003_span_f1" not in measured
    assert measured["command"] == "nextword transfer tagger/ner --merge-dev --num-seeds 3"
    assert '"dev"' not in path.with_name(measured["log"]).read_text()


def labelled(
    folder: Path,
    data: Path,
    message: list[list[float]],
    score: float,
    metric: str = "accuracy",
    task: str = "",
    **model: str,
) -> Path:
    """A minimal task run that can be recorded."""
    folder.mkdir()
    result = {"data": str(data), "metric": metric, "source": "x", "scratch": False, "dev": {metric: 0.5}}
    manifest = {"format": 1, "recipe": "bert/finetune", "result": {**result, "test": {metric: score}}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    task = task or 'kind = "classification"\ntext = "text"\nlabel = "label"\nlabels = ["a", "b"]'
    network = "".join(f"{key} = {value}\n" for key, value in model.items())
    tables = (
        RAN.replace("[model]\n", f"[model]\n{network}")
        + f'data = "{data}"\n[task]\nmerge_dev_into_train = true\n{task}\n'
    )
    (folder / "recipe.toml").write_text(tables)
    np.savez(folder / "predictions.npz", test=np.array(message, np.float32))
    return folder


def test_record_two_directions_writes_their_average(recipes: Path, tmp_path: Path, cli: Cli) -> None:
    """Each run misses one of three test rows and is confident in the others, so their average misses none."""
    rows = ["text,label,split", *(f"{name} {i},{'ab'[i % 2]},{name}" for name in ("train", "dev") for i in range(4))]
    data = tmp_path / "d.csv"
    data.write_text("\n".join([*rows, "x,a,test", "y,b,test", "z,a,test"]) + "\n")
    row = labelled(tmp_path / "one", data, [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], 2 / 3)
    two = labelled(tmp_path / "two", data, [[0.4, 0.6], [0.3, 0.7], [0.9, 0.1]], 2 / 3, backward="true")
    message = cli("papers", "--record", row, "--record", two).stdout
    assert "bert/finetune" in message
    measured = tomllib.loads((recipes / "bert" / "finetune.toml").read_text())["measured"]
    names = [key for key in measured if key.endswith("accuracy")]
    assert [measured[key] for key in names] == [66.67, 66.67, 100.0]
    assert names[0].startswith("backward_test_")
    assert names[2].startswith("averaged_test_")
    (tmp_path / "two" / "predictions.npz").unlink()
    with pytest.raises(NextwordError, match=r"predictions\.npz"):
        record_result(row, two)
    with pytest.raises(RunError):
        record_result(row, tmp_path / "nowhere")


def test_record_average_uses_the_columns_of_the_runs(recipes: Path, tmp_path: Path) -> None:
    """Another column has the usual name of labels and must not be used as gold labels."""
    rows = [
        "review,color,label,split",
        *(f"{s} {i},{'ab'[i % 2]},{i},{s}" for s in ("train", "dev") for i in range(4)),
    ]
    data = tmp_path / "d.csv"
    data.write_text("\n".join([*rows, "x,a,3,test", "y,b,2,test"]) + "\n")
    task = 'kind = "classification"\ntext = "review"\nlabel = "color"\nlabels = ["a", "b"]'
    runs = [labelled(tmp_path / name, data, [[0.9, 0.1], [0.2, 0.8]], 1.0, task=task) for name in ("one", "two")]
    measured = record_result(*runs)[1]
    assert [value for key, value in measured.items() if key.startswith("averaged_test_")] == [100.0]


def test_record_averages_numbers_and_choices(recipes: Path, tmp_path: Path) -> None:
    data = tmp_path / "d.csv"
    rows = [f"{split} {i},{i / 2},{split}" for split in ("train", "dev", "test") for i in range(3)]
    data.write_text("\n".join(["text,label,split", *rows]) + "\n")
    task = 'kind = "regression"\ntext = "text"\nlabel = "label"\nmean = 0.5\nstd = 0.41\nmetrics = ["pearson"]'
    message = {"one": [[0.0], [0.9], [1.0]], "two": [[0.0], [0.1], [1.0]]}
    runs = [labelled(tmp_path / name, data, numbers, 0.9, "pearson", task) for name, numbers in message.items()]
    measured = record_result(*runs)[1]
    assert [value for key, value in measured.items() if key.startswith("averaged_test_")] == [100.0]
    data = tmp_path / "c.jsonl"
    given = [
        {"context": f"{s} {i}", "choices": ["x", "y"], "label": i % 2, "split": s}
        for s in ("train", "dev", "test")
        for i in range(4)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in given))
    message = {
        "three": [[0.9, 0.1], [0.6, 0.4], [0.9, 0.1], [0.1, 0.9]],
        "four": [[0.6, 0.4], [0.1, 0.9], [0.6, 0.4], [0.4, 0.6]],
    }
    task = 'kind = "multiple_choice"'
    runs = [labelled(tmp_path / name, data, odds, 0.75, task=task) for name, odds in message.items()]
    measured = record_result(*runs)[1]
    assert [value for key, value in measured.items() if key.startswith("averaged_test_")] == [100.0]


def test_record_translations_writes_every_decoding_and_stop_step(recipes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    manifest = {"format": 1, "recipe": "bert/hidden", "commit": "none"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    pairs = {"event": "translated", "data": "d", "split": "test", "pairs": 2, "parameters": 7, "token_perplexity": 6.0}
    events = [
        {"event": "begin", "index": 0, "seconds": 0.0, "device": "cuda"},
        {"event": "valid", "index": 0, "seconds": 4.0, "step": 400, "best": True},
        {"event": "valid", "index": 0, "seconds": 8.0, "step": 800, "best": False},
        {"event": "step", "index": 0, "seconds": 9.0, "step": 900, "of": 1200},
        {**pairs, "decoding": "beam 1", "scores": {"bleu": {"score": 34.0}}},
        {**pairs, "decoding": "beam 5", "scores": {"bleu": {"score": 36.123}}},
        {**pairs, "decoding": "greedy", "scores": {"bleu": {"score": 1.0}}, "split": "valid"},
        {**pairs, "decoding": "beam 5", "scores": {"bleu": {"score": 36.126}}},
    ]
    (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    _, measured = record_result(run)
    assert (measured["bleu"], measured["beam_1_bleu"], measured["decoding"]) == (36.13, 34.0, "beam 5")
    assert not any(key.startswith("greedy") for key in measured)  # that was another split
    assert measured["stopped"] == "after 900 of 1,200 steps; weights of step 400, the best on validation"
    assert "commit" not in measured


def test_record_run_without_text_model_writes_its_validation(recipes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    manifest = {"format": 1, "recipe": "bert/hidden", "data": {"train": "wiki"}, "finished": True, "commit": "c0ffee"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "recipe.toml").write_text(RAN)
    events = [
        {"event": "begin", "index": 0, "seconds": 0.0, "device": "cuda"},
        {"event": "step", "index": 0, "seconds": 3.0, "loss": 2.0},
        {"event": "end", "index": 0, "seconds": 9.0, "parameters": 7, "valid": 2.52115},
    ]
    (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    name, measured = record_result(run)
    wanted = {"data": "wiki valid", "valid_nats": 2.5212, "seconds": 9.0, "device": "cuda", "commit": "c0ffee"}
    assert name == "bert/hidden"
    assert {key: measured[key] for key in wanted} == wanted
    assert len((recipes / "bert" / "hidden.log.jsonl").read_text().splitlines()) == 2  # steps are left out
    assert "stopped" not in measured
    (run / "recipe.toml").write_text(RAN + 'data = "enwiki"\n')
    assert record_result(run)[1]["data"] == "enwiki valid"  # its name, not where it lay on somebody's machine
    (run / "manifest.json").write_text(json.dumps({**manifest, "finished": False}))
    with pytest.raises(RunError) as caught:
        record_result(run)
    assert caught.value.path == str(run)


def test_recorded_command_includes_changed_settings(recipes: Path, tmp_path: Path) -> None:
    (recipes / "bert" / "full.toml").write_text(RAN)
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text(json.dumps({"format": 1, "recipe": "bert/full", "finished": True}))
    (run / "log.jsonl").write_text('{"event": "end", "index": 0, "seconds": 9.0, "parameters": 7, "valid": 2.5}\n')
    ran = RAN.replace("[model]", "[model]\nlayers = 3").replace(
        "steps = 2", 'steps = 5\ndata = "/mine/x.txt"\nseed = 7'
    )
    (run / "recipe.toml").write_text(ran)
    assert record_result(run)[1]["command"] == "nextword train bert/full --set phase.0.steps=5 --set model.layers=3"
    (run / "recipe.toml").write_text(RAN)
    assert record_result(run)[1]["command"] == "nextword train bert/full"
