"""`nextword serve` compared with one request at a time, and with transformers, in one run. It needs no network.

    python benchmarks/serve.py                         # all parts but the soak
    python benchmarks/serve.py throughput              # one of them; on a GPU if there is one
    python benchmarks/serve.py typing --runs runs/demo/ngram runs/demo/lstm
    python benchmarks/serve.py --soak 10               # 100 streams with random cancellations for ten minutes
    python benchmarks/serve.py --rehearse              # tiny sizes, to check that every part runs, also without a GPU

throughput    STREAMS requests of TOKENS tokens each, greedy, of a GPT-2 of 124M random weights, by the engine. Whoever
              serves one request at a time gets a few of them only, for it takes long.
first-token   seconds to the first token, idle and while other streams run
gaps          the longest gap between two tokens of a stream while a long text is scored: in slices, and at once
batches       HTTP: CLIENTS clients with one text each, vectors and labels: side by side, the same without shared
              batches, and one client after the other
typing        HTTP: the likeliest next words after every letter of a text, with a warm prefix

Contenders take turns, and the median of the rounds counts. Over HTTP the server is a process of its own, on loopback.

Soak: every stream draws requests, and cancels some of them. Each text must equal that of `lm.generate` for the same
seed, or begin as it does if it was cancelled; each request must end; and memory must not grow. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextvars
import gc
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import nextword
from nextword.core.types import Greedy, Sample, Stop
from nextword.lm.base import TextModel
from nextword.lm.causal import CausalLM
from nextword.lm.loading import wrap_network
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.server.engine import Engine, Handle
from nextword.server.requests import Finished, GenerationRequest, QueueFull, TokenEvent
from nextword.tokenizers import vocabulary
from nextword.tokenizers.words import Words
from nextword.training.device import choose_device

STREAMS, TOKENS, PROMPT = 32, 128, 32
ONE_BY_ONE = 3  # requests for whoever serves one at a time
GPT2_WORDS = 50257
CLIENTS, PER_CLIENT = 32, 8  # requests at a time, and of each client in a round
PARTS = ("throughput", "first-token", "gaps", "batches", "typing")
TEXT = (
    "the value of an expression is an object and the types of its operands differ from one another so that they are "
    "converted to a common type before the operation is applied to them and the result is returned to the caller"
)


def make_words(count: int) -> Words:
    """A tokenizer of `count` tokens: the words of TEXT, and numbered ones."""
    common = list(dict.fromkeys(TEXT.split()))
    specials = len(Words([])) if count else 0
    return Words([*common, *(f"w{i}" for i in range(count - specials - len(common)))])


def make_gpt2(config: GPT2Config, words: int, device: str = "cpu") -> CausalLM:
    torch.manual_seed(0)
    tokenizer = make_words(words)
    made = wrap_network(GPT2(config, vocabulary(tokenizer)).eval().to(device), tokenizer)
    assert isinstance(made, CausalLM)
    return made


def draw_prompts(count: int, length: int, words: int, seed: int = 0) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [tuple(rng.randrange(10, words) for _ in range(length)) for _ in range(count)]


def tokens_per_second(work: Callable[[], int]) -> float:
    began = time.perf_counter()
    tokens = work()
    return tokens / (time.perf_counter() - began)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# ------------------------------------------------------------------------------------------------ throughput


def measure_throughput(config: GPT2Config, words: int, tokens: int, rounds: int, device: str) -> None:
    from transformers import GPT2Config as PeerConfig
    from transformers import GPT2LMHeadModel

    lm = make_gpt2(config, words, device)
    prompts, stop = draw_prompts(STREAMS, PROMPT, words), Stop(tokens, at_end=False)
    sizes = {"n_embd": config.width, "n_layer": config.layers, "n_head": config.heads, "n_positions": config.window}
    peer = GPT2LMHeadModel(PeerConfig(vocab_size=words, **sizes)).eval().to(device)
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}

    def serve() -> int:
        engine = Engine(lm, prefix_bytes=0)
        handles = [engine.submit(GenerationRequest(prompt, Greedy(), stop)) for prompt in prompts]
        ends = [list(handle)[-1] for handle in handles]
        engine.close()
        assert all(isinstance(end, Finished) and end.tokens == tokens for end in ends)
        return STREAMS * tokens

    def generate_alone() -> int:
        for prompt in prompts[:ONE_BY_ONE]:
            pieces = list(lm.stream(lm.begin(prompt, Greedy(), stop)))
            assert len(pieces) == tokens
        return ONE_BY_ONE * tokens

    def generate_with_peer(rows: Sequence[tuple[int, ...]]) -> int:
        ids = torch.tensor(rows, device=device)
        with torch.no_grad():
            out = peer.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert out.shape[1] == PROMPT + tokens
        return len(rows) * tokens

    def peer_alone() -> int:
        return sum(generate_with_peer([prompt]) for prompt in prompts[:ONE_BY_ONE])

    contenders: dict[str, Callable[[], int]] = {
        "engine": serve,
        "lm.generate, one at a time": generate_alone,
        "transformers, one at a time": peer_alone,
        f"transformers, a batch of {STREAMS}": lambda: generate_with_peer(prompts),
    }
    for work in contenders.values():  # compile, and record CUDA graphs
        if device != "cpu":
            work()
    list(lm.stream(lm.begin(prompts[0], Greedy(), Stop(4, at_end=False))))
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            rates[name].append(tokens_per_second(work))
    print(f"throughput: {STREAMS} streams of {tokens} tokens after {PROMPT}, {lm.parameters:,} weights, on {device}")
    best = statistics.median(rates["engine"])
    for name, values in rates.items():
        rate = statistics.median(values)
        print(f"  {name:32} {rate:8.1f} tokens/s   engine / this {best / rate:5.2f}   rounds {show(values)}")


def show(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


# ------------------------------------------------------------------------------------------------ first token


def measure_first_token(config: GPT2Config, words: int, rounds: int, device: str) -> None:
    lm = make_gpt2(config, words, device)
    engine = Engine(lm, rows=STREAMS, prefix_bytes=0)
    prompts = iter(draw_prompts(10_000, PROMPT, words, seed=1))
    endless = Stop(config.window // 2, at_end=False)

    def seconds_to_first_token() -> float:
        began = time.perf_counter()
        handle = engine.submit(GenerationRequest(next(prompts), Greedy(), Stop(2, at_end=False)))
        wait_for_token(handle)
        took = time.perf_counter() - began
        list(handle)
        return took

    seconds_to_first_token()
    idle = [seconds_to_first_token() for _ in range(rounds)]
    streams = [engine.submit(GenerationRequest(next(prompts), Greedy(), endless)) for _ in range(STREAMS - 1)]
    for handle in streams:
        wait_for_token(handle)
    rng, busy = random.Random(0), []
    for _ in range(rounds):
        time.sleep(rng.random() / 4)  # at any time within a step
        busy.append(seconds_to_first_token())
    running = engine.stats().running
    for handle in streams:
        handle.cancel()
    engine.close()
    print(f"first token: prompts of {PROMPT} tokens; {running} streams were running")
    for name, values in (("idle", idle), ("busy", busy)):
        median, p95 = 1e3 * statistics.median(values), 1e3 * percentile(values, 0.95)
        print(f"  {name:32} median {median:7.1f} ms   p95 {p95:7.1f} ms")
    print(f"  {'busy / idle':32} median {statistics.median(busy) / statistics.median(idle):7.2f}")


def wait_for_token(handle: Handle) -> None:
    event = next(iter(handle))
    assert isinstance(event, TokenEvent), event


# ------------------------------------------------------------------------------------------------ gaps


def measure_gaps(config: GPT2Config, words: int, rounds: int, device: str) -> None:
    """The longest gap between two tokens of a stream while nothing else runs, and while a long text is scored."""
    lm = make_gpt2(config, words, device)
    prompt = draw_prompts(1, PROMPT, words)[0]
    text = " ".join(random.Random(0).choices(TEXT.split(), k=6 * config.window))
    engine = Engine(lm, prefix_bytes=0)

    def score(model: TextModel) -> object:
        return model.score(text)

    def score_at_once(model: TextModel) -> object:
        return contextvars.Context().run(score, model)  # a context in which nobody interrupts

    calls = {"no other call": None, "a long score, in slices": score, "the same at once": score_at_once}
    gaps: dict[str, list[float]] = {name: [] for name in calls}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    score(lm)
    for _ in range(rounds):
        for name, call in calls.items():
            handle = engine.submit(GenerationRequest(prompt, Greedy(), Stop(config.window - PROMPT - 1, at_end=False)))
            wait_for_token(handle)
            began = last = time.perf_counter()
            future = None if call is None else engine.call(call, size=10**6)
            longest = 0.0
            for event in handle:
                now = time.perf_counter()
                if isinstance(event, TokenEvent):
                    longest = max(longest, now - last)
                last = now
                if future.done() if future is not None else now - began > 3:
                    break
            handle.cancel()
            if future is not None:
                future.result()
            seconds[name].append(time.perf_counter() - began)
            gaps[name].append(longest)
    engine.close()
    print(f"gaps: the longest between two tokens of a stream; the score has {6 * config.window:,} tokens")
    for name, values in gaps.items():
        took = statistics.median(seconds[name])
        print(f"  {name:32} {1e3 * statistics.median(values):8.1f} ms   watched for {took:5.1f} s")


# ------------------------------------------------------------------------------------------------ HTTP

SERVE = "from nextword.cli import main; main()"
SERVE_ALONE = f"""
from nextword.server import native_routes as routes
routes.EmbedTexts.__eq__ = routes.PredictExamples.__eq__ = object.__eq__  # no two requests have equal functions
{SERVE}
"""


class Server:
    """A process that serves runs, until `close`."""

    def __init__(self, runs: Sequence[Path], code: str = SERVE) -> None:
        options = ("--port", "0", "--json", "--no-train", "--device", "cpu")
        command = [sys.executable, "-c", code, "serve", *map(str, runs), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = ""
        while not lines.rstrip().endswith("}\n}"):
            lines += self.process.stdout.readline()
        self.port = int(json.loads(lines)["address"].rpartition(":")[2])

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cpu_seconds(self) -> float:
        """What the process has used since it started."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def serve(runs: Sequence[Path], code: str = SERVE) -> Iterator[Server]:
    server = Server(runs, code)
    try:
        yield server
    finally:
        server.close()


def ask(connection: http.client.HTTPConnection, path: str, body: object) -> Any:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status == 200, content
    return json.loads(content)


# ------------------------------------------------------------------------------------------------ batches


def train_encoder(folder: Path, is_rehearsal: bool) -> tuple[Path, Path]:
    """Runs of an encoder and of a classifier over it, with weights that have hardly been trained."""
    sizes = ["model.width=384", "model.layers=6", "model.heads=12"]
    changes = [] if is_rehearsal else sizes
    text, table = folder / "text.txt", folder / "topics.csv"
    words, rng = TEXT.split(), random.Random(0)
    lines = [" ".join(rng.choices(words, k=12)) for _ in range(400)]
    text.write_text("".join(f"{line}\n" for line in lines))
    table.write_text("text,label\n" + "".join(f"{line},{'ab'[i % 2]}\n" for i, line in enumerate(lines[:64])))
    encoder, classifier = folder / "encoder", folder / "classifier"
    nextword.train("bert/tiny", text, out=encoder, changes=changes, steps=2, progress=False, device="cpu")
    options: Any = {"changes": ["phase.0.epochs=1"], "progress": False, "device": "cpu"}
    nextword.transfer("bert/finetune", encoder, table, out=classifier, **options)
    return encoder, classifier


def measure_batches(is_rehearsal: bool, rounds: int) -> None:
    """Texts per second over HTTP: clients side by side, with and without shared batches, and one after the other."""
    words, rng = TEXT.split(), random.Random(1)
    texts = [" ".join(rng.choices(words, k=rng.randint(8, 24))) for _ in range(CLIENTS * PER_CLIENT)]

    def measure(server: Server, path: str, key: str, clients: int, share: int) -> float:
        """Texts per second of so many clients that share some of the texts, each with one text in a request."""
        own = [texts[i::clients][:share] for i in range(clients)]

        def run(texts: Sequence[str]) -> None:
            connection = server.connect()
            for text in texts:
                ask(connection, path, {key: [text]})
            connection.close()

        with ThreadPoolExecutor(clients) as pool:
            began = time.perf_counter()
            list(pool.map(run, own))
            return sum(map(len, own)) / (time.perf_counter() - began)

    with TemporaryDirectory() as folder:
        runs = train_encoder(Path(folder), is_rehearsal)
        routes = {"vectors": ("/m/encoder/api/embed", "texts"), "labels": ("/m/classifier/api/predict", "examples")}
        with serve(runs) as shared, serve(runs, SERVE_ALONE) as alone:
            few = CLIENTS * PER_CLIENT // 4
            contenders = {
                f"{CLIENTS} clients": (shared, CLIENTS, PER_CLIENT),
                f"{CLIENTS} clients, no shared batches": (alone, CLIENTS, PER_CLIENT),
                "one client": (shared, 1, few),
            }
            print(f"batches: {len(texts)} requests of one text; BERT, {'tiny' if is_rehearsal else '6 × 384'}")
            for what, (path, key) in routes.items():
                rates: dict[str, list[float]] = {name: [] for name in contenders}
                for server in (shared, alone):
                    measure(server, path, key, CLIENTS, 1)
                for _ in range(rounds):
                    for name, (server, clients, share) in contenders.items():
                        rates[name].append(measure(server, path, key, clients, share))
                best = statistics.median(rates[f"{CLIENTS} clients"])
                for name, values in rates.items():
                    rate = statistics.median(values)
                    label = f"{what}, {name}"
                    print(f"  {label:44} {rate:8.1f} texts/s   first / this {best / rate:5.2f}   rounds {show(values)}")


# ------------------------------------------------------------------------------------------------ typing


def measure_typing(is_rehearsal: bool, rounds: int, runs: Sequence[Path]) -> None:
    """The likeliest next words after every letter of a text, over HTTP and in this process."""
    with TemporaryDirectory() as folder:
        if not runs:
            size, changes = ("tiny", []) if is_rehearsal else ("small", ["model.width=650", "model.layers=2"])
            runs = [Path(folder) / "ngram", Path(folder) / "lstm"]
            nextword.train(f"ngram/{size}", out=runs[0], progress=False)
            nextword.train(f"lstm/{size}", out=runs[1], changes=changes, steps=1, progress=False, device="cpu")
        print(f"typing: {len(TEXT)} letters, the 10 likeliest next words after each, with a warm prefix")
        for run in runs:
            model = nextword.load(run, device="cpu")
            engine = Engine(model)
            times: dict[str, list[list[float]]] = {"over HTTP": [], "engine alone": []}
            cpu = []

            def ask_engine(text: str, engine: Engine = engine) -> None:
                engine.next(text).result()

            with serve([run]) as server:
                for round in range(rounds + 1):
                    with closing(server.connect()) as connection:
                        used = server.cpu_seconds()
                        over_http = type_text(lambda text: ask(connection, "/api/next", {"text": text}))
                    used = server.cpu_seconds() - used
                    alone = type_text(ask_engine)
                    if round:  # the first one fills the caches
                        times["over HTTP"].append(over_http)
                        times["engine alone"].append(alone)
                        cpu.append(used / len(TEXT))
            engine.close()
            for name, of_rounds in times.items():
                median = 1e3 * statistics.median(statistics.median(own) for own in of_rounds)
                p95s = [1e3 * percentile(own, 0.95) for own in of_rounds]
                print(
                    f"  {f'{run.name}, {name}':32} median {median:6.2f} ms   p95 {statistics.median(p95s):6.2f} ms   "
                    f"p95 of the rounds {show(p95s)}"
                )
            print(f"  {run.name + ', CPU time of the server':32} mean   {1e3 * statistics.median(cpu):6.2f} ms")


def type_text(ask_next: Callable[[str], object]) -> list[float]:
    """Seconds for each letter of TEXT."""
    times = []
    for end in range(1, len(TEXT) + 1):
        began = time.perf_counter()
        ask_next(TEXT[:end])
        times.append(time.perf_counter() - began)
    return times


# ------------------------------------------------------------------------------------------------ soak

SOAK_STREAMS, SOAK_REQUESTS = 100, 300
GROWTH = 32 << 20  # bytes that memory may grow, for the allocator


def soak(minutes: float) -> bool:
    """Whether every text was right, every request ended, and memory came back."""
    torch.set_num_threads(1)  # as the engine does for a small network
    # Double precision, so that the rounding of a batch changes no choice
    lm = make_gpt2(GPT2Config(width=64, layers=2, heads=4, window=64), 2000)
    lm.network.double()
    rng = random.Random(0)
    requests = []
    for prompt in draw_prompts(SOAK_REQUESTS, 40, 2000):
        decoding = rng.choice([Greedy(), Sample(seed=rng.randrange(10**6)), Sample(seed=3, top_p=0.9, repetition=1.2)])
        stop = Stop(rng.choice([1, 20, 100]), rng.choice([(), ("w1 ",)]), at_end=False)
        requests.append(GenerationRequest(prompt[: rng.randrange(40)], decoding, stop))
    expected = ["".join(p.text for p in lm.stream(lm.begin(r.prompt, r.decoding, r.stop))) for r in requests]
    engine = Engine(lm, prefix_bytes=4 << 20)
    counts, lock = Counter[str](), threading.Lock()
    end = 0.0

    def stream(seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < end:
            which = rng.randrange(len(requests))
            try:
                handle = engine.submit(requests[which])
            except QueueFull:
                time.sleep(0.05)
                continue
            cut = rng.randrange(30) if rng.random() < 0.3 else -1
            text, outcome = "", "lost"
            for i, event in enumerate(handle):
                if i == cut:
                    handle.cancel()
                if isinstance(event, TokenEvent):
                    text += event.text
                elif isinstance(event, Finished):
                    outcome = event.reason
            right = expected[which].startswith(text) if outcome == "cancelled" else text == expected[which]
            with lock:
                counts[outcome if right else "mixed"] += 1

    def run(seconds: float) -> int:
        """Run all streams for so long; the resident memory afterwards."""
        nonlocal end
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=stream, args=(seed,), daemon=True) for seed in range(SOAK_STREAMS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + 120)
            counts["stuck"] += thread.is_alive()
        gc.collect()
        return resident_bytes()

    before = run(min(20.0, 15 * minutes))  # the caches are full, and threads have their stacks
    warm = sum(counts.values())
    after = run(60 * minutes)
    stats = engine.stats()
    engine.close()
    grown = after - before
    print(f"soak: {SOAK_STREAMS} streams, {minutes:g} minutes after {warm:,} requests, {sum(counts.values()):,} in all")
    print("  " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))
    print(f"  tokens {stats.tokens:,}, prefix hits {stats.prefix_hits:,} of {stats.prefix_lookups:,}")
    print(f"  memory {before >> 20:,} MB before, {after >> 20:,} MB after")
    print(f"  running {stats.running}, waiting {stats.waiting} at the end")
    wrong = counts["mixed"] + counts["lost"] + counts["stuck"] + counts["error"] + stats.running + stats.waiting
    return not wrong and grown < GROWTH and counts["length"] > 0 and counts["cancelled"] > 0


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# ------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, one round")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="of the engine's parts")
    parser.add_argument("--runs", nargs="*", type=Path, default=[], metavar="RUN", help="to type with")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="only the soak")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(unknown)}")
    device = str(choose_device(arguments.device))
    name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{name}, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    if arguments.soak is not None:
        sys.exit(0 if soak(arguments.soak) else 1)
    config, words, tokens = GPT2Config(), GPT2_WORDS, TOKENS
    if arguments.rehearse:
        config, words, tokens = GPT2Config(width=32, layers=2, heads=2, window=128), 500, 20
    rounds = 1 if arguments.rehearse else arguments.rounds
    measures: dict[str, Callable[[], None]] = {
        "throughput": partial(measure_throughput, config, words, tokens, rounds, device),
        "first-token": partial(measure_first_token, config, words, 10 * rounds, device),
        "gaps": partial(measure_gaps, config, words, rounds, device),
        "batches": partial(measure_batches, arguments.rehearse, rounds),
        "typing": partial(measure_typing, arguments.rehearse, rounds, arguments.runs),
    }
    for part in arguments.parts or PARTS:
        measures[part]()


if __name__ == "__main__":
    main()
