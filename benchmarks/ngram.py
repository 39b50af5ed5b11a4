"""N-grams compared with KenLM in one run: quality, estimation, queries, distributions, opening, size.

    python benchmarks/ngram.py --kenlm BIN [--data ../shared/data] [--wiki FILE --memory 2GB] [--repeat 5]

BIN holds `lmplz` and `build_binary`, built from KenLM's source package with cmake and Boost; `pip install kenlm` adds
the Python module for queries. KenLM refuses a literal `<unk>` in its text, so it is renamed for KenLM, whose vocabulary
then has one more unseen word. Contenders take turns run by run, and medians are compared.

Estimating is timed from text to a usable model: `lmplz` and `build_binary` for KenLM, training the recipe ngram/kn5 for
nextword (vocabulary, ids, counts, probabilities, file, run folder), in its own process, without imports and without
their memory. The loops are compiled before; the cost of compiling them once is reported separately.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RENAMED = "<U>"


# ------------------------------------------------------------------------------------------------ estimating


def child(data: str, out: str, memory: str) -> None:
    """Train in this process and print its time and memory, without those of the imports."""
    import torch

    from nextword.models.ngram import NGram  # noqa: F401
    from nextword.ngrams import interpolation as cache  # noqa: F401
    from nextword.recipe import load_recipe
    from nextword.training.train import train_events

    torch.set_num_threads(2)
    before, began = peak(), time.perf_counter()
    recipe = load_recipe("ngram/kn5", [f"phase.0.estimator.memory={memory}"] if memory else []).with_data([data])
    stages = {}
    for event in train_events(recipe, out, device="cpu"):
        stages[event.values.get("doing") or event.kind] = round(time.perf_counter() - began, 2)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "memory": peak() - before, "stages": stages}))


def peak() -> float:
    """Peak resident memory of this process in MB."""
    return int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1024


def launch(*command: str) -> None:
    """Run a command from this small process, so that the peak memory reported is its own and not an ancestor's."""
    began = time.perf_counter()
    with Path(command[0]).open("a") as log:
        process = subprocess.Popen(command[1:], stdout=subprocess.DEVNULL, stderr=log)
    _, status, usage = os.wait4(process.pid, 0)
    print(json.dumps({"seconds": time.perf_counter() - began, "memory": usage.ru_maxrss / 1024, "status": status}))


def ours(data: Path, out: Path, memory: str = "", cold: bool = False) -> dict[str, Any]:
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as home:
        env = {**os.environ, "NEXTWORD_CACHE": home, "NUMBA_NUM_THREADS": "2"}
        if cold:
            env["NUMBA_CACHE_DIR"] = str(Path(home) / "compiled")
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, __file__, "--child", str(data), str(out), memory],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        return {**json.loads(done.stdout.splitlines()[-1]), "process": time.perf_counter() - began}


def theirs(kenlm: Path, text: Path, out: Path, memory: str = "", kind: str = "probing") -> dict[str, Any]:
    """Run lmplz and build_binary; without `memory`, lmplz gets 1 GB, with which it is fastest on a small text."""
    arpa, took, most = out / "model.arpa", [], []
    cap = ["-S", memory.removesuffix("B") or "1G"]
    steps = [[kenlm / "lmplz", "-o", "5", "-T", out, *cap, "--text", text, "--arpa", arpa]]
    if kind:
        steps.append([kenlm / "build_binary", "-T", out, kind, arpa, out / f"{kind}.bin"])
    for step in steps:
        command = [sys.executable, __file__, "--launch", str(out / "log"), *map(str, step)]
        done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        if done["status"]:
            raise SystemExit(f"{step[0]} failed; see {out / 'log'}.")
        took.append(done["seconds"])
        most.append(done["memory"])
    return {"seconds": sum(took), "memory": max(most), "parts": took}


# ------------------------------------------------------------------------------------------------ the tables


def quality(data: Path, kenlm: Path, room: Path) -> list[list[Any]]:
    """Perplexity and the largest difference per token, both ways through ARPA; leaves the models in `room`."""
    import kenlm as reader

    import nextword
    from nextword.conversion import convert

    rows = []
    for name, train, test in (
        ("PTB", data / "ptb" / "ptb.train.txt", data / "ptb" / "ptb.test.txt"),
        ("WikiText-2", data / "wikitext-2" / "train.txt", data / "wikitext-2" / "test.txt"),
    ):
        place = room / name
        place.mkdir()
        renamed = place / "text"
        renamed.write_text(train.read_text().replace("<unk>", RENAMED))
        theirs(kenlm, renamed, place)
        model = reader.Model(str(place / "probing.bin"))
        lines = test.read_text().splitlines()
        peer = [s for line in lines for s, *_ in model.full_scores(line.replace("<unk>", RENAMED))]
        peer_nats = -math.log(10) * np.array(peer)

        ours(train.parent, place / "run")
        lm = nextword.load(place / "run", device="cpu")
        mine = np.concatenate(lm.token_nats([lm.tokenizer.encode(line + "\n").ids for line in lines]))

        like = imitated(train, lines, place)
        convert(str(place / "run"), str(place / "ours.arpa"))
        back = reader.Model(str(place / "ours.arpa"))
        there = -math.log(10) * np.array([s for line in lines for s, *_ in back.full_scores(line)])
        convert(str(place / "model.arpa"), str(place / "theirs"))
        other = nextword.load(place / "theirs", device="cpu")
        texts = [other.tokenizer.encode(line.replace("<unk>", RENAMED) + "\n").ids for line in lines]
        here = np.concatenate(other.token_nats(texts))
        rows.append(
            [
                name,
                f"{math.exp(peer_nats.mean()):.3f}",
                f"{math.exp(mine.mean()):.3f}",
                f"{abs(mine - peer_nats).max():.1e}",
                f"{abs(like - peer_nats).max():.1e}",
                f"{abs(there - mine).max():.1e}",
                f"{abs(here - peer_nats).max():.1e}",
            ]
        )
    return rows


def imitated(train: Path, lines: list[str], place: Path) -> np.ndarray:
    """−log p of each token by nextword's estimate, with lmplz's discounts and its one extra word that never occurs.

    In its statistics, lmplz counts the last n-gram of each lower order by occurrences instead of continuations. So its
    discounts differ slightly from Chen and Goodman's; everything else is the same.
    """
    from nextword.ngrams.counting import NgramCounts, count_ngrams
    from nextword.ngrams.estimators import Estimator, estimate
    from nextword.ngrams.layouts import open_layout, write_layout
    from nextword.ngrams.trie import Trie
    from nextword.tokenizers.words import Words, train_words

    found = re.findall(r"D1=(\S+) D2=(\S+) D3\+=(\S+)", (place / "log").read_text())[-5:]
    discounts = tuple(tuple(float(d) for d in row) for row in found)
    text = train.read_text()
    tokenizer = Words([*train_words([text], None, 1, False, True).words, "<never>"])
    size, ids = len(tokenizer), tokenizer.encode(text).ids
    counted = next(x for x in count_ngrams(ids, 5, size, 1, 1 << 40) if isinstance(x, NgramCounts))
    closed = np.zeros(size, bool)
    trie = next(x for x in estimate(counted, Estimator(discounts=discounts), closed) if isinstance(x, Trie))
    write_layout(trie, place / "like.ngram")
    test = [tokenizer.encode(line + "\n").ids for line in lines]
    return -open_layout(place / "like.ngram").read(np.concatenate([[1], *test]).astype(np.uint32))[1:]


def estimating(data: Path, kenlm: Path, room: Path, repeat: int) -> tuple[list[list[Any]], dict[str, Any]]:
    text = room / "WikiText-2" / "text"
    place = room / "turns"
    place.mkdir()
    cold = ours(data / "wikitext-2", place / "run", cold=True)
    pairs = [(theirs(kenlm, text, place), ours(data / "wikitext-2", place / "run")) for _ in range(repeat)]
    a, b = ([pair[i] for pair in pairs] for i in (0, 1))
    median = {
        f"{who}_{key}": statistics.median(run[key] for run in runs)
        for who, runs in (("peer", a), ("ours", b))
        for key in ("seconds", "memory")
    }
    ratios = sorted(y["seconds"] / x["seconds"] for x, y in pairs)
    whole = statistics.median(run["process"] for run in b)
    rows = [
        ["lmplz + build_binary (probing)", f"{median['peer_seconds']:.2f}", "1.00", f"{median['peer_memory']:.0f}"],
        [
            "nextword",
            f"{median['ours_seconds']:.2f}",
            f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f}–{ratios[-1]:.2f})",
            f"{median['ours_memory']:.0f}",
        ],
        ["nextword, whole process with imports", f"{whole:.2f}", f"{whole / median['peer_seconds']:.2f}", ""],
    ]
    facts = {"compile_seconds": cold["seconds"] - median["ours_seconds"], "stages": b[0]["stages"], **median}
    return rows, facts


def reading(data: Path, room: Path, repeat: int) -> list[list[Any]]:
    """Tokens per second on one core, in turns: KenLM from strings, nextword from ids and from strings."""
    import kenlm as reader
    import torch

    import nextword

    torch.set_num_threads(1)
    model = reader.Model(str(room / "WikiText-2" / "probing.bin"))
    lm = nextword.load(room / "WikiText-2" / "run", device="cpu")
    lines = (data / "wikitext-2" / "test.txt").read_text().splitlines()
    renamed = [line.replace("<unk>", RENAMED) for line in lines]
    ended = [line + "\n" for line in lines]
    ids = np.concatenate([lm.tokenizer.encode(line).ids for line in ended]).astype(np.uint16)
    context = [int(x) for x in ids[1000:1004]]
    words = [lm.tokenizer.piece(id).decode().strip() for id in range(2, len(lm.tokenizer))]
    state, following = reader.State(), reader.State()
    model.BeginSentenceWrite(state)
    for id in context:
        model.BaseScore(state, lm.tokenizer.piece(id).decode().strip().replace("<unk>", RENAMED), following)
        state, following = following, state
    history = np.array([context], np.uint32)
    layout = lm.network.parts[0]
    works: dict[str, Any] = {
        "kenlm strings": lambda: sum(model.score(line) for line in renamed),
        "ids": lambda: lm.stream_nats(ids),
        "strings": lambda: lm.score_many(ended),
        "kenlm distribution": lambda: [model.BaseScore(state, word, following) for word in words],
        "distribution": lambda: [layout.distributions(history) for _ in range(20)],
    }
    timed: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(3 * repeat + 1):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if turn:  # the first turn warms up
                timed[name].append(time.perf_counter() - began)
    middle = {name: statistics.median(times) for name, times in timed.items()}
    speed = {name: len(ids) / middle[name] / 1e6 for name in ("kenlm strings", "ids", "strings")}
    peer, mine = middle["kenlm distribution"], middle["distribution"] / 20
    return [
        ["`kenlm.Model.score`, sentences as strings", f"{speed['kenlm strings']:.1f} M tokens/s", "1.00"],
        ["nextword, token ids", f"{speed['ids']:.1f} M tokens/s", f"**{speed['ids'] / speed['kenlm strings']:.2f}**"],
        [
            "nextword, sentences as strings (`score_many`)",
            f"{speed['strings']:.1f} M tokens/s",
            f"**{speed['strings'] / speed['kenlm strings']:.2f}**",
        ],
        [f"KenLM, all {len(words):,} words after a context, one by one", f"{peer * 1e3:.2f} ms", "1"],
        ["nextword, the same", f"{mine * 1e3:.4f} ms", f"**{peer / mine:,.0f}**"],
    ]


def sizes(kenlm: Path, room: Path) -> list[list[Any]]:
    """Bytes on disk of the compact layout, compared with KenLM's trie."""
    import nextword
    from nextword.conversion import convert

    place, rows = room / "WikiText-2", []
    for label, flags, changes in (
        ("lossless", [], ["model.layout=compact"]),
        ("8 bit", ["-q", "8", "-b", "8", "-a", "22"], ["model.layout=compact", "model.bits=8"]),
    ):
        out = place / f"trie{len(flags)}.bin"
        step = [kenlm / "build_binary", *flags, "trie", place / "model.arpa", out]
        subprocess.run([str(s) for s in step], check=True, capture_output=True)
        target = place / f"compact{len(flags)}"
        convert(str(place / "run"), str(target), changes)
        lm = nextword.load(target, device="cpu")
        peer = out.stat().st_size / 1e6
        mine = sum((target / name).stat().st_size for name in ("model.ngram", "tokenizer.json")) / 1e6
        rows.append([label, f"{peer:.1f} MB", f"{mine:.1f} MB", f"**{mine / peer:.2f}**", f"{lm.parameters:,}"])
    return rows


def opening(room: Path, repeat: int) -> list[list[Any]]:
    """The first opening of a file, which reads it for its checksum and validates it, and the next ones."""
    from nextword.conversion import convert
    from nextword.core.io import REMEMBERED_SIZE, SETTLED, forget
    from nextword.ngrams.layouts import open_layout
    from nextword.run_folder import checksum

    place, rows = room / "WikiText-2", []
    for layout in ("fast", "compact"):
        target = place / f"opened-{layout}"
        convert(str(place / "run"), str(target), [f"model.layout={layout}"])
        path = target / "model.ngram"
        size = path.stat().st_size
        if size < REMEMBERED_SIZE:
            raise SystemExit(f"{path} is too small to be remembered.")
        time.sleep(SETTLED)
        times = []
        for turn in range(repeat + 1):
            forget(path)
            clock = [time.process_time()]
            for work in (checksum, open_layout, lambda path: (checksum(path), open_layout(path))):
                work(path)
                clock.append(time.process_time())
            if turn:  # the first turn warms up
                times.append(np.diff(clock))
        check_sum, validation, again = np.median(times, 0)
        each = [f"{seconds / size * 1e9:.2f} s/GB" for seconds in (check_sum, validation)]
        rows.append([layout, f"{size / 1e6:.0f} MB", *each, f"{again * 1e3:.1f} ms"])
    return rows


def large(kenlm: Path, wiki: Path, memory: str, room: Path) -> list[list[Any]]:
    place = room / "large"
    (place / "data").mkdir(parents=True)
    (place / "data" / "train.txt").symlink_to(wiki.resolve())
    peer = theirs(kenlm, wiki, place, memory, kind="")
    (place / "model.arpa").unlink()
    mine = ours(place / "data", place / "run", memory)
    return [
        [f"lmplz -S {memory}", f"{peer['seconds']:.0f} s", "1.00", f"{peer['memory']:,.0f} MB"],
        [
            f"nextword, memory = {memory}",
            f"{mine['seconds']:.0f} s",
            f"**{mine['seconds'] / peer['seconds']:.2f}**",
            f"{mine['memory']:,.0f} MB",
        ],
    ]


def table(columns: list[str], rows: list[list[Any]]) -> None:
    print("| " + " | ".join(columns) + " |")
    print("| " + " | ".join("---" for _ in columns) + " |")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return child(*sys.argv[2:5])
    if sys.argv[1:2] == ["--launch"]:
        return launch(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kenlm", type=Path, required=True, help="folder with lmplz and build_binary")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--wiki", type=Path, help="large text, one sentence or paragraph per line")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--room", type=Path, help="parent of the temporary folder for the models")
    parser.add_argument("--only", default="quality,estimating,reading,opening,sizes,large")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.room) as folder:
        room = Path(folder)
        only = given.only.split(",")
        rows = quality(given.data, given.kenlm, room)
        columns = ["order 5, test perplexity", "KenLM", "nextword", "largest difference of a token, nats"]
        columns += ["with lmplz's discounts and its extra word", "KenLM reads our ARPA", "we read KenLM's ARPA"]
        table(columns, rows)
        if "estimating" in only:
            rows, facts = estimating(given.data, given.kenlm, room, given.repeat)
            table(["WikiText-2, order 5, text to usable model", "seconds", "ratio", "memory, MB"], rows)
            print(f"compiling once: {facts['compile_seconds']:.1f} s; stages: {facts['stages']}\n")
        if "reading" in only:
            table(["WikiText-2 test, one core", "", "ratio"], reading(given.data, room, given.repeat))
        if "opening" in only:
            columns = ["opening, WikiText-2 order 5, CPU time", "size", "checksum, once", "validation, once", "again"]
            table(columns, opening(room, given.repeat))
        if "sizes" in only:
            table(
                ["compact, WikiText-2 order 5", "KenLM trie", "nextword", "ratio", "parameters"],
                sizes(given.kenlm, room),
            )
        if "large" in only and given.wiki:
            table(["order 5, large text", "", "ratio", "memory"], large(given.kenlm, given.wiki, given.memory, room))


if __name__ == "__main__":
    main()
