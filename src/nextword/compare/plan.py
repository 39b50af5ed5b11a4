"""A comparison on disk: what is to be compared, on what, in how much time; and what has come of it so far."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from nextword import __version__
from nextword.checkpoint import full_disk_is_no_loss
from nextword.contract_errors import NextwordError
from nextword.infinity import finite, infinite

FILE = "comparison.json"


@dataclass
class Plan:
    folder: Path
    data: str
    minutes: float
    entries: list[dict[str, Any]]  # {"name", "recipe": tables} to train, or {"name", "run": folder} to score as it is
    changes: list[str] = field(default_factory=list)  # --set
    models: dict[str, dict[str, Any]] = field(default_factory=dict)  # results so far, by name
    facts: dict[str, Any] = field(default_factory=dict)  # data, tokenizer, passage, notes

    @classmethod
    def open(cls, folder: Path) -> Plan:
        path = folder / FILE
        if not path.is_file():
            raise NextwordError(f"{folder} holds no comparison to resume. Start one without --resume.")
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))["plan"]
        except (ValueError, KeyError):
            raise NextwordError(f"{path} is damaged. Remove {folder} and compare again.") from None
        plan = cls(folder, **saved)
        plan.models = {name: infinite(model) for name, model in plan.models.items()}
        return plan

    @staticmethod
    def refuse_if_taken(folder: Path) -> None:
        if (folder / FILE).exists():
            raise NextwordError(
                f"{folder} already holds a comparison. Go on with it (--resume), or choose another --out."
            )
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise NextwordError(f"{folder} already holds other files. Choose another --out.")

    def save(self, device: str) -> dict[str, Any]:
        """Write all that is known so far, and return it as `compare --json` prints it."""
        document = {**self.result(device), "plan": {k: v for k, v in vars(self).items() if k != "folder"}}
        self.folder.mkdir(parents=True, exist_ok=True)
        with full_disk_is_no_loss(self.folder):
            temporary = self.folder / f".{FILE}.new"
            text = json.dumps(finite(document), ensure_ascii=False, indent=1, allow_nan=False)
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self.folder / FILE)
        return self.result(device)

    def result(self, device: str) -> dict[str, Any]:
        import torch

        order = [entry["name"] for entry in self.entries if entry["name"] in self.models]
        models = [self.models[name] for name in order]
        models.sort(key=lambda m: (m["kind"] != "exact", m.get("bits_per_byte") is None, m.get("bits_per_byte") or 0.0))
        machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
        return {
            "version": __version__,
            "created": datetime.now().isoformat(timespec="seconds"),
            "data": self.facts.get("data", {"name": self.data}),
            "tokenizer": self.facts.get("tokenizer"),
            "budget": {
                "minutes": self.minutes if any("recipe" in entry for entry in self.entries) else None,
                "device": device,
                "threads": torch.get_num_threads(),
                "machine": machine,
            },
            "models": models,
            "passage": self._passage(),
            **({"examples": self.facts["examples"]} if "examples" in self.facts else {}),
            "notes": self.facts.get("notes", []),
        }

    def _passage(self) -> Mapping[str, Any] | None:
        passage = self.facts.get("passage")
        if not passage:
            return None
        found = {name: model["surprisal"] for name, model in self.models.items() if model.get("surprisal")}
        return {**passage, "surprisal": found} if found else None
