/* Answers to remember, so that what was asked before need not be asked again; a saved page gets them all the same. */

import { post, record } from "./api.js";

const KEPT = 300;
const known = new Map(); // request → answer

/** Post a request, unless its answer is known. */
export async function ask(path, body, signal) {
  const name = path + JSON.stringify(body);
  const answer = known.get(name) ?? (await post(path, body, { signal }));
  record("POST", path, body, answer);
  known.delete(name);
  known.set(name, answer);
  if (known.size > KEPT) known.delete(known.keys().next().value);
  return answer;
}

/** Record an answer, if it is known, as part of the view that is shown. */
export function remember(path, body) {
  const answer = known.get(path + JSON.stringify(body));
  if (answer) record("POST", path, body, answer);
}

/** Forget all answers: another model may have the name of one that has answered. */
export function forgetKnown() {
  known.clear();
}
