"""The verdict of the study of blanks, from its numbers alone."""

from __future__ import annotations

from typing import Any

from nextword.studies.measures import above
from nextword.studies.small_transformers import by, ranged
from nextword.studies.study import Claim, Part, Table, Tables, judged

CLAIM = Claim(
    "A network that writes blanks piece by piece until each is over, in sight of both sides (GLM), fills blanks of "
    "several words better than BERT, which must be told how many tokens are missing and guesses each by itself, and "
    "than GPT, which sees the left side alone, for as many tokens read.",
    "Du et al. 2021, sections 1, 2.1 and 2.4",
)
GLM_NAME, BERT_NAME, GPT = "GLM", "BERT", "GPT-2"
LIKED, TOLD_BERT, AT_ONCE = "BERT, by pseudo-likelihood", "BERT, told the length", "BERT, told, all at once"
TOLD_GPT, RESCORED = "GPT-2, told the length", "GPT-2, rescored"
PSEUDO = "BERT, pseudo"  # its nats are of no distribution
WAYS = (GLM_NAME, BERT_NAME, LIKED, GPT, RESCORED, TOLD_BERT, AT_ONCE, TOLD_GPT)
SEVERAL = "several"  # words
RIGHT, NATS = "right, %", "nats a word"


def judge(tables: Tables) -> list[Part]:
    levels = tables[RIGHT]
    better = max((BERT_NAME, LIKED), key=lambda way: levels.cell(SEVERAL, network=way)[0])  # in BERT's favour
    return [
        _right(tables, GLM_NAME, better, "Nobody being told the length, GLM is right more often than BERT."),
        _right(tables, GLM_NAME, GPT, "Nobody being told the length, GLM is right more often than GPT-2."),
        _nats(tables, GLM_NAME, BERT_NAME, "It gives the true words more probability than BERT."),
        _nats(tables, GLM_NAME, GPT, "It gives the true words more probability than GPT-2."),
        _right(tables, GLM_NAME, TOLD_BERT, "It is right more often than a BERT that is told the length.", decides=False),
        _nats(tables, GLM_NAME, TOLD_BERT, "It gives them more probability than that BERT.", decides=False),
        _nats(tables, GLM_NAME, AT_ONCE, "It gives them more than a BERT that guesses all pieces at once.", decides=False),
        _nats(
            tables, TOLD_BERT, AT_ONCE, "BERT gives them more piece by piece than all at once.", decides=False
        ),
        _right(tables, GLM_NAME, TOLD_GPT, "It is right more often than a GPT-2 that is told the length.", decides=False),
        _right(
            tables, GLM_NAME, RESCORED, "It is so, too, where GPT-2 may rescore its best by the right side.", decides=False
        ),
        _nats(tables, GLM_NAME, RESCORED, "It gives the true words more probability than that.", decides=False),
        _right(tables, GLM_NAME, better, "Where one word is missing, it is right more often than BERT.", "1", decides=False),
    ]  # fmt: skip


def _cell(apart: Table, measure: str, way: str, than: str, words: str) -> Any:
    return apart.cell(measure, network=way, than=than, words=words)


def _right(tables: Tables, way: str, than: str, says: str, words: str = SEVERAL, decides: bool = True) -> Part:
    cell = _cell(tables["differences"], RIGHT, way, than, words)
    mine, its = (tables[RIGHT].cell(words, network=name)[0] for name in (way, than))
    found = f"{way} fills {mine:.1f} % of {_blanks(words)} right, {than} {its:.1f} %: {by(cell[0], 'points', 1)}."
    return Part(says, judged(above(cell)), found, f"points better: {ranged(cell, 1)}", decides)


def _nats(tables: Tables, way: str, than: str, says: str, decides: bool = True) -> Part:
    cell = _cell(tables["differences"], NATS, way, than, SEVERAL)
    mine, its = (tables[NATS].cell(SEVERAL, network=name)[0] for name in (way, than))
    found = (
        f"In {_blanks(SEVERAL)} a true word costs {way} {mine:.2f} nats, {than} {its:.2f}: {by(cell[0], 'nats', 2)}."
    )
    return Part(says, judged(above(cell)), found, f"nats better: {ranged(cell, 2)}", decides)


def _blanks(words: str) -> str:
    return "blanks of several words" if words == SEVERAL else "blanks of one word"
