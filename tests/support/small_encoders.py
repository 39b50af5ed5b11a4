"""Small encoders with large random weights, and inputs for them: padded, with segments, packed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nextword.core.types import Inputs, Vocabulary
from nextword.models import model_class

SIZE, WINDOW, LAYERS = 61, 16, 3
PAD = 1  # never drawn as a token
SPECIAL = {"[PAD]": PAD, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
VOCABULARY = Vocabulary(SIZE, 2, SPECIAL, end=3)
SHAPE: dict[str, Any] = {"width": 24, "layers": LAYERS, "heads": 4, "window": WINDOW, "ffn_width": 40, "dropout": 0.0}
PRENORM = "roberta_prelayernorm"  # roberta with norms = "before"
ROBERTAS = ("roberta", PRENORM)
SLUGS = ["bert", "roberta", "albert", PRENORM]
LENGTHS = [5, 1, 16, 3, 3, 7, 5, 12]


def randomize(network: nn.Module) -> None:
    """Make every parameter, including norms and biases, random and large enough to affect the output."""
    torch.manual_seed(3)
    for p in network.parameters():
        nn.init.normal_(p, std=0.3)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.add_(1.0)  # otherwise signals, and with them errors, would fade from norm to norm


def make_encoder(slug: str, **more: Any) -> Any:
    cls = model_class("roberta" if slug == PRENORM else slug)
    extra = {"embedding": 10} if slug == "albert" else {"norm_position": "before"} if slug == PRENORM else {}
    network = cls(cls.Config(**{**SHAPE, **extra, **more}), VOCABULARY).double()
    randomize(network)
    return network.eval()


def draw_ids(rows: int, steps: int) -> Tensor:
    torch.manual_seed(rows * 100 + steps)
    return torch.randint(5, SIZE, (rows, steps))


def make_inputs(slug: str, kind: str) -> Inputs:
    rows, steps = {"one": (1, 1), "odd": (3, 7), "window": (2, WINDOW), "padded": (4, 9), "segments": (3, 11)}[kind]
    ids = draw_ids(rows, steps)
    inputs = Inputs(ids)
    if kind == "padded":
        inputs.token_mask = torch.arange(steps) < torch.tensor([9, 1, 4, 7]).unsqueeze(1)
        inputs.ids = ids.masked_fill(~inputs.token_mask, PAD)
    if kind in ("segments", "padded") and slug not in ROBERTAS:
        inputs.segments = (torch.arange(steps) >= torch.tensor([3, 6, 9, 2][:rows]).unsqueeze(1)).long()
    return inputs


def assert_close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------------------------ packed


def draw_texts() -> list[Tensor]:
    return [draw_ids(1, n) + i for i, n in enumerate(LENGTHS) if n < 60]


def pack_texts(each: list[Tensor], empty: bool = False) -> Inputs:
    lengths = [0, *[t.shape[1] for t in each]]
    starts = torch.tensor(lengths).cumsum(0)
    if empty:  # empty texts at the beginning, in the middle and at the end
        starts = torch.cat([starts[:1], starts[:4], starts[3:], starts[-1:], starts[-1:]])
    ids = torch.cat(each, 1).clamp(max=SIZE - 1)
    return Inputs(ids, starts=starts, segments=(ids % 2))
