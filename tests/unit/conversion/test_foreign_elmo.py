"""ELMo files from strangers: options that lie, and HDF5 files that are damaged or point elsewhere, are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.conversion import convert
from nextword.core.errors import DataError, NextwordError
from tests.support.tiny_transfer import make_run

h5py = pytest.importorskip("h5py", reason="HDF5 is not read without h5py: this test proves nothing here")
NAME = "CNN_proj/W_proj"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo")
    convert(make_run(folder / "run", "elmo"), folder / "elmo", to="elmo")
    return folder / "elmo"


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "elmo"))


def refuse(folder: Path, error: type[NextwordError] = DataError) -> str:
    with pytest.raises(error) as problem:
        convert(folder, folder.with_name("target"))
    assert not folder.with_name("target").exists()
    return str(problem.value)


def test_unchanged_folder_is_converted(folder: Path) -> None:
    convert(folder, folder.with_name("target"))


@pytest.mark.parametrize("value", [10**7, 999, 10**30, -1, 0, "2", 2.5, True, None, [], {}])
@pytest.mark.parametrize(
    "place",
    [
        ("lstm", "n_layers"),
        ("lstm", "dim"),
        ("lstm", "projection_dim"),
        ("char_cnn", "max_characters_per_token"),
        ("char_cnn", "embedding", "dim"),
        ("char_cnn", "filters", 1, 1),
        ("char_cnn", "filters", 1, 0),
    ],
    ids=lambda place: ".".join(map(str, place)),
)
def test_sizes_that_do_not_fit_are_refused(folder: Path, place: tuple[Any, ...], value: object) -> None:
    options = json.loads((folder / "options.json").read_text())
    table = options
    for key in place[:-1]:
        table = table[key]
    table[place[-1]] = value
    (folder / "options.json").write_text(json.dumps(options))
    if not (place[-1] == "max_characters_per_token" and value in (999,)):
        refuse(folder, NextwordError)


def replace_dataset(folder: Path, make: Callable[[Any, Any], Any]) -> None:
    """Replace one dataset by what `make` makes of the file and the numbers."""
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        values = file[NAME][...]
        del file[NAME]
        make(file, values)


def write_outside(file: Any, values: Any) -> Path:
    path = Path(file.filename).with_name("outside.hdf5")
    with h5py.File(path, "w") as other:
        other["values"] = values
    return path


def set_virtual(file: Any, values: Any) -> None:
    layout = h5py.VirtualLayout(values.shape, values.dtype)
    layout[...] = h5py.VirtualSource(write_outside(file, values), "values", values.shape)
    file.create_virtual_dataset(NAME, layout)


def set_external(file: Any, values: Any) -> None:
    path = Path(file.filename).with_name("raw")
    path.write_bytes(values.tobytes())
    file.create_dataset(NAME, values.shape, values.dtype, external=[(str(path), 0, h5py.h5f.UNLIMITED)])


@pytest.mark.parametrize(
    "make",
    [
        lambda file, values: file.update({NAME: h5py.ExternalLink(write_outside(file, values), "values")}),
        lambda file, values: file.update({"here": values, NAME: h5py.SoftLink("/here")}),
        lambda file, values: file.update({NAME: h5py.SoftLink(f"/{NAME}")}),  # itself
        set_virtual,
        set_external,
        lambda file, values: file.create_group(NAME),
        lambda file, values: None,
        lambda file, values: file.update({NAME: values.astype(int)}),
        lambda file, values: file.update({NAME: values.astype("S8")}),
        lambda file, values: file.update({NAME: np.full_like(values, np.nan)}),
        lambda file, values: file.update({NAME: values[:, :-1]}),
        lambda file, values: file.create_dataset(NAME, (10**9, 10**9), "f4", chunks=(1, 1)),
    ],
    ids=[
        "external",
        "soft",
        "itself",
        "virtual",
        "raw",
        "group",
        "absent",
        "integers",
        "text",
        "nan",
        "shape",
        "absurd",
    ],
)
def test_dataset_that_is_elsewhere_or_of_another_form_is_refused(folder: Path, make: Any) -> None:
    replace_dataset(folder, make)
    refuse(folder)


def test_dataset_that_claims_numbers_it_does_not_hold_is_refused(folder: Path) -> None:
    """Options and shapes agree, but a dataset of gigabytes was never written, so the file stays small."""
    options = json.loads((folder / "options.json").read_text())
    cells, width = 1 << 20, options["lstm"]["projection_dim"]
    options["lstm"]["dim"] = cells
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        for direction in range(2):
            for layer in range(options["lstm"]["n_layers"]):
                cell = file[f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"]
                for name, shape in (("W_0", (2 * width, 4 * cells)), ("B", (4 * cells,)), ("W_P_0", (cells, width))):
                    del cell[name]
                    cell.create_dataset(name, shape, "f4", chunks=True)
    assert "claims" in refuse(folder)


def test_damaged_file_is_refused(folder: Path) -> None:
    path = folder / "weights.hdf5"
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[: len(whole) // 2], b"\0" * len(whole)):
        path.write_bytes(damaged)
        refuse(folder)


def test_vocabulary_that_is_not_text_is_refused(folder: Path) -> None:
    (folder / "vocab.txt").write_bytes(b"\x80\x81")
    refuse(folder, NextwordError)
