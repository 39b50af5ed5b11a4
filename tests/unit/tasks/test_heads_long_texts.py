"""Texts of any length in chunks: equal to full backpropagation if the window covers the text, bounded otherwise."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword import tasks as transfer
from nextword.batching.examples import Bucketed, Examples
from nextword.core.errors import InvalidSetting
from nextword.core.types import Batch, FramedText, Inputs, Vocabulary
from nextword.lm.loading import load
from nextword.models import model_class
from nextword.tasks.classification import LabelObjective, TextHeadConfig
from nextword.tasks.heads import TextHead, tokens_before_window
from nextword.tasks.plan import make_plan
from tests.support.tiny_transfer import draw_color_texts, make_run, write_table

AWD = {"embedding": 6, "width": 8, "layers": 2}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "awd-lstm": ("awd-lstm", AWD),
    "qrnn": ("awd-lstm", {**AWD, "cell": "qrnn"}),
    "lstm": ("lstm", {"width": 6, "layers": 2}),
    "gru": ("gru", {"width": 6}),
    "rnn": ("rnn", {"width": 6, "leak": 0.2}),
    "direct": ("lstm", {"width": 6, "direct": {"size": 100, "order": 2}}),
}


def make_head(name: str, chunk: int = 0, window: int = 0, pooling: str = "concat", frozen: bool = False) -> TextHead:
    slug, model = NETWORKS[name]
    cls = model_class(slug)
    torch.manual_seed(2)
    network = cls(cls.Config(**model), Vocabulary(30, 1))
    config = TextHeadConfig(
        frame="classify", pooling=pooling, classifier="mlp", frozen=frozen, chunk=chunk, bptt_window=window
    )
    return TextHead(network, config, 3).double().eval()


def make_texts(*lengths: int, packs: bool) -> Batch:
    rng = np.random.default_rng(5)
    frames = [FramedText(rng.integers(2, 30, n), n - 1) for n in lengths]
    result = Examples.from_frames(frames, labels=np.zeros(len(frames), np.int64), packs=packs)
    return Bucketed().batch(result, np.arange(len(frames)), 0)


def compute_gradients(network: TextHead, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits and their gradients."""
    network.zero_grad()
    logits = network(batch)
    logits.square().sum().backward()
    return logits.detach(), {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


# ------------------------------------------------------------------------------------------------ short texts


@pytest.mark.parametrize("lengths", [(23, 14, 7, 6, 1), (23, 22, 21)])
@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_chunks_equal_full_backpropagation_if_the_window_covers_the_text(
    name: str, packs: bool, lengths: tuple[int, ...]
) -> None:
    """Values and gradients, for rows of different and of similar lengths."""
    outputs, gradients = compute_gradients(make_head(name), make_texts(*lengths, packs=False))
    for chunk, kept in ((7, 23), (7, 0), (5, 100), (1, 50)):
        result, others = compute_gradients(make_head(name, chunk, kept), make_texts(*lengths, packs=packs))
        torch.testing.assert_close(result, outputs, rtol=1e-10, atol=1e-12)
        assert others.keys() == gradients.keys()
        for key in gradients:
            torch.testing.assert_close(others[key], gradients[key], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pooling", ["auto", "last", "mean", "max", "concat"])
def test_pooling_with_chunks_equals_pooling_without(pooling: str) -> None:
    lengths = (9, 5, 8)
    outputs, _ = compute_gradients(make_head("lstm", pooling=pooling), make_texts(*lengths, packs=False))
    result, _ = compute_gradients(make_head("lstm", 4, 20, pooling=pooling), make_texts(*lengths, packs=True))
    torch.testing.assert_close(result, outputs, rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------------------------------------------ long ones


def test_window_starts_at_a_chunk_boundary() -> None:
    """Chunks that start within the last 7 tokens: of 11 tokens by 3, those at 6 and 9 (fastai: sl − i <= max_len)."""
    assert tokens_before_window([11, 7, 8, 9, 10, 13, 1], 3, 7).tolist() == [6, 0, 3, 3, 3, 6, 0]
    assert tokens_before_window([11, 100], 3, 0).tolist() == [0, 0]
    for size in range(1, 200):
        begins = [i for i in range(0, size, 7) if size - i <= 21]
        assert tokens_before_window([size], 7, 21).tolist() == [begins[0]]


def encode_by_hand(network: TextHead, ids: Tensor, skip: int) -> Tensor:
    """Encode one text by hand: its start without gradients, the rest at once, then all three poolings."""
    state = None
    with torch.no_grad():
        if skip:
            state = network.encoder.encode(Inputs(ids[None, :skip]), None)[1]
    h = network.encoder.encode(Inputs(ids[None, skip:]), state)[0][-1][0]
    return network.out(torch.cat([h[-1], h.max(0).values, h.mean(0)])[None])


@pytest.mark.parametrize("name", ["awd-lstm", "lstm", "gru", "direct"])
def test_tokens_before_the_window_have_no_gradient(name: str) -> None:
    lengths, chunk, kept = (40, 12, 33, 13, 4), 4, 12
    network = make_head(name, chunk, kept)
    batch = make_texts(*lengths, packs=True)
    outputs, gradients = compute_gradients(network, batch)
    network.zero_grad()
    parts = batch.inputs.ids[0].split(lengths)
    skips = tokens_before_window(lengths, chunk, kept).tolist()
    assert skips == [28, 0, 24, 4, 0]
    expected = torch.cat([encode_by_hand(network, ids, skip) for ids, skip in zip(parts, skips, strict=True)])
    torch.testing.assert_close(outputs, expected.detach(), rtol=1e-10, atol=1e-12)
    expected.square().sum().backward()
    for key, p in network.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(gradients[key], p.grad, rtol=1e-9, atol=1e-12)
    full, _ = compute_gradients(make_head(name), make_texts(*lengths, packs=False))
    assert (full - outputs).abs().max() > 1e-4  # a long text is read differently


@pytest.mark.parametrize(
    ("name", "training", "frozen", "pieces"),
    [
        ("awd-lstm", True, False, True),  # one mask per chunk
        ("awd-lstm", True, True, False),  # frozen networks have no dropout
        ("awd-lstm", False, False, False),
        ("lstm", True, False, False),  # each token has its own mask
    ],
)
def test_memory_of_a_long_text_is_bounded_by_the_window(name: str, training: bool, frozen: bool, pieces: bool) -> None:
    """No piece but those kept is in the graph, and no row is padded to the longest one.

    Where no dropout is drawn for each piece, what lies before is read 2,048 tokens at a time: whole pieces of it.
    """
    network = make_head(name, 50, 100, frozen=frozen).train(training)
    sizes: list[tuple[int, ...]] = []
    graphs: list[bool] = []
    read = network.encoder.encode

    def watched(inputs: Inputs, state: Any) -> Any:
        layers, after = read(inputs, state)
        sizes.append(tuple(inputs.ids.shape))
        graphs.append(layers[-1].requires_grad)
        return layers, after

    network.encoder.encode = watched
    batch = make_texts(20_000, 30, 160, 99, packs=True)
    assert batch.inputs.ids.numel() == 20_289
    network(batch)
    skipping = [(2, 50)] * 2 + [(1, 50)] * 396  # 100 tokens of the text of 160 are before the window
    if not pieces:
        skipping = [(2, 100), *[(1, 2000)] * 9, (1, 1800)]
    reading = [(4, 50), (3, 50)]  # the text of 30 has ended
    assert sizes == skipping + reading
    assert graphs == [False] * len(skipping) + [not frozen] * len(reading)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_logits_are_independent_of_chunks_read_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result equals that of one chunk at a time."""
    batch = make_texts(5000, 9, 700, packs=True)
    network = make_head(name, 4, 12)
    logits = network(batch)
    monkeypatch.setattr("nextword.tasks.heads.TOGETHER", 1)
    torch.testing.assert_close(logits, network(batch), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["awd-lstm", "qrnn", "lstm", "gru", "rnn"])
def test_networks_with_locked_dropout_are_flagged(name: str) -> None:
    """With locked masks, the division of a text into chunks matters."""
    slug, model = NETWORKS[name]
    cls = model_class(slug)
    shares = {"output_dropout": 0.5} if slug == "awd-lstm" else {"dropout": 0.5}
    network = cls(cls.Config(**model, **shares), Vocabulary(30, 1)).train()
    gone = network.encode(Inputs(torch.randint(0, 30, (2, 40))), None)[0][-1] == 0
    assert gone.any()
    assert network.has_locked_dropout == bool((gone == gone[:, :1]).all())


def test_awd_lstm_has_locked_dropout_only_with_a_dropout_rate() -> None:
    cls = model_class("awd-lstm")
    names = (
        "word_dropout",
        "input_dropout",
        "layer_dropout",
        "output_dropout",
        "weight_dropout",
        "input_weight_dropout",
    )
    for name in ("", *names):
        config = cls.Config(**AWD, **{other: 0.1 * (other == name) for other in names})
        assert cls(config, Vocabulary(30, 1)).has_locked_dropout == bool(name)


# ------------------------------------------------------------------------------------------------ through a run

PIECES_OF_SHORT = [
    "task.chunk=10", "task.bptt_window=20", "phase.0.batches.length=0", "phase.0.batches.rows=16", "phase.0.epochs=1"
]  # fmt: skip
PIECES = [
    "task.chunk=5",
    "task.bptt_window=10",
    "phase.0.batches.length=0",
    "task.pooling=concat",
    "task.classifier=mlp",
]


def test_run_trains_and_predicts_texts_of_any_length(tmp_path: Path) -> None:
    """The end of a long text decides the label; nothing is truncated, so no note says so."""
    rows = [(f"{'the king saw ' * (i % 9)}{text}", label) for i, (text, label) in enumerate(draw_color_texts(300))]
    data = write_table(tmp_path / "long.csv", ["text", "label"], rows)
    make_run(tmp_path / "run", "lstm")
    changes = [*PIECES, "phase.0.optimizer.rate=1e-2", "phase.0.epochs=6", "phase.0.batches.rows=16"]
    plans: list[Any] = []
    outcome = transfer.run(
        "bert/finetune",
        tmp_path / "run",
        str(data),
        tmp_path / "out",
        changes=changes,
        on_plan=plans.append,
        device="cpu",
    )
    assert outcome.mean > 0.85
    assert not any("are cut" in note for note in plans[0].notes)
    train = plans[0].examples["train"]
    sizes = np.diff(train.starts)
    longer, before = (sizes > 10).sum(), tokens_before_window(sizes.tolist(), 5, 10).sum()
    (note,) = [note for note in plans[0].notes if "longer than 10 tokens" in note]
    assert f"{longer} of {len(train)} training examples are longer" in note
    assert f"the longest has {sizes.max()}:" in note
    assert f"the {before:,} tokens before them" in note
    model: Any = load(tmp_path / "out", device="cpu")
    inputs = [f"{'the king saw ' * 2_000} a red house", "a blue river", f"{'far and old ' * 90} blue king"]
    assert [prediction.label for prediction in model.predict(inputs)] == ["red", "blue", "blue"]
    together, alone = model.predict(inputs), [model.predict([text])[0] for text in inputs]
    for a, b in zip(together, alone, strict=True):
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-5)


@pytest.mark.parametrize(("long", "told"), [(0, False), (5, False), (400, True)])
def test_long_texts_before_the_window_are_noted(tmp_path: Path, long: int, told: bool) -> None:
    """Long texts are batched at full length, so that others are not padded."""
    rows = [*draw_color_texts(60), (f"{'the king saw ' * long}red", "red")]
    data = write_table(
        tmp_path / "one.csv", ["text", "label", "split"], [(*row, "train") for row in rows] + [(*rows[0], "dev")]
    )
    make_run(tmp_path / "run", "lstm")
    plan = make_plan("bert/finetune", tmp_path / "run", str(data), changes=PIECES_OF_SHORT, device="cpu")
    notes = [note for note in plan.notes if "phase.*.batches.length" in note]
    assert len(notes) == told
    if told:
        assert "1 of 61" in notes[0]
        assert "1,20" in notes[0]
        assert "--set 'phase.*.batches.length=20'" in notes[0]
    train = plan.examples["train"]
    batches = islice(LabelObjective(plan.recipe.phases[0].batches).batches(train, 1, 0), 4)  # an epoch
    assert sum(batch.inputs.ids.numel() for batch in batches) == len(train.ids)


def test_stateless_networks_truncate_long_texts(tmp_path: Path) -> None:
    data = write_table(
        tmp_path / "long.csv", ["text", "label"], [(f"{'old ' * 60}{t}", c) for t, c in draw_color_texts(60)]
    )
    make_run(tmp_path / "run", "bert")
    plans: list[Any] = []
    changes = [*PIECES, "phase.0.steps=2"]
    transfer.run(
        "bert/finetune",
        tmp_path / "run",
        str(data),
        tmp_path / "out",
        changes=changes,
        on_plan=plans.append,
        device="cpu",
    )
    assert any("cut to 32 tokens" in note for note in plans[0].notes)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("task.bptt_window=3", "task.bptt_window"),
        ("task.chunk=0", "task.bptt_window"),
        ("task.chunk=-1", "task.chunk"),
        ("task.hidden_sizes=[0]", "task.hidden_sizes"),
        ("task.hidden_sizes=50", "task.hidden_sizes"),
        ("task.dropouts=[0.4]", "task.dropouts"),
        ("phase.0.objective.lm_weight=0.5", "objective.lm_weight"),
    ],
)
def test_invalid_setting_names_its_key(tmp_path: Path, change: str, key: str) -> None:
    data = write_table(tmp_path / "few.csv", ["text", "label"], draw_color_texts(60))
    make_run(tmp_path / "run", "lstm")
    with pytest.raises(InvalidSetting) as error:
        transfer.run(
            "bert/finetune", tmp_path / "run", str(data), tmp_path / "out", changes=[*PIECES, change], device="cpu"
        )
    assert error.value.key == key
