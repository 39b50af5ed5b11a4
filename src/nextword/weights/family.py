"""What a family of networks is called elsewhere: its settings and its tensors under other names, as one table.

    ours     blocks.3.attention.join.weight       (3 · width, width)
    theirs   transformer.h.3.attn.c_attn.weight   (width, 3 · width), so it is turned

A table is a `Family`; whatever reads and writes one is here, and knows no family by name. Whether a network of ours
computes what theirs does is settled before any weight is read: a setting of theirs that it knows no way to follow is
refused by its name, and so is one of ours that theirs cannot say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from nextword.contract import NextwordError, Unsupported

SHOWN = 10  # names in an error
READ = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class Found(Protocol):
    """Tensors by name, each read when it is asked for."""

    def names(self) -> Sequence[str]: ...
    def get(self, name: str) -> Tensor: ...


@dataclass(frozen=True)
class Family:
    slugs: tuple[str, ...]  # ours: a folder is read as the first; all of them can be written
    model_type: str  # theirs, in config.json
    architecture: str  # the class of theirs that has all these tensors
    settings: Mapping[str, tuple[str, ...]]  # ours → theirs: the first of them is read, all of them are written
    defaults: Mapping[str, Any]  # of theirs, where config.json does not say
    fixed: Callable[[Mapping[str, Any]], Mapping[str, Sequence[Any]]]
    # of our settings: the values that keys of theirs may have, for ours computes no others; the first one is written
    names: Mapping[str, str]  # modules or parameters, ours → theirs, {} for the number of a layer
    turned: tuple[str, ...] = ()  # modules of ours whose weights stand the other way round in theirs
    prefix: str = ""  # before all names of theirs; folders without it are read too
    tied: Mapping[str, str] = field(default_factory=dict)  # theirs that may be absent → ours that they are equal to
    ignored: tuple[str, ...] = ()  # patterns of names of theirs that say nothing: masks, positions
    synonyms: Mapping[str, str] = field(default_factory=dict)  # other keys of theirs → the key
    free: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    # settings of ours that theirs has not, and whether a config with them can be written all the same

    # -------------------------------------------------------------------------------------------- settings

    def settings_of(self, config: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
        """Ours from their config.json, and what should be known of it."""
        config = {**self.defaults, **{self.synonyms.get(key, key): value for key, value in config.items()}}
        settings, notes = {}, []
        for ours, keys in self.settings.items():
            values = {key: config[key] for key in keys if config.get(key) is not None}
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
        return settings, notes

    def config_of(self, config: Any) -> dict[str, Any]:
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
        settings = {ours: getattr(config, ours) for ours in self.settings}
        said: dict[str, Any] = {"architectures": [self.architecture], "model_type": self.model_type}
        said |= {key: settings[ours] for ours, keys in self.settings.items() for key in keys}
        said |= {key: allowed[0] for key, allowed in self.fixed(settings).items()}
        return said | ({"tie_word_embeddings": True} if self.tied else {})

    # -------------------------------------------------------------------------------------------- tensors

    def theirs(self, name: str) -> tuple[str, bool]:
        """Their name for a tensor of ours, and whether it is turned."""
        numbers = re.findall(r"(?<=\.)\d+(?=\.)", name)
        plain = re.sub(r"(?<=\.)\d+(?=\.)", "{}", name)
        module, _, end = plain.rpartition(".")
        pattern = self.names[plain] if plain in self.names else f"{self.names[module]}.{end}"
        return pattern.format(*numbers), module in self.turned and end == "weight"

    def tensors_of(
        self, wanted: Mapping[str, Tensor], found: Found, where: str, untied: bool = False
    ) -> dict[str, Tensor]:
        """Ours from theirs, in float32; `wanted` are the tensors of a network of ours, of which only shapes matter.

        `untied`: theirs has two matrices where ours has one, so both must be there. They may be equal.
        """
        there = {name.removeprefix(self.prefix): name for name in found.names()}
        names = {ours: self.theirs(ours) for ours in wanted}
        known = {name for name, _ in names.values()} | self.tied.keys()
        needed = [name for name, _ in names.values()] + (list(self.tied) if untied else [])
        missing = [name for name in needed if name not in there]
        if missing:
            raise NextwordError(
                f"{where} lacks {_some(missing, 'tensor')} that its config.json asks for: {_list(missing)}. It was cut "
                "short, or is of another network: copy it again."
            )
        odd = [name for name in there if name not in known and not any(re.fullmatch(p, name) for p in self.ignored)]
        if odd:
            raise NextwordError(
                f"{where} has {_some(odd, 'tensor')} that {self.slugs[0]} has no place for: {_list(odd)}. It is of "
                f"another network, or has a head for a task; save it as {self.architecture} to read it here."
            )
        tensors, wrong = {}, []
        for ours, (name, turned) in names.items():
            tensor, shape = found.get(there[name]), tuple(wanted[ours].shape)
            shape = shape[::-1] if turned else shape
            if tuple(tensor.shape) != shape:
                wrong.append(f"{name} is {_size(tensor.shape)}, not {_size(shape)}")
                continue
            tensors[ours] = _float(tensor.t() if turned else tensor, name, where)
        if wrong:
            raise NextwordError(
                f"{where} has {_some(wrong, 'tensor')} of another shape than its config.json says: {_list(wrong)}. The "
                "two are not of the same network."
            )
        for name, ours in self.tied.items():
            if name in there and not torch.equal(_float(found.get(there[name]), name, where), tensors[ours]):
                raise Unsupported(
                    f"{where}: {name} is not {self.theirs(ours)[0]}, and {self.slugs[0]} here has one matrix for both. "
                    "This folder cannot be read."
                )
        return tensors

    def tensors_for(self, wanted: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int]:
        """Theirs from ours, and how many biases ours has not, which are zero there.

        `wanted` are the tensors of the network that the folder would be read as.
        """
        tensors, zeros = {}, 0
        for name, like in wanted.items():
            if name not in ours and not name.endswith(".bias"):
                raise NextwordError(f"The run has no {name}, which {self.architecture} cannot do without.")
            zeros += name not in ours
            tensor = ours.get(name, torch.zeros(like.shape))
            theirs, turned = self.theirs(name)
            tensors[self.prefix + theirs] = (tensor.t() if turned else tensor).contiguous()
        return tensors, zeros


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
