"""Tiny runs of many families in one folder, for a server to serve: a few seconds to train all of them."""

from __future__ import annotations

import random
from pathlib import Path

import nextword
from tests.support.tiny_questions import draw_endings, make_squad, write_json, write_json_lines
from tests.support.tiny_tagged import write_tagged_data

TALE = (
    "the king of a land went to see his house and all people that were in it said do not go away from us for we have "
    "no bread"
)
UPLOAD = "".join(f"{TALE} . {n} and {n * n} .\n" for n in range(150))  # long enough to train on
LINES = 400
# name → recipe, and changes of it
LANGUAGE_MODELS = {
    "ngram": ("ngram/kn5", ("model.order=3",)),
    "lstm": ("lstm/tiny", ('tokenizer={kind="bytes"}', "model.width=24", "phase.0.steps=40")),
    "gpt2": ("gpt2/tiny", ("phase.0.steps=30",)),
    "bert": ("bert/tiny", ("phase.0.steps=30",)),
    "glm": ("glm/tiny", ("phase.0.steps=10",)),
    "word2vec": ("word2vec/tiny", ()),
}
TASKS = {"topics": "bert/finetune", "tags": "bert/tag", "answers": "bert/span", "choices": "bert/choice"}


def draw_sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(TALE.split(), k=draw.randint(4, 12)))


def train_runs(folder: Path) -> Path:
    """Train every run into `folder`, each with the name of its family or of its task."""
    draw = random.Random(1)
    data = folder.parent / "data"
    data.mkdir(parents=True, exist_ok=True)
    text = data / "text.txt"
    text.write_text("".join(draw_sentence(draw) + " .\n" for _ in range(LINES)), encoding="utf-8")
    pairs = data / "pairs.tsv"
    sources = [draw_sentence(draw) for _ in range(LINES)]
    pairs.write_text("".join(f"{s}\t{' '.join(reversed(s.split()))}\n" for s in sources), encoding="utf-8")
    topics = data / "topics.csv"
    rows = [f"{draw_sentence(draw)},{('good', 'bad')[i % 2]}" for i in range(80)]
    topics.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    squad = data / "squad"
    for split, n in (("train", 60), ("dev", 20)):
        write_json(squad / f"{split}.json", make_squad(n))
    choices = data / "choices"
    choices.mkdir()
    for split, n in (("train", 60), ("dev", 20)):
        write_json_lines(choices / f"{split}.jsonl", draw_endings(n))
    sets = {"topics": topics, "tags": write_tagged_data(data / "tags", 60, 20), "answers": squad, "choices": choices}
    for name, (recipe, changes) in LANGUAGE_MODELS.items():
        nextword.train(recipe, text, out=folder / name, changes=changes, progress=False, device="cpu")
    nextword.train("seq2seq/tiny", pairs, out=folder / "seq2seq", steps=30, progress=False, device="cpu")
    for name, recipe in TASKS.items():
        nextword.transfer(
            recipe, folder / "bert", sets[name], out=folder / name, epochs=1, progress=False, device="cpu"
        )
    return folder
