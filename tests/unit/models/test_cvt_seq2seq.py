"""Cross-view training of a translator: generated targets, gradients, and alternating batches."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.examples import UNLABELED
from nextword.batching.seq2seq import Pairs, PairsAndSources, Sources
from nextword.batching.token_stream import DOCUMENT, ROW, SENTENCE, WORD, Stream
from nextword.core.errors import DataError, InvalidSetting, NextwordError, Unsupported
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.models.cvt import CVTSeq2Seq, CVTSeq2SeqConfig
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.objectives.seq2seq import CrossViewSeq2SeqObjective, decode_greedily
from nextword.recipe import load_recipe
from nextword.training.train import train_events
from tests.support.small_pairs import WORDS, write_pairs

BEGIN, END, SIZE = 0, 1, 14
VOCABULARY = Vocabulary(SIZE, BEGIN, {}, end=END)


def make_network(**more: Any) -> CVTSeq2Seq:
    torch.manual_seed(0)
    own = {"width": 10, "embedding": 6, "encoder_width": 5, "dropout": 0.5, **more}
    result = CVTSeq2Seq(CVTSeq2SeqConfig(**own), VOCABULARY)
    with torch.no_grad():
        result.readout.matrix.mul_(20)  # large weights, so that predictions differ
    return result


def make_sources() -> Inputs:
    ids = torch.tensor([[5, 6, 7, 8, END], [9, 10, END, 0, 0], [3, 4, 5, END, 0]])
    there = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 4 + [False]])
    return Inputs(ids, there)


def make_unlabeled_batch() -> Batch:
    none = torch.zeros(3, 0, dtype=torch.long)
    return Batch(Inputs(none, source=make_sources()), none, task_index=UNLABELED)


# ------------------------------------------------------------------------------------------------ what is written


def test_decode_greedily_equals_greedy_search_without_dropout() -> None:
    network = make_network().train()
    ids, log_p, there = decode_greedily(network, make_sources(), 7)
    assert network.training
    again = decode_greedily(network, make_sources(), 7)
    assert torch.equal(ids, again[0])
    torch.testing.assert_close(log_p, again[1])
    network.eval()
    read = torch.cat([torch.full((3, 1), BEGIN), ids[:, :-1]], 1)
    h = network.hidden(Inputs(read, source=make_sources()), None)[0][-1]
    at_once = network.readout.log_probs(h.flatten(0, 1)).view(log_p.shape)
    torch.testing.assert_close(at_once, log_p)
    assert torch.equal(at_once.argmax(-1), ids)
    for row, open in zip(ids.tolist(), there.tolist(), strict=True):
        size = row.index(END) + 1 if END in row else len(row)
        assert open == [True] * size + [False] * (len(row) - size)


# ------------------------------------------------------------------------------------------------ who learns


@pytest.mark.parametrize("targets", ["soft", "hard"])
def test_unlabeled_loss_equals_formula_and_trains_all_but_the_primary_decoder(targets: str) -> None:
    network = make_network(dropout=0.0, attention_dropout=0.0).train()
    loss = CrossViewSeq2SeqObjective({"length": 7}, targets=targets).loss(network, make_unlabeled_batch(), None)
    ids, log_p, there = decode_greedily(network, make_sources(), 7)
    read = torch.cat([torch.full((3, 1), BEGIN), ids[:, :-1]], 1)
    state: Any = network.begin(make_sources())
    s, _ = network._run_decoder(network.embedding(read), state["cells"])
    total = 0.0
    for name, ahead in (("dropped", 0), ("future", 1)):
        view: Any = network.views[name]
        outputs = view.readout.log_probs(view(s, state["memory"], state["there"]).flatten(0, 1)).view(log_p.shape)
        for b in range(3):
            for t in range(ids.shape[1] - ahead):
                if there[b, t + ahead]:
                    p = log_p[b, t + ahead].exp() if targets == "soft" else torch.eye(SIZE)[ids[b, t + ahead]]
                    total -= float((p * outputs[b, t]).sum().detach())
    assert float(loss.value.detach()) == pytest.approx(total / int(there.sum()), rel=1e-4)
    assert set(loss.terms) == {"dropped", "future"}
    assert (loss.count, float(loss.nats)) == (0, 0.0)
    loss.value.backward()
    taught = {name for name, p in network.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    primary = {name for name, _ in network.named_parameters() if name.startswith(("look.", "out.", "readout."))}
    assert primary
    assert not taught & primary
    assert {name.split(".")[0] for name in taught} == {"embedding", "encoder", "layers", "bridge", "views"}


def test_pairs_train_only_the_primary_decoder() -> None:
    network = make_network(dropout=0.0).train()
    read, targets = torch.tensor([[BEGIN, 4]] * 3), torch.tensor([[4, END]] * 3)
    batch = Batch(Inputs(read, source=make_sources()), targets, num_targets=6)
    CrossViewSeq2SeqObjective({}).loss(network, batch, None).value.backward()
    assert all(p.grad is None for p in network.views.parameters())
    assert network.out.weight.grad is not None


def test_attention_dropout_of_a_view_applies_only_in_training() -> None:
    network = make_network(dropout=0.0, attention_dropout=0.9)
    read = Inputs(torch.tensor([[BEGIN, 4, 5]] * 3), source=make_sources())
    says = lambda: {name: log_p.detach() for name, (log_p, _) in network.auxiliary(read).items()}  # noqa: E731
    network.train()
    a, b = says(), says()
    assert not torch.equal(a["dropped"], b["dropped"])
    torch.testing.assert_close(a["future"], b["future"])
    network.eval()
    a, b = says(), says()
    torch.testing.assert_close(a["dropped"], b["dropped"])


def test_future_view_does_not_see_the_previous_word() -> None:
    network = make_network(dropout=0.0).eval()
    ids = torch.tensor([[BEGIN, 4, 5, 6]] * 3)
    other = ids.clone()
    other[:, 2] = 9
    before, after = (network.auxiliary(Inputs(x, source=make_sources()))["future"][0] for x in (ids, other))
    torch.testing.assert_close(before[:, :2], after[:, :2])  # position 1 predicts y_3 without knowing y_2
    assert (before[:, 2:] - after[:, 2:]).abs().max() > 1e-6


# ------------------------------------------------------------------------------------------------ whose turn it is


def make_stream(texts: list[list[int]]) -> Stream:
    """One document per list, in which every 2 starts a sentence."""
    documents = np.zeros(len(texts), ROW)
    documents["start"] = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])
    ids = np.array([id for text in texts for id in (*text, END)], np.uint8)
    marks = np.where(ids == END, 0, WORD | np.where(ids == 2, SENTENCE, 0)).astype(np.uint8)
    marks[documents["start"]] |= SENTENCE | DOCUMENT
    return Stream(ids, marks, documents, len(ids), len(ids), 0)


def test_sources_keep_sentences_within_length_limits() -> None:
    text = make_stream([[2, 3, 4, 2, 5], [2], [2, 3, 4, 5, 6, 7, 8, 9], [5, 6]])
    result = Sources(text, END, 6)
    assert [result.sentence(i).tolist() for i in range(len(result))] == [[2, 3, 4, END], [2, 5, END], [5, 6, END]]
    with pytest.raises(DataError):
        len(Sources(text, END, 2))


def test_batch_depends_only_on_seed_and_step() -> None:
    draw = np.random.default_rng(0)
    rows = [draw.integers(3, SIZE, draw.integers(2, 6)).tolist() for _ in range(40)]
    pairs = Pairs(make_stream(rows), make_stream(rows[::-1]), BEGIN, np.arange(40))
    text = PairsAndSources(pairs, Sources(make_stream(rows), END, 10))
    objective = CrossViewSeq2SeqObjective({"rows": 4, "length": 10})
    result = list(islice(objective.batches(text, 3, 0), 60))
    assert [batch.task_index for batch in result[:4]] == [0, UNLABELED, 0, UNLABELED]
    assert objective.batches_per_epoch(text) == 20
    for k in (1, 2, 17, 40):
        for a, b in zip(islice(objective.batches(text, 3, k), 10), result[k:], strict=False):
            assert a.task_index == b.task_index
            assert torch.equal(a.inputs.source.ids, b.inputs.source.ids)  # type: ignore[union-attr]
    assert [b.task_index for b in islice(objective.batches(pairs, 3, 0), 4)] == [0] * 4


# ------------------------------------------------------------------------------------------------ through the loop


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pairs")
    data, draw = write_pairs(folder), np.random.default_rng(5)
    plain = [" ".join(draw.choice(WORDS, draw.integers(3, 9))) for _ in range(200)]
    (folder / "plain.txt").write_text("\n\n".join(plain))
    changes = [f"phase.0.data={data}", f"phase.0.objective.unlabeled={folder / 'plain.txt'}", "tokenizer.size=280"]
    changes += [
        "phase.0.steps=12",
        "phase.0.batches.rows=8",
        "phase.0.save_every=0",
        "phase.0.log_every=1",
        "model.width=16",
    ]
    return lambda *more: load_recipe("cvt-seq2seq/tiny", [*changes, *more])


def test_interrupted_run_resumes_bit_identically(recipe: Any, tmp_path: Path) -> None:
    list(train_events(recipe(), tmp_path / "whole", device="cpu"))
    calls = iter(range(100))
    list(train_events(recipe(), tmp_path / "parts", device="cpu", stop=lambda: next(calls) >= 6))
    list(train_events(None, tmp_path / "parts", resume=True, device="cpu"))
    full, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert full == parts


def test_invalid_input_raises(recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError) as problem:
        list(train_events(recipe("phase.0.objective.unlabeled=nowhere.txt"), tmp_path / "a", device="cpu"))
    assert "objective.unlabeled=FILE" in str(problem.value)
    with pytest.raises(NextwordError, match="words"):
        list(train_events(recipe("tokenizer.kind=words"), tmp_path / "b", device="cpu"))
    with pytest.raises(NextwordError, match="feeding"):
        CVTSeq2SeqConfig(input_feeding=True)
    with pytest.raises(InvalidSetting) as invalid:
        CrossViewSeq2SeqObjective({}, targets="both")
    assert invalid.value.key == "objective.targets"
    plain = Seq2Seq(Seq2SeqConfig(width=8), VOCABULARY)
    with pytest.raises(Unsupported, match="Seq2Seq"):
        CrossViewSeq2SeqObjective({}).loss(plain, make_unlabeled_batch(), None)
