/* <nw-choice>: one of a few options, as a row of radio buttons. Dispatches "pick" with the value in `detail`. */

import { h, newId, put } from "../core/dom.js";
import { dotClass } from "../core/models.js";

class Choice extends HTMLElement {
  #key = "";

  /** options: [{value, label, color?, note?}]. The same options again keep their elements, and so the focus. */
  show({ label, options, value }) {
    const key = JSON.stringify([label, options.map((option) => [option.value, option.label])]);
    if (key !== this.#key) this.#build(label, options);
    this.#key = key;
    for (const input of this.querySelectorAll("input")) input.checked = input.value === value;
    for (const { value: own, note = "" } of options) put(this.querySelector(`[data-note="${CSS.escape(own)}"]`), note);
  }

  #build(label, options) {
    const name = newId("choice");
    const pick = (event) => {
      event.stopPropagation();
      this.dispatchEvent(new CustomEvent("pick", { detail: event.target.value, bubbles: true }));
    };
    const option = ({ value, label: own, color }) => {
      const id = newId("option");
      const dot = color === undefined ? null : h("span", { class: dotClass(color), "aria-hidden": "true" });
      return h("span", { class: "chip" }, h("input", { type: "radio", id, name, value, onchange: pick }), h("label", { for: id }, dot, own, h("small", { dataset: { note: value } })));
    };
    put(this, h("div", { class: "chips", role: "radiogroup", "aria-label": label }, h("span", { class: "name", "aria-hidden": "true" }, label), options.map(option)));
  }
}

customElements.define("nw-choice", Choice);
