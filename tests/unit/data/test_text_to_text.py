"""Text-to-text tasks: templates of T5, readers, and mixing rates."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.batching.seq2seq import Mixture, Sequences, deal_examples, prepare_pairs, prepare_parallel, prepare_tasks
from nextword.core.errors import DataError, InvalidSetting, MissingFile, NextwordError, UnknownName
from nextword.data.parallel import is_parallel, open_parallel
from nextword.data.text_to_text import Mixing, is_tasks, list_prefixes, round_to_step, tasks
from nextword.tokenizers.training import train_tokenizer
from tests.support.errors import raises


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    """A data home with small files of every format."""
    data = home / "data"
    files = {
        "glue/SST-2/train.tsv": "sentence\tlabel\n" + "".join(f'a "fine film {i}\t{i % 2}\n' for i in range(40)),
        "glue/SST-2/dev.tsv": "label\tcontent\n1\tgood\n0\tbad\n",
        "glue/SST-2/test.tsv": "index\tsentence\n0\twho knows\n",  # without labels
        "glue/CoLA/train.tsv": "gj\t1\t\tWe sleep.\n" * 3 + "gj\t0\t*\tSleep we the.\n",
        "glue/CoLA/val.tsv": "gj\t1\t\tIt rains.\n",
        "glue/CoLA/dev.tsv": "gj\t0\t*\tRains it it.\n",
        "glue/CoLA/test.tsv": "index\tsentence\n0\tBill left.\n",
        "glue/STS-B/train.tsv": "sentence1\tsentence2\tscore\nA dog.\tA cat.\t1.25\nA\tA\t5.000\n",
        "glue/STS-B/dev.tsv": "sentence1\tsentence2\tscore\nB\tC\t0.09\n",
        "glue/MRPC/msr_paraphrase_train.txt": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        + "".join(f"{i % 2}\t1\t2\tone {i}\tother {i}\n" for i in range(200)),
        "squad/dev-v1.1.json": json.dumps(
            {"data": [{"paragraphs": [{"context": "Denver won.", "qas": [
                {"id": "q1", "question": "Who won?", "answers": [{"text": "Denver"}, {"text": "Denver won"}]}]}]}]}
        ),
        "squad/train-v1.1.json": json.dumps(
            {"data": [{"paragraphs": [{"context": "It rained.", "qas": [
                {"id": "q0", "question": "What?", "answers": [{"text": "rained"}]}]}]}]}
        ),
    }  # fmt: skip
    for name, text in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(text)
    return tmp_path


def pairs(spec: str, split: str) -> list[tuple[str | None, str]]:
    return [(d.source, d.text) for d in open_parallel(spec).documents(split)]


def test_open_tasks_has_the_templates_of_t5(folder: Path) -> None:
    """Appendix D of the paper."""
    assert pairs("tasks:sst2", "valid") == [("sst2 sentence: good", "positive"), ("sst2 sentence: bad", "negative")]
    assert pairs("tasks:cola", "train")[-2:] == [
        ("cola sentence: Sleep we the.", "unacceptable"),
        ("cola sentence: It rains.", "acceptable"),  # both parts of train are joined
    ]
    assert pairs("tasks:stsb", "train") == [
        ("stsb sentence1: A dog. sentence2: A cat.", "1.2"),
        ("stsb sentence1: A sentence2: A", "5.0"),
    ]
    assert ("mrpc sentence1: one 1 sentence2: other 1", "equivalent") in pairs("tasks:mrpc", "train")
    assert pairs("tasks:squad", "valid") == [("question: Who won? context: Denver won.", "Denver")]
    member = open_parallel("tasks:squad").members[0]  # type: ignore[attr-defined]
    assert [answers for _, answers in member.examples("valid")] == [("Denver", "Denver won")]
    assert tasks()["mnli"].fill_templates({"premise": "p", "hypothesis": "h", "label": "neutral"}, "") == (
        "mnli hypothesis: h premise: p",
        "neutral",
    )
    assert tasks()["translate-en-de"].prefix == "translate English to German: "
    assert tasks()["summarize"].prefix == "summarize: "


def test_open_tasks_skips_unlabeled_splits(folder: Path) -> None:
    assert open_parallel("tasks:sst2").splits == ("train", "valid")
    assert open_parallel("tasks:cola").splits == ("train", "valid")
    corpus = open_parallel("tasks:mrpc")  # no dev file: part of train, without overlap
    assert corpus.splits == ("train", "valid")
    train, valid = (pairs("tasks:mrpc", split) for split in ("train", "valid"))
    assert len(train) + len(valid) == 200
    assert 0 < len(valid) < 30
    assert not set(train) & set(valid)
    member = corpus.members[0]  # type: ignore[attr-defined]
    assert [(d.source, d.text) for d, _ in member.examples("valid")] == valid


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.09, "0.0"),
        (0.1, "0.0"),
        (0.3, "0.4"),
        (0.5, "0.4"),
        (2.57, "2.6"),
        (3.8, "3.8"),
        (5.0, "5.0"),
        (-0.05, "0.0"),
    ],
)
def test_round_to_step_gives_one_of_few_texts(value: float, text: str) -> None:
    assert round_to_step(value, 0.2) == text


def test_is_tasks_recognizes_specs(folder: Path) -> None:
    assert all(map(is_tasks, ["tasks:sst2", "tasks:nonsense"]))
    assert is_parallel("tasks:sst2+cola,limit=10")
    corpus = open_parallel("tasks:sst2+cola")
    assert [m.task.name for m in corpus.members] == ["sst2", "cola"]  # type: ignore[attr-defined]
    assert len(list(corpus.documents("train"))) == 45
    assert list_prefixes("tasks:sst2+cola") == ("sst2 sentence: ", "cola sentence: ")
    prints = {open_parallel(f"tasks:{x}").fingerprint for x in ("sst2+cola", "sst2", "sst2+cola,equal", "cola+sst2")}
    assert len(prints) == 4


def test_open_own_tasks_of_a_file(folder: Path) -> None:
    lines = [{"text": f"long text {i}", "title": f"short {i}"} for i in range(300)]
    (folder / "my.jsonl").write_text("".join(json.dumps(item) + "\n" for item in lines))
    own = folder / "own.toml"
    own.write_text(
        'temperature = 2\n[[task]]\nname = "sst2"\nrate = 0.25\n'
        '[[task]]\nname = "headline"\nprefix = "headline: "\ndata = "my.jsonl:text-title"\nmetrics = "rouge1"\n'
    )
    corpus = open_parallel(str(own))
    assert corpus.mixing == Mixing(temperature=2.0, rates=(0.25, None))  # type: ignore[attr-defined]
    sources = [d.source for d in corpus.documents("valid")]
    assert sources[0] == "sst2 sentence: good"
    assert (sources[-1] or "").startswith("headline: long text")
    assert list_prefixes(str(own))[-1] == "headline: "
    other = open_parallel(f"tasks:summarize:{folder / 'my.jsonl'}:text-title")
    assert (next(other.documents("train")).source or "").startswith("summarize: long text")


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        ('[[task]]\nname = "nope"\n', UnknownName, {"name": "nope"}),
        ('[[task]]\nname = "sst2"\nweight = 3\n', UnknownName, {"name": "weight"}),
        ('[[task]]\nname = "sst2"\nrate = 1.5\n', InvalidSetting, {"key": "rate", "value": 1.5}),
        (
            '[[task]]\nname = "sst2"\nrate = 0.6\n[[task]]\nname = "cola"\nrate = 0.6\n',
            InvalidSetting,
            {"key": "rate", "value": (0.6, 0.6)},
        ),
        ('speed = 3\n[[task]]\nname = "sst2"\n', UnknownName, {"name": "speed"}),
        ("[[task]]\nname = \n", DataError, {}),
    ],
)
def test_open_bad_file_raises(folder: Path, text: str, kind: type[Exception], fields: dict[str, object]) -> None:
    (folder / "own.toml").write_text(text)
    with raises(kind, **fields):
        open_parallel(str(folder / "own.toml"))


@pytest.mark.parametrize(
    ("spec", "kind", "fields"),
    [
        ("tasks:sst-2", UnknownName, {"name": "sst-2"}),
        ("tasks:", UnknownName, {"name": ""}),
        ("tasks:sst2+sst2", InvalidSetting, {"value": "sst2"}),
        ("tasks:sst2,limit=0", InvalidSetting, {"key": "limit", "value": 0.0}),
        ("tasks:sst2,temperature=much", InvalidSetting, {"key": "temperature", "value": "much"}),
        ("tasks:sst2,sizes=3", UnknownName, {"name": "sizes"}),
        ("tasks:denoise", InvalidSetting, {"key": "data"}),
        ("tasks:qqp", MissingFile, {}),
    ],
)
def test_open_bad_spec_raises(folder: Path, spec: str, kind: type[Exception], fields: dict[str, object]) -> None:
    with raises(kind, **fields):
        open_parallel(spec)


@pytest.mark.parametrize(
    ("name", "text", "kind", "fields"),
    [
        ("SST-2/train.tsv", "label\tsentence\n2\tgood\n", UnknownName, {"name": "2", "known": ("0", "1")}),
        ("SST-2/train.tsv", "label\tsentence\n1\t\n", DataError, {}),
        ("SST-2/train.tsv", "label\tsentence\n1\n", DataError, {"line": 2}),
        ("SST-2/train.tsv", "label\tsentence\n", DataError, {}),
        ("STS-B/train.tsv", "sentence1\tsentence2\tscore\na\tb\thigh\n", DataError, {}),
    ],
)
def test_read_bad_row_raises(
    folder: Path, home: Path, name: str, text: str, kind: type[Exception], fields: dict[str, object]
) -> None:
    (home / "data/glue" / name).write_text(text)
    task = "sst2" if "SST" in name else "stsb"
    with raises(kind, **fields):
        pairs(f"tasks:{task}", "train")


# ------------------------------------------------------------------------------------------------ mixing


def test_mixing_shares_by_hand() -> None:
    """Section 3.5.2 of the paper: 400, 100, and 4,000 examples, limited to 1,000."""
    counts = [400, 100, 4000]
    assert Mixing(1000).shares(counts) == pytest.approx([400 / 1500, 100 / 1500, 1000 / 1500])
    assert Mixing(1000, math.inf).shares(counts) == pytest.approx([1 / 3] * 3)
    roots = [math.sqrt(x / 1500) for x in (400, 100, 1000)]
    assert Mixing(1000, 2.0).shares(counts) == pytest.approx([r / sum(roots) for r in roots])
    assert Mixing(1000, rates=(0.5, None, None)).shares(counts) == pytest.approx([0.5, 0.5 * 100 / 1100, 0.5 / 1.1])
    assert Mixing(rates=(0.2,)).shares([50]) == [1.0]


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 50), st.integers(0, 5))
def test_every_example_is_drawn_once_before_any_is_drawn_twice(total: int, quota: int, seed: int) -> None:
    drawn = np.concatenate([deal_examples(total, quota, [seed, 0], epoch) for epoch in range(6)])
    assert len(drawn) == 6 * quota
    for start in range(0, len(drawn), total):
        part = drawn[start : start + total]
        assert len(set(part.tolist())) == len(part)


def test_mixture_is_drawn_at_its_rates(folder: Path) -> None:
    (folder / "plain.txt").write_text(
        "".join(f"the cat sat on mat {i} and the dog ran after it all day long. " for i in range(400))
    )
    corpus = open_parallel(f"tasks:sst2+mrpc+denoise:{folder / 'plain.txt'},limit=100")
    texts = [t for d in corpus.documents("train") for t in (d.source or "", d.text)]
    tokenizer = train_tokenizer({"kind": "unigram", "size": 150, "sentinels": 20}, texts)
    text = prepare_parallel(corpus, "train", tokenizer)
    assert isinstance(text, Mixture)
    counts = [len(part) for part in text.parts]
    assert counts[:2] == [40, 200 - len(pairs("tasks:mrpc", "valid"))]
    assert text.rates == pytest.approx(Mixing(100).shares(counts))
    layout = Sequences(rows=5, length=60, overflow="truncate")
    fitted = layout.fitting(text)
    order = fitted.draw_order(np.random.default_rng(0), 3, 0)
    of = np.searchsorted(fitted.starts, order, side="right") - 1
    assert np.bincount(of).tolist() == list(fitted.quotas)
    assert fitted.quotas[:2] == (40, 100)
    for pack in (False, True):
        layout = Sequences(rows=5, length=60, overflow="truncate", pack=pack)
        batches = layout.batches(text, 3, 0)
        straight = [next(batches) for _ in range(layout.batches_per_epoch(text) + 3)]
        resumed = next(layout.batches(text, 3, len(straight) - 1))
        assert resumed.targets.equal(straight[-1].targets)
        assert resumed.inputs.source.ids.equal(straight[-1].inputs.source.ids)  # type: ignore[union-attr]
        sentinel = tokenizer.special["<extra_id_0>"]
        assert any((batch.targets == sentinel).any() for batch in straight)
    denoised = fitted.parts[2]
    a, b, c = denoised.pair(0, 0), denoised.pair(0, 1), denoised.pair(0, 0)
    assert a[0].tolist() == c[0].tolist() != b[0].tolist()  # new spans in every epoch
    held_out = prepare_tasks(corpus, "valid", tokenizer)
    assert sum(len(batch.targets) for batch in Sequences(length=60).validation_batches(held_out)) == len(
        held_out.for_validation(60)
    )


def test_prepare_pair_with_sentinel_in_the_text_raises(folder: Path, home: Path) -> None:
    (home / "data/glue/SST-2/dev.tsv").write_text("label\tsentence\n1\ta <extra_id_3> film\n")
    tokenizer = train_tokenizer({"kind": "unigram", "size": 60, "sentinels": 5}, ["a fine film", "positive"] * 20)
    with pytest.raises(NextwordError, match=r"dev\.tsv:line 2.*<extra_id_"):
        prepare_pairs(open_parallel("tasks:sst2"), "valid", tokenizer)
    plain = train_tokenizer({"kind": "bytes"}, [])
    assert len(prepare_pairs(open_parallel("tasks:sst2"), "valid", plain)) == 1  # a tokenizer without sentinels


def test_open_installed_tasks(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    counts = {
        name: [sum(1 for _ in corpus.documents(split)) for split in corpus.splits]
        for name in ("cola", "rte", "stsb", "squad", "summarize")
        if (corpus := open_parallel(f"tasks:{name}"))
    }
    assert counts["cola"] == [8551, 1043]
    assert counts["rte"] == [2490, 277]
    assert counts["stsb"] == [5749, 1500]
    assert counts["squad"][1] == 10570
    assert sum(counts["summarize"]) == 2225
