"""Which units of the feed-forward layers hold a fact, and what happens to the fact without them.

    The capital of France is ___ .        w_l = activations of layer l at the blank       (units,)
    p(Paris) as a function of w_l         attribution_l = w_l ⊙ ∫₀¹ ∂p/∂w_l (α w_l) dα    by `steps` nodes from the left

(Dai, Dong, Hao, Sui, Chang & Wei, "Knowledge Neurons in Pretrained Transformers", ACL 2022.) Each layer is scaled
alone, at the blank alone; the rows of all layers and nodes go through the network together. For a model that reads from
left to right, the blank is the end of the text.

    find      a unit is kept for one prompt if its attribution is at least `threshold` of the largest, and for the fact
              if it is kept for at least `share` of the prompts that state the fact in other words
    change    suppress (× 0) or amplify (× 2) units, and see how p(answer) changes
    update    replace the answer: take the old answer's embedding out of the units' value vectors, put the new one in
    erase     set the units' value vectors to zero

The value vector of a unit is its column of the second feed-forward matrix. `update_fact` and `erase_neurons` change the
weights of the loaded model; `save_edited` writes it as a new run that says what was done.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.core.errors import Unsupported, invalid
from nextword.html.page import html_table, number_column, text_column
from nextword.lens.result import LensResult, run_name
from nextword.lens.saliency import Prediction, find_prediction
from nextword.lm.base import TextModel
from nextword.run_folder import RunFolder

STEPS = 20
THRESHOLD = 0.2  # of the largest attribution of a prompt
SHARE = 0.7  # of the prompts of a fact
MIN_PROMPTS = 3  # in which a unit must be kept, whatever the share
WANTED = (2.0, 5.0)  # mean number of units per fact that `find_relation` aims at
SHARE_STEP, TRIES = 0.05, 6
OLD_SCALE, NEW_SCALE = 1.0, 8.0  # λ₁ and λ₂ of the paper
MAX_TOKENS = 8192  # in one forward and backward pass
SHOWN = 30  # units in the table of a page
KEY_LAYERS = "narrow"  # the name of the second feed-forward matrix in all Transformers here

Replace = Callable[[int, Tensor], Tensor]  # (layer from 0, activations at the blank (B, units)) → others


@dataclass(frozen=True, order=True)
class Neuron:
    layer: int  # from 1
    unit: int  # from 0


@dataclass(frozen=True, eq=False, repr=False)
class NeuronAttributions(LensResult):
    """What the probability of an answer owes to every feed-forward unit at the blank."""

    text: str
    target: str
    probability: float
    steps: int
    scores: np.ndarray = field(repr=False)  # (layers, units)

    def __repr__(self) -> str:
        best = ", ".join(f"{n.layer}.{n.unit} {self.scores[n.layer - 1, n.unit]:+.3f}" for n in self.best(3))
        return f"NeuronAttributions({self.text!r} → {self.target!r}, p = {self.probability:.3f}: {best})"

    def best(self, k: int) -> list[Neuron]:
        """The units with the largest attributions."""
        order = np.argsort(-self.scores, axis=None, kind="stable")[:k]
        return [Neuron(int(at // self.scores.shape[1]) + 1, int(at % self.scores.shape[1])) for at in order]

    def kept(self, threshold: float = THRESHOLD) -> set[Neuron]:
        """The units whose attribution is at least this share of the largest."""
        largest = float(self.scores.max())
        if largest <= 0:
            return set()
        return {Neuron(int(layer) + 1, int(unit)) for layer, unit in np.argwhere(self.scores >= threshold * largest)}

    @property
    def title(self) -> str:
        return f"Units that speak for “{self.target.strip()}”"

    def sections(self) -> list[tuple[str, str]]:
        rows = [
            {"unit": f"layer {n.layer}, unit {n.unit}", "value": self.scores[n.layer - 1, n.unit]}
            for n in self.best(SHOWN)
        ]
        columns = [text_column("Unit", "unit", "model"), number_column("Probability", "{:+.4f}".format, "value")]
        return [("The strongest units", html_table("The strongest units", columns, rows))]


@dataclass(frozen=True)
class Fact:
    """A fact in several wordings: prompts with the same answer."""

    prompts: tuple[str, ...]  # with a blank ___, or ending where the answer stands
    answer: str  # one token


@dataclass(frozen=True)
class KnowledgeNeurons:
    """The units that hold a fact."""

    fact: Fact
    neurons: tuple[Neuron, ...]
    share: float  # of the prompts that had to agree


# ------------------------------------------------------------------------------------------------ attribution


def attribute_neurons(model: TextModel, text: str, target: str | None = None, steps: int = STEPS) -> NeuronAttributions:
    """What the probability of the word in a blank owes to every unit of the feed-forward layers.

    target   the answer, one token, as it would stand there; None: the likeliest
    steps    nodes of the integral. The sum over a layer comes as close to p − p(without the layer) as there are nodes
    """
    if not 1 <= steps <= 2048:
        raise invalid("steps", steps, "must be from 1 to 2,048.")
    prediction = _require_one_token(model, find_prediction(model, text, target, None))
    recorded: list[Tensor] = []

    def record(_: int, own: Tensor) -> Tensor:
        recorded.append(own)
        return own

    with torch.no_grad():
        scores = _probability(model, prediction, 1, record)
    activations = torch.cat(recorded)  # (layers, units)
    layers = len(activations)
    rows_at_once = max(1, MAX_TOKENS // len(prediction.parts[-1].ids))
    total = torch.zeros_like(activations)
    nodes = [(layer, i / steps) for layer in range(layers) for i in range(steps)]
    for at in range(0, len(nodes), rows_at_once):
        total += _sum_gradients(model, prediction, activations, nodes[at : at + rows_at_once])
    values = (activations * total / steps).double().cpu().numpy()
    return NeuronAttributions(run_name(model), text, prediction.name, float(scores[0]), steps, values)


def _sum_gradients(
    model: TextModel, prediction: Prediction, activations: Tensor, nodes: Sequence[tuple[int, float]]
) -> Tensor:
    """Σ ∂p/∂w over nodes (layer, α), each with its layer's activations times α: (layers, units)."""
    layer_of = torch.tensor([layer for layer, _ in nodes], device=activations.device)
    alphas = torch.tensor([alpha for _, alpha in nodes], device=activations.device, dtype=activations.dtype)
    scaled = (activations[layer_of] * alphas.unsqueeze(1)).requires_grad_()

    def put(layer: int, own: Tensor) -> Tensor:
        return torch.where((layer_of == layer).unsqueeze(1), scaled, own)

    with torch.enable_grad():
        total = _probability(model, prediction, len(nodes), put).sum()
        (gradient,) = torch.autograd.grad(total, scaled)
    return torch.zeros_like(activations).index_add_(0, layer_of, gradient)


def _probability(model: TextModel, prediction: Prediction, rows: int, change: Replace) -> Tensor:
    """p of the answer in each of several rows with the same text, whose activations are changed: (rows,)."""
    ids = [part.ids.expand(rows, -1) for part in prediction.parts]
    with _at_blank(model, prediction.at, change):
        log_probs = prediction.log_probs(ids)  # (rows, 1, V)
    return log_probs[:, 0, prediction.targets[0]].double().exp()


@contextmanager
def _at_blank(model: TextModel, at: int, change: Replace) -> Iterator[None]:
    """Within it, the activations of all feed-forward layers at one position pass through `change`."""
    modules = _second_matrices(model)
    calls = Counter[int]()

    def hook(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = args[0]
        layer = sum(calls.values())
        calls[id(module)] += 1
        if x.dim() == 2:  # the last layer may be computed at the blank alone
            return (change(layer, x),)
        own = change(layer, x[:, at])
        return (torch.cat([x[:, :at], own.unsqueeze(1), x[:, at + 1 :]], 1),)

    handles = [module.register_forward_pre_hook(hook) for module in dict.fromkeys(modules)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if sum(calls.values()) != len(modules):
        raise Unsupported(
            f"{type(model.network).__name__} does not compute its feed-forward layers one by one here.",
            ability="knowledge_neurons",
        )


def _second_matrices(model: TextModel) -> list[nn.Linear]:
    """The second feed-forward matrix of each layer; the same one several times where layers share it."""
    network = model.network
    found = [m for name, m in network.named_modules() if name.rpartition(".")[2] == KEY_LAYERS]
    if network.is_quantized or not found or model.is_seq2seq or not all(isinstance(m, nn.Linear) for m in found):
        raise Unsupported(
            f"{run_name(model)} has no feed-forward layers to look into. BERT, RoBERTa, ALBERT and GPT in fp32 have.",
            ability="knowledge_neurons",
        )
    return [found[i % len(found)] for i in range(network.config.layers)]


def _require_one_token(model: TextModel, prediction: Prediction) -> Prediction:
    if len(prediction.targets) != 1:
        raise invalid("target", prediction.name, f"must be one token; it is {len(prediction.targets)}.")
    return prediction


# ------------------------------------------------------------------------------------------------ finding


def find_knowledge_neurons(
    model: TextModel, fact: Fact, steps: int = STEPS, threshold: float = THRESHOLD, share: float = SHARE
) -> KnowledgeNeurons:
    """The units that hold a fact: those that several wordings of it agree on."""
    return _refine(fact, _kept_by_prompt(model, fact, steps, threshold), share)


def find_relation(
    model: TextModel, facts: Sequence[Fact], steps: int = STEPS, threshold: float = THRESHOLD
) -> list[KnowledgeNeurons]:
    """The units of several facts of one relation, with the share of prompts moved until facts have a few units each."""
    kept = [_kept_by_prompt(model, fact, steps, threshold) for fact in facts]
    share, low, high = SHARE, *WANTED
    for _ in range(TRIES):
        found = [_refine(fact, own, share) for fact, own in zip(facts, kept, strict=True)]
        mean = float(np.mean([len(own.neurons) for own in found]))
        if low <= mean <= high:
            break
        share += SHARE_STEP if mean > high else -SHARE_STEP
    return found


def _kept_by_prompt(model: TextModel, fact: Fact, steps: int, threshold: float) -> list[set[Neuron]]:
    if len(fact.prompts) <= MIN_PROMPTS:
        problem = f"has {len(fact.prompts)} prompts; more than {MIN_PROMPTS} wordings of a fact are needed."
        raise invalid("fact", fact.answer, problem)
    if not 0 < threshold <= 1:
        raise invalid("threshold", threshold, "must be above 0 and at most 1.")
    return [attribute_neurons(model, prompt, fact.answer, steps).kept(threshold) for prompt in fact.prompts]


def _refine(fact: Fact, kept: Sequence[set[Neuron]], share: float) -> KnowledgeNeurons:
    counts = Counter(neuron for own in kept for neuron in own)
    needed = max(math.ceil(share * len(kept) - 1e-9), MIN_PROMPTS)
    return KnowledgeNeurons(fact, tuple(sorted(n for n, count in counts.items() if count >= needed)), share)


# ------------------------------------------------------------------------------------------------ changing


def change_neurons(
    model: TextModel, text: str, target: str, neurons: Iterable[Neuron], factor: float
) -> tuple[float, float]:
    """p(target) as it is, and with the activations of some units at the blank times a factor (0: off; 2: doubled)."""
    prediction = _require_one_token(model, find_prediction(model, text, target, None))
    units = _by_layer(model, neurons)

    def scale(layer: int, own: Tensor) -> Tensor:
        if not units.get(layer):
            return own
        own = own.clone()
        own[:, units[layer]] *= factor
        return own

    with torch.no_grad():
        before = _probability(model, prediction, 1, lambda _, own: own)
        after = _probability(model, prediction, 1, scale)
    return float(before[0]), float(after[0])


def _by_layer(model: TextModel, neurons: Iterable[Neuron]) -> dict[int, list[int]]:
    """Units of each layer, from 0."""
    matrices = _second_matrices(model)
    units: dict[int, list[int]] = {}
    for neuron in neurons:
        if not 1 <= neuron.layer <= len(matrices) or not 0 <= neuron.unit < matrices[0].in_features:
            expected = f"must be layers 1 to {len(matrices)} and units 0 to {matrices[0].in_features - 1}."
            raise invalid("neurons", (neuron.layer, neuron.unit), expected)
        units.setdefault(neuron.layer - 1, []).append(neuron.unit)
    return units


@torch.no_grad()
def update_fact(
    model: TextModel,
    neurons: Iterable[Neuron],
    old: str,
    new: str,
    old_scale: float = OLD_SCALE,
    new_scale: float = NEW_SCALE,
) -> None:
    """Change an answer: v −= λ₁ ‖v‖/‖e_old‖ e_old, v += λ₂ ‖v‖/‖e_new‖ e_new for the value vector v of each unit."""
    matrices, table = _second_matrices(model), model.network.embedding.weight
    vectors = [table[_id_of(model, word)] for word in (old, new)]
    if vectors[0].numel() != matrices[0].out_features:
        raise Unsupported(
            f"{run_name(model)} has word vectors of another width than its layers.", ability="knowledge_neurons"
        )
    for layer, units in _by_layer(model, neurons).items():
        weight = matrices[layer].weight
        for unit in units:
            value = weight[:, unit].clone()
            length = value.norm()
            value -= old_scale * length / vectors[0].norm() * vectors[0]
            value += new_scale * length / vectors[1].norm() * vectors[1]
            weight[:, unit] = value


@torch.no_grad()
def erase_neurons(model: TextModel, neurons: Iterable[Neuron]) -> None:
    """Set the value vectors of units to zero: they say nothing any more, anywhere."""
    matrices = _second_matrices(model)
    for layer, units in _by_layer(model, neurons).items():
        matrices[layer].weight[:, units] = 0


def _id_of(model: TextModel, word: str) -> int:
    ids = model.tokenizer.encode(word).ids
    if len(ids) != 1:
        raise invalid("answer", word, f"must be one token; it is {len(ids)}.")
    return int(ids[0])


def save_edited(model: TextModel, out: str | Path, edit: str) -> RunFolder:
    """Write a model whose weights were edited as a new run, with a note of what was done and the run that it was."""
    source = RunFolder.open(model.name)
    RunFolder.refuse_if_taken(out)
    facts: dict[str, Any] = {
        key: source.manifest[key] for key in ("parameters", "data", "texts") if key in source.manifest
    }
    recipe = replace(source.recipe, measured={}, reported={})
    run = RunFolder.create(out, recipe, model.tokenizer, edited={"from": source.path.name, "edit": edit}, **facts)
    run.save_model(model.network.save)
    run.seal(finished=True)
    return run
