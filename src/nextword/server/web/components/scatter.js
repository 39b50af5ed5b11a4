/* <nw-scatter>: named points on a plane, in groups with marks of their own. Dispatches "choose" with a point's index.

   One stop for the Tab key; arrow keys go to the next point in that direction. The points are in a table below, too. */

import { h, put, svg } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { Scale, domain, placeLabel } from "../core/scales.js";
import { Chart } from "./chart.js";
import { key, marker } from "./marks.js";

const LINE = 15; // height of a label
const SHORTENED = 34; // characters of a label

class Scatter extends Chart {
  /** points: [{text, label?, x, y, group}]; groups: names, by index; chosen: index or −1; near: indexes that lines lead to;
   *  axes: [x, y] labels; title: for screen readers. */
  show(content) {
    this.content = content;
    if (!this.picture) {
      this.picture = svg("svg", { class: "plot scatter", role: "group", onclick: (event) => this.#choose(event.target.closest("[data-index]")), onkeydown: (event) => this.#press(event) });
      this.legend = h("p", { class: "readout" });
      this.twin = h("details", { class: "more" }, h("summary", {}, t("chart-table")), h("div", { class: "scroll twin", tabindex: "0", role: "region" }));
      put(this, h("figure", {}, this.picture, this.legend, this.twin));
    }
    this.picture.setAttribute("aria-label", content.title);
    put(this.legend, content.groups.length > 1 ? content.groups.map((name, mark) => h("span", {}, key(mark), name)) : []);
    const rows = content.points.map((point) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, point.text), h("td", {}, content.groups[point.group] ?? ""), h("td", { class: "n" }, point.x.toFixed(3)), h("td", { class: "n" }, point.y.toFixed(3))));
    this.twin.lastChild.setAttribute("aria-label", content.title);
    put(this.twin.lastChild, h("table", {}, h("caption", {}, content.title), h("tbody", {}, rows)));
    this.redraw();
  }

  draw() {
    const { points, chosen, near, axes } = this.content;
    const width = Math.floor(this.clientWidth);
    if (!width || !points.length) return put(this.picture);
    const height = Math.round(Math.min(620, Math.max(380, width * 0.72)));
    const across = new Scale(domain(points.map((point) => point.x), false, 0.04), 14, width - 14 - Math.min(60, width / 8));
    const down = new Scale(domain(points.map((point) => point.y), false, 0.05), height - 30, 26);
    this.places = points.map((point) => ({ x: across.at(point.x), y: down.at(point.y) }));
    const zero = (scale) => (scale.low < 0 && scale.high > 0 ? scale.at(0).toFixed(1) : null);
    const nodes = [svg("text", { x: 0, y: 13 }, axes[1]), svg("text", { x: width, y: height - 6, "text-anchor": "end" }, axes[0])];
    if (zero(across)) nodes.push(svg("line", { class: "grid", x1: zero(across), x2: zero(across), y1: 22, y2: height - 26 }));
    if (zero(down)) nodes.push(svg("line", { class: "grid", x1: 0, x2: width, y1: zero(down), y2: zero(down) }));
    const at = this.places[chosen];
    if (at) for (const index of near) nodes.push(svg("line", { class: "tie", x1: at.x.toFixed(1), y1: at.y.toFixed(1), x2: this.places[index].x.toFixed(1), y2: this.places[index].y.toFixed(1) }));
    const taken = this.places.map(({ x, y }) => [x - 6, y - 6, x + 6, y + 6]);
    const isSpecial = (index) => index === chosen || near.includes(index);
    const order = points.map((_, index) => index).sort((a, b) => isSpecial(b) - isSpecial(a));
    const stop = at ? chosen : 0;
    const drawn = [];
    for (const index of order) {
      const point = points[index];
      const text = point.label ?? point.text;
      const label = text.length > SHORTENED ? `${text.slice(0, SHORTENED - 1)}…` : text;
      const wide = isSpecial(index) ? 1.12 : 1; // bold
      const size = wide * [...label].reduce((sum, letter) => sum + (letter > "\u2e80" ? 13 : /[A-Z]/.test(letter) ? 9 : 6.9), 0);
      const { x, y } = this.places[index];
      const own = taken[index];
      taken[index] = [0, 0, 0, 0];
      const place = placeLabel(x, y, size, LINE, taken, [0, 20, width, height - 20]);
      taken[index] = own;
      const isShown = isSpecial(index) || place.cost < 0.35 * size * LINE;
      if (isShown) taken.push(place.box);
      const isLeft = place.box[2] <= x;
      const css = ["point", index === chosen && "chosen", near.includes(index) && "near", !isShown && "crowded"].filter(Boolean).join(" ");
      drawn[index] = svg("g", { class: css, role: "button", tabindex: index === stop ? "0" : "-1", "aria-pressed": String(index === chosen), "data-index": index, "aria-label": point.text }, svg("circle", { class: "hit", cx: x.toFixed(1), cy: y.toFixed(1), r: 11 }), marker(point.group ?? 0, x, y, 4.5), svg("text", { x: place.box[isLeft ? 2 : 0].toFixed(1), y: (place.box[3] - 3.5).toFixed(1), "text-anchor": isLeft ? "end" : null }, label));
    }
    const focused = this.picture.contains(document.activeElement) ? document.activeElement.dataset.index : null;
    put(this.picture, nodes, drawn);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.setAttribute("height", height);
    if (focused !== null) this.picture.querySelector(`[data-index="${focused}"]`)?.focus();
    return undefined;
  }

  #choose(point) {
    if (!point) return;
    point.focus();
    this.dispatchEvent(new CustomEvent("choose", { detail: Number(point.dataset.index), bubbles: true }));
  }

  #press(event) {
    const point = event.target.closest("[data-index]");
    if (!point) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#choose(point);
      return;
    }
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way) return;
    event.preventDefault();
    const from = this.places[point.dataset.index];
    let best = null;
    this.places.forEach(({ x, y }, index) => {
      const along = (x - from.x) * way[0] + (y - from.y) * way[1];
      const aside = Math.abs((x - from.x) * way[1]) + Math.abs((y - from.y) * way[0]);
      if (along > 0.5 && (!best || along + 2 * aside < best.cost)) best = { index, cost: along + 2 * aside };
    });
    if (!best) return;
    const next = this.picture.querySelector(`[data-index="${best.index}"]`);
    point.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }
}

customElements.define("nw-scatter", Scatter);
