"""What a model can do that was told a task in words alone, with k solved examples before the question, or none.

Brown et al., "Language Models are Few-Shot Learners" (2020), §2.4; without shots, Radford et al. (2019). Nothing is
learnt: every answer is read off likelihoods, or off what the model writes.

    sum             the likeliest completion                             P(c | context)
    token, byte     the same per token or byte, so that length is free   P(c | context)^(1/length)
    unconditional   how much the context speaks for it                   P(c | context) / P(c | answer_context)
    word            whether each token of the answer is the likeliest at its place; and the answer's perplexity
    generate        what is written greedily up to a stop string, compared with the answer
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nextword.completions import Likelihood, Progress, likelihoods, window_of, written
from nextword.contract import Greedy, Stop
from nextword.contract_errors import NextwordError, Unsupported
from nextword.evaluation.prompts import DRAWN, LONG, Prompt, Question, draw, fitted, pool_for, question
from nextword.evaluation.tasks import Task
from nextword.evaluation.tasks.measures import Measured, accuracy, bleu, commonest, resampled
from nextword.evaluation.tasks.reading import Example, examples
from nextword.metrics import f1, mcc

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
    if needed not in lm.can or getattr(getattr(lm, "network", None), "from_the_end", False):
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
