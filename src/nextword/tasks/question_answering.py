"""Where an answer begins and where it ends in a passage, over any network (Devlin et al. 2019, sections 4.2 and 4.3).

    frames ──network.encode──▶ h (B, T, D) ──linear──▶ (B, T, 2) ──places of the passage, and "none"──▶ (B, W, 2)

    P(begin = i) = softmax(S · h_i)_i        P(end = j) = softmax(E · h_j)_j        over the places of the window
    score of i … j = S · h_i + E · h_j       i ≤ j < i + longest                    score of none = S · h₀ + E · h₀

The places are the tokens of the passage and the one that stands for "no answer" (batching/questions.py).

Questions and passages into frames of a network: tokenized, cut into windows, and the answer's place in each.

    Denver beat Carolina .      Denver be ##at Carolina .      characters of each token 0–6 7–9 9–11 12–20 21–22
    answer: characters 7–11                 begin 2, end 3      places from 1 on; 0 is "not in this window"

Where a token speaks for the whole ([CLS], or the last) it stands for "no answer" too; in a network whose frames have no
token of their own that is the question's last.

Questions with their passages, framed: a passage that is too long is read in windows that overlap.

    [CLS] who won ? [SEP] p₀ … p₂₉₉ [SEP]          one window of a question
    [CLS] who won ? [SEP] p₁₂₈ … p₄₂₇ [SEP]        the next, `stride` tokens on

An answer begins at one place of a window and ends at one. Place 0 is none: the answer is not in this window. Place 1 is
the window's first token of the passage. A batch has the flat position of every place (B, W), −1 beyond the last.

Where the answer to a question begins and ends in its passage: cross-entropy of both, halved.

    J = 1/B Σ_windows ½ (−log p(begin | window) − log p(end | window))

The network is one with a head of spans (nextword.tasks.question_answering). A window that does not hold the answer has to say so.

From the best spans of windows to the answer of each question: the best over all its windows, as text.

    score of none = the least over the windows: one of them that has the answer is enough
    an answer is given unless none is better than the best span by more than the threshold (Devlin et al. 2019, 4.3)

The text is cut out of the passage as it stands there. Spans that give the same text count once, with their best score.

A run that finds answers in passages, on strings.

    reader = nextword.load("runs/squad")
    reader.predict([("Who won?", "Denver beat Carolina.")])[0].text        # "Denver"; "" where there is none
    reader.predict(questions)                                               # of corpora/questions.py, by their ids

A passage of any length is read, in windows. Where questions may have no answer, "none" is said if it is better than the
best span by more than `threshold`, which was chosen on dev (Devlin et al. 2019, section 4.3).

Questions ready to be learnt from: SQuAD by name, its official JSON, or a user's own table; and what to know of them.

question,context,answer                       columns by these names, or: --text passage --second query --label reply
Who won?,Denver beat Carolina.,Denver         an empty answer: there is none. JSON lines may have a list `answers`

A table may have `id`, which counts if it is another in every row, and `answer_start`, the character where the answer
begins; without it, the first place is taken where the answer stands as whole words. Without a dev split a tenth of the
passages is held out, with all their questions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.batching.examples import Bucketed, Unseen, gathered
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Tokenizer
from nextword.core.types import Batch, Encoding, FramedText, Loss, State, require_list, texts_of
from nextword.data.catalog import absent, catalog, find
from nextword.data.conll import files_by_split
from nextword.data.files import FROM_STDIN, STDIN, chunks, lines_of, plain_name
from nextword.data.squad import Question, Questions, answered, read_squad
from nextword.data.squad import gathered as collect_questions
from nextword.data.tables import DELIMITERS, TABLE_JSON_SUFFIXES, Columns, Rows, Table, found_in, held_out, read_table
from nextword.lm.embedding import TOGETHER
from nextword.metrics.squad import ANSWER_METRICS, ANSWER_METRICS_2_0, find_best_threshold, score_answers
from nextword.models.framing import SPREAD
from nextword.objectives.base import Objective
from nextword.recipe import Recipe
from nextword.run_folder import RunFolder
from nextword.tasks.base import ModelWithHead
from nextword.tasks.classification import Classifier, open_headed
from nextword.tasks.examples import Mold, blank, check_texts, room_beside
from nextword.tasks.settings import settings_of
from nextword.training.device import to_device

BEST = 20  # spans of a window that are looked at


@dataclass(frozen=True)
class SpanConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    longest: int = 30  # tokens of an answer
    dropout: float = 0.1
    features: str = ""  # the layer that is read; "": the last
    frozen: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.longest, bool) or not isinstance(self.longest, int) or self.longest < 1:
            raise NextwordError(f"[task] longest = {self.longest!r} is how many tokens an answer may have: at least 1.")
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise NextwordError(f"[task] dropout = {self.dropout!r} is the share dropped before the head, below 1.")


class Spanning(ModelWithHead):
    def __init__(self, config: SpanConfig, network: Any) -> None:
        super().__init__(config, network)
        self.out = nn.Linear(network.widths[self.at], 2)
        nn.init.normal_(self.out.weight, std=SPREAD)
        nn.init.zeros_(self.out.bias)

    def forward(self, batch: Batch) -> Tensor:
        """(B, W, 2) in 32 bits; −∞ beyond a window's last place."""
        h = self.read_layer(batch.inputs)[..., : self.encoder.widths[self.at]]
        assert batch.target_positions is not None
        h = F.dropout(h, self.config.dropout, self.training)
        with torch.autocast(h.device.type, enabled=False):
            said = self.out(h.to(self.out.weight.dtype)).reshape(-1, 2)
        return F.embedding(batch.target_positions.clamp(min=0), said).masked_fill((batch.target_positions < 0).unsqueeze(-1), -torch.inf)

    def nats(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(B,): the mean of −log p of where the answer begins and of where it ends; targets (B, 2)."""
        return F.cross_entropy(logits, targets, reduction="none").mean(-1)

    def best(self, logits: Tensor) -> Tensor:
        return best_spans(logits, self.config.longest)


def best_spans(logits: Tensor, longest: int, n: int = BEST) -> Tensor:
    """(B, 1 + 3n): the score of "none", and n times begin, end and score of a span, the best first.

    All spans are looked at, not only those between a few good ends. Where there are fewer, scores are −∞.
    """
    begins, ends = logits[:, 1:, 0], logits[:, 1:, 1]  # (B, P)
    none = logits[:, 0].sum(-1, keepdim=True)
    places = begins.shape[1]
    if not places:
        nothing = torch.full((len(logits), 3 * n), -torch.inf, device=logits.device, dtype=logits.dtype)
        return torch.cat((none, nothing), 1)
    longest = min(longest, places)
    ahead = F.pad(ends, (0, longest - 1), value=-torch.inf).unfold(1, longest, 1)  # (B, P, longest)
    scores = (begins.unsqueeze(-1) + ahead).flatten(1)
    found, at = scores.topk(min(n, scores.shape[1]), 1)
    begin = at // longest + 1
    spans = torch.stack((begin.to(found.dtype), (begin + at % longest).to(found.dtype), found), -1).flatten(1)
    return torch.cat((none, F.pad(spans, (0, 3 * n - spans.shape[1]), value=-torch.inf)), 1)


@dataclass(frozen=True)
class Asked:
    """Windows of questions; an example is a window."""

    ids: np.ndarray  # (N,) of all windows
    starts: np.ndarray  # (windows + 1,) where each begins
    pooled_position: np.ndarray  # (windows,) the token that stands for "no answer"
    passage: np.ndarray  # (windows, 2) where the passage lies in each
    targets: np.ndarray  # (windows, 2) places where the answer begins and ends; 0, 0: none
    whose: np.ndarray  # (windows,) the question, in `questions`
    begins: np.ndarray  # (windows,) where the characters of the window's first token stand in `characters`
    characters: np.ndarray = field(repr=False)  # (M, 2) the characters that each token of a passage stands for
    questions: tuple[Question, ...] = field(default=(), repr=False)
    segments: np.ndarray | None = None  # (N,)
    packs: bool = False
    metrics: tuple[str, ...] = ()
    some_without: bool = False  # some questions of the task have no answer
    threshold: float = 0.0  # how much better none has to be than the best answer
    unseen: Unseen | None = field(default=None, repr=False)
    bytes: int = field(default=0, repr=False)

    each = 1  # frame an example

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def units(self) -> int:
        """Questions."""
        return len(self.questions)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def labels(self) -> np.ndarray:
        return self.targets

    def first(self, tokens: int | None) -> Asked:
        """The windows of the first so many tokens, at least one; None: all."""
        if tokens is None or tokens >= len(self.ids):
            return self
        return self.take(np.arange(max(1, int(np.searchsorted(self.starts, tokens, side="right")) - 1)))

    def take(self, chosen: np.ndarray) -> Asked:
        """These windows, in this order; questions of which none is left are left out."""
        tokens, starts = gathered(self.starts, chosen)
        kept, whose = np.unique(self.whose[chosen], return_inverse=True)
        return replace(
            self,
            ids=self.ids[tokens],
            starts=starts,
            pooled_position=self.pooled_position[chosen],
            passage=self.passage[chosen],
            targets=self.targets[chosen],
            whose=whose.reshape(-1),
            begins=self.begins[chosen],
            questions=tuple(self.questions[i] for i in kept.tolist()),
            segments=None if self.segments is None else self.segments[tokens],
        )

    def take_units(self, chosen: np.ndarray) -> Asked:
        """All windows of these questions."""
        return self.take(np.flatnonzero(np.isin(self.whose, chosen)))

    def judged_by(self, metrics: Sequence[str], some_without: bool, threshold: float) -> Asked:
        return replace(self, metrics=tuple(metrics), some_without=some_without, threshold=float(threshold))

    def text(self, window: int, begin: int, end: int) -> str:
        """What stands in the passage from one place of a window to another, without spaces around it."""
        at = self.begins[window] - 1
        question = self.questions[self.whose[window]]
        return question.context[self.characters[at + begin, 0] : self.characters[at + end, 1]].strip()


@dataclass(frozen=True)
class Passages(Bucketed):
    """`rows` windows a batch, of at most `length` tokens; the next begins `stride` tokens of the passage further on.

    A question is cut after `question` tokens, and never takes more than half of a window. Where windows are short, the
    stride is half of what they hold of the passage.
    """

    length: int = 384
    stride: int = 128
    question: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stride", "question"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise NextwordError(f"batches: {name} = {value!r} must be a whole number of at least 1.")

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        batch = super().batch(text, chosen, epoch)
        assert batch.target_positions is not None
        none = batch.target_positions.numpy()  # flat
        begins = none - text.pooled_position[chosen] + text.passage[chosen, 0]
        sizes = text.passage[chosen, 1] - text.passage[chosen, 0]
        places = np.arange(int(sizes.max()))
        flat = np.where(places < sizes[:, None], begins[:, None] + places, -1)
        at = torch.from_numpy(np.concatenate((none[:, None], flat), 1))
        return Batch(batch.inputs, batch.targets, reset_state=True, epoch=epoch, target_positions=at, num_targets=len(chosen))


class _Text(NamedTuple):
    ids: np.ndarray
    characters: np.ndarray  # (N, 2)
    at: int  # where those stand among the characters of all passages


class Left(NamedTuple):
    """What could not be read as it stands."""

    cut: int  # questions that were cut
    windows: int  # of passages that did not fit into one
    lost: int  # questions whose answer is in no token of their passage: nothing can be learnt of them


def asked(
    network: Any, tokenizer: Tokenizer, questions: Sequence[Question], layout: Passages, learn: bool = False
) -> tuple[Asked, Left]:
    """Windows of all questions. To `learn` from, those are left out whose answer is nowhere."""
    check_texts(network)
    if getattr(network, "is_backward", False):
        raise Unsupported(
            "[model] backward reads texts from their end, and an answer is found by where it begins and ends: no head "
            "of answers goes over it. Transfer a run that reads from left to right, or one that sees both sides."
        )
    unseen = Unseen(network, tokenizer)
    passages = _passages(tokenizer, unseen, questions)
    encoded = tokenizer.encode_batch([one.question for one in questions])
    room = room_beside(network, len(network.frame(blank(0, 0), blank(1, 0)).ids), 2, layout.length)
    molds: dict[tuple[int, int], tuple[Mold, FramedText]] = {}
    framed: list[FramedText] = []
    rows: list[tuple[int, ...]] = []  # speaks, passage, targets, whose, begins
    kept: list[Question] = []
    cut = windows = lost = 0
    for one, encoding in zip(questions, encoded, strict=True):
        text = passages[one.context]
        place = _tokens(one, text.characters)
        if one.answers and place is None:
            lost += 1
            if learn:
                continue
        ids = unseen.ids(one.question, encoding)
        most = layout.question if room is None else max(1, min(layout.question, room // 2))
        cut += len(ids) > most
        ids = ids[:most]
        spans = list(_windows(len(text.ids), room, len(ids), layout.stride))
        windows += len(spans) > 1
        for begin, end in spans:
            sizes = len(ids), end - begin
            if sizes not in molds:
                frame = network.frame(*(blank(i, n) for i, n in enumerate(sizes)))
                molds[sizes] = Mold(frame, 2), frame
            mold, frame = molds[sizes]
            framed.append(mold.filled((ids, text.ids[begin:end]), sizes))
            rows.append((none_at(frame), *frame.text_spans[1], *_target(place, begin, end), len(kept), text.at + begin))
        kept.append(one)
    table = np.array(rows, np.int64).reshape(-1, 7)
    segments = [frame.segments for frame in framed if frame.segments is not None]
    found = Asked(
        ids=np.concatenate([frame.ids for frame in framed]) if framed else np.zeros(0, np.int64),
        starts=np.concatenate(([0], np.cumsum([len(frame.ids) for frame in framed]))).astype(np.int64),
        pooled_position=table[:, 0],
        passage=table[:, 1:3],
        targets=table[:, 3:5],
        whose=table[:, 5],
        begins=table[:, 6],
        characters=np.concatenate([np.zeros((0, 2), np.int64), *(text.characters for text in passages.values())]),
        questions=tuple(kept),
        segments=np.concatenate(segments) if segments else None,
        packs=not isinstance(network, Autoregressive),
        unseen=unseen if unseen.words else None,
    )
    return found, Left(cut, windows, lost)


def none_at(frame: FramedText) -> int:
    """The token that stands for "no answer": the one that speaks, unless it is of the passage."""
    (begin, end), passage = frame.text_spans
    if passage[0] <= frame.pooled_position < passage[1] and end > begin:
        return end - 1
    return frame.pooled_position


def _passages(tokenizer: Tokenizer, unseen: Unseen, questions: Sequence[Question]) -> dict[str, _Text]:
    """Every passage once, however many questions ask of it."""
    contexts = list(dict.fromkeys(one.context for one in questions))
    found: dict[str, _Text] = {}
    at = 0
    for context, encoding in zip(contexts, tokenizer.encode_batch(contexts), strict=True):
        found[context] = _Text(unseen.ids(context, encoding), characters_of(context, encoding), at)
        at += len(encoding)
    return found


def characters_of(text: str, encoding: Encoding) -> np.ndarray:
    """(N, 2): spans of bytes as spans of characters; a character of which a token has a part belongs to it."""
    raw = np.frombuffer(text.encode(), np.uint8)
    which = np.append(np.cumsum((raw & 0xC0) != 0x80) - 1, len(text))  # the character of each byte
    begin, end = encoding.spans[:, 0], encoding.spans[:, 1]
    first = which[begin]
    last = np.where(end > begin, which[np.maximum(end, 1) - 1] + 1, first)
    return np.stack((first, last), 1)


def _tokens(question: Question, characters: np.ndarray) -> tuple[int, int] | None:
    """The first and the last token of the answer in the passage."""
    if question.place is None:
        return None
    begin, end = question.place
    first = int(np.searchsorted(characters[:, 1], begin, side="right"))
    last = int(np.searchsorted(characters[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None


def _windows(tokens: int, room: int | None, question: int, stride: int) -> Iterator[tuple[int, int]]:
    """Where each window of a passage begins and ends."""
    width = tokens if room is None else room - question
    step = min(stride, max(1, width // 2))
    begin = 0
    while begin + width < tokens:
        yield begin, begin + width
        begin += step
    yield begin, tokens


def _target(place: tuple[int, int] | None, begin: int, end: int) -> tuple[int, int]:
    if place is None or place[0] < begin or place[1] >= end:
        return 0, 0
    return place[0] - begin + 1, place[1] - begin + 1


@dataclass(frozen=True)
class Answer:
    """What is said of one question."""

    id: str
    text: str  # "": it has no answer
    best: str  # the best span, whether or not it is given
    probability: float  # of the text, among the best spans and none
    none: float  # the probability that there is no answer, likewise
    margin: float  # score of none − score of the best span
    others: tuple[tuple[str, float], ...] = ()  # the best texts with their probabilities, `best` first


def answers(text: Asked, said: np.ndarray, n: int = 5) -> list[Answer]:
    """Of every question, of what the head said of its windows (windows, 1 + 3k) in their order."""
    spans: list[dict[str, float]] = [{} for _ in text.questions]
    none = np.full(len(text.questions), np.inf)
    for window, row in enumerate(said):
        question = int(text.whose[window])
        none[question] = min(none[question], row[0])
        for begin, end, score in row[1:].reshape(-1, 3):
            if not math.isfinite(score):
                break
            found = text.text(window, int(begin), int(end))
            if found and score > spans[question].get(found, -math.inf):
                spans[question][found] = float(score)
    return [
        _answer(one.id, some, float(zero), text.some_without, text.threshold, n)
        for one, some, zero in zip(text.questions, spans, none, strict=True)
    ]


def _answer(id: str, spans: dict[str, float], none: float, may_be_none: bool, threshold: float, n: int) -> Answer:
    if not spans:  # the passage has no text in it
        return Answer(id, "", "", 1.0, 1.0, math.inf)
    ranked = sorted(spans.items(), key=lambda one: -one[1])
    scores = np.array([score for _, score in ranked] + ([none] if may_be_none else []))
    odds = np.exp(scores - scores.max())
    shares = (odds / odds.sum()).tolist()
    margin = none - ranked[0][1]
    empty = may_be_none and margin > threshold
    nothing = shares[-1] if may_be_none else 0.0
    others = tuple((text, share) for (text, _), share in zip(ranked[:n], shares, strict=False))
    given = "" if empty else ranked[0][0]
    return Answer(id, given, ranked[0][0], nothing if empty else shares[0], nothing, margin, others)


def measured_answers(text: Asked, found: Sequence[Answer]) -> dict[str, float]:
    """The metrics that the questions ask for."""
    golds = [one.answers or () for one in text.questions]
    return score_answers(text.metrics, [one.text for one in found], golds, text.some_without)


class Span(Objective[Any]):
    is_likelihood = False  # of answers, not of text
    has_metrics = True

    def __init__(self, batches: Mapping[str, Any]) -> None:
        self.layout = layout_of(batches)

    @property
    def length(self) -> int:
        return self.layout.length

    def batches_per_epoch(self, text: Asked) -> int:
        return self.layout.batches_per_epoch(text)

    def batches(self, text: Asked, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step)

    def validation_batches(self, text: Asked) -> Iterator[Batch]:
        return self.layout.validation_batches(text)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        logits = network(batch)
        nats = network.nats(logits, batch.targets).sum()
        said = None if network.training else network.best(logits.detach())
        return Loss(nats / len(batch.targets), nats.detach(), len(batch.targets), outputs=said)

    def metrics(self, text: Asked, said: Tensor) -> dict[str, float]:
        """Of the spans that were said of all windows in the order of `held_out`; the first decides."""
        ordered = np.zeros(said.shape)
        ordered[self.layout.in_order(text)] = said.double().cpu().numpy()
        return measured_answers(text, answers(text, ordered))


def layout_of(batches: Mapping[str, Any]) -> Passages:
    options = dict(batches)
    kind = options.pop("kind", "passages")
    if kind != "passages":
        raise NextwordError(f"The span objective has batches of kind passages; the recipe says '{kind}'.")
    try:
        return Passages(**options)
    except TypeError:
        known = ", ".join(Passages.__dataclass_fields__)
        raise NextwordError(f"Batches of kind 'passages' take {known}; the recipe says {', '.join(options)}.") from None


Progress = Callable[[int, int], None]


def open_answerer(run: RunFolder, device: torch.device, precision: str = "fp32") -> Answerer:
    """Of a run whose files have been checked."""
    headed, tokenizer, settings = open_headed(run, device, precision)
    found = Answerer(headed, tokenizer, settings, 0, str(run.path))
    found.layout = layout_of(run.recipe.phases[-1].batches)
    found.threshold = float(run.manifest.get("result", {}).get("best", {}).get("threshold", settings.threshold))
    return found


class Answerer(Classifier):
    """`predict` questions: pairs of a question and a passage."""

    layout = layout_of({})
    threshold = 0.0

    def __init__(self, headed: Any, tokenizer: Any, settings: Any, length: int = 0, name: str = "") -> None:
        super().__init__(headed, tokenizer, settings, length or self.layout.length, name)

    def predict(  # type: ignore[override]
        self, given: Sequence[Any], progress: Progress | None = None, notes: list[str] | None = None
    ) -> list[Answer]:
        """An answer for each, with its probability among the best spans."""
        text = self.framed([self.question(one, i) for i, one in enumerate(require_list(given))], notes)
        return answers(text, self.spans(text, progress))

    def question(self, one: Any, number: int) -> Question:
        if isinstance(one, Question):
            return one
        parts = texts_of(one)
        if len(parts) != 2 or not all(isinstance(text, str) for text in parts):
            raise NextwordError(
                f"{self.name or 'This run'} answers questions out of passages, and an example is {str(one)[:80]!r}. "
                "Give (question, passage)."
            )
        return Question(str(number), *parts)

    def framed(self, questions: Sequence[Question], notes: list[str] | None = None) -> Asked:
        found, left = asked(self.network, self.tokenizer, questions, self.layout)
        if left.cut and notes is not None:
            notes.append(f"{left.cut:,} of {len(questions):,} questions are cut to fit: of those the beginning is read")
        return found.judged_by(self.settings.metrics, self.settings.unanswered, self.threshold)

    @torch.no_grad()
    def spans(self, text: Asked, progress: Progress | None = None) -> np.ndarray:
        """(windows, 1 + 3 · BEST) the best spans of each window; windows of like length are read together."""
        out = np.zeros((len(text), 1 + 3 * BEST))
        order, done = self.layout.in_order(text), 0
        while done < len(order):
            rows = max(1, TOGETHER // int(text.lengths[order[done]]))
            chosen = order[done : done + rows]
            batch = to_device(self.layout.batch(text, chosen, 0), self.device)
            out[chosen] = self.headed.best(self.headed(batch)).double().cpu().numpy()
            done += len(chosen)
            if progress:
                progress(done, len(order))
        return out

    def measured(self, text: Asked) -> dict[str, float]:
        """The task's metrics on framed questions that have answers."""
        text = replace(text, threshold=self.threshold)
        return measured_answers(text, answers(text, self.spans(text)))

    def chosen_threshold(self, text: Asked) -> dict[str, float]:
        """The threshold that is best for these questions, and the metrics with it; it is used from then on."""
        found = answers(text, self.spans(text))
        golds = [one.answers or () for one in text.questions]
        self.threshold, numbers = find_best_threshold([one.margin for one in found], [one.best for one in found], golds)
        return {"threshold": self.threshold, **numbers}


KIND = "questions"  # of the catalog's entries
OFFICIAL = ("train-v1.1.json", "train-v2.0.json")
CONTEXTS = ("context", "passage", "paragraph", "document", "article", "text", "second")
ASKED = ("question", "query", "text")
ANSWERS = ("answers", "answer", "label", "target")
STARTS = ("answer_start", "start")
IDS = ("id", "qid", "question_id")
PARTS = ("passage", "question", "answer")  # that the columns text, second and label have
NAMED = 3  # ids in a note
Progress = Callable[[str, float, float | None], None]


@dataclass(frozen=True)
class QuestionSet:
    """As transfer/data.py's DataSet, for questions."""

    name: str
    splits: Mapping[str, Questions]
    columns: Columns = field(default_factory=Columns)
    notes: tuple[str, ...] = ()

    kind = frame = "span"
    labels = ()
    scale = (0.0, 1.0)

    @property
    def unanswered(self) -> bool:
        return any(split.some_without for split in self.splits.values() if split.labelled)

    @property
    def metrics(self) -> tuple[str, ...]:
        return ANSWER_METRICS_2_0 if self.unanswered else ANSWER_METRICS

    @property
    def balance(self) -> dict[str, float]:
        """Where some training questions have no answer, the share of either."""
        train = self.splits["train"]
        if not train.some_without:
            return {}
        share = sum(one.answers == () for one in train.all) / len(train)
        return {"with an answer": 1 - share, "without": share}

    @property
    def fingerprint(self) -> str:
        hashed = blake2b(digest_size=16)
        for split in ("train", "dev"):
            for one in self.splits[split].all:
                parts = (one.id, one.question, one.context, *(one.answers or ()), *map(str, one.starts))
                hashed.update("\x1e".join(parts).encode("utf-8", "replace") + b"\x1d")
        return hashed.hexdigest()


def open_questions(name: str, named: Columns = Columns()) -> QuestionSet:
    """A name of the catalog, a folder with train and dev files, or one file."""
    path = Path(name).expanduser()
    entry = find(name)
    notes: list[str] = []
    if entry is not None and entry.kind == KIND and not path.exists():
        folder = entry.place()
        if folder is None:
            raise absent(entry)
        files = {("dev" if split == "valid" else split): found[0] for split, found in entry.locate(folder).items()}
        if "train" in files and files["train"].name not in OFFICIAL:
            notes.append(f"the official training file is not here: {files['train'].name} stands for it")
        title = entry.name
    elif path.is_dir():
        files, title = files_by_split(path), str(path)
    elif path.is_file():
        files, title = {"train": path}, str(path)
    else:
        known = ", ".join(one.name for one in catalog().values() if one.kind == KIND)
        raise NextwordError(
            f"There are no questions at {name}. Expected a JSON of SQuAD, a csv or jsonl with the columns question, "
            f"context and answer, a folder with such train and dev files, or one of {known}."
        )
    if "train" not in files:
        raise NextwordError(f"{name} has no training questions here, only {', '.join(files)}.")
    splits, columns = {}, Columns()
    for split, file in sorted(files.items(), key=lambda one: one[0] != "train"):
        insist = named if split == "train" else Columns()
        splits[split], found, table = read_questions(file, insist=insist, usual=named)
        columns = found if split == "train" else columns
        notes += table.notes if table else ()
    said = [f"{what} '{name}'" for what, name in zip(PARTS, vars(columns).values(), strict=True) if name]
    notes += [f"columns: {', '.join(said)}"] if said else []
    return _checked(QuestionSet(title, splits, columns, tuple(notes)))


# ------------------------------------------------------------------------------------------------ one file


def read_questions(
    path: str | Path, usual: Columns = Columns(), insist: Columns = Columns()
) -> tuple[Questions, Columns, Table | None]:
    """Those of a JSON of SQuAD, or of a table; which of its columns is what; and the table.

    Columns are called as `usual`, where there are such; those that are insisted on have to be there.
    """
    text = "".join(chunks(path))
    if _is_official(Path(plain_name(path)).suffix.lower(), text):
        return read_squad(FROM_STDIN if str(path) == STDIN else path, text), Columns(), None
    table = read_table(path, partial(_asks, usual, insist), lines_of([text]))
    columns = columns_of(table, found_in(table, usual, insist))
    return collect_questions(table.name, _of_table(table, columns)), columns, table


def _asks(usual: Columns, insist: Columns, cells: Sequence[str]) -> bool:
    """Whether these are names of columns with a question and a passage among them."""
    header = Table("", list(cells), [])
    try:
        columns_of(header, found_in(header, usual, insist))
    except NextwordError:
        return False
    return True


def _is_official(suffix: str, text: str) -> bool:
    """By its ending; where that says nothing, as of standard input, by its beginning."""
    if suffix != ".json" and (
        suffix in (*DELIMITERS, *TABLE_JSON_SUFFIXES) or text.lstrip()[:1] != "{" or '"data"' not in text
    ):
        return False
    return not _is_lines(text)


def _is_lines(text: str) -> bool:
    """One object a line, and not one object that is SQuAD's."""
    first = text.lstrip().partition("\n")[0]
    try:
        found = json.loads(first)
    except ValueError:
        return False
    return isinstance(found, dict) and "data" not in found


def columns_of(table: Table, asked: Columns = Columns()) -> Columns:
    """Where the passage is (`text`), the question (`second`) and the answer (`label`, "" if there is none)."""
    named = {name.lower(): name for name in reversed(table.header)}
    for name in (asked.text, asked.second, asked.label):
        if name:
            table.column(name)
    if table.kind == "lines" and len(table.header) == 2 and not (asked.text or asked.second):
        return Columns(*reversed(table.header))  # question, tab, passage
    found = {}
    taken = [asked.text, asked.second, asked.label]
    for role, known, what in (("text", CONTEXTS, "passage"), ("second", ASKED, "question")):
        given = getattr(asked, role)
        found[role] = given or next((named[one] for one in known if one in named and named[one] not in taken), "")
        if not found[role]:
            raise NextwordError(
                f"{table.name}: which column is the {what}? It has {', '.join(table.header[:8])}. Name it with "
                f"--{role}."
            )
        taken.append(found[role])
    label = asked.label or next((named[one] for one in ANSWERS if one in named and named[one] not in taken), "")
    return Columns(found["text"], found["second"], label)


def _of_table(table: Table, columns: Columns) -> Iterator[tuple[Question, bool]]:
    named = {name.lower(): name for name in reversed(table.header)}
    contexts, questions = table.column(columns.text), table.column(columns.second)
    ids = next((table.column(named[one]) for one in IDS if one in named), [])
    ids = ids if len(set(ids)) == len(table.rows) else [str(i) for i in range(len(table.rows))]
    starts = next((table.column(named[one]) for one in STARTS if one in named), None)
    answers = table.column(columns.label) if columns.label else None
    for i, (context, question) in enumerate(zip(contexts, questions, strict=True)):
        given = None
        if answers is not None:
            given = _answers(answers[i], starts[i] if starts else "", f"{table.name}, row {i + 1}")
        yield answered(ids[i], question.strip(), context, given)


def _answers(cell: str, start: str, where: str) -> list[tuple[str, int | None]]:
    """A text; or JSON: a list of texts or of SQuAD's objects, or {"text": […], "answer_start": […]}."""
    near: int | None = None
    if start.strip():
        try:
            near = int(start)
        except ValueError:
            raise NextwordError(f"{where}: the answer's start is {start!r}, which is no whole number.") from None
    found: Any = cell
    if cell[:1] in ("[", "{"):
        try:
            found = json.loads(cell)
        except ValueError:
            found = cell  # an answer that begins with a bracket
    if isinstance(found, dict) and isinstance(found.get("text"), list):
        places = found.get("answer_start") or [None] * len(found["text"])
        found = [{"text": text, "answer_start": at} for text, at in zip(found["text"], places, strict=False)]
    if isinstance(found, str):
        return [(found, near)] if found.strip() else []
    if isinstance(found, list):
        each = [(one, None) if isinstance(one, str) else _pair(one) for one in found]
        if all(one is not None for one in each):
            return [one for one in each if one is not None]
    raise NextwordError(f"{where}: the answers are {cell[:60]!r}. Expected a text, or a JSON list of texts.")


def _pair(one: Any) -> tuple[str, int | None] | None:
    if not isinstance(one, dict) or not isinstance(one.get("text"), str):
        return None
    start = one.get("answer_start")
    return one["text"], start if isinstance(start, int) else None


# ------------------------------------------------------------------------------------------------ for a network


def framed_questions(
    recipe: Recipe, network: Any, tokenizer: Tokenizer, data: QuestionSet, progress: Progress
) -> tuple[dict[str, Asked], list[str]]:
    """Split → its windows, and what is to be known of them."""
    settings = settings_of(recipe.task or {}, recipe.name)
    layout = layout_of(recipe.phases[0].batches)
    found: dict[str, Asked] = {}
    notes = list(data.notes)
    for split, some in data.splits.items():
        if not some.labelled:
            notes.append(f"the answers of {split} are kept back: nothing is measured there")
            continue
        progress(f"reading {split}", 0, None)
        made, left = asked(network, tokenizer, some.all, layout, learn=split == "train")
        found[split] = made.judged_by(settings.metrics, settings.unanswered, settings.threshold)
        lost = left.lost - sum(one.lost for one in some.all)  # those that are nowhere in the passage are told already
        if lost > 0 and split == "train":
            notes.append(
                f"{lost:,} of {len(some):,} questions of train have an answer of which "
                "the passage has no token: nothing is learnt of them"
            )
        if left.windows:
            notes.append(
                f"the passages of {left.windows:,} of {len(some):,} questions of {split} are read in windows of "
                f"{layout.length} tokens: {len(made):,} windows in all"
            )
        if left.cut:
            notes.append(f"{left.cut:,} questions of {split} are cut to fit")
    if not len(found["train"]):
        raise NextwordError(f"{data.name}: no answer of a training question is in the tokens of its passage.")
    return found, notes


# ------------------------------------------------------------------------------------------------ what to know of them


def _checked(data: QuestionSet) -> QuestionSet:
    splits, notes = dict(data.splits), list(data.notes)
    train = splits["train"]
    if not train.labelled:
        one = next(one for one in train.all if one.answers is None)
        raise NextwordError(f"{train.name}: question {one.id!r} has no 'answers', so nothing can be learnt from it.")
    if not any(one.place for one in train.all):
        raise NextwordError(
            f"{train.name}: no question has an answer that stands in its passage. Is --label the right column?"
        )
    if "dev" not in splits:
        held = set(held_out(Rows([one.context for one in train.all]), by_class=False))
        if not held or len(held) == len(train):
            raise NextwordError(
                f"{train.name} has too few passages to hold some out: {len(train)} questions. Give more, or a folder "
                "with a train and a dev file."
            )
        parts = [[one for i, one in enumerate(train.all) if (i in held) == wanted] for wanted in (False, True)]
        splits |= {split: train.only(some) for split, some in zip(("train", "dev"), parts, strict=True)}
        notes.append(
            f"no dev split: {len(held):,} questions of {len(train):,} are held out with their passages, the same ones "
            "each time"
        )
    if not splits["dev"].labelled:
        raise NextwordError(f"{splits['dev'].name}: the answers are kept back, so nothing can be checked with it.")
    for split, some in splits.items():
        notes += _told(split, some)
    notes += _repeated(splits)
    return replace(data, splits=splits, notes=tuple(notes))


def _told(split: str, some: Questions) -> list[str]:
    notes = []
    if some.moved:
        notes.append(
            f"{len(some.moved):,} questions of {split} have an answer that stands elsewhere than the file says: the "
            "nearest place is taken"
        )
    if some.absent:
        named = ", ".join(some.absent[:NAMED]) + (", …" if len(some.absent) > NAMED else "")
        notes.append(
            f"{len(some.absent):,} of {len(some):,} questions of {split} have an answer that is nowhere in the passage "
            f"({named}): they are kept, and nothing is learnt of that answer"
        )
    return notes + told_of_empty(some, split)


def told_of_empty(some: Questions, split: str = "") -> list[str]:
    of = f"{len(some):,} questions{f' of {split}' if split else ''}"
    notes = []
    for what, texts in (
        ("question", [one.question for one in some.all]),
        ("passage", [one.context for one in some.all]),
    ):
        empty = sum(not text.strip() for text in texts)
        if empty:
            notes.append(f"{empty:,} of {of} have an empty {what}: they are read as such")
    return notes


def _repeated(splits: Mapping[str, Questions]) -> list[str]:
    seen = {(one.question, one.context) for one in splits["train"].all}
    notes = []
    for split in splits.keys() - {"train"}:
        again = sum((one.question, one.context) in seen for one in splits[split].all)
        if again:
            notes.append(
                f"{again:,} of {len(splits[split]):,} questions of {split} are in train too, with their passage"
            )
    return sorted(notes)
