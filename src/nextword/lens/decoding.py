"""What decoding makes of a distribution: the chance of each token before and after temperature, top-k, top-p and so on.

              model    temperature 0.5    top_k = 2
    the        .50          .69              .79
    a          .26          .19              .21
    his        .18          .09               –         no longer allowed
    ⋮          ⋮            ⋮
    entropy   1.7 bits     1.3 bits         0.7 bits

The settings are applied by the code that sampling runs (generation/logits_processors.py, generation/sampling.py), over
the whole vocabulary: `after` is the probability with which `model.generate` chooses a token in this place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from nextword.core.errors import invalid
from nextword.core.types import Decoding, Greedy, Sample, State
from nextword.generation.beam_search import largest_sorted
from nextword.generation.logits_processors import log_sum, normalize, reject_nan
from nextword.generation.sampling import choose_tokens, is_greedy, narrow_candidates
from nextword.html.formatting import escape
from nextword.html.page import html_table, number_column, text_column
from nextword.lens.result import LensResult, TokenNames, run_name, show_piece
from nextword.lm.base import TextModel
from nextword.lm.generation_mixin import GenerationMixin

FILTERS = ("top_k", "top_p", "min_p", "typical")  # of Sample, in the order in which they are applied


@dataclass(frozen=True)
class TokenChance:
    """A token that may come next, or that decoding rules out."""

    text: str
    id: int
    rank: int  # by the model; 1: no token is likelier
    before: float  # probability by the model
    after: float  # probability with which decoding chooses it


@dataclass(frozen=True)
class DecodingStage:
    """The distribution after one setting, and those before it in the list."""

    setting: str  # "model", "rules" (penalties, biases, tokens that have no text), "temperature", "greedy", or a filter
    allowed: int  # tokens that may still come
    entropy: float  # in nats


@dataclass(frozen=True, eq=False, repr=False)
class DecodingEffect(LensResult):
    """The distribution of the next token before and after decoding."""

    prompt: str
    ids: tuple[int, ...]  # tokens generated before this one
    tokens: tuple[TokenChance, ...] = field(repr=False)  # the k likeliest before or after; likeliest before first
    chosen: TokenChance | None  # the token that was asked for
    entropy_before: float  # in nats
    entropy_after: float
    allowed: int  # tokens that may come
    vocabulary: int
    end: int | None  # id of the token that ends a text
    stages: tuple[DecodingStage, ...] = field(repr=False)

    def __repr__(self) -> str:
        bits = f"{self.entropy_before / math.log(2):.2f} → {self.entropy_after / math.log(2):.2f} bits"
        return f"DecodingEffect({self.prompt[-30:]!r}: {self.allowed:,} of {self.vocabulary:,} tokens, {bits})"

    @property
    def title(self) -> str:
        return f"{self.allowed:,} of {self.vocabulary:,} tokens may come next"

    def sections(self) -> list[tuple[str, str]]:
        tokens = [
            {"token": show_piece(each.text), "rank": each.rank, "before": each.before, "after": each.after}
            for each in self.tokens
        ]
        columns = [
            text_column("Token", "token", "model"),
            number_column("Rank"),
            number_column("Before", "{:.2%}".format),
            number_column("After", "{:.2%}".format),
        ]
        stages = [
            {"setting": each.setting, "tokens": each.allowed, "entropy": each.entropy / math.log(2)}
            for each in self.stages
        ]
        stage_columns = [
            text_column("After", "setting", "model"),
            number_column("Tokens"),
            number_column("Entropy, bits", "{:.2f}".format, "entropy"),
        ]
        prompt = f"<p class='note'>After “{escape(self.prompt[-80:])}”</p>" if self.prompt else ""
        return [
            ("Tokens", prompt + html_table("Tokens", columns, tokens)),
            ("Settings", html_table("Settings", stage_columns, stages)),
        ]


def show_decoding(
    model: TextModel,
    prompt: str = "",
    decoding: Decoding = Sample(),
    k: int = 10,
    ids: Sequence[int] = (),
    chosen: int | None = None,
) -> DecodingEffect:
    """The k likeliest next tokens, with their probabilities before and after decoding.

    decoding   Greedy or Sample
    ids        tokens generated since the prompt, which is the source of a sequence-to-sequence model
    chosen     id of a token to report in any case, such as the one that was generated
    """
    last, state = _read(_generator(model), prompt, decoding, ids)
    return show_decoding_after(model, prompt, last, state, decoding, k, ids, chosen)


@torch.no_grad()
def show_decoding_after(
    model: TextModel,
    prompt: str,
    last: Tensor,
    state: State,
    decoding: Decoding = Sample(),
    k: int = 10,
    ids: Sequence[int] = (),
    chosen: int | None = None,
) -> DecodingEffect:
    """`show_decoding` for a text that has been read up to `last` (1,), `ids` included. Consumes the state."""
    generator = _generator(model)
    if not isinstance(decoding, (Greedy, Sample)):
        raise invalid("decoding", decoding, "must be Greedy() or Sample(): other methods choose from no distribution.")
    if k < 0:
        raise invalid("k", k, "must be 0 or more.")
    size = len(model.tokenizer)
    if chosen is not None and not 0 <= chosen < size:
        raise invalid("chosen", chosen, f"must be an id from 0 to {size - 1}.")
    log_p: Tensor = model.network.step(last, state)[0].cpu()
    log_p = log_p if log_p.dtype == torch.float64 else log_p.float()
    reject_nan(log_p)
    scores = _apply_rules(generator, prompt, decoding, ids, log_p)
    before, (after, stages) = log_p[0].double().exp(), _apply(decoding, log_p, scores)
    names = TokenNames(model)

    def describe(id: int) -> TokenChance:
        rank = int((log_p[0] > log_p[0, id]).sum()) + 1
        return TokenChance(names.name(id), id, rank, float(before[id]), float(after[id]))

    allowed = int((after > 0).sum())
    likeliest = {*largest_sorted(before, k)[1].tolist(), *largest_sorted(after, min(k, allowed))[1].tolist()}
    best = sorted(likeliest, key=lambda id: (-max(float(before[id]), float(after[id])), id))[:k]
    tokens = tuple(describe(id) for id in sorted(best, key=lambda id: (-float(before[id]), id)))
    return DecodingEffect(
        model=run_name(model),
        prompt=prompt,
        ids=tuple(ids),
        tokens=tokens,
        chosen=None if chosen is None else describe(chosen),
        entropy_before=stages[0].entropy,
        entropy_after=stages[-1].entropy,
        allowed=allowed,
        vocabulary=len(before),
        end=generator.end,
        stages=tuple(stages),
    )


def _generator(model: TextModel) -> GenerationMixin:
    model.require("generate")
    if not isinstance(model, GenerationMixin):
        raise model.unsupported("generate")
    return model


def _read(model: GenerationMixin, prompt: str, decoding: Decoding, ids: Sequence[int]) -> tuple[Tensor, State]:
    """The token to feed next, and the state before it, after the prompt and the tokens generated since."""
    text = model.begin(prompt, decoding)
    if not model.is_seq2seq:
        return model.read([model.begin([*text.ids, *ids], decoding)])
    last, state = model.read([text])
    for id in ids:
        with torch.no_grad():
            _, state = model.network.step(last, state)
        last = torch.full_like(last, id)
    return last, state


def _apply_rules(model: GenerationMixin, prompt: str, decoding: Decoding, ids: Sequence[int], log_p: Tensor) -> Tensor:
    """The scores (1, V) under the rules with a memory, which have seen the tokens generated before."""
    rules = model.begin(prompt, decoding).make_chooser().rules
    rules.scores(log_p)  # makes the memory that `update` writes to
    for id in ids:
        rules.update(torch.tensor([id]))
    return rules.scores(log_p)


def _apply(decoding: Greedy | Sample, log_p: Tensor, scores: Tensor) -> tuple[Tensor, list[DecodingStage]]:
    """The probabilities (V,) with which decoding chooses, and the stages of the way there."""
    before = log_p[0].double().exp()
    probabilities = normalize(scores)[0].double().exp()
    stages = [_stage("model", before)]
    if not torch.equal(scores, log_p):
        stages.append(_stage("rules", probabilities))
    if not bool((scores > -math.inf).any()):  # nothing may come
        return torch.zeros_like(before), stages
    if is_greedy(decoding):
        probabilities = torch.zeros_like(before)
        probabilities[choose_tokens(scores, decoding, torch.Generator())] = 1.0
        return probabilities, [*stages, _stage("greedy", probabilities)]
    assert isinstance(decoding, Sample)
    settings = Sample(decoding.temperature)
    if decoding.temperature != 1:
        probabilities = _narrow(scores, settings)
        stages.append(_stage("temperature", probabilities))
    for name in FILTERS:
        if getattr(decoding, name) != getattr(Sample, name):
            settings = replace(settings, **{name: getattr(decoding, name)})
            probabilities = _narrow(scores, settings)
            stages.append(_stage(name, probabilities))
    return probabilities, stages


def _narrow(scores: Tensor, decoding: Sample) -> Tensor:
    """The probabilities (V,) of all tokens under temperature and filters."""
    candidates, at = narrow_candidates(scores, decoding)
    probabilities = (candidates - log_sum(candidates)).double().exp()[0]
    if at is None:
        return probabilities
    return torch.zeros(scores.shape[1], dtype=torch.float64).scatter(0, at[0], probabilities)


def _stage(setting: str, probabilities: Tensor) -> DecodingStage:
    entropy = float(torch.special.entr(probabilities).sum())
    return DecodingStage(setting, int((probabilities > 0).sum()), max(entropy, 0.0))
