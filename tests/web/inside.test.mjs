import assert from "node:assert/strict";
import { test } from "node:test";

import { continuation, decayOf, fateOf, labelsOf, orderUnits, partsOf, patternOf, stepAt, strongest } from "../../src/nextword/server/web/core/inside.js";

const token = (text, start, end) => ({ text, start, end });
const near = (value, expected) => assert.ok(Math.abs(value - expected) < 1e-9, `${value} is not ${expected}`);

test("parts are the tokens of a text, with what stands between them, and special tokens in their place", () => {
  const tokens = [token("[CLS]", 0, 0), token("a", 0, 1), token("b", 2, 3), token("[SEP]", 0, 0)];
  const parts = partsOf("a b", tokens);
  assert.deepEqual(parts.map((part) => part.text), ["[CLS]", "a", " ", "b", "[SEP]"]);
  assert.deepEqual(parts.map((part) => part.tokens), [[0], [1], [], [2], [3]]);
  assert.deepEqual(parts.map((part) => part.isSpecial), [true, false, false, false, true]);
});

test("bytes of one character are one part; steps of a network that reads backward are in the order of the text", () => {
  const bytes = [0, 1, 2].map((i) => token("", i, i + 1));
  assert.deepEqual(partsOf("中", bytes).map((part) => part.tokens), [[0, 1, 2]]);
  const backward = [token("<s>", 0, 0), token("b", 1, 2), token("a", 0, 1)];
  assert.deepEqual(partsOf("ab", backward).filter((part) => !part.isSpecial).map((part) => [part.text, part.tokens[0]]), [["a", 2], ["b", 1]]);
});

test("labels are tokens without spaces; tokens that share a character are numbered", () => {
  assert.deepEqual(labelsOf("a 中", [token("a", 0, 1), token("", 1, 3), token("", 3, 5)]), ["a", "中₁", "中₂"]);
  assert.deepEqual(labelsOf("a b", [token("<s>", 0, 0), token("a", 0, 1), token(" b", 1, 3)]), ["<s>", "a", "b"]);
});

test("strongest values come first, by a size if one is given", () => {
  assert.deepEqual(strongest([0.1, 0.5, 0.4], 2), [1, 2]);
  assert.deepEqual(strongest([1, -3, 2], 2, Math.abs), [1, 2]);
  assert.deepEqual(strongest([], 2), []);
});

test("the pattern of a head is what gets most of its attention", () => {
  const n = 6;
  const to = (place) => Array.from({ length: n }, (_, row) => Array.from({ length: n }, (__, column) => Number(column === Math.max(0, Math.min(n - 1, place(row))))));
  assert.equal(patternOf(to((row) => row - 1)).name, "previous");
  assert.equal(patternOf(to((row) => row)).name, "self");
  assert.equal(patternOf(to(() => 0)).name, "first");
  const even = Array.from({ length: n }, () => Array(n).fill(1 / n));
  const { name, share } = patternOf(even);
  assert.equal(name, "spread");
  near(share, n);
  assert.equal(patternOf(to((row) => row), { isSquare: false }).name, "spread"); // rows and columns are different texts
});

test("a gradient that falls by half at each step has that factor", () => {
  const { factor, half, reach } = decayOf([1, 2, 4, 8]);
  near(factor, 0.5);
  near(half, 1);
  near(reach, 1 / 8);
  assert.equal(decayOf([8, 4]).half, null);
  assert.deepEqual(decayOf([3]), { factor: null, half: null, reach: 1 });
  assert.equal(decayOf([0, 1]).factor, null);
  const fates = [[0.5, 0.1], [0.99, 0.01], [1, 1], [1.5, 2], [null, 1]].map(([own, share]) => fateOf({ factor: own, reach: share }));
  assert.deepEqual(fates, ["vanishes", "vanishes", "stays", "explodes", "unknown"]);
});

test("units are ordered by mean and by variance over time", () => {
  const values = [[0.1, 0.9, 0], [0.2, 0.8, 1]];
  assert.deepEqual(orderUnits(values, "index"), [0, 1, 2]);
  assert.deepEqual(orderUnits(values, "mean"), [1, 2, 0]);
  assert.equal(orderUnits(values, "variance")[0], 2);
  assert.deepEqual(orderUnits([], "mean"), []);
});

test("a byte is a place between steps", () => {
  const tokens = [token("<s>", 0, 0), token("ab", 0, 2), token("cd", 2, 4)];
  assert.equal(stepAt(tokens, 2), 1);
  assert.equal(stepAt(tokens, 3), 1.5);
  assert.equal(stepAt(tokens, 4), 2);
  assert.equal(stepAt(tokens, 9), 2);
});

test("a word stands behind a text with a space, where the script has spaces", () => {
  assert.equal(continuation("the", "king"), " king");
  assert.equal(continuation("the ", "king"), "king");
  assert.equal(continuation("the", ","), ",");
  assert.equal(continuation("", "king"), "king");
  assert.equal(continuation("起初神创造", "天地"), "天地");
});
