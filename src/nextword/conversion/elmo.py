"""ELMo as allenai published it: options as JSON, weights as HDF5, and optionally a vocabulary.

    *options.json       sizes
    *weights.hdf5       character CNN and LSTMs, as bilm-tf's dump_weights writes them, without the softmax
    vocab*.txt          one word per line; optional, since words are read by their characters

bilm-tf and AllenNLP read these files, and also those written here. A run read from them gives word vectors; it has no
output layer, so it predicts nothing. How the tensors correspond:

    allenai                                                         nextword
    char_embed (261, C)   bytes, <S>, </S>, word begin, end, pad    bytes, word begin, end, pad, <unk>, <eos>, beginning
    CNN/W_cnn_i (1, w, C, n)                                        filters.i.weight (n, C, w)
    CNN_high_i/W_transform, W_carry (n, n)                          highway.i.weight (2n, n): stacked
    RNN_s/…/Celli/LSTMCell/W_0 (I + P, 4H)    gates i, g, f, o      weight_ih[s], weight_hh[s]: gates i, f, g, o
    …/B (4H)    TensorFlow adds 1 to the forget gate                bias[s]: including that 1
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.conversion.base import (
    RUN_FORMAT,
    Conversion,
    Progress,
    check_changes,
    create_run,
    describe_origin,
    folder_size,
    move_into_place,
    network_facts,
    open_run,
    temporary_folder,
)
from nextword.core.errors import DataError, MissingDependency, Unsupported, bad_data, explain_write_errors
from nextword.core.io import check_json, read_json
from nextword.data.files import read_lines
from nextword.layers.char_cnn import BEGIN, END, OTHERS, PADDING
from nextword.models.base import Network
from nextword.models.elmo import ELMo
from nextword.models.storage import MOST_TENSORS, building_without_memory
from nextword.recipe import Recipe, load_recipe, network_config, parse_recipe
from nextword.run_folder import RunFolder, checksum
from nextword.tokenizers import vocabulary
from nextword.tokenizers.words import EOS, UNKNOWN, Words

NAME, KNOWN_BY = "an ELMo folder of allenai", "--to elmo"
SLUG = "elmo"
OPTIONS, WEIGHTS, VOCABULARY = "options.json", "weights.hdf5", "vocab.txt"
VOCABULARY_MARKS = ("<S>", "</S>", "<UNK>")  # the first lines of their vocabulary
NUM_CHARACTERS = 261  # theirs: 256 bytes, <S>, </S>, word begin, word end, padding
TEXT_BEGIN, TEXT_END, WORD_BEGIN, WORD_END, WORD_PADDING = range(256, 261)  # their ids
FORGET_BIAS = 1.0  # TensorFlow's LSTM cell adds it to the forget gate
MAX_SHOWN = 4  # wrong tensors in an error

COPY = "Copy it again."
MAX_COMPRESSION, FREE_BYTES = 4, 1 << 20  # weights hardly compress; more is claimed than there is
LSTM_OPTIONS = {  # key → type; bilm-tf writes null for no clipping
    "projection_dim": int,
    "dim": int,
    "n_layers": int,
    "cell_clip": float | None,
    "proj_clip": float | None,
    "use_skip_connections": bool | None,
}
CNN_OPTIONS = {
    "embedding": dict,
    "filters": list,
    "max_characters_per_token": int,
    "n_highway": int | None,
    "n_characters": int | None,
    "activation": str | None,
}

GetTensor = Callable[..., Tensor]  # (name, *shape) → their tensor


def is_source(path: Path) -> bool:
    return path.is_dir() and bool(sorted(path.glob(f"*{WEIGHTS}"))) and bool(sorted(path.glob(f"*{OPTIONS}")))


# ------------------------------------------------------------------------------------------------ reading


def read(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Conversion:
    check_changes(changes, ())
    options, weights = _only_file(source, OPTIONS), _only_file(source, WEIGHTS)
    settings = read_options(read_json(options, remedy=COPY), options)
    words, notes = _read_vocabulary(source)
    tokenizer = Words(words, lines=False)
    recipe = _make_recipe(settings, tokenizer, source.name)
    config, words_with_spellings = network_config(recipe), vocabulary(tokenizer, spellings=True)
    progress(f"reading {source.name}", 0, None)
    with _open_hdf5(weights) as file:
        with building_without_memory(_count_datasets(file), options, DataError):
            check_shapes(ELMo(config, words_with_spellings), file, weights)
        network = ELMo(config, words_with_spellings).eval()
        network.load_state_dict(read_tensors(network, partial(_read_dataset, file, weights)))
    progress(f"writing {target.name}", 0, None)
    checksums = {path.name: checksum(path) for path in (options, weights)}
    origin = describe_origin(source, NAME, recipe, files=checksums)
    num_parameters = create_run(target, recipe, tokenizer, lambda scratch: network, **origin)
    notes.append("The run gives word vectors but predicts nothing: these weights come without a softmax.")
    facts = network_facts(num_parameters, recipe, tokenizer)
    use = f"nextword embed {target} FILE --words --layer all"
    return Conversion(target, RUN_FORMAT, folder_size(target), facts, use, notes)


def read_options(options: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Our [model] settings from their options."""
    lstm, cnn = options.get("lstm"), options.get("char_cnn")
    if not isinstance(lstm, dict) or not isinstance(cnn, dict):
        raise Unsupported(
            f"{path} has the keys {', '.join(sorted(options)) or 'none'}; expected lstm and char_cnn. Only ELMo models "
            "that read characters can be converted.",
            ability="char_cnn",
        )
    check_json(options, {"dropout": float | None}, path, remedy=COPY)
    check_json(lstm, LSTM_OPTIONS, path, "in lstm, ", COPY)
    check_json(cnn, CNN_OPTIONS, path, "in char_cnn, ", COPY)
    check_json(cnn["embedding"], {"dim": int}, path, "in char_cnn.embedding, ", COPY)
    filters = cnn["filters"]
    if not all(isinstance(pair, list) and [type(number) for number in pair] == [int, int] for pair in filters):
        raise bad_data(path, f"the filters in char_cnn must be pairs [width, number]. {COPY}")
    settings = {
        "width": lstm["projection_dim"],
        "cell_size": lstm["dim"],
        "layers": lstm["n_layers"],
        "cell_clip": float(lstm.get("cell_clip") or 0),
        "projection_clip": float(lstm.get("proj_clip") or 0),
        "residual": bool(lstm.get("use_skip_connections")),
        "dropout": float(0.1 if options.get("dropout") is None else options["dropout"]),
        "characters": {
            "filters": filters,
            "character_width": cnn["embedding"]["dim"],
            "highway": cnn.get("n_highway") or 0,
            "max_word_length": cnn["max_characters_per_token"],
            "activation": cnn.get("activation") or "relu",
        },
        "readout": {"kind": "none"},
        "begin_token": True,
    }
    if cnn.get("n_characters") not in (None, NUM_CHARACTERS, NUM_CHARACTERS + 1):
        raise Unsupported(
            f"{path}: n_characters = {cnn['n_characters']}; expected {NUM_CHARACTERS} or {NUM_CHARACTERS + 1}.",
            ability="n_characters",
        )
    return settings


def check_shapes(network: ELMo, file: Any, path: Path) -> None:
    """Raise DataError unless the file has the tensors of a network, whose own may be without memory ("meta")."""
    wrong: list[str] = []
    size = 0

    def get(name: str, *shape: int) -> Tensor:
        nonlocal size
        dataset = _find_dataset(file, name, path)
        if dataset is None:
            wrong.append(f"{name} is missing, expected {shape}")
        elif tuple(dataset.shape) != shape:
            wrong.append(f"{name} is {tuple(dataset.shape)}, expected {shape}")
        else:
            size += dataset.nbytes
        return torch.zeros(shape)

    read_tensors(network, get)
    if wrong:
        more = f"; and {len(wrong) - MAX_SHOWN} more" if len(wrong) > MAX_SHOWN else ""
        raise DataError(
            f"{path} does not match its options: {'; '.join(wrong[:MAX_SHOWN])}{more}. Copy both files again.",
            path=path,
        )
    if size > MAX_COMPRESSION * path.stat().st_size + FREE_BYTES:
        raise DataError(f"{path} claims {size:,} bytes of numbers, but is much smaller. {COPY}", path=path)


def read_tensors(network: ELMo, get: GetTensor) -> dict[str, Tensor]:
    """Our tensors from theirs."""
    cnn, config = network.embedding.cnn, network.config
    width, cells = config.width, config.cell_size
    filters, num_filters = list(cnn.filters), sum(layer.out_channels for layer in cnn.filters)
    tensors: dict[str, Tensor] = {}
    theirs = get("char_embed", NUM_CHARACTERS, filters[0].in_channels)
    table = torch.zeros_like(cnn.characters.weight)
    for our_id, their_id in _character_ids(network).items():
        table[our_id] = theirs[their_id]
    tensors["embedding.cnn.characters.weight"] = table
    for i, layer in enumerate(filters):
        number, characters, size = layer.weight.shape
        kernel = get(f"CNN/W_cnn_{i}", 1, size, characters, number)
        tensors[f"embedding.cnn.filters.{i}.weight"] = kernel[0].permute(2, 1, 0)
        tensors[f"embedding.cnn.filters.{i}.bias"] = get(f"CNN/b_cnn_{i}", number)
    for i in range(len(cnn.highway)):
        weights = [get(f"CNN_high_{i}/W_{part}", num_filters, num_filters).t() for part in ("transform", "carry")]
        biases = [get(f"CNN_high_{i}/b_{part}", num_filters) for part in ("transform", "carry")]
        tensors[f"embedding.cnn.highway.{i}.weight"] = torch.cat(weights)
        tensors[f"embedding.cnn.highway.{i}.bias"] = torch.cat(biases)
    tensors["embedding.cnn.projection.weight"] = get("CNN_proj/W_proj", num_filters, width).t()
    tensors["embedding.cnn.projection.bias"] = get("CNN_proj/b_proj", width)
    for i in range(config.layers):
        directions = [_read_lstm(get, _cell_name(direction, i), width, cells) for direction in (0, 1)]
        for name in directions[0]:
            tensors[f"layers.{i}.{name}"] = torch.stack([direction[name] for direction in directions])
    return tensors


def _character_ids(network: ELMo) -> dict[int, int]:
    """Our character id → theirs. Our unknown word has no counterpart; its vector is 0."""
    special = sorted([*network.vocabulary.special.values(), *([network.begin] if network.config.begin_token else [])])
    end = network.vocabulary.end if network.vocabulary.end is not None else network.vocabulary.begin
    marks = {OTHERS + special.index(end): TEXT_END}
    if network.config.begin_token:
        marks[OTHERS + special.index(network.begin)] = TEXT_BEGIN
    return {**{byte: byte for byte in range(256)}, BEGIN: WORD_BEGIN, END: WORD_END, PADDING: WORD_PADDING, **marks}


def _cell_name(direction: int, layer: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def _read_lstm(get: GetTensor, name: str, width: int, cells: int) -> dict[str, Tensor]:
    weight = _swap_gates(get(f"{name}/W_0", 2 * width, 4 * cells).t())
    bias = _swap_gates(get(f"{name}/B", 4 * cells))
    bias[cells : 2 * cells] += FORGET_BIAS
    return {
        "weight_ih": weight[:, :width],
        "weight_hh": weight[:, width:],
        "bias": bias,
        "weight_hr": get(f"{name}/W_P_0", cells, width).t(),
    }


def _swap_gates(x: Tensor) -> Tensor:
    """Reorder the rows of the gates from i, g, f, o to i, f, g, o, or back."""
    i, second, third, o = x.chunk(4)
    return torch.cat([i, third, second, o])


# ------------------------------------------------------------------------------------------------ writing


def can_write(run: RunFolder, cls: type[Network]) -> bool:
    return cls is ELMo


def write(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Conversion:
    """Write a run as options, weights and vocabulary, without its output layer."""
    check_changes(changes, ())
    progress(f"reading {source.name}", 0, None)
    run = open_run(source, _require_elmo)
    tokenizer = run.tokenizer
    if tokenizer.words is None:
        raise Unsupported(
            f"{source} has {tokenizer.kind} tokens; ELMo files are for models of whole words.", ability="words"
        )
    progress(f"writing {target.name}", 0, None)
    with explain_write_errors(target), temporary_folder(target) as scratch:
        folder = scratch / "folder"
        folder.mkdir()
        with _h5py().File(folder / WEIGHTS, "w") as file:
            for name, tensor in write_tensors(run.network).items():
                file.create_dataset(name, data=tensor.numpy())
        words = "".join(f"{word}\n" for word in (*VOCABULARY_MARKS, *tokenizer.words))
        (folder / VOCABULARY).write_text(words, encoding="utf-8")
        (folder / OPTIONS).write_text(json.dumps(write_options(run.network), indent=2) + "\n", encoding="utf-8")
        move_into_place(folder, target)
    facts = network_facts(run.network.num_parameters(), run.recipe, tokenizer)
    notes = [
        "The output layer is not written: these files have no place for it, so other programs get word vectors only."
    ]
    return Conversion(target, NAME, folder_size(target), facts, f"nextword convert {target} RUN", notes)


def _require_elmo(run: RunFolder, cls: type[Network]) -> None:
    if not can_write(run, cls):
        raise Unsupported(f"{run.path} is a run of {cls.__name__}; --to elmo is for ELMo only.", ability="elmo")


def write_options(network: ELMo) -> dict[str, Any]:
    """Their options from our network."""
    config, cnn = network.config, network.embedding.cnn
    return {
        "lstm": {
            "cell_clip": config.cell_clip or None,
            "proj_clip": config.projection_clip or None,
            "use_skip_connections": config.residual,
            "n_layers": config.layers,
            "projection_dim": config.width,
            "dim": config.cell_size,
        },
        "char_cnn": {
            "embedding": {"dim": cnn.characters.embedding_dim},
            "filters": [[layer.kernel_size[0], layer.out_channels] for layer in cnn.filters],
            "n_highway": len(cnn.highway),
            "n_characters": NUM_CHARACTERS + 1,
            "max_characters_per_token": cnn.longest,
            "activation": config.characters.get("activation", "relu"),
        },
    }


def write_tensors(network: ELMo) -> dict[str, Tensor]:
    """Their tensors from ours. A mark of ours that both begins and ends a text is written twice."""
    ours = {name: tensor.detach().float().cpu() for name, tensor in network.state_dict().items()}
    cnn, cells = network.embedding.cnn, network.config.cell_size
    table = ours["embedding.cnn.characters.weight"]
    tensors: dict[str, Tensor] = {"char_embed": torch.zeros(NUM_CHARACTERS, table.shape[1])}
    character_ids = _character_ids(network)
    if not network.config.begin_token:
        text_end = next(our_id for our_id, their_id in character_ids.items() if their_id == TEXT_END)
        tensors["char_embed"][TEXT_BEGIN] = table[text_end]
    for our_id, their_id in character_ids.items():
        tensors["char_embed"][their_id] = table[our_id]
    for i in range(len(cnn.filters)):
        kernel = ours[f"embedding.cnn.filters.{i}.weight"]
        tensors[f"CNN/W_cnn_{i}"] = kernel.permute(2, 1, 0).unsqueeze(0)
        tensors[f"CNN/b_cnn_{i}"] = ours[f"embedding.cnn.filters.{i}.bias"]
    for i in range(len(cnn.highway)):
        weights = ours[f"embedding.cnn.highway.{i}.weight"].chunk(2)
        biases = ours[f"embedding.cnn.highway.{i}.bias"].chunk(2)
        for part, weight, bias in zip(("transform", "carry"), weights, biases, strict=True):
            tensors[f"CNN_high_{i}/W_{part}"], tensors[f"CNN_high_{i}/b_{part}"] = weight.t(), bias
    tensors["CNN_proj/W_proj"] = ours["embedding.cnn.projection.weight"].t()
    tensors["CNN_proj/b_proj"] = ours["embedding.cnn.projection.bias"]
    for i in range(network.config.layers):
        for direction in (0, 1):
            names = ("weight_ih", "weight_hh", "bias", "weight_hr")
            lstm = {name: ours[f"layers.{i}.{name}"][direction] for name in names}
            bias = lstm["bias"].clone()
            bias[cells : 2 * cells] -= FORGET_BIAS
            weight = torch.cat([lstm["weight_ih"], lstm["weight_hh"]], 1)
            cell = _cell_name(direction, i)
            tensors[f"{cell}/W_0"] = _swap_gates(weight).t()
            tensors[f"{cell}/B"] = _swap_gates(bias)
            tensors[f"{cell}/W_P_0"] = lstm["weight_hr"].t()
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


# ------------------------------------------------------------------------------------------------ files


def _only_file(folder: Path, ending: str) -> Path:
    matches = [path for path in sorted(folder.glob(f"*{ending}")) if "softmax" not in path.name]
    if len(matches) != 1:
        names = ", ".join(path.name for path in matches) or "none"
        raise DataError(f"{folder} must have exactly one file ending in {ending}; it has {names}.", path=folder)
    return matches[0]


def _read_vocabulary(folder: Path) -> tuple[list[str], list[str]]:
    """The words of its vocabulary without marks, and notes for the user."""
    files = sorted(folder.glob("vocab*.txt"))
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise DataError(f"{folder} has several vocabularies: {names}. Keep one, or none.", path=folder)
    if not files:
        return [], ["The folder has no vocabulary: every word is read by its characters, and none has an id."]
    lines = (line.removesuffix("\n") for line in read_lines(files[0]))
    words = dict.fromkeys(word for word in lines if word and word not in (*VOCABULARY_MARKS, UNKNOWN, EOS))
    return list(words), []


def _make_recipe(settings: Mapping[str, Any], tokenizer: Words, name: str) -> Recipe:
    paper = {**load_recipe(f"{SLUG}/tiny").paper, "sources": {"model": f"trained elsewhere and read from {name}"}}
    tables = {
        "paper": paper,
        "tokenizer": {"kind": tokenizer.kind, "size": len(tokenizer), "lines": False},
        "model": dict(settings),
        "phase": [{"objective": {"kind": "bidirectional"}, "steps": 1}],
    }
    return parse_recipe(tables, name)


@contextmanager
def _open_hdf5(path: Path) -> Iterator[Any]:
    try:
        with _h5py().File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:  # what h5py raises for damaged files
        raise DataError(f"{path} is not a complete HDF5 file ({error}). {COPY}", path=path) from None


def _count_datasets(file: Any) -> int:
    """How many datasets there are, counted up to MOST_TENSORS."""
    number = 0

    def count(name: str, item: Any) -> bool | None:
        nonlocal number
        number += isinstance(item, _h5py().Dataset)
        return True if number > MOST_TENSORS else None  # anything but None ends the visit

    file.visititems(count)
    return number


def _find_dataset(file: Any, name: str, path: Path) -> Any:
    """A dataset whose numbers are in this very file: links and external storage could name any other; None: absent."""
    h5py, item = _h5py(), file
    for part in name.split("/"):
        link = item.get(part, getlink=True) if isinstance(item, h5py.Group) else None
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise DataError(f"{path}: {name} is a link to another place, which is not opened. {COPY}", path=path)
        item = item[part]
    if not isinstance(item, h5py.Dataset):
        return None
    if item.external or item.is_virtual:
        raise DataError(f"{path}: {name} is stored in another file, which is not opened. {COPY}", path=path)
    if item.dtype.kind != "f":
        raise DataError(f"{path}: {name} has the type {item.dtype}; expected floating point numbers.", path=path)
    return item


def _read_dataset(file: Any, path: Path, name: str, *shape: int) -> Tensor:
    values = np.asarray(_find_dataset(file, name, path)[...], np.float32)
    if not np.isfinite(values).all():
        raise DataError(f"{path}: {name} has numbers that are infinite, or none (NaN). {COPY}", path=path)
    return torch.from_numpy(values)


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingDependency(
            "HDF5 weights need h5py, which is not installed: pip install 'nextword[hub]'.", package="h5py"
        ) from None
    return h5py
