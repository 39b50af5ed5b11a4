"""`nextword embed`: texts as vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nextword.cli.console import console, emit_json, read_lines
from nextword.cli.options import Device, Json, Run


def embed(
    run: Run,
    file: Annotated[Path, typer.Argument(help="One text a line.")],
    layer: Annotated[int, typer.Option("--layer", help="0: the embedding; -1: the last.")] = -1,
    out: Annotated[Path | None, typer.Option("--out", help=".npy or .safetensors. Default: FILE.npy.")] = None,
    query: Annotated[str, typer.Option("--query", help="Show the lines nearest to this text instead.")] = "",
    k: Annotated[int, typer.Option("-k", help="How many lines to show with --query.", min=1)] = 10,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """The vector of every line, or the lines nearest to a query.

    [dim]Examples[/]
      nextword embed runs/lstm-tiny lines.txt --out vectors.npy
      nextword embed runs/lstm-tiny lines.txt --query "the king of Israel"
    """
    import numpy as np
    import torch

    from nextword.contract import NextwordError
    from nextword.language_model import load

    if not file.is_file():
        raise NextwordError(f"There is no file {file}.")
    lines = read_lines(file)
    if not lines:
        raise NextwordError(f"{file} has no line to embed.")
    target = out or file.with_suffix(".npy")
    if not query and target.suffix not in (".npy", ".safetensors"):
        raise NextwordError(f"--out {target}: vectors are written as .npy or .safetensors.")
    if not query and not target.parent.is_dir():
        raise NextwordError(f"--out {target}: there is no folder {target.parent}.")
    lm = load(run, device)
    vectors = lm.embed(lines, layer)
    if query:
        unit = torch.nn.functional.normalize(vectors, dim=1)
        near = (unit @ torch.nn.functional.normalize(lm.embed([query], layer), dim=1)[0]).topk(min(k, len(lines)))
        found = list(zip(near.values.tolist(), near.indices.tolist(), strict=True))
        if json:
            emit_json({"query": query, "lines": [{"similarity": s, "line": i + 1, "text": lines[i]} for s, i in found]})
            return
        for similarity, i in found:
            console.print(f"{similarity:6.3f}  {i + 1:>6}  {lines[i]}", markup=False)
        return
    if target.suffix == ".npy":
        np.save(target, vectors.numpy())
    else:
        from safetensors.torch import save_file

        save_file({"vectors": vectors}, str(target))
    facts = {"file": str(target), "texts": len(lines), "width": vectors.shape[1], "layer": layer}
    if json:
        emit_json(facts)
    else:
        console.print(f"{len(lines):,} vectors of width {vectors.shape[1]} → {target}")
