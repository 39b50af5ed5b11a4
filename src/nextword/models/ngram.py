"""The n-gram model: p(next word | the last n − 1 words), counted, smoothed and looked up.

Markov (1913) counted letters of Onegin two at a time; Shannon (1948) generated English from such counts; Kneser and Ney
(1995), in the form of Chen and Goodman (1998), remained the best that counting could do until neural networks came.
What it cannot do is the reason for all later models: "the cat sat" says nothing about "a dog sat".

    text ─ ngrams/counting ─▶ counts ─ ngrams/estimators ─▶ trie ─ ngrams/layouts ─▶ fast or compact file ─▶ this
    network

A context begins anew at the `boundary`: the end of a line for words, of a document for other tokens. So the last n − 1
ids are the whole state. Two things may be mixed in, each with a weight that is fitted to held-out text by
expectation-maximization: other n-gram runs (`mix`), and a cache, which favors recent words (Kuhn & De Mori 1990).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import InvalidSetting, RunError, Unsupported
from nextword.core.io import link_or_copy, read_json
from nextword.core.scratch import Scratch
from nextword.core.types import Inputs, State, Vocabulary
from nextword.models.base import Network
from nextword.ngrams.counting import NgramCounts, check_order, count_ngrams
from nextword.ngrams.estimators import Estimator, estimate, parse_estimator, parse_memory
from nextword.ngrams.layouts import LAYOUTS, open_layout, write_layout
from nextword.ngrams.trie import MAX_ORDER, NONE, Trie

FILE, WEIGHTS = "model.ngram", "model.json"
MAX_CACHE = 1 << 20  # tokens; they are the state of every text that is read
CACHE_WEIGHT = 0.1  # of a cache, if there is no held-out text to fit it


@dataclass(frozen=True)
class NGramConfig:
    order: int = 5  # n
    layout: str = "fast"  # or "compact": smaller and slower
    bits: int = 0  # per probability in the compact layout; 0: unquantized
    cache: int = 0  # tokens that the cache remembers; 0: no cache

    def __post_init__(self) -> None:
        if not 1 <= self.order <= MAX_ORDER:
            raise InvalidSetting(
                f"[model] order = {self.order} must be from 1 to {MAX_ORDER}.", key="model.order", value=self.order
            )
        if not 0 <= self.cache <= MAX_CACHE:
            raise InvalidSetting(
                f"[model] cache = {self.cache} must be from 0 to {MAX_CACHE:,} tokens.",
                key="model.cache",
                value=self.cache,
            )
        if self.layout not in LAYOUTS:
            raise InvalidSetting(
                f"[model] layout = {self.layout!r} is unknown. Use {' or '.join(LAYOUTS)}.",
                key="model.layout",
                value=self.layout,
            )
        if self.bits and self.layout != "compact":
            raise InvalidSetting(
                f"[model] bits = {self.bits} needs layout = 'compact'.", key="model.bits", value=self.bits
            )


class NGram(Network):
    Config = NGramConfig
    has_flat_scores = True
    chunk = 1 << 17  # memory does not grow with it

    def __init__(self, config: NGramConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.boundary = vocabulary.begin if vocabulary.end is None else vocabulary.end
        self.parts: list[Any] = []  # the model, then those mixed in; each is a layout
        self.weights = np.ones(1)  # mixture weights of the parts, and last of the cache if there is one
        self._files: list[Path] = []
        self._held: list[Any] = []  # temporary folders, deleted with the model

    # -------------------------------------------------------------------------------------------- counting

    def check(self, train: Any, options: Mapping[str, Any]) -> tuple[Estimator, list[Path]]:
        """Validate the estimator's options before a run folder is created; return them, and the files to mix in."""
        options = dict(options)
        mix = options.pop("mix", [])
        if not isinstance(mix, list | tuple) or not all(isinstance(folder, str) for folder in mix):
            raise InvalidSetting(
                f"estimator.mix = {mix!r}. Expected a list of run folders, such as ['runs/first'].",
                key="estimator.mix",
                value=mix,
            )
        how = parse_estimator(options)
        check_order(self.config.order, len(train.ids))
        parse_memory(how.memory)
        return how, [self._check_mixable(Path(folder), train.tokenizer_hash) for folder in mix]

    def count(self, train: Any, valid: Any, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        how, mixed = self.check(train, options)
        place = train.folder.parent if train.folder is not None else None
        cap = parse_memory(how.memory)
        counted: Any = None
        for counted in count_ngrams(
            train.ids, self.config.order, self.vocabulary.size, self.boundary, cap, place, how.on_disk
        ):
            if not isinstance(counted, NgramCounts):
                yield {"fraction": 0.5 * counted[0], "doing": counted[1]}
        trie: Any = None
        for trie in estimate(counted, how, self._never_predicted()):
            if not isinstance(trie, Trie):
                yield {"fraction": 0.5 + 0.2 * trie[0], "doing": trie[1]}
        scratch = Scratch(place)
        self._held = [scratch]
        path = scratch.path / FILE
        yield {"fraction": 0.7, "doing": "writing"}
        write_layout(trie, path, self.config.layout, self.config.bits, counted.block)
        facts = dict(trie.facts)
        del trie, counted
        self._use([path, *mixed])
        values: dict[str, Any] = {"fraction": 1.0, "ngrams": self.parts[0].entries, **facts}
        if len(self.weights) > 1 and valid is not None:
            values["weights"] = self._weigh(np.asarray(valid.ids))
        yield values

    def _never_predicted(self) -> np.ndarray:
        """Ids that never occur in text, and so need no probability; not the unknown word and the boundary."""
        out = np.zeros(self.vocabulary.size, bool)
        for name, id in self.vocabulary.special.items():
            out[id] = id != self.boundary and "unk" not in name.lower()
        return out

    def _check_mixable(self, folder: Path, tokens: str) -> Path:
        """The file of another n-gram run with the same tokenizer."""
        if not (folder / FILE).is_file():
            raise RunError(
                f"[phase] estimator mix names {folder}, which is no n-gram run: it has no {FILE}.", path=folder
            )
        if len(_read_weights(folder)[1]) > 1:
            raise RunError(
                f"[phase] estimator mix names {folder}, which is itself a mixture or has a cache. Name the runs that "
                "it consists of.",
                path=folder,
            )
        if open_layout(folder / FILE).size != self.vocabulary.size or not _same_tokens(folder, self.vocabulary, tokens):
            raise RunError(
                f"{folder} cannot be mixed in, because it has another tokenizer. Train both with the same one: "
                f"--set tokenizer.load={folder}/tokenizer.json",
                path=folder,
            )
        return folder / FILE

    def _weigh(self, ids: np.ndarray) -> list[float]:
        from nextword.ngrams.interpolation import fit_weights

        with np.errstate(divide="ignore"):
            self.weights, *_ = fit_weights(np.log(self._probabilities(self._stream(ids))[:, 1:]))
        return [round(float(w), 6) for w in self.weights]

    def _use(self, files: Sequence[Path], weights: Sequence[float] | None = None) -> None:
        self._files = list(files)
        self.parts = [open_layout(path) for path in files]
        caches = 1 if self.config.cache else 0
        shares = [(1 - CACHE_WEIGHT * caches) / len(files)] * len(files) + [CACHE_WEIGHT] * caches
        self.weights = np.array(shares if weights is None else weights)
        for part, path in zip(self.parts, files, strict=True):
            if part.size != self.vocabulary.size or part.boundary != self.boundary:
                raise RunError(
                    f"{path} has {part.size:,} words, but the tokenizer {self.vocabulary.size:,}. One of the two was "
                    "replaced; restore it, or train again.",
                    path=path,
                )

    # -------------------------------------------------------------------------------------------- scoring

    @property
    def window(self) -> int | None:  # type: ignore[override]
        return None if self.config.cache else self.back

    @property
    def back(self) -> int:
        """How many ids the state holds."""
        return max([self.config.cache, self.config.order - 1, *(part.order - 1 for part in self.parts)])

    def num_parameters(self) -> int:
        """A probability per n-gram, and a back-off weight per n-gram below the highest order."""
        return sum(sum(part.entries) + sum(part.entries[:-1]) for part in self.parts)

    def num_bytes(self) -> int:
        """The files, which are mapped into memory."""
        return sum(path.stat().st_size for path in self._files)

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
        flat = np.full((rows, read.shape[1] + 1), NONE, np.uint32)  # NONE before each row resets the context
        flat[:, 1:] = read.numpy()
        log_p = torch.from_numpy(self.read(flat.reshape(-1)).reshape(flat.shape)[:, -(width - 1) or flat.shape[1] :])
        inside = torch.arange(width - 1) < (lengths - 1).unsqueeze(1)
        read = read[:, :-1]
        return log_p.masked_fill(~inside, 0.0), read[:, read.shape[1] - state.shape[1] :]

    def read(self, ids: np.ndarray) -> np.ndarray:
        """ln p of each id of a stream, given those before it; NONE resets the context and has probability 1."""
        if len(self.weights) == 1:
            return self.parts[0].read(ids)
        with np.errstate(divide="ignore"):
            return np.log(self.weights @ self._probabilities(ids)).astype(np.float32)

    def _probabilities(self, ids: np.ndarray) -> np.ndarray:
        """(parts, T): the probability by each part; where the cache is empty, that of the model itself."""
        found = [np.exp(part.read(ids)) for part in self.parts]
        if self.config.cache:
            from nextword.ngrams.interpolation import cache_probabilities

            cached = cache_probabilities(ids, np.full(self.config.cache, NONE, np.uint32))
            found.append(np.where(cached < 0, found[0], cached))
        return np.stack(found)

    def _stream(self, ids: np.ndarray) -> np.ndarray:
        return np.concatenate([[self.boundary], ids]).astype(np.uint32)

    # -------------------------------------------------------------------------------------------- files

    def trie(self) -> Trie:
        """The model as plain arrays, for conversion."""
        if len(self.weights) > 1:
            raise Unsupported(
                "A mixture, or a model with a cache, is no back-off model, so no ARPA file can hold it. Convert the "
                "runs that it consists of.",
                ability="convert",
            )
        return self.parts[0].trie()

    @classmethod
    def of_trie(cls, trie: Trie, config: NGramConfig, vocabulary: Vocabulary, place: Path) -> NGram:
        """A model from estimated n-grams, laid out as `config` says in a file in the folder `place`."""
        network = cls(config, vocabulary)
        write_layout(trie, place / FILE, config.layout, config.bits)
        network._use([place / FILE])
        return network

    def save(self, folder: Path) -> list[str]:
        names = _file_names(len(self._files))
        for name, path in zip(names, self._files, strict=True):
            link_or_copy(path, folder / name)
        (folder / WEIGHTS).write_text(json.dumps({"files": names, "weights": self.weights.tolist()}) + "\n")
        return [*names, WEIGHTS]

    @classmethod
    def load(cls, folder: Path, config: NGramConfig, vocabulary: Vocabulary) -> NGram:
        network = cls(config, vocabulary)
        names, weights = _read_weights(folder)
        if len(weights) != len(names) + (config.cache > 0):
            raise _damaged_weights(folder)
        network._use([folder / name for name in names], weights)
        return network


def _file_names(count: int) -> list[str]:
    return [FILE if i == 0 else f"model.{i}.ngram" for i in range(count)]


def _read_weights(folder: Path) -> tuple[list[str], list[float]]:
    """The files of a mixture's parts, and its weights."""
    about = read_json(folder / WEIGHTS, {"files": list, "weights": list}, "Restore it, or train again.")
    names, weights = about["files"], about["weights"]
    is_mixture = all(type(weight) in (int, float) and 0 <= weight <= 1 for weight in weights)
    if not names or names != _file_names(len(names)) or not is_mixture or abs(sum(weights) - 1) > 1e-6:
        raise _damaged_weights(folder)
    return names, weights


def _damaged_weights(folder: Path) -> RunError:
    path = folder / WEIGHTS
    return RunError(
        f"{path} is damaged: it needs a weight per model file and cache, which sum to 1. Restore it, or train again.",
        path=path,
    )


def _same_tokens(folder: Path, vocabulary: Vocabulary, tokens: str) -> bool:
    """`tokens`: the hash of the tokenizer that the text was prepared with, if known."""
    from nextword.tokenizers import vocabulary as vocabulary_of
    from nextword.tokenizers.loading import load_tokenizer

    path = folder / "tokenizer.json"
    if tokens and blake2b(path.read_bytes(), digest_size=16).hexdigest() != tokens:
        return False
    return replace(vocabulary_of(load_tokenizer(path)), pieces=()) == replace(vocabulary, pieces=())
