"""What is asked of an engine, and what comes back: values only, which any thread may hold.

    GenerationRequest ──Engine.submit──▶ Handle ──iterate──▶ PromptScores?  TokenEvent*  Finished

The text of a generation is the concatenation of `TokenEvent.text`. It equals the text of `lm.generate` with the same
prompt, settings and seed, whatever else the engine does at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nextword.core.errors import NextwordError
from nextword.core.types import Decoding, Greedy, Stop

Top = tuple[tuple[int, float], ...]  # (id, log p) of the likeliest tokens, best first


@dataclass(frozen=True)
class GenerationRequest:
    """Continue a prompt; or, for a sequence-to-sequence model, generate from a source."""

    prompt: tuple[int, ...] = ()  # ids, without the begin token
    decoding: Decoding = field(default_factory=Greedy)
    stop: Stop = field(default_factory=Stop)
    overflow: str = "slide"  # of the window, as in `lm.generate`: "slide" or "error"
    top: int = 0  # how many of the likeliest tokens to report for each generated token
    prompt_top: int | None = None  # None: no log p of the prompt; 0: of its own tokens; n: and of the n likeliest
    source: str | None = None  # text; for sequence-to-sequence models, in place of the prompt


@dataclass(frozen=True)
class TokenScore:
    """A token of the prompt: its log p given those before it, and the likeliest tokens in its place."""

    id: int
    log_prob: float
    top: Top = ()  # always contains the token itself, with the same number, if any were asked for


@dataclass(frozen=True)
class PromptScores:
    """Comes first, if `prompt_top` was given: one score per token of the prompt.

    Every model here reads a begin token first, so the first token of the prompt has a log p as well.
    """

    tokens: tuple[TokenScore, ...]


@dataclass(frozen=True)
class TokenEvent:
    """One generated token."""

    id: int | None  # None: no token, but the rest of the text, which had been held back for a stop string
    text: str  # complete characters only; "" while one is incomplete, or while a stop string may begin
    log_prob: float  # the model's own, unchanged by temperature, penalties and the like
    top: Top = ()  # always contains the token itself, with the same number, if any were asked for


@dataclass(frozen=True)
class Finished:
    """Comes last, exactly once."""

    reason: Literal["stop", "length", "cancelled", "error"]  # "stop": the end token, or a stop string
    error: Exception | None = None  # a NextwordError: the request's fault; any other: the server's
    tokens: int = 0  # generated, including the end token
    cached: int = 0  # tokens of the prompt whose state came from the prefix cache


Event = PromptScores | TokenEvent | Finished


@dataclass(frozen=True)
class EngineStats:
    """What an engine does now, and has done since it started."""

    running: int  # requests that generate
    waiting: int  # requests in the queue, or whose prompt is being read
    calls: int  # other calls that wait
    rows: int  # how many requests may generate side by side
    queue: int  # how many may wait
    requests: int  # finished requests, however they ended
    cancelled: int
    failed: int
    steps: int  # steps of the network
    tokens: int  # generated
    prompt_tokens: int  # of prompts, cached or not
    cached_tokens: int  # of prompts, taken from the prefix cache
    prefix_lookups: int
    prefix_hits: int
    prefix_entries: int
    prefix_bytes: int


class QueueFull(NextwordError):
    """Too many requests wait already."""

    def __init__(self, waiting: int, retry_after: float) -> None:
        super().__init__(f"{waiting} requests wait already. Try again in {retry_after:.0f} s.")
        self.waiting, self.retry_after = waiting, retry_after


class MemoryBusy(NextwordError):
    """There is no memory for a model now, because all others that are loaded run requests."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(
            f"There is no memory for this model while others run requests. Try again in {retry_after:.0f} s."
        )
        self.retry_after = retry_after


class EngineClosed(NextwordError):
    """The engine has been closed: the server shuts down, or the model was unloaded."""

    def __init__(self) -> None:
        super().__init__("The model is being unloaded. Try again.")
