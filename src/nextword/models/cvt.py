"""Cross-view training: parts of a network that see only part of a sentence learn from the part that sees all of it.

Clark, Luong, Manning & Le, "Semi-Supervised Sequence Modeling with Cross-View Training" (2018).

**Tagging (`CVT`).** A BiLSTM tagger learns from labeled sentences. On unlabeled ones, auxiliary heads that see less
learn what the full head predicts (tasks/cross_view.py), which makes the encoder put more into what they see.

    word         GloVe, times a learned number ─┐
    characters   CNN of widths 2, 3, 4 ─────────┴─▶ LSTM₁ → from the left:  uni_fw ┐           ┌ bi_fw
                                                    LSTM₁ ← from the right: uni_bw ┴─▶ LSTM₂ ─┴ bi_bw
                                                                              └── [uni; bi] ──┘

uni_fw has read the words up to its own and nothing beyond: LSTM₁ is two networks side by side, and only LSTM₂ reads
both. Both have projections (Sak et al. 2014); at the paper's sizes that of LSTM₂ would map 512 to 512 and is left out.
Dropout differs between labeled and unlabeled sentences, so it is an argument.

**Translation (`CVTSeq2Seq`, section 3.4).** The translator is Luong's (seq2seq.py) without input feeding. Two auxiliary
decoders share its embedding and LSTM, and have their own attention, output layer and softmax:

                            ┌─ attention ─ out ─ softmax        primary: y_t; it is used, and learns from pairs
    E y_{t−1} ─ LSTM ─ s_t ─┼─ attention ─ out ─ softmax        dropped: y_t, with part of its attention set to zero
                            └─ attention ─ out ─ softmax        future: y_{t+1}, without having seen y_t

On sources without translations, they learn what the primary decoder generates (objectives/seq2seq.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.attention import luong_attention
from nextword.layers.char_cnn import CharacterEncoder
from nextword.layers.output.softmax import FullSoftmax
from nextword.layers.recurrent import BiLSTM
from nextword.models.base import WordEncoder, check_fraction, check_sizes
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig


@dataclass(frozen=True)
class CVTConfig:
    vectors: str = ""  # a file of word vectors, or a name such as glove; "": random ones, which are trained
    vector_width: int = 300  # width of the word vectors
    finetune_vectors: bool = True  # fine-tune word vectors from a file
    character_width: int = 50  # width of a character embedding
    filters: Sequence[Sequence[int]] = field(default_factory=lambda: [[2, 100], [3, 100], [4, 100]])  # width, number
    max_word_length: int = 20  # characters of a word that are read, begin and end marks included
    width: int = 1024  # of LSTM₁, per direction
    second_width: int = 512  # of LSTM₂, per direction
    projection: int = 512  # width of a step's output, per direction; none if not below the LSTM's own width
    dropout: float = 0.5  # on labeled sentences

    def __post_init__(self) -> None:
        check_sizes(self)


class Views(NamedTuple):
    """What the heads see of each word, (B, T, ·) each."""

    words: Tensor
    left: Tensor  # uni_fw: the word and those before it
    right: Tensor  # uni_bw: the word and those after it
    both: Tensor  # [uni_fw; uni_bw; bi_fw; bi_bw]


class CVT(WordEncoder):
    Config = CVTConfig
    has_views = True

    def __init__(self, config: CVTConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.embedding = nn.Embedding(vocabulary.size, config.vector_width)
        reach = (3 / config.vector_width) ** 0.5
        nn.init.uniform_(self.embedding.weight, -reach, reach)
        self.embedding.requires_grad_(config.finetune_vectors or not config.vectors)
        self.scale = nn.Parameter(torch.ones(()))
        self.spelling = CharacterEncoder("cnn", config.character_width, config.filters, 0, 0.0)
        inputs = config.vector_width + self.spelling.width
        self.first = BiLSTM(inputs, config.width, config.projection)
        self.second = BiLSTM(self.first.width, config.second_width, config.projection)
        for layer in (self.first, self.second):
            init_lstm(layer.lstm)
        self.widths = [inputs, self.first.width, self.first.width + self.second.width]

    @property
    def max_characters(self) -> int:  # type: ignore[override]
        return self.config.max_word_length

    def views(self, inputs: Inputs, dropout: float = 0.0) -> Views:
        token_mask = (
            inputs.token_mask if inputs.token_mask is not None else torch.ones_like(inputs.ids, dtype=torch.bool)
        )
        assert inputs.characters is not None
        words = _drop(self.embedding(inputs.ids), dropout) * self.scale
        x = torch.cat([words, _drop(self.spelling(inputs.characters), dropout)], -1)
        uni = _drop(self.first(x, token_mask, inputs.sizes), dropout)
        bi = _drop(self.second(uni, token_mask, inputs.sizes), dropout)
        left, right = uni.chunk(2, -1)
        return Views(x, left, right, torch.cat([uni, bi], -1))

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """The input (B, T, I), LSTM₁, and [LSTM₁; LSTM₂]."""
        views = self.views(inputs, self.config.dropout if self.training else 0.0)
        return [views.words, torch.cat([views.left, views.right], -1), views.both], None


def _drop(x: Tensor, p: float) -> Tensor:
    return F.dropout(x, p) if p else x


@torch.no_grad()
def init_lstm(lstm: nn.LSTM) -> None:
    """Initialize as the authors do: Glorot over all four gates together, and an open forget gate."""
    narrow = lstm.proj_size or lstm.hidden_size
    for name, p in lstm.named_parameters():
        if p.dim() == 1:  # torch has two biases per gate; one is enough
            p.zero_()
            if name.startswith("bias_ih"):
                p[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0
        elif name.startswith("weight_hr"):
            nn.init.xavier_uniform_(p)
        else:
            reach = (6 / (lstm.input_size + narrow + 4 * lstm.hidden_size)) ** 0.5
            p.uniform_(-reach, reach)


AHEAD = {"dropped": 0, "future": 1}  # view → how many words beyond the next one it predicts


@dataclass(frozen=True)
class CVTSeq2SeqConfig(Seq2SeqConfig):
    attention: str = "luong"
    input_feeding: bool = False  # with input feeding, each decoder would need an LSTM of its own
    attention_dropout: float = 0.5  # share of the attention that the decoder "dropped" loses

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention != "luong" or self.input_feeding:
            raise InvalidSetting(
                f"[model] attention = '{self.attention}', input_feeding = {str(self.input_feeding).lower()}: decoders "
                "that share an LSTM need attention = 'luong' and input_feeding = false.",
                key="model.input_feeding" if self.input_feeding else "model.attention",
                value=self.input_feeding or self.attention,
            )
        check_fraction(self, "attention_dropout")


class AuxiliaryDecoder(nn.Module):
    """What an auxiliary decoder has of its own: attention, output layer and softmax."""

    def __init__(self, config: CVTSeq2SeqConfig, memory: int, size: int, zeroed: float = 0.0) -> None:
        super().__init__()
        self.zeroed = zeroed
        self.source_attention = luong_attention(config.width, memory, config.attention_score, config.scaled_score)
        self.out = nn.Linear(memory + config.width, config.width, bias=False)
        self.readout = FullSoftmax(config.width, size)

    def forward(self, s: Tensor, memory: Tensor, token_mask: Tensor) -> Tensor:
        """(B, T, D), (B, S, M), (B, S) → (B, T, D)."""
        context, weights = self.source_attention(s, self.source_attention.keys(memory), memory, token_mask)
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
            {
                "dropped": AuxiliaryDecoder(config, memory, size, config.attention_dropout),
                "future": AuxiliaryDecoder(config, memory, size),
            }
        )

    def auxiliary(self, inputs: Inputs) -> dict[str, tuple[Tensor, int]]:
        """View → log p (B, T, V) after each token, and how many words beyond the next one it predicts."""
        state: Any = self.begin(inputs.source)
        s, _ = self._run_decoder(self._drop(self.embedding(inputs.ids)), state["cells"])
        predictions = {}
        for name, view in self.views.items():
            h = self._drop(view(s, state["memory"], state["there"]))
            log_p = view.readout.log_probs(h.flatten(0, 1))  # type: ignore[operator, union-attr]
            predictions[name] = log_p.view(*h.shape[:2], -1), AHEAD[name]
        return predictions
