/* <nw-matrix>: numbers as a map of colored cells, one canvas pixel each, with labels. The pointer looks at a cell; arrow
   keys move from cell to cell. Dispatches "cell" with {row, column, isChosen} in `detail`. */

import { h, put } from "../core/dom.js";

const DARK = globalThis.matchMedia?.("(prefers-color-scheme: dark)");

/** Draw values from −1 to 1 into a canvas, one pixel each: positive ones in the color "for", negative ones "against". */
export function paintCells(canvas, rows, columns, valueAt) {
  canvas.width = columns;
  canvas.height = rows;
  const style = getComputedStyle(document.documentElement);
  const [plus, minus] = ["--for", "--against"].map((name) => style.getPropertyValue(name).trim().split(/\s+/).map(Number));
  const context = canvas.getContext("2d");
  const image = context.createImageData(Math.max(1, columns), Math.max(1, rows));
  for (let row = 0, at = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1, at += 4) {
      const value = valueAt(row, column);
      const [r, g, b] = value < 0 ? minus : plus;
      image.data[at] = r;
      image.data[at + 1] = g;
      image.data[at + 2] = b;
      image.data[at + 3] = Math.round(255 * Math.min(1, Math.abs(value)));
    }
  }
  context.putImageData(image, 0, 0);
}

class Matrix extends HTMLElement {
  #shown = null;
  #at = { row: 0, column: 0 };

  connectedCallback() {
    DARK?.addEventListener("change", this.#paint);
  }

  disconnectedCallback() {
    DARK?.removeEventListener("change", this.#paint);
  }

  /** rows, columns: labels, or a count of rows without labels; valueAt(row, column): from −1 to 1; size: {width, height}
   *  of a cell in pixels; label: what it is; below: a node under the columns. */
  show({ rows, columns, valueAt, size, label, below = null }) {
    const count = Array.isArray(rows) ? rows.length : rows;
    this.#shown = { count, columns: columns.length, valueAt, size };
    this.canvas = h("canvas", { role: "img", "aria-label": label, tabindex: 0, onkeydown: (event) => this.#key(event) });
    Object.assign(this.canvas.style, { width: `${columns.length * size.width}px`, height: `${count * size.height}px` });
    this.canvas.addEventListener("pointermove", (event) => this.#point(event, false));
    this.canvas.addEventListener("click", (event) => this.#point(event, true));
    this.rowMark = h("i", { class: "row-mark", hidden: true });
    this.cellMark = h("i", { class: "cell-mark", hidden: true });
    const top = h("div", { class: "tops", "aria-hidden": "true" }, columns.map((text) => h("span", { style: { width: `${size.width}px` } }, shorten(text))));
    const side = Array.isArray(rows) ? h("div", { class: "sides", "aria-hidden": "true" }, rows.map((text) => h("span", { style: { height: `${size.height}px`, "line-height": `${size.height}px` } }, shorten(text)))) : null;
    const corner = side ? h("div", { class: "corner" }) : null;
    put(this, h("div", { class: "scroll", role: "group", "aria-label": label }, h("div", { class: side ? "map-grid" : "map-grid bare" }, corner, top, side, h("div", { class: "cells" }, this.canvas, this.rowMark, this.cellMark), side && below ? h("div") : null, below)));
    this.#paint();
  }

  /** Mark a row, and a cell of it. */
  mark(row, column = -1) {
    const { size, count } = this.#shown;
    this.rowMark.hidden = row < 0 || row >= count;
    Object.assign(this.rowMark.style, { top: `${row * size.height}px`, height: `${size.height}px` });
    this.cellMark.hidden = this.rowMark.hidden || column < 0;
    Object.assign(this.cellMark.style, { top: `${row * size.height}px`, height: `${size.height}px`, left: `${column * size.width}px`, width: `${size.width}px` });
    this.#at = { row: Math.max(0, row), column: Math.max(0, column) };
  }

  #paint = () => {
    if (this.#shown) paintCells(this.canvas, this.#shown.count, this.#shown.columns, this.#shown.valueAt);
  };

  #point(event, isChosen) {
    const { size, count, columns } = this.#shown;
    const row = Math.floor(event.offsetY / size.height);
    const column = Math.floor(event.offsetX / size.width);
    if (row >= 0 && row < count && column >= 0 && column < columns) this.#tell(row, column, isChosen);
  }

  #key(event) {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-10, 0], PageDown: [10, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    const { count, columns } = this.#shown;
    const row = Math.max(0, Math.min(count - 1, this.#at.row + move[0]));
    const column = Math.max(0, Math.min(columns - 1, this.#at.column + move[1]));
    this.#tell(row, column, true);
  }

  #tell(row, column, isChosen) {
    this.dispatchEvent(new CustomEvent("cell", { detail: { row, column, isChosen }, bubbles: true }));
  }
}

function shorten(text) {
  const points = [...text];
  return points.length > 13 ? `${points.slice(0, 12).join("")}…` : points.join("");
}

customElements.define("nw-matrix", Matrix);
