"""Text from text: a source is read, and what becomes of it is written: translations, summaries.

    source ──encode──▶ ids end ──read at once──▶ state ──generation──▶ ids ──▶ text

All that writes (`Writing`) works here as it does for models that go on from a prompt; the prompt is the source. Where
the tokenizer has no token that ends a document (words), a line end ends what is written.

A source of any length is read whole. How long those were that a run was trained on, and with which prefixes its tasks
begin, its recipe says; what it never saw is refused or told. The name of a sentinel in a text is refused: it would be
read letter by letter, and not as the blank that is meant.

A word that the vocabulary lacks is written as <unk>. A network that shows where it looks copies it: the word of the
source that it looks at most stands there instead (Luong et al. 2015, "Addressing the Rare Word Problem").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.seq2seq import padded
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Tokenizer
from nextword.core.types import EXACT, Decoding, Encoding, Greedy, Inputs, Piece, Score, State, Stop
from nextword.data.text_to_text import denoises, is_tasks, prefixes
from nextword.lm.blank_filling import SpanInfilling
from nextword.lm.causal import TOGETHER, Candidate, Writing
from nextword.lm.embedding import Embedding
from nextword.models import count_parameters
from nextword.objectives import of_pairs
from nextword.run_folder import RunFolder
from nextword.tokenizers.base import SENTINEL

WINDOW = 1024  # tokens of a text that are embedded at once
REFUSED = (
    "This model makes a text from a source, such as a translation, and has no {}: it models no text by itself. Use "
    "`nextword generate RUN SOURCE`, or a model that reads from left to right."
)
MENDS = (
    "This model writes what is missing from a text, all of it at once, and has no {}. Use "
    '`nextword generate RUN "The ___ sat on the ___."`, with --beam 5 --n-best 5 for several.'
)


@dataclass(frozen=True)
class Alignment:
    """Where a network looks while it writes: `weights[t, s]`, of token t of the target and token s of the source."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: np.ndarray  # (T, S), rows add up to one


class Seq2SeqLM(Writing, SpanInfilling, Embedding):
    """A network whose encoder knows words in their context for their own sake (its `two_sided`) embeds texts, too."""

    kind = EXACT
    context = None  # of the source there is no bound
    goes_on = False

    def __init__(self, network: Any, tokenizer: Tokenizer, name: str = "") -> None:
        self.network, self.tokenizer, self.name = network, tokenizer, name
        self.is_bidirectional = getattr(network, "is_bidirectional", False)
        self.room = WINDOW
        self.can = frozenset({"score", "generate", *(["embed"] if self.is_bidirectional else [])})
        self.parameters = count_parameters(network)
        self._chunk = 0
        self.looks = hasattr(network, "attention") and getattr(network, "look", None) is not None
        self._unknown = next((id for name, id in tokenizer.special.items() if "unk" in name.lower()), None)
        self._marked = any(name.startswith(SENTINEL) for name in tokenizer.special)
        self.longest, self.prefixes, mends = _trained(name)
        self.mends = self._marked and mends

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def end(self) -> int:
        """What ends a source, and what is written."""
        if self.tokenizer.end is not None:
            return self.tokenizer.end
        return int(self.tokenizer.encode("\n").ids[0])

    # -------------------------------------------------------------------------------------------- likelihood

    def score(self, text: str, given: str = "") -> Score:
        return self.score_many([text], [given])[0]

    @torch.no_grad()
    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        """One score a text, its end included; `given` are the sources."""
        if given is None or len(given) != len(texts):
            raise NextwordError(
                f"{len(texts)} texts are to be scored with {0 if given is None else len(given)} sources: this model "
                "scores a text given what it is made from. Give one source for each (given = …)."
            )
        sources, targets = self._encoded(given, "slide"), self._encoded(texts, "slide")
        nats = self._nats(sources, targets)
        return [
            Score(float(cost), len(ids), len(text.split()), len(text.encode()), EXACT, self.tokenizer.lossless)
            for text, ids, cost in zip(texts, targets, nats, strict=True)
        ]

    def _nats(self, sources: list[list[int]], targets: list[list[int]]) -> list[float]:
        found = [0.0] * len(targets)
        for group in self._alike([len(a) + len(b) for a, b in zip(sources, targets, strict=True)]):
            first, state = self._read_all([sources[i] for i in group])
            ids, there = self._placed([targets[i] for i in group])
            log_p, _ = self.network.score(torch.cat([first.unsqueeze(1), ids], 1), there.sum(1) + 1, state)
            for i, nats in zip(group, (-log_p.double().sum(1)).tolist(), strict=True):
                found[i] = nats
        return found

    @torch.no_grad()
    def alignment(self, text: str, source: str) -> Alignment:
        """At which tokens of the source the network looks as it writes this text."""
        if not self.looks:
            raise Unsupported(f"{type(self.network).__name__} has no attention that could be shown.")
        ids, read = self._encoded([text, source], "slide")
        weights = self._looks(ids, read)
        return Alignment(self._shown(read), self._shown(ids), weights.double().cpu().numpy())

    def _looks(self, ids: list[int], source: list[int]) -> Tensor:
        """(T, S): where it looks when it writes each of the ids."""
        first, state = self._read_all([source])
        read = torch.tensor([[int(first[0]), *ids[:-1]]], device=first.device)
        return self.network.attention(Inputs(read), state)[0]

    def _shown(self, ids: Sequence[int]) -> tuple[str, ...]:
        names = {id: name for name, id in self.tokenizer.special.items()} | {self.end: "⏎"}
        return tuple(names.get(id) or self.tokenizer.piece(id).decode("utf-8", "replace") for id in ids)

    def next(self, left: str, right: str = "", k: int = 10, tokens: bool = False) -> Any:
        raise Unsupported((MENDS if self.mends else REFUSED).format("next words"))

    def fill(self, text: str, k: int = 10, tokens: bool = False) -> Any:
        raise Unsupported((MENDS if self.mends else REFUSED).format("words for a blank by themselves"))

    def embed(self, texts: Sequence[str], layer: Any = -1, pooling: str = "mean") -> Any:
        if "embed" not in self.can:
            raise Unsupported(REFUSED.format("vectors"))
        return super().embed(texts, layer, pooling)

    # -------------------------------------------------------------------------------------------- writing

    def generate(
        self, prompt: str = "", how: Decoding = Greedy(), stop: Stop = Stop(), overflow: str = "slide"
    ) -> Iterator[Piece]:
        """Pieces of what becomes of the source, as they are written."""
        self._known([prompt])
        pieces = super().generate(prompt, how, stop, overflow)
        return self._copied(pieces, prompt) if self._copies else pieces

    def generate_many(
        self, prompts: Sequence[str], how: Decoding = Greedy(), stop: Stop = Stop(), overflow: str = "slide"
    ) -> list[list[Piece]]:
        self._known(prompts)
        found = super().generate_many(prompts, how, stop, overflow)
        if not self._copies:
            return found
        return [self._all_copied(one, prompt) for one, prompt in zip(found, prompts, strict=True)]

    @property
    def _copies(self) -> bool:
        return self.looks and self._unknown is not None

    def _copied(self, pieces: Iterator[Piece], source: str) -> Iterator[Piece]:
        """The same with words of the source in the place of unknown ones."""
        ids: list[int] = []
        for piece in pieces:
            ids += piece.ids
            if self._unknown not in piece.ids:
                yield piece
            else:  # what comes is not known yet: each of them is looked up as it comes
                yield self._all_copied([piece], source, ids)[0]

    @torch.no_grad()
    def _all_copied(self, pieces: list[Piece], source: str, before: list[int] | None = None) -> list[Piece]:
        """The same of pieces that are all there, with one look for all. `before`: the ids up to the last of them."""
        ids = before or [id for piece in pieces for id in piece.ids]
        read = self.tokenizer.encode(source)
        if self._unknown not in ids or not len(read):
            return pieces
        weights = self._looks(ids, [*read.ids.tolist(), self.end])[:, : len(read)]
        most = weights.argmax(1).tolist()
        found, at = [], len(ids) - sum(len(piece.ids) for piece in pieces)
        for piece in pieces:
            at += len(piece.ids)
            known = self._unknown not in piece.ids
            found.append(piece if known else replace(piece, text=self._copy(piece.text, read, most[at - 1], source)))
        return found

    def _copy(self, text: str, read: Encoding, at: int, source: str) -> str:
        """The text of an unknown word, as that word of the source of which the token `at` is a part."""
        assert self._unknown is not None
        word = int(read.words[at])
        spans = read.spans[read.words == word]
        copied = source.encode()[int(spans[:, 0].min()) : int(spans[:, 1].max())].decode("utf-8", "replace").strip()
        name = next(name for name, id in self.tokenizer.special.items() if id == self._unknown)
        return text.replace(name, copied) if name in text else text + copied

    @torch.no_grad()
    def _with_copies(self, one: Candidate, source: str) -> str:
        """A candidate's text with words of the source in the place of unknown ones."""
        read = self.tokenizer.encode(source)
        if not self._copies or self._unknown not in one.ids or not len(read):
            return one.text
        name = next(name for name, id in self.tokenizer.special.items() if id == self._unknown)
        most = self._looks(list(one.ids), [*read.ids.tolist(), self.end])[:, : len(read)].argmax(1).tolist()
        text, rest = "", one.text
        for id, at in zip(one.ids, most, strict=True):
            before, found, after = rest.partition(name)
            if id == self._unknown and found:
                text, rest = text + before + self._copy(name, read, at, source), after
        return text + rest

    def n_best_many(self, prompts: Sequence[str], *args: Any, **kwargs: Any) -> list[list[Candidate]]:
        self._known(prompts)
        found = super().n_best_many(prompts, *args, **kwargs)
        return [
            [replace(one, text=self._with_copies(one, prompt).lstrip()) for one in best]
            for best, prompt in zip(found, prompts, strict=True)
        ]

    # -------------------------------------------------------------------------------------------- reading sources

    def beyond(self, prompt: str) -> int:
        return 0

    def past_training(self, sources: Sequence[str]) -> int:
        """How many of these are longer than any that the run was trained on; 0 where that is not known."""
        if not self.longest:
            return 0
        return sum(len(one) + 1 > self.longest for one in self.tokenizer.encode_batch(list(sources)))

    def _encoded(self, prompts: Sequence[str], overflow: str) -> list[list[int]]:
        self._refuse_sentinels(prompts)
        found = [[*ids, self.end] for ids in super()._encoded(prompts, overflow)]
        for prompt, ids in zip(prompts, found, strict=True):
            if overflow == "error" and self.longest and len(ids) > self.longest:
                raise NextwordError(
                    f"The source {prompt[:30]!r}… has {len(ids):,} tokens, and this run was trained on at most "
                    f"{self.longest:,}. Shorten it, or have it read all the same (overflow = 'slide')."
                )
        return found

    def _refuse_sentinels(self, texts: Sequence[str]) -> None:
        for text in texts if self._marked else ():
            if SENTINEL in text:
                raise NextwordError(
                    f"The text {text[:40]!r} has {SENTINEL}…> in it, the name of a token that stands for a span "
                    "taken out. In a text it would be read letter by letter. "
                    + ("Write ___ for what is missing." if self.mends else "Remove it.")
                )

    def _known(self, prompts: Sequence[str]) -> None:
        """Refuses sources that begin as those of no task of the run do."""
        for prompt in prompts if self.prefixes else ():
            if prompt.startswith(self.prefixes):
                continue
            near = next((one for one in self.prefixes if prompt.startswith(one.rstrip())), None)
            if near is not None:
                raise NextwordError(
                    f"The source {prompt[:40]!r} begins with '{near.rstrip()}', but the prefix that this run was "
                    f"trained on is '{near}', with a space and a text after it. Write '{near}…'."
                )
            known = ", ".join(f"'{one}'" for one in self.prefixes)
            raise NextwordError(
                f"The source {prompt[:40]!r} begins with no prefix that this run was trained on. Say which task it "
                f"is: {known}."
            )

    def _past(self, ids: list[int]) -> list[int]:
        return []

    def _banned(self) -> list[int]:
        banned = super()._banned()
        return [id for id in banned if id != self._unknown] if self._copies else banned

    @torch.no_grad()
    def _read_all(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
        ids, there = self._placed(rows)
        return self.network.start(len(rows), Inputs(ids, None if bool(there.all()) else there))

    def _placed(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        ids, there = padded([np.asarray(row, np.int64) for row in rows])
        return ids.to(self.device), there.to(self.device)

    def _alike(self, lengths: list[int]) -> Iterator[list[int]]:
        """Rows that are read together, the longest first."""
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        while order:
            rows = max(1, TOGETHER // lengths[order[0]])
            yield order[:rows]
            order = order[rows:]


def _trained(name: str) -> tuple[int, tuple[str, ...], bool]:
    """Of the run folder of this name: tokens of its longest pairs, its tasks' prefixes, and whether it last learnt to
    write what was taken out of texts. Nothing is known where there is none; of one that others trained, anything may
    be."""
    if not name or not (Path(name) / "recipe.toml").is_file():
        return 0, (), True
    run = RunFolder.open(name)
    phase = run.recipe.phases[-1]
    mends = not of_pairs(phase.objective) or "converted" in run.manifest
    longest = phase.batches.get("length", 0) if phase.batches.get("kind") in ("sequences", "spans") else 0
    try:
        tasks = is_tasks(phase.data)
        known, mends = (prefixes(phase.data), mends or denoises(phase.data)) if tasks else ((), mends)
    except NextwordError:  # its file of tasks is no longer there
        known = ()
    return int(longest), known, mends
