/* Write: continue a text token by token. A click on a token shows what could have come there, before and after temperature,
   top-k, top-p and so on; another token begins a branch. */

import { isSaved, post, record, stream } from "../core/api.js";
import { allTokens, findBranch, isSame, lineage, readRecipes, tokensBefore, trim, writeRecipe } from "../core/branches.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { debounce, h, newId, put } from "../core/dom.js";
import { Latest } from "../core/latest.js";
import { findModel } from "../core/models.js";
import { fixed, percent } from "../core/numbers.js";
import { Page } from "../core/page.js";
import { visible } from "../core/text.js";
import "../components/bars.js";
import "../components/branch-list.js";
import "../components/choice.js";
import "../components/examples.js";
import { heatLegend } from "../components/heat-text.js";
import "../components/model-picker.js";
import "../components/notice.js";
import { range } from "../components/slider.js";
import "../components/token-text.js";

const SHOWN = 12; // tokens in the bars
const MOST_SAVED = 200; // distributions in a saved page
const PAUSE = 150; // ms after the last key of the prompt
const EXAMPLES = ["In the beginning God created the", "And Jesus said to them,", "The king sent a messenger to", "Blessed are those who"];
const TOPK = [1, 2, 3, 4, 5, 8, 10, 15, 20, 30, 50, 100, 200, 500, 1000, 0]; // 0: all
const SLIDERS = {
  temperature: { values: range(0.05, 2, 0.05), write: (value) => value.toFixed(2) },
  topk: { values: TOPK, write: (value) => (value ? String(value) : "∞") },
  topp: { values: range(0.05, 1, 0.01), write: (value) => value.toFixed(2) },
  minp: { values: range(0, 0.5, 0.01), write: (value) => value.toFixed(2) },
  repetition: { values: range(1, 2, 0.05), write: (value) => value.toFixed(2) },
};
const SETTINGS = ["method", ...Object.keys(SLIDERS), "seed", "length"];

export default class WritePage extends Page {
  static need = "continue";
  static defaults = { model: "", prompt: EXAMPLES[0], method: "sample", temperature: 0.8, topk: 0, topp: 1, minp: 0, repetition: 1, seed: 1, length: 40, branches: [], shown: 0, at: -1, colored: true };

  #branches = [];
  #run = null; // the generation under way: {branch, controller}
  #drawn = ""; // what the text shows
  #past = []; // ids of branches that were shown before; 0: the prompt alone
  #future = [];
  #sliding = new Latest(() => this.refresh());

  build() {
    const id = newId("prompt");
    const typing = debounce(PAUSE, () => this.#sliding.ask());
    this.picker = h("nw-model-picker", { onpick: (event) => this.#leaveBranch({ model: event.detail[0] }) });
    this.field = h("textarea", { id, dir: "auto", rows: 2, spellcheck: "false", oninput: () => (this.#leaveBranch({ prompt: this.field.value }, true), typing()), onkeydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && this.#continue(), "aria-describedby": `${id}-help` });
    this.examples = h("nw-examples", { ontry: (event) => ((this.field.value = event.detail), this.#leaveBranch({ prompt: event.detail })) });
    this.examples.show(EXAMPLES.map((value) => ({ value })));
    this.text = h("nw-token-text", { ontoken: (event) => this.#select(event.detail) });
    this.said = h("span", { class: "said", role: "status" });
    this.runNotice = h("nw-notice");
    const colored = h("input", { type: "checkbox", id: newId("colored"), onchange: () => this.set({ colored: colored.checked }, { quiet: true }).then(() => this.#drawText()) });
    this.colored = colored;
    this.legend = heatLegend("surprisal");
    this.heading = h("h2", { "aria-live": "polite" });
    this.facts = h("p", { class: "note" });
    this.bars = h("nw-bars", { onchoose: (event) => this.#branchOff(event.detail) });
    this.stages = h("div", {});
    this.list = h("nw-branch-list", { onbranch: (event) => this.#go(event.detail) });
    this.branchPart = h("section", {}, h("h2", {}, this.t("branches")), h("p", { class: "note" }, this.t("branches-note")), this.list);
    const content = [
      this.picker,
      h("div", { class: "field" }, h("label", { for: id }, this.t("prompt")), this.field, h("p", { id: `${id}-help`, class: "note" }, this.t("prompt-help"))),
      this.examples,
      this.#buttons(),
      this.runNotice,
      h("div", { class: "written" }, this.text, h("p", { class: "text-tools" }, h("span", { class: "toggle" }, colored, " ", h("label", { for: colored.id }, this.t("colored"))), this.said)),
      this.legend,
      h("div", { class: "workbench" }, this.#sliders(), h("section", { class: "card" }, this.heading, this.facts, this.bars, h("p", { class: "legend bars-legend" }, h("span", {}, h("i", { class: "before" }), this.t("key-before")), h("span", {}, (this.afterKey = h("i")), this.t("key-after"))), this.stages)),
      this.branchPart,
    ];
    this.#drawn = "";
    this.#fill();
    return content;
  }

  async update(signal) {
    this.#adopt();
    const model = this.chosenOne();
    this.picker.show({ need: "continue", chosen: model ? [model.id] : [], multiple: false, label: this.t("model") });
    if (!model) return;
    const shown = this.#shown;
    for (const branch of lineage(this.#branches, shown)) await this.#load(branch, signal);
    this.#drawText();
    await this.#showDistribution(signal);
    for (const branch of this.#branches) await this.#load(branch, signal).catch((error) => this.#excuse(branch, error));
    this.#drawBranches();
  }

  restored() {
    this.#stop();
    this.#adopt();
    this.#fill();
  }

  disconnectedCallback() {
    this.#run?.controller.abort();
    super.disconnectedCallback();
  }

  requests() {
    const model = this.chosenOne();
    if (!model) return [];
    const shown = this.#shown;
    const settings = shown?.settings ?? this.#settings;
    const before = shown ? tokensBefore(this.#branches, shown) : [];
    const prompt = this.state.prompt + before.map((token) => token.text).join("");
    const { stream: _stream, ...body } = this.#body(model.id, this.state.prompt, before, settings);
    const isGreedy = settings.method === "greedy";
    const sample = `nextword.Sample(${settings.temperature}, top_k=${settings.topk}, top_p=${settings.topp}, min_p=${settings.minp}, seed=${settings.seed}, repetition=${settings.repetition})`;
    const flags = isGreedy ? "--temperature 0" : `--temperature ${settings.temperature} --top-k ${settings.topk} --top-p ${settings.topp} --seed ${settings.seed}`;
    return [{
      path: "/api/generate",
      body,
      python: `nextword.load(${quotePython(`RUNS/${model.id}`)}).generate(${quotePython(prompt)}, ${isGreedy ? `nextword.Greedy(repetition=${settings.repetition})` : sample}, nextword.Stop(${settings.length})).text`,
      cli: !isGreedy && settings.minp ? "" : `nextword generate ${quoteShell(`RUNS/${model.id}`)} ${quoteShell(prompt)} ${flags} --repetition-penalty ${settings.repetition} --max-tokens ${settings.length}`,
    }];
  }

  // ---------------------------------------------------------------------------------------------- fields

  #buttons() {
    const button = (key, run, plain = true) => (this[`${key}Button`] = h("button", { class: plain ? "plain" : null, type: "button", dataset: { run: key }, onclick: run }, this.t(key)));
    return h("div", { class: "run-buttons" }, button("continue", () => this.#continue(), false), button("stop", () => this.#stop(), false), button("rewrite", () => this.#rewrite()), button("reseed", () => this.#rewrite({ seed: 1 + Math.floor(Math.random() * 99999) })), button("undo", () => this.#step(this.#past, this.#future)), button("redo", () => this.#step(this.#future, this.#past)));
  }

  #sliders() {
    this.method = h("nw-choice", { onpick: (event) => this.#change({ method: event.detail }) });
    this.sliders = Object.fromEntries(Object.entries(SLIDERS).map(([key, { values, write }]) => {
      const own = h("nw-slider", { onslide: (event) => this.#change({ [key]: event.detail }) });
      own.show({ label: this.t(key), values, value: this.state[key], write, help: this.t(`${key}-help`) });
      return [key, own];
    }));
    const number = (key, most, least = 0) => {
      const id = newId(key);
      const input = h("input", { type: "number", id, min: least, max: most, step: 1, onchange: () => this.#change({ [key]: Math.min(most, Math.max(least, Math.round(Number(input.value) || least))) }) });
      this[`${key}Field`] = input;
      return h("div", { class: "field" }, h("label", { for: id }, this.t(key)), input);
    };
    return h("fieldset", { class: "decoding" }, h("legend", {}, this.t("decoding")), this.method, Object.values(this.sliders), h("div", { class: "numbers" }, number("length", 500, 1), number("seed", 2 ** 31 - 1)));
  }

  /** Put the state into the fields. */
  #fill() {
    const { state } = this;
    if (this.field.value !== state.prompt) this.field.value = state.prompt;
    for (const [key, slider] of Object.entries(this.sliders)) slider.set(state[key]);
    for (const key of ["temperature", "topk", "topp", "minp"]) this.sliders[key].disable(state.method === "greedy");
    this.method.show({ label: this.t("method"), options: ["sample", "greedy"].map((value) => ({ value, label: this.t(`method-${value}`) })), value: state.method });
    this.lengthField.value = state.length;
    this.seedField.value = state.seed;
    this.seedField.disabled = state.method === "greedy";
    this.colored.checked = state.colored;
    this.#drawButtons();
  }

  #change(changes) {
    this.set(changes, { quiet: true });
    this.#fill();
    this.#sliding.ask();
  }

  get #settings() {
    return Object.fromEntries(SETTINGS.map((key) => [key, this.state[key]]));
  }

  // ---------------------------------------------------------------------------------------------- branches

  /** Read the branches that the state describes. Those that are known already keep their texts. */
  #adopt() {
    const written = this.#branches.map((branch) => this.#recipe(branch));
    if (JSON.stringify(written) !== JSON.stringify(this.state.branches)) this.#branches = adoptTexts(readRecipes(this.state.branches), this.#branches);
  }

  #recipe(branch) {
    return writeRecipe(branch, findBranch(this.#branches, branch.parent));
  }

  get #shown() {
    return findBranch(this.#branches, this.state.shown);
  }

  /** Show the prompt alone: it has changed, or the model has. The branches stay in the list. */
  #leaveBranch(changes, quiet = false) {
    this.#stop();
    if (this.state.shown) this.#remember();
    this.set({ ...changes, shown: 0, at: -1 }, { quiet });
    this.#drawText();
    this.#drawBranches();
    this.#drawButtons();
  }

  #remember() {
    if (this.#past.at(-1) !== this.state.shown) this.#past.push(this.state.shown);
    this.#future = [];
  }

  #step(from, to) {
    if (!from.length) return;
    this.#stop();
    to.push(this.state.shown);
    this.#show(from.pop());
  }

  #go(id) {
    if (id === this.state.shown) return;
    this.#stop();
    this.#remember();
    this.#show(id);
  }

  /** Show a branch with the prompt, model and settings that it was written with. */
  #show(id, more = {}) {
    const branch = findBranch(this.#branches, id);
    const own = branch ? { model: branch.model, prompt: branch.prompt, ...branch.settings } : {};
    this.set({ ...own, shown: branch ? id : 0, at: -1, ...more }, { quiet: true });
    this.#fill();
    this.refresh();
  }

  #bodyOf(branch) {
    return this.#body(branch.model, branch.prompt, tokensBefore(this.#branches, branch), branch.settings);
  }

  #body(model, prompt, before, settings) {
    const { seed, length } = settings;
    const isGreedy = settings.method === "greedy";
    return { model, prompt, ids: before.flatMap((token) => token.ids), ...this.#decoding(settings), ...(isGreedy ? {} : { seed }), max_tokens: length, stream: true };
  }

  #decoding({ method, temperature, topk, topp, minp, repetition }) {
    return { ...(method === "greedy" ? { temperature: 0 } : { temperature, top_k: topk, top_p: topp, min_p: minp }), repetition_penalty: repetition };
  }

  // ---------------------------------------------------------------------------------------------- generating

  #continue() {
    const model = this.chosenOne();
    if (!model || this.#run) return;
    const shown = this.#shown;
    const keep = shown ? this.#shownTokens.length : 0;
    if (shown && this.#shownTokens.at(-1)?.isEnd) return void put(this.said, this.t("has-ended"));
    this.#begin({ parent: shown?.id ?? 0, keep, chosen: null });
  }

  /** Write the shown branch anew, from where it begins, with the settings of now. */
  #rewrite(changes = {}) {
    this.set(changes, { quiet: true });
    this.#fill();
    const { parent = 0, keep = 0, chosen = null } = this.#shown ?? {};
    this.#begin({ parent, keep, chosen });
  }

  /** Go on from another token. */
  #branchOff(row) {
    const { at } = this.state;
    const tokens = this.#shownTokens;
    const keep = at < 0 ? tokens.length : at;
    if (at >= 0 && tokens[at].ids[0] === row.id) return;
    if (row.id === this.endId) return void put(this.said, this.t("is-end"));
    const text = row.text.includes("\ufffd") ? "" : row.text;
    this.#begin({ parent: this.state.shown, keep, chosen: { id: row.id, text, nats: -Math.log(Math.max(row.before, 1e-30)) } }).then(() => this.text.focusToken(keep));
  }

  /** Begin a branch, and have the model go on with it. */
  async #begin({ parent, keep, chosen }) {
    this.#stop();
    const id = Math.max(0, ...this.#branches.map((branch) => branch.id)) + 1;
    const branch = { id, parent, keep, chosen, model: this.chosenOne().id, prompt: this.state.prompt, settings: this.#settings };
    const same = this.#branches.find((other) => isSame(other, branch));
    if (same) return this.#go(same.id);
    this.#remember();
    this.#branches = trim([...this.#branches, branch], id);
    await this.#generate(branch);
    return undefined;
  }

  async #generate(branch) {
    const controller = new AbortController();
    const run = { branch, controller };
    const own = { tokens: [], reason: null };
    branch.own = own;
    this.#run = run;
    this.set({ model: branch.model, branches: this.#branches.map((each) => this.#recipe(each)), shown: branch.id, at: -1 }, { quiet: true });
    this.runNotice.clear();
    this.#drawText();
    this.#drawButtons();
    const events = [];
    const body = this.#bodyOf(branch);
    let failure = null;
    try {
      for await (const event of stream("/api/generate", body, { signal: controller.signal })) {
        events.push(event);
        this.#take(own, event);
        if (event.piece !== undefined && this.#run === run) this.text.add(own.tokens.at(-1));
      }
    } catch (error) {
      failure = error;
    }
    if (own.reason === null) this.#cut(branch, own, events, body);
    if (this.#run !== run) return; // another one has begun
    this.#run = null;
    if (failure && failure.name !== "AbortError") this.runNotice.fail(failure, () => (this.runNotice.clear(), this.#rewrite()));
    put(this.said, this.#describeEnd(own));
    this.#drawButtons();
    await this.refresh();
  }

  /** A text that was stopped is one of as many tokens as there are; without any, there is no branch. */
  #cut(branch, own, events, body) {
    if (own.tokens.length) {
      branch.settings = { ...branch.settings, length: own.tokens.length };
      own.reason = "length";
      const result = { prompt: branch.prompt, text: own.tokens.map((token) => token.text).join(""), tokens: own.tokens.length, reason: "length" };
      record("POST", "/api/generate", { ...body, max_tokens: own.tokens.length }, [...events, result]);
    } else if (!this.#branches.some((other) => other.parent === branch.id)) {
      this.#branches = this.#branches.filter((other) => other !== branch);
      if (this.state.shown === branch.id) this.set({ shown: branch.parent }, { quiet: true });
    }
    this.set({ branches: this.#branches.map((each) => this.#recipe(each)) }, { quiet: true });
  }

  #take(own, event) {
    if (event.piece !== undefined) own.tokens.push({ text: event.piece, ids: event.ids, nats: event.nats });
    else {
      own.reason = event.reason;
      if (event.reason === "end" && own.tokens.length) own.tokens.at(-1).isEnd = true;
    }
  }

  #stop() {
    this.#run?.controller.abort();
  }

  /** Have the tokens of a branch that a link describes. */
  async #load(branch, signal) {
    if (branch.own) return;
    const parent = findBranch(this.#branches, branch.parent);
    if (parent) await this.#load(parent, signal);
    const own = { tokens: [], reason: null };
    for await (const event of stream("/api/generate", this.#bodyOf(branch), { signal })) this.#take(own, event);
    branch.own = own;
  }

  /** A branch in the list whose model is gone is no reason to fail the page. */
  #excuse(branch, error) {
    if (error.name === "AbortError") throw error;
    branch.problem = error.message || this.t("not-saved");
  }

  // ---------------------------------------------------------------------------------------------- the distribution

  get #shownTokens() {
    const shown = this.#shown;
    return shown ? allTokens(this.#branches, shown) : [];
  }

  #select(at) {
    this.set({ at: at === this.state.at ? -1 : at }, { quiet: true });
    this.text.select(this.state.at);
    this.#sliding.ask();
  }

  async #showDistribution(signal) {
    if (this.#run && this.state.at < 0) return; // the end moves
    const tokens = this.#shownTokens;
    const at = this.state.at < tokens.length ? this.state.at : -1;
    this.#drawDistribution(await post("/api/distribution", this.#question(tokens, at), { signal }), this.chosenOne(), tokens[at] ?? null);
  }

  /** What to ask about the place of a token, or, −1, about what comes next. */
  #question(tokens, at) {
    const before = at < 0 ? tokens : tokens.slice(0, at);
    const chosen = at < 0 ? {} : { chosen: tokens[at].ids[0] };
    return { model: this.chosenOne().id, prompt: this.state.prompt, ids: before.flatMap((token) => token.ids), k: SHOWN, ...this.#decoding(this.state), ...chosen };
  }

  /** A saved page can show the distribution at every token. */
  async prepareToSave() {
    const tokens = this.#shownTokens;
    for (let at = -1; at < Math.min(tokens.length, MOST_SAVED); at += 1) await post("/api/distribution", this.#question(tokens, at));
    await this.refresh();
  }

  #drawDistribution(effect, model, chosen) {
    this.endId = effect.end;
    const row = (token) => ({ id: token.id, text: token.id === effect.end ? "∎" : token.text, before: token.before, probability: token.after, note: `${percent(token.before)} → ${token.after ? percent(token.after) : "0"}`, isOwn: effect.chosen?.id === token.id });
    const rows = effect.tokens.map(row);
    if (effect.chosen && !rows.some((each) => each.isOwn)) rows.push(row(effect.chosen));
    put(this.heading, h("span", { class: `dot c${model.index % 8}`, "aria-hidden": "true" }), chosen ? this.t("at-token", { token: chosen.isEnd ? "∎" : visible(chosen.text) }) : this.t("at-end"));
    const bits = (nats) => fixed(nats / Math.LN2);
    const facts = { before: bits(effect.entropy_before), after: bits(effect.entropy_after), allowed: effect.allowed.toLocaleString("en"), vocabulary: effect.vocabulary.toLocaleString("en") };
    const own = effect.chosen ? `${this.t("own-rank", { rank: effect.chosen.rank.toLocaleString("en"), before: percent(effect.chosen.before), after: effect.chosen.after ? percent(effect.chosen.after) : "0 %" })} ` : "";
    put(this.facts, own, this.t("facts", facts));
    this.afterKey.className = `c${model.index % 8}`;
    this.bars.show(rows, { label: this.t("bars", { model: model.id }), color: model.index, choosable: !isSaved });
    const stage = (each) => h("tr", {}, h("th", { scope: "row" }, this.t(`stage-${each.setting}`)), h("td", { class: "n" }, each.allowed.toLocaleString("en")), h("td", { class: "n" }, bits(each.entropy)));
    put(this.stages, h("table", { class: "stages" }, h("caption", {}, this.t("stages")), h("thead", {}, h("tr", {}, ["stage", "stage-tokens", "stage-entropy"].map((key, i) => h("th", { scope: "col", class: i ? "n" : null }, this.t(key))))), h("tbody", {}, effect.stages.map(stage))));
  }

  // ---------------------------------------------------------------------------------------------- drawing

  #drawText() {
    const tokens = this.#shownTokens;
    const { prompt, at, colored, shown } = this.state;
    const drawn = JSON.stringify([prompt, shown, tokens.length, colored, this.#run !== null]);
    if (drawn === this.#drawn) return this.text.select(at); // keeps the focus where it is
    this.#drawn = drawn;
    this.text.show({ prompt, tokens, selected: at, isColored: colored, isLive: this.#run !== null, label: this.t("text") });
    this.legend.hidden = !colored || !tokens.length;
    if (!tokens.length && !this.#run) put(this.said, this.t("nothing-yet"));
    return undefined;
  }

  #drawButtons() {
    const isRunning = this.#run !== null;
    this.continueButton.hidden = isRunning;
    this.stopButton.hidden = !isRunning;
    this.rewriteButton.disabled = isRunning || !this.#shown;
    this.reseedButton.disabled = isRunning || this.state.method === "greedy";
    this.undoButton.disabled = !this.#past.length;
    this.redoButton.disabled = !this.#future.length;
  }

  #drawBranches() {
    this.branchPart.hidden = !this.#branches.length;
    this.list.show({ branches: this.#branches, shown: this.state.shown, noteOf: (branch) => this.#note(branch) });
    this.#drawButtons();
  }

  /** The settings of a branch in words, without those that change nothing. */
  #note({ model, settings, problem }) {
    const parts = [model];
    if (settings.method === "greedy") parts.push(this.t("method-greedy"));
    else {
      for (const key of ["temperature", "topk", "topp", "minp"]) if (settings[key] !== (key === "topp" ? 1 : 0)) parts.push(`${this.t(`short-${key}`)} ${SLIDERS[key].write(settings[key])}`);
      parts.push(`${this.t("short-seed")} ${settings.seed}`);
    }
    if (settings.repetition !== 1) parts.push(`${this.t("short-repetition")} ${settings.repetition}`);
    return [...parts, findModel(model) ? problem : this.t("no-model")].filter(Boolean).join(" · ");
  }

  #describeEnd(own) {
    const nats = own.tokens.reduce((sum, token) => sum + token.nats, 0);
    if (!own.tokens.length) return "";
    return this.t(own.reason === "end" ? "wrote-end" : "wrote", { count: own.tokens.length, bits: fixed(nats / Math.LN2 / own.tokens.length) });
  }
}

/** Branches with the texts of those before them that have the same recipes. */
function adoptTexts(branches, old) {
  for (const branch of branches) {
    const same = old.find((other) => other.id === branch.id && isSame(other, branch));
    const parent = findBranch(branches, branch.parent);
    if (same && (!parent || parent.own)) branch.own = same.own;
  }
  return branches;
}
