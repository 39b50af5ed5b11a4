"""How much a class counts in the loss, from what a recipe says under [task] weights.

"balanced"                  n / (classes · n_class): all classes count alike, however rare (as in scikit-learn)
{ spam = 4.0 }              by name; those that are not named count 1
[1.0, 4.0]                  in the order of the classes
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nextword.core.errors import NextwordError, did_you_mean
from nextword.tasks.settings import Settings

BALANCED = "balanced"
SHOWN = 8  # weights in a note


def class_weights(asked: Any, data: Any) -> tuple[float, ...]:
    """One for each class of the data, in their order; none: all count alike."""
    if isinstance(asked, (str, list, tuple, Mapping)) and not asked:
        return ()
    if data.kind not in ("classify", "pair"):
        what = "tags of words" if data.kind == "tag" else "numbers"
        raise NextwordError(f"[task] weights are of classes, and {data.name} is about {what}. Leave them out.")
    labels = data.labels
    if asked == BALANCED:
        train = data.splits["train"].labels
        counts = Counter(train)
        return tuple(len(train) / (len(labels) * counts[label]) for label in labels)
    if isinstance(asked, Mapping):
        for name in asked:
            if name not in labels:
                raise NextwordError(
                    f"[task] weights names the class {name!r}.{did_you_mean(name, labels)} There are "
                    f"{', '.join(labels[:8])}."
                )
        asked = [asked.get(label, 1.0) for label in labels]
    if not isinstance(asked, (list, tuple)):
        raise NextwordError(
            f"[task] weights = {asked!r}; expected '{BALANCED}', a table as {{{labels[0]} = 2.0}}, or a list."
        )
    if len(asked) != len(labels):
        raise NextwordError(
            f"[task] weights has {len(asked)} numbers, and there are {len(labels)} classes: {', '.join(labels[:8])}."
        )
    for label, weight in zip(labels, asked, strict=True):
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight <= 0:
            raise NextwordError(f"[task] weights: {weight!r} for {label}; expected a number above 0.")
    return tuple(float(weight) for weight in asked)


def weights_told(settings: Settings) -> list[str]:
    if not settings.weights:
        return []
    some = [f"{label} {weight:.3g}" for label, weight in zip(settings.labels, settings.weights, strict=True)][:SHOWN]
    more = f" and {len(settings.labels) - SHOWN} more" if len(settings.labels) > SHOWN else ""
    return [f"classes have weights in the loss: {', '.join(some)}{more}"]
