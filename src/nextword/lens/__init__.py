"""Look inside a model: what it expects, what it attends to, what its layers and gates do, which words it goes by.

    explain_text       surprisal, rank, entropy and alternatives of every token        every model that scores texts
    read_attention     attention weights by layer and head                             Transformers, seq2seq
    predict_by_layer   what each layer would predict (logit lens)                      Transformers
    trace_gates        gates, cells and hidden states over time                        RNN, GRU, LSTM, AWD-LSTM, ELMo
    trace_gradient     how far the gradient of a word reaches back in time             the same
    trace_gradients    the same for every word of a text                               the same
    attribute_word     what a prediction owes to each word of the text (saliency)      neural networks
    find_neighbors     the nearest words or texts                                      models that embed
    project_vectors    words or texts as points on a plane                             models that embed
    trace_beam         a beam search with what it pruned                               models that generate
    attribute_neurons  which feed-forward units hold a fact (knowledge neurons)        BERT, RoBERTa, ALBERT, GPT
    show_decoding      the next token before and after temperature, top-k, top-p …     the same

    lm = nextword.load("runs/mine")
    nextword.lens.explain_text(lm, "the cat sat on the mat")       # a notebook shows it as a colored text

Each returns a frozen dataclass: `repr` is one line, `_repr_html_` a chart, `as_dict()` plain values with the names of
its fields, which are also those of `--json` and of the server's routes, and `page()` one HTML file. What a model cannot
show raises `Unsupported` with the reason and what to use instead; `list_views(lm)` says what it can show.
"""

from nextword.lens.attention import Attention, AttentionMap, read_attention
from nextword.lens.beam_tree import BeamNode, BeamTree, trace_beam
from nextword.lens.decoding import DecodingEffect, DecodingStage, TokenChance, show_decoding, show_decoding_after
from nextword.lens.gradient_reach import GradientReach, GradientReaches, LayerReach, trace_gradient, trace_gradients
from nextword.lens.knowledge_neurons import (
    Fact,
    KnowledgeNeurons,
    Neuron,
    NeuronAttributions,
    attribute_neurons,
    change_neurons,
    erase_neurons,
    find_knowledge_neurons,
    find_relation,
    save_edited,
    update_fact,
)
from nextword.lens.logit_lens import LayerPrediction, LayerPredictions, Position, predict_by_layer
from nextword.lens.recurrent_traces import GateTraces, LayerTrace, trace_gates
from nextword.lens.result import LensResult, Token
from nextword.lens.saliency import Attributions, TokenAttribution, attribute_word
from nextword.lens.surprisal import Alternative, TextExplanation, TokenExplanation, explain_text
from nextword.lens.vectors import Neighbor, Neighbors, ProjectedPoint, Projection, find_neighbors, project_vectors
from nextword.lens.views import VIEWS, list_views

__all__ = [
    "VIEWS",
    "Alternative",
    "Attention",
    "AttentionMap",
    "Attributions",
    "BeamNode",
    "BeamTree",
    "DecodingEffect",
    "DecodingStage",
    "Fact",
    "GateTraces",
    "GradientReach",
    "GradientReaches",
    "KnowledgeNeurons",
    "LayerPrediction",
    "LayerPredictions",
    "LayerReach",
    "LayerTrace",
    "LensResult",
    "Neighbor",
    "Neighbors",
    "Neuron",
    "NeuronAttributions",
    "Position",
    "ProjectedPoint",
    "Projection",
    "TextExplanation",
    "Token",
    "TokenAttribution",
    "TokenChance",
    "TokenExplanation",
    "attribute_neurons",
    "attribute_word",
    "change_neurons",
    "erase_neurons",
    "explain_text",
    "find_knowledge_neurons",
    "find_neighbors",
    "find_relation",
    "list_views",
    "predict_by_layer",
    "project_vectors",
    "read_attention",
    "save_edited",
    "show_decoding",
    "show_decoding_after",
    "trace_beam",
    "trace_gates",
    "trace_gradient",
    "trace_gradients",
    "update_fact",
]
