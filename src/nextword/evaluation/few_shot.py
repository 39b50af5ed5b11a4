"""What a model can do that was told a task in words alone, with k solved examples before the question, or none.

Brown et al., "Language Models are Few-Shot Learners" (2020), §2.4; without shots, Radford et al. (2019). Nothing is
learnt: every answer is read off likelihoods, or off what the model writes.

    sum             the likeliest completion                             P(c | context)
    token, byte     the same per token or byte, so that length is free   P(c | context)^(1/length)
    unconditional   how much the context speaks for it                   P(c | context) / P(c | answer_context)
    word            whether each token of the answer is the likeliest at its place; and the answer's perplexity
    generate        what is written greedily up to a stop string, compared with the answer

From a task and an example to a prompt: templates filled in, shots drawn and put before, and made to fit a window.

    {instruction}{shot 1}{answer 1}{separator}{shot 2}{answer 2}{separator}{question}   …{completion}

Shots are drawn by (seed, number of the example) alone, so that a sample of the examples sees the same ones. Where a
prompt is longer than the window, shots fall away from the front.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import Greedy, Stop
from nextword.evaluation.prompt_tasks import (
    PLACE,
    Example,
    Measured,
    Task,
    accuracy,
    bleu,
    commonest,
    examples,
    resampled,
)
from nextword.lm.completion import Likelihood, Progress, likelihoods, window_of, written
from nextword.metrics.classification import f1, mcc

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


TOGETHER = 2048  # prompts in memory at once
WRITTEN = 64  # that are continued side by side


@dataclass(frozen=True)
class TaskResult:
    task: str
    title: str
    data: str
    split: str
    metric: str
    rule: str
    value: float
    low: float  # 95 % interval
    high: float
    count: int  # questions asked, of `of` in the split
    of: int
    baselines: dict[str, float]  # what one gets without reading the questions
    shots: int
    drawn: str  # "item": for each question anew; "once": the same for all
    shots_from: str
    seed: int
    dropped: int  # shots that did not fit, and in how many prompts
    shortened: int
    slid: int  # questions that are longer than the window by themselves
    unknown: int  # questions with a word outside the vocabulary among the completions
    ties: int
    seconds: float
    window: int | None = None
    perplexity: float | None = None  # of the answers, where they are words
    notes: tuple[str, ...] = ()
    published: tuple[Any, ...] = ()
    first: dict[str, Any] = field(default_factory=dict)  # the first prompt, what was wanted and what was said

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "notes": list(self.notes), "published": [dict(one) for one in self.published]}


@dataclass
class _Answers:
    """What was said to each question: the number of a choice, or a text; and whether it is right."""

    said: list[Any]
    right: list[bool]
    nats: float = 0.0
    unknown: int = 0
    ties: int = 0


def evaluate_task(
    lm: Any,
    task: Task,
    shots: int = 0,
    *,
    seed: int = 0,
    limit: int | None = None,
    drawn: str = "item",
    long: str = "slide",
    folder: str | Path | None = None,
    given: tuple[Sequence[Example], Sequence[Example]] | None = None,
    progress: Progress | None = None,
) -> TaskResult:
    """Ask every example of the task's split, or a sample of `limit`; `given` are (shots to draw from, examples)."""
    _check(lm, task, shots, limit, drawn, long)
    began = time.perf_counter()
    if given is None:
        scored = examples(task, task.split, folder)
        source = examples(task, task.shots_from, folder) if shots else []
    else:
        source, scored = list(given[0]), list(given[1])
    everything = [question(task, example) for example in scored]
    pool = pool_for(task, [question(task, one) for one in source], everything, shots)
    numbers = list(range(len(everything)))
    if limit is not None and limit < len(numbers):
        numbers = sorted(random.Random(f"{seed} sample").sample(numbers, limit))
    asked = [everything[i] for i in numbers]
    found = _Answers([], [])
    prompts: list[Prompt] = []
    for at in range(0, len(asked), TOGETHER):
        some = asked[at : at + TOGETHER]
        chosen = [draw(pool, shots, seed, i if drawn == "item" else -1) for i in numbers[at : at + TOGETHER]]
        written = fitted(lm, task, chosen, some, long)
        _answer(lm, task, written, some, found, seed, progress, at, len(asked))
        prompts += written
    measured, note = _measure(task, asked, found)
    cut = [shots - prompt.shots for prompt in prompts]
    return TaskResult(
        task.name,
        task.title,
        task.data,
        task.split,
        task.metric,
        task.rule,
        measured.value,
        measured.low,
        measured.high,
        len(asked),
        len(everything),
        _baselines(task, asked),
        shots,
        drawn,
        task.shots_from,
        seed,
        sum(cut),
        sum(1 for count in cut if count),
        sum(prompt.slides for prompt in prompts),
        found.unknown,
        found.ties,
        time.perf_counter() - began,
        window_of(lm),
        _exp(found.nats / len(asked)) if task.rule == "word" else None,
        tuple(one for one in (task.note, note) if one),
        task.published,
        {"prompt": prompts[0].text, "wanted": asked[0].answer, "said": _words(asked[0], found.said[0])},
    )


def _check(lm: Any, task: Task, shots: int, limit: int | None, drawn: str, long: str) -> None:
    needed = "generate" if task.by_generation else "score"
    if needed not in lm.can or getattr(getattr(lm, "network", None), "is_backward", False):
        raise Unsupported(
            f"The task {task.name} needs a model that can {needed}; this one can "
            f"{', '.join(sorted(lm.can)) or 'nothing of the kind'}. Use one that reads from left to right."
        )
    if shots < 0:
        raise NextwordError(f"{shots} shots: give 0 or more.")
    if limit is not None and limit < 1:
        raise NextwordError(f"A sample of {limit} questions: give 1 or more.")
    for key, value, known in (("drawn", drawn, DRAWN), ("long", long, LONG)):
        if value not in known:
            raise NextwordError(f"task.{key} = {value!r}; expected {' or '.join(known)}.")


# ------------------------------------------------------------------------------------------------ answers


def _answer(
    lm: Any,
    task: Task,
    prompts: Sequence[Prompt],
    asked: Sequence[Question],
    found: _Answers,
    seed: int,
    progress: Progress | None,
    at: int,
    total: int,
) -> None:
    update: Progress | None = None
    if progress:
        update = lambda done, of: progress(at + len(asked) * done / max(1, of or 1), total)  # noqa: E731
    if task.by_generation:
        _write(lm, task, prompts, asked, found, update)
    elif task.rule == "word":
        parts = likelihoods(lm, [one.answer for one in asked], [p.text for p in prompts], greedy=True, progress=update)
        found.said += [one.answer if part.greedy else None for one, part in zip(asked, parts, strict=True)]
        found.right += [bool(part.greedy) for part in parts]
        found.nats += sum(part.nats for part in parts)
        found.unknown += sum(part.unknown for part in parts)
    else:
        _choose(lm, task, prompts, asked, found, seed, update)


def _write(
    lm: Any, task: Task, prompts: Sequence[Prompt], asked: Sequence[Question], found: _Answers, update: Progress | None
) -> None:
    stop = Stop(task.length, task.stop)
    for at in range(0, len(asked), WRITTEN):
        texts = written(lm, [prompt.text for prompt in prompts[at : at + WRITTEN]], Greedy(), stop)
        for text, one in zip(texts, asked[at : at + WRITTEN], strict=True):
            found.said.append(text.strip())
            found.right.append(text.strip() == one.answer.strip())
        if update:
            update(min(at + WRITTEN, len(asked)), len(asked))


def _choose(
    lm: Any,
    task: Task,
    prompts: Sequence[Prompt],
    asked: Sequence[Question],
    found: _Answers,
    seed: int,
    update: Progress | None,
) -> None:
    texts = [choice for one in asked for choice in one.choices]
    given = [prompt.text for prompt, one in zip(prompts, asked, strict=True) for _ in one.choices]
    parts = likelihoods(lm, texts, given, progress=update)
    prior: dict[str, Likelihood] = {}
    if task.rule == "unconditional":
        distinct = list(dict.fromkeys(texts))
        prior = dict(zip(distinct, likelihoods(lm, distinct, [task.answer_context] * len(distinct)), strict=True))
    costs = [_cost(task.rule, part, prior.get(text)) for text, part in zip(texts, parts, strict=True)]
    at = 0
    for one in asked:
        mine = costs[at : at + len(one.choices)]
        found.unknown += any(part.unknown for part in parts[at : at + len(one.choices)])
        at += len(one.choices)
        best = [i for i, cost in enumerate(mine) if cost == min(mine)]
        found.ties += len(best) > 1
        # what a model finds equal, it does not know: the place of a choice must not decide
        said = best[0] if len(best) == 1 else random.Random(f"{seed} tie {len(found.said)}").choice(best)
        found.said.append(said)
        found.right.append(said == one.gold)


def _cost(rule: str, part: Likelihood, prior: Likelihood | None) -> float:
    if rule == "token":
        return part.nats / max(1, part.tokens)
    if rule == "byte":
        return part.nats / max(1, part.bytes)
    if prior is not None:
        return part.nats - prior.nats if math.isfinite(part.nats) else math.inf
    return part.nats


# ------------------------------------------------------------------------------------------------ numbers


def _measure(task: Task, asked: Sequence[Question], found: _Answers) -> tuple[Measured, str]:
    if task.metric == "bleu":
        return bleu(found.said, [one.answer.strip() for one in asked])
    gold = [one.gold for one in asked]
    if task.metric == "mcc":
        return resampled(mcc, gold, found.said), ""
    if task.metric == "f1":
        return resampled(lambda g, s: f1(g, s, task.positive), gold, found.said), ""
    return accuracy(found.right), ""


def _baselines(task: Task, asked: Sequence[Question]) -> dict[str, float]:
    if task.metric == "bleu":
        return {}
    if task.metric == "mcc":
        return {"constant": 0.0}
    if task.metric == "f1":
        gold = np.array([one.gold for one in asked])
        return {"always positive": f1(gold, np.full_like(gold, task.positive), task.positive)}
    majority = commonest([one.answer for one in asked]) if task.fixed or not task.choices else None
    found = {} if majority is None else {"majority": majority}
    if task.choices:
        found["chance"] = float(np.mean([1 / len(one.choices) for one in asked]))
    return found


def _words(one: Question, said: Any) -> Any:
    return one.choices[said] if isinstance(said, int) else said


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
