"""Train variants of a recipe on the same text, many at once, and compare them by seed.

Each run is the recipe's own training loop on ids in memory, with one thread and its own seed, so it gives the same
result whatever runs next to it. On a GPU the runs follow each other.
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

from nextword.batching.token_stream import Stream
from nextword.core.types import State
from nextword.data.corpus import Corpus
from nextword.models.base import Network
from nextword.objectives import make_objective
from nextword.recipe import Phase, Recipe
from nextword.run_folder import RunFolder
from nextword.studies._experiment import isolated, require, run_parallel
from nextword.studies._statistics import NO_INTERVAL, has_interval, median_and_range, paired_difference, signed
from nextword.studies._study import Progress
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import autocast, choose_device
from nextword.training.events import VALID, Job
from nextword.training.train import build_network
from nextword.training.trainer import run_gradient_phase

SPLITS = ("train", "valid", "test")
SAMPLE = 10_000  # training tokens on which the finished network is scored, to see what it has memorized
MILLI = 1000.0


# ------------------------------------------------------------------------------------------------ text


@dataclass(frozen=True)
class TextFolder:
    """Tokenizer and ids of each split in a folder, so that every process can open them."""

    folder: Path

    @staticmethod
    def write(folder: Path, tokenizer: Tokenizer, **splits: np.ndarray) -> TextFolder:
        tokenizer.save(folder / "tokenizer.json")
        for name, ids in splits.items():
            np.save(folder / f"{name}.npy", ids)
        return TextFolder(folder)

    @property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / "tokenizer.json")

    def ids(self, split: str) -> np.ndarray:
        return np.load(self.folder / f"{split}.npy")


def encode_beginning(
    corpus: Corpus, pieces: int, characters: int, held: int, minimum: int
) -> tuple[Tokenizer, dict[str, np.ndarray]]:
    """A BPE tokenizer and the ids of the beginning of each split; a missing held-out split is replaced by the other."""
    tokenizer = train_tokenizer({"kind": "bpe", "size": pieces}, _first_documents(corpus, characters))
    ids = {"train": _encode_split(corpus, "train", tokenizer, characters)}
    for split, other in (("valid", "test"), ("test", "valid")):
        ids[split] = _encode_split(corpus, split if split in corpus.splits else other, tokenizer, held)
    require(len(ids["train"]), minimum, "training tokens", corpus)
    require(len(ids["valid"]), 500, "held-out tokens", corpus)
    return tokenizer, ids


def _first_documents(corpus: Corpus, characters: int) -> list[str]:
    texts: list[str] = []
    for document in corpus.documents("train"):
        texts.append(document.text)
        if sum(map(len, texts)) >= characters:
            break
    return texts


def _encode_split(corpus: Corpus, split: str, tokenizer: Tokenizer, characters: int) -> np.ndarray:
    """The first characters of a split, with an end token after each document if the tokenizer has one."""
    end = [] if tokenizer.end is None else [tokenizer.end]
    parts: list[Sequence[int] | np.ndarray] = []
    for document in corpus.documents(split):
        part = document.text[:characters]
        parts += [tokenizer.encode(part).ids, end]
        characters -= len(part)
        if characters <= 0:
            break
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


# ------------------------------------------------------------------------------------------------ runs


@dataclass(frozen=True)
class Outcome:
    """Nats per token with the weights that a run keeps, and what the run took."""

    train: float  # without dropout, on the beginning of the training text
    valid: float
    test: float
    curve: tuple[float, ...]  # every validation
    averaged: int | None  # the validation after which weight averaging started
    parameters: int
    seconds: float


def with_phase(recipe: Recipe, **settings: Any) -> Recipe:
    """The recipe with other settings of its only phase."""
    return replace(recipe, phases=(replace(recipe.phases[0], **settings),))


def with_model(recipe: Recipe, **model: object) -> Recipe:
    return replace(recipe, model={**recipe.model, **model})


def train_all(recipes: Mapping[Any, Recipe], text: TextFolder, progress: Progress) -> dict[Any, Outcome]:
    """The outcome of each recipe, by key."""
    device = choose_device()
    jobs = {key: (train_recipe, (recipe, text, device)) for key, recipe in recipes.items()}
    return run_parallel(jobs, progress, uses_gpu=True)


def train_recipe(recipe: Recipe, text: TextFolder, device: torch.device) -> Outcome:
    """Train the first phase of a recipe on this text and score the weights it keeps."""
    start = time.perf_counter()
    phase, tokenizer = recipe.phases[0], text.tokenizer
    with tempfile.TemporaryDirectory() as folder, isolated(device):
        network = build_network(recipe, tokenizer)
        run = RunFolder.create(Path(folder) / "run", recipe, tokenizer)
        train, valid = (Stream.from_ids(text.ids(split)) for split in ("train", "valid"))
        events = list(run_gradient_phase(Job(network, phase, 0, train, valid, tokenizer.lossless, run, device)))
        checks = [event.values for event in events if event.kind == VALID]
        nats = {
            split: nats_per_token(network, phase, text.ids(split)[: SAMPLE if split == "train" else None], device)
            for split in SPLITS
        }
    return Outcome(
        **nats,
        curve=tuple(check["valid"] for check in checks),
        averaged=next((i for i, check in enumerate(checks, 1) if check.get("averaging")), None),
        parameters=network.num_parameters(),
        seconds=time.perf_counter() - start,
    )


@torch.no_grad()
def nats_per_token(network: Network, phase: Phase, ids: np.ndarray, device: torch.device) -> float:
    """Cross-entropy of a text read from left to right without dropout."""
    objective = make_objective(phase.objective, phase.batches, network.vocabulary)
    network.eval()
    total, count = 0.0, 0
    state: State = None
    for batch in objective.validation_batches(Stream.from_ids(ids)):
        batch.inputs.ids, batch.targets = batch.inputs.ids.to(device), batch.targets.to(device)
        with autocast(phase.precision, device):
            loss = objective.loss(network, batch, None if batch.reset_state else state)
        total, count, state = total + float(loss.nats), count + loss.count, loss.state
    return total / count


# ------------------------------------------------------------------------------------------------ comparisons

Runs = Mapping[tuple[Any, ...], Outcome]  # (variant …, seed) → outcome


def nats_of(runs: Runs, variant: tuple[Any, ...], split: str) -> list[float]:
    """Nats per token of all seeds of a variant."""
    outcomes = [run for key, run in runs.items() if key[:-1] == variant]
    return [{"train": run.train, "valid": run.valid, "test": run.test}[split] for run in outcomes]


def nats_cells(runs: Runs, variant: tuple[Any, ...]) -> list[list[float]]:
    """Median and range over seeds, for train, valid and test."""
    return [median_and_range(nats_of(runs, variant, split)) for split in SPLITS]


def millinat_differences(runs: Runs, variant: tuple[Any, ...], baseline: tuple[Any, ...]) -> list[list[float]]:
    """Variant minus baseline in thousandths of a nat, on valid and test: mean and 95 % interval, paired by seed."""
    return [
        [MILLI * value for value in paired_difference(nats_of(runs, variant, split), nats_of(runs, baseline, split))]
        for split in ("valid", "test")
    ]


def describe_intervals(valid: Sequence[Any], test: Sequence[Any], digits: int = 0) -> str:
    if not has_interval(test):
        return NO_INTERVAL
    ends = [f"{signed(cell[1], digits)} to {signed(cell[2], digits)}" for cell in (test, valid)]
    return f"95 % over seeds: test {ends[0]}, valid {ends[1]}"
