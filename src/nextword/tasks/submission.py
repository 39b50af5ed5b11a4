"""Predictions for test sets without public labels, in the files that GLUE's server and other leaderboards take.

    RTE.tsv     index   prediction         one file per task, CoLA.tsv … WNLI.tsv; three for MNLI: MNLI-m.tsv,
                0       not_entailment     MNLI-mm.tsv, and AX.tsv for the diagnostic sentences. Labels are those of
                1       entailment         the training file; STS-B has numbers from 0 to 5

    answer.txt  InputStoryid,AnswerRightEnding      Story Cloze: the ending is 1 or 2
    SWAG.csv    2                                   SWAG: 0 to 3, one per line, in the order of the test file

With several seeds, the run with the best dev score predicts. In a zip, the files are at the top level.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextword.core.errors import RunError, invalid
from nextword.core.types import Prediction
from nextword.data.tables import Rows
from nextword.lm.loading import load
from nextword.run_folder import RunFolder
from nextword.tasks.datasets import glue
from nextword.tasks.datasets.base import Benchmark, bad_data
from nextword.tasks.datasets.catalog import BENCHMARKS, find_benchmark, locate_benchmark
from nextword.tasks.finetune import read_result
from nextword.tasks.mixtures import split_names
from nextword.tasks.multitask import MultitaskPredictor

MANIFEST = "manifest.json"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class SubmissionFiles:
    files: Mapping[str, int]  # file name → number of predictions
    missing: Sequence[str]  # further files that GLUE's server expects


def write_submission(
    folder: str | Path, target: Path, device: str = "auto", progress: Progress = lambda done, total: None
) -> SubmissionFiles:
    """Predict the test sets of a run, of a folder of seeds, or of a suite; write them to a folder or a .zip."""
    _refuse_existing_files(folder, target)
    files = predict_test_sets(folder, device, progress)
    _write_files(files, target)
    headers = {
        name: benchmark.submission.header
        for benchmark in BENCHMARKS.values()
        for name in benchmark.submission.files.values()
    }
    counts = {name: text.count("\n") - bool(headers[name]) for name, text in files.items()}
    return SubmissionFiles(counts, _missing_glue_files(files))


def predict_test_sets(
    folder: str | Path, device: str = "auto", progress: Progress = lambda done, total: None
) -> dict[str, str]:
    """Return the text of each submission file by its name."""
    files: dict[str, str] = {}
    for run in best_runs(Path(folder)):
        benchmarks = _learned_benchmarks(run)
        test_sets = {benchmark.name: _test_sets(benchmark) for benchmark in benchmarks}
        lm = load(run, device)
        for benchmark in benchmarks:
            model = lm.of(benchmark.name) if isinstance(lm, MultitaskPredictor) else lm
            for name, rows in test_sets[benchmark.name].items():
                files[name] = format_predictions(benchmark, rows, model.predict(_examples(rows), progress))
    return files


def format_predictions(benchmark: Benchmark, rows: Rows, predictions: Sequence[Prediction]) -> str:
    """Return the file of one split. Rows without an id are numbered from 0."""
    form = benchmark.submission
    ids = rows.ids or [str(i) for i in range(len(rows))]
    lines = (form.format_line(id, _format(benchmark, one)) for id, one in zip(ids, predictions, strict=True))
    return form.header + "".join(lines)


def _format(benchmark: Benchmark, prediction: Prediction) -> str:
    if prediction.value is None:
        return prediction.label
    low, high = benchmark.submission.bounds or (prediction.value, prediction.value)
    return f"{min(max(prediction.value, low), high):.3f}"


def _examples(rows: Rows) -> list[Any]:
    columns = [column for column in (rows.texts, rows.seconds, rows.choices) if column is not None]
    return list(rows.texts) if len(columns) == 1 else list(zip(*columns, strict=True))


# ------------------------------------------------------------------------------------------------ runs and test sets


def best_runs(folder: Path) -> list[Path]:
    """Return the runs that predict: this run, the best of its seeds, or the best for each task in a suite's folder."""
    if (folder / MANIFEST).is_file():
        return [folder]
    below = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    seeds = [path for path in below if path.name.startswith("seed-") and (path / MANIFEST).is_file()]
    if seeds:
        return [max(seeds, key=_dev_score)]
    has_runs = [path for path in below if (path / MANIFEST).is_file() or any(path.glob(f"seed-*/{MANIFEST}"))]
    runs = [run for path in has_runs for run in best_runs(path)]
    if not runs:
        raise RunError(f"{folder} has no fine-tuned run. Expected a run folder, or the folder of a suite.", path=folder)
    return runs


def _dev_score(run: Path) -> float:
    result = read_result(run)
    if result is None:
        raise RunError(f"{run} is not finished. Resume it: nextword transfer --resume --out {run}", path=run)
    return float(result["dev"][result["metric"]])


def _learned_benchmarks(run: Path) -> list[Benchmark]:
    """Return the benchmarks with a leaderboard that a run was fine-tuned on."""
    recipe = RunFolder.open(run).recipe
    data = recipe.phases[0].data if recipe.task is not None else ""
    named = [find_benchmark(name) for name in split_names(data)]
    benchmarks = [benchmark for benchmark in named if benchmark is not None and benchmark.submission.files]
    if not benchmarks:
        known = ", ".join(benchmark.name for benchmark in BENCHMARKS.values() if benchmark.submission.files)
        history = f"was fine-tuned on {data}" if data else "has no task head"
        advice = f"A submission needs a run of {known}. For other texts: nextword predict {run} FILE."
        raise RunError(f"{run} {history}. {advice}", path=run)
    return benchmarks


def _test_sets(benchmark: Benchmark) -> dict[str, Rows]:
    """Return the rows of each submission file."""
    folder = locate_benchmark(benchmark)
    splits, _ = benchmark.read(folder)
    files = benchmark.submission.files
    test_sets = {name: splits[split] for split, name in files.items() if split in splits}
    if not test_sets:
        raise bad_data(folder, f"the test file of {benchmark.name} is missing. Put the official one there.")
    id_column = benchmark.submission.id_column
    if id_column and any(rows.ids is None for rows in test_sets.values()):
        problem = f"the test file of {benchmark.name} has no id column '{id_column}'. Put the official one there."
        raise bad_data(folder, problem)
    return test_sets


# ------------------------------------------------------------------------------------------------ files


def _is_zip(target: Path) -> bool:
    return target.suffix.lower() == ".zip"


def _refuse_existing_files(folder: str | Path, target: Path) -> None:
    """Check before predicting that no file would be overwritten."""
    names = {
        name
        for run in best_runs(Path(folder))
        for benchmark in _learned_benchmarks(run)
        for name in benchmark.submission.files.values()
    }
    targets = [target] if _is_zip(target) else [target, *(target / name for name in sorted(names))]
    existing = next((path for path in targets if path.is_file()), None)
    if existing is not None:
        raise invalid("--submission", str(existing), "already exists. Choose another place, or remove it.")


def _write_files(files: Mapping[str, str], target: Path) -> None:
    if _is_zip(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")


def _missing_glue_files(files: Mapping[str, str]) -> list[str]:
    """Return the files that GLUE's server expects in addition, if any of these are GLUE's."""
    expected = [name for benchmark in glue.BENCHMARKS for name in benchmark.submission.files.values()]
    return [name for name in expected if name not in files] if any(name in files for name in expected) else []
