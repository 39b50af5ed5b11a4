"""Masked language modeling: predict hidden tokens from all tokens around them, and how two segments belong together.

    J = −1/K Σ_k log p(x_k | the text with x_1 … x_K masked)  +  pair_weight · −log p(label | [CLS])

Devlin et al. (2019). Nats and their count are those of the masked tokens; the second term and its accuracy are in the
loss's terms. In a recipe, the four changes of RoBERTa (Liu et al., 2019) are:

    BERT                       RoBERTa
    static_masks = 10          static_masks = 0              ten masks per text that repeat, or a new mask every epoch
    batches.pair = "next"      batches.pair = "none"         next-sentence prediction, or none
    batches.kind = "pairs"     batches.kind = "sentences"    two segments, or full sentences
    rows = 256, rate = 1e-4    rows = 8192, rate = 1e-3      larger batches

and those of ALBERT: batches.pair = "order", max_ngram = 3, and the optimizer.

Only the masked positions reach the softmax. Every batch has the same number of places for them; places that stay empty
point at the [CLS] of the first text, whose target is IGNORE. So shapes are fixed, and nothing waits for a GPU to count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.batching.masked import (
    FramedTexts,
    FullSentences,
    MaskedLayout,
    Masking,
    PackedTexts,
    RecentCache,
    Selection,
    SentencePairs,
    Sentences,
    derive_key,
)
from nextword.batching.settings import require_count, require_number
from nextword.batching.token_stream import Stream
from nextword.core.errors import Unsupported
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State, Vocabulary
from nextword.objectives.base import Objective, build_layout

LAYOUTS: dict[str, type[MaskedLayout]] = {"pairs": SentencePairs, "sentences": FullSentences, "packed": PackedTexts}
MASKS = 2  # keys the random draws of this file


class MaskedObjective(Objective[Stream]):
    """Predict masked tokens, whole words, or runs of up to `max_ngram` words (batching/masked.py).

    `mask_fraction` of the tokens are chosen. Of these, `mask_token_fraction` become [MASK] and `random_token_fraction`
    a random token.

    `static_masks = k`: each text has k masks, used in turn, one per epoch, and segment pairs repeat with them; 0: new
    masks and pairs in every epoch.
    """

    needs_vocabulary = True
    is_likelihood = False  # −log p of the masked tokens is not −log p of the text

    def __init__(
        self,
        batches: Mapping[str, Any],
        vocabulary: Vocabulary,
        mask_fraction: float = 0.15,
        whole_words: bool = False,
        max_ngram: int = 0,
        static_masks: int = 0,
        pair_weight: float = 1.0,
        mask_token_fraction: float = 0.8,
        random_token_fraction: float = 0.1,
    ) -> None:
        self.layout = build_layout(batches, LAYOUTS, "masked")
        require_count("objective.static_masks", static_masks, least=0)
        require_number("objective.pair_weight", pair_weight, 0)
        self.masking = Masking(
            vocabulary, mask_fraction, mask_token_fraction, random_token_fraction, whole_words, max_ngram
        )
        self.static_masks, self.pair_weight = static_masks, float(pair_weight)
        self.sentences = RecentCache(lambda text: Sentences.of(text, vocabulary.end))

    @property
    def length(self) -> int:
        return self.layout.length

    # -------------------------------------------------------------------------------------------- batches

    def batches_per_epoch(self, text: Stream) -> int:
        return self.layout.batches_per_epoch(self.sentences(text))

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        sentences = self.sentences(text)
        for selection in self.layout.selections(sentences, seed, step, self.static_masks):
            yield self._batch(text, sentences, selection, seed)

    def validation_batches(self, text: Stream) -> Iterator[Batch]:
        """Read every text once, always with the same masks."""
        sentences = self.sentences(text)
        for selection in self.layout.validation_selections(sentences):
            yield self._batch(text, sentences, selection, 0)

    def _batch(self, text: Stream, sentences: Sentences, selection: Selection, seed: int) -> Batch:
        layout, texts, chosen = self.layout, selection.texts, selection.chosen
        if isinstance(layout, PackedTexts):
            width, most = layout.tokens, layout.max_texts(sentences)
            room = self.masking.max_targets(width - 2 * most, most)
        else:
            width = layout.length
            room = len(chosen) * self.masking.max_targets(width - 2)
        framed = texts.frame(text, chosen, self.masking.marks, width, isinstance(layout, PackedTexts))
        key, last = derive_key(MASKS, seed, selection.variant), framed.first + framed.sizes
        targets, positions, num_targets = self.masking(framed.ids, framed.begins, framed.first, last, chosen, key, room)
        if isinstance(layout, PackedTexts):
            inputs = _packed_inputs(framed, layout, most)
        else:
            inputs = _padded_inputs(framed, width, has_segments=isinstance(layout, SentencePairs))
        return Batch(
            inputs,
            torch.from_numpy(targets).view(inputs.ids.shape),
            reset_state=True,
            epoch=selection.epoch,
            target_positions=torch.from_numpy(positions),
            num_targets=num_targets,
            pair_labels=None if texts.labels is None else torch.from_numpy(texts.labels[chosen]),
        )

    # -------------------------------------------------------------------------------------------- loss

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        inputs, targets = batch.inputs, batch.targets.reshape(-1)
        positions, count = batch.target_positions, batch.num_targets
        if positions is None:  # a batch made by hand
            positions = (targets != IGNORE).nonzero().squeeze(1)
            count = len(positions)
        elif inputs.starts is not None:
            inputs = replace(inputs, longest=self.length)
        labels = batch.pair_labels if self.pair_weight else None
        h, first = _hidden_at(network, inputs, positions, with_first=labels is not None)
        nats = network.readout.total(h, targets[positions])
        value = nats / max(count, 1)
        terms = {"masked": value.detach()}
        if labels is not None:
            logits = self._pair_logits(network, first)
            pair_loss = F.cross_entropy(logits, labels)
            value = value + self.pair_weight * pair_loss
            terms["pair"] = pair_loss.detach()
            terms["pair_accuracy"] = (logits.detach().argmax(-1) == labels).float().mean()
        return Loss(value, nats.detach(), count, None, terms)

    def _pair_logits(self, network: Any, first: Tensor) -> Tensor:
        """(B, 2) logits, in the network's precision but at least float32."""
        if network.next_sentence is None:
            raise Unsupported(
                f"The batches have labels of segment pairs, but {type(network).__name__} has no head for them. Train "
                "without (--set phase.0.batches.pair=none).",
                ability="segment pairs",
            )
        logits: Tensor = network.next_sentence(network.pooled(first))
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _hidden_at(network: Any, inputs: Inputs, positions: Tensor, with_first: bool) -> tuple[Tensor, Tensor]:
    """The last layer at flat positions, (K, D), and, if wanted, at the first token of each row, (B, D)."""
    rows, steps = inputs.ids.shape
    places = positions
    if with_first:
        places = torch.cat((positions, torch.arange(0, rows * steps, steps, device=positions.device)))
    h = network.hidden_at(inputs, places)
    return h[: len(positions)], h[len(positions) :]


def _padded_inputs(framed: FramedTexts, width: int, has_segments: bool) -> Inputs:
    """One text per row, padded to the width."""
    ids = torch.from_numpy(framed.ids).view(-1, width)
    token_mask = torch.from_numpy(np.arange(width) < framed.sizes[:, None])
    return Inputs(ids, token_mask, torch.from_numpy(framed.segments).view(-1, width) if has_segments else None)


def _packed_inputs(framed: FramedTexts, layout: PackedTexts, most: int) -> Inputs:
    """All texts in one row; then padding, in pieces no longer than a text; then empty texts, to fix the shape."""
    used = int(framed.first[-1] + framed.sizes[-1])
    padding = np.arange(used, layout.tokens, layout.length)
    starts = np.full(most + -(-layout.tokens // layout.length) + 1, layout.tokens, np.int64)
    starts[: len(framed.first) + len(padding)] = np.concatenate((framed.first, padding))
    return Inputs(torch.from_numpy(framed.ids)[None], starts=torch.from_numpy(starts))
