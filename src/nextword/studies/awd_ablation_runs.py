"""Many small trainings for one study: each is the recipe's own loop on ids in memory, as many at once as cores.

A run computes with one thread and its own seed, so it comes out the same whatever runs beside it. On a GPU they run
one after the other.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.batching.prepare import Stream
from nextword.checkpoint import RunFolder
from nextword.contract import State
from nextword.contract_protocols import Tokenizer
from nextword.corpora import Corpus
from nextword.objectives import make_objective
from nextword.recipe import Recipe
from nextword.studies.apart import apart, spread
from nextword.studies.measures import NO_INTERVAL, bounded, in_pairs
from nextword.studies.study import Progress
from nextword.tokens import load_tokenizer
from nextword.training import build
from nextword.training.events import VALID, Job
from nextword.training.loop import descend
from nextword.training.scale import arithmetic, choose_device

SAMPLE = 10_000  # tokens of the training text on which the finished network is asked what it has learnt by heart


@dataclass(frozen=True)
class Text:
    """What every run of a study reads, in a folder, so that each process can open it."""

    folder: Path

    @staticmethod
    def write(folder: Path, tokenizer: Tokenizer, **splits: np.ndarray) -> Text:
        tokenizer.save(folder / "tokenizer.json")
        for name, ids in splits.items():
            np.save(folder / f"{name}.npy", ids)
        return Text(folder)

    @property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / "tokenizer.json")

    def ids(self, split: str) -> np.ndarray:
        return np.load(self.folder / f"{split}.npy")


@dataclass(frozen=True)
class Outcome:
    """Nats a token of the network that a run keeps, and what it took."""

    train: float  # without dropout, on the beginning of the training text
    valid: float
    test: float
    curve: tuple[float, ...]  # validations as they came
    averaged: int | None  # the validation after which averaging began
    parameters: int
    seconds: float


def with_seed(recipe: Recipe, seed: int, **phase: Any) -> Recipe:
    """The recipe's one phase with a seed, and with other settings."""
    return replace(recipe, phases=(replace(recipe.phases[0], seed=seed, **phase),))


def with_model(recipe: Recipe, **model: Any) -> Recipe:
    return replace(recipe, model={**recipe.model, **model})


def trained(recipe: Recipe, text: Text, device: torch.device) -> Outcome:
    """Train the first phase of a recipe on this text, and measure what is kept."""
    began = time.perf_counter()
    phase, tokenizer = recipe.phases[0], text.tokenizer
    with tempfile.TemporaryDirectory() as folder, apart(device):
        network = build(recipe, tokenizer)
        run = RunFolder.create(Path(folder) / "run", recipe, tokenizer)
        train, valid = (Stream.from_ids(text.ids(split)) for split in ("train", "valid"))
        events = list(descend(Job(network, phase, 0, train, valid, tokenizer.lossless, run, device)))
        checks = [event.values for event in events if event.kind == VALID]
        found = {
            split: nats(network, phase, text.ids(split)[: SAMPLE if split == "train" else None], device)
            for split in ("train", "valid", "test")
        }
    return Outcome(
        **found,
        curve=tuple(check["valid"] for check in checks),
        averaged=next((i for i, check in enumerate(checks, 1) if check.get("averaging")), None),
        parameters=sum(p.numel() for p in network.parameters()),
        seconds=time.perf_counter() - began,
    )


@torch.no_grad()
def nats(network: Any, phase: Any, ids: np.ndarray, device: torch.device) -> float:
    """A token, on a text read from left to right without dropout."""
    objective = make_objective(phase.objective, phase.batches, network.vocabulary)
    network.eval()
    total, count = 0.0, 0
    state: State = None
    for batch in objective.held_out(Stream.from_ids(ids)):
        batch.inputs.ids, batch.targets = batch.inputs.ids.to(device), batch.targets.to(device)
        with arithmetic(phase.precision, device):
            loss = objective.loss(network, batch, None if batch.fresh else state)
        total, count, state = total + float(loss.nats), count + loss.count, loss.state
    return total / count


def train_all(recipes: Mapping[Any, Recipe], text: Text, progress: Progress) -> dict[Any, Outcome]:
    """Each recipe trained; the result has their keys in their order."""
    device = choose_device()
    tasks = {key: (trained, (recipe, text, device)) for key, recipe in recipes.items()}
    return spread(tasks, progress, workers=1 if device.type == "cuda" else 0)


MILLI = 1000.0


def paired(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """How many thousandths of a nat these are above those: mean over seeds, and its 95 % interval.

    Pairs have the seed in common.
    """
    return [MILLI * value for value in in_pairs(these, those)]


def intervals(valid: Sequence[Any], test: Sequence[Any], digits: int = 0) -> str:
    """What `paired` found on both texts, in words."""
    if not bounded(test):
        return NO_INTERVAL
    ends = [f"{cell[1]:.{digits}f} to {cell[2]:.{digits}f}" for cell in (test, valid)]
    return f"95 % over seeds: test {ends[0]}, valid {ends[1]}"


def beginning(corpus: Corpus, characters: int) -> list[str]:
    """So many first documents of the training text as have these characters together."""
    out: list[str] = []
    for document in corpus.documents("train"):
        out.append(document.text)
        if sum(map(len, out)) >= characters:
            break
    return out


def ids_of(corpus: Corpus, split: str, tokenizer: Tokenizer, characters: int) -> np.ndarray:
    """The beginning of a split, its documents one after the other, each with its end where the tokenizer has one."""
    end = [] if tokenizer.end is None else [tokenizer.end]
    parts: list[Sequence[int] | np.ndarray] = []
    for document in corpus.documents(split):
        part = document.text[:characters]
        parts += [tokenizer.encode(part).ids, end]
        characters -= len(part)
        if characters <= 0:
            break
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)
