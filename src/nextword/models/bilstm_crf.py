"""BiLSTM-CRF: an encoder that reads sentences word by word, for tagging: named entities, chunks, parts of speech.

    word         GloVe(lower case) ─┐
    characters   CNN or LSTM ───────┼─▶ dropout ─▶ BiLSTM × layers ─▶ dropout ─▶ [h; mix] ─▶ tagging head
    (tasks/tagging.py) capitals     optional ──────────┤                                                ▲ context      γ
    Σ s_j h_j ───────┴──────────── at the input, at the output, or both ┘

Huang, Xu & Yu, "Bidirectional LSTM-CRF Models for Sequence Tagging" (2015); characters by an LSTM: Lample et al.,
"Neural Architectures for Named Entity Recognition" (2016); by a CNN: Ma & Hovy, "End-to-end Sequence Labeling via
Bi-directional LSTM-CNNs-CRF" (2016); vectors of another network: Peters et al., "Deep contextualized word
representations" (2018).

The head (softmax or CRF) is the same over any network. Dropout is locked: one mask per sentence. `unknown` replaces
whole words by <unk> in training, so that the network learns to use characters and context. Word vectors come from a
file and are fine-tuned unless `tuned` is false; words that the file lacks start from zero. Contextual vectors are the
frozen layers of another run (`contextual`), given with each sentence in `Inputs.features`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nextword.core.errors import DataError, InvalidSetting
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.char_cnn import CharacterEncoder, capitalization
from nextword.layers.dropout import locked_dropout
from nextword.layers.recurrent import BiLSTM
from nextword.layers.scalar_mix import ScalarMix
from nextword.models.base import WordEncoder, check_choice, check_fraction, check_sizes

PLACES = ("input", "output", "both")


@dataclass(frozen=True)
class TaggerConfig:
    vectors: str = ""  # a file of word vectors, or a name such as glove; "": random ones, which are trained
    vector_width: int = 0  # width of the word vectors; 0: words are read by their characters only
    finetune_vectors: bool = True  # fine-tune word vectors from a file
    characters: str = "cnn"  # or "lstm"; "": characters are not read
    character_width: int = 30  # width of a character embedding
    filters: Sequence[Sequence[int]] = field(default_factory=lambda: [[3, 30]])  # of the CNN: width, number
    character_lstm_width: int = 25  # width of the character LSTM, per direction
    max_word_length: int = 32  # characters of a word that are read, begin and end marks included
    capitalization_width: int = 0  # width of an embedding of the capitalization pattern; 0: none
    unk_probability: float = 0.0  # probability of replacing a word by <unk> in training
    width: int = 200  # of the LSTM, per direction
    layers: int = 1
    dropout: float = 0.5
    contextual: str = ""  # a run whose layers are read too
    contextual_layers: int = 0  # their number and width, filled in when the run is opened
    contextual_width: int = 0
    contextual_fingerprint: str = ""  # fingerprint of the run's files, filled in too
    contextual_place: str = "input"  # where they enter: "input", "output" or "both", each with its own mix
    contextual_norm: bool = False  # normalize the layers before mixing
    contextual_dropout: float = 0.0  # of the mix, in addition to `dropout`
    contextual_l2: float = 0.0  # λ ‖s‖² on the scores of the mix; a large λ keeps them equal

    def __post_init__(self) -> None:
        check_sizes(self)
        check_choice(self, "contextual_place", PLACES)
        check_fraction(self, "contextual_dropout", "unk_probability")
        if not (self.vector_width or self.characters or self.contextual_layers):
            raise InvalidSetting(
                "[model] has neither words nor characters nor contextual, so it has nothing to read. Set one of them.",
                key="model.vector_width",
                value=self.vector_width,
            )

    def mixes(self, place: str) -> bool:
        """Whether contextual vectors enter at this place, "input" or "output"."""
        return bool(self.contextual_layers) and self.contextual_place in (place, "both")


class Tagger(WordEncoder):
    Config = TaggerConfig

    def __init__(self, config: TaggerConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        inputs = 0
        self.embedding: nn.Embedding | None = None
        if config.vector_width:
            self.embedding = nn.Embedding(vocabulary.size, config.vector_width)
            reach = (3 / config.vector_width) ** 0.5
            nn.init.uniform_(self.embedding.weight, -reach, reach)
            self.embedding.requires_grad_(config.finetune_vectors or not config.vectors)
            inputs += config.vector_width
        self.spelling: CharacterEncoder | None = None
        if config.characters:
            own = config.characters, config.character_width, config.filters, config.character_lstm_width, config.dropout
            self.spelling = CharacterEncoder(*own)
            inputs += self.spelling.width
        self.capitals: nn.Embedding | None = None
        if config.capitalization_width:
            self.capitals = nn.Embedding(5, config.capitalization_width)
            inputs += config.capitalization_width
        sides = [place for place in ("input", "output") if config.mixes(place)]
        how = config.contextual_layers, config.contextual_norm, config.contextual_l2, config.contextual_dropout
        self.mixes = nn.ModuleDict({side: ScalarMix(*how) for side in sides})
        inputs += config.contextual_width if "input" in sides else 0
        sizes = [inputs] + [2 * config.width] * (config.layers - 1)
        self.layers = nn.ModuleList(BiLSTM(size, config.width) for size in sizes)
        self.widths = [inputs, *[2 * config.width] * config.layers]
        self.widths[-1] += config.contextual_width if "output" in sides else 0

    @property
    def max_characters(self) -> int:  # type: ignore[override]
        return self.config.max_word_length if self.spelling is not None or self.capitals is not None else 0

    @property
    def num_feature_layers(self) -> int:  # type: ignore[override]
        return self.config.contextual_layers

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """The input (B, T, I), and each layer (B, T, 2 width), the last one with the mix appended."""
        token_mask = (
            inputs.token_mask if inputs.token_mask is not None else torch.ones_like(inputs.ids, dtype=torch.bool)
        )
        parts = []
        if self.embedding is not None:
            parts.append(self.embedding(self._replace_by_unknown(inputs.ids)))
        if self.max_characters:
            assert inputs.characters is not None
            if self.spelling is not None:
                parts.append(self.spelling(inputs.characters))
            if self.capitals is not None:
                parts.append(self.capitals(capitalization(inputs.characters)))
        if "input" in self.mixes:
            parts.append(self._mix("input", inputs, token_mask))
        x = torch.cat(parts, -1)
        layers = [x]
        for layer in self.layers:
            x = self._drop(layer(self._drop(x), token_mask))
            layers.append(x)
        if "output" in self.mixes:
            layers[-1] = torch.cat([x, self._mix("output", inputs, token_mask)], -1)
        return layers, None

    def _replace_by_unknown(self, ids: Tensor) -> Tensor:
        """Replace some words by <unk> in training, whose vector so learns what unknown words have in common."""
        unknown = self.vocabulary.special.get("<unk>")
        if not self.training or not self.config.unk_probability or unknown is None:
            return ids
        return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.config.unk_probability, unknown)

    def _mix(self, place: str, inputs: Inputs, token_mask: Tensor) -> Tensor:
        if inputs.features is None:
            raise DataError(f"This tagger needs `Inputs.features`: the layers of {self.config.contextual}.")
        mix = self.mixes[place]
        return mix(inputs.features.to(next(mix.parameters()).dtype), token_mask)

    def _drop(self, x: Tensor) -> Tensor:
        """(B, T, D), with one mask for all words of a sentence."""
        return locked_dropout(x.transpose(0, 1), self.config.dropout, self.training).transpose(0, 1)

    @property
    def mix_weights(self) -> dict[str, tuple[list[float], float]]:
        """For each place where layers are mixed: their weights and γ."""
        return {place: (mix.shares.tolist(), mix.gamma.item()) for place, mix in self.mixes.items()}  # type: ignore

    def penalty(self) -> Tensor | None:
        """λ Σ ‖s‖² over the mixes."""
        if not self.mixes or not self.config.contextual_l2:
            return None
        return torch.stack([mix.penalty() for mix in self.mixes.values()]).sum()  # type: ignore[operator]
