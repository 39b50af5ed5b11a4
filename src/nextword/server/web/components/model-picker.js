/* <nw-model-picker>: choose one or several of the models that can do what a page needs. The others are listed with the
   reason why they cannot. Dispatches "pick" with the ids in `detail`. */

import { h, newId, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { divide, dotClass } from "../core/models.js";
import { count, fixed } from "../core/numbers.js";

class ModelPicker extends HTMLElement {
  #shown = ""; // what is listed: while it stays, chips keep the focus, and the reasons stay open

  /** need: an ability or view, or a list of alternatives; chosen: ids; multiple: several may be chosen. */
  show({ need, chosen, multiple = true, label = t("models") }) {
    const { able, unable } = divide(need);
    const shown = JSON.stringify([need, multiple, label, [able, unable].map((some) => some.map((model) => model.id))]);
    if (shown === this.#shown) {
      for (const input of this.querySelectorAll("input")) input.checked = chosen.includes(input.value);
      return;
    }
    this.#shown = shown;
    const name = newId("models");
    const pick = () => {
      const ids = [...this.querySelectorAll("input:checked")].map((input) => input.value);
      this.dispatchEvent(new CustomEvent("pick", { detail: ids, bubbles: true }));
    };
    put(
      this,
      h(
        "fieldset",
        { class: "chips" },
        h("legend", {}, label),
        able.length ? able.map((model) => this.#chip(model, { name, multiple, isChosen: chosen.includes(model.id), pick })) : h("p", { class: "note" }, t("none-can")),
      ),
      unable.length ? this.#reasons(unable, [need].flat()[0]) : null,
    );
  }

  #chip(model, { name, multiple, isChosen, pick }) {
    const id = newId("model");
    const input = h("input", { type: multiple ? "checkbox" : "radio", id, name, value: model.id, onchange: pick });
    input.checked = isChosen;
    const facts = [model.recipe, model.parameters && `${count(model.parameters)} ${t("parameters")}`, model.bitsPerByte && `${fixed(model.bitsPerByte, 3)} ${t("bits-per-byte")}`];
    return h("span", { class: "chip" }, input, h("label", { for: id, title: facts.filter(Boolean).join(" · ") }, h("span", { class: dotClass(model.index), "aria-hidden": "true" }), model.id));
  }

  #reasons(models, need) {
    return h(
      "details",
      { class: "reasons" },
      h("summary", {}, t("why-not", { models: models.map((model) => model.id).join(t("comma")) })),
      h("ul", {}, models.map((model) => h("li", {}, h("strong", {}, model.id), ": ", model.whyNot(need)))),
    );
  }
}

customElements.define("nw-model-picker", ModelPicker);
