/* <nw-branch-list>: the branches of a text as a nested list. Dispatches "branch" with the id of the chosen one in `detail`. */

import { childrenOf } from "../core/branches.js";
import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { visible } from "../core/text.js";

const SHOWN = 60; // characters of a branch

class BranchList extends HTMLElement {
  /** branches: of core/branches.js; shown: id; noteOf: branch → its settings in words. */
  show({ branches, shown, noteOf }) {
    const focused = this.querySelector(":focus")?.dataset.id;
    const item = (branch) => {
      const text = shorten((branch.own?.tokens ?? []).map((token) => token.text).join(""));
      const prompt = branch.parent ? null : h("span", { class: "prompt" }, shorten(branch.prompt, 30), " ");
      const chosen = branch.chosen ? h("strong", {}, visible(branch.chosen.text)) : null;
      const button = h("button", { class: "branch", type: "button", dir: "auto", dataset: { id: branch.id }, "aria-current": branch.id === shown ? "true" : null, onclick: () => this.dispatchEvent(new CustomEvent("branch", { detail: branch.id, bubbles: true })) }, prompt, chosen, chosen ? " " : null, h("span", {}, text || (chosen ? "" : "∅")));
      const below = childrenOf(branches, branch.id);
      return h("li", {}, button, h("small", {}, branch.id === shown ? `${t("write.shown")} · ` : "", noteOf(branch)), below.length ? h("ul", {}, below.map(item)) : null);
    };
    put(this, h("ul", { class: "branches" }, childrenOf(branches, 0).map(item)));
    if (focused) this.querySelector(`[data-id="${focused}"]`)?.focus({ preventScroll: true });
  }
}

function shorten(text, most = SHOWN) {
  const points = [...text.replaceAll("\n", " ⏎ ").trim()];
  return points.length > most ? `${points.slice(0, most - 1).join("")}…` : points.join("");
}

customElements.define("nw-branch-list", BranchList);
