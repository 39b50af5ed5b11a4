"""`nextword generate`: continue prompts, translate sources, or fill blanks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextword.cli.console import Device, Json, Precision, Run, emit_json, print_warnings, read_lines

if TYPE_CHECKING:
    from nextword.core.types import Beam, Decoding, Piece, Stop
    from nextword.lm.base import TextModel

BEAM_KEYS = ("length_penalty", "normalization", "coverage", "groups", "diversity")
BEAM_HELP = "beam.length_penalty, .normalization (power, gnmt), .coverage, .groups, .diversity"
DEFAULT_TEMPERATURE = 0.8
DEFAULT_LENGTH = 100  # tokens
BATCH_SIZE = 64  # prompts of a file that are generated together, before they are printed


def generate(
    run: Run,
    prompt: Annotated[str, typer.Argument(help="Text to continue, or source to translate.", show_default=False)] = "",
    file: Annotated[Path | None, typer.Option("--file", help="Read one prompt per line from this file.")] = None,
    length: Annotated[
        int | None,
        typer.Option("--max-tokens", help="Maximum number of tokens. Default: 100; translations: twice the source."),
    ] = None,
    min_length: Annotated[int, typer.Option("--min-tokens", help="Minimum number of tokens.")] = 0,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", help="Sampling temperature; 0: greedy. Default: 0.8; translations: 0."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", help="Sample from the k most probable tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", help="Nucleus sampling with this probability mass.")] = 1.0,
    typical: Annotated[
        float, typer.Option("--typical-p", help="Locally typical sampling with this probability mass.")
    ] = 1.0,
    contrastive: Annotated[
        float | None,
        typer.Option("--contrastive", help="Contrastive search with this alpha, among --top-k tokens (4)."),
    ] = None,
    beam: Annotated[int | None, typer.Option("--beam", help="Beam search of this width instead of sampling.")] = None,
    n_best: Annotated[int | None, typer.Option("--n-best", help="With --beam: show the n best, with scores.")] = None,
    repetition: Annotated[
        float, typer.Option("--repetition-penalty", help="Penalty on tokens already generated; 1: none.")
    ] = 1.0,
    no_repeat: Annotated[
        int, typer.Option("--no-repeat-ngram", help="Never generate an n-gram of this size twice; 0: off.")
    ] = 0,
    bias: Annotated[
        list[str] | None,
        typer.Option("--bias", help="TOKEN=VALUE, added to its logit; -inf bans it. Repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed for sampling.")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="Stop before this string. Repeatable.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help=f"With --beam: {BEAM_HELP}.")
    ] = None,
    overflow: Annotated[
        str, typer.Option("--overflow", help="For prompts longer than the window: slide (default) or error.")
    ] = "slide",
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Stream a continuation of the prompt.

    A sequence-to-sequence model generates a target from the prompt as its source. A model that was trained to fill
    blanks replaces ___ by a few tokens; GLM also \\[sMASK] by sentences and \\[gMASK] by the rest of a text.

    [dim]Examples[/]
      nextword generate runs/lstm-tiny "In the beginning" --max-tokens 60
      nextword generate runs/lstm-tiny --temperature 0 --stop "."
      nextword generate runs/lstm-tiny "The" --contrastive 0.6 --top-k 5
      nextword generate runs/lstm-tiny "The" --typical-p 0.95 --min-tokens 20 --bias "e=-inf"
      nextword generate runs/lstm-tiny --file prompts.txt --beam 5 --json
      nextword generate runs/lstm-tiny "The" --beam 6 --n-best 3 --set beam.length_penalty=0.6
      nextword generate runs/seq2seq-tiny --file source.txt --beam 5 > translated.txt
      nextword generate runs/glm-tiny "The ___ of the ___ is returned." --beam 4

    In --stop and --bias, \\n is a line end. A token of --bias is its text, including spaces, or id:NUMBER.
    With --file, prompt number i is sampled with seed + i.
    """
    from nextword.core.errors import InvalidSetting, MissingFile
    from nextword.core.types import Beam, Contrastive, Greedy, Sample, Stop
    from nextword.evaluation.translation import max_target_length
    from nextword.lm.loading import load

    sampling = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p != 1, "--seed": seed is not None}
    _check_options(sampling, typical, contrastive, beam, n_best)
    rules: dict[str, Any] = {"repetition": repetition, "no_repeat": no_repeat, "bias": _parse_biases(bias or ())}
    decoding: Decoding
    if (search := parse_beam(beam, changes or (), rules)) is not None:
        decoding = search
    elif contrastive is not None:
        decoding = Contrastive(top_k or Contrastive.k, contrastive, **rules)
    elif temperature == 0:
        decoding = Greedy(**rules)
    else:
        chosen = DEFAULT_TEMPERATURE if temperature is None else temperature
        decoding = Sample(chosen, top_k, top_p, seed, typical=typical, **rules)
    if file is not None and not file.is_file():
        raise MissingFile(f"There is no file {file}.", path=file)
    lm = load(run, device, precision)
    prompts = _read_prompts(lm, prompt, file)
    if contrastive is not None and lm.is_seq2seq:
        raise InvalidSetting("--contrastive is for language models. Use --beam or sampling.", key="contrastive")
    has_blanks = lm.can_infill and any(map(lm.count_blanks, prompts))
    is_default = temperature is None and typical == 1 and not any(sampling.values())
    if isinstance(decoding, Sample) and is_default and (has_blanks or lm.is_seq2seq):
        decoding = Greedy(**rules)  # translations and fillings should be right, not varied
    if length is None:
        length = max_target_length(lm, prompts) if lm.is_seq2seq else DEFAULT_LENGTH
    ending = Stop(length, tuple(map(_unescape, stop or ())), min_length=min_length)
    if has_blanks:
        results = _fill_blanks(lm, prompts, file, decoding, ending, n_best, overflow, json)
    elif isinstance(decoding, Beam) and n_best is not None:
        results = _generate_n_best(lm, prompts, decoding, ending, n_best, overflow, is_single=not file, json=json)
    elif not file:
        results = [_stream(lm, prompt, decoding, ending, overflow, json)]
    else:
        results = _generate_file(lm, prompts, decoding, ending, overflow, seed, json)
    if json:
        emit_json(results if file else results[0])


# ------------------------------------------------------------------------------------------------ options


def _check_options(
    sampling: Mapping[str, Any], typical: float, contrastive: float | None, beam: int | None, n_best: int | None
) -> None:
    """Refuse options that do not go together."""
    from nextword.core.errors import InvalidSetting

    if n_best is not None and beam is None:
        raise InvalidSetting("--n-best needs beam search. Add --beam WIDTH.", key="n_best", value=n_best)
    if contrastive is not None and beam is not None:
        raise InvalidSetting("--beam and --contrastive are two decoding methods. Choose one.", key="beam", value=beam)
    used = [name for name, value in sampling.items() if value]
    if beam is not None and used:
        raise InvalidSetting(
            f"--beam does not sample. Leave {', '.join(used)} out.", key=used[0].strip("-").replace("-", "_")
        )
    is_sampling = contrastive is None and beam is None and sampling["--temperature"] != 0
    if typical != 1 and not is_sampling:
        raise InvalidSetting("--typical-p is for sampling. Leave it out.", key="typical_p", value=typical)


def parse_beam(width: int | None, changes: Sequence[str], rules: Mapping[str, Any] | None = None) -> Beam | None:
    """The beam search of `--beam WIDTH --set beam.KEY=VALUE`; None without --beam. `rules` are further settings."""
    from nextword.core.errors import InvalidSetting, UnknownName, did_you_mean
    from nextword.core.types import Beam

    if width is None:
        if changes:
            raise InvalidSetting(f"--set {changes[0]} needs beam search. Add --beam WIDTH.", key="beam")
        return None
    if width < 1:
        raise InvalidSetting(f"--beam {width}: the width must be at least 1 (1: greedy).", key="beam", value=width)
    settings: dict[str, Any] = {}
    for change in changes:
        name, _, value = change.partition("=")
        key = name.strip().removeprefix("beam.").replace("-", "_")
        if not name.strip().startswith("beam.") or key not in BEAM_KEYS:
            raise UnknownName(
                f"--set {change}: expected beam.KEY=VALUE with KEY one of {', '.join(BEAM_KEYS)}."
                f"{did_you_mean(key, BEAM_KEYS)}",
                name=name.strip(),
                known=[f"beam.{known}" for known in BEAM_KEYS],
            )
        settings[key] = _parse_beam_value(key, value.strip(), change)
    if "normalization" in settings and not settings.get("length_penalty"):
        raise InvalidSetting("--set beam.normalization needs beam.length_penalty.", key="beam.normalization")
    if "diversity" in settings and "groups" not in settings:
        raise InvalidSetting("--set beam.diversity needs beam.groups=NUMBER.", key="beam.diversity")
    return Beam(width, **{**(rules or {}), **settings})


def _parse_beam_value(key: str, value: str, change: str) -> Any:
    from nextword.core.errors import InvalidSetting

    if key == "normalization":
        return value.strip("\"'")
    try:
        return int(value) if key == "groups" else float(value)
    except ValueError:
        expected = "a whole number" if key == "groups" else "a number"
        raise InvalidSetting(f"--set {change}: expected {expected}.", key=f"beam.{key}", value=value) from None


def _parse_biases(items: Sequence[str]) -> dict[int | str, float]:
    """TOKEN=VALUE pairs; the token itself may contain an equals sign."""
    from nextword.core.errors import InvalidSetting

    biases: dict[int | str, float] = {}
    for item in items:
        token, _, text = item.rpartition("=")
        try:
            value = float(text)
            key = int(token[3:]) if token.startswith("id:") else _unescape(token)
        except ValueError:
            key, value = "", 0.0
        if key == "":
            raise InvalidSetting(
                f"--bias {item}: expected TOKEN=VALUE, such as ' the=-2', '\\n=-inf' or id:17=3.",
                key="bias",
                value=item,
            )
        if key in biases:
            raise InvalidSetting(f"--bias has {token!r} twice. Give it once.", key="bias", value=item)
        biases[key] = value
    return biases


def _read_prompts(lm: TextModel, prompt: str, file: Path | None) -> list[str]:
    """The prompts; blank lines of a file are kept for sequence-to-sequence models, whose output keeps the lines."""
    from nextword.core.errors import DataError, InvalidSetting

    if file is None:
        if lm.is_seq2seq and not prompt.strip():
            raise InvalidSetting('Give a source: nextword generate RUN "TEXT".', key="prompt")
        return [prompt]
    prompts = read_lines(file, keep_blank=lm.is_seq2seq)
    if not any(line.strip() for line in prompts):
        raise DataError(f"{file} has no prompts.", path=file)
    return prompts


# ------------------------------------------------------------------------------------------------ generating


def _batches(prompts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    for start in range(0, len(prompts), BATCH_SIZE):
        yield start, prompts[start : start + BATCH_SIZE]


def _stream(lm: TextModel, prompt: str, decoding: Decoding, stop: Stop, overflow: str, json: bool) -> dict[str, Any]:
    """Generate from one prompt, printing as it goes."""
    pieces = []
    stream = lm.generate(prompt, decoding, stop, overflow)
    _warn_about_length(lm, [prompt])
    if not json and not lm.is_seq2seq:
        _write(prompt)
    for piece in stream:
        pieces.append(piece)
        if not json:
            _write(piece.text)
    if not json:
        _write("\n")
    return _generation_result(prompt, pieces)


def _generate_file(
    lm: TextModel,
    prompts: Sequence[str],
    decoding: Decoding,
    stop: Stop,
    overflow: str,
    seed: int | None,
    json: bool,
) -> list[dict[str, Any]]:
    """One line of output per prompt; an empty source gives an empty line."""
    from nextword.core.types import Sample

    results = []
    for start, batch in _batches(prompts):
        if isinstance(decoding, Sample) and seed is not None:
            decoding = replace(decoding, seed=(seed + start) % 2**63)
        filled = [prompt for prompt in batch if not lm.is_seq2seq or prompt.strip()]
        outputs = iter(lm.generate_many(filled, decoding, stop, overflow) if filled else ())
        _warn_about_length(lm, filled)
        for prompt in batch:
            is_empty = lm.is_seq2seq and not prompt.strip()
            results.append(_generation_result(prompt, [] if is_empty else next(outputs)))
            if not json:
                _write(("" if lm.is_seq2seq else prompt) + _escape_lines(results[-1]["text"]) + "\n")
    return results


def _generation_result(prompt: str, pieces: Sequence[Piece]) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "text": "".join(piece.text for piece in pieces),
        "tokens": sum(len(piece.ids) for piece in pieces),
        "nats": -sum(piece.log_prob for piece in pieces),
        "reason": pieces[-1].reason if pieces else "length",
    }


def _generate_n_best(
    lm: TextModel,
    prompts: Sequence[str],
    decoding: Beam,
    stop: Stop,
    n: int,
    overflow: str,
    *,
    is_single: bool,
    json: bool,
) -> list[dict[str, Any]]:
    """The n best of each prompt: one line with the score for each; with several prompts, after the prompt."""
    results: list[dict[str, Any]] = []
    for _, batch in _batches(prompts):
        filled = [prompt for prompt in batch if not lm.is_seq2seq or prompt.strip()]
        candidates = lm.n_best_many(filled, decoding, stop, n, overflow)
        _warn_about_length(lm, filled)
        for prompt, best in zip(filled, candidates, strict=True):
            ranked = [
                {
                    "rank": rank,
                    "text": candidate.text,
                    "score": candidate.score,
                    "nats": -candidate.log_prob,
                    "tokens": candidate.tokens,
                    "complete": candidate.complete,
                }
                for rank, candidate in enumerate(best, 1)
            ]
            results.append({"prompt": prompt, "best": ranked})
            if json:
                continue
            if not is_single:
                _write(_escape_lines(prompt) + "\n")
            for row in ranked:
                text = _escape_lines(("" if lm.is_seq2seq else prompt) + str(row["text"]))
                _write(f"{row['rank']}  {row['score']:.4f}  {text}{'' if row['complete'] else ' …'}\n")
    return results


# ------------------------------------------------------------------------------------------------ blanks


def _fill_blanks(
    lm: TextModel,
    prompts: Sequence[str],
    file: Path | None,
    decoding: Decoding,
    stop: Stop,
    n: int | None,
    overflow: str,
    json: bool,
) -> list[dict[str, Any]]:
    """Fill the blanks of each prompt, one line each; with --n-best, one line with the score for each."""
    if file is not None:
        _require_blanks(lm, prompts, file)
    if overflow == "error":
        _refuse_long_texts(lm, prompts)
    filled = [prompt for prompt in prompts if prompt.strip()]
    fillings = iter([best for _, batch in _batches(filled) for best in lm.infill_many(batch, decoding, stop, n or 1)])
    _warn_about_length(lm, filled)
    results: list[dict[str, Any]] = []
    for prompt in prompts:
        best = next(fillings) if prompt.strip() else []
        rows = [
            {
                "text": filling.text,
                "blanks": list(filling.blanks),
                "score": filling.score,
                "nats": -filling.log_prob,
                "tokens": filling.tokens,
                "complete": filling.complete,
            }
            for filling in best
        ]
        if n is None:
            results.append({"prompt": prompt, **(rows[0] if rows else {"text": ""})})
        else:
            results.append({"prompt": prompt, "best": rows})
        if not json:
            _print_fillings(prompt, rows, n, is_single=file is None)
    return results


def _print_fillings(prompt: str, rows: Sequence[Mapping[str, Any]], n: int | None, is_single: bool) -> None:
    if not rows:
        _write("\n")
    elif n is None:
        _write((rows[0]["text"] if is_single else _escape_lines(rows[0]["text"])) + "\n")
    else:
        if not is_single:
            _write(_escape_lines(prompt) + "\n")
        for rank, row in enumerate(rows, 1):
            cut = "" if row["complete"] else " …"
            _write(f"{rank}  {row['score']:.4f}  {_escape_lines(row['text'])}{cut}\n")


def _require_blanks(lm: TextModel, prompts: Sequence[str], file: Path) -> None:
    from nextword.core.errors import DataError

    for number, line in enumerate(read_lines(file, keep_blank=True), 1):
        if line.strip() and not lm.count_blanks(line):
            raise DataError(
                f"{file}, line {number}: {line[:40]!r} has no blank, but other lines do. Mark the place with ___, or "
                "use a separate file.",
                path=file,
                line=number,
            )


def _refuse_long_texts(lm: TextModel, prompts: Sequence[str]) -> None:
    from nextword.core.errors import DataError

    for prompt in prompts:
        if lm.num_unread(prompt) or _long_sources(lm, [prompt])[0]:
            raise DataError(
                f"The text {prompt[:30]!r}… is longer than the model's window, or than any text in training. Shorten "
                "it, or use --overflow slide."
            )


# ------------------------------------------------------------------------------------------------ output


def _long_sources(lm: TextModel, prompts: Sequence[str]) -> tuple[int, int]:
    """How many sources are longer than any in training, and how many tokens those had at most."""
    from nextword.lm.seq2seq import Seq2SeqLM

    return (lm.num_longer_than_training(prompts), lm.training_length) if isinstance(lm, Seq2SeqLM) else (0, 0)


def _warn_about_length(lm: TextModel, prompts: Sequence[str]) -> None:
    """Warn about prompts that do not fit the window, or sources that are longer than those in training."""
    warnings = []
    count, longest = _long_sources(lm, prompts)
    if count:
        subject = "the source is" if len(prompts) == 1 else f"{count:,} of {len(prompts):,} sources are"
        warnings.append(
            f"{subject} longer than any in training ({longest:,} tokens), so the result may be poor (--overflow error "
            "refuses such sources)"
        )
    for prompt in prompts:
        start = f"{prompt[:20]!r}…"
        if lm.can_infill and lm.count_blanks(prompt):
            if unread := lm.num_unread(prompt):
                warnings.append(
                    f"{start} is longer than the window of {lm.context:,} tokens: the {unread:,} tokens farthest from "
                    "the blank are not read"
                )
        elif beyond := lm.num_overflowing(prompt):
            warnings.append(
                f"{start} is longer than the window of {lm.context:,} tokens: its first {beyond:,} tokens are out of "
                "sight (--overflow error refuses such prompts)"
            )
    print_warnings(warnings)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _unescape(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _escape_lines(text: str) -> str:
    """The text on one line."""
    return text.replace("\r", "\\r").replace("\n", "\\n")
