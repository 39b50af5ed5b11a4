"""What a transferred run gets wrong, so that a person can look: on dev, which training was checked with anyway.

    classes    confusion matrix, precision, recall and F1 of each, calibration, the most confident mistakes
    numbers    how far off on average, and the largest errors
    tags       the same of every type of span (or tag), and the sentences with most wrong
    answers    calibration, and the most confident that are not exactly right; of candidates the same

Test stays unread: who mends a run by the mistakes that it makes there has no test any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from nextword.core.errors import Unsupported
from nextword.data.squad import Question
from nextword.data.tables import Rows
from nextword.data.tag_schemes import converted
from nextword.metrics.classification import calibration, confusion_matrix, most_confused, score_classes
from nextword.metrics.spans import score_types
from nextword.metrics.squad import EXACT, F1, score_questions
from nextword.tasks.classification import Classifier
from nextword.tasks.question_answering import Answer, Asked, answers
from nextword.tasks.settings import SEVERAL, Settings
from nextword.tasks.tagging import OUTPUT, TaggedExamples, spans_of

FILE = "errors.json"
SPLIT = "dev"
NONE = "(no answer)"
UNCOLOURED = "Words are not coloured: labels are asked of a language model, and no head reads the text."
KEPT = 20  # mistakes, and as many sentences
RIGHT = 6  # right examples beside them
LETTERS = 2_000  # of a text
WHOLE = 100  # classes of which the whole matrix is kept
COLOURED = 12  # mistakes whose words are weighed
LONGEST = 512  # tokens of a text whose words are weighed
WORK = {"cpu": 3e12, "cuda": 1e15}  # operations that may be spent on weighing words


def errors_of(model: Any, settings: Settings, data: Any, examples: Any) -> dict[str, Any]:
    """Of a run that carries a head: what it says of dev, framed as `examples`, and where that is wrong."""
    found: dict[str, Any]
    if settings.kind == "tag" and settings.tasks:
        each = enumerate(zip(data.sets, examples.parts, strict=True))
        found = {
            "tasks": [
                {"task": one.name, **of_tags(part, [tags[:, i] for tags in model.best(part)], _words(one))}
                for i, (one, part) in each
            ]
        }
    elif settings.kind == "tag":
        found = of_tags(examples, model.best(examples), _words(data))
    elif settings.kind == SEVERAL:
        own = settings.each
        found = {
            "tasks": [
                {"task": one.name, "kind": one.kind} | _of_texts(model.of(one.name), own[one.name], one.splits[SPLIT])
                for one in data.sets
            ]
        }
    elif settings.kind == "span":
        asked = replace(examples, threshold=model.threshold)
        found = of_answers(asked, answers(asked, model.spans(asked)))
    elif settings.kind == "choice":
        found = of_candidates(data.splits[SPLIT], settings.decoded(model.said_of(examples)))
    elif settings.prompted:
        found = _said_of(settings, settings.decoded(model.said_of(examples)), examples.rows)
        found["attribution"] = {"method": "", "why": UNCOLOURED}
    else:
        found = _of_texts(model, settings, data.splits[SPLIT])
    return {"split": SPLIT, "kind": settings.kind, **found}


def _words(data: Any) -> list[tuple[str, ...]]:
    return [one.words for one in data.splits[SPLIT].sentences]


# ------------------------------------------------------------------------------------------------ classes and numbers


def _of_texts(model: Classifier, settings: Settings, rows: Rows) -> dict[str, Any]:
    found = _said_of(settings, settings.decoded(model.said(rows.texts, rows.seconds)), rows)
    found["attribution"] = _weighed(model, [found[key] for key in ("mistakes", "right_ones") if key in found])
    return found


def _said_of(settings: Settings, said: np.ndarray, rows: Rows) -> dict[str, Any]:
    """Of probabilities (n, classes), or of numbers (n, 1)."""
    if settings.kind != "regress":
        return of_classes(settings.labels, settings.encoded(rows.labels or []), said, rows)
    found = of_numbers(np.array(rows.labels, np.float64), said[:, 0], rows)
    return found | ({"numbers": list(settings.numbers)} if settings.numbers else {})


def of_classes(labels: Sequence[str], gold: np.ndarray, probabilities: np.ndarray, rows: Rows) -> dict[str, Any]:
    """`probabilities` (n, classes) of what is right (n,)."""
    said, sure = probabilities.argmax(1), probabilities.max(1)
    counts = confusion_matrix(gold, said, len(labels))

    def told(i: int) -> dict[str, Any]:
        own = {"label": labels[gold[i]], "predicted": labels[said[i]], "probability": float(sure[i])}
        return _text(rows, i) | own | {"probability_of_label": float(probabilities[i, gold[i]])}

    return {
        "labels": list(labels),
        "confusion": counts.tolist() if len(labels) <= WHOLE else None,
        "worst": most_confused(counts, labels, KEPT),
        "classes": score_classes(counts, labels),
        **_judged(said == gold, sure, told),
    }


def _judged(right: np.ndarray, sure: np.ndarray, told: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """How sure it was and how often right, the surest mistakes, and some that are right."""
    error, bins = calibration(sure, right)
    order = np.argsort(-sure, kind="stable")
    wrong, good = order[~right[order]], order[right[order]]
    return {
        "examples": len(right),
        "wrong": len(wrong),
        "calibration": {"error": error, "bins": [asdict(one) for one in bins]},
        "mistakes": [told(i) for i in wrong[:KEPT].tolist()],
        "right_ones": [told(i) for i in _spread(good, RIGHT).tolist()],
    }


def of_numbers(gold: np.ndarray, said: np.ndarray, rows: Rows) -> dict[str, Any]:
    off = said - gold
    order = np.argsort(-np.abs(off), kind="stable")
    shown = _spread(np.arange(len(gold)), 200)
    return {
        "examples": len(gold),
        "mean_absolute_error": float(np.abs(off).mean()),
        "root_mean_square_error": float(np.sqrt((off**2).mean())),
        "pairs": [[float(gold[i]), float(said[i])] for i in shown.tolist()],  # at equal distances, for a picture
        "mistakes": [
            _text(rows, i) | {"label": float(gold[i]), "predicted": float(said[i]), "error": float(off[i])}
            for i in order[:KEPT].tolist()
        ],
    }


def _text(rows: Rows, i: int) -> dict[str, Any]:
    seconds = {} if rows.seconds is None else {"second": _short(rows.seconds[i])}
    return {"text": _short(rows.texts[i]), **seconds}


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def _spread(places: np.ndarray, most: int) -> np.ndarray:
    """So many of them at equal distances, the first among them."""
    return places[:: -(-len(places) // most)] if len(places) else places


def _weighed(model: Classifier, lists: Sequence[list[dict[str, Any]]]) -> dict[str, Any]:
    """Give examples their words' weights, as far as the work allows; and say how that was done."""
    chosen = [one for some in lists for one in some[:COLOURED]]
    table = getattr(model.network, "embedding", None)
    inner = model.parameters - sum(p.numel() for p in table.parameters()) if table is not None else model.parameters
    left, done, long = WORK["cuda" if model.device.type == "cuda" else "cpu"], 0, 0
    for one in chosen:
        texts = [one[key] for key in ("text", "second") if key in one]
        tokens = sum(map(len, model.tokenizer.encode_batch(texts)))
        if tokens > LONGEST or any(len(text) >= LETTERS for text in texts):
            long += 1
            continue
        left -= 6 * 18 * max(inner, 1) * max(tokens, 1)
        if left < 0 and done:
            break
        try:
            label = one["predicted"] if isinstance(one["predicted"], str) else f"{one['predicted']:.4g}"
            why = model.explain([tuple(texts) if len(texts) > 1 else texts[0]], [label])[0]
        except Unsupported as problem:
            return {"method": "", "why": str(problem)}
        except torch.OutOfMemoryError:
            return {"method": "", "why": "Words are not coloured: gradients of these texts do not fit into memory."}
        done += 1
        one |= {"words": list(why.words), "weights": list(why.weights), "blank": why.blank, "gap": why.gap}
    return {"method": "integrated gradients", "examples": done, "of": len(chosen), "too_long": long}


# ------------------------------------------------------------------------------------------------ answers, candidates


def of_answers(text: Asked, found: Sequence[Answer]) -> dict[str, Any]:
    """Right is what SQuAD's script calls exact; F1 says how near the others come."""
    golds = [one.answers or () for one in text.questions]
    each = score_questions([one.text for one in found], golds, text.some_without)
    right = each[EXACT] == 1

    def told(i: int) -> dict[str, Any]:
        asked, said = text.questions[i], found[i].text or NONE
        label = said if right[i] else next(iter(golds[i]), NONE)
        own = {"label": label, "predicted": said, "probability": float(found[i].probability)}
        return {"text": _around(asked), "second": _short(asked.question)} | own | {"answer_f1": float(each[F1][i])}

    return _judged(right, np.array([one.probability for one in found]), told)


def of_candidates(rows: Rows, probabilities: np.ndarray) -> dict[str, Any]:
    """`probabilities` (n, candidates), 0 beyond those that a row has."""
    gold, said = np.array(rows.labels, np.int64), probabilities.argmax(1)
    sure, choices = probabilities.max(1), rows.choices or []

    def told(i: int) -> dict[str, Any]:
        own = {"label": choices[i][gold[i]], "predicted": choices[i][said[i]], "probability": float(sure[i])}
        return _text(rows, i) | own | {"probability_of_label": float(probabilities[i, gold[i]])}

    return _judged(said == gold, sure, told)


def _around(asked: Question) -> str:
    """The passage, of a long one the part where the answer is."""
    begin = max(0, (asked.place or (0, 0))[0] - LETTERS // 2)
    return ("…" if begin else "") + _short(asked.context[begin:])


# ------------------------------------------------------------------------------------------------ tags


def of_tags(text: TaggedExamples, said: Sequence[np.ndarray], words: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Types of spans, or tags where they are no spans; and the sentences with most wrong in them."""
    gold = [text.of(i) for i in range(len(text))]
    both = list(zip(gold, said, strict=True))
    wrong = np.array([int((a != b).sum()) for a, b in both])
    found: dict[str, Any] = {"examples": len(gold), "words": int(sum(map(len, gold))), "wrong": int((wrong > 0).sum())}
    if text.spans:
        right, guessed = spans_of(text.names, gold), spans_of(text.names, said)
        found["types"] = [{"label": type, **numbers} for type, numbers in score_types(right, guessed).items()]
    else:
        counts = confusion_matrix(np.concatenate(gold), np.concatenate(said), len(text.names))
        found |= {"classes": score_classes(counts, text.names), "worst": most_confused(counts, text.names, KEPT)}
    order = np.argsort(-wrong, kind="stable")[:KEPT].tolist()
    found["mistakes"] = [
        {
            "words": list(words[i]),
            "tags": _tags(text, gold[i]),
            "said": _tags(text, said[i]),
        }
        for i in order
        if wrong[i]
    ]
    return found


def _tags(text: TaggedExamples, tags: np.ndarray) -> list[str]:
    """By their names, those of spans as `predict` writes them."""
    named = [text.names[tag] for tag in tags.tolist()]
    return converted(named, OUTPUT) if text.spans else named
