/* A view as one HTML file that works without a server: the page's own modules and styles, its state, and the answers
   that it has shown. Modules become data URLs in an import map; nothing is fetched when the file is opened. */

import { recordedAnswers } from "./api.js";
import { currentLanguage } from "./i18n.js";

const POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:";
const SHARED = ["common", "heat"]; // texts that several pages use
const IMPORT = /(\bfrom\s*|\bimport\s*\(?\s*)"(\.{1,2}\/[^"]+)"/g;

/** The HTML of the file. */
export async function savedPage(page, fragment) {
  const id = page.constructor.id;
  const root = new URL("/web/", location.href);
  const modules = await collect([new URL("app.js", root), new URL(`pages/${id}.js`, root), new URL(`strings/${id}.js`, root)], id);
  const styles = await Promise.all([...document.querySelectorAll('link[rel="stylesheet"]')].map(async (link) => (await fetch(link.href)).text()));
  const imports = Object.fromEntries([...modules].map(([name, source]) => [name, `data:text/javascript;base64,${base64(source)}`]));
  const recorded = { answers: recordedAnswers(), fragment, language: currentLanguage(), date: new Date().toISOString().slice(0, 10) };
  return `<!doctype html>
<html lang="${document.documentElement.lang}"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">
<title>nextword</title><style>${styles.join("\n").replaceAll("</", "<\\/")}</style>
<script type="importmap">${inScript({ imports })}</script>
<script type="application/json" id="recorded">${inScript(recorded)}</script></head>
<body><div id="app"></div><script type="module">import "${nameOf(new URL("app.js", root))}";</script></body></html>
`;
}

/** Offer a text as a file. */
export function download(name, text, type = "text/html") {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The sources of modules and of all that they import, by name; other pages are left out. */
async function collect(urls, id) {
  const modules = new Map();
  const waiting = [...urls];
  while (waiting.length) {
    const url = waiting.pop();
    const name = nameOf(url);
    if (modules.has(name)) continue;
    const other = /^nw\/(pages|strings)\/([^/]+)\.js$/.exec(name);
    if (other && ![id, ...SHARED].includes(other[2])) continue;
    modules.set(name, ""); // so that it is not read twice
    const source = await (await fetch(url)).text();
    modules.set(
      name,
      source.replace(IMPORT, (_, before, path) => {
        const target = new URL(path, url);
        waiting.push(target);
        return `${before}"${nameOf(target)}"`;
      }),
    );
  }
  return modules;
}

function nameOf(url) {
  return `nw${url.pathname.replace(/^\/web/, "")}`;
}

function base64(text) {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

function inScript(value) {
  return JSON.stringify(value).replaceAll("<", "\\u003c");
}
