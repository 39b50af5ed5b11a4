"""A run of nextword as a model of EleutherAI's lm-evaluation-harness, whose tasks are thousands.

    lm_eval --model nextword --model_args path=runs/gpt2-small --tasks mine --include_path local

The harness finds this class by the entry point `lm_eval.models`, which it reads since the release after 0.4.13. With
0.4.13 and before, which know no models but their own, the same command line is

    python -m nextword.evaluation.lm_eval_adapter --model nextword --model_args path=runs/gpt2-small --tasks …

and a program may always do without names: `simple_evaluate(model=NextwordLM("runs/gpt2-small"), …)`. Nothing is fetched
by this file; a task fetches its data unless it names local files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.types import Decoding, Greedy, Sample, Stop
from nextword.lm.completion import likelihoods, written

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import model_registry
except ImportError as problem:
    raise NextwordError(f"The lm-evaluation-harness is not installed ({problem}): pip install lm_eval.") from None

NAME = "nextword"
LENGTH = 256  # tokens written where a task sets no bound
LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens")  # names that tasks have for it


class NextwordLM(LM):
    """The three questions of the harness, put to a run folder, or to any text-level model of nextword."""

    def __init__(
        self,
        path: str | Path = "",
        device: str | None = None,
        lm: Any = None,
        batch_size: Any = None,  # the harness passes these on; batches are made by length here
        max_batch_size: Any = None,
    ) -> None:
        super().__init__()
        if lm is None:
            if not path:
                raise NextwordError("Which run? Give its folder: --model_args path=runs/NAME.")
            from nextword.lm.loading import load

            lm = load(path, _device(device))
        self.lm = lm

    @classmethod
    def create_from_arg_obj(cls, arg_dict: Any, additional_config: Any = None) -> NextwordLM:
        """What stands in --model_args wins over the harness's own defaults of the same name."""
        defaults = {key: value for key, value in (additional_config or {}).items() if value is not None}
        return cls(**{**defaults, **arg_dict})

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """ln p of each continuation after its context, and whether it is what greedy decoding writes."""
        given, texts = zip(*(request.args for request in requests), strict=True) if requests else ((), ())
        found = likelihoods(self.lm, texts, given, greedy=True)
        answers = [(-one.nats, bool(one.greedy)) for one in found]
        self._remember("loglikelihood", requests, answers)
        return answers

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """ln p of whole texts, each from a fresh start. Past its first window a token sees at least half of one."""
        answers = [-score.nats for score in self.lm.score_many([request.args[0] for request in requests])]
        self._remember("loglikelihood_rolling", requests, answers)
        return answers

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What is written after each context, up to the first of the strings in `until`, which is left out."""
        groups: dict[str, list[int]] = {}  # those that are written in the same way go side by side
        for i, request in enumerate(requests):
            groups.setdefault(repr(sorted(request.args[1].items())), []).append(i)
        answers = [""] * len(requests)
        for group in groups.values():
            how, stop = _decoding(requests[group[0]].args[1])
            for i, text in zip(group, written(self.lm, [requests[i].args[0] for i in group], how, stop), strict=True):
                answers[i] = text
        self._remember("generate_until", requests, answers)
        return answers

    def _remember(self, method: str, requests: Sequence[Any], answers: Sequence[Any]) -> None:
        """For --use_cache: an interrupted evaluation goes on where it was."""
        for request, answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial(method, request.args, answer)

    @property
    def tokenizer_name(self) -> str:
        return f"{NAME}-{self.lm.tokenizer.kind}-{len(self.lm.tokenizer)}"


def _device(asked: str | None) -> str:
    """The harness says cuda:0 where nobody has said anything, so that cannot be an error where there is none."""
    import torch

    return "auto" if not asked or (asked.startswith("cuda") and not torch.cuda.is_available()) else asked


def _decoding(wanted: Mapping[str, Any]) -> tuple[Decoding, Stop]:
    """From the harness's words for generation to ours; what has no meaning here is refused, not passed over."""
    options = dict(wanted)
    until = options.pop("until", None) or ()
    strings = (until,) if isinstance(until, str) else tuple(until)
    lengths = [int(options.pop(key)) for key in LENGTHS if key in options]
    temperature = float(options.pop("temperature", 0.0) or 0.0)
    sampled = bool(options.pop("do_sample", temperature > 0)) and temperature > 0
    top_k, top_p = int(options.pop("top_k", 0) or 0), float(options.pop("top_p", 1.0) or 1.0)
    seed = options.pop("seed", None)
    if options:
        raise NextwordError(
            f"The task asks for {', '.join(sorted(options))} in generation_kwargs, which nextword does not know. It "
            "takes until, max_gen_toks, do_sample, temperature, top_k, top_p and seed."
        )
    stop = Stop(min(lengths, default=LENGTH), tuple(s for s in strings if s))
    return (Sample(temperature, top_k, top_p, seed) if sampled else Greedy()), stop


def register() -> None:
    """Make the name known to this process's harness; where an entry point has done so, nothing is to be done."""
    import lm_eval.models  # noqa: F401 (fills the registry, which would otherwise take ours for all there is)

    if NAME not in model_registry:
        model_registry.register(NAME, target=NextwordLM)


def main() -> None:
    """The harness's own command line, with our name in it."""
    from lm_eval.__main__ import cli_evaluate

    register()
    cli_evaluate()


if __name__ == "__main__":
    # run as a script, this file is __main__; the class that is registered is the importable one
    from nextword.evaluation.lm_eval_adapter import run

    run()
