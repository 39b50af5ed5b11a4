"""Load a run folder as a text-level model.

A fine-tuned run is opened by its task (tasks.TASKS). Which class a language model gets follows from what its network
can do (core/protocols.py), never from its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nextword.core.errors import RunError, Unsupported
from nextword.core.protocols import Autoregressive, Encoder, Infilling
from nextword.lm.base import TextModel
from nextword.lm.causal import BackwardLM, CausalLM
from nextword.lm.embedding import WordVectorModel
from nextword.lm.masked import MaskedLM
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.models import model_class
from nextword.models.base import Network
from nextword.recipe import network_config
from nextword.run_folder import RunFolder, explain_read_errors
from nextword.tasks import parse_task
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import choose_device, quantize


def load(folder: str | Path, device: str = "auto", precision: str = "fp32") -> Any:
    """Open a run folder: verify its files and load its weights in a precision ("fp32", "bf16" or "int8").

    The class follows from the network: `CausalLM`, `MaskedLM`, `Seq2SeqLM` or `WordVectorModel`. A run of a task is
    opened by its task (nextword.tasks): it predicts, and does not model text.
    """
    run = RunFolder.open(folder)
    with explain_read_errors(run.path):
        return _load(run, device, precision)


def _load(run: RunFolder, device: str, precision: str) -> Any:
    recipe, folder = run.recipe, run.name
    if not run.has_model:
        command = "train" if recipe.task is None else "transfer"
        raise RunError(
            f"{folder} has no trained weights yet. Resume it: nextword {command} --resume --out {folder}", path=folder
        )
    run.verify()
    if recipe.task is not None:
        return parse_task(recipe.task, str(folder)).open(run, choose_device(device), precision)
    return load_language_model(run, device, precision)


def load_language_model(run: RunFolder, device: str = "auto", precision: str = "fp32") -> TextModel:
    """The language model in a run folder whose files have been verified."""
    recipe = run.recipe
    cls = model_class(recipe.slug)
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    network = cls.load(run.path, network_config(recipe), vocabulary(tokenizer, spellings=True))
    return wrap_run(quantize(network, precision).to(choose_device(device)), tokenizer, run)


def wrap_run(network: Network, tokenizer: Tokenizer, run: RunFolder) -> TextModel:
    """The text-level model for the network of a run."""
    recipe = run.recipe
    lacks_readout = "readout" in run.manifest.get("converted", {}).get("initialized", ())  # it has random weights
    is_contrastive = any(phase.objective["kind"] == "contrastive" for phase in recipe.phases[-1:])
    if lacks_readout or is_contrastive:  # training for vectors leaves the output layer behind
        network.has_output_layer = False
    longest = max((int(phase.batches.get("length", 0)) for phase in recipe.phases), default=0)
    return wrap_network(network, tokenizer, name=run.name, longest=longest)


def wrap_network(network: Network, tokenizer: Tokenizer, name: str = "", longest: int = 0) -> TextModel:
    """The text-level model for a network. `longest`: tokens of the longest training text, if known."""
    if network.is_conditional:
        return Seq2SeqLM(network, tokenizer, name)
    is_backward: bool = network.is_backward
    if isinstance(network, Autoregressive):
        return (BackwardLM if is_backward else CausalLM)(network, tokenizer, name)
    if isinstance(network, Infilling) and isinstance(network, Encoder):
        return MaskedLM(network, tokenizer, name, longest)
    if isinstance(network, Encoder):
        return WordVectorModel(network, tokenizer, name)
    raise Unsupported(
        f"{type(network).__name__} models no plain text, so it only works with a task head.", ability="score"
    )
