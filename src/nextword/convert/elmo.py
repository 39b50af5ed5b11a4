"""ELMo as allenai published it: options as JSON, weights as HDF5, and perhaps the words of its vocabulary.

    *options.json       sizes
    *weights.hdf5       character CNN and LSTMs, as bilm-tf's dump_weights writes them; the softmax is not among them
    vocab*.txt          a word a line; not needed, for words are read by their letters

bilm-tf and AllenNLP both read these files, and what is written here they read too. A run made of them gives vectors of
words; it has no output layer, so it predicts nothing. How the tensors lie, theirs and ours:

    theirs                                                          ours
    char_embed (261, C)   bytes, <S>, </S>, word begin, end, pad    bytes, word begin, end, pad, <unk>, <eos>, beginning
    CNN/W_cnn_i (1, w, C, n)                                        filters.i.weight (n, C, w)
    CNN_high_i/W_transform, W_carry (n, n)                          highway.i.weight (2n, n): one beneath the other
    RNN_s/…/Celli/LSTMCell/W_0 (I + P, 4H)    gates i, g, f, o      weight_ih[s], weight_hh[s]: gates i, f, g, o
    …/B (4H)    1 is added to the forget gate                       bias[s]: with it
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.convert import base as run
from nextword.convert.base import Made, Progress, model_settings, open_run, read_json, refuse_changes, size_of
from nextword.core.errors import NextwordError, Unsupported
from nextword.layers.char_cnn import BEGIN, END, OTHERS, PADDING
from nextword.models import count_parameters, model_class
from nextword.recipe import Recipe, from_tables, load_recipe
from nextword.run_folder import RunFolder, checksum, full_disk_is_no_loss
from nextword.tokenizers import vocabulary
from nextword.tokenizers.words import EOS, UNKNOWN, Words

NAME, KNOWN_BY = "an ELMo folder of allenai", "with options.json and weights.hdf5; written with --to elmo"
SLUG = "elmo"
OPTIONS, WEIGHTS, VOCABULARY = "options.json", "weights.hdf5", "vocab.txt"
MARKS = ("<S>", "</S>", "<UNK>")  # of their vocabulary
CHARACTERS = 261  # of theirs: 256 bytes, <S>, </S>, and what begins, ends and fills a word
START, STOP, FIRST, LAST, FILL = range(256, 261)
FORGET = 1.0  # TensorFlow's cell adds it to the forget gate


def is_source(path: Path) -> bool:
    return path.is_dir() and bool(sorted(path.glob(f"*{WEIGHTS}"))) and bool(sorted(path.glob(f"*{OPTIONS}")))


# ---------------------------------------------------------------------------------------------- reading


def read(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Made:
    refuse_changes(changes, ())
    options, weights = _only(source, OPTIONS), _only(source, WEIGHTS)
    settings = settings_of(read_json(options), options)
    words, notes = _words(source)
    tokenizer = Words(words, lines=False)
    recipe = _recipe(settings, tokenizer, source.name)
    network = model_class(SLUG)(model_settings(recipe), vocabulary(tokenizer, spellings=True)).eval()
    progress(f"reading {source.name}", 0, None)
    fill(network, weights)
    progress(f"writing {target.name}", 0, None)
    data = {phase.name: f"not known; the model was read from {source.name}" for phase in recipe.phases}
    sums = {path.name: checksum(path) for path in (options, weights)}
    origin = {"from": source.name, "format": NAME, "files": sums}
    parameters = run.create_run(target, recipe, tokenizer, lambda place: network, data=data, converted=origin)
    notes.append("It gives vectors of words, and predicts none: these weights come without their softmax.")
    facts = run.shapes(parameters, recipe, tokenizer)
    return Made(target, run.NAME, size_of(target), facts, f"nextword embed {target} FILE --words --layer all", notes)


def settings_of(options: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """[model] of our recipe, from their options."""
    lstm, cnn = options.get("lstm"), options.get("char_cnn")
    if not isinstance(lstm, dict) or not isinstance(cnn, dict):
        raise Unsupported(
            f"{path} has {' and '.join(sorted(options)) or 'nothing'} in it; expected lstm and char_cnn, which say "
            "what an ELMo that reads letters is made of. One over a table of words is not read here."
        )
    try:
        found = {
            "width": int(lstm["projection_dim"]),
            "cells": int(lstm["dim"]),
            "layers": int(lstm["n_layers"]),
            "cell_clip": float(lstm.get("cell_clip") or 0),
            "projection_clip": float(lstm.get("proj_clip") or 0),
            "skip": bool(lstm.get("use_skip_connections", False)),
            "dropout": float(options.get("dropout", 0.1)),
            "characters": {
                "filters": [[int(width), int(number)] for width, number in cnn["filters"]],
                "characters": int(cnn["embedding"]["dim"]),
                "highway": int(cnn.get("n_highway") or 0),
                "longest": int(cnn["max_characters_per_token"]),
                "activation": str(cnn.get("activation", "relu")),
            },
            "readout": {"kind": "none"},
            "begins": True,
        }
    except (KeyError, TypeError, ValueError) as problem:
        raise NextwordError(
            f"{path} lacks something, or has it in another form than bilm-tf writes it ({type(problem).__name__}: "
            f"{problem}). Copy it again."
        ) from None
    if cnn.get("n_characters", CHARACTERS) not in (CHARACTERS, CHARACTERS + 1):
        raise Unsupported(
            f"{path} says n_characters = {cnn['n_characters']}; expected {CHARACTERS}, or {CHARACTERS + 1} with one "
            "for padding: the bytes, and five marks."
        )
    return found


def fill(network: Any, path: Path) -> None:
    """Their weights into a network of their sizes. A tensor that is missing or of another shape is named."""
    with _opened(path) as file:
        wrong: list[str] = []

        def get(name: str, *shape: int) -> Tensor:
            found = file.get(name)
            if found is None or not hasattr(found, "shape"):
                wrong.append(f"{name} is not there, and {shape} was expected")
            elif tuple(found.shape) != shape:
                wrong.append(f"{name} is {tuple(found.shape)}, and {shape} was expected")
            else:
                return torch.from_numpy(np.asarray(found[...], np.float32))
            return torch.zeros(shape)

        ours = tensors_of(network, get)
    if wrong:
        more = f"; and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise NextwordError(
            f"{path} does not hold the weights that its options speak of: {'; '.join(wrong[:4])}{more}. Copy both "
            "files again, and see that they belong together."
        )
    network.load_state_dict(ours)


def tensors_of(network: Any, get: Callable[..., Tensor]) -> dict[str, Tensor]:
    """Ours, of theirs, which `get(name, *shape)` gives."""
    cnn, config = network.embedding.cnn, network.config
    width, cells = config.width, config.cells
    filters, found = list(cnn.filters), sum(layer.out_channels for layer in cnn.filters)
    ours: dict[str, Tensor] = {}
    theirs = get("char_embed", CHARACTERS, filters[0].in_channels)
    table = torch.zeros_like(cnn.characters.weight)
    for here, there in _characters(network).items():
        table[here] = theirs[there]
    ours["embedding.cnn.characters.weight"] = table
    for i, layer in enumerate(filters):
        number, characters, size = layer.weight.shape
        kernel = get(f"CNN/W_cnn_{i}", 1, size, characters, number)
        ours[f"embedding.cnn.filters.{i}.weight"] = kernel[0].permute(2, 1, 0)
        ours[f"embedding.cnn.filters.{i}.bias"] = get(f"CNN/b_cnn_{i}", number)
    for i in range(len(cnn.highway)):
        matrices = [get(f"CNN_high_{i}/W_{kind}", found, found).t() for kind in ("transform", "carry")]
        biases = [get(f"CNN_high_{i}/b_{kind}", found) for kind in ("transform", "carry")]
        ours[f"embedding.cnn.highway.{i}.weight"] = torch.cat(matrices)
        ours[f"embedding.cnn.highway.{i}.bias"] = torch.cat(biases)
    ours["embedding.cnn.projection.weight"] = get("CNN_proj/W_proj", found, width).t()
    ours["embedding.cnn.projection.bias"] = get("CNN_proj/b_proj", width)
    for i in range(config.layers):
        sides = [_lstm(get, _cell(side, i), width, cells) for side in (0, 1)]
        for name in sides[0]:
            ours[f"layers.{i}.{name}"] = torch.stack([side[name] for side in sides])
    return ours


def _characters(network: Any) -> dict[int, int]:
    """Our characters, and which of theirs each one is. Our unknown word has none there: its vector is 0."""
    special = sorted([*network.vocabulary.special.values(), *([network.begin] if network.config.begins else [])])
    end = network.vocabulary.end if network.vocabulary.end is not None else network.vocabulary.begin
    marks = {OTHERS + special.index(end): STOP, OTHERS + special.index(network.begin): START}
    if not network.config.begins:
        marks = {OTHERS + special.index(end): STOP}
    return {**{byte: byte for byte in range(256)}, BEGIN: FIRST, END: LAST, PADDING: FILL, **marks}


def _cell(side: int, layer: int) -> str:
    return f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def _lstm(get: Callable[..., Tensor], name: str, width: int, cells: int) -> dict[str, Tensor]:
    matrix = _gates(get(f"{name}/W_0", 2 * width, 4 * cells).t())
    bias = _gates(get(f"{name}/B", 4 * cells))
    bias[cells : 2 * cells] += FORGET
    return {
        "weight_ih": matrix[:, :width],
        "weight_hh": matrix[:, width:],
        "bias": bias,
        "weight_hr": get(f"{name}/W_P_0", cells, width).t(),
    }


def _gates(x: Tensor) -> Tensor:
    """From one order of the gates to the other, of rows: i, g, f, o and i, f, g, o. The way back is the same."""
    i, second, third, o = x.chunk(4)
    return torch.cat([i, third, second, o])


# ---------------------------------------------------------------------------------------------- writing


def write(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Made:
    """A run as these two files, and its words. Its output layer stays behind, as theirs did."""
    refuse_changes(changes, ())
    progress(f"reading {source.name}", 0, None)
    found = open_run(source, _is_elmo)
    tokenizer: Any = found.tokenizer
    if not hasattr(tokenizer, "words"):
        raise Unsupported(f"{source} reads pieces of words ({tokenizer.kind}), and these files are for whole words.")
    progress(f"writing {target.name}", 0, None)
    with full_disk_is_no_loss(target), run.whole(target) as place:
        made = place / "made"
        made.mkdir()
        with _hdf5().File(made / WEIGHTS, "w") as file:
            for name, tensor in tensors_for(found.network).items():
                file.create_dataset(name, data=tensor.numpy())
        text = "".join(f"{word}\n" for word in (*MARKS, *tokenizer.words))
        (made / VOCABULARY).write_text(text, encoding="utf-8")
        (made / OPTIONS).write_text(json.dumps(options_of(found.network), indent=2) + "\n", encoding="utf-8")
        run.appear(made, target)
    facts = run.shapes(count_parameters(found.network), found.recipe, tokenizer)
    notes = ["The output layer is not written: these files hold none, so bilm-tf and AllenNLP make vectors of it."]
    return Made(target, NAME, size_of(target), facts, f"nextword convert {target} RUN", notes)


def _is_elmo(found: RunFolder, cls: Any) -> None:
    if cls is not model_class(SLUG):
        raise Unsupported(f"{found.path} is a run of {cls.__name__}, and these files are ELMo's alone.")


def options_of(network: Any) -> dict[str, Any]:
    config, cnn = network.config, network.embedding.cnn
    return {
        "lstm": {
            "cell_clip": config.cell_clip or None,
            "proj_clip": config.projection_clip or None,
            "use_skip_connections": config.skip,
            "n_layers": config.layers,
            "projection_dim": config.width,
            "dim": config.cells,
        },
        "char_cnn": {
            "embedding": {"dim": cnn.characters.embedding_dim},
            "filters": [[layer.kernel_size[0], layer.out_channels] for layer in cnn.filters],
            "n_highway": len(cnn.highway),
            "n_characters": CHARACTERS + 1,
            "max_characters_per_token": cnn.longest,
            "activation": config.characters.get("activation", "relu"),
        },
    }


def tensors_for(network: Any) -> dict[str, Tensor]:
    """Theirs, of ours. One mark of ours that both begins and ends a text becomes two alike."""
    ours = {name: tensor.detach().float().cpu() for name, tensor in network.state_dict().items()}
    cnn, cells = network.embedding.cnn, network.config.cells
    table = ours["embedding.cnn.characters.weight"]
    theirs: dict[str, Tensor] = {"char_embed": torch.zeros(CHARACTERS, table.shape[1])}
    marks = _characters(network)
    if not network.config.begins:
        theirs["char_embed"][START] = table[next(here for here, there in marks.items() if there == STOP)]
    for here, there in marks.items():
        theirs["char_embed"][there] = table[here]
    for i in range(len(cnn.filters)):
        kernel = ours[f"embedding.cnn.filters.{i}.weight"]
        theirs[f"CNN/W_cnn_{i}"] = kernel.permute(2, 1, 0).unsqueeze(0)
        theirs[f"CNN/b_cnn_{i}"] = ours[f"embedding.cnn.filters.{i}.bias"]
    for i in range(len(cnn.highway)):
        matrices = ours[f"embedding.cnn.highway.{i}.weight"].chunk(2)
        biases = ours[f"embedding.cnn.highway.{i}.bias"].chunk(2)
        for kind, matrix, bias in zip(("transform", "carry"), matrices, biases, strict=True):
            theirs[f"CNN_high_{i}/W_{kind}"], theirs[f"CNN_high_{i}/b_{kind}"] = matrix.t(), bias
    theirs["CNN_proj/W_proj"] = ours["embedding.cnn.projection.weight"].t()
    theirs["CNN_proj/b_proj"] = ours["embedding.cnn.projection.bias"]
    for i in range(network.config.layers):
        for side in (0, 1):
            part = {name: ours[f"layers.{i}.{name}"][side] for name in ("weight_ih", "weight_hh", "bias", "weight_hr")}
            bias = part["bias"].clone()
            bias[cells : 2 * cells] -= FORGET
            matrix = torch.cat([part["weight_ih"], part["weight_hh"]], 1)
            theirs[f"{_cell(side, i)}/W_0"] = _gates(matrix).t()
            theirs[f"{_cell(side, i)}/B"] = _gates(bias)
            theirs[f"{_cell(side, i)}/W_P_0"] = part["weight_hr"].t()
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


# ---------------------------------------------------------------------------------------------- files


def _only(folder: Path, ending: str) -> Path:
    found = [path for path in sorted(folder.glob(f"*{ending}")) if "softmax" not in path.name]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise NextwordError(f"{folder} should hold one file whose name ends in {ending}; it has {names}.")
    return found[0]


def _words(folder: Path) -> tuple[list[str], list[str]]:
    """The words of its vocabulary, but for its marks; and what is to be said of them."""
    found = sorted(folder.glob("vocab*.txt"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise NextwordError(f"{folder} holds several vocabularies: {names}. Leave one, or none: it is not needed.")
    if not found:
        return [], ["There is no vocabulary among the files: every word is read by its letters, and has no id."]
    lines = found[0].read_text(encoding="utf-8").split("\n")
    words = dict.fromkeys(word for word in lines if word and word not in (*MARKS, UNKNOWN, EOS))
    return list(words), []


def _recipe(settings: Mapping[str, Any], tokenizer: Words, name: str) -> Recipe:
    paper = {**load_recipe(f"{SLUG}/tiny").paper, "sources": {"model": f"trained elsewhere and read from {name}"}}
    phase = {"objective": {"kind": "bidirectional"}, "steps": 1}
    tables = {
        "paper": paper,
        "tokenizer": {"kind": tokenizer.kind, "size": len(tokenizer), "lines": False},
        "model": dict(settings),
        "phase": [phase],
    }
    return from_tables(tables, name)


def _opened(path: Path) -> Any:
    try:
        return _hdf5().File(path, "r")
    except OSError as problem:  # no such file, or one that was cut
        raise NextwordError(f"{path} is no HDF5 file, or not all of one ({problem}). Copy it again, whole.") from None


def _hdf5() -> Any:
    try:
        import h5py
    except ImportError:
        raise NextwordError(
            "Weights in HDF5 are read and written with h5py, which is not installed: pip install 'nextword[hub]'."
        ) from None
    return h5py
