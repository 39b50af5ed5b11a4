"""Evaluation methods that adapt to the text they read: the neural cache, dynamic evaluation, or both together.

Settings arrive as strings such as `cache.theta=0.66`; what they leave open is searched on validation text. The result
carries the method's name and all of its settings, so that its numbers are never taken for those of the model alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nextword.batching.token_stream import prepare
from nextword.core.errors import DataError, invalid, unknown
from nextword.core.io import format_number
from nextword.core.types import LabeledProgress, Progress, ignore_progress
from nextword.data.corpus import Corpus
from nextword.data.opening import open_corpus
from nextword.evaluation import neural_cache
from nextword.evaluation.dynamic import (
    DynamicEvaluator,
    DynamicSettings,
    dynamic_nats,
    load_or_collect_statistics,
    search_settings,
)
from nextword.evaluation.neural_cache import CacheSettings, ReadBlock, check_network
from nextword.lm.base import TextModel
from nextword.models.base import CausalNetwork
from nextword.run_folder import RunFolder

SEARCHED_WHILE_LEARNING = 50_000  # validation tokens for the cache's settings if the network learns as it reads them
SETTINGS: dict[str, type[CacheSettings | DynamicSettings]] = {"cache": CacheSettings, "dynamic": DynamicSettings}
NOT_REPORTED = ("segments", "legacy_units", "recompute", "search")  # how settings were found, not what they are


@dataclass(frozen=True)
class SettingsText:
    """What a method may need to read besides the text that it scores; opened on demand."""

    train: Callable[[], np.ndarray]  # the run's own training text
    valid: Callable[[], np.ndarray]
    name: str  # of the validation text: "ptb valid"


@dataclass
class AdaptiveMethod:
    """A method with all its settings, ready to score a text."""

    network: CausalNetwork
    cache: CacheSettings | None
    evaluator: DynamicEvaluator | None
    facts: dict[str, Any]  # method, settings, found, found_on: part of the result
    notes: list[str]

    def nats(self, ids: np.ndarray, progress: Progress = ignore_progress) -> np.ndarray:
        """−log p of every token of one long stream; adds what was observed to the notes."""
        if self.cache is None and self.evaluator is not None:
            return dynamic_nats(self.evaluator, ids, progress)
        assert self.cache is not None
        assert self.cache.window is not None
        blocks = _read(self.network, self.evaluator, ids, progress)
        nats, without_cache = neural_cache.cache_nats(blocks, self.cache)
        self.facts["without_cache"] = {"nats": float(without_cache.sum())}
        if len(ids):
            perplexity = float(np.exp(without_cache.mean()))
            self.facts["without_cache"]["token_perplexity"] = perplexity
            self.notes.append(f"without the cache, token perplexity is {format_number(perplexity, 2)}")
        if self.cache.window >= len(ids):
            self.notes.append(f"the cache window of {self.cache.window:,} tokens covers the whole text")
        return nats

    def context(self, own: int | None) -> int | None:
        """How far back the method sees, for a model that itself sees `own` tokens; None: without bound."""
        if own is None or self.evaluator is not None or self.cache is None or self.cache.window is None:
            return None
        return own + self.cache.window


# ------------------------------------------------------------------------------------------------ settings


def parse_settings(
    changes: Sequence[str], cache: bool, dynamic: bool
) -> tuple[CacheSettings | None, DynamicSettings | None]:
    """Settings of the requested methods, from strings like `cache.theta=0.66`; None for a method not requested."""
    requested = {"cache": cache, "dynamic": dynamic}
    values: dict[str, dict[str, Any]] = {name: {} for name, is_requested in requested.items() if is_requested}
    for change in changes:
        key, equals, text = change.partition("=")
        method, _, setting = key.strip().partition(".")
        if not equals or not setting or method not in SETTINGS:
            raise invalid("--set", change, "must be cache.KEY=VALUE or dynamic.KEY=VALUE, such as cache.theta=0.66.")
        if method not in values:
            raise invalid(key.strip(), text, f"needs --{method}.", where="--set")
        known = {f.name.strip("_"): f for f in fields(SETTINGS[method])}
        if setting not in known:
            raise unknown(f"setting of {method}", setting, known, where=f"--set {change}")
        values[method][known[setting].name] = _parse_value(text.strip(), str(known[setting].type), change)
    return (
        CacheSettings(**values["cache"]) if cache else None,
        DynamicSettings(**values["dynamic"]) if dynamic else None,
    )


def _parse_value(text: str, type: str, change: str) -> str | bool | int | float:
    if type == "str":
        return text.strip("\"'")
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        value = None
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if type == "bool" and isinstance(value, bool):
        return value
    if type.startswith("int") and is_integer:
        return value
    if type.startswith("float") and (is_integer or isinstance(value, float)):
        return float(value)
    expected = {"b": "true or false", "i": "a whole number", "f": "a number"}[type[0]]
    raise invalid(change.partition("=")[0].strip(), text, f"must be {expected}.", where="--set")


# ------------------------------------------------------------------------------------------------ preparation


def settings_text(lm: TextModel, run: RunFolder, corpus: Corpus) -> SettingsText:
    """The texts for finding settings: the validation split of the corpus if it has one, or else of the run's data."""
    own_data = run.recipe.phases[-1].data
    has_valid = "valid" in corpus.splits

    def read(split: str, corpus: Corpus | None) -> np.ndarray:
        if corpus is None and not own_data:
            raise DataError(
                f"{run.path} names no data of its own to find settings on. Give them with --set: cache.lambda, "
                "cache.theta and cache.window, or dynamic.rate, dynamic.lambda and dynamic.kind=sgd.",
                path=run.path,
            )
        source = corpus or open_corpus(own_data)
        if split not in source.splits:
            raise DataError(
                f"{source.name} has no {split} split to find settings on. Give the settings with --set.",
                path=source.name,
            )
        ids: np.ndarray = prepare(source, split, lm.tokenizer).ids
        return ids

    return SettingsText(
        train=partial(read, "train", None),
        valid=partial(read, "valid", corpus if has_valid else None),
        name=f"{corpus.name if has_valid else Path(str(own_data)).name} valid",
    )


def prepare_method(
    lm: TextModel,
    run: RunFolder,
    cache: CacheSettings | None,
    dynamic: DynamicSettings | None,
    texts: SettingsText,
    on_progress: LabeledProgress = ignore_progress,
) -> AdaptiveMethod:
    """Find the settings that are None, and return the method."""
    given = {"cache": cache, "dynamic": dynamic}
    check_network(lm.network, "with a cache" if dynamic is None else "dynamically or with a cache")
    evaluator, searched = None, {}
    if dynamic is not None:
        statistics = None
        if dynamic.kind == "rms":
            progress = partial(on_progress, "collecting gradient statistics")
            statistics = load_or_collect_statistics(run, lm.network, texts.train, dynamic, progress)
        valid = texts.valid() if _needs_search(dynamic) else np.zeros(0, np.int64)
        searched["dynamic"] = min(len(valid), dynamic.search)
        progress = partial(on_progress, "searching learning rates")
        dynamic = search_settings(lm.network, valid, dynamic, statistics, progress)
        evaluator = DynamicEvaluator(lm.network, dynamic, statistics)
    if cache is not None and not cache.complete:
        valid = texts.valid()[: neural_cache.SEARCHED if evaluator is None else SEARCHED_WHILE_LEARNING]
        searched["cache"] = len(valid)
        progress = partial(on_progress, "searching cache settings")
        cache = neural_cache.search_cache_settings(_read(lm.network, evaluator, valid, progress), cache)
    final = {"cache": cache, "dynamic": dynamic}
    found = [f"{name}.{key}" for name, length in searched.items() if length for key in _open_settings(given[name])]
    facts = {
        "method": " + ".join(name for name, settings in given.items() if settings is not None),
        "settings": {name: _reported(settings) for name, settings in final.items() if settings is not None},
        "found": found,
        "found_on": f"{texts.name} ({_describe_lengths(searched)})" if found else None,
    }
    return AdaptiveMethod(lm.network, cache, evaluator, facts, [_describe(facts)])


def _read(
    network: CausalNetwork, evaluator: DynamicEvaluator | None, ids: np.ndarray, progress: Progress
) -> Iterator[ReadBlock]:
    if evaluator is None:
        return neural_cache.read_blocks(network, ids, progress)
    return evaluator.read(ids, progress)


def _needs_search(dynamic: DynamicSettings) -> bool:
    return bool(dynamic.search) and not dynamic.legacy_units and None in (dynamic.rate, dynamic.lambda_)


def _open_settings(settings: CacheSettings | DynamicSettings | None) -> list[str]:
    """The names of the settings that are None and can be searched."""
    if isinstance(settings, CacheSettings):
        values = {"lambda": settings.lambda_, "theta": settings.theta, "window": settings.window}
    elif isinstance(settings, DynamicSettings):
        values = {"rate": settings.rate, "lambda": settings.lambda_}
    else:
        values = {}
    return [name for name, value in values.items() if value is None]


def _reported(settings: CacheSettings | DynamicSettings) -> dict[str, Any]:
    return {f.name.strip("_"): getattr(settings, f.name) for f in fields(settings) if f.name not in NOT_REPORTED}


def _describe_lengths(searched: Mapping[str, int]) -> str:
    if len(set(searched.values())) == 1:
        return f"{max(searched.values()):,} tokens"
    return ", ".join(f"{name}: {length:,} tokens" for name, length in searched.items() if length)


def _describe(facts: Mapping[str, Any]) -> str:
    parts = []
    for name, settings in facts["settings"].items():
        numbers = ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in settings.items()
        )
        parts.append(f"{name}: {numbers}")
    where = f"; {', '.join(facts['found'])} found on {facts['found_on']}" if facts["found"] else ""
    return f"not the plain model, but with {'; '.join(parts)}{where}"
