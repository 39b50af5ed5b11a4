"""Text ↔ token ids, with the bytes and the word that each id stands for.

| kind          | vocabulary                          | lossless | special tokens                                     |
| ------------- | ----------------------------------- | -------- | -------------------------------------------------- |
| `bytes`       | the 256 bytes                       | yes      | `<|endoftext|>`                                    |
| `characters`  | bytes and the characters seen       | yes      | `<|endoftext|>`                                    |
| `words`       | the most frequent words             | no       | `<unk>`, `<eos>` at every line end                 |
| `lexicon`     | those, and words with word vectors  | no       | `<unk>`, `<eos>` at the end of a document or line  |
| `bpe`         | byte-level BPE (GPT-2)              | yes      | `<|endoftext|>`; RoBERTa's with `marks`            |
| `classic-bpe` | BPE with `</w>` (GPT-1)             | no       | `<unk>`, `<|endoftext|>`                           |
| `wordpiece`   | WordPiece with `##` (BERT)          | no       | `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`, `[MASK]`       |
| `unigram`     | unigram LM with `▁` (T5)            | no       | `<pad>`, `</s>`, `<unk>`; ALBERT's with `marks`    |

`marks = true` adds the special tokens of a masked language model: `<s>`, `<pad>`, `</s>`, `<mask>` to a `bpe`; `<pad>`,
`<unk>`, `[CLS]`, `[SEP]`, `[MASK]` to a `unigram`. Text never produces special tokens: "<mask>" in a text is plain
text.

    tokenizer = train_tokenizer({"kind": "bpe", "size": 8000}, texts)
    tokenizer.save("tokenizer.json")
    tokenizer = load_tokenizer("tokenizer.json")  # or the files of GPT-2, BERT, T5 …

Modules:

    base            the Tokenizer class, its JSON file, incremental decoding
    alignment       bytes, characters and words of a text
    special_tokens  ids of [CLS], [MASK], sentinels … by role
    characters      kinds `bytes` and `characters`
    words           kind `words`
    ptb_words       kind `lexicon`
    subwords        kinds `bpe`, `classic-bpe`, `wordpiece`, `unigram`
    training        train_tokenizer: a recipe's [tokenizer] table
    loading         load_tokenizer: our file, or another project's
    hf_export       files for transformers' AutoTokenizer
"""

from __future__ import annotations

from nextword.tokenizers.base import Tokenizer, fingerprint, vocabulary

__all__ = ["Tokenizer", "fingerprint", "vocabulary"]
