/* Gradients and memory: what is left of the gradient of one word on its way back through the sentence. One answer has the
   gradients of all words, so the word can be moved without asking again, also in a saved page. */

import { post } from "../../core/api.js";
import { h, put } from "../../core/dom.js";
import { decayOf, fateOf, labelsOf, stepAt } from "../../core/inside.js";
import { divide, dotClass, findModel } from "../../core/models.js";
import { count, fixed, percent } from "../../core/numbers.js";
import { visible } from "../../core/text.js";
import "../../components/choice.js";
import "../../components/gradient-chart.js";
import { lazyDetails } from "../../components/lazy-details.js";
import "../../components/token-line.js";

const LOWEST = -8; // power of ten at which the scale ends
const NONE = "none"; // compare with no other model
const DISTANCES = [1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 400, 500];

export default class GradientView {
  static explain = "gradient";

  constructor(page) {
    this.page = page;
    this.others = h("nw-choice", { onpick: (event) => page.set({ other: event.detail }) });
    this.layers = h("nw-choice", { onpick: (event) => (page.set({ layer: Number(event.detail) }, { quiet: true }), this.#draw()) });
    this.target = h("p", { class: "target-word", role: "status" });
    this.chart = h("nw-gradient-chart", { onmove: (event) => this.#choose(event.detail) });
    this.legend = h("p", { class: "legend lines-legend" });
    this.ratio = h("p", { class: "verdict" });
    this.cards = h("div", { class: "columns" });
    this.table = lazyDetails(page.t("gradient-table"), () => this.#tabulate());
    this.nodes = [
      this.others,
      this.layers,
      this.target,
      this.chart,
      this.legend,
      this.ratio,
      this.cards,
      this.table,
      h("details", { class: "more" }, h("summary", {}, page.t("theory")), h("p", {}, page.t("theory-1")), h("p", { class: "formula" }, "∂L/∂hₖ = ∂L/∂hₜ · ∏ ∂hⱼ/∂hⱼ₋₁   (j = k+1 … t)"), h("p", {}, page.t("theory-2")), h("p", { class: "formula" }, "cₜ = fₜ ⊙ cₜ₋₁ + iₜ ⊙ c̃ₜ      ∂cₜ/∂cₜ₋₁ ≈ fₜ"), h("p", {}, page.t("theory-3"))),
    ];
  }

  /** The model to compare with: the chosen one, or one of another kind, an Elman network first. */
  get other() {
    const { page } = this;
    if (page.state.other === NONE) return null;
    const able = divide("view:gradient").able.filter((model) => model.views && model.id !== page.model.id);
    const named = able.find((model) => model.id === page.state.other);
    const wanted = page.model.slug === "rnn" ? "lstm" : "rnn";
    return named ?? able.find((model) => model.slug === wanted) ?? able[0] ?? null;
  }

  bodyOf(model, target) {
    return { model: model.id, text: this.page.text, every: true, ...(target === undefined ? {} : { target }) };
  }

  async update(signal) {
    const { page, other } = this;
    const first = await post("/api/gradients", this.bodyOf(page.model), { signal });
    this.traces = [{ ...first, model: page.model }];
    this.failure = "";
    if (other) {
      // The same next word for both, so that they can be compared
      const word = first.targets.at(-1).text;
      this.otherTarget = /^\s?[\p{L}\p{N}\p{P}]+$/u.test(word) && !word.startsWith("<") ? word : undefined;
      try {
        this.traces.push({ ...(await post("/api/gradients", this.bodyOf(other, this.otherTarget), { signal })), model: other });
      } catch (error) {
        if (!error.status || error.status === 401) throw error;
        this.failure = `${other.id}: ${error.message}`;
      }
    }
    this.#draw();
  }

  #draw() {
    const { page, traces } = this;
    const able = divide("view:gradient").able.filter((model) => model.views && model.id !== page.model.id);
    this.others.hidden = !able.length;
    this.others.show({ label: page.t("compare-with"), options: [...able.map((model) => ({ value: model.id, label: model.id, color: model.index })), { value: NONE, label: page.t("nothing") }], value: this.other?.id ?? NONE });
    const depth = traces[0].layers.length;
    this.layers.hidden = depth < 2;
    this.layers.show({ label: page.t("layer"), options: traces[0].layers.map(({ layer }) => ({ value: String(layer), label: page.t("layer-n", { layer }) })), value: String(this.#layerOf(traces[0]).layer) });
    this.series = traces.flatMap((trace, i) => this.#seriesOf(trace, i));
    this.names = [...labelsOf(traces[0].text, traces[0].tokens), visible(traces[0].targets.at(-1).text.trim() || traces[0].targets.at(-1).text)];
    this.chart.show({ words: [...this.names.slice(0, -1), `${this.names.at(-1)}?`], lowest: Math.max(LOWEST, Math.min(-1, Math.floor(Math.log10(this.#leastShare())))), linesAt: (step) => this.#linesAt(step), label: page.t("chart-handle"), width: page.width });
    const swatch = (own) => h("span", { class: "line-key" }, h("i", { class: `c${own.color % 8}${own.isFaint ? " faint" : ""}`, "aria-hidden": "true" }), own.name);
    put(this.legend, h("span", { class: "unit" }, page.t("chart-axes")), this.series.map(swatch));
    this.#buildCards();
    const { step } = page.state;
    this.#move(step >= 0 && step < traces[0].targets.length ? step : traces[0].targets.length - 1);
  }

  #layerOf(trace) {
    return trace.layers.find((each) => each.layer === this.page.state.layer) ?? trace.layers.at(-1);
  }

  /** The curves of a model: its memory (the cell of an LSTM, else the hidden state) first. */
  #seriesOf(trace, i) {
    const { cell, hidden } = this.#layerOf(trace);
    const own = { trace, color: trace.model.index, dash: 2 * i };
    const series = [{ ...own, norms: cell ?? hidden, isFaint: false, name: this.page.t(cell ? "series-cell" : "series-hidden", { model: trace.model.id }) }];
    if (cell) series.push({ ...own, norms: hidden, dash: 2 * i + 1, isFaint: true, name: this.page.t("series-hidden", { model: trace.model.id }) });
    return series;
  }

  /** The smallest share that any curve has at any place of the word: the scale stays while the word moves. */
  #leastShare() {
    let least = 1;
    for (const { norms } of this.series) {
      for (const [step, row] of norms.entries()) {
        for (let i = 0; i < step; i += 1) if (row[i] > 0) least = Math.min(least, row[i] / row[step]);
      }
    }
    return least;
  }

  /** The step of a model whose prediction is the word after a step of the first model. */
  #stepIn(trace, step) {
    const [main] = this.traces;
    if (trace === main) return step;
    if (step === main.targets.length - 1) return trace.targets.length - 1; // the word after the text
    const byte = main.tokens[step + 1].start;
    return Math.max(0, trace.tokens.findIndex((token) => token.end > byte && token.end > token.start) - 1);
  }

  #linesAt(step) {
    const [main] = this.traces;
    return this.series.map((own) => {
      const at = this.#stepIn(own.trace, step);
      const norms = own.norms[at];
      const place = (i) => (own.trace === main || own.trace.tokens[i].end === 0 ? i : stepAt(main.tokens, own.trace.tokens[i].end));
      const points = Array.from({ length: at + 1 }, (_, i) => [place(i), norms[i] / norms[at]]).filter(([, share]) => share > 0);
      return { ...own, points };
    });
  }

  #buildCards() {
    this.lines = this.traces.map((trace) => {
      const line = h("nw-token-line", { onchoose: (event) => this.#choose(this.#fromOther(trace, event.detail)) });
      line.show(trace.text, trace.tokens, { label: this.page.t("sentence-of", { model: trace.model.id }), can: (token) => token > 0 });
      const facts = h("p", { class: "verdict" });
      return { trace, line, facts, card: h("section", { class: "card" }, h("h3", {}, h("span", { class: dotClass(trace.model.index), "aria-hidden": "true" }), trace.model.id), facts, line) };
    });
    put(this.cards, this.lines.map(({ card }) => card), this.failure ? h("p", { class: "failed", role: "alert" }, this.failure) : null);
  }

  /** The step after which a chosen token of a model is predicted, in steps of the first model. */
  #fromOther(trace, token) {
    const [main] = this.traces;
    if (trace === main) return token - 1;
    const byte = trace.tokens[token].start;
    return Math.max(0, main.tokens.findIndex((own) => own.end > byte && own.end > own.start) - 1);
  }

  #choose(step) {
    this.page.set({ step }, { quiet: true });
    this.#move(step);
  }

  #move(step) {
    const { page, traces } = this;
    const name = this.names[step + 1];
    this.chart.move(step, page.t("chart-value", { word: name, place: step + 1, count: traces[0].targets.length }));
    put(this.target, page.t(step === traces[0].targets.length - 1 ? "target-next" : "target-word", { word: name }), " ", h("small", {}, page.t("target-nats", { p: traces.map((trace) => `${trace.model.id} ${percent(Math.exp(-trace.targets[this.#stepIn(trace, step)].nats))}`).join(", ") })));
    const reaches = [];
    for (const { trace, line, facts } of this.lines) {
      const at = this.#stepIn(trace, step);
      const own = this.series.find((series) => series.trace === trace);
      const norms = own.norms[at].slice(0, at + 1);
      const decay = decayOf(norms);
      const { factor, half, reach } = decay;
      const fate = fateOf(decay);
      reaches.push({ model: trace.model.id, reach: at > 0 ? reach : null });
      line.choose(at + 1);
      line.paint(norms.map((norm) => norm / norms[at]), { note: (share) => percent(share) });
      const number = factor === null ? null : h("strong", {}, `× ${fixed(factor, 3)}`);
      const halves = at < 6 ? null : h("small", {}, page.t("halves", { near: fixed(decayOf(norms.slice(at >> 1)).factor, 3), far: fixed(decayOf(norms.slice(0, (at >> 1) + 1)).factor, 3) }));
      put(facts, number, " ", page.t(`fate:${fate}`, { half: half === null ? "" : fixed(half, 1), steps: at, reach: reach === null ? "" : percent(reach, 1) }), halves);
    }
    const [most, least] = reaches.sort((a, b) => b.reach - a.reach);
    const times = least?.reach > 0 ? most.reach / least.reach : 1;
    put(this.ratio, times > 1.2 ? page.t("ratio", { model: most.model, other: least.model, times: times > 1e6 ? `>${count(1_000_000)}` : times < 10 ? fixed(times, 1) : count(Number(times.toPrecision(2))) }) : "");
    this.table.redraw();
  }

  /** What is left at some distances, as text. */
  #tabulate() {
    const { step } = this.page.state;
    const [main] = this.traces;
    const chosen = step >= 0 && step < main.targets.length ? step : main.targets.length - 1;
    const columns = this.series.map((own) => ({ own, at: this.#stepIn(own.trace, chosen) }));
    const distances = DISTANCES.filter((distance) => columns.some(({ at }) => distance <= at));
    const share = ({ own, at }, distance) => (distance <= at ? percent(own.norms[at][at - distance] / own.norms[at][at]) : "–");
    const head = h("tr", {}, h("th", { scope: "col" }, this.page.t("steps-back")), this.series.map((own) => h("th", { scope: "col", class: "n" }, own.name)));
    return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": this.page.t("gradient-table") }, h("table", {}, h("thead", {}, head), h("tbody", {}, distances.map((distance) => h("tr", {}, h("th", { scope: "row" }, distance), columns.map((column) => h("td", { class: "n" }, share(column, distance))))))));
  }

  requests() {
    const { page, other } = this;
    const request = (model, target) => ({ path: "/api/gradients", body: this.bodyOf(model, target), python: `nextword.lens.trace_gradients(${page.load(model)}, ${page.quoted.text})`, cli: page.command("gradient", model) });
    return [request(page.model), ...(other && findModel(other.id) ? [request(other, this.otherTarget)] : [])];
  }
}
