/* Inside: one model, one text, and a view for each thing that the model has: attention, layers, gates, gradients, saliency.

   A view (inside/VIEW.js) is a class: constructor(page), nodes, update(signal), requests(). */

import { post } from "../core/api.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { debounce, h, newId, put } from "../core/dom.js";
import { divide, diverse } from "../core/models.js";
import { Page } from "../core/page.js";
import "../components/examples.js";
import "../components/model-picker.js";
import AttentionView from "./inside/attention.js";
import { examplesOf } from "./inside/examples.js";
import GatesView from "./inside/gates.js";
import GradientView from "./inside/gradient.js";
import LayersView from "./inside/layers.js";
import SaliencyView from "./inside/saliency.js";

const VIEWS = { attention: AttentionView, layers: LayersView, gates: GatesView, gradient: GradientView, saliency: SaliencyView };
const NAMES = Object.keys(VIEWS);
const TYPING_MS = 200;

export default class InsidePage extends Page {
  static need = NAMES.map((name) => `view:${name}`);
  static defaults = {
    ...{ model: "", view: "attention", text: "", source: "" },
    ...{ kind: "", layer: 0, head: 0, row: -1 }, // attention
    ...{ position: -1, gate: "", order: "mean", other: "", step: -1 }, // layers, gates, gradients
    ...{ target: "", method: "integrated_gradients" }, // saliency
  };
  static places = { row: -1, position: -1, step: -1, target: "" }; // what another text or model resets

  #shown = null; // the view that is drawn
  #isOwn = false; // whether the reader wrote the text; else it is the example of the view

  build() {
    this.#isOwn = Boolean(this.state.text || this.state.source);
    this.#shown = null;
    const later = debounce(TYPING_MS, () => this.set({ text: this.field.value, source: this.sourceField.value, ...InsidePage.places }));
    const area = (rows) => h("textarea", { id: newId("text"), dir: "auto", rows, spellcheck: "false", oninput: () => ((this.#isOwn = true), later()) });
    [this.field, this.sourceField] = [area(2), area(2)];
    const label = (field, key) => h("div", { class: "field" }, h("label", { for: field.id }, this.t(key)), field);
    this.picker = h("nw-model-picker", { onpick: (event) => this.set({ model: event.detail[0], layer: 0, head: 0, ...InsidePage.places }) });
    this.sourceBox = label(this.sourceField, "source");
    this.textBox = label(this.field, "text-label");
    this.examples = h("nw-examples", { ontry: (event) => this.#try(event.detail) });
    this.tabs = h("div", { class: "view-tabs", role: "tablist", "aria-label": this.t("views"), onclick: (event) => this.#open(event), onkeydown: (event) => this.#moveTab(event) });
    this.reasons = h("div", { class: "note view-reasons" });
    this.about = h("p", { class: "about" });
    this.panel = h("div", { role: "tabpanel", id: newId("view"), class: "view" });
    return [this.picker, h("div", { class: "two-texts" }, this.sourceBox, this.textBox), this.examples, this.tabs, this.reasons, this.about, this.panel];
  }

  /** The view of the state, or the first that the model has. */
  get view() {
    const names = NAMES.filter((name) => this.model.can(`view:${name}`));
    return names.includes(this.state.view) ? this.state.view : names[0];
  }

  /** The chosen model, or one that has the view. */
  get model() {
    const { able } = divide(InsidePage.need);
    const fitting = able.filter((model) => model.views?.includes(this.state.view));
    return able.find((model) => model.id === this.state.model) ?? diverse(fitting.length ? fitting : able, 1)[0];
  }

  get example() {
    return examplesOf(this.view, this.model)[0];
  }

  get text() {
    if (this.translation !== undefined && !this.state.text) return this.translation;
    return this.#isOwn ? this.state.text : this.example.text;
  }

  /** What a sequence-to-sequence model reads; undefined for all others. */
  get source() {
    if (!this.model.isSeq2seq) return undefined;
    return this.#isOwn ? this.state.source : this.example.source;
  }

  /** The room for a chart, in pixels. */
  get width() {
    return this.panel.clientWidth;
  }

  async update(signal) {
    const { model } = this;
    this.picker.show({ need: InsidePage.need, chosen: model ? [model.id] : [], multiple: false, label: this.t("model") });
    if (!model) return put(this.panel);
    const { view } = this;
    this.#drawTabs();
    this.#drawFields();
    put(this.about, this.t(`about:${view}`));
    this.translation = undefined;
    if (model.isSeq2seq ? !this.source.trim() : !this.text.trim()) return this.#show(null, h("p", { class: "note" }, this.t("empty")));
    if (model.isSeq2seq && !this.text.trim() && view !== "gates" && !model.infills) {
      this.translation = (await post("/api/translate", { model: model.id, source: this.source }, { signal })).text;
      this.field.placeholder = this.translation;
    }
    const shown = this.#shown instanceof VIEWS[view] ? this.#shown : new VIEWS[view](this);
    this.panel.classList.add("pending"); // what is shown stays until the new is ready
    try {
      await shown.update(signal);
      if (shown !== this.#shown) this.#show(shown, ...shown.nodes);
    } catch (error) {
      if (error.name !== "AbortError") this.#show(null); // numbers of another text must not stay
      throw error;
    } finally {
      this.panel.classList.remove("pending");
    }
    return undefined;
  }

  /** The other views are in a saved page, too. */
  async prepareToSave() {
    const { state } = this;
    try {
      for (const name of NAMES.filter((each) => each !== this.view && this.model.can(`view:${each}`))) {
        this.state = { ...state, view: name, model: this.model.id };
        if (this.text.trim() || this.source?.trim()) await new VIEWS[name](this).update().catch(() => {}); // what fails is not saved
      }
    } finally {
      this.state = state;
    }
  }

  requests() {
    return this.#shown?.requests() ?? [];
  }

  // ---------------------------------------------------------------------------------------------- for the views

  /** The text, the source and the model as Python writes them. */
  get quoted() {
    return { text: quotePython(this.text), source: quotePython(this.source ?? ""), load: this.load(this.model) };
  }

  quote(text) {
    return quotePython(text);
  }

  load(model) {
    return `nextword.load(${quotePython(`RUNS/${model.id}`)})`;
  }

  command(view, model = this.model) {
    return `nextword next ${quoteShell(`RUNS/${model.id}`)} ${quoteShell(this.text)} --explain ${view}`;
  }

  // ---------------------------------------------------------------------------------------------- the frame

  #show(view, ...nodes) {
    this.#shown = view;
    put(this.panel, nodes);
  }

  #drawFields() {
    const { model } = this;
    this.sourceBox.hidden = !model.isSeq2seq;
    this.textBox.hidden = model.isSeq2seq && this.view === "gates";
    this.field.placeholder = model.isSeq2seq && !model.infills ? this.t("own-translation") : "";
    if (!this.#isOwn) {
      this.field.value = this.example.text;
      this.sourceField.value = this.example.source ?? "";
    } else if (!this.contains(document.activeElement) || !["TEXTAREA"].includes(document.activeElement.tagName)) {
      this.field.value = this.state.text;
      this.sourceField.value = this.state.source;
    }
    this.examples.show(examplesOf(this.view, model).map((value) => ({ label: shorten(value.source ?? value.text), value })));
  }

  #try({ text, source = "" }) {
    this.#isOwn = true;
    this.field.value = text;
    this.sourceField.value = source;
    this.set({ text, source, ...InsidePage.places });
  }

  #drawTabs() {
    const { model, view } = this;
    const tab = (name) => {
      const can = model.can(`view:${name}`);
      return h("button", { type: "button", role: "tab", id: `tab-${name}`, dataset: { view: name }, "aria-selected": String(name === view), "aria-controls": this.panel.id, "aria-disabled": can ? null : "true", "aria-describedby": can ? null : `why-${name}`, tabindex: name === view ? 0 : -1 }, this.t(`view:${name}`));
    };
    const focused = this.tabs.contains(document.activeElement) ? document.activeElement.dataset.view : null;
    put(this.tabs, NAMES.map(tab));
    if (focused) this.tabs.querySelector(`[data-view="${focused}"]`).focus();
    this.panel.setAttribute("aria-labelledby", `tab-${view}`);
    const lacking = NAMES.filter((name) => !model.can(`view:${name}`));
    put(this.reasons, lacking.map((name) => h("p", { id: `why-${name}` }, h("strong", {}, this.t(`view:${name}`)), ": ", this.#whyNot(name), " ", this.#alternatives(name))));
  }

  /** Why the model lacks a view: what kind of network it is decides. */
  #whyNot(name) {
    const { model } = this;
    const isTransformer = model.views?.includes("layers");
    const isRecurrent = model.views?.includes("gates");
    if (isTransformer && (name === "gates" || name === "gradient")) return this.t(`no:${name}:transformer`);
    if (isRecurrent) return this.t(`no:${name}:recurrent`);
    return model.whyNot(`view:${name}`);
  }

  /** Models that have a view, as buttons that go there. */
  #alternatives(name) {
    const able = divide(`view:${name}`).able.filter((model) => model.views).slice(0, 3);
    return able.map((model) => h("button", { type: "button", class: "link", onclick: () => this.set({ model: model.id, view: name, layer: 0, head: 0, ...InsidePage.places }) }, this.t("see", { model: model.id })));
  }

  #open(event) {
    const name = event.target.closest("[role=tab]:not([aria-disabled])")?.dataset.view;
    if (!name || name === this.view) return;
    // A model that the page chose itself stays
    this.set({ view: name, model: this.model.id, layer: 0, head: 0, ...InsidePage.places });
  }

  #moveTab(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const tabs = [...this.tabs.children];
    const at = tabs.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = tabs[(at + step + tabs.length) % tabs.length];
    next.focus();
    if (!next.hasAttribute("aria-disabled")) next.click();
  }
}


function shorten(text) {
  const points = [...text];
  return points.length > 44 ? `${points.slice(0, 42).join("").trimEnd()}…` : text;
}
