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
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Tokenizer
from nextword.tokens import storage
from nextword.tokens.foreign import from_bert, from_hugging_face, from_merges
from nextword.tokens.letters import Bytes, Characters
from nextword.tokens.lexicon import CHOICES, Lexicon
from nextword.tokens.sentencepiece import load_sentencepiece
from nextword.tokens.subwords import Subwords
from nextword.tokens.words import Words

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
