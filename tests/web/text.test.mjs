import assert from "node:assert/strict";
import { test } from "node:test";

import { ByteMap, byteLength, direction, pieces, visible, words } from "../../src/nextword/server/web/core/text.js";
import { drawText, random } from "./drawing.mjs";

const encoder = new TextEncoder();
const bytesBefore = (text, place) => encoder.encode(text.slice(0, place)).length;

/** Places where a character begins, and the end. */
function borders(text) {
  const places = [0];
  for (const character of text) places.push(places.at(-1) + character.length);
  return places;
}

test("bytes map to the character that they belong to", () => {
  const map = new ByteMap("aé中😀z");
  assert.deepEqual([...Array(12).keys()].map((byte) => map.at(byte)), [0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 5, 6]);
  assert.equal(new ByteMap("").at(0), 0);
});

test("bytes of random texts map as the encoder says", () => {
  const draw = random(1);
  for (let round = 0; round < 200; round += 1) {
    const text = drawText(draw, 12);
    const map = new ByteMap(text);
    const places = borders(text);
    for (let byte = 0; byte <= byteLength(text); byte += 1) {
      const expected = places.findLast((place) => bytesBefore(text, place) <= byte);
      assert.equal(map.at(byte), expected, `${JSON.stringify(text)}, byte ${byte}`);
    }
  }
});

test("a token is a piece", () => {
  const tokens = [{ start: 0, end: 3 }, { start: 3, end: 8 }];
  const found = pieces("the king", tokens);
  assert.deepEqual(found.map((piece) => piece.text), ["the", " king"]);
  assert.deepEqual(found.map((piece) => piece.tokens), tokens.map((token) => [token]));
});

test("tokens that share a character share a piece", () => {
  const text = "a😀é";
  const tokens = [0, 1, 2, 3, 4, 5, 6].map((start) => ({ start, end: start + 1 }));
  const found = pieces(text, tokens);
  assert.deepEqual(found.map((piece) => [piece.text, piece.tokens.length]), [["a", 1], ["😀", 4], ["é", 2]]);
});

test("a token may end within a character that the next one completes", () => {
  const found = pieces("x中y", [{ start: 0, end: 2 }, { start: 2, end: 5 }]);
  assert.deepEqual(found.map((piece) => [piece.text, piece.tokens.length]), [["x中y", 2]]);
});

test("bytes without a token are pieces without tokens", () => {
  const found = pieces("  the  king ", [{ start: 2, end: 5 }, { start: 7, end: 11 }]);
  assert.deepEqual(found.map((piece) => piece.text), ["  ", "the", "  ", "king", " "]);
  assert.deepEqual(found.map((piece) => piece.tokens.length), [0, 1, 0, 1, 0]);
});

test("tokens that stand for no text have no piece", () => {
  assert.deepEqual(pieces("a", [{ start: 0, end: 0 }, { start: 0, end: 1 }, { start: 1, end: 1 }]).length, 1);
  assert.deepEqual(pieces("", [{ start: 0, end: 0 }]), []);
});

test("the pieces of random tokens are the whole text, and hold each token once", () => {
  const draw = random(2);
  for (let round = 0; round < 500; round += 1) {
    const text = drawText(draw, 10);
    const size = byteLength(text);
    const tokens = [];
    for (let byte = 0; byte < size; ) {
      const end = Math.min(size, byte + 1 + Math.floor(draw() * 6));
      if (draw() < 0.8) tokens.push({ start: byte, end }); // otherwise a gap
      byte = end;
    }
    const found = pieces(text, tokens);
    const why = JSON.stringify({ text, tokens, found });
    assert.equal(found.map((piece) => piece.text).join(""), text, why);
    assert.deepEqual(found.flatMap((piece) => piece.tokens), tokens, why);
    let place = 0;
    for (const piece of found) {
      assert.equal(piece.start, place, why);
      assert.equal(text.slice(piece.start, piece.end), piece.text, why);
      for (const token of piece.tokens) {
        assert.ok(bytesBefore(text, piece.start) <= token.start && token.end <= bytesBefore(text, piece.end), why);
      }
      place = piece.end;
    }
  }
});

test("words carry the space before them", () => {
  assert.deepEqual(words("In the  beginning, God.", "en").map((word) => word.text), ["In", " the", "  beginning,", " God."]);
});

test("Chinese has words without spaces", () => {
  const found = words("起初神创造天地。", "zh").map((word) => word.text);
  assert.equal(found.join(""), "起初神创造天地。");
  assert.ok(found.length > 2 && found.length < 8, found.join("|"));
  assert.ok(found.at(-1).endsWith("。") && found.at(-1).length > 1);
});

test("the words of random texts are the whole text", () => {
  const draw = random(3);
  for (let round = 0; round < 200; round += 1) {
    const text = drawText(draw, 20);
    const found = words(text, "en");
    assert.equal(found.map((word) => word.text).join(""), text);
    found.forEach((word, i) => assert.deepEqual([word.start, word.end], [i ? found[i - 1].end : 0, word.start + word.text.length]));
  }
});

test("spaces at the ends of a token are visible", () => {
  assert.deepEqual([" a b ", "\n", "\t", "", "ok"].map(visible), ["␣a b␣", "⏎", "⇥", "∅", "ok"]);
});

test("the first letter tells the direction", () => {
  assert.deepEqual(["abc שלום", "123 שלום", "العربية abc", "", "…"].map(direction), ["ltr", "rtl", "rtl", "ltr", "ltr"]);
});
