"""`python -m nextword.kernels.warmup` compiles all Numba code, so that nobody waits for it later."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.core.types import Inputs, Vocabulary
from nextword.models import model_class
from nextword.ngrams.counting import NgramCounts, count_ngrams
from nextword.ngrams.estimators import Estimator, estimate
from nextword.ngrams.layouts import LAYOUTS, open_layout, write_layout
from nextword.ngrams.trie import Trie
from nextword.tokenizers.words import train_words


def compile_all() -> None:
    """Run a small text through everything that is compiled."""
    text = "the cat sat on the mat .\nthe dog sat on the cat .\n" * 20
    tokenizer = train_words([text], None, 1, False, True)
    ids, size = tokenizer.encode(text).ids, len(tokenizer)
    counted = next(x for x in count_ngrams(ids, 3, size, 1, 1 << 40) if isinstance(x, NgramCounts))
    trie = next(x for x in estimate(counted, Estimator(), np.zeros(size, bool)) if isinstance(x, Trie))
    with tempfile.TemporaryDirectory() as folder:
        for layout in LAYOUTS:
            path = Path(folder) / layout
            write_layout(trie, path, layout)
            opened = open_layout(path)
            opened.read(ids.astype(np.uint32))
            opened.distributions(ids[None, :2].astype(np.uint32))
    compile_decoding()
    compile_int8_lstm()


@torch.no_grad()
def compile_decoding() -> None:
    """One step of a small decoder, on the path that large ones take on a CPU."""
    cls: Any = model_class("gpt2")
    network = cls(cls.Config(width=64, layers=1, heads=1, window=8), Vocabulary(8, 0)).eval()
    network.fast.cpu.least = 0
    network.step(torch.tensor([1]), network.prompt(torch.tensor([[1]]), torch.tensor([1])))


@torch.no_grad()
def compile_int8_lstm() -> None:
    """A text through a small int8 LSTM."""
    cls: Any = model_class("awd-lstm")
    network = cls(cls.Config(embedding=8, width=8, layers=1, bits=8), Vocabulary(8, 0)).eval()
    network.hidden(Inputs(torch.tensor([[1]])), None)


if __name__ == "__main__":
    compile_all()
