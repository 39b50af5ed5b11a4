"""What a family of networks is called elsewhere: its settings and its tensors under other names, as one table.

    ours     blocks.3.attention.join.weight       (3 · width, width)
    theirs   transformer.h.3.attn.c_attn.weight   (width, 3 · width), so it is turned (forms.py)

A table is a `Family`; whatever reads and writes one is here, and knows no family by name. Whether a network of ours
computes what theirs does is settled before any weight is read: a setting of theirs that it knows no way to follow is
refused by its name, and so is one of ours that theirs cannot say.

A folder may lack a whole head, for people save networks without what they do not use. Then the head is drawn anew, the
same one each time, and that is told; a head of which some tensors are there is damaged.

How a tensor of ours lies in a folder of theirs: as it is, turned, cut into several, or with rows around it.

    ours     attending.3.attention.join.weight        (3 · width, width)
    theirs   encoder.layer.3.attention.self.query.weight, … key.weight, … value.weight      (width, width) each

A form knows both ways. What shapes theirs must have is what comes of writing a tensor without numbers, so it is said
only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import Vocabulary
from nextword.tokenizers.hf_export import Frame

Said = Mapping[str, Any]  # their config.json


@dataclass(frozen=True)
class Form:
    write: Callable[[Tensor, Said], Sequence[Tensor]]  # one of ours → theirs, one for each of their names
    read: Callable[[Sequence[Tensor], Said], Tensor]  # theirs → ours


def one(write: Callable[[Tensor, Said], Tensor], read: Callable[[Tensor, Said], Tensor]) -> Form:
    """Where theirs is one tensor too."""
    return Form(lambda ours, said: [write(ours, said)], lambda theirs, said: read(theirs[0], said))


def behind(rows: Callable[[Said], int]) -> Form:
    """Theirs has rows before ours that nothing reads: they are left away, and written as zeros."""
    return one(
        lambda ours, said: torch.cat([ours.new_zeros(rows(said), *ours.shape[1:]), ours]),
        lambda theirs, said: theirs[rows(said) :],
    )


def before(rows: Callable[[Said], int]) -> Form:
    """Theirs has so many rows, and ours the first of them alone."""
    return one(
        lambda ours, said: torch.cat([ours, ours.new_zeros(rows(said) - len(ours), *ours.shape[1:])]),
        lambda theirs, said: theirs[:1],
    )


SAME = one(lambda ours, said: ours, lambda theirs, said: theirs)
TURNED = one(lambda ours, said: ours.t(), lambda theirs, said: theirs.t())  # of a bias: the same
JOINED = Form(lambda ours, said: ours.chunk(3), lambda theirs, said: torch.cat(list(theirs)))


SPREAD = 0.02  # heads that are missing are drawn from N(0, 0.02²)
SHOWN = 10  # names in an error
READ = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class Found(Protocol):
    """Tensors by name, each read when it is asked for."""

    def names(self) -> Sequence[str]: ...
    def get(self, name: str) -> Tensor: ...


@dataclass(frozen=True)
class Taken:
    """What was read: tensors under our names, those of our modules that were drawn anew, and what should be known."""

    tensors: dict[str, Tensor]
    drawn: list[str]
    notes: list[str]


@dataclass(frozen=True)
class Family:
    slugs: tuple[str, ...]  # ours: a folder is read as the first; all of them can be written
    model_type: str  # theirs, in config.json
    architecture: str  # the class of theirs that has all these tensors

    settings: Mapping[str, tuple[str, ...]]  # ours → theirs: the first of them is read, all of them are written
    defaults: Mapping[str, Any]  # of theirs, where config.json does not say
    fixed: Callable[[Mapping[str, Any]], Mapping[str, Sequence[Any]]]
    # of our settings: the values that keys of theirs may have, for ours computes no others; the first one is written
    reads: Callable[[Said], bool] = lambda said: True  # of their config.json: is it this table's, among several?
    writes: Callable[[Any], bool] = lambda config: True  # the same of a Config of ours
    synonyms: Mapping[str, str] = field(default_factory=dict)  # other keys of theirs → the key
    free: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    # settings of ours that theirs has not, and whether a config with them can be written all the same
    unsaid: Mapping[str, Any] = field(default_factory=dict)  # ours, where theirs says null or 0: what holds then
    understood: Callable[[dict[str, Any], Said, str], list[str]] = lambda settings, said, where: []
    # our settings, as they were read, are put right in place; what should be known of it
    spoken: Callable[[dict[str, Any], Mapping[str, Any], Vocabulary], None] = lambda said, settings, vocabulary: None
    # the other way: their config.json is put right in place

    names: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    # modules or parameters, ours → theirs, {} for the number of a layer; several, where theirs has several for one
    forms: Mapping[str, Form] = field(default_factory=dict)  # of modules or parameters of ours: how they lie there
    prefix: str = ""  # before all names of theirs; folders without it are read too
    outside: tuple[str, ...] = ()  # beginnings of names of theirs that have no prefix: heads
    endings: Mapping[str, str] = field(default_factory=dict)  # of old names of theirs → as they are today
    tied: Mapping[str, str] = field(default_factory=dict)  # theirs that may be absent → ours that they are equal to
    ignored: tuple[str, ...] = ()  # patterns of names of theirs that say nothing: masks, positions
    left: Mapping[str, str] = field(default_factory=dict)  # patterns of theirs that ours has no place for → in words
    heads: Mapping[str, str] = field(default_factory=dict)  # modules of ours that a folder may lack → in words
    shared: bool = False  # a layer that ours has not is its first one, which all layers share

    phase: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda settings: {
        "batches": {"kind": "blocks", "rows": 1, "length": settings["window"]}
    }
    frame: Frame | None = None  # what stands around texts
    use: str = 'nextword generate {} "The" --length 60'  # a command for the run
    pipeline: str = "text-generation"  # what transformers does with the folder; "": it has none, but `generate`

    # -------------------------------------------------------------------------------------------- settings

    def settings_of(self, config: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
        """Ours from their config.json, and what should be known of it."""
        config = self.full(config)
        settings, notes = {}, []
        for ours, keys in self.settings.items():
            values = {key: config[key] for key in keys if config.get(key) is not None}
            if ours in self.unsaid and not any(values.values()):
                values = {keys[0]: self.unsaid[ours]}
                notes.append(f"{keys[0]} is {config.get(keys[0])!r} there: the run has {ours} = {self.unsaid[ours]}.")
            if not values:
                raise NextwordError(f"{where} does not say {keys[0]}, which has no usual value. Add it.")
            settings[ours] = next(iter(values.values()))
            for key, value in values.items():
                if value != settings[ours]:
                    first = next(iter(values))
                    notes.append(f"{key} is {value} where {first} is {settings[ours]}: the run has {settings[ours]}.")
            _check_number(settings[ours], ours, keys[0], where)
        for key, allowed in self.fixed(settings).items():
            if key in config and config[key] not in allowed:
                raise Unsupported(
                    f"{where} says {key} = {config[key]!r}, and {self.slugs[0]} here computes only "
                    f"{' or '.join(map(repr, allowed))}: its numbers would be others. This folder cannot be read."
                )
        return settings, notes + self.understood(settings, config, where)

    def full(self, config: Said) -> dict[str, Any]:
        """Their config.json with what it leaves unsaid, under the keys of the table."""
        return {**self.defaults, **{self.synonyms.get(key, key): value for key, value in config.items()}}

    def config_of(self, config: Any, vocabulary: Vocabulary) -> dict[str, Any]:
        """Their config.json from a Config of ours, or why it cannot say what ours computes."""
        for ours in fields(config):
            if ours.name in self.settings:
                continue
            value = getattr(config, ours.name)
            usual = ours.default if ours.default is not MISSING else object()
            if value != usual and not self.free.get(ours.name, _never)(config):
                raise Unsupported(
                    f"[model] {ours.name} = {value!r}: {self.architecture} knows no such thing and computes as with "
                    f"{ours.name} = {usual!r}, so the weights would give other numbers there. Nothing was written."
                )
        settings = {ours.name: getattr(config, ours.name) for ours in fields(config)}
        said: dict[str, Any] = {"architectures": [self.architecture], "model_type": self.model_type}
        said |= {key: settings[ours] for ours, keys in self.settings.items() for key in keys}
        said |= {key: allowed[0] for key, allowed in self.fixed(settings).items()}
        said |= {"tie_word_embeddings": True} if self.tied else {}
        self.spoken(said, settings, vocabulary)
        return said

    # -------------------------------------------------------------------------------------------- tensors

    def theirs(self, name: str) -> tuple[list[str], Form]:
        """Their names for a tensor of ours, without the prefix, and how it lies in them."""
        numbers = re.findall(r"(?<=\.)\d+(?=\.)", name)
        plain = re.sub(r"(?<=\.)\d+(?=\.)", "{}", name)
        module, _, end = plain.rpartition(".")
        whole = plain in self.names
        found = self.names[plain if whole else module]
        patterns = [found] if isinstance(found, str) else found
        names = [pattern.format(*numbers) + ("" if whole else f".{end}") for pattern in patterns]
        return names, self.forms.get(plain, self.forms.get(module, SAME))

    def tensors_of(self, wanted: Mapping[str, Tensor], found: Found, config: Said, where: str) -> Taken:
        """Ours from theirs, in float32; `wanted` are the tensors of a network of ours, of which only shapes matter."""
        said = self.full(config)
        there = {self._today(name): name for name in found.names()}
        names = {ours: self.theirs(ours) for ours in wanted}
        known = {name for several, _ in names.values() for name in several} | self.tied.keys()
        drawn = [head for head in self.heads if not any(n in there for n in _of_head(head, names))]
        taken = {ours: named for ours, named in names.items() if not _within(ours, drawn)}
        needed = [name for several, _ in taken.values() for name in several]
        if said.get("tie_word_embeddings") is False and "readout" not in drawn:  # then both must be there, and equal
            needed += [name for name in self.tied if name.endswith(".weight")]
        missing = [name for name in needed if name not in there]
        if missing:
            raise NextwordError(
                f"{where} lacks {_some(missing, 'tensor')} that its config.json asks for: {_list(missing)}. It was cut "
                "short, or is of another network: copy it again."
            )
        patterns = (*self.ignored, *self.left)
        odd = [name for name in there if name not in known and not any(re.fullmatch(p, name) for p in patterns)]
        if odd:
            raise NextwordError(
                f"{where} has {_some(odd, 'tensor')} that {self.slugs[0]} has no place for: {_list(odd)}. It is of "
                f"another network, or has a head for a task; save it as {self.architecture} to read it here."
            )
        tensors, wrong = {}, []
        for ours, (several, form) in taken.items():
            shapes = [tuple(part.shape) for part in form.write(wanted[ours].to("meta"), said)]
            parts = [found.get(there[name]) for name in several]
            bad = [i for i, part in enumerate(parts) if tuple(part.shape) != shapes[i]]
            wrong += [f"{several[i]} is {_size(parts[i].shape)}, not {_size(shapes[i])}" for i in bad]
            if not bad:
                parts = [_float(part, name, where) for part, name in zip(parts, several, strict=True)]
                tensors[ours] = form.read(parts, said).contiguous()
        if wrong:
            raise NextwordError(
                f"{where} has {_some(wrong, 'tensor')} of another shape than its config.json says: {_list(wrong)}. The "
                "two are not of the same network."
            )
        for name, ours in self.tied.items():
            if name in there and not torch.equal(_float(found.get(there[name]), name, where), tensors[ours]):
                raise Unsupported(
                    f"{where}: {name} is not {self.theirs(ours)[0][0]}, and {self.slugs[0]} here has one matrix for "
                    "both. This folder cannot be read."
                )
        tensors |= _drawn({ours: wanted[ours] for ours in wanted if _within(ours, drawn)})
        notes = [f"It has no {self.heads[head]}: one is drawn, and knows nothing until trained." for head in drawn]
        for pattern, what in self.left.items():
            if count := sum(bool(re.fullmatch(pattern, name)) for name in there):
                notes.append(f"It has {what} ({count} tensors), for which {self.slugs[0]} has no place: left behind.")
        return Taken({ours: tensors[ours] for ours in wanted}, drawn, notes)

    def tensors_for(
        self, wanted: Mapping[str, Tensor], ours: Mapping[str, Tensor], config: Said
    ) -> tuple[dict[str, Tensor], int]:
        """Theirs from ours, and how many biases ours has not, which are zero there.

        `wanted` are the tensors of the network that the folder would be read as, `config` its config.json.
        """
        said, tensors, zeros = self.full(config), {}, 0
        for name, like in wanted.items():
            source = re.sub(r"(?<=\.)\d+(?=\.)", "0", name) if self.shared and name not in ours else name
            if source not in ours and not name.endswith(".bias"):
                raise NextwordError(f"The run has no {name}, which {self.architecture} cannot do without.")
            zeros += source not in ours
            tensor = ours.get(source, torch.zeros(like.shape))
            names, form = self.theirs(name)
            for theirs, part in zip(names, form.write(tensor, said), strict=True):
                full = theirs if theirs.startswith(self.outside) else self.prefix + theirs
                tensors[full] = part.contiguous().clone()  # no two may lie in the same memory
        return tensors, zeros

    def _today(self, name: str) -> str:
        name = name.removeprefix(self.prefix)
        for old, new in self.endings.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name


def _within(name: str, modules: Iterable[str]) -> bool:
    return any(name.startswith(f"{module}.") for module in modules)


def _of_head(head: str, names: Mapping[str, tuple[list[str], Form]]) -> list[str]:
    return [name for ours, (several, _) in names.items() if _within(ours, [head]) for name in several]


def _drawn(like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices from N(0, 0.02²), norms of one, biases of zero; the same ones each time."""
    generator, tensors = torch.Generator().manual_seed(1), {}
    for name, tensor in like.items():
        if tensor.dim() > 1:
            tensors[name] = torch.empty(tensor.shape).normal_(0, SPREAD, generator=generator)
        else:
            tensors[name] = torch.full(tensor.shape, float(name.endswith("norm.weight")))
    return tensors


def _never(config: Any) -> bool:
    return False


def _check_number(value: Any, ours: str, key: str, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NextwordError(f"{where} says {key} = {value!r} ({ours} here), where a number was expected.")


def _float(tensor: Tensor, name: str, where: str) -> Tensor:
    if tensor.dtype not in READ:
        raise Unsupported(
            f"{where}: {name} is of type {str(tensor.dtype).removeprefix('torch.')}, so its weights were made smaller "
            "in a way of their own. Save the model in float32, float16 or bfloat16."
        )
    return tensor.to(torch.float32).contiguous()


def _some(names: Sequence[str], what: str) -> str:
    return f"{len(names):,} {what}{'s' if len(names) > 1 else ''}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names) - SHOWN:,} more)" if len(names) > SHOWN else "")


def _size(shape: Iterable[int]) -> str:
    return " × ".join(map(str, shape)) or "one number"
