"""Fill blanks in a text, with three kinds of networks.

1. texts with blanks      split, encode and join them
2. masked networks        whole words for one blank, from a network that predicts single masked tokens (BERT)
3. span networks          a piece of any length for each blank, written after the text (GLM)
4. sequence-to-sequence   all blanks in one target, separated by sentinels (T5)
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from nextword.core import pytree
from nextword.core.errors import Unsupported, invalid
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import IGNORE, Beam, Contrastive, Decoding, Encoding, Inputs, State, Stop, Vocabulary
from nextword.generation.beam_search import BeamModel, Hypothesis, beam_search
from nextword.generation.sampling import generate_batch, make_generator
from nextword.generation.whole_words import MARKS, WORD, continues_word, read_word
from nextword.layers.output.base import Readout
from nextword.models.base import CausalNetwork
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.special_tokens import PieceMarks

# ------------------------------------------------------------------------------------------------ texts with blanks

# A blank is one or more words of its own, whether there are spaces around it or not.
#
#     The ___ sat on the ___.          parts  "The ", " sat on the ", "."          filled  The cat sat on the mat.

BLANK = "___"
LINES = re.compile("_{3,}")  # a blank of any length


@dataclass(frozen=True)
class Filled:
    """A text with its blanks filled, as far as the length allowed."""

    text: str
    blanks: tuple[str, ...]  # the fillings that were reached
    log_prob: float  # the model's own, of the pieces and their end tokens
    tokens: int
    score: float  # of the beam
    complete: bool  # every piece ended


def check_infilling(decoding: Decoding, stop: Stop, n: int) -> None:
    """Raise InvalidSetting for settings without a meaning in infilling."""
    most = decoding.width if isinstance(decoding, Beam) else 1
    if not 1 <= n <= most:
        raise invalid("n", n, f"must be from 1 to {most}: the n best need a beam of at least that width.")
    if stop.strings:
        raise invalid("strings", stop.strings, "has no meaning in infilling, where the model ends each blank.")


def encode_part(tokenizer: Tokenizer, text: str, first: bool = False) -> list[int]:
    """The ids of a part of a text: before a blank or, if it is not the first part, after one."""
    ids: list[int] = align_part(tokenizer, text, first).ids.tolist()
    return ids


def align_part(tokenizer: Tokenizer, text: str, first: bool = False) -> Encoding:
    """The ids of a part of a text, and their byte spans within the part.

    A part after a blank is encoded as after a word: with a letter before it, whose ids are then dropped. A word right
    after the blank is a word of its own.
    """
    text = text.rstrip(" ")
    if first or not text:
        return tokenizer.encode(text)
    added = int(text[0].isalnum())  # a space
    text = " " * added + text
    encoding, offset = tokenizer.encode("a" + text), 1 + added
    is_part = encoding.spans[:, 1] > 1  # the letter may be several tokens, the last of which have no length
    if (encoding.spans[is_part, 0] < 1).any():  # a token spans the letter and the part
        encoding, offset = tokenizer.encode(text), added
        is_part = np.ones(len(encoding), bool)
    spans = (encoding.spans[is_part] - offset).clip(0)
    return Encoding(encoding.ids[is_part], spans, encoding.words[is_part])


def with_end(encoding: Encoding, text: str, end: int, stripped: bool = False) -> Encoding:
    """The tokens of a text, and after them the one that ends it, which has no bytes.

    `stripped`: the spaces before the text were not encoded.
    """
    offset, last = len(text) - len(text.lstrip(" ")) if stripped else 0, len(text.encode())
    word = int(encoding.words[-1]) if len(encoding) else 0
    return Encoding(
        np.append(encoding.ids, end),
        np.concatenate([encoding.spans.reshape(-1, 2) + offset, [[last, last]]]),
        np.append(encoding.words, word),
    )


def join_parts(parts: Sequence[str], blanks: Sequence[str]) -> str:
    """Join the parts of a text with fillings between them."""
    return parts[0] + "".join(blank + part for blank, part in zip(blanks, parts[1:], strict=True))


def follows_letter(parts: Sequence[str]) -> bool:
    """Whether a letter precedes the blank after these parts: of the text, or of the filling of another blank."""
    return parts[-1].rstrip(" ")[-1:].isalnum() or (len(parts) > 1 and not parts[-1].strip())


# ------------------------------------------------------------------------------------------------ masked networks

#     The [?] sat on the mat            one masked token: every word of one piece, and its probability, at once
#     The [?] [?] sat on the mat        two: the first piece, then, with that one in its place, the second
#     The [?] [?] [?] sat on the mat    three
#
# The number of masked tokens is fixed, and the network gives no probability to it. So that is estimated from text: the
# shares of words with one, two and three pieces among those around the blank and `EXPECTED` others.
#
#     P(word) = Σ over the ways to spell it in n ≤ 3 pieces   P(n) · Π_i P(piece i | the context, pieces before i)
#
# Pieces are followed from left to right, the `width` most probable of them. What falls off, and words of more pieces,
# are missing: the probabilities are lower bounds and add up to at most one. For what a word is, see whole_words.py.

HIDDEN = -1  # in a row of ids: a masked token
MOST = 3  # pieces of a word
EXPECTED = (8.0, 1.5, 0.5)  # words of one, two and three pieces, of ten in English with a vocabulary of 30,000

Guess = Callable[[np.ndarray], Tensor]  # rows of ids (B, T), equally many HIDDEN in each → their log p (B, hidden, V)


class WordPieces:
    """What each id can be in a word; build it once for a tokenizer. Special ids are never part of a word."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.bytes = [tokenizer.piece(id) for id in range(len(tokenizer))]
        for id in tokenizer.special.values():
            self.bytes[id] = b""
        places = [read_word(piece)[1] if read_word(piece)[0].strip() == piece.strip() else 0 for piece in self.bytes]
        spaced = torch.tensor([piece[:1].isspace() for piece in self.bytes])
        letters = torch.tensor([place == WORD for place in places])
        marks = torch.tensor([place == MARKS for place in places])
        self.inner = torch.tensor(
            [continues_word(piece) and read_word(b"a" + piece) == (b"a" + piece, WORD) for piece in self.bytes]
        )
        # WordPiece drops spaces and marks pieces that continue a word; such a piece cannot begin a word or stand alone.
        is_wordpiece = tokenizer.kind == "wordpiece"
        self.begins = letters & spaced  # a word after another
        self.bare = letters & ~spaced & (not is_wordpiece)  # a word right after punctuation, or at the very start
        self.marks = marks & (spaced | (not is_wordpiece))
        self.most = 1 if tokenizer.kind == "words" else MOST

    def shares(self, *texts: Sequence[int]) -> list[float]:
        """P(n): the share of words with n pieces, among those in these texts and the expected ones."""
        counts = list(EXPECTED[: self.most])
        begins, inner, bare = (flags.numpy() for flags in (self.begins, self.inner, self.bare))
        for ids in texts:
            length = 0
            for id in [*ids, HIDDEN]:  # ends the last word
                if id >= 0 and length and inner[id]:
                    length += 1
                    continue
                if 0 < length <= self.most:
                    counts[length - 1] += 1
                length = int(id >= 0 and (begins[id] or bare[id]))
        return [count / sum(counts) for count in counts]


class _Prefix(NamedTuple):
    ids: tuple[int, ...]
    probability: float


@torch.no_grad()
def likeliest_words(
    guess: Guess,
    left: Sequence[int],
    right: Sequence[int],
    pieces: WordPieces,
    k: int = 10,
    *,
    bare: bool = False,
    width: int | None = None,
) -> list[tuple[str, float]]:
    """The k most probable words between two rows of ids, with their probabilities, best first; may be fewer.

    `bare`: the word may begin without a space, because nothing or punctuation precedes it. Other blanks in `left` and
    `right` are HIDDEN. `width`: beginnings of words that are followed at once.
    """
    words: dict[str, float] = defaultdict(float)
    width = width or min(max(16, 2 * k), 64)
    first = pieces.begins | pieces.bare if bare else pieces.begins
    blank = sum(id == HIDDEN for id in left)  # its number
    for n, share in enumerate(pieces.shares(left, right), 1):
        growing = [_Prefix((), share)]
        for at in range(n):
            rows = [[*left, *prefix.ids, *[HIDDEN] * (n - at), *right] for prefix in growing]
            masses = guess(np.array(rows, np.int64))[:, blank].double().exp()  # (H, V)
            masses = masses * masses.new_tensor([[prefix.probability] for prefix in growing])
            allowed = pieces.inner if at else first | pieces.marks if n == 1 else first
            masses = masses.masked_fill(~allowed.to(masses.device), 0.0)
            # A beginning that cannot become one of the k best words is dropped.
            least = _least(words, k)
            best = masses.flatten().topk(min(width if at < n - 1 else width + k, masses.numel()))
            before, growing = growing, []
            for probability, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                row, id = divmod(index, masses.shape[1])
                if probability > least:
                    growing.append(_Prefix((*before[row].ids, id), probability))
            if not growing:
                break
        for prefix in growing:
            word = _decode_word(pieces, prefix.ids)
            if len(prefix.ids) == n and word:
                words[word] += prefix.probability
    ranked = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    return [(word, min(probability, 1.0)) for word, probability in ranked[:k]]


def _least(words: dict[str, float], k: int) -> float:
    """The probability of the k-th best word; zero if there are fewer."""
    ranked = sorted(words.values(), reverse=True)
    return ranked[k - 1] if len(ranked) >= k else 0.0


def _decode_word(pieces: WordPieces, ids: Sequence[int]) -> str:
    """The word that these ids spell; empty if they are not text, such as bytes inside a character."""
    try:
        return b"".join([pieces.bytes[id] for id in ids]).decode().strip()
    except UnicodeDecodeError:
        return ""


def crop_context(left: Sequence[int], right: Sequence[int], room: int) -> tuple[Sequence[int], Sequence[int]]:
    """The `room` tokens nearest to the blank: half on either side, more on one if the other has fewer."""
    before = min(len(left), max(room // 2, room - len(right)))
    return left[len(left) - before :], right[: max(0, room - before)]


# ------------------------------------------------------------------------------------------------ span networks

#     read      The M sat on the M .          part A, its blanks as masks
#     written   cat E │ red mat E             a piece for each, after all pieces before it
#
# Such a network (models/glm.py) has `pieces`, the ids around and in place of pieces, and besides `step`
#
#     begin_blanks(ids, lengths) → state      reads part A
#     begin_span(state, rows, at) → state     these rows begin a piece, in place of the mask at a position
#
# `BlankDecoder` makes one text of all pieces, so that `beam_search` and `generate_batch` can fill blanks. A piece has
# at least one token and does not continue a word before the blank. The log probability of a filling is exact:
# log p(pieces, each with its end | the text around them).

BATCH_TOKENS = 8192  # read at once
Row = TypeVar("Row")


@dataclass(frozen=True)
class TextWithBlanks:
    """A text with blanks, as a network reads it."""

    ids: tuple[int, ...]  # part A
    places: tuple[int, ...]  # positions of its masks, in the order in which they are filled
    lettered: tuple[bool, ...]  # whether a letter precedes each


class SpanNetwork(BeamModel, Protocol):
    """What a network must have to fill blanks with spans (GLM)."""

    pieces: PieceMarks
    vocabulary: Vocabulary
    readout: Readout
    window: int

    @property
    def device(self) -> torch.device: ...
    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]: ...
    def begin_blanks(self, ids: Tensor, lengths: Tensor) -> State: ...
    def begin_span(self, state: State, rows: Tensor, at: Tensor) -> State: ...


class BlankDecoder:
    """A model whose `step` predicts the next token of a piece or, after a piece's end, the first token of the next.

    The end of the last piece has an id of its own, `done`, one beyond the vocabulary. `inner` (V,) are ids that
    continue a word.
    """

    has_attention = False
    has_hidden_states = False

    def __init__(self, network: SpanNetwork, inner: Tensor) -> None:
        self.network, self.inner = network, inner.to(network.device)
        self.done = network.vocabulary.size

    def begin(self, texts: Sequence[TextWithBlanks]) -> tuple[Tensor, State]:
        """The first input and the state before it, as if a piece had just ended."""
        device = self.network.device
        ids, lengths = (t.to(device) for t in _rows([text.ids for text in texts]))
        places, count = (t.to(device) for t in _rows([text.places for text in texts]))
        lettered = _rows([text.lettered for text in texts])[0].to(device) > 0
        state = {"own": self.network.begin_blanks(ids, lengths), "places": places, "lettered": lettered, "count": count}
        return torch.full_like(count, self.network.pieces.end), {**state, "which": torch.full_like(count, -1)}

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        marks = self.network.pieces
        begins = last == marks.end
        which = (state["which"] + begins).clamp(max=state["places"].shape[1] - 1)
        column = which.unsqueeze(1)
        own = self.network.begin_span(state["own"], begins, state["places"].gather(1, column).squeeze(1))
        inputs = torch.where(begins, marks.begin, last.clamp(max=self.done - 1))
        log_p, own = self.network.step(inputs, own)
        lettered = state["lettered"].gather(1, column).squeeze(1)
        log_p = log_p.masked_fill((begins & lettered).unsqueeze(1) & self.inner, -math.inf)
        end = log_p[:, marks.end].masked_fill(begins, -math.inf)
        is_last = which == state["count"] - 1
        log_p = torch.cat([log_p, end.masked_fill(~is_last, -math.inf).unsqueeze(1)], 1)
        log_p[:, marks.end] = end.masked_fill(is_last, -math.inf)
        return log_p, {**state, "own": own, "which": which}

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        rest = {name: part for name, part in state.items() if name != "own"}
        return {**pytree.take(rest, rows), "own": self.network.reorder(state["own"], rows, searches)}


@torch.no_grad()
def fill_blanks(
    network: SpanNetwork,
    texts: Sequence[TextWithBlanks],
    inner: Tensor,
    decoding: Decoding,
    length: int,
    n: int = 1,
    *,
    forbidden: Sequence[int] = (),
    min_tokens: int = 0,
) -> list[list[Hypothesis]]:
    """Fill the blanks of texts: the n best fillings of a beam, or one by sampling or greedy decoding.

    At most `length` tokens, ends of pieces included; the last id is `BlankDecoder.done` if all blanks are filled. Text
    i is sampled with `decoding.seed` + i.
    """
    decoder = BlankDecoder(network, inner)
    length = min(length, network.window)
    fillings: list[list[Hypothesis]] = []
    for batch in _batches(texts, [len(text.ids) + length for text in texts]):
        rows = range(len(fillings), len(fillings) + len(batch))
        fillings += generate_fillings(
            decoder,
            *decoder.begin(batch),
            decoding,
            length,
            decoder.done,
            rows,
            n,
            forbidden=forbidden,
            min_tokens=min_tokens,
        )
    return fillings


@torch.no_grad()
def generate_fillings(
    model: BeamModel,
    last: Tensor,
    state: State,
    decoding: Decoding,
    length: int,
    end: int,
    rows: Sequence[int],
    n: int = 1,
    *,
    forbidden: Sequence[int] = (),
    min_tokens: int = 0,
) -> list[list[Hypothesis]]:
    """Generate the fillings of some texts: the n best of each, or one, sampled with `decoding.seed` + row or greedy."""
    if isinstance(decoding, Contrastive):
        raise Unsupported(
            "Contrastive search cannot fill blanks. Use sampling or beam search.", ability="contrastive search"
        )
    if isinstance(decoding, Beam):
        return beam_search(model, last, state, decoding, length, end, n=n, forbidden=forbidden, min_tokens=min_tokens)
    generators = [make_generator(decoding, row) for row in rows]
    made = generate_batch(
        model, last, state, decoding, length, end, forbidden=forbidden, min_tokens=min_tokens, generators=generators
    )
    fillings: list[list[Hypothesis]] = []
    for ids, own, size in zip(*(t.tolist() for t in made), strict=True):
        log_probs = tuple(own[:size])
        complete = bool(size) and ids[size - 1] == end
        fillings.append([Hypothesis(tuple(ids[:size]), log_probs, math.fsum(log_probs), complete)])
    return fillings


@torch.no_grad()
def likeliest_fillings(
    network: SpanNetwork,
    text: TextWithBlanks,
    inner: Tensor,
    k: int,
    *,
    forbidden: Sequence[int] = (),
    width: int = 64,
    length: int = 16,
) -> list[Hypothesis]:
    """The k most probable pieces for one blank, of up to `length` tokens, best first; may be fewer.

    Unlike in a beam, a piece that has ended takes no place of an open one: at each step every piece that may end here
    is counted, and the `width` most probable beginnings continue, until none of them can become one of the k.
    """
    decoder = BlankDecoder(network, inner)
    last, state = decoder.begin([text])
    never = torch.tensor(forbidden, dtype=torch.long, device=last.device)
    totals = torch.zeros(1, dtype=torch.float64, device=last.device)
    growing: list[tuple[tuple[int, ...], tuple[float, ...]]] = [((), ())]
    complete: list[Hypothesis] = []
    for _ in range(length + 1):
        log_p, state = decoder.step(last, state)
        own = log_p.double().index_fill(1, never, -math.inf)  # (H, V + 1)
        for (ids, before), end in zip(growing, own[:, decoder.done].tolist(), strict=True):
            if end > -math.inf:
                complete.append(Hypothesis((*ids, decoder.done), (*before, end), math.fsum((*before, end)), True))
        complete = sorted(complete, key=lambda hypothesis: -hypothesis.score)[:k]
        extended = (totals.unsqueeze(1) + own)[:, : decoder.done].flatten()
        best = extended.topk(min(width, len(extended)))
        lowest = complete[-1].score if len(complete) == k else -math.inf
        keep = best.values > lowest
        totals, at = best.values[keep], best.indices[keep]
        if not len(at):
            break
        rows, last = at // decoder.done, at % decoder.done
        costs = own[rows, last].tolist()
        pairs = zip(rows.tolist(), last.tolist(), costs, strict=True)
        growing = [((*growing[row][0], id), (*growing[row][1], cost)) for row, id, cost in pairs]
        state = pytree.take(state, rows)
        end_slice()
    return complete


def split_pieces(network: SpanNetwork, ids: Sequence[int]) -> list[list[int]]:
    """The generated ids, piece by piece; the last may have no end."""
    pieces: list[list[int]] = [[]]
    for id in ids:
        if id in (network.pieces.end, network.vocabulary.size):
            pieces.append([])
        else:
            pieces[-1].append(id)
    return pieces if pieces[-1] else pieces[:-1]


@torch.no_grad()
def filling_nats(
    network: SpanNetwork, texts: Sequence[TextWithBlanks], pieces: Sequence[Sequence[Sequence[int]]]
) -> list[float]:
    """−log p of these pieces and their ends, in place of each text's blanks, in order."""
    marks = network.pieces
    rows: list[tuple[list[int], ...]] = []
    for text, own in zip(texts, pieces, strict=True):
        read, where, inside, targets = list(text.ids), list(range(len(text.ids))), [0] * len(text.ids), []
        for place, piece in zip(text.places, own, strict=True):
            read += [marks.begin, *piece]
            where += [place] * (len(piece) + 1)
            inside += range(1, len(piece) + 2)
            targets += [*piece, marks.end]
        rows.append((read, where, inside, [IGNORE] * len(text.ids) + targets))
    all_nats: list[float] = []
    for batch in _batches(rows, [len(row[0]) for row in rows]):
        ids, first, second, batch_targets = (
            _rows(column, fill)[0].to(network.device)
            for column, fill in zip(zip(*batch, strict=True), (marks.begin, 0, 1, IGNORE), strict=True)
        )
        h = network.hidden(Inputs(ids, positions=torch.stack([first, second], -1)), None)[0][-1]
        nats = network.readout.nll(h.flatten(0, 1), batch_targets.flatten()).view(batch_targets.shape)
        all_nats += nats.double().sum(1).tolist()
        end_slice()
    return all_nats


def unwritable_ids(tokenizer: Tokenizer, end: int) -> list[int]:
    """Ids that must not be generated: special tokens without text, except the end, and the unknown word."""
    special = tokenizer.special
    silent = [id for id in special.values() if id != end and not tokenizer.piece(id)]
    return silent + [id for name, id in special.items() if "unk" in name.lower() and id != end]


def _rows(rows: Sequence[Sequence[int]], fill: int = 0) -> tuple[Tensor, Tensor]:
    """(B, T), padded at the end, and the lengths (B,)."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), fill, np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded), torch.from_numpy(lengths)


def _batches(rows: Sequence[Row], sizes: Sequence[int]) -> Iterator[Sequence[Row]]:
    """Yield neighboring rows that are read together, padded to the largest of their sizes."""
    first, longest = 0, 0
    for i, size in enumerate(sizes):
        longest = max(longest, size)
        if i > first and (i + 1 - first) * longest > slice_tokens(BATCH_TOKENS):
            yield rows[first:i]
            first, longest = i, size
    if len(rows) > first:
        yield rows[first:]


# ------------------------------------------------------------------------------------------------ sequence-to-sequence

#     read      Thank you <x> me to your party <y> week end          <x> <y> … are sentinels, special tokens
#     written   <x> for inviting <y> last end
#
# Raffel et al. (2020), figure 2. Such a network may leave a sentinel out, or write one twice.


class SentinelDecoder:
    """A sequence-to-sequence network that is held to the order of sentinels.

    First <x>, then something visible, then <y>, and the end only after the last span. Probabilities stay the network's
    own, so the mass of what the order forbids is missing. Some networks write one more sentinel after the last span:
    that, or the end token, both end the text, and p(end) is their sum. An id that continues a word cannot begin a span
    after a letter.
    """

    has_attention = False
    has_hidden_states = False

    def __init__(self, network: CausalNetwork, sentinels: Sequence[int], end: int, pieces: WordPieces) -> None:
        self.network, self.end, self.inner = network, end, pieces.inner.to(network.device)
        self.shows = torch.tensor([bool(piece.strip()) for piece in pieces.bytes], device=network.device)  # (V,)
        self.sentinels = torch.tensor(sentinels, device=network.device)

    def begin(self, last: Tensor, own: State, lettered: Sequence[Sequence[bool]]) -> tuple[Tensor, State]:
        """The state after the sources were read; `lettered`: whether a letter precedes each blank of a row."""
        count = torch.tensor([len(row) for row in lettered], device=last.device)
        before = torch.zeros(len(lettered), int(count.max()), dtype=torch.bool, device=last.device)
        for row, flags in enumerate(lettered):
            before[row, : len(flags)] = torch.tensor(flags, device=last.device)
        state = {"own": own, "lettered": before, "count": count, "which": torch.full_like(count, -1)}
        return last, {**state, "shown": torch.zeros_like(count, dtype=torch.bool)}

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        log_p, own = self.network.step(last, state["own"])
        begins = last == self._after(state["which"])  # a span begins here
        which = state["which"] + begins  # (R,) the current span; −1: before the first
        shown = (state["shown"] | self.shows[last]) & ~begins  # the span has something visible
        is_last = which == state["count"] - 1
        follows = self._after(which).unsqueeze(1)
        onward = log_p.gather(1, follows).squeeze(1)
        more = which + 1 < len(self.sentinels)
        over = torch.where(more, torch.logaddexp(log_p[:, self.end], onward), log_p[:, self.end])
        behind = state["lettered"].gather(1, which.clamp(min=0).unsqueeze(1)).squeeze(1)
        scores = log_p.masked_fill((begins & behind).unsqueeze(1) & self.inner, -math.inf)
        # At most one space before a word
        scores = scores.masked_fill((~shown & ~begins).unsqueeze(1) & ~self.shows, -math.inf)
        scores = scores.masked_fill((which < 0).unsqueeze(1), -math.inf)
        scores = scores.index_fill(1, self.sentinels, -math.inf)
        onward = onward.masked_fill((which >= 0) & (~shown | is_last), -math.inf)
        scores = scores.scatter(1, follows, onward.unsqueeze(1))
        scores[:, self.end] = over.masked_fill(~shown | ~is_last, -math.inf)
        return scores, {**state, "own": own, "which": which, "shown": shown}

    def _after(self, which: Tensor) -> Tensor:
        """The sentinel that begins the next span."""
        return self.sentinels[(which + 1).clamp(max=len(self.sentinels) - 1)]

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        rest = {name: part for name, part in state.items() if name != "own"}
        own = self.network.reorder(state["own"], rows, searches)
        return {**pytree.take(rest, rows), "own": own}


def split_spans(ids: Sequence[int], sentinels: Sequence[int], end: int) -> list[list[int]]:
    """The generated ids, span by span; the last may have no end."""
    spans: list[list[int]] = []
    for id in ids:
        if id in sentinels:
            spans.append([])
        elif id != end and spans:
            spans[-1].append(id)
    return spans
