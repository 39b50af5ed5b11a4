"""What a task of the catalog is: where its files lie, who reads them, what is learnt of them, and how it is judged.

A task of any kind is one such line; which there are is said in catalog.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nextword.transfer.tables import Rows, held_out

Read = tuple[dict[str, Rows], list[str]]  # split → its rows; and what is to be known of them
TENTH = "a tenth of train"  # the dev split of sets that have none: the same rows each time
OWN = "as published"


@dataclass(frozen=True)
class Task:
    name: str
    title: str
    kind: str
    frame: str  # models/frames.py; "similar" where neither text comes first
    metrics: tuple[str, ...]  # the first is the headline
    files: tuple[str, ...]  # one of these must be there
    reader: Callable[[Path], Read]
    catalog: str = ""  # the name that its files have in the catalog, where it is not GLUE's
    aliases: tuple[str, ...] = ()
    dev: str = OWN  # where the dev split comes from
    submission: Mapping[str, str] = field(default_factory=dict)  # split without labels → file of its predictions
    bounds: tuple[float, float] | None = None  # numbers in such a file lie between these
    heading: str = "index\tprediction\n"  # its first line
    line: Callable[[str, str], str] = "{}\t{}\n".format  # each other, of the example's id and what is said of it
    key: str = ""  # the column that has the ids; "": without one they are the rows' numbers

    def read(self, folder: Path) -> Read:
        return self.reader(folder)


def with_dev(found: dict[str, Rows], what: str = "rows") -> Read:
    """Where there is no dev split, a tenth of each class of train becomes one."""
    if "dev" in found:
        return found, []
    train = found["train"]
    chosen = held_out(train)
    rest = sorted(set(range(len(train))) - set(chosen))
    note = f"no dev split: {len(chosen):,} of {len(train):,} {what} are held out, the same each time"
    return {**found, "train": train.take(rest), "dev": train.take(chosen)}, [note]
