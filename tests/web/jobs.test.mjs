import assert from "node:assert/strict";
import { test } from "node:test";
import { fold, isActive, isEnded, progressOf } from "../../src/nextword/server/web/core/jobs.js";

const start = (kind = "train") => ({ id: "a", kind, name: "mine", state: "queued", position: 1, minutes: 1, models: [], runs: [], served: [], warnings: [], last_seq: 0 });
const play = (job, events) => events.reduce((now, event, index) => fold(now, { seq: index + 1, ...event }), job);
const begin = { event: "begin", model: "lstm", step: 0, seconds: 0, steps: 100, parameters: 10 };
const step = (number, more = {}) => ({ event: "step", model: "lstm", step: number, seconds: number / 10, of: 100, loss: 5 - number / 100, train_bits_per_byte: 3, rate: 0.01, norm: 1, ...more });
const sample = (number, text) => ({ event: "sample", model: "lstm", step: number, seconds: number / 10, kind: "continuation", prompt: "It", text });

test("a training goes from waiting to finished, with its points, samples and result", () => {
  const job = play(start(), [
    { event: "state", state: "running" },
    { event: "activity", model: "lstm", label: "reading train" },
    begin,
    step(10),
    { event: "valid", model: "lstm", step: 10, seconds: 1, valid: 4, valid_bits_per_byte: 2.5 },
    sample(10, " was"),
    step(50),
  ]);
  const [run] = job.runs;
  assert.equal(job.state, "running");
  assert.equal(run.status, "training");
  assert.deepEqual(run.steps.map((point) => point.step), [10, 50]);
  assert.equal(progressOf(job).run, 0.5);
  assert.ok(Math.abs(progressOf(job).remaining - 5) < 1e-9);
  play(job, [{ event: "end", model: "lstm", step: 100 }, { event: "evaluate", model: "lstm", bits_per_byte: 1.5 }, { event: "served", model: "lstm", id: "mine" }, { event: "warning", warnings: ["short"] }, { event: "state", state: "finished" }]);
  assert.equal(run.status, "done");
  assert.equal(run.result.bits_per_byte, 1.5);
  assert.deepEqual(job.served, ["mine"]);
  assert.deepEqual(job.warnings, ["short"]);
  assert.ok(isEnded(job) && !isActive(job));
  assert.deepEqual(progressOf(job), { fraction: 1, run: 1, remaining: null });
});

test("after a resume, the points that are computed again replace those before", () => {
  const job = play(start(), [begin, step(10), step(20), sample(20, "old"), step(30), { ...begin, step: 10 }, step(20, { loss: 1 }), sample(20, "new")]);
  assert.deepEqual(job.runs[0].steps.map((point) => point.step), [10, 20]);
  assert.equal(job.runs[0].steps[1].loss, 1);
  assert.deepEqual(job.runs[0].samples.map((each) => each.text), ["new"]);
});

test("the last sample is shown once, though it comes twice", () => {
  const job = play(start(), [begin, sample(20, "a"), { ...sample(20, "a"), final: true }]);
  assert.equal(job.runs[0].samples.length, 1);
});

test("of a comparison, the models are finished one after the other", () => {
  const job = play(start("compare"), [
    { event: "state", state: "running" },
    { event: "step", model: "ngram", step: 1, seconds: 0.1, doing: "counting", fraction: 0.5 },
    { event: "status", model: "ngram", status: "done", row: { bits_per_byte: 1.3 } },
    begin,
    step(50),
  ]);
  assert.deepEqual(job.runs.map((run) => run.status), ["done", "training"]);
  assert.equal(job.runs[0].steps.length, 0); // counting has no loss
  assert.equal(progressOf(job).fraction, 0.75);
  assert.equal(progressOf(job).remaining, 55);
  fold(job, { event: "status", model: "lstm", status: "failed", row: { error: "diverged" } });
  assert.equal(job.runs[1].error, "diverged");
  fold(job, { event: "comparison", headline: "ngram wins", winner: "ngram", mixture: null });
  assert.equal(job.headline, "ngram wins");
});

test("what was under way when a job was stopped or failed is marked so", () => {
  for (const state of ["stopped", "failed"]) {
    const job = play(start(), [begin, step(10), { event: "state", state, error: state === "failed" ? "no memory" : null }]);
    assert.equal(job.runs[0].status, state);
    assert.equal(job.error, state === "failed" ? "no memory" : null);
  }
});

test("very long trainings keep few points, with the last one", () => {
  const job = start();
  fold(job, begin);
  for (let number = 1; number <= 5000; number += 1) fold(job, step(number));
  assert.ok(job.runs[0].steps.length <= 1001);
  assert.equal(job.runs[0].steps.at(-1).step, 5000);
});

test("events of a newer server are passed over", () => {
  const job = start();
  fold(job, { seq: 7, event: "something", model: "lstm" });
  assert.equal(job.last_seq, 7);
});
