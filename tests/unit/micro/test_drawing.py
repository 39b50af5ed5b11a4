"""Pictures of graphs: every node with its value and its gradient, and nothing that a page would load."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nextword.micro import Tensor, Value, draw


def test_picture_shows_values_gradients_and_arrows() -> None:
    x, y = Value(2.0, name="x"), Value(-3.0, name="y")
    out = x * y + x
    out.backward()
    html = draw(out)._repr_html_()
    assert html.count("<rect") == 4  # x, y, x × y, the sum
    assert html.count("<path") == 4
    assert "2, grad −2" in html
    assert "−3, grad 2" in html
    assert "http" not in html.replace("http://www.w3.org", "")
    assert "<script" not in html


def test_nodes_beyond_the_depth_are_folded_in_the_picture_and_stay_in_the_tree() -> None:
    x = Value(1.0, name="x")
    out = x
    for _ in range(8):
        out = out + 1
    html = str(draw(out, depth=2))
    assert html.count("<rect") == 5  # three sums and two ones
    assert 'class="folded"' in html
    assert html.count("<summary") == 17


def test_node_used_twice_is_unfolded_once() -> None:
    x = Value(1.0)
    square = x * x
    html = str(draw(square + square))
    assert html.count("(shown above)") == 1


def test_tensor_is_shown_by_its_shape_and_norms() -> None:
    x = Tensor(np.full((3, 4), 2.0), name="W")
    out = (x * x).sum()
    out.backward()
    assert "W 3×4" in str(draw(out))
    assert f"norm {np.sqrt(12) * 2:.3g}, grad {np.sqrt(12) * 4:.3g}" in str(draw(out))


def test_names_are_escaped() -> None:
    assert "<b>" not in re.sub(r"<style>.*?</style>", "", str(draw(Value(1.0, name="<b>"))))


def test_deep_graph_is_drawn_without_recursion() -> None:
    out = Value(0.0)
    for _ in range(3000):
        out = out + 1
    assert draw(out, depth=1).page().startswith("<!doctype html>")


def test_negative_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="depth=-1"):
        draw(Value(1.0), depth=-1)
