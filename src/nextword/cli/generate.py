"""`nextword generate`: continue prompts, translate sources, or fill blanks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextword.cli.console import (
    Device,
    Json,
    Precision,
    Run,
    emit_json,
    parse_settings,
    print_warnings,
    read_lines,
    refuse_options,
    write_text,
)

if TYPE_CHECKING:
    from nextword.core.types import Beam, Decoding, Piece, Stop
    from nextword.generation.infilling import Filled
    from nextword.lm.base import Candidate, TextModel

BEAM_SETTINGS = {"length_penalty": float, "normalization": str, "coverage": float, "groups": int, "diversity": float}
DEFAULT_TEMPERATURE = 0.8
DEFAULT_LENGTH = 100  # tokens
BATCH_SIZE = 64  # prompts of a file that are generated together, before they are printed

Result = dict[str, object]  # as in the output of --json


def generate(
    run: Run,
    prompt: Annotated[
        str, typer.Argument(metavar="[PROMPT]", help="Text to continue, or source to translate.", show_default=False)
    ] = "",
    file: Annotated[Path | None, typer.Option("--file", help="Read one prompt per line from this file.")] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", help="Maximum number of new tokens. Default: 100; translations: 2 × the source."),
    ] = None,
    min_tokens: Annotated[int, typer.Option("--min-tokens", help="Minimum number of new tokens.")] = 0,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", help="Sampling temperature; 0: greedy. Default: 0.8; translations: 0."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", help="Sample from the k most probable tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", help="Nucleus sampling with this probability mass.")] = 1.0,
    typical_p: Annotated[
        float, typer.Option("--typical-p", help="Locally typical sampling with this probability mass.")
    ] = 1.0,
    contrastive: Annotated[
        float | None,
        typer.Option("--contrastive", metavar="ALPHA", help="Contrastive search among --top-k tokens (default: 4)."),
    ] = None,
    beam: Annotated[
        int | None, typer.Option("--beam", metavar="WIDTH", help="Beam search instead of sampling.", min=1)
    ] = None,
    n_best: Annotated[int | None, typer.Option("--n-best", help="With --beam: show the n best, with scores.")] = None,
    repetition_penalty: Annotated[
        float, typer.Option("--repetition-penalty", help="Penalty on tokens already generated; 1: none.")
    ] = 1.0,
    no_repeat_ngram: Annotated[
        int, typer.Option("--no-repeat-ngram", help="Never generate an n-gram of this size twice; 0: off.")
    ] = 0,
    bias: Annotated[
        list[str] | None,
        typer.Option("--bias", metavar="TOKEN=VALUE", help="Add VALUE to a token's logit; -inf bans it. Repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed for sampling.")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="Stop before this string. Repeatable.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help=f"With --beam: beam.{', beam.'.join(BEAM_SETTINGS)}."),
    ] = None,
    overflow: Annotated[
        str, typer.Option("--overflow", help="Prompts longer than the context window: slide (truncate) or error.")
    ] = "slide",
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Stream a continuation of the prompt.

    A sequence-to-sequence model generates a target from the prompt as its source. A model that was trained to fill
    blanks replaces ___ by a few tokens; GLM also \\[sMASK] by sentences and \\[gMASK] by the rest of a text.

    In --stop and --bias, \\n is a line end. A token of --bias is its text, including spaces, or id:NUMBER. With --file,
    prompt number i is sampled with seed + i.

    [dim]Examples[/]
      nextword generate runs/lstm-tiny "In the beginning" --max-tokens 60
      nextword generate runs/lstm-tiny --temperature 0 --stop "."
      nextword generate runs/lstm-tiny "The" --contrastive 0.6 --top-k 5
      nextword generate runs/lstm-tiny "The" --typical-p 0.95 --bias "e=-inf"
      nextword generate runs/lstm-tiny --file prompts.txt --beam 5 --json
      nextword generate runs/lstm-tiny "The" --beam 6 --n-best 3 --set beam.length_penalty=0.6
      nextword generate runs/seq2seq-tiny --file source.txt --beam 5 > translated.txt
      nextword generate runs/glm-tiny "The ___ of the ___ is returned." --beam 4
    """
    from nextword.core.errors import InvalidSetting, MissingFile
    from nextword.core.types import Beam, Contrastive, Greedy, Sample, Stop
    from nextword.evaluation.seq2seq import max_target_length
    from nextword.lm.loading import load

    sampling = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p != 1, "--seed": seed is not None}
    _check_methods(sampling, typical_p, contrastive, beam, n_best)
    rules: dict[str, Any] = {"repetition": repetition_penalty, "no_repeat": no_repeat_ngram}
    rules["bias"] = _parse_biases(bias or ())
    decoding: Decoding
    if (search := parse_beam(beam, changes or ())) is not None:
        decoding = replace(search, **rules)
    elif contrastive is not None:
        decoding = Contrastive(top_k or Contrastive.k, contrastive, **rules)
    elif temperature == 0:
        decoding = Greedy(**rules)
    else:
        chosen = DEFAULT_TEMPERATURE if temperature is None else temperature
        decoding = Sample(chosen, top_k, top_p, seed, typical=typical_p, **rules)
    if file is not None and not file.is_file():
        raise MissingFile(f"There is no file {file}. Give a file with one prompt per line.", path=file)
    lm = load(run, device, precision)
    prompts = _read_prompts(lm, prompt, file)
    if contrastive is not None and lm.is_seq2seq:
        raise InvalidSetting("--contrastive is for language models. Use --beam or sampling.", key="contrastive")
    has_blanks = lm.can_infill and any(map(lm.count_blanks, prompts))
    is_default = temperature is None and typical_p == 1 and not any(sampling.values())
    if isinstance(decoding, Sample) and is_default and (has_blanks or lm.is_seq2seq):
        decoding = Greedy(**rules)  # translations and fillings should be right, not varied
    if max_tokens is None:
        max_tokens = max_target_length(lm, prompts) if lm.is_seq2seq else DEFAULT_LENGTH
    ending = Stop(max_tokens, tuple(map(_unescape, stop or ())), min_tokens=min_tokens)
    if has_blanks:
        if file is not None:
            _require_blanks(lm, file)
        results = _fill_blanks(lm, prompts, decoding, ending, n_best, overflow)
    elif isinstance(decoding, Beam) and n_best is not None:
        results = _generate_n_best(lm, prompts, decoding, ending, n_best, overflow)
    elif file is not None:
        results = _generate_many(lm, prompts, decoding, ending, overflow)
    else:
        results = iter([_stream(lm, prompt, decoding, ending, overflow, json)])
    is_printed = json or not (has_blanks or file or n_best)
    collected = []
    for result in results:
        collected.append(result)
        if not is_printed:
            _print_result(result, with_prompt=not (has_blanks or lm.is_seq2seq), is_single=file is None)
    if json:
        emit_json(collected if file else collected[0])


# ------------------------------------------------------------------------------------------------ options


def _check_methods(
    sampling: Mapping[str, object], typical_p: float, contrastive: float | None, beam: int | None, n_best: int | None
) -> None:
    """Refuse options of different decoding methods."""
    from nextword.core.errors import InvalidSetting

    if n_best is not None and beam is None:
        raise InvalidSetting("--n-best needs beam search. Add --beam WIDTH.", key="n_best", value=n_best)
    if beam is not None:
        is_contrastive = {"--contrastive": contrastive is not None}
        refuse_options({**is_contrastive, **sampling}, "--beam searches instead of sampling.")
    if beam is not None or contrastive is not None or sampling["--temperature"] == 0:
        refuse_options({"--typical-p": typical_p != 1}, "--typical-p is for sampling.")


def parse_beam(width: int | None, changes: Sequence[str]) -> Beam | None:
    """The beam search of `--beam WIDTH --set beam.KEY=VALUE`; None without --beam."""
    from nextword.core.errors import InvalidSetting
    from nextword.core.types import Beam

    if width is None:
        if changes:
            raise InvalidSetting(f"--set {changes[0]} needs beam search. Add --beam WIDTH.", key="beam")
        return None
    settings = parse_settings(changes, "beam", BEAM_SETTINGS)
    for key, needed in (("normalization", "length_penalty"), ("diversity", "groups")):
        if key in settings and not settings.get(needed):
            raise InvalidSetting(f"--set beam.{key} has no effect without beam.{needed}.", key=f"beam.{key}")
    return Beam(width, **settings)


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
        raise DataError(f"{file} has no prompts. Give a file with one prompt per line.", path=file)
    return prompts


def _require_blanks(lm: TextModel, file: Path) -> None:
    from nextword.core.errors import DataError

    for number, line in enumerate(read_lines(file, keep_blank=True), 1):
        if line.strip() and not lm.count_blanks(line):
            raise DataError(
                f"{file}, line {number}: {line[:40]!r} has no blank, but other lines do. Mark the place with ___, or "
                "use a separate file.",
                path=file,
                line=number,
            )


# ------------------------------------------------------------------------------------------------ generating


def _batches(prompts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(prompts), BATCH_SIZE):
        yield prompts[start : start + BATCH_SIZE]


def _stream(lm: TextModel, prompt: str, decoding: Decoding, stop: Stop, overflow: str, json: bool) -> Result:
    """Generate from one prompt, printing as it goes."""
    pieces = []
    stream = lm.generate(prompt, decoding, stop, overflow)
    _warn_about_length(lm, [prompt])
    if not json and not lm.is_seq2seq:
        write_text(prompt)
    for piece in stream:
        pieces.append(piece)
        if not json:
            write_text(piece.text)
    if not json:
        write_text("\n")
    return _generation(prompt, pieces)


def _generate_many(
    lm: TextModel, prompts: Sequence[str], decoding: Decoding, stop: Stop, overflow: str
) -> Iterator[Result]:
    """One text per prompt; an empty source gives an empty text."""
    from nextword.core.types import Sample

    seed = decoding.seed if isinstance(decoding, Sample) else None
    for number, batch in enumerate(_batches(prompts)):
        if isinstance(decoding, Sample) and seed is not None:
            decoding = replace(decoding, seed=(seed + number * BATCH_SIZE) % 2**63)
        filled = [prompt for prompt in batch if not lm.is_seq2seq or prompt.strip()]
        outputs = iter(lm.generate_many(filled, decoding, stop, overflow) if filled else ())
        _warn_about_length(lm, filled)
        for prompt in batch:
            is_empty = lm.is_seq2seq and not prompt.strip()
            yield _generation(prompt, [] if is_empty else next(outputs))


def _generation(prompt: str, pieces: Sequence[Piece]) -> Result:
    return {
        "prompt": prompt,
        "text": "".join(piece.text for piece in pieces),
        "tokens": sum(len(piece.ids) for piece in pieces),
        "nats": -sum(piece.log_prob for piece in pieces),
        "reason": pieces[-1].reason if pieces else "length",
    }


def _generate_n_best(
    lm: TextModel, prompts: Sequence[str], decoding: Beam, stop: Stop, n: int, overflow: str
) -> Iterator[Result]:
    """The n best texts of each prompt."""
    for batch in _batches(prompts):
        filled = [prompt for prompt in batch if not lm.is_seq2seq or prompt.strip()]
        candidates = lm.n_best_many(filled, decoding, stop, n, overflow)
        _warn_about_length(lm, filled)
        for prompt, best in zip(filled, candidates, strict=True):
            yield {"prompt": prompt, "best": [{"rank": i, **_candidate(c)} for i, c in enumerate(best, 1)]}


def _fill_blanks(
    lm: TextModel, prompts: Sequence[str], decoding: Decoding, stop: Stop, n: int | None, overflow: str
) -> Iterator[Result]:
    """Each prompt with its blanks filled: the best filling, or the n best."""
    if overflow == "error":
        _refuse_long_texts(lm, prompts)
    filled = [prompt for prompt in prompts if prompt.strip()]
    fillings = iter([best for batch in _batches(filled) for best in lm.infill_many(batch, decoding, stop, n or 1)])
    _warn_about_length(lm, filled)
    for prompt in prompts:
        rows = [_candidate(filling) for filling in (next(fillings) if prompt.strip() else ())]
        if n is not None:
            yield {"prompt": prompt, "best": [{"rank": i, **row} for i, row in enumerate(rows, 1)]}
        else:
            yield {"prompt": prompt, **(rows[0] if rows else {"text": ""})}


def _candidate(candidate: Candidate | Filled) -> Result:
    """A hypothesis of beam search, or a text with its blanks filled."""
    from nextword.lm.base import Candidate

    facts: Result = {name: getattr(candidate, name) for name in ("text", "score", "tokens", "complete")}
    facts["nats"] = -candidate.log_prob
    return facts if isinstance(candidate, Candidate) else {**facts, "blanks": list(candidate.blanks)}


def _refuse_long_texts(lm: TextModel, prompts: Sequence[str]) -> None:
    from nextword.core.errors import DataError

    for prompt in prompts:
        if lm.num_unread(prompt) or _long_sources(lm, [prompt])[0]:
            raise DataError(
                f"The text {prompt[:30]!r}… is longer than the model's window, or than any text in training. Shorten "
                "it, or use --overflow slide."
            )


# ------------------------------------------------------------------------------------------------ output


def _print_result(result: Mapping[str, object], with_prompt: bool, is_single: bool) -> None:
    """The prompt with its continuation, or the text alone, on one line; or one line with the score for each of the
    n best, after the prompt if there are several."""
    prompt, best = str(result["prompt"]), result.get("best")
    if not isinstance(best, list):
        text = str(result["text"])
        write_text((prompt if with_prompt else "") + (text if is_single else _escape_lines(text)) + "\n")
        return
    if not is_single:
        write_text(_escape_lines(prompt) + "\n")
    for row in best:
        text = _escape_lines((prompt if with_prompt else "") + row["text"])
        write_text(f"{row['rank']}  {row['score']:.4f}  {text}{'' if row['complete'] else ' …'}\n")


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
        start = f"{prompt[:20]!r}… is longer than the window" + (f" of {lm.context:,} tokens" if lm.context else "")
        if lm.can_infill and lm.count_blanks(prompt):
            if unread := lm.num_unread(prompt):
                warnings.append(f"{start}: the {unread:,} tokens farthest from the blank are not read")
        elif beyond := lm.num_overflowing(prompt):
            warnings.append(f"{start}: its first {beyond:,} tokens are not read (--overflow error refuses these)")
    print_warnings(warnings)


def _unescape(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _escape_lines(text: str) -> str:
    """The text on one line."""
    return text.replace("\r", "\\r").replace("\n", "\\n")
