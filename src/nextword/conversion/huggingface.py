"""Folders of Hugging Face's transformers: read them into runs, write runs as such folders.

    config.json                     the network's settings: see name_map.py and the tables hf_*.py
    model.safetensors, …            its weights (`CheckpointFiles`)
    tokenizer.json, vocab.json, …   its tokenizer: see tokenizers/hf_export.py
    generation_config.json          special tokens for `generate`, and tokens that are never generated

A run read from a folder has the folder's tokenizer, with `begin` and `end` as the folder names them. What the network
was trained on is unknown; the manifest records the checksums of the files. A network with more embedding rows than its
tokenizer has tokens keeps them, under names that no text contains, so that every probability stays the same.

If transformers has no tokenizer like ours, the weights are written all the same, next to our own tokenizer file.

Weights are looked for in this order:

    model.safetensors               one file
    model.safetensors.index.json    several files, and which tensor is in which
    pytorch_model.bin               the same two as torch pickles
    pytorch_model.bin.index.json

A pickle can contain a program that runs when it is opened. These are opened with torch's weights_only, which accepts
only tensors; a pickle that needs more is refused, and nothing of it has run.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nextword.conversion.base import (
    RUN_FORMAT,
    TOKENIZER_KEY,
    Conversion,
    OpenedRun,
    Progress,
    check_changes,
    create_run,
    describe_origin,
    folder_size,
    last_value,
    move_into_place,
    network_facts,
    open_run,
    take_tokenizer,
    temporary_folder,
)
from nextword.conversion.hf_bert import NAME_MAPS as BERT
from nextword.conversion.hf_gpt import NAME_MAPS as GPT
from nextword.conversion.hf_t5 import NAME_MAPS as T5
from nextword.conversion.hf_xlnet import NAME_MAPS as XLNET
from nextword.conversion.name_map import NameMap
from nextword.core.errors import DataError, MissingFile, NextwordError, Unsupported, explain_write_errors, invalid
from nextword.core.io import read_json
from nextword.core.protocols import Autoregressive
from nextword.data.text_to_text import is_tasks, list_prefixes
from nextword.models import model_class
from nextword.models.base import Network
from nextword.models.storage import building_without_memory
from nextword.objectives import trains_blank_filling
from nextword.recipe import Recipe, load_recipe, network_config, parse_recipe
from nextword.run_folder import RunFolder, checksum
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.characters import Bytes
from nextword.tokenizers.hf_export import NORMALIZER_SETTINGS, export_tokenizer, pad_vocabulary, restore
from nextword.tokenizers.loading import load_tokenizer, translate_errors
from nextword.tokenizers.special_tokens import MARKS, sentinels
from nextword.tokenizers.subwords import Subwords, names_of

NAME, KNOWN_BY = "a Hugging Face folder", "--to huggingface"
NAME_MAPS: tuple[NameMap, ...] = (*GPT, *BERT, *XLNET, *T5)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SAFETENSORS, PICKLE, INDEX = "model.safetensors", "pytorch_model.bin", ".index.json"
OTHER_WEIGHTS = ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "adapter_model.safetensors")
OWN_TOKENIZER = "nextword-tokenizer.json"  # written if transformers has no tokenizer like ours
COPY = "Copy it again."
GPT1_BOUNDARY = "\n</w>"  # GPT-1 names no special token between texts


def is_source(path: Path) -> bool:
    return path.is_dir() and (path / "config.json").is_file()


# ------------------------------------------------------------------------------------------------ reading a folder


def read(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Conversion:
    check_changes(changes, (TOKENIZER_KEY,))
    config = read_json(source / "config.json", remedy=COPY)
    name_map = _find_name_map(config, source)
    settings, notes = name_map.read_settings(config, str(source / "config.json"))
    files = CheckpointFiles(source)
    rows = name_map.embedding_rows(files, str(source))
    tokenizer_path, _ = take_tokenizer(changes)
    tokenizer = load_tokenizer(tokenizer_path) if tokenizer_path else _read_tokenizer(source, config, name_map)
    tokenizer = _fit_vocabulary(tokenizer, config, rows, source, notes)
    tokenizer = _with_decoder_start(tokenizer, config, source)
    recipe = _make_recipe(name_map, settings, tokenizer, source.name)
    with building_without_memory(len(files.names()), source / "config.json", DataError):
        network = model_class(name_map.slugs[0])(network_config(recipe), vocabulary(tokenizer)).eval()
    progress(f"reading {source.name}", 0, None)
    loaded = name_map.read_tensors(network.state_dict(), files, config, str(source))
    network.load_state_dict(loaded.tensors, assign=True)
    progress(f"writing {target.name}", 0, None)
    checksums = {path.name: checksum(path) for path in (source / "config.json", *files.files)}
    initialized = {"initialized": loaded.initialized} if loaded.initialized else {}
    origin = describe_origin(source, NAME, recipe, files=checksums, **initialized)
    num_parameters = create_run(target, recipe, tokenizer, lambda scratch: network, **origin)
    facts = network_facts(num_parameters, recipe, tokenizer)
    use = name_map.example_command.format(target)
    return Conversion(target, RUN_FORMAT, folder_size(target), facts, use, notes + loaded.notes)


def _find_name_map(config: Mapping[str, Any], source: Path) -> NameMap:
    model_type, classes = config.get("model_type"), config.get("architectures")
    classes = classes if isinstance(classes, list) else []
    for name_map in NAME_MAPS:
        is_type = model_type == name_map.model_type or (model_type is None and name_map.architecture in classes)
        if is_type and name_map.matches_config(config):
            return name_map
    known = ", ".join(dict.fromkeys(f"{m.model_type} ({m.slugs[0]} here)" for m in NAME_MAPS))
    found = f"model_type {model_type!r}" if model_type is not None else f"no model_type, and architectures {classes!r}"
    raise Unsupported(
        f"{source / 'config.json'} has {found}, which is not supported. Supported: {known}.", ability=str(model_type)
    )


def _make_recipe(name_map: NameMap, settings: Mapping[str, Any], tokenizer: Tokenizer, name: str) -> Recipe:
    """A recipe for a network that was trained elsewhere. Its phase names no data: there is nothing to train again."""
    slug = name_map.slugs[0]
    paper = {**load_recipe(f"{slug}/tiny").paper, "sources": {"model": f"trained elsewhere and read from {name}"}}
    size = {} if isinstance(tokenizer, Bytes) else {"size": len(tokenizer)}
    tables = {
        "paper": paper,
        "tokenizer": {"kind": tokenizer.kind, **size},
        "model": dict(settings),
        "phase": [{**name_map.phase(settings), "steps": 1}],
    }
    return parse_recipe(tables, name)


# ------------------------------------------------------------------------------------------------ reading its tokenizer


def _read_tokenizer(source: Path, config: Mapping[str, Any], name_map: NameMap) -> Tokenizer:
    """The folder's own tokenizer. If its files do not say which tokens begin and end a text, config.json may."""
    file = source / "tokenizer.json"
    with translate_errors(file):
        return _read_tokenizer_parts(source, name_map) if not file.is_file() else _read_tokenizer_json(file, config)


def _read_tokenizer_json(file: Path, config: Mapping[str, Any]) -> Tokenizer:
    content = read_json(file, remedy=COPY)
    if (own := restore(content)) is not None:
        return own
    try:
        return _apply_tokenizer_config(load_tokenizer(file), file.parent)
    except NextwordError:
        tokenizer = _with_ends_from_config(content, config)
        if tokenizer is None:
            raise
        return _apply_tokenizer_config(tokenizer, file.parent)


def _read_tokenizer_parts(source: Path, name_map: NameMap) -> Tokenizer:
    """The tokenizer of a folder without tokenizer.json: vocab.json and the like, or our own file."""
    if (source / OWN_TOKENIZER).is_file():
        return load_tokenizer(source / OWN_TOKENIZER)
    if name_map.frame is not None and (pieces := sorted(source.glob("*.model"))):
        raise Unsupported(
            f"{source} has its tokenizer only as {pieces[0].name}, which does not say how case and accents are "
            "treated. Let transformers create a tokenizer.json: "
            f"AutoTokenizer.from_pretrained('{source}').save_pretrained('{source}'). Or give another tokenizer: "
            "--tokenizer PATH.",
            ability="sentencepiece",
        )
    try:
        return _apply_tokenizer_config(load_tokenizer(source), source)
    except NextwordError as error:
        raise DataError(f"{error} Or give another tokenizer: --tokenizer PATH.", path=source) from None


def _apply_tokenizer_config(tokenizer: Tokenizer, source: Path) -> Tokenizer:
    """Settings for spaces, case and accents in tokenizer_config.json override tokenizer.json, as in transformers."""
    path = source / "tokenizer_config.json"
    config = read_json(path, remedy=COPY) if path.is_file() else {}
    if not isinstance(tokenizer, Subwords):
        return tokenizer
    content = dict(tokenizer.library)
    pre_tokenizer, normalizer = content["pre_tokenizer"] or {}, content["normalizer"] or {}
    space = config.get("add_prefix_space")
    if pre_tokenizer.get("type") == "ByteLevel" and isinstance(space, bool):
        content["pre_tokenizer"] = {**pre_tokenizer, "add_prefix_space": space}
    if normalizer.get("type") == "BertNormalizer":
        changes = {key: config[theirs] for key, theirs in NORMALIZER_SETTINGS.items() if theirs in config}
        content["normalizer"] = {**normalizer, **changes}
    if content == tokenizer.library:
        return tokenizer
    return Subwords(content, tokenizer.special, tokenizer.begin, tokenizer.end)


def _with_ends_from_config(content: Mapping[str, Any], config: Mapping[str, Any]) -> Tokenizer | None:
    """A tokenizer whose begin and end are the ids in config.json, or GPT-1's boundary; None if neither is a token."""
    if not isinstance(content.get("model"), dict):
        return None
    names = names_of(content)
    begin_id, end_id = (_single_id(config.get(key)) for key in ("bos_token_id", "eos_token_id"))
    boundary = names.get(GPT1_BOUNDARY)
    begin = next((id for id in (begin_id, end_id) if id is not None), boundary)
    end = next((id for id in (end_id, begin_id) if id is not None), boundary)
    if begin is None or end is None or not {begin, end} <= set(names.values()):
        return None
    special = {token["content"]: token["id"] for token in content.get("added_tokens") or [] if token["special"]}
    return Subwords({**content, "truncation": None, "padding": None}, special, begin, end)


def _fit_vocabulary(
    tokenizer: Tokenizer, config: Mapping[str, Any], rows: int, source: Path, notes: list[str]
) -> Tokenizer:
    """The tokenizer with as many ids as the network has embedding rows."""
    size = config.get("vocab_size")
    if size is not None and (type(size) is not int or size != rows):
        raise DataError(
            f"{source}: the embedding has {rows:,} rows, but config.json has vocab_size = {size!r}. Config and weights "
            "belong to different networks.",
            path=source,
        )
    if rows < len(tokenizer):
        raise DataError(
            f"{source}: the tokenizer has {len(tokenizer):,} tokens, but the embedding {rows:,} rows. Give the "
            "network's own tokenizer: --tokenizer PATH.",
            path=source,
        )
    if rows > len(tokenizer):
        notes.append(f"{rows - len(tokenizer):,} of {rows:,} embedding rows belong to no token; they are kept unused.")
        return pad_vocabulary(tokenizer, rows)
    return tokenizer


def _with_decoder_start(tokenizer: Tokenizer, config: Mapping[str, Any], source: Path) -> Tokenizer:
    """The tokenizer with decoder_start_token_id as `begin`: T5 starts targets with the padding token."""
    start = _single_id(config.get("decoder_start_token_id"))
    if start is None or start == tokenizer.begin or not isinstance(tokenizer, Subwords):
        return tokenizer
    if not 0 <= start < len(tokenizer):
        raise DataError(
            f"{source / 'config.json'}: decoder_start_token_id = {start}, but there are {len(tokenizer):,} tokens. "
            "Correct it, or give the network's own tokenizer: --tokenizer PATH.",
            path=source / "config.json",
        )
    return Subwords(tokenizer.library, tokenizer.special, start, tokenizer.end)


def _single_id(value: object) -> int | None:
    value = value[0] if isinstance(value, list) and value else value
    return value if type(value) is int else None


# ------------------------------------------------------------------------------------------------ reading its weights


@dataclass(frozen=True)
class SafetensorsPart:
    """A tensor in a file, of which only the header has been read."""

    path: Path
    file: Any  # of safe_open
    name: str
    shape: tuple[int, ...]

    def read(self) -> Tensor:
        try:
            tensor: Tensor = self.file.get_tensor(self.name)
        except (SafetensorError, OSError, RuntimeError) as error:  # for example of a type that torch does not have
            raise DataError(f"{self.path}: {self.name} cannot be read ({error}). {COPY}", path=self.path) from None
        return tensor


class CheckpointFiles:
    """Tensors by name, over one file or several; those in safetensors are read on demand."""

    def __init__(self, folder: Path) -> None:
        self.files, index = _find_weights(folder)
        self._parts: dict[str, Tensor | SafetensorsPart] = {}
        for file in self.files:
            self._parts |= _open_safetensors(file) if file.name.endswith(".safetensors") else _open_pickle(file)
        if missing := [name for name in index if name not in self._parts]:
            raise DataError(
                f"{folder}: the index names {len(missing):,} tensors that its files lack, first {missing[0]} in "
                f"{index[missing[0]]}. Copy the folder again.",
                path=folder,
            )

    def names(self) -> Sequence[str]:
        return list(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._parts[name].shape)

    def get(self, name: str) -> Tensor:
        part = self._parts[name]
        return part if isinstance(part, Tensor) else part.read()


def _find_weights(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The files with weights, and the index (tensor → file name), if there are several."""
    for single in (SAFETENSORS, PICKLE):
        if (folder / single).is_file():
            return [folder / single], {}
        if (folder / (single + INDEX)).is_file():
            index = _read_index(folder / (single + INDEX))
            return [folder / name for name in dict.fromkeys(index.values())], index
    others = [name for name in OTHER_WEIGHTS if (folder / name).is_file()]
    hint = f"{', '.join(others)} cannot be read: save it as safetensors." if others else "Copy it again."
    raise MissingFile(
        f"{folder} has no weights: expected {SAFETENSORS} or {PICKLE}, or an index of several files. {hint}",
        path=folder,
    )


def _read_index(path: Path) -> dict[str, str]:
    index = read_json(path, {"weight_map": dict}, COPY)["weight_map"]
    if not index or not all(isinstance(name, str) for name in index.values()):
        raise DataError(f"{path}: weight_map must name a file for each tensor. {COPY}", path=path)
    for name in dict.fromkeys(index.values()):
        if Path(name).name != name:
            raise DataError(f"{path} refers to {name!r} outside its folder, which is not opened.", path=path)
        if not (path.parent / name).is_file():
            raise MissingFile(
                f"{path.parent} lacks {name}, which {path.name} names. Copy it again.", path=path.parent / name
            )
    return dict(index)


def _open_safetensors(path: Path) -> dict[str, Tensor | SafetensorsPart]:
    try:
        file = safe_open(str(path), framework="pt", device="cpu")
        names = list(file.keys())
        return {name: SafetensorsPart(path, file, name, tuple(file.get_slice(name).get_shape())) for name in names}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is not a complete safetensors file ({error}). Copy it again.", path=path) from None


def _open_pickle(path: Path) -> dict[str, Tensor | SafetensorsPart]:
    content: Any
    try:
        with warnings.catch_warnings():  # about unusual pickles, which are refused below
            warnings.simplefilter("ignore")
            # files from before 2020 are not zip archives and cannot be memory-mapped
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # whatever a broken or forbidden pickle raises
        first_line = (str(error).splitlines() or [""])[0][:100]
        raise DataError(
            f"{path} is damaged or contains more than tensors, so it was not opened ({type(error).__name__}: "
            f"{first_line}). Get the model as model.safetensors.",
            path=path,
        ) from None
    if not isinstance(content, dict) or not all(
        isinstance(tensor, Tensor) and isinstance(name, str) for name, tensor in content.items()
    ):
        raise DataError(f"{path} is not a table of tensors by name, as transformers saves it.", path=path)
    for name, tensor in content.items():
        if not _has_all_numbers(tensor):
            problem = f"{name} claims the shape {tuple(tensor.shape)}, for which the file has too few numbers"
            raise DataError(f"{path}: {problem}. Get the model as model.safetensors.", path=path)
    return dict(content)


def _has_all_numbers(tensor: Tensor) -> bool:
    """Whether the file holds each number of a tensor: a pickle can repeat one to any shape, or leave them out."""
    is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    return is_plain and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


# ------------------------------------------------------------------------------------------------ writing a folder


def can_write(run: RunFolder, cls: type[Network]) -> bool:
    return any(run.recipe.slug in name_map.slugs for name_map in NAME_MAPS)


def write(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Conversion:
    check_changes(changes, ("huggingface.dtype",))
    dtype = last_value(changes, "float32", DTYPES)
    progress(f"reading {source.name}", 0, None)
    run = open_run(source, _require_name_map)
    recipe, tokenizer, network = run.recipe, run.tokenizer, run.network
    name_map = _choose_name_map(recipe.slug, network.config)
    config = name_map.write_config(network.config, vocabulary(tokenizer))
    config |= {"vocab_size": len(tokenizer), "torch_dtype": dtype}
    ends = {"bos_token_id": tokenizer.begin, "eos_token_id": tokenizer.end}
    # The network that the folder would be read as says which tensors it must have.
    settings, _ = name_map.read_settings(config, str(target))
    like_class = model_class(name_map.slugs[0])
    with torch.device("meta"):
        like = like_class(like_class.Config(**settings), vocabulary(tokenizer))
    tensors, num_zeros = name_map.write_tensors(like.state_dict(), network.state_dict(), config)
    tensors = {name: _to_dtype(tensor, name, dtype) for name, tensor in tensors.items()}
    progress(f"writing {target.name}", 0, None)
    with explain_write_errors(target), temporary_folder(target) as scratch:
        folder = scratch / "folder"
        folder.mkdir()
        save_file(tensors, str(folder / SAFETENSORS), metadata={"format": "pt"})
        (folder / SAFETENSORS).chmod(0o644)
        has_tokenizer = bool(export_tokenizer(tokenizer, folder, network.max_positions, name_map.frame))
        if not has_tokenizer:
            tokenizer.save(folder / OWN_TOKENIZER)
        if isinstance(network, Autoregressive):
            generation = {**ends, "pad_token_id": tokenizer.end, **_suppressed_tokens(run)}
            _write_json(folder / "generation_config.json", generation)
        _write_json(folder / "config.json", {**config, **ends})
        move_into_place(folder, target)
    facts = network_facts(network.num_parameters(), recipe, tokenizer)
    use = _example_command(name_map, str(target), tokenizer, _example_source(run))
    notes = _write_notes(run, name_map, like, num_zeros, has_tokenizer)
    return Conversion(target, NAME, folder_size(target), facts, use, notes)


def _require_name_map(run: RunFolder, cls: type[Network]) -> None:
    if not can_write(run, cls):
        known = dict.fromkeys(slug for name_map in NAME_MAPS for slug in name_map.slugs)
        raise Unsupported(
            f"{run.path} is a run of {cls.__name__}, and transformers has no such network. Supported: "
            f"{', '.join(known)}.",
            ability="huggingface",
        )


def _choose_name_map(slug: str, config: Any) -> NameMap:
    """The table whose networks compute the same; if none does, the first, which says why not."""
    candidates = [name_map for name_map in NAME_MAPS if slug in name_map.slugs]
    return next((name_map for name_map in candidates if name_map.matches_model(config)), candidates[0])


def _to_dtype(tensor: Tensor, name: str, dtype: str) -> Tensor:
    converted = tensor.to(DTYPES[dtype])
    if not torch.equal(converted.isfinite(), tensor.isfinite()):
        raise invalid("huggingface.dtype", dtype, f"cannot represent {name}. Use float32 or bfloat16.", "--set")
    return converted


def _suppressed_tokens(run: OpenedRun) -> dict[str, list[int]]:
    """Special tokens that our `generate` never produces, so that transformers does not either."""
    tokenizer = run.tokenizer
    generated = sentinels(tokenizer.special) if _fills_spans(run) else ()
    banned = sorted(id for id in tokenizer.special.values() if id != tokenizer.end and id not in generated)
    return {"suppress_tokens": banned} if banned else {}


def _fills_spans(run: OpenedRun) -> bool:
    """Whether the run was trained to write sentinels and the spans behind them."""
    return trains_blank_filling(run.recipe.phases[-1].objective)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    content = {key: value for key, value in value.items() if value is not None or key == "n_inner"}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _example_source(run: OpenedRun) -> str:
    """A source such as the run was trained on."""
    data = run.recipe.phases[-1].data
    if _fills_spans(run) and sentinels(run.tokenizer.special):
        return "The <extra_id_0> is"
    return f"{list_prefixes(data)[0]}The" if is_tasks(data) and list_prefixes(data) else "The"


def _example_command(name_map: NameMap, target: str, tokenizer: Tokenizer, source: str) -> str:
    """A command that tries the folder in transformers."""
    special = tokenizer.special
    if not name_map.pipeline:  # transformers 5 has no pipeline for sequence-to-sequence models
        ids = f"t('{source}', return_tensors='pt').input_ids"
        code = f"t = T.from_pretrained('{target}'); print(t.decode(M.from_pretrained('{target}').generate({ids})[0]))"
        return f'python -c "from transformers import AutoModelForSeq2SeqLM as M, AutoTokenizer as T; {code}"'
    names = {id: name for name, id in special.items()}
    mask = next((name for name in MARKS["mask"] if name in special), "")
    text = f"The {mask} is" if name_map.pipeline == "fill-mask" else f"{names.get(tokenizer.begin, '')}The"
    call = f"pipeline('{name_map.pipeline}', '{target}')('{text}')"
    return f'python -c "from transformers import pipeline; print({call})"'


def _write_notes(run: OpenedRun, name_map: NameMap, like: Network, num_zeros: int, has_tokenizer: bool) -> list[str]:
    recipe, tokenizer, notes = run.recipe, run.tokenizer, []
    if recipe.slug != name_map.slugs[0]:
        notes.append(f"Every layer of this {recipe.slug} is dense, so it is written as {name_map.model_type}.")
    if num_zeros:
        notes.append(f"The network has no biases: {num_zeros:,} biases of {name_map.architecture} are zero.")
    extra = like.num_parameters() - run.network.num_parameters()
    if name_map.shares_layers and extra:
        notes.append(f"{name_map.architecture} shares whole layers or none: {extra:,} weights are written repeatedly.")
    for head in (run.run.manifest.get("converted") or {}).get("initialized", ()):
        notes.append(
            f"The {name_map.optional_heads[head]} was initialized randomly when this run was read, and not trained."
        )
    if not has_tokenizer:
        notes.append(
            f"transformers has no tokenizer like {tokenizer.kind}: the folder has the weights, and {OWN_TOKENIZER} for "
            "nextword."
        )
    elif name_map.frame is None and tokenizer.begin in tokenizer.special.values():
        notes.append("nextword begins every text with a token; in transformers put tokenizer.bos_token before it.")
    return notes
