"""Tokens that stand around texts and in place of hidden ones, by whichever names a tokenizer's family has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nextword.contract import Vocabulary
from nextword.contract_errors import NextwordError

MARKS = {
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
}


@dataclass(frozen=True)
class Marks:
    """Ids of the tokens that stand around texts, between them, in place of a hidden one and after the end."""

    cls: int
    sep: int
    mask: int
    pad: int

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Marks:
        """By whichever names the tokenizer's family has for them."""
        found = {
            mark: next((vocabulary.special[n] for n in called if n in vocabulary.special), None)
            for mark, called in MARKS.items()
        }
        lacking = [" or ".join(MARKS[mark]) for mark, id in found.items() if id is None]
        if lacking:
            raise NextwordError(
                f"The tokenizer has no {', no '.join(lacking)}; its special tokens are: "
                f"{', '.join(vocabulary.special) or 'none'}. A model that fills in hidden tokens needs them: use a "
                "tokenizer of kind 'wordpiece', or 'bpe' or 'unigram' with marks = true, or one that came with such a "
                "model."
            )
        return cls(**{mark: int(id) for mark, id in found.items() if id is not None})


MASKS = ("[MASK]", "[sMASK]", "[gMASK]")  # a blank of a few tokens, of whole sentences, of the rest of a text
SENTINEL = "<extra_id_"  # T5's: <extra_id_0> stands in the place of the first span that was taken out, and so on


def sentinels(special: Mapping[str, int]) -> list[int]:
    """The ids of a tokenizer's sentinels, in order."""
    found: list[int] = []
    while (name := f"{SENTINEL}{len(found)}>") in special:
        found.append(special[name])
    return found


@dataclass(frozen=True)
class PieceMarks:
    """Ids for texts whose blanks are filled piece by piece. A tokenizer needs nothing new for them:

    begin, end   around a piece, as around any text: the tokenizer's own. Where it has no end, what it begins with
    masks        in place of a piece: beyond the vocabulary, for they are read and never written
    """

    begin: int
    end: int
    masks: tuple[int, ...]  # as in MASKS

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> PieceMarks:
        end = vocabulary.begin if vocabulary.end is None else vocabulary.end
        return cls(vocabulary.begin, end, tuple(vocabulary.size + i for i in range(len(MASKS))))
