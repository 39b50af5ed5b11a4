"""The auxiliary language-model loss (Radford et al. 2018, eq. 5), computed by hand: L₃ = L₂ + λ L₁."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword import tasks as transfer
from nextword.batching.examples import Bucketed, Examples
from nextword.core.errors import Unsupported
from nextword.core.types import Inputs
from nextword.models.framing import resize_embeddings
from nextword.tasks.classification import LabelObjective, TextHeadConfig
from nextword.tasks.heads import TextHead
from tests.support.small_gpt1 import SIZE, A, B, C, make_gpt1
from tests.support.tiny_transfer import draw_color_texts, make_run, write_table

LABELS = [1, 0, 1]


def compute_losses(headed: TextHead, frames: Any, layer: int = -1) -> tuple[Tensor, Tensor]:
    """Return nats per label and nats per token of the texts (ids below SIZE), frame by frame."""
    task, nats, tokens = [], 0.0, 0
    for frame, label in zip(frames, LABELS, strict=True):
        ids = torch.from_numpy(frame.ids)
        layers = headed.encoder.encode(Inputs(ids[None]))[0]
        logits = headed.out(layers[layer][0, frame.pooled_position])
        task.append(F.cross_entropy(logits, torch.tensor(label)))
        log_p = headed.encoder.readout.log_probs(layers[-1][0])
        for t in range(len(ids) - 1):
            if ids[t + 1] < SIZE:
                nats, tokens = nats - log_p[t, ids[t + 1]], tokens + 1
    return torch.stack(task).mean(), torch.as_tensor(nats / tokens)


@pytest.mark.parametrize(("weight", "features"), [(0.5, ""), (0.25, ""), (0.5, "0")])
def test_loss_equals_task_loss_plus_weighted_language_loss(weight: float, features: str) -> None:
    network = resize_embeddings(make_gpt1(), 3)
    headed = TextHead(network, TextHeadConfig(frame="classify", dropout=0.0, features=features), 2).train()
    torch.nn.init.normal_(headed.out.weight)
    frames = [network.frame(A, B), network.frame(C), network.frame(B, A)]
    examples = Examples.from_frames(frames, labels=np.array(LABELS))
    batch = Bucketed(pack=False).batch(examples, np.arange(3), 0)
    loss = LabelObjective({}, lm_weight=weight).loss(headed, batch, None)
    task, language = (item.detach() for item in compute_losses(headed, frames, int(features or -1)))
    torch.testing.assert_close(loss.value.detach(), task + weight * language)
    assert float(loss.nats / loss.count) == pytest.approx(float(task))  # the log reports only the loss of the task
    torch.testing.assert_close(loss.terms["language"], language)
    alone = LabelObjective({}, lm_weight=weight).loss(headed.eval(), batch, None)
    torch.testing.assert_close(alone.value.detach(), task)  # also for held-out examples


def test_language_loss_with_bidirectional_model_raises(tmp_path: Path) -> None:
    data = write_table(tmp_path / "a.csv", ["text", "label"], draw_color_texts(40))
    with pytest.raises(Unsupported, match="ELMo"):
        transfer.run("gpt1/finetune", make_run(tmp_path / "elmo", "elmo"), data, tmp_path / "out")
