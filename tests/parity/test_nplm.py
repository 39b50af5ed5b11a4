"""NPLM compared with its equation in numpy, y = b + W x + U tanh(d + H x), and with finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.models.nplm import NPLM
from nextword.objectives.causal import CausalObjective

SIZE, BEGIN = 9, 7
CONTEXT, M, H = 3, 4, 5


def network(direct: bool, context: int = CONTEXT) -> NPLM:
    torch.manual_seed(0)
    return NPLM(NPLM.Config(context, M, H, direct), Vocabulary(SIZE, BEGIN)).double()


def contexts(ids: list[int], context: int = CONTEXT) -> list[list[int]]:
    """What position t sees, oldest first; before the text stands `begin`.

    context 3, ids a b c d:    . . a      . a b      a b c      b c d
    """
    padded = [BEGIN] * (context - 1) + ids
    return [padded[t : t + context] for t in range(len(ids))]


def forward(weights: dict[str, np.ndarray], context: list[int], direct: bool) -> np.ndarray:
    """log softmax(y) of one context, as the paper writes it."""
    big_c, big_h, d = weights["embedding.weight"], weights["inner.weight"], weights["inner.bias"]
    output, b = weights["readout.weight"], weights["readout.bias"]
    x = np.concatenate([big_c[w] for w in context])  # oldest word first
    u, w = output[:, :H], output[:, H:]
    y = b + u @ np.tanh(d + big_h @ x)
    if direct:
        assert w.shape == (SIZE, len(x))
        y = y + w @ x
    else:
        assert w.shape == (SIZE, 0)
    y = y - y.max()
    return y - np.log(np.exp(y).sum())


def weights_of(net: NPLM) -> dict[str, np.ndarray]:
    return {name: t.detach().numpy().copy() for name, t in net.state_dict().items()}


@pytest.mark.parametrize("context", [1, 2, 3])
@pytest.mark.parametrize("direct", [False, True])
def test_forward_equals_equation_in_numpy(direct: bool, context: int) -> None:
    net = network(direct, context)
    rows = [[1, 2, 3, 4, 5], [8, 8, 0, 6, 1]]
    layers, _ = net.hidden(Inputs(torch.tensor(rows)), None)
    log_p = net.readout.log_probs(layers[-1]).detach().numpy()
    for r, ids in enumerate(rows):
        for t, seen in enumerate(contexts(ids, context)):
            np.testing.assert_allclose(log_p[r, t], forward(weights_of(net), seen, direct), rtol=1e-10, atol=1e-12)


def test_concatenated_layer_holds_embeddings_oldest_first() -> None:
    net = network(direct=False)
    (x, _), _ = net.hidden(Inputs(torch.tensor([[1, 2, 3, 4]])), None)
    e = net.embedding.weight
    torch.testing.assert_close(x[0, 3], torch.cat([e[2], e[3], e[4]]))
    torch.testing.assert_close(x[0, 2], torch.cat([e[1], e[2], e[3]]))


def test_first_tokens_are_conditioned_on_begin() -> None:
    net = network(direct=True)
    first, state = net.start(2)
    assert first.tolist() == [BEGIN, BEGIN]
    assert state.tolist() == [[BEGIN] * (CONTEXT - 1)] * 2
    log_p, state = net.step(first, state)  # nothing but begin has been seen
    np.testing.assert_allclose(log_p[0].detach().numpy(), forward(weights_of(net), [BEGIN] * 3, True), rtol=1e-10)
    log_p, state = net.step(torch.tensor([4, 5]), state)
    np.testing.assert_allclose(log_p[1].detach().numpy(), forward(weights_of(net), [BEGIN, BEGIN, 5], True), rtol=1e-10)
    assert state.tolist() == [[BEGIN, 4], [BEGIN, 5]]


@pytest.mark.parametrize("context", [1, 2, 4])
def test_state_holds_last_words(context: int) -> None:
    net = network(direct=False, context=context)
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    whole, _ = net.hidden(Inputs(ids), None)
    first, state = net.hidden(Inputs(ids[:, :2]), None)
    second, last = net.hidden(Inputs(ids[:, 2:]), state)
    torch.testing.assert_close(torch.cat([first[-1], second[-1]], 1), whole[-1])
    assert last.tolist() == [[1, 2, 3, 4, 5][5 - context + 1 :]]


def batch() -> Batch:
    return Batch(
        Inputs(torch.tensor([[1, 2, 3], [8, 1, 1], [0, 4, 8]])), torch.tensor([[4], [0], [0]]), reset_state=True
    )


def loss_of(net: NPLM) -> Tensor:
    return CausalObjective({"kind": "windows", "context": CONTEXT}).loss(net, batch(), None).value


@pytest.mark.parametrize("direct", [False, True])
def test_gradients_equal_central_differences(direct: bool) -> None:
    """Central differences over every weight, of the mean loss computed by the numpy forward alone."""
    net = network(direct)
    loss_of(net).backward()
    weights = weights_of(net)
    rows, targets = batch().inputs.ids.tolist(), batch().targets[:, 0].tolist()

    def loss() -> float:
        return -float(np.mean([forward(weights, row, direct)[t] for row, t in zip(rows, targets, strict=True)]))

    assert loss_of(net).item() == pytest.approx(loss(), rel=1e-12)
    step = 1e-5
    for name, parameter in net.named_parameters():
        slope = np.zeros_like(weights[name])
        for at in np.ndindex(*slope.shape):
            kept = weights[name][at]
            weights[name][at] = kept + step
            above = loss()
            weights[name][at] = kept - step
            slope[at] = (above - loss()) / (2 * step)
            weights[name][at] = kept
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.numpy(), slope, rtol=1e-6, atol=1e-9, err_msg=name)


def test_parameter_count_equals_paper() -> None:
    """|V|(1 + n m + h) + h(1 + (n − 1) m), n − 1 context words, with direct connections (the paper, section 2)."""
    n, v = CONTEXT + 1, SIZE
    found = sum(p.numel() for p in network(direct=True).parameters())
    assert found == v * (1 + n * M + H) + H * (1 + (n - 1) * M)
