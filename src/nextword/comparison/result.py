"""What `nextword.compare` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nextword.comparison.limits import find_winner
from nextword.core.errors import RunError
from nextword.core.types import PSEUDO
from nextword.html.notebook import facts_html, rich_html
from nextword.results import Run

if TYPE_CHECKING:
    from nextword.lm.base import TextModel

TABLE_KEYS = (
    *("name", "bits_per_byte", "bits_per_byte_low", "bits_per_byte_high", "word_perplexity", "token_perplexity"),
    *("bleu", "chrf", "parameters", "size", "seconds", "status", "run"),
)
WIDTH = 120  # characters of the leaderboard in a notebook


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """All models, best first, and the path of the HTML report.

    result = nextword.compare(data="my.txt", minutes=5)
    result.winner, result.report
    pandas.DataFrame(result.table)
    result.model.generate("The").text
    """

    path: Path
    comparison: Mapping[str, Any]  # as printed by `nextword compare --json`
    report: Path | None  # None if no model could be trained
    names: tuple[str, ...]  # of all models, also those that an interrupted comparison has not reached
    is_interrupted: bool

    @property
    def models(self) -> Sequence[Mapping[str, Any]]:
        """All results of every model, best first."""
        models: Sequence[Mapping[str, Any]] = self.comparison["models"]
        return models

    @property
    def table(self) -> list[dict[str, Any]]:
        """The main numbers, a dictionary per model, best first."""
        return [{key: model[key] for key in TABLE_KEYS if key in model} for model in self.models]

    @property
    def runs(self) -> dict[str, Run]:
        """The runs of the models that were trained and scored, by name, best first."""
        return {model["name"]: Run(model["run"]) for model in self.models if model["status"] == "done"}

    @property
    def _ranked(self) -> list[Mapping[str, Any]]:
        """The scored models with comparable numbers, best first: by BLEU if they translate, else by likelihood."""
        done = [model for model in self.models if model["status"] == "done" and model["kind"] != PSEUDO]
        return sorted(done, key=lambda model: -(model.get("bleu") or 0.0))

    @property
    def winner(self) -> str | None:
        """The name of the best model; None if the budget was too short to name one."""
        best = find_winner(self._ranked)
        return None if best is None else str(best["name"])

    @property
    def best(self) -> Run:
        """The run of the winner, or, without one, of the model that is first so far."""
        if not self._ranked:
            raise RunError(f"{self.path} has no model that could be scored: see .table for the errors.", path=self.path)
        return self.runs[self.winner or self._ranked[0]["name"]]

    @property
    def model(self) -> TextModel:
        """The best model, opened."""
        return self.best.model

    def __repr__(self) -> str:
        bits = [(model["name"], model.get("bits_per_byte")) for model in self.models]
        ranking = " < ".join(f"{name} {value:.3f}" for name, value in bits if value is not None)
        status = ", interrupted" if self.is_interrupted else "" if self.winner else ", no winner"
        return f"ComparisonResult({str(self.path)!r}: {ranking or f'{len(self.models)} models'}{status})"

    def _repr_html_(self) -> str:
        from nextword.comparison.terminal import leaderboard

        board = rich_html(leaderboard(self.comparison, WIDTH), WIDTH) if self.runs else ""
        report = str(self.report) if self.report else ""
        status = "interrupted: nextword.compare(resume=True, out=…)" if self.is_interrupted else "finished"
        return facts_html(f"Comparison {self.path}", [("status", status), ("report", report)], board)
