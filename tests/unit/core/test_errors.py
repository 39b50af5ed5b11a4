from __future__ import annotations

from nextword.core.errors import InvalidSetting, UnknownName, invalid, unknown


def test_invalid_names_key_value_and_place() -> None:
    error = invalid("model.order", 0, "must be at least 1.", where="my.toml")
    assert isinstance(error, InvalidSetting)
    assert (error.key, error.value) == ("model.order", 0)
    assert str(error) == "my.toml: model.order = 0 must be at least 1."


def test_unknown_suggests_the_closest_name_and_lists_all() -> None:
    error = unknown("optimizer", "adma", ["sgd", "adam"])
    assert isinstance(error, UnknownName)
    assert (error.name, error.known) == ("adma", ("sgd", "adam"))
    assert "'adam'" in str(error)
    assert "sgd, adam" in str(error)


def test_unknown_with_hint_replaces_the_list() -> None:
    error = unknown("recipe", "xyz", ["lstm/small"], where="--from", hint="`nextword papers` lists them.")
    assert "lstm/small" not in str(error)
    assert str(error).startswith("--from: ")
