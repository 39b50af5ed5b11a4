"""What does it cost that a network reads the truth in training and its own words in generation?

Claim: a network trained with teacher forcing does worse on its own words, and increasingly so the longer it
generates; scheduled sampling (training on some of its own words) helps (Bengio et al. 2015; Ranzato et al. 2016).

    teacher forcing      the  students opened   →  "opened" is fed whatever the network predicted
    generation           the  students [their]  →  its own prediction is fed, and mistakes accumulate
    scheduled sampling   some of its own predictions are fed in training, too

Measured, in two tasks:

    continuation   After a network's own words there is no true text to compare with. So an LSTM learns a language whose
                   probabilities are all known, the samples of a trigram model of a real text:

                       truth   trigram model of the text ──samples──▶ rows ──▶ the LSTM learns them
                       error   KL(truth ‖ network) after true words, and after words that the network has sampled

    translation    BLEU of the most likely tokens given the true target, and of generated text. The true target also
                   gives hints away, so only a different training can show how much of this gap is exposure bias.

Verdict: the errors on own words must exceed those on true words, by more later in the text; BLEU must be lower on
own words; and scheduled sampling must lower the error and raise BLEU on own words.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.token_stream import prepare
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.data.corpus import Corpus
from nextword.models.ngram import NGram, NGramConfig
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.models.seq2seq import Seq2Seq
from nextword.objectives.causal import CausalObjective
from nextword.objectives.seq2seq import Seq2SeqObjective
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import choose_size, open_text, require, run_parallel, stack_seeds
from nextword.studies._study import Cell, Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._transformers import to_memory
from nextword.studies._translators import (
    ATTENTION,
    LARGE,
    PairData,
    TranslatorSize,
    load_pairs,
    train_seq2seq,
    train_translator,
    translate,
)
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device, to_device

CLAIM = Claim(
    "A network trained with teacher forcing does worse on its own words than on the truth, and increasingly so the "
    "longer it generates; with scheduled sampling it generates better.",
    "Bengio, Vinyals, Jaitly & Shazeer 2015; Ranzato et al. 2016; lecture notes on language models: the gap between "
    "training and testing",
)
FULL = TranslatorSize(steps=400, length=24, longest=24, held=200)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=20, longest=20, held=60)
LM = TranslatorSize(pieces=500, width=96, rows=32, steps=600, rate=1e-2, held=300)
QUICK_LM = TranslatorSize(pieces=300, width=32, rows=16, steps=60, rate=1e-2, held=60)
LARGE_LM = TranslatorSize(pieces=1000, width=512, rows=128, steps=4000, rate=2e-3, held=1000)
SAMPLED, RAMP = 0.25, 0.5  # scheduled sampling: share of own tokens fed, from the second epoch on
PROMPT, GENERATED, STRETCHES = 6, 30, 3  # true tokens first, then generated ones, examined in equal stretches
TRUE_MODEL = NGramConfig(order=3)
SAMPLE_ROWS = 2000  # rows sampled together
MIN_TOKENS = 2000  # of the text that the true model counts

CONTINUATION, TRANSLATION = "continuation", "translation"
TEACHER, SCHEDULED = "teacher forcing", "scheduled sampling"
NETWORKS = (TEACHER, SCHEDULED)
TRUTH, OWN, NATS = "the truth", "own words", "nats"
BLEU_TRUTH, BLEU_OWN = "BLEU, fed the truth", "BLEU, fed own words"
# Rows of the table of differences, with the sign that the claim predicts
WORSE, GROWS, MENDED, NARROWER, COSTS, BETTER = (
    "error on own words minus error on the truth",
    "gap in the last stretch minus gap in the first",
    "error on own words, teacher forcing minus scheduled sampling",
    "gap, teacher forcing minus scheduled sampling",
    "nats of the truth, scheduled sampling minus teacher forcing",
    "BLEU on own words, scheduled sampling minus teacher forcing",
)
BLEU_LOSS = "BLEU given the truth minus BLEU on own words"


# ------------------------------------------------------------------------------------------------ a known language


@dataclass(frozen=True)
class KnownLanguage:
    """Rows sampled from the true model, and the folder it is stored in, so that every process can open it."""

    folder: Path
    train: np.ndarray  # (rows, length)
    test: np.ndarray
    vocabulary: Vocabulary

    @property
    def truth(self) -> NGram:
        return NGram.load(self.folder, TRUE_MODEL, self.vocabulary)

    def batches(self, rows: int, seed: int) -> Iterator[Batch]:
        """Endless; a new order every epoch."""
        epoch = 0
        while True:
            order = np.random.default_rng([seed, epoch]).permutation(len(self.train))
            for start in range(0, len(order) - rows + 1, rows):
                ids = torch.from_numpy(self.train[order[start : start + rows]])
                begin = torch.full((rows, 1), self.vocabulary.begin)
                inputs = Inputs(torch.cat([begin, ids[:, :-1]], 1))
                yield Batch(inputs, ids, reset_state=True, epoch=epoch, num_targets=ids.numel())
            epoch += 1


def make_language(corpus: Corpus, size: TranslatorSize, length: int, folder: Path) -> KnownLanguage:
    """As many rows as two epochs of training read, and the test rows."""
    tokenizer = train_tokenizer({"kind": "bpe", "size": size.pieces}, (d.text for d in corpus.documents("train")))
    stream = to_memory(prepare(corpus, "train", tokenizer))
    require(len(stream), MIN_TOKENS, "tokens to count", corpus)
    words = vocabulary(tokenizer)
    truth = NGram(TRUE_MODEL, words)
    for _ in truth.count(stream, None, {}):
        pass
    truth.save(folder)
    rows = sample_rows(truth, size.steps * size.rows // 2 + size.held, length)
    return KnownLanguage(folder, rows[: -size.held], rows[-size.held :], words)


@torch.no_grad()
def sample_rows(model: NGram, count: int, length: int, seed: int = 0) -> np.ndarray:
    """(count, length) ids sampled from a model."""
    generator, parts = torch.Generator().manual_seed(seed), []
    for start in range(0, count, SAMPLE_ROWS):
        last, state = model.start(min(SAMPLE_ROWS, count - start))
        rows = []
        for _ in range(length):
            log_p, state = model.step(last, state)
            last = log_p.exp().multinomial(1, generator=generator).squeeze(1)
            rows.append(last)
        parts.append(torch.stack(rows, 1))
    return torch.cat(parts).numpy()


@torch.no_grad()
def true_errors(
    network: LSTM, language: KnownLanguage, prompt: int, own: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(n, length − prompt) each: KL(truth ‖ network) of the next token, and the network's nats of a true token.

    The prompt comes from the test rows; then follow their tokens, or with `own` those that the network samples.
    """
    truth, rows = language.truth, torch.from_numpy(language.test)
    generator = torch.Generator().manual_seed(seed)
    (last, true_state), state = truth.start(len(rows)), network.start(len(rows))[1]
    divergences: list[Tensor] = []
    nats: list[Tensor] = []
    for t in range(rows.shape[1]):
        true_log_p, true_state = truth.step(last, true_state)
        log_p, state = network.step(last.to(network.device), state)
        true_log_p, log_p = true_log_p.double(), log_p.double().cpu()
        if t >= prompt:
            divergences.append((true_log_p.exp() * (true_log_p - log_p)).sum(1))
            nats.append(-(true_log_p.exp() * log_p).sum(1))
        samples = own and t >= prompt
        last = log_p.exp().multinomial(1, generator=generator).squeeze(1) if samples else rows[:, t]
    return torch.stack(divergences, 1).numpy(), torch.stack(nats, 1).numpy()


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    """`--data` names pairs; the language models read the built-in text."""
    size = choose_size(settings.quick, QUICK, FULL, LARGE)
    lm_size = choose_size(settings.quick, QUICK_LM, LM, LARGE_LM)
    parallel, pairs = load_pairs(settings.data, size)
    corpus, seeds = open_text(""), settings.seeds
    with tempfile.TemporaryDirectory() as folder:
        language = make_language(corpus, lm_size, PROMPT + GENERATED, Path(folder))
        jobs: dict[Any, Any] = {}
        for seed in seeds:
            for name, sampled in ((SCHEDULED, SAMPLED), (TEACHER, 0.0)):
                jobs[TRANSLATION, name, seed] = (run_translator, (seed, sampled, size, pairs))
                jobs[CONTINUATION, name, seed] = (run_lm, (seed, sampled, lm_size, language))
        runs = run_parallel(jobs, progress, uses_gpu=True)
    return {
        CONTINUATION: _continuation(runs),
        TRANSLATION: _translation(runs),
        "differences": _differences(runs),
    }, {
        "data": f"{pairs.describe(parallel)}; a language sampled from a trigram model of {corpus.name} "
        f"({len(language.train):,} training rows of {PROMPT + GENERATED} tokens, {len(language.test):,} test rows with "
        f"a prompt of {PROMPT})",
        "networks": f"a GRU translator with attention, width {size.width}; an LSTM of width {lm_size.width}",
        "training": f"{size.describe_training()}; the LSTM {lm_size.steps:,} steps of {lm_size.rows} rows",
        "scheduled sampling": f"{stats.format_percent(SAMPLED)} of the tokens fed, from the second epoch on",
        "intervals": stats.INTERVALS,
    }


def run_lm(seed: int, sampled: float, size: TranslatorSize, language: KnownLanguage) -> dict[str, np.ndarray]:
    """(n, GENERATED): the error given the truth, the error on own words, and nats of the truth."""
    torch.manual_seed(seed)
    network = LSTM(RecurrentConfig(width=size.width, tied=True), language.vocabulary).to(choose_device())
    batches = {"kind": "blocks", "rows": size.rows, "length": size.length}
    objective = CausalObjective(batches, scheduled_sampling=sampled, sampling_ramp=RAMP if sampled else 0.0)
    train_seq2seq(network, objective, None, seed, size, language.batches(size.rows, seed))
    given_truth, given_own = (true_errors(network, language, PROMPT, own, seed) for own in (False, True))
    return {TRUTH: given_truth[0], OWN: given_own[0], NATS: given_truth[1]}


def run_translator(seed: int, sampled: float, size: TranslatorSize, pairs: PairData) -> dict[str, np.ndarray]:
    """BLEU statistics (n, 10) given the truth and on own words; nats and tokens of the truth (n, 2)."""
    objective = {"scheduled_sampling": sampled, "sampling_ramp": RAMP if sampled else 0.0}
    network = train_translator(seed, size, pairs, objective, attention=ATTENTION)
    output = translate(network, pairs)
    return {
        TRUTH: stats.bleu_statistics(predict_given_truth(network, pairs), pairs.targets),
        OWN: stats.bleu_statistics(output.texts, pairs.targets),
        NATS: output.costs,
    }


@torch.no_grad()
def predict_given_truth(network: Seq2Seq, pairs: PairData) -> list[str]:
    """The most likely token at each position of each held-out target, given the true tokens before it, as a text."""
    objective = Seq2SeqObjective({"rows": 64, "length": 10**6})
    order, texts = objective.layout.validation_order(pairs.test), [""] * len(pairs.targets)
    row_index = 0
    for batch in objective.validation_batches(pairs.test):
        batch = to_device(batch, network.device)
        choices = network.readout.log_probs(network.hidden(batch.inputs, None)[0][-1]).argmax(-1).cpu().numpy()
        is_target = (batch.targets >= 0).cpu().numpy()
        for row, keep in zip(choices, is_target, strict=True):
            ids = [int(id) for id in row[keep] if id not in pairs.tokenizer.special.values()]
            texts[order[row_index]] = pairs.tokenizer.decode(ids).strip()
            row_index += 1
    return texts


def sum_stretch(values: np.ndarray, stretch: int | None = None) -> np.ndarray:
    """(seeds, n, GENERATED) → (seeds, n, 2): sum and count over one stretch, or over all positions."""
    part = values if stretch is None else np.array_split(values, STRETCHES, axis=2)[stretch]
    return np.stack([part.sum(2), np.full(part.shape[:2], part.shape[2])], 2)


def _continuation(runs: dict[Any, Any]) -> Table:
    ends = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(GENERATED), STRETCHES))])
    stretches = [f"{a + 1}–{b}" for a, b in pairwise(ends)]
    rows = []
    for name in NETWORKS:
        for fed in (TRUTH, OWN):
            values = stack_seeds(runs, (CONTINUATION, name), fed)
            cells = (
                stats.score_interval(stats.ratio, sum_stretch(values, stretch)) for stretch in (None, *range(STRETCHES))
            )
            rows.append((name, fed, *cells))
    title = "Continuation: KL(truth ‖ network) of the next token in nats, by position in the generated text"
    return Table(title, ("training", "fed", "all", *stretches), rows)


def _translation(runs: dict[Any, Any]) -> Table:
    scores = {TRUTH: stats.bleu, OWN: stats.bleu, NATS: stats.ratio}
    rows = [
        (
            name,
            *(
                stats.score_interval(score, stack_seeds(runs, (TRANSLATION, name), kind))
                for kind, score in scores.items()
            ),
        )
        for name in NETWORKS
    ]
    columns = ("training", BLEU_TRUTH, BLEU_OWN, "nats per token, fed the truth")
    return Table("Translation", columns, rows)


def _differences(runs: dict[Any, Any]) -> Table:
    """What decides, paired by seed and text."""

    def gap(name: str, stretch: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        own, truth = (stack_seeds(runs, (CONTINUATION, name), fed) for fed in (OWN, TRUTH))
        return sum_stretch(own, stretch), sum_stretch(truth, stretch)

    def compare_gaps(these: tuple[np.ndarray, np.ndarray], those: tuple[np.ndarray, np.ndarray]) -> list[float]:
        return stats.score_interval(
            stats.difference_of(stats.difference_of(stats.ratio)), stats.join(stats.join(*these), stats.join(*those))
        )

    def output(name: str, kind: str) -> np.ndarray:
        return stack_seeds(runs, (TRANSLATION, name), kind)

    nats = [sum_stretch(stack_seeds(runs, (CONTINUATION, name), NATS)) for name in (SCHEDULED, TEACHER)]
    rows: list[tuple[str, str, Any]] = [
        (CONTINUATION, WORSE, stats.score_difference(stats.ratio, *gap(TEACHER))),
        (CONTINUATION, GROWS, compare_gaps(gap(TEACHER, STRETCHES - 1), gap(TEACHER, 0))),
        (CONTINUATION, MENDED, stats.score_difference(stats.ratio, gap(TEACHER)[0], gap(SCHEDULED)[0])),
        (CONTINUATION, NARROWER, compare_gaps(gap(TEACHER), gap(SCHEDULED))),
        (CONTINUATION, COSTS, stats.score_difference(stats.ratio, *nats)),
        (TRANSLATION, BLEU_LOSS, stats.score_difference(stats.bleu, output(TEACHER, TRUTH), output(TEACHER, OWN))),
        (TRANSLATION, BETTER, stats.score_difference(stats.bleu, output(SCHEDULED, OWN), output(TEACHER, OWN))),
        (TRANSLATION, COSTS, stats.score_difference(stats.ratio, output(SCHEDULED, NATS), output(TEACHER, NATS))),
    ]
    title = "Differences in nats per token or BLEU, mean and 95 % interval"
    return Table(title, ("task", "difference", "value"), rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    def cell(task: str, difference: str) -> Cell:
        return tables["differences"].cell("value", task=task, difference=difference)

    def error(training: str, fed: str, where: str = "all") -> float:
        return float(tables[CONTINUATION].cell(where, training=training, fed=fed)[0])

    def bleu_of(column: str, training: str) -> float:
        return float(tables[TRANSLATION].cell(column, training=training)[0])

    first, last = tables[CONTINUATION].columns[3], tables[CONTINUATION].columns[-1]
    gaps = [stats.signed(error(TEACHER, OWN, where) - error(TEACHER, TRUTH, where), 3) for where in (first, last)]
    worse, grows, loss = cell(CONTINUATION, WORSE), cell(CONTINUATION, GROWS), cell(TRANSLATION, BLEU_LOSS)
    mended, better, narrower = cell(CONTINUATION, MENDED), cell(TRANSLATION, BETTER), cell(CONTINUATION, NARROWER)
    return [
        stats.judge_interval(
            "A language model is less accurate after its own words.",
            worse,
            f"A language model's error is {error(TEACHER, OWN):.3f} nats after its own words and "
            f"{error(TEACHER, TRUTH):.3f} after true ones.",
            "difference in nats",
        ),
        stats.judge_interval(
            "The gap grows with the length of the generated text.",
            grows,
            f"The gap is {gaps[0]} nats at tokens {first} and {gaps[1]} at tokens {last}.",
            "increase in nats",
        ),
        stats.judge_interval(
            "A translator does worse on its own words.",
            loss,
            f"Its most likely tokens reach {bleu_of(BLEU_TRUTH, TEACHER):.1f} BLEU given the truth; its generated text "
            f"reaches {bleu_of(BLEU_OWN, TEACHER):.1f}. Part of the gap is what the truth gives away.",
            "BLEU lost",
            digits=1,
        ),
        stats.judge_interval(
            "Scheduled sampling makes a language model more accurate after its own words.",
            mended,
            f"After its own words the error is {error(SCHEDULED, OWN):.3f} nats with scheduled sampling and "
            f"{error(TEACHER, OWN):.3f} without.",
            "nats saved",
        ),
        stats.judge_interval(
            "Scheduled sampling makes a translator generate better.",
            better,
            f"It reaches {bleu_of(BLEU_OWN, SCHEDULED):.1f} BLEU with scheduled sampling and "
            f"{bleu_of(BLEU_OWN, TEACHER):.1f} without.",
            "BLEU gained",
            digits=1,
        ),
        stats.judge_interval(
            "Scheduled sampling narrows the gap of a language model.",
            narrower,
            f"The gap narrows by {stats.signed(narrower[0], 3)} nats.",
            decides=False,
        ),
        *(_judge_cost(cell(task, COSTS), task) for task in (CONTINUATION, TRANSLATION)),
    ]


def _judge_cost(cell: Cell, task: str) -> Part:
    network = "language model" if task == CONTINUATION else "translator"
    amount, word = stats.more_or_less(cell[0], 3)
    statement = f"Given the truth, a {network} is worse after scheduled sampling."
    evidence = f"Given the truth, a true token costs the {network} {amount} nats {word} after scheduled sampling."
    return stats.judge_interval(statement, cell, evidence, "difference in nats", decides=False)


# ------------------------------------------------------------------------------------------------ draw

COLORS = {TEACHER: plot.VERMILION, SCHEDULED: plot.BLUE}
STYLES = {TRUTH: "o--", OWN: "o-"}


def draw(tables: Tables, figure: plot.Figure) -> None:
    left, right = plot.panels(figure, 12.5, 4.4, 2, (1.2, 1))
    table = tables[CONTINUATION]
    curves = [(f"{name},\nfed {fed}", cells, COLORS[name], STYLES[fed]) for name, fed, _, *cells in table.rows]
    plot.lines(
        left, curves, ticks=table.columns[3:], bars=True, gap=0.14,
        xlabel="position in the generated text", ylabel="KL(truth ‖ network), nats", title="A language model continues",
    )  # fmt: skip
    columns = {"fed the truth": BLEU_TRUTH, "fed own words": BLEU_OWN}
    scores = [
        (name, [tables[TRANSLATION].cell(column, training=name) for column in columns.values()], color)
        for name, color in COLORS.items()
    ]
    for _, cells, _ in scores:
        for x, cell in enumerate(cells):
            right.annotate(f"{cell[0]:.1f}", (x, cell[0]), (8, 4), textcoords="offset points", fontsize=9)
    plot.lines(
        right, scores, ticks=list(columns), bars=True, gap=0.07,
        ylabel="BLEU", title="A translator", xlim=(-0.4, len(columns) - 0.6),
    )  # fmt: skip
