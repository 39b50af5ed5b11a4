import assert from "node:assert/strict";
import { test } from "node:test";
import { cosine, isZero, nearest, parseSum, principalComponents, sumOf } from "../../src/nextword/server/web/core/vectors.js";
import { random } from "./drawing.mjs";

const close = (a, b, tolerance = 1e-9) => assert.ok(Math.abs(a - b) <= tolerance, `${a} ${b}`);

test("cosines are those of the angle, and of a zero vector 0", () => {
  close(cosine([1, 0], [0, 2]), 0);
  close(cosine([1, 1], [2, 2]), 1);
  close(cosine([1, 0], [-3, 0]), -1);
  assert.equal(cosine([0, 0], [1, 0]), 0);
  assert.ok(isZero([0, 0]) && !isZero([0, 1e-9]));
});

test("neighbors come nearest first, without those that are left out or unknown", () => {
  const vectors = [[1, 0], [0.9, 0.1], [0, 1], [0, 0], [-1, 0]];
  assert.deepEqual(nearest([1, 0], vectors, { without: [0] }).map(({ index }) => index), [1, 2, 4]);
  assert.equal(nearest([1, 0], vectors, { k: 1 })[0].index, 0);
});

test("sums of words are read as the server reads them", () => {
  assert.deepEqual(parseSum("king - man + woman"), [{ word: "king", weight: 1 }, { word: "man", weight: -1 }, { word: "woman", weight: 1 }]);
  assert.deepEqual(parseSum(" well-known "), [{ word: "well-known", weight: 1 }]);
  for (const bad of ["", "king -", "- king", "king man", "king - - man", "+"]) assert.equal(parseSum(bad), null, bad);
});

test("a sum weighs unit vectors", () => {
  const [x, y] = sumOf([[10, 0], [0, 3]], [1, -1]);
  close(x, 1);
  close(y, -1);
});

test("principal components keep all distances of points that lie on a plane", () => {
  const draw = random(5);
  const normal = () => draw() + draw() + draw() - 1.5;
  const axes = [Array.from({ length: 7 }, normal), Array.from({ length: 7 }, normal)];
  const vectors = Array.from({ length: 12 }, () => {
    const [a, b] = [3 * normal(), normal()];
    return axes[0].map((value, i) => a * value + b * axes[1][i] + 5);
  });
  const { points, variance } = principalComponents(vectors);
  close(variance[0] + variance[1], 1);
  assert.ok(variance[0] >= variance[1]);
  const distance = (a, b) => Math.hypot(...a.map((value, i) => value - b[i]));
  for (let i = 0; i < 12; i += 1) for (let j = 0; j < i; j += 1) close(distance(points[i], points[j]), distance(vectors[i], vectors[j]), 1e-6);
  for (const axis of [0, 1]) {
    const column = points.map((point) => point[axis]);
    assert.ok(Math.max(...column) >= -Math.min(...column)); // the largest coordinate is positive
    close(column.reduce((sum, value) => sum + value, 0), 0, 1e-7);
  }
});

test("equal vectors have no variance, and lie at one point", () => {
  const { points, variance } = principalComponents([[1, 2], [1, 2], [1, 2]]);
  assert.deepEqual(points, [[0, 0], [0, 0], [0, 0]]);
  assert.deepEqual(variance, [0, 0]);
});
