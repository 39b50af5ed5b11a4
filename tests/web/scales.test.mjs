import assert from "node:assert/strict";
import { test } from "node:test";
import { Scale, domain, logTicks, nearestIndex, placeLabel, spread, thin, ticks, timeLabel, timeTicks } from "../../src/nextword/server/web/core/scales.js";
import { random } from "./drawing.mjs";

test("ticks are round, inside the range, and few", () => {
  assert.deepEqual(ticks(1.8, 3.1), [2, 2.5, 3]);
  assert.deepEqual(ticks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  const draw = random(1);
  for (let i = 0; i < 300; i += 1) {
    const low = (draw() - 0.5) * 10 ** (8 * draw() - 4);
    const high = low + 10 ** (8 * draw() - 4);
    const values = ticks(low, high);
    assert.ok(values.length > 1 && values.length < 14, `${low} ${high}: ${values}`);
    assert.ok(values.every((value) => value >= low - 1e-6 * (high - low) && value <= high + 1e-6 * (high - low)));
  }
});

test("ticks of a logarithmic axis are the densest that fit", () => {
  assert.deepEqual(logTicks(0.9, 120, 8), [1, 2, 5, 10, 20, 50, 100]);
  assert.deepEqual(logTicks(0.9, 1200, 6), [1, 10, 100, 1000]);
  assert.deepEqual(logTicks(0.24, 0.26, 5).length > 1, true); // too narrow for powers of ten
});

test("ticks of time are round seconds, minutes and hours", () => {
  assert.deepEqual(timeTicks(0, 240, 6).map(timeLabel), ["0", "1 min", "2 min", "3 min", "4 min"]);
  assert.deepEqual(timeTicks(0, 3, 6).map(timeLabel), ["0", "0.5 s", "1 s", "1.5 s", "2 s", "2.5 s", "3 s"]);
  assert.deepEqual([5.25, 70, 119.9, 140, 200, 3599.6].map(timeLabel), ["5.25 s", "70 s", "120 s", "2:20 min", "3:20 min", "60 min"]);
  assert.deepEqual(timeTicks(0, 20000, 6).map(timeLabel), ["0", "1 h", "2 h", "3 h", "4 h", "5 h"]);
});

test("a scale maps the ends of its range to the ends of its pixels", () => {
  for (const isLog of [false, true]) {
    const scale = new Scale([2, 50], 100, 10, isLog);
    assert.equal(scale.at(2), 100);
    assert.ok(Math.abs(scale.at(50) - 10) < 1e-9);
    assert.ok(scale.at(10) < 100 && scale.at(10) > 10);
  }
});

test("the range of an axis leaves out what cannot be drawn, and is never empty", () => {
  assert.deepEqual(domain([1, Infinity, NaN, 3]), [1, 3]);
  assert.deepEqual(domain([0, -1, 10, 100], true), [10, 100]);
  for (const values of [[], [5], [0, 0], [NaN]]) {
    for (const isLog of [false, true]) {
      const [low, high] = domain(values, isLog, 0.1);
      assert.ok(low < high, `${values}`);
    }
  }
});

test("labels keep their distance and their order", () => {
  const draw = random(2);
  for (let i = 0; i < 100; i += 1) {
    const wanted = Array.from({ length: 6 }, () => 200 * draw());
    const placed = spread(wanted, 16, 0, 200);
    const sorted = [...placed].sort((a, b) => a - b);
    for (let j = 1; j < sorted.length; j += 1) assert.ok(sorted[j] - sorted[j - 1] >= 16 - 1e-9);
    assert.ok(sorted[0] >= -1e-9 && sorted.at(-1) <= 200 + 1e-9);
    const order = (values) => values.map((_, index) => index).sort((a, b) => values[a] - values[b]);
    assert.deepEqual(order(placed), order(wanted));
  }
});

test("a label avoids what is taken", () => {
  const inside = [0, 0, 300, 300];
  const free = placeLabel(100, 100, 40, 14, [], inside);
  assert.equal(free.cost, 0);
  const other = placeLabel(100, 100, 40, 14, [free.box], inside);
  assert.equal(other.cost, 0);
  assert.notDeepEqual(other.box, free.box);
  const edge = placeLabel(295, 100, 40, 14, [], inside);
  assert.ok(edge.box[2] <= 300);
});

test("thinning keeps the first and the last point", () => {
  const points = Array.from({ length: 1000 }, (_, index) => index);
  const few = thin(points, 50);
  assert.equal(few.length, 50);
  assert.equal(few[0], 0);
  assert.equal(few.at(-1), 999);
  assert.equal(thin(points.slice(0, 3), 50).length, 3);
});

test("the nearest point is the one that a search of all finds", () => {
  const draw = random(3);
  for (let i = 0; i < 200; i += 1) {
    const points = Array.from({ length: 1 + Math.floor(9 * draw()) }, () => ({ x: draw() })).sort((a, b) => a.x - b.x);
    const x = 1.4 * draw() - 0.2;
    const best = Math.min(...points.map((point) => Math.abs(point.x - x)));
    assert.ok(Math.abs(Math.abs(points[nearestIndex(points, x)].x - x) - best) < 1e-12);
  }
});
