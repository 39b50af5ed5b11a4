"""loading_lm."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from nextword.answering import open_answerer
from nextword.checkpoint import RunFolder
from nextword.conditional import Conditional
from nextword.contract_errors import NextwordError, Unsupported
from nextword.contract_protocols import Autoregressive, Encoder, Infilling, Tokenizer
from nextword.heads.settings import PROMPT
from nextword.heads.worded import WORDS
from nextword.infilling import TwoSided
from nextword.labelling import open_writer
from nextword.language_model import Causal, FromTheEnd
from nextword.models import model_class
from nextword.predicting import open_classifier
from nextword.prompting import open_prompted
from nextword.tagging import open_tagger
from nextword.tokens import load_tokenizer, vocabulary
from nextword.training.scale import choose_device, narrowed
from nextword.vectored import Vectored


def load(folder: str | Path, device: str = "auto", precision: str = "fp32") -> Causal | TwoSided | Conditional:
    """Open a run folder: its files are checked, its weights loaded ("fp32", "bf16" or "int8"), and it is ready to use.

    Of a run that was transferred to a task it is a `Classifier`, for tags a `WordTagger`, for answers out of passages
    an `Answerer`, of labels in context an `InContext`: they predict, and model no text. Of one that gives words vectors
    and no probabilities it is a `Vectored`.
    """
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


def _of_text(run: RunFolder, device: str, precision: str) -> Causal | TwoSided | Conditional:
    """The language model of a run whose files have been checked."""
    recipe = run.recipe
    cls = model_class(recipe.slug)
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    network = cls.load(run.path, cls.Config(**recipe.model), vocabulary(tokenizer, spellings=True))
    longest = max((int(phase.batches.get("length", 0)) for phase in recipe.phases), default=0)
    network = narrowed(network, precision).to(choose_device(device))
    return of_network(network, tokenizer, name=str(run.path), longest=longest)


def of_network(network: Any, tokenizer: Tokenizer, name: str = "", longest: int = 0) -> Causal | TwoSided | Conditional:
    """`longest`: tokens in the longest text that the network was trained on, where that is known."""
    if getattr(network, "conditional", False):
        return Conditional(network, tokenizer, name)
    if isinstance(network, Autoregressive):
        return (FromTheEnd if getattr(network, "from_the_end", False) else Causal)(network, tokenizer, name)
    if isinstance(network, Infilling) and isinstance(network, Encoder):
        return TwoSided(network, tokenizer, name, longest)
    if isinstance(network, Encoder):
        return cast(Any, Vectored(network, tokenizer, name))
    raise Unsupported(f"{type(network).__name__} models no plain text by itself, so it cannot be used this way.")
