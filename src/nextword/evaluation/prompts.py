"""From a task and an example to a prompt: templates filled in, shots drawn and put before, and made to fit a window.

    {instruction}{shot 1}{answer 1}{separator}{shot 2}{answer 2}{separator}{question}   …{completion}

Shots are drawn by (seed, number of the example) alone, so that a sample of the examples sees the same ones. Where a
prompt is longer than the window, shots fall away from the front.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nextword.completions import window_of
from nextword.contract_errors import NextwordError
from nextword.evaluation.tasks import PLACE, Task
from nextword.evaluation.tasks.reading import Example

DRAWN = ("item", "once")
LONG = ("slide", "error")


@dataclass(frozen=True)
class Question:
    context: str
    choices: tuple[str, ...]  # the completions to choose from; the right one alone, where it is to be written
    gold: int = 0

    @property
    def answer(self) -> str:
        return self.choices[self.gold]

    @property
    def solved(self) -> str:
        return self.context + self.answer


@dataclass(frozen=True)
class Prompt:
    text: str
    shots: int  # that are in it
    slides: bool = False  # longer than the window even without shots


def question(task: Task, example: Example) -> Question:
    context = fill(task.context, example, task.name)
    if task.answer:
        return Question(context, (fill(task.answer, example, task.name),))
    label = example.get(task.gold, "").strip()
    gold = task.labels.get(label)
    if gold is None or not 0 <= gold < len(task.choices):
        known = ", ".join(task.labels)
        raise NextwordError(f"{task.name}: the label {label!r} is not among those the task knows: {known}.")
    return Question(context, tuple(fill(choice, example, task.name) for choice in task.choices), gold)


def fill(template: str, example: Mapping[str, str], name: str) -> str:
    """`{field}` becomes that field's text, in which braces mean nothing."""

    def value(found: Any) -> str:
        if found[1] not in example:
            raise NextwordError(f"{name}: a template names {{{found[1]}}}; the fields are {', '.join(example)}.")
        return example[found[1]]

    return PLACE.sub(value, template)


def draw(pool: Sequence[Question], count: int, seed: int, index: int) -> list[Question]:
    """`count` of the pool, none twice, for the example of this number."""
    return random.Random(f"{seed} {index}").sample(pool, count) if count else []


def pool_for(task: Task, candidates: Sequence[Question], asked: Sequence[Question], shots: int) -> list[Question]:
    """What shots may be drawn from: none of the questions that are asked, wherever it was found."""
    contexts = {one.context for one in asked}
    pool = [one for one in candidates if one.context not in contexts]
    if shots > len(pool):
        raise NextwordError(
            f"{shots} shots were asked for, but {task.name} has {len(pool):,} examples to draw them from (split "
            f"'{task.shots_from}', without those that are asked). Ask for at most so many."
        )
    return pool


def write(task: Task, shots: Sequence[Question], asked: Question) -> str:
    return task.instruction + task.separator.join([*(shot.solved for shot in shots), asked.context])


def fitted(
    lm: Any, task: Task, shots: Sequence[Sequence[Question]], asked: Sequence[Question], long: str = "slide"
) -> list[Prompt]:
    """One prompt a question, with as many of its shots, the last ones, as leave room for the longest completion.

    Where not even the bare question fits: with "slide" the window moves on over it, with "error" it is refused.
    """
    kept = [list(some) for some in shots]
    window = window_of(lm)
    texts = [write(task, some, one) for some, one in zip(kept, asked, strict=True)]
    slides = [False] * len(texts)
    open_ = list(range(len(texts))) if window else []
    while open_:
        sizes = _sizes(lm, task, [texts[i] for i in open_], [asked[i] for i in open_])
        over = [(i, size) for i, size in zip(open_, sizes, strict=True) if size > (window or size)]
        open_ = []
        for i, size in over:
            if kept[i]:
                kept[i] = kept[i][1:]
                texts[i] = write(task, kept[i], asked[i])
                open_.append(i)
            elif long == "error":
                raise NextwordError(
                    f"{task.name}: a question has {size:,} tokens with its answer, even without shots, and the model's "
                    f"window is {window:,}. Take a model with a longer one, or let the window move on: "
                    "--set task.long=slide."
                )
            else:
                slides[i] = True
    return [Prompt(t, len(k), s) for t, k, s in zip(texts, kept, slides, strict=True)]


def _sizes(lm: Any, task: Task, texts: Sequence[str], asked: Sequence[Question]) -> list[int]:
    """Tokens of each prompt with the longest of its completions, or with room to write one."""
    if task.by_generation:
        return [len(encoding) + task.length for encoding in lm.tokenizer.encode_batch(list(texts))]
    whole = [text + choice for text, one in zip(texts, asked, strict=True) for choice in one.choices]
    sizes = iter([len(encoding) for encoding in lm.tokenizer.encode_batch(whole)])
    return [max(next(sizes) for _ in one.choices) for one in asked]
