"""Analyze the errors of a fine-tuned run on dev, for errors.json, report.html and the terminal.

A task returns one of four layouts; a run of several tasks returns a list of them under "tasks".

    classes    confusion matrix; precision, recall and F1 per class; calibration; the most confident mistakes
    numbers    mean absolute and root mean square error; the largest errors
    tags       precision, recall and F1 per span type or tag; the sentences with the most errors
    answers    calibration and the most confident mistakes, of answers to questions or of chosen candidates

Only dev is analyzed. A test set whose errors guide further development is no longer a test set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nextword.core.errors import Unsupported
from nextword.data.squad import Question
from nextword.data.tables import Rows
from nextword.data.tag_schemes import convert_tags, find_spans
from nextword.metrics.classification import calibration, confusion_matrix, most_confused, score_classes
from nextword.metrics.spans import score_types
from nextword.metrics.squad import EXACT, F1, score_questions

if TYPE_CHECKING:
    from nextword.tasks.classification import Classifier
    from nextword.tasks.question_answering import Answer

Analysis = dict[str, Any]  # as in errors.json

FILE = "errors.json"
SPLIT = "dev"
NO_ANSWER = "(no answer)"
DISPLAY_SCHEME = "IOB2"
MAX_MISTAKES = 20
MAX_CORRECT = 6
MAX_TEXT_LENGTH = 2_000  # characters
MAX_POINTS = 200  # of a scatter plot
MAX_CLASSES = 100  # beyond this the confusion matrix is left out

# ------------------------------------------------------------------------------------------------ classes and numbers


def analyze_classes(labels: Sequence[str], gold: np.ndarray, probabilities: np.ndarray, rows: Rows) -> Analysis:
    """Analyze classification. `gold` (n,) are class indices, `probabilities` is (n, classes)."""
    predicted, confidence = probabilities.argmax(1), probabilities.max(1)
    counts = confusion_matrix(gold, predicted, len(labels))

    def describe(i: int) -> dict[str, Any]:
        return _texts(rows, i) | {
            "label": labels[gold[i]],
            "predicted": labels[predicted[i]],
            "probability": float(confidence[i]),
            "probability_of_label": float(probabilities[i, gold[i]]),
        }

    return {
        "layout": "classes",
        "labels": list(labels),
        "confusion": counts.tolist() if len(labels) <= MAX_CLASSES else None,
        "most_confused": most_confused(counts, labels, MAX_MISTAKES),
        "classes": score_classes(counts, labels),
        **_rank_by_confidence(predicted == gold, confidence, describe),
    }


def analyze_numbers(gold: np.ndarray, predicted: np.ndarray, rows: Rows, strings: Sequence[str] = ()) -> Analysis:
    """Analyze regression. `strings`: the numbers that a text-to-text model can generate."""
    error = predicted - gold
    largest = np.argsort(-np.abs(error), kind="stable")[:MAX_MISTAKES]
    shown = _evenly_spaced(np.arange(len(gold)), MAX_POINTS)
    return {
        "layout": "numbers",
        "examples": len(gold),
        "mean_absolute_error": float(np.abs(error).mean()),
        "root_mean_square_error": float(np.sqrt((error**2).mean())),
        "pairs": [[float(gold[i]), float(predicted[i])] for i in shown.tolist()],  # for a scatter plot
        "mistakes": [
            _texts(rows, i) | {"label": float(gold[i]), "predicted": float(predicted[i]), "error": float(error[i])}
            for i in largest.tolist()
        ],
        **({"numbers": list(strings)} if strings else {}),
    }


def _rank_by_confidence(
    is_right: np.ndarray, confidence: np.ndarray, describe: Callable[[int], dict[str, Any]]
) -> Analysis:
    """Return the calibration, the most confident mistakes, and some correct examples."""
    error, bins = calibration(confidence, is_right)
    order = np.argsort(-confidence, kind="stable")
    wrong, right = order[~is_right[order]], order[is_right[order]]
    return {
        "examples": len(is_right),
        "wrong": len(wrong),
        "calibration": {"error": error, "bins": [asdict(bin) for bin in bins]},
        "mistakes": [describe(i) for i in wrong[:MAX_MISTAKES].tolist()],
        "correct": [describe(i) for i in _evenly_spaced(right, MAX_CORRECT).tolist()],
    }


def _texts(rows: Rows, i: int) -> dict[str, Any]:
    second = {} if rows.seconds is None else {"second": _shorten(rows.seconds[i])}
    return {"text": _shorten(rows.texts[i]), **second}


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_TEXT_LENGTH else text[: MAX_TEXT_LENGTH - 1] + "…"


def _evenly_spaced(indices: np.ndarray, limit: int) -> np.ndarray:
    return indices[:: -(-len(indices) // limit)] if len(indices) else indices


# ------------------------------------------------------------------------------------------------ answers and choices


def analyze_answers(questions: Sequence[Question], answers: Sequence[Answer], some_unanswerable: bool) -> Analysis:
    """Analyze question answering. Correct means SQuAD's exact match; F1 shows how close the others are."""
    golds = [question.answers or () for question in questions]
    scores = score_questions([answer.text for answer in answers], golds, some_unanswerable)
    is_right = scores[EXACT] == 1

    def describe(i: int) -> dict[str, Any]:
        predicted = answers[i].text or NO_ANSWER
        return {
            "text": _around_answer(questions[i]),
            "second": _shorten(questions[i].question),
            "label": predicted if is_right[i] else next(iter(golds[i]), NO_ANSWER),
            "predicted": predicted,
            "probability": float(answers[i].probability),
            "answer_f1": float(scores[F1][i]),
        }

    confidence = np.array([answer.probability for answer in answers])
    return {"layout": "answers", **_rank_by_confidence(is_right, confidence, describe)}


def _around_answer(question: Question) -> str:
    """The passage; if it is long, the part that contains the answer."""
    start = max(0, (question.place or (0, 0))[0] - MAX_TEXT_LENGTH // 2)
    return ("…" if start else "") + _shorten(question.context[start:])


def analyze_choices(rows: Rows, probabilities: np.ndarray) -> Analysis:
    """Analyze multiple choice. `probabilities` is (n, candidates), 0 beyond the candidates of a row."""
    gold, predicted = np.array(rows.labels, np.int64), probabilities.argmax(1)
    confidence, choices = probabilities.max(1), rows.choices or []

    def describe(i: int) -> dict[str, Any]:
        return _texts(rows, i) | {
            "label": choices[i][gold[i]],
            "predicted": choices[i][predicted[i]],
            "probability": float(confidence[i]),
            "probability_of_label": float(probabilities[i, gold[i]]),
        }

    return {"layout": "answers", **_rank_by_confidence(predicted == gold, confidence, describe)}


# ------------------------------------------------------------------------------------------------ tags


def analyze_tags(
    names: Sequence[str],
    gold: Sequence[np.ndarray],
    predicted: Sequence[np.ndarray],
    words: Sequence[Sequence[str]],
    has_spans: bool,
) -> Analysis:
    """Analyze tagging. `gold` and `predicted` are indices into `names`, one array per sentence."""
    errors = np.array([int((a != b).sum()) for a, b in zip(gold, predicted, strict=True)])
    analysis: Analysis = {
        "layout": "tags",
        "examples": len(gold),
        "words": int(sum(map(len, gold))),
        "wrong": int((errors > 0).sum()),
    }
    if has_spans:
        scores = score_types(_spans(names, gold), _spans(names, predicted))
        analysis["types"] = [{"label": type, **numbers} for type, numbers in scores.items()]
    else:
        counts = confusion_matrix(np.concatenate(gold), np.concatenate(predicted), len(names))
        analysis["classes"] = score_classes(counts, names)
        analysis["most_confused"] = most_confused(counts, names, MAX_MISTAKES)

    def tags(ids: np.ndarray) -> list[str]:
        tags = [names[id] for id in ids.tolist()]
        return convert_tags(tags, DISPLAY_SCHEME) if has_spans else tags

    worst = [i for i in np.argsort(-errors, kind="stable")[:MAX_MISTAKES].tolist() if errors[i]]
    analysis["mistakes"] = [
        {"words": list(words[i]), "tags": tags(gold[i]), "predicted": tags(predicted[i])} for i in worst
    ]
    return analysis


def _spans(names: Sequence[str], sentences: Sequence[np.ndarray]) -> list[tuple[int, int, int, str]]:
    return [(i, *span) for i, ids in enumerate(sentences) for span in find_spans(names[id] for id in ids.tolist())]


# ------------------------------------------------------------------------------------------------ attributions

NO_HEAD = "Words are not colored: the labels are scored by a language model, not by a head."
OUT_OF_MEMORY = "Words are not colored: gradients of these texts do not fit into memory."
MAX_ATTRIBUTED = 12  # mistakes, and as many correct examples
MAX_TOKENS = 512  # of a text with attributions
MAX_FLOPS = {"cpu": 3e12, "cuda": 1e15}  # to spend on attributions
FLOPS_PER_PARAMETER = 6 * 18  # forward and backward passes at 16 nodes and two ends


def attribute_words(model: Classifier, analysis: Analysis) -> None:
    """Add word attributions to the first mistakes and correct examples, as far as the compute budget allows."""
    examples = [example for key in ("mistakes", "correct") for example in analysis.get(key, ())[:MAX_ATTRIBUTED]]
    embedding = model.network.embedding
    lookup = 0 if embedding is None else sum(p.numel() for p in embedding.parameters())  # reading a row is free
    budget = MAX_FLOPS["cuda" if model.device.type == "cuda" else "cpu"]
    num_done = num_too_long = 0
    for example in examples:
        texts = [example[key] for key in ("text", "second") if key in example]
        tokens = sum(map(len, model.tokenizer.encode_batch(texts)))
        if tokens > MAX_TOKENS or any(len(text) >= MAX_TEXT_LENGTH for text in texts):
            num_too_long += 1
            continue
        budget -= FLOPS_PER_PARAMETER * max(model.parameters - lookup, 1) * max(tokens, 1)
        if budget < 0 and num_done:
            break
        predicted = example["predicted"]
        label = predicted if isinstance(predicted, str) else f"{predicted:.4g}"
        try:
            (explanation,) = model.explain([(texts[0], texts[1]) if len(texts) > 1 else texts[0]], [label])
        except (Unsupported, torch.OutOfMemoryError) as problem:
            why = str(problem) if isinstance(problem, Unsupported) else OUT_OF_MEMORY
            analysis["attribution"] = {"method": "", "why": why}
            return
        example |= {
            "words": list(explanation.words),
            "weights": list(explanation.weights),
            "baseline": explanation.baseline,
            "gap": explanation.gap,
        }
        num_done += 1
    analysis["attribution"] = {
        "method": "integrated gradients",
        "examples": num_done,
        "of": len(examples),
        "too_long": num_too_long,
    }


def tasks_of(analysis: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The analysis of each task of a run: several, or this one."""
    return analysis.get("tasks") or [analysis]
