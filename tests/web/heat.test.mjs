import assert from "node:assert/strict";
import { test } from "node:test";

import { bandOf, blocksOf, cellAt, cellsOf, countUnits, differences, gapOf, obstacle, planParts, spread, stepOf, sumOf, totals } from "../../src/nextword/server/web/core/heat.js";
import { ByteMap, byteLength, words } from "../../src/nextword/server/web/core/text.js";
import { drawText, random } from "./drawing.mjs";

const token = (start, end, bits = 1, more = {}) => ({ start, end, bits, rank: 1, id: start, ...more });
const range = (count) => [...Array(count).keys()];

/** Tokens of random lengths in bytes, which may split characters. */
function drawTokens(draw, length) {
  const tokens = [];
  for (let start = 0; start < length; ) {
    const end = Math.min(length, start + 1 + Math.floor(draw() * 5));
    tokens.push(token(start, end, draw() * 10));
    start = end;
  }
  return tokens;
}

test("bands, steps and gaps begin and end where they say", () => {
  assert.deepEqual([1, 10, 11, 100, 101, 1000, 1001].map(bandOf), [0, 0, 1, 1, 2, 2, 3]);
  assert.deepEqual([0, 0.9, 1, 2, 14, Infinity].map(stepOf), [0, 0, 1, 2, 7, 7]);
  assert.deepEqual([0.4, -0.4, 0.5, -0.5, 8, -Infinity].map(gapOf), [0, -0, 1, -1, 5, -5]);
});

test("cells cover the characters of their tokens, and the end of a translation has an empty one", () => {
  const cells = cellsOf("a中b", [token(0, 1), token(1, 3, 2), token(3, 4, 3), token(4, 5), token(5, 5, 7)], 10);
  assert.deepEqual(cells.map(({ start, end, bits }) => [start, end, bits]), [[10, 11, 1], [11, 12, 5], [12, 13, 1], [13, 13, 7]]);
});

test("whatever the tokens, cells follow each other and keep all bits", () => {
  const draw = random(7);
  for (let round = 0; round < 200; round += 1) {
    const text = drawText(draw, 20);
    const tokens = drawTokens(draw, byteLength(text));
    const cells = cellsOf(text, tokens);
    assert.deepEqual(cells.map((cell) => text.slice(cell.start, cell.end)).join(""), text);
    assert.equal(cells.flatMap((cell) => cell.tokens).length, tokens.length);
    for (const place of range(text.length)) {
      const cell = cells[cellAt(cells, place)];
      assert.ok(cell.start <= place && place < cell.end);
    }
  }
});

test("the bits of bytes add up to those of tokens and of words", () => {
  const draw = random(8);
  for (let round = 0; round < 100; round += 1) {
    const text = drawText(draw, 30);
    const map = new ByteMap(text);
    const tokens = drawTokens(draw, byteLength(text));
    const bits = new Float64Array(byteLength(text)).fill(NaN);
    spread(bits, tokens, 0, bits.length);
    const rows = differences(words(text), map, bits, bits.map((value) => value / 2));
    const total = tokens.reduce((sum, each) => sum + each.bits, 0);
    assert.ok(Math.abs(sumOf(bits, 0, bits.length) - total) < 1e-9);
    assert.ok(Math.abs(rows.reduce((sum, row) => sum + row.gap, 0) - total / 2) < 1e-9);
  }
});

test("words that one of the models has not read are left out of a difference", () => {
  const map = new ByteMap("ab cd");
  const [first, second] = [new Float64Array(5).fill(1), new Float64Array(5).fill(NaN)];
  spread(second, [token(0, 2, 1)], 0, 2);
  assert.deepEqual(differences(words("ab cd"), map, first, second).map(({ text, gap }) => [text, gap]), [["ab", 1]]);
});

test("two impossible words do not differ", () => {
  const [row] = differences(words("a"), new ByteMap("a"), [Infinity], [Infinity]);
  assert.equal(row.gap, 0);
});

test("only likelihoods of the same text are subtracted", () => {
  const exact = { isPseudo: false, isLossless: true, source: null, cells: [] };
  const lossy = { ...exact, isLossless: false, cells: [{ tokens: [{ id: 1 }] }] };
  assert.equal(obstacle(exact, exact), "");
  assert.equal(obstacle(exact, { ...exact, isPseudo: true }), "pseudo");
  assert.equal(obstacle(exact, { ...exact, source: "a" }), "source");
  assert.equal(obstacle(exact, lossy), "lossy");
  assert.equal(obstacle(lossy, lossy), "");
  assert.equal(obstacle(lossy, { ...lossy, cells: [{ tokens: [{ id: 2 }] }] }), "lossy");
});

test("totals: bits per byte only without loss, perplexity of words, shares of bands", () => {
  const cells = [{ tokens: [token(0, 1, 2, { rank: 5 })] }, { tokens: [token(1, 2, 4, { rank: 5000 })] }];
  const sums = totals(cells, { bytes: 4, units: 2, isLossless: true });
  assert.deepEqual(sums, { tokens: 2, bits: 6, bands: [0.5, 0, 0, 0.5], bitsPerByte: 1.5, bitsPerToken: 3, perplexity: 8 });
  assert.equal(totals(cells, { bytes: 4, units: 2, isLossless: false }).bitsPerByte, null);
  assert.equal(totals([], { bytes: 0, units: 0, isLossless: true }).perplexity, null);
});

test("a script without spaces is counted in characters", () => {
  assert.deepEqual(countUnits("in the  end\n", 12), { count: 3, isUnspaced: false });
  const chinese = "起初神创造天地，地是空虚混沌。\n渊面黑暗";
  assert.deepEqual(countUnits(chinese, byteLength(chinese)), { count: 19, isUnspaced: true });
  assert.deepEqual(countUnits("", 0), { count: 0, isUnspaced: false });
});

test("blocks and their runs are the text, and lines stay whole", () => {
  const draw = random(9);
  const long = `${"word ".repeat(900)}\n\n${"字".repeat(3000)}\nend`;
  for (const text of ["", "one", "one\n", "\n\n\n", long, ...range(50).map(() => drawText(draw, 60))]) {
    const blocks = blocksOf(text, 20);
    assert.equal(blocks.map((block) => text.slice(block.start, block.end)).join(""), text);
    for (const block of blocks) {
      assert.equal(block.runs.map((run) => text.slice(run.start, run.end)).join(""), text.slice(block.start, block.end));
      assert.ok(block.end === text.length || text[block.end - 1] === "\n");
      for (const run of block.runs) assert.equal(text.slice(run.start, run.end).isWellFormed(), true);
    }
  }
  assert.ok(blocksOf(long).flatMap((block) => block.runs).every((run) => run.end - run.start <= 1201));
});

/** One token per word, with the space before it, as spans of bytes. */
function spansOf(text) {
  let at = 0;
  return (text.match(/\s?\S+|\s/g) ?? []).map((part) => [at, (at += byteLength(part))]);
}

test("a text that fits into one call is one part", () => {
  assert.deepEqual(planParts(new ByteMap("a b c"), spansOf("a b c"), { most: 3, part: 2, context: 2 }), [{ from: 0, start: 0, end: 5 }]);
});

test("parts of a long text are small enough, follow each other, and end with a sentence", () => {
  const text = range(60).map((i) => `This is sentence number ${i}.${i % 7 ? "" : "\n"}`).join(" ");
  const spans = spansOf(text);
  const parts = planParts(new ByteMap(text), spans, { most: 50, part: 40, context: 10 });
  assert.equal(parts.map((part) => text.slice(part.start, part.end)).join(""), text);
  for (const { from, start, end } of parts) {
    assert.ok(spansOf(text.slice(start, end)).length <= 41);
    assert.ok(from <= start && spansOf(text.slice(from, start)).length <= 11);
    assert.match(text.slice(start, end), /[.\n]\s*$/);
  }
  assert.ok(parts[0].end < parts[1].end - parts[1].start);
});

test("parts never split a character, even if all tokens are bytes", () => {
  const text = "起初神创造天地".repeat(30);
  const spans = range(byteLength(text)).map((byte) => [byte, byte + 1]);
  const parts = planParts(new ByteMap(text), spans, { most: 100, part: 64, context: 8 });
  assert.equal(parts.map((part) => text.slice(part.start, part.end)).join(""), text);
  assert.ok(parts.every((part) => byteLength(text.slice(part.start, part.end)) <= 66));
});
