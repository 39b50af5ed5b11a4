"""The last training: of everything that has a label, dev too, once all has been chosen by dev ([task] final, --final).

train  ████████████████ ┐                                dev is scored as ever, but its score says nothing now:
dev    ███ ─────────────┴─▶ train  ███████████████████   those examples are learnt. What says something is test
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nextword.core.errors import NextwordError
from nextword.data.tables import joined_rows
from nextword.tasks.data import DataSet
from nextword.tasks.several import Sets
from nextword.tasks.tag_data import TagSet

NOTE = "dev is learnt from too, so its scores say nothing; the weights of the last step are kept"


def counted(result: Mapping[str, Any], split: str) -> str:
    """How many examples a number is of, and whether they were learnt from."""
    learnt = ", learnt from too" if split == "dev" and result.get("final") else ""
    return f"{result['examples'][split]:,} examples{learnt}"


def whole(data: Any) -> Any:
    """The same data set, or sets, with the examples of dev at the end of those of train."""
    if isinstance(data, Sets):
        return replace(data, sets=tuple(map(whole, data.sets)))
    if not isinstance(data, (DataSet, TagSet)):
        raise NextwordError("[task] final (--final) is for labelled texts and tagged words, not for spans of passages.")
    if isinstance(data, TagSet):
        train, dev = data.splits["train"], data.splits["dev"]
        late = {tag for one in dev.sentences for tag in one.tags}
        labels = (*data.labels, *(tag for tag in data.unseen if tag in late))
        unseen = tuple(tag for tag in data.unseen if tag not in late)
        joined = replace(train, sentences=[*train.sentences, *dev.sentences])
        data = replace(data, splits={**data.splits, "train": joined}, labels=labels, unseen=unseen)
    else:
        rows = joined_rows([data.splits["train"], data.splits["dev"]])
        data = replace(data, splits={**data.splits, "train": rows})
    return replace(data, notes=(*data.notes, NOTE))
