"""Text generation: one prompt, streamed piece by piece, or many prompts as a batch.

    prompts ──encode──▶ ids ──read──▶ the next token to feed, and the state before it ──generation/──▶ ids ──▶ pieces

Rows of a batch do not influence each other. A network without a window, or whose window moves with every token, reads
prompts of equal length together, and their states are joined. A network with a sliding window (`prompt`) takes rows of
unequal length at once, as long as prompt and continuation fit into the window; rows that will outgrow it must be
equally long, because they move on together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from nextword.core import pytree
from nextword.core.errors import invalid
from nextword.core.protocols import Encoder
from nextword.core.types import Beam, Contrastive, Decoding, Greedy, Inputs, Piece, State, Stop
from nextword.generation.beam_search import Hypothesis, beam_search, require_attention
from nextword.generation.logits_processors import LogitsProcessor, check_decoding
from nextword.generation.sampling import (
    NO_TOKEN,
    BatchDecoder,
    contrastive_search,
    generate_tokens,
    make_generator,
    require_hidden_states,
    vectors,
)
from nextword.generation.stopping import Stopper
from nextword.lm.base import Candidate, Generation, TextModel
from nextword.tokenizers.base import Decoder, Tokenizer

BATCH_TOKENS = 8192  # tokens of prompts and continuations in one batch
OVERFLOW = ("slide", "error")


class GenerationMixin(TextModel):
    """The methods of a text-level model that generate."""

    @property
    def end(self) -> int | None:
        """The token that ends a generated text."""
        return self.tokenizer.end

    def generate(
        self, prompt: str = "", decoding: Decoding = Greedy(), stop: Stop = Stop(), overflow: str = "slide"
    ) -> Generation:
        """Continue the prompt, which is not repeated.

            lm.generate("The cat", nextword.Sample(temperature=0.8), nextword.Stop(max_tokens=40)).text
            for piece in lm.generate("The cat"):
                print(piece.text, end="")

        decoding   Greedy, Sample, Beam or Contrastive; beam search yields all of the text at the end
        stop       when to stop: Stop(max_tokens=100, strings=())
        overflow   what to do with a prompt that is longer than the window: "slide" reads all of it, as scoring does,
                   and continues from its last part; "error" refuses it
        """
        self.require("generate")
        decoding = self._check_decoding(decoding)
        text = _TextBuilder(self.tokenizer, stop, self.end)
        ids = self._encode_prompts([prompt], overflow)[0]
        return Generation(self._finish_stream(self._stream(ids, decoding, text), prompt))

    def generate_many(
        self, prompts: Sequence[str], decoding: Decoding = Greedy(), stop: Stop = Stop(), overflow: str = "slide"
    ) -> list[list[Piece]]:
        """The pieces of each prompt's continuation, as of `generate`; prompt i has the seed `decoding.seed` + i.

        The weights are read once for all rows. Contrastive search works prompt by prompt, because its candidates are a
        batch already.
        """
        self.require("generate")
        decoding = self._check_decoding(decoding)
        texts = [_TextBuilder(self.tokenizer, stop, self.end) for _ in prompts]
        prompt_ids = self._encode_prompts(prompts, overflow)
        pieces: list[list[Piece]] = [[] for _ in prompts]
        if isinstance(decoding, Contrastive):
            pieces = [list(self._stream(ids, decoding, text)) for ids, text in zip(prompt_ids, texts, strict=True)]
            return [self._finish_pieces(own, prompt) for own, prompt in zip(pieces, prompts, strict=True)]
        for text, ids in zip(texts, prompt_ids, strict=True):
            text.start_after(self._preceding(ids))
        for group in self._group_rows([len(ids) for ids in prompt_ids], stop.max_tokens) if stop.max_tokens else ():
            rows = [prompt_ids[i] for i in group]
            if isinstance(decoding, Beam):
                for i, best in zip(group, self._beam_search(rows, decoding, stop), strict=True):
                    while not texts[i].stopper.reason:
                        pieces[i].append(texts[i].add(*next(best, (NO_TOKEN, 0.0))))
                continue
            rules = LogitsProcessor(
                decoding,
                list(map(self._preceding, rows)),
                self._forbidden_ids(),
                end=self.end,
                min_tokens=_min_tokens(stop),
            )
            generators = [make_generator(decoding, i) for i in group]
            decoder = BatchDecoder(self.network, *self._read_prompts(rows), decoding, rules, generators)
            while group:
                for i, (id, log_prob) in zip(group, decoder.step(), strict=True):
                    pieces[i].append(texts[i].add(id, log_prob))
                active = [row for row, i in enumerate(group) if not texts[i].stopper.reason]
                decoder.keep(active)
                group = [group[row] for row in active]
        return [self._finish_pieces(own, prompt) for own, prompt in zip(pieces, prompts, strict=True)]

    def n_best_many(
        self,
        prompts: Sequence[str],
        decoding: Beam = Beam(),
        stop: Stop = Stop(),
        n: int | None = None,
        overflow: str = "slide",
    ) -> list[list[Candidate]]:
        """The n best continuations of each prompt (default: the beam's width), best first."""
        self.require("generate")
        if not isinstance(decoding, Beam):
            raise invalid("decoding", decoding, "must be a Beam: n_best needs beam search.")
        beam = self._check_decoding(decoding)
        assert isinstance(beam, Beam)
        n = decoding.width if n is None else n
        if not 1 <= n <= decoding.width:
            raise invalid("n", n, f"must be from 1 to the width of the beam, {decoding.width}.")
        Stopper(stop)  # raises an error if the limits are impossible
        prompt_ids = self._encode_prompts(prompts, overflow)
        candidates: list[list[Candidate]] = [[] for _ in prompts]
        for group in self._group_rows([len(ids) for ids in prompt_ids], stop.max_tokens):
            rows = [prompt_ids[i] for i in group]
            for i, best in zip(group, self._find_hypotheses(rows, beam, stop, n), strict=True):
                candidates[i] = [
                    self._make_candidate(prompts[i], prompt_ids[i], hypothesis, stop) for hypothesis in best
                ]
        return candidates

    def num_overflowing(self, prompt: str) -> int:
        """How many tokens of a prompt have left the window when the first token is generated; 0: it fits.

        Always 0 without a window, and for n-gram models, which forget a token with every token.
        """
        return self._overflow(len(self.tokenizer.encode(prompt)))

    # -------------------------------------------------------------------------------------------- decoding

    def _stream(self, ids: list[int], decoding: Decoding, text: _TextBuilder) -> Iterator[Piece]:
        preceding = self._preceding(ids)
        text.start_after(preceding)
        tokens: Iterator[tuple[int, float]]
        forbidden, min_tokens = self._forbidden_ids(), _min_tokens(text.stopper.stop)
        if isinstance(decoding, Beam):
            tokens = self._beam_search([ids], decoding, text.stopper.stop)[0]
        elif isinstance(decoding, Contrastive):
            last, state, memory = self._read_with_memory(ids)
            tokens = contrastive_search(
                self.network,
                last,
                state,
                decoding,
                before=memory,
                preceding=preceding,
                forbidden=forbidden,
                end=self.end,
                min_tokens=min_tokens,
            )
        else:
            last, state = self._read_prompts([ids])
            tokens = generate_tokens(
                self.network,
                last,
                state,
                decoding,
                preceding=preceding,
                forbidden=forbidden,
                end=self.end,
                min_tokens=min_tokens,
            )
        while not text.stopper.reason:
            yield text.add(*next(tokens, (NO_TOKEN, 0.0)))

    def _beam_search(self, rows: list[list[int]], decoding: Beam, stop: Stop) -> list[Iterator[tuple[int, float]]]:
        """The ids and log probabilities of each row's best continuation."""
        best = [hypotheses[0] for hypotheses in self._find_hypotheses(rows, decoding, stop, 1)]
        return [zip(hypothesis.ids, hypothesis.log_probs, strict=True) for hypothesis in best]

    def _find_hypotheses(self, rows: list[list[int]], decoding: Beam, stop: Stop, n: int) -> list[list[Hypothesis]]:
        """The n best continuations of each row."""
        last, state = self._read_prompts(rows)
        return beam_search(
            self.network,
            last,
            state,
            decoding,
            stop.max_tokens,
            self.end if stop.at_end else None,
            n=n,
            preceding=list(map(self._preceding, rows)),
            forbidden=self._forbidden_ids(),
            min_tokens=_min_tokens(stop),
        )

    def _make_candidate(self, prompt: str, prompt_ids: list[int], hypothesis: Hypothesis, stop: Stop) -> Candidate:
        """A hypothesis as text; a stop string may end it before its last token."""
        text = _TextBuilder(self.tokenizer, stop, self.end)
        text.start_after(self._preceding(prompt_ids))
        tokens, pieces = zip(hypothesis.ids, hypothesis.log_probs, strict=True), []
        while not text.stopper.reason:
            pieces.append(text.add(*next(tokens, (NO_TOKEN, 0.0))))
        text_out = "".join(piece.text for piece in self._finish_pieces(pieces, prompt))
        return Candidate(
            text_out.lstrip() if self.is_seq2seq else text_out,
            hypothesis.score,
            sum(piece.log_prob for piece in pieces),
            tuple(id for piece in pieces for id in piece.ids),
            hypothesis.complete or text.stopper.reason == "stop",
        )

    # -------------------------------------------------------------------------------------------- settings

    def _check_decoding(self, decoding: Decoding) -> Decoding:
        """Raise an error if the settings are impossible for this model; replace biases on texts by biases on ids."""
        check_decoding(decoding)
        if isinstance(decoding, Contrastive):
            require_hidden_states(self.network)
        if isinstance(decoding, Beam):
            require_attention(self.network, decoding)
        if not decoding.bias:
            return decoding
        bias: dict[int | str, float] = {}
        for token, value in decoding.bias.items():
            id = token if isinstance(token, int) else self._find_id(token)
            if not 0 <= id < len(self.tokenizer):
                raise invalid("bias", id, f"must be an id from 0 to {len(self.tokenizer) - 1}.")
            if id in bias:
                raise invalid("bias", token, f"(token {id}) has two biases. Give one.")
            bias[id] = value
        return replace(decoding, bias=bias)

    def _find_id(self, token: str) -> int:
        if token in self.tokenizer.special:
            return self.tokenizer.special[token]
        ids: list[int] = self.tokenizer.encode(token).ids.tolist()
        if len(ids) != 1:
            parts = ", ".join(f"{self.tokenizer.piece(id).decode('utf-8', 'replace')!r} ({id})" for id in ids[:8])
            spelled = f"{len(ids)} tokens{': ' + parts if parts else ''}"
            raise invalid("bias", token, f"must be one token, with the space before it, or an id. It is {spelled}.")
        return ids[0]

    def _finish_stream(self, pieces: Iterator[Piece], prompt: str) -> Iterator[Piece]:
        """Change the pieces of a generated text, one at a time."""
        return pieces

    def _finish_pieces(self, pieces: list[Piece], prompt: str) -> list[Piece]:
        """Change the pieces of a generated text, when all of them are known."""
        return pieces

    def _preceding(self, ids: list[int]) -> list[int]:
        """What precedes the generated text, for repetition rules and for decoding: the prompt."""
        return ids

    def _forbidden_ids(self) -> list[int]:
        """Special tokens without text, except the end; and unknown words."""
        special, end = self.tokenizer.special, self.end
        empty = [id for id in special.values() if id != end and not self.tokenizer.piece(id)]
        return empty + [id for name, id in special.items() if "unk" in name.lower()]

    # -------------------------------------------------------------------------------------------- reading prompts

    def _encode_prompts(self, prompts: Sequence[str], overflow: str) -> list[list[int]]:
        if overflow not in OVERFLOW:
            raise invalid("overflow", overflow, f"must be {' or '.join(OVERFLOW)}.")
        prompt_ids = [encoding.ids.tolist() for encoding in self.tokenizer.encode_batch(list(prompts))]
        for prompt, ids in zip(prompts, prompt_ids, strict=True):
            if overflow == "error" and self._overflow(len(ids)):
                problem = f"has {len(ids):,} tokens, but the window has room for {self.network.window - 1:,}."
                raise invalid("prompt", prompt[:30], f"{problem} Shorten it, or use overflow = 'slide'.")
        return prompt_ids

    def _overflow(self, length: int) -> int:
        if not self.network.has_sliding_window:
            return 0
        window, stride = self.network.window, self.network.stride
        moves = max(0, -(-(length + 1 - window) // stride))  # + 1: the begin token is read, too
        return min(length, max(0, moves * stride - 1)) if moves else 0

    def _group_rows(self, lengths: list[int], length: int) -> Iterator[list[int]]:
        """Rows that are generated together, the longest prompts first."""
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        groups = [order]
        if self.network.has_sliding_window:
            fitting = {i for i in order if lengths[i] + length <= self.network.window}
            equally_long = groupby((i for i in order if i not in fitting), key=lambda i: lengths[i])
            groups = [list(rows) for _, rows in equally_long] + [[i for i in order if i in fitting]]
        for group in groups:
            while group:
                rows = max(1, BATCH_TOKENS // (lengths[group[0]] + length + 1))
                yield group[:rows]
                group = group[rows:]

    @torch.no_grad()
    def _read_prompts(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
        """The tokens to feed next (B,), and the state before them, after rows of any lengths."""
        lengths = [len(ids) for ids in rows]
        if self.network.has_sliding_window and len(set(lengths)) > 1:
            first, _ = self.network.start(len(rows))
            padded = np.zeros((len(rows), max(lengths) + 1), dtype=np.int64)
            padded[:, 0] = first.cpu()
            for row, ids in enumerate(rows):
                padded[row, 1 : len(ids) + 1] = ids
            tokens = torch.from_numpy(padded).to(first.device)
            last = torch.tensor(lengths, device=first.device)
            return tokens.gather(1, last.unsqueeze(1)).squeeze(1), self.network.prompt(tokens[:, :-1], last)
        parts, order = [], []
        for _, group in groupby(sorted(range(len(rows)), key=lengths.__getitem__), key=lengths.__getitem__):
            equally_long = list(group)
            order += equally_long
            parts.append(self._read_equally_long([rows[i] for i in equally_long]))
        if len(parts) == 1:
            return parts[0]
        back = torch.tensor(np.argsort(order), device=parts[0][0].device)
        state = self.network.join([state for _, state in parts])
        return torch.cat([last for last, _ in parts])[back], pytree.take(state, back)

    def _read_equally_long(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
        network, is_encoder = self.network, isinstance(self.network, Encoder)
        last, state = network.start(len(rows))
        ids = torch.tensor(rows, dtype=torch.long, device=last.device).view(len(rows), -1)
        for at in range(0, ids.shape[1], network.chunk):
            chunk = torch.cat([last.unsqueeze(1), ids[:, at : at + network.chunk]], 1)
            if is_encoder:  # without computing probabilities that nobody needs
                # `encode` of a bidirectional network would also read what is to come
                read = network.hidden if network.is_bidirectional else network.encode
                _, state = read(Inputs(chunk[:, :-1]), state)
            else:
                lengths = torch.full((len(rows),), chunk.shape[1], device=chunk.device)
                _, state = network.score(chunk, lengths, state)
            last = chunk[:, -1]
        return last, state

    @torch.no_grad()
    def _read_with_memory(self, ids: Sequence[int]) -> tuple[Tensor, State, Tensor | None]:
        """The token to feed next, the state before it, and the vectors (N, D) of everything read."""
        last, state = self.network.start(1)
        row = torch.cat([last, torch.tensor(ids, dtype=torch.long, device=last.device)])
        memory = []
        for part in row[:-1].split(self.network.chunk) if len(ids) else ():
            layers, state = self.network.hidden(Inputs(part.unsqueeze(0)), state)
            memory.append(vectors(self.network, layers[-1][0]))
        return row[-1:], state, torch.cat(memory) if memory else None


def _min_tokens(stop: Stop) -> int:
    """Tokens before the end token is allowed; it always is if it does not end the text."""
    return stop.min_tokens if stop.at_end else 0


class _TextBuilder:
    """One generated text: from ids to pieces of text, until it is time to stop."""

    def __init__(self, tokenizer: Tokenizer, stop: Stop, end: int | None) -> None:
        self.tokenizer, self.stopper, self.end = tokenizer, Stopper(stop), end
        self.decoder = Decoder(tokenizer)

    def start_after(self, ids: Sequence[int]) -> None:
        self.decoder = Decoder(self.tokenizer, after=ids)

    def add(self, id: int, log_prob: float) -> Piece:
        """The piece that one more token makes. NO_TOKEN: the rules allow no further token, so the text ends."""
        if id == NO_TOKEN:  # an unfinished character is dropped
            return Piece(self.stopper.close(), (), 0.0, self.stopper.reason)
        is_end = id == self.end
        text = self.stopper.feed("" if is_end else self.decoder.push(id), ended=is_end)
        return Piece(text, (id,), log_prob, self.stopper.reason)
