"""Encoding speed of the `bpe` tokenizer, side by side with the bare `tokenizers` library in one run.

    python benchmarks/tokens.py [TEXT] [--megabytes 20] [--size 8000] [--rounds 5] [--json FILE]

Both encode the same documents with the same merges. The bare library gives ids and character offsets (`encode_batch`,
which anyone who needs offsets calls); ours gives ids, byte spans and words as arrays. They take turns, so that
whatever else the machine does falls on both; the medians are compared. Without TEXT, the standard library's own sources
are read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenizers import Tokenizer as Library

from nextword.tokenizers.training import train_tokenizer

DOCUMENT = 20_000  # characters


def documents(path: Path | None, megabytes: int) -> list[str]:
    """About so many megabytes in documents of equal length; a smaller text is repeated."""
    if path:
        text = path.read_text(encoding="utf-8")
    else:
        sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        text = "".join(source.read_text(encoding="utf-8") for source in sources)
    text *= -(-megabytes * 1_000_000 // len(text.encode()))
    found, size = [], 0
    for start in range(0, len(text), DOCUMENT):
        found.append(text[start : start + DOCUMENT])
        size += len(found[-1].encode())
        if size >= megabytes * 1_000_000:
            break
    return found


def in_turns(contestants: dict[str, Callable[[list[str]], object]], texts: list[str], rounds: int) -> dict[str, float]:
    """Median seconds of each."""

    def seconds() -> Iterator[tuple[str, float]]:
        for _ in range(rounds):
            for name, encode in contestants.items():
                start = time.perf_counter()
                encode(texts)
                yield name, time.perf_counter() - start

    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for name, time_taken in seconds():
        taken[name].append(time_taken)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", type=Path)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--size", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    texts = documents(options.text, options.megabytes)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    ours = train_tokenizer({"kind": "bpe", "size": options.size}, texts[: len(texts) // 4])
    with tempfile.TemporaryDirectory() as folder:
        ours.save(Path(folder) / "tokenizer.json")
        bare = Library.from_file(str(Path(folder) / "tokenizer.json"))
    probe = texts[0]
    if bare.encode(probe).ids != ours.encode(probe).ids.tolist():
        sys.exit("The two do not give the same ids: there is nothing to compare.")

    def with_offsets(texts: list[str]) -> object:
        return [(encoding.ids, encoding.offsets) for encoding in bare.encode_batch(texts)]

    seconds = in_turns(
        {"bare": bare.encode_batch, "bare, ids and offsets read": with_offsets, "nextword": ours.encode_batch},
        texts,
        options.rounds,
    )
    speeds = {name: megabytes / time_taken for name, time_taken in seconds.items()}
    ratio = speeds["nextword"] / speeds["bare"]
    print(
        "| tokens | text | nextword MB/s | bare `encode_batch` MB/s | with ids and offsets read MB/s | ratio to bare |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    print(
        f"| bpe {len(ours)} | {megabytes:.1f} MB | {speeds['nextword']:.1f} | {speeds['bare']:.1f} | "
        f"{speeds['bare, ids and offsets read']:.1f} | {ratio:.2f} |"
    )
    if options.json:
        result = {"benchmark": "tokens", "megabytes": megabytes, "megabytes_per_second": speeds, "ratio": ratio}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
