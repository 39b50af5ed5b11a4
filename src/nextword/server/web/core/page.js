/* What every page of the playground is: a custom element with a state that is kept in the URL.

       class TypePage extends Page {
         static need = "next";                       // ability that the models must have, or a list of alternatives
         static defaults = { models: [], text: "" }; // the state; the types of the defaults are those of the values
         build() { … return [nodes] }                // create the content once
         async update(signal) { … }                  // the state is new: ask the server and draw
         requests() { return [{ path, body, python, cli }] }   // the same for other programs
       }

   `this.state` is read only; `this.set({text: "…"})` changes it, puts it into the URL, and has `update` called. A call of
   `update` that is under way is aborted through its signal when the next one begins, or when the page is left. Errors of
   `update` are shown above the content, with a button to try again; while it takes long, progress is shown, with a button
   to cancel. */

import { ApiError } from "./api.js";
import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { allModels, divide, diverse, findModel } from "./models.js";
import "../components/notice.js";

export class Page extends HTMLElement {
  static need = null;
  static defaults = {};

  state = {};
  onState = () => {}; // set by app.js: puts the state into the URL
  #controller = null;
  #notice = null;

  /** Show the page with this state. Called once, after it was put into the document. */
  begin(state) {
    this.state = state;
    this.#notice = h("nw-notice");
    put(this, h("div", { class: "page-body" }, this.build()), this.#notice);
    this.querySelector(".page-body").before(this.#notice);
    return this.refresh();
  }

  /** The state has changed from outside: somebody went back, or followed a link. */
  restore(state) {
    this.state = state;
    this.restored();
    return this.refresh();
  }

  /** Change the state. `quiet`: without asking the server again. */
  set(changes, { quiet = false } = {}) {
    this.state = { ...this.state, ...changes };
    this.onState(this.state);
    return quiet ? Promise.resolve() : this.refresh();
  }

  /** Run `update`, and show its progress and errors. */
  async refresh() {
    this.#controller?.abort();
    const controller = new AbortController();
    this.#controller = controller;
    this.#notice.begin(() => controller.abort());
    this.setAttribute("aria-busy", "true");
    try {
      await this.update(controller.signal);
      if (this.#controller === controller) this.#notice.clear();
    } catch (error) {
      if (this.#controller !== controller) return;
      if (error.name === "AbortError") this.#notice.clear();
      else this.#notice.fail(error, () => this.refresh());
      if (!(error instanceof ApiError) && error.name !== "AbortError") console.error(error);
    } finally {
      if (this.#controller === controller) this.removeAttribute("aria-busy");
    }
  }

  disconnectedCallback() {
    this.#controller?.abort();
  }

  /** Create the content: a list of nodes. */
  build() {
    return [];
  }

  /** Put the state into the fields, after `restore`. Default: build everything anew. */
  restored() {
    put(this.querySelector(".page-body"), this.build());
  }

  /** Ask the server for what the state says, and draw it. */
  async update(_signal) {}

  /** What the page asks the server now, for "copy as". */
  requests() {
    return [];
  }

  /** Ask for what a reader of the saved page may open. */
  async prepareToSave() {}

  /** The text of the page's own table, strings/PAGE.js. */
  t(key, values) {
    return t(`${this.constructor.id}.${key}`, values);
  }

  /** The chosen models that can do what the page needs; if none is chosen, `most` of different families. */
  chosen(most = 3, need = this.constructor.need) {
    const { able } = divide(need);
    const named = this.state.models.map(findModel).filter((model) => able.includes(model));
    return named.length ? named : diverse(able, most);
  }

  /** The one chosen model, or the best that can. */
  chosenOne(need = this.constructor.need) {
    const { able } = divide(need);
    return able.find((model) => model.id === this.state.model) ?? diverse(able, 1)[0];
  }

  get hasModels() {
    return allModels().length > 0;
  }
}
