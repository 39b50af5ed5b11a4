/* Compare: the report of a comparison, live while it runs; all served models on a text of yours; and their records. */

import { format } from "../core/address.js";
import { get, getText, hasKey, isSaved, post } from "../core/api.js";
import { quotePython, quoteShell } from "../core/commands.js";
import { h, newId, put } from "../core/dom.js";
import { currentLanguage, space, t } from "../core/i18n.js";
import { Latest } from "../core/latest.js";
import { allModels, findModel, loadModels } from "../core/models.js";
import { count, fixed } from "../core/numbers.js";
import { Page } from "../core/page.js";
import { download } from "../core/saving.js";
import { byteLength } from "../core/text.js";
import { isRanked, perplexity, whyUnranked } from "../components/leaderboard.js";
import { key } from "../components/marks.js";
import "../components/examples.js";
import "../components/line-chart.js";
import "../components/model-picker.js";

const LOOK_MS = 3000; // between two looks at a comparison that runs
const FEW_BYTES = 400; // a text below says little
const EXAMPLES = [
  "Now it happened after the death of the king that his son reigned in his place, and he did that which was evil in the sight of the LORD.",
  "The stock market fell by three percent on Monday, after the central bank raised its interest rates again.",
  "the the of and a to in that it is was he for as with",
];

export default class ComparePage extends Page {
  static need = "score";
  static defaults = { name: "", text: EXAMPLES[0], models: [] };

  #typing = new Latest(() => this.refresh());
  #timer = 0;
  #list = null; // comparisons
  #report = null; // the one that is shown
  #scored = ""; // what the bars are of

  build() {
    const id = newId("text");
    this.choice = h("div", {});
    this.headline = h("p", { class: "headline", role: "status" });
    this.caveats = h("p", { class: "note" });
    this.board = h("nw-leaderboard");
    this.mixture = h("div", {});
    this.chart = h("nw-line-chart");
    this.curves = h("section", {}, h("h2", {}, this.t("curves")), h("p", { class: "note" }, this.t("curves-help")), this.chart);
    this.samples = h("section", {});
    this.report = h("section", { class: "report" }, this.choice, this.headline, this.caveats, this.board, this.mixture, this.curves, this.samples);
    this.none = h("p", { class: "note" }, this.t("no-comparison"), " ", isSaved ? null : h("a", { href: "#/train" }, this.t("to-train")));
    this.picker = h("nw-model-picker", { onpick: (event) => this.set({ models: event.detail }) });
    this.field = h("textarea", { id, rows: 4, dir: "auto", spellcheck: "false", oninput: () => this.#type() });
    this.field.value = this.state.text;
    this.bars = h("div", { class: "scores", "aria-live": "polite" });
    const examples = h("nw-examples", { ontry: (event) => { this.field.value = event.detail; this.#type(); } });
    examples.show(EXAMPLES.map((value) => ({ value })));
    this.records = h("section", {});
    return [this.none, this.report, h("section", {}, h("h2", {}, this.t("own")), h("p", { class: "note" }, this.t("own-help")), this.picker, h("div", { class: "field" }, h("label", { for: id }, this.t("own-label")), this.field), examples, this.bars), this.records];
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearTimeout(this.#timer);
  }

  async update(signal) {
    this.#showRecords();
    await Promise.all([this.#loadReport(signal), this.#score(signal)]);
  }

  requests() {
    const { text } = this.state;
    return this.#chosen().map((model) => ({
      path: "/api/score",
      body: { model: model.id, texts: [text] },
      python: `nextword.load(${quotePython(`RUNS/${model.id}`)}).score(${quotePython(text)}).bits_per_byte()`,
      cli: `printf %s ${quoteShell(text)} > text.txt; nextword evaluate ${quoteShell(`RUNS/${model.id}`)} --data text.txt`,
    }));
  }

  // ---------------------------------------------------------------------------------------------- the report

  async #loadReport(signal) {
    const { name } = this.state;
    if (!this.#list || (name && !this.#list.some((each) => each.name === name))) this.#list = (await get("/api/comparisons", { signal })).comparisons;
    const wanted = this.#list.find((each) => each.name === name) ?? this.#list.find((each) => each.is_running) ?? this.#list[0];
    this.none.hidden = Boolean(wanted);
    this.report.hidden = !wanted;
    if (!wanted) return;
    if (this.#report?.name !== wanted.name || this.#report.is_running) this.#report = await get(`/api/comparisons/${encodeURIComponent(wanted.name)}`, { signal });
    this.#drawReport();
    clearTimeout(this.#timer);
    this.#timer = 0; // a look that is under way comes too late
    if (this.#report.is_running && !isSaved && this.isConnected) this.#timer = setTimeout(() => this.#look(wanted.name), LOOK_MS);
  }

  /** While it runs, rows and curves appear by themselves. */
  async #look(name) {
    const timer = this.#timer;
    try {
      const report = await get(`/api/comparisons/${encodeURIComponent(name)}`);
      if (report.models.length > this.#report.models.length) await loadModels();
      if (this.#timer !== timer) return;
      this.#report = report;
      this.#drawReport();
    } catch {
      // it comes back, or the page says so at the next request
    }
    if (this.#timer === timer && this.isConnected && this.#report.is_running) this.#timer = setTimeout(() => this.#look(name), LOOK_MS);
  }

  #drawReport() {
    const report = this.#report;
    const marks = report.models.map((row) => (row.served ? findModel(row.served)?.index : undefined));
    const useServed = marks.length > 0 && marks.every((mark) => mark !== undefined); // the colors of the other pages
    const markOf = (row) => (useServed && report.models.find((each) => each.name === row.name)?.served ? findModel(report.models.find((each) => each.name === row.name).served).index : report.names.indexOf(row.name));
    this.#drawChoice(report);
    const href = `/api/comparisons/${encodeURIComponent(report.name)}/report`;
    const fetchIt = (event) => {
      event.preventDefault();
      getText(href).then((page) => download(`${report.name}.html`, page), (error) => put(this.caveats, h("span", { class: "failed", role: "alert" }, error.message || t("error:unreachable"))));
    };
    const link = report.has_report && !isSaved && h("a", { href, target: "_blank", rel: "noopener", onclick: hasKey() ? fetchIt : null }, this.t("full-report"));
    put(this.headline, this.#headline(report), link && " ", link);
    put(this.caveats, this.#limits(report));
    this.board.show(report, markOf);
    put(this.mixture, this.#mixture(report.mixture));
    const curve = (row, name) => (row.curve ?? []).map((point) => ({ x: point.seconds, y: point[name] })).filter((point) => Number.isFinite(point.y));
    const done = report.models.filter((row) => row.status === "done");
    const series = done.map((row) => {
      const valid = curve(row, "valid_bits_per_byte");
      const points = valid.length > 1 ? valid : curve(row, "train_bits_per_byte");
      return { name: row.name, mark: markOf(row), points, level: points.length ? undefined : row.bits_per_byte };
    });
    this.curves.hidden = !series.some((each) => each.points.length);
    this.chart.show({ series, x: { label: this.t("time"), time: true }, y: { label: this.t("bits"), write: (value) => fixed(value, 2) }, title: this.t("curves"), height: window.innerWidth < 640 ? 260 : 340 });
    const cards = done.filter((row) => row.sample).map((row) => h("article", { class: "card" }, h("h3", {}, key(markOf(row)), row.name), h("p", { class: "text", dir: "auto" }, row.sample)));
    const read = report.passage && !isSaved ? h("p", { class: "more-link" }, h("a", { href: format("read", { text: report.passage.text, models: done.map((row) => row.served).filter(Boolean).slice(0, 3) }, { text: "", models: [] }).fragment }, this.t("read-passage"))) : null;
    put(this.samples, cards.length ? [h("h2", {}, this.t("samples")), h("p", { class: "note" }, this.t("samples-help")), h("div", { class: "columns" }, cards), read] : []);
  }

  #drawChoice(report) {
    if (this.#list.length < 2) return;
    const select = h("select", { class: "which", "aria-label": this.t("which"), onchange: () => this.set({ name: select.value }) }, this.#list.map((each) => h("option", { value: each.name }, `${each.name} · ${each.data}`)));
    select.value = report.name;
    if (this.choice.firstElementChild?.value !== select.value || this.choice.firstElementChild.options.length !== select.options.length) put(this.choice, select);
  }

  #headline(report) {
    const done = report.models.filter((row) => row.status === "done").length;
    if (report.is_running) return this.t("running", { done, all: report.names.length });
    const winner = report.models.find((row) => row.name === report.winner);
    const data = report.data.name.split(/[,，]/)[0];
    if (currentLanguage() === "en") return report.headline ?? this.t("no-winner", { data });
    return winner && Number.isFinite(winner.bits_per_byte) ? this.t("headline", { data, winner: winner.name, bits: fixed(winner.bits_per_byte, 3) }) : this.t("no-winner", { data });
  }

  /** What the ranking leaves open. */
  #limits(report) {
    const { limits } = report;
    const all = limits?.networks?.length ?? 0;
    const parts = ["cut_short", "under_one_pass", "still_falling", "hardly_trained"].filter((group) => limits?.[group]?.length).map((group) => this.t(`limit:${group}`, { n: limits[group].length, all, names: limits[group].join(t("comma")) }));
    const budget = report.budget?.minutes ? this.t("budget", { minutes: report.budget.minutes, machine: report.budget.machine ?? "" }) : "";
    return [budget, parts.length && !report.is_running ? `${parts.join(this.t("and"))}${this.t("stop")}` : ""].filter(Boolean).join(space());
  }

  #mixture(mixture) {
    if (!mixture) return null;
    const parts = mixture.models.map((model) => `${fixed(model.weight, 2)} × ${model.name}`).join(" + ");
    return h("div", { class: "card mixture" }, h("h3", {}, this.t("mixture")), h("p", {}, h("strong", {}, parts), `: ${fixed(mixture.bits_per_byte, 3)} ${this.t("bits")}. `, this.t("gain", { gain: fixed(mixture.gain, 3), low: fixed(mixture.gain_low, 3), high: fixed(mixture.gain_high, 3), best: mixture.best_single })), h("p", { class: "note" }, this.t("mixture-help")));
  }

  // ---------------------------------------------------------------------------------------------- your own text

  #chosen() {
    const most = allModels().filter((model) => model.abilities?.includes("score") && !model.isSeq2seq).length || 8;
    return this.chosen(Math.min(most, 12)).filter((model) => this.state.models.length || !model.isSeq2seq);
  }

  #type() {
    this.set({ text: this.field.value }, { quiet: true });
    this.#typing.ask();
  }

  async #score(signal) {
    const models = this.#chosen();
    this.picker.show({ need: "score", chosen: models.map((model) => model.id) });
    const { text } = this.state;
    if (!text.trim() || !models.length) {
      this.#scored = "";
      put(this.bars, h("p", { class: "note" }, this.t(models.length ? "empty" : "no-model")));
      return;
    }
    const key = JSON.stringify([text, models.map((model) => model.id)]);
    if (key === this.#scored) return;
    const rows = await Promise.all(
      models.map(async (model) => {
        try {
          return { model, score: (await post("/api/score", { model: model.id, texts: [text] }, { signal })).scores[0] };
        } catch (error) {
          if (error.name !== "ApiError" || !error.status || error.status === 401) throw error;
          return { model, error: error.message };
        }
      }),
    );
    this.#scored = key;
    this.#drawScores(text, rows);
  }

  #drawScores(text, rows) {
    const bits = (row) => row.score.bits_per_byte ?? Infinity;
    const ranked = rows.filter((row) => row.score && isRanked(row.score)).sort((a, b) => bits(a) - bits(b));
    const others = rows.filter((row) => row.score && !isRanked(row.score));
    const most = Math.max(...ranked.map(bits).filter(Number.isFinite), ...(ranked.length ? [1e-9] : others.map((row) => row.score.bits_per_byte ?? 0)), 1e-9);
    const line = ({ model, score }, rank) =>
      h("li", { dataset: { model: model.id } }, h("span", { class: "rank" }, rank ?? ""), h("span", { class: "who-name" }, key(model.index), model.id), h("span", { class: "bar", "aria-hidden": "true" }, Number.isFinite(score.bits_per_byte) ? h("i", { class: `c${model.index % 8}`, style: { width: `${Math.min(100, (100 * score.bits_per_byte) / most)}%` } }) : null), h("span", { class: "number" }, h("b", {}, score.lossless === false ? "–" : fixed(score.bits_per_byte, 3)), h("small", {}, `${this.t("word-perplexity")} ${perplexity(score.word_perplexity)}`)));
    const size = byteLength(text);
    put(
      this.bars,
      h("p", { class: "note" }, this.t("size", { bytes: count(size), words: count(rows.find((row) => row.score)?.score.words ?? 0) }), " ", size < FEW_BYTES && ranked.length > 1 ? this.t("few") : ""),
      ranked.length ? h("ol", { class: "score-bars", "aria-label": this.t("ranking") }, ranked.map((row, index) => line(row, index + 1))) : null,
      others.length ? [h("h3", {}, this.t("unranked")), h("ul", { class: "score-bars" }, others.map((row) => line(row))), h("ul", { class: "note" }, [...new Set(others.map((row) => whyUnranked(row.score)))].map((why) => h("li", {}, why)))] : null,
      rows.filter((row) => row.error).map((row) => h("p", { class: "failed", role: "alert" }, h("strong", {}, row.model.id), `: ${row.error}`)),
    );
  }

  // ---------------------------------------------------------------------------------------------- all models

  #showRecords() {
    const models = allModels();
    if (!models.length) return put(this.records);
    const kind = (model) => (model.task ? this.t("kind:task") : model.isMasked ? this.t("kind:pseudo") : model.tokenizer?.lossless === false ? this.t("kind:lossy") : model.family === "vectors" ? this.t("kind:vectors") : this.t("kind:exact"));
    const row = (model) => h("tr", {}, h("th", { scope: "row" }, h("span", { class: "flag" }, key(model.index), h("span", {}, model.id))), h("td", {}, model.recipe || "–"), h("td", { class: "n" }, model.bitsPerByte ? fixed(model.bitsPerByte, 3) : "–"), h("td", {}, kind(model)), h("td", { class: "n" }, model.parameters ? count(model.parameters) : "–"), h("td", {}, model.tokenizer ? `${model.tokenizer.kind}, ${count(model.tokenizer.size)}` : "–"));
    const head = ["model", "recipe", "bits", "kind", "parameters", "tokenizer"].map((name) => h("th", { scope: "col", class: ["bits", "parameters"].includes(name) ? "n" : "" }, this.t(`column:${name}`)));
    return put(this.records, h("h2", {}, this.t("records")), h("p", { class: "note" }, this.t("records-help")), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.t("records") }, h("table", {}, h("caption", {}, this.t("records")), h("thead", {}, h("tr", {}, head)), h("tbody", {}, models.map(row)))));
  }
}
