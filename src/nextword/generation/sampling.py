"""Token by token: greedy decoding, sampling and contrastive search, for one row or many side by side.

    model.step ──▶ log p (B, V) ──LogitsProcessor──▶ scores (B, V) ──choose_tokens──▶ one id per row ──▶ model.step

The log-probability that comes with a token is the model's own, unchanged by temperature, top-k, top-p or repetition
penalty: added up, they are the score of the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core import pytree
from nextword.core.errors import Unsupported
from nextword.core.slices import end_slice
from nextword.core.types import Contrastive, Decoding, Greedy, Inputs, Sample, State
from nextword.generation.beam_search import Stepper, largest_sorted
from nextword.generation.logits_processors import (
    LogitsProcessor,
    check_decoding,
    divide_by_temperature,
    keep_min_p,
    keep_top_mass,
    log_sum,
    normalize,
    reject_nan,
    typicality,
)
from nextword.models.base import CausalNetwork

NO_TOKEN = -1  # in place of an id, if nothing may be generated
WIDTHS = (1024, 8192)  # numbers of ids in which the nucleus is searched, before it is searched among all

Generators = torch.Generator | Sequence[torch.Generator]  # one for all rows, or one for each

# ------------------------------------------------------------------------------------------------ choosing ids


def choose_tokens(scores: Tensor, decoding: Greedy | Sample, generators: Generators) -> Tensor:
    """Choose one id for each row of the scores, (B, V) → (B,); NO_TOKEN for a row of −inf.

    After a step of a large network the caches are cold, so few operations matter as much as small ones.
    """
    if isinstance(decoding, Greedy) or is_greedy(decoding):
        best, chosen = scores.max(dim=-1)
        values = best.tolist()
        reject_nan(values)
    else:
        best = scores.amax(dim=-1, keepdim=True)
        values = best.flatten().tolist()
        reject_nan(values)
        candidates, ids = narrow_candidates(scores, decoding, best if -math.inf not in values else None)
        chosen = sample_ids(candidates, generators)
        if ids is not None:
            chosen = ids.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    return chosen.masked_fill(best.view(-1) == -math.inf, NO_TOKEN) if -math.inf in values else chosen


def is_greedy(decoding: Greedy | Sample) -> bool:
    return isinstance(decoding, Greedy) or decoding.temperature == 0


def choose_greedily(scores: Tensor, log_probs: Tensor) -> tuple[Tensor, list[int], list[float]]:
    """Greedy `choose_tokens` for a GPU: valid ids as a tensor, the ids as a list, and the log p of each.

    Everything comes over in one transfer, because three transfers would wait three times.
    """
    best, chosen = scores.max(dim=-1)
    chosen_log_probs = log_probs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    values, ids, log_p = torch.stack((best.double(), chosen.double(), chosen_log_probs.double())).tolist()
    reject_nan(values)
    return chosen, [NO_TOKEN if value == -math.inf else int(id) for value, id in zip(values, ids, strict=True)], log_p


def narrow_candidates(scores: Tensor, decoding: Sample, best: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Apply temperature, top-k, top-p, min-p and typicality, in this order.

    Returns scores (B, K), ∝ log p and at most 0, and their ids in ascending order; None: all ids. The result equals
    that of the functions in logits_processors.py over the whole vocabulary; but ids outside the nucleus need not be
    sorted or summed to be left out. `best`: the greatest score of each row (B, 1), if known and finite.
    """
    scores, ids = divide_by_temperature(scores, decoding.temperature, best), None
    if 0 < decoding.top_k < scores.shape[-1]:
        ids = largest_ids(scores, decoding.top_k)
        scores = scores.gather(-1, ids)
    if decoding.top_p < 1:
        total = log_sum(scores)
        scores, ids = _filter(lambda few, key: keep_top_mass(few - total, key, decoding.top_p), scores, scores, ids)
    if decoding.min_p > 0:
        scores, ids = _filter(lambda few, _: keep_min_p(few, decoding.min_p), scores, scores, ids)
    if decoding.typical < 1:
        scores = normalize(scores)
        key = typicality(scores)
        scores, ids = _filter(lambda few, key: keep_top_mass(few, key, decoding.typical), scores, key, ids)
    return scores, ids


Filter = Callable[[Tensor, Tensor], Tensor]  # scores, and the key whose greatest it keeps → scores, others −inf


def _filter(keep: Filter, scores: Tensor, key: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Apply a filter to the ids of greatest key only, if these decide the result for every row."""
    for width in WIDTHS:
        if 2 * width > scores.shape[-1]:
            break
        at = largest_ids(key, width)  # ascending, so that the first of equals comes first, as among all ids
        candidate_key = key.gather(-1, at)
        result = keep(scores.gather(-1, at), candidate_key)
        # Ids at the edge may have equals beyond it, so the result counts only if it stays clear of the edge.
        least = candidate_key.masked_fill(result == -math.inf, math.inf).amin(dim=-1)
        if bool((least > candidate_key.amin(dim=-1)).all()):
            return result, at if ids is None else ids.gather(-1, at)
    return keep(scores, key), ids


def largest_ids(values: Tensor, k: int) -> Tensor:
    """The ids of the k greatest values of each row (B, V), ascending (B, k); of equals at the edge, any."""
    if values.device.type != "cpu":
        return values.topk(k, dim=-1).indices.sort(dim=-1).values
    ids = np.argpartition(values.detach().numpy(), -k, axis=-1)[:, -k:]  # on a CPU much faster than topk
    ids.sort(axis=-1)
    return torch.from_numpy(ids)


def sample_ids(scores: Tensor, generators: Generators) -> Tensor:
    """Sample one id per row with probability ∝ exp(scores), by inverting the cumulative sum.

    Scores are log-probabilities, or at most 0 with the best near it. The uniform numbers, one per row, are drawn on the
    CPU, so that the same seed generates the same text on every device.
    """
    if isinstance(generators, torch.Generator):
        uniform = torch.rand(len(scores), 1, generator=generators, dtype=torch.float64)
    else:
        uniform = torch.cat([torch.rand(1, 1, generator=rng, dtype=torch.float64) for rng in generators])
    cumulative = scores.exp().cumsum(dim=-1, dtype=torch.float64)
    # The first id whose sum exceeds the number is never an id of probability zero, which adds nothing to the sum.
    chosen = torch.searchsorted(cumulative, uniform.to(scores.device) * cumulative[:, -1:], right=True)
    return chosen.squeeze(1).clamp(max=scores.shape[-1] - 1)


def make_generator(decoding: Decoding, row: int = 0) -> torch.Generator:
    """A generator with the decoding's seed plus the row, or with a random seed if it has none."""
    generator = torch.Generator()
    if isinstance(decoding, Sample) and decoding.seed is not None:
        generator.manual_seed((decoding.seed + row) % 2**63)
    else:
        generator.seed()
    return generator


# ------------------------------------------------------------------------------------------------ token by token


class TokenChooser:
    """Choose the next token of B rows with equal settings; each row has a generator of its own.

    So the text of a row does not depend on its neighbors, and rows may come and go (`join`, `take`).
    """

    def __init__(
        self, decoding: Greedy | Sample, rules: LogitsProcessor, generators: Sequence[torch.Generator]
    ) -> None:
        self.decoding, self.rules, self.generators = decoding, rules, list(generators)

    def choose(self, log_probs: Tensor) -> tuple[Tensor, list[tuple[int, float]]]:
        """(B, V) → the next inputs (B,), and each row's id and log p; NO_TOKEN if nothing may be generated."""
        scores = self.rules.scores(log_probs)
        if log_probs.is_cuda and is_greedy(self.decoding):
            chosen, ids, chosen_log_probs = choose_greedily(scores, log_probs)
        else:
            chosen = choose_tokens(scores, self.decoding, self.generators)
            ids = chosen.tolist()
            if NO_TOKEN in ids:  # such a row still needs an input until it is left out
                chosen = chosen.clamp(min=0)
            chosen_log_probs = log_probs.gather(1, chosen.unsqueeze(1)).flatten().tolist()
        self.rules.update(chosen)
        return chosen, list(zip(ids, chosen_log_probs, strict=True))

    def take(self, rows: Sequence[int]) -> None:
        """Continue with these rows, in this order."""
        self.generators = [self.generators[row] for row in rows]
        self.rules.take(torch.tensor(rows, dtype=torch.long))

    def join(self, other: TokenChooser) -> None:
        """Append the rows of a chooser with equal settings, but for the seed."""
        self.generators += other.generators
        self.rules.join(other.rules)


class BatchDecoder:
    """Generate B rows side by side. Consumes the state.

    while decoder:
        for id, log_prob in decoder.step(): ...     one token in each row; NO_TOKEN if nothing may be generated
        decoder.keep([0, 2])                        the others have ended and cost nothing from here on
    """

    def __init__(self, model: Stepper, last: Tensor, state: State, chooser: TokenChooser) -> None:
        self.model, self.last, self.state, self.chooser = model, last, state, chooser

    def __len__(self) -> int:
        return len(self.last)

    @torch.no_grad()
    def step(self) -> list[tuple[int, float]]:
        log_probs, self.state = self.model.step(self.last, self.state)
        chosen, tokens = self.chooser.choose(log_probs)
        self.last = chosen.to(self.last)
        return tokens

    def keep(self, rows: Sequence[int]) -> None:
        """Continue with these rows only."""
        if len(rows) == len(self):
            return
        index = torch.tensor(rows, dtype=torch.long, device=self.last.device)
        self.last = self.last[index]
        if rows:
            self.state = pytree.take(self.state, index)
            self.chooser.take(rows)


def generate_tokens(
    model: Stepper,
    last: Tensor,
    state: State,
    decoding: Greedy | Sample = Greedy(),
    *,
    preceding: Sequence[int] = (),
    forbidden: Iterable[int] = (),
    end: int | None = None,
    min_tokens: int = 0,
    generator: torch.Generator | None = None,
) -> Iterator[tuple[int, float]]:
    """Yield endless pairs (id, log p) for one row, each computed on demand; `last` (1,) is the first input.

    Consumes the state. `preceding` are ids, usually of the prompt, that repetition rules count too. `end` is forbidden
    before `min_tokens` other tokens, but does not end the stream: that ends only if nothing may be generated. The
    generator (on the CPU) replaces `decoding.seed`.
    """
    check_decoding(decoding)  # not in the generator function, which would not run before the first `next`
    rules = LogitsProcessor(decoding, [preceding], forbidden, end, min_tokens)
    chooser = TokenChooser(decoding, rules, [generator or make_generator(decoding)])
    return stream_tokens(BatchDecoder(model, last, state, chooser))


def stream_tokens(decoder: BatchDecoder) -> Iterator[tuple[int, float]]:
    """The tokens of a single row, until nothing may be generated."""
    while True:
        (token,) = decoder.step()
        if token[0] == NO_TOKEN:
            return
        yield token


class GeneratedBatch(NamedTuple):
    """The result of `generate_batch`: rows padded with `end` (0 without one) and with log p = 0."""

    ids: Tensor  # (B, L)
    log_probs: Tensor  # (B, L)
    lengths: Tensor  # (B,), the `end` included


def generate_batch(
    model: Stepper,
    last: Tensor,
    state: State,
    decoding: Greedy | Sample,
    length: int,
    end: int | None = None,
    *,
    preceding: Sequence[Sequence[int]] | None = None,
    forbidden: Iterable[int] = (),
    min_tokens: int = 0,
    generators: Sequence[torch.Generator] | None = None,
) -> GeneratedBatch:
    """Continue B rows at once, each until `end` or `length` tokens; a row that has ended costs nothing more."""
    check_decoding(decoding)
    count = len(last)
    rules = LogitsProcessor(decoding, preceding or [()] * count, forbidden, end, min_tokens)
    generators = generators or [make_generator(decoding, row) for row in range(count)]
    decoder = BatchDecoder(model, last, state, TokenChooser(decoding, rules, generators))
    texts: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    live = list(range(count))
    for _ in range(length):
        continuing = []
        for place, (row, token) in enumerate(zip(live, decoder.step(), strict=True)):
            if token[0] != NO_TOKEN:
                texts[row].append(token)
            if token[0] not in (NO_TOKEN, end):
                continuing.append(place)
        decoder.keep(continuing)
        live = [live[place] for place in continuing]
        if not live:
            break
        end_slice()
    lengths = [len(text) for text in texts]
    longest = max(lengths, default=0)
    padded = [text + [(end or 0, 0.0)] * (longest - len(text)) for text in texts]
    ids = torch.tensor([[id for id, _ in text] for text in padded], dtype=last.dtype, device=last.device)
    log_probs = torch.tensor([[p for _, p in text] for text in padded], dtype=torch.float, device=last.device)
    shape = count, longest
    return GeneratedBatch(ids.view(shape), log_probs.view(shape), torch.tensor(lengths, device=last.device))


# ------------------------------------------------------------------------------------------------ contrastive search


def contrastive_search(
    model: CausalNetwork,
    last: Tensor,
    state: State,
    decoding: Contrastive = Contrastive(),
    *,
    before: Tensor | None = None,
    preceding: Sequence[int] = (),
    forbidden: Iterable[int] = (),
    end: int | None = None,
    min_tokens: int = 0,
) -> Iterator[tuple[int, float]]:
    """Yield endless pairs (id, log p) for one row, as `generate_tokens` does: probable, but unlike the text before.

    Su, Lan, Wang, Yogatama, Kong & Collier, "A Contrastive Framework for Neural Text Generation" (2022), eq. 5: of the
    k most probable tokens, choose the one with the greatest

        (1 − α) · p(v | x)  −  α · max over the tokens j before of  cos(h_v, h_j)

    where h is the last layer's vector of a token that was read. So each candidate must be read: a step reads k rows,
    and the row of the chosen one continues.

        state ──▶ candidates 1 … k, read side by side ──▶ h, similarity ──▶ state and next p of the best one

    `before` (N, D): vectors of the tokens in the state. p is normalized after the rules (forbidden tokens and the
    like); the log p that is yielded is the model's own.
    """
    check_decoding(decoding)
    require_hidden_states(model)
    rules = LogitsProcessor(decoding, [preceding], forbidden, end, min_tokens)
    return _contrastive_stream(model, last, state, decoding, rules, before)


@torch.no_grad()
def _contrastive_stream(
    model: CausalNetwork,
    last: Tensor,
    state: State,
    decoding: Contrastive,
    rules: LogitsProcessor,
    before: Tensor | None,
) -> Iterator[tuple[int, float]]:
    layers, state = model.hidden(Inputs(last.unsqueeze(1)), state)
    h = layers[-1][:, -1]  # (1, D), as the readout reads it
    memory = _VectorMemory(vectors(model, h), before)
    while True:
        log_probs = model.readout.log_probs(h)
        scores = normalize(rules.scores(log_probs))[0].double()
        reject_nan(scores.amax())
        top_scores, ids = largest_sorted(scores, decoding.k)
        ids = ids[top_scores > -math.inf]
        if not len(ids):
            return
        rows = torch.zeros(len(ids), dtype=torch.long, device=last.device)
        layers, states = model.hidden(Inputs(ids.to(last).unsqueeze(1)), pytree.take(state, rows))
        h = layers[-1][:, -1]  # (k, D)
        unit = vectors(model, h)
        values = (1 - decoding.alpha) * scores[ids].exp() - decoding.alpha * memory.max_cosine(unit).double()
        best = values.max(dim=0).indices.unsqueeze(0)
        h, state = h[best], pytree.take(states, best)
        memory.add(unit[best])
        rules.update(ids[best])
        yield int(ids[best]), float(log_probs[0, ids[best]])


def require_hidden_states(model: CausalNetwork) -> None:
    """Raise Unsupported if a model has no vectors to compare."""
    if not model.has_hidden_states:
        raise Unsupported(
            f"Contrastive search compares hidden states, and {type(model).__name__} has none. Use greedy decoding, "
            "sampling or beam search.",
            ability="contrastive search",
        )


def vectors(model: CausalNetwork, h: Tensor) -> Tensor:
    """(…, D) → unit vectors of the last layer, without what is appended to it for the readout alone."""
    return F.normalize(h[..., : model.widths[-1]].float(), dim=-1)


class _VectorMemory:
    """Unit vectors of all tokens before, in an array that doubles when it is full."""

    def __init__(self, first: Tensor, before: Tensor | None):
        self.array = first if before is None else torch.cat([before.to(first), first])
        self.count = len(self.array)

    def max_cosine(self, unit: Tensor) -> Tensor:
        """(k, D) → (k,): the greatest cosine with a token before."""
        return (unit @ self.array[: self.count].T).amax(dim=1)

    def add(self, unit: Tensor) -> None:
        if self.count == len(self.array):
            self.array = torch.cat([self.array, torch.zeros_like(self.array)])
        self.array[self.count] = unit[0]
        self.count += 1
