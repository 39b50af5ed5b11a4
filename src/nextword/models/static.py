"""What networks have in common that give every word one vector, wherever it stands: a table, and a place to look it up.

They predict words from words near them and model no text, so there is nothing to score and nothing to go on writing.
`vectors` are what came of it; the rest was for learning. Special tokens have zeros: they stand for no word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract import Encoding, Framed, Inputs, State, Vocabulary
from nextword.contract_errors import Unsupported
from nextword.contract_protocols import Tokenizer
from nextword.corpora.vectors import Vectors
from nextword.models.causal import Saved
from nextword.models.frames import arrange, dress


class Static(Saved):
    """`encode` and frames from `vectors`."""

    readout = None  # of no next word
    learns_with: str  # the optimizer whose steps `learn` takes
    widths: list[int]

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.widths = [config.width]

    @property
    def table(self) -> Tensor:
        """(V, D): a vector a word, as weights that a head over the network can train."""
        raise NotImplementedError  # each paper's file

    @property
    def vectors(self) -> Tensor:
        """(V, D): the same, as numbers."""
        return self.table.detach()

    @classmethod
    def of_vectors(cls, config: Any, vocabulary: Vocabulary, vectors: Tensor) -> Any:
        """A network that has these; what others have learnt, there is nothing to go on from."""
        raise NotImplementedError

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        return [F.embedding(inputs.ids, self._known)], None

    @property
    def _known(self) -> Tensor:
        special = torch.tensor(list(self.vocabulary.special.values()), dtype=torch.long, device=self.device)
        return self.table.index_fill(0, special, 0.0)

    def frame(self, a: Encoding, b: Encoding | None = None) -> Framed:
        """Texts as they are. One without words is the token that texts begin with, which has zeros."""
        framed = dress([a] if b is None else [a, b], ((), (), ()))
        if len(framed.ids):
            return framed
        return Framed(np.array([self.vocabulary.begin], np.int64), 0, parts=framed.parts)

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[Framed]:
        return arrange(self.frame, task, texts)


WHOLE = ("words", "lexicon", "characters")  # kinds of tokenizers whose tokens are not pieces of words


def word_table(network: Any, tokenizer: Tokenizer, name: str = "") -> Vectors:
    """The words that a network knows and the vectors it reads them by: its `vectors`, or else its embedding."""
    table = getattr(network, "vectors", None)
    if table is None and isinstance(getattr(network, "embedding", None), nn.Embedding):
        table = network.embedding.weight
    if not isinstance(table, Tensor) or tokenizer.kind not in WHOLE:
        run = name or type(network).__name__
        if tokenizer.kind in WHOLE:
            raise Unsupported(
                f"{run} has no table with a vector for each word. Those that it gives words in a text are had with "
                "`nextword embed RUN FILE --words`."
            )
        raise Unsupported(
            f"{run} reads {tokenizer.kind} tokens: it has no vector for each word. Use a run whose tokenizer is of "
            f"kind {' or '.join(WHOLE)}, or a file of vectors."
        )
    matrix = table.detach().float().cpu().numpy()
    special = set(tokenizer.special.values())
    words: dict[str, int] = {}
    for id in range(min(len(tokenizer), len(matrix))):
        word = tokenizer.piece(id).decode("utf-8", "replace").strip()
        if id not in special and word:
            words.setdefault(word, id)
    return Vectors(name or type(network).__name__, list(words), matrix[list(words.values())])
