/* How tokenizers split a text, without a face: a label for each token, what is lost, and the columns in which the tokens
   of several tokenizers stand above each other. */

import { cellAt } from "./heat.js";
import { pieces as piecesOf } from "./text.js";

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Bytes as two hexadecimal digits each: "e4 bd a0". */
export function hex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** The text of bytes; "" if they are no whole characters. */
export function decode(bytes) {
  try {
    return decoder.decode(bytes);
  } catch {
    return "";
  }
}

/** The tokens of an answer of /tokenize: {index, id, name, start, end, bytes, text, isPart, isUnknown, isChanged}.
 *
 *  isPart: it begins or ends within a character. isUnknown: it stands for any text that the vocabulary lacks. isChanged: it
 *  stands for other text than stands there, such as lower case. */
export function readTokens(raw, { tokens, spans, token_strs: names }, { isLossless, unknown = null }) {
  return tokens.map((id, index) => {
    const [start, end] = spans[index];
    const bytes = raw.subarray(start, end);
    const text = decode(bytes);
    const isUnknown = unknown !== null && id === unknown;
    const isChanged = !isLossless && !isUnknown && start < end && text.trim() !== "" && names[index].trim() !== text.trim();
    return { index, id, name: names[index], start, end, bytes, text, isPart: start < end && text === "", isUnknown, isChanged };
  });
}

/** The pieces of a text with their tokens, and what is lost: {text, tokens, isDropped}. One space between words is none:
 *  decoding puts it back. */
export function splitText(text, tokens, isLossless) {
  return piecesOf(text, tokens).map((piece) => ({ ...piece, isDropped: !isLossless && !piece.tokens.length && piece.text !== " " }));
}

/** Columns of a text, each with whole words and, for each tokenizer, whole tokens: [{start, end}] in bytes. */
export function columnsOf(words, map, tokenizations) {
  const isFree = (byte) => tokenizations.every((tokens) => {
    const token = tokens[cellAt(tokens, byte)];
    return !token || token.start >= byte || token.end <= byte;
  });
  const columns = [];
  let start = 0;
  for (const word of words) {
    const end = map.bytes[word.end];
    if (!isFree(end)) continue;
    columns.push({ start, end });
    start = end;
  }
  const last = map.bytes[map.text.length];
  if (last > start) columns.push({ start, end: last });
  return columns;
}

/** The pieces that begin in a column. */
export function piecesIn(pieces, { start, end }) {
  return pieces.filter(({ tokens: [first] }) => first && first.start >= start && first.start < end);
}
