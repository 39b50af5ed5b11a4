"""What does it cost that [MASK] occurs in pretraining but never in use?

Claim: a network that always saw [MASK] at the predicted positions has worse vectors for plain text than one that
sometimes saw other tokens there (Devlin et al. 2019).

One small BERT, three kinds of input at the predicted positions:

    80 / 10 / 10     [MASK], a random token, the token itself, in so many per cent of the positions: BERT's mixture
    [MASK] only      always [MASK]: plain tokens are never predicted, so their vectors may say little about them
    no [MASK]        a random token in 80 %, the token itself in 20 %

Measured on plain text: accuracy of a linear probe on the last layer, nats that the readout gives to a visible token,
and whether it detects a wrong token. A word's vector is that of its first piece:

    words    In    the   beginning   God    created
    pieces   in    the   begin ##ning god   create ##d
    case      ·     0       0    ·     1       0     ·         pieces are lower-cased, so case must be inferred
    tags     ADP   DET    NOUN   ·   PROPN    VERB   ·         if the treebank is on this machine

A network with [MASK] only may also just learn more slowly. So the mixture is measured a second time, stopped as soon
as it fills in masked tokens as well as “[MASK] only” does at its end.

Verdict: by the first probe available (parts of speech, else case), “[MASK] only” must be worse than the mixture,
both fully trained and stopped early.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.token_stream import Stream
from nextword.core.types import Inputs
from nextword.models.bert import BERT
from nextword.objectives.masked import MaskedObjective
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import describe_corpus, held_out_split, open_text, require, run_parallel, stack_seeds
from nextword.studies._labeled_words import CASE, TAGS, Labeled, label_capitals, read_treebank, treebank_files
from nextword.studies._probes import fit_probe
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._transformers import (
    Size,
    Text,
    always_masked,
    encode_corpus,
    make_bert,
    masked_lm,
    masked_positions,
    original_ids,
    score_masked,
    slices,
    train_on,
)
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.special_tokens import Marks

CLAIM = Claim(
    "[MASK] in pretraining and never in use has a cost: a network that always saw [MASK] at the predicted positions "
    "has worse vectors for plain text than one that sometimes saw other tokens there.",
    "Devlin et al. 2019, section 3.1 and appendix C.2; lecture notes on ELMo: BERT's mask makes pretraining and "
    "fine-tuning differ",
)
PIECES = 1000
FULL = Size(layers=1, steps=1800, rate=4e-3)
QUICK = Size(layers=1, width=64, heads=4, rows=32, steps=250, rate=4e-3)
SENTENCES = ((4000, 1500), (600, 300))  # training and test sentences of a probe; with --quick
MIN_SENTENCES = 100
CHECKS = 24  # steps at which the mixture may be stopped
BATCH = 64

MIXED, STOPPED, ONLY, NEVER = "80 / 10 / 10", "80 / 10 / 10, stopped early", "[MASK] only", "no [MASK]"
MASKING: dict[str, dict[str, float]] = {  # in order of training: where to stop is known after the first
    ONLY: {"mask_token_fraction": 1.0, "random_token_fraction": 0.0},
    MIXED: {"mask_token_fraction": 0.8, "random_token_fraction": 0.1},
    NEVER: {"mask_token_fraction": 0.0, "random_token_fraction": 0.8},
}
ORDER = (MIXED, STOPPED, ONLY, NEVER)
HIDDEN, VISIBLE, DETECTED = "nats of a masked token", "nats of a visible token", "wrong tokens detected, %"
STEPS = "steps"
COMMON = "most frequent class"

Values = dict[str, np.ndarray]  # measure → one value per unit of text


# ------------------------------------------------------------------------------------------------ probe


@dataclass(frozen=True)
class LabeledRows:
    ids: np.ndarray  # (n, length)
    is_token: np.ndarray  # (n, length) False at padding
    labels: np.ndarray  # (n, length) −1 without a label


@dataclass(frozen=True)
class RowTask:
    name: str
    classes: tuple[Any, ...]
    train: LabeledRows
    test: LabeledRows

    @property
    def baseline(self) -> float:
        """Test accuracy of the most frequent training class."""
        train, test = (rows.labels[rows.labels >= 0] for rows in (self.train, self.test))
        return float((test == np.bincount(train).argmax()).mean())

    def describe(self) -> str:
        train, test = (int((rows.labels >= 0).sum()) for rows in (self.train, self.test))
        return f"{self.name}: {len(self.classes)} classes, {train:,} training words, {test:,} test words"


def make_task(
    name: str, splits: Sequence[Iterable[Labeled]], counts: Sequence[int], tokenizer: Tokenizer, length: int
) -> RowTask:
    train, test = (list(islice(split, count)) for split, count in zip(splits, counts, strict=True))
    classes = tuple(sorted({label for _, labels in train for label in labels if label is not None}, key=str))
    return RowTask(name, classes, *(label_rows(part, classes, tokenizer, length) for part in (train, test)))


def label_rows(labeled: Sequence[Labeled], classes: Sequence[Any], tokenizer: Tokenizer, length: int) -> LabeledRows:
    """[CLS] … [SEP], with the label of each word at its first piece."""
    marks = Marks.of(vocabulary(tokenizer))
    numbers = {label: i for i, label in enumerate(classes)}
    ids = np.full((len(labeled), length), marks.pad, np.int64)
    labels, sizes = np.full(ids.shape, -1, np.int64), np.zeros(len(labeled), np.int64)
    encodings = tokenizer.encode_batch([" ".join(words) for words, _ in labeled])
    for i, (encoding, (_, given)) in enumerate(zip(encodings, labeled, strict=True)):
        pieces = encoding.ids[: length - 2]
        ids[i, 0], ids[i, 1 : len(pieces) + 1], ids[i, len(pieces) + 1] = marks.cls, pieces, marks.sep
        sizes[i] = len(pieces) + 2
        words, first = np.unique(encoding.words[: length - 2], return_index=True)
        labels[i, first + 1] = [numbers.get(given[word], -1) for word in words]
    return LabeledRows(ids, np.arange(length) < sizes[:, None], labels)


def probe(network: BERT, task: RowTask) -> np.ndarray:
    """Whether a linear probe on the last layer is right about each labeled test word: (words,) bool."""
    classify = fit_probe(*_labeled_vectors(network, task.train), len(task.classes))
    vectors, labels = _labeled_vectors(network, task.test)
    return (classify(vectors) == labels).numpy()


@torch.no_grad()
def _labeled_vectors(network: BERT, rows: LabeledRows) -> tuple[Tensor, Tensor]:
    """The vectors (N, D) of all labeled words, and the labels (N,)."""
    vectors = []
    for part in slices(len(rows.ids), BATCH):
        inputs = Inputs(torch.from_numpy(rows.ids[part]), torch.from_numpy(rows.is_token[part]))
        vectors.append(network.encode(inputs)[0][-1][torch.from_numpy(rows.labels[part] >= 0)])
    return torch.cat(vectors), torch.from_numpy(rows.labels[rows.labels >= 0])


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus = open_text(settings.data)
    size, counts = (QUICK if settings.quick else FULL), SENTENCES[int(settings.quick)]
    text, tokenizer = encode_corpus(corpus, PIECES)
    cased = [label_capitals(corpus, split) for split in ("train", held_out_split(corpus))]
    tasks = [make_task(CASE, cased, counts, tokenizer, size.length)]
    require(min(len(tasks[0].train.ids), len(tasks[0].test.ids)), MIN_SENTENCES, "sentences for a probe", corpus)
    if len(tasks[0].classes) < 2:  # a text without capitals
        tasks.clear()
    has_tags = {"train", "test"} <= set(treebank_files())
    if has_tags:
        tagged = [read_treebank(split) for split in ("train", "test")]
        tasks.append(make_task(TAGS, tagged, counts, tokenizer, size.length))
    runs = run_parallel({(seed,): (run_seed, (seed, size, text, tasks)) for seed in settings.seeds}, progress)
    measures = (*(task.name for task in tasks), HIDDEN, VISIBLE, DETECTED)
    values = {(name, m): stack_seeds(runs, (), name, m) for name in ORDER for m in (*measures, STEPS)}
    baselines = {task.name: 100 * task.baseline for task in tasks}
    return {"inputs": _levels(measures, values, baselines), "differences": _differences(measures, values)}, {
        "data": f"{describe_corpus(corpus)}: {len(text.train):,} training tokens; WordPiece of {len(tokenizer):,}",
        "network": f"BERT, {size.describe_network()}",
        "training": size.describe_training(),
        "probes": "; ".join(task.describe() for task in tasks)
        + ("" if has_tags else ". The treebank for parts of speech is not on this machine (NEXTWORD_DATA)"),
        "intervals": stats.INTERVALS,
    }


def run_seed(seed: int, size: Size, text: Text, tasks: Sequence[RowTask]) -> dict[str, Values]:
    """All kinds of input, from the same initial weights."""
    results: dict[str, Values] = {}
    objective = always_masked(size, text.vocabulary)
    for name, masking in MASKING.items():
        network = make_bert(size, text.vocabulary, seed)

        def check(step: int, network: BERT = network) -> None:
            if STOPPED in results:
                return
            nats = score_masked(network, objective, text.test)[0]
            if nats.mean() <= results[ONLY][HIDDEN].mean():
                results[STOPPED] = measure_network(network, size, text, tasks) | {STEPS: np.array([float(step)])}

        checks = CHECKS if name == MIXED else 0
        train_on(network, masked_lm(size, text.vocabulary, **masking), text.train, seed, size, check, checks)
        results[name] = measure_network(network, size, text, tasks) | {STEPS: np.array([float(size.steps)])}
    results.setdefault(STOPPED, results[MIXED])  # never as good: use its end
    return results


def measure_network(network: BERT, size: Size, text: Text, tasks: Sequence[RowTask]) -> Values:
    masked = always_masked(size, text.vocabulary)
    corrupted = masked_lm(size, text.vocabulary, mask_token_fraction=0.0, random_token_fraction=1.0)
    return {
        HIDDEN: score_masked(network, masked, text.test)[0],
        VISIBLE: score_visible(network, masked, text.test),
        DETECTED: 100 * detect_wrong(network, corrupted, text.test),
        **{task.name: 100.0 * probe(network, task) for task in tasks},
    }


@torch.no_grad()
def score_visible(network: BERT, objective: MaskedObjective, text: Stream) -> np.ndarray:
    """Nats of the tokens that an objective would mask, given unmasked."""
    nats = []
    for batch in objective.validation_batches(text):
        positions, targets = masked_positions(batch)
        h = network.hidden(Inputs(original_ids(batch), batch.inputs.token_mask), None)[0][-1]
        nats.append(network.readout.nll(h.reshape(-1, h.shape[-1])[positions], targets).numpy())
    return np.concatenate(nats)


@torch.no_grad()
def detect_wrong(network: BERT, objective: MaskedObjective, text: Stream) -> np.ndarray:
    """For each row, the share of pairs in which a random token has more nats than an original one; chance is 0.5.

    Rows in which nothing was replaced are left out.
    """
    shares = []
    for batch in objective.validation_batches(text):
        ids, original = batch.inputs.ids, original_ids(batch)
        h = network.hidden(batch.inputs, None)[0][-1]
        nats = network.readout.nll(h.reshape(-1, h.shape[-1]), ids.reshape(-1)).view(ids.shape)
        is_word = torch.from_numpy(~np.isin(original.numpy(), list(network.vocabulary.special.values())))
        for row, is_wrong, word in zip(nats, ids != original, is_word, strict=True):
            wrong, right = row[is_wrong], row[word & ~is_wrong]
            if len(wrong) and len(right):
                shares.append(float((wrong[:, None] > right).float().mean()))
    return np.array(shares)


def column_name(measure: str) -> str:
    return f"probe: {measure}, %" if measure in (CASE, TAGS) else measure


def _levels(measures: Sequence[str], values: dict[Any, np.ndarray], baselines: dict[str, float]) -> Table:
    columns = (*measures, STEPS)
    rows: list[tuple[Any, ...]] = [(name, *(stats.median_of_means(values[name, m]) for m in columns)) for name in ORDER]
    rows.append((COMMON, *(baselines.get(m) for m in columns)))
    title = "On plain text, median and range over seeds"
    return Table(title, ("input", *map(column_name, columns)), rows)


def _differences(measures: Sequence[str], values: dict[Any, np.ndarray]) -> Table:
    rows = [
        (name, other, *(stats.mean_interval(values[name, m] - values[other, m]) for m in measures))
        for name, other in ((ONLY, MIXED), (ONLY, STOPPED), (NEVER, MIXED))
    ]
    columns = ("input", "minus", *map(column_name, measures))
    return Table("Differences, mean and 95 % interval", columns, rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    probes = [name for name in (TAGS, CASE) if column_name(name) in tables["inputs"].columns]
    parts = [_probe_is_worse(tables, name, other, name == probes[0]) for name in probes for other in (MIXED, STOPPED)]
    side_results = [  # measure, network, test, digits and unit, statement, evidence
        (
            VISIBLE, ONLY, stats.is_above, 2, "nats", "It is less sure of a visible token.",
            "The readout gives a visible token {this:.2f} nats with [MASK] only and {that:.2f} with {mixed}.",
        ),
        (
            DETECTED, ONLY, stats.is_below, 1, "points", "It is worse at detecting a wrong token.",
            "A wrong token has more nats than a right one in {this:.1f} % of the pairs with [MASK] only and in "
            "{that:.1f} % with {mixed}; chance is 50 %.",
        ),
        (
            HIDDEN, ONLY, stats.is_below, 3, "nats",
            "In return, it is better at masked tokens after the same number of steps.",
            "A masked token costs {this:.2f} nats with [MASK] only and {that:.2f} with {mixed}.",
        ),
    ]  # fmt: skip
    if probes:
        statement = f"A network that never saw [MASK] has better vectors than {MIXED} ({probes[0]})."
        evidence = "A probe is right for {this:.1f} % without any [MASK] and {that:.1f} % with {mixed}."
        side_results.insert(0, (column_name(probes[0]), NEVER, stats.is_above, 2, "points", statement, evidence))
    for column, name, test, digits, unit, statement, evidence in side_results:
        cell = tables["differences"].cell(column, input=name, minus=MIXED)
        this, that = (tables["inputs"].cell(column, input=key)[0] for key in (name, MIXED))
        numbers = evidence.format(this=this, that=that, mixed=MIXED)
        label = f"difference in {unit}"
        parts.append(stats.judge_interval(statement, cell, numbers, label, digits, test=test, decides=False))
    return parts


def _probe_is_worse(tables: Tables, name: str, other: str, decides: bool) -> Part:
    column = column_name(name)
    cell = tables["differences"].cell(column, input=ONLY, minus=other)
    that, only = (tables["inputs"].cell(column, input=key)[0] for key in (other, ONLY))
    step = tables["inputs"].cell(STEPS, input=other)[0]
    is_stopped = other == STOPPED
    return stats.judge_interval(
        f"Its vectors of plain text are worse for a linear probe{', and not only undertrained' * is_stopped} ({name}).",
        cell,
        f"For {name}, a probe is right for {only:.1f} % with [MASK] only and {that:.1f} % with {MIXED}"
        + (f", stopped at step {step:.0f}, where it fills in as well." if is_stopped else "."),
        "difference in points",
        digits=2,
        test=stats.is_below,
        decides=decides,
    )


# ------------------------------------------------------------------------------------------------ draw


def draw(tables: Tables, figure: plot.Figure) -> None:
    """One panel per measure; a dotted line at the most frequent class."""
    table = tables["inputs"]
    *rows, baselines = table.rows
    networks = replace(table, rows=rows)
    measures = table.columns[1:-1]
    for i, axes in enumerate(plot.panels(figure, 3.2 * len(measures) + 1.4, 3.4, len(measures))):
        is_nats = "nats" in measures[i]
        title = measures[i].removesuffix(", %").removeprefix("nats of ").removeprefix("probe: ").capitalize()
        label = "nats" if is_nats else "%"
        plot.dot_rows(networks, axes, "input", measures[i], title, label, named=i == 0, digits=2 if is_nats else 1)
        if baselines[i + 1] is not None:
            plot.reference_line(axes, baselines[i + 1])
