"""The scalar mix of layers compared with its formula."""

from __future__ import annotations

import math

import pytest
import torch

from nextword.core.errors import DataError, InvalidSetting
from nextword.layers.scalar_mix import ScalarMix, ScalarMixes
from tests.support.errors import raises

LAYERS = [torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[[0.0, 0.0], [8.0, 0.0]]])]


def test_scalar_mix_starts_as_the_mean() -> None:
    torch.testing.assert_close(ScalarMix(2)(LAYERS), torch.tensor([[[0.5, 1.0], [5.5, 2.0]]]))


def test_scalar_mix_and_penalty_equal_formula() -> None:
    mix = ScalarMix(2, weight=0.1)
    with torch.no_grad():
        mix.w.copy_(torch.tensor([0.0, math.log(3.0)]))  # weights 1/4 and 3/4
        mix.gamma.fill_(2.0)
    torch.testing.assert_close(mix.shares, torch.tensor([0.25, 0.75]))
    torch.testing.assert_close(mix(LAYERS), torch.tensor([[[0.5, 1.0], [13.5, 2.0]]]))
    torch.testing.assert_close(mix.penalty(), torch.tensor(0.1 * math.log(3.0) ** 2))
    mix.penalty().backward()
    torch.testing.assert_close(mix.w.grad, torch.tensor([0.0, 0.2 * math.log(3.0)]))


def test_scalar_mix_normalizes_over_tokens_without_padding() -> None:
    """Without padding the first row holds 1 and 2: mean 1.5, deviation 0.5."""
    padding = torch.tensor([[True, False]])
    mixed = ScalarMix(1, norm=True)(LAYERS[:1], padding)
    torch.testing.assert_close(mixed[0, 0], torch.tensor([-1.0, 1.0]))
    full = ScalarMix(1, norm=True)(LAYERS[:1])
    torch.testing.assert_close(full.mean(), torch.tensor(0.0))
    torch.testing.assert_close(full.var(correction=0), torch.tensor(1.0))
    everywhere = ScalarMix(1, norm=True)(LAYERS[:1], torch.ones(1, 2, dtype=torch.bool))
    torch.testing.assert_close(everywhere, full)


def test_scalar_mix_ignores_padding() -> None:
    padding, other = torch.tensor([[True, False]]), [layer.clone() for layer in LAYERS]
    for layer in other:
        layer[0, 1] = 100.0
    mix = ScalarMix(2, norm=True)
    torch.testing.assert_close(mix(LAYERS, padding)[0, 0], mix(other, padding)[0, 0])


def test_scalar_mixes_have_separate_weights() -> None:
    mixes = ScalarMixes(2, 2, weight=0.5)
    with torch.no_grad():
        mixes.mixes[0].w.copy_(torch.tensor([1.0, -1.0]))  # type: ignore[operator]
    first, second = mixes(LAYERS)
    assert not torch.equal(first, second)
    torch.testing.assert_close(second, torch.tensor([[[0.5, 1.0], [5.5, 2.0]]]))
    torch.testing.assert_close(mixes.penalty(), torch.tensor(1.0))
    assert len(list(mixes.parameters())) == 4


def test_scalar_mix_drops_only_in_training() -> None:
    mix = ScalarMix(2, dropout=0.5)
    ones = [torch.ones(4, 50, 10)] * 2
    assert 0.3 < (mix(ones) == 0).float().mean() < 0.7
    torch.testing.assert_close(mix.eval()(ones), torch.ones(4, 50, 10))


def test_scalar_mix_with_invalid_settings_raises() -> None:
    with raises(InvalidSetting, key="scalar_mix"):
        ScalarMix(0)
    with pytest.raises(DataError):
        ScalarMix(2)(LAYERS[:1])
