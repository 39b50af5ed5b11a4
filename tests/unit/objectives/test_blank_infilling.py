"""Blank infilling: every token occurs once, and each kind of blank removes the right tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextword.batching.blank_infilling import (
    DOCUMENT,
    SENTENCES,
    TOKENS,
    Blanks,
    arrange_pieces,
    choose_sentences,
    choose_short_pieces,
)
from nextword.batching.token_stream import DOCUMENT as DOCUMENT_START
from nextword.batching.token_stream import SENTENCE, WORD, Stream
from nextword.core.errors import DataError, InvalidSetting
from nextword.core.types import IGNORE, Vocabulary
from nextword.objectives.blank_infilling import BlankInfillingObjective
from nextword.tokenizers.special_tokens import PieceMarks

BEGIN, END = 0, 1
VOCABULARY = Vocabulary(300, BEGIN, {"<s>": BEGIN, "</s>": END}, END)
MARKS = PieceMarks.of(VOCABULARY)


def stream(size: int, seed: int = 0) -> Stream:
    """Sentences of 3 to 12 tokens, some followed by an end of document."""
    draw = np.random.default_rng(seed)
    ids, marks = draw.integers(2, 300, size), np.full(size, WORD, np.uint8)
    at = 0
    while at < size:
        marks[at] |= SENTENCE
        at += int(draw.integers(3, 13))
        if at < size and draw.random() < 0.2:
            ids[at], marks[at] = END, 0
            if at + 1 < size:
                marks[at + 1] |= DOCUMENT_START | SENTENCE
            at += 1
    return Stream.from_ids(ids, marks=marks)


def restore_text(ids: list[int], first: list[int], second: list[int], targets: list[int], has_ends: bool) -> list[int]:
    """Restore the text by putting every piece, read from the targets, in place of its mask."""
    pieces: dict[int, list[int]] = {}
    current: list[int] = []
    for t, (position, inside) in enumerate(zip(first, second, strict=True)):
        if targets[t] == IGNORE:
            continue
        if inside == 1:
            assert ids[t] == BEGIN
            assert position not in pieces
            current = pieces[position] = []
        else:
            assert ids[t] == targets[t - 1]
            assert (position, inside) == (first[t - 1], second[t - 1] + 1)
        if not has_ends or targets[t] != END:
            current.append(targets[t])
    text = []
    for t, (id, inside) in enumerate(zip(ids, second, strict=True)):
        if inside == 0 and t:
            assert first[t] == t
            text += pieces.pop(t) if id in MARKS.masks else [id]
    assert not pieces
    return text


@given(
    size=st.integers(4, 70),
    fraction=st.floats(0.05, 0.5),
    mean=st.floats(0.5, 8.0),
    min_generated=st.floats(0.1, 1.0),
    short=st.sampled_from((0.0, 0.5, 1.0)),
    kind=st.sampled_from((TOKENS, SENTENCES, DOCUMENT)),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_token_occurs_exactly_once(
    size: int, fraction: float, mean: float, min_generated: float, short: float, kind: int, seed: int
) -> None:
    mix = tuple(float(i == kind) for i in range(3))
    rows = Blanks(
        rows=3,
        length=size + 1,
        mask_fraction=fraction,
        mean_span=mean,
        min_generated=min_generated,
        short_fraction=short,
        mix=mix,
    )
    text = stream(3 * size + 1, seed % 1000)
    places = np.arange(3 * size).reshape(3, size)
    batch = rows.batch(text, places, np.random.default_rng(seed), MARKS, 0)
    positions, targets = batch.inputs.positions, batch.targets.tolist()
    assert positions is not None
    assert int(positions.max()) <= size + 1  # fits into a window of this length
    assert batch.num_targets == sum(t != IGNORE for row in targets for t in row)
    for row, ids in enumerate(batch.inputs.ids.tolist()):
        first, second = positions[row].T.tolist()
        original = text.ids[places[row]].tolist()
        assert ids[0] == BEGIN
        restored = restore_text(ids, first, second, targets[row], kind != DOCUMENT)
        assert len(restored) == size if not short else 4 <= len(restored) <= size
        original = original[: len(restored)]
        assert restored == original
        a = [id for id, inside in zip(ids, second, strict=True) if inside == 0]
        masks = [id for id in a if id in MARKS.masks]
        assert set(masks) <= {MARKS.masks[kind]}
        assert masks or original.count(END) == len(restored) or kind == TOKENS
        gone = sum(t not in (IGNORE, END) for t in targets[row])
        if kind == DOCUMENT:
            assert a[-1] == MARKS.masks[DOCUMENT]
            removed = len(restored) - (len(a) - 2)
            assert removed >= min_generated * len(restored)
            assert sum(t != IGNORE for t in targets[row]) == removed  # without an end token
        elif END not in original:
            assert gone >= max(1, int(fraction * len(restored)))
            assert sum(t == END for t in targets[row]) == len(masks)


def test_short_piece_lengths_follow_a_poisson_distribution() -> None:
    gone = choose_short_pieces(np.full((4000, 1), 511), 511, np.full((4000, 1), 76), 3.0, np.random.default_rng(0))
    begins = gone & ~np.concatenate([np.zeros((4000, 1), bool), gone[:, :-1]], 1)
    assert (gone.sum(1) >= 76).all()
    assert gone.mean() == pytest.approx(0.152, abs=0.003)
    # 3 / (1 − e⁻³) without empty pieces; the last piece is longer on average
    assert gone.sum() / begins.sum() == pytest.approx(3.16, abs=0.06)
    lengths = np.diff(np.flatnonzero(np.diff(np.pad(gone, ((0, 0), (1, 1))).ravel().astype(int))))[::2]
    fraction = np.bincount(lengths, minlength=8)[1:8] / len(lengths)
    poisson = np.array([3.0**n / np.prod(np.arange(1.0, n + 1)) for n in range(1, 8)]) / (np.exp(3) - 1)
    np.testing.assert_allclose(fraction, poisson, atol=0.015)
    middle = gone.mean(0)[20:-20]
    assert middle.std() < 0.01  # uniform over positions


def test_choose_sentences_removes_complete_sentences() -> None:
    starts = np.array([[1, 0, 0, 1, 0, 0, 1, 0, 0, 0]], bool)
    inner = np.array([[1, 1, 1, 1, 1, 0, 1, 1, 1, 1]], bool)  # the sixth token ends a document
    patterns = set()
    for seed in range(40):
        gone, begins = choose_sentences(starts, inner, 3, np.random.default_rng(seed))
        patterns.add("".join("B" if b else "#" if g else "." for b, g in zip(begins[0], gone[0], strict=True)))
    assert patterns == {"B##.......", "......B###", "B##B#.....", "...B#.B###"}


def test_document_ends_stay_and_separate_pieces() -> None:
    text = np.array([[5, 6, END, 7, 8, 9]])
    rows = Blanks(rows=1, length=7, mask_fraction=0.5, mean_span=20.0, mix=(1, 0, 0))
    for seed in range(20):
        none, kind, draw = np.zeros((1, 6), bool), np.array([TOKENS]), np.random.default_rng(seed)
        gone, begins = rows.choose_pieces(text, none, np.array([6]), kind, draw, MARKS)
        assert not gone[0, 2]
        assert not gone[0, 3] or begins[0, 3]


def test_pieces_occur_in_every_order() -> None:
    text, gone = np.arange(10, 16)[None], np.array([[0, 1, 0, 1, 0, 1]], bool)
    orders = {
        tuple(
            arrange_pieces(text, gone, gone, np.array([6]), np.array([TOKENS]), np.random.default_rng(seed), MARKS)[2][
                0
            ].tolist()
        )
        for seed in range(60)
    }
    assert len(orders) == 6


def test_batch_depends_on_seed_and_step_alone() -> None:
    objective = BlankInfillingObjective({"rows": 4, "length": 24}, VOCABULARY)
    text = stream(3000)
    batches = objective.batches(text, 5, 0)
    straight = [next(batches) for _ in range(12)]
    resumed = next(objective.batches(text, 5, 7))
    for a, b in (
        (resumed.inputs.ids, straight[7].inputs.ids),
        (resumed.targets, straight[7].targets),
        (resumed.target_positions, straight[7].target_positions),
    ):
        assert a is not None
        assert b is not None
        assert a.equal(b)
    assert resumed.targets.shape != straight[8].targets.shape or not resumed.targets.equal(straight[8].targets)
    masks = {id for batch in straight for id in batch.inputs.ids.flatten().tolist() if id >= 300}
    assert masks == set(MARKS.masks)
    validation = [list(objective.validation_batches(text)) for _ in range(2)]
    assert all(a.targets.equal(b.targets) for a, b in zip(*validation, strict=True))
    assert sum(len(b.targets) for b in validation[0]) == 3000 // 23


def test_kinds_of_blanks_are_drawn_with_their_weights() -> None:
    objective = BlankInfillingObjective(
        {"rows": 400, "length": 16}, VOCABULARY, tokens=0.5, sentences=0.3, document=0.2
    )
    batch = next(objective.batches(stream(8000), 1, 0))
    kinds = [{id for id in row if id >= 300} for row in batch.inputs.ids.tolist()]
    fractions = [sum(mask in kind for kind in kinds) / 400 for mask in MARKS.masks]
    np.testing.assert_allclose(fractions, [0.5, 0.3, 0.2], atol=0.08)


def test_short_fraction_of_texts_is_cut_to_a_random_length() -> None:
    objective = BlankInfillingObjective({"rows": 2000, "length": 24}, VOCABULARY, 1, 0, 0, short_fraction=0.5)
    batch = next(objective.batches(stream(60_000), 1, 0))
    assert batch.inputs.positions is not None
    inside = batch.inputs.positions[:, :, 1]
    ends = (batch.targets == END).sum(1)
    # part A without begin and masks, plus the pieces
    sizes = (inside == 0).sum(1) - 1 - ends + (batch.targets != IGNORE).sum(1) - ends
    assert (sizes == 23).float().mean() == pytest.approx(0.5 + 0.5 / 20, abs=0.04)
    short = sizes[sizes < 23].float()
    assert (short.min(), short.max()) == (4, 22)
    assert float(short.mean()) == pytest.approx(13, abs=0.6)


@pytest.mark.parametrize(
    ("batches", "options", "key"),
    [
        ({"kind": "blocks"}, {}, "batches.kind"),
        ({"length": 4}, {}, "batches.length"),
        ({"rows": 0}, {}, "batches.rows"),
        ({}, {"mask_fraction": 0.6}, "objective.mask_fraction"),
        ({}, {"mean_span": 0}, "objective.mean_span"),
        ({}, {"min_generated": 1.5}, "objective.min_generated"),
        ({}, {"short_fraction": -0.1}, "objective.short_fraction"),
        ({}, {"tokens": -1.0}, "objective.tokens"),
        ({}, {"tokens": 0, "sentences": 0, "document": 0}, "objective.tokens"),
        ({}, {"tokens": "many"}, "objective.tokens"),
    ],
)
def test_invalid_settings_are_rejected(batches: dict[str, object], options: dict[str, object], key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        BlankInfillingObjective(batches, VOCABULARY, **options)  # type: ignore[arg-type]
    assert error.value.key == key


def test_text_shorter_than_a_row_is_rejected() -> None:
    with pytest.raises(DataError, match="511"):
        next(BlankInfillingObjective({}, VOCABULARY).validation_batches(stream(100)))
