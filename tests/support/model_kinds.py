"""Which contract a slug's model keeps: told by what its class has, never by its name."""

from __future__ import annotations

from nextword.models import MODELS, model_class


def is_conditional(slug: str) -> bool:
    """It writes from a source: tests/contract/test_seq2seq.py."""
    return bool(model_class(slug).is_conditional)


def tags(slug: str) -> bool:
    """It reads words to be tagged, and models no text: tests/unit/test_tagging.py."""
    return bool(model_class(slug).is_tagger)


def models_text(slug: str) -> bool:
    """It gives texts probabilities: tests/contract/test_language_models.py."""
    return (
        not is_conditional(slug)
        and not tags(slug)
        and any(hasattr(model_class(slug), name) for name in ("start", "fill"))
    )


def vectored() -> list[str]:
    """Those that give words vectors and no probabilities: tests/contract/test_word_vectors.py."""
    return [slug for slug in MODELS if not is_conditional(slug) and not tags(slug) and not models_text(slug)]
