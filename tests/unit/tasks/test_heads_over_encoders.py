"""Every encoder with every head: construction, training with its objective, saving and loading.

Every network of the package that has vectors inside, each with every kind of head, every way of reading a text as one
vector, and tags with a CRF and without. Networks are as small as they can be.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.examples import Bucketed
from nextword.core.errors import Unsupported
from nextword.core.protocols import Encoder
from nextword.data.squad import make_question
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.models import MODELS, model_class
from nextword.models.bert import BERT, BERTConfig
from nextword.models.framing import add_missing_tokens
from nextword.objectives import make_objective
from nextword.recipe import load_recipe
from nextword.tasks import task_class
from nextword.tasks.classification import ClassificationConfig
from nextword.tasks.encoding import encode_texts
from nextword.tasks.heads import POOLINGS, TextHead, mean_pool
from nextword.tasks.label_text import encode_sources, tokenize_labels
from nextword.tasks.multiple_choice import encode_choices
from nextword.tasks.question_answering import PassageBatches, encode_questions
from nextword.tasks.tagging import encode_sentences
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.model_kinds import is_tagger

TEXTS = ["the old king went far", "a new house in the land", "the queen saw the river and a ship", "far away and old"]
SECONDS = ["who went ?", "where is it ?", "what is far ?", "old ?"]
ATTENDS: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2, "window": 40, "dropout": 0.0}
SHAPES: dict[str, dict[str, Any]] = {
    "nplm": {"context": 3, "embedding": 8, "width": 8, "direct": True},
    **{slug: {"width": 8, "layers": 1} for slug in ("rnn", "gru", "lstm")},
    "awd-lstm": {"embedding": 8, "width": 8, "layers": 2},
    "ulmfit": {"embedding": 8, "width": 8, "layers": 2},
    "elmo": {
        "width": 8,
        "cell_size": 8,
        "characters": {"filters": [[1, 4], [2, 4]], "character_width": 4},
        "dropout": 0.0,
    },
    **{slug: ATTENDS for slug in ("gpt1", "gpt2", "gpt3", "bert", "roberta", "glm")},
    "albert": {**ATTENDS, "embedding": 8},
    "xlnet": {"width": 8, "layers": 1, "heads": 2, "ffn_width": 16, "memory": 4, "dropout": 0.0, "init_std": 0.1},
    "seq2seq": {"cell": "gru", "attention": "bahdanau", "width": 8, "embedding": 8, "encoder_width": 8},
    "cvt-seq2seq": {"cell": "lstm", "width": 8, "embedding": 8, "encoder_width": 8, "dropout": 0.0},
    "cove": {"vector_width": 8, "encoder_width": 8, "width": 8, "embedding": 8},
    "t5": {"width": 8, "layers": 1, "heads": 2, "head_width": 4, "ffn_width": 16, "dropout": 0.0},
    **{slug: {"width": 8} for slug in ("word2vec", "glove")},
}
TABLES: dict[str, dict[str, Any]] = {
    "classification": {"frame": "classify", "labels": ("a", "b", "c"), "metrics": ("accuracy",)},
    "pair_classification": {"frame": "entail", "labels": ("a", "b"), "metrics": ("accuracy",)},
    "regression": {"frame": "similar", "metrics": ("spearman",)},
    "tagging": {"labels": ("O", "B-X", "I-X"), "scheme": "IOB2", "classifier": "crf"},
    "question_answering": {"metrics": ("answer_f1", "exact")},
    "multiple_choice": {"frame": "choose", "metrics": ("accuracy",)},
}
MLP = {"pooling": "concat", "classifier": "mlp", "hidden_sizes": (4,), "dropouts": (0.1, 0.1)}
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in TABLES},
    **{f"classification {pooling}": ("classification", {"pooling": pooling}) for pooling in POOLINGS},
    "classification mlp": ("classification", MLP),
    "regression concat": ("regression", {"pooling": "concat"}),
    "tagging softmax": ("tagging", {"classifier": "linear"}),
}


def make_task(kind: str, **more: Any) -> Any:
    return task_class(kind).parse({"kind": kind, **TABLES.get(kind, {}), **more}, "test")


def test_shapes_cover_every_network_that_encodes() -> None:
    embeds = {slug for slug in MODELS if hasattr(model_class(slug), "encode") and not is_tagger(slug)}
    assert embeds == set(SHAPES)


@pytest.mark.parametrize("slug", [slug for slug in MODELS if is_tagger(slug)])
@pytest.mark.parametrize("kind", ["classification", "question_answering", "multiple_choice"])
def test_character_tagger_with_other_head_raises(slug: str, kind: str) -> None:
    recipe = load_recipe(f"{slug}/tiny")
    tokenizer, cls = make_tokenizer(slug), model_class(slug)
    network = cls(cls.Config(**recipe.model), vocabulary(tokenizer, spellings=True))
    with pytest.raises(Unsupported, match=cls.__name__):
        make_examples(kind, network, tokenizer)


@cache
def make_tokenizer(slug: str) -> Any:
    spec = {**load_recipe(f"{slug}/tiny").tokenizer, "size": 400}
    spec.pop("min_count", None)
    return train_tokenizer(spec, [*TEXTS, *SECONDS] * 3)


def make_network(slug: str) -> tuple[Any, Any]:
    tokenizer, cls = make_tokenizer(slug), model_class(slug)
    torch.manual_seed(1)
    network = add_missing_tokens(cls(cls.Config(**SHAPES[slug]), vocabulary(tokenizer, spellings=True)))
    assert isinstance(network, Encoder)
    return network, tokenizer


def reload(task: Any, network: Any, folder: Path) -> Any:
    return task.load_model(folder, type(network), network.config, network.vocabulary)


def make_examples(kind: str, network: Any, tokenizer: Any) -> tuple[Any, Any]:
    """Return four examples for the network, and the objective of the task."""
    task = {"kind": kind}, {"kind": "examples", "rows": 4, "length": 40}
    if kind == "tagging":
        words = [text.split() for text in TEXTS]
        text = encode_sentences(network, tokenizer, words, [[i % 2 for i in range(len(word))] for word in words])[0]
        return text, make_objective({"kind": "tagging"}, {"kind": "sentences", "rows": 4}, network.vocabulary)
    if kind == "question_answering":
        pairs = zip(SECONDS, TEXTS, strict=True)
        questions = [make_question(str(i), a, b, [(b.split()[1], None)])[0] for i, (a, b) in enumerate(pairs)]
        batches = {"kind": "passages", "rows": 4, "length": 40}
        layout = PassageBatches(rows=4, length=40)
        text = encode_questions(network, tokenizer, questions, layout, training=True)[0]
        assert len(text.questions) == len(TEXTS)
        return text, make_objective({"kind": "question_answering"}, batches, network.vocabulary)
    if kind == "multiple_choice":
        offered = [("far", "a ship"), ("a river", "old", "in"), ("and", "the"), ("house", "king")]
        text = encode_choices(network, tokenizer, TEXTS, SECONDS, offered, np.array([0, 2, 1, 1]), 40)[0]
        return text, make_objective(*task, network.vocabulary)
    labels = np.array([0.5, -1, 0, 2], np.float32) if kind == "regression" else np.array([0, 1, 1, 0])
    seconds = None if kind == "classification" else SECONDS
    text = encode_texts(network, tokenizer, TABLES[kind]["frame"], TEXTS, seconds, labels, 40)[0]
    return text, make_objective(*task, network.vocabulary)


@pytest.mark.parametrize("slug", list(SHAPES))
@pytest.mark.parametrize("name", HEADS)
def test_head_trains_saves_and_reloads(slug: str, name: str, tmp_path: Path) -> None:
    network, tokenizer = make_network(slug)
    kind, more = HEADS[name]
    task = make_task(kind, **more)
    text, objective = make_examples(kind, network, tokenizer)
    headed = task.head(network).train()
    before = {name: p.detach().clone() for name, p in headed.named_parameters()}
    optimizer = torch.optim.SGD(headed.parameters(), 0.1)
    batches = objective.batches(text, 0, 0)
    for _ in range(2):
        loss = objective.loss(headed, next(batches), None)
        assert torch.isfinite(loss.value)
        optimizer.zero_grad()
        loss.value.backward()
        moved = [p.grad for p in headed.encoder.parameters() if p.grad is not None]
        assert moved
        assert all(torch.isfinite(grad).all() for grad in moved)
        assert max(float(grad.abs().max()) for grad in moved) > 0  # gradients reach the network below the head
        optimizer.step()
    learnt = {name.split(".")[0] for name, p in headed.named_parameters() if not torch.equal(p, before[name])}
    assert {"encoder", "out"} <= learnt

    batch = next(objective.validation_batches(text))
    headed.eval()
    with torch.no_grad():
        logits = headed(batch)
        headed.save(tmp_path)
        again = reload(task, network, tmp_path)(batch)
    assert torch.equal(logits, again)
    metrics = task.config.metrics
    if metrics:
        text = replace(text, metrics=metrics)
        with torch.no_grad():
            notes = torch.cat(
                [objective.loss(headed, item, None).outputs for item in objective.validation_batches(text)]
            )
        assert set(objective.metrics(text, notes)) == set(metrics)


@pytest.mark.parametrize("slug", [slug for slug in SHAPES if getattr(model_class(slug), "is_conditional", False)])
def test_seq2seq_networks_generate_their_labels(slug: str, tmp_path: Path) -> None:
    """Costs equal those of the language model alone, and gradients reach the entire network."""
    network, tokenizer = make_network(slug)
    labels = ("far", "a river", "old king")
    ids = [list(item) for item in tokenize_labels(tokenizer, labels, {})]
    task = make_task("label_text", frame="classify", labels=labels, label_ids=ids)
    headed = task.head(network).eval()
    text, cut = encode_sources(tokenizer, TEXTS, np.array([0, 2, 1, 0]), 40)
    objective = make_objective(
        {"kind": "label_text"}, {"kind": "examples", "rows": 4, "length": 40}, network.vocabulary
    )
    batch = next(objective.batches(text, 0, 0))
    assert cut == 0
    with torch.no_grad():
        logits = headed(Bucketed().batch(text, np.arange(4), 0))
    lm = Seq2SeqLM(network, tokenizer)
    for i, source in enumerate(TEXTS):
        want = [-label.nats for label in lm.score_many(labels, [source] * 3)]
        assert logits[i].tolist() == pytest.approx(want, abs=1e-4)
    loss = objective.loss(headed.train(), batch, None)
    loss.value.backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)
    headed.eval().save(tmp_path)
    with torch.no_grad():
        again = reload(task, network, tmp_path)(Bucketed().batch(text, np.arange(4), 0))
    assert torch.equal(logits, again)


def test_bert_without_pairs_is_read_as_the_mean_of_its_tokens() -> None:
    tokenizer = train_tokenizer({"kind": "wordpiece", "size": 150}, TEXTS)
    settings = {"kind": "classification", "frame": "classify", "labels": ("a", "b"), "dropout": 0.0}
    config = ClassificationConfig(**settings)
    networks = [BERT(BERTConfig(**ATTENDS, pairs=pairs), vocabulary(tokenizer)).eval() for pairs in (False, True)]
    heads = [TextHead(network, config, 2) for network in networks]
    assert [head.uses_pooler for head in heads] == [False, True]
    assert networks[0].pooler is networks[0].next_sentence is None
    examples, _ = encode_texts(networks[0], tokenizer, "classify", TEXTS, None)
    batch = next(Bucketed(rows=4, length=40).batches(examples, 0, 0))
    h = heads[0].read_layer(batch.inputs)
    assert torch.equal(heads[0](batch), heads[0].out(mean_pool(h, batch.inputs)))
