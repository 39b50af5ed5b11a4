/* <nw-token-line>: a text whose tokens can be looked at and chosen, painted by one number each. The pointer looks, a click
   or the arrow keys choose. Dispatches "look" and "choose" with the token's index in `detail`; when the pointer leaves,
   "look" has the chosen one again. */

import { h, put } from "../core/dom.js";
import { partsOf } from "../core/inside.js";
import { direction, visible } from "../core/text.js";

class TokenLine extends HTMLElement {
  #parts = []; // those with tokens
  #elements = [];
  #byToken = new Map(); // index of a token → index of its part
  #chosen = -1;
  #box = null;

  /** can: whether a token may be chosen; label: what the line is, for a screen reader. */
  show(text, tokens, { label, can = () => true, isChoosable = true }) {
    const all = partsOf(text, tokens);
    this.#parts = all.filter((part) => part.tokens.length).map((part) => ({ ...part, isOpen: isChoosable && part.tokens.some(can) }));
    this.#byToken = new Map(this.#parts.flatMap((part, i) => part.tokens.map((token) => [token, i])));
    this.#elements = [];
    this.#chosen = -1;
    const nodes = all.map((part) => (part.tokens.length ? this.#draw(part, isChoosable) : part.text));
    const role = isChoosable ? { role: "listbox", tabindex: 0, onkeydown: (event) => this.#key(event) } : { role: "group" };
    this.#box = h("p", { class: "text", dir: "auto", "aria-label": label, ...role }, nodes);
    this.#box.addEventListener("pointerover", (event) => this.#look(event));
    this.#box.addEventListener("pointerleave", () => this.#chosen >= 0 && this.#tell("look", this.#chosen));
    this.#box.addEventListener("click", (event) => this.#click(event));
    this.rtl = direction(text) === "rtl";
    put(this, this.#box);
  }

  /** Paint each token by its share of `most`: positive values blue, negative ones orange and underlined. */
  paint(values, { most = 1, isSigned = false, note = null } = {}) {
    for (const [i, part] of this.#parts.entries()) {
      const value = part.tokens.reduce((sum, token) => sum + (values[token] ?? 0), 0);
      const element = this.#elements[i];
      const share = most > 0 ? Math.min(1, Math.abs(value) / most) : 0;
      if (isSigned) {
        const step = Math.min(5, Math.floor(share * 5.999));
        element.className = `token ${step ? (value > 0 ? "f" : "g") + step : ""}${part.isSpecial ? " special" : ""}`;
      } else element.style.setProperty("background", share > 0.004 ? `rgb(var(--for) / ${(0.5 * share).toFixed(3)})` : "none");
      if (note) element.title = note(value);
    }
  }

  /** Mark the token that is looked at. */
  choose(token) {
    const i = this.#byToken.get(token);
    for (const [at, element] of this.#elements.entries()) {
      element.classList.toggle("chosen", at === i);
      if (element.hasAttribute("aria-selected")) element.setAttribute("aria-selected", String(at === i));
    }
    this.#chosen = token;
    if (i !== undefined && this.#box.hasAttribute("tabindex")) this.#box.setAttribute("aria-activedescendant", this.#elements[i].id);
  }

  /** Mark a token that is looked at only now. */
  glance(token) {
    const i = this.#byToken.get(token);
    for (const [at, element] of this.#elements.entries()) element.classList.toggle("glanced", at === i);
  }

  #draw(part, isChoosable) {
    const space = part.isSpecial ? "" : /^ +(?=[^ ])/.exec(part.text)?.[0] ?? "";
    const own = part.isSpecial ? part.text : part.text.slice(space.length);
    const role = part.isOpen ? { role: "option", "aria-selected": "false" } : isChoosable ? { role: "option", "aria-selected": "false", "aria-disabled": "true" } : {};
    const shown = part.isSpecial || /\S/.test(own) ? own : own.includes("\n") ? `⏎${own}` : visible(own);
    const element = h("span", { class: part.isSpecial ? "token special" : "token", id: `${this.#id}-${this.#elements.length}`, dataset: { part: this.#elements.length }, ...role }, shown);
    this.#elements.push(element);
    return [space, element];
  }

  #id = `line-${Math.random().toString(36).slice(2, 8)}`;

  #at(event) {
    const element = event.target.closest?.("[data-part]");
    const part = element && this.#parts[Number(element.dataset.part)];
    return part?.isOpen ? part.tokens.at(-1) : -1;
  }

  #look(event) {
    const token = this.#at(event);
    if (token >= 0) this.#tell("look", token);
  }

  #click(event) {
    const token = this.#at(event);
    if (token < 0) return;
    this.choose(token);
    this.#tell("choose", token);
  }

  #key(event) {
    const ahead = this.rtl ? "ArrowLeft" : "ArrowRight";
    const back = this.rtl ? "ArrowRight" : "ArrowLeft";
    const steps = { [ahead]: 1, ArrowDown: 1, [back]: -1, ArrowUp: -1 };
    const open = [...this.#parts.keys()].filter((i) => this.#parts[i].isOpen);
    const now = open.indexOf(this.#byToken.get(this.#chosen));
    const at = event.key === "Home" ? 0 : event.key === "End" ? open.length - 1 : event.key in steps ? now + steps[event.key] : -1;
    if (!(event.key in steps) && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    const part = this.#parts[open[Math.max(0, Math.min(open.length - 1, at))]];
    if (!part) return;
    this.choose(part.tokens.at(-1));
    this.#tell("choose", this.#chosen);
  }

  #tell(name, token) {
    this.dispatchEvent(new CustomEvent(name, { detail: token, bubbles: true }));
  }
}

customElements.define("nw-token-line", TokenLine);
