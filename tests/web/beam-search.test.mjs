import assert from "node:assert/strict";
import { test } from "node:test";
import { END, beamSearch, columnsOf, pathTo, readTable, withGreedy } from "../../src/nextword/server/web/core/beam-search.js";
import { EXAMPLE, tableOf } from "../../src/nextword/server/web/core/beam-example.js";

/** All texts of at most `steps` words, with Σ log p; those that are cut count, too. */
function allTexts(next, steps, words = [], total = 0) {
  if (words.at(-1) === END || words.length === steps) return [{ words, total }];
  return next(words).flatMap(({ text, probability }) => allTexts(next, steps, [...words, text], total + Math.log(probability)));
}

/** A table with random numbers, from a small generator with a seed. */
function randomTable(seed) {
  let state = seed;
  const random = () => (state = (state * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
  const words = ["a", "b", "c"];
  return Object.fromEntries(["", ...words].map((word) => [word, Object.fromEntries([...words, END].map((next) => [next, 0.05 + random()]))]));
}

const close = (one, other) => assert.ok(Math.abs(one - other) < 1e-9, `${one} is not ${other}`);

test("the lecture's example: of a cat, a dog, the cat and the dog, the last two stay", () => {
  const { nodes, candidates } = beamSearch(readTable(tableOf([])), { width: 2, steps: 5 });
  const textOf = (node) => pathTo(nodes, nodes.indexOf(node)).map((at) => nodes[at].text).join(" ");
  const first = nodes.filter((node) => node.step === 0);
  assert.deepEqual(first.map((node) => [node.text, node.state]), [["a", "kept"], ["the", "kept"]]);
  const second = Object.fromEntries(nodes.filter((node) => node.step === 1).map((node) => [textOf(node), node.state]));
  assert.deepEqual(second, { "a cat": "pruned", "a dog": "pruned", "the cat": "kept", "the dog": "kept" });
  assert.equal(candidates[0].text, "the dog barks");
  assert.ok(candidates.every((each) => each.complete));
});

test("the example's table: rows sum to one, and greedy search misses the best text", () => {
  const rows = tableOf([]);
  for (const row of Object.values(rows)) close(Object.values(row).reduce((a, b) => a + b), 1);
  const [greedy] = beamSearch(readTable(rows), { width: 1, steps: 5 }).candidates;
  const best = allTexts(readTable(rows), 5).reduce((a, b) => (b.total > a.total ? b : a));
  const [beam] = beamSearch(readTable(rows), { width: 2, steps: 5 }).candidates;
  assert.equal(greedy.text, "a cat sleeps");
  assert.ok(beam.log_prob > greedy.log_prob);
  close(beam.log_prob, best.total);
});

test("a table of the reader replaces the example's numbers", () => {
  const numbers = EXAMPLE.flatMap(({ next }) => next.map(([, number]) => number));
  numbers[0] = 0.9;
  assert.equal(tableOf(numbers.map(String))[""].a, 0.9);
  assert.equal(tableOf(["nonsense"])[""].a, EXAMPLE[0].next[0][1]);
  close(readTable(tableOf(numbers.map(String)))([])[0].probability, 0.9 / (0.9 + 0.45));
});

test("a beam with a place for every text finds what a search through all texts finds", () => {
  for (let seed = 1; seed <= 20; seed += 1) {
    const next = readTable(randomTable(seed));
    for (const lengthPenalty of [0, 0.7, 1]) {
      const all = allTexts(next, 4).map(({ words, total }) => ({ words, score: total / words.length ** lengthPenalty }));
      all.sort((one, other) => other.score - one.score);
      const { candidates } = beamSearch(next, { width: all.length, steps: 4, lengthPenalty });
      assert.equal(candidates.length, all.length);
      candidates.forEach((each, i) => close(each.score, all[i].score));
    }
  }
});

test("a beam of one is greedy search, and no step keeps more than the width", () => {
  for (let seed = 1; seed <= 20; seed += 1) {
    const next = readTable(randomTable(seed));
    const words = [];
    while (words.at(-1) !== END && words.length < 6) words.push(next(words).reduce((a, b) => (b.probability > a.probability ? b : a)).text);
    assert.deepEqual(beamSearch(next, { width: 1, steps: 6 }).candidates[0].ids, words);
    const { nodes } = beamSearch(next, { width: 3, steps: 6 });
    let places = 3;
    for (let step = 0; step < 6; step += 1) {
      const own = nodes.filter((node) => node.step === step);
      const stay = own.filter((node) => node.state !== "pruned");
      assert.ok(stay.length <= places);
      const least = Math.min(...stay.map((node) => node.total));
      assert.ok(own.every((node) => node.state !== "pruned" || node.total <= least));
      places -= stay.filter((node) => node.state === "complete").length;
    }
  }
});

test("the path of greedy search is marked, and added where the beam has pruned it", () => {
  const next = readTable(tableOf([]));
  const nodes = withGreedy(beamSearch(next, { width: 2, steps: 5 }).nodes, beamSearch(next, { width: 1, steps: 5 }).nodes);
  const path = nodes.filter((node) => node.isGreedy);
  assert.deepEqual(path.map((node) => [node.text, node.state]), [["a", "kept"], ["cat", "pruned"], ["sleeps", "greedy"], [END, "greedy"]]);
  assert.deepEqual(pathTo(nodes, nodes.indexOf(path.at(-1))).map((at) => nodes[at].text), ["a", "cat", "sleeps", END]);
  const columns = columnsOf(nodes);
  assert.equal(columns.length, 4);
  assert.deepEqual(columns[1].map((at) => nodes[at].state), ["kept", "kept", "pruned", "pruned"]);
  assert.equal(nodes[columns[2].at(-1)].state, "greedy");
});
