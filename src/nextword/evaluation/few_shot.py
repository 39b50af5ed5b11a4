"""Few-shot and zero-shot evaluation: pose a task as text, with k solved examples before the question, without training.

Brown et al., "Language Models are Few-Shot Learners" (2020), §2.4; without shots, Radford et al. (2019). Answers are
read off likelihoods, or off what the model generates:

    sum             the likeliest choice                                  P(c | context)
    token, byte     the same per token or byte, to cancel the length      P(c | context)^(1/length)
    unconditional   relative to a neutral context                         P(c | context) / P(c | answer_context)
    word            whether greedy decoding would produce the answer; and the answer's perplexity
    generate        the greedy continuation up to a stop string, compared with the answer

A prompt is

    {instruction}{shot 1}{answer 1}{separator}{shot 2}{answer 2}{separator}{question}   …{completion}

Shots depend only on the seed and the number of the example, so that a sample of the examples sees the same shots. If a
prompt is longer than the model's window, shots are dropped from the front.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from re import Match
from typing import Any

import numpy as np

from nextword.core.errors import DataError, InvalidSetting, Unsupported
from nextword.core.types import Greedy, Stop
from nextword.evaluation.prompt_tasks import PLACEHOLDER, Example, PromptTask, majority_share, read_examples
from nextword.lm.completion import CompletionScore, Progress, context_window, generate_texts, score_completions
from nextword.metrics.bleu import bleu_with_interval
from nextword.metrics.classification import f1, mcc
from nextword.metrics.intervals import Estimate, accuracy_with_interval, bootstrap_metric

DRAWN = ("item", "once")  # shots drawn for each question, or the same for all
OVERFLOW = ("slide", "error")
PROMPTS_IN_MEMORY = 2048
GENERATION_BATCH = 64


@dataclass(frozen=True)
class Question:
    context: str
    choices: tuple[str, ...]  # possible completions; the answer alone where it is to be generated
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
    shots: int  # that it contains
    slides: bool = False  # longer than the window even without shots


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
    baselines: dict[str, float]  # scores without reading the questions
    shots: int
    drawn: str  # "item": for each question; "once": the same for all
    shots_from: str
    seed: int
    dropped: int  # shots that did not fit, and in how many prompts
    shortened: int
    slid: int  # questions longer than the window by themselves
    unknown: int  # questions whose completions contain an out-of-vocabulary word
    ties: int
    seconds: float
    window: int | None = None
    perplexity: float | None = None  # of the answers, for the rule "word"
    notes: tuple[str, ...] = ()
    published: tuple[Any, ...] = ()
    first: dict[str, Any] = field(default_factory=dict)  # the first prompt, the expected and the predicted answer

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "notes": list(self.notes), "published": [dict(row) for row in self.published]}


@dataclass
class _Answers:
    """The prediction for each question (the index of a choice, or a text), and whether it is right."""

    predicted: list[Any] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    nats: float = 0.0
    unknown: int = 0
    ties: int = 0


def evaluate_task(
    lm: Any,
    task: PromptTask,
    shots: int = 0,
    *,
    seed: int = 0,
    limit: int | None = None,
    drawn: str = "item",
    overflow: str = "slide",
    folder: str | Path | None = None,
    given: tuple[Sequence[Example], Sequence[Example]] | None = None,
    progress: Progress | None = None,
) -> TaskResult:
    """Ask every example of the task's split, or a sample of `limit`.

    `folder` is where the data is, if not where the catalog finds it; `given` replaces the data: (examples to draw shots
    from, examples to ask).
    """
    _check(lm, task, shots, limit, drawn, overflow)
    start = time.perf_counter()
    if given is None:
        asked_examples = read_examples(task, task.split, folder)
        shot_examples = read_examples(task, task.shots_from, folder) if shots else []
    else:
        shot_examples, asked_examples = list(given[0]), list(given[1])
    all_questions = [make_question(task, example) for example in asked_examples]
    pool = shot_pool(task, [make_question(task, example) for example in shot_examples], all_questions, shots)
    indices = list(range(len(all_questions)))
    if limit is not None and limit < len(indices):
        indices = sorted(random.Random(f"{seed} sample").sample(indices, limit))
    questions = [all_questions[i] for i in indices]
    answers = _Answers()
    prompts: list[Prompt] = []
    for first in range(0, len(questions), PROMPTS_IN_MEMORY):
        batch = questions[first : first + PROMPTS_IN_MEMORY]
        batch_indices = indices[first : first + PROMPTS_IN_MEMORY]
        batch_shots = [draw_shots(pool, shots, seed, i if drawn == "item" else -1) for i in batch_indices]
        batch_prompts = fit_prompts(lm, task, batch_shots, batch, overflow)
        update = _partial_progress(progress, first, len(batch), len(questions))
        _answer(lm, task, batch_prompts, batch, answers, seed, update)
        prompts += batch_prompts
    estimate, note = _measure(task, questions, answers)
    dropped = [shots - prompt.shots for prompt in prompts]
    return TaskResult(
        task.name,
        task.title,
        task.data,
        task.split,
        task.metric,
        task.rule,
        estimate.value,
        estimate.low,
        estimate.high,
        len(questions),
        len(all_questions),
        _baselines(task, questions),
        shots,
        drawn,
        task.shots_from,
        seed,
        sum(dropped),
        sum(1 for count in dropped if count),
        sum(prompt.slides for prompt in prompts),
        answers.unknown,
        answers.ties,
        time.perf_counter() - start,
        context_window(lm),
        _exp(answers.nats / len(questions)) if task.rule == "word" else None,
        tuple(text for text in (task.note, note) if text),
        task.published,
        {
            "prompt": prompts[0].text,
            "expected": questions[0].answer,
            "predicted": _as_text(questions[0], answers.predicted[0]),
        },
    )


def _check(lm: Any, task: PromptTask, shots: int, limit: int | None, drawn: str, overflow: str) -> None:
    ability = "generate" if task.by_generation else "score"
    if ability not in lm.can or lm.network.is_backward:
        raise Unsupported(
            f"Task {task.name} needs a left-to-right model that can {ability}; this one can "
            f"{', '.join(sorted(lm.can)) or 'do neither'}.",
            ability=ability,
        )
    if shots < 0:
        raise InvalidSetting(f"--shots {shots}: give 0 or more.", key="shots", value=shots)
    if limit is not None and limit < 1:
        raise InvalidSetting(f"--limit {limit}: give at least 1 question.", key="limit", value=limit)
    for key, value, known in (("drawn", drawn, DRAWN), ("overflow", overflow, OVERFLOW)):
        if value not in known:
            raise InvalidSetting(f"task.{key} = {value!r}: use {' or '.join(known)}.", key=f"task.{key}", value=value)


def _partial_progress(progress: Progress | None, first: int, count: int, total: int) -> Progress | None:
    """The progress of one batch as part of the whole."""
    if progress is None:
        return None
    return lambda done, of: progress(first + count * done / max(1, of or 1), total)


# ------------------------------------------------------------------------------------------------ prompts


def make_question(task: PromptTask, example: Example) -> Question:
    context = fill_template(task.context, example, task.name)
    if task.answer:
        return Question(context, (fill_template(task.answer, example, task.name),))
    label = example.get(task.gold, "").strip()
    gold = task.labels.get(label)
    if gold is None or not 0 <= gold < len(task.choices):
        raise DataError(
            f"{task.name}: the label {label!r} is not one of the task's labels: {', '.join(task.labels)}.",
            path=task.data,
        )
    return Question(context, tuple(fill_template(choice, example, task.name) for choice in task.choices), gold)


def fill_template(template: str, example: Mapping[str, str], name: str) -> str:
    """Replace each `{field}` by that field's text; braces inside the text mean nothing."""

    def value(match: Match[str]) -> str:
        if match[1] not in example:
            raise InvalidSetting(
                f"{name}: a template uses {{{match[1]}}}, but the fields are {', '.join(example)}.",
                key=match[1],
                value=template,
            )
        return example[match[1]]

    return PLACEHOLDER.sub(value, template)


def draw_shots(pool: Sequence[Question], count: int, seed: int, index: int) -> list[Question]:
    """`count` different questions of the pool for the example of this index."""
    return random.Random(f"{seed} {index}").sample(pool, count) if count else []


def shot_pool(
    task: PromptTask, candidates: Sequence[Question], asked: Sequence[Question], shots: int
) -> list[Question]:
    """What shots may be drawn from: none of the questions that are asked."""
    contexts = {question.context for question in asked}
    pool = [question for question in candidates if question.context not in contexts]
    if shots > len(pool):
        raise InvalidSetting(
            f"--shots {shots}: {task.name} has only {len(pool):,} examples to draw shots from (split "
            f"'{task.shots_from}', without the questions asked).",
            key="shots",
            value=shots,
        )
    return pool


def write_prompt(task: PromptTask, shots: Sequence[Question], question: Question) -> str:
    return task.instruction + task.separator.join([*(shot.solved for shot in shots), question.context])


def fit_prompts(
    lm: Any,
    task: PromptTask,
    shots: Sequence[Sequence[Question]],
    questions: Sequence[Question],
    overflow: str = "slide",
) -> list[Prompt]:
    """One prompt per question, with as many of its last shots as leave room for the longest completion.

    A question that does not fit even without shots: with "slide" the window slides over it, "error" raises.
    """
    remaining = [list(prompt_shots) for prompt_shots in shots]
    window = context_window(lm)
    texts = [write_prompt(task, some, question) for some, question in zip(remaining, questions, strict=True)]
    slides = [False] * len(texts)
    unchecked = list(range(len(texts))) if window else []
    while unchecked:
        sizes = _prompt_sizes(lm, task, [texts[i] for i in unchecked], [questions[i] for i in unchecked])
        too_long = [(i, size) for i, size in zip(unchecked, sizes, strict=True) if size > (window or size)]
        unchecked = []
        for i, size in too_long:
            if remaining[i]:
                remaining[i] = remaining[i][1:]
                texts[i] = write_prompt(task, remaining[i], questions[i])
                unchecked.append(i)
            elif overflow == "error":
                raise InvalidSetting(
                    f"{task.name}: a question has {size:,} tokens with its answer, but the model's window is "
                    f"{window:,}. Use a model with a longer window, or --set task.overflow=slide.",
                    key="task.overflow",
                    value=overflow,
                )
            else:
                slides[i] = True
    return [Prompt(t, len(r), s) for t, r, s in zip(texts, remaining, slides, strict=True)]


def _prompt_sizes(lm: Any, task: PromptTask, texts: Sequence[str], questions: Sequence[Question]) -> list[int]:
    """Tokens of each prompt with the longest of its completions, or with room to generate one."""
    if task.by_generation:
        return [len(encoding) + task.length for encoding in lm.tokenizer.encode_batch(list(texts))]
    completed = [text + choice for text, question in zip(texts, questions, strict=True) for choice in question.choices]
    sizes = iter([len(encoding) for encoding in lm.tokenizer.encode_batch(completed)])
    return [max(next(sizes) for _ in question.choices) for question in questions]


# ------------------------------------------------------------------------------------------------ answers


def _answer(
    lm: Any,
    task: PromptTask,
    prompts: Sequence[Prompt],
    questions: Sequence[Question],
    answers: _Answers,
    seed: int,
    progress: Progress | None,
) -> None:
    """Append the answers to these questions."""
    if task.by_generation:
        _generate_answers(lm, task, prompts, questions, answers, progress)
    elif task.rule == "word":
        contexts = [prompt.text for prompt in prompts]
        parts = score_completions(lm, [q.answer for q in questions], contexts, greedy=True, progress=progress)
        answers.predicted += [q.answer if part.greedy else None for q, part in zip(questions, parts, strict=True)]
        answers.right += [bool(part.greedy) for part in parts]
        answers.nats += sum(part.nats for part in parts)
        answers.unknown += sum(part.unknown for part in parts)
    else:
        _choose_answers(lm, task, prompts, questions, answers, seed, progress)


def _generate_answers(
    lm: Any,
    task: PromptTask,
    prompts: Sequence[Prompt],
    questions: Sequence[Question],
    answers: _Answers,
    progress: Progress | None,
) -> None:
    stop = Stop(task.length, task.stop)
    for start in range(0, len(questions), GENERATION_BATCH):
        end = start + GENERATION_BATCH
        texts = generate_texts(lm, [prompt.text for prompt in prompts[start:end]], Greedy(), stop)
        for text, question in zip(texts, questions[start:end], strict=True):
            answers.predicted.append(text.strip())
            answers.right.append(text.strip() == question.answer.strip())
        if progress:
            progress(min(end, len(questions)), len(questions))


def _choose_answers(
    lm: Any,
    task: PromptTask,
    prompts: Sequence[Prompt],
    questions: Sequence[Question],
    answers: _Answers,
    seed: int,
    progress: Progress | None,
) -> None:
    choices = [choice for question in questions for choice in question.choices]
    contexts = [prompt.text for prompt, question in zip(prompts, questions, strict=True) for _ in question.choices]
    parts = score_completions(lm, choices, contexts, progress=progress)
    prior: dict[str, CompletionScore] = {}
    if task.rule == "unconditional":
        distinct = list(dict.fromkeys(choices))
        prior = dict(zip(distinct, score_completions(lm, distinct, [task.answer_context] * len(distinct)), strict=True))
    costs = [_cost(task.rule, part, prior.get(choice)) for choice, part in zip(choices, parts, strict=True)]
    start = 0
    for question in questions:
        end = start + len(question.choices)
        answers.unknown += any(part.unknown for part in parts[start:end])
        lowest = min(costs[start:end])
        best = [i for i, cost in enumerate(costs[start:end]) if cost == lowest]
        start = end
        answers.ties += len(best) > 1
        # A tie is broken at random: the order of the choices must not decide.
        tie_breaker = random.Random(f"{seed} tie {len(answers.predicted)}")
        choice = best[0] if len(best) == 1 else tie_breaker.choice(best)
        answers.predicted.append(choice)
        answers.right.append(choice == question.gold)


def _cost(rule: str, part: CompletionScore, prior: CompletionScore | None) -> float:
    if rule == "token":
        return part.nats / max(1, part.tokens)
    if rule == "byte":
        return part.nats / max(1, part.bytes)
    if prior is not None:
        return part.nats - prior.nats if math.isfinite(part.nats) else math.inf
    return part.nats


# ------------------------------------------------------------------------------------------------ metrics


def _measure(task: PromptTask, questions: Sequence[Question], answers: _Answers) -> tuple[Estimate, str]:
    """The metric with its interval, and a note on how it was computed."""
    if task.metric == "bleu":
        return bleu_with_interval(answers.predicted, [question.answer.strip() for question in questions])
    gold = [question.gold for question in questions]
    if task.metric == "mcc":
        return bootstrap_metric(mcc, gold, answers.predicted), ""
    if task.metric == "f1":
        return bootstrap_metric(lambda g, p: f1(g, p, task.positive), gold, answers.predicted), ""
    return accuracy_with_interval(answers.right), ""


def _baselines(task: PromptTask, questions: Sequence[Question]) -> dict[str, float]:
    if task.metric == "bleu":
        return {}
    if task.metric == "mcc":
        return {"constant": 0.0}
    if task.metric == "f1":
        gold = np.array([question.gold for question in questions])
        return {"always positive": f1(gold, np.full_like(gold, task.positive), task.positive)}
    baselines = {}
    if task.has_fixed_choices or not task.choices:
        baselines["majority"] = majority_share([question.answer for question in questions])
    if task.choices:
        baselines["chance"] = float(np.mean([1 / len(question.choices) for question in questions]))
    return baselines


def _as_text(question: Question, predicted: Any) -> Any:
    return question.choices[predicted] if isinstance(predicted, int) else predicted


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
