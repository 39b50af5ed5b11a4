"""All networks, by slug: one paper, one file. `MODELS` is explicit, so that a reader finds a paper's code.

`abilities` tells what a run can do from its class and its settings, before any weights are read. A contract test checks
that it equals `can` of the loaded model (nextword/lm).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nextword.core.errors import UnknownName, did_you_mean
from nextword.core.protocols import Autoregressive, Encoder, Infilling

if TYPE_CHECKING:
    from nextword.models.base import Network

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


# Titles that are not the slug in capitals
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
    """The name of a model as its paper writes it."""
    return TITLES.get(slug, slug.upper())


def model_class(slug: str) -> type[Network]:
    """The class of a slug. Build it as `Class(Class.Config(…), vocabulary)`."""
    if slug not in MODELS:
        raise UnknownName(
            f"There is no model '{slug}'.{did_you_mean(slug, MODELS)} Models: {', '.join(MODELS)}.",
            name=slug,
            known=MODELS,
        )
    module, name = MODELS[slug].split(":")
    cls: type[Network] = vars(importlib.import_module(module))[name]
    return cls


def abilities(cls: type[Network], settings: Mapping[str, Any]) -> frozenset[str]:
    """Some of "score", "next", "fill", "generate" and "embed"; `settings` are those of [model]."""
    encodes = _implements(cls, Encoder)
    if cls.is_conditional:
        return frozenset({"score", "generate", *(["embed"] if cls.is_bidirectional else ())})
    can = {"embed"} if encodes else set()
    if encodes and _implements(cls, Infilling):
        can.add("fill")
    if _implements(cls, Autoregressive):
        if has_output_layer(settings):
            can |= {"score"} if settings.get("backward") else {"score", "next", "generate"}
    elif "fill" in can:
        can |= {"score", "next"}
    return frozenset(can)


def has_output_layer(settings: Mapping[str, Any]) -> bool:
    """False for weights that came without an output layer: they encode text, but predict nothing."""
    return bool((settings.get("readout") or {}).get("kind") != "none")


def _implements(cls: type, protocol: type) -> bool:
    """Whether a class has all methods of a protocol; `issubclass` would also ask for its attributes."""
    methods = [name for name, value in vars(protocol).items() if not name.startswith("_") and callable(value)]
    return all(any(callable(vars(base).get(name)) for base in cls.__mro__) for name in methods)
