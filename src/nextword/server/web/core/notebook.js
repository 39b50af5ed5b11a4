/* What page Write has written: its branches, the generation under way, and which branches were shown before. */

import { record, stream } from "./api.js";
import { allTokens, findBranch, isSame, lineage, readRecipes, tokensBefore, trim, writeRecipe } from "./branches.js";

/** The settings of decoding as /api/generate and /api/distribution name them. */
export function decodingOf({ method, temperature, topk, topp, minp, repetition }) {
  const sampling = method === "greedy" ? { temperature: 0 } : { temperature, top_k: topk, top_p: topp, min_p: minp };
  return { ...sampling, repetition_penalty: repetition };
}

/** What /api/generate is asked in order to go on after some tokens. */
export function generation(model, prompt, before, settings) {
  const seed = settings.method === "greedy" ? {} : { seed: settings.seed };
  return { model, prompt, ids: before.flatMap((token) => token.ids), ...decodingOf(settings), ...seed, max_tokens: settings.length, stream: true };
}

export class Notebook {
  branches = [];
  run = null; // the generation under way: {branch, controller}
  #past = []; // ids of branches that were shown before; 0: the prompt alone
  #future = [];

  find(id) {
    return findBranch(this.branches, id);
  }

  tokensOf(id) {
    const branch = this.find(id);
    return branch ? allTokens(this.branches, branch) : [];
  }

  tokensBefore(branch) {
    return tokensBefore(this.branches, branch);
  }

  /** The branches as a link holds them. */
  recipes() {
    return this.branches.map((branch) => writeRecipe(branch, this.find(branch.parent)));
  }

  /** Have the branches that a link describes. Those that are known already keep their texts. */
  adopt(texts) {
    if (JSON.stringify(this.recipes()) === JSON.stringify(texts)) return;
    const old = this.branches;
    this.branches = readRecipes(texts);
    for (const branch of this.branches) {
      const same = old.find((other) => other.id === branch.id && isSame(other, branch));
      const parent = this.find(branch.parent);
      if (same && (!parent || parent.own)) branch.own = same.own;
    }
  }

  /** A new branch, which is still to be written; or the one with the same recipe. */
  add(recipe) {
    const same = this.branches.find((other) => isSame(other, recipe));
    if (same) return same;
    const branch = { ...recipe, id: Math.max(0, ...this.branches.map((each) => each.id)) + 1 };
    this.branches = trim([...this.branches, branch], branch.id);
    return branch;
  }

  /** Have the model write a branch. Returns the error that ended it, or null. `onToken` is called with each token. */
  async write(branch, onToken) {
    const run = { branch, controller: new AbortController() };
    const body = generation(branch.model, branch.prompt, this.tokensBefore(branch), branch.settings);
    const events = [];
    branch.own = { tokens: [], reason: null };
    this.run = run;
    let failure = null;
    try {
      for await (const event of stream("/api/generate", body, { signal: run.controller.signal })) {
        events.push(event);
        take(branch.own, event);
        if (event.piece !== undefined && this.run === run) onToken(branch.own.tokens.at(-1));
      }
    } catch (error) {
      failure = error;
    }
    if (branch.own.reason === null) this.#cut(branch, events, body);
    if (this.run === run) this.run = null;
    return failure?.name === "AbortError" ? null : failure;
  }

  stop() {
    this.run?.controller.abort();
  }

  /** Have the text of a branch that a link describes, and of those that it continues. */
  async load(branch, signal) {
    for (const each of lineage(this.branches, branch)) {
      if (each.own) continue;
      const own = { tokens: [], reason: null };
      const body = generation(each.model, each.prompt, this.tokensBefore(each), each.settings);
      for await (const event of stream("/api/generate", body, { signal })) take(own, event);
      each.own = own;
    }
  }

  /** A text that was stopped is one of as many tokens as it has; without any, there is no branch. */
  #cut(branch, events, body) {
    const { own } = branch;
    const length = own.tokens.length;
    if (length) {
      branch.settings = { ...branch.settings, length };
      own.reason = "length";
      const result = { prompt: branch.prompt, text: own.tokens.map((token) => token.text).join(""), tokens: length, reason: own.reason };
      record("POST", "/api/generate", { ...body, max_tokens: length }, [...events, result]);
    } else if (!this.branches.some((other) => other.parent === branch.id)) {
      this.branches = this.branches.filter((other) => other !== branch);
    }
  }

  // ---------------------------------------------------------------------------------------------- undo and redo

  get canUndo() {
    return this.#past.length > 0;
  }

  get canRedo() {
    return this.#future.length > 0;
  }

  /** Another branch than this one will be shown. */
  leave(id) {
    if (this.#past.at(-1) !== id) this.#past.push(id);
    this.#future = [];
  }

  /** The branch that was shown before this one. */
  undo(id) {
    this.#future.push(id);
    return this.#past.pop();
  }

  redo(id) {
    this.#past.push(id);
    return this.#future.pop();
  }
}

function take(own, event) {
  if (event.piece !== undefined) own.tokens.push({ text: event.piece, ids: event.ids, nats: event.nats });
  else {
    own.reason = event.reason;
    if (event.reason === "end" && own.tokens.length) own.tokens.at(-1).isEnd = true;
  }
}
