"""A network that reads sentences word by word from both sides, for a tag on every word: names, chunks, parts of speech.

Huang, Xu & Yu, "Bidirectional LSTM-CRF Models for Sequence Tagging" (2015); with letters from an LSTM, Lample et al.,
"Neural Architectures for Named Entity Recognition" (2016); from a convolution, Ma & Hovy, "End-to-end Sequence Labeling
via Bi-directional LSTM-CNNs-CRF" (2016); with vectors of another network, Peters et al., "Deep contextualized word
representations" (2018).

    word      GloVe(lower case) ─┐
    letters   cnn or lstm ───────┼─▶ dropout ─▶ LSTM from both sides ─▶ dropout ─▶ [h; mix] ─▶ the head: heads/tags.py
    capitals  (if asked for) ────┤               as many as `layers`                   ▲
    context   γ Σ s_j h_j ───────┴─────────────── at the input, at the output, or both ┘

Tags are the head's affair (softmax or CRF), which is the same over any network. Dropout is locked: one mask for a whole
sentence. `unknown` is another: whole words are taken away and their letters left, so that neither letters nor
neighbours is neglected. The vectors of words come from a file (`furnish`) and are trained on unless `tuned` is false; a
word that the file lacks begins with zeros. Vectors in context are given with the sentence (`Inputs.features`), as the
layers of a run that stays as it is; which run, `contextual` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.bilstm import BiLSTM
from nextword.layers.char_cnn import Spelling, capitals
from nextword.layers.dropout import locked
from nextword.layers.scalar_mix import ScalarMix
from nextword.models.base import WordEncoder, check_sizes

PLACES = ("input", "output", "both")


@dataclass(frozen=True)
class TaggerConfig:
    vectors: str = ""  # a file of vectors of words, or a name as glove; "": they are drawn, and learnt
    words: int = 0  # how wide they are; 0: words are known by their letters alone
    tuned: bool = True  # vectors from a file are trained on
    characters: str = "cnn"  # or lstm; "": letters are not read
    letters: int = 30  # width of a letter's vector
    filters: Sequence[Sequence[int]] = field(default_factory=lambda: [[3, 30]])  # of a cnn: width, number
    inner: int = 25  # of an lstm, a side
    longest: int = 32  # letters of a word that are read, marks included
    capitals: int = 0  # width of a vector for how a word is capitalised; 0: none
    unknown: float = 0.0  # share of the words that training reads as unknown, known by their letters alone
    width: int = 200  # of the LSTM, a side
    layers: int = 1
    dropout: float = 0.5
    contextual: str = ""  # a run whose layers are read besides
    contextual_layers: int = 0  # how many it has, and how wide they are: found out when the run is opened
    contextual_width: int = 0
    contextual_of: str = ""  # the fingerprint of its files, found out likewise
    contextual_at: str = "input"  # where they go in: input, output or both, each with a mix of its own
    contextual_norm: bool = False  # layers are brought to one scale first
    contextual_dropout: float = 0.0  # of what was mixed, besides `dropout`, which is of all that an LSTM reads
    contextual_l2: float = 0.0  # λ ‖s‖² on the scores of the mix: large keeps them equal

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.contextual_at not in PLACES:
            raise NextwordError(f"[model] contextual_at = {self.contextual_at!r}; expected {' or '.join(PLACES)}.")
        for name in ("contextual_dropout", "unknown"):
            if not 0 <= getattr(self, name) < 1:
                raise NextwordError(f"[model] {name} = {getattr(self, name)} is a share, below 1.")
        if not (self.words or self.characters or self.contextual_layers):
            raise NextwordError("[model] has neither words nor characters nor contextual: there is nothing to read.")

    def mixes(self, place: str) -> bool:
        return bool(self.contextual_layers) and self.contextual_at in (place, "both")


class Tagger(WordEncoder):
    Config = TaggerConfig

    def __init__(self, config: TaggerConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        inputs = 0
        self.embedding: nn.Embedding | None = None
        if config.words:
            self.embedding = nn.Embedding(vocabulary.size, config.words)
            reach = (3 / config.words) ** 0.5
            nn.init.uniform_(self.embedding.weight, -reach, reach)
            self.embedding.requires_grad_(config.tuned or not config.vectors)
            inputs += config.words
        self.spelling: Spelling | None = None
        if config.characters:
            own = config.characters, config.letters, config.filters, config.inner, config.dropout
            self.spelling = Spelling(*own)
            inputs += self.spelling.width
        self.capitals: nn.Embedding | None = None
        if config.capitals:
            self.capitals = nn.Embedding(5, config.capitals)
            inputs += config.capitals
        sides = [place for place in ("input", "output") if config.mixes(place)]
        how = config.contextual_layers, config.contextual_norm, config.contextual_l2, config.contextual_dropout
        self.mixes = nn.ModuleDict({side: ScalarMix(*how) for side in sides})
        inputs += config.contextual_width if "input" in sides else 0
        sizes = [inputs] + [2 * config.width] * (config.layers - 1)
        self.layers = nn.ModuleList(BiLSTM(size, config.width) for size in sizes)
        self.widths = [inputs, *[2 * config.width] * config.layers]
        self.widths[-1] += config.contextual_width if "output" in sides else 0

    @property
    def max_characters(self) -> int:
        """Letters of a word that are to be given; 0: none."""
        return self.config.longest if self.spelling is not None or self.capitals is not None else 0

    @property
    def num_feature_layers(self) -> int:
        """Layers of vectors in context that are to be given with a sentence."""
        return self.config.contextual_layers

    # -------------------------------------------------------------------------------------------- what it computes

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """What is read (B, T, I), and each layer (B, T, 2 width), the last with the mix beside it."""
        there = inputs.token_mask if inputs.token_mask is not None else torch.ones_like(inputs.ids, dtype=torch.bool)
        parts = []
        if self.embedding is not None:
            parts.append(self.embedding(self._forgotten(inputs.ids)))
        if self.max_characters:
            assert inputs.characters is not None
            if self.spelling is not None:
                parts.append(self.spelling(inputs.characters))
            if self.capitals is not None:
                parts.append(self.capitals(capitals(inputs.characters)))
        if "input" in self.mixes:
            parts.append(self._mixed("input", inputs, there))
        x = torch.cat(parts, -1)
        found = [x]
        for layer in self.layers:
            x = self._dropped(layer(self._dropped(x), there))
            found.append(x)
        if "output" in self.mixes:
            found[-1] = torch.cat([x, self._mixed("output", inputs, there)], -1)
        return found, None

    def _forgotten(self, ids: Tensor) -> Tensor:
        """In training, some words are as if nobody knew them; <unk> learns by that what such words have in common."""
        nobody = self.vocabulary.special.get("<unk>")
        if not self.training or not self.config.unknown or nobody is None:
            return ids
        return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.config.unknown, nobody)

    def _mixed(self, place: str, inputs: Inputs, there: Tensor) -> Tensor:
        if inputs.features is None:
            raise NextwordError(f"This tagger reads vectors in context too, of {self.config.contextual}: give them.")
        mix = self.mixes[place]
        return mix(inputs.features.to(next(mix.parameters()).dtype), there)

    def _dropped(self, x: Tensor) -> Tensor:
        """(B, T, D), the same for all words of a sentence."""
        return locked(x.transpose(0, 1), self.config.dropout, self.training).transpose(0, 1)

    @property
    def learnt(self) -> dict[str, tuple[list[float], float]]:
        """Of each place where layers are mixed, their shares and γ."""
        return {place: (mix.shares.tolist(), mix.gamma.item()) for place, mix in self.mixes.items()}  # type: ignore

    def penalty(self) -> Tensor | None:
        """λ Σ ‖s‖² over the mixes, to be added to the loss; None where there is none."""
        if not self.mixes or not self.config.contextual_l2:
            return None
        return torch.stack([mix.penalty() for mix in self.mixes.values()]).sum()  # type: ignore[operator]
