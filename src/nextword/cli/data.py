"""`nextword data`: which data sets there are, what is here, and how to bring one in.

`nextword data … --clean OUT`: quality, duplicates and leaks, and a table of what went.

And `nextword evaluate … --against DATA`: scores of what was seen in training and of the rest, side by side.

`nextword data tasks`: every task there is, what it learns or asks, its metric, and the command that does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Json, Quiet, console, emit_json, print_columns, progress_bar
from nextword.cli.evaluate import data_here, print_table

CLASSIFIER = ".safetensors"


def clean_corpus(
    name: str, out: Path, deduplicate: bool, good: str, against: Sequence[str], seed: int, quiet: bool
) -> dict[str, Any]:
    """The report of cleaning a corpus into a new folder."""
    from nextword.core.errors import NextwordError
    from nextword.data.filters.pipeline import check_cleaning, clean_corpus
    from nextword.data.opening import open_corpus, open_unsplit

    if not name:
        raise NextwordError("--clean needs a text: nextword data NAME --clean OUT --deduplicate.")
    if not (deduplicate or good or against):
        raise NextwordError("--clean does nothing by itself. Say what to remove: --deduplicate, --quality, --against.")
    print_columns([name], quiet)
    corpus = open_corpus(name)
    check_cleaning(corpus, out)
    sets = [open_unsplit(item) for item in against]
    for item in sets:
        if not set(item.splits) - {"train"}:
            raise NextwordError(
                f"{item.name} has no held-out split to look for. Give the file with the evaluation text."
            )
    classifier = _classifier(corpus, good, seed, quiet) if good else None
    return clean_corpus(
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
    from nextword.data.filters.decontaminate import training_documents
    from nextword.data.filters.quality import QualityClassifier, sample_texts, train_classifier
    from nextword.data.opening import open_unsplit

    if good.endswith(CLASSIFIER):
        return QualityClassifier.load(Path(good))
    fine = open_unsplit(good)
    with progress_bar(f"reading {fine.name}", quiet=quiet) as update:
        positive = sample_texts(training_documents(fine), seed, progress=update)
    with progress_bar(f"reading {corpus.name}", corpus.bytes("train"), quiet) as update:
        negative = sample_texts(corpus.documents("train"), seed, progress=update)
    return train_classifier(positive, negative, seed, (fine.name, corpus.name))


def show_report(report: dict[str, Any], out: Path) -> None:
    from rich.markup import escape

    from nextword.cli.evaluate import print_table

    rows = []
    for step in report["steps"]:
        gone = 1 - step["bytes_left"] / step["bytes"] if step["bytes"] else 0.0
        counts = [f"{step[key]:,}" for key in ("documents", "documents_left", "bytes", "bytes_left")]
        rows.append([step["name"], *counts, f"{gone:.2%}"])
    console.print(f"[bold]{escape(report['corpus'])}[/]  {escape(report['source'])}", soft_wrap=True)
    print_table(("step", "documents", "left", "bytes", "left", "removed"), rows)
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
    from nextword.data.filters.decontaminate import split_by_contamination
    from nextword.data.opening import open_corpus
    from nextword.evaluation.contamination import score_by_contamination

    trained = open_corpus(against)
    size = trained.bytes("train") if "train" in trained.splits else None
    with progress_bar(f"looking into {trained.name}", size, quiet) as update:
        found = split_by_contamination(corpus, split, trained, progress=update)
    with progress_bar("scoring clean and dirty documents", len(found.verdicts), quiet) as update:
        return {"data": trained.name, **score_by_contamination(lm, found, update).as_dict()}


def show_apart(result: dict[str, Any]) -> None:
    from rich.markup import escape

    from nextword.cli.evaluate import print_table
    from nextword.core.io import format_number

    about = result["contamination"]
    console.print(
        f"against [bold]{escape(result['data'])}[/]: {about['grams_seen']:,} of {about['grams']:,} runs "
        f"of {about['n']} words were seen, in {about['dirty']:,} of {about['documents']:,} documents",
        soft_wrap=True,
    )
    rows = []
    for name in ("all", "clean", "dirty"):
        row = result[name]
        bits = format_number(row["bits_per_byte"], 4)
        if row["bits_per_byte_low"] is not None:
            bits += f" [dim]({row['bits_per_byte_low']:.3f}–{row['bits_per_byte_high']:.3f})[/]"
        perplexity = format_number(row["word_perplexity"], 2), format_number(row["token_perplexity"], 2)
        rows.append([name, f"{row['documents']:,}", f"{row['bytes']:,}", bits, *perplexity])
    print_table(("documents", "", "bytes", "bits/byte", "word ppl", "token ppl"), rows)
    for example in result["examples"]:
        console.print(
            f"[dim]· {escape(example['document'])}: “{escape(example['gram'])}” in {escape(example['seen_in'])}[/]"
        )
    if about["too_short"]:
        console.print(f"[dim]· {about['too_short']:,} documents are too short to tell, and count as clean[/]")


TASKS = "tasks"
LEARNT, ASKED, WRITTEN = "transfer", "evaluate", "train"
WORDS = ("kind", "metric", "dev split", "by", "")  # columns


def list_known(json: bool) -> None:
    rows = [*_of_texts(), *_of_questions(), *_of_tags(), *_as_texts(), *_in_words()]
    if json:
        emit_json(rows)
        return
    cells = [
        [
            f"[bold]{escape(row['name'])}[/]",
            *(escape(row[key]) for key in ("kind", "metric", "dev", "by")),
            "[green]✓[/]" * row["here"],
            escape(row["title"]),
        ]
        for row in rows
    ]
    print_table(("task", *WORDS[:-1], "here", WORDS[-1]), cells, words=WORDS)
    console.print(
        "[dim]by transfer: nextword transfer RECIPE --from RUN --data TASK · by train: nextword train t5/tasks --data "
        "TASK · by evaluate: nextword evaluate RUN --task TASK · GLUE's five with labels at hand: --data glue[/]"
    )


def _of_texts() -> list[dict[str, Any]]:
    from nextword.tasks.datasets.catalog import BENCHMARKS, is_installed

    return [
        {
            "name": task.name,
            "title": task.title,
            "kind": task.kind,
            "metric": task.metrics[0],
            "dev": task.dev,
            "by": LEARNT,
            "here": is_installed(task),
            "submission": dict(task.submission.files),
        }
        for task in BENCHMARKS.values()
    ]


def _of_questions() -> list[dict[str, Any]]:
    """Questions that a span of a passage answers."""
    from nextword.data.catalog import catalog
    from nextword.metrics.squad import ANSWER_METRICS
    from nextword.tasks.datasets.base import PUBLISHED
    from nextword.tasks.question_answering import CATALOG_KIND as KIND

    row = {"kind": "question_answering", "metric": ANSWER_METRICS[0], "dev": PUBLISHED, "by": LEARNT, "submission": {}}
    return [
        {"name": entry.name, "title": entry.title, "here": entry.find_folder() is not None, **row}
        for entry in catalog().values()
        if entry.kind == KIND
    ]


def _as_texts() -> list[dict[str, Any]]:
    """Text in, text out: answers, translations and summaries are written (docs/text-to-text.md)."""
    from nextword.core.errors import NextwordError
    from nextword.data.parallel import open_parallel
    from nextword.data.text_to_text import tasks

    def here(name: str) -> bool:
        try:
            open_parallel(name)
        except NextwordError:
            return False
        return True

    row = {"kind": "text", "dev": "", "by": WRITTEN, "submission": {}}
    return [
        {"name": f"tasks:{name}", "title": task.title, "metric": task.metrics[0], "here": here(f"tasks:{name}"), **row}
        for name, task in tasks().items()
        if task.metrics
    ]


def _of_tags() -> list[dict[str, Any]]:
    """Sets of tagged words; what their tags are decides between F1 of spans and accuracy."""
    from nextword.data.catalog import ALL, catalog
    from nextword.data.conll import KIND
    from nextword.tasks.datasets.base import PUBLISHED, TENTH_OF_TRAIN

    return [
        {
            "name": entry.name,
            "title": entry.title,
            "kind": "tagging",
            "metric": "span_f1, or token_accuracy",
            "dev": PUBLISHED if "valid" in entry.layout else TENTH_OF_TRAIN,
            "by": LEARNT,
            "here": entry.find_folder() is not None,
            "submission": {},
        }
        for entry in catalog().values()
        if entry.kind == KIND and ALL not in entry.layout
    ]


def _in_words() -> list[dict[str, Any]]:
    """Asked of a language model, with examples in its prompt or without; nothing is learnt."""
    from nextword.evaluation.prompt_tasks import load_task, task_names

    found = []
    for name in task_names():
        task = load_task(name)
        row = {"name": name, "title": task.title, "kind": "prompt", "metric": task.metric, "dev": "", "by": ASKED}
        found.append({**row, "here": data_here(task), "submission": {}})
    return found


LICENCES = {"web": "public domain", "kjv": "public domain (Crown rights in the UK)", "python": "PSF License"}
SHOWN = 300  # characters of either side of a sample


def data(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]",
            help="One data set, the path of a text, or of parallel text NAME:SOURCE-TARGET; tasks lists all tasks.",
            show_default=False,
        ),
    ] = "",
    source: Annotated[
        Path | None, typer.Option("--from", metavar="PATH", help="Bring it in from a folder, a file or an archive.")
    ] = None,
    get: Annotated[bool, typer.Option("--get", help="Download it from its owner. Nothing else downloads.")] = False,
    clean: Annotated[
        Path | None, typer.Option("--clean", metavar="OUT", help="Write it, cleaned as follows, to a new folder.")
    ] = None,
    deduplicate: Annotated[
        bool, typer.Option("--deduplicate", help="Of documents that are nearly the same, keep the first.")
    ] = False,
    quality: Annotated[
        str, typer.Option("--quality", metavar="GOOD", help="Keep what looks like this text (or a saved classifier).")
    ] = "",
    against: Annotated[
        list[str] | None,
        typer.Option("--against", metavar="EVAL", help="Remove what stands in this evaluation set; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the quality filter's chances.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Named data sets: what each is, its licence and splits, whether it is here; bring one in.

    [dim]Examples[/]
      nextword data
      nextword data tasks
      nextword data wikitext-2
      nextword data multi30k:en-fr
      nextword data ptb --from Downloads/simple-examples.tgz
      nextword data tinyshakespeare --get
      nextword data crawl.jsonl --clean crawl-clean --deduplicate --quality enwiki --against wikitext-2-raw
    """
    from nextword.core.errors import NextwordError
    from nextword.data.catalog import download, install
    from nextword.data.opening import unknown_name_error
    from nextword.data.parallel import parse

    if clean or deduplicate or quality or against:
        if not clean or source or get:
            raise NextwordError(
                "--deduplicate, --quality and --against go with --clean OUT, which says where the cleaned text goes, "
                "and not with --from or --get."
            )

        report = clean_corpus(name, clean, deduplicate, quality, against or [], seed, quiet or json)
        emit_json({**report, "out": str(clean)}) if json else show_report(report, clean)
        return
    if source and get:
        raise NextwordError("--from takes what you have and --get what its owner offers: give one of them.")
    if not name and (source or get):
        raise NextwordError("--from and --get need the name of a data set: nextword data NAME --from PATH.")
    if not name:
        _list(json)
        return
    if name == TASKS and not source and not get and not Path(name).exists():
        list_known(json)
        return
    if source or get:
        entry = _entry(parse(name)[0])
        if entry is None:
            raise unknown_name_error(name)
        with progress_bar(f"{'fetching' if get else 'copying'} {entry.name}", quiet=quiet) as update:
            install(entry, source, update) if source else download(entry, update)
    about = _describe(name, quiet or json)
    if json:
        emit_json(about)
    else:
        _show(about)


def _list(json: bool) -> None:
    from nextword.data.builtin import BUILT_IN, is_installed
    from nextword.data.catalog import catalog

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "title": title,
            "kind": "text",
            "licence": LICENCES[name],
            "home": "",
            "unit": "",
            "splits": {},
            "place": "built in" if is_installed(name) else None,
        }
        for name, (title, _) in BUILT_IN.items()
    ]
    for entry in catalog().values():
        place = entry.find_folder()
        rows.append(
            {
                "name": entry.name,
                "title": entry.title,
                "kind": entry.kind,
                "licence": entry.licence,
                "home": entry.home,
                "unit": entry.unit,
                "splits": dict(entry.splits),
                "place": str(place) if place else None,
            }
        )
    if json:
        emit_json(rows)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "kind", "licence", "train / valid / test", "here"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("name", "kind"))
    for row in rows:
        counts = " / ".join(f"{row['splits'][s]:,}" if s in row["splits"] else "–" for s in ("train", "valid", "test"))
        table.add_row(
            f"[bold]{row['name']}[/]",
            row["kind"],
            row["licence"],
            f"{counts} {row['unit']}" if row["splits"] else "",
            f"[green]{row['place'] if console.width > 120 else '✓'}[/]" if row["place"] else "",
        )
    console.print(table)
    console.print(
        "[dim]Pairs to translate: nextword data bible (built in), or a set for translation, as multi30k:en-de[/]"
    )
    console.print("[dim]One of them: nextword data NAME · bring one in: nextword data NAME --from PATH (or --get)[/]")
    console.print("[dim]What can be learnt of them and asked about them: nextword data tasks[/]")


def _entry(name: str) -> Any:
    """What the catalog has under a name, or under that of a task, as RACE or SST-2."""
    from nextword.data.catalog import find_entry

    entry = find_entry(name)
    if entry is not None or Path(name).exists():
        return entry
    from nextword.tasks.datasets.catalog import catalog_entry, find_benchmark

    task = find_benchmark(name)
    return catalog_entry(task) if task else None


def _describe(name: str, quiet: bool) -> dict[str, Any]:
    """Everything about one data set or text; counts where it is here."""
    from nextword.data.builtin import BUILT_IN
    from nextword.data.opening import open_corpus, open_entry
    from nextword.data.parallel import BIBLE, VERSIONS, is_parallel, open_parallel, parse

    pairs = is_parallel(name)
    if name in BUILT_IN:
        corpus = open_corpus(name)
        known = {"name": name, "title": BUILT_IN[name][0], "kind": "text", "licence": LICENCES[name]}
        return {**known, "source": corpus.source, **_count(corpus, quiet)}
    entry = _entry(parse(name)[0])
    if entry is None and pairs:
        built_in = {"title": VERSIONS, "licence": LICENCES["kjv"]} if parse(name)[0] == BIBLE else {}
        return {"kind": "parallel", **built_in, **_count_pairs(open_parallel(name), quiet)}
    if entry is None:
        print_columns([name], quiet)
        corpus = open_corpus(name)
        return {"name": corpus.name, "kind": "text", "source": corpus.source, **_count(corpus, quiet)}
    pairs = pairs or bool(entry.pair)  # rather the pairs than one side of them as a text
    place = entry.find_folder()
    about: dict[str, Any] = {
        "name": entry.name,
        "title": entry.title,
        "kind": entry.kind,
        "licence": entry.licence,
        "home": entry.home,
        "note": entry.note,
        "published": {**entry.splits, "unit": entry.unit} if entry.splits else {},
        "layout": {split: list(names) for split, names in entry.layout.items()},
        "get": [item.url for item in entry.get],
        "place": str(place) if place else None,
    }
    if place is None:
        return about
    about["files"] = {split: [str(p.relative_to(place)) for p in paths] for split, paths in entry.locate(place).items()}
    about["checksums"] = {file: "as known" if ok else "DIFFERENT" for file, ok in entry.verify(place).items()}
    if pairs:
        about |= _count_pairs(open_parallel(name), quiet)
    elif entry.is_text:
        corpus = open_entry(entry, place)
        about |= {"source": corpus.source, **_count(corpus, quiet)}
    return about


def _count(corpus: Any, quiet: bool) -> dict[str, Any]:
    from nextword.data.filters.decontaminate import count_leaks
    from nextword.data.mixture import MixedText

    counts = {}
    for split in corpus.splits:
        documents = size = words = 0
        with progress_bar(f"counting {split}", corpus.bytes(split), quiet) as update:
            for document in corpus.documents(split):
                documents += not document.continues
                size += len(document.text.encode())
                words += len(document.text.split())
                update(size)
        counts[split] = {"documents": documents, "bytes": size, "words": words}
    about: dict[str, Any] = {"splits": counts, "leakage": count_leaks(corpus)}
    if isinstance(mixed := corpus.texts.get("train"), MixedText):
        about["sources"] = [vars(row) for row in mixed.table()]
    return about


def _count_pairs(corpus: Any, quiet: bool) -> dict[str, Any]:
    """Pairs, mean lengths, how many of the held-out sources are also in train; and the first pair as a sample."""
    from array import array

    import numpy as np

    from nextword.data.corpus import hash_text

    counts: dict[str, Any] = {}
    sample: dict[str, str] = {}
    sources: dict[str, np.ndarray] = {}
    for split in corpus.splits:
        hashes, words, characters, size = array("Q"), [0, 0], [0, 0], 0
        with progress_bar(f"counting {split}", corpus.bytes(split), quiet) as update:
            for document in corpus.documents(split):
                for i, text in enumerate((document.source, document.text)):
                    words[i] += len(text.split())
                    characters[i] += len(text)
                size += len(document.text.encode())
                hashes.append(hash_text(document.source))
                sample = sample or {"id": document.id, "source": document.source, "target": document.text}
                update(size)
        sources[split] = np.asarray(hashes, np.uint64)
        counts[split] = {
            "pairs": len(hashes),
            "mean_words": {"source": words[0] / len(hashes), "target": words[1] / len(hashes)},
            "mean_characters": {"source": characters[0] / len(hashes), "target": characters[1] / len(hashes)},
        }
    seen = {s: int(np.isin(sources[s], sources["train"]).sum()) for s in sources if "train" in sources and s != "train"}
    known = {"name": corpus.name, "pair": dict(zip(("source", "target"), corpus.pair, strict=True))}
    return {**known, "source": corpus.source, "splits": counts, "leakage": seen, "sample": sample}


def _show(about: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console.print(f"[bold]{about['name']}[/]  {escape(about.get('title', ''))}")
    words = {
        "kind": about["kind"],
        "pair": " → ".join(about["pair"].values()) if "pair" in about else None,
        "licence": about.get("licence"),
        "home": about.get("home"),
        "note": about.get("note"),
        "published": ", ".join(
            f"{split} {count:,}" for split, count in about.get("published", {}).items() if split != "unit"
        )
        + (f" {about['published']['unit']}" if about.get("published") else ""),
        "source": about.get("source") or about.get("place"),
    }
    for key, value in words.items():
        if value:
            console.print(f"  {key:10} {escape(str(value))}", soft_wrap=True)
    if "place" in about and about["place"] is None:
        console.print("  [yellow]not on this machine[/]. It is expected as", soft_wrap=True)
        for split, names in about["layout"].items():
            console.print(f"    {split:6} {escape(' or '.join(names))}", soft_wrap=True)
        console.print(f"  When you have it: nextword data {about['name']} --from PATH", soft_wrap=True)
        if about["get"]:
            console.print(f"  Or fetch it from its owner: nextword data {about['name']} --get", soft_wrap=True)
    for split, files in about.get("files", {}).items():
        shown = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        console.print(f"  {split:10} {escape(shown)}", soft_wrap=True)
    for file, result in about.get("checksums", {}).items():
        console.print(f"  sha256     {escape(file)}: [{'green' if result == 'as known' else 'red'}]{result}[/]")
    if "sources" in about:
        table = Table(box=None, pad_edge=False, padding=(0, 2))
        for heading in ("source", "weight", "bytes", "epochs in a pass"):
            table.add_column(heading, justify="left" if heading == "source" else "right")
        for row in about["sources"]:
            table.add_row(escape(row["name"]), f"{row['weight']:.1%}", f"{row['bytes']:,}", f"{row['epochs']:.2f}")
        console.print(table)
    if "pair" in about:
        _show_pairs(about)
    elif "splits" in about:
        table = Table(box=None, pad_edge=False, padding=(0, 2))
        for heading in ("", "documents", "bytes", "words", "also in train"):
            table.add_column(heading, justify="left" if not heading else "right")
        for split, counts in about["splits"].items():
            seen = about["leakage"].get(split)
            table.add_row(
                split,
                *(f"{counts[key]:,}" for key in ("documents", "bytes", "words")),
                "" if seen is None else f"{seen:,}",
            )
        console.print(table)


def _show_pairs(about: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    sides = about["pair"]
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for heading in ("", "pairs", "mean words", "mean characters", "sources also in train"):
        table.add_column(heading, justify="right" if heading else "left")
    for split, counts in about["splits"].items():
        seen = about["leakage"].get(split)
        table.add_row(
            split,
            f"{counts['pairs']:,}",
            *(" → ".join(f"{mean:,.1f}" for mean in counts[key].values()) for key in ("mean_words", "mean_characters")),
            "" if seen is None else f"{seen:,}",
        )
    console.print(table)
    console.print(f"  for example, {escape(about['sample']['id'])}")
    width = max(map(len, sides.values()))
    for side, name in sides.items():
        text = " ".join(about["sample"][side].split())
        text = text if len(text) <= SHOWN else text[:SHOWN].rstrip() + " …"
        console.print(f"    [bold]{escape(name):{width}}[/]  {escape(text)}", soft_wrap=True)
