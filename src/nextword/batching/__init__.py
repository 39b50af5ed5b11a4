"""IDS → BATCHES: a text prepared once as ids on disk (prepare.py), and the ways of laying ids out for a network."""

from __future__ import annotations
