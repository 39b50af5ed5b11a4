"""Routes that look inside models: the functions of `nextword.lens`, with their fields as JSON keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from nextword import lens
from nextword.core.errors import invalid
from nextword.core.types import PSEUDO, Stop
from nextword.lens import LensResult
from nextword.lens.vectors import WORDS, check_items, look_words_up, place_points, rank_texts
from nextword.lm.base import TextModel
from nextword.server.native_routes import MAX_CONTEXT, check_tokens, embed_texts, measure, parse_beam, parse_sampling
from nextword.server.replies import JsonRoute, ServiceOf, reply
from nextword.server.schema import (
    AttentionBody,
    BeamBody,
    Body,
    DistributionBody,
    ExplainBody,
    GatesBody,
    GradientsBody,
    LayersBody,
    NearestBody,
    ProjectBody,
    SaliencyBody,
)
from nextword.server.service import Lease, Service
from nextword.tasks.base import Predictor
from nextword.tasks.classification import Classifier

MAX_EXPLAINED = 4096  # tokens of a text
MAX_INSIDE = 512  # tokens of a text whose layers, gates or attention are read, or whose gradients are computed
MAX_NUMBERS = 2_000_000  # in one answer
LONG = 1 << 30  # tokens of a call that shorter calls may always interrupt
MAX_TREE = 2048  # width × tokens of a beam search that is recorded

Object = dict[str, Any]  # a JSON object
router = APIRouter(prefix="/api", route_class=JsonRoute, tags=["lens"])


async def _look(
    service: Service,
    request: Request,
    body: Body,
    texts: Sequence[str | None],
    read: Callable[[TextModel], LensResult | Object],
) -> Response:
    """The answer with what `read` finds in the model when it reads these texts."""
    name = service.choose_for(request, body)

    def compute(lm: TextModel) -> Object:
        result = read(lm)
        return _as_object(result, name) if isinstance(result, LensResult) else result

    async def look(lease: Lease) -> Object:
        await measure(service, lease.model, "text", [[text for text in texts if text is not None]], MAX_EXPLAINED)
        return await lease.call(compute, LONG)

    return await reply(service, await service.use(request, name, look))


def _as_object(result: LensResult, name: str) -> Object:
    count = _count_numbers(result)
    if count > MAX_NUMBERS:
        raise invalid("text", f"{count:,} numbers", f"gives more than {MAX_NUMBERS:,}. Shorten it, or choose layers.")
    return {**result.as_dict(), "model": name}


def _count_numbers(value: object) -> int:
    """The size of all arrays in a result."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, (tuple, list)):
        return sum(map(_count_numbers, value))
    return sum(map(_count_numbers, vars(value).values())) if type(value).__module__.startswith("nextword.lens") else 0


@router.post("/explain", summary="What a model makes of a text")
async def explain(service: ServiceOf, request: Request, body: ExplainBody) -> Response:
    """Surprisal, rank, entropy and the likeliest alternatives of every token of a text. From a classifier: what each
    word contributes to the label, by integrated gradients."""

    def read(lm: TextModel) -> LensResult | Object:
        texts = [text for text in (body.text, body.source, body.second) if text is not None]
        if isinstance(lm, Classifier):
            check_tokens(lm, "text", texts, MAX_INSIDE)
            example = body.text if body.second is None else (body.text, body.second)
            labels = None if body.label is None else [_label(lm, body.label)]
            return vars(lm.explain([example], labels)[0])
        for key, value in (("label", body.label), ("second", body.second)):
            if value is not None:
                raise invalid(key, value[:40], "is for classifiers.")
        check_tokens(lm, "text", texts, MAX_INSIDE if lm.kind == PSEUDO else MAX_EXPLAINED)
        return lens.explain_text(lm, body.text, body.source, body.k)

    return await _look(service, request, body, [body.text, body.source, body.second], read)


def _label(lm: Predictor, label: str) -> str:
    if label not in lm.task.config.labels:
        raise invalid("label", label, f"must be one of {', '.join(lm.task.config.labels)}.")
    return label


@router.post("/attention", summary="Attention weights")
async def attention(service: ServiceOf, request: Request, body: AttentionBody) -> Response:
    """The attention weights of every layer and head while the model reads a text."""

    def read(lm: TextModel) -> LensResult:
        check_tokens(lm, "text", [body.text, body.source or ""], MAX_INSIDE)
        return lens.read_attention(lm, body.text, body.source, body.layers, body.heads)

    return await _look(service, request, body, [body.text, body.source], read)


@router.post("/layers", summary="Predictions of each layer")
async def layers(service: ServiceOf, request: Request, body: LayersBody) -> Response:
    """What each layer of a Transformer would predict: the logit lens."""

    def read(lm: TextModel) -> LensResult:
        check_tokens(lm, "text", [body.text, body.source or ""], MAX_INSIDE)
        return lens.predict_by_layer(lm, body.text, body.source, body.k)

    return await _look(service, request, body, [body.text, body.source], read)


@router.post("/gates", summary="Gates of a recurrent network")
async def gates(service: ServiceOf, request: Request, body: GatesBody) -> Response:
    """Gates, cells and hidden states of every layer at every step of a text."""

    def read(lm: TextModel) -> LensResult:
        check_tokens(lm, "text", [body.text], MAX_INSIDE)
        return lens.trace_gates(lm, body.text, body.layers)

    return await _look(service, request, body, [body.text], read)


@router.post("/gradients", summary="How far a recurrent network remembers")
async def gradients(service: ServiceOf, request: Request, body: GradientsBody) -> Response:
    """The norm of the gradient of the next token's −log p at every step of a text; with `every`, that of each token."""

    def read(lm: TextModel) -> LensResult:
        check_tokens(lm, "text", [body.text, body.target or ""], MAX_INSIDE)
        trace = lens.trace_gradients if body.every else lens.trace_gradient
        return trace(lm, body.text, body.target)

    return await _look(service, request, body, [body.text, body.target], read)


@router.post("/saliency", summary="Which words a prediction rests on")
async def saliency(service: ServiceOf, request: Request, body: SaliencyBody) -> Response:
    """What the prediction of the next word, or of a blank, owes to each token before it, or around it."""

    def read(lm: TextModel) -> LensResult:
        check_tokens(lm, "text", [body.text, body.target or "", body.source or ""], MAX_INSIDE)
        return lens.attribute_word(lm, body.text, body.target, body.source, body.method, body.steps)

    return await _look(service, request, body, [body.text, body.target, body.source], read)


@router.post("/nearest", summary="Nearest words or texts")
async def nearest(service: ServiceOf, request: Request, body: NearestBody) -> Response:
    """The words whose vectors are nearest to that of a word, or of a sum such as `king - man + woman`; or, of given
    `texts`, those nearest to a text."""
    name = service.choose_for(request, body)

    async def look(lease: Lease) -> lens.Neighbors:
        if body.texts is None:
            return await lease.call(lambda lm: lens.find_neighbors(lm, body.query, None, body.k))
        vectors = await embed_texts(service, lease, [body.query, *body.texts], body.layer, body.pool)
        ranked = partial(rank_texts, name, body.query, body.texts, k=body.k)
        return await service.in_thread(ranked, vectors)

    return await reply(service, _as_object(await service.use(request, name, look), name))


@router.post("/project", summary="Texts or words as points")
async def project(service: ServiceOf, request: Request, body: ProjectBody) -> Response:
    """Texts, or words, as points on a plane, by principal components."""
    name = service.choose_for(request, body)

    async def look(lease: Lease) -> lens.Projection:
        check_items(body.items)
        if body.of == WORDS:
            vectors = await lease.call(lambda lm: look_words_up(lm, body.items))
        else:
            vectors = await embed_texts(service, lease, body.items, body.layer, body.pool, "items")
        return await service.in_thread(partial(place_points, name, body.items, body.of), vectors)

    return await reply(service, _as_object(await service.use(request, name, look), name))


@router.post("/beam", summary="A beam search, step by step")
async def beam(service: ServiceOf, request: Request, body: BeamBody) -> Response:
    """The tree of a beam search, with the branches that it pruned."""

    def read(lm: TextModel) -> LensResult:
        check_tokens(lm, "prompt", [body.prompt])
        if body.beam * body.max_tokens > MAX_TREE:
            raise invalid("beam", body.beam, f"× max_tokens = {body.max_tokens} must be at most {MAX_TREE:,}.")
        return lens.trace_beam(lm, body.prompt, parse_beam(body, body.beam), Stop(body.max_tokens))

    return await _look(service, request, body, [body.prompt], read)


@router.post("/distribution", summary="The next token before and after decoding")
async def distribution(service: ServiceOf, request: Request, body: DistributionBody) -> Response:
    """The likeliest next tokens with their probabilities by the model, and after temperature, top-k, top-p, min-p and
    penalties: those with which `/api/generate` chooses in this place."""
    name = service.choose_for(request, body)

    async def look(lease: Lease) -> Object:
        lm = lease.model
        lm.require("generate")
        count = await service.compute(
            lambda text: check_tokens(lm, "prompt", [text], MAX_CONTEXT), body.prompt, len(body.prompt)
        )
        if count + len(body.ids) > MAX_CONTEXT:
            raise invalid(
                "ids", f"{len(body.ids):,} tokens", f"and the prompt must have at most {MAX_CONTEXT:,} tokens."
            )
        if lm.is_seq2seq and len(body.ids) > MAX_INSIDE:  # they are read one by one
            raise invalid("ids", f"{len(body.ids):,} tokens", f"must be at most {MAX_INSIDE} tokens of a translation.")
        if not 0 <= max(body.ids, default=0) < len(lm.tokenizer):
            raise invalid("ids", max(body.ids), f"must be from 0 to {len(lm.tokenizer) - 1}.")
        decoding = parse_sampling(body, is_exact=lm.is_seq2seq)
        settings: tuple[Any, ...] = (decoding, body.k, body.ids, body.chosen)
        if lm.is_seq2seq or not lm.network.can_join:
            return (await lease.call(lambda lm: lens.show_decoding(lm, body.prompt, *settings))).as_dict()
        ids = [*lm.tokenizer.encode(body.prompt).ids.tolist(), *body.ids]
        found = lease.engine.after_prompt(
            ids, lambda last, state: lens.show_decoding_after(lm, body.prompt, last, state, *settings)
        )
        return (await asyncio.wrap_future(found)).as_dict()

    return await reply(service, {**await service.use(request, name, look), "model": name})
