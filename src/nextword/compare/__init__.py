"""The main job: train a ladder of models on one text under one budget, score them on the same bytes, report."""

from __future__ import annotations
