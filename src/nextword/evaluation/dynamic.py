"""Dynamic evaluation: a network keeps learning from the text it is tested on, after each segment has been scored.

Krause, Kahembwe, Murray & Renals, "Dynamic Evaluation of Neural Sequence Models" (2018). The text is read in short
segments, and after each one every weight moves:

    θ ← θ − η g / (RMS_g + ε) + λ (θ_0 − θ) RMS_norm            eq. (7) to (9), λ · RMS_norm at most 1

g is the gradient of the segment's mean loss; RMS_g the root of the mean squared gradient over the training text,
collected once; RMS_norm is RMS_g divided by its mean. A weight with large training gradients moves less per gradient
and decays faster to its trained value θ_0. The kind "sgd" sets RMS_g + ε = RMS_norm = 1 and needs no training text.

The authors' first code used other units (`--oldhyper`). Published settings such as η 0.002, λ 0.02, ε 0.001 are in
those units; `legacy_units` converts them. The run's own network is never changed: a copy learns.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nextword.core import pytree
from nextword.core.errors import CannotWrite, DataError, InvalidSetting, Unsupported, explain_write_errors, invalid
from nextword.core.scratch import scratch_folder
from nextword.core.types import Inputs, Progress, State, ignore_progress
from nextword.evaluation.neural_cache import BLOCK, ReadBlock
from nextword.kernels.graph_capture import capture_graph
from nextword.layers.output.softmax import LinearReadout
from nextword.models.base import CausalNetwork
from nextword.run_folder import RunFolder, replace_file

STATISTICS_FILE = "gradients.safetensors"  # in the run folder
KINDS = ("rms", "sgd")
MAX_ROWS = 100  # rows of the training text in a batch, for the statistics
# Default η, λ, ε in the equation's units, as in the authors' current code
DEFAULTS = {"rms": (5e-5, 0.002, 2e-5), "sgd": (0.1, 0.002, 0.0)}
LEGACY_DEFAULTS = (0.002, 0.02, 0.001)  # Penn Treebank and WikiText-2, in the units of the first code


@dataclass(frozen=True)
class DynamicSettings:
    """None: searched on validation text (rate and λ), or the default (ε)."""

    rate: float | None = None
    lambda_: float | None = None
    epsilon: float | None = None
    length: int = 5  # tokens per segment
    kind: str = "rms"
    legacy_units: bool = False  # rate, λ and ε are in the units of the authors' first code
    segments: int = 5000  # of the training text, at most, for the statistics
    search: int = 10_000  # validation tokens for the search of rate and λ; 0: use the defaults
    recompute: bool = False  # collect the statistics again

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise invalid("dynamic.kind", self.kind, f"must be {' or '.join(KINDS)}.")
        if self.legacy_units and self.kind != "rms":
            raise invalid("dynamic.legacy_units", True, "needs dynamic.kind = rms: the published settings are for it.")
        for name, value in (("rate", self.rate), ("lambda", self.lambda_), ("epsilon", self.epsilon)):
            if value is not None and not 0 <= value < math.inf:
                raise invalid(f"dynamic.{name}", value, "must be 0 or more.")
        for name, count, least in (
            ("length", self.length, 1),
            ("segments", self.segments, 1),
            ("search", self.search, 0),
        ):
            if count < least:
                raise invalid(f"dynamic.{name}", count, f"must be at least {least}.")


@dataclass(frozen=True)
class GradientStatistics:
    """Mean squared gradients over the training text, by weight, and how they were collected."""

    squares: Mapping[str, Tensor]
    segments: int
    rows: int
    length: int


# ------------------------------------------------------------------------------------------------ statistics


def collect_statistics(
    network: CausalNetwork, ids: np.ndarray, length: int = 5, segments: int = 5000, progress: Progress = ignore_progress
) -> GradientStatistics:
    """One pass over the training text in rows, without dropout; the gradient of each segment is of its mean loss."""
    if len(ids) < 2:
        raise DataError("The training text needs at least two tokens to collect gradient statistics from.")
    rows = max(1, min(MAX_ROWS, len(ids) // (length + 1)))
    row_length = len(ids) // rows
    length = min(length, row_length - 1)
    segments = min(segments, (row_length - 1) // length)
    text = torch.from_numpy(ids[: rows * row_length].reshape(rows, row_length).astype(np.int64))
    network = _trainable_copy(network)
    weights = dict(network.named_parameters())
    squares = {name: torch.zeros_like(weight, requires_grad=False) for name, weight in weights.items()}
    first, state = network.start(rows)
    for i in range(segments):
        segment = text[:, i * length : (i + 1) * length + 1].to(first.device)
        _, _, gradients, state = _compute_gradients(network, list(weights.values()), segment, state)
        for total, g in zip(squares.values(), gradients, strict=True):
            if g is not None:
                total.addcmul_(g, g)
        if i % 20 == 19:
            progress(i + 1, segments)
    means = {name: total / segments for name, total in squares.items()}
    return GradientStatistics(means, segments, rows, length)


def load_or_collect_statistics(
    run: RunFolder,
    network: CausalNetwork,
    read_train: Callable[[], np.ndarray],
    dynamic: DynamicSettings,
    progress: Progress = ignore_progress,
) -> GradientStatistics:
    """The statistics in the run folder, or new ones, which are then saved there."""
    # The checksums of the weights: statistics of other weights are of no use.
    weights = str(sorted(run.manifest.get("files", {}).items()))
    wanted = {"asked": str(dynamic.segments), "length": str(dynamic.length), "of": weights}
    path = run.path / STATISTICS_FILE
    if not dynamic.recompute and (saved := _load_statistics(path, wanted, network)):
        return saved
    new = collect_statistics(network, read_train(), dynamic.length, dynamic.segments, progress)
    metadata = wanted | {"segments": str(new.segments), "rows": str(new.rows), "took": str(new.length)}
    # A run that cannot be written works too: the statistics are collected again the next time.
    with suppress(CannotWrite), explain_write_errors(run.path), scratch_folder(run.path) as scratch:
        file = scratch / STATISTICS_FILE
        save_file({name: t.contiguous() for name, t in new.squares.items()}, str(file), metadata)
        file.chmod(0o644)
        replace_file(file, path)
    return new


def _load_statistics(path: Path, wanted: Mapping[str, str], network: CausalNetwork) -> GradientStatistics | None:
    """The saved statistics, if the file is intact and belongs to these weights and settings."""
    shapes = {name: weight.shape for name, weight in network.named_parameters()}
    device = next(network.parameters()).device
    try:
        with safe_open(str(path), framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            if any(metadata.get(key) != value for key, value in wanted.items()) or set(file.keys()) != set(shapes):
                return None
            squares = {name: file.get_tensor(name) for name in shapes}
    except (OSError, SafetensorError):  # missing or damaged: collect them again
        return None
    if any(squares[name].shape != shape for name, shape in shapes.items()):
        return None
    return GradientStatistics(squares, int(metadata["segments"]), int(metadata["rows"]), int(metadata["took"]))


# ------------------------------------------------------------------------------------------------ evaluation


def dynamic_nats(evaluator: DynamicEvaluator, ids: np.ndarray, progress: Progress = ignore_progress) -> np.ndarray:
    """−log p of every token, as predicted just before the network learned from the token's segment."""
    parts = [block.nats.double().cpu().numpy() for block in evaluator.read(ids, progress)]
    return np.concatenate(parts) if parts else np.zeros(0)


class DynamicEvaluator:
    """A copy of a network that learns from each segment right after scoring it. Every `read` starts from the trained
    weights.
    """

    def __init__(
        self, network: CausalNetwork, dynamic: DynamicSettings, statistics: GradientStatistics | None = None
    ) -> None:
        dynamic = to_equation_units(dynamic, statistics)
        rate, lambda_, epsilon = dynamic.rate, dynamic.lambda_, dynamic.epsilon
        if rate is None or lambda_ is None or epsilon is None:
            raise InvalidSetting(f"{dynamic} is incomplete: call search_settings first.", key="dynamic", value=dynamic)
        self.length, self.rate = dynamic.length, rate
        self.origin = [p.detach() for p in network.parameters()]
        self.network = _trainable_copy(network)
        self.weights = list(self.network.parameters())
        if dynamic.kind == "sgd":
            self.divisors = [torch.ones((), device=w.device) for w in self.weights]
            self.decays = [torch.full((), min(lambda_, 1.0), device=w.device) for w in self.weights]
        else:
            roots = [square.sqrt() for square in _mean_squares(network, statistics)]
            # the mean over tensors, not over their elements, as in the authors' code
            mean = torch.stack([root.mean() for root in roots]).mean().clamp(min=1e-30)
            self.divisors = [(root + epsilon).clamp(min=1e-30) for root in roots]
            self.decays = [(lambda_ / mean * root).clamp(max=1.0) for root in roots]  # above 1 it would overshoot

    def read(self, ids: np.ndarray, progress: Progress = ignore_progress) -> Iterator[ReadBlock]:
        """Read a text from its beginning; yield blocks of whole segments, as predicted before learning from each."""
        first, state = self.network.start(1)
        text = torch.cat([first, torch.from_numpy(ids.astype(np.int64)).to(first.device)])
        # Other readouts may synchronize with the GPU, which a CUDA graph cannot capture.
        can_capture = first.is_cuda and isinstance(self.network.readout, LinearReadout) and len(ids) > 20 * self.length
        step = self._captured_step(state) if can_capture else self._step
        with torch.no_grad():
            for weight, origin in zip(self.weights, self.origin, strict=True):
                weight.copy_(origin)
        pending: list[ReadBlock] = []
        for start in range(0, len(ids), self.length):
            segment = text[start : start + self.length + 1].unsqueeze(0)
            is_full = segment.shape[1] == self.length + 1
            h, nats, state = (step if is_full else self._step)(segment, state)
            pending.append(ReadBlock(h, segment[0, 1:], nats))
            end = start + segment.shape[1] - 1
            if len(pending) * self.length >= BLOCK or end == len(ids):
                yield ReadBlock(*(torch.cat(parts) for parts in zip(*pending, strict=True)))
                pending = []
                progress(end, len(ids))

    def _step(self, segment: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        h, nats, gradients, state = _compute_gradients(self.network, self.weights, segment, state)
        self._update(gradients)
        return h, nats, state

    @torch.no_grad()
    def _update(self, gradients: Sequence[Tensor | None]) -> None:
        """The equation at the head of this file, for all weights at once."""
        used = [i for i, g in enumerate(gradients) if g is not None]
        weights: list[Tensor] = [self.weights[i] for i in used]
        steps = torch._foreach_div([g for g in gradients if g is not None], [self.divisors[i] for i in used])
        origin: list[Tensor] = [self.origin[i] for i in used]
        decay = torch._foreach_sub(origin, weights)
        torch._foreach_mul_(decay, [self.decays[i] for i in used])
        torch._foreach_add_(weights, steps, alpha=-self.rate)
        torch._foreach_add_(weights, decay)

    def _captured_step(self, state: State) -> Callable[[Tensor, State], tuple[Tensor, Tensor, State]]:
        """`_step` as a CUDA graph, so that the GPU does not wait for Python between hundreds of small kernels."""
        ids = torch.zeros(1, self.length + 1, dtype=torch.long, device=self.weights[0].device)
        buffers = pytree.clone(state)
        shapes = _state_shapes(state)
        stream = torch.cuda.Stream(ids.device)
        stream.wait_stream(torch.cuda.current_stream(ids.device))
        rate, self.rate = self.rate, 0.0  # warm-up steps, which initialize the libraries and move no weight
        with torch.cuda.stream(stream):
            for _ in range(3):
                after = self._step(ids, state)[2]
        self.rate = rate
        torch.cuda.current_stream(ids.device).wait_stream(stream)
        if _state_shapes(after) != shapes or not shapes:  # a state that grows has no fixed buffers
            return self._step
        with capture_graph(stream=stream) as graph:
            h, nats, after = self._step(ids, buffers)
            pytree.copy_into(buffers, after)

        def replay(segment: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
            if state is not buffers:
                pytree.copy_into(buffers, state)
            ids.copy_(segment)
            graph.replay()
            return h.clone(), nats.clone(), buffers

        return replay


def _compute_gradients(
    network: CausalNetwork, weights: Sequence[Tensor], ids: Tensor, state: State
) -> tuple[Tensor, Tensor, Sequence[Tensor | None], State]:
    """Hidden states, nats, gradients of the mean of the nats, and the state after (B, T + 1) ids."""
    # cuDNN's recurrent kernels have no backward pass in evaluation mode; torch's own kernels do
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        layers, state = network.hidden(Inputs(ids[:, :-1]), pytree.detach(state))
        h = layers[-1].reshape(-1, layers[-1].shape[-1])
        nats = network.readout.nll(h, ids[:, 1:].reshape(-1))
        gradients = torch.autograd.grad(nats.mean(), weights, allow_unused=True)
    return h.detach(), nats.detach(), gradients, pytree.detach(state)


def _trainable_copy(network: CausalNetwork) -> CausalNetwork:
    """A copy to differentiate, without dropout."""
    if network.is_quantized:
        raise Unsupported(
            "Dynamic evaluation needs float weights; int8 weights cannot be trained. Evaluate the original run, or "
            "leave --dynamic out.",
            ability="train",
        )
    return copy.deepcopy(network).eval().requires_grad_(True)


def _mean_squares(network: CausalNetwork, statistics: GradientStatistics | None) -> list[Tensor]:
    if statistics is None:
        raise invalid("dynamic.kind", "rms", "needs the gradient statistics of the training text.")
    return [statistics.squares[name].to(weight.device) for name, weight in network.named_parameters()]


def _state_shapes(state: State) -> list[tuple[str, torch.Size]]:
    return [(name, tensor.shape) for name, tensor in pytree.flatten(state, "state")[0].items()]


# ------------------------------------------------------------------------------------------------ settings


def to_equation_units(dynamic: DynamicSettings, statistics: GradientStatistics | None) -> DynamicSettings:
    """The same settings in the equation's units, with the default ε where none is given.

    The first code used √Σ g² in place of the root of the mean over segments, and a sum over tensors for their mean.
    """
    if not dynamic.legacy_units:
        epsilon = DEFAULTS[dynamic.kind][2] if dynamic.epsilon is None else dynamic.epsilon
        return replace(dynamic, epsilon=epsilon)
    if statistics is None:
        raise invalid("dynamic.legacy_units", True, "needs the gradient statistics of the training text.")
    values = (dynamic.rate, dynamic.lambda_, dynamic.epsilon)
    rate, lambda_, epsilon = (
        default if value is None else value for value, default in zip(values, LEGACY_DEFAULTS, strict=True)
    )
    root = math.sqrt(statistics.segments)
    lambda_ /= len(statistics.squares)
    return replace(dynamic, rate=rate / root, lambda_=lambda_, epsilon=epsilon / root, legacy_units=False)


def search_settings(
    network: CausalNetwork,
    ids: np.ndarray,
    dynamic: DynamicSettings,
    statistics: GradientStatistics | None,
    progress: Progress = ignore_progress,
) -> DynamicSettings:
    """Find what is None on this text: first the rate, then λ, each doubled or halved while that helps."""
    settings = to_equation_units(dynamic, statistics)
    default_rate, default_lambda, _ = DEFAULTS[settings.kind]
    rate = default_rate if settings.rate is None else settings.rate
    lambda_ = default_lambda if settings.lambda_ is None else settings.lambda_
    ids = ids[: settings.search]
    num_tried = 0

    def cost(rate: float, lambda_: float) -> float:
        nonlocal num_tried
        num_tried += 1
        progress(num_tried, None)
        evaluator = DynamicEvaluator(network, replace(settings, rate=rate, lambda_=lambda_), statistics)
        total = float(dynamic_nats(evaluator, ids).sum())
        return math.inf if math.isnan(total) else total

    if len(ids) and settings.rate is None:
        rate = _search_doubling(lambda value: cost(value, lambda_), rate)
    if len(ids) and settings.lambda_ is None:
        lambda_ = _search_doubling(lambda value: cost(rate, value), lambda_)
    return replace(settings, rate=rate, lambda_=lambda_)


def _search_doubling(cost: Callable[[float], float], start: float, max_tries: int = 8) -> float:
    """The cheapest of start · 2^k, going up or down from the start until it gets worse."""
    costs = {start: cost(start)}
    for factor in (2.0, 0.5):
        value = start
        while len(costs) < max_tries:
            costs[value * factor] = cost(value * factor)
            if not costs[value * factor] < costs[value]:
                break
            value *= factor
        if value != start:
            break
    return min(costs, key=costs.__getitem__)
