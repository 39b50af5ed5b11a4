"""Marks for models that fill in hidden tokens: learnt kinds have them for the asking, and no text ever spells one."""

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

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.models import model_class
from nextword.objectives import make_objective
from nextword.recipe import load_recipe, names
from nextword.tokenizers import fingerprint, vocabulary
from nextword.tokenizers.base import Decoder, Marks
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.optimizers import make_optimizer

# The marks' names stand in the text that is learnt from, often enough to become pieces if anything let them
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
MADE = {kind: train_tokenizer(spec, TEXTS) for kind, spec in SPEC.items()}
BYTE_LEVEL = MADE["bpe"]


@pytest.fixture(params=list(SPEC))
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return MADE[request.param]


def test_names_and_ids_are_the_papers(tokenizer: Tokenizer) -> None:
    assert list(tokenizer.special) == ORDER[tokenizer.kind]
    assert [tokenizer.special[name] for name in ORDER[tokenizer.kind]] == list(range(len(ORDER[tokenizer.kind])))
    marks = Marks.of(vocabulary(tokenizer))
    assert (tokenizer.begin, tokenizer.end) == (marks.cls, marks.sep)
    assert len({marks.cls, marks.sep, marks.mask, marks.pad}) == 4
    assert len(tokenizer) <= SPEC[tokenizer.kind]["size"]


def test_bert_has_had_them_all_along() -> None:
    """The same roles, under its own names; nothing is to be asked for there."""
    found = train_tokenizer({"kind": "wordpiece", "size": 100}, TEXTS)
    assert Marks.of(vocabulary(found)) == Marks(cls=2, sep=3, mask=4, pad=0)
    with pytest.raises(NextwordError, match="unknown key 'marks'"):
        train_tokenizer({"kind": "wordpiece", "size": 100, "marks": True}, TEXTS)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_without_asking_nothing_changes(kind: str) -> None:
    plain = train_tokenizer({**SPEC[kind], "marks": False}, TEXTS)
    unsaid = train_tokenizer({key: value for key, value in SPEC[kind].items() if key != "marks"}, TEXTS)
    assert fingerprint(plain) == fingerprint(unsaid) != fingerprint(MADE[kind])
    assert list(plain.special) == (["<|endoftext|>"] if kind == "bpe" else ["<pad>", "</s>", "<unk>"])
    with pytest.raises(NextwordError, match=f"'{kind}'.*marks = true|marks = true"):
        Marks.of(vocabulary(plain))


@pytest.mark.parametrize("name", ["<s>", "<pad>", "</s>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"])
def test_a_marks_name_in_a_text_is_plain_text(tokenizer: Tokenizer, name: str) -> None:
    marks = {id for called, id in tokenizer.special.items() if called != "<unk>"}
    for text in (name, f"the cat {name} sat", f"cat{name}sat", name * 3):
        ids = tokenizer.encode(text).ids
        assert not marks & set(ids.tolist()), text
        if tokenizer.lossless:
            assert tokenizer.decode(ids) == text


def test_what_is_written_of_a_mark_is_nothing(tokenizer: Tokenizer) -> None:
    """As the special tokens of every other kind: decoding leaves them out, whole or one at a time."""
    ids = tokenizer.encode("the cat sat").ids.tolist()
    marks = Marks.of(vocabulary(tokenizer))
    framed = [marks.cls, *ids[:2], marks.mask, *ids[2:], marks.sep, marks.pad]
    assert tokenizer.decode(framed) == tokenizer.decode(ids) == "the cat sat"
    decoder = Decoder(tokenizer)
    assert "".join(decoder.push(id) for id in framed) + decoder.flush() == "the cat sat"
    assert all(tokenizer.piece(id) == b"" for id in (marks.cls, marks.sep, marks.mask, marks.pad))


def test_saved_and_loaded_it_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path)
    assert fingerprint(again) == fingerprint(tokenizer)
    assert (again.special, again.begin, again.end) == (tokenizer.special, tokenizer.begin, tokenizer.end)
    assert again.lossless is (tokenizer.kind == "bpe")
    text = "the dog [MASK] <mask> on the naïve mat"
    assert np.array_equal(again.encode(text).ids, tokenizer.encode(text).ids)
    theirs = Library.from_file(str(tmp_path / "tokenizer.json"))  # there the names are the tokens, for those who want
    assert [theirs.token_to_id(name) for name in tokenizer.special] == list(tokenizer.special.values())
    # a stranger's file, without what nextword wrote into it: the roles are found by the names
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"].pop("nextword")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "tokenizer.json").write_text(json.dumps(content))
    foreign = load_tokenizer(tmp_path / "foreign")
    assert Marks.of(vocabulary(foreign)) == Marks.of(vocabulary(tokenizer))
    assert (foreign.begin, foreign.end) == (tokenizer.begin, tokenizer.end)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.text(), st.sampled_from(["<mask>", "<s>", "</s>", "<pad>", " ", "the"]))).map("".join))
def test_bytes_are_still_never_lost(text: str) -> None:
    encoding = BYTE_LEVEL.encode(text)
    assert BYTE_LEVEL.decode(encoding.ids) == text
    assert not set(encoding.ids.tolist()) & set(BYTE_LEVEL.special.values())
    assert encoding.spans[-1, 1] == len(text.encode()) if text else len(encoding) == 0


def test_sentinels_and_marks_go_together() -> None:
    found = train_tokenizer({**SPEC["unigram"], "sentinels": 3}, TEXTS)
    assert list(found.special) == [*ORDER["unigram"], *(f"<extra_id_{i}>" for i in range(3))]
    assert found.special["<extra_id_0>"] == len(found) - 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "bpe", "size": 300, "marks": 1}, "marks is 1; expected true or false"),
        ({"kind": "bpe", "size": 300, "mark": True}, "did you mean 'marks'"),
        ({"kind": "bpe", "size": 259, "marks": True}, "256 bytes and <s>, <pad>, </s>, <mask>: give 260 or more"),
        ({"kind": "classic-bpe", "size": 300, "marks": True}, "unknown key 'marks'"),
    ],
)
def test_a_wrong_table_says_what_is_wrong(table: dict[str, Any], message: str) -> None:
    with pytest.raises(NextwordError, match=message):
        train_tokenizer(table, TEXTS)


# ------------------------------------------------------------------------------------------------ the recipes


RECIPES = [name for name in names() if name.startswith(("roberta/", "albert/"))]


@pytest.mark.parametrize("name", RECIPES)
def test_the_papers_recipes_have_their_papers_tokenizer_and_every_part_is_there(name: str) -> None:
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
