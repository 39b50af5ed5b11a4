"""`--beam WIDTH --set beam.KEY=VALUE`: a beam from words, for every command that searches with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nextword.contract import Beam

KEYS = ("length_penalty", "normalisation", "coverage", "groups", "diversity")
HELP = "beam.length_penalty, .normalisation (power, gnmt), .coverage, .groups, .diversity"


def beam_of(width: int | None, changes: Sequence[str], more: Mapping[str, Any]) -> Beam | None:
    """The beam that was asked for, with `more` settings; None if none was."""
    from nextword.contract import Beam
    from nextword.contract_errors import NextwordError
    from nextword.recipe import suggestion

    if width is None:
        if changes:
            raise NextwordError(f"--set {changes[0]}: this is for a beam, and none is asked for. Add --beam WIDTH.")
        return None
    if width < 1:
        raise NextwordError(f"--beam {width}: the width is {width}, and a beam holds at least one text (1: greedy).")
    given: dict[str, Any] = {}
    for change in changes:
        name, _, value = change.partition("=")
        key = name.strip().removeprefix("beam.").replace("-", "_")
        if not name.strip().startswith("beam.") or key not in KEYS:
            raise NextwordError(
                f"--set {change}: expected beam.KEY=VALUE.{suggestion(key, KEYS)} A beam has {', '.join(KEYS)}."
            )
        given[key] = _value(key, value.strip(), change)
    if "normalisation" in given and not given.get("length_penalty"):
        raise NextwordError(
            "--set beam.normalisation says how lengths are counted, and beam.length_penalty how much they count. Give "
            "both."
        )
    if "diversity" in given and "groups" not in given:
        raise NextwordError(
            "--set beam.diversity is between groups of hypotheses, and there is one. Add --set beam.groups=NUMBER."
        )
    return Beam(width, **{**more, **given})


def _value(key: str, value: str, change: str) -> Any:
    from nextword.contract_errors import NextwordError

    if key == "normalisation":
        return value.strip("\"'")
    try:
        return int(value) if key == "groups" else float(value)
    except ValueError:
        raise NextwordError(f"--set {change}: expected a {'whole ' if key == 'groups' else ''}number.") from None
