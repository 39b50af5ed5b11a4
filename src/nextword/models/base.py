"""What every left-to-right network has in common once it can compute `hidden` and has a `readout`.

The mixin turns those two into the Autoregressive contract, into an Encoder, and into a file. It holds no weights.

What networks that read sentences word by word have in common: vectors of words out of a file, and bare frames.

What networks have in common that give every word one vector, wherever it stands: a table, and a place to look it up.

They predict words from words near them and model no text, so there is nothing to score and nothing to go on writing.
`vectors` are what came of it; the rest was for learning. Special tokens have zeros: they stand for no word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Readout, Tokenizer
from nextword.core.types import Encoding, Framed, Inputs, State, Vocabulary
from nextword.data.word_vectors import Vectors, read_words, vectors_for
from nextword.models.framing import arrange, frame_texts

FILE = "model.safetensors"


def check_sizes(config: Any) -> None:
    """Sizes count something, and dropout is a share; called by a Config when it is made."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        least = 0 if field.default == 0 else 1
        if field.type in ("int", int) and isinstance(value, int) and value < least:  # a share may well be 0
            raise NextwordError(f"[model] {field.name} = {value}: it must be at least {least}.")
        if field.name == "dropout" and not 0 <= value < 1:
            raise NextwordError(f"[model] dropout = {value}: it is the share that is dropped, from 0 up to below 1.")


def check_bits(config: Any) -> None:
    if config.bits not in (0, 8):
        raise NextwordError(f"[model] bits = {config.bits}: expected 8, or 0 for weights in 32 bits.")


def need_source(network: Any, source: Inputs | None) -> Inputs:
    """What a network begins with that writes from a source."""
    if source is None:
        raise Unsupported(
            f"{type(network).__name__} writes from a source, and none was given. To model plain text, train a model "
            "that reads it (`nextword papers`)."
        )
    return source


class SafetensorsModule(nn.Module):
    """Weights as safetensors: the way every network is saved that has no file format of its own."""

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary

    def save(self, folder: Path) -> list[str]:
        """Write this network's files into the folder and name them."""
        save_file({name: t.contiguous() for name, t in self.state_dict().items()}, str(folder / FILE))
        return [FILE]

    @classmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> Any:
        network = cls(config, vocabulary)
        found = load_file(str(folder / FILE))
        wanted = network.state_dict()
        wrong = [n for n in wanted if n not in found or found[n].shape != wanted[n].shape] + [
            n for n in found if n not in wanted
        ]
        if wrong:
            raise NextwordError(
                f"{folder / FILE} does not fit its recipe: {', '.join(sorted(wrong)[:5])}. "
                "The recipe or the weights were changed after training; restore either from where it came."
            )
        network.load_state_dict(found)
        return network.eval()

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


class CausalNetwork(SafetensorsModule):
    """start, step, score and encode from `hidden(inputs, state)` and `readout`. A state of None is the beginning."""

    readout: Readout
    widths: list[int]
    window: int | None = None
    is_stateful: bool = False  # a text read in pieces, each from the state after the one before, is read as at once
    num_extra_tokens: int = 0  # that its frames need and its vocabulary lacks; models/frames.py makes room for them

    @property
    def locks(self) -> bool:
        """Whether dropout in training is drawn for each piece that is read, to stay over time, and not for each token.
        It then matters where one that `carries` divides a text."""
        return True

    @property
    def is_backward(self) -> bool:
        """Whether texts are turned round for it: what it reads first is their last token (`[model] backward`)."""
        return bool(getattr(self.config, "backward", False))

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        raise NotImplementedError  # each paper's file

    def initial(self, batch: int) -> State:
        return None

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]:
        first = torch.full((batch,), self.vocabulary.begin, dtype=torch.long, device=self.device)
        return first, self.initial(batch)

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        layers, state = self.hidden(Inputs(last.unsqueeze(1)), state)
        return self.readout.log_probs(layers[-1][:, -1]), state

    def score(self, ids: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        """Rows shorter than T are scored right; their returned state has read past their end and must not be used."""
        layers, state = self.hidden(Inputs(ids[:, :-1]), state)
        h, targets = layers[-1], ids[:, 1:]
        log_p = -self.readout.nll(h.reshape(-1, h.shape[-1]), targets.reshape(-1)).view(targets.shape)
        inside = torch.arange(targets.shape[1], device=ids.device) < (lengths - 1).unsqueeze(1)
        return log_p.masked_fill(~inside, 0.0), state

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        return self.hidden(inputs, state)

    def marks(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """The ids that stand before, between and after the texts of a frame."""
        end = self.vocabulary.end
        return (self.vocabulary.begin,), () if end is None else (end,), ()

    def frame(self, a: Encoding, b: Encoding | None = None) -> Framed:
        """begin a, or begin a end b; the last token has read all and speaks. Texts are turned round where it reads so.

        A Config that has a `window` has positions that end there, so the texts are cut to fit.
        """
        texts = [a] if b is None else [a, b]
        if self.is_backward:
            texts = [dataclasses.replace(text, ids=text.ids[::-1]) for text in texts]
        return frame_texts(texts, self.marks(), getattr(self.config, "window", None))

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[Framed]:
        """The frames of one example of a task: "classify", "entail", "similar" or "choose" (models/frames.py)."""
        return arrange(self.frame, task, texts)


class WordByWord(SafetensorsModule):
    """`config.vectors` names a file or is empty, `config.words` is how wide its vectors are."""

    tags_words = True  # it is trained with a head of tags and models no text
    embedding: nn.Embedding | None

    @classmethod
    def words(cls, config: Any) -> Sequence[str]:
        """Those that have vectors, for a tokenizer to know."""
        return read_words(config.vectors) if config.vectors and config.words else ()

    def load_pretrained_embeddings(self) -> None:
        """Vectors out of their file, once, before training; from then on they are in the run's own files."""
        if self.config.vectors and self.embedding is not None:
            matrix = vectors_for(self.vocabulary, self.config.vectors, self.config.words, "words")
            with torch.no_grad():
                self.embedding.weight.copy_(torch.from_numpy(matrix))

    def frame(self, a: Encoding, b: Encoding | None = None) -> Framed:
        """The words of a sentence, and nothing around them."""
        return frame_texts([a] if b is None else [a, b], ((), (), ()))

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[Framed]:
        return arrange(self.frame, task, texts)


class Static(SafetensorsModule):
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
        framed = frame_texts([a] if b is None else [a, b], ((), (), ()))
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
