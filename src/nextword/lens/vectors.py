"""Where words and texts lie: nearest neighbors by cosine, and the plane of greatest variance.

    texts ──embed──▶ vectors (N, D) ──center──▶ SVD ──▶ two coordinates each        PCA: deterministic, and linear

The signs of principal components are arbitrary; here the coordinate of largest size is positive, so that a projection
is the same on every machine. The share of variance says how much of the distances the plane can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nextword.core.errors import invalid
from nextword.data.word_vectors import Vectors, parse_sum
from nextword.html.charts import Axis, Point, Series, responsive_figure, scatter_chart
from nextword.html.page import html_table, number_column, text_column
from nextword.lens.result import LensResult, run_name
from nextword.lm.base import Layer, TextModel
from nextword.models.base import word_vectors

WORDS, TEXTS = "words", "texts"


@dataclass(frozen=True)
class Neighbor:
    text: str
    cosine: float


@dataclass(frozen=True, eq=False, repr=False)
class Neighbors(LensResult):
    """The words or texts whose vectors are nearest to a query."""

    query: str
    of: str  # "words" of the model's table, or the given "texts"
    neighbors: tuple[Neighbor, ...]  # nearest first

    def __repr__(self) -> str:
        first = ", ".join(f"{each.text[:30]} {each.cosine:.3f}" for each in self.neighbors[:3])
        return f"Neighbors({self.query[:40]!r}: {first})"

    @property
    def title(self) -> str:
        return f"Nearest to “{self.query}”"

    def sections(self) -> list[tuple[str, str]]:
        rows = [{"text": each.text, "cosine": each.cosine} for each in self.neighbors]
        columns = [text_column(self.of.capitalize(), "text", "model"), number_column("Cosine", "{:.3f}".format)]
        return [(self.of.capitalize(), html_table(self.title, columns, rows))]


@dataclass(frozen=True)
class ProjectedPoint:
    text: str
    x: float
    y: float


@dataclass(frozen=True, eq=False, repr=False)
class Projection(LensResult):
    """Words or texts as points on the plane of greatest variance."""

    of: str
    points: tuple[ProjectedPoint, ...] = field(repr=False)
    variance: tuple[float, float]  # share of the variance along x and along y

    def __repr__(self) -> str:
        return f"Projection({len(self.points)} {self.of}: {sum(self.variance):.0%} of the variance)"

    @property
    def title(self) -> str:
        return f"{len(self.points)} {self.of} on the plane of greatest variance"

    def sections(self) -> list[tuple[str, str]]:
        series = [Series(p.text, [Point(p.x, p.y, note=p.text)], i) for i, p in enumerate(self.points)]
        axes = (f"component {i + 1}, {share:.0%} of the variance" for i, share in enumerate(self.variance))
        x, y = (Axis(name) for name in axes)
        chart = responsive_figure(
            lambda width, height: scatter_chart(series, x, y, self.title, width, height), (960, 560), (360, 380)
        )
        rows = [{"text": p.text, "x": p.x, "y": p.y} for p in self.points]
        number = "{:.3f}".format
        columns = [text_column(self.of.capitalize(), "text", "model"), *(number_column(n, number) for n in "xy")]
        return [("Plane", chart), ("Every point", html_table(self.title, columns, rows))]


def find_neighbors(
    model: TextModel,
    query: str,
    texts: Sequence[str] | None = None,
    k: int = 10,
    layer: Layer = -1,
    pooling: str = "mean",
) -> Neighbors:
    """The k nearest of these texts; or, without texts, the nearest words to a word or a sum (king - man + woman).

    `layer` and `pooling` are those of `model.embed`. Words are compared by the model's table, without context.
    """
    if k < 1:
        raise invalid("k", k, "must be at least 1.")
    if texts is None:
        found = word_vectors(model.network, model.tokenizer, model.name).nearest(parse_sum(query), k)
        return Neighbors(run_name(model), query, WORDS, tuple(Neighbor(word, cosine) for word, cosine in found))
    vectors = model.embed([query, *texts], layer, pooling).numpy()
    return rank_texts(run_name(model), query, texts, vectors, k)


def rank_texts(run: str, query: str, texts: Sequence[str], vectors: np.ndarray, k: int = 10) -> Neighbors:
    """The k texts that are nearest to the query, from the vectors of the query and then of each text."""
    wide = vectors.astype(np.float64)
    unit = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    cosines = unit[1:] @ unit[0]
    order = np.argsort(-cosines, kind="stable")[:k]
    return Neighbors(run, query, TEXTS, tuple(Neighbor(texts[i], float(cosines[i])) for i in order))


def project_vectors(
    model: TextModel, items: Sequence[str], of: str = TEXTS, layer: Layer = -1, pooling: str = "mean"
) -> Projection:
    """Texts, or words of the model's table (`of="words"`), as points on a plane, by principal components."""
    if of not in (WORDS, TEXTS):
        raise invalid("of", of, f"is unknown. Use {WORDS} or {TEXTS}.")
    check_items(items)
    vectors = look_words_up(model, items) if of == WORDS else model.embed(list(items), layer, pooling).numpy()
    return place_points(run_name(model), items, of, vectors)


def check_items(items: Sequence[str]) -> None:
    """Raise an error unless there are enough words or texts for a plane."""
    if isinstance(items, str) or len(items) < 3:
        raise invalid("items", items, "must be a list of at least three words or texts.")


def look_words_up(model: TextModel, words: Sequence[str]) -> np.ndarray:
    """The vectors of words in the model's table (words, width)."""
    table: Vectors = word_vectors(model.network, model.tokenizer, model.name)
    vectors: np.ndarray = table.matrix[[table.row_of(word) for word in words]]
    return vectors


def place_points(run: str, items: Sequence[str], of: str, vectors: np.ndarray) -> Projection:
    """The plane of greatest variance of these vectors (items, width)."""
    points, variance = principal_components(vectors.astype(np.float64))
    projected = tuple(ProjectedPoint(text, float(x), float(y)) for text, (x, y) in zip(items, points, strict=True))
    return Projection(run, of, projected, variance)


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """(N, D) → two coordinates each (N, 2), and the share of the variance along each."""
    centered = vectors - vectors.mean(0)
    u, sizes, _ = np.linalg.svd(centered, full_matrices=False)
    points = np.zeros((len(vectors), 2))
    kept = min(2, len(sizes))
    points[:, :kept] = u[:, :kept] * sizes[:kept]
    largest = np.abs(points).argmax(0)
    points *= np.where(points[largest, [0, 1]] < 0, -1.0, 1.0)
    total = float((sizes**2).sum()) or 1.0
    shares = [float(size**2) / total for size in sizes[:2]] + [0.0, 0.0]
    return points, (shares[0], shares[1])
