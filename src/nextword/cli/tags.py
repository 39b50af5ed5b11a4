"""`nextword predict` of a run that tags words: columns or JSON lines out, of plain text or of columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nextword.cli.console import progress_bar
from nextword.cli.delivery import JSON_LINES, compared, deliver, json_lines, refuse_ending

TAG_TABLES = (".csv", JSON_LINES)  # which are not read
SHOWN = 5  # tags in a note
TAG_ENDINGS = (".conll", ".tsv", JSON_LINES)


def predict_tags(
    lm: Any, run: str, file: str, output: Path | None, told: Sequence[str], json: bool, quiet: bool
) -> None:
    """`told`: what is to be known of the run."""
    from nextword.corpora.decoding import FROM_STDIN, STDIN

    given, found = tagged(lm, file, output, quiet or json)
    measured, notes = _measured_tags(lm, given, found)
    facts: dict[str, Any] | None = None
    if json:
        facts = {"run": run, "labels": list(lm.settings.labels), "measured": measured}
        facts["sentences"] = [_tag_fields(lm, one) for one in found]
    text = _written_tags(lm, given, found, output.suffix if output else ".conll")
    words = sum(len(one.words) for one in given)
    deliver(text, output, f"{words:,} words of {len(given):,} sentences", [*told, *notes], quiet, facts)
    compared(measured, f"the tags in {FROM_STDIN if file == STDIN else file}", quiet or json)


def tagged(lm: Any, file: str, output: Path | None, quiet: bool) -> tuple[list[Any], list[Any]]:
    """The sentences of a file, and what is said of each."""
    refuse_ending(output, TAG_ENDINGS, "tags")
    given = given_sentences(lm, file)
    with progress_bar("tagging", len(given), quiet) as update:
        return given, lm.predict([one.words for one in given], update)


def given_sentences(lm: Any, file: str) -> list[Any]:
    """Sentences of words, with the right tags where the file has them."""
    from nextword.contract_errors import NextwordError
    from nextword.corpora.decoding import FROM_STDIN, STDIN, lines, plain_name
    from nextword.corpora.tagged import is_columns, read_tagged
    from nextword.corpora.tagged_text import TaggedSentence

    source: list[str] = []
    table = Path(plain_name(file)).suffix.lower() in TAG_TABLES
    if not table:
        source = list(lines(file))
        table = any(_of_table(line) for line in source[:1])
    if table:
        raise NextwordError(
            f"{FROM_STDIN if file == STDIN else file} is a table. A tagger reads a sentence a line, or a word a line: "
            "give it the texts alone."
        )
    if not any(line.strip() for line in source):
        raise NextwordError(f"{file} has no text in it. Expected a sentence a line, or a word a line.")
    if is_columns(plain_name(file), source):
        return read_tagged(file, lm.settings.label, bare=True, source=source).sentences
    return [TaggedSentence(tuple(lm.words_of(line)), ()) for line in source]


def _of_table(line: str) -> bool:
    """Whether a line that stands first is the header of a csv, or a JSON object."""
    from json import loads

    from nextword.transfer.tables import like_a_header

    if not line.lstrip().startswith("{"):
        return "\t" not in line and like_a_header(line)
    try:
        return isinstance(loads(line), dict)
    except ValueError:
        return False


def _measured_tags(lm: Any, given: Sequence[Any], found: Sequence[Any]) -> tuple[dict[str, float], list[str]]:
    """The task's metrics, where all sentences have tags, and those are of the task; and what training never saw."""
    from nextword.corpora.tag_schemes import has_spans, parts, spans
    from nextword.metrics.spans import ACCURACY, OF_SPANS

    if not all(one.tags for one in given):
        return {}, []
    there = {tag for one in given for tag in one.tags}
    names = (lambda tag: parts(tag)[1]) if lm.spans else str
    strange = sorted({*map(names, there)} - {*map(names, lm.settings.labels)})
    notes = []
    if strange:
        shown = ", ".join(strange[:SHOWN]) + (", …" if len(strange) > SHOWN else "")
        what = "types of spans" if lm.spans else "tags"
        notes.append(f"{what} that training never saw: {shown}. They are never found")
    if lm.spans:
        if there != {"O"} and not has_spans(there):
            return {}, notes
        gold, said = ([(i, *span) for i, one in enumerate(some) for span in spans(one.tags)] for some in (given, found))
        return {name: OF_SPANS[name](gold, said) for name in OF_SPANS}, notes
    if not there & set(lm.settings.labels):
        return {}, notes
    pairs = [pair for a, b in zip(given, found, strict=True) for pair in zip(a.tags, b.tags, strict=True)]
    return {ACCURACY: sum(a == b for a, b in pairs) / len(pairs)}, notes


def _tag_fields(lm: Any, one: Any) -> dict[str, Any]:
    spans = [
        {"type": span.type, "start": span.start, "end": span.end, "text": " ".join(one.words[span.start : span.end])}
        for span in lm.spans_of(one)
    ]
    return {"words": list(one.words), "tags": list(one.tags), **({"spans": spans} if lm.spans else {})}


def _written_tags(lm: Any, given: Sequence[Any], found: Sequence[Any], ending: str) -> str:
    """A word, the right tag where there is one, and the tag that was found; an empty line after each sentence.

    Both are in the same scheme, so that CoNLL's own script can read them.
    """
    from nextword.corpora.tag_schemes import converted
    from nextword.tagging import OUTPUT

    if ending == JSON_LINES:
        return json_lines(_tag_fields(lm, one) for one in found)
    parts = []
    for before, after in zip(given, found, strict=True):
        right = converted(before.tags, OUTPUT) if lm.spans else before.tags
        columns = [after.words, *([right] if before.tags else []), after.tags]
        parts += ["\t".join(cells) + "\n" for cells in zip(*columns, strict=True)]
        parts.append("\n")
    return "".join(parts)
