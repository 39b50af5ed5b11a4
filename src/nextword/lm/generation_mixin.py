"""Text generation: one prompt, streamed piece by piece, or many prompts as a batch.

    prompts ──encode──▶ ids ──read──▶ the next token to feed, and the state before it ──generation/──▶ ids ──▶ pieces

Rows of a batch do not influence each other. A network without a window, or whose window moves with every token, reads
prompts of equal length together, and their states are joined. A network with a sliding window (`prompt`) takes rows of
unequal length at once, as long as prompt and continuation fit into the window; rows that will outgrow it must be
equally long, because they move on together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from nextword.core import pytree
from nextword.core.errors import invalid
from nextword.core.protocols import Encoder
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import Beam, Contrastive, Decoding, Greedy, Inputs, Piece, Sample, State, Stop
from nextword.generation.beam_search import (
    BeamObserver,
    Hypothesis,
    beam_search_steps,
    exhaust,
    require_attention,
)
from nextword.generation.logits_processors import LogitsProcessor, check_decoding
from nextword.generation.sampling import (
    NO_TOKEN,
    BatchDecoder,
    TokenChooser,
    contrastive_search,
    make_generator,
    require_hidden_states,
    stream_tokens,
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
        return Generation(self.stream(self.begin(prompt, decoding, stop, overflow)))

    def generate_many(
        self, prompts: Sequence[str], decoding: Decoding = Greedy(), stop: Stop = Stop(), overflow: str = "slide"
    ) -> list[list[Piece]]:
        """The pieces of each prompt's continuation, as of `generate`; prompt i has the seed `decoding.seed` + i.

        The weights are read once for all rows. Contrastive search works prompt by prompt, because its candidates are a
        batch already.
        """
        self.require("generate")
        decoding = self._check_decoding(decoding)
        prompt_ids = self._encode_prompts(prompts, overflow)
        texts = [
            self._begin(prompt, ids, decoding, stop, row)
            for row, (prompt, ids) in enumerate(zip(prompts, prompt_ids, strict=True))
        ]
        if isinstance(decoding, Contrastive):
            pieces = [list(self._add_pieces(text, self._tokens(text))) for text in texts]
        elif isinstance(decoding, Beam):
            pieces = exhaust(self._search(texts))
        else:
            pieces = self._generate_rows(texts)
        return [self._finish_pieces(own, prompt) for own, prompt in zip(pieces, prompts, strict=True)]

    def _generate_rows(self, texts: Sequence[Continuation]) -> list[list[Piece]]:
        """The pieces of texts with equal settings, whose tokens are chosen one after the other."""
        pieces: list[list[Piece]] = [[] for _ in texts]
        for group in self._group_texts(texts):
            chooser = texts[group[0]].make_chooser()
            for i in group[1:]:
                chooser.join(texts[i].make_chooser())
            decoder = BatchDecoder(self.network, *self._read_prompts([texts[i].ids for i in group]), chooser)
            while group:
                for i, (id, log_prob) in zip(group, decoder.step(), strict=True):
                    pieces[i].append(texts[i].add(id, log_prob))
                active = [row for row, i in enumerate(group) if not texts[i].reason]
                decoder.keep(active)
                group = [group[row] for row in active]
                end_slice()
        return pieces

    def n_best_many(
        self,
        prompts: Sequence[str],
        decoding: Beam = Beam(),
        stop: Stop = Stop(),
        n: int | None = None,
        overflow: str = "slide",
        observer: BeamObserver | None = None,
    ) -> list[list[Candidate]]:
        """The n best continuations of each prompt (default: the beam's width), best first.

        An `observer` sees every step of the search; searches are numbered within a batch, so give it one prompt.
        """
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
            for i, best in zip(group, self._find_hypotheses(rows, beam, stop, n, observer), strict=True):
                candidates[i] = [
                    self._make_candidate(prompts[i], prompt_ids[i], hypothesis, stop) for hypothesis in best
                ]
        return candidates

    def num_overflowing(self, prompt: str) -> int:
        """How many tokens of a prompt have left the window when the first token is generated; 0: it fits.

        Always 0 without a window, and for n-gram models, which forget a token with every token.
        """
        return self._overflow(len(self.tokenizer.encode(prompt)))

    # -------------------------------------------------------------------------------------------- texts in progress

    def begin(
        self,
        prompt: str | Sequence[int] = "",
        decoding: Decoding = Greedy(),
        stop: Stop = Stop(),
        overflow: str = "slide",
    ) -> Continuation:
        """A text that continues a prompt, of which nothing is generated yet. The prompt is a text, or its ids.

        Whoever advances texts step by step, as a server does, gets what `generate` returns. The methods below do so.
        """
        self.require("generate")
        decoding = self._check_decoding(decoding)
        if isinstance(prompt, str):
            return self._begin(prompt, self._encode_prompts([prompt], overflow)[0], decoding, stop)
        if self.is_seq2seq:
            raise invalid("prompt", tuple(prompt[:8]), "must be a text for a sequence-to-sequence model.")
        ids = list(prompt)
        if ids and not 0 <= min(ids) <= max(ids) < len(self.tokenizer):
            raise invalid("prompt", tuple(ids[:8]), f"must consist of ids from 0 to {len(self.tokenizer) - 1}.")
        self._check_overflow(ids, overflow, f"{ids[:8]}")
        return self._begin("", ids, decoding, stop)

    def read(self, texts: Sequence[Continuation]) -> tuple[Tensor, State]:
        """Read the prompts of texts that `group_texts` put together: the tokens to feed next (B,), and the state."""
        return self._read_prompts([text.ids for text in texts])

    def group_texts(self, texts: Sequence[Continuation]) -> list[list[Continuation]]:
        """Texts that can be generated side by side, in groups."""
        return [[texts[i] for i in group] for group in self._group_texts(texts)]

    @torch.no_grad()
    def read_chunk(self, last: Tensor, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Read more of prompts (B, T): from the tokens to feed next, and the state before them, to those after it."""
        network, is_encoder = self.network, isinstance(self.network, Encoder)
        chunk = torch.cat([last.unsqueeze(1), ids], 1)
        if is_encoder:  # without computing probabilities that nobody needs
            # `encode` of a bidirectional network would also read what is to come
            read = network.hidden if network.is_bidirectional else network.encode
            _, state = read(Inputs(chunk[:, :-1]), state)
        else:
            lengths = torch.full((len(chunk),), chunk.shape[1], device=chunk.device)
            _, state = network.score(chunk, lengths, state)
        return chunk[:, -1], state

    def stream(self, text: Continuation) -> Iterator[Piece]:
        """Generate a text piece by piece."""
        ids: list[int] = []
        for piece in self._add_pieces(text, self._tokens(text)):
            ids += piece.ids
            yield self.finish_piece(piece, ids, text.prompt)

    def search(self, texts: Sequence[Continuation]) -> Generator[None, None, list[list[Piece]]]:
        """Beam search for texts with equal settings, pausing between steps; it returns the pieces of each text."""
        pieces = yield from self._search(texts)
        return [self._finish_pieces(own, text.prompt) for own, text in zip(pieces, texts, strict=True)]

    def finish_piece(self, piece: Piece, ids: Sequence[int], prompt: str) -> Piece:
        """The piece as it is shown; `ids` are all generated so far, its own included."""
        return piece

    # -------------------------------------------------------------------------------------------- decoding

    def _begin(self, prompt: str, ids: list[int], decoding: Decoding, stop: Stop, row: int = 0) -> Continuation:
        forbidden = self._forbidden_ids()
        return Continuation(self.tokenizer, prompt, ids, self._preceding(ids), decoding, stop, forbidden, self.end, row)

    def _add_pieces(self, text: Continuation, tokens: Iterator[tuple[int, float]]) -> Iterator[Piece]:
        while not text.reason:
            yield text.add(*next(tokens, (NO_TOKEN, 0.0)))

    def _tokens(self, text: Continuation) -> Iterator[tuple[int, float]]:
        """The ids and log probabilities of a text."""
        if isinstance(text.decoding, Beam):
            hypotheses = exhaust(self._hypotheses_in_steps([text.ids], text.decoding, text.stop, 1))[0]
            yield from zip(hypotheses[0].ids, hypotheses[0].log_probs, strict=True)
        elif isinstance(text.decoding, Contrastive):
            last, state, memory = self._read_with_memory(text.ids)
            yield from contrastive_search(
                self.network,
                last,
                state,
                text.decoding,
                before=memory,
                preceding=text.preceding,
                forbidden=text.forbidden,
                end=self.end,
                min_tokens=text.min_tokens,
            )
        else:
            yield from stream_tokens(BatchDecoder(self.network, *self.read([text]), text.make_chooser()))

    def _search(self, texts: Sequence[Continuation]) -> Generator[None, None, list[list[Piece]]]:
        """The pieces of each text's best continuation, before they are finished."""
        pieces: list[list[Piece]] = [[] for _ in texts]
        for group in self._group_texts(texts):
            rows, first = [texts[i].ids for i in group], texts[group[0]]
            assert isinstance(first.decoding, Beam)
            best = yield from self._hypotheses_in_steps(rows, first.decoding, first.stop, 1)
            for i, (hypothesis, *_) in zip(group, best, strict=True):
                tokens = zip(hypothesis.ids, hypothesis.log_probs, strict=True)
                pieces[i] = list(self._add_pieces(texts[i], tokens))
        return pieces

    def _group_texts(self, texts: Sequence[Continuation]) -> Iterator[list[int]]:
        """The indices of texts that are generated together, without those that are over."""
        numbers = [i for i, text in enumerate(texts) if not text.reason]
        longest = max((texts[i].stop.max_tokens for i in numbers), default=0)
        for group in self._group_rows([len(texts[i].ids) for i in numbers], longest):
            yield [numbers[i] for i in group]

    def _find_hypotheses(
        self, rows: list[list[int]], decoding: Beam, stop: Stop, n: int, observer: BeamObserver | None = None
    ) -> list[list[Hypothesis]]:
        """The n best continuations of each row."""
        return exhaust(self._hypotheses_in_steps(rows, decoding, stop, n, observer))

    def _hypotheses_in_steps(
        self, rows: list[list[int]], decoding: Beam, stop: Stop, n: int, observer: BeamObserver | None = None
    ) -> Generator[None, None, list[list[Hypothesis]]]:
        last, state = self._read_prompts(rows)
        return beam_search_steps(
            self.network,
            last,
            state,
            decoding,
            stop.max_tokens,
            self.end if stop.at_end else None,
            n=n,
            preceding=list(map(self._preceding, rows)),
            forbidden=self._forbidden_ids(),
            min_tokens=min_tokens(stop),
            observer=observer,
        )

    def _make_candidate(self, prompt: str, prompt_ids: list[int], hypothesis: Hypothesis, stop: Stop) -> Candidate:
        """A hypothesis as text; a stop string may end it before its last token."""
        text = self._begin(prompt, prompt_ids, Greedy(), stop)
        pieces = list(self._add_pieces(text, zip(hypothesis.ids, hypothesis.log_probs, strict=True)))
        text_out = "".join(piece.text for piece in self._finish_pieces(pieces, prompt))
        return Candidate(
            text_out.lstrip() if self.is_seq2seq else text_out,
            hypothesis.score,
            sum(piece.log_prob for piece in pieces),
            tuple(id for piece in pieces for id in piece.ids),
            hypothesis.complete or text.reason == "stop",
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
            self._check_overflow(ids, overflow, prompt[:30])
        return prompt_ids

    def _check_overflow(self, ids: Sequence[int], overflow: str, shown: str) -> None:
        if overflow not in OVERFLOW:
            raise invalid("overflow", overflow, f"must be {' or '.join(OVERFLOW)}.")
        if overflow == "error" and self._overflow(len(ids)):
            problem = f"has {len(ids):,} tokens, but the window has room for {self.network.window - 1:,}."
            raise invalid("prompt", shown, f"{problem} Shorten it, or use overflow = 'slide'.")

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
                rows = max(1, slice_tokens(BATCH_TOKENS) // (lengths[group[0]] + length + 1))
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
        last, state = self.network.start(len(rows))
        ids = torch.tensor(rows, dtype=torch.long, device=last.device).view(len(rows), -1)
        for at in range(0, ids.shape[1], self.network.chunk):
            last, state = self.read_chunk(last, ids[:, at : at + self.network.chunk], state)
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


def min_tokens(stop: Stop) -> int:
    """Tokens before the end token is allowed; it always is if it does not end the text."""
    return stop.min_tokens if stop.at_end else 0


class Continuation:
    """One text that is generated: its prompt, its settings, and from ids to pieces, until it is time to stop.

    text = lm.begin("The cat", Sample(seed=1))
    last, state = lm.read([text])                        then, until there is a `text.reason`:
    log_probs, state = lm.network.step(last, state)
    last, [(id, log_prob)] = chooser.choose(log_probs)   chooser = text.make_chooser()
    piece = text.add(id, log_prob)
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: str,
        ids: list[int],  # of the prompt
        preceding: Sequence[int],  # those that count as generated before
        decoding: Decoding,
        stop: Stop,
        forbidden: Sequence[int],
        end: int | None,
        row: int = 0,  # added to the seed
    ) -> None:
        self.prompt, self.ids, self.preceding, self.decoding, self.stop = prompt, ids, preceding, decoding, stop
        self.forbidden, self.end, self.row, self.min_tokens = forbidden, end, row, min_tokens(stop)
        self._stopper, self._decoder = Stopper(stop), Decoder(tokenizer, after=preceding)

    @property
    def reason(self) -> str | None:
        """Why the text is over: "length", "end" or "stop"; None: it is not."""
        return self._stopper.reason

    def make_chooser(self) -> TokenChooser:
        """What chooses the tokens of this text, greedily or by sampling."""
        assert isinstance(self.decoding, (Greedy, Sample))
        rules = LogitsProcessor(self.decoding, [self.preceding], self.forbidden, self.end, self.min_tokens)
        return TokenChooser(self.decoding, rules, [make_generator(self.decoding, self.row)])

    def add(self, id: int, log_prob: float) -> Piece:
        """The piece that one more token makes. NO_TOKEN: the rules allow no further token, so the text ends."""
        if id == NO_TOKEN:  # an unfinished character is dropped
            return Piece(self._stopper.close(), (), 0.0, self.reason)
        is_end = id == self.end
        text = self._stopper.feed("" if is_end else self._decoder.push(id), ended=is_end)
        return Piece(text, (id,), log_prob, self.reason)
