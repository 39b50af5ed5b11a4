/* Where two texts differ, word by word. */

const MOST = 400; // words; longer texts are not compared

/** The words of a text, each with whether the other text has it at its place: [{word, isSame}], by the longest common
 *  subsequence. */
export function compareWords(text, other) {
  const [own, rest] = [text, other].map((each) => each.split(/\s+/).filter(Boolean));
  if (own.length > MOST || rest.length > MOST) return own.map((word) => ({ word, isSame: true }));
  const length = own.map(() => new Uint16Array(rest.length + 1)).concat([new Uint16Array(rest.length + 1)]);
  for (let i = own.length - 1; i >= 0; i -= 1) {
    for (let j = rest.length - 1; j >= 0; j -= 1) {
      length[i][j] = own[i] === rest[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const compared = [];
  let j = 0;
  for (let i = 0; i < own.length; i += 1) {
    while (j < rest.length && own[i] !== rest[j] && length[i][j + 1] >= length[i + 1][j]) j += 1;
    const isSame = own[i] === rest[j];
    compared.push({ word: own[i], isSame });
    if (isSame) j += 1;
  }
  return compared;
}
