"""A comparison of models that make a text from a source: on the same pairs, by BLEU and by what the targets cost.

Whether it is one, the recipes say: all that is compared learns from pairs, or nothing does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from nextword.checkpoint import RunFolder
from nextword.compare.examples import chosen, written
from nextword.contract import Greedy
from nextword.contract_errors import NextwordError
from nextword.corpora.text_to_text import is_tasks
from nextword.evaluation.translation import translate
from nextword.objectives import of_pairs

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
