"""How good a model is: likelihood on held-out text, in numbers that can be compared."""

from __future__ import annotations
