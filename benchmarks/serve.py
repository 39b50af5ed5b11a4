"""The engine of `nextword serve` compared with one request at a time, and with transformers, in one run.

    python benchmarks/serve.py                     # throughput, time to the first token, next words while typing
    python benchmarks/serve.py throughput          # one of them
    python benchmarks/serve.py --soak 10           # 100 streams with random cancellations for ten minutes
    python benchmarks/serve.py --rehearse          # tiny sizes, to check that it runs

Throughput: STREAMS requests of TOKENS tokens each, greedy, of a GPT-2 of 124M random weights. Peers take turns, and the
median of the rounds counts. Whoever serves one request at a time gets a few of them only, for it takes long.

Soak: every stream draws requests, and cancels some of them. Each text must equal that of `lm.generate` for the same
seed, or begin as it does if it was cancelled; each request must end; and memory must not grow. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import nextword
from nextword.core.types import Greedy, Sample, Stop
from nextword.lm.base import TextModel
from nextword.lm.causal import CausalLM
from nextword.lm.loading import wrap_network
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.server.engine import Engine, Handle
from nextword.server.requests import Finished, GenerationRequest, QueueFull, TokenEvent
from nextword.tokenizers import vocabulary
from nextword.tokenizers.words import Words

STREAMS, TOKENS, PROMPT = 32, 128, 32
ONE_BY_ONE = 3  # requests for whoever serves one at a time
GPT2_WORDS = 50257
PARTS = ("throughput", "first-token", "typing")
TEXT = (
    "the value of an expression is an object and the types of its operands differ from one another so that they are "
    "converted to a common type before the operation is applied to them and the result is returned to the caller"
)


def make_words(count: int) -> Words:
    """A tokenizer of `count` tokens: the words of TEXT, and numbered ones."""
    common = list(dict.fromkeys(TEXT.split()))
    specials = len(Words([])) if count else 0
    return Words([*common, *(f"w{i}" for i in range(count - specials - len(common)))])


def make_gpt2(config: GPT2Config, words: int) -> CausalLM:
    torch.manual_seed(0)
    tokenizer = make_words(words)
    made = wrap_network(GPT2(config, vocabulary(tokenizer)).eval(), tokenizer)
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


def measure_throughput(config: GPT2Config, words: int, tokens: int, rounds: int) -> None:
    from transformers import GPT2Config as PeerConfig
    from transformers import GPT2LMHeadModel

    lm = make_gpt2(config, words)
    prompts, stop = draw_prompts(STREAMS, PROMPT, words), Stop(tokens, at_end=False)
    sizes = {"n_embd": config.width, "n_layer": config.layers, "n_head": config.heads, "n_positions": config.window}
    peer = GPT2LMHeadModel(PeerConfig(vocab_size=words, **sizes)).eval()
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
        ids = torch.tensor(rows)
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
    list(lm.stream(lm.begin(prompts[0], Greedy(), Stop(4, at_end=False))))  # compile
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            rates[name].append(tokens_per_second(work))
    print(f"throughput: {STREAMS} streams of {tokens} tokens after {PROMPT}, {lm.parameters:,} weights")
    best = statistics.median(rates["engine"])
    for name, values in rates.items():
        rate = statistics.median(values)
        print(f"  {name:32} {rate:8.1f} tokens/s   engine / this {best / rate:5.2f}   rounds {show(values)}")


def show(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


# ------------------------------------------------------------------------------------------------ first token


def measure_first_token(config: GPT2Config, words: int, rounds: int) -> None:
    lm = make_gpt2(config, words)
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


# ------------------------------------------------------------------------------------------------ typing


def measure_typing(is_rehearsal: bool) -> None:
    """`Engine.next` after every letter of a text, which the loopback and HTTP come on top of."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ngram"
        nextword.train("ngram/tiny" if is_rehearsal else "ngram/small", out=path, progress=False)
        tokenizer = make_words(500 if is_rehearsal else 20_000)
        lstm = LSTM(RecurrentConfig(width=16 if is_rehearsal else 650, layers=2), vocabulary(tokenizer)).eval()
        models: dict[str, TextModel] = {
            "n-gram": nextword.load(path, device="cpu"),
            "LSTM, 2 × 650": wrap_network(lstm, tokenizer),
        }
        print(f"typing: {len(TEXT)} letters, the 10 likeliest next words after each")
        for name, model in models.items():
            took: dict[str, list[float]] = {}
            for cache, size in (("without prefixes", 0), ("with a warm prefix", 64 << 20)):
                engine = Engine(model, prefix_bytes=size)
                engine.next(TEXT).result()
                times = []
                for end in range(1, len(TEXT) + 1):
                    began = time.perf_counter()
                    engine.next(TEXT[:end]).result()
                    times.append(time.perf_counter() - began)
                took[cache] = times
                engine.close()
            for cache, times in took.items():
                p95 = 1e3 * percentile(times, 0.95)
                print(f"  {name + ', ' + cache:40} median {1e3 * statistics.median(times):6.2f} ms   p95 {p95:6.2f} ms")


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
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="only the soak")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(unknown)}")
    print(f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    if arguments.soak is not None:
        sys.exit(0 if soak(arguments.soak) else 1)
    config, words, tokens = GPT2Config(), GPT2_WORDS, TOKENS
    if arguments.rehearse:
        config, words, tokens = GPT2Config(width=32, layers=2, heads=2, window=128), 500, 20
    for part in arguments.parts or PARTS:
        if part == "throughput":
            measure_throughput(config, words, tokens, arguments.rounds)
        elif part == "first-token":
            measure_first_token(config, words, 10 * arguments.rounds)
        else:
            measure_typing(arguments.rehearse)


if __name__ == "__main__":
    main()
