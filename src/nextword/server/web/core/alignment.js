/* Attention of words: the weights of tokens, added up over the words of a source and averaged over the words of its
   translation. */

import { ByteMap, words } from "./text.js";

/** {rows, columns, weights}: words of the translation, words of the source, and the share of its attention that each of the
 *  former pays to each of the latter. What goes to tokens without text (an end of the sentence) is the column `rest`. */
export function alignWords({ text, source, rows, columns, weights }) {
  const from = spread(text, rows);
  const to = spread(source, columns);
  const matrix = from.words.map((_, word) => {
    const own = from.owners.flatMap((owner, token) => (owner === word ? [token] : []));
    const sums = new Array(to.words.length).fill(0);
    let rest = 0;
    for (const token of own) {
      weights[token].forEach((weight, column) => {
        if (to.owners[column] < 0) rest += weight / own.length;
        else sums[to.owners[column]] += weight / own.length;
      });
    }
    return { sums, rest };
  });
  return { rows: from.words, columns: to.words, weights: matrix.map((row) => row.sums), rest: matrix.map((row) => row.rest) };
}

/** Average maps of (heads × rows × columns) over their heads: rows × columns. */
export function averageHeads(heads) {
  return heads[0].map((row, i) => row.map((_, j) => heads.reduce((sum, head) => sum + head[i][j], 0) / heads.length));
}

/** Words of a text, and for each token the word that it begins in; −1 for tokens without text. */
function spread(text, tokens) {
  const map = new ByteMap(text);
  const found = words(text).map((word) => ({ ...word, label: word.text.trim() })).filter((word) => word.label);
  const owners = tokens.map((token) => {
    if (token.start === token.end) return -1;
    let place = map.at(token.start);
    while (place < text.length && /\s/.test(text[place])) place += 1;
    return found.findIndex((word) => place < word.end);
  });
  return { words: found.map((word) => word.label), owners };
}
