"""Zero-shot and few-shot classification: scores by hand, and each kind of language model."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.types import Score
from nextword.data.tables import read_table
from nextword.lm.base import TextModel
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.models.t5 import T5, T5Config
from nextword.tasks.in_context import NearestLabelClassifier, ZeroShotClassifier, draw_shots, softmax, zero_shot_class
from nextword.tasks.prediction_files import PredictionRequest, predict_table
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.tiny_transfer import FILLER, make_run

BYTES = train_tokenizer({"kind": "bytes"}, ["x"])
LABELS = ["red", "dark blue"]
TEXTS = ["the king saw the house", "a river far and old"]


class Fixed(TextModel):
    """A model whose cost is a function of (given, text), with one token per character."""

    tokenizer, network, parameters, name = BYTES, SimpleNamespace(has_hidden_states=False), 0, "fixed"

    def __init__(self, cost: Any) -> None:
        self.cost, self.seen = cost, []

    def score(self, text: str, given: str = "") -> Score:
        return self.score_many([text], [given])[0]

    def score_many(self, texts: Any, given: Any) -> list[Score]:
        self.seen += zip(given, texts, strict=True)
        return [Score(self.cost(g, t), len(t), 1, len(t)) for g, t in zip(given, texts, strict=True)]


def test_predict_asks_for_every_label_and_normalizes_by_length() -> None:
    lm = Fixed(lambda given, text: 10.0 if "red" in text else 12.0)
    (prediction,) = ZeroShotClassifier(lm, LABELS).predict(["A fine day."])
    assert lm.seen == [("A fine day. This text is about", f" {label}.") for label in LABELS]
    each = [math.exp(-10 / 5), math.exp(-12 / 11)]  # " red." has 5 characters, " dark blue." 11
    assert prediction.label == "dark blue"  # more expensive, but not per character
    assert list(prediction.probabilities.values()) == pytest.approx([p / sum(each) for p in each])


def test_calibration_subtracts_each_labels_prior_score() -> None:
    """After the text red costs 4 and blue 5; red alone costs 3, so the text is evidence against it."""
    costs = {(True, True): 4.0, (True, False): 5.0, (False, True): 3.0, (False, False): 9.0}
    lm = Fixed(lambda given, text: costs["text:" in given, "red" in text])
    (prediction,) = ZeroShotClassifier(lm, LABELS, calibrate=True).predict(["text: one"])
    odds = [math.exp(3 - 4), math.exp(9 - 5)]
    assert list(prediction.probabilities.values()) == pytest.approx([p / sum(odds) for p in odds])
    assert ("This text is about", " red.") in lm.seen


def test_template_with_text_placeholder_inserts_the_text() -> None:
    lm = Fixed(lambda given, text: 1.0)
    ZeroShotClassifier(lm, LABELS, "News: {text}\nTopic: {label}").predict(["It {label} rains."])
    assert lm.seen[0] == ("News: It {label} rains.\nTopic:", " red")


def test_template_with_second_placeholder_needs_pairs() -> None:
    lm = Fixed(lambda given, text: 1.0)
    classifier = ZeroShotClassifier(
        lm, LABELS, "{second} / {text} = {label}", calibrate=True, solved=[(("c", "d"), "red")]
    )
    assert classifier.is_pair
    classifier.predict([("has {second}", "b {text}")])
    assert lm.seen[0] == ("d / c = red\n\nb {text} / has {second} =", " red")
    assert lm.seen[2] == ("d / c = red\n\n/  =", " red")
    with pytest.raises(NextwordError):
        classifier.predict("alone")
    for odd in ("alone", None, ("a", None)):
        with pytest.raises(InvalidSetting) as error:
            classifier.predict([odd])  # type: ignore[list-item]
        assert error.value.value == odd


@pytest.mark.parametrize("slug", ["lstm", "gpt1", "xlnet", "elmo"])
def test_scores_of_causal_model_equal_its_log_likelihood(tmp_path: Path, slug: str) -> None:
    lm = nextword.load(make_run(tmp_path / slug, slug), device="cpu")
    result = ZeroShotClassifier(lm, LABELS, "it is {label} .").scores(TEXTS)
    for i, text in enumerate(TEXTS):
        for j, label in enumerate(LABELS):
            score = lm.score(f" {label} .", f"{text} it is")
            assert result[i, j] == pytest.approx(-score.nats / score.tokens, abs=1e-4)


@pytest.mark.parametrize("slug", ["bert", "roberta"])
def test_scores_of_masked_model_equal_its_pseudo_likelihood(tmp_path: Path, slug: str) -> None:
    lm = nextword.load(make_run(tmp_path / slug, slug), device="cpu")
    result = ZeroShotClassifier(lm, LABELS, "it is {label}").scores(TEXTS[:1])
    text = f"{TEXTS[0]} it is red"
    ids = lm.tokenizer.encode(text).ids
    (nats,) = lm.token_nats([ids])
    mine = lm.tokenizer.encode(text).spans[:, 1] > len(text) - 4
    assert result[0, 0] == pytest.approx(-nats[mine].mean(), abs=1e-4)


def make_translator(marks: int) -> Seq2SeqLM:
    spec = {"kind": "unigram", "size": 80, **({"sentinels": marks} if marks else {})}
    tokenizer = train_tokenizer(spec, [" ".join(FILLER) + " red dark blue it is ."] * 20)
    torch.manual_seed(4)
    config = T5Config(width=16, layers=1, heads=2, head_width=8, ffn_width=16, dropout=0.0)
    return Seq2SeqLM(T5(config, vocabulary(tokenizer)), tokenizer)


def compute_step_nats(lm: Seq2SeqLM, source: list[int], target: list[int]) -> list[float]:
    """Compute −log p of each target token, step by step."""
    last, state = lm._read_prompts([source])
    costs = []
    for id in target:
        log_p, state = lm.network.step(last, state)
        costs.append(-float(log_p[0, id]))
        last = torch.tensor([id])
    return costs


def test_scores_of_seq2seq_model_equal_cost_of_generating_the_label() -> None:
    lm = make_translator(0)
    result = ZeroShotClassifier(lm, LABELS, "it is {label}").scores(TEXTS)
    source = [*lm.tokenizer.encode(f"{TEXTS[1]} it is").ids.tolist(), lm.end]
    target = [*lm.tokenizer.encode("red").ids.tolist(), lm.end]
    with torch.no_grad():
        assert result[1, 0] == pytest.approx(-np.mean(compute_step_nats(lm, source, target)), abs=1e-4)


def test_scores_of_span_infilling_model_equal_cost_of_filling_in_the_label() -> None:
    lm = make_translator(4)
    lm.fills_spans = True
    result = ZeroShotClassifier(lm, LABELS, "it is {label} .").scores(TEXTS)
    first, second = lm.sentinels[:2]
    encode = lm.tokenizer.encode
    source = [*encode(f"{TEXTS[0]} it is").ids.tolist(), first, *encode(" .").ids.tolist(), lm.end]
    with torch.no_grad():
        costs = compute_step_nats(lm, source, [first, *encode("red").ids.tolist(), second])
    assert result[0, 0] == pytest.approx(-np.mean(costs[1:]), abs=1e-4)


def test_softmax_of_infinite_costs_gives_zero_probability() -> None:
    result = softmax(np.array([[-math.inf, -1.0], [-math.inf, -math.inf], [0.0, 0.0]]))
    np.testing.assert_allclose(result, [[0, 1], [0.5, 0.5], [0.5, 0.5]])


def test_predict_notes_unknown_label_words_and_truncated_texts(tmp_path: Path) -> None:
    lm = nextword.load(make_run(tmp_path / "lstm", "lstm"), device="cpu")
    notes: list[str] = []
    ZeroShotClassifier(lm, ["red", "zweiback"], "so {label}").predict(["the king"], notes=notes)
    assert len(notes) == 1
    assert "'zweiback'" in notes[0]
    ZeroShotClassifier(lm, ["red", "blue"], "so {label}.").predict(["the king"], notes=notes)
    assert "'red.', 'blue.'" in notes[1]  # one word in a vocabulary of whitespace-separated words
    for slug, window in (("gpt1", 32), ("bert", 30)):
        lm, notes = nextword.load(make_run(tmp_path / slug, slug), device="cpu"), []
        ZeroShotClassifier(lm, ["red", "blue"], "so {label}").predict(["the king " * 100, "the king"], notes=notes)
        (note,) = notes
        assert note.startswith(f"1 of 2 texts are longer than the window of {window} tokens")


@pytest.mark.parametrize(
    ("labels", "template", "key"),
    [
        (["red"], "{label}", "labels"),
        (["red", " "], "{label}", "labels"),
        (["red", "red "], "{label}", "labels"),
        (LABELS, "It is so.", "task.template"),
        (LABELS, "{label} {text}", "task.template"),
    ],
)
def test_invalid_labels_or_template_name_the_key(labels: list[str], template: str, key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        ZeroShotClassifier(Fixed(lambda *_: 1.0), labels, template)
    assert error.value.key == key


def test_classifier_over_model_without_score_raises() -> None:
    lm = Fixed(lambda *_: 1.0)
    lm.disable("score")
    with pytest.raises(Unsupported) as error:
        ZeroShotClassifier(lm, LABELS)
    assert error.value.ability == "score"


def test_few_shot_examples_precede_every_text_in_the_same_template() -> None:
    lm = Fixed(lambda given, text: 1.0)
    solved = [("It rains.", "dark blue"), ("Fire!", "red")]
    ZeroShotClassifier(lm, LABELS, "{text} It is {label}.", solved=solved, calibrate=True).predict(["A day."])
    ahead = "It rains. It is dark blue.\n\nFire! It is red.\n\n"
    assert lm.seen == [
        *((f"{ahead}A day. It is", f" {label}.") for label in LABELS),
        *((f"{ahead}It is", f" {label}.") for label in LABELS),  # the prior scores of the labels
    ]


def test_draw_shots_balances_classes() -> None:
    texts, labels = [f"t{i}" for i in range(40)], ["a"] * 30 + ["b"] * 8 + ["c"] * 2
    results = draw_shots(texts, labels, 9, seed=3)
    assert (
        sorted(label for _, label in results) == ["a"] * 4 + ["b"] * 3 + ["c"] * 2
        or sorted(label for _, label in results) == ["a"] * 3 + ["b"] * 4 + ["c"] * 2
    )
    assert all(labels[texts.index(text)] == label for text, label in results)
    assert len(set(results)) == 9
    assert results == draw_shots(texts, labels, 9, seed=3)
    assert results != draw_shots(texts, labels, 9, seed=4)
    assert len(draw_shots(texts, labels, 99, seed=0)) == 40


def test_predict_notes_few_shot_examples_that_exceed_the_window(tmp_path: Path) -> None:
    lm: Any = nextword.load(make_run(tmp_path / "gpt1", "gpt1"), device="cpu")
    notes: list[str] = []
    solved = [("the old king went far to the house", "red")] * 8
    ZeroShotClassifier(lm, LABELS, "{text} it is {label}", solved=solved).predict(["a river"], notes=notes)
    assert any("without the first examples" in note for note in notes)


# ------------------------------------------------------------------------------------------------ sentence vectors


class Embedder(TextModel):
    """A model that embeds and does not score: one dimension per word of a list."""

    words = ("red", "blue", "fire", "sea")
    tokenizer, parameters, name = BYTES, 0, "embedder"
    network = SimpleNamespace(has_output_layer=False, widths=[4], is_open_vocabulary=True, max_characters=0)

    def __init__(self) -> None:
        """No network: `embed` counts words."""

    def embed(self, texts: Any, layer: Any = -1, pooling: str = "mean") -> torch.Tensor:
        return torch.tensor([[float(text.count(word)) for word in self.words] for text in texts])


def test_a_model_of_vectors_chooses_the_label_with_the_largest_cosine() -> None:
    lm = Embedder()
    classifier = zero_shot_class(lm)(lm, ["red", "blue"])
    assert isinstance(classifier, NearestLabelClassifier)
    first, second = classifier.predict(["red and red and blue", "blue"])
    assert [first.label, second.label] == ["red", "blue"]
    logits = np.array([2, 1]) / math.sqrt(5) / 0.05
    assert list(first.probabilities.values()) == pytest.approx(list(np.exp(logits) / np.exp(logits).sum()))


def test_examples_move_the_vector_of_their_label() -> None:
    lm = Embedder()
    assert NearestLabelClassifier(lm, ["red", "blue"]).scores(["sea"]).tolist() == [[0, 0]]
    shown = NearestLabelClassifier(lm, ["red", "blue"], solved=[("sea", "blue"), ("fire", "red"), ("fire", "red")])
    assert shown.scores(["sea"])[0] == pytest.approx([0, math.sqrt(0.5) / 0.05])
    assert shown.scores(["fire"])[0] == pytest.approx([2 / math.sqrt(5) / 0.05, 0])


def test_a_model_with_probabilities_scores_labels_by_them() -> None:
    assert zero_shot_class(Fixed(lambda *_: 1.0)) is ZeroShotClassifier


@pytest.mark.parametrize("settings", [{"calibrate": True}, {"template": "{text} {second} {label}"}])
def test_vectors_cannot_be_calibrated_or_compare_pairs(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        NearestLabelClassifier(Embedder(), ["red", "blue"], **settings)


def test_predict_says_that_every_row_got_one_label(tmp_path: Path) -> None:
    file = tmp_path / "new.txt"
    file.write_text("red sea\nred\nred fire\nred red\nred\n" + "red\n" * 3)
    table = read_table(str(file), lambda cells: False)
    classifier = NearestLabelClassifier(Embedder(), ["red", "blue"])
    notes = predict_table(classifier, PredictionRequest(str(file)), table, "").notes
    assert any("all 8 rows" in note and "'red'" in note for note in notes)
    file.write_text("red sea\nred\nblue fire\nred red\nred\n" + "red\n" * 3)
    table = read_table(str(file), lambda cells: False)
    assert not any(
        "rows got" in note for note in predict_table(classifier, PredictionRequest(str(file)), table, "").notes
    )
