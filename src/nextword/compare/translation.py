"""A comparison of models that make a text from a source: on the same pairs, by BLEU and by what the targets cost.

Whether it is one, the recipes say: all that is compared learns from pairs, or nothing does.

Held-out pairs for a report: what each model makes of a source, and at which of its words it looked.

Networks look at tokens; people read words. So shares of a word's tokens are added up on the side of the source, and on
the side of the target they are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.types import Document, Greedy
from nextword.data.text_to_text import is_tasks
from nextword.evaluation.translation import translate, written_from
from nextword.objectives import of_pairs
from nextword.run_folder import RunFolder

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


TRANSLATOR = "translator"  # the kind of a model in a comparison, beside "exact" and "pseudo"
SCORED = 1000  # pairs at most


def translates(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the entries of a plan are models that make a text from a source; all of them are, or none."""
    found = {entry["name"]: of_pairs(_objective(entry)) for entry in entries}
    tasks = [entry["name"] for entry in entries if is_tasks(_data(entry))]
    if tasks:
        raise NextwordError(
            f"{', '.join(tasks)} does tasks, each with a metric of its own: there is no one number to compare. "
            "`nextword evaluate RUN` gives them all."
        )
    if len(set(found.values())) > 1:
        these, those = ([name for name, pairs in found.items() if pairs is kind] for kind in (True, False))
        raise NextwordError(
            f"{', '.join(these)} make a text from a source, {', '.join(those)} model plain text: no number is the same "
            "for both. Compare them apart."
        )
    return any(found.values())


def own_data(runs: Sequence[str]) -> str:
    """The pairs that the first run was trained on, where it was trained on pairs: what to compare it on."""
    from pathlib import Path

    for run in runs:
        if (Path(run) / "manifest.json").is_file():
            phase = RunFolder.open(run).recipe.phases[-1]
            return str(phase.data) if of_pairs(phase.objective) else ""
    return ""


def _objective(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    if "recipe" in entry:
        return entry["recipe"]["phase"][-1].get("objective") or {}
    return RunFolder.open(entry["run"]).recipe.phases[-1].objective


def _data(entry: Mapping[str, Any]) -> str:
    if "recipe" in entry:
        return str(entry["recipe"]["phase"][-1].get("data") or "")
    return str(RunFolder.open(entry["run"]).recipe.phases[-1].data)


def examples(corpus: Any) -> list[dict[str, str]]:
    """Validation pairs for all models to translate; the test pairs where there are no others."""
    return chosen(corpus.documents("valid" if "valid" in corpus.splits else "test"))


def scored(lm: Any, corpus: Any, split: str, shown: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Greedily: BLEU and chrF with their intervals, what the true targets cost, and the examples with their maps."""
    pairs = list(islice(corpus.documents(split), SCORED))
    found = translate(lm, pairs, Greedy(), summaries=getattr(corpus, "summaries", False))
    flat: dict[str, Any] = {}
    for name, one in found.scores.items():
        flat |= {name: one["score"], f"{name}_low": one["low"], f"{name}_high": one["high"]}
    return {
        **{k: v for k, v in found.as_dict().items() if k != "scores"},
        **flat,
        "signatures": {name: one["signature"] for name, one in found.scores.items()},
        "kind": TRANSLATOR,
        "examples": written(lm, shown, Greedy()),
    }
