/* Gates: what a recurrent network lets in, keeps and shows at every word. */

import { post } from "../../core/api.js";
import { h, put, svg } from "../../core/dom.js";
import { t } from "../../core/i18n.js";
import { labelsOf, orderUnits, strongest } from "../../core/inside.js";
import { fixed, percent } from "../../core/numbers.js";
import "../../components/choice.js";
import { lazyDetails } from "../../components/lazy-details.js";
import "../../components/matrix.js";

const ORDERS = ["mean", "variance", "index"];
const SIGNED = ["candidate", "hidden", "cell"]; // from −1 to 1, or further
const LINE = 84; // height of the line of averages

export default class GatesView {
  static explain = "gates";

  constructor(page) {
    this.page = page;
    const choice = (key) => h("nw-choice", { onpick: (event) => this.#choose({ [key]: key === "layer" ? Number(event.detail) : event.detail }) });
    [this.layers, this.parts, this.orders] = [choice("layer"), choice("gate"), choice("order")];
    this.meaning = h("p", {});
    this.finding = h("p", { class: "verdict" });
    this.matrix = h("nw-matrix", { oncell: (event) => this.#cell(event.detail) });
    this.readout = h("p", { class: "note readout", role: "status" });
    this.table = lazyDetails(page.t("gates-table"), () => this.#tabulate());
    this.legend = h("p", { class: "legend map-legend" });
    this.nodes = [this.layers, this.parts, this.orders, this.meaning, this.finding, this.matrix, this.readout, this.legend, this.table];
  }

  get body() {
    return { model: this.page.model.id, text: this.page.source ?? this.page.text };
  }

  async update(signal) {
    try {
      this.answer = await post("/api/gates", this.body, { signal });
      this.depth = 0;
    } catch (error) {
      if (error.status !== 400 || !/choose layers/.test(error.message)) throw error;
      // Too many numbers at once: one layer. The last one tells how many there are.
      this.answer = await post("/api/gates", { ...this.body, layers: [this.page.state.layer || -1] }, { signal });
      this.depth = Math.max(this.depth ?? 0, this.answer.layers[0].layer);
    }
    this.#draw();
  }

  #draw() {
    const { page, answer } = this;
    const key = (layer) => (layer.direction === "backward" ? -layer.layer : layer.layer);
    const layers = answer.layers;
    this.layer = layers.find((each) => key(each) === page.state.layer) ?? layers[0];
    const options = this.depth ? Array.from({ length: this.depth }, (_, i) => ({ value: String(i + 1), label: page.t("layer-n", { layer: i + 1 }) })) : layers.map((each) => ({ value: String(key(each)), label: page.t("layer-n", { layer: each.layer }) + (each.direction === "backward" ? page.t("backward") : "") }));
    this.layers.hidden = options.length < 2;
    this.layers.show({ label: page.t("layer"), options, value: String(key(this.layer)) });
    const names = [...Object.keys(this.layer.gates), ...(this.layer.cell ? ["cell"] : []), "hidden"];
    const first = ["forget", "update", "hidden"].find((each) => names.includes(each));
    this.gate = names.includes(page.state.gate) ? page.state.gate : first;
    this.parts.show({ label: page.t("gate"), options: names.map((each) => ({ value: each, label: page.t(`gate:${each}`) })), value: this.gate });
    this.orders.show({ label: page.t("order"), options: ORDERS.map((each) => ({ value: each, label: page.t(`order:${each}`) })), value: page.state.order });
    this.values = this.gate === "cell" ? this.layer.cell : this.gate === "hidden" ? this.layer.hidden : this.layer.gates[this.gate];
    this.names = labelsOf(answer.text, answer.tokens);
    this.units = orderUnits(this.values, page.state.order);
    this.isSigned = SIGNED.includes(this.gate);
    this.most = this.isSigned ? this.values.flat().reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9) : 1;
    this.means = this.values.map((step) => step.reduce((sum, value) => sum + (this.isSigned ? Math.abs(value) : value), 0) / step.length);
    this.#drawMap();
    this.#explain();
    this.table.redraw();
  }

  #drawMap() {
    const { values, units, most, page } = this;
    const steps = values.length;
    const width = Math.max(16, Math.min(44, Math.floor((page.width - 4) / steps)));
    const height = Math.max(2, Math.min(14, Math.floor(380 / units.length)));
    const label = page.t("gates-map", { gate: page.t(`gate:${this.gate}`), layer: this.layer.layer });
    this.matrix.show({ rows: units.length, columns: this.names, valueAt: (row, step) => values[step][units[row]] / most, size: { width, height }, label, below: this.#line(width) });
    const ends = this.isSigned ? [fixed(-most), fixed(most)] : [page.t("closed"), page.t("open")];
    put(this.legend, h("span", {}, ends[0]), h("i", { class: this.isSigned ? "ramp signed" : "ramp", "aria-hidden": "true" }), h("span", {}, ends[1]), h("span", { class: "unit" }, page.t("map-axes", { units: units.length })));
    put(this.readout, page.t("gates-hint"));
  }

  /** The average over units by step, as a line under the map. */
  #line(width) {
    const total = this.means.length * width;
    const top = this.isSigned ? Math.max(...this.means) : 1;
    const y = (value) => LINE - 6 - ((LINE - 14) * value) / (top || 1);
    const points = this.means.map((value, step) => `${(step + 0.5) * width},${y(value).toFixed(1)}`);
    const label = this.page.t(this.isSigned ? "mean-size" : "mean-line");
    return h("div", { class: "mean-line" }, svg("svg", { class: "plot", width: total, height: LINE, viewBox: `0 0 ${total} ${LINE}`, role: "img", "aria-label": label }, svg("line", { class: "grid", x1: 0, x2: total, y1: y(0), y2: y(0) }), svg("line", { class: "grid", x1: 0, x2: total, y1: y(top), y2: y(top) }), svg("polyline", { class: "line", stroke: "var(--ink)", points: points.join(" ") }), this.means.map((value, step) => svg("circle", { cx: (step + 0.5) * width, cy: y(value), r: 2.5, fill: "var(--ink)" }))), h("small", {}, label));
  }

  #explain() {
    const { page, gate, means, answer } = this;
    put(this.meaning, page.t(`meaning:${gate}`));
    const word = (step) => `“${this.names[step]}” (${fixed(means[step])})`;
    const inText = [...means.keys()].filter((step) => answer.tokens[step].end > answer.tokens[step].start);
    if (inText.length < 3) return put(this.finding);
    const most = strongest(means, means.length).filter((step) => inText.includes(step));
    const average = fixed(inText.reduce((sum, step) => sum + means[step], 0) / inText.length);
    return put(this.finding, page.t(this.isSigned ? "finding-size" : "finding-gate", { average, high: most.slice(0, 3).map(word).join(t("comma")), low: most.slice(-3).reverse().map(word).join(t("comma")) }));
  }

  #cell({ row, column, isChosen }) {
    this.matrix.mark(row, column);
    const unit = this.units[row];
    const others = [...Object.entries(this.layer.gates), ["cell", this.layer.cell], ["hidden", this.layer.hidden]].filter(([, values]) => values);
    const numbers = others.map(([name, values]) => `${this.page.t(`gate:${name}`)} ${fixed(values[column][unit])}`).join(" · ");
    put(this.readout, h("strong", {}, this.page.t("unit-at", { unit: this.layer.units[unit], word: this.names[column] })), ` ${numbers}`, isChosen && this.gate === "forget" ? ` — ${this.page.t("kept", { share: percent(this.values[column][unit], 0) })}` : "");
  }

  #choose(changes) {
    this.page.set(changes, { quiet: this.depth === 0 || !("layer" in changes) });
    if (this.depth === 0 || !("layer" in changes)) this.#draw();
  }

  /** The averages of all gates by word, as text. */
  #tabulate() {
    const parts = [...Object.entries(this.layer.gates), ["cell", this.layer.cell], ["hidden", this.layer.hidden]].filter(([, values]) => values);
    const mean = (name, step) => fixed(step.reduce((sum, value) => sum + (SIGNED.includes(name) ? Math.abs(value) : value), 0) / step.length);
    const row = (name, step) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, name), parts.map(([part, values]) => h("td", { class: "n" }, mean(part, values[step]))));
    const head = h("tr", {}, h("th", { scope: "col" }, this.page.t("token")), parts.map(([name]) => h("th", { scope: "col", class: "n" }, SIGNED.includes(name) ? `|${this.page.t(`gate:${name}`)}|` : this.page.t(`gate:${name}`))));
    return h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": this.page.t("gates-table") }, h("table", {}, h("thead", {}, head), h("tbody", {}, this.names.map(row))));
  }

  requests() {
    const { quoted } = this.page;
    return [{ path: "/api/gates", body: this.body, python: `nextword.lens.trace_gates(${quoted.load}, ${this.page.source === undefined ? quoted.text : quoted.source})`, cli: this.page.source === undefined ? this.page.command("gates") : undefined }];
  }
}
