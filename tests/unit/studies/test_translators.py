"""Small translators and the copying task that studies share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nextword.core.errors import DataError
from nextword.core.types import Inputs
from nextword.models.seq2seq import Seq2Seq
from nextword.studies import _translators
from nextword.studies._translators import PairData, TranslatorSize
from tests.support.small_pairs import write_pairs

SMALL = TranslatorSize(pieces=280, width=16, rows=8, length=60, longest=60, steps=3, held=50)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> PairData:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return _translators.load_pairs(write_pairs(tmp_path_factory.mktemp("pairs")), SMALL)[1]


def test_held_out_texts_match_their_ids(pairs: PairData) -> None:
    assert len(pairs.sources) == len(pairs.targets) == len(pairs.test) == 50
    for i in (0, 17, 49):
        assert pairs.tokenizer.decode(pairs.test.side(0, i)[:-1]) == pairs.sources[i]
        assert " ".join(w[::-1] for w in pairs.sources[i].split()) == pairs.targets[i]
    lengths = [len(ids) for ids in pairs.tokenizer.encode_batch(list(pairs.sources))]
    assert pairs.source_lengths.tolist() == lengths


def test_same_seed_gives_the_same_translator(pairs: PairData) -> None:
    a, b, c = (_translators.train_translator(seed, SMALL, pairs, attention="bahdanau") for seed in (0, 0, 1))
    assert torch.equal(a.embedding.weight, b.embedding.weight)
    assert not torch.equal(a.embedding.weight, c.embedding.weight)
    output = _translators.translate(a, pairs)
    assert len(output.texts) == 50
    assert output.costs[:, 1].tolist() == [len(pairs.test.side(1, i)) for i in range(50)]
    assert output.costs[:, 0].min() > 0


def test_reversed_encoder_reads_the_reversed_source(pairs: PairData) -> None:
    networks = []
    for reverse in (False, True):
        torch.manual_seed(0)
        networks.append(Seq2Seq(SMALL.config(attention="none", reverse_source=reverse), pairs.vocabulary))
    ids = torch.tensor([[3, 4, 5, 6]])
    a, b = (
        network.hidden(Inputs(ids, source=Inputs(source)), None)[0][-1]
        for network, source in zip(networks, (ids, ids.flip(1)), strict=True)
    )
    assert torch.allclose(a, b)


def test_too_few_pairs_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_translators, "MIN_PAIRS", 10**6)
    with pytest.raises(DataError, match="--data"):
        _translators.load_pairs(write_pairs(tmp_path), SMALL)


def test_copies_have_the_wanted_lengths_and_an_end() -> None:
    pairs = _translators.make_copies(50, _translators.Lengths(3, 6), seed=1)
    for i in range(50):
        source, target = pairs.side(0, i), pairs.side(1, i)
        assert source.tolist() == target.tolist()
        assert 3 <= len(source) - 1 <= 6
        assert source[-1] == _translators.END
        assert source[:-1].min() >= 2


def test_copies_are_scored_symbol_by_symbol() -> None:
    network = _translators.train_copier(0, TranslatorSize(width=8, steps=1), _translators.Lengths(2, 3))
    with torch.no_grad():
        network.readout.bias.fill_(0).index_fill_(0, torch.tensor([_translators.END]), 1e4)  # always predicts the end
    scores = _translators.score_copies(network, 4)
    assert scores.nats.shape == scores.quality.shape == (_translators.TESTED, 2)
    assert (scores.quality == [1, 5]).all()
    assert (scores.nats[:, 1] == 5).all()
