/* Tasks: fine-tuned runs classify, tag, answer and choose; any other model chooses among labels that are given. A result can
   be pinned, to see what changes when the text does. */

import { h, newId, put } from "../core/dom.js";
import { space, t } from "../core/i18n.js";
import { Latest } from "../core/latest.js";
import { ask } from "../core/memory.js";
import { divide } from "../core/models.js";
import { percent } from "../core/numbers.js";
import { Page } from "../core/page.js";
import { redraw } from "../core/redraw.js";
import { download } from "../core/saving.js";
import { TEMPLATE, csv, examplesOf, formOf, lines, requestOf } from "../core/task-forms.js";
import { compareWords } from "../core/differences.js";
import { signed } from "../components/label-result.js";
import "../components/answer-result.js";
import "../components/bars.js";
import "../components/examples.js";
import "../components/model-picker.js";
import "../components/tag-result.js";
import { examplesFor } from "../core/task-examples.js";

const MOST_COLUMNS = 8; // probabilities in the table of several texts
const MOST_LABELS = 20; // in a sentence
const FIELDS = ["text", "second", "question", "choices", "labels", "template", "task"]; // texts; null: that of the first example
const EMPTY = { ...Object.fromEntries(FIELDS.map((name) => [name, null])), label: "", tag: "", pin: [] };

export default class TasksPage extends Page {
  static need = ["task", "score", "embed"];
  static defaults = { model: "", ...EMPTY, calibrate: false, many: false };

  #typing = new Latest(() => this.refresh());
  #drawn = ""; // the form that is shown

  build() {
    this.picker = h("nw-model-picker", { onpick: (event) => this.#pick(event.detail[0]) });
    this.what = h("p", { class: "setting" });
    this.form = h("div", { class: "task-form" });
    this.results = h("div", { class: "task-results" });
    this.#drawn = "";
    return [this.picker, this.what, this.form, this.results];
  }

  async update(signal) {
    const model = this.#model();
    this.picker.show({ need: TasksPage.need, chosen: model ? [model.id] : [], multiple: false, label: this.t("model") });
    if (!model) return put(this.results, h("p", {}, this.t("none"), " ", h("a", { href: "#/train" }, this.t("train"))));
    const fields = this.#fields(model);
    const form = formOf(model, fields);
    this.#describe(model, form);
    this.#drawForm(model, form, fields);
    const now = await this.#ask(model, form, fields, signal, !this.state.pin.length || !fields.many);
    if (!now) return put(this.results, h("p", { class: "note" }, this.t(form.isZeroShot && form.labels.length < 2 ? "two-labels" : `empty:${form.kind}`)));
    if (fields.many && form.kind === "labels") return put(this.results, this.#table(form, fields, now));
    const pinned = this.#pinned(fields);
    const before = pinned && (await this.#ask(model, form, pinned, signal));
    return redraw(this.results, () => put(this.results, this.#compare(model, form, fields, now, pinned, before)));
  }

  requests() {
    const model = this.#model();
    if (!model) return [];
    const fields = this.#fields(model);
    const request = requestOf(model, formOf(model, fields), fields);
    return request ? [request] : [];
  }

  // ---------------------------------------------------------------------------------------------- what to ask

  #model() {
    const { able } = divide(TasksPage.need);
    return able.find((model) => model.id === this.state.model) ?? able.find((model) => model.task) ?? able[0];
  }

  #pick(id) {
    const form = (model) => model && JSON.stringify([formOf(model).kind, formOf(model).isPair, formOf(model).isZeroShot]);
    const next = divide(TasksPage.need).able.find((model) => model.id === id);
    const changes = form(next) === form(this.#model()) ? { label: "", tag: "", task: null } : EMPTY; // a text of another kind of form is of no use
    this.set({ model: id, ...changes });
  }

  /** The fields of the form: what was typed, else the first example for this model. */
  #fields(model) {
    const example = { text: "", second: "", question: "", choices: "", labels: "", template: TEMPLATE, task: "", ...examplesFor(model)[0]?.value };
    const own = Object.fromEntries(FIELDS.map((name) => [name, this.state[name] ?? example[name]]));
    return { ...own, calibrate: this.state.calibrate, many: this.state.many };
  }

  #pinned(fields) {
    const [text, second, question, choices] = this.state.pin;
    return text === undefined ? null : { ...fields, text, second: second ?? "", question: question ?? "", choices: choices ?? "" };
  }

  /** {prediction | sentences | answer, explanation}; null if there is nothing to ask. */
  async #ask(model, form, fields, signal) {
    const request = requestOf(model, form, fields);
    if (!request) return null;
    const isExplained = form.isExplained && !fields.many && fields.text.trim();
    const explain = isExplained && { model: model.id, text: fields.text, ...(form.isPair ? { second: fields.second } : {}), ...(this.state.label ? { label: this.state.label } : {}) };
    const [answer, explanation] = await Promise.all([
      ask(request.path, request.body, signal),
      explain ? ask("/api/explain", explain, signal).catch((error) => this.#unexplained(error)) : null,
    ]);
    if (form.kind === "tags") return { sentences: answer.sentences };
    if (form.kind === "answers") return { answer: answer.answers[0] };
    return { predictions: answer.predictions, prediction: answer.predictions[0], explanation };
  }

  #unexplained(error) {
    if (error.name !== "ApiError" || !error.status) throw error;
    return { message: error.message };
  }

  // ---------------------------------------------------------------------------------------------- the form

  #describe(model, form) {
    const isPrompted = model.task === "in_context";
    const key = isPrompted ? "what:in-context" : form.isZeroShot ? (model.can("score") ? "what:prompted" : "what:nearest") : `what:${form.isNumeric ? "number" : form.kind}`;
    const named = form.labels.slice(0, MOST_LABELS).map((label) => this.#gloss(model, label));
    const labels = named.length && !form.isZeroShot ? `${space()}${this.t("labels-are", { labels: named.join(t("comma")) + (form.labels.length > MOST_LABELS ? " …" : "") })}` : "";
    put(this.what, this.t(key, { model: model.id, count: form.labels.length, data: model.data }), labels);
  }

  /** A label, with what it means in well-known data whose labels are numbers. */
  #gloss(model, label) {
    const key = `gloss:${model.data.toLowerCase()}:${label}`;
    const meaning = this.t(key);
    return meaning.endsWith(key) ? label : this.t("glossed", { label, meaning });
  }

  /** Fields stay while somebody types into them; they are made anew for another kind of form. */
  #drawForm(model, form, fields) {
    const key = JSON.stringify([model.id, form.kind, form.isPair, form.tasks, this.state.many]);
    if (key !== this.#drawn) {
      this.#drawn = key;
      put(this.form, this.#makeForm(model, form, fields));
    }
    for (const input of this.form.querySelectorAll("[data-field]")) {
      const value = fields[input.dataset.field];
      if (input !== document.activeElement && input.value !== value) input.value = value;
    }
  }

  #makeForm(model, form, fields) {
    const field = (name, label, { rows = 0, help = "" } = {}) => {
      const id = newId(name);
      const attributes = { id, dir: "auto", spellcheck: "false", dataset: { field: name }, oninput: (event) => this.#type({ [name]: event.target.value }), "aria-describedby": help ? `${id}-help` : null };
      const input = rows ? h("textarea", { ...attributes, rows }) : h("input", { ...attributes, type: "text" });
      input.value = fields[name];
      return h("div", { class: "field" }, h("label", { for: id }, label), input, help ? h("p", { class: "note", id: `${id}-help` }, help) : null);
    };
    const check = (name, label) => {
      const id = newId(name);
      const input = h("input", { type: "checkbox", id, onchange: () => this.set({ [name]: input.checked }) });
      input.checked = this.state[name];
      return h("p", { class: "check" }, input, " ", h("label", { for: id }, label));
    };
    const examples = h("nw-examples", { ontry: (event) => this.set({ ...EMPTY, ...event.detail }) });
    examples.show(examplesFor(model));
    const many = this.state.many && form.kind === "labels";
    const text = { labels: many ? "texts" : form.isPair ? "first" : "text", tags: "sentences", answers: "passage", choices: "context" }[form.kind];
    return [
      form.isZeroShot ? [field("labels", this.t("field:labels"), { help: this.t("help:labels") }), model.can("score") ? field("template", this.t("field:template"), { help: this.t("help:template") }) : null, model.can("score") ? check("calibrate", this.t("calibrate")) : null] : null,
      form.tasks.length ? this.#tasks(form, fields) : null,
      field("text", this.t(`field:${text}`), { rows: many || form.kind === "answers" ? 6 : 3, help: many ? this.t(form.isPair ? "help:pairs" : "help:texts") : "" }),
      form.isPair && !many ? field("second", this.t("field:second"), { rows: 2 }) : null,
      form.kind === "answers" || form.kind === "choices" ? field("question", this.t(form.kind === "answers" ? "field:question" : "field:question-optional")) : null,
      form.kind === "choices" ? field("choices", this.t("field:choices"), { rows: 3 }) : null,
      examples,
      form.kind === "labels" ? check("many", this.t("many")) : null,
    ];
  }

  #tasks(form, fields) {
    const id = newId("task");
    const select = h("select", { id, onchange: () => this.set({ ...EMPTY, task: select.value }) }, form.tasks.map((name) => h("option", { value: name }, name)));
    select.value = form.tasks.includes(fields.task) ? fields.task : form.tasks[0];
    return h("div", { class: "field" }, h("label", { for: id }, this.t("field:task")), select);
  }

  #type(changes) {
    this.set(changes, { quiet: true });
    this.#typing.ask();
  }

  // ---------------------------------------------------------------------------------------------- results

  /** One result; or the pinned one and the one now, side by side. */
  #compare(model, form, fields, now, pinned, before) {
    const pin = () => this.set({ pin: [fields.text, fields.second, fields.question, fields.choices] });
    const button = h("button", { type: "button", class: "plain", dataset: { keep: "pin" }, onclick: pinned ? () => this.set({ pin: [] }) : pin }, this.t(pinned ? "unpin" : "pin"));
    const actions = h("p", { class: "actions" }, button, form.kind === "tags" ? this.#download(() => this.#tagRows(now.sentences), "tags") : null);
    const help = (key) => h("p", { class: "note" }, this.t(key), space(), form.isExplained && !form.isNumeric ? this.t("explain-help") : null);
    if (!pinned) return [h("div", { class: "case" }, this.#result(model, form, fields, now)), actions, help("pin-help")];
    const card = (title, own, result, other, old) => h("section", { class: "card" }, h("h2", {}, title), this.#changed(own, other), result ? h("div", { class: "case-body" }, this.#result(model, form, own, result, old)) : h("p", { class: "note" }, this.t(`empty:${form.kind}`)));
    return [h("div", { class: "columns pinned" }, card(this.t("pinned"), pinned, before, fields), card(this.t("now"), fields, now, pinned, before)), actions, help("compare-help")];
  }

  /** The texts of a form, with the words marked that the other form lacks. */
  #changed(own, other) {
    return ["text", "second", "question"].filter((name) => own[name] && own[name] !== other[name]).map((name) => h("p", { class: "text changed", dir: "auto" }, compareWords(own[name], other[name]).map(({ word, isSame }) => [isSame ? word : h("mark", {}, word), " "])));
  }

  #result(model, form, fields, result, before) {
    if (form.kind === "tags") {
      const view = h("nw-tag-result", { ontag: (event) => this.set({ tag: event.detail }) });
      view.show(result.sentences, { before: before?.sentences, tag: this.state.tag });
      return view;
    }
    if (form.kind === "answers") {
      const view = h("nw-answer-result", { onanswer: (event) => this.set({ label: event.detail }) });
      const shown = result.answer.best.some((each) => each.text === this.state.label) ? this.state.label : "";
      view.show(result.answer, fields.text, { before: before?.answer, shown, color: model.index });
      return view;
    }
    if (form.kind === "choices") return this.#choices(model, fields, result.prediction, before?.prediction);
    const view = h("nw-label-result", { onlabel: (event) => this.set({ label: event.detail }) });
    const { message } = result.explanation ?? {};
    view.show(result.prediction, { before: before?.prediction, explanation: message ? null : result.explanation, color: model.index, isExplained: form.isExplained, nameOf: (label) => this.#gloss(model, label) });
    const why = message ?? (form.isExplained ? "" : this.t((form.isZeroShot && model.can("score")) || model.task === "in_context" ? "not-explained:prompted" : "not-explained:run"));
    return [view, why ? h("p", { class: "note why" }, why) : null];
  }

  #choices(model, fields, { predicted, probabilities }, before) {
    const rows = lines(fields.choices).map((text, i) => {
      const old = before?.probabilities[i];
      const change = old === undefined ? "" : ` ${signed(100 * (probabilities[i] - old), 1)}`;
      return { text, probability: probabilities[i], before: old, isOwn: i === predicted, note: percent(probabilities[i]) + change };
    });
    const bars = h("nw-bars", { class: "long" });
    bars.show(rows, { label: this.t("probabilities"), color: model.index });
    return [h("p", { class: "verdict" }, h("strong", { dir: "auto" }, rows[predicted]?.text ?? ""), ` ${percent(probabilities[predicted])}`), bars];
  }

  /** Several texts as a table. */
  #table(form, fields, { predictions }) {
    const examples = examplesOf(form, fields, true);
    const labels = form.isNumeric ? [] : Object.keys(predictions[0].probabilities);
    const shown = labels.slice(0, MOST_COLUMNS);
    const head = [this.t("column:text"), ...(form.isPair ? [this.t("column:second")] : []), this.t("column:predicted")];
    const row = (example, { predicted, probabilities }) =>
      h("tr", {}, [example].flat().map((text) => h("td", { class: "config", dir: "auto" }, text)), h("td", { class: "main" }, form.isNumeric ? predicted.toFixed(3) : predicted), shown.map((label) => h("td", { class: "n" }, h("span", { class: "amount", "aria-hidden": "true" }, h("i", { style: { width: `${100 * probabilities[label]}%` } })), percent(probabilities[label]))));
    const rows = () => [
      ["text", ...(form.isPair ? ["second"] : []), "predicted", ...labels.map((label) => `p(${label})`)],
      ...examples.map((example, i) => [...[example].flat(), predictions[i].predicted, ...labels.map((label) => predictions[i].probabilities[label].toFixed(6))]),
    ];
    const counts = new Map();
    for (const { predicted } of predictions) counts.set(predicted, (counts.get(predicted) ?? 0) + 1);
    const summary = form.isNumeric ? "" : [...counts].sort((a, b) => b[1] - a[1]).map(([label, count]) => `${label} ${count}`).join(" · ");
    return [
      h("p", { class: "actions" }, this.#download(rows, "predictions"), h("span", { class: "note" }, this.t("count", { count: predictions.length }), summary && `: ${summary}`)),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": this.t("table") }, h("table", { class: "predictions" }, h("caption", {}, this.t("table")), h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)), shown.map((label) => h("th", { scope: "col", class: "n" }, `p(${label})`)))), h("tbody", {}, examples.map((example, i) => row(example, predictions[i]))))),
      lines(fields.text).length > examples.length ? h("p", { class: "note" }, this.t("cut", { count: examples.length })) : null,
    ];
  }

  #tagRows(sentences) {
    const flat = (tags, i) => (Array.isArray(tags) ? tags[i] : Object.values(tags).map((own) => own[i]).join(" "));
    return [["sentence", "word", "tag"], ...sentences.flatMap(({ words, tags }, number) => words.map((word, i) => [number + 1, word, flat(tags, i)]))];
  }

  #download(rows, name) {
    return h("button", { type: "button", class: "plain", dataset: { download: name }, onclick: () => download(`${name}.csv`, csv(rows()), "text/csv") }, this.t("csv"));
  }
}
