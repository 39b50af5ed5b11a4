"""Contrastive learning of sentence vectors: find a sentence's partner among all partners of the batch.

    u_i, v_i = mean of the last layer over sentence i and over its partner, divided by its length
    J = −1/2n Σ_i [ log softmax_j(u_i · v_j / τ)_i  +  log softmax_j(v_i · u_j / τ)_i ]

Gao et al., "SimCSE" (2021): the partner is the sentence itself under another dropout mask. Here it may also be the next
sentence of the document (`batches.same_fraction`), which says what texts are about; `batching/neighbors.py` pairs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F

from nextword.batching.masked import RecentCache, Sentences
from nextword.batching.neighbors import Neighbors
from nextword.batching.settings import require_number
from nextword.batching.token_stream import Stream
from nextword.core.errors import Unsupported
from nextword.core.protocols import Encoder, Infilling
from nextword.core.types import Batch, Loss, State, Vocabulary
from nextword.objectives.base import Objective, build_layout
from nextword.tokenizers.special_tokens import Marks

VALIDATION_SEED = 20_210_418
VALIDATION_BATCHES = 16


class ContrastiveObjective(Objective[Stream]):
    """Pull the vectors of partners together and those of other sentences apart. `temperature` is τ."""

    needs_vocabulary = True
    is_likelihood = False
    has_perplexity = False
    unit = "sentence"

    def __init__(self, batches: Mapping[str, Any], vocabulary: Vocabulary, temperature: float = 0.05) -> None:
        require_number("objective.temperature", temperature, 0, exclude_low=True)
        self.layout = build_layout(batches, {"neighbors": Neighbors}, "contrastive")
        self.temperature = float(temperature)
        self.marks = Marks.of(vocabulary)
        self.sentences = RecentCache(lambda text: Sentences.of(text, vocabulary.end))
        self.tokens_read_per_prediction = 2.0 * self.layout.length

    @property
    def length(self) -> int:
        return self.layout.length

    def check(self, network: Any) -> None:
        if not isinstance(network, Encoder) or not isinstance(network, Infilling):
            raise Unsupported(
                f"The contrastive objective needs a network that reads both sides of a text, such as BERT; "
                f"{type(network).__name__} does not.",
                ability="contrastive",
            )

    def batches_per_epoch(self, text: Stream) -> int:
        return self.layout.batches_per_epoch(self.sentences(text))

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, self.sentences(text), self.marks, seed, step)

    def validation_batches(self, text: Stream) -> Iterator[Batch]:
        """The first batches of a fixed order, at most one epoch."""
        sentences = self.sentences(text)
        count = min(VALIDATION_BATCHES, self.layout.batches_per_epoch(sentences))
        return islice(self.layout.batches(text, sentences, self.marks, VALIDATION_SEED, 0), count)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        mask = batch.inputs.token_mask
        assert mask is not None
        h = network.encode(batch.inputs)[0][-1].float()
        weights = mask.unsqueeze(-1).to(h.dtype)
        vectors = F.normalize((h * weights).sum(1) / weights.sum(1), dim=-1)
        u, v = vectors.chunk(2)
        cosines = u @ v.T
        logits = cosines / self.temperature
        gold = torch.arange(len(u), device=u.device)
        nats = (F.cross_entropy(logits, gold, reduction="sum") + F.cross_entropy(logits.T, gold, reduction="sum")) / 2
        terms = {
            "accuracy": (logits.detach().argmax(1) == gold).float().mean(),
            "cosine": cosines.detach().diagonal().mean(),
        }
        return Loss(nats / len(u), nats.detach(), len(u), None, terms)

    def tokens_per_prediction(self, network: Any, text: Stream) -> float:
        return float("inf")
