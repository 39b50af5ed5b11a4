"""Classification heads compared with transformers: equal weights, frames and logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from nextword.batching.examples import Bucketed
from nextword.conversion import convert
from nextword.tasks.classification import Classifier
from nextword.tasks.plan import make_plan
from tests.support.task_models import build_model
from tests.support.tiny_transfer import draw_color_pairs, make_run, write_table


@pytest.mark.parametrize("slug", ["bert", "roberta", "albert"])
def test_classification_head_equals_transformers(slug: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    make_run(tmp_path / "run", slug)
    data = write_table(tmp_path / "pair.csv", ["text", "second", "label"], draw_color_pairs(40))
    plan = make_plan("bert/finetune", tmp_path / "run", str(data), device="cpu")
    network: Any = build_model(plan.recipe, plan.tokenizer).eval()
    theirs_of = type(network.encoder)
    network.encoder = theirs_of.load(tmp_path / "run", network.encoder.config, network.encoder.vocabulary)
    torch.nn.init.normal_(network.out.bias)
    convert(tmp_path / "run", tmp_path / "hf", to="huggingface")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf", num_labels=2).eval()
    with torch.no_grad():
        if slug == "roberta":
            assert network.dense is not None
            for ours, their in ((network.dense, theirs.classifier.dense), (network.out, theirs.classifier.out_proj)):
                their.weight.copy_(ours.weight)
                their.bias.copy_(ours.bias)
        else:
            theirs.classifier.weight.copy_(network.out.weight)
            theirs.classifier.bias.copy_(network.out.bias)
        examples = plan.examples["train"]
        batch = Bucketed(pack=False).batch(examples, torch.arange(10).numpy(), 0)
        pad = theirs.config.pad_token_id
        assert batch.inputs.token_mask is not None
        ids = batch.inputs.ids.masked_fill(~batch.inputs.token_mask, pad)
        more = {} if batch.inputs.segments is None else {"token_type_ids": batch.inputs.segments}
        wanted = theirs(input_ids=ids, attention_mask=batch.inputs.token_mask.long(), **more).logits
        assert wanted.std() > 0
        assert torch.allclose(network(batch), wanted, atol=1e-5)
        rows = plan.data.splits["train"]
        assert rows.seconds is not None
        said = Classifier(network, plan.tokenizer, plan.task, 32).logits(rows.texts[:10], rows.seconds[:10])
        assert torch.allclose(torch.tensor(said).float(), wanted, atol=1e-5)
