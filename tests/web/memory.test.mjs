import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.sessionStorage = { getItem: () => null };
const { forgetAnswers, recordedAnswers } = await import("../../src/nextword/server/web/core/api.js");
const { ask, remember } = await import("../../src/nextword/server/web/core/memory.js");
const { loadModels } = await import("../../src/nextword/server/web/core/models.js");

const asked = [];
globalThis.fetch = async (path) => {
  asked.push(path);
  return new Response(JSON.stringify(path === "/v1/models" ? { data: [] } : { number: asked.length }));
};

test("an answer is asked for once, and recorded for every view that shows it", async () => {
  const first = await ask("/api/explain", { model: "a" });
  forgetAnswers();
  assert.deepEqual(await ask("/api/explain", { model: "a" }), first);
  assert.deepEqual(Object.values(recordedAnswers()), [first]);
  forgetAnswers();
  remember("/api/explain", { model: "a" });
  remember("/api/explain", { model: "b" });
  assert.deepEqual(Object.values(recordedAnswers()), [first]);
  assert.equal(asked.length, 1);
});

test("when models change, their answers are asked for again", async () => {
  const before = await ask("/api/explain", { model: "a" });
  await loadModels();
  assert.notDeepEqual(await ask("/api/explain", { model: "a" }), before);
});
