"""`marks = true`: special tokens of a masked language model, which no text can produce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from torch import nn

from nextword.core.errors import InvalidSetting, UnknownName, Unsupported
from nextword.models import model_class
from nextword.objectives import make_objective
from nextword.recipe import load_recipe, recipe_names
from nextword.tokenizers import fingerprint, vocabulary
from nextword.tokenizers.base import Decoder, Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.special_tokens import Marks
from nextword.tokenizers.training import train_tokenizer
from nextword.training.optimizers import make_optimizer

# The training text contains the names of the marks often enough to become pieces, if that were allowed.
TEXTS = [
    "the cat sat on the mat and the dog sat on the log\n",
    "naïve cafés, 戦場! the end [MASK] [CLS] <mask> <s>a</s> <pad>\n",
] * 30
ORDER = {
    "bpe": ["<s>", "<pad>", "</s>", "<mask>"],
    "unigram": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
}
SPEC: dict[str, dict[str, Any]] = {
    "bpe": {"kind": "bpe", "size": 300, "marks": True},
    "unigram": {"kind": "unigram", "size": 120, "marks": True},
}
TOKENIZERS = {kind: train_tokenizer(spec, TEXTS) for kind, spec in SPEC.items()}
BYTE_LEVEL = TOKENIZERS["bpe"]


@pytest.fixture(params=list(SPEC))
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TOKENIZERS[request.param]


def test_marks_have_the_names_and_order_of_the_paper(tokenizer: Tokenizer) -> None:
    assert list(tokenizer.special) == ORDER[tokenizer.kind]
    assert [tokenizer.special[name] for name in ORDER[tokenizer.kind]] == list(range(len(ORDER[tokenizer.kind])))
    marks = Marks.of(vocabulary(tokenizer))
    assert (tokenizer.begin, tokenizer.end) == (marks.cls, marks.sep)
    assert len({marks.cls, marks.sep, marks.mask, marks.pad}) == 4
    assert len(tokenizer) <= SPEC[tokenizer.kind]["size"]


def test_wordpiece_always_has_marks() -> None:
    bert = train_tokenizer({"kind": "wordpiece", "size": 100}, TEXTS)
    assert Marks.of(vocabulary(bert)) == Marks(cls=2, sep=3, mask=4, pad=0)
    with pytest.raises(UnknownName) as error:
        train_tokenizer({"kind": "wordpiece", "size": 100, "marks": True}, TEXTS)
    assert error.value.name == "marks"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_without_marks_tokenizer_is_unchanged(kind: str) -> None:
    plain = train_tokenizer({**SPEC[kind], "marks": False}, TEXTS)
    default = train_tokenizer({key: value for key, value in SPEC[kind].items() if key != "marks"}, TEXTS)
    assert fingerprint(plain) == fingerprint(default) != fingerprint(TOKENIZERS[kind])
    assert list(plain.special) == (["<|endoftext|>"] if kind == "bpe" else ["<pad>", "</s>", "<unk>"])
    with pytest.raises(Unsupported, match="marks"):
        Marks.of(vocabulary(plain))


@pytest.mark.parametrize("name", ["<s>", "<pad>", "</s>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"])
def test_encode_name_of_a_mark_is_plain_text(tokenizer: Tokenizer, name: str) -> None:
    marks = {id for special, id in tokenizer.special.items() if special != "<unk>"}
    for text in (name, f"the cat {name} sat", f"cat{name}sat", name * 3):
        ids = tokenizer.encode(text).ids
        assert not marks & set(ids.tolist()), text
        if tokenizer.lossless:
            assert tokenizer.decode(ids) == text


def test_decode_leaves_out_marks(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the cat sat").ids.tolist()
    marks = Marks.of(vocabulary(tokenizer))
    framed = [marks.cls, *ids[:2], marks.mask, *ids[2:], marks.sep, marks.pad]
    assert tokenizer.decode(framed) == tokenizer.decode(ids) == "the cat sat"
    decoder = Decoder(tokenizer)
    assert "".join(decoder.push(id) for id in framed) + decoder.flush() == "the cat sat"
    assert all(tokenizer.piece(id) == b"" for id in (marks.cls, marks.sep, marks.mask, marks.pad))


def test_save_and_load_keeps_marks_also_without_our_header(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    assert fingerprint(loaded) == fingerprint(tokenizer)
    assert (loaded.special, loaded.begin, loaded.end) == (tokenizer.special, tokenizer.begin, tokenizer.end)
    assert loaded.lossless is (tokenizer.kind == "bpe")
    text = "the dog [MASK] <mask> on the naïve mat"
    assert np.array_equal(loaded.encode(text).ids, tokenizer.encode(text).ids)
    theirs = Library.from_file(str(tmp_path / "tokenizer.json"))
    assert [theirs.token_to_id(name) for name in tokenizer.special] == list(tokenizer.special.values())
    # Without our header, as in another program's file, the roles are found by name.
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"].pop("nextword")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "tokenizer.json").write_text(json.dumps(content))
    foreign = load_tokenizer(tmp_path / "foreign")
    assert Marks.of(vocabulary(foreign)) == Marks.of(vocabulary(tokenizer))
    assert (foreign.begin, foreign.end) == (tokenizer.begin, tokenizer.end)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.text(), st.sampled_from(["<mask>", "<s>", "</s>", "<pad>", " ", "the"]))).map("".join))
def test_bpe_with_marks_is_lossless(text: str) -> None:
    encoding = BYTE_LEVEL.encode(text)
    assert BYTE_LEVEL.decode(encoding.ids) == text
    assert not set(encoding.ids.tolist()) & set(BYTE_LEVEL.special.values())
    assert encoding.spans[-1, 1] == len(text.encode()) if text else len(encoding) == 0


def test_sentinels_combine_with_marks() -> None:
    tokenizer = train_tokenizer({**SPEC["unigram"], "sentinels": 3}, TEXTS)
    assert list(tokenizer.special) == [*ORDER["unigram"], *(f"<extra_id_{i}>" for i in range(3))]
    assert tokenizer.special["<extra_id_0>"] == len(tokenizer) - 1


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"kind": "bpe", "size": 300, "marks": 1}, InvalidSetting, "marks = 1"),
        ({"kind": "bpe", "size": 300, "mark": True}, UnknownName, "'marks'"),
        ({"kind": "bpe", "size": 259, "marks": True}, InvalidSetting, "260"),
        ({"kind": "classic-bpe", "size": 300, "marks": True}, UnknownName, "'marks'"),
    ],
)
def test_train_with_wrong_table_raises(table: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        train_tokenizer(table, TEXTS)


# ------------------------------------------------------------------------------------------------ recipes


RECIPES = [name for name in recipe_names() if name.startswith(("roberta/", "albert/"))]


@pytest.mark.parametrize("name", RECIPES)
def test_roberta_and_albert_recipes_build_with_their_tokenizer(name: str) -> None:
    recipe = load_recipe(name)
    kind, optimizer = {"roberta": ("bpe", "adamw"), "albert": ("unigram", "lamb")}[recipe.slug]
    assert (recipe.tokenizer["kind"], recipe.tokenizer["marks"]) == (kind, True)
    small = train_tokenizer({**recipe.tokenizer, "size": SPEC[kind]["size"]}, TEXTS)
    cls = model_class(recipe.slug)
    with torch.device("meta"):
        network = cls(cls.Config(**recipe.model), vocabulary(small))
    assert isinstance(network, nn.Module)
    for phase in recipe.phases:
        assert phase.optimizer["kind"] == optimizer
        make_objective(phase.objective, phase.batches, network.vocabulary)
        make_optimizer([nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))], phase.optimizer)
