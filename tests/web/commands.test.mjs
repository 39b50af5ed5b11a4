import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { curl, quotePython, quoteShell } from "../../src/nextword/server/web/core/commands.js";
import { drawText, random } from "./drawing.mjs";

const draw = random(5);
const TEXTS = ["", "a b", "it's", "'", "''", "$HOME `id` $(id)", "-x", "a\nb", "!", "\\", '"', "~", "a;b", "*", ...Array.from({ length: 100 }, () => drawText(draw, 12))];

test("a shell reads what was quoted as one word", () => {
  const output = execFileSync("sh", ["-c", `printf '%s\\0' ${TEXTS.map(quoteShell).join(" ")}`], { encoding: "utf8" });
  assert.deepEqual(output.split("\0").slice(0, -1), TEXTS);
});

test("simple words need no quotes", () => {
  assert.equal(quoteShell("RUNS/gpt-2_small.1"), "RUNS/gpt-2_small.1");
});

test("Python reads what was quoted", () => {
  const program = `import json; print(json.dumps([${TEXTS.map(quotePython).join(", ")}]))`;
  const output = execFileSync("python3", ["-"], { input: program, encoding: "utf8", env: { ...process.env, PYTHONUTF8: "1" } });
  assert.deepEqual(JSON.parse(output), TEXTS);
});

test("curl sends the body as JSON", () => {
  const body = { text: "it's <b>\n中", k: 3 };
  const command = curl({ path: "/api/next", body }, "http://127.0.0.1:8000");
  const words = execFileSync("sh", ["-c", `printf '%s\\0' ${command}`], { encoding: "utf8" }).split("\0").slice(0, -1);
  assert.deepEqual(words.slice(0, 4), ["curl", "http://127.0.0.1:8000/api/next", "-H", "Content-Type: application/json"]);
  assert.deepEqual([words[4], JSON.parse(words[5])], ["-d", body]);
});

test("curl has no body for GET, and names other methods", () => {
  assert.equal(curl({ method: "GET", path: "/v1/models" }, "http://h:1"), "curl http://h:1/v1/models");
  assert.match(curl({ method: "DELETE", path: "/x", body: {} }, "http://h:1"), /-X DELETE$/);
});
