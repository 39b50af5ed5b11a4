"""`nextword evaluate`: how well a run predicts a text, or does a task that is put in words.

`nextword evaluate RUN --task NAME`: a task put in words; `nextword evaluate --tasks`: which there are.

Numbers of a run: measured, kept in its folder, shown in one table.

Numbers of a run that makes texts from sources: measured, kept in its folder, shown in one table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Quiet, console, emit_json, progress_bar, read_lines, say_columns
from nextword.cli.generate import beam_of
from nextword.core.io import number


def evaluate(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run folder (see `nextword runs`).", show_default=False)
    ] = "",
    data: Annotated[str, typer.Option("--data", help="Another text: a path or a name. Default: the run's own.")] = "",
    split: Annotated[
        str, typer.Option("--split", help="train, valid or test. Default: test; a text without splits is scored whole.")
    ] = "",
    context: Annotated[int, typer.Option("--context", help="Look back at most this many tokens.")] = 0,
    stride: Annotated[int, typer.Option("--stride", help="Move on by this many. Default: half the context.")] = 0,
    lines: Annotated[bool, typer.Option("--lines", help="One score a line, to rank sentences.")] = False,
    cache: Annotated[bool, typer.Option("--cache", help="With a neural cache: it points at what it has read.")] = False,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Dynamic evaluation: it learns as it reads.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="cache.lambda, .theta, .window, dynamic.rate, task.rule, … "),
    ] = None,
    task: Annotated[str, typer.Option("--task", help="A task put in words: its name, or a .toml of yours.")] = "",
    shots: Annotated[int, typer.Option("--shots", help="Solved examples before each question.")] = 0,
    limit: Annotated[int, typer.Option("--limit", help="A sample of so many questions, hidden tokens or pairs.")] = 0,
    tasks: Annotated[bool, typer.Option("--tasks", help="List the tasks.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the shots and the sample.")] = 0,
    beam: Annotated[
        int | None, typer.Option("--beam", help="Translations: by a beam of this width. Default: greedily.")
    ] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="DATA", help="Training text: score what it holds in part apart.")
    ] = "",
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Bits per byte, word and token perplexity on a text, with the context stated.

    Over a closed vocabulary the token perplexity is given with and without line ends and unknown words, side by side.
    With --cache or --dynamic, settings that are not given are found on validation text, and all are stated; the run's
    own weights and its plain numbers stay as they are. A model that sees both sides has pseudo-likelihoods, of a sample
    of the tokens (--limit), and they are labelled so. With --task the model is asked in words, with --shots examples
    before each question; nothing is learnt. A run that makes texts from sources is judged by what it writes, with
    --beam and --set beam.length_penalty=1 and the like: translations by BLEU and chrF, summaries by ROUGE, tasks
    (tasks:sst2+cola) each by its own metric.

    [dim]Examples[/]
      nextword evaluate runs/lstm-tiny
      nextword evaluate runs/lstm-tiny --data my.txt
      nextword evaluate runs/lstm-tiny --data sentences.txt --lines
      nextword evaluate runs/lstm-tiny --cache
      nextword evaluate runs/lstm-tiny --cache --set cache.window=500 --set cache.theta=1 --set cache.lambda=0.1
      nextword evaluate runs/lstm-tiny --dynamic --set dynamic.rate=1e-4
      nextword evaluate runs/gpt2-small --data held-out.txt --against wikipedia
      nextword evaluate --tasks
      nextword evaluate runs/gpt2-small --task lambada
      nextword evaluate runs/gpt2-small --task rte --shots 4 --limit 200
      nextword evaluate runs/seq2seq-multi30k --beam 5 --set beam.length_penalty=1
      nextword evaluate runs/t5-tasks --data tasks:sst2 --limit 200
      echo "the cat sat on the mat" | nextword evaluate runs/lstm-tiny --data - --lines
    """
    from nextword.core.errors import NextwordError

    if tasks:
        list_tasks(json)
        return
    if not run:
        raise NextwordError("Which run? Give its folder: nextword evaluate RUN. `nextword runs` lists those here.")
    if task:
        if context or stride or lines or cache or dynamic:
            raise NextwordError(
                "--task asks questions; --context, --stride, --lines, --cache and --dynamic are for texts."
            )

        run_task(run, task, shots, limit, seed, split, data, set_ or [], device, json, quiet)
        return
    if shots:
        raise NextwordError("--shots go with --task NAME; `nextword evaluate --tasks` lists the names.")
    from nextword.data.opening import open_corpus, open_whole
    from nextword.lm.loading import load
    from nextword.run_folder import RunFolder

    if limit and lines:
        raise NextwordError("--lines scores every line: leave --limit away.")
    if stride and not context:
        raise NextwordError("--stride goes with --context: say how far back to look, too.")
    if (adaptive := cache or dynamic) and (context or lines):
        raise NextwordError(
            f"--cache and --dynamic read a text as one stream: leave {'--lines' if lines else '--context'} away."
        )
    if against and (adaptive or context or lines):
        raise NextwordError("--against scores whole documents: leave --cache, --dynamic, --context and --lines away.")
    chosen = (None, None) if beam is not None else _settings(set_ or [], cache, dynamic)
    folder = RunFolder.open(run)
    if lines:
        _rank(run, data, device, json)
        return
    lm = load(run, device)
    if not getattr(lm, "goes_on", True):
        if context or adaptive or against:
            raise NextwordError(
                "This run makes texts from sources: --context, --cache, --dynamic and --against are for models of text."
            )
        _translate(lm, folder, data, split, beam_of(beam, set_ or (), {}), limit, json, quiet)
        return
    if beam is not None:
        raise NextwordError("--beam is for runs that make texts from sources, and this one models text. Leave it out.")
    _check(lm, limit, adaptive, against)
    own = folder.recipe.phases[-1].data
    if not data and not own:
        raise NextwordError(f"{run} names no text of its own, for it was not trained here. Give one with --data.")
    say_columns([data or own], quiet or json)
    corpus = open_corpus(own) if not data or data == own else open_whole(data)
    if not split:
        split = next(name for name in ("test", "valid", "train") if name in corpus.splits)
    if split not in corpus.splits:
        raise NextwordError(f"{corpus.name} has no split '{split}'; it has {', '.join(corpus.splits)}.")
    quiet = quiet or json
    method = _method(lm, folder, corpus, chosen, quiet) if adaptive else None
    result = measure_likelihood(
        lm, folder, corpus, split, context or None, stride or None, quiet, method, limit or None
    )
    if against:
        from nextword.cli.data import score_against, show_apart

        result["against"] = score_against(lm, corpus, split, against, quiet)
    if json:
        emit_json(result)
        return
    show_likelihood(result)
    if against:
        show_apart(result["against"])


def _translate(lm: Any, folder: Any, data: str, split: str, beam: Any, limit: int, json: bool, quiet: bool) -> None:
    """What the run makes of sources, judged as translations, as summaries, or task by task."""
    from nextword.core.errors import NextwordError
    from nextword.core.types import Greedy
    from nextword.data.parallel import open_parallel
    from nextword.objectives import of_pairs

    own = folder.recipe.phases[-1].data
    if not data and not own:
        raise NextwordError(f"{folder.path} names no pairs of its own, for it was not trained here. Give --data.")
    if not data and not of_pairs(folder.recipe.phases[-1].objective):
        raise NextwordError(
            f"{folder.path} was trained to mend plain texts, of which it models none: there is no number to give. Give "
            "it pairs or tasks to do (--data), after a training on such (docs/text-to-text.md)."
        )
    corpus = open_parallel(data or own, whole=bool(data and data != own))
    if members := getattr(corpus, "members", ()):
        from nextword.evaluation.text_to_text import split_of

        if not [split_of(member, split) for member in members if not member.plain]:
            raise NextwordError(f"{corpus.name} has nothing that can be judged: no task but denoising.")
    split = split or next(name for name in ("test", "valid", "train") if name in corpus.splits)
    if split not in corpus.splits:
        raise NextwordError(f"{corpus.name} has no split '{split}'; it has {', '.join(corpus.splits)}.")
    result = measure_translations(lm, folder, corpus, split, beam or Greedy(), quiet or json, limit)
    if json:
        emit_json(result)
    else:
        show_translations(result)


def _check(lm: Any, limit: int, adaptive: bool, against: str) -> None:
    """What goes with likelihoods alone, and what with pseudo-likelihoods alone."""
    from nextword.core.errors import NextwordError, Unsupported
    from nextword.core.types import EXACT

    if lm.kind == EXACT and limit:
        raise NextwordError(
            "--limit goes with --task NAME, or with a model that sees both sides: this one scores all tokens of a text."
        )
    if lm.kind != EXACT and (adaptive or against):
        raise Unsupported(
            "This model sees both sides and has pseudo-likelihoods alone: --cache, --dynamic and --against need one "
            "that reads from left to right. Leave them away."
        )


def _settings(changes: list[str], cache: bool, dynamic: bool) -> tuple[Any, Any]:
    from nextword.core.errors import NextwordError

    if changes and not (cache or dynamic):
        raise NextwordError("--set goes with --cache or --dynamic: it changes their settings.")
    if not (cache or dynamic):
        return None, None  # and nothing need be imported
    from nextword.evaluation.dynamic import settings

    return settings(changes, cache, dynamic)


def _method(lm: Any, folder: Any, corpus: Any, chosen: tuple[Any, Any], quiet: bool) -> Any:
    """The method with its settings: what is open is found on the text's own validation split, or the run's."""
    from nextword.batching.token_stream import prepare
    from nextword.core.errors import NextwordError
    from nextword.data.opening import open_corpus
    from nextword.evaluation.dynamic import Texts, prepare_method

    own = folder.recipe.phases[-1].data
    held_out = corpus.name if "valid" in corpus.splits else Path(str(own)).name

    def ids(split: str, of: Any) -> Any:
        if of is None and not own:
            raise NextwordError(
                f"{folder.path} names no text of its own to find settings or gradients on. Give the settings with "
                "--set (cache.lambda, cache.theta, cache.window; dynamic.rate, dynamic.lambda, dynamic.kind=sgd)."
            )
        found = of or open_corpus(own)
        if split not in found.splits:
            raise NextwordError(f"{found.name} has no {split} split, which is needed here; give settings with --set.")
        return prepare(found, split, lm.tokenizer).ids

    texts = Texts(
        train=lambda: ids("train", None),
        valid=lambda: ids("valid", corpus if "valid" in corpus.splits else None),
        name=f"{held_out} valid",
    )
    return prepare_method(lm, folder, *chosen, texts, lambda label: progress_bar(label, quiet=quiet))


def _rank(run: str, data: str, device: str, json: bool) -> None:
    from nextword.core.errors import NextwordError
    from nextword.core.types import PSEUDO
    from nextword.lm.loading import load

    if not data:
        raise NextwordError("--lines needs --data: a file with one sentence a line, or - for standard input.")
    if data != "-" and not Path(data).is_file():
        raise NextwordError(f"There is no file {data}.")
    sentences = read_lines(data)
    if not sentences:
        raise NextwordError(f"{data} has no line to score.")
    scores = load(run, device).score_many(sentences)
    rows: list[dict[str, Any]] = [
        {
            "text": sentence,
            "kind": score.kind,
            "nats": score.nats,
            "tokens": score.tokens,
            "bits_per_byte": score.bits_per_byte(),
            "token_perplexity": score.token_perplexity(),
        }
        for sentence, score in zip(sentences, scores, strict=True)
    ]
    if json:
        emit_json(rows)
        return
    if any(score.kind == PSEUDO for score in scores):
        console.print("[dim]pseudo-likelihoods, each token hidden in turn: not to be set beside likelihoods[/]")
    console.print("[dim]    nats  bits/byte  token ppl  text[/]")
    for row in rows:
        bits, perplexity = number(row["bits_per_byte"], 3), number(row["token_perplexity"], 2)
        console.print(f"{number(row['nats'], 2):>8}  {bits:>9}  {perplexity:>9}  {row['text']}", markup=False)


def finish(run: Any, device: str = "auto", quiet: bool = False) -> dict[str, Any]:
    """Score a freshly trained run on its held-out text, write its card, and say what came out."""
    from nextword.data.opening import open_corpus
    from nextword.data.parallel import open_parallel
    from nextword.lm.loading import load
    from nextword.model_card import write_card
    from nextword.objectives import of_pairs

    recipe = run.recipe
    lm = load(run.path, device)
    if "score" not in lm.can:  # it gives words vectors, and no text a probability
        write_card(run)
        known = {"slug": recipe.slug, "run": str(run.path), "parameters": run.manifest.get("parameters")}
        return {**known, "can": sorted(lm.can)}
    pairs = of_pairs(recipe.phases[-1].objective)
    corpus = (open_parallel if pairs else open_corpus)(recipe.phases[-1].data)
    split = "test" if "test" in corpus.splits else "valid"
    can = {"can": sorted(lm.can)}
    modelled = pairs or getattr(lm, "goes_on", True)  # what was trained to mend texts models none
    if split not in corpus.splits or not modelled:
        write_card(run)
        return {"slug": recipe.slug, "run": str(run.path), "parameters": run.manifest.get("parameters"), **can}
    if pairs:
        from nextword.core.types import Greedy

        result = measure_translations(lm, run, corpus, split, Greedy(), quiet) | can
    else:
        result = measure_likelihood(lm, run, corpus, split, quiet=quiet, scored=recipe.phases[-1].scored) | can
    write_card(run)
    return result


def about(lm: Any, run: Any, corpus: Any, split: str) -> dict[str, Any]:
    """What every result begins with: which run, on what."""
    return {
        "slug": run.recipe.slug,
        "run": str(run.path),
        "data": corpus.name,
        "split": split,
        "parameters": lm.parameters,
    }


def measure_likelihood(
    lm: Any,
    run: Any,
    corpus: Any,
    split: str,
    context: int | None = None,
    stride: int | None = None,
    quiet: bool = False,
    method: Any = None,
    limit: int | None = None,
    scored: int = 0,
) -> dict[str, Any]:
    """Evaluate on a split, or on the first documents of it with so many tokens, and keep the result in the run's log.

    With a method it is another event, "adapted", so that nothing takes it for what the model is by itself.
    """
    from nextword.batching.token_stream import prepare
    from nextword.evaluation.likelihood import evaluate_stream

    with progress_bar(f"scoring {corpus.name} {split}", quiet=quiet) as update:
        whole = prepare(corpus, split, lm.tokenizer)
        stream = whole.beginning(scored)
        evaluation = evaluate_stream(lm, stream, context, stride, update, method, limit)
    result = {
        **about(lm, run, corpus, split),
        **evaluation.as_dict(),
    }
    if len(stream) < len(whole):
        result["scored"] = len(stream)
        result["notes"] = [*result["notes"], f"of the first {len(stream):,} of {len(whole):,} tokens of {split}"]
    event = "evaluation" if method is None else "adapted"
    run.log({"event": event, **{k: v for k, v in result.items() if k != "run"}})
    return result


def show_likelihood(result: dict[str, Any]) -> None:
    if "nats" not in result:
        return
    counts = f"{result['split']}: {result['words']:,} words, {result['bytes']:,} bytes"
    how = f", [bold]with {escape(result['method'])}[/]" if result.get("method") else ""
    console.print(f"\non [bold]{escape(result['data'])}[/] ({counts}){how}")
    label = "pseudo " if result["kind"] == "pseudo" else ""
    heads = [label + name for name in ("bits/byte", "word ppl", "token ppl")]
    table([*heads, "context", "parameters"], [_cells(result)])
    if result["conventions"]:
        table(("counted", "tokens", "token ppl"), _conventions(result["conventions"]))
    for note in result["notes"]:
        console.print(f"[dim]· {escape(note)}[/]")


def _cells(result: dict[str, Any]) -> list[str]:
    bits = number(result["bits_per_byte"], 4)
    if result.get("bits_per_byte_low") not in (None, math.inf):
        bits += f" [dim]({result['bits_per_byte_low']:.3f}–{result['bits_per_byte_high']:.3f})[/]"
    return [
        bits,
        number(result["word_perplexity"], 2),
        number(result["token_perplexity"], 2),
        "all before" if result["context"] is None else f"{result['context']} (stride {result['stride']})",
        f"{result['parameters']:,}",
    ]


def _conventions(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    names = [escape(row["name"]) for row in rows]
    names[0] += " [dim](as above)[/]"
    return [[name, f"{row['tokens']:,}", number(row["perplexity"], 2)] for name, row in zip(names, rows, strict=True)]


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None, words: Sequence[str] = ()
) -> None:
    """Columns of numbers stand at the right; the first, and those of `words`, at the left."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for i, column in enumerate(columns):
        # the first column is what one copies from: a name
        shown.add_column(
            column, justify="left" if i == 0 or column in words else "right", overflow="fold", no_wrap=i == 0
        )
    for row in rows:
        shown.add_row(*row)
    if console.is_terminal:
        console.print(shown)
    else:  # a pipe has no width: nothing that a person greps for may be cut
        wide = console.measure(shown, options=console.options.update(max_width=1000)).maximum
        Console(file=console.file, width=wide, highlight=False).print(shown)


SETTINGS = {"rule": "", "drawn": "item", "long": "slide"}
PERCENT = ("accuracy", "f1", "mcc")  # times 100, as papers print them


def list_tasks(json: bool) -> None:
    """Every task, how it is scored, and whether its data are here."""
    from nextword.evaluation.prompt_tasks import load_task, task_names

    rows = []
    for name in task_names():
        task = load_task(name)
        keys = ("name", "title", "data", "split", "shots_from", "rule", "metric", "note")
        rows.append(
            {**{key: getattr(task, key) for key in keys}, "here": data_here(task), "published": list(task.published)}
        )
    if json:
        emit_json(rows)
        return
    cells = [
        [*(escape(row[key]) for key in ("name", "data", "split", "rule", "metric")), "✓" * row["here"], row["title"]]
        for row in rows
    ]
    table(("task", "data", "split", "rule", "metric", "here", ""), cells)
    console.print("[dim]One of them: nextword evaluate RUN --task NAME --shots 5 · its data: nextword data NAME[/]")


def data_here(task: Any) -> bool:
    """Whether the data of a task are on this machine, or made here."""
    from nextword.data.catalog import find
    from nextword.evaluation.prompt_tasks import GENERATED

    entry = find(task.data)
    return task.data in GENERATED or (entry is not None and entry.place() is not None)


def run_task(
    run: str,
    name: str,
    shots: int,
    limit: int,
    seed: int,
    split: str,
    data: str,
    changes: list[str],
    device: str,
    json: bool,
    quiet: bool,
) -> None:
    """Ask a run, keep the result in its log as the event "task", and show it."""
    from nextword.evaluation.prompt_tasks import load_task
    from nextword.run_folder import RunFolder

    settings = _task_settings(changes)
    rule = settings.pop("rule")
    task = load_task(name, **{k: v for k, v in (("split", split), ("rule", rule)) if v})
    folder = RunFolder.open(run)
    from nextword.evaluation.few_shot import evaluate_task
    from nextword.lm.loading import load

    lm = load(run, device)
    with progress_bar(f"asking {task.name}", quiet=quiet or json) as update:
        found = evaluate_task(
            lm, task, shots, seed=seed, limit=limit or None, folder=data or None, progress=update, **settings
        )
    result = {"slug": folder.recipe.slug, "run": str(folder.path), "parameters": lm.parameters, **found.as_dict()}
    kept = {key: value for key, value in result.items() if key not in ("run", "published", "first")}
    folder.log({"event": "task", **kept})
    if json:
        emit_json(result)
    else:
        show_tasks(found)


def _task_settings(changes: list[str]) -> dict[str, Any]:
    from nextword.core.errors import NextwordError, did_you_mean

    values: dict[str, Any] = dict(SETTINGS)
    for change in changes:
        key, equals, value = change.partition("=")
        group, _, setting = key.strip().partition(".")
        if not equals or group != "task" or setting not in values:
            hint = did_you_mean(setting or group, list(SETTINGS))
            raise NextwordError(
                f"--set {change}: with --task there are task.rule, task.drawn (item, once) and task.long (slide, "
                f"error).{hint}"
            )
        values[setting] = value.strip().strip('"')
    return values


def show_tasks(found: Any) -> None:
    asked = f"{found.count:,}" + (f" of {found.of:,}" if found.count < found.of else "")
    console.print(f"\n[bold]{escape(found.task)}[/]  {escape(found.title)}")
    times = 100 if found.metric in PERCENT else 1
    cells = [
        f"{found.value * times:.2f}",
        f"{found.low * times:.2f}–{found.high * times:.2f}",
        " · ".join(f"{name} {value * times:.2f}" for name, value in found.baselines.items()) or "–",
        f"{found.shots}" + (f" ({found.drawn})" if found.shots else ""),
        f"{found.split}: {asked}",
        f"{found.seconds:.1f}",
    ]
    heads = [found.metric + (" %" if times == 100 else ""), "95 %", "without a model", "shots", "questions", "seconds"]
    if found.perplexity is not None:
        heads.insert(2, "word ppl")
        cells.insert(2, number(found.perplexity, 2))
    table(heads, [cells])
    for note in _notes(found):
        console.print(f"[dim]· {escape(note)}[/]", soft_wrap=True)


def _notes(found: Any) -> list[str]:
    notes = [f"rule {found.rule}; seed {found.seed}", *found.notes]
    if found.shots:
        notes.append(f"shots from the split {found.shots_from}, none of them among the questions")
    if found.dropped:
        notes.append(
            f"{found.dropped:,} shots in {found.shortened:,} prompts fell away: the window is {found.window:,} tokens"
        )
    if found.slid:
        notes.append(f"{found.slid:,} questions are longer than the window of {found.window:,}: it moved on over them")
    if found.unknown:
        notes.append(f"{found.unknown:,} questions have a word outside the vocabulary in what is to follow")
    if found.ties:
        notes.append(f"{found.ties:,} questions with equal choices were decided by lot")
    for one in found.published:
        notes.append(f"{one['model']}, {one['shots']} shots: {one['value'] * 100:.1f} ({one['source']})")
    return notes


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
