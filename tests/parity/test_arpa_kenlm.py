"""ARPA files exchanged with KenLM: both give every word the same log probability."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from nextword.ngrams.arpa import CONVENTIONS, read_arpa, write_arpa
from nextword.ngrams.trie import Section, Trie, build_section, build_trie
from tests.support.reference_ngrams import assert_sound, log_probs

kenlm = pytest.importorskip("kenlm")
FIXTURES = ["test.arpa", "test_nounk.arpa", "toy0.arpa", "toy1.arpa"]


def compare(trie: Trie, names: list[str], peer: object, rng: random.Random, sentences: int) -> None:
    """Sentences of random words, unknown ones and n-grams of the model, with and without boundaries."""
    ids = {name: i for i, name in enumerate(names)}
    phrases = [trie.ngrams(k)[:, 1:] for k in range(1, trie.order) if len(trie.levels[k])]
    for _ in range(sentences):
        words: list[str] = []
        while len(words) < 8:
            if rng.random() < 0.6:
                row = rng.choice(phrases)
                words += [names[w] for w in row[rng.randrange(len(row))] if w != 1]
            else:
                words.append(rng.choice([*names[2:], "never-seen", "<unk>"]))
        bos, eos = rng.random() < 0.7, rng.random() < 0.7
        stream = [1] * bos + [ids.get(word, 0) for word in words] + [1] * eos
        ours = log_probs(trie, stream)[bos:]
        theirs = [score for score, _, _ in peer.full_scores(" ".join(words), bos=bos, eos=eos)]  # type: ignore[attr-defined]
        theirs = np.array(theirs) * math.log(10)
        # relative: where <unk> is missing it has ln p = -230, and there float32 has steps of 1.5e-5
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-5, err_msg=" ".join(words))


def loaded(path: Path) -> object:
    return kenlm.Model(str(path))


@pytest.mark.parametrize("name", FIXTURES)
def test_read_arpa_written_by_kenlm_gives_kenlm_scores(shared: Path, tmp_path: Path, name: str) -> None:
    path = shared / "fixtures" / "kenlm" / name
    trie, names = read_arpa(path)
    assert_sound(trie)
    compare(trie, names, loaded(path), random.Random(0), 150)
    for convention in CONVENTIONS:
        write_arpa(trie, names, tmp_path / "again.arpa", convention)
        compare(trie, names, loaded(tmp_path / "again.arpa"), random.Random(1), 50)


def made(order: int, rng: np.random.Generator) -> Trie:
    """A random model: n-grams that go on from n-grams of the order below, values without meaning."""
    size = 12
    values = [(rng.uniform(-6, -1.5, size), rng.uniform(-2, 0.5, size))]
    sections = [
        Section(np.zeros((0, 1), np.uint32), *(v.astype(np.float32) for v in values[0]), np.zeros(0, np.uint32))
    ]
    rows = np.arange(size, dtype=np.uint32)[:, None]
    for n in range(2, order + 1):
        contexts = rows if n == 2 else rows[rows[:, -1] != 1]
        longer = np.concatenate([np.repeat(contexts, 3, axis=0), rng.integers(0, size, (3 * len(contexts), 1))], axis=1)
        rows = np.unique(longer.astype(np.uint32), axis=0)
        rows = np.ascontiguousarray(rng.permutation(rows)[:60])
        log_probs = rng.uniform(-6, -1.5, len(rows)).astype(np.float32)
        sections.append(build_section(rows, log_probs, rng.uniform(-2, 0.5, len(rows)).astype(np.float32))[0])
    return build_trie(sections, 1, {})


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_write_arpa_read_by_kenlm_gives_equal_scores(tmp_path: Path, order: int, convention: str) -> None:
    trie = made(order, np.random.default_rng(order))
    assert_sound(trie)
    names = ["<unk>", "<eos>", *"abcdefgh", "ä\u00a0ö", "漢字"]
    path = tmp_path / "model.arpa"
    write_arpa(trie, names, path, convention)
    again, same_names = read_arpa(path)
    assert same_names == names
    assert again.facts["inserted"] == 0
    rng = random.Random(order)
    compare(again, names, loaded(path), rng, 100)
    compare(trie, names, loaded(path), rng, 100)


@pytest.mark.parametrize("seed", range(5))
def test_read_arpa_with_missing_ngrams_keeps_all_scores(tmp_path: Path, seed: int) -> None:
    """Lines are struck out at random; the file by the definition, line by line, and the completed trie agree."""
    rng = random.Random(seed)
    write_arpa(made(4, np.random.default_rng(seed)), ["<unk>", "<eos>", *"abcdefghij"], tmp_path / "whole.arpa")
    sections = (tmp_path / "whole.arpa").read_text().split("-grams:\n")[1:]
    kept = [[line for line in text.split("\n") if line.count("\t") and (k == 0 or rng.random() < 0.5)]
            for k, text in enumerate(sections)]  # fmt: skip
    text = "\\data\\\n" + "".join(f"ngram {k + 1}={len(lines)}\n" for k, lines in enumerate(kept))
    for k, lines in enumerate(kept):
        text += f"\n\\{k + 1}-grams:\n" + "".join(f"{line}\n" for line in lines)
    (tmp_path / "struck.arpa").write_text(text + "\n\\end\\\n")
    trie, names = read_arpa(tmp_path / "struck.arpa")
    assert_sound(trie)
    assert trie.facts["inserted"] > 0

    columns = {tuple(line.split("\t")[1].split()): line.split("\t") for lines in kept for line in lines}

    def defined(context: tuple[str, ...], word: str) -> float:
        if (found := columns.get((*context, word))) is not None:
            return float(found[0])
        backoff = columns.get(context, ["", "", "0"])
        return (float(backoff[2]) if len(backoff) == 3 else 0) + defined(context[1:], word)

    for _ in range(100):
        ids = [1, *(rng.choice([w for w in range(len(names)) if w != 1]) for _ in range(7)), 1]
        words = ["<s>", *(names[w] for w in ids[1:-1]), "</s>"]
        ours = log_probs(trie, ids)[1:]
        meant = [math.log(10) * defined(tuple(words[max(0, t - 3) : t]), words[t]) for t in range(1, len(words))]
        np.testing.assert_allclose(ours, meant, rtol=0, atol=1e-5)
