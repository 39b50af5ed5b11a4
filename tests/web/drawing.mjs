/* Random values for property tests, the same in every run. */

const ALPHABET = [..."ab z,.%+&=?#/'\"\\$`\n\té中文שλ😀👩🏽", "\u200d", "e\u0301", "<b>"];

/** A generator of numbers in [0, 1): the multiplicative one of Park and Miller. */
export function random(seed) {
  let state = seed;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}

/** Up to `most` characters, of one to four bytes each. */
export function drawText(draw, most) {
  return Array.from({ length: Math.floor(draw() * (most + 1)) }, () => ALPHABET[Math.floor(draw() * ALPHABET.length)]).join("");
}
