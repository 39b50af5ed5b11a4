"""GLM fills blanks of unknown length using the context on both sides, in any order.

Every day has a visitor of two words and a gift of one, three or four. A left-to-right model does not see the day after
the blank, and a masked language model has to be given the number of missing tokens.
"""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import torch

from nextword.batching.token_stream import DOCUMENT, SENTENCE, WORD, Stream
from nextword.core.types import Beam, Stop
from nextword.lm.causal import CausalLM
from nextword.lm.loading import wrap_network
from nextword.models.glm import GLM, GLMConfig
from nextword.objectives.blank_infilling import BlankInfillingObjective
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer

DAYS = {
    "monday": ("red fox", "one old golden ring"),
    "tuesday": ("grey owl", "bread"),
    "friday": ("young deer", "snow"),
    "sunday": ("blind bear", "three small stones"),
}
RATE = 8e-3
LINES = [f"the {who} gave us {what} on {day} .\n" for day, (who, what) in DAYS.items()]


def trained(seed: int, steps: int = 450) -> CausalLM:
    draw = np.random.default_rng(seed)
    text = "".join(LINES[i] for i in draw.integers(0, len(LINES), 600))
    tokenizer = train_tokenizer({"kind": "words"}, [text])
    encoding = tokenizer.encode(text)
    marks = np.full(len(encoding), WORD, np.uint8)
    marks[0] |= SENTENCE | DOCUMENT
    stream = Stream.from_ids(encoding.ids, marks=marks)
    torch.manual_seed(seed)
    network = GLM(GLMConfig(48, 2, 4, 20, 0.0), vocabulary(tokenizer))
    objective = BlankInfillingObjective(
        {"rows": 24, "length": 13}, vocabulary(tokenizer), 0.9, 0.0, 0.1, mask_fraction=0.4
    )
    optimizer = torch.optim.AdamW(network.parameters(), RATE)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    for _, batch in zip(range(steps), objective.batches(stream, seed, 0), strict=False):
        loss = objective.loss(network, batch, None)
        optimizer.zero_grad()
        loss.value.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        rate.step()
    lm = wrap_network(network.eval(), tokenizer)
    assert isinstance(lm, CausalLM)
    return lm


@pytest.mark.slow
def test_glm_fills_blanks_of_unknown_length_from_both_sides() -> None:
    right, fitting, named = [], [], []
    for seed in (1, 2, 3):
        lm = trained(seed)
        one = [lm.infill(f"the ___ gave us {what} on {day} .", Beam(4), Stop(12))[0] for day, (_, what) in DAYS.items()]
        two = [lm.infill(f"the {who} gave us ___ on {day} .", Beam(4), Stop(12))[0] for day, (who, _) in DAYS.items()]
        found = [a.blanks + b.blanks for a, b in zip(one, two, strict=True)]
        right.append(sum((a == c) + (b == d) for (a, b), (c, d) in zip(found, DAYS.values(), strict=True)))
        gifts = [what for _, what in DAYS.values()]  # no day is told: the second piece knows the first, or nothing
        costs = [
            [s.nats for s in lm.score_blanks("the ___ gave us ___ on", [(who, w) for w in gifts])]
            for who, _ in DAYS.values()
        ]
        fitting.append(int((np.argmin(costs, 1) == np.arange(len(DAYS))).sum()))
        labels = [lm.cloze(f"the {who} gave us {what} on ___ .", list(DAYS)).label for who, what in DAYS.values()]
        named.append(sum(label == day for label, day in zip(labels, DAYS, strict=True)))
    assert statistics.median(right) >= 6, right  # of 8
    assert statistics.median(fitting) >= 3, fitting  # of 4
    assert statistics.median(named) == 4, named
