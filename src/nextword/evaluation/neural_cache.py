"""The neural cache: a language model that also points at words it has recently read.

Grave, Joulin & Usunier, "Improving Neural Language Models with a Continuous Cache" (2017):

    p(w) = λ p_cache(w) + (1 − λ) p_vocab(w)
    p_cache(w) = Σ_i 1[w_i = w] · softmax_i(θ h_t·h_i)        over the `window` positions i before t

h is the readout's input and w_i the word that followed it. Nothing is trained: words recur, and more so after similar
hidden states. Before the first token there is nothing to point at, and p is p_vocab; while fewer than `window`
positions have been read, the cache covers all of them (the authors of AWD-LSTM wait until it is full).

    new positions t ↓        history, at most `window` │ the block itself
                             . x x x x x               │
                             .  . x x x x              │ x              one matrix product per block;
                             .  .  . x x x             │ x x            x: visible, a band as wide as the window
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import DataError, InvalidSetting, Unsupported, invalid
from nextword.core.types import Inputs, Progress, ignore_progress
from nextword.models.base import CausalNetwork

BLOCK = 512  # positions read and compared at once
THETAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.66, 1.0, 1.5, 2.5, 4.0)  # the search grid
WINDOWS = (100, 500, 2000, 4000)
SEARCHED = 250_000  # validation tokens used for the search, at most
MAX_LAMBDA = 0.999  # with λ = 1, a word that is not in the cache would be impossible


class ReadBlock(NamedTuple):
    """Some positions of a text, as a network has read them."""

    h: Tensor  # (T, D) the readout's input
    targets: Tensor  # (T,)
    nats: Tensor  # (T,) −log p_vocab(target)


@dataclass(frozen=True)
class CacheSettings:
    """λ, θ and window; None: to be found on validation text."""

    lambda_: float | None = None
    theta: float | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if self.lambda_ is not None and not 0 <= self.lambda_ < 1:
            raise invalid("cache.lambda", self.lambda_, "must be at least 0 and below 1.")
        if self.theta is not None and not 0 <= self.theta < float("inf"):
            raise invalid("cache.theta", self.theta, "must be 0 or more.")
        if self.window is not None and self.window < 1:
            raise invalid("cache.window", self.window, "must be at least 1 position.")

    @property
    def complete(self) -> bool:
        return None not in (self.lambda_, self.theta, self.window)


# ------------------------------------------------------------------------------------------------ reading a text


def check_network(network: CausalNetwork, method: str) -> None:
    """Refuse a network that the method ("with a cache") cannot evaluate."""
    if not network.has_hidden_states:
        raise Unsupported(
            f"{type(network).__name__} has no hidden states, so it cannot be evaluated {method}. Use a recurrent "
            "network (see `nextword papers`), or leave the option out.",
            ability="hidden",
        )
    if network.is_backward:
        raise Unsupported(
            f"[model] backward: a right-to-left model cannot be evaluated {method}. Leave the option out.",
            ability="forward",
        )


def read_blocks(
    network: CausalNetwork, ids: np.ndarray, progress: Progress = ignore_progress, block: int = BLOCK
) -> Iterator[ReadBlock]:
    """Read a text from its beginning in blocks, carrying the state along."""
    last, state = network.start(1)
    for start in range(0, len(ids), block):
        targets = torch.from_numpy(ids[start : start + block].astype(np.int64)).to(last.device)
        with torch.no_grad():
            layers, state = network.hidden(Inputs(torch.cat([last, targets[:-1]]).unsqueeze(0)), state)
            h = layers[-1][0]
            nats = network.readout.nll(h, targets)
        yield ReadBlock(h, targets, nats)
        last = targets[-1:]
        progress(start + len(targets), len(ids))


# ------------------------------------------------------------------------------------------------ the cache


def cache_nats(blocks: Iterable[ReadBlock], cache: CacheSettings) -> tuple[np.ndarray, np.ndarray]:
    """−log p of every token with the cache, and without it."""
    if cache.lambda_ is None or cache.theta is None or cache.window is None:
        raise InvalidSetting(f"{cache} is incomplete: call search_cache_settings first.", key="cache", value=cache)
    with_cache, without_cache = [np.zeros(0)], [np.zeros(0)]
    for nats, cached in cache_probabilities(blocks, [(cache.window, cache.theta)]):
        with_cache.append(mix_nats(nats, cached[0], cache.lambda_))
        without_cache.append(nats)
    return np.concatenate(with_cache), np.concatenate(without_cache)


def cache_probabilities(
    blocks: Iterable[ReadBlock], settings: Sequence[tuple[int, float]]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each block −log p_vocab (T,), and p_cache of the targets (K, T) for each of the K (window, θ) pairs.

    At the very first position p_cache is set to p_vocab, so that a mixture of the two is p_vocab for any λ.
    """
    widest = max(window for window, _ in settings)
    past: Tensor | None = None  # (P, D), the last `widest` states
    followers: Tensor | None = None  # (P,), the word after each
    for block in blocks:
        h = block.h.detach().float()
        keys = h if past is None else torch.cat([past, h])
        words = block.targets if followers is None else torch.cat([followers, block.targets])
        nats = block.nats.detach().double()
        cached = _block_probabilities(h, keys, block.targets, words, settings)
        if past is None:
            cached[:, 0] = (-nats[0]).exp()
        yield nats.cpu().numpy(), cached.cpu().numpy()
        past, followers = keys[-widest:].clone(), words[-widest:].clone()  # clones, so that no block stays in memory


def _block_probabilities(
    h: Tensor, keys: Tensor, targets: Tensor, words: Tensor, settings: Sequence[tuple[int, float]]
) -> Tensor:
    """p_cache of the targets of one block, whose own states are the last of the keys: (K, T)."""
    before = len(keys) - len(h)
    similarity = h @ keys.t()  # (T, P + T)
    is_target = targets.unsqueeze(1) == words.unsqueeze(0)
    rows = torch.arange(before, len(keys), device=h.device).unsqueeze(1)
    out = h.new_zeros(len(settings), len(h), dtype=torch.double)
    for k, (window, theta) in enumerate(settings):
        first = max(0, before - window)  # no row of the block sees further back
        columns = torch.arange(first, len(keys), device=h.device)
        is_visible = (columns < rows) & (columns >= rows - window)
        z = (theta * similarity[:, first:]).masked_fill_(~is_visible, float("-inf"))
        out[k] = torch.softmax(z, 1).mul_(is_target[:, first:]).sum(1)
    return out


def mix_nats(nats: np.ndarray, cached: np.ndarray, lambda_: float) -> np.ndarray:
    """−log (λ p_cache + (1 − λ) p_vocab), stable also where p_vocab underflows."""
    if not lambda_:
        return nats
    with np.errstate(divide="ignore"):  # log 0 for a word that is not in the cache
        return -np.logaddexp(np.log(lambda_) + np.log(cached), np.log1p(-lambda_) - nats)


# ------------------------------------------------------------------------------------------------ settings


def search_cache_settings(blocks: Iterable[ReadBlock], cache: CacheSettings) -> CacheSettings:
    """Set what is None to the values that make this text likeliest: a grid over window and θ, λ exactly."""
    windows = WINDOWS if cache.window is None else (cache.window,)
    thetas = THETAS if cache.theta is None else (cache.theta,)
    grid = [(window, theta) for window in windows for theta in thetas]
    pairs = list(cache_probabilities(blocks, grid))
    if not pairs:
        raise DataError(
            "There is no validation text to find the cache settings on. Give cache.lambda, cache.theta and "
            "cache.window with --set."
        )
    nats = np.concatenate([part for part, _ in pairs])
    cached = np.concatenate([part for _, part in pairs], 1)
    best, lowest = cache, float("inf")
    for (window, theta), probabilities in zip(grid, cached, strict=True):
        lambda_ = best_lambda(nats, probabilities) if cache.lambda_ is None else cache.lambda_
        cost = float(mix_nats(nats, probabilities, lambda_).sum())
        if cost < lowest:
            best, lowest = replace(cache, lambda_=lambda_, theta=theta, window=window), cost
    return best


def best_lambda(nats: np.ndarray, cached: np.ndarray) -> float:
    """The λ that makes the text likeliest. The log-likelihood is concave in λ: bisect on its slope."""
    p = np.exp(-nats).clip(1e-300)
    gain = cached - p
    low, high = 0.0, MAX_LAMBDA
    if not (gain / p).sum() > 0:
        return 0.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        if (gain / (p + middle * gain)).sum() > 0:
            low = middle
        else:
            high = middle
    return round((low + high) / 2, 4)
