"""What the studies of translators share: scores with intervals, made-up sequences, a made language, small networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.small_pairs import write_pairs

from nextword.core.errors import NextwordError
from nextword.core.types import Inputs
from nextword.data.opening import open_corpus
from nextword.studies import _small_models as translators
from nextword.studies import _study as bleu
from nextword.studies import _synthetic as made_language
from nextword.studies import _synthetic as symbols
from nextword.studies import attention_length, span_corruption
from nextword.studies import exposure_bias as teacher_forcing
from nextword.studies._small_models import Texts, TranslatorSize

SMALL = TranslatorSize(pieces=280, width=16, rows=8, length=60, longest=60, steps=3, held=50)
WRITTEN = ["the cat sat on the mat", "a dog", "birds fly over the old town today"]
TARGETS = ["the cat sat on a mat", "a dog ran away", "birds fly over the old town"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return translators.texts_of(write_pairs(tmp_path_factory.mktemp("pairs")), SMALL)[1]


# ------------------------------------------------------------------------------------------------ scores


def test_sums_over_texts_give_the_bleu_of_the_whole() -> None:
    from sacrebleu.metrics import BLEU

    sums = bleu.counted(WRITTEN, TARGETS)
    assert float(bleu.bleu(sums.sum(0))) == pytest.approx(BLEU().corpus_score(WRITTEN, [TARGETS]).score)
    assert float(bleu.written_length(sums.sum(0))) == pytest.approx(15 / 16)
    twice = np.stack([sums.sum(0), sums[:1].sum(0)])
    assert bleu.bleu(twice)[1] == pytest.approx(BLEU().corpus_score(WRITTEN[:1], [TARGETS[:1]]).score)


def test_intervals_are_the_wider_of_seeds_and_texts() -> None:
    draw = np.random.default_rng(0)
    nats = np.stack([draw.normal(2.0, 0.5, (5, 400)), np.ones((5, 400))], 2)
    middle, low, high = bleu.found(bleu.ratio, nats)
    assert middle == pytest.approx(float(nats[..., 0].mean()))
    assert 0.02 < high - low < 0.15
    apart = nats + np.array([0.0, 1.0, -1.0, 0.5, -0.5])[:, None, None] * np.array([1.0, 0.0])
    assert np.diff(bleu.found(bleu.ratio, apart)[1:]) > 1.0  # seeds that differ widen it
    assert bleu.found(bleu.ratio, nats[:1])[1:] == [-np.inf, np.inf]  # one seed has none
    assert bleu.found(bleu.ratio, nats[:1], alone=True)[1] > 1.8  # but one run has that of its texts


def test_pairs_take_away_what_both_have_in_common() -> None:
    draw = np.random.default_rng(0)
    common = draw.normal(2.0, 1.0, (3, 200))
    costs = [np.stack([common + shift, np.ones_like(common)], 2) for shift in (0.1, 0.0)]
    assert bleu.between(bleu.ratio, *costs) == pytest.approx([0.1, 0.1, 0.1])
    middle, low, high = bleu.unpaired(bleu.ratio, *costs)
    assert middle == pytest.approx(0.1)
    assert low < 0 < high
    both = bleu.joined(bleu.joined(*costs), bleu.joined(*costs[::-1]))
    assert bleu.found(bleu.difference(bleu.difference(bleu.ratio)), both) == pytest.approx([0.2, 0.2, 0.2])


# ------------------------------------------------------------------------------------------------ sequences


def test_copies_are_of_the_lengths_asked_for_and_end() -> None:
    pairs = symbols.copies(50, symbols.Lengths(3, 6), seed=1)
    for i in range(50):
        source, target = pairs.side(0, i), pairs.side(1, i)
        assert source.tolist() == target.tolist()
        assert 3 <= len(source) - 1 <= 6
        assert source[-1] == symbols.END
        assert source[:-1].min() >= 2


def test_what_is_copied_is_counted_right() -> None:
    network = symbols.copier(0, TranslatorSize(width=8, steps=1), symbols.Lengths(2, 3))
    with torch.no_grad():
        network.readout.bias.fill_(0).index_fill_(0, torch.tensor([symbols.END]), 1e4)  # always says the end
    found = symbols.copied(network, 4)
    assert found.shape == (symbols.ASKED, 3)
    assert (found[:, 2] == 5).all()
    assert (found[:, 1] == 1).all()  # right once, at the end


def test_a_made_language_is_known_everywhere(tmp_path: Path) -> None:
    size = TranslatorSize(pieces=260, steps=4, rows=8, held=12)
    made = made_language.made_from(open_corpus("python"), size, 10, tmp_path)
    assert made.train.shape == (16, 10)
    assert made.test.shape == (12, 10)
    truth = made.truth
    for own in (False, True):  # who says what is true is never off, whoever speaks
        off, nats = made_language.off_by(_Truth(truth), made, 4, own, seed=0)
        assert off.shape == nats.shape == (12, 6)
        assert np.abs(off).max() < 1e-6
        assert nats.min() >= 0
    network = teacher_forcing.LSTM(teacher_forcing.RecurrentConfig(width=8), made.vocabulary)
    off, nats = made_language.off_by(network, made, 4, own=False, seed=0)
    assert off.mean() > 0.5  # untrained: far off
    batch = next(made.batches(4, 0))
    assert batch.inputs.ids[:, 1:].tolist() == batch.targets[:, :-1].tolist()
    assert batch.inputs.ids[:, 0].tolist() == [made.vocabulary.begin] * 4


class _Truth:
    """The truth as a network on a device."""

    def __init__(self, network: object) -> None:
        self.network, self.device = network, torch.device("cpu")

    def __getattr__(self, name: str) -> object:
        return getattr(self.network, name)


# ------------------------------------------------------------------------------------------------ translators


def test_held_out_pairs_are_those_that_are_scored(texts: Texts) -> None:
    assert len(texts.sources) == len(texts.targets) == len(texts.test) == 50
    for i in (0, 17, 49):
        assert texts.tokenizer.decode(texts.test.side(0, i)[:-1]) == texts.sources[i]
        assert " ".join(w[::-1] for w in texts.sources[i].split()) == texts.targets[i]
    assert texts.lengths.tolist() == [len(ids) for ids in texts.tokenizer.encode_batch(list(texts.sources))]


def test_the_same_seed_gives_the_same_translator(texts: Texts) -> None:
    one, other, third = (translators.translator(seed, SMALL, texts, attention="bahdanau") for seed in (0, 0, 1))
    assert torch.equal(one.embedding.weight, other.embedding.weight)
    assert not torch.equal(one.embedding.weight, third.embedding.weight)
    now = translators.said(one, texts)
    assert len(now.written) == 50
    assert now.costs[:, 1].tolist() == [len(texts.test.side(1, i)) for i in range(50)]
    assert now.costs[:, 0].min() > 0


def test_first_choices_are_those_of_the_network_fed_the_truth(texts: Texts) -> None:
    network = translators.translator(0, SMALL, texts, attention="bahdanau")
    with torch.no_grad():
        network.readout.bias.fill_(0).index_fill_(0, torch.tensor([texts.tokenizer.encode("k").ids[0]]), 1e4)
    chosen = teacher_forcing.first_choices(network, texts)
    assert chosen == ["k" * len(texts.test.side(1, i)) for i in range(50)]


def test_parts_by_length_are_as_large_as_each_other() -> None:
    parts = attention_length.by_length(np.array([5, 1, 9, 3, 7, 2, 8, 6]), 4)
    assert [part.tolist() for part in parts] == [[1, 5], [0, 3], [4, 7], [2, 6]]


def test_halves_have_as_many_tokens_as_spans_and_lose_none(texts: Texts) -> None:
    text, size = texts.train.target, TranslatorSize(rows=3, length=20)
    batch = next(span_corruption.halves(text, size, 11, begin=7, end=8, seed=0))
    assert batch.inputs.source is not None
    source, target = batch.inputs.source.ids, batch.targets
    assert source.shape == (3, 6)
    assert target.shape == (3, 7)
    assert (source[:, -1] == 8).all()
    assert (target[:, -1] == 8).all()
    assert batch.inputs.ids.tolist() == [[7, *row[:-1]] for row in target.tolist()]
    whole = [[*a[:-1], *b[:-1]] for a, b in zip(source.tolist(), target.tolist(), strict=True)]
    ids = text.ids.astype(int).tolist()
    assert all(any(ids[i : i + 11] == row for i in range(len(ids))) for row in whole)


def test_tasks_of_plain_pairs_are_the_pairs_alone(texts: Texts, tmp_path: Path) -> None:
    corpus = translators.open_parallel(write_pairs(tmp_path))
    tasks = span_corruption.tasks_of(corpus, SMALL, 30, texts.tokenizer, np.arange(5))
    assert list(tasks) == [span_corruption.VERSES]
    task = tasks[span_corruption.VERSES]
    assert len(task.train) == 30
    assert task.targets[0] == " ".join(w[::-1] for w in task.sources[0].split())


def test_too_few_pairs_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NextwordError, match=r"70 held-out pairs.*needs 40|0 held-out pairs|No pair has both sides"):
        translators.texts_of(write_pairs(tmp_path), TranslatorSize(pieces=280, length=60, longest=1))


def test_reading_backwards_is_the_only_difference(texts: Texts) -> None:
    torch.manual_seed(0)
    forwards = symbols.Seq2Seq(SMALL.built(attention="none"), texts.vocabulary)
    torch.manual_seed(0)
    backwards = symbols.Seq2Seq(SMALL.built(attention="none", reverse=True), texts.vocabulary)
    ids = torch.tensor([[3, 4, 5, 6]])
    one, other = (
        n.hidden(Inputs(ids, source=Inputs(s)), None)[0][-1] for n, s in ((forwards, ids), (backwards, ids.flip(1)))
    )
    assert torch.allclose(one, other)
