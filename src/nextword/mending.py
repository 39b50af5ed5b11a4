"""Blanks filled by a model that was trained to write what is missing from a text: T5 after its first training.

    Thank you ___ me to your party ___ week.      →      Thank you for inviting me to your party last week.

A sentinel stands in the place of each blank, and what is written behind it comes back into the text
(generation/sentinels.py). All spans are written one after the other, each in sight of those before. A run that was
trained on pairs since, and on nothing taken out of texts beside them, reads ___ as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nextword.contract import EXACT, Decoding, Greedy, Score, State, Stop
from nextword.contract_errors import NextwordError, Unsupported
from nextword.contract_protocols import Tokenizer
from nextword.generation.blanks import Pieces
from nextword.generation.gaps import BLANK, LINES, Filled, check_asked, ids_beside, joined, lettered, short
from nextword.generation.hypotheses import Hypothesis
from nextword.generation.pieces import unwritten, written
from nextword.generation.sentinels import Ordered, spans
from nextword.tokens.marks import sentinels


class Mending:
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
