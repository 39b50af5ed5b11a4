"""The network of cross-view training and its heads: input of each view, gradients, and dropout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nextword.batching.examples import UNLABELED
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import IGNORE, Batch
from nextword.layers.recurrent import BiLSTM
from nextword.models.bilstm_crf import Tagger, TaggerConfig
from nextword.models.cvt import CVT, CVTConfig
from nextword.tasks.cross_view import (
    PRIMARY,
    VIEWS,
    CrossViewConfig,
    CrossViewHead,
    CrossViewObjective,
    soft_cross_entropy,
)
from nextword.tasks.tagging import SentenceBatches, encode_sentences
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.errors import raises

TAGS = ("O", "B-A", "E-A", "I-A", "S-A")
WORDS = [["one", "two", "three", "four", "five", "six"], ["seven", "eight", "nine"]]
SMALL: dict[str, Any] = {
    "vector_width": 6,
    "character_width": 4,
    "filters": [[2, 3], [3, 3]],
    "width": 10,
    "second_width": 8,
    "projection": 7,
    "dropout": 0.5,
}


def make_tokenizer() -> Any:
    texts = [" ".join(words) for words in WORDS]
    return train_tokenizer({"kind": "lexicon", "size": 50, "min_count": 1, "whole": True}, texts)


def make_head(tasks: int = 1, **more: Any) -> CrossViewHead:
    torch.manual_seed(0)
    network = CVT(CVTConfig(**{**SMALL, **more}), vocabulary(make_tokenizer(), spellings=True))
    every = [{"name": f"task {i}", "labels": TAGS[: 5 - i], "scheme": "" if i else "BIOES"} for i in range(tasks)]
    return CrossViewHead(network, CrossViewConfig(tasks=every, width=9))


def make_batch(views: CrossViewHead, words: list[list[str]] = WORDS, part: int = 0) -> Batch:
    tags = [[i % 3 for i in range(len(word))] for word in words]
    text, _ = encode_sentences(views.encoder, make_tokenizer(), words, tags)
    return replace(SentenceBatches().batch(text, np.arange(len(words)), 0), task_index=part)


# ------------------------------------------------------------------------------------------------ who sees what


def compute_views(views: CrossViewHead, words: list[list[str]]) -> dict[str, torch.Tensor]:
    seen = views.views(make_batch(views, words).inputs)
    heads: Any = views.out[0]
    return {PRIMARY: heads.primary(seen), **heads.auxiliary(seen)}


SEES = {
    PRIMARY: lambda t, j: True,
    "full": lambda t, j: True,
    "forwards": lambda t, j: j <= t,
    "backwards": lambda t, j: j >= t,
    "future": lambda t, j: j < t,
    "past": lambda t, j: j > t,
}


def test_each_view_depends_only_on_its_part_of_the_input() -> None:
    views = make_head().eval()
    before = compute_views(views, WORDS)
    assert set(before) == set(SEES) == {PRIMARY, *VIEWS}
    for row, words in enumerate(WORDS):
        for j in range(len(words)):
            changed = [list(word) for word in WORDS]
            changed[row][j] = "ten"
            after = compute_views(views, changed)
            for name, sees in SEES.items():
                moved = (after[name] - before[name]).abs().amax(-1).detach() > 0
                wanted = torch.zeros_like(moved)
                for t in range(len(words)):
                    wanted[row, t] = sees(t, j)
                there = make_batch(views).targets != IGNORE
                assert torch.equal(moved & there, wanted), (name, row, j)


def test_views_without_input_read_zeros() -> None:
    views = make_head().eval()
    result = compute_views(views, WORDS)
    heads: Any = views.out[0].heads
    for name, at in (("future", (0, 0)), ("future", (1, 0)), ("past", (0, 5)), ("past", (1, 2))):
        torch.testing.assert_close(result[name][at], heads[name](torch.zeros(7)))


def test_only_the_full_view_has_no_relu() -> None:
    for name, head in make_head().out[0].heads.items():  # type: ignore[operator, union-attr]
        assert isinstance(head[1], torch.nn.Identity if name == "full" else torch.nn.ReLU)


def test_widths_equal_those_of_the_paper() -> None:
    network = make_head().encoder
    assert network.widths == [6 + 6, 14, 28]
    layers, _ = network.encode(make_batch(make_head()).inputs)
    assert [layer.shape[-1] for layer in layers] == network.widths
    config = CVTConfig()
    assert (config.character_width, config.filters, config.max_word_length) == (50, [[2, 100], [3, 100], [4, 100]], 20)
    assert (config.width, config.second_width, config.projection, config.dropout) == (1024, 512, 512, 0.5)


def test_bilstm_equals_two_separate_lstms() -> None:
    """Its halves equal two unidirectional LSTMs, the second of which reads each row backward."""
    torch.manual_seed(0)
    both, x = BiLSTM(5, 8, 3), torch.randn(2, 4, 5)
    there = torch.tensor([[True] * 4, [True, True, False, False]])
    result = both(x, there)
    torch.testing.assert_close(both(x, there, (4, 2)), result)
    assert both.width == 6
    assert not result[1, 2:].any()
    for side, ending in ((0, ""), (1, "_reverse")):
        alone = torch.nn.LSTM(5, 8, batch_first=True, proj_size=3)
        theirs = both.lstm.state_dict()
        alone.load_state_dict({name: theirs[name + ending] for name in alone.state_dict()})
        for row, size in ((0, 4), (1, 2)):
            given = x[row : row + 1, :size]
            read = alone(given.flip(1) if side else given)[0]
            wanted = read.flip(1) if side else read
            torch.testing.assert_close(result[row, :size, 3 * side : 3 * side + 3], wanted[0])
    assert BiLSTM(5, 3, 3).lstm.proj_size == 0


# ------------------------------------------------------------------------------------------------ who learns from whom


def test_soft_cross_entropy_equals_formula() -> None:
    torch.manual_seed(0)
    emissions, targets = torch.randn(2, 3, 4), torch.randn(2, 3, 4).softmax(-1)
    there = torch.tensor([[True, True, False], [True, False, False]])
    wanted = 0.0
    for b, t in ((0, 0), (0, 1), (1, 0)):
        q = emissions[b, t].exp() / emissions[b, t].exp().sum()
        wanted -= sum(float(targets[b, t, k] * q[k].log()) for k in range(4))
    assert float(soft_cross_entropy(emissions, targets, there)) == pytest.approx(wanted, rel=1e-5)
    hard = torch.tensor([[1, 2, 0], [3, 0, 0]])
    ordinary = F.cross_entropy(emissions.transpose(1, 2), hard, reduction="none")[there].sum()
    torch.testing.assert_close(soft_cross_entropy(emissions, F.one_hot(hard, 4).float(), there), ordinary)


def test_targets_of_unlabeled_text_get_no_gradient() -> None:
    views, objective = make_head(2).train(), CrossViewObjective({}, dropout=0.0)
    batch = make_batch(views, part=UNLABELED)
    loss = objective.loss(views, batch, None)
    assert (loss.count, float(loss.nats)) == (0, 0.0)
    loss.value.backward()
    for i, heads in enumerate(views.out):
        for name, head in heads.heads.items():  # type: ignore[operator, union-attr]
            gone = all(p.grad is None for p in head.parameters())
            assert gone == (name == PRIMARY), (i, name)
    got = {name: p.grad.clone() for name, p in views.encoder.named_parameters()}
    views.zero_grad()
    with torch.no_grad():
        seen = views.views(batch.inputs)
        fixed = [heads.primary(seen).softmax(-1).clone() for heads in views.out]  # type: ignore[operator, union-attr]
    there = batch.targets != IGNORE
    total = sum(
        -(target[there] * emissions[there].log_softmax(-1)).sum() / 9
        for target, own in zip(fixed, views.auxiliary(batch.inputs, 0.0), strict=True)
        for emissions in own.values()
    )
    torch.testing.assert_close(loss.value, total)
    total.backward()
    for name, p in views.encoder.named_parameters():
        torch.testing.assert_close(p.grad, got[name])
    assert torch.stack(list(loss.terms.values())).sum() == pytest.approx(float(loss.value.detach()))
    assert tuple(loss.terms) == VIEWS


def test_dropout_rate_is_that_of_network_or_objective_or_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    views, objective = make_head().train(), CrossViewObjective({}, dropout=0.2)
    rates: list[tuple[float, bool]] = []
    own = views.encoder.views

    def heard(inputs: Any, dropout: float = 0.0) -> Any:
        rates.append((dropout, torch.is_grad_enabled()))
        return own(inputs, dropout)

    monkeypatch.setattr(views.encoder, "views", heard)
    objective.loss(views, make_batch(views), None)
    objective.loss(views, make_batch(views, part=UNLABELED), None)
    objective.loss(views.eval(), make_batch(views), None)
    assert rates == [(0.5, True), (0.0, False), (0.2, True), (0.0, True)]


def test_targets_repeat_in_training_and_auxiliary_outputs_do_not() -> None:
    views = make_head().train()
    batch = make_batch(views)
    first, again = (views.targets(batch.inputs)[0] for _ in range(2))
    assert torch.equal(first, again)
    assert not first.requires_grad
    a, b = (views.auxiliary(batch.inputs, 0.5)[0]["forwards"] for _ in range(2))
    assert not torch.equal(a, b)


def test_labeled_loss_is_smoothed_and_trains_only_the_primary_head_of_its_task() -> None:
    views, objective = make_head(2, dropout=0.0).train(), CrossViewObjective({}, label_smoothing=0.1)
    batch = make_batch(views, part=1)
    loss = objective.loss(views, batch, None)
    there = batch.targets != IGNORE
    log_q = views(batch)[there].log_softmax(-1)  # (9, 4)
    smooth = 0.9 * F.one_hot(batch.targets[there], 4) + 0.1 / 4
    torch.testing.assert_close(loss.value, -(smooth * log_q).sum() / 9)
    torch.testing.assert_close(loss.nats, -log_q.gather(1, batch.targets[there].unsqueeze(1)).sum().detach())
    assert loss.count == 9
    loss.value.backward()
    for i, heads in enumerate(views.out):
        for name, head in heads.heads.items():  # type: ignore[operator, union-attr]
            taught = all(p.grad is not None for p in head.parameters())
            assert taught == ((i, name) == (1, PRIMARY))


# ------------------------------------------------------------------------------------------------ the rest


def test_rows_are_independent_and_tags_follow_the_scheme() -> None:
    from nextword.data.tag_schemes import find_violation

    views = make_head(2).eval()
    batch = make_batch(views)
    there = batch.targets != IGNORE
    for i, best in enumerate(views.best_tags_of_all(batch.inputs, there)):
        torch.testing.assert_close(best, views.best_tags(views(replace(batch, task_index=i)), there, i))
        for row, words in enumerate(WORDS):
            alone = make_batch(views, [words], part=i)
            torch.testing.assert_close(views(alone)[0], views(replace(batch, task_index=i))[row, : len(words)])
            if i == 0:
                assert find_violation([TAGS[tag] for tag in best[row, : len(words)].tolist()], "BIOES") is None


def test_incompatible_network_or_setting_raises() -> None:
    with raises(Unsupported, ability="views"):
        CrossViewHead(Tagger(TaggerConfig(), vocabulary(make_tokenizer(), spellings=True)), CrossViewConfig())
    with raises(InvalidSetting, key="objective.label_smoothing"):
        CrossViewObjective({}, label_smoothing=1.5)
    with raises(InvalidSetting, key="objective.max_sentences"):
        CrossViewObjective({}, max_sentences=0)
    with raises(InvalidSetting, key="model.width"):
        CVTConfig(width=0)
