"""Other projects' vocabularies as ours: GPT-2, GPT-1, RoBERTa, BERT, and Hugging Face's `tokenizer.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers

from nextword.contract_errors import NextwordError
from nextword.tokens.subwords import Subwords, names_of, unknown_of

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
