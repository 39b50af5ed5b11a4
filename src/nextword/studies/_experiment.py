"""Run many small trainings in parallel, and open the text that a study reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np
import torch

from nextword.core.errors import DataError
from nextword.core.jit import num_cores
from nextword.data.builtin import default_name
from nextword.data.corpus import Corpus
from nextword.data.opening import open_corpus
from nextword.studies._study import Progress
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device

Job = tuple[Callable[..., Any], tuple[Any, ...]]  # a module-level function and its arguments
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # words with their apostrophes, and single punctuation marks


# ------------------------------------------------------------------------------------------------ parallel runs


@contextmanager
def isolated(device: torch.device | None = None) -> Iterator[None]:
    """Compute with one thread, since these matrices are too small to share, and restore the caller's random state."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng([device] if device is not None and device.type == "cuda" else []):
            yield
    finally:
        torch.set_num_threads(threads)


def run_parallel(jobs: Mapping[Any, Job], progress: Progress, *, uses_gpu: bool = False) -> dict[Any, Any]:
    """Run each job on a core of its own, or one after the other if they share a GPU; results by key, in order."""
    workers = 1 if uses_gpu and choose_device().type == "cuda" else min(num_cores(), len(jobs))
    results: dict[Any, Any] = {}
    if workers < 2:
        for key, (function, arguments) in jobs.items():
            results[key] = _run_isolated(function, *arguments)
            progress(len(results), len(jobs))
        return results
    # Processes, not threads: torch has one random number generator per process. Spawned, not forked: a fork inherits
    # the locks of torch's threads without the threads.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        futures = {pool.submit(_run_isolated, function, *arguments): key for key, (function, arguments) in jobs.items()}
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            progress(len(results), len(jobs))
    finally:
        pool.shutdown(cancel_futures=True)
    return {key: results[key] for key in jobs}


def stack_seeds(runs: Mapping[Any, Any], variant: tuple[Any, ...], *path: object) -> np.ndarray:
    """(seeds, …): one measurement of a variant. Runs have keys (*variant, seed); `path` leads into each result."""
    results = [result for key, result in runs.items() if key[:-1] == variant]
    for index in path:
        results = [result[index] for result in results]
    return np.stack(results)


def _run_isolated(function: Callable[..., Any], *arguments: Any) -> Any:
    with isolated():
        return function(*arguments)


# ------------------------------------------------------------------------------------------------ text


Size = TypeVar("Size")


def choose_size(quick: bool, small: Size, full: Size, large: Size) -> Size:
    """The large size only on a GPU."""
    return small if quick else large if choose_device().type == "cuda" else full


def open_text(data: str) -> Corpus:
    """The named corpus, or the built-in one."""
    return open_corpus(data or default_name())


def held_out_split(corpus: Corpus) -> str:
    """The test split, or the validation split of a corpus without one."""
    return "test" if "test" in corpus.splits else "valid"


def split_words(corpus: Corpus, split: str = "train") -> Iterator[list[str]]:
    """The words of each document in lower case; punctuation marks are words."""
    for document in corpus.documents(split):
        yield WORD.findall(document.text.lower())


def byte_ids(corpus: Corpus, split: str, size: int) -> np.ndarray:
    """The first bytes of a split as ids; uint16, because they are sent to other processes."""
    tokenizer = train_tokenizer({"kind": "bytes"}, ())
    parts: list[np.ndarray] = []
    for document in corpus.documents(split):
        parts.append(tokenizer.encode(document.text).ids)
        if sum(map(len, parts)) >= size:
            break
    return np.concatenate(parts)[:size].astype(np.uint16)


def require(count: int, minimum: int, what: str, corpus: Corpus) -> None:
    """Raise DataError if the corpus is too small for the study."""
    if count < minimum:
        raise DataError(
            f"{corpus.name} has {count:,} {what}; this study needs {minimum:,}. "
            "Use a longer text with --data, or omit --data for the built-in text.",
            path=corpus.name,
        )


def describe_corpus(corpus: Corpus) -> str:
    return f"{corpus.name} ({corpus.source})"
