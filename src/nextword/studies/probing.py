"""What does each layer of a network know about a word: its part of speech, its sense?

Claim: lower layers are better for parts of speech, higher layers for word senses (Peters et al. 2018).

Measured: a linear probe on the frozen vectors of every layer, from layer 0 (the embedding, which knows the word but
not its context) to the last:

    parts of speech   every word of the English Web Treebank, in its own three splits
    senses            hard, interest, line and serve in Senseval-2; one probe per word, and the mean of the four

The best layer of each task is chosen on validation text. On test text the two choices are compared; a layer chosen
because it was best on the same text would be best by chance.

    parts of speech:   layer chosen for them  −  layer chosen for senses            > 0 ?
    senses:            layer chosen for them  −  layer chosen for parts of speech   > 0 ?

The networks are small ones that the study trains, or a run: --run RUN. Small networks know little about senses. A
run that reads letters (ELMo) gets whole words; any other gets pieces, and a word's vector is their mean.

    hits (seeds, L, words) ──by sentence──▶ sums ──2,000 bootstrap draws──▶ accuracies (draws, L)

A draw takes whole sentences, because the words of a sentence are not independent, and is the same for all layers, so
differences between layers are paired. The senses of each word are drawn separately and then averaged over the words.

Verdict: the best layer for parts of speech must be below the best layer for senses, and each must beat the other on
its own task. Without the treebank or Senseval-2 the claim is undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nextword.batching.examples import UnknownWords
from nextword.core.errors import Unsupported
from nextword.data.corpus import Corpus
from nextword.lm.embedding import EmbeddingMixin
from nextword.lm.loading import load
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import describe_corpus, held_out_split, open_text, require, run_parallel
from nextword.studies._labeled_words import (
    CASE,
    NO_SENSEVAL,
    SENSES,
    TAGS,
    TREEBANK,
    Question,
    guess_without_network,
    label_capitals,
    sense_questions,
    tag_questions,
)
from nextword.studies._probes import Hits, ProbeTask, encode_question, frame_ids, layer_groups, probe_layers
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._transformers import Size, Text, encode_corpus, train_bert, train_gpt2

CLAIM = Claim(
    "Lower layers are better for parts of speech, higher layers for word senses.",
    "Peters et al. 2018, section 5.3 and tables 5 and 6; lecture notes on ELMo: the lower LSTM learns parts of speech "
    "and syntax, the higher one what a word means in its context",
)
PIECES = 1000
FULL = Size(layers=2, rows=48, steps=1000, rate=4e-3)
QUICK = Size(layers=2, width=48, heads=4, rows=32, steps=150)
MASKED_SHARE = 0.4  # for BERT: with 15 % so small a network learns only token frequencies in this time
MAX_WINDOW = 128  # pieces around a word that a run reads; contexts of senses have 46 words on average
COUNTS = {  # train, validation and test sentences: for tags, and for the senses of each word
    "run": ((4000, 2100, 2100), (4400, 4400, 4400)),
    "full": ((1000, 500, 1500), (1000, 400, 400)),
    "quick": ((300, 150, 150), (200, 100, 100)),
}
MIN_SENTENCES = 100

BERT, GPT = "small BERT", "small GPT-2"
OTHER, EMBEDDING, LAST = "best layer of the other task", "layer 0, the embedding", "last layer"
COMMON, FORM = "most frequent label", "most frequent label of the same word form"
INTERVALS = (
    "95 %, a bootstrap over sentences and contexts, the same draws for all layers; with several seeds the wider of "
    "that and Student's t over seeds"
)
NO_TREEBANK = (
    f"The treebank for parts of speech ({TREEBANK}) is not on this machine, so capitalization is probed instead, which "
    f"is not the same. Install it with `nextword data {TREEBANK} --install PATH`."
)

NetworkHits = dict[str, list[list[Hits]]]  # network → seeds → tasks


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus = open_text(settings.data)
    tags, contexts = COUNTS["quick" if settings.quick else "run" if settings.run else "full"]
    questions = [*(tag_questions(tags) or [_case_question(corpus, tags)]), *sense_questions(contexts)]
    probe = _probe_run if settings.run else _train_and_probe
    hits, tasks, conditions = probe(settings, corpus, questions, progress)
    return make_tables(hits, tasks, questions, single_network=bool(settings.run)), {
        **conditions,
        "words": "a word's vector is the mean of the vectors of its pieces; " + "; ".join(map(_describe_task, tasks)),
        "probes": "logistic regression on standardized vectors; ridge and best layer chosen on validation text",
        "intervals": INTERVALS,
        **({} if tasks[0].task == TAGS else {"no treebank": NO_TREEBANK}),
        **({} if len(tasks) > 1 else {"no senses": NO_SENSEVAL}),
    }


def _case_question(corpus: Corpus, counts: Sequence[int]) -> Question:
    """The substitute for parts of speech. Validation sentences come from the training text."""
    labeled = list(islice(label_capitals(corpus, "train"), counts[0] + counts[1]))
    cut = round(len(labeled) * counts[0] / (counts[0] + counts[1]))
    test = list(islice(label_capitals(corpus, held_out_split(corpus)), counts[2]))
    question = Question(CASE, "", labeled[:cut], labeled[cut:], test)
    require(min(map(len, question[2:])), MIN_SENTENCES, "sentences for a probe", corpus)
    return question


def _describe_task(task: ProbeTask) -> str:
    train, valid, test = (len(part) for part in (task.train, task.valid, task.test))
    name = f"{task.task} of {task.word}" if task.word else task.task
    return f"{name}: {task.classes} classes, {train:,} train, {valid:,} validation, {test:,} test"


def _train_and_probe(
    settings: Settings, corpus: Corpus, questions: Sequence[Question], progress: Progress
) -> tuple[NetworkHits, list[ProbeTask], dict[str, Any]]:
    size = QUICK if settings.quick else FULL
    text, tokenizer = encode_corpus(corpus, PIECES)
    tasks = [encode_question(question, tokenizer, size.length - 2) for question in questions]  # [CLS] and [SEP]
    jobs: dict[Any, Any] = {
        (name, seed): (run_seed, (seed, name, size, text, tasks)) for seed in settings.seeds for name in (BERT, GPT)
    }
    runs = run_parallel(jobs, progress)
    hits = {name: [runs[name, seed] for seed in settings.seeds] for name in (BERT, GPT)}
    conditions = {
        "data": f"{describe_corpus(corpus)}: {len(text.train):,} training tokens; WordPiece of {len(tokenizer):,}",
        "networks": f"BERT and GPT-2, {size.describe_network()}. Small networks know little about senses: try --run",
        "training": f"{size.describe_training()}; {stats.format_percent(MASKED_SHARE)} of BERT's tokens are masked",
    }
    return hits, tasks, conditions


def run_seed(seed: int, name: str, size: Size, text: Text, tasks: Sequence[ProbeTask]) -> list[Hits]:
    network = train_bert(seed, size, text, mask_fraction=MASKED_SHARE) if name == BERT else train_gpt2(seed, size, text)
    return [probe_layers(network, task) for task in tasks]


def _probe_run(
    settings: Settings, corpus: Corpus, questions: Sequence[Question], progress: Progress
) -> tuple[NetworkHits, list[ProbeTask], dict[str, Any]]:
    with torch.random.fork_rng():
        model: EmbeddingMixin = load(settings.run)
    if "embed" not in model.can:
        raise Unsupported(
            f"{settings.run} has no layers of vectors to probe. Choose a run of a network that can embed.",
            ability="embed",
        )
    network = model.network
    room = min(MAX_WINDOW, model.room, (network.window or MAX_WINDOW) - len(frame_ids(network, []).ids))
    unknown = UnknownWords(network, model.tokenizer)
    tasks = [encode_question(question, model.tokenizer, room, unknown) for question in questions]
    total = sum(len(layer_groups(network, t)) * len(p.windows) for t in tasks for p in (t.train, t.valid, t.test))
    done = 0

    def on_read(windows: int) -> None:
        nonlocal done
        done += windows
        progress(done, total)

    name = Path(settings.run).resolve().name
    hits = {name: [[probe_layers(network, task, on_read, unknown) for task in tasks]]}
    conditions = {
        "data": f"the run {name}: {type(network).__name__}, {model.parameters:,} parameters, "
        f"{len(network.widths) - 1} layer(s), the last of width {network.widths[-1]}; windows of at most {room} "
        f"{'words, spelled letter by letter' if unknown.reads_letters else 'pieces'}"
    }
    return hits, tasks, conditions


# ------------------------------------------------------------------------------------------------ bootstrap


class SentenceSums(NamedTuple):
    """Correct answers to one task, summed by sentence."""

    hits: np.ndarray  # (seeds, L, sentences)
    size: np.ndarray  # (sentences,) labeled words

    def accuracy(self) -> np.ndarray:
        """(seeds, L), in %"""
        return 100 * self.hits.sum(2) / self.size.sum()


def sum_by_sentence(hits: Sequence[np.ndarray], units: np.ndarray) -> SentenceSums:
    """From the hits (L, words) of each seed, and the sentence of each word."""
    sentence = np.unique(units, return_inverse=True)[1]
    size = np.bincount(sentence)
    return SentenceSums(np.array([[np.bincount(sentence, layer, len(size)) for layer in seed] for seed in hits]), size)


def bootstrap_accuracy(tasks: Sequence[SentenceSums], seed: int) -> np.ndarray:
    """(draws, L): accuracy in % over resampled sentences, averaged over tasks and seeds."""
    draw = np.random.default_rng(seed)
    total = np.zeros((stats.DRAWS, tasks[0].hits.shape[1]))
    for hits, size in tasks:
        counts = draw.multinomial(len(size), np.full(len(size), 1 / len(size)), stats.DRAWS)  # (draws, sentences)
        total += 100 * (counts @ hits.mean(0).T) / (counts @ size)[:, None]
    return total / len(tasks)


def interval_of(mean: float, by_seed: np.ndarray, draws: np.ndarray, single_network: bool) -> list[float]:
    """[mean, low, high] over the text, and over seeds if that is wider."""
    text = (float(np.quantile(draws, 0.025)), float(np.quantile(draws, 0.975)))
    return [mean, *text] if single_network and len(by_seed) < 2 else stats.wider_interval(mean, by_seed, text)


class Accuracy(NamedTuple):
    """One network at one task. The most frequent label is the last row of `test`, as if it were a layer."""

    valid: np.ndarray  # (seeds, L)
    valid_draws: np.ndarray  # (draws, L)
    test: np.ndarray  # (seeds, L + 1)
    test_draws: np.ndarray  # (draws, L + 1)

    @property
    def best(self) -> int:
        return int(self.valid.mean(0).argmax())

    @property
    def depth(self) -> int:
        return self.valid.shape[1] - 1

    def interval(self, single_network: bool, layers: Sequence[int], minus: Sequence[int] = ()) -> list[float]:
        """Of the mean test accuracy of these layers, minus that of others."""
        seeds, draws = (
            a[:, layers].mean(1) - (a[:, minus].mean(1) if minus else 0.0) for a in (self.test, self.test_draws)
        )
        return interval_of(float(seeds.mean()), seeds, draws, single_network)


def make_accuracy(seeds: Sequence[Sequence[Hits]], tasks: Sequence[ProbeTask], name: str) -> Accuracy:
    valid_sums, test_sums = [], []
    for i, task in enumerate(tasks):
        if task.task == name:
            common = (task.test.labels == np.bincount(task.train.labels).argmax())[None]
            valid_sums.append(sum_by_sentence([hits[i].valid for hits in seeds], task.valid.units))
            test_hits = [np.concatenate([hits[i].test, common]) for hits in seeds]
            test_sums.append(sum_by_sentence(test_hits, task.test.units))
    valid, test = (np.mean([s.accuracy() for s in sums], axis=0) for sums in (valid_sums, test_sums))
    return Accuracy(valid, bootstrap_accuracy(valid_sums, 0), test, bootstrap_accuracy(test_sums, 1))


# ------------------------------------------------------------------------------------------------ tables

Accuracies = dict[str, dict[str, Accuracy]]  # network → task


def make_tables(
    hits: NetworkHits, tasks: Sequence[ProbeTask], questions: Sequence[Question], single_network: bool
) -> dict[str, Table]:
    names = tuple(dict.fromkeys(task.task for task in tasks))
    accuracies = {net: {name: make_accuracy(seeds, tasks, name) for name in names} for net, seeds in hits.items()}
    return {
        "layers": _layers(accuracies, names, single_network),
        "best": _best_layers(accuracies, names, single_network),
        "differences": _differences(accuracies, names, single_network),
        "halves": _halves(accuracies, names, single_network),
        "guesses": _guesses(questions, names),
        "words": _by_word(hits, tasks),
    }


def _layers(accuracies: Accuracies, names: Sequence[str], single: bool) -> Table:
    rows = [
        (network, layer, *(by_task[name].interval(single, [layer]) for name in names))
        for network, by_task in accuracies.items()
        for layer in range(by_task[names[0]].depth + 1)
    ]
    title = "Test accuracy of a linear probe on each layer in %, mean and 95 % interval"
    return Table(title, ("network", "layer", *names), rows)


def _best_layers(accuracies: Accuracies, names: Sequence[str], single: bool) -> Table:
    rows: list[tuple[Any, ...]] = []
    for network, by_task in accuracies.items():
        depth = by_task[names[0]].depth
        best = [(a.best, a.valid.argmax(1), a.valid_draws.argmax(1)) for a in (by_task[name] for name in names)]
        cells = [_layer_cell(interval_of(*layer, single_network=single), 0, depth) for layer in best]
        if len(names) > 1:
            (a, seeds_a, draws_a), (b, seeds_b, draws_b) = best
            apart = interval_of(b - a, seeds_b - seeds_a, draws_b - draws_a, single)
            cells.append(_layer_cell(apart, -depth, depth))
        rows.append((network, *cells, *[None] * (2 - len(names))))
    title = "Layer with the best probe on validation text, and its 95 % interval"
    return Table(title, ("network", *names, "layers apart"), rows)


def _layer_cell(cell: Sequence[float], low: int, high: int) -> list[float]:
    """Whole layers as integers, clipped to the layers that exist, which Student's t does not know."""
    clipped = [min(max(value, low), high) if np.isfinite(value) else value for value in cell]
    return [int(value) if float(value).is_integer() else float(value) for value in clipped]


def _differences(accuracies: Accuracies, names: Sequence[str], single: bool) -> Table:
    rows = []
    for network, by_task in accuracies.items():
        depth = by_task[names[0]].depth
        rivals = {OTHER: [by_task[name].best for name in names[::-1]]} if len(names) > 1 else {}
        rivals |= {EMBEDDING: [0] * len(names), LAST: [depth] * len(names), COMMON: [depth + 1] * len(names)}
        for rival, layers in rivals.items():
            cells = [
                by_task[name].interval(single, [by_task[name].best], [layer])
                for name, layer in zip(names, layers, strict=True)
            ]
            rows.append((network, rival, *cells))
    title = "Test accuracy of the best layer minus that of another, in points: mean and 95 % interval"
    return Table(title, ("network", "minus", *names), rows)


def _halves(accuracies: Accuracies, names: Sequence[str], single: bool) -> Table:
    """No layer is chosen here. The embedding belongs to neither half, nor does a layer in the middle."""
    rows: list[tuple[Any, ...]] = []
    for network, by_task in accuracies.items():
        depth = by_task[names[0]].depth
        half = depth // 2
        if half:
            lower, upper = range(1, 1 + half), range(1 + depth - half, 1 + depth)
            cells = (accuracy.interval(single, lower, upper) for accuracy in by_task.values())
            rows.append((network, *cells))
    title = "Test accuracy of the lower half of the layers minus the upper half, in points: mean and 95 % interval"
    return Table(title, ("network", *names), rows)


def _guesses(questions: Sequence[Question], names: Sequence[str]) -> Table:
    hits = [(question.task, guess_without_network(question)) for question in questions]
    rows = [
        (guess, *(float(np.mean([100 * h[key].mean() for task, h in hits if task == name])) for name in names))
        for guess, key in ((COMMON, "all"), (FORM, "form"))
    ]
    return Table("Test accuracy without any network, %", ("guess", *names), rows)


def _by_word(hits: NetworkHits, tasks: Sequence[ProbeTask]) -> Table:
    """Senses word by word; the most frequent sense in the last row."""
    words = [(i, task) for i, task in enumerate(tasks) if task.word]
    rows: list[tuple[Any, ...]] = []
    for network, seeds in hits.items():
        for layer in range(len(seeds[0][0].valid)):
            cells = [float(np.mean([100 * seed[i].test[layer].mean() for seed in seeds])) for i, _ in words]
            rows.append((network, layer, *cells))
    common = [100 * float((t.test.labels == np.bincount(t.train.labels).argmax()).mean()) for _, t in words]
    rows.append((COMMON, None, *common))
    columns = ("network", "layer", *(task.word for _, task in words))
    return Table("Test accuracy for senses, word by word, %", columns, rows, detailed=True)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    layers = tables["layers"]
    names = layers.columns[2:]
    missing = [
        Part(f"Layers are probed for {task}.", None, why, f"{task} not measured")
        for task, why in ((TAGS, NO_TREEBANK), (SENSES, NO_SENSEVAL))
        if task not in names
    ]
    parts = list(missing)
    for network in dict.fromkeys(layers.column("network")):
        if not missing:
            parts += [_is_below(tables, network), *(_is_better(tables, network, name, OTHER) for name in names)]
        if network in tables["halves"].column("network"):
            parts += [_compare_halves(tables, network, name) for name in names if name in (TAGS, SENSES)]
        parts += [_is_better(tables, network, name, EMBEDDING) for name in names]
        parts += [_is_better(tables, network, name, COMMON) for name in names if name == SENSES]
    return parts


def _is_below(tables: Tables, network: str) -> Part:
    best, depth = tables["best"], max(tables["layers"].column("layer", network=network))
    tag, sense = (round(best.cell(task, network=network)[0]) for task in (TAGS, SENSES))
    cell = best.cell("layers apart", network=network)
    return stats.judge_interval(
        f"The best layer for parts of speech is below the best layer for senses ({network}).",
        cell,
        f"In {network} the best layer for parts of speech is {tag} of {depth}, the best for senses {sense}.",
        "layers apart",
        digits=1,
        test=lambda cell: stats.is_above(cell, 0.5),  # layers are whole numbers: at least one apart, or none
    )


def _is_better(tables: Tables, network: str, task: str, rival: str) -> Part:
    """Whether the best layer of a task beats another on test text.

    It can be worse than the best layer of the other task only by a chance of the choice, which shows nothing.
    """
    layers, best = tables["layers"], tables["best"]
    cell = tables["differences"].cell(task, network=network, minus=rival)
    holds = stats.is_above(cell)
    mine = round(best.cell(task, network=network)[0])
    accuracy = layers.cell(task, network=network, layer=mine)[0]
    gain = stats.format_gain(cell[0], "points", 1)
    if rival == COMMON:
        comparison = f"the most frequent sense for {accuracy - cell[0]:.1f} %: {gain}."
    else:
        other = round(best.cell(_other(task), network=network)[0]) if rival == OTHER else 0
        comparison = f"layer {other}{', the embedding,' * (rival == EMBEDDING)} for {accuracy - cell[0]:.1f} %: {gain}."
        if other == mine:
            same = f"also the best layer for {_other(task)}" if rival == OTHER else "the embedding itself"
            comparison = f"it is {same}."
    statement = {
        OTHER: f"For {task}, their own best layer is better than the best layer for {_other(task)}",
        EMBEDDING: f"For {task}, the best layer is better than the embedding, which does not see the context",
        COMMON: "For senses, the best layer is better than guessing the most frequent sense",
    }[rival]
    return Part(
        f"{statement} ({network}).",
        None if rival == OTHER and not holds else holds,
        f"For {task}, layer {mine} of {network} is right for {accuracy:.1f} %; {comparison}",
        f"points better: {stats.format_interval(cell, 1)}",
        decides=rival == OTHER,
    )


def _compare_halves(tables: Tables, network: str, task: str) -> Part:
    """The claim about layers in general, without choosing one."""
    cell = tables["halves"].cell(task, network=network)
    lower = stats.is_above(cell)
    return Part(
        f"On average {'lower' if task == TAGS else 'upper'} layers are better for {task} ({network}).",
        None if lower is None else lower == (task == TAGS),
        f"For {task}, the lower half of the layers of {network} is {stats.format_gain(cell[0], 'points', 1)} than the "
        "upper half.",
        f"points better: {stats.format_interval(cell, 1)}",
        decides=False,
    )


def _other(task: str) -> str:
    return SENSES if task == TAGS else TAGS


# ------------------------------------------------------------------------------------------------ draw

COLORS = (plot.BLUE, plot.VERMILION, plot.GREEN)


def draw(tables: Tables, figure: plot.Figure) -> None:
    names = tables["layers"].columns[2:]
    for name, axes in zip(names, plot.panels(figure, 5.8 * len(names), 4.4, len(names)), strict=True):
        _draw_task(tables["layers"], tables["best"], name, axes)
        _draw_baseline(tables["guesses"].cell(name, guess=COMMON), axes)


def _draw_task(table: Table, best: Table, name: str, axes: plot.Axes) -> None:
    labels = []
    for network, color in zip(dict.fromkeys(table.column("network")), COLORS * 9, strict=False):
        layers, cells = table.column("layer", network=network), table.column(name, network=network)
        labels.append((plot.line(axes, layers, cells, color, width=1.6), network, color))
        top = round(best.cell(name, network=network)[0])
        best_point = (top, cells[top][0])
        axes.plot(*best_point, "o", color=color, markersize=12, fillstyle="none", markeredgewidth=1.6)
        axes.annotate(
            f"{best_point[1]:.1f}",
            best_point,
            (0, 12),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=plot.INK,
        )
        axes.set_xticks(range(max(layers) + 1))
    axes.set(xlabel="layer (0: embedding; circle: best on validation text)", ylabel="accuracy, %")
    axes.margins(y=0.18)
    axes.set_title(name.capitalize())
    plot.label_lines(axes, labels)


def _draw_baseline(accuracy: float, axes: plot.Axes) -> None:
    """A dotted line, if it is near enough to the layers to be shown."""
    low, high = axes.get_ylim()
    if accuracy > low - 0.5 * (high - low):
        axes.axhline(accuracy, color=plot.GREY, linewidth=1, linestyle=":")
        corner, offset = (axes.get_xlim()[1], accuracy), (0, 3)
        axes.annotate(COMMON, corner, offset, textcoords="offset points", ha="right", fontsize=8, color=plot.GREY)
