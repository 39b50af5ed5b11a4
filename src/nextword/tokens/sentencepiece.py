"""SentencePiece `.model` files, read without the sentencepiece package: the few protobuf fields that matter.

A protobuf message is a row of (key, value); key = number · 8 + type, and a value is a varint (type 0), eight bytes (1),
a length and that many bytes (2), or four bytes (5). `sentencepiece_model.proto` names the numbers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers

from nextword.contract_errors import NextwordError
from nextword.tokens.subwords import Subwords, names_of, sentinel_names, with_sentinels

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
