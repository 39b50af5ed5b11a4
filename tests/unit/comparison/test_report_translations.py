"""Comparing sequence-to-sequence models: examples, attention maps, report and terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import nextword
from nextword.cli import app
from nextword.comparison import translation as examples
from nextword.comparison.report import render
from nextword.comparison.terminal import leaderboard
from nextword.core.types import Document, Greedy
from nextword.html.charts import MIN_SHARE, attention_map
from nextword.recipe import load_recipe
from nextword.tokenizers.training import train_tokenizer
from nextword.training.train import train_events
from tests.support.small_pairs import write_pairs
from tests.unit.comparison.test_report import Page, comparison, model

SOURCE, TARGET = ["the", "earth", "⏎"], ["die", "Erde", "⏎"]
WEIGHTS = [[0.9, 0.1, 0.0], [0.05, 0.95, 0.0], [0.0, 0.005, 0.995]]


def translator(name: str, bleu: float, **more: Any) -> dict[str, Any]:
    answer = {"written": f"was {name} <b>schreibt</b>", "map": {"source": SOURCE, "target": TARGET, "weights": WEIGHTS}}
    scores = {"bleu": bleu, "bleu_low": bleu - 1, "bleu_high": bleu + 1, "chrf": 50.0, "bleu_lowercase": bleu + 0.5}
    made = model(name, 0.0, kind="translator", pairs=1000, examples=[answer], sample=None, **scores)
    curve = [{"seconds": 10.0 * i, "valid_perplexity": 100.0 / i} for i in range(1, 6)]
    none = {key: None for key in made if key.startswith(("bits_per_byte", "word_perplexity"))}
    return {**made, **none, "token_perplexity": 12.0, "curve": curve, **more}


PAIRS = {"passage": None, "examples": [{"source": "the earth & sky", "target": "die Erde"}]}


# ------------------------------------------------------------------------------------------------ the map


def test_attention_map_draws_visible_weights() -> None:
    svg = attention_map(SOURCE, TARGET, WEIGHTS, "Where it looked")
    shares = [float(x) for x in re.findall(r'fill-opacity="([\d.]+)"', svg)]
    assert shares == pytest.approx([w for row in WEIGHTS for w in row if w >= MIN_SHARE], abs=0.01)
    assert "Erde ← earth: 95%" in svg
    assert 'aria-label="Where it looked. die looks at the; Erde looks at earth; ⏎ looks at ⏎."' in svg
    assert svg.count("<text") == 6
    Page(svg)


def test_attention_map_has_sources_across_and_targets_down() -> None:
    svg = attention_map(["a", "b"], ["x", "y"], [[0.0, 1.0], [1.0, 0.0]], "")
    (right, upper), (left, lower) = (
        (float(x), float(y)) for x, y in re.findall(r'class="share" x="([\d.]+)" y="([\d.]+)"', svg)
    )
    assert left < right
    assert upper < lower


@pytest.mark.parametrize("weights", [[], [[0.5]], [[None, None, None]] * 3])
def test_attention_map_of_nothing_is_empty(weights: Any) -> None:
    assert 'class="share"' not in attention_map(SOURCE, TARGET, weights, "")


def test_attention_map_escapes_and_shortens_words() -> None:
    svg = attention_map(["<script>", "a" * 40], ["&"], [[0.5, 0.5]], '"')
    assert "<script>" not in svg
    assert "a" * 17 + "…" in svg
    Page(svg)


def test_attention_map_leaves_space_for_wide_letters() -> None:
    """Chinese letters are as wide as high, so labels need more space."""
    svg = attention_map(["x"], ["客户服务投诉与建议"], [[1.0]], "")
    (left,) = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">', svg)
    assert float(left) >= 9 * 13


# ------------------------------------------------------------------------------------------------ words


def test_attention_by_word_sums_over_tokens() -> None:
    tokenizer = train_tokenizer({"kind": "bytes"}, ())

    class Model:
        def alignment(self, text: str, source: str) -> Any:
            """Each byte of "xy z" attends to the bytes of "ab" with 3/4 in total, and to " c" with the rest."""
            row = [0.25, 0.5, 0.0, 0.25, 0.0]
            return type("Found", (), {"weights": np.array([row, row, [0, 0, 0.5, 0.5, 0], row, [0, 0, 0, 0, 1.0]])})

    lm: Any = Model()
    lm.tokenizer = tokenizer
    answer = examples.attention_by_word(lm, "xy z", "ab c")
    assert answer["source"] == ["ab", "c", "⏎"]
    assert answer["target"] == ["xy", "z", "⏎"]
    assert answer["weights"][0] == [0.75, 0.25, 0.0]
    assert answer["weights"][2] == [0.0, 0.0, 1.0]
    assert all(sum(row) == pytest.approx(1) for row in answer["weights"])


def test_choose_pairs_prefers_readable_lengths() -> None:
    pairs = [Document("t " * n, source="s " * n) for n in (1, 5, 9, 14, 15, 30, 8, 7)]
    assert {len(p["source"].split()) for p in examples.choose_pairs(pairs)} <= {5, 9, 14, 8, 7}
    assert len(examples.choose_pairs(pairs)) == 4
    assert [len(p["source"].split()) for p in examples.choose_pairs(pairs[4:6])] == [
        15,
        30,
    ]  # none fits: the shortest pairs
    assert examples.choose_pairs([]) == []


# ------------------------------------------------------------------------------------------------ the page


def test_report_shows_scores_texts_and_maps() -> None:
    two = [translator("small", 20.0), translator("large", 30.0)]
    html = render(comparison(*two, **PAIRS))
    page = Page(html)
    assert "On web , LARGE translates best: BLEU 30.0 (29.0–31.0)." in page.text
    assert "not clearly different" not in page.text
    assert page.text.index("large LARGE") < page.text.index("small SMALL")
    assert "the earth & sky" in page.text
    assert "was small <b>schreibt</b>" in page.text  # escaped text
    assert html.count('class="map"') == 2
    assert "Perplexity of validation targets" in html
    assert "nextword generate runs/compare/large --file sources.txt --beam 5" in page.text
    assert "bits per byte" not in page.text.lower()
    close = render(comparison(translator("small", 29.0), translator("large", 30.0), **PAIRS))
    assert "But small is not clearly different." in Page(close).text


def test_report_omits_missing_parts() -> None:
    bare = translator("one", 20.0, examples=[{"written": "x", "map": None}], curve=[])
    html = render(comparison(bare, **PAIRS))
    assert 'class="map"' not in html
    assert "On web , ONE translates: BLEU 20.0" in Page(html).text
    unscored = {k: v for k, v in bare.items() if not k.startswith(("bleu", "chrf"))}
    page = Page(render(comparison(unscored, **{**PAIRS, "examples": []})))
    assert "12.0 perplexity" in page.text
    assert "What becomes of a source" not in page.text


def test_leaderboard_lists_translators_best_first(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    Console(width=100).print(leaderboard({"models": [translator("small", 20.0), translator("large", 30.0)]}))
    shown = capsys.readouterr().out
    assert shown.index("large") < shown.index("small")
    assert "29.0–31.0" in shown


# ------------------------------------------------------------------------------------------------ the command


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Two translators, with and without attention, and one language model."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_pairs(tmp_path_factory.mktemp("pairs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        for attention in ("bahdanau", "none"):
            changes = [f"phase.0.data={data}", "tokenizer.size=280", "phase.0.steps=3", f"model.attention={attention}"]
            list(train_events(load_recipe("seq2seq/tiny", changes), folder / attention, device="cpu"))
        plain = load_recipe("rnn/tiny", ["phase.0.data=python", "phase.0.steps=2"])
        list(train_events(plain, folder / "plain", device="cpu"))
    return folder / "bahdanau", folder / "none", folder / "plain"


def test_compare_uses_the_pairs_of_the_runs(runs: tuple[Path, Path, Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(runs[0]), str(runs[1]), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "nextword generate" in result.output
    answer = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert answer["data"]["name"].endswith(":xx-yy")
    assert len(answer["examples"]) == examples.NUM_EXAMPLES
    item, other = sorted(answer["models"], key=lambda m: m["name"])
    assert {item["kind"], other["kind"]} == {"translator"}
    for shown, example in zip(item["examples"], answer["examples"], strict=True):
        if shown["written"]:
            assert shown["map"]["source"] == [*example["source"].split(), "⏎"]
            assert all(sum(row) == pytest.approx(1, abs=0.01) for row in shown["map"]["weights"])
    assert all(shown["map"] is None for shown in other["examples"])  # it has no attention
    lm = nextword.load(runs[0], device="cpu")
    assert item["examples"] == json.loads(json.dumps(examples.translate_examples(lm, answer["examples"], Greedy())))
    Page((tmp_path / "out" / "report.html").read_text())


def test_compare_trains_a_recipe_of_pairs(tmp_path: Path) -> None:
    data = write_pairs(tmp_path)
    args = ["compare", "seq2seq/tiny", "--data", data, "--minutes", "0.02", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*args, "--set", "tokenizer.size=280", "--json"])
    assert result.exit_code == 0, result.output
    (item,) = json.loads(result.stdout)["models"]
    assert item["kind"] == "translator"
    assert item["pairs"] == 70
    assert item["curve"][-1]["valid_perplexity"] > 1


def test_compare_rejects_translators_with_language_models(runs: tuple[Path, Path, Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(runs[0]), str(runs[2]), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "bahdanau" in result.output
    assert "plain" in result.output
