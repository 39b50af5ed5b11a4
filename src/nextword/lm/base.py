"""The contract of text-level models: plain strings in, plain values out, over any network and any tokenizer.

    ability     methods                                          who has it
    score       score, score_many, token_nats, stream_nats,      language models; masked ones as pseudo-likelihoods
                scored_tokens, token_layers, token_log_probs
    next        next, next_layers                                causal and masked language models
    fill        fill                                             models that see both sides
    generate    generate, generate_many, n_best, n_best_many     causal and sequence-to-sequence models
    infill      infill, infill_many, filling_layers              GLM, T5: blanks of any length
    embed       embed, embed_words                               all networks with vectors inside
    predict     predict                                          fine-tuned runs

Every method is defined here once and raises Unsupported with a reason. A subclass overrides what it can do, and `can`
is computed from what is overridden. What depends on the network rather than the class is removed with `disable`.

A method that a model cannot do is no attribute of it: hasattr(model, "fill") is False, and `model.fill` raises
MissingAbility, an AttributeError with the reason (`AbilityMethod`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import MissingAbility, invalid
from nextword.core.types import (
    EXACT,
    Beam,
    Decoding,
    Encoding,
    Greedy,
    Guess,
    Piece,
    Prediction,
    Progress,
    Score,
    Stop,
    ignore_progress,
)
from nextword.html.formatting import escape, format_count
from nextword.html.notebook import facts_html
from nextword.models.base import Network
from nextword.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from nextword.generation.beam_search import BeamObserver
    from nextword.generation.infilling import Filled

Layer = int | str | Mapping[int, float]  # which layers to read: see `TextModel.embed`

# ability → the method whose overriding gives it
ABILITIES = {
    "score": "score_many",
    "next": "next",
    "fill": "fill",
    "generate": "generate",
    "embed": "embed",
    "predict": "predict",
}
METHODS = {  # method → its ability
    **dict.fromkeys(("score", "score_many", "token_nats", "stream_nats", "windowed_nats"), "score"),
    **dict.fromkeys(("scored_tokens", "token_layers", "token_log_probs"), "score"),
    **dict.fromkeys(("generate", "generate_many", "n_best", "n_best_many"), "generate"),
    **dict.fromkeys(("infill", "infill_many", "filling_layers"), "infill"),
    **dict.fromkeys(("embed", "embed_words"), "embed"),
    "next_layers": "next",
    **{name: name for name in ("next", "fill", "nearest", "predict")},
}
TAKE_A_TEXT = (
    *("score", "next", "fill", "generate", "infill", "n_best", "nearest"),
    *("scored_tokens", "token_layers", "token_log_probs", "next_layers"),
)
TAKE_TEXTS = ("score_many", "generate_many", "n_best_many", "infill_many", "embed")
CALLS = {"score": "score_many", "infill": "infill_many", "n_best": "n_best_many"}  # methods in terms of another


class AbilityMethod:
    """A method that only models with its ability have: getting it from another one raises MissingAbility.

    Its first argument is checked here, for all models.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = _check_first_argument(function)
        self.__doc__ = function.__doc__

    def __get__(self, model: TextModel | None, owner: type[TextModel]) -> Any:
        if model is None:
            return self.function
        if not model.has_method(self.function.__name__):
            raise model.unsupported(METHODS[self.function.__name__])
        return MethodType(self.function, model)


def _check_first_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Raise an error for a list where one text is expected, and for one text where a list is expected."""
    name = function.__name__

    @functools.wraps(function)
    def method(model: TextModel, *args: Any, **kwargs: Any) -> Any:
        if args and name in TAKE_A_TEXT and not isinstance(args[0], str):
            many = f" Use {name}_many for several." if f"{name}_many" in METHODS else ""
            raise invalid("text", args[0], f"must be one text.{many}")
        if args and name in TAKE_TEXTS and isinstance(args[0], (str, bytes)):
            raise invalid("texts", args[0], f"must be a list of texts. Wrap a single one: {name}([text]).")
        return function(model, *args, **kwargs)

    return method


@dataclass(frozen=True)
class Candidate:
    """One of the n best continuations of a beam search."""

    text: str
    score: float  # what they are ranked by: see `Beam`
    log_prob: float  # of the ids, by the model alone
    ids: tuple[int, ...]
    complete: bool  # False: cut at the maximal length, or the rules allowed no further token

    @property
    def tokens(self) -> int:
        return len(self.ids)


class Generation(Iterator[Piece]):
    """A text that is generated while it is read: iterate over its pieces, or take all of it with `.text`.

    str(), a Python prompt and a notebook show all of the text.
    """

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._source = pieces
        self._pieces: list[Piece] = []  # generated so far
        self._position = 0  # of the iteration among them

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Piece:
        if self._position == len(self._pieces):
            self._pieces.append(next(self._source))
        self._position += 1
        return self._pieces[self._position - 1]

    @property
    def pieces(self) -> list[Piece]:
        """All pieces, whether or not the iteration has reached them."""
        self._pieces += self._source
        return list(self._pieces)

    @property
    def text(self) -> str:
        """All of the text, without the prompt."""
        return "".join(piece.text for piece in self.pieces)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Generation({self.text!r})"

    def _repr_html_(self) -> str:
        return f'<div style="white-space:pre-wrap">{escape(self.text)}</div>'


class WordsInContext(NamedTuple):
    """The words of a text and their vectors there: (words, width), or for all layers (layers, words, width)."""

    words: list[str]
    vectors: Tensor


class TextModel:
    """A network with its tokenizer. See the module's docstring for the abilities."""

    kind: str = EXACT  # scores are exact likelihoods, or PSEUDO
    is_seq2seq: bool = False  # what it generates is made from a source, not a continuation of the prompt
    is_bidirectional: bool = False  # a token's vector depends on both sides of it
    fills_spans: bool = False  # was trained to generate what is missing in a text: `score_fillings`
    context: int | None = None  # how many tokens back scores can see; None: no bound
    stride: int | None = None  # by how many tokens a full context moves on
    can_average: bool = False  # its predictions can be averaged with those of other runs of the same task
    _disabled: frozenset[str] = frozenset()

    def __init__(self, network: Network, tokenizer: Tokenizer, name: str = "") -> None:
        self.network: Any = network  # with whatever methods the abilities need
        self.tokenizer, self.name = tokenizer, name
        self.parameters: int = network.num_parameters()

    def __init_subclass__(cls) -> None:
        _wrap_ability_methods(cls)

    def __repr__(self) -> str:
        name = self.name or type(self.network).__name__
        return f"{type(self).__name__}({name}; {self.parameters:,} parameters; {', '.join(sorted(self.can))})"

    def _repr_html_(self) -> str:
        facts = [
            ("model", type(self.network).__name__),
            ("can", ", ".join(sorted(self.can))),
            ("parameters", format_count(self.parameters)),
            ("context", f"{self.context:,} tokens" if self.context else ""),
            ("tokenizer", repr(self.tokenizer)),
            ("device", str(self.device)),
        ]
        return facts_html(f"{type(self).__name__} {self.name}", facts)

    def __dir__(self) -> list[str]:
        """The attributes, without the methods of abilities that the model lacks."""
        return [name for name in super().__dir__() if name not in METHODS or self.has_method(name)]

    @property
    def device(self) -> torch.device:
        device: torch.device = self.network.device
        return device

    # -------------------------------------------------------------------------------------------- abilities

    @property
    def can(self) -> frozenset[str]:
        """The abilities of this model: keys of ABILITIES."""
        cls = type(self)
        return frozenset(
            ability
            for ability, method in ABILITIES.items()
            if getattr(cls, method) is not getattr(TextModel, method) and ability not in self._disabled
        )

    def has_method(self, name: str) -> bool:
        """Whether the model has this method of METHODS."""
        ability, called = METHODS[name], CALLS.get(name, name)
        if ability in self._disabled or (ability == "infill" and not self.can_infill):
            return False
        return getattr(type(self), called) is not getattr(TextModel, called)

    def disable(self, *abilities: str) -> None:
        """Remove abilities that the class has, but this network lacks."""
        self._disabled |= set(abilities)

    def require(self, ability: str) -> None:
        """Raise Unsupported unless the model has this ability."""
        if ability not in self.can:
            raise self.unsupported(ability)

    def _check_decoding(self, decoding: Decoding) -> Decoding:
        return decoding

    def unsupported(self, ability: str) -> MissingAbility:
        return MissingAbility(self.why_not(ability), ability=ability)

    def why_not(self, ability: str) -> str:
        """Explain, in a sentence or two, why the model lacks an ability and what to use instead."""
        run = self.name or "This run"
        if ability == "predict":
            return f"{run} has no task head, so it predicts no labels. Fine-tune it first (`nextword transfer`)."
        if not self.network.has_output_layer and ability in ("score", "next", "fill", "generate"):
            return f"{run} has no trained output layer, so it predicts no words. It can embed texts."
        return f"{run} does not support {ability!r}. It supports {', '.join(sorted(self.can)) or 'nothing'}."

    # -------------------------------------------------------------------------------------------- score

    def score(self, text: str, given: str = "") -> Score:
        """−log p of a text, after a text that is `given`."""
        return self.score_many([text], [given])[0]

    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        """One score per text; `given` precedes each text and is not scored."""
        raise self.unsupported("score")

    def token_nats(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """−log p of every token of each text of ids."""
        raise self.unsupported("score")

    def stream_nats(self, ids: np.ndarray, progress: Progress = ignore_progress) -> np.ndarray:
        """−log p of every token of one long stream, each scored once, with as much context as the model can use."""
        raise self.unsupported("score")

    def windowed_nats(
        self, ids: np.ndarray, context: int, stride: int, progress: Progress = ignore_progress
    ) -> np.ndarray:
        """−log p of every token, each seeing at most `context` tokens and at least `context` − `stride`."""
        raise self.unsupported("score")

    def scored_tokens(self, text: str, given: str = "") -> Encoding:
        """The tokens whose costs `score` sums, with byte spans within the text. A target's end token has no bytes."""
        raise self.unsupported("score")

    def token_layers(self, text: str, given: str = "") -> Iterator[list[Tensor]]:
        """Every layer (n, width) where each scored token is predicted, n tokens at a time, in the order of the text.

        The readout reads the last layer.
        """
        raise self.unsupported("score")

    def token_log_probs(self, text: str, given: str = "") -> Iterator[Tensor]:
        """log p of the whole vocabulary (n, V) where each scored token is predicted, n tokens at a time."""
        raise self.unsupported("score")

    def _make_score(self, text: str, nats: float, tokens: int) -> Score:
        """The score of a text whose tokens cost this much together; predicted line ends count as words."""
        words = len(text.split()) + (text.count("\n") if self.tokenizer.end is None else 0)
        settings = self.kind, self.tokenizer.lossless, self.context, self.stride
        return Score(nats, tokens, words, len(text.encode()), *settings)

    # -------------------------------------------------------------------------------------------- next and fill

    def next(self, left: str, right: str = "", k: int = 10, tokens: bool = False) -> list[Guess]:
        """The k likeliest next words, or words between two texts; `tokens`: raw tokens instead of words."""
        raise self.unsupported("next")

    def next_layers(self, left: str, right: str = "") -> list[Tensor]:
        """Every layer (1, width) where the token after a text is predicted, or the token between two texts."""
        raise self.unsupported("next")

    def fill(self, text: str, k: int = 10, tokens: bool = False) -> list[list[Guess]]:
        """For every blank `___` of the text, the k likeliest words, with all other blanks open."""
        raise self.unsupported("fill")

    @property
    def can_infill(self) -> bool:
        """Whether `infill` works: blanks of any length."""
        return False

    def count_blanks(self, text: str) -> int:
        """How many blanks a text has for `infill`."""
        return 0

    def num_unread(self, text: str) -> int:
        """Tokens of a text with one blank that are too far from it to be read; 0: all of it fits into the window."""
        return 0

    def _name_likeliest(self, log_p: Tensor, k: int, strip: bool = False) -> list[Guess]:
        """The k likeliest tokens of log p (V,); special tokens by their names."""
        best = log_p.topk(min(k, len(log_p)))
        names = {id: name for name, id in self.tokenizer.special.items()}
        guesses = []
        for p, id in zip(best.values.exp().tolist(), best.indices.tolist(), strict=True):
            text = self.tokenizer.piece(id).decode("utf-8", "replace")
            guesses.append(Guess(names.get(id) or (text.strip() if strip else text), p))
        return guesses

    def infill(self, text: str, decoding: Decoding = Greedy(), stop: Stop = Stop(), n: int = 1) -> list[Filled]:
        """The text with all blanks filled, one after the other; the n best of a beam, best first."""
        return self.infill_many([text], decoding, stop, n)[0]

    def infill_many(
        self, texts: Sequence[str], decoding: Decoding = Greedy(), stop: Stop = Stop(), n: int = 1
    ) -> list[list[Filled]]:
        raise self.unsupported("infill")

    def filling_layers(self, text: str, filling: str) -> tuple[Encoding, list[Tensor]]:
        """The tokens of a filling of the text's only blank, with its end, and every layer where each is predicted."""
        raise self.unsupported("infill")

    # -------------------------------------------------------------------------------------------- generate

    def generate(
        self, prompt: str = "", decoding: Decoding = Greedy(), stop: Stop = Stop(), overflow: str = "slide"
    ) -> Generation:
        """Continue the prompt, which is not repeated."""
        raise self.unsupported("generate")

    def generate_many(
        self, prompts: Sequence[str], decoding: Decoding = Greedy(), stop: Stop = Stop(), overflow: str = "slide"
    ) -> list[list[Piece]]:
        """The pieces of each prompt's continuation, as of `generate`; prompt i has the seed `decoding.seed` + i."""
        raise self.unsupported("generate")

    def n_best(
        self,
        prompt: str,
        decoding: Beam = Beam(),
        stop: Stop = Stop(),
        n: int | None = None,
        overflow: str = "slide",
        observer: BeamObserver | None = None,
    ) -> list[Candidate]:
        """The n best continuations of a beam search (default: its width), best first; an `observer` sees its steps."""
        return self.n_best_many([prompt], decoding, stop, n, overflow, observer)[0]

    def n_best_many(
        self,
        prompts: Sequence[str],
        decoding: Beam = Beam(),
        stop: Stop = Stop(),
        n: int | None = None,
        overflow: str = "slide",
        observer: BeamObserver | None = None,
    ) -> list[list[Candidate]]:
        raise self.unsupported("generate")

    def num_overflowing(self, prompt: str) -> int:
        """How many tokens of a prompt have left the window when the first token is generated; 0: it fits."""
        return 0

    # -------------------------------------------------------------------------------------------- embed and predict

    def embed(self, texts: Sequence[str], layer: Layer = -1, pooling: str = "mean") -> Tensor:
        """One vector per text (texts, width)."""
        raise self.unsupported("embed")

    def embed_words(
        self, texts: Sequence[str | Sequence[str]], layer: Layer | Sequence[int] = -1
    ) -> list[WordsInContext]:
        """One vector per word of each text, in its context."""
        raise self.unsupported("embed")

    def nearest(self, text: str, k: int = 10) -> list[tuple[str, float]]:
        """The k words whose vectors are nearest, with cosines; the text is a word or a sum of words."""
        raise self.unsupported("nearest")

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        """One prediction per example, from a fine-tuned run."""
        raise self.unsupported("predict")


def _wrap_ability_methods(cls: type[TextModel]) -> None:
    """Make the methods of METHODS that a class defines attributes of those models only that have the ability."""
    for name in METHODS:
        method = vars(cls).get(name)
        if isinstance(method, FunctionType):
            setattr(cls, name, AbilityMethod(method))


_wrap_ability_methods(TextModel)
