"""The public functions: every command is one call, importing is quick, and results speak for themselves."""

from __future__ import annotations

import importlib
import pydoc
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import nextword as nw
from nextword.core.errors import InvalidSetting, RunError, UnknownName, as_keywords
from nextword.core.types import Prediction
from nextword.results import Predictions
from nextword.run_folder import RunFolder
from tests.support.errors import raises

SMALL: dict[str, Any] = {"tokenizer": {"kind": "bytes"}, "model": {"width": 8}, "steps": 6, "validate_every": 3}
FUNCTIONS = ("train", "load", "evaluate", "compare", "transfer", "predict", "convert", "papers", "runs", "open_corpus")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(f"the cat sat on the mat number {i} ." for i in range(400)))
    return path


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> nw.Run:
    folder = tmp_path_factory.mktemp("runs") / "lstm"
    return nw.train("lstm/tiny", text, out=folder, seed=3, progress=False, **SMALL)


# ------------------------------------------------------------------------------------------------ the namespace


def test_dir_shows_the_public_names() -> None:
    assert dir(nw) == sorted(nw.__all__)
    assert not {name for name in dir(nw) if name.startswith("_")} - {"__version__"}


@pytest.mark.parametrize("name", nw.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    code = f"from nextword import {name}; import nextword; assert {name} is nextword.{name}"
    exec(code, {})


def test_an_unknown_name_suggests_a_public_one() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'compare'"):
        nw.compere  # noqa: B018
    assert not hasattr(nw, "compere")


def test_import_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, nextword; dir(nextword); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_is_a_tour() -> None:
    page = pydoc.plain(pydoc.render_doc(nw))
    for name in ("train", "load", "evaluate", "compare", "transfer", "predict", "convert", "papers"):
        assert name in page
    for name in FUNCTIONS:
        assert f"nextword.{name}(" in (getattr(nw, name).__doc__ or ""), name


def test_signatures_are_annotated() -> None:
    import inspect

    for name in FUNCTIONS:
        signature = inspect.signature(getattr(nw, name))
        assert signature.return_annotation is not inspect.Signature.empty
        assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values()), name


# ------------------------------------------------------------------------------------------------ training


def test_train_evaluates_the_run_and_writes_its_card(run: nw.Run) -> None:
    assert run.is_finished
    assert run.evaluation is not None
    assert run.evaluation.bits_per_byte > 0
    assert run.recipe.phases[0].seed == 3
    assert run.recipe.model["width"] == 8
    assert run.recipe.tokenizer == {"kind": "bytes"}
    assert any(line.get("event") == "evaluation" for line in run.folder.read_log())
    assert "bits/byte" in (run.path / "card.md").read_text()
    assert set(run.evaluation.values["can"]) == run.load(device="cpu").can
    assert run.model is run.model


def test_a_run_describes_itself(run: nw.Run) -> None:
    for shown in (repr(run), run._repr_html_()):
        for fact in ("lstm/tiny", "finished", "bits per byte", f"{run.path}", "kB"):
            assert fact in shown
    assert "parameters" in repr(run)
    assert run.scores["bits_per_byte"] == run.evaluation.bits_per_byte
    assert run.parameters == run.model.parameters
    assert run.size > 0
    assert 0 < run.minutes < 1
    assert [line["step"] for line in run.history] == [3, 6]
    assert "bits per byte" in repr(run.evaluation)
    assert "token perplexity" in run.evaluation._repr_html_()


def test_a_run_is_accepted_as_its_path(run: nw.Run) -> None:
    assert nw.load(run).parameters == run.parameters
    assert nw.evaluate(run, progress=False).bits_per_byte == run.evaluation.bits_per_byte


def test_runs_lists_run_folders(run: nw.Run) -> None:
    runs = nw.runs(run.path.parent)
    assert [found.path for found in runs] == [run.path]
    assert "lstm/tiny" in runs._repr_html_()
    (run.path.parent / "broken").mkdir()
    (run.path.parent / "broken" / "manifest.json").write_text("{")
    table = nw.runs(run.path.parent)
    assert "unreadable" in table._repr_html_()
    assert "manifest.json" in repr(table)


def test_lists_are_shown_with_one_line_per_item(run: nw.Run) -> None:
    assert repr(run) in repr(nw.runs(run.path.parent)).splitlines()
    assert any(line.startswith("lstm ") and "lstm/tiny" in line for line in repr(nw.papers()).splitlines())
    predictions = Predictions([Prediction("a", {"a": 0.75, "b": 0.25})] * 30, ["some text"] * 30, {"accuracy": 0.5})
    lines = repr(predictions).splitlines()
    assert "30" in lines[0]
    assert "accuracy 50.0" in lines[0]
    assert [word in lines[1] for word in ("a", "0.75", "some text")] == [True] * 3
    assert len(lines) < 25
    assert repr(Predictions([])) == "Predictions(0 examples)"


def test_a_recipe_shows_its_settings(run: nw.Run) -> None:
    settings = tomllib.loads(repr(run.recipe).partition("\n")[2])
    assert settings["model"]["width"] == 8
    assert settings["phase"][0]["seed"] == 3
    assert "width" in run.recipe._repr_html_()


def test_a_prediction_shows_its_most_probable_labels() -> None:
    assert repr(Prediction("b", {"a": 0.25, "b": 0.75})) == "Prediction('b', {'b': 0.750, 'a': 0.250})"
    assert repr(Prediction("", {}, 2.5)) == "Prediction(2.5)"


def test_a_command_to_install_keeps_its_options() -> None:
    message = 'Install it: pip install --upgrade "nextword[starters]". Or choose another --out.'
    assert as_keywords(message) == 'Install it: pip install --upgrade "nextword[starters]". Or choose another out.'


def test_long_texts_in_a_list_are_no_paths(tmp_path: Path) -> None:
    texts = [f"the cat sat on the mat {i} " * 20 for i in range(40)]
    assert nw.train("ngram/tiny", texts, out=tmp_path / "run", progress=False).is_finished


def test_settings_are_keywords(text: Path, tmp_path: Path) -> None:
    settings = SMALL | {"optimizer": {"rate": 0.125}, "batches": {"rows": 2}}
    events = nw.train("lstm/tiny", text, out=tmp_path / "run", events=True, stop=lambda: True, **settings)
    list(events)
    phase = RunFolder.open(tmp_path / "run").recipe.phases[0]
    assert (phase.steps, phase.epochs, phase.optimizer["rate"], phase.batches["rows"]) == (6, 0, 0.125, 2)
    assert "kind" in phase.optimizer, "a table without a kind keeps the recipe's other settings"


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"minuts": 2}, "Did you mean 'minutes'?"),
        ({"modle": {"width": 8}}, "Did you mean 'model'?"),
        ({"model": {"widht": 8}}, "Did you mean 'width'?"),
        ({"phase": {"pretrian": {"steps": 1}}}, "pretrian"),
        ({"learning_rate": 0.1}, "Use optimizer={'rate': 0.1}."),
        ({"batch_size": 8}, "Use batches={'rows': 8}."),
        ({"width": 8}, "Use model={'width': 8}."),
        ({"model.width": 8}, "Use model={'width': 8}."),
        ({"num_epochs": 8}, "Use epochs=8."),
        ({"frm": "runs/bert"}, "Did you mean 'from_'?"),
    ],
)
def test_an_unknown_setting_suggests_a_known_one(text: Path, tmp_path: Path, settings: Any, hint: str) -> None:
    with raises(UnknownName) as error:
        nw.train("lstm/tiny", text, out=tmp_path / "run", progress=False, **settings)
    assert hint in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda: nw.train(3), "recipe"),
        (lambda: nw.train("lstm/tiny", data=3), "data"),
        (lambda: nw.train("lstm/tiny", out=3), "out"),
        (lambda: nw.train("lstm/tiny", seed="a"), "seed"),
        (lambda: nw.load(3), "run"),
        (lambda: nw.evaluate(3), "run"),
        (lambda: nw.compare(minutes="5"), "minutes"),
        (lambda: nw.compare([3]), "models"),
        (lambda: nw.transfer("bert/finetune", from_=3), "from_"),
        (lambda: nw.predict("runs/bert", ["a text"], labels="good,bad"), "labels"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(call: Any, key: str) -> None:
    with raises(InvalidSetting) as error:
        call()
    assert error.value.key == key


def test_errors_name_keywords_in_python(run: nw.Run) -> None:
    with raises(RunError) as error:
        nw.train("lstm/tiny", out=run, progress=False)
    assert "resume=True, choose another out" in str(error.value)
    with raises(InvalidSetting) as missing:
        nw.transfer("bert/finetune", data=[("A fine film.", "good")])
    assert "from_=RUN" in str(missing.value)
    assert "--" not in str(missing.value)


def test_generation_is_a_text_and_an_iterator(run: nw.Run) -> None:
    stop = nw.Stop(max_tokens=12)
    streamed = [piece.text for piece in run.model.generate("the", stop=stop)]
    generation = run.model.generate("the", stop=stop)
    next(generation)
    assert generation.text == str(generation) == "".join(streamed)
    assert repr(generation.text) in repr(generation)
    assert [piece.text for piece in generation] == streamed[1:], "showing the text does not move the iteration"


def test_models_check_their_arguments(run: nw.Run) -> None:
    for call in (
        lambda: run.model.score(["one", "two"]),
        lambda: run.model.next(3),
        lambda: run.model.generate(3),
        lambda: run.model.embed("one text"),
        lambda: run.model.generate("the", "sample"),
        lambda: run.model.generate("the", nw.Sample(temperature="0.8")),
    ):
        with raises(InvalidSetting):
            call()


def test_a_setting_of_one_of_several_phases_needs_its_name() -> None:
    with raises(InvalidSetting) as error:
        nw.train("awd-lstm/ptb", minutes=1)
    assert "phase={" in str(error.value)


def test_the_default_folder_is_named_after_the_recipe(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = nw.train("lstm/tiny", text, stop=lambda: True, progress=False, **SMALL)
    assert run.path == Path("runs/lstm-tiny")
    with raises(RunError):
        nw.train("lstm/tiny", text, progress=False, **SMALL)


def test_train_on_data_in_memory(tmp_path: Path) -> None:
    texts = [f"the cat sat on the mat number {i} ." for i in range(300)]
    run = nw.train("lstm/tiny", texts, out=tmp_path / "list", progress=False, **SMALL)
    assert run.is_finished
    columns = nw.train("lstm/tiny", {"text": texts}, out=tmp_path / "columns", progress=False, **SMALL)
    assert columns.evaluation.bits_per_byte == run.evaluation.bits_per_byte
    pandas = pytest.importorskip("pandas")
    result = nw.evaluate(run, pandas.DataFrame({"text": texts[:20]}), progress=False)
    assert result.values["bytes"] > 0
    assert "train" in nw.open_corpus(texts).splits


def test_a_list_of_files_is_not_a_list_of_texts(text: Path, tmp_path: Path) -> None:
    with raises(InvalidSetting) as error:
        nw.train("lstm/tiny", [str(text)], out=tmp_path / "run")
    assert "list of files" in str(error.value)


# ------------------------------------------------------------------------------------------------ events and resuming


def test_events_end_with_the_evaluation(text: Path, tmp_path: Path) -> None:
    events = list(nw.train("lstm/tiny", text, out=tmp_path / "run", events=True, **SMALL))
    assert [event.kind for event in events][-2:] == ["end", "evaluate"]
    assert events[-1].values["bits_per_byte"] == nw.runs(tmp_path)[0].scores["bits_per_byte"]
    assert all(event.values["perplexity"] > 1 for event in events if event.kind == "valid")


def test_events_closed_early_leave_a_run_that_resumes_bit_exactly(text: Path, tmp_path: Path) -> None:
    for event in nw.train("lstm/tiny", text, out=tmp_path / "closed", events=True, **SMALL):
        if event.kind == "valid":
            break
    closed = nw.Run(tmp_path / "closed")
    assert not closed.is_finished
    assert closed.folder.has_state
    assert "unfinished" in repr(closed)
    assert "resume=True" in closed._repr_html_()
    resumed = nw.train(resume=True, out=closed, progress=False)
    whole = nw.train("lstm/tiny", text, out=tmp_path / "whole", progress=False, **SMALL)
    assert resumed.is_finished
    assert resumed.evaluation.values["nats"] == whole.evaluation.values["nats"]


def test_interrupted_training_is_resumed_without_a_recipe(text: Path, tmp_path: Path) -> None:
    run = nw.train("lstm/tiny", text, out=tmp_path / "run", stop=lambda: True, progress=False, **SMALL)
    assert not run.is_finished
    assert not (run.path / "card.md").exists()
    run = nw.train(out=run, resume=True, progress=False)
    assert run.is_finished
    assert (run.path / "card.md").is_file()


def test_resume_refuses_other_settings(tmp_path: Path) -> None:
    for options in ({"data": "my.txt"}, {"seed": 2}, {"steps": 2}, {"changes": ["phase.0.steps=2"]}):
        with pytest.raises(InvalidSetting):
            nw.train(out=tmp_path / "run", resume=True, **options)
    with pytest.raises(InvalidSetting):
        nw.train(resume=True)
    with pytest.raises(InvalidSetting):
        nw.train()


# ------------------------------------------------------------------------------------------------ what there is


def test_a_corpus_describes_itself(text: Path) -> None:
    corpus = nw.open_corpus(text)
    assert "train" in repr(corpus)
    assert "kB" in repr(corpus)
    assert "text.txt" in corpus._repr_html_()


def test_papers_lists_every_model_with_its_recipes() -> None:
    papers = nw.papers()
    by_slug = {paper.slug: paper for paper in papers}
    assert "lstm/tiny" in by_slug["lstm"].recipes
    assert "generate" in by_slug["gpt2"].can
    assert "generate" not in by_slug["bert"].can
    assert "lstm/tiny" in papers._repr_html_()
    assert "lstm/tiny" in by_slug["lstm"]._repr_html_()


def test_public_types_have_docstrings() -> None:
    for name in nw.__all__:
        if name != "__version__":
            assert (getattr(nw, name).__doc__ or "").strip(), name
    assert importlib.import_module("nextword").__doc__
