/* The state of a page in the URL fragment, so that a view can be shared: #/read?models=ngram,lstm&text=In+the+beginning

   Values are text, numbers, booleans or lists of text. What equals the default is left out. Only the fragment has the
   state: it is never sent to a server. */

const LONGEST = 8000; // characters of a fragment; some programs cut longer links

/** {page, state} of a fragment. Values take the types of the page's defaults; what does not fit is ignored. */
export function parse(fragment, defaultsOf) {
  const [, path, query] = /^#?\/?([^?]*)\??(.*)$/s.exec(fragment);
  const page = decode(path);
  const defaults = defaultsOf(page);
  if (!defaults) return { page: "", state: {} };
  const state = structuredClone(defaults);
  for (const [key, text] of new URLSearchParams(query)) {
    if (!Object.hasOwn(defaults, key)) continue;
    const value = read(text, defaults[key]);
    if (value !== undefined) state[key] = value;
  }
  return { page, state };
}

/** The fragment of a state, or of as much of it as fits into `most` characters: the longest texts are left out first, and `isCut` says so. */
export function format(page, state, defaults, most = LONGEST) {
  const parts = Object.entries(state)
    .filter(([key, value]) => key in defaults && JSON.stringify(value) !== JSON.stringify(defaults[key]))
    .map(([key, value]) => [key, Array.isArray(value) ? value.map(encodeURIComponent).join(",") : String(value)]);
  const build = (some) => {
    const query = new URLSearchParams(some).toString();
    return `#/${encodeURIComponent(page)}${query ? `?${query}` : ""}`;
  };
  let kept = parts;
  while (build(kept).length > most && kept.length) {
    const longest = kept.reduce((a, b) => (b[1].length > a[1].length ? b : a));
    kept = kept.filter((part) => part !== longest);
  }
  return { fragment: build(kept), isCut: kept.length < parts.length };
}

function read(text, example) {
  if (Array.isArray(example)) return text ? text.split(",").map(decode) : [];
  if (typeof example === "number") return text.trim() && Number.isFinite(Number(text)) ? Number(text) : undefined;
  if (typeof example === "boolean") return text === "true" ? true : text === "false" ? false : undefined;
  return text;
}

/** Percent-decoded, or as it is if somebody has damaged it. */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
