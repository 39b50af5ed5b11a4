"""Errors that a user can fix. The command line prints their message; anything else is a bug and shows a traceback.

A message says what happened, what was expected and what to do, in at most three short sentences. The most common
errors have a function that writes the message:

    raise invalid("model.order", 0, "must be at least 1.")     # model.order = 0 must be at least 1.
    raise unknown("optimizer", "adma", OPTIMIZERS)              # There is no optimizer 'adma'. Did you mean 'adam'? …
    raise bad_data(path, "no label. Correct the line.", 7)      # a.tsv, line 7: no label. Correct the line.

Programs and tests look at the type and its fields instead, so messages can be reworded freely:

    try:
        nextword.load("runs/mine")
    except RunError as error:
        print(error.path)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path


class NextwordError(Exception):
    """A mistake that the user can fix."""


class InvalidSetting(NextwordError):
    """A recipe key, an option or an argument has a value that it cannot have."""

    def __init__(self, message: str, *, key: str = "", value: object = None) -> None:
        super().__init__(message)
        self.key, self.value = key, value


class UnknownName(NextwordError):
    """Nothing has this name: a model, a recipe, a key, a column, a data set, a study."""

    def __init__(self, message: str, *, name: str = "", known: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.name, self.known = name, tuple(known)


class DataError(NextwordError):
    """The content of a file or of a data set cannot be used."""

    def __init__(self, message: str, *, path: str | Path = "", line: int | None = None) -> None:
        super().__init__(message)
        self.path, self.line = str(path), line


class MissingFile(NextwordError):
    """A file or a folder does not exist or cannot be read."""

    def __init__(self, message: str, *, path: str | Path = "") -> None:
        super().__init__(message)
        self.path = str(path)


class RunError(NextwordError):
    """A run folder is not in the state that the command needs: in use, unfinished, damaged, or of another recipe."""

    def __init__(self, message: str, *, path: str | Path = "") -> None:
        super().__init__(message)
        self.path = str(path)


class Unsupported(NextwordError):
    """The model cannot do this, in principle or because the required component is absent."""

    def __init__(self, message: str, *, ability: str = "") -> None:
        super().__init__(message)
        self.ability = ability


class MissingAbility(Unsupported, AttributeError):
    """A method that this model does not have: also an AttributeError, so that hasattr(model, "fill") is False."""


class MissingDependency(NextwordError):
    """An optional package is not installed."""

    def __init__(self, message: str, *, package: str = "") -> None:
        super().__init__(message)
        self.package = package


class TrainingDiverged(NextwordError):
    """The loss is NaN, infinite or absurdly large."""

    def __init__(self, message: str, *, step: int = 0) -> None:
        super().__init__(message)
        self.step = step


def invalid(key: str, value: object, problem: str, where: str = "") -> InvalidSetting:
    """An InvalidSetting that reads `key = value problem`. `where` names the file or the option that sets the key."""
    place = f"{where}: " if where else ""
    return InvalidSetting(f"{place}{key} = {value!r} {problem}", key=key, value=value)


def unknown(what: str, name: object, known: Iterable[str], *, where: str = "", hint: str = "") -> UnknownName:
    """An UnknownName that lists the known names, and suggests the one closest to `name`.

    `what` is the kind of thing ("optimizer"). `hint` replaces the list of known names.
    """
    known = tuple(known)
    place = f"{where}: there" if where else "There"
    advice = hint or f"Use one of {', '.join(known)}."
    message = f"{place} is no {what} {str(name)!r}.{did_you_mean(str(name), known)} {advice}"
    return UnknownName(message, name=str(name), known=known)


def check_keys(table: str, settings: Mapping[str, object], known: Sequence[str], kind: str) -> None:
    """Raise InvalidSetting for a key of a recipe's table that its `kind` does not have."""
    for key, value in settings.items():
        if key not in known:
            problem = f"is not a setting of kind = {kind!r}.{did_you_mean(key, known)}"
            raise invalid(f"{table}.{key}", value, f"{problem} Use {', '.join(known) or 'none'}.")


def bad_data(path: str | Path, problem: str, line: int | None = None) -> DataError:
    """A DataError that reads `path, line N: problem`."""
    place = f"{path}" if line is None else f"{path}, line {line}"
    return DataError(f"{place}: {problem}", path=path, line=line)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known name closest to this one, or an empty string."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


# ------------------------------------------------------------------------------------------------ options and keywords

# Messages name options, as the command line has them. In Python, the public functions show them as keywords.
in_command_line: ContextVar[bool] = ContextVar("in_command_line", default=False)

COMMAND = re.compile(r"`nextword [^`]*`|\bnextword (?!\()[a-z]+ .*?(?=[.,)](?:\s|$)|$)")  # stays: it can be typed
OPTION = re.compile(
    r"--set (?P<change>'[^']+'|\S+[^\s.,:)])"
    r"|--(?P<choice>to|kind) (?!out\b|and\b|says\b)(?P<word>[a-z_]+)"
    r"|--(?P<name>[a-z][a-z-]*)(?:[ =](?P<value>[A-Z][A-Z,]*)\b)?"
)
FRAMES = re.compile(r"[^\s'\"]*\bframes-[0-9a-f]{16}(?:\.jsonl)?")  # see data/frames.py
FLAGS = ("resume", "scratch", "compare_scratch", "merge_dev", "header")
KEYWORDS = {"from": "from_"}  # where the name of an option is no name in Python


def as_keywords(message: str) -> str:
    """A message with its options as keywords: "choose another --out" becomes "choose another out"."""
    if in_command_line.get():
        return message
    message = FRAMES.sub("data in memory", message)
    parts, at = [], 0
    for command in COMMAND.finditer(message):
        parts += [OPTION.sub(_keyword, message[at : command.start()]), command[0]]
        at = command.end()
    return "".join([*parts, OPTION.sub(_keyword, message[at:])])


def _keyword(option: re.Match[str]) -> str:
    if option["change"]:
        return f"changes=[{option['change'].strip(chr(39))!r}]"
    if option["choice"]:
        return f"{option['choice']}={option['word']!r}"
    name = option["name"].replace("-", "_")
    name = KEYWORDS.get(name, name)
    if name in FLAGS:
        return f"{name}=True"
    if name.removeprefix("no_") in FLAGS:
        return f"{name.removeprefix('no_')}=False"
    return f"{name}={option['value']}" if option["value"] else name


@contextmanager
def options_as_keywords() -> Iterator[None]:
    """Within this context (also a decorator), errors name keywords in place of options."""
    try:
        yield
    except NextwordError as error:
        error.args = (as_keywords(str(error)), *error.args[1:])
        raise
