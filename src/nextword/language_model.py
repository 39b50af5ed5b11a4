"""Text-level models: plain strings in, plain values out, over any network and any tokenizer. `load` opens a run folder.

Which of them a network gets is decided by the protocols that it fulfils, never by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.contract import EXACT, Encoding, Guess, Prediction, Score, State
from nextword.contract_errors import NextwordError, Unsupported
from nextword.contract_protocols import Encoder, Infilling, Tokenizer
from nextword.embedding import Embedding
from nextword.generation.words import Spelling, next_words
from nextword.infilling import WINDOW, Blanks
from nextword.models import count_parameters
from nextword.writing import Writing

CHUNK = 512  # tokens of a row read at once, unless the network names another `chunk`; the state is carried over
TOGETHER = 8192  # tokens in one batch of texts
FORGET = 0xFFFFFFFF  # in a stream of ids for a network that can `read` one: what follows has nothing before it


class Causal(Writing, Blanks, Embedding):
    """A model that reads from left to right: exact scores, next words, generation, contextual vectors.

    Some (XLNet) can read in any order, and so fill blanks, too.
    """

    kind = EXACT
    room = WINDOW  # tokens around a blank

    def __init__(self, network: Any, tokenizer: Tokenizer, name: str = "") -> None:
        self.network, self.tokenizer, self.name = network, tokenizer, name
        fills = isinstance(network, Infilling) and isinstance(network, Encoder)
        self.two_sided = fills or getattr(network, "two_sided", False)
        also = {"embed": isinstance(network, Encoder), "fill": fills}
        speaks = ("score", "next", "generate") if getattr(network, "speaks", True) else ()
        self.can = frozenset({*speaks, *(name for name, has in also.items() if has)})
        self.parameters = count_parameters(network)
        self.context: int | None = network.window
        # a window moves one token at a time, unless the network says by how many
        self.stride: int | None = getattr(network, "stride", 1) if network.window else None
        self._chunk: int = getattr(network, "chunk", CHUNK)
        self._flat = hasattr(network, "read")  # ids of many texts in one array → ln p
        self._spelling: Spelling | None = None

    @property
    def device(self) -> torch.device:
        return self.network.start(1)[0].device

    # -------------------------------------------------------------------------------------------- likelihood

    def score(self, text: str, given: str = "") -> Score:
        return self.score_many([text], [given])[0]

    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        """One score a text; `given` is what stands before it, read but not paid for."""
        before = given or [""] * len(texts)
        if self._flat and not any(before) and len(before) == len(texts) and hasattr(self.tokenizer, "encode_flat"):
            return self._score_flat(texts)
        encodings = self.tokenizer.encode_batch([g + t for g, t in zip(before, texts, strict=True)])
        nats = self.token_nats([encoding.ids for encoding in encodings])
        return [
            self._score(text, len(g.encode()), encoding, costs)
            for text, g, encoding, costs in zip(texts, before, encodings, nats, strict=True)
        ]

    def _score(self, text: str, start: int, encoding: Encoding, nats: np.ndarray) -> Score:
        mine = encoding.spans[:, 1] > start  # a token across the seam belongs to the text
        words = len(text.split()) + (text.count("\n") if self.tokenizer.end is None else 0)
        return Score(
            float(nats[mine].sum()),
            int(mine.sum()),
            words,
            len(text.encode()),
            self.kind,
            self.tokenizer.lossless,
            self.context,
            self.stride,
        )

    def _score_flat(self, texts: Sequence[str]) -> list[Score]:
        """The same with no object in between for each text, where every token is a word or a line end."""
        if not texts:
            return []
        ids, counts, sizes = self.tokenizer.encode_flat(texts)  # type: ignore[attr-defined]
        log_p, starts = self._read_flat(ids, counts)
        totals = 0.0 - np.add.reduceat(log_p, starts, dtype=np.float64)
        rest = self.kind, self.tokenizer.lossless, self.context, self.stride
        return [Score(t, n, n, b, *rest) for t, n, b in zip(totals.tolist(), counts.tolist(), sizes, strict=True)]

    def _read_flat(self, ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ln p of texts with so many ids each, and where each begins: with two zeros, for forgetting and for the start.

        ids a b c d, counts 3 1   →   FORGET begin a b c FORGET begin d
        """
        starts = np.cumsum(counts + 2) - counts - 2
        flat = np.full(len(ids) + 2 * len(counts), FORGET, np.uint32)
        begins = starts + 1
        flat[begins] = int(self.network.start(1)[0])
        mine = np.ones(len(flat), bool)
        mine[starts] = mine[begins] = False
        flat[mine] = ids
        log_p = self.network.read(flat)
        log_p[begins] = 0.0
        return log_p, starts

    @torch.no_grad()
    def token_nats(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """−log p of every token, each text from a fresh start; texts of like length go together."""
        if self._flat and len(texts):
            counts = np.array([len(ids) for ids in texts])
            log_p, starts = self._read_flat(np.concatenate(texts), counts)
            nats = 0.0 - log_p.astype(np.float64)
            return [nats[start + 2 : start + 2 + n] for start, n in zip(starts.tolist(), counts.tolist(), strict=True)]
        out: list[np.ndarray] = [np.zeros(0)] * len(texts)
        order = sorted((i for i in range(len(texts)) if len(texts[i])), key=lambda i: -len(texts[i]))
        while order:
            rows = max(1, TOGETHER // min(len(texts[order[0]]) + 1, CHUNK))
            together, order = order[:rows], order[rows:]
            first, state = self.network.start(len(together))
            length = len(texts[together[0]])
            padded = np.zeros((len(together), length), dtype=np.int64)
            for row, i in enumerate(together):
                padded[row, : len(texts[i])] = texts[i]
            costs = -self._read(first, torch.from_numpy(padded).to(first.device), state)[0].double().cpu().numpy()
            for row, i in enumerate(together):
                out[i] = costs[row, : len(texts[i])]
        return out

    def _read(self, last: Tensor, ids: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """log p of `ids` (B, T) after `last` (B,), chunk by chunk; then the last ids, not yet read, and the state."""
        parts = []
        for at in range(0, ids.shape[1], self._chunk):
            chunk = torch.cat([last.unsqueeze(1), ids[:, at : at + self._chunk]], 1)
            lengths = torch.full((len(ids),), chunk.shape[1], device=ids.device)
            log_p, state = self.network.score(chunk, lengths, state)
            parts.append(log_p)
            last = chunk[:, -1]
        return torch.cat(parts, 1) if parts else ids.new_zeros(ids.shape, dtype=torch.float), last, state

    @torch.no_grad()
    def stream_nats(self, ids: np.ndarray, progress: Any = None) -> np.ndarray:
        """−log p of every token of one long stream, each scored exactly once, with the state carried all along."""
        if self._flat:
            return 0.0 - self._read_flat(np.asarray(ids), np.array([len(ids)]))[0][2:].astype(np.float64)
        if self.context and self.stride and self.stride > 1:  # the same, many windows side by side
            return self.windowed_nats(ids, self.context, self.stride, progress)
        last, state = self.network.start(1)
        parts = []
        block = max(64 * CHUNK, self._chunk)
        for at in range(0, len(ids), block):
            part = torch.from_numpy(ids[at : at + block].astype(np.int64)).unsqueeze(0).to(last.device)
            log_p, last, state = self._read(last, part, state)
            parts.append(-log_p[0].double().cpu().numpy())
            if progress:
                progress(min(at + block, len(ids)), len(ids))
        return np.concatenate(parts) if parts else np.zeros(0)

    @torch.no_grad()
    def windowed_nats(self, ids: np.ndarray, context: int, stride: int, progress: Any = None) -> np.ndarray:
        """−log p of every token, once, seeing at most `context` tokens back and at least `context` − `stride`.

        context 4, stride 2     [a b c d]         a b c d are scored
                                   [c d e f]      e f
                                       [e f g h]  g h
        """
        if not 1 <= stride <= context:
            raise NextwordError(
                f"The stride must lie between 1 and the context; got context {context}, stride {stride}."
            )
        begin = int(self.network.start(1)[0][0])
        padded = np.concatenate([[begin], ids.astype(np.int64)])  # token t of the text is padded[t + 1]
        starts = [0, *range(context, len(ids), stride)]
        out = np.zeros(len(ids))
        rows = max(1, TOGETHER // context)
        for at in range(0, len(starts), rows):
            for first, last in _windows(starts[at : at + rows], context, stride, len(ids)):
                windows = np.stack([padded[max(0, e - context) : e + 1] for e in last])
                tensor = torch.from_numpy(windows).to(self.device)
                lengths = torch.full((len(windows),), windows.shape[1], device=tensor.device)
                _, state = self.network.start(len(windows))
                costs = -self.network.score(tensor, lengths, state)[0].double().cpu().numpy()
                for row, (f, e) in enumerate(zip(first, last, strict=True)):
                    out[f:e] = costs[row, -(e - f) :]
            if progress:
                progress(min(starts[min(at + rows, len(starts)) - 1] + stride, len(ids)), len(ids))
        return out

    # -------------------------------------------------------------------------------------------- next

    def next(self, left: str, right: str = "", k: int = 10, tokens: bool = False) -> list[Guess]:
        """The likeliest next words, with the pieces that spell the same word added up; `tokens`: raw tokens instead.

        With a text on the `right`, the words between the two, if the model can fill blanks.
        """
        if right and "fill" in self.can:
            return self._fill([left], [right], k, tokens)
        if right:
            raise Unsupported(
                "This model reads from left to right and cannot see what follows the blank. Leave the text after ___ "
                "away, or use a model that sees both sides."
            )
        if k < 1:
            raise NextwordError(f"k = {k}: ask for at least one guess.")
        last, state = self._read_all([self.tokenizer.encode(left).ids.tolist()])
        if tokens or self.tokenizer.kind == "words":
            return self._next_tokens(last, state, k, raw=tokens)
        if self._spelling is None:
            pieces = [self.tokenizer.piece(id) for id in range(len(self.tokenizer))]
            self._spelling = Spelling(pieces, self.tokenizer.special.values())
        found = next_words(self.network, last, state, self._spelling, k, left=left.encode()[-4:])
        return [Guess(word.decode("utf-8", "replace").strip() or "⏎", p) for word, p in found]

    @torch.no_grad()
    def _next_tokens(self, last: Tensor, state: State, k: int, raw: bool) -> list[Guess]:
        log_p = self.network.step(last, state)[0][0]
        best = log_p.topk(min(k, len(log_p)))
        names = {id: name for name, id in self.tokenizer.special.items()}
        guesses = []
        for value, id in zip(best.values.exp().tolist(), best.indices.tolist(), strict=True):
            text = self.tokenizer.piece(id).decode("utf-8", "replace")
            guesses.append(Guess(names.get(id) or (text if raw else text.strip()), value))
        return guesses

    def fill(self, text: str, k: int = 10, tokens: bool = False) -> list[list[Guess]]:
        if "fill" not in self.can:
            raise Unsupported(
                "This model reads from left to right and fills no blanks. Ask for the next word of a text, or use a "
                "model that sees both sides."
            )
        return super().fill(text, k, tokens)

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        raise Unsupported("This run carries no task head, so it predicts no labels. Transfer it to a task first.")


class FromTheEnd(Causal):
    """A model that reads texts from their last token to their first: −log p of each token given all that follow it.

    The probability of a whole text is as good as any; but there is no next word, and nothing stands before a text.
    """

    def __init__(self, network: Any, tokenizer: Tokenizer, name: str = "") -> None:
        super().__init__(network, tokenizer, name)
        self.can -= {"next", "generate"}

    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        if any(given or ()):
            raise self._refused("It reads what is given after the text, not before")
        return super().score_many(texts)

    def token_nats(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [nats[::-1] for nats in super().token_nats([turned(ids) for ids in texts])]

    def stream_nats(self, ids: np.ndarray, progress: Any = None) -> np.ndarray:
        return super().stream_nats(turned(ids), progress)[::-1]

    def windowed_nats(self, ids: np.ndarray, context: int, stride: int, progress: Any = None) -> np.ndarray:
        return super().windowed_nats(turned(ids), context, stride, progress)[::-1]

    def next(self, left: str, right: str = "", k: int = 10, tokens: bool = False) -> list[Guess]:
        raise self._refused("It knows no next word")

    def generate(self, *args: Any, **options: Any) -> Any:
        raise self._refused("It writes no text from its beginning on")

    def generate_many(self, *args: Any, **options: Any) -> Any:
        raise self._refused("It writes no text from its beginning on")

    def _refused(self, what: str) -> Unsupported:
        return Unsupported(
            f"{self.name or 'This run'} has [model] backward = true: it reads texts from their end. {what}. Score or "
            "embed texts with it, or transfer it to a task."
        )


def turned(ids: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(ids)[::-1])


def _windows(starts: Sequence[int], context: int, stride: int, total: int) -> Iterator[tuple[list[int], list[int]]]:
    """Where scoring begins and ends in windows that begin here, those of equal length together."""
    groups: dict[int, tuple[list[int], list[int]]] = {}
    for start in starts:
        end = min(start + (stride if start else context), total)
        first, last = groups.setdefault(end - max(0, end - context), ([], []))
        first.append(start)
        last.append(end)
    yield from groups.values()
