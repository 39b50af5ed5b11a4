"""What layers lose by being one and the same layer, against what they save: ALBERT's sharing, in a small BERT.

    none            every layer has its own attention and its own feed-forward part
    attention       one attention for all layers
    feed-forward    one feed-forward part for all
    all             one layer, applied again and again: ALBERT

Deep small networks take long to look beyond the tokens' frequencies. So one layer learns to, and is then copied into
all layers (stacking: Gong et al. 2019): every way of sharing goes on from the very same function. Work is the same for
all of them, too: sharing saves room, not time. The embeddings are not factorised: that is another change of ALBERT's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nextword.batching.token_stream import Stream
from nextword.core.types import Vocabulary
from nextword.models.albert import SHARE
from nextword.models.bert import BERTConfig
from nextword.models.decoder import draw as draw_weights
from nextword.models.encoder import Bidirectional
from nextword.objectives.masked import Masked
from nextword.studies._experiment import apart, corpus_for, enough, spread
from nextword.studies._small_models import (
    INTERVALS,
    Size,
    Text,
    asked,
    certain,
    hidden_tokens,
    learn,
    masked_sentences,
    ranged,
    short_sentences,
    text_of,
    wider,
)
from nextword.studies._study import (
    BLUE,
    GREY,
    INK,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    below,
    judged,
    over_seeds,
)
from nextword.studies.masked_vs_causal import levels

CLAIM = Claim(
    "Layers that share all their parameters are far fewer parameters and cost little.",
    "Lan et al. 2020, section 4.5 and table 4; lecture notes on generative language models: ALBERT, sharing across "
    "layers saves much without hurting too much",
)
NONE, ATTENTION, FEED, ALL = SHARE
PIECES = 1000
FULL, ONE = Size(layers=3, steps=500, rate=2e-3), Size(layers=1, steps=1200, rate=4e-3)  # all layers; the one before
QUICK, QUICK_ONE = Size(layers=3, rows=32, steps=60, rate=2e-3), Size(layers=1, rows=32, steps=120, rate=4e-3)
LITTLE = 0.05  # of the nats that context is worth to the network that shares nothing
FAR_FEWER = 0.5  # of the blocks' parameters, or less
LEARNT = 0.2  # nats below the frequencies, from which on a network is said to use its context
LEAST = 20_000  # tokens to learn from


class Shared(Bidirectional):
    """A BERT whose layers have one half or both halves of their block in common."""

    def __init__(self, config: BERTConfig, vocabulary: Vocabulary, share: str) -> None:
        attending = 1 if share in (ATTENTION, ALL) else config.layers
        feeding = 1 if share in (FEED, ALL) else config.layers
        super().__init__(config, vocabulary, config.width, config.segments, attending, feeding, pairs=False)
        draw_weights(self)


def stacked(one: Shared, share: str, layers: int) -> Shared:
    """As many layers, all of them as the one that there is."""
    network = Shared(replace(one.config, layers=layers), one.vocabulary, share)
    weights = one.state_dict()
    first = {name: re.sub(r"^(attending|feeding)\.\d+\.", r"\1.0.", name) for name in network.state_dict()}
    network.load_state_dict({name: weights[source] for name, source in first.items()})
    return network


def shared(seed: int, size: Size, before: Size, text: Text) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Each way to share, from the same beginning: nats of the hidden tokens, and whether the likeliest is right."""
    torch.manual_seed(seed)
    one = wider(Shared(BERTConfig(**before.shape), text.vocabulary, ALL))
    learn(one, short_sentences(before, text.vocabulary), text.train, seed, before)
    found = {}
    for share in SHARE:
        network = stacked(one, share, size.layers)
        learn(network, short_sentences(size, text.vocabulary), text.train, seed + 1, size)
        found[share] = hidden_tokens(network, masked_sentences(size, text.vocabulary), text.test)
    return found


def frequencies(train: Stream, questions: Masked, test: Stream, size: int) -> np.ndarray:
    """Nats of the same hidden tokens by how often each token is in the training text, one added to each."""
    counts = np.bincount(train.ids, minlength=size) + 1.0
    nats = -np.log(counts / counts.sum())
    return nats[torch.cat([asked(batch)[1] for batch in questions.held_out(test)]).numpy()]


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    size, before = (QUICK, QUICK_ONE) if settings.quick else (FULL, ONE)
    text, tokenizer = text_of(corpus, PIECES)
    enough(len(text.train), LEAST, "tokens to learn from", corpus)
    jobs: dict[Any, Any] = {seed: (shared, (seed, size, before, text)) for seed in settings.seeds}
    runs = spread(jobs, progress)
    nats = {share: np.stack([runs[seed][share][0] for seed in settings.seeds]) for share in SHARE}
    hits = {share: np.stack([runs[seed][share][1] for seed in settings.seeds]) for share in SHARE}
    questions = masked_sentences(size, text.vocabulary)
    unigram = frequencies(text.train, questions, text.test, text.vocabulary.size)
    with apart():
        networks = {share: Shared(BERTConfig(**size.shape), text.vocabulary, share) for share in SHARE}
    rows: list[tuple[Any, ...]] = [
        (
            share,
            sum(p.numel() for p in network.parameters()),
            sum(p.numel() for part in (network.attending, network.feeding) for p in part.parameters()),
            over_seeds(nats[share].mean(1).tolist()),
            over_seeds((100 * hits[share].mean(1)).tolist()),
        )
        for share, network in networks.items()
    ]
    rows.append(("frequencies alone", None, None, [float(unigram.mean())] * 3, None))
    return {
        "shared": Table(
            "Hidden tokens of a held-out text",
            ("shared", "parameters", "of the blocks", "nats", "right, %"),
            tuple(rows),
        ),
        "differences": Table(
            "Above nothing shared, mean and 95 % interval",
            ("shared", "nats", "right, %"),
            tuple(
                (s, certain(nats[s] - nats[NONE]), certain(100.0 * hits[s] - 100.0 * hits[NONE]))
                for s in SHARE
                if s != NONE
            ),
        ),
    }, {
        "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from, {len(unigram):,} hidden "
        f"tokens of a held-out text; WordPiece of {len(tokenizer):,}",
        "network": f"BERT, {size.layers} layers of width {size.width}, {size.heads} heads, window {size.length}",
        "training": f"one layer: {before.said()}; copied into {size.layers}: {size.said()}",
        "intervals": INTERVALS,
    }


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    table, apart = tables["shared"], tables["differences"]
    worth = table.cell("nats", shared="frequencies alone")[0] - table.cell("nats", shared=NONE)[0]
    return [
        _fewer(table),
        _costs(table, apart, ALL, worth, decides=True),
        _costs(table, apart, ATTENTION, worth, decides=False),
        _costs(table, apart, FEED, worth, decides=False),
    ]


def _fewer(table: Table) -> Part:
    blocks, total = ([table.cell(c, shared=s) for s in (NONE, ALL)] for c in ("of the blocks", "parameters"))
    return Part(
        "Sharing all is far fewer parameters.",
        judged(blocks[1] <= FAR_FEWER * blocks[0]),
        f"The blocks have {blocks[1]:,} parameters instead of {blocks[0]:,}, the whole network {total[1]:,} instead of "
        f"{total[0]:,}.",
        "counted, not estimated",
    )


def _costs(table: Table, apart: Table, share: str, worth: float, decides: bool) -> Part:
    """Little is a share of what context is worth; a network that has not learnt to use it could not have told."""
    cell, nats, none = apart.cell("nats", shared=share), *(table.cell("nats", shared=s)[0] for s in (share, NONE))
    told = worth >= LEARNT
    said = f"Sharing {_named(share)} leaves {nats:.3f} nats for a hidden token, sharing nothing {none:.3f}"
    why = f", of the {worth:.2f} that context is worth to it." if told else ", which is hardly better than frequencies."
    return Part(
        f"Sharing {_named(share)} costs little: at most {LITTLE:.0%}".replace("%", " %") + " of what context is worth.",
        judged(below(cell, LITTLE * worth) if told else None),
        said + why,
        f"nats above: {ranged(cell)}",
        decides,
    )


def _named(share: str) -> str:
    return {ALL: "all", FEED: "feed-forward parts"}.get(share, share)


def draw(tables: Tables, figure: Any) -> None:
    figure.set_size_inches(12, 3.8)
    figure.set_layout_engine("constrained", wspace=0.06)
    table = tables["shared"]
    seen = Table(table.title, table.columns, tuple(row for row in table.rows if row[1] is not None))
    sizes, nats, right = figure.subplots(1, 3)
    shares: Sequence[str] = seen.column("shared")
    sizes.barh(range(len(shares)), seen.column("parameters"), color="#dddddd")
    sizes.barh(range(len(shares)), seen.column("of the blocks"), color=BLUE)
    sizes.set_yticks(range(len(shares)), shares, color=INK)
    sizes.set(xlabel="parameters  (blue: of the blocks)", ylim=(len(shares) - 0.5, -0.6))
    sizes.set_title("Room")
    levels(seen, nats, "shared", "nats", "Hidden tokens", "nats  (left: better)", named=False)
    levels(seen, right, "shared", "right, %", "The likeliest is right", "%", named=False)
    floor = table.cell("nats", shared="frequencies alone")[0]
    if floor < nats.get_xlim()[1]:
        nats.axvline(floor, color=GREY, linewidth=1, linestyle=":")
