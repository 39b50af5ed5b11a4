"""A graph of computations as a picture: a box for each node with its value and its gradient, arrows to what uses it.

draw(loss)               a notebook shows the picture; str() of it, or `.page()`, is HTML that loads nothing
draw(loss, depth=3)      nodes further back are folded; below the picture every node can be unfolded
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from nextword.micro.engine import Node, sorted_graph

WIDTH, HEIGHT = 132, 46  # of a box
GAP_X, GAP_Y = 44, 14
STYLE = """
.autograd { font: 13px/1.4 system-ui, sans-serif; }
.autograd svg { display: block; max-width: none; }
.autograd .scroll { overflow-x: auto; }
.autograd rect { fill: #ffffff; stroke: #6b7078; }
.autograd .leaf rect { fill: #e8f1fa; stroke: #0067b3; }
.autograd .root rect { fill: #fdf0e4; stroke: #c2500a; }
.autograd .folded rect { stroke-dasharray: 4 3; }
.autograd text { fill: #1c1e21; }
.autograd path { fill: none; stroke: #6b7078; }
.autograd details { margin-left: 18px; border: 0; }
.autograd summary { padding: 1px 0; font-weight: 400; cursor: pointer; }
.autograd code { font: 12px ui-monospace, monospace; }
@media (prefers-color-scheme: dark) {
  .autograd rect { fill: #1d2024; stroke: #a6a9ae; }
  .autograd .leaf rect { fill: #14283a; stroke: #5aa9f0; }
  .autograd .root rect { fill: #3a2413; stroke: #f29a4a; }
  .autograd text { fill: #e9e7e2; }
  .autograd path { stroke: #a6a9ae; }
}
"""


class Drawing:
    """A picture of a graph, with all of its nodes as a tree that can be unfolded below."""

    def __init__(self, html: str) -> None:
        self.html = html

    def __str__(self) -> str:
        return self.html

    def _repr_html_(self) -> str:
        return self.html

    def page(self) -> str:
        """The picture as an HTML file of its own."""
        return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>A graph of computations</title>{self.html}'


def draw(root: Node, depth: int = 6) -> Drawing:
    """Draw what a node was computed from, as many steps back as `depth` says.

    Call it after `backward()` to see the gradients.
    """
    if depth < 0:
        raise ValueError(f"depth={depth} must be 0 or more.")
    distance = _distances(root)
    shown = [node for node in sorted_graph(root) if distance[id(node)] <= depth]
    picture = _svg(root, shown, distance)
    tree = _tree(root, set(), is_open=True)
    return Drawing(f'<div class="autograd"><style>{STYLE}</style><div class="scroll">{picture}</div>{tree}</div>')


def label(node: Node) -> tuple[str, str]:
    """What a node is, in two short lines."""
    first = " ".join(filter(None, [node.name, node.op])) or "number"
    data = np.asarray(node.data)
    if data.size == 1:
        return first, f"{_number(data.item())}, grad {_number(np.asarray(node.grad).item())}"
    norms = [float(np.linalg.norm(np.asarray(part))) for part in (node.data, node.grad)]
    return f"{first} {'×'.join(map(str, data.shape))}", f"norm {_number(norms[0])}, grad {_number(norms[1])}"


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def _distances(root: Node) -> Mapping[int, int]:
    """For each node, the longest way from it to the root: its column, counted from the right."""
    distance = {id(root): 0}
    for node in reversed(sorted_graph(root)):
        for parent in node.parents:
            distance[id(parent)] = max(distance.get(id(parent), 0), distance[id(node)] + 1)
    return distance


def _svg(root: Node, shown: Sequence[Node], distance: Mapping[int, int]) -> str:
    columns: dict[int, list[Node]] = {}
    for node in shown:
        columns.setdefault(distance[id(node)], []).append(node)
    last = max(columns)
    tallest = max(map(len, columns.values()))
    place: dict[int, tuple[float, float]] = {}
    for column, nodes in columns.items():
        x = (last - column) * (WIDTH + GAP_X) + 1.0
        top = (tallest - len(nodes)) * (HEIGHT + GAP_Y) / 2 + 1
        for row, node in enumerate(nodes):
            place[id(node)] = x, top + row * (HEIGHT + GAP_Y)
    arrows, boxes = [], []
    for node in shown:
        x, y = place[id(node)]
        is_folded = any(id(parent) not in place for parent in node.parents)
        for parent in {id(parent): parent for parent in node.parents}.values():
            if id(parent) in place:
                px, py = place[id(parent)]
                start, end, middle = py + HEIGHT / 2, y + HEIGHT / 2, (px + WIDTH + x) / 2
                arrows.append(f'<path d="M{px + WIDTH} {start} C{middle} {start} {middle} {end} {x} {end}"/>')
        kind = "root" if node is root else "leaf" if not node.parents else "folded" if is_folded else "result"
        first, second = map(escape, label(node))
        mark = " …" if is_folded else ""
        boxes.append(
            f'<g class="{kind}"><title>{first}: {second}</title>'
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
            f'<text x="{x + 8}" y="{y + 19}" font-weight="600">{first[:20]}{mark}</text>'
            f'<text x="{x + 8}" y="{y + 36}" font-size="11">{second}</text></g>'
        )
    width, height = (last + 1) * (WIDTH + GAP_X) - GAP_X + 2, tallest * (HEIGHT + GAP_Y) - GAP_Y + 2
    summary = f"{len(shown)} nodes; from the weights at the left to the result at the right"
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="A graph of computations: {summary}">{"".join(arrows + boxes)}</svg>'
    )


def _tree(root: Node, seen: set[int], is_open: bool) -> str:
    """Every node with its parents inside of it, as elements that unfold without a script."""
    parts: list[str] = []
    stack: list[tuple[str, Node | None, bool]] = [("", root, is_open)]
    while stack:
        text, node, is_first = stack.pop()
        if node is None:
            parts.append(text)
            continue
        first, second = map(escape, label(node))
        line = f"<code>{first}</code> {second}"
        if id(node) in seen or not node.parents:
            note = " (shown above)" if node.parents else ""
            parts.append(f"<details><summary>{line}{note}</summary></details>")
            continue
        seen.add(id(node))
        parts.append(f"<details{' open' if is_first else ''}><summary>{line}</summary>")
        stack.append(("</details>", None, False))
        stack.extend(("", parent, False) for parent in reversed(node.parents))
    return "".join(parts)
