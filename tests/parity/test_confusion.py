"""Confusion matrices, per-class scores, calibration and class weights compared with scikit-learn and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix as sklearn_confusion_matrix
from sklearn.metrics import precision_recall_fscore_support
from sklearn.utils.class_weight import compute_class_weight

from nextword.core.errors import NextwordError
from nextword.core.types import Batch, Inputs
from nextword.data.tables import Rows
from nextword.metrics.classification import calibration, confusion_matrix, most_confused, score_classes
from nextword.tasks.classification import LabelObjective, resolve_class_weights
from nextword.tasks.text_data import TextDataset

LABELS = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("seed", range(4))
def test_score_classes_equals_sklearn(seed: int) -> None:
    draw = np.random.default_rng(seed)
    gold, said = draw.integers(0, 4, 200), draw.integers(0, 5, 200)  # e is said and never right
    counts = confusion_matrix(gold, said, 5)
    np.testing.assert_array_equal(counts, sklearn_confusion_matrix(gold, said, labels=range(5)))
    found = score_classes(counts, LABELS)
    theirs = precision_recall_fscore_support(gold, said, labels=range(5), zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "examples"), theirs, strict=True):
        np.testing.assert_allclose([one[name] for one in found], values)


def test_most_confused_lists_frequent_mistakes_first() -> None:
    counts = np.array([[5, 0, 3], [1, 7, 0], [4, 0, 0]])
    assert most_confused(counts, "abc", 2) == [
        {"label": "c", "predicted": "a", "count": 4, "share": 1.0},
        {"label": "a", "predicted": "c", "count": 3, "share": 3 / 8},
    ]
    assert len(most_confused(counts, "abc", 9)) == 3  # what never happened is no mistake


def test_calibration_equals_hand_computed_bins() -> None:
    """Bins of a tenth: 0.55 and 0.60 lie in (0.5, 0.6], 0.95 and 1.0 in (0.9, 1]."""
    probability = np.array([0.55, 0.60, 0.95, 1.0, 0.85])
    right = np.array([True, False, True, True, False])
    error, bins = calibration(probability, right)
    # |1/2 − 0.575| · 2/5 + |1 − 0.975| · 2/5 + |0 − 0.85| · 1/5
    assert error == pytest.approx(0.075 * 0.4 + 0.025 * 0.4 + 0.85 * 0.2)
    assert [one.examples for one in bins] == [0, 0, 0, 0, 0, 2, 0, 0, 1, 2]
    assert (bins[5].accuracy, bins[5].confidence) == (0.5, pytest.approx(0.575))
    assert calibration(np.array([0.0, 1.0]), np.array([False, True]))[0] == 0


def labelled(*labels: str) -> TextDataset:
    rows = Rows([""] * len(labels), None, list(labels))
    return TextDataset("set", "classify", "classify", tuple(sorted(set(labels))), ("accuracy",), {"train": rows})


def test_balanced_class_weights_equal_sklearn() -> None:
    labels = ["spam"] * 3 + ["ham"] * 9 + ["other"] * 2
    found = resolve_class_weights("balanced", labelled(*labels))
    theirs = compute_class_weight("balanced", classes=np.array(["ham", "other", "spam"]), y=np.array(labels))
    np.testing.assert_allclose(found, theirs)
    assert resolve_class_weights({"spam": 4}, labelled(*labels)) == (1.0, 1.0, 4.0)
    assert resolve_class_weights([1, 2, 3], labelled(*labels)) == (1.0, 2.0, 3.0)
    assert resolve_class_weights("", labelled(*labels)) == ()


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ("balance", "'balanced'"),
        ({"spm": 2.0}, "'spam'"),
        ([1.0], "2 classes: ham, spam"),
        ([1.0, 0.0], "above 0"),
        ([1.0, True], "above 0"),
    ],
)
def test_invalid_class_weights_raise(weights: object, named: str) -> None:
    with pytest.raises(NextwordError, match=named):
        resolve_class_weights(weights, labelled("spam", "ham"))


class Saying(torch.nn.Module):
    """A network that says what it was made with."""

    def __init__(self, said: torch.Tensor, weights: torch.Tensor | None) -> None:
        super().__init__()
        self.said, self.weights = torch.nn.Parameter(said), weights

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.said


def test_weighted_loss_and_gradient_equal_torch() -> None:
    torch.manual_seed(0)
    said, targets, weights = torch.randn(7, 3), torch.tensor([0, 1, 2, 2, 2, 0, 1]), torch.tensor([0.5, 2.0, 1.3])
    batch = Batch(Inputs(torch.zeros(7, 1, dtype=torch.long)), targets)
    ours = Saying(said.clone(), weights)
    loss = LabelObjective({}).loss(ours, batch, None)
    loss.value.backward()
    theirs = said.clone().requires_grad_()
    value = torch.nn.CrossEntropyLoss(weights)(theirs, targets)
    value.backward()
    torch.testing.assert_close(loss.value.detach(), value.detach())
    torch.testing.assert_close(ours.said.grad, theirs.grad)
    # what is told of training stays the likelihood: comparable with and without weights
    torch.testing.assert_close(loss.nats, torch.nn.functional.cross_entropy(said, targets, reduction="sum"))
