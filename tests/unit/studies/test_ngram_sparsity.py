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
from nextword.core.errors import DataError
from nextword.core.io import INFINITY
from nextword.data.opening import open_corpus
from nextword.evaluation.likelihood import evaluate_stream
from nextword.ngrams.counting import NgramCounts, count_ngrams
from nextword.recipe import parse_recipe
from nextword.studies import ngram_sparsity as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, overall_verdict
from nextword.studies.ngram_sparsity import (
    BEST,
    KATZ,
    LIKELIHOOD,
    REMEDIES,
    STUPID,
    block_interval,
    find_new,
    likelihood_table,
    limit_order,
    longest_seen,
    make_trie,
    perplexity,
    perplexity_reduction,
    rows_by_remedy,
)
from nextword.training.train import train_events
from tests.support.study_tables import change

SIZE, EOS, ORDER = 12, 1, 4


def draw_ids(length: int, seed: int) -> np.ndarray:
    """Ids of some commoner and some rarer words, a line end among them."""
    weights = 1 / np.arange(1, SIZE + 1)
    return np.random.default_rng(seed).choice(SIZE, length, p=weights / weights.sum()).astype(np.uint32)


def count_text(ids: np.ndarray, order: int = ORDER) -> NgramCounts:
    *_, result = count_ngrams(ids, order, SIZE, EOS, 1 << 40)
    assert isinstance(result, NgramCounts)
    return result


def list_arrays(counted: NgramCounts) -> list[np.ndarray]:
    return [*counted.words, *counted.counts, *counted.first, *counted.links]


def list_grams(stream: list[int], n: int) -> list[tuple[int, ...]]:
    """The n-gram that ends at each token after the first, cut short where its line begins."""
    result = []
    for i in range(1, len(stream)):
        line = max(j for j in range(i) if stream[j] == EOS)
        result.append(tuple(stream[max(line, i - n + 1) : i + 1]))
    return result


# ------------------------------------------------------------------------------------------------ measuring


def test_limited_counts_equal_counts_of_that_order() -> None:
    ids = draw_ids(500, seed=0)
    longest = count_text(ids)
    for n in range(1, ORDER + 1):
        for a, b in zip(list_arrays(limit_order(longest, n)), list_arrays(count_text(ids, n)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_estimation_does_not_change_the_counts() -> None:
    """They are counted once and make_trie from many times."""
    counted = count_text(draw_ids(500, seed=0))
    before = [array.copy() for array in list_arrays(counted)]
    for group in REMEDIES.values():
        for how in group.values():
            make_trie(counted, how)
    for a, b in zip(before, list_arrays(counted), strict=True):
        np.testing.assert_array_equal(a, b)


def test_new_ngrams_match_a_set_of_all_ngrams(tmp_path: Path) -> None:
    ids, held = draw_ids(120, seed=1), draw_ids(300, seed=2)
    stream = np.concatenate([[EOS], held]).astype(np.uint32)
    longest = longest_seen(count_text(ids), stream, tmp_path / "model")
    for n in range(1, ORDER + 1):
        known = {gram for m in range(1, n + 1) for gram in list_grams([EOS, *ids.tolist()], m)}
        contexts = {gram[:-1] for gram in known} | {(w,) for w in ids.tolist()} | known
        new, lost = find_new(longest, stream, EOS, n)
        results = list_grams(stream.tolist(), n)
        assert new.tolist() == [gram not in known for gram in results]
        assert lost.tolist() == [len(gram) > 1 and gram[:-1] not in contexts for gram in results]
        assert n == 1 or 0 < new.sum() < len(new)


def test_unseen_word_has_no_seen_ngram(tmp_path: Path) -> None:
    stream = np.array([EOS, 2, 9, 2], np.uint32)
    counted = count_text(np.array([2, 3, EOS, 2, 3, EOS], np.uint32), 2)
    assert longest_seen(counted, stream, tmp_path / "model").tolist() == [1, 2, 0, 1]


def test_block_intervals_and_perplexity_reductions() -> None:
    middle, low, high = block_interval(np.repeat([0.0, 2.0], 500), seed=0)
    assert middle == 1
    assert 0.5 < low < 1 < high < 1.5
    assert block_interval(np.ones(1000), seed=0) == pytest.approx([1, 1, 1])
    same = np.full(1000, 3.0)
    assert perplexity_reduction(same, same - math.log(2), 0) == pytest.approx([50] * 3)
    assert perplexity_reduction(same, same + math.log(2), 0) == pytest.approx([-100] * 3)
    changed = perplexity_reduction(same, np.random.default_rng(0).normal(2.9, 1, 1000), 0)
    assert changed[1] < changed[0] < changed[2]


def test_maximum_likelihood_counts_impossible_tokens() -> None:
    """Half of the tokens impossible, the others one bit each."""
    table = likelihood_table([np.array([math.log(2), math.inf] * 300)], seed=0)
    (row,) = table.rows
    assert row[1][0] == 50
    assert row[2] == pytest.approx(2)
    assert perplexity(np.array([1.0, math.inf])) == INFINITY


# ------------------------------------------------------------------------------------------------ the study


@pytest.fixture(scope="module")
def measured() -> dict[str, Table]:
    return study.measure(Settings(quick=True, seeds=(0,), data="python"), lambda done, total: None)[0]


def test_perplexity_table_has_every_estimator_and_order(measured: dict[str, Table]) -> None:
    table = measured["perplexity"]
    assert len(table.rows) == 13
    assert table.columns[2:] == tuple(f"n = {n}" for n in range(1, study.MAX_ORDER + 1))
    assert rows_by_remedy(table, "neither")[LIKELIHOOD][1:] == [INFINITY] * (study.MAX_ORDER - 1)
    assert all(
        isinstance(v, float) for row in rows_by_remedy(table, "smoothing", "back-off", "both").values() for v in row
    )


def test_shares_of_new_ngrams_add_up(measured: dict[str, Table]) -> None:
    for row in measured["sparsity"].rows:
        named = dict(zip(measured["sparsity"].columns, row, strict=True))
        together = named[study.NEW_WORD][0] + named[study.NEW_CONTEXT][0]
        assert named[study.NEW][0] == pytest.approx(together)
        assert named["of the possible"] == named[study.IN_TEXT] / named[study.POSSIBLE]
    assert measured["sparsity"].rows[0][-2:] == (
        [0.0] * 3,
        [0.0] * 3,
    )  # <unk> has been longest_seen, and so has every word


def test_stored_ngrams_are_those_of_the_text(measured: dict[str, Table]) -> None:
    assert measured["storage"].column("n-grams of n words") == measured["sparsity"].column(study.IN_TEXT)
    sizes = [measured["storage"].column(name)[-1] for name in (study.FAST, study.COMPACT, study.BITS8)]
    assert sizes == sorted(sizes, reverse=True)


def test_perplexity_equals_that_of_a_trained_run(measured: dict[str, Table], tmp_path: Path) -> None:
    """The same text through recipe, run folder and evaluation."""
    tables: dict[str, Any] = {
        "paper": {"slug": "ngram"},
        "tokenizer": {"kind": "words", "min_count": 2},
        "model": {"order": 3},
        "phase": [{"kind": "count", "data": "python"}],
    }
    list(train_events(parse_recipe(tables, "here"), tmp_path / "run"))
    lm = nextword.load(tmp_path / "run")
    score = evaluate_stream(lm, prepare(open_corpus("python"), "test", lm.tokenizer)).score
    assert score.token_perplexity() == pytest.approx(measured["context"].cell("perplexity", n=3), rel=1e-5)
    assert rows_by_remedy(measured["perplexity"], "both")[BEST][2] == measured["context"].cell("perplexity", n=3)


def test_short_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("\n".join(f"line {i % 9} of a text" for i in range(800)))
    with pytest.raises(DataError, match="--data"):
        study.measure(Settings(data=str(tmp_path / "short.txt")), lambda done, total: None)


# ------------------------------------------------------------------------------------------------ verdicts


def judge_changed(found: dict[str, Table], name: str, *changes: Any, **where: Any) -> list[str]:
    tables = {**found, name: change(found[name], *changes, **where)} if changes else found
    return [part.verdict for part in study.judge(tables)]


def test_measured_numbers_hold(measured: dict[str, Table]) -> None:
    parts = study.judge(measured)
    assert [part.verdict for part in parts[:5]] == [HOLDS] * 5
    assert [part.verdict for part in parts[5:]] == [FAILS] * 4
    assert [part.decides for part in parts] == [True] * 5 + [False] * 4
    assert overall_verdict(parts) == HOLDS


@pytest.mark.parametrize(
    ("part", "name", "column", "value", "where", "expected"),
    [
        # long n-grams that are mostly known; hardly more or less than half; a limit_order n newer than a longer one
        (0, "sparsity", study.NEW, [30.0, 29.0, 31.0], {"n": 7}, FAILS),
        (0, "sparsity", study.NEW, [99.0, 98.0, 99.5], {"n": 2}, FAILS),
        # nothing impossible at n = 2; so little that it might be nothing
        (1, "likelihood", study.IMPOSSIBLE, [0.0, 0.0, 0.0], {"n": 2}, FAILS),
        (1, "likelihood", study.IMPOSSIBLE, [0.1, 0.0, 0.2], {"n": 2}, UNDECIDED),
        # an estimator that leaves something impossible
        (2, "perplexity", "n = 4", INFINITY, {"estimator": KATZ}, FAILS),
        (2, "perplexity", "n = 4", INFINITY, {"estimator": "add 1"}, FAILS),
        # a table that shrinks
        (3, "storage", study.FAST, 0.001, {"n": 6}, FAILS),
        (3, "storage", study.ENTRIES, 1, {"n": 3}, FAILS),
        # a sixth word that helps; one that may or may not
        (4, "context", study.GAIN, [4.0, 3.0, 5.0], {"n": 6}, FAILS),
        (4, "context", study.GAIN, [1.0, 0.5, 1.5], {"n": 6}, UNDECIDED),
        # smoothing alone that is best with the longest context
        (5, "perplexity", "n = 7", 1.0, {"estimator": "add 0.01"}, HOLDS),
        # discounts that do nothing for stupid back-off at one order
        (6, "pairs", study.LOWER, [0.5, -1.0, 2.0], {"from": STUPID, "n": 5}, UNDECIDED),
        (6, "pairs", study.LOWER, [-3.0, -4.0, -2.0], {"from": STUPID}, HOLDS),
        # interpolation that is better for all
        (7, "pairs", study.LOWER, [3.0, 2.0, 4.0], {"n": 7}, HOLDS),
        (7, "pairs", study.LOWER, [1.0, -2.0, 4.0], {"n": 7}, UNDECIDED),
        # a text that has all n-grams there are
        (8, "sparsity", study.IN_TEXT, 2544**7, {"n": 7}, HOLDS),
    ],
)
def test_contrary_numbers_reverse_a_part(
    measured: dict[str, Table], part: int, name: str, column: str, value: Any, where: dict[str, Any], expected: str
) -> None:
    before, after = judge_changed(measured, name), judge_changed(measured, name, column, value, **where)
    assert after[part] == expected != before[part]


def test_useless_context_fails(measured: dict[str, Table]) -> None:
    rows = tuple((*row[:2], row[2], *(row[2] * n for n in range(2, len(row) - 1))) if row[1] == "both" else row
                 for row in measured["perplexity"].rows)  # fmt: skip
    parts = study.judge({**measured, "perplexity": replace(measured["perplexity"], rows=rows)})
    assert parts[2].verdict == FAILS
    assert "no longer context helps" in parts[2].evidence


def test_share_around_one_half_is_undecided(measured: dict[str, Table]) -> None:
    table = measured["sparsity"]
    for n in range(1, 8):
        table = change(table, study.NEW, [6.5 * n + 5, 6.5 * n, 6.5 * n + 10], n=n)
    assert study.judge({**measured, "sparsity": table})[0].verdict == UNDECIDED


def test_without_longer_orders_it_is_undecided(measured: dict[str, Table]) -> None:
    table = replace(measured["context"], rows=measured["context"].rows[:5])
    assert study.judge({**measured, "context": table})[4].verdict == UNDECIDED


def test_conditions_describe_vocabulary_and_conventions() -> None:
    settings = Settings(quick=True, seeds=(0,), data="python")
    *_, conditions = study.measure(settings, lambda done, total: None)
    assert "each line end is predicted" in conditions["conventions"]
    assert "<unk>" in conditions["conventions"]
    corpus = open_corpus("python")
    words = Counter(word for d in corpus.documents("train") for word in d.text.split())
    kept = 2 + sum(1 for count in words.values() if count > 1)
    assert f"{kept:,} words" in conditions["vocabulary"]
