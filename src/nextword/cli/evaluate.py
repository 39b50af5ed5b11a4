"""`nextword evaluate`: how well a run predicts a text, or does a task that is put in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nextword.cli.beams import beam_of
from nextword.cli.console import console, emit_json, progress_bar, read_lines, say_columns
from nextword.cli.options import Device, Json, Quiet
from nextword.infinity import number


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
    from nextword.contract_errors import NextwordError

    if tasks:
        from nextword.cli.tasks import list_tasks

        list_tasks(json)
        return
    if not run:
        raise NextwordError("Which run? Give its folder: nextword evaluate RUN. `nextword runs` lists those here.")
    if task:
        if context or stride or lines or cache or dynamic:
            raise NextwordError(
                "--task asks questions; --context, --stride, --lines, --cache and --dynamic are for texts."
            )
        from nextword.cli.tasks import run_task

        run_task(run, task, shots, limit, seed, split, data, set_ or [], device, json, quiet)
        return
    if shots:
        raise NextwordError("--shots go with --task NAME; `nextword evaluate --tasks` lists the names.")
    from nextword.checkpoint import RunFolder
    from nextword.cli.results import measure_likelihood, show_likelihood
    from nextword.corpora import open_corpus, open_whole
    from nextword.loading_lm import load

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
    result = measure_likelihood(lm, folder, corpus, split, context or None, stride or None, quiet, method, limit or None)
    if against:
        from nextword.cli.cleaning import score_against, show_apart

        result["against"] = score_against(lm, corpus, split, against, quiet)
    if json:
        emit_json(result)
        return
    show_likelihood(result)
    if against:
        show_apart(result["against"])


def _translate(lm: Any, folder: Any, data: str, split: str, beam: Any, limit: int, json: bool, quiet: bool) -> None:
    """What the run makes of sources, judged as translations, as summaries, or task by task."""
    from nextword.cli.translations import measure_translations, show_translations
    from nextword.contract import Greedy
    from nextword.contract_errors import NextwordError
    from nextword.corpora import open_parallel
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
    from nextword.contract import EXACT
    from nextword.contract_errors import NextwordError, Unsupported

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
    from nextword.contract_errors import NextwordError

    if changes and not (cache or dynamic):
        raise NextwordError("--set goes with --cache or --dynamic: it changes their settings.")
    if not (cache or dynamic):
        return None, None  # and nothing need be imported
    from nextword.evaluation.methods import settings

    return settings(changes, cache, dynamic)


def _method(lm: Any, folder: Any, corpus: Any, chosen: tuple[Any, Any], quiet: bool) -> Any:
    """The method with its settings: what is open is found on the text's own validation split, or the run's."""
    from nextword.batching.prepare import prepare
    from nextword.contract_errors import NextwordError
    from nextword.corpora import open_corpus
    from nextword.evaluation.methods import Texts, prepare_method

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
    from nextword.contract import PSEUDO
    from nextword.contract_errors import NextwordError
    from nextword.loading_lm import load

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
