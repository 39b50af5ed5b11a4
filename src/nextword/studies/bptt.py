"""Where to cut a text for truncated backpropagation: fixed chunks, varying chunks, or shifted windows.

Claim: with chunks of one length, the same tokens are always first in a chunk, where the gradient ends; varying the
length fixes that and lowers the perplexity (Merity, Keskar & Socher 2018), and so does shifting fixed windows by one
token per epoch, which needs no settings (lecture notes).

    fixed               | a b c d | e f g h | i j k l |       e never learns from d, in any epoch
    varying             | a b c | d e f g h | i j k l |       similar lengths, the learning rate scaled with the length
    shifted             | a | b c d e | f g h i | j k l |     one length, shifted by one token each epoch
    overlapping list    | a b c d |  | b c d e |  | c d e f | …   all windows, without a carried state

Measured: counted, how soon every token has had a long context; trained, a small AWD-LSTM on each, equal tokens read.

Verdict: counted, fixed chunks must leave some tokens at the edge in every epoch and the other two must not; trained,
varying chunks must be better than fixed ones, and shifted windows must not be worse than varying chunks by 10
thousandths of a nat (1 % of perplexity) or more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from nextword.batching.token_stream import Stream
from nextword.objectives.causal import CausalObjective
from nextword.recipe import Recipe, load_recipe
from nextword.studies import _figures as plot
from nextword.studies._experiment import describe_corpus, open_text
from nextword.studies._recipe_runs import (
    SPLITS,
    Runs,
    TextFolder,
    describe_intervals,
    encode_beginning,
    millinat_differences,
    nats_cells,
    train_all,
    with_model,
    with_phase,
)
from nextword.studies._statistics import is_below
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables

CLAIM = Claim(
    "With chunks of one length, the same tokens are always first in a chunk, where the gradient ends; varying the "
    "length fixes that and lowers the perplexity, and shifting fixed windows by one token does as well, without any "
    "settings.",
    "Merity, Keskar & Socher 2018, section 4.1; lecture notes on LSTM language models: fixed windows instead",
)
RECIPE = "awd-lstm/tiny"
LENGTHS = (10, 35)
TOKENS, PIECES = 200, 500  # per batch, so that there are equally many steps at each length; vocabulary
CHARACTERS, HELD = (40_000, 20_000), (20_000, 10_000)  # of text; with --quick
EPOCHS = (24, 12)
NETWORK = {"embedding": 40, "width": 80, "layers": 2}
DROPOUT = {
    "word_dropout": 0.05,
    "input_dropout": 0.2,
    "layer_dropout": 0.1,
    "output_dropout": 0.2,
    "weight_dropout": 0.2,
}
OPTIMIZER = {"kind": "nt-asgd", "rate": 20.0, "weight_decay": 1e-5}  # averaged over the second half, for less noise
CLIP = 1.0
SAME = 10.0  # thousandths of a nat: a smaller difference does not count
COLUMNS = 2_000  # tokens of the row on which edges are counted

FIXED, VARYING, SHIFTED, LIST = "fixed", "varying", "shifted", "overlapping list"
NEVER, MOST, EPOCHS_READ = "never half the length as context, % of tokens", "most often first", "epochs"


def make_layouts(length: int) -> dict[str, dict[str, Any]]:
    """Batches as a recipe describes them. The spread is the paper's share of the length, 5 / 70."""
    common = {"rows": TOKENS // length, "length": length}
    return {
        FIXED: {"kind": "rows", **common},
        VARYING: {"kind": "variable", **common, "length_std": length / 14, "min_length": max(1, length // 14)},
        SHIFTED: {"kind": "shifted", **common},
        LIST: {"kind": "shifted", **common, "overlapping": True},
    }


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus, is_quick = open_text(settings.data), int(settings.quick)
    epochs, seeds = EPOCHS[is_quick], settings.seeds
    lengths = LENGTHS[:1] if settings.quick else LENGTHS
    tokenizer, ids = encode_beginning(corpus, PIECES, CHARACTERS[is_quick], HELD[is_quick], 4 * TOKENS)
    runs: dict[tuple[Any, ...], Any] = {}
    total = len(seeds) * (len(lengths) * len(make_layouts(1)) - len(lengths) + 1)
    with tempfile.TemporaryDirectory() as folder:
        for length in lengths:
            place = Path(folder) / str(length)
            place.mkdir()
            text = TextFolder.write(place, tokenizer, **{**ids, "train": trim(ids["train"], length)})
            recipes = _make_recipes(length, length == lengths[0], text.ids("train"), seeds, epochs)
            done = len(runs)
            runs |= train_all(recipes, text, lambda now, _, done=done: progress(done + now, total))  # type: ignore[misc]
    sizes = ", ".join(f"{key} {value}" for key, value in (NETWORK | DROPOUT).items())
    return {
        "edges": _edges(lengths, epochs, seeds[0]),
        "nats": _nats(runs),
        "differences": _differences(runs),
        "coverage": _coverage(lengths[-1], epochs, seeds[0]),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(ids['train']):,} training tokens, read {epochs} times, "
        f"{len(ids['valid']):,} validation and {len(ids['test']):,} test tokens; {len(tokenizer)} subwords",
        "network": f"AWD-LSTM: {sizes}; {next(iter(runs.values())).parameters:,} parameters",
        "training": f"batches of {TOKENS} tokens; SGD at {OPTIMIZER['rate']}, gradient clipping at {CLIP}; averaged "
        "over the second half",
        "intervals": "95 %, Student's t over seeds; paired runs start with the same weights",
    }


def trim(ids: np.ndarray, length: int) -> np.ndarray:
    """Cut the text to whole chunks.

    A shorter last chunk would be read at the full learning rate if chunks are fixed, and at a share of it otherwise;
    without one, the learning rates of an epoch add up to the same for every layout.
    """
    rows = TOKENS // length
    return ids[: rows * ((len(ids) // rows - 1) // length * length + 1)]


def _make_recipes(
    length: int, with_list: bool, ids: np.ndarray, seeds: Sequence[int], epochs: int
) -> dict[tuple[int, str, int], Recipe]:
    """The smallest AWD-LSTM recipe with the sizes of this study, for each layout."""
    base = with_model(load_recipe(RECIPE), **NETWORK, **DROPOUT)
    recipes = {}
    for name, batches in make_layouts(length).items():
        for seed in seeds if name != LIST or with_list else ():
            steps = count_steps(batches, ids, seed, epochs)
            phase = {"batches": batches, "steps": steps, "validate_every": steps, "clip": CLIP, "keep": "last"}
            phase["optimizer"] = {**OPTIMIZER, "start": steps // 2}
            recipes[length, name, seed] = with_phase(base, seed=seed, **phase, data="", log_every=10**6, save_every=1e9)
    return recipes


def count_steps(batches: dict[str, Any], ids: np.ndarray, seed: int, epochs: int) -> int:
    """Steps that read as many tokens as this number of epochs."""
    left = epochs * (len(ids) // batches["rows"] - 1)
    for step, batch in enumerate(CausalObjective(batches).batches(Stream.from_ids(ids), seed, 0), 1):
        left -= batch.targets.shape[1]
        if left <= 0:
            return step
    raise AssertionError("batches never end")


def count_contexts(batches: dict[str, Any], epochs: int, seed: int, columns: int = COLUMNS) -> np.ndarray:
    """(epochs, 2, columns): after each epoch, the longest context each token has had, and how often it was first.

    A context of n means that the gradient reached n − 1 tokens back.
    """
    ids = np.arange(columns + 1)
    longest, first, read = np.zeros(columns, int), np.zeros(columns, int), 0
    counts: list[tuple[np.ndarray, np.ndarray]] = []
    for batch in CausalObjective({**batches, "rows": 1}).batches(Stream.from_ids(ids), seed, 0):
        tokens = batch.inputs.ids[0].numpy()
        longest[tokens] = np.maximum(longest[tokens], np.arange(1, len(tokens) + 1))
        first[tokens[0]] += 1
        read += len(tokens)
        while len(counts) < epochs and read >= (len(counts) + 1) * columns:
            counts.append((longest.copy(), first.copy()))
        if len(counts) == epochs:
            return np.array(counts)
    raise AssertionError("batches never end")


def _percent_short(longest: np.ndarray, length: int) -> float:
    """Tokens without half the length as context, in %; the ends of a row are edges for every layout."""
    return 100 * float((longest[length:-length] < length / 2).mean())


def _edges(lengths: Sequence[int], epochs: int, seed: int) -> Table:
    rows = []
    for length in lengths:
        for name, batches in make_layouts(length).items():
            longest, first = count_contexts(batches, epochs, seed)[-1]
            rows.append((length, name, _percent_short(longest, length), int(first[length:-length].max()), epochs))
    columns = ("length", "layout", NEVER, MOST, EPOCHS_READ)
    return Table(f"Tokens at the edge of a chunk, in {epochs} epochs", columns, rows)


def _coverage(length: int, epochs: int, seed: int) -> Table:
    rows = [
        (name, epoch, _percent_short(longest, length))
        for name, batches in make_layouts(length).items()
        for epoch, (longest, _) in enumerate(count_contexts(batches, epochs, seed), 1)
    ]
    title = f"Tokens that never had half the length ({length}) as context"
    return Table(title, ("layout", "epoch", "%"), rows, detailed=True)


def _variants(runs: Runs) -> list[tuple[int, str]]:
    return list(dict.fromkeys((length, name) for length, name, _ in runs))


def _nats(runs: Runs) -> Table:
    rows = [(*variant, *nats_cells(runs, variant)) for variant in _variants(runs)]
    return Table("Nats per token after training, median and range", ("length", "layout", *SPLITS), rows)


def _differences(runs: Runs) -> Table:
    rows = []
    for length, name in _variants(runs):
        for other in (FIXED, VARYING):
            if name not in (FIXED, other) and (other == FIXED or name == SHIFTED):
                cells = millinat_differences(runs, (length, name), (length, other))
                rows.append((length, name, other, *cells))
    title = "Differences in thousandths of a nat per token (negative: better), mean and 95 % interval over seeds"
    return Table(title, ("length", "layout", "minus", "valid", "test"), rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    differences = tables["differences"]
    lengths = list(dict.fromkeys(differences.column("length")))
    shifted = f"Shifting fixed windows is at least as good as varying the length, within {SAME:g} thousandths of a nat"
    return [
        _edges_move(tables["edges"]),
        *(_compare(differences, n, VARYING, FIXED, f"Varying the length helps (length {n}).") for n in lengths),
        *(_compare(differences, n, SHIFTED, VARYING, f"{shifted} (length {n}).", SAME) for n in lengths),
        _compare(
            differences, lengths[0], SHIFTED, FIXED, f"Shifting fixed windows helps (length {lengths[0]}).",
            decides=False,
        ),
        _compare(
            differences, lengths[0], LIST, FIXED,
            f"The overlapping list of all windows, without a carried state, helps (length {lengths[0]}).",
            decides=False,
        ),
    ]  # fmt: skip


def _edges_move(edges: Table) -> Part:
    length = edges.column("length")[0]
    never, most = (
        {name: edges.cell(column, length=length, layout=name) for name in (FIXED, VARYING, SHIFTED)}
        for column in (NEVER, MOST)
    )
    epochs = edges.column(EPOCHS_READ)[0]
    is_stuck = never[FIXED] > 0 and most[FIXED] == epochs
    moves = all(most[name] < epochs and never[name] < never[FIXED] / 2 for name in (VARYING, SHIFTED))
    return Part(
        "With one length the same tokens are always first; varying the length or shifting the windows fixes that.",
        is_stuck and moves,
        f"At length {length}, {never[FIXED]:.0f} % of the tokens never have half the length as context in {epochs} "
        f"epochs of fixed chunks; {never[VARYING]:.1f} % with varying and {never[SHIFTED]:.1f} % with shifted ones. "
        f"One token in {length} is first in all {epochs} epochs; with varying chunks a token is first at most "
        f"{most[VARYING]} times, with shifted ones {most[SHIFTED]}.",
        "counted, not estimated",
    )


def _compare(
    differences: Table, length: int, name: str, other: str, statement: str, bound: float = 0.0, decides: bool = True
) -> Part:
    where = {"length": length, "layout": name, "minus": other}
    valid, test = (differences.cell(split, **where) for split in ("valid", "test"))
    side = "above" if test[0] > 0 else "below"
    return Part(
        statement,
        is_below(test, bound),
        f"At length {length}, the test loss of “{name}” is {abs(test[0]):.1f} thousandths of a nat {side} “{other}”.",
        describe_intervals(valid, test, 1),
        decides,
    )


# ------------------------------------------------------------------------------------------------ draw

STYLES = {
    FIXED: (plot.VERMILION, "o-"),
    VARYING: (plot.BLUE, "o-"),
    SHIFTED: (plot.GREEN, "o-"),
    LIST: (plot.PURPLE, "o--"),
}


def draw(tables: Tables, figure: plot.Figure) -> None:
    left, right = plot.panels(figure, 13, 5, 2, (1, 1.15))
    _draw_coverage(tables["coverage"], left)
    _draw_differences(tables["differences"], right)


def _draw_coverage(table: Table, axes: plot.Axes) -> None:
    labels = []
    for name, (color, style) in STYLES.items():
        epochs, shares = table.column("epoch", layout=name), table.column("%", layout=name)
        axes.plot(epochs, shares, style, markersize=3.5, color=color, linewidth=1.6)
        labels.append((shares[-1], name, color))
    axes.set(xlabel="epochs of tokens read", ylabel="% of tokens", ylim=(-2, None), title=table.title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    plot.label_lines(axes, labels)


def _draw_differences(table: Table, axes: plot.Axes) -> None:
    """Test and validation text beneath each other."""
    names = []
    for y, (length, name, other, valid, test) in enumerate(table.rows):
        names.append(f"{name} − {other}\nlength {length}")
        plot.dot(axes, test, y - 0.13, STYLES[name][0], size=6)
        plot.dot(axes, valid, y + 0.13, STYLES[name][0], marker="s", filled=False, size=6)
    axes.axvline(0, color=plot.GREY, linewidth=1)
    label = "thousandths of a nat per token (negative: better)"
    plot.name_rows(axes, names, label, "Difference in loss   ● test   □ valid", size=9)
