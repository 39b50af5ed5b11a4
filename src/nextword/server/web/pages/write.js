/* Write: continue a text token by token. A click on a token shows what could have come there, before and after temperature,
   top-k, top-p and so on; another token begins a branch. */

import { isSaved, post } from "../core/api.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { debounce, h, newId, put } from "../core/dom.js";
import { Latest } from "../core/latest.js";
import { findModel } from "../core/models.js";
import { Notebook, decodingOf, generation } from "../core/notebook.js";
import { fixed } from "../core/numbers.js";
import { Page } from "../core/page.js";
import "../components/branch-list.js";
import { SETTINGS, describeSettings } from "../components/decoding-settings.js";
import "../components/distribution.js";
import "../components/examples.js";
import { heatLegend } from "../components/heat-text.js";
import "../components/model-picker.js";
import "../components/notice.js";
import "../components/token-text.js";

const SHOWN = 12; // tokens in the bars
const MOST_SAVED = 200; // distributions in a saved page
const PAUSE = 150; // ms after the last key of the prompt
const EXAMPLES = ["In the beginning God created the", "And Jesus said to them,", "The king sent a messenger to", "Blessed are those who"];

export default class WritePage extends Page {
  static need = "continue";
  static defaults = { model: "", prompt: EXAMPLES[0], method: "sample", temperature: 0.8, topk: 0, topp: 1, minp: 0, repetition: 1, seed: 1, length: 40, branches: [], shown: 0, at: -1, colored: true };

  #notebook = new Notebook();
  #drawn = ""; // what the text shows
  #sliding = new Latest(() => this.refresh());

  build() {
    const id = newId("prompt");
    const typing = debounce(PAUSE, () => this.#sliding.ask());
    const isShortcut = (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey);
    this.#drawn = "";
    this.picker = h("nw-model-picker", { onpick: (event) => this.#leaveBranch({ model: event.detail[0] }) });
    this.field = h("textarea", { id, dir: "auto", rows: 2, spellcheck: "false", oninput: () => (this.#leaveBranch({ prompt: this.field.value }, true), typing()), onkeydown: (event) => isShortcut(event) && this.#continue(), "aria-describedby": `${id}-help` });
    this.examples = h("nw-examples", { ontry: (event) => ((this.field.value = event.detail), this.#leaveBranch({ prompt: event.detail })) });
    this.examples.show(EXAMPLES.map((value) => ({ value })));
    this.text = h("nw-token-text", { ontoken: (event) => this.#select(event.detail) });
    this.said = h("span", { class: "said", role: "status" });
    this.runNotice = h("nw-notice");
    this.colored = h("input", { type: "checkbox", id: `${id}-colored`, onchange: () => (this.set({ colored: this.colored.checked }, { quiet: true }), this.#drawText()) });
    this.legend = heatLegend("surprisal");
    this.decoding = h("nw-decoding", { "onchange-setting": (event) => this.#change(event.detail) });
    this.distribution = h("nw-distribution", { class: "card", role: "region", "aria-label": this.t("distribution"), onchoose: (event) => this.#branchOff(event.detail) });
    this.list = h("nw-branch-list", { onbranch: (event) => this.#go(event.detail) });
    this.branchPart = h("section", {}, h("h2", {}, this.t("branches")), h("p", { class: "note" }, this.t("branches-note")), this.list);
    return [
      this.picker,
      h("div", { class: "field" }, h("label", { for: id }, this.t("prompt")), this.field, h("p", { id: `${id}-help`, class: "note" }, this.t("prompt-help"))),
      this.examples,
      this.#buttons(),
      this.runNotice,
      h("div", { class: "written" }, this.text, h("p", { class: "text-tools" }, h("span", { class: "toggle" }, this.colored, " ", h("label", { for: this.colored.id }, this.t("colored"))), this.said)),
      this.legend,
      h("div", { class: "workbench" }, this.decoding, this.distribution),
      this.branchPart,
    ];
  }

  async update(signal) {
    this.#notebook.adopt(this.state.branches);
    this.#fill();
    const model = this.chosenOne();
    this.picker.show({ need: "continue", chosen: model ? [model.id] : [], multiple: false, label: this.t("model") });
    if (!model) return;
    const { branches } = this.#notebook;
    await this.#notebook.load(this.#shown, signal);
    this.#drawText();
    await this.#showDistribution(signal);
    for (const branch of branches) await this.#notebook.load(branch, signal).catch((error) => this.#excuse(branch, error));
    this.#drawBranches();
  }

  restored() {
    this.#notebook.stop();
  }

  disconnectedCallback() {
    this.#notebook.stop();
    super.disconnectedCallback();
  }

  requests() {
    const model = this.chosenOne();
    if (!model) return [];
    const settings = this.#shown?.settings ?? this.#settings;
    const before = this.#shown ? this.#notebook.tokensBefore(this.#shown) : [];
    const prompt = this.state.prompt + before.map((token) => token.text).join("");
    const { stream: _stream, ...body } = generation(model.id, this.state.prompt, before, settings);
    const { method, temperature, topk, topp, minp, repetition, seed, length } = settings;
    const isGreedy = method === "greedy";
    const decoding = isGreedy ? `nextword.Greedy(repetition=${repetition})` : `nextword.Sample(${temperature}, top_k=${topk}, top_p=${topp}, min_p=${minp}, seed=${seed}, repetition=${repetition})`;
    const flags = isGreedy ? "--temperature 0" : `--temperature ${temperature} --top-k ${topk} --top-p ${topp} --seed ${seed}`;
    return [{
      path: "/api/generate",
      body,
      python: `nextword.load(${quotePython(`RUNS/${model.id}`)}).generate(${quotePython(prompt)}, ${decoding}, nextword.Stop(${length})).text`,
      cli: !isGreedy && minp ? "" : `nextword generate ${quoteShell(`RUNS/${model.id}`)} ${quoteShell(prompt)} ${flags} --repetition-penalty ${repetition} --max-tokens ${length}`,
    }];
  }

  /** A saved page can show the distribution at every token. */
  async prepareToSave() {
    const tokens = this.#tokens;
    for (let at = -1; at < Math.min(tokens.length, MOST_SAVED); at += 1) await post("/api/distribution", this.#question(tokens, at));
    await this.refresh();
  }

  // ---------------------------------------------------------------------------------------------- fields

  #buttons() {
    const anySeed = () => 1 + Math.floor(Math.random() * 99999);
    const runs = { continue: () => this.#continue(), stop: () => this.#notebook.stop(), rewrite: () => this.#rewrite(), reseed: () => this.#rewrite({ seed: anySeed() }), undo: () => this.#show(this.#notebook.undo(this.state.shown)), redo: () => this.#show(this.#notebook.redo(this.state.shown)) };
    const draw = ([key, run]) => [key, h("button", { class: ["continue", "stop"].includes(key) ? null : "plain", type: "button", dataset: { run: key }, onclick: run }, this.t(key))];
    this.buttons = Object.fromEntries(Object.entries(runs).map(draw));
    return h("div", { class: "run-buttons" }, Object.values(this.buttons));
  }

  /** Put the state into the fields. */
  #fill() {
    if (this.field.value !== this.state.prompt) this.field.value = this.state.prompt;
    this.decoding.show(this.#settings);
    this.colored.checked = this.state.colored;
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

  get #shown() {
    return this.#notebook.find(this.state.shown);
  }

  get #tokens() {
    return this.#notebook.tokensOf(this.state.shown);
  }

  // ---------------------------------------------------------------------------------------------- branches

  /** Show the prompt alone: it has changed, or the model has. The branches stay in the list. */
  #leaveBranch(changes, quiet = false) {
    this.#notebook.stop();
    if (this.state.shown) this.#notebook.leave(this.state.shown);
    this.set({ ...changes, shown: 0, at: -1 }, { quiet });
    this.#drawText();
    this.#drawBranches();
  }

  #go(id) {
    if (id === this.state.shown) return;
    this.#notebook.leave(this.state.shown);
    this.#show(id);
  }

  /** Show a branch with the prompt, model and settings that it was written with. */
  #show(id) {
    this.#notebook.stop();
    const branch = this.#notebook.find(id);
    const own = branch ? { model: branch.model, prompt: branch.prompt, ...branch.settings } : {};
    this.set({ ...own, shown: branch ? id : 0, at: -1 });
  }

  #continue() {
    if (!this.chosenOne() || this.#notebook.run) return undefined;
    if (this.#tokens.at(-1)?.isEnd) return put(this.said, this.t("has-ended"));
    return this.#write({ parent: this.#shown?.id ?? 0, keep: this.#tokens.length, chosen: null });
  }

  /** Write the shown branch anew, from where it begins, with the settings of now. */
  #rewrite(changes = {}) {
    this.set(changes, { quiet: true });
    const { parent = 0, keep = 0, chosen = null } = this.#shown ?? {};
    return this.#write({ parent, keep, chosen });
  }

  /** Go on from another token. */
  async #branchOff({ id, text, before, isEnd, isOwn }) {
    if (isOwn) return;
    if (isEnd) {
      put(this.said, this.t("is-end"));
      return;
    }
    const keep = this.state.at < 0 ? this.#tokens.length : this.state.at;
    const isPart = text.includes("\ufffd"); // of a character
    await this.#write({ parent: this.state.shown, keep, chosen: { id, text: isPart ? "" : text, nats: -Math.log(Math.max(before, 1e-30)) } });
    this.text.focusToken(keep);
  }

  /** Begin a branch, and have the model go on with it. */
  async #write(start) {
    this.#notebook.stop();
    const known = this.#notebook.branches;
    const branch = this.#notebook.add({ ...start, model: this.chosenOne().id, prompt: this.state.prompt, settings: this.#settings });
    if (known.includes(branch)) {
      this.#go(branch.id);
      return;
    }
    this.#notebook.leave(this.state.shown);
    const writing = this.#notebook.write(branch, (token) => this.text.add(token));
    this.set({ model: branch.model, branches: this.#notebook.recipes(), shown: branch.id, at: -1 }, { quiet: true });
    this.runNotice.clear();
    put(this.said, this.t("writing"));
    this.#fill();
    this.#drawText();
    const failure = await writing;
    const isGone = !this.#notebook.find(branch.id);
    this.set({ branches: this.#notebook.recipes(), ...(isGone && this.state.shown === branch.id ? { shown: branch.parent } : {}) }, { quiet: true });
    if (this.#notebook.run) return; // another one has begun
    put(this.said, this.#describeEnd(branch.own));
    if (failure) this.runNotice.fail(failure, () => (this.runNotice.clear(), this.#write(start)));
    await this.refresh();
  }

  /** A branch in the list whose model is gone is no reason to fail the page. */
  #excuse(branch, error) {
    if (error.name === "AbortError") throw error;
    branch.problem = error.message || this.t("not-saved");
  }

  // ---------------------------------------------------------------------------------------------- drawing

  #select(at) {
    this.set({ at: at === this.state.at ? -1 : at }, { quiet: true });
    this.text.select(this.state.at);
    this.#sliding.ask();
  }

  async #showDistribution(signal) {
    const tokens = this.#tokens;
    const at = this.state.at < tokens.length ? this.state.at : -1;
    if (this.#notebook.run && at < 0) return; // the end moves
    const effect = await post("/api/distribution", this.#question(tokens, at), { signal });
    this.distribution.show(effect, { model: this.chosenOne(), token: tokens[at] ?? null, choosable: !isSaved });
  }

  /** What to ask about the place of a token, or, −1, about what comes next. */
  #question(tokens, at) {
    const before = at < 0 ? tokens : tokens.slice(0, at);
    const chosen = at < 0 ? {} : { chosen: tokens[at].ids[0] };
    return { model: this.chosenOne().id, prompt: this.state.prompt, ids: before.flatMap((token) => token.ids), k: SHOWN, ...decodingOf(this.state), ...chosen };
  }

  #drawText() {
    const tokens = this.#tokens;
    const isLive = this.#notebook.run !== null;
    const { prompt, at, colored, shown } = this.state;
    const drawn = JSON.stringify([prompt, shown, tokens.length, colored, isLive]);
    if (drawn === this.#drawn) return this.text.select(at); // keeps the focus where it is
    this.#drawn = drawn;
    this.text.show({ prompt, tokens, selected: at, isColored: colored, isLive, label: this.t("text") });
    this.legend.hidden = !colored || !tokens.length;
    if (!tokens.length && !isLive) put(this.said, this.t("nothing-yet"));
    return undefined;
  }

  #drawButtons() {
    const isRunning = this.#notebook.run !== null;
    const { continue: go, stop, rewrite, reseed, undo, redo } = this.buttons;
    go.hidden = isRunning;
    stop.hidden = !isRunning;
    rewrite.disabled = isRunning || !this.#shown;
    reseed.disabled = isRunning || this.state.method === "greedy";
    undo.disabled = !this.#notebook.canUndo;
    redo.disabled = !this.#notebook.canRedo;
  }

  #drawBranches() {
    const { branches } = this.#notebook;
    const noteOf = ({ model, settings, problem }) => [model, describeSettings(settings), findModel(model) ? problem : this.t("no-model")].filter(Boolean).join(" · ");
    this.branchPart.hidden = !branches.length;
    this.list.show({ branches, shown: this.state.shown, noteOf });
    this.#drawButtons();
  }

  #describeEnd({ tokens, reason }) {
    if (!tokens.length) return "";
    const nats = tokens.reduce((sum, token) => sum + token.nats, 0);
    return this.t(reason === "end" ? "wrote-end" : "wrote", { count: tokens.length, bits: fixed(nats / Math.LN2 / tokens.length) });
  }
}
