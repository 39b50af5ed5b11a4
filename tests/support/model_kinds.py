"""Which contract the model of a slug fulfills, judged by the attributes of its class, never by its name."""

from __future__ import annotations

from nextword.models import MODELS, model_class


def is_conditional(slug: str) -> bool:
    """Whether it generates from a source: tests/contract/test_seq2seq.py."""
    return bool(model_class(slug).is_conditional)


def is_tagger(slug: str) -> bool:
    """Whether it tags words and models no text: tests/unit/tasks/test_tagging.py."""
    return bool(model_class(slug).is_tagger)


def is_language_model(slug: str) -> bool:
    """Whether it gives texts probabilities: tests/contract/test_language_models.py."""
    return (
        not is_conditional(slug)
        and not is_tagger(slug)
        and any(hasattr(model_class(slug), name) for name in ("start", "fill"))
    )


def list_word_vector_slugs() -> list[str]:
    """List the models that have only word vectors: tests/contract/test_word_vectors.py."""
    return [slug for slug in MODELS if not is_conditional(slug) and not is_tagger(slug) and not is_language_model(slug)]
