"""Official files imported into the data home read the same as in their original folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextword.core.errors import DataError
from nextword.data.catalog import install
from nextword.tasks.datasets.catalog import BENCHMARKS, catalog_entry
from nextword.tasks.text_data import read_one
from tests.support.glue_samples import SAMPLES

MORE = {  # files that belong to no split, or come from the authors of a data set
    "CoLA": {"val.tsv": "gj04\t1\t\tOne more.\n"},
    "WNLI": {"val.tsv": "7\tE.\tF.\t1\n"},
    "MNLI": {
        **{f"test_{part}.tsv": f"index\tsentence1\tsentence2\n0\t{part}\tB.\n" for part in ("matched", "mismatched")},
        "diagnostic.tsv": "index\tsentence1\tsentence2\n0\tThe cat.\tA cat.\n",
    },
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEXTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path / "there"))
    return tmp_path / "there"


def write_files(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def import_files(name: str, folder: Path) -> None:
    entry = catalog_entry(BENCHMARKS[name])
    assert entry is not None
    install(entry, folder)


@pytest.mark.parametrize("name", SAMPLES)
def test_imported_files_read_the_same(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_files(home / "glue" / name, {**SAMPLES[name], **MORE.get(name, {})})
    there = read_one(name)
    monkeypatch.setenv("NEXTWORD_DATA", "")
    import_files(name, folder)
    here = read_one(name)
    assert here.fingerprint == there.fingerprint
    assert {split: len(rows) for split, rows in here.splits.items()} == {
        split: len(rows) for split, rows in there.splits.items()
    }


def test_import_of_mrpc_keeps_dev_ids(home: Path) -> None:
    rows = "".join(f"{i // 2 % 2}\t{i}\t{i + 1}\tOne {i}.\tTwo {i}.\n" for i in range(0, 80, 2))
    train = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + rows
    import_files("MRPC", write_files(home, {"msr_paraphrase_train.txt": train, "dev_ids.tsv": "4\t5\n70\t71\n"}))
    assert read_one("MRPC").splits["dev"].texts == ["One 4.", "One 70."]


def test_cola_reads_original_author_files(home: Path) -> None:
    files = {
        "in_domain_train.tsv": "gj04\t1\t\tOur friends came.\ngj04\t0\t*\tCame friends our.\n",
        "in_domain_dev.tsv": "gj04\t1\t\tThe sailors sang.\n",
        "out_of_domain_dev.tsv": "clc95\t0\t*\tSomebody just left guess who.\n",
    }
    folder = write_files(home / "cola_public/raw", files)
    data = read_one("CoLA")
    assert {split: rows.labels for split, rows in data.splits.items()} == {"train": ["1", "0"], "dev": ["1", "0"]}
    assert data.splits["dev"].texts == ["The sailors sang.", "Somebody just left guess who."]
    import_files("CoLA", folder)
    (folder / "in_domain_train.tsv").unlink()
    assert read_one("CoLA").fingerprint == data.fingerprint
    write_files(home.parent / "home/data/cola", {"out_of_domain_dev.tsv": "clc95\t0\n"})
    with pytest.raises(DataError, match=r"out_of_domain_dev.tsv") as error:
        read_one("CoLA")
    assert error.value.line == 1


def test_sts_b_reads_original_author_files(home: Path) -> None:
    line = 'main-captions\tMSRvid\t2012test\t000{}\t{}\tA "{} plane.\tAn air plane.\n'
    files = {
        f"sts-{split}.csv": line.format(1, "5.000", split) + line.format(2, "0.500", split).strip() + "\thttp://a\tb\n"
        for split in ("train", "dev", "test")
    }
    folder = write_files(home / "stsbenchmark", files)
    data = read_one("STS-B")
    assert set(data.splits) == {"train", "dev", "test"}
    assert all(rows.labels == ["5.000", "0.500"] for rows in data.splits.values())
    assert data.splits["dev"].texts[0] == 'A "dev plane.'
    assert data.splits["dev"].seconds == ["An air plane."] * 2
    import_files("STS-B", folder)
    write_files(folder, {"sts-dev.csv": line.format(1, "5.000", "x") + "main\tMSRvid\n"})
    assert read_one("STS-B").fingerprint == data.fingerprint  # the data home comes first
    (home.parent / "home/data/sts-b/sts-train.csv").unlink()
    with pytest.raises(DataError, match=r"sts-dev.csv") as error:
        read_one("STS-B")
    assert error.value.line == 2
