/* The models that the server has, and why some of them cannot do what a page needs. */

import { get } from "./api.js";
import { t } from "./i18n.js";
import { forgetKnown } from "./memory.js";

const VECTORS = ["word2vec", "glove"];
const COUNTING = ["ngram"];
const WINDOW = ["nplm"];
const RECURRENT = ["rnn", "gru", "lstm", "awd-lstm", "ulmfit", "elmo"];
const FIRST = ["counting", "recurrent", "causal", "masked", "seq2seq"]; // families to begin with, in this order

/** A model as the pages see it. */
export class Model {
  constructor(entry, index) {
    const facts = entry.nextword;
    this.id = entry.id;
    this.index = index; // of its color
    this.slug = facts.slug ?? "";
    this.recipe = facts.recipe ?? "";
    this.data = facts.data ?? ""; // name of its training data
    this.parameters = facts.parameters;
    this.bitsPerByte = facts.bits_per_byte;
    this.abilities = facts.abilities; // null: not known before it is loaded
    this.views = facts.views ?? null; // of the lens
    this.isSeq2seq = facts.is_seq2seq ?? false;
    this.isMasked = facts.kind === "pseudo";
    this.task = facts.task;
    this.taskSettings = facts.task_settings ?? null; // of a fine-tuned run: labels, is_pair, is_numeric, tasks
    this.window = entry.max_model_len;
    this.tokenizer = facts.tokenizer;
    this.infills = facts.infills;
    this.status = facts.status;
  }

  /** Whether it may have an ability ("next") or a view of the lens ("view:gates"). What is not known yet may be. */
  can(need) {
    if (need === "seq2seq") return this.isSeq2seq;
    if (need === "task") return Boolean(this.task);
    if (need === "tokenizer") return true;
    if (need === "continue") return !this.isSeq2seq && this.can("write");
    if (need === "write") return this.abilities === null ? !this.task : this.abilities.includes("generate");
    if (need === "infill") return Boolean(this.infills);
    if (need.startsWith("view:")) return this.views === null || this.views.includes(need.slice(5));
    return this.abilities === null || this.abilities.includes(need);
  }

  /** The kind of model that it is, in one word. */
  get family() {
    if (this.task) return "task";
    if (VECTORS.includes(this.slug)) return "vectors";
    if (COUNTING.includes(this.slug)) return "counting";
    if (this.isSeq2seq) return "seq2seq";
    if (this.isMasked) return "masked";
    if (WINDOW.includes(this.slug)) return "window";
    return RECURRENT.includes(this.slug) ? "recurrent" : "causal";
  }

  /** Why it lacks what it needs, in a sentence. */
  whyNot(need) {
    const key = `why:${need.replace("view:", "")}:${this.family}`;
    const text = t(key);
    return text === key ? t(`why:${this.family}`) : text;
  }
}

let models = [];

/** Read the list of models, at the beginning and when one may have changed. */
export async function loadModels() {
  const list = await get("/v1/models");
  forgetKnown();
  models = list.data.map((entry, index) => new Model(entry, index));
  return models;
}

export function allModels() {
  return models;
}

export function findModel(id) {
  return models.find((model) => model.id === id);
}

const COLORS = 8;

/** The classes of a model's dot: those of the second eight are rings, so that no two look alike. */
export function dotClass(index) {
  return `dot c${index % COLORS}${index % (2 * COLORS) < COLORS ? "" : " ring"}`;
}

/** Some models to begin with: the best of each family, in the order of FIRST, then the next best. */
export function diverse(some, most) {
  const rank = (model) => (FIRST.indexOf(model.family) + FIRST.length + 1) % (FIRST.length + 1);
  const byQuality = [...some].sort((a, b) => (a.bitsPerByte ?? 99) - (b.bitsPerByte ?? 99));
  const best = byQuality.filter((model) => byQuality.find((other) => other.family === model.family) === model);
  best.sort((a, b) => rank(a) - rank(b));
  return [...best, ...byQuality.filter((model) => !best.includes(model))].slice(0, most);
}

/** Those that meet a need, and the others. */
export function divide(need) {
  const needs = [need].flat();
  const able = models.filter((model) => needs.some((each) => model.can(each)));
  return { able, unable: models.filter((model) => !able.includes(model)) };
}
