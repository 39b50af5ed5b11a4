"""What stands for the labels of a task where they are written, or asked of a language model: the strings of numbers,
and the tokens of either, which have to differ.
"""

from __future__ import annotations

from typing import Any

from nextword.core.errors import NextwordError
from nextword.models import model_class
from nextword.run_folder import RunFolder
from nextword.tasks.settings import Settings
from nextword.tasks.worded import DIGITS, KNOWN, WORDS, check_writes, numbers_of, spelled
from nextword.tokenizers.loading import load_tokenizer

OF_TEXTS = ("classify", "pair", "regress")


def in_words_of(asked: Settings, data: Any, run: RunFolder | None) -> tuple[tuple[str, ...], list[list[int]]]:
    """The strings of numbers, where the task is of those, and the tokens of what is written; or nothing."""
    numbers = numbers_of(asked.step, asked.worded or asked.prompted, data)
    if not asked.worded and not (asked.prompted and numbers and run):
        return numbers, []
    if data.kind not in OF_TEXTS or run is None:
        what = f"{data.name} is of kind {data.kind}" if run else "there is no run to transfer"
        raise NextwordError(
            f"[task] classifier = '{WORDS}' writes classes of texts, or numbers, and {what}. Take another recipe."
        )
    if asked.worded:
        check_writes(model_class(run.recipe.slug))
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    found = spelled(tokenizer, numbers or data.labels, asked.words, DIGITS.format(data.name) if numbers else KNOWN)
    return numbers, [list(one) for one in found] if asked.worded else []  # lists, as TOML has them
