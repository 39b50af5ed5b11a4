"""Studies of networks that read both sides: parts checked by hand, and each study run very small."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.csv_tables import read_tables

from nextword.batching.masked import Sentences
from nextword.batching.token_stream import DOCUMENT, ROW, SENTENCE, WORD, Stream
from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, Vocabulary
from nextword.data.opening import open_corpus
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.studies import _experiment as pool
from nextword.studies import _probes as probes
from nextword.studies import dynamic_masking as masks
from nextword.studies import find_study, mask_mismatch
from nextword.studies import layer_sharing as sharing
from nextword.studies import masked_vs_causal as fill_in
from nextword.studies import nsp_vs_sop as sentence_pairs
from nextword.studies._small_models import (
    Size,
    Text,
    certain,
    encoder,
    hidden_tokens,
    learn,
    ranged,
    short_sentences,
    some,
    text_of,
    unhidden,
    wider,
)
from nextword.studies._study import Finding, Settings, run, write
from nextword.studies._synthetic import Neighbours, strangers

TINY = Size(width=16, layers=1, heads=2, rows=4, length=16, steps=4)


@pytest.fixture(scope="module")
def text() -> Text:
    return text_of(open_corpus("python"), 400)[0]


# ------------------------------------------------------------------------------------------------ parts


def test_the_wider_interval_of_seeds_and_text() -> None:
    draw = np.random.default_rng(0)
    units = draw.normal(size=400)
    same = np.stack([units, units + 0.001, units - 0.001])  # seeds agree: the text decides
    middle, low, high = certain(same)
    assert middle == pytest.approx(units.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * units.std() / 20, rel=0.15)
    _, low, high = certain(np.stack([units, units + 3, units - 3]))  # they do not: Student's t
    assert (high - low) / 2 == pytest.approx(4.30 * 3 / math.sqrt(3), rel=1e-6)
    assert certain(units[None])[1:] == [-math.inf, math.inf]
    assert ranged([0.0, -0.5, 0.25], 1) == "−0.5 to 0.2"
    assert ranged([0.0, None, None]) == "one seed has no interval"


def test_some_documents_keep_their_words_and_sentences() -> None:
    marks = np.array([7, 1, 0, 3, 0, 7, 1, 0, 7, 3, 0], np.uint8)
    assert (WORD, SENTENCE, DOCUMENT) == (1, 2, 4)
    documents = np.zeros(3, ROW)
    documents["start"] = [0, 5, 8]
    stream = Stream(np.arange(11, dtype=np.uint8), marks, documents, 11, 11, 0)
    found = some(stream, 6)
    pieces = {0: [0, 1, 2, 3, 4], 5: [5, 6, 7], 8: [8, 9, 10]}
    heads = found.ids[found.documents["start"]].tolist()
    assert found.ids.tolist() == [i for head in heads for i in pieces[head]]
    assert found.marks.tolist() == marks[found.ids].tolist()
    assert len(found.ids) >= 6
    assert len(some(stream, 10**6).ids) == 11


def test_a_small_network_begins_as_wide_as_a_large_one(text: Text) -> None:
    network = encoder(TINY, text.vocabulary, 0)
    assert float(network.embedding.weight.detach().std()) == pytest.approx(0.02 * (768 / 16) ** 0.5, rel=0.05)
    assert float(network.norm.weight.detach().min()) == 1.0
    assert wider(network) is network


def test_training_checks_as_often_as_asked_and_is_repeatable(text: Text) -> None:
    seen: list[int] = []
    weights = []
    for _ in range(2):
        network = encoder(TINY, text.vocabulary, 3)
        objective = short_sentences(TINY, text.vocabulary)
        learn(network, objective, text.train, 3, TINY, seen.append, 2)
        weights.append(network.embedding.weight.detach().clone())
        nats, right = hidden_tokens(network, objective, text.test)
        assert nats.shape == right.shape
        assert 3 < nats.mean() < 9
    assert seen == [2, 4] * 2
    assert torch.equal(*weights)


def test_one_token_a_row_is_hidden_and_it_is_a_word(text: Text) -> None:
    holes = fill_in.holes(text.test, TINY, text.vocabulary)
    special = set(text.vocabulary.special.values())
    assert not special & set(holes.right.tolist())
    assert (holes.at >= 1).all()
    assert holes.padding[np.arange(len(holes.at)), holes.at].all()


def test_rescoring_is_exact_among_those_kept(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against p(x) p(what follows | x), written out for every token of the vocabulary."""
    torch.manual_seed(0)
    network = wider(GPT2(GPT2Config(**TINY.shape), text.vocabulary)).eval()
    holes = fill_in.holes(text.test, TINY, text.vocabulary)
    one = fill_in.Holes(holes.ids[3:5], holes.padding[3:5], holes.at[3:5])
    size = text.vocabulary.size
    monkeypatch.setattr(fill_in, "KEPT", size)
    with torch.no_grad():
        log_p = fill_in._next(network, one, slice(0, 2))
        found = fill_in.rescored(network, log_p, one)
        for i in range(2):
            end, at = int(one.padding[i].sum()), int(one.at[i])
            rows = torch.from_numpy(one.ids[i, :end]).repeat(size, 1)
            rows[:, at] = torch.arange(size)
            h = network.hidden(Inputs(rows), None)[0][-1][:, :-1]
            every = -network.readout.nll(h.reshape(-1, 16), rows[:, 1:].reshape(-1)).view(size, -1).sum(1)
            assert torch.allclose(found[i], every.log_softmax(0), atol=1e-4)
        monkeypatch.setattr(fill_in, "KEPT", 5)
        few = fill_in.rescored(network, log_p, one)
    assert few.logsumexp(1).tolist() == pytest.approx([0, 0], abs=1e-4)
    kept = log_p.topk(5, 1)[1]
    assert torch.equal(few.scatter(1, kept, 0.0), log_p.scatter(1, kept, 0.0))


def test_every_way_to_share_goes_on_from_the_same_function(text: Text) -> None:
    torch.manual_seed(0)
    one = sharing.Shared(sharing.BERTConfig(**TINY.shape), text.vocabulary, "all")
    inputs = Inputs(torch.randint(5, 300, (2, 9)))
    found = {share: sharing.stacked(one, share, 3).eval() for share in sharing.SHARE}
    outputs = [network.hidden(inputs, None)[0][-1] for network in found.values()]
    assert all(torch.equal(outputs[0], other) for other in outputs)
    assert not torch.allclose(outputs[0], one.eval().hidden(inputs, None)[0][-1])
    halves = {share: (len(network.attending), len(network.feeding)) for share, network in found.items()}
    assert halves == {"none": (3, 3), "attention": (1, 3), "feed-forward": (3, 1), "all": (1, 1)}


# ------------------------------------------------------------------------------------------------ pairs


@pytest.fixture(scope="module")
def many() -> Sentences:
    """Thirty documents of sentences of 3 to 9 tokens."""
    draw = np.random.default_rng(1)
    lengths = draw.integers(3, 10, 300)
    first = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return Sentences(first, first + lengths, np.arange(0, 301, 10))


@pytest.mark.parametrize("each", [1, 2])
def test_neighbours_are_whole_and_follow_each_other(many: Sentences, each: int) -> None:
    texts = Neighbours(4, 24, "order", each=each).texts(many, 0, 0)
    document = np.repeat(np.arange(30), 10)
    for (a, b), (m, n), label in zip(
        texts.first.reshape(-1, 2), texts.length.reshape(-1, 2), texts.labels, strict=True
    ):
        if label:
            a, m, b, n = b, n, a, m
        assert (a + m == b, m + n <= 21) == (True, True)
        at = int(np.searchsorted(many.first, a))
        assert (many.first[at], many.last[at + 2 * each - 1]) == (a, b + n)
        assert document[at] == document[at + 2 * each - 1]
    assert 0.4 < texts.labels.mean() < 0.6


def test_strangers_are_of_another_document_and_as_long(many: Sentences) -> None:
    texts = Neighbours(4, 24, "next").texts(many, 0, 0)
    order = Neighbours(4, 24, "order").texts(many, 0, 0)
    own = np.searchsorted(many.first, texts.first.reshape(-1, 2)) // 10
    wrong = texts.labels == 1
    assert (own[wrong, 0] != own[wrong, 1]).all()
    assert (own[~wrong, 0] == own[~wrong, 1]).all()
    assert 0.35 < wrong.mean() < 0.6
    longer = texts.length.reshape(-1, 2)
    assert abs(longer[wrong, 1].mean() - longer[~wrong, 1].mean()) < 0.6  # no cue in the length
    assert len(order) == len(texts)
    same = np.zeros(6, np.int64)
    assert sorted(strangers(np.arange(6), same, np.random.default_rng(0)).tolist()) == list(range(6))


def test_pairs_gathered_in_short_rows_are_told_by_length(text: Text) -> None:
    table = sentence_pairs.by_length(text.train, text.vocabulary.end)
    assert table.column("tokens in a row") == list(sentence_pairs.ROWS)
    right = table.column("right, %")
    assert all(50 <= value <= 100 for value in right)
    assert right[0] > 55


def test_a_text_without_pairs_says_so() -> None:
    alone = Sentences(np.array([0, 5]), np.array([5, 9]), np.array([0, 1, 2]))
    with pytest.raises(NextwordError, match="several sentences"):
        Neighbours(4, 24, "order").texts(alone, 0, 0)


# ------------------------------------------------------------------------------------------------ probes

CONLLU = (
    "# text\n1-2\tdon't\t_\t_\n1\tDo\tdo\tAUX\tx\n2\tn't\tnot\tPART\tx\n3\tgo\tgo\tVERB\tx\n\n1\tStop\tstop\tVERB\n"
)


def test_a_treebank_is_read_word_by_word() -> None:
    found = list(probes.tagged(CONLLU.splitlines(keepends=True)))
    assert found == [(["Do", "n't", "go"], ["AUX", "PART", "VERB"]), (["Stop"], ["VERB"])]


def test_labels_stand_at_the_first_piece_of_their_word() -> None:
    tokenizer = text_of(open_corpus("python"), 400)[1]
    rows = probes._rows([(["The", "statement", "Zzyzx"], ["a", None, "b"])], ("a", "b"), tokenizer, 16)
    encoding = tokenizer.encode("The statement Zzyzx")
    expected = np.full(16, -1)
    expected[1 + encoding.words.tolist().index(0)] = 0
    expected[1 + encoding.words.tolist().index(2)] = 1
    assert rows.labels[0].tolist() == expected.tolist()
    assert rows.padding[0].sum() == len(encoding) + 2
    cut = probes._rows([(["statement"] * 50, ["a"] * 50)], ("a",), tokenizer, 16)
    assert cut.padding.all()


def test_case_leaves_out_what_begins_a_sentence_or_has_no_letter() -> None:
    assert [probes._capital(word) for word in ("God", "“Go", "went,", "3", "(a")] == [True, True, False, None, False]


class Told:
    """A network whose vectors hold the token: a probe must find it."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def encode(self, inputs: Inputs) -> tuple[list[torch.Tensor], None]:
        h = torch.nn.functional.one_hot(inputs.ids, 8).float()
        return [h if not self.noise else torch.randn(h.shape)], None


def test_a_probe_finds_what_is_there_and_no_more() -> None:
    draw = np.random.default_rng(0)
    ids = draw.integers(0, 8, (60, 10))
    rows = probes.Rows(ids, np.ones(ids.shape, bool), ids % 4)
    task = probes.Task("rest", (0, 1, 2, 3), rows, rows)
    assert probes.probed(Told(), task).all()
    assert probes.probed(Told(1.0), task).mean() < 0.5
    assert 0.2 < task.common < 0.35


def test_a_wrong_token_is_noticed_by_who_knows_better(text: Text) -> None:
    """A readout that finds the right tokens likely, and a blind one."""

    class Known:
        vocabulary: Vocabulary = text.vocabulary

        def __init__(self, blind: bool) -> None:
            self.blind, self.readout = blind, self

        def hidden(self, inputs: Inputs, state: None) -> tuple[list[torch.Tensor], None]:
            return [torch.zeros(*inputs.ids.shape, 2)], None

        def nll(self, h: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(targets)) if self.blind else (targets != self.right[: len(targets)]).float()

    objective = short_sentences(TINY, text.vocabulary, masked=0.0, replaced=1.0)
    assert mask_mismatch.noticed(Known(True), objective, text.test).max() == 0

    right: Iterator[torch.Tensor] = (unhidden(batch).reshape(-1) for batch in objective.held_out(text.test))
    known = Known(False)
    known.hidden_as_it_is = known.hidden  # type: ignore[attr-defined]

    def hidden(inputs: Inputs, state: None) -> tuple[list[torch.Tensor], None]:
        known.right = next(right)  # type: ignore[attr-defined]
        return known.hidden_as_it_is(inputs, state)  # type: ignore[attr-defined, no-any-return]

    known.hidden = hidden  # type: ignore[method-assign]
    assert mask_mismatch.noticed(known, objective, text.test).min() == 1


# ------------------------------------------------------------------------------------------------ whole studies

STUDIES = {
    "fill-in": (fill_in, {"QUICK": TINY, "PIECES": 300, "LEAST": 20, "KEPT": 3}),
    "sentence-pairs": (
        sentence_pairs,
        {"QUICK": replace(TINY, length=64), "PIECES": 300, "LEAST": 4, "CHECKS": 2, "QUICK_BEFORE": TINY},
    ),
    "sharing": (sharing, {"QUICK": replace(TINY, layers=2), "QUICK_ONE": TINY, "PIECES": 300}),
    "masks": (masks, {"QUICK": TINY, "PIECES": 300, "QUICK_READ": 2000}),
    "mask-mismatch": (
        mask_mismatch,
        {"QUICK": TINY, "PIECES": 300, "SENTENCES": ((40, 20), (40, 20)), "LEAST": 20, "CHECKS": 2},
    ),
}


@pytest.fixture(scope="module", params=STUDIES)
def finding(request: pytest.FixtureRequest) -> Finding:
    """Each study, very small, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "cores", lambda: 1)
        module, sizes = STUDIES[request.param]
        for name, value in sizes.items():
            patch.setattr(module, name, value)
        torch.manual_seed(7)
        found = run(request.param, find_study(request.param), Settings(quick=True, seeds=(0, 1), data="python"))
        assert torch.equal(torch.rand(3), torch.manual_seed(7) and torch.rand(3))  # the caller's own are left alone
    return found


def test_a_small_run_has_all_it_should_and_its_verdict_follows(finding: Finding, tmp_path: Path) -> None:
    study = find_study(finding.name)
    assert {"data", "training", "intervals", "seeds", "command"} <= set(finding.conditions)
    assert finding.claim.sentence.endswith(".")
    assert all(part.says and part.found and part.uncertainty for part in finding.parts)
    for table in finding.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
    files = write(finding, study, tmp_path)
    assert all(file.stat().st_size for file in files)
    tables = read_tables(tmp_path)
    assert tuple(study.judge(tables)) == finding.parts


def test_too_short_a_text_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill_in, "LEAST", 10**6)
    with pytest.raises(NextwordError, match=r"held-out rows.*--data"):
        fill_in.measure(Settings(data="python", quick=True), lambda done, total: None)
