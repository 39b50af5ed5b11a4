import assert from "node:assert/strict";
import { test } from "node:test";

import { count, duration, fixed, percent } from "../../src/nextword/server/web/core/numbers.js";

const table = (write, cases) => () => cases.forEach(([value, text]) => assert.equal(write(value), text));

test("numbers", table(fixed, [[1.005, "1.00"], [-2.345, "\u22122.35"], [0, "0.00"], [null, "∞"]]));
test("digits", () => assert.equal(fixed(3.14159, 4), "3.1416"));
test("probabilities", table(percent, [[1, "100.0 %"], [0.4621, "46.2 %"], [0.01, "1.0 %"], [0.00031, "0.031 %"], [1e-6, "<0.001 %"], [0, "0.0 %"]]));
test("counts", table(count, [[null, "–"], [0, "0"], [1234, "1,234"], [99_999, "99,999"], [123_456, "123 k"], [4_680_000, "4.68 M"], [999_999, "1 M"], [2.5e9, "2.5 G"]]));
test("durations", table(duration, [[0.84, "0.8 s"], [43.2, "43 s"], [59.7, "1 min 0 s"], [119.9, "2 min 0 s"], [250, "4 min 10 s"], [7500, "2 h 5 min"], [3599.9, "1 h 0 min"]]));
