"""TEXT → IDS, with the bytes and the word that each id stands for.

| kind          | learnt                        | lossless | special                                       |
| ------------- | ----------------------------- | -------- | --------------------------------------------- |
| `bytes`       | nothing                       | yes      | `<|endoftext|>`                               |
| `characters`  | the characters that occur     | yes      | `<|endoftext|>`                               |
| `words`       | the commonest words           | no       | `<unk>`, `<eos>` at every line end            |
| `lexicon`     | the same, beside given ones   | no       | `<unk>`, `<eos>` at the end of a text, or line |
| `bpe`         | byte-level merges (GPT-2)     | yes      | `<|endoftext|>`, or marks                     |
| `classic-bpe` | merges with `</w>` (GPT-1)    | no       | `<unk>`, `<|endoftext|>`                      |
| `wordpiece`   | pieces with `##` (BERT)       | no       | `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`, `[MASK]`  |
| `unigram`     | pieces with `▁` (T5)          | no       | `<pad>`, `</s>`, `<unk>` or marks, sentinels  |

`marks = true` is for models that fill in hidden tokens: `<s>`, `<pad>`, `</s>`, `<mask>` (RoBERTa) in a `bpe`; `<pad>`,
`<unk>`, `[CLS]`, `[SEP]`, `[MASK]` (ALBERT) in a `unigram`. No text spells them: "<mask>" in a text is six characters.

    tokenizer = train_tokenizer({"kind": "bpe", "size": 8000}, texts)
    tokenizer.save("tokenizer.json")
    tokenizer = load_tokenizer("tokenizer.json")  # or GPT-2's, BERT's, T5's files
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nextword.core.protocols import Tokenizer
from nextword.core.types import Vocabulary
from nextword.tokenizers import base as storage


class Spellings(Sequence[bytes]):
    """id → bytes, looked up when read: most networks never do."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return len(self.tokenizer)

    def __getitem__(self, id: Any) -> Any:
        if isinstance(id, slice):
            return [self[i] for i in range(*id.indices(len(self)))]
        if not -len(self) <= id < len(self):
            raise IndexError(id)
        return self.tokenizer.piece(id % len(self))


def vocabulary(tokenizer: Tokenizer, spellings: bool = False) -> Vocabulary:
    """What a network is told of its tokenizer; `spellings` for the networks that read the letters of a word (ELMo)."""
    pieces = Spellings(tokenizer) if spellings else ()
    return Vocabulary(len(tokenizer), tokenizer.begin, tokenizer.special, tokenizer.end, pieces)


def fingerprint(tokenizer: Any) -> str:
    """16 hexadecimal digits that are equal for equal tokenizers, on every machine and after saving and loading."""
    return storage.fingerprint(tokenizer.content())
