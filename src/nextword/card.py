"""card.md: what a run is, on what it was trained, how good it is and how to use it, for whoever finds the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.checkpoint import RunFolder
from nextword.contract import PSEUDO
from nextword.infinity import infinite, number


def write_card(run: RunFolder) -> None:
    recipe, manifest = run.recipe, run.manifest
    if recipe.task is not None:
        _task_card(run, recipe.task)
        return
    named = [str(recipe.paper[key]) for key in ("title", "authors", "year") if key in recipe.paper]
    lines = [
        f"# {run.path.name}",
        "",
        f"A `{recipe.slug}` language model: {', '.join(named)}." if named else f"A `{recipe.slug}` language model.",
        "",
        f"- recipe: `{manifest.get('recipe')}`, resolved in `recipe.toml`",
        f"- model: {_settings(recipe.model)}; {manifest.get('parameters', 0):,} parameters",
        f"- tokenizer: {_settings(recipe.tokenizer)}",
        *(f"- data ({phase}): {source}" for phase, source in manifest.get("data", {}).items()),
        f"- trained with nextword {manifest.get('nextword')}",
        "",
        "## Numbers",
        "",
        *_numbers(run),
        "",
        "## Use",
        "",
        "```",
        *_uses(run),
        f"nextword evaluate {run.path} --data my.txt",
        "```",
        "",
        "```python",
        "import nextword",
        f'lm = nextword.load("{run.path}")',
        'lm.score("some text").bits_per_byte()',
        "```",
    ]
    run.write("card.md", "\n".join(lines) + "\n")


def _task_card(run: RunFolder, task: Mapping[str, Any]) -> None:
    """Of a run that was transferred to a task."""
    recipe, manifest, result = run.recipe, run.manifest, run.manifest.get("result", {})
    labels = ", ".join(task["labels"]) or "a number"
    about = "two texts" if task["frame"] != "classify" else "a text"
    began = "the same network without its weights" if task["scratch"] else "its weights, and a new head over them"
    splits = [split for split in result.get("examples", {}) if split in result]
    example = '("one text", "another")' if task["frame"] != "classify" else '"some text"'
    lines = [
        f"# {run.path.name}",
        "",
        f"A `{recipe.slug}` network that says of {about}: {labels}.",
        "",
        f"- made of: `{task['source']}` ({began})",
        f"- recipe: `{manifest.get('recipe')}`, resolved in `recipe.toml`",
        f"- model: {_settings(recipe.model)}; {manifest.get('parameters', 0):,} parameters",
        *(f"- data ({phase}): {source}" for phase, source in manifest.get("data", {}).items()),
        f"- trained with nextword {manifest.get('nextword')}, seed {recipe.phases[0].seed}",
        "",
        "## Numbers",
        "",
        f"| on | examples | {' | '.join(task['metrics'])} |",
        f"| --- | ---: |{' ---: |' * len(task['metrics'])}",
        *(
            f"| {split} | {result['examples'][split]:,} | "
            + " | ".join(f"{100 * result[split][name]:.1f}" for name in task["metrics"])
            + " |"
            for split in splits
        ),
        "",
        "## Use",
        "",
        "```",
        f"nextword predict {run.path} my.csv --output labelled.csv",
        "```",
        "",
        "```python",
        "import nextword",
        f'nextword.load("{run.path}").predict([{example}])',
        "```",
    ]
    run.write("card.md", "\n".join(lines) + "\n")


def last_evaluation(run: RunFolder) -> dict[str, Any] | None:
    found = [line for line in run.read_log() if line.get("event") == "evaluation"]
    return infinite(found[-1]) if found else None


def _uses(run: RunFolder) -> list[str]:
    if (last_evaluation(run) or {}).get("kind") == PSEUDO:  # sees both sides: fills a blank, writes no text
        return [f'nextword next {run.path} "the ___ is"']
    return [f"nextword generate {run.path} --length 60", f'nextword next {run.path} "the"']


def _numbers(run: RunFolder) -> list[str]:
    result = last_evaluation(run)
    if result is None:
        return ["Not evaluated yet: `nextword evaluate`."]
    context = (
        "all text before" if result["context"] is None else f"{result['context']} tokens, stride {result['stride']}"
    )
    label = "pseudo " if result.get("kind") == PSEUDO else ""
    heads = " | ".join(label + name for name in ("bits/byte", "word perplexity", "token perplexity"))
    return [
        f"| on | {heads} | context |",
        "| --- | --- | --- | --- | --- |",
        f"| {result['data']} {result['split']} | {number(result['bits_per_byte'], 4)} | "
        f"{number(result['word_perplexity'], 2)} | {number(result['token_perplexity'], 2)} | {context} |",
        "",
        *_conventions(result.get("conventions", ())),
        *(f"- {note}" for note in result["notes"]),
    ]


def _conventions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same text with and without line ends and unknown words, as the literature mixes them."""
    if not rows:
        return []
    return [
        "| counted | tokens | token perplexity |",
        "| --- | ---: | ---: |",
        *(f"| {row['name']} | {row['tokens']:,} | {number(row['perplexity'], 2)} |" for row in rows),
        "",
    ]


def _settings(table: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in table.items()) or "defaults"
