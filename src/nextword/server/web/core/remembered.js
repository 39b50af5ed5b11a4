/* Answers that a page remembers while it is open: what was asked before is not asked again, and is saved with the view. */

import { post, record } from "./api.js";

const MOST = 200;

export class Remembered {
  #answers = new Map();

  async post(path, body, options) {
    const key = `${path} ${JSON.stringify(body)}`;
    if (!this.#answers.has(key)) this.#answers.set(key, await post(path, body, options));
    const answer = this.#answers.get(key);
    record("POST", path, body, answer);
    if (this.#answers.size > MOST) this.#answers.delete(this.#answers.keys().next().value);
    return answer;
  }
}
