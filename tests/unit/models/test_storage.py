"""Rounded weights: what is restored, how large the error may be, and differences from a starter model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from nextword.core.errors import RunError
from nextword.models.storage import FILE, load_weights, save_weights
from tests.support.fake_starters import install_starter


def draw_weights() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {
        "matrix": torch.randn(6, 10) * torch.tensor([1e-3, 1.0, 5.0, 0.1, 1.0, 0.0]).unsqueeze(1),
        "filter": torch.randn(4, 3, 2),
        "vector": torch.randn(7),
        "count": torch.arange(3),
    }


@pytest.mark.parametrize(("storage", "error"), [("bf16", 2**-8), ("int8", 0.5 / 127)])
def test_restored_weights_are_float32_within_half_a_step(tmp_path: Path, storage: str, error: float) -> None:
    weights = draw_weights()
    save_weights(weights, tmp_path / FILE, storage)
    restored = load_weights(tmp_path / FILE)
    assert restored.keys() == weights.keys()
    for name in ("matrix", "filter"):
        assert restored[name].dtype == torch.float32
        largest = weights[name].flatten(1).abs().amax(1).clamp(min=1e-12)
        worst = (restored[name] - weights[name]).flatten(1).abs().amax(1) / largest
        assert float(worst.max()) <= error * 1.001
        assert not torch.equal(restored[name], weights[name])
    assert torch.equal(restored["count"], weights["count"])
    assert torch.equal(restored["vector"], weights["vector"]) == (storage == "int8")


def test_rounding_twice_changes_nothing_more(tmp_path: Path) -> None:
    save_weights(draw_weights(), tmp_path / "once", "int8")
    once = load_weights(tmp_path / "once")
    save_weights(once, tmp_path / "twice", "int8")
    for name, tensor in load_weights(tmp_path / "twice").items():
        assert torch.allclose(tensor, once[name], rtol=1e-6, atol=0)


def test_file_without_storage_is_read_as_it_is(tmp_path: Path) -> None:
    quantized = {"q": torch.tensor([[3, -4]], dtype=torch.int8), "q.scale": torch.tensor([0.5])}
    save_file(quantized, str(tmp_path / FILE))
    assert load_weights(tmp_path / FILE)["q"].dtype == torch.int8


def test_differences_from_a_starter_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = load_weights(install_starter(tmp_path, monkeypatch) / FILE)
    torch.manual_seed(1)
    matrices = [name for name, t in base.items() if t.dim() == 2]
    tuned = {name: t + 0.01 * torch.randn_like(t) if name in matrices[1:] else t.clone() for name, t in base.items()}
    tuned["new"] = torch.randn(4, 6)
    save_weights(tuned, tmp_path / "tuned", "int4", "starter/bert")
    restored = load_weights(tmp_path / "tuned")
    assert restored.keys() == tuned.keys()
    assert torch.equal(restored[matrices[0]], base[matrices[0]])
    for name in matrices[1:]:
        largest = (tuned[name] - base[name]).abs().amax(1, keepdim=True)
        assert bool(((restored[name] - tuned[name]).abs() <= largest / 14 * 1.001).all())
    numbers = sum(base[name].numel() for name in matrices[1:])
    assert (tmp_path / "tuned").stat().st_size < 0.5 * numbers + 30_000


def test_differences_from_another_version_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starter = install_starter(tmp_path, monkeypatch)
    base = load_weights(starter / FILE)
    save_weights({name: t + 0.1 for name, t in base.items()}, tmp_path / "tuned", "int4", "starter/bert")
    save_weights({name: t * 2 for name, t in base.items()}, starter / FILE, "int8")
    with pytest.raises(RunError, match="another version of starter/bert"):
        load_weights(tmp_path / "tuned")
