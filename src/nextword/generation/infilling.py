"""The likeliest words for a blank, whole, from a network that sees both sides and fills in single tokens.

    The [?] sat on the mat            one token is hidden: every word of one piece, and its probability, at once
    The [?] [?] sat on the mat        two: the first piece, then, with that one in its place, the second
    The [?] [?] [?] sat on the mat    three

What is hidden has a number, and the network gives no probability to that. So it is taken from text: as many words have
one, two or three pieces as among those around the blank and `EXPECTED` others.

    P(word) = Σ over the ways to spell it in n ≤ 3 pieces   P(n) · Π_i P(piece i | what is around, pieces before i)

Pieces are followed from left to right, the likeliest `width` of them; what falls off, and words of more pieces, are
missing: the probabilities are lower bounds and add up to at most one. What a word is: generation/words.py.

Texts with blanks in them: where these are, the ids of what stands beside them, and a text with them filled.

    The ___ sat on the ___.          parts  "The ", " sat on the ", "."          filled  The cat sat on the mat.

A blank is a word or more of its own, whether there are spaces around it or not.

Blanks of unknown length, each filled from left to right until it is over, by a network that writes pieces.

    read      The M sat on the M .          part A, its blanks as masks
    written   cat E │ red mat E             a piece for each, after all pieces before it

Such a network (models/glm.py) has `pieces`, the ids around pieces and in their place, and beside `step`

    opened(ids, lengths) → state            part A was read
    turned(state, rows, at) → state         these rows begin a piece, in place of the mask at a position

`Filler` makes one text of all pieces, so that `search` and `tokens_batch` fill blanks as they write on. A piece has a
token at least, and does not go on with a word that stands before the blank. The log-probability of a filling is exact:
log p(pieces, each with its end | what is around them).

Blanks filled by a network that writes what was taken out of a text, span after span (Raffel et al. 2020, figure 2).

    read      Thank you <x> me to your party <y> week end          <x> <y> … are sentinels, tokens of their own
    written   <x> for inviting <y> last end

Left to itself such a network may leave a sentinel out, or write one twice. `Ordered` is the same network held to the
order: first <x>, then something that shows, then <y>, and the end after the last span alone. Probabilities stay the
network's own, so what order forbids is missing from them. Some have learnt that one more sentinel stands after the last
span: to write that, or the end, is to be over, and p(over) is the sum of the two.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.core import pytree
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import IGNORE, Beam, Contrastive, Decoding, Inputs, State, Stop
from nextword.generation.beam_search import Hypothesis, beam_search
from nextword.generation.sampling import generate_batch, make_generator
from nextword.generation.whole_words import MARKS, WORD, continues_word, read_word
from nextword.tokenizers.base import Tokenizer

HIDDEN = -1  # in a row of ids: a token that is asked for
MOST = 3  # pieces of a word
EXPECTED = (8.0, 1.5, 0.5)  # words of one, two and three pieces, of ten in English under a vocabulary of 30 000

Guess = Callable[[np.ndarray], Tensor]  # rows of ids (B, T), equally many HIDDEN in each → their log p (B, hidden, V)


class WordPieces:
    """What each id can be in a word; to be built once for a tokenizer. Special ids are never part of one."""

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
        # Where a space is lost and a piece without one goes on with a word, none can begin one or stand alone
        marked = tokenizer.kind == "wordpiece"
        self.begins = letters & spaced  # a word after another
        self.bare = letters & ~spaced & (not marked)  # a word right after a mark, or at the very start
        self.marks = marks & (spaced | (not marked))
        self.most = 1 if tokenizer.kind == "words" else MOST

    def shares(self, *texts: Sequence[int]) -> list[float]:
        """P(n): of the words in these texts, and of those that are expected anyway, the share with n pieces."""
        counts = list(EXPECTED[: self.most])
        begins, inner, bare = (flags.numpy() for flags in (self.begins, self.inner, self.bare))
        for ids in texts:
            length = 0
            for id in [*ids, HIDDEN]:  # which ends the last word
                if id >= 0 and length and inner[id]:
                    length += 1
                    continue
                if 0 < length <= self.most:
                    counts[length - 1] += 1
                length = int(id >= 0 and (begins[id] or bare[id]))
        return [count / sum(counts) for count in counts]


class _Growing(NamedTuple):
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
    """The k likeliest words between two rows of ids and their probabilities, likeliest first; may be fewer.

    `bare`: the word may begin without a space, since nothing or a mark stands before it. Other blanks in `left` and
    `right` are HIDDEN. `width`: beginnings of words that are followed at once.
    """
    found: dict[str, float] = defaultdict(float)
    width = width or min(max(16, 2 * k), 64)
    first = pieces.begins | pieces.bare if bare else pieces.begins
    own = sum(id == HIDDEN for id in left)  # blanks before this one
    for n, share in enumerate(pieces.shares(left, right), 1):
        growing = [_Growing((), share)]
        for at in range(n):
            rows = [[*left, *one.ids, *[HIDDEN] * (n - at), *right] for one in growing]
            masses = guess(np.array(rows, np.int64))[:, own].double().exp()  # (H, V)
            masses = masses * masses.new_tensor([[one.probability] for one in growing])
            allowed = pieces.inner if at else first | pieces.marks if n == 1 else first
            masses = masses.masked_fill(~allowed.to(masses.device), 0.0)
            # A word that is likely enough now is counted; a beginning that cannot become one is left
            least = _least(found, k)
            best = masses.flatten().topk(min(width if at < n - 1 else width + k, masses.numel()))
            before, growing = growing, []
            for probability, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                row, id = divmod(index, masses.shape[1])
                if probability > least:
                    growing.append(_Growing((*before[row].ids, id), probability))
            if not growing:
                break
        for one in growing:
            word = _spelled(pieces, one.ids)
            if len(one.ids) == n and word:
                found[word] += one.probability
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [(word, min(probability, 1.0)) for word, probability in ranked[:k]]


def _least(found: dict[str, float], k: int) -> float:
    """What a word must have to be among the k; zero as long as there are fewer."""
    ranked = sorted(found.values(), reverse=True)
    return ranked[k - 1] if len(ranked) >= k else 0.0


def _spelled(pieces: WordPieces, ids: Sequence[int]) -> str:
    """The word that these ids write; nothing where that is no text, as of bytes inside a character."""
    try:
        return b"".join([pieces.bytes[id] for id in ids]).decode().strip()
    except UnicodeDecodeError:
        return ""


def crop_context(left: Sequence[int], right: Sequence[int], room: int) -> tuple[Sequence[int], Sequence[int]]:
    """The tokens nearest to the blank, at most `room` of them: half on either side, more where the other has less."""
    before = min(len(left), max(room // 2, room - len(right)))
    return left[len(left) - before :], right[: max(0, room - before)]


BLANK = "___"
LINES = re.compile("_{3,}")  # a blank, as long as somebody likes to draw it


@dataclass(frozen=True)
class Filled:
    """A text with its blanks filled, as far as the length went."""

    text: str
    blanks: tuple[str, ...]  # those that were reached
    log_prob: float  # the model's own, of the pieces and their ends
    tokens: int
    score: float  # by which a beam ranks
    complete: bool  # every piece was brought to its end


def check_infilling(how: Decoding, stop: Stop, n: int) -> None:
    """Refuses what has no meaning where blanks are filled."""
    most = how.width if isinstance(how, Beam) else 1
    if not 1 <= n <= most:
        raise NextwordError(
            f"The {n} best are asked for, and there are from 1 to {most}. Ask for fewer, or widen the beam."
        )
    if stop.strings:
        raise NextwordError("A blank is over when the model says so, and not at a string: leave stop strings away.")


def encode_part(tokenizer: Tokenizer, text: str, first: bool = False) -> list[int]:
    """Of a part of a text that stands before a blank or, if it is not the first, after one.

    What stands after one is read as after a word: with a letter before it, whose ids are then dropped. A word right
    after the blank is a word of its own.
    """
    text = text.rstrip(" ")
    if first or not text:
        return tokenizer.encode(text).ids.tolist()
    if text[0].isalnum():
        text = " " + text
    encoding = tokenizer.encode("a" + text)
    mine = encoding.spans[:, 1] > 1  # the letter may be several tokens, of which the last are of no length
    if (encoding.spans[mine, 0] < 1).any():  # a token across the seam
        return tokenizer.encode(text).ids.tolist()
    return encoding.ids[mine].tolist()


def join_parts(parts: Sequence[str], blanks: Sequence[str]) -> str:
    """The parts of a text with something between them, one less than there are parts."""
    return parts[0] + "".join(blank + part for blank, part in zip(blanks, parts[1:], strict=True))


def follows_letter(parts: Sequence[str]) -> bool:
    """Whether a letter stands before the blank that follows these parts: of the text, or of what fills another."""
    return parts[-1].rstrip(" ")[-1:].isalnum() or (len(parts) > 1 and not parts[-1].strip())


def shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")


TOGETHER = 8192  # tokens read at once


@dataclass(frozen=True)
class TextWithBlanks:
    """A text with blanks, as a network reads it."""

    ids: tuple[int, ...]  # part A
    places: tuple[int, ...]  # where its masks stand, in the order in which they are filled
    lettered: tuple[bool, ...]  # whether a letter stands before each


class BlankDecoder:
    """What `step` says of the next token of a piece or, after a piece's end, of the first token of the next one.

    The end of the last piece has an id of its own, `done`, one beyond the vocabulary: there the text is over. `inner`
    (V,) are ids that go on with a word.
    """

    def __init__(self, network: Any, inner: Tensor) -> None:
        self.network, self.inner = network, inner.to(network.device)
        self.done = network.vocabulary.size

    def begin(self, texts: Sequence[TextWithBlanks]) -> tuple[Tensor, State]:
        """What to feed first, and the state before it: as if a piece had just ended."""
        device = self.network.device
        ids, lengths = (t.to(device) for t in _rows([text.ids for text in texts]))
        places, count = (t.to(device) for t in _rows([text.places for text in texts]))
        lettered = _rows([text.lettered for text in texts])[0].to(device) > 0
        state = {"own": self.network.begin_blanks(ids, lengths), "places": places, "lettered": lettered, "count": count}
        return torch.full_like(count, self.network.pieces.end), {**state, "which": torch.full_like(count, -1)}

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        marks = self.network.pieces
        fresh = last == marks.end
        which = (state["which"] + fresh).clamp(max=state["places"].shape[1] - 1)
        here = which.unsqueeze(1)
        own = self.network.begin_span(state["own"], fresh, state["places"].gather(1, here).squeeze(1))
        fed = torch.where(fresh, marks.begin, last.clamp(max=self.done - 1))
        log_p, own = self.network.step(fed, own)
        lettered = state["lettered"].gather(1, here).squeeze(1)
        log_p = log_p.masked_fill((fresh & lettered).unsqueeze(1) & self.inner, -math.inf)
        over = log_p[:, marks.end].masked_fill(fresh, -math.inf)
        final = which == state["count"] - 1
        log_p = torch.cat([log_p, over.masked_fill(~final, -math.inf).unsqueeze(1)], 1)
        log_p[:, marks.end] = over.masked_fill(final, -math.inf)
        return log_p, {**state, "own": own, "which": which}

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        rest = {name: part for name, part in state.items() if name != "own"}
        return {**pytree.take(rest, rows), "own": self.network.reorder(state["own"], rows, searches)}


@torch.no_grad()
def fill_blanks(
    network: Any,
    texts: Sequence[TextWithBlanks],
    inner: Tensor,
    how: Decoding,
    length: int,
    n: int = 1,
    *,
    banned: Sequence[int] = (),
    least: int = 0,
) -> list[list[Hypothesis]]:
    """The n best fillings of each text that a beam finds; one that is drawn, or greedy. At most `length` tokens, ends
    of pieces among them; the last id is `Filler.done` where all are filled. Text i is drawn with `how.seed` + i."""
    filler = BlankDecoder(network, inner)
    length = min(length, network.window)
    found: list[list[Hypothesis]] = []
    for some in _batches(texts, length):
        rows = range(len(found), len(found) + len(some))
        found += generate_fillings(
            filler, *filler.begin(some), how, length, filler.done, rows, n, banned=banned, least=least
        )
    return found


@torch.no_grad()
def generate_fillings(
    model: Any,
    last: Tensor,
    state: State,
    how: Decoding,
    length: int,
    end: int,
    rows: Sequence[int],
    n: int = 1,
    *,
    banned: Sequence[int] = (),
    least: int = 0,
) -> list[list[Hypothesis]]:
    """What fills the blanks of some texts: the n best of each; one that is drawn, with `how.seed` + row, or greedy."""
    if isinstance(how, Contrastive):
        raise Unsupported("Contrastive search writes on from a prompt, and fills no blanks. Draw, or use a beam.")
    if isinstance(how, Beam):
        return beam_search(model, last, state, how, length, end, n=n, banned=banned, least=least)
    draws = [make_generator(how, row) for row in rows]
    made = generate_batch(model, last, state, how, length, end, banned=banned, least=least, generators=draws)
    found: list[list[Hypothesis]] = []
    for ids, own, size in zip(*(t.tolist() for t in made), strict=True):
        log_probs = tuple(own[:size])
        complete = bool(size) and ids[size - 1] == end
        found.append([Hypothesis(tuple(ids[:size]), log_probs, math.fsum(log_probs), complete)])
    return found


@torch.no_grad()
def likeliest_fillings(
    network: Any,
    text: TextWithBlanks,
    inner: Tensor,
    k: int,
    *,
    banned: Sequence[int] = (),
    width: int = 64,
    length: int = 16,
) -> list[Hypothesis]:
    """The k likeliest pieces for one blank, of up to `length` tokens, best first; may be fewer.

    Unlike in a beam, nothing that has ended takes the place of what has not: at each step every piece that may end here
    is counted, and the likeliest `width` beginnings go on, until none of them can become one of the k.
    """
    filler = BlankDecoder(network, inner)
    last, state = filler.begin([text])
    never = torch.tensor(banned, dtype=torch.long, device=last.device)
    totals = torch.zeros(1, dtype=torch.float64, device=last.device)
    growing: list[tuple[tuple[int, ...], tuple[float, ...]]] = [((), ())]
    found: list[Hypothesis] = []
    for _ in range(length + 1):
        log_p, state = filler.step(last, state)
        own = log_p.double().index_fill(1, never, -math.inf)  # (H, V + 1)
        for (ids, before), end in zip(growing, own[:, filler.done].tolist(), strict=True):
            if end > -math.inf:
                found.append(Hypothesis((*ids, filler.done), (*before, end), math.fsum((*before, end)), True))
        found = sorted(found, key=lambda one: -one.score)[:k]
        goes_on = (totals.unsqueeze(1) + own)[:, : filler.done].flatten()
        best = goes_on.topk(min(width, len(goes_on)))
        least = found[-1].score if len(found) == k else -math.inf
        keep = best.values > least
        totals, at = best.values[keep], best.indices[keep]
        if not len(at):
            break
        rows, last = at // filler.done, at % filler.done
        costs = own[rows, last].tolist()
        pairs = zip(rows.tolist(), last.tolist(), costs, strict=True)
        growing = [((*growing[row][0], id), (*growing[row][1], cost)) for row, id, cost in pairs]
        state = pytree.take(state, rows)
    return found


def split_pieces(network: Any, ids: Sequence[int]) -> list[list[int]]:
    """What was written, piece by piece; the last may have no end."""
    pieces: list[list[int]] = [[]]
    for id in ids:
        if id in (network.pieces.end, network.vocabulary.size):
            pieces.append([])
        else:
            pieces[-1].append(id)
    return pieces if pieces[-1] else pieces[:-1]


@torch.no_grad()
def filling_nats(
    network: Any, texts: Sequence[TextWithBlanks], pieces: Sequence[Sequence[Sequence[int]]]
) -> list[float]:
    """−log p of these pieces, and that each is over, in place of each text's blanks, in their order."""
    marks = network.pieces
    rows: list[tuple[Any, ...]] = []
    for text, own in zip(texts, pieces, strict=True):
        read, where, inside, targets = list(text.ids), list(range(len(text.ids))), [0] * len(text.ids), []
        for place, piece in zip(text.places, own, strict=True):
            read += [marks.begin, *piece]
            where += [place] * (len(piece) + 1)
            inside += range(1, len(piece) + 2)
            targets += [*piece, marks.end]
        rows.append((read, where, inside, [IGNORE] * len(text.ids) + targets))
    found: list[float] = []
    for some in _batches(rows, 0, lambda row: len(row[0])):
        ids, first, second, wanted = (
            _rows(column, fill)[0].to(network.device)
            for column, fill in zip(zip(*some, strict=True), (marks.begin, 0, 1, IGNORE), strict=True)
        )
        h = network.hidden(Inputs(ids, positions=torch.stack([first, second], -1)), None)[0][-1]
        nats = network.readout.nll(h.flatten(0, 1), wanted.flatten()).view(wanted.shape)
        found += nats.double().sum(1).tolist()
    return found


def unwritable_ids(tokenizer: Tokenizer, end: int) -> list[int]:
    """Special ids that stand in no text, but for the end; and what stands for unknown words."""
    special = tokenizer.special
    silent = [id for id in special.values() if id != end and not tokenizer.piece(id)]
    return silent + [id for name, id in special.items() if "unk" in name.lower() and id != end]


def _rows(rows: Sequence[Sequence[int]], fill: int = 0) -> tuple[Tensor, Tensor]:
    """(B, T), padded at their end, and their lengths (B,)."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), fill, np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded), torch.from_numpy(lengths)


def _batches(rows: Sequence[Any], more: int, size: Any = lambda text: len(text.ids)) -> Iterator[Sequence[Any]]:
    """Neighbours that are read together, padded to the longest of them and `more`."""
    first, longest = 0, 0
    for i, row in enumerate(rows):
        longest = max(longest, size(row) + more)
        if i > first and (i + 1 - first) * longest > TOGETHER:
            yield rows[first:i]
            first, longest = i, size(row) + more
    if len(rows) > first:
        yield rows[first:]


class SentinelDecoder:
    """What `step` says of the next token of a span, or of the next span. Ids that go on with a word begin no span that
    stands behind a letter."""

    def __init__(self, network: Any, sentinels: Sequence[int], end: int, pieces: WordPieces) -> None:
        self.network, self.end, self.inner = network, end, pieces.inner.to(network.device)
        self.shows = torch.tensor([bool(piece.strip()) for piece in pieces.bytes], device=network.device)  # (V,)
        self.sentinels = torch.tensor(sentinels, device=network.device)

    def begin(self, last: Tensor, own: State, lettered: Sequence[Sequence[bool]]) -> tuple[Tensor, State]:
        """After the sources were read; of each blank of a row, whether a letter stands before it."""
        count = torch.tensor([len(row) for row in lettered], device=last.device)
        before = torch.zeros(len(lettered), int(count.max()), dtype=torch.bool, device=last.device)
        for row, flags in enumerate(lettered):
            before[row, : len(flags)] = torch.tensor(flags, device=last.device)
        state = {"own": own, "lettered": before, "count": count, "which": torch.full_like(count, -1)}
        return last, {**state, "shown": torch.zeros_like(count, dtype=torch.bool)}

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        log_p, own = self.network.step(last, state["own"])
        fresh = last == self._after(state["which"])  # a span begins
        which = state["which"] + fresh  # (R,) the span that is written; −1: none is yet
        shown = (state["shown"] | self.shows[last]) & ~fresh  # something stands in it
        final = which == state["count"] - 1
        follows = self._after(which).unsqueeze(1)
        onward = log_p.gather(1, follows).squeeze(1)
        more = which + 1 < len(self.sentinels)
        over = torch.where(more, torch.logaddexp(log_p[:, self.end], onward), log_p[:, self.end])
        behind = state["lettered"].gather(1, which.clamp(min=0).unsqueeze(1)).squeeze(1)
        said = log_p.masked_fill((fresh & behind).unsqueeze(1) & self.inner, -math.inf)
        said = said.masked_fill((~shown & ~fresh).unsqueeze(1) & ~self.shows, -math.inf)  # one space, and then a word
        said = said.masked_fill((which < 0).unsqueeze(1), -math.inf)
        said = said.index_fill(1, self.sentinels, -math.inf)
        said = said.scatter(1, follows, onward.masked_fill((which >= 0) & (~shown | final), -math.inf).unsqueeze(1))
        said[:, self.end] = over.masked_fill(~shown | ~final, -math.inf)
        return said, {**state, "own": own, "which": which, "shown": shown}

    def _after(self, which: Tensor) -> Tensor:
        """The sentinel that begins the next span."""
        return self.sentinels[(which + 1).clamp(max=len(self.sentinels) - 1)]

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        rest = {name: part for name, part in state.items() if name != "own"}
        own = self.network.reorder(state["own"], rows, searches)
        return {**pytree.take(rest, rows), "own": own}


def split_spans(ids: Sequence[int], sentinels: Sequence[int], end: int) -> list[list[int]]:
    """What was written, span by span; the last may have no end."""
    found: list[list[int]] = []
    for id in ids:
        if id in sentinels:
            found.append([])
        elif id != end and found:
            found[-1].append(id)
    return found
