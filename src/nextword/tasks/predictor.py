"""What `nextword.load` returns for a run of a task: a network with its head, and `predict`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import Bucketed, FramedExamples
from nextword.core.protocols import Infilling
from nextword.core.types import Batch
from nextword.lm.base import TextModel
from nextword.lm.embedding import BATCH_TOKENS, EmbeddingMixin, frame_ids
from nextword.tasks.base import Count
from nextword.tasks.heads import ModelWithHead
from nextword.tokenizers.base import Tokenizer
from nextword.training.device import to_device


class Predictor(TextModel):
    """A network with a task's head. Examples have at most `length` tokens (0: the network's window)."""

    model: ModelWithHead
    task: Any  # the Task of the run

    def __init__(self, model: ModelWithHead, tokenizer: Tokenizer, task: Any, length: int = 0, name: str = "") -> None:
        super().__init__(model.encoder, tokenizer, name)
        self.model, self.task, self.length = model.eval(), task, length
        self.parameters = model.num_parameters()

    @property
    def device(self) -> torch.device:
        return self.model.device

    def batches(
        self, layout: Bucketed[Any], examples: FramedExamples, rows: int = 0, progress: Count | None = None
    ) -> Iterator[tuple[np.ndarray, Batch]]:
        """Yield all examples in batches, the longest first, and the index of each example of a batch.

        `rows`: examples of a batch; 0: as many as BATCH_TOKENS hold.
        """
        order, lengths, done = layout.validation_order(examples), examples.lengths, 0
        while done < len(order):
            size = rows or max(1, BATCH_TOKENS // int(lengths[order[done]]))
            chosen = order[done : done + size]
            yield chosen, to_device(layout.batch(examples, chosen, 0), self.device)
            done += len(chosen)
            if progress:
                progress(done, len(order))

    def why_not(self, ability: str) -> str:
        source = self.task.config.source
        other = f", or the language model it was made from: {source}" if source else ""
        return (
            f"{self.name or 'This run'} has a task head: it predicts {self.task.wording().summary}, and does not model "
            f"text. Use `nextword predict`{other}."
        )


class EmbeddingPredictor(Predictor, EmbeddingMixin):
    """A predictor that also embeds texts: `embed` gives vectors of the fine-tuned network."""

    def __init__(self, model: ModelWithHead, tokenizer: Tokenizer, task: Any, length: int = 0, name: str = "") -> None:
        super().__init__(model, tokenizer, task, length, name)
        self.is_bidirectional = isinstance(self.network, Infilling) or self.network.is_bidirectional
        limit = min(filter(None, (length, self.network.max_positions)), default=BATCH_TOKENS)
        self.room = max(1, limit - len(frame_ids(self.network, ()).ids))
