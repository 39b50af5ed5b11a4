"""The network of the tagger, and the tag head over this and other networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import DataError, InvalidSetting
from nextword.core.types import IGNORE
from nextword.data.tag_schemes import find_violation
from nextword.layers.char_cnn import (
    INITIAL,
    LOWER,
    MIXED,
    NO_LETTERS,
    UPPER,
    CharacterEncoder,
    capitalization,
    word_characters,
)
from nextword.layers.scalar_mix import ScalarMix
from nextword.models.bilstm_crf import Tagger, TaggerConfig
from nextword.tasks.tagging import SentenceBatches, TaggedExamples, TaggingConfig, TagHead, encode_sentences
from nextword.tokenizers import vocabulary
from nextword.tokenizers.ptb_words import Lexicon
from nextword.tokenizers.training import train_tokenizer
from tests.support.errors import raises

WORDS = [
    ["EU", "rejects", "German", "call", "."],
    ["Peter", "Blackburn"],
    ["BRUSSELS", "1996-08-22"],
    ["a", "very-very-very-long-word-that-goes-on-and-on-and-on", "é"],
]
SPEC = {"kind": "lexicon", "size": 50, "whole": True, "digits": True}
SMALL: dict[str, Any] = {
    "vector_width": 8,
    "character_width": 6,
    "filters": [[2, 4], [3, 5]],
    "width": 7,
    "max_word_length": 20,
}
TAGS = ("O", "B-X", "E-X", "I-X", "S-X")


def make_tokenizer() -> Any:
    return train_tokenizer(SPEC, [" ".join(words) for words in WORDS[:2]])


def make_network(**more: Any) -> Tagger:
    torch.manual_seed(0)
    return Tagger(TaggerConfig(**SMALL | more), vocabulary(make_tokenizer(), spellings=True)).eval()


def make_head(encoder: Any, **more: Any) -> TagHead:
    torch.manual_seed(1)
    return TagHead(encoder, TaggingConfig(labels=TAGS, scheme="BIOES", **{"classifier": "crf"} | more)).eval()


def make_batch(encoder: Any, some: list[list[str]], features: np.ndarray | None = None) -> Any:
    text, cut = encode_sentences(encoder, make_tokenizer(), some)
    assert cut == 0
    return SentenceBatches().batch(replace(text, features=features), np.arange(len(some)), 0)


# ------------------------------------------------------------------------------------------------ words and letters


def test_lexicon_of_words_never_splits_and_normalizes_digits() -> None:
    lexicon = train_tokenizer({**SPEC, "size": 20}, ["won't in 1996-08-22 , 12.50 U.S.-led"], words=["1996", "in"])
    assert isinstance(lexicon, Lexicon)
    assert len(lexicon.encode("won't well-known U.S.-led").ids) == 3
    ids = lexicon.encode("2001-12-31 99.99 1996 1997").ids.tolist()
    assert 0 not in ids[:3]
    assert ids[3] == 0  # the shape 0000 is unknown, and 1996 is in the vocabulary
    assert lexicon.split_words("He can't, in 1996.") == ["He", "ca", "n't", ",", "in", "1996", "."]
    assert train_tokenizer({"kind": "lexicon", "size": 20}, ["a b"]).content()["nextword"].keys() == {
        *("version", "kind", "lower")
    }


@pytest.mark.parametrize("kind", ["cnn", "lstm"])
def test_character_encoder_is_independent_of_other_words(kind: str) -> None:
    torch.manual_seed(0)
    layer = CharacterEncoder(kind, 6, [[3, 5], [4, 2]], 4, 0.5).eval()
    words = ["a", "EU", "Baghdad", "internationalisation"]
    together = layer(torch.from_numpy(word_characters(words, 30)))
    assert together.shape == (4, layer.width)
    for word, item in zip(words, together, strict=True):
        torch.testing.assert_close(layer(torch.from_numpy(word_characters([word], 30)))[0], item)
    for a in range(4):
        for b in range(a):
            assert not torch.allclose(together[a], together[b])


def test_capitalization_classifies_words() -> None:
    words = ["call", "German", "EU", "McDonald", "eBay", "1996", "A", "U.N.", "I'm", "."]
    result = capitalization(torch.from_numpy(word_characters(words, 30))).tolist()
    assert result == [LOWER, INITIAL, UPPER, MIXED, MIXED, NO_LETTERS, INITIAL, UPPER, INITIAL, NO_LETTERS]


# ------------------------------------------------------------------------------------------------ the network


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"characters": "lstm", "character_lstm_width": 3, "layers": 2},
        {"characters": "", "capitalization_width": 4},
        {"vector_width": 0},
        {"characters": ""},
    ],
)
def test_batched_sentences_equal_single_sentences(more: dict[str, Any]) -> None:
    encoder = make_network(**more)
    layers, _ = encoder.encode(make_batch(encoder, WORDS).inputs)
    assert [layer.shape[-1] for layer in layers] == encoder.widths
    for i, words in enumerate(WORDS):
        alone, _ = encoder.encode(make_batch(encoder, [words]).inputs)
        for a, b in zip(alone, layers, strict=True):
            torch.testing.assert_close(a[0], b[i, : len(words)], rtol=1e-4, atol=1e-5)


def test_every_word_depends_on_both_sides() -> None:
    encoder = make_network()
    before = encoder.encode(make_batch(encoder, [WORDS[0]]).inputs)[0][-1][0]
    for at in range(5):
        words = list(WORDS[0])
        words[at] = "Peter"
        after = encoder.encode(make_batch(encoder, [words]).inputs)[0][-1][0]
        assert ((before - after).abs().amax(1) > 1e-7).all()


def test_dropout_mask_is_constant_over_a_sentence() -> None:
    encoder = make_network(dropout=0.5).train()
    dropped = encoder._drop(torch.ones(3, 4, 200))
    assert (dropped == dropped[:, :1]).all()
    assert not (dropped[0] == dropped[1]).all()


def test_pretrained_vectors_are_loaded_and_missing_ones_are_zero(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("german 1 2 3\nseldom 4 5 6\n")
    config = TaggerConfig(**SMALL | {"vectors": str(tmp_path / "v.txt"), "vector_width": 3, "finetune_vectors": False})
    known = train_tokenizer(SPEC, ["German call"], words=Tagger.pretrained_words(config))
    encoder = Tagger(config, vocabulary(known, spellings=True))
    encoder.load_pretrained_embeddings()
    assert encoder.embedding is not None
    result = encoder.embedding.weight[torch.from_numpy(known.encode("German call seldom never").ids)]
    assert result.tolist() == [[1, 2, 3], [0, 0, 0], [4, 5, 6], [0, 0, 0]]
    assert not encoder.embedding.weight.requires_grad
    with raises(InvalidSetting, key="vector_width"):
        Tagger(replace(config, vector_width=5), vocabulary(known, spellings=True)).load_pretrained_embeddings()


def test_tokens_are_words_only_if_boundaries_match() -> None:
    """Tokens may equal words in number although rows are not sentences."""
    ids, starts, words = np.arange(5), np.array([0, 2, 5]), np.array([0, 1, 0, 1, 2])
    tags, pooled = np.zeros(5, np.int64), np.zeros(2, np.int64)
    text = TaggedExamples(ids, starts, pooled, words=words, word_starts=starts, tags=tags, packs=True)
    batch = SentenceBatches().batch(text, np.arange(2), 0)
    assert (batch.inputs.ids.shape, batch.target_positions.tolist()) == ((1, 5), [[0, 1, -1], [2, 3, 4]])  # type: ignore[union-attr]
    assert SentenceBatches().batch(replace(text, packs=False), np.arange(2), 0).target_positions is None
    assert not replace(
        text, starts=np.array([0, 3, 5])
    ).tokens_are_words  # as many tokens as words, but with other boundaries


def test_tokenizer_that_splits_words_raises() -> None:
    known = train_tokenizer({"kind": "bpe", "size": 300}, [" ".join(words) for words in WORDS])
    encoder = Tagger(TaggerConfig(**SMALL), vocabulary(known, spellings=True))
    with raises(InvalidSetting, key="tokenizer.kind"):
        encode_sentences(encoder, known, WORDS)
    with pytest.raises(DataError):
        encode_sentences(make_network(), make_tokenizer(), [["a"], []])


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"characters": "rnn"}, "model.characters"),
        ({"filters": [[3]]}, "model.filters"),
        ({"vector_width": 0, "characters": ""}, "model.vector_width"),
        ({"contextual_place": "middle"}, "model.contextual_place"),
    ],
)
def test_invalid_setting_raises(more: dict[str, Any], key: str) -> None:
    with raises(InvalidSetting, key=key):
        make_network(**more)


# ------------------------------------------------------------------------------------------------ vectors in context


def test_scalar_mix_equals_formula() -> None:
    torch.manual_seed(0)
    mix, stack = ScalarMix(3), torch.randn(3, 2, 4, 5)
    torch.testing.assert_close(mix(stack), stack.mean(0))
    with torch.no_grad():
        mix.w.copy_(torch.tensor([0.5, -1.0, 2.0]))
        mix.gamma.fill_(1.7)
    s = torch.tensor([0.5, -1.0, 2.0]).softmax(0)
    torch.testing.assert_close(mix(stack), 1.7 * (s[0] * stack[0] + s[1] * stack[1] + s[2] * stack[2]))
    there = torch.tensor([[True] * 4, [True, False, False, False]])
    normed = ScalarMix(1, norm=True)(stack[:1], there)
    assert float(normed.detach()[there].mean()) == pytest.approx(0, abs=1e-5)
    assert float(normed.detach()[there].var(correction=0)) == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("place", ["input", "output", "both"])
def test_contextual_vectors_enter_at_the_configured_place(place: str) -> None:
    more = {"contextual": "runs/x", "contextual_layers": 2, "contextual_width": 6, "contextual_place": place}
    encoder = make_network(**more)
    assert sorted(encoder.mixes) == sorted({"input", "output"} if place == "both" else {place})
    given = np.random.default_rng(0).normal(size=(2, sum(map(len, WORDS)), 6)).astype(np.float16)
    batch = make_batch(encoder, WORDS, given)
    assert batch.inputs.features.shape == (2, 4, 5, 6)
    layers, _ = encoder.encode(batch.inputs)
    assert [layer.shape[-1] for layer in layers] == encoder.widths
    mixed = torch.from_numpy(given.astype(np.float32)).mean(0)[:5]
    at = layers[0] if place != "output" else layers[-1]
    torch.testing.assert_close(at[0, :5, -6:], mixed, rtol=1e-3, atol=1e-3)
    with pytest.raises(DataError):
        encoder.encode(make_batch(encoder, WORDS).inputs)
    assert encoder.penalty() is None
    assert float(make_network(**more, contextual_l2=0.1).penalty().detach()) == 0.0  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------ the head


@pytest.mark.parametrize("classifier", ["linear", "crf"])
def test_best_tags_follow_the_scheme_and_rows_are_independent(classifier: str) -> None:
    tagging = make_head(make_network(), classifier=classifier)
    batch = make_batch(tagging.encoder, WORDS)
    emissions, there = tagging(batch), batch.targets != IGNORE
    assert emissions.shape == (4, 5, 5)
    best, nats = tagging.best_tags(emissions, there), tagging.nats(emissions, batch.targets)
    for i, words in enumerate(WORDS):
        assert find_violation([TAGS[tag] for tag in best[i, : len(words)].tolist()], "BIOES") is None
        alone = make_batch(tagging.encoder, [words])
        torch.testing.assert_close(tagging.nats(tagging(alone), alone.targets)[0], nats[i], rtol=1e-4, atol=1e-4)


def test_softmax_loss_sums_over_words_and_ignores_unseen_tags() -> None:
    tagging = make_head(make_network(), classifier="linear")
    batch = make_batch(tagging.encoder, WORDS)
    emissions = tagging(batch)
    wanted = -emissions[1, :2].log_softmax(-1)[:, 0].sum()
    torch.testing.assert_close(tagging.nats(emissions, batch.targets)[1], wanted)
    batch.targets[1, 1] = len(TAGS)
    for item in (tagging, make_head(make_network(), classifier="crf")):
        nats = item.nats(emissions, batch.targets)
        assert float(nats.detach()[1]) == 0.0
        assert (nats[[0, 2, 3]] > 0).all()


# ------------------------------------------------------------------------------------------------ unknown words


def test_unknown_dropout_applies_only_in_training_and_keeps_characters() -> None:
    encoder = make_network(unk_probability=0.5, dropout=0.0)
    batch = make_batch(encoder, WORDS[:2])
    calm = encoder.encode(batch.inputs)[0][0]
    torch.testing.assert_close(encoder.encode(batch.inputs)[0][0], calm)
    words = SMALL["vector_width"]
    assert encoder.embedding is not None
    nobody = encoder.embedding.weight[encoder.vocabulary.special["<unk>"]]
    encoder.train()
    torch.manual_seed(0)
    several = torch.stack([encoder.encode(batch.inputs)[0][0] for _ in range(200)])
    there = batch.inputs.token_mask if batch.inputs.token_mask is not None else torch.ones(2, 5, dtype=torch.bool)
    gone = (several[..., :words] == nobody).all(-1)[:, there]
    kept = (several[..., :words] == calm[..., :words]).all(-1)[:, there]
    assert (gone | kept).all()
    assert 0.4 < gone.float().mean() < 0.6
    torch.testing.assert_close(several[..., words:], calm[..., words:].expand(200, -1, -1, -1))
    with raises(InvalidSetting, key="model.unk_probability"):
        make_network(unk_probability=1.0)


def test_tagger_reports_its_mix_weights() -> None:
    assert make_network().mix_weights == {}
    encoder = make_network(contextual="r", contextual_layers=3, contextual_width=4, contextual_place="both")
    with torch.no_grad():
        encoder.mixes["input"].w.copy_(torch.tensor([0.0, 1.0, 0.0]))
    shares, gamma = encoder.mix_weights["input"]
    assert sum(shares) == pytest.approx(1)
    assert shares[1] / shares[0] == pytest.approx(np.e)
    assert encoder.mix_weights["output"] == (pytest.approx([1 / 3] * 3), 1.0)
    assert gamma == 1
