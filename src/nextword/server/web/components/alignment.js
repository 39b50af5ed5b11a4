/* <nw-alignment>: a translation over its source. Pointing at a word, or reaching it with Tab, lights the words that it
   looked at; a table below has all weights as numbers. */

import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { percent } from "../core/numbers.js";

const NAMED = 3; // words in the sentence below
const LEAST = 0.05; // share of attention that is worth naming
const MOST = 60; // rows and columns of the table

class Alignment extends HTMLElement {
  #data = null;
  #origin = null; // the word that is pointed at: {side, index}

  connectedCallback() {
    for (const name of ["pointerover", "focusin"]) this.addEventListener(name, (event) => this.#point(event.target.closest?.("[data-side]")));
    this.addEventListener("pointerleave", () => this.#point(this.querySelector("[data-side]:focus")));
  }

  /** data: what alignWords gives. The sentence below begins with the word that looked elsewhere most clearly. */
  show(data) {
    this.#data = data;
    this.#origin = null;
    const line = (side, label, items) =>
      h("div", { class: "line" }, h("h3", {}, label), h("p", { class: "text", dir: "auto" }, items.map((word, index) => [h("span", { role: "button", tabindex: 0, dataset: { side, index } }, word), " "])));
    this.said = h("p", { class: "note said", role: "status" }, t("translate.point"));
    const isCut = Math.max(data.rows.length, data.columns.length) > MOST;
    put(
      this,
      h("div", { class: "lines" }, line("columns", t("translate.source"), data.columns), line("rows", t("translate.translation"), data.rows)),
      this.said,
      h("details", { class: "more", open: data.rows.length <= 24 }, h("summary", {}, t("translate.matrix")), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("translate.matrix") }, this.#table(data)), isCut ? h("p", { class: "note" }, t("translate.matrix-cut", { count: MOST })) : null),
    );
  }

  #table({ rows, columns, weights, rest }) {
    const cell = (weight) => h("td", { style: { "--share": `${Math.round(100 * weight)}%` } }, weight >= 0.01 ? Math.round(100 * weight) : "");
    return h(
      "table",
      { class: "weights" },
      h("caption", {}, t("translate.matrix")),
      h("thead", {}, h("tr", {}, h("td", {}), columns.slice(0, MOST).map((word) => h("th", { scope: "col", dir: "auto" }, word)), h("th", { scope: "col" }, t("translate.rest")))),
      h("tbody", {}, rows.slice(0, MOST).map((word, i) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, word), weights[i].slice(0, MOST).map(cell), cell(rest[i])))),
    );
  }

  /** Light what belongs to a word: of the translation, where it looked; of the source, who looked at it. */
  #point(target) {
    const side = target?.dataset.side;
    const index = Number(target?.dataset.index);
    if (this.#origin?.side === side && this.#origin?.index === index) return;
    this.#origin = side ? { side, index } : null;
    const { rows, columns, weights } = this.#data ?? { rows: [], columns: [], weights: [] };
    const shares = side === "rows" ? weights[index] : side === "columns" ? weights.map((row) => row[index]) : [];
    for (const part of this.querySelectorAll("[data-side]")) {
      const share = side && part.dataset.side !== side ? shares[Number(part.dataset.index)] : 0;
      part.style.setProperty("--share", `${Math.round(100 * share)}%`);
      part.classList.toggle("lit", share >= LEAST);
      part.classList.toggle("origin", part === target);
    }
    if (!side) return;
    const others = side === "rows" ? columns : rows;
    const named = shares.map((share, i) => ({ share, word: others[i] })).filter(({ share }) => share >= LEAST).sort((a, b) => b.share - a.share).slice(0, NAMED);
    const list = named.map(({ share, word }) => `${word} ${percent(share, 0)}`).join(t("comma"));
    const key = named.length ? (side === "rows" ? "looked" : "seen") : side === "rows" ? "looked-nowhere" : "unseen";
    put(this.said, t(`translate.${key}`, { word: target.textContent, list }));
  }
}

customElements.define("nw-alignment", Alignment);
