"""Cleaning a corpus: its training text through one filter after another, into a new folder, with a report.

    train   → quality → duplicates → contamination →   train.jsonl       the order of GPT-3's appendix A
    valid, test       →                                valid.jsonl, test.jsonl, as they are

Held-out text is never changed, so that scores before and after cleaning are on the same text. Training documents that
nearly repeat a held-out document go with the duplicates. The folder appears whole or not at all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.corpus import Corpus
from nextword.data.filters import dedup as duplicates
from nextword.data.filters import quality
from nextword.data.filters.decontaminate import COMMON, filtered, watch
from nextword.data.filters.dedup import NEW, Duplicates, parts
from nextword.data.filters.quality import Quality
from nextword.data.readers import read

EXAMPLES = 5  # of each step in the report
SHOWN = 160  # characters of an example

Watching = Callable[[str, int | None], AbstractContextManager[Callable[..., None]]]


@dataclass
class Step:
    """What one filter did."""

    name: str
    documents: int = 0  # before
    bytes: int = 0
    documents_left: int = 0
    bytes_left: int = 0
    examples: list[dict[str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def passes(self, document: Document, left: Sequence[Document], why: str = "") -> Sequence[Document]:
        """Count a document and what is left of it; `why` something of it went."""
        self.documents += 1
        self.bytes += len(document.text.encode())
        self.documents_left += len(left)
        self.bytes_left += sum(len(piece.text.encode()) for piece in left)
        if why and len(self.examples) < EXAMPLES:
            about = {"id": document.id, "title": document.title, "why": why}
            self.examples.append({**about, "text": " ".join(document.text[: 2 * SHOWN].split())[:SHOWN]})
        return left


def clean(
    corpus: Corpus,
    out: Path,
    watching: Watching,
    *,
    deduplicate: bool = False,
    good: Quality | None = None,
    against: Sequence[Corpus] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Write the cleaned corpus to the new folder `out`; returns the report that is written there too."""
    check(corpus, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
    try:
        held_out = [split for split in corpus.splits if split != "train"]
        for split in held_out:
            write(part / f"{split}.jsonl", (found.document for found in parts(corpus.documents(split))))
        steps: list[Step] = []
        documents = corpus.documents("train")
        if good is not None:
            good.save(part / "quality.safetensors")
            steps.append(Step("quality", facts=asdict(good.about) | {"alpha": quality.ALPHA, "seed": seed}))
            documents = _good(documents, good, seed, steps[-1])
        if deduplicate:
            steps.append(Step("duplicates"))
            documents = _unique(documents, [part / f"{split}.jsonl" for split in held_out], steps[-1])
        with watching("cleaning", corpus.bytes("train")) as update:
            write(part / "train.jsonl", (found.document for found in parts(documents)), update)
        if against:
            steps.append(Step("contamination"))
            _decontaminate(part / "train.jsonl", against, steps[-1], watching)
        report = {"corpus": corpus.name, "source": corpus.source, "steps": [asdict(step) for step in steps]}
        if not any(step.documents_left for step in steps[-1:]):
            raise NextwordError(f"Nothing of {corpus.name} would be left after {steps[-1].name}. {_advice(steps[-1])}")
        (part / "report.json").write_text(json.dumps(report, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        part.chmod(0o755)
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return report


def check(corpus: Corpus, out: Path) -> None:
    """Whatever can be known to be wrong before hours are spent."""
    if "train" not in corpus.splits:
        raise NextwordError(
            f"{corpus.name} has no training text, only {', '.join(corpus.splits)}; held-out text is never changed. "
            "Give the text that is to be trained on."
        )
    if out.exists():
        raise NextwordError(
            f"{out} is already there, and nothing is overwritten. Name a new folder, or remove it first."
        )


def _advice(step: Step) -> str:
    if step.name == "quality":
        return "Good and raw text are told apart too well, perhaps by their form; give good text of the same form."
    return "See whether the text and what it was compared with are one and the same."


def write(path: Path, documents: Iterable[Document], update: Callable[..., None] | None = None) -> None:
    """One JSON object a document."""
    done = 0
    with open(path, "w", encoding="utf-8") as file:
        for document in documents:
            item = {"id": document.id, "title": document.title, "text": document.text}
            file.write(json.dumps(item, ensure_ascii=False) + "\n")
            done += len(document.text)
            if update:
                update(done)


def _good(documents: Iterable[Document], good: Quality, seed: int, step: Step) -> Iterator[Document]:
    for document, score, kept in quality.marked(documents, good, seed):
        yield from step.passes(document, [document] if kept else [], "" if kept else f"score {score:.3f}")


def _unique(documents: Iterable[Document], held_out: Sequence[Path], step: Step) -> Iterator[Document]:
    index = Duplicates()
    names: list[str] = []
    for path in held_out:
        for document, found in duplicates.marked(read(path), index):
            if found.of == NEW:
                names.append(f"{document.title or document.id} ({path.stem})")
    step.facts |= {"threshold": index.threshold, "shingle": index.shingle, "bands": index.bands, "rows": index.rows}
    step.facts["of_held_out"] = 0
    before = len(names)
    for document, found in duplicates.marked(documents, index):
        if found.of == NEW:
            names.append(document.title or document.id)
            yield from step.passes(document, [document])
        else:
            step.facts["of_held_out"] += found.of < before
            step.passes(document, [], f"{found.similarity:.0%} as {names[found.of]}")


def _decontaminate(path: Path, against: Sequence[Corpus], step: Step, watching: Watching) -> None:
    """Replace a file of documents by what is left of them; one pass to count grams, and one to cut."""
    watches = [watch(corpus) for corpus in against]
    for one in watches:
        with watching(f"looking for {one.name}", path.stat().st_size) as update:
            one.read(read(path), update)
    step.facts["sets"] = [
        {
            "name": one.name,
            "n": one.n,
            "documents": len(one.documents),
            "dirty": sum(verdict.dirty for verdict in one.verdicts()),
            "grams": one.size,
            "grams_seen": int((one.seen > 0).sum()),
            "grams_too_common": int((one.seen > COMMON).sum()),
        }
        for one in watches
    ]
    step.facts |= {"cut": 0, "dropped": 0}

    def left() -> Iterator[Document]:
        for result in filtered(read(path), watches):
            step.facts["cut"] += bool(result.touched and result.left)
            step.facts["dropped"] += not result.left
            yield from step.passes(result.document, result.left, f"has “{result.gram}”" if result.touched else "")

    new = path.with_name("new.jsonl")
    with watching("removing what was found", path.stat().st_size) as update:
        write(new, left(), update)
    new.replace(path)
