"""Write what was taken out of a text: J = −Σ_t log p(y_t | y_<t, what is left), span after span (Raffel et al. 2020).

`share` of the tokens is taken out, in spans of `mean` tokens; a sentinel stands in the place of each, and before each
in the target (batching/spans.py). Nats are those of the target, sentinels included, so they compare with no text's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nextword.batching.span_corruption import Spans
from nextword.batching.token_stream import Stream
from nextword.core.errors import NextwordError
from nextword.core.types import Batch, Loss, State, Vocabulary
from nextword.tokenizers.base import sentinels


class Denoising:
    likelihood = False
    mends = True  # what it has learnt fills blanks

    def __init__(
        self, batches: Mapping[str, Any], vocabulary: Vocabulary, share: float = 0.15, mean: float = 3.0
    ) -> None:
        options = dict(batches)
        kind = options.pop("kind", "spans")
        if kind != "spans" or options.keys() - {"rows", "length", "order"}:
            raise NextwordError(
                f"The denoising objective has batches of kind spans, with rows, length and order; the recipe says "
                f"'{kind}' with {', '.join(options) or 'nothing'}."
            )
        self.layout = Spans(**options, share=share, mean=mean)
        marks = sentinels(vocabulary.special)
        if not marks or vocabulary.end is None:
            raise NextwordError(
                "The denoising objective needs sentinels, <extra_id_0> and so on, and a token that ends a text; the "
                f"tokenizer has {', '.join(vocabulary.special) or 'no special tokens'}. Use kind = 'unigram' with "
                "sentinels = 100, or T5's own."
            )
        self.tokens: dict[str, Any] = {"begin": vocabulary.begin, "end": vocabulary.end, "sentinels": marks}

    @property
    def length(self) -> int:
        """Tokens in a source."""
        return self.layout.length

    def per_epoch(self, text: Stream) -> int:
        return self.layout.per_epoch(text.ids)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text.ids, seed, step, **self.tokens)

    def held_out(self, text: Stream) -> Iterator[Batch]:
        return self.layout.held_out(text.ids, **self.tokens)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        h = network.hidden(batch.inputs, None)[0][-1]
        nats = network.readout.total(h.flatten(0, 1), batch.targets.flatten())
        return Loss(nats / batch.predicted, nats.detach(), batch.predicted)
