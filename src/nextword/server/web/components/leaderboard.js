/* <nw-leaderboard>: the models of a comparison, best first, with their intervals. What cannot be ranked stands below, with
   the reason: pseudo-likelihoods, and tokenizers that lose text. */

import { format } from "../core/address.js";
import { isSaved } from "../core/api.js";
import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { count, duration, fixed } from "../core/numbers.js";
import { interval, key } from "./marks.js";

const s = (name, values) => t(`compare.${name}`, values);

class Leaderboard extends HTMLElement {
  /** comparison: of GET /api/comparisons/NAME; markOf(row): the mark of a model. */
  show(comparison, markOf) {
    const done = comparison.models.filter((row) => row.status === "done");
    const isTranslation = done.some((row) => row.kind === "translation");
    const ranked = done.filter((row) => (isTranslation ? row.kind === "translation" : isRanked(row)));
    const others = done.filter((row) => !ranked.includes(row));
    const open = comparison.names.filter((name) => !done.some((row) => row.name === name));
    const bounds = ranked.flatMap((row) => [row.bits_per_byte, row.bits_per_byte_low, row.bits_per_byte_high]).filter(Number.isFinite);
    const scale = { start: Math.min(...bounds), end: Math.max(...bounds) };
    const columns = isTranslation ? ["bleu", "chrf", "token_perplexity", "parameters", "seconds"] : ["bits", "interval", "perplexity", "parameters", "seconds", "speed"];
    const head = [h("th", { scope: "col", class: "rank" }, h("span", { class: "sr" }, s("rank"))), h("th", { scope: "col", class: "model" }, t("model")), columns.map((name) => h("th", { scope: "col", class: name === "interval" ? "" : "n" }, s(`column:${name}`)))];
    const rows = ranked.map((row, index) => this.#row(row, index + 1, columns, markOf(row), scale));
    const waiting = open.map((name) => this.#open(name, comparison, columns.length, markOf({ name })));
    put(
      this,
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": s("leaderboard") }, h("table", { class: "leaderboard" }, h("caption", {}, s("leaderboard")), h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows, waiting))),
      others.length ? h("div", { class: "unranked" }, h("h3", {}, s("unranked")), h("ul", {}, others.map((row) => h("li", {}, h("strong", {}, row.name), Number.isFinite(row.bits_per_byte) ? `: ${fixed(row.bits_per_byte, 3)} ${t("bits-per-byte")}. ` : ": ", whyUnranked(row))))) : null,
    );
  }

  #row(row, rank, columns, mark, scale) {
    const cells = {
      bits: () => h("td", { class: "n main" }, fixed(row.bits_per_byte, 3)),
      interval: () => h("td", { class: "range" }, Number.isFinite(row.bits_per_byte) ? interval({ value: row.bits_per_byte, low: row.bits_per_byte_low, high: row.bits_per_byte_high, mark, ...scale }) : null, Number.isFinite(row.bits_per_byte_low) ? h("small", {}, `${fixed(row.bits_per_byte_low, 3)} … ${fixed(row.bits_per_byte_high, 3)}`) : null),
      perplexity: () => h("td", { class: "n" }, perplexity(row.word_perplexity)),
      token_perplexity: () => h("td", { class: "n" }, perplexity(row.token_perplexity)),
      bleu: () => h("td", { class: "n main" }, row.bleu === undefined || row.bleu === null ? "–" : fixed(row.bleu, 1)),
      chrf: () => h("td", { class: "n" }, row.chrf === undefined || row.chrf === null ? "–" : fixed(row.chrf, 1)),
      parameters: () => h("td", { class: "n" }, count(row.parameters)),
      seconds: () => h("td", { class: "n" }, Number.isFinite(row.seconds) ? duration(row.seconds) : "–"),
      speed: () => h("td", { class: "n" }, Number.isFinite(row.tokens_per_second) ? `${count(Math.round(row.tokens_per_second))}` : "–"),
    };
    const name = row.served && !isSaved ? h("a", { href: format("type", { models: [row.served] }, { models: [] }).fragment }, row.name) : row.name;
    return h("tr", {}, h("td", { class: "rank n" }, rank), h("th", { scope: "row", class: "model" }, h("span", { class: "flag" }, key(mark), h("span", {}, name)), h("small", {}, row.title)), columns.map((column) => cells[column]()));
  }

  #open(name, comparison, width, mark) {
    const row = comparison.models.find((each) => each.name === name);
    const text = row?.status === "failed" ? `${s("failed")} ${row.error ?? ""}` : comparison.is_running ? s("not-yet") : s("not-trained");
    return h("tr", { class: "open" }, h("td", { class: "rank" }), h("th", { scope: "row", class: "model" }, h("span", { class: "flag" }, key(mark), h("span", {}, name))), h("td", { colspan: width, class: "note" }, text));
  }
}

/** Whether a score may be compared with others. */
export function isRanked(score) {
  return score.kind !== "pseudo" && score.kind !== "translation" && score.lossless !== false;
}

export function whyUnranked(score) {
  return s(score.kind === "pseudo" ? "why-pseudo" : "why-lossy");
}

export function perplexity(value) {
  if (value === null || value === undefined) return "∞";
  return value < 1000 ? value.toFixed(1) : count(Math.round(value));
}

customElements.define("nw-leaderboard", Leaderboard);
