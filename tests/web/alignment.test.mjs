import assert from "node:assert/strict";
import { test } from "node:test";

import { alignWords, averageHeads } from "../../src/nextword/server/web/core/alignment.js";
import { compareWords } from "../../src/nextword/server/web/core/differences.js";

const token = (text, start, end) => ({ text, start, end });

test("attention of words: added up over the source's tokens, averaged over the translation's", () => {
  const rows = [token("ei", 0, 2), token("n", 2, 3), token(" Hund", 3, 8), token("</s>", 8, 8)];
  const columns = [token("a", 0, 1), token(" do", 1, 4), token("g", 4, 5), token("</s>", 5, 5)];
  const weights = [[0.8, 0.1, 0.1, 0], [0.4, 0.2, 0.2, 0.2], [0, 0.5, 0.3, 0.2], [0, 0, 0, 1]];
  const found = alignWords({ text: "ein Hund", source: "a dog", rows, columns, weights });
  assert.deepEqual(found.rows, ["ein", "Hund"]);
  assert.deepEqual(found.columns, ["a", "dog"]);
  const close = (a, b) => a.forEach((value, i) => assert.ok(Math.abs(value - b[i]) < 1e-12, `${a} ${b}`));
  close(found.weights[0], [0.6, 0.3]);
  close(found.weights[1], [0, 0.8]);
  close(found.rest, [0.1, 0.2]);
});

test("bytes of tokens are places of letters", () => {
  const rows = [token("шум", 0, 6)];
  const columns = [token("天", 0, 3), token("地", 3, 6)];
  const found = alignWords({ text: "шум", source: "天地", rows, columns, weights: [[0.25, 0.75]] });
  assert.deepEqual(found.rows, ["шум"]);
  assert.ok(Math.abs(found.weights[0].reduce((a, b) => a + b, 0) - 1) < 1e-12);
});

test("heads are averaged", () => {
  assert.deepEqual(averageHeads([[[1, 0]], [[0, 1]]]), [[0.5, 0.5]]);
});

test("words that the other text lacks are found by their place", () => {
  const different = (text, other) => compareWords(text, other).filter((each) => !each.isSame).map((each) => each.word);
  assert.deepEqual(different("a b c d", "a x c d"), ["b"]);
  assert.deepEqual(different("a b", "b a"), different("a b", "b a").slice(0, 1));
  assert.deepEqual(different("same words", "same words"), []);
  assert.deepEqual(different("new", ""), ["new"]);
  assert.deepEqual(different("", "old"), []);
  const long = "word ".repeat(1000);
  assert.deepEqual(different(long, "x"), []); // too long to be compared
});
