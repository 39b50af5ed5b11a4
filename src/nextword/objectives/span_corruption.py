"""Span corruption: write the spans that were removed from a text, one after the other (Raffel et al. 2020, "T5").

    J = −Σ_t log p(y_t | y_<t, what is left)

`mask_fraction` of the tokens are removed, in spans of `mean_span` tokens on average. A sentinel stands in place of each
span in the source, and before each span in the target (batching/span_corruption.py). Nats are those of the target,
sentinels included, so they compare with no other text's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nextword.batching.span_corruption import Spans
from nextword.batching.token_stream import Stream
from nextword.core.errors import Unsupported
from nextword.core.types import Batch, Loss, State, Vocabulary
from nextword.objectives.base import Objective, build_layout
from nextword.tokenizers.special_tokens import sentinels


class SpanCorruptionObjective(Objective[Stream]):
    needs_vocabulary = True
    fills_blanks = True
    is_likelihood = False

    def __init__(
        self, batches: Mapping[str, Any], vocabulary: Vocabulary, mask_fraction: float = 0.15, mean_span: float = 3.0
    ) -> None:
        self.layout = build_layout(
            batches, {"spans": Spans}, "span_corruption", mask_fraction=mask_fraction, mean_span=mean_span
        )
        sentinel_ids = sentinels(vocabulary.special)
        if not sentinel_ids or vocabulary.end is None:
            raise Unsupported(
                "Span corruption needs a tokenizer with sentinels (<extra_id_0>, …) and an end token; this one has "
                f"{', '.join(vocabulary.special) or 'no special tokens'}. Use [tokenizer] kind = 'unigram' with "
                "sentinels = 100, or T5's own.",
                ability="sentinels",
            )
        self.tokens: dict[str, Any] = {"begin": vocabulary.begin, "end": vocabulary.end, "sentinels": sentinel_ids}

    @property
    def length(self) -> int:
        return self.layout.length

    def batches_per_epoch(self, text: Stream) -> int:
        return self.layout.batches_per_epoch(text.ids)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text.ids, seed, step, **self.tokens)

    def validation_batches(self, text: Stream) -> Iterator[Batch]:
        return self.layout.validation_batches(text.ids, **self.tokens)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        h, _ = network.last_hidden(batch.inputs, None)
        nats = network.readout.total(h.flatten(0, 1), batch.targets.flatten())
        return Loss(nats / batch.num_targets, nats.detach(), batch.num_targets)
