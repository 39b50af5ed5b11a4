/* <nw-slider>: a number to choose, with its value in words. Dispatches "slide" with the value in `detail`. */

import { h, newId, put } from "../core/dom.js";

class Slider extends HTMLElement {
  #values = [];
  #write = String;

  /** values: the numbers to choose from, in order; write: a value as text; help: what the number means. */
  show({ label, values, value, write = String, help = "" }) {
    const id = newId("slider");
    this.#values = values;
    this.#write = write;
    this.output = h("output", { for: id });
    this.input = h("input", { type: "range", id, min: 0, max: values.length - 1, step: 1, "aria-describedby": help ? `${id}-help` : null, oninput: () => this.#slide() });
    put(this, h("label", { for: id, title: help || null }, label), this.output, this.input, help ? h("span", { class: "sr", id: `${id}-help` }, help) : null);
    this.set(value);
  }

  /** Show another value: the nearest that can be chosen. */
  set(value) {
    const distance = (index) => Math.abs(this.#values[index] - value);
    const nearest = this.#values.reduce((best, _, index) => (distance(index) < distance(best) ? index : best), 0);
    this.input.value = nearest;
    this.#say(this.#values[nearest]);
  }

  disable(isDisabled) {
    this.input.disabled = isDisabled;
    this.classList.toggle("off", isDisabled);
  }

  #slide() {
    const value = this.#values[Number(this.input.value)];
    this.#say(value);
    this.dispatchEvent(new CustomEvent("slide", { detail: value, bubbles: true }));
  }

  #say(value) {
    const text = this.#write(value);
    put(this.output, text);
    this.input.setAttribute("aria-valuetext", text);
  }
}

/** The numbers from low to high in equal steps. */
export function range(low, high, step = 1) {
  return Array.from({ length: Math.round((high - low) / step) + 1 }, (_, index) => Number((low + index * step).toFixed(6)));
}

customElements.define("nw-slider", Slider);
