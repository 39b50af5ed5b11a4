"""BLEU, chrF and ROUGE of random texts compared with simple implementations of their papers; BLEU with NLTK."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from nextword.metrics.text_generation import bleu_and_chrf, rouge_scores

pytest.importorskip("sacrebleu", reason="SACREBLEU ABSENT: BLEU and chrF are not tested")
pytest.importorskip("rouge_score", reason="ROUGE-SCORE ABSENT: ROUGE is not tested")
WORDS = ("cat", "dog", "red", "sun", "sea", "run", "sky", "ice", "a1", "b2")  # too short for a stemmer to change


def drawn(seed: int, n: int = 12) -> tuple[list[str], list[str]]:
    """Texts, and others like them: words left out, put in, and exchanged."""
    draw = random.Random(seed)
    targets = [draw.choices(WORDS, k=draw.randint(5, 14)) for _ in range(n)]
    written = []
    for target in targets:
        words = [draw.choice(WORDS) if draw.random() < 0.2 else word for word in target if draw.random() > 0.1]
        written.append(words or ["cat"])
    return [" ".join(one) for one in written], [" ".join(one) for one in targets]


def grams(units: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(units[i : i + n]) for i in range(len(units) - n + 1))


def f_score(matched: float, said: float, there: float, beta: float = 1.0) -> float:
    if not matched:
        return 0.0
    precision, recall = matched / said, matched / there
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def bleu(written: Sequence[str], targets: Sequence[str]) -> float:
    """Papineni et al. 2002: the geometric mean of four precisions of the whole, and the brevity penalty."""
    logs = 0.0
    for n in range(1, 5):
        pairs = [(grams(a.split(), n), grams(b.split(), n)) for a, b in zip(written, targets, strict=True)]
        logs += math.log(sum((a & b).total() for a, b in pairs) / sum(a.total() for a, _ in pairs)) / 4
    said, there = (sum(len(text.split()) for text in some) for some in (written, targets))
    return 100 * math.exp(logs + min(0.0, 1 - there / said))


def chrf(written: Sequence[str], targets: Sequence[str]) -> float:
    """Popović 2015: precision and recall of one to six letters without spaces, each meaned, and F with β = 2."""
    precisions, recalls = [], []
    for n in range(1, 7):
        pairs = [
            (grams(a.replace(" ", ""), n), grams(b.replace(" ", ""), n)) for a, b in zip(written, targets, strict=True)
        ]
        matched = sum((a & b).total() for a, b in pairs)
        precisions.append(matched / sum(a.total() for a, _ in pairs))
        recalls.append(matched / sum(b.total() for _, b in pairs))
    p, r = sum(precisions) / 6, sum(recalls) / 6
    return 100 * 5 * p * r / (4 * p + r)


def common(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of the longest sequence that both have, by the table of the textbooks."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for k, y in enumerate(b):
            table[i + 1][k + 1] = table[i][k] + 1 if x == y else max(table[i][k + 1], table[i + 1][k])
    return table[-1][-1]


@pytest.mark.parametrize("seed", range(8))
def test_bleu_and_chrf_equal_reference(seed: int) -> None:
    written, targets = drawn(seed)
    found = bleu_and_chrf(written, targets)
    assert found["bleu"]["score"] == pytest.approx(bleu(written, targets), rel=1e-9)
    assert found["bleu_lowercase"]["score"] == pytest.approx(found["bleu"]["score"])
    assert found["chrf"]["score"] == pytest.approx(chrf(written, targets), rel=1e-9)
    nltk = pytest.importorskip("nltk.translate.bleu_score", reason="NLTK ABSENT: its BLEU is not compared with")
    theirs = nltk.corpus_bleu([[one.split()] for one in targets], [one.split() for one in written])
    assert found["bleu"]["score"] == pytest.approx(100 * theirs, rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_rouge_equals_reference(seed: int) -> None:
    written, targets = drawn(seed)
    found = rouge_scores(written, targets)
    pairs = [(a.split(), b.split()) for a, b in zip(written, targets, strict=True)]
    for name, n in (("rouge1", 1), ("rouge2", 2)):
        each = [f_score((grams(a, n) & grams(b, n)).total(), max(len(a) - n + 1, 0), len(b) - n + 1) for a, b in pairs]
        assert found[name]["score"] == pytest.approx(100 * sum(each) / len(each))
    longest = [f_score(common(a, b), len(a), len(b)) for a, b in pairs]
    assert found["rougeL"]["score"] == pytest.approx(100 * sum(longest) / len(longest))
    assert found["rougeLsum"]["score"] == pytest.approx(found["rougeL"]["score"])  # of one sentence they are the same


def test_empty_outputs_score_zero() -> None:
    targets = ["cat dog red sun sea", "run sky ice cat dog"]
    for name, one in {**bleu_and_chrf(["", ""], targets), **rouge_scores(["", ""], targets)}.items():
        assert one["score"] == 0, name
