/* A text as a model reads it: token by token, in one call if it fits, else part by part. */

import { forgetAnswers } from "./api.js";
import { blocksOf, cellsOf, countUnits, flatten, planParts, spread, totals } from "./heat.js";
import { ask, remember } from "./memory.js";
import { decode, hex } from "./splits.js";
import { ByteMap, words } from "./text.js";

const MOST = 4096; // tokens that /api/explain takes
const MOST_MASKED = 512; // of a masked model, which hides one token at a time
const PART = 1024; // tokens of a part of a longer text
const PART_MASKED = 256;
const CONTEXT = 1024; // tokens before a part that the model reads, too
const BLANK = "___";

export const ALTERNATIVES = 5;

/** A text, with what all models need of it. */
export class Passage {
  constructor(text) {
    this.text = text;
    this.map = new ByteMap(text);
    this.bytes = this.map.bytes[text.length];
    this.words = null;
  }

  /** Split it into words, without holding up the page. */
  async findWords() {
    if (this.words) return this.words;
    const found = [];
    for (const { start, end } of blocksOf(this.text).flatMap((block) => block.runs)) {
      for (const word of words(this.text.slice(start, end))) found.push({ text: word.text, start: start + word.start, end: start + word.end });
      await pause();
    }
    this.words = found;
    return found;
  }
}

/** What one model makes of a passage. `step` reads the next part. */
export class Reading {
  cells = [];
  parts = null; // {from, start, end}: places in the text
  done = 0; // parts that are read
  isBusy = false;
  error = null;
  #sums = {};

  constructor(model, passage, source = null) {
    Object.assign(this, { model, passage, source });
    this.bits = new Float64Array(passage.bytes).fill(NaN); // of each byte
    this.isPseudo = model.isMasked;
    this.isLossless = model.tokenizer?.lossless ?? true;
  }

  get isComplete() {
    return this.parts !== null && this.done === this.parts.length;
  }

  get end() {
    return this.done ? this.parts[this.done - 1].end : 0;
  }

  /** The part in work: {start, end}, or null. */
  get pending() {
    if (!this.isBusy) return null;
    return this.parts?.[this.done] ?? { start: 0, end: this.passage.text.length };
  }

  /** Tokens before a part that the model saw. */
  get context() {
    if (this.source !== null || this.hasNoContext) return 0;
    return Math.min(CONTEXT, this.model.window ?? CONTEXT);
  }

  /** Sums over what is read so far; computed once for each part. */
  get totals() {
    if (this.#sums.done !== this.done) this.#sums = { done: this.done, ...this.#total() };
    return this.#sums;
  }

  #total() {
    const text = this.passage.text.slice(0, this.end);
    const bytes = this.passage.map.bytes[this.end];
    const { count, isUnspaced } = countUnits(text, bytes);
    // A tokenizer of words that has a token for the end of a line counts it as a word, as nextword does everywhere.
    const ends = this.isLossless ? 0 : this.cells.filter((cell) => text.slice(cell.start, cell.end) === "\n").length;
    return { ...totals(this.cells, { bytes, units: isUnspaced ? count : count + ends, isLossless: this.isLossless }), isUnspaced };
  }

  /** The requests that it consists of, so far as they are known. */
  get bodies() {
    return (this.parts ?? [{ from: 0, start: 0, end: this.passage.text.length }]).map((part) => this.#body(part));
  }

  /** Record what was read before as part of this view. */
  remember() {
    for (const body of this.bodies.slice(0, this.done)) remember("/api/explain", body);
    if (this.parts?.length > 1) remember("/tokenize", this.#counted());
  }

  async step(signal) {
    this.isBusy = true;
    this.error = null;
    try {
      this.parts ??= await this.#plan(signal);
      const part = this.parts[this.done];
      this.#add(part, await this.#explain(part, signal));
      if (!this.isComplete) await pause(); // known answers come at once
    } catch (error) {
      if (error.name !== "AbortError") this.error = error;
      throw error;
    } finally {
      this.isBusy = false;
    }
  }

  async #plan(signal) {
    const { map, text, bytes } = this.passage;
    const most = this.isPseudo ? MOST_MASKED : MOST;
    if (bytes <= most) return [{ from: 0, start: 0, end: text.length }]; // no token has less than a byte
    const { spans } = await ask("/tokenize", this.#counted(), signal);
    return planParts(map, spans, { most, part: this.isPseudo ? PART_MASKED : PART, context: this.context });
  }

  async #explain(part, signal) {
    try {
      return await ask("/api/explain", this.#body(part), signal);
    } catch (error) {
      if (error.status !== 400 || part.from === part.start || this.source !== null) throw error;
      this.hasNoContext = true; // a model that reads backward has nothing before the text
      return ask("/api/explain", this.#body(part), signal);
    }
  }

  #counted() {
    return { model: this.model.id, prompt: this.passage.text };
  }

  #body({ from, start, end }) {
    const { text } = this.passage;
    const body = { model: this.model.id, text: text.slice(start, end), k: ALTERNATIVES };
    if (this.source !== null) return { ...body, source: this.source };
    const blank = text.lastIndexOf(BLANK, start - BLANK.length); // a model that fills blanks would fill that of its source
    const first = this.model.infills && blank >= from ? blank + BLANK.length : from;
    return first < start && !this.hasNoContext ? { ...body, source: text.slice(first, start) } : body;
  }

  #add(part, answer) {
    const { map, text } = this.passage;
    const raw = new TextEncoder().encode(text.slice(part.start, part.end));
    const tokens = answer.tokens.map((each) => label(flatten(each), raw));
    this.isPseudo = answer.kind === "pseudo";
    this.isLossless = this.model.tokenizer?.lossless ?? answer.bits_per_byte !== null;
    for (const cell of cellsOf(text.slice(part.start, part.end), tokens, part.start)) this.cells.push(cell);
    spread(this.bits, tokens, map.bytes[part.start], map.bytes[part.end] - map.bytes[part.start]);
    this.done += 1;
  }
}

/** Begin to record anew what a saved page needs: the answers about this text alone. */
export function beginRecord() {
  forgetAnswers();
}

/** Name a token that is part of a character by its bytes. */
function label(token, raw) {
  const bytes = raw.subarray(token.start, token.end);
  return bytes.length && !decode(bytes) ? { ...token, text: hex(bytes), isPart: true } : token;
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}
