"""`nextword generate`: write on.

`--beam WIDTH --set beam.KEY=VALUE`: a beam from words, for every command that searches with one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Precision, Run, emit_json, err, read_lines

if TYPE_CHECKING:
    from nextword.core.types import Beam, Decoding, Piece, Stop

KEYS = ("length_penalty", "normalisation", "coverage", "groups", "diversity")
HELP = "beam.length_penalty, .normalisation (power, gnmt), .coverage, .groups, .diversity"


def beam_of(width: int | None, changes: Sequence[str], more: Mapping[str, Any]) -> Beam | None:
    """The beam that was asked for, with `more` settings; None if none was."""
    from nextword.core.errors import NextwordError, did_you_mean
    from nextword.core.types import Beam

    if width is None:
        if changes:
            raise NextwordError(f"--set {changes[0]}: this is for a beam, and none is asked for. Add --beam WIDTH.")
        return None
    if width < 1:
        raise NextwordError(f"--beam {width}: the width is {width}, and a beam holds at least one text (1: greedy).")
    given: dict[str, Any] = {}
    for change in changes:
        name, _, value = change.partition("=")
        key = name.strip().removeprefix("beam.").replace("-", "_")
        if not name.strip().startswith("beam.") or key not in KEYS:
            raise NextwordError(
                f"--set {change}: expected beam.KEY=VALUE.{did_you_mean(key, KEYS)} A beam has {', '.join(KEYS)}."
            )
        given[key] = _value(key, value.strip(), change)
    if "normalisation" in given and not given.get("length_penalty"):
        raise NextwordError(
            "--set beam.normalisation says how lengths are counted, and beam.length_penalty how much they count. Give "
            "both."
        )
    if "diversity" in given and "groups" not in given:
        raise NextwordError(
            "--set beam.diversity is between groups of hypotheses, and there is one. Add --set beam.groups=NUMBER."
        )
    return Beam(width, **{**more, **given})


def _value(key: str, value: str, change: str) -> Any:
    from nextword.core.errors import NextwordError

    if key == "normalisation":
        return value.strip("\"'")
    try:
        return int(value) if key == "groups" else float(value)
    except ValueError:
        raise NextwordError(f"--set {change}: expected a {'whole ' if key == 'groups' else ''}number.") from None


USUAL = 0.8  # temperature
LENGTH = 100  # tokens
AT_ONCE = 64  # prompts of a file that are written side by side; then they are shown


def generate(
    run: Run,
    prompt: Annotated[str, typer.Argument(help="Text to go on from.", show_default=False)] = "",
    file: Annotated[
        Path | None, typer.Option("--file", help="One prompt a line, from this file; one line of text for each.")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option("--length", help="Tokens at the most. Default: 100; of translations twice the longest source."),
    ] = None,
    min_length: Annotated[int, typer.Option("--min-length", help="Tokens before the text may end by itself.")] = 0,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", help="0: always the likeliest token. Default: 0.8; of translations 0."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", help="Draw from the k likeliest; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", help="Draw from the likeliest that hold this share.")] = 1.0,
    typical: Annotated[
        float, typer.Option("--typical", help="Draw from the most typical that hold this share; 1: from all.")
    ] = 1.0,
    contrastive: Annotated[
        float | None,
        typer.Option("--contrastive", help="Contrastive search with this alpha among the --top-k likeliest (4)."),
    ] = None,
    beam: Annotated[
        int | None, typer.Option("--beam", help="Beam search of this width instead of drawing; 1: greedy.")
    ] = None,
    n_best: Annotated[
        int | None, typer.Option("--n-best", help="With --beam: the n best, each with its score.")
    ] = None,
    repetition: Annotated[
        float, typer.Option("--repetition", help="Penalty on tokens already written; 1: none.")
    ] = 1.0,
    no_repeat: Annotated[int, typer.Option("--no-repeat", help="Never repeat an n-gram of this many tokens.")] = 0,
    bias: Annotated[
        list[str] | None,
        typer.Option("--bias", help="TOKEN=VALUE, added to its log-probability; -inf bans it; may be given often."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed writes the same text.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", help="Stop before this string; may be given often.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help=f"With --beam: {HELP}.")] = None,
    overflow: Annotated[
        str, typer.Option("--overflow", help="A prompt longer than the window: slide over it, or error.")
    ] = "slide",
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Write on from a prompt, shown as it is written.

    [dim]Examples[/]
      nextword generate runs/lstm-tiny "In the beginning" --length 60
      nextword generate runs/lstm-tiny --temperature 0 --stop "."
      nextword generate runs/lstm-tiny "The" --contrastive 0.6 --top-k 5
      nextword generate runs/lstm-tiny "The" --typical 0.95 --min-length 20 --bias "e=-inf"
      nextword generate runs/lstm-tiny --file prompts.txt --beam 5 --json
      nextword generate runs/lstm-tiny "The" --beam 6 --n-best 3 --set beam.length_penalty=0.6
      nextword generate runs/seq2seq-tiny --file source.txt --beam 5 > translated.txt
      nextword generate runs/glm-tiny "The ___ of the ___ is returned." --beam 4

    A model that was trained to fills blanks: ___ with a few tokens; GLM also \\[sMASK] with sentences, \\[gMASK] with
    more.
    Of a model that makes a text from a source, the prompt is the source.

    In --stop and --bias, \\n is the end of a line. A token of --bias is its text, spaces included, or id:NUMBER.
    With --file, prompts are drawn with the seed given, the next one, and so on.
    """
    from nextword.core.errors import NextwordError
    from nextword.core.types import Beam, Contrastive, Greedy, Sample, Stop
    from nextword.evaluation.translation import room_for
    from nextword.lm.loading import load

    if n_best is not None and beam is None:
        raise NextwordError("--n-best: this is for a beam, and none is asked for. Add --beam WIDTH.")
    if contrastive is not None and beam is not None:
        raise NextwordError("--beam and --contrastive are two ways to write. Give one of them.")
    if beam is not None and (temperature or top_k or top_p != 1 or seed is not None):
        raise NextwordError(
            "--temperature, --top-k, --top-p and --seed are for drawing, and a beam draws nothing. Leave them out."
        )
    if typical != 1 and (contrastive is not None or beam is not None or temperature == 0):
        raise NextwordError("--typical narrows what is drawn, but nothing is drawn here. Leave it out.")
    how: Decoding
    added = _biases(bias or ())
    searched = beam_of(beam, set_ or (), {"repetition": repetition, "no_repeat": no_repeat, "bias": added})
    if searched is not None:
        how = searched
    elif contrastive is not None:
        how = Contrastive(top_k or Contrastive.k, contrastive, repetition, no_repeat, added)
    elif temperature == 0:
        how = Greedy(repetition, no_repeat, added)
    else:
        drawn = USUAL if temperature is None else temperature
        how = Sample(drawn, top_k, top_p, seed, repetition, no_repeat, typical=typical, bias=added)
    if file is not None and not file.is_file():
        raise NextwordError(f"There is no file of prompts {file}.")
    lm: Any = load(run, device, precision)
    onward = getattr(lm, "goes_on", True)
    lines = dict(enumerate(read_lines(file, blank=True) if file else [prompt], 1))
    lines = {number: line for number, line in lines.items() if not file or not onward or line.strip()}
    prompts = list(lines.values())
    if not any(one.strip() for one in prompts) and (file or not onward):
        raise NextwordError(f"{file} has no prompt in it." if file else 'There is no source: generate RUN "TEXT".')
    if contrastive is not None and not onward:
        raise NextwordError("Contrastive search is for models that write on from a prompt. Use --beam, or draw.")
    if length is None:
        length = LENGTH if onward else room_for(lm, prompts)
    ending = Stop(length, tuple(map(_unescaped, stop or ())), least=min_length)
    plain = temperature is None and seed is None and not top_k and top_p == 1 and typical == 1
    blanks = getattr(lm, "writes_pieces", False) and any(map(lm.blanks, prompts))
    if (
        isinstance(how, Sample) and plain and (blanks or not onward)
    ):  # of a source, or in a blank, one wants what is right, not what varies
        how = Greedy(repetition, no_repeat, added)
    if blanks:
        for number, line in lines.items():
            if file and line.strip() and not lm.blanks(line):
                raise NextwordError(
                    f"{file}, line {number}: {line[:40]!r} has no blank, and other lines have. Write ___ where "
                    "something is missing, or give such lines in a file of their own."
                )
        if overflow == "error":
            _refuse_long(lm, prompts)
        _fill(lm, prompts, how, ending, n_best, alone=not file, json=json)
        return
    if isinstance(how, Beam) and n_best is not None:
        _rank(lm, prompts, how, ending, n_best, overflow, alone=not file, json=json)
        return
    if not file:
        pieces = []
        stream = lm.generate(prompt, how, ending, overflow)
        _note(lm, prompts)
        if not json and lm.goes_on:
            _show(prompt)
        for piece in stream:
            pieces.append(piece)
            if not json:
                _show(piece.text)
        if json:
            emit_json(_facts(prompt, pieces))
        else:
            _show("\n")
        return
    results = []
    for at in range(0, len(prompts), AT_ONCE):
        if isinstance(how, Sample) and seed is not None:
            how = replace(how, seed=(seed + at) % 2**63)
        some = prompts[at : at + AT_ONCE]
        asked = [one for one in some if onward or one.strip()]  # of nothing, nothing is made
        found = iter(lm.generate_many(asked, how, ending, overflow) if asked else ())
        _note(lm, asked)
        for one in some:
            results.append(_facts(one, next(found) if onward or one.strip() else []))
            if not json:
                _show((one if lm.goes_on else "") + _escaped(results[-1]["text"]) + "\n")
    if json:
        emit_json(results)


def _rank(
    lm: Any, prompts: Sequence[str], how: Beam, ending: Stop, n: int, overflow: str, *, alone: bool, json: bool
) -> None:
    """The n best of each prompt: a line with the score for each of them, after the prompt if there are several."""
    results: list[dict[str, Any]] = []
    for at in range(0, len(prompts), AT_ONCE):
        some = [one for one in prompts[at : at + AT_ONCE] if lm.goes_on or one.strip()]
        found = lm.n_best_many(some, how, ending, n, overflow)
        _note(lm, some)
        for prompt, candidates in zip(some, found, strict=True):
            ranked = [
                {
                    "rank": rank,
                    "text": one.text,
                    "score": one.score,
                    "nats": -one.log_prob,
                    "tokens": one.tokens,
                    "complete": one.complete,
                }
                for rank, one in enumerate(candidates, 1)
            ]
            results.append({"prompt": prompt, "best": ranked})
            if json:
                continue
            if not alone:
                _show(_escaped(prompt) + "\n")
            for one in ranked:
                cut = "" if one["complete"] else " …"
                text = (prompt if lm.goes_on else "") + one["text"]
                _show(f"{one['rank']}  {one['score']:.4f}  {_escaped(text)}{cut}\n")
    if json:
        emit_json(results[0] if alone else results)


def _fill(
    lm: Any, prompts: Sequence[str], how: Decoding, ending: Stop, n: int | None, *, alone: bool, json: bool
) -> None:
    """Prompts with their blanks filled, a line each; with --n-best a line with the score for each of them."""
    asked = [prompt for prompt in prompts if prompt.strip()]
    found = iter(
        [
            some
            for at in range(0, len(asked), AT_ONCE)
            for some in lm.infill_many(asked[at : at + AT_ONCE], how, ending, n or 1)
        ]
    )
    _note(lm, asked)
    results: list[dict[str, Any]] = []
    for prompt in prompts:
        if not prompt.strip():  # of nothing, nothing is made
            results.append({"prompt": prompt, "text": ""} if n is None else {"prompt": prompt, "best": []})
            if not json:
                _show("\n")
            continue
        fillings = next(found)
        best = [
            {
                "text": one.text,
                "blanks": list(one.blanks),
                "score": one.score,
                "nats": -one.log_prob,
                "tokens": one.tokens,
                "complete": one.complete,
            }
            for one in fillings
        ]
        results.append({"prompt": prompt, **(best[0] if n is None else {"best": best})})
        if json:
            continue
        if n is not None and not alone:
            _show(_escaped(prompt) + "\n")
        for rank, one in enumerate(fillings, 1):
            scored = "" if n is None else f"{rank}  {one.score:.4f}  "
            text = one.text if alone and n is None else _escaped(one.text)
            _show(f"{scored}{text}{'' if one.complete or n is None else ' …'}\n")
    if json:
        emit_json(results[0] if alone else results)


def _refuse_long(lm: Any, prompts: Sequence[str]) -> None:
    """What `generate` refuses of prompts, of texts with blanks."""
    from nextword.core.errors import NextwordError

    for prompt in prompts:
        if lm.unread(prompt) or (hasattr(lm, "past_training") and lm.past_training([prompt])):
            raise NextwordError(
                f"The text {prompt[:30]!r}… is longer than what this model reads at once, or was trained on. Shorten "
                "it: what stands far from the blanks can be left away."
            )


def _note(lm: Any, prompts: Sequence[str]) -> None:
    """Says so where a prompt has not fitted into the window, or a source is longer than any in training."""
    if past := lm.past_training(prompts) if hasattr(lm, "past_training") else 0:
        which = "the source is" if len(prompts) == 1 else f"{past:,} of {len(prompts):,} sources are"
        err.print(
            f"note: {which} longer than the {lm.longest:,} tokens that this run was trained on; all was read, but what "
            "comes of it may be poor (--overflow error refuses such sources)",
            soft_wrap=True,
        )
    for prompt in prompts:
        if getattr(lm, "writes_pieces", False) and lm.blanks(prompt):
            if gone := lm.unread(prompt):
                err.print(
                    f"note: {escape(repr(prompt[:20]))}… is longer than the window of {lm.context:,} tokens: {gone:,} "
                    "of its tokens, those farthest from the blank, were not read",
                    soft_wrap=True,
                )
        elif gone := lm.beyond(prompt):
            err.print(
                f"note: {escape(repr(prompt[:20]))}… is longer than the window of {lm.context:,} tokens: all of it was "
                f"read, but its first {gone:,} tokens are out of sight (--overflow error refuses such prompts)",
                soft_wrap=True,
            )


def _facts(prompt: str, pieces: Sequence[Piece]) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "text": "".join(piece.text for piece in pieces),
        "tokens": sum(len(piece.ids) for piece in pieces),
        "nats": -sum(piece.log_prob for piece in pieces),
        "reason": pieces[-1].reason if pieces else "length",
    }


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _biases(given: Sequence[str]) -> dict[int | str, float]:
    """TOKEN=VALUE, where the token may itself hold an equals sign."""
    from nextword.core.errors import NextwordError

    found: dict[int | str, float] = {}
    for one in given:
        token, _, value = one.rpartition("=")
        try:
            number = float(value)
            key = int(token[3:]) if token.startswith("id:") else _unescaped(token)
        except ValueError:
            key, number = "", 0.0
        if key == "":
            raise NextwordError(f"--bias {one}: expected TOKEN=VALUE, such as ' the=-2', '\\n=-inf' or id:17=3.")
        if key in found:
            raise NextwordError(f"--bias names {token!r} twice. Give it once.")
        found[key] = number
    return found


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _escaped(text: str) -> str:
    """On one line, whatever it says."""
    return text.replace("\r", "\\r").replace("\n", "\\n")
