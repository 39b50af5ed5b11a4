"""Which network fills blanks of several words best: GLM, BERT or GPT-2?

    a man ___ bike .        rides his?       the number of missing words is not given

Claim: GLM, which generates a blank token by token with both sides in view, fills blanks of several words better than
BERT, which needs the number of missing tokens and predicts each independently, and than GPT, which sees only
the left side, for the same number of tokens read (Du et al. 2021).

The networks have one shape and read the same rows, each with its own objective:

    row     [CLS] a man rides his bike . [SEP]
    GPT-2   [CLS] a man rides his bike . [SEP]                                each token from those before it
    BERT    [CLS] a man [MASK] his bike . [SEP]                               15 % masked, independently
    GLM     [CLS] a man M bike . [SEP]  │  S rides his  →  rides his E        15 % taken out, in spans of any length

GLM's rows are longer, because it reads its spans next to the text. It takes fewer steps, so that all networks read
the same number of tokens (without padding, with special tokens and spans).

How each fills a blank of unknown length:

    GLM     left M right           its own beam search: log p is exact and includes the length
    BERT    left [MASK]ⁿ right     for every n, a beam from left to right with the rest still masked; P(n) is the
                                   frequency of blanks with n pieces in the training text
    GPT-2   left                   continuations of every length, with the same P(n)
            left {x, y, …} right   rescored: the candidates share their probability by how well the right side follows

All of these are distributions over fillings of any length, so their nats are comparable. A network that is given the
length has P(n) = 1. BERT also predicts all pieces at once, and ranks lengths by pseudo-likelihood, which is not a
distribution.

Measured: how often the most likely filling is the true one, word for word, and the nats per true word. The text is
the English captions of Multi30k, if they are on this machine, because they are simple enough to be learned in
minutes; else the built-in text.

Verdict, for blanks of several words and unknown length: GLM must be right more often than BERT (by the better of its
two rankings) and than GPT-2, and give the true words more probability than either.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.batching.blank_infilling import TOKENS, arrange_pieces, choose_short_pieces
from nextword.core.errors import NextwordError
from nextword.core.protocols import Infilling
from nextword.core.types import IGNORE, Batch, Beam, Inputs, Vocabulary
from nextword.data.corpus import Corpus
from nextword.data.parallel import is_parallel, open_parallel
from nextword.generation.infilling import (
    TextWithBlanks,
    WordPieces,
    fill_blanks,
    filling_nats,
    split_pieces,
    unwritable_ids,
)
from nextword.models.base import Network
from nextword.models.bert import BERT, BERTConfig
from nextword.models.glm import GLM, GLMConfig
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.objectives.blank_infilling import BlankInfillingObjective
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import describe_corpus, open_text, require, run_parallel
from nextword.studies._study import Cell, Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._transformers import (
    Size,
    Text,
    encode_corpus,
    masked_lm,
    next_token_loss,
    original_ids,
    predict_next,
    scale_weights,
    slices,
    train,
)
from nextword.studies._translators import spaced_indices
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.special_tokens import Marks, PieceMarks
from nextword.training.device import choose_device, to_device


class BlankSettings(NamedTuple):
    words: tuple[int, ...] = (1, 2, 3, 4)  # lengths of the blanks
    each: int = 150  # blanks of each length
    max_pieces: int = 8  # of a filling
    beam: int = 4


CLAIM = Claim(
    "A network that generates a blank token by token with both sides in view (GLM) fills blanks of several words "
    "better than BERT, which needs the number of missing tokens and predicts each independently, and than GPT, "
    "which sees only the left side, for the same number of tokens read.",
    "Du et al. 2021, sections 1, 2.1 and 2.4",
)
CAPTIONS = "multi30k:de-en"  # the target side is read
FULL, PIECES = Size(layers=1, steps=1200, rate=4e-3), 1000
QUICK = Size(layers=1, width=64, heads=4, rows=32, steps=200, rate=4e-3)
LARGE, LARGE_PIECES = Size(width=384, layers=6, heads=6, rows=256, length=64, steps=20_000, rate=1e-3), 8000
BLANKS, QUICK_BLANKS = BlankSettings(), BlankSettings(each=50, max_pieces=6, beam=2)
LARGE_BLANKS = BlankSettings(words=(1, 2, 3, 4, 6), each=400, max_pieces=12)
MIN_BLANKS = 30  # of each length
MASKED_SHARE, SPAN_LENGTH = 0.15, 3.0  # share of masked tokens, and mean span length: the paper's
COUNTED_BATCHES = 20  # by which tokens are counted
TRAIN_BLANKS = 20  # training blanks for each test blank, from which P(n) is estimated
BATCH_TOKENS = 1 << 14
BATCH_BLANKS = 64  # searched together

GLM_NAME, BERT_NAME, GPT = "GLM", "BERT", "GPT-2"
BY_PSEUDO, BERT_GIVEN, AT_ONCE = "BERT, by pseudo-likelihood", "BERT, length given", "BERT, length given, all at once"
GPT_GIVEN, RESCORED = "GPT-2, length given", "GPT-2, rescored"
PSEUDO = "BERT, pseudo-likelihood"  # not a distribution
METHODS = (GLM_NAME, BERT_NAME, BY_PSEUDO, GPT, RESCORED, BERT_GIVEN, AT_ONCE, GPT_GIVEN)
SEVERAL = "several"  # words
ACCURACY, NATS = "accuracy, %", "nats per word"


# ------------------------------------------------------------------------------------------------ training

Reading = tuple[int, int, int]  # steps, tokens read, tokens predicted


def train_glm(seed: int, size: Size, text: Text) -> tuple[GLM, Reading]:
    torch.manual_seed(seed)
    network = scale_weights(GLM(GLMConfig(**size.shape), text.vocabulary))
    rows = {"rows": size.rows, "length": size.length}
    objective = BlankInfillingObjective(rows, text.vocabulary, 1.0, 0.0, 0.0, MASKED_SHARE, SPAN_LENGTH)
    batches = take_out_spans(make_rows(size, text, seed), text.vocabulary, seed)
    fewer = replace(size, steps=equal_steps(size, text))
    return network, train_counted(network, batches, lambda batch: objective.loss(network, batch, None).value, fewer)


def train_bert(seed: int, size: Size, text: Text) -> tuple[BERT, Reading]:
    """With pre-norm layers, like the other networks, because they learn faster."""
    torch.manual_seed(seed)
    network = scale_weights(BERT(BERTConfig(**size.shape, norm_position="before"), text.vocabulary))
    objective, batches = masked_lm(size, text.vocabulary, mask_fraction=MASKED_SHARE), make_rows(size, text, seed)
    return network, train_counted(network, batches, lambda batch: objective.loss(network, batch, None).value, size)


def train_gpt2(seed: int, size: Size, text: Text) -> tuple[GPT2, Reading]:
    torch.manual_seed(seed)
    network = scale_weights(GPT2(GPT2Config(**size.shape), text.vocabulary))
    batches = (predict_next(batch, text.vocabulary) for batch in make_rows(size, text, seed))
    return network, train_counted(network, batches, lambda batch: next_token_loss(network, batch), size)


def make_rows(size: Size, text: Text, seed: int) -> Iterator[Batch]:
    return masked_lm(size, text.vocabulary, mask_fraction=MASKED_SHARE).batches(text.train, seed, 0)


def train_counted(network: Network, batches: Iterator[Batch], loss: Callable[[Batch], Tensor], size: Size) -> Reading:
    network.to(choose_device())
    tokens = predicted = 0

    def counted() -> Iterator[Batch]:
        nonlocal tokens, predicted
        for batch in islice(batches, size.steps):
            tokens, predicted = tokens + count_tokens(batch), predicted + batch.num_targets
            yield to_device(batch, network.device)

    train(network, counted(), loss, size)
    return size.steps, tokens, predicted


def take_out_spans(batches: Iterator[Batch], vocabulary: Vocabulary, seed: int) -> Iterator[Batch]:
    """The same rows for GLM, with short spans taken out; special tokens stay."""
    marks, special = PieceMarks.of(vocabulary), list(vocabulary.special.values())
    for step, batch in enumerate(batches):
        ids, sizes = unpad(batch)
        yield span_batch(ids[:, 1:], sizes - 1, special, marks, np.random.default_rng([seed, step]))


def span_batch(
    ids: np.ndarray, sizes: np.ndarray, special: list[int], marks: PieceMarks, draw: np.random.Generator
) -> Batch:
    """From rows (R, n) with these numbers of tokens (R,), without the begin token."""
    is_word = ~np.isin(ids, special) & (np.arange(ids.shape[1]) < sizes[:, None])
    wanted = np.maximum(1, (MASKED_SHARE * sizes).astype(np.int64))[:, None]
    chosen = choose_short_pieces(sizes[:, None], ids.shape[1], wanted, SPAN_LENGTH, draw) & is_word
    begins = chosen & ~np.concatenate([np.zeros((len(chosen), 1), bool), chosen[:, :-1]], 1)
    kinds = np.full(len(ids), TOKENS)
    read, positions, targets = arrange_pieces(ids, chosen, begins, sizes, kinds, draw, marks)
    target_positions = np.flatnonzero(targets != IGNORE)
    inputs = Inputs(torch.from_numpy(read), positions=torch.from_numpy(positions))
    return Batch(
        inputs,
        torch.from_numpy(targets),
        reset_state=True,
        target_positions=torch.from_numpy(target_positions),
        num_targets=len(target_positions),
    )


def unpad(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Unmasked ids (R, T), and the number of tokens in each row (R,)."""
    assert batch.inputs.token_mask is not None
    return original_ids(batch).numpy(), batch.inputs.token_mask.sum(1).numpy()


def count_tokens(batch: Batch) -> int:
    """Tokens without padding. GLM's padding has position 0, which is also the position of the first token of a row."""
    if batch.inputs.token_mask is not None:
        return int(batch.inputs.token_mask.sum())
    assert batch.inputs.positions is not None
    return int((batch.inputs.positions[..., 0] > 0).sum()) + len(batch.targets)


def equal_steps(size: Size, text: Text) -> int:
    """Steps in which GLM reads as many tokens as the other networks in theirs."""
    rows = list(islice(make_rows(size, text, 0), COUNTED_BATCHES))
    spans = take_out_spans(iter(rows), text.vocabulary, 0)
    return round(size.steps * sum(map(count_tokens, rows)) / sum(map(count_tokens, spans)))


# ------------------------------------------------------------------------------------------------ blanks

Ids = tuple[int, ...]


class Blank(NamedTuple):
    """A row in three parts: `left` begins with [CLS], `right` ends with [SEP]."""

    left: Ids
    piece: Ids
    right: Ids
    words: int

    def fill(self, ids: Sequence[int]) -> list[int]:
        return [*self.left, *ids, *self.right]


@dataclass(frozen=True)
class Rules:
    """What is the same for all networks."""

    tokenizer: Tokenizer
    length_shares: tuple[float, ...]  # P(n) for n = 1, 2, … pieces
    beam: int

    @property
    def max_pieces(self) -> int:
        return len(self.length_shares)

    def log_share(self, ids: Sequence[int]) -> float:
        return math.log(self.length_shares[len(ids) - 1])

    def is_right(self, ids: Sequence[int], blank: Blank) -> bool:
        """The same words, however they are split into pieces."""
        return self.tokenizer.decode(ids) == self.tokenizer.decode(blank.piece)


def choose_blanks(text: Text, tokenizer: Tokenizer, size: Size, settings: BlankSettings) -> tuple[list[Blank], Rules]:
    """Equally many held-out blanks of each number of words, shortest first, and P(n) from training blanks."""
    rows = masked_lm(size, text.vocabulary)
    room = size.length - settings.max_pieces
    held = list(find_blanks(rows.validation_batches(text.test), settings.words, tokenizer, settings.max_pieces, room))
    by_words = [[blank for blank in held if blank.words == count] for count in settings.words]
    chosen = [blanks[i] for blanks in by_words if blanks for i in spaced_indices(len(blanks), settings.each)]
    epoch = islice(rows.batches(text.train, 0, 0), rows.batches_per_epoch(text.train))
    trained = find_blanks(epoch, settings.words, tokenizer, settings.max_pieces, room)
    trained = islice(trained, TRAIN_BLANKS * settings.each * len(settings.words))
    return chosen, Rules(tokenizer, estimate_lengths(list(trained), settings.max_pieces), settings.beam)


def find_blanks(
    batches: Iterable[Batch], words: Sequence[int], tokenizer: Tokenizer, max_pieces: int, room: int
) -> Iterator[Blank]:
    """From each row, one blank for each number of words that fits; always the same ones.

    The words are adjacent, without punctuation. The context has at most `room` tokens, so that a filling of any length
    fits into the window.
    """
    pieces, draw = WordPieces(tokenizer), np.random.default_rng(0)
    begins, inner = (pieces.begins | pieces.bare).numpy(), pieces.inner.numpy()
    for batch in batches:
        for row, size in zip(*unpad(batch), strict=True):
            ids = row[:size].tolist()
            ends = word_ends(begins[ids], inner[ids])
            for count in words:
                runs = [(first, end_of_run(first, count, ends)) for first in ends]
                runs = [(i, j) for i, j in runs if 0 < j - i <= max_pieces and size - (j - i) <= room]
                if runs:
                    i, j = runs[draw.integers(len(runs))]
                    yield Blank(tuple(ids[:i]), tuple(ids[i:j]), tuple(ids[j:]), count)


def word_ends(begins: np.ndarray, inner: np.ndarray) -> dict[int, int]:
    """First position of each word of a row → the position after its last piece."""
    ends: dict[int, int] = {}
    first = -1
    for i, (is_first, is_inner) in enumerate(zip(begins.tolist(), inner.tolist(), strict=True)):
        first = i if is_first else first if is_inner else -1
        if first >= 0:
            ends[first] = i + 1
    return ends


def end_of_run(first: int, count: int, ends: dict[int, int]) -> int:
    """The position after this many adjacent words, or −1."""
    for _ in range(count):
        first = ends.get(first, -1)
    return first


def estimate_lengths(blanks: Sequence[Blank], max_pieces: int) -> tuple[float, ...]:
    """P(n) with add-one smoothing."""
    counts = 1 + np.bincount([len(blank.piece) for blank in blanks], minlength=max_pieces + 1)[1:]
    return tuple((counts / counts.sum()).tolist())


# ------------------------------------------------------------------------------------------------ scoring and search


class Filling(NamedTuple):
    ids: Ids
    log_p: float


class Answer(NamedTuple):
    """What one method says about all blanks; None if it says nothing."""

    fillings: list[Ids] | None
    nats: np.ndarray | None  # (n,) of the truth


Answers = dict[str, Answer]
Beams = list[list[Filling]]  # for each blank, equally many
Scorer = Callable[[Sequence[Blank], Beams], Tensor]  # log p (all rows of the beams, V) of the next piece


@torch.no_grad()
def predict_at(network: Network, rows: Sequence[Sequence[int]], positions: Sequence[int]) -> Tensor:
    """log p (n, V) of the token at a position of each row; for a causal network, of the token after it."""
    results = []
    for part in _batch_rows(rows):
        ids, mask = _pad(rows[part], network.device)
        first = torch.arange(len(ids), device=ids.device) * ids.shape[1]
        places = first + torch.tensor(positions[part], device=ids.device)
        if isinstance(network, Infilling):
            results.append(network.fill(Inputs(ids, mask), places).float())
        else:
            h = network.hidden(Inputs(ids), None)[0][-1]
            results.append(network.readout.log_probs(h.flatten(0, 1)[places]).float())
    return torch.cat(results)


@torch.no_grad()
def score_from(network: Network, rows: Sequence[Sequence[int]], first: Sequence[int]) -> np.ndarray:
    """log p (n,) of each row from a position on, given what precedes it, for a causal network."""
    results = []
    for part in _batch_rows(rows):
        ids, mask = _pad(rows[part], network.device)
        h = network.hidden(Inputs(ids), None)[0][-1][:, :-1]
        columns = torch.arange(1, ids.shape[1], device=ids.device)
        scored = mask[:, 1:] & (columns >= torch.tensor(first[part], device=ids.device).unsqueeze(1))
        nats = network.readout.nll(h[scored], ids[:, 1:][scored]).double()
        zeros = torch.zeros(len(ids), dtype=torch.float64, device=ids.device)
        results.append(zeros.index_add(0, scored.nonzero()[:, 0], -nats))
    return torch.cat(results).cpu().numpy()


def _batch_rows(rows: Sequence[Sequence[int]]) -> Iterator[slice]:
    return slices(len(rows), max(1, BATCH_TOKENS // max(map(len, rows), default=1)))


def _pad(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids (B, T) and token mask (B, T)."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = [id for row in rows for id in row]
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def beam_search(blanks: Sequence[Blank], scorer: Scorer, steps: int, rules: Rules) -> Iterator[Beams]:
    """A beam per blank: its most likely beginnings of one piece, of two, …, best first."""
    inner = WordPieces(rules.tokenizer).inner
    banned = torch.zeros(len(rules.tokenizer), dtype=torch.bool)
    banned[list(rules.tokenizer.special.values())] = True
    beams: Beams = [[Filling((), 0.0)] for _ in blanks]
    for step in range(steps):
        log_p = scorer(blanks, beams).cpu().double()
        log_p[:, banned if step else banned | inner] = -math.inf  # a blank begins with a new word
        before = torch.tensor([[filling.log_p for filling in beam] for beam in beams], dtype=torch.float64)  # (B, J)
        size = log_p.shape[1]
        total = (log_p.view(*before.shape, size) + before.unsqueeze(-1)).flatten(1)
        best = total.topk(min(rules.beam, total.shape[1]))
        beams = [
            [Filling((*beam[i // size].ids, i % size), value) for value, i in zip(values, indices, strict=True)]
            for beam, values, indices in zip(beams, best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        yield beams


def add_length_prior(fillings: Sequence[Filling], rules: Rules) -> list[Filling]:
    return [Filling(filling.ids, filling.log_p + rules.log_share(filling.ids)) for filling in fillings]


def most_likely(fillings: Sequence[Filling]) -> Ids:
    return max(fillings, key=lambda filling: filling.log_p).ids


def log_shares(blanks: Sequence[Blank], rules: Rules) -> np.ndarray:
    return np.array([rules.log_share(blank.piece) for blank in blanks])


# ------------------------------------------------------------------------------------------------ filling


def fill_with_glm(network: GLM, blanks: Sequence[Blank], rules: Rules) -> Answers:
    marks = network.pieces
    # Texts begin with [CLS], which is already there; and no blank continues the word before it
    texts = [TextWithBlanks((*b.left, marks.masks[0], *b.right), (len(b.left),), (True,)) for b in blanks]
    banned, inner = unwritable_ids(rules.tokenizer, marks.end), WordPieces(rules.tokenizer).inner
    best = fill_blanks(network, texts, inner, Beam(rules.beam), rules.max_pieces + 1, forbidden=banned)
    fillings = [tuple((split_pieces(network, hypotheses[0].ids) or [[]])[0]) for hypotheses in best]
    nats = np.array(filling_nats(network, texts, [[blank.piece] for blank in blanks]))
    return {GLM_NAME: Answer(fillings, nats)}


def fill_with_gpt2(network: GPT2, blanks: Sequence[Blank], rules: Rules) -> Answers:
    def scorer(part: Sequence[Blank], beams: Beams) -> Tensor:
        rows = [[*blank.left, *filling.ids] for blank, beam in zip(part, beams, strict=True) for filling in beam]
        return predict_at(network, rows, [len(row) - 1 for row in rows])

    given: list[Ids] = []
    candidates: list[list[Filling]] = []  # of each blank
    for where in slices(len(blanks), BATCH_BLANKS):
        part = blanks[where]
        by_length = list(beam_search(part, scorer, rules.max_pieces, rules))
        given += [by_length[len(blank.piece) - 1][i][0].ids for i, blank in enumerate(part)]
        for i in range(len(part)):
            candidates.append(add_length_prior([filling for beams in by_length for filling in beams[i]], rules))
    known = score_from(network, [[*b.left, *b.piece] for b in blanks], [len(b.left) for b in blanks])  # log p (n,)
    unknown = known + log_shares(blanks, rules)
    rescored, nats = [], []
    for blank, own, log_p in zip(blanks, candidates, unknown.tolist(), strict=True):
        rows = [blank.fill(filling.ids) for filling in own]
        rest = score_from(network, rows, [len(blank.left) + len(filling.ids) for filling in own])
        best, cost = rescore(own, rest, blank, log_p)
        rescored.append(best)
        nats.append(cost)
    return {
        GPT: Answer([most_likely(own) for own in candidates], -unknown),
        GPT_GIVEN: Answer(given, -known),
        RESCORED: Answer(rescored, np.array(nats)),
    }


def rescore(candidates: Sequence[Filling], rest: np.ndarray, blank: Blank, log_p: float) -> tuple[Ids, float]:
    """The best candidate by what follows it, and the nats of the truth.

    Candidates share the probability they have together; a truth that is not among them keeps its own `log_p`.
    """
    own = np.array([filling.log_p for filling in candidates])
    joint = own + rest
    shared = joint - np.logaddexp.reduce(joint) + np.logaddexp.reduce(own)
    true = [i for i, filling in enumerate(candidates) if filling.ids == blank.piece]
    return candidates[int(joint.argmax())].ids, -float(shared[true[0]] if true else log_p)


def fill_with_bert(network: BERT, blanks: Sequence[Blank], rules: Rules) -> Answers:
    best: list[list[Filling]] = [[] for _ in blanks]  # for each blank, the best of each length
    for n in range(1, rules.max_pieces + 1):
        for where in slices(len(blanks), BATCH_BLANKS):
            beams = list(beam_search(blanks[where], masked_scorer(network, n), n, rules))[-1]
            for own, beam in zip(best[where], beams, strict=True):
                own.append(beam[0])
    by_pseudo = [
        own[int(pseudo_likelihood(network, [(blank, filling.ids) for filling in own], context=1)[1].argmax())].ids
        for blank, own in zip(blanks, best, strict=True)
    ]
    one_by_one, at_once = (score_truth(network, blanks, together) for together in (False, True))
    assert one_by_one.nats is not None
    return {
        BERT_NAME: Answer(
            [most_likely(add_length_prior(own, rules)) for own in best], one_by_one.nats - log_shares(blanks, rules)
        ),
        BY_PSEUDO: Answer(by_pseudo, None),
        BERT_GIVEN: Answer([own[len(b.piece) - 1].ids for b, own in zip(blanks, best, strict=True)], one_by_one.nats),
        AT_ONCE: at_once,
        PSEUDO: Answer(None, -pseudo_likelihood(network, [(blank, blank.piece) for blank in blanks], context=0)[0]),
    }


def masked_scorer(network: Network, n: int) -> Scorer:
    """n pieces are missing; the first of them are filled in, the rest are masked."""
    mask = Marks.of(network.vocabulary).mask

    def scorer(part: Sequence[Blank], beams: Beams) -> Tensor:
        pairs = [(blank, filling.ids) for blank, beam in zip(part, beams, strict=True) for filling in beam]
        rows = [blank.fill([*ids, *[mask] * (n - len(ids))]) for blank, ids in pairs]
        return predict_at(network, rows, [len(blank.left) + len(ids) for blank, ids in pairs])

    return scorer


def score_truth(network: Network, blanks: Sequence[Blank], together: bool) -> Answer:
    """BERT with the length given: the most likely token at each position, and nats of the truth.

    Either all pieces are masked together, or one by one with the true ones before filled in.
    """
    mask = Marks.of(network.vocabulary).mask
    rows, positions, ids = [], [], []
    for blank in blanks:
        for k, id in enumerate(blank.piece):
            visible = () if together else blank.piece[:k]
            rows.append(blank.fill([*visible, *[mask] * (len(blank.piece) - len(visible))]))
            positions.append(len(blank.left) + k)
            ids.append(id)
    log_p = predict_at(network, rows, positions).cpu()
    nats = -log_p.gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1).double().numpy()
    bounds = np.cumsum([0, *(len(blank.piece) for blank in blanks)])
    best = log_p.argmax(1).tolist()
    fillings = [tuple(best[i:j]) for i, j in pairwise(bounds.tolist())]
    return Answer(fillings if together else None, np.add.reduceat(nats, bounds[:-1]))


def pseudo_likelihood(
    network: Network, fillings: Sequence[tuple[Blank, Ids]], context: int
) -> tuple[np.ndarray, np.ndarray]:
    """log p of each filling and this many context tokens on either side, masked one by one: sum (n,) and mean (n,)."""
    mask = Marks.of(network.vocabulary).mask
    rows, positions, ids, owner = [], [], [], []
    for i, (blank, filling) in enumerate(fillings):
        row = blank.fill(filling)
        for place in range(len(blank.left) - context, len(blank.left) + len(filling) + context):
            rows.append([*row[:place], mask, *row[place + 1 :]])
            positions.append(place)
            ids.append(row[place])
            owner.append(i)
    log_p = (
        predict_at(network, rows, positions).cpu().gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1).double().numpy()
    )
    total = np.bincount(owner, log_p, len(fillings))
    return total, total / np.bincount(owner, minlength=len(fillings))


# ------------------------------------------------------------------------------------------------ measure

TRAINERS: dict[str, Any] = {
    GLM_NAME: (train_glm, fill_with_glm),
    BERT_NAME: (train_bert, fill_with_bert),
    GPT: (train_gpt2, fill_with_gpt2),
}


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus, seeds = choose_text(settings.data), settings.seeds
    is_large = choose_device().type == "cuda" and not settings.quick
    size, blank_settings = (QUICK, QUICK_BLANKS) if settings.quick else (FULL, BLANKS)
    if is_large:
        size, blank_settings = LARGE, LARGE_BLANKS
    text, tokenizer = encode_corpus(corpus, LARGE_PIECES if is_large else PIECES)
    blanks, rules = choose_blanks(text, tokenizer, size, blank_settings)
    counts = {count: sum(blank.words == count for blank in blanks) for count in blank_settings.words}
    require(min(counts.values()), MIN_BLANKS, "held-out blanks of every length", corpus)
    jobs: dict[Any, Any] = {
        (name, seed): (run_seed, (name, seed, size, text, blanks, rules)) for seed in seeds for name in TRAINERS
    }
    runs = run_parallel(jobs, progress, uses_gpu=True)
    values: Values = {}
    for name in TRAINERS:
        for method, cells in runs[name, seeds[0]]["methods"].items():
            for kind in (ACCURACY, NATS):
                if cells[kind] is not None:
                    values[method, kind] = np.stack([runs[name, seed]["methods"][method][kind] for seed in seeds])
    groups = group_by_words(blanks)
    return {
        ACCURACY: _levels("Blanks filled with the true words, %: mean and 95 % interval", ACCURACY, values, groups),
        NATS: _levels("Nats per true word, mean and 95 % interval", NATS, values, groups),
        "differences": _differences(values, groups),
        "training": _training(runs, seeds),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(text.train):,} training tokens, "
        f"{', '.join(map(str, counts.values()))} held-out blanks of {', '.join(map(str, counts))} words; WordPiece of "
        f"{len(tokenizer):,}",
        "networks": f"GLM, BERT (pre-norm, like the others) and GPT-2, {size.describe_network()}",
        "training": f"{size.describe_training()}; GLM fewer steps, for the same number of tokens read; "
        f"{stats.format_percent(MASKED_SHARE)} masked or taken out, GLM's spans of {SPAN_LENGTH:g} tokens on average",
        "filling": f"beams of {rules.beam}; fillings of at most {rules.max_pieces} pieces",
        "intervals": stats.INTERVALS,
    }


def choose_text(data: str) -> Corpus:
    """The named text, or the targets of the named pairs; default: the captions if installed, else the built-in text."""
    if data:
        return open_parallel(data) if is_parallel(data) else open_text(data)
    try:
        return open_parallel(CAPTIONS)
    except NextwordError:  # not on this machine
        return open_text("")


def run_seed(name: str, seed: int, size: Size, text: Text, blanks: Sequence[Blank], rules: Rules) -> dict[str, Any]:
    """What one network has read, and for each method of filling: hits (n,) in % and nats per word (n,)."""
    train_network, fill = TRAINERS[name]
    start = time.process_time()
    network, reading = train_network(seed, size, text)
    trained = time.process_time() - start
    answers: Answers = fill(network, blanks, rules)
    words = np.array([blank.words for blank in blanks])
    methods = {}
    for method, (fillings, nats) in answers.items():
        hits = None
        if fillings is not None:
            hits = np.array([100.0 * rules.is_right(f, blank) for f, blank in zip(fillings, blanks, strict=True)])
        methods[method] = {ACCURACY: hits, NATS: None if nats is None else nats / words}
    parameters = network.num_parameters()
    filled = time.process_time() - start - trained
    return {"methods": methods, "training": (parameters, *reading, trained, filled)}


Values = dict[tuple[str, str], np.ndarray]  # (method, measure) → (seeds, blanks)


def group_by_words(blanks: Sequence[Blank]) -> dict[str, np.ndarray]:
    """Masks (n,) of the blanks with each number of words, and with several."""
    words = np.array([blank.words for blank in blanks])
    return {**{str(count): words == count for count in sorted(set(words.tolist()))}, SEVERAL: words > 1}


def _levels(title: str, kind: str, values: Values, groups: dict[str, np.ndarray]) -> Table:
    rows = [
        (method, *(stats.mean_interval(values[method, kind][:, group]) for group in groups.values()))
        for method in (*METHODS, PSEUDO)
        if (method, kind) in values
    ]
    return Table(title, ("method", *groups), rows)


def _differences(values: Values, groups: dict[str, np.ndarray]) -> Table:
    rows = []
    for method, other in (*((GLM_NAME, other) for other in METHODS if other != GLM_NAME), (BERT_GIVEN, AT_ONCE)):
        for words, group in groups.items():
            cells: list[Cell] = []
            for kind, sign in ((ACCURACY, 1.0), (NATS, -1.0)):
                this, that = values.get((method, kind)), values.get((other, kind))
                if this is None or that is None:
                    cells.append(None)
                else:
                    cells.append(stats.mean_interval(sign * (this - that)[:, group]))
            rows.append((method, other, words, *cells))
    columns = ("method", "compared with", "words", ACCURACY, NATS)
    title = "Advantage in points and in nats (negative: worse), mean and 95 % interval"
    return Table(title, columns, rows, detailed=True)


def _training(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    rows = [
        (
            name,
            *(stats.median_and_range(part) for part in zip(*(runs[name, s]["training"] for s in seeds), strict=True)),
        )
        for name in TRAINERS
    ]
    columns = ("network", "parameters", "steps", "tokens read", "tokens predicted", "training, s", "filling, s")
    return Table("Training", columns, rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    # BERT without a given length has two rankings; the better one counts
    bert = max((BERT_NAME, BY_PSEUDO), key=lambda method: tables[ACCURACY].cell(SEVERAL, method=method)[0])
    side_results = (
        (ACCURACY, GLM_NAME, BERT_GIVEN, "GLM is right more often than BERT with a given length."),
        (NATS, GLM_NAME, BERT_GIVEN, "GLM gives more probability than BERT with a given length."),
        (NATS, GLM_NAME, AT_ONCE, "GLM gives more than BERT predicting all pieces at once."),
        (NATS, BERT_GIVEN, AT_ONCE, "BERT gives more piece by piece than all at once."),
        (ACCURACY, GLM_NAME, GPT_GIVEN, "GLM is right more often than GPT-2 with a given length."),
        (ACCURACY, GLM_NAME, RESCORED, "GLM is right more often than GPT-2 with rescoring."),
        (NATS, GLM_NAME, RESCORED, "GLM gives more probability than GPT-2 with rescoring."),
    )
    return [
        _compare(tables, ACCURACY, GLM_NAME, bert, "Without a given length, GLM is right more often than BERT."),
        _compare(tables, ACCURACY, GLM_NAME, GPT, "Without a given length, GLM is right more often than GPT-2."),
        _compare(tables, NATS, GLM_NAME, BERT_NAME, "GLM gives the true words more probability than BERT."),
        _compare(tables, NATS, GLM_NAME, GPT, "GLM gives the true words more probability than GPT-2."),
        *(_compare(tables, *comparison, decides=False) for comparison in side_results),
        _compare(tables, ACCURACY, GLM_NAME, bert, "For single words, GLM is right more often than BERT.", "1", False),
    ]


def _compare(
    tables: Tables, kind: str, method: str, other: str, statement: str, words: str = SEVERAL, decides: bool = True
) -> Part:
    cell = tables["differences"].cell(kind, method=method, compared_with=other, words=words)
    this, that = (tables[kind].cell(words, method=name)[0] for name in (method, other))
    unit, digits = ("points", 1) if kind == ACCURACY else ("nats", 2)
    blanks = "blanks of several words" if words == SEVERAL else "blanks of one word"
    if kind == ACCURACY:
        evidence = f"“{method}” fills {this:.1f} % of the {blanks} right, “{other}” {that:.1f} %"
    else:
        evidence = f"In {blanks} a true word costs “{method}” {this:.2f} nats, “{other}” {that:.2f}"
    evidence += f": {stats.format_gain(cell[0], unit, digits)}."
    return stats.judge_interval(statement, cell, evidence, f"{unit} better", digits, decides=decides)


# ------------------------------------------------------------------------------------------------ draw

STYLES: dict[str, tuple[str, str]] = {  # dashed: length given
    GLM_NAME: (plot.BLUE, "o-"),
    BERT_NAME: (plot.VERMILION, "o-"),
    BY_PSEUDO: (plot.ORANGE, "o-"),
    GPT: (plot.GREEN, "o-"),
    RESCORED: (plot.PURPLE, "o-"),
    BERT_GIVEN: (plot.VERMILION, "o--"),
    AT_ONCE: (plot.SKY, "o--"),
    GPT_GIVEN: (plot.GREEN, "o--"),
}


def draw(tables: Tables, figure: plot.Figure) -> None:
    accuracy, nats = plot.panels(figure, 13.5, 4.8, 2)
    _draw_panel(tables[ACCURACY], accuracy, "Filled with the true words", "% of the blanks")
    _draw_panel(tables[NATS], nats, "Cost of the true words", "nats per word (lower is better)")


def _draw_panel(table: Table, axes: plot.Axes, title: str, label: str) -> None:
    words = [column for column in table.columns[1:] if column != SEVERAL]
    methods = [method for method in table.column("method") if method in STYLES]
    labels = []
    for i, method in enumerate(methods):
        color, style = STYLES[method]
        shift = 0.03 * (i - (len(methods) - 1) / 2)  # keeps the intervals apart
        cells = [table.cell(column, method=method) for column in words]
        x = [position + shift for position in range(len(words))]
        labels.append((plot.line(axes, x, cells, color, style, bars=True, width=1.2, size=4.5), method, color))
    axes.set_xticks(range(len(words)), words)
    axes.set(xlabel="missing words", ylabel=label, title=title)
    plot.label_lines(axes, labels)
