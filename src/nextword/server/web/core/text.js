/* Text as models and people count it: models in bytes of UTF-8, JavaScript in units of UTF-16, people in words. */

const encoder = new TextEncoder();

export function byteLength(text) {
  return encoder.encode(text).length;
}

/** Maps bytes to places in a string: `at(byte)` is the place of the character that the byte belongs to. */
export class ByteMap {
  constructor(text) {
    this.text = text;
    this.bytes = new Uint32Array(text.length + 1); // place → bytes before it; a low surrogate has those of its high one
    let count = 0;
    for (let place = 0; place < text.length; ) {
      const code = text.codePointAt(place);
      const units = code > 0xffff ? 2 : 1;
      for (let unit = 0; unit < units; unit += 1) this.bytes[place + unit] = count;
      count += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      place += units;
    }
    this.bytes[text.length] = count;
  }

  /** The last place that has at most this many bytes before it, at a character's beginning. */
  at(byte) {
    let low = 0;
    let high = this.text.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.bytes[middle] <= byte) low = middle;
      else high = middle - 1;
    }
    return low > 0 && this.bytes[low] === this.bytes[low - 1] && isLow(this.text, low) ? low - 1 : low;
  }
}

/** Split a text at the tokens' borders: [{text, start, end, tokens}] with places in the string. Tokens that share a
 *  character share a piece; bytes before, between and behind tokens are pieces without tokens. */
export function pieces(text, tokens) {
  const map = new ByteMap(text);
  const result = [];
  let place = 0;
  const add = (end, own) => {
    if (end > place || own.length) result.push({ text: text.slice(place, end), start: place, end, tokens: own });
    place = Math.max(place, end);
  };
  let group = [];
  for (const token of tokens) {
    if (token.start === token.end) continue; // stands for no text
    const start = map.at(token.start);
    if (group.length && start >= place && map.bytes[start] === token.start) {
      add(start, group);
      group = [];
    }
    if (!group.length && start > place) add(start, []);
    group.push(token);
    const isComplete = map.bytes[map.at(token.end)] === token.end;
    if (isComplete) {
      add(map.at(token.end), group);
      group = [];
    }
  }
  if (group.length) add(text.length, group);
  if (place < text.length) add(text.length, []);
  return result;
}

/** The words of a text with the space before each: [{text, start, end}], which together are the whole text. */
export function words(text, language) {
  const segmenter = new Intl.Segmenter(language, { granularity: "word" });
  const found = [];
  for (const { segment, index, isWordLike } of segmenter.segment(text)) {
    const last = found.at(-1);
    const continues = last && (last.isOpen || (!isWordLike && !/\s/.test(segment)));
    if (continues) {
      last.text += segment;
      last.end += segment.length;
      last.isOpen = last.isOpen && /^\s*$/.test(last.text);
    } else {
      found.push({ text: segment, start: index, end: index + segment.length, isOpen: /^\s+$/.test(segment) });
    }
  }
  return found.map(({ text: part, start, end }) => ({ text: part, start, end }));
}

/** A token as a label: spaces and line ends are visible. */
export function visible(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length)) || "∅";
}

/** "rtl" or "ltr", by the first strong character. */
export function direction(text) {
  const strong = /[\p{L}]/u.exec(text)?.[0] ?? "";
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/.test(strong) ? "rtl" : "ltr";
}

/** Whether the second half of a character beyond the basic plane is at a place. */
export function isLow(text, place) {
  const code = text.charCodeAt(place);
  return code >= 0xdc00 && code <= 0xdfff;
}
