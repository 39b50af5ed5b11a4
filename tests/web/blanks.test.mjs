import assert from "node:assert/strict";
import { test } from "node:test";

import { fillBlank, makeBlank, segments, shares, split } from "../../src/nextword/server/web/core/blanks.js";
import { drawText, random } from "./drawing.mjs";

test("a word is put into one blank, and the others stay", () => {
  assert.equal(fillBlank("The ___ sat on the ___.", 0, "cat"), "The cat sat on the ___.");
  assert.equal(fillBlank("The ___ sat on the ___.", 1, "mat"), "The ___ sat on the mat.");
});

test("a blank replaces the words of a selection, without the space around them", () => {
  const text = "The old ___ sat";
  assert.deepEqual(makeBlank(text, 3, 8), { text: "The ___ ___ sat", index: 0, word: "old" });
  assert.deepEqual(makeBlank(text, 12, 15), { text: "The old ___ ___", index: 1, word: "sat" });
  assert.deepEqual(makeBlank("ab", 1, 1), { text: "a___b", index: 0, word: "" });
  assert.deepEqual(makeBlank("a  b", 1, 3), { text: "a  ___b", index: 0, word: "" });
});

test("what was hidden comes back when the word is put into its blank", () => {
  const draw = random(3);
  for (let i = 0; i < 200; i += 1) {
    const text = drawText(draw, 20).replaceAll("_", "-");
    const { text: hidden, index, word } = makeBlank(text, 2, Math.min(6, text.length));
    assert.equal(fillBlank(hidden, index, word), text);
  }
});

test("segments are the whole text, with blanks by their number", () => {
  const text = "God's ___ is big;___ 天地 ___";
  const found = segments(text, "en");
  assert.equal(found.map((each) => each.text).join(""), text);
  assert.ok(found.every((each) => text.startsWith(each.text, each.start)));
  assert.deepEqual(found.filter((each) => each.kind === "blank").map((each) => each.index), [0, 1, 2]);
  assert.deepEqual(found.filter((each) => each.kind === "word").map((each) => each.text).slice(0, 3), ["God's", "is", "big"]);
  assert.equal(split(text).length, 4);
});

test("shares are proportional to the likelihoods; impossible words have none", () => {
  const [a, b, c] = shares([1000, 1000 + Math.log(3), null]);
  assert.ok(Math.abs(a - 0.75) < 1e-12 && Math.abs(b - 0.25) < 1e-12 && c === 0);
  assert.deepEqual(shares([null, null]), [0, 0]);
  assert.deepEqual(shares([]), []);
});
