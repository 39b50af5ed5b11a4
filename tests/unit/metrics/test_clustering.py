"""Spherical k-means recovers separate clusters for any order and seed."""

from __future__ import annotations

import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from nextword.core.errors import InvalidSetting
from nextword.metrics.clustering import cluster


def blobs(sizes: tuple[int, ...], width: int = 12, noise: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    centres = torch.nn.functional.normalize(torch.randn(len(sizes), width, generator=draw), dim=1)
    which = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    vectors = centres[which] + noise * torch.randn(len(which), width, generator=draw)
    lengths = torch.rand(len(which), 1, generator=draw) * 5 + 0.1  # cosine ignores lengths
    order = torch.randperm(len(which), generator=draw)
    return (vectors * lengths)[order], which[order]


@pytest.mark.parametrize("seed", range(5))
def test_cluster_recovers_separate_blobs(seed: int) -> None:
    vectors, gold = blobs((40, 25, 10, 3))
    labels, cosines = cluster(vectors, 4, seed)
    assert adjusted_rand_score(gold, labels) == 1.0
    assert torch.bincount(labels).tolist() == [40, 25, 10, 3]  # largest first
    assert cosines.min() > 0.7


def test_cluster_is_as_tight_as_sklearns_kmeans() -> None:
    """For unit vectors the squared distance is 2 · (1 − cosine), so both have the same objective."""
    vectors, _ = blobs((30, 30, 30), noise=0.6)
    unit = torch.nn.functional.normalize(vectors, dim=1)
    _, cosines = cluster(vectors, 3)
    theirs = KMeans(3, n_init=10, random_state=0).fit(unit.numpy())
    means = torch.nn.functional.normalize(torch.from_numpy(theirs.cluster_centers_).float(), dim=1)
    assert cosines.sum() >= 0.999 * (unit * means[torch.from_numpy(theirs.labels_).long()]).sum()


def test_cluster_leaves_no_cluster_empty() -> None:
    vectors = torch.eye(5)
    assert sorted(cluster(vectors, 5)[0].tolist()) == list(range(5))
    labels, cosines = cluster(torch.ones(6, 3), 3)
    assert sorted(set(labels.tolist())) == [0, 1, 2]  # none is empty, although all vectors are equal
    torch.testing.assert_close(cosines, torch.ones(6))


@pytest.mark.parametrize("k", [0, 7])
def test_cluster_with_impossible_k_is_rejected(k: int) -> None:
    with pytest.raises(InvalidSetting) as error:
        cluster(torch.randn(6, 3), k)
    assert (error.value.key, error.value.value) == ("groups", k)
