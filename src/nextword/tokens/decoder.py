"""From ids back to text, one id at a time or all at once.

Lossless tokenizers write bytes and the text is their concatenation. Lossy ones forgot which spaces there were, so the
spaces their pieces ask for (`" the"`, `"the "`) become one space between words, and none at either end of a line.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from nextword.contract_protocols import Tokenizer


class Decoder:
    """Text as it is generated: whole characters only, so what was once given out never changes.

    `after` are ids that are written already (the prompt): they decide on the first space and are not given out again.

        decoder = Decoder(tokenizer, after=prompt_ids)
        for id in generated: print(decoder.push(id), end="")
        print(decoder.flush())
    """

    def __init__(self, tokenizer: Tokenizer, after: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._fresh = True  # at the start of a line, where no space is written
        self._space = False  # a space to write if a word follows
        for id in after:
            self.push(id)

    def push(self, id: int) -> str:
        data = self._tokenizer.piece(int(id))
        if not self._tokenizer.lossless:
            data = self._spaced(data)
        return self._utf8.decode(data)

    def flush(self) -> str:
        """What is left at the end: bytes of a character that was never finished, as U+FFFD."""
        return self._utf8.decode(b"", final=True)

    def _spaced(self, data: bytes) -> bytes:
        body = data.strip(b" ")
        before = data.startswith(b" ") or self._space
        self._space = (data.endswith(b" ") and bool(body)) or (before and not body)
        if not body:
            return b""
        written = b" " + body if before and not self._fresh and body != b"\n" else body
        self._fresh = body.endswith(b"\n")
        return written


def join(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """What a `Decoder` writes for these ids in all."""
    decoder = Decoder(tokenizer)
    return "".join([decoder.push(id) for id in ids]) + decoder.flush()
