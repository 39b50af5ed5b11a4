"""`nextword convert`: convert models between formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Json, Quiet, emit_json, print_line, print_notes, print_warnings


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
        typer.Option(
            "--to",
            help="Format: arpa, huggingface, elmo, word2vec or glove (default: from TARGET's name); bf16, int8 or "
            "int4: a run with rounded weights.",
        ),
    ] = "",
    tokenizer: Annotated[
        str,
        typer.Option(
            "--tokenizer", metavar="PATH", help="Run or tokenizer file for an ARPA file of subwords or an HF folder."
        ),
    ] = "",
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set model.layout, model.bits, tokenizer.lower, arpa.convention, huggingface.dtype, vectors.digits.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert a run to another format, or another format to a run. Nothing is overwritten.

    Hugging Face: folders of OpenAI GPT, GPT-2, BERT, RoBERTa, ALBERT, XLNet and T5, with their tokenizers.
    ARPA: n-gram models of KenLM and SRILM. ELMo: allenai's options.json and weights.hdf5.
    Word vectors: word2vec (.vec) and GloVe (.txt) text files.

    --to bf16 and --to int8 round the weights of a run, for a smaller file. Reading restores float32, so the run can
    still be trained. --to int4 stores the differences from the starter model that the run was trained from.

    model.bits=8 quantizes a GPT or an AWD-LSTM to int8: smaller and faster on a CPU, but no longer trainable.

    [dim]Examples[/]
      nextword convert downloads/gpt2 runs/gpt2
      nextword convert runs/gpt2-small my-gpt2 --to huggingface
      nextword convert runs/gpt2-small my-gpt2 --to huggingface --set huggingface.dtype=bfloat16
      nextword convert kn5.arpa.gz runs/kn5
      nextword convert bpe.arpa runs/bpe --tokenizer spm.model
      nextword convert lower.arpa runs/lower --set tokenizer.lower=true
      nextword convert runs/ngram-kn5 kn5.arpa
      nextword convert runs/ngram-kn5 runs/small --set model.layout=compact --set model.bits=8
      nextword convert runs/stars runs/stars-small --set model.bits=8
      nextword convert runs/bert runs/bert-small --to int8
      nextword convert downloads/elmo runs/elmo
      nextword convert glove.6B.100d.txt runs/glove-6b
      nextword convert runs/word2vec-tiny mine.vec.gz
    """
    import nextword

    result = nextword.convert(
        source, target, changes=changes or (), to=to, tokenizer=tokenizer, progress=not (quiet or json)
    )
    if json:
        values = {key: value for key, value in asdict(result).items() if key not in ("facts", "use", "target")}
        emit_json({"source": source, "target": target, **values, **result.facts})
        return
    from nextword.html.formatting import format_size

    print_line(f"[green]✓[/] wrote [bold]{escape(target)}[/]: {result.format}, {format_size(result.size)}")
    print_line(_describe_content(result.facts))
    print_notes(result.notes)
    print_warnings(result.warnings)
    print_line(f"\nTry it:  {escape(result.use)}")


def _describe_content(facts: Mapping[str, Any]) -> str:
    """One line: n-grams of each order, words, or parameters and sizes."""
    if "ngrams" in facts:
        counts = [f"{count:,} {order}-grams" for order, count in enumerate(facts["ngrams"], 1)]
        return f"order {facts['order']}: {' · '.join(counts)}"
    if "words" in facts:
        return f"{facts['words']:,} words · vector size {facts['width']:,}"
    sizes = [f"{name} {value:,}" for name, value in facts["model"].items() if type(value) is int]
    return " · ".join([f"{facts['parameters']:,} parameters", f"{facts['vocabulary']:,} tokens", *sizes])
