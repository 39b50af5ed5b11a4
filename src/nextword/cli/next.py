"""`nextword next`: what comes next."""

from __future__ import annotations

from typing import Annotated

import typer

from nextword.cli.console import console, emit_json
from nextword.cli.options import Device, Json, Run


def next_command(
    run: Run,
    text: Annotated[str, typer.Argument(help="Text so far; ___ marks a blank for models that see both sides.")],
    k: Annotated[int, typer.Option("-k", help="How many guesses.")] = 10,
    tokens: Annotated[bool, typer.Option("--tokens", help="Raw tokens instead of whole words.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """The most likely next words, with their probabilities.

    [dim]Example[/]
      nextword next runs/lstm-tiny "In the beginning God created the"
    """
    from rich.markup import escape

    from nextword.language_model import load

    left, blank, right = text.partition("___")
    guesses = load(run, device).next(left.rstrip() if blank else left, right, k, tokens=tokens)
    if json:
        emit_json({"text": text, "guesses": [{"text": g.text, "probability": g.probability} for g in guesses]})
        return
    widest = max((g.probability for g in guesses), default=1.0)
    for guess in guesses:
        bar = "█" * max(1, round(24 * guess.probability / widest))
        shown = guess.text.replace("\n", "⏎") if guess.text.strip() else repr(guess.text)
        console.print(f"{100 * guess.probability:6.2f} %  [cyan]{bar:<24}[/] {escape(shown)}")
