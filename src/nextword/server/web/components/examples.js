/* <nw-examples>: a row of texts to try. Dispatches "try" with the chosen one in `detail`. */

import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";

class Examples extends HTMLElement {
  /** examples: [{label?, value}]; the label is the value if left out, shortened. */
  show(examples) {
    const button = ({ label, value }) => h("button", { class: "plain", type: "button", dir: "auto", onclick: () => this.dispatchEvent(new CustomEvent("try", { detail: value, bubbles: true })) }, label ?? shorten(value));
    put(this, h("p", { class: "examples" }, h("span", {}, `${t("examples")} `), examples.map(button)));
  }
}

function shorten(text) {
  const points = [...text.replaceAll("\n", " ")];
  return points.length > 42 ? `${points.slice(0, 40).join("")}…` : points.join("");
}

customElements.define("nw-examples", Examples);
