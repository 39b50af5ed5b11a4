"""Sentences that are split into words already, into frames of a network, and which token stands for which word.

    Washington spoke   ──encode──▶  Wash ##ing ##ton spoke   ──network.frame──▶  [CLS] Wash ##ing ##ton spoke [SEP]
    word               0            0    0     0     1        its token                1                4

Words are joined by spaces, so that every tokenizer sees them as it sees text, and says which word each token lies in. A
space within a word is written as an underscore.

Sentences with a tag for every word, framed: tokens end to end, words end to end, and batches of like length.

    tokens    [CLS] Wash ##ing ##ton spoke [SEP] [CLS] …        starts        0 6 …      one frame after the other
    words           0                1                          words         1 4 …      its token within the frame
    tags            S-LOC            O                          word_starts   0 2 …

A batch has (B, W) tags, padded with IGNORE, and the flat position of each word's token; None where rows are the words
themselves. Letters and vectors in context go with words, for the networks that read them.

A tag for every word, over any network: a linear layer on each word's vector, and a softmax or a CRF over that.

    frames ──network.encode──▶ h (B, T, D) ──the word's token──▶ (B, W, D) ──linear──▶ emissions (B, W, K)

    linear     log p(tags) = Σ_w log softmax(emissions_w)[tag_w]          each word by itself
    crf        layers/crf.py: transitions between tags besides

A word of several tokens is known by its first, or where the network reads from left to right by its last, which has
read all of it. In either form the best sequence of tags is looked for among those that the scheme allows (Viterbi);
`strict` has the CRF learn under the same constraints.

A tag for every word of a sentence: its negative log-likelihood, by a softmax at each word or by a CRF.

    J = 1/B Σ_sentences −log p(tags | sentence)         + λ ‖s‖² of a network that mixes layers and asks for it

The network is one with a head of tags (nextword.tasks.tagging). Nats are said per word. A sentence of validation with a
tag that training never had is left out of the nats, and counts in the metrics as what it is: one that is never found.

Tagged sentences, ready to be learnt from: their scheme found out and converted, their tags, and what to know.

A run that tags words, on sentences: the best tags of each, and the spans that they make.

    tagger = nextword.load("runs/tagger")
    tagger.predict(["U.N. official Ekeus heads for Baghdad ."])[0].tags         # B-ORG O B-PER O O B-LOC O, as IOB2
    tagger.predict([["U.N.", "official", …]])                                   # or split into words already

A text is split as the tokenizer of words does it, with punctuation apart. Tags of spans are given as IOB2, whatever
scheme was learnt. A sentence without words has no tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.batching.examples import Bucketed, Unseen, gathered
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Infilling, Tokenizer
from nextword.core.types import IGNORE, Batch, Encoding, FramedText, Loss, State, require_list, texts_of
from nextword.data.conll import TaggedSentence, TaggedText, open_tagged, scheme_of
from nextword.data.segmentation import join_words
from nextword.data.tables import Columns, Rows, held_out
from nextword.data.tag_schemes import OUTSIDE, PLAIN, SCHEMES, Span, allowed, converted, parts, spans
from nextword.layers.char_cnn import PADDING, letters_of
from nextword.layers.crf import CRF, Steps, penalties, plus, viterbi
from nextword.lm.embedding import OF_TEXT, Contextual
from nextword.metrics.classification import combine_tasks
from nextword.metrics.spans import SPAN_METRICS, TOKEN_ACCURACY
from nextword.models import count_parameters, model_class
from nextword.objectives.base import Objective
from nextword.run_folder import RunFolder
from nextword.tasks.base import ModelWithHead
from nextword.tasks.examples import check, room_for
from nextword.tasks.settings import Settings, settings_of
from nextword.tokenizers import vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.ptb_words import split
from nextword.training.device import quantize, to_device


@dataclass(frozen=True)
class TaggedExamples:
    ids: np.ndarray  # (N,) of all frames
    starts: np.ndarray  # (sentences + 1,) where each frame begins
    words: np.ndarray  # (M,) the token of each word, counted from its frame's beginning; −1: it was cut off
    word_starts: np.ndarray  # (sentences + 1,)
    tags: np.ndarray  # (M,) int64: places in `names`
    names: tuple[str, ...] = ()  # of all tags; those that no training sentence has come last
    spans: bool = False  # tags are those of spans
    segments: np.ndarray | None = None  # (N,)
    letters: Any = None  # (M, L) array, or what is indexed as one (untagged.py)
    features: np.ndarray | None = field(default=None, repr=False)  # (layers, M, D) float16, perhaps on disk
    packs: bool = False  # the network that they are framed for reads texts end to end
    metrics: tuple[str, ...] = ()
    unseen: Unseen | None = field(default=None, repr=False)  # words without an id, where the network reads letters
    bytes: int = field(default=0, repr=False)  # of text: not known, so nobody speaks of bits per byte

    each = 1  # frame an example

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def pooled_position(self) -> np.ndarray:
        """No token speaks for the whole; with 0 a batch says where frames begin."""
        return np.zeros(len(self), np.int64)

    @property
    def labels(self) -> np.ndarray:
        return self.pooled_position

    @cached_property
    def own(self) -> bool:
        """Tokens are the words themselves."""
        sizes = np.diff(self.word_starts)
        places = np.arange(len(self.words)) - np.repeat(self.word_starts[:-1], sizes)
        return np.array_equal(self.starts, self.word_starts) and np.array_equal(self.words, places)

    def of(self, sentence: int) -> np.ndarray:
        """The tags of one sentence."""
        return self.tags[self.word_starts[sentence] : self.word_starts[sentence + 1]]

    def first(self, tokens: int | None) -> TaggedExamples:
        """The sentences of the first so many tokens, at least one; None: all."""
        if tokens is None or tokens >= len(self.ids):
            return self
        return self.take(np.arange(max(1, int(np.searchsorted(self.starts, tokens, side="right")) - 1)))

    def take(self, chosen: np.ndarray) -> TaggedExamples:
        """These sentences, in this order."""
        tokens, starts = gathered(self.starts, chosen)
        words, word_starts = gathered(self.word_starts, chosen)
        return replace(
            self,
            ids=self.ids[tokens],
            starts=starts,
            words=self.words[words],
            word_starts=word_starts,
            tags=self.tags[words],
            segments=None if self.segments is None else self.segments[tokens],
            letters=None if self.letters is None else self.letters[words],
            features=None if self.features is None else self.features[:, words],
        )


class Sentences(Bucketed):
    """`rows` sentences a batch; else as examples of a task are laid out."""

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        batch = super().batch(text, chosen, epoch)
        taken, starts = gathered(text.word_starts, chosen)
        sizes = np.diff(starts)
        there = np.arange(max(1, int(sizes.max()))) < sizes[:, None]  # (B, W)
        inputs = batch.inputs
        if text.letters is not None:
            inputs.characters = torch.from_numpy(_spread(_trimmed(text.letters[taken]), there, PADDING))
        if text.features is not None:
            layers = [_spread(np.asarray(layer[taken]), there, 0) for layer in text.features]
            inputs.features = torch.from_numpy(np.stack(layers))
        at = None
        if text.packs or not text.own:
            assert batch.target_positions is not None
            token = text.words[taken]
            flat = np.repeat(batch.target_positions.numpy(), sizes) + token
            at = torch.from_numpy(_spread(np.where(token < 0, -1, flat), there, -1))
        tags = torch.from_numpy(_spread(text.tags[taken], there, IGNORE))
        return Batch(inputs, tags, reset_state=True, epoch=epoch, target_positions=at, num_targets=len(taken))


def _spread(values: np.ndarray, there: np.ndarray, padding: int) -> np.ndarray:
    """(M, …) → (B, W, …)."""
    rows = np.full((*there.shape, *values.shape[1:]), padding, values.dtype)
    rows[there] = values
    return rows


def _trimmed(letters: np.ndarray) -> np.ndarray:
    """Without the columns at the end that no word of these reaches; three are always kept."""
    used = np.flatnonzero((letters != PADDING).any(0))
    return letters[:, : max(3, int(used[-1]) + 1 if len(used) else 0)]








def sentences(
    network: Any,
    tokenizer: Tokenizer,
    words: Sequence[Sequence[str]],
    tags: Sequence[Sequence[int]] | None = None,
    length: int = 0,
) -> tuple[TaggedExamples, int]:
    """Framed sentences of at least one word each, and of how many words there is no token: they were cut off.

    `length`: tokens of a sentence, at most (0: the network's window). Without tags they are all 0.
    """
    check(network)
    if getattr(network, "is_backward", False):
        raise Unsupported(
            "[model] backward reads texts from their end, and words are tagged in order: no head of tags goes over it. "
            "Its vectors can be read beside words instead (`contextual`)."
        )
    empty = next((i for i, one in enumerate(words) if not one), None)
    if empty is not None:
        raise NextwordError(f"Sentence {empty + 1} has no words. Leave it out.")
    room = room_for(network, "classify", 1, length)
    last = isinstance(network, Autoregressive) and not isinstance(network, Infilling)
    framed: list[FramedText] = []
    tokens: list[np.ndarray] = []
    unseen = Unseen(network, tokenizer)
    for one, encoding in zip(words, _encoded(words, tokenizer, unseen), strict=True):
        part = encoding if room is None else _cut(encoding, room)
        frame = network.frame(part)
        framed.append(frame)
        tokens.append(tokens_of(part, len(one), last, *frame.text_spans[0]))
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    at = np.concatenate(tokens) if tokens else np.zeros(0, np.int64)
    segments = [frame.segments for frame in framed if frame.segments is not None]
    every = [word for one in words for word in one]
    longest = getattr(network, "longest", 0)
    found = TaggedExamples(
        ids=np.concatenate([frame.ids for frame in framed]) if framed else np.zeros(0, np.int64),
        starts=_starts([len(frame.ids) for frame in framed]),
        words=at,
        word_starts=_starts(sizes),
        tags=np.zeros(len(at), np.int64) if tags is None else np.array([tag for one in tags for tag in one], np.int64),
        segments=np.concatenate(segments) if segments else None,
        letters=letters_of(every, longest) if longest else None,
        packs=not isinstance(network, Autoregressive) and not getattr(network, "tags_words", False),
        unseen=unseen if unseen.words else None,
    )
    if longest and not found.own:
        raise NextwordError(
            f"{type(network).__name__} reads words one by one, but its tokenizer cuts them ({tokenizer.kind}). Give it "
            'one of kind "words", or "lexicon" with whole = true.'
        )
    return found, int((at < 0).sum())


def _encoded(words: Sequence[Sequence[str]], tokenizer: Tokenizer, unseen: Unseen) -> Sequence[Encoding]:
    """Of each sentence; a network that reads letters gets every word whole, those it never saw by their spelling."""
    if not unseen.spells:
        return tokenizer.encode_batch([join_words(one) for one in words])
    return [Encoding(unseen.of_words(one), np.zeros((len(one), 2), np.int64), np.arange(len(one))) for one in words]


def tokens_of(encoding: Encoding, words: int, last: bool, begin: int, end: int) -> np.ndarray:
    """(words,): the first token of each, or the last, in a frame whose text lies from `begin` to `end`; −1: none."""
    found = np.full(words, -1, np.int64)
    some, at, count = np.unique(encoding.words, return_index=True, return_counts=True)
    at = at + count - 1 if last else at
    fits = (some < words) & (at < end - begin)
    found[some[fits]] = begin + at[fits]
    return found


def _cut(encoding: Encoding, room: int) -> Encoding:
    return replace(encoding, ids=encoding.ids[:room], spans=encoding.spans[:room], words=encoding.words[:room])


def _starts(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


CLASSIFIERS = ("linear", "crf")


@dataclass(frozen=True)
class TagConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    tags: tuple[str, ...]
    scheme: str = PLAIN  # of the tags
    classifier: str = "crf"
    strict: bool = False
    dropout: float = 0.1
    features: str = ""  # the layer that is read; "": the last
    frozen: bool = False

    def __post_init__(self) -> None:
        if self.classifier not in CLASSIFIERS:
            raise NextwordError(
                f"[task] classifier = {self.classifier!r}; for tags there are {' and '.join(CLASSIFIERS)}."
            )
        if not 0 <= self.dropout < 1:
            raise NextwordError(f"[task] dropout = {self.dropout!r} is the share dropped before the head, below 1.")


class Tagging(ModelWithHead):
    forbidden: Tensor

    def __init__(self, config: TagConfig, network: Any) -> None:
        super().__init__(config, network)
        tags = len(config.tags)
        steps = None
        if config.scheme != PLAIN:
            steps = [torch.from_numpy(part) for part in allowed(config.tags, config.scheme)]
        self.out = nn.Linear(network.widths[self.at], tags)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.crf = CRF(tags, steps, config.strict) if config.classifier == "crf" else None
        self.register_buffer("forbidden", penalties(tags, steps), persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """(B, W, K) in 32 bits."""
        h = self.read_layer(batch.inputs)[..., : self.encoder.widths[self.at]]
        if batch.target_positions is not None:
            flat = h.reshape(-1, h.shape[-1])
            h = F.embedding(batch.target_positions.clamp(min=0), flat) * (batch.target_positions >= 0).unsqueeze(-1)  # (B, W, D)
        h = F.dropout(h, self.config.dropout, self.training)
        with torch.autocast(h.device.type, enabled=False):
            return self.out(h.to(self.out.weight.dtype))

    def nats(self, emissions: Tensor, targets: Tensor) -> Tensor:
        """(B,): −log p of the tags of each row; 0 for a row that has a tag no training sentence had.

        `targets` (B, W) are IGNORE where there is no word, and K or more where the tag is such a one.
        """
        if self.crf is None:
            return softmax_nats(emissions, targets)
        there, known, tags = _learnable(emissions, targets)
        return torch.where(known, -self.crf.log_likelihood(emissions, tags, there), 0.0)

    def best(self, emissions: Tensor, there: Tensor) -> Tensor:
        """(B, W): the best tags that the scheme allows; 0 where there is no word."""
        if self.crf is not None:
            return self.crf.viterbi(emissions, there)
        return best_of_softmax(emissions, there, self.forbidden if self.config.scheme != PLAIN else None)


# ------------------------------------------------------------------------------------------------ each word by itself


def softmax_nats(emissions: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """(B, W, K), (B, W) → (B,), as `Tagging.nats`. With smoothing, that share of a target is spread over all tags."""
    there, known, tags = _learnable(emissions, targets)
    each = F.cross_entropy(emissions.transpose(1, 2), tags, reduction="none", label_smoothing=smoothing)  # (B, W)
    return torch.where(known, (each * there).sum(1), 0.0)


def best_of_softmax(emissions: Tensor, there: Tensor, forbidden: Tensor | None) -> Tensor:
    """(B, W): the tags that are best together and that the scheme allows; None: all are allowed."""
    if forbidden is None:
        return emissions.argmax(-1).masked_fill(~there, 0)
    zeros = torch.zeros_like(forbidden)
    free = Steps(zeros[:-2], zeros[-2], zeros[-1])
    return viterbi(emissions.float().log_softmax(-1), there, plus(free, forbidden))


def _learnable(emissions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where there is a word (B, W), which rows have tags that are known alone (B,), and those tags, else 0 (B, W)."""
    there = targets != IGNORE
    known = ((targets < emissions.shape[-1]) | ~there).all(1)
    return there, known, targets.masked_fill(~there | ~known.unsqueeze(1), 0)


class Tag(Objective[Any]):
    is_likelihood = False  # of tags, not of text
    has_metrics = True

    def __init__(self, batches: Mapping[str, Any]) -> None:
        options = dict(batches)
        kind = options.pop("kind", "sentences")
        if kind != "sentences":
            raise NextwordError(f"The tag objective has batches of kind sentences; the recipe says '{kind}'.")
        try:
            self.layout = Sentences(**options)
        except TypeError:
            known = ", ".join(Sentences.__dataclass_fields__)
            raise NextwordError(
                f"Batches of kind 'sentences' take {known}; the recipe says {', '.join(options)}."
            ) from None

    @property
    def length(self) -> int:
        return self.layout.length

    def batches_per_epoch(self, text: TaggedExamples) -> int:
        return self.layout.batches_per_epoch(text)

    def batches(self, text: TaggedExamples, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step)

    def validation_batches(self, text: TaggedExamples) -> Iterator[Batch]:
        return self.layout.validation_batches(text)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        emissions = network(batch)
        nats = network.nats(emissions, batch.targets).sum()
        value = nats / len(batch.targets)
        penalty = network.encoder.penalty() if hasattr(network.encoder, "penalty") else None
        if penalty is not None:
            value = value + penalty
        said = None
        if not network.training:
            there = batch.targets != IGNORE
            said = network.best(emissions.detach(), there)[there]  # (words,) row by row
        return Loss(value, nats.detach(), batch.num_targets, outputs=said)

    # -------------------------------------------------------------------------------------------- how good it is

    def metrics(self, text: TaggedExamples, said: Tensor) -> dict[str, float]:
        """Of tags that were said of all words in the order of `held_out`; the first decides."""
        order = self.layout.in_order(text)
        gold = [text.of(i) for i in order.tolist()]
        ends = np.cumsum([len(one) for one in gold])[:-1]
        return measured(text, gold, np.split(said.cpu().numpy(), ends))


def measured(text: TaggedExamples, gold: Sequence[np.ndarray], said: Sequence[np.ndarray]) -> dict[str, float]:
    """The metrics that the text asks for, of two tags for each word."""
    found: dict[str, float] = {}
    right, guessed = (spans_of(text.names, some) if text.spans else [] for some in (gold, said))
    for name in text.metrics:
        if name == TOKEN_ACCURACY:
            agreed = sum(int((a == b).sum()) for a, b in zip(gold, said, strict=True))
            found[name] = agreed / max(1, sum(map(len, gold)))
        else:
            found[name] = SPAN_METRICS[name](right, guessed)
    return found


def spans_of(names: Sequence[str], tags: Sequence[np.ndarray]) -> list[tuple[int, int, int, str]]:
    """Spans of many sentences, each with the number of its sentence."""
    return [(i, *span) for i, one in enumerate(tags) for span in spans(names[tag] for tag in one.tolist())]


@dataclass(frozen=True)
class TagSet:
    """As transfer/data.py's DataSet, for tags."""

    name: str
    splits: Mapping[str, TaggedText]  # in the scheme that is learnt
    labels: tuple[str, ...]  # tags of the training sentences, in order
    unseen: tuple[str, ...]  # tags that only other splits have
    scheme: str  # that is learnt; "": tags are no spans
    columns: Columns
    notes: tuple[str, ...] = ()

    kind = frame = "tag"
    scale = (0.0, 1.0)

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(SPAN_METRICS) if self.scheme != PLAIN else (TOKEN_ACCURACY,)

    @property
    def balance(self) -> dict[str, float]:
        """Type of span, or tag → its share of the words of the training sentences."""
        counts = Counter(self.type(tag) for one in self.splits["train"].sentences for tag in one.tags)
        total = sum(counts.values())
        return {type: n / total for type, n in counts.most_common()}

    def type(self, tag: str) -> str:
        return tag if self.scheme == PLAIN or tag == OUTSIDE else parts(tag)[1]

    @property
    def fingerprint(self) -> str:
        return "-".join(self.splits[split].fingerprint for split in ("train", "dev"))

    def encoded(self, split: str) -> list[list[int]]:
        """Places of tags among all that there are; those beyond `labels` were never seen in training."""
        place = {tag: i for i, tag in enumerate((*self.labels, *self.unseen))}
        return [[place[tag] for tag in one.tags] for one in self.splits[split].sentences]


def open_tags(name: str, column: str = "", scheme: str = "BIOES") -> TagSet:
    """`scheme`: that spans are to be learnt in. Without a dev split, a tenth of the training sentences is held out."""
    if scheme not in SCHEMES:
        raise NextwordError(f"[task] scheme = {scheme!r}; expected one of {', '.join(SCHEMES)}.")
    splits = open_tagged(name, column)
    if "train" not in splits:
        raise NextwordError(f"{name} has no training sentences here, only {', '.join(splits)}.")
    found = scheme_of(splits)
    notes = [note for text in splits.values() for note in text.notes]
    if found not in (PLAIN, scheme):
        splits = {split: _in_scheme(text, scheme) for split, text in splits.items()}
        notes.append(f"tags are {found}, and are learnt as {scheme}")
    if "dev" not in splits:
        splits, note = _held_out(splits)
        notes.append(note)
    seen = {split: {tag for one in text.sentences for tag in one.tags} for split, text in splits.items()}
    labels = sorted(seen["train"], key=lambda tag: (tag != OUTSIDE, parts(tag)[1], tag))
    if len(labels) < 2:
        raise NextwordError(f"{name}: every training word has the tag {labels[0]!r}. Is --label the right column?")
    unseen = sorted(set().union(*seen.values()) - seen["train"])
    for split, tags in seen.items():
        strange = sorted(tags - seen["train"])
        if strange:
            notes.append(
                f"{split} has {len(strange)} tags that no training sentence has ({', '.join(strange[:3])}): they can "
                "never be found, and count as missed"
            )
    return TagSet(
        name,
        splits,
        tuple(labels),
        tuple(unseen),
        PLAIN if found == PLAIN else scheme,
        Columns(label=column),
        (*notes, *_repeated(splits)),
    )


def _in_scheme(text: TaggedText, scheme: str) -> TaggedText:
    return replace(text, sentences=[replace(one, tags=tuple(converted(one.tags, scheme))) for one in text.sentences])


def _held_out(splits: Mapping[str, TaggedText]) -> tuple[dict[str, TaggedText], str]:
    text = splits["train"]
    held = set(held_out(Rows([" ".join(one.words) for one in text.sentences]), by_class=False))
    if not held or len(held) == len(text):
        raise NextwordError(
            f"{text.name} is too short to hold sentences out: it has {len(text)}. Give more of them, or a folder with "
            "a train and a dev file."
        )
    rest, chosen = ([one for i, one in enumerate(text.sentences) if (i in held) == wanted] for wanted in (False, True))
    note = f"no dev split: {len(held):,} sentences of {len(text):,} are held out, the same ones each time"
    return {**splits, "train": replace(text, sentences=rest), "dev": replace(text, sentences=chosen)}, note


def _repeated(splits: Mapping[str, TaggedText]) -> list[str]:
    seen = {one.words for one in splits["train"].sentences}
    notes = []
    for split in ("dev", "test"):
        if split in splits:
            again = sum(one.words in seen for one in splits[split].sentences)
            if again:
                notes.append(f"{again:,} of {len(splits[split]):,} sentences of {split} are in train too")
    return notes


ROWS = 64  # sentences read at once
OUTPUT = "IOB2"
Load = Callable[..., Any]


def open_tagger(run: RunFolder, device: torch.device, precision: str = "fp32", load: Load | None = None) -> WordTagger:
    """Of a run whose files have been checked. `load` opens another run, which some taggers read vectors of."""
    recipe = run.recipe
    settings = settings_of(recipe.task or {}, str(run.path))
    model = model_class(recipe.slug)
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    config = settings.tag_head(model, model.Config(**recipe.model))
    network = settings.tag_class.load(run.path, config, vocabulary(tokenizer, spellings=True))
    length = int(recipe.phases[-1].batches.get("length", 0))
    own = quantize(network, precision).to(device), tokenizer, settings, length, str(run.path), load
    return ManyTagger(*own) if settings.tasks else WordTagger(*own)


class WordTagger:
    """`predict` sentences: texts, or lists of words."""

    can = frozenset({"predict"})
    no_tags = np.zeros(0, np.int64)

    def __init__(
        self,
        headed: Any,  # heads/tags.py, or heads/views.py
        tokenizer: Tokenizer,
        settings: Settings,
        length: int = 0,
        name: str = "",
        load: Load | None = None,
    ) -> None:
        self.headed, self.network, self.tokenizer, self.settings = headed.eval(), headed.encoder, tokenizer, settings
        self.length, self.name, self.load = length, name, load
        self.parameters = count_parameters(headed)
        self._context: Contextual | None = None

    @property
    def device(self) -> torch.device:
        return self.headed.device

    @property
    def spans(self) -> bool:
        """Tags are those of spans."""
        return self.settings.scheme != PLAIN

    def predict(
        self, given: Sequence[str | Sequence[str]], progress: Callable[[int, int], None] | None = None
    ) -> list[Any]:
        words = [self.words_of(one) if isinstance(one, str) else self.given(one) for one in require_list(given)]
        there = [i for i, one in enumerate(words) if one]
        found = [self.said((), self.no_tags) for _ in words]
        if there:
            chosen = [words[i] for i in there]
            text, _ = sentences(self.network, self.tokenizer, chosen, length=self.length)
            if getattr(self.network, "context", 0):
                text = replace(text, features=self._in_context(chosen))
            for i, tags in zip(there, self.best(text, progress), strict=True):
                found[i] = self.said(words[i], tags)
        return found

    def said(self, words: Sequence[str], tags: np.ndarray) -> Any:
        """A sentence with its tags by their names."""
        return TaggedSentence(tuple(words), _named(tags, self.settings.labels, self.settings.scheme))

    @staticmethod
    def given(sentence: Any) -> list[str]:
        """One that is split into words already."""
        words = list(texts_of(sentence))
        if not all(isinstance(word, str) for word in words):
            raise NextwordError(f"Expected a sentence, a text or a list of words, and one is {str(sentence)[:80]}.")
        return words

    def words_of(self, text: str) -> list[str]:
        """The words of a plain text, punctuation apart; what the tokenizer knows stays whole."""
        if hasattr(self.tokenizer, "parts"):
            return self.tokenizer.parts(text)
        return [part for run in text.split() for part in split(run, ())]

    def spans_of(self, sentence: TaggedSentence) -> list[Span]:
        return spans(sentence.tags) if self.spans else []

    @torch.no_grad()
    def best(self, text: TaggedExamples, progress: Callable[[int, int], None] | None = None) -> list[Any]:
        """The best tags of every sentence, in order; sentences of like length are read together."""
        layout = Sentences(rows=ROWS)
        order = layout.in_order(text)
        found: list[Any] = [None] * len(text)
        for at in range(0, len(order), ROWS):
            chosen = order[at : at + ROWS]
            batch = to_device(layout.batch(text, chosen, 0), self.device)
            there = batch.targets != IGNORE
            tags = self.tags_of(batch, there).cpu().numpy()
            for i, row, size in zip(chosen.tolist(), tags, there.sum(1).tolist(), strict=True):
                found[i] = row[:size]
            if progress:
                progress(min(at + ROWS, len(order)), len(order))
        return found

    def tags_of(self, batch: Batch, there: torch.Tensor) -> torch.Tensor:
        """(B, W)"""
        return self.headed.best(self.headed(batch), there)

    def measured(self, text: TaggedExamples) -> dict[str, float]:
        """The task's metrics on sentences with tags."""
        return measured(text, [text.of(i) for i in range(len(text))], self.best(text))

    def _in_context(self, words: Sequence[Sequence[str]]) -> np.ndarray:
        if self._context is None:
            run = self.network.config.contextual
            if self.load is None:
                raise NextwordError(f"{self.name} reads the vectors of {run} too. Open it with nextword.load.")
            try:
                self._context = Contextual(self.load(run, str(self.device)), run)
            except NextwordError as problem:
                raise NextwordError(f"{self.name} reads the vectors of {run} besides its own: {problem}") from None
            if self.network.config.contextual_of not in ("", self._context.fingerprint):
                self._context = None
                raise NextwordError(
                    f"{self.name} learnt from the vectors of {run}, whose files have changed since: they would mean "
                    "something else to it. Restore that run, or train the tagger again."
                )
        return self._context.of(words)

    def __getattr__(self, name: str) -> Any:
        if name in (*OF_TEXT, "embed", "embed_words"):
            raise Unsupported(
                f"{self.name or 'This run'} tags words: it models no text and gives no vectors. Use `nextword predict`."
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class ManyTagger(WordTagger):
    """Of a run that has learnt several tasks at once: each sentence gets tags of them all, and is read but once.

    `predict` gives for every sentence {task: TaggedSentence}.
    """

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.settings.of_tags)

    @property
    def no_tags(self) -> np.ndarray:  # type: ignore[override]
        return np.zeros((0, len(self.names)), np.int64)

    def said(self, words: Sequence[str], tags: np.ndarray) -> Any:
        each = zip(self.settings.of_tags, tags.T, strict=True)
        return {task.name: TaggedSentence(tuple(words), _named(own, task.tags, task.scheme)) for task, own in each}

    def tags_of(self, batch: Batch, there: torch.Tensor) -> torch.Tensor:
        """(B, W, tasks)"""
        return torch.stack(self.headed.best_of_all(batch.inputs, there), -1)

    def measured(self, text: Any) -> dict[str, float]:
        """The mean of what decides in each task, and each; of sentences of every task."""
        found = []
        for i, part in enumerate(text.parts):
            said = [tags[:, i] for tags in self.best(part)]
            found.append(measured(part, [part.of(k) for k in range(len(part))], said))
        return combine_tasks(text.names, found)


def _named(tags: np.ndarray, labels: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Tags by their names, those of spans as IOB2."""
    named = [labels[tag] for tag in tags.tolist()]
    return tuple(converted(named, OUTPUT) if scheme != PLAIN else named)
