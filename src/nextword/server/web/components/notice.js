/* <nw-notice>: what a page is doing, and what went wrong. Progress appears only if it takes long. */

import { isSaved } from "../core/api.js";
import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";

const PATIENCE = 500; // ms before progress is shown
const RETRY_MS = 2000; // between two looks whether the server is back

class Notice extends HTMLElement {
  #timers = [];

  connectedCallback() {
    this.setAttribute("role", "status");
  }

  disconnectedCallback() {
    this.#stop();
  }

  begin(cancel) {
    this.#stop();
    const began = performance.now();
    this.#timers.push(
      setTimeout(() => {
        const seconds = h("span", {}, "");
        put(this, h("div", { class: "notice waiting" }, h("span", { class: "spinner", "aria-hidden": "true" }), h("span", {}, t("waiting")), seconds, h("button", { class: "plain", onclick: cancel }, t("cancel"))));
        const tick = () => put(seconds, `${Math.round((performance.now() - began) / 1000)} s`);
        tick();
        this.#timers.push(setInterval(tick, 1000));
      }, PATIENCE),
    );
  }

  clear() {
    this.#stop();
    put(this);
  }

  /** Show an error. If the server is gone, look for it until it is back, and then try again. */
  fail(error, again) {
    this.#stop();
    if (error.code === "saved" || isSaved) return this.#show(t("error:saved"), "info");
    if (error.code === "unreachable") {
      this.#show(t("error:unreachable"), "error", again);
      this.#timers.push(setInterval(() => fetch("/health").then((answer) => answer.ok && again(), () => {}), RETRY_MS));
      return undefined;
    }
    if (error.status === 429 || error.status === 503) return this.#show(`${t("error:busy")} ${error.message}`, "error", again);
    return this.#show(error.message || String(error), "error", again);
  }

  #show(text, kind, again) {
    put(this, h("div", { class: `notice ${kind}`, role: kind === "error" ? "alert" : null }, h("span", {}, text), again && h("button", { class: "plain", onclick: again }, t("again"))));
  }

  #stop() {
    for (const timer of this.#timers) {
      clearTimeout(timer);
      clearInterval(timer);
    }
    this.#timers = [];
  }
}

customElements.define("nw-notice", Notice);
