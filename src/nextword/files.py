"""A file under a second name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def linked(source: Path, target: Path) -> None:
    """The same bytes at another place: as a link, which takes no room and stays when the first name goes, where the
    disk allows that; else as a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
