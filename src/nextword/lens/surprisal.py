"""What a model expected at every token of a text.

    the cat sat on the        surprisal   −log p(token | context)            nats, or bits = nats / ln 2
              ▲               rank        1 if no token was likelier
              │               entropy     Σ −p log p over the vocabulary: how unsure the model was before the token
    2.1 bits, rank 3          top         the k likeliest tokens

The context is what the model sees: all tokens before, all tokens after (a model that reads backward), all others (a
masked model, which hides one token at a time: a pseudo-likelihood), or the tokens before and a source. So the sum over
the tokens is what `model.score(text)` returns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import invalid
from nextword.core.types import PSEUDO
from nextword.html.charts import surprisal_legend, surprisal_text
from nextword.html.page import describe_hardest_token, html_table, number_column, text_column
from nextword.lens.result import LensResult, Token, TokenNames, label, run_name, show_piece
from nextword.lm.base import TextModel

MAX_ROWS = 200  # tokens in the table of a page


@dataclass(frozen=True)
class Alternative:
    """A token that the model thought likely."""

    text: str
    id: int
    probability: float
    nats: float  # −log p


@dataclass(frozen=True)
class TokenExplanation:
    token: Token
    nats: float  # −log p
    bits: float
    rank: int  # 1: no token was likelier
    entropy: float  # of the whole distribution, in nats
    top: tuple[Alternative, ...]  # the likeliest tokens, best first


@dataclass(frozen=True, eq=False, repr=False)
class TextExplanation(LensResult):
    """Surprisal, rank, entropy and alternatives of every token of a text."""

    kind: str  # "exact", or "pseudo" for a masked model
    text: str
    source: str | None  # read before the text
    nats: float  # sum over the tokens: as `score`
    bits_per_byte: float | None  # None for a tokenizer that does not keep all of the text
    tokens: tuple[TokenExplanation, ...] = field(repr=False)

    def __repr__(self) -> str:
        ranks = [token.rank for token in self.tokens]
        first = f"{sum(rank == 1 for rank in ranks)} of {len(ranks)} tokens were the likeliest"
        pseudo = "pseudo-" if self.kind == PSEUDO else ""
        return f"TextExplanation({self.text[:40]!r}: {self.nats:.2f} {pseudo}nats; {first})"

    @property
    def title(self) -> str:
        return f"{'Pseudo-surprisal' if self.kind == PSEUDO else 'Surprisal'} of each token"

    def sections(self) -> list[tuple[str, str]]:
        texts, bits = _display_parts(self)
        rows = [
            {
                "token": label(each.token),
                "bits": each.bits,
                "rank": each.rank,
                "entropy": each.entropy / math.log(2),
                "top": ", ".join(f"{show_piece(a.text)} {a.probability:.1%}" for a in each.top),
            }
            for each in self.tokens[:MAX_ROWS]
        ]
        columns = [
            text_column("Token", "token", "model"),
            number_column("Bits", "{:.2f}".format),
            number_column("Rank"),
            number_column("Entropy, bits", "{:.2f}".format, "entropy"),
            text_column("Likeliest tokens", "top", "config"),
        ]
        text = (
            f'<p class="text" dir="auto">{surprisal_text(texts, bits)}</p>{surprisal_legend()}'
            f'<p class="note">{describe_hardest_token(texts, bits)}</p>'
        )
        return [("Text", text), ("Every token", html_table("Every token", columns, rows))]


def explain_text(model: TextModel, text: str, source: str | None = None, k: int = 5) -> TextExplanation:
    """Surprisal, rank, entropy and the k likeliest alternatives of every token of a text.

    source   what a sequence-to-sequence model translates; a text with one blank `___`, which `text` fills, for a model
             that fills blanks of any length (GLM, T5); for any other model, text that precedes and is not scored
    """
    require_source(model, source)
    if k < 0:
        raise invalid("k", k, "must be 0 or more.")
    names = TokenNames(model)
    if fills_blank(model, source):
        encoding, layers = model.filling_layers(source or "", text)
        with torch.no_grad():
            blocks: Iterable[Tensor] = [model.network.readout.log_probs(layers[-1]).float()]
    else:
        encoding, blocks = model.scored_tokens(text, source or ""), model.token_log_probs(text, source or "")
    tokens = names.tokens(text, encoding.ids, encoding.spans)
    ids = model.network.predicted_ids(torch.from_numpy(encoding.ids.astype(np.int64)))
    explained: list[TokenExplanation] = []
    for log_p in blocks:
        at = len(explained)
        explained += explain_rows(names, tokens[at : at + len(log_p)], ids[at : at + len(log_p)], log_p, k)
    nats = math.fsum(token.nats for token in explained)
    size = len(text.encode())
    bits_per_byte = nats / math.log(2) / size if model.tokenizer.lossless and size else None
    return TextExplanation(run_name(model), model.kind, text, source, nats, bits_per_byte, tuple(explained))


def fills_blank(model: TextModel, source: str | None) -> bool:
    """Whether a text is to be explained as what fills the blank of its source."""
    return source is not None and model.can_infill and model.count_blanks(source) == 1


def explain_rows(
    names: TokenNames, tokens: tuple[Token, ...], ids: Tensor, log_p: Tensor, k: int
) -> list[TokenExplanation]:
    """Explain tokens, which are predicted under these ids (n,), by the distributions log p (n, V)."""
    own = log_p.gather(1, ids.to(log_p.device).unsqueeze(1))
    ranks = (log_p > own).sum(1) + 1
    entropies = torch.special.entr(log_p.double().exp()).sum(1)
    rows = zip(tokens, own.squeeze(1).double().tolist(), ranks.tolist(), entropies.tolist(), strict=True)
    best = top_tokens(names, log_p, k)
    return [
        TokenExplanation(token, 0.0 - value, (0.0 - value) / math.log(2), rank, entropy, best[i])
        for i, (token, value, rank, entropy) in enumerate(rows)
    ]


def top_tokens(names: TokenNames, log_p: Tensor, k: int) -> list[tuple[Alternative, ...]]:
    """The k likeliest tokens of each distribution log p (n, V)."""
    best = log_p.double().topk(min(k, log_p.shape[1]))
    return [
        tuple(Alternative(names.name(id), id, math.exp(value), 0.0 - value) for value, id in zip(*row, strict=True))
        for row in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def require_source(model: TextModel, source: str | None) -> None:
    """Raise an error if a model that generates from a source got none."""
    if model.is_seq2seq and source is None:
        raise invalid(
            "source", source, "must be the text that this model generates from, such as a sentence to translate."
        )


def _display_parts(explanation: TextExplanation) -> tuple[list[str], list[float | None]]:
    """The text in parts, and the bits of each; None where the tokenizer dropped something.

    Tokens that split a character are one part, which costs their sum.
    """
    raw, at = explanation.text.encode(), 0
    texts: list[str] = []
    costs: list[float | None] = []
    start, bits = -1, 0.0  # of a character that is not complete yet
    for each in explanation.tokens:
        token = each.token
        if token.start == token.end:  # the end of a target
            texts.append(token.text)
            costs.append(each.bits)
            continue
        if token.start > at and start < 0:
            texts.append(raw[at : token.start].decode("utf-8", "replace"))
            costs.append(None)
        start, bits, at = (token.start if start < 0 else start), bits + each.bits, max(at, token.end)
        is_inside_character = at < len(raw) and raw[at] & 0xC0 == 0x80  # a continuation byte of UTF-8
        if not is_inside_character:
            texts.append(raw[start:at].decode("utf-8", "replace"))
            costs.append(bits)
            start, bits = -1, 0.0
    if at < len(raw):
        texts.append(raw[at:].decode("utf-8", "replace"))
        costs.append(None)
    return texts, costs
