"""Tagging: a tag for every word of a sentence, as named entities, chunks or parts of speech.

    Washington spoke   ──encode──▶  Wash ##ing ##ton spoke   ──network.frame──▶  [CLS] Wash ##ing ##ton spoke [SEP]
    word               0            0    0     0     1        its token                1                4

    frames ──network.encode──▶ h (B, T, D) ──one token per word──▶ (B, W, D) ──linear──▶ emissions (B, W, K)

    linear     log p(tags) = Σ_w log softmax(emissions_w)[tag_w]          each word by itself
    crf        with transitions between tags (layers/crf.py)
    J = 1/B Σ_sentences −log p(tags | sentence)

A word of several tokens is represented by its first token, or, if the network reads left to right, by its last one,
which has read the whole word. Either way Viterbi finds the best sequence of tags among those that the scheme allows.

    tagger = nextword.load("runs/tagger")
    tagger.predict(["U.N. official Ekeus heads for Baghdad ."])[0].tags         # B-ORG O B-PER O O B-LOC O, as IOB2
    tagger.predict([["U.N.", "official", …]])                                   # or already split into words
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.batching.examples import Bucketed, FramedExamples, UnknownWords, gather_ranges
from nextword.core.errors import DataError, InvalidSetting, NextwordError, RunError, Unsupported, invalid
from nextword.core.io import parse_json
from nextword.core.protocols import Autoregressive, Infilling
from nextword.core.types import IGNORE, Batch, Encoding, FramedText, Loss, State, require_list, texts_of
from nextword.data.catalog import find_entry
from nextword.data.conll import KIND as CATALOG_KIND
from nextword.data.conll import TaggedSentence, is_tagged, read_tagged
from nextword.data.files import FROM_STDIN, STDIN, plain_name, read_lines
from nextword.data.segmentation import join_words
from nextword.data.tables import Columns, looks_like_header
from nextword.data.tag_schemes import (
    OUTSIDE,
    PLAIN,
    SCHEMES,
    Span,
    allowed_transitions,
    convert_tags,
    find_spans,
    has_spans,
    parse_tag,
)
from nextword.layers.char_cnn import PADDING, word_characters
from nextword.layers.crf import CRF, Transitions, forbidden_scores, viterbi
from nextword.lm.embedding import ContextualVectors
from nextword.metrics.spans import SPAN_METRICS, TOKEN_ACCURACY, score_tags
from nextword.models.base import Network
from nextword.recipe import Recipe
from nextword.run_folder import RunFolder
from nextword.tasks import error_analysis
from nextword.tasks.base import (
    Count,
    Dataset,
    HeadTaskConfig,
    Predictor,
    Setup,
    Task,
    TaskConfig,
    TaskObjective,
    Wording,
    splits_beyond_dev,
)
from nextword.tasks.datasets.base import sample_file
from nextword.tasks.datasets.tagged import TagDataset, read_tags
from nextword.tasks.encoding import max_text_tokens, require_encoder
from nextword.tasks.heads import ModelWithHead
from nextword.tasks.mixtures import split_names
from nextword.tasks.prediction_files import FilePredictions, PredictionRequest, Record, json_lines, shorten_list
from nextword.tokenizers.base import Tokenizer

ROWS = 64  # sentences read at once
OUTPUT_SCHEME = "IOB2"
LINES = 200  # of a file that are looked at to recognize it


# ------------------------------------------------------------------------------------------------ examples
#
#     tokens    [CLS] Wash ##ing ##ton spoke [SEP] [CLS] …        starts        0 6 …      one frame after the other
#     words           1                4                          words         1 4 …      its token within the frame
#     tags            S-LOC            O                          word_starts   0 2 …


class WordArray(Protocol):
    """What has a row for every word, and can be indexed like an array."""

    def __getitem__(self, words: np.ndarray, /) -> Any: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class TaggedExamples(FramedExamples):
    """Sentences with a tag for every word, framed: tokens end to end, words end to end."""

    words: np.ndarray  # (M,) the token of each word, counted from the beginning of its frame; −1: it was cut off
    word_starts: np.ndarray  # (sentences + 1,)
    tags: np.ndarray  # (M,) int64: indices into `names`
    names: tuple[str, ...] = ()  # of all tags; those that no training sentence has come last
    letters: WordArray | None = None  # (M, L), if the network reads letters
    features: np.ndarray | None = field(default=None, repr=False)  # (layers, M, D) float16, perhaps on disk

    @cached_property
    def tokens_are_words(self) -> bool:
        sizes = np.diff(self.word_starts)
        places = np.arange(len(self.words)) - np.repeat(self.word_starts[:-1], sizes)
        return np.array_equal(self.starts, self.word_starts) and np.array_equal(self.words, places)

    def tags_of(self, sentence: int) -> np.ndarray:
        return self.tags[self.word_starts[sentence] : self.word_starts[sentence + 1]]

    @property
    def gold(self) -> list[np.ndarray]:
        """The tags of every sentence."""
        return [self.tags_of(i) for i in range(len(self))]

    def take(self, chosen: np.ndarray) -> Self:
        words, word_starts = gather_ranges(self.word_starts, chosen)
        return replace(
            super().take(chosen),
            words=self.words[words],
            word_starts=word_starts,
            tags=self.tags[words],
            letters=None if self.letters is None else self.letters[words],
            features=None if self.features is None else self.features[:, words],
        )


@dataclass(frozen=True)
class SentenceBatches(Bucketed[TaggedExamples]):
    """`rows` sentences per batch."""

    def batch(self, text: TaggedExamples, chosen: np.ndarray, epoch: int) -> Batch:
        """Targets are (B, W) tags, padded with IGNORE; `target_positions` is the flat position of each word's token,
        None if tokens are words. Letters and features go with the words, for networks that read them."""
        inputs, begins = self.read(text, chosen)
        words, starts = gather_ranges(text.word_starts, chosen)
        sizes = np.diff(starts)
        mask = np.arange(max(1, int(sizes.max()))) < sizes[:, None]  # (B, W)
        if text.letters is not None:
            inputs.characters = torch.from_numpy(_pad(_trim(text.letters[words]), mask, PADDING))
        if text.features is not None:
            layers = [_pad(np.asarray(layer[words]), mask, 0) for layer in text.features]
            inputs.features = torch.from_numpy(np.stack(layers))
        positions = None
        if text.packs or not text.tokens_are_words:
            tokens = text.words[words]
            flat = np.repeat(begins, sizes) + tokens
            positions = torch.from_numpy(_pad(np.where(tokens < 0, -1, flat), mask, -1))
        tags = torch.from_numpy(_pad(text.tags[words], mask, IGNORE))
        return Batch(inputs, tags, True, epoch, target_positions=positions, num_targets=len(words))


def _pad(values: np.ndarray, mask: np.ndarray, padding: int) -> np.ndarray:
    """(M, …) → (B, W, …)."""
    rows = np.full((*mask.shape, *values.shape[1:]), padding, values.dtype)
    rows[mask] = values
    return rows


def _trim(letters: np.ndarray) -> np.ndarray:
    """Drop the last columns that are padding for all words; three columns always stay."""
    used = np.flatnonzero((letters != PADDING).any(0))
    return letters[:, : max(3, int(used[-1]) + 1 if len(used) else 0)]


def encode_sentences(
    network: Network,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    tags: Sequence[Sequence[int]] | None = None,
    length: int = 0,
) -> tuple[TaggedExamples, int]:
    """Return framed sentences of at least one word each, and how many words were cut off.

    `length`: tokens per sentence, at most (0: the network's window). Without tags they are all 0.
    """
    require_encoder(network)
    if network.is_backward:
        raise Unsupported(
            "[model] backward reads texts from their end, so it cannot be tagged word by word. Use a run that reads "
            "forward; this one can serve as features (--features).",
            ability="tag",
        )
    empty = next((i for i, words in enumerate(sentences) if not words), None)
    if empty is not None:
        raise DataError(f"Sentence {empty + 1} has no words. Leave it out.", line=empty + 1)
    room = max_text_tokens(network, "classify", 1, length)
    last = isinstance(network, Autoregressive) and not isinstance(network, Infilling)
    frames: list[FramedText] = []
    tokens: list[np.ndarray] = []
    unseen = UnknownWords(network, tokenizer)
    for words, encoding in zip(sentences, _tokenize(sentences, tokenizer, unseen), strict=True):
        kept = encoding if room is None else _truncate(encoding, room)
        frame = network.frame(kept)
        frames.append(frame)
        tokens.append(tokens_of_words(kept, len(words), last, *frame.text_spans[0]))
    sizes = np.fromiter(map(len, sentences), np.int64, len(sentences))
    positions = np.concatenate(tokens) if tokens else np.zeros(0, np.int64)
    no_tags = np.zeros(len(positions), np.int64)
    characters = network.max_characters
    examples = TaggedExamples.from_frames(
        frames,
        packs=not isinstance(network, Autoregressive) and not network.is_tagger,
        unseen=unseen,
        words=positions,
        word_starts=np.concatenate(([0], np.cumsum(sizes))),
        tags=no_tags if tags is None else np.array([tag for row in tags for tag in row], np.int64),
        letters=word_characters([word for words in sentences for word in words], characters) if characters else None,
    )
    if characters and not examples.tokens_are_words:
        raise InvalidSetting(
            f"{type(network).__name__} reads word by word, but its tokenizer ({tokenizer.kind}) splits words. Use "
            'one of kind "words", or "lexicon" with whole = true.',
            key="tokenizer.kind",
            value=tokenizer.kind,
        )
    return examples, int((positions < 0).sum())


def _tokenize(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, unseen: UnknownWords) -> Sequence[Encoding]:
    """Words are joined by spaces, as in text. A network that reads letters gets words whole."""
    if not unseen.reads_letters:
        return tokenizer.encode_batch([join_words(words) for words in sentences])
    return [
        Encoding(unseen.of_words(words), np.zeros((len(words), 2), np.int64), np.arange(len(words)))
        for words in sentences
    ]


def tokens_of_words(encoding: Encoding, words: int, last: bool, begin: int, end: int) -> np.ndarray:
    """(words,): the first or the last token of each word, in a frame with its text from `begin` to `end`; −1: none."""
    tokens = np.full(words, -1, np.int64)
    word, at, count = np.unique(encoding.words, return_index=True, return_counts=True)
    at = at + count - 1 if last else at
    fits = (word < words) & (at < end - begin)
    tokens[word[fits]] = begin + at[fits]
    return tokens


def _truncate(encoding: Encoding, room: int) -> Encoding:
    return replace(encoding, ids=encoding.ids[:room], spans=encoding.spans[:room], words=encoding.words[:room])


# ------------------------------------------------------------------------------------------------ head


class TagHead(ModelWithHead):
    forbidden: Tensor

    def __init__(self, network: Network, config: TaggingConfig) -> None:
        super().__init__(network, config.features, config.frozen)
        self.config = config
        num_tags, steps = len(config.labels), allowed_steps(config.labels, config.scheme)
        self.out = nn.Linear(network.widths[self.layer_index], num_tags)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.crf = CRF(num_tags, steps, config.strict) if config.classifier == "crf" else None
        self.register_buffer("forbidden", forbidden_scores(num_tags, steps), persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """(B, W, K) in 32 bits."""
        h = self.read_layer(batch.inputs)[..., : self.encoder.widths[self.layer_index]]
        at = batch.target_positions
        if at is not None:
            h = F.embedding(at.clamp(min=0), h.reshape(-1, h.shape[-1])) * (at >= 0).unsqueeze(-1)  # (B, W, D)
        h = F.dropout(h, self.config.dropout, self.training)
        with torch.autocast(h.device.type, enabled=False):
            emissions: Tensor = self.out(h.to(self.out.weight.dtype))
        return emissions

    def nats(self, emissions: Tensor, targets: Tensor) -> Tensor:
        """(B,): −log p of the tags of each row; 0 for a row with a tag that was not seen in training.

        `targets` (B, W) are IGNORE where there is no word, and K or more for unseen tags.
        """
        if self.crf is None:
            return softmax_nats(emissions, targets)
        mask, known, tags = _known_targets(emissions, targets)
        return torch.where(known, -self.crf.log_likelihood(emissions, tags, mask), 0.0)

    def best_tags(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """(B, W): the best sequence of tags that the scheme allows; 0 where there is no word."""
        if self.crf is not None:
            return self.crf.viterbi(emissions, mask)
        return best_of_softmax(emissions, mask, self.forbidden if self.config.scheme != PLAIN else None)


def allowed_steps(tags: Sequence[str], scheme: str) -> list[Tensor] | None:
    """Which tags may follow which, which may begin a sentence, and which may end it; None: all of them."""
    return None if scheme == PLAIN else [torch.from_numpy(part) for part in allowed_transitions(tags, scheme)]


def softmax_nats(emissions: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """(B, W, K), (B, W) → (B,), as `TagHead.nats`, with label smoothing."""
    mask, known, tags = _known_targets(emissions, targets)
    nats = F.cross_entropy(emissions.transpose(1, 2), tags, reduction="none", label_smoothing=smoothing)  # (B, W)
    return torch.where(known, (nats * mask).sum(1), 0.0)


def best_of_softmax(emissions: Tensor, mask: Tensor, forbidden: Tensor | None) -> Tensor:
    """(B, W): the best sequence of tags without forbidden steps; None: all steps are allowed."""
    if forbidden is None:
        return emissions.argmax(-1).masked_fill(~mask, 0)
    zeros = torch.zeros_like(forbidden)
    free = Transitions(zeros[:-2], zeros[-2], zeros[-1])
    return viterbi(emissions.float().log_softmax(-1), mask, free.plus(forbidden))


def _known_targets(emissions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where there is a word (B, W), which rows have known tags only (B,), and those tags, else 0 (B, W)."""
    mask = targets != IGNORE
    known = ((targets < emissions.shape[-1]) | ~mask).all(1)
    return mask, known, targets.masked_fill(~mask | ~known.unsqueeze(1), 0)


# ------------------------------------------------------------------------------------------------ objective and metrics


class TagObjective(TaskObjective[Any]):
    """Negative log-likelihood of the tags, and the penalty of a network that mixes layers. Nats are per word."""

    layouts: ClassVar[Mapping[str, type[Bucketed[Any]]]] = {"sentences": SentenceBatches}

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        emissions = network(batch)
        nats = network.nats(emissions, batch.targets).sum()
        value = nats / len(batch.targets)
        penalty = network.encoder.penalty()
        if penalty is not None:
            value = value + penalty
        outputs = None
        if not network.training:
            mask = batch.targets != IGNORE
            outputs = network.best_tags(emissions.detach(), mask)[mask]  # (words,) row by row
        return Loss(value, nats.detach(), batch.num_targets, outputs=outputs)

    def metrics(self, text: TaggedExamples, outputs: Tensor) -> dict[str, float]:
        order = self.layout.validation_order(text)
        gold = [text.tags_of(i) for i in order.tolist()]
        ends = np.cumsum([len(tags) for tags in gold])[:-1]
        return score_examples(text, gold, np.split(outputs.cpu().numpy(), ends))


def score_examples(
    text: TaggedExamples, gold: Sequence[np.ndarray], predicted: Sequence[np.ndarray]
) -> dict[str, float]:
    """The metrics of the examples, from two tags for each word."""
    return score_tags(text.metrics, name_indices(text, gold), name_indices(text, predicted))


# ------------------------------------------------------------------------------------------------ task


@dataclass(frozen=True)
class TagTaskConfig(HeadTaskConfig):
    """Settings of tagging and of cross-view training."""

    scheme: str = "BIOES"  # that spans are learned in; the data are converted

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_choice("scheme", (*SCHEMES, PLAIN))


@dataclass(frozen=True)
class TaggingConfig(TagTaskConfig):
    classifier: str = "linear"  # or crf
    strict: bool = False  # the CRF is trained under the constraints of the scheme, too

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_choice("classifier", ("linear", "crf"))


class Tagging(Task[Any, Any, Any]):
    """A tag for every word."""

    config: TaggingConfig
    Config: ClassVar[type[TaskConfig]] = TaggingConfig
    objective = TagObjective
    data_kind = "tagged words"
    example_recipe = "bert/tag"

    @classmethod
    def recognizes(cls, source: str) -> bool:
        entry = find_entry(source)
        if entry is not None and not Path(source).exists():
            return entry.kind == CATALOG_KIND
        path = sample_file(source)
        try:
            return path is not None and is_tagged(plain_name(path), list(islice(read_lines(path), LINES)))
        except NextwordError:  # reading it says what is wrong
            return False

    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        self.check_options(columns, kind)
        names = split_names(source)
        if len(names) > 1:
            problem = "are several tasks, and this recipe learns one. Use a recipe for several, as cvt/multi."
            raise invalid("data", source, problem)
        return read_tags(source, columns.label, self.config.scheme or TagTaskConfig.scheme)

    def check_options(self, columns: Columns, kind: str) -> None:
        if kind not in ("", "tagging", self.config.kind) or columns != Columns(label=columns.label):
            problem = "Tagged words have no text columns, header or other kind. Leave --kind, --text and --header out."
            raise InvalidSetting(problem, key="kind", value=kind)

    def settings_from(self, data: TagDataset, run: RunFolder | None) -> dict[str, Any]:
        return {"scheme": data.scheme}

    def head(self, network: Network) -> ModelWithHead:
        return TagHead(network, self.config)

    def encode(self, data: TagDataset, setup: Setup) -> dict[str, Any]:
        return self.encode_splits(data, setup, tuple(self.config.metrics))

    def encode_splits(self, data: TagDataset, setup: Setup, metrics: tuple[str, ...]) -> dict[str, TaggedExamples]:
        recipe, network = setup.recipe, setup.network
        length = int(recipe.phases[0].batches.get("length", 0))
        context = open_features(recipe, setup.device)
        encoded: dict[str, TaggedExamples] = {}
        for split, text in data.splits.items():
            setup.progress(f"reading {split}", 0, None)
            words = data.words(split)
            examples, cut = encode_sentences(network, setup.tokenizer, words, data.encode_tags(split), length)
            encoded[split] = replace(
                examples,
                names=(*data.labels, *data.unseen),
                metrics=metrics,
                features=context.cached(words, setup.progress) if context else None,
            )
            if cut:
                setup.notes.append(
                    f"{cut:,} of {text.words:,} words of {split} are beyond the window, and are tagged unread"
                )
        return encoded

    def open(self, run: RunFolder, device: torch.device, precision: str = "fp32") -> WordTagger:
        model, tokenizer = self.load_run(run, device, precision)
        length = int(run.recipe.phases[-1].batches.get("length", 0))
        return self.predictor(model, tokenizer, length, run.name)

    def predictor(self, model: ModelWithHead, tokenizer: Tokenizer, length: int, name: str) -> WordTagger:
        return WordTagger(model, tokenizer, self, length, name)

    def predict_file(self, predictor: WordTagger, request: PredictionRequest) -> FilePredictions:
        return predict_tags(predictor, request)

    def records(self, predictor: WordTagger, predictions: Sequence[Any]) -> list[Record]:
        return [_record(predictor, sentence) for sentence in predictions]

    def evaluate(
        self, predictor: WordTagger, data: TagDataset, examples: Mapping[str, TaggedExamples]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {split: predictor.score_examples(examples[split]) for split in splits_beyond_dev(examples)}, {}

    def predict_split(
        self, predictor: WordTagger, data: Any, part: str, split: str, examples: Mapping[str, TaggedExamples]
    ) -> list[list[str]]:
        return name_indices(examples[split], predictor.best_tags(examples[split]))

    def analyze_errors(self, predictor: WordTagger, data: TagDataset, examples: TaggedExamples) -> dict[str, Any]:
        return analyze_tags(examples, predictor.best_tags(examples), data)

    def wording(self) -> Wording:
        own = self.config
        scheme = f", {own.scheme}" if own.scheme else ""
        return Wording(
            summary=f"one of {len(own.labels)} tags for a word{scheme}",
            input="each word",
            output=", ".join(own.labels),
            command="my.txt --out my.conll",
            loss_unit="nats per word",
        )


def analyze_tags(examples: TaggedExamples, predicted: Sequence[np.ndarray], data: TagDataset) -> dict[str, Any]:
    has_spans = data.scheme != PLAIN
    return error_analysis.analyze_tags(examples.names, examples.gold, predicted, data.words("dev"), has_spans)


def name_indices(examples: TaggedExamples, tags: Sequence[np.ndarray]) -> list[list[str]]:
    """Tags by their names."""
    return [[examples.names[tag] for tag in row.tolist()] for row in tags]


def open_features(recipe: Recipe, device: torch.device) -> ContextualVectors | None:
    """The run whose vectors a tagger reads besides its own (--features), if it reads any."""
    from nextword.lm.loading import load

    run = recipe.model.get("contextual", "")
    return ContextualVectors(load(run, str(device)), run) if run else None


# ------------------------------------------------------------------------------------------------ predictor


class WordTagger(Predictor):
    """`predict` tags of sentences: texts, or lists of words. Spans are returned as IOB2."""

    model: TagHead
    _context: ContextualVectors | None = None  # the run whose vectors it reads besides its own

    @property
    def no_tags(self) -> np.ndarray:
        """The tags of a sentence without words."""
        return np.zeros(0, np.int64)

    @property
    def has_spans(self) -> bool:
        return bool(self.task.config.scheme != PLAIN)

    def predict(self, sentences: Sequence[str | Sequence[str]], progress: Count | None = None) -> list[Any]:
        sentences = [self._words_of(sentence) for sentence in require_list(sentences)]
        predictions = [self.prediction((), self.no_tags) for _ in sentences]
        indices = [i for i, words in enumerate(sentences) if words]
        if indices:
            chosen = [sentences[i] for i in indices]
            examples, _ = encode_sentences(self.network, self.tokenizer, chosen, length=self.length)
            if self.network.num_feature_layers:
                examples = replace(examples, features=self._features(chosen))
            for i, tags in zip(indices, self.best_tags(examples, progress), strict=True):
                predictions[i] = self.prediction(sentences[i], tags)
        return predictions

    def _words_of(self, sentence: object) -> list[str]:
        """The words of a list, or of a plain text: punctuation is apart, and what the tokenizer knows stays whole."""
        if isinstance(sentence, str):
            return self.tokenizer.split_words(sentence)
        words = list(texts_of(sentence))
        if not all(isinstance(word, str) for word in words):
            problem = f"A sentence is {str(sentence)[:80]}. Expected a text or a list of words."
            raise InvalidSetting(problem, key="sentences", value=sentence)
        return words

    def prediction(self, words: Sequence[str], tags: np.ndarray) -> Any:
        return TaggedSentence(tuple(words), name_tags(tags, self.task.config.labels, self.task.config.scheme))

    def spans_of(self, sentence: TaggedSentence) -> list[Span]:
        return find_spans(sentence.tags) if self.has_spans else []

    def best_tags(self, examples: TaggedExamples, progress: Count | None = None) -> list[np.ndarray]:
        """The best tags of every sentence, in order."""
        tags: list[np.ndarray] = self.once(examples, lambda: self._best_tags(examples, progress))
        return tags

    @torch.no_grad()
    def _best_tags(self, examples: TaggedExamples, progress: Count | None) -> list[np.ndarray]:
        best = [self.no_tags] * len(examples)
        for chosen, batch in self.batches(SentenceBatches(), examples, ROWS, progress):
            mask = batch.targets != IGNORE
            tags = self.tag_batch(batch, mask).cpu().numpy()
            for i, row, size in zip(chosen.tolist(), tags, mask.sum(1).tolist(), strict=True):
                best[i] = row[:size]
        return best

    def tag_batch(self, batch: Batch, mask: Tensor) -> Tensor:
        """(B, W)"""
        return self.model.best_tags(self.model(batch), mask)

    def score_examples(self, examples: TaggedExamples) -> dict[str, float]:
        """The task's metrics on tagged sentences."""
        return score_examples(examples, examples.gold, self.best_tags(examples))

    def _features(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        if self._context is None:
            from nextword.lm.loading import load

            run = self.network.config.contextual
            try:
                context = ContextualVectors(load(run, str(self.device)), run)
            except NextwordError as error:
                raise RunError(f"{self.name} reads the vectors of {run} besides its own: {error}", path=run) from None
            if self.network.config.contextual_fingerprint not in ("", context.fingerprint):
                raise RunError(
                    f"{self.name} was trained on the vectors of {run}, whose files have changed since. Restore that "
                    "run, or train the tagger again.",
                    path=run,
                )
            self._context = context
        return self._context.read(sentences)


def name_tags(tags: np.ndarray, labels: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Tags by their names, those of spans as IOB2."""
    names = [labels[tag] for tag in tags.tolist()]
    return tuple(convert_tags(names, OUTPUT_SCHEME) if scheme != PLAIN else names)


# ------------------------------------------------------------------------------------------------ files

TAG_FILES = (".conll", ".tsv", ".jsonl")


def predict_tags(model: WordTagger, request: PredictionRequest) -> FilePredictions:
    """Tag the words of sentences."""
    suffix, sentences = read_tag_request(model, request)
    tagged = model.predict([sentence.words for sentence in sentences], request.progress)
    scores, notes = _score_file(model, sentences, tagged)
    records = model.task.records(model, tagged)
    content = json_lines(records) if suffix == ".jsonl" else _tag_columns(model, sentences, tagged)
    gold = f"the tags in {FROM_STDIN if request.file == STDIN else request.file}"
    labels = list(model.task.config.labels)
    return FilePredictions(content, records, count_words(sentences), labels, scores, gold, notes, unit="sentences")


def read_tag_request(model: WordTagger, request: PredictionRequest) -> tuple[str, list[TaggedSentence]]:
    """The suffix of the output, and the sentences of words, with gold tags if the file has them."""
    request.reject("--task", request.task, f"{model.name} predicts the tags of all its tasks at once")
    for option, column in (("--text", request.columns.text), ("--text-pair", request.columns.second)):
        request.reject(option, column, f"{model.name} tags words, and reads a sentence or a word per line")
    suffix, file = request.suffix(TAG_FILES, ".conll", "tags"), request.file
    is_table = Path(plain_name(file)).suffix.lower() in (".csv", ".jsonl")
    lines = [] if is_table else list(read_lines(file))
    if is_table or any(_starts_table(line) for line in lines[:1]):
        name = FROM_STDIN if file == STDIN else file
        raise DataError(f"{name} is a table. A tagger reads one sentence per line, or one word per line.", path=file)
    if not any(line.strip() for line in lines):
        raise DataError(f"{file} has no text. Expected one sentence per line, or one word per line.", path=file)
    if is_tagged(plain_name(file), lines):
        return suffix, read_tagged(file, model.task.config.label, bare=True, source=lines).sentences
    return suffix, [TaggedSentence(tuple(model.tokenizer.split_words(line)), ()) for line in lines]


def _starts_table(line: str) -> bool:
    """Whether the first line of a file is a csv header or a JSON object."""
    if not line.lstrip().startswith("{"):
        return "\t" not in line and looks_like_header(line)
    try:
        return isinstance(parse_json(line, ""), dict)
    except DataError:
        return False


def _score_file(
    model: WordTagger, gold: Sequence[TaggedSentence], predicted: Sequence[TaggedSentence]
) -> tuple[dict[str, float], list[str]]:
    """Score the tags if every sentence has gold tags of this task; note tags that were not seen in training."""
    if not all(sentence.tags for sentence in gold):
        return {}, []
    in_file, trained = {tag for sentence in gold for tag in sentence.tags}, set(model.task.config.labels)
    types = [{parse_tag(tag)[1] if model.has_spans else tag for tag in tags} for tags in (in_file, trained)]
    unseen, what = sorted(types[0] - types[1]), "span types" if model.has_spans else "tags"
    notes = [f"{what} not seen in training are never predicted: {shorten_list(unseen)}"] if unseen else []
    is_same_task = has_spans(in_file) or in_file == {OUTSIDE} if model.has_spans else bool(in_file & trained)
    metrics = tuple(SPAN_METRICS) if model.has_spans else (TOKEN_ACCURACY,)
    tags = [[sentence.tags for sentence in side] for side in (gold, predicted)]
    return score_tags(metrics, *tags) if is_same_task else {}, notes


def _record(model: WordTagger, sentence: TaggedSentence) -> Record:
    record: Record = {"words": list(sentence.words), "tags": list(sentence.tags)}
    if model.has_spans:
        record["spans"] = [
            {"type": s.type, "start": s.start, "end": s.end, "text": " ".join(sentence.words[s.start : s.end])}
            for s in model.spans_of(sentence)
        ]
    return record


def _tag_columns(model: WordTagger, gold: Sequence[TaggedSentence], predicted: Sequence[TaggedSentence]) -> str:
    """Word, gold tag if there is one, predicted tag. Both tags have the same scheme, as CoNLL's script expects."""
    blocks = []
    for before, after in zip(gold, predicted, strict=True):
        gold_tags = convert_tags(before.tags, OUTPUT_SCHEME) if model.has_spans else before.tags
        blocks.append(write_conll([after.words, *([gold_tags] if before.tags else []), after.tags]))
    return "".join(blocks)


def write_conll(columns: Sequence[Sequence[str]]) -> str:
    """One word per line, and an empty line after the sentence."""
    return "".join("\t".join(cells) + "\n" for cells in zip(*columns, strict=True)) + "\n"


def count_words(sentences: Sequence[TaggedSentence]) -> str:
    return f"{sum(len(sentence.words) for sentence in sentences):,} words of {len(sentences):,} sentences"
