"""Variants of a recipe trained in parallel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nextword.recipe import load_recipe
from nextword.studies import _experiment
from nextword.studies._recipe_runs import TextFolder, train_all, with_model, with_phase
from nextword.tokenizers.training import train_tokenizer


def test_parallel_runs_equal_sequential_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(0).integers(97, 105, 1200)
    tokenizer = train_tokenizer({"kind": "bytes"}, ())
    text = TextFolder.write(tmp_path, tokenizer, train=ids[:800], valid=ids[800:1000], test=ids[1000:])
    base = with_model(load_recipe("awd-lstm/tiny"), embedding=6, width=8)
    batches = {"kind": "variable", "rows": 4, "length": 10}
    recipes = {
        name: with_phase(base, seed=seed, steps=6, validate_every=2, batches=batches, log_every=10**6)
        for name, seed in (("a", 0), ("b", 1))
    }
    calls: list[tuple[float, float]] = []
    monkeypatch.setattr(_experiment, "num_cores", lambda: 2)
    parallel = train_all(recipes, text, lambda done, total: calls.append((done, total)))
    monkeypatch.setattr(_experiment, "num_cores", lambda: 1)
    sequential = train_all(recipes, text, lambda done, total: None)
    assert list(parallel) == list(sequential) == ["a", "b"]
    assert calls == [(1, 2), (2, 2)]
    for name in recipes:  # matrix products may be rounded differently
        assert parallel[name].curve == pytest.approx(sequential[name].curve, rel=1e-5)
        assert parallel[name].test == pytest.approx(sequential[name].test, rel=1e-5)
    assert parallel["a"].curve != parallel["b"].curve
    assert len(parallel["a"].curve) == 3
    assert parallel["a"].valid == pytest.approx(min(parallel["a"].curve))  # the best validation is kept
