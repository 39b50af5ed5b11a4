"""What does each layer of a network know of a word: its part of speech, its sense?

Every layer's vectors are frozen, and a linear probe learns to tell a label from them, for layer 0 (the embedding, which
knows the word and nothing around it) up to the last:

    parts of speech   every word of the English Web Treebank, in the treebank's own three parts
    senses            hard, interest, line, serve in the newspaper; a probe for each word, and the mean of the four

The best layer of each task is chosen on validation text. Then, on test text, each is set against the other: a layer
that was chosen because it came out best there would come out best by chance.

    parts of speech:   layer chosen for them  −  layer chosen for senses   > 0 ?
    senses:            layer chosen for them  −  layer chosen for tags     > 0 ?

The networks are small ones that this study trains itself, or a run: --run RUN. Small ones know little of senses, and
what they show is no more than that. Of a run that reads letters (ELMo) a word is a word, any of them; of another it is
the mean of its pieces.

The figure of the study of layers: how often a probe of each is right, task by task, and which layer is best.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nextword.batching.examples import Unseen
from nextword.core.errors import Unsupported
from nextword.data.corpus import Corpus
from nextword.lm.loading import load
from nextword.studies._experiment import corpus_for, enough, held_out, spread
from nextword.studies._probes import (
    ABSENT,
    CASE,
    COMMON,
    EMBEDDING,
    INTERVALS,
    OTHER,
    SENSES,
    TAGS,
    TREEBANK,
    Answers,
    Asked,
    Found,
    Question,
    answers,
    asked,
    cased,
    frame_of,
    goes,
    sense_questions,
    tables_of,
    tag_questions,
)
from nextword.studies._small_models import (
    Size,
    Text,
    by,
    encoder,
    learn,
    left_to_right,
    ranged,
    short_sentences,
    text_of,
)
from nextword.studies._study import (
    BLUE,
    GREEN,
    GREY,
    INK,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    beside,
    bounded,
    judged,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (BLUE, VERMILION, GREEN)


def draw(tables: Tables, figure: Figure) -> None:
    layers = tables["layers"]
    tasks = layers.columns[2:]
    figure.set_size_inches(5.6 * len(tasks), 4.4)
    figure.set_layout_engine("constrained", wspace=0.06)
    for task, axes in zip(tasks, figure.subplots(1, len(tasks), squeeze=False)[0], strict=True):
        _task(layers, tables["best"], task, axes)
        _guess(tables["guesses"], task, axes)


def _task(table: Table, best: Table, task: str, axes: Any) -> None:
    labels = []
    for network, colour in zip(dict.fromkeys(table.column("network")), COLOURS * 9, strict=False):
        x = table.column("layer", network=network)
        cells = table.column(task, network=network)
        middles = [cell[0] for cell in cells]
        if all(map(bounded, cells)):
            axes.fill_between(x, [c[1] for c in cells], [c[2] for c in cells], color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, middles, "o-", color=colour, linewidth=1.6, markersize=5)
        top = round(best.cell(task, network=network)[0])
        axes.plot(top, middles[top], "o", color=colour, markersize=12, fillstyle="none", markeredgewidth=1.6)
        axes.annotate(
            f"{middles[top]:.1f}", (top, middles[top]), (0, 12), textcoords="offset points", ha="center", fontsize=9,
            color=INK,
        )  # fmt: skip
        axes.set_xticks(range(max(x) + 1))
        labels.append((middles[-1], network, colour))
    axes.set(xlabel="layer  (0: the embedding; ringed: best on validation text)", ylabel="% right")
    axes.margins(y=0.18)
    axes.set_title(task.capitalize())
    beside(axes, labels)


def _guess(table: Table, task: str, axes: Any) -> None:
    """The commonest label as a dotted line, where it is near enough to the layers to be drawn."""
    floor, (low, high) = table.rows[0][1 + table.columns[1:].index(task)], axes.get_ylim()
    if floor > low - 0.5 * (high - low):
        axes.axhline(floor, color=GREY, linewidth=1, linestyle=":")
        right = axes.get_xlim()[1]
        axes.annotate(
            "the commonest label",
            (right, floor),
            (0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=GREY,
        )


CLAIM = Claim(
    "Lower layers do better on part of speech, higher ones on word sense.",
    "Peters et al. 2018, section 5.3 and tables 5 and 6; lecture notes on ELMo: the lower LSTM "
    "learns parts of speech and syntax, the higher one what a word means where it stands",
)
TAKES_RUN = True  # --run
BOTH, LEFT = "small BERT", "small GPT-2"
PIECES = 1000
FULL = Size(layers=2, rows=48, steps=1000, rate=4e-3)
QUICK = Size(layers=2, width=48, heads=4, rows=32, steps=150)
SHARE = 0.4  # of the tokens hidden from BERT: of 15 % so small a network learns frequencies alone, in this time
LONGEST = 128  # pieces around a word that a run may read; contexts of senses have 46 words on average
COUNTS = {  # sentences to learn from, to choose by and to test on, for all tags and for the senses of each word
    "run": ((4000, 2100, 2100), (4400, 4400, 4400)),
    "full": ((1000, 500, 1500), (1000, 400, 400)),
    "quick": ((300, 150, 150), (200, 100, 100)),
}
LEAST = 100
NO_TREEBANK = (
    f"The treebank for parts of speech ({TREEBANK}) is not on this machine, so whether a word is capitalised stands in "
    f"for them, which is not the same: `nextword data {TREEBANK} --from PATH`."
)


# ------------------------------------------------------------------------------------------------ networks


def looked_at(seed: int, name: str, size: Size, text: Text, questions: Sequence[Asked]) -> list[Answers]:
    network = {BOTH: both_sides, LEFT: left_to_right}[name](seed, size, text)
    return [answers(network, question) for question in questions]


def both_sides(seed: int, size: Size, text: Text) -> Any:
    network = encoder(size, text.vocabulary, seed)
    learn(network, short_sentences(size, text.vocabulary, share=SHARE), text.train, seed, size)
    return network


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    tags, contexts = COUNTS["quick" if settings.quick else "run" if settings.run else "full"]
    asks = [*(tag_questions(tags) or [_case_question(corpus, tags)]), *sense_questions(contexts)]
    look = _given if settings.run else _trained
    found, questions, conditions = look(settings, corpus, asks, progress)
    return tables_of(found, questions, asks, alone=bool(settings.run)), {
        **conditions,
        "words": "a word's vector is the mean of its pieces' vectors; "
        + "; ".join(f"{q.task}{f' of {q.word}' * bool(q.word)}: {_count(q)}" for q in questions),
        "probes": "logistic regression on standardised vectors, its ridge and the best layer chosen on validation text",
        "intervals": INTERVALS,
        **({} if questions[0].task == TAGS else {"no treebank": NO_TREEBANK}),
        **({} if len(questions) > 1 else {"no senses": ABSENT}),
    }


def _case_question(corpus: Corpus, counts: Sequence[int]) -> Question:
    """The substitute: whether a word is capitalised. Validation sentences come from the training text."""
    learnt = list(islice(cased(corpus, "train"), counts[0] + counts[1]))
    seen = round(len(learnt) * counts[0] / (counts[0] + counts[1]))
    found = Question(CASE, "", learnt[:seen], learnt[seen:], list(islice(cased(corpus, held_out(corpus)), counts[2])))
    enough(min(map(len, found[2:])), LEAST, "sentences for a probe", corpus)
    return found


def _count(question: Asked) -> str:
    train, valid, test = (len(part) for part in (question.train, question.valid, question.test))
    return f"{question.classes} classes, {train:,} to learn from, {valid:,} to choose by, {test:,} to test on"


def _trained(
    settings: Settings, corpus: Corpus, asks: Sequence[Question], progress: Progress
) -> tuple[Found, list[Asked], dict[str, Any]]:
    size = QUICK if settings.quick else FULL
    text, tokenizer = text_of(corpus, PIECES)
    questions = [asked(question, tokenizer, size.length - 2) for question in asks]  # two marks around them
    jobs: dict[Any, Any] = {
        (name, seed): (looked_at, (seed, name, size, text, questions))
        for seed in settings.seeds
        for name in (BOTH, LEFT)
    }
    runs = spread(jobs, progress)
    return (
        {name: [runs[name, seed] for seed in settings.seeds] for name in (BOTH, LEFT)},
        questions,
        {
            "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from; WordPiece of "
            f"{len(tokenizer):,}",
            "networks": f"BERT and GPT-2, {size.layers} layers of width {size.width}, {size.heads} heads, window "
            f"{size.length}. So small a network, trained so briefly on one book, knows little of senses: try --run",
            "training": size.said() + f"; {SHARE:.0%} of the tokens hidden from BERT".replace("%", " %"),
        },
    )


def _given(
    settings: Settings, corpus: Corpus, asks: Sequence[Question], progress: Progress
) -> tuple[Found, list[Asked], dict[str, Any]]:
    with torch.random.fork_rng():
        model: Any = load(settings.run)
    if "embed" not in model.can:
        raise Unsupported(
            f"{settings.run} is a model without layers of vectors, so there is nothing to probe. Give the run of a "
            "network that can embed."
        )
    network = model.network
    room = min(LONGEST, model.room, (getattr(network.config, "window", 0) or LONGEST) - len(frame_of(network, []).ids))
    unseen = Unseen(network, model.tokenizer)
    questions = [asked(question, model.tokenizer, room, unseen) for question in asks]
    total = sum(len(goes(network, q)) * len(part.windows) for q in questions for part in (q.train, q.valid, q.test))
    done = 0

    def read(windows: int) -> None:
        nonlocal done
        done += windows
        progress(done, total)

    name = Path(settings.run).resolve().name
    found = {name: [[answers(network, question, read, unseen) for question in questions]]}
    return (
        found,
        questions,
        {
            "data": f"the run {name}: {type(network).__name__}, {model.parameters:,} parameters, "
            f"{len(network.widths) - 1} layer(s), the last of width {network.widths[-1]}; read in windows of at most "
            f"{room} {'words, each by its letters' if unseen.spells else 'pieces'}"
        },
    )


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    layers = tables["layers"]
    tasks = layers.columns[2:]
    missing = [_missing(task, why) for task, why in ((TAGS, NO_TREEBANK), (SENSES, ABSENT)) if task not in tasks]
    parts = list(missing)
    for network in dict.fromkeys(layers.column("network")):
        if not missing:
            parts += [_below(tables, network), *(_better(tables, network, task, OTHER) for task in tasks)]
        if network in tables["halves"].column("network"):
            parts += [_half(tables, network, task) for task in tasks if task in (TAGS, SENSES)]
        parts += [_better(tables, network, task, EMBEDDING) for task in tasks]
        parts += [_better(tables, network, task, COMMON) for task in tasks if task == SENSES]
    return parts


def _missing(task: str, why: str) -> Part:
    return Part(f"Layers are asked for {task}.", judged(None), why, f"{task} not measured")


def _below(tables: Tables, network: str) -> Part:
    best, depth = tables["best"], max(tables["layers"].column("layer", network=network))
    tag, sense = (round(best.cell(task, network=network)[0]) for task in (TAGS, SENSES))
    cell = best.cell("apart", network=network)
    return Part(
        f"The layer that is best for parts of speech lies below the one that is best for senses ({network}).",
        judged(above(cell, 0.5)),  # layers are whole: one apart or more, against none or fewer
        f"In {network} parts of speech are told best from layer {tag} of {depth}, senses from layer {sense}.",
        f"layers apart: {ranged(cell, 1)}",
    )


def _better(tables: Tables, network: str, task: str, what: str) -> Part:
    """Whether a task's best layer is better than another, in the test.

    Against the other task's it cannot be worse but by the chance of the choice: then nothing is shown.
    """
    layers, best = tables["layers"], tables["best"]
    cell = tables["differences"].cell(task, network=network, above=what)
    holds = above(cell)
    mine = round(best.cell(task, network=network)[0])
    right = layers.cell(task, network=network, layer=mine)[0]
    how = by(cell[0], "points", 1)
    if what == COMMON:
        found = f"the commonest sense of each word is right in {right - cell[0]:.1f} %: {how}."
    else:
        (rival,) = [round(c[0]) for c in best.column(_other(task), network=network)] if what == OTHER else [0]
        found = f"layer {rival}{'' if what == OTHER else ', the embedding,'} for {right - cell[0]:.1f} %: {how}."
        if rival == mine:
            found = f"it is the best layer of {_other(task)}, too." if what == OTHER else "it is the embedding itself."
    says = {
        OTHER: f"{task.capitalize()} are told better from their own best layer than from that of {_other(task)}",
        EMBEDDING: f"Of {task}, the best layer says more than the embedding, which knows nothing of the context",
        COMMON: "Its best layer says more of senses than which is the commonest",
    }
    return Part(
        f"{says[what]} ({network}).",
        judged(holds if holds or what != OTHER else None),
        f"Of {task}, layer {mine} of {network} is right for {right:.1f} %; {found}",
        f"points better: {ranged(cell, 1)}",
        decides=what == OTHER,
    )


def _half(tables: Tables, network: str, task: str) -> Part:
    """What the claim says of layers in general, without any choice of one."""
    cell = tables["halves"].cell(task, network=network)
    lower = above(cell)
    return Part(
        f"On average {'lower' if task == TAGS else 'upper'} layers are better for {task} ({network}).",
        judged(None if lower is None else lower == (task == TAGS)),
        f"For {task} the lower half of the layers of {network} is {by(cell[0], 'points', 1)} than the upper half.",
        f"points better: {ranged(cell, 1)}",
        decides=False,
    )


def _other(task: str) -> str:
    return SENSES if task == TAGS else TAGS
