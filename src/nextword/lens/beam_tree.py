"""A beam search as a tree: what it considered, what it kept, and what it pruned.

    width 2      a .5 ─┬─ cat .30          kept
                       └─ dog .20          pruned: only two places, and these were better
                 the .4 ─┬─ end .36        complete
                         └─ cat .02        pruned

At each step every open hypothesis is extended by its likeliest tokens, and the best `width` extensions of all stay.
Greedy search is a beam of one: a wider beam finds a better text where the best first token is not the beginning of the
best text. The tree is recorded while the search runs (generation/beam_search.py), so the candidates are those of
`model.n_best`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nextword.core.errors import invalid
from nextword.core.types import Beam, Stop
from nextword.generation.beam_search import Considered, Step
from nextword.html.formatting import escape
from nextword.lens.result import LensResult, TokenNames, run_name, show_piece
from nextword.lm.base import Candidate, TextModel

KEPT, PRUNED, COMPLETE, OPEN = "kept", "pruned", "complete", "open"


@dataclass(frozen=True)
class BeamNode:
    """One extension of a hypothesis that the search considered."""

    parent: int | None  # index of the node that it extends; None: the prompt
    step: int  # from 0
    group: int  # of a diverse beam; else 0
    text: str
    id: int
    log_prob: float  # of the token, by the model
    total: float  # sum of log p up to here, under the rules of decoding
    state: str  # "kept": extended later; "pruned"; "complete": ended; "open": cut at the maximal length, or hopeless


@dataclass(frozen=True, eq=False, repr=False)
class BeamTree(LensResult):
    """A beam search with the branches that it pruned."""

    prompt: str
    width: int
    nodes: tuple[BeamNode, ...] = field(repr=False)
    candidates: tuple[Candidate, ...]  # as `model.n_best`

    def __repr__(self) -> str:
        counts = ", ".join(f"{sum(n.state == s for n in self.nodes)} {s}" for s in (KEPT, PRUNED, COMPLETE, OPEN))
        best = self.candidates[0].text[:40] if self.candidates else ""
        return f"BeamTree({self.prompt[-30:]!r} → {best!r}: {counts})"

    @property
    def title(self) -> str:
        return f"Beam search of width {self.width}"

    def path(self, node: int) -> list[int]:
        """The indices of the nodes from the prompt to this one."""
        path: list[int] = []
        at: int | None = node
        while at is not None:
            path.append(at)
            at = self.nodes[at].parent
        return path[::-1]

    def sections(self) -> list[tuple[str, str]]:
        children: dict[int | None, list[int]] = {}
        for i, node in enumerate(self.nodes):
            children.setdefault(node.parent, []).append(i)

        def branch(parent: int | None) -> str:
            items = "".join(f"<li>{_show(self.nodes[i])}{branch(i)}</li>" for i in children.get(parent, ()))
            return f"<ul>{items}</ul>" if items else ""

        best = "".join(
            f"<li><strong>{escape(c.text.strip() or repr(c.text))}</strong> <span class='note'>score {c.score:.3f}, "
            f"log p {c.log_prob:.3f}{'' if c.complete else ', cut'}</span></li>"
            for c in self.candidates
        )
        prompt = f"<p class='note'>After “{escape(self.prompt[-80:])}”</p>" if self.prompt else ""
        return [("Best", f"{prompt}<ol>{best}</ol>"), ("Tree", f"<div class='scroll'>{branch(None)}</div>")]


def _show(node: BeamNode) -> str:
    text, state = escape(show_piece(node.text)), "" if node.state == KEPT else f", {node.state}"
    shown = f"<span class='unread'>{text}</span>" if node.state == PRUNED else f"<strong>{text}</strong>"
    return f"{shown} <span class='note'>{math.exp(node.log_prob):.1%}, total {node.total:.2f}{state}</span>"


def trace_beam(model: TextModel, prompt: str, decoding: Beam = Beam(), stop: Stop = Stop(max_tokens=10)) -> BeamTree:
    """Run a beam search and record every step. The prompt of a sequence-to-sequence model is its source."""
    if not isinstance(decoding, Beam):
        raise invalid("decoding", decoding, "must be a Beam.")
    recorder = _Recorder(TokenNames(model))
    candidates = model.n_best(prompt, decoding, stop, observer=recorder)
    return BeamTree(run_name(model), prompt, decoding.width, recorder.finish(), tuple(candidates))


class _Recorder:
    """Turns the steps of one search into nodes. A slot of a step is a hypothesis; `at` has the node of each."""

    def __init__(self, names: TokenNames) -> None:
        self.names = names
        self.nodes: list[BeamNode] = []
        self.at: list[dict[int, int | None]] = []  # by group: slot of the last step → node
        self.step = 0

    def __call__(self, searches: list[int], step: Step, considered: Sequence[Considered]) -> None:
        at: list[dict[int, int | None]] = []
        for group, options in enumerate(considered):
            slots = step.slots[0, group].tolist()
            before: dict[int, int | None] = self.at[group] if self.at else dict.fromkeys(slots)
            chosen = zip(
                step.parents[0, group].tolist(),
                step.ids[0, group].tolist(),
                step.scores[0, group].tolist(),
                step.complete[0, group].tolist(),
                strict=True,
            )
            kept = {  # (slot before, id) → slot now, and whether the text ended
                (parent, id): (slot, complete)
                for slot, (parent, id, score, complete) in enumerate(chosen)
                if score > -math.inf
            }
            now: dict[int, int | None] = {}
            for row, slot in enumerate(slots[: options.ids.shape[1]]):
                values = zip(
                    options.ids[0, row].tolist(),
                    options.log_probs[0, row].tolist(),
                    options.totals[0, row].tolist(),
                    strict=True,
                )
                for id, log_prob, total in sorted(values, key=lambda value: -value[2]):
                    if total == -math.inf:
                        continue
                    own, is_complete = kept.get((slot, id), (None, False))
                    state = PRUNED if own is None else COMPLETE if is_complete else OPEN
                    parent = before[slot]
                    if parent is not None and self.nodes[parent].state == OPEN:
                        self.nodes[parent] = replace(self.nodes[parent], state=KEPT)
                    if own is not None:
                        now[own] = len(self.nodes)
                    text = self.names.name(id)
                    self.nodes.append(BeamNode(parent, self.step, group, text, id, log_prob, total, state))
            at.append(now)
        self.at, self.step = at, self.step + 1

    def finish(self) -> tuple[BeamNode, ...]:
        return tuple(self.nodes)
