"""Masked language models: words for blanks, contextual vectors, and pseudo-likelihoods.

    The ___ sat on the ___.          next, fill:  words for the blanks
    [?] cat sat    the [?] sat    the cat [?]     score:  Σ_t log p(x_t | all others), a pseudo-log-likelihood

A pseudo-likelihood (Salazar et al., "Masked Language Model Scoring", 2020) is not a likelihood: its terms see each
other's tokens, so it is no distribution over texts. It ranks texts under one model. Its `kind` says what it is, and it
is never compared with exact likelihoods. Pieces of one word give each other away, so long words come out cheap.

Every hidden token is read in a window of its own, in the middle of it where the text is long enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import invalid
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import PSEUDO, Encoding, FramedText, Guess, Inputs, Progress, Score, ignore_progress
from nextword.generation.infilling import BLANK, MOST, align_part, crop_context
from nextword.lm.blank_filling import BlankFillingMixin
from nextword.lm.embedding import BATCH_TOKENS, EmbeddingMixin, batch_by_size, frame_ids, pack_frames
from nextword.models.base import Network
from nextword.tokenizers.base import Tokenizer

BATCH_ROWS = 256  # distributions over the vocabulary held at once
WINDOW = 512  # tokens read at once by a network without a window of its own


class HiddenTokenScores(NamedTuple):
    nats: np.ndarray  # (N,) −log p of each hidden token
    right: np.ndarray  # (N,) whether it was the likeliest


class MaskedLM(BlankFillingMixin, EmbeddingMixin):
    """A model that sees both sides of a token. It does not generate."""

    kind = PSEUDO
    is_bidirectional = True

    def __init__(self, network: Network, tokenizer: Tokenizer, name: str = "", longest: int = 0) -> None:
        """`longest`: tokens of the longest framed text that the network was trained on; 0: its window."""
        super().__init__(network, tokenizer, name)
        window = network.window or WINDOW
        self.room = min(window, longest or window) - len(frame_ids(network, ()).ids)
        if self.room < 1 + MOST:
            raise invalid("window", window, "has no room for a text and its special tokens.")
        self.context = self.room
        self.stride = 1
        if not network.has_output_layer:
            self.disable("score", "next", "fill")

    def why_not(self, ability: str) -> str:
        if ability == "generate":
            return (
                "This model sees both sides of a word and fills blanks; it cannot continue a text. Ask it for a word "
                f'(nextword next RUN "The {BLANK} sat on the mat"), or use a model that can generate.'
            )
        if ability == "infill":
            return (
                "This model fills blanks with single words, not with spans of any length. Ask it for words (nextword "
                f'next RUN "The {BLANK} sat"), or use a model that was trained to fill blanks (GLM).'
            )
        return super().why_not(ability)

    def next(self, left: str, right: str = "", k: int = 10, tokens: bool = False) -> list[Guess]:
        """The k likeliest words between two texts; `tokens`: raw tokens instead. `fill` takes a text with blanks."""
        return self._fill_blank([left], [right], k, tokens)

    @torch.no_grad()
    def next_layers(self, left: str, right: str = "") -> list[Tensor]:
        frame, at, _ = self.frame_blank(left, right)
        inputs = pack_frames([frame], self.device)
        return [layer[0, at : at + 1] for layer in self.network.hidden(inputs, None)[0]]

    def frame_blank(self, left: str, right: str) -> tuple[FramedText, int, np.ndarray]:
        """A blank of one token between two texts, framed; its position; and where each token of the frame is from.

        The latter is (N, 2), byte spans of `left` + `___` + `right`, empty for special tokens. Texts are cropped to the
        tokens nearest to the blank that fit.
        """
        self.require("fill")
        before, after = align_part(self.tokenizer, left, first=True), align_part(self.tokenizer, right)
        sides = crop_context(range(len(before)), range(len(after)), self.room - 1)
        ids = [*before.ids[list(sides[0])], self._mask_id, *after.ids[list(sides[1])]]
        frame = frame_ids(self.network, ids)
        start, at = frame.text_spans[0][0], frame.text_spans[0][0] + len(sides[0])
        origin = np.zeros((len(frame.ids), 2), np.int64)
        origin[start:at] = before.spans[list(sides[0])]
        offset = len((left + BLANK).encode())
        origin[at + 1 : at + 1 + len(sides[1])] = after.spans[list(sides[1])] + offset
        return frame, at, origin

    # -------------------------------------------------------------------------------------------- pseudo-likelihood

    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        """One score per text; `given` precedes each text, and is seen but never hidden."""
        before = given or [""] * len(texts)
        encodings = self.tokenizer.encode_batch([g + t for g, t in zip(before, texts, strict=True)])
        starts = [len(g.encode()) for g in before]
        positions = [
            np.flatnonzero(encoding.spans[:, 1] > start) for encoding, start in zip(encodings, starts, strict=True)
        ]
        scores = self.hide([encoding.ids for encoding in encodings], positions)
        return [
            self._make_score(text, float(hidden.nats.sum()), len(at))
            for text, at, hidden in zip(texts, positions, scores, strict=True)
        ]

    def token_nats(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """−log p of every token, each hidden in turn."""
        return [hidden.nats for hidden in self.hide(texts, [np.arange(len(ids)) for ids in texts])]

    def stream_nats(self, ids: np.ndarray, progress: Progress = ignore_progress) -> np.ndarray:
        """The same for a long stream. Documents do not see each other, and end tokens cost 0."""
        return self.hide_in_stream(ids, np.arange(len(ids)), progress=progress).nats

    def windowed_nats(
        self, ids: np.ndarray, context: int, stride: int, progress: Progress = ignore_progress
    ) -> np.ndarray:
        """The same in windows of at most `context` tokens, `stride` apart."""
        return self.hide_in_stream(ids, np.arange(len(ids)), context, stride, progress).nats

    def hide_in_stream(
        self, ids: np.ndarray, at: np.ndarray, context: int = 0, stride: int = 1, progress: Progress = ignore_progress
    ) -> HiddenTokenScores:
        """Hide these positions (sorted) of a stream of documents, one at a time."""
        ids = np.asarray(ids).astype(np.int64)
        end = -1 if self.tokenizer.end is None else self.tokenizer.end
        borders = np.concatenate(([0], np.flatnonzero(ids == end) + 1, [len(ids)]))
        bounds = np.searchsorted(at, borders)
        texts, positions = [], []
        for begin, stop, i, j in zip(borders[:-1], borders[1:], bounds[:-1], bounds[1:], strict=True):
            body = ids[begin:stop]
            texts.append(body[body != end])
            positions.append(at[i:j] - begin)
        inside = [own[own < len(text)] for own, text in zip(positions, texts, strict=True)]  # without end tokens
        scores = self.hide(texts, inside, context, stride, progress)
        nats, right = np.zeros(len(at)), np.zeros(len(at), bool)
        for i, own, hidden in zip(bounds[:-1], inside, scores, strict=True):
            nats[i : i + len(own)], right[i : i + len(own)] = hidden
        return HiddenTokenScores(nats, right)

    @torch.no_grad()
    def hide(
        self,
        texts: Sequence[np.ndarray],
        positions: Sequence[np.ndarray],
        context: int = 0,
        stride: int = 1,
        progress: Progress = ignore_progress,
    ) -> list[HiddenTokenScores]:
        """Hide these positions of each text, one at a time, and score the hidden tokens.

        A token is read with at most `context` tokens of its text, including itself (0: as many as fit). With stride 1
        it is in the middle of them; otherwise windows are `stride` apart and it is near the middle:

            context 5, stride 3        [a b c d e] f g h i j k      a b c d are hidden here, one at a time
                                        a b c [d e f g h] i j k     e f g
        """
        room = min(context or self.room, self.room)
        stride = min(stride, room)
        if context < 0 or stride < 1:
            raise invalid("context", context, f"and stride = {stride} must be numbers of tokens.")
        scores = [HiddenTokenScores(np.zeros(len(at)), np.zeros(len(at), bool)) for at in positions]
        total, done = sum(map(len, positions)), 0
        for batch, inputs, at in self._window_batches(texts, positions, room, stride):
            log_p = self.network.fill(inputs, at)  # (K, V)
            target = torch.tensor([window.id for window in batch], device=log_p.device)
            nats = -log_p.gather(1, target.unsqueeze(1)).squeeze(1).double().cpu().numpy()
            right = (log_p.argmax(1) == target).cpu().numpy()
            for window, cost, hit in zip(batch, nats, right, strict=True):
                scores[window.text].nats[window.place], scores[window.text].right[window.place] = cost, hit
            done += len(batch)
            progress(done, total)
        return scores

    def scored_tokens(self, text: str, given: str = "") -> Encoding:
        self.require("score")
        return own_tokens(self.tokenizer.encode(given + text), len(given.encode()))

    @torch.no_grad()
    def token_layers(self, text: str, given: str = "") -> Iterator[list[Tensor]]:
        """Each token is hidden in turn."""
        for inputs, at in self._hide_each(text, given):
            yield [layer[0, at] for layer in self.network.hidden(inputs, None)[0]]

    @torch.no_grad()
    def token_log_probs(self, text: str, given: str = "") -> Iterator[Tensor]:
        for inputs, at in self._hide_each(text, given):
            yield self.network.fill(inputs, at).float()

    def _hide_each(self, text: str, given: str) -> Iterator[tuple[Inputs, Tensor]]:
        ids, count = self.tokenizer.encode(given + text).ids, len(self.scored_tokens(text, given))
        positions = np.arange(len(ids) - count, len(ids))
        return ((inputs, at) for _, inputs, at in self._window_batches([ids], [positions], self.room, 1))

    def _window_batches(
        self, texts: Sequence[np.ndarray], positions: Sequence[np.ndarray], room: int, stride: int
    ) -> Iterator[tuple[list[_Window], Inputs, Tensor]]:
        """Windows packed into one row, and the position (K,) of the hidden token of each."""
        size: Callable[[_Window], int] = lambda window: len(window.frame.ids)  # noqa: E731
        windows, most = self._windows(texts, positions, room, stride), slice_tokens(BATCH_TOKENS)
        for batch in batch_by_size(windows, most, size, BATCH_ROWS):
            sizes = np.array([len(window.frame.ids) for window in batch])
            at = np.cumsum(sizes) - sizes + [window.at for window in batch]
            inputs = pack_frames([window.frame for window in batch], self.device)
            yield batch, inputs, torch.from_numpy(at).to(self.device)
            end_slice()

    def _windows(
        self, texts: Sequence[np.ndarray], positions: Sequence[np.ndarray], room: int, stride: int
    ) -> Iterator[_Window]:
        """One window per hidden token, the longest texts first."""
        for text in sorted(range(len(texts)), key=lambda i: -len(texts[i])):
            ids, at = np.asarray(texts[text]).astype(np.int64), np.asarray(positions[text])
            size = min(len(ids), room)
            begins = ((at - (room - stride) // 2) // stride * stride).clip(0, len(ids) - size)
            frame, framed_begin = None, -1
            for index, (t, begin) in enumerate(zip(at.tolist(), begins.tolist(), strict=True)):
                if frame is None or begin != framed_begin:
                    frame, framed_begin = frame_ids(self.network, ids[begin : begin + size]), begin
                inside = frame.text_spans[0][0] + t - begin
                hidden = frame.ids.copy()
                hidden[inside] = self._mask_id
                yield _Window(text, index, replace(frame, ids=hidden), inside, int(ids[t]))


def own_tokens(encoding: Encoding, start: int) -> Encoding:
    """The tokens that end after byte `start`, with spans counted from there."""
    belongs = encoding.spans[:, 1] > start  # a token across the border belongs to the text
    return Encoding(encoding.ids[belongs], (encoding.spans[belongs] - start).clip(0), encoding.words[belongs])


class _Window(NamedTuple):
    """A window with one token hidden."""

    text: int
    place: int  # among the text's hidden tokens
    frame: FramedText
    at: int  # position in the frame
    id: int  # the hidden token
