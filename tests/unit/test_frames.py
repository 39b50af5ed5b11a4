"""Frames written out token by token, cut, put in batches; and a network that grows without changing what it knew."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

import nextword
from nextword.contract import IGNORE, Encoder, Encoding, Framed, Inputs, NextwordError, Unsupported, Vocabulary
from nextword.models import MODELS, count_parameters, model_class
from nextword.models.frames import TASKS, arrange, collate, combine, dress, fit, following, grow, ready, spoken
from nextword.models.gpt1 import GPT1, GPT1Config
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.nplm import NPLM, NPLMConfig
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.recipe import load_recipe
from nextword.tokens import train_tokenizer, vocabulary
from nextword.weights import convert
from nextword.weights.run import create_run

SIZE = 50
BEGIN, END = 48, 49
START, DELIMITER, EXTRACT = SIZE, SIZE + 1, SIZE + 2
VOCABULARY = Vocabulary(SIZE, BEGIN, end=END)
SHAPE = {"width": 24, "layers": 2, "heads": 3, "window": 16, "dropout": 0.0}


def text(*ids: int) -> Encoding:
    n = len(ids)
    return Encoding(np.array(ids, np.int64), np.zeros((n, 2), np.int64), np.zeros(n, np.int64))


def run_of(n: int, first: int = 0) -> Encoding:
    return text(*range(first, first + n))


def gpt1(**more: Any) -> GPT1:
    """Every parameter of some size, so that none can hide."""
    torch.manual_seed(5)
    network = GPT1(GPT1Config(**{**SHAPE, **more}), VOCABULARY)
    for p in network.parameters():
        nn.init.normal_(p, std=0.4)
    return network.eval()


def shown(frames: list[Framed]) -> list[list[int]]:
    return [frame.ids.tolist() for frame in frames]


# ------------------------------------------------------------------------------------------------ framings


A, B, C = text(1, 2, 3), text(7, 8), text(9)


def test_gpt1_frames_token_by_token() -> None:
    network = grow(gpt1(), 3)
    assert shown(network.frames("classify", [A])) == [[START, 1, 2, 3, EXTRACT]]
    assert shown(network.frames("entail", [A, B])) == [[START, 1, 2, 3, DELIMITER, 7, 8, EXTRACT]]
    assert shown(network.frames("similar", [A, B])) == [
        [START, 1, 2, 3, DELIMITER, 7, 8, EXTRACT],
        [START, 7, 8, DELIMITER, 1, 2, 3, EXTRACT],
    ]
    assert shown(network.frames("choose", [A, B, C])) == [
        [START, 1, 2, 3, DELIMITER, 7, 8, EXTRACT],
        [START, 1, 2, 3, DELIMITER, 9, EXTRACT],
    ]


@pytest.mark.parametrize("network", [GPT2(GPT2Config(**SHAPE), VOCABULARY), LSTM(RecurrentConfig(8), VOCABULARY)])
def test_other_networks_frame_with_what_their_vocabulary_has(network: Any) -> None:
    assert shown(network.frames("classify", [A])) == [[BEGIN, 1, 2, 3]]
    assert shown(network.frames("entail", [A, B])) == [[BEGIN, 1, 2, 3, END, 7, 8]]
    assert shown(network.frames("similar", [A, B])) == [[BEGIN, 1, 2, 3, END, 7, 8]]
    assert shown(network.frames("choose", [A, B, C])) == [[BEGIN, 1, 2, 3, END, 7, 8], [BEGIN, 1, 2, 3, END, 9]]


def test_without_an_end_nothing_stands_between() -> None:
    network = GPT2(GPT2Config(**SHAPE), Vocabulary(SIZE, BEGIN))
    frame = network.frame(A, B)
    assert frame.ids.tolist() == [BEGIN, 1, 2, 3, 7, 8]
    assert frame.parts == ((1, 4), (4, 6))


def test_the_last_speaks_and_parts_are_where_the_texts_lie() -> None:
    for network in (grow(gpt1(), 3), GPT2(GPT2Config(**SHAPE), VOCABULARY)):
        for frame, texts in ((network.frame(A), [A]), (network.frame(A, B), [A, B]), (network.frame(B, A), [B, A])):
            assert frame.speaks == len(frame.ids) - 1
            assert frame.segments is None
            assert [frame.ids[i:j].tolist() for i, j in frame.parts] == [t.ids.tolist() for t in texts]


def test_empty_texts_have_empty_parts() -> None:
    network = grow(gpt1(), 3)
    assert network.frame(text()).ids.tolist() == [START, EXTRACT]
    frame = network.frame(A, text())
    assert frame.ids.tolist() == [START, 1, 2, 3, DELIMITER, EXTRACT]
    assert frame.parts == ((1, 4), (5, 5))
    assert GPT2(GPT2Config(**SHAPE), VOCABULARY).frame(text()).speaks == 0


def test_every_network_of_today_that_encodes_can_frame() -> None:
    """Protocols are looked up by `isinstance`: one that lost `frame` would lose `embed` with it."""
    for slug in MODELS:
        cls = model_class(slug)
        if hasattr(cls, "encode"):
            assert callable(getattr(cls, "frame", None)), slug
    assert isinstance(gpt1(), Encoder)


@pytest.mark.parametrize(("task", "count"), [("classify", 2), ("entail", 1), ("similar", 3), ("choose", 2)])
def test_a_task_says_how_many_texts_it_is_about(task: str, count: int) -> None:
    with pytest.raises(NextwordError, match=f"'{task}' is about {TASKS[task][0]}, but {count} were given"):
        grow(gpt1(), 3).frames(task, [A] * count)


def test_unknown_tasks_are_named_with_the_known() -> None:
    with pytest.raises(NextwordError, match=r"'translate'.*classify, entail, similar, choose"):
        gpt1().frames("translate", [A])
    with pytest.raises(NextwordError, match="'translate'"):
        combine("translate", torch.zeros(1, 1, 2))


def test_arrange_serves_any_way_to_frame() -> None:
    def bert(a: Encoding, b: Encoding | None = None) -> Framed:
        return dress([a] if b is None else [a, b], ((30,), (31, 31), (31,)))

    assert shown(arrange(bert, "choose", [A, B, C]))[1] == [30, 1, 2, 3, 31, 31, 9, 31]


# ------------------------------------------------------------------------------------------------ cutting


def test_the_longer_loses_until_both_fit() -> None:
    for a in range(9):
        for b in range(9):
            for room in range(2, 18):
                x, y = a, b
                while x + y > room:
                    x, y = (x - 1, y) if x > y else (x, y - 1)
                assert fit(a, b, room) == (x, y)


def test_texts_are_cut_at_their_end_to_the_window() -> None:
    network = grow(gpt1(), 3)  # a window of 16: 14 for one text, 13 for two
    frame = network.frame(run_of(40))
    assert frame.ids.tolist() == [START, *range(14), EXTRACT]
    assert frame.parts == ((1, 15),)
    long_first = network.frame(run_of(40), B)
    assert long_first.ids.tolist() == [START, *range(11), DELIMITER, 7, 8, EXTRACT]
    assert long_first.parts == ((1, 12), (13, 15))
    long_second = network.frame(B, run_of(40))
    assert long_second.ids.tolist() == [START, 7, 8, DELIMITER, *range(11), EXTRACT]
    both = network.frame(run_of(20), run_of(20, 20))
    assert both.ids.tolist() == [START, *range(7), DELIMITER, *range(20, 26), EXTRACT]
    exact = network.frame(run_of(14))
    assert exact.parts == ((1, 15),)
    assert len(exact.ids) == 16


def test_what_is_cut_can_be_read_at_once() -> None:
    for network in (grow(gpt1(), 3), GPT2(GPT2Config(**SHAPE), VOCABULARY)):
        inputs, _ = collate(network.frames("choose", [run_of(40), run_of(30), B]), BEGIN)
        assert inputs.ids.shape[1] == 16
        network.encode(inputs)


def test_where_no_position_ends_nothing_is_cut() -> None:
    """A network of n-grams looks back a few words, yet reads texts of any length."""
    for network in (NPLM(NPLMConfig(), VOCABULARY), LSTM(RecurrentConfig(8), VOCABULARY)):
        frame = network.frame(run_of(40), run_of(30))
        assert len(frame.ids) == 72
        inputs, speaks = collate([frame], BEGIN)
        assert spoken(network.encode(inputs)[0][-1], speaks).shape == (1, network.widths[-1])


def test_a_window_that_holds_no_text_is_refused() -> None:
    network = grow(gpt1(window=4), 3)
    assert network.frame(A).parts == ((1, 3),)
    with pytest.raises(NextwordError, match="window is 4 tokens and the frame itself takes 3"):
        network.frame(A, B)


# ------------------------------------------------------------------------------------------------ batches


def test_a_batch_is_padded_at_the_end() -> None:
    network = grow(gpt1(), 3)
    inputs, speaks = collate([network.frame(A, B), network.frame(C)], pad=47)
    assert inputs.ids.tolist() == [
        [START, 1, 2, 3, DELIMITER, 7, 8, EXTRACT],
        [START, 9, EXTRACT, 47, 47, 47, 47, 47],
    ]
    assert inputs.padding is not None
    assert inputs.padding.tolist() == [[True] * 8, [True] * 3 + [False] * 5]
    assert inputs.segments is None
    assert speaks.tolist() == [7, 2]


def test_segments_are_padded_too_and_must_be_all_or_none() -> None:
    long = Framed(np.array([1, 2, 3]), 0, np.array([0, 1, 1]))
    short = Framed(np.array([4]), 0, np.array([1]))
    inputs, speaks = collate([long, short], pad=9)
    assert inputs.segments is not None
    assert inputs.segments.tolist() == [[0, 1, 1], [1, 0, 0]]
    assert inputs.ids.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert speaks.tolist() == [0, 0]
    with pytest.raises(NextwordError, match="1 of 2 frames have segments"):
        collate([long, Framed(np.array([4]), 0)], pad=9)
    with pytest.raises(NextwordError, match="no frame"):
        collate([], pad=9)


@pytest.mark.parametrize("kind", ["gpt1", "gpt2", "lstm"])
@torch.no_grad()
def test_a_batch_says_what_each_frame_says_alone(kind: str) -> None:
    torch.manual_seed(5)
    made = {"gpt2": lambda: GPT2(GPT2Config(**SHAPE), VOCABULARY), "lstm": lambda: LSTM(RecurrentConfig(8), VOCABULARY)}
    network: Any = grow(gpt1(), 3) if kind == "gpt1" else made[kind]().eval()
    frames = [network.frame(A, B), network.frame(C), network.frame(run_of(12)), network.frame(text(), A)]
    inputs, speaks = collate(frames, pad=3)
    together = spoken(network.encode(inputs)[0][-1], speaks)
    for frame, vector in zip(frames, together, strict=True):
        layers, _ = network.encode(Inputs(torch.from_numpy(frame.ids)[None]))
        torch.testing.assert_close(vector, layers[-1][0, frame.speaks], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(together[0], together[1])


def test_combining_by_hand() -> None:
    vectors = torch.tensor([[[1.0, 2.0], [10.0, 20.0]], [[3.0, 4.0], [30.0, 40.0]]])  # two examples of two frames
    assert combine("similar", vectors).tolist() == [[11.0, 22.0], [33.0, 44.0]]
    assert combine("choose", vectors) is vectors
    assert combine("classify", vectors[:, :1]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert combine("entail", vectors[0, :1]).tolist() == [1.0, 2.0]


@torch.no_grad()
def test_likeness_does_not_depend_on_the_order() -> None:
    network = grow(gpt1(), 3)

    def read(task: str, *texts: Encoding) -> torch.Tensor:
        inputs, speaks = collate(network.frames(task, texts), BEGIN)
        return combine(task, spoken(network.encode(inputs)[0][-1], speaks))

    torch.testing.assert_close(read("similar", A, B), read("similar", B, A))
    assert not torch.allclose(read("entail", A, B), read("entail", B, A), atol=1e-2)
    assert read("choose", A, B, C, text(4)).shape == (3, 24)


def test_what_follows_is_the_texts_own_tokens() -> None:
    network = grow(gpt1(), 3)
    inputs, _ = collate([network.frame(A, B), network.frame(C)], pad=47)
    skip = IGNORE
    assert following(inputs, SIZE).tolist() == [
        [1, 2, 3, skip, 7, 8, skip, skip],
        [9, skip, skip, skip, skip, skip, skip, skip],
    ]
    alone, _ = collate([GPT2(GPT2Config(**SHAPE), VOCABULARY).frame(A, B)], pad=47)
    assert following(alone, SIZE).tolist() == [[1, 2, 3, END, 7, 8, skip]]
    assert following(Inputs(alone.ids), SIZE).tolist() == [[1, 2, 3, END, 7, 8, skip]]
    assert following(Inputs(torch.tensor([[1, START, END]])), SIZE).tolist() == [[skip, END, skip]]


# ------------------------------------------------------------------------------------------------ growing


@torch.no_grad()
def test_growing_changes_no_bit_of_what_was_known() -> None:
    network = gpt1()
    ids, lengths = torch.randint(0, SIZE, (3, 15)), torch.tensor([15, 15, 15])
    h, _ = network.encode(Inputs(ids))
    before = (
        *h,
        network.readout.log_probs(h[-1].flatten(0, 1)),
        network.score(ids, lengths, network.initial(3))[0],
        network.step(ids[:, 0], network.initial(3))[0],
        network.embedding.weight.clone(),
    )
    network.steps.made.append(object())  # type: ignore[arg-type]  # recorded on a GPU, without room for new tokens
    assert grow(network, 3) is network
    assert not network.steps.made
    h, _ = network.encode(Inputs(ids))
    after = (
        *h,
        network.readout.log_probs(h[-1].flatten(0, 1)),
        network.score(ids, lengths, network.initial(3))[0],
        network.step(ids[:, 0], network.initial(3))[0],
        network.embedding.weight,
    )
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old, new)
    assert after[-2].shape == (3, SIZE)  # nothing new is ever predicted
    assert network.config == dataclasses.replace(GPT1Config(**SHAPE), extra=3)
    assert network.vocabulary.size == SIZE


@torch.no_grad()
def test_the_new_tokens_have_rows_of_their_own() -> None:
    network = grow(gpt1(), 3)
    ids = torch.tensor([[START, 1, EXTRACT, SIZE - 1]])
    rows = torch.stack(
        [network.extra.weight[0], network.embedding.weight[1], network.extra.weight[2], network.embedding.weight[-1]]
    )
    want = rows + network.positions.weight[:4]
    assert torch.equal(network.encode(Inputs(ids))[0][0][0], want)
    state = network.initial(1)
    for i in range(4):  # and one by one, as they are read with a state
        layers, state = network.encode(Inputs(ids[:, i : i + 1]), state)
        assert torch.equal(layers[0][0, 0], want[i])


def test_new_rows_are_drawn_as_the_paper_draws() -> None:
    network = gpt1()
    grow(network, 2000, torch.Generator().manual_seed(1))
    assert network.extra.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert network.extra.weight.mean().item() == pytest.approx(0, abs=5e-4)
    again = grow(gpt1(), 2000, torch.Generator().manual_seed(1))
    assert torch.equal(again.extra.weight, network.extra.weight)
    kept = network.extra.weight.detach().clone()
    grow(network, 5)
    assert network.config.extra == 2005
    assert torch.equal(network.extra.weight[:2000], kept)
    assert count_parameters(network) == count_parameters(gpt1()) + 2005 * 24
    torch.manual_seed(2)
    made = GPT1(GPT1Config(**SHAPE, extra=2000), VOCABULARY)  # from the start
    assert made.extra is not None
    assert made.extra.weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_gradients_reach_the_new_rows_and_the_old() -> None:
    network = grow(gpt1(), 3)
    inputs, speaks = collate(network.frames("similar", [A, B]), BEGIN)
    combine("similar", spoken(network.encode(inputs)[0][-1], speaks)).square().sum().backward()
    assert network.extra.weight.grad is not None
    assert (network.extra.weight.grad.abs().sum(1) > 0).all()
    touched = network.embedding.weight.grad.abs().sum(1) > 0
    assert touched.nonzero().flatten().tolist() == [1, 2, 3, 7, 8]


def test_a_step_on_a_task_and_its_language_loss_moves_everything() -> None:
    """L₃ = L₂ + λ L₁ (eq. 5), λ = 0.5, as fine-tuning will put the parts together."""
    network = grow(gpt1(), 3).train()
    head = nn.Linear(24, 2)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], 0.01)
    inputs, speaks = collate([network.frame(A, B), network.frame(B, C)], BEGIN)
    losses = []
    for _ in range(25):
        h = network.encode(inputs)[0][-1]
        targets = following(inputs, SIZE)
        language = network.readout.total(h.flatten(0, 1), targets.flatten()) / (targets != IGNORE).sum()
        loss = F.cross_entropy(head(spoken(h, speaks)), torch.tensor([0, 1])) + 0.5 * language
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_ready_grows_once_and_only_where_it_must() -> None:
    network = ready(gpt1())
    rows = network.extra.weight
    assert network.config.extra == 3
    assert ready(network).extra.weight is rows
    other = GPT2(GPT2Config(**SHAPE), VOCABULARY)
    assert ready(other) is other


def test_what_cannot_grow_says_why() -> None:
    with pytest.raises(NextwordError, match=r"extra = 0, and its frames need 3.*ready\(network\)"):
        gpt1().frame(A)
    with pytest.raises(Unsupported, match="GPT2 has no room"):
        grow(GPT2(GPT2Config(**SHAPE), VOCABULARY), 3)
    with pytest.raises(NextwordError, match="by -1"):
        grow(gpt1(), -1)
    with pytest.raises(Unsupported, match="8 bits"):
        grow(GPT1(GPT1Config(**SHAPE, bits=8), VOCABULARY), 3)
    with pytest.raises(NextwordError, match="extra = -1"):
        GPT1Config(**SHAPE, extra=-1)
    network = gpt1()
    assert grow(network, 0).config.extra == 0
    assert network.extra is None


# ------------------------------------------------------------------------------------------------ files


def saved(folder: Path, network: Any, tokenizer: Any, *changes: str) -> Any:
    recipe = load_recipe("gpt1/tiny", ["tokenizer.size=300", *changes])
    create_run(folder, recipe, tokenizer, lambda place: network)
    return nextword.load(folder, "cpu")


@pytest.fixture(scope="module")
def words() -> Any:
    return train_tokenizer({"kind": "classic-bpe", "size": 300}, ["the king of a land went to see his house " * 20])


def tiny(tokenizer: Any) -> GPT1:
    torch.manual_seed(1)
    return GPT1(GPT1Config(**load_recipe("gpt1/tiny").model), vocabulary(tokenizer)).eval()


@torch.no_grad()
def test_a_grown_run_is_saved_and_loaded(tmp_path: Path, words: Any) -> None:
    plain = saved(tmp_path / "plain", tiny(words), words)
    network = ready(tiny(words))
    grown = saved(tmp_path / "grown", network, words, "model.extra=3")
    assert grown.network.config.extra == 3
    assert grown.parameters == plain.parameters + 3 * 48
    assert grown.score("the king went home") == plain.score("the king went home")
    a, b = words.encode_batch(["the king", "his house"])
    here, there = network.frame(a, b), grown.network.frame(a, b)
    assert here.ids.tolist() == there.ids.tolist() == [len(words), *a.ids, len(words) + 1, *b.ids, len(words) + 2]
    inputs, _ = collate([here], words.begin)
    for ours, theirs in zip(network.encode(inputs)[0], grown.network.encode(inputs)[0], strict=True):
        assert torch.equal(ours, theirs)
    (tmp_path / "torn").mkdir()
    network.save(tmp_path / "torn")
    with pytest.raises(NextwordError, match=r"does not fit its recipe: extra\.weight"):  # saved grown, described as not
        GPT1.load(tmp_path / "torn", plain.network.config, plain.network.vocabulary)


@torch.no_grad()
def test_in_eight_bits_a_grown_run_still_frames(tmp_path: Path, words: Any) -> None:
    network = ready(tiny(words))
    saved(tmp_path / "grown", network, words, "model.extra=3")
    convert(tmp_path / "grown", tmp_path / "small", ["model.bits=8"])
    small = nextword.load(tmp_path / "small", "cpu").network
    inputs, speaks = collate([small.frame(words.encode("the king"))], words.begin)
    near = spoken(small.encode(inputs)[0][-1], speaks)
    torch.testing.assert_close(near, spoken(network.encode(inputs)[0][-1], speaks), rtol=0.1, atol=0.1)


def test_folders_of_others_are_as_they_were_and_never_lose_tokens_silently(tmp_path: Path, words: Any) -> None:
    plain, grown = tiny(words), ready(tiny(words))
    saved(tmp_path / "plain", plain, words)
    saved(tmp_path / "grown", grown, words, "model.extra=3")
    convert(tmp_path / "plain", tmp_path / "folder", to="huggingface")
    convert(tmp_path / "folder", tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == plain.state_dict().keys()
    assert all(torch.equal(back[name], t) for name, t in plain.state_dict().items())
    with pytest.raises(Unsupported, match="extra = 3"):
        convert(tmp_path / "grown", tmp_path / "lost", to="huggingface")
    assert not (tmp_path / "lost").exists()
