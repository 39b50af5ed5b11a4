"""Cross-view training: an encoder whose halves, each of which sees a part of a sentence, learn from the whole.

Clark, Luong, Manning & Le, "Semi-Supervised Sequence Modeling with Cross-View Training" (2018). A BiLSTM tagger
(tagger.py) learns from sentences that somebody has tagged. Here sentences without tags teach it besides: what the head
that sees everything says of them is learnt by heads that see less (heads/views.py), and to please those, the encoder
has to put more into what they see.

    word     GloVe, times a number that is learnt ─┐
    letters  filters of widths 2, 3, 4, and of ────┴─▶ LSTM₁ → from the left:  uni_fw ┐           ┌ bi_fw
             each its greatest value                   LSTM₁ ← from the right: uni_bw ┴─▶ LSTM₂ ─┴ bi_bw
                                                                                 └── [uni; bi] ──┘

`forwards` of uni_fw has read the words up to its own, and nothing beyond: LSTM₁ is two networks side by side, and only
LSTM₂ reads from both. Both have projections (Sak et al. 2014); at the paper's sizes that of LSTM₂ would be from 512 to
512, and is left out. Dropout is on what each part gives, fresh at every word. How much is an argument: less is dropped
from sentences without tags, and nothing where a target is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract import Inputs, State, Vocabulary
from nextword.layers.bilstm import BiLSTM
from nextword.layers.spelling import Spelling
from nextword.models.causal import check_sizes
from nextword.models.word_by_word import WordByWord


@dataclass(frozen=True)
class CVTConfig:
    vectors: str = ""  # a file of vectors of words, or a name as glove; "": they are drawn, and learnt
    words: int = 300  # how wide they are
    tuned: bool = True  # vectors from a file are trained on
    letters: int = 50  # width of a letter's vector
    filters: Sequence[Sequence[int]] = field(default_factory=lambda: [[2, 100], [3, 100], [4, 100]])  # width, number
    longest: int = 20  # letters of a word that are read, marks included
    width: int = 1024  # of the first LSTM, a side
    inner: int = 512  # of the second
    projection: int = 512  # what a step of either gives, a side; not below the LSTM's own width: no projection
    dropout: float = 0.5  # of sentences with tags

    def __post_init__(self) -> None:
        check_sizes(self)


class Seen(NamedTuple):
    """What there is to see of each word, (B, T, ·) each."""

    words: Tensor
    left: Tensor  # uni_fw: the word and those before it
    right: Tensor  # uni_bw: the word and those after it
    both: Tensor  # [uni_fw; uni_bw; bi_fw; bi_bw]


class CVT(WordByWord):
    Config = CVTConfig
    two_sided = True
    embedding: nn.Embedding

    def __init__(self, config: CVTConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.embedding = nn.Embedding(vocabulary.size, config.words)
        reach = (3 / config.words) ** 0.5
        nn.init.uniform_(self.embedding.weight, -reach, reach)
        self.embedding.requires_grad_(config.tuned or not config.vectors)
        self.scale = nn.Parameter(torch.ones(()))
        self.spelling = Spelling("cnn", config.letters, config.filters, 0, 0.0)
        inputs = config.words + self.spelling.width
        self.first = BiLSTM(inputs, config.width, config.projection)
        self.second = BiLSTM(self.first.width, config.inner, config.projection)
        for layer in (self.first, self.second):
            begun(layer.lstm)
        self.widths = [inputs, self.first.width, self.first.width + self.second.width]

    @property
    def longest(self) -> int:
        """Letters of a word that are to be given."""
        return self.config.longest

    # -------------------------------------------------------------------------------------------- what it computes

    def views(self, inputs: Inputs, dropout: float = 0.0) -> Seen:
        there = inputs.padding if inputs.padding is not None else torch.ones_like(inputs.ids, dtype=torch.bool)
        assert inputs.characters is not None
        words = _dropped(self.embedding(inputs.ids), dropout) * self.scale
        x = torch.cat([words, _dropped(self.spelling(inputs.characters), dropout)], -1)
        uni = _dropped(self.first(x, there, inputs.sizes), dropout)
        bi = _dropped(self.second(uni, there, inputs.sizes), dropout)
        left, right = uni.chunk(2, -1)
        return Seen(x, left, right, torch.cat([uni, bi], -1))

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """What is read (B, T, I), the first LSTM, and both LSTMs beside each other."""
        seen = self.views(inputs, self.config.dropout if self.training else 0.0)
        return [seen.words, torch.cat([seen.left, seen.right], -1), seen.both], None


def _dropped(x: Tensor, share: float) -> Tensor:
    return F.dropout(x, share) if share else x


@torch.no_grad()
def begun(lstm: nn.LSTM) -> None:
    """As the authors' LSTM begins: Glorot's spread over all four gates together, and a forget gate that is open."""
    narrow = lstm.proj_size or lstm.hidden_size
    for name, p in lstm.named_parameters():
        if p.dim() == 1:  # two for every gate, of which one does the work
            p.zero_()
            if name.startswith("bias_ih"):
                p[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0
        elif name.startswith("weight_hr"):
            nn.init.xavier_uniform_(p)
        else:
            reach = (6 / (lstm.input_size + narrow + 4 * lstm.hidden_size)) ** 0.5
            p.uniform_(-reach, reach)
