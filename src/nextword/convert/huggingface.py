"""Folders of Hugging Face's transformers made into runs, and runs made into such folders.

    config.json                     what the network is: `family` and its tables say it in our terms
    model.safetensors, …            its weights: `tensors`
    tokenizer.json, vocab.json, …   its tokenizer: `tokens.export` writes these
    generation_config.json          what begins and ends a text, and what is never written

A run made of a folder has the folder's tokenizer and, as `begin` and `end`, the tokens that it names. What the network
was trained on is not known; the manifest has the checksums of the files. A network with more rows than its tokenizer
has tokens keeps them, under names that no text has, so that every probability stays what it was.

A tokenizer for which transformers has nothing alike does not hinder the weights: they are written, ours beside them.

Files of tensors as transformers lays them into a folder, in the order in which they are looked for.

    model.safetensors                   one file
    model.safetensors.index.json        several, and which tensor is in which
    pytorch_model.bin                   the same two as torch pickles
    pytorch_model.bin.index.json

A pickle can hold a program that runs when it is opened. These are opened so that nothing but tensors can come of them
(torch's weights_only); one that needs more is refused, and nothing of it has run.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nextword.convert import base as run
from nextword.convert.base import Made, Opened, Progress, model_settings, open_run, read_json, refuse_changes, size_of
from nextword.convert.hf_bert import FAMILIES as BERT
from nextword.convert.hf_gpt import FAMILIES as GPT
from nextword.convert.hf_t5 import FAMILIES as T5
from nextword.convert.hf_xlnet import FAMILIES as XLNET
from nextword.convert.name_map import Family
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Tokenizer
from nextword.data.text_to_text import is_tasks, prefixes
from nextword.models import count_parameters, model_class
from nextword.objectives import mends
from nextword.recipe import Recipe, from_tables, load_recipe
from nextword.run_folder import RunFolder, checksum, full_disk_is_no_loss
from nextword.tokenizers import base as storage
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import MARKS, sentinels
from nextword.tokenizers.characters import Bytes
from nextword.tokenizers.hf_export import NORMAL, export, restored, widened
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.subwords import Subwords, names_of

SAFE, PICKLE, INDEX = "model.safetensors", "pytorch_model.bin", ".index.json"
FOREIGN = ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "adapter_model.safetensors")


class Tensors:
    """Tensors by name, over one file or several; those in safetensors are read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.files, where = _files(folder)
        self._read: dict[str, Callable[[str], Tensor]] = {}
        for file in self.files:
            names, read = _safetensors(file) if file.name.endswith(".safetensors") else _pickle(file)
            self._read |= dict.fromkeys(names, read)
        if absent := [name for name in where if name not in self._read]:
            raise NextwordError(
                f"{folder}: the index names {len(absent):,} tensors that its files do not hold, the first of them "
                f"{absent[0]} in {where[absent[0]]}. Copy the folder again."
            )

    def names(self) -> Sequence[str]:
        return list(self._read)

    def get(self, name: str) -> Tensor:
        return self._read[name](name)


def _files(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The files, and which of them an index promises each tensor in."""
    for whole in (SAFE, PICKLE):
        if (folder / whole).is_file():
            return [folder / whole], {}
        if (folder / (whole + INDEX)).is_file():
            where = _index(folder / (whole + INDEX))
            return [folder / name for name in dict.fromkeys(where.values())], where
    found = [name for name in FOREIGN if (folder / name).is_file()]
    raise NextwordError(
        f"{folder} has no weights: looked for {SAFE} and {PICKLE}, in one file or with an index of several. "
        + (f"It has {', '.join(found)}, which is not read here: save it as safetensors." if found else "Copy it again.")
    )


def _index(path: Path) -> dict[str, str]:
    try:
        where = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        whole = bool(where) and all(isinstance(name, str) for pair in where.items() for name in pair)
    except (ValueError, TypeError, KeyError, AttributeError):
        whole = False
    if not whole:
        raise NextwordError(f"{path} is no index of tensors: expected JSON with a weight_map. Copy it again.")
    for name in dict.fromkeys(where.values()):
        if Path(name).name != name:
            raise NextwordError(f"{path} names the file {name!r}, which is not in its folder. It is not opened.")
        if not (path.parent / name).is_file():
            raise NextwordError(f"{path.parent} lacks {name}, which {path.name} names. Copy it again.")
    return dict(where)


def _safetensors(path: Path) -> tuple[list[str], Callable[[str], Tensor]]:
    try:
        file = safe_open(str(path), framework="pt", device="cpu")
        return list(file.keys()), file.get_tensor
    except (SafetensorError, OSError) as problem:
        raise NextwordError(f"{path} is no whole safetensors file ({problem}). Copy it again.") from None


def _pickle(path: Path) -> tuple[list[str], Callable[[str], Tensor]]:
    found: Any
    try:
        with warnings.catch_warnings():  # about pickles of unusual sorts, which are refused below
            warnings.simplefilter("ignore")
            # files of before 2020 are no archives, and cannot be mapped
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as problem:  # whatever a broken or forbidden pickle raises
        raise NextwordError(
            f"{path} cannot be read as weights alone: it is damaged, or holds something that is no tensor and might "
            f"run a program, which it did not ({_first_line(problem)}). Get the model as model.safetensors instead."
        ) from None
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) and isinstance(n, str) for n, t in found.items()):
        raise NextwordError(f"{path} holds no table of tensors by name, which is what transformers saves.")
    return list(found), found.__getitem__


def _first_line(problem: Exception) -> str:
    line = (str(problem).splitlines() or [""])[0]
    return f"{type(problem).__name__}: {line[:100]}"


FAMILIES: tuple[Family, ...] = (*GPT, *BERT, *XLNET, *T5)
NAME, KNOWN_BY = "a Hugging Face folder", "with config.json and model.safetensors; written with --to huggingface"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
OURS = "nextword-tokenizer.json"  # where transformers has none
BETWEEN = "\n</w>"  # what stands between texts of GPT-1, which names no token for it


def is_source(path: Path) -> bool:
    return path.is_dir() and (path / "config.json").is_file()


# ---------------------------------------------------------------------------------------------- reading


def read(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Made:
    refuse_changes(changes, ("tokenizer.load",))
    config = read_json(source / "config.json")
    family = _family(config, source)
    settings, notes = family.settings_of(config, str(source / "config.json"))
    given = [change.partition("=")[2].strip() for change in changes]
    tokenizer = load_tokenizer(given[-1]) if given else _tokenizer(source, config, family)
    rows = config.get("vocab_size")
    rows = len(tokenizer) if rows is None else rows
    if not isinstance(rows, int) or rows < len(tokenizer):
        raise NextwordError(
            f"{source}: its tokenizer has {len(tokenizer):,} tokens, but config.json says vocab_size = {rows!r}: some "
            "would have no vector. Give the tokenizer that the network was made with, as --set tokenizer.load=PATH."
        )
    if rows > len(tokenizer):
        unused = rows - len(tokenizer)
        notes.append(f"{unused:,} of {rows:,} rows belong to no token. They are kept, and text never has their ids.")
        tokenizer = widened(tokenizer, rows)
    tokenizer = _started(tokenizer, config, source)
    recipe = _recipe(family, settings, tokenizer, source.name)
    network = _shapes(family.slugs[0], model_settings(recipe), tokenizer)
    progress(f"reading {source.name}", 0, None)
    found = Tensors(source)
    taken = family.tensors_of(network.state_dict(), found, config, str(source))
    network.load_state_dict(taken.tensors, assign=True)
    progress(f"writing {target.name}", 0, None)
    data = {phase.name: f"not known; the model was read from {source.name}" for phase in recipe.phases}
    sums = {path.name: checksum(path) for path in (source / "config.json", *found.files)}
    origin = {"from": source.name, "format": NAME, "files": sums, **({"drawn": taken.drawn} if taken.drawn else {})}
    parameters = run.create_run(target, recipe, tokenizer, lambda place: network, data=data, converted=origin)
    facts = run.shapes(parameters, recipe, tokenizer)
    return Made(target, run.NAME, size_of(target), facts, family.use.format(target), notes + taken.notes)


def _family(config: Mapping[str, Any], source: Path) -> Family:
    kind, classes = config.get("model_type"), config.get("architectures") or []
    for family in FAMILIES:
        known_by = kind == family.model_type or (kind is None and family.architecture in classes)
        if known_by and family.reads(config):
            return family
    known = ", ".join(dict.fromkeys(f"{family.model_type} ({family.slugs[0]} here)" for family in FAMILIES))
    said = f"model_type = {kind!r}" if kind is not None else f"no model_type, and architectures = {classes!r}"
    raise Unsupported(f"{source / 'config.json'} says {said}, a network that is not known here. Known are: {known}.")


def _tokenizer(source: Path, config: Mapping[str, Any], family: Family) -> Tokenizer:
    """The folder's own. What its files leave open, which tokens begin and end a text, config.json may say."""
    file = source / "tokenizer.json"
    if not file.is_file():
        if (source / OURS).is_file():
            return load_tokenizer(source / OURS)
        if family.frame is not None and (pieces := sorted(source.glob("*.model"))):
            raise Unsupported(
                f"{source} has its tokenizer as {pieces[0].name} alone, which does not say whether capitals and "
                "accents are kept, so ids might be others. Have transformers make a tokenizer.json of it: "
                f"AutoTokenizer.from_pretrained('{source}').save_pretrained('{source}'). Or name another tokenizer: "
                "--set tokenizer.load=PATH."
            )
        try:
            return _as_told(load_tokenizer(source), source)
        except NextwordError as problem:
            raise NextwordError(f"{problem} Or name one that lies elsewhere: --set tokenizer.load=PATH.") from None
    content = storage.read(file)
    if (ours := restored(content)) is not None:
        return ours
    try:
        return _as_told(load_tokenizer(file), source)
    except NextwordError:
        named = _named(content, config)
        if named is None:
            raise
        return _as_told(named, source)


def _as_told(tokenizer: Tokenizer, source: Path) -> Tokenizer:
    """What tokenizer_config.json says of spaces, capitals and accents counts, if it does: so it is in transformers."""
    path = source / "tokenizer_config.json"
    told = read_json(path) if path.is_file() else {}
    if not isinstance(tokenizer, Subwords):
        return tokenizer
    content = dict(tokenizer.library)
    stage, normal = content["pre_tokenizer"] or {}, content["normalizer"] or {}
    space = told.get("add_prefix_space")
    if stage.get("type") == "ByteLevel" and isinstance(space, bool):
        content["pre_tokenizer"] = {**stage, "add_prefix_space": space}
    if normal.get("type") == "BertNormalizer":
        content["normalizer"] = {**normal, **{ours: told[key] for ours, key in NORMAL.items() if key in told}}
    if content == tokenizer.library:
        return tokenizer
    return Subwords(content, tokenizer.special, tokenizer.begin, tokenizer.end)


def _named(content: Mapping[str, Any], config: Mapping[str, Any]) -> Tokenizer | None:
    """By the ids of config.json, or as GPT-1 does without any; None where neither is a token's."""
    if not isinstance(content.get("model"), dict):
        return None
    names = names_of(content)
    told = [_id(config.get(key)) for key in ("bos_token_id", "eos_token_id")]
    begin, end = (next((id for id in ids if id is not None), names.get(BETWEEN)) for ids in (told, told[::-1]))
    if begin is None or end is None or not {begin, end} <= set(names.values()):
        return None
    special = {token["content"]: token["id"] for token in content.get("added_tokens") or [] if token["special"]}
    return Subwords({**content, "truncation": None, "padding": None}, special, begin, end)


def _id(value: Any) -> int | None:
    value = value[0] if isinstance(value, list) and value else value
    return value if type(value) is int else None


def _started(tokenizer: Tokenizer, config: Mapping[str, Any], source: Path) -> Tokenizer:
    """A network that makes texts from sources may begin them with a token of its own: T5 with that for padding."""
    start = _id(config.get("decoder_start_token_id"))
    if start is None or start == tokenizer.begin or not isinstance(tokenizer, Subwords):
        return tokenizer
    if not 0 <= start < len(tokenizer):
        raise NextwordError(
            f"{source / 'config.json'} says decoder_start_token_id = {start}, and there are {len(tokenizer):,} tokens. "
            "Mend it, or give the tokenizer that the network was made with, as --set tokenizer.load=PATH."
        )
    return Subwords(tokenizer.library, tokenizer.special, start, tokenizer.end)


def _recipe(family: Family, settings: Mapping[str, Any], tokenizer: Tokenizer, name: str) -> Recipe:
    """What can be said of a network that others trained. The phase names no data: there is nothing to train again."""
    slug = family.slugs[0]
    paper = {**load_recipe(f"{slug}/tiny").paper, "sources": {"model": f"trained elsewhere and read from {name}"}}
    tables = {
        "paper": paper,
        "tokenizer": {"kind": tokenizer.kind} | ({} if isinstance(tokenizer, Bytes) else {"size": len(tokenizer)}),
        "model": dict(settings),
        "phase": [{**family.phase(settings), "steps": 1}],
    }
    return from_tables(tables, name)


def _shapes(slug: str, config: Any, tokenizer: Tokenizer) -> Any:
    """A network without numbers in it."""
    with torch.device("meta"):
        return model_class(slug)(config, vocabulary(tokenizer)).eval()


# ---------------------------------------------------------------------------------------------- writing


def write(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Made:
    refuse_changes(changes, ("huggingface.dtype",))
    kind = ["float32", *(change.partition("=")[2].strip() for change in changes)][-1]
    if kind not in DTYPES:
        raise NextwordError(f"--set huggingface.dtype={kind}: expected one of {', '.join(DTYPES)}.")
    progress(f"reading {source.name}", 0, None)
    found = open_run(source, _is_known)
    recipe, tokenizer, network = found.recipe, found.tokenizer, found.network
    family = _written_as(recipe.slug, network.config)
    known = vocabulary(tokenizer)
    config = {**family.config_of(network.config, known), "vocab_size": len(tokenizer), "torch_dtype": kind}
    ends = {"bos_token_id": tokenizer.begin, "eos_token_id": tokenizer.end}
    # what the folder would be read as says which tensors it must have
    again, _ = family.settings_of(config, str(target))
    like = _shapes(family.slugs[0], model_class(family.slugs[0]).Config(**again), tokenizer)
    tensors, zeros = family.tensors_for(like.state_dict(), network.state_dict(), config)
    tensors = {name: _narrowed(tensor, name, kind) for name, tensor in tensors.items()}
    progress(f"writing {target.name}", 0, None)
    with full_disk_is_no_loss(target), run.whole(target) as place:
        made = place / "made"
        made.mkdir()
        save_file(tensors, str(made / SAFE), metadata={"format": "pt"})
        (made / SAFE).chmod(0o644)
        told = export(tokenizer, made, getattr(network.config, "window", None), family.frame)
        if not told:
            tokenizer.save(made / OURS)
        if hasattr(network, "step"):
            silent = _unwritten(tokenizer, sentinels(tokenizer.special) if _fills(found) else ())
            _dump(made / "generation_config.json", {**ends, "pad_token_id": tokenizer.end, **silent})
        _dump(made / "config.json", {**config, **ends})
        run.appear(made, target)
    facts = run.shapes(count_parameters(network), recipe, tokenizer)
    use = _use(family, str(target), tokenizer, _begun(found))
    notes = _notes(found, family, like, zeros, bool(told))
    return Made(target, NAME, size_of(target), facts, use, notes)


def _fills(found: Opened) -> bool:
    """Whether the run is to write sentinels: it has learnt what was taken out of texts."""
    return mends(found.recipe.phases[-1].objective)


def _begun(found: Opened) -> str:
    """A source that the run may have learnt from."""
    data = found.recipe.phases[-1].data
    if _fills(found) and sentinels(found.tokenizer.special):
        return "The <extra_id_0> is"
    return f"{prefixes(data)[0]}The" if is_tasks(data) and prefixes(data) else "The"


def _use(family: Family, target: str, tokenizer: Tokenizer, text: str) -> str:
    """A command to try the folder with in transformers; of what reads a source, on this text."""
    special = tokenizer.special
    if not family.pipeline:  # transformers 5 has none for what reads a source: its begin is the decoder's affair
        given = f"t('{text}', return_tensors='pt').input_ids"
        made = f"t = T.from_pretrained('{target}'); print(t.decode(M.from_pretrained('{target}').generate({given})[0]))"
        return f'python -c "from transformers import AutoModelForSeq2SeqLM as M, AutoTokenizer as T; {made}"'
    names = {id: name for name, id in special.items()}
    blank = next((name for name in MARKS["mask"] if name in special), "")
    text = f"The {blank} is" if family.pipeline == "fill-mask" else f"{names.get(tokenizer.begin, '')}The"
    opened = f"pipeline('{family.pipeline}', '{target}')('{text}')"
    return f'python -c "from transformers import pipeline; print({opened})"'


def _written_as(slug: str, config: Any) -> Family:
    """The table whose networks compute this; if none does, the first, which says why not."""
    own = [family for family in FAMILIES if slug in family.slugs]
    return next((family for family in own if family.writes(config)), own[0])


def _is_known(found: RunFolder, cls: Any) -> None:
    known = dict.fromkeys(slug for family in FAMILIES for slug in family.slugs)
    if found.recipe.slug not in known:
        raise Unsupported(
            f"{found.path} is a run of {cls.__name__}, for which transformers has no network that computes the same. "
            f"Folders are written of {', '.join(known)}."
        )


def _narrowed(tensor: torch.Tensor, name: str, kind: str) -> torch.Tensor:
    narrow = tensor.to(DTYPES[kind])
    if not torch.equal(narrow.isfinite(), tensor.isfinite()):
        raise NextwordError(f"{name} has numbers that {kind} cannot hold. Write float32 or bfloat16 instead.")
    return narrow


def _unwritten(tokenizer: Tokenizer, written: Sequence[int]) -> dict[str, list[int]]:
    """What `generate` never writes here, so that transformers does not either; special ids that it writes apart."""
    banned = sorted(id for id in tokenizer.special.values() if id != tokenizer.end and id not in written)
    return {"suppress_tokens": banned} if banned else {}


def _dump(path: Path, value: Mapping[str, Any]) -> None:
    said = {key: value for key, value in value.items() if value is not None or key == "n_inner"}
    path.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def _notes(found: Opened, family: Family, like: Any, zeros: int, told: bool) -> list[str]:
    recipe, tokenizer, notes = found.recipe, found.tokenizer, []
    if recipe.slug != family.slugs[0]:
        notes.append(f"Every layer of this {recipe.slug} is dense, so it is written as {family.model_type}.")
    if zeros:
        notes.append(f"The network has no biases: {zeros:,} of {family.architecture} are zero.")
    if family.shared and (more := count_parameters(like) - count_parameters(found.network)):
        notes.append(f"{family.architecture} shares whole layers or none: {more:,} numbers stand there again.")
    for head in (found.run.manifest.get("converted") or {}).get("drawn", ()):
        notes.append(f"The {family.heads[head]} was drawn anew when this run was made, and never trained.")
    if not told:
        notes.append(
            f"transformers has no tokenizer that does what {tokenizer.kind} do, so the folder has the weights and, for "
            f"nextword alone, {OURS}."
        )
    elif family.frame is None and tokenizer.begin in tokenizer.special.values():
        notes.append("nextword begins every text with a token; in transformers put tokenizer.bos_token before it.")
    return notes
