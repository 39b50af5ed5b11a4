"""Compare sequence-to-sequence models on the same pairs: BLEU, chrF, the perplexity of the targets, and examples.

A comparison is one of translators if the recipes say so: all entries train on pairs, or none does.

The report shows what each model makes of some sources, and which source words its attention looked at. Networks attend
to tokens, people read words: attention is summed over the tokens of a source word, and averaged over those of a target
word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from nextword.core.errors import InvalidSetting
from nextword.core.types import Decoding, Document, Greedy
from nextword.data.corpus import Corpus
from nextword.data.parallel_files import ParallelCorpus
from nextword.data.text_to_text import is_tasks
from nextword.evaluation.seq2seq import evaluate_translations, generate_targets
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.objectives import trains_on_pairs
from nextword.run_folder import RunFolder, is_run
from nextword.tokenizers.base import Tokenizer

TRANSLATOR = "translator"  # the kind of a model in a comparison; the others are "exact" and "pseudo"
MAX_SCORED = 1000  # pairs
NUM_EXAMPLES = 4
MIN_WORDS, MAX_WORDS = 5, 14  # of a source that an attention map has room for
END_OF_TEXT = "⏎"


def are_translators(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the entries of a plan are sequence-to-sequence models; raises if only some are."""
    phases = {entry["name"]: _last_phase(entry) for entry in entries}
    on_tasks = [name for name, (_, data) in phases.items() if is_tasks(data)]
    if on_tasks:
        raise InvalidSetting(
            f"{', '.join(on_tasks)}: each text-to-text task has its own metric, so there is no single number to "
            "compare. Use `nextword evaluate RUN`.",
            key="names",
            value=on_tasks,
        )
    with_pairs = [name for name, (objective, _) in phases.items() if trains_on_pairs(objective)]
    others = [name for name in phases if name not in with_pairs]
    if with_pairs and others:
        raise InvalidSetting(
            f"{', '.join(with_pairs)} translate, {', '.join(others)} model plain text, and no number fits both. "
            "Compare them separately.",
            key="names",
            value=with_pairs,
        )
    return bool(with_pairs)


def default_pairs(names: Sequence[str]) -> str:
    """The pairs that the first run among these was trained on; "" if there is none, or if it models plain text."""
    for name in names:
        if is_run(name):
            phase = RunFolder.open(name).recipe.phases[-1]
            return str(phase.data) if trains_on_pairs(phase.objective) else ""
    return ""


def _last_phase(entry: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Objective and data of the last phase of an entry."""
    if "recipe" in entry:
        phase = entry["recipe"]["phase"][-1]
        return phase.get("objective") or {}, str(phase.get("data") or "")
    last = RunFolder.open(entry["run"]).recipe.phases[-1]
    return last.objective, str(last.data)


# ------------------------------------------------------------------------------------------------ scores


def score_translator(
    lm: Seq2SeqLM, corpus: Corpus, split: str, examples: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """BLEU and chrF of greedy decoding with intervals, the perplexity of the targets, and the examples."""
    pairs = list(islice(corpus.documents(split), MAX_SCORED))
    has_summaries = isinstance(corpus, ParallelCorpus) and corpus.is_summarization
    result = evaluate_translations(lm, pairs, Greedy(), summaries=has_summaries)
    flat: dict[str, Any] = {}
    for name, score in result.scores.items():
        flat |= {name: score["score"], f"{name}_low": score["low"], f"{name}_high": score["high"]}
    return {
        **{key: value for key, value in result.as_dict().items() if key != "scores"},
        **flat,
        "signatures": {name: score["signature"] for name, score in result.scores.items()},
        "kind": TRANSLATOR,
        "examples": translate_examples(lm, examples, Greedy()),
    }


# ------------------------------------------------------------------------------------------------ examples


def choose_examples(corpus: Corpus) -> list[dict[str, str]]:
    """Validation pairs for all models to translate; test pairs if there are no others."""
    return choose_pairs(corpus.documents("valid" if "valid" in corpus.splits else "test"))


def choose_pairs(pairs: Iterable[Document], count: int = NUM_EXAMPLES) -> list[dict[str, str]]:
    """Pairs of readable length from all over a text; the shortest ones if there are too few of those."""
    candidates = [(pair.source or "", pair.text) for pair in pairs]
    readable = [pair for pair in candidates if all(MIN_WORDS <= len(side.split()) <= MAX_WORDS for side in pair)]
    if len(readable) < count:
        readable = sorted(candidates, key=lambda pair: max(len(side.split()) for side in pair))[:count]
    indices = np.linspace(0, len(readable) - 1, min(count, len(readable))).round().astype(int)
    return [{"source": readable[i][0], "target": readable[i][1]} for i in indices]


def translate_examples(
    lm: Seq2SeqLM, examples: Sequence[Mapping[str, str]], decoding: Decoding
) -> list[dict[str, Any]]:
    """What the model writes for each source, with its attention map if it has attention."""
    texts = generate_targets(lm, [example["source"] for example in examples], decoding)
    return [
        {"written": text, "map": attention_by_word(lm, text, example["source"]) if lm.has_attention and text else None}
        for text, example in zip(texts, examples, strict=True)
    ]


def attention_by_word(lm: Seq2SeqLM, text: str, source: str) -> dict[str, Any]:
    """Source and target words, including the ends of both texts, and the attention [target][source]."""
    source_words, source_word_of = split_into_words(lm.tokenizer, source)
    target_words, target_word_of = split_into_words(lm.tokenizer, text)
    weights = lm.alignment(text, source).weights
    by_source_word = np.zeros((len(weights), len(source_words)))
    np.add.at(by_source_word.T, source_word_of, weights.T[: len(source_word_of)])
    shares = np.zeros((len(target_words), len(source_words)))
    np.add.at(shares, target_word_of, by_source_word[: len(target_word_of)])
    shares /= np.maximum(np.bincount(target_word_of, minlength=len(target_words)), 1)[:, None]
    return {"source": source_words, "target": target_words, "weights": shares.round(4).tolist()}


def split_into_words(tokenizer: Tokenizer, text: str) -> tuple[list[str], np.ndarray]:
    """The words of a text and its end; and for each token, including the end, the index of its word."""
    encoding, raw = tokenizer.encode(text), text.encode()
    numbers, word_of = np.unique(encoding.words, return_inverse=True)
    words = []
    for word in range(len(numbers)):
        spans = encoding.spans[word_of == word]
        words.append(raw[int(spans[:, 0].min()) : int(spans[:, 1].max())].decode("utf-8", "replace").strip() or "␣")
    return [*words, END_OF_TEXT], np.append(word_of.astype(np.int64), len(words))
