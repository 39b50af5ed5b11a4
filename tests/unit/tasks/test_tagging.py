"""Tagging with the trainer: its own network, heads over other networks, few labels, contextual vectors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword import tasks as transfer
from nextword.batching.examples import Bucketed
from nextword.core.errors import InvalidSetting, NextwordError, RunError, Unsupported
from nextword.lm.causal import CausalLM
from nextword.lm.embedding import ContextualVectors
from nextword.tasks.datasets.tagged import read_tags
from nextword.tasks.encoding import encode_texts
from nextword.tasks.plan import make_plan
from nextword.tasks.tagging import SentenceBatches, WordTagger, encode_sentences
from nextword.tokenizers.base import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.tiny_tagged import quick_changes, write_tagged_data
from tests.support.tiny_transfer import make_run
from tests.support.toy_bigram import Bigram


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tagged_data(tmp_path_factory.mktemp("tagged") / "names")


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    out = data.parent / "run"
    transfer.run("tagger/tiny", "", str(data), out, changes=quick_changes(), device="cpu")
    return out


def train_tagger(data: Path, out: Path, *changes: str, **options: Any) -> Any:
    return transfer.run(
        "tagger/tiny", "", str(data), out, changes=[*quick_changes(), *changes], device="cpu", **options
    )


# ------------------------------------------------------------------------------------------------ what is learnt


def test_tagger_run_finds_unseen_names(run: Path) -> None:
    result = transfer.read_result(run)
    assert result is not None
    assert result["metric"] == "span_f1"
    assert result["examples"] == {"train": 300, "dev": 60, "test": 60}
    assert result["dev"]["span_f1"] > 0.9
    assert result["test"]["span_f1"] > 0.9
    tagger: Any = nextword.load(run, device="cpu")
    assert isinstance(tagger, WordTagger)
    words = ["mister", "Zuze", "Xaxa", "went", "to", "Wuwepolis"]
    predictions = tagger.predict([words, "", "the king."])
    assert predictions[0].tags == ("O", "B-PER", "I-PER", "O", "O", "B-LOC")
    assert [tuple(span) for span in tagger.spans_of(predictions[0])] == [(1, 3, "PER"), (5, 6, "LOC")]
    assert predictions[1].words == predictions[1].tags == ()
    assert predictions[2].words == ("the", "king", ".")
    assert tagger.predict([" ".join(words)])[0] == predictions[0]
    with pytest.raises(NextwordError):
        tagger.predict("the king.")
    for odd in (None, ["the", None]):
        with pytest.raises(InvalidSetting) as error:
            tagger.predict([odd])
        assert error.value.value == odd


def test_final_metric_equals_metric_of_predictions(run: Path, data: Path) -> None:
    tagger: Any = nextword.load(run, device="cpu")
    text = read_tags(str(data)).splits["test"].sentences
    from nextword.data.tag_schemes import find_spans
    from nextword.metrics.spans import span_f1

    predictions = tagger.predict([item.words for item in text])
    gold, results = (
        [(i, *s) for i, item in enumerate(some) for s in find_spans(item.tags)] for some in (text, predictions)
    )
    result = transfer.read_result(run)
    assert result is not None
    assert span_f1(gold, results) == pytest.approx(result["test"]["span_f1"])


def test_tagger_can_only_predict(run: Path) -> None:
    tagger: Any = nextword.load(run, device="cpu")
    assert tagger.can == {"predict"}
    with pytest.raises(Unsupported) as error:
        tagger.score("the king")
    assert error.value.ability == "score"


@pytest.mark.parametrize("changes", [("task.classifier=linear",), ("task.strict=true", "model.characters=lstm")])
def test_tagger_with_other_output_settings_learns(data: Path, tmp_path: Path, changes: tuple[str, ...]) -> None:
    assert train_tagger(data, tmp_path / "run", *changes).mean > 0.85


def test_interrupted_run_resumes_bit_identically(data: Path, tmp_path: Path) -> None:
    own = ("phase.0.epochs=2", "model.dropout=0.3", "phase.0.save_every=0")
    train_tagger(data, tmp_path / "whole", *own)
    calls = iter(range(1000))
    assert train_tagger(data, tmp_path / "parts", *own, stop=lambda: next(calls) >= 25).interrupted
    plan, events = transfer.resume(tmp_path / "parts", "cpu")
    assert plan.data.scheme == "BIOES"
    list(events)
    for name in ("model.safetensors", "head.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    assert transfer.read_result(tmp_path / "whole")["test"] == transfer.read_result(tmp_path / "parts")["test"]  # type: ignore[index]


def test_train_fraction_is_drawn_by_seed_and_nested(data: Path, tmp_path: Path) -> None:
    plan = make_plan("tagger/tiny", "", str(data), changes=quick_changes(), device="cpu")
    train = plan.examples["train"]
    rows = lambda some: {tuple(some.ids[a:b].tolist()) for a, b in zip(some.starts, some.starts[1:], strict=False)}  # noqa: E731
    little, more, other = (plan.task.sample(train, *how) for how in ((0.1, 3), (0.5, 3), (0.1, 4)))
    assert (len(little), len(more)) == (30, 150)
    assert rows(little) <= rows(more) <= rows(train)
    assert rows(little) != rows(other)
    assert len(little.tags) == len(little.letters) == little.word_starts[-1]
    out = train_tagger(data, tmp_path / "few", "task.train_fraction=0.1", "phase.0.epochs=1")
    assert out.results[0]["examples"]["train"] == 30
    with pytest.raises(InvalidSetting) as error:
        train_tagger(data, tmp_path / "none", "task.train_fraction=0")
    assert error.value.key == "task.train_fraction"


def test_unseen_tags_of_test_count_as_missed(tmp_path: Path) -> None:
    data = write_tagged_data(tmp_path / "names", 100, 20)
    lines = (data / "test.conll").read_text()
    (data / "test.conll").write_text(lines + "\nthe O\nWar B-EVENT\nended O\n")
    plan = make_plan("tagger/tiny", "", str(data), changes=quick_changes(), device="cpu")
    assert any("test has 1 tags" in note and "S-EVENT" in note for note in plan.notes)
    assert plan.examples["test"].tags.max() == len(plan.data.labels)
    out = train_tagger(data, tmp_path / "run", "phase.0.epochs=1")
    assert 0 <= out.results[0]["test"]["span_f1"] < 1


def test_part_of_speech_tags_are_scored_by_accuracy(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pos"
    folder.mkdir()
    for split in ("train", "dev"):
        rows = [line.split() for line in (data / f"{split}.conll").read_text().splitlines()]
        (folder / f"{split}.tsv").write_text(
            "".join(f"{row[0]}\t{'NAME' if row[0][0].isupper() else 'WORD'}\n" if row else "\n" for row in rows)
        )
    out = train_tagger(folder, tmp_path / "run", "task.classifier=linear", "phase.0.epochs=2")
    assert out.metric == "token_accuracy"
    assert out.mean > 0.95
    tagger: Any = nextword.load(tmp_path / "run", device="cpu")
    assert tagger.predict([["the", "Zozo"]])[0].tags == ("WORD", "NAME")


def test_read_tags_without_dev_holds_out_sentences(data: Path) -> None:
    dataset = read_tags(str(data / "train.conll"))
    assert len(dataset.splits["train"]) + len(dataset.splits["dev"]) == 300
    assert 20 <= len(dataset.splits["dev"]) <= 40
    assert any("held out" in note for note in dataset.notes)
    assert dataset.fingerprint == read_tags(str(data / "train.conll")).fingerprint


# ------------------------------------------------------------------------------------------------ over other networks


@pytest.mark.parametrize("slug", ["bert", "roberta", "lstm", "xlnet"])
def test_tag_head_trains_over_any_network(slug: str, data: Path, tmp_path: Path) -> None:
    """With words of several tokens, frames around the text, and packed and padded rows."""
    source = make_run(tmp_path / slug, slug)
    changes = ["phase.0.epochs=1", "phase.0.precision=fp32", "task.classifier=crf"]
    out = transfer.run("bert/tag", source, str(data), tmp_path / "out", changes=changes, device="cpu")
    assert 0 <= out.mean <= 1
    tagger: Any = nextword.load(tmp_path / "out", device="cpu")
    together = tagger.predict([["the", "king"], ["mister", "Karo", "met", "a", "Velopolis"]])
    assert [len(item.tags) for item in together] == [2, 5]


# ------------------------------------------------------------------------------------------------ in context


def test_contextual_vectors_have_one_vector_per_word_and_layer(tmp_path: Path) -> None:
    words = [["the", "king", "went"], ["a", "riverhouse", "far"], ["queen"]]
    for slug in ("bert", "lstm", "elmo"):
        lm: Any = nextword.load(make_run(tmp_path / slug, slug), device="cpu")
        context = ContextualVectors(lm, tmp_path / slug)
        result = context.read(words)
        assert result.shape == (context.layers, 7, context.width)
        assert context.read([["10 000", "men"]]).shape[1] == 2  # some treebanks have words with spaces in them
        alone = context.read([words[1]])
        np.testing.assert_allclose(alone, result[:, 3:6], atol=2e-3)
        kept = context.cached(words)
        assert isinstance(kept, np.memmap)
        np.testing.assert_array_equal(kept, result)


def test_contextual_vectors_of_model_without_embeddings_raise() -> None:
    tokenizer = train_tokenizer({"kind": "bytes"}, ["x"])
    counts = Bigram(Bigram.Config(), vocabulary(tokenizer))
    with pytest.raises(Unsupported):
        ContextualVectors(CausalLM(counts, tokenizer))


def test_tagger_with_contextual_vectors_of_missing_run_raises(data: Path, tmp_path: Path) -> None:
    source = make_run(tmp_path / "bert", "bert")
    changes = (
        f"model.contextual={source}",
        "model.contextual_place=both",
        "model.contextual_l2=0.01",
        "phase.0.epochs=3",
    )
    out = train_tagger(data, tmp_path / "run", *changes)
    assert out.mean > 0.5
    recipe = json.loads(json.dumps((tmp_path / "run" / "recipe.toml").read_text()))
    assert "contextual_layers = 3" in recipe
    assert "contextual_width = 32" in recipe
    tagger: Any = nextword.load(tmp_path / "run", device="cpu")
    sentences = [sentence.words for sentence in read_tags(str(data)).splits["test"].sentences]
    before = tagger.predict(sentences)
    assert before == nextword.load(tmp_path / "run", device="cpu").predict(sentences)  # type: ignore[arg-type]
    shutil.rmtree(source)
    make_run(source, "bert", seed=1)
    changed: Any = nextword.load(tmp_path / "run", device="cpu")
    with pytest.raises(RunError) as error:
        changed.predict([["the"]])
    assert error.value.path == str(source)
    source.rename(tmp_path / "elsewhere")
    gone: Any = nextword.load(tmp_path / "run", device="cpu")
    with pytest.raises(RunError) as error:
        gone.predict([["the"]])
    assert error.value.path == str(source)


# ------------------------------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"source": "runs/x"}, "runs/x"),
        ({"kind": "classification"}, "--kind"),
        ({"changes": ["task.scheme=IOB3"]}, "'IOB3'"),
        ({"changes": ["task.classifier=biattentive"]}, "'biattentive'"),
        ({"changes": ["model.vectors=nowhere.txt"]}, "nowhere.txt"),
        ({"changes": ["model.vectors=glove"]}, "glove-6b"),
        ({"changes": ["phase.0.batches.kind=rows"]}, "'rows'"),
    ],
)
def test_invalid_tagging_setting_raises_before_the_folder_exists(
    options: dict[str, Any], named: str, data: Path, tmp_path: Path
) -> None:
    changes = [*quick_changes(), *options.pop("changes", ())]
    source = options.pop("source", "")
    with pytest.raises(NextwordError, match=named):
        transfer.run("tagger/tiny", source, str(data), tmp_path / "out", changes=changes, device="cpu", **options)
    assert not (tmp_path / "out").exists()


def test_recipe_without_network_and_without_run_raises(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as error:
        transfer.run("bert/tag", "", str(data), tmp_path / "out", device="cpu")
    assert error.value.key == "source"
    source = make_run(tmp_path / "bert", "bert")
    with pytest.raises(InvalidSetting) as error:
        transfer.run("tagger/tiny", source, str(data), tmp_path / "out", device="cpu")


def test_character_network_reads_characters_of_unknown_words(tmp_path: Path) -> None:
    """In tag heads, in classification heads, and in `embed_words`."""
    lm: Any = nextword.load(make_run(tmp_path / "elmo", "elmo"), device="cpu")
    words = [["the", "zweiback", "king"], ["stale", "zweiback", "of", "queen"]]
    text, _ = encode_sentences(lm.network, lm.tokenizer, words)
    batch = SentenceBatches(rows=2).batch(text, np.arange(2), 0)
    assert batch.inputs.characters is not None
    assert len(batch.inputs.characters) == 2  # each once
    last = lm.network.encode(batch.inputs)[0][-1].reshape(-1, lm.network.widths[-1])
    wanted = torch.cat([word.vectors for word in lm.embed_words(words)])
    assert batch.target_positions is not None
    torch.testing.assert_close(last[batch.target_positions[batch.target_positions >= 0]], wanted, atol=1e-5, rtol=1e-4)
    framed, _ = encode_texts(lm.network, lm.tokenizer, "classify", [" ".join(word) for word in words], None)
    inputs = Bucketed().batch(framed, np.arange(2), 0).inputs
    other = encode_texts(lm.network, lm.tokenizer, "classify", ["the zwieback king", "stale zweiback of queen"], None)[
        0
    ]
    changed = Bucketed().batch(other, np.arange(2), 0).inputs
    first, second = (lm.network.encode(given)[0][-1] for given in (inputs, changed))
    assert not torch.allclose(first[0], second[0])  # <unk> was not read
    torch.testing.assert_close(first[1], second[1], atol=1e-6, rtol=1e-5)
