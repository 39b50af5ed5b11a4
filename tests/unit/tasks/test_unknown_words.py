"""Words that the vocabulary of a run lacks: counted, told with what helps, and kept in the result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nextword import tasks as transfer
from nextword.data.tables import Rows
from nextword.recipe import load_recipe
from nextword.tasks import unknown_words
from nextword.tasks.unknown_words import UnknownWords, count_unknown_words, note_unknown_words
from nextword.tasks.plan import make_plan
from nextword.tokenizers.ptb_words import Lexicon
from nextword.tokenizers.training import train_tokenizer
from nextword.tokenizers.words import Words
from tests.support.tiny_transfer import COLOURS, coloured, run_of, written

KNOWN = Words(["the", "film", "was"])


def counted(tokenizer: Any, *texts: str, network: Any = None) -> UnknownWords:
    found = count_unknown_words(network, tokenizer, texts)
    assert found is not None
    return found


# ------------------------------------------------------------------------------------------------ counting


def test_words_are_counted_and_line_ends_are_not() -> None:
    found = counted(KNOWN, "the zweiback was stale\n", "the zweiback\nwas", "")
    assert found.words == {"zweiback": 2, "stale": 1}
    assert (found.total, found.share) == (7, 3 / 7)


def test_what_was_unknown_before_is_not_missing() -> None:
    assert counted(KNOWN, "the <unk> was").share == 0
    assert counted(Lexicon(["the"]), "the <unk>").share == 0


def test_words_are_named_as_the_vocabulary_sees_them() -> None:
    assert counted(KNOWN, "The Film was.").words == {"The": 1, "Film": 1, "was.": 1}
    assert counted(Words(["the"], lower=True), "THE Film film").words == {"film": 2}
    assert counted(Lexicon(["the", "film", "."]), "The film: Süß, süß.").words == {"süß": 2, ":": 1, ",": 1}


def test_no_text_lacks_nothing() -> None:
    assert counted(KNOWN).share == counted(KNOWN, "", "\n").share == 0


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe", "classic-bpe", "wordpiece", "unigram"])
def test_pieces_of_words_cost_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = {} if kind in ("bytes", "characters") else {"size": 300}
    tokenizer = train_tokenizer({"kind": kind, **size}, ["the film was long"] * 9)
    monkeypatch.setattr(type(tokenizer), "encode_batch", None)  # nothing is tokenized for it
    assert count_unknown_words(None, tokenizer, ["zweiback ☃"]) is None


def test_networks_that_read_letters_lack_nothing() -> None:
    assert count_unknown_words(SimpleNamespace(spelled=None), KNOWN, ["zweiback"]) is None
    assert count_unknown_words(SimpleNamespace(longest=20), KNOWN, ["zweiback"]) is None


def test_some_of_many_texts_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_words, "MAX_TEXTS", 10)
    found = counted(KNOWN, *["the film", "was stale"] * 15)  # each third
    assert (found.seen, found.texts, found.words) == (10, 30, {"stale": 5})
    assert "of train are not in the vocabulary of runs/x (10 of 30 texts were looked at)" in found.told(
        " of train", "runs/x"
    )


def test_the_commonest_are_named_and_long_ones_cut() -> None:
    said = UnknownWords(Counter(a=9, b=8, c=7, d=6, e=5, f=4), 100, 1, 1).told("", "the run")
    assert said.startswith(
        "39.0 % of the words are not in the vocabulary of the run, and all of them are read as <unk>"
    )
    assert said.endswith("most often 'a', 'b', 'c', 'd', 'e'")
    assert f"'{'x' * 29}…'" in UnknownWords(Counter({"x" * 99: 1}), 1, 1, 1).told("", "")


# ------------------------------------------------------------------------------------------------ in a transfer


def table(path: Path, header: list[str], *rows: tuple[Any, ...]) -> Path:
    """These rows to learn from, and to check with."""
    every = [(*row, split) for split in ("train", "dev") for row in rows]
    return written(path, [*header, "split"], every)


def foreign(folder: Path, share: int = 2) -> Path:
    """Texts in which one word of so many is new."""
    rows = [(" ".join([colour] * (share - 1) + ["zebra"]), colour) for colour in COLOURS]
    return table(folder / "foreign.csv", ["review", "label"], *rows)


def notes(*given: Any, **more: Any) -> list[str]:
    return [one for one in make_plan(*given, device="cpu", **more).notes if "vocabulary" in one]


def test_a_run_that_knows_all_words(tmp_path: Path) -> None:
    data = str(written(tmp_path / "c.csv", ["text", "label"], coloured(60)))
    plan = make_plan("bert/finetune", run_of(tmp_path / "lstm", "lstm"), data, device="cpu")
    assert plan.unknown == 0
    assert not any("vocabulary" in note for note in plan.notes)


def test_what_is_told_and_what_helps(tmp_path: Path) -> None:
    run, data = run_of(tmp_path / "lstm", "lstm"), foreign(tmp_path)
    (note,) = notes("bert/finetune", run, str(data))
    assert note == (
        f"50.0 % of the words of train are not in the vocabulary of {run}, and all of them are read as <unk>, most "
        "often 'zebra': let the language model learn these texts and their words first, and transfer that: nextword "
        f"train {run}/recipe.toml --data {data}:review --set phase.0.init={run} "
        "--set \"tokenizer={kind='lexicon',size=60000}\""
    )


def test_clauses_without_spaces_are_no_words_to_be_learnt(tmp_path: Path) -> None:
    """A vocabulary of more such "words" would know none of the next text either."""
    rows = [("这家餐厅很好吃，服务热情", "a"), ("这家餐厅太差了，服务冷淡", "b")]
    data = table(tmp_path / "zh.csv", ["text", "label"], *rows)
    (note,) = notes("bert/finetune", run_of(tmp_path / "lstm", "lstm"), str(data))
    assert "no spaces between these words" in note
    assert note.endswith("--set \"tokenizer={kind='characters'}\"")
    assert counted(KNOWN, "the 天 film 今天 was 很好 zweiback").unspaced == 0


def test_from_five_per_cent_on(tmp_path: Path) -> None:
    run = run_of(tmp_path / "lstm", "lstm")
    for share, told in ((20, 0), (19, 1)):
        assert len(notes("bert/finetune", run, str(foreign(tmp_path, share)))) == told


@pytest.mark.parametrize("slug", ["bert", "roberta", "gpt1", "elmo"])
def test_others_lack_nothing(tmp_path: Path, slug: str) -> None:
    plan = make_plan("bert/finetune", run_of(tmp_path / slug, slug), str(foreign(tmp_path)), device="cpu")
    assert plan.unknown is None
    assert not any("vocabulary" in note for note in plan.notes)


def test_where_words_have_no_rows_another_run_helps(tmp_path: Path) -> None:
    data = str(foreign(tmp_path))
    classes = run_of(tmp_path / "classes", "lstm", readout={"kind": "classes"})
    source = run_of(tmp_path / "seq2seq", "seq2seq")
    for recipe, run in (("bert/finetune", classes), ("t5/finetune", source)):
        (note,) = notes(recipe, run, data)
        assert "'zebra': a run that was trained on texts like these has more of them, and one over pieces" in note


def test_pairs_tags_questions_and_candidates(tmp_path: Path) -> None:
    run = run_of(tmp_path / "lstm", "lstm")
    asked = [(f"the river {i}", "red king of zebra", "red") for i in range(4)]  # the passage is read once
    for folder in ("tags", "asked"):
        (tmp_path / folder).mkdir()
    for split in ("train", "dev"):
        (tmp_path / "tags" / f"{split}.conll").write_text("red A\nzebra B\n\n")
        written(tmp_path / "asked" / f"{split}.csv", ["question", "context", "answer"], asked)
    header = ["context", "choice0", "choice1", "label"]
    files = {
        "bert/finetune": table(
            tmp_path / "p.csv", ["text", "second", "label"], ("red", "blue zebra", "a"), ("red", "a", "b")
        ),
        "bert/choice": table(tmp_path / "c.csv", header, ("red king", "zebra", "blue", 0), ("red", "red", "blue", 1)),
        "bert/span": tmp_path / "asked",
        "bert/tag": tmp_path / "tags",
    }
    shares = {recipe: make_plan(recipe, run, str(file), device="cpu").unknown for recipe, file in files.items()}
    assert shares == {"bert/finetune": 0.2, "bert/choice": 0.1429, "bert/span": 0.3125, "bert/tag": 0.5}
    both = f"{files['bert/finetune']} + {foreign(tmp_path)}"
    assert make_plan("bert/finetune", run, both, device="cpu").unknown == round(3 / 9, 4)


def test_it_is_kept_in_the_run(tmp_path: Path) -> None:
    run, data = run_of(tmp_path / "lstm", "lstm"), foreign(tmp_path)
    given = {"changes": ["phase.0.steps=1"], "device": "cpu"}
    result = transfer.run("bert/finetune", run, str(data), tmp_path / "out", **given).results[0]
    assert result["unknown"] == 0.5
    assert any("most often 'zebra'" in note for note in result["notes"])
    assert "50.0 % of the words of train are not in the vocabulary" in (tmp_path / "out" / "report.html").read_text()
    without = transfer.run("bert/finetune", run_of(tmp_path / "bert"), str(data), tmp_path / "b", **given).results[0]
    assert "unknown" not in without


# ------------------------------------------------------------------------------------------------ ULMFiT's own recipe


def command(theirs: str, words: dict[str, int], *changes: str) -> str:
    found = UnknownWords(Counter(words), 100, 1, 1)
    return unknown_words._command(found, "runs/x", load_recipe(theirs, changes), "reviews.csv")


def test_a_paper_that_goes_on_with_a_run_has_a_recipe_for_it() -> None:
    begin = "--data reviews.csv --set phase.0.init=runs/x"
    assert command("ulmfit/pretrain", {"film": 9}) == f"nextword train ulmfit/lm {begin}"
    assert command("ulmfit/tiny", {"film": 9}) == f"nextword train ulmfit/tiny-lm {begin}"
    back = command("ulmfit/pretrain", {"film": 9}, "model.backward=true", "model.width=1150")
    assert back == f"nextword train ulmfit/lm {begin} --set model.width=1150 --set model.backward=true"


def test_rare_words_are_kept_where_they_are_what_is_missing() -> None:
    least = load_recipe("ulmfit/lm").tokenizer["min_count"]
    rare, common = ({f"w{i}": n for i in range(6)} for n in (least - 1, least))
    assert command("ulmfit/pretrain", rare).endswith("--set tokenizer.min_count=1")
    assert "min_count" not in command("ulmfit/pretrain", common)


def test_every_phase_of_a_run_reads_the_texts() -> None:
    said = command("awd-lstm/ptb", {"film": 9})
    assert said.startswith(
        "nextword train runs/x/recipe.toml --data train=reviews.csv --data finetune=reviews.csv --set phase.0.init"
    )


# ------------------------------------------------------------------------------------------------ predictions


def test_texts_to_be_labelled() -> None:
    model = SimpleNamespace(tokenizer=KNOWN, network=None)
    assert note_unknown_words(model, Rows(["the film was stale", "the"])) == []  # a fifth
    (note,) = note_unknown_words(model, Rows(["the film"], ["was stale"]))
    assert note.endswith("most often 'stale': what is predicted rests on the others")
    assert note_unknown_words(SimpleNamespace(models=(model, None)), Rows(["stale"])) != []
    assert note_unknown_words(SimpleNamespace(lm=model), Rows(["stale"])) != []
