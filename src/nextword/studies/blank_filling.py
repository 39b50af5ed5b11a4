"""Blanks of one word and of several: GLM, BERT and GPT-2 of one shape, which have read as many tokens, fill them.

    a man ___ bike .        rides his?       how many words are missing is not said

The networks and what they learn from are in blanks_networks.py, the blanks in blanks_asked.py, what each network makes
of them in blanks_filling.py. Two things are measured: whether the likeliest filling that a beam finds is the true one,
word for word; and what the true one costs, in nats a word, for all who give it a probability.

Where the captions of Multi30k are on the machine they are the text, for they are simple enough to be learnt in minutes;
else it is the built-in one.

The blanks that three networks are asked to fill: rows of held-out text with one, two, three or more words missing.

[CLS] a man rides his bike . [SEP]      →      [CLS] a man  ‖  rides his  ‖  bike . [SEP]
                                               left            piece         right

The figure of the study of blanks: who is right, and what the truth costs, by how many words are missing.

What each of three networks writes into a blank of unknown length, and what the true words cost it.

    GLM     left M right           pieces and their end, by its own beam: log p is exact, length included
    BERT    left [MASK]ⁿ right     n is in no network: for every n pieces are followed from left to right, those to come
                                   still hidden, and P(n) is how often blanks of the text learnt from have n pieces
    GPT-2   left                   what may come next, of every length, with the same P(n)
            left {x, y, …} right   rescored: those found share their probability by how well the right side follows

All of these are distributions over fillings of any length, so their nats compare. Whoever is told the number of pieces
has P(n) = 1. BERT has three ways more: told the number, all pieces at once, none knowing of the others; not told, the
filling that is likeliest a token if it and its neighbours are hidden one by one; and what the truth costs when it is
hidden so, a pseudo-likelihood, which is no distribution and compares with nothing.

The three networks of the study of blanks: they read the same rows, and learn from them each in its own way.

    row     [CLS] a man rides his bike . [SEP]
    GPT-2   [CLS] a man rides his bike . [SEP]                                each token from those before it
    BERT    [CLS] a man [MASK] his bike . [SEP]                               15 % hidden, each on its own
    GLM     [CLS] a man M bike . [SEP]  │  S rides his  →  rides his E        15 % taken out, in pieces of any length

GLM reads its pieces beside the text, so its rows are longer. What is equal is the number of tokens read: it takes
fewer steps, by as much as its rows are longer. Padding is not counted; marks, masks and pieces are.

The verdict of the study of blanks, from its numbers alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.batching.span_corruption import TOKENS, apart, few_tokens
from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.core.types import IGNORE, Batch, Beam, Inputs, Vocabulary
from nextword.data.corpus import Corpus
from nextword.data.parallel import is_parallel, open_parallel
from nextword.generation.infilling import Gapped, Pieces, divided, filled, filling_nats, unwritten
from nextword.models.bert import BERT, BERTConfig
from nextword.models.framing import following
from nextword.models.glm import GLM, GLMConfig
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.objectives.blank_infilling import Infilling
from nextword.objectives.masked import Masked
from nextword.studies._experiment import corpus_for, enough, spread
from nextword.studies._small_models import (
    INTERVALS,
    Size,
    Text,
    by,
    certain,
    descend,
    ranged,
    short_sentences,
    spaced,
    text_of,
    unhidden,
    wider,
    workers,
)
from nextword.studies._study import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
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
    over_seeds,
)
from nextword.tokenizers.base import Marks, PieceMarks
from nextword.training.device import choose_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARE, MEAN = 0.15, 3.0  # of the tokens that are taken out, and tokens of a piece: the paper's
COUNTED = 20  # batches by which tokens are counted


def rows_of(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Ids (R, T) with nothing hidden, and how many of each row are no padding (R,)."""
    assert batch.inputs.padding is not None
    return unhidden(batch).numpy(), batch.inputs.padding.sum(1).numpy()


# ------------------------------------------------------------------------------------------------ what GLM reads


def taken_apart(batches: Iterator[Batch], words: Vocabulary, seed: int) -> Iterator[Batch]:
    """The same rows, pieces of a few tokens taken out of each; marks stay."""
    marks, special = PieceMarks.of(words), list(words.special.values())
    for step, batch in enumerate(batches):
        ids, sizes = rows_of(batch)
        yield pieces_out(ids[:, 1:], sizes - 1, special, marks, np.random.default_rng([seed, step]))


def pieces_out(
    ids: np.ndarray, sizes: np.ndarray, special: list[int], marks: PieceMarks, draw: np.random.Generator
) -> Batch:
    """Of rows (R, n) of so many tokens (R,), without the mark that texts begin with."""
    inner = ~np.isin(ids, special) & (np.arange(ids.shape[1]) < sizes[:, None])
    wanted = np.maximum(1, (SHARE * sizes).astype(np.int64))[:, None]
    gone = few_tokens(sizes[:, None], ids.shape[1], wanted, MEAN, draw) & inner
    begins = gone & ~np.concatenate([np.zeros((len(gone), 1), bool), gone[:, :-1]], 1)
    ways = np.full(len(ids), TOKENS)
    read, positions, targets = apart(ids, gone, begins, sizes, ways, draw, marks)
    at = np.flatnonzero(targets != IGNORE)
    inputs = Inputs(torch.from_numpy(read), positions=torch.from_numpy(positions))
    return Batch(inputs, torch.from_numpy(targets), fresh=True, at=torch.from_numpy(at), predicted=len(at))


def tokens_read(batch: Batch) -> int:
    """What is no padding. GLM's has the position of nothing, which a row has once more: what it begins with."""
    if batch.inputs.padding is not None:
        return int(batch.inputs.padding.sum())
    assert batch.inputs.positions is not None
    return int((batch.inputs.positions[..., 0] > 0).sum()) + len(batch.targets)


def equal_steps(size: Size, text: Text) -> int:
    """Steps of GLM in which it reads as many tokens as the others in theirs."""
    plain = list(islice(_rows(size, text, 0), COUNTED))
    longer = taken_apart(iter(plain), text.vocabulary, 0)
    return round(size.steps * sum(map(tokens_read, plain)) / sum(map(tokens_read, longer)))


# ------------------------------------------------------------------------------------------------ learning

Read = tuple[int, int, int]  # steps, tokens read, tokens predicted


def filler(seed: int, size: Size, text: Text) -> tuple[GLM, Read]:
    """A GLM that has learnt to write pieces of a few tokens."""
    torch.manual_seed(seed)
    network = wider(GLM(GLMConfig(**size.shape), text.vocabulary))
    objective = Infilling({"rows": size.rows, "length": size.length}, text.vocabulary, 1.0, 0.0, 0.0, SHARE, MEAN)
    batches = taken_apart(_rows(size, text, seed), text.vocabulary, seed)
    fewer = replace(size, steps=equal_steps(size, text))
    return _learnt(network, batches, lambda batch: objective.loss(network, batch, None).value, fewer)


def both_sides(seed: int, size: Size, text: Text) -> tuple[BERT, Read]:
    """A BERT that has learnt to guess hidden tokens. Its norms come first, as the others' do: so it learns at once."""
    torch.manual_seed(seed)
    network = wider(BERT(BERTConfig(**size.shape, norms="before"), text.vocabulary))
    objective = _sentences(size, text)
    batches = _rows(size, text, seed)
    return _learnt(network, batches, lambda batch: objective.loss(network, batch, None).value, size)


def from_the_left(seed: int, size: Size, text: Text) -> tuple[GPT2, Read]:
    """A GPT-2 that has learnt to write on."""
    torch.manual_seed(seed)
    network = wider(GPT2(GPT2Config(**size.shape), text.vocabulary))

    def loss(batch: Batch) -> Tensor:
        h = network.hidden(batch.inputs, None)[0][-1]
        return network.readout.total(h.flatten(0, 1), batch.targets.flatten()) / batch.predicted

    return _learnt(network, (read_on(batch, text.vocabulary) for batch in _rows(size, text, seed)), loss, size)


def read_on(batch: Batch, words: Vocabulary) -> Batch:
    """The same rows with nothing hidden; at each token the next is predicted."""
    inputs = Inputs(unhidden(batch), batch.inputs.padding)
    targets = following(inputs, words.size)
    return Batch(inputs, targets, fresh=True, predicted=int((targets != IGNORE).sum()))


def _sentences(size: Size, text: Text) -> Masked:
    return short_sentences(size, text.vocabulary, share=SHARE)


def _rows(size: Size, text: Text, seed: int) -> Iterator[Batch]:
    return _sentences(size, text).batches(text.train, seed, 0)


def _learnt(network: Any, batches: Iterator[Batch], loss: Callable[[Batch], Tensor], size: Size) -> tuple[Any, Read]:
    network.to(choose_device())
    tokens = predicted = 0

    def counted() -> Iterator[Batch]:
        nonlocal tokens, predicted
        for batch in islice(batches, size.steps):
            tokens, predicted = tokens + tokens_read(batch), predicted + batch.predicted
            yield on_device(batch, network.device)

    descend(network, counted(), loss, size)
    return network, (size.steps, tokens, predicted)


def on_device(batch: Batch, device: torch.device) -> Batch:
    inputs = batch.inputs
    padding, positions, at = (None if t is None else t.to(device) for t in (inputs.padding, inputs.positions, batch.at))
    moved = replace(inputs, ids=inputs.ids.to(device), padding=padding, positions=positions)
    return replace(batch, inputs=moved, targets=batch.targets.to(device), at=at)


LEARNT = 20  # blanks of the training text for each one that is asked, from which lengths are known


class Blank(NamedTuple):
    """A row in three parts. What stands before the blank begins with [CLS], what stands after it ends with [SEP]."""

    left: tuple[int, ...]
    piece: tuple[int, ...]
    right: tuple[int, ...]
    words: int

    def with_in(self, ids: Sequence[int]) -> list[int]:
        return [*self.left, *ids, *self.right]


@dataclass(frozen=True)
class Asked:
    """How many blanks, of how many words; pieces of the longest filling, and hypotheses of every beam."""

    words: tuple[int, ...] = (1, 2, 3, 4)
    each: int = 150
    most: int = 8
    width: int = 4


@dataclass(frozen=True)
class Rules:
    """What is the same for all networks."""

    tokenizer: Tokenizer
    shares: tuple[float, ...]  # P(n) of n = 1, 2, … pieces
    width: int  # hypotheses of a beam

    @property
    def most(self) -> int:
        """Pieces of the longest filling."""
        return len(self.shares)

    def log_share(self, ids: Sequence[int]) -> float:
        return math.log(self.shares[len(ids) - 1])

    def right(self, found: Sequence[int], blank: Blank) -> bool:
        """The same words, however they are spelled in pieces."""
        return self.tokenizer.decode(found) == self.tokenizer.decode(blank.piece)


def asked_of(text: Text, tokenizer: Tokenizer, size: Size, asked: Asked) -> tuple[list[Blank], Rules]:
    """Blanks of the held-out text, equally many of each number of words, shortest first; and how long blanks are that
    are drawn in the same way from the text that is learnt from."""
    rows = short_sentences(size, text.vocabulary)
    room = size.length - asked.most
    held = list(blanks_in(rows.held_out(text.test), asked.words, tokenizer, asked.most, room))
    by_words = {count: [blank for blank in held if blank.words == count] for count in asked.words}
    chosen = [own[i] for own in by_words.values() if own for i in spaced(len(own), asked.each)]
    wanted = LEARNT * asked.each * len(asked.words)
    epoch = islice(rows.batches(text.train, 0, 0), rows.per_epoch(text.train))
    learnt = islice(blanks_in(epoch, asked.words, tokenizer, asked.most, room), wanted)
    return chosen, Rules(tokenizer, shares_of(list(learnt), asked.most), asked.width)


def blanks_in(
    batches: Iterable[Batch], words: Sequence[int], tokenizer: Tokenizer, most: int, room: int
) -> Iterator[Blank]:
    """From each row a blank of each of these numbers of words that finds a place, always the same ones.

    They stand side by side, no punctuation among them, and have at most `most` pieces; what stands around a blank is at
    most `room` tokens long, so that a filling of any length has its place in the window.
    """
    parts, draw = Pieces(tokenizer), np.random.default_rng(0)
    begins, inner = (parts.begins | parts.bare).numpy(), parts.inner.numpy()
    for batch in batches:
        for row, size in zip(*rows_of(batch), strict=True):
            ids = row[:size].tolist()
            ends = word_ends(begins[ids], inner[ids])
            for count in words:
                runs = [(first, _after(first, count, ends)) for first in ends]
                runs = [(i, j) for i, j in runs if 0 < j - i <= most and size - (j - i) <= room]
                if runs:
                    i, j = runs[draw.integers(len(runs))]
                    yield Blank(tuple(ids[:i]), tuple(ids[i:j]), tuple(ids[j:]), count)


def word_ends(begins: np.ndarray, inner: np.ndarray) -> dict[int, int]:
    """Where each word of a row begins, and the place after its last piece."""
    ends: dict[int, int] = {}
    first = -1
    for i, (new, more) in enumerate(zip(begins.tolist(), inner.tolist(), strict=True)):
        first = i if new else first if more else -1
        if first >= 0:
            ends[first] = i + 1
    return ends


def _after(first: int, count: int, ends: dict[int, int]) -> int:
    """The place after so many words side by side; −1 where there are not so many."""
    for _ in range(count):
        first = ends.get(first, -1)
    return first


def shares_of(blanks: Sequence[Blank], most: int) -> tuple[float, ...]:
    """P(n): of these blanks, and of one more of each length, the share with n pieces."""
    counts = 1 + np.bincount([len(blank.piece) for blank in blanks], minlength=most + 1)[1:]
    return tuple((counts / counts.sum()).tolist())


CLAIM = Claim(
    "A network that writes blanks piece by piece until each is over, in sight of both sides (GLM), fills blanks of "
    "several words better than BERT, which must be told how many tokens are missing and guesses each by itself, and "
    "than GPT, which sees the left side alone, for as many tokens read.",
    "Du et al. 2021, sections 1, 2.1 and 2.4",
)
GLM_NAME, BERT_NAME, GPT = "GLM", "BERT", "GPT-2"
LIKED, TOLD_BERT, AT_ONCE = "BERT, by pseudo-likelihood", "BERT, told the length", "BERT, told, all at once"
TOLD_GPT, RESCORED = "GPT-2, told the length", "GPT-2, rescored"
PSEUDO = "BERT, pseudo"  # its nats are of no distribution
WAYS = (GLM_NAME, BERT_NAME, LIKED, GPT, RESCORED, TOLD_BERT, AT_ONCE, TOLD_GPT)
SEVERAL = "several"  # words
RIGHT, NATS = "right, %", "nats a word"


def judge(tables: Tables) -> list[Part]:
    levels = tables[RIGHT]
    better = max((BERT_NAME, LIKED), key=lambda way: levels.cell(SEVERAL, network=way)[0])  # in BERT's favour
    return [
        _right(tables, GLM_NAME, better, "Nobody being told the length, GLM is right more often than BERT."),
        _right(tables, GLM_NAME, GPT, "Nobody being told the length, GLM is right more often than GPT-2."),
        _nats(tables, GLM_NAME, BERT_NAME, "It gives the true words more probability than BERT."),
        _nats(tables, GLM_NAME, GPT, "It gives the true words more probability than GPT-2."),
        _right(tables, GLM_NAME, TOLD_BERT, "It is right more often than a BERT that is told the length.", decides=False),
        _nats(tables, GLM_NAME, TOLD_BERT, "It gives them more probability than that BERT.", decides=False),
        _nats(tables, GLM_NAME, AT_ONCE, "It gives them more than a BERT that guesses all pieces at once.", decides=False),
        _nats(
            tables, TOLD_BERT, AT_ONCE, "BERT gives them more piece by piece than all at once.", decides=False
        ),
        _right(tables, GLM_NAME, TOLD_GPT, "It is right more often than a GPT-2 that is told the length.", decides=False),
        _right(
            tables, GLM_NAME, RESCORED, "It is so, too, where GPT-2 may rescore its best by the right side.", decides=False
        ),
        _nats(tables, GLM_NAME, RESCORED, "It gives the true words more probability than that.", decides=False),
        _right(tables, GLM_NAME, better, "Where one word is missing, it is right more often than BERT.", "1", decides=False),
    ]  # fmt: skip


def _cell(apart: Table, measure: str, way: str, than: str, words: str) -> Any:
    return apart.cell(measure, network=way, than=than, words=words)


def _right(tables: Tables, way: str, than: str, says: str, words: str = SEVERAL, decides: bool = True) -> Part:
    cell = _cell(tables["differences"], RIGHT, way, than, words)
    mine, its = (tables[RIGHT].cell(words, network=name)[0] for name in (way, than))
    found = f"{way} fills {mine:.1f} % of {_blanks(words)} right, {than} {its:.1f} %: {by(cell[0], 'points', 1)}."
    return Part(says, judged(above(cell)), found, f"points better: {ranged(cell, 1)}", decides)


def _nats(tables: Tables, way: str, than: str, says: str, decides: bool = True) -> Part:
    cell = _cell(tables["differences"], NATS, way, than, SEVERAL)
    mine, its = (tables[NATS].cell(SEVERAL, network=name)[0] for name in (way, than))
    found = (
        f"In {_blanks(SEVERAL)} a true word costs {way} {mine:.2f} nats, {than} {its:.2f}: {by(cell[0], 'nats', 2)}."
    )
    return Part(says, judged(above(cell)), found, f"nats better: {ranged(cell, 2)}", decides)


def _blanks(words: str) -> str:
    return "blanks of several words" if words == SEVERAL else "blanks of one word"


# Who is told the length is drawn with dashes
LINES: dict[str, tuple[str, str]] = {
    GLM_NAME: (BLUE, "-"),
    BERT_NAME: (VERMILION, "-"),
    LIKED: (ORANGE, "-"),
    GPT: (GREEN, "-"),
    RESCORED: (PURPLE, "-"),
    TOLD_BERT: (VERMILION, "--"),
    AT_ONCE: (SKY, "--"),
    TOLD_GPT: (GREEN, "--"),
}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 4.8)
    figure.set_layout_engine("constrained", wspace=0.06)
    right, nats = figure.subplots(1, 2)
    _panel(tables[RIGHT], right, "Filled with the very words", "% of the blanks")
    _panel(tables[NATS], nats, "Cost of the true words", "nats a word  (below: better)")


def _panel(table: Table, axes: Any, title: str, label: str) -> None:
    words = [column for column in table.columns[1:] if column != SEVERAL]
    names = [name for name in table.column("network") if name in LINES]
    labels = []
    for i, name in enumerate(names):
        colour, dashes = LINES[name]
        cells = [table.cell(column, network=name) for column in words]
        shift = 0.03 * (i - (len(names) - 1) / 2)  # so that intervals stand side by side
        places = [x + shift for x in range(len(words))]
        for x, cell in zip(places, cells, strict=True):
            if bounded(cell):
                axes.plot([x, x], cell[1:], color=colour, linewidth=1.6, solid_capstyle="round")
        middles = [cell[0] for cell in cells]
        axes.plot(places, middles, "o", linestyle=dashes, color=colour, linewidth=1.2, markersize=4.5)
        labels.append((middles[-1], name, colour))
    axes.set_xticks(range(len(words)), words)
    axes.set(xlabel="words that are missing", ylabel=label)
    axes.set_title(title)
    beside(axes, labels)


TOGETHER = 1 << 14  # tokens read at once
SEARCHED = 64  # blanks searched side by side

Ids = tuple[int, ...]


class Found(NamedTuple):
    """Pieces that may fill a blank, and their log p."""

    ids: Ids
    log_p: float


class Answer(NamedTuple):
    """What one way of filling says of all blanks; None where it says nothing."""

    written: list[Ids] | None
    nats: np.ndarray | None  # (n,) of the truth


Answers = dict[str, Answer]


# ------------------------------------------------------------------------------------------------ reading


@torch.no_grad()
def said(network: Any, rows: Sequence[Sequence[int]], at: Sequence[int]) -> Tensor:
    """log p (n, V) of what stands at a place in each row; or after it, for who reads from the left."""
    found = []
    for here in _parts(rows):
        ids, padding = _padded(rows[here], network.device)
        first = torch.arange(len(ids), device=ids.device) * ids.shape[1]
        places = first + torch.tensor(at[here], device=ids.device)
        if hasattr(network, "fill"):
            found.append(network.fill(Inputs(ids, padding), places).float())
        else:
            h = network.hidden(Inputs(ids), None)[0][-1]
            found.append(network.readout.log_probs(h.flatten(0, 1)[places]).float())
    return torch.cat(found)


@torch.no_grad()
def followed(network: Any, rows: Sequence[Sequence[int]], first: Sequence[int]) -> np.ndarray:
    """log p (n,) of what stands in each row from a place on, from left to right, given what is before it."""
    found = []
    for here in _parts(rows):
        ids, padding = _padded(rows[here], network.device)
        h = network.hidden(Inputs(ids), None)[0][-1][:, :-1]
        columns = torch.arange(1, ids.shape[1], device=ids.device)
        asked = padding[:, 1:] & (columns >= torch.tensor(first[here], device=ids.device).unsqueeze(1))
        nats = network.readout.nll(h[asked], ids[:, 1:][asked]).double()
        none = torch.zeros(len(ids), dtype=torch.float64, device=ids.device)
        found.append(none.index_add(0, asked.nonzero()[:, 0], -nats))
    return torch.cat(found).cpu().numpy()


def _parts(rows: Sequence[Sequence[int]]) -> Iterator[slice]:
    many = max(1, TOGETHER // max(map(len, rows), default=1))
    return (slice(first, first + many) for first in range(0, len(rows), many))


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, T), and where there is a token (B, T)."""
    lengths = np.array([len(row) for row in rows])
    there = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(there.shape, np.int64)
    ids[there] = [id for row in rows for id in row]
    return torch.from_numpy(ids).to(device), torch.from_numpy(there).to(device)


# ------------------------------------------------------------------------------------------------ searching

Beams = list[list[Found]]  # of each blank, the same number
Says = Callable[[Sequence[Blank], Beams], Tensor]  # log p (all rows of the beams, V) of a piece more


def grown(blanks: Sequence[Blank], says: Says, steps: int, rules: Rules) -> Iterator[Beams]:
    """A beam for each blank: its likeliest beginnings of one piece, of two, … , best first."""
    inner = Pieces(rules.tokenizer).inner
    never = torch.zeros(len(rules.tokenizer), dtype=torch.bool)
    never[list(rules.tokenizer.special.values())] = True
    beams: Beams = [[Found((), 0.0)] for _ in blanks]
    for step in range(steps):
        log_p = says(blanks, beams).cpu().double()
        log_p[:, never if step else never | inner] = -math.inf  # a blank begins with a word of its own
        before = torch.tensor([[one.log_p for one in beam] for beam in beams], dtype=torch.float64)  # (B, J)
        size = log_p.shape[1]
        total = (log_p.view(*before.shape, size) + before.unsqueeze(-1)).flatten(1)
        best = total.topk(min(rules.width, total.shape[1]))
        beams = [
            [Found((*beam[i // size].ids, i % size), value) for value, i in zip(values, at, strict=True)]
            for beam, values, at in zip(beams, best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        yield beams


def in_turns(blanks: Sequence[Blank]) -> Iterator[Sequence[Blank]]:
    return (blanks[first : first + SEARCHED] for first in range(0, len(blanks), SEARCHED))


def weighed(found: Sequence[Found], rules: Rules) -> list[Found]:
    """Fillings of several lengths, with P(n)."""
    return [Found(one.ids, one.log_p + rules.log_share(one.ids)) for one in found]


def likeliest(found: Sequence[Found]) -> Ids:
    return max(found, key=lambda one: one.log_p).ids


def log_shares(blanks: Sequence[Blank], rules: Rules) -> np.ndarray:
    return np.array([rules.log_share(blank.piece) for blank in blanks])


# ------------------------------------------------------------------------------------------------ GLM


def glm_fills(network: Any, blanks: Sequence[Blank], rules: Rules) -> Answers:
    marks = network.pieces
    # What texts begin with is [CLS], which is there; and no blank goes on with the word before it
    texts = [Gapped((*b.left, marks.masks[0], *b.right), (len(b.left),), (True,)) for b in blanks]
    banned, inner = unwritten(rules.tokenizer, marks.end), Pieces(rules.tokenizer).inner
    best = filled(network, texts, inner, Beam(rules.width), rules.most + 1, banned=banned)
    written = [tuple((divided(network, some[0].ids) or [[]])[0]) for some in best]
    return {GLM_NAME: Answer(written, np.array(filling_nats(network, texts, [[blank.piece] for blank in blanks])))}


# ------------------------------------------------------------------------------------------------ GPT-2


def gpt_fills(network: Any, blanks: Sequence[Blank], rules: Rules) -> Answers:
    def says(some: Sequence[Blank], beams: Beams) -> Tensor:
        rows = [[*blank.left, *one.ids] for blank, beam in zip(some, beams, strict=True) for one in beam]
        return said(network, rows, [len(row) - 1 for row in rows])

    told: list[Ids] = []
    every: list[list[Found]] = []  # of each blank
    for some in in_turns(blanks):
        by_length = list(grown(some, says, rules.most, rules))
        told += [by_length[len(blank.piece) - 1][i][0].ids for i, blank in enumerate(some)]
        every += [weighed([one for beams in by_length for one in beams[i]], rules) for i in range(len(some))]
    alone = [likeliest(own) for own in every]
    known = followed(network, [[*b.left, *b.piece] for b in blanks], [len(b.left) for b in blanks])  # log p (n,)
    unknown = known + log_shares(blanks, rules)
    rescored, nats = [], []
    for blank, own, log_p in zip(blanks, every, unknown.tolist(), strict=True):
        rows = [blank.with_in(one.ids) for one in own]
        follows = followed(network, rows, [len(blank.left) + len(one.ids) for one in own])
        best, cost = shared(own, follows, blank, log_p)
        rescored.append(best)
        nats.append(cost)
    return {
        GPT: Answer(alone, -unknown),
        TOLD_GPT: Answer(told, -known),
        RESCORED: Answer(rescored, np.array(nats)),
    }


def shared(every: Sequence[Found], follows: np.ndarray, blank: Blank, own: float) -> tuple[Ids, float]:
    """The likeliest by what follows, and nats of the truth: those found share the probability that they have together,
    and a truth that was not found keeps its `own` log p."""
    log_p = np.array([one.log_p for one in every])
    both = log_p + follows
    share = both - np.logaddexp.reduce(both) + np.logaddexp.reduce(log_p)
    true = [i for i, one in enumerate(every) if one.ids == blank.piece]
    return every[int(both.argmax())].ids, -float(share[true[0]] if true else own)


# ------------------------------------------------------------------------------------------------ BERT


def bert_fills(network: Any, blanks: Sequence[Blank], rules: Rules) -> Answers:
    best: list[list[Found]] = [[] for _ in blanks]  # of each blank the likeliest of each length
    for n in range(1, rules.most + 1):
        last = [beam for some in in_turns(blanks) for beam in list(grown(some, _hidden(network, n), n, rules))[-1]]
        for own, beam in zip(best, last, strict=True):
            own.append(beam[0])
    told = [own[len(blank.piece) - 1].ids for blank, own in zip(blanks, best, strict=True)]
    alone = [likeliest(weighed(own, rules)) for own in best]
    liked = [
        own[int(pseudo(network, [(blank, one.ids) for one in own], beside=1)[1].argmax())].ids
        for blank, own in zip(blanks, best, strict=True)
    ]
    one_by_one, at_once = (truth(network, blanks, together) for together in (False, True))
    costs = pseudo(network, [(blank, blank.piece) for blank in blanks], beside=0)[0]
    assert one_by_one.nats is not None
    return {
        BERT_NAME: Answer(alone, one_by_one.nats - log_shares(blanks, rules)),
        LIKED: Answer(liked, None),
        TOLD_BERT: Answer(told, one_by_one.nats),
        AT_ONCE: at_once,
        PSEUDO: Answer(None, -costs),
    }


def _hidden(network: Any, n: int) -> Says:
    """n pieces are missing; the first of them are there."""
    mask = Marks.of(network.vocabulary).mask

    def says(some: Sequence[Blank], beams: Beams) -> Tensor:
        pairs = [(blank, one.ids) for blank, beam in zip(some, beams, strict=True) for one in beam]
        rows = [blank.with_in([*ids, *[mask] * (n - len(ids))]) for blank, ids in pairs]
        return said(network, rows, [len(blank.left) + len(ids) for blank, ids in pairs])

    return says


def truth(network: Any, blanks: Sequence[Blank], together: bool) -> Answer:
    """BERT that is told the number of pieces: the likeliest in each place, and nats of the truth; all pieces hidden, or
    one by one, the true ones before it being there."""
    mask = Marks.of(network.vocabulary).mask
    rows, at, ids = [], [], []
    for blank in blanks:
        for k, id in enumerate(blank.piece):
            seen = () if together else blank.piece[:k]
            rows.append(blank.with_in([*seen, *[mask] * (len(blank.piece) - len(seen))]))
            at.append(len(blank.left) + k)
            ids.append(id)
    log_p = said(network, rows, at).cpu()
    costs = -log_p.gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1).double().numpy()
    edges = np.cumsum([0, *(len(blank.piece) for blank in blanks)])
    best = log_p.argmax(1).tolist()
    written = [tuple(best[i:j]) for i, j in pairwise(edges.tolist())]
    return Answer(written if together else None, np.add.reduceat(costs, edges[:-1]))


def pseudo(network: Any, fillings: Sequence[tuple[Blank, Ids]], beside: int) -> tuple[np.ndarray, np.ndarray]:
    """log p of each filling and of so many tokens on either side, hidden one by one: their sum (n,), and mean (n,)."""
    mask = Marks.of(network.vocabulary).mask
    rows, at, ids, own = [], [], [], []
    for i, (blank, filling) in enumerate(fillings):
        row = blank.with_in(filling)
        for place in range(len(blank.left) - beside, len(blank.left) + len(filling) + beside):
            rows.append([*row[:place], mask, *row[place + 1 :]])
            at.append(place)
            ids.append(row[place])
            own.append(i)
    log_p = said(network, rows, at).cpu().gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1).double().numpy()
    total = np.bincount(own, log_p, len(fillings))
    return total, total / np.bincount(own, minlength=len(fillings))


CAPTIONS = "multi30k:de-en"  # of pairs the second side is read
FULL, PIECES = Size(layers=1, steps=1200, rate=4e-3), 1000
QUICK = Size(layers=1, width=64, heads=4, rows=32, steps=200, rate=4e-3)
LARGE, LARGE_PIECES = Size(width=384, layers=6, heads=6, rows=256, length=64, steps=20_000, rate=1e-3), 8000
ASKED, QUICK_ASKED = Asked(), Asked(each=50, most=6, width=2)
LARGE_ASKED = Asked(words=(1, 2, 3, 4, 6), each=400, most=12)
LEAST = 30  # blanks of each number of words
LEARN: dict[str, Any] = {
    GLM_NAME: (filler, glm_fills),
    BERT_NAME: (both_sides, bert_fills),
    GPT: (from_the_left, gpt_fills),
}


def text_for(data: str) -> Corpus:
    """A text, or pairs, of which the targets are read; none given: the captions, or else the built-in text."""
    if data:
        return open_parallel(data) if is_parallel(data) else corpus_for(data)
    try:
        return open_parallel(CAPTIONS)
    except NextwordError:  # not on this machine
        return corpus_for("")


def run(name: str, seed: int, size: Size, text: Text, blanks: Sequence[Blank], rules: Rules) -> dict[str, Any]:
    """One network: what it has read, and by way of filling who is right (n,) and nats a word (n,)."""
    learn, fills = LEARN[name]
    started = time.process_time()
    network, read = learn(seed, size, text)
    learnt = time.process_time() - started
    answers: Answers = fills(network, blanks, rules)
    words = np.array([blank.words for blank in blanks])
    found = {}
    for way, (written, nats) in answers.items():
        right = None
        if written is not None:
            right = np.array([100.0 * rules.right(w, b) for w, b in zip(written, blanks, strict=True)])
        found[way] = {RIGHT: right, NATS: None if nats is None else nats / words}
    parameters = sum(p.numel() for p in network.parameters())
    return {"ways": found, "read": (parameters, *read, learnt, time.process_time() - started - learnt)}


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = text_for(settings.data)
    large = choose_device().type == "cuda" and not settings.quick
    size, asked = (QUICK, QUICK_ASKED) if settings.quick else (LARGE, LARGE_ASKED) if large else (FULL, ASKED)
    text, tokenizer = text_of(corpus, LARGE_PIECES if large else PIECES)
    blanks, rules = asked_of(text, tokenizer, size, asked)
    counts = {count: sum(blank.words == count for blank in blanks) for count in asked.words}
    enough(min(counts.values()), LEAST, "held-out blanks of every number of words", corpus)
    tasks: dict[Any, Any] = {
        (name, seed): (run, (name, seed, size, text, blanks, rules)) for seed in settings.seeds for name in LEARN
    }
    runs = spread(tasks, progress, workers())
    found: dict[tuple[str, str], np.ndarray] = {}  # (seeds, blanks) by way and measure
    for name in LEARN:
        for way, cells in runs[name, settings.seeds[0]]["ways"].items():
            for kind in (RIGHT, NATS):
                if cells[kind] is not None:
                    found[way, kind] = np.stack([runs[name, seed]["ways"][way][kind] for seed in settings.seeds])
    groups = groups_of(blanks)
    return {
        RIGHT: _levels("Blanks filled with the very words, %, mean and 95 % interval", RIGHT, WAYS, found, groups),
        NATS: _levels("Nats a true word, mean and 95 % interval", NATS, (*WAYS, PSEUDO), found, groups),
        "differences": _differences(found, groups),
        "learning": _learning(runs, settings.seeds),
    }, {
        "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from, "
        f"{', '.join(map(str, counts.values()))} held-out blanks of {', '.join(map(str, counts))} words; "
        f"WordPiece of {len(tokenizer):,}",
        "networks": f"GLM, BERT (its norms first, as the others have them) and GPT-2 of {size.built()}",
        "training": size.said()
        + f"; GLM fewer steps, for as many tokens read; {SHARE:.0%} hidden or taken out, GLM's "
        f"pieces of {MEAN:g} tokens in the mean".replace("%", " %"),
        "filling": f"beams of {asked.width}; fillings of at most {asked.most} pieces",
        "intervals": INTERVALS,
    }


def groups_of(blanks: Sequence[Blank]) -> dict[str, np.ndarray]:
    """Which blanks (n,) have so many words; and which several."""
    words = np.array([blank.words for blank in blanks])
    return {**{str(count): words == count for count in sorted(set(words.tolist()))}, SEVERAL: words > 1}


def _levels(
    title: str, kind: str, ways: Sequence[str], found: dict[tuple[str, str], np.ndarray], groups: dict[str, np.ndarray]
) -> Table:
    rows = [
        (way, *(certain(found[way, kind][:, group]) for group in groups.values()))
        for way in ways
        if (way, kind) in found
    ]
    return Table(title, ("network", *groups), tuple(rows))


def _differences(found: dict[tuple[str, str], np.ndarray], groups: dict[str, np.ndarray]) -> Table:
    """How much better GLM is than every other; and BERT piece by piece than all at once."""
    rows = []
    for way, than in (*((GLM_NAME, other) for other in WAYS if other != GLM_NAME), (TOLD_BERT, AT_ONCE)):
        for words, group in groups.items():
            cells: list[Any] = []
            for kind, sign in ((RIGHT, 1.0), (NATS, -1.0)):
                both = [found.get((name, kind)) for name in (way, than)]
                cells.append(None if both[1] is None else certain(sign * (both[0] - both[1])[:, group]))
            rows.append((way, than, words, *cells))
    columns = ("network", "than", "words", RIGHT, NATS)
    return Table("Better by (below 0: worse), mean and 95 % interval", columns, tuple(rows), detailed=True)


def _learning(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    rows = [
        (name, *(over_seeds(part) for part in zip(*(runs[name, s]["read"] for s in seeds), strict=True)))
        for name in LEARN
    ]
    columns = ("network", "parameters", "steps", "tokens read", "tokens predicted", "seconds to learn", "to fill")
    return Table("What each has learnt from", columns, tuple(rows))
