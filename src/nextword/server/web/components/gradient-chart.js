/* <nw-gradient-chart>: what is left of a gradient on its way back through a sentence, by model, on a logarithmic scale.
   The predicted word is a handle: drag it, or move it with the arrow keys. Dispatches "move" with its step in `detail`. */

import { h, put, svg } from "../core/dom.js";

const [TOP, LABELS, AXIS, LEFT, RIGHT, HEIGHT] = [18, 96, 52, 40, 28, 260];
const STEP = { least: 15, most: 46 }; // pixels per token
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const DASHES = ["", "7 4", "2 4", "10 3 2 3"];

class GradientChart extends HTMLElement {
  #shown = null;
  #size = {};
  #step = -1;

  connectedCallback() {
    if (this.#shown) this.#reveal(this.#x(this.#step + 1));
  }

  /** words: what stands at each step, then the predicted next word; lowest: exponent of ten at the lower edge;
   *  linesAt(step): [{name, color, dash, isFaint, points: [[x in steps, share]]}] for the word predicted after a step. */
  show({ words, lowest, linesAt, label, width: room }) {
    this.#shown = { words, lowest, linesAt };
    const width = Math.max(280, room - AXIS);
    const gap = Math.max(STEP.least, Math.min(STEP.most, (width - LEFT - RIGHT) / (words.length - 1)));
    const total = LEFT + RIGHT + gap * (words.length - 1);
    this.#size = { gap, total };
    this.lines = svg("g", {});
    this.handle = svg("g", { class: "handle", role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": 1, "aria-valuemax": words.length - 1 }, svg("line", { y1: TOP - 8, y2: TOP + HEIGHT, class: "base" }), svg("circle", { cy: TOP - 8, r: 8 }), svg("path", { d: `M-3,${TOP - 11}v6M3,${TOP - 11}v6` }));
    this.handle.addEventListener("keydown", (event) => this.#key(event));
    this.words = words.map((word, i) => svg("text", { x: this.#x(i), y: TOP + HEIGHT + 16, transform: `rotate(-55 ${this.#x(i)} ${TOP + HEIGHT + 16})`, "text-anchor": "end", "data-step": i }, shorten(word)));
    const decades = Array.from({ length: -lowest + 1 }, (_, i) => -i);
    const grid = decades.map((power) => svg("line", { class: "grid", x1: 0, x2: total - RIGHT, y1: this.#y(10 ** power), y2: this.#y(10 ** power) }));
    const marks = decades.map((power) => svg("text", { x: AXIS - 6, y: this.#y(10 ** power) + 4, "text-anchor": "end" }, power > -5 ? `${Number((100 * 10 ** power).toPrecision(1))}%` : `10⁻${SUPERSCRIPTS[-power]}`));
    const axis = svg("svg", { class: "plot axis", width: AXIS, height: TOP + HEIGHT + LABELS, "aria-hidden": "true" }, marks);
    this.drawing = svg("svg", { class: "plot", width: total, height: TOP + HEIGHT + LABELS, viewBox: `0 0 ${total} ${TOP + HEIGHT + LABELS}` }, grid, this.lines, this.words, this.handle);
    this.drawing.addEventListener("pointerdown", (event) => this.#grab(event));
    this.drawing.addEventListener("pointermove", (event) => event.buttons && this.#drag(event));
    this.box = h("div", { class: "scroll" }, this.drawing);
    put(this, axis, this.box);
  }

  /** Move the handle to the word that is predicted after a step. */
  move(step, valueText) {
    const { words, linesAt } = this.#shown;
    this.#step = step;
    const lines = linesAt(step);
    put(
      this.lines,
      lines.map(({ color, dash, isFaint, points }) => svg("polyline", { class: "line", stroke: `var(--c${color % 8})`, "stroke-dasharray": DASHES[dash % DASHES.length], opacity: isFaint ? 0.45 : null, points: points.map(([x, share]) => `${this.#x(x).toFixed(1)},${this.#y(share).toFixed(1)}`).join(" ") })),
      lines.filter((line) => !line.isFaint).map(({ color, points }) => points.map(([x, share]) => svg("circle", { cx: this.#x(x), cy: this.#y(share), r: 2.6, fill: `var(--c${color % 8})` }))),
    );
    this.handle.setAttribute("transform", `translate(${this.#x(step + 1)} 0)`);
    this.handle.setAttribute("aria-valuenow", step + 1);
    this.handle.setAttribute("aria-valuetext", valueText);
    for (const [i, word] of this.words.entries()) word.setAttribute("class", i === step + 1 ? "name target" : i > step + 1 ? "later" : "");
    this.words[words.length - 1].classList.add("guess");
    this.#reveal(this.#x(step + 1));
  }

  /** Scroll the chart, not the page, so that the handle is visible. */
  #reveal(x) {
    const { box } = this;
    if (x > box.scrollLeft + box.clientWidth - 40) box.scrollLeft = x - box.clientWidth + 60;
    else if (x < box.scrollLeft + 60) box.scrollLeft = x - 80;
  }

  #x = (step) => LEFT + step * this.#size.gap;

  #y(share) {
    const power = Math.max(this.#shown.lowest, Math.log10(Math.max(share, 1e-300)));
    return TOP + HEIGHT * (0.08 + (0.92 * power) / this.#shown.lowest);
  }

  #grab(event) {
    if (event.pointerType === "touch" && !event.target.closest(".handle, [data-step]")) return; // a finger scrolls
    event.preventDefault();
    this.drawing.setPointerCapture(event.pointerId);
    this.handle.focus({ preventScroll: true });
    this.#drag(event);
  }

  #drag(event) {
    if (!this.drawing.hasPointerCapture(event.pointerId)) return;
    const x = event.clientX - this.drawing.getBoundingClientRect().left;
    this.#tell(Math.round((x - LEFT) / this.#size.gap) - 1);
  }

  #key(event) {
    const last = this.#shown.words.length - 2;
    const to = { ArrowLeft: this.#step - 1, ArrowDown: this.#step - 1, ArrowRight: this.#step + 1, ArrowUp: this.#step + 1, Home: 0, End: last, PageUp: this.#step - 5, PageDown: this.#step + 5 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#tell(to);
  }

  #tell(step) {
    const own = Math.max(0, Math.min(this.#shown.words.length - 2, step));
    if (own !== this.#step) this.dispatchEvent(new CustomEvent("move", { detail: own, bubbles: true }));
  }
}

function shorten(text) {
  const points = [...text];
  return points.length > 10 ? `${points.slice(0, 9).join("")}…` : points.join("");
}

customElements.define("nw-gradient-chart", GradientChart);
