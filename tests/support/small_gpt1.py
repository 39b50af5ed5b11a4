"""A small GPT-1 with every weight alive, and texts of few tokens to be framed for it."""

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


def text(*ids: int) -> Encoding:
    n = len(ids)
    return Encoding(np.array(ids, np.int64), np.zeros((n, 2), np.int64), np.zeros(n, np.int64))


def gpt1(**more: Any) -> GPT1:
    """Every parameter of some size, so that none can hide."""
    torch.manual_seed(5)
    network = GPT1(GPT1Config(**{**SHAPE, **more}), VOCABULARY)
    for p in network.parameters():
        nn.init.normal_(p, std=0.4)
    return network.eval()


A, B, C = text(1, 2, 3), text(7, 8), text(9)
