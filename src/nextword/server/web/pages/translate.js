/* Translate: the best translations that a beam search finds, greedy decoding beside it, and where the model looked. */

import { alignWords, averageHeads } from "../core/alignment.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { compareWords } from "../core/differences.js";
import { h, newId, put } from "../core/dom.js";
import { Latest } from "../core/latest.js";
import { ask } from "../core/memory.js";
import { divide } from "../core/models.js";
import { fixed, percent } from "../core/numbers.js";
import { Page } from "../core/page.js";
import { redraw } from "../core/redraw.js";
import { pieces } from "../core/text.js";
import "../components/alignment.js";
import "../components/examples.js";
import "../components/model-picker.js";
import { range } from "../components/slider.js";

const MOST_SOURCES = 64;
const MOST_BEST = 5; // translations of a sentence
const MOST_WIDTH = 16;
const LEVEL_BITS = 2; // surprisal of one shade more
const EXAMPLES = {
  kjv: ["And God said, Let there be light: and there was light.", "Thou shalt not steal.", "The LORD is my shepherd; I shall not want.", "And he said unto them, Whither goest thou?\nAnd they answered him, saying, We know not."],
  multi30k: ["A man in a blue shirt is standing on a ladder.", "Two dogs are playing in the snow.", "A little girl climbs into a wooden house."],
};

export default class TranslatePage extends Page {
  static need = "seq2seq";
  static defaults = { model: "", text: EXAMPLES.kjv[0], width: 4, split: false, line: 0, rank: 0, mine: "" };

  #typing = new Latest(() => this.refresh());

  build() {
    const [id, splitId] = ["text", "split"].map(newId);
    this.picker = h("nw-model-picker", { onpick: (event) => this.set({ model: event.detail[0], rank: 0, mine: "" }) });
    this.field = h("textarea", { id, dir: "auto", rows: 3, spellcheck: "false", "aria-describedby": `${id}-help`, oninput: () => this.#type({ text: this.field.value, line: 0, rank: 0, mine: "" }) });
    this.field.value = this.state.text;
    this.width = h("nw-slider", { onslide: (event) => this.#type({ width: event.detail, rank: 0, mine: "" }) });
    this.width.show({ label: this.t("width"), values: range(1, MOST_WIDTH), value: this.state.width });
    const split = h("input", { id: splitId, type: "checkbox", onchange: () => this.set({ split: split.checked, line: 0, rank: 0, mine: "" }) });
    split.checked = this.state.split;
    this.examples = h("nw-examples", { ontry: (event) => this.#use(event.detail) });
    this.results = h("div", { class: "translations", onclick: (event) => this.#choose(event) });
    this.detail = h("section", { class: "detail" });
    this.form = h(
      "div",
      {},
      h("div", { class: "field" }, h("label", { for: id }, this.t("label")), this.field, h("p", { id: `${id}-help`, class: "note" }, this.t("help"))),
      this.examples,
      h("div", { class: "fields" }, this.width, h("p", { class: "check" }, split, " ", h("label", { for: splitId }, this.t("split")))),
    );
    this.none = h("div", { class: "case", hidden: true }, h("p", {}, this.t("none")), h("p", {}, h("a", { href: "#/train?kind=train&recipe=seq2seq/small" }, this.t("train"))), h("p", { class: "note" }, this.t("none-command")), h("pre", { class: "scroll", tabindex: 0 }, "nextword train seq2seq/small --out runs/kjv-to-web\nnextword serve runs/kjv-to-web"));
    this.about = h("p", { class: "note about" });
    return [this.picker, this.none, this.form, this.results, this.detail, this.about];
  }

  async update(signal) {
    const model = this.#model();
    this.picker.show({ need: "seq2seq", chosen: model ? [model.id] : [], multiple: false, label: this.t("model") });
    this.none.hidden = Boolean(model);
    this.form.hidden = !model;
    if (Number(this.width.output.textContent) !== this.state.width) this.width.set(this.state.width);
    if (!model) return put(this.results, put(this.detail, put(this.about)) && null);
    this.examples.show((/multi30k/.test(model.data) ? EXAMPLES.multi30k : EXAMPLES.kjv).map((value) => ({ value })));
    put(this.about, this.t(model.infills ? "about:infills" : "about"));
    const sources = this.#sources();
    if (!sources.length) return put(this.results, h("p", { class: "note" }, this.t("empty"))) && put(this.detail);
    const [found, greedy] = await Promise.all([ask("/api/translate", this.#body(sources), signal), ask("/api/translate", { model: model.id, source: sources }, signal)]);
    const texts = greedy.translations.map((each) => each.text);
    const greedyNats = await this.#score(model, texts, sources, found.translations.map((each) => each.best), signal);
    const rows = found.translations.map((each, i) => ({ source: sources[i], best: each.best, greedy: texts[i], greedyNats: greedyNats[i] }));
    this.#drawRows(rows);
    const chosen = rows[Math.min(this.state.line, rows.length - 1)];
    return this.#drawDetail(model, chosen, signal);
  }

  requests() {
    const model = this.#model();
    const sources = this.#sources();
    if (!model || !sources.length) return [];
    const { beam, n_best: most } = this.#body(sources);
    const run = `RUNS/${model.id}`;
    return [
      { path: "/api/translate", body: this.#body(sources), python: `nextword.load(${quotePython(run)}).n_best_many([${sources.map(quotePython).join(", ")}], nextword.Beam(${beam}), n=${most})`, cli: `nextword generate ${quoteShell(run)} ${quoteShell(sources[0])} --beam ${beam} --n-best ${most}` },
    ];
  }

  // ---------------------------------------------------------------------------------------------- asking

  #model() {
    const { able } = divide("seq2seq");
    return able.find((model) => model.id === this.state.model) ?? able.find((model) => !model.infills) ?? able[0];
  }

  #sources() {
    const lines = this.state.text.split("\n");
    const segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" });
    const all = this.state.split ? lines.flatMap((line) => [...segmenter.segment(line)].map(({ segment }) => segment)) : lines;
    return all.map((source) => source.trim()).filter(Boolean).slice(0, MOST_SOURCES);
  }

  #body(sources) {
    const { width } = this.state;
    return { model: this.#model().id, source: sources, beam: width, n_best: Math.min(width, MOST_BEST) };
  }

  /** −log p of each translation: as the search found it, since a text can be split into tokens in several ways, or else of
   *  the text. null where there is nothing to score. */
  async #score(model, texts, sources, found, signal) {
    const nats = texts.map((text, i) => found[i].find((candidate) => candidate.text === text)?.nats ?? null);
    const scored = texts.map((text, i) => ({ text, given: sources[i], i })).filter(({ text, i }) => text.trim() && nats[i] === null);
    if (!scored.length) return nats;
    const { scores } = await ask("/api/score", { model: model.id, texts: scored.map((each) => each.text), given: scored.map((each) => each.given) }, signal);
    scored.forEach(({ i }, at) => (nats[i] = scores[at].nats));
    return nats;
  }

  // ---------------------------------------------------------------------------------------------- translations

  #drawRows(rows) {
    redraw(this.results, () => put(this.results, rows.map((row, line) => this.#sentence(row, line, rows.length))));
  }

  #sentence({ source, best, greedy, greedyNats }, line, count) {
    const isChosen = line === Math.min(this.state.line, count - 1);
    const rank = Math.min(this.state.rank, best.length - 1);
    const row = (candidate, i) =>
      h("li", {}, h("button", { type: "button", class: "candidate", "aria-pressed": String(isChosen && i === rank), dataset: { line, rank: i } }, h("span", { class: "place" }, i + 1), this.#marked(candidate.text, i ? best[0].text : candidate.text), this.#odds(candidate.nats, candidate.complete ? "" : this.t("cut"))));
    const same = best.findIndex((candidate) => candidate.text === greedy);
    const verdict = same === 0 ? this.t("greedy-same") : same > 0 ? this.t("greedy-rank", { rank: same + 1 }) : greedyNats > best[0].nats ? this.t("greedy-worse") : this.t("greedy-better");
    return h(
      "article",
      { class: `case sentence${isChosen ? " chosen" : ""}` },
      h("p", { class: "text from", dir: "auto" }, source),
      h("h3", {}, this.t("beam", { width: this.state.width })),
      h("ol", { class: "candidates" }, best.map(row)),
      h("h3", {}, this.t("greedy"), h("span", { class: "note" }, ` ${verdict}`)),
      h("p", { class: "candidate" }, h("span", { class: "place" }), this.#marked(greedy, best[0].text), this.#odds(greedyNats)),
    );
  }

  /** A text in which the words that the reference lacks are marked. */
  #marked(text, reference) {
    if (!text.trim()) return h("span", { class: "to note" }, this.t("nothing"));
    return h("span", { class: "to", dir: "auto" }, compareWords(text, reference).map(({ word, isSame }) => [isSame ? word : h("mark", {}, word), " "]));
  }

  #odds(nats, note = "") {
    return h("span", { class: "number" }, nats === null ? "–" : `${fixed(-nats, 2)} · ${percent(Math.exp(-nats))}`, note && h("small", {}, note));
  }

  #choose(event) {
    const { line, rank } = event.target.closest("button.candidate")?.dataset ?? {};
    if (line !== undefined) this.set({ line: Number(line), rank: Number(rank), mine: "" });
  }

  // ---------------------------------------------------------------------------------------------- one translation

  async #drawDetail(model, { source, best, greedy }, signal) {
    const chosen = best[Math.min(this.state.rank, best.length - 1)]?.text || greedy;
    const text = this.state.mine || chosen;
    this.#keepDetail(source, chosen);
    const looks = model.views === null || model.views.includes("attention");
    const [explained, attention, [ownNats]] = await Promise.all([
      text.trim() ? ask("/api/explain", { model: model.id, text, source, k: 3 }, signal) : null,
      looks && text.trim() ? ask("/api/attention", { model: model.id, text, source }, signal).catch((error) => this.#failed(error)) : null,
      this.#score(model, [text], [source], [best], signal),
    ]);
    this.#drawScore(text, ownNats, best[0].nats, explained);
    const map = attention?.maps?.find((each) => each.kind === "cross");
    if (!map) return put(this.map, h("p", { class: "note" }, text.trim() ? (attention?.message ?? this.t("no-attention")) : this.t("nothing")));
    const heads = map.weights.at(-1);
    return redraw(this.map, () => {
      const view = h("nw-alignment");
      put(this.map, view, heads.length > 1 ? h("p", { class: "note" }, this.t("heads", { layer: map.layers.at(-1), heads: heads.length })) : null);
      view.show(alignWords({ text, source, rows: map.rows, columns: map.columns, weights: averageHeads(heads) }));
    });
  }

  /** Fields of the detail stay while somebody types into them. */
  #keepDetail(source, chosen) {
    const key = JSON.stringify([source, chosen]);
    if (this.detailKey === key && this.detail.childElementCount) {
      if (document.activeElement !== this.mine) this.mine.value = this.state.mine || chosen;
      return;
    }
    this.detailKey = key;
    const id = newId("mine");
    this.mine = h("textarea", { id, dir: "auto", rows: 2, spellcheck: "false", oninput: () => this.#type({ mine: this.mine.value === chosen ? "" : this.mine.value }) });
    this.mine.value = this.state.mine || chosen;
    this.verdict = h("p", { class: "verdict", role: "status" });
    this.tokens = h("p", { class: "text tokens", dir: "auto" });
    this.map = h("div", {});
    const levels = Array.from({ length: 7 }, (_, level) => h("span", { class: `surprisal-${level}` }, level * LEVEL_BITS));
    put(
      this.detail,
      h("h2", {}, this.t("looked-title")),
      this.map,
      h("h2", {}, this.t("mine-title")),
      h("div", { class: "field" }, h("label", { for: id }, this.t("mine")), this.mine),
      this.verdict,
      this.tokens,
      h("p", { class: "legend" }, h("span", { class: "unit" }, this.t("bits")), levels),
    );
  }

  #drawScore(text, nats, bestNats, explained) {
    const ratio = Math.exp(Math.min(Math.abs(nats - bestNats), 700));
    const times = ratio < 100 ? fixed(ratio, 1) : ratio < 1e6 ? Math.round(ratio).toLocaleString("en") : `10${superscript(Math.round(Math.log10(ratio)))}`;
    const values = { score: fixed(-nats, 2), best: fixed(-bestNats, 2), times };
    if (!text.trim()) put(this.verdict, this.t("mine-empty"));
    else put(this.verdict, this.t(Math.abs(nats - bestNats) < 1e-3 ? "mine-same" : nats > bestNats ? "mine-worse" : "mine-better", values));
    const draw = ({ text: part, tokens }) => {
      if (!tokens.length) return part;
      const bits = tokens.reduce((sum, each) => sum + (each.bits ?? 40), 0);
      const other = tokens[0].rank === 1 ? "" : ` · ${this.t("rather", { word: tokens[0].top.map((each) => each.text.trim()).join(" / ") })}`;
      return h("span", { class: `surprisal-${Math.min(7, Math.floor(bits / LEVEL_BITS))}`, title: `${fixed(bits, 1)} ${this.t("bits-unit")}${other}` }, part);
    };
    const tokens = explained?.tokens.map((each) => ({ ...each, start: each.token.start, end: each.token.end })) ?? [];
    const worst = tokens.filter((each) => each.start < each.end && each.rank > 1).sort((a, b) => (b.bits ?? 99) - (a.bits ?? 99))[0];
    put(this.tokens, pieces(text, tokens).map(draw), worst ? h("small", {}, this.t("worst", { word: worst.token.text.trim(), rank: worst.rank, words: worst.top.map((each) => this.t("quoted", { word: each.text.trim() })).join(" ") })) : null);
  }

  #failed(error) {
    if (error.name !== "ApiError" || !error.status) throw error;
    return { message: error.message };
  }

  #type(changes) {
    this.set(changes, { quiet: true });
    this.#typing.ask();
  }

  #use(text) {
    this.field.value = text;
    this.#type({ text, line: 0, rank: 0, mine: "" });
  }
}

function superscript(number) {
  return [...String(number)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("");
}
