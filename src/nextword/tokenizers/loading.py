"""Load a tokenizer from a file or folder: ours or another project's, recognized by names and content.

| file                                               | written by                            |
| -------------------------------------------------- | ------------------------------------- |
| `tokenizer.json`                                   | nextword, or Hugging Face             |
| `encoder.json` and `vocab.bpe`                     | OpenAI: GPT-2                         |
| `encoder_bpe_40000.json` and `vocab_40000.bpe`     | OpenAI: GPT-1                         |
| `vocab.json` and `merges.txt`                      | Hugging Face: GPT-1, GPT-2, RoBERTa   |
| `vocab.txt`                                        | BERT, cased or uncased                |
| `spiece.model`                                     | T5, or another SentencePiece unigram  |

A folder is searched for these in this order. A file may have a prefix (`roberta-vocab.json` has its merges in
`roberta-merges.txt`), since its content says what it is.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers

from nextword.core.errors import MissingFile, NextwordError, bad_data, invalid
from nextword.core.io import check_json, read_json
from nextword.core.named_models import is_model_name, starter_folder
from nextword.tokenizers.base import Tokenizer, check_version, header_of
from nextword.tokenizers.characters import Bytes, Characters
from nextword.tokenizers.ptb_words import OPTIONS, Lexicon
from nextword.tokenizers.subwords import Subwords, names_of, sentinel_names, set_stages, unknown_of, with_sentinels
from nextword.tokenizers.words import Words

REMEDY = "Copy it again, or retrain the tokenizer."
_PATTERNS = ("tokenizer.json", "*encoder*.json", "*vocab*.json", "*vocab*.txt", "*.model")


def load_tokenizer(path: Path | str, sentinels: int = 0) -> Tokenizer:
    """Load the tokenizer in this file or folder. `sentinels` are added to a SentencePiece model (T5 has 100)."""
    path = starter_folder(str(path)) if is_model_name(path) else Path(path)
    file = _find_in_folder(path) if path.is_dir() else path
    if not file.is_file():
        raise MissingFile(f"No tokenizer at {path}. Expected a tokenizer.json, or a folder with one.", path=path)
    if sentinels and file.suffix != ".model":
        raise invalid("sentinels", sentinels, f"needs a SentencePiece .model, got {file}. Leave sentinels out.")
    with translate_errors(file):
        return _read(file, sentinels)


@contextmanager
def translate_errors(file: Path) -> Iterator[None]:
    """Turn whatever building a damaged tokenizer raises into a DataError."""
    try:
        yield
    except NextwordError:
        raise
    except BaseException as error:  # the library raises bare Exceptions on bad JSON, our own code KeyErrors
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # the library's, in Rust
            raise
        problem = f"not a readable tokenizer ({type(error).__name__}: {str(error)[:200]})."
        raise bad_data(file, f"{problem} {REMEDY}") from error


def _find_in_folder(folder: Path) -> Path:
    for pattern in _PATTERNS:
        files = sorted(folder.glob(pattern))
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise bad_data(folder, f"several tokenizers: {names}. Give the path of one.")
        if files:
            return files[0]
    expected = "tokenizer.json, encoder.json with vocab.bpe, vocab.json with merges.txt, vocab.txt, or a .model"
    raise MissingFile(f"No tokenizer in the folder {folder}. Expected {expected}.", path=folder)


def _read(file: Path, sentinels: int) -> Tokenizer:
    if file.suffix == ".model":
        return load_sentencepiece(file, sentinels)
    if file.suffix == ".txt":
        return from_bert(file)
    if file.suffix != ".json":
        expected = "a tokenizer.json, a .json vocabulary with merges, a BERT vocab.txt, or a SentencePiece .model"
        raise bad_data(file, f"not a known tokenizer file. Expected {expected}.")
    content = read_json(file, remedy=REMEDY)
    header = header_of(content)
    if header is not None:
        check_version(header, file)
        return _from_nextword(content, header, file)
    if isinstance(content.get("model"), dict):
        return from_hugging_face(content, file)
    if content and all(type(id) is int for id in content.values()):
        return from_merges(content, _find_merges(file))
    keys = ", ".join(list(content)[:5]) or "(none)"
    problem = 'JSON, but neither a tokenizer (no key "model") nor a vocabulary (name → id).'
    raise bad_data(file, f"{problem} Its first keys are {keys}.")


def _from_nextword(content: Mapping[str, Any], header: Mapping[str, Any], file: Path) -> Tokenizer:
    check_json(header, {"kind": str}, file, "in the header, ", REMEDY)
    kind = header["kind"]
    if kind == "bytes":
        return Bytes()
    if kind == "characters":
        check_json(content, {"characters": str}, file, remedy=REMEDY)
        return Characters(content["characters"])
    if kind in ("words", "lexicon"):
        check_json(header, {"lower": bool, "lines": bool | None}, file, "in the header, ", REMEDY)
        check_json(content, {"words": list}, file, remedy=REMEDY)
        if not all(isinstance(word, str) for word in content["words"]):
            raise bad_data(file, f"words must be a list of words. {REMEDY}")
    if kind == "words":
        return Words(content["words"], header["lower"], header["lines"])
    if kind == "lexicon":
        return Lexicon(content["words"], header["lower"], **{name: header.get(name, False) for name in OPTIONS})
    return Subwords(content, header["special"], header["begin"], header["end"])


def _find_merges(vocabulary: Path) -> Path:
    """Return the file of merges that belongs to a vocabulary file."""
    name = vocabulary.name.removesuffix(".json")
    names = [
        name.replace("encoder_bpe", "vocab").replace("encoder", "vocab") + ".bpe",  # OpenAI
        name.replace("vocab", "merges") + ".txt",  # Hugging Face
    ]
    for candidate in names:
        if (vocabulary.parent / candidate).is_file():
            return vocabulary.parent / candidate
    message = f"The merges of the vocabulary {vocabulary} are missing. Expected {' or '.join(names)} next to it."
    raise MissingFile(message, path=vocabulary.parent / names[-1])


# ------------------------------------------------------------------------------------------------ GPT, RoBERTa, BERT

_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
# Names of the tokens that begin and end a text; the first that exists counts.
_BEGINS = ("[CLS]", "<s>", "<|endoftext|>", "</s>", "<pad>")
_ENDS = ("[SEP]", "</s>", "<|endoftext|>")


def from_merges(vocabulary: Mapping[str, int], merges: Path) -> Subwords:
    """Load a vocabulary and its merges: GPT-1 if pieces end in `</w>`, else byte-level (GPT-2, RoBERTa)."""
    lines = merges.read_text(encoding="utf-8").split("\n")  # not splitlines: a piece may be an exotic line end
    rows = [line.rstrip("\r").split(" ") for line in lines if line and not line.startswith("#version")]
    if bad := [row for row in rows if len(row) != 2]:
        raise bad_data(merges, f"not a list of merges. Expected two pieces per line, got {' '.join(bad[0])!r}.")
    pairs = [(left, right) for left, right in rows]
    is_gpt1 = any(name.endswith("</w>") for name in vocabulary)
    return _gpt1(vocabulary, pairs) if is_gpt1 else _byte_level(vocabulary, pairs)


def _byte_level(vocabulary: Mapping[str, int], pairs: Sequence[tuple[str, str]]) -> Subwords:
    library = set_stages(Library(models.BPE(dict(vocabulary), pairs)), "bpe")
    special = [name for name in _ROBERTA if name in vocabulary] if "<s>" in vocabulary else ["<|endoftext|>"]
    return _with_special(library, special)


def _gpt1(vocabulary: Mapping[str, int], pairs: Sequence[tuple[str, str]]) -> Subwords:
    """GPT-1 has no special token but <unk>; a line end separates texts."""
    library = Library(models.BPE(dict(vocabulary), pairs, unk_token="<unk>", end_of_word_suffix="</w>"))
    set_stages(library, "classic-bpe", lower=True)
    return _with_special(library, ["<unk>"], separator="\n</w>")


def from_bert(path: Path) -> Subwords:
    """Load a `vocab.txt`, one piece per line; uncased if no piece has an uppercase letter."""
    pieces = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if missing := [name for name in _BERT if name not in pieces]:
        raise bad_data(path, f"not a BERT vocabulary: {missing[0]} is missing. Expected one piece per line.")
    lower = not any(piece != piece.lower() for piece in pieces if not piece.startswith("["))
    vocabulary = {piece.rstrip("\r"): id for id, piece in enumerate(pieces)}
    library = set_stages(Library(models.WordPiece(vocabulary, unk_token="[UNK]")), "wordpiece", lower, lower)
    return _with_special(library, list(_BERT))


def _with_special(library: Library, special: list[str], separator: str | None = None) -> Subwords:
    library.add_special_tokens(special)
    begin = separator or next(name for name in _BEGINS if name in special)
    end = separator or next(name for name in _ENDS if name in special)
    return Subwords.of(library, special, begin, end)


def from_hugging_face(content: Mapping[str, Any], path: Path) -> Subwords:
    """Load the library's JSON. Files next to it, if any, name the tokens that begin and end a text."""
    # Drop truncation and padding, which some files have for the network they were made for.
    content = {**content, "truncation": None, "padding": None, "model": _typed(content["model"])}
    names = names_of(content)
    special = {token["content"]: token["id"] for token in content.get("added_tokens") or [] if token["special"]}
    unknown = unknown_of(content)
    if unknown in names and not (content["model"]["type"] == "BPE" and unknown not in special):
        special[unknown] = names[unknown]
    roles = _roles(path.parent)
    begin = [roles.get(role) for role in ("cls_token", "bos_token", "eos_token")] + [n for n in _BEGINS if n in special]
    end = [roles.get(role) for role in ("sep_token", "eos_token")] + [n for n in _ENDS if n in special]
    begins = [names[name] for name in begin if name in names]
    ends = [names[name] for name in end if name in names]
    if not begins or not ends:
        problem = f"does not say which tokens begin and end a text, and has none of {', '.join(_BEGINS)}."
        remedy = "Put its tokenizer_config.json (with bos_token and eos_token) next to it."
        raise bad_data(path, f"{problem} {remedy}")
    return Subwords(content, special, begins[0], ends[0])


def _typed(model: Mapping[str, Any]) -> dict[str, Any]:
    """Add the type of the model, which files from before 2021 lack; their keys show it."""
    if "merges" in model:
        kind = "BPE"
    else:
        kind = "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
    return {"type": kind, **model}


def _roles(folder: Path) -> dict[str, str]:
    """Read role → token from the configuration files: {"bos_token": "<s>", …}."""
    roles: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            config = read_json(folder / name, remedy=REMEDY)
            for role, token in config.items():
                token = token["content"] if isinstance(token, dict) and "content" in token else token
                if role.endswith("_token") and isinstance(token, str):
                    roles[role] = token
    return roles


# ------------------------------------------------------------------------------------------------ SentencePiece

# A .model file is a protobuf message, of which we only need a few fields, so the sentencepiece package is not needed. A
# message is a list of (key, value), key = number · 8 + type; a value is a varint (type 0), eight bytes (1), a length
# and that many bytes (2), or four bytes (5). `sentencepiece_model.proto` names the numbers.

_UNIGRAM = 1  # TrainerSpec.model_type
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # SentencePiece.type; 1 is an ordinary piece


def load_sentencepiece(path: Path, sentinels: int = 0) -> Subwords:
    """Load T5's tokenizer or another unigram model, and append `sentinels` sentinel tokens (T5 has 100)."""
    try:
        pieces, trainer, normalizer = parse_model(path.read_bytes())
    except (IndexError, struct.error, UnicodeDecodeError, AttributeError, TypeError):
        raise bad_data(path, "not a SentencePiece model, or truncated. Copy it again.") from None
    if not all(math.isfinite(score) for _, score, _ in pieces):
        raise bad_data(path, "a piece has an infinite score, or none (NaN). Copy it again.")
    if trainer.get(3, _UNIGRAM) != _UNIGRAM:
        raise bad_data(path, "not a unigram model (T5), the only supported kind of SentencePiece.")
    if not (normalizer.get(3, 1) and normalizer.get(4, 1)):
        raise bad_data(path, "trained without add_dummy_prefix and remove_extra_whitespaces, which nextword needs.")
    unknown = [id for id, (_, _, type) in enumerate(pieces) if type == _UNKNOWN]
    library = Library(
        models.Unigram([(name, score) for name, score, _ in pieces], unknown[0], bool(trainer.get(35, 0)))
    )
    if normalizer.get(2):
        library.normalizer = normalizers.Precompiled(normalizer[2])
    set_stages(library, "unigram")
    special = [name for name, _, type in pieces if type in (_UNKNOWN, _CONTROL)]
    library.add_special_tokens(special)
    library.add_tokens([name for name, _, type in pieces if type == _USER_DEFINED])
    content = with_sentinels(json.loads(library.to_str()), sentinels)
    names = names_of(content)
    end = _signed(trainer.get(42, 2))
    if not 0 <= end < len(pieces) or pieces[end][2] != _CONTROL:
        raise bad_data(path, f"no end-of-text piece (eos_id = {end}), which nextword needs.")
    return Subwords(content, {name: names[name] for name in [*special, *sentinel_names(sentinels)]}, end, end)


def parse_model(data: bytes) -> tuple[list[tuple[str, float, int]], dict[int, Any], dict[int, Any]]:
    """Return the pieces as (text, score, type), and the fields of TrainerSpec and NormalizerSpec by number."""
    pieces, specifications = [], {2: b"", 3: b""}
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(value))
            pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, bytes(4)))[0], piece.get(3, 1)))
        elif number in specifications:
            specifications[number] = value
    if not pieces:
        raise IndexError("no pieces")
    return pieces, dict(_fields(specifications[2])), dict(_fields(specifications[3]))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if kind == 2:
            length, position = _varint(data, position)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise IndexError(f"unknown type {kind}")
        if position + length > len(data):
            raise IndexError("truncated")
        yield key >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read seven bits per byte, lowest first; the eighth bit says that more follow."""
    value = shift = 0
    while True:
        if shift >= 70:
            raise IndexError("more than 64 bits")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
