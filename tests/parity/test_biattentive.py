"""The biattentive classification network compared with loops in numpy, and its independence of padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.core.types import Inputs
from nextword.tasks.heads import (
    CHANNELS,
    BiattentiveClassifier,
    Maxout,
    biattention,
    max_mean_min_attention_pool,
    unpack_rows,
)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def there(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)


def network(**more: Any) -> BiattentiveClassifier:
    torch.manual_seed(3)
    made = BiattentiveClassifier(
        **{"inputs": 5, "outputs": 3, "width": 4, "reduction": 2, "dropout": 0.0, **more}
    ).double()
    for p in made.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return made.eval()


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max())
    return e / e.sum()


# ------------------------------------------------------------------------------------------------ by hand


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def lstm(layer: Any, x: np.ndarray) -> np.ndarray:
    """(T, I) → (T, 2 width): a plain loop over time, from either side."""
    found = []
    for suffix, order in (("_l0", range(len(x))), ("_l0_reverse", range(len(x) - 1, -1, -1))):
        w, u, b, c = (
            getattr(layer.lstm, name + suffix).detach().numpy()
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        width = u.shape[1]
        h, cell, out = np.zeros(width), np.zeros(width), np.zeros((len(x), width))
        for t in order:
            i, f, g, o = np.split(w @ x[t] + u @ h + b + c, 4)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(cell)
            out[t] = h
        found.append(out)
    return np.concatenate(found, 1)


def by_hand(made: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """One example, one word after the other, in the order of the paper."""
    numpy = lambda p: p.detach().numpy()  # noqa: E731
    read = [lstm(made.encoder, np.maximum(0, v @ numpy(made.lead.weight).T + numpy(made.lead.bias))) for v in (x, y)]
    a = read[0] @ read[1].T
    of_x = np.stack([softmax(a[:, s]) @ read[0] for s in range(len(y))])  # what each word of y sees of x
    of_y = np.stack([softmax(a[t, :]) @ read[1] for t in range(len(x))])
    pools = []
    for side, (h, c) in enumerate(((read[0], of_y), (read[1], of_x))):
        h = lstm(made.integrate[side], np.concatenate([h, h - c, h * c], 1))
        beta = softmax(h @ numpy(made.attend[side].weight)[0] + numpy(made.attend[side].bias)[0])
        pools += [h.max(0), h.mean(0), h.min(0), beta @ h]
    z = np.concatenate(pools)
    for layer in made.maxout:
        z = numpy(layer.linear.weight) @ z
        z = (z - numpy(layer.norm.running_mean)) / np.sqrt(numpy(layer.norm.running_var) + layer.norm.eps)
        z = z * numpy(layer.norm.weight) + numpy(layer.norm.bias)
        z = z.reshape(-1, CHANNELS).max(1)
    return numpy(made.out.weight) @ z + numpy(made.out.bias)


def test_pairs_of_different_lengths_equal_numpy_loops() -> None:
    made = network()
    for layer in made.maxout:
        layer.norm.running_mean.normal_()
        layer.norm.running_var.uniform_(0.5, 2)
    lengths = [3, 5, 4, 1]  # of two examples: 3 and 5 words, 4 and 1
    x = drawn(4, 5, 5)
    found = made(x, there(lengths), texts=2).detach().numpy()
    for i in range(2):
        a, b = (x[2 * i + k, : lengths[2 * i + k]].numpy() for k in range(2))
        np.testing.assert_allclose(found[i], by_hand(made, a, b), rtol=1e-9)
    assert np.abs(by_hand(made, b, a) - found[1]).max() > 1e-3  # the order of the texts matters


def test_single_text_equals_pair_with_itself() -> None:
    made = network()
    lengths = [4, 2]
    x = drawn(2, 4, 5, seed=1)
    found = made(x, there(lengths)).detach().numpy()
    for i, n in enumerate(lengths):
        text = x[i, :n].numpy()
        np.testing.assert_allclose(found[i], by_hand(made, text, text), rtol=1e-9)


def test_biattention_of_two_words_and_one_equals_hand_computation() -> None:
    """A sum that a person can check: y has one word, so each of x sees it whole; it sees x by softmax(0, ln 3)."""
    x, y = torch.tensor([[[0.0, 0.0], [float(np.log(3)), 0.0]]]), torch.tensor([[[1.0, 0.0]]])
    yes = torch.ones(1, 2, dtype=torch.bool)
    c_x, c_y = biattention(x, yes, y, yes[:, :1])
    torch.testing.assert_close(c_y, y.expand(1, 2, 2))
    torch.testing.assert_close(c_x[0, 0, 0], torch.tensor(float(0.75 * np.log(3))))


# ------------------------------------------------------------------------------------------------ padding


def test_padding_changes_no_output_and_gets_no_gradient() -> None:
    made, lengths = network(), [3, 5, 4, 1]
    x, wild = drawn(4, 5, 5), drawn(4, 5, 5, seed=9) * 1e6
    inside = there(lengths)
    changed = torch.where(inside.unsqueeze(-1), x, wild).requires_grad_()
    found = made(changed, inside, texts=2)
    torch.testing.assert_close(found, made(x, inside, texts=2), rtol=0, atol=0)
    (slope,) = torch.autograd.grad(found.sum(), changed)
    assert (slope[~inside] == 0).all()
    assert (slope[inside].abs().sum(-1) > 0).all()


def test_pooling_ignores_padding() -> None:
    h = torch.tensor([[[-2.0], [-4.0], [100.0]]])
    inside = torch.tensor([[True, True, False]])
    found = max_mean_min_attention_pool(h, inside, torch.tensor([[0.0, np.log(3), 50.0]], dtype=torch.float32))
    torch.testing.assert_close(found, torch.tensor([[-2.0, -3.0, -4.0, -3.5]]))


def test_packed_frames_equal_padded_rows() -> None:
    lengths = [3, 1, 4]
    x = drawn(3, 4, 5)
    inside = there(lengths)
    ids = torch.zeros(1, 8, dtype=torch.long)
    packed = unpack_rows(x[inside].unsqueeze(0), Inputs(ids, starts=torch.tensor([0, 3, 4, 8])))
    assert torch.equal(packed[1], inside)
    assert torch.equal(packed[0][inside], x[inside])
    assert torch.equal(network()(*packed), network()(x, inside))


def test_batch_norm_of_single_row_uses_running_statistics() -> None:
    layer = Maxout(3, 2).double().train()
    layer(drawn(8, 3))
    before = layer.norm.running_mean.clone()  # type: ignore[union-attr, operator]
    alone = layer(drawn(1, 3, seed=4))
    assert torch.equal(layer.norm.running_mean, before)  # type: ignore[arg-type]
    torch.testing.assert_close(alone, layer.eval()(drawn(1, 3, seed=4)))
