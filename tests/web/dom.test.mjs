import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { debounce, throttle } from "../../src/nextword/server/web/core/dom.js";

test("a throttled call runs at once, and once more at the end if it was wanted", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  let calls = 0;
  const run = throttle(100, () => (calls += 1));
  run();
  assert.equal(calls, 1);
  mock.timers.tick(100);
  assert.equal(calls, 1);
  run();
  run();
  run();
  assert.equal(calls, 2);
  mock.timers.tick(100);
  assert.equal(calls, 3);
  mock.timers.tick(1000);
  assert.equal(calls, 3);
  mock.timers.reset();
});

test("a debounced call runs when it is quiet, with the last values", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const seen = [];
  const run = debounce(100, (value) => seen.push(value));
  run("a");
  mock.timers.tick(99);
  run("b");
  mock.timers.tick(99);
  assert.deepEqual(seen, []);
  mock.timers.tick(1);
  assert.deepEqual(seen, ["b"]);
  mock.timers.reset();
});
