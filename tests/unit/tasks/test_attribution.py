"""Attributions: exact for linear models, complete for all others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword import tasks as transfer
from nextword.core.errors import Unsupported
from nextword.core.types import Inputs
from nextword.models import model_class
from nextword.models.base import Network
from nextword.tasks import task_class
from nextword.tasks.attribution import attribute_tokens, sum_by_word
from nextword.tasks.classification import Classifier
from nextword.tasks.encoding import encode_texts
from nextword.tasks.heads import TextHead
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import to_device
from tests.support.small_encoders import randomize
from tests.support.tiny_transfer import SPECS, draw_color_texts, make_transfer_folder, write_table

TEXTS = ("the red house and a blue king", "far")
QUICK = ["phase.0.optimizer.rate=5e-3", "phase.0.batches.rows=16", "model.dropout=0.0"]


def make_classifier(slug: str, shape: dict[str, Any], spec: dict[str, Any], **more: Any) -> Classifier:
    """Make an untrained network and a head with large random weights."""
    tokenizer = train_tokenizer(spec, [text for text, _ in draw_color_texts(200)])
    cls = model_class(slug)
    torch.manual_seed(2)
    network = cls(cls.Config(**shape), vocabulary(tokenizer, spellings=True))
    own = {"kind": "classification", "frame": "classify", "labels": ("a", "b", "c"), **more}
    task = task_class(own["kind"]).parse(own, "test")
    model = task.head(network)
    randomize(model)
    return Classifier(model, tokenizer, task, 64)


def test_bag_of_words_attributions_are_exact() -> None:
    """With mean pooling and a linear layer, token t instead of a blank b adds (W_c − mean W) · (e_t − b) / T."""
    lm = make_classifier("glove", {"width": 8}, {"kind": "words", "size": 100}, pooling="mean")
    (attribution,) = lm.explain([TEXTS[0]], ["b"])
    ids = lm.tokenizer.encode(TEXTS[0]).ids
    vectors = lm.network.encode(Inputs(torch.from_numpy(ids)[None]))[0][0][0].detach().double()
    table = lm.network.encode(Inputs(torch.arange(len(lm.tokenizer))[None]))[0][0][0].detach().double()
    weight, bias = (p.detach().double() for p in (lm.model.out.weight, lm.model.out.bias))
    own, blank = weight[1] - weight.mean(0), table.mean(0)
    each = (vectors - blank) @ own / len(ids)
    np.testing.assert_allclose(attribution.weights[0], each[: len(TEXTS[0].split())], rtol=1e-5, atol=1e-7)
    assert attribution.baseline == pytest.approx(float(own @ blank + bias[1] - bias.mean()), abs=1e-6)
    assert attribution.gap == pytest.approx(0, abs=1e-6)


def test_sixteen_integration_steps_are_nearly_complete() -> None:
    """The weights sum to the change of the score by the text; with a single step they do not."""
    shape = {"width": 16, "layers": 2, "heads": 2, "window": 32, "dropout": 0.0}
    lm = make_classifier("bert", shape, {"kind": "wordpiece", "size": 200}, pooling="mean")
    example, _ = encode_texts(lm.network, lm.tokenizer, "classify", [TEXTS[0]], None)
    own = np.ones(len(example.ids), bool)
    own[[0, -1]] = False
    place = partial(to_device, device=torch.device("cpu"))
    fine, coarse = (attribute_tokens(lm.model, example, own, 1, place, steps, refine=False) for steps in (16, 1))
    assert fine.tokens[0] == fine.tokens[-1] == 0  # the frame is not replaced, and so adds nothing
    moved = abs(fine.score - fine.baseline)
    assert moved > 0.05
    assert abs(fine.gap) < 0.02 * moved
    assert abs(coarse.gap) > 5 * abs(fine.gap)
    four = attribute_tokens(lm.model, example, own, 1, place, 1)  # the gap is too large: four steps instead
    np.testing.assert_array_equal(
        four.tokens, attribute_tokens(lm.model, example, own, 1, place, 4, refine=False).tokens
    )


WORDS = {"kind": "words", "size": 100}
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "awd-lstm": ({"embedding": 8, "width": 12, "layers": 2}, WORDS),  # indexes its table, without a module
    "nplm": ({"embedding": 8, "width": 12, "context": 3}, WORDS),  # pads before the first word
    "gpt2": ({"width": 16, "layers": 1, "heads": 2, "window": 32, "dropout": 0.0}, WORDS),
    "t5": ({"width": 16, "layers": 1, "heads": 2, "head_width": 8, "ffn_width": 16}, {"kind": "unigram", "size": 120}),
    "cove": (
        {"width": 8, "vector_width": 6, "embedding": 8},
        {"kind": "lexicon", "size": 100},
    ),  # fixed vectors
}


@pytest.mark.parametrize("slug", OTHERS)
def test_attributions_interpolate_every_kind_of_embedding(slug: str) -> None:
    lm = make_classifier(slug, *OTHERS[slug], pooling="mean")
    (attribution,) = lm.explain([TEXTS[0]], ["b"])
    weights = attribution.weights[0]
    assert all(abs(w) > 0 for w in weights)
    assert sum(weights) == pytest.approx(attribution.score - attribution.baseline, abs=0.05 * sum(map(abs, weights)))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_transfer_folder(tmp_path_factory.mktemp("attribution"))


@pytest.mark.parametrize("slug", SPECS)
@pytest.mark.parametrize("data", ["color", "pair", "count"])
def test_explanations_are_complete_for_every_network_and_task(place: Path, slug: str, data: str) -> None:
    changes = [*QUICK, "phase.0.steps=3"]
    transfer.run("bert/finetune", place / slug, str(place / f"{data}.csv"), place / f"{slug}-{data}", changes=changes)
    lm = nextword.load(place / f"{slug}-{data}", device="cpu")
    given = [TEXTS] if data == "pair" else [TEXTS[0]]
    before = lm.predict(given)[0]
    (attribution,) = lm.explain(given)
    assert attribution.label == before.label
    assert [len(words) for words in attribution.words] == [len(w) for w in attribution.weights]
    total = sum(w for weights in attribution.weights for w in weights)
    assert total == pytest.approx(
        attribution.score - attribution.baseline, abs=0.05 * max(abs(w) for w in attribution.weights[0]) + 1e-5
    )
    assert any(abs(w) > 0 for w in attribution.weights[-1])
    if data == "count":
        assert attribution.score == pytest.approx(before.value, abs=1e-3)  # in the units of the labels
    after = lm.predict(given)[0]  # the network is restored
    assert after.probabilities == pytest.approx(before.probabilities, abs=1e-6)


def test_attributions_give_the_deciding_word_the_largest_weight(place: Path) -> None:
    changes = [*QUICK, "phase.0.epochs=6", "task.pooling=mean"]
    transfer.run("bert/finetune", place / "lstm", str(place / "color.csv"), place / "learnt", changes=changes)
    lm = nextword.load(place / "learnt", device="cpu")
    attributions = lm.explain([text for text, _ in draw_color_texts(20, seed=9)])
    right = sum(
        attribution.words[0][int(np.argmax(attribution.weights[0]))] == attribution.label
        for attribution in attributions
    )
    assert right >= 18


def test_attributions_of_frozen_network_are_not_zero(place: Path) -> None:
    changes = [*QUICK, "phase.0.steps=3", "task.frozen=true"]
    transfer.run("bert/finetune", place / "lstm", str(place / "color.csv"), place / "fixed", changes=changes)
    (attribution,) = nextword.load(place / "fixed", device="cpu").explain([TEXTS[0]])
    assert any(abs(w) > 0 for w in attribution.weights[0])


def test_attributions_of_truncated_words_are_none(place: Path) -> None:
    changes = [*QUICK, "phase.0.steps=1"]
    transfer.run("bert/finetune", place / "bert", str(place / "color.csv"), place / "cut", changes=changes)
    (attribution,) = nextword.load(place / "cut", device="cpu").explain(["red " * 100])  # at most 32 tokens are read
    assert attribution.weights[0].count(None) == 100 - 30
    assert attribution.weights[0][0] is not None


def test_attributions_of_words_read_by_characters_are_zero(place: Path) -> None:
    """A word without an id has no embedding to interpolate; the other words share the change."""
    changes = [*QUICK, "phase.0.steps=3", "task.pooling=mean"]
    transfer.run("bert/finetune", place / "elmo", str(place / "color.csv"), place / "letters", changes=changes)
    (attribution,) = nextword.load(place / "letters", device="cpu").explain(["the zweiback of a red king"])
    weights = attribution.weights[0]
    assert weights[1] == 0
    assert all(abs(w) > 0 for i, w in enumerate(weights) if i != 1)
    assert sum(weights) == pytest.approx(attribution.score - attribution.baseline, abs=0.02 * max(map(abs, weights)))


def test_attributions_of_a_pair_sum_both_orders() -> None:
    """GPT reads "similar" pairs in both orders; the weight of a word is the sum of both."""
    shape = {"width": 16, "layers": 1, "heads": 2, "window": 32, "dropout": 0.0, "extra_tokens": 3}
    lm = make_classifier(
        "gpt1", shape, {"kind": "classic-bpe", "size": 200}, kind="pair_classification", frame="similar"
    )
    (ab,), (ba,) = lm.explain([TEXTS], ["a"]), lm.explain([TEXTS[::-1]], ["a"])
    for weight, other in zip(ab.weights, ba.weights[::-1], strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-3, atol=1e-4)


def test_sum_by_word_sums_token_weights() -> None:
    assert sum_by_word([1.0, 2.0, 4.0], np.array([0, 1, 1, 2]), 3) == [1.0, 6.0, None]
    assert sum_by_word([], np.array([], np.int64), 0) == []
    assert sum_by_word([1.0, 2.0], np.array([0, 1]), 1) == [3.0]  # a trailing space belongs to the last word


def test_explain_without_embeddings_raises() -> None:
    lm = make_classifier("glove", {"width": 8}, {"kind": "words", "size": 100}, pooling="mean")

    class Blind(Network):
        widths = lm.network.widths
        frame = staticmethod(lm.network.frame)

        def encode(self, inputs: Any, state: Any = None) -> Any:
            return [inputs.ids.unsqueeze(-1).float().expand(-1, -1, 8)], None

    network = Blind(lm.network.config, lm.network.vocabulary)
    blind = Classifier(TextHead(network, lm.model.config, 3), lm.tokenizer, lm.task, 64)
    with pytest.raises(Unsupported, match="Blind"):
        blind.explain(["the red"], ["a"])


def test_attributions_of_empty_text_are_empty(place: Path) -> None:
    path = write_table(place / "some.csv", ["text", "label"], draw_color_texts(60))
    transfer.run("bert/finetune", place / "lstm", str(path), place / "short", changes=[*QUICK, "phase.0.steps=1"])
    (attribution,) = nextword.load(place / "short", device="cpu").explain([""])
    assert attribution.words == ([],)
    assert attribution.weights == ([],)
