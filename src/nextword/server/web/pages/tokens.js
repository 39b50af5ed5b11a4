/* Tokens: how several tokenizers split a text, and whether they can put it together again. */

import { get } from "../core/api.js";
import { quotePython } from "../core/commands.js";
import { h, newId, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { Latest } from "../core/latest.js";
import { ask } from "../core/memory.js";
import { allModels, dotClass } from "../core/models.js";
import { count, fixed } from "../core/numbers.js";
import { Page } from "../core/page.js";
import { columnsOf, hex, piecesIn, readTokens, splitText } from "../core/splits.js";
import { ByteMap, visible, words } from "../core/text.js";
import { drawPiece } from "../components/token-chips.js";
import "../components/choice.js";
import "../components/examples.js";
import "../components/model-picker.js";

const EXAMPLES = ["King Nebuchadnezzar reigned 43 years.\n起初，神创造天地。", "In the beginning, God created the heavens and the earth.", "Methuselah lived 969 years; Mahalalel 895.", "בְּרֵאשִׁית בָּרָא אֱלֹהִים"];
const SAMPLES = { english: "Yahweh is my shepherd.", chinese: "耶和华是我的牧者。", name: "Nebuchadnezzar", number: "1234567.89" };
const MOST = 100_000; // characters of a text
const COLUMNS = 300; // drawn of the aligned view

export default class TokensPage extends Page {
  static need = "tokenizer";
  static defaults = { models: [], text: EXAMPLES[0], show: "pieces" };

  #typing = new Latest(() => this.refresh());
  #views = []; // {group, chips, line} of the cards

  build() {
    const id = newId("text");
    this.field = h("textarea", { id, dir: "auto", rows: 3, spellcheck: "false", maxlength: MOST, oninput: () => this.#type() });
    this.field.value = this.state.text;
    this.picker = h("nw-model-picker", { onpick: (event) => this.set({ models: event.detail }) });
    const examples = h("nw-examples", { ontry: (event) => { this.field.value = event.detail; this.#type(); } });
    examples.show(EXAMPLES.map((value) => ({ value })));
    this.choice = h("nw-choice", { onpick: (event) => { this.set({ show: event.detail }, { quiet: true }); this.#draw(); } });
    this.results = h("div", { onlook: (event) => this.#look(event) });
    this.counts = h("section", {});
    this.samples = h("section", {});
    return [this.picker, h("div", { class: "field" }, h("label", { for: id }, this.t("label")), this.field), examples, this.choice, this.results, this.counts, this.samples];
  }

  /** The chosen models; without a choice, one for each tokenizer that is known. */
  models() {
    const named = this.chosen(99);
    if (this.state.models.length) return named;
    const known = allModels().filter((model) => model.tokenizer);
    const first = known.filter((model) => known.find((other) => keyOf(other) === keyOf(model)) === model);
    return first.length ? first : allModels().slice(0, 1);
  }

  async update(signal) {
    const models = this.models();
    const { text } = this.state;
    this.picker.show({ need: TokensPage.need, chosen: models.map((model) => model.id) });
    const keys = [...new Set(models.map(keyOf))];
    const groups = keys.map((key) => {
      const own = models.filter((model) => keyOf(model) === key);
      return { models: own, model: own[0], name: own.map((model) => model.id).join(", ") };
    });
    this.groups = await Promise.all(groups.map((group) => this.#load(group, text, signal)));
    this.text = text;
    this.#draw();
  }

  /** A group with what its tokenizer makes of the text and of the samples; or with `error`. */
  async #load(group, text, signal) {
    const { id } = group.model;
    try {
      const facts = await get(`/tokenizer_info?model=${encodeURIComponent(id)}`, { signal });
      const isLossless = facts.lossless;
      const settings = { isLossless, unknown: facts.special_tokens[facts.unk_token] ?? null };
      const split = async (own) => {
        const answer = await ask("/tokenize", { model: id, prompt: own, return_token_strs: true }, signal);
        const tokens = readTokens(new TextEncoder().encode(own), answer, settings);
        return { tokens, pieces: splitText(own, tokens, isLossless) };
      };
      const [own, ...samples] = await Promise.all([text, ...Object.values(SAMPLES)].map(split));
      const { prompt: decoded } = await ask("/detokenize", { model: id, tokens: own.tokens.map((token) => token.id) }, signal);
      return { ...group, ...own, facts, decoded, samples };
    } catch (error) {
      if (!error.status || error.status === 401) throw error;
      return { ...group, error };
    }
  }

  requests() {
    const { text } = this.state;
    return this.models().map((model) => ({
      path: "/tokenize",
      body: { model: model.id, prompt: text, return_token_strs: true },
      python: `nextword.load(${quotePython(`RUNS/${model.id}`)}).tokenizer.encode(${quotePython(text)})`,
      cli: null,
    }));
  }

  #type() {
    this.set({ text: this.field.value }, { quiet: true });
    this.#typing.ask();
  }

  // ---------------------------------------------------------------------------------------------- drawing

  #draw() {
    const whole = this.groups.filter((group) => !group.error);
    this.map = new ByteMap(this.text);
    this.#views = [];
    this.choice.show({ label: this.t("show"), options: ["pieces", "aligned"].map((value) => ({ value, label: this.t(value) })), value: this.state.show });
    if (!this.text) put(this.results, h("p", { class: "note" }, this.t("empty")));
    else if (this.state.show === "aligned") put(this.results, this.#aligned(whole));
    else put(this.results, h("p", { class: "note" }, this.t("pieces-help")), marks(this.groups), h("div", { class: "tokenizers" }, this.groups.map((group) => this.#card(group))));
    put(this.counts, this.text && whole.length ? this.#counts(whole) : null);
    put(this.samples, whole.length ? this.#samples(whole) : null);
  }

  #title(group) {
    return h("h2", {}, h("span", { class: dotClass(group.model.index), "aria-hidden": "true" }), group.name, h("small", {}, this.#kind(group)), this.#others(group));
  }

  /** Models that are not chosen and have the same tokenizer. */
  #others({ model, models }) {
    const others = allModels().filter((other) => !models.includes(other) && keyOf(other) === keyOf(model));
    return others.length ? h("small", {}, this.t("same", { models: others.map((other) => other.id).join(t("comma")) })) : null;
  }

  #kind({ facts }) {
    const name = facts && this.t(`kind:${facts.tokenizer_class}`);
    return !facts ? "" : name.startsWith("tokens.") ? facts.tokenizer_class : name;
  }

  #card(group) {
    if (group.error) return h("section", { class: "card" }, this.#title(group), h("p", { class: "failed", role: "alert" }, group.error.message));
    const chips = h("nw-token-chips");
    chips.show(group.pieces, group.tokens, this.t("list", { name: group.name }));
    const line = h("p", { class: "note line", role: "status" });
    this.#views.push({ group, chips, line });
    return h("section", { class: "card", dataset: { model: group.model.id } }, this.#title(group), chips, line, this.#back(group));
  }

  /** Whether decoding gives the text back, and what is lost. */
  #back({ decoded, tokens, pieces }) {
    if (decoded === this.text) return h("p", { class: "note back" }, "✓ ", this.t("back"));
    const lost = { unknown: tokens.filter((token) => token.isUnknown).length, changed: tokens.filter((token) => token.isChanged).length, dropped: pieces.filter((piece) => piece.isDropped).length };
    const parts = Object.entries(lost).filter(([, number]) => number).map(([key, number]) => this.t(`lost-${key}`, { count: number }));
    return [h("p", { class: "note back" }, "✗ ", this.t("not-back"), parts.length ? this.t("lost", { parts: parts.join(t("comma")) }) : null, this.t("colon")), h("blockquote", { class: "text decoded", dir: "auto" }, decoded)];
  }

  /** Show the facts of a token, and where the others have its bytes. */
  #look({ target, detail: token }) {
    for (const view of this.#views) {
      if (view.chips === target) put(view.line, this.#facts(token));
      else put(view.line);
      if (view.chips === target) view.chips.mark(0, 0);
      else view.chips.mark(token.start, token.end);
    }
  }

  #facts(token) {
    const values = { ...token, name: visible(token.name.trim() || token.name), hex: hex(token.bytes), total: this.map.bytes[this.text.length] };
    const from = this.map.at(token.start);
    const character = String.fromCodePoint(this.text.codePointAt(from) ?? 32);
    const more = token.isPart ? this.t("part", { text: visible(character) }) : token.isUnknown ? this.t("unknown", values) : token.isChanged ? this.t("changed", values) : "";
    return [h("strong", { dir: "auto" }, token.isPart ? hex(token.bytes) : visible(token.text)), " ", [more, this.t("line", values)].filter(Boolean).join(" · ")];
  }

  #aligned(groups) {
    const columns = columnsOf(words(this.text), this.map, groups.map((group) => group.tokens)).slice(0, COLUMNS);
    const raw = new TextEncoder().encode(this.text);
    const cell = (group, column) => {
      return h("div", { class: "cell" }, h("span", { class: dotClass(group.model.index), "aria-hidden": "true" }), piecesIn(group.pieces, column).map((piece) => drawPiece(piece)));
    };
    const draw = (column) => {
      const text = new TextDecoder().decode(raw.subarray(column.start, column.end));
      return h("li", { class: "column", dir: "auto" }, h("div", { class: "head" }, visible(text.trim() || text)), groups.map((group) => cell(group, column)));
    };
    return [
      h("p", { class: "note" }, this.t("aligned-help"), " ", groups.map((group) => h("span", { class: "key-name" }, h("span", { class: dotClass(group.model.index), "aria-hidden": "true" }), group.name))),
      h("ol", { class: "aligned", "aria-label": this.t("aligned"), dir: "auto" }, columns.map(draw)),
    ];
  }

  #counts(groups) {
    const characters = [...this.text].length;
    const bytes = this.map.bytes[this.text.length];
    const [best, second] = groups.filter((group) => group.decoded === this.text).sort((a, b) => a.tokens.length - b.tokens.length);
    const names = ["tokens", "per-character", "per-byte", "size", "lossless"];
    const row = (group) => {
      const number = group.tokens.length;
      const values = [count(number), number ? fixed(characters / number) : "–", number ? fixed(bytes / number) : "–", count(group.facts.vocab_size)];
      return h("tr", { dataset: { model: group.model.id } }, h("th", { scope: "row", class: "model" }, group.name, h("small", {}, this.#kind(group))), values.map((value, i) => h("td", { class: i ? "n" : "n main" }, value)), h("td", { class: "n" }, group.decoded === this.text ? `✓ ${this.t("yes")}` : `✗ ${this.t("no")}`));
    };
    return [
      h("h2", {}, this.t("counts")),
      h("p", { class: "verdict" }, this.t("summary", { characters: count(characters), bytes: count(bytes) }), " ", second ? this.t("fewest", { name: best.name, count: count(best.tokens.length) }) : null),
      table(this.t("counts"), [this.t("tokenizer"), ...names.map((name) => this.t(name))], groups.map(row)),
    ];
  }

  #samples(groups) {
    const row = (key, i) => h("tr", {}, h("th", { scope: "row" }, this.t(`sample-${key}`), h("small", { dir: "auto" }, SAMPLES[key])), groups.map((group) => h("td", {}, h("div", { class: "sample" }, h("strong", {}, count(group.samples[i].tokens.length)), h("span", { dir: "auto" }, group.samples[i].pieces.flatMap((piece) => drawPiece(piece)))))));
    return [h("h2", {}, this.t("samples")), h("p", { class: "note" }, this.t("samples-note")), table(this.t("samples"), [this.t("sample"), ...groups.map((group) => group.name)], Object.keys(SAMPLES).map(row), "")];
  }
}

/** What tells tokenizers apart; a model whose tokenizer is not known yet stands for itself. */
function keyOf({ id, tokenizer }) {
  return tokenizer ? (tokenizer.fingerprint ?? `${tokenizer.kind} ${tokenizer.size}`) : `model ${id}`;
}

/** The marks of chips that the text has, with what they mean. */
function marks(groups) {
  const tokens = groups.flatMap((group) => group.tokens ?? []);
  const present = { part: tokens.some((token) => token.isPart), unknown: tokens.some((token) => token.isUnknown), changed: tokens.some((token) => token.isChanged), dropped: groups.some((group) => group.pieces?.some((piece) => piece.isDropped)) };
  const shown = Object.keys(present).filter((key) => present[key]);
  if (!shown.length) return null;
  return h("p", { class: "legend marks" }, h("span", { class: "unit" }, t("tokens.marks")), shown.map((key) => h("span", { class: key === "dropped" ? "gap dropped" : `piece even is-${key}` }, t(`tokens.mark-${key}`))));
}

function table(caption, names, rows, numeric = "n") {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, names.map((name, i) => h("th", { scope: "col", class: i ? numeric : null }, name)))), h("tbody", {}, rows)));
}
