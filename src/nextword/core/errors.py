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

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path

# Control characters except tab and newline, which terminals obey, and bytes of names that are not UTF-8
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


MAX_MESSAGE = 4000  # characters


def show_controls(text: str) -> str:
    """The text with control characters spelled out, "\\x1b": names and texts may come from strangers."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class NextwordError(Exception):
    """A mistake that the user can fix."""

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > MAX_MESSAGE:  # it quotes a file
            text = f"{text[: MAX_MESSAGE // 2]} … {text[-MAX_MESSAGE // 2 :]}"
        return show_controls(text)


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


class CannotWrite(NextwordError):
    """A file or a folder cannot be written: the disk is full, it is read-only, a limit is reached."""

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


class OutOfMemory(NextwordError):
    """Memory is used up, or a limit on it is reached."""


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


# ------------------------------------------------------------------------------------------------ the operating system

PERMISSION = ("there is no permission", "Change the permissions, or choose another place")
OS_PROBLEMS = {  # errno → what is wrong, and what to do
    errno.ENOSPC: ("the disk is full", "Free some space"),
    errno.EDQUOT: ("the disk quota is used up", "Free some space"),
    errno.EFBIG: ("a file is larger than the limit (ulimit -f) or than the file system allows", "Raise the limit"),
    errno.EROFS: ("the file system is read-only", "Choose another place"),
    errno.EACCES: PERMISSION,
    errno.EPERM: PERMISSION,
    errno.ENOENT: ("it does not exist, or was removed meanwhile", "Check the path"),
    errno.ENOTDIR: ("one of its folders is a file", "Check the path"),
    errno.EISDIR: ("it is a folder, and a file is needed", "Check the path"),
    errno.EEXIST: ("something else has this name", "Choose another name"),
    errno.ENOTEMPTY: ("something else has this name", "Choose another name"),
    errno.ENAMETOOLONG: ("the name is too long", "Choose a shorter name"),
    errno.ELOOP: ("it is a symbolic link, which is not followed here", "Replace it by what it names"),
    errno.EIO: ("the disk has an input/output error", "Check the disk"),
    errno.EMFILE: ("too many files are open", "Raise the limit (ulimit -n)"),
    errno.ENFILE: ("too many files are open", "End other programs"),
    errno.ENOMEM: ("memory is used up", "Raise the limit (ulimit -v), or use a smaller model or batch"),
}
_QUOTED_CODE = re.compile(r"\bos (?:error |\{ code: )(\d+)", re.IGNORECASE)  # as libraries written in Rust quote it


def describe_os_error(problem: OSError) -> tuple[str, str]:
    """What is wrong, and what to do."""
    return OS_PROBLEMS.get(problem.errno or 0) or (problem.strerror or str(problem), "Check the path and the disk")


_NO_MEMORY = re.compile(  # as torch, CUDA, C++ and the dynamic linker say it
    r"can't allocate memory|not enough memory|out of memory|cannot allocate memory|bad_alloc|failed to map segment|"
    r"can't start new thread",
    re.IGNORECASE,
)


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether the cause of an error is a lack of memory, in the CPU or in a GPU."""
    if isinstance(problem, OSError):
        return problem.errno == errno.ENOMEM
    is_quoted = isinstance(problem, (RuntimeError, ImportError)) and bool(_NO_MEMORY.search(str(problem)))
    return isinstance(problem, MemoryError) or is_quoted


@contextmanager
def explain_memory_errors(remedy: str) -> Iterator[None]:
    """Turn a lack of memory into OutOfMemory; `remedy` says what to do."""
    try:
        yield
    except NextwordError:
        raise
    except Exception as problem:
        if not is_out_of_memory(problem):
            raise
        detail = " ".join(str(problem).split())[:200]
        raise OutOfMemory(f"Memory is used up{detail and f' ({detail})'}. {remedy}") from problem


SMALLER = "Use a smaller model, batch or text, end other programs, or raise the limit (ulimit -v)."


TEMPORARY = "the folder for temporary files (TMPDIR)"


@contextmanager
def explain_write_errors(folder: str | Path, ending: str = ", then run the command again.") -> Iterator[None]:
    """Turn errors of the operating system into CannotWrite; `ending` completes "Free some space"."""
    try:
        yield
    except NextwordError:
        raise
    except UnicodeEncodeError as problem:
        before, after = problem.object[: problem.start], problem.object[problem.start :]
        part = re.split(r"[\"'\n]", before)[-1][-100:] + re.split(r"[\"'\n]", after)[0][:100]  # within quotes
        message = f"Cannot write to {folder}: {part} has a name that is not valid UTF-8. Rename the file."
        raise CannotWrite(message, path=folder) from problem
    except Exception as problem:
        quoted = _QUOTED_CODE.search(str(problem))  # libraries wrap an OSError in errors of their own
        if not isinstance(problem, OSError) and quoted:
            problem = OSError(int(quoted[1]), os.strerror(int(quoted[1])))
        if not isinstance(problem, OSError):
            raise
        what, remedy = describe_os_error(problem)
        raise CannotWrite(f"Cannot write to {folder}: {what}. {remedy}{ending}", path=folder) from problem


# ------------------------------------------------------------------------------------------------ options and keywords

# Messages name options, as the command line has them. In Python, the public functions show them as keywords.
in_command_line: ContextVar[bool] = ContextVar("in_command_line", default=False)

# These stay, for they can be typed
COMMAND = re.compile(r"`nextword [^`]*`|\b(?:nextword (?!\()[a-z]+|pip install) .*?(?=[.,)](?:\s|$)|$)")
OPTION = re.compile(
    r"--set (?P<change>'[^']+'|\S+[^\s.,:)])"
    r"|--(?P<choice>to|kind) (?!out\b|and\b|says\b)(?P<word>[a-z_]+)"
    r"|--(?P<name>[a-z][a-z-]*)(?:[ =](?P<value>[A-Z][A-Z,]*)\b)?"
)
FRAMES = re.compile(r"(?<![^\s'\"])[^\s'\"]*\bframes-[0-9a-f]{16}(?:\.jsonl)?")  # see data/frames.py
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
    """Within this context (also a decorator), errors name keywords in place of options, also those of memory."""
    try:
        with explain_memory_errors(SMALLER):
            yield
    except NextwordError as error:
        error.args = (as_keywords(str(error)), *error.args[1:])
        raise
