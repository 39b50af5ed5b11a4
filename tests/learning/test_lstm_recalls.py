"""Hochreiter & Schmidhuber 1997: the LSTM learns to recall over spans at which the Elman network fails.

A name occurs somewhere in a verse of fifty words and has to be repeated after the verse:

    w1 w2 … NAME … w49 w50 NAME          the name 0, 5, 10 … or 50 words back

Everything else is easy to predict. Both networks have one layer of equal width, and equal text, steps and rate.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest
import torch

from nextword.core.types import Inputs
from nextword.training.trainer import run_gradient_phase
from tests.support.small_job import make_small_job

NAMES, VERSE, WIDTH = 4, 50, 32
SIZE = NAMES + VERSE + 1


def verses(delays: range) -> np.ndarray:
    words = list(range(NAMES, NAMES + VERSE))
    return np.array(
        [[*words[: VERSE - d], name, *words[VERSE - d :], name] for d in delays for name in range(NAMES)], np.uint8
    )


def recall(folder: Path, slug: str, seed: int) -> float:
    """How often the name is the first guess, 40 to 50 words after it stood there."""
    text = verses(range(0, VERSE + 1, 5))
    rows, columns = text.shape  # one verse a row, so that each begins with a fresh state
    job = make_small_job(
        folder, slug, {"width": WIDTH}, SIZE, text.ravel(), batches={"kind": "rows", "rows": rows, "length": columns},
        optimizer={"kind": "adam", "rate": 0.03}, schedule={"kind": "cosine"}, clip=1.0, steps=450, seed=seed,
        log_every=50, save_every=1e9,
    )  # fmt: skip
    with torch.no_grad():
        job.network.embedding.weight.normal_()
        if slug == "lstm":  # forget gates begin open (Gers 2000; Jozefowicz 2015)
            job.network.layers[0].bias_ih[WIDTH : 2 * WIDTH] = 3
    list(run_gradient_phase(job))
    asked = torch.from_numpy(verses(range(VERSE - 10, VERSE + 1, 5)).astype(np.int64))
    with torch.no_grad():
        layers, _ = job.network.eval().hidden(Inputs(asked[:, :-1]), None)
        guess = job.network.readout.log_probs(layers[-1][:, -1]).argmax(-1)
    return (guess == asked[:, -1]).double().mean().item()


@pytest.mark.slow
def test_lstm_recalls_across_fifty_steps_and_elman_network_does_not(tmp_path: Path) -> None:
    lstm = [recall(tmp_path / f"lstm-{seed}", "lstm", seed) for seed in (1, 2, 3)]
    elman = [recall(tmp_path / f"rnn-{seed}", "rnn", seed) for seed in (1, 2, 3)]
    assert statistics.median(lstm) > 0.9, lstm
    assert statistics.median(elman) < 0.5, elman  # chance is 0.25
