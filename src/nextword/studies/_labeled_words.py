"""Words with labels, for probes and nearest-neighbor tests: parts of speech, capitalization, and word senses.

Parts of speech come from the English Web Treebank (Universal Dependencies), if it is on this machine. Capitalization
exists in every cased text; the first word of a sentence has no label, because its case says nothing about the word.

Senses of *hard*, *interest*, *line* and *serve* come from Senseval-2 as NLTK distributes it: one XML file per word,
in NLTK's zip or unpacked.

    <instance id="line-n.w7_010:888:">
    <answer instance="line-n.w7_010:888:" senseid="cord"/>
    <context>
     <wf pos="JJ">safety</wf> <head> <wf pos="NNS">lines</wf></head> <wf pos="IN">on</wf> the 3 FRASL <wf …
    </context>
    </instance>

The sense belongs to the word inside <head>. Some words stand outside any <wf>; FRASL is a slash; <compound> and <s>
are ignored. A context may occur twice, so contexts are assigned to splits by their text, not by their id.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError, iterparse

import numpy as np

from nextword.core.errors import DataError
from nextword.data.catalog import data_folders, find_entry
from nextword.data.corpus import Corpus
from nextword.data.files import open_archive, read_lines
from nextword.data.segmentation import sentence_spans

TREEBANK = "ud-english-ewt"
CASE, TAGS, SENSES = "capitalization", "parts of speech", "senses"

Labeled = tuple[list[str], list[Any]]  # the words of a sentence, and a label or None for each


# ------------------------------------------------------------------------------------------------ parts of speech, case


def treebank_files() -> dict[str, list[Path]]:
    """The files of the treebank by split; empty if it is not on this machine."""
    entry = find_entry(TREEBANK)
    place = entry.find_folder() if entry else None
    return entry.locate(place) if entry and place else {}


def read_treebank(split: str) -> Iterator[Labeled]:
    return parse_conllu(read_lines(treebank_files()[split][0]))


def parse_conllu(conllu: Iterable[str]) -> Iterator[Labeled]:
    """Sentences in CoNLL-U: column 2 is the word, column 4 its part of speech."""
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


def label_capitals(corpus: Corpus, split: str) -> Iterator[Labeled]:
    """Sentences of all documents, in a fixed random order, labeled by capitalization."""
    texts = [document.text for document in corpus.documents(split)]
    for index in np.random.default_rng(0).permutation(len(texts)):
        for low, high in sentence_spans(texts[index]):
            words = texts[index][low:high].split()
            labels: list[Any] = [is_capitalized(word) for word in words]
            if len(words) > 1:
                yield words, [None, *labels[1:]]


def is_capitalized(word: str) -> bool | None:
    letter = next((c for c in word if c.isalpha()), "")
    return letter.isupper() if letter else None


# ------------------------------------------------------------------------------------------------ Senseval-2

SENSEVAL = "senseval"
SUFFIX = ".pos"
ZIPS = ("senseval.zip", "nltk/senseval.zip", "corpora/senseval.zip", "nltk_data/corpora/senseval.zip")
SLASH = "FRASL"
SPLITS = (0.6, 0.8)  # 60 % train, 20 % validation, 20 % test
NO_SENSEVAL = (
    "Senseval-2 is not on this machine. Put NLTK's senseval.zip into a folder listed in NEXTWORD_DATA, or run "
    "`nextword data senseval --install senseval.zip`."
)


class Context(NamedTuple):
    words: list[str]
    position: int  # index of the word with the sense
    sense: str


def find_senseval() -> Path | None:
    """The zip, or a folder of .pos files; None if it is not on this machine."""
    for home in data_folders():
        for name in ZIPS:
            if (home / name).is_file():
                return home / name
    entry = find_entry(SENSEVAL)
    return entry.find_folder() if entry else None


def read_senseval(path: Path) -> dict[str, list[Context]]:
    """The contexts of each word, in the order of the files."""
    contexts: dict[str, list[Context]] = {}
    if path.is_file():
        with open_archive(path) as archive:
            for name in sorted(name for name, _ in archive.members() if name.endswith(SUFFIX)):
                with archive.open(name) as file:
                    contexts[Path(name).stem] = list(parse_contexts(file, f"{path}, {name}"))
    else:
        for member in sorted(path.glob(f"**/*{SUFFIX}")):
            with member.open("rb") as file:
                contexts[member.stem] = list(parse_contexts(file, str(member)))
    if not any(contexts.values()):
        raise DataError(
            f"{path} contains no Senseval-2 contexts. Expected hard.pos, interest.pos, line.pos and serve.pos, as in "
            "NLTK's senseval.zip.",
            path=path,
        )
    return contexts


def parse_contexts(file: IO[bytes], name: str) -> Iterator[Context]:
    try:
        for _, element in iterparse(file):
            if element.tag == "instance":
                yield _parse_context(element, name)
                element.clear()  # all elements together take a hundred megabytes
    except ParseError as error:
        raise DataError(f"{name} is not well-formed XML: {error}. Download it again.", path=name) from error


def _parse_context(instance: Element, name: str) -> Context:
    answer, context = instance.find("answer"), instance.find("context")
    words: list[str] = []
    heads: list[int] = []
    if context is not None:
        for word, is_head in _words_of(context, False):
            if is_head:
                heads.append(len(words))
            words.append("/" if word == SLASH else word)
    if answer is None or not answer.get("senseid") or len(heads) != 1:
        raise DataError(
            f"{name}, instance {instance.get('id')}: expected one <answer senseid=…> and one word in <head>, got "
            f"{int(answer is not None)} and {len(heads)}. Download the file again.",
            path=name,
        )
    return Context(words, heads[0], str(answer.get("senseid")))


def _words_of(element: Element, in_head: bool) -> Iterator[tuple[str, bool]]:
    """The words below an element, and whether each is inside <head>; text between elements counts."""
    in_head = in_head or element.tag == "head"
    yield from ((word, in_head) for word in (element.text or "").split())
    for child in element:
        yield from _words_of(child, in_head)
        yield from ((word, in_head) for word in (child.tail or "").split())


def split_contexts(contexts: Sequence[Context]) -> list[list[Context]]:
    """Train, validation and test, by a hash of the text: always the same, and equal texts stay together."""
    parts: list[list[Context]] = [[], [], []]
    for context in contexts:
        digest = sha256(" ".join(context.words).encode()).digest()
        parts[bisect(SPLITS, int.from_bytes(digest[:8], "big") / 2**64)].append(context)
    return parts


# ------------------------------------------------------------------------------------------------ questions


class Question(NamedTuple):
    """Labeled sentences of one task: one question for all parts of speech, one for the senses of each word."""

    task: str
    word: str  # whose senses; "" for tasks about every word
    train: Sequence[Labeled]
    valid: Sequence[Labeled]
    test: Sequence[Labeled]


def tag_questions(counts: Sequence[int]) -> list[Question]:
    """A fixed random sample of the treebank's splits; empty if it is not on this machine."""
    if not {"train", "valid", "test"} <= set(treebank_files()):
        return []
    parts = [list(read_treebank(split)) for split in ("train", "valid", "test")]
    return [Question(TAGS, "", *(_sample(part, n) for part, n in zip(parts, counts, strict=True)))]


def sense_questions(counts: Sequence[int]) -> list[Question]:
    """One question for each word of Senseval-2; empty if it is not on this machine."""
    path = find_senseval()
    questions = []
    for word, contexts in (read_senseval(path) if path else {}).items():
        parts = [
            _sample([(c.words, [c.sense if i == c.position else None for i in range(len(c.words))]) for c in part], n)
            for part, n in zip(split_contexts(contexts), counts, strict=True)
        ]
        questions.append(Question(SENSES, word, *parts))
    return questions


def _sample(labeled: Sequence[Labeled], count: int) -> list[Labeled]:
    """At random, because the files are ordered by topic."""
    return [labeled[i] for i in np.random.default_rng(0).permutation(len(labeled))[:count]]


def words_and_labels(labeled: Sequence[Labeled]) -> Iterator[tuple[str, Any]]:
    return (
        (word, label)
        for words, labels in labeled
        for word, label in zip(words, labels, strict=True)
        if label is not None
    )


def guess_without_network(question: Question) -> dict[str, np.ndarray]:
    """For each test word, whether the most frequent label is right: of all words, and of the same word form."""
    seen = [(word.lower(), label) for word, label in words_and_labels(question.train)]
    common = Counter(label for _, label in seen).most_common(1)[0][0]
    forms: dict[str, Counter[Any]] = {}
    for word, label in seen:
        forms.setdefault(word, Counter())[label] += 1
    by_form = {word: count.most_common(1)[0][0] for word, count in forms.items()}
    test = list(words_and_labels(question.test))
    return {
        "all": np.array([label == common for _, label in test]),
        "form": np.array([label == by_form.get(word.lower(), common) for word, label in test]),
    }
