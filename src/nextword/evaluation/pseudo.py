"""Pseudo-likelihood of a text under a model that sees both sides, and how many hidden tokens it guesses right.

    log PL = Σ_t log p(x_t | all other tokens of the window)          Salazar et al. (2020)

Each token is hidden alone, which costs a reading of a whole window for every token; so a sample of the tokens is
hidden, evenly spread over the text, and sums are of the sample. Ends of documents are neither hidden nor counted. The
numbers are labelled `pseudo` and compare with those of other models that see both sides, over the same tokens, alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nextword.contract import PSEUDO, Score
from nextword.contract_errors import NextwordError
from nextword.evaluation.conventions import notes
from nextword.evaluation.likelihood import FEWEST, Evaluation, bootstrap, id_bytes

CONTEXT = 128  # tokens around the hidden one, itself among them, where nobody asks for more
SAMPLE = (400, 2000)  # tokens: the fewest and the most, where nobody says how many
WORK = 1e13  # floating point operations that the sample may take between the two: a minute or two of two cores


def evaluate_sample(
    lm: Any,
    stream: Any,
    context: int | None = None,
    stride: int | None = None,
    progress: Callable[[float, float | None], None] | None = None,
    limit: int | None = None,
) -> Evaluation:
    """`context`: tokens that are read with each hidden one; `limit`: how many are hidden."""
    if context is not None and context > lm.room:
        raise NextwordError(
            f"A context of {context:,} tokens does not fit: this model reads {lm.room:,} tokens of a text at a time. "
            "Ask for no more."
        )
    seen, stride = context or min(CONTEXT, lm.room), stride or 1
    if not 1 <= stride <= seen:
        raise NextwordError(f"The stride must lie between 1 and the context; got context {seen}, stride {stride}.")
    end = lm.tokenizer.end
    ids = np.asarray(stream.ids)
    there = np.arange(len(ids)) if end is None else np.flatnonzero(ids != end)
    at = there[_spread(len(there), limit or _affordable(lm.parameters, seen))]
    began = time.perf_counter()
    found = lm.hide_in_stream(ids, at, seen, stride, progress)
    seconds = time.perf_counter() - began
    share = len(at) / max(len(there), 1)
    lines = stream.lines if end is None else 0
    score = Score(
        float(found.nats.sum()),
        len(at),
        round((stream.words + lines) * share),
        round(stream.bytes * share),
        PSEUDO,
        lm.tokenizer.lossless,
        seen,
        stride,
    )
    low, high = (None, None)
    if score.bits_per_byte() is not None and len(at) >= FEWEST:
        low, high = bootstrap(found.nats, id_bytes(lm.tokenizer)[ids[at]], total=score.bytes)
    accuracy = float(found.right.sum()) / max(len(at), 1)
    part = f"a sample of {len(at):,} of {len(there):,} tokens, evenly spread; words and bytes are its share of them"
    said = (
        "pseudo-likelihood: each token hidden alone and guessed from both sides; not to be set beside likelihoods",
        part if share < 1 else f"all {len(there):,} tokens; the ends of documents are not predicted",
        f"each sees at most {seen:,} tokens of its document, itself among them",
        f"{100 * accuracy:.1f} % of the hidden tokens are the likeliest in their place",
        *notes(lm.tokenizer, ids[at], found.nats)[1:],  # all but how document ends are paid for
    )
    facts = {"accuracy": accuracy, "sample": len(at), "of": len(there)}
    return Evaluation(score, low, high, seconds, said, (), int(np.isinf(found.nats).sum()), facts)


def _spread(total: int, wanted: int) -> np.ndarray:
    """So many of the places up to `total`, evenly spread; all of them where that is fewer."""
    if wanted < 1:
        raise NextwordError(f"A sample of {wanted} tokens: give 1 or more.")
    if wanted >= total:
        return np.arange(total)
    return ((np.arange(wanted) + 0.5) * total / wanted).astype(np.int64)


def _affordable(parameters: int, context: int) -> int:
    """Tokens to hide: as many as the work allows, which is two operations a parameter and token read."""
    least, most = SAMPLE
    return int(min(max(WORK / (2 * max(parameters, 1) * context), least), most))
