"""The study of n-gram sparsity: what it measures, against counting by hand; verdicts that other numbers turn round."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nextword
from nextword.batching.token_stream import prepare
from nextword.core.errors import NextwordError
from nextword.core.io import NAME
from nextword.data.opening import open_corpus
from nextword.evaluation.likelihood import evaluate_stream
from nextword.ngrams.counting import Counted, count_ngrams
from nextword.recipe import from_tables
from nextword.studies import ngram_sparsity
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, verdict
from nextword.studies.ngram_sparsity import (
    BEST,
    KATZ,
    LIKELIHOOD,
    REMEDIES,
    STUPID,
    by_remedy,
    estimated,
    falls,
    interval,
    likelihood,
    perplexity,
    seen,
    shorter,
    unseen,
)

SIZE, EOS, ORDER = 12, 1, 4


def text(length: int, seed: int) -> np.ndarray:
    """Ids of some commoner and some rarer words, a line end among them."""
    weights = 1 / np.arange(1, SIZE + 1)
    return np.random.default_rng(seed).choice(SIZE, length, p=weights / weights.sum()).astype(np.uint32)


def counts(ids: np.ndarray, order: int = ORDER) -> Counted:
    *_, found = count_ngrams(ids, order, SIZE, EOS, 1 << 40)
    assert isinstance(found, Counted)
    return found


def arrays(counted: Counted) -> list[np.ndarray]:
    return [*counted.words, *counted.counts, *counted.first, *counted.links]


def grams(stream: list[int], n: int) -> list[tuple[int, ...]]:
    """The n-gram that ends at each token after the first, cut short where its line begins."""
    found = []
    for i in range(1, len(stream)):
        line = max(j for j in range(i) if stream[j] == EOS)
        found.append(tuple(stream[max(line, i - n + 1) : i + 1]))
    return found


# ------------------------------------------------------------------------------------------------ measuring


def test_shorter_counts_are_those_of_counting_with_that_order() -> None:
    ids = text(500, seed=0)
    longest = counts(ids)
    for n in range(1, ORDER + 1):
        for a, b in zip(arrays(shorter(longest, n)), arrays(counts(ids, n)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_estimating_leaves_the_counts_as_they_are() -> None:
    """They are counted once and estimated from many times."""
    counted = counts(text(500, seed=0))
    before = [array.copy() for array in arrays(counted)]
    for group in REMEDIES.values():
        for how in group.values():
            estimated(counted, how)
    for a, b in zip(before, arrays(counted), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_new_is_what_a_set_of_all_ngrams_lacks(tmp_path: Path) -> None:
    ids, held = text(120, seed=1), text(300, seed=2)
    stream = np.concatenate([[EOS], held]).astype(np.uint32)
    longest = seen(counts(ids), stream, tmp_path / "model")
    for n in range(1, ORDER + 1):
        known = {gram for m in range(1, n + 1) for gram in grams([EOS, *ids.tolist()], m)}
        contexts = {gram[:-1] for gram in known} | {(w,) for w in ids.tolist()} | known
        new, lost = unseen(longest, stream, EOS, n)
        found = grams(stream.tolist(), n)
        assert new.tolist() == [gram not in known for gram in found]
        assert lost.tolist() == [len(gram) > 1 and gram[:-1] not in contexts for gram in found]
        assert n == 1 or 0 < new.sum() < len(new)


def test_a_word_never_counted_is_new_at_once(tmp_path: Path) -> None:
    stream = np.array([EOS, 2, 9, 2], np.uint32)
    counted = counts(np.array([2, 3, EOS, 2, 3, EOS], np.uint32), 2)
    assert seen(counted, stream, tmp_path / "model").tolist() == [1, 2, 0, 1]


def test_intervals_and_changes() -> None:
    middle, low, high = interval(np.repeat([0.0, 2.0], 500), seed=0)
    assert middle == 1
    assert 0.5 < low < 1 < high < 1.5
    assert interval(np.ones(1000), seed=0) == pytest.approx([1, 1, 1])
    same = np.full(1000, 3.0)
    assert falls(same, same - math.log(2), 0) == pytest.approx([50] * 3)
    assert falls(same, same + math.log(2), 0) == pytest.approx([-100] * 3)
    changed = falls(same, np.random.default_rng(0).normal(2.9, 1, 1000), 0)
    assert changed[1] < changed[0] < changed[2]


def test_maximum_likelihood_by_hand() -> None:
    """Half of the tokens impossible, the others one bit each."""
    table = likelihood([np.array([math.log(2), math.inf] * 300)], seed=0)
    (row,) = table.rows
    assert row[1][0] == 50
    assert row[2] == pytest.approx(2)
    assert perplexity(np.array([1.0, math.inf])) == NAME


# ------------------------------------------------------------------------------------------------ the study


@pytest.fixture(scope="module")
def found() -> dict[str, Table]:
    return ngram_sparsity.measure(Settings(quick=True, seeds=(0,), data="python"), lambda done, total: None)[0]


def test_every_estimator_and_every_order_is_there(found: dict[str, Table]) -> None:
    table = found["perplexity"]
    assert len(table.rows) == 13
    assert table.columns[2:] == tuple(f"n = {n}" for n in range(1, ngram_sparsity.TOP + 1))
    assert by_remedy(table, "neither")[LIKELIHOOD][1:] == [NAME] * (ngram_sparsity.TOP - 1)
    assert all(isinstance(v, float) for row in by_remedy(table, "smoothing", "back-off", "both").values() for v in row)


def test_the_parts_of_sparsity_add_up(found: dict[str, Table]) -> None:
    for row in found["sparsity"].rows:
        named = dict(zip(found["sparsity"].columns, row, strict=True))
        together = named["word new, %"][0] + named["context new, %"][0]
        assert named["new when held out, %"][0] == pytest.approx(together)
        assert named["of the possible"] == named["in the text"] / named["possible, |V|^n"]
    assert found["sparsity"].rows[0][-2:] == ([0.0] * 3, [0.0] * 3)  # <unk> has been seen, and so has every word


def test_stored_ngrams_are_those_of_the_text(found: dict[str, Table]) -> None:
    assert found["storage"].column("n-grams of n words") == found["sparsity"].column("in the text")
    sizes = [found["storage"].column(name)[-1] for name in ("fast, MB", "compact, MB", "8 bits, MB")]
    assert sizes == sorted(sizes, reverse=True)


def test_the_perplexity_is_that_of_the_model_and_of_evaluate(found: dict[str, Table], tmp_path: Path) -> None:
    """The same text through recipe, run folder and evaluation."""
    tables: dict[str, Any] = {
        "paper": {"slug": "ngram"},
        "tokenizer": {"kind": "words", "min_count": 2},
        "model": {"order": 3},
        "phase": [{"kind": "count", "data": "python"}],
    }
    list(nextword.train(from_tables(tables, "here"), tmp_path / "run"))
    lm = nextword.load(tmp_path / "run")
    score = evaluate_stream(lm, prepare(open_corpus("python"), "test", lm.tokenizer)).score
    assert score.token_perplexity() == pytest.approx(found["context"].cell("perplexity", n=3), rel=1e-5)
    assert by_remedy(found["perplexity"], "both")[BEST][2] == found["context"].cell("perplexity", n=3)


def test_a_text_too_short_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("\n".join(f"line {i % 9} of a text" for i in range(800)))
    with pytest.raises(NextwordError, match=r"words to count.*--data"):
        ngram_sparsity.measure(Settings(data=str(tmp_path / "short.txt")), lambda done, total: None)


# ------------------------------------------------------------------------------------------------ verdicts


def changed(table: Table, column: str, value: Any, **where: Any) -> Table:
    at = table.columns.index(column)
    tests = [(table.columns.index(key), wanted) for key, wanted in where.items()]
    rows = [
        (*row[:at], value, *row[at + 1 :]) if all(row[i] == wanted for i, wanted in tests) else row
        for row in table.rows
    ]
    return replace(table, rows=tuple(rows))


def judged(found: dict[str, Table], name: str, *change: Any, **where: Any) -> list[str]:
    tables = {**found, name: changed(found[name], *change, **where)} if change else found
    return [part.verdict for part in ngram_sparsity.judge(tables)]


def test_as_found(found: dict[str, Table]) -> None:
    parts = ngram_sparsity.judge(found)
    assert [part.verdict for part in parts[:5]] == [HOLDS] * 5
    assert [part.verdict for part in parts[5:]] == [FAILS] * 4
    assert [part.decides for part in parts] == [True] * 5 + [False] * 4
    assert verdict(parts) == HOLDS


@pytest.mark.parametrize(
    ("part", "name", "column", "value", "where", "expected"),
    [
        # long n-grams that are mostly known; hardly more or less than half; a shorter n newer than a longer one
        (0, "sparsity", "new when held out, %", [30.0, 29.0, 31.0], {"n": 7}, FAILS),
        (0, "sparsity", "new when held out, %", [99.0, 98.0, 99.5], {"n": 2}, FAILS),
        # nothing impossible at n = 2; so little that it might be nothing
        (1, "likelihood", "probability 0, % of tokens", [0.0, 0.0, 0.0], {"n": 2}, FAILS),
        (1, "likelihood", "probability 0, % of tokens", [0.1, 0.0, 0.2], {"n": 2}, UNDECIDED),
        # an estimator that leaves something impossible
        (2, "perplexity", "n = 4", NAME, {"estimator": KATZ}, FAILS),
        (2, "perplexity", "n = 4", NAME, {"estimator": "add 1"}, FAILS),
        # a table that shrinks
        (3, "storage", "fast, MB", 0.001, {"n": 6}, FAILS),
        (3, "storage", "all up to n", 1, {"n": 3}, FAILS),
        # a sixth word that helps; one that may or may not
        (4, "context", "lower than before, %", [4.0, 3.0, 5.0], {"n": 6}, FAILS),
        (4, "context", "lower than before, %", [1.0, 0.5, 1.5], {"n": 6}, UNDECIDED),
        # smoothing alone that is best with the longest context
        (5, "perplexity", "n = 7", 1.0, {"estimator": "add 0.01"}, HOLDS),
        # discounts that do nothing for stupid back-off at one order
        (6, "pairs", "lower, %", [0.5, -1.0, 2.0], {"from": STUPID, "n": 5}, UNDECIDED),
        (6, "pairs", "lower, %", [-3.0, -4.0, -2.0], {"from": STUPID}, HOLDS),
        # interpolation that is better for all
        (7, "pairs", "lower, %", [3.0, 2.0, 4.0], {"n": 7}, HOLDS),
        (7, "pairs", "lower, %", [1.0, -2.0, 4.0], {"n": 7}, UNDECIDED),
        # a text that has all n-grams there are
        (8, "sparsity", "in the text", 2544**7, {"n": 7}, HOLDS),
    ],
)
def test_numbers_to_the_contrary_turn_it_round(
    found: dict[str, Table], part: int, name: str, column: str, value: Any, where: dict[str, Any], expected: str
) -> None:
    before, after = judged(found, name), judged(found, name, column, value, **where)
    assert after[part] == expected != before[part]


def test_no_remedy_that_helps_is_found_out(found: dict[str, Table]) -> None:
    rows = tuple((*row[:2], row[2], *(row[2] * n for n in range(2, len(row) - 1))) if row[1] == "both" else row
                 for row in found["perplexity"].rows)  # fmt: skip
    parts = ngram_sparsity.judge({**found, "perplexity": replace(found["perplexity"], rows=rows)})
    assert parts[2].verdict == FAILS
    assert "no longer context helps" in parts[2].found


def test_half_is_neither_most_nor_not(found: dict[str, Table]) -> None:
    table = found["sparsity"]
    for n in range(1, 8):
        table = changed(table, "new when held out, %", [6.5 * n + 5, 6.5 * n, 6.5 * n + 10], n=n)
    assert ngram_sparsity.judge({**found, "sparsity": table})[0].verdict == UNDECIDED


def test_without_orders_beyond_the_usual_it_is_undecided(found: dict[str, Table]) -> None:
    table = replace(found["context"], rows=found["context"].rows[:5])
    assert ngram_sparsity.judge({**found, "context": table})[4].verdict == UNDECIDED


def test_words_are_closed_and_counted_as_said() -> None:
    settings = Settings(quick=True, seeds=(0,), data="python")
    *_, conditions = ngram_sparsity.measure(settings, lambda done, total: None)
    assert "each line end is predicted" in conditions["conventions"]
    assert "<unk>" in conditions["conventions"]
    corpus = open_corpus("python")
    words = Counter(word for d in corpus.documents("train") for word in d.text.split())
    kept = 2 + sum(1 for count in words.values() if count > 1)
    assert f"{kept:,} words" in conditions["vocabulary"]
