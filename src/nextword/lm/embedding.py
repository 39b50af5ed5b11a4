"""Texts as vectors: which layers, which tokens of a text, and many texts of uneven length read at once.

    texts ──encode──▶ ids ──read──▶ layers (N, D) of all tokens, and whose each is ──mix──▶ (N, D) ──pool──▶ (texts, D)

A network that sees both sides reads texts in its own frame, end to end in one row without padding where it can. One
that reads from left to right reads rows of like length, and what is longer than a chunk goes on from the state.

`embed_words` gives the vectors of each word instead of one of the text. A network that reads letters (ELMo) gets words
that its vocabulary lacks by their spelling, as ids past all others (`Unseen`).

Vectors of words in context, of a run that stays as it is: all its layers, found once and kept.

    context = Contextual(nextword.load("runs/elmo"))
    context.of([["A", "bank", "of", "sand"], …])        # (layers, words of all sentences, width) in 16 bits
    context.kept(sentences)                             # the same, from the cache's folder if it is there

Any model serves that can embed; a word of several tokens is the mean of theirs. Layers narrower or wider than the last
are left out, for all are to be mixed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.batching.examples import Unseen
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Tokenizer
from nextword.core.types import Encoding, FramedText, Inputs
from nextword.data.segmentation import replace_spaces
from nextword.models.framing import collate
from nextword.run_folder import RunFolder

TOGETHER = 8192  # tokens in one batch of texts
CHUNK = 512  # tokens of a row read at once from left to right; the state is carried over

OF_TEXT = {  # what a language model has, and what only embeds has not
    *("score", "score_many", "next", "fill", "generate", "generate_many", "kind", "context", "stride"),
    *("stream_nats", "windowed_nats", "token_nats", "beyond"),
}
POOLS = ("mean", "text", "first", "last", "max")
ALL = "all"  # layers, one beside the other instead of mixed
Layer = int | str | Mapping[int, float]


class Read(NamedTuple):
    """Tokens that were read, of some texts."""

    layers: list[Tensor]  # each (N, width)
    text: np.ndarray  # (N,) whose token it is
    own: np.ndarray  # (N,) it is the text's, not of the frame around it
    first: np.ndarray  # (N,) the first of its text, or of a window of it
    last: np.ndarray  # (N,) the last of its text


class InContext(NamedTuple):
    """The words of a text, and their vectors there: (words, width), or of all layers (layers, words, width)."""

    words: list[str]
    vectors: Tensor


class _Window(NamedTuple):
    text: int
    frame: FramedText
    final: bool  # the last of its text


class Embedding:
    """The part of a text-level model that embeds. What it holds is the model's."""

    network: Any
    tokenizer: Tokenizer
    can: frozenset[str]
    is_bidirectional: bool  # a token's vector is made of all the text, not only of what lies before it
    room: int  # tokens of a text in one window of a network that sees both sides

    @torch.no_grad()
    def embed(self, texts: Sequence[str], layer: Layer = -1, pooling: str = "mean") -> Tensor:
        """(texts, width): a vector a text.

        `layer` is one of them (0 is the embedding, −1 the last), "mean" of all, "-4:" for the mean of the last four (as
        Python slices), "1,5" for the mean of these, or weights: {1: 0.3, 5: 0.7}, which may be written "1=0.3,5=0.7".

        `pooling` is over what was read: "mean" or "max" of all, the mean of the "text" alone, without the frame that
        some networks put around it, or its "first" or "last" vector ([CLS] is the first of a BERT).
        """
        if "embed" not in self.can:
            raise Unsupported(
                f"{type(self.network).__name__} has no vectors inside, so it cannot embed texts. Use a network instead."
            )
        weights = mix_of(layer, self.network.widths)
        if pooling not in POOLS:
            raise NextwordError(f"pooling is {pooling!r}; expected one of {', '.join(POOLS)}.")
        if pooling == "first" and not self.is_bidirectional:
            raise Unsupported(
                "This model reads from left to right: its first vector has seen nothing of the text. Pool by 'last' or "
                "'mean'."
            )
        unseen = Unseen(self.network, self.tokenizer)
        encodings = self.tokenizer.encode_batch(list(texts))
        ids = [unseen.ids(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]
        width = self.network.widths[next(iter(weights))]
        pool = _Pool(len(texts), width, most=pooling == "max")
        ids = [self._turned(one) for one in ids]
        for part in self._read_all_of(ids, unseen):
            chosen = {"text": part.own, "first": part.first, "last": part.last}.get(pooling)
            pool.add(_mixed(part.layers, weights).cpu(), part.text, chosen)
        return pool.result()

    @torch.no_grad()
    def embed_words(self, texts: Sequence[str | Sequence[str]], layer: Layer | Sequence[int] = -1) -> list[InContext]:
        """The words of each text in their context.

        A text is a string, or a list of words that stay as they are. `layer` is as in `embed`, or "all" of them side by
        side, or a list of those wanted. A network that reads letters knows any word, and its words are its tokens; of
        another a word is a run of characters without a space, and its vector the mean of its tokens'.
        """
        if "embed" not in self.can:
            raise Unsupported(f"{type(self.network).__name__} has no vectors inside, so it cannot embed words.")
        widths = self.network.widths
        several = range(len(widths)) if layer == ALL else layer if isinstance(layer, (list, tuple)) else None
        weights = _each(widths, several) if several is not None else [mix_of(layer, widths)]  # type: ignore[arg-type]
        unseen = Unseen(self.network, self.tokenizer)
        split = [self._words(text, unseen) for text in texts]
        found: list[list[Tensor]] = [[] for _ in texts]
        for part in self._read_all_of([self._turned(ids) for _, ids, _ in split], unseen):
            mixed = torch.stack([_mixed(part.layers, one) for one in weights])[:, torch.from_numpy(part.own)].cpu()
            whose = part.text[part.own]
            for i in np.unique(whose):
                found[i].append(mixed[:, torch.from_numpy(whose == i)])
        width = widths[next(iter(weights[0]))]
        made = []
        for (words, ids, places), parts in zip(split, found, strict=True):
            vectors = torch.cat(parts, 1) if len(ids) else torch.zeros(len(weights), 0, width)
            vectors = vectors.flip(1) if getattr(self.network, "is_backward", False) else vectors
            vectors = _means(vectors, places, len(words))
            made.append(InContext(words, vectors if several is not None else vectors[0]))
        return made

    def _words(self, text: str | Sequence[str], unseen: Unseen) -> tuple[list[str], np.ndarray, np.ndarray]:
        """The words of a text, the ids it is read as, and which word each of these belongs to."""
        if unseen.spells:
            if not isinstance(text, str):
                return list(text), unseen.of_words(text), np.arange(len(text))
            (encoding,), raw = self.tokenizer.encode_batch([text]), text.encode()
            words = [raw[a:b].decode() for a, b in encoding.spans.tolist()]
            return words, unseen.ids(text, encoding), np.arange(len(words))
        if not isinstance(text, str):
            odd = [word for word in text if len(word.split()) != 1]
            if odd:
                raise NextwordError(f"{odd[0]!r} is not one word: it is empty, or has a space in it.")
            text = " ".join(text)
        encoding = self.tokenizer.encode_batch([text])[0]
        return text.split(), encoding.ids.astype(np.int64), encoding.words

    def _turned(self, ids: np.ndarray) -> np.ndarray:
        """Ids in the order in which the network reads them."""
        return ids[::-1] if getattr(self.network, "is_backward", False) else ids

    def _read_all_of(self, ids: Sequence[np.ndarray], unseen: Unseen) -> Iterator[Read]:
        return self._read_frames(ids, unseen) if self.is_bidirectional else self._read_onward(ids)

    def _read_frames(self, texts: Sequence[np.ndarray], unseen: Unseen) -> Iterator[Read]:
        """Texts in their frames; what does not fit into a window is cut into several, equally long."""
        windows = [
            _Window(i, framed(self.network, part), place == len(parts) - 1)
            for i, parts in enumerate(_cut(ids, self.room) for ids in texts)
            for place, part in enumerate(parts)
        ]
        windows.sort(key=lambda window: -len(window.frame.ids))
        for batch in batches(iter(windows), TOGETHER, lambda window: len(window.frame.ids)):
            frames = [window.frame for window in batch]
            sizes = np.array([len(frame.ids) for frame in frames])
            begins = np.cumsum(sizes) - sizes
            own, first, last = (np.zeros(sizes.sum(), bool) for _ in range(3))
            first[begins] = True
            last[begins + sizes - 1] = [window.final for window in batch]
            for begin, window in zip(begins, batch, strict=True):
                start, end = window.frame.text_spans[0] if len(texts[window.text]) else (0, len(window.frame.ids))
                own[begin + start : begin + end] = True
            yield Read(
                self._layers(frames, unseen), np.repeat([window.text for window in batch], sizes), own, first, last
            )

    def _layers(self, frames: Sequence[FramedText], unseen: Unseen) -> list[Tensor]:
        """Of all tokens of the frames, one after the other."""
        network = self.network
        if isinstance(self.network, Autoregressive):  # made for rows: end to end, it would compare all with all
            inputs, _ = collate(frames, pad=self.tokenizer.begin, device=network.device)
            return [layer[inputs.token_mask] for layer in network.encode(unseen.spelled(inputs))[0]]
        return [layer[0] for layer in network.encode(packed(frames, network.device))[0]]

    def _read_onward(self, texts: Sequence[np.ndarray]) -> Iterator[Read]:
        """Rows of like length, chunk by chunk. Of a text without a token the one is read that texts begin with."""
        begin = int(self.network.start(1)[0][0])
        rows = [ids if len(ids) else np.array([begin]) for ids in texts]
        order = iter(sorted(range(len(rows)), key=lambda i: -len(rows[i])))
        for batch in batches(order, TOGETHER, lambda i: min(len(rows[i]), CHUNK)):
            lengths = np.array([len(rows[i]) for i in batch])
            padded = np.full((len(batch), lengths[0]), begin)
            for row, i in enumerate(batch):
                padded[row, : lengths[row]] = rows[i]
            first, state = self.network.start(len(batch))
            for at in range(0, lengths[0], CHUNK):
                chunk = torch.from_numpy(padded[:, at : at + CHUNK]).to(first.device)
                layers, state = self.network.encode(Inputs(chunk), state)
                column = at + np.arange(chunk.shape[1])
                there = column < lengths[:, None]  # (B, T)
                rows_of, where = np.nonzero(there)
                tokens = torch.from_numpy(there).to(first.device)
                yield Read(
                    [layer[tokens] for layer in layers],
                    np.array(batch)[rows_of],
                    np.ones(len(rows_of), bool),
                    column[where] == 0,
                    column[where] == lengths[rows_of] - 1,
                )


# ------------------------------------------------------------------------------------------------ layers and tokens


def _mixed(layers: Sequence[Tensor], weights: Mapping[int, float]) -> Tensor:
    return sum((weight * layers[i].float() for i, weight in weights.items()), torch.zeros(()))


def _each(widths: Sequence[int], layers: Sequence[int]) -> list[dict[int, float]]:
    """Every one of these layers by itself."""
    if len({widths[i] for i in layers}) > 1:
        raise NextwordError(
            f"The layers have different widths ({', '.join(map(str, widths))}) and cannot lie side by side. Name one."
        )
    return [{i: 1.0} for i in layers]


def _means(vectors: Tensor, places: np.ndarray, words: int) -> Tensor:
    """(L, tokens, D) → (L, words, D): the mean of each word's tokens."""
    if len(places) == words and (places == np.arange(words)).all():
        return vectors
    where = torch.from_numpy(np.asarray(places, np.int64))
    sums = vectors.new_zeros(len(vectors), words, vectors.shape[2]).index_add(1, where, vectors)
    return sums / torch.bincount(where, minlength=words).clamp(min=1).view(1, -1, 1)


def mix_of(layer: Layer, widths: Sequence[int]) -> dict[int, float]:
    """Weights of layers, from what a user says: see `embed`."""
    depth = len(widths)
    weights: Mapping[int, float]
    if isinstance(layer, str):
        weights = _written(layer, depth)
    elif isinstance(layer, Mapping):
        weights = layer
    else:
        weights = {int(layer): 1.0}
    for i in weights:
        if not -depth <= i < depth:
            raise NextwordError(f"Layer {i} does not exist: this model has layers 0 (embedding) to {depth - 1}, or −1.")
    if not weights:
        raise NextwordError(f"layer = {layer!r} names no layer: this model has layers 0 (embedding) to {depth - 1}.")
    found: dict[int, float] = {}
    for i, weight in weights.items():
        found[i % depth] = found.get(i % depth, 0.0) + float(weight)
    if len({widths[i] for i in found}) > 1:
        raise NextwordError(
            f"Layers {', '.join(map(str, found))} have different widths ({', '.join(str(widths[i]) for i in found)}) "
            "and cannot be mixed. Choose layers of one width."
        )
    return found


def _written(layer: str, depth: int) -> Mapping[int, float]:
    said = layer.replace(" ", "").replace("−", "-")
    number, weight = r"-?\d+", r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    chosen: Sequence[int]
    if re.fullmatch(rf"{number}={weight}(?:,{number}={weight})*", said):
        pairs = [part.split("=") for part in said.split(",")]
        return {int(i): float(w) for i, w in pairs}
    if said == "mean":
        chosen = range(depth)
    elif re.fullmatch(rf"(?:{number})?:(?:{number})?", said):
        first, last = (int(end) if end else None for end in said.split(":"))
        chosen = range(depth)[first:last]
    elif re.fullmatch(rf"{number}(?:,{number})*", said):
        chosen = [int(i) for i in said.split(",")]
    else:
        raise NextwordError(
            f"layer = {layer!r} is not understood. Give one (-1 is the last, 0 the embedding), mean of all, -4: for "
            "the mean of the last four, 1,5 for the mean of these, or weights, as 1=0.3,5=0.7."
        )
    return dict.fromkeys(chosen, 1 / len(chosen)) if chosen else {}


class _Pool:
    """The mean, or the greatest, of the chosen vectors of each text, which come in any order."""

    def __init__(self, texts: int, width: int, most: bool) -> None:
        self.most = most
        self.sum = torch.full((texts, width), -torch.inf if most else 0.0)
        self.count = torch.zeros(texts, 1)

    def add(self, vectors: Tensor, text: np.ndarray, chosen: np.ndarray | None) -> None:
        if chosen is not None:
            vectors, text = vectors[torch.from_numpy(chosen)], text[chosen]
        where = torch.from_numpy(text)
        if self.most:
            self.sum.scatter_reduce_(0, where.unsqueeze(1).expand_as(vectors), vectors, "amax")
        else:
            self.sum.index_add_(0, where, vectors)
            self.count.index_add_(0, where, torch.ones(len(where), 1))

    def result(self) -> Tensor:
        return self.sum if self.most else self.sum / self.count


# ------------------------------------------------------------------------------------------------ frames


def framed(network: Any, ids: Sequence[int] | np.ndarray) -> FramedText:
    """Ids in the network's own frame for one text."""
    nowhere = np.zeros((len(ids), 2), np.int64)
    return network.frame(Encoding(np.asarray(ids, np.int64), nowhere, nowhere[:, 0]))


def packed(frames: Sequence[FramedText], device: torch.device) -> Inputs:
    """Frames end to end in one row."""
    starts = np.cumsum([0, *(len(frame.ids) for frame in frames)])
    parts = [frame.segments for frame in frames if frame.segments is not None]
    segments = torch.from_numpy(np.concatenate(parts)[None]).to(device) if parts else None
    ids = torch.from_numpy(np.concatenate([frame.ids for frame in frames])[None]).to(device)
    return Inputs(ids, segments=segments, starts=torch.from_numpy(starts).to(device))


def batches(items: Iterator[Any], room: int, size: Any, most: int = 1 << 30) -> Iterator[list[Any]]:
    """Neighbours whose sizes add up to no more than `room`, and no more than `most` of them; never none."""
    batch: list[Any] = []
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


def _cut(ids: np.ndarray, longest: int) -> list[np.ndarray]:
    """As few parts as fit, of equal length but for one token; an empty text is one empty part."""
    return np.array_split(ids, max(1, -(-len(ids) // longest)))


SENTENCES_PER_BATCH = 256  # sentences read at once
Progress = Callable[[str, float, float | None], None]
Sentences = Sequence[Sequence[str]]


def nobody(label: str, done: float, total: float | None) -> None:
    pass


class Contextual:
    def __init__(self, lm: Any, run: str | Path = "") -> None:
        if "embed" not in lm.can or not hasattr(lm.network, "widths"):
            raise Unsupported(f"{run or 'This run'} has no vectors inside to give. Use a network that can embed.")
        self.lm, self.run = lm, str(run)
        widths = list(lm.network.widths)
        self.chosen = [i for i, width in enumerate(widths) if width == widths[-1]]
        self.width = int(widths[-1])

    @property
    def layers(self) -> int:
        return len(self.chosen)

    def of(self, sentences: Sentences, progress: Progress = nobody, into: np.ndarray | None = None) -> np.ndarray:
        """(layers, words, width) float16, written `into` an array if one is given."""
        total = sum(map(len, sentences))
        found = np.zeros((self.layers, total, self.width), np.float16) if into is None else into
        at = 0
        for start in range(0, len(sentences), SENTENCES_PER_BATCH):
            for layers in self._read(sentences[start : start + SENTENCES_PER_BATCH]):
                found[:, at : at + layers.shape[1]] = layers.clip(-65504, 65504)
                at += layers.shape[1]
            progress("reading words in context", at, total)
        return found

    def _read(self, sentences: Sentences) -> Iterator[np.ndarray]:
        """(layers, words, width) of each sentence."""
        for found in self.lm.embed_words([[replace_spaces(word) for word in one] for one in sentences], self.chosen):
            yield found.vectors.numpy()

    # -------------------------------------------------------------------------------------------- kept

    def kept(self, sentences: Sentences, progress: Progress = nobody) -> np.ndarray:
        """As `of`, memory-mapped from a file that is made once for these sentences and this run's weights."""
        path = cache_folder() / f"{self._key(sentences)}.npy"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}.npy")
            shape = (self.layers, sum(map(len, sentences)), self.width)
            try:
                self.of(sentences, progress, np.lib.format.open_memmap(temporary, "w+", np.float16, shape))
                temporary.replace(path)
            except OSError as problem:
                raise NextwordError(
                    f"The vectors of {shape[1]:,} words cannot be kept in {path.parent}: {problem.strerror}. Set "
                    "NEXTWORD_CACHE to a folder with room."
                ) from None
            finally:
                temporary.unlink(missing_ok=True)
        return np.load(path, mmap_mode="r")

    @property
    def fingerprint(self) -> str:
        """Of the run's files: another where it was trained again."""
        files = RunFolder.open(self.run).manifest.get("files", {}) if self.run else {}
        return blake2b(str(sorted(map(str, files.items()))).encode(), digest_size=8).hexdigest()

    def _key(self, sentences: Sentences) -> str:
        hashed = blake2b(f"{self.fingerprint} {self.chosen}".encode(), digest_size=16)
        for one in sentences:
            hashed.update("\x1e".join(one).encode("utf-8", "replace") + b"\x1d")
        return hashed.hexdigest()


def cache_folder() -> Path:
    return Path(os.environ.get("NEXTWORD_CACHE") or "~/.cache/nextword").expanduser() / "contextual"
