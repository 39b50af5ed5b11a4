"""Run damaged samples through nextword, in forked children with limits, and judge what happens.

A case is (format, seed): the seed decides what is damaged and how. It is refused with a `NextwordError`, or read. A
sealed format must then give the values of the undamaged sample. Anything else is a failure: another exception, a
signal, more than 10 seconds of CPU time, more than 2 GB of memory, a file outside the case's folder, a program in a
pickle that ran.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import random
import resource
import select
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from nextword.core.errors import NextwordError, OutOfMemory
from tests.fuzz.formats import FORMATS, Format, build_sample
from tests.fuzz.mutations import mutate

SECONDS = 10  # of CPU time for one case
PATIENCE = 120  # seconds of a clock after which a case that uses no CPU hangs
MEMORY = 2 << 30  # bytes that reading may add
BATCH = 50  # cases in one child
REFUSED, SAME, READ = "refused", "same", "read"


@dataclass(frozen=True)
class Result:
    format: str
    seed: int
    outcome: str  # refused, same, read, or what went wrong
    damage: str = ""
    detail: str = ""
    place: str = ""  # innermost line of nextword in the traceback
    seconds: float = 0.0

    @property
    def is_failure(self) -> bool:
        return self.outcome not in (REFUSED, SAME, READ)

    def __str__(self) -> str:
        return f"{self.format} {self.seed}: {self.outcome} at {self.place or '?'}: {self.detail} [{self.damage}]"


def silence() -> None:
    """One thread, no warnings: before the first fork."""
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    warnings.simplefilter("ignore")


class Sample:
    """The undamaged files of a format, and the values that reading them gives."""

    def __init__(self, format: Format, base: Path) -> None:
        self.format, self.base = format, base
        self.files = base / "sample"
        build_sample(format, self.files)
        self.values = repr(self.read(self.copy("whole")))

    def copy(self, name: str) -> Path:
        """A copy of the files in a folder of their own, with room for a data home and a cache."""
        place = self.base / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.files, place / "in" / "files")
        return place / "in" / "files"

    def read(self, files: Path) -> object:
        """The values. Files are read from their own folder, so that no message depends on where it is."""
        place = files.parent
        os.environ["NEXTWORD_HOME"] = str(place / "home")
        os.environ["NEXTWORD_CACHE"] = str(files / "cache")
        os.environ["NEXTWORD_FUZZ_TRACE"] = str(place / "trace")
        with contextlib.chdir(files):
            return self.format.use()

    def damage(self, seed: int, name: str = "case") -> tuple[Path, str, bool]:
        """A damaged copy, how it was damaged, and whether its checksums must notice."""
        draw = random.Random(f"{self.format.name} {seed}")
        files = self.copy(name)
        is_sealed = self.format.sealed
        damage = mutate(files, draw, self.format.only)
        if self.format.reseal and draw.random() < 0.7:
            self.format.reseal(files)
            return files, f"{damage}; resealed", False
        return files, damage, is_sealed

    def judge(self, seed: int, announce: Callable[[str], None]) -> Result:
        """Read a damaged copy in this process. `announce` is told the damage first."""
        begin = time.process_time()
        files, damage, is_sealed = self.damage(seed)
        announce(damage)
        name, detail, place = self.format.name, "", ""
        try:
            values = self.read(files)
            outcome = SAME if repr(values) == self.values else READ
            if is_sealed and outcome == READ and "log.jsonl" not in damage and "card.md" not in damage:
                outcome, detail = "silent difference", repr(values)[:200]
            elif outcome == READ and has_nan(values):
                outcome, detail = "not a number", repr(values)[:200]
        except NextwordError as error:  # a file that takes too much memory is not refused by that
            outcome, detail = "memory" if isinstance(error, OutOfMemory) else REFUSED, str(error)[:200]
        except BaseException as error:
            outcome = "memory" if _is_memory(error) else "traceback"
            detail, place = f"{type(error).__name__}: {str(error)[:200]}", _innermost(error)
        seconds = time.process_time() - begin
        if (files.parent / "trace").exists():
            outcome, detail = "program ran", "a pickle ran its program"
        elif outside := _outside(files):
            outcome, detail = "wrote outside", outside
        return Result(name, seed, outcome, damage, detail, place, seconds)


def _outside(files: Path) -> str:
    """Files that were written next to the case, rather than into it, its home or its cache."""
    strange = [path.name for path in files.parent.iterdir() if path.name not in ("files", "home", "cache", "trace")]
    strange += [path.name for path in files.parent.parent.iterdir() if path.name != "in"]
    return ", ".join(strange) or ("/tmp/nextword-fuzz-evil" if Path("/tmp/nextword-fuzz-evil").exists() else "")


def has_nan(value: object) -> bool:
    """Whether a number that nextword gives is none."""
    if isinstance(value, float):
        return math.isnan(value)
    return isinstance(value, (list, tuple)) and any(map(has_nan, value))


def _is_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "allocate memory" in str(error) or "Cannot allocate" in str(error)


def _innermost(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/nextword/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/nextword/')[2]}:{frames[-1].lineno} {frames[-1].name}" if frames else ""


# ------------------------------------------------------------------------------------------------ children


def run_cases(sample: Sample, seeds: Sequence[int]) -> Iterator[Result]:
    """Judge cases in forked children; a child that dies is blamed on its case, and the next one goes on."""
    rest = list(seeds)
    while rest:
        yield from _run_child(sample, rest)


def _run_child(sample: Sample, rest: list[int]) -> Iterator[Result]:
    """Judge up to BATCH cases in one child, and remove them from `rest`."""
    batch = rest[:BATCH]
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        _work(sample, batch, writer)
    os.close(writer)
    try:
        buffer, damage = b"", ""
        while True:
            ready, _, _ = select.select([reader], [], [], PATIENCE)
            if not ready:
                os.kill(pid, signal.SIGKILL)
            block = os.read(reader, 1 << 16) if ready else b""
            if not block:
                break
            *lines, buffer = (buffer + block).split(b"\n")
            for line in map(json.loads, lines):
                damage = line if isinstance(line, str) else ""
                if isinstance(line, dict):
                    rest.pop(0)
                    yield Result(**line)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code and batch[-1] in rest:
        seed = rest.pop(0)
        trace = sample.base / "fault.txt"
        text = trace.read_text() if trace.is_file() else ""
        lines = [line.strip() for line in text.splitlines() if "/nextword/" in line]
        place = lines[0].rpartition("/nextword/")[2] if lines else ""
        outcome = {-signal.SIGPROF: "slow", -signal.SIGKILL: "hang"}.get(code, "signal")
        detail = f"exit code {code}: {text.strip().splitlines()[-1] if text else ''}"
        yield Result(sample.format.name, seed, outcome, damage, detail, place)


def _work(sample: Sample, batch: Sequence[int], writer: int) -> None:
    """The child: judge each case under the limits, write a line for each, and exit."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(null, handle)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 30, 4 << 30))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)

        def announce(damage: str) -> None:
            os.write(writer, json.dumps(damage).encode() + b"\n")

        with (sample.base / "fault.txt").open("w") as fault:
            faulthandler.enable(fault)
            for seed in batch:
                faulthandler.dump_traceback_later(SECONDS, file=fault)  # says where a slow case is
                signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of CPU time; then the kernel ends this process
                result = sample.judge(seed, announce)
                signal.setitimer(signal.ITIMER_PROF, 0)
                faulthandler.cancel_dump_traceback_later()
                os.write(writer, json.dumps(asdict(result)).encode() + b"\n")
        code = 0
    except BaseException:  # of the harness itself
        (sample.base / "fault.txt").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def run_format(name: str, seeds: Sequence[int], base: Path) -> list[Result]:
    sample = Sample(FORMATS[name], base / name.replace("/", "-"))
    try:
        return list(run_cases(sample, seeds))
    finally:
        shutil.rmtree(sample.base, ignore_errors=True)


def count(results: Sequence[Result]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
    return counts
