"""Classifying texts with an AWD-LSTM on a CPU, in fp32 and int8, compared with fastai's `get_preds`: texts per second.

    python benchmarks/predict.py [--fastai FOLDER] [--texts 256] [--rounds 5] [--threads 2]
    python benchmarks/predict.py --rehearse --fastai FOLDER              # tiny sizes, to check that it runs

Both have ULMFiT's classifier with random weights: embeddings of 60,000 words, 400 wide; 3 layers of 1152; the last,
maximum and mean state; a hidden layer of 50; two classes. Both read texts in chunks of 72 tokens and pool the last
1,440. The texts have the lengths of film reviews and are given as ids: tokenizing is not timed. fastai sorts them by
length and pads (SortedDL, pad_input_chunk, batches of 64), as its learners do. Contenders take turns; the table has the
median of the ratios. If fastai is not installed, give the folder of a separate copy (pip install --target FOLDER
--no-deps fastai …).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import Examples
from nextword.core.types import Vocabulary
from nextword.models import model_class
from nextword.tasks.classification import Classification, Classifier

SHARES = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1)
LENGTHS = (
    12,
    88,
    115,
    141,
    158,
    177,
    206,
    249,
    305,
    391,
    550,
    712,
    927,
    1070,
    2700,
)  # quantiles of the lengths of film reviews, in tokens
CHUNK, KEPT, ROWS = 72, 20 * 72, 64
THEIRS, OURS, EIGHT = "fastai `get_preds`", "nextword", "nextword, int8"


def texts(number: int, words: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    sizes = np.interp(draw.random(number), SHARES, LENGTHS).round().astype(int)
    return [draw.integers(2, words, size) for size in sizes]


def ours(given: list[np.ndarray], words: int, embedding: int, width: int, bits: int = 0) -> Callable[[], np.ndarray]:
    cls = model_class("awd-lstm")
    config = cls.Config(embedding=embedding, width=width, layers=3)
    task = Classification(
        Classification.Config(
            kind="classification", frame="classify", pooling="concat", classifier="mlp", dropouts=(0.4, 0.1),
            chunk=CHUNK, bptt_window=KEPT, labels=("against", "for"), metrics=("accuracy",),
        )  # type: ignore[call-arg]
    )  # fmt: skip
    torch.manual_seed(0)  # the same weights in both precisions
    network = task.head(cls(config, Vocabulary(words, 0))).eval()
    if bits:
        network.quantize()
    model = Classifier(network, None, task, 0)  # type: ignore[arg-type]
    sizes = np.array([len(one) for one in given])
    starts = np.concatenate(([0], np.cumsum(sizes)))
    found = Examples(np.concatenate(given), starts, sizes - 1, labels=np.zeros(len(given), np.int64), packs=True)
    return lambda: model.logits_of(found)


def theirs(given: list[np.ndarray], words: int, embedding: int, width: int) -> Callable[[], Any]:
    from fastai.callback.rnn import rnn_cbs  # type: ignore[import-not-found]
    from fastai.data.core import DataLoaders  # type: ignore[import-not-found]
    from fastai.learner import Learner  # type: ignore[import-not-found]
    from fastai.losses import CrossEntropyLossFlat  # type: ignore[import-not-found]
    from fastai.text.data import SortedDL, pad_input_chunk  # type: ignore[import-not-found]
    from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_clas_config  # type: ignore[import-not-found]
    from fastai.text.models.core import get_text_classifier  # type: ignore[import-not-found]

    config = {**awd_lstm_clas_config, "emb_sz": embedding, "n_hid": width}
    model = get_text_classifier(AWD_LSTM, words, 2, seq_len=CHUNK, config=config, max_len=KEPT)
    rows = [(torch.from_numpy(one), torch.tensor(0)) for one in given]
    loader = SortedDL(rows, bs=ROWS, before_batch=lambda some: pad_input_chunk(some, seq_len=CHUNK), num_workers=0)
    learner = Learner(DataLoaders(loader, loader), model, loss_func=CrossEntropyLossFlat(), cbs=rnn_cbs())

    return lambda: learner.get_preds(dl=loader)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fastai", default="", help="folder with a copy of fastai")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: torch's default")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.fastai:
        sys.path.append(asked.fastai)
    if asked.threads:
        torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    sizes = (500, 16, 24) if asked.rehearse else (60_000, 400, 1152)
    given = texts(16 if asked.rehearse else asked.texts, sizes[0])
    contenders = {
        THEIRS: theirs(given, *sizes),
        OURS: ours(given, *sizes),
        EIGHT: ours(given, *sizes, bits=8),
    }
    took: dict[str, list[float]] = {name: [] for name in contenders}
    logits: dict[str, Any] = {}
    for i in range(asked.rounds + 1):
        for name, work in contenders.items():
            began = time.perf_counter()
            logits[name] = work()
            if i:  # the first round warms up
                took[name].append(time.perf_counter() - began)
    total = sum(len(one) for one in given)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"\n| classifying {len(given)} texts, {total:,} tokens | texts/s | tokens/s | ratio |")
    print("| --- | ---: | ---: | ---: |")
    for name, each in took.items():
        middle = statistics.median(each)
        ratios = sorted(a / b for a, b in zip(took[THEIRS], each, strict=True))
        shown = "" if name == THEIRS else f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f}–{ratios[-1]:.2f})"
        print(f"| {name} | {len(given) / middle:.1f} | {total / middle:,.0f} | {shown} |", flush=True)
    full, eight = (torch.from_numpy(logits[name]).softmax(-1) for name in (OURS, EIGHT))
    apart, same = (full - eight).abs(), (full.argmax(1) == eight.argmax(1)).double().mean()
    print(
        f"\nint8 and fp32 probabilities: mean difference {apart.mean():.1e}, maximum {apart.max():.1e}, ",
        end="",
    )
    print(f"the same label for {100 * same:.1f} % of the texts")


if __name__ == "__main__":
    main()
