"""Recipes: strict keys, one parent, changes by --set, a dump that loads again, and results written beside the rest."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import InvalidSetting, MissingFile, UnknownName
from nextword.recipe import RECIPES, load_recipe, parse_recipe, recipe_names, recipe_toml, record_measured

TABLES: dict[str, Any] = {
    "paper": {"slug": "lstm"},
    "tokenizer": {"kind": "bytes"},
    "model": {"width": 8},
    "phase": [
        {"data": "python", "epochs": 2},
        {"name": "fine", "data": "web", "steps": 5, "optimizer": {"kind": "sgd", "rate": 0.5}},
    ],
}


def changed(*changes: str) -> Any:
    return parse_recipe(TABLES, "here", changes)


def written(folder: Path, text: str, name: str = "mine.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


# ------------------------------------------------------------------------------------------------ finding


def test_by_name_by_slug_alone_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_recipe("lstm/tiny").slug == "lstm"
    assert load_recipe(RECIPES / "lstm" / "tiny.toml") == load_recipe("lstm/tiny")
    with pytest.raises(UnknownName, match="gru/small, gru/tiny"):
        load_recipe("gru")
    with pytest.raises(UnknownName, match="'lstm/tiny'"):
        load_recipe("lstm/tyni")
    with pytest.raises(MissingFile, match=r"nowhere\.toml"):
        load_recipe("nowhere.toml")
    with pytest.raises(InvalidSetting, match=r"mine\.toml"):
        load_recipe(written(tmp_path, "[paper"))
    monkeypatch.setattr("nextword.recipe.recipe_names", lambda: ["solo/one", "lstm/tiny"])
    monkeypatch.setattr("nextword.recipe.RECIPES", tmp_path)
    (tmp_path / "solo").mkdir()
    written(tmp_path / "solo", (RECIPES / "lstm" / "tiny.toml").read_text(), "one.toml")
    assert load_recipe("solo").name == "solo/one"


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_loads_and_its_dump_loads_to_the_same(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    again = load_recipe(written(tmp_path, recipe_toml(recipe)))
    assert replace(again, name="", path=None) == replace(recipe, name="", path=None, measured={}, compare={})
    assert recipe_toml(again) == recipe_toml(recipe)


@pytest.mark.parametrize(
    ("table", "value", "key"),
    [
        ("tokenizer", {"kind": {"a": 1}}, "tokenizer.kind"),
        ("phase", [{"data": "python", "steps": 1, "schedule": {"kind": ["x"]}}], "phase.0.schedule.kind"),
        ("phase", [{"data": "python", "steps": 1, "decontaminate": 3}], "decontaminate"),
        ("paper", {"slug": ["lstm"]}, "paper.slug"),
    ],
)
def test_a_name_that_is_no_string_is_refused(table: str, value: Any, key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        parse_recipe({**TABLES, table: value}, "here")
    assert error.value.key == key


# ------------------------------------------------------------------------------------------------ extends


def test_a_recipe_extends_one_parent_table_by_table(tmp_path: Path) -> None:
    parent = load_recipe("lstm/zaremba-small")
    assert parent.measured  # which belong to it, and not to those that extend it
    child = load_recipe(written(tmp_path, 'extends = "lstm/zaremba-small"\n[model]\nwidth = 7\n'))
    assert child.model == {"width": 7}  # the whole table is replaced
    assert child.phases == parent.phases
    assert (child.paper, child.reported, child.measured) == (parent.paper, parent.reported, {})


def test_a_parent_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="'lstm/tiny'"):
        load_recipe(written(tmp_path, 'extends = "lstm/tinny"\n'))


# ------------------------------------------------------------------------------------------------ --set


def test_phases_are_addressed_by_number_or_name() -> None:
    assert changed("phase.1.steps=9").phases[1].steps == 9
    assert changed("phase.fine.steps=9").phases[1].steps == 9
    assert changed("phase.0.epochs=9").phases[0].epochs == 9
    assert changed("phase.*.epochs=9").phases[0].epochs == 9
    assert changed("phase.train.epochs=9").phases[0].epochs == 9  # a phase without a name is called train
    with pytest.raises(UnknownName, match=r"'fin'.*fine"):
        changed("phase.fin.steps=9")
    with pytest.raises(InvalidSetting):
        changed("phase.steps=9")


def test_values_are_toml_or_bare_words() -> None:
    assert changed("model.width=16").model["width"] == 16
    assert changed("phase.fine.optimizer.rate=1e-3").phases[1].optimizer == {"kind": "sgd", "rate": 0.001}
    assert changed("model.tied=true").model["tied"] is True
    assert changed("tokenizer.kind=words").tokenizer["kind"] == "words"
    assert changed("phase.0.data=some/file.txt").phases[0].data == "some/file.txt"
    assert changed('phase.0.batches={kind="windows", rows=3}').phases[0].batches == {"kind": "windows", "rows": 3}
    assert changed("phase.0.schedule=cosine").phases[0].schedule == {"kind": "cosine"}


def test_a_new_budget_replaces_the_old_one() -> None:
    phase = changed("phase.0.minutes=0.5").phases[0]
    assert (phase.minutes, phase.epochs, phase.steps) == (0.5, 0, 0)
    phase = changed("phase.0.minutes=0.5", "phase.0.steps=3").phases[0]
    assert (phase.minutes, phase.epochs, phase.steps) == (0, 0, 3)
    assert changed("phase.0.minutes=0.5").phases[1].steps == 5  # that of the other phase stays


def test_changes_leave_the_given_tables_alone() -> None:
    before = tomllib.loads(recipe_toml(changed()))
    changed("model.width=99", "phase.0.steps=1", "phase.fine.optimizer.rate=9.0")
    assert tomllib.loads(recipe_toml(changed())) == before
    assert TABLES["model"] == {"width": 8}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("model.width", "model.width"),
        ("phase.0.clip.norm=3", "clip"),
        ("model=3", "model"),
        ("phase.0.steps=many", "steps"),
        ("phase.0.steps=-3", "steps"),
        ("phase.0.keep=first", "keep"),
        ("phase.0.accumulate=0", "accumulate"),
        ("phase.0.log_every=0", "log_every"),
    ],
)
def test_impossible_changes_are_refused(change: str, key: str) -> None:
    with pytest.raises(InvalidSetting) as invalid:
        changed(change)
    assert invalid.value.key == key


@pytest.mark.parametrize(
    ("change", "name", "suggestion"),
    [("modell.width=3", "modell", "'model'"), ("phase.0.epoch=3", "epoch", "'epochs'")],
)
def test_unknown_names_are_refused_with_a_suggestion(change: str, name: str, suggestion: str) -> None:
    with pytest.raises(UnknownName, match=suggestion) as unknown:
        changed(change)
    assert unknown.value.name == name


def test_data_for_the_first_phase_or_the_one_named() -> None:
    recipe = changed().with_data(["my.txt"])
    assert [phase.data for phase in recipe.phases] == ["my.txt", "web"]
    recipe = changed().with_data(["fine=my.txt"])
    assert [phase.data for phase in recipe.phases] == ["python", "my.txt"]
    recipe = changed().with_data(["odd=name.txt"])  # no phase of that name: a path with a = in it
    assert recipe.phases[0].data == "odd=name.txt"


# ------------------------------------------------------------------------------------------------ strictness


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        ({"phase": [{"epochs": 1, "steps": 1}]}, "budget"),
        ({"phase": [{}]}, "budget"),
        ({"phase": {"epochs": 1}}, "phase"),
        ({"phase": []}, "phase"),
        ({"paper": {}}, "paper.slug"),
    ],
)
def test_tables_are_checked(tables: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidSetting) as invalid:
        parse_recipe({**TABLES, **tables}, "here")
    assert invalid.value.key == key


@pytest.mark.parametrize(
    ("tables", "suggestion"),
    [({"modle": {}}, "'model'"), ({"phase": [{"epochs": 1, "optimiser": {}}]}, "'optimizer'")],
)
def test_unknown_keys_are_refused_with_a_suggestion(tables: dict[str, Any], suggestion: str) -> None:
    with pytest.raises(UnknownName, match=suggestion):
        parse_recipe({**TABLES, **tables}, "here")


@pytest.mark.parametrize("table", ["paper", "tokenizer", "model", "phase"])
def test_no_table_may_be_missing(table: str) -> None:
    with pytest.raises(InvalidSetting, match=rf"\[{table}\]"):
        parse_recipe({name: value for name, value in TABLES.items() if name != table}, "here")


# ------------------------------------------------------------------------------------------------ [measured]

REST = (
    b"# a comment, \xc3\xa4 and a line separator \xe2\x80\xa8 inside\n"
    b'[paper]\nslug = "lstm"   # odd   spacing\n\n\n[model]\nwidth=8\n'
    b'\n[tokenizer]\nkind = "bytes"\n\n[[phase]]\nepochs = 1\nbatches = { kind = "rows" } # kept'
)


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_results_are_written_and_the_rest_stays_byte_for_byte(end: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(REST + end)
    record_measured(path, {"test_perplexity": 114.5, "commit": "abc"})
    once = path.read_bytes()
    assert once.startswith(REST + b"\n\n[measured]\n")
    assert load_recipe(path).measured == {"test_perplexity": 114.5, "commit": "abc"}
    record_measured(path, {"test_perplexity": 99.0, "parts": [{"a": 1, "long": "x" * 90}, {"a": 2, "long": "y" * 90}]})
    record_measured(path, {"test_perplexity": 82.7})
    assert path.read_bytes() == REST + b"\n\n[measured]\ntest_perplexity = 82.7\n"
    assert load_recipe(path).measured == {"test_perplexity": 82.7}


def test_windows_line_ends_stay(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(REST.replace(b"\n", b"\r\n") + b"\r\n")
    record_measured(path, {"x": 1})
    assert path.read_bytes().startswith(REST.replace(b"\n", b"\r\n"))
    assert load_recipe(path).measured == {"x": 1}


def test_a_recipe_that_extends_itself_says_so(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(f'extends = "{second}"\n')
    second.write_text(f'extends = "{first}"\n')
    for path in (first, second):
        with pytest.raises(InvalidSetting, match=r"first\.toml.*second\.toml|second\.toml.*first\.toml"):
            load_recipe(str(path))


def test_a_star_changes_every_phase() -> None:
    recipe = load_recipe(
        "ulmfit/classify", ["phase.*.optimizer.layer_discount=1", "phase.*.trainable_groups=0", "phase.all.steps=7"]
    )
    assert [phase.optimizer["layer_discount"] for phase in recipe.phases] == [1] * 5
    assert [phase.trainable_groups for phase in recipe.phases] == [0] * 5
    assert [phase.optimizer["rate"] for phase in recipe.phases] == [0.01] * 5
    assert [phase.steps for phase in recipe.phases] == [0, 0, 0, 0, 7]
    with pytest.raises(UnknownName, match="'trian'"):
        load_recipe("ulmfit/classify", ["phase.*.trian=1"])


def test_data_is_that_of_all_phases_that_name_none() -> None:
    recipe = load_recipe("ulmfit/lm").with_data(["reviews.csv"])
    assert [phase.data for phase in recipe.phases] == ["reviews.csv", "reviews.csv"]
    recipe = load_recipe("ulmfit/lm").with_data(["reviews.csv", "all=others.csv"])
    assert [phase.data for phase in recipe.phases] == ["reviews.csv", "others.csv"]
    named = load_recipe("awd-lstm/ptb").with_data(["mine.txt"])
    assert [phase.data for phase in named.phases] == ["mine.txt", "ptb"]


def test_min_steps_belong_to_a_budget_in_epochs_that_others_replace():
    assert load_recipe("bert/finetune").phases[0].min_steps == 200
    for change in ("phase.0.epochs=1", "phase.0.steps=3", "phase.0.minutes=1"):
        assert load_recipe("bert/finetune", [change]).phases[0].min_steps == 0
    assert load_recipe("bert/finetune", ["phase.0.min_steps=50"]).phases[0].min_steps == 50
    with pytest.raises(InvalidSetting) as caught:
        load_recipe("bert/finetune", ["phase.0.steps=3", "phase.0.min_steps=50"])
    assert caught.value.key == "min_steps"
