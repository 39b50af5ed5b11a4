/* <nw-distribution>: the next token before and after decoding, as /api/distribution answers: bars, entropy, and how many tokens
   each setting leaves. "choose" has the chosen token in `detail`. */

import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { dotClass } from "../core/models.js";
import { count, fixed, percent } from "../core/numbers.js";
import { visible } from "../core/text.js";
import "./bars.js";

const END = "∎";

class Distribution extends HTMLElement {
  connectedCallback() {
    if (this.bars) return;
    this.heading = h("h2", { "aria-live": "polite" });
    this.facts = h("p", { class: "note" });
    this.bars = h("nw-bars");
    this.key = h("i");
    this.stages = h("div");
    put(this, this.heading, this.facts, this.bars, h("p", { class: "legend bars-legend" }, h("span", {}, h("i", { class: "before" }), t("write.key-before")), h("span", {}, this.key, t("write.key-after"))), this.stages);
  }

  /** effect: the answer; token: that of the text in this place, or null at its end. */
  show(effect, { model, token, choosable }) {
    const color = model.index % 8;
    const name = (each) => (each.id === effect.end ? END : each.text);
    const row = (each) => ({ id: each.id, text: name(each), before: each.before, probability: each.after, note: `${percent(each.before)} → ${after(each)}`, isOwn: effect.chosen?.id === each.id, isEnd: each.id === effect.end });
    const rows = effect.tokens.map(row);
    if (effect.chosen && !rows.some((each) => each.isOwn)) rows.push(row(effect.chosen));
    put(this.heading, h("span", { class: dotClass(model.index), "aria-hidden": "true" }), token ? t("write.at-token", { token: token.isEnd ? END : visible(token.text) }) : t("write.at-end"));
    const own = effect.chosen ? `${t("write.own-rank", { rank: count(effect.chosen.rank), before: percent(effect.chosen.before), after: after(effect.chosen) })} ` : "";
    put(this.facts, own, t("write.facts", { before: bits(effect.entropy_before), after: bits(effect.entropy_after), allowed: count(effect.allowed), vocabulary: count(effect.vocabulary) }));
    this.key.className = `c${color}`;
    this.bars.show(rows, { label: t("write.bars", { model: model.id }), color, choosable });
    put(this.stages, this.#table(effect.stages));
  }

  #table(stages) {
    const heads = ["stage", "stage-tokens", "stage-entropy"].map((key, i) => h("th", { scope: "col", class: i ? "n" : null }, t(`write.${key}`)));
    const line = (each) => h("tr", {}, h("th", { scope: "row" }, t(`write.stage-${each.setting}`)), h("td", { class: "n" }, count(each.allowed)), h("td", { class: "n" }, bits(each.entropy)));
    return h("table", { class: "stages" }, h("caption", {}, t("write.stages")), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, stages.map(line)));
  }
}

function after(token) {
  return token.after ? percent(token.after) : "0";
}

function bits(nats) {
  return fixed(nats / Math.LN2);
}

customElements.define("nw-distribution", Distribution);
