"""A training job on generated ids, with the real trainer, objective and run folder."""

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


def make_small_job(
    folder: Path,
    slug: str,
    model: dict[str, Any],
    size: int,
    train: np.ndarray,
    valid: np.ndarray | None = None,
    stop: Callable[[], bool] = lambda: False,
    **phase: Any,
) -> Job:
    """Create `folder`, or open it to resume. The last of the `size` ids is `begin`; `phase` has the rest."""
    tables = {"paper": {"slug": slug}, "tokenizer": {"kind": "bytes"}, "model": model, "phase": [phase]}
    recipe = parse_recipe(tables, "small")
    run = RunFolder(folder) if folder.exists() else RunFolder.create(folder, recipe, BYTES)
    cls = model_class(slug)
    torch.manual_seed(recipe.phases[0].seed)
    network = cls(cls.Config(**model), Vocabulary(size, size - 1))
    streams = [None if ids is None else Stream.from_ids(ids) for ids in (train, valid)]
    return Job(network, recipe.phases[0], 0, streams[0], streams[1], True, run, torch.device("cpu"), stop)


def train_small_job(folder: Path, *args: Any, **phase: Any) -> tuple[Any, list[Event]]:
    """Train and return the network in evaluation mode, and the events."""
    job = make_small_job(folder, *args, **phase)
    events = list(run_gradient_phase(job))
    return job.network.eval(), events


def draw_walk(size: int, length: int, seed: int = 0) -> np.ndarray:
    """Draw partly predictable ids: each is probably its predecessor plus one."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([1, 1, 1, 2, 3], length)
    return (np.cumsum(steps) % size).astype(np.uint8)


def filter_events(events: Iterator[Event] | list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


# ------------------------------------------------------------------------------------------------ one LSTM

SIZE = 12
MODEL = {"width": 8}
ROWS = {"kind": "rows", "rows": 4, "length": 5}
TRAIN, VALIDATION = draw_walk(SIZE - 1, 405), draw_walk(SIZE - 1, 120, seed=1)


def make_lstm_job(folder: Path, **phase: Any) -> Any:
    """Make a job of an LSTM on partly predictable ids; `phase` overrides any setting."""
    options: dict[str, Any] = {"batches": ROWS, "valid": VALIDATION, "train": TRAIN, "save_every": 1e9, "log_every": 5}
    options |= phase
    return make_small_job(folder, options.pop("slug", "lstm"), options.pop("model", MODEL), SIZE, **options)


def run_lstm_job(folder: Path, **phase: Any) -> tuple[Any, list[Event]]:
    job = make_lstm_job(folder, **phase)
    events = list(run_gradient_phase(job))
    return job.network, events


def copy_weights(network: nn.Module) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in network.state_dict().items()}


def are_equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
