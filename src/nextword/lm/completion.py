"""How likely completions are after their contexts, and whether each is what the model itself would write.

Context and completion are tokenised together, and a token across the seam belongs to the completion, as in
`LanguageModel.score`. Where a network gives its hidden vectors, only those that predict a completion meet the readout,
and what is read twice is read once: choices of one token after the same context cost one reading, and what all contexts
begin with, as solved examples ahead of every text, is read for all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nextword.core import pytree as nest
from nextword.core.errors import Unsupported
from nextword.core.types import EXACT, Decoding, Encoding, Inputs, State, Stop
from nextword.lm.embedding import CHUNK, TOGETHER

ROWS = 256  # distributions over the vocabulary held at once
SHARED = 16  # tokens; where rows begin with no more in common, each reads them itself

Progress = Callable[[float, float | None], None]


@dataclass(frozen=True, slots=True)
class Likelihood:
    nats: float
    tokens: int
    bytes: int
    greedy: bool | None = None  # whether each token is the likeliest at its place; None: not asked
    unknown: bool = False  # holds a word outside the vocabulary, whose cost is not that word's


def likelihoods(
    lm: Any,
    completions: Sequence[str],
    given: Sequence[str],
    greedy: bool = False,
    progress: Progress | None = None,
) -> list[Likelihood]:
    """One for each completion after what is given. No model would write a word outside its vocabulary."""
    if getattr(lm, "kind", EXACT) != EXACT:
        raise Unsupported(
            "This model sees both sides and has pseudo-likelihoods alone, which do not say how likely a completion is. "
            "Use one that reads from left to right."
        )
    network, tokenizer = getattr(lm, "network", None), lm.tokenizer
    unknown = {id for name, id in tokenizer.special.items() if "unk" in name.lower()}
    parts: list[Likelihood] = []
    block = 4096  # texts tokenised at once
    for at in range(0, len(completions), block):
        texts, before = completions[at : at + block], given[at : at + block]
        encodings = tokenizer.encode_batch([g + t for g, t in zip(before, texts, strict=True)])
        asked = [_places(e, len(g.encode())) for e, g in zip(encodings, before, strict=True)]
        best: Sequence[bool | None]
        if hasattr(network, "hidden") and hasattr(network, "readout"):
            done = _share(progress, at, len(completions))
            nats, best = _read(network, encodings, asked, done)
        else:
            nats = [score.nats for score in lm.score_many(texts, before)]
            best = _steps(network, encodings, asked) if greedy else [None] * len(texts)
        for text, encoding, places, cost, top in zip(texts, encodings, asked, nats, best, strict=True):
            missing = bool(unknown.intersection(encoding.ids[places].tolist()))
            flag = (bool(top) and not missing) if greedy else None
            parts.append(Likelihood(cost, len(places), len(text.encode()), flag, missing))
        if progress:
            progress(min(at + block, len(completions)), len(completions))
    return parts


def written(lm: Any, prompts: Sequence[str], how: Decoding, stop: Stop) -> list[str]:
    """What the model writes after each prompt: side by side, where it can."""
    if hasattr(lm, "generate_many"):
        found = lm.generate_many(list(prompts), how, stop)
    else:
        found = [lm.generate(prompt, how, stop) for prompt in prompts]
    return ["".join(piece.text for piece in pieces) for pieces in found]


def window_of(lm: Any) -> int | None:
    """How many tokens fit; None where a model reads on without end, be it by a state or one token at a time."""
    stride = getattr(lm, "stride", None)
    return getattr(lm, "context", None) if stride is not None and stride > 1 else None


def _places(encoding: Encoding, start: int) -> np.ndarray:
    return np.flatnonzero(encoding.spans[:, 1] > start)


def _share(progress: Progress | None, at: int, total: int) -> Callable[[int], None]:
    return (lambda done: progress(at + done, total)) if progress else (lambda done: None)


@torch.no_grad()
def _read(
    network: Any, encodings: Sequence[Encoding], asked: Sequence[np.ndarray], done: Callable[[int], None]
) -> tuple[list[float], list[bool | None]]:
    """Sums of −log p and whether all were likeliest, each distinct row of inputs being read once."""
    begin = int(network.start(1)[0][0])
    rows: dict[bytes, int] = {}
    inputs: list[np.ndarray] = []
    wanted: list[list[tuple[int, int, int]]] = []  # of each row: place, target, which completion
    for which, (encoding, places) in enumerate(zip(encodings, asked, strict=True)):
        if not len(places):
            continue
        row = np.concatenate([[begin], encoding.ids[: places[-1]]]).astype(np.int64)
        at = rows.setdefault(row.tobytes(), len(rows))
        if at == len(inputs):
            inputs.append(row)
            wanted.append([])
        wanted[at] += [(int(place), int(encoding.ids[place]), which) for place in places]
    nats, best = [0.0] * len(encodings), [True] * len(encodings)
    order = sorted(range(len(inputs)), key=lambda i: -len(inputs[i]))
    ahead = _ahead(network, inputs, min((one[0] for some in wanted for one in some), default=0))
    finished = 0
    while order:
        count = max(1, TOGETHER // min(len(inputs[order[0]]), CHUNK))
        together, order = order[:count], order[count:]
        _read_batch(network, [inputs[i] for i in together], [wanted[i] for i in together], ahead, nats, best)
        finished += sum(len(wanted[i]) for i in together)
        done(min(len(encodings), finished))
    return nats, list(best)


def _ahead(network: Any, rows: Sequence[np.ndarray], most: int) -> tuple[int, State] | None:
    """What all rows begin with: how many tokens, at most so many, and the state after them; None where it is little."""
    for row in rows[1:]:
        other = np.flatnonzero(row[:most] != rows[0][:most])
        most = int(other[0]) if len(other) else most
    if len(rows) < 2 or most <= SHARED:
        return None
    first, state = network.start(1)
    ids = torch.from_numpy(rows[0][None, :most]).to(first.device)
    for chunk in ids.split(CHUNK, 1):
        _, state = network.hidden(Inputs(chunk), state)
    return most, state


def _read_batch(
    network: Any,
    rows: Sequence[np.ndarray],
    wanted: Sequence[Sequence[tuple[int, int, int]]],
    ahead: tuple[int, State] | None,
    nats: list[float],
    best: list[bool],
) -> None:
    """Rows from a fresh start, or from what all have in common; padded at their end, which nothing before it sees."""
    first, state = network.start(len(rows))
    begun = 0
    if ahead is not None:
        begun, state = ahead[0], nest.take(ahead[1], torch.zeros(len(rows), dtype=torch.long, device=first.device))
    padded = np.zeros((len(rows), len(rows[0])), np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    ids = torch.from_numpy(padded).to(first.device)
    asked = np.array([(i, *one) for i, some in enumerate(wanted) for one in some], np.int64)
    for at in range(begun, ids.shape[1], CHUNK):
        layers, state = network.hidden(Inputs(ids[:, at : at + CHUNK]), state)
        here = asked[(asked[:, 1] >= at) & (asked[:, 1] < at + CHUNK)]
        for part in np.array_split(here, max(1, -(-len(here) // ROWS))):
            columns = torch.from_numpy(part).to(ids.device)
            which_row, place, target = columns[:, 0], columns[:, 1], columns[:, 2]
            log_p = network.readout.log_probs(layers[-1][which_row, place - at]).float()
            mine = log_p.gather(1, target.unsqueeze(1)).squeeze(1)
            top = (log_p.argmax(1) == target).tolist()
            for which, cost, likeliest in zip(part[:, 3].tolist(), (-mine.double()).tolist(), top, strict=True):
                nats[which] += cost
                best[which] = best[which] and likeliest


@torch.no_grad()
def _steps(network: Any, encodings: Sequence[Encoding], asked: Sequence[np.ndarray]) -> list[bool]:
    """The same question to a model that only steps: token after token, until one is not the likeliest."""
    if not hasattr(network, "step"):
        raise Unsupported("This model cannot say which token it finds likeliest, so its first guess cannot be told.")
    found = []
    for encoding, places in zip(encodings, asked, strict=True):
        first, state = network.start(1)
        ids = torch.from_numpy(encoding.ids.astype(np.int64)).to(first.device)
        likeliest = True
        if len(places):
            before = torch.cat([first, ids[: places[0]]]).unsqueeze(0)
            if before.shape[1] > 1:
                lengths = torch.full((1,), before.shape[1], device=ids.device)
                _, state = network.score(before, lengths, state)
            last = before[:, -1]
            for place in places.tolist():
                log_p, state = network.step(last, state)
                if int(log_p[0].argmax()) != int(ids[place]):
                    likeliest = False
                    break
                last = ids[place : place + 1]
        found.append(likeliest)
    return found
