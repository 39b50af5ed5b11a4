"""A whole study in forty lines: the worked example of CONTRIBUTING.md."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = Claim("Half of all tokens are covered by less than a tenth of the vocabulary.", "Zipf 1935, in words")
TEXT = "the cat and the dog and the bird saw the end of the day " * 20 + " ".join(f"word{i}" for i in range(150))


def measure(settings: Settings, progress: Progress) -> Measured:
    counts = [count for _, count in Counter(TEXT.split()).most_common()]
    covered, words = 0, 0
    while covered < sum(counts) / 2:
        covered, words = covered + counts[words], words + 1
    progress(1, 1)
    table = Table("Words that cover half of the text", ("vocabulary", "words"), ((len(counts), words),))
    return {"coverage": table}, {"data": "built in"}


def judge(tables: Tables) -> list[Part]:
    size, words = tables["coverage"].cell("vocabulary"), tables["coverage"].cell("words")
    evidence = f"{words} of {size} words cover half of the text."
    return [Part("Few words cover half.", words < size / 10, evidence, "none: the text is fixed")]


def draw(tables: Tables, figure: Figure) -> None:
    axes = figure.subplots()
    axes.bar(["vocabulary", "words for half"], tables["coverage"].rows[0])
