"""Extractive question answering: the span of a passage that answers a question, or none (SQuAD 1.1 and 2.0).

    frames ──network.encode──▶ h (B, T, D) ──linear──▶ (B, T, 2) ──places of the passage, and "no answer"──▶ (B, W, 2)

    P(begin = i) = softmax(S · h_i)_i        P(end = j) = softmax(E · h_j)_j        over the places of the window
    score of i … j = S · h_i + E · h_j       i ≤ j < i + max_answer_length          score of no answer = S · h₀ + E · h₀
    J = 1/B Σ_windows ½ (−log p(begin | window) − log p(end | window))              Devlin et al. 2019, sec. 4.2, 4.3

A passage that is too long is read in overlapping windows; a window without the answer has the target "no answer".

    [CLS] who won ? [SEP] p₀ … p₂₉₉ [SEP]          one window of a question
    [CLS] who won ? [SEP] p₁₂₈ … p₄₂₇ [SEP]        the next, `stride` tokens later

    Denver beat Carolina .      Denver be ##at Carolina .      characters of each token 0–6 7–9 9–11 12–20 21–22
    answer: characters 7–11                 begin 2, end 3      places from 1 on; 0 is "no answer in this window"

Place 0 is the pooled token ([CLS], or the last); in a network whose frames have no token of their own, the question's
last. The answer to a question is the best span over all its windows, cut out of the passage; there is no answer if its
score, the least over the windows, exceeds that of the best span by more than a threshold.

    reader = nextword.load("runs/squad")
    reader.predict([("Who won?", "Denver beat Carolina.")])[0].text        # "Denver"; "" for no answer
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.batching.examples import Bucketed, FramedExamples, UnknownWords
from nextword.batching.settings import require_count
from nextword.core.errors import DataError, InvalidSetting, Unsupported
from nextword.core.io import refuse_existing
from nextword.core.types import Batch, Encoding, FramedText, Loss, State, require_list, texts_of
from nextword.data.catalog import find_entry
from nextword.data.files import plain_name, read_chunks
from nextword.data.squad import Question
from nextword.data.tables import (
    Columns,
    Table,
)
from nextword.metrics.squad import find_best_threshold, score_answers
from nextword.models.base import Network
from nextword.models.framing import SPREAD
from nextword.objectives.base import build_layout
from nextword.run_folder import RunFolder
from nextword.tasks import error_analysis
from nextword.tasks.base import (
    Count,
    Dataset,
    EmbeddingPredictor,
    HeadTaskConfig,
    Setup,
    Task,
    TaskObjective,
    Wording,
    draw_fraction,
    from_data,
    is_number,
    splits_beyond_dev,
)
from nextword.tasks.datasets.base import sample_file, table_header
from nextword.tasks.datasets.multiple_choice import has_candidates
from nextword.tasks.datasets.questions import (
    CATALOG_KIND,
    CONTEXTS,
    QUESTIONS,
    QuestionDataset,
    note_empty_texts,
    read_question_file,
    read_questions,
)
from nextword.tasks.encoding import Framer
from nextword.tasks.heads import ModelWithHead
from nextword.tasks.prediction_files import (
    TABLES,
    FilePredictions,
    PredictionRequest,
    Record,
    require_unique_columns,
    write_table,
)
from nextword.tokenizers.base import Tokenizer

SQUAD_KEYS = ('"paragraphs"', '"data"')
BEST_SPANS = 20  # of a window


# ------------------------------------------------------------------------------------------------ examples


@dataclass(frozen=True, kw_only=True)
class QAExamples(FramedExamples):
    """Windows of questions; an example is a window. Its pooled position stands for "no answer"."""

    passage: np.ndarray  # (windows, 2) where the passage lies in each
    targets: np.ndarray  # (windows, 2) places where the answer begins and ends; 0, 0: no answer
    question_index: np.ndarray  # (windows,) the question, in `questions`
    first_token: np.ndarray  # (windows,) the window's first token of the passage, in `characters`
    characters: np.ndarray = field(repr=False)  # (M, 2) the characters of each token of a passage
    questions: tuple[Question, ...] = field(default=(), repr=False)
    has_unanswerable: bool = False  # some questions of the task have no answer
    threshold: float = 0.0  # by how much "no answer" must beat the best span

    def take(self, chosen: np.ndarray) -> Self:
        """These windows, in this order; questions without a window are left out."""
        kept, index = np.unique(self.question_index[chosen], return_inverse=True)
        return replace(
            super().take(chosen),
            passage=self.passage[chosen],
            targets=self.targets[chosen],
            question_index=index.reshape(-1),
            first_token=self.first_token[chosen],
            questions=tuple(self.questions[i] for i in kept.tolist()),
        )

    def take_questions(self, chosen: np.ndarray) -> QAExamples:
        """All windows of these questions."""
        return self.take(np.flatnonzero(np.isin(self.question_index, chosen)))

    def scored_by(self, metrics: Sequence[str], has_unanswerable: bool, threshold: float) -> QAExamples:
        return replace(self, metrics=tuple(metrics), has_unanswerable=has_unanswerable, threshold=float(threshold))

    def text(self, window: int, begin: int, end: int) -> str:
        """The text of the passage from one place of a window to another, without spaces around it."""
        before = self.first_token[window] - 1
        question = self.questions[int(self.question_index[window])]
        first, last = int(self.characters[before + begin, 0]), int(self.characters[before + end, 1])
        return question.context[first:last].strip()


@dataclass(frozen=True)
class PassageBatches(Bucketed[QAExamples]):
    """`rows` windows per batch, of at most `length` tokens; the next begins `stride` tokens later in the passage.

    A question is cut after `question` tokens, and never takes more than half of a window. If windows are short, the
    stride is half of what they hold of the passage.
    """

    length: int = 384
    stride: int = 128
    question: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("batches.stride", self.stride)
        require_count("batches.question", self.question)

    def batch(self, text: QAExamples, chosen: np.ndarray, epoch: int) -> Batch:
        """`target_positions` (B, W) are the flat positions of all places, "no answer" first; −1 beyond the last."""
        inputs, begins = self.read(text, chosen)
        first, end = text.passage[chosen].T
        places = np.arange(int((end - first).max()))
        passage = np.where(places < (end - first)[:, None], (begins + first)[:, None] + places, -1)
        positions = torch.from_numpy(np.column_stack((begins + text.pooled_position[chosen], passage)))
        targets = torch.from_numpy(text.targets[chosen])
        return Batch(inputs, targets, True, epoch, target_positions=positions, num_targets=len(chosen))


def passage_layout(batches: Mapping[str, Any]) -> PassageBatches:
    return build_layout(batches, {"passages": PassageBatches}, "task")


class _Passage(NamedTuple):
    ids: np.ndarray
    characters: np.ndarray  # (N, 2)
    offset: int  # where those begin among the characters of all passages


class EncodingCounts(NamedTuple):
    """What could not be read as it is."""

    cut: int  # questions that were cut
    windowed: int  # passages that did not fit into one window
    lost: int  # questions whose answer is in no token of their passage


def encode_questions(
    network: Network,
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    layout: PassageBatches,
    training: bool = False,
) -> tuple[QAExamples, EncodingCounts]:
    """Windows of all questions. For training, questions whose answer is in no token are left out."""
    if network.is_backward:
        raise Unsupported(
            "[model] backward reads texts from their end, so it cannot mark where an answer begins. Use a run that "
            "reads left to right, or a bidirectional one.",
            ability="answer",
        )
    framer = Framer(network, tokenizer, 2, layout.length)
    passages = _encode_passages(tokenizer, framer.unseen, questions)
    question_ids = framer.encode([question.question for question in questions])
    limit = layout.question if framer.room is None else max(1, min(layout.question, framer.room // 2))
    frames: list[FramedText] = []
    rows: list[tuple[int, ...]] = []  # no-answer position, passage, targets, question, first token
    kept: list[Question] = []
    cut = windowed = lost = 0
    for question, ids in zip(questions, question_ids, strict=True):
        passage = passages[question.context]
        place = _answer_tokens(question, passage.characters)
        if question.answers and place is None:
            lost += 1
            if training:
                continue
        cut += len(ids) > limit
        ids = ids[:limit]
        windows = list(_windows(len(passage.ids), framer.room, len(ids), layout.stride))
        windowed += len(windows) > 1
        for begin, end in windows:
            (frame,) = framer.frame(ids, passage.ids[begin:end])
            frames.append(frame)
            target = _target(place, begin, end)
            rows.append((no_answer_position(frame), *frame.text_spans[1], *target, len(kept), passage.offset + begin))
        kept.append(question)
    table = np.array(rows, np.int64).reshape(-1, 7)
    examples = QAExamples.from_frames(
        frames,
        packs=framer.packs,
        unseen=framer.unseen,
        passage=table[:, 1:3],
        targets=table[:, 3:5],
        question_index=table[:, 5],
        first_token=table[:, 6],
        characters=np.concatenate([np.zeros((0, 2), np.int64), *(p.characters for p in passages.values())]),
        questions=tuple(kept),
    )
    return replace(examples, pooled_position=table[:, 0]), EncodingCounts(cut, windowed, lost)


def no_answer_position(frame: FramedText) -> int:
    """The token that stands for "no answer": the pooled one, unless it belongs to the passage."""
    (begin, end), passage = frame.text_spans
    if passage[0] <= frame.pooled_position < passage[1] and end > begin:
        return end - 1
    return frame.pooled_position


def _encode_passages(tokenizer: Tokenizer, unseen: UnknownWords, questions: Sequence[Question]) -> dict[str, _Passage]:
    """Every passage once, however many questions it has."""
    contexts = list(dict.fromkeys(question.context for question in questions))
    passages: dict[str, _Passage] = {}
    offset = 0
    for context, encoding in zip(contexts, tokenizer.encode_batch(contexts), strict=True):
        passages[context] = _Passage(unseen.ids(context, encoding), token_characters(context, encoding), offset)
        offset += len(encoding)
    return passages


def token_characters(text: str, encoding: Encoding) -> np.ndarray:
    """(N, 2): spans of bytes as spans of characters. A character belongs to every token that has a part of it."""
    raw = np.frombuffer(text.encode(), np.uint8)
    character = np.append(np.cumsum((raw & 0xC0) != 0x80) - 1, len(text))  # of each byte
    begin, end = encoding.spans[:, 0], encoding.spans[:, 1]
    first = character[begin]
    last = np.where(end > begin, character[np.maximum(end, 1) - 1] + 1, first)
    return np.stack((first, last), 1)


def _answer_tokens(question: Question, characters: np.ndarray) -> tuple[int, int] | None:
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


# ------------------------------------------------------------------------------------------------ head and loss


class SpanHead(ModelWithHead):
    def __init__(self, network: Network, config: QuestionAnsweringConfig) -> None:
        super().__init__(network, config.features, config.frozen)
        self.config = config
        self.out = nn.Linear(network.widths[self.layer_index], 2)
        nn.init.normal_(self.out.weight, std=SPREAD)
        nn.init.zeros_(self.out.bias)

    def forward(self, batch: Batch) -> Tensor:
        """(B, W, 2) in 32 bits; −∞ beyond a window's last place."""
        h = self.read_layer(batch.inputs)[..., : self.encoder.widths[self.layer_index]]
        at = batch.target_positions
        assert at is not None
        h = F.dropout(h, self.config.dropout, self.training)
        with torch.autocast(h.device.type, enabled=False):
            logits = self.out(h.to(self.out.weight.dtype)).reshape(-1, 2)
        return F.embedding(at.clamp(min=0), logits).masked_fill((at < 0).unsqueeze(-1), -torch.inf)

    def nats(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(B,): the mean of −log p of the beginning and of the end; targets (B, 2)."""
        return F.cross_entropy(logits, targets, reduction="none").mean(-1)

    def best_spans(self, logits: Tensor) -> Tensor:
        return best_spans(logits, self.config.max_answer_length)


def best_spans(logits: Tensor, max_length: int, n: int = BEST_SPANS) -> Tensor:
    """(B, 1 + 3n): the score of "no answer", and n times begin, end and score of a span, the best first.

    All spans are scored, not only those between a few good ends. If there are fewer than n, scores are −∞.
    """
    begins, ends = logits[:, 1:, 0], logits[:, 1:, 1]  # (B, P)
    none = logits[:, 0].sum(-1, keepdim=True)
    places = begins.shape[1]
    if not places:
        nothing = torch.full((len(logits), 3 * n), -torch.inf, device=logits.device, dtype=logits.dtype)
        return torch.cat((none, nothing), 1)
    max_length = min(max_length, places)
    ahead = F.pad(ends, (0, max_length - 1), value=-torch.inf).unfold(1, max_length, 1)  # (B, P, max_length)
    scores = (begins.unsqueeze(-1) + ahead).flatten(1)
    best, at = scores.topk(min(n, scores.shape[1]), 1)
    begin = at // max_length + 1
    spans = torch.stack((begin.to(best.dtype), (begin + at % max_length).to(best.dtype), best), -1).flatten(1)
    return torch.cat((none, F.pad(spans, (0, 3 * n - spans.shape[1]), value=-torch.inf)), 1)


class SpanObjective(TaskObjective[QAExamples]):
    """Cross-entropy of where the answer begins and of where it ends, halved."""

    layouts: ClassVar[Mapping[str, type[Bucketed[Any]]]] = {"passages": PassageBatches}

    def loss(self, network: SpanHead, batch: Batch, state: State) -> Loss:
        logits = network(batch)
        nats = network.nats(logits, batch.targets).sum()
        outputs = None if network.training else network.best_spans(logits.detach())
        return Loss(nats / len(batch.targets), nats.detach(), len(batch.targets), outputs=outputs)

    def metrics(self, text: QAExamples, outputs: Tensor) -> dict[str, float]:
        ordered = np.zeros(outputs.shape)
        ordered[self.layout.validation_order(text)] = outputs.double().cpu().numpy()
        return score_predictions(text, find_answers(text, ordered))


# ------------------------------------------------------------------------------------------------ answers


@dataclass(frozen=True)
class Answer:
    """The prediction for one question."""

    id: str
    text: str  # "": no answer
    best: str  # the best span, whether or not it is the prediction
    probability: float  # of the text, among the best spans and "no answer"
    no_answer: float  # the probability that there is no answer, likewise
    margin: float  # score of "no answer" − score of the best span
    others: tuple[tuple[str, float], ...] = ()  # the best texts with their probabilities, `best` first


def find_answers(text: QAExamples, spans: np.ndarray, n: int = 5) -> list[Answer]:
    """The answer to every question, from the best spans of its windows (windows, 1 + 3k).

    "No answer" has its least score over the windows, because one window with the answer is enough. Spans with the same
    text count once, with their best score.
    """
    texts: list[dict[str, float]] = [{} for _ in text.questions]
    none = np.full(len(text.questions), np.inf)
    for window, row in enumerate(spans):
        question = int(text.question_index[window])
        none[question] = min(none[question], row[0])
        for begin, end, score in row[1:].reshape(-1, 3):
            if not math.isfinite(score):
                break
            answer = text.text(window, int(begin), int(end))
            if answer and score > texts[question].get(answer, -math.inf):
                texts[question][answer] = float(score)
    return [
        _choose_answer(question.id, scores, float(zero), text.has_unanswerable, text.threshold, n)
        for question, scores, zero in zip(text.questions, texts, none, strict=True)
    ]


def _choose_answer(
    id: str, scores: dict[str, float], none: float, may_be_none: bool, threshold: float, n: int
) -> Answer:
    if not scores:  # an empty passage
        return Answer(id, "", "", 1.0, 1.0, math.inf)
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    values = np.array([score for _, score in ranked] + ([none] if may_be_none else []))
    odds = np.exp(values - values.max())
    p = (odds / odds.sum()).tolist()
    margin = none - ranked[0][1]
    is_empty = may_be_none and margin > threshold
    no_answer = p[-1] if may_be_none else 0.0
    others = tuple((text, share) for (text, _), share in zip(ranked[:n], p, strict=False))
    best = ranked[0][0]
    return Answer(id, "" if is_empty else best, best, no_answer if is_empty else p[0], no_answer, margin, others)


def score_predictions(text: QAExamples, answers: Sequence[Answer]) -> dict[str, float]:
    """The metrics of the examples."""
    golds = [question.answers or () for question in text.questions]
    return score_answers(text.metrics, [answer.text for answer in answers], golds, text.has_unanswerable)


# ------------------------------------------------------------------------------------------------ task


@dataclass(frozen=True)
class QuestionAnsweringConfig(HeadTaskConfig):
    max_answer_length: int = 30  # tokens
    threshold: float = 0.0  # by how much "no answer" must beat the best span, if questions may have none
    has_unanswerable: bool = from_data(False)  # some questions have no answer

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_count("max_answer_length", 1, "a number of tokens, at least 1")
        self.require("threshold", is_number(self.threshold), "a number, as 0.0")


class QuestionAnswering(Task[QuestionDataset, QAExamples, "AnswerPredictor"]):
    """The span of a passage that answers a question."""

    config: QuestionAnsweringConfig
    Config = QuestionAnsweringConfig
    objective = SpanObjective
    data_kind = "questions about passages"
    example_recipe = "bert/span"

    @classmethod
    def recognizes(cls, source: str) -> bool:
        entry = find_entry(source)
        if entry is not None and not Path(source).exists():
            return entry.kind == CATALOG_KIND
        path = sample_file(source)
        is_json = path is not None and Path(plain_name(path)).suffix.lower() == ".json"
        if path is not None and is_json and all(key in next(read_chunks(path), "") for key in SQUAD_KEYS):
            return True
        header = {name.lower() for name in table_header(source)}
        named = header & {"answers", "answer"}, header & set(QUESTIONS[:2]), header & set(CONTEXTS[:3])
        return all(named)

    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        if kind not in ("", self.config.kind):
            raise InvalidSetting(f"This recipe answers questions. Leave --kind {kind} out.", key="kind", value=kind)
        if columns == Columns() and has_candidates(table_header(source)):  # their numbers may occur in the passage
            raise DataError(f"{source} has candidates to choose from, not questions about passages.", path=source)
        return read_questions(source, columns)

    def settings_from(self, data: QuestionDataset, run: RunFolder | None) -> dict[str, Any]:
        return {"has_unanswerable": data.has_unanswerable}

    def head(self, network: Network) -> ModelWithHead:
        return SpanHead(network, self.config)

    def encode(self, data: QuestionDataset, setup: Setup) -> dict[str, QAExamples]:
        own, layout, notes = self.config, passage_layout(setup.recipe.phases[0].batches), setup.notes
        encoded: dict[str, QAExamples] = {}
        for split, questions in data.splits.items():
            if not questions.is_labeled:
                notes.append(f"{split} has no answers, so it is not scored")
                continue
            setup.progress(f"reading {split}", 0, None)
            examples, counts = encode_questions(
                setup.network, setup.tokenizer, questions.all, layout, training=split == "train"
            )
            encoded[split] = examples.scored_by(own.metrics, own.has_unanswerable, own.threshold)
            lost = counts.lost - sum(question.is_lost for question in questions.all)  # those have a note already
            if lost > 0 and split == "train":
                notes.append(f"{lost:,} of {len(questions):,} training questions have an answer in no token: left out")
            if counts.windowed:
                notes.append(
                    f"the passages of {counts.windowed:,} of {len(questions):,} questions of {split} are read in "
                    f"windows of {layout.length} tokens: {len(examples):,} windows in all"
                )
            if counts.cut:
                notes.append(f"{counts.cut:,} questions of {split} are cut to fit")
        if not len(encoded["train"]):
            raise DataError(
                f"{data.name}: no answer of a training question is in the tokens of its passage.", path=data.name
            )
        return encoded

    def count(self, examples: QAExamples) -> int:
        return len(examples.questions)

    def sample(self, examples: QAExamples, fraction: float, seed: int) -> QAExamples:
        if fraction == 1:
            return examples
        return examples.take_questions(draw_fraction(self.count(examples), fraction, seed))

    def open(self, run: RunFolder, device: torch.device, precision: str = "fp32") -> AnswerPredictor:
        model, tokenizer = self.load_run(run, device, precision)
        layout = passage_layout(run.recipe.phases[-1].batches)
        best = run.manifest.get("result", {}).get("best", {})
        threshold = float(best.get("threshold", self.config.threshold))
        return AnswerPredictor(model, tokenizer, self, layout, threshold, run.name)

    def predict_file(self, predictor: AnswerPredictor, request: PredictionRequest) -> FilePredictions:
        return predict_answers(predictor, request)

    def records(self, predictor: AnswerPredictor, predictions: Sequence[Any]) -> list[Record]:
        return [_answer_record(answer, self.config.has_unanswerable) for answer in predictions]

    def evaluate(
        self, predictor: AnswerPredictor, data: QuestionDataset, examples: Mapping[str, QAExamples]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The best threshold on dev, if questions may have no answer; and the other splits with it."""
        best = {"best": predictor.tune_threshold(examples["dev"])} if self.config.has_unanswerable else {}
        return best | {split: predictor.score_examples(examples[split]) for split in splits_beyond_dev(examples)}, {}

    def predict_split(
        self, predictor: AnswerPredictor, data: Any, part: str, split: str, examples: Mapping[str, QAExamples]
    ) -> list[str]:
        """On dev, with the threshold that the metrics of training use; the best one there is for other splits."""
        threshold = self.config.threshold if split == "dev" else predictor.threshold
        own, spans = replace(examples[split], threshold=threshold), predictor.best_spans(examples[split])
        return [answer.text for answer in find_answers(own, spans)]

    def analyze_errors(self, predictor: AnswerPredictor, data: QuestionDataset, examples: QAExamples) -> dict[str, Any]:
        answers = find_answers(replace(examples, threshold=predictor.threshold), predictor.best_spans(examples))
        return error_analysis.analyze_answers(examples.questions, answers, examples.has_unanswerable)

    def wording(self) -> Wording:
        return Wording(
            summary="a span of a passage for a question" + (", or none" if self.config.has_unanswerable else ""),
            input="a question and a passage",
            output="the span of the passage that answers it",
            arguments='[("a question", "a passage")]',
            command="my.json --out predictions.json",
            loss_unit="nats per passage",
        )


class AnswerPredictor(EmbeddingPredictor):
    """`predict` answers to (question, passage). A passage of any length is read, in windows."""

    model: SpanHead
    task: QuestionAnswering

    def __init__(
        self,
        model: ModelWithHead,
        tokenizer: Tokenizer,
        task: QuestionAnswering,
        layout: PassageBatches,
        threshold: float = 0.0,
        name: str = "",
    ) -> None:
        super().__init__(model, tokenizer, task, layout.length, name)
        self.layout, self.threshold = layout, threshold

    def predict(  # type: ignore[override]
        self, examples: Sequence[Any], progress: Count | None = None, notes: list[str] | None = None
    ) -> list[Answer]:
        """An answer for each question, with its probability among the best spans."""
        questions = [self.parse_question(example, i) for i, example in enumerate(require_list(examples))]
        config = self.task.config
        encoded, counts = encode_questions(self.network, self.tokenizer, questions, self.layout)
        encoded = encoded.scored_by(config.metrics, config.has_unanswerable, self.threshold)
        if counts.cut and notes is not None:
            notes.append(f"{counts.cut:,} of {len(questions):,} questions are cut to fit")
        return find_answers(encoded, self.best_spans(encoded, progress))

    def parse_question(self, example: object, number: int) -> Question:
        if isinstance(example, Question):
            return example
        parts = texts_of(example)
        if len(parts) != 2 or not all(isinstance(text, str) for text in parts):
            raise InvalidSetting(
                f"{self.name or 'This run'} answers questions about passages, and an example is {str(example)[:80]!r}. "
                "Expected (question, passage).",
                key="examples",
                value=example,
            )
        return Question(str(number), *parts)

    def best_spans(self, examples: QAExamples, progress: Count | None = None) -> np.ndarray:
        """(windows, 1 + 3 · BEST_SPANS). Windows of similar length are read together."""
        spans: np.ndarray = self.once(examples, lambda: self._best_spans(examples, progress))
        return spans

    @torch.no_grad()
    def _best_spans(self, examples: QAExamples, progress: Count | None) -> np.ndarray:
        spans = np.zeros((len(examples), 1 + 3 * BEST_SPANS))
        for chosen, batch in self.batches(self.layout, examples, progress=progress):
            spans[chosen] = self.model.best_spans(self.model(batch)).double().cpu().numpy()
        return spans

    def score_examples(self, examples: QAExamples) -> dict[str, float]:
        """The task's metrics on encoded questions with answers."""
        spans = self.best_spans(examples)
        examples = replace(examples, threshold=self.threshold)
        return score_predictions(examples, find_answers(examples, spans))

    def tune_threshold(self, examples: QAExamples) -> dict[str, float]:
        """Find the best threshold on these questions and use it from now on; return it, and the metrics with it."""
        answers = find_answers(examples, self.best_spans(examples))
        golds = [question.answers or () for question in examples.questions]
        margins, texts = [answer.margin for answer in answers], [answer.best for answer in answers]
        self.threshold, scores = find_best_threshold(margins, texts, golds)
        return {"threshold": self.threshold, **scores}


# ------------------------------------------------------------------------------------------------ files

SQUAD_FILE = ".json"
NO_ANSWER_FILE = ".na_prob.json"  # next to SQuAD's file, for the script of SQuAD 2.0


def predict_answers(model: AnswerPredictor, request: PredictionRequest) -> FilePredictions:
    """Answer questions. SQuAD's JSON is answered by {id: text}; a table gets the answer next to each question."""
    suffix = request.suffix((SQUAD_FILE, *TABLES), "")
    config, named = model.task.config, request.columns
    has_unanswerable = config.has_unanswerable
    no_answer_file = None
    if request.output is not None and suffix == SQUAD_FILE and has_unanswerable:
        no_answer_file = request.output.with_name(request.output.stem + NO_ANSWER_FILE)
        refuse_existing("--out", no_answer_file)
    usual = Columns(named.text or config.text, named.second or config.second, config.label)
    questions, _, table = read_question_file(request.file, usual, required=named)
    notes = [*(table.notes if table else ()), *note_empty_texts(questions)]
    if table is not None:
        require_unique_columns(table, request.output)
    answers = model.predict(questions.all, request.progress, notes)
    scores = {}
    if questions.is_labeled:
        golds = [question.answers or () for question in questions.all]
        scores = score_answers(config.metrics, [answer.text for answer in answers], golds, has_unanswerable)
    suffix = suffix or (SQUAD_FILE if table is None else ".csv")
    if suffix == SQUAD_FILE:
        content = _write_json({answer.id: answer.text for answer in answers})
    else:
        own = Table(request.file, ["id", "question"], [[one.id, one.question] for one in questions.all])
        cells = [_answer_cells(answer, has_unanswerable, suffix) for answer in answers]
        content, notes = write_table(table or own, cells, suffix, request, notes)
    others = {}
    if no_answer_file is not None:
        others[no_answer_file] = _write_json({answer.id: answer.no_answer for answer in answers})
    records = model.task.records(model, answers)
    gold = f"the answers in {questions.name}"
    return FilePredictions(content, records, f"{len(answers):,} answers", [], scores, gold, notes, others)


def _answer_record(answer: Answer, has_unanswerable: bool) -> Record:
    best = [{"text": text, "probability": probability} for text, probability in answer.others]
    record = {"id": answer.id, "predicted": answer.text, "probability": answer.probability, "best": best}
    return record | ({"no_answer": answer.no_answer, "margin": answer.margin} if has_unanswerable else {})


def _answer_cells(answer: Answer, has_unanswerable: bool, suffix: str) -> Record:
    number = float if suffix == ".jsonl" else "{:.6f}".format
    cells = {"predicted": answer.text, "probability": number(answer.probability)}
    return cells | ({"p(no answer)": number(answer.no_answer)} if has_unanswerable else {})


def _write_json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"
