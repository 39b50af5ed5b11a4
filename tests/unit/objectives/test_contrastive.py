"""Contrastive learning of sentence vectors: pairs, loss, and that vectors of partners come together."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nextword
from nextword.batching.masked import Sentences
from nextword.core.errors import DataError, InvalidSetting, Unsupported
from nextword.core.types import Batch
from nextword.models.bert import BERT, BERTConfig
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.objectives import make_objective
from nextword.objectives.contrastive import ContrastiveObjective
from tests.unit.objectives.test_masked import TEXT, VOCABULARY

BATCHES = {"rows": 6, "length": 12, "min_tokens": 3}


def make_contrastive(temperature: float = 0.05, **batches: Any) -> ContrastiveObjective:
    settings = {"kind": "contrastive", "temperature": temperature}
    objective = make_objective(settings, BATCHES | batches, VOCABULARY)
    assert isinstance(objective, ContrastiveObjective)
    return objective


def take(objective: ContrastiveObjective, n: int, step: int = 0) -> list[Batch]:
    return list(islice(objective.batches(TEXT, 5, step), n))


def make_bert(dropout: float = 0.0) -> BERT:
    torch.manual_seed(0)
    return BERT(BERTConfig(width=32, layers=2, heads=4, window=16, dropout=dropout), VOCABULARY)


def read_rows(batch: Batch) -> list[tuple[int, ...]]:
    """The ids of each row without its special tokens and padding."""
    assert batch.inputs.token_mask is not None
    rows = zip(batch.inputs.ids, batch.inputs.token_mask, strict=True)
    return [tuple(ids[mask][1:-1].tolist()) for ids, mask in rows]


def test_partners_are_the_sentence_itself_or_the_next_of_its_document() -> None:
    sentences = Sentences.of(TEXT, VOCABULARY.end)
    allowed: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for begin, end in zip(sentences.documents[:-1], sentences.documents[1:], strict=True):
        texts = [tuple(TEXT.ids[sentences.first[i] : sentences.last[i]].tolist()) for i in range(begin, end)]
        long = [text[:10] for text in texts if len(text) >= 3]
        allowed |= {(a, b) for a, b in zip(long, [*long[1:], *long[-1:]], strict=True)}
    for batch in take(make_contrastive(same_fraction=0.0), 20):
        rows = read_rows(batch)
        assert set(zip(rows[:6], rows[6:], strict=True)) <= allowed
    for batch in take(make_contrastive(same_fraction=1.0), 5):
        rows = read_rows(batch)
        assert rows[:6] == rows[6:]


def test_epoch_reads_every_sentence_once() -> None:
    objective = make_contrastive()
    sentences = Sentences.of(TEXT, VOCABULARY.end)
    kept = int((sentences.last - sentences.first >= 3).sum())
    per_epoch = objective.batches_per_epoch(TEXT)
    assert per_epoch == kept // 6
    batches = take(objective, per_epoch + 1)
    assert [batch.epoch for batch in batches] == [0] * per_epoch + [1]


def test_batches_depend_on_seed_and_step_alone() -> None:
    first, again = take(make_contrastive(), 8)[5:], take(make_contrastive(), 3, step=5)
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a.inputs.ids, b.inputs.ids)


def test_loss_is_the_symmetric_cross_entropy_of_cosines() -> None:
    objective, network = make_contrastive(temperature=0.1), make_bert().eval()
    batch = take(objective, 1)[0]
    loss = objective.loss(network, batch, None)
    vectors = []
    for ids in read_rows(batch):  # each sentence by itself, without padding
        row = torch.tensor([[2, *ids, 3]])
        inputs = type(batch.inputs)(row, torch.ones_like(row, dtype=torch.bool))
        vectors.append(network.encode(inputs)[0][-1][0].mean(0).detach())
    cosines = np.array([[float(F.cosine_similarity(u, v, dim=0)) for v in vectors[6:]] for u in vectors[:6]]) / 0.1
    log_p = cosines - np.log(np.exp(cosines).sum(1, keepdims=True))
    log_q = cosines - np.log(np.exp(cosines).sum(0, keepdims=True))
    assert loss.value.item() == pytest.approx(-(np.diag(log_p) + np.diag(log_q)).mean() / 2, abs=1e-4)
    assert loss.count == 6
    assert float(loss.terms["cosine"]) == pytest.approx(np.diag(cosines).mean() * 0.1, abs=1e-4)


def test_training_finds_partners() -> None:
    objective, network = make_contrastive(), make_bert(dropout=0.1).train()
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    losses = []
    for batch in take(objective, 60):
        loss = objective.loss(network, batch, None)
        optimizer.zero_grad()
        loss.value.backward()
        optimizer.step()
        losses.append(float(loss.value.detach()))
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])


def test_network_that_reads_one_side_is_refused() -> None:
    network = GPT2(GPT2Config(width=16, layers=1, heads=2, window=16), VOCABULARY)
    with pytest.raises(Unsupported, match="reads both sides"):
        make_contrastive().check(network)


def test_bad_settings_and_texts_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="temperature"):
        make_contrastive(temperature=0.0)
    with pytest.raises(InvalidSetting, match="same_fraction"):
        make_contrastive(same_fraction=1.5)
    with pytest.raises(DataError, match="at least 500 tokens"):
        take(make_contrastive(min_tokens=500), 1)


def test_trained_run_has_vectors_and_predicts_no_words(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(
        "\n\n".join(f"The king saw house {i}. The queen saw a river." for i in range(60))
    )
    run = nextword.train(
        "bert/tiny",
        tmp_path / "text.txt",
        out=tmp_path / "run",
        objective={"kind": "contrastive"},
        batches={"kind": "neighbors", "rows": 4, "length": 16, "min_tokens": 2},
        steps=2,
        progress=False,
    )
    lm = nextword.load(run)
    assert lm.can == {"embed"}
    card = (run.path / "card.md").read_text()
    assert 'lm.embed(["some text"])' in card
    assert "nextword evaluate" not in card
    labels = nextword.predict(run, ["A river."], labels=["water", "kings"])
    assert sum(labels[0].probabilities.values()) == pytest.approx(1)
