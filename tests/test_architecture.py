"""The layout keeps its promises: imports point backwards, slugs name files, files stay short, flags are few."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from nextword.models import MODELS
from nextword.recipe import RECIPES, load_recipe, names

SOURCE = Path(__file__).resolve().parent.parent / "src" / "nextword"

LEVELS = [
    {"contract", "nest", "compiled", "infinity", "files"},
    {"corpora", "tokens", "layers", "metrics", "ngrams", "page"},
    {"batching", "models"},
    {"heads"},
    {"objectives", "generation"},
    {"recipe"},
    {"checkpoint"},
    {"training", "weights", "card", "writing", "mending", "embedding", "contextual"},
    {"infilling", "predicting", "conditional", "tagging", "vectored", "completions"},
    {"answering", "labelling", "prompting"},
    {"language_model"},
    {"evaluation", "transfer", "lens"},
    {"compare", "studies"},
    {"cli", "server"},
    {"__main__"},
]
LEVEL = {name: level for level, group in enumerate(LEVELS) for name in group}
# A paper's file may import one ancestor that the paper names
ANCESTORS = {"gpt3": "gpt2", "cove": "seq2seq", "cvt_seq2seq": "seq2seq"}  # whom a paper names as what it changes


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Dotted names of our own modules that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nextword":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("nextword.")}
    return found


FILES = [p for p in sorted(SOURCE.rglob("*.py")) if p.parent != SOURCE or p.name != "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_backwards(path: Path) -> None:
    mine = package(path)
    assert mine in LEVEL, f"{mine} has no level: give it one in LEVELS"
    for name in imported(path):
        other = name.split(".")[1]
        if other in LEVEL and other != mine:
            assert LEVEL[other] < LEVEL[mine], (
                f"{path.name} (level {LEVEL[mine]}) imports {name} (level {LEVEL[other]})"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_hold_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_models_do_not_import_each_other() -> None:
    shared = {"bidirectional", "causal", "frames", "recorded", "static", "t5_steps", "whole_steps", "windowed"}
    shared |= {"word_by_word"}
    for path in (SOURCE / "models").glob("*.py"):
        if path.stem in shared | {"__init__", "__main__"}:
            continue
        others = {n.split(".")[2] for n in imported(path) if n.startswith("nextword.models.")} - shared
        assert others <= {ANCESTORS.get(path.stem, "")}


def test_every_slug_has_its_file_and_its_recipes() -> None:
    for slug, place in MODELS.items():
        module = place.split(":")[0].removeprefix("nextword.models.")
        assert (SOURCE / "models" / f"{module}.py").is_file()
        assert f"{slug}/tiny" in names()
    for path in RECIPES.glob("*/*.toml"):
        assert path.parent.name in MODELS
        assert load_recipe(f"{path.parent.name}/{path.stem}").slug == path.parent.name


def test_nobody_looks_at_a_models_name() -> None:
    """The loop, the loader and the commands must serve the next model unchanged."""
    for part in ("training", "cli", "compare", "evaluation", "generation", "objectives", "lens"):
        for path in (SOURCE / part).rglob("*.py"):
            strings = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
            assert not strings & set(MODELS), f"{path} names a model"
    for name in ("language_model.py", "checkpoint.py", "recipe.py", "card.py"):
        strings = {n.value for n in ast.walk(ast.parse((SOURCE / name).read_text())) if isinstance(n, ast.Constant)}
        assert not strings & set(MODELS), f"{name} names a model"


FLAGS = 91  # adding one is a design decision: change this number in the same commit


def test_flags_are_counted() -> None:
    import typer

    from nextword.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    flags = {
        (name, p.name) for name, command in commands.items() for p in command.params if p.param_type_name == "option"
    }
    shared = {"json", "quiet", "device", "precision", "seed", "help"}
    assert len({flag for flag in flags if flag[1] not in shared}) <= FLAGS


def test_help_imports_no_torch_and_answers_at_once() -> None:
    code = "import sys; from nextword.cli import app; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_library_never_prints_and_never_unpickles() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name != "print" or package(path) == "cli", path
                assert name not in ("pickle.load", "pickle.loads"), path
                if name == "torch.load":
                    assert any(k.arg == "weights_only" for k in node.keywords), path
