"""`nextword next`: the most likely next words, or words for blanks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Run, Top, console, emit_json, print_warnings
from nextword.cli.views import NEXT_VIEWS, HtmlFile, explain_next, show_view

if TYPE_CHECKING:
    from nextword.core.types import Guess
    from nextword.lm.base import TextModel

BLANK = "___"
BAR_WIDTH = 24
EXAMPLE_WORDS = 8


def next_command(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text so far; for masked models, ___ marks each blank.")],
    k: Top = 10,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show tokens instead of whole words.")] = False,
    explain: Annotated[
        str, typer.Option("--explain", metavar="VIEW", help=f"Look inside instead: {', '.join(NEXT_VIEWS)}.")
    ] = "",
    html: HtmlFile = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Show the most likely next words, or words for the blanks of a text, with their probabilities.

    [dim]Examples[/]
      nextword next runs/lstm-tiny "In the beginning God created the"
      nextword next runs/bert-tiny "The ___ is returned by the ___."
      nextword next runs/glm-tiny "The ___ is returned by the ___."
      nextword next runs/lstm-tiny "In the beginning" --explain saliency
      nextword next runs/gpt2-tiny "In the beginning" --explain attention --html a.html

    A model that generates spans (GLM, T5) may fill a blank with several words; the others use one.
    """
    from nextword.core.errors import InvalidSetting, Unsupported
    from nextword.data.segmentation import is_unspaced
    from nextword.lm.loading import load

    lm = load(run, device)
    if html is not None and not explain:
        raise InvalidSetting("--html needs --explain VIEW.", key="html", value=str(html))
    if explain:
        show_view(explain_next(lm, text, explain, k), json, html)
        return
    if BLANK not in text and "generate" not in lm.can and "fill" in lm.can:
        words = [text[-2 * EXAMPLE_WORDS :] + BLANK] if is_unspaced(text) else [*text.split()[-EXAMPLE_WORDS:], BLANK]
        example = " ".join(words).replace('"', "")
        raise Unsupported(
            f'This model fills blanks; it does not continue a text. Mark the place with {BLANK}: nextword next {run} "'
            f'{example}"',
            ability="next",
        )
    if BLANK in text and "fill" in lm.can:
        blanks = lm.fill(text, k, tokens)
        _warn_about_length(lm, text)
    else:
        left, blank, right = text.partition(BLANK)
        blanks = [lm.next(left.rstrip() if blank else left, right, k, tokens=tokens)]
    if json:
        rows = [[{"text": g.text, "probability": g.probability} for g in guesses] for guesses in blanks]
        emit_json({"text": text, "guesses": rows[0], **({"blanks": rows} if BLANK in text else {})})
        return
    for i, guesses in enumerate(blanks, 1):
        if len(blanks) > 1:
            console.print(f"[bold]blank {i}[/]")
        _print_guesses(guesses)


def _print_guesses(guesses: Sequence[Guess]) -> None:
    largest = max((guess.probability for guess in guesses), default=1.0)
    for guess in guesses:
        bar = "█" * max(1, round(BAR_WIDTH * guess.probability / largest))
        text = guess.text.replace("\n", "⏎") if guess.text.strip() else repr(guess.text)
        console.print(f"{100 * guess.probability:6.2f} %  [cyan]{bar:<{BAR_WIDTH}}[/] {escape(text)}")


def _warn_about_length(lm: TextModel, text: str) -> None:
    from nextword.lm.blank_filling import BlankFillingMixin

    if not isinstance(lm, BlankFillingMixin):
        return
    length = len(lm.tokenizer.encode(text.replace(BLANK, " ")))
    window = min(lm.room, lm.context or lm.room)
    if length > window:
        print_warnings(
            [f"the text has {length:,} tokens, the window {window:,}: only the tokens nearest to each blank are read"]
        )
