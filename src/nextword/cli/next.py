"""`nextword next`: what comes next, or stands in a blank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextword.cli.console import Device, Json, Run, console, emit_json, err

if TYPE_CHECKING:
    from nextword.core.types import Guess

BLANK = "___"


def next_command(
    run: Run,
    text: Annotated[str, typer.Argument(help="Text so far; ___ marks each blank for models that see both sides.")],
    k: Annotated[int, typer.Option("-k", help="How many guesses.")] = 10,
    tokens: Annotated[bool, typer.Option("--tokens", help="Raw tokens instead of whole words.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """The most likely next words, or words for the blanks of a text, with their probabilities.

    [dim]Examples[/]
      nextword next runs/lstm-tiny "In the beginning God created the"
      nextword next runs/bert-tiny "The ___ is returned by the ___."
      nextword next runs/glm-tiny "The ___ is returned by the ___."

    A model that writes pieces fills a blank with one word or several; the others with one.
    """
    from nextword.core.errors import NextwordError
    from nextword.lm.loading import load

    lm = load(run, device)
    if BLANK not in text and "generate" not in lm.can and "fill" in lm.can:
        raise NextwordError(
            "This model does not write on: it fills in what is missing between two texts. Mark the place with "
            f'{BLANK}, for example: nextword next {run} "{_example(text)}"'
        )
    if BLANK in text and "fill" in lm.can:
        found = lm.fill(text, k, tokens)
        _note(lm, text)
    else:
        left, blank, right = text.partition(BLANK)
        found = [lm.next(left.rstrip() if blank else left, right, k, tokens=tokens)]
    if json:
        listed = [[{"text": g.text, "probability": g.probability} for g in guesses] for guesses in found]
        emit_json({"text": text, "guesses": listed[0], **({"blanks": listed} if BLANK in text else {})})
        return
    for i, guesses in enumerate(found, 1):
        if len(found) > 1:
            console.print(f"[bold]blank {i}[/]")
        _show(guesses)


def _show(guesses: Sequence[Guess]) -> None:
    from rich.markup import escape

    widest = max((g.probability for g in guesses), default=1.0)
    for guess in guesses:
        bar = "█" * max(1, round(24 * guess.probability / widest))
        shown = guess.text.replace("\n", "⏎") if guess.text.strip() else repr(guess.text)
        console.print(f"{100 * guess.probability:6.2f} %  [cyan]{bar:<24}[/] {escape(shown)}")


def _note(lm: Any, text: str) -> None:
    """Says so where the text has not fitted into the window."""
    length = len(lm.tokenizer.encode(text.replace(BLANK, " ")))
    room = min(lm.room, lm.context or lm.room)
    if length > room:
        err.print(
            f"note: the text has {length:,} tokens, the window holds {room:,}: those nearest to each blank are read",
            soft_wrap=True,
        )


def _example(text: str) -> str:
    """The end of the text, with a blank after it."""
    return " ".join([*text.split()[-8:], BLANK]).replace('"', "")
