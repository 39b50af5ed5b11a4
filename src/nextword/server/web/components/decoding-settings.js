/* <nw-decoding>: how the next token is chosen: greedily or by sampling, temperature and filters, length and seed. Dispatches
   "change-setting" with {name: value} in `detail`. */

import { h, newId, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import "./choice.js";
import { range } from "./slider.js";

const TOPK = [1, 2, 3, 4, 5, 8, 10, 15, 20, 30, 50, 100, 200, 500, 1000, 0]; // 0: all
const two = (value) => value.toFixed(2);
const SLIDERS = {
  temperature: { values: range(0.05, 2, 0.05), write: two },
  topk: { values: TOPK, write: (value) => (value ? String(value) : "∞") },
  topp: { values: range(0.05, 1, 0.01), write: two },
  minp: { values: range(0, 0.5, 0.01), write: two },
  repetition: { values: range(1, 2, 0.05), write: two },
};
const NUMBERS = { length: [1, 500], seed: [0, 2 ** 31 - 1] };
const OFF = { topk: 0, topp: 1, minp: 0, repetition: 1 }; // values that change nothing

export const SETTINGS = ["method", ...Object.keys(SLIDERS), ...Object.keys(NUMBERS)];

/** The settings of a text in words, without those that change nothing. */
export function describeSettings(settings) {
  const isGreedy = settings.method === "greedy";
  const names = isGreedy ? ["repetition"] : Object.keys(SLIDERS);
  const parts = names.filter((name) => settings[name] !== OFF[name]).map((name) => `${t(`write.short-${name}`)} ${SLIDERS[name].write(settings[name])}`);
  return [isGreedy ? t("write.method-greedy") : null, ...parts, isGreedy ? null : `${t("write.short-seed")} ${settings.seed}`].filter(Boolean).join(" · ");
}

class DecodingSettings extends HTMLElement {
  connectedCallback() {
    if (this.method) return;
    const change = (name, value) => this.dispatchEvent(new CustomEvent("change-setting", { detail: { [name]: value }, bubbles: true }));
    this.method = h("nw-choice", { onpick: (event) => change("method", event.detail) });
    this.sliders = {};
    for (const [name, { values, write }] of Object.entries(SLIDERS)) {
      this.sliders[name] = h("nw-slider", { onslide: (event) => change(name, event.detail) });
      this.sliders[name].show({ label: t(`write.${name}`), values, value: 1, write, help: t(`write.${name}-help`) });
    }
    this.numbers = {};
    const number = ([name, [least, most]]) => {
      const id = newId(name);
      const input = h("input", { type: "number", id, min: least, max: most, step: 1, onchange: () => change(name, Math.min(most, Math.max(least, Math.round(Number(input.value) || least)))) });
      this.numbers[name] = input;
      return h("div", { class: "field" }, h("label", { for: id }, t(`write.${name}`)), input);
    };
    put(this, h("fieldset", { class: "decoding" }, h("legend", {}, t("write.decoding")), this.method, Object.values(this.sliders), h("div", { class: "numbers" }, Object.entries(NUMBERS).map(number))));
  }

  /** Put the settings into the fields. */
  show(settings) {
    const isGreedy = settings.method === "greedy";
    for (const [name, slider] of Object.entries(this.sliders)) {
      slider.set(settings[name]);
      slider.disable(isGreedy && name !== "repetition");
    }
    for (const [name, input] of Object.entries(this.numbers)) input.value = settings[name];
    this.numbers.seed.disabled = isGreedy;
    this.method.show({ label: t("write.method"), options: ["sample", "greedy"].map((value) => ({ value, label: t(`write.method-${value}`) })), value: settings.method });
  }
}

customElements.define("nw-decoding", DecodingSettings);
