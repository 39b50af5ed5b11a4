"""Invariants of every tokenizer on every text. The vocabularies are tiny, so most text is unseen."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nextword.tokenizers import fingerprint
from nextword.tokenizers.base import Decoder
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer

TRAINING_TEXTS = [
    "the cat sat on the mat, naïve café — 戦場の猫\n\nthe dog didn't. שלום 👩‍👩‍👧‍👦 <unk> <|endoftext|> </s>\n"
] * 4
SPECS = {
    "bytes": {"kind": "bytes"},
    "characters": {"kind": "characters"},
    "words": {"kind": "words"},
    "words, lower": {"kind": "words", "lower": True},
    "words, one line": {"kind": "words", "lines": False},
    "bpe": {"kind": "bpe", "size": 300},
    "classic-bpe": {"kind": "classic-bpe", "size": 200},
    "wordpiece": {"kind": "wordpiece", "size": 200},
    "wordpiece, cased": {"kind": "wordpiece", "size": 200, "lower": False},
    "unigram": {"kind": "unigram", "size": 100, "sentinels": 3},
}
LOSSLESS = ["bytes", "characters", "bpe"]

# arbitrary Unicode, and strings that tokenizers get wrong
TRICKY = [*" \n\t\x00\x1c\x85\u00a0\u0301\u200d\u2028\u3000\ufeff", "  ", "\r\n", "e\u0301", "👩\u200d👩\u200d👧", "🇩🇪"]
TRICKY += ["the", " cat", "naïve", "½", "ﬁ", "İ", "ß", "戦場", "שלום", "'s", "123", "▁", "##", "</w>", "Ġ", "<0x0A>"]
TRICKY += ["<|endoftext|>", "[MASK]", "[UNK]", "</s>", "<unk>", "<eos>", "<pad>", "<extra_id_0>"]
texts = st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(TRICKY), st.text(max_size=3))).map("".join))
every = pytest.mark.parametrize("name", SPECS)
quick = settings(max_examples=60, deadline=None)


@cache
def tokenizer_of(name):
    return train_tokenizer(SPECS[name], TRAINING_TEXTS)


def test_lossless_kinds_are_the_expected_ones():
    assert [name for name in SPECS if tokenizer_of(name).lossless] == LOSSLESS


@pytest.mark.parametrize("name", LOSSLESS)
@given(text=texts)
@settings(max_examples=200, deadline=None)
def test_encode_lossless_round_trips_and_partitions_the_text(name, text):
    tokenizer = tokenizer_of(name)
    encoding = tokenizer.encode(text)
    raw = text.encode()
    assert tokenizer.decode(encoding.ids) == text
    edges = [0, *encoding.spans[:, 1].tolist()]
    assert encoding.spans[:, 0].tolist() == edges[:-1]
    assert edges[-1] == len(raw)
    assert [raw[start:end] for start, end in encoding.spans] == [tokenizer.piece(id) for id in encoding.ids]


@every
@given(text=texts)
@quick
def test_encode_spans_are_ordered_with_gaps_of_whole_characters(name, text):
    encoding = tokenizer_of(name).encode(text)
    raw = text.encode()
    flat = encoding.spans.reshape(-1)
    assert (np.diff(flat) >= 0).all()
    assert len(flat) == 0 or (flat[0] >= 0 and flat[-1] <= len(raw))
    gaps = zip([0, *flat[1::2]], [*flat[0::2], len(raw)], strict=True)
    dropped = [raw[start:end].decode() for start, end in gaps]  # decodes, or a character was cut in two
    if name.startswith("words"):
        assert "".join(dropped).strip() == ""


@every
@given(text=texts)
@quick
def test_encode_never_produces_a_special_id(name, text):
    tokenizer = tokenizer_of(name)
    allowed = {"<unk>", "[UNK]", "<eos>"}  # these stand for something in the text
    forbidden = [id for special, id in tokenizer.special.items() if special not in allowed]
    assert not np.isin(tokenizer.encode(text).ids, forbidden).any()
    if name == "words":
        assert (tokenizer.encode(text).ids == tokenizer.special["<eos>"]).sum() == text.count("\n")


def word_of(text: str, start: int, end: int) -> int:
    """The definition, one character at a time."""
    words, inside, following = [], False, {}
    position = 0
    for character in text:
        if not character.isspace() and not inside:
            words.append(position)
        inside = not character.isspace()
        width = len(character.encode())
        for byte in range(position, position + width):
            following[byte] = len(words) - 1 if inside else len(words)
        position += width
    return min(following.get(start, len(words)), len(words) - 1)


@every
@given(text=texts)
@example(text="0\x1f0")  # a control character that counts as space, inside a piece that overlaps another
@quick
def test_encode_assigns_every_id_to_its_word(name, text):
    encoding = tokenizer_of(name).encode(text)
    assert encoding.ids.dtype == encoding.spans.dtype == encoding.words.dtype == np.int64
    assert len(encoding.ids) == len(encoding.spans) == len(encoding.words)
    for (start, end), word in zip(encoding.spans, encoding.words, strict=True):
        if start < end:
            assert word == word_of(text, start, end)
    assert (np.diff(encoding.words) >= 0).all()
    assert (encoding.words >= (0 if text.split() else -1)).all()
    assert (encoding.words < max(len(text.split()), 1)).all()


@every
@given(batch=st.lists(texts, max_size=4))
@quick
def test_encode_batch_equals_encode(name, batch):
    tokenizer = tokenizer_of(name)
    for one, text in zip(tokenizer.encode_batch(batch), batch, strict=True):
        alone = tokenizer.encode(text)
        for field in ("ids", "spans", "words"):
            np.testing.assert_array_equal(getattr(one, field), getattr(alone, field))


@every
@given(data=st.data())
@quick
def test_decoder_equals_decode(name, data):
    """For any ids, also those no text would give: a model may generate them."""
    tokenizer = tokenizer_of(name)
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1)))
    decoder = Decoder(tokenizer)
    pieces = [decoder.push(id) for id in ids]
    assert "".join(pieces) + decoder.flush() == tokenizer.decode(ids)
    at = data.draw(st.integers(0, len(ids)))
    resumed = Decoder(tokenizer, after=ids[:at])
    assert [resumed.push(id) for id in ids[at:]] == pieces[at:]


@every
@given(text=texts)
@quick
def test_decoder_never_emits_half_a_character(name, text):
    tokenizer = tokenizer_of(name)
    decoder = Decoder(tokenizer)
    written = "".join([decoder.push(id) for id in tokenizer.encode(text).ids])
    assert written.count("\ufffd") <= text.count("\ufffd")
    assert decoder.flush() == ""


@every
def test_save_and_load_round_trips(name, tmp_path):
    tokenizer = tokenizer_of(name)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")

    @given(text=texts)
    @quick
    def same(text):
        one, other = tokenizer.encode(text), loaded.encode(text)
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.spans, other.spans)
        assert tokenizer.decode(one.ids) == loaded.decode(one.ids)

    same()
    assert fingerprint(loaded) == fingerprint(tokenizer)
    for field in ("kind", "lossless", "special", "begin", "end"):
        assert getattr(loaded, field) == getattr(tokenizer, field)
    assert [loaded.piece(id) for id in range(len(loaded))] == [tokenizer.piece(id) for id in range(len(tokenizer))]
