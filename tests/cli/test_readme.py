"""Run every command and Python block of the README, in order, in one folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli, environment, sentences

README = Path(__file__).resolve().parents[2] / "README.md"
MINUTES = "0.15"
ELSEWHERE = re.compile(
    r"--download\b|\bdata\b.*--install\b|\bnextword serve\b|--install-completion|--show-completion|…|<\w+>"
)


def commands(text: str) -> list[str]:
    """Code lines, fenced or indented by four, that start with `nextword` or `$ nextword`; `\\` joins two lines."""
    result, fenced, shown = [], False, True
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            shown = line.strip("` \t") in ("", "console", "bash", "sh", "shell")
        elif (fenced and shown) or (not fenced and line.startswith("    ")):
            given = re.match(r"\s*(?:\$ )?((?:\w+=\S+ )*nextword .*)", line)
            if given:
                result.append(re.sub(r"\s+#\s.*$", "", given[1]).strip())
    return result


def python_blocks(text: str) -> list[str]:
    return [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "import nextword" in block]


def small(command: str) -> str:
    """The same command with a small budget."""
    command = re.sub(r"--minutes[ =]\S+", f"--minutes {MINUTES}", command)
    command = re.sub(r"(phase\.\w+\.)(?:minutes|epochs|steps)=\S+", r"\1minutes=0.03", command)
    words = shlex.split(command, posix=False)
    name = words[1] if len(words) > 1 else ""
    if "--help" in words:
        return command
    if name == "compare" and "--minutes" not in command and "--resume" not in command:
        command = command.replace("nextword compare", f"nextword compare --minutes {MINUTES}", 1)
    if name == "train" and "minutes=" not in command and "--resume" not in command:
        command = command.replace("nextword train", "nextword train --set phase.0.minutes=0.03", 1)
    if name == "transfer" and "--resume" not in command and "in-context" not in command:  # there nothing is trained
        command = command.replace("nextword transfer", "nextword transfer --set phase.0.epochs=1", 1)
    if name == "look" and len(words) > 2 and "--quick" not in command:
        command = command.replace("nextword look", "nextword look --quick", 1)
    return command


def needs_absent_data(words: list[str]) -> bool:
    """Whether a recipe needs a data set that is not installed."""
    from nextword.data.catalog import find_entry
    from nextword.recipe import load_recipe, recipe_names

    if words[0] != "train" or "--data" in words:
        return False
    recipes = [load_recipe(word) for word in words if word in recipe_names()]
    entries = [find_entry(phase.data) for recipe in recipes for phase in recipe.phases if phase.data]
    return any(entry is not None and entry.find_folder() is None for entry in entries)


def test_commands_and_python_blocks_are_extracted_from_text() -> None:
    text = (
        "Use `nextword` so:\n```console\n$ nextword compare --data my.txt --minutes 20  # mine\nbits/byte\n"
        "$ nextword train lstm/tiny \\\n    --out runs/mine\n$ make demo\n```\n\n    nextword papers\n    make test\n"
        "```python\nimport nextword\n```\n"
    )
    result = commands(text)
    assert result == [
        "nextword compare --data my.txt --minutes 20",
        "nextword train lstm/tiny      --out runs/mine",
        "nextword papers",
    ]
    assert small(result[0]) == f"nextword compare --data my.txt --minutes {MINUTES}"
    assert "phase.0.minutes" in small(result[1])
    assert python_blocks(text) == ["import nextword\n"]


@pytest.mark.slow
def test_readme_commands_and_code_run(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = README.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    shown = [command for command in commands(text) if not ELSEWHERE.search(command)]
    assert shown, "the README shows no command"
    for command in shown:
        _make_texts(command, tmp_path)
        _execute(small(command), cli)
    for block in python_blocks(text):
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def _make_texts(command: str, folder: Path) -> None:
    """Create my.txt and any other text or table that a command names."""
    for name in re.findall(r"(?<![\w./-])[\w-]+\.csv\b", command):
        lines = [f"{Path(name).stem} {line}" for line in sentences(100)]  # none has a row of another
        rows = [f'"{line}",{("good", "bad")[i % 2]}' for i, line in enumerate(lines)]
        (folder / name).write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    for name in re.findall(r"(?<![\w./-])[\w-]+\.txt\b", command):
        path = folder / name
        if not path.exists():
            lines = sentences(600 if name == "my.txt" else 5)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _execute(command: str, cli: Cli) -> None:
    words = shlex.split(command)
    if words[0] == "nextword" and not re.search(r"[|<>;&]", command):
        if not needs_absent_data(words[1:]):
            cli(*words[1:])
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command], env=environment(PATH=path), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, (command, done.stderr)
