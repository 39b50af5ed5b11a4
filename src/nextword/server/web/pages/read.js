/* Read: how much each token of a text surprises a model; for one model, several, or as the difference of two. */

import { isSaved } from "../core/api.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { debounce, h, keep, newId, put } from "../core/dom.js";
import { cellAt, countUnits, differences, obstacle, sumOf } from "../core/heat.js";
import { t } from "../core/i18n.js";
import { divide, diverse, dotClass } from "../core/models.js";
import { count, fixed } from "../core/numbers.js";
import { Page } from "../core/page.js";
import { ALTERNATIVES, Passage, Reading, beginRecord } from "../core/reading.js";
import { visible } from "../core/text.js";
import { gapTable, totalsTable } from "../components/heat-tables.js";
import { gapClass, gapLegend, heatLegend, rankClass, surprisalClass } from "../components/heat-text.js";
import "../components/choice.js";
import "../components/examples.js";
import "../components/model-picker.js";
import "../components/text-file.js";
import "../components/token-detail.js";

const EXAMPLES = [
  "In the beginning, God created the heavens and the earth. The earth was formless and empty. Darkness was on the surface of the deep and God's Spirit was hovering over the surface of the waters.\nGod said, \"Let there be light,\" and there was light.",
  "Yahweh is my shepherd: I shall lack nothing. He makes me lie down in green pastures. He leads me beside still refrigerators.",
  "起初，神创造天地。地是空虚混沌，渊面黑暗。",
];
const MOST = 400_000; // characters of a text
const WORKERS = 2; // readings at a time
const LINK = 6000; // characters of a link to the page Write
const WIDE = "(min-width: 861px)"; // where the detail does not cover the text
const FATAL = ["saved", "unreachable"]; // errors that concern all models

export default class ReadPage extends Page {
  static need = "score";
  static defaults = { models: [], text: EXAMPLES[0], source: "", show: "one", by: "rank", model: "", other: "" };

  passage = new Passage("");
  readings = new Map(); // model id → Reading, of this passage
  place = -1; // of the chosen token in the text
  isKept = false; // the pointer does not choose another one
  #heats = new Map(); // model id, "one" or "gap" → {section, heat, cells}
  #gaps = {}; // the last differences
  #isDrawn = true;

  build() {
    const id = newId("text");
    const read = debounce(300, () => this.refresh());
    this.field = h("textarea", { id, dir: "auto", rows: 5, spellcheck: "false", maxlength: MOST, oninput: () => { this.set({ text: this.field.value }, { quiet: true }); this.#showSize(); read(); } });
    this.field.value = this.state.text;
    this.size = h("span", { class: "note" });
    const file = h("nw-text-file", { ontext: (event) => this.#use(event.detail) });
    file.show({ field: this.field, most: MOST });
    const examples = h("nw-examples", { ontry: (event) => this.#use(event.detail) });
    examples.show(EXAMPLES.map((value) => ({ value })));
    this.sourceField = h("input", { type: "text", id: `${id}-source`, dir: "auto", oninput: () => { this.set({ source: this.sourceField.value }, { quiet: true }); read(); } });
    this.sourceField.value = this.state.source;
    this.sourceLabel = h("label", { for: `${id}-source` });
    this.sourceBox = h("div", { class: "field", hidden: true }, this.sourceLabel, this.sourceField, h("p", { class: "note" }, this.t("source-help")));
    this.picker = h("nw-model-picker", { onpick: (event) => this.set({ models: event.detail }) });
    this.showChoice = h("nw-choice", { onpick: (event) => this.#choose({ show: event.detail }) });
    this.byChoice = h("nw-choice", { onpick: (event) => this.#choose({ by: event.detail }) });
    this.tabs = h("nw-choice", { onpick: (event) => this.#choose({ model: event.detail }) });
    this.others = h("nw-choice", { onpick: (event) => this.#choose({ other: event.detail }) });
    this.legend = h("div");
    this.heats = h("div", { class: "heats", ontoken: (event) => this.#point(event) });
    this.slider = h("input", { type: "range", min: 0, value: 0, oninput: () => this.#step(Number(this.slider.value)) });
    this.sliderBox = h("label", { class: "field slider" }, h("span", {}, this.t("token")), this.slider);
    this.expected = h("div", { onchoose: (event) => this.#continue(event.detail.text) });
    this.detail = h("aside", { class: "card detail", "aria-label": this.t("expected") }, this.sliderBox, this.expected);
    this.totals = h("section", {});
    this.onkeydown = (event) => {
      if (event.key === "Escape" && this.isKept) this.#keep(false);
    };
    this.#heats.clear();
    this.#showSize();
    return [
      this.picker,
      h("div", { class: "field" }, h("label", { for: id }, this.t("label")), this.field, h("p", { class: "note under" }, this.size, file)),
      examples,
      this.sourceBox,
      h("div", { class: "controls" }, this.showChoice, this.byChoice),
      h("div", { class: "controls" }, this.tabs, this.others),
      this.legend,
      h("div", { class: "reader" }, this.heats, this.detail),
      this.totals,
    ];
  }

  /** Those that are chosen; without a choice, three that need no source. */
  models() {
    if (this.state.models.length) return this.chosen();
    const { able } = divide(ReadPage.need);
    const alone = able.filter((model) => !model.isSeq2seq);
    return diverse(alone.length ? alone : able, 3);
  }

  async update(signal) {
    const models = this.models();
    this.picker.show({ need: ReadPage.need, chosen: models.map((model) => model.id) });
    const sequence = models.filter((model) => model.isSeq2seq);
    this.sourceBox.hidden = !sequence.length;
    put(this.sourceLabel, this.t("source", { models: sequence.map((model) => model.id).join(t("comma")) }));
    if (this.passage.text !== this.state.text) {
      this.passage = new Passage(this.state.text);
      this.readings.clear();
      this.place = -1;
      this.isKept = false;
    }
    beginRecord();
    this.#keepReadings(models);
    this.draw();
    if (this.passage.text.trim()) await this.#read(signal);
  }

  /** A reading for each model; those of the same text and source are kept. */
  #keepReadings(models) {
    const { source } = this.state;
    this.readings = new Map(
      models.map((model) => {
        const own = model.isSeq2seq ? source : null;
        const old = this.readings.get(model.id);
        if (old && old.source === own && !old.error) old.remember();
        return [model.id, old && old.source === own && !old.error ? old : new Reading(model, this.passage, own)];
      }),
    );
  }

  /** Read what is not read yet, part by part, and draw each part. */
  async #read(signal) {
    this.passage.findWords().then(() => this.#drawSoon());
    const work = async () => {
      for (let reading = this.#next(); reading; reading = this.#next()) {
        const step = reading.step(signal);
        this.#drawSoon();
        try {
          await step;
        } catch (error) {
          if (!error.status || error.status === 401 || FATAL.includes(error.code)) throw error;
        } finally {
          this.#drawSoon();
        }
      }
    };
    const results = await Promise.allSettled(Array.from({ length: WORKERS }, work));
    this.draw();
    const failed = results.find((result) => result.status === "rejected");
    if (!failed) return;
    this.#drawSoon(); // when the page is no longer busy, a reading that was cancelled can go on
    throw failed.reason;
  }

  /** The reading to go on with: that which is looked at, then likelihoods, then the one that has got least far. */
  #next() {
    const waiting = [...this.readings.values()].filter((each) => !each.isComplete && !each.isBusy && !each.error && !this.#lacksSource(each));
    const cost = (each) => (each.model === this.active && this.state.show === "one" ? -1e9 : 0) + (each.isPseudo ? 1e6 : 0) + each.done;
    return waiting.sort((a, b) => cost(a) - cost(b))[0];
  }

  #lacksSource(reading) {
    return reading.source !== null && !reading.source.trim();
  }

  get active() {
    const models = [...this.readings.values()].map((reading) => reading.model);
    return models.find((model) => model.id === this.state.model) ?? models[0];
  }

  get other() {
    const models = [...this.readings.values()].map((reading) => reading.model).filter((model) => model !== this.active);
    const able = models.filter((model) => !obstacle(this.readings.get(this.active.id), this.readings.get(model.id)));
    return models.find((model) => model.id === this.state.other) ?? able[0] ?? models[0];
  }

  // ---------------------------------------------------------------------------------------------- what is chosen

  #use(text) {
    this.field.value = text;
    this.#showSize();
    this.set({ text });
  }

  #choose(change) {
    this.set(change, { quiet: true });
    this.draw();
  }

  #point({ target, detail: { index, isClick } }) {
    if (this.isKept && !isClick) return;
    const place = this.#placeOf([...this.#heats.values()].find((each) => each.heat === target).cells[index]);
    if (isClick) this.isKept = !(this.isKept && place === this.place);
    this.place = place;
    this.drawDetail();
  }

  /** The first place of a cell that is no space: other tokenizers may have the space in another token. */
  #placeOf(cell) {
    const own = this.passage.text.slice(cell.start, cell.end);
    return cell.start + (own.trim() ? own.length - own.trimStart().length : 0);
  }

  /** The place that surprised the model most, to begin with. */
  #hardest() {
    const { cells } = this.main;
    if (!cells.length || this.state.show === "difference") return -1;
    return this.#placeOf(cells.reduce((a, b) => (b.bits > a.bits ? b : a)));
  }

  #step(index) {
    this.place = this.#placeOf(this.main.cells[index]);
    this.isKept = true;
    this.drawDetail({ scroll: true });
  }

  #keep(isKept) {
    this.isKept = isKept;
    this.drawDetail();
  }

  /** Write on from the chosen place with another word. */
  #continue(word) {
    location.hash = this.#link(word);
  }

  #link(word = "") {
    const { cells } = this.main;
    const prefix = this.passage.text.slice(0, cells[cellAt(cells, this.place)].start);
    let text = prefix + (/\s$|^$/.test(prefix) ? word.trimStart() : word);
    while (encodeURIComponent(text).length > LINK) text = text.slice(Math.ceil(text.length / 8));
    return `#/write?${new URLSearchParams({ model: this.active.id, prompt: text })}`;
  }

  // ---------------------------------------------------------------------------------------------- drawing

  /** Draw at the next frame, however often it is asked for. */
  #drawSoon() {
    if (!this.#isDrawn) return;
    this.#isDrawn = false;
    requestAnimationFrame(() => this.isConnected && this.draw());
  }

  draw() {
    this.#isDrawn = true;
    const { show, by } = this.state;
    const readings = [...this.readings.values()];
    const isEmpty = !this.passage.text.trim();
    const option = (reading) => ({ value: reading.model.id, label: reading.model.id, color: reading.model.index, note: this.#progress(reading) });
    this.showChoice.show({ label: this.t("show"), options: ["one", "side", "difference"].map((value) => ({ value, label: this.t(value) })), value: show });
    this.byChoice.show({ label: this.t("by"), options: ["rank", "surprisal"].map((value) => ({ value, label: this.t(value) })), value: by });
    this.byChoice.hidden = show === "difference";
    this.tabs.hidden = show === "side" || readings.length < 2;
    this.others.hidden = show !== "difference" || readings.length < 2;
    this.tabs.show({ label: this.t(show === "difference" ? "first" : "model"), options: readings.map(option), value: this.active?.id });
    this.others.show({ label: this.t("second"), options: readings.filter((each) => each.model !== this.active).map(option), value: this.other?.id });
    const views = isEmpty || !readings.length ? [] : show === "difference" ? [this.#gapView()] : (show === "one" ? [this.readings.get(this.active.id)] : readings).map((reading) => this.#view(reading, by));
    put(this.legend, isEmpty ? null : show === "difference" ? views[0]?.legend : heatLegend(by));
    this.main = views.find((view) => view.cells.length) ?? { cells: [] };
    if (this.place < 0 && readings.every((each) => each.isComplete || each.error || this.#lacksSource(each)) && matchMedia(WIDE).matches) this.place = this.#hardest();
    this.heats.classList.toggle("columns", show === "side");
    this.classList.toggle("beside", show === "side");
    keep(this.heats, isEmpty ? [h("p", { class: "note" }, this.t("empty"))] : views.map((view) => this.#section(view)));
    const rivals = readings.filter((each) => !each.isPseudo && each.isLossless && each.source === null && !each.error);
    const best = rivals.every((each) => each.isComplete) ? rivals.map((each) => ({ id: each.model.id, bits: each.totals.bitsPerByte })).sort((a, b) => a.bits - b.bits) : [];
    const table = totalsTable(readings);
    put(this.totals, views[0]?.table ?? null, table && [h("h2", {}, this.t("totals")), best.length > 1 ? h("p", { class: "verdict" }, this.t("best", { model: best[0].id, bits: fixed(best[0].bits, 3) })) : null, table, h("p", { class: "note scale" }, this.t("seen"))]);
    this.drawDetail();
  }

  #progress(reading) {
    if (reading.error) return "⚠";
    if (reading.isComplete || !reading.parts) return reading.isBusy ? "…" : "";
    return `${Math.round((100 * reading.end) / this.passage.text.length)} %`;
  }

  /** What is shown of one reading. */
  #view(reading, by) {
    const { model, cells, pending } = reading;
    const classOf = by === "rank" ? rankClass : surprisalClass;
    return { key: this.state.show === "one" ? "one" : model.id, title: this.state.show === "one" ? null : model, cells, pending, classOf, label: this.t("heat", { model: model.id }), notes: this.#notes(reading) };
  }

  /** What is shown of the difference of two. */
  #gapView() {
    const [first, second] = [this.active, this.other].map((model) => model && this.readings.get(model.id));
    const empty = { key: "gap", title: null, cells: [], pending: null, classOf: gapClass, label: "", notes: [] };
    if (!second) return { ...empty, notes: [h("p", { class: "note" }, this.t("need-two"))] };
    const why = obstacle(first, second);
    if (why) return { ...empty, notes: [h("p", { class: "note" }, this.t(`obstacle:${why}`, { model: (first.isPseudo ? first : second).model.id }))] };
    const cells = this.#differences(first, second);
    const label = this.t("heat-gap", { first: first.model.id, second: second.model.id });
    const isWhole = first.isComplete && second.isComplete;
    return { ...empty, cells, label, pending: second.pending ?? first.pending, notes: [this.#notes(first), this.#notes(second)], legend: gapLegend(second.model.id, first.model.id), table: isWhole ? gapTable(cells, first.model, second.model) : null };
  }

  /** The words of both, computed once for each state of the two readings. */
  #differences(first, second) {
    const words = this.passage.words ?? [];
    const key = [first.model.id, second.model.id, first.end, second.end, words.length].join();
    if (this.#gaps.key !== key || this.#gaps.passage !== this.passage) this.#gaps = { key, passage: this.passage, cells: differences(words, this.passage.map, first.bits, second.bits) };
    return this.#gaps.cells;
  }

  /** How a model read: errors, progress, what it saw. */
  #notes(reading) {
    const { model, parts, error } = reading;
    const note = (text, more) => h("p", { class: "note" }, text, " ", more);
    if (error) return h("p", { class: "failed", role: "alert" }, error.message, " ", h("button", { class: "plain", type: "button", onclick: () => this.refresh() }, this.t("resume")));
    if (this.#lacksSource(reading)) return note(this.t("no-source"));
    const values = { model: model.id, parts: parts?.length, context: count(reading.context), kind: model.tokenizer?.kind ?? "" };
    const isStopped = !reading.isComplete && !this.hasAttribute("aria-busy");
    return [
      isStopped ? note(this.t("stopped", { model: model.id, share: Math.floor((100 * reading.end) / this.passage.text.length) }), h("button", { class: "plain", type: "button", onclick: () => this.refresh() }, this.t("resume"))) : null,
      !reading.isComplete && reading.isBusy ? h("p", { class: "note working" }, h("span", { class: "spinner", "aria-hidden": "true" }), `${model.id}: `, parts ? this.t("reading", { part: reading.done + 1, parts: parts.length }) : this.t("begins"), parts && h("progress", { max: parts.length, value: reading.done, "aria-label": model.id })) : null,
      parts?.length > 1 ? note(this.t(reading.context ? "parts-note" : "parts-alone", values)) : null,
      reading.isPseudo ? note(this.t("pseudo", values)) : null,
      reading.done && !reading.isLossless && !reading.isPseudo ? note(this.t("lossy", values)) : null,
    ];
  }

  #section(view) {
    let own = this.#heats.get(view.key);
    if (!own) {
      own = { heat: h("nw-heat-text"), notes: h("div", { class: "notes" }), title: h("h3") };
      own.section = h("section", { class: "card", dataset: { heat: view.key } }, own.title, own.heat, own.notes);
      this.#heats.set(view.key, own);
    }
    own.cells = view.cells;
    own.title.hidden = !view.title;
    if (view.title) put(own.title, h("span", { class: dotClass(view.title.index), "aria-hidden": "true" }), view.title.id, h("small", {}, this.#progress(this.readings.get(view.title.id))));
    own.heat.classList.toggle("gaps", view.key === "gap");
    own.heat.show(this.passage.text, view.cells, view);
    put(own.notes, view.notes);
    return own.section;
  }

  /** The chosen token in all texts, the slider, and what the models expected there. */
  drawDetail({ scroll = false } = {}) {
    const { cells } = this.main;
    this.sliderBox.hidden = !cells.length;
    this.slider.max = Math.max(0, cells.length - 1);
    const index = this.place < 0 ? -1 : cellAt(cells, this.place);
    for (const own of this.#heats.values()) own.heat.choose(this.place < 0 ? -1 : cellAt(own.cells, this.place), { scroll });
    this.detail.classList.toggle("has-token", index >= 0);
    if (index < 0) return put(this.expected, h("p", { class: "note" }, cells.length ? this.t("detail-empty") : ""));
    this.slider.value = index;
    const readings = (this.state.show === "one" ? [this.readings.get(this.active.id)] : this.state.show === "side" ? [...this.readings.values()] : [this.active, this.other].map((model) => this.readings.get(model.id))).filter((each) => each.cells.length);
    const parts = readings.map((reading) => {
      const detail = h("nw-token-detail");
      const cell = reading.cells[cellAt(reading.cells, this.place)];
      detail.show(cell, { model: reading.model, isPseudo: reading.isPseudo, choosable: !isSaved, text: this.passage.text.slice(cell.start, cell.end) });
      return h("section", {}, h("h3", {}, h("span", { class: dotClass(reading.model.index), "aria-hidden": "true" }), reading.model.id), detail);
    });
    const text = visible(this.passage.text.slice(cells[index].start, cells[index].end));
    this.slider.setAttribute("aria-valuetext", this.t("token-value", { text, facts: parts.map((part) => [...part.querySelectorAll("h3, .facts span")].map((each) => each.textContent).join(", ")).join("; ") }));
    return put(this.expected, h("div", { class: "columns" }, parts), this.#wordTable(), isSaved ? null : h("p", { class: "note" }, h("a", { class: "write", href: this.#link() }, this.t("write"))), this.isKept ? h("p", { class: "note" }, this.t("kept")) : null);
  }

  /** What the whole word costs each model, whatever its tokens are. */
  #wordTable() {
    const word = this.passage.words?.[cellAt(this.passage.words, this.place)];
    const { bytes } = this.passage.map;
    if (!word || this.readings.size < 2) return null;
    const rows = [...this.readings.values()].map((reading) => ({ reading, bits: sumOf(reading.bits, bytes[word.start], bytes[word.end]) })).filter((row) => !Number.isNaN(row.bits));
    const title = this.t("word-bits", { word: visible(word.text.trim()) });
    return h("table", { class: "word-bits" }, h("caption", {}, title), h("thead", {}, h("tr", {}, h("th", { colspan: 2, scope: "colgroup" }, title))), h("tbody", {}, rows.map(({ reading, bits }) => h("tr", {}, h("th", { scope: "row" }, reading.model.id, reading.isPseudo ? " (pseudo)" : ""), h("td", { class: "n" }, fixed(Number.isFinite(bits) ? bits : null))))));
  }

  #showSize() {
    const text = this.field.value;
    const { count: units, isUnspaced } = countUnits(text, new TextEncoder().encode(text).length);
    put(this.size, this.t(isUnspaced ? "size-unspaced" : "size", { words: count(units), characters: count([...text].length) }));
  }

  requests() {
    return [...this.readings.values()].flatMap((reading) =>
      reading.bodies.map((body) => {
        const run = `RUNS/${body.model}`;
        const source = body.source === undefined ? "" : `, source=${quotePython(body.source)}`;
        return {
          path: "/api/explain",
          body,
          python: `nextword.lens.explain_text(nextword.load(${quotePython(run)}), ${quotePython(body.text)}${source}, k=${ALTERNATIVES})`,
          cli: body.source === undefined ? `printf %s ${quoteShell(body.text)} > text.txt && nextword evaluate ${quoteShell(run)} --data text.txt --explain` : null,
        };
      }),
    );
  }
}
