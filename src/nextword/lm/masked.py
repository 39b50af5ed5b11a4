"""Text-level models that fill in: blanks in a text, and texts scored by hiding each token in turn.

    The ___ sat on the ___.          next, fill:  the words that may stand there
    [?] cat sat    the [?] sat    the cat [?]     score:  Σ_t log p(x_t | all others), a pseudo-log-likelihood

A pseudo-likelihood (Salazar et al., "Masked Language Model Scoring", 2020) is no likelihood: its terms see each other's
tokens and make no distribution over texts. It ranks texts under one model; its `kind` says what it is, and nothing here
puts it beside exact numbers. Pieces of one word give each other away, so long words come out cheap.

Every hidden token is read in a window of its own, of which it is the middle where the text goes far enough.

What a network does that fills blanks of any length is in pieces.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Tokenizer
from nextword.core.types import PSEUDO, Framed, Guess, Inputs, Prediction, Score
from nextword.generation.infilling import BLANK, HIDDEN, MOST, around, blank_words, ids_beside, lettered, short
from nextword.lm.blank_filling import Pieced
from nextword.lm.embedding import TOGETHER, Embedding, batches, framed, packed
from nextword.models import count_parameters
from nextword.tokenizers.base import MARKS

ROWS = 256  # distributions over the vocabulary held at once
WINDOW = 512  # tokens read at once by a network that has no bound of its own

Progress = Callable[[int, int], None]


class Blanks(Pieced):
    """The part of a text-level model that fills blanks. What it holds is the model's."""

    network: Any
    tokenizer: Tokenizer
    room: int  # tokens of a text in one window

    def fill(self, text: str, k: int = 10, tokens: bool = False) -> list[list[Guess]]:
        """For every blank `___` of the text, the likeliest words to stand there; all other blanks stay open.

        A blank is a word of its own, whether there are spaces around it or not. `tokens`: raw tokens instead of words.
        """
        parts = text.split(BLANK)
        if len(parts) == 1:
            raise NextwordError(
                f"The text {short(text)} has no blank. Write {BLANK} where a word is to be found, for example "
                f'"The {BLANK} sat on the mat".'
            )
        return [self._fill(parts[: i + 1], parts[i + 1 :], k, tokens) for i in range(len(parts) - 1)]

    def _fill(self, left: Sequence[str], right: Sequence[str], k: int, tokens: bool) -> list[Guess]:
        """The blank between two texts, each of parts with further blanks between them."""
        if k < 1:
            raise NextwordError(f"k = {k}: ask for at least one guess.")
        for part in (*left, *right):
            self._check(part)
        before = self._ids(left[0], first=True)
        for part in left[1:]:
            before += [HIDDEN, *self._ids(part)]
        after = self._ids(right[0])
        for part in right[1:]:
            after += [HIDDEN, *self._ids(part)]
        room = min(self.room, self.network.window - 1) if self.writes_pieces else self.room
        before, after = (list(ids) for ids in around(before, after, room - (1 if tokens else MOST)))
        if tokens:
            return self._tokens(before, after, k)
        bare = not lettered(left)
        if self.writes_pieces:
            return self._likeliest(before, after, bare, k)
        found = blank_words(self._guess, before, after, self._parts, k, bare=bare)
        return [Guess(word, p) for word, p in found]

    def _check(self, text: str) -> None:
        for name in MARKS["mask"]:
            if name in text and name in self.tokenizer.special:
                raise NextwordError(
                    f"The text has {name} in it, which is plain letters to this tokenizer. Write {BLANK} for a blank."
                )

    def _ids(self, text: str, first: bool = False) -> list[int]:
        return ids_beside(self.tokenizer, text, first)

    def _tokens(self, left: list[int], right: list[int], k: int) -> list[Guess]:
        log_p = self._guess(np.array([[*left, HIDDEN, *right]]))[0, left.count(HIDDEN)]
        best = log_p.topk(min(k, len(log_p)))
        names = {id: name for name, id in self.tokenizer.special.items()}
        return [
            Guess(names.get(id) or self.tokenizer.piece(id).decode("utf-8", "replace"), p)
            for p, id in zip(best.values.exp().tolist(), best.indices.tolist(), strict=True)
        ]

    @torch.no_grad()
    def _guess(self, rows: np.ndarray) -> Tensor:
        """log p (B, hidden, V) at the HIDDEN places of rows (B, T), equally many in each."""
        found = []
        for part in np.array_split(rows, -(-rows.size // TOGETHER)):
            frame = framed(self.network, part[0])
            ids = np.tile(frame.ids, (len(part), 1))
            ids[:, slice(*frame.parts[0])] = part
            at = torch.from_numpy(np.flatnonzero(ids == HIDDEN)).to(self.network.device)
            ids[ids == HIDDEN] = self._mask
            inputs = Inputs(torch.from_numpy(ids).to(self.network.device))
            if frame.segments is not None:
                inputs.segments = torch.from_numpy(np.tile(frame.segments, (len(part), 1))).to(self.network.device)
            found.append(self.network.fill(inputs, at).view(len(part), -1, len(self.tokenizer)).float())
        return torch.cat(found)

    @property
    def _mask(self) -> int:
        """What stands in place of a hidden token. Without such a mark the network needs none, and looks away."""
        special = self.tokenizer.special
        return next((special[name] for name in MARKS["mask"] if name in special), self.tokenizer.begin)


class Found(NamedTuple):
    nats: np.ndarray  # (N,) what each hidden token cost
    right: np.ndarray  # (N,) whether it was the likeliest in its place


class MaskedLM(Blanks, Embedding):
    """A model that sees both sides: pseudo-likelihoods, words for blanks, contextual vectors. It writes no text."""

    kind = PSEUDO
    is_bidirectional = True
    goes_on = True  # what it reads is the text itself, not the source of one

    def __init__(self, network: Any, tokenizer: Tokenizer, name: str = "", longest: int = 0) -> None:
        """`longest`: tokens in the longest text, frame included, that the network was trained on; 0: its window."""
        self.network, self.tokenizer, self.name = network, tokenizer, name
        self.can = frozenset({"score", "next", "fill", "embed"})
        self.parameters = count_parameters(network)
        window = getattr(network, "window", None) or WINDOW
        self.room = min(window, longest or window) - len(framed(network, ()).ids)
        if self.room < 1 + MOST:
            raise NextwordError(
                f"A window of {window} tokens has no room for a text in its frame. Give it a longer one."
            )
        self.context: int | None = self.room
        self.stride: int | None = 1

    @property
    def device(self) -> torch.device:
        return self.network.device

    # -------------------------------------------------------------------------------------------- pseudo-likelihood

    def score(self, text: str, given: str = "") -> Score:
        return self.score_many([text], [given])[0]

    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        """One score a text; `given` is what stands before it, seen but never hidden."""
        before = given or [""] * len(texts)
        encodings = self.tokenizer.encode_batch([g + t for g, t in zip(before, texts, strict=True)])
        starts = [len(g.encode()) for g in before]
        places = [np.flatnonzero(one.spans[:, 1] > start) for one, start in zip(encodings, starts, strict=True)]
        found = self.hide([encoding.ids for encoding in encodings], places)
        lines = self.tokenizer.end is None
        rest = self.kind, self.tokenizer.lossless, self.context, self.stride
        return [
            Score(
                float(one.nats.sum()),
                len(at),
                len(text.split()) + (text.count("\n") if lines else 0),
                len(text.encode()),
                *rest,
            )
            for text, at, one in zip(texts, places, found, strict=True)
        ]

    def token_nats(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """−log p of every token, each hidden in turn."""
        return [one.nats for one in self.hide(texts, [np.arange(len(ids)) for ids in texts])]

    def stream_nats(self, ids: np.ndarray, progress: Progress | None = None) -> np.ndarray:
        """The same in one long stream; a document sees no other, and its end, which nobody predicts, costs nothing."""
        return self.hide_in_stream(ids, np.arange(len(ids)), progress=progress).nats

    def windowed_nats(self, ids: np.ndarray, context: int, stride: int, progress: Progress | None = None) -> np.ndarray:
        """The same in windows of at most `context` tokens, which lie `stride` apart."""
        return self.hide_in_stream(ids, np.arange(len(ids)), context, stride, progress).nats

    def hide_in_stream(
        self, ids: np.ndarray, at: np.ndarray, context: int = 0, stride: int = 1, progress: Progress | None = None
    ) -> Found:
        """Hide these places (sorted) of a stream of documents, one at a time."""
        ids = np.asarray(ids).astype(np.int64)
        end = -1 if self.tokenizer.end is None else self.tokenizer.end
        edges = np.concatenate(([0], np.flatnonzero(ids == end) + 1, [len(ids)]))
        wanted = np.searchsorted(at, edges)
        texts, places = [], []
        for begin, stop, i, j in zip(edges[:-1], edges[1:], wanted[:-1], wanted[1:], strict=True):
            body = ids[begin:stop]
            texts.append(body[body != end])
            places.append(at[i:j] - begin)
        real = [here[here < len(text)] for here, text in zip(places, texts, strict=True)]
        found = self.hide(texts, real, context, stride, progress)
        nats, right = np.zeros(len(at)), np.zeros(len(at), bool)
        for i, here, one in zip(wanted[:-1], real, found, strict=True):
            nats[i : i + len(here)], right[i : i + len(here)] = one
        return Found(nats, right)

    @torch.no_grad()
    def hide(
        self,
        texts: Sequence[np.ndarray],
        places: Sequence[np.ndarray],
        context: int = 0,
        stride: int = 1,
        progress: Progress | None = None,
    ) -> list[Found]:
        """Hide these places of each text, one at a time, and see what the network says of them.

        A token is read with at most `context` tokens of its text (0: as many as the window holds), itself among them.
        With a stride of 1 it is in their middle; otherwise windows lie that far apart and it is near to it:

            context 5, stride 3        [a b c d e] f g h i j k      a b c d are hidden here, one at a time
                                        a b c [d e f g h] i j k     e f g
        """
        room = min(context or self.room, self.room)
        stride = min(stride, room)
        if context < 0 or stride < 1:
            raise NextwordError(f"Context and stride count tokens; got context {context}, stride {stride}.")
        found = [Found(np.zeros(len(at)), np.zeros(len(at), bool)) for at in places]
        total, done = sum(map(len, places)), 0
        rows = self._rows(texts, places, room, stride)
        for batch in batches(rows, TOGETHER, lambda row: len(row.frame.ids), ROWS):
            inputs = packed([row.frame for row in batch], self.device)
            sizes = np.array([len(row.frame.ids) for row in batch])
            at = np.cumsum(sizes) - sizes + [row.at for row in batch]
            log_p = self.network.fill(inputs, torch.from_numpy(at).to(self.device))  # (K, V)
            target = torch.tensor([row.id for row in batch], device=log_p.device)
            nats = -log_p.gather(1, target.unsqueeze(1)).squeeze(1).double().cpu().numpy()
            right = (log_p.argmax(1) == target).cpu().numpy()
            for row, cost, hit in zip(batch, nats, right, strict=True):
                found[row.text].nats[row.place], found[row.text].right[row.place] = cost, hit
            done += len(batch)
            if progress:
                progress(done, total)
        return found

    def _rows(
        self, texts: Sequence[np.ndarray], places: Sequence[np.ndarray], room: int, stride: int
    ) -> Iterator[_Row]:
        """One for every hidden token, texts of one length after each other."""
        for text in sorted(range(len(texts)), key=lambda i: -len(texts[i])):
            ids, at = np.asarray(texts[text]).astype(np.int64), np.asarray(places[text])
            size = min(len(ids), room)
            begins = ((at - (room - stride) // 2) // stride * stride).clip(0, len(ids) - size)
            frame, shown = None, -1
            for place, (t, begin) in enumerate(zip(at.tolist(), begins.tolist(), strict=True)):
                if frame is None or begin != shown:
                    frame, shown = framed(self.network, ids[begin : begin + size]), begin
                inside = frame.parts[0][0] + t - begin
                hidden = frame.ids.copy()
                hidden[inside] = self._mask
                yield _Row(text, place, replace(frame, ids=hidden), inside, int(ids[t]))

    # -------------------------------------------------------------------------------------------- words, and no text

    def next(self, left: str, right: str = "", k: int = 10, tokens: bool = False) -> list[Guess]:
        """The likeliest words between two texts; `tokens`: raw tokens instead. `fill` takes a text with blanks."""
        return self._fill([left], [right], k, tokens)

    def generate(self, *_: Any, **__: Any) -> NoReturn:
        """Refused, with advice."""
        raise Unsupported(
            "This model sees both sides of a word and fills in what is missing; it cannot write on. Ask it for the "
            f'word in a blank (nextword next RUN "The {BLANK} sat on the mat"), or write with a model that reads from '
            "left to right; `nextword papers` says which can generate."
        )

    generate_many = generate

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        raise Unsupported("This run carries no task head, so it predicts no labels. Transfer it to a task first.")


class _Row(NamedTuple):
    """A window with one token hidden."""

    text: int
    place: int  # among the text's hidden tokens
    frame: Framed
    at: int  # where in the frame
    id: int  # what stood there
