"""Many small trainings at once: one thread each, on all cores, leaving the caller's random numbers as they are.

The text a study is run on: a corpus's training documents, or the built-in ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from nextword.core.errors import NextwordError
from nextword.core.jit import cores
from nextword.data.builtin import default_name
from nextword.data.corpus import Corpus
from nextword.data.opening import open_corpus
from nextword.tokenizers.training import train_tokenizer

Task = tuple[Callable[..., Any], tuple[Any, ...]]  # a function of a module, and what to give it


@contextmanager
def apart(device: torch.device | None = None) -> Iterator[None]:
    """One thread, for these products are too small to share out; and random numbers of one's own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng([device] if device is not None and device.type == "cuda" else []):
            yield
    finally:
        torch.set_num_threads(threads)


def alone(function: Callable[..., Any], *given: Any) -> Any:
    with apart():
        return function(*given)


def spread(tasks: Mapping[Any, Task], progress: Callable[[float, float], None], workers: int = 0) -> dict[Any, Any]:
    """What each task finds, by its key, in the tasks' order."""
    workers = min(workers or cores(), len(tasks))
    found: dict[Any, Any] = {}
    if workers < 2:
        for key, (function, given) in tasks.items():
            found[key] = alone(function, *given)
            progress(len(found), len(tasks))
        return found
    # Processes and not threads, since torch has one generator of random numbers a process; spawned and not forked,
    # since a fork takes over locks of torch's threads without the threads
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        asked = {pool.submit(alone, function, *given): key for key, (function, given) in tasks.items()}
        for future in as_completed(asked):
            found[asked[future]] = future.result()
            progress(len(found), len(tasks))
    finally:
        pool.shutdown(cancel_futures=True)
    return {key: found[key] for key in tasks}


WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # words with their apostrophes, and punctuation marks one by one


def corpus_for(data: str) -> Corpus:
    return open_corpus(data or default_name())


def held_out(corpus: Corpus) -> str:
    """The split that nobody learns from: the test text, or the validation text where there is no other."""
    return "test" if "test" in corpus.splits else "valid"


def word_lists(corpus: Corpus, split: str = "train") -> Iterator[list[str]]:
    """Each document's words in lower case, punctuation marks being words of their own."""
    for document in corpus.documents(split):
        yield WORD.findall(document.text.lower())


def bytes_of(corpus: Corpus, split: str, size: int) -> np.ndarray:
    """The first so many bytes of a split, as ids: few bits each, for they travel to other processes."""
    tokenizer = train_tokenizer({"kind": "bytes"}, ())
    parts: list[np.ndarray] = []
    for document in corpus.documents(split):
        parts.append(tokenizer.encode(document.text).ids)
        if sum(map(len, parts)) >= size:
            break
    return np.concatenate(parts)[:size].astype(np.uint16)


def enough(found: int, needed: int, what: str, corpus: Corpus) -> None:
    if found < needed:
        raise NextwordError(
            f"{corpus.name} has {found:,} {what}, and this study needs {needed:,}. "
            "Give a longer text with --data, or leave --data out to use the built-in one."
        )
