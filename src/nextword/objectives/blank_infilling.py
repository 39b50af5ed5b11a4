"""Autoregressive blank infilling: write the pieces that were removed from a text, in random order.

    J = −Σ_i log p(s_i | what is left, the pieces before s_i)

Du et al., "GLM" (2021), sections 2.1 and 2.2. Each piece s_i is predicted from left to right and ends with an end
token. Nats are those of the pieces and their ends, given text on both sides: they do not compare with others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nextword.batching.blank_infilling import Blanks
from nextword.batching.settings import require_number
from nextword.batching.token_stream import Stream
from nextword.core.errors import invalid
from nextword.core.types import IGNORE, Batch, Loss, State, Vocabulary
from nextword.objectives.base import Objective, build_layout
from nextword.tokenizers.special_tokens import PieceMarks


class BlankInfillingObjective(Objective[Stream]):
    """Fill blanks of three kinds, drawn with the weights `tokens`, `sentences` and `document`.

    The first two remove `mask_fraction` of the text, `tokens` in pieces of `mean_span` tokens on average; `document`
    removes the end of the text, between the fraction `min_generated` and all of it. `short_fraction` of the texts are
    cut to a random length first.
    """

    needs_vocabulary = True
    is_likelihood = False  # of some of the tokens, given the others

    def __init__(
        self,
        batches: Mapping[str, Any],
        vocabulary: Vocabulary,
        tokens: float = 0.5,
        sentences: float = 0.3,
        document: float = 0.2,
        mask_fraction: float = 0.15,
        mean_span: float = 3.0,
        min_generated: float = 0.5,
        short_fraction: float = 0.0,
    ) -> None:
        for name, value in (("tokens", tokens), ("sentences", sentences), ("document", document)):
            require_number(f"objective.{name}", value)
        self.layout = build_layout(
            batches,
            {"pieces": Blanks},
            "blank_infilling",
            mask_fraction=mask_fraction,
            mean_span=mean_span,
            min_generated=min_generated,
            short_fraction=short_fraction,
            mix=(tokens, sentences, document),
        )
        self.marks = PieceMarks.of(vocabulary)

    @property
    def length(self) -> int:
        return self.layout.length

    def check(self, network: Any) -> None:
        """Check that texts fit the network's positions, because a GPU reports an index error without a cause."""
        if self.length > network.window:
            problem = f"exceeds the network's window of {network.window} tokens. Shorten texts or widen it."
            raise invalid("batches.length", self.length, problem)

    def batches_per_epoch(self, text: Stream) -> int:
        return self.layout.batches_per_epoch(text)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step, self.marks)

    def validation_batches(self, text: Stream) -> Iterator[Batch]:
        return self.layout.validation_batches(text, self.marks)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        targets, positions, count = batch.targets.reshape(-1), batch.target_positions, batch.num_targets
        if positions is None:  # a batch made by hand
            positions = (targets != IGNORE).nonzero().squeeze(1)
            count = len(positions)
        h, _ = network.last_hidden(batch.inputs, None)
        nats = network.readout.total(h.flatten(0, 1).index_select(0, positions), targets[positions])
        return Loss(nats / max(count, 1), nats.detach(), count)
