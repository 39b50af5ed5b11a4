"""lm-evaluation-harness on a run and local task files gives the numbers that nextword computes."""

from __future__ import annotations

import json
import math
import os
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when datasets is imported
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
pytest.importorskip("lm_eval", reason="LM-EVALUATION-HARNESS ABSENT: pip install lm_eval, or the adapter is untested")

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import Registry

from nextword.core.errors import InvalidSetting
from nextword.evaluation import lm_eval_adapter as harness
from nextword.evaluation.few_shot import evaluate_task
from nextword.evaluation.lm_eval_adapter import NextwordLM
from nextword.evaluation.prompt_tasks import load_task
from nextword.lm.loading import load
from nextword.models import model_class
from nextword.recipe import parse_recipe
from nextword.run_folder import RunFolder
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer

MODEL = {"width": 16, "layers": 2, "heads": 2, "window": 96, "dropout": 0.0}
PAIRS = [("tom purrs", "cat"), ("rex barks", "dog"), ("kit mews", "cat"), ("pup yaps", "dog"), ("tib naps", "cat")]

OURS = """
title = "cat or dog"
data = "."
layout = { test = ["test.jsonl"], train = ["train.jsonl"] }
reader = "jsonl"
fields = { says = "says", is = "is" }
split = "test"
context = "Q: {says}?\\nA:"
"""
THEIRS = """
dataset_path: json
dataset_kwargs:
  data_files:
    train: FOLDER/train.jsonl
    test: FOLDER/test.jsonl
training_split: train
test_split: test
fewshot_split: train
fewshot_config:
  sampler: first_n
"""
CHOICE = """task: cats
output_type: multiple_choice
doc_to_text: "Q: {{says}}?\\nA:"
doc_to_choice: ["cat", "dog", "a very long answer"]
doc_to_target: "{{['cat', 'dog'].index(is)}}"
metric_list:
  - metric: acc
"""
WRITTEN = """task: cats_written
output_type: generate_until
doc_to_text: "Q: {{says}}?\\nA:"
doc_to_target: "{{is}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 8
  do_sample: false
metric_list:
  - metric: exact_match
"""
ROLLING = """task: cats_rolling
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{says}}"
metric_list:
  - metric: bits_per_byte
  - metric: byte_perplexity
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with weights that nobody trained, far from uniform."""
    folder = tmp_path_factory.mktemp("harness") / "run"
    tokenizer = train_tokenizer({"kind": "bytes"}, ["x"])
    tables: dict[str, Any] = {"paper": {"slug": "gpt2"}, "tokenizer": {"kind": "bytes"}, "model": MODEL}
    tables["phase"] = [{"batches": {"kind": "blocks", "rows": 1, "length": 8}, "steps": 1}]
    made = RunFolder.create(folder, parse_recipe(tables, "harness"), tokenizer)
    torch.manual_seed(5)
    cls = model_class("gpt2")
    network = cls(cls.Config(**MODEL), vocabulary(tokenizer))
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(4)
        network.embedding.weight[128:] *= 0.01  # it writes ASCII
    made.save_model(network.save)
    return folder


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local")
    for split, pairs in (("train", PAIRS[:1]), ("test", PAIRS[1:])):
        rows = [json.dumps({"says": says, "is": kind}) for says, kind in pairs]
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n")
    for name, text in (("cats", CHOICE), ("cats_written", WRITTEN), ("cats_rolling", ROLLING)):
        (folder / f"{name}.yaml").write_text(text + THEIRS.replace("FOLDER", str(folder)))
    choices = 'choices = [" cat", " dog", " a very long answer"]\ngold = "is"\nlabels = { cat = 0, dog = 1 }\n'
    (folder / "cats.toml").write_text(OURS + choices)
    (folder / "written.toml").write_text(OURS + 'answer = " {is}"\nrule = "generate"\nlength = 8\n')
    return folder


def asked(*pairs: tuple[Any, ...]) -> list[Instance]:
    return [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]


def harness_says(run: Path, local: Path, out: Path, shots: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `lm_eval …` writes, by the command line that a user types."""
    words = ["--model", "nextword", "--model_args", f"path={run}", "--tasks", "cats,cats_written,cats_rolling"]
    words += ["--include_path", str(local), "--num_fewshot", str(shots), "--output_path", str(out), "--log_samples"]
    monkeypatch.setattr(sys, "argv", ["lm_eval", *words])
    monkeypatch.setenv("HF_HOME", str(out))
    harness.main()
    (results,) = out.rglob("results_*.json")
    found: dict[str, Any] = json.loads(results.read_text())["results"]
    for task in list(found):
        (lines,) = out.rglob(f"samples_{task}_2*.jsonl")
        found[task]["samples"] = [json.loads(line) for line in lines.read_text().splitlines()]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("shots", [0, 1])
def test_lm_eval_scores_equal_evaluate_tasks(
    run: Path, local: Path, tmp_path: Path, shots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = harness_says(run, local, tmp_path / "out", shots, monkeypatch)
    lm = load(run, "cpu")
    ours = evaluate_task(lm, load_task(str(local / "cats.toml")), shots)
    assert theirs["cats"]["acc,none"] == pytest.approx(ours.value)
    first = min(theirs["cats"]["samples"], key=lambda sample: sample["doc_id"])
    assert first["arguments"]["gen_args_0"]["arg_0"] == ours.first["prompt"]
    for sample in theirs["cats"]["samples"]:  # each likelihood, not the share alone
        for i, (answer, *_) in enumerate(sample["filtered_resps"]):
            given, text = (sample["arguments"][f"gen_args_{i}"][f"arg_{j}"] for j in (0, 1))
            assert float(answer) == pytest.approx(-lm.score(text, given).nats, abs=1e-4)
    written = evaluate_task(lm, load_task(str(local / "written.toml")), shots)
    assert theirs["cats_written"]["exact_match,none"] == pytest.approx(written.value)
    sample = min(theirs["cats_written"]["samples"], key=lambda sample: sample["doc_id"])
    assert sample["resps"][0][0].strip() == written.first["predicted"]
    if not shots:
        score = sum((lm.score(says) for says, _ in PAIRS[2:]), start=lm.score(PAIRS[1][0]))
        assert theirs["cats_rolling"]["bits_per_byte,none"] == pytest.approx(score.bits_per_byte(), rel=1e-5)
        assert theirs["cats_rolling"]["byte_perplexity,none"] == pytest.approx(2 ** score.bits_per_byte(), rel=1e-5)


def test_lm_eval_methods_score_and_generate_strings(run: Path) -> None:
    model = NextwordLM(run, device="cpu")
    lm = model.lm
    pairs = [("", "a b"), ("the cat", " sat"), ("x" * 200, " end"), ("café", " crème")]
    found = model.loglikelihood(asked(*pairs))
    for (given, text), (log_p, greedy) in zip(pairs, found, strict=True):
        assert log_p == pytest.approx(-lm.score(text, given).nats, abs=1e-4)
        assert isinstance(greedy, bool)
    text = "one text, longer than the window, " * 5
    assert model.loglikelihood_rolling(asked((text,), ("a",)))[0] == pytest.approx(-lm.score(text).nats, abs=1e-3)
    own = model.generate_until(asked(("the cat", {"until": [], "max_gen_toks": 6})))[0]
    assert own == "".join(piece.text for piece in lm.generate("the cat", stop=harness.Stop(6)))
    assert model.loglikelihood(asked(("the cat", own)))[0][1]  # it is what greedy decoding writes
    assert not model.loglikelihood(asked(("the cat", own[:-1] + chr(ord(own[-1]) ^ 1))))[0][1]
    cut = model.generate_until(asked(("the cat", {"until": own[2], "max_gen_toks": 6})))[0]
    assert cut == own[: own.index(own[2])]
    assert model.loglikelihood([]) == []
    assert math.isfinite(found[0][0])


def test_lm_eval_generation_arguments_map_or_raise(run: Path) -> None:
    model = NextwordLM(run, device="cpu")
    drawn = {"do_sample": True, "temperature": 1.0, "top_k": 5, "seed": 1, "max_gen_toks": 5}
    one, other = model.generate_until(asked(("a", drawn), ("a", {**drawn})))
    assert one
    assert other
    with pytest.raises(InvalidSetting) as unknown:
        model.generate_until(asked(("a", {"penalty_alpha": 0.6})))
    assert unknown.value.key == "penalty_alpha"
    with pytest.raises(InvalidSetting) as missing:
        NextwordLM()
    assert missing.value.key == "path"


def test_lm_eval_entry_point_loads_adapter(run: Path) -> None:
    table = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    (place,) = table["project"]["entry-points"]["lm_eval.models"].items()
    registry: Any = Registry("model", base_cls=LM)
    registry.register(place[0], target=EntryPoint(place[0], place[1], "lm_eval.models"))  # as the harness does
    assert registry.get("nextword") is NextwordLM
    made = NextwordLM.create_from_arg_obj({"path": str(run)}, {"device": "cuda:0", "batch_size": 1, "x": None})
    assert made.lm.can >= {"score", "generate"}
