"""Embeddings: vectors of texts and of words in context, from any layer of a network.

    texts ──encode──▶ ids ──read──▶ layers (N, D) of all tokens, and the text of each ──mix──▶ (N, D) ──pool──▶ (texts,
    D)

A bidirectional network reads framed texts, packed into one row without padding where it can. A causal one reads rows of
similar length; texts longer than a chunk continue from the state. `embed_words` returns a vector per word instead of
one per text. A network that reads letters (ELMo) gets words outside its vocabulary by their spelling (`UnknownWords`).

`WordVectorModel` is a run that embeds words and texts, and models no text (word2vec, GloVe).

`ContextualVectors` caches all layers of a frozen run on disk, as input for taggers:

    context = ContextualVectors(nextword.load("runs/elmo"))
    context.read([["A", "bank", "of", "sand"], …])        # (layers, words of all sentences, width) in float16
    context.cached(sentences)                           # the same, from the cache if it is there
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from nextword.batching.examples import UnknownWords
from nextword.core.errors import MissingFile, Unsupported, invalid
from nextword.core.io import cache_folder
from nextword.core.protocols import Autoregressive
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import Encoding, FramedText, Inputs, LabeledProgress, ignore_progress, require_number
from nextword.data.segmentation import replace_spaces
from nextword.data.word_vectors import Vectors, parse_sum
from nextword.lm.base import Layer, TextModel, WordsInContext
from nextword.models.base import Network, word_vectors
from nextword.models.framing import collate
from nextword.run_folder import RunFolder

BATCH_TOKENS = 8192  # tokens in one batch of texts
CHUNK = 512  # tokens of a row that are read at once; the state is carried over

Item = TypeVar("Item")

POOLS = ("mean", "text", "first", "last", "max")
ALL_LAYERS = "all"  # next to each other instead of mixed


class TokenVectors(NamedTuple):
    """The vectors of N tokens that were read together."""

    layers: list[Tensor]  # each (N, width)
    text: np.ndarray  # (N,) which text the token belongs to
    own: np.ndarray  # (N,) the token is part of the text, not of the frame around it
    first: np.ndarray  # (N,) it is the first of its text, or of a window
    last: np.ndarray  # (N,) it is the last of its text


class _Window(NamedTuple):
    text: int
    frame: FramedText
    is_last: bool  # of its text


class EmbeddingMixin(TextModel):
    """The methods of a text-level model that embed."""

    room: int  # tokens of a text in one window of a bidirectional network

    @torch.no_grad()
    def embed(self, texts: Sequence[str], layer: Layer = -1, pooling: str = "mean") -> Tensor:
        """One vector per text (texts, width).

        layer     a number (0 is the embedding, −1 the last), "mean" of all, a slice such as "-4:" for the mean of the
                  last four, "1,5" for the mean of these, or weights: {1: 0.3, 5: 0.7}, also as "1=0.3,5=0.7"
        pooling   "mean" or "max" of all tokens, the mean of the "text" without special tokens, or the "first" or "last"
                  vector (BERT's [CLS] is the first)
        """
        self.require("embed")
        weights = parse_layers(layer, self.network.widths)
        if pooling not in POOLS:
            raise invalid("pooling", pooling, f"must be one of {', '.join(POOLS)}.")
        if pooling == "first" and not self.is_bidirectional:
            raise Unsupported(
                "This model reads from left to right, so its first vector has seen nothing of the text. Use pooling = "
                "'last' or 'mean'.",
                ability="embed",
            )
        unknown_words = UnknownWords(self.network, self.tokenizer)
        encodings = self.tokenizer.encode_batch(list(texts))
        ids = [
            self._in_reading_order(unknown_words.ids(text, encoding))
            for text, encoding in zip(texts, encodings, strict=True)
        ]
        pool = _Pool(len(texts), self.network.widths[next(iter(weights))], is_max=pooling == "max")
        for part in self._read_texts(ids, unknown_words):
            chosen = {"text": part.own, "first": part.first, "last": part.last}.get(pooling)
            pool.add(_mix_layers(part.layers, weights).cpu(), part.text, chosen)
            end_slice()
        vectors = pool.result()
        require_number(vectors.sum().item())
        return vectors

    @torch.no_grad()
    def embed_words(
        self, texts: Sequence[str | Sequence[str]], layer: Layer | Sequence[int] = -1
    ) -> list[WordsInContext]:
        """One vector per word of each text, in its context.

        A text is a string, or a list of words that are not split further. `layer` is as in `embed`, or "all", or a list
        of layers, which are not mixed. A word is a run of characters without spaces, and its vector the mean of its
        tokens'; for a network that reads letters, words are tokens.
        """
        self.require("embed")
        widths = self.network.widths
        is_list = layer == ALL_LAYERS or isinstance(layer, (list, tuple))
        if is_list:
            weights = _single_layers(widths, range(len(widths)) if layer == ALL_LAYERS else layer)  # type: ignore[arg-type]
        else:
            weights = [parse_layers(layer, widths)]  # type: ignore[arg-type]
        unknown_words = UnknownWords(self.network, self.tokenizer)
        split = [self._split_words(text, unknown_words) for text in texts]
        parts: list[list[Tensor]] = [[] for _ in texts]
        for part in self._read_texts([self._in_reading_order(ids) for _, ids, _ in split], unknown_words):
            mixed = torch.stack([_mix_layers(part.layers, each) for each in weights])
            mixed, text = mixed[:, torch.from_numpy(part.own)].cpu(), part.text[part.own]
            for i in np.unique(text):
                parts[i].append(mixed[:, torch.from_numpy(text == i)])
            end_slice()
        results = []
        for (words, ids, word_of_token), vectors_of_parts in zip(split, parts, strict=True):
            width = widths[next(iter(weights[0]))]
            vectors = torch.cat(vectors_of_parts, 1) if len(ids) else torch.zeros(len(weights), 0, width)
            vectors = vectors.flip(1) if self.network.is_backward else vectors
            vectors = _average_words(vectors, word_of_token, len(words))
            results.append(WordsInContext(words, vectors if is_list else vectors[0]))
        return results

    def _split_words(
        self, text: str | Sequence[str], unknown_words: UnknownWords
    ) -> tuple[list[str], np.ndarray, np.ndarray]:
        """The words of a text, its ids, and the index of each id's word."""
        if unknown_words.reads_letters:
            if not isinstance(text, str):
                return list(text), unknown_words.of_words(text), np.arange(len(text))
            (encoding,), raw = self.tokenizer.encode_batch([text]), text.encode()
            words = [raw[a:b].decode() for a, b in encoding.spans.tolist()]
            return words, unknown_words.ids(text, encoding), np.arange(len(words))
        if not isinstance(text, str):
            for word in text:
                if len(word.split()) != 1:
                    raise invalid("texts", word, "must be words, which are not empty and have no spaces.")
            text = " ".join(text)
        encoding = self.tokenizer.encode_batch([text])[0]
        return text.split(), encoding.ids.astype(np.int64), encoding.words

    def _in_reading_order(self, ids: np.ndarray) -> np.ndarray:
        return ids[::-1] if self.network.is_backward else ids

    def _read_texts(self, ids: Sequence[np.ndarray], unknown_words: UnknownWords) -> Iterator[TokenVectors]:
        return self._read_frames(ids, unknown_words) if self.is_bidirectional else self._read_rows(ids)

    def _read_frames(self, texts: Sequence[np.ndarray], unknown_words: UnknownWords) -> Iterator[TokenVectors]:
        """Framed texts; a text longer than a window is cut into several equal parts."""
        windows = [
            _Window(i, frame_ids(self.network, part), index == len(parts) - 1)
            for i, parts in enumerate(_cut_evenly(ids, self.room) for ids in texts)
            for index, part in enumerate(parts)
        ]
        windows.sort(key=lambda window: -len(window.frame.ids))
        for batch in batch_by_size(iter(windows), slice_tokens(BATCH_TOKENS), lambda window: len(window.frame.ids)):
            frames = [window.frame for window in batch]
            sizes = np.array([len(frame.ids) for frame in frames])
            begins = np.cumsum(sizes) - sizes
            own, first, last = (np.zeros(sizes.sum(), bool) for _ in range(3))
            first[begins] = True
            last[begins + sizes - 1] = [window.is_last for window in batch]
            for begin, window in zip(begins, batch, strict=True):
                start, end = window.frame.text_spans[0] if len(texts[window.text]) else (0, len(window.frame.ids))
                own[begin + start : begin + end] = True
            yield TokenVectors(
                self._layers(frames, unknown_words),
                np.repeat([window.text for window in batch], sizes),
                own,
                first,
                last,
            )

    def _layers(self, frames: Sequence[FramedText], unknown_words: UnknownWords) -> list[Tensor]:
        """The layers (N, width) of all tokens of the frames."""
        network = self.network
        if isinstance(self.network, Autoregressive):  # in a packed row, it would attend to everything before
            inputs, _ = collate(frames, pad=self.tokenizer.begin, device=network.device)
            return [layer[inputs.token_mask] for layer in network.encode(unknown_words.spelled(inputs))[0]]
        return [layer[0] for layer in network.encode(pack_frames(frames, network.device))[0]]

    def _read_rows(self, texts: Sequence[np.ndarray]) -> Iterator[TokenVectors]:
        """Rows of similar length, chunk by chunk. An empty text is read as the begin token."""
        begin = int(self.network.start(1)[0][0])
        rows = [ids if len(ids) else np.array([begin]) for ids in texts]
        order = iter(sorted(range(len(rows)), key=lambda i: -len(rows[i])))
        for batch in batch_by_size(order, slice_tokens(BATCH_TOKENS), lambda i: min(len(rows[i]), CHUNK)):
            lengths = np.array([len(rows[i]) for i in batch])
            padded = np.full((len(batch), lengths[0]), begin)
            for row, i in enumerate(batch):
                padded[row, : lengths[row]] = rows[i]
            first, state = self.network.start(len(batch))
            size = slice_tokens(CHUNK)
            for at in range(0, lengths[0], size):
                chunk = torch.from_numpy(padded[:, at : at + size]).to(first.device)
                layers, state = self.network.encode(Inputs(chunk), state)
                column = at + np.arange(chunk.shape[1])
                is_token = column < lengths[:, None]  # (B, T)
                row_of_token, position = np.nonzero(is_token)
                tokens = torch.from_numpy(is_token).to(first.device)
                yield TokenVectors(
                    [layer[tokens] for layer in layers],
                    np.array(batch)[row_of_token],
                    np.ones(len(row_of_token), bool),
                    column[position] == 0,
                    column[position] == lengths[row_of_token] - 1,
                )


# ------------------------------------------------------------------------------------------------ layers and tokens


def _mix_layers(layers: Sequence[Tensor], weights: Mapping[int, float]) -> Tensor:
    return sum((weight * layers[i].float() for i, weight in weights.items()), torch.zeros(()))


def _single_layers(widths: Sequence[int], layers: Sequence[int]) -> list[dict[int, float]]:
    """The weights of each of these layers alone."""
    if len({widths[i] for i in layers}) > 1:
        raise invalid("layer", list(layers), f"must be layers of one width; widths are {', '.join(map(str, widths))}.")
    return [{i: 1.0} for i in layers]


def _average_words(vectors: Tensor, word_of_token: np.ndarray, words: int) -> Tensor:
    """(L, tokens, D) → (L, words, D): the mean of each word's tokens."""
    if len(word_of_token) == words and (word_of_token == np.arange(words)).all():
        return vectors
    index = torch.from_numpy(np.asarray(word_of_token, np.int64))
    sums = vectors.new_zeros(len(vectors), words, vectors.shape[2]).index_add(1, index, vectors)
    return sums / torch.bincount(index, minlength=words).clamp(min=1).view(1, -1, 1)


def parse_layers(layer: Layer, widths: Sequence[int]) -> dict[int, float]:
    """The weight of each layer that a user's choice means: see `embed`."""
    depth = len(widths)
    weights: Mapping[int, float]
    if isinstance(layer, str):
        weights = _parse_layer_text(layer, depth)
    elif isinstance(layer, Mapping):
        weights = layer
    else:
        weights = {int(layer): 1.0}
    if not weights or not all(-depth <= i < depth for i in weights):
        raise invalid("layer", layer, f"must be layers from 0 (embedding) to {depth - 1}, or negative from the last.")
    total: dict[int, float] = {}
    for i, weight in weights.items():
        total[i % depth] = total.get(i % depth, 0.0) + float(weight)
    if len({widths[i] for i in total}) > 1:
        chosen = ", ".join(str(widths[i]) for i in total)
        raise invalid("layer", layer, f"must be layers of one width, to be mixed; theirs are {chosen}.")
    return total


def _parse_layer_text(layer: str, depth: int) -> Mapping[int, float]:
    text = layer.replace(" ", "").replace("−", "-")
    number, weight = r"-?\d+", r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    chosen: Sequence[int]
    if re.fullmatch(rf"{number}={weight}(?:,{number}={weight})*", text):
        pairs = [part.split("=") for part in text.split(",")]
        return {int(i): float(w) for i, w in pairs}
    if text == "mean":
        chosen = range(depth)
    elif re.fullmatch(rf"(?:{number})?:(?:{number})?", text):
        first, last = (int(end) if end else None for end in text.split(":"))
        chosen = range(depth)[first:last]
    elif re.fullmatch(rf"{number}(?:,{number})*", text):
        chosen = [int(i) for i in text.split(",")]
    else:
        forms = "a number (-1 is the last, 0 the embedding), mean, -4: (the last four), 1,5 or weights (1=0.3,5=0.7)"
        raise invalid("layer", layer, f"must be {forms}.")
    return dict.fromkeys(chosen, 1 / len(chosen)) if chosen else {}


class _Pool:
    """The mean or maximum of the chosen vectors of each text, which come in any order."""

    def __init__(self, texts: int, width: int, is_max: bool) -> None:
        self.is_max = is_max
        self.sum = torch.full((texts, width), -torch.inf if is_max else 0.0)
        self.count = torch.zeros(texts, 1)

    def add(self, vectors: Tensor, text: np.ndarray, chosen: np.ndarray | None) -> None:
        if chosen is not None:
            vectors, text = vectors[torch.from_numpy(chosen)], text[chosen]
        where = torch.from_numpy(text)
        if self.is_max:
            self.sum.scatter_reduce_(0, where.unsqueeze(1).expand_as(vectors), vectors, "amax")
        else:
            self.sum.index_add_(0, where, vectors)
            self.count.index_add_(0, where, torch.ones(len(where), 1))

    def result(self) -> Tensor:
        return self.sum if self.is_max else self.sum / self.count


# ------------------------------------------------------------------------------------------------ frames


def frame_ids(network: Network, ids: Sequence[int] | np.ndarray) -> FramedText:
    """Ids with the special tokens that the network puts around one text."""
    no_spans = np.zeros((len(ids), 2), np.int64)
    return network.frame(Encoding(np.asarray(ids, np.int64), no_spans, no_spans[:, 0]))


def pack_frames(frames: Sequence[FramedText], device: torch.device) -> Inputs:
    """Frames packed into one row."""
    starts = np.cumsum([0, *(len(frame.ids) for frame in frames)])
    parts = [frame.segments for frame in frames if frame.segments is not None]
    segments = torch.from_numpy(np.concatenate(parts)[None]).to(device) if parts else None
    ids = torch.from_numpy(np.concatenate([frame.ids for frame in frames])[None]).to(device)
    return Inputs(ids, segments=segments, starts=torch.from_numpy(starts).to(device))


def batch_by_size(
    items: Iterator[Item], room: int, size: Callable[[Item], int], most: int = 1 << 30
) -> Iterator[list[Item]]:
    """Consecutive items whose sizes sum to at most `room`, at most `most` of them, and at least one."""
    batch: list[Item] = []
    used = 0
    for item in items:
        needed = size(item)
        if batch and (used + needed > room or len(batch) >= most):
            yield batch
            batch, used = [], 0
        batch.append(item)
        used += needed
    if batch:
        yield batch


def _cut_evenly(ids: np.ndarray, longest: int) -> list[np.ndarray]:
    """As few parts as possible, equally long up to one token; an empty text is one empty part."""
    return np.array_split(ids, max(1, -(-len(ids) // longest)))


# ------------------------------------------------------------------------------------------------ cached vectors

SENTENCES_PER_BATCH = 256  # sentences read at once
Sentences = Sequence[Sequence[str]]


class ContextualVectors:
    """All layers of a run, as vectors of words in context. Layers of another width than the last are left out, because
    the layers are to be mixed."""

    def __init__(self, lm: TextModel, run: str | Path = "") -> None:
        lm.require("embed")
        self.lm, self.run = lm, str(run)
        widths = list(lm.network.widths)
        self.chosen = [i for i, width in enumerate(widths) if width == widths[-1]]
        self.width = int(widths[-1])

    @property
    def layers(self) -> int:
        return len(self.chosen)

    def read(
        self, sentences: Sentences, progress: LabeledProgress = ignore_progress, into: np.ndarray | None = None
    ) -> np.ndarray:
        """(layers, words, width) in float16, written into the array `into` if it is given."""
        total = sum(map(len, sentences))
        out = np.zeros((self.layers, total, self.width), np.float16) if into is None else into
        at = 0
        for start in range(0, len(sentences), SENTENCES_PER_BATCH):
            for layers in self._layers(sentences[start : start + SENTENCES_PER_BATCH]):
                out[:, at : at + layers.shape[1]] = layers.clip(-65504, 65504)
                at += layers.shape[1]
            progress("reading words in context", at, total)
        return out

    def _layers(self, sentences: Sentences) -> Iterator[np.ndarray]:
        """(layers, words, width) of each sentence."""
        words = [[replace_spaces(word) for word in sentence] for sentence in sentences]
        for sentence in self.lm.embed_words(words, self.chosen):
            yield sentence.vectors.numpy()

    def cached(self, sentences: Sentences, progress: LabeledProgress = ignore_progress) -> np.ndarray:
        """Like `read`, but memory-mapped from a file in the cache that belongs to these sentences and these weights."""
        path = cache_folder("contextual") / f"{self._key(sentences)}.npy"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}.npy")
            shape = (self.layers, sum(map(len, sentences)), self.width)
            try:
                self.read(sentences, progress, np.lib.format.open_memmap(temporary, "w+", np.float16, shape))
                temporary.replace(path)
            except OSError as problem:
                raise MissingFile(
                    f"Cannot write the vectors of {shape[1]:,} words to {path.parent}: {problem.strerror}. Set "
                    "NEXTWORD_CACHE to a folder with more space.",
                    path=path.parent,
                ) from None
            finally:
                temporary.unlink(missing_ok=True)
        vectors: np.ndarray = np.load(path, mmap_mode="r")
        return vectors

    @property
    def fingerprint(self) -> str:
        """A hash of the run's files, which changes if it is trained again."""
        files = RunFolder.open(self.run).manifest.get("files", {}) if self.run else {}
        return blake2b(str(sorted(map(str, files.items()))).encode(), digest_size=8).hexdigest()

    def _key(self, sentences: Sentences) -> str:
        hashed = blake2b(f"{self.fingerprint} {self.chosen}".encode(), digest_size=16)
        for sentence in sentences:
            hashed.update("\x1e".join(sentence).encode("utf-8", "replace") + b"\x1d")
        return hashed.hexdigest()


# ------------------------------------------------------------------------------------------------ word vectors


class WordVectorModel(EmbeddingMixin):
    """`embed` texts; `nearest` words of words and of sums such as "king - man + woman"."""

    room = 1 << 20  # tokens of a text that are read at once
    is_bidirectional = True  # nothing is read from left to right

    @cached_property
    def vectors(self) -> Vectors:
        return word_vectors(self.network, self.tokenizer, self.name)

    def nearest(self, text: str, k: int = 10) -> list[tuple[str, float]]:
        return self.vectors.nearest(parse_sum(text), k)

    def why_not(self, ability: str) -> str:
        if ability == "predict":
            return super().why_not(ability)
        return (
            f"{self.name or 'This run'} has word vectors and no probabilities, so it does not support "
            f"{ability!r}. Use `nextword embed`, as in `nextword embed RUN --nearest WORD`."
        )
