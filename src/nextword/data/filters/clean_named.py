"""Clean a corpus by name into a new folder: what `nextword data NAME --out OUT` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from nextword.core.errors import DataError
from nextword.data.corpus import Corpus
from nextword.data.filters.decontaminate import training_documents
from nextword.data.filters.pipeline import check_cleaning, clean_corpus
from nextword.data.filters.quality import QualityClassifier, sample_texts, train_classifier
from nextword.data.opening import open_corpus, open_unsplit

CLASSIFIER_SUFFIX = ".safetensors"

OpenBar = Callable[[str, float | None], AbstractContextManager[Callable[..., None]]]  # (label, total) → update


def clean_named_corpus(
    name: str,
    out: Path,
    open_bar: OpenBar,
    *,
    deduplicate: bool = False,
    good: str = "",
    against: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Write the cleaned corpus to the new folder `out`, and return the report.

    deduplicate   keep the first of near-duplicate documents
    good          keep documents that look like this text; or a saved quality classifier (.safetensors)
    against       evaluation sets, whose text is removed from the training text
    """
    corpus = open_corpus(name)
    check_cleaning(corpus, out)
    held_out = [open_unsplit(item) for item in against]
    for item in held_out:
        if not set(item.splits) - {"train"}:
            raise DataError(
                f"{item.name} has no held-out split to search for. Give the file with the evaluation text.",
                path=item.source,
            )
    classifier = _load_or_train_classifier(corpus, good, seed, open_bar) if good else None
    return clean_corpus(
        corpus, out, open_bar, deduplicate=deduplicate, classifier=classifier, against=held_out, seed=seed
    )


def _load_or_train_classifier(corpus: Corpus, good: str, seed: int, open_bar: OpenBar) -> QualityClassifier:
    """A saved quality classifier, or one trained to tell the good text from the corpus."""
    if good.endswith(CLASSIFIER_SUFFIX):
        return QualityClassifier.load(Path(good))
    good_corpus = open_unsplit(good)
    with open_bar(f"reading {good_corpus.name}", None) as update:
        positive = sample_texts(training_documents(good_corpus), seed, progress=update)
    with open_bar(f"reading {corpus.name}", corpus.bytes("train")) as update:
        negative = sample_texts(corpus.documents("train"), seed, progress=update)
    return train_classifier(positive, negative, seed, (good_corpus.name, corpus.name))
