"""What tokens are called in files that know nothing but words: something visible for each id, all of them different.

    words        the word itself
    other kinds  the bytes that the token writes, in GPT-2's letters: " the" is Ġthe, a line end Ċ, "é" Ã©
    special      its name; but the unknown token is <unk> and the boundary </s>, whatever they are called
    taken        what the text has under a name that is kept (`KEPT`), or that an earlier token has, and what writes
                 nothing, get # and their id: a word <s> with the id 7 is <s>#7

So a text is spelled for another program: " ".join(names[id] for id in tokenizer.encode(text).ids).
"""

from __future__ import annotations

from nextword.contract_protocols import Tokenizer
from nextword.tokens.subwords import byte_symbols

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
KEPT = (BEGIN, END, UNKNOWN, "<UNK>", "<eos>")  # KenLM takes <UNK> for <unk>; <eos> is what nextword calls </s>


def spellings(tokenizer: Tokenizer, boundary: int) -> tuple[list[str], list[int]]:
    """The names by id, and the ids of those that had to get # and their id."""
    letters = {byte: letter for letter, byte in byte_symbols().items()}
    special = {id: name for name, id in tokenizer.special.items()}
    unknown = next((id for id, name in special.items() if "unk" in name.lower() and id != boundary), None)
    taken, names, changed = set(KEPT), [], []
    for id in range(len(tokenizer)):
        if id in (boundary, unknown):
            names.append(END if id == boundary else UNKNOWN)
            continue
        written = special[id].encode() if id in special else tokenizer.piece(id)
        if tokenizer.kind == "words":
            name = written.decode().strip(" ")
        else:
            name = "".join([letters[byte] for byte in written])
        if not name or name in taken:
            changed.append(id)
            while not name or name in taken:
                name += f"#{id}"
        taken.add(name)
        names.append(name)
    return names, changed
