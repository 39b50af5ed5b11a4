"""Three language models on the engine, each as its paper writes it: NPLM, RNN and LSTM.

A model is a dictionary of weights and a function of a batch of ids, (rows, time), to logits for the next id. `train`
is the whole of gradient descent: predict, measure, go back, and move each weight a little against its gradient.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nextword.micro.engine import Array, Tensor, concatenate


class Model:
    """Weights by name, and logits (rows × time, words) for ids (rows, time)."""

    def __init__(self, words: int, seed: int = 0) -> None:
        self.words = words
        self.weights: dict[str, Tensor] = {}
        self._draw = np.random.default_rng(seed)

    def add(self, name: str, *shape: int) -> None:
        """Add a weight: zeros for a bias, otherwise small random numbers that suit the number of inputs."""
        scale = 0.0 if len(shape) == 1 else 1 / np.sqrt(shape[0])
        self.weights[name] = Tensor(self._draw.normal(0, 1, shape) * scale, name=name)

    def __getitem__(self, name: str) -> Tensor:
        return self.weights[name]

    def logits(self, ids: Array) -> Tensor:
        raise NotImplementedError

    def targets(self, ids: Array, following: Array) -> Array:
        """The ids to predict, in the order of the logits."""
        return following.reshape(-1)

    def loss(self, ids: Array, following: Array) -> Tensor:
        """Mean −log p of the ids that follow, in nats."""
        return self.logits(ids).cross_entropy(self.targets(ids, following))


class NPLM(Model):
    """Bengio et al. 2003: y = b + W x + U tanh(d + H x), where x joins the embeddings of the last words."""

    def __init__(self, words: int, context: int = 3, embedding: int = 16, hidden: int = 32, seed: int = 0) -> None:
        super().__init__(words, seed)
        self.context = context
        self.add("C", words, embedding)
        self.add("H", context * embedding, hidden)
        self.add("d", hidden)
        self.add("U", hidden, words)
        self.add("W", context * embedding, words)
        self.add("b", words)

    def logits(self, ids: Array) -> Tensor:
        windows = np.lib.stride_tricks.sliding_window_view(ids, self.context, axis=1).reshape(-1, self.context)
        x = self["C"][windows].reshape(len(windows), -1)
        h = (x @ self["H"] + self["d"]).tanh()
        return h @ self["U"] + x @ self["W"] + self["b"]

    def targets(self, ids: Array, following: Array) -> Array:
        return following[:, self.context - 1 :].reshape(-1)  # a window must be full


class RNN(Model):
    """Elman 1990: h_t = tanh(W_xh x_t + W_hh h_{t−1} + b)."""

    def __init__(self, words: int, embedding: int = 16, hidden: int = 32, seed: int = 0) -> None:
        super().__init__(words, seed)
        self.hidden = hidden
        self.add("C", words, embedding)
        self.add("W_xh", embedding, hidden)
        self.add("W_hh", hidden, hidden)
        self.add("b", hidden)
        self.add("W_hy", hidden, words)
        self.add("b_y", words)

    def logits(self, ids: Array) -> Tensor:
        rows, time = ids.shape
        h, states = Tensor(np.zeros((rows, self.hidden))), []
        for t in range(time):
            h = (self["C"][ids[:, t]] @ self["W_xh"] + h @ self["W_hh"] + self["b"]).tanh()
            states.append(h.reshape(rows, 1, self.hidden))
        return concatenate(states, axis=1).reshape(-1, self.hidden) @ self["W_hy"] + self["b_y"]


class LSTM(Model):
    """Hochreiter & Schmidhuber 1997, with forget gates: c_t = f ⊙ c_{t−1} + i ⊙ g, h_t = o ⊙ tanh(c_t)."""

    GATES = "ifgo"  # input, forget, candidate, output: the order of PyTorch

    def __init__(self, words: int, embedding: int = 16, hidden: int = 32, seed: int = 0) -> None:
        super().__init__(words, seed)
        self.hidden = hidden
        self.add("C", words, embedding)
        for gate in self.GATES:
            self.add(f"W_x{gate}", embedding, hidden)
            self.add(f"W_h{gate}", hidden, hidden)
            self.add(f"b_{gate}", hidden)
        self.add("W_hy", hidden, words)
        self.add("b_y", words)

    def logits(self, ids: Array) -> Tensor:
        rows, time = ids.shape
        h, c, states = Tensor(np.zeros((rows, self.hidden))), Tensor(np.zeros((rows, self.hidden))), []
        for t in range(time):
            h, c = self.cell(self["C"][ids[:, t]], h, c)
            states.append(h.reshape(rows, 1, self.hidden))
        return concatenate(states, axis=1).reshape(-1, self.hidden) @ self["W_hy"] + self["b_y"]

    def cell(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """One step. The cell is added to, not multiplied through a matrix, so its gradient can reach far back."""
        i, f, g, o = (x @ self[f"W_x{gate}"] + h @ self[f"W_h{gate}"] + self[f"b_{gate}"] for gate in self.GATES)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


def train(
    model: Model, ids: Array, steps: int = 200, rows: int = 16, time: int = 12, rate: float = 0.5, clip: float = 1.0
) -> Iterator[float]:
    """Gradient descent on pieces of a text of ids; yields the loss of every step, in nats.

    clip   the largest norm of the gradient: a recurrent network's can explode (Pascanu et al. 2013)
    """
    if len(ids) < time + 2:
        raise ValueError(f"The text has {len(ids)} ids; a piece of time={time} needs at least {time + 2}.")
    draw = np.random.default_rng(0)
    for _ in range(steps):
        starts = draw.integers(0, len(ids) - time - 1, rows)
        pieces = np.stack([ids[start : start + time + 1] for start in starts])
        loss = model.loss(pieces[:, :-1], pieces[:, 1:])
        for weight in model.weights.values():
            weight.zero_grad()
        loss.backward()
        norm = np.sqrt(sum((weight.grad**2).sum() for weight in model.weights.values()))
        step = rate * min(1.0, clip / (norm + 1e-12))
        for weight in model.weights.values():
            weight.data -= step * weight.grad
        yield loss.item()


def encode(text: str) -> tuple[Array, list[str]]:
    """The words of a text as ids, and the words by id."""
    tokens = text.split()
    words = sorted(set(tokens))
    place = {word: i for i, word in enumerate(words)}
    return np.array([place[token] for token in tokens]), words
