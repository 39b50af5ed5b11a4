"""Compare: sizes that fit the time, plans, verdicts, and models that fail."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from nextword.batching.token_stream import Stream, prepare
from nextword.comparison import compare as ladder
from nextword.comparison.compare import (
    FILE,
    TRAINING_SHARE,
    Plan,
    Update,
    choose_size,
    compare_events,
    default_ladder,
    make_plan,
)
from nextword.comparison.terminal import LiveTable, leaderboard, verdict
from nextword.core.errors import InvalidSetting, RunError, UnknownName
from nextword.core.io import replace_nonfinite
from nextword.core.scratch import PREFIX
from nextword.data.opening import open_corpus
from nextword.lm.loading import load
from nextword.models import MODELS
from nextword.recipe import load_recipe, parse_recipe
from tests.support.small_job import BYTES

SIZES = [{"width": 8}, {"width": 16}, {"width": 32}, {"width": 64}]
TABLES: dict[str, Any] = {
    "paper": {"slug": "lstm", "title": "T", "authors": "A, B", "year": 1997},
    "tokenizer": {"kind": "bytes"},
    "model": {"layers": 1},
    "phase": [{"data": "python", "steps": 5}],
    "compare": {"sizes": SIZES, "min_passes": 2},
}


# ------------------------------------------------------------------------------------------------ ladder


@pytest.mark.parametrize(("seconds", "width"), [(0, 8), (1, 8), (16, 16), (31, 16), (32, 32), (64, 64), (999, 64)])
def test_choose_size_takes_the_largest_that_fits_the_time(
    seconds: float, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Width w trains at 200 / w tokens per second, so two passes over 100 tokens take w seconds."""
    monkeypatch.setattr(ladder, "estimate_tokens", lambda recipe, seconds, *rest: 200 * seconds / recipe.model["width"])
    stream = SimpleNamespace(ids=np.arange(100))
    chosen, passes = choose_size(parse_recipe(TABLES, "here"), seconds, BYTES, stream, torch.device("cpu"))
    assert chosen.model == {"layers": 1, "width": width}
    assert passes == 2 * seconds / width


@pytest.mark.parametrize(("seconds", "dropout"), [(8, 0.0), (300, 0.5)])
def test_choose_size_applies_regularization_after_many_passes(
    seconds: float, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only size makes seconds / 10 passes over the text: here 0.8 and 30."""
    monkeypatch.setattr(ladder, "estimate_tokens", lambda recipe, seconds, *rest: 10 * seconds)
    compare_table = {"sizes": [{"width": 8}], "regularization": {"dropout": 0.5}}
    recipe = parse_recipe({**TABLES, "model": {"dropout": 0.0}, "compare": compare_table}, "here")
    chosen, _ = choose_size(recipe, seconds, BYTES, SimpleNamespace(ids=np.arange(100)), torch.device("cpu"))
    assert chosen.model == {"width": 8, "dropout": dropout}


def test_choose_size_without_sizes_keeps_the_recipe() -> None:
    recipe = load_recipe("lstm/tiny")
    assert choose_size(recipe, 1.0, BYTES, None, torch.device("cpu")) == (recipe, None)


def test_choose_size_of_a_count_model_takes_the_largest_untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "estimate_tokens", lambda *given: pytest.fail("counting is not timed"))
    table = {"sizes": [{"order": 3}, {"order": 5}], "regularization": {"dropout": 0.5}}
    recipe = parse_recipe({**TABLES, "model": {"cache": 7}, "phase": [{"kind": "count"}], "compare": table}, "here")
    assert choose_size(recipe, 0.0, BYTES, None, torch.device("cpu"))[0].model == {"cache": 7, "order": 5}
    alone = parse_recipe({**TABLES, "phase": [{"kind": "count"}], "compare": {}}, "here")
    assert choose_size(alone, 0.0, BYTES, None, torch.device("cpu")) == (alone, None)


def test_estimate_tokens_is_positive() -> None:
    recipe = parse_recipe({**TABLES, "model": {"width": 8}}, "here", ["phase.0.batches={rows=2, length=5}"])
    stream = Stream.from_ids(np.zeros(1000, np.uint8))
    answer = ladder.estimate_tokens(recipe, 10.0, BYTES, stream, torch.device("cpu"))
    assert answer > 0


def test_default_ladder_follows_the_order_of_models() -> None:
    slugs = [recipe.slug for recipe in default_ladder()]
    assert slugs == [slug for slug in MODELS if slug in slugs]
    assert len(slugs) == len(set(slugs))
    assert all(recipe.compare["sizes"] for recipe in default_ladder())


# ------------------------------------------------------------------------------------------------ plan


def result(name: str, bits: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "exact", "status": "done", "bits_per_byte": bits, "bits_per_byte_low": low,
            "bits_per_byte_high": high, "word_perplexity": 9.0, "token_perplexity": 9.0, "parameters": 1000,
            "size": 4000, "seconds": 3.0, "tokens_per_second": 100.0, **more}  # fmt: skip


def test_plan_round_trips_through_its_file(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "here", ["nplm/tiny", "lstm/tiny"], "python", 2.5, ["model.width=8"])
    plan.models["nplm-tiny"] = result("nplm-tiny", 3.0, 2.9, 3.1, surprisal=[1.0, 2.0])
    plan.facts["passage"] = {"text": "ä b", "tokens": ["ä", " b"]}
    plan.save("cpu")
    again = Plan.open(tmp_path / "here")
    assert vars(again) == vars(plan)
    assert [parse_recipe(e["recipe"], e["recipe_name"]).model["width"] for e in again.entries] == [8, 8]
    assert again.result("cpu")["passage"]["surprisal"] == {"nplm-tiny": [1.0, 2.0]}


RULED_OUT = {
    "word_perplexity": math.inf,
    "token_perplexity": math.inf,
    "nats": math.inf,
    "impossible": 3,
    "tokens": 1200,
}


def impossible(name: str) -> dict[str, Any]:
    """A model under which three tokens of the text are impossible."""
    return result(name, math.inf, math.inf, math.inf, **RULED_OUT)


def test_plan_saves_infinity_as_null(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "here", ["nplm/tiny", "lstm/tiny"], "python", 1)
    plan.models = {
        "nplm-tiny": impossible("nplm-tiny") | {"surprisal": [1.0, math.inf]},
        "lstm-tiny": result("lstm-tiny", 2.0, 1.9, 2.1),
    }
    plan.facts["passage"] = {"text": "a b", "tokens": ["a", " b"]}
    plan.save("cpu")
    text = (tmp_path / "here" / FILE).read_text(encoding="utf-8")
    saved = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (saved["models"][1]["bits_per_byte"], saved["models"][1]["impossible"]) == (None, 3)
    again = Plan.open(tmp_path / "here")
    assert again.models == plan.models
    assert [model["name"] for model in again.result("cpu")["models"]] == ["lstm-tiny", "nplm-tiny"]


def test_plan_rejects_existing_missing_and_damaged_folders(tmp_path: Path) -> None:
    with pytest.raises(RunError) as missing:
        Plan.open(tmp_path)
    make_plan(tmp_path, ["nplm/tiny"], "python", 1).save("cpu")
    with pytest.raises(RunError) as taken:
        make_plan(tmp_path, ["nplm/tiny"], "python", 1)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(RunError) as damaged:
        Plan.open(tmp_path)
    paths = [error.value.path for error in (missing, taken, damaged)]
    assert paths == [str(tmp_path), str(tmp_path), str(tmp_path / FILE)]


def test_plan_may_be_made_where_a_kill_left_its_scratch(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}left").mkdir()
    plan = make_plan(tmp_path, ["lstm/tiny"], "web", 1)
    plan.save("cpu")
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_make_plan_gives_unique_names(tmp_path: Path) -> None:
    names = [
        entry["name"] for entry in make_plan(tmp_path / "out", ["nplm/tiny", "nplm/tiny", "lstm/tiny"], "x", 1).entries
    ]
    assert names == ["nplm-tiny", "nplm-tiny-2", "lstm-tiny"]
    for folder in ("a/run", "b/run"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").write_text("{}")
    plan = make_plan(tmp_path / "out", [str(tmp_path / "a/run"), str(tmp_path / "b/run")], "x", 1)
    assert [entry["name"] for entry in plan.entries] == ["run", "run-2"]
    assert all("recipe" not in entry for entry in plan.entries)
    assert [e["name"] for e in make_plan(tmp_path / "out", [], "x", 1).entries] == [r.slug for r in default_ladder()]


def test_make_plan_rejects_invalid_requests(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as no_time:
        make_plan(tmp_path / "out", [], "python", 0)
    assert no_time.value.key == "minutes"
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError) as no_run:
        make_plan(tmp_path / "out", [str(tmp_path / "folder")], "python", 1)
    assert no_run.value.path == str(tmp_path / "folder")
    with pytest.raises(UnknownName):
        make_plan(tmp_path / "out", ["lstm/tinny"], "python", 1)


def test_result_ranks_exact_likelihoods_first(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, ["nplm/tiny", "rnn/tiny", "gru/tiny", "lstm/tiny"], "python", 1)
    plan.models = {
        "nplm-tiny": result("nplm-tiny", 2.0, 1.9, 2.1, kind="pseudo"),
        "rnn-tiny": {"name": "rnn-tiny", "kind": "exact", "status": "failed", "error": "no"},
        "gru-tiny": result("gru-tiny", 3.0, 2.9, 3.1),
        "lstm-tiny": result("lstm-tiny", 2.5, 2.4, 2.6),
    }
    ranked = [model["name"] for model in plan.result("cpu")["models"]]
    assert ranked == ["lstm-tiny", "gru-tiny", "rnn-tiny", "nplm-tiny"]


# ------------------------------------------------------------------------------------------------ verdict, table


def test_verdict_names_the_best_and_the_close() -> None:
    clear = [result("lstm", 2.0, 1.9, 2.1), result("nplm", 3.0, 2.9, 3.1)]
    assert verdict(clear) == "lstm predicts this text best: 2.000 bits per byte, 25% of its size."
    close = [result("lstm", 2.0, 1.9, 2.1), result("gru", 2.05, 2.0, 2.2), result("nplm", 3.0, 2.9, 3.1)]
    assert verdict(close).endswith("Not clearly different: gru.")
    assert verdict([]) == ""
    lossy = result("words", 0, 0, 0) | {"bits_per_byte": None, "bits_per_byte_low": None, "bits_per_byte_high": None}
    assert verdict([lossy]) == ""
    assert verdict([clear[0], lossy]) == verdict(clear[:1])


def test_verdict_without_intervals_names_no_close_models() -> None:
    """Fewer than 400 tokens have no interval, so the verdict names the best model without saying how clearly."""
    none = {"bits_per_byte_low": None, "bits_per_byte_high": None}
    short = [result("lstm", 2.0, 0, 0, **none), result("gru", 2.01, 0, 0, **none)]
    assert verdict(short) == "lstm predicts this text best: 2.000 bits per byte, 25% of its size."
    assert verdict([result("lstm", 2.0, 1.9, 2.1), short[1]]) == verdict(short)
    assert verdict([short[0], result("gru", 2.01, 1.9, 2.1)]) == verdict(short)


def test_verdict_names_no_winner_if_hardly_any_network_was_trained() -> None:
    counted = result("ngram", 2.0, 1.9, 2.1, stopped="counted")
    hasty = result("lstm", 3.0, 2.9, 3.1, stopped="minutes", steps=7, epochs=0.01, curve=[])
    said = verdict([counted, hasty])
    assert said.startswith("No winner: lstm had time for 7 steps only.")
    assert "best" not in said
    shown_text = shown(leaderboard({"models": [counted, hasty]}))
    assert "No winner" in shown_text
    assert "predicts this text best" not in shown_text


def test_leaderboard_states_limits_and_mixture() -> None:
    curve = [{"seconds": i + 1.0, "valid_bits_per_byte": 5 - i / 4} for i in range(10)]
    cut = result("lstm", 2.0, 1.9, 2.1, stopped="minutes", steps=700, epochs=0.4, curve=curve)
    parts = [{"name": "lstm", "weight": 0.3}, {"name": "ngram", "weight": 0.7}]
    mixture = {"models": parts, "bits_per_byte": 1.8, "gain": 0.2, "gain_low": 0.15, "gain_high": 0.25}
    comparison = {"models": [cut, result("ngram", 2.2, 2.1, 2.3, stopped="counted")], "budget": {"minutes": 1.0}}
    text = shown(leaderboard(comparison | {"mixture": mixture | {"best_single": "lstm"}})).replace("\n", " ")
    assert "The network lstm was cut short by the clock, saw less than one pass of the text and was still" in text
    assert "More time may change the order." in text
    assert "Mixture of 70 % ngram and 30 % lstm: 1.800 bits per byte, 0.200 (0.150–0.250) less than lstm alone" in text


def test_verdict_explains_impossible_texts() -> None:
    both = verdict([result("lstm", 2.0, 1.9, 2.1), impossible("mle")])
    assert both.startswith("lstm predicts this text best: 2.000 bits per byte")
    assert both.endswith("It is impossible under mle (3 of 1,200 tokens have probability 0).")
    lossy = impossible("words") | {"bits_per_byte": None, "impossible": 1}
    alone = verdict([impossible("mle"), lossy])
    assert alone == (
        "This text is impossible under mle (3 of 1,200 tokens have probability 0) "
        "and words (1 of 1,200 tokens has probability 0)."
    )
    assert "inf" not in both + alone


@pytest.mark.parametrize("through_json", [False, True])
def test_leaderboard_prints_the_infinity_sign(through_json: bool) -> None:
    models = [result("lstm", 2.0, 1.9, 2.1), impossible("mle")]
    comparison = json.loads(json.dumps({"models": replace_nonfinite(models)})) if through_json else {"models": models}
    row = next(line for line in shown(leaderboard(comparison)).splitlines() if "mle" in line)
    assert row.split()[:5] == ["2", "mle", "∞", "∞", "∞"]  # rank, name, bits, word and token perplexity; no interval
    assert "inf" not in row
    live = LiveTable(["mle"], "here")
    live(Update("mle", "done", models[1]))
    assert "∞" in shown(live)
    assert "inf" not in shown(live)


def shown(what: Any) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(what)
    return console.export_text()


def test_leaderboard_ranks_exact_models_only() -> None:
    models = [
        result("lstm", 2.0, 1.9, 2.1),
        result("bert", 1.0, 0.9, 1.1, kind="pseudo"),
        {"name": "gru", "kind": "exact", "status": "failed", "error": "it broke"},
    ]
    text = shown(leaderboard({"models": models}))
    assert "lstm" in text
    assert "1.900–2.100" in text
    assert "bert: pseudo-likelihood, not ranked" in text
    assert "gru failed: it broke" in text
    assert "lstm predicts this text best" in text


# ------------------------------------------------------------------------------------------------ end to end


def test_compare_continues_after_a_failure_and_skips_done_models(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "out", ["lstm/tiny", "gru/tiny"], "python", 0.04)
    for entry in plan.entries:
        entry["recipe"]["tokenizer"] = {"kind": "bytes"}
        entry["recipe"]["model"] = {"width": 8}
    plan.entries[1]["recipe"]["phase"][0]["batches"] = {"kind": "rows", "rows": 10**7, "length": 5}
    live = LiveTable([entry["name"] for entry in plan.entries], "here")
    for update in compare_events(plan, "cpu"):
        live(update)
    assert "done" in shown(live)
    answer = Plan.open(tmp_path / "out").result("cpu")
    done, failed = answer["models"]
    assert (done["name"], done["status"]) == ("lstm-tiny", "done")
    assert done["bits_per_byte_low"] <= done["bits_per_byte"] <= done["bits_per_byte_high"]
    assert done["bits_per_byte"] < 8
    assert len(done["surprisal"]) == len(answer["passage"]["tokens"])
    assert (failed["status"], failed["slug"]) == ("failed", "gru")
    assert "rows need" in failed["error"]
    weights = (tmp_path / "out" / "lstm-tiny" / "model.safetensors").stat().st_mtime_ns
    again = list(compare_events(Plan.open(tmp_path / "out"), "cpu"))
    assert [u.status for u in again if u.name == "lstm-tiny"] == ["done"]
    assert (tmp_path / "out" / "lstm-tiny" / "model.safetensors").stat().st_mtime_ns == weights
    assert verdict([done]) in shown(leaderboard(answer)).replace("\n", " ")


def test_compare_warns_of_a_small_text_and_a_short_budget_before_training(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for split, count in (("train", 900), ("valid", 30), ("test", 30)):
        (data / f"{split}.txt").write_text("\n\n".join(f"the cat {i} sat on the mat" for i in range(count)))
    plan = make_plan(tmp_path / "out", ["gru/tiny"], str(data), 0.01)
    plan.entries[0]["recipe"]["model"] = {"width": 8}
    plan.entries[0]["recipe"]["tokenizer"] = {"kind": "words"}
    plan.entries[0]["recipe"]["compare"] = {"sizes": [{"width": 8}]}
    updates = list(compare_events(plan, "cpu"))
    assert [update.status for update in updates[:3]] == ["sizing", "warning", "training"]
    small, short_test, short = updates[1].values["warnings"]
    assert "only 6,300 words" in small
    assert "no intervals" in short_test
    assert "--minutes" in short
    answer = Plan.open(tmp_path / "out").result("cpu")
    assert answer["warnings"] == [small, short_test, short]
    assert answer["limits"]["networks"] == ["gru-tiny"]
    table = LiveTable(["gru-tiny"], "here")
    for update in updates:
        table(update)
    again = list(compare_events(Plan.open(tmp_path / "out"), "cpu"))
    assert [update.status for update in again] == ["done"]


def test_compare_estimates_the_passes_of_a_long_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that trains at 1,000 tokens per second sees less than one pass of the text in its 11 seconds."""
    monkeypatch.setattr(ladder, "estimate_tokens", lambda recipe, seconds, *rest: 1000 * seconds)
    plan = make_plan(tmp_path / "out", ["gru/tiny"], "python", 0.2)
    plan.entries[0]["recipe"]["tokenizer"] = {"kind": "bytes"}
    plan.entries[0]["recipe"]["compare"] = {"sizes": [{"width": 8}]}
    updates = compare_events(plan, "cpu")
    (warning,) = next(update.values["warnings"] for update in updates if update.status == "warning")
    assert "less than one pass of the training text (gru-tiny about 0." in warning
    assert "--minutes" in warning


def test_compare_mixes_an_n_gram_with_a_network(tmp_path: Path) -> None:
    """The mixture in the result equals one computed from the two runs, token by token."""
    plan = make_plan(tmp_path / "out", ["ngram/tiny", "gru/tiny"], "python", 0.05)
    for entry in plan.entries:
        entry["recipe"]["tokenizer"] = {"kind": "bytes"}
    plan.entries[1]["recipe"]["model"] = {"width": 16}
    plan.entries[1]["recipe"]["phase"][0]["batches"] = {"kind": "rows", "rows": 4, "length": 8}
    *_, last = compare_events(plan, "cpu")
    assert last.status == "done", last.values
    found = Plan.open(tmp_path / "out").result("cpu")["mixture"]
    shares = {part["name"]: part["weight"] for part in found["models"]}
    nats = []
    for name in shares:
        lm = load(tmp_path / "out" / name, "cpu")
        nats.append(lm.stream_nats(prepare(open_corpus("python"), "test", lm.tokenizer).ids))
    mixed = -np.log(sum(share * np.exp(-cost) for share, cost in zip(shares.values(), nats, strict=True)))
    assert found["token_perplexity"] == pytest.approx(math.exp(mixed.mean()), rel=1e-5)
    assert found["bits_per_byte"] <= min(model["bits_per_byte"] for model in plan.models.values()) + 0.01


def test_compare_accepts_recipes_without_authors(tmp_path: Path) -> None:
    """A user's recipe needs only a slug in [paper]."""
    path = tmp_path / "mine.toml"
    path.write_text('[paper]\nslug = "rnn"\n[tokenizer]\nkind = "bytes"\n[model]\nwidth = 4\n[[phase]]\nsteps = 3\n')
    plan = make_plan(tmp_path / "out", [str(path)], "python", 0.02)
    *_, last = compare_events(plan, "cpu")
    assert last.status == "done"
    assert last.values["title"].startswith("RNN")


COUNTING = """
[paper]
slug = "toy"
[tokenizer]
kind = "bytes"
[model]
[compare]
sizes = [{{ add = 9.0 }}, {{ add = {add} }}]
[[phase]]
kind = "count"
"""


def test_compare_gives_count_models_no_training_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two recipes one counts: the other gets all the time minus that for choosing its size."""
    monkeypatch.setitem(MODELS, "toy", "tests.support.toy_bigram:Bigram")
    (tmp_path / "toy.toml").write_text(COUNTING.format(add=0.5))
    plan = make_plan(tmp_path / "out", [str(tmp_path / "toy.toml"), "gru/tiny"], "python", 0.03)
    plan.entries[1]["recipe"]["model"] = {"width": 8}
    counting, descending = plan.entries
    live = LiveTable([entry["name"] for entry in plan.entries], "here")
    shares = []
    for update in compare_events(plan, "cpu"):
        live(update)
        if update.status == "training" and update.name == counting["name"]:
            shares.append("100 %" in shown(live))
    assert shares[-1]
    assert [plan.models[entry["name"]]["status"] for entry in plan.entries] == ["done", "done"]
    counted = load_recipe(str(tmp_path / "out" / counting["name"] / "recipe.toml"))
    assert (counted.phases[0].kind, counted.phases[0].minutes, counted.phases[0].data) == ("count", 0, "python")
    assert counted.model == {"add": 0.5}
    descended = load_recipe(str(tmp_path / "out" / descending["name"] / "recipe.toml"))
    assert 0.5 * TRAINING_SHARE * 0.03 < descended.phases[0].minutes <= TRAINING_SHARE * 0.03


def test_compare_explains_a_text_that_is_impossible_for_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single count model without smoothing: no time to divide, and infinite bits per byte."""
    monkeypatch.setitem(MODELS, "toy", "tests.support.toy_bigram:Bigram")
    (tmp_path / "toy.toml").write_text(COUNTING.format(add=0.0))
    data = tmp_path / "data"
    data.mkdir()
    for split, words in (("train", "ab"), ("valid", "ab"), ("test", "ba")):
        (data / f"{split}.txt").write_text(words * 300)
    plan = make_plan(tmp_path / "out", [str(tmp_path / "toy.toml")], str(data), 1)
    *_, last = compare_events(plan, "cpu")
    assert last.status == "done", last.values
    assert (last.values["bits_per_byte"], last.values["impossible"]) == (math.inf, 2)  # b first, and an end after a
    (model,) = Plan.open(tmp_path / "out").result("cpu")["models"]
    assert verdict([model]).startswith("This text is impossible under")
    json.loads((tmp_path / "out" / FILE).read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
