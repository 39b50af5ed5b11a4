"""Dynamic evaluation: a network that goes on learning from the text it is tested on, each token paid for before it is
learnt from.

Krause, Kahembwe, Murray & Renals, "Dynamic Evaluation of Neural Sequence Models" (2018). The text is read in short
segments, and after each one every weight moves:

    θ ← θ − η g / (RMS_g + ε) + λ (θ_0 − θ) RMS_norm            eq. (7) to (9), λ · RMS_norm at most 1

g is the gradient of the segment's mean cost; RMS_g the root of the mean squared gradient over the training text, found
once; RMS_norm is RMS_g over its mean. A weight that the training text pulled at hard moves less per gradient and is
drawn back faster to what it was, θ_0. Kind "sgd" has RMS_g + ε = RMS_norm = 1 and needs no training text.

The authors' first code had other units (`--oldhyper`): published settings such as η 0.002, λ 0.02, ε 0.001 are in
those, and `old` turns them into the equation's. The run's own network is never touched: a copy learns.

Ways to evaluate that adapt to the text as it goes by: the neural cache, dynamic evaluation, or the one on the other.

Settings come as words, `cache.theta=0.66`, and what they leave open is found on validation text. The result carries the
method's name and all of its settings: no such number is to be taken for the plain model's.
"""

from __future__ import annotations

import copy
import math
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nextword.core import pytree as nest
from nextword.core.errors import NextwordError, Unsupported, did_you_mean
from nextword.core.types import Inputs, State
from nextword.evaluation import neural_cache as pointer
from nextword.evaluation.neural_cache import BLOCK, SEARCHED, Cache, Part, Progress, check_network
from nextword.kernels.graph_capture import recorded
from nextword.layers.output.softmax import Linear
from nextword.run_folder import RunFolder, full_disk_is_no_loss, replace_file

FILE = "gradients.safetensors"
KINDS = ("rms", "sgd")
ROWS = 100  # of the training text, side by side, for statistics
# What there is where nothing is given: η, λ, ε in the equation's units, as the authors' code has them now
START = {"rms": (5e-5, 0.002, 2e-5), "sgd": (0.1, 0.002, 0.0)}
OLD = (0.002, 0.02, 0.001)  # Penn Treebank and WikiText-2, in the first code's units


@dataclass(frozen=True)
class Dynamic:
    """None: found on validation text (rate and λ), or the default (ε)."""

    rate: float | None = None
    lambda_: float | None = None
    epsilon: float | None = None
    length: int = 5  # tokens in a segment
    kind: str = "rms"
    old: bool = False  # rate, λ and ε are in the units of the authors' first code
    segments: int = 5000  # of the training text, at most, for statistics
    search: int = 10_000  # validation tokens to find rate and λ on; 0: the defaults, unsearched
    fresh: bool = False  # collect the statistics anew

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise NextwordError(f"dynamic.kind = {self.kind!r}; expected {' or '.join(KINDS)}.")
        if self.old and self.kind != "rms":
            raise NextwordError("dynamic.old goes with dynamic.kind = rms: the units of its published settings.")
        for name in ("rate", "lambda_", "epsilon"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise NextwordError(f"dynamic.{name.strip('_')} = {value}: it must be zero or more.")
        for name, least in (("length", 1), ("segments", 1), ("search", 0)):
            if getattr(self, name) < least:
                raise NextwordError(f"dynamic.{name} = {getattr(self, name)}: it must be at least {least}.")


@dataclass(frozen=True)
class Statistics:
    """Mean squared gradients over the training text, one tensor a weight, and how many segments they are a mean of."""

    squares: Mapping[str, Tensor]
    segments: int
    rows: int
    length: int


# ------------------------------------------------------------------------------------------------ statistics


def collect(
    network: Any, ids: np.ndarray, length: int = 5, segments: int = 5000, progress: Progress | None = None
) -> Statistics:
    """One pass over the training text in rows, without dropout; each segment's gradient is of its mean cost."""
    if len(ids) < 2:
        raise NextwordError("The training text has no two tokens to collect gradient statistics from.")
    rows = max(1, min(ROWS, len(ids) // (length + 1)))
    across = len(ids) // rows
    length = min(length, across - 1)
    segments = min(segments, (across - 1) // length)
    text = torch.from_numpy(ids[: rows * across].reshape(rows, across).astype(np.int64))
    network = _learner(network)
    weights = dict(network.named_parameters())
    squares = {name: torch.zeros_like(weight, requires_grad=False) for name, weight in weights.items()}
    first, state = network.start(rows)
    for i in range(segments):
        part = text[:, i * length : (i + 1) * length + 1].to(first.device)
        _, _, grads, state = _gradients(network, list(weights.values()), part, state)
        for total, g in zip(squares.values(), grads, strict=True):
            if g is not None:
                total.addcmul_(g, g)
        if progress and i % 20 == 19:
            progress(i + 1, segments)
    means = {name: total / segments for name, total in squares.items()}
    return Statistics(means, segments, rows, length)


def statistics(
    run: RunFolder, network: Any, train: Callable[[], np.ndarray], dynamic: Dynamic, progress: Progress | None = None
) -> Statistics:
    """Those in the run's folder, or new ones, which then lie there; `train` gives the training text's ids."""
    weights = str(sorted(run.manifest.get("files", {}).items()))  # checksums: of other weights they are no statistics
    wanted = {"asked": str(dynamic.segments), "length": str(dynamic.length), "of": weights}
    path = run.path / FILE
    if not dynamic.fresh and (kept := _kept(path, wanted, network)):
        return kept
    new = collect(network, train(), dynamic.length, dynamic.segments, progress)
    said = wanted | {"segments": str(new.segments), "rows": str(new.rows), "took": str(new.length)}
    with full_disk_is_no_loss(run.path), tempfile.TemporaryDirectory(dir=run.path, prefix=".new-") as temporary:
        written = Path(temporary) / FILE
        save_file({name: t.contiguous() for name, t in new.squares.items()}, str(written), said)
        written.chmod(0o644)
        replace_file(written, path)
    return new


def _kept(path: Path, wanted: Mapping[str, str], network: Any) -> Statistics | None:
    """What the file holds, if it is whole and belongs to these weights and settings."""
    shapes = {name: weight.shape for name, weight in network.named_parameters()}
    device = next(network.parameters()).device
    try:
        with safe_open(str(path), framework="pt", device=str(device)) as file:
            said = file.metadata() or {}
            if any(said.get(key) != value for key, value in wanted.items()) or set(file.keys()) != set(shapes):
                return None
            squares = {name: file.get_tensor(name) for name in shapes}
    except (OSError, SafetensorError):  # absent, cut or no such file at all
        return None
    if any(squares[name].shape != shape for name, shape in shapes.items()):
        return None
    return Statistics(squares, int(said["segments"]), int(said["rows"]), int(said["took"]))


# ------------------------------------------------------------------------------------------------ adaptation


class Adapting:
    """A copy of a network that learns from each segment right after reading it. Every `read` begins at the trained
    weights again.
    """

    def __init__(self, network: Any, dynamic: Dynamic, gradients: Statistics | None = None) -> None:
        dynamic = in_units(dynamic, gradients)
        rate, lambda_, epsilon = dynamic.rate, dynamic.lambda_, dynamic.epsilon
        if rate is None or lambda_ is None or epsilon is None:
            raise NextwordError(f"{dynamic} leaves settings open: find them with `found` first.")
        self.length, self.rate = dynamic.length, rate
        self.origin = [p.detach() for p in network.parameters()]
        self.network = _learner(network)
        self.weights = list(self.network.parameters())
        if dynamic.kind == "sgd":
            self.divisors = [torch.ones((), device=w.device) for w in self.weights]
            self.pulls = [torch.full((), min(lambda_, 1.0), device=w.device) for w in self.weights]
        else:
            roots = [square.sqrt() for square in _squares(network, gradients)]
            mean = torch.stack([root.mean() for root in roots]).mean().clamp(min=1e-30)  # of tensors, not of numbers
            self.divisors = [(root + epsilon).clamp(min=1e-30) for root in roots]
            self.pulls = [(lambda_ / mean * root).clamp(max=1.0) for root in roots]  # above 1 it would overshoot

    def read(self, ids: np.ndarray, progress: Progress | None = None) -> Iterator[Part]:
        """A text from its beginning, in blocks of whole segments, as it was before each was learnt from."""
        first, state = self.network.start(1)
        text = torch.cat([first, torch.from_numpy(ids.astype(np.int64)).to(first.device)])
        # other readouts may ask the GPU which words there are, and wait for it: nothing that can be recorded
        recordable = first.is_cuda and isinstance(self.network.readout, Linear) and len(ids) > 20 * self.length
        step = self._recorded(state) if recordable else self._step
        with torch.no_grad():
            for weight, origin in zip(self.weights, self.origin, strict=True):
                weight.copy_(origin)
        pending: list[Part] = []
        for at in range(0, len(ids), self.length):
            segment = text[at : at + self.length + 1].unsqueeze(0)
            whole = segment.shape[1] == self.length + 1
            h, nats, state = (step if whole else self._step)(segment, state)
            pending.append(Part(h, segment[0, 1:], nats))
            end = at + segment.shape[1] - 1
            if len(pending) * self.length >= BLOCK or end == len(ids):
                yield Part(*(torch.cat(parts) for parts in zip(*pending, strict=True)))
                pending = []
                if progress:
                    progress(end, len(ids))

    def _step(self, segment: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        h, nats, grads, state = _gradients(self.network, self.weights, segment, state)
        self._learn(grads)
        return h, nats, state

    @torch.no_grad()
    def _learn(self, grads: tuple[Tensor | None, ...]) -> None:
        used = [i for i, g in enumerate(grads) if g is not None]
        weights: Any = [self.weights[i] for i in used]
        moves: Any = torch._foreach_div([g for g in grads if g is not None], [self.divisors[i] for i in used])
        back: Any = torch._foreach_sub([self.origin[i] for i in used], weights)
        torch._foreach_mul_(back, [self.pulls[i] for i in used])
        torch._foreach_add_(weights, moves, alpha=-self.rate)
        torch._foreach_add_(weights, back)

    def _recorded(self, state: State) -> Callable[[Tensor, State], tuple[Tensor, Tensor, State]]:
        """`_step` as one graph, so that the GPU does not wait for Python between its hundreds of small kernels."""
        place = torch.zeros(1, self.length + 1, dtype=torch.long, device=self.weights[0].device)
        kept = nest.clone(state)
        shapes = _shapes(state)
        stream = torch.cuda.Stream(place.device)
        stream.wait_stream(torch.cuda.current_stream(place.device))
        rate, self.rate = self.rate, 0.0  # a rehearsal, which makes every library ready and moves no weight
        with torch.cuda.stream(stream):
            for _ in range(3):
                after = self._step(place, state)[2]
        self.rate = rate
        torch.cuda.current_stream(place.device).wait_stream(stream)
        if _shapes(after) != shapes or not shapes:  # a state that grows has no fixed place
            return self._step
        with recorded(stream=stream) as graph:
            h, nats, after = self._step(place, kept)
            nest.copy(kept, after)

        def replay(segment: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
            if state is not kept:
                nest.copy(kept, state)
            place.copy_(segment)
            graph.replay()
            return h.clone(), nats.clone(), kept

        return replay


def dynamic_nats(adapting: Adapting, ids: np.ndarray, progress: Progress | None = None) -> np.ndarray:
    """−log p of every token, as the network had it just before it learnt from the token's segment."""
    parts = [part.nats.double().cpu().numpy() for part in adapting.read(ids, progress)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _gradients(
    network: Any, weights: Any, ids: Tensor, state: State
) -> tuple[Tensor, Tensor, tuple[Tensor | None, ...], State]:
    """States, costs, gradients of the mean cost, and the state after (B, T + 1) ids."""
    # cuDNN's recurrent kernels give no gradient outside training, with its dropout; torch's own do
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        layers, state = network.hidden(Inputs(ids[:, :-1]), nest.detach(state))
        h = layers[-1].reshape(-1, layers[-1].shape[-1])
        nats = network.readout.nll(h, ids[:, 1:].reshape(-1))
        grads = torch.autograd.grad(nats.mean(), weights, allow_unused=True)
    return h.detach(), nats.detach(), grads, nest.detach(state)


def _learner(network: Any) -> Any:
    """A copy to differentiate, without dropout."""
    if getattr(network.config, "bits", 0):
        raise Unsupported(
            "Weights in eight bits are for reading and cannot learn. Evaluate the run that they came of, or leave "
            "--dynamic out."
        )
    return copy.deepcopy(network).eval().requires_grad_(True)


def _squares(network: Any, gradients: Statistics | None) -> list[Tensor]:
    if gradients is None:
        raise NextwordError("dynamic.kind = rms needs the gradient statistics of the training text; see `statistics`.")
    return [gradients.squares[name].to(weight.device) for name, weight in network.named_parameters()]


def _shapes(state: State) -> list[tuple[str, torch.Size]]:
    return [(name, tensor.shape) for name, tensor in nest.flatten(state, "state")[0].items()]


# ------------------------------------------------------------------------------------------------ settings


def in_units(dynamic: Dynamic, gradients: Statistics | None) -> Dynamic:
    """The same settings in the equation's units, with the default ε where none is given.

    The first code had √Σ g² in place of the root of the mean over segments, and a sum over tensors for their mean.
    """
    if not dynamic.old:
        epsilon = START[dynamic.kind][2] if dynamic.epsilon is None else dynamic.epsilon
        return replace(dynamic, epsilon=epsilon)
    if gradients is None:
        raise NextwordError("dynamic.old needs the gradient statistics of the training text; see `statistics`.")
    given = (dynamic.rate, dynamic.lambda_, dynamic.epsilon)
    rate, lambda_, epsilon = (old if value is None else value for value, old in zip(given, OLD, strict=True))
    root = math.sqrt(gradients.segments)
    return replace(
        dynamic, rate=rate / root, lambda_=lambda_ / len(gradients.squares), epsilon=epsilon / root, old=False
    )


def search_settings(
    network: Any, ids: np.ndarray, dynamic: Dynamic, gradients: Statistics | None, progress: Progress | None = None
) -> Dynamic:
    """What is left open, set: the rate first and then λ, each doubled or halved for as long as that helps this text."""
    given = in_units(dynamic, gradients)
    start = START[given.kind]
    rate = start[0] if given.rate is None else given.rate
    lambda_ = start[1] if given.lambda_ is None else given.lambda_
    ids = ids[: given.search]
    tried = 0

    def cost(rate: float, lambda_: float) -> float:
        nonlocal tried
        tried += 1
        if progress:
            progress(tried, None)
        adapting = Adapting(network, replace(given, rate=rate, lambda_=lambda_), gradients)
        total = float(dynamic_nats(adapting, ids).sum())
        return math.inf if math.isnan(total) else total

    if len(ids) and given.rate is None:
        rate = _climbed(lambda value: cost(value, lambda_), rate)
    if len(ids) and given.lambda_ is None:
        lambda_ = _climbed(lambda value: cost(rate, value), lambda_)
    return replace(given, rate=rate, lambda_=lambda_)


def _climbed(cost: Callable[[float], float], start: float, most: int = 8) -> float:
    """The least costly of start · 2^k, going up or down from the start until it gets worse."""
    costs = {start: cost(start)}
    for factor in (2.0, 0.5):
        here = start
        while len(costs) < most:
            costs[here * factor] = cost(here * factor)
            if not costs[here * factor] < costs[here]:
                break
            here *= factor
        if here != start:
            break
    return min(costs, key=costs.__getitem__)


SEARCHED_SLOWLY = 50_000  # validation tokens for the cache's settings, where reading them means learning
SETTINGS: dict[str, Any] = {"cache": Cache, "dynamic": Dynamic}
UNUSED = ("segments", "old", "fresh", "search")  # how numbers were come by, not what the evaluation is


@dataclass(frozen=True)
class Texts:
    """What a method may need to read besides the text that it scores, opened when it does."""

    train: Callable[[], np.ndarray]  # the run's own training text
    valid: Callable[[], np.ndarray]
    name: str  # of the validation text: "ptb valid"


@dataclass
class Method:
    """A method with all its settings, ready to score a text."""

    network: Any
    cache: Cache | None
    adapting: Adapting | None
    facts: dict[str, Any]  # method, settings, found, found_on
    notes: list[str]

    def nats(self, ids: np.ndarray, progress: Progress | None = None) -> np.ndarray:
        """−log p of every token of one long stream, as `stream_nats` gives; the notes then say what was seen."""
        if self.cache is None and self.adapting is not None:
            return dynamic_nats(self.adapting, ids, progress)
        assert self.cache is not None
        assert self.cache.window is not None
        nats, without = pointer.cache_nats(_reading(self.network, self.adapting, ids, progress), self.cache)
        self.facts["without_cache"] = {"nats": float(without.sum())}
        if len(ids):
            perplexity = float(np.exp(without.mean()))
            self.facts["without_cache"]["token_perplexity"] = perplexity
            self.notes.append(f"without the cache, token perplexity is {perplexity:,.2f}")
        if self.cache.window >= len(ids):
            self.notes.append(
                f"the window of {self.cache.window:,} is longer than the text: the cache is over all before"
            )
        return nats

    def context(self, own: int | None) -> int | None:
        """How far back it sees, for a model that by itself sees `own` tokens; None: without bound."""
        if own is None or self.adapting is not None or self.cache is None or self.cache.window is None:
            return None
        return own + self.cache.window


def settings(changes: Sequence[str], cache: bool, dynamic: bool) -> tuple[Cache | None, Dynamic | None]:
    """From words like `cache.theta=0.66` to the settings of the methods that were asked for."""
    asked = {"cache": cache, "dynamic": dynamic}
    values: dict[str, dict[str, Any]] = {name: {} for name, wanted in asked.items() if wanted}
    for change in changes:
        key, equals, text = change.partition("=")
        name, _, field = key.strip().partition(".")
        if not equals or not field or name not in SETTINGS:
            raise NextwordError(f"--set {change}: expected cache.KEY=VALUE or dynamic.KEY=VALUE, as cache.theta=0.66.")
        if name not in values:
            raise NextwordError(f"--set {change} goes with --{name}, which was not asked for.")
        known = {f.name.strip("_"): f for f in fields(SETTINGS[name])}
        if field not in known:
            hint = did_you_mean(field, list(known))
            raise NextwordError(f"--set {change}: {name} has no '{field}'.{hint} It has {', '.join(known)}.")
        values[name][known[field].name] = _value(text.strip(), str(known[field].type), change)
    made = {name: SETTINGS[name](**given) for name, given in values.items()}
    return made.get("cache"), made.get("dynamic")


def _value(text: str, type: str, change: str) -> Any:
    if type == "str":
        return text.strip("\"'")
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        value = None
    whole = isinstance(value, int) and not isinstance(value, bool)
    if type == "bool" and isinstance(value, bool):
        return value
    if type.startswith("int") and whole:
        return value
    if type.startswith("float") and (whole or isinstance(value, float)):
        return float(value)
    wanted = {"b": "true or false", "i": "a whole number", "f": "a number"}[type[0]]
    raise NextwordError(f"--set {change}: expected {wanted}.")


def prepare_method(
    lm: Any,
    run: RunFolder,
    cache: Cache | None,
    dynamic: Dynamic | None,
    texts: Texts,
    watch: Callable[[str], AbstractContextManager[Progress]] = lambda label: nullcontext(_silent),
) -> Method:
    """Find what the settings leave open; inside `watch(label)` is what to tell how far each part of that is."""
    given = {"cache": cache, "dynamic": dynamic}
    name = " + ".join(key for key, value in given.items() if value is not None)
    check_network(lm.network, f"with {'a' if dynamic is None else 'dynamic evaluation or a'} cache")
    adapting, lengths = None, {}
    if dynamic is not None:
        gradients = None
        if dynamic.kind == "rms":
            with watch("gradients of the training text") as progress:
                gradients = statistics(run, lm.network, texts.train, dynamic, progress)
        valid = texts.valid() if _open(dynamic) else np.zeros(0, np.int64)
        lengths["dynamic"] = min(len(valid), dynamic.search)
        with watch("trying rates") as progress:
            dynamic = search_settings(lm.network, valid, dynamic, gradients, progress)
        adapting = Adapting(lm.network, dynamic, gradients)
    if cache is not None and not cache.complete:
        valid = texts.valid()[: SEARCHED if adapting is None else SEARCHED_SLOWLY]
        lengths["cache"] = len(valid)
        with watch("finding the cache's settings") as progress:
            cache = pointer.found(_reading(lm.network, adapting, valid, progress), cache)
    now = {"cache": cache, "dynamic": dynamic}
    found = [f"{key}.{field}" for key, length in lengths.items() if length for field in _left_open(given[key])]
    facts = {
        "method": name,
        "settings": {key: _table(value) for key, value in now.items() if value is not None},
        "found": found,
        "found_on": f"{texts.name} ({_lengths(lengths)})" if found else None,
    }
    return Method(lm.network, cache, adapting, facts, [_said(facts)])


def _silent(done: float, total: float | None) -> None:
    pass


def _reading(network: Any, adapting: Adapting | None, ids: np.ndarray, progress: Any) -> Iterator[Part]:
    return pointer.read(network, ids, progress) if adapting is None else adapting.read(ids, progress)


def _open(dynamic: Dynamic) -> bool:
    """Whether validation text is needed."""
    return bool(dynamic.search) and not dynamic.old and None in (dynamic.rate, dynamic.lambda_)


def _lengths(lengths: dict[str, int]) -> str:
    if len(set(lengths.values())) == 1:
        return f"{max(lengths.values()):,} tokens"
    return ", ".join(f"{name}: {length:,} tokens" for name, length in lengths.items() if length)


def _left_open(given: Any) -> list[str]:
    names = ("lambda_", "theta", "window") if isinstance(given, Cache) else ("rate", "lambda_")
    return [name.strip("_") for name in names if getattr(given, name) is None]


def _table(value: Any) -> dict[str, Any]:
    return {f.name.strip("_"): getattr(value, f.name) for f in fields(value) if f.name not in UNUSED}


def _said(facts: dict[str, Any]) -> str:
    parts = []
    for name, table in facts["settings"].items():
        numbers = ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in table.items()
        )
        parts.append(f"{name}: {numbers}")
    where = f"; {', '.join(facts['found'])} found on {facts['found_on']}" if facts["found"] else ""
    return f"not the plain model, but with {'; '.join(parts)}{where}"
