"""The public API on one screen: train, load, score, guess, write, embed, compare."""

from __future__ import annotations

from pathlib import Path

import nextword
from nextword.comparison.compare import compare_events, make_plan
from nextword.comparison.terminal import verdict


def test_the_tour(tmp_path: Path) -> None:
    # Train: a recipe, a folder; events as it goes. It ends with an evaluation and a model card.
    for event in nextword.train("gru/tiny", out=tmp_path / "gru", steps=40, events=True):
        assert event.kind != "valid" or event.values["perplexity"] > 1
    run = nextword.Run(tmp_path / "gru")
    assert run.evaluation is not None
    assert run.evaluation.bits_per_byte > 0
    assert (tmp_path / "gru" / "card.md").is_file()
    assert nextword.evaluate(run, progress=False).bits_per_byte == run.evaluation.bits_per_byte

    # Load: plain strings from here on.
    lm = nextword.load(tmp_path / "gru")
    assert lm.can == {"score", "next", "generate", "embed"}

    # How likely is a text? Sums, and what follows from them.
    score = lm.score("the value of the expression")
    assert score.nats > 0
    assert 0 < score.bits_per_byte() < 8
    assert lm.score(" of the expression", given="the value").nats < score.nats

    # What comes next?
    (best, *_) = lm.next("the value of", k=5)
    assert best.text
    assert 0 < best.probability < 1

    # Write on: pieces, as they come.
    how, stop = nextword.Sample(temperature=0.8, seed=1), nextword.Stop(max_tokens=20)
    text = "".join(piece.text for piece in lm.generate("The value", how, stop))
    assert text == "".join(piece.text for piece in lm.generate("The value", how, stop))

    # A vector a text, from any layer.
    assert lm.embed(["one text", "another"], layer=-1).shape == (2, lm.network.widths[-1])

    # Compare: what is trained already, and a recipe, on the same held-out bytes.
    plan = make_plan(tmp_path / "compare", [str(tmp_path / "gru"), "nplm/tiny"], data="python", minutes=0.05)
    done = [update.values for update in compare_events(plan) if update.status == "done"]
    ranked = sorted(done, key=lambda model: model["bits_per_byte"])
    assert {model["name"] for model in ranked} == {"gru", "nplm-tiny"}
    assert verdict(ranked).startswith(f"{ranked[0]['name']} predicts this text best")
