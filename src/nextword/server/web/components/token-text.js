/* <nw-token-text>: a prompt and the tokens that were generated after it. A token can be chosen with the pointer, or with the
   arrow keys and Enter; one of them is in the order of focus. Dispatches "token" with its number in `detail`. */

import { h, put } from "../core/dom.js";
import { stepOf } from "../core/heat.js";
import { t } from "../core/i18n.js";
import { fixed, percent } from "../core/numbers.js";
import { visible } from "../core/text.js";

const MOVES = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

class TokenText extends HTMLElement {
  #tokens = [];
  #isColored = true;

  connectedCallback() {
    if (this.body) return;
    this.prompt = h("span", { class: "prompt" });
    this.body = h("span", {});
    this.cursor = h("span", { class: "after", "aria-hidden": "true" });
    put(this, h("div", { class: "text", dir: "auto" }, this.prompt, this.body, this.cursor));
    this.setAttribute("role", "group");
    this.body.addEventListener("click", (event) => this.#choose(event.target.closest("[data-at]")));
    this.body.addEventListener("keydown", (event) => this.#move(event));
  }

  /** tokens: [{text, nats, isChosen?, isEnd?}]; selected: the number of one, or −1. */
  show({ prompt, tokens, selected = -1, isColored = true, isLive = false, label = "" }) {
    this.setAttribute("aria-label", label);
    this.#isColored = isColored;
    put(this.prompt, prompt);
    this.#tokens = tokens;
    put(this.body, tokens.map((token, at) => this.#element(token, at)));
    this.select(selected);
    this.live(isLive);
  }

  /** Add a token that was just generated. */
  add(token) {
    this.#tokens = [...this.#tokens, token];
    this.body.append(this.#element(token, this.#tokens.length - 1));
  }

  /** Whether more tokens are on their way: a cursor blinks. */
  live(isLive) {
    this.classList.toggle("live", isLive);
  }

  select(selected) {
    for (const element of this.body.querySelectorAll('[aria-pressed="true"]')) element.setAttribute("aria-pressed", "false");
    this.body.children[selected]?.setAttribute("aria-pressed", "true");
    this.#stop(this.body.children[selected] ?? this.body.children[0]);
  }

  /** Put the focus on a token. */
  focusToken(at) {
    const element = this.body.children[at];
    if (!element) return;
    this.#stop(element);
    element.focus({ preventScroll: true });
  }

  #element(token, at) {
    const bits = token.nats / Math.LN2;
    const text = token.isEnd ? "∎" : token.text.replaceAll("\n", "↵\n") || "·";
    const name = `${token.isEnd ? t("write.end-token") : token.text ? visible(token.text) : t("write.part-token")}, ${percent(Math.exp(-token.nats))}, ${fixed(bits, 1)} ${t("write.bits")}${token.isChosen ? `, ${t("write.chosen-token")}` : ""}`;
    const color = this.#isColored && !token.isChosen ? ` surprisal-${stepOf(bits)}` : "";
    return h("span", { class: `token${color}${token.isChosen ? " by-hand" : ""}${token.text ? "" : " bare"}`, role: "button", tabindex: at === 0 && !this.body.children.length ? "0" : "-1", "aria-pressed": "false", "aria-label": name, title: name, dataset: { at } }, text);
  }

  #stop(element) {
    for (const old of this.body.querySelectorAll('[tabindex="0"]')) old.tabIndex = -1;
    if (element) element.tabIndex = 0;
  }

  #choose(element) {
    if (element) this.dispatchEvent(new CustomEvent("token", { detail: Number(element.dataset.at), bubbles: true }));
  }

  #move(event) {
    const at = Number(event.target.dataset.at);
    if (event.key === "Enter" || event.key === " ") this.#choose(event.target);
    else if (event.key in MOVES || event.key === "Home" || event.key === "End") {
      const sideways = event.key === "ArrowLeft" || event.key === "ArrowRight";
      const turn = sideways && getComputedStyle(this.body).direction === "rtl" ? -1 : 1;
      this.focusToken(event.key === "Home" ? 0 : event.key === "End" ? this.#tokens.length - 1 : at + turn * MOVES[event.key]);
    } else return;
    event.preventDefault();
  }
}

customElements.define("nw-token-text", TokenText);
