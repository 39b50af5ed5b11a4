"""Damage samples of every format and read them: python -m tests.fuzz [FORMAT …] [--cases N] [--seed FIRST]

python -m tests.fuzz --cases 1000              # what `make fuzz` runs
python -m tests.fuzz run/lstm --show 1234      # one case, with its traceback
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.formats import FORMATS
from tests.fuzz.harness import Result, Sample, count, run_cases, silence


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"default: all of {', '.join(FORMATS)}")
    parser.add_argument("--cases", type=int, default=1000, help="of each format")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--show", type=int, help="run this case alone, and show its traceback")
    given = parser.parse_args()
    names = [name for name in FORMATS if not given.formats or any(name.startswith(prefix) for prefix in given.formats)]
    silence()
    base = Path(tempfile.mkdtemp(prefix="nextword-fuzz-"))
    try:
        if given.show is not None:
            return show(Sample(FORMATS[names[0]], base / "sample"), given.show)
        failures: list[Result] = []
        for name in names:
            failures += run(name, range(given.seed, given.seed + given.cases), base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"{len(names) * given.cases:,} cases of {len(names)} formats, {len(failures)} failures")
    return 1 if failures else 0


def run(name: str, seeds: range, base: Path) -> list[Result]:
    begin = time.monotonic()
    sample = Sample(FORMATS[name], base / name.replace("/", "-"))
    built = time.monotonic()
    results = list(run_cases(sample, seeds))
    shutil.rmtree(sample.base, ignore_errors=True)
    counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(count(results).items()))
    slowest = max(result.seconds for result in results)
    took = time.monotonic() - built
    print(f"{name:22} {len(results):5} cases: {counts} · {len(results) / took:.0f}/s, slowest {slowest:.1f} s, "
          f"sample {built - begin:.1f} s", flush=True)  # fmt: skip
    groups: dict[tuple[str, str, str], list[Result]] = {}
    failures = [result for result in results if result.is_failure]
    for result in failures:
        groups.setdefault((result.outcome, result.place, result.detail.partition(":")[0]), []).append(result)
    for group in sorted(groups.values(), key=len, reverse=True):
        seeds_of = ", ".join(str(result.seed) for result in group[:6])
        first = group[0]
        print(f"    {len(group):4} × {first.outcome} at {first.place}: {first.detail[:160]}", end=" ")
        print(f"[{first.damage[:80]}] seeds {seeds_of}", flush=True)
    return failures


def show(sample: Sample, seed: int) -> int:
    files, damage, is_sealed = sample.damage(seed)
    print(f"{sample.format.name} {seed}: {damage}; sealed: {is_sealed}; files in {files}")
    try:
        values = repr(sample.read(files))
    except Exception:
        traceback.print_exc()
        return 1
    print("the same" if values == sample.values else f"other values: {values[:2000]}\nexpected {sample.values[:2000]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
