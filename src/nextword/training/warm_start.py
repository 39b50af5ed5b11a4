"""Begin with the weights of another run.

From one vocabulary to another: a language model goes on with other text, and with that text's own words.

    theirs   <unk> <eos> the film king          ours   <unk> <eos> the actor film
    row of          1     2   3    4                    0     1     2   mean   3

A word that both have keeps its vector; one that is new begins with the mean of all their vectors, and its bias with the
mean of theirs (Howard & Ruder 2018, after fastai). This is for vocabularies of words: a piece of a word that two others
have in common may stand for quite different things in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.protocols import Counting, Tokenizer
from nextword.layers.output.mixture import Mixture
from nextword.layers.output.sampled import Sampling
from nextword.layers.output.softmax import Full, Tied
from nextword.models import model_class
from nextword.models.framing import resize_embeddings
from nextword.run_folder import RunFolder
from nextword.tokenizers import fingerprint, vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.events import Job

NEW = -1
DRAWS = "readout.proposal."  # how often words are drawn as wrong answers: made anew of the text


def of_words(tokenizer: Any) -> bool:
    return isinstance(getattr(tokenizer, "words", None), tuple)


def rows_of(theirs: Any, ours: Any) -> np.ndarray:
    """For each of our ids, theirs of the same word, or NEW; special tokens by their names."""
    known = {word: len(theirs) - len(theirs.words) + i for i, word in enumerate(theirs.words)}
    found = np.full(len(ours), NEW, np.int64)
    first = len(ours) - len(ours.words)
    for i, word in enumerate(ours.words):
        found[first + i] = known.get(word, known.get(word.lower(), NEW) if theirs.lower else NEW)
    for name, i in ours.special.items():
        found[i] = theirs.special.get(name, NEW)
    return found


def rewritten(network: Any, theirs: Tokenizer, ours: Tokenizer, where: str) -> tuple[dict[str, Tensor], str]:
    """The tensors of their network over our words, and what is to be said of it. `where` begins an error."""
    rows = rows_of(theirs, ours)
    tensors: dict[str, Tensor] = network.state_dict()
    tables = [p for part in _tables(network, where) for p in part.parameters(recurse=False) if len(p) == len(theirs)]
    for name, p in network.named_parameters():
        if any(p is table for table in tables):
            tensors[name] = moved(tensors[name], rows)
    tensors = {name: t for name, t in tensors.items() if not name.startswith(DRAWS)}
    new = int((rows == NEW).sum())
    return tensors, f"{new:,} of {len(ours):,} words are new to it: they begin with the mean of its vectors"


def moved(table: Tensor, rows: np.ndarray) -> Tensor:
    """(theirs, …) → (ours, …): their rows, and for new words the mean of all."""
    at = torch.from_numpy(rows).to(table.device)
    taken = table.index_select(0, at.clamp(min=0))
    new = (at == NEW).view(-1, *[1] * (table.dim() - 1))
    return torch.where(new, table.double().mean(0).to(table.dtype), taken)


def has_rows(network: Any) -> bool:
    """Whether each word has a row of its own, so that another word can have its place."""
    embedding, words = _parts(network)
    return type(embedding) is nn.Embedding and type(words) in (Full, Tied)


def _parts(network: Any) -> tuple[Any, Any]:
    """What words are read by, and what they are predicted by."""
    readout = getattr(network, "readout", None)
    words = readout.words if isinstance(readout, (Sampling, Mixture)) else readout
    return getattr(network, "embedding", None), words


def _tables(network: Any, where: str) -> list[nn.Module]:
    """What has a row for each word."""
    embedding, words = _parts(network)
    if not has_rows(network):
        raise NextwordError(
            f"{where} Words of another vocabulary can be taken over where each has a row of its own, in the embedding "
            f"and in a full, sampled or mixed softmax; here they are {type(embedding).__name__} and "
            f"{type(words).__name__}. Train with the run's own tokenizer."
        )
    return [embedding, words]


NAMED = 4  # tensors that do not fit, in a message


def _begin_with(job: Job, tokenizer: Tokenizer) -> Sequence[str]:
    """The weights of the run that a phase names; returns what is to be said of them."""
    drawn = _under(job.network).state_dict()
    anew = {name: drawn[name] for name in getattr(job.network, "fresh", ())}
    tensors, notes = _beginning(job, tokenizer)
    _under(job.network).load_state_dict({**tensors, **anew})
    return notes


def _under(network: Any) -> Any:
    """The network itself, of one that has a head."""
    return getattr(network, "encoder", network)


def _beginning(job: Job, tokenizer: Tokenizer) -> tuple[dict[str, Tensor], Sequence[str]]:
    """The weights of the run that a phase begins with, which fit the phase's network, and what is to be said of them.

    A recipe with `[model] extra` has room for tokens that the run may lack: there the run's network is grown. A run
    with other words than the recipe's is taken over word by word (words.py).
    """
    init = job.phase.init
    source = RunFolder.open(init)
    source.verify()
    if not source.manifest.get("files", {}).keys() - {"recipe.toml", "tokenizer.json"}:
        raise NextwordError(f"{init} has no model yet. Go on training with `nextword train --resume --out {init}`.")
    theirs = load_tokenizer(source.path / "tokenizer.json")
    other = fingerprint(theirs) != fingerprint(tokenizer)
    if other and not (of_words(theirs) and of_words(tokenizer)):
        raise NextwordError(
            f"Phase '{job.phase.name}' begins with {init}, which has another tokenizer ({_told(theirs)}) than this "
            f"recipe ({_told(tokenizer)}): the same id would be another word. Use the run's own, with nothing else "
            f'under [tokenizer]: load = "{source.path / "tokenizer.json"}".'
        )
    recipe = source.recipe
    cls = model_class(recipe.slug)
    network = _under(job.network)
    if issubclass(cls, Counting) or isinstance(network, Counting):
        raise NextwordError(
            f"Phase '{job.phase.name}' begins with {init}, a run of '{recipe.slug}'. A model that counts has no "
            "weights to begin with, and none to be begun with. Leave init out."
        )
    loaded = cls.load(source.path, cls.Config(**recipe.model), vocabulary(theirs, spellings=True))
    here, there = (getattr(one, "is_backward", False) for one in (network, loaded))
    if here != there:
        ways = ("from the first word to the last", "from the last word to the first")
        raise NextwordError(
            f"Phase '{job.phase.name}' begins with {init}, which reads texts {ways[there]}, and this network reads "
            f"them {ways[here]}. Set what the run has (--set model.backward={str(there).lower()}), or take a run of "
            "the other direction."
        )
    room, has = (getattr(one.config, "extra", None) for one in (network, loaded))
    if room is not None and has is not None and room > has:
        loaded = resize_embeddings(loaded, room - has, torch.Generator().manual_seed(job.phase.seed))
    tensors: dict[str, Tensor] = loaded.state_dict()
    notes: tuple[str, ...] = ()
    if other:
        tensors, said = rewritten(loaded, theirs, tokenizer, f"Phase '{job.phase.name}' begins with {init}.")
        tensors |= {name: t for name, t in network.state_dict().items() if name.startswith(DRAWS)}
        notes = (f"it begins with {init}; {said}",)
    _fit(tensors, job, recipe.slug)
    return tensors, notes


def _fit(tensors: dict[str, Tensor], job: Job, slug: str) -> None:
    there = {name: tuple(t.shape) for name, t in tensors.items()}
    here = {name: tuple(t.shape) for name, t in _under(job.network).state_dict().items()}
    wrong = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if not wrong:
        return
    said = "; ".join(f"{n} is {there.get(n, 'not')} there and {here.get(n, 'not')} here" for n in wrong[:NAMED])
    more = f"; and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
    raise NextwordError(
        f"Phase '{job.phase.name}' cannot begin with {job.phase.init}, a run of '{slug}': its weights do not fit the "
        f"recipe's network. {said}{more}. Take [model] from {job.phase.init}/recipe.toml, or leave init out."
    )


def _told(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.kind}, {len(tokenizer):,} tokens, {fingerprint(tokenizer)}"
