"""Causal language models: exact scores, next words, generation and contextual vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import invalid
from nextword.core.protocols import Encoder, Infilling
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import EXACT, Encoding, Guess, Inputs, Progress, Score, State, ignore_progress
from nextword.generation.whole_words import Spelling, next_words
from nextword.lm.blank_filling import BlankFillingMixin
from nextword.lm.embedding import EmbeddingMixin
from nextword.lm.generation_mixin import BATCH_TOKENS, GenerationMixin
from nextword.lm.masked import WINDOW, own_tokens
from nextword.models.base import Network
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.words import Words

CHUNK = 512  # tokens of a row in a batch of texts; longer texts are read chunk by chunk, with the state carried over
EXPLAINED_ROWS = 64  # distributions over the vocabulary held at once while a text is explained
FORGET = 0xFFFFFFFF  # in a flat stream of ids (`_read_flat`): the following text has nothing before it


class CausalLM(GenerationMixin, BlankFillingMixin, EmbeddingMixin):
    """A model that reads from left to right. Some networks (XLNet) can also read in any order, and so fill blanks."""

    kind = EXACT
    room = WINDOW  # tokens around a blank

    def __init__(self, network: Network, tokenizer: Tokenizer, name: str = "") -> None:
        super().__init__(network, tokenizer, name)
        fills_blanks = isinstance(network, Infilling) and isinstance(network, Encoder)
        self.is_bidirectional = fills_blanks or network.is_bidirectional
        self.context = network.window
        self.stride = network.stride if network.window else None
        self._spelling: Spelling | None = None
        if not network.has_output_layer:
            self.disable("score", "next", "generate")
        if not isinstance(network, Encoder):
            self.disable("embed")
        if not fills_blanks:
            self.disable("fill")

    @property
    def device(self) -> torch.device:
        first: Tensor = self.network.start(1)[0]
        return first.device

    def why_not(self, ability: str) -> str:
        network = type(self.network).__name__
        if ability == "fill":
            return (
                "This model reads from left to right and fills no blanks. Ask for the next word of a text, or use a "
                "model that sees both sides."
            )
        if ability == "embed":
            return f"{network} has no vectors inside, so it cannot embed texts. Use a neural network."
        return super().why_not(ability)

    # -------------------------------------------------------------------------------------------- score

    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        """One score per text; `given` precedes each text and is not scored."""
        self.require("score")
        before = given or [""] * len(texts)
        is_plain = not any(before) and len(before) == len(texts)
        if self.network.has_flat_scores and is_plain and isinstance(self.tokenizer, Words):
            return self._score_flat(texts, self.tokenizer)
        encodings = self.tokenizer.encode_batch([g + t for g, t in zip(before, texts, strict=True)])
        nats = self.token_nats([encoding.ids for encoding in encodings])
        scores = []
        for text, g, encoding, costs in zip(texts, before, encodings, nats, strict=True):
            belongs = encoding.spans[:, 1] > len(g.encode())  # a token across the border belongs to the text
            scores.append(self._make_score(text, float(costs[belongs].sum()), int(belongs.sum())))
        return scores

    def _score_flat(self, texts: Sequence[str], tokenizer: Words) -> list[Score]:
        """The same without an object per text, for n-gram models over words; every token is a word or a line end."""
        if not texts:
            return []
        ids, counts, sizes = tokenizer.encode_flat(texts)
        log_p, starts = self._read_flat(ids, counts)
        totals = 0.0 - np.add.reduceat(log_p, starts, dtype=np.float64)
        settings = self.kind, tokenizer.lossless, self.context, self.stride
        return [Score(t, n, n, b, *settings) for t, n, b in zip(totals.tolist(), counts.tolist(), sizes, strict=True)]

    def _read_flat(self, ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p of all ids of several texts, and where each text begins. Each has two zeros at its beginning.

        ids a b c d, counts 3 1   →   FORGET begin a b c FORGET begin d
        """
        starts = np.cumsum(counts + 2) - counts - 2
        flat = np.full(len(ids) + 2 * len(counts), FORGET, np.uint32)
        begins = starts + 1
        flat[begins] = int(self.network.start(1)[0])
        is_text = np.ones(len(flat), bool)
        is_text[starts] = is_text[begins] = False
        flat[is_text] = ids
        log_p = self.network.read(flat)
        log_p[begins] = 0.0
        return log_p, starts

    @torch.no_grad()
    def token_nats(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """−log p of every token of each text, from a fresh start; texts of similar length are read together."""
        if self.network.has_flat_scores and len(texts):
            counts = np.array([len(ids) for ids in texts])
            log_p, starts = self._read_flat(np.concatenate(texts), counts)
            nats = 0.0 - log_p.astype(np.float64)
            return [nats[start + 2 : start + 2 + n] for start, n in zip(starts.tolist(), counts.tolist(), strict=True)]
        out: list[np.ndarray] = [np.zeros(0)] * len(texts)
        order = sorted((i for i in range(len(texts)) if len(texts[i])), key=lambda i: -len(texts[i]))
        while order:
            rows = max(1, slice_tokens(BATCH_TOKENS) // min(len(texts[order[0]]) + 1, CHUNK))
            batch, order = order[:rows], order[rows:]
            first, state = self.network.start(len(batch))
            padded = np.zeros((len(batch), len(texts[batch[0]])), dtype=np.int64)
            for row, i in enumerate(batch):
                padded[row, : len(texts[i])] = texts[i]
            costs = -self._read(first, torch.from_numpy(padded).to(first.device), state)[0].double().cpu().numpy()
            for row, i in enumerate(batch):
                out[i] = costs[row, : len(texts[i])]
        return out

    def _read(self, last: Tensor, ids: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """log p of `ids` (B, T) after `last` (B,), chunk by chunk; then the last ids, not yet read, and the state."""
        parts, at = [], 0
        while at < ids.shape[1]:
            size = slice_tokens(self.network.chunk)
            chunk = torch.cat([last.unsqueeze(1), ids[:, at : at + size]], 1)
            at += size
            lengths = torch.full((len(ids),), chunk.shape[1], device=ids.device)
            log_p, state = self.network.score(chunk, lengths, state)
            parts.append(log_p)
            last = chunk[:, -1]
            end_slice()
        return torch.cat(parts, 1) if parts else ids.new_zeros(ids.shape, dtype=torch.float), last, state

    @torch.no_grad()
    def stream_nats(self, ids: np.ndarray, progress: Progress = ignore_progress) -> np.ndarray:
        """−log p of every token of one long stream, each scored once, with the state carried along."""
        self.require("score")
        if self.network.has_flat_scores:
            return 0.0 - self._read_flat(np.asarray(ids), np.array([len(ids)]))[0][2:].astype(np.float64)
        if self.context and self.stride and self.stride > 1:  # equal, but many windows are read together
            return self.windowed_nats(ids, self.context, self.stride, progress)
        last, state = self.network.start(1)
        parts = []
        block = max(64 * CHUNK, self.network.chunk)
        for at in range(0, len(ids), block):
            part = torch.from_numpy(ids[at : at + block].astype(np.int64)).unsqueeze(0).to(last.device)
            log_p, last, state = self._read(last, part, state)
            parts.append(-log_p[0].double().cpu().numpy())
            progress(min(at + block, len(ids)), len(ids))
        return np.concatenate(parts) if parts else np.zeros(0)

    @torch.no_grad()
    def windowed_nats(
        self, ids: np.ndarray, context: int, stride: int, progress: Progress = ignore_progress
    ) -> np.ndarray:
        """−log p of every token, each scored once, seeing at most `context` tokens and at least `context` − `stride`.

        context 4, stride 2     [a b c d]         a b c d are scored
                                   [c d e f]      e f
                                       [e f g h]  g h
        """
        self.require("score")
        if not 1 <= stride <= context:
            raise invalid("stride", stride, f"must be from 1 to the context, {context}.")
        begin = int(self.network.start(1)[0][0])
        padded = np.concatenate([[begin], ids.astype(np.int64)])  # token t of the text is padded[t + 1]
        starts = [0, *range(context, len(ids), stride)]
        out = np.zeros(len(ids))
        rows = max(1, BATCH_TOKENS // context)
        for at in range(0, len(starts), rows):
            for first, last in _group_windows(starts[at : at + rows], context, stride, len(ids)):
                windows = np.stack([padded[max(0, e - context) : e + 1] for e in last])
                tensor = torch.from_numpy(windows).to(self.device)
                lengths = torch.full((len(windows),), windows.shape[1], device=tensor.device)
                _, state = self.network.start(len(windows))
                costs = -self.network.score(tensor, lengths, state)[0].double().cpu().numpy()
                for row, (f, e) in enumerate(zip(first, last, strict=True)):
                    out[f:e] = costs[row, -(e - f) :]
            progress(min(starts[min(at + rows, len(starts)) - 1] + stride, len(ids)), len(ids))
        return out

    def scored_tokens(self, text: str, given: str = "") -> Encoding:
        self.require("score")
        return own_tokens(self.tokenizer.encode(given + text), len(given.encode()))

    @torch.no_grad()
    def token_layers(self, text: str, given: str = "") -> Iterator[list[Tensor]]:
        self.require("score")
        count = len(self.scored_tokens(text, given))
        ids = self._in_reading_order(self.tokenizer.encode(given + text).ids.astype(np.int64))
        first, state = self.network.start(1)
        row = torch.cat([first, torch.from_numpy(np.ascontiguousarray(ids)).to(first.device)])[:-1]
        unscored = len(row) - count  # these come first: nothing can be given to a network that reads backward
        size = slice_tokens(self.network.chunk)
        for at in range(0, len(row), size):
            layers, state = self.network.hidden(Inputs(row[None, at : at + size]), state)
            skipped = max(0, unscored - at)
            if skipped < layers[-1].shape[1]:
                yield [layer[0, skipped:] for layer in layers]
            end_slice()

    @torch.no_grad()
    def token_log_probs(self, text: str, given: str = "") -> Iterator[Tensor]:
        if self.network.has_hidden_states:
            for layers in self.token_layers(text, given):
                for h in layers[-1].split(EXPLAINED_ROWS):
                    yield self.network.readout.log_probs(h).float()
                    end_slice()
            return
        count = len(self.scored_tokens(text, given))
        ids = self.tokenizer.encode(given + text).ids.tolist()
        last, state = self._read_prompts([ids[: len(ids) - count]])
        for i, id in enumerate(ids[len(ids) - count :], 1):
            log_p, state = self.network.step(last, state)
            yield log_p.float()
            last = torch.full_like(last, id)
            if i % EXPLAINED_ROWS == 0:
                end_slice()

    # -------------------------------------------------------------------------------------------- next and fill

    def next(self, left: str, right: str = "", k: int = 10, tokens: bool = False) -> list[Guess]:
        """The k likeliest next words; all tokenizations of a word count together. `tokens`: raw tokens instead.

        With a text on the `right`, the words between the two, if the model can fill blanks.
        """
        self.require("next")
        if right:
            self.require("fill")
            return self._fill_blank([left], [right], k, tokens)
        last, state = self._read_prompts([self.tokenizer.encode(left).ids.tolist()])
        return self.next_after(left, last, state, k, tokens)

    def next_after(self, left: str, last: Tensor, state: State, k: int = 10, tokens: bool = False) -> list[Guess]:
        """`next`, after a text that has been read up to `last` (1,). Consumes the state."""
        self.require("next")
        if k < 1:
            raise invalid("k", k, "must be at least 1.")
        if tokens or self.tokenizer.kind == "words":
            with torch.no_grad():
                return self._name_likeliest(self.network.step(last, state)[0][0], k, strip=not tokens)
        if self._spelling is None:
            pieces = [self.tokenizer.piece(id) for id in range(len(self.tokenizer))]
            self._spelling = Spelling(pieces, self.tokenizer.special.values())
        words = next_words(self.network, last, state, self._spelling, k, left=left.encode()[-4:])
        return [Guess(word.decode("utf-8", "replace").strip() or "⏎", p) for word, p in words]

    @torch.no_grad()
    def next_layers(self, left: str, right: str = "") -> list[Tensor]:
        self.require("next")
        if right:
            raise self.unsupported("fill")
        last, state = self._read_prompts([self.tokenizer.encode(left).ids.tolist()])
        return [layer[:, -1] for layer in self.network.hidden(Inputs(last.unsqueeze(1)), state)[0]]

    def fill(self, text: str, k: int = 10, tokens: bool = False) -> list[list[Guess]]:
        self.require("fill")
        return super().fill(text, k, tokens)


class BackwardLM(CausalLM):
    """A model that reads texts from their last token to their first: −log p of each token given all that follow it.

    The probability of a whole text is as valid as any; but there is no next word, and no text can precede.
    """

    def __init__(self, network: Network, tokenizer: Tokenizer, name: str = "") -> None:
        super().__init__(network, tokenizer, name)
        self.disable("next", "generate")

    def why_not(self, ability: str) -> str:
        if ability == "predict":
            return super().why_not(ability)
        return (
            f"{self.name or 'This run'} reads texts from right to left ([model] backward = true), so it cannot "
            f"{ability}. Score or embed texts with it, or fine-tune it for a task."
        )

    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        if any(given or ()):
            raise self.unsupported("score a text after another")
        return super().score_many(texts)

    def token_nats(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [nats[::-1] for nats in super().token_nats([reverse_ids(ids) for ids in texts])]

    def scored_tokens(self, text: str, given: str = "") -> Encoding:
        if given:
            raise self.unsupported("score a text after another")
        return super().scored_tokens(text)

    def token_layers(self, text: str, given: str = "") -> Iterator[list[Tensor]]:
        blocks = list(super().token_layers(text, given))
        for layers in reversed(blocks):
            yield [layer.flip(0) for layer in layers]

    def stream_nats(self, ids: np.ndarray, progress: Progress = ignore_progress) -> np.ndarray:
        return super().stream_nats(reverse_ids(ids), progress)[::-1]

    def windowed_nats(
        self, ids: np.ndarray, context: int, stride: int, progress: Progress = ignore_progress
    ) -> np.ndarray:
        return super().windowed_nats(reverse_ids(ids), context, stride, progress)[::-1]


def reverse_ids(ids: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(ids)[::-1])


def _group_windows(
    starts: Sequence[int], context: int, stride: int, total: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Where scoring begins and ends in the windows that start here; windows of equal length together."""
    groups: dict[int, tuple[list[int], list[int]]] = {}
    for start in starts:
        end = min(start + (stride if start else context), total)
        first, last = groups.setdefault(end - max(0, end - context), ([], []))
        first.append(start)
        last.append(end)
    yield from groups.values()
