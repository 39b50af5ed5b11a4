"""Routes of OpenAI's API, with vLLM's extensions, so that its clients work unmodified.

    POST /v1/completions         texts, with the log p of every token of prompt and text if asked for
    POST /v1/chat/completions    only with a chat template
    POST /v1/embeddings
    GET  /v1/models
    POST /tokenize, /detokenize; GET /tokenizer_info      as lm-eval's remote tokenizer reads them

Log-probabilities with `echo`: all arrays cover the prompt and the text. The first token of the prompt has none. A
prompt of ids may begin with the begin token; the model reads it once either way. Every entry of `top_logprobs`
contains the token itself, with the same number, so that a client can see whether it was the likeliest.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from nextword.core.errors import invalid
from nextword.core.types import Beam, Decoding, Greedy, Sample, Stop
from nextword.evaluation.seq2seq import max_target_length
from nextword.lm.base import TextModel
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.server.chat import ChatTemplate
from nextword.server.native_routes import EmbedTexts, check_source, measure
from nextword.server.replies import STREAMS, EventStream, JsonRoute, ServiceOf, reply
from nextword.server.requests import Finished, GenerationRequest, PromptScores, TokenEvent, Top
from nextword.server.schema import (
    MAX_BEAM_TOKENS,
    MAX_REPORTED,
    MAX_REQUEST_TOKENS,
    MAX_ROWS,
    MAX_SEED,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    EmbeddingBody,
    Sampling,
    TextPart,
    TokenizeBody,
)
from nextword.server.service import Lease, Service
from nextword.tokenizers.base import Decoder, Tokenizer

LOWEST = -9999.0  # in place of −∞, which JSON lacks
DEFAULT_TOKENS = 16  # of a completion, as in OpenAI's API
CHAT_TOKENS = 256  # of an answer, if the request sets no limit

Object = dict[str, Any]  # a JSON object
router = APIRouter(route_class=JsonRoute, tags=["OpenAI"])
chat_router = APIRouter(route_class=JsonRoute, tags=["OpenAI"])  # only with a chat template


# ------------------------------------------------------------------------------------------------ models


@router.get("/v1/models", summary="List the models")
async def list_models(service: ServiceOf, request: Request) -> Response:
    """List the served models. The field `nextword` holds what OpenAI's API has no field for."""
    own = request.path_params.get("model_name")
    names = service.pool.names if own is None else [service.choose(own, None)]
    return await reply(service, {"object": "list", "data": [service.describe(name) for name in names]})


@router.get("/v1/models/{name}", summary="Show a model")
async def show_model(service: ServiceOf, name: str) -> Response:
    """One entry of the list of models."""
    return await reply(service, service.describe(service.choose(name, None)))


# ------------------------------------------------------------------------------------------------ tokens


@router.post("/tokenize", summary="Text to tokens")
async def tokenize(service: ServiceOf, request: Request, body: TokenizeBody) -> Response:
    """Token ids of a text, and the bytes of the text that each stands for. A text never produces special tokens, except
    that the name of one alone gives its id."""
    async with service.lease_for(request, body) as lease:
        tokenizer = lease.model.tokenizer
        if body.prompt in tokenizer.special:
            ids, spans = [tokenizer.special[body.prompt]], [[0, len(body.prompt.encode())]]
        else:
            encoding = await service.compute(tokenizer.encode, body.prompt, len(body.prompt))
            ids, spans = encoding.ids.tolist(), encoding.spans.tolist()
        if body.add_special_tokens:
            ids, spans = [tokenizer.begin, *ids], [[0, 0], *spans]
        answer: Object = {"count": len(ids), "max_model_len": lease.model.context, "tokens": ids, "spans": spans}
        if body.return_token_strs:
            names = TokenNames(tokenizer)
            answer["token_strs"] = [names[id] for id in ids]
        return await reply(service, answer)


@router.post("/detokenize", summary="Tokens to text")
async def detokenize(service: ServiceOf, request: Request, body: DetokenizeBody) -> Response:
    """The text of token ids."""
    async with service.lease_for(request, body) as lease:
        tokenizer = lease.model.tokenizer
        check_ids(body.tokens, tokenizer, "tokens")
        return await reply(service, {"prompt": await service.compute(tokenizer.decode, body.tokens, len(body.tokens))})


@router.get("/tokenizer_info", summary="Describe the tokenizer")
async def tokenizer_info(service: ServiceOf, request: Request, model: str | None = None) -> Response:
    """Kind, size and special tokens, as in the tokenizer configurations of Hugging Face."""
    async with service.lease(service.choose(request.path_params.get("model_name"), model)) as lease:
        tokenizer = lease.model.tokenizer
        names = {id: name for name, id in tokenizer.special.items()}
        unknown = next((name for name in tokenizer.special if "unk" in name.lower()), None)
        return await reply(
            service,
            {
                "tokenizer_class": tokenizer.kind,
                "vocab_size": len(tokenizer),
                "bos_token": names.get(tokenizer.begin),
                "eos_token": None if tokenizer.end is None else names.get(tokenizer.end),
                "unk_token": unknown,
                "pad_token": None,
                "lossless": tokenizer.lossless,
                "special_tokens": dict(tokenizer.special),
                "model_max_length": lease.model.context,
                "chat_template": service.chat.source if service.chat else None,
            },
        )


# ------------------------------------------------------------------------------------------------ embeddings


@router.post("/v1/embeddings", summary="Vectors of texts")
async def embeddings(service: ServiceOf, request: Request, body: EmbeddingBody) -> Response:
    """One vector for each text: numbers, or the bytes of 32-bit floats in base64. `layer` and `pooling` are extras."""
    name = service.choose_for(request, body)

    async def find(lease: Lease) -> tuple[np.ndarray, int]:
        lm = lease.model
        lm.require("embed")
        texts = _texts(body.input, lm.tokenizer)
        sizes = await measure(service, lm, "input", [[text] for text in texts])
        return np.stack(await lease.map(EmbedTexts(body.layer, body.pooling), texts, sizes)), sum(sizes)

    vectors, tokens = await service.use(request, name, find)
    rows = (_encode_vector(vector, body.encoding_format) for vector in vectors)
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return await reply(service, {"object": "list", "data": data, "model": name, "usage": usage})


def _texts(given: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]], tokenizer: Tokenizer) -> list[str]:
    """Texts from texts or ids; ids only where they say exactly which text they are."""
    if isinstance(given, str):
        return [given]
    texts: list[str] = []
    for part in [given] if all(isinstance(part, int) for part in given) else given:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not tokenizer.lossless:
            raise invalid("input", "token ids", "must be texts: this model's tokenizer forgets spaces.")
        ids = [id for id in part if isinstance(id, int)] if not isinstance(part, int) else [part]
        check_ids(ids, tokenizer, "input")
        texts.append(tokenizer.decode(ids))
    return texts


def _encode_vector(vector: np.ndarray, format: str) -> list[float] | str:
    if format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    values: list[float] = vector.tolist()
    return values


# ------------------------------------------------------------------------------------------------ completions


@router.post("/v1/completions", summary="Continue texts", responses=STREAMS)
async def completions(service: ServiceOf, request: Request, body: CompletionBody) -> Response:
    """Continue each prompt. With `echo` and `logprobs`, the log p of the prompt's own tokens; with `max_tokens` 0,
    nothing else. With `suffix`, insert text before it. Sequence-to-sequence models generate from the prompt as their
    source."""
    name = service.choose_for(request, body)
    _check_choices(body.n, body.best_of, body.stream)
    if body.use_beam_search or body.suffix is not None:
        return await _complete_at_once(service, request, name, body)
    async with AsyncExitStack() as stack:
        lease = await stack.enter_async_context(service.lease(name))
        prompts = await _read_prompts(service, lease.model, body)
        best_of = body.best_of or body.n
        if len(prompts) * best_of > MAX_ROWS:
            raise invalid("best_of", best_of, f"× {len(prompts)} prompts must be at most {MAX_ROWS} texts.")
        reported = sum(len(prompt.ids) if body.echo else 0 for prompt in prompts) + len(prompts) * (
            body.max_tokens or 0
        )
        alternatives = max(body.logprobs or 0, body.prompt_logprobs or 0)
        if alternatives and reported * best_of * (1 + alternatives) > MAX_REPORTED:
            raise invalid("logprobs", alternatives, f"is too many: at most {MAX_REPORTED:,} numbers are reported.")
        job = Job(lease, body, prompts, best_of)
        stack.callback(job.rows.cancel)
        if not body.stream:
            return await reply(service, await service.run(request, job.finish()))
        return EventStream(service, job.stream(), stack.pop_all())


@dataclass(frozen=True)
class Prompt:
    """One prompt: what the model reads, and what is shown of it."""

    ids: list[int]  # as given, perhaps with the begin token first
    text: str
    offsets: list[int]  # of each token, in characters of the text
    has_begin: bool  # the first id is the begin token, which the model reads by itself
    source: str | None = None  # for sequence-to-sequence models


async def _read_prompts(service: Service, lm: TextModel, body: CompletionBody) -> list[Prompt]:
    """The prompts of a request, tokenized and checked."""
    given = body.prompt
    parts: Sequence[str | Sequence[int]]
    if isinstance(given, str):
        parts = [given]
    elif not given or isinstance(given[0], int):
        parts = [[id for id in given if isinstance(id, int)]]
    else:
        parts = [part for part in given if not isinstance(part, int)]
    size = sum(map(len, parts))
    prompts = await service.compute(lambda parts: [_read_prompt(lm, part) for part in parts], parts, size)
    total = sum(len(prompt.ids) for prompt in prompts)
    if total > MAX_REQUEST_TOKENS:
        problem = f"must have at most {MAX_REQUEST_TOKENS:,} tokens, all prompts together."
        raise invalid("prompt", f"{total:,} tokens", problem)
    if lm.is_seq2seq:
        check_source("prompt", max((len(prompt.ids) for prompt in prompts), default=0))
    if lm.is_seq2seq and (body.echo or body.prompt_logprobs is not None):
        raise invalid("echo", True, "needs a model that continues its prompt; this one has sources and targets.")
    return prompts


def _read_prompt(lm: TextModel, given: str | Sequence[int]) -> Prompt:
    tokenizer = lm.tokenizer
    if lm.is_seq2seq:
        if not isinstance(given, str):
            check_ids(given, tokenizer, "prompt")
        text = given if isinstance(given, str) else tokenizer.decode(given)
        return Prompt(tokenizer.encode(text).ids.tolist(), text, [], False, text)
    if isinstance(given, str):
        encoding = tokenizer.encode(given)
        return Prompt(encoding.ids.tolist(), given, _character_offsets(given, encoding.spans[:, 0]), False)
    ids = list(given)
    check_ids(ids, tokenizer, "prompt")
    decoder, text, offsets = Decoder(tokenizer), "", []
    parts: list[str] = []
    length = 0
    for id in ids:
        offsets.append(length)
        parts.append(decoder.push(id))
        length += len(parts[-1])
    text = "".join(parts) + decoder.flush()
    return Prompt(ids, text, offsets, bool(ids) and ids[0] == tokenizer.begin)


def check_ids(ids: Sequence[int], tokenizer: Tokenizer, key: str) -> None:
    largest = max(ids, default=0)
    if largest >= len(tokenizer):
        raise invalid(key, largest, f"must be ids from 0 to {len(tokenizer) - 1}.")


def _character_offsets(text: str, byte_offsets: np.ndarray) -> list[int]:
    """Offsets in characters from offsets in the bytes of UTF-8."""
    raw = np.frombuffer(text.encode(), np.uint8)
    characters = np.concatenate([[0], np.cumsum((raw & 0xC0) != 0x80)])
    offsets: list[int] = characters[byte_offsets].tolist()
    return offsets


class TokenNames(dict[int, str]):
    """id → a name for it: its text, or the name of a special token; bytes that are no text as "bytes:\\xe2\\x82"."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__({id: name for name, id in tokenizer.special.items()})
        self.tokenizer = tokenizer

    def __missing__(self, id: int) -> str:
        piece = self.tokenizer.piece(id)
        try:
            name = piece.decode("utf-8")
        except UnicodeDecodeError:
            name = "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
        self[id] = name
        return name

    def rank(self, top: Top, chosen: int, log_prob: float) -> dict[str, float]:
        """Names of the likeliest tokens with log p. Two tokens may have one name; the second is named by its id."""
        named = {self[chosen]: number(log_prob)}
        for id, value in top:
            if id != chosen:
                name = self[id]
                named[f"token_id:{id}" if name in named else name] = number(value)
        return named


def number(log_prob: float) -> float:
    return max(log_prob, LOWEST)


# ------------------------------------------------------------------------------------------------ settings


def _check_choices(n: int, best_of: int | None, stream: bool) -> None:
    if best_of is not None and best_of < n:
        raise invalid("best_of", best_of, f"must be at least n = {n}.")
    if best_of is not None and best_of > n and stream:
        raise invalid("best_of", best_of, "cannot be streamed: which texts are best shows at the end.")


def _parse_decoding(body: Sampling) -> Decoding:
    bias: dict[int | str, float] = {}
    for key, value in (body.logit_bias or {}).items():
        if not (key.isascii() and key.isdecimal()) or len(key) > 10:
            raise invalid("logit_bias", key, "must be token ids: see /tokenize.")
        bias[int(key)] = value
    rules: dict[str, Any] = {
        "repetition": body.repetition_penalty,
        "bias": bias,
        "frequency": body.frequency_penalty,
        "presence": body.presence_penalty,
    }
    if body.temperature == 0:
        return Greedy(**rules)
    return Sample(body.temperature, max(0, body.top_k), body.top_p, body.seed, min_p=body.min_p, **rules)


def _parse_stop(body: Sampling, max_tokens: int) -> Stop:
    strings = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if body.min_tokens > max_tokens:
        raise invalid("min_tokens", body.min_tokens, f"must be at most max_tokens = {max_tokens}.")
    return Stop(max_tokens, tuple(dict.fromkeys(strings)), not body.ignore_eos, body.min_tokens)


def _with_seed(decoding: Decoding, i: int) -> Decoding:
    """The settings of text number i: with a seed, every text has one of its own, as in `lm.generate_many`."""
    if isinstance(decoding, Sample) and decoding.seed is not None:
        return replace(decoding, seed=(decoding.seed + i) % (MAX_SEED + 1))
    return decoding


# ------------------------------------------------------------------------------------------------ one request


@dataclass
class Choice:
    """One text, as far as it has been generated."""

    index: int
    prompt: Prompt
    text: str = ""
    ids: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    arrays: Arrays | None = None
    reason: str | None = None
    prompt_logprobs: list[Object | None] | None = None


@dataclass
class Arrays:
    """The log-probabilities of a text, in the four arrays of OpenAI's API."""

    names: TokenNames
    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add(self, id: int, log_prob: float | None, top: Top, offset: int) -> None:
        self.tokens.append(self.names[id])
        self.token_logprobs.append(None if log_prob is None else number(log_prob))
        self.top_logprobs.append(None if log_prob is None else self.names.rank(top, id, log_prob))
        self.text_offset.append(offset)

    def take(self) -> Object:
        """The arrays so far, which are then empty."""
        content = {key: value for key, value in vars(self).items() if key != "names"}
        self.tokens, self.token_logprobs, self.top_logprobs, self.text_offset = [], [], [], []
        return content


@dataclass
class Usage:
    prompt: int
    cached: int = 0
    generated: int = 0

    def as_object(self) -> Object:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


class Job:
    """A request for completions while it is answered. An error while it is submitted is the answer."""

    def __init__(self, lease: Lease, body: CompletionBody, prompts: Sequence[Prompt], best_of: int) -> None:
        lease.model.require("generate")
        self.lease, self.body, self.best_of = lease, body, best_of
        self.names = TokenNames(lease.model.tokenizer)
        has_logprobs = body.logprobs is not None
        self.choices = [
            Choice(i * best_of + k, prompt, arrays=Arrays(self.names) if has_logprobs else None)
            for i, prompt in enumerate(prompts)
            for k in range(best_of)
        ]
        self.usage = Usage(sum(len(prompt.ids) for prompt in prompts))
        self.head = _head("cmpl", "text_completion", lease.name)
        self.rows = lease.start(self._requests())

    def _requests(self) -> list[GenerationRequest]:
        body, decoding = self.body, _parse_decoding(self.body)
        stop = _parse_stop(body, DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens)
        wanted = [body.logprobs if body.echo else None, body.prompt_logprobs]
        return [
            GenerationRequest(
                () if choice.prompt.source is not None else tuple(choice.prompt.ids[choice.prompt.has_begin :]),
                _with_seed(decoding, choice.index),
                stop,
                top=body.logprobs or 0,
                prompt_top=max((top for top in wanted if top is not None), default=None),
                source=choice.prompt.source,
            )
            for choice in self.choices
        ]

    async def finish(self) -> Object:
        """The complete answer."""
        async for _ in self._updates():
            pass
        kept = [choice for group in self._groups() for choice in self._best(group)]
        choices = [{**self._choice(choice), "index": index} for index, choice in enumerate(kept)]
        return {**self.head, "choices": choices, "usage": self.usage.as_object()}

    async def stream(self) -> AsyncGenerator[Object, None]:
        """The answer in chunks."""
        has_usage = self.body.stream_options is not None and self.body.stream_options.include_usage
        more: Object = {"usage": None} if has_usage else {}
        async with aclosing(self._updates()) as updates:
            async for choice in updates:
                is_due = choice.text or choice.reason or (choice.arrays is not None and choice.arrays.tokens)
                if is_due:
                    yield {**self.head, "choices": [self._choice(choice)], **more}
                    choice.text = ""
        if has_usage:
            yield {**self.head, "choices": [], "usage": self.usage.as_object()}

    async def _updates(self) -> AsyncGenerator[Choice, None]:
        """The choice that has changed, again and again; between two of them its text may be taken."""
        if self.body.echo:
            for choice in self.choices:
                choice.text = choice.prompt.text
        lengths = [len(choice.text) for choice in self.choices]
        async with aclosing(self.rows.events()) as events:
            async for row, event in events:
                choice = self.choices[row]
                match event:
                    case PromptScores():
                        self._add_prompt(choice, event)
                    case TokenEvent():
                        if event.id is not None:
                            if choice.arrays is not None:
                                choice.arrays.add(event.id, event.log_prob, event.top, lengths[row])
                            choice.ids.append(event.id)
                            choice.log_prob += event.log_prob
                        choice.text += event.text
                        lengths[row] += len(event.text)
                    case Finished():
                        choice.reason = "length" if event.reason == "length" else "stop"
                        self.usage.generated += event.tokens
                        self.usage.cached += event.cached if row % self.best_of == 0 else 0
                yield choice

    def _add_prompt(self, choice: Choice, scores: PromptScores) -> None:
        """The log-probabilities of the prompt. Its first token has none, whether or not it is the begin token."""
        prompt, names = choice.prompt, self.names
        begin = [prompt.ids[0]] if prompt.has_begin else []
        tokens = list(scores.tokens)
        if choice.arrays is not None and self.body.echo:
            top = self.body.logprobs or 0
            for i, (id, offset) in enumerate(zip(prompt.ids, prompt.offsets, strict=True)):
                score = tokens[i - len(begin)] if i else None
                if score is None:
                    choice.arrays.add(id, None, (), offset)
                else:
                    choice.arrays.add(id, score.log_prob, score.top[:top], offset)
        if self.body.prompt_logprobs is not None:
            count = self.body.prompt_logprobs
            entries: list[Object | None] = [None]
            for score in tokens[1 - len(begin) :]:
                shown = {id: value for id, value in score.top[:count]} | {score.id: score.log_prob}
                ranks = {id: rank for rank, (id, _) in enumerate(score.top, 1)}
                entries.append(
                    {
                        str(id): {"logprob": number(value), "rank": ranks.get(id), "decoded_token": names[id]}
                        for id, value in shown.items()
                    }
                )
            choice.prompt_logprobs = entries if prompt.ids else []

    def _choice(self, choice: Choice) -> Object:
        content: Object = {
            "index": choice.index,
            "text": choice.text,
            "logprobs": None if choice.arrays is None else choice.arrays.take(),
            "finish_reason": choice.reason,
        }
        if choice.prompt_logprobs is not None:
            content["prompt_logprobs"] = choice.prompt_logprobs
            choice.prompt_logprobs = None
        return content

    def _groups(self) -> Iterator[list[Choice]]:
        for start in range(0, len(self.choices), self.best_of):
            yield self.choices[start : start + self.best_of]

    def _best(self, group: list[Choice]) -> list[Choice]:
        """The n of a prompt's texts with the highest log p per token."""
        if self.body.n == self.best_of:
            return group
        return sorted(group, key=lambda choice: -choice.log_prob / max(1, len(choice.ids)))[: self.body.n]


def _head(prefix: str, kind: str, model: str) -> Object:
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


# ------------------------------------------------------------------------------------------------ beams and insertions


async def _complete_at_once(service: Service, request: Request, name: str, body: CompletionBody) -> Response:
    """Beam search, and insertion before a suffix: one call of the model for each prompt."""
    what = "use_beam_search" if body.suffix is None else "suffix"
    given = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    prompts = [prompt for prompt in given if isinstance(prompt, str)]
    if len(prompts) < len(given) or (body.suffix is not None and body.use_beam_search):
        raise invalid(
            what, True if body.suffix is None else "…", "takes prompts as texts, and not the other of the two."
        )
    for key, value in (("logprobs", body.logprobs), ("prompt_logprobs", body.prompt_logprobs), ("echo", body.echo)):
        if value is not None and value is not False:
            raise invalid(key, value, f"cannot be used with {what}.")
    max_tokens = DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens
    width = body.best_of or body.n
    if width * max_tokens > MAX_BEAM_TOKENS:
        raise invalid("best_of", width, f"× max_tokens must be at most {MAX_BEAM_TOKENS:,}.")

    def complete(lm: TextModel) -> list[list[tuple[str, int, bool]]]:
        stop = _parse_stop(body, max_tokens)
        if body.suffix is not None:
            return [_insert(lm, prompt, body.suffix, body, stop) for prompt in prompts]
        rules = {"repetition": body.repetition_penalty, "bias": _parse_decoding(body).bias}
        beam = Beam(width, body.length_penalty, **rules)  # type: ignore[arg-type]
        found = lm.n_best_many(prompts, beam, stop, body.n)
        return [[(one.text, one.tokens, one.complete) for one in best] for best in found]

    def count(lm: TextModel) -> tuple[list[list[tuple[str, int, bool]]], int]:
        return complete(lm), sum(len(encoding) for encoding in lm.tokenizer.encode_batch(prompts))

    results, num_prompt = await service.call(request, name, count)
    rows = [row for group in results for row in group]
    choices = [
        {"index": i, "text": text, "logprobs": None, "finish_reason": "stop" if complete else "length"}
        for i, (text, _, complete) in enumerate(rows)
    ]
    head, usage = _head("cmpl", "text_completion", name), Usage(num_prompt, 0, sum(row[1] for row in rows)).as_object()
    if not body.stream:
        return await reply(service, {**head, "choices": choices, "usage": usage})

    async def chunks() -> AsyncGenerator[Object, None]:
        for choice in choices:
            yield {**head, "choices": [choice]}
        if body.stream_options is not None and body.stream_options.include_usage:
            yield {**head, "choices": [], "usage": usage}

    return EventStream(service, chunks(), AsyncExitStack())


def _insert(lm: TextModel, prompt: str, suffix: str, body: CompletionBody, stop: Stop) -> list[tuple[str, int, bool]]:
    """Text between a prompt and a suffix: a span, from models that write those; else one word."""
    text = f"{prompt}___{suffix}"
    if lm.can_infill:
        if lm.count_blanks(text) != 1:
            raise invalid("prompt", prompt[:40], "must have no blanks (___) of its own, with a suffix.")
        if body.n > 1:
            raise invalid("n", body.n, "must be 1 with a suffix.")
        filled = lm.infill(text, _parse_decoding(body), stop)[0]
        return [(filled.blanks[0] if filled.blanks else "", filled.tokens, filled.complete)]
    lm.require("fill")
    guesses = lm.fill(text, max(1, body.n))
    if len(guesses) != 1:
        raise invalid("prompt", prompt[:40], "must have no blanks (___) of its own, with a suffix.")
    return [(guess.text, 1, True) for guess in guesses[0]]


# ------------------------------------------------------------------------------------------------ chat


@chat_router.post("/v1/chat/completions", summary="Answer messages", responses=STREAMS)
async def chat_completions(service: ServiceOf, request: Request, body: ChatBody) -> Response:
    """Continue a conversation that the chat template (`nextword serve --chat`) has turned into a text. For
    sequence-to-sequence models, the last message of the user is the source."""
    name = service.choose_for(request, body)
    chat = service.chat
    assert chat is not None  # otherwise there is no such route
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs", body.top_logprobs, "needs logprobs = true.")
    async with AsyncExitStack() as stack:
        lease = await stack.enter_async_context(service.lease(name))
        completion = await service.compute(
            lambda messages: _as_completion(lease.model, body, chat), body.messages, len(str(body.messages))
        )
        prompts = await _read_prompts(service, lease.model, completion)
        job = ChatJob(lease, completion, prompts, completion.n)
        stack.callback(job.rows.cancel)
        if not body.stream:
            return await reply(service, await service.run(request, job.finish()))
        return EventStream(service, job.stream(), stack.pop_all())


def _as_completion(lm: TextModel, body: ChatBody, chat: ChatTemplate) -> CompletionBody:
    """The completion of a text that gives the answer."""
    messages = [{"role": message.role, "content": _content(message.content)} for message in body.messages]
    limit = body.max_completion_tokens or body.max_tokens
    stop = [body.stop] if isinstance(body.stop, str) else list(body.stop or [])
    if isinstance(lm, Seq2SeqLM):
        users = [message["content"] for message in messages if message["role"] == "user"]
        if not users:
            raise invalid("messages", [message["role"] for message in messages], "must have one of the user.")
        prompt, limit = users[-1], limit or max_target_length(lm, users[-1:])
    else:
        names = {id: name for name, id in lm.tokenizer.special.items()}
        end = names.get(lm.tokenizer.end, "") if lm.tokenizer.end is not None else ""
        prompt = chat.render(messages, names.get(lm.tokenizer.begin, ""), end)
        stop += chat.stop
    settings = {key: getattr(body, key) for key in Sampling.model_fields} | {"stop": stop or None}
    alternatives = (body.top_logprobs or 0) if body.logprobs else None
    limit = max(limit or CHAT_TOKENS, body.min_tokens)
    return CompletionBody.model_construct(
        **{key: value.default for key, value in CompletionBody.model_fields.items()}
        | settings
        | {"prompt": prompt, "max_tokens": limit, "logprobs": alternatives}
    )


def _content(content: str | list[TextPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


class ChatJob(Job):
    """A chat completion: the same generation in another form."""

    def __init__(self, lease: Lease, body: CompletionBody, prompts: Sequence[Prompt], best_of: int) -> None:
        super().__init__(lease, body, prompts, best_of)
        self.head = _head("chatcmpl", "chat.completion.chunk" if body.stream else "chat.completion", lease.name)
        self._is_begun = [False] * len(self.choices)

    def _choice(self, choice: Choice) -> Object:
        content: Object = {"index": choice.index, "finish_reason": choice.reason}
        arrays = choice.arrays.take() if choice.arrays is not None else None
        content["logprobs"] = None if arrays is None else {"content": _chat_logprobs(arrays), "refusal": None}
        message: Object = {"content": choice.text}
        if not self.body.stream:
            return content | {"message": {"role": "assistant", **message, "refusal": None}}
        if not self._is_begun[choice.index]:
            self._is_begun[choice.index] = True
            message = {"role": "assistant", **message}
        return content | {"delta": message}


def _chat_logprobs(arrays: Mapping[str, Any]) -> list[Object]:
    def entry(token: str, log_prob: float) -> Object:
        return {"token": token, "logprob": log_prob, "bytes": list(token.encode())}

    rows = zip(arrays["tokens"], arrays["token_logprobs"], arrays["top_logprobs"], strict=True)
    return [
        {**entry(token, log_prob), "top_logprobs": [entry(*pair) for pair in top.items()]}
        for token, log_prob, top in rows
    ]
