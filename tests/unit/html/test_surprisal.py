from __future__ import annotations

import math

import pytest

from nextword.html.surprisal import SURPRISAL_EDGES, surprisal_class, surprisal_legend, surprisal_text


@pytest.mark.parametrize(("bits", "level"), [(0.0, 0), (0.99, 0), (1.0, 1), (8.0, 5), (14.0, 7), (math.inf, 7)])
def test_surprisal_class_rises_with_the_bits(bits: float, level: int) -> None:
    assert surprisal_class(bits) == f"surprisal-{level}"


def test_surprisal_text_colors_tokens_and_leaves_spaces_white() -> None:
    html = surprisal_text([" the", "\n", "x", "y"], [0.5, 20.0, None])
    assert html == (
        ' <span class="surprisal-0" title="0.5 bits, probability 70.71%">the</span>'
        '<span class="surprisal-7" title="20.0 bits, probability 1 in 1.05 M">↵\n</span>xy'
    )


def test_surprisal_legend_has_a_box_per_class() -> None:
    assert surprisal_legend().count('class="surprisal-') == len(SURPRISAL_EDGES) + 1
