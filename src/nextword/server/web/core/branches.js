/* The texts that page Write has generated, as a tree. A branch keeps some tokens of its parent, may begin with a token that the
   reader chose, and goes on with tokens that the model generated.

   A branch is written down as a recipe, {id, parent, keep, chosen, model, prompt, settings}: with the same seed, the same
   model generates the same tokens again, so a link needs no texts. */

export const MOST = 24; // branches; older ones are forgotten
const BETWEEN = "\u001f"; // fields of a recipe in a link: a character that no text has
const NUMBERS = ["temperature", "topk", "topp", "minp", "repetition", "seed", "length"];

/** A recipe as text. */
export function writeRecipe({ id, parent, keep, chosen, model, prompt, settings }, parentBranch) {
  const numbers = [id, parent, keep, settings.method === "greedy" ? 0 : 1, ...NUMBERS.map((name) => settings[name]), chosen?.id ?? "", chosen ? Number(chosen.nats.toFixed(3)) : ""];
  const own = parentBranch ? [parentBranch.model === model ? "" : model] : [model, prompt]; // the rest is the parent's
  return [numbers.join("*"), chosen?.text ?? "", ...own].map((text) => text.replaceAll(BETWEEN, " ")).join(BETWEEN);
}

/** The branches that texts describe; a text that describes none ends the list. */
export function readRecipes(texts) {
  const branches = [];
  for (const text of texts) {
    const [packed, chosenText, model = "", prompt = ""] = text.split(BETWEEN);
    const [id, parent, keep, method, ...rest] = packed.split("*").map((part) => (part === "" ? null : Number(part)));
    const values = rest.slice(0, NUMBERS.length);
    const own = findBranch(branches, parent);
    if (![id, parent, keep, ...values].every(Number.isFinite) || (parent && !own) || (!parent && !model)) break;
    const [chosenId = null, nats = 0] = rest.slice(NUMBERS.length);
    const settings = { method: method ? "sample" : "greedy", ...Object.fromEntries(NUMBERS.map((name, i) => [name, values[i]])) };
    const chosen = chosenId === null ? null : { id: chosenId, text: chosenText ?? "", nats: nats ?? 0 };
    branches.push({ id, parent, keep, chosen, model: model || own.model, prompt: own ? own.prompt : prompt, settings });
  }
  return branches;
}

export function findBranch(branches, id) {
  return branches.find((branch) => branch.id === id);
}

/** The tokens that a branch has before the model goes on: those of its parent, and the chosen one. */
export function tokensBefore(branches, branch) {
  const parent = findBranch(branches, branch.parent);
  const kept = parent ? allTokens(branches, parent).slice(0, branch.keep) : [];
  return branch.chosen ? [...kept, { ids: [branch.chosen.id], text: branch.chosen.text, nats: branch.chosen.nats, isChosen: true }] : kept;
}

/** All tokens of a branch; `branch.own.tokens` were generated for it. */
export function allTokens(branches, branch) {
  return [...tokensBefore(branches, branch), ...(branch.own?.tokens ?? [])];
}

/** The branches from the prompt to this one. */
export function lineage(branches, branch) {
  const line = [];
  for (let at = branch; at; at = findBranch(branches, at.parent)) line.unshift(at);
  return line;
}

/** The branches that begin at this one, or at the prompt (0), in the order in which they were written. */
export function childrenOf(branches, id) {
  return branches.filter((branch) => branch.parent === id);
}

/** At most MOST branches: the oldest that nothing continues are left out, but never the one with this id. */
export function trim(branches, shown) {
  let kept = branches;
  while (kept.length > MOST) {
    const out = kept.find((branch) => branch.id !== shown && !kept.some((other) => other.parent === branch.id));
    kept = kept.filter((branch) => branch !== out);
  }
  return kept;
}

/** Whether two recipes describe the same text. */
export function isSame(one, other) {
  const recipe = ({ parent, keep, chosen, model, prompt, settings }) => JSON.stringify([parent, keep, chosen?.id ?? null, model, prompt, settings.method, NUMBERS.map((name) => settings[name])]);
  return recipe(one) === recipe(other);
}
