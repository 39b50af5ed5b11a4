"""Base classes of all networks: what a caller may ask of any of them, with a default for everything optional.

    Network             config, vocabulary, files, and every flag and optional method that other packages rely on
    ├─ CausalNetwork    hidden states and a readout → start, step, score, encode: reads left to right
    ├─ WordEncoder      reads sentences word by word, with pretrained word vectors, for taggers
    └─ WordVectorNetwork  one vector per word type, whatever the context: word2vec, GloVe

What a network can *do* is a protocol (`core/protocols.py`): `isinstance(network, Autoregressive)`, `Infilling`,
`Encoder`. What it *is* is an attribute of `Network`, so callers never need `hasattr` or `getattr` with a default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from nextword.core import pytree
from nextword.core.errors import Unsupported, invalid
from nextword.core.types import Encoding, FramedText, Inputs, State, Vocabulary
from nextword.data.word_vectors import Vectors, read_words, vectors_for
from nextword.layers.recurrent import CellTrace
from nextword.models.framing import frame_texts, frames_for_task
from nextword.models.storage import FILE, check_weights, load_checked_weights
from nextword.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_LAYERS, MAX_SIZE = 1000, 1 << 24  # of any network; more is a mistake, or an attack with a foreign recipe
FrameMarks = tuple[Sequence[int], Sequence[int], Sequence[int]]  # ids before, between and after the texts of a frame


# ------------------------------------------------------------------------------------------------ checks of a Config


def check_sizes(config: DataclassInstance) -> None:
    """Check that sizes are positive, but not absurd, and that dropout is a probability; called by each Config."""
    for field in dataclasses.fields(config):
        value = vars(config)[field.name]
        least, most = 0 if field.default == 0 else 1, MAX_LAYERS if field.name.endswith("layers") else MAX_SIZE
        if field.type in ("int", int) and isinstance(value, int) and not least <= value <= most:
            raise invalid(f"model.{field.name}", value, f"must be from {least} to {most:,}.")
        if field.name == "dropout":
            check_fraction(config, "dropout")


def check_fraction(config: DataclassInstance, *names: str) -> None:
    """Check that these fields are probabilities of dropping something: at least 0, below 1."""
    for name in names:
        if not 0 <= vars(config)[name] < 1:
            raise invalid(f"model.{name}", vars(config)[name], "must be at least 0 and below 1.")


def check_choice(config: DataclassInstance, name: str, known: Sequence[str]) -> None:
    if vars(config)[name] not in known:
        raise invalid(f"model.{name}", vars(config)[name], f"is unknown. Use {' or '.join(known)}.")


def check_bits(config: DataclassInstance) -> None:
    bits = vars(config)["bits"]
    if bits not in (0, 8):
        raise invalid("model.bits", bits, "is unknown: use 8 for int8 weights, or 0 for float32.")


# ------------------------------------------------------------------------------------------------ every network


class Network(nn.Module):
    """A model of text: it owns its configuration, its vocabulary and its files.

    Flags have the value that suits most networks; a paper's file overrides what differs. `readout`, `embedding`,
    `extra`, `pooler` and `next_sentence` are submodules, or None where a paper has none. They are set in `__init__`
    because a class attribute would hide a submodule of the same name.
    """

    Config: ClassVar[Any]

    # How it reads
    is_backward: bool = False  # reads texts from the last token to the first
    is_bidirectional: bool = False  # the vector that `encode` gives a token depends on both sides of it
    is_conditional: bool = False  # generates a target from a source (translation, summarization)
    is_stateful: bool = False  # reading in chunks, each from the state after the last, equals reading at once
    is_tagger: bool = False  # models no text; it is trained with a tagging head only
    is_open_vocabulary: bool = False  # reads words without an id by their characters: see `Inputs.characters`
    is_packable: bool = False  # keeps several source-target pairs in one row apart
    recordable: bool = False  # training steps can be captured in a CUDA graph: they never synchronize with the GPU
    window: int | None = None  # how many tokens back it can see; None: no bound
    stride: int = 1  # by how many tokens a full window moves on
    has_sliding_window: bool = False  # when the window is full, it re-reads the last `window - stride` tokens
    chunk: int = 512  # tokens to read at once when scoring a long text
    max_positions: int | None = None  # tokens of one text, where positions are embeddings; None: no bound

    # What it has
    widths: Sequence[int] = ()  # embedding, then each layer: the sizes of what `hidden` or `encode` return
    has_hidden_states: bool = False  # `hidden` and `readout` are there
    has_output_layer: bool = True  # False: weights that came without one; it encodes, but predicts nothing
    is_transformer: bool = False  # blocks of self-attention that write into one residual stream: see `final_norm`
    is_recurrent: bool = False  # a state is carried from step to step: see `trace`
    has_attention: bool = False  # over a source: `attention` and `covered` are there
    has_query_stream: bool = False  # `queries` predicts a token from its position alone (XLNet)
    has_two_directions: bool = False  # two language models, one from each end: `both` and `backward_model` (ELMo)
    has_views: bool = False  # `views` encodes a word from its left side, its right side and both (cross-view training)
    has_auxiliary_decoders: bool = False  # `auxiliary` predicts from restricted views (cross-view training)
    has_flat_scores: bool = False  # `read` scores one array that holds many texts (n-grams)
    has_locked_dropout: bool = False  # dropout masks are kept over a chunk, so it matters where a text is cut
    generates_spans: bool = False  # `begin_blanks` and `begin_span` fill blanks of any length (GLM)
    pools_mean: bool = False  # a text is represented by the mean of its last layer, not by one token
    reinitialized: tuple[str, ...] = ()  # tensors that a warm start leaves at their random values
    num_extra_tokens: int = 0  # special tokens that its frames need beyond the vocabulary: see framing.py
    max_characters: int = 0  # characters per word that it wants in `Inputs.characters`; 0: none
    num_feature_layers: int = 0  # layers of another network that it wants in `Inputs.features`
    layer_names: ClassVar[Mapping[str, int]] = {}  # names for some of the layers that `encode` returns

    # What can be done to it
    can_join: bool = True  # states of rows that have read unequally much can be joined, and continue side by side
    can_quantize: bool = False
    can_compile: bool = False
    can_checkpoint: bool = False
    checkpointing: bool = False  # recompute activations in the backward pass instead of storing them

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.output_size = vocabulary.size  # how many tokens it can predict, the first of the vocabulary
        self.readout: Any = None
        self.embedding: Any = None
        self.extra: nn.Embedding | None = None  # vectors of tokens beyond the vocabulary
        self.pooler: nn.Module | None = None
        self.next_sentence: nn.Module | None = None
        self._num_stored: int | None = None  # weights before they were quantized

    # -------------------------------------------------------------------------------------------- size, place, parts

    @property
    def base(self) -> Network:
        """The network without a task head: itself, unless it has one."""
        return self

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def is_quantized(self) -> bool:
        """Whether the weights are int8: to be used, not trained."""
        return False

    def num_parameters(self) -> int:
        """Count the learned numbers, whatever form they are stored in."""
        return sum(p.numel() for p in self.parameters()) if self._num_stored is None else self._num_stored

    def num_bytes(self) -> int:
        """Memory of the weights."""
        return sum(t.numel() * t.element_size() for t in (*self.parameters(), *self.buffers()))

    def flops_per_token(self, length: int) -> float | None:
        """Floating point operations per training token (forward and backward) in rows of this length; None: unknown."""
        return None

    def word_table(self) -> Tensor | None:
        """(V, D): a vector per vocabulary entry; None where the embedding is no plain table."""
        return self.embedding.weight if isinstance(self.embedding, nn.Embedding) else None

    def stacks(self) -> list[nn.ModuleList]:
        """Stacks of layers that a text passes through, the last layer last; several if a layer has several parts."""
        return []

    # -------------------------------------------------------------------------------------------- optional abilities

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """All layers (B, T, widths[i]); the readout reads the last one."""
        raise Unsupported(f"{type(self).__name__} has no hidden states.", ability="hidden")

    def last_hidden(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        """The last layer of `hidden`, (B, T, D), which may be cheaper than all of them."""
        layers, state = self.hidden(inputs, state)
        return layers[-1], state

    def hidden_at(self, inputs: Inputs, at: Tensor) -> Tensor:
        """The last layer at the flat positions `at` (K,) of the batch's B·T: (K, D)."""
        h, _ = self.last_hidden(inputs, None)
        return h.reshape(-1, h.shape[-1]).index_select(0, at)

    def layer_at(self, inputs: Inputs, at: int) -> Tensor:
        """One layer of `encode` (B, T, D)."""
        network: Any = self
        layer: Tensor = network.encode(inputs)[0][at]
        return layer

    def regularized_activations(self, layers: list[Tensor]) -> tuple[Tensor, Tensor] | None:
        """The last layer before and after dropout, for AR and TAR penalties; None if `hidden` does not return both."""
        return None

    def final_norm(self, x: Tensor) -> Tensor:
        """What the readout would read if this block's output were the last layer's, as the logit lens assumes."""
        raise Unsupported(
            f"{type(self).__name__} is no stack of blocks that write into one residual stream, so its inner layers "
            "make no predictions. Use a Transformer; for a recurrent network, look at its gates.",
            ability="layers",
        )

    def trace(self, inputs: Inputs) -> tuple[list[list[CellTrace]], Tensor]:
        """Every step of one text through every recurrent layer, and what the readout reads (B, T, D).

        A layer has one trace for each direction that it reads in.
        """
        raise Unsupported(
            f"{type(self).__name__} has no recurrent layers, so it has no gates and carries no state through time. "
            "Use an RNN, a GRU or an LSTM; for a Transformer, look at attention.",
            ability="gates",
        )

    def predicted_ids(self, ids: Tensor) -> Tensor:
        """The ids under which tokens are predicted: themselves, unless some count as unknown words."""
        return ids

    def penalty(self) -> Tensor | None:
        """A term that the network adds to every loss; None: no term."""
        return None

    def quantize(self) -> None:
        """Replace the weights by int8 weights, in place."""
        raise Unsupported(
            f"{type(self).__name__} has no int8 form; GPTs and AWD-LSTMs do. Leave the precision out.",
            ability="quantize",
        )

    def compile_training(self) -> None:
        """Let torch.compile fuse the training step."""
        raise Unsupported(f"{type(self).__name__} cannot be compiled.", ability="compile")

    @classmethod
    def pretrained_words(cls, config: Any) -> Sequence[str]:
        """Words of the pretrained vectors that the configuration names, so that a tokenizer can include them."""
        return ()

    def load_pretrained_embeddings(self) -> None:
        """Copy pretrained word vectors into a new network, once; afterwards they are part of its own weights."""

    # -------------------------------------------------------------------------------------------- states

    def initial(self, batch: int) -> State:
        """The state before the first token."""
        return None

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        """Return the state in which row i continues row rows[i] (beam search).

        All rows have read equally many tokens. `searches` lists the sources that remain; None: all of them do.
        """
        return pytree.take(state, rows)

    def join(self, states: Sequence[State]) -> State:
        """Concatenate states along the batch. Consumes the first."""
        return pytree.cat(states)

    def take(self, state: State, rows: Tensor) -> State:
        """Continue with these rows only, each at most once, in this order. Consumes the state."""
        return pytree.take(state, rows)

    def truncate(self, state: State, read: int, count: int) -> State | None:
        """The state after the first `count` of the `read` tokens that a single row has read; None: it is not known.

        Shares memory with the state.
        """
        return state if count == read else None

    def backward_model(self) -> Network | None:
        """The second language model, which reads from right to left, as a network of its own."""
        return None

    # -------------------------------------------------------------------------------------------- frames

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """One text or two with the paper's special tokens around and between them."""
        raise Unsupported(f"{type(self).__name__} has no vectors, so it reads no framed texts.", ability="encode")

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[FramedText]:
        """The frames of one example of a task: "classify", "entail", "similar" or "choose" (framing.py)."""
        return frames_for_task(self.frame, task, texts)

    # -------------------------------------------------------------------------------------------- files

    def save(self, folder: Path) -> list[str]:
        """Write the weights into the folder and return the names of the files."""
        save_file({name: t.contiguous() for name, t in self.state_dict().items()}, str(folder / FILE))
        return [FILE]

    @classmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> Self:
        """Read the weights from the folder; the sizes of the network are compared with them before it is built."""
        check_weights(folder / FILE, lambda: cls(config, vocabulary).state_dict())
        network = cls(config, vocabulary)
        network.load_state_dict(load_checked_weights(folder / FILE))
        return network.eval()

    def reload(self, folder: Path) -> None:
        """Replace the weights by those in the folder."""
        self.load_state_dict(type(self).load(folder, self.config, self.vocabulary).state_dict())


# ------------------------------------------------------------------------------------------------ left to right


class CausalNetwork(Network):
    """Reads left to right. A paper's file defines `hidden` and `readout`; the state None is the beginning of a text."""

    has_hidden_states = True

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]:
        """The first token to read (B,), and the state before it."""
        first = torch.full((batch,), self.vocabulary.begin, dtype=torch.long, device=self.device)
        return first, self.initial(batch)

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one token per row (B,); return log p of the next token (B, V)."""
        layers, state = self.hidden(Inputs(last.unsqueeze(1)), state)
        return self.readout.log_probs(layers[-1][:, -1]), state

    def score(self, ids: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        """log p of tokens 1 … T − 1 of each row, each given those before it: (B, T) → (B, T − 1).

        Positions from `lengths` (B,) on have 0. The returned state of a row shorter than T has read past its end: do
        not use it.
        """
        layers, state = self.hidden(Inputs(ids[:, :-1]), state)
        h, targets = layers[-1], ids[:, 1:]
        log_p = -self.readout.nll(h.reshape(-1, h.shape[-1]), targets.reshape(-1)).view(targets.shape)
        inside = torch.arange(targets.shape[1], device=ids.device) < (lengths - 1).unsqueeze(1)
        return log_p.masked_fill(~inside, 0.0), state

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """A vector per token from each layer (B, T, widths[i])."""
        return self.hidden(inputs, state)

    def frame_marks(self) -> FrameMarks:
        """The ids before, between and after the texts of a frame."""
        end = self.vocabulary.end
        return (self.vocabulary.begin,), () if end is None else (end,), ()

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """begin a, or begin a end b. The last token has read everything, so its vector represents the text.

        Texts are reversed for a network that reads backward, and cut where positions end.
        """
        texts = [a] if b is None else [a, b]
        if self.is_backward:
            texts = [dataclasses.replace(text, ids=text.ids[::-1]) for text in texts]
        return frame_texts(texts, self.frame_marks(), self.max_positions)

    def require_source(self, source: Inputs | None) -> Inputs:
        """Return the source, which a conditional network cannot start without."""
        if source is None:
            raise Unsupported(
                f"{type(self).__name__} generates from a source, and none was given. To model plain text, train "
                "another network (`nextword papers` lists them).",
                ability="score",
            )
        return source


# ------------------------------------------------------------------------------------------------ word by word


class WordEncoder(Network):
    """Reads sentences of whole words. `config.vectors` names a file of word vectors of width `config.vector_width`."""

    is_tagger = True
    is_bidirectional = True

    @classmethod
    def pretrained_words(cls, config: Any) -> Sequence[str]:
        return read_words(config.vectors) if config.vectors and config.vector_width else ()

    def load_pretrained_embeddings(self) -> None:
        if self.config.vectors and self.embedding is not None:
            matrix = vectors_for(self.vocabulary, self.config.vectors, self.config.vector_width)
            with torch.no_grad():
                self.embedding.weight.copy_(torch.from_numpy(matrix))

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """The words of a sentence, and nothing around them."""
        return frame_texts([a] if b is None else [a, b], ((), (), ()))


# ------------------------------------------------------------------------------------------------ word vectors


class WordVectorNetwork(Network):
    """One vector per word, wherever it occurs. It predicts words from nearby words, and models no text.

    `table` holds the vectors; the other parameters serve training only. Special tokens have zero vectors.
    """

    learns_with: str  # the optimizer whose update rule `learn` applies

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.widths = [config.width]

    @property
    def table(self) -> Tensor:
        """(V, D): the word vectors, as parameters that a task head can fine-tune."""
        raise NotImplementedError  # each paper's file

    def word_table(self) -> Tensor:
        return self.table

    @classmethod
    def from_vectors(cls, config: Any, vocabulary: Vocabulary, vectors: Tensor) -> Self:
        """A network with these vectors; whatever else training would need is zero."""
        raise NotImplementedError  # each paper's file

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        special = torch.tensor(list(self.vocabulary.special.values()), dtype=torch.long, device=self.device)
        return [F.embedding(inputs.ids, self.table.index_fill(0, special, 0.0))], None  # (B, T, D)

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """The texts alone. A text without words is read as the begin token, whose vector is zero."""
        framed = frame_texts([a] if b is None else [a, b], ((), (), ()))
        if len(framed.ids):
            return framed
        return FramedText(np.array([self.vocabulary.begin], np.int64), 0, text_spans=framed.text_spans)


WORD_TOKENIZERS = ("words", "lexicon", "characters")  # kinds of tokenizers whose tokens are not pieces of words


def word_vectors(network: Network, tokenizer: Tokenizer, name: str = "") -> Vectors:
    """The words that a network knows, with their vectors: its table of word vectors, or else its embedding matrix."""
    table = network.word_table()
    run = name or type(network).__name__
    if tokenizer.kind not in WORD_TOKENIZERS:
        raise Unsupported(
            f"{run} uses {tokenizer.kind} tokens, so it has no vector per word. Use a run whose tokenizer is of kind "
            f"{' or '.join(WORD_TOKENIZERS)}, or a file of vectors."
        )
    if table is None:
        raise Unsupported(
            f"{run} has no table with a vector for each word. To get vectors of words in context, run "
            "`nextword embed RUN FILE --words`."
        )
    matrix = table.detach().float().cpu().numpy()
    special = set(tokenizer.special.values())
    words: dict[str, int] = {}
    for id in range(min(len(tokenizer), len(matrix))):
        word = tokenizer.piece(id).decode("utf-8", "replace").strip()
        if id not in special and word:
            words.setdefault(word, id)
    return Vectors(name or type(network).__name__, list(words), matrix[list(words.values())])
