"""CLAIMS: one file per claim of the literature. `nextword look NAME` runs it: numbers, a figure, a verdict.

Adding a study is a file with CLAIM, measure, judge and draw (the contract is in study.py) and a line in this table.
"""

from __future__ import annotations

import importlib
from typing import cast

from nextword.core.errors import NextwordError, did_you_mean
from nextword.studies._study import Study

STUDIES = {
    "ngram-sparsity": "nextword.studies.ngram_sparsity",
    "parameter-growth": "nextword.studies.parameter_growth",
    "initialisation": "nextword.studies.initialization",
    "vanishing-gradients": "nextword.studies.vanishing_gradients",
    "sgd-for-lms": "nextword.studies.sgd_for_lms",
    "bptt": "nextword.studies.bptt",
    "awd-ablation": "nextword.studies.awd_ablation",
    "fill-in": "nextword.studies.masked_vs_causal",
    "sentence-pairs": "nextword.studies.nsp_vs_sop",
    "sharing": "nextword.studies.layer_sharing",
    "masks": "nextword.studies.dynamic_masking",
    "mask-mismatch": "nextword.studies.mask_mismatch",
    "probing": "nextword.studies.probing",
    "reversed-source": "nextword.studies.reversed_source",
    "attention-length": "nextword.studies.attention_length",
    "beam-size": "nextword.studies.beam_size",
    "teacher-forcing": "nextword.studies.exposure_bias",
    "span-corruption": "nextword.studies.span_corruption",
    "blanks": "nextword.studies.blank_filling",
    "word-senses": "nextword.studies.word_senses",
    "elmo-mix": "nextword.studies.elmo_layers",
    "ulmfit-parts": "nextword.studies.ulmfit_ablation",
}


def find_study(name: str) -> Study:
    """The module behind a name."""
    if name not in STUDIES:
        raise NextwordError(
            f"No study is called '{name}'.{did_you_mean(name, STUDIES)} There are: {', '.join(STUDIES)}. "
            "`nextword look` lists them with their claims."
        )
    return cast(Study, importlib.import_module(STUDIES[name]))
