"""How transformers names the settings and tensors of one architecture, as a table that is read in both directions.

    nextword       blocks.3.attention.join.weight       (3 · width, width)
    transformers   transformer.h.3.attn.c_attn.weight   (width, 3 · width)

A `NameMap` is such a table (hf_gpt.py, hf_bert.py, … have one per architecture); the code that reads and writes with it
is here and knows no architecture by name. A `TensorForm` says how the numbers of one tensor are arranged there:
unchanged, transposed, split into several tensors, or with extra rows.

Before any weight is read, the settings are compared: a setting of transformers that our network cannot compute is
refused by its name, and so is a setting of ours that transformers cannot express. A folder may lack a whole head, since
people save networks without the heads they do not use; the head is then initialized anew, the same each time, and a
note says so. A head of which only some tensors are missing is damaged.

In this package `hf` stands for the side of Hugging Face's transformers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from nextword.core.errors import DataError, Unsupported
from nextword.core.types import Vocabulary
from nextword.tokenizers.hf_export import Frame

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

INITIAL_STD = 0.02  # missing heads are drawn from N(0, 0.02²)
MAX_SHOWN = 10  # names in an error
READABLE_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")

HFConfig = Mapping[str, Any]  # the content of config.json
Settings = Mapping[str, Any]  # our [model] settings


# ------------------------------------------------------------------------------------------------ tensor forms


@dataclass(frozen=True)
class TensorForm:
    """An arrangement. In a table, FORM("their.name") says that the tensor of this name is arranged so."""

    write: Callable[[Tensor, HFConfig], Sequence[Tensor]]  # ours → theirs, one for each of their names
    read: Callable[[Sequence[Tensor], HFConfig], Tensor]  # theirs → ours

    def __call__(self, *names: str) -> tuple[TensorForm, tuple[str, ...]]:
        return self, names


def one_to_one(write: Callable[[Tensor, HFConfig], Tensor], read: Callable[[Tensor, HFConfig], Tensor]) -> TensorForm:
    """A form in which transformers has one tensor for one of ours."""
    return TensorForm(lambda ours, config: [write(ours, config)], lambda theirs, config: read(theirs[0], config))


def with_leading_rows(rows: Callable[[HFConfig], int]) -> TensorForm:
    """Theirs has unused rows before ours: dropped when reading, zeros when writing."""
    return one_to_one(
        lambda ours, config: torch.cat([ours.new_zeros(rows(config), *ours.shape[1:]), ours]),
        lambda theirs, config: theirs[rows(config) :],
    )


def with_trailing_rows(rows: Callable[[HFConfig], int]) -> TensorForm:
    """Theirs has this many rows, ours only the first of them."""
    return one_to_one(
        lambda ours, config: torch.cat([ours, ours.new_zeros(rows(config) - len(ours), *ours.shape[1:])]),
        lambda theirs, config: theirs[:1],
    )


UNCHANGED = one_to_one(lambda ours, config: ours, lambda theirs, config: theirs)
TRANSPOSED = one_to_one(lambda ours, config: ours.t(), lambda theirs, config: theirs.t())  # leaves a bias unchanged
SPLIT_QKV = TensorForm(lambda ours, config: ours.chunk(3), lambda theirs, config: torch.cat(list(theirs)))


# ------------------------------------------------------------------------------------------------ the table


class TensorSource(Protocol):
    """Tensors by name, read on demand."""

    def names(self) -> Sequence[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def get(self, name: str) -> Tensor: ...


@dataclass(frozen=True)
class LoadedTensors:
    tensors: dict[str, Tensor]  # under our names
    initialized: list[str]  # our heads that the folder lacks
    notes: list[str]


@dataclass(frozen=True)
class NameMap:
    """One architecture of transformers and the networks of ours that compute the same."""

    slugs: tuple[str, ...]  # our models: a folder is read as the first; all of them can be written
    model_type: str  # in config.json
    architecture: str  # the class in transformers that has all these tensors

    # Settings
    settings: Mapping[str, tuple[str | tuple[str, ...], Any]]
    # our name → their key, or keys (the first is read, all are written), and its value where config.json lacks it
    allowed_values: Callable[[Settings], Mapping[str, Sequence[Any]]]
    # their keys → the values that our network can compute; the first one is written
    other_defaults: Mapping[str, Any] = field(default_factory=dict)  # of keys that are no settings of ours
    matches_config: Callable[[HFConfig], bool] = lambda config: True  # whether this table is for this config.json
    matches_model: Callable[[Any], bool] = lambda config: True  # the same for a Config of ours
    key_aliases: Mapping[str, str] = field(default_factory=dict)  # other keys in config.json → the key
    expressible: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    # settings of ours without a key there → whether a Config of ours can be written all the same
    null_defaults: Mapping[str, Any] = field(default_factory=dict)  # our values where config.json has null or 0
    adjust_settings: Callable[[dict[str, Any], HFConfig, str], list[str]] = lambda settings, config, where: []
    # correct our settings in place after reading; returns notes for the user
    adjust_config: Callable[[dict[str, Any], Settings, Vocabulary], None] = lambda config, settings, vocabulary: None
    # correct their config.json in place before writing

    # Tensors
    names: Mapping[str, str | tuple[TensorForm, tuple[str, ...]]] = field(default_factory=dict)
    # our module or parameter → theirs, {} for the layer number; FORM(theirs, …) if it is arranged differently there
    prefix: str = ""  # of all their names; folders without it are read too
    unprefixed: tuple[str, ...] = ()  # beginnings of their names that have no prefix: heads
    legacy_suffixes: Mapping[str, str] = field(default_factory=dict)  # old ends of their names → today's
    tied_weights: Mapping[str, str] = field(default_factory=dict)  # their tensors that equal one of ours; may be absent
    ignored: tuple[str, ...] = ()  # patterns of their tensors that hold no weights: masks, positions
    dropped: Mapping[str, str] = field(default_factory=dict)  # patterns of weights that we have no place for → in words
    optional_heads: Mapping[str, str] = field(default_factory=dict)  # our heads that a folder may lack → in words
    shares_layers: bool = False  # our first layer stands for all layers that we do not have

    # What else a converted run or folder needs
    phase: Callable[[Settings], Mapping[str, Any]] = lambda settings: {
        "batches": {"kind": "blocks", "rows": 1, "length": settings["window"]}
    }
    frame: Frame | None = None  # special tokens around texts
    example_command: str = 'nextword generate {} "The" --max-tokens 60'
    pipeline: str = "text-generation"  # in transformers; "": none, call `generate`

    # -------------------------------------------------------------------------------------------- settings

    def read_settings(self, config: HFConfig, where: str) -> tuple[dict[str, Any], list[str]]:
        """Our settings from config.json, and notes for the user."""
        config = self.complete_config(config)
        settings, notes = {}, []
        for name, keys in self._keys().items():
            values = {key: config[key] for key in keys if config.get(key) is not None}
            if name in self.null_defaults and not any(values.values()):
                default = self.null_defaults[name]
                notes.append(f"{keys[0]} is {config.get(keys[0])!r}; the run has {name} = {default}.")
                values = {keys[0]: default}
            if not values:
                raise DataError(f"{where} lacks {keys[0]}, which has no default. Add it.", path=where)
            settings[name] = next(iter(values.values()))
            for key, value in values.items():
                if value != settings[name]:
                    first = next(iter(values))
                    notes.append(f"{key} is {value}, but {first} is {settings[name]}; the run has {settings[name]}.")
            _require_number(settings[name], keys[0], where)
        for key, allowed in self.allowed_values(settings).items():
            if key in config and config[key] not in allowed:
                raise Unsupported(
                    f"{where}: {key} = {config[key]!r}, but {self.slugs[0]} can only compute "
                    f"{' or '.join(map(repr, allowed))}. This folder cannot be converted.",
                    ability=key,
                )
        return settings, notes + self.adjust_settings(settings, config, where)

    def complete_config(self, config: HFConfig) -> dict[str, Any]:
        """config.json with defaults, under the keys of this table."""
        defaults = {keys[0]: self.settings[name][1] for name, keys in self._keys().items()}
        given = {self.key_aliases.get(key, key): value for key, value in config.items()}
        return {**defaults, **self.other_defaults, **given}

    def _keys(self) -> dict[str, tuple[str, ...]]:
        """Our settings → their keys."""
        return {name: (keys,) if isinstance(keys, str) else keys for name, (keys, _) in self.settings.items()}

    def write_config(self, config: DataclassInstance, vocabulary: Vocabulary) -> dict[str, Any]:
        """config.json from a Config of ours; raises where transformers cannot express it."""
        settings = {f.name: getattr(config, f.name) for f in fields(config)}
        for f in fields(config):
            default = f.default if f.default is not MISSING else object()
            is_expressible = self.expressible.get(f.name, lambda config: False)
            if f.name not in self.settings and settings[f.name] != default and not is_expressible(config):
                raise Unsupported(
                    f"[model] {f.name} = {settings[f.name]!r} has no counterpart in {self.architecture}, which "
                    f"computes {f.name} = {default!r}. The model cannot be written for transformers.",
                    ability=f.name,
                )
        result: dict[str, Any] = {"architectures": [self.architecture], "model_type": self.model_type}
        result |= {key: settings[name] for name, keys in self._keys().items() for key in keys}
        result |= {key: allowed[0] for key, allowed in self.allowed_values(settings).items()}
        result |= {"tie_word_embeddings": True} if self.tied_weights else {}
        self.adjust_config(result, settings, vocabulary)
        return result

    # -------------------------------------------------------------------------------------------- tensors

    def hf_names(self, name: str) -> tuple[list[str], TensorForm]:
        """The names of one of our tensors in transformers, without the prefix, and its arrangement there."""
        numbers = _LAYER_NUMBER.findall(name)
        pattern = _LAYER_NUMBER.sub("{}", name)
        module, _, parameter = pattern.rpartition(".")
        is_parameter = pattern in self.names  # the table names the parameter itself, not its module
        theirs = self.names[pattern if is_parameter else module]
        form, patterns = UNCHANGED(theirs) if isinstance(theirs, str) else theirs
        return [theirs.format(*numbers) + ("" if is_parameter else f".{parameter}") for theirs in patterns], form

    def read_tensors(
        self, wanted: Mapping[str, Tensor], source: TensorSource, config: HFConfig, where: str
    ) -> LoadedTensors:
        """Our tensors in float32. `wanted` are the tensors of our network, of which only the shapes matter."""
        config = self.complete_config(config)
        available = self._available(source, where)
        mapped = {ours: self.hf_names(ours) for ours in wanted}
        missing_heads = [
            head for head in self.optional_heads if not any(name in available for name in _names_in(head, mapped))
        ]
        loaded = {ours: mapping for ours, mapping in mapped.items() if not _is_inside(ours, missing_heads)}
        self._check_missing(loaded, available, config, missing_heads, where)
        self._check_unexpected(mapped, available, where)
        tensors: dict[str, Tensor] = {}
        wrong_shapes: list[str] = []
        for ours, (names, form) in loaded.items():
            # Writing a tensor without data ("meta") gives the shapes that theirs must have.
            expected = [tuple(part.shape) for part in form.write(wanted[ours].to("meta"), config)]
            shapes = [source.shape(available[name]) for name in names]
            pairs = zip(names, shapes, expected, strict=True)
            wrong_shapes += [f"{name} is {_size(got)}, not {_size(want)}" for name, got, want in pairs if got != want]
        if wrong_shapes:
            raise DataError(
                f"{where} has {_count(wrong_shapes, 'tensor')} whose shape does not match config.json: "
                f"{_list(wrong_shapes)}. Config and weights belong to different networks.",
                path=where,
            )
        for ours, (names, form) in loaded.items():
            parts = [_to_float32(source.get(available[name]), name, where) for name in names]
            tensors[ours] = form.read(parts, config).contiguous()
        for name, ours in self.tied_weights.items():
            if name in available:
                theirs = _to_float32(source.get(available[name]), name, where)
                if not torch.equal(theirs, tensors[ours]):
                    raise Unsupported(
                        f"{where}: {name} differs from {self.hf_names(ours)[0][0]}, but {self.slugs[0]} ties the two. "
                        "This folder cannot be converted.",
                        ability="untied",
                    )
        tensors |= _initialize({ours: wanted[ours] for ours in wanted if _is_inside(ours, missing_heads)})
        notes = [
            f"The folder has no {self.optional_heads[head]}: it is initialized randomly and needs training."
            for head in missing_heads
        ]
        for pattern, description in self.dropped.items():
            if count := sum(bool(re.fullmatch(pattern, name)) for name in available):
                notes.append(f"{self.slugs[0]} has no place for {description} ({count} tensors): left out.")
        return LoadedTensors({ours: tensors[ours] for ours in wanted}, missing_heads, notes)

    def embedding_rows(self, source: TensorSource, where: str) -> int:
        """The size of the vocabulary in their weights."""
        available = self._available(source, where)
        name = self.hf_names("embedding.weight")[0][0]
        if name not in available:
            raise DataError(f"{where} lacks the tensor {name}. Copy the folder again.", path=where)
        return [*source.shape(available[name]), 0][0]

    def _available(self, source: TensorSource, where: str) -> dict[str, str]:
        """Today's names of their tensors → the names in the file."""
        available: dict[str, str] = {}
        for name in source.names():
            current = self._current_name(name)
            if current in available:
                raise DataError(f"{where} has {current} twice, as {available[current]} and {name}.", path=where)
            available[current] = name
        return available

    def _check_missing(
        self,
        loaded: Mapping[str, tuple[list[str], TensorForm]],
        available: Mapping[str, str],
        config: HFConfig,
        missing_heads: Sequence[str],
        where: str,
    ) -> None:
        needed = [name for names, _ in loaded.values() for name in names]
        if config.get("tie_word_embeddings") is False and "readout" not in missing_heads:
            needed += [name for name in self.tied_weights if name.endswith(".weight")]  # both must exist, and be equal
        missing = [name for name in needed if name not in available]
        if missing:
            raise DataError(
                f"{where} lacks {_count(missing, 'tensor')} that config.json requires: {_list(missing)}. Copy the "
                "folder again, unless it is another kind of network.",
                path=where,
            )

    def _check_unexpected(
        self, mapped: Mapping[str, tuple[list[str], TensorForm]], available: Iterable[str], where: str
    ) -> None:
        known = {name for names, _ in mapped.values() for name in names} | self.tied_weights.keys()
        patterns = (*self.ignored, *self.dropped)
        unexpected = [
            name for name in available if name not in known and not any(re.fullmatch(p, name) for p in patterns)
        ]
        if unexpected:
            raise DataError(
                f"{where} has {_count(unexpected, 'tensor')} that {self.slugs[0]} has no place for: "
                f"{_list(unexpected)}. If they belong to a task head, save the model as {self.architecture}.",
                path=where,
            )

    def write_tensors(
        self, wanted: Mapping[str, Tensor], ours: Mapping[str, Tensor], config: HFConfig
    ) -> tuple[dict[str, Tensor], int]:
        """Their tensors from ours, and how many of their biases we lack, which are written as zeros.

        `wanted` are the tensors of the network that the folder would be read as; `config` is its config.json.
        """
        config, tensors, num_zeros = self.complete_config(config), {}, 0
        for name, like in wanted.items():
            source = _LAYER_NUMBER.sub("0", name) if self.shares_layers and name not in ours else name
            if source not in ours and not name.endswith(".bias"):
                raise DataError(f"The run has no {name}, which {self.architecture} requires.", path=name)
            num_zeros += source not in ours
            tensor = ours.get(source, torch.zeros(like.shape))
            names, form = self.hf_names(name)
            for theirs, part in zip(names, form.write(tensor, config), strict=True):
                full_name = theirs if theirs.startswith(self.unprefixed) else self.prefix + theirs
                tensors[full_name] = part.contiguous().clone()  # safetensors refuses shared memory
        return tensors, num_zeros

    def _current_name(self, name: str) -> str:
        """Their name without the prefix, as transformers spells it today."""
        name = name.removeprefix(self.prefix)
        for old, new in self.legacy_suffixes.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name


# ------------------------------------------------------------------------------------------------ helpers


def _is_inside(name: str, modules: Iterable[str]) -> bool:
    return any(name.startswith(f"{module}.") for module in modules)


def _names_in(head: str, mapped: Mapping[str, tuple[list[str], TensorForm]]) -> list[str]:
    """Their names of the tensors of one of our heads."""
    return [name for ours, (names, _) in mapped.items() if _is_inside(ours, [head]) for name in names]


def _initialize(like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices from N(0, 0.02²), norm weights one, biases zero; the same each time."""
    generator, tensors = torch.Generator().manual_seed(1), {}
    for name, tensor in like.items():
        if tensor.dim() > 1:
            tensors[name] = torch.empty(tensor.shape).normal_(0, INITIAL_STD, generator=generator)
        else:
            tensors[name] = torch.full(tensor.shape, float(name.endswith("norm.weight")))
    return tensors


def _require_number(value: object, key: str, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{where}: {key} = {value!r}; expected a number.", path=where)


def _to_float32(tensor: Tensor, name: str, where: str) -> Tensor:
    if tensor.dtype not in READABLE_DTYPES:
        raise Unsupported(
            f"{where}: {name} has the type {str(tensor.dtype).removeprefix('torch.')}, so the model is quantized. Save "
            "it in float32, float16 or bfloat16.",
            ability="dtype",
        )
    tensor = tensor.to(torch.float32).contiguous()
    if not tensor.isfinite().all():
        raise DataError(
            f"{where}: {name} has numbers that are infinite, or none (NaN). Copy the folder again.", path=where
        )
    return tensor


def _count(names: Sequence[str], noun: str) -> str:
    return f"{len(names):,} {noun}{'s' if len(names) > 1 else ''}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_SHOWN]) + (f", … ({len(names) - MAX_SHOWN:,} more)" if len(names) > MAX_SHOWN else "")


def _size(shape: Iterable[int]) -> str:
    return " × ".join(map(str, shape)) or "a scalar"
