import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

globalThis.sessionStorage = { getItem: () => null };
const api = await import("../../src/nextword/server/web/core/api.js");

const answer = (content) => async () => new Response(content);
const broken = (text) =>
  new ReadableStream({
    pull(controller) {
      if (text) controller.enqueue(new TextEncoder().encode(text));
      else controller.error(new TypeError("network error"));
      text = "";
    },
  });
const isUnreachable = { name: "ApiError", code: "unreachable", status: 0 };

beforeEach(() => {
  globalThis.fetch = answer("{}");
});

test("only the latest answers are recorded, but always the list of models", async () => {
  await api.get("/v1/models");
  for (let i = 0; i < 400; i += 1) await api.post("/api/next", { i });
  const names = Object.keys(api.recordedAnswers());
  assert.equal(names.length, 300);
  assert.equal(names[0], "GET /v1/models null");
  assert.equal(names.at(-1), 'POST /api/next {"i":399}');
  api.forgetAnswers();
  assert.deepEqual(Object.keys(api.recordedAnswers()), ["GET /v1/models null"]);
});

test("a server that goes while it answers is unreachable", async () => {
  globalThis.fetch = answer(broken('{"a": '));
  await assert.rejects(api.get("/api/jobs"), isUnreachable);
  globalThis.fetch = async () => {
    throw new TypeError("Failed to fetch");
  };
  await assert.rejects(api.get("/api/jobs"), isUnreachable);
});

test("a stream that breaks off is an error, after what came before", async () => {
  globalThis.fetch = answer(broken('data: {"piece": "a"}\n\ndata: {"pie'));
  const events = [];
  const read = async () => {
    for await (const event of api.stream("/api/generate", {})) events.push(event);
  };
  await assert.rejects(read(), isUnreachable);
  assert.deepEqual(events, [{ piece: "a" }]);
});

test("what the caller aborts is no error of the server", async () => {
  globalThis.fetch = async () => {
    throw new DOMException("aborted", "AbortError");
  };
  await assert.rejects(api.get("/api/jobs"), { name: "AbortError" });
});
