/* <nw-token-detail>: what a model expected where a token stands: surprisal, rank, entropy, and the likeliest tokens as bars.
   "choose" has the chosen alternative in `detail`. */

import { h, put } from "../core/dom.js";
import { bandOf } from "../core/heat.js";
import { t } from "../core/i18n.js";
import { count, fixed, percent } from "../core/numbers.js";
import { visible } from "../core/text.js";
import "./bars.js";
import { bandName } from "./heat-text.js";

class TokenDetail extends HTMLElement {
  /** cell: of core/heat.js, with one or several tokens; model; isPseudo; choosable: alternatives can be chosen; text: of the
   *  cell, of which a token may be a part. */
  show(cell, { model, isPseudo = false, choosable = false, text = "" }) {
    put(this, cell.tokens.map((token) => this.#token(token, { model, isPseudo, choosable, text })));
  }

  #token(token, { model, isPseudo, choosable, text }) {
    const rank = t("heat.rank-in", { rank: count(token.rank), band: bandName(bandOf(token.rank)) });
    const facts = [t(isPseudo ? "heat.bits-pseudo" : "heat.bits", { bits: fixed(finite(token.bits)) }), rank, t("heat.entropy", { bits: fixed(token.entropy) })];
    const name = token.isPart ? t("heat.part", { bytes: token.text, text }) : visible(token.text);
    const rows = token.top.map((each) => ({ text: each.text, probability: each.probability, isOwn: each.id === token.id }));
    if (!rows.some((row) => row.isOwn)) rows.push({ text: token.text, probability: 2 ** -token.bits, isOwn: true, note: percent(2 ** -token.bits) });
    const bars = h("nw-bars");
    bars.show(rows, { label: t("heat.alternatives", { model: model.id, token: name }), color: model.index, choosable });
    return h("div", { class: "token" }, h("p", { class: "facts" }, h("strong", { dir: "auto" }, name), facts.map((fact) => h("span", {}, fact))), bars);
  }
}

function finite(value) {
  return Number.isFinite(value) ? value : null;
}

customElements.define("nw-token-detail", TokenDetail);
