"""Count the words of a task's texts that a run's vocabulary lacks, and suggest what to do about them.

    The zweiback was stale   →   the <unk> was <unk>       2 of 4 words, 50 %

A model that reads most words as <unk> learns little, and nothing else shows why. Only word-level vocabularies have
unknown words: subwords, characters and bytes can spell anything, and some networks (ELMo) read characters.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from nextword.lm.base import TextModel
from nextword.models.base import Network
from nextword.recipe import Recipe, load_recipe, recipe_names
from nextword.run_folder import RunFolder
from nextword.tasks.base import Dataset
from nextword.tasks.classification import TextPredictor
from nextword.tasks.text_data import TextDataset
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.words import UNKNOWN
from nextword.training.warm_start import has_word_rows, is_word_level

# For comparison: a vocabulary of other film reviews lacks 1.3 % of the words of IMDb, and 4.8 % of Penn Treebank, on
# which models do well, is <unk> (Merity et al. 2016).
NOTEWORTHY_IN_TRAINING = 0.05
NOTEWORTHY_IN_PREDICTION = 0.2  # a short text may well contain a name or two
MAX_TEXTS = 5000  # to look at
MAX_EXAMPLES = 5  # words named in a note
MAX_WORD_LENGTH = 30  # in a note
MIN_CLAUSE_LENGTH = 5  # characters; in scripts without spaces, words have one to four
UNSPACED_SCRIPT = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
)  # Thai, Lao, Burmese, Khmer, kana, Han
CHARACTER_TOKENIZER = "--set \"tokenizer={kind='characters'}\""
SUBWORD_TOKENIZER = "--set \"tokenizer={kind='bpe',size=8000}\""
NEW_VOCABULARY = "--set \"tokenizer={kind='lexicon',size=60000}\""


@dataclass(frozen=True)
class UnknownWords:
    """Counts over a sample of the texts."""

    words: Counter[str]  # unknown words
    total: int  # words, known or not
    seen: int  # texts in the sample
    texts: int  # texts in all

    @property
    def share(self) -> float:
        return self.words.total() / max(1, self.total)

    @property
    def unspaced(self) -> float:
        """The share of unknown "words" that are whole clauses of Chinese, Japanese or Thai."""
        clauses = sum(
            n for word, n in self.words.items() if len(word) >= MIN_CLAUSE_LENGTH and UNSPACED_SCRIPT.search(word)
        )
        return clauses / max(1, self.words.total())

    def describe(self, where: str, vocabulary: str) -> str:
        """Say how many words `where` (such as " of train") are unknown to a `vocabulary`, and which are most common."""
        sample = f", by {self.seen:,} of {self.texts:,} texts" if self.seen < self.texts else ""
        common = [word for word, _ in self.words.most_common(MAX_EXAMPLES)]
        shown = [word if len(word) <= MAX_WORD_LENGTH else f"{word[: MAX_WORD_LENGTH - 1]}…" for word in common]
        return (
            f"{100 * self.share:.1f} % of the words{where} are not in the vocabulary of {vocabulary}{sample} and are "
            f"read as {UNKNOWN}, most often {', '.join(map(repr, shown))}"
        )


def count_unknown_words(network: Network | None, tokenizer: Tokenizer, texts: Sequence[str]) -> UnknownWords | None:
    """Count unknown words; None if the model can read any word. A literal <unk> in a text does not count."""
    reads_characters = network is not None and (network.is_open_vocabulary or network.max_characters > 0)
    if not is_word_level(tokenizer) or reads_characters:
        return None
    sample = texts[:: -(-len(texts) // MAX_TEXTS) or 1]
    unknown = tokenizer.special[UNKNOWN]
    not_words = [id for id in tokenizer.special.values() if id != unknown]
    words: Counter[str] = Counter()
    total = 0
    for text, encoding in zip(sample, tokenizer.encode_batch(list(sample)), strict=True):
        total += int((~np.isin(encoding.ids, not_words)).sum())
        spans = encoding.spans[encoding.ids == unknown].tolist()
        raw = text.encode() if spans else b""
        spelled = (raw[start:end].decode() for start, end in spans)
        words.update(map(str.lower, spelled) if tokenizer.lower else spelled)
    words.pop(UNKNOWN, None)
    return UnknownWords(words, total, len(sample), len(texts))


# ------------------------------------------------------------------------------------------------ before fine-tuning


def check_vocabulary(
    source: str, network: Network, tokenizer: Tokenizer, data: Dataset
) -> tuple[float | None, list[str]]:
    """Return the share of training words unknown to the run `source` (None: it knows all), and a note if it is high."""
    unknown = (
        count_unknown_words(network, tokenizer, data.training_texts()) if source and is_word_level(tokenizer) else None
    )
    if unknown is None:
        return None, []
    notes = []
    if unknown.share > NOTEWORTHY_IN_TRAINING:
        notes.append(f"{unknown.describe(' of train', source)}: {_advise(unknown, source, network, data)}")
    return round(unknown.share, 4), notes


def _advise(unknown: UnknownWords, source: str, network: Network, data: Dataset) -> str:
    """Suggest a new vocabulary if the network has one embedding per word, otherwise another run."""
    if unknown.unspaced > NOTEWORTHY_IN_PREDICTION:
        return (
            "this script has no spaces between words, so whole clauses count as one word. Train a character-level "
            f"model and fine-tune that: nextword train RECIPE --data TEXTS {CHARACTER_TOKENIZER}"
        )
    can_adapt = has_word_rows(network) and not network.is_conditional
    recipe = RunFolder.open(source).recipe if can_adapt else None
    if recipe is None or recipe.task is not None:
        return "use a run that was trained on similar texts, or one with a subword tokenizer"
    if _was_trained_on(recipe, data):
        return (
            "the run was trained on these very texts, so its vocabulary is too small for them. Train it with subwords: "
            f"nextword train {shlex.quote(f'{source}/recipe.toml')} --data {_training_text(data)} {SUBWORD_TOKENIZER}"
        )
    command = _adaptation_command(unknown, source, recipe, _training_text(data))
    return f"first train the language model on these texts and their words, then fine-tune that: {command}"


def _was_trained_on(recipe: Recipe, data: Dataset) -> bool:
    """Whether the language model's training text is this data set, or a column of it."""
    sources = {part for phase in recipe.phases for part in (phase.data, phase.data.rpartition(":")[0]) if part}
    return Path(data.name).resolve() in {Path(source).resolve() for source in sources}


def _training_text(data: Dataset) -> str:
    """Return the texts as an argument of `nextword train --data`."""
    if not isinstance(data, TextDataset) or data.kind == "multiple_choice" or not Path(data.name).exists():
        return "TEXTS"
    column = data.columns.text
    return data.name if column == "text" else f"{data.name}:{column}"


def _adaptation_command(unknown: UnknownWords, source: str, recipe: Recipe, texts: str) -> str:
    """Use the paper's recipe for adapting a language model (ulmfit/lm) if it has one, else the run's own recipe."""
    init = f"phase.0.init_from={source}"
    candidates = [load_recipe(name) for name in recipe_names() if name.startswith(f"{recipe.slug}/")]
    candidates = [candidate for candidate in candidates if candidate.phases[0].init_from]
    if not candidates:
        data = [texts] if len(recipe.phases) == 1 else [f"{phase.name}={texts}" for phase in recipe.phases]
        options = shlex.join(chain(*(("--data", value) for value in data)))
        file = shlex.quote(f"{source}/recipe.toml")
        return f"nextword train {file} {options} --set {shlex.quote(init)} {NEW_VOCABULARY}"
    best = min(candidates, key=lambda candidate: len(_shape_changes(recipe, candidate)))
    changes = [init, *_shape_changes(recipe, best)]
    min_count = best.tokenizer.get("min_count", 1)
    still_unknown = sum(n for n in unknown.words.values() if n < min_count)
    if still_unknown > NOTEWORTHY_IN_TRAINING * unknown.total:
        changes.append("tokenizer.min_count=1")
    return shlex.join(["nextword", "train", best.name, "--data", texts, *chain(*(("--set", one) for one in changes))])


def _shape_changes(recipe: Recipe, other: Recipe) -> list[str]:
    """Return the settings that give `other` the network shape of `recipe`; dropout rates stay its own."""
    shape = {key: value for key, value in recipe.model.items() if isinstance(value, (bool, int, str))}
    changes = {key: value for key, value in shape.items() if other.model.get(key, False) != value}
    return [f"model.{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in changes.items()]


# ------------------------------------------------------------------------------------------------ before predicting


def unknown_word_notes(model: TextModel | TextPredictor, texts: Sequence[str], where: str = "") -> list[str]:
    """Return a note if so many words are unknown that predictions mean little."""
    unknown = count_unknown_words(model.network, model.tokenizer, texts)
    if unknown is None or unknown.share <= NOTEWORTHY_IN_PREDICTION:
        return []
    return [unknown.describe(where, "the run")]
