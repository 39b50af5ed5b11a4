"""Peters et al. 2018: ELMo gives a word different vectors in different contexts, and they separate its senses.

Two topics have sixteen words each, and "bank" belongs to both. All words of a sentence have one topic:

    reba tofu bank mila <eos>        the first
    kato bank suri nobe <eos>        the second

The senses of "bank" are tested among words that occur in none of the sentences that define the senses. What is known
of these words comes from language modeling in both directions; the characters reveal nothing.
"""

from __future__ import annotations

import statistics
from itertools import islice

import numpy as np
import pytest
import torch

from nextword.batching.token_stream import Stream
from nextword.lm.causal import CausalLM
from nextword.models.elmo import ELMo
from nextword.objectives.bidirectional import BidirectionalObjective
from nextword.tokenizers import vocabulary
from nextword.tokenizers.words import Words

WORDS = 16
STEPS = 250


def spellings(rng: np.random.Generator) -> list[str]:
    made: dict[str, None] = {}
    while len(made) < 2 * WORDS:
        made["".join(str(rng.choice(list(letters))) for letters in ("bdfgklmnprst", "aeiou") * 2)] = None
    return list(made)


def sentence(rng: np.random.Generator, topic: list[str]) -> list[str]:
    words = list(rng.choice(topic, rng.integers(3, 6)))
    words.insert(int(rng.integers(1, len(words))), "bank")
    return words


def told_apart(seed: int) -> tuple[float, float, float]:
    """How often the sense of "bank" is known: by the last layer before training and after it; and by its letters."""
    rng = np.random.default_rng(seed)
    words = spellings(rng)
    topics = words[:WORDS], words[WORDS:]
    tokenizer = Words([*words, "bank"], lines=False)
    text = [word for _ in range(3000) for word in (*sentence(rng, topics[rng.integers(2)]), "\n")]
    ids = np.concatenate([tokenizer.encode(word).ids if word != "\n" else [1] for word in text])
    torch.manual_seed(seed)
    characters = {"filters": [[1, 8], [2, 16], [3, 16]], "character_width": 8, "highway": 1}
    network = ELMo(ELMo.Config(width=16, cell_size=32, characters=characters), vocabulary(tokenizer, spellings=True))
    model = CausalLM(network, tokenizer)
    half = WORDS // 2
    shown = [[sentence(rng, topic[:half]) for _ in range(40)] for topic in topics]
    asked = [[sentence(rng, topic[half:]) for _ in range(40)] for topic in topics]

    def right(layer: int) -> float:
        network.eval()
        vectors = [
            [
                torch.stack([one.vectors[one.words.index("bank")] for one in model.embed_words(part, layer)])
                for part in of
            ]
            for of in (shown, asked)
        ]
        senses = torch.stack([part.mean(0) for part in vectors[0]])
        guesses = [torch.cdist(part, senses).argmin(1) == topic for topic, part in enumerate(vectors[1])]
        return torch.cat(guesses).double().mean().item()

    before = right(-1)
    objective = BidirectionalObjective({"rows": 32, "length": 16})
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    state = None
    for batch in islice(objective.batches(Stream.from_ids(ids), seed, 0), STEPS):
        network.train()
        loss = objective.loss(network, batch, None if batch.reset_state else state)
        optimizer.zero_grad()
        loss.value.backward()
        optimizer.step()
        state = [tuple(part.detach() for part in memory) for memory in loss.state]
    return before, right(-1), right(0)


@pytest.mark.slow
def test_elmo_vectors_separate_two_senses() -> None:
    before, after, letters = (statistics.median(found) for found in zip(*map(told_apart, (1, 2, 3)), strict=True))
    assert after > 0.9, after
    assert before < 0.75, before
    assert letters == 0.5  # one vector, whatever the context
