"""Whole words from pieces, against hand-made models whose word probabilities can be worked out."""

from collections import defaultdict

import pytest
import torch

from nextword.core.errors import InvalidSetting, RunError
from nextword.generation.whole_words import (
    EITHER,
    JOINT,
    MARKS,
    OVER,
    START,
    WORD,
    Spelling,
    continues_word,
    next_words,
    read_word,
)
from tests.support.toy_models import ToyModel


class Tree:
    """Probabilities by the whole history, spelled out; the state is the node reached, so rows mixed up show."""

    window = None

    def __init__(self, size, tree):
        self.nodes, self.children = [], []
        self.size = size
        self._add(tree)

    def _add(self, tree):
        here = len(self.nodes)
        row, children = torch.zeros(self.size), {}
        self.nodes.append(row)
        self.children.append(children)
        for id, (p, below) in tree.items():
            row[id] = p
            children[id] = self._add(below)
        return here

    def start(self, batch, source=None):
        return torch.full((batch,), -1), torch.zeros(batch, dtype=torch.long)

    def step(self, last, state):
        pairs = zip(last.tolist(), state.tolist(), strict=True)
        state = torch.tensor([node if id < 0 else self.children[node][id] for id, node in pairs])
        return torch.stack([self.nodes[int(node)] for node in state]).log(), state


class Bigram(ToyModel):
    window = 1

    def __init__(self, size, seed):
        self.table = torch.randn(size, size, generator=torch.Generator().manual_seed(seed)).mul(1.5).log_softmax(-1)
        self.steps = 0

    def start(self, batch, source=None):
        return torch.zeros(batch, dtype=torch.long), None

    def step(self, last, state):
        self.steps += 1
        return self.table[last], state


@pytest.mark.parametrize(
    ("text", "inside", "word", "place"),
    [
        (b"", False, b"", START),
        (b" \n", False, b"", START),
        (b"cat", False, b"cat", WORD),
        (b" \n cat", False, b" cat", WORD),
        (b"cat ", False, b"cat", OVER),
        (b"cat,", False, b"cat", OVER),
        (b"don't", False, b"don't", WORD),
        (b"don'", False, b"don", JOINT),
        (b"dogs' ", False, b"dogs", OVER),
        (b"so--", False, b"so", OVER),
        (b"well-", False, b"well", JOINT),
        (b"well-known ", False, b"well-known", OVER),
        (b"...", False, b"...", MARKS),
        (b" ...", False, b" ...", MARKS),
        (b"'tis", False, b"'", OVER),
        (b",a", False, b",", OVER),
        ("é".encode()[:1], False, b"\xc3", WORD),
        ("naïve".encode() + b".", False, "naïve".encode(), OVER),
        (b"'", False, b"'", MARKS),
        (b"'", True, b"'", EITHER),
        (b"'s", True, b"'s", WORD),
        (b"' ", True, b"'", OVER),
        (b"',", True, b"',", MARKS),
        (b"at", True, b"at", WORD),
        (b"at'", True, b"at", JOINT),
        (b" at", True, b" at", WORD),
        (b"-", True, b"-", EITHER),
        (b"--", True, b"--", MARKS),
    ],
)
def test_read_word_returns_the_first_word(text, inside, word, place):
    assert read_word(text, inside) == (word, place)


def test_probabilities_by_hand():
    # ids         0       1       2       3     4    5
    pieces = [b" cat", b" ca", b"t", b"alogue", b".", b""]  # 5 ends the document
    tree = {
        0: (0.5, {4: (0.6, {}), 3: (0.1, {5: (1.0, {})}), 0: (0.3, {})}),
        1: (0.3, {2: (0.5, {3: (0.4, {4: (1.0, {})}), 5: (0.6, {})}), 4: (0.5, {})}),
        4: (0.15, {4: (0.2, {0: (1.0, {})}), 1: (0.8, {})}),
        5: (0.05, {}),
    }
    found = next_words(Tree(6, tree), *Tree(6, tree).start(1), Spelling(pieces))
    assert dict(found) == pytest.approx(
        {
            b"cat": 0.5 * (0.6 + 0.3) + 0.3 * 0.5 * 0.6,  # " cat", and " ca" + "t"
            b"ca": 0.3 * 0.5,
            b".": 0.15 * 0.8,
            b"catalogue": 0.5 * 0.1 + 0.3 * 0.5 * 0.4,
            b"..": 0.15 * 0.2,
        }
    )
    assert [word for word, _ in found] == [b"cat", b"ca", b".", b"catalogue", b".."]
    assert sum(p for _, p in found) == pytest.approx(0.95)  # the rest: the document ends here


def test_next_words_counts_a_piece_that_ends_its_word():
    pieces = [b"cat ", b"ca", b"t ", b"\n", b"ts and"]
    tree = {0: (0.5, {}), 1: (0.3, {2: (0.9, {}), 4: (0.1, {})}), 3: (0.2, {0: (1.0, {})})}
    found = next_words(Tree(5, tree), *Tree(5, tree).start(1), Spelling(pieces))
    assert dict(found) == pytest.approx({b"cat": 0.5 + 0.27 + 0.2, b"cats": 0.03})


def test_joint_belongs_to_the_word_only_before_a_letter():
    pieces = [b"don", b"'", b"t", b" ", b"."]
    tree = {0: (1.0, {1: (0.8, {2: (0.5, {3: (1.0, {})}), 3: (0.3, {}), 4: (0.2, {})}), 3: (0.2, {})})}
    found = next_words(Tree(5, tree), *Tree(5, tree).start(1), Spelling(pieces))
    assert dict(found) == pytest.approx({b"don't": 0.4, b"don": 0.6})


def test_next_words_after_a_letter_continue_or_follow_the_word():
    pieces = [b"m", b" mat", b",", b"'", b"s", b" "]
    space = {5: (1.0, {})}
    tree = {
        0: (0.2, space),  # the + m
        1: (0.4, space),
        2: (0.1, space),
        3: (0.3, {4: (0.5, space), 5: (0.5, {})}),  # the + 's, or a closing quote
    }
    model, spelling = Tree(6, tree), Spelling(pieces)
    whole = next_words(model, *model.start(1), spelling, left=b"the")
    assert dict(whole) == pytest.approx({b" mat": 0.4 / 0.8, b",": 0.1 / 0.8, b"'": 0.15 / 0.8})
    inside = next_words(model, *model.start(1), spelling, left=b"the", inside=True)
    assert dict(inside) == pytest.approx({b" mat": 0.4, b"m": 0.2, b"'s": 0.15, b"'": 0.15, b",": 0.1})
    after_space = next_words(model, *model.start(1), spelling, left=b"the ")
    assert dict(after_space) == pytest.approx({b"mat": 0.4, b"'": 0.3, b"m": 0.2, b",": 0.1})


# ------------------------------------------------------------------------------------------------ brute force

PIECES = [b" ", b"a", b"b", b" a", b"'", b".", b"<end>", b"b ", b"ab"]


def slowly(text):
    """The first word of a text that is closed by a "$", letter by letter and without regular expressions."""
    text, letters = text.lstrip(), "ab"
    if text == "$":
        return None
    kind = text[0] in letters
    at = 0
    while (text[at] in letters) == kind and text[at] not in " $":
        at += 1
        if kind and text[at] == "'" and text[at + 1] in letters:
            at += 1
    return text[:at].encode()


def exhaust(table, depth):
    """Every token sequence up to the depth, each counted where its first word is known to be over."""
    found = defaultdict(float)

    def resize_embeddings(text, last, p, level):
        for id, piece in enumerate(PIECES):
            p_next = p * float(table[last, id])
            if id == 6:
                if (word := slowly(text + "$")) is not None:
                    found[word] += p_next
                continue
            longer = text + piece.decode()
            # Over, if nothing that could follow changes the first word.
            words = {slowly(longer + more + "$") for more in ("", "a", "'", "'a", ".", " ")}
            if len(words) == 1 and None not in words:
                found[words.pop()] += p_next
            elif level > 1:
                resize_embeddings(longer, id, p_next, level - 1)

    resize_embeddings("", 0, 1.0, depth)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_next_words_equal_brute_force(seed):
    model = Bigram(len(PIECES), seed)
    depth = 4
    exact = exhaust(model.table.double().exp(), depth)
    spelling = Spelling(PIECES, special=[6])
    found = dict(next_words(model, *model.start(1), spelling, 10_000, width=10_000, depth=depth))
    assert found == pytest.approx(exact, rel=1e-5)
    assert sum(found.values()) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_next_words_with_a_narrow_beam_are_lower_bounds(seed):
    model, spelling = Bigram(len(PIECES), seed), Spelling(PIECES, special=[6])
    wide = dict(next_words(model, *model.start(1), spelling, 10_000, width=10_000, depth=6))
    for width in (1, 3, 10):
        narrow = next_words(model, *model.start(1), spelling, 5, width=width, depth=6)
        assert len(narrow) <= 5
        assert all(p <= wide[word] * (1 + 1e-9) for word, p in narrow)


@pytest.mark.parametrize("seed", range(3))
def test_next_words_stopping_early_keeps_the_k_likeliest(seed):
    model, spelling = Bigram(len(PIECES), seed), Spelling(PIECES, special=[6])
    everything = next_words(model, *model.start(1), spelling, 10_000, width=3000, depth=8)
    patient, model.steps = model.steps, 0
    first = next_words(model, *model.start(1), spelling, 1, width=3000, depth=8)
    assert first[0][0] == everything[0][0]
    assert model.steps < patient


def test_spelling_ends_equal_read_word():
    spelling = Spelling([*PIECES, b"'a", b"' ", b"--", b"-a", b"\n", b"'.a", b"a'b c"], special=[6])
    for place, (text, inside) in {WORD: (b"ab", False), JOINT: (b"a-", False), MARKS: (b"!", False)}.items():
        for id, piece in enumerate(spelling.pieces):
            ends = not piece or read_word(text + piece, inside) == (read_word(text, inside)[0], OVER)
            assert bool(spelling.ends[place, id]) == ends, (text, piece)
    assert [continues_word(piece) for piece in spelling.pieces] == spelling.continues.tolist()


def test_invalid_settings_are_rejected():
    model = Bigram(len(PIECES), 0)
    with pytest.raises(InvalidSetting, match="k = 0"):
        next_words(model, *model.start(1), Spelling(PIECES), 0)
    model.table[:] = torch.nan
    with pytest.raises(RunError):
        next_words(model, *model.start(1), Spelling(PIECES))
