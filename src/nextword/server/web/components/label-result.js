/* <nw-label-result>: the probabilities of labels, or a predicted number; and which words speak for the prediction and
   against it. Choosing a label dispatches "label". */

import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { fixed, percent } from "../core/numbers.js";
import "./bars.js";

const MANY = 8; // labels: more are sorted by probability
const LEVELS = 5; // f1 … f5 and g1 … g5 in page.css

class LabelResult extends HTMLElement {
  /** prediction: as /api/predict has it; before: that of the text to compare with; explanation: as /api/explain has it;
   *  nameOf: a label as people call it. */
  show(prediction, { before, explanation, color = 0, isExplained = false, nameOf = String } = {}) {
    const numeric = prediction.probabilities === undefined;
    put(this, numeric ? this.#number(prediction.predicted, before?.predicted) : this.#labels(prediction, before, { color, isExplained, nameOf }), explanation ? this.#words(explanation, numeric, nameOf) : null);
  }

  #number(value, before) {
    return h("p", { class: "verdict" }, h("strong", { class: "value" }, fixed(value, 3)), before === undefined ? null : h("span", { class: "note" }, ` ${signed(value - before, 3)}`));
  }

  #labels({ predicted, probabilities }, before, { color, isExplained, nameOf }) {
    const names = Object.keys(probabilities);
    if (names.length > MANY) names.sort((a, b) => probabilities[b] - probabilities[a]);
    const rows = names.map((text) => {
      const old = before?.probabilities?.[text];
      const change = old === undefined ? "" : ` ${signed(100 * (probabilities[text] - old), 1)}`;
      return { text, name: nameOf(text), probability: probabilities[text], before: old, isOwn: text === predicted, note: percent(probabilities[text]) + change };
    });
    const bars = h("nw-bars", { class: before ? "changes" : null, onchoose: (event) => this.dispatchEvent(new CustomEvent("label", { detail: event.detail.text, bubbles: true })) });
    bars.show(rows, { label: t("tasks.probabilities"), color, choosable: isExplained });
    return [h("p", { class: "verdict" }, h("strong", {}, nameOf(predicted)), ` ${percent(probabilities[predicted])}`), bars];
  }

  #words({ label, words, weights, score, baseline, gap }, numeric, nameOf) {
    const all = weights.flat().filter((weight) => weight !== null);
    const largest = Math.max(...all.map(Math.abs), 1e-12);
    const draw = (word, weight) => {
      if (weight === null) return [h("span", { class: "unread", title: t("tasks.unread") }, word), " "];
      const level = Math.round((LEVELS * Math.abs(weight)) / largest);
      return [h("span", { class: level ? `${weight > 0 ? "f" : "g"}${level}` : null, title: signed(weight, 3) }, word), " "];
    };
    const sum = all.reduce((total, weight) => total + weight, 0);
    const values = { label: nameOf(label), sum: signed(sum, 3), score: fixed(score, 3), baseline: fixed(baseline, 3), gap: fixed(Math.abs(gap), 4) };
    const strongest = words.flatMap((text, i) => text.map((word, j) => ({ word, weight: weights[i][j] ?? 0 }))).sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight));
    const scale = [5, 4, 3, 2, 1].map((level) => h("span", { class: `g${level}` }, level === 5 ? t(numeric ? "tasks.lowers" : "tasks.against") : "\u00a0\u00a0"));
    const right = [1, 2, 3, 4, 5].map((level) => h("span", { class: `f${level}` }, level === 5 ? t(numeric ? "tasks.raises" : "tasks.for") : "\u00a0\u00a0"));
    return [
      h("h3", {}, t(numeric ? "tasks.words-number" : "tasks.words", { label: nameOf(label) })),
      words.map((text, i) => h("p", { class: "text", dir: "auto" }, text.length ? text.map((word, j) => draw(word, weights[i][j])) : t("tasks.empty"))),
      h("p", { class: "legend" }, scale, h("span", {}, " 0 "), right),
      h("details", { class: "more" }, h("summary", {}, t("tasks.numbers")), h("p", { class: "note" }, t(numeric ? "tasks.complete-number" : "tasks.complete", values)), h("ol", { class: "strongest" }, strongest.slice(0, 20).map(({ word, weight }) => h("li", {}, `${word} ${signed(weight, 3)}`)))),
    ];
  }
}

/** A difference with its sign. */
export function signed(value, digits) {
  return (value < 0 ? "" : "+") + fixed(value, digits);
}

customElements.define("nw-label-result", LabelResult);
