"""The published format of ELMo: tiny weights of bilm-tf and AllenNLP with their expected vectors.

Both fixtures were made alike: each batch has the k-th sentence of three files, and the states of the LSTMs are carried
from batch to batch, each row from the end of its own sentence, boundary tokens included. The expected vectors are the
last layer, forward and backward, without boundary tokens. The weights of the two differ, and those of bilm-tf have no
skip connections.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword.conversion import convert
from nextword.core.errors import DataError, NextwordError, Unsupported
from nextword.core.types import Inputs
from tests.support.errors import raises

h5py = pytest.importorskip("h5py", reason="HDF5 is not read without h5py: this test proves nothing here")

SENTENCES = {"allennlp": "sentences.json", "bilm-tf": "lm_embeddings_sentences.json"}


@pytest.fixture(scope="module", params=SENTENCES)
def folder(request: pytest.FixtureRequest, shared: Path) -> Path:
    found = shared / "fixtures" / "elmo" / request.param
    if not found.is_dir():
        pytest.skip(f"REAL DATA ABSENT: {found} does not exist, so this test proves nothing here")
    return found


@pytest.fixture
def lm(folder: Path, tmp_path: Path) -> Any:
    convert(folder, tmp_path / "run")
    return nextword.load(tmp_path / "run", device="cpu")


def batch_of(network: Any, rows: list[list[str]]) -> Inputs:
    """Sentences between their marks, all words by their letters."""
    table = {word: i for i, word in enumerate(dict.fromkeys(word for row in rows for word in row))}
    steps = max(map(len, rows)) + 2
    ids, padding = torch.zeros(len(rows), steps, dtype=torch.long), torch.zeros(len(rows), steps, dtype=torch.bool)
    for i, row in enumerate(rows):
        framed = [network.begin, *(network.known + table[word] for word in row), network.vocabulary.end]
        ids[i, : len(framed)], padding[i, : len(framed)] = torch.tensor(framed), True
    return Inputs(ids, token_mask=padding, characters=network.spell([word.encode() for word in table]))


def test_vectors_equal_published_fixtures(folder: Path, lm: Any) -> None:
    files = json.loads((folder / SENTENCES[folder.name]).read_text())
    expected = [h5py.File(folder / f"lm_embeddings_{i}.hdf5", "r") for i in range(3)]
    state, compared = None, 0
    for k in range(10):
        rows = [sentences[k].split() for sentences in files]
        with torch.no_grad():
            layers, state = lm.network.encode(batch_of(lm.network, rows), state)
        for i, row in enumerate(rows):
            wanted = np.asarray(expected[i][str(k)])  # (2, words, 16)
            found = layers[-1][i, 1 : len(row) + 1].numpy()
            np.testing.assert_allclose(found, np.concatenate(list(wanted), -1), atol=2e-6, rtol=0)
            compared += len(row)
    assert compared == 744


def test_embed_words_without_carried_state_equals_first_fixture_batch(folder: Path, lm: Any) -> None:
    """`embed_words` begins each sentence anew, so that a sentence has the same vectors whenever it is asked for."""
    sentences = [part[0] for part in json.loads((folder / SENTENCES[folder.name]).read_text())]
    for i, found in enumerate(lm.embed_words(sentences)):
        with h5py.File(folder / f"lm_embeddings_{i}.hdf5", "r") as file:
            wanted = np.concatenate(list(np.asarray(file["0"])), -1)
        np.testing.assert_allclose(found.vectors.numpy(), wanted, atol=2e-6, rtol=0)


def test_character_network_output_equals_fixture(shared: Path, tmp_path: Path) -> None:
    """What the character network makes of each word of the vocabulary, marks included."""
    folder = shared / "fixtures" / "elmo" / "allennlp"
    convert(folder, tmp_path / "run")
    network = nextword.load(tmp_path / "run", device="cpu").network
    with h5py.File(folder / "elmo_token_embeddings.hdf5", "r") as file:
        wanted = np.asarray(file["embedding"])
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    marks = {"<S>": network.begin, "</S>": network.vocabulary.end}
    table = [word.encode() for word in words]
    ids = [marks.get(word, network.known + i) for i, word in enumerate(words)]
    with torch.no_grad():
        found = network.embed(Inputs(torch.tensor([ids]), characters=network.spell(table)))[0].numpy()
    np.testing.assert_allclose(found, wanted, atol=2e-6, rtol=0)


def test_elmo_round_trip_keeps_vectors(folder: Path, lm: Any, tmp_path: Path) -> None:
    made = convert(tmp_path / "run", tmp_path / "theirs", to="elmo")
    assert made.target == tmp_path / "theirs"
    with (
        h5py.File(folder / "lm_weights.hdf5", "r") as before,
        h5py.File(tmp_path / "theirs" / "weights.hdf5", "r") as after,
    ):
        names: list[str] = []
        before.visititems(lambda name, it: names.append(name) if hasattr(it, "shape") else None)
        assert len(names) == 33
        for name in names:
            np.testing.assert_allclose(np.asarray(after[name]), np.asarray(before[name]), atol=1e-6, err_msg=name)
    ours = json.loads((tmp_path / "theirs" / "options.json").read_text())
    theirs = json.loads((folder / "options.json").read_text())
    assert ours == {"lstm": theirs["lstm"], "char_cnn": theirs["char_cnn"]}
    convert(tmp_path / "theirs", tmp_path / "again")
    again = nextword.load(tmp_path / "again", device="cpu")
    text = ["Why does everything have to become such a big issue ?"]
    torch.testing.assert_close(again.embed_words(text)[0].vectors, lm.embed_words(text)[0].vectors)


# ------------------------------------------------------------------------------------------------ bad files


@pytest.fixture
def broken(shared: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    source, target = shared / "fixtures" / "elmo" / "bilm-tf", tmp_path / "broken"
    target.mkdir()
    for name in ("options.json", "lm_weights.hdf5"):
        (target / name).write_bytes((source / name).read_bytes())
    return target


def test_convert_with_missing_or_misshaped_tensors_names_them(broken: Path, tmp_path: Path) -> None:
    with h5py.File(broken / "lm_weights.hdf5", "r+") as file:
        del file["CNN/b_cnn_2"]
        del file["RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"]
        file["RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"] = np.zeros((31, 256), np.float32)
    with pytest.raises(NextwordError) as caught:
        convert(broken, tmp_path / "run")
    said = str(caught.value)
    assert "CNN/b_cnn_2" in said
    assert "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0 is (31, 256)" in said
    assert not (tmp_path / "run").exists()


def test_convert_with_unfit_options_names_them(broken: Path, tmp_path: Path) -> None:
    options = json.loads((broken / "options.json").read_text())
    del options["lstm"]["dim"]
    (broken / "options.json").write_text(json.dumps(options))
    with pytest.raises(DataError):
        convert(broken, tmp_path / "run")
    (broken / "options.json").write_text(json.dumps({"lstm": options["lstm"], "n_tokens_vocab": 10}))
    with raises(Unsupported, ability="char_cnn"):
        convert(broken, tmp_path / "run")


def test_convert_with_damaged_hdf5_raises(broken: Path, tmp_path: Path) -> None:
    whole = (broken / "lm_weights.hdf5").read_bytes()
    for content in (b"version https://git-lfs.github.com/spec/v1\n", whole[: len(whole) // 2], b""):
        (broken / "lm_weights.hdf5").write_bytes(content)
        with pytest.raises(DataError):
            convert(broken, tmp_path / "run")


def test_convert_without_vocabulary_reads_words_by_characters(broken: Path, tmp_path: Path) -> None:
    made = convert(broken, tmp_path / "run")
    assert any("no vocabulary" in note for note in made.notes)
    lm = nextword.load(tmp_path / "run", device="cpu")
    one, other = lm.embed_words(["Don 't !", "Do n't !"])
    assert not torch.allclose(one.vectors[0], other.vectors[0])


def test_convert_other_model_to_elmo_raises(tmp_path: Path) -> None:
    from nextword.recipe import load_recipe
    from nextword.training.train import train_events

    list(train_events(load_recipe("lstm/tiny", ["phase.0.steps=1"]), tmp_path / "lstm", device="cpu"))
    with raises(Unsupported, ability="elmo"):
        convert(tmp_path / "lstm", tmp_path / "theirs", to="elmo")
