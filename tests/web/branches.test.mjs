import assert from "node:assert/strict";
import { test } from "node:test";
import { MOST, allTokens, childrenOf, isSame, lineage, readRecipes, trim, writeRecipe } from "../../src/nextword/server/web/core/branches.js";

const settings = { method: "sample", temperature: 0.8, topk: 0, topp: 0.95, minp: 0, repetition: 1, seed: 7, length: 40 };
const root = { id: 1, parent: 0, keep: 0, chosen: null, model: "gpt2", prompt: "太初有道, * and “the”", settings };
const child = { id: 2, parent: 1, keep: 1, chosen: { id: 12, text: " dog*", nats: 1.5 }, model: "gpt2", prompt: root.prompt, settings: { ...settings, method: "greedy", seed: 8 } };
const own = { 1: [{ ids: [3], text: " a", nats: 0.1 }, { ids: [4], text: " cat", nats: 0.2 }], 2: [{ ids: [5], text: " barks", nats: 0.3 }] };

test("recipes come back from a link as they were", () => {
  const branches = [root, child];
  const texts = branches.map((branch) => writeRecipe(branch, branches.find((other) => other.id === branch.parent)));
  assert.deepEqual(readRecipes(texts), branches);
});

test("damaged links give the branches before the damage", () => {
  assert.deepEqual(readRecipes(["nonsense"]), []);
  assert.deepEqual(readRecipes([writeRecipe(root), writeRecipe({ ...child, parent: 9 }, root)]), [root]);
  assert.deepEqual(readRecipes([writeRecipe(child, root)]), []);
});

test("a branch has the tokens that it keeps, the chosen one, and its own", () => {
  const branches = [root, child].map((branch) => ({ ...branch, own: { tokens: own[branch.id] } }));
  const tokens = allTokens(branches, branches[1]);
  assert.deepEqual(tokens.map((token) => token.text), [" a", " dog*", " barks"]);
  assert.deepEqual(tokens.map((token) => Boolean(token.isChosen)), [false, true, false]);
  assert.deepEqual(lineage([root, child], child), [root, child]);
  assert.deepEqual(childrenOf([root, child], 0), [root]);
});

test("the oldest branches that nothing continues are forgotten", () => {
  const many = [root, child, ...Array.from({ length: MOST }, (_, i) => ({ ...root, id: 3 + i }))];
  const kept = trim(many, 3);
  assert.equal(kept.length, MOST);
  assert.ok(kept.some((branch) => branch.id === 3)); // it is shown
  assert.ok(!kept.some((branch) => branch.id === 2));
  assert.ok(kept.some((branch) => branch.id === 26));
});

test("recipes are the same whatever their number", () => {
  assert.ok(isSame(root, { ...root, id: 5 }));
  assert.ok(!isSame(root, { ...root, settings: { ...settings, seed: 1 } }));
});
