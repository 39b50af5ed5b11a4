"""Models that see both sides on plain strings: words for blanks, pseudo-likelihoods, vectors."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword.batching.prepare import Stream
from nextword.contract import PSEUDO, Inputs, NextwordError, Unsupported
from nextword.embedding import framed, mix_of
from nextword.evaluation.likelihood import evaluate_stream
from nextword.evaluation.tasks.completions import likelihoods
from nextword.generation.blanks import HIDDEN, Pieces, around, blank_words
from nextword.infilling import TwoSided
from nextword.language_model import Causal, of_network
from nextword.models.albert import ALBERT
from nextword.models.bert import BERT
from nextword.models.rnn import GRU
from nextword.models.roberta import RoBERTa
from nextword.models.xlnet import XLNet
from nextword.tokens import train_tokenizer, vocabulary

TALE = ["the cat sat on the mat and the dog sat by the door .", "a king (of old) went to see his house, and slept."]
KINDS: dict[str, dict[str, Any]] = {
    "wordpiece": {"kind": "wordpiece", "size": 90},
    "bpe": {"kind": "bpe", "size": 300, "marks": True},
    "unigram": {"kind": "unigram", "size": 60, "marks": True},
}
TOKENIZERS = {name: train_tokenizer(spec, TALE * 20) for name, spec in KINDS.items()}
PAIRS = [(BERT, "wordpiece"), (RoBERTa, "bpe"), (ALBERT, "unigram")]
TEXTS = ["the cat sat", "", "a king sat by the door and the cat slept", "dog"]


def lively(cls: Any, tokenizer: Any, **config: Any) -> Any:
    """A network whose predictions differ: fresh weights, made larger."""
    torch.manual_seed(3)
    sizes = {"width": 16, "layers": 2, "heads": 2, "dropout": 0.0, **config}
    network = cls(cls.Config(**sizes), vocabulary(tokenizer)).eval()
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 2:
                weight.mul_(12)
    return network


def model(cls: Any = BERT, kind: str = "wordpiece", window: int = 24, **rest: Any) -> TwoSided:
    lm = of_network(lively(cls, TOKENIZERS[kind], window=window), TOKENIZERS[kind], **rest)
    assert isinstance(lm, TwoSided)
    return lm


@pytest.fixture(params=PAIRS, ids=lambda pair: pair[0].__name__)
def lm(request: pytest.FixtureRequest) -> TwoSided:
    return model(*request.param)


def alone(lm: TwoSided, ids: Any, t: int) -> float:
    """−log p of one token, by hand: frame, hide it, read."""
    frame = framed(lm.network, ids)
    row = torch.from_numpy(frame.ids.copy()).unsqueeze(0)
    place = frame.parts[0][0] + t
    special = lm.tokenizer.special
    row[0, place] = special.get("[MASK]", special.get("<mask>"))
    segments = None if frame.segments is None else torch.from_numpy(frame.segments).unsqueeze(0)
    with torch.no_grad():
        log_p = lm.network.fill(Inputs(row, segments=segments), torch.tensor([place]))
    return -float(log_p[0, ids[t]])


# ------------------------------------------------------------------------------------------------ words for blanks


class Spelled:
    kind, lossless, begin, end = "bpe", True, 7, 7
    special = MappingProxyType({"<s>": 7})
    pieces = (b" cat", b" dog", b" do", b"g", b"s", b".", b" a", b"", b"\xe9")

    def __len__(self) -> int:
        return len(self.pieces)

    def piece(self, id: int) -> bytes:
        return self.pieces[id]


CAT, DOG, DO, G, S, DOT, A = range(7)
TABLE = {  # what may stand at the first hidden place, by how many are hidden and what stands right before them
    (1, A): {CAT: 0.4, DOG: 0.3, S: 0.2, DOT: 0.1},
    (2, A): {DO: 0.5, CAT: 0.3, S: 0.2},
    (1, DO): {G: 0.6, S: 0.4},
    (1, CAT): {S: 0.9, G: 0.1},
    (3, A): {DOT: 1.0},
}


def by_table(rows: np.ndarray) -> Tensor:
    out = torch.zeros(len(rows), 3, len(Spelled.pieces))
    for i, row in enumerate(rows.tolist()):
        first = row.index(HIDDEN)
        for id, p in TABLE[row.count(HIDDEN), row[first - 1]].items():
            out[i, 0, id] = p
    return out.log()


def test_words_of_several_pieces_are_weighed_by_how_common_they_are() -> None:
    pieces = Pieces(Spelled())  # type: ignore[arg-type]
    one, two = 9 / 11, 1.5 / 11  # nine words of one piece, the "a" on the left among them; 1.5 of two; 0.5 of three
    assert pieces.shares([A], [DOT]) == pytest.approx([one, two, 0.5 / 11])
    found = dict(blank_words(by_table, [A], [DOT], pieces))
    assert found == pytest.approx(
        {
            "cat": one * 0.4,
            "dog": one * 0.3 + two * 0.5 * 0.6,  # spelled in two ways
            ".": one * 0.1,
            "cats": two * 0.3 * 0.9,
            "dos": two * 0.5 * 0.4,
            "catg": two * 0.3 * 0.1,
        }
    )
    best = blank_words(by_table, [A], [DOT], pieces, k=2)
    assert [word for word, _ in best] == ["cat", "dog"]


def test_pieces_of_words_around_the_blank_are_counted() -> None:
    pieces = Pieces(Spelled())  # type: ignore[arg-type]
    counts = np.array([8 + 2, 1.5 + 2, 0.5])  # a, cat; dog of two pieces, twice; four pieces are too many
    shares = pieces.shares([A, DO, G, DOT, CAT], [DO, G, DOT, DO, S, S, S])
    assert shares == pytest.approx(counts / counts.sum())


def test_what_may_begin_a_word() -> None:
    pieces = Pieces(TOKENIZERS["wordpiece"])
    marked = [id for id, piece in enumerate(pieces.bytes) if piece and not piece[:1].isspace()]  # ##…
    assert marked
    assert not (pieces.begins | pieces.bare | pieces.marks)[marked].any()
    assert not pieces.inner[~torch.tensor([id in marked for id in range(len(pieces.bytes))])].any()
    special = list(TOKENIZERS["bpe"].special.values())
    pieces = Pieces(TOKENIZERS["bpe"])
    assert not (pieces.begins | pieces.bare | pieces.marks | pieces.inner)[special].any()


@pytest.mark.parametrize(
    ("left", "right", "room", "kept"),
    [
        ([1, 2, 3], [4, 5], 9, ([1, 2, 3], [4, 5])),
        ([1, 2, 3, 4], [5, 6, 7, 8], 4, ([3, 4], [5, 6])),
        ([1, 2, 3, 4], [5], 4, ([2, 3, 4], [5])),
        ([1], [5, 6, 7, 8], 4, ([1], [5, 6, 7])),
        ([], [5, 6], 1, ([], [5])),
    ],
)
def test_the_nearest_tokens_are_read(left: list[int], right: list[int], room: int, kept: Any) -> None:
    assert around(left, right, room) == kept


def test_raw_tokens_are_what_the_network_says(lm: TwoSided) -> None:
    (guesses,) = lm.fill("the ___ sat on the mat", k=10_000, tokens=True)
    assert len(guesses) == len(lm.tokenizer)
    ids = [*lm.tokenizer.encode("the").ids, *lm._ids(" sat on the mat")]
    place = len(lm.tokenizer.encode("the").ids)
    target = int(lm._ids(" cat")[0])
    wanted = alone(lm, np.insert(np.array(ids), place, target), place)
    name = lm.tokenizer.piece(target).decode()
    assert -np.log(next(g.probability for g in guesses if g.text == name)) == pytest.approx(wanted, rel=1e-4)


def test_a_blank_sees_both_sides(lm: TwoSided) -> None:
    first = lm.next("the", "sat on the mat", k=3)
    assert first == lm.next("the ", " sat on the mat", k=3) == lm.fill("the ___ sat on the mat", k=3)[0]
    assert first == lm.fill("the___sat on the mat", k=3)[0]  # a word of its own, spaces or not
    assert first != lm.next("the", "slept", k=3)
    assert first != lm.next("a king and the", "sat on the mat", k=3)
    assert first != lm.next("the", k=3)


def test_every_blank_has_its_words_while_the_others_stay_open(lm: TwoSided) -> None:
    found = lm.fill("the ___ sat on the ___ .", k=4)
    assert len(found) == 2
    assert all(len(guesses) == 4 for guesses in found)
    mask = "[MASK]" if "[MASK]" in lm.tokenizer.special else "<mask>"
    left = [*lm.tokenizer.encode("the").ids, HIDDEN, *lm._ids(" sat on the")]
    log_p = lm._guess(np.array([[*left, HIDDEN, *lm._ids(" .")]]))
    assert log_p.shape == (1, 2, len(lm.tokenizer))
    raw = lm.fill("the ___ sat on the ___ .", k=len(lm.tokenizer), tokens=True)
    p = log_p[0].exp().sort(1, descending=True).values
    for i in (0, 1):
        assert [g.probability for g in raw[i]] == pytest.approx(p[i].tolist(), abs=1e-6)
    assert mask in {g.text for g in raw[0]}  # raw tokens hide nothing


def test_a_word_that_was_learnt_is_found_in_several_pieces() -> None:
    """A network that always says the same text: the blank in it is the word that is missing."""
    tokenizer = TOKENIZERS["wordpiece"]
    text = tokenizer.encode("the cats sat onto the door").ids.tolist()
    bert = lively(BERT, tokenizer)

    class Knows:
        window, device, widths, frame = 32, torch.device("cpu"), (1,), bert.frame

        def parameters(self) -> list[Tensor]:
            return []

        def fill(self, inputs: Inputs, at: Tensor) -> Tensor:
            rows, steps = inputs.ids.shape
            p = torch.full((rows, steps, len(tokenizer)), 1e-4)
            if steps == len(text) + 2:
                p[:, range(1, steps - 1), text] = 1.0
            return (p / p.sum(-1, keepdim=True)).log().flatten(0, 1)[at]

    lm = TwoSided(Knows(), tokenizer)
    pieces = [len(tokenizer.encode(word).ids) for word in ("the", "cats", "onto")]
    assert pieces == [1, 2, 3]
    assert lm.next("", "cats sat onto the door", k=3)[0].text == "the"
    assert lm.next("the", "sat onto the door", k=3)[0].text == "cats"
    assert lm.next("the cats sat", "the door", k=3)[0].text == "onto"


def test_what_cannot_be_filled_says_what_to_do(lm: TwoSided) -> None:
    with pytest.raises(NextwordError, match=r"no blank.*___"):
        lm.fill("the cat sat")
    with pytest.raises(NextwordError, match="at least one"):
        lm.fill("the ___", k=0)
    mask = "[MASK]" if "[MASK]" in lm.tokenizer.special else "<mask>"
    with pytest.raises(NextwordError, match="Write ___ for a blank"):
        lm.next(f"the {mask} sat")
    with pytest.raises(Unsupported, match="left to right"):
        lm.generate("the")
    assert lm.fill("___", k=2)[0]
    assert lm.next("", k=2)


def test_of_a_long_text_the_nearest_is_read(lm: TwoSided) -> None:
    near = lm.next("the cat sat on the mat and " * 20, " by the door" * 20, k=3)
    assert near == lm.next("the cat sat on the mat and " * 30, " by the door" * 30, k=3)


def test_xlnet_fills_blanks_and_reads_both_sides_for_vectors() -> None:
    tokenizer = train_tokenizer({"kind": "bpe", "size": 300}, TALE * 20)
    lm = of_network(lively(XLNet, tokenizer, inner=32, memory=8), tokenizer)
    assert isinstance(lm, Causal)
    assert {"generate", "fill"} <= lm.can
    assert lm.next("the", "sat on the mat", k=3) != lm.next("the", "slept", k=3)
    assert lm.next("the", "", k=3) == lm.next("the", k=3)  # from left to right
    together = lm.embed(TEXTS, pooling="text")
    torch.testing.assert_close(together, torch.cat([lm.embed([text], pooling="text") for text in TEXTS]))


# ------------------------------------------------------------------------------------------------ pseudo-likelihood


def test_every_token_is_hidden_in_turn(lm: TwoSided) -> None:
    for text, score in zip(TEXTS, lm.score_many(TEXTS), strict=True):
        ids = lm.tokenizer.encode(text).ids
        assert score.nats == pytest.approx(sum(alone(lm, ids, t) for t in range(len(ids))), rel=1e-4)
        assert (score.tokens, score.words, score.bytes) == (len(ids), len(text.split()), len(text))
        assert (score.kind, score.context, score.stride) == (PSEUDO, lm.room, 1)


def test_what_is_given_is_seen_and_not_hidden(lm: TwoSided) -> None:
    whole = lm.tokenizer.encode("the cat sat").ids
    score = lm.score(" sat", given="the cat")
    first = len(lm.tokenizer.encode("the cat").ids)
    assert score.tokens == len(whole) - first
    assert score.nats == pytest.approx(sum(alone(lm, whole, t) for t in range(first, len(whole))), rel=1e-4)


@pytest.mark.parametrize(("context", "stride"), [(5, 1), (5, 3), (8, 8), (4, 2)])
def test_windows_hold_the_hidden_token_near_their_middle(context: int, stride: int) -> None:
    lm = model()
    ids = np.concatenate([lm.tokenizer.encode(text).ids for text in TEXTS])
    nats = lm.windowed_nats(ids, context, stride)
    for t in range(len(ids)):
        begin = (t - (context - stride) // 2) // stride * stride
        begin = min(max(begin, 0), len(ids) - context)
        assert begin <= t < begin + context
        assert nats[t] == pytest.approx(alone(lm, ids[begin : begin + context], t - begin), rel=1e-4)


def test_a_document_sees_no_other_and_its_end_costs_nothing(lm: TwoSided) -> None:
    texts = [lm.tokenizer.encode(text).ids for text in TEXTS]
    end = lm.tokenizer.end
    ids = np.concatenate([[*one, end] for one in texts]).astype(np.uint16)
    nats = lm.stream_nats(ids)
    assert (nats[ids == end] == 0).all()
    np.testing.assert_allclose(nats[ids != end], np.concatenate(lm.token_nats(texts)), rtol=1e-4)


def test_windows_are_no_longer_than_what_was_trained_on() -> None:
    assert model(window=24).room == 22
    assert model(window=24, longest=12).room == 10
    assert model(window=24, longest=99).room == 22
    with pytest.raises(NextwordError, match="no room"):
        model(window=5)


def test_evaluation_is_of_a_sample_and_says_so(lm: TwoSided) -> None:
    ids = np.concatenate([[*lm.tokenizer.encode(text).ids, lm.tokenizer.end] for text in TEXTS * 10])
    stream = Stream.from_ids(ids, bytes=900, words=180)
    whole = evaluate_stream(lm, stream, limit=10_000)
    there = int((ids != lm.tokenizer.end).sum())
    assert (whole.score.kind, whole.score.tokens, whole.score.words, whole.score.bytes) == (PSEUDO, there, 180, 900)
    assert whole.score.nats == pytest.approx(lm.stream_nats(ids).sum(), rel=1e-4)
    part = evaluate_stream(lm, stream, limit=there // 4).as_dict()
    assert part["tokens"] == part["sample"] == there // 4
    assert part["of"] == there
    assert part["words"] == round(180 * (there // 4) / there)
    assert any(f"sample of {there // 4}" in note for note in part["notes"])
    assert any("pseudo" in note for note in part["notes"])
    costs = np.concatenate(lm.token_nats([lm.tokenizer.encode(text).ids for text in TEXTS]))
    assert costs.min() < part["nats"] / part["tokens"] < costs.max()
    with pytest.raises(NextwordError, match="22 tokens"):
        evaluate_stream(lm, stream, context=23)


def test_accuracy_counts_what_is_likeliest() -> None:
    lm = model()
    ids = np.concatenate([lm.tokenizer.encode(text).ids for text in TEXTS])
    found = lm.hide_in_stream(ids, np.arange(len(ids)))
    for t in (0, 3, len(ids) - 1):
        context = np.where(np.arange(len(ids)) == t, HIDDEN, ids)
        window = context if len(ids) <= lm.room else context[max(0, min(t - 10, len(ids) - 22)) :][:22]
        assert found.right[t] == (int(lm._guess(window[None])[0, 0].argmax()) == ids[t])


def test_pseudo_likelihoods_answer_no_questions() -> None:
    with pytest.raises(Unsupported, match="left to right"):
        likelihoods(model(), [" sat"], ["the cat"])


# ------------------------------------------------------------------------------------------------ vectors


def test_texts_have_the_same_vectors_alone_and_packed(lm: TwoSided) -> None:
    for pooling in ("mean", "text", "first", "last", "max"):
        together = lm.embed(TEXTS, "mean", pooling)
        assert torch.isfinite(together).all()
        torch.testing.assert_close(together, torch.cat([lm.embed([text], "mean", pooling) for text in TEXTS]))


def test_pooling_by_hand(lm: TwoSided) -> None:
    ids = lm.tokenizer.encode(TEXTS[0])
    frame = lm.network.frame(ids)
    segments = None if frame.segments is None else torch.from_numpy(frame.segments).unsqueeze(0)
    with torch.no_grad():
        layers = [
            h[0] for h in lm.network.encode(Inputs(torch.from_numpy(frame.ids).unsqueeze(0), segments=segments))[0]
        ]
    h = layers[-1]
    wanted = {"mean": h.mean(0), "text": h[1:-1].mean(0), "first": h[0], "last": h[-1], "max": h.max(0).values}
    for pooling, vector in wanted.items():
        torch.testing.assert_close(lm.embed(TEXTS[:1], pooling=pooling)[0], vector)
    torch.testing.assert_close(lm.embed(TEXTS[:1], {1: 0.3, -1: 0.7}, "first")[0], 0.3 * layers[1][0] + 0.7 * h[0])
    torch.testing.assert_close(lm.embed(TEXTS[:1], "mean", "first")[0], torch.stack(layers).mean(0)[0])


def test_a_long_text_is_read_in_equal_parts() -> None:
    lm = model()
    ids = lm.tokenizer.encode("the cat sat on the mat . " * 6).ids
    assert 22 < len(ids) <= 44
    parts = [lm.tokenizer.decode(part) for part in np.array_split(ids, 2)]
    vectors = lm.embed(["the cat sat on the mat . " * 6, *parts], pooling="first")
    torch.testing.assert_close(vectors[0], vectors[1:].mean(0))
    last = lm.embed(["the cat sat on the mat . " * 6, parts[1]], pooling="last")
    torch.testing.assert_close(last[0], last[1])


def test_left_to_right_models_embed_many_as_they_embed_one() -> None:
    tokenizer = TOKENIZERS["bpe"]
    network = GRU(GRU.Config(width=8), vocabulary(tokenizer)).eval()
    lm = Causal(network, tokenizer)
    texts = [*TEXTS, "the cat sat on the mat and " * 90]  # longer than a chunk
    for pooling in ("mean", "last", "max"):
        torch.testing.assert_close(
            lm.embed(texts, pooling=pooling), torch.cat([lm.embed([text], pooling=pooling) for text in texts])
        )
    torch.testing.assert_close(lm.embed(texts), lm.embed(texts, pooling="text"))
    with pytest.raises(Unsupported, match="first vector has seen nothing"):
        lm.embed(texts, pooling="first")
    with pytest.raises(NextwordError, match="mean, text, first"):
        lm.embed(texts, pooling="middle")
    assert lm.embed([]).shape == (0, 8)


def test_layers_in_words() -> None:
    widths = [4, 4, 4, 4]
    assert mix_of(-1, widths) == {3: 1.0}
    assert mix_of("2", widths) == {2: 1.0}
    assert mix_of("mean", widths) == dict.fromkeys(range(4), 0.25)
    assert mix_of("-2:", widths) == {2: 0.5, 3: 0.5}
    assert mix_of("1:3", widths) == {1: 0.5, 2: 0.5}
    assert mix_of("1,-1", widths) == {1: 0.5, 3: 0.5}
    assert mix_of("1=0.25, 3=.75", widths) == {1: 0.25, 3: 0.75}
    assert mix_of({0: 2, -4: 1}, widths) == {0: 3.0}
    for bad, said in ((4, "Layer 4"), ("-5", "Layer -5"), ("last", "not understood"), ("3:1", "names no layer")):
        with pytest.raises(NextwordError, match=said):
            mix_of(bad, widths)
    with pytest.raises(NextwordError, match="different widths"):
        mix_of("mean", [4, 8])
