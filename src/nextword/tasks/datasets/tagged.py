"""Tagged words: sentences with a tag for every word, by name ("conll2003", "conll2003:pos"), a file, or a folder.

Spans are converted to the scheme that a tagger learns (data/tag_schemes.py); data/conll.py reads the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from nextword.core.errors import DataError, InvalidSetting
from nextword.data.conll import TaggedSentence, TaggedText, detect_scheme, open_tagged
from nextword.data.segmentation import join_words
from nextword.data.tables import Columns, Rows
from nextword.data.tag_schemes import OUTSIDE, PLAIN, convert_tags, parse_tag
from nextword.metrics.spans import SPAN_METRICS, TAGGING_METRICS, TOKEN_ACCURACY, score_tags
from nextword.tasks.base import DEV_IS_TRAINED_ON, Dataset
from nextword.tasks.baselines import Method, Scored, tag_baselines, tag_metric_on_samples
from nextword.tasks.data_checks import note_duplicates
from nextword.tasks.datasets.base import hold_out_dev
from nextword.tasks.mixtures import MixedDataset, split_names


@dataclass(frozen=True)
class TagDataset(Dataset):
    """Tagged sentences, in the scheme that is learned."""

    name: str
    splits: Mapping[str, TaggedText]
    labels: tuple[str, ...]  # tags of the training sentences, in order
    unseen: tuple[str, ...]  # tags that only other splits have
    scheme: str  # "": tags are not spans
    columns: Columns
    notes: tuple[str, ...] = ()

    kind = "tagging"

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(SPAN_METRICS) if self.scheme != PLAIN else (TOKEN_ACCURACY,)

    @property
    def possible_metrics(self) -> Sequence[str]:
        return TAGGING_METRICS if self.scheme != PLAIN else (TOKEN_ACCURACY,)

    @property
    def balance(self) -> dict[str, float]:
        """Type of span, or tag → its fraction of the training words."""
        counts = Counter(self.type(tag) for sentence in self.splits["train"].sentences for tag in sentence.tags)
        total = sum(counts.values())
        return {type: n / total for type, n in counts.most_common()}

    def type(self, tag: str) -> str:
        return tag if self.scheme == PLAIN or tag == OUTSIDE else parse_tag(tag)[1]

    @property
    def fingerprint(self) -> str:
        return "-".join(self.splits[split].fingerprint for split in ("train", "dev"))

    def encode_tags(self, split: str) -> list[list[int]]:
        """Indices of tags among all of them; those from len(labels) on were not seen in training."""
        index = {tag: i for i, tag in enumerate((*self.labels, *self.unseen))}
        return [[index[tag] for tag in sentence.tags] for sentence in self.splits[split].sentences]

    def words(self, split: str) -> list[tuple[str, ...]]:
        return [sentence.words for sentence in self.splits[split].sentences]

    def training_texts(self) -> list[str]:
        return [join_words(words) for words in self.words("train")]

    def baselines(self, train: TaggedText, splits: Sequence[str]) -> Iterator[Method]:
        return tag_baselines(train.sentences, {split: self.splits[split].sentences for split in splits}, self.type)

    def score(self, split: str, predictions: Sequence[Sequence[str]], metrics: Sequence[str]) -> Scored:
        """Of tags, one list for each sentence."""
        gold = [sentence.tags for sentence in self.splits[split].sentences]
        on_sample = tag_metric_on_samples(metrics[0], gold, predictions)
        return Scored(score_tags(metrics, gold, predictions), on_sample, len(gold))

    def only_prediction(self, predictions: Sequence[Sequence[str]]) -> str:
        tags = {tag for sentence in predictions for tag in sentence}
        return tags.pop() if len(tags) == 1 else ""

    def merge_dev_into_train(self) -> Self:
        train, dev = self.splits["train"], self.splits["dev"]
        in_dev = {tag for sentence in dev.sentences for tag in sentence.tags}
        joined = replace(train, sentences=[*train.sentences, *dev.sentences])
        return replace(
            self,
            splits={**self.splits, "train": joined},
            labels=(*self.labels, *(tag for tag in self.unseen if tag in in_dev)),
            unseen=tuple(tag for tag in self.unseen if tag not in in_dev),
            notes=(*self.notes, DEV_IS_TRAINED_ON),
        )


def read_tags(source: str, column: str = "", scheme: str = "BIOES") -> TagDataset:
    """Read tagged sentences and convert their spans to `scheme`. "conll2003:pos" names the column of tags.

    Without a dev split, a tenth of the training sentences is held out.
    """
    base, colon, own = source.rpartition(":")
    if colon and not Path(source).exists():
        return replace(read_tags(base, own, scheme), name=source)
    splits = open_tagged(source, column)
    if "train" not in splits:
        raise DataError(f"{source} has no training sentences here, only {', '.join(splits)}.", path=source)
    own_scheme = detect_scheme(splits)
    notes = [note for text in splits.values() for note in text.notes]
    if own_scheme not in (PLAIN, scheme):
        for split, text in splits.items():
            converted = [replace(row, tags=tuple(convert_tags(row.tags, scheme))) for row in text.sentences]
            splits[split] = replace(text, sentences=converted)
        notes.append(f"tags are {own_scheme}, converted to {scheme}")
    sentences = Rows([" ".join(sentence.words) for sentence in splits["train"].sentences])
    splits, more = hold_out_dev(splits, sentences, splits["train"].name, "sentences", by_class=False)
    notes += more
    seen = {split: {tag for sentence in text.sentences for tag in sentence.tags} for split, text in splits.items()}
    labels = sorted(seen["train"], key=lambda tag: (tag != OUTSIDE, parse_tag(tag)[1], tag))
    if len(labels) < 2:
        raise DataError(
            f"{source}: every training word has the tag {labels[0]!r}. Is --label the right column?", path=source
        )
    unseen = sorted(set().union(*seen.values()) - seen["train"])
    for split, tags in seen.items():
        new = sorted(tags - seen["train"])
        if new:
            notes.append(
                f"{split} has {len(new)} tags that training lacks ({', '.join(new[:3])}): they count as missed"
            )
    learned = PLAIN if own_scheme == PLAIN else scheme
    notes += note_duplicates({split: [s.words for s in text.sentences] for split, text in splits.items()}, "sentences")
    return TagDataset(source, splits, tuple(labels), tuple(unseen), learned, Columns(label=column), tuple(notes))


@dataclass(frozen=True)
class MixedTagDataset(MixedDataset):
    """Several sets of tagged sentences: "conll2000 + conll2003:ner"."""

    sets: tuple[TagDataset, ...]

    kind = "cross_view"
    labels = ()
    scheme = PLAIN  # each has its own

    @property
    def tasks(self) -> tuple[dict[str, Any], ...]:
        """What each task has of its own, for the run's [task]."""
        return tuple({"name": data.name, "scheme": data.scheme, "labels": list(data.labels)} for data in self.sets)

    @property
    def splits(self) -> dict[str, TaggedText]:  # type: ignore[override]
        """The sentences of all sets, one set after the other."""
        sentences: dict[str, list[TaggedSentence]] = {}
        for data in self.sets:
            for split, text in data.splits.items():
                sentences.setdefault(split, []).extend(text.sentences)
        return {split: TaggedText(self.name, joined) for split, joined in sentences.items()}


def read_tag_data(source: str, column: str = "", scheme: str = "BIOES") -> TagDataset | MixedTagDataset:
    """One set of tagged sentences, or several with " + " between their names."""
    names = split_names(source)
    if len(names) == 1:
        return read_tags(source, column, scheme)
    if column:
        raise InvalidSetting(
            f"--label {column} is for one data set. Name the column with each of several, as conll2003:pos.",
            key="label",
            value=column,
        )
    return MixedTagDataset(tuple(read_tags(name, scheme=scheme) for name in names))
