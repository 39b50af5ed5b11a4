/* The text twins of heat maps: what each model paid for the text, and the words on which two models differ most. */

import { h } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { dotClass } from "../core/models.js";
import { count, fixed } from "../core/numbers.js";
import { visible } from "../core/text.js";
import { bandName } from "./heat-text.js";

const MOST_WORDS = 12;
const finite = (value) => (Number.isFinite(value) ? value : null);
const share = (value) => `${(100 * value).toFixed(value > 0 && value < 0.01 ? 1 : 0)} %`;

/** A table of Readings, those that read most cheaply first; pseudo-likelihoods below, by themselves. */
export function totalsTable(readings) {
  const rows = readings.filter((reading) => reading.done).map((reading) => ({ reading, sum: reading.totals }));
  const likelihoods = rows.filter((row) => !row.reading.isPseudo).sort((a, b) => (a.sum.bitsPerByte ?? Infinity) - (b.sum.bitsPerByte ?? Infinity));
  const pseudo = rows.filter((row) => row.reading.isPseudo);
  if (!rows.length) return null;
  const isUnspaced = rows[0].sum.isUnspaced;
  const columns = [t("read.bits-per-byte"), t(isUnspaced ? "read.character-perplexity" : "read.word-perplexity"), t("read.bits-per-token"), t("read.tokens"), ...[0, 1, 2, 3].map(bandName)];
  const head = h("tr", {}, h("th", { scope: "col", class: "model" }, t("read.model")), columns.slice(0, 4).map((name) => h("th", { scope: "col", class: "n" }, name)), h("th", { scope: "col" }, t("read.bands")), columns.slice(4).map((name, band) => h("th", { scope: "col", class: "n" }, h("span", { class: `band-${band} key-word` }, name))));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": t("read.totals-caption") },
    h("table", { class: "totals" }, h("caption", {}, t("read.totals-caption")), h("thead", {}, head), h("tbody", {}, likelihoods.map(row)), pseudo.length ? h("tbody", {}, h("tr", {}, h("th", { colspan: 10, scope: "rowgroup", class: "group" }, t("read.pseudo-rows"))), pseudo.map(row)) : null),
  );
}

function row({ reading, sum }) {
  const { model } = reading;
  const name = h("th", { scope: "row", class: "model" }, h("span", { class: "flag" }, h("span", { class: dotClass(model.index), "aria-hidden": "true" }), model.id), reading.source === null ? null : h("small", {}, t("read.given-source")), reading.isComplete ? null : h("small", {}, t("read.so-far")));
  const bar = h("span", { class: "shares", "aria-hidden": "true" }, sum.bands.map((value, band) => h("i", { class: `band-${band}`, style: { width: `${100 * value}%` } })));
  const perByte = sum.bitsPerByte === null || reading.isPseudo ? "–" : fixed(finite(sum.bitsPerByte), 3);
  const perplexity = sum.perplexity === null ? "–" : Number.isFinite(sum.perplexity) ? count(sum.perplexity < 100 ? Number(sum.perplexity.toFixed(1)) : Math.round(sum.perplexity)) : "∞";
  return h("tr", { dataset: { model: model.id } }, name, [perByte, perplexity, fixed(finite(sum.bitsPerToken)), count(sum.tokens)].map((value, i) => h("td", { class: i ? "n" : "n main" }, value)), h("td", {}, bar), sum.bands.map((value) => h("td", { class: "n" }, share(value))));
}

/** What two readings differ in: one sentence, and the words with the largest differences. */
export function gapTable(rows, first, second) {
  if (!rows.length) return null;
  const total = rows.reduce((sum, row) => sum + row.gap, 0); // positive: the second needs fewer bits
  const [better, worse] = total > 0 ? [second, first] : [first, second];
  const cheaper = rows.filter((row) => (total > 0 ? row.gap > 0 : row.gap < 0)).length;
  const sentence = total === 0 ? t("read.gap-equal") : t("read.gap-total", { better: better.id, worse: worse.id, bits: count(Number(Math.abs(total).toFixed(1))), share: Math.round((100 * cheaper) / rows.length) });
  const top = [...rows].sort((a, b) => Math.abs(b.gap) - Math.abs(a.gap)).slice(0, MOST_WORDS);
  return [
    h("p", { class: "verdict" }, sentence),
    h("h3", {}, t("read.gap-words")),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("read.gap-words") }, h("table", {}, h("caption", {}, t("read.gap-words")), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("read.word")), [first.id, second.id, `${first.id} − ${second.id}`].map((name) => h("th", { scope: "col", class: "n" }, name)))), h("tbody", {}, top.map((each) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, visible(each.text.trim())), [each.first, each.second, each.gap].map((value) => h("td", { class: "n" }, fixed(finite(value))))))))),
  ];
}
