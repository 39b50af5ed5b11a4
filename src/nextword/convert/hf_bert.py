"""BERT, RoBERTa and ALBERT as transformers has them: names of settings and tensors, theirs beside ours.

Theirs has three matrices where ours has one for queries, keys and values. The output matrix of all three is the
embedding's. What else differs:

    BERT     folders of BertForMaskedLM have no pooler and no head for pairs, those of BertModel no head for hidden
             tokens. What is missing is drawn anew, and told
    RoBERTa  positions are counted from the padding's id + 1, so the rows up to there serve no token. A pooler, which
             RobertaModel has, is left behind
    ALBERT   layers lie in groups: one that all layers are, or one for each layer. Ours that share one half of a layer
             alone are written as one for each, the shared half as often as there are layers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.convert.name_map import JOINED, Family, Said, before, behind
from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary
from nextword.tokenizers.base import Marks
from nextword.tokenizers.hf_export import Frame

SETTINGS = {
    "width": ("hidden_size",),
    "layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "inner": ("intermediate_size",),
    "window": ("max_position_embeddings",),
    "dropout": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "epsilon": ("layer_norm_eps",),
}
DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
}
FORMS = {"attending.{}.attention.join": JOINED}
ENTRANCE = {
    "embedding": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
BLOCK: dict[str, str | tuple[str, ...]] = {
    "attending.{}.attention.join": tuple(f"encoder.layer.{{}}.attention.self.{n}" for n in ("query", "key", "value")),
    "attending.{}.attention.out": "encoder.layer.{}.attention.output.dense",
    "attending.{}.norm": "encoder.layer.{}.attention.output.LayerNorm",
    "feeding.{}.wide": "encoder.layer.{}.intermediate.dense",
    "feeding.{}.narrow": "encoder.layer.{}.output.dense",
    "feeding.{}.norm": "encoder.layer.{}.output.LayerNorm",
}
LAYER = "encoder.albert_layer_groups.{}.albert_layers.0."
LIKE_ALBERT: dict[str, str | tuple[str, ...]] = {
    "attending.{}.attention.join": tuple(f"{LAYER}attention.{n}" for n in ("query", "key", "value")),
    "attending.{}.attention.out": f"{LAYER}attention.dense",
    "attending.{}.norm": f"{LAYER}attention.LayerNorm",
    "feeding.{}.wide": f"{LAYER}ffn",
    "feeding.{}.narrow": f"{LAYER}ffn_output",
    "feeding.{}.norm": f"{LAYER}full_layer_layer_norm",
}
HIDDEN, POOLER = "head for hidden tokens (masked LM)", "pooler"
OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # as in folders made of TensorFlow's
BUFFERS = (r"embeddings\.(position_ids|token_type_ids)",)
USE = "nextword embed {} lines.txt --out vectors.npy"


# ---------------------------------------------------------------------------------------------- what they may say


def _bert(settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {
        "hidden_act": ("gelu",),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }


def _albert(settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {
        "hidden_act": ("gelu_new", "gelu_pytorch_tanh", "gelu"),
        "position_embedding_type": ("absolute",),
        "inner_group_num": (1,),
        "num_hidden_groups": (1, settings["layers"]),
    }


def _four_times(settings: dict[str, Any], said: Said, where: str) -> list[str]:
    if settings["inner"] == 4 * settings["width"]:
        settings["inner"] = 0  # which says the same, and is what recipes say
    return []


def _from_padding(settings: dict[str, Any], said: Said, where: str) -> list[str]:
    settings["window"] -= _unused(said, where)
    if settings["window"] < 1:
        raise NextwordError(
            f"{where} says max_position_embeddings = {said['max_position_embeddings']} and pad_token_id = "
            f"{said['pad_token_id']}: positions are counted from behind the latter, so none is left."
        )
    kinds, notes = said["type_vocab_size"], _four_times(settings, said, where)
    if type(kinds) is not int or kinds < 1:
        raise NextwordError(f"{where} says type_vocab_size = {kinds!r}, where a whole number from 1 was expected.")
    if kinds > 1:
        notes.append(
            f"type_vocab_size is {kinds}: the run has the first segment's vector, for roberta knows no others."
        )
    return notes


def _unused(said: Said, where: str = "config.json") -> int:
    """Rows of positions that no token has."""
    pad = said.get("pad_token_id")
    if type(pad) is not int or pad < 0:
        raise NextwordError(f"{where} says pad_token_id = {pad!r}, from which positions are counted. Add its id.")
    return pad + 1


def _in_groups(settings: dict[str, Any], said: Said, where: str) -> list[str]:
    settings["share"] = "all" if settings["share"] == 1 else "none"
    settings["exact"] = said["hidden_act"] == "gelu"
    return _four_times(settings, said, where)


def _padded(said: dict[str, Any], settings: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    said["intermediate_size"] = settings["inner"] or 4 * settings["width"]
    said["pad_token_id"] = Marks.of(vocabulary).pad


def _roberta_said(said: dict[str, Any], settings: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    _padded(said, settings, vocabulary)
    said["max_position_embeddings"] = settings["window"] + _unused(said)
    said["type_vocab_size"] = 1


def _albert_said(said: dict[str, Any], settings: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    _padded(said, settings, vocabulary)
    said["num_hidden_groups"] = 1 if settings["share"] == "all" else settings["layers"]
    said["hidden_act"] = "gelu" if settings["exact"] else "gelu_new"


def _masked(batches: str) -> Any:
    """The phase of a run that was trained elsewhere: what it would be trained on here."""
    return lambda settings: {
        "objective": {"kind": "masked"},
        "batches": {"kind": batches, "rows": 1, "length": settings["window"]},
    }


# ---------------------------------------------------------------------------------------------- the tables


BERT = Family(
    slugs=("bert",),
    model_type="bert",
    architecture="BertForPreTraining",
    settings={**SETTINGS, "segments": ("type_vocab_size",)},
    defaults=DEFAULTS,
    fixed=_bert,
    understood=_four_times,
    spoken=_padded,
    names={
        **ENTRANCE,
        **BLOCK,
        "pooler": "pooler.dense",
        "readout.dense": "cls.predictions.transform.dense",
        "readout.norm": "cls.predictions.transform.LayerNorm",
        "readout.bias": "cls.predictions.bias",
        "next_sentence": "cls.seq_relationship",
    },
    forms=FORMS,
    prefix="bert.",
    outside=("cls.",),
    endings=OLD,
    tied={"cls.predictions.decoder.weight": "embedding.weight", "cls.predictions.decoder.bias": "readout.bias"},
    ignored=BUFFERS,
    heads={"readout": HIDDEN, "pooler": POOLER, "next_sentence": "head for the next sentence"},
    phase=_masked("pairs"),
    frame=Frame("cls A sep", "cls A sep B:1 sep:1"),
    use=USE,
    pipeline="fill-mask",
)
ROBERTA = Family(
    slugs=("roberta",),
    model_type="roberta",
    architecture="RobertaForMaskedLM",
    settings=SETTINGS,
    defaults={**DEFAULTS, "pad_token_id": 1},
    fixed=_bert,
    understood=_from_padding,
    spoken=_roberta_said,
    names={
        **ENTRANCE,
        **BLOCK,
        "readout.dense": "lm_head.dense",
        "readout.norm": "lm_head.layer_norm",
        "readout.bias": "lm_head.bias",
    },
    forms={**FORMS, "positions": behind(_unused), "segments": before(lambda said: int(said["type_vocab_size"]))},
    prefix="roberta.",
    outside=("lm_head.",),
    endings=OLD,
    tied={"lm_head.decoder.weight": "embedding.weight", "lm_head.decoder.bias": "readout.bias"},
    ignored=BUFFERS,
    left={r"pooler\.dense\.(weight|bias)": "a pooler"},
    heads={"readout": HIDDEN},
    phase=_masked("sentences"),
    frame=Frame("cls A sep", "cls A sep sep B sep", segments=False),
    use=USE,
    pipeline="fill-mask",
)
ALBERT = Family(
    slugs=("albert",),
    model_type="albert",
    architecture="AlbertForPreTraining",
    settings={
        **SETTINGS,
        "segments": ("type_vocab_size",),
        "embedding": ("embedding_size",),
        "share": ("num_hidden_groups",),
    },
    defaults={
        **DEFAULTS,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_dropout_prob": 0.0,
        "embedding_size": 128,
        "num_hidden_groups": 1,
        "hidden_act": "gelu_new",
    },
    fixed=_albert,
    free={"exact": lambda config: True},  # hidden_act says it
    understood=_in_groups,
    spoken=_albert_said,
    names={
        **ENTRANCE,
        **LIKE_ALBERT,
        "lift": "encoder.embedding_hidden_mapping_in",
        "pooler": "pooler",
        "readout.dense": "predictions.dense",
        "readout.norm": "predictions.LayerNorm",
        "readout.bias": "predictions.bias",
        "next_sentence": "sop_classifier.classifier",
    },
    forms=FORMS,
    prefix="albert.",
    outside=("predictions.", "sop_classifier."),
    endings=OLD,
    tied={"predictions.decoder.weight": "embedding.weight", "predictions.decoder.bias": "readout.bias"},
    ignored=BUFFERS,
    heads={"readout": HIDDEN, "pooler": POOLER, "next_sentence": "head for the order of sentences"},
    shared=True,
    phase=_masked("pairs"),
    frame=Frame("cls A sep", "cls A sep B:1 sep:1"),
    use=USE,
    pipeline="fill-mask",
)
FAMILIES = (BERT, ROBERTA, ALBERT)
