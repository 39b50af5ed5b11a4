/* Requests while somebody types: send the first at once, and while one is under way remember only the latest.

   So a fast model answers every keystroke and a slow one the last of a burst; neither is ever behind by more than one. */

export class Latest {
  #call;
  #waiting = null;
  #isBusy = false;

  /** `call(value)` returns a promise; it must handle its own errors. */
  constructor(call) {
    this.#call = call;
  }

  async ask(value) {
    this.#waiting = { value };
    if (this.#isBusy) return;
    this.#isBusy = true;
    try {
      while (this.#waiting) {
        const next = this.#waiting.value;
        this.#waiting = null;
        await this.#call(next);
      }
    } finally {
      this.#isBusy = false;
    }
  }
}
