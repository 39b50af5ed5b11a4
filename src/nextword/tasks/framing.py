"""Data of a task into examples of a network: each text framed, each sentence with its tags.

What is to be known of them, as how many were cut, is added to the notes of the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import Examples
from nextword.core.protocols import Tokenizer
from nextword.data.tag_schemes import PLAIN
from nextword.lm.embedding import Contextual
from nextword.lm.loading import load
from nextword.recipe import Recipe
from nextword.tasks.data import DataSet, framed_rows
from nextword.tasks.heads import skipped
from nextword.tasks.settings import Settings
from nextword.tasks.tag_data import TagSet
from nextword.tasks.tag_words import TaggedExamples, sentences
from nextword.tasks.worded import framed_words, places, sources

MUCH = 0.1  # of all tokens that are read
Progress = Callable[[str, float, float | None], None]


def framed_texts(
    network: Any,
    tokenizer: Tokenizer,
    settings: Settings,
    data: DataSet,
    length: int,
    progress: Progress,
    notes: list[str],
    whose: str = "",
) -> dict[str, Examples]:
    """Split that has labels → its examples; how many were cut, or take long to read, is added to the notes."""
    most = min(filter(None, (length, getattr(network.config, "window", 0))), default=0)
    found: dict[str, Examples] = {}
    for split, rows in data.splits.items():
        if rows.labels is None:
            continue
        progress(f"reading {whose}{split}", 0, None)
        labels = settings.encoded(rows.labels)
        if settings.worded:
            made, cut = framed_words(tokenizer, sources(settings.asks, rows.texts, rows.seconds), labels, length)
            if settings.numbers:  # the nearest that is written is learnt, the number itself is measured with
                made = replace(made, labels=places(rows.labels, settings.numbers), gold=labels)
        else:
            made, cut = framed_rows(network, tokenizer, settings.frame, rows, labels, length, settings.chunk > 0)
        found[split] = replace(made, metrics=tuple(settings.metrics))
        if cut:
            cuts = f"{cut:,} of {len(rows):,} examples of {split} are longer than {most} tokens and are cut"
            notes.append(f"{whose}{cuts}")
        if split == "train" and getattr(network, "is_stateful", False):
            notes += [f"{whose}{note}" for note in _long(made, settings.chunk, settings.kept)]
    return found


def _long(made: Examples, chunk: int, kept: int) -> list[str]:
    """A note on texts of which much is read that nothing is learnt from: one of a million tokens takes minutes."""
    sizes = np.diff(made.starts)
    if not chunk or not kept or not sizes.sum():
        return []
    before = int(skipped(sizes.tolist(), chunk, kept).sum())
    if before < MUCH * sizes.sum():
        return []
    longer = int((sizes.reshape(-1, made.each).max(1) > kept).sum())
    return [
        f"{longer:,} of {len(made):,} examples of train are longer than {kept:,} tokens, the longest has "
        f"{sizes.max():,}: the last {kept:,} are learnt from (task.kept), but the {before:,} before them are read in "
        f"every epoch, too, which takes its time. To read beginnings alone: --set 'phase.*.batches.length={kept}'"
    ]


def framed_set(
    recipe: Recipe,
    network: Any,
    tokenizer: Tokenizer,
    data: TagSet,
    metrics: tuple[str, ...],
    device: torch.device,
    progress: Progress,
    notes: list[str],
) -> dict[str, TaggedExamples]:
    """Split → its sentences, framed; what is to be known of them is added to the notes."""
    length = int(recipe.phases[0].batches.get("length", 0))
    context = context_of(recipe, device)
    found: dict[str, TaggedExamples] = {}
    for split, text in data.splits.items():
        progress(f"reading {split}", 0, None)
        words = [one.words for one in text.sentences]
        made, cut = sentences(network, tokenizer, words, data.encoded(split), length)
        found[split] = replace(
            made,
            names=(*data.labels, *data.unseen),
            spans=data.scheme != PLAIN,
            metrics=metrics,
            features=context.kept(words, progress) if context else None,
        )
        if cut:
            notes.append(f"{cut:,} of {text.words:,} words of {split} lie beyond the window, and are tagged unread")
    return found


def context_of(recipe: Recipe, device: torch.device) -> Contextual | None:
    """The run whose vectors a network reads beside words, if it reads any."""
    run = recipe.model.get("contextual", "")
    return Contextual(load(run, str(device)), run) if run else None
