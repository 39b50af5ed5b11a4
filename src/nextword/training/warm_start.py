"""Warm start: begin a phase with the weights of another run (`init_from = RUN` in a recipe).

If the two runs have different word vocabularies, the embedding and output layer are remapped word by word:

    its vocabulary    <unk> <eos> the film king          ours    <unk> <eos> the actor film
    its rows             0     1   2    3    4            take      0     1   2   mean    3

A word of both vocabularies keeps its vector; a new word begins with the mean of all vectors, and its bias with the mean
bias (Howard & Ruder 2018, after fastai). This only works for whole words: the same subword can mean quite different
things in two vocabularies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting, MissingFile, RunError, Unsupported, invalid
from nextword.core.protocols import Counting
from nextword.layers.output.mixture import MixtureOfSoftmaxes
from nextword.layers.output.sampled import SampledSoftmax
from nextword.layers.output.softmax import FullSoftmax, TiedSoftmax
from nextword.models import model_class
from nextword.models.base import Network
from nextword.models.framing import resize_embeddings
from nextword.recipe import Phase, Recipe, network_config, recipe_names
from nextword.run_folder import RunFolder, is_run
from nextword.tokenizers import fingerprint, vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.events import Job
from nextword.training.noise import add_noise

NEW = -1  # the row of a word that the other vocabulary lacks
PROPOSAL = "readout.proposal."  # tensors of sampled softmax that come from the new training text
MAX_NAMED = 4  # tensors in an error message


def check_initial_runs(recipe: Recipe) -> None:
    """Raise at once, before any text is read, if a run that a phase starts from is missing or unfinished."""
    for phase in recipe.phases:
        if not phase.init_from:
            continue
        if not is_run(phase.init_from):
            raise MissingFile(
                f"Phase '{phase.name}' of {recipe.name} starts from the run {phase.init_from}, which does not exist. "
                f"{_how_to_get(phase)}",
                path=phase.init_from,
            )
        _require_model(RunFolder.open(phase.init_from))


def _how_to_get(phase: Phase) -> str:
    """The command that trains a run of this name, if a recipe of the package is trained into it; or the setting."""
    setting = f"name another run with --set phase.{phase.name}.init_from=RUN"
    place, _, name = phase.init_from.rpartition("/")
    recipe = next((known for known in recipe_names() if known.replace("/", "-") == name), None)
    if recipe is None:
        return f"{setting[0].upper()}{setting[1:]}."
    out = "" if place == "runs" else f" --out {phase.init_from}"
    return f"Train it first: nextword train {recipe}{out}. Or {setting}."


def _require_model(run: RunFolder) -> None:
    if not run.has_model:
        raise RunError(
            f"{run.path} has no trained weights yet. Resume it with `nextword train --resume --out {run.path}`.",
            path=run.path,
        )


def load_initial_weights(job: Job, tokenizer: Tokenizer) -> Sequence[str]:
    """Load the weights of the run that the phase's `init_from` names. Return notes for the user."""
    network = job.network.base
    random = network.state_dict()
    reinitialized = {name: random[name] for name in job.network.reinitialized}
    tensors, notes = initial_weights(job, tokenizer)
    network.load_state_dict({**tensors, **reinitialized})
    if job.phase.noise:
        _add_noise(network, job.phase, reinitialized)
    return notes


def _add_noise(network: Network, phase: Phase, random: Collection[str]) -> None:
    """NoisyTune, but for weights that are random anyway."""
    options, skipped = dict(phase.noise), set(random)
    if not options.pop("embeddings", True):
        embeddings = [*network.embedding.parameters()]
        skipped |= {name for name, p in network.named_parameters() if any(p is own for own in embeddings)}
    add_noise(network, torch.Generator().manual_seed(phase.seed), skipped=skipped, **options)


def initial_weights(job: Job, tokenizer: Tokenizer) -> tuple[dict[str, Tensor], Sequence[str]]:
    """Return the weights of the run that `init_from` names, fitted to the phase's network, and notes for the user.

    A recipe with `[model] extra` has special tokens that the run may lack: its embedding is resized.
    """
    where = f"Phase '{job.phase.name}', init_from = {job.phase.init_from}"
    network = job.network.base
    run = RunFolder.open(job.phase.init_from)
    run.verify()
    _require_model(run)
    run_tokenizer = load_tokenizer(run.path / "tokenizer.json")
    other_vocabulary = fingerprint(run_tokenizer) != fingerprint(tokenizer)
    if other_vocabulary and not (is_word_level(run_tokenizer) and is_word_level(tokenizer)):
        raise InvalidSetting(
            f"{where}: that run has another tokenizer ({_describe(run_tokenizer)}) than this recipe "
            f"({_describe(tokenizer)}), so the ids would mean other tokens. Use the run's tokenizer, with nothing else "
            f'under [tokenizer]: load = "{run.name if run.is_installed else run.path / "tokenizer.json"}".',
            key="tokenizer",
        )
    slug = run.recipe.slug
    cls = model_class(slug)
    if issubclass(cls, Counting) or isinstance(network, Counting):
        raise invalid("init_from", job.phase.init_from, f"names a model that counts ('{slug}'): it has no weights.")
    other = cls.load(run.path, network_config(run.recipe), vocabulary(run_tokenizer, spellings=True))
    if network.is_backward != other.is_backward:
        problem = f"is not that run's direction. Set it to {str(other.is_backward).lower()}, or use another run."
        raise invalid("model.backward", network.is_backward, problem, where)
    missing = _num_extra(network) - _num_extra(other)
    if missing > 0 and type(other) is type(network):
        other = resize_embeddings(other, missing, torch.Generator().manual_seed(job.phase.seed))
    tensors: dict[str, Tensor] = other.state_dict()
    notes: tuple[str, ...] = ()
    if other_vocabulary:
        tensors, note = remap_vocabulary(other, run_tokenizer, tokenizer, where)
        tensors |= {name: t for name, t in network.state_dict().items() if name.startswith(PROPOSAL)}
        notes = (f"initial weights from {job.phase.init_from}; {note}",)
    _check_shapes(tensors, network, where, slug)
    return tensors, notes


def _num_extra(network: Network) -> int:
    """Special tokens beyond the vocabulary that the network has vectors for."""
    return 0 if network.extra is None else network.extra.num_embeddings


def _describe(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.kind}, {len(tokenizer):,} tokens, {fingerprint(tokenizer)}"


def _check_shapes(tensors: dict[str, Tensor], network: Network, where: str, slug: str) -> None:
    theirs = {name: tuple(t.shape) for name, t in tensors.items()}
    ours = {name: tuple(t.shape) for name, t in network.state_dict().items()}
    wrong = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    if not wrong:
        return
    named = "; ".join(
        f"{name} is {theirs.get(name, 'missing')} there and {ours.get(name, 'missing')} here"
        for name in wrong[:MAX_NAMED]
    )
    more = f"; and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
    raise InvalidSetting(
        f"{where}: the weights of that run ('{slug}') do not fit this network: {named}{more}. Copy [model] from its "
        "recipe.toml, or leave init_from out.",
        key="init_from",
    )


# ------------------------------------------------------------------------------------------------ vocabularies


def is_word_level(tokenizer: Tokenizer) -> bool:
    return tokenizer.words is not None


def match_words(theirs: Tokenizer, ours: Tokenizer) -> np.ndarray:
    """For each of our ids, their id of the same word, or NEW; special tokens are matched by name."""
    assert theirs.words is not None
    assert ours.words is not None
    ids = {word: len(theirs) - len(theirs.words) + i for i, word in enumerate(theirs.words)}
    rows = np.full(len(ours), NEW, np.int64)
    first = len(ours) - len(ours.words)
    for i, word in enumerate(ours.words):
        rows[first + i] = ids.get(word, ids.get(word.lower(), NEW) if theirs.lower else NEW)
    for name, i in ours.special.items():
        rows[i] = theirs.special.get(name, NEW)
    return rows


def remap_vocabulary(network: Network, theirs: Tokenizer, ours: Tokenizer, where: str) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a network for our vocabulary instead of theirs, and a note. `where` begins an error."""
    if not has_word_rows(network):
        raise Unsupported(
            f"{where}: only an embedding and a full, sampled or mixed softmax can be remapped to another vocabulary, "
            f"and this network has {type(network.embedding).__name__} and {type(_output_layer(network)).__name__}. "
            "Train with the run's tokenizer.",
            ability="remap_vocabulary",
        )
    rows = match_words(theirs, ours)
    tensors: dict[str, Tensor] = network.state_dict()
    modules = (network.embedding, _output_layer(network))
    tables = [p for module in modules for p in module.parameters(recurse=False) if len(p) == len(theirs)]
    for name, p in network.named_parameters():
        if any(p is table for table in tables):
            tensors[name] = remap_rows(tensors[name], rows)
    tensors = {name: t for name, t in tensors.items() if not name.startswith(PROPOSAL)}
    new = int((rows == NEW).sum())
    return tensors, f"{new:,} of {len(ours):,} words are new to it and begin with its mean vector"


def remap_rows(table: Tensor, rows: np.ndarray) -> Tensor:
    """(theirs, …) → (ours, …): the rows of known words, and the mean of all rows for new ones."""
    index = torch.from_numpy(rows).to(table.device)
    known = table.index_select(0, index.clamp(min=0))
    is_new = (index == NEW).view(-1, *[1] * (table.dim() - 1))
    return torch.where(is_new, table.double().mean(0).to(table.dtype), known)


def has_word_rows(network: Network) -> bool:
    """Whether every word has a row of its own in the embedding and in the output layer."""
    return type(network.embedding) is nn.Embedding and type(_output_layer(network)) in (FullSoftmax, TiedSoftmax)


def _output_layer(network: Network) -> nn.Module:
    readout: nn.Module = network.readout
    return readout.words if isinstance(readout, (SampledSoftmax, MixtureOfSoftmaxes)) else readout
