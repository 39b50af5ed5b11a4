"""Score completions: how likely each is after its context, and whether it is what the model itself would generate.

Context and completion are tokenized together, and a token across the border belongs to the completion, as in
`TextModel.score`. If a network exposes its hidden states, only those that predict a completion go through the output
layer, and nothing is read twice: completions of one token after the same context cost one reading, and a prefix that
all contexts share, such as few-shot examples, is read once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nextword.core import pytree
from nextword.core.errors import Unsupported
from nextword.core.protocols import Autoregressive
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import EXACT, Decoding, Encoding, Inputs, Progress, State, Stop, ignore_progress
from nextword.lm.base import TextModel
from nextword.lm.embedding import BATCH_TOKENS, CHUNK
from nextword.models.base import CausalNetwork

TEXTS_PER_BLOCK = 4096  # tokenized at once
BATCH_ROWS = 256  # distributions over the vocabulary held at once
MIN_SHARED = 16  # tokens that a shared prefix must have to be worth a reading of its own


@dataclass(frozen=True, slots=True)
class CompletionScore:
    nats: float
    tokens: int
    bytes: int
    greedy: bool | None = None  # whether every token is the likeliest in its place; None: not computed
    unknown: bool = False  # contains a word outside the vocabulary, whose probability is not that of the word


def score_completions(
    lm: TextModel,
    completions: Sequence[str],
    given: Sequence[str],
    greedy: bool = False,
    progress: Progress = ignore_progress,
) -> list[CompletionScore]:
    """One score per completion after its context in `given`. A completion with an unknown word is never greedy."""
    if lm.kind != EXACT:
        raise Unsupported(
            "This model has pseudo-likelihoods, which do not say how likely a completion is. Use a model that reads "
            "from left to right.",
            ability="score",
        )
    unknown = {id for name, id in lm.tokenizer.special.items() if "unk" in name.lower()}
    scores: list[CompletionScore] = []
    for at in range(0, len(completions), TEXTS_PER_BLOCK):
        texts, before = completions[at : at + TEXTS_PER_BLOCK], given[at : at + TEXTS_PER_BLOCK]
        encodings = lm.tokenizer.encode_batch([g + t for g, t in zip(before, texts, strict=True)])
        positions = [
            np.flatnonzero(encoding.spans[:, 1] > len(g.encode()))
            for encoding, g in zip(encodings, before, strict=True)
        ]
        is_greedy: Sequence[bool | None]
        if lm.network.has_hidden_states:

            def report(done: int, at: int = at) -> None:
                progress(at + done, len(completions))

            nats, is_greedy = _score_by_hidden_states(lm.network, encodings, positions, report)
        else:
            nats = [score.nats for score in lm.score_many(texts, before)]
            is_greedy = _check_greedy_by_steps(lm.network, encodings, positions) if greedy else [None] * len(texts)
        for text, encoding, own, cost, is_likeliest in zip(texts, encodings, positions, nats, is_greedy, strict=True):
            has_unknown = bool(unknown.intersection(encoding.ids[own].tolist()))
            flag = (bool(is_likeliest) and not has_unknown) if greedy else None
            scores.append(CompletionScore(cost, len(own), len(text.encode()), flag, has_unknown))
        progress(min(at + TEXTS_PER_BLOCK, len(completions)), len(completions))
    return scores


def generate_texts(lm: TextModel, prompts: Sequence[str], decoding: Decoding, stop: Stop) -> list[str]:
    """The continuation of each prompt."""
    return ["".join(piece.text for piece in pieces) for pieces in lm.generate_many(list(prompts), decoding, stop)]


def context_window(lm: TextModel) -> int | None:
    """How many tokens fit into the model's window; None if it has none, or one that moves with every token."""
    return lm.context if lm.stride is not None and lm.stride > 1 else None


Target = tuple[int, int, int]  # position in the row, token to predict, index of the completion


@torch.no_grad()
def _score_by_hidden_states(
    network: CausalNetwork,
    encodings: Sequence[Encoding],
    positions: Sequence[np.ndarray],
    on_done: Callable[[int], None],
) -> tuple[list[float], list[bool | None]]:
    """Σ −log p of each completion, and whether it is greedy. Each distinct row of inputs is read once."""
    begin = int(network.start(1)[0][0])
    index: dict[bytes, int] = {}
    rows: list[np.ndarray] = []
    targets: list[list[Target]] = []  # of each row
    for completion, (encoding, own) in enumerate(zip(encodings, positions, strict=True)):
        if not len(own):
            continue
        row = np.concatenate([[begin], encoding.ids[: own[-1]]]).astype(np.int64)
        i = index.setdefault(row.tobytes(), len(index))
        if i == len(rows):
            rows.append(row)
            targets.append([])
        targets[i] += [(int(position), int(encoding.ids[position]), completion) for position in own]
    nats, is_greedy = [0.0] * len(encodings), [True] * len(encodings)
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    shared = _read_shared_prefix(network, rows, min((target[0] for row in targets for target in row), default=0))
    finished = 0
    while order:
        count = max(1, slice_tokens(BATCH_TOKENS) // min(len(rows[order[0]]), CHUNK))
        batch, order = order[:count], order[count:]
        _score_batch(network, [rows[i] for i in batch], [targets[i] for i in batch], shared, nats, is_greedy)
        finished += sum(len(targets[i]) for i in batch)
        on_done(min(len(encodings), finished))
    return nats, list(is_greedy)


def _read_shared_prefix(network: CausalNetwork, rows: Sequence[np.ndarray], length: int) -> tuple[int, State] | None:
    """The length of the prefix of all rows, at most `length`, and the state after it; None if it is short."""
    for row in rows[1:]:
        different = np.flatnonzero(row[:length] != rows[0][:length])
        length = int(different[0]) if len(different) else length
    if len(rows) < 2 or length <= MIN_SHARED:
        return None
    first, state = network.start(1)
    ids = torch.from_numpy(rows[0][None, :length]).to(first.device)
    for chunk in ids.split(CHUNK, 1):
        _, state = network.hidden(Inputs(chunk), state)
        end_slice()
    return length, state


def _score_batch(
    network: CausalNetwork,
    rows: Sequence[np.ndarray],
    targets: Sequence[Sequence[Target]],
    shared: tuple[int, State] | None,
    nats: list[float],
    is_greedy: list[bool],
) -> None:
    """Read rows from the beginning, or from the shared prefix on, and update `nats` and `is_greedy`.

    Rows are padded at their end, which nothing before it sees.
    """
    first, state = network.start(len(rows))
    start = 0
    if shared is not None:
        start, state = shared[0], pytree.take(shared[1], torch.zeros(len(rows), dtype=torch.long, device=first.device))
    padded = np.zeros((len(rows), len(rows[0])), np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    ids = torch.from_numpy(padded).to(first.device)
    table = np.array([(i, *target) for i, row in enumerate(targets) for target in row], np.int64)
    for at in range(start, ids.shape[1], CHUNK):
        layers, state = network.hidden(Inputs(ids[:, at : at + CHUNK]), state)
        targets_of_chunk = table[(table[:, 1] >= at) & (table[:, 1] < at + CHUNK)]
        for part in np.array_split(targets_of_chunk, max(1, -(-len(targets_of_chunk) // BATCH_ROWS))):
            columns = torch.from_numpy(part).to(ids.device)
            row_index, position, token = columns[:, 0], columns[:, 1], columns[:, 2]
            log_p = network.readout.log_probs(layers[-1][row_index, position - at]).float()
            chosen = log_p.gather(1, token.unsqueeze(1)).squeeze(1)
            likeliest = (log_p.argmax(1) == token).tolist()
            for i, cost, is_likeliest in zip(part[:, 3].tolist(), (-chosen.double()).tolist(), likeliest, strict=True):
                nats[i] += cost
                is_greedy[i] = is_greedy[i] and is_likeliest
        end_slice()


@torch.no_grad()
def _check_greedy_by_steps(
    network: CausalNetwork, encodings: Sequence[Encoding], positions: Sequence[np.ndarray]
) -> list[bool | None]:
    """Whether each completion is greedy, for a network that only steps."""
    if not isinstance(network, Autoregressive):
        raise Unsupported(
            f"{type(network).__name__} cannot predict token by token, so its greedy continuation is unknown.",
            ability="generate",
        )
    results: list[bool | None] = []
    for encoding, own in zip(encodings, positions, strict=True):
        first, state = network.start(1)
        ids = torch.from_numpy(encoding.ids.astype(np.int64)).to(first.device)
        is_greedy = True
        if len(own):
            before = torch.cat([first, ids[: own[0]]]).unsqueeze(0)
            if before.shape[1] > 1:
                lengths = torch.full((1,), before.shape[1], device=ids.device)
                _, state = network.score(before, lengths, state)
            last = before[:, -1]
            for position in own.tolist():
                log_p, state = network.step(last, state)
                if int(log_p[0].argmax()) != int(ids[position]):
                    is_greedy = False
                    break
                last = ids[position : position + 1]
        results.append(is_greedy)
    return results
