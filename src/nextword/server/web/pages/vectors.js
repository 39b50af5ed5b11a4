/* Vectors: words, texts, or one word in several texts as points on a plane; their neighbors; sums of words.

   One request brings the vectors of all points. Neighbors among them, and the plane, are computed here, so a click is
   answered at once, in a saved page, too. Tables of word vectors are searched by the server as a whole. */

import { post } from "../core/api.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { h, newId, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { Latest } from "../core/latest.js";
import { Page } from "../core/page.js";
import { isZero, nearest, parseSum, principalComponents, sumOf } from "../core/vectors.js";
import "../components/bars.js";
import "../components/examples.js";
import "../components/model-picker.js";
import "../components/scatter.js";

const GROUPS = {
  family: "father mother son daughter brother sister wife husband",
  rulers: "king queen prince lord servant priest prophet",
  names: "Moses David Saul Solomon Abraham Jacob Joseph Mary Peter Paul",
  places: "Egypt Israel Jerusalem Babylon Zion Galilee",
  numbers: "one two three four five six seven eight nine ten",
  animals: "lamb sheep goat ox donkey camel lion dove eagle serpent",
  food: "bread wine oil honey water milk meat",
  acts: "said spoke told went came gave took made",
};
const SENTENCES = ["In the beginning God created the heavens and the earth.", "He made the moon and the stars also.", "The king gathered his army against the city.", "They fought with swords and burned the walls.", "Love is patient and is kind.", "Blessed are the peacemakers.", "He ate bread and drank wine.", "They gave him a piece of broiled fish and honey."];
const MEANINGS = {
  left: ["Do not turn to the right hand or to the left.", "He set one on his right hand and one on his left.", "He looked to the right and to the left.", "The king went out and left the city.", "Then he left his father and his mother.", "He left them and went up to the mountain."],
  bear: ["You shall not bear false witness.", "A good tree will bear good fruit.", "She will conceive and bear a son.", "The lion and the bear came out of the woods.", "He killed both the lion and the bear.", "It is like meeting a bear robbed of her cubs."],
  light: ["God said, Let there be light, and there was light.", "The light of the moon will be like the light of the sun.", "You are the light of the world.", "My yoke is easy, and my burden is light.", "This is a light thing in the eyes of the LORD.", "Is it a light thing that you profane the sanctuary?"],
};
const SUMS = ["king - man + woman", "father - son + daughter", "brother - man + woman", "wife - woman + man"];
const WORD_TOKENIZERS = ["words", "lexicon", "characters"];
const SPACED = ["bpe", "unigram", "bytes"]; // a word within a text has its space in front
const MOST = 150; // points
const NEIGHBORS = 8;

export default class VectorsPage extends Page {
  static need = "embed";
  static defaults = { model: "", mode: "words", groups: ["family", "rulers", "names", "places", "animals", "food"], more: "", texts: SENTENCES.join("\n"), word: "left", contexts: MEANINGS.left.join("\n"), layer: "", query: "king", sum: SUMS[0] };

  #typing = new Latest(() => this.refresh());
  #drawn = null; // what is drawn: {items, vectors, groups, names, terms}

  build() {
    this.picker = h("nw-model-picker", { onpick: (event) => this.set({ model: event.detail[0] ?? "", layer: "" }) });
    this.modes = h("fieldset", { class: "chips inline" });
    this.fields = h("div", {});
    this.layers = h("fieldset", { class: "chips inline" });
    this.plane = h("nw-scatter", { onchoose: (event) => this.#choose(event.detail) });
    this.share = h("p", { class: "note" });
    this.near = h("section", { class: "card", "aria-live": "polite" });
    this.unknown = h("p", { class: "note" });
    this.sums = h("section", {});
    this.frame = h("div", { class: "plane" }, h("div", {}, this.plane, this.share), this.near);
    this.area = h("div", {}, this.unknown, this.frame, this.sums);
    this.#drawModes();
    this.#drawFields();
    this.#drawSums();
    return [this.picker, this.modes, this.fields, this.layers, this.area];
  }

  async update(signal) {
    const model = this.chosenOne();
    this.picker.show({ need: "embed", chosen: model ? [model.id] : [], multiple: false, label: t("model") });
    this.area.hidden = !model;
    if (!model) return;
    const isContext = this.state.mode === "contexts";
    const items = isContext ? lines(this.state.contexts) : this.state.mode === "texts" ? lines(this.state.texts) : this.#words();
    put(this.unknown);
    this.#drawn = items.length ? await (isContext ? this.#readContexts(model, items, signal) : this.#readItems(model, items, signal)) : { items: [] };
    const isEnough = this.#drawn.items.length > 2;
    for (const part of [this.frame, this.sums, this.layers]) part.hidden = !isEnough;
    if (!isEnough) {
      this.unknown.append(this.t("too-few"));
      return;
    }
    this.#drawLayers(model);
    this.#drawPlane();
    await Promise.all([this.#drawNear(model, signal), this.#solve(model, signal)]);
  }

  requests() {
    const model = this.chosenOne();
    if (!model) return [];
    const { mode, query, sum } = this.state;
    const layer = this.#layerOf(model);
    const run = `RUNS/${model.id}`;
    const load = `nextword.load(${quotePython(run)})`;
    const items = mode === "words" ? this.#words().map((word) => space(model) + word) : lines(mode === "texts" ? this.state.texts : this.state.contexts);
    const requests = [{ path: "/api/project", body: { model: model.id, items, layer, pool: "text" }, python: `nextword.lens.project_vectors(${load}, ${JSON.stringify(items)}, layer=${quotePython(layer)}, pooling="text")`, cli: null }];
    if (hasTable(model)) {
      for (const each of [query, sum]) requests.push({ path: "/api/nearest", body: { model: model.id, query: each, k: NEIGHBORS }, python: `nextword.lens.find_neighbors(${load}, ${quotePython(each)})`, cli: `nextword embed ${quoteShell(run)} --nearest ${quoteShell(each)}` });
    }
    return requests;
  }

  // ---------------------------------------------------------------------------------------------- vectors

  #words() {
    const { groups, more } = this.state;
    const words = [...groups.flatMap((group) => (GROUPS[group] ?? "").split(" ")), ...more.split(/[\s,，、;]+/)];
    return [...new Set(words.filter(Boolean))].slice(0, MOST);
  }

  #layerOf(model) {
    return model.family === "vectors" ? "0" : this.state.layer || "-1";
  }

  async #readItems(model, items, signal) {
    const isWords = this.state.mode === "words";
    const terms = isWords ? (parseSum(this.state.sum) ?? []).map((term) => term.word).filter((word) => !items.includes(word)) : [];
    const queries = [...new Set([...items, ...terms])];
    const answer = await post("/api/embed", { model: model.id, texts: queries.map((item) => (isWords ? space(model) + item : item)), layer: this.#layerOf(model), pool: "text" }, { signal });
    const known = items.filter((item) => !isZero(answer.vectors[queries.indexOf(item)]));
    const lost = items.filter((item) => !known.includes(item));
    if (lost.length) put(this.unknown, this.t("unknown", { model: model.id, words: lost.join(t("comma")) }), " ");
    const groupOf = (word) => this.state.groups.findIndex((group) => GROUPS[group]?.split(" ").includes(word));
    const names = isWords ? [...this.state.groups.map((group) => this.t(`group:${group}`)), ...(known.some((word) => groupOf(word) < 0) ? [this.t("group:more")] : [])] : [];
    return { items: known, labels: known, vectors: known.map((item) => answer.vectors[queries.indexOf(item)]), all: Object.fromEntries(queries.map((item, i) => [item, answer.vectors[i]])), groups: known.map((word) => (isWords ? (groupOf(word) < 0 ? names.length - 1 : groupOf(word)) : 0)), names, layers: answer.layers };
  }

  /** The vectors of one word, where it stands in each text. */
  async #readContexts(model, texts, signal) {
    const answer = await post("/api/embed", { model: model.id, texts, words: true, layer: this.#layerOf(model) }, { signal });
    const wanted = plain(this.state.word);
    const rows = texts.map((text, i) => {
      const { words, vectors } = answer.texts[i];
      const at = words.findIndex((word) => plain(word) === wanted);
      return at < 0 ? { text } : { text, vector: vectors[at], label: `${at > 2 ? "… " : ""}${words.slice(Math.max(0, at - 2), at).join(" ")} ${words[at].toUpperCase()} ${words.slice(at + 1, at + 2).join(" ")}`.trim() };
    });
    const known = rows.filter((row) => row.vector);
    const lost = rows.filter((row) => !row.vector);
    if (lost.length) put(this.unknown, this.t("without-word", { word: this.state.word, texts: lost.map((row) => row.text).join(" · ") }), " ");
    return { items: known.map((row) => row.text), labels: known.map((row) => row.label), vectors: known.map((row) => row.vector), all: {}, groups: known.map(() => 0), names: [], layers: answer.layers };
  }

  // ---------------------------------------------------------------------------------------------- pictures

  #drawPlane() {
    const { items, labels, vectors, groups, names } = this.#drawn;
    const { points, variance } = principalComponents(vectors);
    const isSame = points.length > 0 && variance[0] < 1e-6;
    const chosen = items.indexOf(this.#query());
    const near = chosen < 0 ? [] : nearest(vectors[chosen], vectors, { k: Math.min(4, Math.ceil(items.length / 3)), without: [chosen] }).map(({ index }) => index);
    const share = (part) => `${Math.round(100 * part)} %`;
    this.plane.show({ points: points.map(([x, y], i) => ({ text: items[i], label: labels[i], x: isSame ? i : x, y: isSame ? 0 : y, group: groups[i] })), groups: names, chosen, near, axes: [this.t("axis", { n: 1, share: share(variance[0]) }), this.t("axis", { n: 2, share: share(variance[1]) })], title: this.t("plane", { n: points.length }) });
    put(this.share, isSame ? this.t("all-same") : this.t("share", { share: share(variance[0] + variance[1]) }));
  }

  #query() {
    const { items } = this.#drawn;
    return items.includes(this.state.query) ? this.state.query : items[0];
  }

  async #drawNear(model, signal) {
    const { items, labels, vectors } = this.#drawn;
    const isTable = this.state.mode === "words" && hasTable(model);
    const query = isTable ? this.state.query : this.#query();
    const index = items.indexOf(query);
    const bars = h("nw-bars", { onchoose: (event) => this.#choose(items.indexOf(event.detail.item)) });
    const nodes = [h("h2", {}, this.t("near", { query: shorten(labels[index] ?? query) }))];
    if (index >= 0) {
      const rows = nearest(vectors[index], vectors, { k: NEIGHBORS, without: [index] }).map(({ index: i, cosine }) => ({ text: shorten(labels[i]), item: items[i], probability: Math.max(0, cosine), note: cosine.toFixed(3).replace("-", "−") }));
      bars.show(rows, { label: this.t("near", { query }), color: model.index, choosable: true });
      nodes.push(h("p", { class: "note" }, this.t("among-points")), bars);
    }
    if (isTable) {
      nodes.push(this.#search(query));
      try {
        const { neighbors } = await post("/api/nearest", { model: model.id, query, k: NEIGHBORS }, { signal });
        const table = h("nw-bars");
        table.show(neighbors.map(({ text, cosine }) => ({ text, probability: Math.max(0, cosine), note: cosine.toFixed(3) })), { label: this.t("among-all"), color: model.index });
        nodes.push(h("p", { class: "note" }, this.t("among-all")), table);
      } catch (error) {
        nodes.push(problem(error));
      }
    }
    this.near.classList.toggle("long", this.state.mode !== "words");
    put(this.near, nodes);
  }

  /** Any word of a table, not only those that are drawn. */
  #search(query) {
    const id = newId("query");
    const input = h("input", { type: "search", id, dir: "auto", onchange: () => input.value.trim() && this.set({ query: input.value.trim() }) });
    input.value = query;
    return h("div", { class: "field" }, h("label", { for: id }, this.t("search")), input);
  }

  // ---------------------------------------------------------------------------------------------- sums

  #drawSums() {
    const id = newId("sum");
    const field = (name) => h("input", { type: "text", dir: "auto", "aria-label": this.t(`sum:${name}`), oninput: () => this.#join() });
    this.terms = ["a", "b", "c"].map(field);
    this.answer = h("output", { "aria-live": "polite" });
    this.free = h("input", { type: "text", id, dir: "auto", oninput: () => this.#ask(this.free.value) });
    this.free.value = this.state.sum;
    this.solution = h("div", {});
    const [a, b, c] = this.terms;
    const examples = h("nw-examples", { ontry: (event) => { this.free.value = event.detail; this.#ask(event.detail); } });
    examples.show(SUMS.map((value) => ({ value })));
    put(this.sums, h("h2", {}, this.t("sums")), h("p", { class: "note" }, this.t("sums-help")), h("div", { class: "sum" }, a, "−", b, "+", c, "=", this.answer), h("div", { class: "field" }, h("label", { for: id }, this.t("sum-free")), this.free), examples, this.solution);
    this.#split();
  }

  #split() {
    const terms = parseSum(this.state.sum);
    const isSimple = terms?.length === 3 && terms.map((term) => term.weight).join() === "1,-1,1";
    this.terms.forEach((input, i) => (input.value = isSimple ? terms[i].word : ""));
  }

  #join() {
    const [a, b, c] = this.terms.map((input) => input.value.trim());
    if (!a || !b || !c) return;
    this.free.value = `${a} - ${b} + ${c}`;
    this.set({ sum: this.free.value }, { quiet: true });
    this.#typing.ask();
  }

  #ask(sum) {
    this.set({ sum }, { quiet: true });
    this.#split();
    this.#typing.ask();
  }

  async #solve(model, signal) {
    this.sums.hidden = this.state.mode !== "words";
    if (this.sums.hidden) return;
    const terms = parseSum(this.state.sum);
    put(this.answer);
    if (!terms) {
      put(this.solution, h("p", { class: "note" }, this.t("bad-sum")));
      return;
    }
    const bars = h("nw-bars");
    try {
      let rows;
      if (hasTable(model)) {
        const { neighbors } = await post("/api/nearest", { model: model.id, query: this.state.sum.trim().replaceAll("–", "-"), k: NEIGHBORS }, { signal });
        rows = neighbors.map(({ text, cosine }) => ({ text, cosine }));
      } else {
        const { items, vectors, all } = this.#drawn;
        const parts = terms.map((term) => all[term.word]);
        if (parts.some((part) => !part || isZero(part))) throw Object.assign(new Error(this.t("unknown", { model: model.id, words: terms.filter((_, i) => !parts[i] || isZero(parts[i])).map((term) => term.word).join(t("comma")) })), { name: "ApiError", status: 400 });
        const own = terms.map((term) => items.indexOf(term.word));
        rows = nearest(sumOf(parts, terms.map((term) => term.weight)), vectors, { k: NEIGHBORS, without: own }).map(({ index, cosine }) => ({ text: items[index], cosine }));
      }
      put(this.answer, rows[0]?.text ?? "");
      bars.show(rows.map(({ text, cosine }) => ({ text, probability: Math.max(0, cosine), note: cosine.toFixed(3) })), { label: this.state.sum, color: model.index });
      put(this.solution, h("p", { class: "note" }, this.t(hasTable(model) ? "among-all" : "among-points-table")), bars);
    } catch (error) {
      put(this.solution, problem(error));
    }
  }

  // ---------------------------------------------------------------------------------------------- fields

  #choose(index) {
    if (index < 0 || !this.#drawn) return;
    this.set({ query: this.#drawn.items[index] }, { quiet: true });
    this.#drawPlane();
    const model = this.chosenOne();
    this.#drawNear(model).catch((error) => put(this.near, problem(error, true)));
  }

  #drawModes() {
    const chip = (mode) => this.#radio("mode", mode, this.t(`mode:${mode}`), this.state.mode === mode, () => (this.set({ mode }), this.#drawFields()));
    put(this.modes, h("legend", {}, this.t("show")), ["words", "texts", "contexts"].map(chip));
  }

  #radio(name, value, label, isChosen, run) {
    const id = `${name}-${value}`;
    const input = h("input", { type: "radio", name, id, value, onchange: run });
    input.checked = isChosen;
    return h("span", { class: "chip" }, input, h("label", { for: id }, label));
  }

  #drawLayers(model) {
    const { layers } = this.#drawn;
    const isFixed = model.family === "vectors" || !layers || layers < 2;
    this.layers.hidden = isFixed;
    if (isFixed) return;
    const now = this.state.layer === "" || this.state.layer === "-1" ? layers - 1 : Number(this.state.layer);
    const name = (layer) => (layer === 0 ? this.t("layer:first") : layer === layers - 1 ? this.t("layer:last", { n: layer }) : this.t("layer:n", { n: layer }));
    const focused = document.activeElement?.id;
    put(this.layers, h("legend", {}, this.t(this.state.mode === "contexts" ? "layers-contexts" : "layers")), Array.from({ length: layers }, (_, layer) => this.#radio("layer", layer, name(layer), layer === now, () => this.set({ layer: String(layer) }))));
    if (focused?.startsWith("layer-")) document.getElementById(focused)?.focus();
  }

  #drawFields() {
    const { mode } = this.state;
    const area = (key) => {
      const id = newId(key);
      const field = h("textarea", { id, rows: 7, dir: "auto", spellcheck: "false", oninput: () => (this.set({ [key]: field.value }, { quiet: true }), this.#typing.ask()) });
      field.value = this.state[key];
      return h("div", { class: "field" }, h("label", { for: id }, this.t(`field:${key}`)), field);
    };
    const line = (key) => {
      const id = newId(key);
      const field = h("input", { type: "text", id, dir: "auto", placeholder: key === "more" ? this.t("more-example") : null, oninput: () => (this.set({ [key]: field.value }, { quiet: true }), this.#typing.ask()) });
      field.value = this.state[key];
      return h("div", { class: "field" }, h("label", { for: id }, this.t(`field:${key}`)), field);
    };
    if (mode === "texts") return put(this.fields, h("p", { class: "note" }, this.t("texts-help")), area("texts"));
    if (mode === "contexts") {
      const examples = h("nw-examples", { ontry: (event) => (this.set({ word: event.detail, contexts: MEANINGS[event.detail].join("\n"), query: "" }), this.#drawFields()) });
      examples.show(Object.keys(MEANINGS).map((value) => ({ value })));
      return put(this.fields, h("p", { class: "note" }, this.t("contexts-help")), h("div", { class: "controls" }, h("div", {}, line("word"), examples), area("contexts")));
    }
    const chip = (group) => {
      const input = h("input", { type: "checkbox", id: `group-${group}`, onchange: () => this.set({ groups: Object.keys(GROUPS).filter((each) => (each === group ? input.checked : this.state.groups.includes(each))) }) });
      input.checked = this.state.groups.includes(group);
      return h("span", { class: "chip" }, input, h("label", { for: input.id }, this.t(`group:${group}`)));
    };
    return put(this.fields, h("div", { class: "controls words" }, h("fieldset", { class: "chips" }, h("legend", {}, this.t("groups")), Object.keys(GROUPS).map(chip)), line("more")));
  }
}

/** Whether it has a vector for each word of a vocabulary, which the server can search. */
function hasTable(model) {
  return WORD_TOKENIZERS.includes(model.tokenizer?.kind) && model.family === "vectors";
}

function space(model) {
  return SPACED.includes(model.tokenizer?.kind) ? " " : "";
}

function lines(text) {
  return [...new Set(text.split("\n").map((line) => line.trim()).filter(Boolean))].slice(0, MOST);
}

function plain(word) {
  return word.toLowerCase().replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "");
}

function shorten(text) {
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}

/** An error of one part of the page; what concerns all of it is thrown. */
function problem(error, isLast = false) {
  if (!isLast && (error.name !== "ApiError" || !error.status || error.status === 401) && error.code !== "saved") throw error;
  return h("p", { class: "failed", role: "alert" }, error.code === "saved" ? t("error:saved") : error.message);
}
