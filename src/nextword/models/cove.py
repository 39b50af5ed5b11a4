"""CoVe: word vectors that know their context, which an encoder has learnt by translating.

McCann, Bradbury, Xiong & Socher, "Learned in Translation: Contextualized Word Vectors" (2017).

    source ─ GloVe, fixed ─▶ two layers of LSTM from both sides: MT-LSTM ─▶ CoVe(w) (B, S, 2 H)
                                                                               │ attention (Luong)
    target ─ E ─▶ two layers of LSTM, each step told what the last one saw ────┴─▶ softmax over the words of the text

    afterwards     w̃ = [GloVe(w); CoVe(w)] is what a classifier reads (heads/biattentive.py), and all of it stays fixed

Against seq2seq: the source has vectors of its own, given by a file (`furnish`) and never changed; a word that the file
lacks has zeros. One tokenizer serves both sides (tokens/lexicon.py): of its words the first `written` can be written,
and all are read. A target's word beyond them counts as <unk>. The attention's scores have no bias, as Luong's.

`encode` gives GloVe, each layer of the encoder (the last is CoVe), and [GloVe; CoVe].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import NextwordError
from nextword.core.types import Encoding, FramedText, Inputs, State, Vocabulary
from nextword.data.word_vectors import read_words, vectors_for
from nextword.layers.output.char import PartialReadout
from nextword.models.framing import TASKS, frame_texts, frames_for_task
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig

SPREAD = 0.4  # of vectors that nobody has given: about GloVe's


@dataclass(frozen=True)
class CoVeConfig(Seq2SeqConfig):
    width: int = 300
    layers: int = 2
    attention: str = "luong"
    vectors: str = ""  # a file of them, or a name as glove; "": random ones, as fixed
    read: int = 300  # how wide they are
    written: int = 0  # words that can be written, the first of the vocabulary; 0: all

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reverse or not self.bidirectional:
            raise NextwordError(
                "[model] of CoVe reads from both sides and in order: a word's vector is made of what lies before it "
                "and after it. Leave reverse and bidirectional out."
            )


class CoVe(Seq2Seq):
    Config = CoVeConfig
    is_bidirectional = True  # a word's vector is made of all the text
    layer_names: ClassVar = {"glove": 0, "cove": -2, "both": -1}  # names of what `encode` gives, for a classifier

    def __init__(self, config: CoVeConfig, vocabulary: Vocabulary) -> None:
        written = min(config.written or vocabulary.size, vocabulary.size)
        super().__init__(config, vocabulary, config.read, written)
        self.output_size = written
        self.vectors: Tensor
        self.register_buffer("vectors", torch.empty(vocabulary.size, config.read).normal_(0, SPREAD))
        self.unknown = next((id for name, id in vocabulary.special.items() if "unk" in name.lower()), 0)
        self.readout: Any = PartialReadout(self.readout, written, vocabulary.size, self.unknown)
        depth = len(self.encoder.layers)
        self.widths = [config.read, *[self.encoder.width] * depth, config.read + self.encoder.width]

    @classmethod
    def pretrained_words(cls, config: CoVeConfig) -> Sequence[str]:
        """Those that have vectors, for a tokenizer to know."""
        return read_words(config.vectors) if config.vectors else ()

    def word_table(self) -> Tensor:
        return self.vectors

    def load_pretrained_embeddings(self) -> None:
        """Vectors out of their file, once, before training; from then on they are in the run's own files."""
        if self.config.vectors:
            matrix = vectors_for(self.vocabulary, self.config.vectors, self.config.read, "read")
            self.vectors.copy_(torch.from_numpy(matrix))

    # -------------------------------------------------------------------------------------------- the source

    def of_source(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.vectors)

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        layers, _ = super().encode(inputs)
        return [*layers, torch.cat([layers[0], layers[-1]], -1)], None

    def layer_at(self, inputs: Inputs, at: int) -> Tensor:
        """One layer of `encode`; words alone cost nothing."""
        return self.of_source(inputs.ids) if at == 0 else self.encode(inputs)[0][at]

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """A text and its end, as sources are read."""
        end = () if self.vocabulary.end is None else (self.vocabulary.end,)
        return frame_texts([a] if b is None else [a, b], ((), end, end))

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[FramedText]:
        """Of a pair each text by itself: the encoder knows sentences, not pairs of them."""
        if task in TASKS and TASKS[task][1] == 2 and len(texts) == 2:
            return [self.frame(text) for text in texts]
        return frames_for_task(self.frame, task, texts)

    # -------------------------------------------------------------------------------------------- the target

    def _decoded(self, inputs: Inputs, state: State) -> tuple[list[Tensor], Tensor, State]:
        ids = inputs.ids.masked_fill(inputs.ids >= self.output_size, self.unknown)
        return super()._decoded(replace(inputs, ids=ids), state)
