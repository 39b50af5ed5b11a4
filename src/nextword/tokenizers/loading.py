"""Reading a tokenizer from a file or folder, ours or another project's, told apart by names and content.

| given                                              | is                                    |
| -------------------------------------------------- | ------------------------------------- |
| `tokenizer.json`                                   | ours, or Hugging Face's               |
| `encoder.json` + `vocab.bpe`                       | GPT-2                                 |
| `encoder_bpe_40000.json` + `vocab_40000.bpe`       | GPT-1                                 |
| `vocab.json` + `merges.txt`                        | the same two, RoBERTa                 |
| `vocab.txt`                                        | BERT, cased or uncased                |
| `spiece.model`                                     | T5, or another SentencePiece unigram  |

A folder is searched for these in this order. A file may be named otherwise (`roberta-vocab.json` has its merges in
`roberta-merges.txt`), for its content says what it is.

Other projects' vocabularies as ours: GPT-2, GPT-1, RoBERTa, BERT, and Hugging Face's `tokenizer.json`.

SentencePiece `.model` files, read without the sentencepiece package: the few protobuf fields that matter.

A protobuf message is a row of (key, value); key = number · 8 + type, and a value is a varint (type 0), eight bytes (1),
a length and that many bytes (2), or four bytes (5). `sentencepiece_model.proto` names the numbers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.tokenizers import base as storage
from nextword.tokenizers.characters import Bytes, Characters
from nextword.tokenizers.ptb_words import CHOICES, Lexicon
from nextword.tokenizers.subwords import Subwords, names_of, sentinel_names, unknown_of, with_sentinels
from nextword.tokenizers.words import Words

_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
# How a text begins and ends, by the names people gave to it; the first that there is.
_BEGINS = ("[CLS]", "<s>", "<|endoftext|>", "</s>", "<pad>")
_ENDS = ("[SEP]", "</s>", "<|endoftext|>")


def from_merges(vocabulary: Mapping[str, int], merges: Path) -> Subwords:
    """A vocabulary and its merges: GPT-1's if pieces end in `</w>`, else byte-level, as GPT-2's and RoBERTa's."""
    lines = merges.read_text(encoding="utf-8").split("\n")  # never splitlines: pieces may be exotic line ends
    rows = [line.rstrip("\r").split(" ") for line in lines if line and not line.startswith("#version")]
    if bad := [row for row in rows if len(row) != 2]:
        raise NextwordError(
            f"{merges} is not a list of merges: expected two pieces a line, found {' '.join(bad[0])!r}."
        )
    pairs = [(left, right) for left, right in rows]
    classic = any(name.endswith("</w>") for name in vocabulary)
    return _gpt1(vocabulary, pairs) if classic else _byte_level(vocabulary, pairs)


def _byte_level(vocabulary: Mapping[str, int], pairs: Sequence[tuple[str, str]]) -> Subwords:
    library = Library(models.BPE(dict(vocabulary), pairs))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    special = [name for name in _ROBERTA if name in vocabulary] if "<s>" in vocabulary else ["<|endoftext|>"]
    return _named(library, special)


def _gpt1(vocabulary: Mapping[str, int], pairs: Sequence[tuple[str, str]]) -> Subwords:
    """GPT-1 has no special token but the unknown one; its line end stands between texts."""
    library = Library(models.BPE(dict(vocabulary), pairs, unk_token="<unk>", end_of_word_suffix="</w>"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.BPEDecoder(suffix="</w>")
    return _named(library, ["<unk>"], between="\n</w>")


def from_bert(path: Path) -> Subwords:
    """A `vocab.txt`, one piece a line; uncased if no piece has a capital."""
    pieces = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if missing := [name for name in _BERT if name not in pieces]:
        raise NextwordError(f"{path} is not a BERT vocabulary: it has no line {missing[0]}. Expected one piece a line.")
    lower = not any(piece != piece.lower() for piece in pieces if not piece.startswith("["))
    vocabulary = {piece.rstrip("\r"): id for id, piece in enumerate(pieces)}
    library = Library(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=lower)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##")
    return _named(library, list(_BERT))


def _named(library: Library, special: list[str], between: str | None = None) -> Subwords:
    library.add_special_tokens(special)
    content = json.loads(library.to_str())
    names = names_of(content)
    begin = between or next(name for name in _BEGINS if name in special)
    end = between or next(name for name in _ENDS if name in special)
    return Subwords(content, {name: names[name] for name in special}, names[begin], names[end])


def from_hugging_face(content: Mapping[str, Any], path: Path) -> Subwords:
    """The library's own JSON; the files beside it, if any, name the tokens that begin and end a text."""
    # some carry the window and the padding of the network they were made for
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
        raise NextwordError(
            f"{path} does not say which token begins and ends a text. Put its tokenizer_config.json beside it (with "
            f"bos_token and eos_token); without one, {' or '.join(_BEGINS)} is looked for."
        )
    return Subwords(content, special, begins[0], ends[0])


def _typed(model: Mapping[str, Any]) -> dict[str, Any]:
    """Files of before 2021 do not say which model they have; their keys do."""
    if "merges" in model:
        kind = "BPE"
    else:
        kind = "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
    return {"type": kind, **model}


def _roles(folder: Path) -> dict[str, str]:
    roles: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            found = json.loads((folder / name).read_text(encoding="utf-8"))
            for role, token in found.items():
                token = token["content"] if isinstance(token, dict) and "content" in token else token
                if role.endswith("_token") and isinstance(token, str):
                    roles[role] = token
    return roles


_UNIGRAM = 1  # TrainerSpec.model_type
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # SentencePiece.type; 1 is an ordinary piece


def load_sentencepiece(path: Path, sentinels: int = 0) -> Subwords:
    """T5's tokenizer, or another unigram model; `sentinels` blanks are added behind it (T5 has 100)."""
    try:
        pieces, trainer, normalizer = _model(path.read_bytes())
    except (IndexError, struct.error, UnicodeDecodeError, AttributeError):
        raise NextwordError(f"{path} is not a SentencePiece model, or was cut short. Copy it again.") from None
    if trainer.get(3, _UNIGRAM) != _UNIGRAM:
        raise NextwordError(
            f"{path} is a SentencePiece model, but not a unigram one. nextword reads unigram models (T5)."
        )
    if not (normalizer.get(3, 1) and normalizer.get(4, 1)):
        raise NextwordError(
            f"{path} keeps spaces as they are (no dummy prefix, or extra spaces kept). nextword reads models that were "
            "trained with SentencePiece's defaults for spaces."
        )
    unknown = [id for id, (_, _, type) in enumerate(pieces) if type == _UNKNOWN]
    library = Library(
        models.Unigram([(name, score) for name, score, _ in pieces], unknown[0], bool(trainer.get(35, 0)))
    )
    if normalizer.get(2):
        library.normalizer = normalizers.Precompiled(normalizer[2])
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    library.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    special = [name for name, _, type in pieces if type in (_UNKNOWN, _CONTROL)]
    library.add_special_tokens(special)
    library.add_tokens([name for name, _, type in pieces if type == _USER_DEFINED])
    content = with_sentinels(json.loads(library.to_str()), sentinels)
    names = names_of(content)
    end = _signed(trainer.get(42, 2))
    if pieces[end][2] != _CONTROL:
        raise NextwordError(f"{path} has no piece that ends a text (eos_id is {end}), which nextword needs.")
    return Subwords(content, {name: names[name] for name in [*special, *sentinel_names(sentinels)]}, end, end)


def _model(data: bytes) -> tuple[list[tuple[str, float, int]], dict[int, Any], dict[int, Any]]:
    """Pieces as (text, score, type); the fields of the trainer's and the normaliser's specification by number."""
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
            raise IndexError(f"no such type: {kind}")
        if position + length > len(data):
            raise IndexError("cut short")
        yield key >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Seven bits a byte, lowest first; the eighth says that more follow."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_IN_A_FOLDER = ("tokenizer.json", "*encoder*.json", "*vocab*.json", "*vocab*.txt", "*.model")


def load_tokenizer(path: Path | str, sentinels: int = 0) -> Tokenizer:
    """The tokenizer in this file or folder. `sentinels` blanks are added to a SentencePiece model (T5 has 100)."""
    given = Path(path)
    file = _in_folder(given) if given.is_dir() else given
    if not file.is_file():
        raise NextwordError(f"There is no tokenizer at {given}. Expected a tokenizer.json, or a folder with one.")
    if sentinels and file.suffix != ".model":
        raise NextwordError(
            f"sentinels = {sentinels} only goes with a SentencePiece .model; {file} is none. Leave it out."
        )
    try:
        return _read(file, sentinels)
    except NextwordError:
        raise
    except Exception as error:  # the library raises bare Exceptions on bad JSON; ours would be a KeyError
        raise NextwordError(
            f"{file} is not a tokenizer that nextword can read ({type(error).__name__}: {error}). "
            "It may be damaged: copy it again, or train the tokenizer anew."
        ) from error


def _in_folder(folder: Path) -> Path:
    for pattern in _IN_A_FOLDER:
        found = sorted(folder.glob(pattern))
        if len(found) > 1:
            raise NextwordError(
                f"{folder} holds several tokenizers ({', '.join(file.name for file in found)}). Name one of the files."
            )
        if found:
            return found[0]
    raise NextwordError(
        f"There is no tokenizer in the folder {folder}. Looked for tokenizer.json, encoder.json with vocab.bpe, "
        "vocab.json with merges.txt, vocab.txt, and a SentencePiece .model."
    )


def _read(file: Path, sentinels: int) -> Tokenizer:
    if file.suffix == ".model":
        return load_sentencepiece(file, sentinels)
    if file.suffix == ".txt":
        return from_bert(file)
    if file.suffix != ".json":
        raise NextwordError(
            f"{file} is not a tokenizer file nextword knows. Give a tokenizer.json, the .json vocabulary that goes "
            "with a list of merges, a BERT vocab.txt, or a SentencePiece .model."
        )
    content = storage.read(file)
    header = storage.own(content)
    if header is not None:
        storage.check_version(header, file)
        return _ours(content, header)
    if isinstance(content.get("model"), dict):
        return from_hugging_face(content, file)
    if content and all(type(id) is int for id in content.values()):
        return from_merges(content, _merges_beside(file))
    raise NextwordError(
        f'{file} is JSON, but neither a tokenizer (it has no "model") nor a vocabulary (names and ids). '
        f"It begins with the keys {', '.join(list(content)[:5]) or '(none)'}."
    )


def _ours(content: Mapping[str, Any], header: Mapping[str, Any]) -> Tokenizer:
    kind = header["kind"]
    if kind == "bytes":
        return Bytes()
    if kind == "characters":
        return Characters(content["characters"])
    if kind == "words":
        return Words(content["words"], header["lower"], header["lines"])
    if kind == "lexicon":
        return Lexicon(content["words"], header["lower"], **{name: header.get(name, False) for name in CHOICES})
    return Subwords(content, header["special"], header["begin"], header["end"])


def _merges_beside(vocabulary: Path) -> Path:
    name = vocabulary.name.removesuffix(".json")
    names = [
        name.replace("encoder_bpe", "vocab").replace("encoder", "vocab") + ".bpe",  # OpenAI
        name.replace("vocab", "merges") + ".txt",  # Hugging Face
    ]
    for candidate in names:
        if (vocabulary.parent / candidate).is_file():
            return vocabulary.parent / candidate
    raise NextwordError(f"{vocabulary} is a vocabulary, but its merges are missing: looked for {' and '.join(names)}.")
