/* <nw-tag-result>: sentences with a tag under each word, or with marked spans; and a legend that counts the tags. Pressing a
   tag of the legend lights its words, and dispatches "tag". */

import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";

const OUTSIDE = "O";

class TagResult extends HTMLElement {
  /** sentences: as /api/tag has them; before: those to compare the counts with; tag: the one that is lit. */
  show(sentences, { before, tag = "" } = {}) {
    const counts = countTags(sentences);
    const old = before && countTags(before);
    const names = [...new Set([...counts.keys(), ...(old?.keys() ?? [])])].sort((a, b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0) || a.localeCompare(b));
    const button = (name) => {
      const count = counts.get(name) ?? 0;
      const change = old ? count - (old.get(name) ?? 0) : 0;
      return h("button", { type: "button", class: "plain", "aria-pressed": String(tag === name), onclick: () => this.dispatchEvent(new CustomEvent("tag", { detail: tag === name ? "" : name, bubbles: true })) }, h("b", {}, name), ` ${count}`, change ? ` (${change > 0 ? "+" : "\u2212"}${Math.abs(change)})` : null);
    };
    put(this, h("p", { class: "tags-legend", role: "group", "aria-label": t("tasks.legend") }, names.length ? names.map(button) : t("tasks.no-spans")), h("div", { class: tag ? "tagged chosen" : "tagged" }, sentences.map((sentence) => this.#sentence(sentence, tag))));
  }

  #sentence({ words, tags, spans }, tag) {
    if (!Array.isArray(tags)) return Object.entries(tags).map(([task, own]) => [h("p", { class: "note" }, task), this.#sentence({ words, tags: own }, tag)]);
    if (!spans) return h("p", { class: "text under", dir: "auto" }, words.map((word, i) => [h("span", { class: tags[i] === tag ? "lit" : null }, word, h("sub", {}, tags[i])), " "]));
    const parts = [];
    for (let i = 0; i < words.length; ) {
      const span = spans.find(({ start }) => start === i);
      const end = span ? span.end : i + 1;
      const text = words.slice(i, end).join(" ");
      parts.push(span ? h("mark", { class: span.type === tag ? "lit" : null }, text, h("sub", {}, span.type)) : text, " ");
      i = end;
    }
    return h("p", { class: "text", dir: "auto" }, parts);
  }
}

/** Tag → how often: the types of spans, or tags of words. */
export function countTags(sentences) {
  const counts = new Map();
  for (const { tags, spans } of sentences) {
    const names = spans ? spans.map((span) => span.type) : Object.values(tags).flat().filter((name) => name !== OUTSIDE);
    for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}

customElements.define("nw-tag-result", TagResult);
