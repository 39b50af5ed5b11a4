/* Attention: all heads small, one of them large, and the text as the looked-at word sees it. */

import { post } from "../../core/api.js";
import { h, put } from "../../core/dom.js";
import { labelsOf, patternOf, strongest } from "../../core/inside.js";
import { fixed, percent } from "../../core/numbers.js";
import { paintCells } from "../../components/matrix.js";
import "../../components/bars.js";
import "../../components/choice.js";
import { lazyDetails } from "../../components/lazy-details.js";
import "../../components/token-line.js";

const MOST_THUMBS = 400; // heads that are drawn small
const SHARPEN = 0.6; // exponent: weights of a few percent stay visible in a small map

export default class AttentionView {
  static explain = "attention";

  constructor(page) {
    this.page = page;
    this.kinds = h("nw-choice", { onpick: (event) => this.#choose({ kind: event.detail, row: -1, layer: 0, head: 0 }) });
    this.heads = h("div", { class: "attention-heads", onclick: (event) => this.#pickHead(event) });
    this.title = h("h3", {});
    this.lines = h("div", {});
    this.list = h("div", { class: "attended", "aria-live": "polite" });
    this.matrix = h("nw-matrix", { oncell: (event) => this.#cell(event.detail) });
    this.readout = h("p", { class: "note readout", role: "status" });
    this.table = lazyDetails(page.t("all-rows"), () => this.#tabulate());
    this.nodes = [
      this.kinds,
      h("div", { class: "attention-top" }, h("div", {}, h("h3", {}, page.t("heads")), h("p", { class: "note" }, page.t("heads-note")), this.heads), h("div", { class: "case" }, this.title, this.lines, this.list)),
      h("h3", {}, page.t("map")),
      h("p", { class: "note" }, page.t("map-note")),
      this.matrix,
      this.readout,
      this.table,
    ];
  }

  get body() {
    return { model: this.page.model.id, text: this.page.text, ...(this.page.source === undefined ? {} : { source: this.page.source }) };
  }

  async update(signal) {
    const answer = await this.#ask(signal);
    this.maps = answer.maps;
    this.answer = answer;
    this.#draw();
  }

  /** All heads; if these are too many numbers, the chosen one alone. */
  async #ask(signal) {
    try {
      const answer = await post("/api/attention", this.body, { signal });
      this.only = null;
      return answer;
    } catch (error) {
      if (error.status !== 400 || !/choose layers/.test(error.message)) throw error;
      const { layer, head } = this.page.state;
      const answer = await post("/api/attention", { ...this.body, layers: [layer || -1], heads: [head || -1] }, { signal });
      this.only = error.message;
      return answer;
    }
  }

  #draw() {
    const { state } = this.page;
    const map = this.maps.find((each) => each.kind === state.kind) ?? this.maps.at(-1);
    this.map = map;
    this.kinds.hidden = this.maps.length < 2;
    this.kinds.show({ label: this.page.t("kind"), options: this.maps.map((each) => ({ value: each.kind, label: this.page.t(`kind:${each.kind}`) })), value: map.kind });
    this.isSquare = same(map.rows, map.columns);
    this.rowNames = labelsOf(this.#textOf(true), map.rows);
    this.columnNames = labelsOf(this.#textOf(false), map.columns);
    this.patterns = map.weights.map((layer) => layer.map((weights) => patternOf(weights, { isSquare: this.isSquare })));
    this.at = this.#chosenHead();
    this.weights = map.weights[this.at.layer][this.at.head];
    this.#drawHeads();
    this.#drawLines();
    const [width, labels] = [this.page.width, 110];
    const cell = Math.max(13, Math.min(24, Math.floor((width - labels) / map.columns.length)));
    this.matrix.show({ rows: this.rowNames, columns: this.columnNames, valueAt: (row, column) => this.weights[row][column] ** SHARPEN, size: { width: cell, height: Math.max(15, cell) }, label: this.page.t("map-label", { layer: map.layers[this.at.layer], head: map.heads[this.at.head] }) });
    const row = state.row >= 0 && state.row < map.rows.length ? state.row : this.#telling();
    this.#look(row, true);
    this.table.redraw();
  }

  /** The head of the state, or the one of the last layer that looks at the fewest words. */
  #chosenHead() {
    const { state } = this.page;
    const layer = this.map.layers.indexOf(state.layer);
    const head = this.map.heads.indexOf(state.head);
    if (layer >= 0 && head >= 0) return { layer, head };
    const last = this.map.layers.length - 1;
    const spread = this.map.weights[last].map((weights) => patternOf(weights, { least: 2 }).share);
    return { layer: last, head: spread.indexOf(Math.min(...spread)) };
  }

  /** A row to begin with: the one of the later half whose strongest weight on another word is the largest. */
  #telling() {
    const most = (row) => Math.max(...this.weights[row].filter((_, column) => !(this.isSquare && (column === row || column === 0))), 0);
    const rows = [...this.map.rows.keys()].filter((row) => row >= this.map.rows.length / 2 && /[\p{L}]/u.test(this.map.rows[row].text) && this.map.rows[row].end > this.map.rows[row].start);
    return rows.length ? rows.reduce((best, row) => (most(row) > most(best) ? row : best)) : this.map.rows.length - 1;
  }

  #describe(layer, head) {
    const { name, share } = this.patterns[layer][head];
    return this.page.t(`pattern:${name}`, { share: name === "spread" ? fixed(share, 1) : percent(share, 0) });
  }

  #drawHeads() {
    const { layers, heads, rows, columns, weights } = this.map;
    if (this.only) return put(this.heads, h("p", { class: "note" }, this.page.t("heads-too-many")), this.#numberFields());
    if (layers.length * heads.length > MOST_THUMBS) return put(this.heads, this.#numberFields());
    this.heads.style.setProperty("--heads", heads.length);
    const key = `${layers}|${heads}`;
    if (this.headsKey !== key) {
      this.headsKey = key;
      const button = (layer, head) => h("button", { type: "button", class: "attention-head", dataset: { layer, head } }, h("canvas", { "aria-hidden": "true" }), h("span", { "aria-hidden": "true" }, `${layers[layer]}·${heads[head]}`));
      put(this.heads, layers.map((_, layer) => h("div", { class: "heads-row" }, heads.map((__, head) => button(layer, head)))));
    }
    for (const button of this.heads.querySelectorAll(".attention-head")) {
      const [layer, head] = [Number(button.dataset.layer), Number(button.dataset.head)];
      const own = weights[layer][head];
      paintCells(button.querySelector("canvas"), rows.length, columns.length, (row, column) => own[row][column] ** SHARPEN);
      const isChosen = layer === this.at.layer && head === this.at.head;
      button.setAttribute("aria-pressed", String(isChosen));
      const name = this.page.t("head-name", { layer: layers[layer], head: heads[head], pattern: this.#describe(layer, head) });
      button.setAttribute("aria-label", name);
      button.title = name;
    }
    return undefined;
  }

  /** Layer and head as numbers, where there are too many to draw. */
  #numberFields() {
    const field = (key, value) => h("label", {}, this.page.t(key), " ", h("input", { type: "number", min: 1, value, onchange: (event) => this.page.set({ [key]: Number(event.target.value) || 0 }) }));
    return h("p", { class: "fields" }, field("layer", this.map.layers[this.at.layer]), field("head", this.map.heads[this.at.head]));
  }

  #drawLines() {
    const { map, isSquare, page } = this;
    const { layer, head } = this.at;
    put(this.title, page.t("head-title", { layer: map.layers[layer], head: map.heads[head] }), " ", h("small", {}, this.#describe(layer, head)));
    const listen = { onlook: (event) => this.#look(event.detail), onchoose: (event) => this.#choose({ row: event.detail }) };
    this.rowLine = h("nw-token-line", listen);
    this.rowLine.show(this.#textOf(true), map.rows, { label: page.t("rows-label") });
    this.columnLine = isSquare ? this.rowLine : h("nw-token-line", {});
    if (!isSquare) this.columnLine.show(this.#textOf(false), map.columns, { label: page.t("columns-label"), isChoosable: false });
    put(this.lines, isSquare ? null : h("p", { class: "note" }, page.t("columns-note")), isSquare ? null : this.columnLine, h("p", { class: "note" }, page.t("rows-note")), this.rowLine);
  }

  /** The text that the tokens of the rows, or of the columns, are in. */
  #textOf(isRow) {
    const { kind } = this.map;
    return kind === "source" || (kind === "cross" && !isRow) ? (this.answer.source ?? "") : this.answer.text;
  }

  /** Show what a row attends to. */
  #look(row, isChosen = false) {
    const own = this.weights[row];
    if (!own) return;
    if (isChosen) this.rowLine.choose(row);
    this.rowLine.glance(row);
    this.columnLine.paint(own, { most: Math.max(...own), note: (value) => percent(value) });
    const name = this.rowNames[row];
    const best = strongest(own, 5).filter((column) => own[column] > 0);
    const bars = h("nw-bars");
    bars.show(best.map((column) => ({ text: this.columnNames[column], probability: own[column], note: percent(own[column]) })), { label: this.page.t("strongest", { word: name }) });
    put(this.list, h("p", { class: "note" }, this.page.t("strongest", { word: name })), bars);
    this.matrix.mark(row);
    this.row = row;
  }

  #cell({ row, column, isChosen }) {
    if (row !== this.row) this.#look(row, isChosen);
    if (isChosen) this.#choose({ row });
    this.matrix.mark(row, column);
    put(this.readout, this.page.t("cell", { row: this.rowNames[row], column: this.columnNames[column], share: percent(this.weights[row][column]) }));
  }

  #pickHead(event) {
    const button = event.target.closest(".attention-head");
    if (button) this.#choose({ layer: this.map.layers[Number(button.dataset.layer)], head: this.map.heads[Number(button.dataset.head)] });
  }

  #choose(changes) {
    this.page.set(changes, { quiet: true });
    if ("row" in changes && Object.keys(changes).length === 1) this.#look(changes.row, true);
    else this.#draw();
  }

  /** Every row with its three strongest, as text. */
  #tabulate() {
    const cell = (row) => strongest(this.weights[row], 3).map((column) => `${this.columnNames[column]} ${percent(this.weights[row][column])}`).join(" · ");
    return h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": this.page.t("all-rows") }, h("table", {}, h("tbody", {}, this.rowNames.map((name, row) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, name), h("td", {}, cell(row)))))));
  }

  requests() {
    const { quoted, source } = this.page;
    const rest = source === undefined ? "" : `, ${quoted.source}`;
    return [{ path: "/api/attention", body: this.body, python: `nextword.lens.read_attention(${quoted.load}, ${quoted.text}${rest})`, cli: source === undefined ? this.page.command("attention") : undefined }];
  }
}

function same(some, others) {
  return some.length === others.length && some.every((token, i) => token.id === others[i].id && token.start === others[i].start);
}
