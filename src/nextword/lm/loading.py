"""loading_lm."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Encoder, Infilling, Tokenizer
from nextword.lm.causal import BackwardLM, Causal
from nextword.lm.masked import MaskedLM
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.lm.word_vectors import WordVectorModel
from nextword.models import model_class
from nextword.run_folder import RunFolder
from nextword.tokenizers import vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import choose_device, quantize


def load(folder: str | Path, device: str = "auto", precision: str = "fp32") -> Causal | MaskedLM | Seq2SeqLM:
    """Open a run folder: its files are checked, its weights loaded ("fp32", "bf16" or "int8"), and it is ready to use.

    Of a run that was transferred to a task it is a `Classifier`, for tags a `WordTagger`, for answers out of passages
    an `Answerer`, of labels in context an `InContext`: they predict, and model no text. Of one that gives words vectors
    and no probabilities it is a `Vectored`.
    """
    from nextword.tasks.classification import open_classifier
    from nextword.tasks.in_context import open_prompted
    from nextword.tasks.label_text import open_writer
    from nextword.tasks.question_answering import open_answerer
    from nextword.tasks.settings import PROMPT, WORDS
    from nextword.tasks.tagging import open_tagger

    run = RunFolder.open(folder)
    if not run.manifest.get("files", {}).keys() - {"recipe.toml", "tokenizer.json"}:
        command = "train" if run.recipe.task is None else "transfer"
        raise NextwordError(
            f"{folder} has no trained weights yet. Go on training with `nextword {command} --resume --out {folder}`."
        )
    run.verify()
    recipe = run.recipe
    if recipe.task is not None and recipe.task.get("classifier") == PROMPT:
        return cast(Any, open_prompted(run, _of_text(run, device, precision)))
    if recipe.task is not None and recipe.task.get("kind") == "tag":
        return cast(Any, open_tagger(run, choose_device(device), precision, load))
    if recipe.task is not None and recipe.task.get("kind") == "span":
        return cast(Any, open_answerer(run, choose_device(device), precision))
    if recipe.task is not None and recipe.task.get("classifier") == WORDS:
        return cast(Any, open_writer(run, choose_device(device), precision))
    if recipe.task is not None:
        return cast(Any, open_classifier(run, choose_device(device), precision))
    return _of_text(run, device, precision)


def _of_text(run: RunFolder, device: str, precision: str) -> Causal | MaskedLM | Seq2SeqLM:
    """The language model of a run whose files have been checked."""
    recipe = run.recipe
    cls = model_class(recipe.slug)
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    network = cls.load(run.path, cls.Config(**recipe.model), vocabulary(tokenizer, spellings=True))
    longest = max((int(phase.batches.get("length", 0)) for phase in recipe.phases), default=0)
    network = quantize(network, precision).to(choose_device(device))
    return of_network(network, tokenizer, name=str(run.path), longest=longest)


def of_network(network: Any, tokenizer: Tokenizer, name: str = "", longest: int = 0) -> Causal | MaskedLM | Seq2SeqLM:
    """`longest`: tokens in the longest text that the network was trained on, where that is known."""
    if getattr(network, "is_conditional", False):
        return Seq2SeqLM(network, tokenizer, name)
    if isinstance(network, Autoregressive):
        return (BackwardLM if getattr(network, "is_backward", False) else Causal)(network, tokenizer, name)
    if isinstance(network, Infilling) and isinstance(network, Encoder):
        return MaskedLM(network, tokenizer, name, longest)
    if isinstance(network, Encoder):
        return cast(Any, WordVectorModel(network, tokenizer, name))
    raise Unsupported(f"{type(network).__name__} models no plain text by itself, so it cannot be used this way.")
