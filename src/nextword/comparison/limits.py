"""What a comparison leaves open: networks that the clock cut short, that saw too little text, that still improved.

A network belongs to one of these groups by the facts in its row of `compare --json`:

    cut_short        its budget of minutes ended the training
    under_one_pass   it saw less than the whole training text
    still_falling    its curve fell by more than 1 % in the last fifth of the training time
    hardly_trained   the clock ended it within 100 steps: its rank means nothing, and it can neither win nor lose

`find_winner` names a model only if the budget trained something that it could lose to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MIN_STEPS = 100  # below this many, the learning rate has hardly warmed up
LATE = 0.8  # share of the training time after which a curve should be flat
FALLING = 0.01  # relative improvement that counts as still falling
CURVES = ("valid_bits_per_byte", "valid_perplexity", "train_bits_per_byte")  # the first of which there is enough
MIN_POINTS = 4  # of a curve
GROUPS = ("cut_short", "under_one_pass", "still_falling", "hardly_trained")

Model = Mapping[str, Any]  # a model's row of `compare --json`


def find_limits(models: Sequence[Model]) -> dict[str, list[str]]:
    """The names of the trained networks, and of those in each group."""
    networks = [m for m in models if (m.get("status") or "done") == "done" and is_network(m)]
    tests = (is_cut_short, is_under_one_pass, lambda m: is_still_falling(m.get("curve") or ()), is_hardly_trained)
    groups = {key: [_name(m) for m in networks if test(m)] for key, test in zip(GROUPS, tests, strict=True)}
    return {"networks": [_name(m) for m in networks], **groups}


def is_network(model: Model) -> bool:
    """Whether this model was trained step by step; n-grams are counted, and converted models bring no log."""
    return model.get("stopped") not in (None, "counted")


def is_cut_short(model: Model) -> bool:
    return model.get("stopped") == "minutes"


def is_under_one_pass(model: Model) -> bool:
    return (model.get("epochs") or math.inf) < 1


def is_hardly_trained(model: Model) -> bool:
    return is_cut_short(model) and (model.get("steps") or 0) < MIN_STEPS


def is_still_falling(curve: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether the curve's best value of the last fifth of the time is clearly below the best value before.

    None if the curve has too few points to tell.
    """
    for key in CURVES:
        points = [
            (float(event["seconds"]), float(event[key]))
            for event in curve
            if event.get("seconds") and event.get(key) is not None and math.isfinite(event[key])
        ]
        if len(points) >= MIN_POINTS:
            end = max(seconds for seconds, _ in points)
            early = [value for seconds, value in points if seconds <= LATE * end]
            late = [value for seconds, value in points if seconds > LATE * end]
            return min(late) < (1 - FALLING) * min(early) if early else None
    return None


def find_winner(ranked: Sequence[Model]) -> Model | None:
    """The first of the models, given best first; None if there is no contest, because the clock trained hardly any.

    Models that are hardly trained do not count. If that leaves fewer than two of several, there is no winner.
    """
    contenders = [m for m in ranked if not is_hardly_trained(m)]
    if len(contenders) < min(len(ranked), 2):
        return None
    return contenders[0] if contenders else None


# ------------------------------------------------------------------------------------------------ in words


def describe_limits(models: Sequence[Model], more_time: bool = True) -> str:
    """One or two sentences about the trained networks; "" if nothing limits them. `more_time`: advise it.

    Networks that are hardly trained are left to `describe_no_winner`.
    """
    networks = [m for m in models if is_network(m) and not is_hardly_trained(m)]
    limits, total = find_limits(networks), len(networks)
    falling = [is_still_falling(m.get("curve") or ()) for m in networks]
    if not total or not any(limits[group] for group in GROUPS):
        return ""
    clauses = [
        _count(limits["cut_short"], total, "was", "were", "cut short by the clock"),
        _count(limits["under_one_pass"], total, "saw", "saw", "less than one pass of the text"),
        _count(limits["still_falling"], total, "was", "were", "still improving at the end"),
    ]
    if not any(falling) and None not in falling:
        clauses.append("none was still improving at the end" if total > 1 else "was no longer improving at the end")
    clauses = [clause for clause in clauses if clause]
    listed = " and ".join(filter(None, [", ".join(clauses[:-1]), clauses[-1]]))
    sentence = f"Of {total} networks, {listed}." if total > 1 else f"The network {_name(networks[0])} {listed}."
    can_improve = limits["still_falling"] or limits["under_one_pass"]
    if not (can_improve and more_time):
        return sentence
    return f"{sentence} More time may change the {'order' if len(models) > 1 else 'result'}."


def describe_no_winner(models: Sequence[Model]) -> str:
    """Why `find_winner` names no model."""
    hasty = [m for m in models if is_hardly_trained(m)]
    steps = {(m.get("steps") or 0) for m in hasty}
    spread = f"{min(steps):,}" if len(steps) == 1 else f"{min(steps):,} to {max(steps):,}"
    listed = " and ".join(filter(None, [", ".join(map(_name, hasty[:-1])), *map(_name, hasty[-1:])]))
    plural = "" if steps == {1} else "s"
    return f"No winner: {listed} had time for {spread} step{plural} only. Give the comparison more --minutes."


def _count(names: Sequence[str], total: int, singular: str, plural: str, rest: str) -> str:
    """ "2 were still improving at the end (gru, lstm)"; names only if they are some, not all."""
    if not names:
        return ""
    if total == 1:
        return f"{singular} {rest}"
    listed = f" ({', '.join(names)})" if len(names) < total else ""
    return f"{len(names)} {singular if len(names) == 1 else plural} {rest}{listed}"


def _name(model: Model) -> str:
    return str(model.get("name") or model.get("slug") or "unnamed")
