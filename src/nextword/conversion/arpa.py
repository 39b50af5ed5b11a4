"""ARPA files: read them into runs, write n-gram runs as ARPA files.

A run read from a file has the tokenizer `words` with the file's vocabulary: every line of a text is a sentence, with
<s> before it and </s> at its end. If the file's words are the tokens of another tokenizer, name it (`--tokenizer`): the
run then reads plain text. What the model was estimated on is unknown; the manifest records the file's checksum.

Files are written so that both KenLM and SRILM read them (`--set arpa.convention=kenlm`: exactly as lmplz writes them).
ARPA files know only words, so every token needs a visible name of its own:

    words         the word itself
    other kinds   the bytes of the token in GPT-2's letters: " the" is Ġthe, a line end Ċ, "é" Ã©
    special       its name; but the unknown token is always <unk>, and the boundary </s>
    taken         a token whose name is empty, reserved or already used gets # and its id: a word <s> with id 7 is <s>#7

`spell_text` writes a text that way, for another program. If the file alone does not give the tokenizer back, it is
written next to it: bpe.arpa.gz has bpe.tokenizer.json, which is found again when the file is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from nextword.conversion.base import (
    LAYOUT_KEYS,
    TOKENIZER_KEY,
    Conversion,
    Progress,
    check_changes,
    create_ngram_run,
    describe_origin,
    last_value,
    ngram_facts,
    open_ngrams,
    require_bool,
    take_tokenizer,
)
from nextword.core.errors import RunError, bad_data
from nextword.core.io import DecompressedFile
from nextword.models.base import Network
from nextword.models.ngram import NGram
from nextword.ngrams.arpa import CONVENTIONS, UNKNOWN_MISSING, read_arpa, write_arpa
from nextword.ngrams.trie import NODE, NONE, Trie
from nextword.recipe import Recipe, network_config, parse_recipe
from nextword.run_folder import RunFolder, checksum
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.subwords import Subwords, byte_symbols, names_of
from nextword.tokenizers.words import Words

NAME, KNOWN_BY = "an ARPA file", ".arpa or .lm, also compressed"
SUFFIXES = (".arpa", ".lm")
COMPRESSED = ("", ".gz", ".bz2", ".xz", ".zst")
DEFAULT_CONVENTION = "srilm"  # <s> has log10 p -99, which KenLM, SRILM and simpler programs all accept
HEADER_BYTES = 1 << 16  # that may precede \data\
MAX_KENLM_ORDER = 6
MAX_SHOWN = 3  # names in a note
BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
TOKENIZER_SUFFIX = ".tokenizer.json"  # of the tokenizer next to an ARPA file
SUBWORD_PREFIXES, SUBWORD_SUFFIX = ("Ġ", "▁", "##"), "</w>"  # of GPT-2, SentencePiece and BERT; of GPT-1
MIN_SUBWORDS = 0.1  # share of marked words from which on a file's words are subwords
RESERVED = (BEGIN, END, UNKNOWN, "<UNK>", "<eos>")  # KenLM reads <UNK> as <unk>; <eos> is our name for </s>


def is_target(path: Path) -> bool:
    return path.name.lower().endswith(tuple(suffix + packed for suffix in SUFFIXES for packed in COMPRESSED))


def is_source(path: Path) -> bool:
    if not path.is_file():
        return False
    if is_target(path):
        return True
    file, buffer = DecompressedFile(path), memoryview(bytearray(HEADER_BYTES))
    try:
        size = 0
        while size < HEADER_BYTES and (read := file.read_into(buffer[size:])):
            size += read
    finally:
        file.close()
    lines = bytes(buffer[:size]).removeprefix(b"\xef\xbb\xbf").splitlines()
    return b"\\data\\" in [line.strip() for line in lines]


# ------------------------------------------------------------------------------------------------ reading


def read(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Conversion:
    check_changes(changes, (*LAYOUT_KEYS, "tokenizer.lower", TOKENIZER_KEY))
    path, settings = take_tokenizer(changes)
    if not path and tokenizer_beside(source).is_file():
        path = str(tokenizer_beside(source))
    tokenizer = load_tokenizer(path) if path else None
    _make_recipe(source.name, 1, settings, tokenizer)  # reports wrong changes before a long read
    renumber = None if tokenizer is None else _TokenIds(source, tokenizer, path)
    trie, names = read_arpa(source, partial(progress, f"reading {source.name}"), renumber)
    recipe = _make_recipe(source.name, trie.order, settings, tokenizer)
    progress(f"writing {target.name}", 0, None)
    notes, warnings = _read_notes(trie, names, tokenizer is not None), []
    if tokenizer is None:
        tokenizer = Words(names[2:], lower=recipe.tokenizer.get("lower", False))
        if _are_subwords(names):
            warnings.append(
                "The file's words look like the tokens of a subword tokenizer, so plain text is mostly unknown to this "
                f"run. Read the file with that tokenizer: nextword convert {source} RUN --tokenizer PATH"
            )
    else:
        notes.insert(0, f"Text is split into tokens by {path}.")
    origin = describe_origin(source, NAME, recipe, checksum=checksum(source))
    return replace(create_ngram_run(target, recipe, tokenizer, trie, notes, **origin), warnings=warnings)


def _make_recipe(name: str, order: int, changes: Sequence[str], tokenizer: Tokenizer | None) -> Recipe:
    """A recipe for a model that was estimated elsewhere. It names no data: there is nothing to train again."""
    is_lower = tokenizer is not None and tokenizer.lower
    tables = {
        "paper": {"slug": "ngram", "title": f"estimated elsewhere and read from {name}"},
        "tokenizer": {"kind": tokenizer.kind if tokenizer else "words"} | ({"lower": True} if is_lower else {}),
        "model": {"order": order},
        "phase": [{"kind": "count"}],
    }
    if tokenizer:
        check_changes(changes, LAYOUT_KEYS)
    recipe = parse_recipe(tables, name, changes)
    network_config(recipe)
    require_bool(recipe, "lower")
    return recipe


class _TokenIds:
    """Gives the words of a file the ids that they have as tokens of a tokenizer."""

    def __init__(self, source: Path, tokenizer: Tokenizer, path: str) -> None:
        self.source, self.tokenizer, self.path = source, tokenizer, path

    def __call__(self, words: Sequence[str]) -> tuple[np.ndarray, int]:
        ids = max(self._spellings(), key=lambda ids: sum(word in ids for word in words))
        foreign = [word for word in words[2:] if word not in ids]
        if foreign:
            raise bad_data(
                self.source,
                f"{_describe_names(foreign)} {'are' if len(foreign) > 1 else 'is'} not among the "
                f"{len(self.tokenizer):,} tokens of {self.path}. Give the tokenizer that split the model's training "
                "text: --tokenizer PATH.",
            )
        found = [ids.get(UNKNOWN, NONE), _boundary(self.tokenizer), *(ids[word] for word in words[2:])]
        return np.array(found, NODE), len(self.tokenizer)

    def _spellings(self) -> list[dict[str, int]]:
        """Token → id, as nextword spells the tokens in ARPA files, and as the tokenizer's own file does ("▁the")."""
        names, _ = spell_tokens(self.tokenizer, _boundary(self.tokenizer))
        spellings = [{name: id for id, name in enumerate(names)}]
        if isinstance(self.tokenizer, Subwords):
            own, unknown = names_of(self.tokenizer.library), spellings[0].get(UNKNOWN)
            spellings.append(own if unknown is None else own | {UNKNOWN: unknown})
        return spellings


def _read_notes(trie: Trie, names: Sequence[str], has_tokenizer: bool) -> list[str]:
    unigrams, notes = trie.levels[0].log_probs, []
    if np.isclose(unigrams, UNKNOWN_MISSING * math.log(10)).any():
        what = "a token without a unigram" if has_tokenizer else "an unknown word"
        notes.append(f"The file has no <unk>: {what} gets log10 p = {UNKNOWN_MISSING:.0f}, as in KenLM.")
    if unigrams[trie.boundary] == -np.inf:
        notes.append("The file has no </s>: the end of a line has probability 0.")
    if inserted := trie.facts.get("inserted"):
        notes.append(f"{inserted:,} missing n-grams that others depend on were inserted; no probability changes.")
    if spaced := [name for name in names if name.split() != [name] and not has_tokenizer]:
        notes.append(f"{_describe_names(spaced)} contain a space, so no text can match them.")
    return notes


def _are_subwords(names: Sequence[str]) -> bool:
    if not {"Ġ", "▁"}.isdisjoint(names):  # a space as a token of its own: bytes and characters have one
        return True
    marked = sum(name.startswith(SUBWORD_PREFIXES) or name.endswith(SUBWORD_SUFFIX) for name in names)
    return marked > MIN_SUBWORDS * len(names)


# ------------------------------------------------------------------------------------------------ writing


def can_write(run: RunFolder, cls: type[Network]) -> bool:
    return issubclass(cls, NGram)


def write(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Conversion:
    check_changes(changes, ("arpa.convention",))
    convention = last_value(changes, DEFAULT_CONVENTION, CONVENTIONS)
    run, trie = open_ngrams(source)
    names, renamed = spell_tokens(run.tokenizer, trie.boundary)
    tokenizer_file = None if _is_plain(run.tokenizer) and not renamed else tokenizer_beside(target)
    if tokenizer_file is not None:
        if tokenizer_file.exists():
            message = (
                f"{tokenizer_file} exists already, and convert overwrites nothing. Choose another name for {target}."
            )
            raise RunError(message, path=tokenizer_file)
        target.parent.mkdir(parents=True, exist_ok=True)
        run.tokenizer.save(tokenizer_file)
    try:
        write_arpa(trie, names, target, convention, partial(progress, f"writing {target.name}"))
    except BaseException:
        if tokenizer_file is not None:
            tokenizer_file.unlink()
        raise
    notes = []
    if renamed:
        notes.append(f"{_describe_names([names[id] for id in renamed])} got # and their id: the plain name was taken.")
    has_words = run.tokenizer.kind == "words"
    if not has_words:
        notes.append(
            f"The file's words are {run.tokenizer.kind} tokens in GPT-2's letters (' the' is Ġthe): spell a text that "
            "way before another program reads it."
        )
    if tokenizer_file is not None:
        notes.append(f"The tokenizer is in {tokenizer_file}; nextword convert reads it together with {target.name}.")
    if not 2 <= trie.order <= MAX_KENLM_ORDER:
        notes.append(f"KenLM, as usually built, reads orders 2 to {MAX_KENLM_ORDER}; this file has {trie.order}.")
    use = f"""python -c "import kenlm; print(kenlm.Model('{target}').score('{"the" if has_words else "Ġthe"}'))\""""
    if target.suffix.lower() == ".zst":
        use = f"zstd -d {target}  (KenLM cannot read .zst)"
    return Conversion(target, NAME, target.stat().st_size, ngram_facts(trie), use, notes)


def tokenizer_beside(path: Path) -> Path:
    """Where the tokenizer of an ARPA file is: bpe.arpa.gz has bpe.tokenizer.json."""
    name = path.name
    for endings in (COMPRESSED[1:], SUFFIXES):
        ending = next((ending for ending in endings if name.lower().endswith(ending)), "")
        name = name.removesuffix(name[len(name) - len(ending) :])
    return path.with_name(name + TOKENIZER_SUFFIX)


def spell_text(tokenizer: Tokenizer, text: str) -> str:
    """The tokens of a text as words of the ARPA file, separated by spaces, for KenLM and other programs."""
    names, _ = spell_tokens(tokenizer, _boundary(tokenizer))
    return " ".join([names[id] for id in tokenizer.encode(text).ids])


def _boundary(tokenizer: Tokenizer) -> int:
    return tokenizer.begin if tokenizer.end is None else tokenizer.end


def _is_plain(tokenizer: Tokenizer) -> bool:
    """Whether reading the file without a tokenizer gives the same one."""
    return isinstance(tokenizer, Words) and tokenizer.lines and not tokenizer.lower


def spell_tokens(tokenizer: Tokenizer, boundary: int) -> tuple[list[str], list[int]]:
    """A visible name for every id, and the ids that had to get # and their id."""
    letters = {byte: letter for letter, byte in byte_symbols().items()}
    special = {id: name for name, id in tokenizer.special.items()}
    unknown = next((id for id, name in special.items() if "unk" in name.lower() and id != boundary), None)
    taken, names, renamed = set(RESERVED), [], []
    for id in range(len(tokenizer)):
        if id in (boundary, unknown):
            names.append(END if id == boundary else UNKNOWN)
            continue
        piece = special[id].encode() if id in special else tokenizer.piece(id)
        if tokenizer.kind == "words":
            name = piece.decode().strip(" ")
        else:
            name = "".join([letters[byte] for byte in piece])
        if not name or name in taken:
            renamed.append(id)
            while not name or name in taken:
                name += f"#{id}"
        taken.add(name)
        names.append(name)
    return names, renamed


def _describe_names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:MAX_SHOWN]) + (", …" if len(names) > MAX_SHOWN else "")
    return f"{len(names):,} word{'s' if len(names) > 1 else ''} ({shown})"
