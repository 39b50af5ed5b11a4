"""The layout keeps its promises: imports point one way, every slug has its file, modules earn their place."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from nextword.models import MODELS
from nextword.recipe import RECIPES, load_recipe, recipe_names

SOURCE = Path(__file__).resolve().parent.parent / "src" / "nextword"

# Packages and root modules in the order of the data; a module imports from its own level only within its package.
LEVELS = [
    {"core", "micro"},
    {"html"},
    {"data", "tokenizers", "layers", "kernels", "ngrams"},
    {"batching", "models", "metrics"},
    {"objectives", "generation"},
    {"recipe"},
    {"run_folder"},
    {"training", "conversion", "model_card", "lm", "tasks"},
    {"evaluation", "lens", "results"},
    {"comparison", "studies"},
    {"progress"},
    {"api"},
    {"server"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, group in enumerate(LEVELS) for name in group}
# Packages of one level that may import each other: kernels are the fast paths of layers; a text-level model is loaded
# with its task head; a task fine-tunes a network and scores with a text-level model; converting writes run folders;
# the run folder `minilm` is converted when it is first opened.
PARTNERS = [
    {"layers", "kernels"},
    {"models", "kernels", "ngrams", "tokenizers"},
    {"training", "conversion", "model_card", "lm", "tasks"},
    {"run_folder", "conversion"},
]
ROOT_MODULES = {"__init__", "__main__", "api", "recipe", "results", "run_folder", "model_card"}
ANCESTORS = {"gpt3": "gpt2", "cove": "seq2seq", "cvt": "seq2seq"}  # the paper that a paper says it changes
SHARED_SKELETONS = {"base", "decoder", "encoder", "framing", "parameter_groups", "storage"}


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the dotted names of our own modules that a file imports, wherever in the file."""
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
        if other not in LEVEL or other == mine or any({mine, other} <= pair for pair in PARTNERS):
            continue
        assert LEVEL[other] < LEVEL[mine], f"{path.name} (level {LEVEL[mine]}) imports {name} (level {LEVEL[other]})"


def test_micro_imports_nothing_of_the_rest() -> None:
    for path in (SOURCE / "micro").glob("*.py"):
        assert all(name.startswith("nextword.micro") for name in imported(path)), path.name


def test_package_root_holds_few_modules() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == ROOT_MODULES


def test_models_do_not_import_each_other() -> None:
    for path in (SOURCE / "models").glob("*.py"):
        if path.stem in SHARED_SKELETONS | {"__init__"}:
            continue
        others = {n.split(".")[2] for n in imported(path) if n.startswith("nextword.models.")} - SHARED_SKELETONS
        assert others <= {ANCESTORS.get(path.stem, "")}, path


def test_models_reach_kernels_through_dispatch() -> None:
    for path in (SOURCE / "models").glob("*.py"):
        kernels = {name.split(".")[2] for name in imported(path) if name.startswith("nextword.kernels.")}
        assert kernels <= {"dispatch"}, path


def test_every_slug_has_its_file_and_its_recipes() -> None:
    for slug, place in MODELS.items():
        module = place.split(":")[0].removeprefix("nextword.models.")
        assert (SOURCE / "models" / f"{module}.py").is_file()
        assert {f"{slug}/tiny", f"{slug}/small"} <= set(recipe_names())
    for path in RECIPES.glob("*/*.toml"):
        assert path.parent.name in MODELS
        assert load_recipe(f"{path.parent.name}/{path.stem}").slug == path.parent.name


def test_no_module_branches_on_a_model_name() -> None:
    """The trainer, the loader and the commands must serve the next model unchanged."""
    for part in (
        "training",
        "cli",
        "comparison",
        "evaluation",
        "generation",
        "lens",
        "lm",
        "recipe.py",
        "run_folder.py",
        "model_card.py",
    ):
        place = SOURCE / part
        for path in place.rglob("*.py") if place.is_dir() else [place]:
            strings = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
            assert not strings & set(MODELS), f"{path} names a model"


FLAGS = 118  # adding one is a design decision: change this number in the same commit


def test_flags_are_counted() -> None:
    import typer

    from nextword.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    flags = {
        (name, p.name) for name, command in commands.items() for p in command.params if p.param_type_name == "option"
    }
    shared = {"json", "quiet", "device", "precision", "seed", "help"}
    assert len({flag for flag in flags if flag[1] not in shared}) <= FLAGS


def test_help_imports_neither_torch_nor_numpy() -> None:
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
