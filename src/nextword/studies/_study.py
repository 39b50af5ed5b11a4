"""The contract of a study: a claim, tables measured for it, a verdict computed from those tables, and a figure.

    Settings ──measure──▶ tables ──judge──▶ parts ──▶ verdict: holds | does not hold | undecided
                             └────draw────▶ figure

`judge` and `draw` see only the tables. A verdict can therefore always be recomputed from numbers.json, and numbers
that contradict the claim reverse it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nextword.core.errors import InvalidSetting
from nextword.core.io import replace_nonfinite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"

Progress = Callable[[float, float], None]  # (done, total)
Cell = Any  # str, int, float, None, or [middle, low, high]


@dataclass(frozen=True)
class Claim:
    sentence: str
    source: str  # paper and section, or other source, in words


@dataclass(frozen=True)
class Settings:
    seeds: tuple[int, ...] = ()  # default: five; three with `quick`; one with `run`
    quick: bool = False  # smaller sizes and fewer seeds, to check that the study works
    data: str = ""  # built-in corpus, data set name or path; default: the built-in text
    run: str = ""  # trained run to examine; default: the study trains its own networks

    def __post_init__(self) -> None:
        if not self.seeds:
            default = (0, 1, 2) if self.quick else (0, 1, 2, 3, 4)
            object.__setattr__(self, "seeds", (0,) if self.run else default)
        if any(seed < 0 for seed in self.seeds):
            raise InvalidSetting("Seeds must not be negative.", key="seeds", value=self.seeds)


@dataclass(frozen=True)
class Table:
    """Named columns of JSON values. A detailed table is written to the files but not printed in the terminal."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    detailed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "rows", tuple(map(tuple, self.rows)))

    def column(self, name: str, **where: Cell) -> list[Cell]:
        """One column of the rows whose other columns have these values: `column("stored", N=3)`."""
        index = self.columns.index(name)
        tests = [(self.columns.index(key.replace("_", " ")), value) for key, value in where.items()]
        return [row[index] for row in self.rows if all(row[i] == value for i, value in tests)]

    def cell(self, name: str, **where: Cell) -> Cell:
        """The only cell that `column` matches."""
        (cell,) = self.column(name, **where)
        return cell


Tables = Mapping[str, Table]
Measured = tuple[dict[str, Table], dict[str, Any]]  # tables by name, and the conditions they were measured under


@dataclass(frozen=True)
class Part:
    """One assertion of the claim, judged. A part that does not decide is a side result: it qualifies the verdict."""

    statement: str
    holds: bool | None  # None: the numbers cannot tell
    evidence: str  # a sentence with the deciding numbers
    uncertainty: str  # an interval, a range over seeds, the R² of a fit, or why there is none
    decides: bool = True

    @property
    def verdict(self) -> str:
        return UNDECIDED if self.holds is None else HOLDS if self.holds else FAILS

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def overall_verdict(parts: Sequence[Part]) -> str:
    """A claim fails with its first deciding part that fails, and holds only if all of them hold."""
    deciding = [part.holds for part in parts if part.decides]
    if False in deciding:
        return FAILS
    return HOLDS if deciding and all(deciding) else UNDECIDED


class Study(Protocol):
    """A study is a module with these four names."""

    CLAIM: Claim

    def measure(self, settings: Settings, progress: Progress) -> Measured: ...
    def judge(self, tables: Tables) -> list[Part]: ...
    def draw(self, tables: Tables, figure: Figure) -> None: ...


@dataclass(frozen=True)
class Finding:
    """The result of running a study."""

    name: str
    claim: Claim
    tables: dict[str, Table]
    parts: tuple[Part, ...]
    conditions: dict[str, Any]  # data, sizes, seeds, command, seconds

    @property
    def verdict(self) -> str:
        return overall_verdict(self.parts)

    @property
    def summary(self) -> str:
        """All evidence in one paragraph, deciding parts first."""
        return " ".join(part.evidence for part in sorted(self.parts, key=lambda part: not part.decides))

    @property
    def uncertainty(self) -> str:
        return "; ".join(dict.fromkeys(part.uncertainty for part in self.parts))

    def as_dict(self) -> dict[str, Any]:
        """For JSON: infinities and NaN become null."""
        return {
            "study": self.name,
            "claim": self.claim.sentence,
            "source": self.claim.source,
            "verdict": self.verdict,
            "summary": self.summary,
            "uncertainty": self.uncertainty,
            "parts": [part.as_dict() for part in self.parts],
            "tables": {name: replace_nonfinite(asdict(table)) for name, table in self.tables.items()},
            "conditions": replace_nonfinite(self.conditions),
        }
