"""Which views of the lens a model has, without computing anything."""

from __future__ import annotations

from nextword.lm.base import TextModel

VIEWS = {  # name → the function that makes the view
    "surprisal": "explain_text",
    "attention": "read_attention",
    "layers": "predict_by_layer",
    "gates": "trace_gates",
    "gradient": "trace_gradient",
    "saliency": "attribute_word",
    "neighbors": "find_neighbors",
    "projection": "project_vectors",
    "beam": "trace_beam",
    "decoding": "show_decoding",
}


def list_views(model: TextModel) -> tuple[str, ...]:
    """The names, among VIEWS, of what this model can show."""
    network, can = model.network, model.can
    predicts = bool(can & {"next", "fill"}) or model.is_seq2seq
    has = {
        "surprisal": "score" in can,
        "attention": network.is_transformer or network.has_attention,
        "layers": network.is_transformer and "score" in can,
        "gates": network.is_recurrent,
        "gradient": network.is_recurrent and "next" in can,
        "saliency": predicts and network.has_hidden_states and network.has_output_layer and not network.is_quantized,
        "neighbors": "embed" in can,
        "projection": "embed" in can,
        "beam": "generate" in can,
        "decoding": "generate" in can,
    }
    return tuple(name for name in VIEWS if has[name])
