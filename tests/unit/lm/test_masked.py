"""Models that see both sides on plain strings: words for blanks."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Inputs
from nextword.generation.infilling import HIDDEN, WordPieces, crop_context, encode_part, likeliest_words
from nextword.lm.causal import CausalLM
from nextword.lm.loading import wrap_network
from nextword.lm.masked import MaskedLM
from nextword.models.base import Network
from nextword.models.bert import BERT
from nextword.models.xlnet import XLNet
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.masked_models import PAIRS, TALE, TEXTS, TOKENIZERS, compute_token_nats, make_model, make_network


@pytest.fixture(params=PAIRS, ids=lambda pair: pair[0].__name__)
def lm(request: pytest.FixtureRequest) -> MaskedLM:
    return make_model(*request.param)


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


def test_fill_weighs_words_by_how_common_their_number_of_pieces_is() -> None:
    pieces = WordPieces(Spelled())  # type: ignore[arg-type]
    one, two = 9 / 11, 1.5 / 11  # nine words of one piece, the "a" on the left among them; 1.5 of two; 0.5 of three
    assert pieces.shares([A], [DOT]) == pytest.approx([one, two, 0.5 / 11])
    found = dict(likeliest_words(by_table, [A], [DOT], pieces))
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
    best = likeliest_words(by_table, [A], [DOT], pieces, k=2)
    assert [word for word, _ in best] == ["cat", "dog"]


def test_fill_counts_pieces_of_words_around_the_blank() -> None:
    pieces = WordPieces(Spelled())  # type: ignore[arg-type]
    counts = np.array([8 + 2, 1.5 + 2, 0.5])  # a, cat; dog of two pieces, twice; four pieces are too many
    shares = pieces.shares([A, DO, G, DOT, CAT], [DO, G, DOT, DO, S, S, S])
    assert shares == pytest.approx(counts / counts.sum())


def test_word_pieces_know_which_ids_begin_a_word() -> None:
    pieces = WordPieces(TOKENIZERS["wordpiece"])
    marked = [id for id, piece in enumerate(pieces.bytes) if piece and not piece[:1].isspace()]  # ##…
    assert marked
    assert not (pieces.begins | pieces.bare | pieces.marks)[marked].any()
    assert not pieces.inner[~torch.tensor([id in marked for id in range(len(pieces.bytes))])].any()
    special = list(TOKENIZERS["bpe"].special.values())
    pieces = WordPieces(TOKENIZERS["bpe"])
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
def test_crop_context_keeps_the_nearest_tokens(left: list[int], right: list[int], room: int, kept: Any) -> None:
    assert crop_context(left, right, room) == kept


def test_fill_of_raw_tokens_equals_the_networks_probabilities(lm: MaskedLM) -> None:
    (guesses,) = lm.fill("the ___ sat on the mat", k=10_000, tokens=True)
    assert len(guesses) == len(lm.tokenizer)
    ids = [*lm.tokenizer.encode("the").ids, *encode_part(lm.tokenizer, " sat on the mat")]
    place = len(lm.tokenizer.encode("the").ids)
    target = int(encode_part(lm.tokenizer, " cat")[0])
    wanted = compute_token_nats(lm, np.insert(np.array(ids), place, target), place)
    name = lm.tokenizer.piece(target).decode()
    assert -np.log(next(g.probability for g in guesses if g.text == name)) == pytest.approx(wanted, rel=1e-4)


def test_fill_sees_both_sides(lm: MaskedLM) -> None:
    first = lm.next("the", "sat on the mat", k=3)
    assert first == lm.next("the ", " sat on the mat", k=3) == lm.fill("the ___ sat on the mat", k=3)[0]
    assert first == lm.fill("the___sat on the mat", k=3)[0]  # a word of its own, spaces or not
    assert first != lm.next("the", "slept", k=3)
    assert first != lm.next("a king and the", "sat on the mat", k=3)
    assert first != lm.next("the", k=3)


def test_fill_guesses_each_blank_with_the_others_open(lm: MaskedLM) -> None:
    found = lm.fill("the ___ sat on the ___ .", k=4)
    assert len(found) == 2
    assert all(len(guesses) == 4 for guesses in found)
    mask = "[MASK]" if "[MASK]" in lm.tokenizer.special else "<mask>"
    left = [*lm.tokenizer.encode("the").ids, HIDDEN, *encode_part(lm.tokenizer, " sat on the")]
    log_p = lm._hidden_log_probs(np.array([[*left, HIDDEN, *encode_part(lm.tokenizer, " .")]]))
    assert log_p.shape == (1, 2, len(lm.tokenizer))
    raw = lm.fill("the ___ sat on the ___ .", k=len(lm.tokenizer), tokens=True)
    p = log_p[0].exp().sort(1, descending=True).values
    for i in (0, 1):
        assert [g.probability for g in raw[i]] == pytest.approx(p[i].tolist(), abs=1e-6)
    assert mask in {g.text for g in raw[0]}  # raw tokens hide nothing


def test_fill_finds_a_learned_word_of_several_pieces() -> None:
    """A network that always says the same text: the blank in it is the word that is missing."""
    tokenizer = TOKENIZERS["wordpiece"]
    text = tokenizer.encode("the cats sat onto the door").ids.tolist()
    bert = make_network(BERT, tokenizer)

    class Knows(Network):
        window, device, widths, frame = 32, torch.device("cpu"), (1,), bert.frame

        def fill(self, inputs: Inputs, at: Tensor) -> Tensor:
            rows, steps = inputs.ids.shape
            p = torch.full((rows, steps, len(tokenizer)), 1e-4)
            if steps == len(text) + 2:
                p[:, range(1, steps - 1), text] = 1.0
            return (p / p.sum(-1, keepdim=True)).log().flatten(0, 1)[at]

    lm = MaskedLM(Knows(None, vocabulary(tokenizer)), tokenizer)
    pieces = [len(tokenizer.encode(word).ids) for word in ("the", "cats", "onto")]
    assert pieces == [1, 2, 3]
    assert lm.next("", "cats sat onto the door", k=3)[0].text == "the"
    assert lm.next("the", "sat onto the door", k=3)[0].text == "cats"
    assert lm.next("the cats sat", "the door", k=3)[0].text == "onto"


def test_fill_rejects_texts_without_a_blank(lm: MaskedLM) -> None:
    with pytest.raises(InvalidSetting):
        lm.fill("the cat sat")
    with pytest.raises(InvalidSetting):
        lm.fill("the ___", k=0)
    mask = "[MASK]" if "[MASK]" in lm.tokenizer.special else "<mask>"
    with pytest.raises(InvalidSetting, match="___"):
        lm.next(f"the {mask} sat")
    with pytest.raises(Unsupported):
        lm.generate("the")
    assert lm.fill("___", k=2)[0]
    assert lm.next("", k=2)


def test_fill_reads_the_nearest_tokens_of_a_long_text(lm: MaskedLM) -> None:
    near = lm.next("the cat sat on the mat and " * 20, " by the door" * 20, k=3)
    assert near == lm.next("the cat sat on the mat and " * 30, " by the door" * 30, k=3)


def test_xlnet_fills_blanks_and_embeds_bidirectionally() -> None:
    tokenizer = train_tokenizer({"kind": "bpe", "size": 300}, TALE * 20)
    lm = wrap_network(make_network(XLNet, tokenizer, ffn_width=32, memory=8), tokenizer)
    assert isinstance(lm, CausalLM)
    assert {"generate", "fill"} <= lm.can
    assert lm.next("the", "sat on the mat", k=3) != lm.next("the", "slept", k=3)
    assert lm.next("the", "", k=3) == lm.next("the", k=3)  # from left to right
    together = lm.embed(TEXTS, pooling="text")
    torch.testing.assert_close(together, torch.cat([lm.embed([text], pooling="text") for text in TEXTS]))
