"""Run commands in this process where equivalent, and in a separate process for signals and pipes."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from nextword.cli import app
from nextword.core.scratch import PREFIX

TALE = "the king of a land went to see his house and all the people that were in it said to him do not go away from us"
WORDS = [*TALE.split(), "for", "we", "have", "no", "bread", "and", "water", "is", "far", "ångström", "naïve"]
QUICK = ("--set", 'tokenizer={kind="bytes"}', "--set", "model.width=16", "--set", "phase.0.steps=10")

# p(a) = 0.1, p(b) = 0.2, p(</s>) = 0.4, p(<unk>) = 0.3; p(a | <s>) = 0.5; after <s>, others at 0.5 / (1 − 0.1)
BY_HAND = """\\data\\
ngram 1=5
ngram 2=1

\\1-grams:
-0.5228787\t<unk>
-99\t<s>\t-0.2552725
-0.39794\t</s>
-1\ta\t0
-0.69897\tb\t0

\\2-grams:
-0.30103\t<s> a

\\end\\
"""

Cli = Callable[..., Result]


def sentences(count: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(5, 15))).capitalize() + "." for _ in range(count)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def start(*words: str | Path, **more: Any) -> subprocess.Popen[str]:
    """Start `nextword …` in a separate process."""
    command = [sys.executable, "-m", "nextword", *map(str, words)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, encoding="utf-8", **{"env": environment(), **pipes, **more})


@pytest.fixture(scope="session")
def cli() -> Cli:
    """Run a command here and demand success; `fails=True` demands an error message without a traceback."""

    def run(*words: str | Path, fails: bool = False, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if fails:
            assert result.exit_code in (1, 2), result.output
            assert result.stdout == ""
            errors = [line for line in result.stderr.splitlines() if line.startswith(("error:", "Usage:"))]
            assert len(errors) == 1, result.stderr
            assert "Traceback" not in result.stderr
        else:
            assert result.exit_code == 0, result.output
        return result

    return run


@pytest.fixture(scope="session")
def js(cli: Cli) -> Callable[..., Any]:
    """Run a command with --json and return the parsed output."""
    return lambda *words, **more: json.loads(cli(*words, "--json", **more).stdout)


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "my.txt"
    lines = sentences(500)
    path.write_text("\n\n".join(" ".join(lines[i : i + 5]) for i in range(0, 500, 5)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained(cli: Cli, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run; do not modify."""
    folder = tmp_path_factory.mktemp("trained") / "lstm"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        cli("train", "lstm/tiny", "--data", text, "--out", folder, *QUICK)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run that tests may modify."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    path = tmp_path / "hand.arpa"
    path.write_text(BY_HAND)
    return path


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines of few words, including names reserved in ARPA files."""
    folder, draw = tmp_path_factory.mktemp("data"), random.Random(3)
    words = ["king", "land", "house", "went", "naïve", "東京", "<s>", "</s>", "<UNK>", "<unk>", "#", "it's", '"']
    for split, count in (("train", 300), ("valid", 20), ("test", 40)):
        lines = [" ".join(draw.choices(words, range(len(words), 0, -1), k=draw.randint(1, 9))) for _ in range(count)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def words(cli: Cli, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A word n-gram run on those lines; do not modify."""
    folder = tmp_path_factory.mktemp("words") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        cli("train", "ngram/kn5", "--data", data, "--out", folder, "--set", "model.order=3")
    return folder


def sets(*changes: str) -> list[str]:
    """Changes to a recipe as `--set` options."""
    return [word for change in changes for word in ("--set", change)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def expect_error(cli: Cli, *words: str | Path) -> str:
    """Return the error of `convert` in one line; check that no file was written or lost."""
    place = Path(words[1]).parent
    before = contents(place)
    message = cli("convert", *words, fails=True).stderr
    assert contents(place) == before
    assert not list(place.rglob(f"{PREFIX}*"))
    return " ".join(message.split())
