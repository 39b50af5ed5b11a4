import assert from "node:assert/strict";
import { test } from "node:test";

import { columnsOf, decode, hex, piecesIn, readTokens, splitText } from "../../src/nextword/server/web/core/splits.js";
import { ByteMap, words } from "../../src/nextword/server/web/core/text.js";

const encode = (text) => new TextEncoder().encode(text);
const read = (text, spans, { names = [], ids = spans.map((_, i) => i), isLossless = true, unknown = null } = {}) =>
  readTokens(encode(text), { tokens: ids, spans, token_strs: spans.map((_, i) => names[i] ?? "") }, { isLossless, unknown });

test("bytes in hexadecimal, and as text if they are whole characters", () => {
  assert.equal(hex(encode("中a")), "e4 b8 ad 61");
  assert.equal(decode(encode("中")), "中");
  assert.equal(decode(encode("中").subarray(0, 2)), "");
});

test("tokens that are part of a character are marked", () => {
  const tokens = read("a中", [[0, 1], [1, 3], [3, 4]]);
  assert.deepEqual(tokens.map((token) => token.isPart), [false, true, true]);
  assert.deepEqual(splitText("a中", tokens, true).map((piece) => [piece.text, piece.tokens.length]), [["a", 1], ["中", 2]]);
});

test("unknown and changed words and dropped line ends are marked; a space between words is not lost", () => {
  const tokens = read("The X\nend", [[0, 3], [4, 5], [6, 9]], { names: [" the", "[UNK]", " end"], ids: [7, 1, 8], isLossless: false, unknown: 1 });
  assert.deepEqual(tokens.map((token) => [token.isUnknown, token.isChanged]), [[false, true], [true, false], [false, false]]);
  const pieces = splitText("The X\nend", tokens, false);
  assert.deepEqual(pieces.map((piece) => [piece.text, piece.isDropped]), [["The", false], [" ", false], ["X", false], ["\n", true], ["end", false]]);
});

test("columns hold whole words and whole tokens of all tokenizers", () => {
  const text = "no man, none";
  const first = read(text, [[0, 2], [2, 6], [6, 7], [7, 12]]);
  const second = read(text, [[0, 6], [6, 12]]); // its first token has two words
  const columns = columnsOf(words(text), new ByteMap(text), [first, second]);
  assert.deepEqual(columns, [{ start: 0, end: 12 }]);
  assert.deepEqual(columnsOf(words(text), new ByteMap(text), [first]).map(({ end }) => end), [2, 7, 12]);
  assert.deepEqual(piecesIn(splitText(text, first, true), { start: 2, end: 7 }).map((piece) => piece.text), [" man", ","]);
});

test("an empty text has no columns", () => {
  assert.deepEqual(columnsOf(words(""), new ByteMap(""), [[]]), []);
});
