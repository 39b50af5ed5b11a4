"""When to stop generating, and which text to hold back until that is known.

A stop string may span pieces: with "\n\n" as stop string, a piece that ends in "\n" is shown without it, and the "\n"
follows when the next piece shows that it did not begin the stop string.
"""

from __future__ import annotations

from nextword.core.errors import invalid
from nextword.core.types import Stop


class Stopper:
    """Watch one text as it is generated; `reason` is None until it is time to stop.

        stopper = Stopper(stop)
        for id, log_prob in generate_tokens(...):
            text = stopper.feed(decode(id), ended=id == end)
            ... Piece(text, (id,), log_prob, stopper.reason)
            if stopper.reason:
                break

    The text that comes out does not depend on how it was cut into pieces: of several stop strings the one that is
    complete first counts, and of those complete together the longest. The stop string itself never comes out.
    """

    def __init__(self, stop: Stop):
        if stop.max_tokens < 0:
            raise invalid("max_tokens", stop.max_tokens, "must be 0 or more tokens.")
        if not 0 <= stop.min_tokens <= stop.max_tokens:
            raise invalid("min_tokens", stop.min_tokens, f"must be from 0 to max_tokens = {stop.max_tokens} tokens.")
        if "" in stop.strings:
            raise invalid("strings", stop.strings, "must not be empty: an empty one would stop every text at once.")
        self.stop = stop
        self.tokens = 0
        self.held = ""  # the end of the text so far, which may be the beginning of a stop string
        self.reason: str | None = None if stop.max_tokens else "length"

    def feed(self, text: str, ended: bool = False) -> str:
        """Take the text of one token and return the text that may be shown; all of it if this token is the last.

        `ended`: the token was the model's end of document. A stop string takes precedence over it, and it over length.
        """
        if self.reason:
            return ""
        self.tokens += 1
        waiting = self.held + text
        match = self._find_stop(waiting)
        if match is not None:
            self.reason, self.held = "stop", ""
            return waiting[:match]
        if ended and self.stop.at_end:
            self.reason = "end"
        elif self.tokens >= self.stop.max_tokens:
            self.reason = "length"
        hold = 0 if self.reason else self._partial_stop(waiting)
        self.held = waiting[len(waiting) - hold :]
        return waiting[: len(waiting) - hold]

    def close(self) -> str:
        """Return the text still held, when there is nothing more to feed."""
        held, self.held = self.held, ""
        self.reason = self.reason or "end"
        return held

    def _find_stop(self, text: str) -> int | None:
        """Where the stop string begins that is complete first."""
        matches = [(at + len(s), at) for s in self.stop.strings if (at := text.find(s)) >= 0]
        return min(matches)[1] if matches else None

    def _partial_stop(self, text: str) -> int:
        """The number of characters at the end of the text that may begin a stop string."""
        lengths = (n for s in self.stop.strings for n in range(1, len(s)) if text.endswith(s[:n]))
        return max(lengths, default=0)
