"""Clean a corpus (`nextword data NAME --out OUT`): write its training text through all filters into a new folder.

    train   → quality → duplicates → contamination →   train.jsonl       the order of GPT-3's appendix A
    valid, test       →                                valid.jsonl, test.jsonl, unchanged

Held-out text is never changed, so scores before and after cleaning are on the same text. Training documents that nearly
repeat a held-out document are removed as duplicates. The folder is created atomically.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nextword.core.errors import InvalidSetting, bad_data, explain_write_errors
from nextword.core.scratch import scratch_folder
from nextword.core.types import Document
from nextword.data.corpus import Corpus
from nextword.data.filters.decontaminate import MAX_DOCUMENTS, index_held_out, remove_contamination, training_documents
from nextword.data.filters.dedup import NEW, DuplicateIndex, find_duplicates
from nextword.data.filters.quality import ALPHA, QualityClassifier, sample_texts, score_documents, train_classifier
from nextword.data.filters.word_hashes import join_passages
from nextword.data.opening import open_corpus, open_unsplit
from nextword.data.readers import read

EXAMPLES = 5  # per step, in the report
EXAMPLE_LENGTH = 160  # characters

CLASSIFIER_SUFFIX = ".safetensors"

ShowProgress = Callable[[str, float | None], AbstractContextManager[Callable[..., None]]]  # (label, total) → update


@dataclass
class Step:
    """What one filter did, for the report."""

    name: str
    documents: int = 0  # before the filter
    bytes: int = 0
    documents_left: int = 0
    bytes_left: int = 0
    examples: list[dict[str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def count(self, document: Document, left: Sequence[Document], why: str = "") -> Sequence[Document]:
        """Count a document and what remains of it; `why` says why something was removed."""
        self.documents += 1
        self.bytes += len(document.text.encode())
        self.documents_left += len(left)
        self.bytes_left += sum(len(piece.text.encode()) for piece in left)
        if why and len(self.examples) < EXAMPLES:
            text = " ".join(document.text[: 2 * EXAMPLE_LENGTH].split())[:EXAMPLE_LENGTH]
            self.examples.append({"id": document.id, "title": document.title, "why": why, "text": text})
        return left


def clean_corpus(
    name: str,
    out: Path,
    show_progress: ShowProgress,
    *,
    deduplicate: bool = False,
    good: str = "",
    against: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Write the cleaned corpus to the new folder `out`, and return the report, which is written there too.

    deduplicate   keep the first of near-duplicate documents
    good          keep documents that look like this text; or a saved quality classifier (.safetensors)
    against       evaluation sets, whose text is removed from the training text
    """
    corpus = open_corpus(name)
    if "train" not in corpus.splits:
        raise bad_data(corpus.name, f"no train split, only {', '.join(corpus.splits)}. Held-out text is never changed.")
    if out.exists():
        raise InvalidSetting(f"{out} exists already. Give a new folder, or remove it first.", key="out", value=str(out))
    evaluation_sets = [open_unsplit(item) for item in against]
    for item in evaluation_sets:
        if not set(item.splits) - {"train"}:
            raise bad_data(item.source, "no held-out split to search for. Give the file with the evaluation text.")
    classifier = _load_or_train_classifier(corpus, good, seed, show_progress) if good else None
    with explain_write_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with explain_write_errors(out.parent), scratch_folder(out.parent) as scratch:
        held_out = [split for split in corpus.splits if split != "train"]
        for split in held_out:
            write_jsonl(scratch / f"{split}.jsonl", (part.document for part in join_passages(corpus.documents(split))))
        steps: list[Step] = []
        documents = corpus.documents("train")
        if classifier is not None:
            classifier.save(scratch / f"quality{CLASSIFIER_SUFFIX}")
            steps.append(Step("quality", facts=asdict(classifier.about) | {"alpha": ALPHA, "seed": seed}))
            documents = _filter_quality(documents, classifier, seed, steps[-1])
        if deduplicate:
            steps.append(Step("duplicates"))
            documents = _filter_duplicates(documents, [scratch / f"{split}.jsonl" for split in held_out], steps[-1])
        with show_progress("cleaning", corpus.bytes("train")) as update:
            write_jsonl(scratch / "train.jsonl", (part.document for part in join_passages(documents)), update)
        if evaluation_sets:
            steps.append(Step("contamination"))
            _decontaminate(scratch / "train.jsonl", evaluation_sets, steps[-1], show_progress)
        report = {"corpus": corpus.name, "source": corpus.source, "steps": [asdict(step) for step in steps]}
        if steps and not steps[-1].documents_left:
            raise bad_data(corpus.name, f"nothing remains after {steps[-1].name}. {_hint(steps[-1])}")
        (scratch / "report.json").write_text(json.dumps(report, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        scratch.chmod(0o755)
        scratch.rename(out)
    return report


def _load_or_train_classifier(corpus: Corpus, good: str, seed: int, show_progress: ShowProgress) -> QualityClassifier:
    """Load a saved quality classifier, or train one to tell the good text from the corpus."""
    if good.endswith(CLASSIFIER_SUFFIX):
        return QualityClassifier.load(Path(good))
    good_corpus = open_unsplit(good)
    with show_progress(f"reading {good_corpus.name}", None) as update:
        positive = sample_texts(training_documents(good_corpus), seed, progress=update)
    with show_progress(f"reading {corpus.name}", corpus.bytes("train")) as update:
        negative = sample_texts(corpus.documents("train"), seed, progress=update)
    return train_classifier(positive, negative, seed, (good_corpus.name, corpus.name))


def _hint(step: Step) -> str:
    if step.name == "quality":
        return "Good and raw text differ too much, perhaps in their format; give good text of the same format."
    return "Is it the same text as the evaluation set?"


def write_jsonl(path: Path, documents: Iterable[Document], update: Callable[..., None] | None = None) -> None:
    """Write one JSON object per document."""
    done = 0
    with open(path, "w", encoding="utf-8") as file:
        for document in documents:
            item = {"id": document.id, "title": document.title, "text": document.text}
            file.write(json.dumps(item, ensure_ascii=False) + "\n")
            done += len(document.text)
            if update:
                update(done)


def _filter_quality(
    documents: Iterable[Document], classifier: QualityClassifier, seed: int, step: Step
) -> Iterator[Document]:
    for document, score, is_kept in score_documents(documents, classifier, seed):
        yield from step.count(document, [document] if is_kept else [], "" if is_kept else f"score {score:.3f}")


def _filter_duplicates(documents: Iterable[Document], held_out: Sequence[Path], step: Step) -> Iterator[Document]:
    index = DuplicateIndex()
    names: list[str] = []
    for path in held_out:
        for document, match in find_duplicates(read(path), index):
            if match.of == NEW:
                names.append(f"{document.title or document.id} ({path.stem})")
    step.facts |= {"threshold": index.threshold, "shingle": index.shingle, "bands": index.bands, "rows": index.rows}
    step.facts["of_held_out"] = 0
    num_held_out = len(names)
    for document, match in find_duplicates(documents, index):
        if match.of == NEW:
            names.append(document.title or document.id)
            yield from step.count(document, [document])
        else:
            step.facts["of_held_out"] += match.of < num_held_out
            step.count(document, [], f"{match.similarity:.0%} as {names[match.of]}")


def _decontaminate(path: Path, against: Sequence[Corpus], step: Step, show_progress: ShowProgress) -> None:
    """Decontaminate a file in place: one pass to count n-grams, and one to cut them out."""
    indexes = [index_held_out(corpus) for corpus in against]
    for index in indexes:
        with show_progress(f"searching {index.name}", path.stat().st_size) as update:
            index.read(read(path), update)
    step.facts["sets"] = [
        {
            "name": index.name,
            "n": index.n,
            "documents": len(index.documents),
            "dirty": sum(verdict.is_dirty for verdict in index.verdicts()),
            "grams": index.size,
            "grams_seen": int((index.seen > 0).sum()),
            "grams_too_common": int((index.seen > MAX_DOCUMENTS).sum()),
        }
        for index in indexes
    ]
    step.facts |= {"cut": 0, "dropped": 0}

    def clean_documents() -> Iterator[Document]:
        for result in remove_contamination(read(path), indexes):
            step.facts["cut"] += bool(result.is_changed and result.left)
            step.facts["dropped"] += not result.left
            yield from step.count(result.document, result.left, f"has “{result.gram}”" if result.is_changed else "")

    new = path.with_name("new.jsonl")
    with show_progress("removing", path.stat().st_size) as update:
        write_jsonl(new, clean_documents(), update)
    new.replace(path)
