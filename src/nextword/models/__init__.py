"""Networks: one paper, one file. The table is explicit, so a reader finds a paper's code by its slug."""

from __future__ import annotations

import importlib
from typing import Any

from nextword.contract_errors import NextwordError

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
    "tagger": "nextword.models.tagger:Tagger",
    "cvt": "nextword.models.cvt:CVT",
    "cvt-seq2seq": "nextword.models.cvt_seq2seq:CVTSeq2Seq",
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


def count_parameters(network: Any) -> int:
    """Numbers that were learnt: weights, or what a model that counts says it has stored."""
    stored = getattr(network, "stored", None)
    return int(stored) if stored is not None else sum(p.numel() for p in network.parameters())
