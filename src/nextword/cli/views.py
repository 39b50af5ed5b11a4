"""Views of the lens in a terminal: `nextword next --explain VIEW` and `nextword evaluate --explain`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from nextword.cli.console import console, print_line, print_notes, print_table, write_text

if TYPE_CHECKING:
    from nextword.lens import (
        Alternative,
        Attention,
        Attributions,
        BeamTree,
        GateTraces,
        GradientReach,
        LayerPredictions,
        LensResult,
        TextExplanation,
        Token,
    )
    from nextword.lm.base import TextModel

# What `next` can explain; every view is a function of nextword.lens.
NEXT_VIEWS = ("saliency", "attention", "layers", "gates", "gradient", "beam")
BAR_WIDTH = 24
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="With --explain: write the view as an HTML file.")
]


def explain_next(lm: TextModel, text: str, view: str, k: int) -> LensResult:
    """One view of what comes after a text. The text is the source of a sequence-to-sequence model."""
    from nextword import lens
    from nextword.core.errors import unknown
    from nextword.core.types import Beam, Greedy, Stop

    if view not in NEXT_VIEWS:
        raise unknown("view", view, NEXT_VIEWS, where="--explain")
    source = text if lm.is_seq2seq else None
    if view == "saliency":
        return lens.attribute_word(lm, "" if lm.is_seq2seq else text, source=source)
    if view in ("attention", "layers"):
        target = lm.generate(text, Greedy(), Stop(max_tokens=64)).text if lm.is_seq2seq else text
        is_attention = view == "attention"
        return lens.read_attention(lm, target, source) if is_attention else lens.predict_by_layer(lm, target, source, k)
    if view == "beam":
        return lens.trace_beam(lm, text, Beam(min(k, 5)), Stop(max_tokens=5))
    return lens.trace_gates(lm, text) if view == "gates" else lens.trace_gradient(lm, text)


def show_view(result: LensResult, json: bool, html: Path | None) -> None:
    """Print a view, as JSON or for people, and write it as a page."""
    from nextword import lens

    if html is not None:
        from nextword.core.errors import explain_write_errors
        from nextword.core.io import write_atomically

        with explain_write_errors(html), write_atomically(html) as file:
            file.write(result.page().encode())
    if json:
        write_text(result.to_json(indent=2) + "\n")
        return
    if isinstance(result, lens.TextExplanation):
        _print_explanation(result)
    elif isinstance(result, lens.Attributions):
        _print_attributions(result)
    elif isinstance(result, lens.Attention):
        _print_attention(result)
    elif isinstance(result, lens.LayerPredictions):
        _print_layers(result)
    elif isinstance(result, lens.GateTraces):
        _print_gates(result)
    elif isinstance(result, lens.GradientReach):
        _print_gradient(result)
    elif isinstance(result, lens.BeamTree):
        _print_beam(result)
    if html is not None:
        print_line(f"[dim]{escape(str(html))}[/]")


def _name(token: Token) -> str:
    from nextword.lens.result import label

    return escape(label(token))


def _alternatives(top: Sequence[Alternative]) -> str:
    from nextword.lens.result import show_piece

    return ", ".join(f"{escape(show_piece(each.text))} {each.probability:.1%}" for each in top)


def _bar(share: float, style: str = "cyan") -> str:
    return f"[{style}]{'█' * round(BAR_WIDTH * share):<{BAR_WIDTH}}[/]"


def _print_explanation(result: TextExplanation) -> None:
    rows = [
        [_name(each.token), f"{each.bits:.2f}", f"{each.rank:,}", f"{each.entropy:.2f}", _alternatives(each.top)]
        for each in result.tokens
    ]
    print_table(("token", "bits", "rank", "entropy", "likeliest"), rows, text_columns=("likeliest",))
    per_byte = "" if result.bits_per_byte is None else f", {result.bits_per_byte:.4f} bits per byte"
    kind = "pseudo-" if result.kind == "pseudo" else ""
    print_notes([f"{len(rows):,} tokens, {result.nats:.2f} {kind}nats{per_byte}; entropy in nats"])


def _print_attributions(result: Attributions) -> None:
    largest = max((abs(each.value) for each in result.tokens), default=0.0) or 1.0
    console.print(f"[bold]{escape(result.target.strip() or repr(result.target))}[/]  log p = {result.score:.3f}")
    for each in result.tokens:
        bar = _bar(abs(each.value) / largest, "cyan" if each.value >= 0 else "dark_orange")
        console.print(f"{each.value:+8.3f}  {bar} {_name(each.token)}", soft_wrap=True)
    without = "" if result.baseline is None else f"; without the words, log p = {result.baseline:.3f}"
    print_notes([f"nats that speak for (+) or against (−) the word{without}"])


def _print_attention(result: Attention) -> None:
    """Where the blank looks, or else the last token of the text, by layer."""
    from nextword.tokenizers.special_tokens import MARKS

    for each in result.maps:
        of_text = [i for i, token in enumerate(each.rows) if token.start < token.end]
        blanks = [i for i, token in enumerate(each.rows) if token.text in MARKS["mask"]]
        row = (blanks or of_text or [len(each.rows) - 1])[-1]
        rows = []
        for layer, weights in zip(each.layers, each.weights.mean(1)[:, row], strict=True):
            order = weights.argsort()[::-1][:5]
            rows.append([str(layer), ", ".join(f"{_name(each.columns[i])} {weights[i]:.0%}" for i in order)])
        title = f"{each.kind}: {_name(each.rows[row])} attends to (mean of {len(each.heads)} heads)"
        print_table(("layer", "tokens"), rows, title=title, text_columns=("tokens",))
    print_notes(["all rows and heads: --html FILE or --json"])


def _print_layers(result: LayerPredictions) -> None:
    position = result.positions[-1]
    heading = "next" if position.token is None else _name(position.token)
    rows = [
        [str(said.layer) if said.layer else "0 (embedding)", f"{said.entropy:.2f}", _alternatives(said.top)]
        for said in position.layers
    ]
    print_table(("layer", "entropy", heading), rows, text_columns=(heading,))
    print_notes(["what each layer would predict (logit lens); all positions: --html FILE or --json"])


def _print_gates(result: GateTraces) -> None:
    for trace in result.layers:
        side = f", {trace.direction}" if trace.direction == "backward" else ""
        names = [name for name in trace.gates if name != "candidate"]
        columns = [trace.gates[name].mean(1) for name in names] + [abs(trace.hidden).mean(1)]
        rows = [[_name(token), *(f"{column[t]:.3f}" for column in columns)] for t, token in enumerate(result.tokens)]
        title = f"layer {trace.layer}{side}, means of {trace.hidden.shape[1]} units"
        print_table(("token", *names, "|h|"), rows, title=title)
    print_notes(["a gate is open at 1 and closed at 0; every unit: --html FILE or --json"])


def _print_gradient(result: GradientReach) -> None:
    headings, columns = [], []
    for layer in result.layers:
        for name, norms in (("h", layer.hidden), ("c", layer.cell)):
            if norms is not None:
                headings.append(f"{name}, layer {layer.layer}")
                columns.append(norms)
    rows = [[_name(token), *(f"{norms[t]:.2e}" for norms in columns)] for t, token in enumerate(result.tokens)]
    print_table(("token", *headings), rows)
    factors = [f"layer {layer.layer} × {layer.factor:.3f}" for layer in result.layers if layer.factor is not None]
    print_notes([f"norm of the gradient of −log p({result.target.strip()}); per step back: {', '.join(factors)}"])


def _print_beam(result: BeamTree) -> None:
    from rich.tree import Tree

    from nextword.lens.result import show_piece

    tree = Tree(escape(result.prompt[-60:]) or "∅", guide_style="dim")
    branches: list[Tree] = []
    for node in result.nodes:
        parent = tree if node.parent is None else branches[node.parent]
        state = "" if node.state == "kept" else f", {node.state}"
        style = "dim" if node.state == "pruned" else "bold"
        branches.append(parent.add(f"[{style}]{escape(show_piece(node.text))}[/] [dim]{node.total:.2f}{state}[/]"))
    console.print(tree)
    for candidate in result.candidates:
        print_line(f"{candidate.score:8.3f}  {escape(candidate.text.strip() or repr(candidate.text))}")
