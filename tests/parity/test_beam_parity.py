"""Beam search compared with `generate(num_beams=…)` of transformers over a network with equal weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nextword.core.types import Beam
from nextword.generation.beam_search import beam_search
from tests.parity.test_gpt import SIZE, pair

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("rules", [{}, {"no_repeat": 2}])
@torch.no_grad()
def test_beam_search_without_end_equals_transformers(width: int, rules: dict[str, int]) -> None:
    """Where none may end, the two mean the same: the width best sums of log p at every step."""
    ours, theirs = pair("gpt2")
    ids = torch.randint(1, SIZE, (3, 4), generator=torch.Generator().manual_seed(2))
    state = ours.prompt(ids[:, :-1], torch.full((3,), 3))
    written = ids.tolist()
    found = beam_search(ours, ids[:, -1], state, Beam(width, 1.0, **rules), 9, preceding=written, forbidden=[0])  # type: ignore[arg-type]
    more: dict[str, Any] = {"num_return_sequences": width, "length_penalty": 1.0} if width > 1 else {}
    want = theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=width,
        do_sample=False,
        max_new_tokens=9,
        bad_words_ids=[[0]],
        no_repeat_ngram_size=rules.get("no_repeat", 0),
        eos_token_id=None,
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
        **more,
    )
    flat = [one for row in found for one in row]
    assert [list(one.ids) for one in flat] == want.sequences[:, 4:].tolist()
    if width > 1:
        scores = torch.tensor([one.score for one in flat])
        torch.testing.assert_close(scores, want.sequences_scores, rtol=1e-4, atol=1e-4)
