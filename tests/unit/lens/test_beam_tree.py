from __future__ import annotations

import math
from typing import Any

import pytest

from nextword import lens
from nextword.core.errors import InvalidSetting
from nextword.core.types import Beam, Greedy, Stop
from tests.support.untrained_models import SCORING, make_model

WRITING = [slug for slug in SCORING if "generate" in make_model(slug).can]
PROMPT = "the cat sat"
DECODINGS = [Beam(1), Beam(3), Beam(4, groups=2), Beam(3, length_penalty=1.0), Beam(3, repetition=1.3, no_repeat=2)]


@pytest.mark.parametrize("decoding", DECODINGS, ids=str)
@pytest.mark.parametrize("slug", WRITING)
def test_candidates_are_the_n_best_and_paths_of_the_tree(slug: str, decoding: Beam) -> None:
    model = make_model(slug)
    tree = lens.trace_beam(model, PROMPT, decoding, Stop(max_tokens=5))
    best = model.n_best(PROMPT, decoding, Stop(max_tokens=5))
    assert [(c.ids, c.text, c.complete) for c in tree.candidates] == [(c.ids, c.text, c.complete) for c in best]
    assert [c.score for c in tree.candidates] == pytest.approx([c.score for c in best], abs=1e-4)
    leaves = [i for i, node in enumerate(tree.nodes) if node.state in ("complete", "open")]
    paths = {tuple(tree.nodes[i].id for i in tree.path(leaf)): leaf for leaf in leaves}
    for candidate in tree.candidates:
        leaf = paths[candidate.ids]
        log_prob = sum(tree.nodes[i].log_prob for i in tree.path(leaf))
        assert log_prob == pytest.approx(candidate.log_prob, abs=1e-4)
        assert (tree.nodes[leaf].state == "complete") == candidate.complete


@pytest.mark.parametrize("slug", WRITING)
def test_every_step_keeps_the_best_of_what_it_considered(slug: str) -> None:
    model = make_model(slug)
    tree = lens.trace_beam(model, PROMPT, Beam(3), Stop(max_tokens=5))
    steps = max(node.step for node in tree.nodes) + 1
    places = 3
    for step in range(steps):
        own = [node for node in tree.nodes if node.step == step]
        kept = [node.total for node in own if node.state != "pruned"]
        pruned = [node.total for node in own if node.state == "pruned"]
        assert len(kept) <= places
        assert min(kept, default=math.inf) >= max(pruned, default=-math.inf)
        if step:
            assert all(tree.nodes[node.parent].state == "kept" for node in own if node.parent is not None)
            assert all(node.parent is not None for node in own)
        places -= sum(node.state == "complete" for node in own)
    for node in tree.nodes:
        before = 0.0 if node.parent is None else tree.nodes[node.parent].total
        assert node.total == pytest.approx(before + node.log_prob, abs=1e-4)  # no rules: log p of the model


def test_beam_of_one_is_greedy() -> None:
    model: Any = make_model("lstm")
    tree = lens.trace_beam(model, PROMPT, Beam(1), Stop(max_tokens=5))
    kept = [node.id for node in tree.nodes if node.state != "pruned"]
    pieces = model.generate(PROMPT, Greedy(), Stop(max_tokens=5)).pieces
    assert kept == [id for piece in pieces for id in piece.ids]


def test_only_a_beam_makes_a_tree() -> None:
    decoding: Any = Greedy()
    with pytest.raises(InvalidSetting) as caught:
        lens.trace_beam(make_model("lstm"), PROMPT, decoding)
    assert caught.value.key == "decoding"
