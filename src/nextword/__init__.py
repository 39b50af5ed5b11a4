"""nextword: every language model of the canon, trained, compared and used the same way.

import nextword
lm = nextword.load("runs/lstm-tiny")
lm.score("the cat sat on the mat").bits_per_byte()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load", "train"]

if TYPE_CHECKING:
    from nextword.lm.loading import load
    from nextword.training.train import train


def __getattr__(name: str) -> Any:
    # torch takes a second to import; `nextword --help` must not wait for it
    if name == "load":
        from nextword.lm.loading import load

        return load
    if name == "train":
        from nextword.training.train import train

        return train
    raise AttributeError(f"module 'nextword' has no attribute {name!r}")
