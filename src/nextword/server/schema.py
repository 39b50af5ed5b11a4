"""What requests may contain: their fields with types, limits and descriptions. Unknown fields are refused everywhere.

The OpenAPI schema and the reference page are made from these classes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_CHARACTERS = 400_000  # of a text
MAX_TEXTS = 2048  # in a list
MAX_PROMPTS = 128
MAX_CHOICES = 32  # n, best_of
MAX_ROWS = 256  # prompts × best_of
MAX_TOKENS = 8192  # to generate
MAX_REQUEST_TOKENS = 262_144  # of all prompts or texts of a request together
MAX_PSEUDO_TOKENS = 2048  # the same, for models that read a text once for each of its tokens
MAX_TOP = 20  # alternatives reported for each token
MAX_REPORTED = 400_000  # tokens × (1 + alternatives) of one answer
MAX_K = 1000
MAX_STOPS, MAX_STOP_LENGTH = 32, 256
MAX_BIASES = 1024
MAX_WIDTH = 64  # of a beam
MAX_BEAM_TOKENS = 16_384  # width × tokens
MAX_EXAMPLES = 512
MAX_LABELS = 64
MAX_CHOSEN = 2048  # examples × labels
MAX_MESSAGES = 256
MAX_ID = 2**31 - 1
MAX_SEED = 2**63 - 1

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Id = Annotated[int, Field(ge=0, le=MAX_ID)]
# A long list of the wrong type must not be checked to its end: every mistake would become an error object.
Ids = Annotated[list[Id], Field(max_length=MAX_REQUEST_TOKENS, fail_fast=True)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]
Prompts = Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True)]
FilledIds = Annotated[Ids, Field(min_length=1)]
Model = Annotated[
    str | None,
    Field(max_length=200, description="Name of the model, as in /v1/models. Needed only if several are served."),
]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
Seed = Annotated[int | None, Field(ge=0, le=MAX_SEED, description="Same seed, same text. Choice i has seed + i.")]
Temperature = Annotated[float, Field(ge=0, le=100, description="0: the likeliest token at every step.")]
TopP = Annotated[float, Field(gt=0, le=1, description="Nucleus sampling with this probability mass.")]
Penalty = Annotated[float, Field(ge=-100, le=100, description="Subtracted from log p of tokens generated before.")]
Repetition = Annotated[float, Field(gt=0, le=100, description="Divides the scores of tokens seen before; 1: off.")]
MinP = Annotated[float, Field(ge=0, le=1, description="Keep tokens with this fraction of the highest probability.")]
Layer = Annotated[str, Field(max_length=200, description="0: embedding; -1: last; mean; -4:; 1=0.3,5=0.7.")]
Pooling = Annotated[Literal["mean", "text", "first", "last", "max"], Field(description="How vectors are pooled.")]
K = Annotated[int, Field(ge=1, le=MAX_K, description="How many.")]


class Body(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: Model = None


class ErrorObject(BaseModel):
    message: str = Field(description="What is wrong, and what to do.")
    type: str = Field(description="invalid_request_error, authentication_error, rate_limit_error, server_error …")
    param: str | None = Field(description="The field that is wrong.")
    code: str | None = Field(description="The problem, for programs.")


class ErrorReply(BaseModel):
    """An error, in the form of OpenAI's API."""

    error: ErrorObject


# ------------------------------------------------------------------------------------------------ OpenAI


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = Field(False, description="Report the usage in a last chunk.")
    include_obfuscation: bool = Field(False, description="Accepted, without effect.")


class Sampling(Body):
    """Fields of both kinds of completions: OpenAI's, and below them vLLM's."""

    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    n: int = Field(1, ge=1, le=MAX_CHOICES, description="Texts for each prompt.")
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = Field(
        None, description="Stop before any of these."
    )
    seed: Seed = None
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, max_length=MAX_BIASES, description="Token id → number added to its log p."
    )
    stream: bool = Field(False, description="Send the text while it is generated, as server-sent events.")
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, max_length=200, description="Accepted, without effect.")
    top_k: int = Field(0, ge=-1, le=MAX_ID, description="Sample from the k likeliest tokens; 0 or -1: all.")
    min_p: MinP = 0.0
    repetition_penalty: Repetition = 1.0
    min_tokens: int = Field(0, ge=0, le=MAX_TOKENS, description="Tokens before the end token is allowed.")
    ignore_eos: bool = Field(False, description="Go on after the end token.")


class CompletionBody(Sampling):
    prompt: Text | Prompts | Ids | Annotated[list[Ids], Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True)] = (
        Field("", description="Text, or token ids, or a list of either. The source, for sequence-to-sequence models.")
    )
    max_tokens: int | None = Field(16, ge=0, le=MAX_TOKENS, description="Most tokens to generate.")
    best_of: int | None = Field(
        None, ge=1, le=MAX_CHOICES, description="Texts to generate, of which the n with the best mean log p come back."
    )
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP, description="Report log p, and this many alternatives.")
    echo: bool = Field(False, description="Begin the text, and with logprobs the arrays, with the prompt.")
    suffix: Text | None = Field(None, description="What comes after the text to insert, for models that fill blanks.")
    use_beam_search: bool = Field(False, description="Beam search of width best_of.")
    length_penalty: float = Field(1.0, ge=-10, le=10, description="With use_beam_search: α in Σ log p / lengthᵅ.")
    prompt_logprobs: int | None = Field(
        None, ge=0, le=MAX_TOP, description="Report log p of the prompt's tokens in vLLM's form."
    )


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]
    text: Text


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(min_length=1, max_length=MAX_MESSAGES)]
    name: str | None = Field(None, max_length=200)


class ChatBody(Sampling):
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="Most tokens to generate. Default: 256.")
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="The same, by its newer name.")
    logprobs: bool = Field(False, description="Report log p of the tokens.")
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP, description="And this many alternatives.")


class EmbeddingBody(Body):
    input: (
        Text | Texts | FilledIds | Annotated[list[FilledIds], Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]
    ) = Field(description="Text, or token ids, or a list of either.")
    encoding_format: Literal["float", "base64"] = "float"
    layer: Layer = "-1"
    pooling: Pooling = "mean"
    user: str | None = Field(None, max_length=200, description="Accepted, without effect.")


class TokenizeBody(Body):
    prompt: Text = Field(description="Text. The name of a special token alone gives its id.")
    add_special_tokens: bool = Field(False, description="Put the begin token before the text.")
    return_token_strs: bool = Field(False, description="Return the tokens as texts, too.")


class DetokenizeBody(Body):
    tokens: Ids


# ------------------------------------------------------------------------------------------------ native


class ScoreBody(Body):
    texts: Texts
    given: Annotated[list[Text], Field(max_length=MAX_TEXTS)] | None = Field(
        None, description="A text before each text, which is not scored: the context; the source of a translation."
    )


class NextBody(Body):
    text: Text = Field(description="Text so far. ___ marks a blank, for models that see both sides.")
    k: K = 10
    tokens: bool = Field(False, description="Tokens instead of whole words.")


class FillBody(Body):
    text: Text = Field(description="Text with ___ for each blank.")
    k: K = 10
    tokens: bool = Field(False, description="Tokens instead of whole words.")


class BeamSettings(Body):
    """Settings of beam search, as `--set beam.…` on the command line."""

    length_penalty: float = Field(0.0, ge=-10, le=10, description="α in Σ log p / lengthᵅ.")
    normalization: Literal["power", "gnmt"] = "power"
    coverage: float = Field(0.0, ge=0, le=100, description="GNMT's coverage penalty, for models with attention.")
    groups: int = Field(1, ge=1, le=MAX_WIDTH, description="Diverse beam search with this many groups.")
    diversity: float = Field(0.5, ge=0, le=100, description="Penalty per earlier group with the same token.")


class SamplingSettings(Body):
    """Settings of greedy decoding and sampling, as on the command line."""

    temperature: float | None = Field(None, ge=0, le=100, description="0: greedy. Default: 0.8; translations: 0.")
    top_k: int = Field(0, ge=0, le=MAX_ID)
    top_p: TopP = 1.0
    min_p: MinP = 0.0
    typical_p: float = Field(1.0, gt=0, le=1, description="Locally typical sampling with this probability mass.")
    repetition_penalty: Repetition = 1.0
    no_repeat_ngram: int = Field(0, ge=0, le=100, description="Never generate an n-gram of this size twice; 0: off.")
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    bias: dict[str, Annotated[float, Field(ge=-1e6, le=1e6)] | None] | None = Field(
        None, max_length=MAX_BIASES, description="Token's text, or id:NUMBER → number added to log p; null bans it."
    )


class GenerateBody(BeamSettings, SamplingSettings):
    prompt: Text | Prompts = Field(description="Text to continue, or source, or text with blanks; or a list.")
    ids: Ids = Field([], description="Tokens that follow the prompt, and are continued.")
    max_tokens: int | None = Field(None, ge=0, le=MAX_TOKENS, description="Default: 100; translations: 2 × source.")
    min_tokens: int = Field(0, ge=0, le=MAX_TOKENS)
    contrastive: float | None = Field(None, ge=0, le=1, description="α of contrastive search among top_k tokens.")
    beam: int | None = Field(None, ge=1, le=MAX_WIDTH, description="Width of beam search instead of sampling.")
    n_best: int | None = Field(None, ge=1, le=MAX_WIDTH, description="With beam: the n best, with scores.")
    seed: Seed = None
    stop: Annotated[list[StopString], Field(max_length=MAX_STOPS)] = Field([], description="Stop before these.")
    overflow: Literal["slide", "error"] = Field("slide", description="Prompts longer than the window.")
    stream: bool = Field(False, description="One prompt: send the pieces as server-sent events.")


class TranslateBody(BeamSettings):
    source: Text | Prompts = Field(description="Text to translate, or a list.")
    beam: int | None = Field(None, ge=1, le=MAX_WIDTH, description="Width of beam search. Default: greedy.")
    n_best: int | None = Field(None, ge=1, le=MAX_WIDTH, description="With beam: the n best, with scores.")
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="Default: 2 × source.")


Part = Text | Annotated[list[Text], Field(max_length=MAX_TEXTS)]


class PredictBody(Body):
    examples: Annotated[
        list[Text | Annotated[list[Part], Field(min_length=1, max_length=MAX_TEXTS)]],
        Field(min_length=1, max_length=MAX_EXAMPLES),
    ] = Field(description="Texts; pairs of texts; what else the task reads, as in Python's predict.")
    task: str = Field("", max_length=200, description="Task to predict, for a run of several.")
    labels: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=MAX_LABELS)] = Field(
        [], description="Labels to choose from, for a language model without a task head."
    )
    template: str = Field("", max_length=2000, description="Prompt with {text} and {label}, with labels.")
    calibrate: bool = Field(False, description="Subtract each label's prior score, with labels.")


class TagBody(Body):
    sentences: Annotated[
        list[Text | Annotated[list[Text], Field(max_length=MAX_TEXTS)]], Field(min_length=1, max_length=MAX_EXAMPLES)
    ] = Field(description="Sentences, as texts or lists of words.")


class Question(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    question: Text
    context: Text = Field(description="The passage that answers it.")


class AnswerBody(Body):
    questions: Annotated[list[Question], Field(min_length=1, max_length=MAX_EXAMPLES)]


class Choice(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    context: Text
    question: Text = ""
    choices: Annotated[list[Text], Field(min_length=2, max_length=MAX_LABELS)]


class ChooseBody(Body):
    examples: Annotated[list[Choice], Field(min_length=1, max_length=MAX_EXAMPLES)]


class EmbedBody(Body):
    texts: Texts
    layer: Layer = "-1"
    pool: Pooling = "mean"
    words: bool = Field(False, description="One vector per word instead of one per text.")


# ------------------------------------------------------------------------------------------------ lens

Source = Annotated[
    Text | None, Field(description="Source of a sequence-to-sequence model; for others, text that precedes.")
]
Target = Annotated[
    Text | None, Field(description="The predicted text, as it would stand there. Default: the likeliest.")
]
Numbers = Annotated[list[Annotated[int, Field(ge=-1000, le=1000)]], Field(min_length=1, max_length=100)]


class ExplainBody(Body):
    text: Text = Field(description="Text to explain; for a classifier, the text to classify.")
    source: Source = None
    k: int = Field(5, ge=0, le=100, description="Alternatives for each token.")
    second: Text | None = Field(None, description="Second text, for a classifier of pairs.")
    label: str | None = Field(None, max_length=200, description="Label to explain. Default: the predicted one.")


class AttentionBody(Body):
    text: Text
    source: Source = None
    layers: Numbers | None = Field(None, description="Layers to return, from 1, or negative from the last.")
    heads: Numbers | None = Field(None, description="Heads to return, likewise.")


class LayersBody(Body):
    text: Text = Field(description="Text; a masked model predicts its blank ___, or each of its tokens.")
    source: Source = None
    k: int = Field(5, ge=1, le=MAX_TOP, description="Predictions of each layer.")


class GatesBody(Body):
    text: Text
    layers: Numbers | None = Field(None, description="Layers to return, from 1, or negative from the last.")


class GradientsBody(Body):
    text: Text
    target: Target = None
    every: bool = Field(False, description="Of every token of the text, too: a matrix of norms for each layer.")


class SaliencyBody(Body):
    text: Text = Field(description="Text before the predicted word, or with a blank ___ for it.")
    target: Target = None
    source: Source = None
    method: Literal["integrated_gradients", "gradient_x_input"] = "integrated_gradients"
    steps: int | None = Field(None, ge=1, le=256, description="Nodes of the quadrature. Default: as many as needed.")


class NearestBody(Body):
    query: Text = Field(description="A word, or a sum of words: king - man + woman; with texts, a text.")
    texts: Texts | None = Field(None, description="Texts to search instead of words.")
    k: K = 10
    layer: Layer = "-1"
    pool: Pooling = "mean"


class ProjectBody(Body):
    items: Texts = Field(description="Texts or words.")
    of: Literal["texts", "words"] = "texts"
    layer: Layer = "-1"
    pool: Pooling = "mean"


class BeamBody(BeamSettings):
    prompt: Text = Field(description="Text to continue, or source.")
    beam: int = Field(4, ge=1, le=MAX_WIDTH, description="Width of the beam.")
    max_tokens: int = Field(10, ge=1, le=MAX_TOKENS)


class DistributionBody(SamplingSettings):
    prompt: Text = Field(description="Text so far, or source.")
    ids: Ids = Field([], description="Tokens generated since, which follow the prompt.")
    k: int = Field(10, ge=0, le=MAX_K, description="How many of the likeliest tokens.")
    chosen: Id | None = Field(None, description="Id of a token to report in any case.")


# ------------------------------------------------------------------------------------------------ training

MAX_MINUTES = 180.0  # of a job
MAX_COMPARED = 12  # models of a comparison
MAX_PROMPT = 400  # characters
MAX_JOB_NAME = 40
Name = Annotated[
    str,
    Field(max_length=MAX_JOB_NAME, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of the model."),
]


class TextBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=100, description="Name for people, such as that of the file.")
    text: str = Field(description="The text. Of pairs: lines of a source, a tab and a target.")
    kind: Literal["text", "pairs"] = "text"


class JobBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    kind: Literal["train", "compare"]
    recipe: str | None = Field(None, max_length=100, description="To train: one of GET /api/recipes.")
    models: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=MAX_COMPARED)] | None = Field(
        None, description="To compare: recipes, and names of served models. Default: a ladder of models."
    )
    data: str = Field(max_length=100, description="The id of a text, as in GET /api/texts.")
    minutes: float | None = Field(
        None, gt=0, le=MAX_MINUTES, description="Training time. Default: the recipe's budget; to compare: 4."
    )
    prompt: str = Field("", max_length=MAX_PROMPT, description="What the samples continue, fill or translate.")
    name: Name | None = None
