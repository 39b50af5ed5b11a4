"""Blanks of one word and of several: GLM, BERT and GPT-2 of one shape, which have read as many tokens, fill them.

    a man ___ bike .        rides his?       how many words are missing is not said

The networks and what they learn from are in blanks_networks.py, the blanks in blanks_asked.py, what each network makes
of them in blanks_filling.py. Two things are measured: whether the likeliest filling that a beam finds is the true one,
word for word; and what the true one costs, in nats a word, for all who give it a probability.

Where the captions of Multi30k are on the machine they are the text, for they are simple enough to be learnt in minutes;
else it is the built-in one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from nextword.contract_errors import NextwordError
from nextword.corpora import Corpus, is_parallel, open_parallel
from nextword.studies.apart import spread
from nextword.studies.blanks_asked import Asked, Blank, Rules, asked_of
from nextword.studies.blanks_figure import draw
from nextword.studies.blanks_filling import Answers, bert_fills, glm_fills, gpt_fills
from nextword.studies.blanks_networks import MEAN, SHARE, both_sides, filler, from_the_left
from nextword.studies.blanks_verdict import (
    AT_ONCE,
    BERT_NAME,
    CLAIM,
    GLM_NAME,
    GPT,
    NATS,
    PSEUDO,
    RIGHT,
    SEVERAL,
    TOLD_BERT,
    WAYS,
    judge,
)
from nextword.studies.measures import over_seeds
from nextword.studies.small_transformers import INTERVALS, Size, Text, certain, text_of
from nextword.studies.study import Progress, Settings, Table
from nextword.studies.text import corpus_for, enough
from nextword.studies.translators import workers
from nextword.training.scale import choose_device

__all__ = ["CLAIM", "draw", "judge", "measure"]
CAPTIONS = "multi30k:de-en"  # of pairs the second side is read
FULL, PIECES = Size(layers=1, steps=1200, rate=4e-3), 1000
QUICK = Size(layers=1, width=64, heads=4, rows=32, steps=200, rate=4e-3)
LARGE, LARGE_PIECES = Size(width=384, layers=6, heads=6, rows=256, length=64, steps=20_000, rate=1e-3), 8000
ASKED, QUICK_ASKED = Asked(), Asked(each=50, most=6, width=2)
LARGE_ASKED = Asked(words=(1, 2, 3, 4, 6), each=400, most=12)
LEAST = 30  # blanks of each number of words
LEARN: dict[str, Any] = {GLM_NAME: (filler, glm_fills), BERT_NAME: (both_sides, bert_fills), GPT: (from_the_left, gpt_fills)}


def text_for(data: str) -> Corpus:
    """A text, or pairs, of which the targets are read; none given: the captions, or else the built-in text."""
    if data:
        return open_parallel(data) if is_parallel(data) else corpus_for(data)
    try:
        return open_parallel(CAPTIONS)
    except NextwordError:  # not on this machine
        return corpus_for("")


def run(name: str, seed: int, size: Size, text: Text, blanks: Sequence[Blank], rules: Rules) -> dict[str, Any]:
    """One network: what it has read, and by way of filling who is right (n,) and nats a word (n,)."""
    learn, fills = LEARN[name]
    started = time.process_time()
    network, read = learn(seed, size, text)
    learnt = time.process_time() - started
    answers: Answers = fills(network, blanks, rules)
    words = np.array([blank.words for blank in blanks])
    found = {}
    for way, (written, nats) in answers.items():
        right = None
        if written is not None:
            right = np.array([100.0 * rules.right(w, b) for w, b in zip(written, blanks, strict=True)])
        found[way] = {RIGHT: right, NATS: None if nats is None else nats / words}
    parameters = sum(p.numel() for p in network.parameters())
    return {"ways": found, "read": (parameters, *read, learnt, time.process_time() - started - learnt)}


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = text_for(settings.data)
    large = choose_device().type == "cuda" and not settings.quick
    size, asked = (QUICK, QUICK_ASKED) if settings.quick else (LARGE, LARGE_ASKED) if large else (FULL, ASKED)
    text, tokenizer = text_of(corpus, LARGE_PIECES if large else PIECES)
    blanks, rules = asked_of(text, tokenizer, size, asked)
    counts = {count: sum(blank.words == count for blank in blanks) for count in asked.words}
    enough(min(counts.values()), LEAST, "held-out blanks of every number of words", corpus)
    tasks: dict[Any, Any] = {
        (name, seed): (run, (name, seed, size, text, blanks, rules)) for seed in settings.seeds for name in LEARN
    }
    runs = spread(tasks, progress, workers())
    found: dict[tuple[str, str], np.ndarray] = {}  # (seeds, blanks) by way and measure
    for name in LEARN:
        for way, cells in runs[name, settings.seeds[0]]["ways"].items():
            for kind in (RIGHT, NATS):
                if cells[kind] is not None:
                    found[way, kind] = np.stack([runs[name, seed]["ways"][way][kind] for seed in settings.seeds])
    groups = groups_of(blanks)
    return {
        RIGHT: _levels("Blanks filled with the very words, %, mean and 95 % interval", RIGHT, WAYS, found, groups),
        NATS: _levels("Nats a true word, mean and 95 % interval", NATS, (*WAYS, PSEUDO), found, groups),
        "differences": _differences(found, groups),
        "learning": _learning(runs, settings.seeds),
    }, {
        "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from, "
        f"{', '.join(map(str, counts.values()))} held-out blanks of {', '.join(map(str, counts))} words; "
        f"WordPiece of {len(tokenizer):,}",
        "networks": f"GLM, BERT (its norms first, as the others have them) and GPT-2 of {size.built()}",
        "training": size.said()
        + f"; GLM fewer steps, for as many tokens read; {SHARE:.0%} hidden or taken out, GLM's "
        f"pieces of {MEAN:g} tokens in the mean".replace("%", " %"),
        "filling": f"beams of {asked.width}; fillings of at most {asked.most} pieces",
        "intervals": INTERVALS,
    }


def groups_of(blanks: Sequence[Blank]) -> dict[str, np.ndarray]:
    """Which blanks (n,) have so many words; and which several."""
    words = np.array([blank.words for blank in blanks])
    return {**{str(count): words == count for count in sorted(set(words.tolist()))}, SEVERAL: words > 1}


def _levels(
    title: str, kind: str, ways: Sequence[str], found: dict[tuple[str, str], np.ndarray], groups: dict[str, np.ndarray]
) -> Table:
    rows = [
        (way, *(certain(found[way, kind][:, group]) for group in groups.values()))
        for way in ways
        if (way, kind) in found
    ]
    return Table(title, ("network", *groups), tuple(rows))


def _differences(found: dict[tuple[str, str], np.ndarray], groups: dict[str, np.ndarray]) -> Table:
    """How much better GLM is than every other; and BERT piece by piece than all at once."""
    rows = []
    for way, than in (*((GLM_NAME, other) for other in WAYS if other != GLM_NAME), (TOLD_BERT, AT_ONCE)):
        for words, group in groups.items():
            cells: list[Any] = []
            for kind, sign in ((RIGHT, 1.0), (NATS, -1.0)):
                both = [found.get((name, kind)) for name in (way, than)]
                cells.append(None if both[1] is None else certain(sign * (both[0] - both[1])[:, group]))
            rows.append((way, than, words, *cells))
    columns = ("network", "than", "words", RIGHT, NATS)
    return Table("Better by (below 0: worse), mean and 95 % interval", columns, tuple(rows), detailed=True)


def _learning(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    rows = [
        (name, *(over_seeds(part) for part in zip(*(runs[name, s]["read"] for s in seeds), strict=True)))
        for name in LEARN
    ]
    columns = ("network", "parameters", "steps", "tokens read", "tokens predicted", "seconds to learn", "to fill")
    return Table("What each has learnt from", columns, tuple(rows))
