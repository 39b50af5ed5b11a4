from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from nextword import lens
from nextword.core.errors import InvalidSetting, UnknownName, Unsupported
from nextword.lens.vectors import principal_components
from tests.support.untrained_models import make_model

TEXTS = ["the dog lay by the mat", "a king of old", "the cat", "see his house", "and slept"]


def test_neighbors_are_ordered_by_cosine() -> None:
    model = make_model("lstm")
    result = lens.find_neighbors(model, "the cat sat", TEXTS, k=3, pooling="last")
    vectors = model.embed(["the cat sat", *TEXTS], pooling="last")
    cosines = torch.cosine_similarity(vectors[:1], vectors[1:])
    assert [n.text for n in result.neighbors] == [TEXTS[i] for i in cosines.argsort(descending=True)[:3]]
    assert [n.cosine for n in result.neighbors] == pytest.approx(sorted(cosines.tolist(), reverse=True)[:3], abs=1e-5)
    assert result.of == "texts"


def test_neighbors_of_words_are_those_of_the_table() -> None:
    model = make_model("word2vec")
    result = lens.find_neighbors(model, "cat", k=4)
    assert [(n.text, n.cosine) for n in result.neighbors] == model.nearest("cat", 4)
    assert result.of == "words"
    with pytest.raises(UnknownName):
        lens.find_neighbors(model, "xylophone")
    with pytest.raises(Unsupported):
        lens.find_neighbors(make_model("gpt2"), "cat")  # pieces of words


def test_projection_equals_sklearn_up_to_signs() -> None:
    vectors = np.random.default_rng(0).normal(size=(12, 7))
    points, variance = principal_components(vectors)
    peer = PCA(2).fit(vectors)
    np.testing.assert_allclose(np.abs(points), np.abs(peer.transform(vectors)), atol=1e-10)
    np.testing.assert_allclose(variance, peer.explained_variance_ratio_, atol=1e-10)
    for axis in points.T:
        assert axis[np.abs(axis).argmax()] > 0  # signs are fixed


def test_projection_of_points_in_a_plane_keeps_distances() -> None:
    model = make_model("bert")
    result = lens.project_vectors(model, TEXTS[:3])  # three points are always in a plane
    vectors = model.embed(TEXTS[:3])
    points = torch.tensor([[p.x, p.y] for p in result.points])
    torch.testing.assert_close(torch.pdist(points.double()), torch.pdist(vectors.double()), rtol=1e-4, atol=1e-4)
    assert sum(result.variance) == pytest.approx(1)
    assert [p.text for p in result.points] == TEXTS[:3]
    again = lens.project_vectors(model, TEXTS[:3])
    assert again.points == result.points


def test_projection_of_equal_vectors_is_a_point() -> None:
    points, variance = principal_components(np.ones((4, 3)))
    assert not points.any()
    assert variance == (0.0, 0.0)


def test_words_and_texts_are_checked() -> None:
    model = make_model("word2vec")
    assert lens.project_vectors(model, ["cat", "dog", "king"], of="words").of == "words"
    for arguments, key in ((["cat", "dog"], "items"), ("cat", "items")):
        with pytest.raises(InvalidSetting) as caught:
            lens.project_vectors(model, arguments)
        assert caught.value.key == key
    with pytest.raises(InvalidSetting):
        lens.project_vectors(model, TEXTS, of="colors")
    with pytest.raises(InvalidSetting):
        lens.find_neighbors(model, "cat", k=0)
