"""CoVe in training, files and transfer: fixed vectors, the output vocabulary, and the input of a classifier."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import nextword
from nextword import tasks as transfer
from nextword.batching.examples import Bucketed
from nextword.core.errors import InvalidSetting, NextwordError
from nextword.core.protocols import Encoder
from nextword.core.pytree import move
from nextword.core.types import Beam, Stop
from nextword.data.word_vectors import read_vectors
from nextword.models.cove import CoVe, CoVeConfig
from nextword.tasks.classification import Classifier
from nextword.tasks.plan import make_plan
from nextword.tasks.text_data import read_text_data
from nextword.training.train import build_network, build_tokenizer, train_events
from tests.support.task_models import build_model
from tests.support.tiny_cove import WIDTH, WRITTEN, draw_sentences, load_cove_recipe, train_cove, write_cove_data
from tests.support.tiny_transfer import draw_color_pairs, draw_color_texts, write_table

QUICK = ("task.width=8", "phase.0.batches.rows=16", "phase.0.epochs=1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_cove_data(tmp_path_factory.mktemp("cove") / "place")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        train_cove(folder, "run")
    rows = [(source, group) for source, _, group in draw_sentences(80, 3)]
    write_table(folder / "group.csv", ["text", "label"], rows)
    write_table(folder / "pair.csv", ["text", "second", "label"], draw_color_pairs(80))
    return folder


@pytest.fixture
def lm(place: Path) -> Any:
    return nextword.load(place / "run", device="cpu")


# ------------------------------------------------------------------------------------------------ the encoder


def test_pretrained_vectors_are_copied_and_fixed(place: Path, lm: Any) -> None:
    """After training they equal the file bit for bit, are zero for missing words, and are no parameters."""
    given = read_vectors(place / "vectors.txt")
    network = lm.network
    words = [piece.decode().strip() for piece in lm.tokenizer.pieces]
    np.testing.assert_array_equal(network.vectors.numpy(), given.matrix_of(words))
    assert not network.vectors[words.index("banko")].any()
    assert not network.vectors[list(lm.tokenizer.special.values())].any()
    assert network.vectors[words.index("never")].any()  # occurs in no text, but is known
    assert all(p.shape != network.vectors.shape for p in network.parameters())


def test_encode_returns_glove_layers_and_cove(lm: Any) -> None:
    network = lm.network
    assert isinstance(network, Encoder)
    inputs = torch.from_numpy(lm.tokenizer.encode("the bank by river3 never").ids)[None]
    layers, _ = network.encode(nextword.core.types.Inputs(inputs))
    assert [layer.shape[-1] for layer in layers] == network.widths == [WIDTH, 64, 64, WIDTH + 64]
    glove, cove, both = (layers[network.layer_names[name]] for name in ("glove", "cove", "both"))
    torch.testing.assert_close(both, torch.cat([glove, cove], -1))
    torch.testing.assert_close(glove, network.vectors[inputs])
    assert torch.equal(network.layer_at(nextword.core.types.Inputs(inputs), 0), glove)
    means = {layer: lm.embed(["the bank by river3 never"], layer, "text")[0] for layer in (-1, -2)}
    torch.testing.assert_close(means[-2].shape, torch.Size([64]))
    torch.testing.assert_close(means[-1][:WIDTH], glove[0].mean(0))


def test_cove_depends_on_context_and_glove_does_not(lm: Any) -> None:
    first, other = (lm.tokenizer.encode(text).ids for text in ("bank by river3", "bank by coin3"))
    vectors = [lm.network.encode(nextword.core.types.Inputs(torch.tensor(ids)[None]))[0] for ids in (first, other)]
    assert torch.equal(vectors[0][0][0, 0], vectors[1][0][0, 0])
    assert (vectors[0][-2][0, 0] - vectors[1][-2][0, 0]).abs().max() > 1e-4


@torch.no_grad()
def test_words_beyond_the_output_vocabulary_are_read_but_not_generated(lm: Any) -> None:
    network, written_ = lm.network, lm.network.output_size
    assert written_ == WRITTEN < len(lm.tokenizer)
    first, state = lm._read_prompts(lm._encode_prompts(["the bank"], "slide"))
    log_p, _ = network.step(first, state)
    assert log_p.shape == (1, len(lm.tokenizer))
    assert float(log_p[0, :written_].exp().sum()) == pytest.approx(1, abs=1e-5)
    assert (log_p[0, written_:] == -math.inf).all()
    rare = lm.tokenizer.piece(written_).decode().strip()
    assert lm.score(rare, "the bank").nats == pytest.approx(lm.score("<unk>", "the bank").nats, rel=1e-5)


def test_run_loads_without_the_vector_file(place: Path, lm: Any, tmp_path: Path) -> None:
    (place / "vectors.txt").rename(tmp_path / "gone.txt")
    try:
        again = nextword.load(place / "run", device="cpu")
    finally:
        (tmp_path / "gone.txt").rename(place / "vectors.txt")
    texts = ["the bank by river3", ""]
    assert torch.equal(again.embed(texts), lm.embed(texts))
    assert again.score("theo banko", "the bank") == lm.score("theo banko", "the bank")


def test_run_resumes_without_the_vector_file(place: Path, tmp_path: Path) -> None:
    """The saved state contains the vectors, so that resuming reads no file."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_bytes((place / "vectors.txt").read_bytes())
    calls = iter(range(100))
    recipe = load_cove_recipe(place, f"model.vectors={vectors}")
    list(train_events(recipe, tmp_path / "run", device="cpu", stop=lambda: next(calls) >= 6))
    vectors.unlink()
    list(train_events(None, tmp_path / "run", resume=True, device="cpu"))
    straight, broken = (load_file(str(run / "model.safetensors")) for run in (place / "run", tmp_path / "run"))
    assert all(torch.equal(straight[name], broken[name]) for name in straight)


def test_n_best_translations_copy_unknown_words_like_the_best_one(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model that generates only unknown words, from a source with an unknown word."""
    real = lm.network.readout.log_probs

    def always(h: torch.Tensor) -> torch.Tensor:
        log_p = torch.full_like(real(h), -50.0)
        log_p[:, lm._unknown] = 0.0
        return log_p

    monkeypatch.setattr(lm.network.readout, "log_probs", always)
    name = next(name for name, id in lm.tokenizer.special.items() if id == lm._unknown)
    written = "".join(piece.text for piece in lm.generate("never zzzqqq never", Beam(1), Stop(4)))
    (best,) = lm.n_best("never zzzqqq never", Beam(1), Stop(4), n=1)
    assert name not in best.text
    assert best.text == written.lstrip()


def test_invalid_vectors_raise_before_the_folder_exists(place: Path, tmp_path: Path) -> None:
    (tmp_path / "queen.txt").write_text("queen" + " 1" * WIDTH)
    bytes_ = ["tokenizer={ kind = 'bytes' }", f"model.vectors={tmp_path / 'queen.txt'}"]
    for changes in (["model.vector_width=8"], ["model.vectors=none.txt"], ["model.reverse_source=true"], bytes_):
        with pytest.raises(NextwordError):
            list(train_events(load_cove_recipe(place, *changes), tmp_path / "run", device="cpu"))
        assert not (tmp_path / "run").exists()


def test_vectors_without_a_file_are_random_and_fixed(place: Path) -> None:
    recipe = load_cove_recipe(place, "model.vectors=''")
    tokenizer = build_tokenizer(recipe, nextword.data.parallel.open_parallel(f"{place / 'pairs'}:xx-yy"))
    network = build_network(recipe, tokenizer)
    network.load_pretrained_embeddings()
    assert network.vectors.std() > 0.1
    assert "never" not in tokenizer.words  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ the classifier


def finetune(place: Path, name: str, data: str = "group", **options: Any) -> transfer.Outcome:
    changes = [*QUICK, *options.pop("changes", ())]
    return transfer.run(
        "cove/classify",
        place / "run",
        str(place / f"{data}.csv"),
        place / name,
        changes=changes,
        device="cpu",
        **options,
    )


@pytest.mark.parametrize("features", ["glove", "cove", "both"])
def test_frozen_encoder_gets_no_gradient(place: Path, features: str) -> None:
    data = str(place / "group.csv")
    plan = make_plan("cove/classify", place / "run", data, changes=[*QUICK, f"task.features={features}"], device="cpu")
    network = build_model(plan.recipe, plan.tokenizer).train()
    assert not network.encoder.training
    assert network.out.lead.in_features == {"glove": WIDTH, "cove": 64, "both": WIDTH + 64}[features]
    batch = Bucketed().batch(plan.examples["train"], np.arange(8), 0)
    network(batch).square().sum().backward()
    assert all(p.grad is None for p in network.encoder.parameters())
    assert all(p.grad is not None for p in network.out.parameters())
    thawed = make_plan("cove/classify", place / "run", data, changes=[*QUICK, "task.frozen=false"], device="cpu")
    network = build_model(thawed.recipe, thawed.tokenizer).train()
    network(batch).square().sum().backward()
    assert all(p.grad is not None for p in network.encoder.encoder.parameters())


def test_classifier_saves_and_predicts_and_leaves_the_encoder_unchanged(place: Path) -> None:
    outcome = finetune(place, "both")
    model = nextword.load(place / "both", device="cpu")
    assert isinstance(model, Classifier)
    before, after = (load_file(str(place / name / "model.safetensors")) for name in ("run", "both"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    dev = read_text_data(str(place / "group.csv")).splits["dev"]
    predictions = model.predict(dev.texts)
    assert dev.labels is not None
    right = [prediction.label == label for prediction, label in zip(predictions, dev.labels, strict=True)]
    assert np.mean(right) == outcome.values()[0]
    alone = [model.predict([text])[0].probabilities["coin"] for text in dev.texts]
    assert alone == pytest.approx([prediction.probabilities["coin"] for prediction in predictions], abs=1e-5)
    assert model.embed(["the bank", ""]).shape == (2, WIDTH + 64)
    assert model.predict([""])[0].label in ("river", "coin")


def test_texts_of_a_pair_are_encoded_separately(place: Path) -> None:
    finetune(place, "pair", "pair")
    model: Any = nextword.load(place / "pair", device="cpu")
    a, b = "the red house", "blue"
    logits = model.logits([a], [b])
    swapped = model.logits([b], [a])
    assert np.abs(logits - swapped).max() > 1e-5
    frames = model.network.frames("entail", model.tokenizer.encode_batch([a, b]))
    assert [frame.ids[-1] for frame in frames] == [1, 1]
    assert [len(frame.ids) for frame in frames] == [4, 2]
    x = [model.network.encode(nextword.core.types.Inputs(torch.tensor(frame.ids)[None]))[0][-1][0] for frame in frames]
    there = torch.arange(4) < torch.tensor([[4], [2]])
    with torch.no_grad():
        wanted = model.model.out(torch.nn.utils.rnn.pad_sequence(x, batch_first=True), there, 2)
    np.testing.assert_allclose(logits, wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_interrupted_run_resumes_bit_identically(place: Path) -> None:
    """The running statistics of batch norm are saved, too."""
    changes = ["phase.0.epochs=2"]
    finetune(place, "straight", changes=changes)
    calls = iter(range(100))
    finetune(place, "broken", changes=changes, stop=lambda: next(calls) >= 6)
    finetune(place, "broken", changes=changes, resume=True)
    a, b = (load_file(str(place / name / "head.safetensors")) for name in ("straight", "broken"))
    assert any("running_mean" in name for name in a)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_scratch_run_keeps_the_vectors_and_reinitializes_the_rest(place: Path) -> None:
    finetune(place, "scratch", scratch=True)
    before, after = (load_file(str(place / name / "model.safetensors")) for name in ("run", "scratch"))
    assert torch.equal(before["vectors"], after["vectors"])
    weights = [name for name in before if "encoder" in name]
    assert weights
    assert not any(torch.equal(before[name], after[name]) for name in weights)


def test_biattentive_classifier_works_over_any_network(tmp_path: Path) -> None:
    from tests.support.tiny_transfer import make_run

    make_run(tmp_path / "bert")
    data = write_table(tmp_path / "color.csv", ["text", "label"], draw_color_texts(80))
    for features in ("''", "1"):
        changes = [*QUICK, f"task.features={features}"]
        out = tmp_path / f"out{features.strip(chr(39))}"
        transfer.run("cove/classify", tmp_path / "bert", str(data), out, changes=changes, device="cpu")
        model: Any = nextword.load(out, device="cpu")
        together = model.logits(["red", "a king in a blue house"])
        np.testing.assert_allclose(together[:1], model.logits(["red"]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "change", ["task.features=elmo", "task.features='7'", "task.classifier=bcn", "task.width=0", "task.frozen=1"]
)
def test_invalid_task_setting_raises_before_the_folder_exists(place: Path, change: str) -> None:
    with pytest.raises(InvalidSetting):
        finetune(place, "bad", changes=[change])
    assert not (place / "bad").exists()


def test_widths_equal_those_of_the_paper() -> None:
    """CoVe has 600 dimensions next to the 300 of GloVe."""
    vocabulary = nextword.core.types.Vocabulary(50, 1, {"<unk>": 0}, 1)
    network = CoVe(CoVeConfig(), vocabulary)
    assert network.widths == [300, 600, 600, 900]
    assert move(network.vectors, "cpu").shape == (50, 300)
