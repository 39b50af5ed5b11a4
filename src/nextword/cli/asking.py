"""`nextword predict` without a head: labels that a language model chooses among, after solved examples or none."""

from __future__ import annotations

from typing import Any

SHOTS = 8
BLANK, ASKED, OTHER = "have no text or no label", "are asked about too", "have a label that is not among --labels"


def chooser(
    lm: Any,
    run: str,
    labels: str,
    template: str,
    calibrate: bool,
    examples: str,
    shots: int,
    seed: int,
    asked: Any,
    text: str,
) -> tuple[Any, list[str]]:
    """The model as a classifier, and what is to be said of the examples in its prompt. `asked`: the table of texts."""
    from nextword.contract_errors import NextwordError
    from nextword.prompting import SECOND, TEMPLATE, ZeroShot, drawn

    names = [one.strip() for one in labels.split(",")] if labels else []
    solved: list[tuple[str, str]] = []
    notes: list[str] = []
    if examples and SECOND in template:
        raise NextwordError(
            f"--template {template!r}: --examples are of one text each. For two texts: nextword transfer "
            f"gpt3/in-context --from {run} --data {examples}"
        )
    if examples:
        texts, right, notes = _examples(examples, names, asked, text)
        names = names or sorted(set(right))
        solved = drawn(texts, right, shots, seed)
        counts = {name: sum(label == name for _, label in solved) for name in names}
        said = ", ".join(f"{n} of {name!r}" for name, n in counts.items())
        notes.append(f"{len(solved)} examples of {examples} stand before every text ({said})")
    return ZeroShot(lm, names, template or TEMPLATE, calibrate, run, solved), notes


def _examples(file: str, names: list[str], asked: Any, text: str) -> tuple[list[str], list[str], list[str]]:
    """Texts and labels that may stand in a prompt: of the labels asked for, and none of the texts asked about."""
    from nextword.contract_errors import NextwordError
    from nextword.transfer.tables import Columns, guess, labelled, read_table

    table = read_table(file, labelled())
    columns = guess(table, Columns(text if text in table.header else ""))
    rows = table.rows_of(Columns(columns.text, "", columns.label))
    there = {cell.strip() for row in asked.rows for cell in row}
    fits, left = [], {ASKED: 0, BLANK: 0, OTHER: 0}
    for one, label in zip(rows.texts, rows.labels or (), strict=True):
        if not one.strip() or not label:
            left[BLANK] += 1
        elif one.strip() in there:
            left[ASKED] += 1
        elif names and label not in names:
            left[OTHER] += 1
        else:
            fits.append((one.strip(), label))
    notes = [f"{n:,} of {len(rows):,} rows of {file} {why}: they are no examples" for why, n in left.items() if n]
    if not fits:
        raise NextwordError(f"--examples {file}: none of its {len(rows):,} rows can be shown. {'; '.join(notes)}.")
    return [one for one, _ in fits], [label for _, label in fits], notes
