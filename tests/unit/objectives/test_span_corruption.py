"""Span corruption: every token occurs once, and sizes match T5."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextword.batching.span_corruption import Spans, remove_spans
from nextword.batching.token_stream import Stream
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Vocabulary
from nextword.objectives.span_corruption import SpanCorruptionObjective

END = 1
SENTINELS = list(range(299, 199, -1))
VOCABULARY = Vocabulary(300, 0, {f"<extra_id_{i}>": id for i, id in enumerate(SENTINELS)} | {"<pad>": 0, "</s>": 1}, 1)


def test_source_and_target_match_the_figure_of_the_paper() -> None:
    """Thank you [for inviting] me to your party [last] week."""
    ids = np.arange(10, 20)
    gone = np.array([0, 0, 1, 1, 0, 0, 0, 0, 1, 0], bool)
    source, target = remove_spans(ids, gone, END, SENTINELS)
    assert source.tolist() == [10, 11, 299, 14, 15, 16, 17, 298, 19, END]
    assert target.tolist() == [299, 12, 13, 298, 18, END]


def test_sizes_match_t5() -> None:
    """568 tokens give a source of 512 and a target of 114, as in the authors' code."""
    spans = Spans(length=512)
    text, gone, count = spans.sizes
    assert (text, text - gone + count + 1, gone + count + 1) == (568, 512, 114)


def restore_text(source: list[int], target: list[int]) -> list[int]:
    """Restore the text by putting every span in place of its sentinel."""
    spans: dict[int, list[int]] = {}
    current: list[int] = []
    for id in target[:-1]:
        if id in SENTINELS:
            current = spans[id] = []
        else:
            current.append(id)
    return [x for id in source[:-1] for x in (spans.pop(id) if id in SENTINELS else [id])]


@given(
    length=st.integers(4, 90),
    mask_fraction=st.floats(0.05, 0.9),
    mean_span=st.floats(1.0, 6.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_token_occurs_exactly_once(length: int, mask_fraction: float, mean_span: float, seed: int) -> None:
    spans = Spans(rows=1, length=length, mask_fraction=mask_fraction, mean_span=mean_span)
    text, gone, count = spans.sizes
    draw = np.random.default_rng(seed)
    mask = spans.mask(draw)
    assert (len(mask), int(mask.sum())) == (text, gone)
    assert int((mask & ~np.concatenate(([False], mask[:-1]))).sum()) == count
    ids = draw.integers(2, 150, text)
    source, target = remove_spans(ids, mask, END, SENTINELS)
    assert len(source) <= length
    assert restore_text(source.tolist(), target.tolist()) == ids.tolist()


def test_batch_depends_on_seed_and_step_alone() -> None:
    objective = SpanCorruptionObjective({"rows": 3, "length": 20}, VOCABULARY)
    text = Stream.from_ids(np.random.default_rng(0).integers(2, 150, 2000))
    batches = objective.batches(text, 5, 0)
    straight = [next(batches) for _ in range(12)]
    resumed = next(objective.batches(text, 5, 7))
    assert resumed.inputs.source is not None
    assert straight[7].inputs.source is not None
    assert resumed.inputs.source.ids.equal(straight[7].inputs.source.ids)
    assert resumed.targets.equal(straight[7].targets)
    assert not resumed.targets.equal(straight[8].targets)
    first = straight[0]
    assert first.inputs.ids[:, 0].tolist() == [0, 0, 0]
    assert first.inputs.ids[:, 1:].equal(first.targets[:, :-1])
    validation = [list(objective.validation_batches(text)) for _ in range(2)]
    assert all(a.targets.equal(b.targets) for a, b in zip(*validation, strict=True))
    assert sum(len(b.targets) for b in validation[0]) == 2000 // objective.layout.sizes[0]


@pytest.mark.parametrize(
    ("batches", "options", "key"),
    [
        ({"kind": "blocks"}, {}, "batches.kind"),
        ({"length": 2}, {}, "batches.length"),
        ({"rows": 0}, {}, "batches.rows"),
        ({"mask_fraction": 0.5}, {}, "batches.mask_fraction"),
        ({}, {"mask_fraction": 1.0}, "objective.mask_fraction"),
        ({}, {"mean_span": 0.5}, "objective.mean_span"),
    ],
)
def test_invalid_settings_are_rejected(batches: dict[str, object], options: dict[str, float], key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        SpanCorruptionObjective(batches, VOCABULARY, **options)
    assert error.value.key == key


def test_tokenizer_without_sentinels_or_with_too_few_is_rejected() -> None:
    with pytest.raises(Unsupported, match="<pad>"):
        SpanCorruptionObjective({}, Vocabulary(50, 0, {"<pad>": 0}, 1))
    batches = SpanCorruptionObjective({"length": 4000}, VOCABULARY).batches(
        Stream.from_ids(np.arange(2, 20000) % 150 + 2), 0, 0
    )
    with pytest.raises(Unsupported, match="100"):
        next(batches)
