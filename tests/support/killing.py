"""Kill training processes, and compare what resuming gives with an uninterrupted run.

    python -m tests.support.killing families N FOLDER [FAMILY …]     at random moments: `make kill N=100`
    python -m tests.support.killing renames TEXT FOLDER              right before every rename

The parent trains the uninterrupted run, which also imports everything; each child is a fork of it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import nextword
from nextword.core.scratch import PREFIX
from nextword.recipe import load_recipe
from nextword.run_folder import RunFolder
from nextword.training.train import train_events
from tests.support.tiny_transfer import draw_color_texts, draw_sentence, make_run, write_table

SMALL = ['tokenizer={kind="bytes"}', "model.width=8", "phase.0.log_every=1", "phase.0.save_every=0"]


def run_child(work: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# ------------------------------------------------------------------------------------------------ at random moments

TIMES = ("seconds", "tokens_per_second")
NOTES = ("notes",)  # they say how options were guessed, and resuming has none
Work = Callable[[Path, bool], object]  # (folder, resume): train to the end


@dataclass(frozen=True)
class Family:
    """Something that is trained, as `work`, from what `prepare` has written next to it."""

    name: str
    work: Work
    prepare: Callable[[], None] = lambda: None
    compares_all: bool = True  # False: only the files of models that are not trained by the clock


def train_family(slug: str, *changes: str, data: str = "my.txt", name: str = "") -> Family:
    settings = [*changes]
    if slug != "ngram":
        settings = [
            "phase.0.steps=12",
            "phase.0.validate_every=5",
            "phase.0.save_every=0",
            "phase.0.log_every=1",
            *settings,
        ]

    def work(folder: Path, resume: bool) -> object:
        if resume:
            return nextword.train(resume=True, out=folder, device="cpu", progress=False)
        return nextword.train(f"{slug}/tiny", data, out=folder, changes=settings, device="cpu", progress=False)

    return Family(name or slug, work)


def fine_tune(folder: Path, resume: bool) -> object:
    changes = ["phase.0.precision=fp32", "phase.0.steps=10", "phase.0.validate_every=4", "phase.0.save_every=0",
               "phase.0.log_every=1", "phase.0.batches.rows=8"]  # fmt: skip
    where: dict[str, Any] = {"out": folder, "device": "cpu", "progress": False}
    if resume:
        return nextword.transfer(resume=True, **where)
    return nextword.transfer("bert/finetune", "bert", "color.csv", changes=changes, **where)


def compare_models(folder: Path, resume: bool) -> object:
    if resume and (folder / "comparison.json").is_file():
        return nextword.compare(resume=True, out=folder, device="cpu", progress=False)
    changes = ["tokenizer.size=300"]
    return nextword.compare(
        ["ngram/tiny", "lstm/tiny"], "my.txt", 0.02, out=folder, changes=changes, device="cpu", progress=False
    )


def write_fine_tuning_data() -> None:
    make_run(Path("bert"), "bert")
    write_table(Path("color.csv"), ["text", "label"], draw_color_texts(60))


ROWS = "phase.0.batches.rows=4"
FAMILIES = {
    family.name: family
    for family in (
        train_family("ngram", "tokenizer.size=300"),
        train_family("ngram", "tokenizer.size=300", "phase.0.estimator.on_disk=true", name="ngram-disk"),
        train_family("nplm", "tokenizer.size=300", "phase.0.batches.rows=16"),
        train_family("rnn", "tokenizer.size=300", "model.width=8", ROWS),
        train_family("lstm", 'tokenizer={kind="bytes"}', "model.width=8", ROWS),
        train_family("awd-lstm", "tokenizer.size=300", ROWS),
        train_family("gpt2", "tokenizer.size=300", "model.width=12"),
        train_family("bert", "tokenizer.size=200", "model.width=12", ROWS),
        train_family("t5", "tokenizer.size=200", "model.width=12", ROWS),
        train_family("seq2seq", "tokenizer.size=300", "model.width=8", "phase.0.batches.rows=8", data="pairs.tsv:1-2"),
        train_family("elmo", "tokenizer.size=200", "model.output_words=99", "model.width=8", "model.cell_size=9", ROWS),
        train_family("xlnet", "tokenizer.size=300", "model.width=12", ROWS),
        train_family("glm", "tokenizer.size=300", "model.width=12", ROWS),
        train_family("word2vec", "tokenizer.size=200", "tokenizer.min_count=1", "phase.0.batches.words=128"),
        Family("transfer", fine_tune, write_fine_tuning_data),
        Family("compare", compare_models, compares_all=False),
    )
}  # fmt: skip


def write_texts() -> None:
    draw = random.Random(2)
    sentences = [draw_sentence(draw, "red", length=(5, 14)) for _ in range(600)]
    Path("my.txt").write_text("\n\n".join(" ".join(sentences[i : i + 5]) for i in range(0, 600, 5)) + "\n")
    Path("pairs.tsv").write_text("".join(f"{text}\t{' '.join(reversed(text.split()))}\n" for text in sentences[:200]))


def contents(folder: Path, family: Family) -> dict[str, object]:
    """What training has made, without what depends on the clock."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or path.suffix == ".html" or path.name in (".lock", "card.md") or "state" in path.parts:
            continue
        if not family.compares_all:
            found[name] = (
                path.read_bytes() if name.startswith("ngram/model") or name.endswith("tokenizer.json") else None
            )
        elif path.name == "log.jsonl":
            events = [_without_times(json.loads(line)) for line in path.read_text().splitlines()]
            found[name] = sorted({json.dumps(event) for event in events if event["event"] != "begin"})
        else:
            found[name] = _without_times(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()
    return found


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(part) for key, part in value.items() if key not in TIMES + NOTES}
    return [_without_times(part) for part in value] if isinstance(value, list) else value


def is_saving(folder: Path) -> bool:
    """Whether a file or folder with a temporary name is there: something is being written."""
    places = [folder, *folder.glob("state"), *folder.glob("*/state")] if folder.is_dir() else []
    return any(path.name.startswith(PREFIX) for place in places for path in place.iterdir())


def kill_once(work: Callable[[], object], folder: Path, duration: float, draw: random.Random) -> bool:
    """Fork, kill at a random moment or within a random save; return whether the child had ended before."""
    begin = time.perf_counter()
    pid = run_child(work)
    if draw.random() < 0.4:
        moment, saves = begin + draw.uniform(0, duration), 0
    else:
        moment, saves = begin + 10 * duration, draw.randint(1, 12)
    was_saving = False
    while time.perf_counter() < moment and not _has_ended(pid):
        with contextlib.suppress(FileNotFoundError):  # renamed while it was looked at
            saving = is_saving(folder)
            saves -= saving and not was_saving
            was_saving = saving
            if saving and saves == 0:
                time.sleep(draw.choice((0, 0.0005, 0.002, 0.01)) * draw.random())
                break
        time.sleep(0.0003)
    os.kill(pid, signal.SIGKILL)  # not yet waited for, so the id is still ours if it has ended
    code = wait(pid)
    assert code in (0, -signal.SIGKILL), f"the child failed with {code}"
    return code == 0


def kill_family(family: Family, base: Path, kills: int, seed: int = 0) -> list[str]:
    """Kill training this often; after one to three kills, resume it to the end and compare. Return what differs."""
    place = base / family.name
    place.mkdir(parents=True)
    draw, problems = random.Random(f"{family.name} {seed}"), []
    with contextlib.chdir(place):
        os.environ["NEXTWORD_CACHE"] = str(place / "cache")
        write_texts()
        family.prepare()
        family.work(Path("first"), False)  # imports and compiles everything, before the first fork
        begin = time.perf_counter()
        assert wait(run_child(partial(family.work, Path("straight"), False))) == 0
        duration = time.perf_counter() - begin
        expected = contents(Path("straight"), family)
        done, trials = 0, 0
        while done < kills:
            trials += 1
            folder = Path(f"killed-{trials}")
            if draw.random() < 0.2:
                shutil.rmtree("cache", ignore_errors=True)  # the text is prepared again, under fire

            def work(folder: Path = folder) -> object:
                return family.work(
                    folder, (folder / "manifest.json").is_file() or (folder / "comparison.json").is_file()
                )

            for _ in range(draw.choice((1, 1, 2, 3))):
                done += not kill_once(work, folder, duration, draw)
            code = wait(run_child(work))
            problem = (
                f"resuming failed with {code}" if code else describe_difference(contents(folder, family), expected)
            )
            left = [str(path) for path in folder.rglob(".*") if path.name != ".lock"]
            if problem or left:
                problems.append(f"{family.name}, trial {trials}: {problem} {left or ''}")
                shutil.copytree(folder, base / "kept" / f"{family.name}-{trials}")
            shutil.rmtree(folder)
    return problems


def describe_difference(found: dict[str, object], expected: dict[str, object]) -> str:
    if found.keys() != expected.keys():
        return f"other files: {sorted(found.keys() ^ expected.keys())}"
    return ", ".join(
        f"{name} differs: {_first_difference(found[name], expected[name])}"
        for name in found
        if found[name] != expected[name]
    )


def _first_difference(found: object, expected: object) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        return "; ".join(
            f"{key}: {_first_difference(found.get(key), expected.get(key))}"
            for key in found.keys() | expected.keys()
            if found.get(key) != expected.get(key)
        )
    if isinstance(found, list) and isinstance(expected, list):
        pairs = [pair for pair in itertools.zip_longest(found, expected) if pair[0] != pair[1]]
        return f"{pairs[0][0]} instead of {pairs[0][1]}"
    return f"{str(found)[:200]} instead of {str(expected)[:200]}"


def kill_families(kills: int, base: Path, names: Sequence[str]) -> int:
    """Kill each family this often, and print a table."""
    torch.set_num_threads(1)
    base.mkdir(parents=True, exist_ok=True)
    problems = []
    for name in names or FAMILIES:
        begin = time.perf_counter()
        found = kill_family(FAMILIES[name], base.resolve(), kills)
        shutil.rmtree(base / name)
        print(
            f"{name:12} {kills:4} kills, {len(found)} differences, {time.perf_counter() - begin:.0f} s",
            *found,
            sep="\n    ",
            flush=True,
        )
        problems += found
    return 1 if problems else 0


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


# ------------------------------------------------------------------------------------------------ before every rename


def kill_before_renames(text: str, base: Path) -> None:
    """Fork a child for every rename that training does, kill it right before, and resume; print their number."""
    os.fsync = lambda handle: None  # the disk outlives a killed process
    recipe = load_recipe("lstm/tiny", [*SMALL, "phase.0.steps=2", "phase.0.validate_every=1"]).with_data([text])

    def train(folder: Path) -> None:
        for _ in train_events(recipe, folder, (folder / "manifest.json").is_file(), device="cpu"):
            pass

    def train_and_die(n: int, folder: Path) -> None:
        remaining = n

        def limit_calls(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                nonlocal remaining
                remaining -= 1
                if remaining < 0:
                    os._exit(9)
                return function(*given, **named)

            return call

        os.replace, os.rename = limit_calls(os.replace), limit_calls(os.rename)
        train(folder)

    train(base / "straight")
    for n in itertools.count():
        folder = base / f"at-{n}"
        code = wait(run_child(partial(train_and_die, n, folder)))
        if code == 0:
            print(n)
            return
        assert code == 9, (n, code)
        assert wait(run_child(partial(train, folder))) == 0, n
        RunFolder(folder).verify()


if __name__ == "__main__":
    if sys.argv[1] == "families":
        sys.exit(kill_families(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
    kill_before_renames(sys.argv[2], Path(sys.argv[3]))
