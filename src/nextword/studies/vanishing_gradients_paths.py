"""The networks of the study of vanishing gradients, and how far a gradient travels through each, exactly.

    h_t = step(x_t, h_{t−1})        J_t = ∂h_t/∂h_{t−1}        ∂h_t/∂h_k = J_t J_{t−1} … J_{k+1}

Each J is the whole matrix, by automatic differentiation of the layer's own readable step, in double precision; the norm
is the largest singular value of the product. An LSTM's memory is (h, c), so its J is the matrix of both, and the path
from h to h is a block of the product: what h_k does to h_t in every way there is, through c as well.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from itertools import islice
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacrev, vmap

from nextword.batching.prepare import Stream
from nextword.contract import Inputs, State, Vocabulary
from nextword.layers.recurrent import Layer, Memory
from nextword.models.rnn import GRU, LSTM, RNN, ElmanConfig, Recurrent, RecurrentConfig
from nextword.objectives.causal import Causal
from nextword.tokens import train_tokenizer, vocabulary

PLAIN, RELU, LEAKY, RESIDUAL, ATTENTION = "tanh RNN", "ReLU RNN", "leaky RNN", "residual RNN", "attention"
GATED, H, HC = "GRU", "LSTM (h to h)", "LSTM (h, c)"
NETWORKS = (PLAIN, LEAKY, RESIDUAL, GATED, HC, ATTENTION)
CURVES = (PLAIN, LEAKY, RESIDUAL, GATED, H, HC, ATTENTION)  # what is measured; both of the LSTM's are of one network
UNTRAINED, TRAINED = "untrained", "trained"
SCALES = (0.5, 0.9, 2.0, 4.0, 8.0)  # ‖W‖ of tanh RNNs
BIASES = (0.0, 2.0, 5.0)  # of an LSTM's forget gate
TAMED = ((RELU, 2.0, 1.0), (PLAIN, 2.0, 1.0))  # network, ‖W‖, rate: the exploding cases that decide
CASES = (*TAMED, (RELU, 2.0, 0.1), (PLAIN, 2.0, 0.1), (PLAIN, 8.0, 1.0))
MOST = 100.0  # nats: a loss above this, or one that is no number, is written as this
EMBEDDING, WIDTH, LEAK = 32, 64, 0.9
ROWS, PIECE = 16, 64  # sequences in a step of training, and bytes in each
RATE, CLIP = 0.01, 1.0
RATES = {RESIDUAL: 0.001}  # where another is better: its states are sums, ten times as large
CHUNK = 64  # Jacobians at once: a few tens of MB


# ------------------------------------------------------------------------------------------------ networks


class ResidualLayer(Layer):
    """h_t = h_{t−1} + tanh(W x_t + U h_{t−1} + b): the old state goes on whole, as through the blocks of a ResNet."""

    def forward(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        return self.stepwise(x, memory)

    def stepwise(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        outputs, weights = [], self.weights()
        for x_t in x:
            memory = (memory[0] + self.kind.cell(x_t, memory, weights)[0],)
            outputs.append(memory[0])
        return torch.stack(outputs), memory


class ResidualRNN(RNN):
    def layer(self, inputs: int) -> Layer:
        return ResidualLayer("tanh", inputs, self.config.width)


class Attending(RNN):
    """A tanh RNN whose output at t reads all states up to t by one head: y_t = h_t + Σ_k a_tk V h_k."""

    def __init__(self, config: RecurrentConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.query, self.key, self.value = (nn.Linear(config.width, config.width, bias=False) for _ in range(3))

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        layers, state = super().hidden(inputs, state)
        h = layers[-1]  # (B, T, D)
        q, k, v = self.query(h), self.key(h), self.value(h)
        return [*layers, h + F.scaled_dot_product_attention(q, k, v, is_causal=True)], state

    def last(self, h: Tensor) -> Tensor:
        """The output at the last of the states alone: (T, D) → (D,)."""
        scores = self.key(h) @ self.query(h[-1]) / h.shape[-1] ** 0.5
        return h[-1] + torch.softmax(scores, 0) @ self.value(h)


CLASSES: dict[str, type[Recurrent]] = {GATED: GRU, HC: LSTM, RESIDUAL: ResidualRNN, ATTENTION: Attending}


def make(name: str, seed: int) -> Recurrent:
    """A network on bytes, with one recurrent layer."""
    torch.manual_seed(seed)
    words = vocabulary(train_tokenizer({"kind": "bytes"}, ()))
    leak, activation = (LEAK if name == LEAKY else 0.0), ("relu" if name == RELU else "tanh")
    config = ElmanConfig(width=WIDTH, embedding=EMBEDDING, leak=leak, activation=activation)
    return CLASSES.get(name, RNN)(config, words)


def layer_of(network: Recurrent) -> Layer:
    return cast(Layer, network.layers[0])


@torch.no_grad()
def scaled(network: Recurrent, norm: float) -> Recurrent:
    """The same network with ‖W_hh‖ = norm."""
    weight = layer_of(network).weight_hh
    weight.mul_(norm / torch.linalg.matrix_norm(weight, 2))
    return network


@torch.no_grad()
def remembering(network: Recurrent, bias: float) -> Recurrent:
    """The same LSTM with this much added to the bias of its forget gate: σ(bias) is about how much of c it keeps."""
    layer_of(network).bias_ih[WIDTH : 2 * WIDTH] += bias
    return network


def train(network: Recurrent, name: str, ids: np.ndarray, steps: int, seed: int) -> list[float]:
    """Adam, with clipping. Nats a byte at each step."""
    optimizer = torch.optim.Adam(network.parameters(), lr=RATES.get(name, RATE))
    return [nats for nats, _ in descend(network, optimizer, ids, steps, seed, CLIP)]


def descend(
    network: Recurrent, optimizer: torch.optim.Optimizer, ids: np.ndarray, steps: int, seed: int, clip: float
) -> Iterator[tuple[float, float]]:
    """Nats a byte and the gradient's norm at each step, until the loss is no number. A clip of 0 is none.

    Each piece is read from an empty memory, since the residual network's would grow with all of the text.
    """
    objective = Causal({"kind": "rows", "rows": ROWS, "length": PIECE})
    first = int(np.random.default_rng(seed).integers(0, 10_000))  # seeds differ in what they read, too
    for batch in islice(objective.batches(Stream.from_ids(ids), seed, first), steps):
        loss = objective.loss(network, batch, None)
        optimizer.zero_grad()
        loss.value.backward()
        norm = float(nn.utils.clip_grad_norm_(network.parameters(), clip or math.inf))
        optimizer.step()
        nats = float(loss.value.detach())
        yield nats, norm
        if not math.isfinite(nats):
            return


# ------------------------------------------------------------------------------------------------ gradients


def walk(layer: Layer, x: Tensor, span: int) -> tuple[Tensor, Tensor]:
    """(T, B, I) → memories after each step (T, B, M), and the last `span` Jacobians (span, B, M, M), oldest first."""

    def step(memory: Tensor, x_t: Tensor) -> Tensor:
        return torch.cat(layer.stepwise(x_t.unsqueeze(0), memory.split(layer.width, -1))[1], -1)

    memory, seen = torch.cat(layer.start(x.shape[1]), -1), []
    for x_t in x:
        seen.append(memory)
        memory = step(memory, x_t)
    before = torch.stack(seen)  # (T, B, M)
    flat = (before[-span:].flatten(0, 1), x[-span:].flatten(0, 1))
    matrices = vmap(jacrev(step), chunk_size=CHUNK)(*flat)
    return torch.stack([*seen[1:], memory]), matrices.unflatten(0, (span, -1))


def products(matrices: Tensor) -> Tensor:
    """(n, B, M, M), oldest first → ∂h_t/∂h_{t−1}, ∂h_t/∂h_{t−2}, … as (n, B, M, M)."""
    out = [matrices[-1]]
    for matrix in matrices.flip(0)[1:]:
        out.append(out[-1] @ matrix)
    return torch.stack(out)


def spectral(matrices: Tensor) -> Tensor:
    """Largest singular values of (…, M, N). Scaled first: squares of what is left after 100 steps could underflow."""
    size = matrices.abs().amax((-2, -1), keepdim=True).clamp(min=1e-290)
    unit = matrices / size
    return torch.linalg.eigvalsh(unit @ unit.mT)[..., -1].clamp(min=0).sqrt() * size[..., 0, 0]


def directions(matrices: Tensor) -> float:
    """Stable rank of (B, M, N), geometric mean over the first: 1 where one direction has all that is left."""
    unit = matrices / matrices.abs().amax((-2, -1), keepdim=True).clamp(min=1e-290)
    return float((unit.square().sum((-2, -1)) / spectral(unit) ** 2).log().mean().exp())


@torch.no_grad()
def gradients(network: Recurrent, name: str, ids: Tensor, span: int) -> tuple[dict[str, Tensor], dict[str, float]]:
    """(B, T) bytes → for each curve of this network ‖∂ at t / ∂ at k‖, t the last step, as (span, B) by t − k; and in
    how many directions what is farthest is left.

    For the tanh RNN there is a curve `bound` as well, (γ_h·γ_w)^(t−k): γ_w = ‖W_hh‖, γ_h the largest derivative of tanh
    on the way.
    """
    network = copy.deepcopy(network).double().eval()
    layer = layer_of(network)
    memories, matrices = walk(layer, network.embedding(ids.t()), span)
    if name == ATTENTION:
        whole = {name: shortened(cast(Attending, network), memories, matrices)}
    else:
        whole = {name: products(matrices)}
    if name == HC:
        whole[H] = whole[HC][..., : layer.width, : layer.width]
    norms = {curve: spectral(found).clamp(min=1e-300) for curve, found in whole.items()}
    if name == PLAIN:
        slopes = (1 - memories[-span:] ** 2).amax((0, 2))  # (B,): max ‖Diag(tanh')‖
        gamma = slopes * torch.linalg.matrix_norm(layer.weight_hh, 2)
        norms["bound"] = gamma ** torch.arange(1, span + 1).unsqueeze(1)
    return norms, {curve: directions(found[-1]) for curve, found in whole.items()}


def shortened(network: Attending, memories: Tensor, matrices: Tensor) -> Tensor:
    """∂y_t/∂h_k: straight through attention, and through all later states, Σ_j (∂y_t/∂h_j)(∂h_j/∂h_k)."""
    direct = vmap(jacrev(network.last))(memories.transpose(0, 1))  # (B, D, T, D): each state for itself
    found, out = direct[:, :, -1], []
    for n in range(1, len(matrices) + 1):
        found = direct[:, :, -1 - n] + found @ matrices[-n]
        out.append(found)
    return torch.stack(out)
