"""One JSON file per tokenizer, written whole or not at all, and the fingerprint of what it holds.

Kinds of our own are `{"nextword": {...}, ...}`. Kinds of the `tokenizers` library keep that library's own JSON, so that
`tokenizers.Tokenizer.from_file` reads the file too; it refuses foreign keys at the top, hence `{"model": {"nextword":
{...}}}` there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError

VERSION = 1


def write(path: Path, content: Mapping[str, Any]) -> None:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """The JSON object in the file; half of one, or none, is an error that says where it breaks off."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise NextwordError(
            f"{path} is not a whole JSON file ({error}). It was cut short or is something else: "
            "copy it again, or train the tokenizer anew."
        ) from None
    if not isinstance(content, dict):
        raise NextwordError(f"{path} holds a JSON {type(content).__name__}, where a tokenizer is an object.")
    return content


def own(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What nextword wrote into the file about the tokenizer; None if nextword did not write it."""
    model = content.get("model")
    found = content.get("nextword") or (model.get("nextword") if isinstance(model, dict) else None)
    return found if isinstance(found, dict) else None


def check_version(header: Mapping[str, Any], path: Path) -> None:
    if header.get("version", 0) > VERSION:
        raise NextwordError(
            f"{path} was written by a newer nextword (tokenizer version {header['version']}; this one reads up to "
            f"{VERSION}). Upgrade nextword."
        )


def fingerprint(content: Mapping[str, Any]) -> str:
    """16 hexadecimal digits: equal for equal tokenizers, on every machine and after saving and loading."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
