"""The part of the report about models that make a text from a source, and the comparison it is made from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.small_pairs import write_pairs
from tests.unit.test_report import Page, comparison, model
from typer.testing import CliRunner

import nextword
from nextword.cli import app
from nextword.compare import translation as examples
from nextword.compare.report import render
from nextword.compare.terminal import leaderboard
from nextword.core.types import Document, Greedy
from nextword.html.charts import FAINT, heat_map
from nextword.recipe import load_recipe
from nextword.tokenizers.training import train_tokenizer
from nextword.training.train import train

SOURCE, TARGET = ["the", "earth", "⏎"], ["die", "Erde", "⏎"]
WEIGHTS = [[0.9, 0.1, 0.0], [0.05, 0.95, 0.0], [0.0, 0.005, 0.995]]


def translator(name: str, bleu: float, **more: Any) -> dict[str, Any]:
    found = {"written": f"was {name} <b>schreibt</b>", "map": {"source": SOURCE, "target": TARGET, "weights": WEIGHTS}}
    scores = {"bleu": bleu, "bleu_low": bleu - 1, "bleu_high": bleu + 1, "chrf": 50.0, "bleu_lowercase": bleu + 0.5}
    made = model(name, 0.0, kind="translator", pairs=1000, examples=[found], sample=None, **scores)
    curve = [{"seconds": 10.0 * i, "valid_perplexity": 100.0 / i} for i in range(1, 6)]
    none = {key: None for key in made if key.startswith(("bits_per_byte", "word_perplexity"))}
    return {**made, **none, "token_perplexity": 12.0, "curve": curve, **more}


PAIRS = {"passage": None, "examples": [{"source": "the earth & sky", "target": "die Erde"}]}


# ------------------------------------------------------------------------------------------------ the map


def test_a_map_has_a_cell_for_every_share_that_can_be_seen() -> None:
    svg = heat_map(SOURCE, TARGET, WEIGHTS, "Where it looked")
    shares = [float(x) for x in re.findall(r'fill-opacity="([\d.]+)"', svg)]
    assert shares == pytest.approx([w for row in WEIGHTS for w in row if w >= FAINT], abs=0.01)
    assert "Erde ← earth: 95%" in svg
    assert 'aria-label="Where it looked. die looks at the; Erde looks at earth; ⏎ looks at ⏎."' in svg
    assert svg.count("<text") == 6
    Page(svg)


def test_rows_go_down_and_columns_across() -> None:
    svg = heat_map(["a", "b"], ["x", "y"], [[0.0, 1.0], [1.0, 0.0]], "")
    (right, upper), (left, lower) = (
        (float(x), float(y)) for x, y in re.findall(r'class="share" x="([\d.]+)" y="([\d.]+)"', svg)
    )
    assert left < right
    assert upper < lower


@pytest.mark.parametrize("weights", [[], [[0.5]], [[None, None, None]] * 3])
def test_a_map_of_nothing_is_no_map_or_an_empty_one(weights: Any) -> None:
    assert 'class="share"' not in heat_map(SOURCE, TARGET, weights, "")


def test_words_of_a_map_are_escaped_and_not_too_long() -> None:
    svg = heat_map(["<script>", "a" * 40], ["&"], [[0.5, 0.5]], '"')
    assert "<script>" not in svg
    assert "a" * 17 + "…" in svg
    Page(svg)


def test_wide_letters_have_the_room_they_need() -> None:
    """A map is cut off at its edge, and Chinese letters are as wide as they are high."""
    svg = heat_map(["x"], ["客户服务投诉与建议"], [[1.0]], "")
    (left,) = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">', svg)
    assert float(left) >= 9 * 13


# ------------------------------------------------------------------------------------------------ words


def test_shares_of_tokens_become_shares_of_words() -> None:
    tokenizer = train_tokenizer({"kind": "bytes"}, ())

    class Model:
        def alignment(self, text: str, source: str) -> Any:
            """Each byte of "xy z" looks at "ab" with 3/4, a quarter at each, and at " c" with the rest."""
            row = [0.25, 0.5, 0.0, 0.25, 0.0]
            return type("Found", (), {"weights": np.array([row, row, [0, 0, 0.5, 0.5, 0], row, [0, 0, 0, 0, 1.0]])})

    lm: Any = Model()
    lm.tokenizer = tokenizer
    found = examples.looked(lm, "xy z", "ab c")
    assert found["source"] == ["ab", "c", "⏎"]
    assert found["target"] == ["xy", "z", "⏎"]
    assert found["weights"][0] == [0.75, 0.25, 0.0]
    assert found["weights"][2] == [0.0, 0.0, 1.0]
    assert all(sum(row) == pytest.approx(1) for row in found["weights"])


def test_examples_have_a_length_that_can_be_read() -> None:
    pairs = [Document("t " * n, source="s " * n) for n in (1, 5, 9, 14, 15, 30, 8, 7)]
    assert {len(p["source"].split()) for p in examples.chosen(pairs)} <= {5, 9, 14, 8, 7}
    assert len(examples.chosen(pairs)) == 4
    assert [len(p["source"].split()) for p in examples.chosen(pairs[4:6])] == [15, 30]  # none fits: the shortest
    assert examples.chosen([]) == []


# ------------------------------------------------------------------------------------------------ the page


def test_the_page_shows_scores_texts_and_maps() -> None:
    two = [translator("small", 20.0), translator("large", 30.0)]
    html = render(comparison(*two, **PAIRS))
    page = Page(html)
    assert "On web , LARGE translates best: BLEU 30.0 (29.0–31.0)." in page.text
    assert "not clearly different" not in page.text
    assert page.text.index("large LARGE") < page.text.index("small SMALL")
    assert "the earth & sky" in page.text
    assert "was small <b>schreibt</b>" in page.text  # as text
    assert html.count('class="map"') == 2
    assert "Perplexity of validation targets" in html
    assert "nextword generate runs/compare/large --file sources.txt --beam 5" in page.text
    assert "bits per byte" not in page.text.lower()
    close = render(comparison(translator("small", 29.0), translator("large", 30.0), **PAIRS))
    assert "But small is not clearly different." in Page(close).text


def test_what_is_missing_is_left_out() -> None:
    bare = translator("one", 20.0, examples=[{"written": "x", "map": None}], curve=[])
    html = render(comparison(bare, **PAIRS))
    assert 'class="map"' not in html
    assert "On web , ONE translates: BLEU 20.0" in Page(html).text
    unscored = {k: v for k, v in bare.items() if not k.startswith(("bleu", "chrf"))}
    page = Page(render(comparison(unscored, **{**PAIRS, "examples": []})))
    assert "12.0 perplexity" in page.text
    assert "What becomes of a source" not in page.text


def test_the_terminal_shows_them_best_first(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    Console(width=100).print(leaderboard({"models": [translator("small", 20.0), translator("large", 30.0)]}))
    shown = capsys.readouterr().out
    assert shown.index("large") < shown.index("small")
    assert "29.0–31.0" in shown


# ------------------------------------------------------------------------------------------------ the command


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Two translators, with attention and without, and one that models plain text."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_pairs(tmp_path_factory.mktemp("pairs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        for attention in ("bahdanau", "none"):
            changes = [f"phase.0.data={data}", "tokenizer.size=280", "phase.0.steps=3", f"model.attention={attention}"]
            list(train(load_recipe("seq2seq/tiny", changes), folder / attention, device="cpu"))
        plain = load_recipe("rnn/tiny", ["phase.0.data=python", "phase.0.steps=2"])
        list(train(plain, folder / "plain", device="cpu"))
    return folder / "bahdanau", folder / "none", folder / "plain"


def test_runs_of_pairs_are_compared_on_their_own_pairs(runs: tuple[Path, Path, Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(runs[0]), str(runs[1]), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "nextword generate" in result.output
    found = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert found["data"]["name"].endswith(":xx-yy")
    assert len(found["examples"]) == examples.SHOWN
    one, other = sorted(found["models"], key=lambda m: m["name"])
    assert {one["kind"], other["kind"]} == {"translator"}
    for shown, example in zip(one["examples"], found["examples"], strict=True):
        if shown["written"]:
            assert shown["map"]["source"] == [*example["source"].split(), "⏎"]
            assert all(sum(row) == pytest.approx(1, abs=0.01) for row in shown["map"]["weights"])
    assert all(shown["map"] is None for shown in other["examples"])  # it looks at nothing
    lm = nextword.load(runs[0], device="cpu")
    assert one["examples"] == json.loads(json.dumps(examples.written(lm, found["examples"], Greedy())))
    Page((tmp_path / "out" / "report.html").read_text())


def test_a_recipe_of_pairs_is_trained_and_compared(tmp_path: Path) -> None:
    data = write_pairs(tmp_path)
    args = ["compare", "seq2seq/tiny", "--data", data, "--minutes", "0.02", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*args, "--set", "tokenizer.size=280", "--json"])
    assert result.exit_code == 0, result.output
    (one,) = json.loads(result.stdout)["models"]
    assert one["kind"] == "translator"
    assert one["pairs"] == 70
    assert one["curve"][-1]["valid_perplexity"] > 1


def test_translators_and_plain_models_are_not_compared(runs: tuple[Path, Path, Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(runs[0]), str(runs[2]), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "bahdanau make a text from a source, plain model plain text" in said
    assert "Compare them apart." in said
