"""`nextword data … --clean OUT`: quality, duplicates and leaks, and a table of what went.

And `nextword evaluate … --against DATA`: scores of what was seen in training and of the rest, side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nextword.cli.console import console, progress_bar, say_columns

CLASSIFIER = ".safetensors"


def clean_corpus(
    name: str, out: Path, deduplicate: bool, good: str, against: Sequence[str], seed: int, quiet: bool
) -> dict[str, Any]:
    """The report of cleaning a corpus into a new folder."""
    from nextword.contract_errors import NextwordError
    from nextword.corpora import open_corpus, open_whole
    from nextword.corpora.cleaning import check, clean

    if not name:
        raise NextwordError("--clean needs a text: nextword data NAME --clean OUT --deduplicate.")
    if not (deduplicate or good or against):
        raise NextwordError("--clean does nothing by itself. Say what to remove: --deduplicate, --quality, --against.")
    say_columns([name], quiet)
    corpus = open_corpus(name)
    check(corpus, out)
    sets = [open_whole(item) for item in against]
    for item in sets:
        if not set(item.splits) - {"train"}:
            raise NextwordError(
                f"{item.name} has no held-out split to look for. Give the file with the evaluation text."
            )
    classifier = _classifier(corpus, good, seed, quiet) if good else None
    return clean(
        corpus,
        out,
        lambda label, total: progress_bar(label, total, quiet),
        deduplicate=deduplicate,
        good=classifier,
        against=sets,
        seed=seed,
    )


def _classifier(corpus: Any, good: str, seed: int, quiet: bool) -> Any:
    """A saved one, or one that learns now what the good text has and the corpus has not."""
    from nextword.corpora import open_whole
    from nextword.corpora.contamination import training_documents
    from nextword.corpora.quality import Quality, sample, train

    if good.endswith(CLASSIFIER):
        return Quality.load(Path(good))
    fine = open_whole(good)
    with progress_bar(f"reading {fine.name}", quiet=quiet) as update:
        positive = sample(training_documents(fine), seed, progress=update)
    with progress_bar(f"reading {corpus.name}", corpus.bytes("train"), quiet) as update:
        negative = sample(corpus.documents("train"), seed, progress=update)
    return train(positive, negative, seed, (fine.name, corpus.name))


def show_report(report: dict[str, Any], out: Path) -> None:
    from rich.markup import escape

    from nextword.cli.results import table

    rows = []
    for step in report["steps"]:
        gone = 1 - step["bytes_left"] / step["bytes"] if step["bytes"] else 0.0
        counts = [f"{step[key]:,}" for key in ("documents", "documents_left", "bytes", "bytes_left")]
        rows.append([step["name"], *counts, f"{gone:.2%}"])
    console.print(f"[bold]{escape(report['corpus'])}[/]  {escape(report['source'])}", soft_wrap=True)
    table(("step", "documents", "left", "bytes", "left", "removed"), rows)
    for step in report["steps"]:
        for line in _facts(step["name"], step["facts"]):
            console.print(f"[dim]· {escape(line)}[/]", soft_wrap=True)
        for example in step["examples"]:
            which = example["title"] or example["id"]
            console.print(f"  [bold]{escape(which)}[/]: {escape(example['why'])}", soft_wrap=True)
            console.print(f"    [dim]{escape(example['text'])}[/]", soft_wrap=True)
    console.print(f"Written to {escape(str(out))}: train it with --data {escape(str(out))}", soft_wrap=True)


def _facts(name: str, facts: dict[str, Any]) -> list[str]:
    if name == "quality":
        return [
            f"learned from {facts['good_documents']:,} documents of {facts['good']} and {facts['raw_documents']:,} of "
            f"{facts['raw']}; on others it ranks a good one above a raw one {facts['ranked']:.1%} of the time"
        ]
    if name == "duplicates":
        return [
            f"similarity of {facts['threshold']} or more in runs of {facts['shingle']} words; "
            f"{facts['of_held_out']:,} of them repeat a held-out document"
        ]
    return [
        f"{s['name']}: {s['grams_seen']:,} of {s['grams']:,} runs of {s['n']} words seen, {s['dirty']:,} of "
        f"{s['documents']:,} documents dirty; {s['grams_too_common']:,} runs are too common to remove"
        for s in facts["sets"]
    ] + [f"{facts['cut']:,} training documents were cut, {facts['dropped']:,} dropped"]


def score_against(lm: Any, corpus: Any, split: str, against: str, quiet: bool) -> dict[str, Any]:
    """What a model scores on the documents of a split that a training text holds in part, and on the others."""
    from nextword.corpora import open_corpus
    from nextword.corpora.contamination import split_by_contamination
    from nextword.evaluation.contaminated import score_apart

    trained = open_corpus(against)
    size = trained.bytes("train") if "train" in trained.splits else None
    with progress_bar(f"looking into {trained.name}", size, quiet) as update:
        found = split_by_contamination(corpus, split, trained, progress=update)
    with progress_bar("scoring clean and dirty documents", len(found.verdicts), quiet) as update:
        return {"data": trained.name, **score_apart(lm, found, update).as_dict()}


def show_apart(result: dict[str, Any]) -> None:
    from rich.markup import escape

    from nextword.cli.results import table
    from nextword.infinity import number

    about = result["contamination"]
    console.print(
        f"against [bold]{escape(result['data'])}[/]: {about['grams_seen']:,} of {about['grams']:,} runs "
        f"of {about['n']} words were seen, in {about['dirty']:,} of {about['documents']:,} documents",
        soft_wrap=True,
    )
    rows = []
    for name in ("all", "clean", "dirty"):
        row = result[name]
        bits = number(row["bits_per_byte"], 4)
        if row["bits_per_byte_low"] is not None:
            bits += f" [dim]({row['bits_per_byte_low']:.3f}–{row['bits_per_byte_high']:.3f})[/]"
        perplexity = number(row["word_perplexity"], 2), number(row["token_perplexity"], 2)
        rows.append([name, f"{row['documents']:,}", f"{row['bytes']:,}", bits, *perplexity])
    table(("documents", "", "bytes", "bits/byte", "word ppl", "token ppl"), rows)
    for example in result["examples"]:
        console.print(
            f"[dim]· {escape(example['document'])}: “{escape(example['gram'])}” in {escape(example['seen_in'])}[/]"
        )
    if about["too_short"]:
        console.print(f"[dim]· {about['too_short']:,} documents are too short to tell, and count as clean[/]")
