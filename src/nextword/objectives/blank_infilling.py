"""Write the pieces that were taken out of a text: J = −Σ_i log p(s_i | what is left, the pieces before), in any order.

Du et al., "GLM" (2021), sections 2.1 and 2.2. Each piece s_i is predicted from left to right, and then that it is
over. `tokens`, `sentences` and `document` are how often a text is taken apart in each of the three ways of
batching/pieces.py; `share` of it is taken out in the first two, in pieces of `mean` tokens in the first; of a document
from `least` to all. A share `short` of the texts is cut to any length. Nats are those of the pieces and their ends: of
text that is seen on both sides, so no other objective's compare with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nextword.batching.span_corruption import PieceRows
from nextword.batching.token_stream import Stream
from nextword.core.errors import NextwordError
from nextword.core.types import IGNORE, Batch, Loss, State, Vocabulary
from nextword.tokenizers.base import PieceMarks


class Infilling:
    likelihood = False  # of some of the tokens, each from others

    def __init__(
        self,
        batches: Mapping[str, Any],
        vocabulary: Vocabulary,
        tokens: float = 0.5,
        sentences: float = 0.3,
        document: float = 0.2,
        share: float = 0.15,
        mean: float = 3.0,
        least: float = 0.5,
        short: float = 0.0,
    ) -> None:
        options = dict(batches)
        kind = options.pop("kind", "pieces")
        if kind != "pieces" or options.keys() - {"rows", "length", "order"}:
            raise NextwordError(
                f"The infilling objective has batches of kind pieces, with rows, length and order; the recipe says "
                f"'{kind}' with {', '.join(options) or 'nothing'}."
            )
        mix = (tokens, sentences, document)
        for name, value in zip(("tokens", "sentences", "document"), mix, strict=True):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise NextwordError(f"objective: {name} = {value!r}; expected a number, such as 0.5.")
        self.layout = PieceRows(**options, share=share, mean=mean, least=least, short=short, mix=mix)
        self.marks = PieceMarks.of(vocabulary)

    @property
    def length(self) -> int:
        """Tokens in a text."""
        return self.layout.length

    def check(self, network: Any) -> None:
        """Positions have an end, which a GPU would not tell of."""
        if self.length > network.window:
            raise NextwordError(
                f"batches: length = {self.length} tokens, but the network's window is {network.window}. Shorten them "
                f"(--set phase.0.batches.length={network.window}), or widen it (--set model.window={self.length})."
            )

    def per_epoch(self, text: Stream) -> int:
        return self.layout.per_epoch(text)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step, self.marks)

    def held_out(self, text: Stream) -> Iterator[Batch]:
        return self.layout.held_out(text, self.marks)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        targets, at, count = batch.targets.reshape(-1), batch.at, batch.predicted
        if at is None:  # a batch made by hand
            at = (targets != IGNORE).nonzero().squeeze(1)
            count = len(at)
        h = network.hidden(batch.inputs, None)[0][-1]
        nats = network.readout.total(h.flatten(0, 1).index_select(0, at), targets[at])
        return Loss(nats / max(count, 1), nats.detach(), count)
