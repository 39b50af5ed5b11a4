"""Studies: one file per claim of the literature. `nextword look NAME` runs it and gives numbers, a figure, a verdict.

To add a study, write a module with CLAIM, measure, judge and draw (see `_study.py`), and add a line to STUDIES.
"""

from __future__ import annotations

import importlib
import shlex
import time
from typing import cast

from nextword.core.errors import InvalidSetting, unknown
from nextword.studies._study import Finding, Progress, Settings, Study

STUDIES = {
    "autograd": "nextword.studies.autograd",
    "ngram-sparsity": "nextword.studies.ngram_sparsity",
    "parameter-growth": "nextword.studies.parameter_growth",
    "initialization": "nextword.studies.initialization",
    "vanishing-gradients": "nextword.studies.vanishing_gradients",
    "sgd-for-lms": "nextword.studies.sgd_for_lms",
    "bptt": "nextword.studies.bptt",
    "awd-ablation": "nextword.studies.awd_ablation",
    "masked-vs-causal": "nextword.studies.masked_vs_causal",
    "nsp-vs-sop": "nextword.studies.nsp_vs_sop",
    "layer-sharing": "nextword.studies.layer_sharing",
    "dynamic-masking": "nextword.studies.dynamic_masking",
    "mask-mismatch": "nextword.studies.mask_mismatch",
    "probing": "nextword.studies.probing",
    "reversed-source": "nextword.studies.reversed_source",
    "attention-length": "nextword.studies.attention_length",
    "beam-size": "nextword.studies.beam_size",
    "exposure-bias": "nextword.studies.exposure_bias",
    "span-corruption": "nextword.studies.span_corruption",
    "blank-filling": "nextword.studies.blank_filling",
    "word-senses": "nextword.studies.word_senses",
    "elmo-layers": "nextword.studies.elmo_layers",
    "ulmfit-ablation": "nextword.studies.ulmfit_ablation",
}
ACCEPTS_RUN = ("probing", "beam-size", "word-senses", "elmo-layers")  # with --run they examine a trained run


def find_study(name: str) -> Study:
    """Import the module of a study."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES, hint="`nextword look` lists all studies.")
    return cast(Study, importlib.import_module(STUDIES[name]))


def run_study(name: str, settings: Settings, progress: Progress = lambda done, total: None) -> Finding:
    """Measure, then judge. All randomness in a study comes from the seeds of the settings."""
    study = find_study(name)
    if settings.run and name not in ACCEPTS_RUN:
        raise InvalidSetting(
            f"The study {name} trains its own networks and accepts no run. Omit --run.", key="run", value=settings.run
        )
    start = time.perf_counter()
    tables, conditions = study.measure(settings, progress)
    conditions = {
        **conditions,
        "seeds": list(settings.seeds),
        "quick": settings.quick,
        "command": command_line(name, settings),
        "seconds": round(time.perf_counter() - start, 1),
    }
    return Finding(name, study.CLAIM, tables, tuple(study.judge(tables)), conditions)


def command_line(name: str, settings: Settings) -> str:
    """The command that repeats the measurement."""
    words = ["nextword look", name, f"--num-seeds {len(settings.seeds)} --seed {settings.seeds[0]}"]
    words += ["--quick"] * settings.quick
    words += [
        f"--{key} {shlex.quote(value)}" for key, value in (("data", settings.data), ("run", settings.run)) if value
    ]
    return " ".join(words)
