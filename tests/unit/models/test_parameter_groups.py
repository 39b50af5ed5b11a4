"""Parameter groups of every network, discounted learning rates, and frozen layers that do not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nextword import tasks as transfer
from nextword.core.errors import InvalidSetting
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.models import MODELS, model_class
from nextword.models.parameter_groups import groups
from nextword.recipe import Phase, load_recipe, network_config
from nextword.tasks.classification import TextHeadConfig
from nextword.tasks.finetune import resume
from nextword.tasks.finetune import transfer as transferred
from nextword.tasks.heads import TextHead
from nextword.tasks.plan import make_plan
from nextword.tokenizers import vocabulary
from nextword.training.events import STEP
from nextword.training.optimizers import Optimizer, TrainableLayers, make_optimizer
from nextword.training.trainer import run_gradient_phase
from tests.support.small_job import MODEL, are_equal, copy_weights, make_lstm_job, run_lstm_job
from tests.support.tiny_transfer import SPECS, draw_color_texts, make_run, write_table

MARKS = {"<unk>": 0, "[MASK]": 3, "[CLS]": 4, "[SEP]": 5, "<sep>": 6, "<cls>": 7}
WORDS = Vocabulary(40, 1, MARKS, 2, [b" a"] * 40)
AWD = {
    "embedding": 6,
    "width": 8,
    "layers": 3,
    "word_dropout": 0.0,
    "input_dropout": 0.0,
    "layer_dropout": 0.0,
    "output_dropout": 0.0,
}
AWD["weight_dropout"] = 0.0


def make_network(slug: str, **model: Any) -> Any:
    torch.manual_seed(1)
    cls = model_class(slug)
    return cls(cls.Config(**(model or load_recipe(f"{slug}/tiny").model)), WORDS)


def make_head(network: Any, **head: Any) -> TextHead:
    return TextHead(network, TextHeadConfig(frame="classify", **head), 2)


def list_group_names(network: nn.Module) -> list[list[str]]:
    names = {id(p): name for name, p in network.named_parameters()}
    return [sorted(names[id(p)] for p in group) for group in groups(network)]


# ------------------------------------------------------------------------------------------------ groups


def test_groups_of_awd_lstm_with_and_without_head_are_its_layers() -> None:
    layer = ["bias_hh", "bias_ih", "weight_hh", "weight_ih"]
    layers = [[f"layers.{i}.{name}" for name in layer] for i in range(3)]
    network = make_network("awd-lstm", **AWD)
    assert list_group_names(network) == [*layers, ["embedding.weight", "readout.bias"]]  # tied: grouped as in fastai
    untied = make_network("awd-lstm", **AWD, tied=False)
    assert list_group_names(untied) == [["embedding.weight"], *layers, ["readout.bias", "readout.weight"]]
    below = [[f"encoder.{name}" for name in group] for group in layers]
    below[-1] = sorted([*below[-1], "encoder.readout.bias"])
    assert list_group_names(make_head(network)) == [["encoder.embedding.weight"], *below, ["out.bias", "out.weight"]]


def test_groups_of_bert_with_head_are_its_layers() -> None:
    results = list_group_names(make_head(make_network("bert")))
    assert [sorted({name.split(".")[1] for name in group}) for group in results] == [
        ["embedding", "norm", "positions", "segments"],
        ["attending", "feeding"],
        ["attending", "feeding", "next_sentence", "pooler", "readout"],
        ["bias", "weight"],
    ]
    for i in (0, 1):
        assert all(f"ing.{i}." in name for name in results[1 + i] if "attending" in name or "feeding" in name)


@pytest.mark.parametrize("slug", [slug for slug in MODELS if slug != "ngram"])
def test_groups_of_every_network_contain_each_weight_once(slug: str) -> None:
    network = make_network(slug)
    results = [p for group in groups(network) for p in group]
    assert {id(p) for p in results} == {id(p) for p in network.parameters()}
    assert len(results) == len(list(network.parameters()))
    assert len(groups(network)) >= min(len(network.widths), 2)  # word-vector models have one group


# ------------------------------------------------------------------------------------------------ rates


def test_discount_lowers_rates_from_group_to_group() -> None:
    network = make_head(make_network("awd-lstm", **AWD))
    phase = make_phase({"kind": "adam", "rate": 0.01, "layer_discount": 2.6})
    optimizer = TrainableLayers(network, phase).make_optimizer()
    assert [group["params"] for group in optimizer.param_groups] == groups(network)
    for rate in (0.01, 0.004):
        optimizer.set_rate(rate)
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == pytest.approx([rate / 2.6**4, rate / 2.6**3, rate / 2.6**2, rate / 2.6, rate])


def make_phase(optimizer: dict[str, Any], **rest: Any) -> Any:
    return Phase(steps=1, optimizer=optimizer, **rest)


def test_sgd_step_uses_the_rate_of_each_group() -> None:
    """With SGD and gradients of one each weight moves by the rate of its group."""
    network = make_network("lstm", width=4)
    optimizer = make_optimizer(
        network.parameters(), {"kind": "sgd", "rate": 1.0, "layer_discount": 2.0}, groups(network)
    )
    before = copy_weights(network)
    for p in network.parameters():
        p.grad = torch.ones_like(p)
    optimizer_step(optimizer, 0.8)
    moved = {name: float((before[name] - t).mean()) for name, t in copy_weights(network).items()}
    by_hand = {"embedding": 0.2, "layers": 0.4, "readout": 0.8}
    assert moved == pytest.approx({name: by_hand[name.split(".")[0]] for name in moved}, rel=1e-5)


def optimizer_step(optimizer: Optimizer, rate: float) -> None:
    optimizer.set_rate(rate)
    optimizer.step()


def test_weight_decay_skips_vectors_in_every_group() -> None:
    network = make_network("lstm", width=4)
    table = {"kind": "adamw", "rate": 1.0, "weight_decay": 0.1, "decay_on": "matrices", "layer_discount": 2.0}
    results = make_optimizer(network.parameters(), table, groups(network)).param_groups
    settings = [(group["share"], group["weight_decay"], {p.dim() for p in group["params"]}) for group in results]
    assert settings == [(0.25, 0.1, {2}), (0.5, 0.1, {2}), (0.5, 0.0, {1}), (1.0, 0.1, {2}), (1.0, 0.0, {1})]


def test_optimizer_without_discount_has_one_group() -> None:
    network = make_network("lstm", width=4)
    for table in ({"kind": "adam"}, {"kind": "adam", "layer_discount": 1}):
        (group,) = TrainableLayers(network, make_phase(table)).make_optimizer().param_groups
        assert all(a is b for a, b in zip(group["params"], network.parameters(), strict=True))
        assert "share" not in group


@pytest.mark.parametrize(
    "optimizer",
    [
        {"kind": "nt-asgd", "rate": 1.0, "layer_discount": 2.6},
        {"kind": "adam", "layer_discount": 0},
        {"kind": "adam", "layer_discount": "2.6"},
    ],
)
def test_invalid_discount_raises(optimizer: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting) as invalid:
        TrainableLayers(make_network("lstm", width=4), make_phase(optimizer)).make_optimizer()
    assert (invalid.value.key, invalid.value.value) == ("optimizer.layer_discount", optimizer["layer_discount"])


def test_log_reports_the_rate_of_the_last_group(tmp_path: Path) -> None:
    table = {"kind": "adam", "rate": 0.02, "layer_discount": 2.6}
    _, events = run_lstm_job(tmp_path / "run", optimizer=table, steps=5)
    assert next(event.values["rate"] for event in events if event.kind == STEP) == 0.02


# ------------------------------------------------------------------------------------------------ resting


OPTIMIZERS = [
    {"kind": "adam", "rate": 0.01, "weight_decay": 0.1},
    {"kind": "sgd", "rate": 0.5, "ema_decay": 0.9},
    {"kind": "adamw", "rate": 0.01, "weight_decay": 0.1, "layer_discount": 2.6, "ema_decay": 0.9},
    {"kind": "nt-asgd", "rate": 1.0, "start": 2, "weight_decay": 0.1},
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda table: table["kind"])
@pytest.mark.parametrize(("trains", "moves"), [(1, {"readout"}), (2, {"readout", "layers"}), (0, {"all"})])
def test_frozen_groups_do_not_change(tmp_path: Path, optimizer: dict[str, Any], trains: int, moves: set[str]) -> None:
    job = make_lstm_job(tmp_path / "run", optimizer=optimizer, trainable_groups=trains, steps=12, clip=0.5)
    before = copy_weights(job.network)
    list(run_gradient_phase(job))
    after = copy_weights(job.network)
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == ({"embedding", "layers", "readout"} if moves == {"all"} else moves)
    assert all(p.requires_grad for p in job.network.parameters())  # the next phase may train it


def test_trainable_groups_get_unchanged_gradients() -> None:
    network = make_head(make_network("awd-lstm", **AWD), pooling="concat", classifier="mlp", dropout=0.0).eval()
    ids = torch.arange(12).view(2, 6)

    def gradients(trains: int) -> dict[str, Tensor]:
        network.zero_grad()
        with TrainableLayers(network, make_phase({"kind": "sgd"}, trainable_groups=trains)).freeze_others():
            network(
                Batch(Inputs(ids), torch.zeros(2, dtype=torch.long), target_positions=torch.tensor([5, 11]))
            ).square().sum().backward()
            return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}

    full = gradients(0)
    for trains in range(1, 6):
        some = gradients(trains)
        learning = {name for group in list_group_names(network)[-trains:] for name in group} & full.keys()
        assert some.keys() == learning
        assert all(torch.allclose(some[name], full[name], atol=1e-7) for name in some)


def test_frozen_network_has_one_trainable_group() -> None:
    network = make_head(make_network("lstm", width=4), frozen=True)
    learning = TrainableLayers(network, make_phase({"kind": "adam", "layer_discount": 2.6}, trainable_groups=1))
    assert len(learning.layers) == 1
    assert learning.frozen == []
    assert (
        TrainableLayers(network, make_phase({"kind": "adam"}, trainable_groups=9)).layers == learning.layers
    )  # more groups than exist
    with learning.freeze_others():
        pass
    assert not any(p.requires_grad for p in network.encoder.parameters())


# ------------------------------------------------------------------------------------------------ through the phases

STAGES = """
[paper]
slug = "bert"

[task]
kind = "classification"
pooling = "concat"
classifier = "mlp"
hidden_sizes = [8]
dropouts = [0.2, 0.1]

[[phase]]
name = "head"
trainable_groups = 1
objective = { kind = "classification" }
batches = { kind = "examples", rows = 32, length = 64 }
optimizer = { kind = "adam", rate = 0.01, layer_discount = 2.6, ema_decay = 0.9 }
schedule = { kind = "slanted" }
clip = 25.0
epochs = 1
keep = "last"

[[phase]]
name = "two"
trainable_groups = 2
objective = { kind = "classification" }
batches = { kind = "examples", rows = 32, length = 64 }
optimizer = { kind = "adam", rate = 0.01, layer_discount = 2.6 }
schedule = { kind = "slanted" }
epochs = 1
keep = "last"

[[phase]]
name = "all"
objective = { kind = "classification" }
batches = { kind = "examples", rows = 32, length = 64 }
optimizer = { kind = "adam", rate = 0.01, layer_discount = 2.6 }
schedule = { kind = "slanted" }
epochs = 1
keep = "last"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    (folder / "stages.toml").write_text(STAGES)
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(150))
    for slug in SPECS:
        make_run(folder / slug, slug)
    return folder


@pytest.mark.parametrize("slug", list(SPECS))
def test_gradual_unfreezing_works_over_every_encoder(place: Path, slug: str) -> None:
    """Each phase updates exactly its trainable groups."""
    recipe, data = str(place / "stages.toml"), str(place / "color.csv")
    before: dict[str, Tensor] = {}
    moved: list[set[str]] = []
    plan = make_plan(recipe, place / slug, data, device="cpu")
    for event in transferred(plan, place / f"{slug}-out"):
        network = event_network(plan, place / f"{slug}-out") if event.kind == "end" else None
        if network is not None:
            now = copy_weights(network)
            moved.append({name for name in now if name in before and not torch.equal(before[name], now[name])})
            before = now
    top = set(list_group_names(network)[-1])
    assert {name for name in moved[1] if not name.startswith("out.")} <= {
        name for group in list_group_names(network)[-2:] for name in group
    }
    assert any(name.startswith("encoder.") for name in moved[1])
    assert moved[2] - moved[1] - top


def event_network(plan: Any, folder: Path) -> TextHead:
    cls = model_class(plan.recipe.slug)
    words = vocabulary(plan.tokenizer, spellings=True)
    return plan.task.load_model(folder, cls, network_config(plan.recipe), words)


@pytest.mark.parametrize("stop_at", [2, 6, 8, 11])
def test_run_interrupted_while_unfreezing_resumes_bit_identically(place: Path, tmp_path: Path, stop_at: int) -> None:
    """Five steps per phase: stop within the first phase, within the second, and between them."""
    recipe, data = str(place / "stages.toml"), str(place / "color.csv")
    transfer.run(recipe, place / "bert", data, tmp_path / "whole", device="cpu")
    seen = 0

    def stop() -> bool:
        nonlocal seen
        seen += 1
        return seen == stop_at

    outcome = transfer.run(recipe, place / "bert", data, tmp_path / "cut", device="cpu", stop=stop)
    assert outcome.interrupted
    list(resume(tmp_path / "cut", "cpu")[1])
    plan = make_plan(recipe, place / "bert", data, device="cpu")
    assert are_equal(*(copy_weights(event_network(plan, tmp_path / name)) for name in ("whole", "cut")))


def test_language_model_trains_only_unfrozen_groups(tmp_path: Path) -> None:
    job = make_lstm_job(
        tmp_path / "run", model={**MODEL, "tied": True}, trainable_groups=1, steps=4, optimizer={"kind": "adam"}
    )
    before = copy_weights(job.network)
    list(run_gradient_phase(job))
    after = copy_weights(job.network)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        "embedding.weight",
        "readout.bias",
    }
