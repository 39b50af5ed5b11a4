"""A small GPT-1 with large random weights, and short texts to frame for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from nextword.core.types import Encoding, Vocabulary
from nextword.models.gpt1 import GPT1, GPT1Config

SIZE = 50
BEGIN, END = 48, 49
START, DELIMITER, EXTRACT = SIZE, SIZE + 1, SIZE + 2
VOCABULARY = Vocabulary(SIZE, BEGIN, end=END)
SHAPE = {"width": 24, "layers": 2, "heads": 3, "window": 16, "dropout": 0.0}


def make_encoding(*ids: int) -> Encoding:
    n = len(ids)
    return Encoding(np.array(ids, np.int64), np.zeros((n, 2), np.int64), np.zeros(n, np.int64))


def make_gpt1(**more: Any) -> GPT1:
    """Make a GPT-1 whose parameters are all large enough to affect the output."""
    torch.manual_seed(5)
    network = GPT1(GPT1Config(**{**SHAPE, **more}), VOCABULARY)
    for p in network.parameters():
        nn.init.normal_(p, std=0.4)
    return network.eval()


A, B, C = make_encoding(1, 2, 3), make_encoding(7, 8), make_encoding(9)
