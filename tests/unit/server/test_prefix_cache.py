"""The prefix cache: which state is found, that it is a copy, and that memory stays within its bound."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from nextword.core import pytree
from nextword.server.prefix_cache import PrefixCache, count_bytes
from tests.support.served_models import make_served_model


class Words:
    """A network whose state is the ids that it has read. `can_cut`: states of shorter texts follow from it."""

    def __init__(self, can_cut: bool) -> None:
        self.can_cut = can_cut

    def state(self, ids: list[int]) -> Any:
        return {"ids": torch.tensor([[-1, *ids]])}

    def truncate(self, state: Any, read: int, count: int) -> Any:
        assert state["ids"].shape[1] == read
        return {"ids": state["ids"][:, :count]} if self.can_cut or read == count else None


def make_cache(can_cut: bool, max_bytes: int = 1 << 20) -> PrefixCache:
    return PrefixCache(Words(can_cut), max_bytes)  # type: ignore[arg-type]


def add(cache: PrefixCache, ids: list[int]) -> None:
    cache.add(ids, cache.network.state(ids))  # type: ignore[operator]


def find(cache: PrefixCache, ids: list[int]) -> list[int]:
    """The ids that the state found has read."""
    found = cache.find(ids)
    if found is None:
        return []
    read: list[int] = found.state["ids"][0, 1:].tolist()
    assert len(read) == found.length
    return read


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.mark.parametrize("can_cut", [False, True])
def test_state_found_has_read_the_most_of_the_prompt(can_cut: bool) -> None:
    rng, cache = random.Random(1), make_cache(can_cut)
    texts = []
    for _ in range(300):
        ids = [rng.choice([1, 2, 300]) for _ in range(rng.randrange(8))]
        lengths = [common(text, ids) if can_cut or common(text, ids) == len(text) else 0 for text in texts]
        assert find(cache, ids) == ids[: max(lengths, default=0)]
        if rng.random() < 0.2:
            add(cache, ids)
            texts.append(ids)
    assert cache.lookups == 300
    assert 0 < cache.hits < 300


def test_longer_text_replaces_the_one_that_it_contains_where_states_can_be_cut() -> None:
    cutting, whole = make_cache(True), make_cache(False)
    for cache in (cutting, whole):
        for ids in ([1], [1, 2], [1, 2, 3], [1, 2]):
            add(cache, ids)
    assert (len(cutting), len(whole)) == (1, 3)


def test_least_recently_used_states_are_dropped() -> None:
    size = 4 + count_bytes(Words(False).state([0]))
    cache = make_cache(False, max_bytes=3 * size)
    for id in (1, 2, 3):
        add(cache, [id])
    find(cache, [1, 9])
    add(cache, [4])
    assert cache.num_bytes == 3 * size
    assert [find(cache, [id, 9]) for id in (1, 2, 3, 4)] == [[1], [], [3], [4]]
    add(cache, list(range(100)))  # larger than the cache
    assert len(cache) == 3
    cache.clear()
    assert (len(cache), cache.num_bytes) == (0, 0)


def test_cache_without_memory_stores_nothing() -> None:
    cache = make_cache(True, max_bytes=0)
    add(cache, [1, 2])
    assert find(cache, [1, 2]) == []


def test_state_found_is_a_copy() -> None:
    cache = make_cache(True)
    state = cache.network.state([1, 2])  # type: ignore[operator]
    cache.add([1, 2], state)
    state["ids"].zero_()
    found = cache.find([1, 2])
    assert found is not None
    found.state["ids"].zero_()
    assert find(cache, [1, 2]) == [1, 2]


@torch.no_grad()
@pytest.mark.parametrize("slug", ["gpt2", "gpt3", "xlnet", "lstm", "awd-lstm", "nplm", "ngram", "elmo"])
def test_step_from_a_state_found_equals_step_after_reading_everything(slug: str) -> None:
    lm, rng = make_served_model(slug), random.Random(3)
    cache = PrefixCache(lm.network, 1 << 20)
    base = [rng.randrange(4, 12) for _ in range(60)]  # longer than the windows
    for _ in range(40):
        length = rng.randrange(1, 60)
        ids = [*base[:length], *(rng.randrange(4, 12) for _ in range(rng.randrange(4)))]
        last, state = lm.network.start(1)
        found = cache.find(ids[:-1])
        if found is not None:
            state, last = found.state, torch.full_like(last, ids[found.length])
            assert found.length < len(ids)
        rest = ids[found.length + 1 :] if found is not None else ids
        if rest:
            last, state = lm.read_chunk(last, torch.tensor([rest]), state)
        cache.add(ids[:-1], state)
        expected_last, expected_state = lm._read_prompts([ids])
        assert last.tolist() == expected_last.tolist() == [ids[-1]]
        log_probs, _ = lm.network.step(last, pytree.clone(state))
        torch.testing.assert_close(log_probs, lm.network.step(last, expected_state)[0], atol=1e-6, rtol=0)
    assert cache.hits > 10
