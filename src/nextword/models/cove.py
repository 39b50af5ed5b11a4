"""CoVe: contextual word vectors from the encoder of a translation model.

McCann, Bradbury, Xiong & Socher, "Learned in Translation: Contextualized Word Vectors" (2017).

    source ─ GloVe, fixed ─▶ two bidirectional LSTM layers: MT-LSTM ─▶ CoVe(w) (B, S, 2 H)
                                                                          │ attention (Luong)
    target ─ E ─▶ two LSTM layers with input feeding ─────────────────────┴─▶ softmax over the output words

    afterwards     w̃ = [GloVe(w); CoVe(w)] is what a classifier reads (tasks/heads.py), and all of it stays fixed

Differences from seq2seq (seq2seq.py):
- the source has fixed word vectors from a file; a word that the file lacks has zeros;
- one tokenizer serves both sides: all of its words can be read, the first `output_words` can be generated, and other
  target words count as <unk>;
- the attention scores have no bias, as Luong's.

`encode` returns GloVe, each layer of the encoder (the last is CoVe), and [GloVe; CoVe].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import InvalidSetting
from nextword.core.types import Encoding, FramedText, Inputs, State, Vocabulary
from nextword.data.word_vectors import read_words, vectors_for
from nextword.layers.output.char import PartialReadout
from nextword.models.framing import TASKS, frame_texts, frames_for_task
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig

SPREAD = 0.4  # of random vectors: about that of GloVe


@dataclass(frozen=True)
class CoVeConfig(Seq2SeqConfig):
    width: int = 300
    layers: int = 2
    attention: str = "luong"
    vectors: str = ""  # a file of word vectors, or a name such as glove; "": random ones, fixed too
    vector_width: int = 300  # width of the word vectors
    output_words: int = 0  # words that can be generated, the first of the vocabulary; 0: all

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reverse_source or not self.bidirectional:
            raise InvalidSetting(
                "CoVe reads the source in both directions and in order. Remove reverse and bidirectional from [model].",
                key="model.reverse_source" if self.reverse_source else "model.bidirectional",
                value=self.reverse_source if self.reverse_source else self.bidirectional,
            )


class CoVe(Seq2Seq):
    Config = CoVeConfig
    is_bidirectional = True
    layer_names: ClassVar = {"glove": 0, "cove": -2, "both": -1}

    def __init__(self, config: CoVeConfig, vocabulary: Vocabulary) -> None:
        output_size = min(config.output_words or vocabulary.size, vocabulary.size)
        super().__init__(config, vocabulary, config.vector_width, output_size)
        self.vectors: Tensor
        self.register_buffer("vectors", torch.empty(vocabulary.size, config.vector_width).normal_(0, SPREAD))
        self.unknown = next((id for name, id in vocabulary.special.items() if "unk" in name.lower()), 0)
        self.readout = PartialReadout(self.readout, output_size, vocabulary.size, self.unknown)
        depth = len(self.encoder.layers)
        self.widths = [config.vector_width, *[self.encoder.width] * depth, config.vector_width + self.encoder.width]

    @classmethod
    def pretrained_words(cls, config: CoVeConfig) -> Sequence[str]:
        return read_words(config.vectors) if config.vectors else ()

    def word_table(self) -> Tensor:
        return self.vectors

    def load_pretrained_embeddings(self) -> None:
        if self.config.vectors:
            matrix = vectors_for(self.vocabulary, self.config.vectors, self.config.vector_width)
            self.vectors.copy_(torch.from_numpy(matrix))

    # -------------------------------------------------------------------------------------------- the source

    def embed_source(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.vectors)

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        layers, _ = super().encode(inputs)
        return [*layers, torch.cat([layers[0], layers[-1]], -1)], None

    def layer_at(self, inputs: Inputs, at: int) -> Tensor:
        """One layer of `encode`; GloVe alone needs no LSTM."""
        return self.embed_source(inputs.ids) if at == 0 else self.encode(inputs)[0][at]

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """A text and its end token, as sources are read."""
        end = () if self.vocabulary.end is None else (self.vocabulary.end,)
        return frame_texts([a] if b is None else [a, b], ((), end, end))

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[FramedText]:
        """Each text of a pair by itself, because the encoder has only seen single sentences."""
        if task in TASKS and TASKS[task][1] == 2 and len(texts) == 2:
            return [self.frame(text) for text in texts]
        return frames_for_task(self.frame, task, texts)

    # -------------------------------------------------------------------------------------------- the target

    def _decode(self, inputs: Inputs, state: State) -> tuple[list[Tensor], Tensor, State]:
        ids = inputs.ids.masked_fill(inputs.ids >= self.output_size, self.unknown)
        return super()._decode(replace(inputs, ids=ids), state)
