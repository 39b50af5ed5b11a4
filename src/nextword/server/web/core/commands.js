/* What a page asks the server, for a terminal and for Python. */

/** A request with curl, as a POSIX shell reads it. */
export function curl({ method = "POST", path, body }, origin) {
  const words = ["curl", quoteShell(origin + path)];
  if (method !== "GET") words.push("-H", "'Content-Type: application/json'", "-d", quoteShell(JSON.stringify(body)));
  if (method !== "GET" && method !== "POST") words.push("-X", method);
  return words.join(" ");
}

/** A word of a shell command. */
export function quoteShell(text) {
  return /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A Python string literal. JSON's escapes are Python's, too. */
export function quotePython(text) {
  return JSON.stringify(text);
}
