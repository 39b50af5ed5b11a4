"""Held-out pairs for a report: what each model makes of a source, and at which of its words it looked.

Networks look at tokens; people read words. So shares of a word's tokens are added up on the side of the source, and on
the side of the target they are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nextword.corpora import Document
from nextword.evaluation.translation import written_from

SHOWN = 4
FEWEST, MOST = 5, 14  # words of a source that a map has room for
ENDS = "⏎"


def chosen(pairs: Iterable[Document], shown: int = SHOWN) -> list[dict[str, str]]:
    """Some pairs from all over a text, of a length that can be read; where there are none such, the shortest."""
    every = [(pair.source or "", pair.text) for pair in pairs]
    fit = [pair for pair in every if all(FEWEST <= len(side.split()) <= MOST for side in pair)]
    if len(fit) < shown:
        fit = sorted(every, key=lambda pair: max(len(side.split()) for side in pair))[:shown]
    at = np.linspace(0, len(fit) - 1, min(shown, len(fit))).round().astype(int)
    return [{"source": fit[i][0], "target": fit[i][1]} for i in at]


def written(lm: Any, examples: Sequence[dict[str, str]], how: Any) -> list[dict[str, Any]]:
    """What the model writes from each source; with attention, the map of it."""
    texts = written_from(lm, [example["source"] for example in examples], how)
    return [
        {"written": text, "map": looked(lm, text, example["source"]) if lm.looks and text else None}
        for text, example in zip(texts, examples, strict=True)
    ]


def looked(lm: Any, text: str, source: str) -> dict[str, Any]:
    """Words of both sides, and the shares [target][source]; their ends are words, too."""
    (read, of_source), (wrote, of_target) = (words(lm.tokenizer, side) for side in (source, text))
    weights = lm.alignment(text, source).weights
    summed = np.zeros((len(weights), len(read)))
    np.add.at(summed.T, of_source, weights.T[: len(of_source)])
    shares = np.zeros((len(wrote), len(read)))
    np.add.at(shares, of_target, summed[: len(of_target)])
    shares /= np.maximum(np.bincount(of_target, minlength=len(wrote)), 1)[:, None]
    return {"source": read, "target": wrote, "weights": shares.round(4).tolist()}


def words(tokenizer: Any, text: str) -> tuple[list[str], np.ndarray]:
    """The words of a text and its end; and of each token, the end among them, which of these it belongs to."""
    encoding, raw = tokenizer.encode(text), text.encode()
    kinds, of = np.unique(encoding.words, return_inverse=True)
    found = []
    for word in range(len(kinds)):
        spans = encoding.spans[of == word]
        found.append(raw[int(spans[:, 0].min()) : int(spans[:, 1].max())].decode("utf-8", "replace").strip() or "␣")
    return [*found, ENDS], np.append(of.astype(np.int64), len(found))
