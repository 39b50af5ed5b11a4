"""Howard & Ruder 2018, figure 3: with few labels, a language model of unlabeled text replaces many of them.

The language has two topics with thirty words each. Sixty labeled sentences show only some of these words; the
unlabeled text shows which words belong together.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from nextword import tasks as transfer
from nextword.lm.loading import load
from nextword.recipe import load_recipe
from nextword.training.train import train_events
from tests.support.tiny_topics import draw_labeled_sentences, draw_text
from tests.support.tiny_transfer import write_table


def test_ulmfit_pretrained_beats_scratch_with_few_labels(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for seed, (split, n) in enumerate((("train", 1500), ("valid", 50), ("test", 50))):
        (tmp_path / "plain" / f"{split}.txt").write_text(draw_text(n, seed))
    recipe = load_recipe("ulmfit/tiny", ["phase.0.steps=300", "phase.0.optimizer.rate=2e-2"])
    list(train_events(recipe.with_data([str(tmp_path / "plain")]), tmp_path / "lm", device="cpu"))
    fresh = draw_labeled_sentences(200, seed=99)
    found: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(3):
        data = write_table(tmp_path / f"{seed}.csv", ["text", "label"], draw_labeled_sentences(60, seed=seed))
        for scratch, rights in found.items():
            out = tmp_path / f"{seed}-{scratch}"
            options = {"seed": seed, "scratch": scratch, "device": "cpu", "changes": ["phase.*.epochs=4"]}
            transfer.run("ulmfit/tiny-classify", tmp_path / "lm", str(data), out, **options)
            said = load(out, device="cpu").predict([one for one, _ in fresh])
            rights.append(sum(p.label == topic for p, (_, topic) in zip(said, fresh, strict=True)) / len(fresh))
    pretrained, alone = statistics.median(found[False]), statistics.median(found[True])
    assert pretrained > 0.85
    assert pretrained - alone > 0.1, found
