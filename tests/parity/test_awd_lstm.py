"""AWD-LSTM compared with an implementation of the paper in plain torch: values, gradients, sizes.

The reference draws its own masks from the same seed in the order of the data: words, input, then for each layer its
connections and its output, and finally the latents of a mixture.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nextword
from nextword.core.errors import InvalidSetting
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.layers.output.softmax import PLAIN
from nextword.models.awd_lstm import AWDLSTM, AWDConfig
from nextword.objectives.causal import CausalObjective
from nextword.recipe import load_recipe
from nextword.training.schedules import Progress, Schedule
from nextword.training.train import train_events
from tests.support.errors import raises

SIZE, ROWS, TIME = 50, 4, 9
SMALL = {"embedding": 8, "width": 23, "layers": 3}  # 400 and 1150, fifty times smaller
PAPER = {"word_dropout": 0.1, "input_dropout": 0.4, "layer_dropout": 0.25, "output_dropout": 0.4, "weight_dropout": 0.5}
ALPHA, BETA = 2.0, 1.0
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
MIXTURE = {"kind": "mixture", "experts": 3, "dropout": 0.29}


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def network(**options: Any) -> AWDLSTM:
    torch.manual_seed(0)
    return AWDLSTM(AWDConfig(**{**SMALL, **PAPER, **options}), Vocabulary(SIZE, 0)).double()


def text(seed: int = 3) -> Batch:
    ids = torch.randint(SIZE, (ROWS, TIME + 1), generator=torch.Generator().manual_seed(seed))
    return Batch(Inputs(ids[:, :-1]), ids[:, 1:])


def bernoulli(share: float, *shape: int) -> Tensor:
    return torch.empty(*shape, dtype=torch.float64).bernoulli_(1 - share) / (1 - share)


class Twin:
    """The paper, with batch first and one row vector after the other: h is (B, D) at each step."""

    def __init__(self, weights: dict[str, Tensor], config: AWDConfig) -> None:
        self.w = {name: t.detach().clone().requires_grad_() for name, t in weights.items()}
        self.c = config

    def loss(self, ids: Tensor, targets: Tensor, memories: list[Any]) -> tuple[Tensor, Tensor, list[Any]]:
        """Cross-entropy with both penalties, without them, and the memories after the last step."""
        c, w = self.c, self.w
        rows, time = ids.shape
        kept = bernoulli(c.word_dropout, SIZE, 1)
        x = [(w["embedding.weight"] * kept)[ids[:, t]] for t in range(time)]
        mask = bernoulli(c.input_dropout, rows, c.embedding)
        after = []
        for i, memory in enumerate(memories):
            x = [mask * x_t for x_t in x]
            if c.cell == "qrnn":
                weight = w[f"layers.{i}.weight"] * bernoulli(c.weight_dropout, *w[f"layers.{i}.weight"].shape)
                x, memory = self.quasi(x, memory, weight, w[f"layers.{i}.bias"])
            else:
                w_ih, w_hh, b_ih, b_hh = (w[f"layers.{i}.{name}"] for name in NAMES)
                if c.input_weight_dropout:
                    w_ih = w_ih * bernoulli(c.input_weight_dropout, *w_ih.shape)
                if c.weight_dropout:
                    w_hh = w_hh * bernoulli(c.weight_dropout, *w_hh.shape)
                x, memory = self.core(x, memory, w_ih, w_hh, b_ih, b_hh)
            after.append(memory)
            mask = bernoulli(c.layer_dropout if i < c.layers - 1 else c.output_dropout, rows, len(x[0][0]))
        raw = torch.stack(x)
        dropped = raw * mask
        log_p = self.mixed(dropped) if c.readout else self.one(dropped)
        plain = F.nll_loss(log_p.flatten(0, 1), targets.T.flatten())
        penalties = ALPHA * (dropped**2).mean() + BETA * ((raw[1:] - raw[:-1]) ** 2).mean()
        return plain + penalties, plain, after

    def one(self, h: Tensor) -> Tensor:
        matrix = self.w["embedding.weight"] if self.c.tied else self.w["readout.weight"]
        return F.log_softmax(h @ matrix.T + self.w["readout.bias"], -1)

    def mixed(self, h: Tensor) -> Tensor:
        """zihangdai/mos: what the experts read loses the same numbers at every step of a row."""
        w, width = self.w, self.c.embedding
        latent = (h @ w["readout.latent.weight"].T + w["readout.latent.bias"]).tanh()  # (T, B, K·D)
        latent = latent * bernoulli(self.c.readout["dropout"], *latent.shape[1:])
        prior = (h @ w["readout.prior.weight"].T).softmax(-1)
        p = 0
        for k in range(self.c.readout["experts"]):
            z = latent[..., k * width : (k + 1) * width] @ w["embedding.weight"].T + w["readout.words.bias"]
            p = p + prior[..., k : k + 1] * z.softmax(-1)
        return p.log()

    def quasi(self, x: list[Tensor], memory: Any, weight: Tensor, bias: Tensor) -> tuple[list[Tensor], Any]:
        """Bradbury et al. 2016; of the two inputs that the first layer sees, the one before may be another batch's."""
        c, *before = memory
        wz, wf, wo = weight.chunk(3)
        bz, bf, bo = bias.chunk(3)
        out = []
        for x_t in x:
            seen = torch.cat([x_t, *before], 1)
            f = (seen @ wf.T + bf).sigmoid()
            c = f * c + (1 - f) * (seen @ wz.T + bz).tanh()
            out.append((seen @ wo.T + bo).sigmoid() * c)
            before = [x_t] if before else []
        return out, (c, *before)

    def core(self, x: list[Tensor], memory: Any, *w: Tensor) -> tuple[list[Tensor], Any]:
        out = []
        if self.c.cell == "gru":
            (h,) = memory
            for x_t in x:
                rx, zx, nx = (x_t @ w[0].T + w[2]).chunk(3, 1)
                rh, zh, nh = (h @ w[1].T + w[3]).chunk(3, 1)
                z = (zx + zh).sigmoid()
                h = (1 - z) * (nx + (rx + rh).sigmoid() * nh).tanh() + z * h
                out.append(h)
            return out, (h,)
        h, c = memory
        for x_t in x:
            i, f, g, o = (x_t @ w[0].T + w[2] + h @ w[1].T + w[3]).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
        return out, (h, c)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied": False},
        {"cell": "gru"},
        {"cell": "qrnn"},
        {"cell": "qrnn", "layers": 1, "tied": False},
        {"input_weight_dropout": 0.3},
        {"layers": 1},
        {"weight_dropout": 0.0},
        {"last_width": 13, "tied": False},
        {"last_width": 13, "readout": MIXTURE},
        {"cell": "qrnn", "readout": MIXTURE},
    ],
    ids=str,
)
@pytest.mark.parametrize("fused_softmax", [False, True])
def test_training_step_equals_reference_from_paper(
    options: dict[str, Any], fused_softmax: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches, the second with the state that the first left, each under masks of its own."""
    monkeypatch.setitem(PLAIN, "cpu", 0 if fused_softmax else 1 << 17)
    net = network(**options).train()
    twin = Twin(net.state_dict(), net.config)
    objective = CausalObjective({}, activation_penalty=ALPHA, temporal_penalty=BETA)
    state, memories = None, [tuple(m.clone() for m in layer) for layer in net.initial(ROWS)]
    for seed in (1, 2):
        batch = text(seed)
        torch.manual_seed(seed)
        found = objective.loss(net, batch, state)
        torch.manual_seed(seed)
        value, plain, after = twin.loss(batch.inputs.ids, batch.targets, memories)
        same(found.value, value)
        same(found.nats, plain.detach() * ROWS * TIME)
        grads = torch.autograd.grad(found.value, list(net.parameters()))
        theirs = torch.autograd.grad(value, [twin.w[name] for name, _ in net.named_parameters()])
        for (name, _), a, b in zip(net.named_parameters(), grads, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}")
        for layer, memory in zip(found.state, after, strict=True):
            for a, b in zip(layer, memory, strict=True):
                same(a, b)
        state = tuple(tuple(m.detach() for m in layer) for layer in found.state)
        memories = [tuple(m.detach() for m in memory) for memory in after]


@pytest.mark.parametrize("tied", [True, False])
def test_eval_mode_equals_stack_of_torch_lstms(tied: bool) -> None:
    """nn.LSTM layer upon layer, to the bit: outputs of every layer, last memories and log p."""
    net = network(tied=tied).float().eval()
    last = SMALL["embedding"] if tied else SMALL["width"]
    widths = [SMALL["embedding"], SMALL["width"], SMALL["width"], last]
    batch = text()
    x = net.embedding(batch.inputs.ids).transpose(0, 1)
    layers, state = net.hidden(batch.inputs, None)
    assert [y.shape[-1] for y in layers] == net.widths == [*widths, last]
    assert torch.equal(layers[0].transpose(0, 1), x)
    for i in range(3):
        module = nn.LSTM(widths[i], widths[i + 1])
        module.load_state_dict({f"{name}_l0": getattr(net.layers[i], name).detach() for name in NAMES})
        x, (h, c) = module(x)
        assert torch.equal(layers[i + 1].transpose(0, 1), x)
        assert torch.equal(state[i][0], h[0])
        assert torch.equal(state[i][1], c[0])
    assert torch.equal(layers[-1], layers[-2])
    matrix = net.embedding.weight if tied else net.readout.weight
    expected = F.log_softmax(x.transpose(0, 1).reshape(-1, last) @ matrix.T + net.readout.bias, -1)
    found = net.readout.log_probs(layers[-1].reshape(-1, last))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    nats = F.nll_loss(expected, batch.targets.reshape(-1), reduction="sum")
    torch.testing.assert_close(CausalObjective({}).loss(net, batch, None).nats, nats.detach(), rtol=1e-5, atol=1e-4)


# ------------------------------------------------------------------------------------------------ sizes and settings


def originals_parameters(size: int, embedding: int, width: int) -> int:
    """By the shapes of salesforce/awd-lstm-lm, model.py: encoder, three LSTMs with two biases each, decoder's bias."""
    lstms = [(embedding, width), (width, width), (width, embedding)]
    return size * embedding + sum(4 * d * (i + d) + 8 * d for i, d in lstms) + size


def parameters(size: int, width: int) -> int:
    with torch.device("meta"):
        net = AWDLSTM(AWDConfig(width=width), Vocabulary(size, 0))
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(("size", "expected"), [(10_000, 24_221_600), (33_278, 33_556_078)])  # PTB, WikiText-2
def test_parameter_count_equals_original(size: int, expected: int) -> None:
    """33,556,078 is what the original prints on WikiText-2; 24,221,600 is the same count with PTB's 10,000 words."""
    assert originals_parameters(size, 400, 1150) == expected
    assert parameters(size, 1150) == expected
    assert parameters(size, 1152) == originals_parameters(size, 400, 1152)  # as the recipes have it


def test_initial_weights_lie_in_original_ranges() -> None:
    torch.manual_seed(0)
    net = AWDLSTM(AWDConfig(**SMALL), Vocabulary(SIZE, 0))
    assert 0.09 < net.embedding.weight.abs().max() <= 0.1
    assert not net.readout.bias.any()
    for layer in net.layers:
        bound = layer.width**-0.5  # torch's own
        for parameter in layer.parameters():
            assert 0.7 * bound < parameter.abs().max() <= bound


def test_last_layer_width_is_configurable() -> None:
    net = network(last_width=13, readout=MIXTURE)
    assert net.widths == [8, 23, 23, 13, 13]
    assert net.readout.latent.weight.shape == (3 * 8, 13)  # and the experts lead back to the embedding's
    assert network(readout=MIXTURE).widths[-1] == 8
    assert network(tied=False).widths[-1] == 23
    assert network(tied=False, last_width=13).widths[-1] == 13
    assert network(last_width=8).widths[-1] == 8


@pytest.mark.parametrize("readout", [{}, {"kind": "sampled"}])
def test_config_with_untieable_width_raises(readout: dict[str, Any]) -> None:
    with raises(InvalidSetting, key="model.last_width"):
        AWDConfig(embedding=280, width=960, last_width=620, readout=readout)
    with raises(InvalidSetting, key="model.readout.latent"):
        AWDLSTM(AWDConfig(**SMALL, readout={**MIXTURE, "latent": 100}), Vocabulary(SIZE, 0))


def test_mixture_of_softmaxes_has_parameter_count_of_paper() -> None:
    """Yang et al. 2018: 22 million on PTB."""
    config = AWDConfig(embedding=280, width=960, last_width=620, readout={"kind": "mixture", "experts": 15})
    with torch.device("meta"):
        found = sum(p.numel() for p in AWDLSTM(config, Vocabulary(10_000, 0)).parameters())
    lstms = sum(4 * d * (i + d) + 8 * d for i, d in [(280, 960), (960, 960), (960, 620)])
    assert found == 10_000 * 280 + lstms + 15 * 620 + 15 * 280 * (620 + 1) + 10_000
    assert round(found / 1e6) == 22


def dropouts(config: AWDConfig) -> tuple[float, ...]:
    return config.word_dropout, config.input_dropout, config.layer_dropout, config.output_dropout


@pytest.mark.parametrize(
    ("name", "rows", "input", "between", "epochs"),
    [("ptb", 20, 0.4, 0.25, 500), ("wikitext2", 80, 0.65, 0.2, 750)],
)
def test_recipe_equals_original_settings(name: str, rows: int, input: float, between: float, epochs: int) -> None:
    """The commands of its README, and main.py's defaults for the rest."""
    recipe = load_recipe(f"awd-lstm/{name}")
    config, (phase, *_) = AWDConfig(**recipe.model), recipe.phases
    assert (config.embedding, config.layers, config.cell, config.tied) == (400, 3, "lstm", True)
    assert (config.word_dropout, config.input_dropout, config.layer_dropout, config.output_dropout) == (
        0.1,
        input,
        between,
        0.4,
    )
    assert (config.weight_dropout, config.input_weight_dropout) == (0.5, 0)
    assert (phase.objective["activation_penalty"], phase.objective["temporal_penalty"]) == (2, 1)
    assert (phase.batches["kind"], phase.batches["rows"], phase.batches["length"]) == ("variable", rows, 70)
    assert phase.optimizer == {"kind": "nt-asgd", "rate": 30.0, "weight_decay": 1.2e-6, "patience": 5}
    assert (phase.clip, phase.epochs) == (0.25, epochs)


def test_qrnn_recipe_equals_original_settings() -> None:
    recipe, plain = load_recipe("awd-lstm/ptb-qrnn"), load_recipe("awd-lstm/ptb")
    config, (phase, *_) = AWDConfig(**recipe.model), recipe.phases
    assert (config.cell, config.layers, config.weight_dropout, config.layer_dropout) == ("qrnn", 4, 0.1, 0.3)
    assert (config.width, config.embedding, config.input_dropout, config.output_dropout) == (1552, 400, 0.4, 0.4)
    assert (phase.clip, phase.epochs) == (0.2, 550)
    for key in ("objective", "batches", "optimizer"):  # main.py's defaults
        assert getattr(phase, key) == getattr(plain.phases[0], key)


def test_mixture_recipe_equals_paper_settings() -> None:
    recipe, plain = load_recipe("awd-lstm/ptb-mos"), load_recipe("awd-lstm/ptb")
    config, (phase, *_) = AWDConfig(**recipe.model), recipe.phases
    assert (config.embedding, config.width, config.layers, config.last_width) == (280, 960, 3, 624)
    assert (config.word_dropout, config.input_dropout, config.layer_dropout, config.output_dropout) == (
        0.1,
        0.4,
        0.225,
        0.4,
    )
    assert (config.weight_dropout, config.readout) == (0.5, {"kind": "mixture", "experts": 15, "dropout": 0.29})
    assert phase.batches == {"kind": "variable", "rows": 12, "length": 70}
    assert phase.optimizer == {"kind": "nt-asgd", "rate": 20.0, "weight_decay": 1.2e-6, "patience": 5}
    assert (phase.clip, phase.epochs, phase.objective) == (0.25, 1000, plain.phases[0].objective)


def test_enwik8_recipe_equals_original_settings() -> None:
    recipe = load_recipe("awd-lstm/enwik8")
    config, (phase, *_) = AWDConfig(**recipe.model), recipe.phases
    assert (config.embedding, config.width, config.layers) == (400, 1840, 3)
    assert (config.word_dropout, config.input_dropout, config.layer_dropout, config.output_dropout) == (
        0,
        0.1,
        0.1,
        0.4,
    )
    assert config.weight_dropout == 0.2
    assert phase.objective == {"kind": "causal"}  # no penalties
    assert phase.batches == {"kind": "variable", "rows": 128, "length": 200}
    assert phase.optimizer == {"kind": "adam", "rate": 0.001, "weight_decay": 1.2e-6}
    assert (phase.clip, phase.epochs) == (0.25, 50)
    schedule = Schedule(0.001, phase.schedule)
    rates = [schedule(Progress(0, epochs, 0.0, ())) for epochs in (0, 24, 25, 34, 35, 44)]
    assert rates == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4, 1e-5, 1e-5])


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ptb-qrnn", ["tokenizer.size=400", "model.width=24", "model.embedding=16"]),
        ("ptb-mos", ["tokenizer.size=400", "model.width=24", "model.embedding=16", "model.last_width=20"]),
        ("enwik8", ["model.width=24", "model.embedding=16", "phase.0.batches.rows=8"]),
    ],
)
def test_other_recipes_train_load_and_score(
    name: str, changes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Narrower, on text that comes along: through loop, file and use."""
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    changes = [
        *changes,
        "phase.0.data=python",
        "phase.0.steps=6",
        "phase.0.validate_every=6",
        "phase.0.batches.length=20",
    ]
    events = list(train_events(load_recipe(f"awd-lstm/{name}", changes), tmp_path / "run", device="cpu"))
    losses = [event.values["loss"] for event in events if event.kind == "step"]
    assert losses
    lm = nextword.load(tmp_path / "run", device="cpu")
    ceiling = 1.5 * math.log(len(lm.tokenizer))
    score = lm.score("the value of the type")
    assert max(*losses, score.nats / score.tokens) < ceiling
    assert lm.next("the value", k=3)
