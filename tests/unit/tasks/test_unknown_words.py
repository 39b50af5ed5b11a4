"""Unknown words in the texts of a task: counts, notes with advice, and their share in the result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nextword import tasks as transfer
from nextword.recipe import load_recipe
from nextword.tasks import unknown_words
from nextword.tasks.plan import make_plan
from nextword.tasks.unknown_words import UnknownWords, count_unknown_words, unknown_word_notes
from nextword.tokenizers.ptb_words import Lexicon
from nextword.tokenizers.training import train_tokenizer
from nextword.tokenizers.words import Words
from tests.support.tiny_transfer import COLORS, draw_color_texts, make_run, write_table

KNOWN = Words(["the", "film", "was"])


def count(tokenizer: Any, *texts: str) -> UnknownWords:
    unknown = count_unknown_words(None, tokenizer, texts)
    assert unknown is not None
    return unknown


# ------------------------------------------------------------------------------------------------ counting


def test_count_skips_line_ends() -> None:
    unknown = count(KNOWN, "the zweiback was stale\n", "the zweiback\nwas", "")
    assert unknown.words == {"zweiback": 2, "stale": 1}
    assert (unknown.total, unknown.share) == (7, 3 / 7)


def test_count_skips_literal_unk() -> None:
    assert count(KNOWN, "the <unk> was").share == 0
    assert count(Lexicon(["the"]), "the <unk>").share == 0


def test_count_normalizes_words_as_the_vocabulary() -> None:
    assert count(KNOWN, "The Film was.").words == {"The": 1, "Film": 1, "was.": 1}
    assert count(Words(["the"], lower=True), "THE Film film").words == {"film": 2}
    assert count(Lexicon(["the", "film", "."]), "The film: Süß, süß.").words == {"süß": 2, ":": 1, ",": 1}


def test_count_of_empty_texts_is_zero() -> None:
    assert count(KNOWN).share == count(KNOWN, "", "\n").share == 0


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe", "classic-bpe", "wordpiece", "unigram"])
def test_count_with_subword_tokenizer_returns_none_without_tokenizing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = {} if kind in ("bytes", "characters") else {"size": 300}
    tokenizer = train_tokenizer({"kind": kind, **size}, ["the film was long"] * 9)
    monkeypatch.setattr(type(tokenizer), "encode_batch", None)  # nothing is tokenized
    assert count_unknown_words(None, tokenizer, ["zweiback ☃"]) is None


def test_count_with_character_network_returns_none() -> None:
    for flags in ((True, 0), (False, 20)):
        network = SimpleNamespace(is_open_vocabulary=flags[0], max_characters=flags[1])
        assert count_unknown_words(network, KNOWN, ["zweiback"]) is None


def test_count_of_many_texts_samples_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_words, "MAX_TEXTS", 10)
    unknown = count(KNOWN, *["the film", "was stale"] * 15)  # every third text
    assert (unknown.seen, unknown.texts, unknown.words) == (10, 30, {"stale": 5})
    assert "10 of 30" in unknown.describe(" of train", "runs/x")


def test_describe_names_common_words_and_truncates_long_words() -> None:
    text = UnknownWords(Counter(a=9, b=8, c=7, d=6, e=5, f=4), 100, 1, 1).describe("", "the run")
    assert text.startswith("39.0 %")
    assert text.endswith("'a', 'b', 'c', 'd', 'e'")
    assert f"'{'x' * 29}…'" in UnknownWords(Counter({"x" * 99: 1}), 1, 1, 1).describe("", "")


# ------------------------------------------------------------------------------------------------ in a transfer


def write_splits(path: Path, header: list[str], *rows: tuple[Any, ...]) -> Path:
    """Write the rows as both train and dev."""
    every = [(*row, split) for split in ("train", "dev") for row in rows]
    return write_table(path, [*header, "split"], every)


def write_unknown_words(folder: Path, share: int = 2) -> Path:
    """Write texts in which one word of `share` is unknown."""
    rows = [(" ".join([color] * (share - 1) + ["zebra"]), color) for color in COLORS]
    return write_splits(folder / "foreign.csv", ["review", "label"], *rows)


def list_notes(*given: Any, **more: Any) -> list[str]:
    return [note for note in make_plan(*given, device="cpu", **more).notes if "vocabulary" in note]


def test_run_without_unknown_words_gets_no_note(tmp_path: Path) -> None:
    data = str(write_table(tmp_path / "c.csv", ["text", "label"], draw_color_texts(60)))
    plan = make_plan("bert/finetune", make_run(tmp_path / "lstm", "lstm"), data, device="cpu")
    assert plan.unknown == 0
    assert not any("vocabulary" in note for note in plan.notes)


def test_note_gives_the_command_that_adapts_the_language_model(tmp_path: Path) -> None:
    run, data = make_run(tmp_path / "lstm", "lstm"), write_unknown_words(tmp_path)
    (note,) = list_notes("bert/finetune", run, str(data))
    assert note.startswith("50.0 %")
    assert f" {run} " in note
    assert "'zebra'" in note
    assert note.endswith(
        f"nextword train {run}/recipe.toml --data {data}:review --set phase.0.init_from={run} "
        "--set \"tokenizer={kind='lexicon',size=60000}\""
    )


def test_run_trained_on_these_texts_is_advised_to_use_subwords(tmp_path: Path) -> None:
    """The advice to train on these texts would repeat what the user has done."""
    data = write_unknown_words(tmp_path)
    run = Path(make_run(tmp_path / "lstm", "lstm"))
    recipe = run / "recipe.toml"
    for source in (data, f"{data}:review"):
        lines = [f'data = "{source}"' if "data =" in line else line for line in recipe.read_text().splitlines()]
        recipe.write_text("\n".join(lines) + "\n")
        (note,) = list_notes("bert/finetune", str(run), str(data))
        assert note.endswith("--set \"tokenizer={kind='bpe',size=8000}\"")
        assert "init_from" not in note


def test_scripts_without_spaces_are_advised_to_use_characters(tmp_path: Path) -> None:
    """Without spaces, words are clauses, which a larger vocabulary would not cover either."""
    rows = [("这家餐厅很好吃，服务热情", "a"), ("这家餐厅太差了，服务冷淡", "b")]
    data = write_splits(tmp_path / "zh.csv", ["text", "label"], *rows)
    (note,) = list_notes("bert/finetune", make_run(tmp_path / "lstm", "lstm"), str(data))
    assert note.endswith("--set \"tokenizer={kind='characters'}\"")
    assert count(KNOWN, "the 天 film 今天 was 很好 zweiback").unspaced == 0


def test_note_appears_above_five_percent(tmp_path: Path) -> None:
    run = make_run(tmp_path / "lstm", "lstm")
    for share, expected in ((20, 0), (19, 1)):
        assert len(list_notes("bert/finetune", run, str(write_unknown_words(tmp_path, share)))) == expected


@pytest.mark.parametrize("slug", ["bert", "roberta", "gpt1", "elmo"])
def test_subword_and_character_models_are_not_checked(tmp_path: Path, slug: str) -> None:
    plan = make_plan("bert/finetune", make_run(tmp_path / slug, slug), str(write_unknown_words(tmp_path)), device="cpu")
    assert plan.unknown is None
    assert not any("vocabulary" in note for note in plan.notes)


def test_networks_without_word_embeddings_are_advised_to_use_another_run(tmp_path: Path) -> None:
    data = str(write_unknown_words(tmp_path))
    classes = make_run(tmp_path / "classes", "lstm", readout={"kind": "classes"})
    source = make_run(tmp_path / "seq2seq", "seq2seq")
    for recipe, run in (("bert/finetune", classes), ("t5/finetune", source)):
        (note,) = list_notes(recipe, run, data)
        assert "'zebra'" in note
        assert "nextword train" not in note


def test_unknown_words_of_every_task_kind_are_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "lstm", "lstm")
    inputs = [(f"the river {i}", "red king of zebra", "red") for i in range(4)]  # the passage counts once
    for folder in ("tags", "asked"):
        (tmp_path / folder).mkdir()
    for split in ("train", "dev"):
        (tmp_path / "tags" / f"{split}.conll").write_text("red A\nzebra B\n\n")
        write_table(tmp_path / "asked" / f"{split}.csv", ["question", "context", "answer"], inputs)
    header = ["context", "choice0", "choice1", "label"]
    files = {
        "bert/finetune": write_splits(
            tmp_path / "p.csv", ["text", "second", "label"], ("red", "blue zebra", "a"), ("red", "a", "b")
        ),
        "bert/choice": write_splits(
            tmp_path / "c.csv", header, ("red king", "zebra", "blue", 0), ("red", "red", "blue", 1)
        ),
        "bert/span": tmp_path / "asked",
        "bert/tag": tmp_path / "tags",
    }
    shares = {recipe: make_plan(recipe, run, str(file), device="cpu").unknown for recipe, file in files.items()}
    assert shares == {"bert/finetune": 0.2, "bert/choice": 0.1429, "bert/span": 0.3125, "bert/tag": 0.5}
    both = f"{files['bert/finetune']} + {write_unknown_words(tmp_path)}"
    assert make_plan("bert/finetune", run, both, device="cpu").unknown == round(3 / 9, 4)


def test_unknown_share_is_in_result_and_report(tmp_path: Path) -> None:
    run, data = make_run(tmp_path / "lstm", "lstm"), write_unknown_words(tmp_path)
    given = {"changes": ["phase.0.steps=1"], "device": "cpu"}
    result = transfer.run("bert/finetune", run, str(data), tmp_path / "out", **given).results[0]
    assert result["unknown"] == 0.5
    assert any("'zebra'" in note for note in result["notes"])
    assert "50.0 % of the words of train" in (tmp_path / "out" / "report.html").read_text()
    without = transfer.run("bert/finetune", make_run(tmp_path / "bert"), str(data), tmp_path / "b", **given).results[0]
    assert "unknown" not in without


# ------------------------------------------------------------------------------------------------ ULMFiT's own recipe


def make_command(theirs: str, words: dict[str, int], *changes: str) -> str:
    unknown = UnknownWords(Counter(words), 100, 1, 1)
    return unknown_words._adaptation_command(unknown, "runs/x", load_recipe(theirs, changes), "reviews.csv")


def test_adaptation_command_uses_the_recipe_of_the_run() -> None:
    begin = "--data reviews.csv --set phase.0.init_from=runs/x"
    assert make_command("ulmfit/pretrain", {"film": 9}) == f"nextword train ulmfit/lm {begin}"
    assert make_command("ulmfit/tiny", {"film": 9}) == f"nextword train ulmfit/tiny-lm {begin}"
    back = make_command("ulmfit/pretrain", {"film": 9}, "model.backward=true", "model.width=1150")
    assert back == f"nextword train ulmfit/lm {begin} --set model.width=1150 --set model.backward=true"


def test_adaptation_command_keeps_rare_words_if_unknown_words_are_rare() -> None:
    least = load_recipe("ulmfit/lm").tokenizer["min_count"]
    rare, common = ({f"w{i}": n for i in range(6)} for n in (least - 1, least))
    assert make_command("ulmfit/pretrain", rare).endswith("--set tokenizer.min_count=1")
    assert "min_count" not in make_command("ulmfit/pretrain", common)


def test_adaptation_command_passes_the_texts_to_every_phase() -> None:
    assert make_command("awd-lstm/ptb", {"film": 9}).startswith(
        "nextword train runs/x/recipe.toml --data train=reviews.csv --data finetune=reviews.csv --set phase.0.init_from"
    )


# ------------------------------------------------------------------------------------------------ predictions


def test_prediction_note_appears_above_twenty_percent() -> None:
    model = SimpleNamespace(tokenizer=KNOWN, network=None)
    assert unknown_word_notes(model, ["the film was stale", "the"]) == []  # a fifth
    (note,) = unknown_word_notes(model, ["the film", "was stale"], " of the query")
    assert "'stale'" in note
    assert " of the query " in note
