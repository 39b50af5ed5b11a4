"""nextword's own routes: what the commands do, for the models that are served. JSON keys are those of `--json`.

Texts, examples and sources are items of functions (`EmbedTexts`, `PredictLabels` …): the engine computes those of
concurrent requests together if their functions are equal, that is, have equal settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from nextword.core.errors import Unsupported, invalid
from nextword.core.types import PSEUDO, Beam, Contrastive, Decoding, Greedy, Guess, Sample, Score, Stop
from nextword.data.squad import Question
from nextword.evaluation.seq2seq import max_target_length
from nextword.generation.infilling import BLANK, Filled
from nextword.lm.base import Candidate, TextModel, WordsInContext
from nextword.lm.generation_mixin import GenerationMixin
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.server.replies import STREAMS, EventStream, JsonRoute, Reply, ServiceOf, reply
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
from nextword.server.service import Lease, Service
from nextword.tasks.in_context import TEMPLATE, zero_shot_class
from nextword.tasks.multiple_choice import ChoicePredictor
from nextword.tasks.multitask import MultitaskPredictor
from nextword.tasks.question_answering import AnswerPredictor
from nextword.tasks.tagging import WordTagger

DEFAULT_TEMPERATURE = 0.8
DEFAULT_LENGTH = 100  # tokens
MAX_SOURCE = 4096  # tokens of a source
MAX_CONTEXT = 16_384  # tokens of a text before a next word
SAMPLING_KEYS = frozenset(("temperature", "top_k", "top_p", "min_p", "typical_p", "seed"))

Object = dict[str, Any]  # a JSON object
router = APIRouter(prefix="/api", route_class=JsonRoute, tags=["nextword"])


def check_tokens(lm: TextModel, key: str, texts: Sequence[str], most: int = MAX_REQUEST_TOKENS) -> int:
    """How many tokens the texts have together; an error if they are too many."""
    return sum(count_tokens(lm, key, [texts], most))


def count_tokens(lm: TextModel, key: str, items: Sequence[Sequence[str]], most: int = MAX_REQUEST_TOKENS) -> list[int]:
    """How many tokens the texts of each item have; an error if they are too many together."""
    lengths = iter(
        [len(encoding) for encoding in lm.tokenizer.encode_batch([text for texts in items for text in texts])]
    )
    sizes = [sum(islice(lengths, len(texts))) for texts in items]
    total = sum(sizes)
    if total > most:
        raise invalid(key, f"{total:,} tokens", f"must have at most {most:,} tokens.")
    if lm.is_seq2seq:
        check_source(key, max(sizes, default=0))
    return sizes


def check_source(key: str, tokens: int) -> None:
    """Raise an error for a source that takes too long: it is read at once, so nothing goes on meanwhile."""
    if tokens > MAX_SOURCE:
        raise invalid(
            key, f"{tokens:,} tokens", f"must have at most {MAX_SOURCE:,} tokens: this model reads it at once."
        )


async def measure(
    service: Service, lm: TextModel, key: str, items: Sequence[Sequence[str]], most: int = MAX_REQUEST_TOKENS
) -> list[int]:
    """`count_tokens`, which other requests do not wait for."""
    return await service.compute(
        partial(count_tokens, lm, key, most=most), items, sum(len(text) for texts in items for text in texts)
    )


# ------------------------------------------------------------------------------------------------ score, next, fill


@router.post("/score", summary="How likely are texts?")
async def score(service: ServiceOf, request: Request, body: ScoreBody) -> Response:
    """−log p of each text in nats, and the units to divide it by."""

    given = body.given or [""] * len(body.texts)

    async def find(lease: Lease) -> list[Score]:
        lm = lease.model
        lm.require("score")
        if len(given) != len(body.texts):
            raise invalid("given", len(given), f"must be as many texts as texts, {len(body.texts)}.")
        items = list(zip(given, body.texts, strict=True))
        most = MAX_PSEUDO_TOKENS if lm.kind == PSEUDO else MAX_REQUEST_TOKENS
        sizes = await measure(service, lm, "texts", items, most)
        if lm.kind == PSEUDO:  # reads a text once for each of its tokens
            sizes = [size * size for size in sizes]
        return await lease.map(ScoreTexts(body.given is not None), items, sizes)

    scores = await service.use(request, service.choose_for(request, body), find)
    return await reply(service, {"scores": [_score_object(score) for score in scores]})


@dataclass(frozen=True)
class ScoreTexts:
    """The score of each text, after the one that is given."""

    has_given: bool

    def __call__(self, lm: TextModel, items: Sequence[tuple[str, str]]) -> list[Score]:
        return lm.score_many([text for _, text in items], [given for given, _ in items] if self.has_given else None)


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

    async def find(lease: Lease) -> list[list[Guess]]:
        lm = lease.model
        await measure(service, lm, "text", [[body.text]], MAX_CONTEXT)
        if BLANK in body.text and "fill" in lm.can:
            return await lease.call(lambda lm: lm.fill(body.text, body.k, body.tokens))
        left, blank, right = body.text.partition(BLANK)
        left = left.rstrip() if blank else left
        return [await asyncio.wrap_future(lease.engine.next(left, right, body.k, body.tokens))]

    rows = _guess_rows(await service.use(request, service.choose_for(request, body), find))
    # Small enough to be written here: while somebody types, every handover to a thread would be felt.
    return Reply({"text": body.text, "guesses": rows[0], **({"blanks": rows} if BLANK in body.text else {})})


@router.post("/fill", summary="Words for blanks")
async def fill(service: ServiceOf, request: Request, body: FillBody) -> Response:
    """The likeliest words for every blank `___` of a text, with all other blanks open."""

    async def find(lease: Lease) -> list[list[Guess]]:
        await measure(service, lease.model, "text", [[body.text]], MAX_CONTEXT)
        return await lease.call(lambda lm: lm.fill(body.text, body.k, body.tokens))

    blanks = await service.use(request, service.choose_for(request, body), find)
    return await reply(service, {"text": body.text, "blanks": _guess_rows(blanks)})


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
        sizes = await measure(service, lm, "prompt", [[prompt] for prompt in prompts])
        has_blanks = lm.can_infill and any(map(lm.count_blanks, prompts))
        if body.ids and (has_blanks or lm.is_seq2seq):
            raise invalid("ids", body.ids[:8], "is for models that continue a prompt, without blanks.")
        decoding = _parse_decoding(body, is_exact=has_blanks or lm.is_seq2seq)
        stop = _parse_stop(lm, body, prompts)
        if isinstance(decoding, Beam):
            _check_beam(decoding.width, stop.max_tokens)
        if has_blanks or body.n_best is not None:
            found = await service.run(request, _find(lease, body, prompts, sizes, decoding, stop))
            rows = [_found_object(prompt, best, body.n_best) for prompt, best in zip(prompts, found, strict=True)]
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


async def _find(
    lease: Lease, body: GenerateBody, prompts: Sequence[str], sizes: Sequence[int], decoding: Decoding, stop: Stop
) -> Sequence[Sequence[Candidate | Filled]]:
    """Fill the blanks of the prompts, or find their n best continuations."""
    if not any(map(lease.model.count_blanks, prompts)):
        assert isinstance(decoding, Beam)
        return await lease.map(FindBest(decoding, stop, body.n_best, body.overflow), prompts, sizes)
    infill = Infill(decoding, stop, body.n_best or 1)
    if isinstance(decoding, Sample):  # text i has the seed + i
        return await lease.call(lambda lm: infill(lm, prompts), sum(sizes))
    return await lease.map(infill, prompts, sizes)


@dataclass(frozen=True)
class FindBest:
    """The n best continuations of each prompt."""

    decoding: Beam
    stop: Stop
    n: int | None
    overflow: str = "slide"

    def __call__(self, lm: TextModel, prompts: Sequence[str]) -> list[list[Candidate]]:
        return lm.n_best_many(prompts, self.decoding, self.stop, self.n, self.overflow)


@dataclass(frozen=True)
class Infill:
    """Each text with its blanks filled; the n best of a beam."""

    decoding: Decoding
    stop: Stop
    n: int

    def __call__(self, lm: TextModel, texts: Sequence[str]) -> list[list[Filled]]:
        return lm.infill_many(texts, self.decoding, self.stop, self.n)


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

    async def find(lease: Lease) -> list[Object]:
        lm = lease.model
        if not isinstance(lm, Seq2SeqLM):
            raise Unsupported("This model continues texts; it has no source to translate.", ability="translate")
        if body.n_best is not None and body.beam is None:
            raise invalid("n_best", body.n_best, "needs beam search: set beam.")
        sizes = await measure(service, lm, "source", [[source] for source in sources])
        stop = Stop(body.max_tokens or max_target_length(lm, sources))
        if body.beam is None:
            job = _Generation(lease, sources, [()] * len(sources), Greedy(), stop, "slide")
            return [{"source": row["prompt"], "text": row["text"].lstrip()} for row in await job.finish()]
        _check_beam(body.beam, stop.max_tokens)
        found = await lease.map(FindBest(parse_beam(body, body.beam), stop, body.n_best or 1), sources, sizes)
        rows = [_found_object(source, best, body.n_best) for source, best in zip(sources, found, strict=True)]
        return [{"source": row.pop("prompt"), **row} for row in rows]

    rows = await service.use(request, service.choose_for(request, body), find)
    return await reply(service, rows[0] if isinstance(body.source, str) else {"translations": rows})


# ------------------------------------------------------------------------------------------------ tasks


@router.post("/predict", summary="Labels, numbers, tags or answers")
async def predict(service: ServiceOf, request: Request, body: PredictBody) -> Response:
    """Predict with a fine-tuned run; or, with `labels`, choose the likeliest label with a language model. Lists of
    texts are pairs, or whatever else the task reads."""
    examples = [_as_example(example) for example in body.examples]

    async def find(lease: Lease) -> Object:
        lm = lease.model
        sizes = await measure(service, lm, "examples", [_flatten(example) for example in body.examples])
        if body.labels:
            if "predict" in lm.can:
                raise invalid("labels", body.labels, "cannot be chosen: this run has its own.")
            if len(examples) * len(body.labels) > MAX_CHOSEN:
                raise invalid("labels", len(body.labels), f"× examples must be at most {MAX_CHOSEN}.")
            choose_label = ChooseLabels(tuple(body.labels), body.template or TEMPLATE, body.calibrate)
            sizes = [size * len(body.labels) for size in sizes]
            return {"labels": body.labels, "predictions": await lease.map(choose_label, examples, sizes)}
        for key, value in (("template", body.template), ("calibrate", body.calibrate)):
            if value:
                raise invalid(key, value, "needs labels.")
        lm.require("predict")
        if body.task and not isinstance(lm, MultitaskPredictor):
            raise invalid("task", body.task, "cannot be chosen: this run has one.")
        predict = PredictExamples(body.task)
        labels = list(predict.model(lm).task.config.labels)
        items = _parse_questions(lm, examples) if isinstance(lm, AnswerPredictor) else examples
        return {"labels": labels, "predictions": await lease.map(predict, items, sizes)}

    return await reply(service, await service.use(request, service.choose_for(request, body), find))


def _as_example(example: str | list[Any]) -> Any:
    return example if isinstance(example, str) else tuple(example)


def _flatten(example: str | list[Any]) -> list[str]:
    if isinstance(example, str):
        return [example]
    return [text for part in example for text in ([part] if isinstance(part, str) else part)]


@dataclass(frozen=True)
class PredictExamples:
    """The predictions of a fine-tuned run, as `nextword predict --json` shows them."""

    task: str = ""  # of a run that has several

    def __call__(self, lm: TextModel, examples: Sequence[Any]) -> list[Object]:
        return _predict_records(self.model(lm), examples)

    def model(self, lm: TextModel) -> Any:
        """What predicts."""
        return lm.of(self.task) if isinstance(lm, MultitaskPredictor) else lm


@dataclass(frozen=True)
class ChooseLabels:
    """The likeliest labels by a language model."""

    labels: tuple[str, ...]
    template: str
    calibrate: bool

    def __call__(self, lm: TextModel, examples: Sequence[Any]) -> list[Object]:
        classify = zero_shot_class(lm)
        return _predict_records(classify(lm, list(self.labels), self.template, self.calibrate, lm.name), examples)


def _predict_records(model: Any, examples: Sequence[Any]) -> list[Object]:
    records: list[Object] = model.task.records(model, model.predict(examples))
    return records


@router.post("/tag", summary="Tags of words")
async def tag(service: ServiceOf, request: Request, body: TagBody) -> Response:
    """The tag of every word of each sentence, and the spans that they mark."""

    async def find(lease: Lease) -> list[Object]:
        if not isinstance(lease.model, WordTagger):
            raise Unsupported("This run does not tag words.", ability="tag")
        sizes = await measure(service, lease.model, "sentences", [_flatten(sentence) for sentence in body.sentences])
        return await lease.map(PredictExamples(), body.sentences, sizes)

    return await reply(service, {"sentences": await service.use(request, service.choose_for(request, body), find)})


def _parse_questions(lm: AnswerPredictor, examples: Sequence[Any]) -> list[Question]:
    """Questions with their numbers in the request: those in a batch that requests share are others."""
    return [lm.parse_question(example, number) for number, example in enumerate(examples)]


@router.post("/answer", summary="Answers from passages")
async def answer(service: ServiceOf, request: Request, body: AnswerBody) -> Response:
    """The span of each passage that answers the question, with its probability and the next best ones."""
    questions = [(each.question, each.context) for each in body.questions]

    async def find(lease: Lease) -> list[Object]:
        if not isinstance(lease.model, AnswerPredictor):
            raise Unsupported("This run does not answer questions about passages.", ability="answer")
        sizes = await measure(service, lease.model, "questions", questions)
        return await lease.map(PredictExamples(), _parse_questions(lease.model, questions), sizes)

    return await reply(service, {"answers": await service.use(request, service.choose_for(request, body), find)})


@router.post("/choose", summary="The right one of several candidates")
async def choose(service: ServiceOf, request: Request, body: ChooseBody) -> Response:
    """The index of the right candidate for each context, from 0, with the probability of each."""
    examples = [(each.context, each.question, tuple(each.choices)) for each in body.examples]

    async def find(lease: Lease) -> list[Object]:
        if not isinstance(lease.model, ChoicePredictor):
            raise Unsupported("This run does not choose between candidates.", ability="choose")
        rows = [[f"{context} {question} {choice}" for choice in choices] for context, question, choices in examples]
        sizes = await measure(service, lease.model, "examples", rows)
        return await lease.map(PredictExamples(), examples, sizes)

    return await reply(service, {"predictions": await service.use(request, service.choose_for(request, body), find)})


# ------------------------------------------------------------------------------------------------ vectors


@router.post("/embed", summary="Vectors")
async def embed(service: ServiceOf, request: Request, body: EmbedBody) -> Response:
    """One vector for each text; or, with `words`, one for each word in its context."""

    async def find(lease: Lease) -> Object:
        lm = lease.model
        lm.require("embed")
        facts: Object = {"layer": body.layer, "pool": body.pool, "layers": len(lm.network.widths)}
        if not body.words:
            vectors = await embed_texts(service, lease, body.texts, body.layer, body.pool)
            return {**facts, "width": vectors.shape[1], "vectors": vectors.tolist()}
        sizes = await measure(service, lm, "texts", [[text] for text in body.texts])
        rows = await lease.map(EmbedWords(body.layer), body.texts, sizes)
        return {**facts, "texts": [{"words": row.words, "vectors": row.vectors.float().tolist()} for row in rows]}

    return await reply(service, await service.use(request, service.choose_for(request, body), find))


async def embed_texts(
    service: Service, lease: Lease, texts: Sequence[str], layer: str, pooling: str, key: str = "texts"
) -> np.ndarray:
    """The vectors of texts (n, width), computed together with those of other requests."""
    lease.model.require("embed")
    sizes = await measure(service, lease.model, key, [[text] for text in texts])
    return np.stack(await lease.map(EmbedTexts(layer, pooling), texts, sizes))


@dataclass(frozen=True)
class EmbedTexts:
    """The vector of each text."""

    layer: str
    pooling: str

    def __call__(self, lm: TextModel, texts: Sequence[str]) -> list[np.ndarray]:
        return list(lm.embed(texts, self.layer, self.pooling).float().cpu().numpy())


@dataclass(frozen=True)
class EmbedWords:
    """The vectors of the words of each text."""

    layer: str

    def __call__(self, lm: TextModel, texts: Sequence[str]) -> list[WordsInContext]:
        return lm.embed_words(texts, self.layer)
