"""Evaluate a run: measure it on a split, append the result to the run's log, and write its model card.

    evaluate_finished_run     what `nextword.train` does last: the held-out split of the run's own data, then card.md
    evaluate_run              what `nextword.evaluate` does: any data, any split
    evaluate_prompt_task      a task posed as text, with solved examples before each question
    score_lines               one score per line of text
    measure_likelihood        a language model: bits per byte and perplexities
    measure_translations      a sequence-to-sequence model: BLEU, ROUGE, or one metric per task

Results are plain dictionaries, as they appear in log.jsonl and in the output of `--json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from pathlib import Path
from typing import Any

from nextword.batching.token_stream import prepare
from nextword.core.errors import CannotWrite, DataError, InvalidSetting, Unsupported, describe_os_error, unknown
from nextword.core.types import EXACT, Beam, Decoding, Greedy, LabeledProgress, ignore_progress
from nextword.data.corpus import Corpus
from nextword.data.filters.decontaminate import split_by_contamination
from nextword.data.opening import open_corpus, open_unsplit
from nextword.data.parallel import open_parallel
from nextword.data.parallel_files import ParallelCorpus
from nextword.data.text_to_text import Tasks
from nextword.evaluation.adaptive import AdaptiveMethod, prepare_method, settings_text
from nextword.evaluation.contamination import score_by_contamination
from nextword.evaluation.dynamic import DynamicSettings
from nextword.evaluation.few_shot import evaluate_task
from nextword.evaluation.likelihood import evaluate_stream
from nextword.evaluation.neural_cache import CacheSettings
from nextword.evaluation.prompt_tasks import PromptTask
from nextword.evaluation.seq2seq import evaluate_text_task, evaluate_translations, sample_evenly, spread_indices
from nextword.lm.base import TextModel
from nextword.lm.loading import load
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.model_card import write_card
from nextword.objectives import trains_on_pairs
from nextword.run_folder import RunFolder

SAMPLES = 3  # examples in the result of a translation
SAMPLE_LENGTH = 400  # characters of an example in the log


def evaluate_finished_run(
    run: RunFolder, device: str = "auto", on_progress: LabeledProgress = ignore_progress
) -> dict[str, Any]:
    """Measure a run on the held-out split of its own data, write its model card, and return the result.

    A model that assigns no probabilities, or whose data has no held-out split, only gets a card.
    """
    lm = load(run.path, device)
    phase = run.recipe.phases[-1]
    result: dict[str, Any] = {
        "slug": run.recipe.slug,
        "run": run.name,
        "parameters": run.manifest.get("parameters"),
    }
    is_parallel = trains_on_pairs(phase.objective)
    if "score" in lm.can and (is_parallel or not lm.is_seq2seq):
        corpus = (open_parallel if is_parallel else open_corpus)(phase.data)
        split = "test" if "test" in corpus.splits else "valid"
        if split in corpus.splits and is_parallel:
            result = measure_translations(lm, run, corpus, split, Greedy(), on_progress=on_progress)
        elif split in corpus.splits:
            result = measure_likelihood(lm, run, corpus, split, max_tokens=phase.eval_tokens, on_progress=on_progress)
    write_card(run)
    return {**result, "can": sorted(lm.can)}


def evaluate_run(
    path: str | Path,
    data: str = "",
    *,
    split: str = "",
    context: int | None = None,
    stride: int | None = None,
    limit: int | None = None,
    decoding: Decoding | None = None,
    cache: CacheSettings | None = None,
    dynamic: DynamicSettings | None = None,
    overlap_with: str = "",
    device: str = "auto",
    on_progress: LabeledProgress = ignore_progress,
) -> dict[str, Any]:
    """Measure a run on any data; see `nextword.evaluate`.

    `cache` and `dynamic` evaluate with a neural cache and dynamically; what they leave open is found on validation
    text. `overlap_with` is a training text: documents that overlap with it are also scored separately.
    """
    run = RunFolder.open(path)
    lm = load(path, device)
    is_adaptive = cache is not None or dynamic is not None
    _check_model(lm, context, limit, decoding, is_adaptive, overlap_with)
    own = run.recipe.phases[-1]
    if not data and not own.data:
        raise InvalidSetting(f"{path} has no data of its own. Name some with --data.", key="data")
    if not lm.is_seq2seq:
        corpus = open_corpus(own.data) if not data or data == own.data else open_unsplit(data)
        chosen = choose_split(corpus, split)
        method = None
        if is_adaptive:
            method = prepare_method(lm, run, cache, dynamic, settings_text(lm, run, corpus), on_progress)
        result = measure_likelihood(lm, run, corpus, chosen, context, stride, method, limit, on_progress=on_progress)
        if overlap_with:
            result["overlap"] = score_overlap(lm, corpus, chosen, overlap_with, on_progress)
        return result
    if not data and not trains_on_pairs(own.objective):
        raise InvalidSetting(
            f"{path} was trained to fill blanks in plain text, which has no likelihood. Name pairs or tasks with "
            "--data.",
            key="data",
        )
    corpus = open_parallel(data or own.data, unsplit=bool(data and data != own.data))
    chosen = choose_split(corpus, split)
    return measure_translations(lm, run, corpus, chosen, decoding or Greedy(), limit or 0, on_progress)


def _check_model(
    lm: TextModel,
    context: int | None,
    limit: int | None,
    decoding: Decoding | None,
    is_adaptive: bool,
    overlap_with: str,
) -> None:
    """Refuse options that do not fit the kind of model."""
    is_left_to_right = lm.kind == EXACT and not lm.is_seq2seq
    if not lm.is_seq2seq:
        lm.require("score")
    if (is_adaptive or overlap_with or (lm.is_seq2seq and context)) and not is_left_to_right:
        raise Unsupported(
            "--cache, --dynamic, --overlap-with (and --context for pairs) need a left-to-right language model.",
            ability="score",
        )
    if decoding is not None and not lm.is_seq2seq:
        raise Unsupported("--beam needs a sequence-to-sequence run. Leave it out.", ability="beam search")
    if limit and is_left_to_right:
        raise InvalidSetting(
            "--limit is for --task, masked models and sequence-to-sequence runs; this run scores every token.",
            key="limit",
            value=limit,
        )


def score_overlap(
    lm: TextModel, corpus: Corpus, split: str, overlap_with: str, on_progress: LabeledProgress = ignore_progress
) -> dict[str, Any]:
    """Score the documents of a split that overlap with a training text, and the others."""
    trained = open_corpus(overlap_with)
    size = trained.bytes("train") if "train" in trained.splits else None

    def report(done: float, total: float | None = None) -> None:
        on_progress(f"searching {trained.name}", done, total or size)

    contamination = split_by_contamination(corpus, split, trained, progress=report)
    scoring = partial(on_progress, "scoring clean and dirty documents")
    return {"data": trained.name, **score_by_contamination(lm, contamination, scoring)}


def score_lines(path: str | Path, lines: Sequence[str], device: str = "auto") -> list[dict[str, Any]]:
    """The likelihood of each line by itself."""
    scores = load(path, device).score_many(lines)
    return [
        {
            "text": line,
            "kind": score.kind,
            "nats": score.nats,
            "tokens": score.tokens,
            "bits_per_byte": score.bits_per_byte(),
            "token_perplexity": score.token_perplexity(),
        }
        for line, score in zip(lines, scores, strict=True)
    ]


def evaluate_prompt_task(
    path: str | Path,
    task: PromptTask,
    shots: int = 0,
    *,
    device: str = "auto",
    on_progress: LabeledProgress = ignore_progress,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate a run on a task posed as text, and append the result to its log; `options` are those of
    evaluate_task."""
    run = RunFolder.open(path)
    lm = load(path, device)
    result = evaluate_task(lm, task, shots, progress=partial(on_progress, f"asking {task.name}"), **options)
    values = {"slug": run.recipe.slug, "run": run.name, "parameters": lm.parameters, **result.as_dict()}
    logged = {key: value for key, value in values.items() if key not in ("published", "first")}
    return {**values, "notes": [*values["notes"], *_append_to_log(run, "task", logged)]}


def choose_split(corpus: Corpus, split: str = "") -> str:
    """This split, or the first of test, valid and train that the corpus has."""
    if not split:
        return next(name for name in ("test", "valid", "train") if name in corpus.splits)
    if split not in corpus.splits:
        raise unknown("split", split, corpus.splits, where=corpus.name)
    return split


def describe_source(lm: TextModel, run: RunFolder, corpus: Corpus, split: str) -> dict[str, Any]:
    """The first keys of every result: which run, measured on what."""
    return {
        "slug": run.recipe.slug,
        "run": run.name,
        "data": corpus.name,
        "split": split,
        "parameters": lm.parameters,
    }


def measure_likelihood(
    lm: TextModel,
    run: RunFolder,
    corpus: Corpus,
    split: str,
    context: int | None = None,
    stride: int | None = None,
    method: AdaptiveMethod | None = None,
    limit: int | None = None,
    max_tokens: int = 0,
    on_progress: LabeledProgress = ignore_progress,
) -> dict[str, Any]:
    """Score a split and append the result to the run's log.

    `max_tokens` scores the first documents only (0: all of them). A `method` (neural cache, dynamic evaluation) is
    logged as the event "adapted", so that its numbers are never taken for those of the model alone.
    """
    everything = prepare(corpus, split, lm.tokenizer)
    stream = everything.beginning(max_tokens)
    progress = partial(on_progress, f"scoring {corpus.name} {split}")
    evaluation = evaluate_stream(lm, stream, context, stride, progress, method, limit)
    result = {**describe_source(lm, run, corpus, split), **evaluation.as_dict()}
    if len(stream) < len(everything):
        result["scored"] = len(stream)
        note = f"the first {len(stream):,} of {len(everything):,} tokens of {split}"
        result["notes"] = [*result["notes"], note]
    unwritable = _append_to_log(run, "evaluation" if method is None else "adapted", result)
    return {**result, "notes": [*result["notes"], *unwritable]}


def measure_translations(
    lm: Seq2SeqLM,
    run: RunFolder,
    corpus: Corpus,
    split: str,
    decoding: Decoding,
    limit: int = 0,
    on_progress: LabeledProgress = ignore_progress,
) -> dict[str, Any]:
    """Generate from the sources of a split, compare with the targets, and append the result to the run's log.

    A mixture of text-to-text tasks is measured task by task.
    """
    result = {**describe_source(lm, run, corpus, split), "decoding": describe_decoding(decoding)}
    if isinstance(corpus, Tasks):
        numbers, sample = _measure_tasks(lm, corpus, split, decoding, limit, on_progress)
    else:
        pairs = sample_evenly(list(corpus.documents(split)), limit)
        has_summaries = isinstance(corpus, ParallelCorpus) and corpus.is_summarization
        progress = partial(on_progress, f"translating {corpus.name} {split}")
        translations = evaluate_translations(lm, pairs, decoding, progress, has_summaries)
        numbers = translations.as_dict()
        sample = [
            {"source": pairs[i].source or "", "target": pairs[i].text, "output": translations.outputs[i]}
            for i in spread_indices(SAMPLES, len(pairs))
        ]
    # The log gets one example, which the model card shows.
    example = {key: shorten(text) for key, text in sample[0].items()} if sample else None
    notes = _append_to_log(run, "translated", {**result, **numbers, "example": example})
    return {**result, **numbers, "sample": sample, "notes": notes}


def _measure_tasks(
    lm: Seq2SeqLM, corpus: Tasks, split: str, decoding: Decoding, limit: int, on_progress: LabeledProgress
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The results of each task on this split, and examples.

    A task without the split is measured on its first of test, valid and train.
    """
    members = [member for member in corpus.members if not member.is_plain]  # denoising has no metric
    if not members:
        raise DataError(f"{corpus.name} has no task with a metric: denoising has none.", path=corpus.name)
    results = []
    for member in members:
        chosen = choose_split(member.corpus, split if split in member.corpus.splits else "")
        progress = partial(on_progress, f"{member.task.name} {chosen}")
        num_shown = SAMPLES if len(members) == 1 else 1
        results.append(evaluate_text_task(lm, member, chosen, decoding, limit, num_shown, progress))
    sample = [example for task in results for example in task.shown]
    return {"pairs": sum(len(task.outputs) for task in results), "tasks": [task.as_dict() for task in results]}, sample


def _append_to_log(run: RunFolder, event: str, result: Mapping[str, Any]) -> list[str]:
    """Append a result to the run's log; return a note if that is impossible: the result is of use nevertheless."""
    try:
        run.log({"event": event, **{key: value for key, value in result.items() if key != "run"}})
    except CannotWrite as problem:
        cause = problem.__cause__
        reason = describe_os_error(cause)[0] if isinstance(cause, OSError) else str(problem)
        return [f"this result is not in the log of {run.name}: {reason}"]
    return []


def shorten(text: str) -> str:
    """One line of at most SAMPLE_LENGTH characters."""
    line = " ".join(text.split())
    return line if len(line) <= SAMPLE_LENGTH else line[:SAMPLE_LENGTH].rstrip() + " …"


def describe_decoding(decoding: Decoding) -> str:
    """Name the decoding method and the settings that differ from their defaults: "beam 5, length penalty 1"."""
    name = type(decoding).__name__.lower()
    settings = [
        f"{field.name.replace('_', ' ')} {getattr(decoding, field.name)}"
        for field in fields(decoding)
        if field.name != "width" and getattr(decoding, field.name) != _default(field)
    ]
    return ", ".join([f"{name} {decoding.width}" if isinstance(decoding, Beam) else name, *settings])


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()
