/* Layers: what the model would predict if it ended after each of its layers (the logit lens). */

import { post } from "../../core/api.js";
import { h, put } from "../../core/dom.js";
import { labelsOf, strongest } from "../../core/inside.js";
import { count, percent } from "../../core/numbers.js";
import { visible } from "../../core/text.js";
import "../../components/bars.js";
import "../../components/token-line.js";

const SHOWN = 5; // likeliest tokens of each layer

export default class LayersView {
  static explain = "layers";

  constructor(page) {
    this.page = page;
    this.line = h("nw-token-line", { onchoose: (event) => this.#choose(event.detail) });
    this.next = h("button", { class: "plain", type: "button", onclick: () => this.#choose(this.positions.length - 1) }, page.t("position-next"));
    this.title = h("h3", {});
    this.layers = h("div", { class: "columns layer-cards", "aria-live": "polite" });
    this.table = h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": page.t("layers-table"), onclick: (event) => this.#click(event) });
    this.nodes = [
      h("div", { class: "case" }, h("p", { class: "note" }, page.t("position-note")), this.line, h("p", {}, this.next)),
      this.title,
      this.layers,
      h("h3", {}, page.t("layers-table")),
      h("p", { class: "legend" }, h("span", { class: "unit" }, page.t("probability")), ["17–33 %", "33–50 %", "50–67 %", "67–83 %", "83–100 %"].map((range, i) => h("span", { class: `f${i + 1}` }, range)), h("span", { class: "unit" }, page.t("hit-legend"))),
      this.table,
    ];
  }

  get body() {
    return { model: this.page.model.id, text: this.page.text, k: SHOWN, ...(this.page.source === undefined ? {} : { source: this.page.source }) };
  }

  async update(signal) {
    const answer = await post("/api/layers", this.body, { signal });
    this.positions = answer.positions;
    if (!this.positions.length) return put(this.table, h("p", { class: "note" }, this.page.t("no-positions")));
    const tokens = this.positions.map((position) => position.token).filter(Boolean);
    this.names = labelsOf(answer.text, tokens);
    this.line.show(answer.text, tokens, { label: this.page.t("position-note") });
    this.hasNext = this.positions.at(-1).token === null;
    this.next.hidden = !this.hasNext;
    put(this.next, this.page.t(answer.text.includes("___") && this.page.model.isMasked ? "position-blank" : "position-next"));
    this.#drawTable();
    const { position } = this.page.state;
    return this.#look(position >= 0 && position < this.positions.length ? position : this.#telling());
  }

  /** A position to begin with: the surest word that the last layer finds and the embedding does not; else the last. */
  #telling() {
    const sureness = ({ token, layers }) => {
      const best = layers.at(-1).top[0];
      const isFound = token !== null && /\p{L}/u.test(token.text) && best.text === token.text && layers[0].top[0].text !== token.text;
      return isFound ? best.probability : 0;
    };
    const [best] = strongest(this.positions.map(sureness), 1);
    return sureness(this.positions[best]) > 0 ? best : this.positions.length - 1;
  }

  #choose(position) {
    this.page.set({ position }, { quiet: true });
    this.#look(position);
  }

  #look(position) {
    const { token, layers } = this.positions[position];
    const known = token !== null;
    this.line.choose(known ? position : -1);
    this.next.setAttribute("aria-pressed", String(!known));
    const word = known ? this.names[position] : "";
    put(this.title, known ? this.page.t("layers-of", { word }) : this.page.t("layers-of-next"));
    const first = layers.findIndex((_, i) => layers.slice(i).every((later) => later.top[0].text === layers.at(-1).top[0].text));
    put(
      this.layers,
      layers.map((layer, i) => {
        const bars = h("nw-bars");
        bars.show(layer.top.map((guess) => ({ text: guess.text.trim() || guess.text, probability: guess.probability, isOwn: known && guess.text === token.text })), { label: this.#layerName(layer.layer), color: this.page.model.index });
        const rank = layer.rank === null ? null : h("p", { class: "note" }, this.page.t("rank-of", { word, rank: count(layer.rank) }));
        return h("section", { class: i === first ? "card settled" : "card" }, h("h4", {}, this.#layerName(layer.layer), i === first && layers.length > 1 ? h("small", {}, this.page.t("settled")) : null), bars, rank);
      }),
    );
    for (const row of this.table.querySelectorAll("[data-position]")) row.classList.toggle("chosen", Number(row.dataset.position) === position);
  }

  #layerName(layer) {
    return layer ? this.page.t("layer-n", { layer }) : this.page.t("layer-0");
  }

  #drawTable() {
    const depth = this.positions[0].layers;
    const head = h("tr", {}, h("th", { scope: "col" }, this.page.t("actual")), depth.map((layer) => h("th", { scope: "col" }, this.#layerName(layer.layer))));
    const cell = (layer, token) => {
      const best = layer.top[0];
      const isHit = token !== null && best.text === token.text;
      const step = Math.min(5, Math.floor(best.probability * 5.999));
      return h("td", {}, h("span", { class: step ? `f${step}` : "", dir: "auto" }, name(best.text), isHit ? h("b", { title: this.page.t("hit") }, " ✓") : null), h("small", {}, percent(best.probability)));
    };
    const row = (position, i) => h("tr", { dataset: { position: i } }, h("th", { scope: "row" }, h("button", { type: "button", class: "link", dir: "auto" }, position.token ? this.names[i] : this.page.t("next-token"))), position.layers.map((layer) => cell(layer, position.token)));
    put(this.table, h("table", {}, h("caption", {}, this.page.t("layers-table")), h("thead", {}, head), h("tbody", {}, this.positions.map(row))));
  }

  #click(event) {
    const row = event.target.closest("[data-position]");
    if (row) this.#choose(Number(row.dataset.position));
  }

  requests() {
    const { quoted, source } = this.page;
    const rest = source === undefined ? "" : `, ${quoted.source}`;
    return [{ path: "/api/layers", body: this.body, python: `nextword.lens.predict_by_layer(${quoted.load}, ${quoted.text}${rest}, k=${SHOWN})`, cli: source === undefined ? this.page.command("layers") : undefined }];
  }
}

function name(text) {
  return visible(text.trim() || text);
}
