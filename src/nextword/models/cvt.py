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

Cross-view training of a translator: sources that nobody has translated teach it besides.

Clark, Luong, Manning & Le, "Semi-Supervised Sequence Modeling with Cross-View Training" (2018), section 3.4. The
translator is Luong's (seq2seq.py), without feeding. Beside its decoder, the primary one, stand two that share its words
and its LSTM, and have attention, output and softmax of their own:

                            ┌─ look ─ out ─ softmax        the primary: y_t; it is used, and learns from pairs
    E y_{t−1} ─ LSTM ─ s_t ─┼─ look ─ out ─ softmax        dropped: y_t, with a part of its attention taken away
                            └─ look ─ out ─ softmax        future: y_{t+1}, of which it has not seen the word before

What the primary writes of a source they learn to say (objectives/cross_view_sequence.py). They are not used otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.attention import luong_attention
from nextword.layers.bilstm import BiLSTM
from nextword.layers.char_cnn import Spelling
from nextword.layers.output.softmax import FullSoftmax
from nextword.models.base import WordEncoder, check_sizes
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig


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


class CVT(WordEncoder):
    Config = CVTConfig

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
    def max_characters(self) -> int:
        """Letters of a word that are to be given."""
        return self.config.longest

    # -------------------------------------------------------------------------------------------- what it computes

    def views(self, inputs: Inputs, dropout: float = 0.0) -> Seen:
        there = inputs.token_mask if inputs.token_mask is not None else torch.ones_like(inputs.ids, dtype=torch.bool)
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


AHEAD = {"dropped": 0, "future": 1}  # view → how many words beyond the next one it says


@dataclass(frozen=True)
class CVTSeq2SeqConfig(Seq2SeqConfig):
    attention: str = "luong"
    feeding: bool = False  # a step that were told what was seen would be another for each decoder
    zeroed: float = 0.5  # of the attention of the decoder that loses some

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention != "luong" or self.feeding:
            raise NextwordError(
                "[model] decoders that share their LSTM need attention = 'luong' and feeding = false; given were "
                f"'{self.attention}' and {str(self.feeding).lower()}."
            )
        if not 0 <= self.zeroed < 1:
            raise NextwordError(f"[model] zeroed = {self.zeroed} is a share of the attention, from 0 up to below 1.")


class View(nn.Module):
    """What a decoder has of its own."""

    def __init__(self, config: CVTSeq2SeqConfig, memory: int, size: int, zeroed: float = 0.0) -> None:
        super().__init__()
        self.zeroed = zeroed
        self.look = luong_attention(config.width, memory, config.score, config.scaled)
        self.out = nn.Linear(memory + config.width, config.width, bias=False)
        self.readout = FullSoftmax(config.width, size)

    def forward(self, s: Tensor, memory: Tensor, there: Tensor) -> Tensor:
        """(B, T, D), (B, S, M), (B, S) → (B, T, D)."""
        context, weights = self.look(s, self.look.keys(memory), memory, there)
        if self.zeroed and self.training:
            context = F.dropout(weights, self.zeroed).to(memory.dtype) @ memory
        return torch.tanh(self.out(torch.cat([context, s], -1)))


class CVTSeq2Seq(Seq2Seq):
    Config = CVTSeq2SeqConfig
    has_auxiliary_decoders = True

    def __init__(self, config: CVTSeq2SeqConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        memory, size = self.encoder.width, vocabulary.size
        self.views = nn.ModuleDict(
            {"dropped": View(config, memory, size, config.zeroed), "future": View(config, memory, size)}
        )

    def auxiliary(self, inputs: Inputs) -> dict[str, tuple[Tensor, int]]:
        """View → what it says after each token that was read, as log p (B, T, V), and of which word: so many beyond the
        next."""
        state: Any = self.begin(inputs.source)
        s, _ = self._onward(self._dropped(self.embedding(inputs.ids)), state["cells"])
        found = {}
        for name, view in self.views.items():
            h = self._dropped(view(s, state["memory"], state["there"]))
            log_p = view.readout.log_probs(h.flatten(0, 1))  # type: ignore[operator, union-attr]
            found[name] = log_p.view(*h.shape[:2], -1), AHEAD[name]
        return found
