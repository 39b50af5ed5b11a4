"""What a study is: a claim, numbers measured for it, a verdict computed from those numbers, and a figure of them.

    Settings ──measure──▶ tables ──judge──▶ parts ──verdict──▶ holds | does not hold | undecided
                             └────draw────▶ figure

`judge` and `draw` see the tables and nothing else, so a verdict can always be recomputed from numbers.json, and numbers
that say the contrary turn it round. A study is a module with CLAIM, measure, judge and draw; with
TAKES_RUN = True, too, if it can look at a run instead of networks of its own.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nextword.contract_errors import NextwordError
from nextword.infinity import finite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"

Progress = Callable[[float, float], None]  # how much is done, of how much
Cell = Any  # str, int, float, None, or [middle, low, high] over seeds


@dataclass(frozen=True)
class Claim:
    sentence: str
    source: str  # in words: the paper and its section, or where else it is said


@dataclass(frozen=True)
class Settings:
    seeds: tuple[int, ...] = ()  # none given: five, or three when quick
    quick: bool = False  # smaller sizes and fewer seeds: to see that it works, and roughly what comes out
    data: str = ""  # a built-in corpus, a data set's name, or a path; none given: the built-in text
    run: str = ""  # a trained network to look at, for studies that can; none given: those that the study trains

    def __post_init__(self) -> None:
        if not self.seeds:
            several = (0, 1, 2) if self.quick else (0, 1, 2, 3, 4)
            object.__setattr__(self, "seeds", (0,) if self.run else several)  # of a trained one there is but one
        if any(seed < 0 for seed in self.seeds):
            raise NextwordError(f"Seeds are whole numbers from 0 on; given were {', '.join(map(str, self.seeds))}.")


@dataclass(frozen=True)
class Table:
    """Numbers under column names, ready for JSON. A detailed one is written to the files and not to the terminal."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    detailed: bool = False

    def column(self, name: str, **where: Cell) -> list[Cell]:
        """One column, of the rows whose other columns have these values: `column("stored", N=3)`."""
        at = self.columns.index(name)
        tests = [(self.columns.index(key.replace("_", " ")), value) for key, value in where.items()]
        return [row[at] for row in self.rows if all(row[i] == value for i, value in tests)]

    def cell(self, name: str, **where: Cell) -> Cell:
        """The one cell that `column` finds."""
        (found,) = self.column(name, **where)
        return found


@dataclass(frozen=True)
class Part:
    """One thing the claim says, judged. One that does not decide qualifies the verdict: what a careful reader adds."""

    says: str
    verdict: str
    found: str  # a sentence with the numbers that decided
    uncertainty: str  # the range over seeds, the R² of a fit, or why there is none
    decides: bool = True


Tables = Mapping[str, Table]


class Study(Protocol):
    CLAIM: Claim

    # What was measured, and on what: the tables by name, and the conditions they hold under.
    def measure(self, settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]: ...
    def judge(self, tables: Tables) -> list[Part]: ...
    def draw(self, tables: Tables, figure: Figure) -> None: ...


@dataclass(frozen=True)
class Finding:
    name: str
    claim: Claim
    tables: dict[str, Table]
    parts: tuple[Part, ...]
    conditions: dict[str, Any]  # data, sizes, seeds, seconds

    @property
    def verdict(self) -> str:
        return verdict(self.parts)

    @property
    def sentence(self) -> str:
        """The whole finding in a breath: what decided, then what qualifies it."""
        return " ".join(part.found for part in sorted(self.parts, key=lambda part: not part.decides))

    @property
    def uncertainty(self) -> str:
        return "; ".join(dict.fromkeys(part.uncertainty for part in self.parts))

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what is not finite becomes None, since JSON has no word for it."""
        return {
            "study": self.name,
            "claim": self.claim.sentence,
            "source": self.claim.source,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "uncertainty": self.uncertainty,
            "parts": [asdict(part) for part in self.parts],
            "tables": {name: finite(asdict(table)) for name, table in self.tables.items()},
            "conditions": finite(self.conditions),
        }


def verdict(parts: Sequence[Part]) -> str:
    """A claim holds when all that decides holds, and falls with the first part that does not."""
    words = [part.verdict for part in parts if part.decides]
    if FAILS in words:
        return FAILS
    return HOLDS if words and all(word == HOLDS for word in words) else UNDECIDED


def judged(holds: bool | None) -> str:
    """None: the numbers do not suffice to say."""
    return UNDECIDED if holds is None else HOLDS if holds else FAILS


def run(name: str, study: Study, settings: Settings, progress: Progress = lambda done, total: None) -> Finding:
    """Measure, then judge. Everything random in a study comes from the settings' seeds."""
    if settings.run and not getattr(study, "TAKES_RUN", False):
        raise NextwordError(f"--run {settings.run}: the study {name} trains its own networks. Leave --run out.")
    start = time.perf_counter()
    tables, conditions = study.measure(settings, progress)
    conditions = {**conditions, "seeds": list(settings.seeds), "quick": settings.quick}
    conditions["command"] = command(name, settings)
    conditions["seconds"] = round(time.perf_counter() - start, 1)
    return Finding(name, study.CLAIM, tables, tuple(study.judge(tables)), conditions)


def command(name: str, settings: Settings) -> str:
    """What to type to measure the same again."""
    words = ["nextword look", name, f"--seeds {len(settings.seeds)} --seed {settings.seeds[0]}"]
    words += ["--quick"] * settings.quick + [f"--data {shlex.quote(settings.data)}"] * bool(settings.data)
    words += [f"--run {shlex.quote(settings.run)}"] * bool(settings.run)
    return " ".join(words)
