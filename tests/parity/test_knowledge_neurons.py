"""Knowledge neurons against captum's integrated gradients on transformers' own models, with the same random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from safetensors.torch import load_file
from torch import Tensor

import nextword
from nextword import lens
from nextword.conversion import convert
from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.lens import Fact, Neuron
from nextword.lens.saliency import find_prediction
from nextword.lm.base import TextModel
from nextword.models.base import FILE
from tests.parity.test_huggingface_gpt import saved_by_transformers, theirs
from tests.support.hf_folders import make_transformers_model, save_transformers_tokenizer

NAMES = {"bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM", "albert": "AlbertForMaskedLM"}
OLD, NEW = "a", "i"  # single tokens of the small vocabulary
PROMPTS = ("the king ___ to see", "all went ___ his house", "a ___ of a land", "it's ___ and all")


def load_pair(slug: str, folder: Path) -> tuple[TextModel, Any]:
    """The same random network in nextword and in transformers."""
    if slug == "gpt2":
        size = saved_by_transformers(slug, folder / "theirs")
        peer = theirs(slug, size)
    else:
        size = save_transformers_tokenizer(slug, folder / "theirs")
        peer = make_transformers_model(NAMES[slug], size)
    peer.save_pretrained(folder / "theirs")
    convert(folder / "theirs", folder / "run")
    peer.set_attn_implementation("eager")
    return nextword.load(folder / "run", device="cpu"), peer


def activation_modules(slug: str, peer: Any) -> list[Any]:
    """What returns the activations of each layer's feed-forward units."""
    if slug == "gpt2":
        return [block.mlp.act for block in peer.transformer.h]
    if slug == "albert":
        return [peer.albert.encoder.albert_layer_groups[0].albert_layers[0].activation]
    return [layer.intermediate for layer in getattr(peer, slug).encoder.layer]


def clamp(module: Any, at: int, value: Callable[[Tensor], Tensor], call: int = 0) -> Any:
    """Replace what a module returns at one position, in its call of this number."""
    calls = []

    def hook(_: Any, __: Any, output: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) != call + 1:
            return output
        own = value(output[:, at])
        return torch.cat([output[:, :at], own.unsqueeze(1), output[:, at + 1 :]], 1)

    return module.register_forward_hook(hook)


@torch.no_grad()
def record(peer: Any, ids: Tensor, module: Any, at: int, call: int) -> Tensor:
    """The activations at one position."""
    seen = []

    def keep(own: Tensor) -> Tensor:
        seen.append(own)
        return own

    handle = clamp(module, at, keep, call)
    peer(ids)
    handle.remove()
    return seen[0]


def captum_scores(slug: str, peer: Any, ids: Tensor, at: int, target: int, steps: int) -> np.ndarray:
    modules = activation_modules(slug, peer)
    places = (
        [(modules[0], i) for i in range(peer.config.num_hidden_layers)]
        if slug == "albert"
        else [(m, 0) for m in modules]
    )
    scores = []
    for module, call in places:
        activations = record(peer, ids, module, at, call)

        def probability(w: Tensor, module: Any = module, call: int = call) -> Tensor:
            handle = clamp(module, at, lambda own: w, call)
            logits = peer(ids.expand(len(w), -1)).logits
            handle.remove()
            return logits[:, at].softmax(-1)[:, target]

        attribution = IntegratedGradients(probability).attribute(
            activations, baselines=torch.zeros_like(activations), n_steps=steps, method="riemann_left"
        )
        scores.append(attribution[0].detach().numpy())
    return np.stack(scores)


@pytest.mark.parametrize("slug", ["bert", "roberta", "albert", "gpt2"])
def test_attributions_of_twenty_steps_equal_captum(slug: str, tmp_path: Path) -> None:
    lm, peer = load_pair(slug, tmp_path)
    text = "the king went" if slug == "gpt2" else PROMPTS[0]
    prediction = find_prediction(lm, text, None, None)
    mine = lens.attribute_neurons(lm, text)
    ids = prediction.parts[0].ids[None]
    want = captum_scores(slug, peer, ids, prediction.at, int(prediction.targets[0]), 20)
    assert mine.scores.shape == want.shape
    assert np.abs(want).max() > 1e-5
    np.testing.assert_allclose(mine.scores, want, rtol=1e-4, atol=1e-6 * np.abs(want).max())


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[TextModel, Any]:
    return load_pair("bert", tmp_path_factory.mktemp("neurons"))


def test_attributions_of_three_hundred_steps_are_complete(bert: tuple[TextModel, Any]) -> None:
    lm, peer = bert
    prediction = find_prediction(lm, PROMPTS[0], None, None)
    scores = lens.attribute_neurons(lm, PROMPTS[0], steps=300).scores
    ids, target = prediction.parts[0].ids[None], int(prediction.targets[0])
    for layer, module in enumerate(activation_modules("bert", peer)):
        with torch.no_grad():
            whole = peer(ids).logits[0, prediction.at].softmax(-1)[target]
            handle = clamp(module, prediction.at, torch.zeros_like)
            without = peer(ids).logits[0, prediction.at].softmax(-1)[target]
            handle.remove()
        assert scores[layer].sum() == pytest.approx(float(whole - without), abs=0.01 * float(whole))


def test_suppressed_units_give_the_probability_of_transformers_without_them(bert: tuple[TextModel, Any]) -> None:
    lm, peer = bert
    prediction = find_prediction(lm, PROMPTS[0], OLD, None)
    ids, target = prediction.parts[0].ids[None], int(prediction.targets[0])

    def zero(own: Tensor) -> Tensor:
        own = own.clone()
        own[:, [3, 5]] = 0
        return own

    with torch.no_grad():
        whole = peer(ids).logits[0, prediction.at].softmax(-1)[target]
        handle = clamp(activation_modules("bert", peer)[1], prediction.at, zero)
        without = peer(ids).logits[0, prediction.at].softmax(-1)[target]
        handle.remove()
    before, after = lens.change_neurons(lm, PROMPTS[0], OLD, [Neuron(2, 3), Neuron(2, 5)], 0)
    assert before == pytest.approx(float(whole), rel=1e-5)
    assert after == pytest.approx(float(without), rel=1e-5)
    assert lens.change_neurons(lm, PROMPTS[0], OLD, [Neuron(2, 3)], 1)[1] == pytest.approx(before, rel=1e-9)


def test_units_of_a_fact_are_those_that_its_prompts_agree_on(bert: tuple[TextModel, Any]) -> None:
    lm, _ = bert
    fact = Fact(PROMPTS, OLD)
    kept = [lens.attribute_neurons(lm, prompt, OLD).kept(0.2) for prompt in PROMPTS]
    strict = set(lens.find_knowledge_neurons(lm, fact, share=1.0).neurons)
    assert strict == set.intersection(*kept)
    assert strict <= set(lens.find_knowledge_neurons(lm, fact, share=0.5).neurons)  # three of four: never fewer
    (found,) = lens.find_relation(lm, [fact])
    assert found.fact is fact
    assert 0.3 < found.share < 1.1


def test_update_and_erasure_change_the_value_vectors_and_are_saved_as_a_new_run(
    bert: tuple[TextModel, Any], tmp_path: Path
) -> None:
    source = Path(bert[0].name)
    lm = nextword.load(source, device="cpu")
    weights = [half.narrow.weight for half in lm.network.feeding]
    before = [weight.detach().clone() for weight in weights]
    table = lm.network.embedding.weight.detach()
    old, new = (table[int(lm.tokenizer.encode(word).ids[0])] for word in (OLD, NEW))
    lens.update_fact(lm, [Neuron(1, 4)], OLD, NEW, 1.0, 8.0)
    v = before[0][:, 4]
    want = v - v.norm() / old.norm() * old + 8 * v.norm() / new.norm() * new
    torch.testing.assert_close(weights[0][:, 4].detach(), want)
    lens.erase_neurons(lm, [Neuron(3, 0), Neuron(3, 7)])
    assert not weights[2][:, [0, 7]].any()
    untouched = [i for i in range(before[0].shape[1]) if i != 4]
    assert torch.equal(weights[0][:, untouched], before[0][:, untouched])
    run = lens.save_edited(lm, tmp_path / "edited", "a → i; erased 3.0, 3.7")
    run.verify()
    assert run.manifest["edited"] == {"from": source.name, "edit": "a → i; erased 3.0, 3.7"}
    again = nextword.load(tmp_path / "edited", device="cpu")
    assert again.score("the king went").nats == pytest.approx(lm.score("the king went").nats, rel=1e-6)
    assert load_file(str(tmp_path / "edited" / FILE)).keys() == load_file(str(source / FILE)).keys()


def test_hooks_are_gone_after_an_error(bert: tuple[TextModel, Any]) -> None:
    lm, _ = bert
    with pytest.raises(InvalidSetting):
        lens.change_neurons(lm, PROMPTS[0], OLD, [Neuron(9, 0)], 0)
    assert not any(half.narrow._forward_pre_hooks for half in lm.network.feeding)


WRONG: list[tuple[Callable[[TextModel], object], str]] = [
    (lambda lm: lens.attribute_neurons(lm, PROMPTS[0], "the king"), "target"),
    (lambda lm: lens.attribute_neurons(lm, PROMPTS[0], OLD, steps=0), "steps"),
    (lambda lm: lens.attribute_neurons(lm, "no blank here", OLD), "text"),
    (lambda lm: lens.find_knowledge_neurons(lm, Fact(PROMPTS[:3], OLD)), "fact"),
    (lambda lm: lens.find_knowledge_neurons(lm, Fact(PROMPTS, OLD), threshold=0.0), "threshold"),
    (lambda lm: lens.erase_neurons(lm, [Neuron(0, 0)]), "neurons"),
    (lambda lm: lens.update_fact(lm, [Neuron(1, 0)], "the king", NEW), "answer"),
]


@pytest.mark.parametrize(("call", "key"), WRONG)
def test_wrong_request_is_an_error_that_names_the_field(
    bert: tuple[TextModel, Any], call: Callable[[TextModel], object], key: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        call(bert[0])
    assert caught.value.key == key


def test_model_without_feed_forward_layers_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the king saw house {i} of the land\n" for i in range(600)), encoding="utf-8")
    nextword.train("rnn/tiny", text, out=tmp_path / "rnn", steps=2, progress=False, device="cpu")
    with pytest.raises(Unsupported):
        lens.attribute_neurons(nextword.load(tmp_path / "rnn"), "the king")


def test_edited_model_never_overwrites_a_run(bert: tuple[TextModel, Any]) -> None:
    with pytest.raises(NextwordError):
        lens.save_edited(bert[0], bert[0].name, "nothing")
