"""Losses: how text is turned into something to predict, and what is scored. Objectives know no model by name."""

from __future__ import annotations

import importlib
from typing import Any

OBJECTIVES = {"causal": "nextword.objectives.causal:Causal"}


def objective_class(name: str) -> Any:
    module, attribute = OBJECTIVES[name].split(":")
    return getattr(importlib.import_module(module), attribute)
