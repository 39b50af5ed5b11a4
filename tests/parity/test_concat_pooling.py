"""Concat pooling and the MLP classifier compared with loops over tokens and with modules of torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nextword.batching.examples import Bucketed, Examples
from nextword.core.types import Batch, FramedText
from nextword.tasks.heads import POOLINGS, MLPClassifier, QuickBatchNorm, pool

LENGTHS = (5, 1, 7, 3)
WIDTH = 4


def laid(packs: bool) -> tuple[Batch, Tensor, list[Tensor]]:
    """A batch, vectors for all its places, padding included, and those of each text."""
    frames = [FramedText(np.arange(n), n - 1) for n in LENGTHS]
    batch = Bucketed().batch(Examples.from_frames(frames, labels=np.zeros(4, np.int64), packs=packs), np.arange(4), 0)
    generator = torch.Generator().manual_seed(3)
    h = 5 - 10 * torch.rand(*batch.inputs.ids.shape, WIDTH, generator=generator, dtype=torch.float64)
    if packs:
        return batch, h, list(h[0].split(LENGTHS))
    h[~batch.inputs.token_mask] = 99.0  # would be the greatest, if it were read
    return batch, h, [h[i, :n] for i, n in enumerate(LENGTHS)]


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("how", list(POOLINGS))
def test_pooling_equals_loop_over_tokens(how: str, packs: bool) -> None:
    batch, h, each = laid(packs)
    expected = []
    for text in each:
        most, total = text[0].clone(), torch.zeros(WIDTH, dtype=torch.float64)
        for vector in text:
            most = torch.maximum(most, vector)
            total += vector
        by_hand = {"last": text[-1], "max": most, "mean": total / len(text)}
        expected.append(by_hand[how] if how in by_hand else torch.cat([text[-1], most, total / len(text)]))
    torch.testing.assert_close(pool(how, h, batch.inputs), torch.stack(expected))


def test_pooling_of_bf16_accumulates_in_float32() -> None:
    batch, h, _ = laid(False)
    found = pool("concat", h.bfloat16(), batch.inputs)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, pool("concat", h.bfloat16().float(), batch.inputs))


@pytest.mark.parametrize("training", [True, False])
def test_mlp_classifier_equals_torch_modules(training: bool) -> None:
    torch.manual_seed(0)
    ours = MLPClassifier(12, (5,), 3, (0.0, 0.0))
    theirs = nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 3))
    theirs.load_state_dict(
        {
            f"{place}.{name}": t
            for place, part in zip(
                (0, 1, 3, 4), (ours.norms[0], ours.linear[0], ours.norms[1], ours.linear[1]), strict=True
            )
            for name, t in part.state_dict().items()
        }
    )
    ours.train(training), theirs.train(training)
    x = torch.randn(6, 12)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(x.view(2, 3, 12)), theirs(x).view(2, 3, 3))


def test_mlp_classifier_blocks_use_own_dropout_rates() -> None:
    """Of the second, whose linear layer is all ones: what is kept is scaled up, so the outputs are counts."""
    torch.manual_seed(0)
    blocks = MLPClassifier(2000, (1000,), 1, (0.4, 0.1))
    with torch.no_grad():
        blocks.linear[0].weight.zero_(), blocks.linear[0].bias.zero_()
        blocks.linear[1].weight.fill_(0.9), blocks.linear[1].bias.zero_()
        blocks.norms[1].weight.zero_(), blocks.norms[1].bias.fill_(1.0)
    kept = blocks(torch.randn(8, 2000))
    assert (kept / 1000 - 0.9).abs().max() < 0.05
    assert kept.std() > 1
    torch.testing.assert_close(blocks.eval()(torch.randn(8, 2000)), torch.full((8, 1), 900.0), rtol=1e-5, atol=0)


def test_quick_batch_norm_averages_first_batches_then_decays() -> None:
    """Of the first ten their mean, then a tenth of each more; torch's own keeps a share of where it began."""
    torch.manual_seed(0)
    norm, usual = QuickBatchNorm(3).double(), nn.BatchNorm1d(3).double()
    batches = [0.01 * torch.randn(20, 3, dtype=torch.float64) + 5 for _ in range(12)]
    for batch in batches:
        torch.testing.assert_close(norm(batch), usual(batch))
    for kept, values in (
        (norm.running_mean, [b.mean(0) for b in batches]),
        (norm.running_var, [b.var(0) for b in batches]),
    ):
        expected = torch.stack(values[:10]).mean(0)
        for value in values[10:]:
            expected = 0.9 * expected + 0.1 * value
        torch.testing.assert_close(kept, expected)
    assert (usual.running_var > 0.2).all()  # of 0.0001
    assert int(norm.num_batches_tracked) == 12


def test_mlp_classifier_with_single_row_uses_running_statistics() -> None:
    torch.manual_seed(0)
    blocks = MLPClassifier(4, (3,), 2, (0.0, 0.0))
    blocks(torch.randn(16, 4))
    x = torch.randn(1, 4)
    trained = blocks(x)
    torch.testing.assert_close(trained, blocks.eval()(x))
