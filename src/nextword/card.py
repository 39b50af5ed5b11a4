"""card.md: what a run is, on what it was trained, how good it is and how to use it, for whoever finds the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.checkpoint import RunFolder
from nextword.contract import PSEUDO
from nextword.infinity import infinite, number


def write_card(run: RunFolder) -> None:
    recipe, manifest = run.recipe, run.manifest
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
