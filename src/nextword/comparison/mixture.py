"""The best mixture of two models: λ p₁ + (1 − λ) p₂ for every token (Jelinek & Mercer 1980).

An n-gram and a network are wrong about different words, so their mixture is usually better than both: the n-gram knows
exact phrases, the network similar ones. The weights are fitted to validation text by expectation-maximization
(ngrams/interpolation.py), the mixture is chosen there too, and measured on the test text, where neither has looked.

A mixture of next-token distributions is a distribution only if both are over the same tokens. So models are mixed if
they have the same tokenizer and read from left to right. For other models there is no mixture, and a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nextword.batching.token_stream import prepare
from nextword.comparison.limits import is_hardly_trained
from nextword.core.errors import DataError
from nextword.core.types import EXACT, Score
from nextword.data.corpus import Corpus
from nextword.evaluation.likelihood import MIN_TOKENS, bootstrap, bytes_per_id
from nextword.lm.base import TextModel
from nextword.ngrams.interpolation import fit_weights

MAX_FITTED = 100_000  # validation tokens to fit the weights on

Model = Mapping[str, Any]  # a model's row of `compare --json`


class TokenScores(NamedTuple):
    """What a model pays for each token; a file of scores/."""

    valid: np.ndarray  # (M,) nats
    test: np.ndarray  # (N,) nats
    bytes: np.ndarray  # (N,) bytes that each test token stands for; zeros if the tokenizer is lossy
    tokens: str  # what is predicted: equal for two models that can be mixed
    is_counted: bool  # n-grams


def token_scores(lm: TextModel, corpus: Corpus, test_nats: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of a file of scores/, from the costs of the test text."""
    valid, test = prepare(corpus, "valid", lm.tokenizer).ids[:MAX_FITTED], prepare(corpus, "test", lm.tokenizer).ids
    digest = blake2b(digest_size=16)
    for ids in (valid, test):
        digest.update(np.asarray(ids, np.int64).tobytes())
    direction = "backward" if lm.network.is_backward else "forward"
    lossless = lm.kind == EXACT and lm.tokenizer.lossless
    return {
        "valid": lm.stream_nats(valid).astype(np.float32),
        "test": test_nats.astype(np.float32),
        "bytes": bytes_per_id(lm.tokenizer)[test] if lossless else np.zeros(len(test), np.int64),
        "tokens": np.array(f"{digest.hexdigest()} {lm.network.output_size} {direction}"),
        "is_counted": np.array(lm.network.has_flat_scores),
    }


def save_scores(path: Path, scores: Mapping[str, np.ndarray]) -> None:
    path.parent.mkdir(exist_ok=True)
    arrays: dict[str, Any] = dict(scores)
    np.savez(path, **arrays)


def load_scores(path: Path) -> TokenScores | None:
    """None if there is no such file: the model was scored without a validation text."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        valid, test, num_bytes = (file[key].astype(np.float64) for key in ("valid", "test", "bytes"))
        return TokenScores(valid, test, num_bytes, str(file["tokens"]), bool(file["is_counted"]))


def find_best_mixture(models: Sequence[Model], folder: Path) -> dict[str, Any] | None:
    """The mixture of two models that is best on the validation text, with its scores on the test text.

    Pairs are an n-gram with a network if there are both. None if no two models can be mixed.
    """
    contenders = [m for m in models if m.get("kind") == EXACT and not is_hardly_trained(m)]
    scores = {m["name"]: found for m in contenders if (found := load_scores(folder / f"{m['name']}.npz"))}
    best: tuple[float, Model, Model, np.ndarray] | None = None
    for first, second in _pairs([m for m in contenders if m["name"] in scores], scores):
        a, b = scores[first["name"]], scores[second["name"]]
        if a.tokens != b.tokens or a.tokens.endswith("backward"):
            continue
        try:
            fitted = fit_weights(-np.stack([a.valid, b.valid]))
        except DataError:  # no token is possible under either
            continue
        if best is None or fitted.history[-1] < best[0]:
            best = fitted.history[-1], first, second, fitted.weights
    if best is None:
        return None
    _, first, second, weights = best
    same = [m for m in contenders if m["name"] in scores and scores[m["name"]].tokens == scores[first["name"]].tokens]
    single = min(same, key=lambda m: scores[m["name"]].test.sum())
    others = [m["name"] for m in models if m not in same and not is_hardly_trained(m)]
    names = (first["name"], second["name"])
    return {
        "models": [{"name": name, "weight": float(weight)} for name, weight in zip(names, weights, strict=True)],
        **measure(weights, [scores[name] for name in names], scores[single["name"]], single),
        "best_single": single["name"],
        "other_tokens": others,  # cannot be mixed with these two
    }


def _pairs(models: Sequence[Model], scores: Mapping[str, TokenScores]) -> Iterator[tuple[Model, Model]]:
    """All pairs of an n-gram and a network; if there are none, all pairs."""
    counted = [m for m in models if scores[m["name"]].is_counted]
    networks = [m for m in models if m not in counted]
    if counted and networks:
        yield from ((c, n) for c in counted for n in networks)
    else:
        yield from combinations(models, 2)


def mix(weights: np.ndarray, nats: Sequence[np.ndarray]) -> np.ndarray:
    """−ln Σ λ p of every token, from the −ln p of every model."""
    costs = np.stack(nats)
    least = costs.min(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mixed = least - np.log(weights @ np.exp(least - costs))
    return np.where(np.isinf(least), math.inf, mixed)  # impossible under all of them


def measure(
    weights: np.ndarray, mixed: Sequence[TokenScores], single: TokenScores, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The test scores of a mixture, and what it gains on the best single model, with paired intervals.

    `facts`: the row of the single model, whose words and bytes are those of the text.
    """
    nats = mix(weights, [scores.test for scores in mixed])
    score = Score(float(nats.sum()), len(nats), facts["words"], facts["bytes"], EXACT, bool(single.bytes.any()))
    bits, low, high, gain, gain_low, gain_high = score.bits_per_byte(), None, None, None, None, None
    alone = float(single.test.sum())
    if bits is not None and math.isfinite(bits):
        gain = alone / math.log(2) / facts["bytes"] - bits
        if len(nats) >= MIN_TOKENS:
            low, high = bootstrap(nats, single.bytes, total=facts["bytes"])
            if math.isfinite(alone):
                gain_low, gain_high = bootstrap(single.test - nats, single.bytes, total=facts["bytes"])
    has_words = facts.get("word_perplexity") is not None  # not in scripts without spaces
    return {
        "bits_per_byte": bits,
        "bits_per_byte_low": low,
        "bits_per_byte_high": high,
        "word_perplexity": score.word_perplexity() if has_words else None,
        "token_perplexity": score.token_perplexity(),
        "gain": gain,
        "gain_low": gain_low,
        "gain_high": gain_high,
        "token_perplexity_gain": math.exp(alone / len(nats)) - (score.token_perplexity() or math.inf)
        if math.isfinite(alone)
        else None,
    }


def describe_mixture(mixture: Mapping[str, Any] | None) -> str:
    """The mixture in a sentence or two; "" if there is none."""
    if not mixture:
        return ""
    parts = sorted(mixture["models"], key=lambda part: -part["weight"])
    named = " and ".join(f"{100 * part['weight']:.0f} % {part['name']}" for part in parts)
    bits, gain = mixture.get("bits_per_byte"), mixture.get("gain")
    low, high, single = mixture.get("gain_low"), mixture.get("gain_high"), mixture["best_single"]
    if bits is None:
        said = f"Mixture of {named}: token perplexity {mixture['token_perplexity']:,.1f}"
        lower = mixture.get("token_perplexity_gain") or 0.0
        is_clear, gained = lower > 0, f"{lower:,.1f} lower than"
    else:
        said = f"Mixture of {named}: {bits:.3f} bits per byte"
        spread = f" ({low:.3f}–{high:.3f})" if low is not None and high is not None else ""
        is_clear = gain is not None and gain > 0 and (low is None or low > 0)
        gained = f"{gain:.3f}{spread} less than" if is_clear else ""
    others = mixture.get("other_tokens") or []
    note = f" Other tokens, so not mixed: {', '.join(others)}." if others else ""
    return f"{said}, {gained if is_clear else 'not clearly better than'} {single} alone.{note}"
