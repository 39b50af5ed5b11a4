"""`nextword data`: list, describe, install and clean data sets; list all tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import (
    Header,
    Json,
    Quiet,
    Search,
    TableColumns,
    console,
    emit_json,
    print_columns,
    print_line,
    print_notes,
    print_table,
    print_warnings,
    refuse_options,
    search_rows,
    shorten,
)
from nextword.progress.display import ProgressDisplay, progress_bar

if TYPE_CHECKING:
    from nextword.data.catalog import Entry

TASKS = "tasks"  # the name that lists tasks instead of describing a data set
SAMPLE_LENGTH = 300  # characters of either side of a sample pair
WIDE_TERMINAL = 120  # columns from which on folders are shown


def data(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME or FILE]",
            help="Data set, file or folder, or parallel text NAME:SOURCE-TARGET; `tasks` lists all tasks.",
            show_default=False,
        ),
    ] = "",
    search: Search = "",
    columns: TableColumns = "",
    header: Header = None,
    source: Annotated[
        Path | None, typer.Option("--install", metavar="PATH", help="Install it from a folder, file or archive.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Download it from its owner. No other option downloads anything.")
    ] = False,
    deduplicate: Annotated[
        bool, typer.Option("--deduplicate", help="Clean: keep the first of near-duplicate documents.")
    ] = False,
    quality: Annotated[
        str,
        typer.Option("--quality", metavar="TEXT", help="Clean: keep what resembles this text, or a saved classifier."),
    ] = "",
    decontaminate: Annotated[
        list[str] | None,
        typer.Option(
            "--decontaminate", metavar="EVAL", help="Clean: remove the text of an evaluation set. Repeatable."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="New folder for the cleaned text.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the quality filter.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List data sets; describe a data set or a file; install or clean one.

    Of a file, it shows what the other commands would read: kind, encoding, delimiter, header, columns, rows, classes,
    lengths, warnings, five rows, and the command to try next.

    [dim]Examples[/]
      nextword data
      nextword data --search sentiment
      nextword data tasks --search entailment
      nextword data wikitext-2
      nextword data multi30k:en-fr
      nextword data reviews.csv
      nextword data reviews.tsv --columns 3,1 --no-header
      nextword data ptb --install Downloads/simple-examples.tgz
      nextword data tinyshakespeare --download
      nextword data crawl.jsonl --deduplicate --quality enwiki --decontaminate wikitext-2-raw --out clean
    """
    from nextword.core.errors import InvalidSetting

    filters = {"--deduplicate": deduplicate, "--quality": quality, "--decontaminate": decontaminate}
    if out or any(filters.values()):
        if not name or not out or not any(filters.values()) or source or download:
            raise InvalidSetting(
                "Cleaning needs a text, a filter (--deduplicate, --quality or --decontaminate) and a new folder: "
                "nextword data NAME --deduplicate --out FOLDER.",
                key="out",
            )
        _clean(name, out, deduplicate, quality, decontaminate or [], seed, json, quiet)
        return
    if source and download:
        raise InvalidSetting("--install uses your files, --download fetches them. Choose one.", key="download")
    if not name and (source or download):
        raise InvalidSetting("Name the data set: nextword data NAME --install PATH, or --download.", key="name")
    if not name:
        _list_data_sets(search, json)
    elif name == TASKS and not source and not download and not Path(name).exists():
        _list_tasks(search, json)
    else:
        refuse_options({"--search": search}, "--search filters the list of data sets, or `nextword data tasks`.")
        if source or download:
            _install(name, source, quiet)
        _describe(name, columns, header, json, quiet)


def _install(name: str, source: Path | None, quiet: bool) -> None:
    """Install a data set from files, or download it."""
    from nextword.data.catalog import download, install
    from nextword.data.opening import unknown_name_error
    from nextword.data.parallel import parse

    entry = _find_entry(parse(name)[0])
    if entry is None:
        raise unknown_name_error(name)
    with progress_bar(f"{'copying' if source else 'downloading'} {entry.name}", quiet=quiet) as update:
        install(entry, source, update) if source else download(entry, update)


def _find_entry(name: str) -> Entry | None:
    """The catalog entry of a data set, or of a benchmark such as RACE or SST-2."""
    from nextword.data.catalog import find_entry

    entry = find_entry(name)
    if entry is not None or Path(name).exists():
        return entry
    from nextword.tasks.datasets.catalog import catalog_entry, find_benchmark

    benchmark = find_benchmark(name)
    return catalog_entry(benchmark) if benchmark else None


# ------------------------------------------------------------------------------------------------ lists


def _list_data_sets(search: str, json: bool) -> None:
    from nextword.data.describe import list_data_sets

    rows = list_data_sets()
    if search:
        texts = {row["name"]: (f"{row['title']} {row['kind']} {row['license']}", row) for row in rows}
        rows = search_rows("data set", search, texts)
    if json:
        emit_json(rows)
        return
    cells = []
    for row in rows:
        shown = ["all"] if "all" in row["splits"] else ["train", "valid", "test"]
        counts = " / ".join(f"{row['splits'][s]:,}" if s in row["splits"] else "–" for s in shown)
        place = row["place"] if console.width > WIDE_TERMINAL else "✓"
        sizes = f"{counts} {row['unit']}" if row["splits"] else ""
        installed = f"[green]{place}[/]" if row["place"] else ""
        cells.append([f"[bold]{row['name']}[/]", row["kind"], row["license"], sizes, installed])
    headings = ("name", "kind", "license", "train / valid / test", "installed")
    print_table(headings, cells, text_columns=headings)
    if not search:
        console.print("[dim]Show fewer: nextword data --search WORDS[/]")
    console.print(
        "[dim]Describe one: nextword data NAME · install one: nextword data NAME --install PATH (or --download)[/]"
    )
    console.print("[dim]Pairs to translate: nextword data bible (built in), or a data set such as multi30k:en-de[/]")
    console.print("[dim]All tasks: nextword data tasks[/]")


def _list_tasks(search: str, json: bool) -> None:
    from nextword.evaluation.task_list import list_tasks

    rows = list_tasks()
    if search:
        keys = ("title", "kind", "metric", "command")
        texts = {f"{row['name']} {row['command']}": (" ".join(row[key] for key in keys), row) for row in rows}
        rows = search_rows("task", search, texts)
    if json:
        emit_json(rows)
        return
    cells = [
        [
            f"[bold]{escape(row['name'])}[/]",
            *(escape(row[key]) for key in ("kind", "metric", "dev", "command")),
            "[green]✓[/]" if row["installed"] else "",
            escape(row["title"]),
        ]
        for row in rows
    ]
    headings = ("task", "kind", "metric", "dev split", "command", "installed", "title")
    print_table(headings, cells, text_columns=headings)
    print_line("[dim]transfer: nextword transfer RECIPE --from RUN --data TASK (or --data glue, a suite of five)[/]")
    print_line("[dim]train: nextword train t5/tasks --data TASK · evaluate: nextword evaluate RUN --task TASK[/]")


# ------------------------------------------------------------------------------------------------ one data set


def _describe(name: str, columns: str, header: bool | None, json: bool, quiet: bool) -> None:
    from nextword.data.builtin import BUILT_IN
    from nextword.data.describe import describe_corpus
    from nextword.data.parallel import is_parallel
    from nextword.data.tables import parse_columns
    from nextword.tasks.overview import describe_file

    entry = None if name in BUILT_IN else _find_entry(name if Path(name).exists() else name.partition(":")[0])
    is_file = entry is None and name not in BUILT_IN and not is_parallel(name)
    with ProgressDisplay(quiet or json) as display:
        overview = describe_file(name, parse_columns(columns, header), display.update) if is_file else None
    if overview is not None:
        if json:
            emit_json(overview)
        else:
            _print_overview(overview)
        return
    refuse_options({"--columns": columns, "--header": header is not None}, f"{name} is no table.")
    if is_file:
        print_columns([name], quiet or json)
    with ProgressDisplay(quiet or json) as display:
        about = describe_corpus(name, entry, display.update)
    if json:
        emit_json(about)
        return
    console.print(f"[bold]{about['name']}[/]  {escape(about.get('title', ''))}")
    _print_facts(about)
    if "place" in about and about["place"] is None:
        _print_how_to_install(about)
    for split, files in about.get("files", {}).items():
        shown = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        print_line(f"  {split:10} {escape(shown)}")
    for file, result in about.get("checksums", {}).items():
        color = "green" if result == "as known" else "red"
        console.print(f"  sha256     {escape(file)}: [{color}]{result}[/]")
    print_warnings(about.get("warnings", ()), indent="  ")
    if "sources" in about:
        rows = [
            [escape(row["name"]), f"{row['weight']:.1%}", f"{row['bytes']:,}", f"{row['epochs']:.2f}"]
            for row in about["sources"]
        ]
        print_table(("source", "weight", "bytes", "epochs per pass"), rows)
    if "pair" in about:
        _print_pairs(about)
    elif "splits" in about:
        units = ("documents", "bytes", "characters" if about["is_unspaced"] else "words")
        rows = [
            [split, *(f"{counts[unit]:,}" for unit in units), _leak_count(about, split)]
            for split, counts in about["splits"].items()
        ]
        print_table(("", *units, "also in train"), rows)
    if "command" in about:
        print_line(f"\nTry it:  {escape(about['command'])}")


MAX_CLASSES = 12  # shown
MAX_COLUMNS = 12
TABLE_WIDTH = 78  # characters of the table of examples
LABEL_WIDTH = 16
UNITS = ("words", "characters")


def _print_overview(about: Mapping[str, Any]) -> None:
    """What would be read of a file, in at most 80 columns."""
    from nextword.data.segmentation import is_unspaced

    console.print(f"[bold]{escape(about['name'])}[/]  {about['title']}")
    facts = {"file": about["source"]}
    if "format" in about:
        delimiter = f", {about['delimiter']} between columns" if about["delimiter"] else ""
        facts["format"] = f"{about['format']}{delimiter}, {about['encoding']}"
    if about.get("header") is not None:
        facts["header"] = "yes" if about["header"] else "none: columns have numbers"
    if "columns" in about:
        shown = [f"{c['name']} ({c['role']})" if c["role"] else c["name"] for c in about["columns"][:MAX_COLUMNS]]
        facts["columns"] = ", ".join(shown) + (" …" if len(about["columns"]) > MAX_COLUMNS else "")
    rows = about["rows"]
    facts["rows"] = " · ".join(f"{n:,}" if split == "all" else f"{split} {n:,}" for split, n in rows.items())
    if "numbers" in about:
        facts["numbers"] = " · ".join(f"{name} {value:.6g}" for name, value in about["numbers"].items())
    for key in {"classes", "tags"} & about.keys():
        classes = list(about[key].items())
        counts = [f"{shorten(label, LABEL_WIDTH)} {n:,}" for label, n in classes[:MAX_CLASSES]]
        more = f" and {len(classes) - MAX_CLASSES:,} more" if len(classes) > MAX_CLASSES else ""
        facts[key] = " · ".join(counts) + more
    for key, value in facts.items():
        print_line(f"  {key:8} {escape(value)}")
    unspaced = is_unspaced(" ".join(str(value) for row in about["examples"] for value in row.values()))
    units = UNITS[1:] if unspaced else UNITS  # words mean nothing in a script without spaces
    cells = [
        [role, *(f"{lengths[unit][key]:,}" for unit in units for key in ("median", "p95", "longest"))]
        for role, lengths in about["lengths"].items()
    ]
    print_table(("length", *(name for unit in units for name in (unit, "95 %", "longest"))), cells)
    _print_examples(about["examples"])
    print_notes(about["notes"])
    print_warnings(about["warnings"])
    print_line(f"\nTry it:  {escape(about['command'])}")


def _print_examples(examples: Sequence[Mapping[str, str]]) -> None:
    """A row per example, each cell cut to its share of the width. Chinese characters are two columns wide."""
    from rich.cells import cell_len, set_cell_size

    if not examples:
        return
    roles = list(examples[0])
    longest = {role: max(cell_len(" ".join(row[role].split())) for row in examples) for role in roles}
    room = TABLE_WIDTH - 2 * len(roles)
    widths: dict[str, int] = {}
    for i, role in enumerate(sorted(roles, key=lambda role: longest[role])):  # what short cells leave is for the others
        share = (room - sum(widths.values())) // (len(roles) - i)
        widths[role] = max(len(role), min(longest[role], share))
    print_line(f"  [bold]{escape('  '.join(set_cell_size(role, widths[role]) for role in roles))}[/]")
    for row in examples:
        texts = {role: " ".join(row[role].split()) for role in roles}
        cells = [
            set_cell_size(text, widths[role])
            if cell_len(text) <= widths[role]
            else set_cell_size(text, widths[role] - 1) + "…"
            for role, text in texts.items()
        ]
        print_line(f"  {escape('  '.join(cells).rstrip())}")


def _print_facts(about: Mapping[str, Any]) -> None:
    published = about.get("published") or {}
    sizes = ", ".join(f"{split} {count:,}" for split, count in published.items() if split != "unit")
    facts = {
        "kind": about["kind"],
        "pair": " → ".join(about["pair"].values()) if "pair" in about else None,
        "license": about.get("license"),
        "home": about.get("home"),
        "note": about.get("note"),
        "published": f"{sizes} {published['unit']}" if published else None,
        "source": about.get("source") or about.get("place"),
    }
    for key, value in facts.items():
        if value:
            print_line(f"  {key:10} {escape(str(value))}")


def _print_how_to_install(about: Mapping[str, Any]) -> None:
    print_line("  [yellow]not installed[/]. Expected files:")
    for split, names in about["layout"].items():
        print_line(f"    {split:6} {escape(' or '.join(names))}")
    print_line(f"  Install it: nextword data {about['name']} --install PATH")
    if about["get"]:
        print_line(f"  Or download it from its owner: nextword data {about['name']} --download")


def _print_pairs(about: Mapping[str, Any]) -> None:
    rows = [
        [
            split,
            f"{counts['pairs']:,}",
            *(" → ".join(f"{mean:,.1f}" for mean in counts[key].values()) for key in ("mean_words", "mean_characters")),
            _leak_count(about, split),
        ]
        for split, counts in about["splits"].items()
    ]
    print_table(("", "pairs", "mean words", "mean characters", "sources also in train"), rows)
    console.print(f"  example: {escape(about['sample']['id'])}")
    sides = about["pair"]
    width = max(map(len, sides.values()))
    for side, language in sides.items():
        text = shorten(about["sample"][side], SAMPLE_LENGTH)
        print_line(f"    [bold]{escape(language):{width}}[/]  {escape(text)}")


def _leak_count(about: Mapping[str, Any], split: str) -> str:
    """How many documents of a held-out split are also in train."""
    count = about["leakage"].get(split)
    return "" if count is None else f"{count:,}"


# ------------------------------------------------------------------------------------------------ cleaning


def _clean(
    name: str, out: Path, deduplicate: bool, good: str, evaluation_sets: list[str], seed: int, json: bool, quiet: bool
) -> None:
    from nextword.data.filters.pipeline import clean_corpus

    quiet = quiet or json
    print_columns([name], quiet)
    report = clean_corpus(
        name,
        out,
        lambda label, total: progress_bar(label, total, quiet),
        deduplicate=deduplicate,
        good=good,
        against=evaluation_sets,
        seed=seed,
    )
    if json:
        emit_json({**report, "out": str(out)})
    else:
        _print_cleaning(report, out)


def _print_cleaning(report: Mapping[str, Any], out: Path) -> None:
    rows = []
    for step in report["steps"]:
        removed = 1 - step["bytes_left"] / step["bytes"] if step["bytes"] else 0.0
        counts = [f"{step[key]:,}" for key in ("documents", "documents_left", "bytes", "bytes_left")]
        rows.append([step["name"], *counts, f"{removed:.2%}"])
    print_line(f"[bold]{escape(report['corpus'])}[/]  {escape(report['source'])}")
    print_table(("step", "documents", "left", "bytes", "left", "removed"), rows)
    for step in report["steps"]:
        print_notes(_describe_step(step["name"], step["facts"]))
        for example in step["examples"]:
            title = example["title"] or example["id"]
            print_line(f"  [bold]{escape(title)}[/]: {escape(example['why'])}")
            print_line(f"    [dim]{escape(example['text'])}[/]")
    print_line(f"Wrote {escape(str(out))}. Train on it with --data {escape(str(out))}")


def _describe_step(name: str, facts: Mapping[str, Any]) -> list[str]:
    if name == "quality":
        return [
            f"trained on {facts['good_documents']:,} documents of {facts['good']} and {facts['raw_documents']:,} of "
            f"{facts['raw']}; ranks a good document above a raw one {facts['ranked']:.1%} of the time"
        ]
    if name == "duplicates":
        return [
            f"similarity of at least {facts['threshold']} in {facts['shingle']}-grams of words; "
            f"{facts['of_held_out']:,} duplicates repeat a held-out document"
        ]
    overlaps = [
        f"{s['name']}: {s['grams_seen']:,} of {s['grams']:,} {s['n']}-grams seen, {s['dirty']:,} of "
        f"{s['documents']:,} documents dirty; {s['grams_too_common']:,} n-grams are too common to remove"
        for s in facts["sets"]
    ]
    return [*overlaps, f"{facts['cut']:,} training documents were cut, {facts['dropped']:,} dropped"]
