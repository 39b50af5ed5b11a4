/* What a heat map of a text says, without a face: bands of ranks, steps of surprisal, bits of bytes and of words, totals,
   the difference of two models, and the parts in which a long text is read.

   Models are aligned by bytes: the bits of a token are spread over its bytes, and a word costs what its bytes cost. So
   tokens of different tokenizers can be compared. */

import { isLow, pieces } from "./text.js";

export const BANDS = [10, 100, 1000]; // ranks at which a band ends; the last band has all beyond (as in GLTR)
export const STEPS = [1, 2, 4, 6, 8, 11, 14]; // bits at which the next color of surprisal begins, as in the reports
export const GAPS = [0.5, 1, 2, 4, 8]; // bits of a word at which the next color of a difference begins
const UNSPACED_BYTES = 25; // bytes per word from which on the script must be one without spaces

const below = (edges, value) => edges.filter((edge) => value >= edge).length;

/** 0: among the 10 likeliest tokens, 1: 100, 2: 1000, 3: beyond. */
export function bandOf(rank) {
  return BANDS.filter((edge) => rank > edge).length;
}

/** 0 … 7. */
export function stepOf(bits) {
  return below(STEPS, bits);
}

/** −5 … 5: 0 for a difference below half a bit. */
export function gapOf(difference) {
  return Math.sign(difference) * below(GAPS, Math.abs(difference));
}

/** A token of an answer of /api/explain, flat; JSON writes infinity as null. */
export function flatten(each) {
  return { ...each.token, bits: each.bits ?? Infinity, nats: each.nats ?? Infinity, rank: each.rank, entropy: (each.entropy ?? 0) / Math.LN2, top: each.top };
}

/** The places of a text that tokens color: [{start, end, tokens, bits, rank}]. Tokens that share a character share a cell;
 *  a token without text, such as the end of a translation, has an empty one. `offset`: place of the text in a longer one. */
export function cellsOf(text, tokens, offset = 0) {
  const make = (start, end, own) => ({ start: start + offset, end: end + offset, tokens: own, bits: sum(own.map((token) => token.bits)), rank: Math.max(...own.map((token) => token.rank)) });
  const cells = pieces(text, tokens).filter((piece) => piece.tokens.length).map((piece) => make(piece.start, piece.end, piece.tokens));
  const bare = tokens.filter((token) => token.start === token.end);
  return [...cells, ...bare.map((token) => make(text.length, text.length, [token]))];
}

/** Spread the bits of tokens over the bytes from `offset` on. Bytes of a part that no token has cost nothing. */
export function spread(bits, tokens, offset, length) {
  bits.fill(0, offset, offset + length);
  for (const token of tokens) {
    const each = token.bits / (token.end - token.start);
    for (let byte = token.start; byte < token.end; byte += 1) bits[offset + byte] += each;
  }
}

/** The bits of bytes start … end; NaN while one of them is not read. */
export function sumOf(bits, start, end) {
  let total = 0;
  for (let byte = start; byte < end; byte += 1) total += bits[byte];
  return total;
}

/** The index of the cell at a place, or of the next one; −1 if there is none. Cells are sorted. */
export function cellAt(cells, place) {
  let low = 0;
  let high = cells.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (cells[middle].end <= place && cells[middle].end > cells[middle].start) low = middle + 1;
    else high = middle;
  }
  return low < cells.length ? low : cells.length - 1;
}

/** Words, or characters in a script without spaces: {count, isUnspaced}. Words are runs of other characters than spaces. */
export function countUnits(text, bytes) {
  const words = text.match(/\S+/g)?.length ?? 0;
  if (!words || bytes / words < UNSPACED_BYTES) return { count: words, isUnspaced: false };
  return { count: [...text.replace(/\s/gu, "")].length, isUnspaced: true };
}

/** What the cells cost together: {tokens, bits, bands, bitsPerByte, bitsPerToken, perplexity}; of words, or of characters. */
export function totals(cells, { bytes, units, isLossless }) {
  const bands = [0, 0, 0, 0];
  let bits = 0;
  let count = 0;
  for (const cell of cells) {
    for (const token of cell.tokens) {
      bits += token.bits;
      bands[bandOf(token.rank)] += 1;
      count += 1;
    }
  }
  return {
    tokens: count,
    bits,
    bands: bands.map((each) => (count ? each / count : 0)),
    bitsPerByte: isLossless && bytes ? bits / bytes : null,
    bitsPerToken: count ? bits / count : null,
    perplexity: units ? 2 ** (bits / units) : null,
  };
}

/** How much cheaper each word is for the second model: [{…word, first, second, gap}] in bits; unread words are left out. */
export function differences(words, map, first, second) {
  const rows = [];
  for (const word of words) {
    const [start, end] = [map.bytes[word.start], map.bytes[word.end]];
    const [one, other] = [sumOf(first, start, end), sumOf(second, start, end)];
    if (Number.isNaN(one) || Number.isNaN(other)) continue;
    rows.push({ ...word, first: one, second: other, gap: one === other ? 0 : one - other });
  }
  return rows;
}

/** Why two readings cannot be subtracted: "pseudo", "source", "lossy", or "" if they can. */
export function obstacle(one, other) {
  if (one.isPseudo || other.isPseudo) return "pseudo";
  if (one.source !== other.source) return "source";
  if (one.isLossless && other.isLossless) return "";
  const ids = (reading) => reading.cells.flatMap((cell) => cell.tokens.map((token) => token.id)).join();
  return one.isLossless === other.isLossless && ids(one) === ids(other) ? "" : "lossy";
}

/** The parts in which a text is read: [{from, start, end}], places in the string. The text from `from` to `start` is given
 *  as context. A text of at most `most` tokens is one part. Parts end with a paragraph, else a sentence, else a word; the
 *  first ones are short, so that something is seen soon. `spans`: of the tokens, in bytes; map: ByteMap of the text. */
export function planParts(map, spans, { most, part, context }) {
  const { text } = map;
  if (spans.length <= most) return [{ from: 0, start: 0, end: text.length }];
  const parts = [];
  let first = 0; // token that the part begins with
  let start = 0;
  let size = part >> 2;
  while (first < spans.length) {
    const next = first + size >= spans.length ? spans.length : findCut(map, spans, first + (size >> 1), first + size);
    const end = next === spans.length ? text.length : map.at(spans[next][0]);
    parts.push({ from: map.at(spans[Math.max(0, first - context)][0]), start, end });
    [first, start, size] = [next, end, Math.min(part, size * 2)];
  }
  parts[0].from = 0;
  return parts;
}

/** The last token after `low`, up to `high`, that begins a paragraph, else a sentence, else a word, else a character. */
function findCut(map, spans, low, high) {
  const { text, bytes } = map;
  let best = high;
  let quality = 0;
  for (let token = high; token > low && quality < 3; token -= 1) {
    const place = map.at(spans[token][0]);
    if (bytes[place] !== spans[token][0]) continue; // in the middle of a character
    const before = text.slice(Math.max(0, place - 4), place);
    const isWord = /\s$/.test(before) || /^\s/.test(text.slice(place, place + 1));
    const own = /\n$/.test(before) ? 3 : /[。！？]["”』」]?\s*$/.test(before) || (isWord && /[.!?…؟۔]["'”’)\]]?\s*$/.test(before)) ? 2 : isWord ? 1 : 0.5;
    if (own > quality) [best, quality] = [token, own];
  }
  return best;
}

/** A text in blocks that can be laid out by themselves, and these in runs of about `size` characters:
 *  [{start, end, runs: [{start, end}]}]. A block ends with a line; short lines share one. Runs end before a space. */
export function blocksOf(text, size = 1200) {
  const blocks = [];
  let start = 0;
  for (let line = 0; line < text.length; ) {
    const end = text.indexOf("\n", line) + 1 || text.length;
    if (line > start && end - start > size) {
      blocks.push({ start, end: line, runs: [{ start, end: line }] });
      start = line;
    }
    if (end - start > size || end === text.length) {
      blocks.push({ start, end, runs: runsOf(text, start, end, size) });
      start = end;
    }
    line = end;
  }
  return blocks;
}

function runsOf(text, start, end, size) {
  const runs = [];
  while (end - start > size) {
    const window = text.slice(start, start + size);
    const cut = Math.max(window.lastIndexOf(" "), Math.max(window.lastIndexOf("\u3002"), window.lastIndexOf("\uff0c")) + 1);
    const last = cut > size / 2 ? cut : size - (isLow(text, start + size) ? 1 : 0);
    runs.push({ start, end: start + last });
    start += last;
  }
  if (end > start) runs.push({ start, end });
  return runs;
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
