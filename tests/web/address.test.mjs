import assert from "node:assert/strict";
import { test } from "node:test";

import { format, parse } from "../../src/nextword/server/web/core/address.js";
import { drawText, random } from "./drawing.mjs";

const DEFAULTS = { text: "In the beginning", models: [], k: 8, open: false };
const read = (fragment) => parse(fragment, (page) => (page === "read" ? DEFAULTS : null)).state;

test("random states come back", () => {
  const draw = random(4);
  for (let round = 0; round < 500; round += 1) {
    const state = {
      text: drawText(draw, 40),
      models: Array.from({ length: Math.floor(draw() * 4) }, () => `m${drawText(draw, 8)}`),
      k: draw() < 0.5 ? Math.floor(draw() * 100) : (draw() - 0.5) * 1e-7,
      open: draw() < 0.5,
    };
    const { fragment, isCut } = format("read", state, DEFAULTS);
    assert.equal(isCut, false);
    assert.match(fragment, /^#\/read[\x21-\x7e]*$/);
    assert.deepEqual(read(fragment), state, fragment);
  }
});

test("what equals the default is left out", () => {
  assert.equal(format("read", { ...DEFAULTS, unknown: 1 }, DEFAULTS).fragment, "#/read");
  assert.equal(format("read", { ...DEFAULTS, text: "" }, DEFAULTS).fragment, "#/read?text=");
  assert.deepEqual(read("#/read"), DEFAULTS);
});

test("values that do not fit are ignored", () => {
  assert.deepEqual(read("#/read?k=many&open=maybe&k=&other=1"), DEFAULTS);
  assert.deepEqual(read("#/read?constructor=1&__proto__=2&toString=3"), DEFAULTS);
  assert.deepEqual(parse("#/nowhere?text=x", () => null), { page: "", state: {} });
});

test("links that were damaged or typed by hand can be read", () => {
  assert.equal(read("#/read?text=Who?+Why?").text, "Who? Why?");
  assert.deepEqual(read("#/read?models=100%&text=%").models, ["100%"]);
  assert.equal(read("#read?text=a").text, "a");
  assert.equal(parse("#/%E0%A4%A", () => null).page, "");
});

test("the longest text is left out of a link that would be too long", () => {
  const { fragment, isCut } = format("read", { ...DEFAULTS, text: "中".repeat(3000), k: 3 }, DEFAULTS);
  assert.deepEqual([fragment, isCut], ["#/read?k=3", true]);
});

test("the defaults are not shared", () => {
  read("#/read").models.push("x");
  assert.deepEqual(DEFAULTS.models, []);
});
