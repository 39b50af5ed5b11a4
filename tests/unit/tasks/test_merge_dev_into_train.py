"""Merging dev into train for a final training, which keeps the last weights."""

from pathlib import Path

import pytest

from nextword import tasks as transfer
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.tasks.base import DEV_IS_TRAINED_ON
from nextword.tasks.datasets.questions import QuestionDataset
from nextword.tasks.datasets.tagged import read_tags
from nextword.tasks.plan import make_plan
from nextword.tasks.text_data import read_one, read_text_data

SENTENCES = [("Anna sees Rome", "B-PER O B-LOC"), ("Rome sleeps", "B-LOC O"), ("Bo went home", "B-PER O O")]
LATE = ("Opel pays", "B-ORG O")  # a tag that only dev has


def write_tags(folder: Path) -> Path:
    folder.mkdir()
    for name, some in (("train", SENTENCES * 8), ("dev", [*SENTENCES, LATE]), ("test", SENTENCES)):
        rows = ("\n".join(f"{w} {t}" for w, t in zip(a.split(), b.split(), strict=True)) for a, b in some)
        (folder / f"{name}.conll").write_text("\n\n".join(rows) + "\n")
    return folder


def test_merge_dev_into_train_adds_tagged_sentences_and_labels(tmp_path: Path) -> None:
    before = read_tags(str(write_tags(tmp_path / "names")))
    after = before.merge_dev_into_train()
    assert after.splits["train"].sentences == [*before.splits["train"].sentences, *before.splits["dev"].sentences]
    assert after.splits["dev"] == before.splits["dev"]
    assert after.splits["test"] == before.splits["test"]
    assert "S-ORG" in before.unseen
    assert "S-ORG" in after.labels
    assert "S-ORG" not in after.unseen
    assert DEV_IS_TRAINED_ON in after.notes
    assert after.fingerprint != before.fingerprint


def test_merge_dev_into_train_works_for_texts_and_mixed_data_sets(tmp_path: Path) -> None:
    names = []
    for name in ("one", "two"):
        file = tmp_path / f"{name}.csv"
        file.write_text("text,label\n" + "".join(f"a text {i},{'good' if i % 2 else 'bad'}\n" for i in range(40)))
        names.append(str(file))
    before = read_one(names[0])
    after = before.merge_dev_into_train()
    assert len(after.splits["train"]) == 40 == len(before.splits["train"]) + len(before.splits["dev"])
    assert sorted(after.splits["train"].texts) == sorted(f"a text {i}" for i in range(40))
    both = read_text_data(" + ".join(names)).merge_dev_into_train()
    assert [len(item.splits["train"]) for item in both.sets] == [40, 40]


def test_merged_run_keeps_the_last_weights_and_resumes(tmp_path: Path) -> None:
    data = str(write_tags(tmp_path / "names"))
    changes = ["task.merge_dev_into_train=true", "phase.0.steps=6", "phase.0.validate_every=2", "phase.0.keep=best"]
    plan = make_plan("tagger/tiny", "", data, changes=changes, device="cpu")
    assert plan.recipe.phases[0].keep == "last"
    assert len(plan.examples["train"]) == 8 * 3 + 4
    outcome = transfer.run("tagger/tiny", "", data, tmp_path / "run", changes=changes, device="cpu")
    assert outcome.results[0]["examples"]["train"] == 28
    assert DEV_IS_TRAINED_ON in outcome.results[0]["notes"]
    again, _ = transfer.resume(tmp_path / "run", "cpu")
    assert len(again.examples["train"]) == 28
    assert again.fingerprint == plan.fingerprint


def test_merge_dev_with_incompatible_setting_raises(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as error:
        make_plan(
            "tagger/tiny",
            "",
            str(write_tags(tmp_path / "names")),
            changes=["task.merge_dev_into_train=1"],
            device="cpu",
        )
    assert error.value.key == "task.merge_dev_into_train"
    with pytest.raises(Unsupported, match="question_answering"):
        QuestionDataset("questions", {}).merge_dev_into_train()
