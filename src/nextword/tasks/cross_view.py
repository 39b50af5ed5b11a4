"""Heads of tags that see a word from six sides, over a network that has such sides (models/cvt.py): for each task six.

    primary     [uni; bi]      the whole sentence. The one that is used, and that learns from tags
    full        [uni; bi]      the same without a relu                       ┐
    forwards    uni_fw         the word and all before it                    │  these learn to say what the
    backwards   uni_bw         the word and all after it                     │  primary says, of sentences that
    future      uni_fw, t − 1  all before the word, but not the word         │  nobody has tagged
    past        uni_bw, t + 1  all after the word                            ┘

Each is linear, relu, linear. Where nothing has been read, before the first word and after the last, there are zeros.
Tags that a scheme forbids in a row are not looked for (Viterbi), as with any other head of tags.

Cross-view training: in turn, sentences with tags and sentences without (Clark et al. 2018, section 2).

    with tags       J = 1/W Σ_words CE(tag, p)                       p: the primary head. Tags are smoothed
    without         J = 1/W Σ_tasks Σ_views Σ_words −Σ_k p_k log q_k  q: a head that sees less; p is a target, no more

The network has heads for every task and view (nextword.tasks.cross_view). A target is made of the weights as they are, with
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
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.batching.examples import UNTAGGED
from nextword.batching.token_stream import tokenizer_hash
from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State
from nextword.data.conll import TaggedSentence, TaggedText
from nextword.data.corpus import Corpus
from nextword.data.opening import open_whole
from nextword.data.segmentation import sentences
from nextword.data.tag_schemes import PLAIN, allowed
from nextword.layers.char_cnn import letters_of
from nextword.layers.crf import penalties
from nextword.metrics.classification import combine_tasks
from nextword.objectives import make_objective
from nextword.recipe import Recipe
from nextword.tasks.base import ModelWithHead
from nextword.tasks.mixtures import Several, in_turn, validation_batches
from nextword.tasks.multitask import Sets, names_in
from nextword.tasks.tagging import Tag, TaggedExamples, TagSet, best_of_softmax, open_tags, softmax_nats
from nextword.tokenizers.ptb_words import split

PRIMARY = "primary"
VIEWS = ("full", "forwards", "backwards", "future", "past")


@dataclass(frozen=True)
class TagTask:
    """What one of several tasks says of a word."""

    name: str
    tags: tuple[str, ...]
    scheme: str = PLAIN


@dataclass(frozen=True)
class ViewsConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    tasks: tuple[TagTask, ...]
    width: int = 512  # between the two linear layers of a head
    features: str = ""
    frozen: bool = False

    def __post_init__(self) -> None:
        if not hasattr(self.model, "views"):
            raise NextwordError(
                "[task] classifier = 'views' is for networks that see a word from several sides; "
                f"{self.model.__name__} does not. Take a recipe of cross-view training, or classifier = 'crf'."
            )


class Head(nn.Sequential):
    """(…, D) → (…, tags)."""

    def __init__(self, inputs: int, width: int, tags: int, bent: bool = True) -> None:
        layers = nn.Linear(inputs, width), nn.Linear(width, tags)
        super().__init__(layers[0], nn.ReLU() if bent else nn.Identity(), layers[1])
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class Heads(nn.Module):
    """The six of one task, over a network with this width of a side and of the whole."""

    forbidden: Tensor

    def __init__(self, task: TagTask, side: int, whole: int, width: int) -> None:
        super().__init__()
        tags = len(task.tags)
        own = {PRIMARY: Head(whole, width, tags), "full": Head(whole, width, tags, bent=False)}
        own |= {name: Head(side, width, tags) for name in VIEWS[1:]}
        self.heads = nn.ModuleDict(own)
        self.free = task.scheme == PLAIN
        steps = None
        if not self.free:
            steps = [torch.from_numpy(part) for part in allowed(task.tags, task.scheme)]
        self.register_buffer("forbidden", penalties(tags, steps), persistent=False)

    def primary(self, seen: Any) -> Tensor:
        """(B, T, K), not yet probabilities."""
        return self.heads[PRIMARY](seen.both)

    def auxiliary(self, seen: Any) -> dict[str, Tensor]:
        """What each of the others says, (B, T, K)."""
        sights = {
            "full": seen.both,
            "forwards": seen.left,
            "backwards": seen.right,
            "future": F.pad(seen.left, (0, 0, 1, 0))[:, :-1],
            "past": F.pad(seen.right, (0, 0, 0, 1))[:, 1:],
        }
        return {name: self.heads[name](sight) for name, sight in sights.items()}

    def best(self, emissions: Tensor, there: Tensor) -> Tensor:
        return best_of_softmax(emissions, there, None if self.free else self.forbidden)


class Views(ModelWithHead):
    """All tasks' heads over one network. A batch says of which task its tags are (`part`)."""

    def __init__(self, config: ViewsConfig, network: Any) -> None:
        super().__init__(config, network)
        side, whole = network.widths[1] // 2, network.widths[2]
        self.out = nn.ModuleList(Heads(task, side, whole, config.width) for task in config.tasks)

    def seen(self, inputs: Inputs, dropout: float = 0.0) -> Any:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            return self.encoder.views(inputs, dropout)

    def forward(self, batch: Batch) -> Tensor:
        """(B, W, K): what the primary head of the batch's task says."""
        dropout = self.encoder.config.dropout if self.training and not self.config.frozen else 0.0
        return self.out[batch.task_index].primary(self.seen(batch.inputs, dropout)).float()

    @torch.no_grad()
    def taught(self, inputs: Inputs) -> list[Tensor]:
        """Of every task, the primary head's probabilities (B, W, K): nothing is dropped, and nothing learnt."""
        seen = self.seen(inputs)
        return [heads.primary(seen).float().softmax(-1) for heads in self.out]

    def auxiliary(self, inputs: Inputs, dropout: float) -> list[Mapping[str, Tensor]]:
        """Of every task, what its other heads say."""
        seen = self.seen(inputs, dropout)
        return [heads.auxiliary(seen) for heads in self.out]

    def nats(self, emissions: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """(B,): −log p of the tags of each row, as heads/tags.py has it."""
        return softmax_nats(emissions, targets, smoothing)

    def best(self, emissions: Tensor, there: Tensor, part: int = 0) -> Tensor:
        """(B, W): the best tags that the scheme of this task allows; 0 where there is no word."""
        return self.out[part].best(emissions, there)

    def best_of_all(self, inputs: Inputs, there: Tensor) -> list[Tensor]:
        """Of every task, the best tags (B, W); the network is read once."""
        seen = self.seen(inputs)
        return [heads.best(heads.primary(seen).float(), there) for heads in self.out]


def soft_cross_entropy(emissions: Tensor, targets: Tensor, there: Tensor) -> Tensor:
    """−Σ_k p_k log q_k, summed over the words that are there: (B, W, K), probabilities (B, W, K), (B, W) → ()."""
    each = -(targets * emissions.float().log_softmax(-1)).sum(-1)
    return (each * there).sum()


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

    def batches_per_epoch(self, text: Several) -> int:  # type: ignore[override]
        """Steps in which there are as many batches with tags as all tasks together have."""
        return text.turns * sum(self.layout.batches_per_epoch(part) for part in text.parts)

    def batches(self, text: Several, seed: int, step: int) -> Iterator[Batch]:  # type: ignore[override]
        return in_turn(self.layout, text, seed, step)

    def validation_batches(self, text: Several | TaggedExamples) -> Iterator[Batch]:
        return validation_batches(self.layout, text)

    # -------------------------------------------------------------------------------------------- losses

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if batch.task_index == UNTAGGED:
            return self._between_views(network, batch)
        emissions = network(batch)
        nats = network.nats(emissions, batch.targets).sum()
        if not network.training:
            there = batch.targets != IGNORE
            said = network.best(emissions.detach(), there, batch.task_index)[there]  # (words,) row by row
            return Loss(nats / batch.num_targets, nats, batch.num_targets, outputs=said)
        value = network.nats(emissions, batch.targets, self.smoothing).sum() / batch.num_targets
        return Loss(value, nats.detach(), batch.num_targets)

    def _between_views(self, network: Any, batch: Batch) -> Loss:
        """Nothing of it is counted as nats, which are of tags."""
        there = batch.targets != IGNORE
        targets = network.taught(batch.inputs)
        losses: dict[str, Tensor] = {}
        for target, views in zip(targets, network.auxiliary(batch.inputs, self.dropout), strict=True):
            for name, emissions in views.items():
                loss = soft_cross_entropy(emissions, target, there) / batch.num_targets
                losses[name] = losses[name] + loss if name in losses else loss
        value = torch.stack(list(losses.values())).sum()
        parts = {name: loss.detach() for name, loss in losses.items()}
        return Loss(value, value.new_zeros(()).detach(), 0, terms=parts)

    # -------------------------------------------------------------------------------------------- how good it is

    def metrics(self, text: Several | TaggedExamples, said: Tensor) -> dict[str, float]:
        """Of one task as `tag` has it; of several, the mean of what decides in each, and then those."""
        if not isinstance(text, Several):
            return super().metrics(text, said)
        sizes = [len(part.tags) for part in text.parts]
        each = [super(CrossView, self).metrics(*one) for one in zip(text.parts, said.split(sizes), strict=True)]
        return combine_tasks(text.names, each)


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


KEY = "phase.0.objective.unlabelled"


@dataclass(frozen=True)
class TagSets(Sets):
    """Of tags: "conll2000 + conll2003:ner", each with its column of tags if need be."""

    sets: tuple[TagSet, ...]

    kind = frame = "tag"
    scheme = PLAIN  # each has its own

    @property
    def tasks(self) -> tuple[dict[str, Any], ...]:
        """As a run's [task] has them."""
        return tuple({"name": one.name, "scheme": one.scheme, "labels": list(one.labels)} for one in self.sets)

    @property
    def splits(self) -> dict[str, TaggedText]:
        """Sentences of all, one set after the other."""
        found: dict[str, list[TaggedSentence]] = {}
        for one in self.sets:
            for split, text in one.splits.items():
                found.setdefault(split, []).extend(text.sentences)
        return {split: TaggedText(self.name, sentences) for split, sentences in found.items()}


def open_several(given: str, column: str = "", scheme: str = "BIOES") -> TagSet | TagSets:
    """One data set, or several with " + " between them; "conll2003:pos" names the column of tags."""
    names = names_in(given)
    if len(names) > 1 and column:
        raise NextwordError(f"--label {column} is of one data set; of several say it with each, as in conll2003:pos.")
    found = tuple(_with_column(name, column, scheme) for name in names)
    return found[0] if len(found) == 1 else TagSets(found)


def _with_column(name: str, column: str, scheme: str) -> TagSet:
    base, colon, own = name.rpartition(":")
    if not colon or Path(name).exists():
        return open_tags(name, column, scheme)
    return replace(open_tags(base, own, scheme), name=name)


def with_untagged(
    recipe: Recipe, network: Any, tokenizer: Tokenizer, examples: dict[str, Any], progress: Progress
) -> dict[str, Any]:
    """Training sentences with the text beside them that the recipe's objective names, if it names one."""
    phase = recipe.phases[0]
    objective = make_objective(phase.objective, phase.batches, network.vocabulary)
    train = examples["train"]
    train = train if isinstance(train, Several) else Several(("",), (train,))
    if objective.unlabelled:
        try:
            corpus = open_whole(objective.unlabelled)
        except NextwordError as problem:
            raise NextwordError(
                f"Sentences without tags are to come from {objective.unlabelled!r}: {problem} Name another text with "
                f"--set {KEY}=FILE, or learn from tags alone with --set {KEY}=''."
            ) from None
        own = network.longest, objective.sentences, objective.longest
        text, key = untagged(corpus, tokenizer, *own, progress)
        train = replace(train, untagged=text, key=key)
    return {**examples, "train": train}
