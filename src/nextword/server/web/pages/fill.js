/* Fill: words for the blanks of a text. Models that see both sides fill every blank; those that read from left to right
   guess from the words before it, and weigh their guesses by the words after it. */

import { post } from "../core/api.js";
import { BLANK, fillBlank, makeBlank, segments, shares, split } from "../core/blanks.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { debounce, h, newId, put } from "../core/dom.js";
import { Latest } from "../core/latest.js";
import { fixed, percent } from "../core/numbers.js";
import { Page } from "../core/page.js";
import { redraw } from "../core/redraw.js";
import "../components/bars.js";
import "../components/cards.js";
import "../components/examples.js";
import "../components/model-picker.js";

const SHOWN = 8; // guesses of each blank
const CANDIDATES = 20; // of a left-to-right model, weighed by the words after the blank
const BEAM = { beam: 8, n_best: 5, max_tokens: 24 }; // for blanks of any length
const MOST_WORDS = 400; // that can be hidden by a click
const NEAR = { before: 4000, after: 400 }; // characters around a blank that left-to-right models read
const MOST_BLANKS = 6; // that left-to-right models fill one after the other
const EXAMPLES = [
  { text: `In the beginning God created the ${BLANK} and the ${BLANK}.`, hidden: ["heavens", "earth"] },
  { text: `For God so loved the ${BLANK}, that he gave his only born Son.`, hidden: ["world"] },
  { text: `The fear of ${BLANK} is the beginning of wisdom.`, hidden: ["Yahweh"] },
  { text: `He went up to the ${BLANK} and sat down, and his ${BLANK} came to him.`, hidden: ["mountain", "disciples"] },
];

export default class FillPage extends Page {
  static need = ["fill", "infill", "next"];
  static defaults = { models: [], text: EXAMPLES[0].text, hidden: [] };

  #typing = new Latest(() => this.refresh());
  #history = [];
  #drawStripLater = debounce(150, () => this.#drawStrip());

  build() {
    const id = newId("text");
    this.field = h("textarea", { id, dir: "auto", rows: 3, spellcheck: "false", oninput: () => this.#type(), "aria-describedby": `${id}-help` });
    this.field.value = this.state.text;
    this.picker = h("nw-model-picker", { onpick: (event) => this.set({ models: event.detail }) });
    this.strip = h("p", { class: "text strip", dir: "auto", onclick: (event) => this.#toggleWord(event), onkeydown: (event) => this.#pressWord(event) });
    this.undo = h("button", { class: "plain", type: "button", onclick: () => this.#undo() }, this.t("undo"));
    this.cards = h("nw-cards");
    this.about = h("div", { class: "about note" });
    const examples = h("nw-examples", { ontry: (event) => this.#change(event.detail.text, []) });
    examples.show(EXAMPLES.map((value) => ({ label: value.text, value })));
    // A press of the button must not move the cursor out of the field
    const insert = h("button", { class: "plain", type: "button", onmousedown: (event) => event.preventDefault(), onclick: () => this.#insert() }, this.t("insert"));
    this.#drawStrip();
    return [
      this.picker,
      h("div", { class: "field" }, h("label", { for: id }, this.t("label")), this.field, h("p", { id: `${id}-help`, class: "note" }, this.t("help"))),
      h("p", { class: "actions" }, insert, this.undo),
      examples,
      h("div", { class: "case" }, h("p", { class: "verdict note" }, this.t("strip")), this.strip),
      this.cards,
      this.about,
    ];
  }

  async update(signal) {
    const models = this.#models();
    this.picker.show({ need: FillPage.need, chosen: models.map((model) => model.id) });
    this.undo.disabled = !this.#history.length;
    const parts = split(this.state.text);
    this.#explain(models);
    if (parts.length === 1) return this.cards.replaceChildren(h("p", { class: "note" }, this.t("no-blank")));
    return this.cards.show(models, (model, body) => this.#fill(model, parts, body, signal));
  }

  requests() {
    const text = this.state.text;
    return this.#models().map((model) => {
      const path = quotePython(`RUNS/${model.id}`);
      if (model.can("fill")) {
        const python = `nextword.load(${path}).fill(${quotePython(text)}, k=${SHOWN})`;
        return { path: "/api/fill", body: { model: model.id, text, k: SHOWN }, python, cli: `nextword next ${quoteShell(`RUNS/${model.id}`)} ${quoteShell(text)} -k ${SHOWN}` };
      }
      if (model.can("infill")) {
        const python = `nextword.load(${path}).infill(${quotePython(text)}, nextword.Beam(${BEAM.beam}), n=${BEAM.n_best})`;
        return { path: "/api/generate", body: { model: model.id, prompt: text, ...BEAM }, python, cli: `nextword generate ${quoteShell(`RUNS/${model.id}`)} ${quoteShell(text)} --beam ${BEAM.beam} --n-best ${BEAM.n_best}` };
      }
      const left = split(text)[0].trimEnd();
      return { path: "/api/next", body: { model: model.id, text: left, k: CANDIDATES }, python: `nextword.load(${path}).next(${quotePython(left)}, k=${CANDIDATES})`, cli: `nextword next ${quoteShell(`RUNS/${model.id}`)} ${quoteShell(left)} -k ${CANDIDATES}` };
    });
  }

  /** The hidden words, one for each blank and empty if it is unknown: those that were clicked, or those of an example. */
  get #hidden() {
    const { text, hidden } = this.state;
    const known = hidden.length ? hidden : (EXAMPLES.find((example) => example.text === text)?.hidden ?? []);
    return Array.from({ length: split(text).length - 1 }, (_, i) => known[i] ?? "");
  }

  /** The chosen models, those that see both sides first; if none is chosen, one of each way to read. */
  #models() {
    const some = this.chosen(99);
    const ways = [(model) => model.isMasked, (model) => model.can("infill"), (model) => !model.can("fill") && !model.can("infill")];
    if (this.state.models.length) return some.sort((a, b) => ways.findIndex((fits) => fits(a)) - ways.findIndex((fits) => fits(b)));
    const first = ways.map((fits) => some.find(fits)).filter(Boolean);
    return [...first, ...some.filter((model) => !first.includes(model))].slice(0, 3);
  }

  // ---------------------------------------------------------------------------------------------- asking

  async #fill(model, parts, body, signal) {
    const blocks = [];
    if (model.can("fill")) {
      const { blanks } = await post("/api/fill", { model: model.id, text: this.state.text, k: SHOWN }, { signal });
      blocks.push(...blanks.map((guesses, index) => this.#block(model, index, guesses)));
    } else if (!model.can("infill")) {
      const blanks = await this.#readFromLeft(model, parts, signal);
      blocks.push(...blanks.map((guesses, index) => this.#block(model, index, guesses)));
      if (parts.length - 1 > blanks.length) blocks.push(h("p", { class: "note" }, this.t("first-blanks", { count: MOST_BLANKS })));
    }
    if (model.can("infill")) {
      const { best } = await post("/api/generate", { model: model.id, prompt: this.state.text, ...BEAM }, { signal });
      blocks.push(this.#spans(best));
    }
    redraw(body, () => put(body, blocks));
  }

  /** For each blank: the guesses for the next word, and how likely each makes the words up to the next blank. Earlier
   *  blanks hold the model's own first guess. */
  async #readFromLeft(model, parts, signal) {
    const blanks = [];
    let left = parts[0];
    for (const part of parts.slice(1, 1 + MOST_BLANKS)) {
      left = left.slice(-NEAR.before);
      const right = part.slice(0, NEAR.after);
      const { guesses } = await post("/api/next", { model: model.id, text: left.trimEnd(), k: CANDIDATES }, { signal });
      const words = [...new Set(guesses.map((guess) => guess.text.trim()))].filter(Boolean);
      const before = shares(words.map((word) => -Math.log(guesses.find((guess) => guess.text.trim() === word).probability)));
      let after = before;
      if (right.trim() && words.length) {
        const { scores } = await post("/api/score", { model: model.id, texts: words.map((word) => (left + word + right).trimEnd()) }, { signal });
        after = shares(scores.map((score) => score.nats));
      }
      const rows = words.map((text, i) => ({ text, probability: after[i], before: before[i] })).sort((a, b) => b.probability - a.probability);
      blanks.push(rows.slice(0, SHOWN));
      left += (rows[0]?.text ?? "") + part;
    }
    return blanks;
  }

  // ---------------------------------------------------------------------------------------------- drawing

  #block(model, index, guesses) {
    const hidden = this.#hidden[index];
    const rank = hidden ? guesses.findIndex((guess) => guess.text.trim().toLowerCase() === hidden.toLowerCase()) : -1;
    const rows = guesses.map((guess, i) => ({ text: guess.text.trim(), probability: guess.probability, before: guess.before, isOwn: i === rank, note: i === rank ? `✓ ${percent(guess.probability)}` : undefined }));
    const bars = h("nw-bars", { onchoose: (event) => this.#choose(index, event.detail.text) });
    bars.show(rows, { label: this.t("bars", { model: model.id, number: index + 1 }), color: model.index, choosable: true });
    const verdict = rank >= 0 ? this.t("rank", { word: hidden, rank: rank + 1 }) : this.t("no-rank", { word: hidden, count: rows.length });
    return h("div", { class: "blank-block" }, h("h3", {}, h("span", { class: "blank" }, index + 1), hidden ? h("span", { class: "note" }, verdict) : null), bars);
  }

  /** Fillings of any length: the whole text with each of the best. */
  #spans(best) {
    const row = (candidate) => {
      const marked = split(this.state.text).map((part, i) => [part, candidate.blanks[i] === undefined ? (i < split(this.state.text).length - 1 ? BLANK : null) : h("mark", {}, candidate.blanks[i].trim() || "∅")]);
      const number = h("span", { class: "number" }, `${fixed(-candidate.nats, 1)}`, candidate.complete ? null : ` · ${this.t("cut")}`);
      return h("li", {}, h("button", { class: "span-row", type: "button", onclick: () => this.#change(candidate.text, []) }, h("span", { dir: "auto" }, marked), number));
    };
    return h("div", { class: "blank-block" }, h("h3", {}, this.t("spans")), h("ol", { class: "span-rows" }, best.map(row)), h("p", { class: "note" }, this.t("spans-note")));
  }

  #drawStrip() {
    if (!this.strip) return;
    const found = segments(this.state.text);
    const known = this.#hidden;
    if (found.length > 2 * MOST_WORDS) return put(this.strip, h("span", { class: "note" }, this.t("too-long")));
    return put(
      this.strip,
      found.map(({ kind, text, start, index }) => {
        if (kind === "rest") return text;
        if (kind === "word") return h("span", { role: "button", tabindex: 0, class: "hide", dataset: { start, end: start + text.length } }, text);
        const hidden = known[index];
        const label = hidden ? this.t("show-word", { number: index + 1, word: hidden }) : this.t("blank", { number: index + 1 });
        return h("span", { role: "button", tabindex: 0, class: "blank", dataset: { blank: index }, "aria-disabled": hidden ? null : "true", "aria-label": label, title: label }, index + 1);
      }),
    );
  }

  #explain(models) {
    const lines = [this.t("legend")];
    if (models.some((model) => model.can("fill") && model.isMasked)) lines.push(this.t("about:masked"));
    if (models.some((model) => !model.can("fill") && !model.can("infill"))) lines.push(this.t("about:left", { count: CANDIDATES, ...NEAR }));
    if (models.some((model) => model.can("infill"))) lines.push(this.t("about:infill"));
    put(this.about, h("ul", {}, lines.map((line) => h("li", {}, line))));
  }

  // ---------------------------------------------------------------------------------------------- changing the text

  #type() {
    const text = this.field.value;
    const isAligned = split(text).length === split(this.state.text).length;
    this.set({ text, hidden: isAligned ? this.#hidden : [] }, { quiet: true });
    this.#typing.ask();
    this.#drawStripLater();
  }

  /** A blank instead of the selection, or at the cursor. */
  #insert() {
    const { selectionStart: start, selectionEnd: end, value } = this.field;
    this.#hide(value, start, end);
    this.field.focus();
  }

  #toggleWord(event) {
    const { start, end, blank } = event.target.closest("[role=button]:not([aria-disabled])")?.dataset ?? {};
    if (start !== undefined) this.#hide(this.state.text, Number(start), Number(end));
    else if (blank !== undefined) this.#choose(Number(blank), this.#hidden[blank]);
    else return;
    this.strip.querySelector(start === undefined ? "[role=button]" : ".blank")?.focus();
  }

  /** Words are no buttons but text, because the order of words from right to left must be that of a text. */
  #pressWord(event) {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    this.#toggleWord(event);
  }

  #hide(value, start, end) {
    const { text, index, word } = makeBlank(value, start, end);
    this.#change(text, word.includes(BLANK) ? [] : this.#hidden.toSpliced(index, 0, word));
  }

  #choose(index, word) {
    this.#change(fillBlank(this.state.text, index, word), this.#hidden.toSpliced(index, 1));
  }

  #change(text, hidden) {
    this.#history.push({ text: this.state.text, hidden: this.state.hidden });
    this.#show(text, hidden);
  }

  #undo() {
    const last = this.#history.pop();
    if (last) this.#show(last.text, last.hidden);
  }

  #show(text, hidden) {
    this.field.value = text;
    this.set({ text, hidden }, { quiet: true });
    this.#drawStrip();
    this.#typing.ask();
  }
}
