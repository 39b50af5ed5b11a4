"""The n-gram model: p(next word | the last n − 1 words), counted, smoothed, and looked up.

Markov (1913) counted letters of Onegin two at a time; Shannon (1948) wrote English by it; Kneser and Ney (1995), in the
form of Chen and Goodman (1998), remained the best that counting could do until networks came. What it cannot do is the
reason for all the models after it: "the cat sat" says nothing about "a dog sat".

    text → ngrams/counting → ngrams/estimate → ngrams/fast or ngrams/compact → here

A context begins anew at the `boundary`: the end of a line for words, of a document for other tokens. So the last n − 1
ids are all the state there is. Two things may be mixed in, each with a weight found on held-out text by expectation-
maximisation: other n-gram runs (`mix`), and a cache, which favours the words of the recent past (Kuhn & De Mori, 1990).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import NextwordError
from nextword.core.io import link_or_copy
from nextword.core.types import Inputs, State, Vocabulary
from nextword.models.base import Network
from nextword.ngrams.counting import Counted, check_order, count_ngrams
from nextword.ngrams.estimators import Estimator, estimate, estimator, memory_cap
from nextword.ngrams.layouts import LAYOUTS, build, open_layout
from nextword.ngrams.trie import NONE, Trie

FILE, WEIGHTS = "model.ngram", "model.json"
LIGHT = 0.1  # weight of a cache where there is no held-out text to find it


@dataclass(frozen=True)
class NGramConfig:
    order: int = 5  # n
    layout: str = "fast"  # or "compact": smaller, and slower to read
    bits: int = 0  # of a probability in the compact layout; 0: as it is
    cache: int = 0  # tokens back that the cache remembers; 0: none

    def __post_init__(self) -> None:
        if self.order < 1:
            raise NextwordError(f"[model] order = {self.order}: an n-gram has at least one word.")
        if self.layout not in LAYOUTS:
            raise NextwordError(f"[model] layout = {self.layout!r}; expected one of {', '.join(LAYOUTS)}.")
        if self.bits and self.layout != "compact":
            raise NextwordError(f"[model] bits = {self.bits} goes with layout = 'compact'.")


class NGram(Network):
    Config = NGramConfig
    has_flat_scores = True
    chunk = 1 << 17  # tokens of a row to read at once: there is nothing that grows with it

    def __init__(self, config: NGramConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.boundary = vocabulary.begin if vocabulary.end is None else vocabulary.end
        self.parts: list[Any] = []  # the model, then those mixed in: each a layout
        self.weights = np.ones(1)  # of the parts, and last of the cache where there is one
        self._files: list[Path] = []
        self._held: list[Any] = []  # temporary folders, which go with the model

    # -------------------------------------------------------------------------------------------- counting

    def check(self, train: Any, options: Mapping[str, Any]) -> tuple[Estimator, list[Path]]:
        """What counting is asked for, and the files to mix in; what is wrong with it, before there is a run folder."""
        options = dict(options)
        mix = options.pop("mix", [])
        if not isinstance(mix, list | tuple) or not all(isinstance(folder, str) for folder in mix):
            raise NextwordError(f"[phase] estimator mix = {mix!r} must be a list of run folders, such as ['runs/one'].")
        how = estimator(options)
        check_order(self.config.order, len(train.ids))
        memory_cap(how.memory)
        return how, [self._opened(Path(folder), train.tokenizer_hash) for folder in mix]

    def count(self, train: Any, valid: Any, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        how, mixed = self.check(train, options)
        place = train.folder.parent if train.folder is not None else None
        cap = memory_cap(how.memory)
        counted: Any = None
        for counted in count_ngrams(
            train.ids, self.config.order, self.vocabulary.size, self.boundary, cap, place, how.on_disk
        ):
            if not isinstance(counted, Counted):
                yield {"fraction": 0.5 * counted[0], "doing": counted[1]}
        trie: Any = None
        for trie in estimate(counted, how, self._closed()):
            if not isinstance(trie, Trie):
                yield {"fraction": 0.5 + 0.2 * trie[0], "doing": trie[1]}
        folder = tempfile.TemporaryDirectory(prefix="ngrams-", suffix=".part", dir=place)
        self._held = [folder]
        path = Path(folder.name) / FILE
        yield {"fraction": 0.7, "doing": "writing"}
        build(trie, path, self.config.layout, self.config.bits, counted.block)
        facts = dict(trie.facts)
        del trie, counted
        self._use([path, *mixed])
        values: dict[str, Any] = {"fraction": 1.0, "ngrams": self.parts[0].entries, **facts}
        if len(self.weights) > 1 and valid is not None:
            values["weights"] = self._weigh(np.asarray(valid.ids))
        yield values

    def _closed(self) -> np.ndarray:
        """Ids that no text holds: nothing is kept for them. Unknown words and the boundary are not of these."""
        out = np.zeros(self.vocabulary.size, bool)
        for name, id in self.vocabulary.special.items():
            out[id] = id != self.boundary and "unk" not in name.lower()
        return out

    def _opened(self, folder: Path, tokens: str) -> Path:
        """The file of another run of n-grams over the same tokens."""
        if not (folder / FILE).is_file():
            raise NextwordError(f"[phase] estimator mix names {folder}, which has no {FILE}: it is no run of n-grams.")
        if len(json.loads((folder / WEIGHTS).read_text())["weights"]) > 1:
            raise NextwordError(
                f"[phase] estimator mix names {folder}, which is itself a mixture or has a cache. Name the runs that "
                "it is mixed of."
            )
        if open_layout(folder / FILE).size != self.vocabulary.size or not _same_tokens(folder, self.vocabulary, tokens):
            raise NextwordError(
                f"{folder} cannot be mixed in: it has other tokens. Train both with the same tokenizer: "
                f"--set tokenizer.load={folder}/tokenizer.json"
            )
        return folder / FILE

    def _weigh(self, ids: np.ndarray) -> list[float]:
        from nextword.ngrams.interpolation import em

        with np.errstate(divide="ignore"):
            self.weights, *_ = em(np.log(self._probabilities(self._stream(ids))[:, 1:]))
        return [round(float(w), 6) for w in self.weights]

    def _use(self, files: Sequence[Path], weights: Sequence[float] | None = None) -> None:
        self._files = list(files)
        self.parts = [open_layout(path) for path in files]
        caches = 1 if self.config.cache else 0
        shares = [(1 - LIGHT * caches) / len(files)] * len(files) + [LIGHT] * caches
        self.weights = np.array(shares if weights is None else weights)
        for part, path in zip(self.parts, files, strict=True):
            if part.size != self.vocabulary.size or part.boundary != self.boundary:
                raise NextwordError(
                    f"{path} does not fit its tokenizer: the model has {part.size:,} words and the tokenizer "
                    f"{self.vocabulary.size:,}. One of the two was exchanged; restore it, or train again."
                )

    # -------------------------------------------------------------------------------------------- the contract

    @property
    def window(self) -> int | None:  # type: ignore[override]
        return None if self.config.cache else self.back

    @property
    def back(self) -> int:
        """Ids that the state holds."""
        return max([self.config.cache, self.config.order - 1, *(part.order - 1 for part in self.parts)])

    def num_parameters(self) -> int:
        """A probability per n-gram, and a back-off weight per n-gram below the highest order."""
        return sum(sum(part.entries) + sum(part.entries[:-1]) for part in self.parts)

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]:
        first = torch.full((batch,), self.boundary, dtype=torch.long)
        return first, torch.full((batch, self.back), NONE, dtype=torch.long)

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        read = torch.cat([state, last.unsqueeze(1)], 1)
        history = read.numpy().astype(np.uint32)
        parts = [part.distributions(history) for part in self.parts]
        state = read[:, read.shape[1] - state.shape[1] :]
        if len(self.weights) == 1:
            return torch.from_numpy(parts[0]), state
        found = [np.exp(part) for part in parts]
        if self.config.cache:
            from nextword.ngrams.interpolation import cache_distribution

            kept = history[:, history.shape[1] - self.config.cache :]
            found.append(np.stack([cache_distribution(row, self.vocabulary.size) for row in kept]))
            empty = (kept == NONE).all(1)
            found[-1][empty] = found[0][empty]
        with np.errstate(divide="ignore"):
            log_p = np.log(np.tensordot(self.weights, np.stack(found), 1))
        return torch.from_numpy(log_p.astype(np.float32)), state

    def score(self, ids: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        rows, width = ids.shape
        read = torch.cat([state, ids], 1)
        flat = np.full((rows, read.shape[1] + 1), NONE, np.uint32)  # each row begins by forgetting the one before
        flat[:, 1:] = read.numpy()
        log_p = torch.from_numpy(self.read(flat.reshape(-1)).reshape(flat.shape)[:, -(width - 1) or flat.shape[1] :])
        inside = torch.arange(width - 1) < (lengths - 1).unsqueeze(1)
        read = read[:, :-1]
        return log_p.masked_fill(~inside, 0.0), read[:, read.shape[1] - state.shape[1] :]

    def read(self, ids: np.ndarray) -> np.ndarray:
        """ln p of each id of a stream after those before it; NONE in between forgets, and costs nothing."""
        if len(self.weights) == 1:
            return self.parts[0].read(ids)
        with np.errstate(divide="ignore"):
            return np.log(self.weights @ self._probabilities(ids)).astype(np.float32)

    def _probabilities(self, ids: np.ndarray) -> np.ndarray:
        """(parts, T): what each part gives; where the cache is empty, what the model itself gives."""
        found = [np.exp(part.read(ids)) for part in self.parts]
        if self.config.cache:
            from nextword.ngrams.interpolation import cache_read

            cached = cache_read(ids, np.full(self.config.cache, NONE, np.uint32))
            found.append(np.where(cached < 0, found[0], cached))
        return np.stack(found)

    def _stream(self, ids: np.ndarray) -> np.ndarray:
        return np.concatenate([[self.boundary], ids]).astype(np.uint32)

    # -------------------------------------------------------------------------------------------- files

    def trie(self) -> Trie:
        """The model as plain arrays, to be written in another format."""
        if len(self.weights) > 1:
            raise NextwordError(
                "A mixture of models, or one with a cache, is no back-off model: no ARPA file or other layout can hold "
                "it. Convert the runs that it is mixed of."
            )
        return self.parts[0].trie()

    @classmethod
    def of_trie(cls, trie: Trie, config: NGramConfig, vocabulary: Vocabulary, place: Path) -> NGram:
        """A model that was estimated already, laid out as `config` says, in a file in the folder `place`."""
        network = cls(config, vocabulary)
        build(trie, place / FILE, config.layout, config.bits)
        network._use([place / FILE])
        return network

    def save(self, folder: Path) -> list[str]:
        names = [FILE if i == 0 else f"model.{i}.ngram" for i in range(len(self._files))]
        for name, path in zip(names, self._files, strict=True):
            link_or_copy(path, folder / name)
        (folder / WEIGHTS).write_text(json.dumps({"files": names, "weights": self.weights.tolist()}) + "\n")
        return [*names, WEIGHTS]

    @classmethod
    def load(cls, folder: Path, config: NGramConfig, vocabulary: Vocabulary) -> NGram:
        network = cls(config, vocabulary)
        about = json.loads((folder / WEIGHTS).read_text())
        network._use([folder / name for name in about["files"]], about["weights"])
        return network


def _same_tokens(folder: Path, vocabulary: Vocabulary, tokens: str) -> bool:
    """`tokens`: the hash of the saved tokenizer that the text was prepared with, where there is one."""
    from nextword.tokenizers import vocabulary as vocabulary_of
    from nextword.tokenizers.loading import load_tokenizer

    path = folder / "tokenizer.json"
    if tokens and blake2b(path.read_bytes(), digest_size=16).hexdigest() != tokens:
        return False
    return replace(vocabulary_of(load_tokenizer(path)), pieces=()) == replace(vocabulary, pieces=())
