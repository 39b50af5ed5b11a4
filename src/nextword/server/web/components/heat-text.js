/* <nw-heat-text>: a text whose tokens or words are colored. Only what is near the screen has elements of its own, so that
   long texts stay smooth. Dispatches "token" with {index, isClick} in `detail` for the cell under the pointer.

       heat.show(text, cellsOf(text, tokens), { classOf: rankClass, label: "Ranks by gpt2" }) */

import { h, put } from "../core/dom.js";
import { BANDS, GAPS, STEPS, bandOf, blocksOf, cellAt, gapOf, stepOf } from "../core/heat.js";
import { addStrings, t } from "../core/i18n.js";
import { count } from "../core/numbers.js";
import strings from "../strings/heat.js";

addStrings("heat", strings);

const NEAR = "600px"; // beyond the screen
const LONG = 30_000; // characters from which on blocks far from the screen are not laid out

/** The class of a cell {rank}, {bits} or {gap}, to choose from. */
export const rankClass = (cell) => `band-${bandOf(cell.rank)}`;
export const surprisalClass = (cell) => `surprisal-${stepOf(cell.bits)}`;
export function gapClass(cell) {
  const gap = gapOf(cell.gap);
  return gap > 0 ? `f${gap}` : gap < 0 ? `g${-gap}` : "";
}

/** A band of ranks in words: "top 10" … "beyond 1,000". */
export function bandName(band) {
  return band < BANDS.length ? t("heat.top", { rank: count(BANDS[band]) }) : t("heat.beyond", { rank: count(BANDS.at(-1)) });
}

/** The colors of ranks, or of surprisal, with what they stand for. */
export function heatLegend(by) {
  const box = (name, text) => h("span", { class: name }, text);
  const edges = [0, ...STEPS];
  const boxes = by === "rank" ? [0, 1, 2, 3].map((band) => box(`band-${band}`, bandName(band))) : edges.map((edge, i) => box(`surprisal-${i}`, i < STEPS.length ? `${edge}–${edges[i + 1]}` : `${edge}+`));
  return h("p", { class: "legend heat-legend" }, h("span", { class: "unit" }, t(`heat.${by}-legend`)), boxes);
}

/** The colors of the difference of two models: `better` names the one that solid lines speak for. */
export function gapLegend(better, worse) {
  const box = (name, text) => h("span", { class: name }, text);
  const sizes = (letter) => [1, 2, 3, 4, 5].map((size) => box(`${letter}${size}`, size < 5 ? `${GAPS[size - 1]}–${GAPS[size]}` : `${GAPS[4]}+`));
  const row = (name, text) => h("span", { class: "side" }, h("span", {}, text), sizes(name));
  return h("p", { class: "legend heat-legend gaps" }, h("span", { class: "unit" }, t("heat.gap-legend")), row("f", t("heat.gap-for", { model: better })), row("g", t("heat.gap-against", { model: worse })), h("span", { class: "unit" }, t("heat.gap-none")));
}

class HeatText extends HTMLElement {
  #text = null;
  #cells = [];
  #classOf = rankClass;
  #chosen = -1;
  #runs = new Map(); // element → {start, end, isNear}
  #observer = new IntersectionObserver((entries) => this.#see(entries), { rootMargin: NEAR });

  connectedCallback() {
    this.setAttribute("role", "group");
    for (const name of ["pointerover", "click"]) this.addEventListener(name, this.#point);
  }

  disconnectedCallback() {
    for (const name of ["pointerover", "click"]) this.removeEventListener(name, this.#point);
  }

  /** cells: [{start, end, …}], sorted places in the text; what has no cell is not colored. pending: {start, end} of the
   *  part that is being read, or null. A text that is shown already keeps its elements. */
  show(text, cells, { classOf = rankClass, label = "", pending = null } = {}) {
    this.setAttribute("aria-label", label);
    this.#cells = cells;
    this.#classOf = classOf;
    if (text !== this.#text) this.#build(text);
    for (const [element, run] of this.#runs) {
      element.classList.toggle("reading", pending !== null && run.start < pending.end && run.end > pending.start);
      if (run.isNear) this.#fill(element, run);
    }
  }

  /** Mark the cell at an index; with `scroll`, bring it into view. */
  choose(index, { scroll = false } = {}) {
    for (const old of this.querySelectorAll(".chosen")) old.classList.remove("chosen");
    this.#chosen = index;
    const cell = this.#cells[index];
    if (!cell) return;
    for (const own of this.querySelectorAll(`[data-i="${index}"]`)) own.classList.add("chosen");
    if (scroll) this.#elementAt(cell.start)?.scrollIntoView({ block: "nearest", behavior: "instant" });
  }

  #build(text) {
    this.#text = text;
    this.#observer.disconnect();
    this.#runs.clear();
    const blocks = blocksOf(text).map(({ start, end, runs }) => {
      const isAlone = runs.length === 1;
      const isSkipped = isAlone && text.length > LONG;
      const lines = text.slice(start, end).split("\n").reduce((sum, line) => sum + Math.ceil((line.length || 1) / 80), 0) - 1;
      const block = h("div", { class: isSkipped ? "block skipped" : "block", dir: "auto", style: isSkipped ? { "contain-intrinsic-size": `auto ${1.9 * Math.max(1, lines)}em` } : null });
      for (const run of runs) {
        const element = isAlone ? h("div", {}) : h("span", {});
        element.textContent = text.slice(run.start, run.end);
        this.#runs.set(element, { ...run, isNear: false });
        block.append(element);
      }
      return block;
    });
    put(this, h("div", { class: "text" }, blocks));
    for (const element of this.#runs.keys()) this.#observer.observe(element);
  }

  #see(entries) {
    for (const { target, isIntersecting } of entries) {
      const run = this.#runs.get(target);
      if (!run || run.isNear === isIntersecting) continue;
      run.isNear = isIntersecting;
      if (isIntersecting) this.#fill(target, run);
      else {
        target.textContent = this.#text.slice(run.start, run.end);
        run.cells = null;
      }
    }
  }

  /** Give each cell of a run its element. The space before a word stays outside. */
  #fill(element, run) {
    const first = Math.max(0, cellAt(this.#cells, run.start));
    const last = Math.min(this.#cells.length, cellAt(this.#cells, run.end) + 1);
    if (run.cells === this.#cells && run.classOf === this.#classOf && run.first === first && run.last === last) return;
    Object.assign(run, { cells: this.#cells, classOf: this.#classOf, first, last });
    const nodes = [];
    let at = run.start;
    const copy = (end) => {
      if (end > at) nodes.push(this.#text.slice(at, end));
      at = Math.max(at, end);
    };
    for (let i = first; i < this.#cells.length; i += 1) {
      const cell = this.#cells[i];
      if (cell.start >= run.end && !(cell.start === cell.end && run.end === this.#text.length)) break;
      const [start, end] = [Math.max(cell.start, run.start), Math.min(cell.end, run.end)];
      if (end < start) continue;
      const own = this.#text.slice(start, end);
      copy(start + (/^ +(?=[^ ])/.exec(own)?.[0].length ?? 0));
      const isBare = cell.start === cell.end;
      const classes = [this.#classOf(cell), i === this.#chosen ? "chosen" : "", isBare ? "bare" : "", own.includes("\n") ? "line" : ""];
      nodes.push(h("span", { class: classes.filter(Boolean).join(" "), "data-i": i }, isBare ? cell.tokens[0].text : this.#text.slice(at, end)));
      at = end;
    }
    copy(run.end);
    put(element, nodes);
  }

  #point = (event) => {
    const own = event.target.closest?.("[data-i]");
    if (own) this.dispatchEvent(new CustomEvent("token", { detail: { index: Number(own.dataset.i), isClick: event.type === "click" }, bubbles: true }));
  };

  #elementAt(place) {
    for (const [element, run] of this.#runs) {
      if (place >= run.end && run.end < this.#text.length) continue;
      return element.querySelector(".chosen") ?? element;
    }
    return null;
  }
}

customElements.define("nw-heat-text", HeatText);
