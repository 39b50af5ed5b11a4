"""A training job on ids made for it: the real loop, objective and run folder, without a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.batching.token_stream import Stream
from nextword.core.types import Vocabulary
from nextword.models import model_class
from nextword.recipe import parse_recipe
from nextword.run_folder import RunFolder
from nextword.tokenizers.training import train_tokenizer
from nextword.training.events import Event, Job
from nextword.training.trainer import run_gradient_phase

BYTES = train_tokenizer({"kind": "bytes"}, ["x"])


def small_job(
    folder: Path,
    slug: str,
    model: dict[str, Any],
    size: int,
    train: np.ndarray,
    valid: np.ndarray | None = None,
    stop: Callable[[], bool] = lambda: False,
    **phase: Any,
) -> Job:
    """`folder` is made, or opened again to resume; `size` ids, of which the last is `begin`; the rest is the phase."""
    tables = {"paper": {"slug": slug}, "tokenizer": {"kind": "bytes"}, "model": model, "phase": [phase]}
    recipe = parse_recipe(tables, "small")
    run = RunFolder(folder) if folder.exists() else RunFolder.create(folder, recipe, BYTES)
    cls = model_class(slug)
    torch.manual_seed(recipe.phases[0].seed)
    network = cls(cls.Config(**model), Vocabulary(size, size - 1))
    streams = [None if ids is None else Stream.from_ids(ids) for ids in (train, valid)]
    return Job(network, recipe.phases[0], 0, streams[0], streams[1], True, run, torch.device("cpu"), stop)


def trained(folder: Path, *args: Any, **phase: Any) -> tuple[Any, list[Event]]:
    """The network, as it is kept, and the events."""
    job = small_job(folder, *args, **phase)
    events = list(run_gradient_phase(job))
    return job.network.eval(), events


def walk(size: int, length: int, seed: int = 0) -> np.ndarray:
    """Ids that can be learnt a little: each is likely the one before, plus one."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([1, 1, 1, 2, 3], length)
    return (np.cumsum(steps) % size).astype(np.uint8)


def events_of(found: Iterator[Event] | list[Event], kind: str) -> list[Event]:
    return [event for event in found if event.kind == kind]


# ------------------------------------------------------------------------------------------------ of one network

SIZE = 12
MODEL = {"width": 8}
ROWS = {"kind": "rows", "rows": 4, "length": 5}
TRAIN, VALIDATION = walk(SIZE - 1, 405), walk(SIZE - 1, 120, seed=1)


def job(folder: Path, **phase: Any) -> Any:
    """Of an LSTM on ids that can be learnt a little, unless the phase says otherwise."""
    options: dict[str, Any] = {"batches": ROWS, "valid": VALIDATION, "train": TRAIN, "save_every": 1e9, "log_every": 5}
    options |= phase
    return small_job(folder, options.pop("slug", "lstm"), options.pop("model", MODEL), SIZE, **options)


def run(folder: Path, **phase: Any) -> tuple[Any, list[Event]]:
    made = job(folder, **phase)
    events = list(run_gradient_phase(made))
    return made.network, events


def weights(network: nn.Module) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in network.state_dict().items()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
