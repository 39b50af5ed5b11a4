"""When to stop writing, and which text must wait until that is known.

A stop string may straddle pieces: with "\n\n" as stop string, a piece that ends in "\n" is let out only up to there,
and the "\n" follows when the next piece shows that it was not the beginning of the end.
"""

from __future__ import annotations

from nextword.core.errors import NextwordError
from nextword.core.types import Stop


class Stopper:
    """Watches one text as it is written; `reason` is None until it is time to stop.

        stopper = Stopper(stop)
        for id, log_prob in tokens(...):
            text = stopper.feed(decoded(id), ended=id == end)
            ... Piece(text, (id,), log_prob, stopper.reason)
            if stopper.reason:
                break

    The text that comes out does not depend on how the text was cut into pieces: of several stop strings the one that
    is complete first counts, and of those complete together the longest. The stop string itself never comes out.
    """

    def __init__(self, stop: Stop):
        if stop.length < 0:
            raise NextwordError(f"The length to generate is {stop.length}; it must be 0 or more tokens.")
        if not 0 <= stop.least <= stop.length:
            raise NextwordError(
                f"The least length is {stop.least} tokens; it must lie between 0 and the greatest, {stop.length}."
            )
        if "" in stop.strings:
            raise NextwordError("A stop string is empty, and would stop every text before it begins. Leave it out.")
        self.stop = stop
        self.tokens = 0
        self.held = ""  # the end of the text so far that may be the beginning of a stop string
        self.reason: str | None = None if stop.length else "length"

    def feed(self, text: str, ended: bool = False) -> str:
        """Takes the text of one token and returns the text that may be shown; all that was held if this is the last.

        `ended`: the token was the model's end of the document. A stop string wins over it, and it over the length.
        """
        if self.reason:
            return ""
        self.tokens += 1
        waiting = self.held + text
        match = self._match(waiting)
        if match is not None:
            self.reason, self.held = "stop", ""
            return waiting[:match]
        if ended and self.stop.at_end:
            self.reason = "end"
        elif self.tokens >= self.stop.length:
            self.reason = "length"
        keep = 0 if self.reason else self._beginning(waiting)
        self.held = waiting[len(waiting) - keep :]
        return waiting[: len(waiting) - keep]

    def close(self) -> str:
        """The text still held, for when there is nothing more to feed."""
        held, self.held = self.held, ""
        self.reason = self.reason or "end"
        return held

    def _match(self, text: str) -> int | None:
        """Where the stop string begins that is complete first."""
        found = [(at + len(s), at) for s in self.stop.strings if (at := text.find(s)) >= 0]
        return min(found)[1] if found else None

    def _beginning(self, text: str) -> int:
        """How many characters at the end of the text may be the beginning of a stop string."""
        lengths = (n for s in self.stop.strings for n in range(1, len(s)) if text.endswith(s[:n]))
        return max(lengths, default=0)
