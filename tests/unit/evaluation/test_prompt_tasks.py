"""Examples of prompt tasks, read from the official files or generated."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextword.core.errors import DataError, MissingFile
from nextword.evaluation.few_shot import Question, make_question
from nextword.evaluation.prompt_tasks import arithmetic_examples, load_task, read_examples, task_names


def test_read_examples_of_story_cloze(tmp_path: Path) -> None:
    sentences = ",".join(f"InputSentence{i}" for i in (1, 2, 3, 4))
    header = f"InputStoryid,{sentences},RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding\n"
    row = '7,Ann baked.,"It was late, and dark.","She said ""go"".",Bo ate.,Bo was full.,Bo was a car.,{}\n'
    for split, name in (("test", "test"), ("val", "val")):
        file = tmp_path / f"cloze_test_{split}__spring2016 - cloze_test_ALL_{name}.csv"
        file.write_text(header + row.format(1) + row.format(2))
    task = load_task("story-cloze")
    first, second = (make_question(task, one) for one in read_examples(task, "test", tmp_path))
    assert first.context == 'Ann baked. It was late, and dark. She said "go". Bo ate.'
    assert first.choices == (" Bo was full.", " Bo was a car.")
    assert (first.gold, second.gold) == (0, 1)
    assert len(read_examples(task, "valid", tmp_path)) == 2


def test_read_examples_of_glue_splits_only_at_tabs(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text('index\tsentence1\tsentence2\tlabel\n0\tHe said "no.\tHe spoke.\tentailment\n')
    (tmp_path / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    task = load_task("rte")
    (one,) = read_examples(task, "valid", tmp_path)
    asked = make_question(task, one)
    assert asked.context == 'He said "no.\nquestion: He spoke. True or False?\nanswer:'
    assert asked.answer == " True"
    with pytest.raises(DataError, match="'label'") as error:
        read_examples(task, "test", tmp_path)
    assert error.value.path == str(tmp_path / "test.tsv")


def test_read_examples_of_cola_and_sst_in_both_formats(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("gj04\t0\t*\tHim sleeps.\ngj04\t1\t\tHe sleeps.\n")
    assert [e["label"] for e in read_examples(load_task("cola"), "valid", tmp_path)] == ["0", "1"]
    (tmp_path / "stsa.binary.dev").write_text("0 dull .\n1 a joy .\n")
    (tmp_path / "train.tsv").write_text("sentence\tlabel\nso so\t1\n")
    assert read_examples(load_task("sst-2"), "valid", tmp_path)[1] == {"sentence": "a joy .", "label": "1"}
    assert read_examples(load_task("sst-2"), "train", tmp_path) == [{"sentence": "so so", "label": "1"}]


def test_read_examples_of_lambada_splits_before_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "lambada_test_plain_text.txt").write_text("he went to the door\n\nalone\n")
    task = load_task("lambada")
    (one,) = read_examples(task, "test", tmp_path)
    assert make_question(task, one) == Question("he went to the", (" door",))


def test_read_examples_of_parallel_files_of_unequal_length_fails(tmp_path: Path) -> None:
    (tmp_path / "test_2016_flickr.en").write_text("A dog.\nA cat.\n")
    (tmp_path / "test_2016_flickr.de").write_text("Ein Hund.\nEine Katze.\n")
    task = load_task("multi30k")
    assert make_question(task, read_examples(task, "test", tmp_path)[1]).solved == "A cat. = Eine Katze."
    (tmp_path / "test_2016_flickr.de").write_text("Ein Hund.\n")
    with pytest.raises(DataError) as error:
        read_examples(task, "test", tmp_path)
    assert error.value.line == 2


def test_read_examples_of_missing_data_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="nextword data story-cloze --install PATH"):
        read_examples(load_task("story-cloze"), "test")
    with pytest.raises(MissingFile, match=r"dev\.tsv") as error:
        read_examples(load_task("rte"), "valid", tmp_path)
    assert error.value.path == str(tmp_path)


@pytest.mark.parametrize("name", [n for n in task_names() if n.startswith("arithmetic")])
def test_arithmetic_examples_are_right_reproducible_and_disjoint(name: str) -> None:
    task = load_task(name)
    asked, pool = arithmetic_examples("test", task.options), arithmetic_examples("train", task.options)
    assert asked == arithmetic_examples("test", task.options)
    assert len(asked) == 2000
    assert len(pool) > 40
    assert not {one["sum"] for one in asked} & {one["sum"] for one in pool}
    for one in asked[:200]:
        spelled = one["sum"].replace("plus", "+").replace("minus", "-").replace("times", "*")
        assert eval(spelled) == int(one["result"])
        assert all(
            len(number) <= task.options["digits"]
            for number in spelled.translate({ord(c): " " for c in "+-*()"}).split()
        )
