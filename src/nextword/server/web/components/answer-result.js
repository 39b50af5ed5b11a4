/* <nw-answer-result>: a passage in which the answer is marked, and the best answers with their probabilities. Choosing one
   marks it instead, and dispatches "answer". */

import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { percent } from "../core/numbers.js";
import { signed } from "./label-result.js";
import "./bars.js";

class AnswerResult extends HTMLElement {
  /** answer: as /api/answer has it; before: that to compare with; shown: the answer to mark, the predicted one if empty. */
  show(answer, passage, { before, shown = "", color = 0 } = {}) {
    const none = t("tasks.no-answer");
    const candidates = [...answer.best, ...(answer.no_answer === undefined ? [] : [{ text: "", probability: answer.no_answer }])];
    const rows = candidates.map(({ text, probability }) => {
      const old = before && (text ? before.best.find((each) => each.text === text)?.probability : before.no_answer);
      const change = old === undefined ? "" : ` ${signed(100 * (probability - old), 1)}`;
      return { text: text || none, own: text, probability, before: old, isOwn: text === answer.predicted, note: percent(probability) + change };
    });
    const marked = shown || answer.predicted;
    const parts = marked ? passage.split(marked) : [passage];
    const bars = h("nw-bars", { class: "long", onchoose: (event) => this.dispatchEvent(new CustomEvent("answer", { detail: event.detail.own, bubbles: true })) });
    bars.show(rows, { label: t("tasks.best-answers"), color, choosable: true });
    put(
      this,
      h("p", { class: "verdict" }, h("strong", { dir: "auto" }, answer.predicted || none), ` ${percent(answer.probability)}`),
      h("p", { class: "text passage", dir: "auto" }, parts.map((part, i) => [i ? h("mark", {}, marked) : null, part])),
      parts.length > 2 ? h("p", { class: "note" }, t("tasks.places", { count: parts.length - 1 })) : null,
      h("h3", {}, t("tasks.best-answers")),
      bars,
    );
  }
}

customElements.define("nw-answer-result", AnswerResult);
