/* Saliency: which words the prediction of the next word, or of a blank, rests on. */

import { post } from "../../core/api.js";
import { debounce, h, newId, put } from "../../core/dom.js";
import { continuation, labelsOf, strongest } from "../../core/inside.js";
import { count, fixed, percent } from "../../core/numbers.js";
import { visible } from "../../core/text.js";
import "../../components/choice.js";
import { lazyDetails } from "../../components/lazy-details.js";
import "../../components/token-line.js";

const METHODS = ["integrated_gradients", "gradient_x_input"];
const GUESSES = 6;
const SHOWN = 8; // words in the list
const MOST_GAP = 0.01; // of the sum of sizes, from which on the gap is worth a warning

export default class SaliencyView {
  static explain = "saliency";

  constructor(page) {
    this.page = page;
    const id = newId("target");
    this.guesses = h("nw-choice", { onpick: (event) => page.set({ target: event.detail }) });
    const later = debounce(250, () => page.set({ target: this.field.value.trim() }));
    this.field = h("input", { type: "text", id, dir: "auto", autocomplete: "off", spellcheck: "false", placeholder: page.t("target-likeliest"), oninput: later });
    this.methods = h("nw-choice", { onpick: (event) => page.set({ method: event.detail }) });
    this.title = h("h3", {});
    this.lines = h("div", {});
    this.legend = h("p", { class: "legend" }, [5, 3, 1].map((i) => h("span", { class: `f${i}` }, i === 3 ? page.t("speaks-for") : "\u00a0\u00a0")), [1, 3, 5].map((i) => h("span", { class: `g${i}` }, i === 3 ? page.t("speaks-against") : "\u00a0\u00a0")));
    this.bars = h("ol", { class: "bars signed", "aria-label": page.t("strongest-words") });
    this.sum = h("p", { class: "verdict" });
    this.gap = h("p", { class: "note" });
    this.table = lazyDetails(page.t("every-token"), () => this.#tabulate());
    this.nodes = [
      this.guesses,
      h("div", { class: "target-fields" }, h("div", { class: "field" }, h("label", { for: id }, page.t("target")), this.field), this.methods),
      h("div", { class: "case" }, this.title, this.lines, this.legend),
      h("div", { class: "columns two" }, h("section", { class: "card" }, h("h3", {}, page.t("strongest-words")), this.bars), h("section", { class: "card" }, h("h3", {}, page.t("sum")), this.sum, this.gap)),
      this.table,
    ];
  }

  /** The text; a masked model needs a blank, which goes to the end if there is none. */
  get text() {
    const { model, text } = this.page;
    return model.isMasked && !text.includes("___") ? `${text.trimEnd()} ___` : text;
  }

  /** The target as it would stand in the text; none: the likeliest. */
  get target() {
    const { target } = this.page.state;
    if (!target) return undefined;
    return this.text.includes("___") ? target : continuation(this.text, target);
  }

  get body() {
    const { page } = this;
    return { model: page.model.id, text: this.text, method: page.state.method, ...(page.source === undefined ? {} : { source: page.source }), ...(this.target === undefined ? {} : { target: this.target }) };
  }

  async update(signal) {
    const { page } = this;
    if (document.activeElement !== this.field) this.field.value = page.state.target;
    this.methods.show({ label: page.t("method"), options: METHODS.map((value) => ({ value, label: page.t(`method:${value}`) })), value: page.state.method });
    const [guesses, answer] = await Promise.all([this.#guess(signal), post("/api/saliency", this.body, { signal })]);
    this.guesses.hidden = !guesses.length;
    const chosen = page.state.target || answer.target.trim();
    this.guesses.show({ label: page.t("guesses"), options: guesses.map((guess) => ({ value: guess.text.trim(), label: visible(guess.text.trim()), note: percent(guess.probability) })), value: chosen });
    this.answer = answer;
    this.#draw();
  }

  /** The likeliest words, to choose the target from. */
  async #guess(signal) {
    const { text } = this;
    const { model, source } = this.page;
    if (source !== undefined) return [];
    try {
      if (text.includes("___")) return model.can("fill") ? (await post("/api/fill", { model: model.id, text, k: GUESSES }, { signal })).blanks[0] : [];
      return (await post("/api/next", { model: model.id, text, k: GUESSES }, { signal })).guesses;
    } catch (error) {
      if (error.status !== 400) throw error;
      return []; // the route cannot; the saliency can
    }
  }

  #draw() {
    const { page, answer } = this;
    const partsOfText = ["source", "text"].map((part) => answer.tokens.filter((each) => each.part === part));
    this.rows = partsOfText.flat();
    this.names = partsOfText.flatMap((own, i) => labelsOf([answer.source ?? "", answer.text][i], own.map((each) => each.token)));
    const values = this.rows.map((each) => each.value);
    const most = Math.max(...values.map(Math.abs), 1e-12);
    const word = visible(answer.target.trim() || answer.target);
    put(this.title, page.t("why-word", { word }), " ", h("small", {}, page.t("probability-now", { p: percent(Math.exp(answer.score)) })));
    const parts = [["source", answer.source], ["text", answer.text]].filter(([part, text]) => text && answer.tokens.some((each) => each.part === part));
    put(
      this.lines,
      parts.map(([part, text]) => {
        const own = answer.tokens.filter((each) => each.part === part);
        const line = h("nw-token-line", {});
        line.show(text, own.map((each) => each.token), { label: page.t(part === "source" ? "source" : "text-label"), isChoosable: false });
        line.paint(own.map((each) => each.value), { most, isSigned: true, note: (value) => `${signed(value)} nats` });
        return parts.length > 1 ? [h("p", { class: "note" }, page.t(part === "source" ? "source" : "text-label")), line] : line;
      }),
    );
    const best = strongest(values, SHOWN, Math.abs).filter((i) => Math.abs(values[i]) > 0);
    put(
      this.bars,
      best.map((i) => {
        const value = values[i];
        const width = `${(50 * Math.abs(value)) / most}%`;
        return h("li", {}, h("div", { class: "row" }, h("span", { class: "word", dir: "auto" }, this.names[i]), h("span", { class: "bar", "aria-hidden": "true" }, h("i", { class: value > 0 ? "plus" : "minus", style: { width } })), h("span", { class: "number" }, signed(value))));
      }),
    );
    const total = values.reduce((sum, value) => sum + value, 0);
    if (answer.baseline === null) put(this.sum, page.t("sum-product"));
    else put(this.sum, page.t("sum-integrated", { with: percent(Math.exp(answer.score)), without: percent(Math.exp(answer.baseline)), nats: signed(answer.score - answer.baseline), change: page.t(answer.score >= answer.baseline ? "likelier" : "less-likely", { times: count(Number(Math.exp(Math.abs(answer.score - answer.baseline)).toPrecision(2))) }) }));
    const size = values.reduce((sum, value) => sum + Math.abs(value), 0);
    const isLarge = answer.gap !== null && Math.abs(answer.gap) > MOST_GAP * size;
    put(this.gap, answer.gap === null ? page.t("no-gap") : page.t(isLarge ? "gap-large" : "gap", { total: signed(total), gap: signed(answer.gap, 3) }));
    this.table.redraw();
  }

  #tabulate() {
    const row = ({ value }, i) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, this.names[i]), h("td", { class: "n" }, signed(value, 4)));
    const head = h("tr", {}, h("th", { scope: "col" }, this.page.t("token")), h("th", { scope: "col", class: "n" }, "nats"));
    return h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": this.page.t("every-token") }, h("table", {}, h("thead", {}, head), h("tbody", {}, this.rows.map(row))));
  }

  requests() {
    const { page } = this;
    const { quoted, source, state } = page;
    const rest = [page.quote(this.text), this.target === undefined ? null : page.quote(this.target), source === undefined ? null : `source=${quoted.source}`, state.method === METHODS[0] ? null : `method=${page.quote(state.method)}`];
    return [{ path: "/api/saliency", body: this.body, python: `nextword.lens.attribute_word(${quoted.load}, ${rest.filter(Boolean).join(", ")})`, cli: source === undefined && this.target === undefined && state.method === METHODS[0] ? page.command("saliency") : undefined }];
  }
}

function signed(value, digits = 2) {
  return `${value > 0 ? "+" : ""}${fixed(value, digits)}`;
}
