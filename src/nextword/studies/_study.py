"""What a study is: a claim, numbers measured for it, a verdict computed from those numbers, and a figure of them.

    Settings ──measure──▶ tables ──judge──▶ parts ──verdict──▶ holds | does not hold | undecided
                             └────draw────▶ figure

`judge` and `draw` see the tables and nothing else, so a verdict can always be recomputed from numbers.json, and numbers
that say the contrary turn it round. A study is a module with CLAIM, measure, judge and draw; with
TAKES_RUN = True, too, if it can look at a run instead of networks of its own.

A finding as files: figure.svg and figure.png, numbers.json, and study.md to read.

How figures of studies look: one palette that colour-blind readers can tell apart, and names beside lines.

Sums that studies share: what to say of several seeds, how fast something grows, and how to write a number.

Scores of whole sets of texts with their intervals: BLEU, nats a token, how long texts are.

Each is a number made from sums: BLEU of n-grams that are right, n-grams and lengths; nats a token of nats and tokens.
So what a set is made of is kept text by text, and another set of texts is drawn by adding up others:

    statistics (seeds, n, k) ──sum over n──▶ (seeds, k) ──score──▶ one number a seed

The counting is sacrebleu's.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from matplotlib.colors import to_rgb

from nextword.core.errors import NextwordError
from nextword.core.io import finite

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


# Okabe & Ito 2008, without their yellow, which is too light for lines on white
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
    "#777777",
)
INK = "#222222"

STYLE: Any = {
    "font.size": 10,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a figure is the same everywhere
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "svg.hashsalt": "nextword",  # the same numbers give the same file
}


def beside(axes: Any, labels: Sequence[tuple[float, str, str]], gap: float = 0.055) -> None:
    """Write (y, text, colour) to the right of the axes, moved apart until none is nearer to another than `gap`."""
    if not labels:
        return
    to_axes = axes.transData + axes.transAxes.inverted()
    x = axes.get_xlim()[1]
    wanted = sorted((float(to_axes.transform((x, y))[1]), text, colour) for y, text, colour in labels)
    for at, (place, text, colour) in zip(_apart([w[0] for w in wanted], gap), wanted, strict=True):
        axes.annotate(
            text,
            xy=(1.0, place),
            xytext=(1.03, at),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=_darker(colour),
            va="center",
            annotation_clip=False,
            fontsize=9,
        )


def _darker(colour: str) -> tuple[float, ...]:
    """Letters are thinner than lines, and need more contrast to be read."""
    return tuple(0.8 * part for part in to_rgb(colour))


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Move sorted places as little as makes every distance at least `gap`: neighbours that touch become one block."""
    blocks: list[list[float]] = []  # [middle, how many]
    for place in places:
        blocks.append([place, 1])
        while len(blocks) > 1 and blocks[-1][0] - blocks[-2][0] < gap * (blocks[-1][1] + blocks[-2][1]) / 2:
            (m1, n1), (m2, n2) = blocks[-2:]
            blocks[-2:] = [[(m1 * n1 + m2 * n2) / (n1 + n2), n1 + n2]]
    return [float(m + gap * (i - (n - 1) / 2)) for m, n in blocks for i in np.arange(n)]


@dataclass(frozen=True)
class Growth:
    """y ∝ x^exponent, fitted on logarithms."""

    exponent: float
    r2: float


def growth(x: Sequence[float], y: Sequence[float]) -> Growth:
    """Least squares on log-log; an R² of 1 is a power law, and a flat y counts as one with exponent 0."""
    a, b = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    slope, offset = np.polyfit(a, b, 1)
    total = ((b - b.mean()) ** 2).sum()
    left = ((b - offset - slope * a) ** 2).sum()
    return Growth(float(slope), float(1 - left / total) if total > 1e-12 else 1.0)


def marginal(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """What one more x costs, between neighbours: all equal exactly where y = a + b·x."""
    return [float(d) for d in np.diff(np.asarray(y, dtype=float)) / np.diff(np.asarray(x, dtype=float))]


def over_seeds(values: Sequence[float]) -> list[float]:
    """[median, smallest, largest]: of a few seeds the range says more than a standard error. Counts stay whole."""
    found = [float(np.median(values)), float(min(values)), float(max(values))]
    whole = all(isinstance(value, int) for value in values) and found[0].is_integer()
    return [int(value) for value in found] if whole else found


def written(value: Cell) -> str:
    """A cell for a reader: counts grouped in thousands, long ones as powers of ten, seeds as median and range."""
    if value is None:
        return "–"
    if isinstance(value, (list, tuple)):
        middle, low, high = map(written, value)
        return middle if low == high else f"{middle} ({low}–{high})"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**9 else f"{value:.1e}"
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 100 <= abs(value) < 10**6:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if 0.01 <= abs(value) < 100 else f"{value:.1e}"


# Student's t at 97.5 % for 1, 2, 3 … degrees of freedom; beyond them 1.96 + 2.4 / n is right to two digits
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


def interval(values: np.ndarray) -> tuple[float, float, float] | None:
    """Their mean and its 95 % interval, as of few independent draws; None for a single one."""
    n = len(values)
    if n < 2:
        return None
    times = STUDENT[n - 2] if n - 2 < len(STUDENT) else 1.96 + 2.4 / (n - 1)
    middle, half = float(values.mean()), times * float(values.std(ddof=1)) / n**0.5
    return middle, middle - half, middle + half


def in_pairs(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """How far these are above those, seed by seed: mean and 95 % interval. A single seed has no interval: it is
    everything."""
    differences = np.asarray(these, dtype=float) - np.asarray(those, dtype=float)
    found = interval(differences)
    return [float(differences[0]), -np.inf, np.inf] if found is None else list(found)


def widest(middle: float, by_seed: np.ndarray, text: tuple[float, float]) -> list[float]:
    """[middle, low, high]: the wider of two 95 % intervals, Student's t over seeds and the one found over the text.

    A single seed has no interval: it is everything.
    """
    seeds = interval(by_seed)
    if seeds is None:
        return [middle, -np.inf, np.inf]
    return [middle, min(text[0], seeds[1]), max(text[1], seeds[2])]


NO_INTERVAL = "one seed has no interval"


def bounded(cell: Sequence[Any]) -> bool:
    """Has it an interval? Without one it is infinite, or None once it has been JSON, which has no infinity."""
    return cell[1] is not None and bool(np.isfinite(cell[1]))


def above(cell: Sequence[float], bound: float = 0.0) -> bool | None:
    """Is it above the bound, the whole interval? None: the bound lies inside."""
    _, low, high = (np.inf if value is None else value for value in cell)  # JSON has no infinity
    if cell[1] is None:
        return None
    return True if low > bound else False if high < bound else None


def below(cell: Sequence[float], bound: float = 0.0) -> bool | None:
    """Is it below the bound, the whole interval? None: the bound lies inside."""
    found = above(cell, bound)
    return None if found is None else not found


DOTS = 160  # per inch in the PNG


def write(finding: Finding, study: Study, folder: Path) -> list[Path]:
    """Put the four files into the folder, replacing those of an earlier run; each appears whole or not at all."""
    files = {
        **pictures(finding, study),
        "numbers.json": (json.dumps(finding.as_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode(),
        "study.md": page(finding).encode(),
    }
    for name, content in files.items():
        _replace(folder / name, content)
    return [folder / name for name in files]


def ready(folder: Path) -> None:
    """Make the folder and try it, so that a study is not run for nothing."""
    _replace(folder / "try", b"")
    (folder / "try").unlink()


def _replace(file: Path, content: bytes) -> None:
    part = file.with_name(f".{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, file)
    except OSError as problem:
        raise NextwordError(
            f"The study cannot be written to {file.parent}: {problem.strerror or problem}. "
            "Give a folder that can be written to: --out FOLDER."
        ) from problem


def pictures(finding: Finding, study: Study) -> dict[str, bytes]:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(11, 5), facecolor="white", layout="constrained")
        FigureCanvasAgg(figure)  # no window, whatever back end the user's settings name
        study.draw(finding.tables, figure)
        found = {}
        for kind, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": DOTS})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, **options)
            found[f"figure.{kind}"] = buffer.getvalue()
    return found


def page(finding: Finding) -> str:
    """The finding in Markdown, with the figure beside it in the folder."""
    lines = [
        f"# {finding.name}: {finding.verdict}",
        f"> {finding.claim.sentence}\n>\n> {finding.claim.source}",
        finding.sentence,
        f"Uncertainty: {finding.uncertainty}.",
        f"![{finding.claim.sentence}](figure.svg)",
        "## Part by part",
        "\n".join(_point(part) for part in finding.parts),
        "## Numbers",
    ]
    for table in finding.tables.values():
        lines += [f"### {table.title}", _markdown(table)]
    lines += ["## Conditions", "\n".join(f"- {key}: {_plain(value)}" for key, value in finding.conditions.items())]
    return "\n\n".join(lines) + "\n"


def _point(part: Part) -> str:
    beside = "" if part.decides else " (beside the claim)"
    return f"- {part.says} **{part.verdict}**{beside}. {part.found} _{part.uncertainty}._"


def _markdown(table: Table) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = row(["---"] + ["---:"] * (len(table.columns) - 1))
    return "\n".join([row(table.columns), rule, *(row([written(cell) for cell in cells]) for cells in table.rows)])


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


ORDERS = 4
SUMS = 2 * ORDERS + 2  # right n-grams, n-grams, words written, words of the references
DRAWS = 1000

Score = Callable[[np.ndarray], np.ndarray]  # (…, k) sums → (…) numbers


def counted(written: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """(n, SUMS): what BLEU adds up, text by text."""
    metric = _sacrebleu()(effective_order=True)
    found = np.zeros((len(written), SUMS))
    for i, (one, target) in enumerate(zip(written, targets, strict=True)):
        score: Any = metric.sentence_score(one, [target])
        found[i] = [*score.counts, *score.totals, score.sys_len, score.ref_len]
    return found


def bleu(sums: np.ndarray) -> np.ndarray:
    """(…, SUMS) → (…): BLEU of sets of texts, from 0 to 100."""
    metric = _sacrebleu()

    def one(row: np.ndarray) -> float:
        counts, totals = ([int(n) for n in row[at : at + ORDERS]] for at in (0, ORDERS))
        return float(metric.compute_bleu(counts, totals, int(row[-2]), int(row[-1]), "exp").score)

    flat = np.array([one(row) for row in sums.reshape(-1, SUMS)])
    return flat.reshape(sums.shape[:-1])


def lost_bleu(sums: np.ndarray) -> np.ndarray:
    """BLEU below 0: the more, the worse, as with costs."""
    return -bleu(sums)


def ratio(sums: np.ndarray) -> np.ndarray:
    """(…, 2) → (…): the one by the other, as of nats and tokens."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1e-9)


def written_length(sums: np.ndarray) -> np.ndarray:
    """Of BLEU's sums: words written, by words of the references."""
    return ratio(sums[..., -2:])


# ------------------------------------------------------------------------------------------------ intervals


def found(score: Score, statistics: np.ndarray, *, alone: bool = False) -> list[float]:
    """(seeds, n, k) → the mean over seeds, and the wider of two 95 % intervals: over seeds, and over the texts.

    `alone`: there is one network and no other seed of it; its interval is that over the texts.
    """
    by_seed, ends = score(statistics.sum(1)), _drawn(score, statistics)
    middle = float(by_seed.mean())
    return [middle, *ends] if alone else widest(middle, by_seed, ends)


def between(score: Score, these: np.ndarray, those: np.ndarray, *, alone: bool = False) -> list[float]:
    """How much these are above those, of the same texts: texts and seeds go in pairs."""
    return found(difference(score), joined(these, those), alone=alone)


def unpaired(score: Score, these: np.ndarray, those: np.ndarray) -> list[float]:
    """The same where the texts are others: then only seeds go in pairs, and the errors of the texts add up."""
    by_seed = score(these.sum(1)) - score(those.sum(1))
    half = sum(((high - low) / 2) ** 2 for low, high in (_drawn(score, part) for part in (these, those))) ** 0.5
    middle = float(by_seed.mean())
    return widest(middle, by_seed, (middle - half, middle + half))


def joined(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """(seeds, n, k) twice → (seeds, n, 2k), for the `difference` of a score."""
    return np.concatenate([these, those], -1)


def difference(score: Score) -> Score:
    """Of what was joined, how much the first half is above the second."""

    def apart(sums: np.ndarray) -> np.ndarray:
        k = sums.shape[-1] // 2
        return score(sums[..., :k]) - score(sums[..., k:])

    return apart


def _drawn(score: Score, statistics: np.ndarray) -> tuple[float, float]:
    """95 % of the mean over seeds, as many texts being drawn again, with a fixed seed."""
    n = statistics.shape[1]
    times = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), DRAWS).astype(float)  # how often each is drawn
    drawn = score(np.einsum("dn,snk->sdk", times, statistics)).mean(0)
    return float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


INTERVALS = "95 %, the wider of Student's t over seeds and of a bootstrap over the held-out texts, in pairs"


def _sacrebleu() -> Any:
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise NextwordError(
            "This study scores texts by BLEU, which sacrebleu counts, and it is not here. Install it: "
            "pip install 'nextword[tasks]'."
        ) from None
    return BLEU
