from __future__ import annotations

import pytest

from nextword.core.errors import (
    InvalidSetting,
    UnknownName,
    as_keywords,
    in_command_line,
    invalid,
    options_as_keywords,
    unknown,
)


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


@pytest.mark.parametrize(
    ("message", "in_python"),
    [
        ("Continue it with --resume, or choose another --out.", "Continue it with resume=True, or choose another out."),
        ("Name it with --from RUN.", "Name it with from_=RUN."),
        ("Name it with --text-pair.", "Name it with text_pair."),
        ("Resume it: nextword train --resume --out runs/a. It took --seed 1.", None),
        ("It is written by `nextword data NAME --out OUT`, as --data.", None),
        ("Leave it out: --set 'phase.*.lm_weight=0'.", "Leave it out: changes=['phase.*.lm_weight=0']."),
        ("Use --set task.shots=0.", "Use changes=['task.shots=0']."),
        ("Write it with --to huggingface, where it fits.", "Write it with to='huggingface', where it fits."),
        ("/tmp/frames/frames-0123456789abcdef.jsonl: no rows.", "data in memory: no rows."),
    ],
)
def test_options_are_keywords_outside_of_the_command_line(message: str, in_python: str | None) -> None:
    if in_python is None:  # a command that can be typed stays
        head, option = message.rsplit("--", 1)
        in_python = head + option
    assert as_keywords(message) == in_python
    token = in_command_line.set(True)
    assert as_keywords(message) == message
    in_command_line.reset(token)


@pytest.mark.parametrize("quoted", ["x" * 100_000, "--set " * 20_000, "nextword a " * 10_000, "frames-" * 10_000])
def test_message_that_quotes_a_long_text_is_short(quoted: str) -> None:
    """Looking for options in it takes no time, either."""
    with pytest.raises(InvalidSetting) as error, options_as_keywords():
        raise invalid("model.order", quoted, "must be a number. Choose another --out.")
    message = str(error.value)
    assert len(message) < 5000
    assert message.startswith("model.order = ")
    assert message.endswith("Choose another out.")
