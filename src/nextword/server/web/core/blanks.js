/* Texts with blanks, written ___ as the routes want them. */

export const BLANK = "___";

/** The text between the blanks: one part more than there are blanks. */
export function split(text) {
  return text.split(BLANK);
}

/** Put a word into one blank. */
export function fillBlank(text, index, word) {
  const parts = split(text);
  return parts.slice(0, index + 1).join(BLANK) + word + parts.slice(index + 1).join(BLANK);
}

/** Replace a range by a blank, without the space around it: {text, index} with the number of the new blank. */
export function makeBlank(text, start, end) {
  const inside = text.slice(start, end);
  const from = start + (inside.length - inside.trimStart().length);
  const to = inside.trim() ? end - (inside.length - inside.trimEnd().length) : from;
  return { text: text.slice(0, from) + BLANK + text.slice(to), index: split(text.slice(0, from)).length - 1, word: text.slice(from, to) };
}

/** A text as words that can be hidden, blanks, and what is between them: [{kind: "word" | "blank" | "rest", text, start, index?}]. */
export function segments(text, language) {
  const segmenter = new Intl.Segmenter(language, { granularity: "word" });
  const found = [];
  let place = 0;
  split(text).forEach((part, index) => {
    if (index) {
      found.push({ kind: "blank", text: BLANK, start: place, index: index - 1 });
      place += BLANK.length;
    }
    for (const { segment, index: at, isWordLike } of segmenter.segment(part)) found.push({ kind: isWordLike ? "word" : "rest", text: segment, start: place + at });
    place += part.length;
  });
  return found;
}

/** Probabilities ∝ exp(−nats); null is infinitely many nats. */
export function shares(nats) {
  const least = Math.min(...nats.map((value) => value ?? Infinity));
  const odds = nats.map((value) => (value === null || !Number.isFinite(least) ? 0 : Math.exp(least - value)));
  const total = odds.reduce((sum, value) => sum + value, 0) || 1;
  return odds.map((value) => value / total);
}
