"""Layers that papers share. Networks assemble them; nothing here knows a paper.

Shapes, everywhere: B batch · T time · S source · D width · H heads · K head width · V vocabulary · N = B·T flattened.
"""

from __future__ import annotations
