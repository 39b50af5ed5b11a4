"""Warm start with another vocabulary: known words keep their rows, new words get the mean row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from nextword.core.errors import InvalidSetting, Unsupported
from nextword.models.base import FILE
from nextword.recipe import parse_recipe
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.ptb_words import Lexicon
from nextword.tokenizers.words import Words
from nextword.training.train import train_events
from nextword.training.warm_start import NEW, match_words, remap_rows

FIRST = "the king saw the old house and the queen went to the river\n" * 40
SECOND = "The film saw an actor and the old queen in the house of horror\n" * 40
SHAPE = {"embedding": 8, "width": 12, "layers": 2}
ROWS = {"kind": "rows", "rows": 2, "length": 5}
FROZEN = {"kind": "sgd", "rate": 1e-30}


def train_run(
    folder: Path, name: str, text: str, model: dict[str, Any], tokenizer: dict[str, Any], **phase: Any
) -> Path:
    defaults = {
        "data": write_corpus(folder / f"{name}-text", text),
        "batches": {"kind": "rows", "rows": 2, "length": 5},
        "steps": 3,
    }
    tables = {
        "paper": {"slug": phase.pop("slug", "awd-lstm")},
        "tokenizer": tokenizer,
        "model": model,
        "phase": [{**defaults, "keep": "last", **phase}],
    }
    events = list(train_events(parse_recipe(tables, name), folder / name, device="cpu"))
    assert events
    return folder / name


def write_corpus(folder: Path, text: str) -> str:
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(text)
    return str(folder)


def tensors(run: Path) -> dict[str, Tensor]:
    return load_file(str(run / FILE))


# ------------------------------------------------------------------------------------------------ matching rows


def test_match_words_finds_rows_by_spelling() -> None:
    source, target = Words(["the", "film", "king"]), Words(["actor", "the", "king", "of"])
    assert match_words(source, target).tolist() == [0, 1, NEW, 2, 4, NEW]


def test_match_words_with_lowercase_source_ignores_case() -> None:
    target = Words(["The", "the", "King"])
    assert match_words(Words(["the", "king"], lower=True), target).tolist() == [0, 1, 2, 2, 3]
    assert match_words(Words(["the", "king"]), target).tolist() == [0, 1, NEW, 2, NEW]
    assert match_words(Lexicon(["the", "king"]), target).tolist() == [0, 1, 2, 2, 3]


def test_remap_rows_initializes_new_rows_with_the_mean() -> None:
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0], [8.0, 0.0]])
    rows = remap_rows(table, np.array([2, NEW, 0, 2]))
    assert rows.tolist() == [[8, 0], [4, 2], [1, 2], [8, 0]]
    assert remap_rows(table[:, 0], np.array([NEW, 1])).tolist() == [4, 3]


# ------------------------------------------------------------------------------------------------ whole runs


@pytest.mark.parametrize(
    ("slug", "model"),
    [
        ("awd-lstm", SHAPE),
        ("awd-lstm", {**SHAPE, "tied": False}),
        ("awd-lstm", {**SHAPE, "readout": {"kind": "sampled", "samples": 4}}),
        ("lstm", {"width": 8}),
        ("gpt2", {"width": 8, "layers": 1, "heads": 2, "window": 8}),
    ],
)
def test_warm_start_with_another_vocabulary_keeps_known_rows(tmp_path: Path, slug: str, model: dict[str, Any]) -> None:
    spec = {"kind": "words"}
    batches = {"kind": "blocks", "rows": 2, "length": 8} if slug == "gpt2" else ROWS
    options = {"slug": slug, "batches": batches}
    first = train_run(tmp_path, "first", FIRST, model, spec, optimizer={"kind": "adam", "rate": 0.01}, **options)
    second = train_run(tmp_path, "second", SECOND, model, spec, init_from=str(first), optimizer=FROZEN, **options)
    before, after = tensors(first), tensors(second)
    source, target = (load_tokenizer(run / "tokenizer.json") for run in (first, second))
    tables = {name for name in before if "proposal" not in name and len(before[name]) == len(source)}
    assert tables >= {"embedding.weight"}
    assert ("readout.weight" in tables) == (slug == "lstm" or model.get("tied") is False)
    for name in before:
        if name in tables:
            for i, word in enumerate(("<unk>", "<eos>", *target.words)):
                is_known = word in source.words or word.startswith("<")
                index = (
                    source.special[word] if word.startswith("<") else source.words.index(word) + 2 if is_known else None
                )
                row = before[name][index] if is_known else before[name].mean(0)
                torch.testing.assert_close(after[name][i], row, rtol=1e-5, atol=1e-6)
        elif "proposal" not in name:
            torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-20)
    assert {"the", "saw"} < set(source.words) & set(target.words)
    assert "film" in target.words


def test_warm_start_reports_the_number_of_new_words(tmp_path: Path) -> None:
    first = train_run(tmp_path, "first", FIRST, SHAPE, {"kind": "words"})
    tables = {
        "paper": {"slug": "awd-lstm"},
        "tokenizer": {"kind": "lexicon", "size": 50},
        "model": SHAPE,
        "phase": [{"data": write_corpus(tmp_path / "text", SECOND), "init_from": str(first), "steps": 2}],
    }
    events = list(train_events(parse_recipe(tables, "second"), tmp_path / "second", device="cpu"))
    (note,) = events[0].values["notes"]
    words = set(SECOND.lower().split())
    new = len(words - set(FIRST.split()))
    assert f"{new} of {len(words) + 2} words are new to it" in note
    assert "words are new to it" in (tmp_path / "second" / "log.jsonl").read_text()


def test_warm_start_resume_gives_identical_weights(tmp_path: Path) -> None:
    first = train_run(tmp_path, "first", FIRST, SHAPE, {"kind": "words"})
    options = {"init_from": str(first), "optimizer": {"kind": "adam", "rate": 0.01}, "steps": 6}
    straight = tensors(train_run(tmp_path, "straight", SECOND, SHAPE, {"kind": "words"}, **options))
    stops = iter([False, False, True])
    tables = {
        "paper": {"slug": "awd-lstm"},
        "tokenizer": {"kind": "words"},
        "model": SHAPE,
        "phase": [
            {
                "data": str(tmp_path / "straight-text"),
                "batches": ROWS,
                "keep": "last",
                **options,
            }
        ],
    }
    list(train_events(parse_recipe(tables, "cut"), tmp_path / "cut", device="cpu", stop=lambda: next(stops)))
    list(train_events(None, tmp_path / "cut", resume=True, device="cpu"))
    resumed = tensors(tmp_path / "cut")
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


@pytest.mark.parametrize(
    "model",
    [
        {"width": 8, "readout": {"kind": "classes"}},
        {"width": 8, "readout": {"kind": "adaptive", "cutoffs": [6]}},
        {"width": 8, "characters": {"filters": [[1, 4]], "character_width": 4}},
    ],
)
def test_warm_start_without_word_rows_raises(tmp_path: Path, model: dict[str, Any]) -> None:
    first = train_run(tmp_path, "first", FIRST, model, {"kind": "words"}, slug="lstm")
    with pytest.raises(Unsupported):
        train_run(tmp_path, "second", SECOND, model, {"kind": "words"}, slug="lstm", init_from=str(first))
    assert not (tmp_path / "second").exists()


def test_warm_start_with_another_width_raises(tmp_path: Path) -> None:
    first = train_run(tmp_path, "first", FIRST, SHAPE, {"kind": "words"})
    with pytest.raises(InvalidSetting, match=r"weight_ih is \(48, 8\).*\(64, 8\)"):
        train_run(tmp_path, "second", SECOND, {**SHAPE, "width": 16}, {"kind": "words"}, init_from=str(first))
