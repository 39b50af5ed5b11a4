"""Cross-view training of taggers, from tagged and untagged sentences in turn (Clark et al. 2018).

    tagged       J = 1/W Σ_words CE(tag, p)                        p: the primary head. Tags are smoothed
    untagged     J = 1/W Σ_tasks Σ_views Σ_words −Σ_k p_k log q_k   q: a head that sees less; p is a constant target

For each task there are six heads over a network that has such views (models/cvt.py), each linear, ReLU, linear:

    primary     [uni; bi]      the whole sentence. It is used for predictions, and learns from tags
    full        [uni; bi]      the same without ReLU                          ┐
    forwards    uni_fw         the word and all before it                     │  these learn to predict what the
    backwards   uni_bw         the word and all after it                      │  primary head predicts, from untagged
    future      uni_fw, t − 1  all before the word, but not the word          │  sentences
    past        uni_bw, t + 1  all after the word                             ┘

Before the first word and after the last there are zeros. Targets are computed without dropout and without gradients.
Elsewhere the network's own dropout applies to tagged, and the objective's `dropout` to untagged sentences. Without
`unlabeled` text all steps are of the first kind: the same network, trained on tags alone.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.batching.examples import UNLABELED
from nextword.batching.settings import require_count, require_number
from nextword.batching.token_stream import tokenizer_hash
from nextword.core.errors import DataError, InvalidSetting, NextwordError, Unsupported
from nextword.core.io import cache_folder
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State
from nextword.data.conll import TaggedSentence
from nextword.data.corpus import Corpus
from nextword.data.opening import open_unsplit
from nextword.data.segmentation import sentence_spans
from nextword.data.tables import Columns
from nextword.data.tag_schemes import PLAIN
from nextword.layers.char_cnn import word_characters
from nextword.layers.crf import forbidden_scores
from nextword.metrics.classification import combine_tasks
from nextword.models.base import Network
from nextword.objectives import make_objective
from nextword.run_folder import RunFolder
from nextword.tasks.base import Dataset, Progress, Setup, Wording, from_data
from nextword.tasks.datasets.tagged import MixedTagDataset, TagDataset, read_tag_data
from nextword.tasks.heads import ModelWithHead
from nextword.tasks.mixtures import (
    MixedExamples,
    join_tasks,
    mixed_batches,
    mixed_validation_batches,
)
from nextword.tasks.prediction_files import FilePredictions, PredictionRequest, Record, json_lines
from nextword.tasks.tagging import (
    TaggedExamples,
    Tagging,
    TagObjective,
    TagTaskConfig,
    WordTagger,
    allowed_steps,
    analyze_tags,
    best_of_softmax,
    count_words,
    name_indices,
    name_tags,
    read_tag_request,
    score_examples,
    softmax_nats,
    write_conll,
)
from nextword.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from nextword.models.cvt import Views

PRIMARY = "primary"
VIEWS = ("full", "forwards", "backwards", "future", "past")
UNLABELED_KEY = "phase.0.objective.unlabeled"


# ------------------------------------------------------------------------------------------------ heads


@dataclass(frozen=True)
class TagSet:
    """The tags of one task."""

    name: str
    tags: tuple[str, ...]
    scheme: str = PLAIN


class ViewHead(nn.Sequential):
    """(…, D) → (…, tags)."""

    def __init__(self, inputs: int, width: int, tags: int, relu: bool = True) -> None:
        layers = nn.Linear(inputs, width), nn.Linear(width, tags)
        super().__init__(layers[0], nn.ReLU() if relu else nn.Identity(), layers[1])
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class TaskHeads(nn.Module):
    """The six heads of one task, over a network with these widths of one direction and of the whole."""

    forbidden: Tensor

    def __init__(self, task: TagSet, side: int, whole: int, width: int) -> None:
        super().__init__()
        tags, steps = len(task.tags), allowed_steps(task.tags, task.scheme)
        heads = {PRIMARY: ViewHead(whole, width, tags), "full": ViewHead(whole, width, tags, relu=False)}
        heads |= {name: ViewHead(side, width, tags) for name in VIEWS[1:]}
        self.heads = nn.ModuleDict(heads)
        self.is_plain = task.scheme == PLAIN
        self.register_buffer("forbidden", forbidden_scores(tags, steps), persistent=False)

    def primary(self, views: Views) -> Tensor:
        """(B, T, K) logits."""
        logits: Tensor = self.heads[PRIMARY](views.both)
        return logits

    def auxiliary(self, views: Views) -> dict[str, Tensor]:
        """The logits of each of the other heads, (B, T, K)."""
        inputs = {
            "full": views.both,
            "forwards": views.left,
            "backwards": views.right,
            "future": F.pad(views.left, (0, 0, 1, 0))[:, :-1],
            "past": F.pad(views.right, (0, 0, 0, 1))[:, 1:],
        }
        return {name: self.heads[name](view) for name, view in inputs.items()}

    def best_tags(self, emissions: Tensor, mask: Tensor) -> Tensor:
        return best_of_softmax(emissions, mask, None if self.is_plain else self.forbidden)


class CrossViewHead(ModelWithHead):
    """The heads of all tasks over one network. A batch says of which task its tags are (`task_index`)."""

    def __init__(self, network: Network, config: CrossViewConfig) -> None:
        if not network.has_views:
            raise Unsupported(
                f"Cross-view training needs a network with several views of a word, and {type(network).__name__} has "
                "none. Use a recipe of cvt, or one of kind tagging.",
                ability="views",
            )
        super().__init__(network, config.features, config.frozen)
        side, whole = network.widths[1] // 2, network.widths[2]
        self.out = nn.ModuleList(TaskHeads(task, side, whole, config.width) for task in config.tag_sets)

    def views(self, inputs: Inputs, dropout: float = 0.0) -> Views:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            views: Views = self.encoder.views(inputs, dropout)
        return views

    def forward(self, batch: Batch) -> Tensor:
        """(B, W, K): logits of the primary head of the batch's task."""
        dropout = self.encoder.config.dropout if self.training and not self.frozen else 0.0
        heads: TaskHeads = self.out[batch.task_index]
        return heads.primary(self.views(batch.inputs, dropout)).float()

    @torch.no_grad()
    def targets(self, inputs: Inputs) -> list[Tensor]:
        """Probabilities of the primary head of every task (B, W, K), without dropout."""
        views = self.views(inputs)
        return [heads.primary(views).float().softmax(-1) for heads in self.out]

    def auxiliary(self, inputs: Inputs, dropout: float) -> list[Mapping[str, Tensor]]:
        """Logits of the other heads of every task."""
        views = self.views(inputs, dropout)
        return [heads.auxiliary(views) for heads in self.out]

    def nats(self, emissions: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """(B,): −log p of the tags of each row."""
        return softmax_nats(emissions, targets, smoothing)

    def best_tags(self, emissions: Tensor, mask: Tensor, task: int = 0) -> Tensor:
        """(B, W): the best sequence of tags that the scheme of this task allows; 0 where there is no word."""
        heads: TaskHeads = self.out[task]
        return heads.best_tags(emissions, mask)

    def best_tags_of_all(self, inputs: Inputs, mask: Tensor) -> list[Tensor]:
        """The best tags of every task (B, W); the network reads once."""
        views = self.views(inputs)
        return [heads.best_tags(heads.primary(views).float(), mask) for heads in self.out]


def soft_cross_entropy(emissions: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """−Σ_k p_k log q_k, summed over words: (B, W, K), probabilities (B, W, K), (B, W) → ()."""
    nats = -(targets * emissions.float().log_softmax(-1)).sum(-1)
    return (nats * mask).sum()


# ------------------------------------------------------------------------------------------------ objective


class CrossViewObjective(TagObjective):
    """`unlabeled`: a text, as --data names one; its first `max_sentences` of at most `max_length` words are read."""

    def __init__(
        self,
        batches: Mapping[str, Any],
        unlabeled: str = "",
        max_sentences: int = 300_000,
        max_length: int = 50,
        label_smoothing: float = 0.1,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(batches)
        for name, value in (("label_smoothing", label_smoothing), ("dropout", dropout)):
            require_number(f"objective.{name}", value, 0, 1, exclude_high=True)
        for name, count in (("max_sentences", max_sentences), ("max_length", max_length)):
            require_count(f"objective.{name}", count)
        self.unlabeled, self.max_sentences, self.max_length = unlabeled, max_sentences, max_length
        self.label_smoothing, self.dropout = label_smoothing, dropout

    def batches_per_epoch(self, text: MixedExamples) -> int:
        """Steps with as many tagged batches as all tasks have together."""
        return text.turns * sum(self.layout.batches_per_epoch(part) for part in text.parts)

    def batches(self, text: MixedExamples, seed: int, step: int) -> Iterator[Batch]:
        return mixed_batches(self.layout, text, seed, step)

    def validation_batches(self, text: MixedExamples | TaggedExamples) -> Iterator[Batch]:
        parts = text.parts if isinstance(text, MixedExamples) else (text,)
        return mixed_validation_batches(self.layout, parts)

    def loss(self, network: CrossViewHead, batch: Batch, state: State) -> Loss:
        if batch.task_index == UNLABELED:
            return self._loss_between_views(network, batch)
        emissions = network(batch)
        nats = network.nats(emissions, batch.targets).sum()
        if not network.training:
            mask = batch.targets != IGNORE
            outputs = network.best_tags(emissions.detach(), mask, batch.task_index)[mask]  # (words,) row by row
            return Loss(nats / batch.num_targets, nats, batch.num_targets, outputs=outputs)
        value = network.nats(emissions, batch.targets, self.label_smoothing).sum() / batch.num_targets
        return Loss(value, nats.detach(), batch.num_targets)

    def _loss_between_views(self, network: CrossViewHead, batch: Batch) -> Loss:
        """It has no nats, which are those of tags."""
        mask = batch.targets != IGNORE
        targets = network.targets(batch.inputs)
        losses: dict[str, Tensor] = {}
        for target, views in zip(targets, network.auxiliary(batch.inputs, self.dropout), strict=True):
            for name, emissions in views.items():
                loss = soft_cross_entropy(emissions, target, mask) / batch.num_targets
                losses[name] = losses[name] + loss if name in losses else loss
        value = torch.stack(list(losses.values())).sum()
        terms = {name: loss.detach() for name, loss in losses.items()}
        return Loss(value, value.new_zeros(()).detach(), 0, terms=terms)

    def metrics(self, text: MixedExamples | TaggedExamples, outputs: Tensor) -> dict[str, float]:
        """Of several tasks, the mean of their main metrics, and each."""
        if not isinstance(text, MixedExamples):
            return super().metrics(text, outputs)
        parts = outputs.split([len(part.tags) for part in text.parts])
        scores = [super(CrossViewObjective, self).metrics(*both) for both in zip(text.parts, parts, strict=True)]
        return combine_tasks(text.names, scores)


# ------------------------------------------------------------------------------------------------ untagged sentences
#
#     "The U.S. has said so. It knows."   →   The U.S. has said so .     It knows .      sentences, punctuation apart
#     words    3 7 4 …                        the index of each word among the distinct words
#     forms    T h e ▢ ▢ …                    the letters of every distinct word, and `ids` its token
#
# Letters are stored once per distinct word, and the arrays cached. Sentences of fewer than five words are mostly
# headings, and are left out, like those that are too long.

LEAST = 5  # words of a sentence
VERSION = 1  # of the file; part of its name
ARRAYS = ("ids", "forms", "words", "starts")


@dataclass(frozen=True)
class SharedLetters:
    """The letters of words, stored once per distinct word; it can be indexed like the array (M, L)."""

    forms: np.ndarray  # (F, L)
    words: np.ndarray  # (M,)

    def __getitem__(self, words: np.ndarray) -> np.ndarray:
        return np.asarray(self.forms[self.words[words]])

    def __len__(self) -> int:
        return len(self.words)


def read_untagged(
    corpus: Corpus,
    tokenizer: Tokenizer,
    letters: int,
    most: int,
    longest: int,
    progress: Progress = lambda label, done, total: None,
) -> tuple[TaggedExamples, str]:
    """The first `most` sentences of a text, of up to `longest` words each, and a hash of everything they depend on.

    `letters`: how many of a word are read. All tags are 0.
    """
    settings = f"{VERSION} {corpus.fingerprint} {tokenizer_hash(tokenizer)} {letters} {most} {longest}"
    key = blake2b(settings.encode(), digest_size=16).hexdigest()
    path = cache_folder("sentences") / f"{key}.npz"
    arrays = _load_cache(path)
    if arrays is None:
        arrays = _split_corpus(corpus, tokenizer, letters, most, longest, progress)
        _save_cache(path, arrays)
    ids, forms, words, starts = (arrays[name] for name in ARRAYS)
    zeros = np.broadcast_to(np.int64(0), words.shape)  # takes no memory
    places = np.arange(len(words), dtype=np.int32) - np.repeat(starts[:-1].astype(np.int32), np.diff(starts))
    shared = SharedLetters(forms, words)
    pooled = np.zeros(len(starts) - 1, np.int64)
    examples = TaggedExamples(
        ids[words].astype(np.int64), starts, pooled, words=places, word_starts=starts, tags=zeros, letters=shared
    )
    return examples, key


def _load_cache(path: Path) -> dict[str, np.ndarray] | None:
    """None if there is no file, or a damaged one: it is written again."""
    try:
        with np.load(path) as arrays:
            return {name: arrays[name] for name in ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def _save_cache(path: Path, arrays: dict[str, np.ndarray]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(temporary, **arrays)  # type: ignore[arg-type]
        temporary.replace(path)
    except OSError as error:
        raise NextwordError(
            f"Sentences cannot be cached in {path.parent}: {error.strerror}. Set NEXTWORD_CACHE to a folder with space."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _split_corpus(
    corpus: Corpus, tokenizer: Tokenizer, letters: int, most: int, longest: int, progress: Progress
) -> dict[str, np.ndarray]:
    index: dict[str, int] = {}  # of distinct words
    words, sizes = array("i"), array("i")
    split = "train" if "train" in corpus.splits else corpus.splits[0]  # a text without splits is read whole
    texts = (document.text for document in corpus.documents(split))
    for row in index_words(texts, tokenizer, index):
        if LEAST <= len(row) <= longest:
            words.extend(row)
            sizes.append(len(row))
            if len(sizes) % 1000 == 0:
                progress("reading untagged sentences", len(sizes), most)
            if len(sizes) == most:
                break
    if not sizes:
        raise DataError(
            f"{corpus.name} has no sentence of {LEAST} to {longest} words. Give a text of sentences, or more of it.",
            path=corpus.name,
        )
    forms = list(index)
    tokens = [encoding.ids for encoding in tokenizer.encode_batch(forms)]
    if any(len(ids) != 1 for ids in tokens):
        raise InvalidSetting(
            f"Words are read one by one, but the tokenizer ({tokenizer.kind}) splits them. Use kind "
            '"lexicon" with whole = true.',
            key="tokenizer.kind",
            value=tokenizer.kind,
        )
    return {
        "ids": np.concatenate(tokens).astype(np.int32),
        "forms": word_characters(forms, letters),
        "words": np.array(words, np.int32),
        "starts": np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))),
    }


def index_words(texts: Iterable[str], tokenizer: Tokenizer, index: dict[str, int]) -> Iterator[list[int]]:
    """Yield every sentence as indices of its words in a growing table; a run of characters is split only once."""
    runs: dict[str, list[int]] = {}
    for text in texts:
        for start, end in sentence_spans(text):
            row: list[int] = []
            for run in text[start:end].split():
                if run not in runs:
                    runs[run] = [index.setdefault(part, len(index)) for part in tokenizer.split_words(run)]
                row += runs[run]
            yield row


# ------------------------------------------------------------------------------------------------ task


@dataclass(frozen=True)
class CrossViewConfig(TagTaskConfig):
    width: int = 300  # between the two linear layers of a head
    tasks: Sequence[Mapping[str, Any]] = from_data((), "--data 'A + B'")  # name, scheme and labels of each of several

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_count("width", 1, "an integer of at least 1")

    @property
    def tag_sets(self) -> tuple[TagSet, ...]:
        if not self.tasks:
            return (TagSet("", tuple(self.labels), self.scheme),)
        return tuple(TagSet(task["name"], tuple(task["labels"]), task["scheme"]) for task in self.tasks)


class CrossViewTagging(Tagging):
    """Tags of one task, or of several at once."""

    config: CrossViewConfig  # type: ignore[assignment]
    Config = CrossViewConfig
    objective = CrossViewObjective
    example_recipe = "cvt/conll2000"

    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        self.check_options(columns, kind)
        return read_tag_data(source, columns.label, self.config.scheme or TagTaskConfig.scheme)

    def settings_from(self, data: TagDataset | MixedTagDataset, run: RunFolder | None) -> dict[str, Any]:
        tasks = data.tasks if isinstance(data, MixedTagDataset) else ()
        return {"scheme": data.scheme, "tasks": tasks}

    def head(self, network: Network) -> ModelWithHead:
        return CrossViewHead(network, self.config)

    def encode(self, data: TagDataset | MixedTagDataset, setup: Setup) -> dict[str, Any]:
        examples: dict[str, Any]
        if isinstance(data, MixedTagDataset):
            encoded = [self.encode_splits(part, setup, part.metrics) for part in data.sets]
            examples = dict(join_tasks(data.names, encoded))
        else:
            examples = super().encode(data, setup)
        train = examples["train"]
        train = train if isinstance(train, MixedExamples) else MixedExamples(("",), (train,))
        return examples | {"train": self.add_untagged(train, setup)}

    def add_untagged(self, train: MixedExamples, setup: Setup) -> MixedExamples:
        """Add the untagged sentences that the recipe's objective names, if it names any."""
        network, phase = setup.network, setup.recipe.phases[0]
        objective = make_objective(phase.objective, phase.batches, network.vocabulary)
        if not isinstance(objective, CrossViewObjective) or not objective.unlabeled:
            return train
        try:
            corpus = open_unsplit(objective.unlabeled)
        except NextwordError as error:
            raise InvalidSetting(
                f"The untagged text {objective.unlabeled!r} cannot be read: {error} Name another with --set "
                f"{UNLABELED_KEY}=FILE, or train on tags alone with --set {UNLABELED_KEY}=''.",
                key=UNLABELED_KEY,
                value=objective.unlabeled,
            ) from None
        limits = network.max_characters, objective.max_sentences, objective.max_length
        text, setup.other_text = read_untagged(corpus, setup.tokenizer, *limits, setup.progress)
        return replace(train, unlabeled=text)

    def sample(self, examples: Any, fraction: float, seed: int) -> Any:
        return examples if fraction == 1 else examples.sample(fraction, seed)

    def predictor(self, model: ModelWithHead, tokenizer: Tokenizer, length: int, name: str) -> WordTagger:
        tagger = MultitaskTagger if self.config.tasks else WordTagger
        return tagger(model, tokenizer, self, length, name)

    def predict_file(self, predictor: WordTagger, request: PredictionRequest) -> FilePredictions:
        if isinstance(predictor, MultitaskTagger):
            return predict_several_tags(predictor, request)
        return super().predict_file(predictor, request)

    def records(self, predictor: WordTagger, predictions: Sequence[Any]) -> list[Record]:
        """Those of several tasks have the tags by task."""
        if not isinstance(predictor, MultitaskTagger):
            return super().records(predictor, predictions)
        return [
            {
                "words": list(next(iter(by_task.values())).words),
                "tags": {name: list(tagged.tags) for name, tagged in by_task.items()},
            }
            for by_task in predictions
        ]

    def predict_split(
        self, predictor: WordTagger, data: Any, part: str, split: str, examples: Mapping[str, Any]
    ) -> list[list[str]]:
        if not self.config.tasks:
            return super().predict_split(predictor, data, part, split, examples)
        i = examples[split].names.index(part)
        own = examples[split].parts[i]
        return name_indices(own, [tags[:, i] for tags in predictor.best_tags(own)])

    def analyze_errors(self, predictor: Any, data: Any, examples: Any) -> dict[str, Any]:
        if not self.config.tasks:
            return super().analyze_errors(predictor, data, examples)
        analyses = []
        for i, (part, own) in enumerate(zip(data.sets, examples.parts, strict=True)):
            predicted = [tags[:, i] for tags in predictor.best_tags(own)]
            analyses.append({"task": part.name, **analyze_tags(own, predicted, part)})
        return {"tasks": analyses}

    def wording(self) -> Wording:
        own = super().wording()
        if not self.config.tasks:
            return own
        return replace(
            own,
            summary=f"tags of {len(self.config.tasks)} tasks for a word",
            output="; ".join(f"{task.name}: {', '.join(task.tags)}" for task in self.config.tag_sets),
        )


class MultitaskTagger(WordTagger):
    """`predict` gives {task: TaggedSentence} for every sentence; the network reads it once."""

    model: CrossViewHead  # type: ignore[assignment]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.task.config.tag_sets)

    @property
    def no_tags(self) -> np.ndarray:
        return np.zeros((0, len(self.names)), np.int64)

    def prediction(self, words: Sequence[str], tags: np.ndarray) -> Any:
        pairs = zip(self.task.config.tag_sets, tags.T, strict=True)
        return {task.name: TaggedSentence(tuple(words), name_tags(own, task.tags, task.scheme)) for task, own in pairs}

    def tag_batch(self, batch: Batch, mask: Tensor) -> Tensor:
        """(B, W, tasks)"""
        return torch.stack(self.model.best_tags_of_all(batch.inputs, mask), -1)

    def score_examples(self, examples: MixedExamples) -> dict[str, float]:  # type: ignore[override]
        """The mean of the tasks' main metrics, and each."""
        scores = []
        for i, part in enumerate(examples.parts):
            scores.append(score_examples(part, part.gold, [tags[:, i] for tags in self.best_tags(part)]))
        return combine_tasks(examples.names, scores)


def predict_several_tags(model: MultitaskTagger, request: PredictionRequest) -> FilePredictions:
    """Tag the words of sentences with the tags of several tasks, one column each."""
    suffix, sentences = read_tag_request(model, request)
    tagged: Sequence[Mapping[str, Any]] = model.predict([one.words for one in sentences], request.progress)
    records = model.task.records(model, tagged)
    if suffix == ".jsonl":
        content = json_lines(records)
    else:
        header = "\t".join(("word", *model.names)) + "\n" if suffix == ".tsv" else ""
        content = header + "".join(
            write_conll([record["words"], *(record["tags"][name] for name in model.names)]) for record in records
        )
    labels = {task.name: list(task.tags) for task in model.task.config.tag_sets}
    notes = [f"columns: word, {', '.join(model.names)}"]
    return FilePredictions(content, records, count_words(sentences), labels, notes=notes, unit="sentences")
