"""What a run can be asked for, told from its class and its settings, before any weights are read.

It is what `can` says of a model that is loaded (language_model.py, conditional.py, infilling, vectored.py); a contract
test holds the two together. Lists of papers and cards of runs are written by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nextword.contract_protocols import Autoregressive, Encoder, Infilling


def abilities(cls: Any, settings: Mapping[str, Any]) -> frozenset[str]:
    """Of "score", "next", "fill", "generate" and "embed"; `settings` are those of [model]."""
    encodes, two_sided = _has(cls, Encoder), getattr(cls, "two_sided", False)
    if getattr(cls, "conditional", False):
        return frozenset({"score", "generate", *(["embed"] if two_sided else ())})
    found = {"embed"} if encodes else set()
    if encodes and _has(cls, Infilling):
        found.add("fill")
    if _has(cls, Autoregressive):
        found |= set() if silent(settings) else {"score"} if settings.get("backward") else {"score", "next", "generate"}
    elif "fill" in found:
        found |= {"score", "next"}
    return frozenset(found)


def silent(settings: Mapping[str, Any]) -> bool:
    """Whether its weights came without an output layer: it gives vectors, and predicts nothing."""
    return (settings.get("readout") or {}).get("kind") == "none"


def _has(cls: Any, protocol: Any) -> bool:
    methods = [name for name in vars(protocol) if not name.startswith("_") and callable(getattr(protocol, name, None))]
    return all(callable(getattr(cls, name, None)) for name in methods)
