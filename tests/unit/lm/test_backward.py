"""Models that read from the end: the same numbers as a forward one on the text turned round, whatever asks for them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword import tasks as transfer
from nextword.batching.token_stream import Stream
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import Encoding, Inputs
from nextword.data.squad import make_question
from nextword.evaluation.likelihood import evaluate_stream
from nextword.evaluation.neural_cache import check_network
from nextword.lm.causal import BackwardLM, CausalLM
from nextword.lm.loading import load, wrap_network
from nextword.models import model_class
from nextword.tasks.classification import AveragedClassifier, Classifier
from nextword.tasks.encoding import encode_texts
from nextword.tasks.multiple_choice import encode_choices
from nextword.tasks.question_answering import PassageBatches, encode_questions
from nextword.tasks.tagging import encode_sentences
from nextword.tokenizers import vocabulary
from nextword.tokenizers.words import Words
from nextword.training.trainer import run_gradient_phase
from tests.support.small_job import TRAIN, VALIDATION, are_equal, copy_weights, make_lstm_job
from tests.support.tiny_transfer import draw_color_texts, make_run, write_table

TOKENIZER = Words([f"w{i}" for i in range(20)])
TEXT = "w3 w1 w4 w1 w5 w9 w2\nw6 w5 w3"
MODELS = {
    "awd-lstm": {"embedding": 6, "width": 8, "layers": 2},
    "lstm": {"width": 6},
    "gru": {"width": 6},
    "rnn": {"width": 6},
}


def pair(slug: str) -> tuple[Any, Any]:
    """A network, and one with the same weights that reads from the end."""
    cls = model_class(slug)
    made = [cls(cls.Config(**MODELS[slug], backward=back), vocabulary(TOKENIZER)).eval() for back in (False, True)]
    made[1].load_state_dict({name: 4 * t for name, t in made[0].state_dict().items()})  # so that order matters
    made[0].load_state_dict(made[1].state_dict())
    return made[0], made[1]


def reversed_text(text: str) -> np.ndarray:
    return TOKENIZER.encode(text).ids[::-1]


# ------------------------------------------------------------------------------------------------ learning


@pytest.mark.parametrize("kind", ["rows", "variable", "shifted"])
def test_backward_training_equals_forward_training_on_reversed_text(tmp_path: Path, kind: str) -> None:
    batches = {"kind": kind, "rows": 4, "length": 5}
    options = {"steps": 12, "batches": batches, "optimizer": {"kind": "adam", "rate": 0.02}}
    found = []
    for name, model, turn in (("back", {"width": 8, "backward": True}, 1), ("ahead", {"width": 8}, -1)):
        one = make_lstm_job(tmp_path / name, model=model, train=TRAIN[::turn], valid=VALIDATION[::turn], **options)
        events = list(run_gradient_phase(one))
        losses = [(e.values.get("loss"), e.values.get("valid")) for e in events]
        found.append((losses, copy_weights(one.network)))
    assert found[0][0] == found[1][0]
    assert are_equal(found[0][1], found[1][1])
    one = make_lstm_job(tmp_path / "other", **options)
    list(run_gradient_phase(one))
    assert not are_equal(copy_weights(one.network), found[0][1])


# ------------------------------------------------------------------------------------------------ texts


@pytest.mark.parametrize("slug", list(MODELS))
def test_backward_scores_equal_forward_scores_of_reversed_text(slug: str) -> None:
    ahead, back = (wrap_network(network, TOKENIZER) for network in pair(slug))
    assert isinstance(back, BackwardLM)
    assert type(ahead) is CausalLM
    (nats,) = back.token_nats([TOKENIZER.encode(TEXT).ids])
    (turned,) = ahead.token_nats([reversed_text(TEXT)])
    np.testing.assert_allclose(nats, turned[::-1], rtol=1e-6)
    assert back.score(TEXT).nats == pytest.approx(float(turned.sum()), rel=1e-6)
    assert back.score(TEXT).nats != pytest.approx(ahead.score(TEXT).nats, rel=1e-3)
    ids = np.concatenate([TOKENIZER.encode(TEXT).ids] * 5)
    np.testing.assert_allclose(back.stream_nats(ids), ahead.stream_nats(ids[::-1].copy())[::-1], rtol=1e-6)
    np.testing.assert_allclose(
        back.windowed_nats(ids, 8, 4), ahead.windowed_nats(ids[::-1].copy(), 8, 4)[::-1], rtol=1e-6
    )
    stream = Stream.from_ids(ids, words=len(ids))
    assert evaluate_stream(back, stream).score.nats == pytest.approx(float(back.stream_nats(ids).sum()))


def test_backward_vectors_depend_on_what_follows() -> None:
    ahead, back = (wrap_network(network, TOKENIZER) for network in pair("lstm"))
    words = TEXT.replace("\n", " ").split()
    turned = ahead.embed_words([words[::-1]])[0].vectors.flip(0)
    torch.testing.assert_close(back.embed_words([words])[0].vectors, turned)
    for pooling in ("mean", "max", "last"):
        torch.testing.assert_close(
            back.embed([" ".join(words)], pooling=pooling), ahead.embed([" ".join(words[::-1])], pooling=pooling)
        )


def test_backward_generation_is_unsupported() -> None:
    _, network = pair("lstm")
    lm = wrap_network(network, TOKENIZER, "runs/back")
    assert lm.can == {"score", "embed"}
    for ask in (lambda: lm.next("w1"), lambda: lm.generate("w1"), lambda: lm.generate_many(["w1"])):
        with pytest.raises(Unsupported, match="runs/back"):
            ask()
    with pytest.raises(Unsupported):
        lm.score("w1", given="w2")
    with pytest.raises(Unsupported):
        check_network(network, "with a cache")
    with pytest.raises(Unsupported):
        encode_sentences(network, TOKENIZER, [["w1", "w2"]])


def test_backward_frames_are_reversed_between_their_marks() -> None:
    ahead, back = pair("lstm")
    encoding = TOKENIZER.encode("w3 w1 w4")
    begin = back.vocabulary.begin
    assert back.frame(encoding).ids.tolist() == [begin, *encoding.ids[::-1].tolist()]
    blank = Encoding(np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))
    assert back.frame(blank).ids.tolist() == ahead.frame(blank).ids.tolist()
    found, _ = encode_texts(back, TOKENIZER, "classify", ["w3 w1 w4", "w5"], None)
    assert found.ids.tolist() == [*back.frame(encoding).ids.tolist(), begin, int(TOKENIZER.encode("w5").ids[0])]


# ------------------------------------------------------------------------------------------------ both together


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("both")
    data = write_table(folder / "color.csv", ["text", "label"], draw_color_texts(120))
    changes = ["phase.0.optimizer.rate=1e-2", "phase.0.epochs=1", "task.chunk=4", "phase.0.batches.length=0"]
    for name, model in (("ahead", {}), ("back", {"backward": True})):
        make_run(folder / f"{name}-lm", "lstm", **model)
        transfer.run("bert/finetune", folder / f"{name}-lm", str(data), folder / name, changes=changes, device="cpu")
    return folder


def test_backward_classifier_reads_from_the_end(runs: Path) -> None:
    """What it says is what the same weights say, read forwards, of the text turned round."""
    back: Any = load(runs / "back", device="cpu")
    text = "the king saw a red house"
    ids = back.tokenizer.encode(text).ids
    begin = back.network.vocabulary.begin
    h = back.network.encode(Inputs(torch.tensor([[begin, *ids[::-1].tolist()]])), None)[0][-1][:, -1]
    torch.testing.assert_close(torch.from_numpy(back.logits([text])).float(), back.model.out(h), rtol=1e-4, atol=1e-5)


def test_backward_multiple_choice_reads_from_the_end() -> None:
    """Each side of a frame turned round, and the same of it cut."""
    ahead, back = pair("lstm")
    begin = ahead.vocabulary.begin
    given = ["w3 w1 w4", "w9"], ["w5 w6", "w7"], [("w1 w2", "w8"), ("w4", "w5 w1")]
    sides = [("w3 w1 w4 w5 w6", "w1 w2"), ("w3 w1 w4 w5 w6", "w8"), ("w9 w7", "w4"), ("w9 w7", "w5 w1")]
    found, cut = encode_choices(back, TOKENIZER, *given)
    frames = [found.ids[a:b].tolist() for a, b in pairwise(found.starts)]
    assert frames == [[begin, *reversed_text(a), *reversed_text(b)] for a, b in sides]
    assert cut == 0
    (plain, cut), (turned, also) = (encode_choices(one, TOKENIZER, *given, length=6) for one in (ahead, back))
    assert cut == also == 1
    for a, b in pairwise(plain.starts):
        assert sorted(plain.ids[a:b]) == sorted(turned.ids[a:b])


def test_backward_question_answering_is_unsupported() -> None:
    question, _ = make_question("x", "w1 ?", "w3 w1 w4", [("w4", None)])
    with pytest.raises(Unsupported):
        encode_questions(pair("lstm")[1], TOKENIZER, [question], PassageBatches())


def test_probabilities_of_several_runs_are_averaged(runs: Path) -> None:
    ahead, back = (load(runs / name, device="cpu") for name in ("ahead", "back"))
    texts = [text for text, _ in draw_color_texts(7, seed=4)]
    both = AveragedClassifier([ahead, back]).predict(texts)
    for one, a, b in zip(both, ahead.predict(texts), back.predict(texts), strict=True):
        expected = {k: (a.probabilities[k] + b.probabilities[k]) / 2 for k in a.probabilities}
        assert one.probabilities == pytest.approx(expected)
        assert one.label == max(expected, key=lambda k: expected[k])
    assert [p.label for p in AveragedClassifier([ahead]).predict(texts)] == [p.label for p in ahead.predict(texts)]
    seen: list[tuple[int, int]] = []
    AveragedClassifier([ahead, back]).predict(texts, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (14, 14)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_averaging_runs_with_other_labels_is_rejected(runs: Path, tmp_path: Path) -> None:
    rows = [(text, "crimson" if label == "red" else label) for text, label in draw_color_texts(60)]
    data = write_table(tmp_path / "other.csv", ["text", "label"], rows)
    transfer.run(
        "bert/finetune", runs / "ahead-lm", str(data), tmp_path / "o", changes=["phase.0.steps=1"], device="cpu"
    )
    ahead, other = load(runs / "ahead", device="cpu"), load(tmp_path / "o", device="cpu")
    with pytest.raises(NextwordError, match="crimson"):
        AveragedClassifier([ahead, other])
    with pytest.raises(NextwordError, match="ahead-lm"):
        AveragedClassifier([ahead, load(runs / "ahead-lm", device="cpu")])
    assert isinstance(ahead, Classifier)
