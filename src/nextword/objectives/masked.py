"""Predict hidden tokens from all around them, and whether a second segment belongs after the first.

    J = −1/K Σ_k log p(x_k | the text with x_1 … x_K hidden)  +  pair_weight · −log p(label | [CLS])

Devlin et al. (2019). Nats and their count are of the hidden tokens alone; the second term and its accuracy are in the
loss's parts. How the four changes that RoBERTa makes (Liu et al., 2019) are said in a recipe, BERT first:

    static = 10                         static = 0                    a text's ten masks come again, or never do
    batches.pair = "next"               batches.pair = "none"         next-sentence prediction, or none
    batches.kind = "pairs"              batches.kind = "sentences"    two segments, or full sentences
    rows = 256, rate = 1e-4             rows = 8192, rate = 1e-3      batches

and ALBERT's three: batches.pair = "order", grams = 3, and the optimizer.

Only the hidden tokens are read out. There are as many places for them in every batch, those that stay empty pointing at
the [CLS] of the first text, which is never predicted: so shapes are fixed, and nobody waits for a GPU to count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.batching.masked import Framed, Full, Kept, Masking, Packed, SentencePairs, Sentences, Turn, key_of
from nextword.batching.token_stream import Stream
from nextword.core.errors import NextwordError
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State, Vocabulary

BATCHES: dict[str, Any] = {"pairs": SentencePairs, "sentences": Full, "packed": Packed}
MASKS = 2  # keys the draws of this file


class Masked:
    """`share` of the tokens are hidden, or whole words, or runs of up to `grams` words: see batching/masking.py.

    `static = k`: each text has k masks, one an epoch in turn, and pairs come again with them; 0: new in every epoch.
    """

    def __init__(
        self,
        batches: Mapping[str, Any],
        vocabulary: Vocabulary,
        share: float = 0.15,
        whole_words: bool = False,
        grams: int = 0,
        static: int = 0,
        pair_weight: float = 1.0,
        masked: float = 0.8,
        replaced: float = 0.1,
    ) -> None:
        options = dict(batches)
        kind = options.pop("kind", "pairs")
        if kind not in BATCHES:
            raise NextwordError(
                f"The masked objective has batches of kind {', '.join(BATCHES)}; the recipe says '{kind}'."
            )
        try:
            self.layout = BATCHES[kind](**options)
        except TypeError:
            known = ", ".join(field.name for field in fields(BATCHES[kind]) if field.init)
            raise NextwordError(
                f"Batches of kind '{kind}' take {known}; the recipe says {', '.join(options)}."
            ) from None
        if not isinstance(static, int) or isinstance(static, bool) or static < 0:
            raise NextwordError(f"objective: static = {static!r} must be a whole number of masks a text, or 0.")
        if not isinstance(pair_weight, (int, float)) or pair_weight < 0:
            raise NextwordError(f"objective: pair_weight = {pair_weight!r} must not be negative.")
        self.masking = Masking(vocabulary, share, masked, replaced, whole_words, grams)
        self.static, self.pair_weight = static, float(pair_weight)
        self.end = vocabulary.end
        self.sentences = Kept(lambda text: Sentences.of(text, self.end))

    @property
    def length(self) -> int:
        """Tokens in the longest text of a batch."""
        return int(self.layout.length)

    # ---------------------------------------------------------------------------------------------- batches

    def per_epoch(self, text: Stream) -> int:
        return self.layout.per_epoch(self.sentences(text))

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        sentences = self.sentences(text)
        for turn in self.layout.turns(sentences, seed, step, self.static):
            yield self._batch(text, sentences, turn, seed)

    def held_out(self, text: Stream) -> Iterator[Batch]:
        """Every text once, with masks that are the same each time."""
        sentences = self.sentences(text)
        for turn in self.layout.held_out(sentences):
            yield self._batch(text, sentences, turn, 0)

    def _batch(self, text: Stream, sentences: Sentences, turn: Turn, seed: int) -> Batch:
        layout, texts, chosen = self.layout, turn.texts, turn.chosen
        packed = isinstance(layout, Packed)
        width = layout.tokens if packed else layout.length
        most = layout.most(sentences) if packed else len(chosen)
        room = self.masking.most(width - 2 * most, most) if packed else most * self.masking.most(width - 2)
        framed = texts.framed(text, chosen, self.masking.marks, width, packed)
        targets, at, predicted = self.masking(
            framed.ids,
            framed.begins,
            framed.first,
            framed.first + framed.sizes,
            chosen,
            key_of(MASKS, seed, turn.variant),
            room,
        )
        inputs = _packed(framed, layout, most) if packed else _rows(framed, width, isinstance(layout, SentencePairs))
        pair = None if texts.labels is None else torch.from_numpy(texts.labels[chosen])
        return Batch(
            inputs,
            torch.from_numpy(targets).view(inputs.ids.shape),
            fresh=True,
            epoch=turn.epoch,
            at=torch.from_numpy(at),
            predicted=predicted,
            pair=pair,
        )

    # ---------------------------------------------------------------------------------------------- the loss

    likelihood = False  # what hidden tokens cost is not what the text costs

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        inputs, targets, at, count = batch.inputs, batch.targets.reshape(-1), batch.at, batch.predicted
        if at is None:  # a batch made by hand
            at = (targets != IGNORE).nonzero().squeeze(1)
            count = len(at)
        elif inputs.starts is not None:
            inputs = replace(inputs, longest=self.length)
        pair = batch.pair if self.pair_weight else None
        h, first = _vectors(network, inputs, at, pair is not None)
        nats = network.readout.total(h, targets[at])
        value = nats / max(count, 1)
        parts = {"masked": value.detach()}
        if pair is not None:
            logits = self._pair_logits(network, first)
            surprise = F.cross_entropy(logits, pair)
            value = value + self.pair_weight * surprise
            parts["pair"] = surprise.detach()
            parts["pair_accuracy"] = (logits.detach().argmax(-1) == pair).float().mean()
        return Loss(value, nats.detach(), count, None, parts)

    def _pair_logits(self, network: Any, first: Tensor) -> Tensor:
        """(B, 2) in the network's own precision or better."""
        if getattr(network, "next_sentence", None) is None:
            raise NextwordError(
                f"{type(network).__name__} has no head that judges pairs of segments, but the batches have labels for "
                "one. Train it without (--set phase.0.batches.pair=none)."
            )
        logits = network.next_sentence(network.pooled(first))
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _vectors(network: Any, inputs: Inputs, at: Tensor, firsts: bool) -> tuple[Tensor, Tensor]:
    """The last layer at the flat positions `at`, (K, D), and, where asked for, at each row's first, (B, D).

    A network that can compute these alone does.
    """
    rows, steps = inputs.ids.shape
    places = at
    if firsts:
        places = torch.cat((at, torch.arange(0, rows * steps, steps, device=at.device)))
    if hasattr(network, "hidden_at"):
        h = network.hidden_at(inputs, places)
    else:
        h = network.hidden(inputs, None)[0][-1]
        h = h.reshape(-1, h.shape[-1]).index_select(0, places)
    return h[: len(at)], h[len(at) :]


def _rows(framed: Framed, width: int, segmented: bool) -> Inputs:
    ids = torch.from_numpy(framed.ids).view(-1, width)
    padding = torch.from_numpy(np.arange(width) < framed.sizes[:, None])
    return Inputs(ids, padding, torch.from_numpy(framed.segments).view(-1, width) if segmented else None)


def _packed(framed: Framed, layout: Packed, most: int) -> Inputs:
    """The texts, then the padding, in pieces that are no longer than a text, then empty texts."""
    used = int(framed.first[-1] + framed.sizes[-1])
    rest = np.arange(used, layout.tokens, layout.length)
    starts = np.full(most + -(-layout.tokens // layout.length) + 1, layout.tokens, np.int64)
    starts[: len(framed.first) + len(rest)] = np.concatenate((framed.first, rest))
    return Inputs(torch.from_numpy(framed.ids)[None], starts=torch.from_numpy(starts))
