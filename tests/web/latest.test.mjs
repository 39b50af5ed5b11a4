import assert from "node:assert/strict";
import { test } from "node:test";

import { Latest } from "../../src/nextword/server/web/core/latest.js";
import { random } from "./drawing.mjs";

/** A `Latest` whose calls end when `finish` is called. */
function make() {
  const begun = [];
  let waiting = [];
  const latest = new Latest((value) => {
    begun.push(value);
    return new Promise((resolve) => waiting.push(resolve));
  });
  const finish = async () => {
    const ready = waiting;
    waiting = [];
    ready.forEach((resolve) => resolve());
    await new Promise(setImmediate);
    return ready.length;
  };
  return { latest, begun, finish };
}

test("the first value is sent at once", () => {
  const { latest, begun } = make();
  latest.ask("a");
  assert.deepEqual(begun, ["a"]);
});

test("of values that come meanwhile, the last is sent", async () => {
  const { latest, begun, finish } = make();
  for (const value of ["a", "b", "c", "d"]) latest.ask(value);
  await finish();
  assert.deepEqual(begun, ["a", "d"]);
  await finish();
  assert.equal(await finish(), 0);
});

test("one call at a time, in order, and the last value always arrives", async () => {
  const draw = random(6);
  for (let round = 0; round < 50; round += 1) {
    const { latest, begun, finish } = make();
    let last = 0;
    for (let step = 0; step < 30; step += 1) {
      if (draw() < 0.6) latest.ask((last += 1));
      else assert.ok((await finish()) <= 1);
    }
    while (await finish());
    assert.deepEqual(begun, [...begun].sort((a, b) => a - b));
    assert.equal(begun.at(-1) ?? 0, last);
  }
});

test("an error does not block what comes after it", async () => {
  const begun = [];
  const latest = new Latest(async (value) => {
    begun.push(value);
    if (value === "bad") throw new Error(value);
  });
  await assert.rejects(latest.ask("bad"));
  await latest.ask("good");
  assert.deepEqual(begun, ["bad", "good"]);
});
