"""Numbers of a run that makes texts from sources: measured, kept in its folder, shown in one table."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from nextword.cli.console import console, progress_bar
from nextword.cli.results import about, table

HEADS = {
    "bleu": "BLEU",
    "bleu_lowercase": "BLEU, lower case",
    "chrf": "chrF",
    **{"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"},
    **{"mcc": "MCC", "f1": "F1", "answer_f1": "F1 of words", "exact": "exact match"},
}
SHOWN = 3  # pairs, as a sample
LONG = 400  # characters of a text that are shown
WITHOUT = "Without sacrebleu there is no BLEU, and without rouge-score no ROUGE: pip install 'nextword[tasks]'."


def measure_translations(
    lm: Any, run: Any, corpus: Any, split: str, how: Any, quiet: bool = False, limit: int = 0
) -> dict[str, Any]:
    """Translate a split and keep the result in the run's log; of tasks, do each and keep all of them."""
    from nextword.evaluation.translation import evenly, translate

    if getattr(corpus, "members", ()):
        return _measure_tasks(lm, run, corpus, split, how, quiet, limit)
    pairs = evenly(list(corpus.documents(split)), limit)
    with progress_bar(f"translating {corpus.name} {split}", quiet=quiet) as update:
        found = translate(lm, pairs, how, update, getattr(corpus, "summaries", False))
    result = {
        **about(lm, run, corpus, split),
        "decoding": told(how),
        **found.as_dict(),
    }
    chosen = sorted({round(i * (len(pairs) - 1) / max(SHOWN - 1, 1)) for i in range(SHOWN)})
    sample = [{"source": pairs[i].source, "target": pairs[i].text, "written": found.written[i]} for i in chosen]
    return _kept(run, result, sample)


def _kept(run: Any, result: dict[str, Any], sample: list[dict[str, Any]]) -> dict[str, Any]:
    """In the run's log, with one example for its card."""
    example = {key: _shortened(text) for key, text in sample[0].items()} if sample else None
    run.log({"event": "translated", **{k: v for k, v in result.items() if k != "run"}, "example": example})
    return {**result, "sample": sample}


def _measure_tasks(lm: Any, run: Any, corpus: Any, split: str, how: Any, quiet: bool, limit: int) -> dict[str, Any]:
    """Each task on this split; one that has none such on the first of test, valid and train that it has."""
    from nextword.evaluation.text_to_text import do_task, split_of

    done = []
    members = [member for member in corpus.members if not member.plain]  # what was taken out of a text has no metric
    for member in members:
        chosen = split_of(member, split if split in member.corpus.splits else "")
        with progress_bar(f"{member.task.name} {chosen}", quiet=quiet) as update:
            shown = SHOWN if len(members) == 1 else 1
            done.append(do_task(lm, member, chosen, how, limit, shown, update))
    result = {
        **about(lm, run, corpus, split),
        "decoding": told(how),
        "pairs": sum(one.pairs for one in done),
        "tasks": [one.as_dict() for one in done],
    }
    sample = [dict(zip(("source", "target", "written"), three, strict=True)) for one in done for three in one.shown]
    return _kept(run, result, sample)


def told(how: Any) -> str:
    """A decoding in words: what is not as usual."""
    from dataclasses import fields

    name = type(how).__name__.lower()
    rest = [
        f"{f.name.replace('_', ' ')} {getattr(how, f.name)}"
        for f in fields(how)
        if f.name != "width" and getattr(how, f.name) != _usual(f)
    ]
    return ", ".join([f"{name} {how.width}" if hasattr(how, "width") else name, *rest])


def _usual(field: Any) -> Any:
    from dataclasses import MISSING

    return field.default if field.default is not MISSING else field.default_factory()


def show_translations(result: dict[str, Any]) -> None:
    if "tasks" in result:
        _show_tasks(result)
        return
    count = f"{result['split']}: {result['pairs']:,} pairs"
    console.print(f"\non [bold]{escape(result['data'])}[/] ({count}), {escape(result['decoding'])}")
    heads = [HEADS[name] for name in result["scores"]]
    cells = [_cell(one) for one in result["scores"].values()]
    table(
        [*heads, "target token ppl", "parameters"],
        [[*cells, f"{result['token_perplexity']:,.2f}", f"{result['parameters']:,}"]],
    )
    _show_sample(result["sample"])
    for name, one in result["scores"].items():
        console.print(f"[dim]· {HEADS[name]}: {escape(one['signature'])}[/]", soft_wrap=True)
    if not result["scores"]:
        console.print(f"[dim]· {escape(WITHOUT)}[/]")
    _say_longer(result["longer"], result["pairs"], "")


def _show_tasks(result: dict[str, Any]) -> None:
    console.print(f"\non [bold]{escape(result['data'])}[/], {escape(result['decoding'])}")
    rows = []
    for one in result["tasks"]:
        cells = [f"{HEADS.get(name, name)} {_cell(score)}" for name, score in one["scores"].items()]
        unread = "" if one["unread"] is None else f"{one['unread']:,}"
        named = f"{one['split']} {one['pairs']:,}"
        rows.append([one["task"], named, " · ".join(cells) or "–", unread, f"{one['token_perplexity']:,.2f}"])
    table(["task", "on", "measured", "no answer", "target token ppl"], rows)
    _show_sample(result["sample"])
    if any(one["unread"] for one in result["tasks"]):
        console.print("[dim]· no answer: what was written is none of the task's answers; it counts as wrong[/]")
    if any(not one["scores"] for one in result["tasks"]):
        console.print(f"[dim]· {escape(WITHOUT)}[/]")
    for one in result["tasks"]:
        _say_longer(one["longer"], one["pairs"], f"{one['task']}: ")


def _say_longer(longer: int, pairs: int, task: str) -> None:
    if longer:
        console.print(
            f"[dim]· {task}{longer:,} of {pairs:,} sources are longer than any in training; all of each was read[/]",
            soft_wrap=True,
        )


def _show_sample(sample: list[dict[str, Any]]) -> None:
    for one in sample:
        source, target, written = (escape(_shortened(one[key])) for key in ("source", "target", "written"))
        console.print(f"[dim]source [/] {source}", soft_wrap=True, highlight=False)
        console.print(f"[dim]target [/] {target}", soft_wrap=True, highlight=False)
        console.print(f"[dim]written[/] [bold]{written}[/]\n", soft_wrap=True, highlight=False)


def _shortened(text: str) -> str:
    """On one line, and not too much of it."""
    line = " ".join(text.split())
    return line if len(line) <= LONG else line[:LONG].rstrip() + " …"


def _cell(one: dict[str, Any]) -> str:
    bounds = "" if one["low"] is None else f" [dim]({one['low']:.1f}–{one['high']:.1f})[/]"
    return f"{one['score']:.2f}{bounds}"
