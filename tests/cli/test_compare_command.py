"""`nextword compare`: complete, failed, interrupted, and resumed comparisons."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nextword.cli import app
from nextword.run_folder import RunFolder

from .conftest import Cli, contents, start
from .test_commands import NUMBERS
from .test_kill import wait_until

Js = Callable[..., Any]
SMALL = ("--set", 'tokenizer={kind="bytes"}', "--set", "model.width=16")
TWO = ("lstm/tiny", "gru/tiny")


@pytest.fixture(scope="module")
def compared(cli: Cli, text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished comparison of two models, and the output of the command."""
    folder = tmp_path_factory.mktemp("compared") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        result = cli("compare", *TWO, "--data", text, "--minutes", 0.04, "--out", folder, *SMALL)
    return folder, result.stdout


def test_compare_writes_report_results_and_models(cli: Cli, compared: tuple[Path, str]) -> None:
    folder, shown = compared
    assert "lstm-tiny" in shown
    assert f"nextword generate {folder}" in shown
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "<html" in report
    assert "http://" not in report.replace("http://www.w3.org", "")
    assert "https://" not in report
    comparison = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert len(comparison["models"]) == 2
    bits = [model["bits_per_byte"] for model in comparison["models"]]
    assert bits == sorted(bits)
    for model in comparison["models"]:
        assert model["status"] == "done"
        assert set(NUMBERS) <= model.keys()
        assert RunFolder.open(model["run"]).manifest["finished"]
        assert cli("generate", model["run"], "The", "--max-tokens", 3).stdout.startswith("The")
    assert len({(m["tokens"], m["bytes"]) for m in comparison["models"]}) == 1, "the same held-out bytes for all"


def test_compare_never_overwrites_a_comparison(cli: Cli, compared: tuple[Path, str], text: Path) -> None:
    folder, _ = compared
    before = contents(folder)
    message = cli("compare", "rnn/tiny", "--data", text, "--out", folder, fails=True).stderr
    assert "--resume" in message
    assert "--out" in message
    assert contents(folder) == before


def test_resume_of_finished_comparison_shows_its_result(js: Js, compared: tuple[Path, str]) -> None:
    folder, _ = compared
    before = (folder / "lstm-tiny" / "model.safetensors").read_bytes()
    again = js("compare", "--resume", "--out", folder)
    assert [model["status"] for model in again["models"]] == ["done", "done"]
    assert (folder / "lstm-tiny" / "model.safetensors").read_bytes() == before


def test_compare_of_runs_leaves_them_unchanged(
    js: Js, compared: tuple[Path, str], trained: Path, tmp_path: Path
) -> None:
    folder, _ = compared
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join(f"The people of land {i} have water and bread." for i in range(400)), encoding="utf-8")
    runs = (folder / "lstm-tiny", folder / "gru-tiny", trained)
    before = [(run / "model.safetensors").read_bytes() for run in runs]
    result = js("compare", *runs, "--data", other, "--out", tmp_path / "out")
    assert {model["name"] for model in result["models"]} == {"lstm-tiny", "gru-tiny", "lstm"}
    for model in result["models"]:
        assert set(NUMBERS) <= model.keys()
        assert (model["status"], model["kind"]) == ("done", "exact")
    assert len({model["bytes"] for model in result["models"]}) == 1
    assert [(run / "model.safetensors").read_bytes() for run in runs] == before
    assert (tmp_path / "out" / "report.html").is_file()


def test_compare_continues_after_one_model_fails(text: Path, trained: Path, tmp_path: Path) -> None:
    hot = tmp_path / "hot.toml"
    hot.write_text(
        (trained / "recipe.toml")
        .read_text(encoding="utf-8")
        .replace('kind = "adam"', 'kind = "sgd"')
        .replace("0.005", "1e30"),
        encoding="utf-8",
    )
    words = ["compare", str(hot), "gru/tiny", "--data", str(text), "--minutes", "0.03", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*words, *SMALL, "--json"])
    models = {model["name"]: model for model in json.loads(result.stdout)["models"]}
    assert models["gru-tiny"]["status"] == "done"
    (failed,) = (model for model in models.values() if model["status"] == "failed")
    assert "diverged" in failed["error"]
    assert result.exit_code == 0
    assert "diverged" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_compare_with_only_failures_reports_the_error(trained: Path, tmp_path: Path, text: Path) -> None:
    import shutil

    broken = Path(shutil.copytree(trained, tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"nothing")
    result = CliRunner().invoke(app, ["compare", str(broken), "--data", str(text), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "checksum differs" in result.stderr
    assert not (tmp_path / "out" / "report.html").exists()


def test_interrupted_comparison_keeps_trained_models_and_resumes(cli: Cli, js: Js, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(
        "compare", *TWO, "--data", text, "--minutes", 0.1, "--out", out, *SMALL, "--set", "phase.0.log_every=1"
    )
    wait_until(lambda: _has_started(out / "gru-tiny"), process)
    process.send_signal(signal.SIGINT)
    message = _wait_for_interruption(process)
    assert "1 of 2" in message
    assert f"nextword compare --resume --out {out}" in message
    assert RunFolder.open(out / "lstm-tiny").manifest["finished"]
    done = (out / "lstm-tiny" / "model.safetensors").read_bytes()
    assert cli("generate", out / "lstm-tiny", "--max-tokens", 3).stdout
    assert (out / "report.html").is_file(), "a report of what there is so far"
    result = js("compare", "--resume", "--out", out)
    assert sorted(model["name"] for model in result["models"]) == ["gru-tiny", "lstm-tiny"]
    assert {model["status"] for model in result["models"]} == {"done"}
    assert (out / "lstm-tiny" / "model.safetensors").read_bytes() == done, "not trained again"
    assert RunFolder.open(out / "gru-tiny").manifest["finished"]


def _has_started(run: Path) -> bool:
    log = run / "log.jsonl"
    return log.is_file() and '"step"' in log.read_text(encoding="utf-8")


def _wait_for_interruption(process: subprocess.Popen[str]) -> str:
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130, message
    assert "Traceback" not in message
    return " ".join(message.split())
