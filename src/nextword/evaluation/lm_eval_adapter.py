"""A run as a model of EleutherAI's lm-evaluation-harness, with its thousands of tasks.

    lm_eval --model nextword --model_args path=runs/gpt2-small --tasks mine --include_path local

The harness finds this class through the entry point `lm_eval.models`, which releases after 0.4.13 read. Up to 0.4.13
the harness knows only its own models; then the same command line is

    python -m nextword.evaluation.lm_eval_adapter --model nextword --model_args path=runs/gpt2-small --tasks …

In Python: `simple_evaluate(model=NextwordLM("runs/gpt2-small"), …)`. This file downloads nothing; a task downloads its
data unless it names local files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nextword.core.errors import InvalidSetting, MissingDependency
from nextword.core.types import Decoding, Greedy, Sample, Stop
from nextword.lm.base import TextModel
from nextword.lm.completion import generate_texts, score_completions

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import model_registry
except ImportError as error:
    raise MissingDependency(
        f"The lm-evaluation-harness is not installed ({error}): pip install lm_eval.", package="lm_eval"
    ) from None

NAME = "nextword"
DEFAULT_LENGTH = 256  # tokens to generate if the task sets no limit
LENGTH_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens")  # the names that tasks use for the limit


class NextwordLM(LM):
    """The harness's three request types, answered by a run folder or by any text-level model of nextword."""

    def __init__(
        self,
        path: str | Path = "",
        device: str | None = None,
        lm: TextModel | None = None,
        batch_size: object = None,  # accepted because the harness passes it; batches are made by length
        max_batch_size: object = None,
    ) -> None:
        super().__init__()
        if lm is None:
            if not path:
                raise InvalidSetting("No run given. Use --model_args path=runs/NAME.", key="path", value=path)
            from nextword.lm.loading import load

            lm = load(path, _choose_device(device))
        self.lm = lm

    @classmethod
    def create_from_arg_obj(cls, arg_dict: Any, additional_config: Any = None) -> NextwordLM:
        """Values from --model_args override the harness's defaults."""
        defaults = {key: value for key, value in (additional_config or {}).items() if value is not None}
        return cls(**{**defaults, **arg_dict})

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """ln p of each continuation given its context, and whether greedy decoding would produce it."""
        contexts, continuations = zip(*(request.args for request in requests), strict=True) if requests else ((), ())
        results = score_completions(self.lm, continuations, contexts, greedy=True)
        answers = [(-result.nats, bool(result.greedy)) for result in results]
        self._cache("loglikelihood", requests, answers)
        return answers

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """ln p of whole texts, each from a fresh start. Beyond the first window a token sees at least half a window."""
        answers = [-score.nats for score in self.lm.score_many([request.args[0] for request in requests])]
        self._cache("loglikelihood_rolling", requests, answers)
        return answers

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """The continuation of each context, up to and without the first of the strings in `until`."""
        groups: dict[str, list[int]] = {}  # requests with the same options are generated in one batch
        for i, request in enumerate(requests):
            groups.setdefault(repr(sorted(request.args[1].items())), []).append(i)
        answers = [""] * len(requests)
        for group in groups.values():
            decoding, stop = _parse_options(requests[group[0]].args[1])
            prompts = [requests[i].args[0] for i in group]
            for i, text in zip(group, generate_texts(self.lm, prompts, decoding, stop), strict=True):
                answers[i] = text
        self._cache("generate_until", requests, answers)
        return answers

    def _cache(self, method: str, requests: Sequence[Any], answers: Sequence[Any]) -> None:
        """For --use_cache: an interrupted evaluation resumes where it stopped."""
        for request, answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial(method, request.args, answer)

    @property
    def tokenizer_name(self) -> str:
        return f"{NAME}-{self.lm.tokenizer.kind}-{len(self.lm.tokenizer)}"


def _choose_device(device: str | None) -> str:
    """The harness defaults to cuda:0, which must not be an error on a machine without a GPU."""
    import torch

    return "auto" if not device or (device.startswith("cuda") and not torch.cuda.is_available()) else device


def _parse_options(generation_kwargs: Mapping[str, Any]) -> tuple[Decoding, Stop]:
    """The harness's generation options as ours; an unknown option is an error, not ignored."""
    options = dict(generation_kwargs)
    until = options.pop("until", None) or ()
    strings = (until,) if isinstance(until, str) else tuple(until)
    lengths = [int(options.pop(key)) for key in LENGTH_KEYS if key in options]
    temperature = float(options.pop("temperature", 0.0) or 0.0)
    is_sampling = bool(options.pop("do_sample", temperature > 0)) and temperature > 0
    top_k, top_p = int(options.pop("top_k", 0) or 0), float(options.pop("top_p", 1.0) or 1.0)
    seed = options.pop("seed", None)
    if options:
        raise InvalidSetting(
            f"Unknown generation_kwargs: {', '.join(sorted(options))}. nextword knows until, max_gen_toks, do_sample, "
            "temperature, top_k, top_p and seed.",
            key=min(options),
            value=options[min(options)],
        )
    stop = Stop(min(lengths, default=DEFAULT_LENGTH), tuple(s for s in strings if s))
    return (Sample(temperature, top_k, top_p, seed) if is_sampling else Greedy()), stop


def register() -> None:
    """Register the model with the harness of this process, unless the entry point has done so."""
    import lm_eval.models  # noqa: F401 (fills the registry with the harness's own models first)

    if NAME not in model_registry:
        model_registry.register(NAME, target=NextwordLM)


def main() -> None:
    """The harness's own command line, with nextword among its models."""
    from lm_eval.__main__ import cli_evaluate

    register()
    cli_evaluate()


if __name__ == "__main__":
    # As a script this file is `__main__`; register the class of the importable module instead.
    from nextword.evaluation.lm_eval_adapter import main as importable_main

    importable_main()
