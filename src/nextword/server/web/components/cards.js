/* <nw-cards>: one card for each model, side by side. What goes wrong with one model is shown in its card, while the
   others are drawn; what concerns all of them (no server, no key, a full queue, no record) is thrown. */

import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { dotClass } from "../core/models.js";

class Cards extends HTMLElement {
  connectedCallback() {
    this.classList.add("columns");
  }

  /** Cards for these models, in their order; draw(model, body) fills one. Old contents stay until they are replaced. */
  async show(models, draw) {
    const old = new Map([...this.children].map((card) => [card.dataset.model, card]));
    const cards = models.map((model) => old.get(model.id) ?? this.#card(model));
    if (cards.length !== this.children.length || cards.some((card, i) => card !== this.children[i])) put(this, cards);
    await Promise.all(models.map((model, i) => this.#fill(model, cards[i].lastElementChild, draw)));
  }

  #card(model) {
    const title = h("h2", {}, h("span", { class: dotClass(model.index), "aria-hidden": "true" }), model.id);
    return h("section", { class: "card", dataset: { model: model.id } }, title, h("div", {}, h("p", { class: "note" }, t("loading"))));
  }

  async #fill(model, body, draw) {
    try {
      await draw(model, body);
    } catch (error) {
      if (error.name !== "ApiError" || !error.status || [401, 429].includes(error.status)) throw error;
      put(body, h("p", { class: "failed", role: "alert" }, error.message));
    }
  }
}

customElements.define("nw-cards", Cards);
