"""nextword: the language models of the literature, trained, compared and used in the same way.

A first tour:

    import nextword as nw

    # Train a small LSTM on your text, with a progress bar; it ends with an evaluation and a model card.
    run = nw.train("lstm/small", data="my.txt", minutes=2)

    # Use it: strings in, probabilities, texts and vectors out.
    lm = run.model                               # later: nw.load("runs/lstm-small")
    lm.score("the cat sat on the mat").bits_per_byte()
    [guess.text for guess in lm.next("the cat sat on the")]
    lm.generate("the cat", nw.Sample(temperature=0.8), nw.Stop(max_tokens=40)).text
    lm.embed(["one text", "another text"])

    # Which model predicts this text best?
    nw.compare(data="my.txt", minutes=20).winner

    # Fine-tune a run for a task, and predict. Data: a path, a pandas or polars frame, a list, columns.
    result = nw.transfer("bert/finetune", from_="runs/bert", data=[("A fine film.", "good"), …])
    result.model.predict(["Two hours wasted."])

    # Look inside: surprisal, attention, layers, gates, saliency (nextword/lens).
    nw.lens.explain_text(lm, "the cat sat on the mat")

Every function has a command of the same name: `nextword train lstm/tiny`. Mistakes that you can fix raise subclasses of
nw.NextwordError. `nw.papers()` lists all models and recipes, `nw.runs()` your runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from nextword.core.errors import NextwordError

if TYPE_CHECKING:
    from nextword import lens
    from nextword.api import (
        compare,
        convert,
        evaluate,
        load,
        open_corpus,
        papers,
        predict,
        runs,
        train,
        transfer,
    )
    from nextword.comparison.result import ComparisonResult
    from nextword.core.types import Beam, Contrastive, Greedy, Sample, Stop
    from nextword.results import EvaluationResult, Paper, Predictions, Run, TransferResult
    from nextword.training.events import Event

__version__ = "0.1.0"
__all__ = [
    "Beam",
    "ComparisonResult",
    "Contrastive",
    "EvaluationResult",
    "Event",
    "Greedy",
    "NextwordError",
    "Paper",
    "Predictions",
    "Run",
    "Sample",
    "Stop",
    "TransferResult",
    "__version__",
    "compare",
    "convert",
    "evaluate",
    "lens",
    "load",
    "open_corpus",
    "papers",
    "predict",
    "runs",
    "train",
    "transfer",
]

_MODULES = {  # where a name is; imported when it is used, so that `import nextword` is quick
    "nextword.api": (
        *("compare", "convert", "evaluate", "load", "open_corpus", "papers", "predict", "runs", "train", "transfer"),
    ),
    "nextword.comparison.result": ("ComparisonResult",),
    "nextword.core.types": ("Beam", "Contrastive", "Greedy", "Sample", "Stop"),
    "nextword.results": ("EvaluationResult", "Paper", "Predictions", "Run", "TransferResult"),
    "nextword.training.events": ("Event",),
}
_PACKAGES = ("lens",)
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f"nextword.{name}")
    if name not in _PLACES:
        from nextword.core.errors import did_you_mean

        raise AttributeError(f"nextword has no {name!r}.{did_you_mean(name, __all__)}", name=name)
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
