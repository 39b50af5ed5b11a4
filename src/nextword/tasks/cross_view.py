"""Cross-view training: in turn, sentences with tags and sentences without (Clark et al. 2018, section 2).

    with tags       J = 1/W Σ_words CE(tag, p)                       p: the primary head. Tags are smoothed
    without         J = 1/W Σ_tasks Σ_views Σ_words −Σ_k p_k log q_k  q: a head that sees less; p is a target, no more

The network has heads for every task and view (nextword.tasks.views). A target is made of the weights as they are, with
nothing dropped, and no gradient goes into it. What is dropped elsewhere is the network's own share where there are
tags, and `dropout` where there are none. Without `unlabelled` text all steps are of the first kind: the same network,
learnt from tags alone.

Plain text as sentences of words, for networks that tag: split once, and kept in the cache's folder.

    "The U.S. has said so. It knows."   →   The U.S. has said so .     It knows .      sentences, punctuation apart
    words    3 7 4 …                        which of the different words each is
    forms    T h e ▢ ▢ …                    the letters of every different word, and `ids` its token

So letters are stored once a word and not once an occurrence. Sentences of fewer than five words are mostly headings,
and are left out, as are those that are too long.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from nextword.batching.examples import UNTAGGED
from nextword.batching.token_stream import tokenizer_hash
from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.core.types import IGNORE, Batch, Loss, State
from nextword.data.corpus import Corpus
from nextword.data.segmentation import sentences
from nextword.layers.char_cnn import letters_of
from nextword.metrics.classification import together
from nextword.tasks.mixed_examples import Several, held_out, in_turn
from nextword.tasks.tag_objective import Tag
from nextword.tasks.tag_words import TaggedExamples
from nextword.tasks.views import soft_cross_entropy
from nextword.tokenizers.ptb_words import split


class CrossView(Tag):
    """`unlabelled`: a text, as --data names one; of it the first `sentences` of at most `longest` words are read."""

    def __init__(
        self,
        batches: Mapping[str, Any],
        unlabelled: str = "",
        sentences: int = 300_000,
        longest: int = 50,
        smoothing: float = 0.1,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(batches)
        for name, value in (("smoothing", smoothing), ("dropout", dropout)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise NextwordError(f"objective: {name} = {value!r} is a share, from 0 up to below 1.")
        for name, value in (("sentences", sentences), ("longest", longest)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise NextwordError(f"objective: {name} = {value!r} must be a whole number of at least 1.")
        self.unlabelled, self.sentences, self.longest = unlabelled, sentences, longest
        self.smoothing, self.dropout = smoothing, dropout

    def per_epoch(self, text: Several) -> int:  # type: ignore[override]
        """Steps in which there are as many batches with tags as all tasks together have."""
        return text.turns * sum(self.layout.per_epoch(part) for part in text.parts)

    def batches(self, text: Several, seed: int, step: int) -> Iterator[Batch]:  # type: ignore[override]
        return in_turn(self.layout, text, seed, step)

    def held_out(self, text: Several | TaggedExamples) -> Iterator[Batch]:
        return held_out(self.layout, text)

    # -------------------------------------------------------------------------------------------- losses

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if batch.part == UNTAGGED:
            return self._between_views(network, batch)
        emissions = network(batch)
        nats = network.nats(emissions, batch.targets).sum()
        if not network.training:
            there = batch.targets != IGNORE
            said = network.best(emissions.detach(), there, batch.part)[there]  # (words,) row by row
            return Loss(nats / batch.predicted, nats, batch.predicted, said=said)
        value = network.nats(emissions, batch.targets, self.smoothing).sum() / batch.predicted
        return Loss(value, nats.detach(), batch.predicted)

    def _between_views(self, network: Any, batch: Batch) -> Loss:
        """Nothing of it is counted as nats, which are of tags."""
        there = batch.targets != IGNORE
        targets = network.taught(batch.inputs)
        losses: dict[str, Tensor] = {}
        for target, views in zip(targets, network.auxiliary(batch.inputs, self.dropout), strict=True):
            for name, emissions in views.items():
                loss = soft_cross_entropy(emissions, target, there) / batch.predicted
                losses[name] = losses[name] + loss if name in losses else loss
        value = torch.stack(list(losses.values())).sum()
        parts = {name: loss.detach() for name, loss in losses.items()}
        return Loss(value, value.new_zeros(()).detach(), 0, parts=parts)

    # -------------------------------------------------------------------------------------------- how good it is

    def metrics(self, text: Several | TaggedExamples, said: Tensor) -> dict[str, float]:
        """Of one task as `tag` has it; of several, the mean of what decides in each, and then those."""
        if not isinstance(text, Several):
            return super().metrics(text, said)
        sizes = [len(part.tags) for part in text.parts]
        each = [super(CrossView, self).metrics(*one) for one in zip(text.parts, said.split(sizes), strict=True)]
        return together(text.names, each)


LEAST = 5  # words of a sentence
VERSION = 1  # of the file; part of its name
NAMES = ("ids", "forms", "words", "starts")
Progress = Callable[[str, float, float | None], None]


@dataclass(frozen=True)
class Spelt:
    """Letters of words by their forms: indexed as the array (M, L) would be that it stands for."""

    forms: np.ndarray  # (F, L)
    words: np.ndarray  # (M,)

    def __getitem__(self, at: Any) -> np.ndarray:
        return self.forms[self.words[at]]

    def __len__(self) -> int:
        return len(self.words)


def untagged(
    corpus: Corpus,
    tokenizer: Tokenizer,
    letters: int,
    most: int,
    longest: int,
    progress: Progress = lambda label, done, total: None,
) -> tuple[TaggedExamples, str]:
    """The first `most` sentences of a text, of up to `longest` words each, and a key of all that made them so.

    `letters`: how many of a word are read. All tags are 0.
    """
    asked = f"{VERSION} {corpus.fingerprint} {tokenizer_hash(tokenizer)} {letters} {most} {longest}"
    key = blake2b(asked.encode(), digest_size=16).hexdigest()
    path = cache_folder() / f"{key}.npz"
    found = _kept(path)
    if found is None:
        found = _made(corpus, tokenizer, letters, most, longest, progress)
        _keep(path, found)
    ids, forms, words, starts = (found[name] for name in NAMES)
    nothing = np.broadcast_to(np.int64(0), words.shape)  # a number, as often as there are words
    places = np.arange(len(words), dtype=np.int32) - np.repeat(starts[:-1].astype(np.int32), np.diff(starts))
    text = TaggedExamples(ids[words].astype(np.int64), starts, places, starts, nothing, letters=Spelt(forms, words))
    return text, key


def cache_folder() -> Path:
    return Path(os.environ.get("NEXTWORD_CACHE") or "~/.cache/nextword").expanduser() / "sentences"


def _kept(path: Path) -> dict[str, np.ndarray] | None:
    """None where there is nothing, or what there is is damaged: then it is made again."""
    try:
        with np.load(path) as found:
            return {name: found[name] for name in NAMES}
    except (OSError, ValueError, KeyError, BadZipFile):
        return None


def _keep(path: Path, found: dict[str, np.ndarray]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(temporary, **found)  # type: ignore[arg-type]
        temporary.replace(path)
    except OSError as problem:
        raise NextwordError(
            f"The sentences cannot be kept in {path.parent}: {problem.strerror}. Set NEXTWORD_CACHE to a folder with "
            "room."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _made(
    corpus: Corpus, tokenizer: Tokenizer, letters: int, most: int, longest: int, progress: Progress
) -> dict[str, np.ndarray]:
    places: dict[str, int] = {}  # of forms
    words, sizes = array("i"), array("i")
    own = "train" if "train" in corpus.splits else corpus.splits[0]  # a text that has no splits is read whole
    texts = (document.text for document in corpus.documents(own))
    for row in of_words(texts, tokenizer, places):
        if LEAST <= len(row) <= longest:
            words.extend(row)
            sizes.append(len(row))
            if len(sizes) % 1000 == 0:
                progress("reading sentences without tags", len(sizes), most)
            if len(sizes) == most:
                break
    if not sizes:
        raise NextwordError(
            f"{corpus.name} has no sentence of {LEAST} to {longest} words, so there is nothing to learn from it. Give "
            "a text of sentences, or more of it."
        )
    forms = list(places)
    tokens = [encoding.ids for encoding in tokenizer.encode_batch(forms)]
    if any(len(one) != 1 for one in tokens):
        raise NextwordError(
            f"Words are to be read one by one, but the tokenizer cuts them ({tokenizer.kind}). Give it kind "
            '"lexicon" with whole = true.'
        )
    return {
        "ids": np.concatenate(tokens).astype(np.int32),
        "forms": letters_of(forms, letters),
        "words": np.array(words, np.int32),
        "starts": np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))),
    }


def of_words(texts: Iterable[str], tokenizer: Any, places: dict[str, int]) -> Iterator[list[int]]:
    """Every sentence as places of its words in a table that grows; a run of characters is split but once."""
    parts = getattr(tokenizer, "parts", lambda run: split(run, ()))
    runs: dict[str, list[int]] = {}
    for text in texts:
        for start, end in sentences(text):
            row: list[int] = []
            for run in text[start:end].split():
                found = runs.get(run)
                if found is None:
                    found = runs[run] = [places.setdefault(part, len(places)) for part in parts(run)]
                row += found
            yield row
