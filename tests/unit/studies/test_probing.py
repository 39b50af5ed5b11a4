from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.examples import UnknownWords
from nextword.core.errors import Unsupported
from nextword.data.opening import open_corpus
from nextword.lm.loading import wrap_network
from nextword.models.elmo import ELMo, ELMoConfig
from nextword.studies import _experiment, find_study, run_study
from nextword.studies import probing as study
from nextword.studies._labeled_words import CASE, SENSES, TAGS, TREEBANK, Question
from nextword.studies._probes import Hits, LabeledPieces, ProbeTask, encode_labeled, word_vectors
from nextword.studies._report import write
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Finding, Settings, Table, overall_verdict
from nextword.studies._transformers import Size, encode_corpus, train_bert, train_gpt2
from nextword.tokenizers import vocabulary
from nextword.tokenizers.ptb_words import Lexicon
from tests.support.study_tables import read_tables, verdicts

# ------------------------------------------------------------------------------------------------ intervals


def test_bootstrap_draws_sentences_and_pairs_layers() -> None:
    is_easy = np.random.default_rng(0).random(400) < 0.8  # all words of a sentence are right, or none
    hits = np.repeat(is_easy, 5)
    sums = study.sum_by_sentence([np.stack([hits, hits, np.ones(2000, bool)])], np.repeat(np.arange(400), 5))
    assert sums.accuracy()[0].tolist() == pytest.approx([100 * is_easy.mean()] * 2 + [100])
    draws = study.bootstrap_accuracy([sums], 0)
    assert (draws[:, 0] == draws[:, 1]).all()
    assert (draws[:, 2] == 100).all()
    assert draws[:, 0].std() == pytest.approx(100 * is_easy.std() / 20, rel=0.1)  # 400 sentences, not 2000 words


def test_senses_are_averaged_over_words_not_contexts() -> None:
    large = study.sum_by_sentence([np.ones((1, 90), bool)], np.arange(90))
    small = study.sum_by_sentence([np.zeros((1, 10), bool)], np.arange(10))
    assert study.bootstrap_accuracy([large, small], 0).mean() == pytest.approx(50)


def test_interval_is_the_wider_of_text_and_seeds() -> None:
    draws = np.linspace(-1, 1, 1001)
    assert study.interval_of(0.0, np.array([0.0]), draws, single_network=True) == pytest.approx([0, -0.95, 0.95])
    assert study.interval_of(0.0, np.array([0.0]), draws, single_network=False) == [0.0, -math.inf, math.inf]
    assert study.interval_of(0.0, np.array([0.0, 0.0]), draws, False) == pytest.approx([0, -0.95, 0.95])
    assert study.interval_of(0.0, np.array([-3.0, 3.0]), draws, False)[2] == pytest.approx(12.71 * 3, rel=1e-6)


# ------------------------------------------------------------------------------------------------ verdicts


def make_tables(tags: list[float], senses: list[float], seeds: int = 1) -> dict[str, Table]:
    """Random hits with this accuracy in each layer, for 600 sentences of four words and 2 × 600 contexts."""
    draw = np.random.default_rng(0)

    def pieces(n: int, each: int) -> LabeledPieces:
        return LabeledPieces([], [], np.zeros(n * each, np.int64), np.repeat(np.arange(n), each))

    def hits(accuracy: list[float], n: int) -> Hits:
        return Hits(*(draw.random((len(accuracy), n)) < np.array(accuracy)[:, None] for _ in range(2)))

    part, context = pieces(600, 4), pieces(600, 1)
    tasks = [ProbeTask(TAGS, "", 2, part, part, part)]
    tasks += [ProbeTask(SENSES, word, 2, context, context, context) for word in ("hard", "line")]
    questions = [Question(task.task, task.word, *[[(["a"], ["x"])]] * 3) for task in tasks]
    results = [[hits(tags, 2400), hits(senses, 600), hits(senses, 600)] for _ in range(seeds)]
    return study.make_tables({"net": results}, tasks, questions, single_network=seeds == 1)


RISING, FALLING, LEVEL = [0.5, 0.6, 0.7, 0.8, 0.9], [0.5, 0.9, 0.8, 0.7, 0.6], [0.5, 0.7, 0.7, 0.7, 0.7]


@pytest.mark.parametrize(
    ("tags", "senses", "expected", "parts"),
    [
        (FALLING, RISING, HOLDS, [HOLDS, HOLDS, HOLDS, HOLDS, HOLDS]),
        (RISING, FALLING, FAILS, [FAILS, HOLDS, HOLDS, FAILS, FAILS]),
        (RISING, RISING, FAILS, [FAILS, UNDECIDED, UNDECIDED, FAILS, HOLDS]),
        (LEVEL, LEVEL, UNDECIDED, [UNDECIDED, UNDECIDED, UNDECIDED, UNDECIDED, UNDECIDED]),
    ],
)
@pytest.mark.parametrize("seeds", [1, 3])
def test_verdict_follows_the_layers(
    tags: list[float], senses: list[float], expected: str, parts: list[str], seeds: int
) -> None:
    tables = make_tables(tags, senses, seeds)
    result = study.judge(tables)
    assert verdicts(result[:5]) == parts
    assert [part.decides for part in result] == [True] * 3 + [False] * 5
    assert overall_verdict(result) == expected
    assert tables["layers"].cell(TAGS, network="net", layer=2)[0] == pytest.approx(100 * tags[2], abs=3)
    assert tables["words"].cell("line", network="net", layer=4) == pytest.approx(100 * senses[4], abs=6)


def test_best_layers_are_from_validation_and_differences_from_test_text() -> None:
    tables = make_tables(FALLING, RISING)
    differences = tables["differences"]
    assert [cell[0] for cell in tables["best"].rows[0][1:]] == [1, 4, 3]
    assert differences.cell(TAGS, minus=study.OTHER)[0] == pytest.approx(30, abs=3)
    assert differences.cell(SENSES, minus=study.OTHER)[0] == pytest.approx(30, abs=5)
    assert differences.cell(SENSES, minus=study.EMBEDDING)[0] == pytest.approx(40, abs=5)
    assert differences.cell(SENSES, minus=study.LAST) == [0, 0, 0]
    assert differences.cell(TAGS, minus=study.COMMON)[0] == pytest.approx(-10, abs=3)  # all labels are equal here
    mean, low, high = tables["halves"].cell(TAGS)
    assert low < 20 < high
    assert mean == pytest.approx(20, abs=3)


@pytest.mark.parametrize("seeds", [1, 3])
def test_interval_of_the_best_layer_stays_within_the_network(seeds: int) -> None:
    *best, apart = make_tables(LEVEL, LEVEL, seeds)["best"].rows[0][1:]
    assert all(0 <= low <= middle <= high <= 4 for middle, low, high in best)
    assert -4 <= apart[1] <= apart[2] <= 4


def test_missing_data_leaves_the_claim_undecided() -> None:
    tables = make_tables(FALLING, RISING)

    def only_tags(name: str) -> dict[str, Table]:
        result = {}
        for key, table in tables.items():
            keep = [i for i, column in enumerate(table.columns) if column != SENSES]
            rows = tuple(tuple(row[i] for i in keep) for row in table.rows if row[1] != study.OTHER)
            columns = tuple(name if table.columns[i] == TAGS else table.columns[i] for i in keep)
            result[key] = Table("", columns, rows)
        return result

    parts = study.judge(only_tags(TAGS))
    assert (parts[0].verdict, overall_verdict(parts)) == (UNDECIDED, UNDECIDED)
    assert "senseval.zip" in parts[0].evidence
    parts = study.judge(only_tags(CASE))
    assert [TREEBANK in parts[0].evidence, "senseval.zip" in parts[1].evidence] == [True, True]
    assert [part.decides for part in parts] == [True, True, False]


# ------------------------------------------------------------------------------------------------ small runs

TINY = Size(width=16, layers=2, heads=2, rows=4, length=16, steps=4)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A made-up treebank of thirty sentences in three splits, and two words with two senses each."""
    treebank, nltk = tmp_path / TREEBANK, tmp_path / "nltk"
    treebank.mkdir()
    nltk.mkdir()
    for split in ("train", "dev", "test"):
        sentences = [
            "".join(f"{n}\t{w}\t_\t{t}\n" for n, w, t in ((1, "The", "DET"), (2, f"list{i}", "NOUN")))
            for i in range(30)
        ]
        (treebank / f"en_ewt-ud-{split}.conllu").write_text("\n".join(sentences))
    with zipfile.ZipFile(nltk / "senseval.zip", "w") as archive:
        for word in ("hard", "line"):
            instances = "".join(
                f'<instance id="{i}"><answer senseid="{i % 2}"/><context><wf>a{i}</wf> <head><wf>{word}</wf></head> '
                "</context></instance>"
                for i in range(60)
            )
            archive.writestr(f"senseval/{word}.pos", f"<corpus>{instances}</corpus>")
    monkeypatch.setenv("NEXTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    monkeypatch.setattr(_experiment, "num_cores", lambda: 1)
    monkeypatch.setattr(study, "QUICK", TINY)
    monkeypatch.setattr(study, "PIECES", 300)
    monkeypatch.setattr(study.stats, "DRAWS", 50)


def run_probing(settings: Settings) -> Finding:
    torch.manual_seed(7)
    finding = run_study("probing", settings)
    assert torch.equal(torch.rand(3), torch.manual_seed(7) and torch.rand(3))
    return finding


@pytest.mark.usefixtures("small")
def test_small_run_writes_files_that_reproduce_the_parts(tmp_path: Path) -> None:
    finding = run_probing(Settings(quick=True, seeds=(0, 1), data="python"))
    assert {"data", "networks", "training", "words", "probes", "intervals"} <= set(finding.conditions)
    assert finding.tables["layers"].columns == ("network", "layer", TAGS, SENSES)
    assert finding.tables["layers"].column("layer") == [0, 1, 2] * 2
    assert finding.tables["words"].columns[2:] == ("hard", "line")
    assert len(finding.parts) == 16
    files = write(finding, find_study("probing"), tmp_path / "looks")
    assert all(file.stat().st_size for file in files)
    assert tuple(study.judge(read_tables(tmp_path / "looks"))) == finding.parts


@pytest.mark.usefixtures("small")
def test_without_data_capitalization_is_probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path / "none"))
    monkeypatch.setattr(study, "COUNTS", {"quick": ((40, 20, 20), (9, 9, 9))})
    monkeypatch.setattr(study, "MIN_SENTENCES", 10)
    finding = run_probing(Settings(quick=True, seeds=(0,), data="python"))
    assert finding.tables["layers"].columns == ("network", "layer", CASE)
    assert finding.verdict == UNDECIDED
    assert {"no treebank", "no senses"} <= set(finding.conditions)
    write(finding, find_study("probing"), tmp_path / "looks")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("train", [train_bert, train_gpt2])
def test_run_is_probed_with_intervals_over_the_text(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text, tokenizer = encode_corpus(open_corpus("python"), 300)
    with _experiment.isolated():
        network = train(0, TINY, text)
    model = wrap_network(network, tokenizer)
    monkeypatch.setattr(study, "load", lambda run: model)
    done: list[float] = []
    settings = Settings(quick=True, data="python", run="runs/mine")
    tables, conditions = study.measure(settings, lambda a, b: done.append(a / b))
    assert tables["layers"].column("network") == ["mine"] * 3
    assert all(math.isfinite(low) for _, low, _ in tables["layers"].column(SENSES))
    assert done == sorted(done)
    assert done[-1] == 1
    assert "the run mine" in conditions["data"]


@pytest.mark.usefixtures("small")
def test_run_that_reads_letters_is_probed_word_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown words differ by their letters: "list1" and "list2" are not one unknown word."""
    torch.manual_seed(0)
    tokenizer = Lexicon(["the", "hard"], lower=False)
    letters = {"filters": [[1, 8], [2, 8]], "character_width": 4, "highway": 1, "max_word_length": 12}
    network = ELMo(ELMoConfig(width=8, cell_size=8, characters=letters), vocabulary(tokenizer, spellings=True)).eval()
    model: Any = wrap_network(network, tokenizer)
    monkeypatch.setattr(study, "load", lambda run: model)
    tables, conditions = study.measure(Settings(quick=True, data="python", run="runs/elmo"), lambda a, b: None)
    assert tables["layers"].column("layer") == [0, 1, 2]
    assert tables["halves"].column("network") == ["elmo"]
    assert "letter by letter" in conditions["data"]
    words = [["The", "list1", "list2"], ["The", "list3", "The"]]
    unknown = UnknownWords(network, tokenizer)
    pieces = encode_labeled([(w, ["a"] * 3) for w in words], {"a": 0}, tokenizer, 64, unknown)
    assert [len(window) for window in pieces.windows] == [3, 3]
    vectors = word_vectors(network, pieces, [0, 2], unknown=unknown)
    for i, layer in enumerate((0, 2)):
        expected = torch.cat([text.vectors for text in model.embed_words(words, layer)])
        torch.testing.assert_close(vectors[i], expected)


@pytest.mark.usefixtures("small")
def test_model_without_vectors_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts:
        can = frozenset({"score"})

    monkeypatch.setattr(study, "load", lambda run: Counts())
    with pytest.raises(Unsupported) as caught:
        study.measure(Settings(data="python", quick=True, run="runs/counts"), lambda done, total: None)
    assert caught.value.ability == "embed"
