"""Tagged sentences, ready to be learnt from: their scheme found out and converted, their tags, and what to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nextword.core.errors import NextwordError
from nextword.data.conll import TaggedText, open_tagged, scheme_of
from nextword.data.tables import Columns, Rows, held_out
from nextword.data.tag_schemes import OUTSIDE, PLAIN, SCHEMES, converted, parts
from nextword.metrics.spans import ACCURACY, OF_SPANS


@dataclass(frozen=True)
class TagSet:
    """As transfer/data.py's DataSet, for tags."""

    name: str
    splits: Mapping[str, TaggedText]  # in the scheme that is learnt
    labels: tuple[str, ...]  # tags of the training sentences, in order
    unseen: tuple[str, ...]  # tags that only other splits have
    scheme: str  # that is learnt; "": tags are no spans
    columns: Columns
    notes: tuple[str, ...] = ()

    kind = frame = "tag"
    scale = (0.0, 1.0)

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(OF_SPANS) if self.scheme != PLAIN else (ACCURACY,)

    @property
    def balance(self) -> dict[str, float]:
        """Type of span, or tag → its share of the words of the training sentences."""
        counts = Counter(self.type(tag) for one in self.splits["train"].sentences for tag in one.tags)
        total = sum(counts.values())
        return {type: n / total for type, n in counts.most_common()}

    def type(self, tag: str) -> str:
        return tag if self.scheme == PLAIN or tag == OUTSIDE else parts(tag)[1]

    @property
    def fingerprint(self) -> str:
        return "-".join(self.splits[split].fingerprint for split in ("train", "dev"))

    def encoded(self, split: str) -> list[list[int]]:
        """Places of tags among all that there are; those beyond `labels` were never seen in training."""
        place = {tag: i for i, tag in enumerate((*self.labels, *self.unseen))}
        return [[place[tag] for tag in one.tags] for one in self.splits[split].sentences]


def open_tags(name: str, column: str = "", scheme: str = "BIOES") -> TagSet:
    """`scheme`: that spans are to be learnt in. Without a dev split, a tenth of the training sentences is held out."""
    if scheme not in SCHEMES:
        raise NextwordError(f"[task] scheme = {scheme!r}; expected one of {', '.join(SCHEMES)}.")
    splits = open_tagged(name, column)
    if "train" not in splits:
        raise NextwordError(f"{name} has no training sentences here, only {', '.join(splits)}.")
    found = scheme_of(splits)
    notes = [note for text in splits.values() for note in text.notes]
    if found not in (PLAIN, scheme):
        splits = {split: _in_scheme(text, scheme) for split, text in splits.items()}
        notes.append(f"tags are {found}, and are learnt as {scheme}")
    if "dev" not in splits:
        splits, note = _held_out(splits)
        notes.append(note)
    seen = {split: {tag for one in text.sentences for tag in one.tags} for split, text in splits.items()}
    labels = sorted(seen["train"], key=lambda tag: (tag != OUTSIDE, parts(tag)[1], tag))
    if len(labels) < 2:
        raise NextwordError(f"{name}: every training word has the tag {labels[0]!r}. Is --label the right column?")
    unseen = sorted(set().union(*seen.values()) - seen["train"])
    for split, tags in seen.items():
        strange = sorted(tags - seen["train"])
        if strange:
            notes.append(
                f"{split} has {len(strange)} tags that no training sentence has ({', '.join(strange[:3])}): they can "
                "never be found, and count as missed"
            )
    return TagSet(
        name,
        splits,
        tuple(labels),
        tuple(unseen),
        PLAIN if found == PLAIN else scheme,
        Columns(label=column),
        (*notes, *_repeated(splits)),
    )


def _in_scheme(text: TaggedText, scheme: str) -> TaggedText:
    return replace(text, sentences=[replace(one, tags=tuple(converted(one.tags, scheme))) for one in text.sentences])


def _held_out(splits: Mapping[str, TaggedText]) -> tuple[dict[str, TaggedText], str]:
    text = splits["train"]
    held = set(held_out(Rows([" ".join(one.words) for one in text.sentences]), by_class=False))
    if not held or len(held) == len(text):
        raise NextwordError(
            f"{text.name} is too short to hold sentences out: it has {len(text)}. Give more of them, or a folder with "
            "a train and a dev file."
        )
    rest, chosen = ([one for i, one in enumerate(text.sentences) if (i in held) == wanted] for wanted in (False, True))
    note = f"no dev split: {len(held):,} sentences of {len(text):,} are held out, the same ones each time"
    return {**splits, "train": replace(text, sentences=rest), "dev": replace(text, sentences=chosen)}, note


def _repeated(splits: Mapping[str, TaggedText]) -> list[str]:
    seen = {one.words for one in splits["train"].sentences}
    notes = []
    for split in ("dev", "test"):
        if split in splits:
            again = sum(one.words in seen for one in splits[split].sentences)
            if again:
                notes.append(f"{again:,} of {len(splits[split]):,} sentences of {split} are in train too")
    return notes
