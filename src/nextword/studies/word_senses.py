"""Does a word with two meanings get one vector or two?

Claim: a static table gives a word one vector for all its meanings; a network that reads the context gives it
different vectors (Peters et al. 2018).

What a word means in a text is rarely annotated. So the study makes pseudowords with known meanings (Gale, Church &
Yarowsky 1992; Schütze 1992): two ordinary words become one, in the training and in the held-out text.

    he broke the BREAD/SWORD and gave it to them        meant: bread
    he drew his BREAD/SWORD and went out                meant: sword

    skip-gram   one vector for BREAD/SWORD, whatever the context
    ELMo        a small one: its input, which sees the letters, and its layers, which read the context

Measured: by the nearer of two means, one for each meaning in the training text, in how many held-out places the
meaning is predicted correctly; a tie counts as the more frequent meaning. This works in any language that can be split
into words, Chinese by characters. Also measured:

    senses     hard, interest, line, serve of Senseval-2, for English texts if it is on this machine: the majority among
               the K nearest training places; places at the same distance vote together, so a table gives the most
               frequent sense of the word form
    repeated   the same word at two places of a sentence: the cosine of its two vectors, which is 1 in a table
    examples   bank, play, and 画 in 他画画 ("he paints a painting"), first a verb, then a noun

With --run RUN, a trained network replaces the small ELMo. It reads the first word of a pseudoword in both
meanings and has never learned them as one word.

Verdict: the vectors of skip-gram must not depend on the meaning at all; the last layer must tell the meanings of
pseudowords, and of Senseval-2 if present, better than skip-gram.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import describe_corpus, open_text, require, run_parallel
from nextword.studies._labeled_words import NO_SENSEVAL, Labeled, Question, sense_questions
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._transformers import Size
from nextword.studies._word_vectors import (
    CELLS,
    CHINESE,
    ENGLISH,
    PASSES,
    STATIC,
    WIDTH,
    Place,
    Reader,
    Sentence,
    Words,
    detect_language,
    load_layered_run,
    make_reader,
    normalize,
    split_corpus,
)

CLAIM = Claim(
    "A static table gives a word one vector for all its meanings; a network that reads the context gives it different "
    "vectors for different meanings.",
    "Peters et al. 2018, sections 1 and 5.3; lecture notes on ELMo: word2vec gives both 画 of 画画 the same vector",
)
VOCABULARY = 4000
FULL = Size(width=64, layers=2, rows=64, length=20, steps=400, rate=6e-3)
QUICK = Size(width=32, layers=2, rows=32, length=16, steps=150, rate=8e-3)
PAIRS, STOP_WORDS = 16, 60  # pseudowords; the most frequent words are not used, because they mean little
TRAIN_PLACES, TEST_PLACES = 100, 60  # of each meaning of a pseudoword, at most
SENSES = (300, 150)  # training and test places of each word of Senseval-2
MIN_PLACES = 400  # held out
SAME_COSINE = 1e-9  # cosines that differ by less are equal
NEIGHBORS = 9
TIE = 1e-6  # in float32
REPEATED = 200  # sentences
COMMON = "most frequent sense"
ACCURACY, CLOSER = "accuracy, %", "closer to its own meaning"

RIVER, HARP = "he stood on the *bank* of the river .", "they will *play* the harp before the king ."
EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {  # the word is between stars
    ENGLISH: (
        (RIVER, "they sat down by the *bank* of the sea ."),
        (RIVER, "he put his money in the *bank* ."),
        (HARP, "let him *play* on the trumpet ."),
        (HARP, "the boys and the girls *play* in the streets ."),
    ),
    CHINESE: (("他 *画* 画 。", "他 画 *画* 。"),),
}


# ------------------------------------------------------------------------------------------------ pseudowords


class PseudowordPlaces(NamedTuple):
    """Places of pseudowords, and which of the two words was there."""

    where: list[Place]
    pair: np.ndarray  # (n,)
    meaning: np.ndarray  # (n,) 0 or 1

    def only(self, pairs: Sequence[int]) -> PseudowordPlaces:
        keep = np.isin(self.pair, pairs)
        where = [place for place, is_kept in zip(self.where, keep, strict=True) if is_kept]
        return PseudowordPlaces(where, self.pair[keep], self.meaning[keep])


def choose_pairs(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Pairs of words of similar frequency, without the most frequent ones."""
    order = sorted(counts, key=lambda word: (-counts[word], word))
    words = [word for word in order if word.isalpha() and (len(word) > 2 or not word.isascii())]
    chosen = words[STOP_WORDS : STOP_WORDS + 2 * PAIRS]
    return list(zip(chosen[::2], chosen[1::2], strict=False))


def merge_words(text: Sequence[Sequence[str]], pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Replace the second word of each pair by the first."""
    replacement = {second: first for first, second in pairs}
    return [[replacement.get(word, word) for word in words] for words in text]


def find_places(text: Sequence[list[str]], pairs: Sequence[tuple[str, str]], limit: int) -> PseudowordPlaces:
    """Places of pseudowords in a fixed random order of the sentences, at most `limit` of each meaning."""
    numbers = {word: (pair, meaning) for pair, both in enumerate(pairs) for meaning, word in enumerate(both)}
    left = dict.fromkeys(numbers, limit)
    where: list[Place] = []
    which: list[tuple[int, int]] = []
    for i in np.random.default_rng(0).permutation(len(text)):
        (merged,) = merge_words([text[i]], pairs)
        for index, word in enumerate(text[i]):
            if left.get(word, 0) > 0:
                left[word] -= 1
                where.append(Place(merged, index))
                which.append(numbers[word])
    pair, meaning = np.array(which, np.int64).reshape(-1, 2).T
    return PseudowordPlaces(where, pair, meaning)


def tell_meanings(
    train_vectors: np.ndarray, test_vectors: np.ndarray, train: PseudowordPlaces, test: PseudowordPlaces
) -> tuple[np.ndarray, np.ndarray]:
    """For each pair: accuracy in %, and how much closer the right mean is than the wrong one, in cosine."""
    accuracy, closer = [], []
    for pair in np.unique(test.pair):
        is_train, is_test = train.pair == pair, test.pair == pair
        meaning = test.meaning[is_test]
        means = [normalize(train_vectors[is_train & (train.meaning == k)]).mean(0) for k in (0, 1)]
        cosines = normalize(test_vectors[is_test]) @ normalize(np.stack(means)).T  # (m, 2)
        margin = cosines[:, 1] - cosines[:, 0]
        margin[np.abs(margin) < SAME_COSINE] = 0.0
        frequent = np.mean(train.meaning[is_train]) > 0.5
        guess = np.where(margin == 0, frequent, margin > 0)
        accuracy.append(100 * np.mean(guess == meaning))
        closer.append(np.mean(np.where(meaning == 1, margin, -margin)))
    return np.array(accuracy), np.array(closer)


# ------------------------------------------------------------------------------------------------ real words


class SensePlaces(NamedTuple):
    """Training and test places of one word, with their senses."""

    word: str
    train: list[Place]
    train_senses: np.ndarray
    test: list[Place]
    test_senses: np.ndarray  # −1 for a sense that is not in training


class RealWords(NamedTuple):
    senses: list[SensePlaces]
    repeated: list[tuple[Place, Place]]
    examples: list[tuple[Place, Place]]


def load_senses(counts: Sequence[int]) -> list[SensePlaces]:
    """Training and test places of each word of Senseval-2; empty if it is not on this machine."""
    return [_sense_places(question) for question in sense_questions((counts[0], 0, counts[1]))]


def _sense_places(question: Question) -> SensePlaces:
    (train, train_senses), (test, test_senses) = (_places(part) for part in (question.train, question.test))
    numbers = {sense: i for i, sense in enumerate(sorted(set(train_senses)))}
    train_ids, test_ids = (np.array([numbers.get(s, -1) for s in part]) for part in (train_senses, test_senses))
    return SensePlaces(question.word, train, train_ids, test, test_ids)


def _places(labeled: Sequence[Labeled]) -> tuple[list[Place], list[str]]:
    indices = [next(i for i, label in enumerate(labels) if label is not None) for _, labels in labeled]
    places = [Place(words, i) for (words, _), i in zip(labeled, indices, strict=True)]
    return places, [str(labels[i]) for (_, labels), i in zip(labeled, indices, strict=True)]


def find_repeated(text: Sequence[Sentence], excluded: set[str]) -> list[tuple[Place, Place]]:
    """Sentences in a fixed random order, with their first word that occurs twice."""
    pairs = []
    for i in np.random.default_rng(0).permutation(len(text)):
        seen: dict[str, int] = {}
        for index, word in enumerate(text[i]):
            if word in seen and word.isalpha() and word not in excluded:
                pairs.append((Place(text[i], seen[word]), Place(text[i], index)))
                break
            seen.setdefault(word, index)
        if len(pairs) == REPEATED:
            break
    return pairs


def make_examples(language: str) -> list[tuple[Place, Place]]:
    return [(_starred(first), _starred(second)) for first, second in EXAMPLES.get(language, ())]


def _starred(text: str) -> Place:
    words = text.split()
    return Place([word.strip("*") for word in words], next(i for i, word in enumerate(words) if word[0] == "*"))


def vote_of_neighbors(train: np.ndarray, senses: np.ndarray, test: np.ndarray) -> np.ndarray:
    """(m,) majority sense of the nearest training places; ties go to the more frequent sense."""
    cosines = normalize(test) @ normalize(train).T  # (m, n)
    k = min(NEIGHBORS, len(senses))
    threshold = np.partition(cosines, -k, axis=1)[:, -k] - TIE
    counts = np.bincount(senses)
    votes = (cosines >= threshold[:, None]).astype(float) @ np.eye(len(counts))[senses]  # (m, senses)
    return (votes + counts / (10 * counts.sum())).argmax(1)


def tell_senses(read: Reader, words: Sequence[SensePlaces]) -> dict[str, list[np.ndarray]]:
    """By name of the vector, for each word: 100 for each correct sense, else 0."""
    hits: dict[str, list[np.ndarray]] = {}
    for word in words:
        train, test = read(word.train), read(word.test)
        for name, vectors in train.items():
            guess = vote_of_neighbors(vectors, word.train_senses, test[name])
            hits.setdefault(name, []).append(100.0 * (guess == word.test_senses))
    return hits


def cosines_of_pairs(read: Reader, pairs: Sequence[tuple[Place, Place]]) -> dict[str, np.ndarray]:
    """By name of the vector, the cosine of each pair of places."""
    if not pairs:
        return {}
    first, second = (read([pair[i] for pair in pairs]) for i in (0, 1))
    return {name: (normalize(vectors) * normalize(second[name])).sum(1) for name, vectors in first.items()}


# ------------------------------------------------------------------------------------------------ measure


class SeedResult(NamedTuple):
    """What the vectors of one seed say, by their names."""

    pseudowords: dict[str, tuple[np.ndarray, np.ndarray]]
    senses: dict[str, list[np.ndarray]]
    repeated: dict[str, np.ndarray]
    examples: dict[str, np.ndarray]


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus = open_text(settings.data)
    if settings.run:
        load_layered_run(settings.run)  # fail early
    size = QUICK if settings.quick else FULL
    text = split_corpus(corpus)
    counts = text.counts()
    pairs = choose_pairs(counts)
    train, test = find_places(text.train, pairs, TRAIN_PLACES), find_places(text.test, pairs, TEST_PLACES)
    used = [  # pairs with both meanings in both texts
        k for k in range(len(pairs)) if all(len(set(p.meaning[p.pair == k].tolist())) == 2 for p in (train, test))
    ]
    train, test = train.only(used), test.only(used)
    require(len(test.where), MIN_PLACES, "held-out places of pseudowords", corpus)
    language = detect_language(counts)
    frequent = set(sorted(counts, key=lambda word: (-counts[word], word))[:STOP_WORDS])
    real = RealWords(
        load_senses(SENSES) if language == ENGLISH else [],
        find_repeated(merge_words(text.test, pairs), frequent),
        make_examples(language),
    )
    merged = Words(merge_words(text.train, pairs), [])
    jobs: dict[Any, Any] = {
        seed: (run_seed, (seed, size, merged, settings.run, train, test, real)) for seed in settings.seeds
    }
    runs = list(run_parallel(jobs, progress).values())
    words = [" / ".join(pairs[k]) for k in used]
    single = bool(settings.run)
    name = Path(settings.run).resolve().name
    network = (
        f"the run {name}, which reads the first word of each pseudoword and never learned them as one"
        if single
        else f"ELMo, {size.layers} layers of {CELLS * size.width} cells projected to {size.width}, words by their "
        f"letters: {size.describe_training()}"
    )
    over_text = "95 %, a paired bootstrap over pseudowords and over contexts"
    return {**_pseudoword_tables(runs, words, test, single), **_real_word_tables(runs, real, single)}, {
        "data": f"{describe_corpus(corpus)}: {sum(counts.values()):,} training words, the {VOCABULARY - 2:,} most "
        f"frequent have ids; {len(used)} pseudowords, {len(test.where):,} held-out places",
        "networks": f"skip-gram of width {WIDTH}, {PASSES} passes; {network}",
        "intervals": over_text if single else stats.INTERVALS.replace("the held-out text", "pseudowords or contexts"),
        **({"no senses": NO_SENSEVAL} if language == ENGLISH and not real.senses else {}),
    }


def run_seed(
    seed: int, size: Size, text: Words, run: str, train: PseudowordPlaces, test: PseudowordPlaces, real: RealWords
) -> SeedResult:
    read = make_reader(seed, size, text, VOCABULARY, run)
    train_vectors, test_vectors = read(train.where), read(test.where)
    pseudowords = {name: tell_meanings(v, test_vectors[name], train, test) for name, v in train_vectors.items()}
    cosines = (cosines_of_pairs(read, pairs) for pairs in (real.repeated, real.examples))
    return SeedResult(pseudowords, tell_senses(read, real.senses), *cosines)


def _pseudoword_tables(
    runs: Sequence[SeedResult], words: Sequence[str], test: PseudowordPlaces, single: bool
) -> dict[str, Table]:
    names = list(runs[0].pseudowords)
    accuracy, closer = ({n: np.stack([run.pseudowords[n][i] for run in runs]) for n in names} for i in (0, 1))
    both = (accuracy, closer)
    levels = [(n, *(stats.median_of_means(part[n]) for part in both)) for n in names]
    gains = [(n, *(stats.mean_interval(part[n] - part[STATIC], single) for part in both)) for n in names[1:]]
    by_word = [
        (word, int((test.pair == pair).sum()), *(float(accuracy[n][:, i].mean()) for n in names))
        for i, (word, pair) in enumerate(zip(words, np.unique(test.pair), strict=True))
    ]
    columns = ("vector", ACCURACY, CLOSER)
    return {
        "vectors": Table("Meanings of pseudowords, median and range over seeds", columns, levels),
        "differences": Table(f"Difference from {STATIC}, mean and 95 % interval", columns, gains),
        "words": Table("Accuracy by pseudoword, %", ("word", "places", *names), by_word, detailed=True),
    }


def _real_word_tables(runs: Sequence[SeedResult], real: RealWords, single: bool) -> dict[str, Table]:
    tables: dict[str, Table] = {}
    names = list(runs[0].pseudowords)
    if real.senses:
        tables |= _sense_tables(runs, real.senses, names, single)
    if real.repeated:
        rows = [(n, stats.mean_interval(np.stack([run.repeated[n] for run in runs]), single)) for n in names]
        title = f"A word twice in a sentence: cosine of its two vectors, {len(real.repeated)} sentences"
        tables["repeated"] = Table(title, ("vector", "cosine"), rows)
    if real.examples:
        examples = []
        for i, (first, second) in enumerate(real.examples):
            cosines = (stats.median_and_range([float(run.examples[n][i]) for run in runs]) for n in names)
            examples.append((first.words[first.position], _mark(first), _mark(second), *cosines))
        columns = ("word", "here", "there", *names)
        tables["examples"] = Table("Examples: cosine of a word's vectors here and there", columns, examples)
    return tables


def _sense_tables(
    runs: Sequence[SeedResult], words: Sequence[SensePlaces], names: Sequence[str], single: bool
) -> dict[str, Table]:
    hits = {n: [np.stack(seeds) for seeds in zip(*(run.senses[n] for run in runs), strict=True)] for n in names}
    common = [100.0 * (word.test_senses == np.bincount(word.train_senses).argmax()) for word in words]
    hits[COMMON] = [np.repeat(by_place[None], len(runs), 0) for by_place in common]  # by word (seeds, places)
    means = {n: np.stack([word.mean(1) for word in by_word], 1) for n, by_word in hits.items()}
    levels = [(n, stats.median_of_means(mean), *mean.mean(0).tolist()) for n, mean in means.items()]
    # Weighted so that the mean over all contexts is the mean over words, however many contexts a word has
    total = sum(by_place.shape[1] for by_place in hits[COMMON])
    weighted = {
        n: np.concatenate([word * (total / (len(by_word) * word.shape[1])) for word in by_word], 1)
        for n, by_word in hits.items()
    }
    gains = [
        (n, *(stats.mean_interval(weighted[n] - weighted[other], single) for other in (STATIC, COMMON)))
        for n in names[1:]
    ]
    return {
        "senses": Table(
            "Senses of Senseval-2 by the nearest training places",
            ("vector", ACCURACY, *(word.word for word in words)),
            levels,
        ),
        "sense differences": Table(
            "Senses: difference in points, mean and 95 % interval", ("vector", STATIC, COMMON), gains
        ),
    }


def _mark(place: Place) -> str:
    return " ".join(f"*{word}*" if i == place.position else word for i, word in enumerate(place.words))


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    levels, differences = tables["vectors"], tables["differences"]
    first, last = levels.column("vector")[1], levels.column("vector")[-1]
    static = levels.cell(CLOSER, vector=STATIC)
    accuracy = {name: levels.cell(ACCURACY, vector=name)[0] for name in (STATIC, last)}
    gain, input_gain = (differences.cell(ACCURACY, vector=name) for name in (last, first))
    amount, word = stats.more_or_less(gain[0], 1)
    parts = [
        Part(
            "A table gives the word the same vector in both meanings.",
            static[1] == static[2] == 0,
            f"The vectors of {STATIC} are closer to their own meaning by {static[0]:.3f} in cosine and tell it in "
            f"{accuracy[STATIC]:.1f} % of the places.",
            "in every seed" if static[1] == static[2] else f"{static[1]:.3f} to {static[2]:.3f}",
        ),
        stats.judge_interval(
            "A network that reads the context tells the meanings of pseudowords apart.",
            gain,
            f"{last} tells the meaning in {accuracy[last]:.1f} % of the places and is closer to its own meaning by "
            f"{levels.cell(CLOSER, vector=last)[0]:.3f}: {amount} points {word} than {STATIC}.",
            "difference in points",
            digits=1,
        ),
    ]
    if "senses" in tables:
        parts += [_judge_senses(tables, last, rival) for rival in (STATIC, COMMON)]
    if "repeated" in tables:
        parts.append(_judge_repeated(tables["repeated"], last))
    amount, word = stats.more_or_less(input_gain[0], 1)
    evidence = f"The input of the same network has {amount} points {word} than {STATIC}."
    holds, interval = stats.is_above(gain, input_gain[0]), stats.format_interval(input_gain, 1)
    return [*parts, Part("The layers tell them apart, not their input.", holds, evidence, interval, decides=False)]


def _judge_senses(tables: Tables, last: str, rival: str) -> Part:
    cell = tables["sense differences"].cell(rival, vector=last)
    accuracy = {name: tables["senses"].cell(ACCURACY, vector=name)[0] for name in (last, rival)}
    than = f"{STATIC}, which only knows the word form" if rival == STATIC else f"the {COMMON}"
    return stats.judge_interval(
        f"{last} tells annotated senses better than {than}.",
        cell,
        f"{last} tells {accuracy[last]:.1f} % of the senses of Senseval-2, {rival} {accuracy[rival]:.1f} %.",
        "difference in points",
        digits=1,
        decides=rival == STATIC,
    )


def _judge_repeated(table: Table, last: str) -> Part:
    static, contextual = (table.cell("cosine", vector=name) for name in (STATIC, last))
    return Part(
        "Twice in a sentence, a word has one vector in the table and two in its context.",
        stats.is_below(contextual, 1 - SAME_COSINE) if static[0] > 1 - SAME_COSINE else False,
        f"The cosine of the two is {static[0]:.3f} for {STATIC} and {contextual[0]:.3f} for {last}.",
        stats.format_interval(contextual),
        decides=False,
    )


# ------------------------------------------------------------------------------------------------ draw


def draw(tables: Tables, figure: plot.Figure) -> None:
    left, middle, right = plot.panels(figure, 13.5, 5, 3, (1, 1, 1.2))
    plot.dot_rows(tables["vectors"], left, "vector", ACCURACY, "Pseudowords", "% of the places", digits=1)
    if "senses" in tables:
        plot.dot_rows(tables["senses"], middle, "vector", ACCURACY, "Senseval-2", "% of the senses", digits=1)
    else:
        plot.dot_rows(tables["vectors"], middle, "vector", CLOSER, "Closer to its own meaning", "cosine", named=False)
    _draw_words(tables["words"], right)


def _draw_words(table: Table, axes: plot.Axes) -> None:
    """From the static vector to the last layer, word by word."""
    first, last = table.columns[2], table.columns[-1]
    rows = sorted(zip(table.column("word"), table.column(first), table.column(last), strict=True), key=lambda r: r[2])
    for y, (_, before, after) in enumerate(rows):
        axes.plot([before, after], [y, y], color=plot.GREY, linewidth=1)
        axes.plot(before, y, "o", color=plot.VERMILION, markersize=5, label=first if y == 0 else None)
        axes.plot(after, y, "o", color=plot.BLUE, markersize=5, label=last if y == 0 else None)
    names = [word if word.isascii() else f"word {i + 1}" for i, (word, *_) in enumerate(rows)]  # the font lacks others
    axes.set_yticks(range(len(rows)), names, color=plot.INK)
    axes.set(xlabel="accuracy, %")
    axes.grid(axis="y", visible=False)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title("By pseudoword")
