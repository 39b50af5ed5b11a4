/* Beam: a beam search step by step, beside greedy search, over a small table of probabilities or with a real model. */

import { post } from "../core/api.js";
import { EXAMPLE, tableOf } from "../core/beam-example.js";
import { END, beamSearch, columnsOf, pathTo, readTable, withGreedy } from "../core/beam-search.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { debounce, h, newId, put } from "../core/dom.js";
import { fixed, percent } from "../core/numbers.js";
import { Page } from "../core/page.js";
import "../components/beam-tree.js";
import "../components/choice.js";
import "../components/examples.js";
import "../components/model-picker.js";
import { range } from "../components/slider.js";

const PAUSE = 250; // ms after the last key before the server is asked
const EXAMPLES = ["They answered and said", "He went up into the", "Then Jesus said to"];
const SOURCES = ["And the LORD said unto Moses,", "Thou shalt not steal.", "Blessed are the meek."];

export default class BeamPage extends Page {
  static need = "write";
  static defaults = { kind: "table", model: "", prompt: EXAMPLES[0], width: 2, steps: 5, penalty: 0, step: -1, table: [] };

  #search = null; // {nodes, candidates, greedy, start}

  build() {
    const later = debounce(PAUSE, () => this.refresh());
    const slider = (key, values, write) => {
      const own = h("nw-slider", { onslide: (event) => (this.set({ [key]: event.detail, step: -1 }, { quiet: true }), this.state.kind === "table" ? this.refresh() : later()) });
      own.show({ label: this.t(key), values, value: this.state[key], write, help: this.t(`${key}-help`) });
      return own;
    };
    const id = newId("prompt");
    this.source = h("nw-choice", { onpick: (event) => this.set({ kind: event.detail, step: -1 }) });
    this.picker = h("nw-model-picker", { onpick: (event) => this.set({ model: event.detail[0], step: -1 }) });
    this.field = h("textarea", { id, dir: "auto", rows: 2, spellcheck: "false", oninput: () => (this.set({ prompt: this.field.value, step: -1 }, { quiet: true }), later()) });
    this.field.value = this.state.prompt;
    this.fieldLabel = h("label", { for: id });
    this.examples = h("nw-examples", { ontry: (event) => ((this.field.value = event.detail), this.set({ prompt: event.detail, step: -1 })) });
    this.modelPart = h("div", {}, this.picker, h("div", { class: "field" }, this.fieldLabel, this.field), this.examples);
    this.tablePart = h("div", {}, this.#table());
    this.tree = h("nw-beam-tree");
    this.steps = h("div", { class: "beam-steps" });
    this.caption = h("p", { class: "beam-caption", role: "status" });
    this.result = h("div", { class: "beam-result" });
    const sliders = [slider("width", range(1, 8)), slider("steps", range(1, 20)), slider("penalty", range(0, 2, 0.1), (value) => value.toFixed(1))];
    return [this.source, h("div", { class: "beam-setup" }, this.tablePart, this.modelPart, h("div", { class: "sliders" }, sliders)), h("section", { "aria-label": this.t("search") }, this.steps, this.caption, this.tree), this.result];
  }

  async update(signal) {
    const isTable = this.state.kind === "table";
    const options = ["table", "model"].map((value) => ({ value, label: this.t(`source-${value}`) }));
    this.source.show({ label: this.t("source"), options, value: this.state.kind });
    this.tablePart.hidden = !isTable;
    this.modelPart.hidden = isTable;
    this.#search = isTable ? this.#searchTable() : await this.#searchModel(signal);
    this.#draw();
  }

  requests() {
    if (this.state.kind === "table" || !this.chosenOne()) return [];
    const { prompt, width, steps, penalty } = this.state;
    const { id } = this.chosenOne();
    return [{
      path: "/api/beam",
      body: this.#body(id, width),
      python: `nextword.lens.trace_beam(nextword.load(${quotePython(`RUNS/${id}`)}), ${quotePython(prompt)}, nextword.Beam(${width}, length_penalty=${penalty}), nextword.Stop(${steps})).candidates`,
      cli: `nextword generate ${quoteShell(`RUNS/${id}`)} ${quoteShell(prompt)} --beam ${width} --n-best ${width} --max-tokens ${steps} --set beam.length_penalty=${penalty}`,
    }];
  }

  #body(model, beam) {
    return { model, prompt: this.state.prompt, beam, max_tokens: this.state.steps, length_penalty: this.state.penalty };
  }

  #searchTable() {
    const next = readTable(tableOf(this.state.table));
    const search = (width) => beamSearch(next, { width, steps: this.state.steps, lengthPenalty: this.state.penalty });
    return this.#joined(search(this.state.width), search(1), this.t("start"));
  }

  async #searchModel(signal) {
    const model = this.chosenOne();
    this.picker.show({ need: "write", chosen: model ? [model.id] : [], multiple: false, label: this.t("model") });
    put(this.fieldLabel, this.t(model?.isSeq2seq ? "prompt-source" : "prompt"));
    this.examples.show((model?.isSeq2seq ? SOURCES : EXAMPLES).map((value) => ({ value })));
    if (!model) return null;
    const widths = this.state.width === 1 ? [1] : [this.state.width, 1];
    const found = await Promise.all(widths.map((width) => post("/api/beam", this.#body(model.id, width), { signal })));
    const words = this.state.prompt.trim().split(/\s+/);
    return this.#joined(found[0], found.at(-1), model.isSeq2seq ? this.t("start") : `…${words.at(-1)}`);
  }

  #joined(beam, greedy, start) {
    return { nodes: withGreedy(beam.nodes, greedy.nodes), candidates: beam.candidates, greedy: greedy.candidates[0], start };
  }

  #draw() {
    const search = this.#search;
    this.tree.hidden = !search?.nodes.length;
    if (this.tree.hidden) return put(this.steps), put(this.caption), put(this.result);
    const last = columnsOf(search.nodes).length - 1;
    const step = this.state.step < 0 ? last : Math.min(this.state.step, last);
    const best = search.candidates[0];
    this.tree.show({ nodes: search.nodes, step, start: search.start, best: best ? nodesOf(search.nodes, best.ids) : [], label: this.t("tree-label", { steps: step + 1 }) });
    this.#drawSteps(step, last);
    put(this.caption, this.#describe(step));
    put(this.result, step === last ? this.#results() : h("p", { class: "note" }, this.t("result-later")));
    return undefined;
  }

  #drawSteps(step, last) {
    const button = (key, target, isOff) => {
      const own = h("button", { class: "plain", type: "button", dataset: { step: key }, "aria-disabled": isOff ? "true" : null, onclick: () => isOff || this.#go(target) }, this.t(key));
      return own;
    };
    const focused = this.steps.querySelector(":focus")?.dataset.step;
    put(this.steps, button("first", 0, step === 0), button("back", step - 1, step === 0), h("span", { class: "count" }, this.t("step-of", { step: step + 1, last: last + 1 })), button("forward", step + 1 === last ? -1 : step + 1, step === last), button("all", -1, step === last));
    if (focused) this.steps.querySelector(`[data-step="${focused}"]`).focus();
  }

  #go(step) {
    this.set({ step }, { quiet: true });
    this.#draw();
    this.tree.reveal(step);
  }

  /** What happens in a step, in a sentence. */
  #describe(step) {
    const { nodes } = this.#search;
    const own = nodes.filter((node) => node.step === step && node.state !== "greedy");
    const name = (node) => this.t("quoted", { text: textOf(nodes, nodes.indexOf(node)), total: fixed(node.total) });
    const list = (some) => some.sort((one, other) => other.total - one.total).slice(0, 4).map(name).join(this.t("comma")) + (some.length > 4 ? this.t("and-more", { count: some.length - 4 }) : "");
    const [stay, out] = [own.filter((node) => node.state !== "pruned"), own.filter((node) => node.state === "pruned")];
    if (!own.length) return this.t("said-greedy", { step: step + 1 });
    return `${this.t("said", { step: step + 1, count: own.length, kept: list(stay) })} ${out.length ? this.t("said-pruned", { pruned: list(out) }) : this.t("said-none-pruned")}`;
  }

  #results() {
    const { candidates, greedy } = this.#search;
    const row = (candidate, name, mark) => h("tr", {}, h("th", { scope: "row", class: "rank" }, name), h("td", { class: "text-cell", dir: "auto" }, candidate.text.trim() || "∅"), h("td", { class: "n" }, fixed(candidate.log_prob, 3)), h("td", { class: "n" }, fixed(candidate.score, 3)), h("td", {}, mark ?? this.t(candidate.complete ? "complete" : "cut")));
    const heads = ["rank", "candidate", "log-p", "score", "end"].map((key) => h("th", { scope: "col", class: ["log-p", "score"].includes(key) ? "n" : null }, this.t(key)));
    const table = h("table", {}, h("caption", {}, this.t("candidates")), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, candidates.map((each, i) => row(each, i === 0 ? "★ 1" : String(i + 1))), row(greedy, "◆")));
    return [h("section", {}, h("h2", {}, this.t("candidates")), h("p", { class: "verdict" }, this.#verdict()), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.t("candidates") }, table), h("p", { class: "note" }, this.t("score-note", { penalty: this.state.penalty.toFixed(1) })))];
  }

  /** Whether the beam found something likelier than greedy search. */
  #verdict() {
    const { candidates: [best], greedy } = this.#search;
    const values = { best: best.text.trim() || "∅", greedy: greedy.text.trim() || "∅", p: percent(Math.exp(best.log_prob)), q: percent(Math.exp(greedy.log_prob)) };
    if (best.ids.join(" ") === greedy.ids.join(" ")) return this.t(this.state.width === 1 ? "verdict-one" : "verdict-same", values);
    const factor = Math.exp(Math.abs(best.log_prob - greedy.log_prob));
    const key = best.log_prob > greedy.log_prob ? "verdict-better" : "verdict-worse";
    const cut = best.complete === greedy.complete ? "" : ` ${this.t("verdict-cut")}`;
    return this.t(key, { ...values, factor: factor < 100 ? factor.toPrecision(2) : Math.round(factor).toLocaleString("en") }) + cut;
  }

  /** The example's table, whose numbers can be changed. */
  #table() {
    let at = -1;
    const rows = tableOf(this.state.table);
    const cell = (word, next) => {
      at += 1;
      const own = at;
      const input = h("input", { type: "number", min: 0, max: 1, step: 0.01, value: rows[word][next], "aria-label": this.t("cell", { word: word || this.t("start"), next }), onchange: () => this.#change(own, input.value) });
      return h("label", { class: "cell" }, h("span", {}, next), input);
    };
    const line = ({ word, next }) => h("tr", {}, h("th", { scope: "row" }, word || this.t("start")), h("td", {}, h("div", { class: "cells" }, next.map(([text]) => cell(word, text)))));
    const reset = h("button", { class: "plain", type: "button", onclick: () => (this.set({ table: [], step: -1 }), put(this.tablePart, this.#table())) }, this.t("reset"));
    return [h("p", { class: "note" }, this.t("table-note")), h("table", { class: "beam-table" }, h("caption", {}, this.t("table")), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, this.t("after")), h("th", { scope: "col" }, this.t("next")))), h("tbody", {}, EXAMPLE.map(line))), h("p", {}, reset)];
  }

  #change(at, text) {
    const numbers = Object.values(tableOf(this.state.table)).flatMap((row) => Object.values(row).map(String));
    numbers[at] = text;
    this.set({ table: numbers, step: -1 });
  }
}

/** The numbers of the nodes that spell a candidate. */
function nodesOf(nodes, ids) {
  let parent = null;
  const path = [];
  for (const id of ids) {
    const at = nodes.findIndex((node) => node.parent === parent && node.id === id && node.state !== "greedy");
    if (at < 0) return path;
    path.push(at);
    parent = at;
  }
  return path;
}

/** The text from the first step to a node: tokens of a model have their spaces, words of the table have none. */
function textOf(nodes, number) {
  const isTable = typeof nodes[0].id === "string";
  const texts = pathTo(nodes, number).map((at) => (nodes[at].state === "complete" || nodes[at].text === END ? " ■" : isTable ? ` ${nodes[at].text}` : nodes[at].text));
  return texts.join("").trim() || "∅";
}
