"""Blanks of any length, filled by a network that writes pieces, and exact likelihoods of what may stand in them.

    The ___ sat on the ___.       infill:  The old cat sat on the mat.      score_blanks, cloze:  log p of given pieces
    Once upon a time [gMASK]      ___ or [MASK] is a few tokens; [sMASK] sentences, [gMASK] the rest of a text

Blanks are filled from left to right, each in sight of all that stands around it and of what fills those before
(generation/pieces.py). A piece is a word or more of its own, whether there are spaces around the blank or not.

Blanks filled by a model that was trained to write what is missing from a text: T5 after its first training.

    Thank you ___ me to your party ___ week.      →      Thank you for inviting me to your party last week.

A sentinel stands in the place of each blank, and what is written behind it comes back into the text
(generation/sentinels.py). All spans are written one after the other, each in sight of those before. A run that was
trained on pairs since, and on nothing taken out of texts beside them, reads ___ as it stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Tokenizer
from nextword.core.types import EXACT, Decoding, Greedy, Guess, Prediction, Score, State, Stop
from nextword.generation.beam_search import Hypothesis
from nextword.generation.infilling import (
    BLANK,
    HIDDEN,
    LINES,
    Filled,
    Gapped,
    Ordered,
    Pieces,
    around,
    check_asked,
    divided,
    filled,
    filling_nats,
    ids_beside,
    joined,
    lettered,
    likeliest,
    short,
    spans,
    unwritten,
    written,
)
from nextword.tokenizers.base import MASKS, sentinels

LONGEST = 16  # tokens of a piece that is guessed for one blank
PLACES = re.compile("|".join((LINES.pattern, *map(re.escape, MASKS))))


class Pieced:
    """The part of a text-level model that fills blanks with pieces. What it holds is the model's."""

    network: Any
    tokenizer: Tokenizer
    _known: Pieces | None = None

    def _ids(self, text: str, first: bool = False) -> list[int]:
        raise NotImplementedError  # that of Blanks

    def _check(self, text: str) -> None:
        raise NotImplementedError  # that of Blanks

    def _checked(self, how: Decoding) -> Decoding:
        return how  # that of Writing, for what writes at all

    @property
    def writes_pieces(self) -> bool:
        """Whether blanks may have any length."""
        return hasattr(self.network, "turned")

    def blanks(self, text: str) -> int:
        """How many of them a text has."""
        return len(PLACES.findall(text))

    def infill(self, text: str, how: Decoding = Greedy(), stop: Stop = Stop(), n: int = 1) -> list[Filled]:
        """The text with all blanks filled, one after the other; the n best that a beam finds, best first."""
        return self.infill_many([text], how, stop, n)[0]

    def infill_many(
        self, texts: Sequence[str], how: Decoding = Greedy(), stop: Stop = Stop(), n: int = 1
    ) -> list[list[Filled]]:
        check_asked(how, stop, n)
        cut, how = [self._cut(text) for text in texts], self._checked(how)
        gapped, inner = [self._gapped(*one) for one in cut], self._parts.inner
        banned = unwritten(self.tokenizer, self.network.pieces.end)
        found = filled(self.network, gapped, inner, how, stop.length, n, banned=banned, least=stop.least)
        return [
            [self._filled(*one, best.ids, best.log_prob, best.score, best.complete) for best in some]
            for one, some in zip(cut, found, strict=True)
        ]

    def score_blanks(self, text: str, fillings: Sequence[str | Sequence[str]]) -> list[Score]:
        """log p of each filling, exact, the ends of its pieces included. One is a text, or a text for each blank."""
        parts, masks = self._cut(text)
        gapped, rows, words = self._gapped(parts, masks), [], []
        for one in fillings:
            own = [one] if isinstance(one, str) else list(one)
            if len(own) != len(masks):
                raise NextwordError(
                    f"The text has {len(masks)} blanks, but {len(own)} texts are to fill them: {own!r}."
                )
            rows.append([self._ids(p.strip(" "), not parts[0] and not i) for i, p in enumerate(own)])
            words.append(own)
        nats = filling_nats(self.network, [gapped] * len(rows), rows)
        lossless = self.tokenizer.lossless
        return [
            Score(
                cost,
                sum(len(piece) + 1 for piece in row),
                sum(len(piece.split()) for piece in own),
                sum(len(piece.encode()) for piece in own),
                EXACT,
                lossless,
            )
            for cost, row, own in zip(nats, rows, words, strict=True)
        ]

    def cloze(self, text: str, answers: Mapping[str, str] | Sequence[str]) -> Prediction:
        """The label whose answer fits best into the blank, and p(label) = p(answer) / Σ p(answers).

        Du et al. (2021), section 2.3. `answers` are {label: answer}, or answers that are labels themselves.
        """
        named = answers if isinstance(answers, Mapping) else {answer: answer for answer in answers}
        if not named:
            raise NextwordError("There is no answer to choose from. Give some: {label: answer}.")
        costs = [score.nats for score in self.score_blanks(text, list(named.values()))]
        shares = [math.exp(min(costs) - cost) for cost in costs]
        odds = {label: share / sum(shares) for label, share in zip(named, shares, strict=True)}
        return Prediction(max(odds, key=odds.__getitem__), odds)

    def _cut(self, text: str) -> tuple[list[str], list[str]]:
        """The parts of a text around its blanks, and what stands in their places."""
        if not self.writes_pieces:
            raise Unsupported(
                "This model guesses words for blanks, one by one, and writes no pieces of any length. Ask it for words "
                f'(nextword next RUN "The {BLANK} sat"), or use a model that was trained to fill blanks (GLM).'
            )
        masks = PLACES.findall(text)
        if not masks:
            raise NextwordError(
                f"The text {short(text)} has no blank. Write {BLANK} where something is missing, or "
                f"{' or '.join(MASKS[1:])} for sentences and for the rest of a text."
            )
        return PLACES.split(text), masks

    def unread(self, text: str) -> int:
        """Tokens of a text with one blank that lie too far from it to be read; 0: all of it fits into the window."""
        parts, masks = self._cut(text)
        return max(0, sum(map(len, self._sides(parts))) - self._room) if len(masks) == 1 else 0

    @property
    def _room(self) -> int:
        """Tokens around one blank: the window, less the one that texts begin with, and the mask."""
        return self.network.window - 2

    def _sides(self, parts: Sequence[str]) -> list[list[int]]:
        return [self._ids(part, first=not i) for i, part in enumerate(parts)]

    def _gapped(self, parts: Sequence[str], masks: Sequence[str]) -> Gapped:
        """What is read. Around one blank the text is cut to the window; of several, none may be cut away."""
        marks = self.network.pieces
        kinds = dict(zip(MASKS, marks.masks, strict=True))
        for part in parts:
            self._check(part)
        sides: list[Sequence[int]] = [*self._sides(parts)]
        if len(masks) == 1:
            sides = [*around(sides[0], sides[1], self._room)]
        ids, places = [marks.begin, *sides[0]], []
        for mask, side in zip(masks, sides[1:], strict=True):
            places.append(len(ids))
            ids += [kinds[MASKS[0] if mask.startswith("_") else mask], *side]
        if len(ids) > self.network.window:
            raise NextwordError(
                f"The text {short(joined(parts, masks))} has {len(ids):,} tokens with its blanks, and the window holds "
                f"{self.network.window:,}. Shorten it: what stands far from the blanks can be left away."
            )
        return Gapped(tuple(ids), tuple(places), tuple(lettered(parts[: i + 1]) for i in range(len(masks))))

    def _filled(self, parts: list[str], masks: list[str], ids: Sequence[int], *rest: Any) -> Filled:
        blanks = [self.tokenizer.decode(piece).strip(" ") for piece in divided(self.network, ids)]
        shown = [*blanks, *masks[len(blanks) :]]
        log_prob, score, complete = rest
        return Filled(joined(parts, shown), tuple(blanks), log_prob, len(ids), score, complete)

    def _likeliest(self, left: list[int], right: list[int], bare: bool, k: int) -> list[Guess]:
        """The k likeliest pieces for one blank; what is spelled in several ways is one."""
        marks = self.network.pieces
        ids = [marks.masks[0] if id == HIDDEN else id for id in (*left, HIDDEN, *right)]
        gapped = Gapped((marks.begin, *ids), (len(left) + 1,), (not bare,))
        rest = {"width": min(max(16, 2 * k), 64), "length": min(LONGEST, self.network.window - 1)}
        banned = unwritten(self.tokenizer, marks.end)
        found: dict[str, float] = {}
        for one in likeliest(self.network, gapped, self._parts.inner, 2 * k, banned=banned, **rest):
            text = self.tokenizer.decode(one.ids[:-1]).strip()
            if text:
                found[text] = found.get(text, 0.0) + math.exp(one.log_prob)
        ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return [Guess(text, min(p, 1.0)) for text, p in ranked[:k]]

    @property
    def _parts(self) -> Pieces:
        """What each id can be in a word."""
        if self._known is None:
            self._known = Pieces(self.tokenizer)
        return self._known


class SpanInfilling:
    """The part of a text-level model that mends texts. What it holds is the model's."""

    network: Any
    tokenizer: Tokenizer
    mends: bool  # whether it was trained to
    _parts: Pieces | None = None

    def _checked(self, how: Decoding) -> Decoding:
        raise NotImplementedError  # that of Writing

    def _read_all(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
        raise NotImplementedError  # that of Conditional

    def _alike(self, lengths: list[int]) -> Iterator[list[int]]:
        raise NotImplementedError  # that of Conditional

    def _refuse_sentinels(self, texts: Sequence[str]) -> None:
        raise NotImplementedError  # that of Conditional

    def _nats(self, sources: list[list[int]], targets: list[list[int]]) -> list[float]:
        raise NotImplementedError  # that of Conditional

    @property
    def end(self) -> int:
        raise NotImplementedError  # that of Conditional

    @property
    def writes_pieces(self) -> bool:
        """Whether it fills blanks, of any length."""
        return self.mends

    def blanks(self, text: str) -> int:
        """How many of them a text has."""
        return len(LINES.findall(text))

    def unread(self, text: str) -> int:
        """Tokens of a text that are not read: a source is read whole."""
        return 0

    def infill(self, text: str, how: Decoding = Greedy(), stop: Stop = Stop(), n: int = 1) -> list[Filled]:
        """The text with all blanks filled, one after the other; the n best that a beam finds, best first."""
        return self.infill_many([text], how, stop, n)[0]

    def infill_many(
        self, texts: Sequence[str], how: Decoding = Greedy(), stop: Stop = Stop(), n: int = 1
    ) -> list[list[Filled]]:
        """At most `stop.length` tokens are written for a text, sentinels and the end among them."""
        check_asked(how, stop, n)
        cut, how = [self._cut(text) for text in texts], self._checked(how)
        if self._parts is None:
            self._parts = Pieces(self.tokenizer)
        marks = self.sentinels
        model = Ordered(self.network, marks, self.end, self._parts)
        banned = [id for id in unwritten(self.tokenizer, self.end) if id not in marks]
        sources = [self._source(parts) for parts in cut]
        found: list[list[Filled]] = [[] for _ in texts]
        for group in self._alike([len(source) + stop.length for source in sources]):
            before = [[lettered(cut[i][: k + 1]) for k in range(len(cut[i]) - 1)] for i in group]
            begun = model.begin(*self._read_all([sources[i] for i in group]), before)
            made = written(model, *begun, how, stop.length, self.end, group, n, banned=banned, least=stop.least)
            for i, best in zip(group, made, strict=True):
                found[i] = [self._filled(cut[i], one) for one in best]
        return found

    @torch.no_grad()
    def score_fillings(self, around: Sequence[tuple[str, str]], fillings: Sequence[str]) -> list[Score]:
        """What each filling costs between the text before and the text after it, up to the mark that ends it."""
        self._refuse_sentinels([*fillings, *(text for both in around for text in both)])
        first, second = self.sentinels[:2]
        sources = [self._source(both) for both in around]
        inside = [ids_beside(self.tokenizer, text, False) for text in fillings]
        nats = self._nats(sources, [[first, *ids, second] for ids in inside])
        own = self._nats(sources, [[first] for _ in inside])  # the mark before it is no part of it
        return [
            Score(whole - mark, len(ids) + 1, len(text.split()), len(text.encode()), EXACT, self.tokenizer.lossless)
            for whole, mark, ids, text in zip(nats, own, inside, fillings, strict=True)
        ]

    @property
    def sentinels(self) -> list[int]:
        return sentinels(self.tokenizer.special)

    def _cut(self, text: str) -> list[str]:
        """The parts of a text around its blanks."""
        if not self.mends:
            raise Unsupported(
                "This model was trained on pairs, and not to write what is missing from a text. Use one that was: "
                "docs/sequence.md, docs/glm.md."
            )
        self._refuse_sentinels([text])
        parts = LINES.split(text)
        if len(parts) == 1:
            raise NextwordError(f"The text {short(text)} has no blank. Write {BLANK} where something is missing.")
        if len(parts) - 1 > len(self.sentinels):
            raise NextwordError(
                f"The text {short(text)} has {len(parts) - 1:,} blanks, and this model knows {len(self.sentinels):,} "
                "at once. Leave some out."
            )
        return parts

    def _source(self, parts: Sequence[str]) -> list[int]:
        ids = ids_beside(self.tokenizer, parts[0], first=True)
        for sentinel, part in zip(self.sentinels, parts[1:], strict=False):
            ids += [sentinel, *ids_beside(self.tokenizer, part)]
        return [*ids, self.end]

    def _filled(self, parts: Sequence[str], one: Hypothesis) -> Filled:
        blanks = [self.tokenizer.decode(span).strip() for span in spans(one.ids, self.sentinels, self.end)]
        shown = [*blanks, *[BLANK] * (len(parts) - 1 - len(blanks))]
        return Filled(joined(parts, shown), tuple(blanks), one.log_prob, len(one.ids), one.score, one.complete)
