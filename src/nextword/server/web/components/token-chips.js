/* <nw-token-chips>: the tokens of a text as chips. Spaces and line ends are visible; parts of characters are hexadecimal.
   One chip at a time can be looked at, by pointer or arrow keys: "look" has its token in `detail`. */

import { h, newId, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { hex } from "../core/splits.js";
import { visible } from "../core/text.js";

const AT_ONCE = 500; // pieces drawn before a button shows more
const NEXT = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

class TokenChips extends HTMLElement {
  #key = newId("chips");
  #pieces = [];
  #tokens = [];
  #count = 0; // pieces drawn
  #active = -1;

  /** pieces: of core/splits.js; tokens: all of them, by index; label: what they are, for a screen reader. */
  show(pieces, tokens, label) {
    this.#pieces = pieces;
    this.#tokens = tokens;
    this.#active = -1;
    this.#count = 0;
    this.list = h("div", { class: "chips-text text", role: "listbox", tabindex: "0", "aria-label": label, dir: "auto", onkeydown: (event) => this.#press(event), onpointerover: (event) => this.#point(event), onclick: (event) => this.#point(event) });
    this.button = h("button", { class: "plain", type: "button", onclick: () => this.#more() });
    put(this, this.list, this.button);
    this.#more();
  }

  /** Underline the chips of tokens that share bytes with start … end. */
  mark(start, end) {
    for (const chip of this.list.querySelectorAll("[data-token]")) {
      const token = this.#tokens[Number(chip.dataset.token)];
      chip.classList.toggle("same", token.start < end && token.end > start);
    }
  }

  #more() {
    const end = Math.min(this.#pieces.length, this.#count + AT_ONCE);
    this.list.append(...this.#pieces.slice(this.#count, end).flatMap((piece) => drawPiece(piece, this.#key)));
    this.#count = end;
    const rest = this.#pieces.length - end;
    this.button.hidden = !rest;
    put(this.button, t("tokens.more", { count: Math.min(rest, AT_ONCE) }));
  }

  #point(event) {
    const chip = event.target.closest("[data-token]");
    if (chip) this.#look(Number(chip.dataset.token));
  }

  #press(event) {
    const drawn = [...this.list.querySelectorAll("[data-token]")].map((chip) => Number(chip.dataset.token));
    if (!drawn.length) return;
    const at = drawn.indexOf(this.#active);
    const next = event.key === "Home" ? 0 : event.key === "End" ? drawn.length - 1 : event.key in NEXT ? at + NEXT[event.key] : null;
    if (next === null) return;
    event.preventDefault();
    this.#look(drawn[Math.max(0, Math.min(drawn.length - 1, next))]);
    this.list.querySelector(".active").scrollIntoView({ block: "nearest" });
  }

  #look(index) {
    if (index === this.#active) return;
    const old = this.list.querySelector(".active");
    old?.classList.remove("active");
    old?.setAttribute("aria-selected", "false");
    this.#active = index;
    const chip = this.list.querySelector(`[data-token="${index}"]`);
    chip.classList.add("active");
    chip.setAttribute("aria-selected", "true");
    this.list.setAttribute("aria-activedescendant", chip.id);
    this.dispatchEvent(new CustomEvent("look", { detail: this.#tokens[index], bubbles: true }));
  }
}

/** The nodes of a piece: chips, a group of them for the bytes of one character, or text that no token has. */
export function drawPiece(piece, key = "") {
  if (!piece.tokens.length) return [piece.isDropped ? h("span", { class: "gap dropped", title: t("tokens.dropped") }, visible(piece.text), lineEnds(piece.text)) : " "];
  const chips = piece.tokens.map((token) => drawChip(token, key));
  if (chips.length === 1) return [chips[0], lineEnds(piece.text)].filter(Boolean);
  const whole = visible(piece.text);
  return [h("span", { class: "split", role: key ? "group" : null, "aria-label": key ? t("tokens.split-in", { text: whole, count: chips.length }) : null }, h("span", { class: "whole", "aria-hidden": "true" }, whole), chips)];
}

function drawChip(token, key) {
  const classes = ["piece", token.index % 2 ? "odd" : "even", token.isPart && "is-part", token.isUnknown && "is-unknown", token.isChanged && "is-changed"];
  const attributes = { class: classes.filter(Boolean).join(" "), title: token.isUnknown || token.isChanged ? token.name : null };
  if (key) Object.assign(attributes, { role: "option", id: `${key}-${token.index}`, "aria-selected": "false", "data-token": token.index });
  return h("span", attributes, token.isPart ? hex(token.bytes) : visible(token.text), token.isUnknown || token.isChanged ? h("small", {}, visible(token.name.trim() || token.name)) : null);
}

/** As many line breaks as a piece has, so that its text keeps its lines. */
function lineEnds(text) {
  const count = text.split("\n").length - 1;
  return count ? h("span", { class: "break", "aria-hidden": "true" }, "\n".repeat(count)) : null;
}

customElements.define("nw-token-chips", TokenChips);
