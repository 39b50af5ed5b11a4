"""What does sharing parameters between layers cost, and what does it save?

Claim: sharing all parameters between layers saves most of them and costs little (Lan et al. 2020, ALBERT).

    none            every layer has its own attention and feed-forward network
    attention       one attention for all layers
    feed-forward    one feed-forward network for all layers
    all             one layer, applied repeatedly: ALBERT

Measured: small BERTs on masked tokens. Deep small networks take long to get beyond token frequencies, so one layer
is trained first and copied into all layers (stacking: Gong et al. 2019); every variant continues from the same
function. The compute is the same for all: sharing saves memory, not time. The embeddings are not factorized.

Verdict: sharing all must leave at most half of the block parameters, and cost at most 5 % of what context is worth
to the network that shares nothing. If that network hardly uses its context, the cost is undecided.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nextword.batching.token_stream import Stream
from nextword.core.types import Vocabulary
from nextword.models.albert import SHARE
from nextword.models.bert import BERTConfig
from nextword.models.decoder import init_gpt_weights
from nextword.models.encoder import BidirectionalEncoder
from nextword.objectives.masked import MaskedObjective
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import describe_corpus, isolated, open_text, require, run_parallel, stack_seeds
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._transformers import (
    Size,
    Text,
    always_masked,
    encode_corpus,
    masked_lm,
    masked_positions,
    scale_weights,
    score_masked,
    train_on,
)

CLAIM = Claim(
    "Sharing all parameters between layers saves most of them and costs little.",
    "Lan et al. 2020, section 4.5 and table 4; lecture notes on generative language models: ALBERT, sharing across "
    "layers saves much without hurting too much",
)
PIECES = 1000
FULL, ONE = Size(layers=3, steps=500, rate=2e-3), Size(layers=1, steps=1200, rate=4e-3)  # all layers; the first alone
QUICK, QUICK_ONE = Size(layers=3, rows=32, steps=60, rate=2e-3), Size(layers=1, rows=32, steps=120, rate=4e-3)
LITTLE = 0.05  # share of the nats that context is worth to the network that shares nothing
FAR_FEWER = 0.5  # of the block parameters
USES_CONTEXT = 0.2  # nats below token frequencies, from which on a network counts as using its context
MIN_TOKENS = 20_000

NONE, ATTENTION, FEED_FORWARD, ALL = SHARE
FREQUENCIES = "token frequencies"
PARAMETERS, BLOCKS, NATS, ACCURACY = "parameters", "block parameters", "nats", "accuracy, %"


class SharedEncoder(BidirectionalEncoder):
    """A BERT whose layers share attention, the feed-forward network, or both."""

    def __init__(self, config: BERTConfig, vocabulary: Vocabulary, share: str) -> None:
        attending = 1 if share in (ATTENTION, ALL) else config.layers
        feeding = 1 if share in (FEED_FORWARD, ALL) else config.layers
        super().__init__(config, vocabulary, config.width, config.segments, attending, feeding, pairs=False)
        init_gpt_weights(self)


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus = open_text(settings.data)
    size, first = (QUICK, QUICK_ONE) if settings.quick else (FULL, ONE)
    text, tokenizer = encode_corpus(corpus, PIECES)
    require(len(text.train), MIN_TOKENS, "training tokens", corpus)
    runs = run_parallel({(seed,): (run_seed, (seed, size, first, text)) for seed in settings.seeds}, progress)
    nats, hits = ({share: stack_seeds(runs, (), share, i) for share in SHARE} for i in (0, 1))
    baseline = frequency_nats(text.train, always_masked(size, text.vocabulary), text.test, text.vocabulary.size)
    with isolated():
        networks = {share: SharedEncoder(BERTConfig(**size.shape), text.vocabulary, share) for share in SHARE}
    rows: list[tuple[Any, ...]] = [
        (
            share,
            network.num_parameters(),
            sum(p.numel() for part in (network.attending, network.feeding) for p in part.parameters()),
            stats.median_of_means(nats[share]),
            stats.median_and_range((100 * hits[share].mean(1)).tolist()),
        )
        for share, network in networks.items()
    ]
    rows.append((FREQUENCIES, None, None, [float(baseline.mean())] * 3, None))
    differences = [
        (s, stats.mean_interval(nats[s] - nats[NONE]), stats.mean_interval(100.0 * hits[s] - 100.0 * hits[NONE]))
        for s in SHARE[1:]
    ]
    return {
        "shared": Table("Masked tokens of a held-out text", ("shared", PARAMETERS, BLOCKS, NATS, ACCURACY), rows),
        "differences": Table(
            "Difference from sharing nothing, mean and 95 % interval", ("shared", NATS, ACCURACY), differences
        ),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(text.train):,} training tokens, {len(baseline):,} masked tokens of a "
        f"held-out text; WordPiece of {len(tokenizer):,}",
        "network": f"BERT, {size.describe_network()}",
        "training": f"one layer: {first.describe_training()}; copied into {size.layers}: {size.describe_training()}",
        "intervals": stats.INTERVALS,
    }


def run_seed(seed: int, size: Size, first: Size, text: Text) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Nats and hits of the masked tokens for each variant, all continued from the same layer."""
    torch.manual_seed(seed)
    layer = scale_weights(SharedEncoder(BERTConfig(**first.shape), text.vocabulary, ALL))
    train_on(layer, masked_lm(first, text.vocabulary), text.train, seed, first)
    scores = {}
    for share in SHARE:
        network = stack_layers(layer, share, size.layers)
        train_on(network, masked_lm(size, text.vocabulary), text.train, seed + 1, size)
        scores[share] = score_masked(network, always_masked(size, text.vocabulary), text.test)
    return scores


def stack_layers(layer: SharedEncoder, share: str, layers: int) -> SharedEncoder:
    """A network whose layers are all copies of the only layer of `one`."""
    network = SharedEncoder(replace(layer.config, layers=layers), layer.vocabulary, share)
    weights = layer.state_dict()
    sources = {name: re.sub(r"^(attending|feeding)\.\d+\.", r"\1.0.", name) for name in network.state_dict()}
    network.load_state_dict({name: weights[source] for name, source in sources.items()})
    return network


def frequency_nats(train: Stream, objective: MaskedObjective, test: Stream, size: int) -> np.ndarray:
    """Nats of the same masked tokens by their add-one frequency in the training text."""
    counts = np.bincount(train.ids, minlength=size) + 1.0
    nats = -np.log(counts / counts.sum())
    return nats[torch.cat([masked_positions(batch)[1] for batch in objective.validation_batches(test)]).numpy()]


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    table = tables["shared"]
    worth = table.cell(NATS, shared=FREQUENCIES)[0] - table.cell(NATS, shared=NONE)[0]
    blocks, total = ([table.cell(column, shared=share) for share in (NONE, ALL)] for column in (BLOCKS, PARAMETERS))
    fewer = Part(
        "Sharing all leaves far fewer parameters.",
        blocks[1] <= FAR_FEWER * blocks[0],
        f"The blocks have {blocks[1]:,} parameters instead of {blocks[0]:,}, the network {total[1]:,} instead of "
        f"{total[0]:,}.",
        "counted, not estimated",
    )
    return [fewer, *(_costs_little(tables, share, worth) for share in (ALL, ATTENTION, FEED_FORWARD))]


def _costs_little(tables: Tables, share: str, worth: float) -> Part:
    cell = tables["differences"].cell(NATS, shared=share)
    nats, none = (tables["shared"].cell(NATS, shared=name)[0] for name in (share, NONE))
    name = {FEED_FORWARD: "the feed-forward network"}.get(share, share)
    uses_context = worth >= USES_CONTEXT
    baseline = "hardly better than token frequencies, so the cost cannot be judged."
    if uses_context:
        baseline = f"of the {worth:.2f} nats that context is worth to it."
    return stats.judge_interval(
        f"Sharing {name} costs at most {stats.format_percent(LITTLE)} of what context is worth.",
        cell,
        f"A masked token costs {nats:.3f} nats if the layers share {name} and {none:.3f} if they share nothing, "
        f"{baseline}",
        "nats more",
        test=lambda cell: stats.is_below(cell, LITTLE * worth) if uses_context else None,
        decides=share == ALL,
    )


# ------------------------------------------------------------------------------------------------ draw


def draw(tables: Tables, figure: plot.Figure) -> None:
    table = tables["shared"]
    networks = replace(table, rows=tuple(row for row in table.rows if row[1] is not None))
    sizes, nats, accuracy = plot.panels(figure, 12, 3.8, 3)
    shares = networks.column("shared")
    sizes.barh(range(len(shares)), networks.column(PARAMETERS), color="#dddddd")
    sizes.barh(range(len(shares)), networks.column(BLOCKS), color=plot.BLUE)
    plot.name_rows(sizes, shares, "parameters (blue: of the blocks)", "Size, by what is shared")
    plot.dot_rows(networks, nats, "shared", NATS, "Masked tokens: cost", "nats (lower is better)", named=False)
    plot.dot_rows(networks, accuracy, "shared", ACCURACY, "Masked tokens: accuracy", "%", named=False, digits=1)
    plot.reference_line(nats, table.cell(NATS, shared=FREQUENCIES)[0])
