"""Ways to evaluate that adapt to the text as it goes by: the neural cache, dynamic evaluation, or the one on the other.

Settings come as words, `cache.theta=0.66`, and what they leave open is found on validation text. The result carries the
method's name and all of its settings: no such number is to be taken for the plain model's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from nextword.checkpoint import RunFolder
from nextword.contract_errors import NextwordError
from nextword.evaluation import cache as pointer
from nextword.evaluation import dynamic as adaptation
from nextword.evaluation.cache import SEARCHED, Cache, Part, Progress, check_network
from nextword.evaluation.dynamic import Adapting, Dynamic
from nextword.recipe import suggestion

SEARCHED_SLOWLY = 50_000  # validation tokens for the cache's settings, where reading them means learning
SETTINGS: dict[str, Any] = {"cache": Cache, "dynamic": Dynamic}
UNUSED = ("segments", "old", "fresh", "search")  # how numbers were come by, not what the evaluation is


@dataclass(frozen=True)
class Texts:
    """What a method may need to read besides the text that it scores, opened when it does."""

    train: Callable[[], np.ndarray]  # the run's own training text
    valid: Callable[[], np.ndarray]
    name: str  # of the validation text: "ptb valid"


@dataclass
class Method:
    """A method with all its settings, ready to score a text."""

    network: Any
    cache: Cache | None
    adapting: Adapting | None
    facts: dict[str, Any]  # method, settings, found, found_on
    notes: list[str]

    def nats(self, ids: np.ndarray, progress: Progress | None = None) -> np.ndarray:
        """−log p of every token of one long stream, as `stream_nats` gives; the notes then say what was seen."""
        if self.cache is None and self.adapting is not None:
            return adaptation.dynamic_nats(self.adapting, ids, progress)
        assert self.cache is not None
        assert self.cache.window is not None
        nats, without = pointer.cache_nats(_reading(self.network, self.adapting, ids, progress), self.cache)
        self.facts["without_cache"] = {"nats": float(without.sum())}
        if len(ids):
            perplexity = float(np.exp(without.mean()))
            self.facts["without_cache"]["token_perplexity"] = perplexity
            self.notes.append(f"without the cache, token perplexity is {perplexity:,.2f}")
        if self.cache.window >= len(ids):
            self.notes.append(
                f"the window of {self.cache.window:,} is longer than the text: the cache is over all before"
            )
        return nats

    def context(self, own: int | None) -> int | None:
        """How far back it sees, for a model that by itself sees `own` tokens; None: without bound."""
        if own is None or self.adapting is not None or self.cache is None or self.cache.window is None:
            return None
        return own + self.cache.window


def settings(changes: Sequence[str], cache: bool, dynamic: bool) -> tuple[Cache | None, Dynamic | None]:
    """From words like `cache.theta=0.66` to the settings of the methods that were asked for."""
    asked = {"cache": cache, "dynamic": dynamic}
    values: dict[str, dict[str, Any]] = {name: {} for name, wanted in asked.items() if wanted}
    for change in changes:
        key, equals, text = change.partition("=")
        name, _, field = key.strip().partition(".")
        if not equals or not field or name not in SETTINGS:
            raise NextwordError(f"--set {change}: expected cache.KEY=VALUE or dynamic.KEY=VALUE, as cache.theta=0.66.")
        if name not in values:
            raise NextwordError(f"--set {change} goes with --{name}, which was not asked for.")
        known = {f.name.strip("_"): f for f in fields(SETTINGS[name])}
        if field not in known:
            hint = suggestion(field, list(known))
            raise NextwordError(f"--set {change}: {name} has no '{field}'.{hint} It has {', '.join(known)}.")
        values[name][known[field].name] = _value(text.strip(), str(known[field].type), change)
    made = {name: SETTINGS[name](**given) for name, given in values.items()}
    return made.get("cache"), made.get("dynamic")


def _value(text: str, type: str, change: str) -> Any:
    if type == "str":
        return text.strip("\"'")
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        value = None
    whole = isinstance(value, int) and not isinstance(value, bool)
    if type == "bool" and isinstance(value, bool):
        return value
    if type.startswith("int") and whole:
        return value
    if type.startswith("float") and (whole or isinstance(value, float)):
        return float(value)
    wanted = {"b": "true or false", "i": "a whole number", "f": "a number"}[type[0]]
    raise NextwordError(f"--set {change}: expected {wanted}.")


def prepare_method(
    lm: Any,
    run: RunFolder,
    cache: Cache | None,
    dynamic: Dynamic | None,
    texts: Texts,
    watch: Callable[[str], AbstractContextManager[Progress]] = lambda label: nullcontext(_silent),
) -> Method:
    """Find what the settings leave open; inside `watch(label)` is what to tell how far each part of that is."""
    given = {"cache": cache, "dynamic": dynamic}
    name = " + ".join(key for key, value in given.items() if value is not None)
    check_network(lm.network, f"with {'a' if dynamic is None else 'dynamic evaluation or a'} cache")
    adapting, lengths = None, {}
    if dynamic is not None:
        gradients = None
        if dynamic.kind == "rms":
            with watch("gradients of the training text") as progress:
                gradients = adaptation.statistics(run, lm.network, texts.train, dynamic, progress)
        valid = texts.valid() if _open(dynamic) else np.zeros(0, np.int64)
        lengths["dynamic"] = min(len(valid), dynamic.search)
        with watch("trying rates") as progress:
            dynamic = adaptation.search_settings(lm.network, valid, dynamic, gradients, progress)
        adapting = Adapting(lm.network, dynamic, gradients)
    if cache is not None and not cache.complete:
        valid = texts.valid()[: SEARCHED if adapting is None else SEARCHED_SLOWLY]
        lengths["cache"] = len(valid)
        with watch("finding the cache's settings") as progress:
            cache = pointer.found(_reading(lm.network, adapting, valid, progress), cache)
    now = {"cache": cache, "dynamic": dynamic}
    found = [f"{key}.{field}" for key, length in lengths.items() if length for field in _left_open(given[key])]
    facts = {
        "method": name,
        "settings": {key: _table(value) for key, value in now.items() if value is not None},
        "found": found,
        "found_on": f"{texts.name} ({_lengths(lengths)})" if found else None,
    }
    return Method(lm.network, cache, adapting, facts, [_said(facts)])


def _silent(done: float, total: float | None) -> None:
    pass


def _reading(network: Any, adapting: Adapting | None, ids: np.ndarray, progress: Any) -> Iterator[Part]:
    return pointer.read(network, ids, progress) if adapting is None else adapting.read(ids, progress)


def _open(dynamic: Dynamic) -> bool:
    """Whether validation text is needed."""
    return bool(dynamic.search) and not dynamic.old and None in (dynamic.rate, dynamic.lambda_)


def _lengths(lengths: dict[str, int]) -> str:
    if len(set(lengths.values())) == 1:
        return f"{max(lengths.values()):,} tokens"
    return ", ".join(f"{name}: {length:,} tokens" for name, length in lengths.items() if length)


def _left_open(given: Any) -> list[str]:
    names = ("lambda_", "theta", "window") if isinstance(given, Cache) else ("rate", "lambda_")
    return [name.strip("_") for name in names if getattr(given, name) is None]


def _table(value: Any) -> dict[str, Any]:
    return {f.name.strip("_"): getattr(value, f.name) for f in fields(value) if f.name not in UNUSED}


def _said(facts: dict[str, Any]) -> str:
    parts = []
    for name, table in facts["settings"].items():
        numbers = ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in table.items()
        )
        parts.append(f"{name}: {numbers}")
    where = f"; {', '.join(facts['found'])} found on {facts['found_on']}" if facts["found"] else ""
    return f"not the plain model, but with {'; '.join(parts)}{where}"
