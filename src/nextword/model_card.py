"""card.md: what a run is, on what it was trained, how good it is and how to use it, for whoever finds the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.core.io import infinite, number
from nextword.core.types import PSEUDO
from nextword.data.text_to_text import is_tasks, prefixes
from nextword.models import abilities, model_class, silent
from nextword.models.base import Static
from nextword.objectives import mends, of_pairs
from nextword.run_folder import RunFolder

ASKED = {  # kind of a task → of what something is said, and what
    "span": ("a question and a passage", "the span of the passage that answers it"),
    "choice": ("a context and candidates", "which of them is right"),
}
EXAMPLES = {"span": '("a question", "a passage")', "choice": '("a context", ["one candidate", "another"])'}
EXAMPLE = {"reads": "source", "should write": "target", "writes": "written"}


def write_card(run: RunFolder) -> None:
    recipe = run.recipe
    if recipe.task is not None:
        _task_card(run, recipe.task)
        return
    if of_pairs(recipe.phases[-1].objective):
        _pairs_card(run)
        return
    if mends(recipe.phases[-1].objective):
        _mending_card(run)
        return
    if issubclass(model_class(recipe.slug), Static):
        _vectors_card(run)
        return
    named = [str(recipe.paper[key]) for key in ("title", "authors", "year") if key in recipe.paper]
    lines = [
        f"# {run.path.name}",
        "",
        f"A `{recipe.slug}` language model: {', '.join(named)}." if named else f"A `{recipe.slug}` language model.",
        "",
        *_facts(run),
        "",
        "## Numbers",
        "",
        *_numbers(run),
        "",
        "## Use",
        "",
        "```",
        *uses(run),
        *([] if silent(recipe.model) else [f"nextword evaluate {run.path} --data my.txt"]),
        "```",
        "",
        "```python",
        "import nextword",
        f'lm = nextword.load("{run.path}")',
        'lm.embed_words(["some text"], "all")' if _of_words(run) else 'lm.score("some text").bits_per_byte()',
        "```",
    ]
    run.write("card.md", "\n".join(lines) + "\n")


def _facts(run: RunFolder, *more: str) -> list[str]:
    """Where a run comes from, a line each, and what more is to be said of its training."""
    recipe, manifest = run.recipe, run.manifest
    return [
        f"- recipe: `{manifest.get('recipe')}`, resolved in `recipe.toml`",
        f"- model: {_settings(recipe.model)}; {manifest.get('parameters', 0):,} parameters",
        f"- tokenizer: {_settings(recipe.tokenizer)}",
        *more,
        *(f"- data ({phase}): {source}" for phase, source in manifest.get("data", {}).items()),
        f"- trained with nextword {manifest.get('nextword')}",
    ]


def _labels(task: Mapping[str, Any]) -> str:
    return ", ".join(task["labels"]) or "a number"


def _converted(manifest: Mapping[str, Any]) -> list[str]:
    """Of a task's run in fewer bits, which was not measured itself."""
    if "converted" not in manifest:
        return []
    return [f"Converted from `{manifest['converted']['from']}`, where its numbers are."]


def _task_numbers(task: Mapping[str, Any], result: Mapping[str, Any], splits: Sequence[str]) -> list[str]:
    return [
        f"| on | examples | {' | '.join(task['metrics'])} |",
        f"| --- | ---: |{' ---: |' * len(task['metrics'])}",
        *(
            f"| {split}{', learnt from too' if split == 'dev' and task.get('final') else ''} "
            f"| {result['examples'][split]:,} | "
            + " | ".join(f"{100 * result[split][name]:.1f}" for name in task["metrics"])
            + " |"
            for split in splits
        ),
        *_threshold(result),
        "",
        "What it gets wrong on dev: `report.html`, to be looked at, and `errors.json`.",
    ]


def _task_card(run: RunFolder, task: Mapping[str, Any]) -> None:
    """Of a run that was transferred to a task."""
    recipe, manifest, result = run.recipe, run.manifest, run.manifest.get("result", {})
    several: Sequence[Mapping[str, Any]] = task.get("tasks", ())
    labels = "; ".join(f"{one['name']}: {_labels(one)}" for one in several) or _labels(task)
    labels = ASKED.get(task["kind"], ("", labels))[1]
    tags = task["kind"] == "tag"
    about = "each word" if tags else "texts" if several else "two texts" if task["frame"] != "classify" else "a text"
    about = ASKED.get(task["kind"], (about, ""))[0]
    began = "the same network without its weights" if task["scratch"] else "its weights, and a new head over them"
    if "shots" in result:
        began = f"as it is; {sum(result['shots'].values())} solved examples stand before every text: `prompt.txt`"
    splits = [split for split in result.get("examples", {}) if split in result]
    name, frame = ("", task["frame"]) if tags or not several else (several[0]["name"], several[0]["frame"])
    example = '("one text", "another")' if frame not in ("classify", "tag") else '"some text"'
    example = EXAMPLES.get(task["kind"], example)
    lines = [
        f"# {run.path.name}",
        "",
        f"A `{recipe.slug}` network that says of {about}: {labels}.",
        "",
        f"- made of: `{task['source']}` ({began})"
        if task["source"]
        else "- made of nothing: trained on the task alone",
        f"- recipe: `{manifest.get('recipe')}`, resolved in `recipe.toml`",
        f"- model: {_settings(recipe.model)}; {manifest.get('parameters', 0):,} parameters",
        *(f"- data ({phase}): {source}" for phase, source in manifest.get("data", {}).items()),
        f"- {'made' if 'shots' in result else 'trained'} with nextword {manifest.get('nextword')}, "
        f"seed {recipe.phases[0].seed}",
        "",
        "## Numbers",
        "",
        *(_converted(manifest) or _task_numbers(task, result, splits)),
        "",
        "## Use",
        "",
        "```",
        f"nextword predict {run.path} "
        + ("my.txt --output my.conll" if tags else f"my.csv{f' --task {name}' if name else ''} --output labelled.csv"),
        "```",
        "",
        "```python",
        "import nextword",
        f'nextword.load("{run.path}").predict({example}' + (f', task="{name}")' if name else ")"),
        "```",
    ]
    run.write("card.md", "\n".join(lines) + "\n")


def _threshold(result: Mapping[str, Any]) -> list[str]:
    """Of a run that may say "no answer": when it does."""
    best = result.get("best")
    if not best:
        return []
    numbers = " · ".join(f"{name} {100 * value:.1f}" for name, value in best.items() if name != "threshold")
    return ["", f"- no answer is given where none is better by {best['threshold']:.3g}, the best on dev: {numbers}"]


def _vectors_card(run: RunFolder) -> None:
    """Of a run that gives words vectors, and no text a probability."""
    recipe = run.recipe
    named = [str(recipe.paper[key]) for key in ("title", "authors", "year") if key in recipe.paper]
    lines = [
        f"# {run.path.name}",
        "",
        f"Vectors of words: `{recipe.slug}`, {', '.join(named)}. A word has one vector, wherever it stands; this is no "
        "language model.",
        "",
        *_facts(run),
        "",
        "## Use",
        "",
        "```",
        *uses(run),
        f'nextword embed {run.path} --analogy "king - man + woman"',
        f"nextword embed {run.path} lines.txt --out vectors.npy",
        f"nextword convert {run.path} mine.vec",
        "```",
        "",
        "```python",
        "import nextword",
        f'nextword.load("{run.path}").nearest("word")',
        "```",
    ]
    run.write("card.md", "\n".join(lines) + "\n")


def _pairs_card(run: RunFolder) -> None:
    """Of a run that reads a text and writes another."""
    recipe, result = run.recipe, last_translated(run)
    phase = recipe.phases[-1]
    known = prefixes(phase.data) if is_tasks(phase.data) else ()
    example = (result or {}).get("example") or {}
    source = quoted(example.get("source") or (f"{known[0]}…" if known else "a source"))
    reads = "a text that begins with the prefix of a task" if known else f"the source of a pair of `{phase.data}`"
    lines = [
        f"# {run.path.name}",
        "",
        f"A `{recipe.slug}` model that reads {reads}, and writes {'the answer' if known else 'its target'}.",
        "",
        *(f"- reads: `{one}…`" for one in known),
        *_facts(run, f"- trained on sides of at most {phase.batches.get('length')} tokens"),
        "",
        "## Example",
        "",
        *(f"- {name}: {example[key]}" for name, key in EXAMPLE.items() if key in example),
        *(() if example else ("None yet: `nextword evaluate`.",)),
        "",
        "## Numbers",
        "",
        *_measured(result),
        "",
        "## Use",
        "",
        "```",
        f'nextword generate {run.path} "{source}" --beam 5',
        f"nextword evaluate {run.path} --beam 5",
        "```",
        "",
        "```python",
        "import nextword",
        f'lm = nextword.load("{run.path}")',
        f'"".join(piece.text for piece in lm.generate("{source}"))',
        "```",
    ]
    run.write("card.md", "\n".join(lines) + "\n")


def _mending_card(run: RunFolder) -> None:
    """Of a run that writes what was taken out of texts."""
    recipe = run.recipe
    phase = recipe.phases[-1]
    share = 100 * phase.objective.get("share", 0.15)
    ends = [line for line in run.read_log() if line.get("event") == "end" and "valid" in line]
    nats = f"{ends[-1]['valid']:.4f}" if ends else "not known"
    lines = [
        f"# {run.path.name}",
        "",
        f"A `{recipe.slug}` model that writes what is missing from a text. It models no text by itself, so it has no "
        "bits per byte; pairs or tasks teach it more (`init`, docs/text-to-text.md).",
        "",
        *_facts(
            run,
            f"- trained on sources of {phase.batches.get('length')} tokens, of whose texts {share:g} % were taken out "
            f"in spans of {phase.objective.get('mean', 3.0):g} on average",
        ),
        "",
        "## Numbers",
        "",
        f"- nats a token of what was taken out of held-out text, sentinels included: {nats}",
        "",
        "## Use",
        "",
        "```",
        f'nextword generate {run.path} "The ___ of the ___ is" --beam 4',
        "```",
        "",
        "```python",
        "import nextword",
        f'lm = nextword.load("{run.path}")',
        'lm.infill("The ___ of the ___ is")[0].text',
        "```",
    ]
    run.write("card.md", "\n".join(lines) + "\n")


def quoted(source: str) -> str:
    """The beginning of a source, as it can stand between quotes."""
    return " ".join(source.replace('"', "").replace("$", "").replace("\\", "").split()[:12])


def _measured(result: Mapping[str, Any] | None) -> list[str]:
    if result is None:
        return ["Not evaluated yet: `nextword evaluate`."]
    rows = []
    for one in result.get("tasks", [result]):
        where = f"{one.get('task') or result['data']} {one['split']}"
        numbers = ", ".join(f"{name} {score['score']:.2f}" for name, score in one["scores"].items()) or "–"
        rows.append(f"| {where} | {one['pairs']:,} | {numbers} | {number(one['token_perplexity'], 2)} |")
    heads = ["| on | pairs | measured | target token perplexity |", "| --- | ---: | --- | ---: |"]
    return [*heads, *rows, "", f"- decoding: {result['decoding']}"]


def last_translated(run: RunFolder) -> dict[str, Any] | None:
    """Of a run that makes texts from sources: how good they were when they were last judged."""
    found = [line for line in run.read_log() if line.get("event") == "translated"]
    return infinite(found[-1]) if found else None


def last_evaluation(run: RunFolder) -> dict[str, Any] | None:
    found = [line for line in run.read_log() if line.get("event") == "evaluation"]
    return infinite(found[-1]) if found else None


def _of_words(run: RunFolder) -> bool:
    """Whether it was made for the vectors of words in their context, whatever else it can do."""
    return bool(getattr(model_class(run.recipe.slug), "is_bidirectional", False))


def uses(run: RunFolder) -> list[str]:
    """Commands for a model of plain text or of words, by what it can do, the first the one to try."""
    can = abilities(model_class(run.recipe.slug), run.recipe.model)
    if _of_words(run):
        use = [f"nextword embed {run.path} lines.txt --words --layer all"]
        return use + [f'nextword next {run.path} "the"'] * ("next" in can)
    if "generate" in can:
        return [f"nextword generate {run.path} --length 60 --temperature 0.8", f'nextword next {run.path} "the"']
    if "fill" in can:  # it sees both sides, and writes no text
        return [f'nextword next {run.path} "The ___ is"']
    if "score" in can:  # it reads texts from their end
        return [f"nextword embed {run.path} lines.txt --out vectors.npy"]
    return [f"nextword embed {run.path} --nearest WORD"]


def _numbers(run: RunFolder) -> list[str]:
    result = last_evaluation(run)
    if silent(run.recipe.model):
        return ["None: it has no output layer, so it predicts nothing. It gives vectors."]
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
