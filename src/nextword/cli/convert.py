"""`nextword convert`: models from and for other programs, and from one layout to another."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Json, Quiet, console, emit_json, progress_bar


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A run folder, an ARPA file or word vectors, plain or packed, or a folder of Hugging Face or of ELMo.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A file to write (.arpa, .vec, .txt, also .gz, .xz, …), or a new folder: a run, or what --to says.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", help="arpa, huggingface, elmo, word2vec or glove. Default: as TARGET's name says.")
    ] = "",
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B=C",
            help="model.layout, model.bits, tokenizer.lower, arpa.convention; tokenizer.load, huggingface.dtype; "
            "vectors.digits.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a run of a model of another program, write a run for another program, or lay a run out anew.

    Nothing is overwritten. Folders of OpenAI GPT, GPT-2, BERT, RoBERTa, ALBERT, XLNet and T5 are read, tokenizer
    included, and written so that transformers opens them (from_pretrained). KenLM and SRILM both read the ARPA files;
    with arpa.convention=kenlm they are as lmplz's. ELMo is read and written as allenai published it (options.json,
    weights.hdf5).

    With model.bits=8 a run of a GPT or an AWD-LSTM, by itself or under the head of a task, becomes one in eight bits,
    which is smaller and reads faster on a CPU. It cannot be trained any more.

    In an ARPA file a word is itself, and a token of another kind is its bytes in GPT-2's letters (" the" is Ġthe). The
    unknown token is <unk>; the line or document end is <s> and </s>. A name that is taken gets # and its id (<s>#7).

    Vectors of words are written as gensim reads them (.vec, with a first line of counts) or as GloVe has them (.txt).

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
    from nextword import convert as weights

    with _Bars(quiet or json) as bars:
        made = weights.convert(source, target, changes or (), bars, to)
    if weights.is_run(made.target):
        from nextword.model_card import write_card
        from nextword.run_folder import RunFolder

        write_card(RunFolder.open(made.target))
    if json:
        shown = {key: value for key, value in asdict(made).items() if key not in ("facts", "use", "target")}
        emit_json({"source": source, "target": target, **shown, **made.facts})
        return
    from nextword.html.charts import size

    console.print(f"[green]✓[/] [bold]{escape(target)}[/] is {made.format} of {size(made.size)}", soft_wrap=True)
    console.print(_told(made.facts), soft_wrap=True)
    for note in made.notes:
        console.print(f"[dim]· {escape(note)}[/]", soft_wrap=True)
    console.print(f"\nTry it:  {escape(made.use)}", soft_wrap=True)


def _told(facts: dict[str, Any]) -> str:
    """What is in it, in a line: n-grams of each order, words, or parameters and sizes."""
    if "ngrams" in facts:
        counts = [f"{n:,} {k}-grams" for k, n in enumerate(facts["ngrams"], 1)]
        return f"order {facts['order']}: {' · '.join(counts)}"
    if "words" in facts:
        return f"{facts['words']:,} words · width {facts['width']:,}"
    sizes = [f"{name} {value:,}" for name, value in facts["model"].items() if type(value) is int]
    return " · ".join([f"{facts['parameters']:,} parameters", f"{facts['vocabulary']:,} tokens", *sizes])


class _Bars:
    """One bar after another: a new label is a new bar."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.label = quiet, ""
        self.shown = ExitStack()
        self.update: Any = None

    def __enter__(self) -> _Bars:
        return self

    def __exit__(self, *_: Any) -> None:
        self.shown.close()

    def __call__(self, label: str, done: float, total: float | None) -> None:
        if label != self.label:
            self.shown.close()
            self.label, self.update = label, self.shown.enter_context(progress_bar(label, total, self.quiet))
        self.update(done, total)
