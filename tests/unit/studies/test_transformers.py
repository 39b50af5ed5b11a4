"""Small BERTs and GPT-2s that studies share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nextword.batching.token_stream import DOCUMENT, ROW, SENTENCE, WORD, Stream
from nextword.data.opening import open_corpus
from nextword.studies._transformers import (
    Size,
    Text,
    encode_corpus,
    make_bert,
    masked_lm,
    sample_documents,
    scale_weights,
    score_masked,
    train_on,
)

TINY = Size(width=16, layers=1, heads=2, rows=4, length=16, steps=4)


@pytest.fixture(scope="module")
def text() -> Text:
    return encode_corpus(open_corpus("python"), 400)[0]


def test_sampled_documents_keep_their_words_and_sentences() -> None:
    marks = np.array([7, 1, 0, 3, 0, 7, 1, 0, 7, 3, 0], np.uint8)
    assert (WORD, SENTENCE, DOCUMENT) == (1, 2, 4)
    documents = np.zeros(3, ROW)
    documents["start"] = [0, 5, 8]
    stream = Stream(np.arange(11, dtype=np.uint8), marks, documents, 11, 11, 0)
    sampled = sample_documents(stream, 6)
    pieces = {0: [0, 1, 2, 3, 4], 5: [5, 6, 7], 8: [8, 9, 10]}
    heads = sampled.ids[sampled.documents["start"]].tolist()
    assert sampled.ids.tolist() == [i for head in heads for i in pieces[head]]
    assert sampled.marks.tolist() == marks[sampled.ids].tolist()
    assert len(sampled.ids) >= 6
    assert len(sample_documents(stream, 10**6).ids) == 11


def test_initial_weights_are_scaled_to_the_width(text: Text) -> None:
    network = make_bert(TINY, text.vocabulary, 0)
    assert float(network.embedding.weight.detach().std()) == pytest.approx(0.02 * (768 / 16) ** 0.5, rel=0.05)
    assert float(network.norm.weight.detach().min()) == 1.0
    assert scale_weights(network) is network


def test_training_calls_checks_and_is_reproducible(text: Text) -> None:
    steps: list[int] = []
    weights = []
    for _ in range(2):
        network = make_bert(TINY, text.vocabulary, 3)
        objective = masked_lm(TINY, text.vocabulary)
        train_on(network, objective, text.train, 3, TINY, steps.append, 2)
        weights.append(network.embedding.weight.detach().clone())
        nats, hits = score_masked(network, objective, text.test)
        assert nats.shape == hits.shape
        assert 3 < nats.mean() < 9
    assert steps == [2, 4] * 2
    assert torch.equal(*weights)
