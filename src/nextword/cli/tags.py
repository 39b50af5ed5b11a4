"""`nextword predict` of a run that tags words: columns or JSON lines out, of plain text or of columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from nextword.cli.console import console, emit_json, err, progress_bar

JSON_LINES = ".jsonl"
ENDINGS = (".conll", ".tsv", JSON_LINES)


def predict_tags(lm: Any, run: str, file: str, output: Path | None, json: bool, quiet: bool) -> None:
    from nextword.contract import NextwordError

    if output is not None and output.suffix not in ENDINGS:
        raise NextwordError(f"--output {output}: tags are written as {', '.join(ENDINGS)}.")
    given = given_sentences(lm, file)
    with progress_bar("tagging", len(given), quiet or json) as update:
        found = lm.predict([one.words for one in given], update)
    measured = _measured(lm, given, found)
    if json:
        sentences = [_fields(lm, one) for one in found]
        emit_json({"run": run, "labels": list(lm.settings.labels), "measured": measured, "sentences": sentences})
        return
    text = _written(lm, given, found, output.suffix if output else ".conll")
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        output.write_text(text, encoding="utf-8")
        words = sum(len(one.words) for one in found)
        console.print(
            f"[green]✓[/] {words:,} words of {len(found):,} sentences → {escape(str(output))}", soft_wrap=True
        )
    if measured and not quiet:
        said = " · ".join(f"{name} {100 * value:.1f}" for name, value in measured.items())
        err.print(f"against the tags in {escape(file)}: {said}", soft_wrap=True)


def given_sentences(lm: Any, file: str) -> list[Any]:
    """Sentences of words, with the right tags where the file has them."""
    from nextword.contract import NextwordError
    from nextword.corpora.decoding import lines, plain_name
    from nextword.corpora.tagged import is_columns, read_tagged
    from nextword.corpora.tagged_text import TaggedSentence

    source = list(lines(file))
    if not any(line.strip() for line in source):
        raise NextwordError(f"{file} has no text in it. Expected a sentence a line, or a word a line.")
    if is_columns(plain_name(file), source):
        return read_tagged(file, lm.settings.label, bare=True, source=source).sentences
    return [TaggedSentence(tuple(lm.words_of(line)), ()) for line in source]


def _measured(lm: Any, given: Sequence[Any], found: Sequence[Any]) -> dict[str, float]:
    """The task's metrics, where all sentences have tags, and those are of the task."""
    from nextword.corpora.tag_schemes import has_spans, spans
    from nextword.metrics.spans import ACCURACY, OF_SPANS

    if not all(one.tags for one in given):
        return {}
    there = {tag for one in given for tag in one.tags}
    if lm.spans:
        if there != {"O"} and not has_spans(there):
            return {}
        gold, said = ([(i, *span) for i, one in enumerate(some) for span in spans(one.tags)] for some in (given, found))
        return {name: OF_SPANS[name](gold, said) for name in OF_SPANS}
    if not there & set(lm.settings.labels):
        return {}
    pairs = [pair for a, b in zip(given, found, strict=True) for pair in zip(a.tags, b.tags, strict=True)]
    return {ACCURACY: sum(a == b for a, b in pairs) / len(pairs)}


def _fields(lm: Any, one: Any) -> dict[str, Any]:
    spans = [
        {"type": span.type, "start": span.start, "end": span.end, "text": " ".join(one.words[span.start : span.end])}
        for span in lm.spans_of(one)
    ]
    return {"words": list(one.words), "tags": list(one.tags), **({"spans": spans} if lm.spans else {})}


def _written(lm: Any, given: Sequence[Any], found: Sequence[Any], ending: str) -> str:
    """A word, the right tag where there is one, and the tag that was found; an empty line after each sentence.

    Both are in the same scheme, so that CoNLL's own script can read them.
    """
    from nextword.corpora.tag_schemes import converted
    from nextword.tagging import OUTPUT

    if ending == JSON_LINES:
        import json as library

        return "".join(library.dumps(_fields(lm, one), ensure_ascii=False) + "\n" for one in found)
    parts = []
    for before, after in zip(given, found, strict=True):
        right = converted(before.tags, OUTPUT) if lm.spans else before.tags
        columns = [after.words, *([right] if before.tags else []), after.tags]
        parts += ["\t".join(cells) + "\n" for cells in zip(*columns, strict=True)]
        parts.append("\n")
    return "".join(parts)
