"""Networks: one paper, one file. The table is explicit, so a reader finds a paper's code by its slug.

What a run can be asked for, told from its class and its settings, before any weights are read.

It is what `can` says of a model that is loaded (language_model.py, conditional.py, infilling, vectored.py); a contract
test holds the two together. Lists of papers and cards of runs are written by it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.protocols import Autoregressive, Encoder, Infilling

MODELS = {
    "ngram": "nextword.models.ngram:NGram",
    "nplm": "nextword.models.nplm:NPLM",
    "rnn": "nextword.models.rnn:RNN",
    "gru": "nextword.models.rnn:GRU",
    "lstm": "nextword.models.rnn:LSTM",
    "awd-lstm": "nextword.models.awd_lstm:AWDLSTM",
    "ulmfit": "nextword.models.awd_lstm:AWDLSTM",
    "elmo": "nextword.models.elmo:ELMo",
    "gpt1": "nextword.models.gpt1:GPT1",
    "gpt2": "nextword.models.gpt2:GPT2",
    "gpt3": "nextword.models.gpt3:GPT3",
    "bert": "nextword.models.bert:BERT",
    "roberta": "nextword.models.roberta:RoBERTa",
    "albert": "nextword.models.albert:ALBERT",
    "xlnet": "nextword.models.xlnet:XLNet",
    "seq2seq": "nextword.models.seq2seq:Seq2Seq",
    "cove": "nextword.models.cove:CoVe",
    "tagger": "nextword.models.bilstm_crf:Tagger",
    "cvt": "nextword.models.cvt:CVT",
    "cvt-seq2seq": "nextword.models.cvt:CVTSeq2Seq",
    "t5": "nextword.models.t5:T5",
    "glm": "nextword.models.glm:GLM",
    "word2vec": "nextword.models.word2vec:Word2Vec",
    "glove": "nextword.models.glove:GloVe",
}


# As their papers write them, where that is not the slug in capitals
TITLES = {
    "ngram": "n-gram",
    "gpt1": "GPT",
    "gpt2": "GPT-2",
    "gpt3": "GPT-3",
    "roberta": "RoBERTa",
    "xlnet": "XLNet",
    "seq2seq": "seq2seq",
    "cove": "CoVe",
    "tagger": "BiLSTM-CRF",
    "ulmfit": "ULMFiT",
    "elmo": "ELMo",
    "word2vec": "word2vec",
    "glove": "GloVe",
    "cvt-seq2seq": "CVT for seq2seq",
}


def title(slug: str) -> str:
    return TITLES.get(slug, slug.upper())


def model_class(slug: str) -> Any:
    """The class behind a slug. It has a `Config`, is built as `Class(config, vocabulary)`, saves and loads itself."""
    if slug not in MODELS:
        import difflib

        near = difflib.get_close_matches(slug, MODELS, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise NextwordError(f"No model is called '{slug}'.{hint} There are: {', '.join(MODELS)}.")
    module, name = MODELS[slug].split(":")
    return getattr(importlib.import_module(module), name)


def abilities(cls: Any, settings: Mapping[str, Any]) -> frozenset[str]:
    """Of "score", "next", "fill", "generate" and "embed"; `settings` are those of [model]."""
    encodes, is_bidirectional = _has(cls, Encoder), cls.is_bidirectional
    if cls.is_conditional:
        return frozenset({"score", "generate", *(["embed"] if is_bidirectional else ())})
    found = {"embed"} if encodes else set()
    if encodes and _has(cls, Infilling):
        found.add("fill")
    if _has(cls, Autoregressive):
        found |= set() if silent(settings) else {"score"} if settings.get("backward") else {"score", "next", "generate"}
    elif "fill" in found:
        found |= {"score", "next"}
    return frozenset(found)


def silent(settings: Mapping[str, Any]) -> bool:
    """Whether its weights came without an output layer: it gives vectors, and predicts nothing."""
    return (settings.get("readout") or {}).get("kind") == "none"


def _has(cls: Any, protocol: Any) -> bool:
    methods = [name for name in vars(protocol) if not name.startswith("_") and callable(getattr(protocol, name, None))]
    return all(callable(getattr(cls, name, None)) for name in methods)
