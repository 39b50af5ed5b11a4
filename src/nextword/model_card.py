"""card.md: what a run is, on what it was trained, how good it is and how to use it, for whoever finds the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.core.io import format_number, restore_infinities
from nextword.core.types import PSEUDO
from nextword.data.text_to_text import is_tasks, list_prefixes
from nextword.models import abilities, has_output_layer, model_class
from nextword.models.base import WordVectorNetwork
from nextword.objectives import trains_blank_filling, trains_on_pairs
from nextword.run_folder import RunFolder
from nextword.tasks import parse_task

EXAMPLE = {"reads": "source", "should write": "target", "writes": "written"}


def write_card(run: RunFolder) -> None:
    recipe = run.recipe
    if recipe.task is not None:
        _task_card(run)
        return
    if trains_on_pairs(recipe.phases[-1].objective):
        _pairs_card(run)
        return
    if trains_blank_filling(recipe.phases[-1].objective):
        _mending_card(run)
        return
    if issubclass(model_class(recipe.slug), WordVectorNetwork):
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
        *([] if not has_output_layer(recipe.model) else [f"nextword evaluate {run.path} --data my.txt"]),
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


def _converted(manifest: Mapping[str, Any]) -> list[str]:
    """Of a task's run in fewer bits, which was not measured itself."""
    if "converted" not in manifest:
        return []
    return [f"Converted from `{manifest['converted']['from']}`, where its numbers are."]


def _task_numbers(result: Mapping[str, Any]) -> list[str]:
    """A table of metrics by split."""
    splits = [split for split in result.get("examples", {}) if split in result]
    metrics = list(result.get("dev", {}))
    rows = []
    for split in splits:
        name = f"{split} (also trained on)" if split == "dev" and result.get("merge_dev_into_train") else split
        values = " | ".join(f"{100 * result[split][metric]:.1f}" for metric in metrics)
        rows.append(f"| {name} | {result['examples'][split]:,} | {values} |")
    return [
        f"| on | examples | {' | '.join(metrics)} |",
        f"| --- | ---: |{' ---: |' * len(metrics)}",
        *rows,
        *_threshold(result),
        "",
        "Errors on dev: `report.html` for people, `errors.json` for programs.",
    ]


def _task_card(run: RunFolder) -> None:
    """The card of a run of a task."""
    recipe, manifest, result = run.recipe, run.manifest, run.manifest.get("result", {})
    task = parse_task(recipe.task, str(run.path))
    config = task.config
    if not config.source:
        origin = "- trained on the task alone, from scratch"
    elif "shots" in result:
        shots = sum(result["shots"].values())
        origin = f"- prompts `{config.source}` with {shots} solved examples: `prompt.txt`"
    elif config.scratch:
        origin = f"- the network of `{config.source}`, trained from scratch"
    else:
        origin = f"- fine-tuned from `{config.source}`, with a new head"
    lines = [
        f"# {run.path.name}",
        "",
        f"A `{recipe.slug}` network that predicts, for {task.input_name}: {task.output_name}.",
        "",
        origin,
        f"- recipe: `{manifest.get('recipe')}`, resolved in `recipe.toml`",
        f"- model: {_settings(recipe.model)}; {manifest.get('parameters', 0):,} parameters",
        *(f"- data ({phase}): {source}" for phase, source in manifest.get("data", {}).items()),
        f"- nextword {manifest.get('nextword')}, seed {recipe.phases[0].seed}",
        "",
        "## Numbers",
        "",
        *(_converted(manifest) or _task_numbers(result)),
        "",
        "## Use",
        "",
        "```",
        f"nextword predict {run.path} {task.example_files}{task.example_options}",
        "```",
        "",
        "```python",
        "import nextword",
        f'nextword.load("{run.path}").predict([{task.example_input}]{task.example_arguments})',
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
    known = list_prefixes(phase.data) if is_tasks(phase.data) else ()
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
        rows.append(f"| {where} | {one['pairs']:,} | {numbers} | {format_number(one['token_perplexity'], 2)} |")
    heads = ["| on | pairs | measured | target token perplexity |", "| --- | ---: | --- | ---: |"]
    return [*heads, *rows, "", f"- decoding: {result['decoding']}"]


def last_translated(run: RunFolder) -> dict[str, Any] | None:
    """Of a run that makes texts from sources: how good they were when they were last judged."""
    found = [line for line in run.read_log() if line.get("event") == "translated"]
    return restore_infinities(found[-1]) if found else None


def last_evaluation(run: RunFolder) -> dict[str, Any] | None:
    found = [line for line in run.read_log() if line.get("event") == "evaluation"]
    return restore_infinities(found[-1]) if found else None


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
    if not has_output_layer(run.recipe.model):
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
        f"| {result['data']} {result['split']} | {format_number(result['bits_per_byte'], 4)} | "
        f"{format_number(result['word_perplexity'], 2)} | {format_number(result['token_perplexity'], 2)} | {context} |",
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
        *(f"| {row['name']} | {row['tokens']:,} | {format_number(row['perplexity'], 2)} |" for row in rows),
        "",
    ]


def _settings(table: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in table.items()) or "defaults"
