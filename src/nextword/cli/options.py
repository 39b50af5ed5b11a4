"""Options that mean the same in every command, written once."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto.", show_default=True)]
Precision = Annotated[str, typer.Option("--precision", help="Of the weights: fp32, bf16 or int8.", show_default=True)]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run folder (see `nextword runs`).", show_default=False)]
