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
from functools import partial
from pathlib import Path
from re import Match

import numpy as np

from nextword.core.errors import DataError, Unsupported, invalid
from nextword.core.types import Greedy, Progress, Stop, ignore_progress, safe_exp
from nextword.evaluation.prompt_tasks import PLACEHOLDER, Example, PromptTask, majority_share, read_examples
from nextword.lm.base import TextModel
from nextword.lm.completion import CompletionScore, context_window, generate_texts, score_completions
from nextword.metrics.classification import f1, mcc
from nextword.metrics.intervals import Estimate, accuracy_with_interval, bootstrap_metric
from nextword.metrics.text_generation import bleu_with_interval

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
    published: tuple[Mapping[str, object], ...] = ()
    first: Mapping[str, str | None] = field(
        default_factory=dict
    )  # the first prompt, the expected and the predicted answer

    def as_dict(self) -> dict[str, object]:
        return {**self.__dict__, "notes": list(self.notes), "published": [dict(row) for row in self.published]}


def evaluate_task(
    lm: TextModel,
    task: PromptTask,
    shots: int = 0,
    *,
    seed: int = 0,
    limit: int | None = None,
    drawn: str = "item",
    overflow: str = "slide",
    folder: str | Path | None = None,
    given: tuple[Sequence[Example], Sequence[Example]] | None = None,
    progress: Progress = ignore_progress,
) -> TaskResult:
    """Ask every example of the task's split, or a sample of `limit`.

    `folder` is where the data is, if not where the catalog finds it; `given` replaces the data: (examples to draw shots
    from, examples to ask).
    """
    _check(lm, task, shots, limit, drawn, overflow)
    started = time.perf_counter()
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
    answers = _Answers(lm, task, seed)
    prompts: list[Prompt] = []
    for start in range(0, len(questions), PROMPTS_IN_MEMORY):
        batch = questions[start : start + PROMPTS_IN_MEMORY]
        seeds = indices[start : start + PROMPTS_IN_MEMORY] if drawn == "item" else [-1] * len(batch)
        batch_prompts = fit_prompts(lm, task, [draw_shots(pool, shots, seed, i) for i in seeds], batch, overflow)
        update = partial(_report_part, progress, start, len(batch), len(questions))
        answers.add([prompt.text for prompt in batch_prompts], batch, update)
        prompts += batch_prompts
    estimate, note = _measure(task, questions, answers)
    dropped = [shots - prompt.shots for prompt in prompts]
    return TaskResult(
        task=task.name,
        title=task.title,
        data=task.data,
        split=task.split,
        metric=task.metric,
        rule=task.rule,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        count=len(questions),
        of=len(all_questions),
        baselines=_baselines(task, questions),
        shots=shots,
        drawn=drawn,
        shots_from=task.shots_from,
        seed=seed,
        dropped=sum(dropped),
        shortened=sum(count > 0 for count in dropped),
        slid=sum(prompt.slides for prompt in prompts),
        unknown=answers.unknown,
        ties=answers.ties,
        seconds=time.perf_counter() - started,
        window=context_window(lm),
        perplexity=safe_exp(answers.nats / len(questions)) if task.rule == "word" else None,
        notes=tuple(text for text in (task.note, note) if text),
        published=task.published,
        first={"prompt": prompts[0].text, "expected": questions[0].answer, "predicted": answers.texts[0]},
    )


def _check(lm: TextModel, task: PromptTask, shots: int, limit: int | None, drawn: str, overflow: str) -> None:
    ability = "generate" if task.rule == "generate" else "score"
    if ability not in lm.can or lm.network.is_backward:
        raise Unsupported(
            f"Task {task.name} needs a left-to-right model that can {ability}; this one can "
            f"{', '.join(sorted(lm.can)) or 'do neither'}.",
            ability=ability,
        )
    if shots < 0:
        raise invalid("shots", shots, "must be 0 or more.")
    if limit is not None and limit < 1:
        raise invalid("limit", limit, "must be at least 1 question.")
    for key, value, known in (("drawn", drawn, DRAWN), ("overflow", overflow, OVERFLOW)):
        if value not in known:
            raise invalid(f"task.{key}", value, f"must be {' or '.join(known)}.")


def _report_part(progress: Progress, start: int, count: int, total: int, done: float, of: float | None) -> None:
    """Report the progress of one batch as part of the whole."""
    progress(start + count * done / max(1, of or 1), total)


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
            fields = ", ".join(example)
            raise invalid(match[1], template, f"uses {{{match[1]}}}, but the fields are {fields}.", where=name)
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
        source = f"split '{task.shots_from}', without the questions asked"
        raise invalid("shots", shots, f"is too many: {task.name} has {len(pool):,} examples to draw from ({source}).")
    return pool


def write_prompt(task: PromptTask, shots: Sequence[Question], question: Question) -> str:
    return task.instruction + task.separator.join([*(shot.solved for shot in shots), question.context])


def fit_prompts(
    lm: TextModel,
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
                problem = (
                    f"but a question has {size:,} tokens with its answer, more than the model's window ({window:,})."
                )
                raise invalid("task.overflow", overflow, f"{problem} Use slide.", where=task.name)
            else:
                slides[i] = True
    return [Prompt(t, len(r), s) for t, r, s in zip(texts, remaining, slides, strict=True)]


def _prompt_sizes(lm: TextModel, task: PromptTask, texts: Sequence[str], questions: Sequence[Question]) -> list[int]:
    """Tokens of each prompt with the longest of its completions, or with room to generate one."""
    if task.rule == "generate":
        return [len(encoding) + task.length for encoding in lm.tokenizer.encode_batch(list(texts))]
    completed = [text + choice for text, question in zip(texts, questions, strict=True) for choice in question.choices]
    sizes = iter([len(encoding) for encoding in lm.tokenizer.encode_batch(completed)])
    return [max(next(sizes) for _ in question.choices) for question in questions]


# ------------------------------------------------------------------------------------------------ answers


class _Answers:
    """The model's answers, question by question, and whether they are right."""

    def __init__(self, lm: TextModel, task: PromptTask, seed: int) -> None:
        self.lm, self.task, self.seed = lm, task, seed
        self.texts: list[str | None] = []  # None: no answer (rule "word")
        self.choices: list[int] = []  # where there are choices
        self.right: list[bool] = []
        self.nats = 0.0
        self.unknown = self.ties = 0

    def add(self, prompts: Sequence[str], questions: Sequence[Question], progress: Progress) -> None:
        """Ask these questions and append the answers."""
        if self.task.rule == "generate":
            self._generate(prompts, questions, progress)
        elif self.task.rule == "word":
            self._check_greedy(prompts, questions, progress)
        else:
            self._choose(prompts, questions, progress)

    def _generate(self, prompts: Sequence[str], questions: Sequence[Question], progress: Progress) -> None:
        stop = Stop(self.task.length, self.task.stop)
        for start in range(0, len(questions), GENERATION_BATCH):
            end = start + GENERATION_BATCH
            texts = [text.strip() for text in generate_texts(self.lm, prompts[start:end], Greedy(), stop)]
            self.texts += texts
            self.right += [text == q.answer.strip() for text, q in zip(texts, questions[start:end], strict=True)]
            progress(min(end, len(questions)), len(questions))

    def _check_greedy(self, prompts: Sequence[str], questions: Sequence[Question], progress: Progress) -> None:
        answers = [question.answer for question in questions]
        parts = score_completions(self.lm, answers, prompts, greedy=True, progress=progress)
        self.texts += [answer if part.greedy else None for answer, part in zip(answers, parts, strict=True)]
        self.right += [bool(part.greedy) for part in parts]
        self.nats += sum(part.nats for part in parts)
        self.unknown += sum(part.unknown for part in parts)

    def _choose(self, prompts: Sequence[str], questions: Sequence[Question], progress: Progress) -> None:
        choices = [choice for question in questions for choice in question.choices]
        contexts = [prompt for prompt, question in zip(prompts, questions, strict=True) for _ in question.choices]
        parts = score_completions(self.lm, choices, contexts, progress=progress)
        prior: dict[str, CompletionScore] = {}
        if self.task.rule == "unconditional":
            distinct = list(dict.fromkeys(choices))
            neutral = [self.task.answer_context] * len(distinct)
            prior = dict(zip(distinct, score_completions(self.lm, distinct, neutral), strict=True))
        scored = zip(choices, parts, strict=True)
        costs = iter([(_cost(self.task.rule, part, prior.get(choice)), part.unknown) for choice, part in scored])
        for question in questions:
            own, unknown = zip(*(next(costs) for _ in question.choices), strict=True)
            best = [i for i, cost in enumerate(own) if cost == min(own)]
            # A tie is broken at random: the order of the choices must not decide.
            tie_breaker = random.Random(f"{self.seed} tie {len(self.choices)}")
            choice = best[0] if len(best) == 1 else tie_breaker.choice(best)
            self.unknown += any(unknown)
            self.ties += len(best) > 1
            self.choices.append(choice)
            self.texts.append(question.choices[choice])
            self.right.append(choice == question.gold)


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
        return bleu_with_interval(
            [text or "" for text in answers.texts], [question.answer.strip() for question in questions]
        )
    gold = [question.gold for question in questions]
    if task.metric == "mcc":
        return bootstrap_metric(mcc, gold, answers.choices), ""
    if task.metric == "f1":
        return bootstrap_metric(lambda g, p: f1(g, p, task.positive), gold, answers.choices), ""
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
