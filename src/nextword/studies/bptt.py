"""Where a text is cut for back-propagation: pieces of one length, of varying length, or windows moved by a token.

A gradient goes back to the beginning of its piece and no further, so the first tokens of a piece learn from a short
past. With pieces of one length these are the same tokens in every epoch:

    fixed     | a b c d | e f g h | i j k l |      every epoch: e never learns from d
    varying   | a b c | d e f g h | i j k l |      Merity et al.: about the same length each, and the rate with it
    shifted   | a | b c d e | f g h i | j k l |    this proposal: one length, cut one token further each epoch
    list      | a b c d |  | b c d e |  | c d e f | …   the proposal as it is written, without a carried state

Counted: how soon every token has had a long past. Trained: a small AWD-LSTM, equal tokens read, on each of these.

The figure of the study of cuts: how soon every token has had a long past, and what that is worth in nats.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword.batching.token_stream import Stream
from nextword.objectives.causal import Causal
from nextword.recipe import Recipe, load_recipe
from nextword.studies._experiment import corpus_for, enough
from nextword.studies._study import (
    BLUE,
    GREEN,
    GREY,
    INK,
    PURPLE,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    below,
    beside,
    bounded,
    judged,
    over_seeds,
)
from nextword.studies.awd_ablation import (
    Outcome,
    Text,
    beginning,
    ids_of,
    intervals,
    paired,
    train_all,
    with_model,
    with_seed,
)
from nextword.tokenizers.training import train_tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = {
    "fixed": (VERMILION, "-"),
    "varying": (BLUE, "-"),
    "shifted": (GREEN, "-"),
    "overlapping list": (PURPLE, "--"),
}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 5)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    _draw_spreading(tables["spreading"], left)
    _apart(tables["differences"], right)


def _draw_spreading(table: Table, axes: Any) -> None:
    labels = []
    for name, (colour, dash) in LOOKS.items():
        epochs, shares = table.column("epoch", batches=name), table.column("%", batches=name)
        axes.plot(epochs, shares, dash, marker="o", markersize=3.5, color=colour, linewidth=1.6)
        labels.append((shares[-1], name, colour))
    axes.set(xlabel="epochs of tokens read", ylabel="% of tokens", ylim=(-2, None))
    axes.set_title(table.title)
    axes.xaxis.get_major_locator().set_params(integer=True)
    beside(axes, labels)


def _apart(table: Table, axes: Any) -> None:
    """One line a comparison: mean and interval over seeds, test and valid beneath each other."""
    names, widest = [], 1.0
    for y, row in enumerate(table.rows):
        length, name, other, valid, test = row
        names.append(f"{name} − {other}\nlength {length}")
        for cell, shape, lift, filled in ((test, "o", -0.13, True), (valid, "s", 0.13, False)):
            middle, low, high = cell
            colour = LOOKS[name][0]
            if bounded(cell):
                axes.plot([low, high], [y + lift] * 2, color=colour, linewidth=2, solid_capstyle="round")
                widest = max(widest, abs(low), abs(high))
            widest = max(widest, abs(middle))
            axes.plot(
                middle, y + lift, shape, color=colour, markersize=6, markerfacecolor=colour if filled else "white"
            )
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(names)), names, color=INK, fontsize=9)
    axes.set(xlabel="thousandths of a nat a token  (left: better)", ylim=(len(names) - 0.4, -0.6))
    axes.set(xlim=(-1.1 * widest, 1.1 * widest))
    axes.set_title("What it is worth   ● test   □ valid", parse_math=False)
    axes.grid(axis="y", visible=False)


CLAIM = Claim(
    "Cut into pieces of one length, a text has tokens that always stand at an edge, where the gradient ends; varying "
    "the length mends that and lowers the perplexity, and moving fixed windows by one token, which needs no settings, "
    "does as well.",
    "Merity, Keskar & Socher 2018, section 4.1; lecture notes on LSTM language models: fixed windows instead",
)
FIXED, VARYING, SHIFTED, LIST = "fixed", "varying", "shifted", "overlapping list"
LENGTHS = (10, 35)
TOKENS, SIZE = 200, 500  # of a batch, so that there are as many steps at each length; and in the vocabulary
CHARACTERS, HELD = (40_000, 20_000), (20_000, 10_000)  # of text: in full, and when quick
EPOCHS = (24, 12)
NETWORK = {"embedding": 40, "width": 80, "layers": 2}
DROPPED = {"words": 0.05, "input": 0.2, "between": 0.1, "output": 0.2, "connections": 0.2}
OPTIMIZER = {"kind": "nt-asgd", "rate": 20.0, "decay": 1e-5}  # averaged over the second half: less noise to see through
CLIP = 1.0
NEAR = 10.0  # thousandths of a nat: 1 % of perplexity, within which two ways are as good as each other
COLUMNS = 2_000  # tokens of the row on which edges are counted
RECIPE = "awd-lstm/tiny"


def layouts(length: int) -> dict[str, dict[str, Any]]:
    """Batches as a recipe says them. The spread is the paper's share of the length, 5 / 70."""
    common = {"rows": TOKENS // length, "length": length}
    return {
        FIXED: {"kind": "rows", **common},
        VARYING: {"kind": "variable", **common, "spread": length / 14, "least": max(1, length // 14)},
        SHIFTED: {"kind": "shifted", **common},
        LIST: {"kind": "shifted", **common, "overlapping": True},
    }


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus, at = corpus_for(settings.data), int(settings.quick)
    characters, held, epochs = CHARACTERS[at], HELD[at], EPOCHS[at]
    lengths = LENGTHS[:1] if settings.quick else LENGTHS
    tokenizer = train_tokenizer({"kind": "bpe", "size": SIZE}, beginning(corpus, characters))
    ids = {"train": ids_of(corpus, "train", tokenizer, characters)}
    for split, other in (("valid", "test"), ("test", "valid")):
        ids[split] = ids_of(corpus, split if split in corpus.splits else other, tokenizer, held)
    enough(len(ids["train"]), 4 * TOKENS, "tokens to learn from", corpus)
    enough(len(ids["valid"]), 500, "tokens held out", corpus)
    runs: Runs = {}
    total = len(settings.seeds) * (len(lengths) * len(layouts(1)) - len(lengths) + 1)
    with tempfile.TemporaryDirectory() as folder:
        for length in lengths:
            place = Path(folder) / str(length)
            place.mkdir()
            text = Text.write(place, tokenizer, **{**ids, "train": even(ids["train"], length)})
            recipes = _recipes(length, length == lengths[0], text.ids("train"), settings.seeds, epochs)
            done = len(runs)
            runs |= train_all(recipes, text, lambda now, _, done=done: progress(done + now, total))  # type: ignore[misc]
    tables = {
        "edges": _edges(lengths, epochs, settings.seeds[0]),
        "nats": _nats(runs),
        "differences": _differences(runs),
        "spreading": _spreading(lengths[-1], epochs, settings.seeds[0]),
    }
    sizes = ", ".join(f"{key} {value}" for key, value in (NETWORK | DROPPED).items())
    return tables, {
        "data": f"{corpus.name} ({corpus.source}): {len(ids['train']):,} tokens to learn from, read {epochs} times, "
        f"{len(ids['valid']):,} and {len(ids['test']):,} held out; {len(tokenizer)} subwords",
        "network": f"AWD-LSTM: {sizes}; {next(iter(runs.values())).parameters:,} parameters",
        "training": f"batches of {TOKENS} tokens; SGD at {OPTIMIZER['rate']}, clipped at {CLIP}; averaged over the "
        "second half",
        "intervals": "95 %, Student's t over seeds; the runs of a pair begin with the same weights",
    }


def even(ids: np.ndarray, length: int) -> np.ndarray:
    """As much of the text as whole pieces fill. A shorter rest would be read at the full rate where pieces are fixed,
    and at its share elsewhere; without one the rates of an epoch add up to the same in each way of cutting."""
    rows = TOKENS // length
    return ids[: rows * ((len(ids) // rows - 1) // length * length + 1)]


def _recipes(
    length: int, listed: bool, ids: np.ndarray, seeds: Sequence[int], epochs: int
) -> dict[tuple[int, str, int], Recipe]:
    """The smallest AWD-LSTM recipe with this study's sizes and cuts; the list needs to be seen but once."""
    base = with_model(load_recipe(RECIPE), **NETWORK, **DROPPED)
    out = {}
    for name, batches in layouts(length).items():
        for seed in seeds if name != LIST or listed else ():
            steps = _steps(batches, ids, seed, epochs)
            phase = {"batches": batches, "steps": steps, "validate": steps, "clip": CLIP, "keep": "last"}
            phase["optimizer"] = {**OPTIMIZER, "start": steps // 2}
            out[length, name, seed] = with_seed(base, seed, **phase, data="", log=10**6, save=1e9)
    return out


def _steps(batches: dict[str, Any], ids: np.ndarray, seed: int, epochs: int) -> int:
    """Steps in which as many tokens are read as in these epochs of whole rows."""
    left = epochs * (len(ids) // batches["rows"] - 1)
    for step, batch in enumerate(Causal(batches).batches(Stream.from_ids(ids), seed, 0), 1):
        left -= batch.targets.shape[1]
        if left <= 0:
            return step
    raise AssertionError("batches never end")


# ------------------------------------------------------------------------------------------------ counting


def pasts(batches: dict[str, Any], epochs: int, seed: int, columns: int = COLUMNS) -> np.ndarray:
    """(epochs, 2, columns): after each epoch's worth of tokens, each token's longest past so far, and how often it was
    the first of its piece; a past of n is a gradient that reached n − 1 tokens before it."""
    ids = np.arange(columns + 1)
    longest, first, read = np.zeros(columns, int), np.zeros(columns, int), 0
    out: list[tuple[np.ndarray, np.ndarray]] = []
    for batch in Causal({**batches, "rows": 1}).batches(Stream.from_ids(ids), seed, 0):
        tokens = batch.inputs.ids[0].numpy()
        longest[tokens] = np.maximum(longest[tokens], np.arange(1, len(tokens) + 1))
        first[tokens[0]] += 1
        read += len(tokens)
        while len(out) < epochs and read >= (len(out) + 1) * columns:
            out.append((longest.copy(), first.copy()))
        if len(out) == epochs:
            return np.array(out)
    raise AssertionError("batches never end")


def _edges(lengths: Sequence[int], epochs: int, seed: int) -> Table:
    rows = []
    for length in lengths:
        for name, batches in layouts(length).items():
            longest, first = pasts(batches, epochs, seed)[-1]
            inner = slice(length, COLUMNS - length)  # the ends of a row are edges for all
            never = 100 * float((longest[inner] < length / 2).mean())
            rows.append((length, name, never, int(first[inner].max()), epochs))
    return Table(
        f"Who stands at the edge, in {epochs} epochs",
        ("length", "batches", "never a past of half the length, % of tokens", "most often first", "of"),
        tuple(rows),
    )


def _spreading(length: int, epochs: int, seed: int) -> Table:
    rows = []
    for name, batches in layouts(length).items():
        for epoch, (longest, _) in enumerate(pasts(batches, epochs, seed), 1):
            rows.append((name, epoch, 100 * float((longest[length:-length] < length / 2).mean())))
    return Table(
        f"Tokens that have not yet had a past of half the length ({length})",
        ("batches", "epoch", "%"),
        tuple(rows),
        True,
    )


# ------------------------------------------------------------------------------------------------ trained

Runs = dict[tuple[int, str, int], Outcome]


def _of(runs: Runs, length: int, name: str, split: str) -> list[float]:
    return [getattr(run, split) for (n, which, _), run in runs.items() if (n, which) == (length, name)]


def _pairs(runs: Runs) -> list[tuple[int, str]]:
    return list(dict.fromkeys((length, name) for length, name, _ in runs))


def _nats(runs: Runs) -> Table:
    rows = [
        (length, name, *(over_seeds(_of(runs, length, name, split)) for split in ("train", "valid", "test")))
        for length, name in _pairs(runs)
    ]
    return Table("Nats a token after training", ("length", "batches", "train", "valid", "test"), tuple(rows))


def _differences(runs: Runs) -> Table:
    rows = []
    for length, name in _pairs(runs):
        for other in (FIXED, VARYING):
            if name in (FIXED, other) or (other == VARYING and name != SHIFTED):
                continue
            apart = [paired(_of(runs, length, name, s), _of(runs, length, other, s)) for s in ("valid", "test")]
            rows.append((length, name, other, *apart))
    return Table(
        "Thousandths of a nat above (below 0: better), mean and 95 % interval over seeds",
        ("length", "batches", "above", "valid", "test"),
        tuple(rows),
    )


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    edges, apart = tables["edges"], tables["differences"]
    lengths = list(dict.fromkeys(apart.column("length")))
    return [
        _always(edges),
        *(_varying(apart, length) for length in lengths),
        *(_as_good(apart, length) for length in lengths),
        _moved(apart, lengths[0]),
        _listed(apart, lengths[0]),
    ]


def _always(edges: Table) -> Part:
    """Counted: fixed pieces leave some tokens at the edge for ever, the other two none."""
    length = edges.column("length")[0]
    never = {
        name: edges.cell("never a past of half the length, % of tokens", length=length, batches=name)
        for name in (FIXED, VARYING, SHIFTED)
    }
    most = {name: edges.cell("most often first", length=length, batches=name) for name in never}
    epochs = edges.column("of")[0]
    holds = never[FIXED] > 0 and most[FIXED] == epochs and all(most[name] < epochs for name in (VARYING, SHIFTED))
    mended = all(never[name] < never[FIXED] / 2 for name in (VARYING, SHIFTED))
    return Part(
        "With one length the same tokens always stand at the edge; varying it or moving the windows mends that.",
        judged(holds and mended),
        f"At length {length}, {never[FIXED]:.0f} % of the tokens never have a past of half the length in {epochs} "
        f"epochs of fixed pieces; {never[VARYING]:.1f} % with varying ones and {never[SHIFTED]:.1f} % with shifted "
        f"ones. One token in {length} is first in all {epochs}; with varying pieces none is more than {most[VARYING]} "
        f"times, with shifted ones {most[SHIFTED]}.",
        "counted, not estimated",
    )


def _said(cell: Sequence[float], than: str) -> str:
    middle = cell[0]
    return f"{abs(middle):.1f} thousandths of a nat {'above' if middle > 0 else 'below'} {than}"


def _cells(apart: Table, length: int, name: str, other: str) -> tuple[Any, Any]:
    where = {"length": length, "batches": name, "above": other}
    return apart.cell("valid", **where), apart.cell("test", **where)


def _varying(apart: Table, length: int) -> Part:
    valid, test = _cells(apart, length, VARYING, FIXED)
    return Part(
        f"Varying the length helps (length {length}).",
        judged(below(test)),
        f"About length {length}, varying pieces end {_said(test, 'fixed ones')} on the test text.",
        intervals(valid, test, 1),
    )


def _as_good(apart: Table, length: int) -> Part:
    valid, test = _cells(apart, length, SHIFTED, VARYING)
    return Part(
        f"Moving fixed windows by one token is as good as varying the length, or better, to within {NEAR:g} "
        f"thousandths of a nat (length {length}).",
        judged(below(test, NEAR)),
        f"At length {length}, shifted windows end {_said(test, 'varying pieces')}.",
        intervals(valid, test, 1),
    )


def _moved(apart: Table, length: int) -> Part:
    valid, test = _cells(apart, length, SHIFTED, FIXED)
    return Part(
        f"Moving fixed windows by one token helps (length {length}).",
        judged(below(test)),
        f"Shifted windows end {_said(test, 'fixed pieces')}.",
        intervals(valid, test, 1),
        decides=False,
    )


def _listed(apart: Table, length: int) -> Part:
    valid, test = _cells(apart, length, LIST, FIXED)
    return Part(
        f"The proposal as it is written, all windows in one list and none with a state, helps too (length {length}).",
        judged(below(test)),
        f"For as many tokens read, overlapping windows without a carried state end {_said(test, 'fixed pieces')}. To "
        f"read the whole list once is {length} epochs of work.",
        intervals(valid, test, 1),
        decides=False,
    )
