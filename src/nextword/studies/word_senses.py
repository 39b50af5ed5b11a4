"""Does a word with two meanings get one vector or two? One that looks words up against one that reads the sentence.

What a word means in a place is rarely written down. So words are made whose meaning is known (Gale, Church & Yarowsky
1992; Schütze 1992): two ordinary words become one, in the text to learn from and in the held-out one.

    he broke the BREAD/SWORD and gave it to them        meant: bread
    he drew his BREAD/SWORD and went out                meant: sword

    skip-gram   a table: one vector for BREAD/SWORD, whatever stands around it
    ELMo        a small one: its input, which knows the letters, and its layers, which read what stands around

Every vector is asked what is meant by the simplest means: which of two means, of the places of either meaning in the
text that was learnt from, it is nearer to. Who cannot tell says the commoner meaning. This works in any language that
can be cut into words, Chinese by its characters. Where the text is English and Senseval-2 on the machine, real senses
are asked for, too (word_senses_real.py).

With --run RUN a network is asked that was trained before. It reads the first word of a made one in both meanings, and
never learnt them as one word.

The figure of the study of meanings: whose vectors tell them apart, of made words and of real ones.

Real words for the study of meanings: senses that people wrote down, a word twice in a sentence, a few to look at.

senses     hard, interest, line, serve of Senseval-2, in English. What is meant in a place is what is meant in most
           of the K places, of those that are known, whose vectors are the nearest. Places that are equally near vote
           together: where a form has one vector, all its places do, and what they say is its commonest sense.
twice      the same word at two places of a sentence: the cosine of its two vectors, which of a table is 1
examples   bank, play, and 画画: "he paints a painting", where the first 画 is a verb and the second a noun
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nextword.studies._experiment import corpus_for, enough, spread
from nextword.studies._probes import ABSENT, Question, sense_questions
from nextword.studies._small_models import (
    CELLS,
    CHINESE,
    ENGLISH,
    INTERVALS,
    PASSES,
    STATIC,
    WIDTH,
    Place,
    Read,
    Sentence,
    Size,
    Words,
    certain,
    language,
    opened,
    ranged,
    reader,
    unit,
    words_of,
)
from nextword.studies._study import (
    BLUE,
    GREY,
    INK,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    below,
    judged,
    over_seeds,
)
from nextword.studies.masked_vs_causal import levels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 5)
    figure.set_layout_engine("constrained", wspace=0.06)
    right, other, words = figure.subplots(1, 3, width_ratios=(1, 1, 1.2))
    levels(tables["vectors"], right, "vector", "right, %", "Words made of two", "% of the places")
    if "senses" in tables:
        title = "Real words (Senseval-2)"
        levels(tables["senses"], other, "vector", "right, %", title, "% of the senses told")
    else:
        levels(tables["vectors"], other, "vector", "nearer", "Nearer to its own meaning", "cosine", named=False)
    _words(tables["words"], words)


def _words(table: Table, axes: Any) -> None:
    """A line a word: from what the table's vector says to what the last layer says."""
    first, last = table.columns[2], table.columns[-1]
    rows = sorted(zip(table.column("word"), table.column(first), table.column(last), strict=True), key=lambda r: r[2])
    for y, (_, before, after) in enumerate(rows):
        axes.plot([before, after], [y, y], color=GREY, linewidth=1)
        axes.plot(before, y, "o", color=VERMILION, markersize=5, label=first if y == 0 else None)
        axes.plot(after, y, "o", color=BLUE, markersize=5, label=last if y == 0 else None)
    names = [word if word.isascii() else f"word {i + 1}" for i, (word, *_) in enumerate(rows)]  # the font has no others
    axes.set_yticks(range(len(rows)), names, color=INK)
    axes.set(xlabel="right, %")
    axes.grid(axis="y", visible=False)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title("Word by word")


K = 9
NEAR = 1e-6  # cosines that differ by less are equal, as float32 has them
TWICE = 200  # sentences
RIVER, HARP = "he stood on the *bank* of the river .", "they will *play* the harp before the king ."
EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {  # the word that is meant between stars
    ENGLISH: (
        (RIVER, "they sat down by the *bank* of the sea ."),
        (RIVER, "he put his money in the *bank* ."),
        (HARP, "let him *play* on the trumpet ."),
        (HARP, "the boys and the girls *play* in the streets ."),
    ),
    CHINESE: (("他 *画* 画 。", "他 画 *画* 。"),),
}


class Labelled(NamedTuple):
    """The senses of one word: places whose sense is known, and places that are asked about."""

    word: str
    known: list[Place]
    senses: np.ndarray  # of the known ones
    asked: list[Place]
    meant: np.ndarray  # of the asked ones; −1 for a sense that is not among the known


class Real(NamedTuple):
    """All that is asked of real words."""

    senses: list[Labelled]
    twice: list[tuple[Place, Place]]
    examples: list[tuple[Place, Place]]


# ------------------------------------------------------------------------------------------------ what is asked


def labelled(counts: Sequence[int]) -> list[Labelled]:
    """At most so many places of each word of Senseval-2, known and asked; none where it is not on this machine."""
    return [_labelled(question) for question in sense_questions((counts[0], 0, counts[1]))]


def _labelled(question: Question) -> Labelled:
    (known, senses), (asked, meant) = (_places(part) for part in (question.train, question.test))
    names = {sense: i for i, sense in enumerate(sorted(set(senses)))}
    numbers = [np.array([names.get(sense, -1) for sense in part]) for part in (senses, meant)]
    return Labelled(question.word, known, numbers[0], asked, numbers[1])


def _places(found: Sequence[tuple[list[str], list[str | None]]]) -> tuple[list[Place], list[str]]:
    at = [next(i for i, label in enumerate(labels) if label is not None) for _, labels in found]
    return [Place(words, i) for (words, _), i in zip(found, at, strict=True)], [
        str(labels[i]) for (_, labels), i in zip(found, at, strict=True)
    ]


def repeated(found: Sequence[Sentence], without: set[str]) -> list[tuple[Place, Place]]:
    """Sentences, drawn at random once and for all, with their first word that comes again, if it is none of these."""
    pairs = []
    for i in np.random.default_rng(0).permutation(len(found)):
        seen: dict[str, int] = {}
        for at, word in enumerate(found[i]):
            if word in seen and word.isalpha() and word not in without:
                pairs.append((Place(found[i], seen[word]), Place(found[i], at)))
                break
            seen.setdefault(word, at)
        if len(pairs) == TWICE:
            break
    return pairs


def examples(language: str) -> list[tuple[Place, Place]]:
    return [(starred(here), starred(there)) for here, there in EXAMPLES.get(language, ())]


def starred(text: str) -> Place:
    """The place of the word between stars."""
    words = text.split()
    return Place([word.strip("*") for word in words], next(i for i, word in enumerate(words) if word[0] == "*"))


# ------------------------------------------------------------------------------------------------ what vectors say


def neighbours(known: np.ndarray, senses: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """(m,) what is meant in the places asked, by the vote of the nearest; of equally many votes the commoner sense."""
    cosines = unit(asked) @ unit(known).T  # (m, n)
    k = min(K, len(senses))
    least = np.partition(cosines, -k, axis=1)[:, -k] - NEAR
    count = np.bincount(senses)
    votes = (cosines >= least[:, None]).astype(float) @ np.eye(len(count))[senses]  # (m, senses)
    return (votes + count / (10 * count.sum())).argmax(1)


def told_senses(read: Read, asked: Sequence[Labelled]) -> dict[str, list[np.ndarray]]:
    """By name of the vector, for each word: 100 where the sense is told and 0 where it is not."""
    found: dict[str, list[np.ndarray]] = {}
    for one in asked:
        known, held = read(one.known), read(one.asked)
        for name, vectors in known.items():
            guess = neighbours(vectors, one.senses, held[name])
            found.setdefault(name, []).append(100.0 * (guess == one.meant))
    return found


def commonest(asked: Sequence[Labelled]) -> list[np.ndarray]:
    """The same for who always says the commonest sense."""
    return [100.0 * (one.meant == np.bincount(one.senses).argmax()) for one in asked]


def alike(read: Read, pairs: Sequence[tuple[Place, Place]]) -> dict[str, np.ndarray]:
    """By name of the vector, the cosine of each pair's two."""
    if not pairs:
        return {}
    first, second = (read([pair[i] for pair in pairs]) for i in (0, 1))
    return {name: (unit(vectors) * unit(second[name])).sum(1) for name, vectors in first.items()}


CLAIM = Claim(
    "A table gives a word one vector for all that it means; a network that reads its context gives it another in "
    "another meaning.",
    "Peters et al. 2018, sections 1 and 5.3; lecture notes on ELMo: word2vec gives both 画 of 画画 the same vector",
)
TAKES_RUN = True  # --run
PIECES = 4000  # words that have ids
FULL = Size(width=64, layers=2, rows=64, length=20, steps=400, rate=6e-3)
QUICK = Size(width=32, layers=2, rows=32, length=16, steps=150, rate=8e-3)
PAIRS, COMMONEST = 16, 60  # made words; and so many of the commonest words are not taken, for they mean little
KNOWN, ASKED = 100, 60  # places of each meaning of a made word, at most
SENSES = (300, 150)  # places of each word of Senseval-2, known and asked
LEAST = 400  # held-out places
SAME = 1e-9  # cosines that differ by less are equal
COMMON = "the commonest sense"


class Places(NamedTuple):
    """Where a made word stands, and which of its two words stood there."""

    where: list[Place]
    pair: np.ndarray  # (n,)
    meant: np.ndarray  # (n,) 0 or 1


# ------------------------------------------------------------------------------------------------ made words


def pairs_of(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Words of like frequency, the commonest left out."""
    order = sorted(counts, key=lambda word: (-counts[word], word))
    words = [word for word in order if word.isalpha() and (len(word) > 2 or not word.isascii())]
    chosen = words[COMMONEST : COMMONEST + 2 * PAIRS]
    return list(zip(chosen[::2], chosen[1::2], strict=False))


def merged(found: Sequence[Sequence[str]], pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The text with the first word of each pair wherever either stood."""
    instead = {second: first for first, second in pairs}
    return [[instead.get(word, word) for word in words] for words in found]


def places(found: Sequence[list[str]], pairs: Sequence[tuple[str, str]], most: int) -> Places:
    """Places of made words, in sentences drawn at random once and for all: at most so many of each meaning."""
    number = {word: (pair, meant) for pair, both in enumerate(pairs) for meant, word in enumerate(both)}
    left = dict.fromkeys(number, most)
    where: list[Place] = []
    which: list[tuple[int, int]] = []
    for i in np.random.default_rng(0).permutation(len(found)):
        (read,) = merged([found[i]], pairs)
        for at, word in enumerate(found[i]):
            if left.get(word, 0) > 0:
                left[word] -= 1
                where.append(Place(read, at))
                which.append(number[word])
    pair, meant = np.array(which, np.int64).reshape(-1, 2).T
    return Places(where, pair, meant)


def _only(given: Places, pairs: Sequence[int]) -> Places:
    kept = np.isin(given.pair, pairs)
    return Places([p for p, k in zip(given.where, kept, strict=True) if k], given.pair[kept], given.meant[kept])


def told(vectors: np.ndarray, others: np.ndarray, known: Places, asked: Places) -> tuple[np.ndarray, np.ndarray]:
    """Of each pair: % of the places whose meaning is told, and how much nearer the same meaning is."""
    right, nearer = [], []
    for pair in np.unique(asked.pair):
        mine, theirs = known.pair == pair, asked.pair == pair
        meant = asked.meant[theirs]
        means = [unit(vectors[mine & (known.meant == k)]).mean(0) for k in (0, 1)]
        cosines = unit(others[theirs]) @ unit(np.stack(means)).T  # (m, 2)
        apart = cosines[:, 1] - cosines[:, 0]
        apart[np.abs(apart) < SAME] = 0.0
        commoner = np.mean(known.meant[mine]) > 0.5
        said = np.where(apart == 0, commoner, apart > 0)
        right.append(100 * np.mean(said == meant))
        nearer.append(np.mean(np.where(meant == 1, apart, -apart)))
    return np.array(right), np.array(nearer)


# ------------------------------------------------------------------------------------------------ one run


class Found(NamedTuple):
    """What one seed's vectors say, by their names."""

    made: dict[str, tuple[np.ndarray, np.ndarray]]
    senses: dict[str, list[np.ndarray]]
    twice: dict[str, np.ndarray]
    examples: dict[str, np.ndarray]


def looked(seed: int, size: Size, text: Words, run: str, known: Places, asked: Places, real: Real) -> Found:
    read = reader(seed, size, text, PIECES, run)
    return Found(
        of_made(read, known, asked),
        told_senses(read, real.senses),
        alike(read, real.twice),
        alike(read, real.examples),
    )


def of_made(read: Read, known: Places, asked: Places) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    of_known, of_asked = read(known.where), read(asked.where)
    return {name: told(vectors, of_asked[name], known, asked) for name, vectors in of_known.items()}


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    if settings.run:
        opened(settings.run)  # what is wrong with it is said at once
    size = QUICK if settings.quick else FULL
    text = words_of(corpus)
    counts = text.counts()
    pairs = pairs_of(counts)
    known, asked = places(text.train, pairs, KNOWN), places(text.test, pairs, ASKED)
    both = [
        k for k in range(len(pairs)) if all(len(set(p.meant[p.pair == k].tolist())) == 2 for p in (known, asked))
    ]  # meanings that are seen and asked about
    known, asked = (_only(p, both) for p in (known, asked))
    enough(len(asked.where), LEAST, "held-out places of words that were made of two", corpus)
    spoken = language(counts)
    read = Words(merged(text.train, pairs), [])
    common = set(sorted(counts, key=lambda word: (-counts[word], word))[:COMMONEST])
    real = Real(
        labelled(SENSES) if spoken == ENGLISH else [],
        repeated(merged(text.test, pairs), common),
        examples(spoken),
    )
    tasks: dict[Any, Any] = {
        seed: (looked, (seed, size, read, settings.run, known, asked, real)) for seed in settings.seeds
    }
    runs = list(spread(tasks, progress).values())
    words = [" / ".join(pairs[k]) for k in both]
    tables = {**_made(runs, words, asked, bool(settings.run)), **_real(runs, real, bool(settings.run))}
    name = Path(settings.run).resolve().name
    total = sum(counts.values())
    return tables, {
        "data": f"{corpus.name} ({corpus.source}): {total:,} words to learn from, of which the commonest "
        f"{PIECES - 2:,} have ids; {len(both)} words made of two, {len(asked.where):,} held-out places",
        "networks": f"skip-gram of width {WIDTH}, {PASSES} passes; "
        + (
            f"the run {name}, which reads the first word of each made word and never learnt them as one"
            if name
            else f"ELMo, {size.layers} layers of {CELLS * size.width} cells projected to {size.width}, words by their "
            f"letters: {size.said()}"
        ),
        "intervals": (
            "95 %, a bootstrap over made words and over contexts, in pairs"
            if settings.run
            else INTERVALS.replace("the held-out text", "made words or contexts")
        ),
        **({"no senses": ABSENT} if spoken == ENGLISH and not real.senses else {}),
    }


def _made(runs: Sequence[Found], words: Sequence[str], asked: Places, alone: bool) -> dict[str, Table]:
    names = list(runs[0].made)
    right, nearer = ({name: np.stack([run.made[name][i] for run in runs]) for name in names} for i in (0, 1))
    levels = [(n, over_seeds(right[n].mean(1).tolist()), over_seeds(nearer[n].mean(1).tolist())) for n in names]
    more = [(n, *(certain(part[n] - part[STATIC], alone) for part in (right, nearer))) for n in names[1:]]
    by_word = [
        (word, int((asked.pair == pair).sum()), *(float(right[name][:, i].mean()) for name in names))
        for i, (word, pair) in enumerate(zip(words, np.unique(asked.pair), strict=True))
    ]
    columns = ("vector", "right, %", "nearer")
    return {
        "vectors": Table("What a vector says of the meaning of made words", columns, tuple(levels)),
        "differences": Table(f"More than {STATIC}, mean and 95 % interval", columns, tuple(more)),
        "words": Table("Right, %, by made word", ("word", "places", *names), tuple(by_word), detailed=True),
    }


def _real(runs: Sequence[Found], real: Real, alone: bool) -> dict[str, Table]:
    tables: dict[str, Table] = {}
    names = list(runs[0].made)
    if real.senses:
        usual = commonest(real.senses)
        found = {
            name: [np.stack(by_seed) for by_seed in zip(*(r.senses[name] for r in runs), strict=True)] for name in names
        }
        found[COMMON] = [np.repeat(one[None], len(runs), 0) for one in usual]  # word by word (seeds, contexts)
        means = {name: np.stack([one.mean(1) for one in by_word], 1) for name, by_word in found.items()}
        levels = [(n, over_seeds(m.mean(1).tolist()), *m.mean(0).tolist()) for n, m in means.items()]
        whole = {
            name: np.concatenate([_weighed(one, by_word) for one in by_word], 1) for name, by_word in found.items()
        }
        more = [
            (n, certain(whole[n] - whole[STATIC], alone), certain(whole[n] - whole[COMMON], alone)) for n in names[1:]
        ]
        tables["senses"] = Table(
            "Senses told by the nearest places that are known, Senseval-2",
            ("vector", "right, %", *(one.word for one in real.senses)),
            tuple(levels),
        )
        tables["sense differences"] = Table(
            "Senses told, points above, mean and 95 % interval", ("vector", STATIC, COMMON), tuple(more)
        )
    if real.twice:
        rows = [(n, certain(np.stack([r.twice[n] for r in runs]), alone)) for n in names]
        title = f"A word twice in a sentence: cosine of its two vectors, {len(real.twice)} sentences"
        tables["twice"] = Table(title, ("vector", "cosine"), tuple(rows))
    if real.examples:
        shown = [
            (
                a.words[a.at],
                *(_marked(p) for p in (a, b)),
                *(over_seeds([float(r.examples[n][i]) for r in runs]) for n in names),
            )
            for i, (a, b) in enumerate(real.examples)
        ]
        tables["examples"] = Table(
            "Examples: cosine of a word's vectors here and there", ("word", "here", "there", *names), tuple(shown)
        )
    return tables


def _weighed(one: np.ndarray, all_words: Sequence[np.ndarray]) -> np.ndarray:
    """So that the mean over all contexts is the mean over words, however many contexts a word has."""
    return one * (sum(other.shape[1] for other in all_words) / (len(all_words) * one.shape[1]))


def _marked(place: Place) -> str:
    return " ".join(f"*{word}*" if i == place.at else word for i, word in enumerate(place.words))


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    levels, more = tables["vectors"], tables["differences"]
    input_name, last = levels.column("vector")[1], levels.column("vector")[-1]
    nearer, told_, most = (
        levels.cell("nearer", vector=STATIC),
        *(levels.cell("right, %", vector=v) for v in (STATIC, last)),
    )
    gain, input_ = more.cell("right, %", vector=last), more.cell("right, %", vector=input_name)
    moved = levels.cell("nearer", vector=last)
    parts = [
        Part(
            "A table gives the word the same vector in both meanings.",
            judged(nearer[1] == nearer[2] == 0),
            f"The vectors of {STATIC} are nearer to their own meaning by {nearer[0]:.3f} in cosine; what they say is "
            f"right in {told_[0]:.1f} % of the places.",
            "in every seed" if nearer[1] == nearer[2] else f"{nearer[1]:.3f} to {nearer[2]:.3f}",
        ),
        Part(
            "A network that reads the context tells the meanings of made words apart.",
            judged(above(gain)),
            f"{last} is right in {most[0]:.1f} % of the places and nearer to its own meaning by {moved[0]:.3f}: "
            f"{abs(gain[0]):.1f} points {'more' if gain[0] > 0 else 'less'} than {STATIC}.",
            f"more by {ranged(gain, 1)}",
        ),
    ]
    if "senses" in tables:
        parts += _of_senses(tables, last)
    if "twice" in tables:
        parts.append(_of_twice(tables["twice"], last))
    parts.append(
        Part(
            "It is the layers that do so, not what they read from.",
            judged(above(gain, input_[0])),
            f"The input of the same network is {abs(input_[0]):.1f} points {'above' if input_[0] > 0 else 'below'} "
            f"{STATIC}.",
            ranged(input_, 1),
            decides=False,
        )
    )
    return parts


def _of_senses(tables: Tables, last: str) -> list[Part]:
    levels, more = tables["senses"], tables["sense differences"]
    right = {name: levels.cell("right, %", vector=name)[0] for name in (STATIC, last, COMMON)}
    parts = []
    for rival in (STATIC, COMMON):
        cell = more.cell(rival, vector=last)
        than = f"{STATIC}, which knows the form of the word alone" if rival == STATIC else COMMON
        parts.append(
            Part(
                f"What a person says a word means is told better by {last} than by {than}.",
                judged(above(cell)),
                f"Of the senses of Senseval-2, {last} tells {right[last]:.1f} %, {rival} {right[rival]:.1f} %.",
                f"points more: {ranged(cell, 1)}",
                decides=rival == STATIC,
            )
        )
    return parts


def _of_twice(table: Table, last: str) -> Part:
    one, other = (table.cell("cosine", vector=name) for name in (STATIC, last))
    return Part(
        "Twice in a sentence, a word has one vector in the table and two in its context.",
        judged(below(other, 1 - SAME) if one[0] > 1 - SAME else False),
        f"The cosine of the two is {one[0]:.3f} for {STATIC} and {other[0]:.3f} for {last}.",
        ranged(other),
        decides=False,
    )
