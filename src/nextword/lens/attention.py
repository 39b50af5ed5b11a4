"""Where a network looks: attention weights by layer and head.

    self     a token of the text attends to tokens of the text
    causal   the same from left to right, of a network that reads in both ways (GLM)
    query    XLNet's second stream: what predicts the next token attends to the tokens so far
    source   a token of the source attends to the source (T5's encoder)
    cross    a token of the target attends to the source

`weights[l, h, t, s]` is the share of its attention that row t pays to column s, in head h of layer l; rows sum to 1.
Fused kernels return no weights, so `AttentionRecorder` (layers/attention.py) computes them from the same queries and
keys while the network reads the text once. A sequence-to-sequence network with recurrent layers has one map, whose row
t shows where it looked while it generated token t.

Attention shows where information is taken from, not why a word was predicted: "Attention is not Explanation" (Jain &
Wallace 2019). For that, see saliency.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import Unsupported, invalid
from nextword.core.protocols import Autoregressive, Encoder
from nextword.core.types import FramedText, Inputs
from nextword.generation.infilling import BLANK
from nextword.html.charts import attention_map
from nextword.layers.attention import AttentionRecorder
from nextword.lens.result import LensResult, Token, TokenNames, choose_numbers, label, run_name
from nextword.lens.surprisal import require_source
from nextword.lm.base import TextModel
from nextword.lm.embedding import frame_ids
from nextword.lm.masked import MaskedLM

SELF, CAUSAL, QUERY, SOURCE, CROSS = "self", "causal", "query", "source", "cross"
DESCRIPTIONS = {
    SELF: "tokens attend to the text",
    CAUSAL: "tokens attend to those before them",
    QUERY: "predictions of the next token attend to the text so far",
    SOURCE: "tokens of the source attend to the source",
    CROSS: "tokens of the target attend to the source",
}
MAX_DRAWN = 60  # rows and columns of a drawn map


@dataclass(frozen=True, eq=False)
class AttentionMap:
    kind: str  # a key of DESCRIPTIONS
    rows: tuple[Token, ...]  # what attends
    columns: tuple[Token, ...]  # what is attended to
    layers: tuple[int, ...]  # numbers of the layers, from 1
    heads: tuple[int, ...]  # numbers of the heads, from 1
    weights: np.ndarray = field(repr=False)  # (layers, heads, rows, columns)


@dataclass(frozen=True, eq=False, repr=False)
class Attention(LensResult):
    """The attention weights of a network over one text."""

    text: str
    source: str | None
    maps: tuple[AttentionMap, ...]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{m.kind} {' × '.join(map(str, m.weights.shape))}" for m in self.maps)
        return f"Attention({self.text[:40]!r}: {shapes}: layers × heads × rows × columns)"

    def map(self, kind: str) -> AttentionMap:
        for each in self.maps:
            if each.kind == kind:
                return each
        raise invalid("kind", kind, f"is not among the maps. Use {' or '.join(m.kind for m in self.maps)}.")

    @property
    def title(self) -> str:
        return "Attention by layer and head"

    def sections(self) -> list[tuple[str, str]]:
        return [(f"{each.kind.capitalize()}: {DESCRIPTIONS[each.kind]}", _draw(each)) for each in self.maps]


def read_attention(
    model: TextModel,
    text: str,
    source: str | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> Attention:
    """The attention weights of a network while it reads a text.

    source   what a sequence-to-sequence model generates the text from
    layers   numbers of the layers to keep, from 1, or negative from the last; None: all. `heads` likewise
    """
    if not (model.network.is_transformer or model.network.has_attention):
        raise Unsupported(
            f"{type(model.network).__name__} has no attention. Use a Transformer, or a seq2seq model with attention; "
            "for a recurrent network there are gates and gradients through time.",
            ability="attention",
        )
    require_source(model, source)
    if source is not None and not model.is_seq2seq:
        raise invalid("source", source[:40], "is for models that generate from one. Put what precedes into the text.")
    with torch.no_grad():
        maps = _seq2seq_maps(model, text, source or "") if model.is_seq2seq else _text_maps(model, text)
    return Attention(run_name(model), text, source, tuple(_choose(each, layers, heads) for each in maps))


# ------------------------------------------------------------------------------------------------ reading


def _text_maps(model: TextModel, text: str) -> list[AttentionMap]:
    """A causal network reads `begin text`; a bidirectional one the framed text, its blank masked; XLNet both ways."""
    network, names = model.network, TokenNames(model)
    if isinstance(model, MaskedLM) and text.count(BLANK) == 1:
        left, _, right = text.partition(BLANK)
        frame, _, origin = model.frame_blank(left, right)
        return _read_frame(model, frame, names.tokens(text, frame.ids, origin))
    encoding = model.tokenizer.encode(text)
    own = names.tokens(text, encoding.ids, encoding.spans)
    maps = []
    is_causal, is_encoder = isinstance(network, Autoregressive), isinstance(network, Encoder)
    if is_encoder and (model.is_bidirectional or not is_causal):
        frame = frame_ids(network, encoding.ids)
        start, end = frame.text_spans[0]
        if end - start < len(own):
            raise _too_long(len(own), end - start)
        tokens = (*names.bare(frame.ids[:start]), *own, *names.bare(frame.ids[end:]))
        maps += _read_frame(model, frame, tokens)
    if is_causal and network.has_hidden_states:
        first, _ = network.start(1)
        ids = torch.cat([first, torch.from_numpy(encoding.ids.astype(np.int64)).to(first.device)])
        if network.window is not None and len(ids) > network.window:
            raise _too_long(len(own), network.window - 1)
        tokens = (*names.bare(first.tolist()), *own)
        with AttentionRecorder() as recorder:
            layers, _ = network.hidden(Inputs(ids.unsqueeze(0)), None)
        blocks = len(layers) - 1
        kind = QUERY if network.has_query_stream else CAUSAL if maps else SELF
        maps += _maps(kind, recorder.weights[-blocks:], tokens, _columns(model, tokens))
    return maps


def _read_frame(model: TextModel, frame: FramedText, tokens: tuple[Token, ...]) -> list[AttentionMap]:
    """Every token attends to all of the frame."""
    segments = None if frame.segments is None else torch.from_numpy(frame.segments[None]).to(model.device)
    with AttentionRecorder() as recorder:
        model.network.encode(Inputs(torch.from_numpy(frame.ids[None]).to(model.device), segments=segments))
    return _maps(SELF, recorder.weights, tokens, tokens)


def _columns(model: TextModel, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """What a causal network attends to: the text, and before it what GLM reads as part A."""
    if not model.network.generates_spans:
        return tokens
    marks = model.network.pieces
    return (*TokenNames(model).bare([marks.begin]), Token("[gMASK]", marks.masks[-1], 0, 0), *tokens)


def _seq2seq_maps(model: TextModel, text: str, source: str) -> list[AttentionMap]:
    """T5's attention in the encoder, in the decoder and between them; or that of a recurrent decoder to the source."""
    network, names = model.network, TokenNames(model)
    target, given = model.scored_tokens(text), model.scored_tokens(source)
    source_tokens = names.tokens(source, given.ids, given.spans)
    target_tokens = names.tokens(text, target.ids, target.spans)
    source_ids, target_ids = (torch.from_numpy(e.ids.astype(np.int64)).to(model.device) for e in (given, target))
    with AttentionRecorder() as reading:
        first, state = network.start(1, Inputs(source_ids.unsqueeze(0)))
    inputs = Inputs(torch.cat([first, target_ids[:-1]]).unsqueeze(0))
    if network.has_attention:
        weights = network.attention(inputs, state)  # (1, T, S)
        return _maps(CROSS, [weights.unsqueeze(1)], target_tokens, source_tokens)
    with AttentionRecorder() as writing:
        network.hidden(inputs, state)
    read = (*names.bare(first.tolist()), *target_tokens[:-1])  # row t reads this token and predicts the next
    return [
        *_maps(SOURCE, reading.weights, source_tokens, source_tokens),
        *_maps(SELF, writing.weights[0::2], read, read),  # every block attends to the target, then to the source
        *_maps(CROSS, writing.weights[1::2], target_tokens, source_tokens),
    ]


def _maps(
    kind: str, weights: Sequence[Tensor], rows: tuple[Token, ...], columns: tuple[Token, ...]
) -> list[AttentionMap]:
    """One map of the weights (1, H, T, S) of each layer, of which the last rows and the first columns are wanted.

    A network with two streams (XLNet) attends for both at once, with the rows of the second stream last. The blocks of
    a banded layer (GPT-3) are padded at their end.
    """
    if not weights:
        return []
    kept = [w[0, :, : len(rows), : len(columns)] if _is_padded(w, columns) else w[0, :, -len(rows) :] for w in weights]
    array = torch.stack(kept).double().cpu().numpy()
    layers, heads = array.shape[:2]
    return [AttentionMap(kind, rows, columns, tuple(range(1, layers + 1)), tuple(range(1, heads + 1)), array)]


def _is_padded(weights: Tensor, columns: tuple[Token, ...]) -> bool:
    return weights.shape[-1] > len(columns)


def _choose(each: AttentionMap, layers: Sequence[int] | None, heads: Sequence[int] | None) -> AttentionMap:
    at, by = choose_numbers("layers", layers, len(each.layers)), choose_numbers("heads", heads, len(each.heads))
    weights = each.weights[np.ix_(at, by)]
    return replace(
        each, layers=tuple(each.layers[i] for i in at), heads=tuple(each.heads[i] for i in by), weights=weights
    )


def _too_long(tokens: int, room: int) -> Exception:
    return invalid("text", f"{tokens:,} tokens", f"must have at most {room:,} tokens, which the network reads at once.")


# ------------------------------------------------------------------------------------------------ drawing


def _draw(each: AttentionMap) -> str:
    """Each head of a single layer; of several layers, the mean of the heads. The last layer is open."""
    rows, columns = ([label(token) for token in tokens[:MAX_DRAWN]] for tokens in (each.rows, each.columns))
    pictures = []
    if len(each.layers) == 1:
        titles = [f"Layer {each.layers[0]}, head {head}" for head in each.heads]
        matrices = list(each.weights[0])
    else:
        titles = [f"Layer {layer}, mean of {len(each.heads)} heads" for layer in each.layers]
        matrices = list(each.weights.mean(1))
    for i, (title, matrix) in enumerate(zip(titles, matrices, strict=True)):
        picture = attention_map(columns, rows, matrix[: len(rows), : len(columns)].tolist(), title)
        is_open = " open" if i == len(titles) - 1 else ""
        pictures.append(f'<details{is_open}><summary>{title}</summary><div class="maps">{picture}</div></details>')
    cut = ""
    if max(len(each.rows), len(each.columns)) > MAX_DRAWN:
        cut = f'<p class="note">The first {MAX_DRAWN} tokens are drawn.</p>'
    return "".join(pictures) + cut
