"""The neural cache: a language model that also points at what it has just read.

Grave, Joulin & Usunier, "Improving Neural Language Models with a Continuous Cache" (2017):

    p(w) = λ p_cache(w) + (1 − λ) p_vocab(w)
    p_cache(w) = Σ_i 1[w_i = w] · softmax_i(θ h_t·h_i)        over the `window` positions i before t

h is what the readout reads, and w_i the word that followed it. Nothing is learnt: words come again, and more so after
states that look alike. Before the first token there is nothing to point at, and the vocabulary speaks alone; while
fewer than `window` positions are behind, the cache is over all of them (the AWD-LSTM's authors wait until it is full).

    new positions t ↓        history, at most `window` │ the block itself
                             . x x x x x               │
                             .  . x x x x              │ x              one product of states for a block;
                             .  .  . x x x             │ x x            x: seen, a band as wide as the window
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import Inputs

BLOCK = 512  # positions read and compared at once
THETAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.66, 1.0, 1.5, 2.5, 4.0)  # tried where none is given
WINDOWS = (100, 500, 2000, 4000)
SEARCHED = 250_000  # validation tokens that settings are found on, at most
MOST = 0.999  # λ: with 1, a word that is not in the cache would be impossible

Progress = Callable[[float, float | None], None]


class Part(NamedTuple):
    """Some positions of a text, as a network has read them."""

    h: Tensor  # (T, D) what the readout read
    targets: Tensor  # (T,)
    nats: Tensor  # (T,) −log p_vocab(target)


@dataclass(frozen=True)
class Cache:
    """None: found on validation text."""

    lambda_: float | None = None
    theta: float | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if self.lambda_ is not None and not 0 <= self.lambda_ < 1:
            raise NextwordError(
                f"cache.lambda = {self.lambda_}: it is the cache's share of the mixture, from 0 up to below 1."
            )
        if self.theta is not None and not 0 <= self.theta < float("inf"):
            raise NextwordError(
                f"cache.theta = {self.theta}: it must be zero or more, for the cache prefers what looks alike."
            )
        if self.window is not None and self.window < 1:
            raise NextwordError(f"cache.window = {self.window}: the cache must look back at least one position.")

    @property
    def complete(self) -> bool:
        return None not in (self.lambda_, self.theta, self.window)


PENN = Cache(0.1, 1.0, 500)  # the settings of Merity, Keskar & Socher (2018)
WIKITEXT = Cache(0.1279, 0.662, 3785)


def check_network(network: Any, what: str) -> None:
    """What reads a text by its hidden states needs a network that has some."""
    if not callable(getattr(network, "hidden", None)):
        raise Unsupported(
            f"{type(network).__name__} has no hidden states, so it cannot be evaluated {what}. Evaluate it plainly, "
            "or use a recurrent network (`nextword papers` lists what is here)."
        )
    if getattr(network, "is_backward", False):
        raise Unsupported(f"[model] backward reads texts from their end, and is not evaluated {what}. Do it plainly.")


def read(network: Any, ids: np.ndarray, progress: Progress | None = None, block: int = BLOCK) -> Iterator[Part]:
    """A text from its beginning, in blocks, with the state carried along."""
    last, state = network.start(1)
    for at in range(0, len(ids), block):
        targets = torch.from_numpy(ids[at : at + block].astype(np.int64)).to(last.device)
        with torch.no_grad():
            layers, state = network.hidden(Inputs(torch.cat([last, targets[:-1]]).unsqueeze(0)), state)
            h = layers[-1][0]
            nats = network.readout.nll(h, targets)
        yield Part(h, targets, nats)
        last = targets[-1:]
        if progress:
            progress(at + len(targets), len(ids))


# ------------------------------------------------------------------------------------------------ the cache itself


def pointed(parts: Iterable[Part], kinds: Sequence[tuple[int, float]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each part −log p_vocab, (T,), and p_cache of the targets, (K, T), with each window and θ of `kinds`.

    At the first position of all, p_cache is p_vocab: a mixture of the two is then p_vocab, whatever the share.
    """
    widest = max(window for window, _ in kinds)
    past: Tensor | None = None  # (P, D), the last `widest` states
    words: Tensor | None = None  # (P,), what followed each
    for part in parts:
        h = part.h.detach().float()
        keys = h if past is None else torch.cat([past, h])
        followed = part.targets if words is None else torch.cat([words, part.targets])
        nats = part.nats.detach().double()
        found = _block(h, keys, part.targets, followed, kinds)
        if past is None:
            found[:, 0] = (-nats[0]).exp()
        yield nats.cpu().numpy(), found.cpu().numpy()
        past, words = keys[-widest:].clone(), followed[-widest:].clone()  # clones: no block is kept whole


def _block(h: Tensor, keys: Tensor, targets: Tensor, followed: Tensor, kinds: Sequence[tuple[int, float]]) -> Tensor:
    """p_cache of the targets of one block, whose own states are the last of the keys: (K, T)."""
    before = len(keys) - len(h)
    likeness = h @ keys.t()  # (T, P + T)
    same = targets.unsqueeze(1) == followed.unsqueeze(0)
    rows = torch.arange(before, len(keys), device=h.device).unsqueeze(1)
    out = h.new_zeros(len(kinds), len(h), dtype=torch.double)
    for k, (window, theta) in enumerate(kinds):
        first = max(0, before - window)  # no row of the block sees further back
        columns = torch.arange(first, len(keys), device=h.device)
        seen = (columns < rows) & (columns >= rows - window)
        z = (theta * likeness[:, first:]).masked_fill_(~seen, float("-inf"))
        out[k] = torch.softmax(z, 1).mul_(same[:, first:]).sum(1)
    return out


def mixed(nats: np.ndarray, cached: np.ndarray, share: float) -> np.ndarray:
    """−log (λ p_cache + (1 − λ) p_vocab), also where p_vocab is too small for a float."""
    if not share:
        return nats
    with np.errstate(divide="ignore"):  # log 0 for a word that is not in the cache
        return -np.logaddexp(np.log(share) + np.log(cached), np.log1p(-share) - nats)


def cache_nats(parts: Iterable[Part], cache: Cache) -> tuple[np.ndarray, np.ndarray]:
    """−log p of every token with the cache, and without it."""
    share, theta, window = _settled(cache)
    with_it, without = [], []
    for nats, found in pointed(parts, [(window, theta)]):
        with_it.append(mixed(nats, found[0], share))
        without.append(nats)
    empty = [np.zeros(0)]
    return np.concatenate(with_it or empty), np.concatenate(without or empty)


def _settled(cache: Cache) -> tuple[float, float, int]:
    if cache.lambda_ is None or cache.theta is None or cache.window is None:
        raise NextwordError(f"{cache} leaves settings open: find them with `found` first.")
    return cache.lambda_, cache.theta, cache.window


# ------------------------------------------------------------------------------------------------ settings


def found(parts: Iterable[Part], cache: Cache) -> Cache:
    """What the cache leaves open, set to what makes this text likeliest: a grid over window and θ, and λ exactly."""
    windows = WINDOWS if cache.window is None else (cache.window,)
    thetas = THETAS if cache.theta is None else (cache.theta,)
    kinds = [(window, theta) for window in windows for theta in thetas]
    pairs = list(pointed(parts, kinds))
    if not pairs:
        raise NextwordError("There is no validation text to find the cache's settings on. Give all three with --set.")
    nats = np.concatenate([part for part, _ in pairs])
    cached = np.concatenate([part for _, part in pairs], 1)
    best, least = cache, float("inf")
    for (window, theta), p in zip(kinds, cached, strict=True):
        share = best_share(nats, p) if cache.lambda_ is None else cache.lambda_
        cost = float(mixed(nats, p, share).sum())
        if cost < least:
            best, least = replace(cache, lambda_=share, theta=theta, window=window), cost
    return best


def best_share(nats: np.ndarray, cached: np.ndarray) -> float:
    """The λ that makes the text likeliest. Its log-likelihood is concave in λ: bisection on the slope finds the top."""
    p = np.exp(-nats).clip(1e-300)
    gain = cached - p
    low, high = 0.0, MOST
    if not (gain / p).sum() > 0:
        return 0.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        if (gain / (p + middle * gain)).sum() > 0:
            low = middle
        else:
            high = middle
    return round((low + high) / 2, 4)
