"""Begin with the weights of another run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nextword.checkpoint import RunFolder
from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Counting, Tokenizer
from nextword.models import model_class
from nextword.models.frames import grow
from nextword.tokens import fingerprint, load_tokenizer, vocabulary
from nextword.training.events import Job
from nextword.training.words import DRAWS, of_words, rewritten

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
    return getattr(network, "under", network)


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
    here, there = (getattr(one, "from_the_end", False) for one in (network, loaded))
    if here != there:
        ways = ("from the first word to the last", "from the last word to the first")
        raise NextwordError(
            f"Phase '{job.phase.name}' begins with {init}, which reads texts {ways[there]}, and this network reads "
            f"them {ways[here]}. Set what the run has (--set model.backward={str(there).lower()}), or take a run of "
            "the other direction."
        )
    room, has = (getattr(one.config, "extra", None) for one in (network, loaded))
    if room is not None and has is not None and room > has:
        loaded = grow(loaded, room - has, torch.Generator().manual_seed(job.phase.seed))
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
