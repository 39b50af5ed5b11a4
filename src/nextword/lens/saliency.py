"""What a prediction owes to each word of the text: gradient × input and integrated gradients.

    F = log p(target | text)                        one token or several, whose log p are added
    gradient × input        a_t = e_t · ∂F/∂e_t                      at the embeddings e_t of the text
    integrated gradients    a_t = (e_t − b) · ∫₀¹ ∂F/∂x_t dα         at x_t = b + α (e_t − b), for a baseline b
                            Σ_t a_t = F(text) − F(baseline)          complete, up to the error of the quadrature

A positive number speaks for the target, a negative one against it. The first is one backward pass and says how F would
change if an embedding grew a little; the second adds up to what the text as a whole contributes (Sundararajan, Taly &
Yan 2017). The baseline and the interpolation are those of the attributions of task heads (tasks/attribution.py): the
padding token's embedding, or the mean of the table; special tokens stay. Embeddings are interpolated where they are
looked up, so no network needs to know.

Models that count have no gradient. What an n-gram goes by is its last n − 1 words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import Unsupported, invalid
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import Inputs
from nextword.generation.infilling import BLANK
from nextword.html.formatting import escape
from nextword.html.page import html_table, number_column, text_column
from nextword.lens.result import LensResult, Token, TokenNames, label, run_name
from nextword.lens.surprisal import require_source
from nextword.lm.base import TextModel
from nextword.lm.masked import MaskedLM
from nextword.tasks.attribution import interpolate_embeddings

INTEGRATED, TIMES_INPUT = "integrated_gradients", "gradient_x_input"
METHODS = (INTEGRATED, TIMES_INPUT)
NODES = (16, 64, 256)  # of the quadrature, until the gap is small enough
MAX_STEPS = 2048
MAX_GAP = 0.01  # of the sum of absolute attributions
MAX_TOKENS = 4096  # in one forward and backward pass
TEXT, SOURCE = "text", "source"


@dataclass(frozen=True)
class TokenAttribution:
    token: Token
    value: float  # positive: speaks for the target
    part: str  # "text", or "source": bytes are counted in that


@dataclass(frozen=True, eq=False, repr=False)
class Attributions(LensResult):
    """What the log probability of a target owes to each token of the text."""

    text: str
    source: str | None
    target: str
    method: str
    score: float  # F: log p(target | text)
    baseline: float | None  # F of the baseline; None for gradient × input
    gap: float | None  # Σ attributions − (score − baseline): the error of the quadrature
    tokens: tuple[TokenAttribution, ...] = field(repr=False)

    def __repr__(self) -> str:
        best = sorted(self.tokens, key=lambda each: -abs(each.value))[:3]
        strongest = ", ".join(f"{label(each.token)} {each.value:+.2f}" for each in best)
        return f"Attributions({self.text[-40:]!r} → {self.target!r}, log p = {self.score:.2f}: {strongest})"

    @property
    def title(self) -> str:
        return f"What speaks for “{self.target.strip() or self.target}”"

    def sections(self) -> list[tuple[str, str]]:
        largest = max((abs(each.value) for each in self.tokens), default=0.0) or 1.0
        texts = []
        for part, text in ((SOURCE, self.source), (TEXT, self.text)):
            own = [each for each in self.tokens if each.part == part]
            if text and own:
                texts.append(f'<p class="text" dir="auto">{_color(text, own, largest)}</p>')
        rows = [{"token": label(each.token), "value": each.value} for each in self.tokens]
        signed: Callable[[float], str] = "{:+.4f}".format
        table = html_table(
            "Every token", [text_column("Token", "token", "model"), number_column("Nats", signed, "value")], rows
        )
        facts = f"log p = {self.score:.3f}"
        if self.baseline is not None:
            facts += f"; without the words {self.baseline:.3f}; the attributions add up to the difference"
        if self.gap is not None and abs(self.gap) > MAX_GAP * sum(abs(each.value) for each in self.tokens):
            facts += f", up to an error of {abs(self.gap):.3f}"
        legend = "Blue speaks for the target, orange and underlined against it."
        text = f'{"".join(texts)}<p class="note">{facts}. {legend}</p>'
        return [("Text", text), ("Every token", table)]


def attribute_word(
    model: TextModel,
    text: str,
    target: str | None = None,
    source: str | None = None,
    method: str = INTEGRATED,
    steps: int | None = None,
) -> Attributions:
    """What the prediction of the word after a text, or of its blank `___`, owes to each token.

    target   the predicted text, as it would stand there (" mat"); None: the likeliest token
    source   what a sequence-to-sequence model translates, with `text` as its translation so far; for a causal model,
             text that precedes
    method   "integrated_gradients" or "gradient_x_input"
    steps    nodes of the quadrature; None: as many as bring its error below 1 %
    """
    if method not in METHODS:
        raise invalid("method", method, f"is unknown. Use {' or '.join(METHODS)}.")
    if steps is not None and not 1 <= steps <= MAX_STEPS:
        raise invalid("steps", steps, f"must be from 1 to {MAX_STEPS:,}.")
    require_source(model, source)
    prediction = find_prediction(model, text, target, source)
    if method == TIMES_INPUT:
        values, score = _times_input(model, prediction)
        attributed, baseline, gap = values, None, None
    else:
        for nodes in NODES if steps is None else (steps,):
            attributed, score, baseline = _integrate(model, prediction, nodes)
            gap = float(attributed.sum()) - (score - baseline)
            if abs(gap) <= MAX_GAP * float(np.abs(attributed).sum()):
                break
    tokens = [token for part in prediction.parts for token in part.tokens]
    return Attributions(
        run_name(model),
        text,
        source,
        prediction.name,
        method,
        score,
        baseline,
        gap,
        tuple(
            TokenAttribution(token, float(value), name)
            for (token, name), value in zip(tokens, attributed, strict=True)
            if name
        ),
    )


# ------------------------------------------------------------------------------------------------ what is predicted


class _Part(NamedTuple):
    """Ids that the network reads, and which of them are interpolated."""

    ids: Tensor  # (T,)
    tokens: list[tuple[Token, str]]  # of each id: the token, and the part that it belongs to; "" for special tokens

    @property
    def is_text(self) -> list[bool]:
        return [bool(name) for _, name in self.tokens]


class Prediction(NamedTuple):
    parts: list[_Part]
    targets: Tensor  # (n,) ids
    name: str
    log_probs: Callable[[Sequence[Tensor]], Tensor]  # the ids of each part (B, T) → (B, n, V)
    at: int  # where in the last part the first target is predicted


def find_prediction(model: TextModel, text: str, target: str | None, source: str | None) -> Prediction:
    network = model.network
    if not network.has_output_layer:
        raise model.unsupported("next")
    if not network.has_hidden_states or network.is_quantized:
        reason = "its weights are int8; load it in fp32" if network.is_quantized else "it counts, or it models no text"
        raise Unsupported(
            f"{type(network).__name__} has no gradients: {reason}. What it expects at every token is its surprisal "
            "(nextword evaluate RUN --data FILE --explain).",
            ability="saliency",
        )
    if isinstance(model, MaskedLM):
        return _predict_blank(model, text, target)
    model.require("generate" if model.is_seq2seq else "next")
    return (
        _predict_target(model, text, target, source or "")
        if model.is_seq2seq
        else _predict_next(model, text, target, source or "")
    )


def _predict_next(model: TextModel, text: str, target: str | None, given: str) -> Prediction:
    """begin text ─▶ target."""
    network, names = model.network, TokenNames(model)
    first = network.start(1)[0]
    before, own = given + text, np.zeros(0, np.int64)
    encoding = model.tokenizer.encode(before)
    if target is not None:
        own = _require_tokens(model.scored_tokens(target, before).ids, target)
        joined = model.tokenizer.encode(before + target)
        kept = len(joined) - len(own)
        ids, spans = joined.ids[:kept], joined.spans[:kept]
    else:
        ids, spans = encoding.ids, encoding.spans
    border = len(given.encode())
    tokens = [(token, "") for token in names.bare(first.tolist())]
    for token in names.tokens(before, ids, spans):
        name = SOURCE if token.end <= border and border else TEXT
        offset = border if name == TEXT else 0
        start, end = max(0, token.start - offset), token.end - offset
        tokens.append((Token(token.text, token.id, start, end), name))
    tokens += [(token, "") for token in names.bare(own[:-1])]
    row = torch.cat([first, torch.from_numpy(np.concatenate([ids, own[:-1]]).astype(np.int64)).to(first.device)])
    if network.max_positions is not None and len(row) > network.max_positions:
        raise invalid("text", f"{len(row):,} tokens", f"must have at most {network.max_positions - 1:,} tokens.")
    count = max(1, len(own))

    def log_probs(rows: Sequence[Tensor]) -> Tensor:
        h = network.last_hidden(Inputs(rows[0]), None)[0][:, -count:]
        predicted: Tensor = network.readout.log_probs(h.flatten(0, 1)).unflatten(0, h.shape[:2])
        return predicted

    return _with_target(model, [_Part(row, tokens)], own, target, log_probs, len(row) - count)


def _predict_target(model: TextModel, text: str, target: str | None, source: str) -> Prediction:
    """source ─▶ begin text ─▶ target."""
    network, names = model.network, TokenNames(model)
    given, written = model.scored_tokens(source), model.scored_tokens(text)
    first = torch.tensor([model.network.vocabulary.begin], device=model.device)
    own = np.zeros(0, np.int64) if target is None else _require_tokens(model.tokenizer.encode(target).ids, target)
    parts = [
        _Part(
            torch.from_numpy(given.ids).long().to(model.device),
            [
                (token, SOURCE if token.start < token.end else "")
                for token in names.tokens(source, given.ids, given.spans)
            ],
        ),
        _Part(
            torch.cat([first, torch.from_numpy(np.concatenate([written.ids[:-1], own[:-1]])).long().to(model.device)]),
            [
                *((token, "") for token in names.bare(first.tolist())),
                *((token, TEXT) for token in names.tokens(text, written.ids[:-1], written.spans[:-1])),
                *((token, "") for token in names.bare(own[:-1])),
            ],
        ),
    ]
    count = max(1, len(own))

    def log_probs(rows: Sequence[Tensor]) -> Tensor:
        h = network.last_hidden(Inputs(rows[1], source=Inputs(rows[0])), None)[0][:, -count:]
        predicted: Tensor = network.readout.log_probs(h.flatten(0, 1)).unflatten(0, h.shape[:2])
        return predicted

    return _with_target(model, parts, own, target, log_probs, len(parts[1].ids) - count)


def _predict_blank(model: MaskedLM, text: str, target: str | None) -> Prediction:
    """[CLS] left [MASK] right [SEP] ─▶ the masked token."""
    if text.count(BLANK) != 1:
        raise invalid("text", text[:40], f"must have one blank {BLANK}, which this model predicts.")
    left, _, right = text.partition(BLANK)
    frame, at, origin = model.frame_blank(left, right)
    own = np.zeros(0, np.int64)
    if target is not None:
        own = _require_tokens(model.tokenizer.encode(target).ids, target)
        if len(own) != 1:
            raise invalid("target", target, f"must be one token for a masked model; it is {len(own)}.")
    names, start, end = TokenNames(model), *frame.text_spans[0]
    tokens = []
    for i, token in enumerate(names.tokens(text, frame.ids, origin)):
        tokens.append((token, TEXT if start <= i < end and i != at else ""))
    segments = None if frame.segments is None else torch.from_numpy(frame.segments).to(model.device)

    def log_probs(rows: Sequence[Tensor]) -> Tensor:
        ids = rows[0]
        wide = None if segments is None else segments.expand_as(ids)
        positions = torch.arange(len(ids), device=ids.device) * ids.shape[1] + at
        predicted: Tensor = model.network.fill(Inputs(ids, segments=wide), positions).unsqueeze(1)
        return predicted

    part = _Part(torch.from_numpy(frame.ids).to(model.device), tokens)
    return _with_target(model, [part], own, target, log_probs, at)


def _with_target(
    model: TextModel,
    parts: list[_Part],
    own: np.ndarray,
    target: str | None,
    log_probs: Callable[[Sequence[Tensor]], Tensor],
    at: int,
) -> Prediction:
    """The prediction of the given target, or of the likeliest token."""
    if target is None:
        with torch.no_grad():
            own = log_probs([part.ids.unsqueeze(0) for part in parts])[0, -1:].argmax(-1).cpu().numpy()
        target = TokenNames(model).name(int(own[0]))
    ids = model.network.predicted_ids(torch.from_numpy(own.astype(np.int64)))
    return Prediction(parts, ids.to(parts[0].ids.device), target, log_probs, at)


def _require_tokens(ids: np.ndarray, target: str) -> np.ndarray:
    if not len(ids):
        raise invalid("target", target, "has no token, so there is nothing to predict.")
    return ids


# ------------------------------------------------------------------------------------------------ gradients


def _times_input(model: TextModel, prediction: Prediction) -> tuple[np.ndarray, float]:
    scores, inputs, gradients = _gradients(model, prediction, np.ones(1))
    products = [(x * g).sum(-1)[0] for x, g in zip(inputs, gradients, strict=True)]
    return torch.cat(products).cpu().numpy(), float(scores[0])


def _integrate(model: TextModel, prediction: Prediction, nodes: int) -> tuple[np.ndarray, float, float]:
    """Attributions of all tokens, F(text) and F(baseline), by Gauss-Legendre quadrature."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    # The two ends have weight 0: they are evaluated for the scores alone
    alphas, weights = np.array([0.0, *(points + 1) / 2, 1.0]), np.array([0.0, *weights / 2, 0.0])
    longest = max(len(part.ids) for part in prediction.parts)
    size = max(1, slice_tokens(MAX_TOKENS) // longest)
    integral: np.ndarray | float = 0.0
    scores: list[float] = []
    for at in range(0, len(alphas), size):
        chosen = slice(at, at + size)
        values, inputs, gradients = _gradients(model, prediction, alphas[chosen], directions=True)
        scores += values.tolist()
        products = torch.cat([(x * g).sum(-1) for x, g in zip(inputs, gradients, strict=True)], 1)
        integral = integral + weights[chosen] @ products.cpu().numpy()
        end_slice()
    assert isinstance(integral, np.ndarray)
    return integral, scores[-1], scores[0]


def _gradients(
    model: TextModel, prediction: Prediction, alphas: np.ndarray, directions: bool = False
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """F (n,) at each α; and of each part, the embeddings, or with `directions` e − b, and ∂F/∂x: (n, T, D) each."""
    n, lengths = len(alphas), {len(part.ids) for part in prediction.parts}
    count = next(rows for rows in range(n, n + 3) if rows not in lengths)  # so that batch first or time first shows
    share = torch.from_numpy(np.resize(alphas, count)).to(prediction.targets.device).unsqueeze(1)
    rows = [part.ids.expand(count, -1).contiguous() for part in prediction.parts]
    with ExitStack() as stack, torch.enable_grad():
        lookups = []
        for part, ids in zip(prediction.parts, rows, strict=True):
            text = torch.tensor(part.is_text, device=ids.device).expand_as(ids)
            where = torch.where(text, share, 1.0)
            lookups.append(stack.enter_context(interpolate_embeddings(model.network, ids, text, where)))
        log_p = prediction.log_probs(rows).double()  # (rows, targets, V)
        targets = prediction.targets.expand(count, -1).unsqueeze(-1)
        scores = log_p.gather(-1, targets).squeeze(-1).sum(-1)
        found = [x for own in lookups for _, x in own]
        if not found:
            raise Unsupported(f"{type(model.network).__name__} looks no token up in a table.", ability="saliency")
        gradients = iter(torch.autograd.grad(scores[:n].sum(), found, allow_unused=True))
    values, slopes = [], []
    for part, own in zip(prediction.parts, lookups, strict=True):
        shape = (count, len(part.ids))
        value, slope = [], []
        for direction, x in own:
            gradient = next(gradients)
            gradient = torch.zeros_like(x) if gradient is None else gradient
            pair = (direction if directions else x).detach().expand_as(x), gradient
            first, second = (t if t.shape[:2] == shape else t.transpose(0, 1) for t in pair)
            value.append(first[:n].double())
            slope.append(second[:n].double())
        mask = torch.tensor(part.is_text, device=part.ids.device).unsqueeze(-1)
        values.append(torch.cat(value, -1))
        slopes.append(torch.cat(slope, -1) * mask)
    return scores[:n].detach().cpu(), values, slopes


# ------------------------------------------------------------------------------------------------ drawing


def _color(text: str, tokens: Sequence[TokenAttribution], largest: float) -> str:
    """The text with each token colored by its value: f1 … f5 for the target, g1 … g5 against it (page.css)."""
    raw, at, parts = text.encode(), 0, []
    for each in tokens:
        start, end = max(each.token.start, at), each.token.end
        if end <= start:
            continue
        parts.append(escape(raw[at:start].decode("utf-8", "replace")))
        piece = raw[start:end].decode("utf-8", "replace")
        word = piece.lstrip(" ")
        strength = min(5, int(abs(each.value) / largest * 5.999))
        css = f"{'f' if each.value > 0 else 'g'}{strength}" if strength else ""
        parts.append(escape(piece[: len(piece) - len(word)]))
        parts.append(f'<span class="{css}" title="{each.value:+.3f} nats">{escape(word)}</span>')
        at = end
    return "".join(parts) + escape(raw[at:].decode("utf-8", "replace"))
