"""Fine-tuning BERT-base, compared with the Trainer of transformers in one run: examples per second.

    python benchmarks/finetune.py --vocabulary FILE                      # vocab.txt of BERT, uncased
    python benchmarks/finetune.py --vocabulary FILE --data RTE --rows 16
    python benchmarks/finetune.py --vocabulary FILE --rehearse           # tiny sizes, to check that it runs

Both train the same network with random weights: only speed is measured. Both have the same batch size, bf16, AdamW (the
peer's is fused), clipping, dropout, and texts of at most 128 tokens. Making batches is timed, tokenizing is not. The
peer pads to the longest example of a batch: examples are in random order or, as a second contender, grouped by length.
nextword packs examples without padding. Each contender trains from scratch in every round; the first steps are not
timed. The table has medians over rounds, and the ratio to the better peer.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nextword.conversion import convert
from nextword.tasks.plan import make_plan
from nextword.tasks.text_data import read_one
from nextword.training.events import Job
from nextword.training.trainer import Trainer as NextwordTrainer

CUDA = torch.cuda.is_available()
LENGTH = 128


def now() -> float:
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter()


def made(folder: Path, vocabulary: Path, sizes: dict[str, Any]) -> Path:
    """Save a BERT with random weights in the format of transformers."""
    import transformers

    folder.mkdir()
    shutil.copyfile(vocabulary, folder / "vocab.txt")
    tokenizer = transformers.BertTokenizer.from_pretrained(str(folder))
    config = transformers.BertConfig(vocab_size=len(tokenizer), **sizes)
    transformers.BertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def peer(folder: Path, texts: list[list[str]], labels: list[int], given: argparse.Namespace, grouped: bool) -> float:
    """Seconds per step of transformers' Trainer."""
    import transformers
    from torch.utils.data import Dataset

    class Clock(transformers.TrainerCallback):
        began = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            if state.global_step == given.warm:
                self.began = now()

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(*texts, truncation=True, max_length=LENGTH)

    class Rows(Dataset):
        def __len__(self) -> int:
            return len(labels)

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {**{key: value[i] for key, value in encoded.items()}, "labels": labels[i]}

    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=max(labels) + 1)
    clock = Clock()
    with tempfile.TemporaryDirectory() as out:
        options: dict[str, Any] = {"train_sampling_strategy": "group_by_length"} if grouped else {}
        arguments = transformers.TrainingArguments(
            out,
            per_device_train_batch_size=given.rows,
            max_steps=given.warm + given.steps,
            learning_rate=3e-5,
            warmup_steps=given.warm,
            weight_decay=0.01,
            bf16=CUDA,
            use_cpu=not CUDA,
            optim="adamw_torch_fused" if CUDA else "adamw_torch",
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **options,
        )
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=Rows(),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            callbacks=[clock],
        )
        trainer.train()
        return (now() - clock.began) / given.steps


def ours(run: Path, given: argparse.Namespace) -> Callable[[], float]:
    changes = [f"phase.0.batches.rows={given.rows}", *given.changes]
    plan = make_plan("bert/finetune", str(run), given.data, changes=changes)

    def measure() -> float:
        recipe = plan.with_seed(1)
        network = plan.task.build_model(recipe, plan.tokenizer)
        trainer = NextwordTrainer(
            Job(network, recipe.phases[0], 0, plan.examples["train"], None, False, None, plan.device)
        )
        batches = trainer.batches()
        for _ in range(given.warm):
            trainer.step(batches)
        began = now()
        for _ in range(given.steps):
            trainer.step(batches)
        return (now() - began) / given.steps

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=Path, required=True, help="vocab.txt of BERT, uncased")
    parser.add_argument("--data", default="SST-2")
    parser.add_argument("--rows", type=int, default=32, help="examples per step")
    parser.add_argument("--warm", type=int, default=50, help="steps before timing starts")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--set", dest="changes", action="append", default=[], metavar="A.B=C", help="change nextword's recipe"
    )
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes")
    given = parser.parse_args()
    sizes: dict[str, Any] = {}
    if given.rehearse:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
        given.warm, given.steps, given.rounds = 2, 4, 2
    where = torch.cuda.get_device_name() if CUDA else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {where}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder = made(Path(place) / "peer", given.vocabulary, sizes)
        run = Path(place) / "run"
        convert(str(folder), str(run))
        data = read_one(given.data)
        rows = data.splits["train"]
        labels = [data.labels.index(label) for label in rows.labels or []]
        texts = [rows.texts] + ([rows.seconds] if rows.seconds else [])
        contenders: dict[str, Callable[[], float]] = {
            "Trainer": lambda: peer(folder, texts, labels, given, False),
            "Trainer, grouped by length": lambda: peer(folder, texts, labels, given, True),
            "nextword": ours(run, given),
        }
        took: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(given.rounds):
            for name, work in contenders.items():
                took[name].append(work())
    better = min((name for name in took if name != "nextword"), key=lambda name: statistics.median(took[name]))
    print(
        f"\n| fine-tuning BERT-base on {given.data}, batches of {given.rows}, bf16 | examples/s | ms a step | ratio |"
    )
    print("| --- | --- | --- | --- |")
    for name, each in took.items():
        step = statistics.median(each)
        ratios = sorted(a / b for a, b in zip(took[better], each, strict=True))
        shown = "" if name != "nextword" else f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f}–{ratios[-1]:.2f})"
        print(f"| {name} | {given.rows / step:,.0f} | {1e3 * step:.2f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
