"""The forward and backward language models of ELMo: what each sees, and their joint loss."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.causal import Rows
from nextword.batching.token_stream import Stream
from nextword.core.errors import DataError, InvalidSetting, Unsupported
from nextword.core.types import Inputs, Vocabulary
from nextword.lm.causal import CausalLM
from nextword.models.elmo import ELMo, _without_spaces, reversed_positions
from nextword.objectives.bidirectional import BidirectionalObjective, forward_and_backward_batches
from nextword.tokenizers import vocabulary
from nextword.tokenizers.ptb_words import Lexicon
from nextword.tokenizers.words import Words
from tests.support.errors import raises
from tests.support.small_job import draw_walk, make_small_job

WORDS = ["the", "cat", "sat", "on", "mat", "a", "dog", "ran", "far", "away"]
SMALL: dict[str, Any] = {
    "width": 6,
    "cell_size": 10,
    "dropout": 0.0,
    "characters": {"filters": [[1, 4], [3, 8]], "character_width": 5, "highway": 1},
}


def make_elmo(**settings: Any) -> tuple[ELMo, Words]:
    torch.manual_seed(5)
    tokenizer = Words(WORDS, lines=False)
    network = ELMo(ELMo.Config(**{**SMALL, **settings}), vocabulary(tokenizer, spellings=True))
    return network.eval(), tokenizer


IDS = torch.tensor([[1, 2, 3, 4, 5, 2, 6, 1], [1, 7, 8, 9, 10, 11, 3, 1]])


def compute_log_probs(network: ELMo, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log p of every word at each predicted position, of the forward and of the backward model."""
    with torch.no_grad():
        layers, _ = network.both(Inputs(torch.cat([ids, ids.flip(1)])), None)
        forward, backward = network.readout.log_probs(layers[-1]).chunk(2)
    return forward[:, :-1], backward.flip(1)[:, 1:]  # of positions 1 … T−1, and of positions 0 … T−2


@pytest.mark.parametrize("at", range(8))
def test_neither_side_sees_the_future(at: int) -> None:
    network, _ = make_elmo()
    other = IDS.clone()
    other[:, at] = torch.tensor([9, 2])
    (before, after), (changed, turned_round) = compute_log_probs(network, IDS), compute_log_probs(network, other)
    for place in range(1, 8):  # the forward model depends only on earlier positions
        same = torch.equal(before[:, place - 1], changed[:, place - 1])
        assert same == (at >= place), place
    for place in range(7):  # the backward model depends only on later positions
        same = torch.equal(after[:, place], turned_round[:, place])
        assert same == (at <= place), place


def test_gradient_of_one_direction_does_not_reach_the_other() -> None:
    network, _ = make_elmo()
    layers, _ = network.both(Inputs(torch.cat([IDS, IDS.flip(1)])), None)
    layers[-1][: len(IDS)].sum().backward()
    for layer in network.layers:
        assert layer.weight_hh.grad[0].any()  # type: ignore[union-attr]
        assert not layer.weight_hh.grad[1].any()  # type: ignore[union-attr]


def test_both_directions_at_once_equal_each_alone() -> None:
    network, _ = make_elmo()
    with torch.no_grad():
        together, _ = network.both(Inputs(torch.cat([IDS, IDS.flip(1)])), None)
        forward, _ = network.hidden(Inputs(IDS), None)
        backward, _ = network.backward_model().hidden(Inputs(IDS.flip(1)), None)
        words, _ = network.encode(Inputs(IDS))
    for both, item, other, pair in zip(together, forward, backward, words, strict=True):
        torch.testing.assert_close(both, torch.cat([item, other]))
        torch.testing.assert_close(pair, torch.cat([item, other.flip(1)], -1))
    torch.testing.assert_close(words[0][..., :6], words[0][..., 6:])  # characters are read independently of direction


def test_joint_loss_equals_sum_of_both_directions() -> None:
    """The joint loss J, computed by scoring each direction separately."""
    network, _ = make_elmo()
    rows = torch.cat([IDS, IDS.flip(1)])
    batch = replace(next(forward_and_backward_batches(Rows(2, 7), IDS.numpy().ravel(), 0)), reset_state=True)
    assert torch.equal(batch.inputs.ids, rows[:, :-1])
    assert torch.equal(batch.targets, rows[:, 1:])
    loss = BidirectionalObjective({"rows": 2, "length": 7}).loss(network, batch, None)
    lengths = torch.tensor([8, 8])
    with torch.no_grad():
        forward, _ = network.score(IDS, lengths, None)
        backward, _ = network.backward_model().score(IDS.flip(1), lengths, None)
    torch.testing.assert_close(loss.breakdown["forward"][0], -forward.sum())
    torch.testing.assert_close(loss.breakdown["backward"][0], -backward.sum())
    assert loss.count == 28
    assert [count for _, count in loss.breakdown.values()] == [14, 14]
    torch.testing.assert_close(loss.value, loss.nats / 28)
    summed = BidirectionalObjective({"rows": 2, "length": 7}, reduce="sequence").loss(network, batch, None)
    torch.testing.assert_close(summed.value, loss.nats / 4)


def test_forward_and_backward_batches_read_from_both_ends() -> None:
    """As the objective reads them."""
    results = list(islice(forward_and_backward_batches(Rows(1, 3), np.arange(7), 0), 3))
    shown = [(batch.inputs.ids.tolist(), batch.targets.tolist(), batch.reset_state) for batch in results]
    assert shown == [
        ([[0, 1, 2], [6, 5, 4]], [[1, 2, 3], [5, 4, 3]], True),
        ([[3, 4, 5], [3, 2, 1]], [[4, 5, 6], [2, 1, 0]], False),
        ([[0, 1, 2], [6, 5, 4]], [[1, 2, 3], [5, 4, 3]], True),
    ]


def test_state_carried_over_batches_equals_one_long_sequence() -> None:
    network, _ = make_elmo()
    text = Stream.from_ids(np.random.default_rng(1).integers(0, 12, 42))
    short, full = BidirectionalObjective({"rows": 2, "length": 4}), BidirectionalObjective({"rows": 2, "length": 20})
    state, nats = None, {"forward": 0.0, "backward": 0.0}
    with torch.no_grad():
        for batch in islice(short.batches(text, 0, 0), short.batches_per_epoch(text)):
            loss = short.loss(network, batch, None if batch.reset_state else state)
            state = loss.state
            for side, (part, _) in loss.breakdown.items():
                nats[side] += float(part)
        (batch,) = islice(full.batches(text, 0, 0), full.batches_per_epoch(text))
        once = full.loss(network, batch, None)
    for side, (part, _) in once.breakdown.items():
        assert nats[side] == pytest.approx(float(part), rel=1e-5)


def test_layers_are_independent_of_padding_and_other_rows() -> None:
    network, _ = make_elmo()
    rows = [[1, 2, 3, 1], [1, 5, 6, 7, 8, 9, 1]]
    ids = torch.zeros(2, 7, dtype=torch.long)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)], padding[i, : len(row)] = torch.tensor(row), True
    with torch.no_grad():
        together, _ = network.encode(Inputs(ids, token_mask=padding))
        for i, row in enumerate(rows):
            alone, _ = network.encode(Inputs(torch.tensor([row])))
            for a, b in zip(together, alone, strict=True):
                torch.testing.assert_close(a[i, : len(row)], b[0])
    assert reversed_positions(padding, ids)[0].tolist() == [3, 2, 1, 0, 4, 5, 6]


def test_word_in_two_contexts_has_two_vectors() -> None:
    """The contextual layers differ; the character layer does not."""
    network, tokenizer = make_elmo()
    (result,) = CausalLM(network, tokenizer).embed_words(["the cat sat on the mat"], "all")
    first, second = result.vectors[:, 0], result.vectors[:, 4]
    torch.testing.assert_close(first[0], second[0])
    assert not torch.allclose(first[1], second[1])
    assert not torch.allclose(first[2], second[2])
    network, _ = make_elmo()
    chinese = Words(["画", "我", "一幅"], lines=False)
    torch.manual_seed(5)
    network = ELMo(ELMo.Config(**SMALL), vocabulary(chinese, spellings=True)).eval()
    (result,) = CausalLM(network, chinese).embed_words([["我", "画", "画"]], "all")
    torch.testing.assert_close(result.vectors[0, 1], result.vectors[0, 2])
    assert not torch.allclose(result.vectors[1, 1], result.vectors[1, 2])


def test_unseen_words_have_vectors_from_their_characters() -> None:
    network, tokenizer = make_elmo()
    lm = CausalLM(network, tokenizer)
    first, other = lm.embed_words(["the zebra sat", "the okapi sat"], 0)
    assert first.words == ["the", "zebra", "sat"]
    assert not torch.allclose(first.vectors[1], other.vectors[1])
    torch.testing.assert_close(first.vectors[0], other.vectors[0])
    known = lm.embed_words([["the", "cat"]], "all")[0].vectors
    spelled = network.spell([b"the", b"cat"])
    ids = torch.tensor([[1, network.known, network.known + 1, 1]])
    with torch.no_grad():
        layers, _ = network.encode(Inputs(ids, characters=spelled))
    torch.testing.assert_close(torch.stack([layer[0, 1:3] for layer in layers]), known)
    texts = lm.embed(["the zebra sat", "the okapi sat"])
    assert not torch.allclose(texts[0], texts[1])


def test_embed_words_truncates_long_words_and_accepts_empty_texts() -> None:
    network, tokenizer = make_elmo()
    lm = CausalLM(network, tokenizer)
    long, longer, shorter = lm.embed_words([["x" * 48], ["x" * 48 + "yz"], ["x" * 47]], "all")
    torch.testing.assert_close(long.vectors, longer.vectors)  # 48 of 50 positions are characters
    assert not torch.allclose(long.vectors[0], shorter.vectors[0])
    nothing, none, something = lm.embed_words(["", [], "cat"], "all")
    assert nothing.vectors.shape == none.vectors.shape == (3, 0, 12)
    assert something.vectors.shape == (3, 1, 12)
    assert torch.isfinite(lm.embed(["", "cat"])).all()


def test_words_beyond_the_output_vocabulary_score_as_unknown() -> None:
    network, _ = make_elmo(output_words=5)
    log_p, _ = network.step(torch.tensor([8]), network.initial(1))
    assert log_p.shape == (1, 12)
    assert log_p[:, 5:].max() == -torch.inf
    assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-5)
    with torch.no_grad():
        rare, _ = network.score(torch.tensor([[1, 9]]), torch.tensor([2]), None)
        unknown, _ = network.score(torch.tensor([[1, 0]]), torch.tensor([2]), None)
        common, _ = network.score(torch.tensor([[1, 3]]), torch.tensor([2]), None)
    assert rare == unknown != common


def test_spellings_omit_the_leading_space() -> None:
    assert _without_spaces([b"\n", b" cat", b","]) == [b"\n", b"cat", b","]
    pieces = [b" the", b"the"]  # subwords, whose space is part of the piece
    assert _without_spaces(pieces) == pieces
    network, _ = make_elmo()
    spelled = network.embedding.cnn.spellings[3].tolist()
    assert spelled[1:4] == list(b"cat")


def test_unsupported_use_raises() -> None:
    with raises(InvalidSetting, key="model.cell_clip"):
        ELMo.Config(cell_clip=-1.0)
    with raises(InvalidSetting, key="characters.activation"):
        make_elmo(characters={"activation": "gelu"})
    with pytest.raises(DataError):
        ELMo(ELMo.Config(**SMALL), Vocabulary(12, 1))
    with raises(InvalidSetting, key="batches.kind"):
        BidirectionalObjective({"kind": "blocks", "rows": 2, "length": 7})
    with raises(InvalidSetting, key="batches.row"):
        BidirectionalObjective({"row": 2})
    silent, tokenizer = make_elmo(readout={"kind": "none"})
    lm = CausalLM(silent, tokenizer)
    assert lm.can == {"embed"}
    with raises(Unsupported, ability="score"):
        lm.score("the cat")


def test_bidirectional_objective_with_unidirectional_model_raises(tmp_path: Any) -> None:
    phase = {"batches": {"rows": 2, "length": 5}, "objective": {"kind": "bidirectional"}, "steps": 2}
    job = make_small_job(tmp_path / "run", "lstm", {"width": 4}, 12, draw_walk(11, 100), **phase)
    from nextword.training.trainer import run_gradient_phase

    with raises(Unsupported, ability="bidirectional"):
        list(run_gradient_phase(job))


def test_lexicon_with_lines_tokenizes_line_ends_and_hyphens() -> None:
    tokenizer = Lexicon(["a", "b", "c-d"], lower=False, lines=True, hyphens=True)
    text = "\na\n\nb e-f,\nc-d\n"
    encoding = tokenizer.encode(text)
    assert encoding.ids.tolist() == [2, 1, 3, 0, 0, 1, 4]
    assert [text[a:b] for a, b in encoding.spans] == ["a", "\n", "b", "e-f", ",", "\n", "c-d"]
    assert encoding.words.tolist() == [0, 0, 1, 2, 2, 2, 3]


def test_lexicon_encode_batch_equals_single_texts() -> None:
    words = ["a", "b", "c-d", "do", "n't", ",", "é"]
    texts = ["\na\n\nb e-f,\nc-d\n", "", "\n \n", "don't (étude)…", "\u3000é b\xa0c\u2028d\n", "a" * 20_000, "b\na"]
    for lines in (False, True):
        tokenizer = Lexicon(words, lower=False, lines=lines, hyphens=True)
        for _ in range(2):
            for many, text in zip(tokenizer.encode_batch(texts), map(tokenizer.encode, texts), strict=True):
                assert many.ids.tolist() == text.ids.tolist()
                assert many.spans.tolist() == text.spans.tolist()
                assert many.words.tolist() == text.words.tolist()
