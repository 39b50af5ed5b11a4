"""Linear probes: what can be read off a network's vectors by one matrix, and labelled words to read.

    words    In    the   beginning   God    created            labels of a word's first piece; other pieces have none
    pieces   in    the   begin ##ning god   create ##d
    case      ·     0       0    ·     1       0     ·         capitalised? The pieces are lower-cased, so they hide it
    tags     ADP   DET    NOUN   ·   PROPN    VERB   ·         parts of speech, where a treebank is on this machine

Case is there in every text that has it. A sentence's first word is left out: its case says nothing of the word.

Labelled words for probes of every layer: the questions, their words as pieces, and what each layer says of them.

    words    to   defeat    him   and   that   's   hard   to   do
    pieces   to   de ##feat him   and   that  ' s   hard   to   do       the mean of a word's pieces is its vector
    labels   ·       ·       ·     ·     ·      ·   HARD1  ·    ·        a sense, or a part of speech for every word

A network that reads letters gets every word whole, those it never saw by their spelling (`Unseen` of embedding.py).

A probe is trained for every question and layer. How strongly its weights are held back is chosen on the text that the
layers are chosen by, for each layer anew, so that none is at a disadvantage for having larger or rarer features.

What probes of every layer add up to: accuracies, best layers and differences, each with its 95 % interval.

    answers (seeds, L, words) ──by sentence──▶ sums ──drawn again 2,000 times──▶ accuracies (draws, L)

A draw is of whole sentences, for the words of one are not independent, and it is the same for all layers, so that their
differences are in pairs. The senses of each word are drawn by themselves and then averaged over the words.

Senses of four words in the newspaper, as NLTK has them from Senseval-2: hard, interest, line, serve.

    <instance id="line-n.w7_010:888:">
    <answer instance="line-n.w7_010:888:" senseid="cord"/>
    <context>
     <wf pos="JJ">safety</wf> <head> <wf pos="NNS">lines</wf></head> <wf pos="IN">on</wf> the 3 FRASL <wf …
    </context>
    </instance>

One file a word, read where it lies, in NLTK's zip or unpacked. All of it is in lower case. What is told by a person is
the sense of the word inside <head>. Some words stand outside any <wf>; FRASL is a stroke; <compound> and <s> mean
nothing here. The same context may be there twice, so contexts are shared out by what they say and not by their id.
"""

from __future__ import annotations

import zipfile
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError, iterparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.batching.examples import Unseen
from nextword.core.errors import NextwordError
from nextword.core.protocols import Infilling, Tokenizer
from nextword.core.types import Framed, Inputs
from nextword.data.catalog import data_home, find, shared_folders
from nextword.data.corpus import Corpus
from nextword.data.files import lines
from nextword.data.segmentation import sentences
from nextword.lm.embedding import batches, framed
from nextword.models.framing import collate
from nextword.studies._small_models import DRAWS, spans
from nextword.studies._study import Table, widest
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Marks

TREEBANK = "ud-english-ewt"
CASE, TAGS = "case", "parts of speech"
ROUNDS = 60  # of L-BFGS: enough for the training loss to stand still
RIDGE = 1e-4
AT_ONCE = 64

Words = Sequence[str]
Labelled = tuple[list[str], list[Any]]  # the words of a sentence, and a label or None for each


# ------------------------------------------------------------------------------------------------ labelled words


@dataclass(frozen=True)
class Rows:
    ids: np.ndarray  # (n, length)
    padding: np.ndarray  # (n, length) True where there is a token
    labels: np.ndarray  # (n, length) −1 where there is none


@dataclass(frozen=True)
class Task:
    name: str
    classes: tuple[Any, ...]
    train: Rows
    test: Rows

    @property
    def common(self) -> float:
        """How often the commonest class of the training words is right in the test."""
        seen = self.train.labels[self.train.labels >= 0]
        held = self.test.labels[self.test.labels >= 0]
        return float((held == np.bincount(seen).argmax()).mean())


def case_task(
    corpus: Corpus, splits: tuple[str, str], tokenizer: Tokenizer, length: int, counts: Sequence[int]
) -> Task:
    found = [list(islice(cased(corpus, split), n)) for split, n in zip(splits, counts, strict=True)]
    return _task(CASE, found[0], found[1], tokenizer, length)


def tags_task(tokenizer: Tokenizer, length: int, counts: Sequence[int]) -> Task | None:
    """Of the English Web Treebank; None where it is not on this machine."""
    files = treebank()
    if not {"train", "test"} <= set(files):
        return None
    found = [list(islice(tagged(lines(files[s][0])), n)) for s, n in zip(("train", "test"), counts, strict=True)]
    return _task(TAGS, found[0], found[1], tokenizer, length)


def treebank() -> dict[str, list[Path]]:
    """Its files by split; none where it is not on this machine."""
    entry = find(TREEBANK)
    place = entry.place() if entry else None
    return entry.locate(place) if entry and place else {}


def cased(corpus: Corpus, split: str) -> Iterator[Labelled]:
    """Sentences of all documents, in a random order that is always the same."""
    texts = [document.text for document in corpus.documents(split)]
    for at in np.random.default_rng(0).permutation(len(texts)):
        for low, high in sentences(texts[at]):
            words = texts[at][low:high].split()
            labels: list[Any] = [_capital(word) for word in words]
            if len(words) > 1:
                yield words, [None, *labels[1:]]


def _capital(word: str) -> bool | None:
    letter = next((c for c in word if c.isalpha()), "")
    return letter.isupper() if letter else None


def tagged(conllu: Iterable[str]) -> Iterator[Labelled]:
    """Sentences of a treebank in the format of Universal Dependencies: column 2 is the word, 4 its part of speech."""
    words: list[str] = []
    labels: list[Any] = []
    for line in (*conllu, "\n"):
        columns = line.rstrip("\n").split("\t")
        if len(columns) > 3 and columns[0].isdigit():
            words.append(columns[1].replace(" ", ""))
            labels.append(columns[3])
        elif not line.strip() and words:
            yield words, labels
            words, labels = [], []


def _task(name: str, train: Sequence[Labelled], test: Sequence[Labelled], tokenizer: Tokenizer, length: int) -> Task:
    classes = tuple(sorted({label for _, labels in train for label in labels if label is not None}, key=str))
    return Task(name, classes, *(_rows(part, classes, tokenizer, length) for part in (train, test)))


def _rows(found: Sequence[Labelled], classes: Sequence[Any], tokenizer: Tokenizer, length: int) -> Rows:
    marks = Marks.of(vocabulary(tokenizer))
    number = {label: i for i, label in enumerate(classes)}
    ids = np.full((len(found), length), marks.pad, np.int64)
    labels, sizes = np.full(ids.shape, -1, np.int64), np.zeros(len(found), np.int64)
    encodings = tokenizer.encode_batch([" ".join(words) for words, _ in found])
    for i, (encoding, (_, given)) in enumerate(zip(encodings, found, strict=True)):
        own = encoding.ids[: length - 2]
        ids[i, 0], ids[i, 1 : len(own) + 1], ids[i, len(own) + 1] = marks.cls, own, marks.sep
        sizes[i] = len(own) + 2
        words, first = np.unique(encoding.words[: length - 2], return_index=True)
        labels[i, first + 1] = [number.get(given[word], -1) for word in words]
    return Rows(ids, np.arange(length) < sizes[:, None], labels)


# ------------------------------------------------------------------------------------------------ the probe


@torch.no_grad()
def vectors(network: Any, rows: Rows, layer: int = -1) -> tuple[Tensor, Tensor]:
    """A layer at every labelled word (N, D), and the labels (N,)."""
    found = []
    for here in spans(len(rows.ids), AT_ONCE):
        inputs = Inputs(torch.from_numpy(rows.ids[here]), torch.from_numpy(rows.padding[here]))
        h = network.encode(inputs)[0][layer]
        found.append(h[torch.from_numpy(rows.labels[here] >= 0)])
    return torch.cat(found), torch.from_numpy(rows.labels[rows.labels >= 0])


def probed(network: Any, task: Task, layer: int = -1) -> np.ndarray:
    """Whether each labelled word of the test is told right by logistic regression on the vectors: (words,) bool."""
    guess = fitted(*vectors(network, task.train, layer), len(task.classes))
    held, right = vectors(network, task.test, layer)
    return (guess(held) == right).numpy()


def fitted(x: Tensor, y: Tensor, classes: int, ridge: float = RIDGE) -> Callable[[Tensor], Tensor]:
    """Logistic regression on vectors (N, D) and labels (N,): what it guesses for other vectors."""
    middle, spread = x.mean(0), x.std(0) + 1e-6
    x = (x - middle) / spread
    weight = torch.zeros(x.shape[1] + 1, classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ weight[1:] + weight[0], y) + ridge * weight[1:].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    weight.requires_grad_(False)
    return lambda held: ((held - middle) / spread @ weight[1:] + weight[0]).argmax(1)


NAME = "senseval"
ENDING = ".pos"
ZIPS = ("senseval.zip", "nltk/senseval.zip", "corpora/senseval.zip", "nltk_data/corpora/senseval.zip")
STROKE = "FRASL"
SHARED = (0.6, 0.8)  # 60, 20 and 20 % to learn from, to choose by and to test on
ABSENT = (
    "The contexts of Senseval-2 are not on this machine. They are NLTK's senseval.zip: put it into a folder that "
    "NEXTWORD_DATA names, or say `nextword data senseval --from senseval.zip`."
)


class Context(NamedTuple):
    words: list[str]
    at: int  # which of them has the sense
    sense: str


def place() -> Path | None:
    """Where they are on this machine: a zip, or a folder of .pos files."""
    for home in (data_home(), *shared_folders()):
        for name in ZIPS:
            if (home / name).is_file():
                return home / name
    entry = find(NAME)
    return entry.place() if entry else None


def senses(where: Path) -> dict[str, list[Context]]:
    """The contexts of each word, in the order of the files."""
    found: dict[str, list[Context]] = {}
    try:
        if where.is_file():
            with zipfile.ZipFile(where) as archive:
                for name in sorted(n for n in archive.namelist() if n.endswith(ENDING)):
                    with archive.open(name) as file:
                        found[Path(name).stem] = list(contexts(file, f"{where}, {name}"))
        else:
            for path in sorted(where.glob(f"**/*{ENDING}")):
                with path.open("rb") as file:
                    found[path.stem] = list(contexts(file, str(path)))
    except zipfile.BadZipFile as problem:
        raise NextwordError(f"{where} is no whole zip file: {problem}. Fetch it again.") from problem
    if not any(found.values()):
        raise NextwordError(
            f"{where} has no contexts of Senseval-2; expected were hard.pos, interest.pos, line.pos and serve.pos, as "
            "in NLTK's senseval.zip."
        )
    return found


def contexts(file: IO[bytes], name: str) -> Iterator[Context]:
    try:
        for _, element in iterparse(file):
            if element.tag == "instance":
                yield _context(element, name)
                element.clear()  # all of them together are a hundred megabytes
    except ParseError as problem:
        raise NextwordError(
            f"{name} cannot be read: {problem}. NLTK's files of Senseval-2 are well-formed XML; fetch them again."
        ) from problem


def _context(instance: Element, name: str) -> Context:
    answer, context = instance.find("answer"), instance.find("context")
    words: list[str] = []
    at: list[int] = []
    if context is not None:
        for word, head in _words(context, False):
            if head:
                at.append(len(words))
            words.append("/" if word == STROKE else word)
    if answer is None or not answer.get("senseid") or len(at) != 1:
        raise NextwordError(
            f"{name}, {instance.get('id')}: expected are one <answer senseid=…> and one word inside <head>; found are "
            f"{'an' if answer is not None else 'no'} answer and {len(at)} such words. Fetch the file again."
        )
    return Context(words, at[0], str(answer.get("senseid")))


def _words(element: Element, head: bool) -> Iterator[tuple[str, bool]]:
    """The words below an element, and whether each is inside <head>; text between the elements is words, too."""
    head = head or element.tag == "head"
    yield from ((word, head) for word in (element.text or "").split())
    for child in element:
        yield from _words(child, head)
        yield from ((word, head) for word in (child.tail or "").split())


def shared_out(found: Sequence[Context]) -> list[list[Context]]:
    """To learn from, to choose by, to test on: by a hash of the text, so always the same, and equal texts together."""
    out: list[list[Context]] = [[], [], []]
    for context in found:
        digest = sha256(" ".join(context.words).encode()).digest()
        out[bisect(SHARED, int.from_bytes(digest[:8], "big") / 2**64)].append(context)
    return out


SENSES = "senses"
RIDGES = (1e-4, 1e-3, 1e-2)
TOGETHER = 4096  # tokens read at once
ROOM = 1 << 30  # bytes of vectors held at once; more layers than fit are read in several goes


class Question(NamedTuple):
    """Sentences with labels: one question for all parts of speech, one for the senses of each word."""

    task: str
    word: str  # whose senses; "" where it is every word
    train: Sequence[Labelled]
    valid: Sequence[Labelled]
    test: Sequence[Labelled]


# ------------------------------------------------------------------------------------------------ questions


def tag_questions(counts: Sequence[int]) -> list[Question]:
    """So many sentences of the treebank's own three parts, drawn at random once and for all; none where it is not."""
    files = treebank()
    if not {"train", "valid", "test"} <= set(files):
        return []
    parts = [list(tagged(lines(files[split][0]))) for split in ("train", "valid", "test")]
    return [Question(TAGS, "", *(_some(part, n) for part, n in zip(parts, counts, strict=True)))]


def sense_questions(counts: Sequence[int]) -> list[Question]:
    """One for each word of Senseval-2, of at most so many contexts; none where they are not on this machine."""
    where = place()
    found = []
    for word, contexts in (senses(where) if where else {}).items():
        parts = [
            _some([(c.words, _at(c.at, c.sense, len(c.words))) for c in part], n)
            for part, n in zip(shared_out(contexts), counts, strict=True)
        ]
        found.append(Question(SENSES, word, *parts))
    return found


def _at(place: int, label: Any, size: int) -> list[Any]:
    return [label if i == place else None for i in range(size)]


def _some(found: Sequence[Labelled], count: int) -> list[Labelled]:
    """The files go topic by topic, so their beginning is no sample."""
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))[:count]]


def guesses(question: Question) -> dict[str, np.ndarray]:
    """Without any network: whether the commonest label of all is right for each word of the test, and of its form."""
    seen = [(word.lower(), label) for word, label in _pairs(question.train)]
    common = Counter(label for _, label in seen).most_common(1)[0][0]
    forms: dict[str, Counter[Any]] = {}
    for word, label in seen:
        forms.setdefault(word, Counter())[label] += 1
    likeliest = {word: count.most_common(1)[0][0] for word, count in forms.items()}
    held = list(_pairs(question.test))
    return {
        "all": np.array([label == common for _, label in held]),
        "form": np.array([label == likeliest.get(word.lower(), common) for word, label in held]),
    }


def _pairs(found: Sequence[Labelled]) -> Iterator[tuple[str, Any]]:
    return (
        (word, label) for words, labels in found for word, label in zip(words, labels, strict=True) if label is not None
    )


# ------------------------------------------------------------------------------------------------ pieces


@dataclass(frozen=True)
class Pieces:
    """Labelled words as a network reads them. It goes to other processes, so it is arrays."""

    windows: list[np.ndarray]  # ids
    words: list[np.ndarray]  # for each piece of a window: which labelled word it is of; −1: of none
    labels: np.ndarray  # (N,) class
    units: np.ndarray  # (N,) sentence

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Asked:
    """A question in a tokenizer's pieces."""

    task: str
    word: str
    classes: int
    train: Pieces
    valid: Pieces
    test: Pieces


def asked(question: Question, tokenizer: Tokenizer, room: int, unseen: Unseen | None = None) -> Asked:
    classes = sorted({label for _, label in _pairs(question.train)}, key=str)
    number = {label: i for i, label in enumerate(classes)}
    parts = (pieces(part, number, tokenizer, room, unseen) for part in question[2:])
    return Asked(question.task, question.word, len(classes), *parts)


def pieces(
    found: Sequence[Labelled], number: dict[Any, int], tokenizer: Tokenizer, room: int, unseen: Unseen | None = None
) -> Pieces:
    """Windows of at most `room` pieces. A label that was not learnt is asked nevertheless, and always missed: −1."""
    windows: list[np.ndarray] = []
    words: list[np.ndarray] = []
    labels: list[int] = []
    units: list[int] = []
    split = split_up([w for w, _ in found], tokenizer, unseen)
    for unit, ((ids, places), (_, given)) in enumerate(zip(split, found, strict=True)):
        wanted = [i for i, label in enumerate(given) if label is not None]
        for here in cut(places, wanted, room):
            of = np.full(here.stop - here.start, -1)
            for word in np.intersect1d(places[here], wanted):
                of[places[here] == word] = len(labels)
                labels.append(number.get(given[word], -1))
                units.append(unit)
            if (of >= 0).any():
                windows.append(np.asarray(ids[here], np.int64))
                words.append(of)
    return Pieces(windows, words, np.array(labels, np.int64), np.array(units, np.int64))


def split_up(
    found: Sequence[Sequence[str]], tokenizer: Tokenizer, unseen: Unseen | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ids of each sentence, and which of its words each belongs to. Who reads letters has an id for any word."""
    if unseen is not None and unseen.spells:
        yield from ((unseen.of_words(words), np.arange(len(words))) for words in found)
    else:
        encodings = tokenizer.encode_batch([" ".join(words) for words in found])
        yield from ((encoding.ids, encoding.words) for encoding in encodings)


def cut(words: np.ndarray, wanted: Sequence[int], room: int) -> list[slice]:
    """A text in windows of whole words; where one word alone is asked about, a single window with it in the middle."""
    if len(words) <= room:
        return [slice(0, len(words))]
    if len(wanted) == 1:
        middle = int(np.flatnonzero(words == wanted[0]).mean()) if wanted[0] in words else 0
        first = min(max(middle - room // 2, 0), len(words) - room)
        return [slice(first, first + room)]
    begins = np.flatnonzero(np.diff(words, prepend=-1))
    starts = [0]
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(words)], strict=True):
        if end - starts[-1] > room and begin > starts[-1]:
            starts.append(begin)
    return [slice(a, min(z, a + room)) for a, z in zip(starts, [*starts[1:], len(words)], strict=True)]


# ------------------------------------------------------------------------------------------------ vectors


class Answers(NamedTuple):
    """Of one network and one question: right or not, layer by layer."""

    valid: np.ndarray  # (L, words) bool
    test: np.ndarray  # (L, words) bool


def frame_of(network: Any, ids: Sequence[int] | np.ndarray) -> Framed:
    """As the network knows texts: from left to right after the token that begins them, otherwise in its own frame."""
    if isinstance(network, Infilling) or getattr(network, "is_bidirectional", False):
        return framed(network, ids)
    read = np.array([network.vocabulary.begin, *ids], np.int64)
    return Framed(read, len(read) - 1, parts=((1, len(read)),))


@torch.no_grad()
def word_vectors(
    network: Any,
    given: Pieces,
    layers: Sequence[int],
    read: Callable[[int], None] = lambda windows: None,
    unseen: Unseen | None = None,
) -> list[Tensor]:
    """Of each of these layers the vectors (N, D) of the labelled words: the mean of their pieces."""
    found = [torch.zeros(len(given), network.widths[layer]) for layer in layers]
    order = sorted(range(len(given.windows)), key=lambda i: -len(given.windows[i]))
    size = torch.bincount(torch.from_numpy(np.concatenate([w[w >= 0] for w in given.words])), minlength=len(given))
    for batch in batches(iter(order), TOGETHER, lambda i: len(given.windows[i])):
        frames = [frame_of(network, given.windows[i]) for i in batch]
        inputs, _ = collate(frames, pad=network.vocabulary.begin, device=network.device)
        of = np.full(inputs.ids.shape, -1)
        for row, (i, frame) in enumerate(zip(batch, frames, strict=True)):
            of[row, slice(*frame.parts[0])] = given.words[i]
        there = torch.from_numpy(of >= 0)
        which = torch.from_numpy(of[of >= 0])
        outputs = network.encode(inputs if unseen is None else unseen.spelled(inputs))[0]
        for part, layer in zip(found, layers, strict=True):
            part.index_add_(0, which, outputs[layer].cpu().float()[there])
        read(len(batch))
    return [part.div_(size.unsqueeze(1)) for part in found]


def goes(network: Any, question: Asked) -> list[list[int]]:
    """The layers, in as many goes as there is need for: neighbours whose vectors fit together."""
    words = len(question.train) + len(question.valid) + len(question.test)
    return list(batches(iter(range(len(network.widths))), ROOM, lambda i: 4 * words * network.widths[i]))


def answers(
    network: Any,
    question: Asked,
    read: Callable[[int], None] = lambda windows: None,
    unseen: Unseen | None = None,
) -> Answers:
    """Probes of all layers."""
    valid, test = [], []
    for layers in goes(network, question):
        train, *held = (
            word_vectors(network, part, layers, read, unseen)
            for part in (question.train, question.valid, question.test)
        )
        for x, *both in zip(train, *held, strict=True):
            hits = probe(x, question, both)
            valid.append(hits[0])
            test.append(hits[1])
    return Answers(np.stack(valid), np.stack(test))


def probe(x: Tensor, question: Asked, held: Sequence[Tensor]) -> list[np.ndarray]:
    """Whether the best probe of several is right, on the text that it is the best on and on the test."""
    best: list[np.ndarray] = []
    for ridge in RIDGES:
        guess = fitted(x, torch.from_numpy(question.train.labels), question.classes, ridge)
        hits = [
            (guess(part) == torch.from_numpy(right.labels)).numpy()
            for part, right in zip(held, (question.valid, question.test), strict=True)
        ]
        if not best or hits[0].mean() > best[0].mean():
            best = hits
    return best


OTHER, EMBEDDING, LAST = "the other task's best", "layer 0, the embedding", "the last layer"
COMMON, FORM = "the commonest label", "the commonest label of the same word form"
INTERVALS = (
    "95 %, a bootstrap over sentences and contexts, the same for all layers (so differences are in pairs); where there "
    "are several seeds, the wider of that and of Student's t over them"
)

Found = dict[str, list[list[Answers]]]  # network → seed by seed → question by question


class Sums(NamedTuple):
    """Right answers to one question, by sentence: what a bootstrap draws is sentences."""

    right: np.ndarray  # (seeds, L, sentences)
    size: np.ndarray  # (sentences,) words that are asked about

    def accuracy(self) -> np.ndarray:
        """(seeds, L)"""
        return 100 * self.right.sum(2) / self.size.sum()


def summed(hits: Sequence[np.ndarray], units: np.ndarray) -> Sums:
    """Of hits (L, words) of each seed, and the sentence of each word."""
    where = np.unique(units, return_inverse=True)[1]
    size = np.bincount(where)
    right = [[np.bincount(where, layer, len(size)) for layer in seed] for seed in hits]
    return Sums(np.array(right), size)


def drawn(questions: Sequence[Sums], seed: int) -> np.ndarray:
    """(draws, L): accuracies in per cent over sentences drawn again, the mean over questions and over networks."""
    draw = np.random.default_rng(seed)
    total = np.zeros((DRAWS, questions[0].right.shape[1]))
    for right, size in questions:
        times = draw.multinomial(len(size), np.full(len(size), 1 / len(size)), DRAWS)  # (draws, sentences)
        total += 100 * (times @ right.mean(0).T) / (times @ size)[:, None]
    return total / len(questions)


def told(middle: float, by_seed: np.ndarray, draws: np.ndarray, alone: bool) -> list[float]:
    """[middle, low, high]: over the text, and over the seeds where they are wider.

    `alone`: the network is given, so nothing but the text is a draw. Otherwise one seed has no interval.
    """
    low, high = (float(np.quantile(draws, q)) for q in (0.025, 0.975))
    return [middle, low, high] if alone and len(by_seed) < 2 else widest(middle, by_seed, (low, high))


class Level(NamedTuple):
    """One network at one task. The commonest label is the last row of `test`, as if it were a layer."""

    valid: np.ndarray  # (seeds, L)
    valid_draws: np.ndarray  # (draws, L)
    test: np.ndarray  # (seeds, L + 1)
    test_draws: np.ndarray  # (draws, L + 1)

    @property
    def best(self) -> int:
        return int(self.valid.mean(0).argmax())


def level(seeds: Sequence[Sequence[Answers]], questions: Sequence[Asked], task: str) -> Level:
    sums: list[list[Sums]] = [[], []]
    for i, question in enumerate(questions):
        if question.task == task:
            usual = (question.test.labels == np.bincount(question.train.labels).argmax())[None]
            sums[0].append(summed([found[i].valid for found in seeds], question.valid.units))
            sums[1].append(summed([np.concatenate([f[i].test, usual]) for f in seeds], question.test.units))
    valid, test = (np.mean([s.accuracy() for s in part], axis=0) for part in sums)
    return Level(valid, drawn(sums[0], 0), test, drawn(sums[1], 1))


# ------------------------------------------------------------------------------------------------ tables

Levels = dict[str, dict[str, Level]]  # network → task


def tables_of(found: Found, questions: Sequence[Asked], asks: Sequence[Question], alone: bool) -> dict[str, Table]:
    tasks = tuple(dict.fromkeys(question.task for question in questions))
    levels = {name: {task: level(seeds, questions, task) for task in tasks} for name, seeds in found.items()}
    return {
        "layers": _layers(levels, tasks, alone),
        "best": _best(levels, tasks, alone),
        "differences": _differences(levels, tasks, alone),
        "halves": _halves(levels, tasks, alone),
        "guesses": _guesses(asks, tasks),
        "words": _number_words(found, questions),
    }


def _layers(levels: Levels, tasks: Sequence[str], alone: bool) -> Table:
    rows = []
    for name, by in levels.items():
        for layer in range(by[tasks[0]].valid.shape[1]):
            cells = [
                told(float(at.test[:, layer].mean()), at.test[:, layer], at.test_draws[:, layer], alone)
                for at in (by[task] for task in tasks)
            ]
            rows.append((name, layer, *cells))
    return Table(
        "Right in the test, %, by a linear probe of each layer: mean and 95 % interval",
        ("network", "layer", *tasks),
        tuple(rows),
    )


def _best(levels: Levels, tasks: Sequence[str], alone: bool) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, by in levels.items():
        top = [(at.best, at.valid.argmax(1), at.valid_draws.argmax(1)) for at in (by[task] for task in tasks)]
        if len(tasks) > 1:
            (a, seeds_a, draws_a), (b, seeds_b, draws_b) = top
            top.append((b - a, seeds_b - seeds_a, draws_b - draws_a))
        depth = by[tasks[0]].valid.shape[1] - 1
        cells = [
            [_layer(value, 0 if i < len(tasks) else -depth, depth) for value in told(*found, alone=alone)]
            for i, found in enumerate(top)
        ]
        rows.append((name, *cells, *[None] * (2 - len(tasks))))
    return Table(
        "The layer with the best probe on validation text, and its 95 % interval",
        ("network", *tasks, "apart"),
        tuple(rows),
    )


def _layer(value: float, least: int, most: int) -> float:
    """As a count, where it is one, and within what there is: Student's t knows nothing of a first and a last layer."""
    if np.isfinite(value):
        value = min(max(value, least), most)
    return int(value) if float(value).is_integer() else float(value)


def _differences(levels: Levels, tasks: Sequence[str], alone: bool) -> Table:
    rows = []
    for name, by in levels.items():
        depth = by[tasks[0]].valid.shape[1]
        against = {OTHER: [by[task].best for task in tasks[::-1]]} if len(tasks) > 1 else {}
        against |= {EMBEDDING: [0] * len(tasks), LAST: [depth - 1] * len(tasks), COMMON: [depth] * len(tasks)}
        for what, others in against.items():
            cells = []
            for task, other in zip(tasks, others, strict=True):
                at = by[task]
                seeds, draws = (part[:, at.best] - part[:, other] for part in (at.test, at.test_draws))
                cells.append(told(float(seeds.mean()), seeds, draws, alone))
            rows.append((name, what, *cells))
    return Table(
        "Points by which the best layer is above, in the test: mean and 95 % interval",
        ("network", "above", *tasks),
        tuple(rows),
    )


def _halves(levels: Levels, tasks: Sequence[str], alone: bool) -> Table:
    """Nothing is chosen here: the mean of the lower half of the layers against the mean of the upper half.

    The embedding belongs to neither, nor does a layer in the middle.
    """
    rows: list[tuple[Any, ...]] = []
    for name, by in levels.items():
        depth = by[tasks[0]].valid.shape[1] - 1
        half = depth // 2
        if not half:
            continue
        lower, upper = slice(1, 1 + half), slice(1 + depth - half, 1 + depth)
        cells: list[Any] = []
        for at in by.values():
            seeds, draws = (part[:, lower].mean(1) - part[:, upper].mean(1) for part in (at.test, at.test_draws))
            cells.append(told(float(seeds.mean()), seeds, draws, alone))
        rows.append((name, *cells))
    return Table(
        "Points by which the lower half of the layers is above the upper half, in the test: mean and 95 % interval",
        ("network", *tasks),
        tuple(rows),
    )


def _guesses(asks: Sequence[Question], tasks: Sequence[str]) -> Table:
    right = {(q.task, q.word): guesses(q) for q in asks}
    rows = [
        (name, *(float(np.mean([100 * r[way].mean() for (t, _), r in right.items() if t == task])) for task in tasks))
        for name, way in ((COMMON, "all"), (FORM, "form"))
    ]
    return Table("Right in the test without any network, %", ("guess", *tasks), tuple(rows))


def _number_words(found: Found, questions: Sequence[Asked]) -> Table:
    """The senses word by word; the commonest sense of each in the last row."""
    asks = [(i, question) for i, question in enumerate(questions) if question.word]
    rows: list[tuple[Any, ...]] = []
    for name, seeds in found.items():
        for layer in range(len(seeds[0][0].valid)):
            cells = [float(np.mean([100 * by[i].test[layer].mean() for by in seeds])) for i, _ in asks]
            rows.append((name, layer, *cells))
    usual = [100 * float((q.test.labels == np.bincount(q.train.labels).argmax()).mean()) for _, q in asks]
    rows.append((COMMON, None, *usual))
    return Table(
        "Senses right in the test, %, word by word",
        ("network", "layer", *(q.word for _, q in asks)),
        tuple(rows),
        detailed=True,
    )
