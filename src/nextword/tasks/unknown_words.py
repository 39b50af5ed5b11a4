"""Words of a task's texts that the vocabulary of a run lacks: all of them are read as one, the unknown word.

    The zweiback was stale   →   the <unk> was <unk>       2 of 4 words, 50 %

Whoever is not told wonders why so little is learnt. Only vocabularies of words lack any: pieces of words, characters
and bytes spell what they do not have, and networks that read letters (ELMo) read it all the same. There nothing is
counted.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.protocols import Tokenizer
from nextword.data.segmentation import join_words
from nextword.data.squad import Questions
from nextword.data.tables import Rows
from nextword.recipe import Recipe, load_recipe, names
from nextword.run_folder import RunFolder
from nextword.tasks.text_data import DataSet
from nextword.tokenizers.words import UNKNOWN
from nextword.training.warm_start import has_word_rows, is_word_level

# Of IMDb's reviews a vocabulary of other reviews lacks 1.3 % of the words; of Penn Treebank, which is read well, 4.8 %
# are <unk> (Merity et al. 2016). More than that is odd
NOTEWORTHY = 0.05
MANY = 0.2  # the same of texts to be labelled: in a short one a name or two is nothing odd
MAX_TEXTS = 5000  # texts that are looked at, at most
NAMED = 5  # words in a note
LETTERS = 30  # of a word there
CLAUSE = 5  # letters: words of scripts without spaces have one to four
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
)  # Thai, Lao, Burmese, Khmer, kana, Han
LETTER_BY_LETTER = "--set \"tokenizer={kind='characters'}\""
ANEW = "--set \"tokenizer={kind='lexicon',size=60000}\""  # every word of the texts, punctuation apart


@dataclass(frozen=True)
class UnknownWords:
    """What was counted in some of the texts."""

    words: Counter[str]  # that have no id → how often they occur
    total: int  # words, known or not
    seen: int  # texts
    texts: int  # that there are

    @property
    def share(self) -> float:
        return self.words.total() / max(1, self.total)

    @property
    def unspaced(self) -> float:
        """The share of clauses of Chinese, Japanese or Thai among those that are lacking: longer than words are."""
        whole = sum(n for word, n in self.words.items() if len(word) >= CLAUSE and UNSPACED.search(word))
        return whole / max(1, self.words.total())

    def told(self, whose: str, where: str) -> str:
        """How many words (`whose`) are lacking `where`, and which ones most of all."""
        counted = f" ({self.seen:,} of {self.texts:,} texts were looked at)" if self.seen < self.texts else ""
        common = [word for word, _ in self.words.most_common(NAMED)]
        some = [word if len(word) <= LETTERS else f"{word[: LETTERS - 1]}…" for word in common]
        return (
            f"{100 * self.share:.1f} % of the words{whose} are not in the vocabulary of {where}{counted}, and all of "
            f"them are read as {UNKNOWN}, most often {', '.join(map(repr, some))}"
        )


def count_unknown_words(network: Any, tokenizer: Tokenizer, texts: Sequence[str]) -> UnknownWords | None:
    """None where nothing can be missing. A literal <unk> was unknown before, and is no word that is missing here."""
    if not is_word_level(tokenizer) or hasattr(network, "spelled") or getattr(network, "longest", 0) > 0:
        return None
    some = texts[:: -(-len(texts) // MAX_TEXTS) or 1]
    unknown, lower = tokenizer.special[UNKNOWN], getattr(tokenizer, "lower", False)
    ends = [id for id in tokenizer.special.values() if id != unknown]
    words: Counter[str] = Counter()
    total = 0
    for text, one in zip(some, tokenizer.encode_batch(list(some)), strict=True):
        total += int((~np.isin(one.ids, ends)).sum())
        spans = one.spans[one.ids == unknown].tolist()
        raw = text.encode() if spans else b""
        found = (raw[start:end].decode() for start, end in spans)
        words.update(map(str.lower, found) if lower else found)
    words.pop(UNKNOWN, None)
    return UnknownWords(words, total, len(some), len(texts))


# ------------------------------------------------------------------------------------------------ before a transfer


def check_vocabulary(source: str, network: Any, tokenizer: Tokenizer, data: Any) -> tuple[float | None, list[str]]:
    """The share of the training words that the run `source` lacks, None where it can lack none; and a note, with what
    helps, where it lacks so many that it matters."""
    found = count_unknown_words(network, tokenizer, _texts(data)) if source and is_word_level(tokenizer) else None
    if found is None:
        return None, []
    notes = []
    if found.share > NOTEWORTHY:
        notes.append(f"{found.told(' of train', source)}: {_helps(found, source, network, data)}")
    return round(found.share, 4), notes


def _texts(data: Any) -> list[str]:
    if hasattr(data, "sets"):
        return [text for one in data.sets for text in _texts(one)]
    train = data.splits["train"]
    if isinstance(train, Rows):
        return [*train.texts, *(train.seconds or ()), *chain(*(train.choices or ()))]
    if isinstance(train, Questions):
        return [*dict.fromkeys(one.context for one in train.all), *(one.question for one in train.all)]
    return [join_words(one.words) for one in train.sentences]


def _helps(found: UnknownWords, source: str, network: Any, data: Any) -> str:
    """Words of its own for the language model, where each has a row that can be changed for another; or another run."""
    if found.unspaced > MANY:
        return (
            "there are no spaces between these words, and whole clauses are taken for one. Train a run over characters "
            f"instead, and transfer that: nextword train RECIPE --data TEXTS {LETTER_BY_LETTER}"
        )
    goes_on = has_word_rows(network) and not getattr(network, "is_conditional", False)
    theirs = RunFolder(source).recipe if goes_on and (Path(source) / "recipe.toml").is_file() else None
    if theirs is None or theirs.task is not None:
        return "a run that was trained on texts like these has more of them, and one over pieces of words has them all"
    command = _command(found, source, theirs, _place(data))
    return f"let the language model learn these texts and their words first, and transfer that: {command}"


def _place(data: Any) -> str:
    """The texts, as `nextword train --data` reads them."""
    if not isinstance(data, DataSet) or data.kind == "choice" or not Path(data.name).exists():
        return "TEXTS"
    column = data.columns.text
    return data.name if column == "text" else f"{data.name}:{column}"


def _command(found: UnknownWords, source: str, theirs: Recipe, place: str) -> str:
    """By the recipe that its paper has for going on with a run (ulmfit/lm); or by the run's own, with other words."""
    begin = f"phase.0.init={source}"
    own = [load_recipe(name) for name in names() if name.startswith(f"{theirs.slug}/")]
    own = [one for one in own if one.phases[0].init]
    if not own:
        each = [place] if len(theirs.phases) == 1 else [f"{phase.name}={place}" for phase in theirs.phases]
        data = shlex.join(chain(*(("--data", one) for one in each)))
        return f"nextword train {shlex.quote(f'{source}/recipe.toml')} {data} --set {shlex.quote(begin)} {ANEW}"
    recipe = min(own, key=lambda one: len(_other(theirs, one)))
    changes = [begin, *_other(theirs, recipe)]
    least = recipe.tokenizer.get("min_count", 1)
    if sum(n for n in found.words.values() if n < least) > NOTEWORTHY * found.total:  # it would lack them still
        changes.append("tokenizer.min_count=1")
    return shlex.join(["nextword", "train", recipe.name, "--data", place, *chain(*(("--set", one) for one in changes))])


def _other(theirs: Recipe, recipe: Recipe) -> list[str]:
    """What is to be set for a network of the run's shape; dropouts are the recipe's own."""
    shape = {key: value for key, value in theirs.model.items() if isinstance(value, (bool, int, str))}
    other = {key: value for key, value in shape.items() if recipe.model.get(key, False) != value}
    return [f"model.{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in other.items()]


# ------------------------------------------------------------------------------------------------ before predictions


def note_unknown_words(model: Any, rows: Rows) -> list[str]:
    """The same of texts that are to be labelled, by a run or by the first of several."""
    first = getattr(model, "models", (model,))[0]
    first = getattr(first, "lm", first)  # that is asked, where there is no head
    texts = [*rows.texts, *(rows.seconds or ())]
    return [f"{told}: what is predicted rests on the others" for told in unknown_word_notes(first, texts)]


def unknown_word_notes(model: Any, texts: Sequence[str], whose: str = "") -> list[str]:
    """A note, where a run lacks so many words of texts that what it makes of them says little."""
    found = count_unknown_words(getattr(model, "network", None), model.tokenizer, texts)
    return [found.told(whose, "the run")] if found is not None and found.share > MANY else []
