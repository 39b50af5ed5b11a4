/* <nw-bars>: probabilities as bars, with their numbers as text. A row may be chosen: "choose" has it in `detail`. */

import { h, put } from "../core/dom.js";
import { percent } from "../core/numbers.js";
import { visible } from "../core/text.js";

class Bars extends HTMLElement {
  /** rows: [{text, name?, probability, note?, before?, isOwn?}]; `name` is shown for the text; `before` is drawn as an outline behind the bar; the row of the
   *  text itself is marked.
   *  label: what the list is, for a screen reader; color: 0–7; choosable: rows are buttons. */
  show(rows, { label, color = 0, choosable = false, language = "" } = {}) {
    const scale = Math.max(...rows.map((row) => Math.max(row.probability, row.before ?? 0)), 1e-12);
    const draw = (row) => {
      const bar = h("span", { class: "bar", "aria-hidden": "true" }, row.before === undefined ? null : h("i", { class: "before", style: { width: `${(100 * row.before) / scale}%` } }), row.probability === 0 ? null : h("i", { class: `c${color % 8}`, style: { width: `${(100 * row.probability) / scale}%` } }));
      const cells = [h("span", { class: "word", dir: "auto", lang: language || null }, row.name ?? visible(row.text)), bar, h("span", { class: "number" }, row.note ?? percent(row.probability))];
      const own = row.isOwn ? { class: "row own", "aria-current": "true" } : { class: "row" };
      if (!choosable) return h("li", {}, h("div", own, cells));
      return h("li", {}, h("button", { ...own, type: "button", onclick: () => this.dispatchEvent(new CustomEvent("choose", { detail: row, bubbles: true })) }, cells));
    };
    put(this, h("ol", { class: "bars", "aria-label": label }, rows.map(draw)));
  }
}

customElements.define("nw-bars", Bars);
