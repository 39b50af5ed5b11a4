"""Special tokens by role, under whichever names a tokenizer family has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nextword.core.errors import Unsupported
from nextword.core.types import Vocabulary

MARKS = {  # role → names: BERT, ALBERT or XLNet, RoBERTa
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
}


@dataclass(frozen=True)
class Marks:
    """Ids of the special tokens of a masked language model."""

    cls: int
    sep: int
    mask: int
    pad: int

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Marks:
        ids = {
            role: next((vocabulary.special[name] for name in names if name in vocabulary.special), None)
            for role, names in MARKS.items()
        }
        missing = [" or ".join(MARKS[role]) for role, id in ids.items() if id is None]
        if missing:
            needed = f"A masked language model needs the special tokens {', '.join(missing)}"
            remedy = "Use kind = 'wordpiece', or 'bpe' or 'unigram' with marks = true."
            message = f"{needed}; the tokenizer has only {', '.join(vocabulary.special) or 'none'}. {remedy}"
            raise Unsupported(message, ability="mask")
        return cls(**{role: id for role, id in ids.items() if id is not None})


SENTINEL = "<extra_id_"  # T5: <extra_id_0> replaces the first span that was removed, <extra_id_1> the second …


def sentinels(special: Mapping[str, int]) -> list[int]:
    """Return the ids of T5's sentinel tokens, in order."""
    ids: list[int] = []
    while (name := f"{SENTINEL}{len(ids)}>") in special:
        ids.append(special[name])
    return ids


MASKS = ("[MASK]", "[sMASK]", "[gMASK]")  # GLM: a blank of a few tokens, of whole sentences, of the rest of a text


@dataclass(frozen=True)
class PieceMarks:
    """Ids for filling blanks token by token (GLM). Any tokenizer will do.

    begin, end   delimit the tokens of a blank: the tokenizer's own BOS and EOS (BOS for both if there is no EOS)
    masks        stand for the blanks: ids beyond the vocabulary, which are read and never predicted
    """

    begin: int
    end: int
    masks: tuple[int, ...]  # in the order of MASKS

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> PieceMarks:
        end = vocabulary.begin if vocabulary.end is None else vocabulary.end
        return cls(vocabulary.begin, end, tuple(vocabulary.size + i for i in range(len(MASKS))))
