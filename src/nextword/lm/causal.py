"""Text-level models: plain strings in, plain values out, over any network and any tokenizer. `load` opens a run folder.

Which of them a network gets is decided by the protocols that it fulfils, never by its name.

Writing on from prompts: one of them, piece by piece as it is written, or many side by side.

    prompts ──encode──▶ ids ──read──▶ the token to feed next, and the state before it ──generation──▶ ids ──▶ pieces

Rows of a batch do not notice each other. What has no window, or one that moves on with every token, reads prompts of
like length together and joins the states. A network that reads in windows takes rows of unequal length at once (its
`prompt`) where all that they will write still fits; rows that will outgrow the window move on together only where they
are equally long, as each would alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.core import pytree as nest
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Encoder, Infilling, Tokenizer
from nextword.core.types import (
    EXACT,
    Beam,
    Contrastive,
    Decoding,
    Encoding,
    Greedy,
    Guess,
    Inputs,
    Piece,
    Prediction,
    Score,
    State,
    Stop,
)
from nextword.generation.beam_search import Hypothesis, ensure_covers, search
from nextword.generation.logits_processors import Rules, validate
from nextword.generation.sampling import NOTHING, Rows, contrastive, ensure_vectors, seeded, tokens, vectors
from nextword.generation.stopping import Stopper
from nextword.generation.whole_words import Spelling, next_words
from nextword.lm.embedding import Embedding
from nextword.lm.masked import WINDOW, Blanks
from nextword.models import count_parameters
from nextword.tokenizers.base import Decoder

TOGETHER = 8192  # tokens, of prompts and of what is written, in one batch
OVERFLOW = ("slide", "error")


@dataclass(frozen=True)
class Candidate:
    """One of the n best continuations, up to where it stops."""

    text: str
    score: float  # by which they are ranked: see `Beam`
    log_prob: float  # the model's own, of the ids
    ids: tuple[int, ...]
    complete: bool  # False: cut at the length, or the rules left nothing to write

    @property
    def tokens(self) -> int:
        return len(self.ids)


class Writing:
    """The part of a text-level model that writes. What it holds is `Causal`'s."""

    network: Any
    tokenizer: Tokenizer
    context: int | None
    goes_on = True  # what is written is the continuation of the prompt
    _chunk: int

    def generate(
        self, prompt: str = "", how: Decoding = Greedy(), stop: Stop = Stop(), overflow: str = "slide"
    ) -> Iterator[Piece]:
        """Pieces of text as they are written; beam search writes all of it at the end. The prompt is not repeated.

        `overflow` is what becomes of a prompt that does not fit into the window: "slide" reads all of it, as scoring
        does, and goes on from its latest part; "error" refuses it.
        """
        how = self._checked(how)
        text = _Text(self.tokenizer, stop, self.end)
        ids = self._encoded([prompt], overflow)[0]
        return self._pieces(ids, how, text)

    def _pieces(self, ids: list[int], how: Decoding, text: _Text) -> Iterator[Piece]:
        past = self._past(ids)
        text.after(past)
        made: Iterator[tuple[int, float]]
        rest = {"banned": self._banned(), "end": self.end, "least": _least(text.stopper.stop)}
        if isinstance(how, Beam):
            made = iter(self._beam([ids], how, text.stopper.stop)[0])
        elif isinstance(how, Contrastive):
            last, state, before = self._remembered(ids)
            made = contrastive(self.network, last, state, how, before=before, written=past, **rest)  # type: ignore[arg-type]
        else:
            last, state = self._read_all([ids])
            made = tokens(self.network, last, state, how, written=past, **rest)  # type: ignore[arg-type]
        while not text.stopper.reason:
            yield text.add(*next(made, (NOTHING, 0.0)))

    def generate_many(
        self, prompts: Sequence[str], how: Decoding = Greedy(), stop: Stop = Stop(), overflow: str = "slide"
    ) -> list[list[Piece]]:
        """The pieces of each prompt's continuation, as `generate` writes it: prompt i with `how.seed` + i.

        The weights are read once for all rows. Contrastive search, whose candidates are a batch already, goes prompt by
        prompt.
        """
        how = self._checked(how)
        texts = [_Text(self.tokenizer, stop, self.end) for _ in prompts]
        ids = self._encoded(prompts, overflow)
        pieces: list[list[Piece]] = [[] for _ in prompts]
        if isinstance(how, Contrastive):
            return [list(self._pieces(one, how, text)) for one, text in zip(ids, texts, strict=True)]
        for text, one in zip(texts, ids, strict=True):
            text.after(self._past(one))
        for group in self._groups([len(one) for one in ids], stop.length):
            if not stop.length:
                break
            written = [ids[i] for i in group]
            if isinstance(how, Beam):
                for i, found in zip(group, self._beam(written, how, stop), strict=True):
                    made = iter(found)
                    while not texts[i].stopper.reason:
                        pieces[i].append(texts[i].add(*next(made, (NOTHING, 0.0))))
                continue
            rules = Rules(how, list(map(self._past, written)), self._banned(), end=self.end, least=_least(stop))
            rows = Rows(self.network, *self._read_all(written), how, rules, [seeded(how, i) for i in group])
            while group:
                for i, one_made in zip(group, rows.step(), strict=True):
                    pieces[i].append(texts[i].add(*one_made))
                goes_on = [place for place, i in enumerate(group) if not texts[i].stopper.reason]
                rows.keep(goes_on)
                group = [group[place] for place in goes_on]
        return pieces

    def n_best(
        self, prompt: str, how: Beam = Beam(), stop: Stop = Stop(), n: int | None = None, overflow: str = "slide"
    ) -> list[Candidate]:
        """The n best continuations that a beam finds (all of its width if None), best first."""
        return self.n_best_many([prompt], how, stop, n, overflow)[0]

    def n_best_many(
        self,
        prompts: Sequence[str],
        how: Beam = Beam(),
        stop: Stop = Stop(),
        n: int | None = None,
        overflow: str = "slide",
    ) -> list[list[Candidate]]:
        """The n best continuations of each prompt, searched side by side."""
        if not isinstance(how, Beam):
            raise NextwordError(f"The n best are what a beam finds, and {type(how).__name__} is none. Give a Beam.")
        checked = self._checked(how)
        assert isinstance(checked, Beam)
        n = how.width if n is None else n
        if not 1 <= n <= how.width:
            raise NextwordError(
                f"The {n} best are asked for, and a beam of width {how.width} has from 1 to {how.width}. Ask for fewer,"
                " or widen the beam."
            )
        Stopper(stop)  # refuses what has no meaning
        ids = self._encoded(prompts, overflow)
        found: list[list[Candidate]] = [[] for _ in prompts]
        for group in self._groups([len(one) for one in ids], stop.length):
            written = [ids[i] for i in group]
            for i, best in zip(group, self._hypotheses(written, checked, stop, n), strict=True):
                found[i] = [self._candidate(ids[i], one, stop) for one in best]
        return found

    def _candidate(self, before: Sequence[int], one: Hypothesis, stop: Stop) -> Candidate:
        """A hypothesis as text; a stop string may end it before its last token."""
        text = _Text(self.tokenizer, stop, self.end)
        text.after(self._past(list(before)))
        made, pieces = zip(one.ids, one.log_probs, strict=True), []
        while not text.stopper.reason:
            pieces.append(text.add(*next(made, (NOTHING, 0.0))))
        ids = tuple(id for piece in pieces for id in piece.ids)
        log_prob = sum(piece.log_prob for piece in pieces)
        complete = one.complete or text.stopper.reason == "stop"
        return Candidate("".join(piece.text for piece in pieces), one.score, log_prob, ids, complete)

    # -------------------------------------------------------------------------------------------- what was asked

    @property
    def end(self) -> int | None:
        """The token that ends what is written."""
        return self.tokenizer.end

    def _past(self, ids: list[int]) -> list[int]:
        """What stands before the text that is written: the prompt, of which it is the continuation."""
        return ids

    def beyond(self, prompt: str) -> int:
        """How many tokens of a prompt have left the window by the time the first token is written; 0: it fits.

        Always 0 where there is no window, and where it is in the model's nature to forget with every token (n-grams).
        """
        return self._beyond(len(self.tokenizer.encode(prompt)))

    def _beyond(self, length: int) -> int:
        if not self._windows:
            return 0
        window, stride = self.network.window, self.network.stride
        moves = max(0, -(-(length + 1 - window) // stride))  # the token that texts begin with is read, too
        return min(length, max(0, moves * stride - 1)) if moves else 0

    @property
    def _windows(self) -> bool:
        """Whether the network reads in windows, which move on by a stride when they are full."""
        return bool(self.network.window) and hasattr(self.network, "stride")

    def _encoded(self, prompts: Sequence[str], overflow: str) -> list[list[int]]:
        if overflow not in OVERFLOW:
            raise NextwordError(f"overflow is {overflow!r}; expected one of {', '.join(OVERFLOW)}.")
        found = [encoding.ids.tolist() for encoding in self.tokenizer.encode_batch(list(prompts))]
        for prompt, ids in zip(prompts, found, strict=True):
            if overflow == "error" and self._beyond(len(ids)):
                raise NextwordError(
                    f"The prompt {prompt[:30]!r}… has {len(ids):,} tokens, and the model's window holds "
                    f"{self.network.window - 1:,} beside the one that texts begin with. Shorten it, or let the window "
                    "slide over it (overflow = 'slide')."
                )
        return found

    def _checked(self, how: Decoding) -> Decoding:
        """Refuses what has no meaning or is not possible here; a bias on texts becomes one on ids."""
        validate(how)
        if isinstance(how, Contrastive):
            ensure_vectors(self.network)
        if isinstance(how, Beam):
            ensure_covers(self.network, how)
        if not how.bias:
            return how
        bias: dict[int | str, float] = {}
        for token, value in how.bias.items():
            id = token if isinstance(token, int) else self._id(token)
            if not 0 <= id < len(self.tokenizer):
                raise NextwordError(
                    f"A bias is set on token {id}, but this tokenizer's ids go from 0 to {len(self.tokenizer) - 1}."
                )
            if id in bias:
                raise NextwordError(f"Two biases are set on token {id} ({token!r}). Give one.")
            bias[id] = value
        return replace(how, bias=bias)

    def _id(self, token: str) -> int:
        if token in self.tokenizer.special:
            return self.tokenizer.special[token]
        ids = self.tokenizer.encode(token).ids.tolist()
        if len(ids) != 1:
            parts = ", ".join(f"{self.tokenizer.piece(id).decode('utf-8', 'replace')!r} ({id})" for id in ids[:8])
            raise NextwordError(
                f"A bias is set on {token!r}, which is {len(ids)} tokens here{': ' + parts if parts else ''}. Set it "
                "on one token, with the space that belongs to it, or on an id."
            )
        return ids[0]

    def _banned(self) -> list[int]:
        """Special ids that no text holds, but for the end; and what stands for unknown words."""
        special, end = self.tokenizer.special, self.end
        silent = [id for id in special.values() if id != end and not self.tokenizer.piece(id)]
        return silent + [id for name, id in special.items() if "unk" in name.lower()]

    # -------------------------------------------------------------------------------------------- reading prompts

    def _beam(self, written: list[list[int]], how: Beam, stop: Stop) -> list[Iterator[tuple[int, float]]]:
        """The best continuation of each row."""
        found = self._hypotheses(written, how, stop, 1)
        return [zip(best.ids, best.log_probs, strict=True) for best, *_ in found]

    def _hypotheses(self, written: list[list[int]], how: Beam, stop: Stop, n: int) -> list[list[Hypothesis]]:
        """The n best continuations of each row."""
        end = self.end if stop.at_end else None
        last, state = self._read_all(written)
        rest = {"written": list(map(self._past, written)), "banned": self._banned(), "least": _least(stop)}
        return search(self.network, last, state, how, stop.length, end, n=n, **rest)  # type: ignore[arg-type]

    def _groups(self, lengths: list[int], length: int) -> Iterator[list[int]]:
        """Rows that are written together, longest prompts first."""
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        if self._windows:
            fits = {i for i in order if lengths[i] + length <= self.network.window}
            if not hasattr(self.network, "prompt"):
                fits = set()
            alike = groupby((i for i in order if i not in fits), key=lambda i: lengths[i])
            parts = [list(rows) for _, rows in alike] + [[i for i in order if i in fits]]
        else:
            parts = [order]
        for part in parts:
            while part:
                rows = max(1, TOGETHER // (lengths[part[0]] + length + 1))
                yield part[:rows]
                part = part[rows:]

    @torch.no_grad()
    def _read_all(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
        """The tokens to feed next, and the state before them, after rows of any lengths."""
        lengths = [len(ids) for ids in rows]
        if self._windows and len(set(lengths)) > 1:
            first, _ = self.network.start(len(rows))
            padded = np.zeros((len(rows), max(lengths) + 1), dtype=np.int64)
            padded[:, 0] = first.cpu()
            for row, ids in enumerate(rows):
                padded[row, 1 : len(ids) + 1] = ids
            read = torch.from_numpy(padded).to(first.device)
            until = torch.tensor(lengths, device=first.device)
            return read.gather(1, until.unsqueeze(1)).squeeze(1), self.network.prompt(read[:, :-1], until)
        parts, places = [], []
        for _, alike in groupby(sorted(range(len(rows)), key=lengths.__getitem__), key=lengths.__getitem__):
            own = list(alike)
            places += own
            parts.append(self._read_alike([rows[i] for i in own]))
        if len(parts) == 1:
            return parts[0]
        back = torch.tensor(np.argsort(places), device=parts[0][0].device)
        join = getattr(self.network, "join", nest.cat)
        return torch.cat([last for last, _ in parts])[back], nest.take(join([state for _, state in parts]), back)

    def _read_alike(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
        """The same for rows of one length."""
        last, state = self.network.start(len(rows))
        ids = torch.tensor(rows, dtype=torch.long, device=last.device).view(len(rows), -1)
        for at in range(0, ids.shape[1], self._chunk):
            chunk = torch.cat([last.unsqueeze(1), ids[:, at : at + self._chunk]], 1)
            if isinstance(self.network, Encoder):  # without the probabilities, which nobody asks for
                network: Any = self.network
                both = getattr(network, "is_bidirectional", False)  # then `encode` would read what is to come, too
                _, state = (network.hidden if both else network.encode)(Inputs(chunk[:, :-1]), state)
            else:
                lengths = torch.full((len(rows),), chunk.shape[1], device=chunk.device)
                _, state = self.network.score(chunk, lengths, state)
            last = chunk[:, -1]
        return last, state

    @torch.no_grad()
    def _remembered(self, ids: Sequence[int]) -> tuple[Tensor, State, Tensor | None]:
        """The token to feed next, the state before it, and the vectors (N, D) of all that it has read, if anything."""
        last, state = self.network.start(1)
        row = torch.cat([last, torch.tensor(ids, dtype=torch.long, device=last.device)])
        found = []
        for part in row[:-1].split(self._chunk) if len(ids) else ():
            layers, state = self.network.hidden(Inputs(part.unsqueeze(0)), state)
            found.append(vectors(self.network, layers[-1][0]))
        return row[-1:], state, torch.cat(found) if found else None


def _least(stop: Stop) -> int:
    """Tokens before the end; where the end ends nothing, it may be written at any time."""
    return stop.least if stop.at_end else 0


class _Text:
    """One continuation: from ids to pieces of text, until it is time to stop."""

    def __init__(self, tokenizer: Tokenizer, stop: Stop, end: int | None):
        self.tokenizer, self.stopper, self.ending = tokenizer, Stopper(stop), end
        self.decoder = Decoder(tokenizer)

    def after(self, ids: Sequence[int]) -> None:
        self.decoder = Decoder(self.tokenizer, after=ids)

    def add(self, id: int, log_prob: float) -> Piece:
        """The piece that one more token makes; NOTHING: the rules leave nothing to write, and this is the end."""
        if id == NOTHING:  # a character that was begun is not shown
            return Piece(self.stopper.close(), (), 0.0, self.stopper.reason)
        ended = id == self.ending
        text = self.stopper.feed("" if ended else self.decoder.push(id), ended=ended)
        return Piece(text, (id,), log_prob, self.stopper.reason)


CHUNK = 512  # tokens of a row read at once, unless the network names another `chunk`; the state is carried over
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
        self.is_bidirectional = fills or getattr(network, "is_bidirectional", False)
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


class BackwardLM(Causal):
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
