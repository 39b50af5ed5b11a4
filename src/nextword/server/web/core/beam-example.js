/* The worked example of beam search: a/the, then cat/dog. Each word depends on the word before it only. */

import { END } from "./beam-search.js";

// The next words of each word, with probabilities; "" is the beginning. After a verb the text ends.
export const EXAMPLE = [
  { word: "", next: [["a", 0.55], ["the", 0.45]] },
  { word: "a", next: [["cat", 0.36], ["dog", 0.34], ["bird", 0.3]] },
  { word: "the", next: [["cat", 0.5], ["dog", 0.46], ["bird", 0.04]] },
  { word: "cat", next: [["sleeps", 0.6], ["runs", 0.3], [END, 0.1]] },
  { word: "dog", next: [["barks", 0.8], ["sleeps", 0.1], [END, 0.1]] },
  { word: "bird", next: [["sings", 0.9], [END, 0.1]] },
];

/** The example as rows for `readTable`. numbers: texts of the numbers in its order; what is missing or is no number stays. */
export function tableOf(numbers) {
  let at = 0;
  const read = (fallback) => {
    const text = numbers[at];
    at += 1;
    const value = Number(text);
    return text?.trim() && value >= 0 && Number.isFinite(value) ? value : fallback;
  };
  return Object.fromEntries(EXAMPLE.map(({ word, next }) => [word, Object.fromEntries(next.map(([text, number]) => [text, read(number)]))]));
}
