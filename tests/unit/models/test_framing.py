"""Frames token by token, their truncation, and batches of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import DataError, InvalidSetting, UnknownName
from nextword.core.protocols import Encoder
from nextword.core.types import IGNORE, Encoding, FramedText, Inputs, Vocabulary
from nextword.models import MODELS, model_class
from nextword.models.framing import (
    collate,
    combine,
    frame_texts,
    frames_for_task,
    next_token_targets,
    resize_embeddings,
    take_positions,
    truncate_pair,
)
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.nplm import NPLM, NPLMConfig
from nextword.models.rnn import LSTM, RecurrentConfig
from tests.support.errors import raises
from tests.support.small_gpt1 import (
    BEGIN,
    DELIMITER,
    END,
    EXTRACT,
    SHAPE,
    SIZE,
    START,
    VOCABULARY,
    A,
    B,
    C,
    make_encoding,
    make_gpt1,
)


def make_range(n: int, first: int = 0) -> Encoding:
    return make_encoding(*range(first, first + n))


def to_lists(frames: list[FramedText]) -> list[list[int]]:
    return [frame.ids.tolist() for frame in frames]


# ------------------------------------------------------------------------------------------------ framings


def test_gpt1_frames_equal_expected_tokens() -> None:
    network = resize_embeddings(make_gpt1(), 3)
    assert to_lists(network.frames("classify", [A])) == [[START, 1, 2, 3, EXTRACT]]
    assert to_lists(network.frames("entail", [A, B])) == [[START, 1, 2, 3, DELIMITER, 7, 8, EXTRACT]]
    assert to_lists(network.frames("similar", [A, B])) == [
        [START, 1, 2, 3, DELIMITER, 7, 8, EXTRACT],
        [START, 7, 8, DELIMITER, 1, 2, 3, EXTRACT],
    ]
    assert to_lists(network.frames("choose", [A, B, C])) == [
        [START, 1, 2, 3, DELIMITER, 7, 8, EXTRACT],
        [START, 1, 2, 3, DELIMITER, 9, EXTRACT],
    ]


@pytest.mark.parametrize("network", [GPT2(GPT2Config(**SHAPE), VOCABULARY), LSTM(RecurrentConfig(8), VOCABULARY)])
def test_other_networks_frame_with_begin_and_end_tokens(network: Any) -> None:
    assert to_lists(network.frames("classify", [A])) == [[BEGIN, 1, 2, 3]]
    assert to_lists(network.frames("entail", [A, B])) == [[BEGIN, 1, 2, 3, END, 7, 8]]
    assert to_lists(network.frames("similar", [A, B])) == [[BEGIN, 1, 2, 3, END, 7, 8]]
    assert to_lists(network.frames("choose", [A, B, C])) == [[BEGIN, 1, 2, 3, END, 7, 8], [BEGIN, 1, 2, 3, END, 9]]


def test_frame_without_end_token_has_no_separator() -> None:
    network = GPT2(GPT2Config(**SHAPE), Vocabulary(SIZE, BEGIN))
    frame = network.frame(A, B)
    assert frame.ids.tolist() == [BEGIN, 1, 2, 3, 7, 8]
    assert frame.text_spans == ((1, 4), (4, 6))


def test_frame_pools_last_token_and_text_spans_match_the_texts() -> None:
    for network in (resize_embeddings(make_gpt1(), 3), GPT2(GPT2Config(**SHAPE), VOCABULARY)):
        for frame, texts in ((network.frame(A), [A]), (network.frame(A, B), [A, B]), (network.frame(B, A), [B, A])):
            assert frame.pooled_position == len(frame.ids) - 1
            assert frame.segments is None
            assert [frame.ids[i:j].tolist() for i, j in frame.text_spans] == [t.ids.tolist() for t in texts]


def test_frame_of_empty_text_has_empty_span() -> None:
    network = resize_embeddings(make_gpt1(), 3)
    assert network.frame(make_encoding()).ids.tolist() == [START, EXTRACT]
    frame = network.frame(A, make_encoding())
    assert frame.ids.tolist() == [START, 1, 2, 3, DELIMITER, EXTRACT]
    assert frame.text_spans == ((1, 4), (5, 5))
    assert GPT2(GPT2Config(**SHAPE), VOCABULARY).frame(make_encoding()).pooled_position == 0


def test_every_network_that_encodes_can_frame() -> None:
    """Protocols are checked with `isinstance`, so a network without `frame` would also lose `embed`."""
    for slug in MODELS:
        cls = model_class(slug)
        if hasattr(cls, "encode"):
            assert callable(getattr(cls, "frame", None)), slug
    assert isinstance(make_gpt1(), Encoder)


@pytest.mark.parametrize(("task", "count"), [("classify", 2), ("entail", 1), ("similar", 3), ("choose", 2)])
def test_frames_with_wrong_number_of_texts_raise(task: str, count: int) -> None:
    with pytest.raises(DataError):
        resize_embeddings(make_gpt1(), 3).frames(task, [A] * count)


def test_unknown_frame_raises_unknown_name() -> None:
    with raises(UnknownName, name="translate"):
        make_gpt1().frames("translate", [A])
    with raises(UnknownName, name="translate"):
        combine("translate", torch.zeros(1, 1, 2))


def test_frames_for_task_accepts_any_frame_function() -> None:
    def bert(a: Encoding, b: Encoding | None = None) -> FramedText:
        return frame_texts([a] if b is None else [a, b], ((30,), (31, 31), (31,)))

    assert to_lists(frames_for_task(bert, "choose", [A, B, C]))[1] == [30, 1, 2, 3, 31, 31, 9, 31]


# ------------------------------------------------------------------------------------------------ cutting


def test_truncate_pair_shortens_the_longer_text() -> None:
    for a in range(9):
        for b in range(9):
            for room in range(2, 18):
                x, y = a, b
                while x + y > room:
                    x, y = (x - 1, y) if x > y else (x, y - 1)
                assert truncate_pair(a, b, room) == (x, y)


def test_frame_truncates_texts_at_their_end() -> None:
    network = resize_embeddings(make_gpt1(), 3)  # a window of 16: 14 for one text, 13 for two
    frame = network.frame(make_range(40))
    assert frame.ids.tolist() == [START, *range(14), EXTRACT]
    assert frame.text_spans == ((1, 15),)
    long_first = network.frame(make_range(40), B)
    assert long_first.ids.tolist() == [START, *range(11), DELIMITER, 7, 8, EXTRACT]
    assert long_first.text_spans == ((1, 12), (13, 15))
    long_second = network.frame(B, make_range(40))
    assert long_second.ids.tolist() == [START, 7, 8, DELIMITER, *range(11), EXTRACT]
    both = network.frame(make_range(20), make_range(20, 20))
    assert both.ids.tolist() == [START, *range(7), DELIMITER, *range(20, 26), EXTRACT]
    exact = network.frame(make_range(14))
    assert exact.text_spans == ((1, 15),)
    assert len(exact.ids) == 16


def test_truncated_frames_fit_the_window() -> None:
    for network in (resize_embeddings(make_gpt1(), 3), GPT2(GPT2Config(**SHAPE), VOCABULARY)):
        inputs, _ = collate(network.frames("choose", [make_range(40), make_range(30), B]), BEGIN)
        assert inputs.ids.shape[1] == 16
        network.encode(inputs)


def test_networks_without_positions_do_not_truncate() -> None:
    """A feed-forward network reads texts of any length although it looks back only a few words."""
    for network in (NPLM(NPLMConfig(), VOCABULARY), LSTM(RecurrentConfig(8), VOCABULARY)):
        frame = network.frame(make_range(40), make_range(30))
        assert len(frame.ids) == 72
        inputs, pooled_position = collate([frame], BEGIN)
        assert take_positions(network.encode(inputs)[0][-1], pooled_position).shape == (1, network.widths[-1])


def test_window_too_small_for_the_frame_raises() -> None:
    network = resize_embeddings(make_gpt1(window=4), 3)
    assert network.frame(A).text_spans == ((1, 3),)
    with raises(InvalidSetting, key="model.window"):
        network.frame(A, B)


# ------------------------------------------------------------------------------------------------ batches


def test_collate_pads_at_the_end() -> None:
    network = resize_embeddings(make_gpt1(), 3)
    inputs, pooled_position = collate([network.frame(A, B), network.frame(C)], pad=47)
    assert inputs.ids.tolist() == [
        [START, 1, 2, 3, DELIMITER, 7, 8, EXTRACT],
        [START, 9, EXTRACT, 47, 47, 47, 47, 47],
    ]
    assert inputs.token_mask is not None
    assert inputs.token_mask.tolist() == [[True] * 8, [True] * 3 + [False] * 5]
    assert inputs.segments is None
    assert pooled_position.tolist() == [7, 2]


def test_collate_pads_segments_and_mixed_segments_raise() -> None:
    long = FramedText(np.array([1, 2, 3]), 0, np.array([0, 1, 1]))
    short = FramedText(np.array([4]), 0, np.array([1]))
    inputs, pooled_position = collate([long, short], pad=9)
    assert inputs.segments is not None
    assert inputs.segments.tolist() == [[0, 1, 1], [1, 0, 0]]
    assert inputs.ids.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert pooled_position.tolist() == [0, 0]
    with pytest.raises(DataError):
        collate([long, FramedText(np.array([4]), 0)], pad=9)
    with pytest.raises(DataError):
        collate([], pad=9)


@pytest.mark.parametrize("kind", ["gpt1", "gpt2", "lstm"])
@torch.no_grad()
def test_batched_frames_equal_single_frames(kind: str) -> None:
    torch.manual_seed(5)
    result = {
        "gpt2": lambda: GPT2(GPT2Config(**SHAPE), VOCABULARY),
        "lstm": lambda: LSTM(RecurrentConfig(8), VOCABULARY),
    }
    network: Any = resize_embeddings(make_gpt1(), 3) if kind == "gpt1" else result[kind]().eval()
    frames = [network.frame(A, B), network.frame(C), network.frame(make_range(12)), network.frame(make_encoding(), A)]
    inputs, pooled_position = collate(frames, pad=3)
    together = take_positions(network.encode(inputs)[0][-1], pooled_position)
    for frame, vector in zip(frames, together, strict=True):
        layers, _ = network.encode(Inputs(torch.from_numpy(frame.ids)[None]))
        torch.testing.assert_close(vector, layers[-1][0, frame.pooled_position], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(together[0], together[1])


def test_combine_equals_hand_computation() -> None:
    vectors = torch.tensor([[[1.0, 2.0], [10.0, 20.0]], [[3.0, 4.0], [30.0, 40.0]]])  # two examples
    assert combine("similar", vectors).tolist() == [[11.0, 22.0], [33.0, 44.0]]
    assert combine("choose", vectors) is vectors
    assert combine("classify", vectors[:, :1]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert combine("entail", vectors[0, :1]).tolist() == [1.0, 2.0]


@torch.no_grad()
def test_similar_frame_is_symmetric() -> None:
    network = resize_embeddings(make_gpt1(), 3)

    def read(task: str, *texts: Encoding) -> torch.Tensor:
        inputs, pooled_position = collate(network.frames(task, texts), BEGIN)
        return combine(task, take_positions(network.encode(inputs)[0][-1], pooled_position))

    torch.testing.assert_close(read("similar", A, B), read("similar", B, A))
    assert not torch.allclose(read("entail", A, B), read("entail", B, A), atol=1e-2)
    assert read("choose", A, B, C, make_encoding(4)).shape == (3, 24)


def test_next_token_targets_skip_frame_tokens() -> None:
    network = resize_embeddings(make_gpt1(), 3)
    inputs, _ = collate([network.frame(A, B), network.frame(C)], pad=47)
    skip = IGNORE
    assert next_token_targets(inputs, SIZE).tolist() == [
        [1, 2, 3, skip, 7, 8, skip, skip],
        [9, skip, skip, skip, skip, skip, skip, skip],
    ]
    alone, _ = collate([GPT2(GPT2Config(**SHAPE), VOCABULARY).frame(A, B)], pad=47)
    assert next_token_targets(alone, SIZE).tolist() == [[1, 2, 3, END, 7, 8, skip]]
    assert next_token_targets(Inputs(alone.ids), SIZE).tolist() == [[1, 2, 3, END, 7, 8, skip]]
    assert next_token_targets(Inputs(torch.tensor([[1, START, END]])), SIZE).tolist() == [[skip, END, skip]]
