"""What every left-to-right network has in common once it can compute `hidden` and has a `readout`.

The mixin turns those two into the Autoregressive contract, into an Encoder, and into a file. It holds no weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nextword.contract import Encoding, Framed, Inputs, State, Vocabulary
from nextword.contract_errors import NextwordError, Unsupported
from nextword.contract_protocols import Readout
from nextword.models.frames import arrange, dress

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


class Saved(nn.Module):
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


class CausalNetwork(Saved):
    """start, step, score and encode from `hidden(inputs, state)` and `readout`. A state of None is the beginning."""

    readout: Readout
    widths: list[int]
    window: int | None = None
    carries: bool = False  # a text read in pieces, each from the state after the one before, is read as at once
    own_tokens: int = 0  # that its frames need and its vocabulary lacks; models/frames.py makes room for them

    @property
    def locks(self) -> bool:
        """Whether dropout in training is drawn for each piece that is read, to stay over time, and not for each token.
        It then matters where one that `carries` divides a text."""
        return True

    @property
    def from_the_end(self) -> bool:
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
        if self.from_the_end:
            texts = [dataclasses.replace(text, ids=text.ids[::-1]) for text in texts]
        return dress(texts, self.marks(), getattr(self.config, "window", None))

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[Framed]:
        """The frames of one example of a task: "classify", "entail", "similar" or "choose" (models/frames.py)."""
        return arrange(self.frame, task, texts)
