"""The model card, card.md: what a run is, what it was trained on, how good it is, and how to use it.

There is one card for each kind of run: a fine-tuned task, a sequence-to-sequence model, a model that fills blanks, word
vectors, and a language model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nextword.core.errors import show_controls
from nextword.core.io import format_number, restore_infinities
from nextword.core.types import PSEUDO
from nextword.data.segmentation import opening_words
from nextword.data.text_to_text import is_tasks, list_prefixes
from nextword.models import abilities, has_output_layer, model_class
from nextword.models.base import WordVectorNetwork
from nextword.objectives import trains_blank_filling, trains_on_pairs
from nextword.run_folder import RunFolder, explain_read_errors
from nextword.tasks import parse_task
from nextword.tasks.baselines import describe_only_prediction, describe_verdict, table

CARD = "card.md"
NOT_EVALUATED = "Not evaluated yet: run `nextword evaluate`."


def write_card(run: RunFolder) -> None:
    """Write card.md for a run of any kind."""
    with explain_read_errors(run.path / "manifest.json"):
        lines = _card(run)
    title = f"# {run.name if run.is_installed else run.path.name}"
    run.write(CARD, show_controls("\n".join([title, "", *lines])) + "\n")  # somebody will print it


def _card(run: RunFolder) -> list[str]:
    recipe = run.recipe
    if recipe.task is not None:
        return _task_card(run)
    if trains_on_pairs(recipe.phases[-1].objective):
        return _seq2seq_card(run)
    if trains_blank_filling(recipe.phases[-1].objective):
        return _blank_filling_card(run)
    if issubclass(model_class(recipe.slug), WordVectorNetwork):
        return _word_vector_card(run)
    return _language_model_card(run)


# ------------------------------------------------------------------------------------------------ cards


def _language_model_card(run: RunFolder) -> list[str]:
    recipe = run.recipe
    paper = f": {_cite(run)}" if _cite(run) else ""
    evaluate = [f"nextword evaluate {run.name} --data my.txt"] if _predicts_text(run) else []
    example = 'lm.score("some text").bits_per_byte()'
    if _is_encoder(run):
        example = 'lm.embed_words(["some text"], "all")'
    elif not _predicts_text(run):
        example = 'lm.embed(["some text"])'
    return [
        f"A `{recipe.slug}` language model{paper}.",
        "",
        *_facts(run),
        *_section("Numbers", _likelihood_table(run)),
        *_usage([*example_commands(run), *evaluate], [f'lm = nextword.load("{run.name}")', example]),
    ]


def _word_vector_card(run: RunFolder) -> list[str]:
    return [
        f"Word vectors: `{run.recipe.slug}`, {_cite(run)}. A word has one vector in all contexts; this is not a "
        "language model.",
        "",
        *_facts(run),
        *_usage(
            [
                *example_commands(run),
                f'nextword embed {run.name} --analogy "king - man + woman"',
                f"nextword embed {run.name} lines.txt --out vectors.npy",
                f"nextword convert {run.name} mine.vec",
            ],
            [f'nextword.load("{run.name}").nearest("word")'],
        ),
    ]


def _seq2seq_card(run: RunFolder) -> list[str]:
    phase, result = run.recipe.phases[-1], last_translated(run)
    prefixes = list_prefixes(phase.data) if is_tasks(phase.data) else ()
    example = (result or {}).get("example") or {}
    source = first_words(example.get("source") or (f"{prefixes[0]}…" if prefixes else "a source"))
    purpose = (
        "reads a text that begins with a task prefix, and generates the answer"
        if prefixes
        else f"reads the source of a pair of `{phase.data}`, and generates its target"
    )
    labels = {"source": "source", "target": "target", "generated": "output"}
    lines = [f"- {label}: {example[key]}" for label, key in labels.items() if key in example]
    return [
        f"A `{run.recipe.slug}` model that {purpose}.",
        "",
        *(f"- prefix: `{prefix}…`" for prefix in prefixes),
        *_facts(run, f"- trained on sources and targets of at most {phase.batches.get('length')} tokens"),
        *_section("Example", lines or [NOT_EVALUATED]),
        *_section("Numbers", _translation_table(result)),
        *_usage(
            [f'nextword generate {run.name} "{source}" --beam 5', f"nextword evaluate {run.name} --beam 5"],
            [f'lm = nextword.load("{run.name}")', f'"".join(piece.text for piece in lm.generate("{source}"))'],
        ),
    ]


def _blank_filling_card(run: RunFolder) -> list[str]:
    phase = run.recipe.phases[-1]
    fraction = 100 * phase.objective.get("mask_fraction", 0.15)
    ends = [line for line in run.read_log() if line.get("event") == "end" and "valid" in line]
    nats = f"{ends[-1]['valid']:.4f}" if ends else "unknown"
    corruption = (
        f"- trained on sources of {phase.batches.get('length')} tokens, with {fraction:g} % of each text removed in "
        f"spans of {phase.objective.get('mean_span', 3.0):g} tokens on average"
    )
    return [
        f"A `{run.recipe.slug}` model that fills the blanks of a text. It assigns no probability to a whole text, so "
        "it has no bits per byte. Train it on pairs or tasks next (`init_from`, docs/text-to-text.md).",
        "",
        *_facts(run, corruption),
        *_section("Numbers", [f"- nats per token of the removed spans of held-out text, including sentinels: {nats}"]),
        *_usage(
            [f'nextword generate {run.name} "The ___ of the ___ is" --beam 4'],
            [f'lm = nextword.load("{run.name}")', 'lm.infill("The ___ of the ___ is")[0].text'],
        ),
    ]


def _task_card(run: RunFolder) -> list[str]:
    recipe, manifest, result = run.recipe, run.manifest, run.manifest.get("result", {})
    task = parse_task(recipe.task, run.name)
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
    if "converted" in manifest:
        numbers = [f"Converted from `{manifest['converted']['from']}`, where its numbers are."]
    else:
        numbers = _task_table(result)
        if (run.path / "report.html").is_file():  # a rounded run has the numbers alone
            numbers += ["", "Errors on dev: `report.html` for people, `errors.json` for programs."]
    wording = task.wording()
    prediction = f'nextword.load("{run.name}").predict({wording.arguments})'
    return [
        f"A `{recipe.slug}` network that predicts, for {wording.input}: {wording.output}.",
        "",
        origin,
        f"- recipe: `{manifest.get('recipe')}`, resolved in `recipe.toml`",
        f"- model: {_join_settings(recipe.model)}; {manifest.get('parameters', 0):,} parameters",
        *_storage(run),
        *(f"- data ({phase}): {source}" for phase, source in manifest.get("data", {}).items()),
        f"- nextword {manifest.get('nextword')}, seed {recipe.phases[0].seed}",
        *_section("Numbers", numbers),
        *_usage([f"nextword predict {run.name} {wording.command}"], [prediction]),
    ]


# ------------------------------------------------------------------------------------------------ parts of a card


def _facts(run: RunFolder, *more: str) -> list[str]:
    """Where a run comes from, one line each."""
    recipe, manifest = run.recipe, run.manifest
    return [
        f"- recipe: `{manifest.get('recipe')}`, resolved in `recipe.toml`",
        f"- model: {_join_settings(recipe.model)}; {manifest.get('parameters', 0):,} parameters",
        f"- tokenizer: {_join_settings(recipe.tokenizer)}",
        *_storage(run),
        *more,
        *(f"- data ({phase}): {source}" for phase, source in manifest.get("data", {}).items()),
        f"- trained with nextword {manifest.get('nextword')}",
    ]


def _storage(run: RunFolder) -> list[str]:
    """How the weights are stored, if not as trained, what that costs, and under which license."""
    manifest, lines = run.manifest, []
    if storage := manifest.get("storage"):
        lines.append(f"- weights: stored in {storage}; reading restores float32, so it can be trained further")
    for row in manifest.get("rounding", ()):
        lines.append(f"- rounding: {row['metric']} {row['before']:.4g} before, {row['after']:.4g} after")
    lines += [f"- measured: {text}" for text in manifest.get("measured", ())]
    if license := manifest.get("license"):
        lines.append(f"- license: {license}")
    return lines


def _predicts_text(run: RunFolder) -> bool:
    """Whether the run has an output layer that fits its weights: sentence vectors have none."""
    return has_output_layer(run.recipe.model) and run.recipe.phases[-1].objective.get("kind") != "contrastive"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return ["", f"## {title}", "", *lines]


def _usage(commands: Sequence[str], python: Sequence[str]) -> list[str]:
    lines = ["```", *commands, "```", "", "```python", "import nextword", *python, "```"]
    return _section("Use", lines)


def _cite(run: RunFolder) -> str:
    return ", ".join(str(run.recipe.paper[key]) for key in ("title", "authors", "year") if key in run.recipe.paper)


def _join_settings(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in table.items()) or "defaults"


def _likelihood_table(run: RunFolder) -> list[str]:
    result = last_evaluation(run)
    if not _predicts_text(run):
        return ["None: it has no output layer, so it predicts nothing. It has vectors."]
    if result is None:
        return [NOT_EVALUATED]
    context = "unlimited" if result["context"] is None else f"{result['context']} tokens, stride {result['stride']}"
    label = "pseudo " if result.get("kind") == PSEUDO else ""
    headings = " | ".join(label + name for name in ("bits/byte", "word perplexity", "token perplexity"))
    return [
        f"| on | {headings} | context |",
        "| --- | --- | --- | --- | --- |",
        f"| {result['data']} {result['split']} | {format_number(result['bits_per_byte'], 4)} | "
        f"{format_number(result['word_perplexity'], 2)} | {format_number(result['token_perplexity'], 2)} | {context} |",
        "",
        *_convention_table(result.get("conventions", ())),
        *(f"- {note}" for note in result["notes"]),
    ]


def _convention_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same text with and without line ends and unknown words; the literature uses all of these conventions."""
    if not rows:
        return []
    return [
        "| counted | tokens | token perplexity |",
        "| --- | ---: | ---: |",
        *(f"| {row['name']} | {row['tokens']:,} | {format_number(row['perplexity'], 2)} |" for row in rows),
        "",
    ]


def _translation_table(result: Mapping[str, Any] | None) -> list[str]:
    if result is None:
        return [NOT_EVALUATED]
    rows = []
    for task in result.get("tasks", [result]):
        name = f"{task.get('task') or result['data']} {task['split']}"
        scores = ", ".join(f"{metric} {score['score']:.2f}" for metric, score in task["scores"].items()) or "–"
        rows.append(f"| {name} | {task['pairs']:,} | {scores} | {format_number(task['token_perplexity'], 2)} |")
    headings = ["| on | pairs | scores | target token perplexity |", "| --- | ---: | --- | ---: |"]
    return [*headings, *rows, "", f"- decoding: {result['decoding']}"]


def _task_table(result: Mapping[str, Any]) -> list[str]:
    """Metrics by split."""
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
        *_threshold_note(result),
        *_baseline_tables(result),
    ]


def _baseline_tables(result: Mapping[str, Any]) -> list[str]:
    """What cheap methods reach on the same examples, for each task."""
    lines = []
    for comparison in result.get("baselines", ()):
        header, rows = table(comparison)
        of = f" {comparison['task']}:" if "task" in comparison else ""
        lines += ["", f"| {' | '.join(header)} |", f"| --- |{' ---: |' * (len(header) - 1)}"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        sentences = filter(None, (describe_only_prediction(comparison), describe_verdict(comparison)))
        lines += ["", f"Baselines:{of} {' '.join(sentences)}"]
    return lines


def _threshold_note(result: Mapping[str, Any]) -> list[str]:
    """When a question answering model answers "no answer"."""
    best = result.get("best")
    if not best:
        return []
    numbers = " · ".join(f"{name} {100 * value:.1f}" for name, value in best.items() if name != "threshold")
    return [
        "",
        f"- predicts no answer unless an answer is better by {best['threshold']:.3g}, the best on dev: {numbers}",
    ]


# ------------------------------------------------------------------------------------------------ shared with commands


def last_evaluation(run: RunFolder) -> dict[str, Any] | None:
    """The last evaluation of a language model in the run's log."""
    return _last_event(run, "evaluation")


def last_translated(run: RunFolder) -> dict[str, Any] | None:
    """The last evaluation of a sequence-to-sequence model in the run's log."""
    return _last_event(run, "translated")


def _last_event(run: RunFolder, event: str) -> dict[str, Any] | None:
    lines = [line for line in run.read_log() if line.get("event") == event]
    return restore_infinities(lines[-1]) if lines else None


def example_commands(run: RunFolder) -> list[str]:
    """Commands to try with a model of plain text or of words, the best one first."""
    can = abilities(model_class(run.recipe.slug), run.recipe.model)
    if _is_encoder(run):
        embed = [f"nextword embed {run.name} lines.txt --words --layer all"]
        return embed + ([f'nextword next {run.name} "the"'] if "next" in can else [])
    if not _predicts_text(run):
        return [f'nextword embed {run.name} lines.txt --query "some text"']
    if "generate" in can:
        return [f"nextword generate {run.name} --max-tokens 60 --temperature 0.8", f'nextword next {run.name} "the"']
    if "fill" in can:  # a masked model
        return [f'nextword next {run.name} "The ___ is"']
    if "score" in can:  # a backward model
        return [f"nextword embed {run.name} lines.txt --out vectors.npy"]
    return [f"nextword embed {run.name} --nearest WORD"]


def _is_encoder(run: RunFolder) -> bool:
    """Whether the model was made for contextual word vectors (ELMo), whatever else it can do."""
    return bool(model_class(run.recipe.slug).is_bidirectional)


def first_words(source: str) -> str:
    """The beginning of a source, safe between double quotes in a shell."""
    return opening_words(source.replace('"', "").replace("$", "").replace("\\", ""), 12)
