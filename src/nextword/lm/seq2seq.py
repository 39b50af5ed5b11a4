"""Sequence-to-sequence models: read a source, generate a target (translation, summarization, text-to-text tasks).

    source ──encode──▶ ids end ──read at once──▶ state ──generation──▶ ids ──▶ text

Generation works as for causal models; the prompt is the source. A tokenizer without an end token (words) ends the
target with a line end.

A source of any length is read as a whole. The recipe of a run says how long its training sources were, and which
prefixes its tasks have. The names of sentinel tokens are refused in texts, where they would be read as plain letters.

Copying: a word outside the vocabulary is generated as <unk>. If the network has attention, the source word with the
most attention replaces it (Luong et al. 2015, "Addressing the Rare Word Problem").

Infilling: a network that was trained on span corruption (T5) fills the blanks of a text.

    Thank you ___ me to your party ___ week.      →      Thank you for inviting me to your party last week.

A sentinel token replaces each blank, and the span that is generated after it goes back into the text. All spans are
generated one after the other, each in sight of those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nextword.batching.seq2seq import pad_rows
from nextword.core.errors import NextwordError, invalid
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import EXACT, Decoding, Encoding, Greedy, Inputs, Piece, Score, State, Stop
from nextword.data.text_to_text import has_denoising, is_tasks, list_prefixes
from nextword.generation.beam_search import Hypothesis
from nextword.generation.infilling import (
    BLANK,
    LINES,
    Filled,
    SentinelDecoder,
    WordPieces,
    align_part,
    check_infilling,
    encode_part,
    follows_letter,
    generate_fillings,
    join_parts,
    split_spans,
    unwritable_ids,
    with_end,
)
from nextword.lm.embedding import EmbeddingMixin
from nextword.lm.generation_mixin import BATCH_TOKENS, GenerationMixin
from nextword.models.base import Network
from nextword.objectives import trains_on_pairs
from nextword.run_folder import RunFolder
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.special_tokens import SENTINEL, sentinels


@dataclass(frozen=True)
class Alignment:
    """Attention during generation: `weights[t, s]` of token t of the target on token s of the source."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: np.ndarray  # (T, S), rows sum to 1


class Seq2SeqLM(GenerationMixin, EmbeddingMixin):
    """A conditional network. It embeds texts if its encoder was trained for that (`is_bidirectional`, as in CoVe)."""

    kind = EXACT
    is_seq2seq = True
    room = 1024  # tokens of a text that are embedded at once

    def __init__(self, network: Network, tokenizer: Tokenizer, name: str = "") -> None:
        super().__init__(network, tokenizer, name)
        self.is_bidirectional = network.is_bidirectional
        if not self.is_bidirectional:
            self.disable("embed")
        self.has_attention = bool(network.has_attention)
        self._unknown = next((id for name, id in tokenizer.special.items() if "unk" in name.lower()), None)
        self._has_sentinels = any(name.startswith(SENTINEL) for name in tokenizer.special)
        self.training_length, self.prefixes, trained_to_fill = _read_training(name)
        self.fills_spans = self._has_sentinels and trained_to_fill

    @property
    def end(self) -> int:
        """The token that ends a source and a target."""
        if self.tokenizer.end is not None:
            return self.tokenizer.end
        return int(self.tokenizer.encode("\n").ids[0])

    def why_not(self, ability: str) -> str:
        if ability == "predict":
            return super().why_not(ability)
        if ability == "infill":
            return "This model was trained on pairs, not to fill blanks. Use GLM, or a T5 before fine-tuning."
        if ability == "alignment":
            return f"{type(self.network).__name__} has no attention that could be shown."
        if self.fills_spans:
            return (
                f"This model fills all blanks of a text at once and does not support {ability!r}. Use `nextword "
                'generate RUN "The ___ sat on the ___."`, with --beam 5 --n-best 5 for several.'
            )
        return (
            f"This model generates a text from a source, such as a translation, and does not support "
            f"{ability!r}. Use `nextword generate RUN SOURCE`, or a model that reads plain text."
        )

    # -------------------------------------------------------------------------------------------- score

    @torch.no_grad()
    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        """One score per target, including its end; `given` are the sources."""
        if given is None or len(given) != len(texts):
            raise invalid("given", given, f"must be as many sources as there are texts, {len(texts)}.")
        targets = self._encode_sources(texts)
        nats = self._target_nats(self._encode_sources(given), targets)
        return [self._make_score(text, cost, len(ids)) for text, ids, cost in zip(texts, targets, nats, strict=True)]

    def _target_nats(self, sources: list[list[int]], targets: list[list[int]]) -> list[float]:
        nats = [0.0] * len(targets)
        for group in self._group_by_length([len(a) + len(b) for a, b in zip(sources, targets, strict=True)]):
            first, state = self._read_prompts([sources[i] for i in group])
            ids, token_mask = self._pad([targets[i] for i in group])
            log_p, _ = self.network.score(torch.cat([first.unsqueeze(1), ids], 1), token_mask.sum(1) + 1, state)
            for i, cost in zip(group, (-log_p.double().sum(1)).tolist(), strict=True):
                nats[i] = cost
            end_slice()
        return nats

    def scored_tokens(self, text: str, given: str = "") -> Encoding:
        return with_end(self.tokenizer.encode(text), text, self.end)

    @torch.no_grad()
    def token_layers(self, text: str, given: str = "") -> Iterator[list[Tensor]]:
        """`given` is the source."""
        target, source = self._encode_sources([text, given])
        first, state = self._read_prompts([source])
        inputs = torch.tensor([[int(first[0]), *target[:-1]]], device=first.device)
        yield [layer[0] for layer in self.network.hidden(Inputs(inputs), state)[0]]

    @torch.no_grad()
    def token_log_probs(self, text: str, given: str = "") -> Iterator[Tensor]:
        for layers in self.token_layers(text, given):
            yield self.network.readout.log_probs(layers[-1]).float()

    # -------------------------------------------------------------------------------------------- generate

    def _preceding(self, ids: list[int]) -> list[int]:
        return []

    def _forbidden_ids(self) -> list[int]:
        forbidden = super()._forbidden_ids()
        return [id for id in forbidden if id != self._unknown] if self._copies else forbidden

    # -------------------------------------------------------------------------------------------- attention and copying

    @torch.no_grad()
    def alignment(self, text: str, source: str) -> Alignment:
        """The attention on the tokens of the source while this text is generated."""
        if not self.has_attention:
            raise self.unsupported("alignment")
        target_ids, source_ids = self._encode_sources([text, source])
        weights = self._attention(target_ids, source_ids)
        return Alignment(self._show(source_ids), self._show(target_ids), weights.double().cpu().numpy())

    def _attention(self, target: list[int], source: list[int]) -> Tensor:
        """(T, S): the attention on the source when each token of the target is generated."""
        first, state = self._read_prompts([source])
        inputs = torch.tensor([[int(first[0]), *target[:-1]]], device=first.device)
        weights: Tensor = self.network.attention(Inputs(inputs), state)[0]
        return weights

    def _show(self, ids: Sequence[int]) -> tuple[str, ...]:
        names = {id: name for name, id in self.tokenizer.special.items()} | {self.end: "⏎"}
        return tuple(names.get(id) or self.tokenizer.piece(id).decode("utf-8", "replace") for id in ids)

    @property
    def _copies(self) -> bool:
        """Whether source words replace unknown words."""
        return self.has_attention and self._unknown is not None

    def finish_piece(self, piece: Piece, ids: Sequence[int], prompt: str) -> Piece:
        # The rest is not known yet, so each unknown word costs a look at the attention of its own.
        return self._copy_words([piece], prompt, ids)[0] if self._copies and self._unknown in piece.ids else piece

    def _finish_pieces(self, pieces: list[Piece], prompt: str) -> list[Piece]:
        return self._copy_words(pieces, prompt) if self._copies else pieces

    @torch.no_grad()
    def _copy_words(self, pieces: list[Piece], source: str, ids: Sequence[int] | None = None) -> list[Piece]:
        """Replace unknown words by source words. `ids`: all tokens up to the last piece, if pieces are missing."""
        ids = list(ids or [id for piece in pieces for id in piece.ids])
        encoding = self.tokenizer.encode(source)
        if self._unknown not in ids or not len(encoding):
            return pieces
        weights = self._attention(ids, [*encoding.ids.tolist(), self.end])[:, : len(encoding)]
        most_attended = weights.argmax(1).tolist()
        copied, at = [], len(ids) - sum(len(piece.ids) for piece in pieces)
        for piece in pieces:
            at += len(piece.ids)
            if self._unknown in piece.ids:
                piece = replace(piece, text=self._copy_word(piece.text, encoding, most_attended[at - 1], source))
            copied.append(piece)
        return copied

    def _copy_word(self, text: str, encoding: Encoding, at: int, source: str) -> str:
        """The text of an unknown word, replaced by the source word that contains token `at`."""
        spans = encoding.spans[encoding.words == int(encoding.words[at])]
        word = source.encode()[int(spans[:, 0].min()) : int(spans[:, 1].max())].decode("utf-8", "replace").strip()
        name = self._unknown_name()
        return text.replace(name, word) if name in text else text + word

    def _unknown_name(self) -> str:
        return next(name for name, id in self.tokenizer.special.items() if id == self._unknown)

    # -------------------------------------------------------------------------------------------- infill

    @property
    def can_infill(self) -> bool:
        return self.fills_spans

    def count_blanks(self, text: str) -> int:
        return len(LINES.findall(text))

    def infill_many(
        self, texts: Sequence[str], decoding: Decoding = Greedy(), stop: Stop = Stop(), n: int = 1
    ) -> list[list[Filled]]:
        """At most `stop.max_tokens` tokens are generated per text, including sentinels and the end."""
        check_infilling(decoding, stop, n)
        split = [self._split_at_blanks(text) for text in texts]
        decoding = self._check_decoding(decoding)
        decoder = SentinelDecoder(self.network, self.sentinels, self.end, self._word_pieces)
        forbidden = [id for id in unwritable_ids(self.tokenizer, self.end) if id not in self.sentinels]
        sources = [self._encode_with_sentinels(parts) for parts in split]
        results: list[list[Filled]] = [[] for _ in texts]
        for group in self._group_by_length([len(source) + stop.max_tokens for source in sources]):
            after_letters = [[follows_letter(split[i][: k + 1]) for k in range(len(split[i]) - 1)] for i in group]
            start = decoder.begin(*self._read_prompts([sources[i] for i in group]), after_letters)
            fillings = generate_fillings(
                decoder,
                *start,
                decoding,
                stop.max_tokens,
                self.end,
                group,
                n,
                forbidden=forbidden,
                min_tokens=stop.min_tokens,
            )
            for i, best in zip(group, fillings, strict=True):
                results[i] = [self._insert_spans(split[i], hypothesis) for hypothesis in best]
        return results

    @torch.no_grad()
    def score_fillings(self, around: Sequence[tuple[str, str]], fillings: Sequence[str]) -> list[Score]:
        """−log p of each filling between the text before and the text after it, up to the sentinel that ends it."""
        self._refuse_sentinels([*fillings, *(text for both in around for text in both)])
        first, second = self.sentinels[:2]
        sources = [self._encode_with_sentinels(both) for both in around]
        spans = [encode_part(self.tokenizer, text, False) for text in fillings]
        nats = self._target_nats(sources, [[first, *ids, second] for ids in spans])
        sentinel_nats = self._target_nats(sources, [[first] for _ in spans])  # not part of the filling
        return [
            self._make_score(text, total - own, len(ids) + 1)
            for total, own, ids, text in zip(nats, sentinel_nats, spans, fillings, strict=True)
        ]

    @torch.no_grad()
    def filling_layers(self, text: str, filling: str) -> tuple[Encoding, list[Tensor]]:
        parts = self._split_at_blanks(text)
        if len(parts) != 2:
            raise invalid("text", text[:40], "must have one blank.")
        self._refuse_sentinels([filling])
        first, second = self.sentinels[:2]
        tokens = with_end(align_part(self.tokenizer, filling.strip(" ")), filling, second, stripped=True)
        last, state = self._read_prompts([self._encode_with_sentinels(parts)])
        inputs = torch.tensor([[int(last[0]), first, *tokens.ids[:-1].tolist()]], device=last.device)
        return tokens, [layer[0, 1:] for layer in self.network.hidden(Inputs(inputs), state)[0]]

    @cached_property
    def _word_pieces(self) -> WordPieces:
        return WordPieces(self.tokenizer)

    @property
    def sentinels(self) -> list[int]:
        return sentinels(self.tokenizer.special)

    def _split_at_blanks(self, text: str) -> list[str]:
        """The parts of a text around its blanks."""
        if not self.fills_spans:
            raise self.unsupported("infill")
        self._refuse_sentinels([text])
        parts = LINES.split(text)
        if len(parts) == 1:
            raise invalid("text", text[:40], f"has no blank. Write {BLANK} for what is missing.")
        if len(parts) - 1 > len(self.sentinels):
            problem = f"has {len(parts) - 1:,} blanks, but this model fills at most {len(self.sentinels):,} at once."
            raise invalid("text", text[:40], problem)
        return parts

    def _encode_with_sentinels(self, parts: Sequence[str]) -> list[int]:
        ids = encode_part(self.tokenizer, parts[0], first=True)
        for sentinel, part in zip(self.sentinels, parts[1:], strict=False):
            ids += [sentinel, *encode_part(self.tokenizer, part)]
        return [*ids, self.end]

    def _insert_spans(self, parts: Sequence[str], hypothesis: Hypothesis) -> Filled:
        spans = split_spans(hypothesis.ids, self.sentinels, self.end)
        blanks = [self.tokenizer.decode(span).strip() for span in spans]
        text = join_parts(parts, [*blanks, *[BLANK] * (len(parts) - 1 - len(blanks))])
        return Filled(
            text, tuple(blanks), hypothesis.log_prob, len(hypothesis.ids), hypothesis.score, hypothesis.complete
        )

    # -------------------------------------------------------------------------------------------- reading sources

    def num_overflowing(self, prompt: str) -> int:
        return 0

    def num_longer_than_training(self, sources: Sequence[str]) -> int:
        """How many sources are longer than any that the run was trained on; 0 if that is unknown."""
        if not self.training_length:
            return 0
        return sum(len(encoding) + 1 > self.training_length for encoding in self.tokenizer.encode_batch(list(sources)))

    def _encode_prompts(self, prompts: Sequence[str], overflow: str) -> list[list[int]]:
        self._check_prefixes(prompts)
        sources = self._encode_sources(prompts, overflow)
        for prompt, ids in zip(prompts, sources, strict=True):
            if overflow == "error" and 0 < self.training_length < len(ids):
                problem = f"has {len(ids):,} tokens, but this run was trained on at most {self.training_length:,}."
                raise invalid("prompt", prompt[:30], f"{problem} Shorten it, or set overflow = 'slide'.")
        return sources

    def _encode_sources(self, texts: Sequence[str], overflow: str = "slide") -> list[list[int]]:
        self._refuse_sentinels(texts)
        return [[*ids, self.end] for ids in super()._encode_prompts(texts, overflow)]

    def _refuse_sentinels(self, texts: Sequence[str]) -> None:
        for text in texts if self._has_sentinels else ():
            if SENTINEL in text:
                remedy = "Write ___ for what is missing." if self.fills_spans else "Remove it."
                raise invalid("text", text[:40], f"contains {SENTINEL}…>, the name of a special token. {remedy}")

    def _check_prefixes(self, prompts: Sequence[str]) -> None:
        """Raise an error for sources without a task prefix of the run."""
        for prompt in prompts if self.prefixes else ():
            if prompt.startswith(self.prefixes):
                continue
            known = ", ".join(f"'{prefix}'" for prefix in self.prefixes)
            raise invalid("prompt", prompt[:40], f"has no task prefix of this run. Begin it with {known} and a text.")

    @torch.no_grad()
    def _read_prompts(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
        ids, token_mask = self._pad(rows)
        first, state = self.network.start(len(rows), Inputs(ids, None if bool(token_mask.all()) else token_mask))
        return first, state

    def _pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        ids, token_mask = pad_rows([np.asarray(row, np.int64) for row in rows])
        return ids.to(self.device), token_mask.to(self.device)

    def _group_by_length(self, lengths: list[int]) -> Iterator[list[int]]:
        """Rows that are read together, the longest first."""
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        while order:
            rows = max(1, slice_tokens(BATCH_TOKENS) // lengths[order[0]])
            yield order[:rows]
            order = order[rows:]


def _read_training(name: str) -> tuple[int, tuple[str, ...], bool]:
    """Read from a run folder: tokens of its longest pairs, the prefixes of its tasks, and whether it last learned to
    fill blanks. Without a folder nothing is known; a converted run may have learned anything."""
    if not name or not (Path(name) / "recipe.toml").is_file():
        return 0, (), True
    run = RunFolder.open(name)
    phase = run.recipe.phases[-1]
    fills_blanks = not trains_on_pairs(phase.objective) or "converted" in run.manifest
    longest = phase.batches.get("length", 0) if phase.batches.get("kind") in ("sequences", "spans") else 0
    task_prefixes: tuple[str, ...] = ()
    try:
        if is_tasks(phase.data):
            task_prefixes, fills_blanks = list_prefixes(phase.data), fills_blanks or has_denoising(phase.data)
    except NextwordError:  # the file of tasks is gone
        pass
    return int(longest), task_prefixes, fills_blanks
