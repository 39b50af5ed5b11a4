"""A head over a network: what it reads, batches of uneven length, and the one loop, to the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.tiny_transfer import SPECS, coloured, counted, paired, run_of, written

import nextword
from nextword import transfer
from nextword.batching.examples import Bucketed, Examples, joined
from nextword.checkpoint import RunFolder
from nextword.contract import Framed, NextwordError, Unsupported
from nextword.heads import FILE, Headed, mean
from nextword.heads.framing import examples
from nextword.models.frames import SPREAD, collate, combine, spoken
from nextword.objectives.task import Task
from nextword.predicting import Classifier
from nextword.transfer.plan import headed, make_plan
from nextword.transfer.run import Outcome, averages

QUICK = ("phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "task.dropout=0.0")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of untrained networks, and labelled files."""
    folder = tmp_path_factory.mktemp("transfer")
    for slug in SPECS:
        run_of(folder / slug, slug)
    written(folder / "colour.csv", ["text", "label"], coloured(300))
    written(folder / "pair.csv", ["text", "second", "label"], paired(300))
    written(folder / "count.csv", ["text", "label"], counted(300))
    return folder


def moved(place: Path, name: str, slug: str = "bert", data: str = "colour", **options: Any) -> Outcome:
    changes = [*QUICK, *options.pop("changes", ())]
    recipe = options.pop("recipe", "bert/finetune")
    return transfer.run(
        recipe, place / slug, str(place / f"{data}.csv"), place / name, changes=changes, device="cpu", **options
    )


# ------------------------------------------------------------------------------------------------ batches


def some(n: int = 50, each: int = 1, packs: bool = True, seed: int = 0) -> Examples:
    draw = np.random.default_rng(seed)
    frames = []
    for _ in range(n * each):
        size = int(draw.integers(2, 12))
        frames.append(Framed(draw.integers(5, 99, size), size - 1, np.arange(size) % 2))
    return joined(frames, np.arange(n), each, packs)


def test_every_example_comes_once_an_epoch_and_like_lengths_together() -> None:
    text, layout = some(70), Bucketed(rows=8, stretch=3)
    batches = layout.batches(text, 1, 0)
    for _ in range(2):
        epoch = [next(batches) for _ in range(layout.per_epoch(text))]
        assert sorted(i for batch in epoch for i in batch.targets.tolist()) == list(range(70))
    assert layout.per_epoch(text) == 9
    order = layout.epoch(text, 1, 0)
    spread = np.mean([np.ptp(text.lengths[chosen]) for chosen in order])
    assert spread < 4 < np.ptp(text.lengths)
    assert not np.array_equal(np.concatenate(order), np.concatenate(layout.epoch(text, 2, 0)))
    assert not np.array_equal(np.concatenate(order), np.concatenate(layout.epoch(text, 1, 1)))


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    text, layout = some(50), Bucketed(rows=8)
    batches = layout.batches(text, 3, 0)
    whole = [next(batches) for _ in range(12)]
    for step in (0, 5, 7, 11):
        again = next(layout.batches(text, 3, step))
        assert torch.equal(again.inputs.ids, whole[step].inputs.ids)
        assert torch.equal(again.targets, whole[step].targets)


@pytest.mark.parametrize("each", [1, 2])
def test_packed_and_padded_hold_the_same(each: int) -> None:
    text = some(9, each)
    chosen = np.array([4, 0, 8])
    packed, padded = (Bucketed(pack=pack).batch(text, chosen, 0) for pack in (True, False))
    assert packed.inputs.starts is not None
    assert packed.inputs.starts[-1] == packed.inputs.ids.shape[1] == text.lengths[chosen].sum()
    assert padded.inputs.padding is not None
    there = padded.inputs.padding
    assert torch.equal(padded.inputs.ids[there], packed.inputs.ids[0])
    assert padded.inputs.segments is not None
    assert packed.inputs.segments is not None
    assert torch.equal(padded.inputs.segments[there], packed.inputs.segments[0])
    assert there[:, -1].any()  # no longer than the longest
    first, second = (b.inputs.ids.reshape(-1)[b.at] for b in (packed, padded))
    assert torch.equal(first, second)  # the same tokens speak
    frames = [int(i) * each + k for i in chosen for k in range(each)]
    assert first.tolist() == [int(text.ids[text.starts[f] + text.speaks[f]]) for f in frames]
    assert packed.targets.tolist() == [4, 0, 8]


def test_the_first_tokens_of_a_set() -> None:
    text = some(20, 2)
    part = text.first(40)
    assert 1 <= len(part) < 20
    assert len(part.ids) == part.starts[-1] <= 40
    assert len(part.speaks) == 2 * len(part)
    assert text.first(None) is text
    assert len(text.first(1)) == 1


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ({"rows": 0}, "rows = 0"),
        ({"pack": "yes"}, "pack = 'yes'"),
        ({"width": 3}, "take rows, length, stretch, pack"),
        ({"kind": "rows"}, "batches of kind examples"),
    ],
)
def test_batches_that_make_no_sense(batches: dict[str, Any], said: str) -> None:
    with pytest.raises(NextwordError, match=said):
        Task(batches)
    with pytest.raises(NextwordError, match="language = -1"):
        Task({}, language=-1)


# ------------------------------------------------------------------------------------------------ what a head reads


def made(
    place: Path, slug: str, data: str = "pair", reads: str = "speaker", changes: tuple[str, ...] = ()
) -> tuple[Headed, Any]:
    changes = (f"task.reads={reads}", *changes)
    plan = make_plan("bert/finetune", place / slug, str(place / f"{data}.csv"), changes=changes)
    torch.manual_seed(1)
    network = headed(plan.recipe, plan.tokenizer).eval()
    with torch.no_grad():
        for p in network.parameters():
            p.add_(torch.randn_like(p) * 0.1)  # so that nothing is zero, or one, by chance
    return network, plan


@pytest.mark.parametrize("slug", list(SPECS))
def test_the_papers_own_vector_is_read(place: Path, slug: str) -> None:
    """By hand, of the frames padded by `collate`."""
    network, plan = made(place, slug)
    under = network.under
    rows = plan.data.splits["dev"]
    pairs = list(zip(*(plan.tokenizer.encode_batch(c[:5]) for c in (rows.texts, rows.seconds)), strict=True))
    frames = [frame for pair in pairs for frame in under.frames("entail", pair)]
    inputs, speaks = collate(frames, pad=0)
    with torch.no_grad():
        x = spoken(under.encode(inputs)[0][-1], speaks)
        if slug in ("bert", "albert"):
            x = under.pooled(x)
        elif slug in ("roberta", "xlnet"):
            assert network.dense is not None
            x = torch.tanh(network.dense(x))
        else:
            assert network.dense is None
        by_hand = network.out(combine("entail", x.unsqueeze(1)))
        model = Classifier(network, plan.tokenizer, plan.settings, 128)
        said = model.said(rows.texts[:5], rows.seconds[:5])
    assert np.allclose(said, by_hand.numpy(), atol=1e-5)


def test_both_orders_of_two_alike_texts_are_added_up(place: Path) -> None:
    plan = make_plan("gpt1/finetune", place / "gpt1", str(place / "pair.csv"), changes=["task.frame=similar"])
    assert plan.examples["train"].each == 2
    model = Classifier(headed(plan.recipe, plan.tokenizer), plan.tokenizer, plan.settings, 32)
    one, other = model.said(["red king", "a river"], ["a river", "red king"])
    assert np.allclose(one, other, atol=1e-6)
    assert plan.recipe.model["extra"] == 3


@pytest.mark.parametrize("slug", ["bert", "lstm"])
def test_the_mean_of_a_frame(place: Path, slug: str) -> None:
    network, plan = made(place, slug, "colour", "mean")
    assert network.dense is None
    assert not network.pools
    text = "the king saw a red house"
    with torch.no_grad():
        frame = network.under.frame(plan.tokenizer.encode(text))
        inputs, _ = collate([frame], pad=0)
        by_hand = network.out(network.under.encode(inputs)[0][-1].mean(1))
        said = Classifier(network, plan.tokenizer, plan.settings, 128).said([text, "a", "the new queen"])
    assert np.allclose(said[0], by_hand[0].numpy(), atol=1e-5)


def test_means_of_both_layouts_are_equal() -> None:
    text = some(6)
    packed, padded = (Bucketed(pack=pack).batch(text, np.arange(6), 0) for pack in (True, False))
    h = torch.randn(99, 4)
    a, b = (mean(h[batch.inputs.ids], batch.inputs) for batch in (packed, padded))
    assert torch.allclose(a, b, atol=1e-6)
    for i in range(6):
        own = text.ids[text.starts[i] : text.starts[i + 1]]
        assert torch.allclose(a[i], h[own].mean(0), atol=1e-6)


@pytest.mark.parametrize("slug", list(SPECS))
@pytest.mark.parametrize("reads", ["speaker", "mean"])
def test_together_or_one_by_one_packed_or_padded(place: Path, slug: str, reads: str) -> None:
    network, plan = made(place, slug, "pair", reads)
    model = Classifier(network, plan.tokenizer, plan.settings, 128)
    rows = plan.data.splits["dev"]
    together = model.said(rows.texts, rows.seconds)
    single = [model.said([a], [b])[0] for a, b in zip(rows.texts[:6], rows.seconds[:6], strict=True)]
    assert np.allclose(together[:6], single, atol=1e-5)
    dev = plan.examples["dev"]
    with torch.no_grad():
        for pack in (True, False):
            batch = Bucketed(pack=pack).batch(dev, np.arange(len(dev)), 0)
            assert np.allclose(network(batch).numpy(), together, atol=1e-5)


def test_gradients_of_packed_and_padded_are_equal(place: Path) -> None:
    grads = []
    for pack in (True, False):
        network, plan = made(place, "bert")
        batch = Bucketed(pack=pack).batch(plan.examples["train"], np.arange(20), 0)
        Task({}).loss(network, batch, None).value.backward()
        grads.append({name: p.grad for name, p in network.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    for name, grad in grads[0].items():
        assert torch.allclose(grad, grads[1][name], atol=1e-5), name
    assert "under.pooler.weight" in grads[0]
    assert not any("readout" in name for name in grads[0])


def test_a_new_head_is_small_and_has_no_bias(place: Path) -> None:
    network = headed(make_plan("bert/finetune", place / "roberta", str(place / "colour.csv")).recipe, _tokens(place))
    assert network.dense is not None
    for layer in (network.dense, network.out):
        assert torch.all(layer.bias == 0)
    assert abs(float(network.dense.weight.detach().std()) - SPREAD) < 0.1 * SPREAD


def _tokens(place: Path) -> Any:
    from nextword.tokens import load_tokenizer

    return load_tokenizer(place / "roberta" / "tokenizer.json")


def test_texts_that_are_too_long_are_cut_to_fit(place: Path) -> None:
    network, plan = made(place, "bert")
    found, cut = examples(network.under, plan.tokenizer, "entail", ["red " * 50, "red"], ["blue " * 5, "a"], length=20)
    assert cut == 1
    assert np.diff(found.starts).tolist() == [20, 5]
    names = plan.tokenizer.special
    assert found.ids[:20].tolist().count(names["[SEP]"]) == 2
    assert found.segments is not None
    assert found.segments[:20].tolist() == [0] * 14 + [1] * 6  # [CLS], 12 and [SEP]; 5 and [SEP]
    with pytest.raises(NextwordError, match="Examples may have 4 tokens, of which the frame itself takes 3"):
        examples(network.under, plan.tokenizer, "entail", ["red"], ["blue"], length=4)


# ------------------------------------------------------------------------------------------------ the loss


def test_classes_by_cross_entropy_and_numbers_by_squares(place: Path) -> None:
    network, plan = made(place, "bert", "colour")
    batch = Bucketed().batch(plan.examples["train"], np.arange(10), 0)
    loss = Task({}).loss(network, batch, None)
    log_p = network(batch).log_softmax(-1)
    assert loss.count == 10
    assert torch.allclose(loss.value, -log_p[torch.arange(10), batch.targets].mean(), atol=1e-6)
    network, plan = made(place, "bert", "count")
    assert plan.settings.kind == "regress"
    batch = Bucketed().batch(plan.examples["train"], np.arange(10), 0)
    loss = Task({}).loss(network, batch, None)
    assert torch.allclose(loss.nats, ((network(batch)[:, 0] - batch.targets) ** 2).sum(), atol=1e-5)
    scaled = plan.examples["train"].labels
    assert abs(scaled.mean()) < 1e-5
    assert abs(scaled.std() - 1) < 1e-5


def test_the_language_beside_the_task(place: Path) -> None:
    network, plan = made(place, "gpt1", "colour", changes=("model.dropout=0.0", "task.dropout=0.0"))
    batch = Bucketed().batch(plan.examples["train"], np.arange(10), 0)
    network.train()
    alone, beside = (Task({}, language=weight).loss(network, batch, None) for weight in (0.0, 0.5))
    assert set(beside.parts) == {"task", "language"}
    assert torch.allclose(beside.value, alone.value + 0.5 * beside.parts["language"], atol=1e-5)
    rows = network.under.encode(batch.inputs)[0][-1].detach()
    nats, count = 0.0, 0
    for row, ids, there in zip(rows, batch.inputs.ids, batch.inputs.padding, strict=True):
        for t in range(int(there.sum()) - 1):
            if ids[t + 1] < network.vocabulary.size:
                nats -= network.under.readout.log_probs(row[t : t + 1])[0, ids[t + 1]].item()
                count += 1
    assert float(beside.parts["language"]) == pytest.approx(nats / count, rel=1e-4)
    sees_both, plan = made(place, "bert", "colour")
    batch = Bucketed().batch(plan.examples["train"], np.arange(2), 0)
    with pytest.raises(Unsupported, match="read from left to right"):
        Task({}, language=0.5).loss(sees_both.train(), batch, None)


# ------------------------------------------------------------------------------------------------ through the loop


def test_saved_loaded_and_applied(place: Path) -> None:
    """What a folder predicts is what the network in memory said; the encoder's file is an ordinary one."""
    outcome = moved(place, "whole", changes=["phase.0.epochs=2"])
    folder = place / "whole"
    result = outcome.results[0]
    model = nextword.load(folder, device="cpu")
    assert isinstance(model, Classifier)
    assert model.can == {"predict", "embed"}
    data = transfer.open_data(str(place / "colour.csv"))
    dev = data.splits["dev"]
    found = model.predict(dev.texts)
    assert np.mean([p.label == gold for p, gold in zip(found, dev.labels, strict=True)]) == result["dev"]["accuracy"]
    assert all(abs(sum(p.probabilities.values()) - 1) < 1e-9 for p in found)
    assert all(max(p.probabilities, key=lambda k: p.probabilities[k]) == p.label for p in found)
    assert model.embed(["red", "a king"]).shape == (2, 32)
    with pytest.raises(Unsupported, match="it predicts one of blue, red"):
        model.score("the king")
    with pytest.raises(NextwordError, match="is about one text, and an example has 2"):
        model.predict([("a", "b")])
    files = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", FILE, "recipe.toml", "tokenizer.json", "log.jsonl", "card.md"} <= files
    assert "state" not in files  # finished: nobody goes on from it
    assert (
        load_file(str(folder / "model.safetensors")).keys() == load_file(str(place / "bert/model.safetensors")).keys()
    )
    assert "accuracy" in (folder / "card.md").read_text()
    kinds = [line["event"] for line in RunFolder(folder).read_log()]
    assert kinds[0] == "begin"
    assert kinds.count("valid") == 2
    assert kinds[-1] == "task"


def test_pretrained_weights_are_where_training_begins_and_from_scratch_they_are_not(place: Path) -> None:
    still = ["phase.0.optimizer={kind='sgd', rate=1e-30}", "phase.0.steps=1"]
    before = load_file(str(place / "bert/model.safetensors"))
    moved(place, "still", changes=still)
    kept = load_file(str(place / "still/model.safetensors"))
    assert all(torch.allclose(before[name], kept[name], rtol=0, atol=1e-25) for name in before)
    moved(place, "fresh", changes=still, scratch=True)
    fresh = load_file(str(place / "fresh/model.safetensors"))
    matrices = [name for name in before if name.endswith("weight") and "norm" not in name]
    assert all(not torch.equal(before[name], fresh[name]) for name in matrices)
    recipe = RunFolder(place / "fresh").recipe
    assert recipe.task is not None
    assert recipe.task["scratch"] is True
    assert recipe.phases[0].init == ""
    assert (place / "fresh/tokenizer.json").read_bytes() == (place / "bert/tokenizer.json").read_bytes()


def test_a_transferred_run_can_be_transferred_again(place: Path) -> None:
    moved(place, "once", changes=["phase.0.steps=2"])
    moved(place, "twice", "once", changes=["phase.0.steps=1", "phase.0.optimizer={kind='sgd', rate=1e-30}"])
    first, second = (load_file(str(place / name / "model.safetensors")) for name in ("once", "twice"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_seeds_differ_and_are_told_with_an_interval(place: Path) -> None:
    outcome = moved(place, "seeds", data="count", seeds=3, changes=["phase.0.epochs=1"])
    assert [Path(run).name for run in outcome.runs] == ["seed-0", "seed-1", "seed-2"]
    assert [result["seed"] for result in outcome.results] == [0, 1, 2]
    heads = [load_file(str(Path(run) / FILE))["out.weight"] for run in outcome.runs]
    assert not torch.equal(heads[0], heads[1])
    values = outcome.values()
    assert len(set(values)) == 3
    assert outcome.metric == "spearman"
    assert outcome.spread == pytest.approx(4.303 * np.std(values, ddof=1) / np.sqrt(3))
    kept = json.loads((place / "seeds/results.json").read_text())
    assert kept["mean"] == pytest.approx(np.mean(values))
    again = moved(place, "seeds", data="count", seeds=3, changes=["phase.0.epochs=1"], again=True)
    assert again.values() == values  # finished: taken as they are
    single = moved(place, "single", data="count", seed=1, changes=["phase.0.epochs=1"])
    assert single.values() == [values[1]]
    assert single.spread is None


@pytest.mark.parametrize(("slug", "recipe"), [("bert", "bert/finetune"), ("gpt1", "gpt1/finetune")])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(place: Path, slug: str, recipe: str) -> None:
    changes = [*QUICK[:2], "phase.0.epochs=2", "task.dropout=0.1", "model.dropout=0.1"]
    options = {"changes": changes, "device": "cpu", "seed": 4}
    data = str(place / "pair.csv")
    whole = transfer.run(recipe, place / slug, data, place / f"{slug}-uncut", **options)
    asked = iter([False] * 20 + [True])
    cut = place / f"{slug}-cut"
    stopped = transfer.run(recipe, place / slug, data, cut, stop=lambda: next(asked), **options)
    assert stopped.interrupted
    assert (cut / "state/current").is_file()
    plan, events = transfer.resume(cut, device="cpu")
    assert plan.settings.text == "text"
    last = list(events)[-1]
    assert last.step == 34
    for name in ("model.safetensors", FILE):
        a, b = (load_file(str(folder / name)) for folder in (place / f"{slug}-uncut", cut))
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert transfer.result_of(cut)["dev"] == whole.results[0]["dev"]  # type: ignore[index]


def test_killed_before_its_first_state_it_begins_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = transfer.transfer(
        make_plan("bert/finetune", place / "bert", str(place / "colour.csv"), changes=[*QUICK, "phase.0.epochs=1"]),
        place / "killed",
    )
    next(events)
    events.close()
    assert transfer.result_of(place / "killed") is None
    list(transfer.resume(place / "killed", device="cpu")[1])
    whole = moved(place, "unkilled", changes=["phase.0.epochs=1"])
    assert transfer.result_of(place / "killed")["dev"] == whole.results[0]["dev"]  # type: ignore[index]


def test_other_data_is_not_gone_on_with(place: Path, tmp_path: Path) -> None:
    rows = coloured(60)
    data = written(tmp_path / "mine.csv", ["text", "label"], rows)
    asked = iter([False, True])
    transfer.run("bert/finetune", place / "bert", str(data), tmp_path / "run", changes=QUICK, stop=lambda: next(asked))
    written(data, ["text", "label"], rows[1:])
    with pytest.raises(NextwordError, match="is not the one that"):
        list(transfer.resume(tmp_path / "run", device="cpu")[1])


def test_the_best_epoch_is_kept_where_the_recipe_says_so(place: Path) -> None:
    """With a rate that ruins what was learnt: the metric, not the loss, decides."""
    changes = ["phase.0.epochs=6", "phase.0.keep=best", "phase.0.schedule={kind='constant'}"]
    outcome = moved(place, "best", changes=[*changes, "phase.0.optimizer.rate=0.05", "phase.0.clip=0.0"])
    checks = [line for line in RunFolder(place / "best").read_log() if line["event"] == "valid"]
    best = max(line["accuracy"] for line in checks)
    assert outcome.mean == best
    assert checks[[line["accuracy"] for line in checks].index(best)]["best"]
    dev = transfer.open_data(str(place / "colour.csv")).splits["dev"]
    said = nextword.load(place / "best", device="cpu").predict(dev.texts)
    assert np.mean([p.label == gold for p, gold in zip(said, dev.labels, strict=True)]) == best


def test_a_recipe_may_say_something_else_for_one_data_set(place: Path) -> None:
    name = str(place / "colour.csv")
    own = f"task.changes={{'{name}'=['phase.0.epochs=7', 'phase.0.optimizer.rate=1e-4']}}"
    plan = make_plan("bert/finetune", place / "bert", name, changes=[own])
    assert (plan.recipe.phases[0].epochs, plan.recipe.phases[0].optimizer["rate"]) == (7, 1e-4)
    plan = make_plan("bert/finetune", place / "bert", name, changes=[own, "phase.0.epochs=2"])
    assert plan.recipe.phases[0].epochs == 2  # the command has the last word
    other = make_plan("bert/finetune", place / "bert", str(place / "pair.csv"), changes=[own])
    assert other.recipe.phases[0].epochs == 3


def test_what_the_run_was_never_shown_is_not_read(place: Path) -> None:
    """The run was trained on texts of 32 tokens: positions beyond were never learnt."""
    plan = make_plan("bert/finetune", place / "bert", str(place / "colour.csv"))
    assert plan.recipe.phases[0].batches["length"] == 32
    assert plan.recipe.model["dropout"] == 0.1  # the recipe's, where the network has one
    assert plan.recipe.phases[0].precision == "fp32"  # on a CPU
    recurrent = make_plan("bert/finetune", place / "lstm", str(place / "colour.csv"))
    assert recurrent.recipe.phases[0].batches["length"] == 128


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recipe": "bert/tiny"}, "no recipe for a task. For fine-tuning there are bert/finetune, gpt1/finetune"),
        ({"slug": "nowhere"}, "There is no run folder"),
        ({"data": "nothing"}, "neither a file or folder nor a task"),
        ({"changes": ["task.reads=last"]}, "reads = 'last'; expected speaker or mean"),
        ({"changes": ["task.dropuot=0.2"]}, "Did you mean 'dropout'"),
        ({"changes": ["task.metrics=['bleu']"]}, "metrics names 'bleu'"),
        ({"changes": ["task.changes={RTE='phase.0.epochs=1'}"]}, "has a list for a data set"),
        ({"changes": ["model.dorpout=0.2"]}, "has no key 'dorpout'"),
        ({"changes": ["model.width=16"]}, "do not fit the recipe's network"),
        ({"changes": ["phase.0.objective=causal"]}, "every phase has objective"),
        ({"kind": "rank"}, "--kind rank: expected classify, pair, regress"),
    ],
)
def test_what_is_wrong_is_said_before_there_is_a_folder(place: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(NextwordError, match=said):
        moved(place, "refused", **options)
    assert not (place / "refused").exists()


def test_a_model_that_counts_and_a_folder_of_another_program(place: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "theirs/model.safetensors").write_bytes(b"")
    with pytest.raises(NextwordError, match=r"Hugging Face folder\. Make a run of it first: nextword convert"):
        moved(tmp_path, "x", "theirs")
    from nextword.training import train

    with pytest.raises(NextwordError, match="`nextword transfer bert/finetune --from RUN --data X`"):
        list(train(nextword.recipe.load_recipe("bert/finetune"), tmp_path / "y"))


# ------------------------------------------------------------------------------------------------ several tasks


def test_the_mean_over_tasks_has_an_interval_over_seeds() -> None:
    def outcome(name: str, *values: float) -> Outcome:
        return Outcome(name, (), tuple({"metric": "accuracy", "dev": {"accuracy": v}} for v in values))

    found = averages([outcome("a", 0.5, 0.7), outcome("b", 0.9, 0.9)])
    assert found["mean"] == pytest.approx(0.75)  # of 0.7 and 0.8
    assert found["interval"] == pytest.approx(12.706 * np.std([0.7, 0.8], ddof=1) / np.sqrt(2))


def test_several_tasks_into_one_table(place: Path, tmp_path: Path) -> None:
    options = {"changes": [*QUICK, "phase.0.steps=3"], "device": "cpu"}
    names = [str(place / "colour.csv"), str(place / "count.csv")]
    heard: list[Any] = []
    moved_alone = transfer.run("bert/finetune", place / "bert", names[0], tmp_path / "a", **options)
    for i, name in enumerate(names):
        (tmp_path / "names").mkdir(exist_ok=True)
        (tmp_path / f"names/{i}.csv").write_bytes(Path(name).read_bytes())
    import os

    before = Path.cwd()
    os.chdir(tmp_path / "names")  # so that a task's name is the name of its folder
    try:
        outcomes, table = transfer.suite(
            "bert/finetune", place / "bert", ["0.csv", "1.csv"], tmp_path / "all", hear=heard.append, **options
        )
    finally:
        os.chdir(before)
    assert outcomes[0].values() == moved_alone.values()
    assert table["mean"] == pytest.approx((outcomes[0].mean + outcomes[1].mean) / 2)
    assert [task["metric"] for task in table["tasks"]] == ["accuracy", "spearman"]
    assert json.loads((tmp_path / "all/results.json").read_text()) == table
    assert heard
