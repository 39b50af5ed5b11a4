/* What the page Inside computes from the answers of the lens. */

import { pieces, visible } from "./text.js";

/** A text as a line of parts, in its own order: [{text, tokens: [indices]}]. Special tokens are parts without a place in
 *  the text (`isSpecial`); what stands between tokens is a part without tokens. Tokens that share a character share a part. */
export function partsOf(text, tokens) {
  const indexed = tokens.map((token, index) => ({ ...token, index }));
  const inText = indexed.filter((token) => token.start < token.end).sort((a, b) => a.start - b.start);
  const parts = pieces(text, inText).map((piece) => ({ text: piece.text, tokens: piece.tokens.map((token) => token.index), isSpecial: false }));
  for (const token of indexed.filter((each) => each.start === each.end)) {
    const before = parts.findLastIndex((part) => part.tokens.some((index) => index < token.index));
    parts.splice(before + 1, 0, { text: token.text, tokens: [token.index], isSpecial: true });
  }
  return parts;
}

/** A label for each token of a text. Tokens that share a character are numbered: 中₁ 中₂ 中₃. */
export function labelsOf(text, tokens) {
  const labels = tokens.map((token) => visible(token.text.trim() || token.text));
  for (const part of partsOf(text, tokens)) {
    if (part.tokens.length < 2) continue;
    for (const [i, token] of part.tokens.entries()) labels[token] = visible(part.text.trim()) + [...String(i + 1)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
  }
  return labels;
}

/** The indices of the largest values, largest first. */
export function strongest(values, count, size = (value) => value) {
  return [...values.keys()].sort((a, b) => size(values[b]) - size(values[a])).slice(0, count);
}

/** What a head mostly attends to: {name, share}. name: "previous", "self", "next" or "first" token if that gets at least
 *  `least` of the attention on average; else "spread", whose share is the effective number of tokens (e to the entropy). */
export function patternOf(weights, { isSquare = true, least = 0.35 } = {}) {
  const totals = { previous: 0, self: 0, next: 0, first: 0 };
  let effective = 0;
  for (const [row, own] of weights.entries()) {
    if (isSquare) {
      totals.previous += row > 1 ? own[row - 1] : 0; // the token before the second one is the first one
      totals.self += row ? own[row] : 0;
      totals.next += own[row + 1] ?? 0;
    }
    totals.first += row ? own[0] : 0;
    effective += Math.exp(-own.reduce((sum, weight) => sum + (weight > 0 ? weight * Math.log(weight) : 0), 0));
  }
  const count = Math.max(1, weights.length - 1);
  const [name, total] = Object.entries(totals).reduce((best, each) => (each[1] > best[1] ? each : best));
  return total / count >= least ? { name, share: total / count } : { name: "spread", share: effective / Math.max(1, weights.length) };
}

/** How a gradient changes per step back: {factor, half, reach}, of the norms at the steps up to the prediction.
 *  factor: geometric mean; half: steps after which half is left, null if it does not shrink; reach: share at step 0. */
export function decayOf(norms) {
  const steps = norms.length - 1;
  const [first, last] = [norms[0], norms[steps]];
  if (steps < 1 || !(first > 0) || !(last > 0)) return { factor: null, half: null, reach: last > 0 ? first / last : null };
  const factor = (first / last) ** (1 / steps);
  return { factor, half: factor < 1 ? Math.log(0.5) / Math.log(factor) : null, reach: first / last };
}

/** "vanishes", "explodes" or "stays", by the factor per step and by what reaches the first word. */
export function fateOf({ factor, reach }) {
  if (factor === null) return "unknown";
  if (factor < 0.97 || reach < 0.05) return "vanishes";
  return factor > 1.03 || reach > 20 ? "explodes" : "stays";
}

/** The order of units: "index", "mean" (largest first) or "variance" (over time, largest first). values: steps × units. */
export function orderUnits(values, by) {
  const units = [...(values[0] ?? []).keys()];
  if (by === "index") return units;
  const mean = units.map((unit) => values.reduce((sum, step) => sum + step[unit], 0) / values.length);
  if (by === "mean") return units.sort((a, b) => mean[b] - mean[a]);
  const variance = units.map((unit) => values.reduce((sum, step) => sum + (step[unit] - mean[unit]) ** 2, 0) / values.length);
  return units.sort((a, b) => variance[b] - variance[a]);
}

/** The step of a model at a byte of the text, as a fraction of tokens: 2.5 is the middle of the third token. */
export function stepAt(tokens, byte) {
  for (const [i, token] of tokens.entries()) {
    if (token.end >= byte && token.end > token.start) return i - 1 + (byte - Math.min(token.start, byte)) / (token.end - token.start);
  }
  return tokens.length - 1;
}

/** A word as it would stand behind a text: with a space, where the text's script has spaces. */
export function continuation(text, word) {
  const isOpen = !text || /\s$/.test(text) || /^\s/.test(word) || !/^[\p{L}\p{N}]/u.test(word);
  const hasNoSpaces = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;
  return isOpen || hasNoSpaces.test(word[0]) || hasNoSpaces.test(text.at(-1)) ? word : ` ${word}`;
}
