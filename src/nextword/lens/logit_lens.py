"""The logit lens: what a Transformer would predict if it ended after each of its layers.

    x₀ ─ block ─▶ x₁ ─ block ─▶ x₂ ─ … ─▶ x_L        the residual stream at one position
    │             │             │          │
    norm          norm          norm       norm      the network's own final norm
    readout       readout       readout    readout   and its output layer
    ▼             ▼             ▼          ▼
    the           mat           mat        mat       the likeliest token after each layer

nostalgebraist, "interpreting GPT: the logit lens" (2020). Layer 0 is the embedding; the last row is the prediction of
the network itself. Inner layers were not trained to be read in this way: what they say is a hint, and how early the
final answer appears is the finding. The surprisal of the actual token by layer says how much each block contributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nextword.core.slices import end_slice
from nextword.generation.infilling import BLANK
from nextword.html.formatting import escape
from nextword.html.page import html_table
from nextword.lens.result import LensResult, Token, TokenNames, label, run_name, show_piece
from nextword.lens.surprisal import Alternative, explain_rows, fills_blank, require_source, top_tokens
from nextword.lm.base import TextModel

NOTE = """<p class="note">Each cell has the likeliest token and its probability; the heading is the actual token.</p>"""
MAX_ROWS = 64  # positions whose distributions are in memory at once
MAX_COLUMNS = 24  # positions in the table of a page, the last ones


@dataclass(frozen=True)
class LayerPrediction:
    """What one layer says about one position."""

    layer: int  # 0: the embedding
    entropy: float  # nats
    top: tuple[Alternative, ...]
    nats: float | None  # −log p of the actual token; None where it is not known
    rank: int | None


@dataclass(frozen=True)
class Position:
    """One predicted token, and what each layer says about it."""

    token: Token | None  # the actual token; None for the token after the text, or for a blank
    layers: tuple[LayerPrediction, ...]


@dataclass(frozen=True, eq=False, repr=False)
class LayerPredictions(LensResult):
    """What each layer of a Transformer would predict, at every position of a text and after it."""

    text: str
    source: str | None
    positions: tuple[Position, ...] = field(repr=False)

    def __repr__(self) -> str:
        layers = len(self.positions[0].layers) if self.positions else 0
        return f"LayerPredictions({self.text[:40]!r}: {len(self.positions)} positions × {layers} layers)"

    @property
    def title(self) -> str:
        return "The likeliest token after each layer"

    def sections(self) -> list[tuple[str, str]]:
        shown = self.positions[-MAX_COLUMNS:]
        if not shown:
            return []
        columns = [("Layer", "model", lambda row: escape(row["layer"]))]
        for i, position in enumerate(shown):
            heading = "next" if position.token is None else escape(label(position.token))
            columns.append((heading, "", lambda row, i=i: row["cells"][i]))  # type: ignore[misc]
        rows = [
            {
                "layer": str(first.layer) if first.layer else "0 (embedding)",
                "cells": [_cell(position.layers[i]) for position in shown],
            }
            for i, first in reversed(list(enumerate(shown[0].layers)))
        ]
        return [("Layers", html_table(self.title, columns, rows) + NOTE)]


def _cell(prediction: LayerPrediction) -> str:
    best = prediction.top[0]
    strength = min(5, int(best.probability * 5.999))
    css = f' class="f{strength}"' if strength else ""
    tooltip = ", ".join(f"{show_piece(a.text)} {a.probability:.1%}" for a in prediction.top)
    text = escape(show_piece(best.text))
    return f'<span{css} title="{escape(tooltip)}">{text}</span><small>{best.probability:.1%}</small>'


def predict_by_layer(model: TextModel, text: str, source: str | None = None, k: int = 5) -> LayerPredictions:
    """What each layer would predict at every token of a text, and, for a causal model, after it.

    A masked model hides each token in turn; where the text has one blank `___`, only the blank is predicted.
    """
    model.require("score")
    network = model.network
    if not network.is_transformer:
        network.final_norm(torch.zeros(0))  # raises Unsupported with the reason
    require_source(model, source)
    names = TokenNames(model)
    positions: list[Position] = []
    is_filling = fills_blank(model, source)
    has_blank = BLANK in text and "fill" in model.can and "generate" not in model.can

    def distributions(layers: list[Tensor]) -> Iterator[Tensor]:
        """log p (n, V) of each layer; the last one has been normalized already."""
        for x in layers[:-1]:
            yield network.readout.log_probs(network.final_norm(x)).float()
            end_slice()
        yield network.readout.log_probs(layers[-1]).float()
        end_slice()

    with torch.no_grad():
        if not has_blank:
            blocks: Iterable[list[Tensor]]
            if is_filling:
                encoding, filling = model.filling_layers(source or "", text)
                blocks = [filling]
            else:
                encoding, blocks = model.scored_tokens(text, source or ""), model.token_layers(text, source or "")
            tokens = names.tokens(text, encoding.ids, encoding.spans)
            ids = network.predicted_ids(torch.from_numpy(encoding.ids).long())
            for block in blocks:
                for layers in zip(*(layer.split(MAX_ROWS) for layer in block), strict=True):
                    at = slice(len(positions), len(positions) + len(layers[-1]))
                    by_layer = (
                        explain_rows(names, tokens[at], ids[at], log_p, k) for log_p in distributions([*layers])
                    )
                    for column in zip(*by_layer, strict=True):
                        said = [LayerPrediction(i, e.entropy, e.top, e.nats, e.rank) for i, e in enumerate(column)]
                        positions.append(Position(column[0].token, tuple(said)))
        if has_blank or ("generate" in model.can and not model.is_seq2seq and not is_filling):
            left, _, right = text.partition(BLANK) if has_blank else ((source or "") + text, "", "")
            said = []
            for i, log_p in enumerate(distributions(model.next_layers(left, right))):
                entropy = float(torch.special.entr(log_p.double().exp()).sum())
                said.append(LayerPrediction(i, entropy, top_tokens(names, log_p, k)[0], None, None))
            positions.append(Position(None, tuple(said)))
    return LayerPredictions(run_name(model), text, source, tuple(positions))
