/* Type: the next words of several models while you type. Tab takes the first word of the first model. */

import { post } from "../core/api.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { debounce, h, newId, put } from "../core/dom.js";
import { Latest } from "../core/latest.js";
import { Page } from "../core/page.js";
import { visible } from "../core/text.js";
import "../components/bars.js";
import "../components/cards.js";
import "../components/examples.js";
import "../components/model-picker.js";

const SHOWN = 8; // words of each model
const QUIET_MS = 1000; // without a key, before a screen reader says the words
const EXAMPLES = ["In the beginning God created the", "The king said to his", "And it came to pass", "Blessed are the"];

export default class TypePage extends Page {
  static need = "next";
  static defaults = { models: [], text: EXAMPLES[0] };

  #typing = new Latest(() => this.refresh());
  #isLeaving = false; // after Escape, Tab moves on
  #announce = debounce(QUIET_MS, () => put(this.status, [...this.results.querySelectorAll("nw-bars")].map((bars) => `${bars.model}: ${visible(bars.first)}. `)));

  build() {
    const id = newId("text");
    this.field = h("textarea", { id, dir: "auto", rows: 3, spellcheck: "false", oninput: () => this.#type(), onkeydown: (event) => this.#accept(event), "aria-describedby": `${id}-help` });
    this.field.value = this.state.text;
    this.picker = h("nw-model-picker", { onpick: (event) => this.set({ models: event.detail }) });
    this.results = h("nw-cards");
    this.status = h("p", { class: "sr", role: "status" });
    const examples = h("nw-examples", { ontry: (event) => this.#use(event.detail) });
    examples.show(EXAMPLES.map((value) => ({ value })));
    return [
      this.picker,
      h("div", { class: "field" }, h("label", { for: id }, this.t("label")), this.field, h("p", { id: `${id}-help`, class: "note" }, this.t("help"))),
      examples,
      this.results,
      h("p", { class: "note scale" }, this.t("scale")),
      this.status,
    ];
  }

  async update(signal) {
    const models = this.chosen();
    this.picker.show({ need: "next", chosen: models.map((model) => model.id) });
    const text = this.state.text;
    await this.results.show(models, async (model, body) => {
      const { guesses } = await post("/api/next", { model: model.id, text, k: SHOWN }, { signal });
      this.#draw(model, body, text, guesses);
    });
    this.#announce();
  }

  requests() {
    return this.chosen().map((model) => ({
      path: "/api/next",
      body: { model: model.id, text: this.state.text, k: SHOWN },
      python: `nextword.load(${quotePython(`RUNS/${model.id}`)}).next(${quotePython(this.state.text)}, k=${SHOWN})`,
      cli: `nextword next ${quoteShell(`RUNS/${model.id}`)} ${quoteShell(this.state.text)} -k ${SHOWN}`,
    }));
  }

  #type() {
    this.set({ text: this.field.value }, { quiet: true });
    this.#typing.ask();
  }

  #use(text) {
    this.field.value = text;
    this.field.focus();
    this.#type();
  }

  #accept(event) {
    this.#isLeaving = event.key === "Escape" || (this.#isLeaving && event.key === "Tab");
    const bars = this.results.querySelector("nw-bars");
    if (this.#isLeaving || event.key !== "Tab" || event.shiftKey || event.ctrlKey || event.altKey || !bars?.first) return;
    event.preventDefault();
    if (bars.text === this.field.value) this.#insert(bars.first); // otherwise the word follows an older text
  }

  /** Put a word behind the text, with a space where the text has none. */
  #insert(word) {
    const text = this.field.value;
    const space = text && !/\s$/.test(text) && /^[\p{L}\p{N}]/u.test(word) ? " " : "";
    this.#use(text + space + word.trim());
  }

  #draw(model, body, text, guesses) {
    const bars = body.querySelector("nw-bars") ?? h("nw-bars", { onchoose: (event) => this.#insert(event.detail.text) });
    if (!bars.isConnected) put(body, bars);
    const rows = guesses.map((guess) => ({ text: guess.text, probability: guess.probability }));
    bars.show(rows, { label: this.t("bars", { model: model.id }), color: model.index, choosable: true });
    Object.assign(bars, { model: model.id, text, first: guesses[0]?.text ?? "" });
  }
}
