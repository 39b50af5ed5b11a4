"""PAGES: what a report is drawn of: charts as inline SVG, tables, and the shell of a page that carries all it needs."""

from __future__ import annotations
