"""How wide should a beam be?

A beam of one is greedy search. A wider one finds texts that the model gives more probability, and never asks whether
they are better. Each held-out source is translated with each width:

    width     1    2    3    5    10    20    50
    plain     the text of the greatest probability that was found
    by length its logarithm divided by the number of tokens: probability alone prefers short texts

Asked are BLEU, the model's own score and how long texts are. With `--run` it looks at a trained run.

The figure of the study of beams: BLEU, the model's own score and the length of texts, by width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword.core.errors import Unsupported
from nextword.core.types import Beam, Stop
from nextword.data.parallel import open_parallel
from nextword.evaluation.translation import AT_ONCE, LONGER, MORE
from nextword.lm.loading import load, of_network
from nextword.run_folder import RunFolder
from nextword.studies._experiment import apart, enough, held_out, spread
from nextword.studies._small_models import (
    LEAST,
    LOOKING,
    Texts,
    TranslatorSize,
    about,
    ranged,
    sized,
    spaced,
    texts_of,
    translator,
    workers,
)
from nextword.studies._study import (
    BLUE,
    GREY,
    INTERVALS,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    below,
    beside,
    between,
    bleu,
    bounded,
    counted,
    found,
    judged,
    ratio,
    written_length,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"plain": VERMILION, "by length": BLUE}
TITLES = {
    "BLEU": "How good texts are",
    "log p of a text": "How much the model likes them",
    "length, % of the references'": "How long they are",
}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13.5, 4.2)
    figure.set_layout_engine("constrained", wspace=0.05)
    for axes, (what, title) in zip(figure.subplots(1, 3), TITLES.items(), strict=True):
        _panel(tables["widths"], axes, what, title)


def _panel(table: Table, axes: Any, what: str, title: str) -> None:
    labels, widths = [], list(dict.fromkeys(table.column("width")))
    for name, colour in COLOURS.items():
        cells = table.column(what, search=name)
        middles = [cell[0] for cell in cells]
        axes.plot(range(len(cells)), middles, "o-", color=colour, linewidth=1.8, markersize=5)
        if all(map(bounded, cells)):
            low, high = zip(*(cell[1:] for cell in cells), strict=True)
            axes.fill_between(range(len(cells)), low, high, color=colour, alpha=0.12, linewidth=0)
        labels.append((middles[-1], name, colour))
    if "length" in what:
        axes.axhline(100, color=GREY, linewidth=1, linestyle=":")
    axes.set_xticks(range(len(widths)), [str(width) for width in widths])
    axes.set(xlabel="width of the beam", ylabel=what)
    axes.set_title(title)
    beside(axes, labels, gap=0.07)


TAKES_RUN = True
CLAIM = Claim(
    "A beam finds better translations than greedy search; what it can give is there by a width of ten, and wider ones "
    "find what the model likes better and not what is better.",
    "Sutskever, Vinyals & Le 2014, section 3.2 and table 1; Koehn & Knowles 2017, section 3.6; lecture notes on "
    "pretrained models: widths of 8 to 12",
)
WIDTHS = (1, 2, 3, 5, 10, 20, 50)
GREEDY, MIDDLE, ENOUGH, WIDEST = 1, 5, 10, 50
PLAIN, BY_LENGTH = "plain", "by length"
PENALTY = {PLAIN: 0.0, BY_LENGTH: 1.0}
NEAR = 0.3  # of BLEU, within which two widths are as good as each other
FULL = TranslatorSize(steps=450, held=120)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=20, longest=20, held=40)
LARGE = TranslatorSize(
    pieces=6000, width=512, rows=64, steps=6000, length=60, longest=80, rate=1e-3, dropout=0.3, held=1000
)
OF_A_RUN, QUICK_OF_A_RUN = 300, 60  # held-out pairs


# ------------------------------------------------------------------------------------------------ one run


def searched(lm: Any, sources: Sequence[str], targets: Sequence[str], progress: Any = lambda: None) -> dict[Any, Any]:
    """By width and score (n, 12): what BLEU adds up, log p of what is written, and 1."""
    lengths = [len(encoding) for encoding in lm.tokenizer.encode_batch(list(sources))]
    order = sorted(range(len(sources)), key=lambda i: -lengths[i])
    out = {}
    for name, penalty in PENALTY.items():
        for width in WIDTHS:
            texts, scores = [""] * len(sources), np.ones((len(sources), 2))
            for at in range(0, len(order), AT_ONCE):
                group = order[at : at + AT_ONCE]
                stop = Stop(LONGER * lengths[group[0]] + MORE)
                best = lm.n_best_many([sources[i] for i in group], Beam(width, length_penalty=penalty), stop, 1)
                for i, (one,) in zip(group, best, strict=True):
                    texts[i], scores[i, 0] = one.text.strip(), one.log_prob
            out[name, width] = np.concatenate([counted(texts, targets), scores], 1)
            progress()
    return out


def trained(seed: int, size: TranslatorSize, texts: Texts) -> dict[Any, Any]:
    network = translator(seed, size, texts, attention=LOOKING)
    return searched(of_network(network, texts.tokenizer), texts.sources, texts.targets)


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    look = _given if settings.run else _trained
    runs, conditions = look(settings, progress)
    statistics = {key: np.stack([run[key] for run in runs]) for key in runs[0]}
    alone = bool(settings.run)
    tables = {"widths": _widths(statistics, alone), "differences": _differences(statistics, alone)}
    over = "95 %, a bootstrap over the held-out texts, in pairs: of a run there is but one" if alone else INTERVALS
    return tables, {**conditions, "intervals": over}


def _trained(settings: Settings, progress: Progress) -> tuple[list[dict[Any, Any]], dict[str, Any]]:
    size = sized(settings.quick, QUICK, FULL, LARGE)
    corpus, texts = texts_of(settings.data, size)
    tasks: dict[Any, Any] = {seed: (trained, (seed, size, texts)) for seed in settings.seeds}
    runs = spread(tasks, progress, workers())
    return list(runs.values()), {
        "data": about(corpus, texts),
        "network": f"gated units with attention, one layer of width {size.width} on either side",
        "training": size.said(),
    }


def _given(settings: Settings, progress: Progress) -> tuple[list[dict[Any, Any]], dict[str, Any]]:
    """The run's own held-out pairs, or those of --data."""
    with apart():
        lm: Any = load(settings.run)
        if not getattr(lm.network, "is_conditional", False):
            raise Unsupported(
                f"{settings.run} goes on from a prompt and makes no text from a source, so there is nothing to compare "
                "its beams with. Give the run of a model that was trained on pairs (docs/sequence.md)."
            )
        corpus = open_parallel(settings.data or RunFolder.open(settings.run).recipe.phases[-1].data)
        documents = list(corpus.documents(held_out(corpus)))
        enough(len(documents), LEAST, "held-out pairs", corpus)
        pairs = [documents[i] for i in spaced(len(documents), QUICK_OF_A_RUN if settings.quick else OF_A_RUN)]
        done = iter(range(1, len(PENALTY) * len(WIDTHS) + 1))
        found_now = searched(
            lm,
            [pair.source or "" for pair in pairs],
            [pair.text for pair in pairs],
            lambda: progress(next(done), len(PENALTY) * len(WIDTHS)),
        )
    name = Path(settings.run).resolve().name
    return [found_now], {
        "data": f"{corpus.name} ({corpus.source}): {len(pairs):,} of {len(documents):,} held-out pairs, translated by "
        f"the run {name}: {type(lm.network).__name__}, {lm.parameters:,} parameters"
    }


def _bleu(sums: np.ndarray) -> np.ndarray:
    return bleu(sums[..., :-2])


def _log_p(sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., -2:])


def _length(sums: np.ndarray) -> np.ndarray:
    return 100 * written_length(sums[..., :-2])


SCORES = {"BLEU": _bleu, "log p of a text": _log_p, "length, % of the references'": _length}


def _widths(statistics: dict[Any, np.ndarray], alone: bool) -> Table:
    rows = [
        (name, width, *(found(score, parts, alone=alone) for score in SCORES.values()))
        for (name, width), parts in statistics.items()
    ]
    return Table("Held-out sources, mean and 95 % interval", ("search", "width", *SCORES), tuple(rows))


# what is compared with what: (search, width) above (search, width)
COMPARED = (
    ((PLAIN, MIDDLE), (PLAIN, GREEDY)),
    ((PLAIN, ENOUGH), (PLAIN, MIDDLE)),
    ((PLAIN, WIDEST), (PLAIN, ENOUGH)),
    ((PLAIN, WIDEST), (PLAIN, GREEDY)),
    ((BY_LENGTH, WIDEST), (BY_LENGTH, ENOUGH)),
    ((BY_LENGTH, MIDDLE), (PLAIN, MIDDLE)),
    ((BY_LENGTH, WIDEST), (PLAIN, WIDEST)),
)


def _differences(statistics: dict[Any, np.ndarray], alone: bool) -> Table:
    rows = []
    for one, other in COMPARED:
        cells = (between(s, statistics[one], statistics[other], alone=alone) for s in SCORES.values())
        rows.append((_name(one), _name(other), *cells))
    return Table("Above another (below 0: under it), mean and 95 % interval", ("this", "above", *SCORES), tuple(rows))


def _name(key: tuple[str, int]) -> str:
    return f"{key[1]}, {key[0]}"


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    apart_by = tables["differences"]

    def cell(what: str, this: tuple[str, int], other: tuple[str, int]) -> Any:
        return apart_by.cell(what, this=_name(this), above=_name(other))

    length = "length, % of the references'"
    middle, widest = (PLAIN, MIDDLE), (PLAIN, WIDEST)
    gain = cell("BLEU", middle, (PLAIN, GREEDY))
    wide = cell("BLEU", widest, (PLAIN, ENOUGH))
    liked = cell("log p of a text", widest, (PLAIN, ENOUGH))
    shorter = cell(length, widest, (PLAIN, GREEDY))
    evened = cell("BLEU", (BY_LENGTH, WIDEST), widest)
    level = cell("BLEU", (BY_LENGTH, WIDEST), (BY_LENGTH, ENOUGH))
    return [
        Part(
            f"A beam of {MIDDLE} translates better than greedy search.",
            judged(above(gain)),
            f"A beam of {MIDDLE} is {_side(gain)} greedy search in BLEU.",
            f"95 %: {ranged(gain, 2)}",
        ),
        Part(
            f"A beam of {WIDEST} translates no better than one of {ENOUGH}, to within {NEAR:g} of BLEU.",
            judged(below(wide, NEAR)),
            f"A beam of {WIDEST} is {_side(wide)} one of {ENOUGH}.",
            f"95 %: {ranged(wide, 2)}",
        ),
        Part(
            "The model likes what it finds better.",
            judged(above(liked)),
            f"To what a beam of {WIDEST} finds, the model gives {liked[0]:.3f} nats more than to what one of {ENOUGH} "
            "does.".replace("-", "−"),
            f"95 %: {ranged(liked)}",
        ),
        Part(
            "The widest beam writes shorter texts than greedy search.",
            judged(below(shorter)),
            f"Of {WIDEST} they are {abs(shorter[0]):.1f} % of the references' length "
            f"{'shorter' if shorter[0] < 0 else 'longer'}.",
            f"95 %: {ranged(shorter, 1)}",
            decides=False,
        ),
        Part(
            f"Divided by length, scores make a beam of {WIDEST} better.",
            judged(above(evened)),
            f"Ranked by length, a beam of {WIDEST} is {_side(evened)} the same ranked by probability alone.",
            f"95 %: {ranged(evened, 2)}",
            decides=False,
        ),
        Part(
            f"Divided by length, a beam of {WIDEST} is better than one of {ENOUGH}.",
            judged(above(level)),
            f"Both ranked by length, one of {WIDEST} is {_side(level)} one of {ENOUGH}.",
            f"95 %: {ranged(level, 2)}",
            decides=False,
        ),
    ]


def _side(cell: Sequence[Any]) -> str:
    return f"{abs(cell[0]):.2f} {'ahead of' if cell[0] > 0 else 'behind'}"
