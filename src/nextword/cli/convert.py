"""`nextword convert`: models from and for other programs, and from one layout to another."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Json, Quiet, console, emit_json, print_notes, progress_bars


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Run folder, ARPA file, word vectors, Hugging Face folder or ELMo folder.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="New file (.arpa, .vec or .txt, also compressed) or new folder: a run, or the format of --to.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str,
        typer.Option("--to", help="Format: arpa, huggingface, elmo, word2vec or glove. Default: from TARGET's name."),
    ] = "",
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B=C",
            help="Setting: model.layout, model.bits, tokenizer.lower, tokenizer.load, arpa.convention, "
            "huggingface.dtype, vectors.digits.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert a model of another program to a run, a run for another program, or a run to another layout.

    Nothing is overwritten. Hugging Face folders of OpenAI GPT, GPT-2, BERT, RoBERTa, ALBERT, XLNet and T5 are read with
    their tokenizer, and written so that transformers opens them with from_pretrained. KenLM and SRILM read the ARPA
    files; with arpa.convention=kenlm they are as lmplz writes them. ELMo folders are allenai's options.json and
    weights.hdf5.

    model.bits=8 quantizes a run of a GPT or an AWD-LSTM, with or without a task head, to int8: smaller and faster on a
    CPU, but no longer trainable.

    In an ARPA file, a word is written as it is; any other token is written as its bytes in GPT-2's letters (" the" is
    Ġthe). The unknown token is <unk>; the line or document end is <s> and </s>. A name that is taken gets # and its id
    (<s>#7).

    Word vectors are written in word2vec's text format (.vec, with a header) or GloVe's (.txt).

    [dim]Examples[/]
      nextword convert kn5.arpa.gz runs/kn5
      nextword convert runs/ngram-kn5 kn5.arpa
      nextword convert runs/ngram-kn5 runs/kn5-small --set model.layout=compact --set model.bits=8
      nextword convert runs/stars runs/stars-small --set model.bits=8
      nextword convert lower.arpa runs/lower --set tokenizer.lower=true
      nextword convert downloads/gpt2 runs/gpt2
      nextword convert runs/gpt2-small my-gpt2 --to huggingface
      nextword convert runs/gpt2-small my-gpt2 --to huggingface --set huggingface.dtype=bfloat16
      nextword convert downloads/elmo runs/elmo
      nextword convert glove.6B.100d.txt runs/glove-6b
      nextword convert runs/word2vec-tiny mine.vec.gz
    """
    import nextword

    with progress_bars(quiet or json) as on_progress:
        result = nextword.convert(source, target, changes=changes or (), to=to, on_progress=on_progress)
    if json:
        values = {key: value for key, value in asdict(result).items() if key not in ("facts", "use", "target")}
        emit_json({"source": source, "target": target, **values, **result.facts})
        return
    from nextword.html.formatting import format_size

    console.print(
        f"[green]✓[/] wrote [bold]{escape(target)}[/]: {result.format}, {format_size(result.size)}", soft_wrap=True
    )
    console.print(_describe_content(result.facts), soft_wrap=True)
    print_notes(result.notes)
    console.print(f"\nTry it:  {escape(result.use)}", soft_wrap=True)


def _describe_content(facts: dict[str, Any]) -> str:
    """One line: n-grams of each order, words, or parameters and sizes."""
    if "ngrams" in facts:
        counts = [f"{count:,} {order}-grams" for order, count in enumerate(facts["ngrams"], 1)]
        return f"order {facts['order']}: {' · '.join(counts)}"
    if "words" in facts:
        return f"{facts['words']:,} words · vector size {facts['width']:,}"
    sizes = [f"{name} {value:,}" for name, value in facts["model"].items() if type(value) is int]
    return " · ".join([f"{facts['parameters']:,} parameters", f"{facts['vocabulary']:,} tokens", *sizes])
