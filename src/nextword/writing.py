"""Writing on from prompts: one of them, piece by piece as it is written, or many side by side.

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

from nextword import nest
from nextword.contract import Beam, Contrastive, Decoding, Greedy, Inputs, Piece, State, Stop
from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Encoder, Tokenizer
from nextword.generation.beam import search
from nextword.generation.choosing import NOTHING, seeded
from nextword.generation.contrastive import contrastive, ensure_vectors, vectors
from nextword.generation.hypotheses import Hypothesis, ensure_covers
from nextword.generation.rules import Rules, validate
from nextword.generation.sampling import Rows, tokens
from nextword.generation.stopping import Stopper
from nextword.tokens import Decoder

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
                both = getattr(network, "two_sided", False)  # then `encode` would read what is to come, too
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
