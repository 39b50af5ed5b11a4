"""nextword's own routes: what the commands do, for the models that are served. JSON keys are those of `--json`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from nextword.core.errors import Unsupported, invalid
from nextword.core.types import PSEUDO, Beam, Contrastive, Decoding, Greedy, Guess, Sample, Score, Stop
from nextword.evaluation.seq2seq import max_target_length
from nextword.generation.infilling import BLANK, Filled
from nextword.lm.base import Candidate, TextModel
from nextword.lm.generation_mixin import GenerationMixin
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.server.replies import STREAMS, EventStream, JsonRoute, ServiceOf, reply
from nextword.server.requests import Finished, GenerationRequest, TokenEvent
from nextword.server.schema import (
    MAX_BEAM_TOKENS,
    MAX_CHOSEN,
    MAX_PSEUDO_TOKENS,
    MAX_REQUEST_TOKENS,
    MAX_SEED,
    AnswerBody,
    BeamSettings,
    ChooseBody,
    EmbedBody,
    FillBody,
    GenerateBody,
    NextBody,
    PredictBody,
    SamplingSettings,
    ScoreBody,
    TagBody,
    TranslateBody,
)
from nextword.server.service import Lease
from nextword.tasks.in_context import TEMPLATE, zero_shot_class
from nextword.tasks.multiple_choice import ChoicePredictor
from nextword.tasks.multitask import MultitaskPredictor
from nextword.tasks.question_answering import AnswerPredictor
from nextword.tasks.tagging import WordTagger

DEFAULT_TEMPERATURE = 0.8
DEFAULT_LENGTH = 100  # tokens
MAX_CONTEXT = 16_384  # tokens of a text before a next word
SAMPLING_KEYS = frozenset(("temperature", "top_k", "top_p", "min_p", "typical_p", "seed"))

Object = dict[str, Any]  # a JSON object
router = APIRouter(prefix="/api", route_class=JsonRoute, tags=["nextword"])


def check_tokens(lm: TextModel, key: str, texts: Sequence[str], most: int = MAX_REQUEST_TOKENS) -> int:
    """How many tokens the texts have together; an error if they are too many."""
    total = sum(len(encoding) for encoding in lm.tokenizer.encode_batch(list(texts)))
    if total > most:
        raise invalid(key, f"{total:,} tokens", f"must have at most {most:,} tokens.")
    return total


# ------------------------------------------------------------------------------------------------ score, next, fill


@router.post("/score", summary="How likely are texts?")
async def score(service: ServiceOf, request: Request, body: ScoreBody) -> Response:
    """−log p of each text in nats, and the units to divide it by."""

    def compute(lm: TextModel) -> Object:
        lm.require("score")
        if body.given is not None and len(body.given) != len(body.texts):
            raise invalid("given", len(body.given), f"must be as many texts as texts, {len(body.texts)}.")
        most = MAX_PSEUDO_TOKENS if lm.kind == PSEUDO else MAX_REQUEST_TOKENS
        check_tokens(lm, "texts", [*body.texts, *(body.given or ())], most)
        return {"scores": [_score_object(score) for score in lm.score_many(body.texts, body.given)]}

    return await reply(service, await service.call(request, service.choose_for(request, body), compute))


def _score_object(score: Score) -> Object:
    return {
        **vars(score),
        "bits_per_byte": score.bits_per_byte(),
        "word_perplexity": score.word_perplexity(),
        "token_perplexity": score.token_perplexity(),
    }


@router.post("/next", summary="The likeliest next words")
async def next_words(service: ServiceOf, request: Request, body: NextBody) -> Response:
    """The likeliest next words, or words for the blanks of a text, with probabilities."""

    async def find() -> list[list[Guess]]:
        async with service.lease_for(request, body) as lease:
            lm = lease.model
            await service.compute(lambda text: check_tokens(lm, "text", [text], MAX_CONTEXT), body.text, len(body.text))
            if BLANK in body.text and "fill" in lm.can:
                return await lease.call(lambda lm: lm.fill(body.text, body.k, body.tokens))
            left, blank, right = body.text.partition(BLANK)
            left = left.rstrip() if blank else left
            return [await asyncio.wrap_future(lease.engine.next(left, right, body.k, body.tokens))]

    rows = _guess_rows(await service.run(request, find()))
    return await reply(
        service, {"text": body.text, "guesses": rows[0], **({"blanks": rows} if BLANK in body.text else {})}
    )


@router.post("/fill", summary="Words for blanks")
async def fill(service: ServiceOf, request: Request, body: FillBody) -> Response:
    """The likeliest words for every blank `___` of a text, with all other blanks open."""

    def compute(lm: TextModel) -> Object:
        check_tokens(lm, "text", [body.text], MAX_CONTEXT)
        return {"text": body.text, "blanks": _guess_rows(lm.fill(body.text, body.k, body.tokens))}

    return await reply(service, await service.call(request, service.choose_for(request, body), compute))


def _guess_rows(blanks: Sequence[Sequence[Guess]]) -> list[list[Object]]:
    return [[vars(guess) for guess in guesses] for guesses in blanks]


# ------------------------------------------------------------------------------------------------ generate


@router.post("/generate", summary="Write text", responses=STREAMS)
async def generate(service: ServiceOf, request: Request, body: GenerateBody) -> Response:
    """Continue a prompt, generate from a source, or fill the blanks of a text, as `nextword generate` does. A list of
    prompts gives a list, `generations`; prompt i is sampled with seed + i."""
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if body.stream and (len(prompts) > 1 or body.n_best is not None):
        raise invalid("stream", True, "is for one prompt, and not for the n best.")
    if body.ids and (len(prompts) > 1 or body.n_best is not None):
        raise invalid("ids", body.ids[:8], "is for one prompt, and not for the n best.")
    async with AsyncExitStack() as stack:
        lease = await stack.enter_async_context(service.lease(service.choose_for(request, body)))
        lm = lease.model
        await service.compute(lambda texts: check_tokens(lm, "prompt", texts), prompts, sum(map(len, prompts)))
        has_blanks = lm.can_infill and any(map(lm.count_blanks, prompts))
        if body.ids and (has_blanks or lm.is_seq2seq):
            raise invalid("ids", body.ids[:8], "is for models that continue a prompt, without blanks.")
        decoding = _parse_decoding(body, is_exact=has_blanks or lm.is_seq2seq)
        stop = _parse_stop(lm, body, prompts)
        if isinstance(decoding, Beam):
            _check_beam(decoding.width, stop.max_tokens)
        if has_blanks or body.n_best is not None:
            rows = await service.run(request, lease.call(_finder(prompts, decoding, stop, body.n_best, body.overflow)))
            return await reply(service, rows[0] if isinstance(body.prompt, str) else {"generations": rows})
        ids = await service.compute(partial(_encode, lm), prompts, sum(map(len, prompts)))
        ids = [own + tuple(body.ids) for own in ids]
        job = _Generation(lease, prompts, ids, decoding, stop, body.overflow)
        stack.callback(job.rows.cancel)
        if body.stream:
            return EventStream(service, job.stream(), stack.pop_all())
        results = await service.run(request, job.finish())
        return await reply(service, results[0] if isinstance(body.prompt, str) else {"generations": results})


def _check_beam(width: int, max_tokens: int) -> None:
    if width * max_tokens > MAX_BEAM_TOKENS:
        raise invalid("beam", width, f"× max_tokens = {max_tokens} must be at most {MAX_BEAM_TOKENS:,}.")


def _parse_decoding(body: GenerateBody, is_exact: bool) -> Decoding:
    """`is_exact`: without settings of sampling, take the likeliest text."""
    rules = _parse_rules(body)
    given = sorted((SAMPLING_KEYS - ({"top_k"} if body.contrastive else set())) & body.model_fields_set)
    if (body.beam is not None or body.contrastive is not None) and given:
        method = "beam" if body.beam is not None else "contrastive"
        raise invalid(given[0], getattr(body, given[0]), f"is for sampling. Leave it out, or {method}.")
    if body.beam is not None:
        if body.contrastive is not None:
            raise invalid("contrastive", body.contrastive, "is another method than beam. Leave one of them out.")
        return replace(parse_beam(body, body.beam), **rules)
    if body.n_best is not None:
        raise invalid("n_best", body.n_best, "needs beam search: set beam.")
    if body.contrastive is not None:
        return Contrastive(body.top_k or Contrastive.k, body.contrastive, **rules)
    return parse_sampling(body, is_exact, body.seed)


def parse_sampling(body: SamplingSettings, is_exact: bool, seed: int | None = None) -> Greedy | Sample:
    """`is_exact`: without settings of sampling, take the likeliest token."""
    rules = _parse_rules(body)
    penalties: dict[str, Any] = {"frequency": body.frequency_penalty, "presence": body.presence_penalty}
    if body.temperature == 0 or (is_exact and not SAMPLING_KEYS & body.model_fields_set):
        return Greedy(**rules, **penalties)
    temperature = DEFAULT_TEMPERATURE if body.temperature is None else body.temperature
    filters: dict[str, Any] = {"min_p": body.min_p, "typical": body.typical_p}
    return Sample(temperature, body.top_k, body.top_p, seed, **filters, **rules, **penalties)


def _parse_rules(body: SamplingSettings) -> dict[str, Any]:
    bias = {
        int(token[3:]) if token[:3] == "id:" and token[3:].isdecimal() and token.isascii() else token: value
        for token, value in (body.bias or {}).items()
    }
    return {
        "repetition": body.repetition_penalty,
        "no_repeat": body.no_repeat_ngram,
        "bias": {token: -np.inf if value is None else value for token, value in bias.items()},
    }


def parse_beam(body: BeamSettings, width: int) -> Beam:
    return Beam(
        width,
        body.length_penalty,
        normalization=body.normalization,
        coverage=body.coverage,
        groups=body.groups,
        diversity=body.diversity,
    )


def _parse_stop(lm: TextModel, body: GenerateBody, prompts: Sequence[str]) -> Stop:
    most = body.max_tokens
    if most is None:
        most = max_target_length(lm, prompts) if isinstance(lm, Seq2SeqLM) else max(DEFAULT_LENGTH, body.min_tokens)
    if body.min_tokens > most:
        raise invalid("min_tokens", body.min_tokens, f"must be at most max_tokens = {most}.")
    return Stop(most, tuple(dict.fromkeys(body.stop)), min_tokens=body.min_tokens)


def _finder(
    prompts: Sequence[str], decoding: Decoding, stop: Stop, n: int | None, overflow: str
) -> Callable[[TextModel], list[Object]]:
    """A function that fills the blanks of the prompts, or finds the n best continuations."""

    def find(lm: TextModel) -> list[Object]:
        if lm.can_infill and any(map(lm.count_blanks, prompts)):
            filled = lm.infill_many(prompts, decoding, stop, n or 1)
            return [_found_object(prompt, best, n) for prompt, best in zip(prompts, filled, strict=True)]
        assert isinstance(decoding, Beam)
        found = lm.n_best_many(prompts, decoding, stop, n, overflow)
        return [_found_object(prompt, best, n) for prompt, best in zip(prompts, found, strict=True)]

    return find


def _found_object(prompt: str, best: Sequence[Candidate | Filled], n: int | None) -> Object:
    rows = [_candidate_object(candidate) for candidate in best]
    if n is None:
        return {"prompt": prompt, **(rows[0] if rows else {"text": ""})}
    return {"prompt": prompt, "best": [{"rank": i, **row} for i, row in enumerate(rows, 1)]}


def _candidate_object(candidate: Candidate | Filled) -> Object:
    facts: Object = {
        "text": candidate.text,
        "score": candidate.score,
        "tokens": candidate.tokens,
        "complete": candidate.complete,
        "nats": -candidate.log_prob,
    }
    return {**facts, "blanks": list(candidate.blanks)} if isinstance(candidate, Filled) else facts


def _encode(lm: TextModel, texts: Sequence[str]) -> list[tuple[int, ...]]:
    return [tuple(encoding.ids.tolist()) for encoding in lm.tokenizer.encode_batch(texts)]


class _Generation:
    """Texts for several prompts while they are generated."""

    def __init__(
        self,
        lease: Lease,
        prompts: Sequence[str],
        ids: Sequence[tuple[int, ...]],
        decoding: Decoding,
        stop: Stop,
        overflow: str,
    ) -> None:
        lm = lease.model
        lm.require("generate")
        self.end = lm.end if isinstance(lm, GenerationMixin) else None
        requests = []
        for i, prompt in enumerate(prompts):
            own = decoding
            if isinstance(decoding, Sample) and decoding.seed is not None:
                own = replace(decoding, seed=(decoding.seed + i) % (MAX_SEED + 1))
            source = prompt if lm.is_seq2seq else None
            requests.append(GenerationRequest(() if lm.is_seq2seq else ids[i], own, stop, overflow, source=source))
        self.results: list[Object] = [
            {"prompt": prompt, "text": "", "tokens": 0, "nats": 0.0, "reason": None} for prompt in prompts
        ]
        self._last: list[int | None] = [None for _ in prompts]
        self.rows = lease.start(requests)

    async def finish(self) -> list[Object]:
        async for _ in self.stream():
            pass
        return self.results

    async def stream(self) -> AsyncGenerator[Object, None]:
        """The pieces of the text, then the result, as for a request that does not stream."""
        async with aclosing(self.rows.events()) as events:
            async for row, event in events:
                result = self.results[row]
                if isinstance(event, TokenEvent):
                    result["text"] += event.text
                    if event.id is not None:
                        result["tokens"] += 1
                        result["nats"] -= event.log_prob
                        self._last[row] = event.id
                    ids = [] if event.id is None else [event.id]
                    yield {"piece": event.text, "ids": ids, "nats": -event.log_prob}
                elif isinstance(event, Finished):
                    is_end = event.reason == "stop" and self._last[row] in (None, self.end)
                    result["reason"] = "end" if is_end else event.reason
                    yield result


@router.post("/translate", summary="Translate texts")
async def translate(service: ServiceOf, request: Request, body: TranslateBody) -> Response:
    """Generate from each source with a sequence-to-sequence model, by greedy or beam search; `n_best` with scores. A
    list of sources gives a list, `translations`."""
    sources = [body.source] if isinstance(body.source, str) else body.source

    def compute(lm: TextModel) -> list[Object]:
        if not isinstance(lm, Seq2SeqLM):
            raise Unsupported("This model continues texts; it has no source to translate.", ability="translate")
        if body.n_best is not None and body.beam is None:
            raise invalid("n_best", body.n_best, "needs beam search: set beam.")
        check_tokens(lm, "source", sources)
        stop = Stop(body.max_tokens or max_target_length(lm, sources))
        if body.beam is None:
            texts = lm.generate_many(sources, Greedy(), stop)
            return [
                {"source": source, "text": "".join(piece.text for piece in pieces).lstrip()}
                for source, pieces in zip(sources, texts, strict=True)
            ]
        _check_beam(body.beam, stop.max_tokens)
        found = lm.n_best_many(sources, parse_beam(body, body.beam), stop, body.n_best or 1)
        rows = [_found_object(source, best, body.n_best) for source, best in zip(sources, found, strict=True)]
        return [{"source": row.pop("prompt"), **row} for row in rows]

    rows = await service.call(request, service.choose_for(request, body), compute)
    return await reply(service, rows[0] if isinstance(body.source, str) else {"translations": rows})


# ------------------------------------------------------------------------------------------------ tasks


@router.post("/predict", summary="Labels, numbers, tags or answers")
async def predict(service: ServiceOf, request: Request, body: PredictBody) -> Response:
    """Predict with a fine-tuned run; or, with `labels`, choose the likeliest label with a language model. Lists of
    texts are pairs, or whatever else the task reads."""
    examples = [_as_example(example) for example in body.examples]

    def compute(lm: TextModel) -> Object:
        texts = [part for example in body.examples for part in _flatten(example)]
        check_tokens(lm, "examples", texts)
        if not body.labels:
            for key, value in (("template", body.template), ("calibrate", body.calibrate)):
                if value:
                    raise invalid(key, value, "needs labels.")
            lm.require("predict")
            model = lm
            if isinstance(lm, MultitaskPredictor):
                model = lm.of(body.task)
            elif body.task:
                raise invalid("task", body.task, "cannot be chosen: this run has one.")
            return _predictions(model, examples)
        if "predict" in lm.can:
            raise invalid("labels", body.labels, "cannot be chosen: this run has its own.")
        if len(examples) * len(body.labels) > MAX_CHOSEN:
            raise invalid("labels", len(body.labels), f"× examples must be at most {MAX_CHOSEN}.")
        classify = zero_shot_class(lm)
        return _predictions(classify(lm, body.labels, body.template or TEMPLATE, body.calibrate, lm.name), examples)

    return await reply(service, await service.call(request, service.choose_for(request, body), compute))


def _as_example(example: str | list[Any]) -> Any:
    return example if isinstance(example, str) else tuple(example)


def _flatten(example: str | list[Any]) -> list[str]:
    if isinstance(example, str):
        return [example]
    return [text for part in example for text in ([part] if isinstance(part, str) else part)]


def _predictions(model: Any, examples: Sequence[Any]) -> Object:
    """The predictions as `nextword predict --json` shows them."""
    return {"labels": list(model.task.config.labels), "predictions": model.task.records(model, model.predict(examples))}


@router.post("/tag", summary="Tags of words")
async def tag(service: ServiceOf, request: Request, body: TagBody) -> Response:
    """The tag of every word of each sentence, and the spans that they mark."""

    def compute(lm: TextModel) -> Object:
        if not isinstance(lm, WordTagger):
            raise Unsupported("This run does not tag words.", ability="tag")
        check_tokens(lm, "sentences", [text for sentence in body.sentences for text in _flatten(sentence)])
        return {"sentences": _predictions(lm, body.sentences)["predictions"]}

    return await reply(service, await service.call(request, service.choose_for(request, body), compute))


@router.post("/answer", summary="Answers from passages")
async def answer(service: ServiceOf, request: Request, body: AnswerBody) -> Response:
    """The span of each passage that answers the question, with its probability and the next best ones."""

    def compute(lm: TextModel) -> Object:
        if not isinstance(lm, AnswerPredictor):
            raise Unsupported("This run does not answer questions about passages.", ability="answer")
        check_tokens(lm, "questions", [text for one in body.questions for text in (one.question, one.context)])
        rows = _predictions(lm, [(one.question, one.context) for one in body.questions])["predictions"]
        return {"answers": rows}

    return await reply(service, await service.call(request, service.choose_for(request, body), compute))


@router.post("/choose", summary="The right one of several candidates")
async def choose(service: ServiceOf, request: Request, body: ChooseBody) -> Response:
    """The index of the right candidate for each context, from 0, with the probability of each."""

    def compute(lm: TextModel) -> Object:
        if not isinstance(lm, ChoicePredictor):
            raise Unsupported("This run does not choose between candidates.", ability="choose")
        examples = [(one.context, one.question, tuple(one.choices)) for one in body.examples]
        check_tokens(lm, "examples", [f"{context} {question} {c}" for context, question, cs in examples for c in cs])
        return {"predictions": _predictions(lm, examples)["predictions"]}

    return await reply(service, await service.call(request, service.choose_for(request, body), compute))


# ------------------------------------------------------------------------------------------------ vectors


@router.post("/embed", summary="Vectors")
async def embed(service: ServiceOf, request: Request, body: EmbedBody) -> Response:
    """One vector for each text; or, with `words`, one for each word in its context."""

    def compute(lm: TextModel) -> Object:
        lm.require("embed")
        check_tokens(lm, "texts", body.texts)
        facts: Object = {"layer": body.layer, "pool": body.pool}
        if body.words:
            rows = lm.embed_words(body.texts, body.layer)
            facts["texts"] = [{"words": row.words, "vectors": row.vectors.float().tolist()} for row in rows]
        else:
            vectors = lm.embed(body.texts, body.layer, body.pool)
            facts |= {"width": vectors.shape[1], "vectors": vectors.float().tolist()}
        return facts

    return await reply(service, await service.call(request, service.choose_for(request, body), compute))
