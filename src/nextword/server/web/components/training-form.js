/* <nw-training-form>: what to train, on which text, for how long. Dispatches "start" with {upload: {name, text, kind} or
   null, body: of POST /api/jobs} in `detail`. Fields that depend on each other are drawn anew; the text that was typed
   stays. */

import { h, newId, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { count } from "../core/numbers.js";

const s = (name, values) => t(`train.${name}`, values);
const OWN = "own"; // of the list of texts: not there yet

class TrainingForm extends HTMLElement {
  #own = { name: "", text: "", kind: "text" };

  /** offer: {recipes, texts, limits, demo}, texts null until they are there; choice: {kind, data, recipe, models, minutes,
      prompt}, which the form keeps. */
  show(offer, choice) {
    this.offer = offer;
    this.choice = { ...choice };
    if (!offer.texts) return this.#draw();
    const ids = offer.texts.map((text) => text.id);
    const wanted = this.#recipe(choice.recipe);
    if (!ids.includes(this.choice.data) && this.choice.data !== OWN) this.choice.data = offer.texts.find((text) => text.id === offer.demo?.data && (!wanted || wanted.reads === "text"))?.id ?? offer.texts.find((text) => text.kind === (wanted?.reads ?? "text"))?.id ?? OWN;
    return this.#draw();
  }

  #recipe(name) {
    return this.offer.recipes.find((recipe) => recipe.name === name);
  }

  get #reads() {
    if (this.choice.data === OWN) return this.#own.kind;
    if (!this.offer.texts) return this.#recipe(this.choice.recipe)?.reads ?? "text";
    return this.offer.texts.find((text) => text.id === this.choice.data)?.kind;
  }

  #set(changes) {
    Object.assign(this.choice, changes);
    this.dispatchEvent(new CustomEvent("choice", { detail: this.choice, bubbles: true }));
    this.#draw();
  }

  #draw() {
    const focused = document.activeElement?.dataset?.field;
    const { choice, offer } = this;
    const recipes = offer.recipes.filter((recipe) => recipe.reads === this.#reads);
    if (!recipes.some((recipe) => recipe.name === choice.recipe)) choice.recipe = (recipes.find((recipe) => recipe.name === "lstm/small") ?? recipes[0])?.name ?? "";
    if (!choice.models.some((name) => recipes.some((recipe) => recipe.name === name))) choice.models = recipes.filter((recipe) => recipe.in_ladder).map((recipe) => recipe.name);
    const isCompare = choice.kind === "compare";
    put(
      this,
      h(
        "form",
        { class: "training-form", onsubmit: (event) => this.#start(event) },
        this.#kinds(),
        this.#texts(),
        choice.data === OWN ? this.#ownText() : null,
        isCompare ? this.#chips(recipes) : this.#recipes(recipes),
        h("div", { class: "fields" }, this.#minutes(isCompare), this.#field("prompt", h("input", { type: "text", dir: "auto", maxlength: offer.limits.prompt, placeholder: s("prompt-example"), oninput: (event) => (choice.prompt = event.target.value) }), s("prompt-help")), this.#field("name", h("input", { type: "text", maxlength: offer.limits.name, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*", placeholder: s("name-example"), oninput: (event) => (choice.name = event.target.value) }), s("name-help"))),
        h("p", { class: "submit" }, (this.button = h("button", { type: "submit", disabled: !offer.texts }, s(isCompare ? "start-compare" : "start-train"))), " ", (this.problem = h("span", { class: "note", role: "alert" }))),
      ),
    );
    this.querySelector("[data-field=prompt]").value = choice.prompt ?? "";
    this.querySelector("[data-field=name]").value = choice.name ?? "";
    if (focused) this.querySelector(`[data-field="${focused}"]`)?.focus();
  }

  #kinds() {
    const chip = (kind) => {
      const input = h("input", { type: "radio", name: "kind", value: kind, id: `kind-${kind}`, dataset: { field: `kind-${kind}` }, onchange: () => this.#set({ kind, minutes: 0 }) });
      input.checked = this.choice.kind === kind;
      return h("span", { class: "chip" }, input, h("label", { for: input.id }, s(`kind:${kind}`)));
    };
    return h("fieldset", { class: "chips" }, h("legend", {}, s("what")), chip("compare"), chip("train"));
  }

  #texts() {
    if (!this.offer.texts) return this.#field("data", h("select", { disabled: true }, h("option", {}, t("loading"))));
    const size = (text) => (text.bytes ? ` · ${bytes(text.bytes)}` : "");
    const options = this.offer.texts.map((text) => h("option", { value: text.id }, `${text.name}${size(text)}${text.kind === "pairs" ? ` · ${s("pairs")}` : ""}`));
    const select = h("select", { onchange: () => this.#set({ data: select.value }) }, options, h("option", { value: OWN }, s("own-text")));
    select.value = this.choice.data;
    const preview = this.offer.texts.find((text) => text.id === this.choice.data)?.preview;
    return this.#field("data", select, preview ? h("span", { dir: "auto", class: "preview" }, `“${preview.replace(/\s+/g, " ").slice(0, 160)}…”`) : null);
  }

  #ownText() {
    const own = this.#own;
    const size = h("span", { class: "note", role: "status" });
    const area = h("textarea", { rows: 6, dir: "auto", spellcheck: "false", placeholder: s("own-placeholder"), oninput: () => ((own.text = area.value), measure()) });
    area.value = own.text.length > 200_000 ? "" : own.text;
    const measure = () => put(size, s("size", { size: count(own.text.length), most: count(this.offer.limits.text) }));
    measure();
    const read = async (event) => {
      const file = event.target.files[0];
      if (!file) return;
      if (file.size > 4 * this.offer.limits.text) return put(this.problem, s("too-large", { size: bytes(file.size) }));
      Object.assign(own, { text: await file.text(), name: own.name || file.name.replace(/\.\w+$/, ""), kind: /\.tsv$/i.test(file.name) ? "pairs" : own.kind });
      return this.#draw();
    };
    const kind = h("select", { onchange: () => ((own.kind = kind.value), this.#draw()) }, h("option", { value: "text" }, s("own-kind:text")), h("option", { value: "pairs" }, s("own-kind:pairs")));
    kind.value = own.kind;
    const name = h("input", { type: "text", maxlength: 80, oninput: () => (own.name = name.value) });
    name.value = own.name;
    return h("div", { class: "own" }, this.#field("text", area, h("span", {}, own.text.length > 200_000 ? `${s("file-read")} ` : null, size, ` ${s("local-only")}`)), h("div", { class: "fields" }, this.#field("file", h("input", { type: "file", accept: ".txt,.md,.tsv,text/*", onchange: read })), this.#field("text-name", name), this.#field("text-kind", kind)));
  }

  #recipes(recipes) {
    const group = (size) => h("optgroup", { label: s(`size:${size}`) }, recipes.filter((recipe) => recipe.size === size).map((recipe) => h("option", { value: recipe.name }, `${recipe.title} · ${s("about-minutes", { n: brief(recipe.minutes) })}`)));
    const select = h("select", { onchange: () => this.#set({ recipe: select.value, minutes: 0 }) }, group("small"), group("tiny"));
    select.value = this.choice.recipe;
    const recipe = this.#recipe(this.choice.recipe);
    return this.#field("recipe", select, recipe ? h("span", {}, h("span", { dir: "auto" }, `${recipe.description.replaceAll("`", "")} `, h("cite", {}, recipe.paper), ". "), s("can", { list: recipe.can.map((each) => s(`can:${each}`)).join(s("comma")) })) : null);
  }

  #chips(recipes) {
    const chip = (recipe) => {
      const id = newId("recipe");
      const toggle = () => this.#set({ models: input.checked ? [...this.choice.models, recipe.name] : this.choice.models.filter((name) => name !== recipe.name) });
      const input = h("input", { type: "checkbox", id, dataset: { field: recipe.name }, onchange: toggle });
      input.checked = this.choice.models.includes(recipe.name);
      return h("span", { class: "chip" }, input, h("label", { for: id, title: `${recipe.description} ${recipe.paper}` }, recipe.size === "small" ? recipe.title : `${recipe.title} (${s(`size:${recipe.size}`)})`));
    };
    const isMain = (recipe) => recipe.in_ladder || this.choice.models.includes(recipe.name);
    const others = recipes.filter((recipe) => !isMain(recipe) && recipe.can.includes("score"));
    const wasOpen = this.querySelector("details.others")?.open;
    return h("fieldset", { class: "field" }, h("legend", {}, s("models-n", { n: this.choice.models.length })), h("div", { class: "chips" }, recipes.filter(isMain).map(chip)), others.length ? h("details", { class: "more others", open: wasOpen }, h("summary", {}, s("other-models", { n: others.length })), h("div", { class: "chips" }, others.map(chip))) : null);
  }

  #minutes(isCompare) {
    const recipe = this.#recipe(this.choice.recipe);
    const usual = isCompare ? (this.offer.demo?.minutes ?? 4) : (recipe?.minutes ?? 3);
    const input = h("input", { type: "number", min: 0.01, max: this.offer.limits.minutes, step: "any", required: true, oninput: () => (this.choice.minutes = Number(input.value)) });
    input.value = this.choice.minutes || brief(usual);
    const isCounted = !isCompare && recipe && !recipe.has_budget;
    input.disabled = isCounted;
    return this.#field("minutes", input, s(isCounted ? "minutes-counted" : isCompare ? "minutes-compare" : "minutes-train"));
  }

  #field(name, control, help = null) {
    const id = newId(name);
    control.id = id;
    control.dataset.field = name;
    if (help) control.setAttribute("aria-describedby", `${id}-help`);
    return h("div", { class: "field" }, h("label", { for: id }, s(`field:${name}`)), control, help ? h("p", { id: `${id}-help`, class: "note" }, help) : null);
  }

  #start(event) {
    event.preventDefault();
    const { choice } = this;
    const isCompare = choice.kind === "compare";
    const upload = choice.data === OWN ? { name: this.#own.name.trim() || s("own-name"), text: this.#own.text, kind: this.#own.kind } : null;
    if (upload && !upload.text.trim()) return this.fail(s("text-missing"));
    if (isCompare && !choice.models.length) return this.fail(s("models-missing"));
    const minutes = Number(this.querySelector("[data-field=minutes]").value);
    const body = { kind: choice.kind, data: choice.data };
    if (isCompare) body.models = choice.models;
    else body.recipe = choice.recipe;
    if (isCompare || this.#recipe(choice.recipe)?.has_budget) body.minutes = minutes;
    if (choice.prompt?.trim()) body.prompt = choice.prompt.trim();
    if (choice.name?.trim()) body.name = choice.name.trim();
    return this.dispatchEvent(new CustomEvent("start", { detail: { upload, body }, bubbles: true }));
  }

  /** The text was uploaded: choose it from now on. */
  uploaded(text) {
    Object.assign(this.#own, { name: "", text: "" });
    this.choice.data = text.id;
  }

  /** Say what is wrong. */
  fail(text) {
    put(this.problem, text);
    this.busy(false);
  }

  busy(isBusy) {
    this.button.disabled = isBusy;
    if (isBusy) put(this.problem);
  }
}

/** A size: 135 B, 4.03 MB. */
function bytes(number) {
  const text = count(number);
  return text.includes(" ") ? `${text}B` : `${text} B`;
}

/** Minutes: 3, 0.5, 12. */
function brief(minutes) {
  return minutes >= 10 ? Math.round(minutes) : Number((minutes ?? 0).toPrecision(2));
}

customElements.define("nw-training-form", TrainingForm);
