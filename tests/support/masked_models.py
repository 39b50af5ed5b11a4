"""Small untrained bidirectional models with distinct predictions, and the cost of a single token by hand."""

from __future__ import annotations

from typing import Any

import torch

from nextword.core.types import Inputs
from nextword.lm.embedding import frame_ids
from nextword.lm.loading import wrap_network
from nextword.lm.masked import MaskedLM
from nextword.models.albert import ALBERT
from nextword.models.bert import BERT
from nextword.models.roberta import RoBERTa
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer

TALE = ["the cat sat on the mat and the dog sat by the door .", "a king (of old) went to see his house, and slept."]
KINDS: dict[str, dict[str, Any]] = {
    "wordpiece": {"kind": "wordpiece", "size": 90},
    "bpe": {"kind": "bpe", "size": 300, "marks": True},
    "unigram": {"kind": "unigram", "size": 60, "marks": True},
}
TOKENIZERS = {name: train_tokenizer(spec, TALE * 20) for name, spec in KINDS.items()}
PAIRS = [(BERT, "wordpiece"), (RoBERTa, "bpe"), (ALBERT, "unigram")]
TEXTS = ["the cat sat", "", "a king sat by the door and the cat slept", "dog"]


def make_network(cls: Any, tokenizer: Any, **config: Any) -> Any:
    """Make a network whose predictions differ, by scaling up its initial weights."""
    torch.manual_seed(3)
    sizes = {"width": 16, "layers": 2, "heads": 2, "dropout": 0.0, **config}
    network = cls(cls.Config(**sizes), vocabulary(tokenizer)).eval()
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 2:
                weight.mul_(12)
    return network


def make_model(cls: Any = BERT, kind: str = "wordpiece", window: int = 24, **rest: Any) -> MaskedLM:
    lm = wrap_network(make_network(cls, TOKENIZERS[kind], window=window), TOKENIZERS[kind], **rest)
    assert isinstance(lm, MaskedLM)
    return lm


def compute_token_nats(lm: MaskedLM, ids: Any, t: int) -> float:
    """Compute −log p of a single token by hand: frame the text, mask the token, predict it."""
    frame = frame_ids(lm.network, ids)
    row = torch.from_numpy(frame.ids.copy()).unsqueeze(0)
    place = frame.text_spans[0][0] + t
    special = lm.tokenizer.special
    row[0, place] = special.get("[MASK]", special.get("<mask>"))
    segments = None if frame.segments is None else torch.from_numpy(frame.segments).unsqueeze(0)
    with torch.no_grad():
        log_p = lm.network.fill(Inputs(row, segments=segments), torch.tensor([place]))
    return -float(log_p[0, ids[t]])
