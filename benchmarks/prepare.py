"""Tokenization to disk: speed and peak memory, as one markdown row.

python benchmarks/prepare.py                            # the built-in corpus, repeated to 1 GB
python benchmarks/prepare.py --text dump.jsonl.xz --megabytes 200
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from itertools import chain, islice, repeat
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", help="a file, folder or named corpus; default: the built-in one")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--kind", default="bpe", help="of tokenizer")
    parser.add_argument("--size", type=int, default=16000, help="of its vocabulary")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nextword-bench-") as folder:
        os.environ["NEXTWORD_CACHE"] = folder
        measure(options, Path(folder))


def measure(options: argparse.Namespace, folder: Path) -> None:
    from nextword.batching.token_stream import prepare
    from nextword.data.builtin import default_name
    from nextword.data.opening import open_corpus
    from nextword.tokenizers.training import train_tokenizer

    source = open_corpus(options.text or default_name())
    file, size = folder / "text" / "train.txt", 0
    file.parent.mkdir()
    with open(file, "w", encoding="utf-8") as out:
        for document in chain.from_iterable(source.documents("train") for _ in repeat(None)):
            size += out.write(document.text)
            if size >= options.megabytes * 1_000_000:
                break
    (folder / "text" / "valid.txt").write_text("held out\n" * 10, encoding="utf-8")
    (folder / "text" / "test.txt").write_text("held out\n" * 10, encoding="utf-8")

    sample = (document.text for document in islice(source.documents("train"), 500))
    size = {} if options.kind == "bytes" else {"size": options.size}
    tokenizer = train_tokenizer({"kind": options.kind, **size}, sample)
    corpus = open_corpus(folder / "text")
    before = _peak()
    start = time.perf_counter()
    stream = prepare(corpus, "train", tokenizer, progress=lambda done, total: None)
    seconds = time.perf_counter() - start
    print("| tokenizer | text | ids | seconds | MB/s | peak resident |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(
        f"| {options.kind}, {len(tokenizer):,} | {stream.bytes / 1e6:,.0f} MB | {len(stream):,} as {stream.ids.dtype} "
        f"| {seconds:.0f} | {stream.bytes / 1e6 / seconds:.1f} | {_peak():.2f} GB ({before:.2f} before) |"
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kilobytes on Linux


if __name__ == "__main__":
    main()
